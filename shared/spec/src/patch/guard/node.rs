//! What a node's configuration must be after a patch: what its agent reads, and labels with which its kubelet starts.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use slipway_core::diff::diff;
use slipway_core::node::{ControllerConfig, EtcdConfig, WorkerConfig};
use slipway_core::role::Role;
use slipway_core::words::nearest;

use super::Refusal;
use crate::text::{is_label_for_kubelet, is_label_key, is_label_value};

/// Keys that the patch brings, that the agent does not know, and that are like none that it knows. They do nothing, and a node is replaced
/// for them; but a later agent may know them.
pub(in super::super) fn idle_keys(role: &Role, before: &Value, after: &Value) -> Vec<String> {
    let (Ok(known), Ok(now)) = (read(role, before), read(role, after)) else { return Vec::new() };
    unknown(&known, &now, before, after).filter(|(_, near)| near.is_none()).map(|(path, _)| path).collect()
}

fn read(role: &Role, value: &Value) -> Result<Value, String> {
    match role {
        Role::Etcd(_) => understood::<EtcdConfig>(value),
        Role::Controller => understood::<ControllerConfig>(value),
        Role::Pool(_) => understood::<WorkerConfig>(value),
        Role::Admin => Ok(value.clone()),
    }
}

/// What is wrong with `after`, which is the configuration `before` of a node of `role` with a patch.
pub(super) fn check(role: &Role, before: &Value, after: &Value) -> Vec<Refusal> {
    // A configuration that is not complete, as in a check without an installation, says nothing about the patch.
    let Ok(known) = read(role, before) else { return labels(before, after) };
    let mut found: Vec<Refusal> = match read(role, after) {
        Err(error) => {
            let help = "docs/nodes.md shows what a node's configuration has: the agent could not read this";
            return vec![Refusal::new(error, help)];
        }
        Ok(now) => unknown(&known, &now, before, after)
            .filter_map(|(path, near)| {
                let help = format!("did you mean `{}`?", near?);
                Some(Refusal::new(format!("the agent does not know `{path}`"), help))
            })
            .collect(),
    };
    found.extend(labels(before, after));
    found
}

/// The part of `value` that the agent understands.
fn understood<T: DeserializeOwned + Serialize>(value: &Value) -> Result<Value, String> {
    let config: T = serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
    serde_json::to_value(config).map_err(|error| error.to_string())
}

/// Keys that the patch brings and that the agent does not know, each with the one beside it that was probably meant.
fn unknown<'b>(
    known: &Value,
    understood: &Value,
    before: &'b Value,
    after: &Value,
) -> impl Iterator<Item = (String, Option<&'b str>)> {
    let passed_over = |understood: &Value, whole: &Value| -> Vec<String> {
        let missing = diff(understood, whole).into_iter().filter(|one| one.before.is_none());
        // What is empty may be left out when it is written.
        let says_something = |value: &Value| match value {
            Value::Null | Value::Bool(false) => false,
            Value::Bool(true) | Value::Number(_) | Value::String(_) => true,
            Value::Array(list) => !list.is_empty(),
            Value::Object(keys) => !keys.is_empty(),
        };
        missing.filter(|one| one.after.as_ref().is_some_and(says_something)).map(|one| one.path).collect()
    };
    let old = passed_over(known, before);
    let new = passed_over(understood, after).into_iter().filter(move |path| !old.contains(path));
    new.map(|path| {
        let (group, key) = path.rsplit_once('.').unwrap_or(("", &path));
        let pointer: String =
            group.split('.').filter(|step| !step.is_empty()).map(|step| format!("/{step}")).collect();
        let beside = before.pointer(&pointer).and_then(Value::as_object);
        let near = nearest(key, beside.into_iter().flatten().map(|(key, _)| key.as_str()));
        (path, near)
    })
}

/// Labels of the patch with which a kubelet would not start.
fn labels(before: &Value, after: &Value) -> Vec<Refusal> {
    let labels = |value: &Value| value.pointer("/kubelet/nodeLabels").and_then(Value::as_object).cloned();
    let (old, new) = (labels(before).unwrap_or_default(), labels(after).unwrap_or_default());
    let changed = new.iter().filter(|(key, value)| old.get(*key) != Some(*value));
    changed
        .filter_map(|(key, value)| {
            if !is_label_key(key) {
                let help = "write a name of 63 characters at most (letters, digits, `-_.`), perhaps with a DNS prefix: `example.com/name`";
                Some(Refusal::new(format!("`{key}` cannot be a label's key"), help))
            } else if !is_label_for_kubelet(key) {
                let help = "choose a prefix of your own, or `node.kubernetes.io/`: a kubelet that sets this one does not start";
                Some(Refusal::new(format!("the label `{key}` is reserved by Kubernetes"), help))
            } else if !value.as_str().is_some_and(is_label_value) {
                let help = "write 63 characters at most: letters, digits, `-_.`, the first and last a letter or digit; numbers in quotes";
                Some(Refusal::new(format!("{value} cannot be the value of the label `{key}`"), help))
            } else {
                None
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_label_with_which_a_kubelet_does_not_start_is_refused() {
        let of = |labels: Value| json!({ "kubelet": { "nodeLabels": labels } });
        let judge = |labels: Value| -> Vec<String> {
            let found = check(&Role::Pool("a".to_owned()), &of(json!({})), &of(labels)).into_iter();
            found.map(|one| one.what).collect()
        };
        assert_eq!(judge(json!({"example.com/team": "a"})), [""; 0]);
        assert_eq!(
            judge(json!({"node-role.kubernetes.io/worker": ""})),
            ["the label `node-role.kubernetes.io/worker` is reserved by Kubernetes"]
        );
        assert_eq!(judge(json!({"team": "a b"})), [r#""a b" cannot be the value of the label `team`"#]);
        assert_eq!(judge(json!({"team": 1})), ["1 cannot be the value of the label `team`"]);
    }
}
