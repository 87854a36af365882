//! What needs attention, and what to do.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use slipway_core::node::report::{RepairState, UnreadyWorker};
use slipway_core::node::{BootstrapState, Word, manager};
use slipway_core::status::{RolloutState, SpecResult, SpecStatus};
use slipway_core::words::moment;
use slipway_credentials::Manifest;
use slipway_credentials::renewal::State;
use slipway_rollout::{Departure, Ignored};

use super::RolloutView;
use super::certificates::{Expiry, fate};
use super::nodes::{InUse, Node, NodeState, Serves};
use super::reports::Unreadable;
use super::words::{ago, days_left, plain, remaining};

/// Something that needs attention.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) gravity: Gravity,
    /// The subject: `spec`, `rollout`, a node's instance, a certificate's name, an object's key.
    pub(crate) about: String,
    pub(crate) message: String,
    /// What to do.
    pub(crate) help: String,
}

/// How severe it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Gravity {
    /// Something is wrong.
    Wrong,
    /// Nothing is wrong yet, or a person is waited for.
    Notice,
}

/// With a renewal seven days before the end, as `slipway init` sets it, a certificate should have been renewed by then.
const LATE_DAYS: i64 = 6;
/// The first threshold of `Certificate Expiring`.
const SOON_DAYS: i64 = 30;
/// An authority is rotated in stages, over weeks.
const AUTHORITY_DAYS: i64 = 365;
/// How long an ignored order is shown.
const TOLD_FOR_DAYS: i64 = 7;
/// How many nodes with the same problem are named individually.
const MOST_NODES: usize = 20;

pub(super) fn finding(gravity: Gravity, about: &str, message: String, help: impl Into<String>) -> Finding {
    Finding { gravity, about: about.to_owned(), message, help: help.into() }
}

pub(super) fn unreadable(report: &Unreadable) -> Finding {
    finding(
        Gravity::Notice,
        &report.key,
        format!("{} cannot be read: {}", report.key, plain(&report.why)),
        "the machine overwrites it with its next report; delete it if that machine is gone",
    )
}

pub(super) fn of_spec(cluster: &str, spec: Option<&SpecStatus>) -> Option<Finding> {
    let Some(spec) = spec else {
        let message = "no spec was processed yet".to_owned();
        let help = format!("slipway apply cluster.yaml --cluster {cluster}");
        return Some(finding(Gravity::Notice, "spec", message, help));
    };
    match spec.result {
        SpecResult::Accepted => None,
        SpecResult::Rejected => Some(finding(
            Gravity::Wrong,
            "spec",
            format!(
                "the newest spec was refused: {} found; what runs stays as it was",
                spec.diagnostics.len()
            ),
            format!("correct it, then: slipway apply cluster.yaml --cluster {cluster}"),
        )),
        SpecResult::Failed => Some(finding(
            Gravity::Wrong,
            "spec",
            format!(
                "the newest spec could not be rendered: {}",
                spec.failure.as_deref().unwrap_or("no reason was given")
            ),
            format!("once that is resolved, upload it again: slipway apply cluster.yaml --cluster {cluster}"),
        )),
    }
}

pub(super) fn of_rollout(cluster: &str, rollout: &RolloutView) -> Option<Finding> {
    let plan = rollout.plan.as_deref().unwrap_or_default();
    if rollout.waits.is_some() {
        let help = format!("slipway approve --cluster {cluster}");
        return Some(finding(Gravity::Notice, "rollout", rollout.message.clone(), help));
    }
    match rollout.state {
        RolloutState::Failed if rollout.plan.is_none() => Some(finding(
            Gravity::Wrong,
            "rollout",
            rollout.message.clone(),
            format!("once that is resolved: slipway destroy --cluster {cluster}"),
        )),
        RolloutState::Failed => Some(finding(
            Gravity::Wrong,
            "rollout",
            format!("the rollout of plan {plan} failed: {}", rollout.message),
            format!("once that is resolved, begin it again: slipway apply cluster.yaml --cluster {cluster}"),
        )),
        RolloutState::Stuck => Some(finding(
            Gravity::Wrong,
            "rollout",
            format!("the rollout {}", rollout.message),
            "resolve what it names; the rollout then continues at its next wake",
        )),
        RolloutState::Paused => Some(finding(
            Gravity::Notice,
            "rollout",
            format!("the rollout is paused: {}", rollout.message),
            format!("slipway resume --cluster {cluster}"),
        )),
        RolloutState::Aborted if rollout.plan.is_none() => Some(finding(
            Gravity::Notice,
            "rollout",
            rollout.message.clone(),
            format!("to bring back what is missing: slipway apply cluster.yaml --cluster {cluster}"),
        )),
        RolloutState::Aborted => Some(finding(
            Gravity::Notice,
            "rollout",
            format!("the rollout of plan {plan} was aborted: {}", rollout.message),
            format!(
                "to begin it again, upload the spec again: slipway apply cluster.yaml --cluster {cluster}"
            ),
        )),
        RolloutState::Idle
        | RolloutState::AboutToBegin
        | RolloutState::WaitingForApproval
        | RolloutState::Running
        | RolloutState::Aborting
        | RolloutState::Succeeded
        | RolloutState::Superseded
        | RolloutState::Destroying
        | RolloutState::Destroyed => None,
    }
}

/// How long a pause is taken for one that somebody remembers.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(24 * 7);

/// A pause holds whatever comes next, also where nothing is rolled out at present: the next plan and the next renewal.
pub(super) fn of_pause(
    cluster: &str,
    rollout: &RolloutView,
    certificates: &[Expiry],
    now: Timestamp,
) -> Option<Finding> {
    let since = rollout.paused_since?;
    let first = certificates.iter().filter(|one| !one.authority).min_by_key(|one| one.not_after);
    let soon = first.filter(|one| one.days_left < SOON_DAYS);
    let forgotten = now.duration_since(since) >= REMEMBERED;
    let held = match soon {
        Some(one) => {
            format!(", and no renewed certificate reaches a node; {} ends in {} d", one.name, one.days_left)
        }
        None => ": no plan and no renewal begins".to_owned(),
    };
    let gravity = if soon.is_some() || forgotten { Gravity::Wrong } else { Gravity::Notice };
    // An open rollout that is paused has a finding of its own, which says the same.
    if rollout.state == RolloutState::Paused && gravity == Gravity::Notice {
        return None;
    }
    let message = format!("everything is paused since {}{held}", moment(since));
    Some(finding(gravity, "rollout", message, format!("slipway resume --cluster {cluster}")))
}

/// An order that was ignored because it came too late. It is shown for some days, until the sender has read it.
pub(super) fn of_order(ignored: &Ignored, now: Timestamp) -> Option<Finding> {
    let fresh = now.duration_since(ignored.at) < SignedDuration::from_hours(24 * TOLD_FOR_DAYS);
    fresh.then(|| finding(Gravity::Notice, "rollout", ignored.message.clone(), ignored.help.clone()))
}

/// Nodes that gave up, hang, or are unhealthy.
pub(super) fn of_nodes(nodes: &[Node], now: Timestamp) -> Vec<Finding> {
    let mut findings = Vec::new();
    for node in nodes {
        let about = format!("{} ({})", plain(&node.instance), plain(&node.role));
        let boot = node.bootstrap.as_ref();
        let step = boot.and_then(|boot| boot.step.as_deref()).map(plain).unwrap_or_default();
        let failure = boot.and_then(|boot| boot.failure.as_ref());
        let why = failure.map(|failure| plain(&failure.message)).unwrap_or_default();
        let help = failure.map(|failure| plain(&failure.help));
        let heard = ago(node.heard, now);
        let wrong = |message: String, help: Option<String>, otherwise: &str| {
            finding(Gravity::Wrong, &node.instance, message, help.unwrap_or_else(|| otherwise.to_owned()))
        };
        let console = "see its console output, or /var/log/cloud-init-output.log on it";
        match node.standing {
            NodeState::GivenUp => {
                findings.push(wrong(format!("{about} gave up at {step} {heard}: {why}"), help, console))
            }
            NodeState::Silent if boot.is_some_and(|boot| boot.state == BootstrapState::Working) => findings
                .push(wrong(
                    format!("{about} has been at {step} and said nothing since {heard}: {why}"),
                    help,
                    console,
                )),
            NodeState::Silent => findings.push(finding(
                Gravity::Notice,
                &node.instance,
                format!("{about} last reported {heard} what it serves, and a newer report is overdue"),
                "if the machine is gone, ignore this; otherwise check slipway-node's units on it",
            )),
            NodeState::Working if failure.is_some() => findings.push(finding(
                Gravity::Notice,
                &node.instance,
                format!("{about} is at {step} and tries again: {why}"),
                help.unwrap_or_default(),
            )),
            NodeState::Up => findings.extend(ailing(node, &about)),
            NodeState::Working | NodeState::Earlier => {}
        }
    }
    fewer(findings)
}

/// The problem that a running node reports.
fn ailing(node: &Node, about: &str) -> Option<Finding> {
    let status = node.status.as_ref()?;
    let help = "run `/var/lib/slipway/slipway-node status` on it; what it reported is in --output json";
    if !status.healthy {
        let problems: Vec<String> = status.problems.iter().map(|problem| plain(problem)).collect();
        let why = if problems.is_empty() { "it does not say why".to_owned() } else { problems.join("; ") };
        return Some(finding(Gravity::Wrong, &node.instance, format!("{about} is not healthy: {why}"), help));
    }
    let message = format!(
        "{about} does not run the configuration or credentials that its node.json names: a bootstrap or refresh is in progress or has failed"
    );
    (!status.matches_node_file).then(|| finding(Gravity::Notice, &node.instance, message, help))
}

/// Workers that are not Ready, as controllers have seen it. Of several reports about one, the newest counts. `departures`: the machines that
/// are drained, by id.
pub(super) fn of_workers(
    nodes: &[Node],
    departures: &BTreeMap<String, Departure>,
    now: Timestamp,
) -> Vec<Finding> {
    let mut workers: BTreeMap<&str, (Timestamp, &UnreadyWorker)> = BTreeMap::new();
    for controller in nodes.iter().filter(|node| node.standing == NodeState::Up) {
        for (at, one) in
            controller.status.iter().flat_map(|status| status.unready.iter().map(|one| (status.at, one)))
        {
            let known = workers.entry(&one.node).or_insert((at, one));
            if known.0 < at {
                *known = (at, one);
            }
        }
    }
    let findings = workers.into_values().map(|(_, one)| {
        let node = plain(&one.node);
        let message = format!("{node} of the pool {} is not Ready, first seen {}", plain(&one.pool), ago(one.since, now));
        match &one.repair {
            Word::Known(RepairState::Begun) => finding(
                Gravity::Notice,
                &one.node,
                format!("{message}; Auto Scaling was told to replace it"),
                "nothing: it is drained as far as it can be, and its group launches another machine",
            ),
            Word::Known(RepairState::Waits) => {
                let why = one.why.as_deref().map(plain).unwrap_or_default();
                // The controllers do not know what a drain waits for.
                let departs = departures.get(&one.node).map(|departure| departure.in_words(&one.node));
                let departs = departs.map(|words| format!("; Slipway {}", plain(&words))).unwrap_or_default();
                let help = format!("kubectl describe node {node}");
                let message = format!("{message}, and not replaced yet: {why}{departs}");
                finding(Gravity::Wrong, &one.node, message, help)
            }
            Word::Known(RepairState::Told) | Word::Other(_) => {
                let help = format!(
                    "kubectl describe node {node}; to have it drained and replaced now: aws autoscaling set-instance-health --instance-id {node} \
                     --health-status Unhealthy; to have such workers of the pool replaced from now on, write `repair: {{mode: on}}`"
                );
                finding(Gravity::Wrong, &one.node, message, help)
            }
        }
    });
    fewer(findings.collect())
}

/// That no controller's node manager passes. Of a controller that is silent nothing is known.
pub(super) fn of_node_managers(cluster: &str, nodes: &[Node]) -> Option<Finding> {
    let controllers = nodes.iter().filter(|node| node.role == "controller" && node.standing == NodeState::Up);
    let reports: Vec<(&str, Option<String>)> = controllers
        .filter_map(|node| {
            let status = node.status.as_ref()?;
            Some((&*node.instance, status.node_manager.as_ref().and_then(|manager| manager.late(status.at))))
        })
        .collect();
    let message = manager::problem(reports.iter().map(|(node, late)| (*node, late.as_deref())))?;
    let (first, _) = reports.first()?;
    Some(finding(Gravity::Wrong, first, plain(&message), plain(&manager::help(cluster, first))))
}

/// Certificates in use on nodes that expire soon, because they were not renewed, or renewed and not yet delivered.
pub(super) fn of_use(
    cluster: &str,
    nodes: &[Node],
    manifest: Option<&Manifest>,
    now: Timestamp,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for node in nodes.iter().filter(|node| matches!(node.standing, NodeState::Up | NodeState::Silent)) {
        for one in node.status.iter().flat_map(Serves::in_use) {
            let days = days_left(one.not_after, now);
            let left_s = one.not_after.as_second() - now.as_second();
            if left_s >= soon_s(&one) || (node.standing == NodeState::Silent && days < -1) {
                continue;
            }
            let (why, help) = remedy(cluster, &one, manifest);
            let does = if one.served { "serves a certificate on" } else { "calls with the certificate" };
            let message = format!(
                "{} ({}) {does} {} with {}; {why}",
                plain(&node.instance),
                plain(&node.role),
                plain(one.place),
                remaining(one.not_after, now)
            );
            let gravity = if days <= LATE_DAYS { Gravity::Wrong } else { Gravity::Notice };
            findings.push(finding(gravity, &node.instance, message, help));
        }
    }
    fewer(findings)
}

/// From how many seconds before its end on a certificate is named: a stored one from the first threshold on, a kubelet's when a twelfth of its
/// life is left. Kubelets renew it when a tenth or more is left.
fn soon_s(one: &InUse<'_>) -> i64 {
    const DAY_S: i64 = 86_400;
    let life_s = one.not_after.as_second() - one.not_before.as_second();
    if one.stored { SOON_DAYS * DAY_S } else { (life_s / 12).min(LATE_DAYS * DAY_S) }
}

/// Why a certificate in use was not replaced, and what helps.
fn remedy(cluster: &str, one: &InUse<'_>, manifest: Option<&Manifest>) -> (&'static str, String) {
    let is_it =
        |manifest: &Manifest| manifest.assets.values().any(|entry| entry.fingerprint == one.fingerprint);
    match (one.stored, manifest.map(is_it)) {
        (false, _) => (
            "its kubelet has not asked for another, or no controller's node manager approved it",
            "see the kubelet's log there, kubectl get csr, and /var/lib/slipway/slipway-node serves on each controller"
                .to_owned(),
        ),
        (true, Some(false)) => (
            "the store has a newer one, which is not in use here yet",
            format!(
                "slipway watch --cluster {cluster} shows the rollout that brings it; without one, apply the spec again"
            ),
        ),
        (true, Some(true) | None) => ("the store has no newer one", renew("NAME", cluster)),
    }
}

/// The command that renews a certificate and starts the rollout that delivers it.
fn renew(name: &str, cluster: &str) -> String {
    format!("slipway renew {name} --cluster {cluster} --watch")
}

pub(super) fn of_certificates(
    cluster: &str,
    certificates: &[Expiry],
    manifest: Option<&Manifest>,
    scan: Option<&State>,
    now: Timestamp,
) -> Vec<Finding> {
    let is = |test: &dyn Fn(&Expiry) -> bool| -> Vec<&Expiry> {
        certificates.iter().filter(|one| test(one)).collect()
    };
    let names = |expiries: &[&Expiry]| {
        let names: Vec<&str> = expiries.iter().map(|one| one.name.as_str()).collect();
        names.join(", ")
    };
    let mut findings = Vec::new();
    let expired = is(&|one| one.days_left < 0);
    if !expired.is_empty() {
        let message = format!("expired: {}", names(&expired));
        let help = format!(
            "slipway renew --cluster {cluster} --watch; if the API does not answer any more: slipway renew --recover --cluster {cluster}"
        );
        findings.push(finding(Gravity::Wrong, "certificates", message, help));
    }
    for one in is(&|one| !one.authority && (0..SOON_DAYS).contains(&one.days_left)) {
        let gravity = if one.days_left <= LATE_DAYS { Gravity::Wrong } else { Gravity::Notice };
        let message = format!("{} ends in {} d ({})", one.name, one.days_left, one.not_after);
        let help = fate(cluster, &one.name, manifest, scan, now).unwrap_or_else(|help| help);
        findings.push(finding(gravity, &one.name, message, help));
    }
    for one in is(&|one| one.authority && (0..AUTHORITY_DAYS).contains(&one.days_left)) {
        let gravity = if one.days_left < SOON_DAYS { Gravity::Wrong } else { Gravity::Notice };
        let message = format!(
            "the authority {} ends in {} d ({}), and nothing that it signs lives longer",
            one.name, one.days_left, one.not_after
        );
        findings.push(finding(
            gravity,
            &one.name,
            message,
            format!("rotate it, in stages: slipway rotate-ca {} --cluster {cluster}", one.name),
        ));
    }
    findings
}

/// Summarizes many nodes with the same problem in one finding with a count.
fn fewer(findings: Vec<Finding>) -> Vec<Finding> {
    let mut counts: BTreeMap<Gravity, usize> = BTreeMap::new();
    let mut kept = Vec::new();
    let mut more: BTreeMap<Gravity, usize> = BTreeMap::new();
    for finding in findings {
        let count = counts.entry(finding.gravity).or_default();
        *count += 1;
        if *count <= MOST_NODES {
            kept.push(finding);
        } else {
            *more.entry(finding.gravity).or_default() += 1;
        }
    }
    kept.extend(more.into_iter().map(|(gravity, count)| {
        finding(
            gravity,
            "nodes",
            format!("and {count} more nodes"),
            "--output json has all of them, under nodes",
        )
    }));
    kept
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;
    use slipway_core::node::NodeStatus;

    use super::*;

    #[test]
    fn a_worker_that_is_not_ready_is_named_with_what_is_done_or_what_to_do() {
        let now: Timestamp = "2026-11-22T12:00:00Z".parse().unwrap();
        let at = |minutes: i64| now - SignedDuration::from_mins(minutes);
        let controller = |id: &str, minutes: i64, standing, workers: &[serde_json::Value]| {
            let status: NodeStatus = serde_json::from_value(json!({
                "format": 1, "at": at(minutes), "cluster": "c", "role": "controller", "healthy": true, "served": [], "components": [],
                "applied": {"config": "c1", "credentials": "k1", "matchesNodeFile": true}, "unready": workers,
            }))
            .unwrap();
            let status = Some(Serves::from((&status, at(minutes))));
            let (role, instance) = ("controller".to_owned(), id.to_owned());
            Node { role, instance, standing, heard: at(minutes), bootstrap: None, status, outdated: None }
        };
        let worker = |node: &str, repair: &str| json!({"node": node, "pool": "general", "since": at(40), "repair": repair, "why": "too many"});
        let nodes = [
            controller("i-1", 9, NodeState::Up, &[worker("i-a", "told"), worker("i-b", "waits")]),
            controller(
                "i-2",
                3,
                NodeState::Up,
                &[worker("i-b", "begun"), worker("i-c", "waits"), worker("i-d", "newer")],
            ),
            controller("i-3", 1, NodeState::Silent, &[worker("i-e", "told")]),
        ];
        let drains: BTreeMap<String, Departure> = serde_json::from_value(json!({"i-c": {
            "role": "pool-general", "group": "c-pool-general", "cause": "autoScaling", "since": at(400),
            "state": {"drain": {"drain": {"held": {"pods": [{"pod": "default/web-0", "cause": "terminating", "why": "it should have been gone"}]}}}},
        }}))
        .unwrap();
        let found = of_workers(&nodes, &drains, now);
        let short: Vec<_> = found.iter().map(|one| (one.about.as_str(), one.gravity)).collect();
        let wrong = Gravity::Wrong;
        assert_eq!(short, [("i-a", wrong), ("i-b", Gravity::Notice), ("i-c", wrong), ("i-d", wrong)]);
        assert!(found[0].help.contains("--instance-id i-a --health-status Unhealthy"), "{:?}", found[0]);
        assert!(found[0].message.contains("of the pool general is not Ready"), "{:?}", found[0]);
        assert!(found[1].message.ends_with("Auto Scaling was told to replace it"), "{:?}", found[1]);
        let drain = "Slipway drains i-c, which waits for default/web-0: it should have been gone";
        assert!(
            found[2].message.ends_with(&format!("not replaced yet: too many; {drain}")),
            "{:?}",
            found[2]
        );
    }

    #[test]
    fn p7_node_managers_are_a_finding_once_none_of_those_that_report_passes() {
        let at = |minutes: i64| Timestamp::from_second(1_800_000_000 - 60 * minutes).unwrap();
        let controller = |role: &str, id: &str, standing, passed_m: i64| {
            let failed = json!([{"part": "requests", "code": "manage.aws"}]);
            let status: NodeStatus = serde_json::from_value(json!({
                "format": 1, "at": at(50), "cluster": "c", "role": role, "healthy": true, "served": [], "components": [],
                "applied": {"matchesNodeFile": true}, "nodeManager": {"passed": at(passed_m), "started": at(9000), "failed": failed},
            }))
            .unwrap();
            let status = Some(Serves::from((&status, at(50))));
            let (role, instance) = (role.to_owned(), id.to_owned());
            Node { role, instance, standing, heard: at(50), bootstrap: None, status, outdated: None }
        };
        let fails = controller("controller", "i-1", NodeState::Up, 50 + 121);
        // A report is 50 minutes old: what happened since then is not known.
        let passes = controller("controller", "i-2", NodeState::Up, 50 + 119);
        let silent = controller("controller", "i-3", NodeState::Silent, 50);
        let worker = controller("pool-a", "i-4", NodeState::Up, 50);
        assert_eq!(of_node_managers("c", &[]), None);
        assert_eq!(of_node_managers("c", &[fails.clone(), passes]), None);
        let found = of_node_managers("c", &[fails, silent, worker]).unwrap();
        let begins =
            "no node manager completes its passes: i-1 since 2027-01-15T05:09:00Z (requests: manage.aws). ";
        assert!(found.gravity == Gravity::Wrong && found.message.starts_with(begins), "{found:?}");
        assert!(found.help.starts_with("slipway logs i-1 --cluster c --unit agent"), "{found:?}");
    }

    #[test]
    fn p7_a_kubelets_certificate_is_named_when_its_kubelet_should_have_renewed_it_and_not_before() {
        let now: Timestamp = "2026-11-22T12:00:00Z".parse().unwrap();
        let after = |hours: i64| now + SignedDuration::from_hours(hours);
        let named = |stored: bool, life_days: i64, left_h: i64| {
            let one = InUse {
                place: "kubelet",
                served: false,
                fingerprint: "f",
                not_before: after(left_h - 24 * life_days),
                not_after: after(left_h),
                stored,
            };
            left_h * 3600 < soon_s(&one)
        };
        // Of thirty days the kubelet renews it when three are left, at the latest.
        assert!(!named(false, 30, 72) && !named(false, 30, 61) && named(false, 30, 59));
        // Of a year, as controllers of an earlier release sign them.
        assert!(!named(false, 365, 145) && named(false, 365, 143));
        assert!(!named(true, 365, 721) && named(true, 365, 719));
    }

    #[test]
    fn p7_a_pause_is_a_finding_and_a_forgotten_one_or_one_that_holds_a_renewal_is_wrong() {
        let now: Timestamp = "2026-11-22T12:00:00Z".parse().unwrap();
        let at = |hours: i64| now + SignedDuration::from_hours(hours);
        let expiry = |days: i64| Expiry {
            name: "apiserver".to_owned(),
            serial: String::new(),
            authority: false,
            not_after: at(24 * days),
            days_left: days,
        };
        let judge = |hours: i64, state: RolloutState, days: i64| {
            let view = RolloutView { state, paused_since: Some(at(-hours)), ..RolloutView::default() };
            let found = of_pause("c", &view, &[expiry(days)], now);
            found.map(|found| (found.gravity, found.message.contains("apiserver ends in"), found.help))
        };
        let resume = || "slipway resume --cluster c".to_owned();
        assert_eq!(judge(1, RolloutState::Succeeded, 300), Some((Gravity::Notice, false, resume())));
        assert_eq!(judge(1, RolloutState::Paused, 300), None, "the rollout says it");
        assert_eq!(judge(24 * 8, RolloutState::Idle, 300), Some((Gravity::Wrong, false, resume())));
        assert_eq!(judge(1, RolloutState::Paused, 20), Some((Gravity::Wrong, true, resume())));
        assert_eq!(of_pause("c", &RolloutView::default(), &[expiry(1)], now), None);
    }
}
