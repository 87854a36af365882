//! `slipway snapshot`.

use jiff::Timestamp;
use serde_json::json;
use slipway_core::node::{SnapshotTaken, Verb};

use crate::Exit;
use crate::cloud::{CloudArgs, must_stand};
use crate::failure::CliError;
use crate::members;
use crate::overview::plain;
use crate::printer::Printer;

/// Take a snapshot of etcd now, and wait until it is stored and read back.
///
/// Members are asked one after the other, through Run Command, until one has taken it. The snapshot is sealed on the member; this command cannot read it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  taken and stored
  1  there is no such cluster or no member, or no member could take it
  2  wrong usage
  3  something could not be read, or AWS refused

The IAM permissions for this are listed in docs/cli.md. `slipway snapshots` lists what is stored.

Examples:
  slipway snapshot --cluster prod
  slipway snapshot --cluster prod --output json | jq -r .key")]
pub(crate) struct Args {
    #[command(flatten)]
    cloud: CloudArgs,
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let cloud = args.cloud.named().await?;
    let name = cloud.cluster.as_str();
    must_stand(&cloud.rollout().await?)?;
    let members = members::machines(&cloud).await?;
    let token = format!("snapshot-{}", Timestamp::now().as_millisecond());
    let mut failed = Vec::new();
    for (role, instance) in members {
        match members::answer::<SnapshotTaken>(&cloud, &instance, Verb::EtcdSnapshot, &token).await? {
            Ok(snapshot) => {
                let text = format!(
                    "{role} ({instance}) took the snapshot {} in {} s: {} bytes, revision {} or later\n{}\nSHA-256 of the database: {}\n",
                    plain(&snapshot.time),
                    snapshot.seconds,
                    snapshot.size,
                    snapshot.revision,
                    plain(&snapshot.key),
                    plain(&snapshot.sha256)
                );
                let machine = json!({
                    "ok": true, "cluster": name, "role": role.to_string(), "instance": instance, "key": snapshot.key,
                    "time": snapshot.time, "sha256": snapshot.sha256, "bytes": snapshot.size, "revision": snapshot.revision, "failed": failed,
                });
                printer.result(&text, &machine);
                return Ok(Exit::Done);
            }
            Err(why) => {
                let words = format!("{role} ({instance}) took none: {}", plain(&why.to_string()));
                printer.beside(&format!("{words}\n"));
                failed.push(words);
            }
        }
    }
    let help = format!("slipway status --cluster {name} shows what is wrong with etcd; then try again");
    Err(CliError::refused(format!("no member of {name} took a snapshot: {}", failed.join("; ")), help))
}
