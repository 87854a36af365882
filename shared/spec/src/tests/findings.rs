//! Each kind of bad input with its place, code, message and cure.

use super::super::testing::{BASE, findings_text};
use super::super::{Diagnostic, Expected, parse};

fn findings(text: impl AsRef<[u8]>) -> Vec<Diagnostic> {
    match parse(text.as_ref(), None) {
        Ok(accepted) => accepted.warnings,
        Err(diagnostics) => diagnostics,
    }
}

fn told_of(text: impl AsRef<[u8]>) -> String {
    findings_text(&findings(text))
}

/// [`BASE`] with more keys at its end.
fn with(more: &str) -> String {
    told_of(format!("{BASE}{more}"))
}

/// [`BASE`] with one piece replaced.
fn instead(old: &str, new: &str) -> String {
    assert!(BASE.contains(old), "{old:?} is not in the base");
    told_of(BASE.replacen(old, new, 1))
}

macro_rules! says {
    ($told:expr, @$wanted:literal) => {
        insta::assert_snapshot!($told, @$wanted)
    };
}

#[test]
fn the_base_itself_is_accepted() {
    assert_eq!(told_of(BASE), "");
}

mod aws;
mod control;
mod etcd;
mod identity;
mod network;
mod nodes;
mod pools;
mod relations;
mod renewal;
mod structure;
