//! `slipway abort`.

use serde_json::json;
use slipway_core::event::{Event, RolloutAbort};
use slipway_core::words::moment;

use crate::Exit;
use crate::cloud::{BusArgs, Cloud, CloudArgs};
use crate::failure::CliError;
use crate::printer::Printer;

/// Abort the open rollout of a cluster in AWS, or its destruction: nothing new starts, and everything else stays as it is.
///
/// Operations of CloudFormation and of nodes that are in progress are completed first. To roll the plan out later, upload the spec again.
/// On a terminal the command asks for confirmation; a script passes the plan that is being rolled out, or --yes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  requested, or aborted already
  1  no rollout is open, PLAN is not the open one, or you declined
  2  wrong usage
  3  something could not be read, or the bus refused

The IAM permissions for this are listed in docs/cli.md.

Examples:
  slipway abort --cluster prod
  slipway abort --cluster prod 0123456789abcdef0123
  slipway abort --cluster prod --yes && slipway watch --cluster prod")]
pub(crate) struct Args {
    /// The plan that is being rolled out, as shown by `slipway status`.
    plan: Option<String>,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    cloud: CloudArgs,
    #[command(flatten)]
    bus: BusArgs,
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let cloud = args.cloud.named().await?;
    let name = cloud.cluster.as_str();
    if let Some(going) = cloud.rollout().await?.destruction_message() {
        return destruction(args, &cloud, &going, printer).await;
    }
    let active = cloud.open_rollout().await?;
    let (plan, since) = (active.plan.as_str(), moment(active.started_at));
    if let Some(other) = args.plan.as_deref().filter(|named| *named != plan) {
        let problem = format!("plan {other} is not being rolled out, but plan {plan} is");
        return Err(CliError::refused(problem, format!("see slipway status --cluster {name}")));
    }
    let watch = format!("slipway watch --cluster {name}");
    let before = active.aborted.is_some();
    let machine = |requested: bool| {
        let requested = requested.then_some("abort");
        json!({ "ok": true, "cluster": name, "plan": plan, "asked": requested, "abortedBefore": before })
    };
    if before {
        printer.result(&format!("the rollout of plan {plan} was aborted already; {watch}\n"), &machine(true));
        return Ok(Exit::Done);
    }
    printer.beside(&format!("plan {plan} is being rolled out since {since}\n"));
    let help = format!("name the plan: slipway abort --cluster {name} {plan}; or add --yes");
    let sure = args.yes || args.plan.is_some() || printer.confirm("abort it?", help)?;
    if !sure {
        printer.result("nothing was aborted\n", &machine(false));
        return Ok(Exit::Findings);
    }
    let abort = RolloutAbort { cluster: name.to_owned(), plan: Some(plan.to_owned()), at: None };
    args.bus.publish(&cloud, Event::RolloutAbort(abort)).await?;
    printer.result(&format!("requested that the rollout of plan {plan} ends; {watch}\n"), &machine(true));
    Ok(Exit::Done)
}

/// Ends a destruction; what was not deleted yet stays.
async fn destruction(args: &Args, cloud: &Cloud, going: &str, printer: &Printer) -> Result<Exit, CliError> {
    let name = cloud.cluster.as_str();
    if let Some(plan) = &args.plan {
        let problem =
            format!("no rollout is in progress, so there is no rollout of plan {plan} to abort: {going}");
        return Err(CliError::refused(problem, format!("to abort that: slipway abort --cluster {name}")));
    }
    printer.beside(&format!("{going}; what was deleted is not restored\n"));
    let help = format!("slipway abort --cluster {name} --yes");
    let sure = args.yes || printer.confirm("abort the destruction?", help)?;
    let machine =
        json!({ "ok": true, "cluster": name, "asked": sure.then_some("abort"), "destruction": true });
    if !sure {
        printer.result("nothing was aborted\n", &machine);
        return Ok(Exit::Findings);
    }
    let abort = RolloutAbort { cluster: name.to_owned(), plan: None, at: None };
    args.bus.publish(cloud, Event::RolloutAbort(abort)).await?;
    let text = format!("requested that the destruction of {name} ends; slipway watch --cluster {name}\n");
    printer.result(&text, &machine);
    Ok(Exit::Done)
}
