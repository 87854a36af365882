//! What a check found: the level, what it is about, and the cure.

use serde::Serialize;
use slipway_ports::{ErrorKind, PortError};

use crate::failure::CliError;

/// The result of a check; the gravest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Level {
    /// Something does not work, or will not.
    Problem,
    /// It could not be checked.
    Unknown,
    /// It works, and could be safer or newer.
    Warning,
    /// It is as it should be.
    Ok,
}

impl Level {
    /// All levels, in the order in which they are counted.
    pub(super) const ALL: [Self; 4] = [Self::Problem, Self::Unknown, Self::Warning, Self::Ok];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Problem => "problem",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Ok => "ok",
        }
    }

    /// Whether somebody may rely on it.
    pub(super) const fn is_well(self) -> bool {
        match self {
            Self::Problem | Self::Unknown => false,
            Self::Warning | Self::Ok => true,
        }
    }
}

/// A finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// The part of the installation, or the cluster and its part.
    pub(super) about: String,
    pub(super) message: String,
    /// What to do; `None` if nothing has to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) help: Option<String>,
}

pub(super) fn ok(about: impl Into<String>, message: impl Into<String>) -> Finding {
    Finding { level: Level::Ok, about: about.into(), message: message.into(), help: None }
}

pub(super) fn finding(
    level: Level,
    about: impl Into<String>,
    message: impl Into<String>,
    help: impl Into<String>,
) -> Finding {
    Finding { level, about: about.into(), message: message.into(), help: Some(help.into()) }
}

pub(super) fn problem(
    about: impl Into<String>,
    message: impl Into<String>,
    help: impl Into<String>,
) -> Finding {
    finding(Level::Problem, about, message, help)
}

pub(super) fn warning(
    about: impl Into<String>,
    message: impl Into<String>,
    help: impl Into<String>,
) -> Finding {
    finding(Level::Warning, about, message, help)
}

/// Why something could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unread {
    pub(super) why: String,
    pub(super) help: String,
    /// Whether a permission is missing.
    pub(super) denied: bool,
}

/// What was read, or why it could not be.
pub(super) type Read<T> = Result<T, Unread>;

impl From<&PortError> for Unread {
    fn from(error: &PortError) -> Self {
        let help = match error.kind {
            ErrorKind::Denied => format!(
                "allow whoever runs this {} on it: docs/cli.md, Permissions, lists all that doctor reads",
                error.operation
            ),
            ErrorKind::Transient => "run it again: AWS could not be reached, or was busy".to_owned(),
            ErrorKind::Missing => "find out who deleted it".to_owned(),
            ErrorKind::Invalid => "the message is that of AWS".to_owned(),
        };
        Self { why: error.to_string(), help, denied: error.kind == ErrorKind::Denied }
    }
}

impl From<PortError> for Unread {
    fn from(error: PortError) -> Self {
        Self::from(&error)
    }
}

impl From<CliError> for Unread {
    fn from(error: CliError) -> Self {
        let help = error.help().unwrap_or("run it again").to_owned();
        Self { why: error.to_string(), help, denied: false }
    }
}

/// A check that needs what could not be read.
pub(super) fn unknown(about: impl Into<String>, unread: &Unread) -> Finding {
    finding(Level::Unknown, about, format!("not checked: {}", unread.why), unread.help.clone())
}

/// How a resource of the stack is made again: deploying the same template does not, because CloudFormation compares templates only
/// (CloudFormation user guide, "Using drift-aware change sets").
pub(super) fn recreate_help(stack: &str) -> String {
    format!(
        "bring it back by a drift-aware change set: aws cloudformation create-change-set --stack-name {stack} --deployment-mode REVERT_DRIFT … \
         (CloudFormation user guide, Using drift-aware change sets)"
    )
}
