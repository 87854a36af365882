//! Changes of add-ons. They are objects inside the cluster, so they belong to no stack and replace no node.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use slipway_core::diff::{Difference, diff};
use slipway_core::release::{AddonSet, Installed};

/// What happens to one add-on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddonPlan {
    /// The add-on's name, such as `coredns`.
    pub name: String,
    /// Whether it is installed, changed or removed. An unchanged add-on has no plan.
    pub action: AddonAction,
    /// Its version before; `None`: it is new.
    pub before: Option<String>,
    /// Its version after; `None`: it is removed.
    pub after: Option<String>,
    /// The objects that are added (`+`), changed (`~`) or removed (`-`): `~ Deployment coredns`.
    pub objects: Vec<String>,
    /// The values of these objects that are added or change: `Deployment coredns.spec.replicas`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<Difference>,
}

/// What happens to an add-on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AddonAction {
    /// It is installed.
    Add,
    /// Some of its objects change.
    Change,
    /// It is removed with all of its objects.
    Remove,
}

impl AddonPlan {
    /// `v1.14.5 → v1.14.6`; one version if it does not change; empty for an add-on without a version.
    #[must_use]
    pub fn versions(&self) -> String {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) if before != after => format!("{before} → {after}"),
            (_, Some(one)) | (Some(one), None) => one.clone(),
            (None, None) => String::new(),
        }
    }

    /// Its name, with its versions if it has any: `coredns v1.14.5 → v1.14.6`.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{} {}", self.name, self.versions()).trim_end().to_owned()
    }

    /// What happens to it, to follow its name: `changed (v1.14.5 → v1.14.6)`.
    #[must_use]
    pub fn fate(&self) -> String {
        let word = match self.action {
            AddonAction::Add => "new",
            AddonAction::Change => "changed",
            AddonAction::Remove => "removed",
        };
        match self.versions() {
            none if none.is_empty() => word.to_owned(),
            versions => format!("{word} ({versions})"),
        }
    }
}

/// The add-ons that differ, in the order in which they are applied, with removed ones last.
pub(super) fn compare(old: Option<&AddonSet>, new: &AddonSet) -> Vec<AddonPlan> {
    let before = |name: &str| old.and_then(|old| old.addon(name));
    let staying = new.addons.iter().map(|addon| addon_plan(before(&addon.name), Some(addon)));
    let gone = old.into_iter().flat_map(|old| &old.addons).filter(|addon| new.addon(&addon.name).is_none());
    staying.chain(gone.map(|addon| addon_plan(Some(addon), None))).flatten().collect()
}

fn addon_plan(old: Option<&Installed>, new: Option<&Installed>) -> Option<AddonPlan> {
    let (before, after) = (objects(old), objects(new));
    let (mut changed, mut values) = (Vec::new(), Vec::new());
    for (name, object) in &after {
        let (sign, was) = match before.get(name) {
            None => ('+', &Value::Null),
            Some(was) if was != object => ('~', *was),
            Some(_) => continue,
        };
        changed.push(format!("{sign} {name}"));
        let below = |path: &str| if path.is_empty() { name.clone() } else { format!("{name}.{path}") };
        values.extend(diff(was, object).into_iter().map(|found| Difference {
            path: below(&found.path),
            before: found.before.filter(|before| !before.is_null()),
            after: found.after,
        }));
    }
    changed.extend(before.keys().filter(|name| !after.contains_key(*name)).map(|name| format!("- {name}")));
    let action = match (old, new) {
        (None, Some(_)) => AddonAction::Add,
        (Some(_), None) => AddonAction::Remove,
        (Some(_), Some(_)) if !changed.is_empty() => AddonAction::Change,
        (Some(_) | None, _) => return None,
    };
    let version = |addon: Option<&Installed>| addon.map(|addon| addon.version.clone());
    let name = new.or(old)?.name.clone();
    Some(AddonPlan { name, action, before: version(old), after: version(new), objects: changed, values })
}

/// An add-on's objects by kind and name. Names of one kind are unique, because the objects of an add-on share one namespace.
fn objects(addon: Option<&Installed>) -> BTreeMap<String, &Value> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = addon.into_iter().flat_map(|addon| &addon.objects);
    all.map(|object| (format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"])), object))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(addons: &[(&str, &str, u32)]) -> AddonSet {
        let installed = |(name, version, replicas): &(&str, &str, u32)| Installed {
            name: (*name).to_owned(),
            version: (*version).to_owned(),
            objects: vec![
                json!({ "kind": "Deployment", "metadata": { "name": name }, "spec": { "replicas": replicas } }),
                json!({ "kind": "ServiceAccount", "metadata": { "name": name } }),
            ],
        };
        AddonSet { digest: String::new(), addons: addons.iter().map(installed).collect() }
    }

    #[test]
    fn what_differs_is_said_and_nothing_else() {
        let old = set(&[("dns", "v1", 2), ("proxy", "v1", 2), ("flannel", "v1", 1)]);
        assert_eq!(compare(Some(&old), &old), []);
        let found = compare(Some(&old), &set(&[("dns", "v2", 3), ("proxy", "v1", 2), ("metrics", "v1", 1)]));
        let changes: Vec<(&str, AddonAction, String, String)> = found
            .iter()
            .map(|one| (one.name.as_str(), one.action, one.versions(), one.objects.join(", ")))
            .collect();
        let words = |text: &str| text.to_owned();
        assert_eq!(
            changes,
            [
                ("dns", AddonAction::Change, words("v1 → v2"), words("~ Deployment dns")),
                (
                    "metrics",
                    AddonAction::Add,
                    words("v1"),
                    words("+ Deployment metrics, + ServiceAccount metrics")
                ),
                (
                    "flannel",
                    AddonAction::Remove,
                    words("v1"),
                    words("- Deployment flannel, - ServiceAccount flannel")
                ),
            ]
        );
    }
}
