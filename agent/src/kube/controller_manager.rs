//! kube-controller-manager: its flags.

use slipway_core::node::ControllerConfig;

use super::flags::{Flags, Program};
use super::static_pod::{Probes, StaticPod};
use super::{FRONT_PROXY_CLIENT, Facts, pki};

pub(super) const PORT: u16 = 10257;
const KUBECONFIG: &str = "/etc/kubernetes/controller-manager.kubeconfig";

/// The static pod.
pub(super) fn pod<'c>(config: &'c ControllerConfig, facts: &Facts) -> StaticPod<'c> {
    let plane = &config.control_plane;
    let mut flags = Flags::default();
    flags
        .set("kubeconfig", KUBECONFIG)
        .set("authentication-kubeconfig", KUBECONFIG)
        .set("authorization-kubeconfig", KUBECONFIG)
        .set("bind-address", "127.0.0.1")
        // Said here, it need not ask the API server, which may not answer yet.
        .set("client-ca-file", pki("ca.pem"))
        .set("requestheader-allowed-names", FRONT_PROXY_CLIENT)
        .set("requestheader-client-ca-file", pki("front-proxy-ca.pem"))
        .set("leader-elect", true)
        .set("profiling", false)
        .set("cluster-name", &config.base.cluster)
        // Routes are the pod network's, and machines the cloud provider's own controllers'.
        .set("allocate-node-cidrs", true)
        .set("cluster-cidr", &config.pod_network.pod_cidr)
        .set("service-cluster-ip-range", &plane.service_cidr)
        .set("use-service-account-credentials", true)
        .set("service-account-private-key-file", pki("service-account-key.pem"));
    // kubelet-ca signs kubelets, as clients and as servers, and nobody else: the signers that are given no authority sign nothing.
    for signer in ["kubelet-client", "kubelet-serving"] {
        flags
            .set(&format!("cluster-signing-{signer}-cert-file"), pki("kubelet-ca.pem"))
            .set(&format!("cluster-signing-{signer}-key-file"), pki("kubelet-ca-key.pem"));
    }
    // What pods know the API server by: not every library takes an intermediate as an anchor.
    flags.set("root-ca-file", pki(if facts.root_ca { "root-ca.pem" } else { "ca.pem" }));
    flags.set_gates(&config.feature_gates).set_users(&plane.controller_manager.flags);
    StaticPod {
        program: Program::ControllerManager,
        flags,
        probes: Probes { port: PORT, live: "/healthz", ready: None },
        cpu: "200m",
        volumes: Vec::new(),
        component: &plane.controller_manager,
    }
}
