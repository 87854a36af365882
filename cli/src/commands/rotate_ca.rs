//! `slipway rotate-ca`: rotates an authority, or the key of service accounts, in stages.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde_json::{Value, json};
use slipway_aws::S3Bucket;
use slipway_core::cluster::Cluster;
use slipway_core::keys;
use slipway_core::role::Role;
use slipway_credentials::manifest::PolicyError;
use slipway_credentials::rotation::{KnownNodes, Next, Wait};
use slipway_credentials::{Manifest, policy, rotation as stages};
use slipway_crypto::AwsLc;
use slipway_flows::credentials::rotation::{self, Did, Request, Rotated};
use slipway_flows::error::{FlowError, FlowResult};
use slipway_flows::store;
use slipway_ports::{Keys, Objects};

use crate::Exit;
use crate::cloud::{Cloud, CloudArgs};
use crate::commands::certs::renew::deployed::{DeployedCluster, deployed_cluster, upload};
use crate::commands::render::Rendered;
use crate::failure::CliError;
use crate::printer::Printer;
use crate::session::AWS;
use crate::source::PatchArgs;

/// Rotate a certificate authority, or the key that signs service account tokens, in stages: both are trusted; the new one issues; the old
/// one is removed.
///
/// The same command starts the rotation, shows its state, and starts the next stage once every node has the present one. Until the old
/// one is removed, --abort goes back.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
NAME is ca, kubelet-ca, etcd-ca, front-proxy-ca or service-account.

In AWS, nodes report which credentials they have, and each stage is a rollout: --upload uploads the same spec
again, which plans it. For a directory there are no reports: --everywhere confirms that every node has what was rendered last.

Exit codes:
  0  done, or the state was shown
  1  it cannot be rotated, at all or now; or the spec changes something else as well
  2  wrong usage
  3  something could not be read or written

Examples:
  slipway rotate-ca etcd-ca --cluster prod --dry-run
  slipway rotate-ca etcd-ca --cluster prod --upload
  slipway rotate-ca etcd-ca --cluster prod --abort
  slipway rotate-ca service-account cluster.yaml --out rendered
  slipway rotate-ca service-account cluster.yaml --out rendered --everywhere")]
pub(crate) struct Args {
    /// The authority or key to rotate.
    name: String,
    /// The spec that was rendered.
    #[arg(required_unless_present = "cluster", conflicts_with = "cluster")]
    file: Option<PathBuf>,
    /// The directory that `slipway render` wrote.
    #[arg(long, value_name = "DIR", required_unless_present = "cluster", conflicts_with = "cluster")]
    out: Option<PathBuf>,
    /// Abort the rotation and go back.
    #[arg(long, conflicts_with = "everywhere")]
    abort: bool,
    /// Show what would be done and what is waited for, without doing it.
    #[arg(long)]
    dry_run: bool,
    /// Confirm that every node has what was last rendered into the directory.
    #[arg(long, conflicts_with = "cluster")]
    everywhere: bool,
    #[command(flatten)]
    patches: PatchArgs,
    #[command(flatten)]
    cloud: CloudArgs,
    /// Upload the same spec again afterwards, which plans the rollout.
    #[arg(long, requires = "cluster", conflicts_with = "dry_run", help_heading = AWS)]
    upload: bool,
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    if let Some(cloud) = args.cloud.cluster().await? {
        return in_cloud(args, &cloud, printer).await.map_err(CliError::in_cloud);
    }
    let (Some(file), Some(out)) = (&args.file, &args.out) else {
        return Err(CliError::refused("neither a directory nor a cluster is named", "see --help"));
    };
    in_folder(args, file, out, printer).await
}

async fn in_cloud(args: &Args, cloud: &Cloud, printer: &Printer) -> Result<Exit, CliError> {
    let specs = cloud.specs().await?;
    let DeployedCluster { cluster, manifest, spec, .. } = deployed_cluster(cloud, &specs).await?;
    let assets = cloud.assets();
    let seen = rotation::see(assets, &cloud.groups(), &cluster.name).await?;
    let now = Timestamp::now();
    if args.dry_run {
        let (text, machine) = foreseen(args, &cluster, &manifest, &seen, now)?;
        printer.result(&text, &machine);
        return Ok(Exit::Done);
    }
    let kms = cloud.keys(&manifest.sealed_under);
    let done = act(args, assets, &kms, &cluster, &manifest, &seen, now).await?;
    let uploaded = match args.upload && done.changes_nodes() {
        true => Some(upload(&cluster, &specs, &spec).await?),
        false => None,
    };
    let (mut text, mut machine) = report(&done);
    machine["assetBucket"] = json!(assets.name());
    machine["uploaded"] = json!(uploaded);
    if done.changes_nodes() {
        text.push_str(&next_upload(&cluster, &specs, uploaded));
    }
    printer.result(&text, &machine);
    Ok(Exit::Done)
}

fn next_upload(cluster: &Cluster, specs: &S3Bucket, uploaded: Option<bool>) -> String {
    let place = format!("s3://{}/{}", specs.name(), keys::spec(&cluster.name));
    match uploaded {
        Some(true) => format!("{place} was uploaded again, as it is: Slipway plans the rollout now\n"),
        Some(false) => {
            format!(
                "{place} was changed meanwhile, so that it was not uploaded again: what is there plans the rollout\n"
            )
        }
        None => format!(
            "no node has it yet: upload the same spec again, which plans the rollout:\n  aws s3 cp {place} cluster.yaml && aws s3 cp \
             cluster.yaml {place}\n"
        ),
    }
}

async fn in_folder(args: &Args, file: &Path, out: &Path, printer: &Printer) -> Result<Exit, CliError> {
    let Some(rendered) = Rendered::find(file, &args.patches, out, printer)? else {
        return Ok(Exit::Findings);
    };
    let cluster = &rendered.cluster;
    let seen = KnownNodes { vouched: args.everywhere, ..KnownNodes::default() };
    let now = Timestamp::now();
    let key = keys::manifest(&cluster.name);
    let manifest = store::load::<Manifest>(&rendered.folder, &key).await?.value.ok_or_else(|| {
        CliError::refused(format!("{} holds no credentials", out.display()), "render the spec into it first")
    })?;
    if args.dry_run {
        let (text, machine) = foreseen(args, cluster, &manifest, &seen, now)?;
        printer.result(&text, &machine);
        return Ok(Exit::Done);
    }
    let changed = rendered.change("a rotation", printer, async |folder, keys| {
        Ok(act(args, folder, keys, cluster, &manifest, &seen, now).await?)
    });
    let Some(changed) = changed.await? else { return Ok(Exit::Findings) };
    let (mut text, mut machine) = report(&changed.done);
    machine["changed"] = json!(changed.files);
    let _ = writeln!(text, "{} files changed", changed.files.len());
    printer.result(&text, &machine);
    Ok(Exit::Done)
}

/// Begins the rotation, continues or aborts it.
async fn act<O: Objects, K: Keys>(
    args: &Args,
    objects: &O,
    keys: &K,
    cluster: &Cluster,
    manifest: &Manifest,
    seen: &KnownNodes,
    now: Timestamp,
) -> FlowResult<Rotated> {
    let request = if args.abort {
        Request::Abort
    } else if manifest.rotations.contains_key(&args.name) {
        Request::Continue(seen)
    } else {
        Request::Start
    };
    rotation::change(objects, keys, &AwsLc, cluster, &args.name, now, request).await
}

/// What was done, the state, and what is waited for.
fn report(done: &Rotated) -> (String, Value) {
    let name = &done.name;
    let mut text = match done.did {
        Did::Begun => format!("the rotation of {name} has begun\n"),
        Did::Issues => format!("the new {name} has taken over; issued anew: {}\n", list(&done.made)),
        Did::Dropped => format!("one of the two was dropped: one {name} remains\n"),
        Did::WentBack => format!("the rotation of {name} goes back\n"),
        Did::Ended => format!("the rotation of {name} is over: every node has one {name}\n"),
        Did::Noted | Did::Waits => String::new(),
    };
    let roles: Vec<String> = done.sealed.iter().map(Role::to_string).collect();
    if !roles.is_empty() {
        let _ = writeln!(text, "changed credentials: {}", roles.join(", "));
    }
    let stands = done.stands.as_ref().map(|rotation| stages::rotation_status(name, rotation));
    if let (Some(rotation), Some(stands)) = (&done.stands, &stands) {
        let _ = writeln!(text, "stage {}: {}", stands.stage, stands.meaning);
        let _ = writeln!(text, "next: {}", stands.next);
        if let Some(more) = stages::manual_steps(name, rotation.stage) {
            let _ = writeln!(text, "you: {more}");
        }
    }
    let waits = words(&done.waits);
    text.push_str(&waiting(&waits));
    let machine = json!({
        "ok": true,
        "rotation": name,
        "did": word(done.did),
        "stands": stands,
        "made": done.made,
        "roles": roles,
        "waits": waits,
    });
    (text, machine)
}

/// What would be done, and what is waited for.
fn foreseen(
    args: &Args,
    cluster: &Cluster,
    manifest: &Manifest,
    seen: &KnownNodes,
    now: Timestamp,
) -> FlowResult<(String, Value)> {
    let name = args.name.as_str();
    let refused = |error: PolicyError| FlowError::Refused { problem: error.to_string(), help: error.help() };
    stages::check_rotatable(name).map_err(refused)?;
    let mut draft = manifest.clone();
    let mut waits = Vec::new();
    let (would, mut text) = if args.abort {
        let goes = stages::abort(&mut draft, name, now).map_err(refused)?;
        let text = if goes { "it would go back\n" } else { "it goes back already\n" };
        (if goes { Did::WentBack } else { Did::Waits }, text.to_owned())
    } else {
        match stages::next(cluster, manifest, name, seen, now) {
            None => {
                stages::to_start(&policy::assets(cluster), manifest, name, now).map_err(refused)?;
                stages::begin(&mut draft, name, now);
                let roles: Vec<String> = policy::recipients(cluster)
                    .remove(name)
                    .into_iter()
                    .flatten()
                    .map(|role| role.to_string())
                    .collect();
                (
                    Did::Begun,
                    format!(
                        "the rotation of {name} would begin; credentials that would change: {}\n",
                        roles.join(", ")
                    ),
                )
            }
            Some(next) => {
                stages::step(&mut draft, name, &next, now);
                let did = match &next {
                    Next::Issue => Did::Issues,
                    Next::Drop => Did::Dropped,
                    Next::Settle => Did::Noted,
                    Next::End => Did::Ended,
                    Next::Unsettle(more) | Next::Wait(more) => {
                        waits = words(more);
                        Did::Waits
                    }
                };
                let open = if waits.is_empty() {
                    stages::next_step_lines(&next).join("\n") + "\n"
                } else {
                    String::new()
                };
                (did, open)
            }
        }
    };
    let stands = draft.rotations.get(name).map(|rotation| stages::rotation_status(name, rotation));
    if let Some(stands) = &stands {
        let _ = writeln!(text, "stage {}: {}\nnext: {}", stands.stage, stands.meaning, stands.next);
    }
    text.push_str(&waiting(&waits));
    text.push_str("nothing was changed\n");
    let machine = json!({
        "ok": true,
        "rotation": name,
        "would": word(would),
        "stands": stands,
        "waits": waits,
    });
    Ok((text, machine))
}

/// What is waited for. For a directory it is not known what was rolled out.
fn words(waits: &[Wait]) -> Vec<String> {
    if waits.iter().all(|wait| matches!(wait, Wait::NotRolledOut(_))) && !waits.is_empty() {
        return vec![
            "the credentials of the nodes are unknown: when every node has the last rendering, run this again with --everywhere"
                .to_owned(),
        ];
    }
    waits.iter().map(ToString::to_string).collect()
}

fn waiting(waits: &[String]) -> String {
    let mut text = String::new();
    if !waits.is_empty() {
        text.push_str("waits:\n");
        waits.iter().for_each(|wait| text.push_str(&format!("  {wait}\n")));
    }
    text
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

fn word(did: Did) -> &'static str {
    match did {
        Did::Begun => "begun",
        Did::Issues => "issues",
        Did::Dropped => "dropped",
        Did::WentBack => "wentBack",
        Did::Noted => "noted",
        Did::Ended => "ended",
        Did::Waits => "waits",
    }
}
