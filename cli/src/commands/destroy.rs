//! `slipway destroy`.

use std::fmt::Write as _;

use serde_json::json;
use slipway_core::event::DestroyRequested;
use slipway_rollout::{LastSnapshot, Rollout};

use super::watch;
use crate::Exit;
use crate::cloud::{BusArgs, Cloud, CloudArgs, must_stand};
use crate::failure::CliError;
use crate::printer::Printer;

/// Destroy a cluster in AWS: delete pools, control plane, etcd and network, after a last snapshot of etcd.
///
/// The command shows what is deleted and what is kept. On a terminal it asks for the cluster's name; a script passes --yes. Nodes are not
/// drained, so all workloads end. Nothing is deleted before a snapshot is taken, and etcd only after a last one, which is taken when no API
/// server is left. An open rollout is aborted first. Deleting cluster.yaml destroys nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  requested; with --watch: and destroyed
  1  nothing is deployed, or you did not confirm the name; with --watch: it stopped half-way, or the order was not processed
  2  wrong usage
  3  something could not be read, or the bus refused

The IAM permissions for this are listed in docs/cli.md.

Examples:
  slipway destroy --cluster test
  slipway destroy --cluster test --yes --watch
  slipway destroy --cluster test --without-snapshot")]
pub(crate) struct Args {
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,
    /// Do not take a last snapshot: for a cluster whose etcd cannot take one any more, or whose data is not needed.
    #[arg(long)]
    without_snapshot: bool,
    #[command(flatten)]
    cloud: CloudArgs,
    #[command(flatten)]
    bus: BusArgs,
    /// Watch the destruction until it ends.
    #[arg(long)]
    watch: bool,
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    if args.yes && !args.cloud.is_named() {
        let help = "name it: slipway destroy --yes --cluster NAME; with --yes the cluster must be named, because the default could be the wrong one";
        return Err(CliError::usage("no cluster is named", help));
    }
    let cloud = args.cloud.named().await?;
    let name = cloud.cluster.as_str();
    let rollout = cloud.rollout().await?;
    must_stand(&rollout)?;
    if rollout.generation == 0 {
        let problem = format!("nothing of {name} was ever rolled out");
        return Err(CliError::refused(problem, "there is nothing to destroy"));
    }
    printer.beside(&about(&cloud, &rollout, args.without_snapshot));
    let help = format!("slipway destroy --cluster {name} --yes");
    let sure = args.yes || printer.answer("its name, to destroy it: ", help)? == name;
    let machine = json!({
        "ok": true, "cluster": name, "asked": sure.then_some("destroy"), "withoutSnapshot": args.without_snapshot,
        "stacks": rollout.existing_releases().keys().collect::<Vec<_>>(),
    });
    if !sure {
        printer.result("nothing is destroyed\n", &machine);
        return Ok(Exit::Findings);
    }
    let request =
        DestroyRequested { cluster: name.to_owned(), without_snapshot: args.without_snapshot, at: None };
    args.bus.publish_destruction(&cloud, request).await?;
    let text = format!(
        "asked that {name} be destroyed: slipway status --cluster {name} says within a minute that it is\n"
    );
    printer.result(&text, &machine);
    if !args.watch {
        return Ok(Exit::Done);
    }
    let (before, ignored) = (rollout.destroy().map(|open| open.asked_at), rollout.ignored);
    let taken =
        |now: &Rollout| now.was_destroyed().is_some() || now.destroy().map(|open| open.asked_at) != before;
    watch::an_order(&cloud, taken, ignored.as_ref(), printer).await
}

/// What is deleted, and what stays.
fn about(cloud: &Cloud, rollout: &Rollout, without_snapshot: bool) -> String {
    let mut text = String::new();
    if let Some(going) = rollout.destruction_message() {
        let _ = writeln!(text, "{going}; this goes on from there");
    }
    let snapshot = match rollout.destroy().map(|open| &open.snapshot) {
        Some(LastSnapshot::Complete(_)) => "the last snapshot of etcd is taken",
        Some(LastSnapshot::Needless) => "etcd was never created, so there is nothing to take a snapshot of",
        Some(
            LastSnapshot::Taken(_) | LastSnapshot::Kept(_) | LastSnapshot::Wanted { earlier: Some(_), .. },
        ) if without_snapshot => {
            "no further snapshot of etcd is taken: data that was written after the last one is lost"
        }
        None | Some(LastSnapshot::Wanted { earlier: None, .. } | LastSnapshot::Declined)
            if without_snapshot =>
        {
            "no last snapshot of etcd is taken: data that is not in an earlier snapshot is lost"
        }
        None | Some(LastSnapshot::Wanted { .. }) => {
            "a snapshot of etcd is taken first, and the last one after the API servers are gone"
        }
        Some(LastSnapshot::Taken(_) | LastSnapshot::Kept(_) | LastSnapshot::Declined) => {
            "the last snapshot of etcd is taken after the API servers are gone, unless etcd is already being deleted"
        }
    };
    let _ = writeln!(text, "{snapshot}");
    if rollout.active().is_some() {
        let _ = writeln!(text, "the rollout that is open is aborted");
    }
    for stack in rollout.existing_releases().keys() {
        let _ = writeln!(text, "- {stack}");
    }
    let _ = writeln!(
        text,
        "stays: {}, with credentials and snapshots, and the spec; snapshots that EC2 takes of etcd's volumes; what pods made in AWS (load \
         balancers, volumes), which had better be deleted first, since a network in use cannot go",
        cloud.place()
    );
    text
}
