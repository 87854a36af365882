//! Minor upgrades of Kubernetes or etcd: their order, and what is not begun.

use slipway_core::node::{CommandView, MachineArns, NodeStatus, SnapshotTaken, Verb};
use slipway_plan::Plan;

use super::*;
use crate::fleet::{GroupView, Lifecycle, MachineView, TargetHealth, TemplateVersion};

const CONTROLLERS: &str = "c-control-plane";

fn pool() -> Role {
    Role::Pool("a".to_owned())
}

/// A release with these versions, in which a configuration follows its version.
fn release_with(size: u32, kubernetes: &str, etcd: &str, pool_runs: &str) -> Rendering {
    let mut release = of_versions(size, kubernetes, etcd, 30);
    let Some(node) = release.roles.get_mut(&pool()) else { panic!("there is a pool") };
    node.version = Some(pool_runs.to_owned());
    for node in release.roles.values_mut() {
        node.config = format!("{{\"version\": {:?}}}", node.version);
        node.config_digest = sha256_hex(node.config.as_bytes());
    }
    release.addons.digest = format!("add-ons of {kubernetes}");
    release
}

/// A plan from `running`, with some nodes of `older`, to `asked`.
fn planned(
    running: &Rendering,
    older: &[(Role, &Rendering)],
    sent: &Rendering,
    policy: &RolloutPolicy,
) -> Plan {
    let mut baseline = Baseline::single_release(Some(running.clone()));
    for (role, release) in older {
        let of_role = baseline.earlier.entry(role.clone()).or_default();
        of_role.insert(release.id(), release.roles.get(role).cloned());
    }
    plan(&baseline, sent, policy)
}

#[test]
fn p5_one_minor_up_is_begun_and_nothing_else_between_minors() {
    let runs = release_with(1, "1.35.2", "3.6.16", "1.35.2");
    let words = |plan: &Plan| -> Vec<String> {
        plan.minors.iter().map(|change| format!("{} {}", change.role, change.words())).collect()
    };
    let auto = policy(Approval::Auto);
    let up = planned(&runs, &[], &release_with(2, "1.36.0", "3.7.3", "1.36.0"), &auto);
    assert_eq!(up.not_executable(), None);
    let etcd = |index: u32| format!("etcd-{index} etcd 3.6 → 3.7");
    let both = "Kubernetes 1.35 → 1.36";
    assert_eq!(
        words(&up),
        [etcd(0), etcd(1), etcd(2), format!("controller {both}"), format!("pool-a {both}")]
    );
    // A pool may lag, and catch up by more than one minor, because its machines are new ones.
    let lags = release_with(3, "1.36.0", "3.7.3", "1.34.1");
    assert_eq!(
        planned(&lags, &[], &release_with(4, "1.36.0", "3.7.3", "1.36.0"), &auto).not_executable(),
        None
    );

    for (sent, why) in [
        (
            release_with(2, "1.37.0", "3.6.16", "1.35.2"),
            "Kubernetes 1.35.2 runs, and 1.37 is asked for: a minor release cannot be skipped",
        ),
        (
            release_with(2, "1.34.9", "3.6.16", "1.34.9"),
            "Kubernetes 1.35.2 runs, and 1.34 is asked for: it cannot go back a minor release",
        ),
        (
            release_with(2, "1.35.2", "3.5.30", "1.35.2"),
            "etcd 3.6.16 runs, and 3.5 is asked for: it cannot go back a minor release",
        ),
        (
            release_with(2, "1.35.2", "3.6.16", "1.34.9"),
            "the kubelets of pool `a` run 1.35.2, and 1.34 is asked for: they cannot go back",
        ),
    ] {
        let refused = planned(&runs, &[], &sent, &auto).not_executable().unwrap_or_default();
        assert!(refused.contains(why), "{refused}");
    }

    // If no machine of a group may be missing and the number of machines per unit is unknown, its kubelets would stay on the old minor.
    let mut weighted = release_with(2, "1.36.0", "3.6.16", "1.36.0");
    if let Some(node) = weighted.roles.get_mut(&pool()) {
        node.weighted = true;
    }
    let none = RolloutPolicy {
        max_unavailable: CountOrPercent::Count(0),
        surge: CountOrPercent::Count(1),
        ..policy(Approval::Auto)
    };
    assert_eq!(planned(&runs, &[], &weighted, &auto).not_executable(), None);
    let refused = planned(&runs, &[], &weighted, &none).not_executable().unwrap_or_default();
    assert!(
        refused.contains("pool-a would change from Kubernetes 1.35 → 1.36, but its nodes cannot be replaced: none may be missing"),
        "{refused}"
    );
}

#[test]
fn p5_after_a_rollout_that_stopped_half_way_the_oldest_node_bounds_the_way() {
    let (older, runs) =
        (release_with(1, "1.34.2", "3.5.30", "1.34.2"), release_with(2, "1.35.2", "3.6.16", "1.35.2"));
    let auto = policy(Approval::Auto);
    let next = release_with(3, "1.36.0", "3.6.16", "1.35.2");
    assert_eq!(planned(&runs, &[], &next, &auto).not_executable(), None);
    let refused =
        planned(&runs, &[(Role::Controller, &older)], &next, &auto).not_executable().unwrap_or_default();
    assert!(
        refused.contains("Kubernetes 1.34.2 runs, and 1.36 is asked for: a minor release cannot be skipped"),
        "{refused}"
    );
    assert!(refused.contains("upload 1.35 first, then 1.36"), "{refused}");
    // The upgrade in progress may continue, and is known to be another minor.
    let again =
        planned(&runs, &[(Role::Controller, &older)], &release_with(3, "1.35.2", "3.6.16", "1.35.2"), &auto);
    assert_eq!(again.not_executable(), None);
    let minors: Vec<(Role, String)> =
        again.minors.iter().map(|one| (one.role.clone(), one.words())).collect();
    assert_eq!(minors, [(Role::Controller, "Kubernetes 1.34 → 1.35".to_owned())]);

    // A single old kubelet counts as much as all of them.
    let (old_pool, far) =
        (release_with(1, "1.35.2", "3.6.16", "1.33.1"), release_with(3, "1.37.0", "3.6.16", "1.36.0"));
    let near = release_with(2, "1.36.0", "3.6.16", "1.36.0");
    assert_eq!(planned(&near, &[], &far, &auto).not_executable(), None);
    let refused = planned(&near, &[(pool(), &old_pool)], &far, &auto).not_executable().unwrap_or_default();
    assert!(
        refused.contains("the kubelets of pool `a` run 1.33.1, and the API server is to be 1.37"),
        "{refused}"
    );
    // So does a single member of etcd.
    let newest = release_with(3, "1.35.2", "3.7.3", "1.35.2");
    let refused =
        planned(&runs, &[(Role::Etcd(1), &older)], &newest, &auto).not_executable().unwrap_or_default();
    assert!(
        refused.contains("etcd 3.5.30 runs, and 3.7 is asked for: a minor release cannot be skipped"),
        "{refused}"
    );
}

/// Wakes a rollout of controllers with these `machines`, whose group has this desired capacity; of the others, only a member of etcd has a
/// machine. Returns the effects and the report.
fn wakes(desired: u32, machines: &[(&str, Lifecycle, bool)], skip: Option<&str>) -> (Vec<String>, Report) {
    let (old, new) =
        (release_with(1, "1.35.2", "3.6.16", "1.35.2"), release_with(2, "1.36.0", "3.6.16", "1.36.0"));
    let mut fake = Fake::default();
    let (launched, _) =
        fake.run(Rollout::new("c"), &wanted(&old, &Baseline::default(), Approval::Auto), None, false);
    fake.log.clear();
    fake.change_sets.clear();
    let releases = BTreeMap::from([(old.id(), old.clone())]);
    let baseline = Baseline::assemble("c", &launched.deployed, &BTreeMap::new(), &releases);
    let baseline = baseline.and_then(|baseline| baseline.with_addons(launched.addons_release(), &releases));
    let wanted = wanted(&new, &baseline.unwrap(), Approval::Auto);
    let template =
        |current: bool| TemplateVersion { id: "lt".to_owned(), version: u8::from(current).to_string() };
    let machine = |(id, lifecycle, current): &(&str, Lifecycle, bool)| {
        let view = MachineView {
            zone: "a".to_owned(),
            lifecycle: *lifecycle,
            healthy: true,
            template: Some(template(*current)),
            target: TargetHealth::NoTargetGroup,
            weight: 1,
        };
        ((*id).to_owned(), view)
    };
    let group = GroupView {
        name: CONTROLLERS.to_owned(),
        desired,
        min: 1,
        max: 2,
        template: Some(template(true)),
        machines: machines.iter().map(machine).collect(),
        tags: BTreeMap::new(),
        target_groups: BTreeSet::new(),
        launch_suspended: false,
        machine_arns: MachineArns::new("eu-west-1", "123456789012"),
    };
    let (mut state, mut report) = (launched, Report::default());
    for minute in 0..20 {
        let now = Timestamp::from_second(60 * minute).unwrap();
        let order = skip.map(|id| Given { order: Order::Skip { instance: id.to_owned() }, at: now });
        if let Some(order) = order {
            state = fake.after_order_performed(state, &order, Some(&wanted), now);
        }
        let look = to_observe(&state, Some(&wanted), now);
        let mut observed = fake.observe(&look, Some(&wanted));
        observed.groups.insert(CONTROLLERS.to_owned(), Some(group.clone()));
        let member = BTreeMap::from([machine(&("i-etcd", Lifecycle::InService, true))]);
        let etcd = GroupView { name: "c-etcd-0".to_owned(), machines: member, ..group.clone() };
        observed.groups.insert(etcd.name.clone(), Some(etcd));
        for command in &look.commands {
            if command.verb == Verb::EtcdSnapshot {
                let taken = serde_json::json!({"time": "20261127T120000Z", "key": "k"});
                let taken = serde_json::from_value::<SnapshotTaken>(taken).unwrap();
                let view = CommandView::Answered(taken.into());
                observed.answers.insert(command.token.clone(), Some(view));
                continue;
            }
            let status = serde_json::from_value::<NodeStatus>(serde_json::json!({
                "format": 1, "at": "1970-01-01T00:00:00Z", "cluster": "c", "role": "controller", "healthy": true,
                "applied": {"matchesNodeFile": true}, "served": [], "held": [], "components": [{"name": "kube-apiserver", "healthy": true}],
            }));
            let view = CommandView::Answered(status.unwrap().into());
            observed.answers.insert(command.token.clone(), Some(view));
        }
        let decision = decide(&state, &observed, now);
        let mut effects = decision.effects;
        effects.retain(|effect| !matches!(effect, Effect::Send(_)));
        fake.perform(&effects);
        state = Rollout { outbox: Vec::new(), ..decision.next };
        report = decision.report;
        if state.active().is_none() {
            break;
        }
    }
    (fake.log, report)
}

#[test]
fn p5_no_pool_and_no_add_on_comes_before_the_last_api_server_of_the_older_minor_is_gone() {
    let follows =
        |log: &[String]| log.iter().any(|line| line.starts_with("add-ons") || line.contains("c-pool"));
    let (serves, goes) = (Lifecycle::InService, Lifecycle::TerminatingWait);

    let (log, report) = wakes(1, &[("i-1", serves, true)], None);
    assert!(follows(&log) && report.state.as_str() == "running", "{log:?} {}", report.message);

    let (log, report) = wakes(1, &[("i-1", serves, true), ("i-2", goes, false)], None);
    assert!(!follows(&log), "{log:?}");
    assert!(report.message.contains("i-2, of the older minor release, still runs"), "{}", report.message);

    let (log, report) = wakes(1, &[("i-1", serves, false)], Some("i-1"));
    assert!(!follows(&log), "{log:?}");
    assert_eq!(report.state.as_str(), "failed");
    assert!(
        report
            .message
            .contains("i-1 was skipped by order of a person in the middle of Kubernetes 1.35 → 1.36"),
        "{}",
        report.message
    );
    assert!(
        report.message.ends_with("Kubernetes 1.35 → 1.36 has begun, so the cluster can only go forward"),
        "{}",
        report.message
    );
}

/// The group was told to want one more, an old one died before it could be terminated, and its replacement has not come yet.
#[test]
fn p8_a_controller_too_many_that_is_still_to_come_is_waited_for() {
    let (_, report) = wakes(2, &[("i-1", Lifecycle::InService, true)], None);
    assert_eq!(report.state.as_str(), "running");
    let why = "c-control-plane wants 2 machines, and the spec has 1: a surplus machine is still to be launched, and is terminated then";
    assert!(report.message.contains(why), "{}", report.message);
}

/// [`with_members`] with that etcd release, data volumes of that size, and controllers of that Kubernetes release.
pub(super) fn of_versions(size: u32, kubernetes: &str, etcd: &str, gib: u32) -> Rendering {
    let mut rendering = with_members(size, 3, "a");
    let node = rendering.roles[&Role::Pool("a".to_owned())].clone();
    for (role, node) in &mut rendering.roles {
        if let (Role::Etcd(_), Some(member)) = (role, &mut node.member) {
            member.volume_gib = gib;
            node.version = Some(etcd.to_owned());
        }
    }
    let stack = "c-control-plane".to_owned();
    let controller = NodeRole { stack, version: Some(kubernetes.to_owned()), ..node };
    rendering.roles.insert(Role::Controller, controller);
    rendering
}

#[test]
fn what_runs_forbids_a_plan_that_is_made_anew_after_the_rollout_that_was_under_way() {
    // When it was uploaded again, 1.36 was running and 1.37 was being rolled out: when the plan is made again, 1.37 runs.
    let newer = of_versions(1, "1.37.0", "3.7.3", 50);
    for (older, why) in [
        (
            of_versions(2, "1.36.6", "3.7.3", 50),
            "Kubernetes 1.37.0 runs, and 1.36 is asked for: it cannot go back",
        ),
        (of_versions(2, "1.37.0", "3.6.16", 50), "etcd 3.7.3 runs, and 3.6 is asked for: it cannot go back"),
        (of_versions(2, "1.39.0", "3.7.3", 50), "a minor release cannot be skipped"),
        (
            of_versions(2, "1.37.0", "3.7.3", 30),
            "the data volume of etcd member 2 has 50 GiB, and 30 are asked for",
        ),
    ] {
        let (state, report, log) = onward(&newer, &older, Approval::Auto);
        assert_eq!(log, ["Rollout Failed"], "no tick, no change set");
        assert!(report.message.contains(why), "{}", report.message);
        assert!(state.deployed.values().all(|release| release == &newer.id()));
    }
    let (_, report, _) = onward(&newer, &of_versions(2, "1.37.1", "3.7.4", 60), Approval::Auto);
    assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
}

/// Once its API server writes to etcd, only that minor may be able to read the data.
#[test]
fn p4_a_snapshot_is_taken_before_another_minor_of_the_controllers_and_not_before_one_of_a_pool() {
    let saves = |running: &Rendering, sent: &Rendering| {
        let plan = planned(running, &[], sent, &policy(Approval::Auto));
        assert!(!plan.minors.is_empty());
        let desired = wanted(sent, &Baseline::default(), Approval::Auto).desired;
        let nodes = Nodes::from_wanted(&Wanted { desired, plan, release: sent.clone() });
        let saves = nodes.steps.iter().filter(|step| step.work() == Work::Save);
        saves.map(|step| step.role.to_string()).collect::<Vec<_>>()
    };
    let runs = release_with(1, "1.35.2", "3.6.16", "1.35.2");
    assert_eq!(saves(&runs, &release_with(2, "1.36.0", "3.6.16", "1.36.0")), ["controller"]);
    let lags = release_with(1, "1.36.0", "3.6.16", "1.35.2");
    assert_eq!(saves(&lags, &release_with(2, "1.36.0", "3.6.16", "1.36.0")), Vec::<String>::new());
}
