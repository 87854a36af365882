//! One decision at a time, from a given state: what is observed, what counts as progress, what is published, and how it ends.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;
use crate::departures::DepartureState;
use crate::errand::PAUSE;
use crate::fleet::GroupView;
use crate::patience::CONSISTENT;
use crate::waits::{Published, RolloutWaits};
use slipway_core::cluster::Pace;

pub(super) const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn tags() -> BTreeMap<String, String> {
    BTreeMap::from([("slipway:cluster".to_owned(), "c".to_owned())])
}

/// A stack of the rollout and its state.
pub(super) fn stack(stack: &str, kind: &str, state: Value) -> Value {
    json!({"stack": stack, "kind": kind, "templateKey": "k", "tags": tags(), "mayReplace": [], "state": state})
}

/// The work on the nodes of a role.
pub(super) fn node(role: &str, task: Value) -> Value {
    json!({"role": role, "stack": format!("c-{role}"), "group": format!("c-{role}"), "rounds": 0, "task": task})
}

pub(super) fn workers(phase: Value) -> Value {
    json!({"workers": {"size": 1, "most": 2, "pace": Pace::default(), "phase": phase}})
}

fn removal(phase: Value) -> Value {
    json!({"removal": {"pace": Pace::default(), "phase": phase}})
}

fn controllers(work: Value, phase: Value) -> Value {
    json!({"controllers": {"work": work, "size": 1, "phase": phase}})
}

pub(super) fn look_state() -> Value {
    json!({"open": {"state": {"look": {}}}})
}

pub(super) fn done(skipped: bool) -> Value {
    json!({"done": {"skipped": skipped}})
}

/// An open rollout.
pub(super) fn rolling(steps: &[Value], nodes: &[Value]) -> Rollout {
    let active = json!({
        "plan": "p", "specVersion": "v1", "target": "t", "startedAt": NOW, "changeSet": "slipway-4-p",
        "steps": steps, "nodesByHand": 0, "stacksByHand": [], "nodes": {"steps": nodes},
    });
    let active: Active = serde_json::from_value(active).unwrap();
    Rollout { generation: 4, activity: Activity::RollingOut(Box::new(active)), ..Rollout::new("c") }
}

fn paused(state: Rollout) -> Rollout {
    Rollout { switch: Some(Switch { paused: true, at: NOW }), ..state }
}

fn aborted(mut state: Rollout) -> Rollout {
    state.active_mut().unwrap().aborted = Some(NOW);
    state
}

fn is_going(stack_is: GoingState) -> Rollout {
    let given = Given { order: Order::Destroy { without_snapshot: true }, at: NOW };
    let deployed = BTreeMap::from([("c-pool-a".to_owned(), "t".to_owned())]);
    let mut state = after_order(&Rollout { deployed, ..Rollout::new("c") }, &given, None, NOW);
    let going = &mut state.destroy_mut().unwrap().stacks;
    going.iter_mut().filter(|one| one.stack == "c-pool-a").for_each(|one| one.state = stack_is.clone());
    Rollout { outbox: Vec::new(), ..state }
}

fn departing(mut state: Rollout) -> Rollout {
    let departure = json!({
        "role": "pool-a", "group": "c-pool-a", "cause": {"rollout": "replaced"}, "state": {"drain": {"drain": {}}}, "since": NOW,
    });
    state.departures.insert("i-1".to_owned(), serde_json::from_value(departure).unwrap());
    state
}

pub(super) fn group(name: &str, machine: &str) -> (String, Option<GroupView>) {
    let machines = json!({machine: {"zone": "a", "lifecycle": "inService", "healthy": true, "weight": 1, "template": null}});
    let view = json!({
        "name": name, "machineArns": "arn:aws:ec2:eu-west-1:123456789012:instance/", "desired": 1, "min": 1, "max": 2, "template": null, "machines": machines, "tags": tags(),
        "targetGroups": [],
    });
    (name.to_owned(), Some(serde_json::from_value(view).unwrap()))
}

pub(super) fn seen(stacks: &[(&str, StackStatus)]) -> Observed {
    let view = |name: &str, status: StackStatus| StackView {
        id: format!("arn:{name}"),
        status,
        reason: None,
        tags: tags(),
    };
    let stacks = stacks.iter().map(|(name, status)| ((*name).to_owned(), Some(view(name, *status))));
    Observed { stacks: stacks.collect(), ..Observed::default() }
}

/// The same with executed change sets.
pub(super) fn executed(stacks: &[(&str, StackStatus)]) -> Observed {
    let view = ChangeSetView { status: ChangeSetStatus::Executed, reason: None, replaces: Vec::new() };
    let change_sets = stacks.iter().map(|(name, _)| ((*name).to_owned(), Some(view.clone())));
    Observed { change_sets: change_sets.collect(), ..seen(stacks) }
}

fn events(decision: &Decision) -> Vec<String> {
    let mut said = Vec::new();
    for effect in &decision.effects {
        if let Effect::Publish(event) = effect {
            said.push(event.to_wire().0);
        }
    }
    said
}

fn disarms(decision: &Decision) -> bool {
    decision.effects.contains(&Effect::DisarmTick)
}

fn pool(name: &str) -> Role {
    Role::Pool(name.to_owned())
}

#[test]
fn what_was_left_standing_is_looked_for_between_two_rollouts() {
    let orphaned = BTreeMap::from([("c-pool-b".to_owned(), "t".to_owned())]);
    let idle = Rollout { orphaned: orphaned.clone(), ..Rollout::new("c") };
    assert_eq!(to_observe(&idle, None, NOW).orphaned, BTreeSet::from(["c-pool-b".to_owned()]));
    let rolls = Rollout { orphaned, ..rolling(&[stack("c-network", "network", json!("executing"))], &[]) };
    assert_eq!(to_observe(&rolls, None, NOW).orphaned, BTreeSet::new());
}

#[test]
fn p10_nodes_are_not_looked_at_where_a_person_or_a_failure_stopped_their_rollout() {
    let open = node("controller", controllers(json!("replace"), look_state()));
    let rolls = || rolling(&[], std::slice::from_ref(&open));
    let failed = rolling(&[], &[open.clone(), node("pool-a", workers(json!({"failed": "no"})))]);
    for (state, looks) in
        [(rolls(), true), (paused(rolls()), false), (aborted(rolls()), false), (failed, false)]
    {
        assert_eq!(to_observe(&state, None, NOW).groups.contains("c-controller"), looks, "{state:?}");
    }
}

#[test]
fn a_group_that_somebody_deleted_ends_the_work_on_its_machines_and_is_named() {
    let state = rolling(&[], &[node("controller", controllers(json!("replace"), look_state()))]);
    let groups = BTreeMap::from([("c-controller".to_owned(), None)]);
    let report = decide(&state, &Observed { groups, ..Observed::default() }, NOW).report;
    assert_eq!(report.state.as_str(), "failed");
    assert!(report.message.contains("there is no Auto Scaling group c-controller"), "{}", report.message);
}

#[test]
fn machines_on_their_way_are_looked_at_until_a_stack_is_told_to_go() {
    for (stack_is, looks) in [(GoingState::Stands, true), (GoingState::Deleting(NOW), false)] {
        let look = to_observe(&departing(is_going(stack_is)), None, NOW);
        assert_eq!(look.groups.contains("c-control-plane"), looks);
    }
}

#[test]
fn the_nodes_of_a_wave_are_worked_on_by_the_look_that_sees_its_last_stack_done() {
    let state =
        rolling(&[stack("c-pool-a", "pool", json!("executing"))], &[node("pool-a", workers(look_state()))]);
    let decision = decide(&state, &executed(&[("c-pool-a", StackStatus::UpdateComplete)]), NOW);
    assert_ne!(decision.report.nodes["pool-a"], "waits for its turn");
    assert_eq!(decision.report.stacks.len(), 1);
}

#[test]
fn p7_a_role_is_no_more_behind_once_its_machines_were_renewed_and_none_of_them_was_left() {
    let fewer = json!({"fewer": {"beforeStack": false}});
    let nodes = [
        node("controller", controllers(fewer, done(false))),
        node("pool-a", workers(done(true))),
        node("pool-b", workers(done(false))),
        node("pool-c", workers(look_state())),
    ];
    let mut state = rolling(&[], &nodes);
    let roles = [Role::Controller, pool("a"), pool("b"), pool("c")];
    state.earlier = roles.into_iter().map(|role| (role, BTreeSet::from(["old".to_owned()]))).collect();
    let next = decide(&state, &Observed::default(), NOW).next;
    assert_eq!(next.earlier.into_keys().collect::<Vec<_>>(), [Role::Controller, pool("a"), pool("c")]);
}

#[test]
fn what_moves_a_stack_or_a_node_on_is_a_step_and_what_only_waits_is_none() {
    let network = |state| rolling(&[stack("c-network", "network", json!(state))], &[]);
    let moved = decide(&network("waiting"), &seen(&[("c-network", StackStatus::CreateComplete)]), NOW);
    assert_eq!(events(&moved), ["Rollout Step"]);
    let busy = seen(&[("c-network", StackStatus::UpdateInProgress)]);
    let waits = decide(&network("executing"), &busy, NOW);
    assert_eq!(events(&waits), ["Rollout Waiting"]);
    assert_eq!(events(&decide(&waits.next, &busy, NOW)), [""; 0], "each reason is published once");
    // Of two pools that are removed, one is observed to be gone.
    let empties = || removal(json!({"open": {"state": "empty"}}));
    let pools = rolling(&[], &[node("pool-a", empties()), node("pool-b", empties())]);
    let mut gone = seen(&[]);
    gone.stacks.insert("c-pool-a".to_owned(), None);
    gone.groups.insert("c-pool-a".to_owned(), None);
    let mut pools = pools;
    pools.active_mut().unwrap().nodes.controllers = Some("c-control-plane".to_owned());
    gone.groups.extend([group("c-control-plane", "i-cp")]);
    let decision = decide(&pools, &gone, NOW);
    assert_eq!(decision.report.nodes["pool-a"], "done");
    assert_eq!(events(&decision), ["Rollout Step"]);
}

#[test]
fn p6_p10_a_drain_that_a_rollout_began_ends_with_it_whether_it_was_aborted_or_failed() {
    let network = |state: Value| stack("c-network", "network", state);
    let works = || rolling(&[network(json!("executing"))], &[]);
    let failed = rolling(&[network(json!("executing")), network(json!({"failed": "no"}))], &[]);
    let node_failed =
        rolling(&[network(json!("executing"))], &[node("pool-a", workers(json!({"failed": "no"})))]);
    for (state, goes_on) in
        [(works(), true), (aborted(works()), false), (failed, false), (node_failed, false)]
    {
        let mut observed = seen(&[("c-network", StackStatus::UpdateInProgress)]);
        observed.groups.extend([group("c-pool-a", "i-1"), group("c-control-plane", "i-cp")]);
        let decision = decide(&departing(state.clone()), &observed, NOW);
        let drains = matches!(decision.next.departures["i-1"].state, DepartureState::Drain { .. });
        assert_eq!(drains, goes_on, "{state:?}");
    }
}

#[test]
fn p10_what_is_deleted_at_an_abort_is_a_stack_of_ours_that_was_being_made_for_the_first_time() {
    let pool = || rolling(&[stack("c-pool-a", "pool", json!("executing"))], &[]);
    let stood = BTreeMap::from([("c-pool-a".to_owned(), "old".to_owned())]);
    let ours = seen(&[("c-pool-a", StackStatus::CreateInProgress)]);
    let mut others = ours.clone();
    others.stacks.values_mut().flatten().for_each(|view| view.tags.clear());
    for (state, observed, deleted) in [
        (aborted(pool()), &ours, true),
        (pool(), &ours, false),
        (aborted(pool()), &others, false),
        (Rollout { deployed: stood.clone(), ..aborted(pool()) }, &ours, false),
        (Rollout { orphaned: stood, ..aborted(pool()) }, &ours, false),
        (aborted(pool()), &seen(&[("c-pool-a", StackStatus::UpdateInProgress)]), false),
    ] {
        let decision = decide(&state, observed, NOW);
        let deletes = |effect: &Effect| matches!(effect, Effect::DeleteStack { stands: false, .. });
        assert_eq!(decision.effects.iter().any(deletes), deleted, "{state:?}");
    }
}

#[test]
fn p10_a_stack_that_is_no_more_than_a_change_set_does_not_stay_behind_when_its_rollout_ends_early() {
    let pool = |state| rolling(&[stack("c-pool-a", "pool", state)], &[]);
    let stood = BTreeMap::from([("c-pool-a".to_owned(), "old".to_owned())]);
    let mut ours = executed(&[("c-pool-a", StackStatus::ReviewInProgress)]);
    ours.stacks.values_mut().flatten().for_each(|view| view.tags.clear());
    // Without our change set it may be anybody's.
    let theirs = Observed { change_sets: BTreeMap::new(), ..ours.clone() };
    let full = seen(&[("c-pool-a", StackStatus::UpdateComplete)]);
    let absent = Observed { stacks: BTreeMap::from([("c-pool-a".to_owned(), None)]), ..seen(&[]) };
    let stack = |effect: &Effect| matches!(effect, Effect::DeleteStack { stands: false, .. });
    let change_set = |effect: &Effect| matches!(effect, Effect::DeleteChangeSet { .. });
    let deletes =
        |decision: &Decision| (decision.effects.iter().any(stack), decision.effects.iter().any(change_set));
    let (stack_goes, change_set_goes, nothing) = ((true, false), (false, true), (false, false));
    let failed = || pool(json!({"failed": "CloudFormation refuses the template"}));
    for (state, observed, goes, waits) in [
        (aborted(pool(json!("changeSet"))), &ours, stack_goes, true),
        (failed(), &ours, stack_goes, true),
        // Its deletion was decided, and was not performed.
        (aborted(pool(json!("waiting"))), &ours, stack_goes, true),
        (aborted(pool(json!("changeSet"))), &theirs, change_set_goes, false),
        (failed(), &theirs, nothing, false),
        (pool(json!("waiting")), &theirs, nothing, true),
        (failed(), &full, nothing, false),
        (Rollout { deployed: stood, ..aborted(pool(json!("changeSet"))) }, &full, change_set_goes, false),
        // CloudFormation's answers may be late: the abort waits for the stack to come to light.
        (aborted(pool(json!("changeSet"))), &absent, nothing, true),
    ] {
        let decision = decide(&state, observed, NOW);
        assert_eq!(deletes(&decision), goes, "{state:?}");
        assert_eq!(decision.next.active().is_some(), waits, "{state:?}");
        if goes == stack_goes {
            let soon = decide(&decision.next, observed, NOW + SignedDuration::from_secs(1));
            assert_eq!((deletes(&soon), soon.next.active().is_some()), (nothing, true), "{state:?}");
            // However often it is looked at in between.
            let again = decide(&soon.next, observed, NOW + PAUSE);
            assert_eq!(deletes(&again), stack_goes, "until it is gone: {state:?}");
            assert!(decide(&again.next, &absent, NOW + PAUSE * 2).next.active().is_none());
        }
    }
    // A newer spec does not wait for the change sets of what is paused.
    let newer = wanted(&rendering(2), &Baseline::default(), Approval::Auto);
    for (desired, goes) in [(None, nothing), (Some(newer), stack_goes)] {
        let decision = decide(&paused(pool(json!("changeSet"))), &Observed { desired, ..ours.clone() }, NOW);
        assert_eq!((deletes(&decision), decision.next.active().is_some()), (goes, true));
    }
    let first = decide(&aborted(pool(json!("changeSet"))), &absent, NOW).next;
    let just_before = CONSISTENT - SignedDuration::from_secs(1);
    assert!(decide(&first, &absent, NOW + just_before).next.active().is_some());
    let last = decide(&first, &absent, NOW + CONSISTENT);
    assert_eq!((deletes(&last), last.next.active().is_some()), (change_set_goes, false));
}

/// CloudFormation makes a change set, which begins nothing. Nobody continues it after a failure, so that waiting for it would have no end.
#[test]
fn p10_a_change_set_that_is_being_made_holds_up_a_newer_spec_and_not_the_end_after_a_failure() {
    let pools = ["c-pool-a", "c-pool-b"];
    let state = |a: &str| {
        let steps = [stack("c-pool-a", "pool", json!(a)), stack("c-pool-b", "pool", json!("changeSet"))];
        let deployed = pools.map(|name| (name.to_owned(), "old".to_owned())).into();
        Rollout { deployed, ..rolling(&steps, &[]) }
    };
    let observed = |status, change_set| {
        let mut observed = executed(&[("c-pool-a", status), ("c-pool-b", StackStatus::UpdateComplete)]);
        for (name, status) in pools.into_iter().zip([change_set, ChangeSetStatus::Pending]) {
            observed.change_sets.get_mut(name).unwrap().as_mut().unwrap().status = status;
        }
        let newer = wanted(&rendering(2), &Baseline::default(), Approval::Auto);
        Observed { desired: Some(newer), ..observed }
    };
    let complete = observed(StackStatus::UpdateComplete, ChangeSetStatus::Executed);
    assert_eq!(decide(&state("done"), &complete, NOW).report.state, RolloutState::Running);
    let rolled_back = observed(StackStatus::UpdateRollbackComplete, ChangeSetStatus::ExecuteFailed);
    let decision = decide(&state("executing"), &rolled_back, NOW);
    assert_eq!(decision.report.state, RolloutState::Failed, "{}", decision.report.message);
    let name = "slipway-4-p".to_owned();
    assert!(decision.effects.contains(&Effect::DeleteChangeSet { stack: "c-pool-b".to_owned(), name }));
}

#[test]
fn p4_members_that_were_taken_out_are_known_until_the_stack_of_etcd_is_without_them() {
    let state = |network: &str, etcd: &str| {
        let steps = [stack("c-network", "network", json!(network)), stack("c-etcd", "etcd", json!(etcd))];
        let removed_members = BTreeSet::from([Role::Etcd(4)]);
        Rollout { removed_members, ..rolling(&steps, &[node("pool-a", workers(look_state()))]) }
    };
    let complete = StackStatus::UpdateComplete;
    let network = decide(&state("executing", "waiting"), &executed(&[("c-network", complete)]), NOW);
    assert_eq!(network.next.deployed.keys().collect::<Vec<_>>(), ["c-network"]);
    assert_eq!(network.next.removed_members, BTreeSet::from([Role::Etcd(4)]));
    let etcd = decide(&state("done", "executing"), &executed(&[("c-etcd", complete)]), NOW);
    assert_eq!(etcd.next.removed_members, BTreeSet::new());
}

#[test]
fn p7_the_machines_of_a_stack_that_was_updated_are_behind_until_they_are_renewed_and_no_others_are() {
    let of_a = |role: &str, task: Value| {
        let mut step = node(role, task);
        step["stack"] = json!("c-pool-a");
        step
    };
    let nodes = [
        node("pool-a", workers(look_state())),
        node("pool-b", workers(look_state())),
        of_a("pool-c", removal(json!({"open": {"state": "empty"}}))),
        of_a("pool-d", workers(done(false))),
    ];
    let deployed = BTreeMap::from([("c-pool-a".to_owned(), "old".to_owned())]);
    let state = Rollout { deployed, ..rolling(&[stack("c-pool-a", "pool", json!("executing"))], &nodes) };
    let next = decide(&state, &executed(&[("c-pool-a", StackStatus::UpdateComplete)]), NOW).next;
    assert_eq!(next.earlier, BTreeMap::from([(pool("a"), BTreeSet::from(["old".to_owned()]))]));
    assert_eq!(next.deployed["c-pool-a"], "t");
    // An earlier rollout to the same release updated the stack and failed: the machines with this release are not behind it.
    let earlier = BTreeMap::from([(pool("a"), BTreeSet::from(["old".to_owned()]))]);
    let deployed = BTreeMap::from([("c-pool-a".to_owned(), "t".to_owned())]);
    for earlier in [earlier, BTreeMap::new()] {
        let state = Rollout { earlier: earlier.clone(), deployed: deployed.clone(), ..state.clone() };
        let next = decide(&state, &executed(&[("c-pool-a", StackStatus::UpdateComplete)]), NOW).next;
        assert_eq!(next.earlier, earlier);
    }
}

#[test]
fn p7_the_machines_of_a_pool_that_was_orphaned_are_behind_once_the_spec_has_it_again() {
    let orphaned = BTreeMap::from([("c-pool-a".to_owned(), "old".to_owned())]);
    let nodes = [node("pool-a", workers(look_state()))];
    let state = Rollout { orphaned, ..rolling(&[stack("c-pool-a", "pool", json!("executing"))], &nodes) };
    let next = decide(&state, &executed(&[("c-pool-a", StackStatus::UpdateComplete)]), NOW).next;
    assert_eq!(next.earlier, BTreeMap::from([(pool("a"), BTreeSet::from(["old".to_owned()]))]));
    assert_eq!(next.orphaned, BTreeMap::new());
}

#[test]
fn p8_a_plan_that_is_refused_has_a_generation_of_its_own() {
    let (state, ..) = onward(&with_members(1, 3, "a"), &with_members(2, 3, "b"), Approval::Auto);
    assert_eq!((state.last.unwrap().result, state.generation), (RolloutResult::Failed, 2));
}

#[test]
fn p4_a_newer_spec_waits_while_members_are_out_of_the_membership_and_their_groups_stand() {
    let newer = wanted(&rendering(2), &Baseline::default(), Approval::Auto);
    let observed = Observed { desired: Some(newer), ..Observed::default() };
    let out = node("etcd-4", json!({"leaver": {"phase": done(false)}}));
    let etcd = |state: &str| stack("c-etcd", "etcd", json!(state));
    let pool = stack("c-pool-a", "pool", json!("waiting"));
    for (steps, nodes, ends) in [
        (vec![etcd("waiting"), pool.clone()], vec![out.clone()], "running"),
        (vec![etcd("waiting"), pool.clone()], vec![], "superseded"),
        (vec![etcd("done"), pool], vec![out], "superseded"),
    ] {
        assert_eq!(decide(&rolling(&steps, &nodes), &observed, NOW).report.state.as_str(), ends, "{steps:?}");
    }
}

/// It would wait for ever if the stack waited for it, too.
#[test]
fn p4_the_stack_of_removed_members_goes_on_although_a_newer_spec_waits_and_no_other_does() {
    let newer = wanted(&rendering(2), &Baseline::default(), Approval::Auto);
    let stacks = ["c-etcd", "c-pool-a"].map(|name| (name, StackStatus::UpdateComplete));
    let observed = Observed { desired: Some(newer), ..seen(&stacks) };
    let out = node("etcd-4", json!({"leaver": {"phase": done(false)}}));
    let begins = |name: &str, kind: &str, nodes: &[Value]| {
        let state = rolling(&[stack(name, kind, json!("waiting"))], nodes);
        let effects = decide(&state, &observed, NOW).effects;
        effects.iter().any(|effect| matches!(effect, Effect::CreateChangeSet(_)))
    };
    assert!(begins("c-etcd", "etcd", std::slice::from_ref(&out)));
    assert!(!begins("c-etcd", "etcd", &[]) && !begins("c-pool-a", "pool", &[out]));
}

/// Half of the nodes would stay on each release until somebody approves.
#[test]
fn p3_a_newer_spec_that_nobody_has_approved_ends_no_rollout() {
    let newer = wanted(&rendering(2), &Baseline::default(), Approval::Manual);
    let plan = newer.plan.id.clone();
    let observed = Observed { desired: Some(newer), ..Observed::default() };
    for (approved, ends) in
        [(None, "running"), (Some("another"), "running"), (Some(plan.as_str()), "superseded")]
    {
        let mut state = rolling(&[stack("c-pool-a", "pool", json!("waiting"))], &[]);
        if let Some(plan) = approved {
            state = after_order(
                &state,
                &approving(plan),
                observed.desired.as_ref().map(|wanted| &wanted.desired),
                NOW,
            );
        }
        assert_eq!(decide(&state, &observed, NOW).report.state.as_str(), ends, "{approved:?}");
    }
}

/// Auto Scaling may take a worker of it at any time, and then its pods are forced by this limit.
#[test]
fn p6_a_rollout_stores_for_each_pool_the_limit_for_force_of_its_own() {
    let mut wanted = wanted(&with_members(1, 1, "a"), &Baseline::default(), Approval::Auto);
    wanted.plan.policy.drain_force_after_min = Some(10);
    let mut own = wanted.plan.policy.pools.get("a").cloned().unwrap_or_default();
    own.drain_force_after_min = Some(240);
    let of_default = wanted.release.roles.keys().filter(|role| matches!(role, Role::Pool(_))).count();
    assert_eq!(of_default, 1, "the release has the pool a");
    for (policies, limit) in [(vec![("a".to_owned(), own)], 240 * 60), (vec![], 10 * 60)] {
        wanted.plan.policy.pools = policies.into_iter().collect();
        let observed = Observed { desired: Some(wanted.clone()), ..Observed::default() };
        let next = decide(&Rollout::new("c"), &observed, NOW).next;
        assert_eq!(next.force_after_s, BTreeMap::from([(pool("a"), limit)]));
    }
}

#[test]
fn what_was_left_of_a_pool_and_what_is_behind_is_known_after_a_rollout_that_did_not_see_to_it() {
    let mut state =
        rolling(&[], &[node("pool-a", workers(done(true))), node("pool-b", workers(done(false)))]);
    let left_over = |machines| serde_json::from_value::<LeftOver>(json!(machines)).unwrap();
    state.left_over = BTreeMap::from([(pool("b"), left_over(1)), (pool("c"), left_over(2))]);
    for name in ["a", "b", "c"] {
        state.earlier.insert(pool(name), BTreeSet::from(["old".to_owned()]));
    }
    let decision = decide(&state, &Observed::default(), NOW);
    assert_eq!(decision.report.state.as_str(), "succeeded");
    assert_eq!(decision.next.left_over, BTreeMap::from([(pool("c"), left_over(2))]));
    assert_eq!(decision.next.earlier.into_keys().collect::<Vec<_>>(), [pool("a")]);
}

#[test]
fn p8_the_tick_is_kept_where_a_rollout_ends_and_something_else_goes_on() {
    let over = || rolling(&[], &[]);
    let order = Given { order: Order::Destroy { without_snapshot: true }, at: NOW };
    let mut then = after_order(&over(), &order, None, NOW);
    then.outbox.clear();
    assert!(then.active().is_some());
    for (state, is_last) in [(over(), true), (departing(over()), false), (then, false)] {
        let decision = decide(&state, &Observed::default(), NOW);
        assert!(decision.next.active().is_none());
        assert_eq!(disarms(&decision), is_last, "{state:?}");
    }
}

#[test]
fn what_was_published_since_the_last_progress_is_not_published_again_unless_much_was() {
    let waits = |done| Published::Rolling {
        aborting: false,
        waits: RolloutWaits::Stacks { done, waits: BTreeMap::new() },
    };
    let state = rolling(&[stack("c-network", "network", json!("executing"))], &[]);
    let busy = seen(&[("c-network", StackStatus::UpdateInProgress)]);
    let now = decide(&state, &busy, NOW).next.published.unwrap();
    let many = |count| (0..count).map(waits).chain([now.clone()]).collect::<BTreeSet<_>>();
    for (published, published_since, is_published) in [
        (Some(waits(0)), many(1), false),
        (Some(waits(0)), many(18), false),
        // What came in between is over: a pause, or another destruction.
        (None, many(1), true),
        (Some(waits(0)), many(19), true),
    ] {
        let state = Rollout { published, published_since, ..state.clone() };
        let decision = decide(&state, &busy, NOW);
        assert_eq!(!events(&decision).is_empty(), is_published, "{:?}", state.published_since.len());
        assert!(decision.next.published_since.contains(&now));
        assert!(decision.next.published_since.len() <= 20);
    }
}

/// The order has ended the rollout already, and its abort changes nothing about what the rollout waits for (seed 1608 of aborted destructions).
#[test]
fn p8_what_a_rollout_waits_for_is_published_once_if_an_order_to_destroy_ends_it_and_is_aborted() {
    let given = |order, second| Given { order, at: Timestamp::from_second(second).unwrap() };
    let destroy = given(Order::Destroy { without_snapshot: true }, 10);
    let abort = given(Order::Abort { plan: None }, 20);
    let busy = seen(&[("c-network", StackStatus::UpdateInProgress)]);
    let rolls = rolling(&[stack("c-network", "network", json!("executing"))], &[]);
    let waiting =
        |decision: &Decision| events(decision).into_iter().filter(|event| event == "Rollout Waiting").count();
    let destroyed = decide(&after_order(&rolls, &destroy, None, NOW), &busy, NOW);
    assert_eq!(waiting(&destroyed), 1);
    let aborted = decide(&after_order(&destroyed.next, &abort, None, NOW), &busy, NOW);
    assert_eq!(waiting(&aborted), 0, "{:?}", aborted.report);
    // An abort that ends the rollout itself is news.
    let before = decide(&rolls, &busy, NOW);
    let ended = decide(&after_order(&before.next, &abort, None, NOW), &busy, NOW);
    assert_eq!((waiting(&before), waiting(&ended)), (1, 1));
}

#[test]
fn p8_whatever_is_open_is_woken_regularly_and_what_is_only_to_be_performed_is_open_too() {
    let effect = Effect::ArmTick;
    let pending = Pending { id: 1, effect, decided_at: NOW, evidence: None };
    let performs = Rollout { outbox: vec![pending], ..Rollout::new("c") };
    for (state, is_open, needs_tick) in [
        (Rollout::new("c"), false, false),
        (performs, true, false),
        (rolling(&[], &[]), true, true),
        (departing(Rollout::new("c")), true, true),
        (is_going(GoingState::Stands), true, true),
        (is_going(GoingState::Failed("no".to_owned())), false, false),
    ] {
        assert_eq!((state.is_open(), state.needs_tick()), (is_open, needs_tick), "{state:?}");
    }
}

#[test]
fn p8_an_operation_has_one_token_and_no_other_has_it() {
    let state = rolling(&[], &[]);
    let active = state.active().unwrap();
    let of_another = Active { change_set: "slipway-5-p".to_owned(), ..active.clone() };
    let tokens = [
        active.token("c-etcd", "execute"),
        active.token("c-network", "execute"),
        active.token("c-etcd", "delete"),
        of_another.token("c-etcd", "execute"),
    ];
    assert_eq!(tokens.iter().collect::<BTreeSet<_>>().len(), 4);
    assert_eq!(active.token("c-etcd", "execute"), tokens[0]);
    for token in tokens {
        assert!(token.len() <= 128 && token.starts_with("slipway-"), "{token}");
        assert!(token.chars().all(|one| one.is_ascii_alphanumeric() || one == '-'), "{token}");
    }
}
