//! Each kind of bad input with its place, code, message and help.
//!
//! Most cases are data, in `findings/*.cases`: a name, how the spec differs from [`BASE`], and what is found.
//! `UPDATE_FINDINGS=1 cargo test -p slipway-spec --lib findings::cases` writes what is found; read `git diff` then.
//!
//! - `+ line` is added at the end of [`BASE`]; after `- line`, which is in [`BASE`], it takes that line's place.
//! - `= line` is a line of a whole spec, which replaces [`BASE`].

use super::super::testing::{BASE, findings_text};
use super::super::{Diagnostic, Expected, parse};

fn findings(text: impl AsRef<[u8]>) -> Vec<Diagnostic> {
    match parse(text.as_ref(), None) {
        Ok(accepted) => accepted.warnings,
        Err(diagnostics) => diagnostics,
    }
}

fn findings_in(text: impl AsRef<[u8]>) -> String {
    findings_text(&findings(text))
}

/// [`BASE`] with more keys at its end.
fn with(more: &str) -> String {
    findings_in(format!("{BASE}{more}"))
}

/// [`BASE`] with one piece replaced.
fn instead(old: &str, new: &str) -> String {
    assert!(BASE.contains(old), "{old:?} is not in the base");
    findings_in(BASE.replacen(old, new, 1))
}

macro_rules! says {
    ($found:expr, @$wanted:literal) => {
        insta::assert_snapshot!($found, @$wanted)
    };
}

/// The spec of a case, from the lines that say how it differs from [`BASE`].
fn spec_of_case(edits: &[&str]) -> String {
    let whole = edits.first().is_some_and(|edit| edit.starts_with('='));
    let mut lines: Vec<&str> = if whole { Vec::new() } else { BASE.lines().collect() };
    let (mut place, mut before) = (lines.len(), "");
    for edit in edits {
        let (sign, line) = (&edit[..1], edit.get(2..).unwrap_or_default());
        if sign == "-" {
            let from = if before.is_empty() { 0 } else { place };
            let found = lines[from..].iter().position(|other| *other == line);
            let found = found.filter(|distance| before != "-" || *distance == 0);
            place = from + found.unwrap_or_else(|| panic!("`{line}` is not in the base there"));
            lines.remove(place);
        } else {
            lines.insert(place, line);
            place += 1;
        }
        before = sign;
    }
    lines.iter().flat_map(|line| [line, "\n"]).collect()
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test reads the environment")]
fn cases() {
    let update = std::env::var_os("UPDATE_FINDINGS").is_some();
    let mut failed = Vec::new();
    for file in [
        "aws",
        "control",
        "etcd",
        "first_day",
        "identity",
        "kubelet",
        "names",
        "network",
        "newcomer",
        "newcomer_pools",
        "nodes",
        "pools",
        "programs",
        "relations",
        "structure",
    ] {
        let path = format!("{}/src/tests/findings/{file}.cases", env!("CARGO_MANIFEST_DIR"));
        let stored = std::fs::read_to_string(&path).unwrap();
        let mut pieces = stored.split("\n## ");
        let mut written = pieces.next().unwrap_or_default().to_owned();
        for stored in pieces {
            let (name, rest) = stored.split_once('\n').unwrap();
            let edits: Vec<&str> =
                rest.lines().take_while(|line| line.starts_with(['+', '-', '='])).collect();
            let found = format!("{name}\n{}\n{}", edits.join("\n"), findings_in(spec_of_case(&edits)));
            if found != stored {
                failed.push(format!("{file}.cases says\n\n{stored}\nand this is found:\n\n{found}"));
            }
            written.push_str("\n## ");
            written.push_str(&found);
        }
        if update {
            std::fs::write(&path, written).unwrap();
        }
    }
    assert!(update || failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn the_base_itself_is_accepted() {
    assert_eq!(findings_in(BASE), "");
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
