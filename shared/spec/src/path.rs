//! The way to a value in the tree.

use std::fmt;

use super::shown;

/// One step of a [`Path`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

/// The way to a value, such as `worker.nodePools[1].name`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Path(pub(crate) Vec<Step>);

impl Path {
    /// From keys with dots and indices, none of which needs escaping: for paths that we write ourselves.
    pub(crate) fn of(text: &str) -> Self {
        let mut steps = Vec::new();
        for part in text.split('.').filter(|part| !part.is_empty()) {
            let mut pieces = part.split('[');
            steps.push(Step::Key(pieces.next().unwrap_or_default().to_owned()));
            steps
                .extend(pieces.filter_map(|piece| piece.trim_end_matches(']').parse().ok()).map(Step::Index));
        }
        Self(steps)
    }

    pub(crate) fn key(&self, key: &str) -> Self {
        self.with(Step::Key(key.to_owned()))
    }

    pub(crate) fn index(&self, index: usize) -> Self {
        self.with(Step::Index(index))
    }

    fn with(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }

    /// Without its indices, for tables of keys: `worker.nodePools[].name`.
    pub(crate) fn pattern(&self) -> String {
        self.render(|_| "[]".to_owned(), str::to_owned)
    }

    fn render(&self, index: impl Fn(usize) -> String, word: impl Fn(&str) -> String) -> String {
        let mut text = String::new();
        for step in &self.0 {
            match step {
                Step::Key(key) => {
                    if !text.is_empty() {
                        text.push('.');
                    }
                    text.push_str(&word(key));
                }
                Step::Index(number) => text.push_str(&index(*number)),
            }
        }
        text
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys are the spec's own words, and may be as long as it likes.
        f.write_str(&self.render(|number| format!("[{number}]"), shown::value))
    }
}
