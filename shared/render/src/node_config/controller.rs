//! A controller's configuration.

use slipway_core::cluster::{Cluster, Component, Taint};
use slipway_core::node::{ControlPlane, ControllerConfig, Kubelet, ServiceAccountTokens};
use slipway_core::oidc;
use slipway_core::role::Role;

use super::{CLUSTER_DOMAIN, Config, base, components, over, pod_network};
use crate::context::Context;
use crate::{identity, ports};

/// Both issuers are accepted, whichever is used, because pods' tokens stay valid while controllers are replaced one by one.
fn service_account_tokens(context: &mut Context<'_>) -> Option<ServiceAccountTokens> {
    let issuer = identity::issuer(context)?;
    let mut issuers = vec![oidc::LOCAL_ISSUER.to_owned(), issuer.clone()];
    let audiences = issuers.clone();
    let signs = identity::is_on(context);
    if signs {
        issuers.reverse();
    }
    Some(ServiceAccountTokens { issuers, audiences, jwks_uri: signs.then(|| oidc::jwks_uri(&issuer)) })
}

/// The settings of the API server. A client keeps its connection for as long as the server lives, so after a roll the first controllers would
/// serve nearly all. With several controllers, a thousandth of the requests ends its connection, which the client opens again; requests in
/// progress are completed. This is the start that kube-apiserver's own help recommends, and not for a single server (k8s.io/apiserver
/// `pkg/server/options/server_run_options.go`, `--goaway-chance`).
fn api_server(cluster: &Cluster) -> Component {
    let mut component = cluster.kubernetes.api_server.clone();
    if cluster.controller.count >= 2 {
        component.flags.entry("goaway-chance".to_owned()).or_insert_with(|| "0.001".to_owned());
    }
    component
}

/// The configuration of every controller.
pub(crate) fn controller(context: &mut Context<'_>, group: &str) -> Config {
    let service_account_tokens = service_account_tokens(context);
    let base = base(context, &Role::Controller, group);
    let cluster = context.cluster;
    let kubernetes_version = context.kubernetes_version(cluster.kubernetes_version);
    let members = cluster.etcd.members.iter();
    let content = ControllerConfig {
        base,
        custom: cluster.controller.custom.clone(),
        kubernetes_version,
        api_server: format!("https://127.0.0.1:{}", ports::API_SERVER),
        kubelet: Kubelet {
            cluster_dns: cluster.network.dns_service_ip.to_string(),
            cluster_domain: CLUSTER_DOMAIN.to_owned(),
            node_labels: cluster.controller.node_labels.clone(),
            taints: vec![Taint {
                key: "node-role.kubernetes.io/control-plane".to_owned(),
                value: String::new(),
                effect: "NoSchedule".to_owned(),
            }],
            configuration: over(&cluster.kubernetes.kubelet, &cluster.controller.kubelet),
        },
        pod_network: pod_network(cluster),
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
            api_server: api_server(cluster),
            controller_manager: cluster.kubernetes.controller_manager.clone(),
            scheduler: cluster.kubernetes.scheduler.clone(),
            service_account_tokens,
        },
    };
    Config::new(context, &Role::Controller, &content)
}
