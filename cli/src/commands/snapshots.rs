//! `slipway snapshots`.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::json;
use slipway_core::words::moment;

use crate::Exit;
use crate::cloud::CloudArgs;
use crate::failure::CliError;
use crate::printer::Printer;

/// List the etcd snapshots of a cluster, the newest first.
///
/// Rollouts take a snapshot before each step that replaces a member of etcd, and a destruction takes a last one. docs/nodes.md says how to restore one.
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
    bytes: u64,
    stored_at: Timestamp,
}

/// More are not listed.
const MOST: usize = 10_000;

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let cloud = args.cloud.named().await?;
    let (name, now) = (cloud.cluster.as_str(), Timestamp::now());
    let folder = "etcd-snapshots/";
    let mut snapshots: Vec<Snapshot> = cloud
        .list(folder, MOST)
        .await?
        .into_iter()
        .filter_map(|object| {
            let (_, file) = object.key.rsplit_once('/')?;
            let time = file.strip_suffix(".db")?.to_owned();
            Some(Snapshot { time, bytes: object.size, stored_at: object.modified, key: object.key })
        })
        .collect();
    snapshots.sort_by_key(|one| std::cmp::Reverse(one.stored_at));
    let age = snapshots.first().map(|newest| now.duration_since(newest.stored_at));
    let limit = args.max_age.map(|hours| SignedDuration::from_hours(i64::from(hours)));
    let is_old = limit.is_some_and(|limit| age.is_none_or(|age| age > limit));
    let mut text = String::new();
    for one in &snapshots {
        let mib = one.bytes.div_ceil(1 << 20);
        let age = now.duration_since(one.stored_at);
        let _ = writeln!(
            text,
            "{}  {mib} MiB  stored {} ({} h ago)",
            one.time,
            moment(one.stored_at),
            age.as_hours()
        );
    }
    if snapshots.is_empty() {
        let _ = writeln!(
            text,
            "{name} has no snapshot of etcd yet; its next rollout that replaces a member takes one"
        );
    }
    if let (true, Some(hours)) = (is_old, args.max_age) {
        let _ = writeln!(
            text,
            "no snapshot is younger than {hours} h: run the document Slipway-EtcdSnapshot on a member, docs/nodes.md"
        );
    }
    let machine = json!({ "ok": true, "cluster": name, "snapshots": snapshots, "tooOld": is_old });
    printer.result(&text, &machine);
    Ok(if is_old { Exit::Findings } else { Exit::Done })
}
