//! What went wrong, where, and what to do: on a machine that nobody has signed in to.

use serde::Serialize;
pub use slipway_core::node::FailureCode;
use slipway_core::node::{self, Word};

/// A verb's failure. Its code is one of the contract's: a verb has no other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message}")]
#[serde(into = "node::Failure")]
pub struct Failure {
    /// What kind of failure it is, for machines.
    pub code: FailureCode,
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
    pub fn passing(code: FailureCode, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { code, message: message.into(), help: help.into(), passing: true }
    }

    /// Something that a person must see to.
    #[must_use]
    pub fn lasting(code: FailureCode, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { code, message: message.into(), help: help.into(), passing: false }
    }
}

/// As it is printed.
impl From<Failure> for node::Failure {
    fn from(failure: Failure) -> Self {
        let Failure { code, message, help, passing } = failure;
        Self { code: Word::Known(code), message, help, passing }
    }
}
