//! `slipway approve`.

use jiff::Timestamp;
use serde_json::json;
use slipway_core::cluster::Approval;
use slipway_core::event::{Event, RolloutApproved};
use slipway_core::keys;
use slipway_core::status::{Desired, RolloutState};
use slipway_core::words::moment;
use slipway_flows::error::FlowError;
use slipway_flows::store;
use slipway_plan::Plan;
use slipway_rollout::Rollout;

use crate::Exit;
use crate::cloud::{BusArgs, Cloud, CloudArgs};
use crate::failure::CliError;
use crate::printer::Printer;

/// Show the newest plan of a cluster in AWS and approve it, which starts the rollout.
///
/// On a terminal the command asks for confirmation; a script passes the plan that was reviewed, or --yes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  approved, or approved before
  1  no plan waits for approval, PLAN is not the newest one, or you declined
  2  wrong usage
  3  something could not be read, or the bus refused

The IAM permissions for this are listed in docs/cli.md.

Examples:
  slipway approve --cluster prod
  slipway approve --cluster prod 0123456789abcdef0123
  slipway approve --cluster prod --yes && slipway watch --cluster prod")]
pub(crate) struct Args {
    /// The plan, as shown by `slipway status`. Default: the newest.
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
    // Whoever names the plan has reviewed it.
    let sure = args.yes || args.plan.is_some();
    ask(&cloud, &args.bus, args.plan.as_deref(), sure, printer).await
}

/// Shows the plan `named`, or the newest, and approves it if a person wants that. `sure`: without a question.
pub(crate) async fn ask(
    cloud: &Cloud,
    bus: &BusArgs,
    named: Option<&str>,
    sure: bool,
    printer: &Printer,
) -> Result<Exit, CliError> {
    let (plan, before, paused_since) = newest(cloud, named).await.map_err(CliError::in_cloud)?;
    let watch = format!("slipway watch --cluster {}", cloud.cluster);
    let machine = |approved: bool| {
        json!({
            "ok": true, "cluster": cloud.cluster, "plan": plan.id, "summary": plan.summary(),
            "approved": approved, "approvedBefore": before, "pausedSince": paused_since,
        })
    };
    let paused = paused_since.map(|since| paused_in_words(&cloud.cluster, since)).unwrap_or_default();
    if before {
        let text = format!("plan {} was approved already; {watch}\n{paused}", plan.id);
        printer.result(&text, &machine(true));
        return Ok(Exit::Done);
    }
    let shown =
        format!("{}plan {}: {}\n{paused}", printer.coloured(&plan.to_text()), plan.id, plan.summary());
    printer.beside(&shown);
    let sure = sure || {
        let (name, plan) = (&cloud.cluster, &plan.id);
        let help = format!("name the plan: slipway approve --cluster {name} {plan}; or add --yes");
        printer.confirm("approve it?", help)?
    };
    if !sure {
        printer.result("nothing was approved\n", &machine(false));
        return Ok(Exit::Findings);
    }
    let approved = RolloutApproved { cluster: cloud.cluster.clone(), plan: plan.id.clone(), at: None };
    bus.publish(cloud, Event::RolloutApproved(approved)).await?;
    printer.result(&format!("approved plan {}; {watch}\n{paused}", plan.id), &machine(true));
    Ok(Exit::Done)
}

/// What a pause means for a plan, which would begin otherwise.
pub(crate) fn paused_in_words(cluster: &str, since: Timestamp) -> String {
    format!(
        "everything is paused since {}: it does not begin before slipway resume --cluster {cluster}\n",
        moment(since)
    )
}

/// The plan to approve, whether it was approved already, and since when everything is paused.
async fn newest(cloud: &Cloud, named: Option<&str>) -> Result<(Plan, bool, Option<Timestamp>), CliError> {
    let (assets, name) = (cloud.assets(), cloud.cluster.as_str());
    let Some(desired) = store::load::<Desired>(assets, &keys::desired(name)).await?.value else {
        let problem = format!("nothing was planned yet for the cluster {name}");
        return Err(CliError::refused(problem, format!("slipway status --cluster {name} says why")));
    };
    if let Some(named) = named.filter(|named| **named != *desired.plan) {
        let problem = format!("{named} is not the newest plan of {name}: that is {}", desired.plan);
        let help = format!("review that plan: slipway approve --cluster {name}");
        return Err(CliError::refused(problem, help));
    }
    let key = keys::plan(name, &desired.plan);
    let Some(plan) = store::load::<Plan>(assets, &key).await?.value else {
        let problem = "is lost, although desired.json names it".to_owned();
        let help = "upload the spec again, which makes a new plan".to_owned();
        return Err(FlowError::Corrupt { key, problem, help }.into());
    };
    let rollout = store::load::<Rollout>(assets, &keys::rollout(name)).await?.value;
    let rollout = rollout.unwrap_or_else(|| Rollout::new(name));
    let under_way = rollout.active().is_some_and(|active| active.plan == plan.id);
    if under_way || rollout.approved.as_deref() == Some(plan.id.as_str()) {
        return Ok((plan, true, rollout.paused_since()));
    }
    match objection(&rollout, &desired, &plan) {
        Some(problem) => {
            let help =
                format!("upload the spec again for a new plan: slipway apply cluster.yaml --cluster {name}");
            Err(CliError::refused(problem, help))
        }
        None => Ok((plan, false, rollout.paused_since())),
    }
}

/// Why approving the plan would start nothing.
fn objection(rollout: &Rollout, desired: &Desired, plan: &Plan) -> Option<String> {
    let id = &plan.id;
    if plan.policy.approval == Approval::Auto {
        return Some(format!("plan {id} needs no approval: its spec says rollout.approval: auto"));
    }
    if let Some(last) = rollout.last.as_ref().filter(|_| rollout.was_rolled_out(desired)) {
        return Some(format!(
            "plan {id} was rolled out already, and {}: {}",
            RolloutState::from(last.result),
            last.message
        ));
    }
    if plan.is_empty() {
        return Some(format!("plan {id} changes nothing"));
    }
    if let Some(why) = plan.not_executable() {
        return Some(format!("plan {id} cannot be executed: {why}"));
    }
    // While another rollout is in progress, the plan's start differs from what is deployed; the rollout function checks it again when
    // that one has ended.
    (rollout.active().is_none() && !rollout.is_start_of(plan))
        .then(|| format!("plan {id} was made for the state before the last rollout"))
}
