//! The second snapshot of a destruction: after the last API server is gone, and before etcd goes.

use super::*;
use crate::{LastSnapshot, Save, Which};

const SECOND: &str = "clusters/c/etcd-snapshots/20261122T150000Z.db";
const LOST: &str = "what was written after it is lost";

impl Quay {
    fn snapshots(&self) -> usize {
        self.log.iter().filter(|line| line.contains("EtcdSnapshot")).count()
    }

    /// Runs until the second snapshot is being taken.
    fn run_to_second(&mut self) {
        self.wake(Some(ordered(0, false)));
        while self.snapshots() < 2 {
            assert!(self.state.is_going(), "it ended without one: {:?}", self.log);
            self.wake(None);
        }
    }

    fn give(&mut self, order: Order) -> Report {
        let minute = self.minute;
        self.wake(Some(Given { order, at: at(minute) }))
    }

    fn order_again(&mut self, without_snapshot: bool) -> Report {
        let minute = self.minute;
        self.run(ordered(minute, without_snapshot))
    }
}

fn with_second(second: Result<&'static str, &'static str>) -> Quay {
    Quay { second: Some(second), ..Quay::new() }
}

#[test]
fn p4_the_last_snapshot_is_taken_when_no_api_server_is_left_and_etcd_goes_only_after_it() {
    let mut quay = with_second(Ok(SECOND));
    quay.harbour.fake.deleting = Some(StackStatus::DeleteInProgress);
    quay.wake(Some(ordered(0, false)));
    // Each deletion takes hours, and the API servers serve until their stack is gone.
    for stack in ["c-pool-a", "c-control-plane"] {
        while !quay.deletions().contains(&stack) {
            quay.wake(None);
        }
        for _ in 0..200 {
            quay.wake(None);
        }
        assert_eq!(quay.snapshots(), 1, "{stack} is still there");
        quay.harbour.fake.stacks.retain(|one, _| !one.starts_with("c-pool-") && one != stack);
    }
    quay.harbour.fake.deleting = None;
    while quay.state.is_going() {
        assert!(quay.snapshots() == 2 || !quay.deletions().contains(&"c-etcd"), "{:?}", quay.log);
        quay.wake(None);
    }
    assert!(comes_after(&quay, "delete c-etcd", "EtcdSnapshot"), "{:?}", quay.log);
    assert_eq!(quay.snapshots(), 2);
    let gone = quay.state.was_destroyed().unwrap();
    assert_eq!(gone.snapshot.as_deref(), Some(SECOND));
    assert!(gone.message.contains(SECOND) && !gone.message.contains(LOST), "{}", gone.message);
}

#[test]
fn p4_etcd_stays_while_its_last_snapshot_cannot_be_taken_until_a_person_decides() {
    for (leader, result, why) in [
        (None, Ok(SECOND), "no member of etcd leads"),
        (Some(1), Err("the bucket is full"), "the bucket is full"),
    ] {
        for without in [false, true] {
            let mut quay = with_second(result);
            quay.run_to_second();
            quay.leader = leader;
            if leader.is_none() {
                // Its leader was lost while it took the snapshot.
                quay.give(Order::Pause);
                quay.give(Order::Resume);
            }
            let mut report = quay.wake(None);
            while quay.state.destroy().is_some_and(|open| !open.has_stopped()) {
                report = quay.wake(None);
            }
            assert_eq!(report.state.as_str(), "failed", "{}", report.message);
            for words in [
                why,
                KEY,
                "then what was written after the snapshot at ",
                "`slipway destroy --cluster c` tries again, and with `--without-snapshot` it continues without one",
                "3 of 5 stacks are gone",
            ] {
                assert!(report.message.contains(words), "{words}: {}", report.message);
            }
            assert!(!quay.deletions().contains(&"c-etcd") && !quay.state.needs_tick(), "{:?}", quay.log);
            let snapshot = quay.state.destroy().map(|open| open.snapshot.clone());
            let is_typed = matches!(
                snapshot,
                Some(LastSnapshot::Wanted { which: Which::Second, save: Save::Failed(_), earlier: Some(_) })
            );
            assert!(is_typed, "{snapshot:?}");
            // Both orders that the message names work.
            (quay.leader, quay.second) =
                if without { (leader, Some(result)) } else { (Some(2), Some(Ok(SECOND))) };
            let report = quay.order_again(without);
            assert_eq!(report.state.as_str(), "destroyed", "{}", report.message);
            let (key, loses) = if without { (KEY, true) } else { (SECOND, false) };
            assert_eq!(quay.state.last_snapshot.as_deref(), Some(key));
            assert!(report.message.contains(key), "{}", report.message);
            assert_eq!(report.message.contains(LOST), loses, "{}", report.message);
        }
    }
}

#[test]
fn p4_an_order_without_another_snapshot_counts_while_pools_go() {
    let mut quay = with_second(Ok(SECOND));
    quay.wake(Some(ordered(0, false)));
    while !quay.deletions().contains(&"c-pool-a") {
        quay.wake(None);
    }
    let report = quay.order_again(true);
    assert_eq!((report.state.as_str(), quay.snapshots()), ("destroyed", 1), "{}", report.message);
    assert!(report.message.contains(KEY) && report.message.contains(LOST), "{}", report.message);
}

#[test]
fn p10_a_pause_while_the_last_snapshot_is_taken_has_it_taken_again_and_one_after_it_does_not() {
    let mut quay = with_second(Ok(SECOND));
    quay.run_to_second();
    quay.give(Order::Pause);
    (0..100).for_each(|_| drop(quay.wake(None)));
    assert!(quay.snapshots() == 2 && !quay.deletions().contains(&"c-etcd"), "{:?}", quay.log);
    quay.give(Order::Resume);
    while !quay.log.iter().any(|line| line.contains("Retire")) {
        quay.wake(None);
    }
    assert_eq!(quay.snapshots(), 3);
    quay.give(Order::Pause);
    (0..100).for_each(|_| drop(quay.wake(None)));
    quay.give(Order::Resume);
    // Nor does another order that asks for a last snapshot: nobody has written since.
    let report = quay.order_again(false);
    assert_eq!((report.state.as_str(), quay.snapshots()), ("destroyed", 3), "{}", report.message);
    assert_eq!(quay.state.last_snapshot.as_deref(), Some(SECOND));
}

#[test]
fn p10_an_abort_while_the_last_snapshot_is_taken_leaves_etcd_and_the_next_order_begins_anew() {
    let mut quay = with_second(Ok(SECOND));
    quay.run_to_second();
    let report = quay.give(Order::Abort { plan: None });
    assert_eq!(report.state.as_str(), "aborted", "{}", report.message);
    assert!(!quay.deletions().contains(&"c-etcd") && quay.state.deployed.contains_key("c-etcd"));
    quay.minute += 1;
    // Nobody knows what was written meanwhile.
    let report = quay.order_again(false);
    assert_eq!((report.state.as_str(), quay.snapshots()), ("destroyed", 4), "{}", report.message);
}

#[test]
fn p4_of_an_etcd_that_is_half_gone_the_snapshot_of_before_is_still_named_when_the_rest_goes_without() {
    let mut quay = with_second(Ok(SECOND));
    quay.run_to_second();
    quay.harbour.fake.deleting = Some(StackStatus::DeleteFailed);
    while !quay.deletions().contains(&"c-etcd") {
        quay.wake(None);
    }
    let mut report = quay.give(Order::Abort { plan: None });
    while report.state.as_str() == "aborting" {
        report = quay.wake(None);
    }
    assert!(report.state.as_str() == "aborted" && report.message.contains(SECOND), "{}", report.message);
    quay.harbour.fake.deleting = None;
    // One member of three is left.
    (quay.members, quay.leader) = (1, None);
    let report = quay.order_again(false);
    assert_eq!(report.state.as_str(), "failed", "{}", report.message);
    let report = quay.order_again(true);
    assert_eq!(report.state.as_str(), "destroyed", "{}", report.message);
    assert!(report.message.contains(SECOND), "{}", report.message);
}

#[test]
fn of_an_etcd_that_somebody_else_deletes_no_last_snapshot_is_waited_for_and_that_is_said() {
    let mut quay = with_second(Ok(SECOND));
    quay.wake(Some(ordered(0, false)));
    while !quay.deletions().contains(&"c-control-plane") {
        quay.wake(None);
    }
    quay.harbour.fake.stacks.insert("c-etcd".to_owned(), StackStatus::DeleteInProgress);
    (0..5).for_each(|_| drop(quay.wake(None)));
    quay.harbour.fake.stacks.remove("c-etcd");
    while quay.state.is_going() {
        quay.wake(None);
    }
    let gone = quay.state.was_destroyed().unwrap();
    assert_eq!((quay.snapshots(), gone.snapshot.as_deref()), (1, Some(KEY)));
    assert!(gone.message.contains(LOST), "{}", gone.message);
}

/// The cluster id of etcd does not tell one etcd from the next of the same name.
#[test]
fn when_an_etcd_was_deleted_is_known_as_long_as_its_snapshots_may_lie_beside_those_of_the_next() {
    for aborted in [false, true] {
        let mut quay = with_second(Ok(SECOND));
        quay.run_to_second();
        while !quay.deletions().contains(&"c-etcd") {
            assert_eq!(quay.state.etcd_gone_at, None, "it stands");
            quay.wake(None);
        }
        if aborted {
            quay.give(Order::Abort { plan: None });
        }
        let mut last = quay.minute - 1;
        while quay.state.etcd_gone_at.is_none() {
            last = quay.minute;
            quay.wake(None);
        }
        let gone = Some(at(last));
        while quay.state.is_going() {
            quay.wake(None);
        }
        assert_eq!(quay.state.etcd_gone_at, gone, "aborted: {aborted}");
        let made = quay.harbour.plan(&quay.state, &exporting(1, true));
        quay.harbour.fake.change_sets.clear();
        quay.state = quay.harbour.wake(quay.state.clone(), &made, None).0;
        assert!(quay.state.active().is_some(), "it is launched again");
        assert_eq!(quay.state.etcd_gone_at, gone);
    }
}

#[test]
fn an_etcd_that_is_half_gone_is_one_of_before() {
    let mut quay = with_second(Ok(SECOND));
    quay.run_to_second();
    quay.harbour.fake.deleting = Some(StackStatus::DeleteFailed);
    while !quay.state.destroy().is_some_and(Destroy::has_stopped) {
        quay.wake(None);
    }
    let until = quay.state.etcd_gone_at;
    assert!(until.is_some());
    quay.wake(None);
    assert_eq!(quay.state.etcd_gone_at, until, "it was noted once");
}
