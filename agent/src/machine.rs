//! The files and units that a role needs on its machine, as data. Modules that decide them change nothing; [`apply`] does.
//!
//! - [`apply`] uses [`files`] for files and the port [`commands`] for programs.
//! - [`disk`]: a volume, its device, its file system. [`accounts`]: users and groups.

pub mod accounts;
pub mod apply;
pub mod commands;
pub mod disk;
pub mod files;

/// Files and units.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Setup {
    /// Each is written atomically, and only if it differs.
    pub files: Vec<File>,
    /// Started in this order after all files were written.
    pub units: Vec<Unit>,
}

/// A file owned by root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    pub path: String,
    /// Permissions, such as `0o644`. Missing parent folders are created with 0755.
    pub mode: u32,
    /// Never a secret: those come from the bundle of credentials.
    pub content: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// With its suffix, such as `.service`.
    pub name: String,
    /// `None` for a unit that the image has.
    pub content: Option<String>,
}

impl Unit {
    /// Whether it has no `[Install]` section.
    #[must_use]
    pub fn is_static(&self) -> bool {
        self.content.as_ref().is_some_and(|content| !content.contains("\n[Install]\n"))
    }
}

impl File {
    /// A file that everybody may read (0644).
    #[must_use]
    pub fn public(path: impl Into<String>, content: impl Into<String>) -> Self {
        Self { path: path.into(), mode: 0o644, content: content.into() }
    }

    /// A file that root alone may read (0600).
    #[must_use]
    pub fn private(path: impl Into<String>, content: impl Into<String>) -> Self {
        Self { mode: 0o600, ..Self::public(path, content) }
    }
}
