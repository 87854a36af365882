//! Whether the cluster serves, as far as its machines say: etcd has a quorum, the API answers, the wanted nodes are ready (P11).
//!
//! A controller's status includes whether its API server is ready. Workers report when they are ready for the first time, and not after
//! that.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use slipway_core::node::BootstrapState;
use slipway_core::release::Rendering;
use slipway_core::role::Role;
use slipway_core::words::count;

use super::nodes::{Node, NodeState};

/// Whether the cluster serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Serving {
    pub(crate) state: ServingState,
    /// Why it is not [`ServingState::Serves`], one line each.
    pub(crate) reasons: Vec<String>,
}

/// Whether the cluster serves; of several that apply, the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ServingState {
    /// It was destroyed, or is being destroyed: nothing is to serve.
    Gone,
    /// etcd has its quorum, the API answers, and all wanted nodes are ready.
    Serves,
    /// Machines that are wanted have not reported, so that nobody knows.
    Unknown,
    /// It serves, and wanted nodes are not ready.
    Degraded,
    /// etcd has no quorum, or no controller is healthy.
    Down,
    /// Nothing is deployed yet.
    NotDeployed,
}

impl Serving {
    pub(super) fn gone() -> Self {
        Self { state: ServingState::Gone, reasons: Vec::new() }
    }

    pub(crate) fn is_well(&self) -> bool {
        matches!(self.state, ServingState::Serves | ServingState::Gone)
    }

    /// In a word for a list.
    pub(crate) fn word(&self) -> &'static str {
        match self.state {
            ServingState::Gone => "gone",
            ServingState::Serves => "serves",
            ServingState::Unknown => "not known whether it serves",
            ServingState::Degraded => "serves in part",
            ServingState::Down => "down",
            ServingState::NotDeployed => "not deployed",
        }
    }

    /// In words for a page.
    pub(super) fn words(&self) -> &'static str {
        match self.state {
            ServingState::Gone => "no more",
            ServingState::Serves => "yes: etcd has its quorum, the API answers, all wanted nodes are ready",
            ServingState::Unknown => "not known",
            ServingState::Degraded => "in part",
            ServingState::Down => "no",
            ServingState::NotDeployed => "not yet",
        }
    }

    fn add(&mut self, state: ServingState, reason: String) {
        self.state = self.state.max(state);
        self.reasons.push(reason);
    }
}

/// How the machines of some roles are.
#[derive(Debug, Default, Clone, Copy)]
struct HealthCount {
    well: u32,
    unwell: u32,
}

/// Judges the reports of `nodes`. `stacks`: those that are deployed.
pub(super) fn serving(release: Option<&Rendering>, stacks: &BTreeSet<&str>, nodes: &[Node]) -> Serving {
    let mut serving = Serving { state: ServingState::Serves, reasons: Vec::new() };
    let Some(release) = release.filter(|_| !stacks.is_empty()) else {
        serving.add(ServingState::NotDeployed, "nothing is deployed yet".to_owned());
        return serving;
    };
    let health_of = |role: &Role| count_health(role, nodes);
    let mut members = (0, HealthCount::default());
    let mut groups: BTreeMap<&Role, (u32, HealthCount)> = BTreeMap::new();
    for (role, node) in &release.roles {
        if !stacks.contains(node.stack.as_str()) {
            serving.add(ServingState::Degraded, format!("{role}: its stack {} is not deployed", node.stack));
            continue;
        }
        let health = health_of(role);
        if role.member().is_some() {
            members.0 += 1;
            members.1.well += health.well.min(1);
            members.1.unwell += u32::from(health.well == 0 && health.unwell > 0);
            continue;
        }
        // One machine may be all the units of a group with weights.
        let wanted = if node.weighted { node.nodes.min.min(1) } else { node.nodes.min };
        groups.insert(role, (wanted, health));
    }
    let (wanted, of_members) = members;
    let quorum = wanted / 2 + 1;
    if wanted > 0 && of_members.well < quorum {
        let reporting = of_members.well + of_members.unwell;
        let state = if reporting < quorum { ServingState::Unknown } else { ServingState::Down };
        let why =
            format!("etcd: {} of {wanted} members are healthy, and {quorum} are a quorum", of_members.well);
        serving
            .add(state, if reporting < wanted { format!("{why}; {reporting} have reported") } else { why });
    } else if of_members.well < wanted {
        let why = format!("etcd has its quorum, and {} of {wanted} members are healthy", of_members.well);
        serving.add(ServingState::Degraded, why);
    }
    for (role, (wanted, health)) in groups {
        if health.well >= wanted {
            continue;
        }
        let reporting = health.well + health.unwell;
        let what = if *role == Role::Controller { "controller" } else { "node" };
        let mut why = format!("{role}: {} of {} well", health.well, count(wanted, what));
        let state = if reporting < wanted {
            why.push_str(&format!("; {reporting} reported"));
            ServingState::Unknown
        } else {
            ServingState::Degraded
        };
        let is_down = *role == Role::Controller && health.well == 0 && health.unwell > 0;
        serving.add(if is_down { ServingState::Down } else { state }, why);
    }
    serving
}

fn count_health(role: &Role, nodes: &[Node]) -> HealthCount {
    let name = role.to_string();
    let mut health = HealthCount::default();
    for node in nodes.iter().filter(|node| node.role == name && node.standing != NodeState::Earlier) {
        let healthy = match (&node.status, &node.bootstrap) {
            (Some(status), _) => status.healthy && status.ready != Some(false),
            (None, Some(boot)) => boot.state == BootstrapState::Healthy,
            (None, None) => false,
        };
        if healthy && node.standing == NodeState::Up {
            health.well += 1;
        } else {
            health.unwell += 1;
        }
    }
    health
}
