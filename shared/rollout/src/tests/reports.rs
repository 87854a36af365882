//! The state of a cluster, as it is reported to people and stored.

use serde_json::{Value, json};

use super::decisions::{NOW, done, look_state, node, rolling, seen, stack, workers};
use super::*;

fn text(stacks: &[(&str, &str)]) -> BTreeMap<String, String> {
    stacks.iter().map(|(stack, words)| ((*stack).to_owned(), (*words).to_owned())).collect()
}

/// The report without a decision.
fn report(state: &Rollout) -> Report {
    decide(state, &Observed::default(), NOW).report
}

fn network(state: Value) -> Value {
    stack("c-network", "network", state)
}

#[test]
fn a_cluster_that_nothing_was_done_for_is_idle() {
    let idle = Report {
        state: RolloutState::Idle,
        message: "nothing was rolled out yet".to_owned(),
        ..Report::default()
    };
    assert_eq!(report(&Rollout::new("c")), idle);
}

#[test]
fn what_was_destroyed_or_called_off_is_reported_with_its_generation_and_its_words() {
    let gone = json!({"destroyed": {"at": NOW, "message": "every stack is gone"}});
    let off = json!({"destructionAborted": {"at": NOW, "message": "it was aborted"}});
    for (activity, state, message, left) in [
        (gone, RolloutState::Destroyed, "every stack is gone", &[][..]),
        (off, RolloutState::Aborted, "it was aborted", &["c-pool-b"]),
    ] {
        let rollout = Rollout {
            generation: 4,
            activity: serde_json::from_value(activity).unwrap(),
            orphaned: text(&[("c-pool-b", "t")]),
            ..Rollout::new("c")
        };
        let reported = Report {
            state,
            generation: 4,
            message: message.to_owned(),
            orphaned: left.iter().map(|stack| (*stack).to_owned()).collect(),
            ..Report::default()
        };
        assert_eq!(report(&rollout), reported);
    }
}

#[test]
fn a_rollout_that_has_ended_is_reported_with_what_became_of_each_stack() {
    let steps = [
        stack("c-a", "network", json!("waiting")),
        stack("c-b", "network", json!("changeSet")),
        stack("c-c", "network", json!("executing")),
        stack("c-d", "network", json!("done")),
        stack("c-e", "network", json!({"failed": "no room"})),
    ];
    let last = json!({
        "plan": "p", "specVersion": "v1", "target": "t", "result": "failed", "message": "no room", "endedAt": NOW, "steps": steps,
    });
    let last = Some(serde_json::from_value(last).unwrap());
    let reported = Report {
        state: RolloutState::Failed,
        generation: 4,
        plan: Some("p".to_owned()),
        message: "no room".to_owned(),
        stacks: text(&[
            ("c-a", "waits for its turn"),
            ("c-b", "the change set was requested"),
            ("c-c", "CloudFormation is at work"),
            ("c-d", "done"),
            ("c-e", "no room"),
        ]),
        ..Report::default()
    };
    assert_eq!(report(&Rollout { generation: 4, last, ..Rollout::new("c") }), reported);
}

#[test]
fn an_open_rollout_is_reported_with_how_many_stacks_are_done() {
    let steps = [
        network(json!("done")),
        stack("c-etcd", "etcd", json!("done")),
        stack("c-control-plane", "control-plane", json!("executing")),
    ];
    let busy = seen(&[("c-control-plane", StackStatus::UpdateInProgress)]);
    let decision = decide(&rolling(&steps, &[]), &busy, NOW);
    let report = decision.report;
    let message = "c-control-plane: CloudFormation is at work (UPDATE_IN_PROGRESS) (2 of 3 stacks done)";
    assert_eq!((report.state.as_str(), report.message.as_str()), ("running", message));
    // The status and the event name the next command.
    let command =
        "`aws cloudformation describe-stack-events --stack-name c-control-plane` shows how far it is";
    assert_eq!(report.next.as_deref(), Some(command));
    let told = decision.effects.iter().find_map(|effect| {
        let Effect::Publish(Event::RolloutWaiting(event) | Event::RolloutStep(event)) = effect else {
            return None;
        };
        event.next.clone()
    });
    assert_eq!(told.as_deref(), Some(command));
}

/// Whoever aborts looks at the status next: the end comes by itself, and the spec has to be applied again.
#[test]
fn p10_an_abort_that_waits_for_cloudformation_says_that_nothing_has_to_be_done_and_what_continues() {
    let mut state = rolling(&[network(json!("executing"))], &[]);
    state.active_mut().unwrap().aborted = Some(NOW);
    let report = decide(&state, &seen(&[("c-network", StackStatus::UpdateInProgress)]), NOW).report;
    let next =
        "nothing has to be done; when it has ended, `slipway apply cluster.yaml --cluster c` continues";
    assert_eq!((report.state.as_str(), report.next.as_deref()), ("aborting", Some(next)));
}

/// The look at the whole cluster renews no role.
#[test]
fn an_open_rollout_is_reported_with_how_many_roles_nodes_are_done() {
    let looks = json!({"closing": {"groups": {}, "phase": {"open": {"state": {"check": []}}}}});
    let nodes = [
        node("pool-a", workers(done(false))),
        node("pool-b", workers(look_state())),
        node("controller", looks),
    ];
    let message = decide(&rolling(&[], &nodes), &Observed::default(), NOW).report.message;
    assert!(message.ends_with("(0 of 0 stacks done, 1 of 2 roles' nodes)"), "{message}");
}

#[test]
fn a_rollout_that_succeeded_names_nodes_and_stacks_that_it_left_and_only_where_it_left_any() {
    for (nodes_by_hand, message) in [
        (0, "1 of 1 stacks are as planned"),
        (
            2,
            "1 of 1 stacks are as planned; 2 nodes still run the previous release: this version of Slipway does not replace them, \
             so replace them one at a time by terminating them after a drain",
        ),
    ] {
        let mut state = rolling(&[network(json!("done"))], &[]);
        state.active_mut().unwrap().nodes_by_hand = nodes_by_hand;
        let report = report(&state);
        assert_eq!((report.state.as_str(), report.message.as_str()), ("succeeded", message));
    }
}

/// An abort ends the rollout: if machines of another minor may exist already, it says so.
#[test]
fn p10_an_abort_says_how_many_stacks_are_done_and_that_a_minor_that_has_begun_goes_on() {
    let minor = |state: &str| {
        let mut pool = node("pool-a", workers(look_state()));
        pool["minor"] = json!("Kubernetes 1.36 → 1.37");
        let steps = [
            network(json!("done")),
            stack("c-etcd", "etcd", json!("waiting")),
            stack("c-pool-a", "pool", json!(state)),
        ];
        let mut state = rolling(&steps, &[pool, node("pool-b", workers(done(false)))]);
        state.active_mut().unwrap().aborted = Some(NOW);
        report(&state).message
    };
    let forward = "; Kubernetes 1.36 → 1.37 has begun, so the cluster can only go forward";
    for (state, done, says) in [("waiting", 1, ""), ("changeSet", 1, ""), ("done", 2, forward)] {
        let message = format!(
            "aborted: {done} of 3 stacks are as planned, the others as they were; upload the spec again to continue{says}"
        );
        assert_eq!(minor(state), message, "{state}");
    }
}

#[test]
fn an_event_has_the_words_of_the_report_as_far_as_they_fit() {
    let ends = |why: &str| {
        let decision = decide(&rolling(&[network(json!({"failed": why}))], &[]), &Observed::default(), NOW);
        let mut said = Vec::new();
        for effect in &decision.effects {
            if let Effect::Publish(event) = effect {
                said.push(serde_json::from_str::<Value>(&event.to_wire().1).unwrap());
            }
        }
        assert_eq!((decision.report.message.as_str(), said.len()), (why, 1));
        said[0]["message"].as_str().unwrap().to_owned()
    };
    assert_eq!(ends("no room"), "no room");
    assert_eq!(ends(&"é".repeat(8_000)), "é".repeat(8_000));
    assert_eq!(ends(&"é".repeat(8_001)), "é".repeat(8_000) + "… (the whole is in status.json)");
}

#[test]
fn p8_a_state_of_an_older_format_is_written_in_this_one_and_a_newer_is_not_read() {
    let read = |format: u32| {
        let mut written = serde_json::to_value(Rollout::new("c")).unwrap();
        written["format"] = json!(format);
        serde_json::from_value::<Rollout>(written)
    };
    for format in 1..=Rollout::FORMAT {
        let state = read(format).unwrap();
        assert_eq!(state.format, format);
        assert_eq!(decide(&state, &Observed::default(), NOW).next.format, Rollout::FORMAT);
    }
    let why = read(Rollout::FORMAT + 1).unwrap_err().to_string();
    assert!(why.starts_with("format 5 is newer than 4"), "{why}");
}
