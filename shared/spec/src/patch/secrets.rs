//! No private key comes in by a patch (P9): templates and configurations are read by many.

use crate::report::Problem;
use crate::tree::Span;

/// The words at the head of every PEM private key, and the letters that they have in base64 wherever they begin
/// within a group of three bytes.
const WORDS: [&str; 4] = ["PRIVATE KEY", "UFJJVkFURSBLRV", "BSSVZBVEUgS0VZ", "QUklWQVRFIEtFW"];
/// What makes CloudFormation put a secret's value into a template.
pub(super) const REFERENCES: [&str; 2] = ["{{resolve:secretsmanager:", "{{resolve:ssm-secure:"];

/// Whether a private key is in it.
pub(crate) fn holds_private_key(text: &str) -> bool {
    WORDS.iter().any(|word| text.contains(word))
}

/// The finding about key material in a patch's text.
pub(super) fn in_text(text: &str) -> Option<Problem> {
    let about = |place: Span, message: &str, help: &str| {
        Problem::at(place, "secret-in-patch", message.to_owned()).help(help.to_owned())
    };
    if let Some(at) = WORDS.iter().filter_map(|word| text.find(word)).min() {
        return Some(about(
            line_of(text, at),
            "there is a private key in this patch",
            "take it out and make a new one, for this one was readable; nodes get their keys in sealed bundles",
        ));
    }
    let at = REFERENCES.iter().filter_map(|reference| text.find(reference)).min()?;
    Some(about(
        line_of(text, at),
        "this patch would put a secret's value into a template",
        "templates are no place for secrets: let the workload read it with a role of its own",
    ))
}

/// The line of a byte, without its text: nothing of it is to be shown.
fn line_of(text: &str, at: usize) -> Span {
    let line = text[..at].matches('\n').count() + 1;
    Span { line: u32::try_from(line).unwrap_or(u32::MAX), column: 1, start: at, end: at }
}
