//! A bucket over a directory.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Component, Path, PathBuf};

use jiff::Timestamp;
use slipway_core::digest::sha256_hex;
use slipway_ports::{
    Condition, ErrorKind, Head, Listed, Listing, Object, Objects, PortError, PortResult, Put, Removal,
};

/// The objects of one cluster: `clusters/<name>/…` is the directory itself, with secret objects in `credentials/`. An etag is the SHA-256
/// of the content; there are no versions.
///
/// A write renames a finished file, so neither a reader nor a crash sees half of one. Conditions hold against other processes because
/// [`super::Workspace`] locks the directory.
#[derive(Debug)]
pub(crate) struct Folder {
    root: PathBuf,
    prefix: String,
}

impl Folder {
    pub(crate) fn new(root: &Path, cluster: &str) -> Self {
        Self { root: root.to_owned(), prefix: format!("clusters/{cluster}/") }
    }

    fn path(&self, key: &str) -> PortResult<PathBuf> {
        let inside = key.strip_prefix(&self.prefix).unwrap_or(key);
        let relative = Path::new(inside);
        if !relative.components().all(|part| matches!(part, Component::Normal(_))) || inside.is_empty() {
            return Err(PortError {
                kind: ErrorKind::Invalid,
                operation: "fs:Open",
                subject: key.to_owned(),
                message: "the name leads out of the directory".to_owned(),
            });
        }
        let secret = inside.starts_with("pki/") || inside.starts_with("bundles/");
        Ok(if secret { self.root.join("credentials").join(relative) } else { self.root.join(relative) })
    }

    fn read(&self, key: &str) -> PortResult<Option<Vec<u8>>> {
        let path = self.path(key)?;
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(port_error("fs:Read", &path, &error)),
        }
    }
}

impl Objects for Folder {
    async fn get(&self, key: &str) -> PortResult<Option<Object>> {
        Ok(self.read(key)?.map(|bytes| Object { etag: sha256_hex(&bytes), bytes, version: String::new() }))
    }

    async fn get_version(&self, key: &str, _: &str) -> PortResult<Option<Object>> {
        self.get(key).await
    }

    async fn head(&self, key: &str) -> PortResult<Option<Head>> {
        Ok(self.read(key)?.map(|bytes| Head {
            version: String::new(),
            size: bytes.len() as u64,
            etag: sha256_hex(&bytes),
        }))
    }

    async fn put(&self, key: &str, bytes: Vec<u8>, condition: Condition) -> PortResult<Put> {
        let path = self.path(key)?;
        let stored = self.read(key)?.map(|bytes| sha256_hex(&bytes));
        if !super::holds(&condition, stored.as_deref()) {
            return Ok(Put::Lost);
        }
        write_atomic(&path, &bytes).map_err(|error| port_error("fs:Write", &path, &error))?;
        Ok(Put::Written(sha256_hex(&bytes)))
    }

    fn url(&self, key: &str) -> String {
        // No local template is given to CloudFormation by its URL.
        self.path(key).map_or_else(|_| key.to_owned(), |path| format!("file://{}", path.display()))
    }
}

impl Listing for Folder {
    async fn list(&self, prefix: &str, most: usize) -> PortResult<Vec<Listed>> {
        // Prefixes are always folders here.
        let root = self.path(prefix)?;
        let mut listed = Vec::new();
        let mut folders = vec![(root.clone(), prefix.trim_end_matches('/').to_owned())];
        while let Some((path, key)) = folders.pop() {
            let entries = match fs::read_dir(&path) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(port_error("fs:List", &path, &error)),
            };
            for entry in entries {
                let entry = entry.map_err(|error| port_error("fs:List", &path, &error))?;
                let (path, key) = (entry.path(), format!("{key}/{}", entry.file_name().to_string_lossy()));
                let kind = entry.file_type().map_err(|error| port_error("fs:List", &path, &error))?;
                if kind.is_dir() {
                    folders.push((path, key));
                } else if kind.is_file() {
                    let modified = entry.metadata().and_then(|about| about.modified());
                    let modified = modified.map_err(|error| port_error("fs:List", &path, &error))?;
                    let bytes = fs::read(&path).map_err(|error| port_error("fs:Read", &path, &error))?;
                    listed.push(Listed {
                        key,
                        etag: sha256_hex(&bytes),
                        size: bytes.len() as u64,
                        modified: Timestamp::try_from(modified).unwrap_or(Timestamp::MAX),
                    });
                }
            }
        }
        listed.sort_by(|one, other| one.key.cmp(&other.key));
        listed.truncate(most);
        Ok(listed)
    }
}

impl Removal for Folder {
    async fn remove(&self, key: &str) -> PortResult<()> {
        let path = self.path(key)?;
        match fs::remove_file(&path) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(port_error("fs:Remove", &path, &error)),
        }
    }
}

/// Writes a file completely or not at all. An unchanged file keeps its modification time. Returns whether it was written.
pub(crate) fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    // A link is resolved to its target. Devices and pipes are written to and not replaced.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if let Ok(found) = fs::metadata(path) {
        if !found.is_file() && !found.is_dir() {
            return OpenOptions::new().write(true).open(path)?.write_all(bytes).map(|()| true);
        }
        if found.len() == bytes.len() as u64 && fs::read(path).is_ok_and(|old| old == bytes) {
            return Ok(false);
        }
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = folder.join(format!(".{name}.{}", std::process::id()));
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(&draft)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&draft);
    }
    written.map(|()| true)
}

pub(super) fn port_error(operation: &'static str, path: &Path, error: &io::Error) -> PortError {
    let kind =
        if error.kind() == io::ErrorKind::PermissionDenied { ErrorKind::Denied } else { ErrorKind::Missing };
    PortError { kind, operation, subject: path.display().to_string(), message: error.to_string() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test]
    async fn conditions_hold_as_in_s3() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path(), "a");
        let key = "clusters/a/lock.json";
        assert_eq!(folder.get(key).await.unwrap(), None);
        assert_eq!(
            folder.put(key, b"1".to_vec(), Condition::Unchanged(sha256_hex(b"1"))).await.unwrap(),
            Put::Lost
        );
        let Put::Written(etag) = folder.put(key, b"1".to_vec(), Condition::Absent).await.unwrap() else {
            panic!("an absent object can be written")
        };
        assert_eq!(folder.put(key, b"2".to_vec(), Condition::Absent).await.unwrap(), Put::Lost);
        assert_eq!(folder.get(key).await.unwrap().unwrap().etag, etag);
        assert!(matches!(
            folder.put(key, b"2".to_vec(), Condition::Unchanged(etag.clone())).await.unwrap(),
            Put::Written(_)
        ));
        assert_eq!(folder.put(key, b"3".to_vec(), Condition::Unchanged(etag)).await.unwrap(), Put::Lost);
        assert_eq!(folder.head(key).await.unwrap().unwrap().size, 1);
    }

    #[tokio::test]
    async fn secrets_lie_apart_and_no_key_leads_out() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path(), "a");
        folder.put("clusters/a/pki/ca/f.sealed", b"x".to_vec(), Condition::Always).await.unwrap();
        assert!(dir.path().join("credentials/pki/ca/f.sealed").exists());
        for key in ["clusters/a/../b", "/etc/passwd", "clusters/a/", ""] {
            assert_eq!(folder.get(key).await.unwrap_err().kind, ErrorKind::Invalid, "{key}");
        }
    }

    #[tokio::test]
    async fn a_folder_is_listed_as_a_bucket_is_and_what_is_removed_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path(), "a");
        let keys = async || -> Vec<String> {
            folder.list("clusters/a/pki/", 9).await.unwrap().into_iter().map(|one| one.key).collect()
        };
        assert_eq!(keys().await, Vec::<String>::new());
        for key in [
            "clusters/a/pki/ca/2.pem",
            "clusters/a/pki/ca/1.pem",
            "clusters/a/bundles/x",
            "clusters/a/lock.json",
        ] {
            folder.put(key, b"x".to_vec(), Condition::Always).await.unwrap();
        }
        assert_eq!(keys().await, ["clusters/a/pki/ca/1.pem", "clusters/a/pki/ca/2.pem"]);
        let etag = folder.get("clusters/a/pki/ca/1.pem").await.unwrap().unwrap().etag;
        assert_eq!(folder.list("clusters/a/pki/", 1).await.unwrap()[0].etag, etag);
        assert_eq!(folder.head("clusters/a/pki/ca/1.pem").await.unwrap().unwrap().etag, etag);
        for _ in 0..2 {
            folder.remove("clusters/a/pki/ca/1.pem").await.unwrap();
        }
        assert_eq!(keys().await, ["clusters/a/pki/ca/2.pem"]);
    }

    #[test]
    fn a_link_is_followed_and_a_device_is_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&file, b"old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(write_atomic(&link, b"new").unwrap());
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let full = write_atomic(Path::new("/dev/full"), b"x").unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        assert!(!fs::metadata("/dev/full").unwrap().is_file());
    }

    #[test]
    fn a_file_that_is_right_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/er/file");
        assert!(write_atomic(&path, b"a").unwrap());
        assert!(!write_atomic(&path, b"a").unwrap());
        assert!(write_atomic(&path, b"b").unwrap());
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "a draft was left behind");
    }
}
