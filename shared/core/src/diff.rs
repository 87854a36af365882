//! The differences between two JSON values, by path.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A path at which two values differ.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// Keys from the root, joined by dots. Arrays are compared as a whole, because their elements have no names.
    pub path: String,
    /// `None`: absent.
    pub before: Option<Value>,
    /// `None`: absent.
    pub after: Option<Value>,
}

/// All paths at which `before` and `after` differ, sorted.
#[must_use]
pub fn diff(before: &Value, after: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    walk(String::new(), Some(before), Some(after), &mut found);
    found
}

fn walk(path: String, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<Difference>) {
    if before == after {
        return;
    }
    if let (Some(Value::Object(before_map)), Some(Value::Object(after_map))) = (before, after)
        && !is_intrinsic(before_map)
        && !is_intrinsic(after_map)
    {
        let keys: std::collections::BTreeSet<&String> = before_map.keys().chain(after_map.keys()).collect();
        for key in keys {
            let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            walk(below, before_map.get(key), after_map.get(key), found);
        }
        return;
    }
    found.push(Difference { path, before: before.cloned(), after: after.cloned() });
}

/// Whether `object` is an intrinsic function, `{"Ref": …}` or `{"Fn::…": …}`. It stands for one value, so a comparison does not descend
/// into it.
pub fn is_intrinsic(object: &serde_json::Map<String, Value>) -> bool {
    object.len() == 1 && object.keys().all(|key| key == "Ref" || key.starts_with("Fn::"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn p3_a_difference_names_the_deepest_key_and_both_values() {
        let found = diff(
            &json!({"A": {"B": 1, "C": [1, 2]}, "Gone": true}),
            &json!({"A": {"B": 2, "C": [1, 3]}, "New": {"Ref": "X"}}),
        );
        let paths: Vec<&str> = found.iter().map(|one| one.path.as_str()).collect();
        assert_eq!(paths, ["A.B", "A.C", "Gone", "New"]);
        assert_eq!((&found[0].before, &found[0].after), (&Some(json!(1)), &Some(json!(2))));
        assert_eq!(found[2].after, None);
        assert_eq!(found[3].before, None);
    }

    #[test]
    fn p3_an_intrinsic_function_is_one_value() {
        let found = diff(&json!({"Vpc": {"Ref": "A"}}), &json!({"Vpc": {"Fn::ImportValue": "x"}}));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, "Vpc");
    }

    #[test]
    fn p1_equal_values_have_no_difference() {
        let value = json!({"A": [{"B": null}]});
        assert!(diff(&value, &value).is_empty());
    }
}
