//! Files that are written atomically, and only if they differ.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown,
};
use std::path::{Path, PathBuf};

use crate::failure::{AgentError, AgentResult, FailureCode};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

impl Owner {
    pub const ROOT: Self = Self { uid: 0, gid: 0 };
}

/// Makes the file at `path` exactly this; `true` if it changed. After an error the previous file is still there.
pub fn write(path: &Path, mode: u32, owner: Owner, bytes: &[u8]) -> AgentResult<bool> {
    written(path, mode, owner, bytes).map_err(|error| failed(path, &error))
}

fn written(path: &Path, mode: u32, owner: Owner, bytes: &[u8]) -> io::Result<bool> {
    if is_current(path, mode, owner, bytes)? {
        return Ok(false);
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    // The owner must be able to pass the folders; the file's own mode protects it.
    make_folders(folder, 0o755)?;
    let draft = draft(path);
    // Left by a run that died.
    remove_if_exists(&draft)?;
    let mut file = OpenOptions::new().create_new(true).write(true).mode(mode).open(&draft)?;
    file.write_all(bytes)?;
    // The umask restricts the mode at creation.
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    chown_path(&draft, owner)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    File::open(folder)?.sync_all()?;
    Ok(true)
}

fn is_current(path: &Path, mode: u32, owner: Owner, bytes: &[u8]) -> io::Result<bool> {
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

/// In the same folder, so that a rename works.
fn draft(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.slipway-new"))
}

fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Creates a folder and its parents, owned by root. The mode is set explicitly because the user data's umask is restrictive.
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

/// Ensures a folder with that mode and owner.
pub fn folder(path: &Path, mode: u32, owner: Owner) -> AgentResult<()> {
    let made = || {
        // The owner must be able to pass its parents.
        make_folders(path.parent().unwrap_or(Path::new("/")), 0o755)?;
        make_folders(path, mode)?;
        let found = fs::metadata(path)?;
        if found.mode() & 0o7777 != mode {
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        }
        chown_path(path, owner)
    };
    made().map_err(|error| failed(path, &error))
}

/// Gives a folder and its content to `owner`: the same user may have another number on another image.
pub fn chown_all(path: &Path, owner: Owner) -> AgentResult<()> {
    chown_below(path, owner).map_err(|error| failed(path, &error))
}

fn chown_below(path: &Path, owner: Owner) -> io::Result<()> {
    chown_path(path, owner)?;
    if fs::symlink_metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            chown_below(&entry?.path(), owner)?;
        }
    }
    Ok(())
}

fn chown_path(path: &Path, owner: Owner) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    // Only root can change owners; tests may not be root.
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

pub fn read(path: &Path) -> AgentResult<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(path, &error)),
    }
}

/// Removes a file, if it exists.
pub fn remove(path: &Path) -> AgentResult<()> {
    // Synced, so that it does not reappear after a power failure.
    let synced = || File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all();
    remove_if_exists(path).and_then(|()| synced()).map_err(|error| failed(path, &error))
}

pub(crate) fn failed(path: &Path, error: &io::Error) -> AgentError {
    AgentError {
        code: FailureCode::MachineFiles,
        message: format!("{}: {error}", path.display()),
        help: "see that the agent runs as root, and that the disk has room and is mounted writable"
            .to_owned(),
        transient: matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::Interrupted),
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
        // A leftover draft of a run that died is replaced.
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
