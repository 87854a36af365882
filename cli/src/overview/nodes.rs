//! The nodes behind the reports: which of them still exist, their health, and how they differ from what is planned.
//!
//! EC2 is not queried. A machine that reported recently exists; of the machines of one etcd member only the last one that reported does;
//! and a group has at most as many as its maximum size.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use slipway_core::node::report::{CertificateOnNode, Served, UnreadyWorker};
use slipway_core::node::space::EtcdSpace;
use slipway_core::node::{BootstrapFailure, BootstrapReport, BootstrapState, NodeManagerStatus, NodeStatus};
use slipway_core::release::{NodeRole, Rendering};
use slipway_core::role::Role;
use slipway_credentials::policy::{ETCD_DIR, KUBERNETES_DIR};

use super::reports::{Report, ReportContent};
use super::words::plain;

/// Members and controllers report hourly. One that missed two reports is silent.
pub(super) const SILENT_AFTER: SignedDuration = SignedDuration::from_mins(150);
/// A bootstrap reports each step, and retries a failed step within minutes.
pub(super) const STUCK_AFTER: SignedDuration = SignedDuration::from_mins(30);

/// A machine that has reported.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Node {
    pub(crate) role: String,
    pub(crate) instance: String,
    pub(crate) standing: NodeState,
    /// When its last report arrived.
    pub(crate) heard: Timestamp,
    /// The report about its bootstrap.
    pub(crate) bootstrap: Option<Boot>,
    /// The report about what it serves.
    pub(crate) status: Option<Serves>,
    /// The part of the planned release that the node does not have yet. `None`: nothing, or it is not known.
    pub(crate) outdated: Option<OutdatedPart>,
}

impl Node {
    /// Its state in words, which change only when the state does. `None`: it no longer exists.
    pub(crate) fn words(&self) -> Option<String> {
        let boot = self.bootstrap.as_ref();
        let step = boot.and_then(|boot| boot.step.as_deref()).map(plain).unwrap_or_default();
        let failure = boot.and_then(|boot| boot.failure.as_ref());
        let why = failure.map(|failure| format!(": {}", plain(&failure.message))).unwrap_or_default();
        let unwell = self.status.as_ref().is_some_and(|status| !status.healthy);
        Some(match self.standing {
            NodeState::Earlier => return None,
            NodeState::GivenUp => format!("gave up at {step}{why}"),
            NodeState::Working => format!("at {step}{why}"),
            NodeState::Silent => "silent".to_owned(),
            NodeState::Up if unwell => "not healthy".to_owned(),
            NodeState::Up => "up".to_owned(),
        })
    }
}

/// Whether a machine exists, and its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum NodeState {
    /// It gave up, and was or will be terminated.
    GivenUp,
    /// It should have reported by now and has not.
    Silent,
    /// Its bootstrap is in progress.
    Working,
    /// It is running.
    Up,
    /// It no longer exists: another machine has its place, or it gave up before another one started.
    Earlier,
}

/// How a machine differs from its launch template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum OutdatedPart {
    /// It has another configuration and must be replaced.
    Configuration,
    /// It only has other credentials and can be refreshed.
    Credentials,
}

/// From a bootstrap report.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Boot {
    pub(crate) state: BootstrapState,
    pub(crate) step: Option<String>,
    pub(crate) failure: Option<BootstrapFailure>,
    pub(crate) agent: String,
    pub(crate) at: Timestamp,
    pub(crate) heard: Timestamp,
    config: String,
    credentials: String,
}

/// From a node's status.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Serves {
    pub(crate) healthy: bool,
    /// Whether its Node is ready, according to the API. `None`: it has none, or does not say.
    pub(crate) ready: Option<bool>,
    /// Whether it has what it was told to have.
    pub(crate) matches_node_file: bool,
    /// Its problems, in words.
    pub(crate) problems: Vec<String>,
    /// The workers that it has seen not to be Ready for too long, of a controller.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unready: Vec<UnreadyWorker>,
    /// Whether its node manager works, of a controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node_manager: Option<NodeManagerStatus>,
    /// The room of its database, of a member of etcd that answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) etcd_space: Option<EtcdSpace>,
    pub(crate) served: Vec<Served>,
    held: Vec<CertificateOnNode>,
    pub(crate) at: Timestamp,
    pub(crate) heard: Timestamp,
    config: Option<String>,
    credentials: Option<String>,
}

/// A certificate that others verify: a server's or a client's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InUse<'a> {
    /// The component that presents it, or its path.
    pub(super) place: &'a str,
    /// Whether it is a server's certificate.
    pub(super) served: bool,
    pub(super) fingerprint: &'a str,
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
    /// Whether it is in the store. A kubelet's own certificates are not.
    pub(super) stored: bool,
}

/// When a report was written: by the bucket's clock, which has whole seconds, and within a second by the machine's.
type Moment = (Timestamp, Timestamp);

impl Boot {
    fn moment(&self) -> Moment {
        (self.heard, self.at)
    }
}

impl Serves {
    fn moment(&self) -> Moment {
        (self.heard, self.at)
    }

    /// The certificates that others verify.
    pub(super) fn in_use(&self) -> impl Iterator<Item = InUse<'_>> {
        let served = self.served.iter().filter(|served| served.verifiable).filter_map(|served| {
            let certificate = served.certificate.as_ref()?;
            let stored = served.name != "kubelet";
            Some(InUse {
                place: &served.name,
                served: true,
                fingerprint: &certificate.fingerprint,
                not_before: certificate.not_before,
                not_after: certificate.not_after,
                stored,
            })
        });
        let held = self.held.iter().map(|held| InUse {
            place: &held.path,
            served: false,
            fingerprint: &held.fingerprint,
            not_before: held.not_before,
            not_after: held.not_after,
            stored: [KUBERNETES_DIR, ETCD_DIR].iter().any(|folder| held.path.starts_with(folder)),
        });
        served.chain(held)
    }

    /// The certificate that expires first. A kubelet's live for a month and are renewed by themselves, so they are named only where there are no
    /// others.
    pub(super) fn nearest(&self) -> Option<InUse<'_>> {
        self.in_use().min_by_key(|one| (!one.stored, one.not_after))
    }
}

impl From<(&BootstrapReport, Timestamp)> for Boot {
    fn from((report, heard): (&BootstrapReport, Timestamp)) -> Self {
        Self {
            state: report.state,
            step: report.step.clone(),
            failure: report.failure.clone(),
            agent: report.agent.clone(),
            at: report.at,
            heard,
            config: report.config.clone(),
            credentials: report.credentials.clone(),
        }
    }
}

impl From<(&NodeStatus, Timestamp)> for Serves {
    fn from((status, heard): (&NodeStatus, Timestamp)) -> Self {
        Self {
            healthy: status.healthy,
            matches_node_file: status.applied.matches_node_file,
            problems: problems(status),
            unready: status.unready.clone(),
            node_manager: status.node_manager.clone(),
            etcd_space: status.etcd.as_ref().and_then(EtcdSpace::from_health),
            ready: status.node.as_ref().map(|node| node.ready),
            served: status.served.clone(),
            held: status.held.clone(),
            at: status.at,
            heard,
            config: status.applied.config.clone(),
            credentials: status.applied.credentials.clone(),
        }
    }
}

fn problems(status: &NodeStatus) -> Vec<String> {
    let mut problems = Vec::new();
    for component in status.components.iter().filter(|component| !component.healthy) {
        let why = component.problem.as_deref().unwrap_or("is not healthy");
        problems.push(format!("{}: {why}", component.name));
    }
    let served = status.served.iter().filter(|served| served.verifiable);
    for (served, why) in served.filter_map(|served| Some((served, served.problem.as_deref()?))) {
        problems.push(format!("{} on {}: {why}", served.name, served.address));
    }
    problems.extend(status.etcd.iter().flat_map(|etcd| &etcd.problems).map(|why| format!("etcd: {why}")));
    problems
}

/// The machines, those that need attention first.
pub(super) fn nodes(reports: &[Report], release: Option<&Rendering>, now: Timestamp) -> Vec<Node> {
    let mut roles: BTreeMap<&str, BTreeMap<&str, Node>> = BTreeMap::new();
    for report in reports {
        let machines = roles.entry(&report.role).or_default();
        let node = machines.entry(&report.instance).or_insert_with(|| Node {
            role: report.role.clone(),
            instance: report.instance.clone(),
            standing: NodeState::Up,
            heard: report.received_at,
            bootstrap: None,
            status: None,
            outdated: None,
        });
        node.heard = node.heard.max(report.received_at);
        match &report.content {
            ReportContent::Boot(boot) => node.bootstrap = Some((&**boot, report.received_at).into()),
            ReportContent::Serves(status) => node.status = Some((&**status, report.received_at).into()),
            ReportContent::Not(_) => {}
        }
    }
    let mut nodes = Vec::new();
    for (role, machines) in roles {
        let known = role.parse::<Role>().ok();
        let planned = known.and_then(|role| release.map(|release| release.roles.get(&role)));
        let mut machines: Vec<Node> = machines.into_values().collect();
        set_states(&mut machines, planned.flatten(), planned.is_some_and(|planned| planned.is_none()), now);
        nodes.extend(machines);
    }
    nodes.sort_by(|one, other| {
        let key = |node: &Node| (node.standing == NodeState::Earlier, node.role.clone(), Reverse(node.heard));
        key(one).cmp(&key(other)).then_with(|| one.instance.cmp(&other.instance))
    });
    nodes
}

/// When a machine last reported, by its own clock.
fn last_report_at(node: &Node) -> Option<Timestamp> {
    let (boot, status) =
        (node.bootstrap.as_ref().map(|boot| boot.at), node.status.as_ref().map(|status| status.at));
    boot.max(status)
}

/// Sets the state of the machines of one role. `gone`: the release does not have the role any more.
fn set_states(machines: &mut [Node], planned: Option<&NodeRole>, gone: bool, now: Timestamp) {
    machines.sort_by_key(|node| Reverse((node.heard, last_report_at(node))));
    // A machine that came up later shows that the obstacle is gone.
    let up = |node: &Node| match &node.bootstrap {
        Some(boot) => boot.state == BootstrapState::Healthy,
        None => node.status.as_ref().is_some_and(|status| status.healthy),
    };
    let last_up = machines.iter().filter(|node| up(node)).filter_map(booted).max();
    let most = planned.map_or(usize::MAX, |planned| usize::try_from(planned.nodes.max).unwrap_or(usize::MAX));
    let mut places = 0;
    for node in machines {
        node.outdated = planned.and_then(|planned| outdated_part(node, planned));
        let young = now.duration_since(node.heard) <= SILENT_AFTER;
        let given_up = node.bootstrap.as_ref().filter(|boot| boot.state == BootstrapState::GivenUp);
        node.standing = match given_up {
            // Unless it was brought up by hand since.
            Some(boot) if node.status.as_ref().is_none_or(|status| status.moment() < boot.moment()) => {
                if last_up.is_some_and(|up| up > boot.moment()) {
                    NodeState::Earlier
                } else {
                    NodeState::GivenUp
                }
            }
            Some(_) | None if (gone && !young) || places >= most => NodeState::Earlier,
            Some(_) | None => {
                places += 1;
                standing(node, now)
            }
        };
    }
}

/// When a machine came up, or otherwise when it reported its status.
fn booted(node: &Node) -> Option<Moment> {
    let status = || node.status.as_ref().map(Serves::moment);
    node.bootstrap.as_ref().map(Boot::moment).or_else(status)
}

/// The state of a machine that may exist.
fn standing(node: &Node, now: Timestamp) -> NodeState {
    let silent = |after| now.duration_since(node.heard) > after;
    let working = node.bootstrap.as_ref().is_some_and(|boot| boot.state == BootstrapState::Working);
    // Workers report only their bootstrap.
    let reports = node.status.is_some();
    match working {
        true if silent(STUCK_AFTER) => NodeState::Silent,
        true => NodeState::Working,
        false if reports && silent(SILENT_AFTER) => NodeState::Silent,
        false => NodeState::Up,
    }
}

fn outdated_part(node: &Node, planned: &NodeRole) -> Option<OutdatedPart> {
    let status = node.status.as_ref().filter(|status| status.config.is_some());
    let boot = node.bootstrap.as_ref();
    let config = status.and_then(|status| status.config.as_ref()).or(boot.map(|boot| &boot.config))?;
    if *config != planned.config_digest {
        return Some(OutdatedPart::Configuration);
    }
    let credentials =
        status.and_then(|status| status.credentials.as_ref()).or(boot.map(|boot| &boot.credentials))?;
    (*credentials != planned.credentials_digest).then_some(OutdatedPart::Credentials)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use slipway_core::cluster::GroupSize;
    use slipway_core::node::report::NodeRegistration;

    use super::super::serving::{ServingState, serving};
    use super::*;

    fn now() -> Timestamp {
        "2026-11-22T12:00:00Z".parse().unwrap()
    }

    fn minutes_ago(minutes: i64) -> Timestamp {
        now() - SignedDuration::from_mins(minutes)
    }

    fn boot(role: &str, instance: &str, minutes: i64, state: &str) -> Report {
        let report = json!({
            "format": 1, "instance": instance, "role": role, "config": "c1", "credentials": "k1", "agent": "0.1",
            "state": state, "step": "disk", "at": minutes_ago(minutes),
            "failure": (state == "given-up").then(|| json!({"code": "x", "message": "no disk", "help": "attach one"})),
        });
        let report_content = ReportContent::Boot(serde_json::from_value(report).unwrap());
        Report {
            role: role.to_owned(),
            instance: instance.to_owned(),
            received_at: minutes_ago(minutes),
            content: report_content,
        }
    }

    fn status(role: &str, instance: &str, minutes: i64, credentials: &str) -> Report {
        let report = json!({
            "format": 1, "at": minutes_ago(minutes), "cluster": "c", "role": role, "healthy": true, "served": [],
            "components": [], "applied": {"config": "c1", "credentials": credentials, "matchesNodeFile": true},
        });
        let report_content = ReportContent::Serves(serde_json::from_value(report).unwrap());
        Report {
            role: role.to_owned(),
            instance: instance.to_owned(),
            received_at: minutes_ago(minutes),
            content: report_content,
        }
    }

    fn release(role: &str, max: u32) -> Rendering {
        let node = NodeRole {
            stack: "c-x".to_owned(),
            nodes: GroupSize { min: 1, max },
            machine: json!({}),
            config: String::new(),
            config_digest: "c1".to_owned(),
            credentials_digest: "k1".to_owned(),
            version: None,
            member: None,
            weighted: false,
        };
        let empty = json!({"format": 1, "cluster": "c", "stacks": [], "roles": {}, "addons": {"digest": "", "addons": []}});
        let mut release: Rendering = serde_json::from_value(empty).unwrap();
        release.roles.insert(role.parse().unwrap(), node);
        release
    }

    fn stand(reports: &[Report], release: &Rendering) -> Vec<(String, NodeState, Option<OutdatedPart>)> {
        let nodes = nodes(reports, Some(release), now()).into_iter();
        nodes.map(|node| (node.instance, node.standing, node.outdated)).collect()
    }

    fn node(instance: &str, standing: NodeState) -> (String, NodeState, Option<OutdatedPart>) {
        (instance.to_owned(), standing, None)
    }

    /// Judges a cluster of three members, two controllers and a pool of at least two.
    fn judge(reports: &[Report]) -> (ServingState, Vec<String>) {
        let mut wanted_release = release("controller", 2);
        let like = |min, stack: &str| {
            let node = wanted_release.roles.values().next().unwrap().clone();
            NodeRole { nodes: GroupSize { min, max: 5 }, stack: stack.to_owned(), ..node }
        };
        let (member, controller, pool) = (like(1, "c-etcd"), like(2, "c-cp"), like(2, "c-pool-a"));
        let one = GroupSize { min: 1, max: 1 };
        for index in 0..3 {
            wanted_release.roles.insert(Role::Etcd(index), NodeRole { nodes: one, ..member.clone() });
        }
        wanted_release.roles.insert(Role::Controller, controller);
        wanted_release.roles.insert(Role::Pool("a".to_owned()), pool);
        let nodes = nodes(reports, Some(&wanted_release), now());
        let stacks = ["c-etcd", "c-cp", "c-pool-a"].into();
        let serving = serving(Some(&wanted_release), &stacks, &nodes);
        (serving.state, serving.reasons)
    }

    #[test]
    fn p11_a_cluster_serves_only_if_its_machines_say_so() {
        let members =
            || (0..3).map(|index| status(&format!("etcd-{index}"), &format!("i-e{index}"), 30, "k1"));
        let controllers = || ["i-c0", "i-c1"].map(|id| status("controller", id, 30, "k1"));
        let workers = || ["i-w0", "i-w1"].map(|id| boot("pool-a", id, 900, "healthy"));
        let all = || -> Vec<Report> { members().chain(controllers()).chain(workers()).collect() };
        assert_eq!(judge(&all()), (ServingState::Serves, vec![]));
        let unwell = |role: &str, instance: &str| {
            let mut report = status(role, instance, 30, "k1");
            if let ReportContent::Serves(status) = &mut report.content {
                status.healthy = false;
            }
            report
        };
        let with = |others: &[(&str, &str)]| {
            let mut reports = all();
            for (role, instance) in others {
                reports.retain(|report| report.instance != *instance);
                reports.push(unwell(role, instance));
            }
            judge(&reports)
        };
        assert_eq!(
            with(&[("etcd-0", "i-e0")]),
            (ServingState::Degraded, vec!["etcd has its quorum, and 2 of 3 members are healthy".to_owned()])
        );
        assert_eq!(with(&[("etcd-0", "i-e0"), ("etcd-1", "i-e1")]).0, ServingState::Down);
        assert_eq!(with(&[("controller", "i-c0")]).0, ServingState::Degraded);
        assert_eq!(with(&[("controller", "i-c0"), ("controller", "i-c1")]).0, ServingState::Down);
        // Nobody is taken for well who has not reported.
        assert_eq!(judge(&[]).0, ServingState::Unknown);
        let fewer: Vec<Report> = all().into_iter().filter(|report| report.instance != "i-w1").collect();
        assert_eq!(
            judge(&fewer),
            (ServingState::Unknown, vec!["pool-a: 1 of 2 nodes well; 1 reported".to_owned()])
        );
        // A controller whose Node is not ready is not well, whatever its own components say.
        let mut reports = all();
        if let ReportContent::Serves(status) = &mut reports[3].content {
            let name = "i-c0".to_owned();
            status.node = Some(NodeRegistration { name, registered: true, ready: false, problem: None });
        }
        assert_eq!(judge(&reports).0, ServingState::Degraded);
        let serving = serving(None, &Default::default(), &[]);
        assert!(!serving.is_well() && serving.state == ServingState::NotDeployed);
    }

    #[test]
    fn a_members_place_has_the_machine_that_spoke_last() {
        let reports = [
            boot("etcd-0", "old", 900, "healthy"),
            status("etcd-0", "old", 180, "k1"),
            boot("etcd-0", "new", 20, "healthy"),
        ];
        let expected = vec![node("new", NodeState::Up), node("old", NodeState::Earlier)];
        assert_eq!(stand(&reports, &release("etcd-0", 1)), expected);
    }

    #[test]
    fn one_that_gave_up_counts_until_another_came_up_after_it() {
        let mut reports =
            vec![boot("controller", "bad", 30, "given-up"), boot("controller", "good", 40, "healthy")];
        let expected = vec![node("bad", NodeState::GivenUp), node("good", NodeState::Up)];
        assert_eq!(stand(&reports, &release("controller", 3)), expected);
        reports.push(boot("controller", "next", 10, "healthy"));
        let after = stand(&reports, &release("controller", 3));
        assert!(after.contains(&node("bad", NodeState::Earlier)), "{after:?}");
    }

    #[test]
    fn within_one_second_of_the_bucket_the_machines_clocks_tell_which_came_later() {
        let at = |mut report: Report, second: i8| {
            if let ReportContent::Boot(boot) = &mut report.content {
                boot.at += SignedDuration::from_millis(i64::from(second));
            }
            report
        };
        let bad = at(boot("etcd-0", "bad", 10, "given-up"), 1);
        let good = at(boot("etcd-0", "good", 10, "healthy"), 2);
        let expected = vec![node("good", NodeState::Up), node("bad", NodeState::Earlier)];
        assert_eq!(stand(&[bad.clone(), good.clone()], &release("etcd-0", 1)), expected);
        assert_eq!(stand(&[good, bad], &release("etcd-0", 1)), expected);
    }

    #[test]
    fn who_tells_hourly_and_stops_is_silent_and_a_worker_is_not() {
        let reports = [
            boot("controller", "a", 9_000, "healthy"),
            status("controller", "a", 151, "k1"),
            boot("controller", "b", 31, "working"),
            boot("controller", "c", 29, "working"),
            boot("controller", "d", 9_000, "healthy"),
        ];
        let after = stand(&reports, &release("controller", 9));
        for (instance, standing) in [
            ("a", NodeState::Silent),
            ("b", NodeState::Silent),
            ("c", NodeState::Working),
            ("d", NodeState::Up),
        ] {
            assert!(after.contains(&node(instance, standing)), "{instance}: {after:?}");
        }
    }

    #[test]
    fn a_group_has_no_more_machines_than_it_may_and_a_role_that_went_has_none() {
        let reports = [
            boot("pool-a", "1", 10, "healthy"),
            boot("pool-a", "2", 20, "healthy"),
            boot("pool-a", "3", 3_000, "healthy"),
        ];
        let after = stand(&reports, &release("pool-a", 2));
        assert_eq!(after[2], node("3", NodeState::Earlier));
        let after = stand(&reports, &release("pool-b", 2));
        let of: Vec<NodeState> = after.into_iter().map(|(_, standing, _)| standing).collect();
        assert_eq!(of, [NodeState::Up, NodeState::Up, NodeState::Earlier]);
    }

    #[test]
    fn what_a_node_applied_counts_for_more_than_what_it_came_up_with() {
        let reports = [boot("controller", "a", 500, "healthy"), status("controller", "a", 5, "k0")];
        let after = stand(&reports, &release("controller", 3));
        assert_eq!(after[0].2, Some(OutdatedPart::Credentials));
        let mut other = release("controller", 3);
        other.roles.values_mut().for_each(|node| node.config_digest = "c2".to_owned());
        assert_eq!(stand(&reports, &other)[0].2, Some(OutdatedPart::Configuration));
    }
}
