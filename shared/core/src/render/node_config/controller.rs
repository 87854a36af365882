//! What a controller must know: its Kubernetes components, and what the node manager applies.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::{Base, CLUSTER_DOMAIN, Config, Kubelet, PodNetwork, components, over};
use crate::cluster::{Component, Custom, Taint};
use crate::oidc;
use crate::pki::Role;
use crate::render::context::Context;
use crate::render::{identity, ports};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ControllerConfig<'c> {
    #[serde(flatten)]
    base: Base,
    #[serde(skip_serializing_if = "Custom::is_empty")]
    custom: &'c Custom,
    kubernetes_version: String,
    /// A controller's components use the API server beside them: a load balancer does not send a connection
    /// back to where it came from, and a controller must not depend on its fellows to start.
    api_server: String,
    kubelet: Kubelet,
    pod_network: PodNetwork,
    feature_gates: BTreeMap<String, bool>,
    control_plane: ControlPlane,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ControlPlane {
    bind_port: u16,
    etcd_servers: Vec<String>,
    service_cidr: String,
    encryption_at_rest: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    audit_log: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    authentication: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    admission: Option<Value>,
    #[serde(skip_serializing_if = "Component::is_empty")]
    api_server: Component,
    #[serde(skip_serializing_if = "Component::is_empty")]
    controller_manager: Component,
    #[serde(skip_serializing_if = "Component::is_empty")]
    scheduler: Component,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_account_tokens: Option<ServiceAccountTokens>,
}

/// Tokens of service accounts that the world can check, besides the cluster.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ServiceAccountTokens {
    /// `--service-account-issuer`, one flag each: the first makes tokens, all are accepted.
    issuers: Vec<String>,
    /// `--api-audiences`: a token for the API itself stays one, whichever issuer made it.
    audiences: Vec<String>,
    /// `--service-account-jwks-uri`.
    #[serde(skip_serializing_if = "Option::is_none")]
    jwks_uri: Option<String>,
}

impl ServiceAccountTokens {
    /// The issuer that is not in use is accepted too: the pods' tokens live on while controllers change, one by one.
    fn new(context: &mut Context<'_>) -> Option<Self> {
        let issuer = identity::issuer(context)?;
        let mut issuers = vec![oidc::LOCAL_ISSUER.to_owned(), issuer.clone()];
        let audiences = issuers.clone();
        let signs = identity::is_on(context);
        if signs {
            issuers.reverse();
        }
        Some(Self { issuers, audiences, jwks_uri: signs.then(|| oidc::jwks_uri(&issuer)) })
    }
}

/// The configuration of every controller.
pub(in crate::render) fn controller(context: &mut Context<'_>, group: &str) -> Config {
    let service_account_tokens = ServiceAccountTokens::new(context);
    let cluster = context.cluster;
    let kubernetes_version = context.kubernetes_version(cluster.kubernetes_version);
    let members = cluster.etcd.members.iter();
    let content = ControllerConfig {
        base: Base::new(cluster, "controller".to_owned(), group),
        custom: &cluster.controller.custom,
        kubernetes_version,
        api_server: format!("https://127.0.0.1:{}", ports::API_SERVER),
        kubelet: Kubelet {
            cluster_dns: cluster.network.dns_service_ip.to_string(),
            cluster_domain: CLUSTER_DOMAIN,
            node_labels: cluster.controller.node_labels.clone(),
            taints: vec![Taint {
                key: "node-role.kubernetes.io/control-plane".to_owned(),
                value: String::new(),
                effect: "NoSchedule".to_owned(),
            }],
            configuration: over(&cluster.kubernetes.kubelet, &cluster.controller.kubelet),
        },
        pod_network: PodNetwork::new(cluster),
        feature_gates: over(&cluster.kubernetes.feature_gates, &cluster.controller.feature_gates),
        control_plane: ControlPlane {
            bind_port: ports::API_SERVER,
            etcd_servers: members
                .map(|member| format!("https://{}:{}", member.dns_name, ports::ETCD_CLIENT))
                .collect(),
            service_cidr: cluster.network.service_cidr.to_string(),
            encryption_at_rest: cluster.kubernetes.encryption_at_rest,
            audit_log: cluster.kubernetes.audit_log.as_ref().map(components::audit_log),
            authentication: cluster.kubernetes.oidc.as_ref().map(components::authentication),
            admission: components::admission(&cluster.kubernetes.admission),
            api_server: cluster.kubernetes.api_server.clone(),
            controller_manager: cluster.kubernetes.controller_manager.clone(),
            scheduler: cluster.kubernetes.scheduler.clone(),
            service_account_tokens,
        },
    };
    Config::new(context, &Role::Controller, &content)
}
