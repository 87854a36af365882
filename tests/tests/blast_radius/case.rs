//! One key, and the expected effect of changing it.

use serde_json::{Value, json};

/// A spec that cases start from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    /// Its VPC and everything in it are created.
    Managed,
    /// It uses an existing VPC.
    Existing,
    /// The smallest cluster: one subnet, one machine of each role.
    Single,
}

impl Base {
    fn spec(self) -> Value {
        let text = match self {
            Self::Managed => include_str!("managed.json"),
            Self::Existing => include_str!("existing.json"),
            Self::Single => include_str!("single.json"),
        };
        serde_json::from_str(text).unwrap()
    }
}

/// A row of the table.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// The key's path; `[]` is the first item, `[1]` the second.
    pub(crate) key: String,
    /// The new value; null removes the key.
    pub(crate) to: Value,
    /// The stacks that the plan must name.
    pub(crate) stacks: &'static str,
    /// The nodes that the plan must name.
    pub(crate) nodes: &'static str,
    /// The reason, if it is not obvious.
    pub(crate) because: &'static str,
    base: Base,
    /// Other values of the spec, before and after the change.
    given: Vec<(String, Value)>,
    /// Values that must change together with the key.
    along: Vec<(String, Value)>,
}

/// `key` becomes `to`.
pub(crate) fn case(key: impl Into<String>, to: Value, stacks: &'static str, nodes: &'static str) -> Case {
    let (key, given, along) = (key.into(), Vec::new(), Vec::new());
    Case { key, to, stacks, nodes, because: "", base: Base::Managed, given, along }
}

/// Each key below `group` gets another value; `group` had the value `given` before. All have the same effect.
pub(crate) fn each(
    group: &str,
    given: &Value,
    changes: Vec<(&str, Value)>,
    stacks: &'static str,
    nodes: &'static str,
) -> Vec<Case> {
    let one = |(key, to)| case(format!("{group}.{key}"), to, stacks, nodes).given(group, given.clone());
    changes.into_iter().map(one).collect()
}

impl Case {
    pub(crate) fn because(self, because: &'static str) -> Self {
        Self { because, ..self }
    }

    /// In an existing VPC.
    pub(crate) fn existing(self) -> Self {
        Self { base: Base::Existing, ..self }
    }

    /// In a single subnet.
    pub(crate) fn single(self) -> Self {
        Self { base: Base::Single, ..self }
    }

    /// A value of the spec before and after the change.
    pub(crate) fn given(mut self, key: impl Into<String>, value: Value) -> Self {
        self.given.push((key.into(), value));
        self
    }

    /// A value that changes at the same time, because one is meaningless without the other.
    pub(crate) fn along(mut self, key: impl Into<String>, value: Value) -> Self {
        self.along.push((key.into(), value));
        self
    }

    /// The spec before the change.
    pub(crate) fn before(&self) -> Value {
        let mut spec = self.base.spec();
        for (key, value) in &self.given {
            set(&mut spec, key, value);
        }
        spec
    }

    /// The spec after the change.
    pub(crate) fn after(&self) -> Value {
        let mut spec = self.before();
        set(&mut spec, &self.key, &self.to);
        for (key, value) in &self.along {
            set(&mut spec, key, value);
        }
        spec
    }

    /// The value of the key before the change.
    pub(crate) fn from(&self) -> Option<Value> {
        self.before().pointer(&pointer(&self.key)).cloned()
    }

    /// The keys that this case covers: its own, and those inside the new value.
    pub(crate) fn patterns(&self) -> Vec<String> {
        let mut found = Vec::new();
        let along = self.along.iter().map(|(key, value)| (key, value));
        for (key, value) in along.chain([(&self.key, &self.to)]) {
            inside(pattern(key), value, &mut found);
        }
        found
    }
}

fn inside(path: String, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                inside(format!("{path}.{key}"), value, found);
            }
        }
        Value::Array(items) => {
            for item in items {
                inside(format!("{path}[]"), item, found);
            }
        }
        _ => {}
    }
    found.push(path);
}

/// The path without indices.
pub(crate) fn pattern(key: &str) -> String {
    let mut pattern = String::new();
    let mut index = false;
    for letter in key.chars() {
        index = (index || letter == '[') && letter != ']';
        if !index || letter == '[' {
            pattern.push(letter);
        }
    }
    pattern
}

fn pointer(key: &str) -> String {
    key.replace("[]", "[0]").replace('[', ".").replace(']', "").split('.').fold(
        String::new(),
        |path, part| {
            // Keys of labels contain dots and slashes: they are written as `a.b~1c`, and a dot as `~2`.
            format!("{path}/{}", part.replace("~2", "."))
        },
    )
}

fn set(spec: &mut Value, key: &str, value: &Value) {
    let mut at = &mut *spec;
    for part in pointer(key).split('/').skip(1) {
        let part = part.replace("~1", "/");
        if let Ok(index) = part.parse::<usize>() {
            if at.is_null() {
                *at = json!([]);
            }
            let list = at.as_array_mut().unwrap();
            if list.len() <= index {
                list.resize(index + 1, Value::Null);
            }
            at = &mut list[index];
        } else {
            if at.is_null() {
                *at = json!({});
            }
            at = at.as_object_mut().unwrap().entry(part).or_insert(Value::Null);
        }
    }
    *at = value.clone();
    prune(spec);
}

/// Removes null values, because a removed key is not there at all.
fn prune(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|_, value| !value.is_null());
            object.values_mut().for_each(prune);
        }
        Value::Array(items) => {
            items.retain(|value| !value.is_null());
            items.iter_mut().for_each(prune);
        }
        _ => {}
    }
}
