//! Tags, in the three formats that resource types use.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Tags by key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Tags(BTreeMap<String, String>);

impl Tags {
    /// Adds a tag.
    pub(crate) fn with(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.insert(key.into(), value.into());
        self
    }

    /// Adds tags; existing ones take precedence.
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

    /// `[{Key, Value, PropagateAtLaunch}]`, for an Auto Scaling group.
    pub(crate) fn propagating(&self, propagate: bool) -> Vec<Value> {
        self.0
            .iter()
            .map(|(key, value)| json!({ "Key": key, "Value": value, "PropagateAtLaunch": propagate }))
            .collect()
    }

    /// `{key: value}`, for resource types that take a map.
    pub(crate) fn map(&self) -> Value {
        json!(self.0)
    }
}
