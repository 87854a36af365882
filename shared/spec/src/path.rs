//! Paths of values in the tree.

use std::fmt;

use super::shown;

/// One step of a [`Path`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

/// The path of a value, such as `worker.nodePools[1].name`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Path(pub(crate) Vec<Step>);

impl Path {
    /// Reads a path whose keys contain neither dots nor brackets, such as those in this crate's code.
    pub(crate) fn parse(text: &str) -> Self {
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

    /// The path without indices, as tables of keys have it: `worker.nodePools[].name`.
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
        // Keys come from the spec, and may be very long.
        f.write_str(&self.render(|number| format!("[{number}]"), shown::value))
    }
}
