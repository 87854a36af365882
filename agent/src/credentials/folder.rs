//! One folder of credentials: generations of files, and the link to the current one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use crate::failure::{AgentError, AgentResult, FailureCode};

const CURRENT: &str = ".current";
/// Links to the previous generation until a change is settled, so that a later run can undo the change of a run that died.
pub(super) const PREVIOUS: &str = ".previous";
const LOCK: &str = ".lock";
/// Suffix of the second name of a generation, for when the current one of the same digest is damaged.
const AGAIN: &str = "-again";

#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

pub(super) fn digest(name: &str) -> &str {
    let name = name.strip_prefix('.').unwrap_or(name);
    name.strip_suffix(AGAIN).unwrap_or(name)
}

impl Folder {
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Creates the folder: writable by its owner, passable for others.
    pub(super) fn open(path: PathBuf) -> AgentResult<Self> {
        DirBuilder::new().recursive(true).mode(0o755).create(&path).map_err(|error| failed(&path, &error))?;
        Ok(Self { path })
    }

    /// Waits for the folder's lock.
    pub(super) fn lock(&self) -> AgentResult<File> {
        let path = self.path.join(LOCK);
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(false).write(true).mode(0o600).open(&path);
        let file = file.map_err(|error| failed(&path, &error))?;
        file.lock().map_err(|error| failed(&path, &error))?;
        Ok(file)
    }

    /// The current generation.
    pub(super) fn current(&self) -> AgentResult<Option<String>> {
        self.link(CURRENT)
    }

    /// The previous generation, while a change is not settled.
    pub(super) fn previous(&self) -> AgentResult<Option<String>> {
        self.link(PREVIOUS)
    }

    fn link(&self, name: &str) -> AgentResult<Option<String>> {
        let path = self.path.join(name);
        match fs::read_link(&path) {
            Ok(target) => Ok(target.to_str().map(str::to_owned)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&path, &error)),
        }
    }

    /// Writes a generation that no link names yet, and returns its name. An intact one is reused.
    pub(super) fn write_generation(&self, digest: &str, files: &BTreeMap<&str, &str>) -> AgentResult<String> {
        let names = [format!(".{digest}"), format!(".{digest}{AGAIN}")];
        if let Some(name) = names.iter().find(|name| self.holds(name, files)) {
            return Ok(name.clone());
        }
        let (current, previous) = (self.current()?, self.previous()?);
        let in_use = |name: &&String| current.as_ref() == Some(*name);
        let name = names.iter().find(|name| !in_use(name)).unwrap_or(&names[1]).clone();
        if previous.as_ref() == Some(&name) {
            // It is damaged, so it cannot be gone back to.
            self.remove(PREVIOUS)?;
        }
        let path = self.path.join(&name);
        self.write(&path, files).map_err(|error| failed(&path, &error))?;
        Ok(name)
    }

    fn holds(&self, name: &str, files: &BTreeMap<&str, &str>) -> bool {
        let same = |(name, text): (&&str, &&str), folder: &Path| {
            let path = folder.join(name);
            let closed =
                fs::symlink_metadata(&path).is_ok_and(|found| found.is_file() && found.mode() & 0o077 == 0);
            closed
                && fs::read(&path)
                    .is_ok_and(|bytes| zeroize::Zeroizing::new(bytes).as_slice() == text.as_bytes())
        };
        let folder = self.path.join(name);
        self.names(name).is_ok_and(|names| names.len() == files.len())
            && files.iter().all(|file| same(file, &folder))
    }

    fn write(&self, path: &Path, files: &BTreeMap<&str, &str>) -> io::Result<()> {
        if path.exists() {
            fs::remove_dir_all(path)?;
        }
        let owner = fs::metadata(&self.path)?;
        let is_root = rustix::process::geteuid().is_root();
        let give = |path: &Path| match is_root {
            true => chown(path, Some(owner.uid()), Some(owner.gid())),
            false => Ok(()),
        };
        DirBuilder::new().mode(0o700).create(path)?;
        for (name, text) in files {
            let path = path.join(name);
            let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            give(&path)?;
        }
        give(path)?;
        File::open(path)?.sync_all()
    }

    pub(super) fn names(&self, generation: &str) -> AgentResult<BTreeSet<String>> {
        let path = self.path.join(generation);
        names(&path).map_err(|error| failed(&path, &error))
    }

    /// Switches the links to `to`, whose files are `names`, and keeps `from` as the previous generation.
    pub(super) fn switch(&self, from: Option<&str>, to: &str, names: &BTreeSet<&str>) -> AgentResult<()> {
        if let Some(from) = from {
            self.point(PREVIOUS, from)?;
        }
        for name in names {
            self.point(name, &format!("{CURRENT}/{name}"))?;
        }
        self.point(CURRENT, to)?;
        for name in self.names("")? {
            if !name.starts_with('.') && !names.contains(name.as_str()) && self.is_ours(&name)? {
                self.remove(&name)?;
            }
        }
        self.sync()?;
        if let Some(from) = from {
            self.notify_watchers(from);
        }
        Ok(())
    }

    fn is_ours(&self, name: &str) -> AgentResult<bool> {
        let path = self.path.join(name);
        let is_link = fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink());
        Ok(is_link && self.link(name)?.is_some_and(|target| target == format!("{CURRENT}/{name}")))
    }

    /// inotify watches follow the file that a link led to and miss the change of the link. They do report a change of attributes,
    /// after which the watcher reads the path again.
    fn notify_watchers(&self, generation: &str) {
        let folder = self.path.join(generation);
        for name in names(&folder).unwrap_or_default() {
            let path = folder.join(name);
            // A watcher that misses this polls later.
            let _ = fs::metadata(&path).and_then(|found| fs::set_permissions(&path, found.permissions()));
        }
    }

    pub(super) fn remove_others(&self, kept: &str) -> AgentResult<()> {
        self.remove(PREVIOUS)?;
        for name in self.names("")? {
            let path = self.path.join(&name);
            let is_generation = digest(&name).bytes().all(|byte| byte.is_ascii_hexdigit())
                && name.starts_with('.')
                && fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir());
            if is_generation && name != kept {
                fs::remove_dir_all(&path).map_err(|error| failed(&path, &error))?;
            }
        }
        self.sync()
    }

    fn point(&self, name: &str, target: &str) -> AgentResult<()> {
        if self.link(name).is_ok_and(|found| found.as_deref() == Some(target)) {
            return Ok(());
        }
        let (path, draft) = (self.path.join(name), self.path.join(format!(".{name}.new")));
        let switched = || {
            match fs::remove_file(&draft) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
            symlink(target, &draft)?;
            fs::rename(&draft, &path)
        };
        switched().map_err(|error| failed(&path, &error))
    }

    fn remove(&self, name: &str) -> AgentResult<()> {
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(&path, &error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn sync(&self) -> AgentResult<()> {
        File::open(&self.path)
            .and_then(|folder| folder.sync_all())
            .map_err(|error| failed(&self.path, &error))
    }
}

fn names(path: &Path) -> io::Result<BTreeSet<String>> {
    fs::read_dir(path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

fn failed(path: &Path, error: &io::Error) -> AgentError {
    let transient = matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::Interrupted);
    AgentError {
        code: FailureCode::CredentialsFiles,
        message: format!("{}: {error}", path.display()),
        help: "see that the agent runs as root and that the disk has room, then run it again".to_owned(),
        transient,
    }
}
