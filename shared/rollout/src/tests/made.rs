//! Stacks that a rollout began to create and did not complete: their machines wait in their hooks, and nothing else knows of them.

use serde_json::json;
use slipway_core::node::{CommandView, DrainRecord};

use super::undeleted::{Harbour, exporting, without_pool};
use super::*;
use crate::departures::DepartureState;
use crate::fleet::{GroupView, Lifecycle};

const POOL: &str = "c-pool-a";

fn at(minute: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + 60 * minute).unwrap()
}

/// A group with one machine.
fn group(name: &str, lifecycle: Lifecycle) -> GroupView {
    let machine =
        json!({"zone": "a", "lifecycle": lifecycle, "healthy": true, "weight": 1, "template": null});
    let group = json!({
        "name": name, "desired": 1, "min": 1, "max": 2, "template": null, "machines": {"i-1": machine},
        "tags": {"slipway:cluster": "c"}, "machineArns": "arn:aws:ec2:eu-west-1:123456789012:instance/",
    });
    serde_json::from_value(group).unwrap()
}

/// A launch that failed because the stack of pool `a` could not be created.
fn half_launched() -> (Harbour, Rollout) {
    let mut harbour = Harbour::empty();
    harbour.fake.fails = Some(POOL);
    let (state, report, _) = harbour.roll(Rollout::new("c"), &exporting(1, true));
    assert_eq!((report.state.as_str(), state.deployed.contains_key(POOL)), ("failed", false));
    (harbour, state)
}

/// The decision after observing that group and the bootstrap report of its machine.
fn seen(state: &Rollout, view: GroupView, said: Option<(&str, bool)>) -> Decision {
    let mut observed = Observed::default();
    observed.groups.insert(view.name.clone(), Some(view));
    let report = |(state, served): (&str, bool)| {
        let report = json!({
            "format": 1, "instance": "i-1", "role": "pool-a", "config": "", "credentials": "", "agent": "1", "state": state,
            "served": served, "at": at(0),
        });
        serde_json::from_value(report).unwrap()
    };
    observed.booting.extend(said.map(|said| ("i-1".to_owned(), report(said))));
    decide(state, &observed, at(0))
}

fn lets_go(decision: &Decision) -> bool {
    decision.effects.iter().any(|effect| {
        matches!(effect, Effect::CompleteTermination { .. } | Effect::Terminate { then_desired: None, .. })
    })
}

#[test]
fn p6_a_stack_that_a_launch_left_half_made_is_one_whose_machines_are_seen_to_and_no_other_of_that_name() {
    let (_, state) = half_launched();
    assert!(state.active().is_none() && state.drains(POOL) && state.drains("c-pool-b"));
    assert!(!state.drains("c-pool-x") && !state.drains("c-network") && !state.drains("another-pool-a"));
    assert_eq!(state.groups_to_observe(at(0)), [POOL, "c-pool-b"]);
    // Other rollouts may come and go meanwhile.
    let later = Rollout { last: None, ..state.clone() };
    assert!(later.drains(POOL) && later.groups_to_observe(at(0)) == [POOL, "c-pool-b"]);
    let forgotten = Rollout { unfinished: BTreeMap::new(), ..later };
    assert!(!forgotten.drains(POOL), "a stack that no rollout made is not ours");
    assert_eq!(forgotten.groups_to_observe(at(0)), ["c-pool-b"]);
}

/// A spec without the pool was rolled out with success, and the stack stayed for ever, with machines that are billed.
#[test]
fn p10_what_a_failed_creation_left_is_deleted_by_a_spec_that_does_not_have_it() {
    let (mut harbour, state) = half_launched();
    assert_eq!(state.unfinished, BTreeMap::from([(POOL.to_owned(), exporting(1, true).id())]));
    assert!(crate::destroy::stacks(&state).iter().any(|going| going.stack == POOL && !going.unsure));
    harbour.fake.fails = None;
    let (state, report, plan) = harbour.roll(state, &without_pool(exporting(1, true)));
    let pool = plan.nodes.iter().find(|node| node.stack == POOL).unwrap();
    assert!(pool.reasons[0].contains("did not complete its creation"), "{:?}", pool.reasons);
    assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
    assert!(harbour.fake.log.contains(&"delete c-pool-a".to_owned()), "{:?}", harbour.fake.log);
    assert_eq!(state.unfinished, BTreeMap::new());
    // A spec that has the pool creates it.
    let (mut harbour, state) = half_launched();
    harbour.fake.fails = None;
    let (state, report, _) = harbour.roll(state, &exporting(2, true));
    assert_eq!((report.state.as_str(), state.deployed.contains_key(POOL)), ("succeeded", true));
    assert_eq!(state.unfinished, BTreeMap::new());
}

/// CloudFormation waits until the group of a new stack is stable; meanwhile nothing else would complete the hooks of its machines.
#[test]
fn p6_the_group_of_a_stack_that_is_being_made_is_looked_at_while_it_is() {
    let mut harbour = Harbour::empty();
    let wanted = harbour.plan(&Rollout::new("c"), &exporting(1, true));
    let mut open = Rollout::new("c");
    while !harbour.fake.log.contains(&"execute c-pool-a".to_owned()) {
        open = harbour.wake(open, &wanted, None).0;
    }
    assert!(!open.deployed.contains_key(POOL));
    let look = to_observe(&open, None, at(0));
    assert!(look.groups.contains(POOL) && look.groups.contains("c-pool-b"), "{:?}", look.groups);
    assert!(!look.groups.contains("c-network"));
}

#[test]
fn p6_what_was_taken_away_has_no_machines_that_anybody_sees_to() {
    let (_, state) = Harbour::launched();
    let gone = Rollout { deployed: BTreeMap::new(), ..state };
    assert!(gone.last.as_ref().unwrap().steps.iter().any(|step| step.stack == POOL));
    assert!(!gone.drains(POOL) && gone.groups_to_observe(at(0)).is_empty());
}

/// Finding 12 of issue 17: the solution is another upload, which first deletes the rest of the failed creation, with retained machines.
#[test]
fn a_creation_that_failed_in_whatever_way_is_deleted_and_made_again_by_the_next_upload() {
    for status in [StackStatus::RollbackComplete, StackStatus::CreateFailed, StackStatus::RollbackFailed] {
        let (mut harbour, state) = half_launched();
        harbour.fake.fails = None;
        harbour.fake.stacks.insert(POOL.to_owned(), status);
        let mut again = harbour.plan(&state, &exporting(1, true));
        again.desired.spec_version = "v2".to_owned();
        harbour.fake.log.clear();
        let (state, report) = harbour.fake.run(state, &again, None, false);
        assert_eq!(report.state.as_str(), "succeeded", "{status:?}: {}", report.message);
        let place = |what: &str| harbour.fake.log.iter().position(|line| line == what);
        assert!(
            place("delete c-pool-a").is_some() && place("delete c-pool-a") < place("change set c-pool-a")
        );
        assert!(state.deployed.contains_key(POOL));
    }
    // A stack that exists and cannot continue is reported with a help, and nothing is deleted.
    for (status, cure) in [
        (StackStatus::UpdateRollbackFailed, "continue-update-rollback`, with `--resources-to-skip`"),
        (StackStatus::DeleteFailed, "delete the stack by hand"),
    ] {
        let (mut harbour, state) = Harbour::launched();
        let wanted = harbour.plan(&state, &exporting(2, true));
        harbour.fake.change_sets.clear();
        harbour.fake.stacks.insert("c-network".to_owned(), status);
        harbour.fake.log.clear();
        let (_, report) = harbour.fake.run(state, &wanted, None, false);
        assert!(report.state.as_str() == "failed" && report.message.contains(cure), "{}", report.message);
        assert!(!harbour.fake.log.iter().any(|line| line.starts_with("delete")), "{:?}", harbour.fake.log);
    }
}

#[test]
fn p6_a_machine_of_a_stack_that_is_being_made_is_let_go_at_once_unless_it_served() {
    let (_, failed) = half_launched();
    // While the launch is open, and after it has failed.
    let mut harbour = Harbour::empty();
    let wanted = harbour.plan(&Rollout::new("c"), &exporting(1, true));
    let mut open = Rollout::new("c");
    while !harbour.fake.log.contains(&"execute c-pool-a".to_owned()) {
        open = harbour.wake(open, &wanted, None).0;
    }
    assert!(open.active().is_some());
    for state in [open, failed] {
        for hold in [Lifecycle::TerminatingWait, Lifecycle::Retained] {
            for (said, goes) in [
                (None, true),
                (Some(("working", false)), true),
                (Some(("given-up", false)), true),
                (Some(("given-up", true)), false),
                (Some(("healthy", true)), false),
            ] {
                let decision = seen(&state, group(POOL, hold), said);
                assert_eq!(lets_go(&decision), goes, "{hold:?} {said:?}: {:?}", decision.effects);
                let one = &decision.next.departures["i-1"];
                assert_eq!(matches!(one.state, DepartureState::Leave { .. }), goes, "{one:?}");
                assert!(!one.is_of_a_rollout());
            }
        }
    }
}

/// Its terminate hook timed out before it was drained. It is drained and terminated now; then the pool is deleted.
#[test]
fn p6_a_machine_that_the_group_of_a_pool_has_retained_is_drained_and_terminated_before_the_pool_goes() {
    let (mut harbour, mut state) = Harbour::launched();
    let wanted = harbour.plan(&state, &without_pool(exporting(1, true)));
    harbour.fake.log.clear();
    let (mut is_there, mut told) = (true, Vec::new());
    for minute in 1..60 {
        state = without_a_look(state);
        let look = to_observe(&state, Some(&wanted), at(minute));
        let mut observed = harbour.fake.observe(&look, Some(&wanted));
        let mut controllers = group("c-control-plane", Lifecycle::InService);
        let machine = controllers.machines.remove("i-1").unwrap();
        controllers.machines.insert("i-cp".to_owned(), machine);
        observed.groups.insert(controllers.name.clone(), Some(controllers));
        if is_there {
            observed.groups.insert(POOL.to_owned(), Some(group(POOL, Lifecycle::Retained)));
        }
        for command in &look.commands {
            let drained = DrainRecord::new("i-1").answer(true);
            let answer = Some(CommandView::Answered(drained.into()));
            observed.answers.insert(command.token.clone(), answer);
        }
        let decision = decide(&state, &observed, at(minute));
        let mut others = Vec::new();
        for effect in decision.effects {
            if let Effect::Send(command) = &effect {
                told.push(command.verb.document());
            } else if let Effect::Terminate { instance, .. } = &effect {
                told.push("terminate");
                assert_eq!(instance, "i-1");
                is_there = false;
            } else {
                others.push(effect);
            }
        }
        let deletes = others.iter().any(|effect| matches!(effect, Effect::DeleteStack { .. }));
        assert!(!(is_there && deletes), "{told:?}");
        harbour.fake.perform(&others);
        state = Rollout { outbox: Vec::new(), ..decision.next };
    }
    assert_eq!(told, ["Slipway-Drain", "terminate"]);
    assert!(harbour.fake.log.contains(&"delete c-pool-a".to_owned()), "{:?}", harbour.fake.log);
    assert!(state.active().is_none() && state.departures.is_empty());
}

/// In an existing stack, a report may be lost, and there may be pods.
#[test]
fn p6_a_machine_of_a_stack_that_stands_is_drained_unless_it_said_that_it_never_served() {
    let (_, state) = half_launched();
    for (said, goes) in [(None, false), (Some(("working", false)), true), (Some(("working", true)), false)] {
        let decision = seen(&state, group("c-pool-b", Lifecycle::TerminatingWait), said);
        assert_eq!(lets_go(&decision), goes, "{said:?}");
    }
}

#[test]
fn p8_what_is_on_its_way_out_while_nothing_is_rolled_out_has_its_tick_and_is_mentioned() {
    let (_, state) = half_launched();
    for hold in [Lifecycle::TerminatingWait, Lifecycle::Retained] {
        let decision = seen(&state, group("c-pool-b", hold), None);
        assert!(decision.effects.contains(&Effect::ArmTick), "{:?}", decision.effects);
        assert!(
            decision.next.needs_tick() && decision.report.message.contains("i-1"),
            "{:?}",
            decision.report
        );
        // Once the machine is gone, so is the tick.
        let mut observed = Observed::default();
        let empty = GroupView { machines: BTreeMap::new(), ..group("c-pool-b", hold) };
        observed.groups.insert("c-pool-b".to_owned(), Some(empty));
        let after = decide(&Rollout { outbox: Vec::new(), ..decision.next }, &observed, at(1));
        assert_eq!(after.effects, [Effect::DisarmTick]);
        assert!(!after.next.needs_tick());
    }
    // A group of somebody else with that name is not changed, nor is a machine in service.
    let theirs = GroupView { tags: BTreeMap::new(), ..group("c-pool-b", Lifecycle::Retained) };
    for view in [theirs, group("c-pool-b", Lifecycle::InService)] {
        assert!(seen(&state, view, None).effects.is_empty());
    }
}

#[test]
fn p10_a_deletion_that_cloudformation_refuses_ends_what_wanted_it_and_is_tried_again_when_asked() {
    let (mut harbour, state) = Harbour::launched();
    let mut without = exporting(1, true);
    without.stacks.retain(|stack| stack.name != POOL);
    without.roles.remove(&Role::Pool("a".to_owned()));
    let wanted = harbour.plan(&state, &without);
    let mut open = state;
    let deletes = |effect: &Effect| matches!(effect, Effect::DeleteStack { .. });
    let told = loop {
        let look = to_observe(&open, Some(&wanted), at(0));
        let decision = decide(&open, &harbour.fake.observe(&look, Some(&wanted)), at(0));
        if decision.effects.iter().any(deletes) {
            break decision.next;
        }
        harbour.fake.perform(&decision.effects);
        open = Rollout { outbox: Vec::new(), ..decision.next };
    };
    let id = told.outbox.iter().find(|one| deletes(&one.effect)).unwrap().id;
    let end = |outcome: EffectOutcome| {
        let state = Rollout { outbox: Vec::new(), ..told.clone().recorded(&[(id, outcome)]) };
        let look = to_observe(&state, Some(&wanted), at(1));
        decide(&state, &harbour.fake.observe(&look, Some(&wanted)), at(1))
    };
    let refused = end(EffectOutcome::Refused("CloudFormation refuses c-pool-a: in use".to_owned()));
    assert_eq!(refused.report.state.as_str(), "failed");
    assert!(refused.report.message.contains("c-pool-a: in use"), "{}", refused.report.message);
    assert!(refused.next.deployed.contains_key(POOL), "it stands");
    // A call that was too late is made again.
    let dropped = end(EffectOutcome::Dropped);
    assert!(dropped.effects.iter().any(deletes), "{:?}", dropped.effects);
}
