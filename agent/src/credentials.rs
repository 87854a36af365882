//! The files of a role's bundle on this machine: all of them change at once, or none does.
//!
//! A folder of credentials is laid out like a Secret volume of Kubernetes:
//!
//! ```text
//! /etc/etcd/pki/server.pem     -> .current/server.pem
//! /etc/etcd/pki/server-key.pem -> .current/server-key.pem
//! /etc/etcd/pki/.current       -> .<digest of the bundle>
//! /etc/etcd/pki/.<digest>/…       the files, 0600
//! ```
//!
//! So a certificate and its key change in one rename, containers that mount the folder see the change, and undoing it is one
//! rename too. A server that reads certificate and key one after the other may fail a handshake at that moment; its client
//! retries.

mod folder;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use folder::Folder;
use serde::Deserialize;
use slipway_ports::Secret;
use zeroize::Zeroizing;

use crate::failure::{AgentError, AgentResult, FailureCode};

const FORMAT: u32 = 1;

pub struct Bundle {
    /// Text by path. Secret: never print it.
    files: BTreeMap<String, Zeroizing<String>>,
}

impl std::fmt::Debug for Bundle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.files.keys()).finish()
    }
}

impl Bundle {
    /// Reads what `slipway_ports::sealed::open` returned. Refuses files outside of the folders of `/etc`.
    pub fn read(plain: &Secret) -> AgentResult<Self> {
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
            return Err(AgentError::permanent(
                FailureCode::CredentialsFormat,
                format!("the bundle of credentials has format {format}; this agent knows {FORMAT}"),
                "roll this node, so that it gets the agent that belongs to the bundle",
            ));
        }
        let Plaintext { files } = read(plain)?;
        let files: BTreeMap<_, _> =
            files.into_iter().map(|(path, text)| (path, Zeroizing::new(text))).collect();
        for path in files.keys() {
            folder_and_name(path)?;
        }
        Ok(Self { files })
    }

    /// With copies of files, at the paths that `copies` returns for each.
    #[must_use]
    pub fn with_copies(mut self, copies: impl Fn(&str) -> Vec<String>) -> Self {
        let copied: Vec<_> = self
            .files
            .iter()
            .flat_map(|(path, text)| copies(path).into_iter().map(|copy| (copy, text.clone())))
            .collect();
        self.files.extend(copied);
        self
    }

    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// The content for `path`, which may be secret.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(|text| text.as_str())
    }
}

fn read<T: for<'a> Deserialize<'a>>(plain: &Secret) -> AgentResult<T> {
    // A parser's error may quote a secret.
    serde_json::from_slice(plain.expose()).map_err(|error| {
        AgentError::permanent(
            FailureCode::CredentialsDamaged,
            format!(
                "the opened file is not a bundle of credentials (line {}, column {})",
                error.line(),
                error.column()
            ),
            "render the cluster again, which seals its bundles again",
        )
    })
}

fn folder_and_name(path: &str) -> AgentResult<(&str, &str)> {
    let plain = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.contains('\0');
    let fits =
        path.strip_prefix("/etc/").is_some_and(|rest| rest.contains('/') && rest.split('/').all(plain));
    path.rsplit_once('/').filter(|_| fits).ok_or_else(|| {
        AgentError::permanent(
            FailureCode::CredentialsPath,
            format!("the bundle of credentials holds {path:?}, which is not a file in a folder below /etc"),
            "report this: it is a defect; nothing was written",
        )
    })
}

/// Credentials that were put in place and can still be undone. Holds the folders' locks, so nobody else writes meanwhile.
#[derive(Debug)]
pub struct Written {
    /// Whether any file changed.
    pub changed: bool,
    swaps: Vec<Swap>,
}

#[derive(Debug)]
struct Swap {
    folder: Folder,
    before: Option<String>,
    after: String,
    _lock: File,
}

/// Puts the files of `bundle`, whose digest is `digest`, in place below `root`. Files that are in place already are not touched.
/// The previous ones are kept until [`Written::settle`]; after an error they are still in force.
///
/// The files get the folder's owner, so give the folder to its user first.
pub fn write(root: &Path, digest: &str, bundle: &Bundle) -> AgentResult<Written> {
    if digest.is_empty() || !digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(AgentError::permanent(
            FailureCode::CredentialsDigest,
            format!("{digest:?} is not a digest"),
            "give the digest in lower-case hex, as node.json has it",
        ));
    }
    let mut folders: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
    for (path, text) in &bundle.files {
        let (folder, name) = folder_and_name(path)?;
        folders.entry(folder).or_default().insert(name, text);
    }
    let mut prepared = Vec::new();
    for (path, files) in folders {
        let folder = Folder::open(below(root, path))?;
        let lock = folder.lock()?;
        let after = folder.write_generation(digest, &files)?;
        prepared.push((folder, lock, after, files.into_keys().collect::<BTreeSet<_>>()));
    }
    let mut written = Written { changed: false, swaps: Vec::new() };
    for (folder, lock, after, names) in prepared {
        let current = folder.current()?;
        let changed = current.as_deref() != Some(after.as_str());
        let before = if changed { current } else { folder.previous()? };
        let swap = Swap { folder, before, after, _lock: lock };
        // Also if nothing changed: an earlier run may have died halfway.
        let switched = swap.folder.switch(swap.before.as_deref(), &swap.after, &names);
        written.swaps.push(swap);
        written.changed |= changed;
        if let Err(failure) = switched {
            written.undo()?;
            return Err(failure);
        }
    }
    Ok(written)
}

impl Written {
    /// Removes the previous files.
    pub fn remove_previous(self) -> AgentResult<()> {
        self.swaps.iter().try_for_each(|swap| swap.folder.remove_others(&swap.after))
    }

    /// Puts the previous files back, if there were any.
    pub fn undo(self) -> AgentResult<()> {
        for swap in &self.swaps {
            if let Some(before) = &swap.before {
                let names = swap.folder.names(before)?;
                swap.folder.switch(None, before, &names.iter().map(String::as_str).collect())?;
                swap.folder.remove_others(before)?;
            }
        }
        Ok(())
    }
}

/// The digest of the bundle in `folder` (such as `/etc/etcd/pki`); `None` if there is none.
pub fn applied(root: &Path, folder: &str) -> AgentResult<Option<String>> {
    let folder = Folder::at(below(root, folder));
    Ok(folder.current()?.map(|name| folder::digest(&name).to_owned()))
}

/// Contents of `path`, a file of `folder`, that a running process may have read: the current one, and the previous one while a
/// change is not settled. May be secret.
#[must_use]
pub fn in_force(root: &Path, folder: &str, path: &str) -> Vec<Zeroizing<String>> {
    let name = path.rsplit('/').next().unwrap_or_default();
    let before = below(root, folder).join(folder::PREVIOUS).join(name);
    let files = [below(root, path), before];
    files.iter().filter_map(|file| std::fs::read_to_string(file).ok().map(Zeroizing::new)).collect()
}

#[must_use]
pub fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

#[cfg(test)]
mod tests;
