//! `slipway resume`.

use serde_json::json;
use slipway_core::event::{ClusterReference, Event};
use slipway_core::words::moment;

use crate::Exit;
use crate::cloud::{BusArgs, CloudArgs, must_stand};
use crate::failure::CliError;
use crate::printer::Printer;

/// Resume a paused cluster in AWS from its present state.
///
/// A plan that was approved meanwhile is started. Of several pause and resume orders the one given last counts, in whatever order they
/// arrive.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  requested, also if it was not paused
  1  nothing was planned yet, or there is no such cluster
  2  wrong usage
  3  something could not be read, or the bus refused

The IAM permissions for this are listed in docs/cli.md.

Examples:
  slipway resume --cluster prod
  slipway resume --cluster prod && slipway watch --cluster prod")]
pub(crate) struct Args {
    #[command(flatten)]
    cloud: CloudArgs,
    #[command(flatten)]
    bus: BusArgs,
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let cloud = args.cloud.named().await?;
    let (name, rollout) = (cloud.cluster.as_str(), cloud.rollout().await?);
    let since = rollout.paused_since();
    if since.is_none() {
        must_stand(&rollout)?;
    }
    // Sent even if the cluster is not paused, because an earlier pause may still be on its way.
    args.bus
        .publish(&cloud, Event::RolloutResume(ClusterReference { cluster: name.to_owned(), at: None }))
        .await?;
    let text = match since {
        Some(since) => {
            format!("{name}, paused since {}, continues; slipway watch --cluster {name}\n", moment(since))
        }
        None => format!("{name} was not paused; it continues\n"),
    };
    printer.result(&text, &json!({ "ok": true, "cluster": name, "asked": "resume", "pausedSince": since }));
    Ok(Exit::Done)
}
