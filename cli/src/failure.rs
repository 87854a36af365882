//! Why a command could not do what it was asked.

use std::io;
use std::path::Path;

use slipway_driver::error::FlowError;

/// Why a command ended early. Findings about a spec are a result, not a failure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A file could not be read or written.
    #[error("cannot {verb} {what}: {why}")]
    File {
        /// `read`, `write`, ….
        verb: &'static str,
        /// The path.
        what: String,
        /// The system's words.
        why: String,
        /// What to do, where that is plain.
        cure: Option<&'static str>,
    },
    /// It cannot be done as things are.
    #[error("{problem}")]
    Refused {
        /// Why.
        problem: String,
        /// What to do.
        cure: String,
    },
    /// A flow of the driver could not go on.
    #[error(transparent)]
    Flow(#[from] FlowError),
}

impl Failure {
    pub(crate) fn file(verb: &'static str, path: &Path, why: &io::Error) -> Self {
        Self::File { verb, what: path.display().to_string(), why: why.to_string(), cure: None }
    }

    /// A file of ours that is not what was written.
    pub(crate) fn damaged(path: &Path, why: &serde_json::Error) -> Self {
        let cure = Some("bring the file back, or render into another directory");
        Self::File { verb: "read", what: path.display().to_string(), why: why.to_string(), cure }
    }

    pub(crate) fn refused(problem: impl Into<String>, cure: impl Into<String>) -> Self {
        Self::Refused { problem: problem.into(), cure: cure.into() }
    }

    /// The exit code: 1 for a refusal, 3 for what could not be read or written.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Refused { .. } | Self::Flow(FlowError::Refused { .. }) => 1,
            Self::File { .. }
            | Self::Flow(FlowError::Port(_) | FlowError::Corrupt { .. } | FlowError::Race { .. }) => 3,
        }
    }

    /// What to do, where there is more to say than what is wrong.
    pub(crate) fn cure(&self) -> Option<&str> {
        match self {
            Self::Refused { cure, .. } => Some(cure),
            Self::File { cure, .. } => *cure,
            // The flow names an object of the bucket; see `local`.
            Self::Flow(FlowError::Corrupt { .. }) => Some(
                "in a directory, clusters/NAME/ is the directory itself, and its pki/ and bundles/ lie in credentials/",
            ),
            Self::Flow(FlowError::Port(_) | FlowError::Refused { .. } | FlowError::Race { .. }) => None,
        }
    }
}
