//! `slipway pause`.

use serde_json::json;
use slipway_core::event::{ClusterReference, Event};
use slipway_core::words::moment;

use crate::Exit;
use crate::cloud::{BusArgs, CloudArgs, must_stand};
use crate::failure::CliError;
use crate::printer::Printer;

/// Pause a cluster in AWS: nothing new starts, in this rollout and in later ones, until `slipway resume`.
///
/// Operations of CloudFormation and of nodes that are in progress are completed. Plans are still made and can be approved meanwhile. Of
/// several pause and resume orders, the one that was given last counts, even if it arrives first.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  requested, or paused already
  1  nothing was planned yet, the cluster was destroyed, or there is no such cluster
  2  wrong usage
  3  something could not be read, or the bus refused

The IAM permissions for this are listed in docs/cli.md.

Examples:
  slipway pause --cluster prod
  slipway pause --cluster prod && slipway status --cluster prod")]
pub(crate) struct Args {
    #[command(flatten)]
    cloud: CloudArgs,
    #[command(flatten)]
    bus: BusArgs,
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let cloud = args.cloud.named().await?;
    let (name, rollout) = (cloud.cluster.as_str(), cloud.rollout().await?);
    must_stand(&rollout)?;
    let since = rollout.paused_since();
    // Sent even if the cluster is paused, because an earlier resume may still be on its way.
    args.bus
        .publish(&cloud, Event::RolloutPause(ClusterReference { cluster: name.to_owned(), at: None }))
        .await?;
    let text = match since {
        None => {
            format!(
                "requested a pause of {name}: nothing new starts; `slipway resume --cluster {name}` lets it continue\n"
            )
        }
        Some(since) => {
            let since = moment(since);
            format!("{name} is paused since {since}; `slipway resume --cluster {name}` lets it continue\n")
        }
    };
    printer.result(&text, &json!({ "ok": true, "cluster": name, "asked": "pause", "pausedSince": since }));
    Ok(Exit::Done)
}
