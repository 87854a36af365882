//! What identifies an object of an add-on, and the API of its kind.

use kube::Client;
use kube::api::{ApiResource, GroupVersionKind};
use kube::discovery::{Scope, pinned_kind};
use serde_json::Value;

use crate::api::failed;
use crate::failure::AgentResult;

/// `apiVersion` and `kind`.
pub(super) fn kind(object: &Value) -> (String, String) {
    let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
    (text("apiVersion"), text("kind"))
}

/// Namespace and name.
pub(super) fn namespace_and_name(object: &Value) -> (String, String) {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

/// The API of a kind; `None` if the API server does not know the kind.
pub(super) async fn resource(
    client: &Client,
    (api_version, kind): &(String, String),
) -> AgentResult<Option<(ApiResource, Scope)>> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let wanted = GroupVersionKind::gvk(group, version, kind);
    match pinned_kind(client, &wanted).await {
        Ok((resource, capabilities)) => Ok(Some((resource, capabilities.scope))),
        Err(kube::Error::Discovery(_)) => Ok(None),
        Err(error) if crate::api::status(&error) == Some(404) => Ok(None),
        Err(error) => Err(failed(&format!("{api_version} {kind}"), &error)),
    }
}
