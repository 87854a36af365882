//! A verb's failure: what is wrong, where, and what to do.

use serde::Serialize;
pub use slipway_core::node::FailureCode;
use slipway_core::node::{self, Word};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message}")]
#[serde(into = "node::VerbFailure")]
pub struct AgentError {
    /// One of the contract's codes.
    pub code: FailureCode,
    pub message: String,
    pub help: String,
    /// Whether a retry may help although nobody changes anything.
    pub transient: bool,
}

pub type AgentResult<T> = Result<T, AgentError>;

impl AgentError {
    /// A failure that may pass by itself.
    #[must_use]
    pub fn transient(code: FailureCode, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { code, message: message.into(), help: help.into(), transient: true }
    }

    /// A failure that a person must deal with.
    #[must_use]
    pub fn permanent(code: FailureCode, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { code, message: message.into(), help: help.into(), transient: false }
    }
}

impl From<AgentError> for node::VerbFailure {
    fn from(failure: AgentError) -> Self {
        let AgentError { code, message, help, transient } = failure;
        Self { code: Word::Known(code), message, help, transient }
    }
}
