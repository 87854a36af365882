//! `slipway renew`.

mod recover;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use slipway_core::event::{Event, RenewalRequested};
use slipway_core::keys;
use slipway_core::status::Desired;
use slipway_credentials::renewal::{Decision, RenewalRequest};
use slipway_credentials::{Manifest, manifest, policy};
use slipway_flows::error::FlowError;
use slipway_flows::scan::Foreseen;
use slipway_flows::store;
use tokio::time::sleep;

use super::{scan, watch};
use crate::Exit;
use crate::cloud::{BusArgs, Cloud, CloudArgs};
use crate::failure::CliError;
use crate::printer::Printer;

/// Renew certificates of a cluster in AWS now, whatever their dates. The scan function issues them, and a rollout delivers them to the
/// nodes.
///
/// --recover is for a cluster whose certificates have expired and whose API is down: this command renews them itself, and delivers them
/// by Run Command in the order of the nodes' dependencies, etcd first. It can be interrupted and run again.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  requested; with --watch: renewed and rolled out; with --recover: every node is recovered
  1  a NAME is not renewed by Slipway, or it was not renewed in time; with --recover: a node was not recovered, with the reason
  2  wrong usage
  3  something could not be read, or AWS refused

The IAM permissions for this are listed in docs/cli.md. `slipway certs renew` renews one
certificate without the functions, and `slipway rotate-ca` rotates authorities.

Examples:
  slipway renew --cluster prod
  slipway renew apiserver scheduler --cluster prod --watch
  slipway renew --recover --cluster prod --dry-run
  slipway renew --recover --cluster prod")]
pub(crate) struct Args {
    /// Certificates, as shown by `slipway certs show`. Default: all leaves that Slipway issues; with --recover those that have expired.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Recover a cluster whose certificates have expired, without its API.
    #[arg(long, conflicts_with = "watch")]
    recover: bool,
    /// Show what would be done, without doing it.
    #[arg(long)]
    dry_run: bool,
    /// Wait until they are renewed, and watch the rollout until it ends.
    #[arg(long, conflicts_with = "dry_run")]
    watch: bool,
    #[command(flatten)]
    cloud: CloudArgs,
    #[command(flatten)]
    bus: BusArgs,
}

/// How long the scan function and then the render function may take; both take seconds.
const WITHIN: SignedDuration = SignedDuration::from_mins(5);
const POLL_PAUSE: Duration = Duration::from_secs(2);

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let cloud = args.cloud.named().await?;
    match args.recover {
        true => recover::run(args, &cloud, printer).await.map_err(CliError::in_cloud),
        false => ask(args, &cloud, printer).await.map_err(CliError::in_cloud),
    }
}

async fn ask(args: &Args, cloud: &Cloud, printer: &Printer) -> Result<Exit, CliError> {
    let now = Timestamp::now();
    let request =
        RenewalRequest { certificates: args.names.clone(), everything: args.names.is_empty(), at: None };
    let Foreseen { cluster, manifest, decision } = scan::foreseen(cloud, &request, now).await?;
    let names = chosen(&decision);
    for name in args.names.iter().filter(|name| !names.contains(name)) {
        let refused = |error: manifest::PolicyError| CliError::refused(error.to_string(), error.help());
        manifest::to_renew(&policy::assets(&cluster), &manifest, name, now).map_err(refused)?;
    }
    let list = names.join(", ");
    let mut machine =
        json!({ "ok": true, "cluster": cloud.cluster, "certificates": names, "asked": !args.dry_run });
    if args.dry_run {
        printer.result(&format!("would be reissued: {list}\nnothing was changed\n"), &machine);
        return Ok(Exit::Done);
    }
    let desired = etag(cloud).await?;
    let request = RenewalRequested { cluster: cloud.cluster.clone(), certificates: args.names.clone() };
    args.bus.publish(cloud, Event::RenewalRequested(request)).await?;
    if !args.watch {
        machine["watch"] = json!(format!("slipway watch --cluster {}", cloud.cluster));
        let text = format!(
            "requested a new issue of: {list}\nto watch the rollout that delivers them to nodes: slipway watch --cluster {}\n",
            cloud.cluster
        );
        printer.result(&text, &machine);
        return Ok(Exit::Done);
    }
    printer.line(&format!("asked to issue anew: {list}"), &machine);
    let before = fingerprints(&manifest, &names);
    until(cloud, "renewed them", async || Ok(is_renewed(&before, &inventory(cloud).await?))).await?;
    printer.line("they are renewed", &json!({ "cluster": cloud.cluster, "renewed": names }));
    until(cloud, "planned what brings them to nodes", async || Ok(etag(cloud).await? != desired)).await?;
    watch::to_the_end(cloud, &watch::Pace::default(), &watch::Follow::default(), printer).await
}

/// The names of the certificates to renew.
fn chosen(decision: &Decision) -> Vec<String> {
    decision.renew.iter().flat_map(|one| &one.certificates).map(|one| one.name.clone()).collect()
}

async fn inventory(cloud: &Cloud) -> Result<Manifest, CliError> {
    let stored = store::load::<Manifest>(cloud.assets(), &keys::manifest(&cloud.cluster)).await?;
    Ok(stored.value.unwrap_or_default())
}

/// The newest plan.
async fn etag(cloud: &Cloud) -> Result<Option<Desired>, CliError> {
    Ok(store::load::<Desired>(cloud.assets(), &keys::desired(&cloud.cluster)).await?.value)
}

fn fingerprints(manifest: &Manifest, names: &[String]) -> BTreeMap<String, String> {
    let with_fingerprint =
        |name: &String| Some((name.clone(), manifest.assets.get(name)?.fingerprint.clone()));
    names.iter().filter_map(with_fingerprint).collect()
}

fn is_renewed(before: &BTreeMap<String, String>, manifest: &Manifest) -> bool {
    before.iter().all(|(name, old)| manifest.assets.get(name).is_some_and(|entry| entry.fingerprint != *old))
}

pub(super) async fn until(
    cloud: &Cloud,
    what: &str,
    done: impl AsyncFn() -> Result<bool, CliError>,
) -> Result<(), CliError> {
    let begun = Timestamp::now();
    loop {
        match done().await {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(failure) if failure.is_passing() => {}
            Err(failure) => return Err(failure),
        }
        if Timestamp::now().duration_since(begun) > WITHIN {
            let problem = format!("nobody has {what} within {} minutes", WITHIN.as_mins());
            let help = format!(
                "slipway status --cluster {} says what the scan found and how the spec stands; the functions' logs say more",
                cloud.cluster
            );
            return Err(FlowError::Refused { problem, help }.into());
        }
        sleep(POLL_PAUSE).await;
    }
}
