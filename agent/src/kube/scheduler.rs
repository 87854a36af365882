//! Flags of kube-scheduler.

use slipway_core::node::ControllerConfig;

use super::flags::Flags;
use super::static_pod::{Probes, StaticPod};
use crate::static_pods::Program;
use crate::status::listeners::SCHEDULER_PORT;

pub(super) fn pod(config: &ControllerConfig) -> StaticPod<'_> {
    let component = &config.control_plane.scheduler;
    let mut flags = Flags::of_leader_elected(Program::Scheduler);
    flags.set_gates(&config.feature_gates).set_users(&component.flags);
    StaticPod {
        program: Program::Scheduler,
        flags,
        probes: Probes { port: SCHEDULER_PORT, live: "/livez", ready: Some("/readyz") },
        cpu: "100m",
        volumes: Vec::new(),
        component,
    }
}
