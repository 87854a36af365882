//! The patterns of the schemas, compiled once.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use regex::Regex;

/// "Not blank", the one pattern with a look-ahead.
const NOT_BLANK: &str = r"^(?!\s*$).+$";

static COMPILED: Mutex<BTreeMap<String, Option<Regex>>> = Mutex::new(BTreeMap::new());

/// Whether `text` matches `pattern` anywhere, as in JSON Schema, unless the pattern is anchored. `None` if the pattern cannot be
/// compiled; a test ensures that all of ours can.
pub(super) fn matches(pattern: &str, text: &str) -> Option<bool> {
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let regex = compiled.entry(pattern.to_owned()).or_insert_with(|| {
        // Rust's regular expressions have no look-ahead.
        let pattern = if pattern == NOT_BLANK { r"\S".to_owned() } else { in_rusts_syntax(pattern) };
        Regex::new(&pattern).ok()
    });
    regex.as_ref().map(|regex| regex.is_match(text))
}

/// In Rust's syntax, a bracket inside a class opens another class; in JSON Schema's it is a plain bracket.
fn in_rusts_syntax(pattern: &str) -> String {
    let mut out = String::new();
    let mut in_class = false;
    let mut escaped = false;
    for c in pattern.chars() {
        match c {
            _ if escaped => {}
            '[' if in_class => out.push('\\'),
            '[' => in_class = true,
            ']' => in_class = false,
            _ => {}
        }
        escaped = c == '\\' && !escaped;
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn patterns(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(object) => {
                if let Some(Value::String(pattern)) = object.get("pattern") {
                    found.push(pattern.clone());
                }
                object.values().for_each(|inner| patterns(inner, found));
            }
            Value::Array(items) => items.iter().for_each(|inner| patterns(inner, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn every_pattern_of_the_schemas_can_be_compiled() {
        let file: Value =
            serde_json::from_str(include_str!("../../data/resource-types.json")).unwrap_or_default();
        let mut found = Vec::new();
        patterns(&file, &mut found);
        assert!(found.len() > 50, "{}", found.len());
        let bad: Vec<&String> = found.iter().filter(|pattern| matches(pattern, "x").is_none()).collect();
        assert!(bad.is_empty(), "{bad:?}");
        assert_eq!(matches(NOT_BLANK, "  "), Some(false));
        assert_eq!(matches("^ami-[a-z0-9]{1,17}$", "ami-1"), Some(true));
    }
}
