//! The bootstrap tokens of the cluster's roles, as objects that the API server reads when it authenticates.
//!
//! Each is derived from the cluster's key ([`slipway_credentials::bootstrap`]), so every controller makes the same ones. A role has its
//! token from the first pass after a machine of it was launched: machines take longer than that until their kubelets start, and a kubelet
//! that is refused asks again after at most half a minute (client-go `util/certificate/certificate_manager.go`). Tokens stay: a node whose certificate has expired needs its token again (P7), and
//! nobody else than the nodes of the role has it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use slipway_core::role::Role;
use slipway_credentials::bootstrap::{KEY_FILE, RoleToken, group};
use slipway_credentials::policy::KUBERNETES_DIR;

use super::MANAGER;
use super::sources::Cloud;
use crate::api::failed;
use crate::credentials::below;
use crate::failure::{AgentError, AgentResult, FailureCode};

const NAMESPACE: &str = "kube-system";
/// <https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/#bootstrap-token-secret-format>
const TYPE: &str = "bootstrap.kubernetes.io/token";

/// Makes the tokens that are missing. The answer names roles, never tokens.
pub(super) async fn keep(
    client: &Client,
    cloud: &impl Cloud,
    root: &Path,
    cluster: &str,
) -> AgentResult<Value> {
    let path = below(root, &format!("{KUBERNETES_DIR}/{KEY_FILE}"));
    let key = std::fs::read_to_string(&path).map_err(|error| {
        AgentError::permanent(
            FailureCode::ManageUnreadable,
            format!("{}: {error}", path.display()),
            "this file is part of the node's credentials: replace this instance",
        )
    })?;
    // Without EC2 the controllers' own token is there all the same.
    let starting = cloud.starting_roles(cluster, Timestamp::now()).await;
    let mut roles = BTreeSet::from([Role::Controller]);
    roles.extend(starting.as_ref().into_iter().flatten().filter_map(|role| role.parse().ok()));
    let mut made = Vec::new();
    for role in &roles {
        let Some(group) = group(role) else { continue };
        if write(client, &RoleToken::derive(&key, role), &group).await? {
            made.push(role.to_string());
        }
    }
    starting?;
    Ok(json!({ "made": made }))
}

/// `false`: it is there.
async fn write(client: &Client, token: &RoleToken, group: &str) -> AgentResult<bool> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let name = format!("bootstrap-token-{}", token.id);
    let data = BTreeMap::from([
        ("auth-extra-groups", group),
        ("description", "Slipway: kubelets of one role request their first certificate with it"),
        ("token-id", &token.id),
        ("token-secret", &token.secret),
        ("usage-bootstrap-authentication", "true"),
    ]);
    let found =
        secrets.get_opt(&name).await.map_err(|error| failed(&format!("the token of {group}"), &error))?;
    let is_there = found.is_some_and(|found| {
        let is_same = |(key, value): (&&str, &&str)| {
            found
                .data
                .as_ref()
                .and_then(|data| data.get(*key))
                .is_some_and(|found| found.0 == value.as_bytes())
        };
        found.type_.as_deref() == Some(TYPE) && data.iter().all(is_same)
    });
    if is_there {
        return Ok(false);
    }
    let object = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "type": TYPE,
        "stringData": data,
    });
    let parameters = PatchParams::apply(MANAGER).force();
    secrets
        .patch(&name, &parameters, &Patch::Apply(&object))
        .await
        .map_err(|error| failed(&format!("the token of {group}"), &error))?;
    Ok(true)
}
