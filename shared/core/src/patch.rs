//! Patches: what a cluster's owner changes in rendered stacks and node configurations (design §6).

/// One file of `clusters/<name>/patches/`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Patch {
    /// The file's name, for people.
    pub file: String,
}
