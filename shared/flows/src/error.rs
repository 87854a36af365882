//! The errors of the flows.

use slipway_core::diagnostic::Diagnostic;
use slipway_ports::{ErrorKind, PortError};

/// Why a flow failed. A refused spec is not an error but an outcome.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    /// A call failed.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A stored object is lost or damaged.
    #[error("{key} {problem}; {help}")]
    Corrupt {
        /// Key of the object.
        key: String,
        /// What is wrong with it: lost, truncated, not JSON, modified.
        problem: String,
        /// What to do.
        help: String,
    },
    /// The request cannot be carried out in the present state.
    #[error("{problem}; {help}")]
    Refused {
        /// Why.
        problem: String,
        /// What to do.
        help: String,
    },
    /// Other writers kept winning the race for the same object; a retry may succeed.
    #[error("lost the race for {key} {tries} times in a row; trying again later")]
    Race {
        /// Key of the object.
        key: String,
        /// How often it was tried.
        tries: u32,
    },
}

/// The result of a flow.
pub type FlowResult<T> = Result<T, FlowError>;

impl FlowError {
    /// Whether a retry may succeed although nothing was changed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Port(error) => error.kind == ErrorKind::Transient,
            Self::Race { .. } => true,
            Self::Corrupt { .. } | Self::Refused { .. } => false,
        }
    }

    /// A stable name for alarms, which becomes Lambda's `errorType`: `Slipway.kms.Denied`, `Slipway.Corrupt`.
    #[must_use]
    pub fn kind(&self) -> String {
        match self {
            Self::Port(error) => {
                let service = error.operation.split(':').next().unwrap_or_default();
                let kind = match error.kind {
                    ErrorKind::Transient => "Transient",
                    ErrorKind::Denied => "Denied",
                    ErrorKind::Missing => "Missing",
                    ErrorKind::Invalid => "Invalid",
                };
                format!("Slipway.{service}.{kind}")
            }
            Self::Corrupt { .. } => "Slipway.Corrupt".to_owned(),
            Self::Refused { .. } => "Slipway.Refused".to_owned(),
            Self::Race { .. } => "Slipway.Transient".to_owned(),
        }
    }
}

/// Why a spec was not rendered.
#[derive(Debug)]
pub enum NotPrepared {
    /// The spec has errors.
    Rejected(Vec<Diagnostic>),
    /// A call failed, or stored state is damaged.
    Failed(FlowError),
}

impl<E: Into<FlowError>> From<E> for NotPrepared {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}
