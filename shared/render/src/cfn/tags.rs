//! Tags, in the three shapes that resource types want them in.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Tags by key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Tags(BTreeMap<String, String>);

impl Tags {
    /// With one more tag.
    pub(crate) fn with(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.insert(key.into(), value.into());
        self
    }

    /// With more tags; those that are there already stay.
    pub(crate) fn with_all(mut self, others: &BTreeMap<String, String>) -> Self {
        for (key, value) in others {
            self.0.entry(key.clone()).or_insert_with(|| value.clone());
        }
        self
    }

    /// `[{Key, Value}]`.
    pub(crate) fn list(&self) -> Value {
        self.0.iter().map(|(key, value)| json!({ "Key": key, "Value": value })).collect()
    }

    /// `[{Key, Value, PropagateAtLaunch}]`, as an Auto Scaling group wants them.
    pub(crate) fn propagating(&self, propagate: bool) -> Vec<Value> {
        self.0
            .iter()
            .map(|(key, value)| json!({ "Key": key, "Value": value, "PropagateAtLaunch": propagate }))
            .collect()
    }

    /// `{key: value}`, for people and for Route 53's relatives.
    pub(crate) fn map(&self) -> Value {
        json!(self.0)
    }
}
