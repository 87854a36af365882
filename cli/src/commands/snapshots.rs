//! `slipway snapshots`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::json;
use slipway_core::keys::{self, SnapshotKey};
use slipway_core::words::moment;

use crate::Exit;
use crate::cloud::{Cloud, CloudArgs};
use crate::failure::CliError;
use crate::printer::Printer;

/// List the etcd snapshots of a cluster, the newest first.
///
/// Members take snapshots on the schedule of the spec (`etcd.snapshots`), and the scan deletes old ones. Rollouts order one before each step that replaces a member of etcd, a destruction orders a last one, and `slipway snapshot` orders one; none of these is deleted. docs/nodes.md says how to restore one.
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

async fn stored(cloud: &Cloud, folder: &str, kind: Kind) -> Result<Vec<Snapshot>, CliError> {
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
        }),
        SnapshotKey::Record(_) => None,
    });
    Ok(snapshots.collect())
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let cloud = args.cloud.named().await?;
    let (name, now) = (cloud.cluster.as_str(), Timestamp::now());
    let mut snapshots = stored(&cloud, &keys::scheduled_snapshots(name), Kind::Scheduled).await?;
    snapshots.extend(stored(&cloud, &keys::etcd_snapshots(name), Kind::Ordered).await?);
    snapshots.sort_by_key(|one| std::cmp::Reverse(one.stored_at));
    let age = snapshots.first().map(|newest| now.duration_since(newest.stored_at));
    let limit = args.max_age.map(|hours| SignedDuration::from_hours(i64::from(hours)));
    let is_old = limit.is_some_and(|limit| age.is_none_or(|age| age > limit));
    let mut text = String::new();
    for one in &snapshots {
        let mib = one.bytes.div_ceil(1 << 20);
        let age = now.duration_since(one.stored_at);
        let verified = if one.verified { "verified" } else { "not recorded as verified" };
        let _ = writeln!(
            text,
            "{}  {mib} MiB  {:<9}  stored {} ({} h ago)  {verified}",
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
    if let (true, Some(hours)) = (is_old, args.max_age) {
        let _ = writeln!(
            text,
            "no snapshot is younger than {hours} h: `slipway snapshot --cluster {name}` takes one, or says why it cannot"
        );
    }
    let machine = json!({ "ok": true, "cluster": name, "snapshots": snapshots, "tooOld": is_old });
    printer.result(&text, &machine);
    Ok(if is_old { Exit::Findings } else { Exit::Done })
}
