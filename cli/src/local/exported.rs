//! The directory that a cluster is exported into.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use slipway_core::digest::sha256_hex;

use super::write_atomic;
use crate::failure::CliError;

pub(super) const MARKER: &str = "export.json";
const FORMAT: u32 = 1;

/// `export.json`: whose directory this is, and what the export wrote into it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Marker {
    format: u32,
    cluster: String,
    asset_bucket: String,
    /// The files with their SHA-256.
    files: BTreeMap<String, String>,
    /// Those of the export before, while this one is being written: an export that was interrupted knows its files again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    before: BTreeMap<String, String>,
}

/// A directory with the files of one cluster. Only what an export wrote is overwritten or removed, and only while it is as it was written.
#[derive(Debug)]
pub(crate) struct ExportFolder {
    root: PathBuf,
    cluster: String,
    asset_bucket: String,
    marker: Option<Marker>,
    /// Held while writing, because two exports at once would mix their files.
    _lock: File,
}

impl ExportFolder {
    /// Opens `root` for the cluster of that installation, and creates it if necessary.
    pub(crate) fn open(root: &Path, cluster: &str, asset_bucket: &str) -> Result<Self, CliError> {
        fs::create_dir_all(root).map_err(|error| CliError::file("make", root, &error))?;
        let lock = File::open(root).map_err(|error| CliError::file("open", root, &error))?;
        if lock.try_lock().is_err() {
            let problem = format!("somebody else is writing into {}", root.display());
            return Err(CliError::refused(problem, "wait for it, then try again"));
        }
        let marker = marker(root)?;
        match &marker {
            None => must_be_empty(root)?,
            Some(of) if of.cluster != cluster || of.asset_bucket != asset_bucket => {
                let problem = format!(
                    "{} holds an export of the cluster {} in {}, and not of {cluster} in {asset_bucket}",
                    root.display(),
                    of.cluster,
                    of.asset_bucket
                );
                return Err(CliError::refused(problem, "name another directory"));
            }
            Some(_) => {}
        }
        let (cluster, asset_bucket) = (cluster.to_owned(), asset_bucket.to_owned());
        Ok(Self { root: root.to_owned(), cluster, asset_bucket, marker, _lock: lock })
    }

    /// Writes `files` and removes those of the export before. Nothing is written if one of them was changed by somebody else. Returns the
    /// names of the changed files.
    pub(crate) fn replace(&self, files: &BTreeMap<String, Vec<u8>>) -> Result<Vec<String>, CliError> {
        let now: BTreeMap<String, String> =
            files.iter().map(|(name, bytes)| (name.clone(), sha256_hex(bytes))).collect();
        let before = self.marker.as_ref().map(|marker| marker.files.clone()).unwrap_or_default();
        let interrupted = self.marker.as_ref().map(|marker| marker.before.clone()).unwrap_or_default();
        let wrote = |name: &str, digest: &str| {
            [&now, &before, &interrupted]
                .iter()
                .any(|digests| digests.get(name).is_some_and(|known| known == digest))
        };
        let gone: Vec<&String> =
            before.keys().chain(interrupted.keys()).filter(|name| !now.contains_key(*name)).collect();
        for name in now.keys().chain(gone.iter().copied()) {
            self.must_be_ours(name, &wrote)?;
        }
        // Written first, so that a later export knows the files of one that was interrupted.
        let of_both = interrupted.clone().into_iter().chain(before.clone()).collect();
        if before != now {
            self.mark(&now, of_both)?;
        }
        let mut changed = Vec::new();
        for (name, bytes) in files {
            let path = self.root.join(name);
            if write_atomic(&path, bytes).map_err(|error| CliError::file("write", &path, &error))? {
                changed.push(name.clone());
            }
        }
        for name in gone {
            let path = self.root.join(name);
            match fs::remove_file(&path) {
                Ok(()) => changed.push(name.clone()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(CliError::file("remove", &path, &error)),
            }
        }
        self.mark(&now, BTreeMap::new())?;
        changed.sort();
        changed.dedup();
        Ok(changed)
    }

    fn mark(
        &self,
        files: &BTreeMap<String, String>,
        before: BTreeMap<String, String>,
    ) -> Result<(), CliError> {
        let marker = Marker {
            format: FORMAT,
            cluster: self.cluster.clone(),
            asset_bucket: self.asset_bucket.clone(),
            files: files.clone(),
            before,
        };
        let path = self.root.join(MARKER);
        let written = write_atomic(&path, &slipway_flows::store::json(&marker));
        written.map(drop).map_err(|error| CliError::file("write", &path, &error))
    }

    /// Fails if something else is at `name` than what an export wrote there, or if a link leads to it.
    fn must_be_ours(&self, name: &str, wrote: &impl Fn(&str, &str) -> bool) -> Result<(), CliError> {
        let parts: Vec<Component<'_>> = Path::new(name).components().collect();
        let inside = !parts.is_empty() && parts.iter().all(|part| matches!(part, Component::Normal(_)));
        let foreign = |path: &Path| {
            let problem = format!("{} is not as an export of {} wrote it", path.display(), self.cluster);
            CliError::refused(
                problem,
                "nothing was written: move it away, or name another directory with --out",
            )
        };
        let mut path = self.root.clone();
        if !inside || name == MARKER {
            return Err(foreign(&path.join(name)));
        }
        for (at, part) in parts.iter().enumerate() {
            path.push(part);
            let found = match fs::symlink_metadata(&path) {
                Ok(found) => found,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(CliError::file("read", &path, &error)),
            };
            let is_last = at + 1 == parts.len();
            if (is_last && !found.is_file()) || (!is_last && !found.is_dir()) {
                return Err(foreign(&path));
            }
        }
        let bytes = fs::read(&path).map_err(|error| CliError::file("read", &path, &error))?;
        if wrote(name, &sha256_hex(&bytes)) { Ok(()) } else { Err(foreign(&path)) }
    }
}

fn marker(root: &Path) -> Result<Option<Marker>, CliError> {
    let path = root.join(MARKER);
    match fs::read(&path) {
        Ok(bytes) => {
            serde_json::from_slice(&bytes).map(Some).map_err(|error| CliError::damaged(&path, &error))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CliError::file("read", &path, &error)),
    }
}

fn must_be_empty(root: &Path) -> Result<(), CliError> {
    let mut entries = fs::read_dir(root).map_err(|error| CliError::file("read", root, &error))?;
    if entries.next().is_none() {
        return Ok(());
    }
    let problem = format!("{} is not empty, and no export was written into it", root.display());
    Err(CliError::refused(problem, "name a new directory with --out"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn files(of: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        of.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
    }

    fn export(root: &Path, of: &[(&str, &str)]) -> Result<Vec<String>, CliError> {
        ExportFolder::open(root, "prod", "assets")?.replace(&files(of))
    }

    #[test]
    fn an_export_replaces_its_own_files_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let root = &folder.path().join("new");
        let first = [("stacks/a.json", "1"), ("lock.json", "1")];
        assert_eq!(export(root, &first).unwrap(), ["lock.json", "stacks/a.json"]);
        assert_eq!(export(root, &first).unwrap(), [""; 0]);
        fs::write(root.join("notes.txt"), "mine").unwrap();
        let second = [("stacks/b.json", "1"), ("lock.json", "2")];
        assert_eq!(export(root, &second).unwrap(), ["lock.json", "stacks/a.json", "stacks/b.json"]);
        assert_eq!(fs::read_to_string(root.join("lock.json")).unwrap(), "2");
        assert!(!root.join("stacks/a.json").exists());
        assert_eq!(fs::read_to_string(root.join("notes.txt")).unwrap(), "mine");

        // A file that somebody edited, one of theirs where a new one belongs, and a file where there is to be a folder.
        for (place, of) in [
            ("lock.json", [("stacks/b.json", "1"), ("lock.json", "3")]),
            ("stacks/c.json", [("stacks/c.json", "1"), ("lock.json", "2")]),
            ("nodes", [("nodes/etcd-0.json", "1"), ("lock.json", "2")]),
        ] {
            let kept = fs::read(root.join(place)).ok();
            fs::write(root.join(place), "mine").unwrap();
            let refused = export(root, &of).unwrap_err();
            assert!(refused.code() == 1 && refused.to_string().contains(place), "{refused}");
            assert_eq!(fs::read_to_string(root.join(place)).unwrap(), "mine");
            assert!(root.join("stacks/b.json").exists(), "what it wrote before is left as it was");
            match kept {
                Some(bytes) => fs::write(root.join(place), bytes).unwrap(),
                None => fs::remove_file(root.join(place)).unwrap(),
            }
        }
        assert_eq!(export(root, &second).unwrap(), [""; 0]);
    }

    #[test]
    fn an_export_leads_through_no_link_and_out_of_no_directory() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = folder.path();
        export(root, &[("lock.json", "1")]).unwrap();
        std::os::unix::fs::symlink(other.path(), root.join("stacks")).unwrap();
        for name in ["stacks/a.json", "../a.json", "/tmp/a.json", "export.json", ""] {
            let refused = export(root, &[("lock.json", "1"), (name, "1")]).unwrap_err();
            assert_eq!(refused.code(), 1, "{name}: {refused}");
        }
        fs::remove_file(root.join("lock.json")).unwrap();
        std::os::unix::fs::symlink(other.path().join("target"), root.join("lock.json")).unwrap();
        assert_eq!(export(root, &[("lock.json", "1")]).unwrap_err().code(), 1);
        assert_eq!(fs::read_dir(other.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_of_somebody_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "mine").unwrap();
        let refused = export(folder.path(), &[("a", "1")]).unwrap_err();
        assert!(refused.to_string().contains("is not empty"), "{refused}");
        fs::remove_file(folder.path().join("a")).unwrap();
        export(folder.path(), &[("a", "1")]).unwrap();
        for (cluster, bucket) in [("other", "assets"), ("prod", "other-assets")] {
            let refused = ExportFolder::open(folder.path(), cluster, bucket).unwrap_err();
            assert!(
                refused.code() == 1 && refused.to_string().contains("cluster prod in assets"),
                "{refused}"
            );
        }
        let refused = super::super::Workspace::open(folder.path()).unwrap_err();
        assert!(refused.code() == 1 && refused.to_string().contains("holds an export"), "{refused}");
        fs::write(folder.path().join(MARKER), "{").unwrap();
        assert_eq!(ExportFolder::open(folder.path(), "prod", "assets").unwrap_err().code(), 3);
    }

    #[test]
    fn an_export_that_was_interrupted_knows_its_files_again() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        export(root, &[("a", "1"), ("b", "1"), ("c", "1")]).unwrap();
        // Interrupted after it had written `a`, and before it wrote `b` and removed `c`.
        let open = ExportFolder::open(root, "prod", "assets").unwrap();
        let digests = |of: &[(&str, &str)]| -> BTreeMap<String, String> {
            files(of).into_iter().map(|(name, bytes)| (name, sha256_hex(&bytes))).collect()
        };
        let before = digests(&[("a", "1"), ("b", "1"), ("c", "1")]);
        open.mark(&digests(&[("a", "2"), ("b", "2")]), before).unwrap();
        drop(open);
        fs::write(root.join("a"), "2").unwrap();
        assert_eq!(export(root, &[("a", "3"), ("b", "2")]).unwrap(), ["a", "b", "c"]);
        assert!(!root.join("c").exists());
        assert!(!fs::read_to_string(root.join(MARKER)).unwrap().contains("before"));
    }
}
