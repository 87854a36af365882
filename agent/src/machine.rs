//! What a role wants on its machine, as data: who decides it touches nothing, and one place makes it so.
//!
//! - [`apply`]: makes it so. [`files`] writes, [`commands`] runs programs: a port.
//! - [`disk`]: a volume, its device, its file system. [`accounts`]: users and groups.

pub mod accounts;
pub mod apply;
pub mod commands;
pub mod disk;
pub mod files;

/// Files and units, in the order in which they are made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Furniture {
    /// Written whole or not at all, and only where they differ.
    pub files: Vec<File>,
    /// Started in this order, once all files are there.
    pub units: Vec<Unit>,
}

/// A file of root's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// From the root.
    pub path: String,
    /// Permissions, such as `0o644`. Folders above it that are missing are made as 0755.
    pub mode: u32,
    /// What is in it. No secret: those come out of the credentials' bundle, and are written from there.
    pub content: String,
}

/// A systemd unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// With its suffix.
    pub name: String,
    /// Below `/etc/systemd/system`; `None` for one that the image has.
    pub content: Option<String>,
}

impl Unit {
    /// Whether it says nothing of who wants it.
    #[must_use]
    pub fn is_static(&self) -> bool {
        self.content.as_ref().is_some_and(|content| !content.contains("\n[Install]\n"))
    }
}

impl File {
    /// A file that everybody may read.
    #[must_use]
    pub fn public(path: impl Into<String>, content: impl Into<String>) -> Self {
        Self { path: path.into(), mode: 0o644, content: content.into() }
    }
}
