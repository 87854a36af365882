//! A word of a list that may grow with the agent.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One of the words of `T`, or a word that this release does not know: a newer agent has more of them, and what else it says must be
/// read all the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Word<T> {
    /// A word of the list.
    Known(T),
    /// Another one.
    Other(String),
}

impl<T> From<T> for Word<T> {
    fn from(word: T) -> Self {
        Self::Known(word)
    }
}

impl<T: fmt::Display> fmt::Display for Word<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(word) => word.fmt(f),
            Self::Other(word) => f.write_str(word),
        }
    }
}
