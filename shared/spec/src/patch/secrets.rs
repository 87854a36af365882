//! No private key comes in by a patch (P9): templates and configurations are read by many.

use crate::problem::{Problem, Span};
use crate::text::{PRIVATE_KEY_WORDS, holds_private_key};
use crate::tree::{Kind, Node};

/// What makes CloudFormation put a secret's value into a template.
pub(super) const REFERENCES: [&str; 2] = ["{{resolve:secretsmanager:", "{{resolve:ssm-secure:"];

/// The finding about key material in a patch's text.
pub(super) fn in_text(text: &str) -> Option<Problem> {
    if let Some(at) = PRIVATE_KEY_WORDS.iter().filter_map(|word| text.find(word)).min() {
        return Some(private_key(line_of(text, at)));
    }
    let at = REFERENCES.iter().filter_map(|reference| text.find(reference)).min()?;
    Some(reference(line_of(text, at)))
}

/// The finding about key material in a patch's keys and values, which YAML's escapes may have kept out of the text.
pub(super) fn in_values(node: &Node) -> Option<Problem> {
    let in_one = |text: &str, span: Span| {
        let refers = REFERENCES.iter().any(|reference| text.contains(reference));
        if holds_private_key(text) { Some(private_key(span)) } else { refers.then(|| reference(span)) }
    };
    match &node.kind {
        Kind::Scalar { text, .. } => in_one(text, node.span),
        Kind::List(items) => items.iter().find_map(|item| in_values(item)),
        Kind::Map(entries) => entries
            .iter()
            .find_map(|entry| in_one(&entry.key, entry.key_span).or_else(|| in_values(&entry.value))),
    }
}

fn private_key(place: Span) -> Problem {
    Problem::at(place, "secret-in-patch", "there is a private key in this patch".to_owned()).help(
        "take it out and make a new one, for this one was readable; nodes get their keys in sealed bundles"
            .to_owned(),
    )
}

fn reference(place: Span) -> Problem {
    let message = "this patch would put a secret's value into a template".to_owned();
    Problem::at(place, "secret-in-patch", message).help(
        "templates must not contain secrets: let the workload read it with a role of its own".to_owned(),
    )
}

/// The line of a byte, without its text: nothing of it is to be shown.
fn line_of(text: &str, at: usize) -> Span {
    let line = text[..at].matches('\n').count() + 1;
    Span { line: u32::try_from(line).unwrap_or(u32::MAX), column: 1, start: at, end: at }
}
