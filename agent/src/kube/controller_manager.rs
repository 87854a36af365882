//! Flags of kube-controller-manager.

use slipway_core::node::ControllerConfig;

use super::Facts;
use super::flags::Flags;
use super::static_pod::{Probes, StaticPod};
use crate::static_pods::Program;
use crate::status::listeners::CONTROLLER_MANAGER_PORT;

/// How long certificates of kubelets are valid. Nobody can revoke one, so whoever copied a kubelet's key has what its Node may do for as long,
/// after its machine is gone. Kubelets begin to renew when 70 to 90 % of the life are over (`nextRotationDeadline` in client-go
/// `util/certificate/certificate_manager.go`), so the node managers of all controllers may be down for three days before the first one
/// expires (P7). A kubelet whose certificate has expired starts again by itself, once a node manager works (`judge::judge_client`).
/// OpenShift's is the same (cluster-kube-controller-manager-operator, `bindata/assets/config/defaultconfig.yaml`).
const KUBELET_CERTIFICATES: &str = "720h";

pub(super) fn pod<'c>(config: &'c ControllerConfig, facts: &Facts) -> StaticPod<'c> {
    let plane = &config.control_plane;
    let pki = |name| Program::ControllerManager.file(name);
    let mut flags = Flags::of_leader_elected(Program::ControllerManager);
    flags
        .set("cluster-name", &config.base.cluster)
        // The pod network sets routes, and the cloud provider's own controllers watch instances.
        .set("allocate-node-cidrs", true)
        .set("cluster-cidr", &config.pod_network.pod_cidr)
        .set("service-cluster-ip-range", &plane.service_cidr)
        .set("use-service-account-credentials", true)
        .set("service-account-private-key-file", pki("service-account-key.pem"));
    flags.set("cluster-signing-duration", KUBELET_CERTIFICATES);
    // kubelet-ca signs only kubelets, as clients and as servers. Signers without an authority sign nothing.
    for signer in ["kubelet-client", "kubelet-serving"] {
        flags
            .set(&format!("cluster-signing-{signer}-cert-file"), pki("kubelet-ca.pem"))
            .set(&format!("cluster-signing-{signer}-key-file"), pki("kubelet-ca-key.pem"));
    }
    // Pods verify the API server by it. Not every library accepts an intermediate as a trust anchor.
    flags.set("root-ca-file", pki(if facts.root_ca { "root-ca.pem" } else { "ca.pem" }));
    flags.set_gates(&config.feature_gates).set_users(&plane.controller_manager.flags);
    StaticPod {
        program: Program::ControllerManager,
        flags,
        probes: Probes { port: CONTROLLER_MANAGER_PORT, live: "/healthz", ready: None },
        cpu: "200m",
        volumes: Vec::new(),
        component: &plane.controller_manager,
    }
}
