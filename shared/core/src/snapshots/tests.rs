//! Who takes a snapshot, and which ones are removed.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn hours(hours: i64) -> SignedDuration {
    SignedDuration::from_hours(hours)
}

const NOW: &str = "2026-11-26T12:00:00Z";

fn taker(member: &str) -> Taker {
    Taker { member: member.to_owned(), instance: "i-1".to_owned() }
}

fn schedule(every_hours: u32, since: Timestamp) -> SnapshotSchedule {
    SnapshotSchedule { format: 1, every_hours: Some(every_hours), since, earlier_until: None }
}

fn taken(member: &str, begun: Timestamp) -> SnapshotLedger {
    let last = LastSnapshot { by: taker(member), begun, time: "t".to_owned() };
    SnapshotLedger { last: Some(last), ..SnapshotLedger::default() }
}

/// As decided by a machine that has just taken one itself.
fn turn(
    schedule: Option<&SnapshotSchedule>,
    ledger: &SnapshotLedger,
    own: &Taker,
    leads: bool,
    now: Timestamp,
) -> Turn {
    super::turn(schedule, ledger, own, leads, now, now)
}

/// A member that was taken over writes into the ledger that a snapshot was just taken, or claims one again and again.
#[test]
fn a_machine_takes_one_of_its_own_after_four_intervals_whatever_the_ledger_says() {
    let six = schedule(6, at(NOW) - hours(100));
    let claim = |minutes| {
        let until = at(NOW) + SignedDuration::from_mins(minutes);
        Some(SnapshotClaim { by: taker("etcd-0"), until })
    };
    let just = taken("etcd-0", at(NOW) - SignedDuration::from_mins(1));
    let claims = SnapshotLedger { claim: claim(40), ..just.clone() };
    let since = |ago: SignedDuration, ledger: &SnapshotLedger| {
        super::turn(Some(&six), ledger, &taker("etcd-1"), false, at(NOW) - ago, at(NOW))
    };
    let minute = SignedDuration::from_mins(1);
    assert!(matches!(since(hours(24) - minute, &just), Turn::NotDue { .. }));
    assert_eq!(since(hours(24), &just), Turn::TakeOwn);
    // Another honest member may be taking its own.
    assert!(matches!(since(hours(24), &claims), Turn::Claimed { .. }));
    assert!(matches!(since(hours(24) + CLAIM_LIFE - minute, &claims), Turn::Claimed { .. }));
    assert_eq!(since(hours(24) + CLAIM_LIFE, &claims), Turn::TakeOwn);
    let off = SnapshotSchedule { every_hours: None, ..six.clone() };
    assert_eq!(
        super::turn(Some(&off), &just, &taker("etcd-1"), true, at(NOW) - hours(900), at(NOW)),
        Turn::Off
    );
}

fn stored(hours_ago: i64, verified: bool) -> StoredSnapshot {
    let stored_at = at(NOW) - hours(hours_ago);
    StoredSnapshot { time: format!("{hours_ago} h"), stored_at, verified, etcd: OfEtcd::Present }
}

#[test]
fn nothing_is_taken_without_a_schedule() {
    let ledger = SnapshotLedger::default();
    assert_eq!(turn(None, &ledger, &taker("etcd-0"), true, at(NOW)), Turn::Off);
    let off = SnapshotSchedule { every_hours: None, ..schedule(6, at(NOW)) };
    assert_eq!(turn(Some(&off), &ledger, &taker("etcd-0"), true, at(NOW)), Turn::Off);
}

/// However often the leader changes, a snapshot that was taken is not due again.
#[test]
fn a_new_leader_does_not_take_what_was_taken() {
    let six = schedule(6, at(NOW) - hours(100));
    let ledger = taken("etcd-0", at(NOW) - hours(5));
    for leader in ["etcd-0", "etcd-1", "etcd-2"] {
        let turn = turn(Some(&six), &ledger, &taker(leader), true, at(NOW));
        assert_eq!(turn, Turn::NotDue { at: at(NOW) + hours(1) }, "{leader}");
    }
    let due = at(NOW) + hours(1);
    assert_eq!(turn(Some(&six), &ledger, &taker("etcd-1"), true, due), Turn::Take);
}

#[test]
fn the_leader_comes_first_and_without_it_the_others_take_over() {
    let six = schedule(6, at(NOW) - hours(100));
    let ledger = taken("etcd-0", at(NOW) - hours(6));
    let other = |now| turn(Some(&six), &ledger, &taker("etcd-1"), false, now);
    assert_eq!(turn(Some(&six), &ledger, &taker("etcd-0"), true, at(NOW)), Turn::Take);
    let until = at(NOW) + SignedDuration::from_mins(90);
    assert_eq!(other(at(NOW)), Turn::LeaderFirst { until });
    assert_eq!(other(until), Turn::Take);
    // The first one of a cluster.
    let (new, none) = (schedule(24, at(NOW)), SnapshotLedger::default());
    assert_eq!(turn(Some(&new), &none, &taker("etcd-0"), true, at(NOW)), Turn::Take);
    let until = at(NOW) + hours(2);
    assert_eq!(turn(Some(&new), &none, &taker("etcd-1"), false, at(NOW)), Turn::LeaderFirst { until });
    assert_eq!(turn(Some(&new), &none, &taker("etcd-1"), false, until), Turn::Take);
}

/// A member that was taken over must not end the snapshots of all.
#[test]
fn a_claim_that_holds_for_longer_than_a_snapshot_may_take_is_none() {
    let six = schedule(6, at(NOW) - hours(100));
    let most = CLAIM_LIFE + SignedDuration::from_mins(15);
    for (until, is_taken) in
        [(at(NOW) + most, false), (at(NOW) + most + hours(1), true), (at("9999-01-01T00:00:00Z"), true)]
    {
        let claim = SnapshotClaim { by: taker("etcd-0"), until };
        let ledger = SnapshotLedger { claim: Some(claim), ..taken("etcd-0", at(NOW) - hours(20)) };
        let turn = turn(Some(&six), &ledger, &taker("etcd-1"), true, at(NOW));
        assert_eq!(turn == Turn::Take, is_taken, "{until}");
    }
}

#[test]
fn a_claim_keeps_others_away_until_its_owner_must_have_ended() {
    let six = schedule(6, at(NOW) - hours(100));
    let until = at(NOW) + CLAIM_LIFE;
    let claim = SnapshotClaim { by: taker("etcd-0"), until };
    let ledger = SnapshotLedger { claim: Some(claim), ..taken("etcd-0", at(NOW) - hours(20)) };
    let own = |own: &Taker, now| turn(Some(&six), &ledger, own, true, now);
    assert_eq!(own(&taker("etcd-1"), at(NOW)), Turn::Claimed { by: taker("etcd-0"), until });
    assert_eq!(own(&taker("etcd-1"), until), Turn::Take);
    // Its own claim is of a run that died; a machine that replaced it may not know whether the old one still runs.
    assert_eq!(own(&taker("etcd-0"), at(NOW)), Turn::Take);
    let successor = Taker { instance: "i-2".to_owned(), ..taker("etcd-0") };
    assert_eq!(own(&successor, at(NOW)), Turn::Claimed { by: taker("etcd-0"), until });
}

#[test]
fn a_time_in_the_future_does_not_end_the_snapshots() {
    let six = schedule(6, at(NOW) - hours(100));
    let ledger = taken("etcd-0", at(NOW) + hours(24 * 365));
    assert_eq!(turn(Some(&six), &ledger, &taker("etcd-0"), true, at(NOW)), Turn::Take);
}

#[test]
fn all_are_kept_for_days_then_one_of_each_day_and_the_newest_good_ones_always() {
    // One every six hours for sixty days, at 0, 6, 12 and 18 h.
    let all: Vec<StoredSnapshot> = (0..240).map(|number| stored(6 * number, true)).collect();
    let keep = Retention { all_days: 2, daily_days: 5, at_least: 3 };
    let expired = expired(&all, keep, at(NOW));
    let kept: Vec<&str> = all
        .iter()
        .map(|one| one.time.as_str())
        .filter(|time| !expired.iter().any(|one| one == time))
        .collect();
    let of_two_days = ["0 h", "6 h", "12 h", "18 h", "24 h", "30 h", "36 h", "42 h", "48 h"];
    // 12:00 less 66 h is 18:00, the last of its day. The day of the one of 48 h has a later one, which is kept already.
    assert_eq!(kept, [&of_two_days[..], &["66 h", "90 h", "114 h"]].concat());
    // If none is taken any more, the newest ones stay however old they are.
    let later = at(NOW) + hours(24 * 400);
    let expired = super::expired(&all, keep, later);
    assert_eq!(expired.len(), all.len() - 3);
    assert!(["0 h", "6 h", "12 h"].iter().all(|time| !expired.contains(&(*time).to_owned())));
}

#[test]
fn what_was_not_verified_takes_the_place_of_no_verified_one() {
    let keep = Retention { all_days: 1, daily_days: 3, at_least: 2 };
    // The last of a day was not verified, and neither were the newest ones.
    let all = [
        stored(25, false),
        stored(26, false),
        stored(30, true),
        stored(200, true),
        stored(201, false),
        stored(300, true),
    ];
    assert_eq!(expired(&all, keep, at(NOW)), ["300 h", "201 h", "26 h", "25 h"]);
    assert_eq!(expired(&[], keep, at(NOW)), [""; 0]);
}

#[test]
fn a_snapshot_is_overdue_after_two_intervals_and_a_new_schedule_has_the_same_time() {
    let new = schedule(6, at(NOW));
    assert_eq!(overdue_since(&new, None, at(NOW) + hours(14)), None);
    assert_eq!(overdue_since(&new, None, at(NOW) + hours(15)), Some(at(NOW)));
    // It was turned off for a month.
    assert_eq!(overdue_since(&new, Some(at(NOW) - hours(720)), at(NOW) + hours(14)), None);
    let newest = at(NOW) + hours(2);
    assert_eq!(overdue_since(&new, Some(newest), at(NOW) + hours(16)), None);
    assert_eq!(overdue_since(&new, Some(newest), at(NOW) + hours(17)), Some(newest));
    let off = SnapshotSchedule { every_hours: None, ..new };
    assert_eq!(overdue_since(&off, None, at(NOW) + hours(1000)), None);
}

#[test]
fn a_schedule_is_written_when_it_changes() {
    let wanted = ScheduledSnapshots::default();
    let changed = |stored: Option<&SnapshotSchedule>, wanted| {
        SnapshotSchedule::schedule_to_store(stored, wanted, None, at(NOW))
    };
    let first = changed(None, Some(&wanted)).unwrap();
    assert_eq!(first, schedule(6, at(NOW)));
    assert_eq!(changed(Some(&first), Some(&wanted)), None);
    let off = changed(Some(&first), None).unwrap();
    assert_eq!(off.every_hours, None);
    assert_eq!(changed(Some(&off), None), None);
    assert_eq!(changed(None, None), None);
    // The cluster was destroyed and launched again: nothing is missed before the new etcd could have a snapshot.
    let gone = Some(at(NOW) - hours(1_000));
    let old = schedule(6, at(NOW) - hours(2_000));
    let anew = SnapshotSchedule::schedule_to_store(Some(&old), Some(&wanted), gone, at(NOW)).unwrap();
    assert_eq!(anew, SnapshotSchedule { earlier_until: gone, ..schedule(6, at(NOW)) });
    assert_eq!(SnapshotSchedule::schedule_to_store(Some(&anew), Some(&wanted), gone, at(NOW)), None);
    let read: SnapshotSchedule = serde_json::from_value(serde_json::to_value(&anew).unwrap()).unwrap();
    assert_eq!(read, anew);
}

#[test]
fn what_was_stored_until_an_etcd_was_deleted_is_of_that_one() {
    for (stored_hours, until_hours, of) in [
        (1, None, OfEtcd::Present),
        (1, Some(2), OfEtcd::Present),
        (2, Some(2), OfEtcd::Earlier),
        (3, Some(2), OfEtcd::Earlier),
    ] {
        let until = until_hours.map(|until| at(NOW) - hours(until));
        assert_eq!(OfEtcd::at(at(NOW) - hours(stored_hours), until), of, "{stored_hours} {until_hours:?}");
    }
}

#[test]
fn a_snapshot_that_is_restored_is_of_an_etcd_of_before_if_its_name_is_older_than_the_end_of_that_one() {
    let until = at("2026-11-26T09:59:59.5Z");
    let anew = SnapshotSchedule { earlier_until: Some(until), ..schedule(6, at(NOW)) };
    for (time, of_earlier) in
        [("20251126T235959Z", true), ("20261126T095959Z", true), ("20261126T100000Z", false)]
    {
        assert_eq!(anew.is_of_deleted_etcd(time), of_earlier, "{time}");
        assert!(!schedule(6, at(NOW)).is_of_deleted_etcd(time));
    }
}

#[test]
fn a_new_etcd_does_not_wait_since_one_of_before_had_a_snapshot() {
    let gone = Some(at(NOW) - hours(2));
    let ledger = taken("etcd-0", at(NOW) - hours(3));
    for (earlier_until, expected) in [(None, Turn::NotDue { at: at(NOW) + hours(3) }), (gone, Turn::Take)] {
        let schedule = SnapshotSchedule { earlier_until, ..schedule(6, at(NOW) - hours(1)) };
        assert_eq!(turn(Some(&schedule), &ledger, &taker("etcd-0"), true, at(NOW)), expected);
    }
}

#[test]
fn snapshots_of_an_etcd_of_before_take_no_place_of_those_of_this_one_and_their_last_good_ones_stay_too() {
    let keep = Retention { all_days: 1, daily_days: 3, at_least: 2 };
    let earlier = |hours_ago| StoredSnapshot { etcd: OfEtcd::Earlier, ..stored(hours_ago, true) };
    // On the day of the launch both had snapshots: 12:00 less 30 h and less 34 h are of one day.
    let all = [stored(1, true), stored(30, true), earlier(34), earlier(35), earlier(900), earlier(901)];
    assert_eq!(expired(&all, keep, at(NOW)), ["901 h", "900 h"]);
    let old: Vec<StoredSnapshot> = [stored(900, true), earlier(2_000), earlier(2_001), earlier(2_002)].into();
    assert_eq!(expired(&old, keep, at(NOW)), ["2002 h"]);
    // Many of this one, and still the last good ones of before stay.
    let many: Vec<StoredSnapshot> = (0..20).map(|number| stored(number, true)).chain(old).collect();
    assert_eq!(expired(&many, keep, at(NOW)), ["2002 h", "900 h"]);
}
