//! A finding about a spec, or about a file that belongs to it: what is wrong, where, and what to do.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How severe a [`Diagnostic`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The spec is refused.
    Error,
    /// The spec is accepted; a person should know.
    Warning,
}

/// One finding about a spec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// A stable name for machines, such as `unknown-key` or `cidr-overlap`.
    pub code: String,
    /// Line, from 1. 0: the finding is about the whole file.
    pub line: u32,
    /// Column in characters, from 1. 0: as for `line`.
    pub column: u32,
    /// Path of the key, such as `worker.nodePools[1].name`. Empty: the whole file.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: Option<String>,
    /// Byte range in the text, for a printer that underlines it.
    pub span: Option<(usize, usize)>,
    /// The file, such as `patches/10-tags.yaml`. `None`: the spec itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (Some(file), 0) => write!(f, "{file}: ")?,
            (Some(file), line) => write!(f, "{file}:{line}:{}: ", self.column)?,
            (None, 0) => {}
            (None, line) => write!(f, "{line}:{}: ", self.column)?,
        }
        f.write_str(&self.message)
    }
}

impl Diagnostic {
    /// An error about the whole spec.
    #[must_use]
    pub fn for_whole_spec(code: &str, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            code: code.to_owned(),
            line: 0,
            column: 0,
            path: String::new(),
            message: message.into(),
            help: None,
            span: None,
            file: None,
        }
    }
}
