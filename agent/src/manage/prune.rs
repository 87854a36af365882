//! Deletes objects that no add-on contains any more: those with an add-on's label, of kinds that were applied before, with fields
//! that we own.

use std::collections::BTreeSet;

use kube::api::{DeleteParams, DynamicObject, ListParams, Preconditions};
use kube::{Api, Client};
use serde::Serialize;
use serde_json::Value;
use slipway_core::release::ADDON_LABEL;

use super::MANAGER;
use super::objects::{kind, namespace_and_name, resource};
use crate::api::{failed, status};
use crate::failure::AgentResult;

/// Deleting one of these would delete other people's data, so a person must do it.
const KEPT: [&str; 4] =
    ["Namespace", "CustomResourceDefinition", "PersistentVolume", "PersistentVolumeClaim"];

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Pruned {
    pub(super) pruned: Vec<String>,
    /// No longer wanted, but of a kind in [`KEPT`].
    #[serde(rename = "left")]
    pub(super) kept: Vec<String>,
}

pub(super) async fn prune(
    client: &Client,
    kinds: &BTreeSet<(String, String)>,
    wanted: &[&Value],
) -> AgentResult<Pruned> {
    // By group and kind: an object is the same in all versions of its API group.
    let wanted: BTreeSet<_> =
        wanted.iter().map(|object| identity(&kind(object), &namespace_and_name(object))).collect();
    let mut result = Pruned::default();
    for known in kinds {
        let Some((resource, _)) = resource(client, known).await? else { continue };
        let everywhere: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let labelled = ListParams::default().labels(ADDON_LABEL);
        let found = everywhere.list(&labelled).await.map_err(|error| failed(&known.1, &error))?;
        for object in found.items {
            let namespace = object.metadata.namespace.clone().unwrap_or_default();
            let name = object.metadata.name.clone().unwrap_or_default();
            if wanted.contains(&identity(known, &(namespace.clone(), name.clone()))) || !is_ours(&object) {
                continue;
            }
            let title = format!("{} {namespace}/{name}", known.1);
            if KEPT.contains(&known.1.as_str()) {
                result.kept.push(title);
                continue;
            }
            let api: Api<DynamicObject> = if namespace.is_empty() {
                everywhere.clone()
            } else {
                Api::namespaced_with(client.clone(), &namespace, &resource)
            };
            let that_one = Preconditions { uid: object.metadata.uid.clone(), resource_version: None };
            match api.delete(&name, &DeleteParams::background().preconditions(that_one)).await {
                Ok(_) => result.pruned.push(title),
                Err(error) if matches!(status(&error), Some(404 | 409)) => {}
                Err(error) => return Err(failed(&title, &error)),
            }
        }
    }
    Ok(result)
}

/// API group, kind, namespace, name.
fn identity(
    (api_version, kind): &(String, String),
    (namespace, name): &(String, String),
) -> (String, String, String, String) {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    (group.to_owned(), kind.clone(), namespace.clone(), name.clone())
}

/// Another user may set our label by mistake, but not our field manager.
fn is_ours(object: &DynamicObject) -> bool {
    object
        .metadata
        .managed_fields
        .iter()
        .flatten()
        .any(|entry| entry.manager.as_deref() == Some(MANAGER) && entry.operation.as_deref() == Some("Apply"))
}
