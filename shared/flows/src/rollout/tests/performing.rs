//! The outbox: what is performed, what no longer, and what a refusal means.

use slipway_core::release::AddonsPointer;
use slipway_rollout::{ChangeSetRequest, Switch};

use super::*;

fn pointer(generation: u64) -> AddonsPointer {
    let pointer = json!({"format": 1, "generation": generation, "release": "r", "digest": "d"});
    serde_json::from_value(pointer).unwrap()
}

fn request() -> ChangeSetRequest {
    ChangeSetRequest {
        stack: "c-network".to_owned(),
        name: "n".to_owned(),
        create: true,
        template_key: TEMPLATE_KEY.to_owned(),
        tags: BTreeMap::new(),
    }
}

fn deletes() -> Effect {
    let (stack, id, token) = ("c-pool-a".to_owned(), "arn:c-pool-a".to_owned(), "t".to_owned());
    Effect::DeleteStack { stack, id, stands: true, token }
}

fn drains() -> Effect {
    Effect::Send(command(Verb::Drain { node: "i-1".to_owned(), for_s: 600, force_after_s: None }))
}

/// Each effect, the call that it is, and whether it changes what runs or begins something.
fn each() -> Vec<(Effect, &'static str, bool)> {
    let drop = Effect::DeleteChangeSet { stack: "c-network".to_owned(), name: "n".to_owned() };
    vec![
        (Effect::CreateChangeSet(request()), "create c-network", true),
        (executes("c-network"), "execute c-network", true),
        (drop, "drop c-network", false),
        (deletes(), "delete arn:c-pool-a", true),
        (drains(), "send c/x/1/0", true),
        (Effect::Send(command(Verb::EtcdHealth)), "send c/x/1/0", false),
        (Effect::Send(command(Verb::EtcdSnapshot)), "send c/x/1/0", true),
        (Effect::Cancel(command(Verb::EtcdSnapshot)), "cancel c/x/1/0", false),
        (wants("c-pool-a", 3), "c-pool-a wants 3", true),
        (terminates("i-1"), "terminate i-1", true),
        (prolongs("i-1"), "prolong i-1", false),
        (completes("i-1"), "complete i-1", true),
        (Effect::ArmTick, "arm", false),
        (Effect::DisarmTick, "disarm", false),
        (step_event(), "publish Rollout Step", false),
    ]
}

#[tokio::test]
async fn p12_what_is_too_old_when_its_turn_comes_is_dropped_and_no_call_is_made() {
    for (effect, call, _) in each() {
        let pending = pending(7, effect, 0);
        let until = pending.evidence.unwrap().until;
        let shore = Shore::with(&Rollout { outbox: vec![pending.clone()], ..idle() });
        shore.passes(until.duration_since(at(0)).as_secs() + 1);
        assert_eq!(shore.attempts(&pending).await.unwrap(), EffectOutcome::Dropped, "{call}");
        assert_eq!(shore.log(), [""; 0], "{call}");

        // To the last moment it is done, and what carries no evidence is at any age.
        shore.passes(-1);
        assert_eq!(shore.attempts(&pending).await.unwrap(), EffectOutcome::Done, "{call}");
        assert_eq!(shore.done(), [call]);
        shore.passes(100_000);
        let ageless = Pending { evidence: None, ..pending };
        assert_eq!(shore.attempts(&ageless).await.unwrap(), EffectOutcome::Done, "{call}");
        assert_eq!(shore.done(), [call]);
    }
}

/// An invocation that stood still comes back when a person has said to stop, or others have gone on.
#[tokio::test]
async fn p10_p12_what_changes_what_runs_or_begins_is_dropped_once_it_is_no_longer_in_the_stored_outbox() {
    for (effect, call, is_dropped) in each() {
        let (pending, other) = (pending(7, effect.clone(), 0), pending(8, effect, 0));
        let withdrawn = Rollout { outbox: vec![other], ..rolling(json!("changeSet")) };
        let without_state = Shore::default();
        without_state.keeps_text(TEMPLATE_KEY, "{}");
        for shore in [Shore::with(&withdrawn), without_state] {
            let outcome = shore.attempts(&pending).await.unwrap();
            assert_eq!(outcome == EffectOutcome::Dropped, is_dropped, "{call}");
            assert_eq!(shore.done().is_empty(), is_dropped, "{call}");
        }
    }
}

#[tokio::test]
async fn p12_each_effect_is_held_against_the_clock_when_its_turn_comes() {
    let outbox = vec![pending(1, wants("a", 2), 0), pending(2, wants("b", 2), 0)];
    let shore = Shore::with(&Rollout { outbox, ..rolling(json!("executing")) });
    shore.has("c-network", StackStatus::CreateInProgress);
    shore.passes(60);
    shore.takes("a wants 2", 200);
    shore.wakes(Waker::Tick).await.unwrap();
    assert_eq!(shore.done(), ["a wants 2", "publish Rollout Waiting"]);
    assert!(shore.state().outbox.is_empty());
}

#[tokio::test]
async fn p10_what_a_service_refuses_is_told_in_its_words_and_what_may_work_later_is_no_refusal() {
    let pointing = Effect::PointAddons(pointer(1));
    let put = "put clusters/c/addons.json";
    for (effect, call, _) in each().into_iter().chain([(pointing, put, false)]) {
        let pending = Pending { evidence: None, ..pending(7, effect.clone(), 0) };
        let state = Rollout { outbox: vec![pending.clone()], ..rolling(json!("changeSet")) };
        let attempt = async |kind| {
            let shore = Shore::with(&state);
            shore.fails(call, kind);
            shore.attempts(&pending).await
        };
        for kind in [ErrorKind::Transient, ErrorKind::Denied] {
            let error = attempt(kind).await.unwrap_err();
            assert!(matches!(error, FlowError::Port(error) if error.kind == kind), "{call}");
        }
        let (invalid, missing) = (attempt(ErrorKind::Invalid).await, attempt(ErrorKind::Missing).await);
        let refused = |words: &str| Some(EffectOutcome::Refused(words.to_owned()));
        let (of_invalid, of_missing) = match &effect {
            Effect::CreateChangeSet(_) | Effect::ExecuteChangeSet { .. } => {
                (refused("CloudFormation refuses c-network: no"), Some(EffectOutcome::Dropped))
            }
            Effect::DeleteStack { .. } => {
                (refused("CloudFormation refuses c-pool-a: no"), Some(EffectOutcome::Dropped))
            }
            Effect::SetDesired { .. }
            | Effect::Terminate { .. }
            | Effect::ProlongTermination { .. }
            | Effect::CompleteTermination { .. } => {
                (refused("Auto Scaling refuses c-pool-a: no"), Some(EffectOutcome::Dropped))
            }
            Effect::Send(_) => (refused("no"), None),
            // Somebody has to see to it: what the node managers were told is part of the state.
            Effect::PointAddons(_) => (None, None),
            Effect::DeleteChangeSet { .. }
            | Effect::Cancel(_)
            | Effect::ArmTick
            | Effect::DisarmTick
            | Effect::Publish(_) => (Some(EffectOutcome::Done), None),
        };
        assert_eq!(invalid.ok(), of_invalid, "{call}");
        assert_eq!(missing.ok(), of_missing, "{call}");
    }
}

#[tokio::test]
async fn p10_after_a_refusal_nothing_else_begins_and_what_was_drained_is_let_go_all_the_same() {
    let effects = [
        terminates("i-1"),
        wants("c-pool-a", 3),
        Effect::CreateChangeSet(request()),
        completes("i-2"),
        step_event(),
    ];
    let outbox = (1..).zip(effects).map(|(id, effect)| pending(id, effect, 0)).collect();
    let shore = Shore::with(&Rollout { outbox, ..rolling(json!("executing")) });
    shore.has("c-network", StackStatus::CreateInProgress);
    shore.passes(60);
    shore.fails("terminate i-1", ErrorKind::Invalid);
    shore.wakes(Waker::Tick).await.unwrap();
    let done = shore.done();
    assert_eq!(done[..3], ["terminate i-1", "complete i-2", "publish Rollout Step"], "{done:?}");
    assert!(!done.iter().any(|line| line.contains("wants") || line.starts_with("create")), "{done:?}");
    assert!(shore.state().outbox.is_empty());
}

/// A controller whose agent does not run gets no drain; another one does.
#[tokio::test]
async fn p6_a_command_that_run_command_refuses_holds_up_no_other() {
    let drain = |token: &str| {
        let Effect::Send(command) = drains() else { unreachable!() };
        Effect::Send(Command { token: token.to_owned(), ..command })
    };
    let outbox = vec![pending(1, drain("one"), 0), pending(2, drain("two"), 0)];
    let shore = Shore::with(&Rollout { outbox, ..rolling(json!("executing")) });
    shore.has("c-network", StackStatus::CreateInProgress);
    shore.passes(60);
    shore.fails("send one", ErrorKind::Invalid);
    shore.wakes(Waker::Tick).await.unwrap();
    assert_eq!(shore.done()[..2], ["send one", "send two"]);
}

/// It is tried once by each invocation, holds up none of the others, and is there for the next.
#[tokio::test]
async fn p8_what_could_not_be_performed_stays_and_holds_up_nothing_that_was_decided_with_it() {
    let outbox =
        vec![pending(1, prolongs("i-1"), 0), pending(2, prolongs("i-2"), 0), pending(3, step_event(), 0)];
    let shore = Shore::with(&Rollout { outbox, ..rolling(json!("executing")) });
    shore.has("c-network", StackStatus::CreateInProgress);
    shore.passes(60);
    shore.fails("prolong i-1", ErrorKind::Transient);
    let error = shore.wakes(Waker::Tick).await.unwrap_err();
    assert!(error.is_transient());
    assert_eq!(shore.done(), ["prolong i-1", "prolong i-2", "publish Rollout Step"]);
    let left: Vec<u64> = shore.state().outbox.iter().map(|one| one.id).collect();
    assert_eq!(left, [1]);
    assert_eq!(shore.report(), None, "it may work later: nobody need be told");
    shore.works();
    shore.wakes(Waker::Tick).await.unwrap();
    assert_eq!(shore.done()[0], "prolong i-1");
    assert!(shore.state().outbox.is_empty());
}

/// The tick goes last: whoever it would have woken says what could not be said.
#[tokio::test]
async fn p8_the_tick_stays_while_anything_is_left_to_be_said_or_done() {
    for (effect, call) in [(step_event(), "publish Rollout Step"), (prolongs("i-1"), "prolong i-1")] {
        let outbox = vec![pending(1, effect, 0), pending(2, Effect::DisarmTick, 0)];
        let shore = Shore::with(&Rollout { outbox, ..idle() });
        shore.fails(call, ErrorKind::Transient);
        shore.wakes(Waker::Tick).await.unwrap_err();
        assert!(!shore.done().contains(&"disarm".to_owned()), "{call}");
        shore.works();
        shore.wakes(Waker::Event).await.unwrap();
        assert_eq!(shore.done(), [call, "disarm"]);
        assert!(!shore.state().is_open());
    }
}

/// What holds up nothing is no reason not to go on: it is an error of the invocation, in the end.
#[tokio::test]
async fn p8_what_could_not_be_said_is_an_error_once_all_else_is_done() {
    let shore =
        Shore::with(&Rollout { outbox: vec![pending(1, step_event(), 0)], ..rolling(json!("executing")) });
    shore.has("c-network", StackStatus::CreateComplete);
    shore.passes(60);
    shore.fails("publish Rollout Step", ErrorKind::Denied);
    let error = shore.wakes(Waker::Tick).await.unwrap_err();
    assert_eq!(error.kind(), "Slipway.test.Denied");
    assert!(shore.done().contains(&"publish Rollout Waiting".to_owned()), "it went on");
    assert!(shore.state().outbox.iter().any(|one| one.id == 1));
}

#[tokio::test]
async fn p8_a_tick_that_is_taken_away_late_is_given_back_to_what_was_begun_meanwhile() {
    let disarms = Pending { evidence: None, ..pending(7, Effect::DisarmTick, 0) };
    for (state, log) in [
        (rolling(json!("waiting")), &["disarm", "arm"][..]),
        (departing(), &["disarm", "arm"]),
        (idle(), &["disarm"]),
    ] {
        let shore = Shore::with(&state);
        assert_eq!(shore.attempts(&disarms).await.unwrap(), EffectOutcome::Done);
        assert_eq!(shore.done(), log);
    }
}

#[tokio::test]
async fn p8_whoever_comes_back_late_does_not_bring_older_add_ons_back() {
    let key = keys::addons_pointer("c");
    let shore = Shore::with(&idle());
    let point = async |generation| {
        let pending = Pending { evidence: None, ..pending(7, Effect::PointAddons(pointer(generation)), 0) };
        assert_eq!(shore.attempts(&pending).await.unwrap(), EffectOutcome::Done);
        shore.kept::<AddonsPointer>(&key).unwrap().generation
    };
    assert_eq!([point(2).await, point(1).await, point(3).await], [2, 2, 3]);
}

#[tokio::test]
async fn p8_what_was_performed_is_recorded_though_others_write_meanwhile() {
    let outbox = vec![pending(1, prolongs("i-1"), 0)];
    let shore = Shore::with(&Rollout { outbox, ..rolling(json!("executing")) });
    shore.has("c-network", StackStatus::CreateInProgress);
    shore.passes(60);
    shore.is_raced(&keys::rollout("c"));
    shore.wakes(Waker::Tick).await.unwrap();
    assert!(shore.state().outbox.is_empty(), "{:?}", shore.state().outbox);
    assert_eq!(shore.done().iter().filter(|line| *line == "prolong i-1").count(), 1);
}

#[tokio::test]
async fn p10_an_order_that_comes_while_effects_are_performed_is_kept_when_they_are_recorded() {
    let begun = Rollout { outbox: vec![pending(1, prolongs("i-1"), 0)], ..rolling(json!("executing")) };
    let shore = Shore::with(&begun);
    shore.has("c-network", StackStatus::CreateInProgress);
    shore.passes(60);
    let switch = Some(Switch { paused: true, at: at(55) });
    shore.is_raced_by(&keys::rollout("c"), &Rollout { switch: switch.clone(), ..begun });
    shore.wakes(Waker::Tick).await.unwrap();
    let kept = shore.state();
    assert_eq!(kept.switch, switch);
    assert!(kept.outbox.is_empty(), "{:?}", kept.outbox);
    assert_eq!(shore.done().iter().filter(|line| *line == "prolong i-1").count(), 1);
}

#[tokio::test]
async fn p10_what_a_service_refuses_ends_the_rollout_in_its_words_and_what_is_gone_is_decided_anew() {
    for (kind, state) in [(ErrorKind::Invalid, "failed"), (ErrorKind::Missing, "running")] {
        let outbox = vec![pending(1, executes("c-network"), 0)];
        let shore = Shore::with(&Rollout { outbox, ..rolling(json!("executing")) });
        shore.has("c-network", StackStatus::ReviewInProgress);
        shore.has_change_set("c-network");
        shore.passes(60);
        shore.fails("execute c-network", kind);
        let report = shore.wakes(Waker::Tick).await.unwrap();
        // The stack is no more than a change set, and goes before the rollout ends.
        assert_eq!(report.state.as_str(), "running", "{}", report.message);
        let words = report.message.contains("CloudFormation refuses c-network: no");
        assert_eq!(words, kind == ErrorKind::Invalid, "{}", report.message);
        shore.has("c-network", StackStatus::DeleteComplete);
        let report = shore.wakes(Waker::Tick).await.unwrap();
        assert_eq!(report.state.as_str(), state, "{}", report.message);
    }
}
