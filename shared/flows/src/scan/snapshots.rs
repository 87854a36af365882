//! Scheduled snapshots of etcd: writes the schedule that the members read, deletes what the spec does not keep, and finds out when no snapshot
//! is taken. The members take them (`slipway_core::snapshots`), and cannot delete any.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use slipway_core::keys::{self, SnapshotKey};
use slipway_core::snapshots::{
    self, OfEtcd, ScheduledSnapshots, SnapshotLedger, SnapshotSchedule, StoredSnapshot,
};
use slipway_core::words::moment;
use slipway_credentials::renewal::Finding;
use slipway_ports::{Listed, Listing, Objects, Removal};

use crate::error::{FlowError, FlowResult};
use crate::store::{self, AT_A_TIME, NodeObject, Stored};

/// How many objects are listed. The most that a spec can keep are fewer, with their records.
const MOST_LISTED: usize = 30_000;
/// How many snapshots a scan deletes at most.
const MOST_EXPIRED: usize = 500;
/// A record without its snapshot is left alone for so long: the snapshot may just have been deleted by another scan.
const LONELY: SignedDuration = SignedDuration::from_hours(24);

/// What a scan saw of a cluster's scheduled snapshots.
#[derive(Debug)]
pub(super) struct SnapshotScan {
    stored: Stored<SnapshotSchedule>,
    /// The schedule to write.
    change: Option<SnapshotSchedule>,
    /// Keys to delete, in that order.
    expired: Vec<String>,
    /// When the newest verified one of this etcd was stored.
    pub(super) newest: Option<Timestamp>,
    /// Whether one is missing.
    pub(super) finding: Option<Finding>,
}

/// Reads them, and changes nothing. `wanted`: the schedule. `earlier_until`: what was stored until then is of an etcd that was deleted since.
pub(super) async fn read_snapshots(
    assets: &(impl Objects + Listing),
    name: &str,
    wanted: Option<ScheduledSnapshots>,
    earlier_until: Option<Timestamp>,
    now: Timestamp,
) -> FlowResult<SnapshotScan> {
    // Only the scan writes it, so one that cannot be read is written again.
    let (stored, _) = store::load_or_none::<SnapshotSchedule>(assets, &keys::snapshot_schedule(name)).await?;
    let change =
        SnapshotSchedule::schedule_to_store(stored.value.as_ref(), wanted.as_ref(), earlier_until, now);
    let mut scan = SnapshotScan { stored, change, expired: Vec::new(), newest: None, finding: None };
    // Without a schedule nothing says how long those of before are kept.
    let Some(wanted) = wanted else { return Ok(scan) };
    let folder = keys::scheduled_snapshots(name);
    let listed = assets.list(&folder, MOST_LISTED).await?;
    if listed.len() >= MOST_LISTED {
        scan.finding = Some(Finding {
            message: format!(
                "it has {MOST_LISTED} objects or more, and a schedule makes fewer, so none was deleted, and nobody knows how old the newest snapshot is"
            ),
            help: "find out which member of etcd writes there, and replace it; then delete what it wrote"
                .to_owned(),
            key: folder,
        });
        return Ok(scan);
    }
    let (all, records) = sorted(&folder, &listed, earlier_until);
    let counts = |one: &&StoredSnapshot| one.verified && one.etcd == OfEtcd::Present;
    scan.newest = all.iter().filter(counts).map(|one| one.stored_at).max();
    scan.expired = expired(name, &all, &records, wanted.keep, now);
    if let Some(schedule) = scan.stored.value.as_ref().filter(|_| scan.change.is_none())
        && let Some(since) = snapshots::overdue_since(schedule, scan.newest, now)
    {
        // For words only. Whoever runs a scan by hand may not read it.
        let key = keys::snapshot_ledger(name);
        let ledger =
            match store::read_node_object::<SnapshotLedger>(assets, &key, SnapshotLedger::MOST_BYTES).await {
                Ok(NodeObject::Read(ledger)) => Some(ledger),
                Ok(NodeObject::Missing | NodeObject::Unreadable(_)) | Err(_) => None,
            };
        scan.finding = Some(overdue(name, wanted.every_hours, since, scan.newest, ledger.as_ref()));
    }
    Ok(scan)
}

impl SnapshotScan {
    /// Writes the schedule, if it has changed, and deletes what has expired.
    pub(super) async fn act(&self, assets: &(impl Objects + Removal), cluster: &str) -> FlowResult<()> {
        if let Some(change) = self.change.clone()
            && store::save(assets, &keys::snapshot_schedule(cluster), &self.stored, change).await?.is_none()
        {
            tracing::info!(cluster, "another scan wrote the schedule of snapshots first");
        }
        stream::iter(&self.expired)
            .map(|key| assets.remove(key))
            .buffer_unordered(AT_A_TIME)
            .try_collect::<Vec<()>>()
            .await?;
        Ok(())
    }
}

/// A failure that no retry resolves. It must not block renewals.
pub(super) fn not_tended(cluster: &str, error: &FlowError) -> Finding {
    Finding {
        key: keys::scheduled_snapshots(cluster),
        message: format!("the schedule of etcd's snapshots cannot be kept up: {error}"),
        help: "resolve that; then the next scan writes the schedule and deletes old snapshots".to_owned(),
    }
}

/// The snapshots in `listed`, and the times of the records with the time when they were stored.
fn sorted<'l>(
    folder: &str,
    listed: &'l [Listed],
    earlier_until: Option<Timestamp>,
) -> (Vec<StoredSnapshot>, BTreeMap<&'l str, Timestamp>) {
    let records: BTreeMap<&str, Timestamp> = listed
        .iter()
        .filter_map(|one| match keys::snapshot_key(folder, &one.key)? {
            SnapshotKey::Record(time) => Some((time, one.modified)),
            SnapshotKey::Snapshot(_) => None,
        })
        .collect();
    let all = listed.iter().filter_map(|one| match keys::snapshot_key(folder, &one.key)? {
        SnapshotKey::Snapshot(time) => Some(StoredSnapshot {
            time: time.to_owned(),
            stored_at: one.modified,
            verified: records.contains_key(time),
            etcd: OfEtcd::at(one.modified, earlier_until),
        }),
        SnapshotKey::Record(_) => None,
    });
    (all.collect(), records)
}

/// The keys of the snapshots that have expired, with their records, and of records without a snapshot.
fn expired(
    cluster: &str,
    all: &[StoredSnapshot],
    records: &BTreeMap<&str, Timestamp>,
    keep: snapshots::Retention,
    now: Timestamp,
) -> Vec<String> {
    let mut times = snapshots::expired(all, keep, now);
    times.truncate(MOST_EXPIRED);
    let known: BTreeSet<&str> = all.iter().map(|one| one.time.as_str()).collect();
    let lonely = records
        .iter()
        .filter(|(time, stored_at)| !known.contains(*time) && now.duration_since(**stored_at) > LONELY)
        .map(|(time, _)| keys::snapshot_record(&keys::scheduled_snapshot(cluster, time)))
        .take(MOST_EXPIRED);
    let of_snapshots = times.iter().flat_map(|time| {
        let key = keys::scheduled_snapshot(cluster, time);
        let record = records.contains_key(time.as_str()).then(|| keys::snapshot_record(&key));
        std::iter::once(key).chain(record)
    });
    of_snapshots.chain(lonely).collect()
}

fn overdue(
    cluster: &str,
    every_hours: u32,
    since: Timestamp,
    newest: Option<Timestamp>,
    ledger: Option<&SnapshotLedger>,
) -> Finding {
    let newest = newest.map_or_else(
        || "there is none yet".to_owned(),
        |newest| format!("the newest one is of {}", moment(newest)),
    );
    let mut message = format!(
        "no snapshot of etcd was taken since {}, and the spec asks for one every {every_hours} h: {newest}",
        moment(since)
    );
    let help = match ledger.and_then(|ledger| ledger.failure.as_ref()) {
        Some(failure) => {
            // A member's words, of which it may write any number.
            let [member, why, help] =
                [&failure.by.member, &failure.message, &failure.help].map(|words| store::clipped(words));
            message.push_str(&format!("; {member} failed at {}: {why}", moment(failure.at)));
            help
        }
        None => format!(
            "take one by `slipway snapshot --cluster {cluster}`, which says what is wrong with etcd; if it succeeds, the cluster's agent may be \
             older than scheduled snapshots (`slipway upgrade agent --cluster {cluster}`), or an instance profile of your own lacks the statements \
             KeepSnapshots and ReadSnapshotSchedule; `slipway logs etcd-0 --cluster {cluster} --unit agent` shows what slipway-snapshot does there"
        ),
    };
    Finding { key: keys::scheduled_snapshots(cluster), message, help }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn now() -> Timestamp {
        "2026-11-26T12:00:00Z".parse().unwrap()
    }

    fn object(key: &str, days_ago: i64) -> Listed {
        let modified = now() - SignedDuration::from_hours(24 * days_ago);
        Listed { key: format!("scheduled-snapshots/prod/{key}"), etag: String::new(), size: 1, modified }
    }

    #[test]
    fn a_snapshot_is_deleted_before_its_record_and_nothing_else_is() {
        let listed = [
            object("20261001T000000Z.db", 50),
            object("20261001T000000Z.db.json", 50),
            object("20261001T010000Z.db", 50),
            object("20261119T000000Z.db", 0),
            object("20261119T000000Z.db.json", 0),
            object("20261118T000000Z.db.json", 2),
            object("20261119T010000Z.db.json", 0),
            object("ledger.json", 90),
            object("other/20261001T000000Z.db", 90),
            object("e.txt", 90),
        ];
        let (all, records) = sorted("scheduled-snapshots/prod/", &listed, None);
        let keep = snapshots::Retention { all_days: 1, daily_days: 1, at_least: 1 };
        let keys = expired("prod", &all, &records, keep, now());
        let names: Vec<&str> =
            keys.iter().map(|key| key.strip_prefix("scheduled-snapshots/prod/").unwrap()).collect();
        assert_eq!(
            names,
            [
                "20261001T000000Z.db",
                "20261001T000000Z.db.json",
                "20261001T010000Z.db",
                "20261118T000000Z.db.json"
            ]
        );
    }
}
