//! The properties of every state of every kind of work, and what happens to it if its rollout is stopped.

use serde::de::DeserializeOwned;

use super::super::machine::{Open, State};
use super::dock::*;
use super::*;

/// A state, its name, its machine, the tokens of the commands that it waits for, and whether it should be completed.
type Row = (Value, Place, Option<&'static str>, &'static [&'static str], bool);

/// Whether `rows` are all states of that kind of work, with these properties.
fn check_states<S: State + DeserializeOwned>(rows: Vec<Row>) {
    let mut names = vec![Place::Done.name(), Place::Failed.name()];
    for (state, place, machine, sent, is_busy) in rows {
        let mut phase: Phase<S> = serde_json::from_value(open(state.clone())).unwrap();
        assert_eq!(phase.place(), place, "{state}");
        assert_eq!(phase.machine().map(String::as_str), machine, "{state}");
        assert_eq!(phase.is_busy(), is_busy, "{state}");
        let tokens =
            |sent: &[SentCommand]| sent.iter().map(|one| one.command.token.clone()).collect::<Vec<_>>();
        assert_eq!(tokens(phase.commands()), sent, "{state}");
        assert_eq!(tokens(phase.commands_mut()), sent, "{state}");
        names.push(place.name());
    }
    let mut known: Vec<&str> = S::TRANSITIONS.iter().map(|way| way.from).collect();
    names.sort_unstable();
    known.sort_unstable();
    assert_eq!(names, known, "each state of the table, by its name");
}

/// A command to the machine i-1; its token is i-1.
fn one() -> Value {
    asks(1, &json!("status"), 0)
}

fn of_machine(name: &str, field: &str, value: Value) -> Value {
    json!({name: {"machine": "i-0", field: value}})
}

const ALL: &[&str] = &["i-0", "i-1", "i-2"];

#[test]
fn each_state_tells_where_it_is_on_which_machine_whom_it_asked_and_whether_it_had_better_be_ended() {
    let of_a_member = || -> Vec<Row> {
        vec![
            (json!({"look": {}}), Place::Look, None, &[], false),
            (of_machine("snapshot", "sent", one()), Place::Snapshot, Some("i-0"), &["i-1"], false),
            (of_machine("check", "round", round(0)), Place::Check, Some("i-0"), ALL, false),
            (json!({"verify": round(0)}), Place::Verify, None, ALL, true),
        ]
    };
    let mut rows = of_a_member();
    rows.push((json!({"act": {"moveLeader": one()}}), Place::MoveLeader, Some("i-1"), &["i-1"], false));
    let successor = json!({"act": {"successor": {"machine": "i-0"}}});
    rows.push((successor, Place::Successor, Some("i-0"), &[], true));
    check_states::<MemberState<Replacing>>(rows);
    let mut rows = of_a_member();
    rows.push((json!({"act": {"refresh": one()}}), Place::Refresh, Some("i-1"), &["i-1"], true));
    check_states::<MemberState<Refreshing>>(rows);
    check_states::<SaverState>(vec![
        (json!("look"), Place::Look, None, &[], false),
        (json!({"snapshot": one()}), Place::Snapshot, None, &["i-1"], false),
    ]);
    check_states::<LeaverState>(vec![
        (json!("look"), Place::Look, None, &[], false),
        (of_machine("snapshot", "sent", one()), Place::Snapshot, Some("i-0"), &["i-1"], false),
        (of_machine("check", "round", round(0)), Place::Check, Some("i-0"), ALL, false),
        (json!({"moveLeader": one()}), Place::MoveLeader, Some("i-1"), &["i-1"], false),
        (of_machine("remove", "sent", one()), Place::Remove, Some("i-0"), &["i-1"], true),
        (json!({"verify": round(0)}), Place::Verify, None, ALL, true),
    ]);
    check_states::<ControllersState>(vec![
        (json!({"look": {}}), Place::Look, None, &[], false),
        (of_machine("check", "round", round(0)), Place::Check, Some("i-0"), ALL, false),
        (of_machine("snapshot", "sent", one()), Place::Snapshot, Some("i-0"), &["i-1"], false),
        (json!({"refresh": one()}), Place::Refresh, Some("i-1"), &["i-1"], true),
        (json!("oneMore"), Place::OneMore, None, &[], true),
        (json!({"drain": {"machine": "i-0"}}), Place::Drain, Some("i-0"), &[], true),
        (json!({"leave": {"machine": "i-0"}}), Place::Leave, Some("i-0"), &[], true),
        (json!({"verify": round(0)}), Place::Verify, None, ALL, true),
    ]);
    check_states::<PoolRefreshState>(vec![
        (json!({"look": {}}), Place::Look, None, &[], false),
        (json!({"refresh": round(0)}), Place::Refresh, None, ALL, true),
    ]);
    check_states::<WorkersState>(vec![
        (json!({"look": {}}), Place::Look, None, &[], false),
        (json!({"roll": {"begun": {"i-0": "goes"}}}), Place::Roll, None, &[], true),
    ]);
    check_states::<ClosingState>(vec![(json!({"check": round(0)}), Place::Check, None, ALL, false)]);
    check_states::<RemovalState>(vec![
        (json!("empty"), Place::Empty, None, &[], false),
        (json!("delete"), Place::Delete, None, &[], true),
    ]);
}

fn controllers(state: Value, departs: Option<&str>) -> NodeStep {
    let task = json!({"work": "replace", "size": 1, "departs": departs, "phase": open(state)});
    step("controller", json!({"controllers": task}))
}

#[test]
fn a_controller_that_is_empty_and_about_to_go_is_waited_for_by_a_newer_spec() {
    let departs = Some("i-0");
    let check = || of_machine("check", "round", round(0));
    for (state, departs, is_busy) in [
        (check(), departs, true),
        (check(), None, false),
        (json!({"look": {}}), departs, false),
        (json!("oneMore"), None, true),
    ] {
        assert_eq!(controllers(state.clone(), departs).is_busy(), is_busy, "{state}");
    }
}

#[test]
fn p10_of_what_a_member_was_asked_a_snapshot_is_taken_back_where_the_rollout_ends_and_nothing_else() {
    let snapshot = asks(1, &json!("etcdSnapshot"), 0);
    let command = serde_json::from_value(snapshot["command"].clone()).unwrap();
    let taken_back = vec![Effect::Cancel(command)];
    for (step, effects) in [
        (step("etcd-0", json!({"saver": {"phase": open(json!({"snapshot": snapshot}))}})), taken_back),
        // The drain of a controller is cancelled together with its departure.
        (controllers(json!({"drain": {"machine": "i-0"}}), None), Vec::new()),
    ] {
        assert_eq!(nodes_with(vec![step]).called_off(&mut BTreeMap::new(), NOW), effects);
    }
}

#[test]
fn what_was_done_of_a_step_since_the_last_look_is_news() {
    let pool = |done: Value| {
        let refresh =
            json!({"credentials": "new", "pace": Pace::default(), "done": done, "phase": look_state()});
        step("pool-a", json!({"poolRefresh": refresh}))
    };
    let moved = |before: &NodeStep, after: &NodeStep| before.progress() != after.progress();
    let (none, one, two) = (pool(json!([])), pool(json!(["i-1"])), pool(json!(["i-1", "i-2"])));
    assert!(moved(&none, &one) && moved(&one, &two) && !moved(&one, &one));
    // The same state with another machine.
    let successor = |machine: &str| {
        let state = json!({"act": {"successor": {"machine": machine}}});
        step("etcd-0", json!({"memberReplace": {"work": {}, "phase": open(state)}}))
    };
    assert!(moved(&successor("i-0"), &successor("i-1")) && !moved(&successor("i-0"), &successor("i-0")));
}

/// What machines have installed in place, as a later plan takes it into account.
#[test]
fn the_credentials_that_a_role_has_installed_are_those_of_its_step_unless_one_was_skipped() {
    let refresh = |skipped: bool| {
        step(
            "pool-a",
            json!({"poolRefresh": {"credentials": "new", "pace": Pace::default(), "phase": done(skipped)}}),
        )
    };
    let of = |steps: Vec<NodeStep>, role: &str| {
        let role: Role = serde_json::from_value(json!(role)).unwrap();
        nodes_with(steps).refreshed_to(&role).map(str::to_owned)
    };
    assert_eq!(of(vec![refresh(false)], "pool-a").as_deref(), Some("new"));
    assert_eq!(of(vec![refresh(true)], "pool-a"), None);
    assert_eq!(of(vec![refresh(false)], "pool-b"), None);
    assert_eq!(of(vec![step("pool-a", workers(done(false)))], "pool-a"), None);
}

/// Of members that leave, the newest goes first; of members that are replaced, the oldest.
#[test]
fn p4_members_whose_turn_comes_later_have_the_same_kind_of_work() {
    let leaves = |role: &str| step(role, json!({"leaver": {"phase": open(json!("look"))}}));
    let replaced = |role: &str| step(role, json!({"memberReplace": {"work": {}, "phase": look_state()}}));
    let nodes = nodes_with(vec![
        leaves("etcd-4"),
        leaves("etcd-3"),
        replaced("etcd-0"),
        replaced("etcd-1"),
        step("pool-a", workers(look_state())),
    ]);
    let later =
        |at: usize| nodes.later_members(at).into_iter().map(|role| role.to_string()).collect::<Vec<_>>();
    assert_eq!(later(0), ["etcd-3"]);
    assert_eq!(later(1), Vec::<String>::new());
    assert_eq!(later(2), ["etcd-1"]);
    assert_eq!(later(3), Vec::<String>::new());
}
