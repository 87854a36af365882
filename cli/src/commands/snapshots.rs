//! `slipway snapshots`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::json;
use slipway_core::keys::{self, SnapshotKey};
use slipway_core::snapshots::OfEtcd;
use slipway_core::words::moment;
use slipway_ports::Listed;

use crate::Exit;
use crate::cloud::{Cloud, CloudArgs};
use crate::failure::CliError;
use crate::printer::Printer;

/// List the etcd snapshots of a cluster, the newest first.
///
/// Members take snapshots on the schedule of the spec (`etcd.snapshots`), and the scan deletes old ones. Rollouts order one before each step that replaces a member of etcd, a destruction orders a last one, and `slipway snapshot` orders one; none of these is deleted. If the cluster was destroyed and launched again, snapshots of the earlier etcd are marked as such. --max-age counts only verified snapshots of the present etcd. `slipway restore` restores one.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  shown; with --max-age: the newest verified one is young enough
  1  there is no such cluster; with --max-age: none is verified, the newest verified one is older, or not all could be listed
  2  wrong usage
  3  the asset bucket could not be read

The IAM permissions for this are listed in docs/cli.md.

Examples:
  slipway snapshots --cluster prod
  slipway snapshots --cluster prod --max-age 24
  slipway snapshots --cluster prod --output json | jq -r '.snapshots[0].key'")]
pub(crate) struct Args {
    #[command(flatten)]
    cloud: CloudArgs,
    /// Exit with 1 if the newest verified snapshot is older than this, in hours.
    #[arg(long, value_name = "HOURS")]
    max_age: Option<u32>,
}

/// One snapshot.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Snapshot {
    /// Its name for `slipway restore` and `etcd restore --snapshot`.
    pub(super) time: String,
    pub(super) key: String,
    kind: Kind,
    bytes: u64,
    pub(super) stored_at: Timestamp,
    /// Whether there is a record of a member that read the snapshot back. Agents without scheduled snapshots record nothing. Whoever may write into
    /// the bucket can write a record of a false snapshot.
    pub(super) verified: bool,
    /// Whether it is from an earlier etcd of this cluster, which was deleted.
    pub(super) of_earlier_etcd: bool,
}

#[cfg(test)]
impl Snapshot {
    /// A scheduled one of prod.
    pub(super) fn scheduled(time: &str, stored_at: Timestamp) -> Self {
        let (time, key) = (time.to_owned(), keys::scheduled_snapshot("prod", time));
        Self { time, key, kind: Kind::Scheduled, bytes: 1, stored_at, verified: true, of_earlier_etcd: false }
    }
}

/// Why a snapshot was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Kind {
    /// By the spec's schedule; the scan deletes old ones.
    Scheduled,
    /// By a rollout, a destruction or a person; none is deleted.
    Ordered,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Ordered => "ordered",
        }
    }
}

/// More objects of a folder are not listed. A schedule and its rollouts make fewer.
const MOST: usize = 30_000;

/// The snapshots of a cluster, as far as they were listed.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    /// The newest first.
    listed: Vec<Snapshot>,
    /// The folders with more objects than are listed. S3 lists the oldest times first, so the newest snapshots may be missing.
    cut: Vec<String>,
}

impl Snapshots {
    /// Lists them. `earlier_until`: when the last etcd of that name was deleted.
    pub(super) async fn read(cloud: &Cloud, earlier_until: Option<Timestamp>) -> Result<Self, CliError> {
        let name = cloud.cluster.as_str();
        let mut snapshots = Self::default();
        for (folder, kind) in
            [(keys::scheduled_snapshots(name), Kind::Scheduled), (keys::etcd_snapshots(name), Kind::Ordered)]
        {
            let objects = cloud.list_below(&folder, MOST + 1).await?;
            snapshots.add(&folder, &objects, kind, earlier_until);
        }
        Ok(snapshots)
    }

    /// The newest backup of this etcd. A snapshot of an earlier etcd is none, and one that nobody read back may be none.
    pub(super) fn newest(&self) -> Option<&Snapshot> {
        self.listed.iter().find(|one| one.verified && !one.of_earlier_etcd)
    }

    /// When it was stored.
    pub(super) fn newest_verified(&self) -> Option<Timestamp> {
        self.newest().map(|newest| newest.stored_at)
    }

    /// The snapshot of that time, one of [`Self::twins`] if there are two.
    pub(super) fn at(&self, time: &str) -> Option<&Snapshot> {
        self.listed.iter().find(|one| one.time == time)
    }

    /// The keys of all snapshots of that time, if there is more than one. Members give no snapshot a time that another has.
    pub(super) fn twins(&self, time: &str) -> Vec<&str> {
        let keys: Vec<&str> =
            self.listed.iter().filter(|one| one.time == time).map(|one| one.key.as_str()).collect();
        if keys.len() > 1 { keys } else { Vec::new() }
    }

    /// Whether not all could be listed.
    pub(super) fn is_cut(&self) -> bool {
        !self.cut.is_empty()
    }

    fn add(&mut self, folder: &str, objects: &[Listed], kind: Kind, earlier_until: Option<Timestamp>) {
        if objects.len() > MOST {
            self.cut.push(folder.to_owned());
        }
        let mut records = BTreeSet::new();
        for object in objects {
            if let Some(SnapshotKey::Record(time)) = keys::snapshot_key(folder, &object.key) {
                records.insert(time);
            }
        }
        self.listed.extend(objects.iter().filter_map(|object| {
            match keys::snapshot_key(folder, &object.key)? {
                SnapshotKey::Snapshot(time) => Some(Snapshot {
                    time: time.to_owned(),
                    key: object.key.clone(),
                    kind,
                    bytes: object.size,
                    stored_at: object.modified,
                    verified: records.contains(time),
                    of_earlier_etcd: OfEtcd::at(object.modified, earlier_until) == OfEtcd::Earlier,
                }),
                SnapshotKey::Record(_) => None,
            }
        }));
        self.listed.sort_by_key(|one| std::cmp::Reverse(one.stored_at));
    }

    /// Whether no backup of this etcd is younger than `limit`, which is also what the scan counts.
    fn is_old(&self, limit: SignedDuration, now: Timestamp) -> bool {
        self.newest_verified().is_none_or(|stored_at| now.duration_since(stored_at) > limit)
    }
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let cloud = args.cloud.named().await?;
    let (name, now) = (cloud.cluster.as_str(), Timestamp::now());
    let earlier_until = cloud.known_rollout().await?.and_then(|rollout| rollout.etcd_gone_at);
    let snapshots = Snapshots::read(&cloud, earlier_until).await?;
    let (text, is_old) = page(name, &snapshots, args.max_age, now);
    let incomplete = snapshots.is_cut();
    let machine = json!({
        "ok": true, "cluster": name, "snapshots": snapshots.listed, "tooOld": is_old, "incomplete": incomplete,
    });
    printer.result(&text, &machine);
    // Of an incomplete list nobody knows whether what it shows is the newest.
    Ok(if is_old || (incomplete && args.max_age.is_some()) { Exit::Findings } else { Exit::Done })
}

/// The list for people, and whether the newest one is too old.
fn page(name: &str, snapshots: &Snapshots, max_age: Option<u32>, now: Timestamp) -> (String, bool) {
    let limit = max_age.map(|hours| SignedDuration::from_hours(i64::from(hours)));
    let is_old = limit.is_some_and(|limit| snapshots.is_old(limit, now));
    let mut text = String::new();
    for one in &snapshots.listed {
        let mib = one.bytes.div_ceil(1 << 20);
        let age = now.duration_since(one.stored_at);
        let verified = if one.verified { "verified" } else { "not recorded as verified" };
        let earlier = if one.of_earlier_etcd { ", of an earlier etcd, which was deleted" } else { "" };
        let _ = writeln!(
            text,
            "{}  {mib} MiB  {:<9}  stored {} ({} h ago)  {verified}{earlier}",
            one.time,
            one.kind.word(),
            moment(one.stored_at),
            age.as_hours()
        );
    }
    if snapshots.listed.is_empty() {
        let _ = writeln!(
            text,
            "{name} has no snapshot of etcd yet; `slipway snapshot --cluster {name}` takes one"
        );
    }
    if let (true, Some(hours)) = (is_old, max_age) {
        let _ = writeln!(
            text,
            "no verified snapshot of this etcd is younger than {hours} h: `slipway snapshot --cluster {name}` takes one, or says why it cannot"
        );
    }
    let mut seen = BTreeSet::new();
    for twin in snapshots.listed.iter().filter(|one| !seen.insert(one.time.as_str())) {
        let _ = writeln!(
            text,
            "{} names two snapshots, and one may be false: `slipway restore` restores neither until one is deleted (docs/runbook.md)",
            twin.time
        );
    }
    for folder in &snapshots.cut {
        let _ = writeln!(
            text,
            "not all are shown: {folder} has more than {MOST} objects, and a schedule makes fewer. The newest may be missing. Find out which member of etcd writes there, and replace it; then delete what it wrote"
        );
    }
    (text, is_old)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn now() -> Timestamp {
        "2026-11-26T12:00:00Z".parse().unwrap()
    }

    fn stored(hours_ago: i64, verified: bool, of_earlier_etcd: bool) -> Snapshot {
        Snapshot {
            time: format!("{hours_ago} h"),
            key: String::new(),
            kind: Kind::Scheduled,
            bytes: 1,
            stored_at: now() - SignedDuration::from_hours(hours_ago),
            verified,
            of_earlier_etcd,
        }
    }

    fn shown(listed: Vec<Snapshot>, max_age: Option<u32>) -> (String, bool) {
        page("prod", &Snapshots { listed, cut: Vec::new() }, max_age, now())
    }

    #[test]
    fn a_snapshot_of_an_earlier_etcd_is_named_as_such_and_is_not_young_enough() {
        let (text, is_old) = shown(vec![stored(3, true, true), stored(9, true, true)], Some(24));
        assert!(is_old && text.contains("no verified snapshot of this etcd is younger than 24 h"), "{text}");
        assert_eq!(text.matches("verified, of an earlier etcd, which was deleted").count(), 2, "{text}");
        for (max_age, too_old) in [(Some(24), false), (Some(0), true), (None, false)] {
            let (text, is_old) = shown(vec![stored(1, true, false), stored(3, true, true)], max_age);
            assert_eq!(is_old, too_old, "{max_age:?}");
            let first = text.lines().next().unwrap();
            assert!(first.starts_with("1 h  1 MiB") && first.ends_with("(1 h ago)  verified"), "{text}");
        }
        assert!(shown(Vec::new(), Some(24)).1);
    }

    #[test]
    fn a_snapshot_that_nobody_read_back_is_not_young_enough() {
        assert!(shown(vec![stored(1, false, false), stored(30, true, false)], Some(24)).1);
        assert!(!shown(vec![stored(1, false, false), stored(23, true, false)], Some(24)).1);
    }

    /// Of two snapshots of one time, the newer one was taken.
    #[test]
    fn a_false_snapshot_of_the_time_of_a_good_one_is_named_and_neither_is_chosen() {
        let time = "20261126T110000Z";
        let object = |key: String, hours_ago| Listed {
            key,
            etag: String::new(),
            size: 1,
            modified: now() - SignedDuration::from_hours(hours_ago),
        };
        let mut snapshots = Snapshots::default();
        for (folder, kind, key, hours) in [
            (keys::scheduled_snapshots("prod"), Kind::Scheduled, keys::scheduled_snapshot("prod", time), 1),
            (keys::etcd_snapshots("prod"), Kind::Ordered, keys::etcd_snapshot("prod", time), 0),
        ] {
            assert_eq!(snapshots.twins(time), [""; 0]);
            let objects = [object(key.clone(), hours), object(keys::snapshot_record(&key), hours)];
            snapshots.add(&folder, &objects, kind, None);
        }
        assert_eq!(snapshots.twins(time).len(), 2);
        let (text, _) = page("prod", &snapshots, None, now());
        assert!(text.contains("20261126T110000Z names two snapshots"), "{text}");
        for wanted in [time, "latest"] {
            let refused = super::super::restore::chosen_of_prod(&snapshots, wanted).unwrap_err().to_string();
            assert!(refused.contains("two snapshots have the time 20261126T110000Z"), "{refused}");
        }
    }

    /// Whoever has taken over a member can write any number of snapshots of any time; S3 lists the earliest first.
    #[test]
    fn a_flood_of_false_snapshots_hides_no_good_one_unnoticed() {
        let folder = keys::etcd_snapshots("prod");
        let object = |number: usize| Listed {
            key: keys::etcd_snapshot("prod", &format!("20000101T{number:06}Z")),
            etag: String::new(),
            size: 1,
            modified: now(),
        };
        for (count, is_cut) in [(MOST, false), (MOST + 1, true)] {
            let mut snapshots = Snapshots::default();
            let objects: Vec<Listed> = (0..count).map(object).collect();
            snapshots.add(&folder, &objects, Kind::Ordered, None);
            let (text, is_old) = page("prod", &snapshots, Some(24), now());
            assert_eq!(text.contains(&format!("not all are shown: {folder} has more than 30000")), is_cut);
            assert!(is_old, "none was read back");
            assert_eq!(!snapshots.cut.is_empty(), is_cut);
        }
    }
}
