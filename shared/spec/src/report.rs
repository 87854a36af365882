//! Collects findings and gives each its place in the text.

use std::borrow::Cow;
use std::collections::BTreeSet;

use slipway_core::diagnostic::{Diagnostic, Severity};
use slipway_core::words::nearest;

use super::path::{Path, Step};
use super::problem::{Problem, Span};
use super::tree::Node;

/// The most findings about one spec. Nobody reads more, and locating each in the text takes time.
const MOST_FINDINGS: usize = 200;

/// Everything found so far about one spec.
pub(crate) struct Report<'t> {
    root: &'t Node,
    diagnostics: Vec<Diagnostic>,
    /// The paths of all errors, sorted because ranges of them are looked up often.
    refused: BTreeSet<String>,
    /// How many findings were left out.
    omitted: usize,
}

impl<'t> Report<'t> {
    pub(crate) fn new(root: &'t Node) -> Self {
        Self { root, diagnostics: Vec::new(), refused: BTreeSet::new(), omitted: 0 }
    }

    /// An error at the value of `path`, or at the nearest key above it that is there.
    pub(crate) fn error<'h>(
        &mut self,
        code: &'static str,
        path: &Path,
        message: impl Into<String>,
        help: impl Into<Cow<'h, str>>,
    ) {
        self.add(Severity::Error, None, code, path, message.into(), help.into());
    }

    /// A warning, placed as [`Report::error`] places.
    pub(crate) fn warning<'h>(
        &mut self,
        code: &'static str,
        path: &Path,
        message: impl Into<String>,
        help: impl Into<Cow<'h, str>>,
    ) {
        self.add(Severity::Warning, None, code, path, message.into(), help.into());
    }

    /// A finding about a key itself.
    pub(crate) fn key<'h>(
        &mut self,
        severity: Severity,
        span: Span,
        code: &'static str,
        path: &Path,
        message: impl Into<String>,
        help: impl Into<Cow<'h, str>>,
    ) {
        self.add(severity, Some(span), code, path, message.into(), help.into());
    }

    fn add(
        &mut self,
        severity: Severity,
        span: Option<Span>,
        code: &'static str,
        path: &Path,
        message: String,
        help: Cow<'_, str>,
    ) {
        let news = severity == Severity::Error && self.refused.insert(path.to_string());
        // The first error is always kept: without one the spec would be accepted.
        if self.diagnostics.len() >= MOST_FINDINGS && !(news && self.refused.len() == 1) {
            self.omitted += 1;
            return;
        }
        let span = span.unwrap_or_else(|| self.locate(path));
        let mut problem = Problem::at(span, code, message);
        if !help.is_empty() {
            problem = problem.help(help);
        }
        self.diagnostics.push(problem.into_diagnostic(severity, path));
    }

    /// The word that was probably meant; `None` once there are too many findings, because the search is slow.
    pub(crate) fn nearest<'w>(&self, word: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
        if self.diagnostics.len() >= MOST_FINDINGS { None } else { nearest(word, words) }
    }

    /// Whether the spec has a value at `path`, valid or not.
    pub(crate) fn has(&self, path: &Path) -> bool {
        let mut node = self.root;
        for step in &path.0 {
            let next = match step {
                Step::Key(key) => node.entry(key).map(|entry| &entry.value),
                Step::Index(index) => item(node, *index),
            };
            match next {
                Some(value) => node = value,
                None => return false,
            }
        }
        !node.is_null()
    }

    /// Whether there is an error at or below `path`, so that its consequences need not be reported.
    pub(crate) fn refused(&self, path: &Path) -> bool {
        let path = path.to_string();
        let below = |sign: char| {
            let start = format!("{path}{sign}");
            self.refused.range(start.clone()..).next().is_some_and(|found| found.starts_with(&start))
        };
        if path.is_empty() {
            return !self.refused.is_empty();
        }
        self.refused.contains(&path) || below('.') || below('[')
    }

    /// Whether there is an error at `path` itself.
    pub(crate) fn refused_itself(&self, path: &Path) -> bool {
        self.refused.contains(&path.to_string())
    }

    pub(crate) fn locate(&self, path: &Path) -> Span {
        let mut node = self.root;
        let mut span = Span::default();
        for step in &path.0 {
            let next = match step {
                Step::Key(key) => node.entry(key).map(|entry| (entry.key_span, &entry.value)),
                Step::Index(index) => item(node, *index).map(|value| (value.span, value)),
            };
            let Some((at, value)) = next else { return span };
            node = value;
            // A scalar has its own place, a collection that of its key: its own would be its first child's.
            span = if matches!(value.kind, super::tree::Kind::Scalar { .. }) && !value.is_null() {
                value.span
            } else {
                at
            };
        }
        span
    }

    /// All findings in the order of the text, without duplicates.
    pub(crate) fn finish(self) -> Vec<Diagnostic> {
        let mut diagnostics = self.diagnostics;
        diagnostics.sort_by(|a, b| {
            (a.line, a.column, &a.path, &a.code, &a.message)
                .cmp(&(b.line, b.column, &b.path, &b.code, &b.message))
        });
        diagnostics.dedup();
        if let (Some(last), true) = (diagnostics.last(), self.omitted > 0) {
            // At the place of the last one, which keeps the order.
            diagnostics.push(Diagnostic {
                severity: Severity::Warning,
                code: "too-many-findings".to_owned(),
                path: String::new(),
                message: format!("there are {} more findings", self.omitted),
                help: Some("mend these first, then ask again".to_owned()),
                ..last.clone()
            });
        }
        diagnostics
    }
}

fn item(node: &Node, index: usize) -> Option<&std::sync::Arc<Node>> {
    match &node.kind {
        super::tree::Kind::List(items) => items.get(index),
        super::tree::Kind::Scalar { .. } | super::tree::Kind::Map(_) => None,
    }
}
