//! Orders: stored before anything else is done, and ignored where they are about nothing.

use super::*;
use slipway_rollout::Switch;

fn order(order: Order) -> Waker {
    Waker::Order { order, at: None }
}

fn abort() -> Order {
    Order::Abort { plan: None }
}

/// Finding 1 of issue 17: one denied effect made an abort impossible.
#[tokio::test]
async fn p10_an_abort_is_heard_and_obeyed_though_what_was_decided_before_it_is_denied_for_ever() {
    let outbox = vec![pending(1, executes("c-network"), 0), pending(2, wants("c-pool-a", 3), 0)];
    let shore = Shore::with(&Rollout { outbox, ..rolling(json!("changeSet")) });
    shore.fails("execute c-network", ErrorKind::Denied);
    shore.passes(60);
    shore.wakes(Waker::Tick).await.unwrap_err();
    assert_eq!((shore.state().outbox.len(), shore.report().unwrap().state.as_str()), (1, "stuck"));
    shore.done();

    // The stack of its change set may still come to light.
    let report = shore.wakes(order(abort())).await.unwrap();
    assert_eq!(report.state.as_str(), "aborting", "{}", report.message);
    shore.passes(180);
    let report = shore.wakes(Waker::Tick).await.unwrap();
    assert_eq!(report.state.as_str(), "aborted", "{}", report.message);
    let done = shore.done();
    assert!(!done.iter().any(|line| line.starts_with("execute")), "{done:?}");
    assert!(!shore.state().is_open());
}

#[tokio::test]
async fn p10_an_order_is_stored_before_anything_is_performed_or_looked_at() {
    for (given, is_stopped) in
        [(Order::Pause, true), (abort(), true), (Order::Skip { instance: "i-1".to_owned() }, false)]
    {
        let outbox = vec![pending(1, executes("c-network"), 0)];
        let shore = Shore::with(&Rollout { outbox, ..rolling(json!("changeSet")) });
        shore.passes(60);
        // Whatever is looked at after it fails.
        shore.fails("stack c-network", ErrorKind::Transient);
        shore.wakes(order(given.clone())).await.unwrap_err();
        let log = shore.log();
        let stored = log.iter().position(|line| line == "put clusters/c/rollout.json").unwrap();
        let first =
            log.iter().position(|line| ["arm", "stack", "execute"].iter().any(|what| line.starts_with(what)));
        assert!(first.is_some_and(|first| stored < first), "{given:?}: {log:?}");
        assert_eq!(!log.contains(&"execute c-network".to_owned()), is_stopped, "{given:?}: {log:?}");
        let state = shore.state();
        let is_heard = match given {
            Order::Pause => state.paused_since().is_some(),
            Order::Abort { .. } => state.active().unwrap().aborted.is_some(),
            Order::Skip { .. } => state.active().unwrap().skipped.contains("i-1"),
            Order::Approve { .. } | Order::Resume | Order::Destroy { .. } => false,
        };
        assert!(is_heard, "{given:?}");
    }
}

/// What another invocation has just decided stays its own, but for what the order takes back.
#[tokio::test]
async fn p10_an_order_performs_nothing_that_another_invocation_has_just_decided() {
    let outbox = vec![pending(1, executes("c-network"), 0), pending(2, prolongs("i-1"), 0)];
    let state = Rollout { outbox, ..rolling(json!("changeSet")) };
    for (seconds, prolongs) in [(1, false), (60, true)] {
        let shore = Shore::with(&state);
        shore.passes(seconds);
        shore.wakes(order(Order::Pause)).await.unwrap();
        let done = shore.done();
        assert_eq!(done.contains(&"prolong i-1".to_owned()), prolongs, "{done:?}");
        assert!(!done.contains(&"execute c-network".to_owned()), "{done:?}");
        assert!(shore.state().paused_since().is_some());
    }
}

#[tokio::test]
async fn p10_an_order_is_heard_though_others_write_meanwhile_and_is_no_silent_loss_where_they_never_stop() {
    let key = keys::rollout("c");
    let shore = Shore::with(&rolling(json!("executing")));
    shore.has("c-network", StackStatus::CreateInProgress);
    shore.is_raced(&key);
    shore.wakes(order(Order::Pause)).await.unwrap();
    assert!(shore.state().paused_since().is_some());
}

/// Whoever puts an event on the bus chooses its time: one from the future would void all that come before it.
#[tokio::test]
async fn p10_an_order_from_the_future_counts_as_given_now() {
    let shore = Shore::with(&rolling(json!("executing")));
    shore.has("c-network", StackStatus::CreateInProgress);
    shore.wakes(Waker::Order { order: Order::Pause, at: Some(at(3_600)) }).await.unwrap();
    assert_eq!(shore.state().switch, Some(Switch { paused: true, at: at(0) }));
    shore.passes(10);
    shore.wakes(Waker::Order { order: Order::Resume, at: Some(at(5)) }).await.unwrap();
    assert_eq!(shore.state().switch, Some(Switch { paused: false, at: at(5) }));
}

/// Clocks in AWS are within a second, and a person may change their mind within one: in seed 1433 of removed pools a function whose clock was
/// a second behind took a pause for one of before the resume that came first, and nothing was paused.
#[tokio::test]
async fn p10_a_pause_right_after_a_resume_counts_also_where_the_clock_that_hears_it_is_behind() {
    let shore = Shore::with(&rolling(json!("executing")));
    shore.has("c-network", StackStatus::CreateInProgress);
    shore.passes(10);
    shore.wakes(Waker::Order { order: Order::Resume, at: Some(at(10)) }).await.unwrap();
    // What clocks may be apart counts as it was given; six seconds are the future, and count from now, which is before.
    for (given, since) in [(11, 11), (15, 15), (16, 15)] {
        shore.wakes(Waker::Order { order: Order::Pause, at: Some(at(given)) }).await.unwrap();
        assert_eq!(shore.state().switch, Some(Switch { paused: true, at: at(since) }), "{given}");
    }
}

#[tokio::test]
async fn an_order_about_nothing_that_there_is_changes_nothing_and_leaves_no_state() {
    let (skip, destroy) =
        (Order::Skip { instance: "i-1".to_owned() }, Order::Destroy { without_snapshot: true });
    let approve = |plan: &str| Order::Approve { plan: plan.to_owned() };
    let of_plan = |plan: &str| Order::Abort { plan: Some(plan.to_owned()) };
    let desired = Desired {
        format: 1,
        spec_version: "v1".to_owned(),
        plan: "p".to_owned(),
        target: "t".to_owned(),
        deletion_protection: false,
        manual_since: None,
        accepted: None,
        snapshots: None,
        set_aside: None,
    };
    // What there is: nothing, a plan, a cluster that stands, a rollout that is open.
    let rolling = rolling(json!("executing"));
    for (given, of_nothing, of_a_plan, of_a_cluster, of_a_rollout) in [
        (Order::Pause, false, true, true, true),
        (Order::Resume, false, true, true, true),
        (approve("p"), false, true, false, false),
        (approve("q"), false, false, false, false),
        (abort(), false, false, true, true),
        (of_plan("p"), false, false, false, true),
        (skip, false, false, false, true),
        (destroy, false, false, true, true),
    ] {
        let none = Rollout::new("c");
        for (state, desired, means) in [
            (&none, None, of_nothing),
            (&none, Some(&desired), of_a_plan),
            (&idle(), None, of_a_cluster),
            (&rolling, None, of_a_rollout),
        ] {
            assert_eq!(
                is_meant(&given, state, desired),
                means,
                "{given:?}: {:?}, {desired:?}",
                state.activity
            );
        }
        let shore = Shore::default();
        shore.wakes(order(given.clone())).await.unwrap();
        assert_eq!(
            shore.kept::<Rollout>(&keys::rollout("c")),
            None,
            "{given:?}: a mistyped name gets no state"
        );
        assert_eq!(shore.done(), ["publish Order Ignored"]);
    }
}

#[tokio::test]
async fn p8_an_order_that_comes_twice_is_written_once() {
    let shore = Shore::with(&rolling(json!("executing")));
    shore.has("c-network", StackStatus::CreateInProgress);
    let pause = Waker::Order { order: Order::Pause, at: Some(at(0)) };
    shore.wakes(pause.clone()).await.unwrap();
    shore.log();
    shore.wakes(pause).await.unwrap();
    assert!(!shore.log().iter().any(|line| line.starts_with("put")));
}

/// A name or a plan that was mistyped is told to who typed it, and makes no cluster.
#[tokio::test]
async fn what_was_mistyped_is_an_order_ignored_and_leaves_nothing_behind() {
    const IGNORED: &str = "publish Order Ignored";
    for given in [
        Order::Pause,
        Order::Resume,
        abort(),
        Order::Approve { plan: "p".to_owned() },
        Order::Skip { instance: "i-1".to_owned() },
        Order::Destroy { without_snapshot: false },
    ] {
        let shore = Shore::default();
        shore.wakes(order(given.clone())).await.unwrap();
        let done = shore.done();
        assert!(done.contains(&IGNORED.to_owned()), "{given:?}: {done:?}");
        assert!(!shore.log().iter().any(|line| line.starts_with("put ")), "{given:?}: {:?}", shore.log());
        assert_eq!(shore.report(), None, "{given:?}");
    }
    // Delivered twice, it is reported with one id; given again, with another one.
    let shore = Shore::default();
    for second in [0, 0, 1] {
        shore.wakes(Waker::Order { order: Order::Pause, at: Some(at(second)) }).await.unwrap();
    }
    let ids: Vec<String> = shore
        .published()
        .into_iter()
        .map(|event| {
            let Event::OrderIgnored(report) = &event else { panic!("{event:?}") };
            report.id.clone()
        })
        .collect();
    assert!(!ids[0].is_empty() && ids[0] == ids[1] && ids[1] != ids[2], "{ids:?}");
    // An event that nobody gave an order with says nothing, and leaves nothing either.
    let shore = Shore::default();
    shore.wakes(Waker::Event).await.unwrap();
    assert!(!shore.log().iter().any(|line| line.starts_with("put ") || line.starts_with("publish ")));

    // A plan that the cluster never had; one that it had may only have been overtaken.
    let shore = Shore::with(&Rollout { generation: 1, ..Rollout::new("c") });
    shore.keeps(&keys::plan("c", "old"), &json!({}));
    for (plan, is_ignored) in [("mistyped", true), ("old", false)] {
        shore.wakes(order(Order::Approve { plan: plan.to_owned() })).await.unwrap();
        assert_eq!(shore.done().contains(&IGNORED.to_owned()), is_ignored, "{plan}");
    }
}
