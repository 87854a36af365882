//! What a scan does about scheduled snapshots of etcd.

use super::*;
use slipway_core::snapshots::{SnapshotFailure, SnapshotLedger, SnapshotSchedule, Taker};

/// A cluster that was launched.
async fn launched(text: &str) -> Workshop {
    let account = Workshop::launched(text).await;
    // Its launch may have failed after etcd: it counts that etcd is there.
    assert!(account.rollout().unwrap().existing_releases().contains_key("production-etcd"));
    account
}

fn schedule(account: &Workshop) -> Option<SnapshotSchedule> {
    account.read(&keys::snapshot_schedule(NAME))
}

/// The member stores a snapshot at that time.
pub(super) fn takes(account: &Workshop, at: Timestamp, verified: bool) -> String {
    account.assets.set_clock(at);
    let time = at.strftime("%Y%m%dT%H%M%SZ").to_string();
    let key = keys::scheduled_snapshot(NAME, &time);
    account.assets.upload(&key, "sealed");
    if verified {
        account.assets.upload(&keys::snapshot_record(&key), "{}");
    }
    key
}

fn hours(hours: i64) -> SignedDuration {
    SignedDuration::from_hours(hours)
}

#[tokio::test]
async fn a_scan_writes_the_schedule_and_a_changed_one_replaces_nothing() {
    // There is no etcd yet.
    let young = Workshop::launched(PRODUCTION).await;
    let mut rollout = (*young.rollout().unwrap()).clone();
    rollout.deployed.remove("production-etcd");
    young.assets.upload(&keys::rollout(NAME), store::json(&rollout));
    scan(&young, launch()).await;
    assert_eq!(schedule(&young), None);

    let account = launched(PRODUCTION).await;
    scan(&account, launch()).await;
    let first = SnapshotSchedule { format: 1, every_hours: Some(6), since: launch(), earlier_until: None };
    assert_eq!(schedule(&account), Some(first.clone()));
    let writes = account.assets.versions(&keys::snapshot_schedule(NAME));
    scan(&account, launch() + hours(1)).await;
    assert_eq!(account.assets.versions(&keys::snapshot_schedule(NAME)), writes, "nothing changed");

    let hourly = PRODUCTION.replace("\netcd:\n", "\netcd:\n  snapshots: {everyHours: 1}\n");
    assert_ne!(hourly, PRODUCTION);
    assert!(matches!(account.outcome(&hourly).await, rendering::RenderOutcome::Unchanged));
    scan(&account, launch() + hours(2)).await;
    let changed = SnapshotSchedule { every_hours: Some(1), since: launch() + hours(2), ..first };
    assert_eq!(schedule(&account), Some(changed.clone()));
    let off = PRODUCTION.replace("\netcd:\n", "\netcd:\n  snapshots: {enabled: false}\n");
    assert!(matches!(account.outcome(&off).await, rendering::RenderOutcome::Unchanged));
    scan(&account, launch() + hours(3)).await;
    assert_eq!(schedule(&account).unwrap().every_hours, None);
    // Nothing is missed then, and nothing is deleted, since nothing says what to keep.
    let old = takes(&account, launch(), true);
    assert_eq!(scan(&account, launch() + days(100)).await.findings, []);
    assert!(account.assets.newest(&old).is_some());
}

#[tokio::test]
async fn a_missing_snapshot_is_a_finding_which_says_why_and_a_launch_is_given_its_time() {
    let account = launched(PRODUCTION).await;
    assert_eq!(scan(&account, launch()).await.findings, []);
    assert_eq!(scan(&account, launch() + hours(14)).await.findings, [], "the first one may be late");
    let found = scan(&account, launch() + hours(15)).await.findings;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].key, "scheduled-snapshots/production/");
    assert_eq!(
        found[0].message,
        "no snapshot of etcd was taken since 2026-11-20T12:00:00Z, and the spec asks for one every 6 h: there is none yet"
    );
    assert!(found[0].help.contains("slipway upgrade agent --cluster production"), "{}", found[0].help);
    assert_eq!(scan_state(&account).findings, found, "`slipway status` shows it");

    // One that was not verified is no backup.
    takes(&account, launch() + hours(15), false);
    assert_eq!(scan(&account, launch() + hours(16)).await.findings.len(), 1);
    takes(&account, launch() + hours(16), true);
    let well = scan(&account, launch() + hours(17)).await;
    assert_eq!((well.findings, well.newest_snapshot), (Vec::new(), Some(launch() + hours(16))));

    let failure = SnapshotFailure {
        by: Taker { member: "etcd-1".to_owned(), instance: "i-1".to_owned() },
        at: launch() + hours(30),
        message: "kms:GenerateDataKey was denied".to_owned(),
        help: "look at the key's policy".to_owned(),
    };
    let ledger = SnapshotLedger { failure: Some(failure), ..SnapshotLedger::default() };
    account.assets.upload(&keys::snapshot_ledger(NAME), store::json(&ledger));
    let found = scan(&account, launch() + hours(31)).await.findings;
    assert!(
        found[0].message.ends_with(
            "the newest one is of 2026-11-21T04:00:00Z; etcd-1 failed at 2026-11-21T18:00:00Z: kms:GenerateDataKey was denied"
        ),
        "{}",
        found[0].message
    );
    assert_eq!(found[0].help, "look at the key's policy");
}

#[tokio::test]
async fn old_scheduled_snapshots_are_deleted_and_none_that_was_ordered_nor_the_last_good_ones() {
    let account = launched(PRODUCTION).await;
    scan(&account, launch()).await;
    account.assets.set_clock(launch());
    let ordered = keys::etcd_snapshot(NAME, "20261120T120000Z");
    account.assets.upload(&ordered, "sealed");
    account.assets.upload(&keys::snapshot_record(&ordered), "{}");
    // For forty days, every six hours, with a scan each day.
    let mut all = Vec::new();
    for number in 0..160 {
        let at = launch() + hours(6 * number);
        all.push(takes(&account, at, true));
        if number % 4 == 3 {
            assert_eq!(scan(&account, at).await.findings, [], "{at}");
        }
    }
    let last = launch() + hours(6 * 159);
    let kept = |account: &Workshop| -> Vec<String> {
        all.iter().filter(|key| account.assets.newest(key).is_some()).cloned().collect()
    };
    let now = kept(&account);
    // 7 days with four each, and the one at the beginning; then the last ones of 23 days.
    assert_eq!(now.len(), 29 + 23, "{now:#?}");
    assert_eq!(now[now.len() - 29..], all[all.len() - 29..]);
    for key in &all {
        let record = account.assets.newest(&keys::snapshot_record(key)).is_some();
        assert_eq!(record, now.contains(key), "{key}");
    }
    assert!(account.assets.newest(&ordered).is_some());
    // No more are taken: the newest good ones stay for ever, and that is a finding.
    assert_eq!(scan(&account, last + days(400)).await.findings.len(), 1);
    assert_eq!(kept(&account), all[all.len() - 8..]);
    assert!(account.assets.newest(&ordered).is_some());
}

/// The cluster was destroyed and launched again under its name.
#[tokio::test]
async fn snapshots_of_an_etcd_that_was_destroyed_do_not_count_for_the_new_one_and_its_last_good_ones_stay() {
    let account = launched(PRODUCTION).await;
    scan(&account, launch()).await;
    let before: Vec<String> = (0..10).map(|number| takes(&account, launch() + hours(number), true)).collect();
    let gone = launch() + hours(10);
    let mut rollout = (*account.rollout().unwrap()).clone();
    rollout.etcd_gone_at = Some(gone);
    account.assets.upload(&keys::rollout(NAME), store::json(&rollout));
    // It was launched again a hundred days later. Nothing is missed yet.
    let anew = launch() + days(100);
    let seen = scan(&account, anew).await;
    assert_eq!((seen.findings, seen.newest_snapshot), (Vec::new(), None));
    let written = schedule(&account).unwrap();
    assert_eq!((written.since, written.earlier_until), (anew, Some(gone)));
    let found = scan(&account, anew + hours(15)).await.findings;
    assert!(found.len() == 1 && found[0].message.ends_with("there is none yet"), "{found:?}");
    let own: Vec<String> =
        (0..25).map(|number| takes(&account, anew + hours(15 + 6 * number), true)).collect();
    assert_eq!(scan(&account, anew + hours(165)).await.findings, []);
    let stays = |key: &String| account.assets.newest(key).is_some();
    assert_eq!(before.iter().map(stays).collect::<Vec<_>>(), [[false; 2].as_slice(), &[true; 8]].concat());
    assert!(own.iter().all(stays));
}

#[tokio::test]
async fn a_failure_of_snapshots_holds_up_no_renewal_and_the_scan_is_repeated() {
    let folder = keys::scheduled_snapshots(NAME);
    for (call, what) in [("s3:ListObjectsV2", folder.as_str()), ("s3:DeleteObject", "")] {
        let account = launched(PRODUCTION).await;
        scan(&account, launch()).await;
        takes(&account, launch(), false);
        let now = launch() + days(359);
        account.assets.set_clock(now);
        take_event_counts(&account);
        account.assets.faults().plan(call, what, Fault::Before(slipway_ports::ErrorKind::Transient), 1);
        let outcome = account.scan(&RenewalRequest::default(), &Life::unending(), now).await;
        assert!(outcome.is_err(), "{call}: {outcome:?}");
        assert_eq!(take_event_counts(&account).get("Certificate Renewed"), Some(&1), "{call}");
        assert_eq!(scan(&account, now).await.renewed, Vec::<String>::new(), "{call}");
    }
}

/// A member can write what it likes there, and must not thereby hide that no snapshots are taken, nor have the good ones deleted.
#[tokio::test]
async fn a_flood_of_false_snapshots_deletes_no_good_one_and_is_a_finding() {
    let account = launched(PRODUCTION).await;
    scan(&account, launch()).await;
    let good = takes(&account, launch(), true);
    account.assets.set_clock(launch() + hours(1));
    for number in 0..30_000 {
        account.assets.upload(&keys::scheduled_snapshot(NAME, &format!("20200101T{number:06}Z")), "false");
    }
    let found = scan(&account, launch() + days(100)).await.findings;
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].help.starts_with("find out which member of etcd writes there"), "{}", found[0].help);
    assert!(account.assets.newest(&good).is_some());
}
