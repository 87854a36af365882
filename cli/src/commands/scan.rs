//! `slipway scan`.

use jiff::Timestamp;
use serde_json::json;
use slipway_core::event::{Event, ScanRequested};
use slipway_credentials::renewal::RenewalRequest;
use slipway_crypto::AwsLc;
use slipway_flows::scan::{self, Foreseen, ScanPorts};

use crate::Exit;
use crate::cloud::{BusArgs, Cloud, CloudArgs, must_stand};
use crate::failure::CliError;
use crate::overview::plain;
use crate::printer::Printer;

/// Request a scan of certificates now, instead of waiting for the daily one, of a cluster in AWS or of all.
///
/// A scan renews certificates that are due by `rolloutBeforeExpiry`, and reports problems that a person has to resolve. With --dry-run
/// this command scans by itself, without renewing, writing or publishing anything.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  requested; with --dry-run: nothing has to be done
  1  there is no such cluster, or it is being or was destroyed; with --dry-run: a renewal is due, or a person has to resolve a problem
  2  wrong usage
  3  something could not be read, or the bus refused

The IAM permissions for this are listed in docs/cli.md. `slipway status` shows the result of the last scan.

Examples:
  slipway scan --cluster prod
  slipway scan --cluster prod --dry-run
  slipway scan --all")]
pub(crate) struct Args {
    /// Scan every cluster of the installation.
    #[arg(long, conflicts_with_all = ["cluster", "dry_run"])]
    all: bool,
    /// Show what a scan would find and do, without doing it.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    cloud: CloudArgs,
    #[command(flatten)]
    bus: BusArgs,
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    if args.all {
        args.bus.publish_to_all(&args.cloud, Event::ScanRequested(ScanRequested { cluster: None })).await?;
        let text = "requested a scan of every cluster; slipway status --cluster NAME shows what it found\n";
        printer.result(text, &json!({ "ok": true, "asked": true, "all": true }));
        return Ok(Exit::Done);
    }
    let cloud = args.cloud.named().await?;
    if let Some(rollout) = cloud.known_rollout().await? {
        must_stand(&rollout)?;
        if let Some(going) = rollout.destruction_message() {
            let help = format!("its certificates are left alone; slipway watch --cluster {}", cloud.cluster);
            return Err(CliError::refused(going, help));
        }
    }
    if args.dry_run {
        return print_foreseen(&cloud, printer).await.map_err(CliError::in_cloud);
    }
    let event = Event::ScanRequested(ScanRequested { cluster: Some(cloud.cluster.clone()) });
    args.bus.publish(&cloud, event).await?;
    let text = format!("requested a scan; its result: slipway status --cluster {}\n", cloud.cluster);
    printer.result(&text, &json!({ "ok": true, "asked": true, "cluster": cloud.cluster }));
    Ok(Exit::Done)
}

/// What a scan would do with the request `request` now.
pub(super) async fn foreseen(
    cloud: &Cloud,
    request: &RenewalRequest,
    now: Timestamp,
) -> Result<Foreseen, CliError> {
    let specs = cloud.specs().await?;
    let assets = cloud.assets();
    let ports = ScanPorts { specs: &specs, assets, groups: &(), keys: &(), bus: &(), crypto: &AwsLc };
    let name = &cloud.cluster;
    scan::preview_scan(&ports, name, request, now).await?.map_err(|why| {
        CliError::refused(
            format!("{name}: {why}"),
            format!("slipway status --cluster {name} shows its state"),
        )
    })
}

async fn print_foreseen(cloud: &Cloud, printer: &Printer) -> Result<Exit, CliError> {
    let decision = foreseen(cloud, &RenewalRequest::default(), Timestamp::now()).await?.decision;
    let due: Vec<String> =
        decision.renew.iter().flat_map(|one| &one.certificates).map(|one| one.name.clone()).collect();
    let mut text = format!("{} certificates in use\n", decision.standings.len());
    if !due.is_empty() {
        text.push_str(&format!("would be renewed: {}\n", due.join(", ")));
    }
    if decision.unplanned {
        text.push_str("earlier renewals are not in a plan yet: a plan would be requested again\n");
    }
    for one in &decision.announce {
        text.push_str(&format!("{}\n  {}\n", plain(&one.message), plain(&one.help)));
    }
    for finding in &decision.findings {
        text.push_str(&format!("{}: {}\n  {}\n", finding.key, plain(&finding.message), plain(&finding.help)));
    }
    let well = due.is_empty() && decision.announce.is_empty() && decision.findings.is_empty();
    text.push_str(if well { "nothing is due; nothing was changed\n" } else { "nothing was changed\n" });
    let announced: Vec<_> = decision
        .announce
        .iter()
        .map(|one| json!({ "certificate": one.certificate, "notAfter": one.ends, "message": one.message, "help": one.help }))
        .collect();
    let machine = json!({
        "ok": true, "cluster": cloud.cluster, "asked": false, "wouldRenew": due, "announced": announced,
        "findings": decision.findings,
    });
    printer.result(&text, &machine);
    Ok(if well { Exit::Done } else { Exit::Findings })
}
