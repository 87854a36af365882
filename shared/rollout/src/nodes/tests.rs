//! Rules for all node steps: whose turn it is, what is observed, and what is reverted if nothing was done.

mod controllers;
mod dock;
mod leavers;
mod members;
mod pools;
mod removals;
mod table;
mod workers;

use serde_json::{Value, json};

use super::super::Rollout;
use super::*;
use slipway_core::cluster::Pace;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn open(state: Value) -> Value {
    json!({"open": {"state": state}})
}

fn done(skipped: bool) -> Value {
    json!({"done": {"skipped": skipped}})
}

fn removal(phase: Value) -> Value {
    json!({"removal": {"pace": Pace::default(), "phase": phase}})
}

fn workers(phase: Value) -> Value {
    json!({"workers": {"size": 1, "most": 2, "pace": Pace::default(), "phase": phase}})
}

fn pool_refresh(phase: Value) -> Value {
    json!({"poolRefresh": {"credentials": "new", "pace": Pace::default(), "phase": phase}})
}

fn look_state() -> Value {
    open(json!({"look": {}}))
}

/// Failed commands of that document in the work on the machine of member 0.
fn tries(document: &str, tried: Value) -> Value {
    json!({"machine": "i-0", "byDocument": {document: tried}})
}

/// The same, and its leadership could not be moved.
fn keeps_leadership(tries: &Value) -> Value {
    let mut tries = tries.clone();
    tries["keepsLeadership"] = json!(true);
    tries
}

/// The step of a role; the group has the role's name.
fn step(role: &str, task: Value) -> NodeStep {
    let step = json!({
        "role": role, "stack": format!("c-{role}"), "group": format!("c-{role}"), "rounds": 0, "task": task,
    });
    serde_json::from_value(step).unwrap()
}

fn nodes_with(steps: Vec<NodeStep>) -> Nodes {
    Nodes { steps, ..Nodes::default() }
}

fn sent_command(token: &str) -> Value {
    json!({
        "role": "pool-a", "command": {"token": token, "instance": "i-1", "verb": "status"}, "at": NOW,
    })
}

/// A pool whose stack is being deleted.
fn deleting(role: &str) -> NodeStep {
    step(role, removal(open(json!("delete"))))
}

#[test]
fn p8_nodes_that_are_to_be_worked_on_are_kept_with_the_rollout_that_is_open() {
    for (steps, is_none) in [(Vec::new(), true), (vec![deleting("pool-a")], false)] {
        let nodes = nodes_with(steps);
        assert_eq!(nodes.is_none(), is_none);
        let active = json!({
            "plan": "p", "specVersion": "v1", "target": "t", "startedAt": NOW, "changeSet": "s", "steps": [],
            "nodesByHand": 0, "stacksByHand": [], "nodes": nodes,
        });
        let active: Active = serde_json::from_value(active).unwrap();
        let mut state = Rollout::new("c");
        state.put_active(active);
        let written = serde_json::to_value(&state).unwrap();
        assert_eq!(written["activity"]["rollingOut"].get("nodes").is_none(), is_none);
        assert_eq!(serde_json::from_value::<Rollout>(written).unwrap(), state);
    }
}

#[test]
fn a_pool_has_its_turn_once_all_that_come_before_it_are_done_and_whether_or_not_others_are() {
    let pool = |name: &str, phase: Value, after: &[&str]| NodeStep {
        after: after.iter().map(|name| Role::Pool((*name).to_owned())).collect(),
        ..step(&format!("pool-{name}"), workers(phase))
    };
    let nodes = nodes_with(vec![
        pool("a", look_state(), &[]),
        pool("b", look_state(), &["a"]),
        pool("c", look_state(), &["d"]),
        pool("d", done(false), &[]),
        pool("e", look_state(), &["d", "a"]),
        pool("f", look_state(), &[]),
    ]);
    assert_eq!(nodes.turns(), [0, 2, 5]);
    // Steps other than pools are worked on alone.
    let controllers = json!({"controllers": {"work": "replace", "size": 1, "phase": look_state()}});
    let alone = nodes_with(vec![step("controller", controllers), pool("a", look_state(), &[])]);
    assert_eq!(alone.turns(), [0]);
}

#[test]
fn of_the_pools_that_may_go_first_ten_are_worked_on() {
    let all = (0..12).map(|at| step(&format!("pool-{at}"), workers(look_state())));
    assert_eq!(nodes_with(all.collect()).turns(), Vec::from_iter(0..10));
}

#[test]
fn what_was_left_as_it_is_is_not_told_as_done() {
    let nodes = nodes_with(vec![
        step("pool-a", workers(done(true))),
        step("pool-b", workers(done(false))),
        step("pool-c", workers(look_state())),
        step("pool-d", workers(json!({"failed": "no"}))),
    ]);
    let words = nodes.words(&BTreeMap::new());
    let words: Vec<&str> = words.values().map(String::as_str).collect();
    assert_eq!(words, ["skipped by order of a person", "done", "waits for its turn", "no"]);
}

#[test]
fn p6_workers_of_a_group_that_cloudformation_takes_down_are_looked_at() {
    let nodes = nodes_with(vec![step("pool-a", removal(open(json!("empty")))), deleting("pool-b")]);
    assert_eq!(Vec::from_iter(nodes.groups_that_go()), ["c-pool-b"]);
}

#[test]
fn a_stack_is_kept_where_its_pool_was_to_go_and_a_machine_of_it_was_left() {
    let nodes = nodes_with(vec![
        step("pool-a", removal(done(true))),
        step("pool-b", removal(done(false))),
        step("pool-c", workers(done(true))),
        deleting("pool-d"),
    ]);
    assert_eq!(Vec::from_iter(nodes.stacks_of_skipped()), ["c-pool-a"]);
    assert_eq!(nodes.deleted_pools().map(|step| step.stack.as_str()).collect::<Vec<_>>(), ["c-pool-b"]);
}

#[test]
fn p10_that_one_stack_was_not_deleted_or_could_not_be_says_nothing_of_another_or_of_what_is_over() {
    let all = || {
        nodes_with(vec![
            deleting("pool-a"),
            deleting("pool-b"),
            NodeStep { stack: "c-pool-a".to_owned(), ..step("pool-c", removal(done(false))) },
        ])
    };
    let places = |nodes: &Nodes| nodes.steps.iter().map(NodeStep::place).collect::<Vec<_>>();
    let mut nodes = all();
    nodes.not_deleted("c-pool-a");
    assert_eq!(places(&nodes), [Place::Empty, Place::Delete, Place::Done]);
    let mut nodes = all();
    nodes.record_deletion_refusal("c-pool-a", "in use");
    assert_eq!(places(&nodes), [Place::Failed, Place::Delete, Place::Done]);
    assert_eq!(nodes.failure().as_deref(), Some("pool-a: in use"));
}

#[test]
fn p10_of_workers_that_take_credentials_together_the_one_that_was_not_told_is_left_and_the_others_answer() {
    let refreshing =
        |round: Value| nodes_with(vec![step("pool-a", pool_refresh(open(json!({"refresh": round}))))]);
    let tokens = |nodes: &Nodes| {
        nodes.steps[0].commands().iter().map(|one| one.command.token.clone()).collect::<Vec<_>>()
    };
    let mut nodes = refreshing(json!([sent_command("1"), sent_command("2"), sent_command("3")]));
    nodes.not_refreshed("2");
    assert_eq!(
        (tokens(&nodes), nodes.steps[0].place()),
        (vec!["1".to_owned(), "3".to_owned()], Place::Refresh)
    );
    nodes.not_refreshed("9");
    assert_eq!(tokens(&nodes), ["1", "3"], "that is none of them");
    // If no other machine was asked, none would answer.
    let mut nodes = refreshing(json!([sent_command("1")]));
    nodes.not_refreshed("9");
    assert_eq!(nodes.steps[0].place(), Place::Refresh);
    nodes.not_refreshed("1");
    assert_eq!(nodes.steps[0].place(), Place::Look);
}

#[test]
fn p4_members_are_looked_at_where_one_is_worked_on_or_a_snapshot_is_to_be_taken_and_nowhere_else() {
    let controllers = json!({"controllers": {"work": "replace", "size": 1, "phase": look_state()}});
    let member = json!({"memberReplace": {"work": {}, "phase": look_state()}});
    let to_another_minor =
        |step: NodeStep| NodeStep { minor: Some("Kubernetes 1.36 → 1.37".to_owned()), ..step };
    for (step, groups) in [
        (step("controller", controllers.clone()), &["c-controller"][..]),
        (to_another_minor(step("controller", controllers)), &["c-controller", "c-etcd-0"]),
        (to_another_minor(step("pool-a", workers(look_state()))), &["c-control-plane", "c-pool-a"]),
        // Controllers drain workers; other steps send them nothing.
        (step("pool-a", workers(look_state())), &["c-control-plane", "c-pool-a"]),
        (step("pool-a", removal(open(json!("empty")))), &["c-control-plane", "c-pool-a"]),
        (step("pool-a", pool_refresh(look_state())), &["c-pool-a"]),
        (step("etcd-1", member), &["c-etcd-0", "c-etcd-1"]),
    ] {
        let nodes = Nodes {
            members: BTreeMap::from([(Role::Etcd(0), "c-etcd-0".to_owned())]),
            controllers: Some("c-control-plane".to_owned()),
            ..nodes_with(vec![step])
        };
        let mut look = ToObserve::default();
        nodes.to_observe(false, NOW, &mut look);
        assert_eq!(Vec::from_iter(look.groups), groups, "{:?}", nodes.steps);
    }
}
