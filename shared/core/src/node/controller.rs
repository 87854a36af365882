//! The configuration of a controller: its Kubernetes components.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Base, Kubelet, PodNetwork};
use crate::cluster::{Component, Custom};

/// The configuration of every controller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerConfig {
    /// The fields that every configuration has.
    #[serde(flatten)]
    pub base: Base,
    /// Files and units of the user's.
    #[serde(default, skip_serializing_if = "Custom::is_empty")]
    pub custom: Custom,
    /// The release, such as `1.37.0`.
    pub kubernetes_version: String,
    /// The API server on the same machine. A load balancer does not return a connection to the machine that it came from, and a
    /// controller must be able to start without the others.
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
    /// Whether secrets are encrypted in etcd. The encryption configuration is part of the credentials in either case.
    pub encryption_at_rest: bool,
    /// The audit log's file, its rotation, and its `policy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit_log: Option<Value>,
    /// `AuthenticationConfiguration`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<Value>,
    /// Enabled and disabled admission plugins, and their `configuration` if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<Value>,
    /// Settings of the API server in the spec.
    #[serde(default, skip_serializing_if = "Component::is_empty")]
    pub api_server: Component,
    /// Settings of the controller manager in the spec.
    #[serde(default, skip_serializing_if = "Component::is_empty")]
    pub controller_manager: Component,
    /// Settings of the scheduler in the spec.
    #[serde(default, skip_serializing_if = "Component::is_empty")]
    pub scheduler: Component,
    /// `None`: tokens are valid inside the cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_tokens: Option<ServiceAccountTokens>,
}

/// Settings for service account tokens that can be verified outside of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceAccountTokens {
    /// `--service-account-issuer`, one flag each. Tokens are issued under the first; all are accepted.
    pub issuers: Vec<String>,
    /// `--api-audiences`, so that a token for the API is accepted whichever issuer it names.
    pub audiences: Vec<String>,
    /// `--service-account-jwks-uri`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks_uri: Option<String>,
}
