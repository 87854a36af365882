//! `slipway upgrade`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use slipway_core::cluster::Cluster;
use slipway_core::event::{Event, UpgradeRequested};
use slipway_core::keys;
use slipway_core::pin::Pin;
use slipway_core::words::moment;
use slipway_flows::error::FlowError;
use slipway_flows::rendering::earlier_pins;
use slipway_flows::{lock, store};
use slipway_ports::Objects as _;
use slipway_render::lock::Lock;

use super::renew::until;
use super::watch;
use crate::Exit;
use crate::cloud::{BusArgs, Cloud, CloudArgs, must_stand};
use crate::failure::CliError;
use crate::printer::Printer;

/// Look up anew what a cluster's lock pins: machine images, patch releases, programs, add-ons, the node agent. What is newer becomes a
/// plan, which is approved and rolled out like any other.
///
/// --undo puts the pins of the last successful rollout back (if the cluster runs these: the pins of the last earlier one that had others), for example if a new image does not boot. What the spec itself names (amiId, etcd.version, a
/// kubernetesVersion with a patch, the version of an add-on) is not pinned, and never changed by this.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Kinds of pins:
  images      the machine image behind each SSM parameter
  kubernetes  the newest patch of the spec's minor that this version of Slipway knows
  etcd        the etcd release for that minor
  programs    containerd, runc and CNI plugins
  addons      the images of add-ons
  agent       the node agent that was published last

Exit codes:
  0  requested, or nothing is newer; with --dry-run: shown; with --watch: and rolled out
  1  nothing was rolled out yet, the cluster was destroyed, there are no earlier pins, or the lock has these pins already and its
     newest plan has not been rolled out; with --watch: the rollout failed
  2  wrong usage
  3  something could not be read, or the bus refused

The IAM permissions for this are listed in docs/cli.md. Newer releases are those that this command knows, so it has to be of
the same version as the installed functions.

Examples:
  slipway upgrade --cluster prod --dry-run
  slipway upgrade images --cluster prod --watch
  slipway upgrade --undo --cluster prod")]
pub(crate) struct Args {
    /// Kinds of pins; see below. Default: all.
    #[arg(value_name = "KIND")]
    pins: Vec<Pin>,
    /// Put earlier pins back: see above, or those of the successful plan PLAN.
    #[arg(long, value_name = "PLAN", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    undo: Option<String>,
    /// Show what would change, and how old each pin is.
    #[arg(long)]
    dry_run: bool,
    /// Wait for the plan, and watch the rollout until it ends.
    #[arg(long, conflicts_with = "dry_run")]
    watch: bool,
    #[command(flatten)]
    cloud: CloudArgs,
    #[command(flatten)]
    bus: BusArgs,
}

/// One pin that the cluster uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    pub(super) kind: Pin,
    pub(super) name: String,
    pub(super) from: Option<String>,
    pub(super) to: Option<String>,
    pub(super) looked_up: Option<Timestamp>,
}

impl Row {
    pub(super) fn changes(&self) -> bool {
        self.from != self.to
    }
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let cloud = args.cloud.named().await?;
    let name = cloud.cluster.as_str();
    let rollout = cloud.rollout().await?;
    must_stand(&rollout)?;
    if let Some(going) = rollout.destruction_message() {
        return Err(CliError::refused(going, format!("slipway abort --cluster {name} ends that")));
    }
    if rollout.rollback_targets.is_empty() && rollout.active().is_none() {
        let problem = format!("nothing of {name} was rolled out yet");
        return Err(CliError::refused(problem, format!("slipway status --cluster {name} says why")));
    }
    let pins: BTreeSet<Pin> =
        if args.pins.is_empty() { Pin::ALL.into() } else { args.pins.iter().copied().collect() };
    let cluster = spec(&cloud).await?;
    let (old, new, good) = match &args.undo {
        None => {
            let (old, new) = lock::preview(cloud.assets(), &cloud.parameters(), &cluster, &pins)
                .await
                .map_err(in_cloud)?;
            (old, new, None)
        }
        Some(plan) => {
            let old = stored(&cloud, &keys::lock(name)).await?.unwrap_or_default();
            let plan = Some(plan.as_str()).filter(|plan| !plan.is_empty());
            let earlier = earlier_pins(cloud.assets(), &rollout, &cluster, &old, &pins, plan)
                .await
                .map_err(in_cloud)?;
            let (good, new) = earlier.ok_or_else(|| no_earlier_pins(name, plan))?;
            (old, new, Some(good))
        }
    };
    // The plan that is desired, and whether it was rolled out.
    let desired = newest_plan(&cloud).await?;
    let reached = rollout.active().is_none()
        && rollout.rollback_targets.first().map(|good| &good.plan) == desired.as_ref();
    let now = Timestamp::now();
    let rows = rows(&cluster, &old, &new, &pins);
    let changed = rows.iter().any(Row::changes);
    let back_to = good.map(|good| good.plan.clone());
    let table = table(&rows, now);
    let mut machine = json!({ "ok": true, "cluster": name, "pins": rows, "backTo": back_to, "asked": false });
    if !args.dry_run && !changed && !reached {
        let problem = format!(
            "these pins are in the lock of {name} already, and its newest plan has not been rolled out"
        );
        let help = format!(
            "slipway status --cluster {name} says why; an upload of the same spec begins a failed plan again"
        );
        return Err(CliError::refused(problem, help));
    }
    if args.dry_run || !changed {
        let end = match (changed, reached) {
            (true, _) => "nothing was changed\n",
            (false, true) => "nothing is newer; nothing was changed\n",
            (false, false) => "these pins are in the lock already; its newest plan has not been rolled out\n",
        };
        printer.result(&format!("{table}{end}"), &machine);
        return Ok(Exit::Done);
    }
    let request = UpgradeRequested { cluster: name.to_owned(), pins, back_to, at: None };
    args.bus.publish(&cloud, Event::UpgradeRequested(request)).await?;
    machine["asked"] = json!(true);
    if !args.watch {
        machine["watch"] = json!(format!("slipway watch --cluster {name}"));
        let text = format!("{table}requested; its plan follows: slipway watch --cluster {name}\n");
        printer.result(&text, &machine);
        return Ok(Exit::Done);
    }
    printer.line(&format!("{table}requested"), &machine);
    until(&cloud, "made a plan of it", async || Ok(newest_plan(&cloud).await? != desired)).await?;
    watch::to_the_end(&cloud, &watch::Pace::default(), &watch::Follow::default(), printer).await
}

/// The newest spec.
async fn spec(cloud: &Cloud) -> Result<Cluster, CliError> {
    let (specs, key) = (cloud.specs().await?, keys::spec(&cloud.cluster));
    let place = format!("s3://{}/{key}", specs.name());
    let object = specs.get(&key).await.map_err(|error| in_cloud(error.into()))?;
    let Some(object) = object else {
        let help = format!("upload it again: slipway apply cluster.yaml --cluster {}", cloud.cluster);
        return Err(CliError::refused(format!("{place} does not exist"), help));
    };
    slipway_spec::parse(&object.bytes, None).map(|accepted| accepted.cluster).map_err(|findings| {
        let problem =
            format!("{place} is refused, so it is not known what the cluster uses: {}", findings[0]);
        CliError::refused(
            problem,
            format!("correct it first; slipway status --cluster {} lists all", cloud.cluster),
        )
    })
}

async fn stored(cloud: &Cloud, key: &str) -> Result<Option<Lock>, CliError> {
    Ok(store::load::<Lock>(cloud.assets(), key).await.map_err(in_cloud)?.value)
}

/// The newest plan: it changes when the upgrade has been planned.
async fn newest_plan(cloud: &Cloud) -> Result<Option<String>, CliError> {
    let desired =
        store::load::<slipway_core::status::Desired>(cloud.assets(), &keys::desired(&cloud.cluster)).await;
    Ok(desired.map_err(in_cloud)?.value.map(|desired| desired.plan))
}

fn no_earlier_pins(cluster: &str, plan: Option<&str>) -> CliError {
    let problem = match plan {
        None => format!("no successful rollout of {cluster} that is recorded had other pins"),
        Some(plan) => format!("the pins of plan {plan} of {cluster} are not recorded"),
    };
    let help = "set amiId or another version in the spec, which counts before the pins";
    CliError::refused(problem, help)
}

/// The pins of these kinds that the cluster uses before and after.
pub(super) fn rows(cluster: &Cluster, old: &Lock, new: &Lock, pins: &BTreeSet<Pin>) -> Vec<Row> {
    let (before, after) = (old.used(cluster), new.used(cluster));
    let mut rows = Vec::new();
    for kind in pins {
        let empty = BTreeMap::new();
        let (before, after) = (before.get(kind).unwrap_or(&empty), after.get(kind).unwrap_or(&empty));
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        rows.extend(names.into_iter().map(|name| Row {
            kind: *kind,
            name: name.clone(),
            from: before.get(name).cloned(),
            to: after.get(name).cloned(),
            looked_up: old.looked_up.get(kind).copied(),
        }));
    }
    rows
}

/// The rows as text; what changes first.
fn table(rows: &[Row], now: Timestamp) -> String {
    let mut text = String::new();
    let shown = |value: &Option<String>| value.as_deref().map_or_else(|| "none".to_owned(), short);
    let widest = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or_default();
    let ordered = rows.iter().filter(|row| row.changes()).chain(rows.iter().filter(|row| !row.changes()));
    for row in ordered {
        let value = match row.changes() {
            true => format!("{} → {}", shown(&row.from), shown(&row.to)),
            false => shown(&row.from),
        };
        let age = match row.looked_up {
            Some(at) => {
                format!("looked up {} ({} days ago)", moment(at), now.duration_since(at).as_hours() / 24)
            }
            None => "looked up before dates were recorded".to_owned(),
        };
        let _ = writeln!(text, "{:<10}  {:<widest$}  {value}  {age}", row.kind.name(), row.name);
    }
    text
}

/// A SHA-256 by its beginning.
pub(super) fn short(value: &str) -> String {
    let is_digest = value.len() == 64 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_digest { value[..12].to_owned() } else { value.to_owned() }
}

fn in_cloud(error: FlowError) -> CliError {
    CliError::from(error).in_cloud()
}
