//! Files that are written whole or not at all, and only where they differ.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown,
};
use std::path::{Path, PathBuf};

use super::accounts::Owner;
use crate::failure::{Failure, FailureCode, Outcome};

/// Lets the file at `path` be exactly this; whether it was anything else before.
///
/// # Errors
/// If it cannot be written; then what was there is still there.
pub fn write(path: &Path, mode: u32, owner: Owner, bytes: &[u8]) -> Outcome<bool> {
    written(path, mode, owner, bytes).map_err(|error| failed(path, &error))
}

fn written(path: &Path, mode: u32, owner: Owner, bytes: &[u8]) -> io::Result<bool> {
    if stands(path, mode, owner, bytes)? {
        return Ok(false);
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    // Whoever the file belongs to, or one beside it, must come through: the file alone says who may read it.
    make_folders(folder, 0o755)?;
    let draft = draft(path);
    // What a run that died left behind.
    remove(&draft)?;
    let mut file = OpenOptions::new().create_new(true).write(true).mode(mode).open(&draft)?;
    file.write_all(bytes)?;
    // The mode at creation is cut by the umask.
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    give(&draft, owner)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    File::open(folder)?.sync_all()?;
    Ok(true)
}

fn stands(path: &Path, mode: u32, owner: Owner, bytes: &[u8]) -> io::Result<bool> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let same = found.is_file()
        && found.mode() & 0o7777 == mode
        && (!is_root() || (found.uid(), found.gid()) == (owner.uid, owner.gid))
        && found.len() == bytes.len() as u64;
    Ok(same && fs::read(path)? == bytes)
}

/// Beside the file, so that a rename is enough.
fn draft(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.slipway-new"))
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Makes a folder with all above it, of root's. The mode is said again: userdata runs us under a umask that closes all to others.
fn make_folders(folder: &Path, mode: u32) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        make_folders(above, mode)?;
    }
    match DirBuilder::new().mode(mode).create(folder) {
        Ok(()) => fs::set_permissions(folder, fs::Permissions::from_mode(mode)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Lets there be a folder of `owner`'s with that mode.
///
/// # Errors
/// If it cannot be made.
pub fn folder(path: &Path, mode: u32, owner: Owner) -> Outcome<()> {
    let made = || {
        // Whoever it belongs to must come through those above it.
        make_folders(path.parent().unwrap_or(Path::new("/")), 0o755)?;
        make_folders(path, mode)?;
        let found = fs::metadata(path)?;
        if found.mode() & 0o7777 != mode {
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        }
        give(path, owner)
    };
    made().map_err(|error| failed(path, &error))
}

/// Gives a folder and everything in it to `owner`: on another image the same user may have another number.
///
/// # Errors
/// If that cannot be done.
pub fn give_all(path: &Path, owner: Owner) -> Outcome<()> {
    give_below(path, owner).map_err(|error| failed(path, &error))
}

fn give_below(path: &Path, owner: Owner) -> io::Result<()> {
    give(path, owner)?;
    if fs::symlink_metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            give_below(&entry?.path(), owner)?;
        }
    }
    Ok(())
}

fn give(path: &Path, owner: Owner) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    // Whoever is not root can give nothing away: tests.
    if !is_root() || (found.uid(), found.gid()) == (owner.uid, owner.gid) {
        return Ok(());
    }
    if found.is_symlink() {
        return std::os::unix::fs::lchown(path, Some(owner.uid), Some(owner.gid));
    }
    chown(path, Some(owner.uid), Some(owner.gid))
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The text of a file; `None` if there is none.
///
/// # Errors
/// If it cannot be read.
pub fn read(path: &Path) -> Outcome<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(path, &error)),
    }
}

/// Removes a file; none is fine.
///
/// # Errors
/// If it stays.
pub fn gone(path: &Path) -> Outcome<()> {
    // For good: what says that a disk may be formatted must not come back with the power.
    let synced = || File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all();
    remove(path).and_then(|()| synced()).map_err(|error| failed(path, &error))
}

pub(crate) fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure {
        code: FailureCode::MachineFiles,
        message: format!("{}: {error}", path.display()),
        help: "see that the agent runs as root, and that the disk has room and is no read-only one"
            .to_owned(),
        passing: matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::Interrupted),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_file_is_written_only_where_it_differs() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("etc/a/b.conf");
        assert!(write(&path, 0o644, Owner::ROOT, b"one").unwrap());
        let first = fs::metadata(&path).unwrap().ino();
        assert!(!write(&path, 0o644, Owner::ROOT, b"one").unwrap());
        assert_eq!(fs::metadata(&path).unwrap().ino(), first);
        assert!(write(&path, 0o600, Owner::ROOT, b"one").unwrap(), "the mode counts");
        // A draft of a run that died is in nobody's way.
        fs::write(draft(&path), b"half").unwrap();
        assert!(write(&path, 0o600, Owner::ROOT, b"two").unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn folders_above_a_closed_file_can_be_passed_by_its_owner() {
        let root = tempfile::tempdir().unwrap();
        write(&root.path().join("etc/app/conf/key"), 0o600, Owner { uid: 1, gid: 1 }, b"k").unwrap();
        for folder in ["etc", "etc/app", "etc/app/conf"] {
            assert_eq!(fs::metadata(root.path().join(folder)).unwrap().mode() & 0o7777, 0o755, "{folder}");
        }
    }
}
