//! What a controller must know: its Kubernetes components.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Base, Kubelet, PodNetwork};
use crate::cluster::{Component, Custom};

/// The configuration of every controller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerConfig {
    /// What every configuration has.
    #[serde(flatten)]
    pub base: Base,
    /// Files and units of the user's.
    #[serde(default, skip_serializing_if = "Custom::is_empty")]
    pub custom: Custom,
    /// The release, such as `1.37.0`.
    pub kubernetes_version: String,
    /// A controller's components use the API server beside them: a load balancer does not send a connection
    /// back to where it came from, and a controller must not depend on its fellows to start.
    pub api_server: String,
    /// Its kubelet.
    pub kubelet: Kubelet,
    /// The pods' network.
    pub pod_network: PodNetwork,
    /// `--feature-gates` of every component.
    pub feature_gates: BTreeMap<String, bool>,
    /// The static pods.
    pub control_plane: ControlPlane,
}

/// API server, controller manager and scheduler.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlane {
    /// `--secure-port` of the API server.
    pub bind_port: u16,
    /// `--etcd-servers`.
    pub etcd_servers: Vec<String>,
    /// `--service-cluster-ip-range`.
    pub service_cidr: String,
    /// Whether secrets are encrypted in etcd; the file that says how is in the credentials either way.
    pub encryption_at_rest: bool,
    /// The audit log's file, how it is kept, and its `policy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit_log: Option<Value>,
    /// `AuthenticationConfiguration`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<Value>,
    /// `enable`, `disable`, and perhaps the `configuration` of admission plugins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<Value>,
    /// What the spec says of the API server.
    #[serde(default, skip_serializing_if = "Component::is_empty")]
    pub api_server: Component,
    /// What the spec says of the controller manager.
    #[serde(default, skip_serializing_if = "Component::is_empty")]
    pub controller_manager: Component,
    /// What the spec says of the scheduler.
    #[serde(default, skip_serializing_if = "Component::is_empty")]
    pub scheduler: Component,
    /// `None`: tokens are for the cluster alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_tokens: Option<ServiceAccountTokens>,
}

/// Tokens of service accounts that the world can check, besides the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceAccountTokens {
    /// `--service-account-issuer`, one flag each: the first makes tokens, all are accepted.
    pub issuers: Vec<String>,
    /// `--api-audiences`: a token for the API itself stays one, whichever issuer made it.
    pub audiences: Vec<String>,
    /// `--service-account-jwks-uri`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks_uri: Option<String>,
}
