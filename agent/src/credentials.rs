//! The files of a role's bundle on this machine: all of them change at once, or none does.
//!
//! A folder of credentials is laid out as Kubernetes lays out a secret's volume:
//!
//! ```text
//! /etc/etcd/pki/server.pem     -> .current/server.pem
//! /etc/etcd/pki/server-key.pem -> .current/server-key.pem
//! /etc/etcd/pki/.current       -> .<digest of the bundle>
//! /etc/etcd/pki/.<digest>/…       the files, 0600
//! ```
//!
//! So a certificate and its key change in one rename, whoever mounts the folder into a container sees it, and the way back
//! is one rename too. What is left is the moment between the two reads of a server that opens certificate and key one
//! after the other: a handshake in just that moment fails, and its client dials again.

mod folder;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use folder::Folder;
use serde::Deserialize;
use slipway_ports::Secret;
use zeroize::Zeroizing;

use crate::failure::{Failure, FailureCode, Outcome};

/// The newest format of bundles that is known here.
const FORMAT: u32 = 1;

/// An opened bundle.
pub struct Bundle {
    /// Text by path. It must not be printed.
    files: BTreeMap<String, Zeroizing<String>>,
}

impl std::fmt::Debug for Bundle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.files.keys()).finish()
    }
}

impl Bundle {
    /// Reads what `slipway_ports::sealed::open` gave.
    ///
    /// # Errors
    /// If it is no bundle, of a format that is not known here, or would write elsewhere than into a folder of `/etc`.
    pub fn read(plain: &Secret) -> Outcome<Self> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        #[derive(Deserialize)]
        struct Plaintext {
            files: BTreeMap<String, String>,
        }
        let Format { format } = read(plain)?;
        if format != FORMAT {
            return Err(Failure::lasting(
                FailureCode::CredentialsFormat,
                format!("the bundle of credentials has format {format}; this agent knows {FORMAT}"),
                "roll this node, so that it gets the agent that belongs to the bundle",
            ));
        }
        let Plaintext { files } = read(plain)?;
        let files: BTreeMap<_, _> =
            files.into_iter().map(|(path, text)| (path, Zeroizing::new(text))).collect();
        for path in files.keys() {
            parts(path)?;
        }
        Ok(Self { files })
    }

    /// Where its files go.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// The text that goes to `path`, which may be secret.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(|text| text.as_str())
    }
}

fn read<T: for<'a> Deserialize<'a>>(plain: &Secret) -> Outcome<T> {
    // The error's own words might quote what it met.
    serde_json::from_slice(plain.expose()).map_err(|error| {
        Failure::lasting(
            FailureCode::CredentialsDamaged,
            format!(
                "what opened is no bundle of credentials (line {}, column {})",
                error.line(),
                error.column()
            ),
            "render the cluster again, which seals its bundles anew",
        )
    })
}

/// Folder and name of a file.
fn parts(path: &str) -> Outcome<(&str, &str)> {
    let plain = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.contains('\0');
    let fits =
        path.strip_prefix("/etc/").is_some_and(|rest| rest.contains('/') && rest.split('/').all(plain));
    path.rsplit_once('/').filter(|_| fits).ok_or_else(|| {
        Failure::lasting(
            FailureCode::CredentialsPath,
            format!("the bundle of credentials holds {path:?}, which is no file in a folder below /etc"),
            "report this: it is a defect; nothing was written",
        )
    })
}

/// Credentials that were put in place, and the way back. It holds the folders' locks: nobody else writes meanwhile.
#[derive(Debug)]
pub struct Written {
    /// Whether any file is another now than before.
    pub changed: bool,
    places: Vec<Place>,
}

#[derive(Debug)]
struct Place {
    folder: Folder,
    before: Option<String>,
    after: String,
    _lock: File,
}

/// Puts the files of `bundle`, whose digest is `digest`, in place below `root`. If they are there already, nothing is
/// touched. What was there before is kept until [`Written::settle`].
///
/// They belong to whoever owns the folder: who wants them to be etcd's gives the folder to etcd before.
///
/// # Errors
/// If something cannot be written; then what was there before is still there.
pub fn write(root: &Path, digest: &str, bundle: &Bundle) -> Outcome<Written> {
    if digest.is_empty() || !digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Failure::lasting(
            FailureCode::CredentialsDigest,
            format!("{digest:?} is no digest"),
            "give the digest in lower-case hex, as node.json has it",
        ));
    }
    let mut folders: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
    for (path, text) in &bundle.files {
        let (folder, name) = parts(path)?;
        folders.entry(folder).or_default().insert(name, text);
    }
    let mut prepared = Vec::new();
    for (path, files) in folders {
        let folder = Folder::open(below(root, path))?;
        let lock = folder.lock()?;
        let after = folder.prepare(digest, &files)?;
        prepared.push((folder, lock, after, files.into_keys().collect::<BTreeSet<_>>()));
    }
    let mut written = Written { changed: false, places: Vec::new() };
    for (folder, lock, after, names) in prepared {
        let current = folder.current()?;
        let changed = current.as_deref() != Some(after.as_str());
        let before = if changed { current } else { folder.previous()? };
        let place = Place { folder, before, after, _lock: lock };
        // Also where nothing changes: a run before this may have died halfway.
        let turned = place.folder.turn(place.before.as_deref(), &place.after, &names);
        written.places.push(place);
        written.changed |= changed;
        if let Err(failure) = turned {
            written.undo()?;
            return Err(failure);
        }
    }
    Ok(written)
}

impl Written {
    /// Forgets what was there before.
    ///
    /// # Errors
    /// If that cannot be removed.
    pub fn settle(self) -> Outcome<()> {
        self.places.iter().try_for_each(|place| place.folder.settle(&place.after))
    }

    /// Puts back what was there before, if anything was.
    ///
    /// # Errors
    /// If that cannot be done.
    pub fn undo(self) -> Outcome<()> {
        for place in &self.places {
            if let Some(before) = &place.before {
                let names = place.folder.names(before)?;
                place.folder.turn(None, before, &names.iter().map(String::as_str).collect())?;
                place.folder.settle(before)?;
            }
        }
        Ok(())
    }
}

/// The digest of the bundle whose files lie in `folder` (`/etc/etcd/pki`); `None` if none was put there.
///
/// # Errors
/// If it cannot be read.
pub fn applied(root: &Path, folder: &str) -> Outcome<Option<String>> {
    let folder = Folder::at(below(root, folder));
    Ok(folder.current()?.map(|name| folder::digest(&name).to_owned()))
}

/// What whoever started since the last swap but one may have read at `path`, a file of `folder`: what lies there, and while that is not
/// settled what lay there before. It may be secret.
#[must_use]
pub fn in_force(root: &Path, folder: &str, path: &str) -> Vec<Zeroizing<String>> {
    let name = path.rsplit('/').next().unwrap_or_default();
    let before = below(root, folder).join(folder::PREVIOUS).join(name);
    let files = [below(root, path), before];
    files.iter().filter_map(|file| std::fs::read_to_string(file).ok().map(Zeroizing::new)).collect()
}

/// `path` below `root`.
#[must_use]
pub fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

#[cfg(test)]
mod tests;
