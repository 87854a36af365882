//! Patches: what a cluster's owner changes in rendered stacks and node configurations (design §6).
//!
//! A file of `clusters/<name>/patches/` says what it is for (`target`) and what it changes there, as a JSON merge patch
//! (`merge`, RFC 7386) or as operations of a JSON patch (`ops`, RFC 6902). Patches apply in the order of their files'
//! names, after rendering and before anything is measured or digested: a patched configuration is another
//! configuration, and its nodes are outdated (P2).
//!
//! [`parse`] reads the files; `apply` is rendering's half; `guard` says what a patch may not touch, and why.

mod apply;
mod guard;
mod json;
mod read;
mod secrets;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use json_patch::PatchOperation;
use serde_json::Value;
use slipway_core::diagnostic::{Diagnostic, Severity};
use slipway_core::keys::{PATCH_EXTENSION, PATCHES};

use crate::path::Path;
use crate::problem::{Problem, Span};

pub use apply::{Applied, Target};
pub(crate) use json::value as json_value;

/// The most patches of a cluster.
pub const MOST_FILES: usize = 50;
/// The largest patch that is read, in bytes.
pub const MOST_BYTES: usize = 64 * 1024;

/// One file of `clusters/<name>/patches/`, read and checked by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Patch {
    /// The file, as findings name it: `patches/10-tags.yaml`.
    file: String,
    side: Side,
    targets: Vec<Pattern>,
    change: Change,
}

/// What a patch is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// CloudFormation templates.
    Stack,
    /// Node configurations.
    Node,
}

/// The name of a target, in which `*` matches any letters.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    text: String,
    span: Span,
}

/// What a patch changes.
#[derive(Debug, Clone, PartialEq)]
enum Change {
    /// RFC 7386, with the place of `merge`.
    Merge(Value, Span),
    /// RFC 6902.
    Operations(Vec<Operation>),
}

/// One operation of a JSON patch, and its place in the file.
#[derive(Debug, Clone, PartialEq)]
struct Operation {
    operation: PatchOperation,
    span: Span,
}

impl Patch {
    /// A finding about this patch.
    fn finding(&self, severity: Severity, span: Span, code: &'static str, text: FindingText) -> Diagnostic {
        let FindingText { path, message, help } = text;
        let problem = Problem::at(span, code, message).help(help);
        let path = path.as_deref().map(Path::parse).unwrap_or_default();
        Diagnostic { file: Some(self.file.clone()), ..problem.into_diagnostic(severity, &path) }
    }

    /// Where the patch says what it changes.
    fn place(&self) -> Span {
        match &self.change {
            Change::Merge(_, span) => *span,
            Change::Operations(operations) => operations.first().map(|one| one.span).unwrap_or_default(),
        }
    }
}

/// What a finding says.
#[derive(Debug)]
struct FindingText {
    /// The key in the patch's file, where there is one.
    path: Option<String>,
    message: String,
    help: String,
}

/// Reads the files of a cluster's `patches/`, by name without folder. Their order is that of the names.
///
/// # Errors
/// Every finding in every file.
pub fn parse(files: &BTreeMap<String, Vec<u8>>) -> Result<Vec<Patch>, Vec<Diagnostic>> {
    let mut patches = Vec::with_capacity(files.len());
    let mut findings = Vec::new();
    if files.len() > MOST_FILES {
        findings.push(too_many(files.len()));
        return Err(findings);
    }
    for (name, bytes) in files {
        match read::patch(&in_folder(name), bytes) {
            Ok(patch) => patches.push(patch),
            Err(found) => findings.extend(found),
        }
    }
    if findings.is_empty() { Ok(patches) } else { Err(findings) }
}

fn in_folder(name: &str) -> String {
    format!("{PATCHES}/{name}")
}

/// The finding about too many patches: they need not be fetched.
#[must_use]
pub fn too_many(count: usize) -> Diagnostic {
    Diagnostic {
        file: Some(format!("{PATCHES}/")),
        help: Some("put what belongs together into one file: a file may have many operations".to_owned()),
        ..Diagnostic::for_whole_spec(
            "too-many-patches",
            format!("there are {count} patches; {MOST_FILES} are read at most"),
        )
    }
}

/// The finding about a patch that is too large to be read: it need not be fetched.
#[must_use]
pub fn too_large(name: &str, length: usize) -> Diagnostic {
    let problem = crate::oversize(length, &read::PATCH);
    Diagnostic { file: Some(in_folder(name)), ..problem.into_diagnostic(Severity::Error, &Path::default()) }
}

/// The warning about a file beside the patches that somebody may have meant for one.
#[must_use]
pub fn not_read(name: &str) -> Diagnostic {
    Diagnostic {
        severity: Severity::Warning,
        file: Some(in_folder(name)),
        help: Some(format!("patches lie in {PATCHES}/ itself, and their names end in {PATCH_EXTENSION}")),
        ..Diagnostic::for_whole_spec("not-a-patch", "this file is not read")
    }
}
