//! Results as YAML: block style, and every text that could be read as something else in quotes. JSON's quotes are YAML's, too.

use std::fmt::Write as _;

use serde_json::Value;

/// A value as a YAML document that ends with a line break.
pub(super) fn document(value: &Value) -> String {
    if is_empty(value) || !(value.is_object() || value.is_array()) {
        return scalar(value) + "\n";
    }
    let mut text = String::new();
    block(value, 0, &mut text);
    text
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(serde_json::Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

/// The lines of a group or a list, at that indentation.
fn block(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::Object(entries) => {
            for (at, (key, value)) in entries.iter().enumerate() {
                // The first key of an element of a list follows its dash.
                let first_of_element = at == 0 && text.ends_with("- ");
                if !first_of_element {
                    text.push_str(&" ".repeat(indent));
                }
                text.push_str(&word(key));
                text.push(':');
                below(value, indent, text);
            }
        }
        Value::Array(elements) => {
            for element in elements {
                text.push_str(&" ".repeat(indent));
                text.push_str("- ");
                if element.is_object() && !is_empty(element) {
                    block(element, indent + 2, text);
                } else if element.is_array() && !is_empty(element) {
                    text.truncate(text.trim_end_matches(' ').len());
                    text.push('\n');
                    block(element, indent + 2, text);
                } else {
                    let _ = writeln!(text, "{}", scalar(element));
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The value of a key.
fn below(value: &Value, indent: usize, text: &mut String) {
    if is_empty(value) || !(value.is_object() || value.is_array()) {
        let _ = writeln!(text, " {}", scalar(value));
    } else {
        text.push('\n');
        block(value, indent + 2, text);
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => word(text),
        // Empty groups and lists, numbers, `true`, `false` and `null` look as in JSON.
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}

/// A text without quotes if no YAML reader takes it for anything else.
fn word(text: &str) -> String {
    // YAML 1.1 reads these as booleans, null and infinity.
    const OTHERS: [&str; 11] = ["true", "false", "yes", "no", "on", "off", "y", "n", "null", "inf", "nan"];
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_./-".contains(letter);
    let is_plain = text.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '/')
        && text.chars().all(plain)
        && !OTHERS.contains(&text.to_ascii_lowercase().as_str());
    if is_plain { text.to_owned() } else { Value::from(text).to_string() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_reads_as_yaml_as_it_does_as_json() {
        let value = json!({
            "ok": true, "empty": {}, "none": null, "list": [1, "no", {"a": "b c", "d": [[1, 2], []]}, []],
            "text": "two\nlines: \"x\"", "version": "1.30", "word": "eu-west-1a", "at": "2026-11-26T01:00:00Z",
        });
        let expected = "\
at: \"2026-11-26T01:00:00Z\"
empty: {}
list:
  - 1
  - \"no\"
  - a: \"b c\"
    d:
      -
        - 1
        - 2
      - []
  - []
none: null
ok: true
text: \"two\\nlines: \\\"x\\\"\"
version: \"1.30\"
word: eu-west-1a
";
        assert_eq!(document(&value), expected);
        // Our own reader of YAML sees the same keys and values.
        let node = slipway_spec::read_tree(document(&value).as_bytes()).unwrap();
        let slipway_spec::Kind::Map(entries) = node.kind else { panic!("no group") };
        let keys: Vec<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
        assert_eq!(keys, ["at", "empty", "list", "none", "ok", "text", "version", "word"]);
        assert_eq!(document(&json!([])), "[]\n");
        assert_eq!(document(&json!("a")), "a\n");
    }
}
