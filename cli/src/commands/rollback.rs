//! `slipway rollback`.

use std::fmt::Write as _;

use serde_json::json;
use slipway_core::keys;
use slipway_core::release::Rendering;
use slipway_core::words::moment;
use slipway_flows::error::FlowError;
use slipway_flows::rollout::baseline;
use slipway_flows::store;
use slipway_plan::{Plan, plan};
use slipway_ports::{Condition, Listing as _, Objects as _, Put};
use slipway_rollout::{RollbackTarget, Rollout};

use super::watch;
use crate::Exit;
use crate::cloud::{Cloud, CloudArgs, must_stand};
use crate::failure::CliError;
use crate::printer::Printer;

/// Go back to the spec of the last successful rollout. It becomes the newest version of cluster.yaml, and is rendered, planned, approved
/// and rolled out like any other.
///
/// The command shows what would change. On a terminal it asks for confirmation; a script passes the plan whose spec it wants, or --yes.
/// Certificates that were renewed since stay renewed. Patches are not changed; those that were changed since are listed. Going back a
/// minor release of Kubernetes or etcd is refused.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  the spec was restored; with --watch: and rolled out
  1  no rollout has succeeded yet, the spec is unchanged since, going back is not possible, or you declined; with --watch: the rollout failed
  2  wrong usage
  3  something could not be read or written

The IAM permissions for this are listed in docs/cli.md.

Examples:
  slipway rollback --cluster prod
  slipway rollback --cluster prod --yes --watch
  slipway rollback --cluster prod 0123456789abcdef0123")]
pub(crate) struct Args {
    /// The successful plan whose spec to go back to; the last five are recorded. Default: the last one.
    plan: Option<String>,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    cloud: CloudArgs,
    /// Watch the rollout until it ends.
    #[arg(long)]
    watch: bool,
}

/// The maximum number of patches that are listed.
const MOST_PATCHES: usize = 1_000;

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let cloud = args.cloud.named().await?;
    let name = cloud.cluster.as_str();
    let rollout = cloud.rollout().await?;
    if let Some(going) = rollout.destruction_message() {
        return Err(CliError::refused(going, format!("slipway abort --cluster {name} ends that")));
    }
    must_stand(&rollout)?;
    let good = chosen(&rollout, args.plan.as_deref())?;
    let (specs, key) = (cloud.specs().await?, keys::spec(name));
    let place = format!("s3://{}/{key}", specs.name());
    let then = specs.get_version(&key, &good.spec_version).await.map_err(in_cloud)?;
    let Some(then) = then else {
        let problem = format!("{place} has no version {} any more", good.spec_version);
        let help =
            format!("upload the spec from where you keep it: slipway apply cluster.yaml --cluster {name}");
        return Err(CliError::refused(problem, help));
    };
    let now = specs.get(&key).await.map_err(in_cloud)?;
    let changed = patches_since(&cloud, &specs, good).await?;
    if now.as_ref().is_some_and(|now| now.bytes == then.bytes) {
        return Err(there_already(&place, &rollout, good, &changed));
    }
    let way = preview(&cloud, &rollout, good).await.map_err(CliError::in_cloud)?;
    printer.beside(&about(printer, &place, &rollout, good, way.as_ref(), &changed));
    if let Some(why) = way.as_ref().and_then(Plan::not_executable) {
        let problem = format!("there is no way back to generation {}: {why}", good.generation);
        let help = format!("fix the newest spec instead, then slipway apply cluster.yaml --cluster {name}");
        return Err(CliError::refused(problem, help));
    }
    let help = format!("name its plan: slipway rollback --cluster {name} {}; or add --yes", good.plan);
    let sure = args.yes || args.plan.is_some() || printer.confirm("go back to it?", help)?;
    if !sure {
        printer.result(
            "nothing was rolled back\n",
            &json!({ "ok": true, "cluster": name, "broughtBack": null }),
        );
        return Ok(Exit::Findings);
    }
    let follow = watch::Follow { uploaded: true, unchanged: false };
    let condition = now.map_or(Condition::Absent, |now| Condition::Unchanged(now.etag));
    if specs.put(&key, then.bytes, condition).await.map_err(in_cloud)? == Put::Lost {
        let problem = format!("somebody else changed {place} at this moment");
        return Err(CliError::refused(problem, "see what they did, then try again"));
    }
    let text = format!(
        "uploaded {place} of generation {} again; its plan follows\nslipway watch --cluster {name}\n",
        good.generation
    );
    let machine = json!({
        "ok": true, "cluster": name, "broughtBack": good.spec_version, "generation": good.generation, "plan": good.plan,
        "summary": way.map(|way| way.summary()), "patchesChanged": changed,
    });
    printer.result(&text, &machine);
    if args.watch {
        watch::to_the_end(&cloud, &watch::Pace::default(), &follow, printer).await
    } else {
        Ok(Exit::Done)
    }
}

/// The rollout to go back to: the named one, or the newest.
fn chosen<'r>(rollout: &'r Rollout, named: Option<&str>) -> Result<&'r RollbackTarget, CliError> {
    let name = &rollout.cluster;
    let found = rollout.rollback_targets.iter().find(|good| named.is_none_or(|named| good.plan == named));
    found.ok_or_else(|| match (named, others(rollout, None)) {
        (Some(named), Some(others)) => {
            CliError::refused(format!("{name} has no recorded successful plan {named}"), others)
        }
        (_, None) | (None, _) => CliError::refused(
            format!("no rollout of {name} has succeeded that is remembered"),
            format!("upload an earlier spec: slipway apply cluster.yaml --cluster {name}"),
        ),
    })
}

/// The commands for the other rollouts that are recorded.
fn others(rollout: &Rollout, but: Option<&RollbackTarget>) -> Option<String> {
    let others = rollout.rollback_targets.iter().filter(|good| Some(*good) != but);
    let command = |good: &RollbackTarget| {
        let RollbackTarget { plan, generation, ended_at, .. } = good;
        let ended_at = moment(*ended_at);
        format!(
            "slipway rollback --cluster {} {plan} (generation {generation}, of {ended_at})",
            rollout.cluster
        )
    };
    let commands: Vec<String> = others.map(command).collect();
    (!commands.is_empty()).then(|| format!("to what succeeded before: {}", commands.join(", ")))
}

/// The error if the spec is that version already.
fn there_already(place: &str, rollout: &Rollout, good: &RollbackTarget, changed: &[String]) -> CliError {
    if let Some(off) = rollout.aborted_destruction() {
        return CliError::refused(
            off.message.clone(),
            "there is no rollout to go back to: upload the spec again",
        );
    }
    let problem = format!("{place} is what it was when generation {} succeeded", good.generation);
    let mut steps = Vec::new();
    if !changed.is_empty() {
        steps.push(format!("these patches were changed since: {}", changed.join(", ")));
    }
    steps.extend(others(rollout, Some(good)));
    if steps.is_empty() {
        let cluster = &rollout.cluster;
        steps.push(format!(
            "fix what failed (docs/runbook.md), then: slipway apply cluster.yaml --cluster {cluster}"
        ));
    }
    CliError::refused(problem, steps.join("; "))
}

/// A preview without rendering: the plan to the release of that rollout, with the present credentials. `None`: that release is no longer
/// stored.
async fn preview(cloud: &Cloud, rollout: &Rollout, good: &RollbackTarget) -> Result<Option<Plan>, CliError> {
    let (assets, name) = (cloud.assets(), cloud.cluster.as_str());
    let (release, then) = (keys::release(name, &good.target), keys::plan(name, &good.plan));
    let release = store::load::<Rendering>(assets, &release).await?.value;
    let then = store::load::<Plan>(assets, &then).await?.value;
    let (Some(mut release), Some(then)) = (release, then) else { return Ok(None) };
    let standing = baseline(assets, rollout).await?;
    for (role, node) in standing.rendering.iter().flat_map(|now| &now.roles) {
        if let Some(then) = release.roles.get_mut(role) {
            then.credentials_digest.clone_from(&node.credentials_digest);
        }
    }
    Ok(Some(plan(&standing, &release, &then.policy)))
}

/// What is printed before the question.
fn about(
    printer: &Printer,
    place: &str,
    rollout: &Rollout,
    good: &RollbackTarget,
    way: Option<&Plan>,
    changed: &[String],
) -> String {
    let mut about = String::new();
    match way {
        Some(way) => {
            about.push_str(&printer.coloured(&way.to_text()));
            let _ =
                writeln!(about, "summary of the plan, before the spec is rendered again: {}", way.summary());
        }
        None => about.push_str(
            "the plan of that rollout is no longer stored: read the new plan after the spec is rendered\n",
        ),
    }
    let RollbackTarget { generation, spec_version, ended_at, .. } = good;
    let ended_at = moment(*ended_at);
    let _ = writeln!(
        about,
        "generation {generation}, which succeeded {ended_at}: version {spec_version} of {place}"
    );
    for patch in changed {
        let _ = writeln!(about, "patches/{patch} was changed since, and stays as it is now");
    }
    if let Some(active) = rollout.active() {
        let _ = writeln!(
            about,
            "plan {} is being rolled out: it ends with what it has begun, and the way back starts from there",
            active.plan
        );
    }
    about
}

/// The patches that were changed since that rollout began.
async fn patches_since(
    cloud: &Cloud,
    specs: &slipway_aws::S3Bucket,
    good: &RollbackTarget,
) -> Result<Vec<String>, CliError> {
    let folder = keys::patches(&cloud.cluster);
    let listed = specs.list(&folder, MOST_PATCHES).await.map_err(in_cloud)?;
    let newer = listed.into_iter().filter(|patch| patch.modified > good.started_at);
    Ok(newer.filter_map(|patch| patch.key.strip_prefix(&folder).map(str::to_owned)).collect())
}

fn in_cloud(error: slipway_ports::PortError) -> CliError {
    CliError::from(FlowError::from(error)).in_cloud()
}
