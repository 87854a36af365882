//! What went wrong, where, and what to do: on a machine that nobody has signed in to.

use serde::Serialize;

/// A verb's failure, as it is printed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message}")]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// A word for machines, such as `etcd.unreachable`.
    pub code: &'static str,
    /// What is wrong, and where.
    pub message: String,
    /// What to do.
    pub help: String,
    /// Whether trying again may help, with nothing done in between.
    pub passing: bool,
}

/// What a verb gives.
pub type Outcome<T> = Result<T, Failure>;

impl Failure {
    /// Something that may pass by itself.
    #[must_use]
    pub fn passing(code: &'static str, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { code, message: message.into(), help: help.into(), passing: true }
    }

    /// Something that a person must see to.
    #[must_use]
    pub fn lasting(code: &'static str, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { code, message: message.into(), help: help.into(), passing: false }
    }
}
