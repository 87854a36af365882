//! Why a flow could not go on.

use slipway_ports::{ErrorKind, PortError};

/// Why a flow could not go on. A refused spec is no error: it is an outcome.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    /// A call did not work.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A stored object is not what was written.
    #[error("{key} {problem}; {cure}")]
    Corrupt {
        /// Key of the object.
        key: String,
        /// What is wrong with it: lost, truncated, not JSON, tampered with.
        problem: String,
        /// What to do.
        cure: String,
    },
    /// What was asked cannot be done as things are.
    #[error("{problem}; {cure}")]
    Refused {
        /// Why.
        problem: String,
        /// What to do.
        cure: String,
    },
    /// Others kept winning the race for the same object; the same call may work later.
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
    /// Whether the same flow may work later without anybody doing anything.
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
