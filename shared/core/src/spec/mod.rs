//! From the text of a `cluster.yaml` to a checked [`Cluster`](crate::cluster::Cluster), or to diagnostics with line, column and cure.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;

/// How grave a [`Diagnostic`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The spec is refused.
    Error,
    /// The spec is taken; a person should know.
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
    /// Line, from 1; 0 when the finding is about the whole file.
    pub line: u32,
    /// Column in characters, from 1; 0 as for `line`.
    pub column: u32,
    /// Path of the key, such as `worker.nodePools[1].name`; empty for the whole file.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: Option<String>,
    /// Byte range in the text, for a printer that underlines it.
    pub span: Option<(usize, usize)>,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "{}:{}: ", self.line, self.column)?;
        }
        f.write_str(&self.message)
    }
}

/// A spec that was accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct Accepted {
    /// The checked cluster.
    pub cluster: Cluster,
    /// What a person should know: translated keys and the like. Never errors.
    pub warnings: Vec<Diagnostic>,
}
