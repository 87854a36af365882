//! Who is woken, by whom, and that whatever is open is woken again.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// What is open: a rollout, a worker on its way out, and a cluster that is being taken away.
fn open() -> [Rollout; 3] {
    let order = Given { order: Order::Destroy { without_snapshot: true }, at: at(0) };
    let going = Rollout { outbox: Vec::new(), ..after_order(&idle(), &order, None, at(0)) };
    [rolling(json!("executing")), departing(), going]
}

fn group() -> Waker {
    Waker::Group { name: "c-pool-a".to_owned() }
}

fn skip() -> Waker {
    Waker::Order { order: Order::Skip { instance: "i-9".to_owned() }, at: None }
}

#[tokio::test]
async fn p8_a_tick_that_somebody_deleted_is_armed_again_by_whatever_wakes_what_is_open_and_by_the_daily_look()
{
    for state in open() {
        for by in [Waker::Event, group(), Waker::Look, skip(), Waker::Tick] {
            let shore = Shore::with(&state);
            shore.has("c-network", StackStatus::CreateInProgress);
            shore.wakes(by.clone()).await.unwrap();
            let armed = shore.log().iter().filter(|line| *line == "arm").count();
            // The tick itself is there, since it came.
            assert_eq!(armed, usize::from(by != Waker::Tick), "{by:?}: {:?}", state.activity);
        }
    }
    for by in [Waker::Event, group(), Waker::Look] {
        let shore = Shore::with(&idle());
        shore.wakes(by).await.unwrap();
        assert_eq!(shore.done(), [""; 0], "nothing is open");
    }
}

#[tokio::test]
async fn p8_the_tick_is_asserted_before_anything_that_may_fail() {
    for (state, call) in open().into_iter().zip(["stack c-network", "group c-pool-a", "stack c-pool-a"]) {
        let shore = Shore::with(&state);
        shore.fails(call, ErrorKind::Denied);
        shore.wakes(Waker::Event).await.unwrap_err();
        let log = shore.log();
        let place = |what: &str| log.iter().position(|line| line == what);
        assert!(place("arm").is_some() && place("arm") < place(call), "{log:?}");
    }
    // Where it cannot be armed, nothing goes on in silence.
    let shore = Shore::with(&rolling(json!("executing")));
    shore.fails("arm", ErrorKind::Denied);
    let error = shore.wakes(Waker::Event).await.unwrap_err();
    assert_eq!(error.kind(), "Slipway.test.Denied");
    assert_eq!(shore.report().unwrap().state.as_str(), "stuck");
}

#[tokio::test]
async fn p8_a_tick_that_comes_when_nothing_is_open_takes_itself_away() {
    let shore = Shore::with(&idle());
    shore.wakes(Waker::Tick).await.unwrap();
    assert_eq!(shore.done(), ["disarm"]);
}

#[tokio::test]
async fn p8_a_tick_for_which_nothing_was_ever_planned_takes_itself_away() {
    let shore = Shore::default();
    shore.wakes(Waker::Tick).await.unwrap();
    assert_eq!(shore.done(), ["disarm"]);
}

#[tokio::test]
async fn p8_a_tick_that_fails_is_left_to_the_next_one_only_if_that_will_come() {
    let failing = |also: &[&str]| {
        let shore = Shore::with(&rolling(json!("executing")));
        shore.fails("stack c-network", ErrorKind::Denied);
        for call in also {
            shore.fails(call, ErrorKind::Transient);
        }
        shore
    };
    let shore = failing(&[]);
    let left = shore.wakes_or_leaves(Waker::Tick).await.unwrap().unwrap_err();
    assert_eq!(left.kind(), "Slipway.test.Denied", "the alarm's type");
    assert_eq!(shore.report().unwrap().state.as_str(), "stuck", "a person sees it");
    // Whatever this invocation did before it failed, perhaps to the tick itself.
    assert_eq!(shore.done(), ["arm"]);
    let failed = failing(&["arm"]).wakes_or_leaves(Waker::Tick).await.unwrap_err();
    assert_eq!(failed.kind(), "Slipway.test.Denied", "Lambda tries again");
    for by in [Waker::Event, group(), Waker::Look, skip()] {
        failing(&[]).wakes_or_leaves(by).await.unwrap_err();
    }
    let shore = Shore::with(&idle());
    shore.wakes_or_leaves(Waker::Tick).await.unwrap().unwrap();
    assert_eq!(shore.done(), ["disarm"], "one that is not needed");
}

#[tokio::test]
async fn a_daily_look_at_a_cluster_of_which_nothing_was_ever_rolled_out_tells_nothing() {
    let shore = Shore::default();
    shore.wakes(Waker::Look).await.unwrap();
    assert_eq!(shore.log(), ["get clusters/c/rollout.json"]);
}

#[tokio::test]
async fn p6_a_daily_look_finds_the_machine_in_a_hook_whose_event_was_lost() {
    let machine =
        json!({"zone": "a", "lifecycle": "terminatingWait", "healthy": true, "weight": 1, "template": null});
    let view = json!({
        "name": "c-pool-a", "machineArns": "arn:aws:ec2:eu-west-1:123456789012:instance/", "desired": 1, "min": 1, "max": 2, "template": null, "machines": {"i-1": machine},
        "tags": {"slipway:cluster": "c"},
    });
    for (by, finds) in [(Waker::Look, true), (group(), true), (Waker::Event, false)] {
        let shore = Shore::with(&idle());
        shore.has_group(serde_json::from_value(view.clone()).unwrap());
        shore.wakes(by.clone()).await.unwrap();
        assert_eq!(shore.state().departures.contains_key("i-1"), finds, "{by:?}");
        assert_eq!(shore.done().contains(&"arm".to_owned()), finds, "{by:?}");
    }
}

/// What another invocation stored only just now is for that one to perform.
#[tokio::test]
async fn p8_what_another_invocation_has_just_decided_is_left_to_it_for_as_long_as_it_may_live() {
    let stored = Rollout { outbox: vec![pending(1, prolongs("i-1"), 0)], ..rolling(json!("executing")) };
    for (seconds, is_left) in [(0, true), (59, true), (60, false)] {
        let shore = Shore::with(&stored);
        shore.has("c-network", StackStatus::CreateInProgress);
        shore.passes(seconds);
        let report = shore.wakes(Waker::Event).await.unwrap();
        let done = shore.done();
        assert_eq!(!done.contains(&"prolong i-1".to_owned()), is_left, "after {seconds}: {done:?}");
        assert_eq!(report.message.contains("another invocation"), is_left, "{report:?}");
        assert!(done.contains(&"arm".to_owned()), "{done:?}");
        assert_eq!(shore.state().outbox.len(), usize::from(is_left));
    }
    // Where no tick would bring anybody back, it is performed.
    let shore = Shore::with(&Rollout { outbox: vec![pending(1, step_event(), 0)], ..idle() });
    shore.wakes(Waker::Event).await.unwrap();
    assert_eq!(shore.done(), ["publish Rollout Step"]);
}

/// Also if this invocation has stored and performed something before: two that perform one termination at the same moment make its group
/// smaller twice.
#[tokio::test]
async fn p8_what_another_invocation_stores_between_two_rounds_is_left_to_it() {
    let shore = Shore::with(&rolling(json!("executing")));
    let rounds = AtomicU32::new(0);
    let deciding = |state: &Rollout, _: &Observed, _: Timestamp| {
        let next = Rollout { effects_decided: state.effects_decided + 1, ..state.clone() };
        if rounds.fetch_add(1, Ordering::Relaxed) == 1 {
            let outbox = vec![pending(900, prolongs("i-2"), 0)];
            shore.is_raced_by(&keys::rollout("c"), &Rollout { outbox, ..state.clone() });
        }
        Decision { next, effects: Vec::new(), report: Report::default() }
    };
    let report = shore.wakes_deciding(Waker::Event, &deciding).await.unwrap();
    assert_eq!(rounds.load(Ordering::Relaxed), 2);
    assert!(report.message.contains("another invocation"), "{report:?}");
    assert!(!shore.done().contains(&"prolong i-2".to_owned()));
    assert_eq!(shore.state().outbox.len(), 1);
}

#[tokio::test]
async fn p8_what_may_work_later_is_tried_again_in_silence_and_what_will_not_is_told_as_stuck() {
    for (kind, told) in [(ErrorKind::Transient, false), (ErrorKind::Denied, true), (ErrorKind::Missing, true)]
    {
        let shore = Shore::with(&rolling(json!("executing")));
        shore.fails("stack c-network", kind);
        let error = shore.wakes(Waker::Tick).await.unwrap_err();
        assert_eq!(error.is_transient(), !told);
        let stuck = shore.report().is_some_and(|report| {
            report.state.as_str() == "stuck"
                && report.message.contains("test:Call of stack c-network failed: no")
        });
        assert_eq!(stuck, told, "{kind:?}: {:?}", shore.report());
    }
}

/// The end is told before the outbox is empty and the tick gone: nobody would be woken who tells it after a death.
#[tokio::test]
async fn p8_how_it_ended_is_told_before_the_last_of_it_is_performed() {
    let done = rolling(json!("done"));
    let shore = Shore::with(&done);
    shore.fails("publish Rollout Succeeded", ErrorKind::Transient);
    shore.wakes(Waker::Tick).await.unwrap_err();
    assert_eq!(shore.report().unwrap().state.as_str(), "succeeded");
    assert!(shore.state().active().is_none() && !shore.done().contains(&"disarm".to_owned()));
    shore.works();
    shore.wakes(Waker::Tick).await.unwrap();
    assert_eq!(shore.done(), ["publish Rollout Succeeded", "disarm", "disarm"]);
}

#[tokio::test]
async fn a_stack_wakes_its_own_cluster_alone_and_only_what_is_open_or_waits_for_it_to_be_gone() {
    let left = Rollout { orphaned: BTreeMap::from([("c-pool-b".to_owned(), "t".to_owned())]), ..idle() };
    for (state, stack, wakes) in [
        (rolling(json!("executing")), "c-network", true),
        (rolling(json!("executing")), "d-network", false),
        (rolling(json!("executing")), "c-other", false),
        (idle(), "c-network", false),
        (left.clone(), "c-pool-b", true),
        (left, "c-network", false),
    ] {
        let shore = Shore::with(&state);
        shore.has("c-network", StackStatus::CreateInProgress);
        let now = shore.now();
        let report = shore.run(async |ports| wake_by_stack(ports, stack, now).await).await.unwrap();
        assert_eq!(report.is_some(), wakes, "{stack}");
        let reads = shore.log().iter().filter(|line| *line == "get clusters/c/rollout.json").count();
        assert!(reads <= 1, "what was only just read is not read again: {stack}");
    }
}

#[tokio::test]
async fn a_group_wakes_what_is_open_and_what_has_to_drain_its_machines_and_is_looked_at() {
    for (state, group, wakes, looks) in [
        (rolling(json!("executing")), "c-etcd-0", true, false),
        (rolling(json!("executing")), "d-etcd-0", false, false),
        (idle(), "c-pool-a", true, true),
        (idle(), "c-pool-x", false, false),
        (idle(), "c-control-plane", false, false),
    ] {
        let shore = Shore::with(&state);
        let now = shore.now();
        let report = shore.run(async |ports| wake_by_group(ports, group, now).await).await.unwrap();
        assert_eq!(report.is_some(), wakes, "{group}");
        assert_eq!(shore.log().contains(&format!("group {group}")), looks, "{group}");
    }
}

/// The group `c-pool-a` with the machine `i-1` in service.
fn pool_of_one() -> GroupView {
    let machine =
        json!({"zone": "a", "lifecycle": "inService", "healthy": true, "weight": 1, "template": null});
    let view = json!({
        "name": "c-pool-a", "desired": 1, "min": 1, "max": 2, "template": null, "machines": {"i-1": machine},
        "tags": {"slipway:cluster": "c"}, "machineArns": "arn:aws:ec2:eu-west-1:123456789012:instance/",
    });
    serde_json::from_value(view).unwrap()
}

fn notice(instance: &str) -> Interruption {
    Interruption { instance: instance.to_owned(), at: at(0) }
}

#[tokio::test]
async fn p6_a_notice_of_ec2_wakes_the_cluster_whose_worker_it_interrupts_and_no_other() {
    let other = |name: &str| GroupView { name: name.to_owned(), ..pool_of_one() };
    for (group, instance, wakes) in [
        (pool_of_one(), "i-1", true),
        (pool_of_one(), "i-2", false),
        (other("c-pool-x"), "i-1", false),
        (other("c-etcd-0"), "i-1", false),
        (other("d-pool-a"), "i-1", false),
        (other("another"), "i-1", false),
    ] {
        let (shore, name) = (Shore::with(&idle()), group.name.clone());
        shore.has_group(group);
        let (now, notice) = (shore.now(), notice(instance));
        let report = shore.run(async |ports| wake_by_interruption(ports, &notice, now).await).await.unwrap();
        assert_eq!(report.is_some(), wakes, "{name}");
        assert_eq!(shore.state().departures.contains_key("i-1"), wakes, "{name}");
        assert_eq!(shore.log().contains(&"arm".to_owned()), wakes, "{name}");
    }
}

#[tokio::test]
async fn p6_a_notice_of_ec2_is_stored_before_anything_that_may_fail_and_beside_another_invocation() {
    let by = || Waker::Interruption { group: "c-pool-a".to_owned(), notice: notice("i-1") };
    let stored = |shore: &Shore| shore.state().departures.contains_key("i-1");
    let shore = Shore::with(&idle());
    shore.fails("arm", ErrorKind::Denied);
    shore.wakes(by()).await.unwrap_err();
    assert!(stored(&shore));
    // Somebody else writes the state meanwhile.
    let shore = Shore::with(&idle());
    shore.has_group(pool_of_one());
    shore.is_raced(&keys::rollout("c"));
    shore.wakes(by()).await.unwrap();
    assert!(stored(&shore));
    // Another invocation performs what it has decided.
    let leased = Rollout { outbox: vec![pending(1, prolongs("i-9"), 0)], ..departing_of("i-9") };
    let shore = Shore::with(&leased);
    let report = shore.wakes(by()).await.unwrap();
    assert!(report.message.contains("another invocation") && stored(&shore), "{report:?}");
    // Nothing was ever rolled out.
    let shore = Shore::default();
    shore.wakes(by()).await.unwrap();
    assert!(shore.kept::<Rollout>(&keys::rollout("c")).is_none());
}

fn departing_of(instance: &str) -> Rollout {
    let mut state = departing();
    let one = state.departures.remove("i-1").unwrap();
    state.departures.insert(instance.to_owned(), one);
    state
}

#[tokio::test]
async fn a_command_wakes_the_open_rollout_that_its_token_names() {
    for (state, id, wakes) in [
        (rolling(json!("executing")), "of c/x/1/0", true),
        (rolling(json!("executing")), "of d/x/1/0", false),
        (rolling(json!("executing")), "of somebody else's", false),
        (rolling(json!("executing")), "nobody's", false),
        (idle(), "of c/x/1/0", false),
    ] {
        let shore = Shore::with(&state);
        let now = shore.now();
        let report = shore.run(async |ports| wake_by_command(ports, id, now).await).await.unwrap();
        assert_eq!(report.is_some(), wakes, "{id}");
    }
}

#[tokio::test]
async fn p8_a_state_of_an_earlier_format_is_read_where_nothing_is_open_and_an_error_says_what_to_do_elsewhere()
 {
    let mut earlier = serde_json::to_value(idle()).unwrap();
    earlier["format"] = json!(2);
    let shore = Shore::default();
    shore.keeps(&keys::rollout("c"), &earlier);
    shore.wakes(Waker::Tick).await.unwrap();
    assert_eq!(shore.state(), idle(), "it is written in the format of today");

    earlier["format"] = json!(2);
    earlier["departures"] = json!({"i-1": {
        "role": "pool-a", "group": "c-pool-a", "cause": "rollout", "ends": "replaced", "state": {"uncordon": {}}, "since": at(0),
    }});
    shore.keeps(&keys::rollout("c"), &earlier);
    let error = shore.wakes(Waker::Tick).await.unwrap_err().to_string();
    let help = "(its format is 2), deploy that version again until nothing is open: no rollout, no node on its way out, no destruction";
    assert!(error.contains(help), "{error}");
}

#[tokio::test]
async fn p8_a_state_of_a_newer_format_is_neither_read_nor_written_over() {
    let mut newer = serde_json::to_value(idle()).unwrap();
    newer["format"] = json!(Rollout::FORMAT + 1);
    let shore = Shore::default();
    shore.keeps(&keys::rollout("c"), &newer);
    let error = shore.wakes(Waker::Tick).await.unwrap_err().to_string();
    let words = "format 5 is newer than 4, the newest that this release knows";
    assert!(error.contains(words) && error.contains("deploy that version again;"), "{error}");
    // The status says so.
    let status = "clusters/c/status.json";
    assert_eq!(
        shore.log(),
        ["get clusters/c/rollout.json".to_owned(), format!("get {status}"), format!("put {status}")]
    );
}

#[tokio::test]
async fn who_leaves_it_to_another_invocation_tells_which_plan_is_executed() {
    let shore =
        Shore::with(&Rollout { outbox: vec![pending(1, prolongs("i-1"), 0)], ..rolling(json!("executing")) });
    let report = shore.wakes(Waker::Event).await.unwrap();
    assert!(report.message.contains("another invocation"), "{report:?}");
    assert_eq!((report.state.as_str(), report.generation, report.plan.as_deref()), ("running", 1, Some("p")));
}
