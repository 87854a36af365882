//! Members that join etcd by an update of its stack that CloudFormation rolls back.

use serde_json::{Value, json};
use slipway_core::node::{Command, CommandView, FailureCode, MemberRemoved, Verb, VerbFailure};

use super::decisions::{NOW, done, group, look_state, node, rolling, seen, stack, workers};
use super::*;
use crate::nodes::Work;

fn roles(members: &[u32]) -> BTreeSet<Role> {
    members.iter().copied().map(Role::Etcd).collect()
}

/// A rollout that adds etcd-1 and etcd-2 to a single member, while etcd's stack is in that status.
fn growing(status: StackStatus) -> (Rollout, Observed) {
    let mut state = rolling(&[stack("c-etcd", "etcd", json!("executing"))], &[]);
    let active = state.active_mut().unwrap();
    active.joins = roles(&[1, 2]);
    active.nodes.members = (0..3).map(|at| (Role::Etcd(at), format!("c-etcd-{at}"))).collect();
    let mut observed = seen(&[("c-etcd", status)]);
    observed.groups.extend([group("c-etcd-0", "i-0")]);
    (state, observed)
}

/// The removals that are decided `seconds` after the beginning: which machine removes which member.
fn removals(state: &Rollout, observed: &Observed, seconds: i64) -> (Rollout, Vec<(String, String)>) {
    let now = NOW + jiff::SignedDuration::from_secs(seconds);
    let decision = decide(state, observed, now);
    let removals = decision.effects.iter().filter_map(|effect| {
        let Effect::Send(Command { instance, verb: Verb::EtcdRemove { member }, .. }) = effect else {
            return None;
        };
        Some((instance.clone(), member.clone()))
    });
    (Rollout { outbox: Vec::new(), ..decision.next.clone() }, removals.collect())
}

fn last_token(state: &Rollout, observed: &Observed) -> String {
    let scope = to_observe(state, observed.desired.as_ref(), NOW);
    assert_eq!(scope.groups, BTreeSet::from(["c-etcd-0".to_owned()]), "those that stay");
    scope.commands.first().unwrap().token.clone()
}

/// Of two voters, none may be lost: the single member would never find a majority again.
#[test]
fn p4_members_whose_groups_a_rollback_deletes_are_removed_while_they_still_run() {
    for status in [StackStatus::UpdateInProgress, StackStatus::UpdateCompleteCleanupInProgress] {
        let (state, observed) = growing(status);
        assert_eq!(removals(&state, &observed, 0).1, [], "{status:?}: they are to stay");
    }
    let (state, mut observed) = growing(StackStatus::UpdateRollbackInProgress);
    let of = |member: &str| ("i-0".to_owned(), member.to_owned());
    let (state, sent) = removals(&state, &observed, 0);
    assert_eq!(sent, [of("etcd-2")], "the newest first");
    let (state, sent) = removals(&state, &observed, 60);
    assert_eq!(sent, [], "the answer is waited for");

    let token = last_token(&state, &observed);
    let failure = VerbFailure::transient(FailureCode::EtcdRefused, "not enough started members", "wait");
    observed.answers.insert(token, Some(CommandView::Failed(failure)));
    let (state, sent) = removals(&state, &observed, 49);
    assert_eq!(sent, [], "a member that refused is not asked again at once");
    let (state, sent) = removals(&state, &observed, 120);
    assert_eq!(sent, [of("etcd-2")], "once more");
    let token = last_token(&state, &observed);
    let removed = MemberRemoved { removed: true, id: None, members: 2 };
    observed.answers.insert(token, Some(CommandView::Answered(removed.into())));
    let (state, sent) = removals(&state, &observed, 130);
    assert_eq!(sent, [of("etcd-1")]);
    let (state, sent) = removals(&state, &observed, 130 + 200);
    assert_eq!(sent, [of("etcd-1")], "no answer in three minutes");
    let token = last_token(&state, &observed);
    let removed = MemberRemoved { removed: false, id: None, members: 1 };
    observed.answers.insert(token, Some(CommandView::Answered(removed.into())));
    let (state, sent) = removals(&state, &observed, 370);
    assert_eq!(sent, [], "all have answered");
    // One that waited for the place of the only learner may have joined since.
    let (state, sent) = removals(&state, &observed, 390);
    assert_eq!(sent, [of("etcd-2")]);
    let token = last_token(&state, &observed);
    observed.answers.insert(
        token,
        Some(CommandView::Answered(MemberRemoved { removed: true, id: None, members: 1 }.into())),
    );
    assert_eq!(removals(&state, &observed, 400).1, [of("etcd-1")]);
}

/// An abort has CloudFormation roll the update back, and a pause does not hold it up.
#[test]
fn p10_members_that_a_rollback_takes_away_are_removed_whatever_a_person_has_ordered() {
    let (state, observed) = growing(StackStatus::UpdateRollbackCompleteCleanupInProgress);
    let mut aborted = state.clone();
    aborted.active_mut().unwrap().aborted = Some(NOW);
    let paused = Rollout { switch: Some(Switch { paused: true, at: NOW }), ..state };
    for state in [aborted, paused] {
        assert_eq!(removals(&state, &observed, 0).1.len(), 1);
    }
}

#[test]
fn p4_a_command_to_remove_that_was_refused_or_not_sent_is_sent_anew() {
    let (state, observed) = growing(StackStatus::UpdateRollbackInProgress);
    let (state, _) = removals(&state, &observed, 0);
    let token = last_token(&state, &observed);
    for outcome in [EffectOutcome::Refused("throttled".to_owned()), EffectOutcome::Dropped] {
        let mut state = state.clone();
        match outcome {
            EffectOutcome::Refused(why) => state.unsent(&token, &why),
            EffectOutcome::Done | EffectOutcome::Dropped => state.not_sent(&token),
        }
        assert_eq!(removals(&state, &observed, 5).1.len(), 1);
    }
}

/// A cluster of one member whose growth to three was rolled back, and the releases before and after.
fn rolled_back() -> (Rollout, BTreeMap<String, Rendering>, Wanted, Fake) {
    let (before, after) = (with_members(1, 1, "a"), with_members(2, 3, "a"));
    let mut fake = Fake::default();
    let (state, _) =
        fake.run(Rollout::new("c"), &wanted(&before, &Baseline::default(), Approval::Auto), None, false);
    assert_eq!(state.joined_members, BTreeMap::new(), "founders do not join");
    let releases = BTreeMap::from([&before, &after].map(|release| (release.id(), release.clone())));
    let baseline = Baseline::assemble("c", &state.deployed, &BTreeMap::new(), &releases).unwrap();
    let mut wanted = wanted(&after, &baseline, Approval::Auto);
    // The snapshot before has tests of its own.
    wanted.plan.nodes.clear();
    fake.change_sets.clear();
    fake.fails = Some("c-etcd");
    (state, releases, wanted, fake)
}

#[test]
fn p4_the_plan_after_a_growth_that_was_rolled_back_removes_the_members_or_lets_them_join_anew() {
    let (state, releases, wanted, mut fake) = rolled_back();
    let (state, report) = fake.run(state, &wanted, None, false);
    assert_eq!(report.state.as_str(), "failed");
    assert!(report.message.contains("etcd-1, etcd-2 may be in etcd's membership"), "{}", report.message);
    assert_eq!(state.joined_members.keys().cloned().collect::<BTreeSet<_>>(), roles(&[1, 2]));
    let baseline = Baseline::assemble("c", &state.deployed, &BTreeMap::new(), &releases)
        .unwrap()
        .with_joined(&state.joined_members, &releases)
        .unwrap();
    let of_size =
        |size: u32, members: u32| super::wanted(&with_members(size, members, "a"), &baseline, Approval::Auto);
    // Back to one member: nothing else changes.
    let back = of_size(1, 1);
    assert!(state.is_start_of(&back.plan) && !back.plan.is_empty(), "{:?}", back.plan.membership);
    let leaves = Nodes::from_wanted(&back).steps;
    let leaves: BTreeSet<Role> =
        leaves.iter().filter(|step| step.work() == Work::Leave).map(|step| step.role.clone()).collect();
    assert_eq!(leaves, roles(&[1, 2]));
    // Three members: they join anew.
    let again = of_size(2, 3);
    assert!(again.plan.joining_members().cloned().eq(roles(&[1, 2])));
    fake.fails = None;
    fake.change_sets.clear();
    let mut again = Wanted { plan: Plan { nodes: Vec::new(), ..again.plan }, ..again };
    again.desired.spec_version = "v3".to_owned();
    let (state, report) = fake.run(state, &again, None, false);
    assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
    assert_eq!(state.joined_members, BTreeMap::new());
}

#[test]
fn p4_nothing_is_removed_by_a_rollout_that_lets_nobody_join_or_whose_update_has_ended() {
    let (state, observed) = growing(StackStatus::UpdateRollbackInProgress);
    let mut nobody = state.clone();
    nobody.active_mut().unwrap().joins.clear();
    let mut network = state.clone();
    network.active_mut().unwrap().steps[0].kind = StackKind::Network;
    for other in [nobody, network] {
        assert_eq!(removals(&other, &observed, 0).1, []);
        assert_eq!(to_observe(&other, None, NOW).groups, BTreeSet::new());
    }
    let mut waits = state.clone();
    waits.active_mut().unwrap().steps[0].state = StepState::Waiting;
    assert_eq!(removals(&waits, &observed, 0).1, []);
    assert_eq!(removals(&state, &observed, 0).1.len(), 1);
}

#[test]
fn p4_of_several_members_that_stay_each_is_told_in_turn() {
    let (mut state, mut observed) = growing(StackStatus::UpdateRollbackInProgress);
    state.active_mut().unwrap().joins = roles(&[2]);
    state.active_mut().unwrap().nodes.members.insert(Role::Etcd(3), "c-etcd-3".to_owned());
    observed.groups.extend([group("c-etcd-1", "i-1"), group("c-etcd-3", "i-3")]);
    let mut told = Vec::new();
    for round in 0..4 {
        let (next, sent) = removals(&state, &observed, 200 * round);
        told.extend(sent.into_iter().map(|(machine, _)| machine));
        state = next;
    }
    assert_eq!(told, ["i-0", "i-1", "i-3", "i-0"]);
}

/// A plan that also updates etcd's stack removes the member before, and that update may still fail.
#[test]
fn p4_a_joined_member_counts_as_removed_only_when_nothing_of_etcds_stack_is_open() {
    let removed = |task: Value| json!({"role": "etcd-1", "stack": "c-etcd", "group": "c-etcd-1", "rounds": 0, "task": task});
    let leaver = removed(json!({"leaver": {"phase": done(false)}}));
    let open = node("pool-a", workers(look_state()));
    for (steps, stays) in [(vec![], false), (vec![stack("c-etcd", "etcd", json!("waiting"))], true)] {
        let mut state = rolling(&steps, &[leaver.clone(), open.clone()]);
        state.joined_members =
            BTreeMap::from([(Role::Etcd(1), "t1".to_owned()), (Role::Etcd(2), "t1".to_owned())]);
        let next = decide(&state, &seen(&[("c-etcd", StackStatus::UpdateComplete)]), NOW).next;
        assert_eq!(next.joined_members.contains_key(&Role::Etcd(1)), stays);
        assert!(next.joined_members.contains_key(&Role::Etcd(2)), "nothing has removed it");
        assert_eq!(
            next.removed_members,
            BTreeSet::new(),
            "it has no group that an update would have to delete"
        );
    }
}
