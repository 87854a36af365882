//! A word of an enumeration that newer agents may extend.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A word of `T`, or a word that this release does not know. A newer agent may use more words, and the rest of its answer must still be
/// readable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Word<T> {
    /// A known word.
    Known(T),
    /// An unknown word.
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
