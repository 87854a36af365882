//! kube-scheduler: its flags.

use slipway_core::node::ControllerConfig;

use super::flags::{Flags, Program};
use super::static_pod::{Probes, StaticPod};
use super::{FRONT_PROXY_CLIENT, pki};

pub(super) const PORT: u16 = 10259;
const KUBECONFIG: &str = "/etc/kubernetes/scheduler.kubeconfig";

/// The static pod.
pub(super) fn pod(config: &ControllerConfig) -> StaticPod<'_> {
    let component = &config.control_plane.scheduler;
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
        .set_gates(&config.feature_gates)
        .set_users(&component.flags);
    StaticPod {
        program: Program::Scheduler,
        flags,
        probes: Probes { port: PORT, live: "/livez", ready: Some("/readyz") },
        cpu: "100m",
        volumes: Vec::new(),
        component,
    }
}
