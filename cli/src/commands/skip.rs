//! `slipway skip`.

use serde_json::json;
use slipway_core::event::{Event, RolloutSkip};

use crate::Exit;
use crate::cloud::{BusArgs, CloudArgs};
use crate::failure::CliError;
use crate::overview::has_reported;
use crate::printer::Printer;

/// Make the open rollout of a cluster in AWS skip a machine, which then stays as it is.
///
/// Use it for a machine that blocks a rollout, such as one whose drain never ends. The machine stays outdated, so the next plan includes
/// it again.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  requested, or skipped already
  1  no rollout is open, or there is no such cluster or machine
  2  wrong usage, or NODE is no instance id
  3  something could not be read, or the bus refused

The IAM permissions for this are listed in docs/cli.md.

Examples:
  slipway skip i-0123456789abcdef0 --cluster prod
  slipway skip i-0123456789abcdef0 --cluster prod --output json")]
pub(crate) struct Args {
    /// The machine's instance id, which is also the node's name.
    #[arg(value_parser = instance)]
    node: String,
    #[command(flatten)]
    cloud: CloudArgs,
    #[command(flatten)]
    bus: BusArgs,
}

fn instance(text: &str) -> Result<String, String> {
    let digits = text.strip_prefix("i-").unwrap_or_default();
    let fits = (1..=17).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if fits { Ok(text.to_owned()) } else { Err("a machine's id is i- and hexadecimal digits".to_owned()) }
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let cloud = args.cloud.named().await?;
    let (name, active) = (cloud.cluster.as_str(), cloud.open_rollout().await?);
    let (instance, before) = (args.node.as_str(), active.skipped.contains(&args.node));
    if !before && !has_reported(&cloud, instance).await? {
        let problem = format!("no machine {instance} of {name} has reported to Slipway yet");
        let help = format!(
            "slipway status --cluster {name} lists those that have; of another the event `Rollout Skip` tells the rollout all the same \
             (docs/cli.md)"
        );
        return Err(CliError::refused(problem, help));
    }
    if !before {
        let skip = RolloutSkip { cluster: name.to_owned(), instance: instance.to_owned(), at: None };
        args.bus.publish(&cloud, Event::RolloutSkip(skip)).await?;
    }
    let text = if before {
        format!("the rollout of plan {} skips {instance} already\n", active.plan)
    } else {
        format!("requested that the rollout of plan {} skips {instance}\n", active.plan)
    };
    let machine = json!({
        "ok": true, "cluster": name, "plan": active.plan, "asked": "skip", "instance": instance,
        "skippedBefore": before,
    });
    printer.result(&text, &machine);
    Ok(Exit::Done)
}
