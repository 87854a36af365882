//! Canonical JSON: no spaces, keys sorted at every depth.

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::Value;

/// `value` without spaces and with sorted keys. The order is made here because `serde_json`'s own map keeps insertion order as soon as
/// any crate of the build enables its feature `preserve_order`, and then the same spec would render different bytes.
#[must_use]
pub fn canonical_json(value: &Value) -> String {
    serde_json::to_string(&Canonical(value)).expect("a JSON value has string keys only")
}

/// Serializes a value with sorted keys at every depth.
#[derive(Debug, Clone, Copy)]
pub struct Canonical<'a>(pub &'a Value);

impl Serialize for Canonical<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(map) => {
                let mut entries: Vec<(&String, &Value)> = map.iter().collect();
                entries.sort_unstable_by_key(|(key, _)| *key);
                let mut out = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    out.serialize_entry(key, &Canonical(value))?;
                }
                out.end()
            }
            Value::Array(items) => {
                let mut out = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    out.serialize_element(&Canonical(item))?;
                }
                out.end()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                self.0.serialize(serializer)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn p1_keys_are_sorted_at_every_depth() {
        let value = json!({ "b": [{ "z": 1, "a": null }], "a": { "d": "x", "c": true } });
        assert_eq!(canonical_json(&value), r#"{"a":{"c":true,"d":"x"},"b":[{"a":null,"z":1}]}"#);
    }
}
