//! `slipway snapshots`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::json;
use slipway_core::keys::{self, SnapshotKey};
use slipway_core::snapshots::OfEtcd;
use slipway_core::words::moment;

use crate::Exit;
use crate::cloud::{Cloud, CloudArgs};
use crate::failure::CliError;
use crate::printer::Printer;

/// List the etcd snapshots of a cluster, the newest first.
///
/// Members take snapshots on the schedule of the spec (`etcd.snapshots`), and the scan deletes old ones. Rollouts order one before each step that replaces a member of etcd, a destruction orders a last one, and `slipway snapshot` orders one; none of these is deleted. If the cluster was destroyed and launched again, those of the etcd before are named as such, and --max-age does not count them. docs/nodes.md says how to restore one.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  shown; with --max-age: the newest is young enough
  1  there is no such cluster; with --max-age: there is none, or the newest is older
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
    /// Exit with 1 if the newest snapshot is older than this, in hours.
    #[arg(long, value_name = "HOURS")]
    max_age: Option<u32>,
}

/// One snapshot.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Snapshot {
    /// Its name for `etcd restore --snapshot`.
    time: String,
    key: String,
    kind: Kind,
    bytes: u64,
    stored_at: Timestamp,
    /// Whether the member recorded that it read the snapshot back. Agents without scheduled snapshots record nothing.
    verified: bool,
    /// Whether it is of an etcd of that name that was deleted.
    of_earlier_etcd: bool,
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

/// More are not listed.
const MOST: usize = 30_000;

async fn stored(
    cloud: &Cloud,
    folder: &str,
    kind: Kind,
    earlier_until: Option<Timestamp>,
) -> Result<Vec<Snapshot>, CliError> {
    let listed = cloud.list_below(folder, MOST).await?;
    let mut records = BTreeSet::new();
    for object in &listed {
        if let Some(SnapshotKey::Record(time)) = keys::snapshot_key(folder, &object.key) {
            records.insert(time);
        }
    }
    let snapshots = listed.iter().filter_map(|object| match keys::snapshot_key(folder, &object.key)? {
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
    });
    Ok(snapshots.collect())
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let cloud = args.cloud.named().await?;
    let (name, now) = (cloud.cluster.as_str(), Timestamp::now());
    let earlier_until = cloud.known_rollout().await?.and_then(|rollout| rollout.earlier_etcd_until());
    let mut snapshots = Vec::new();
    for (folder, kind) in
        [(keys::scheduled_snapshots(name), Kind::Scheduled), (keys::etcd_snapshots(name), Kind::Ordered)]
    {
        snapshots.extend(stored(&cloud, &folder, kind, earlier_until).await?);
    }
    snapshots.sort_by_key(|one| std::cmp::Reverse(one.stored_at));
    let (text, is_old) = page(name, &snapshots, args.max_age, now);
    let machine = json!({ "ok": true, "cluster": name, "snapshots": snapshots, "tooOld": is_old });
    printer.result(&text, &machine);
    Ok(if is_old { Exit::Findings } else { Exit::Done })
}

/// The list for people, and whether the newest one is too old.
fn page(name: &str, snapshots: &[Snapshot], max_age: Option<u32>, now: Timestamp) -> (String, bool) {
    // One of an earlier etcd is no backup of this one.
    let own = snapshots.iter().find(|one| !one.of_earlier_etcd);
    let age = own.map(|newest| now.duration_since(newest.stored_at));
    let limit = max_age.map(|hours| SignedDuration::from_hours(i64::from(hours)));
    let is_old = limit.is_some_and(|limit| age.is_none_or(|age| age > limit));
    let mut text = String::new();
    for one in snapshots {
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
    if snapshots.is_empty() {
        let _ = writeln!(
            text,
            "{name} has no snapshot of etcd yet; `slipway snapshot --cluster {name}` takes one"
        );
    }
    if let (true, Some(hours)) = (is_old, max_age) {
        let _ = writeln!(
            text,
            "no snapshot of this etcd is younger than {hours} h: `slipway snapshot --cluster {name}` takes one, or says why it cannot"
        );
    }
    (text, is_old)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_snapshot_of_an_earlier_etcd_is_named_as_such_and_is_not_young_enough() {
        let now: Timestamp = "2026-11-26T12:00:00Z".parse().unwrap();
        let stored = |hours_ago: i64, of_earlier_etcd| Snapshot {
            time: format!("{hours_ago} h"),
            key: String::new(),
            kind: Kind::Scheduled,
            bytes: 1,
            stored_at: now - SignedDuration::from_hours(hours_ago),
            verified: true,
            of_earlier_etcd,
        };
        let (text, is_old) = page("prod", &[stored(3, true), stored(9, true)], Some(24), now);
        assert!(is_old && text.contains("no snapshot of this etcd is younger than 24 h"), "{text}");
        assert_eq!(text.matches("verified, of an earlier etcd, which was deleted").count(), 2, "{text}");
        let all = [stored(1, false), stored(3, true)];
        for (max_age, too_old) in [(Some(24), false), (Some(0), true), (None, false)] {
            let (text, is_old) = page("prod", &all, max_age, now);
            assert_eq!(is_old, too_old, "{max_age:?}");
            let first = text.lines().next().unwrap();
            assert!(first.starts_with("1 h  1 MiB") && first.ends_with("(1 h ago)  verified"), "{text}");
        }
        assert!(page("prod", &[], Some(24), now).1);
    }
}
