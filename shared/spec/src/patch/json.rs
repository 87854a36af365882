//! A value of a patch as JSON. What a person could mean in two ways is asked back, not guessed.

use serde_json::{Map, Number, Value};

use crate::path::Path;
use crate::report::Report;
use crate::tree::{Kind, Node};

/// `node` as JSON; `None` after something in it was reported.
pub(crate) fn value(node: &Node, path: &Path, report: &mut Report<'_>) -> Option<Value> {
    match &node.kind {
        Kind::Scalar { .. } if node.is_null() => Some(Value::Null),
        Kind::Scalar { text, plain: true } => plain(text, path, report),
        Kind::Scalar { text, plain: false } => Some(Value::from(text.as_str())),
        Kind::List(items) => {
            // All of them are read, so that all findings are reported.
            let items: Vec<Option<Value>> = items
                .iter()
                .enumerate()
                .map(|(index, item)| value(item, &path.index(index), report))
                .collect();
            items.into_iter().collect::<Option<Vec<Value>>>().map(Value::Array)
        }
        Kind::Map(entries) => {
            let entries: Vec<Option<(String, Value)>> = entries
                .iter()
                .map(|entry| {
                    let value = value(&entry.value, &path.key(&entry.key), report)?;
                    Some((entry.key.clone(), value))
                })
                .collect();
            entries.into_iter().collect::<Option<Map<String, Value>>>().map(Value::Object)
        }
    }
}

/// A scalar without quotes: what YAML 1.2 says that it is. A number that JSON would write otherwise is refused: `0123`
/// may be an account's id, and `1.30` a version.
fn plain(text: &str, path: &Path, report: &mut Report<'_>) -> Option<Value> {
    match text {
        "true" => return Some(Value::Bool(true)),
        "false" => return Some(Value::Bool(false)),
        _ => {}
    }
    let Some(number) = number(text) else { return Some(Value::from(text)) };
    let number = number.filter(|number| number.to_string() == text);
    if number.is_none() {
        report.error(
            "ambiguous-number",
            path,
            format!("`{text}` is a number in YAML, which JSON writes otherwise"),
            format!("if it is text, write \"{text}\" in quotes; else write the number plainly"),
        );
    }
    number.map(Value::Number)
}

/// `Some` for what YAML 1.2 takes for a number, with the number if JSON has it.
fn number(text: &str) -> Option<Option<Number>> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if ["0x", "0o"].iter().any(|prefix| {
        digits
            .strip_prefix(prefix)
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_hexdigit()))
    }) {
        return Some(None);
    }
    let (mantissa, exponent) = match digits.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (digits, None),
    };
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_number = all_digits(whole)
        && all_digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|exponent| !exponent.is_empty() && all_digits(exponent));
    is_number.then(|| text.parse::<Number>().ok())
}
