//! A finding and its place in the text, as every reader of a file makes them.

use slipway_core::diagnostic::{Diagnostic, Severity};

use super::path::Path;
use super::shown;

/// A place in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// From 1; 0 is the whole file.
    pub line: u32,
    /// In characters, from 1.
    pub column: u32,
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
}

/// A finding at a known place.
#[derive(Debug)]
pub(crate) struct Problem {
    span: Span,
    code: &'static str,
    message: String,
    help: Option<String>,
}

impl Problem {
    pub(crate) fn at(span: Span, code: &'static str, message: impl Into<String>) -> Self {
        Self { span, code, message: message.into(), help: None }
    }

    /// About the whole file.
    pub(crate) fn file(code: &'static str, message: impl Into<String>) -> Self {
        Self::at(Span::default(), code, message)
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The finding for the outside. What it quotes of the spec is shortened here, so that no message can be too long.
    pub(crate) fn into_diagnostic(self, severity: Severity, path: &Path) -> Diagnostic {
        let Self { span, code, message, help } = self;
        Diagnostic {
            severity,
            code: code.to_owned(),
            line: span.line,
            column: span.column,
            path: path.to_string(),
            message: shown::sentence(&message),
            help: help.as_deref().map(shown::sentence),
            span: (span.line > 0).then_some((span.start, span.end)),
            file: None,
        }
    }
}
