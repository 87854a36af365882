//! `slipway export`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::json;
use slipway_core::keys;
use slipway_core::release::Rendering;
use slipway_core::status::Desired;
use slipway_flows::error::{FlowError, FlowResult};
use slipway_flows::store;
use slipway_ports::{Object, Objects};

use super::render;
use crate::Exit;
use crate::cloud::{Cloud, CloudArgs};
use crate::failure::CliError;
use crate::local::ExportFolder;
use crate::printer::Printer;

/// Write what is stored and rendered for a cluster in AWS into a directory: the spec, templates, user data, node configurations, lock and plan.
///
/// It is the newest accepted release, which may still wait for its approval or its rollout. It has no credentials, neither open nor sealed. Run it
/// again to bring the directory up to date; only files that an export wrote, and that nobody has changed since, are overwritten or removed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Files:
  cluster.yaml         the accepted spec
  stacks/              the CloudFormation template of each stack
  userdata/            the user data of each role; values that only CloudFormation knows appear as ${…}
  nodes/               the configuration of each role, without secrets
  addons.json          the objects of the add-ons
  lock.json            the images, versions and digests that the release was rendered with
  plans/, releases/    the plan, with its page, and the release, as they are stored in the asset bucket
  export.json          which of these files the export wrote

Exit codes:
  0  written, or everything was up to date
  1  there is no such cluster, nothing was planned for it yet, or DIR contains something other than an export of it
  2  wrong usage
  3  something could not be read or written

The IAM permissions for this are listed in docs/cli.md.

Examples:
  slipway export --cluster prod --out prod
  slipway export --cluster prod --out prod --output json | jq '.changed'
  git -C prod diff        # of a directory in git: what has changed since the last export")]
pub(crate) struct Args {
    #[command(flatten)]
    cloud: CloudArgs,
    /// The directory; it is created if necessary.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// The stored objects of the newest accepted release.
struct Stored {
    desired: Desired,
    release: Object,
    rendering: Rendering,
    lock: Object,
    plan: Object,
    /// The page of the plan.
    page: Object,
    /// The accepted spec. `None`: that version is no longer in the spec bucket.
    spec: Option<Object>,
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let cloud = args.cloud.named().await?;
    let name = cloud.cluster.as_str();
    let rollout = cloud.rollout().await?;
    let stored = stored(&cloud).await?;
    let files = files(name, &stored);
    if let Some(file) = files.iter().find(|(_, bytes)| has_private_key(bytes)).map(|(file, _)| file) {
        let problem = format!("{file} would hold a private key; nothing was written");
        let help = "take the key out of the spec or of the patch that brings it, and upload that; whoever could read it has the key";
        return Err(CliError::refused(problem, help));
    }
    let changed = ExportFolder::open(&args.out, name, cloud.assets().name())?.replace(&files)?;
    let Desired { plan, target, .. } = &stored.desired;
    let others: BTreeMap<String, String> =
        rollout.existing_releases().into_iter().filter(|(_, release)| release != target).collect();
    let mut text = format!(
        "{name} is exported into {}: {} stacks, {} roles, release {}\n",
        args.out.display(),
        stored.rendering.stacks.len(),
        stored.rendering.roles.len(),
        short(target),
    );
    match changed.len() {
        0 => text.push_str("nothing has changed since the last export\n"),
        count => {
            let _ = writeln!(text, "{count} files changed");
        }
    }
    if stored.spec.is_none() {
        let _ = writeln!(text, "without cluster.yaml: the accepted version is no longer in the spec bucket");
    }
    if let Some(gone) = rollout.destroyed_message() {
        let _ = writeln!(text, "{gone}");
    }
    for (stack, release) in &others {
        let _ = writeln!(
            text,
            "{stack} was last rolled out with release {}; `slipway status --cluster {name}` shows the plan of this one",
            short(release)
        );
    }
    let machine = json!({
        "ok": true, "cluster": name, "directory": args.out.display().to_string(), "release": target, "plan": plan,
        "specVersion": stored.desired.accepted_version(), "hasSpec": stored.spec.is_some(), "otherReleases": others,
        "files": files.keys().collect::<Vec<_>>(), "changed": changed,
    });
    printer.result(&text, &machine);
    Ok(Exit::Done)
}

async fn stored(cloud: &Cloud) -> Result<Stored, CliError> {
    let (name, assets) = (cloud.cluster.as_str(), cloud.assets());
    let in_cloud = |error: FlowError| CliError::from(error).in_cloud();
    let desired = store::load::<Desired>(assets, &keys::desired(name)).await.map_err(in_cloud)?.value;
    let desired = desired.ok_or_else(|| {
        let problem = format!("no release of {name} is stored");
        CliError::refused(problem, format!("slipway status --cluster {name} says why"))
    })?;
    let Desired { plan, target, .. } = &desired;
    let (release_key, lock_key) = (keys::release(name, target), keys::release_lock(name, target));
    let (plan_key, page_key) = (keys::plan(name, plan), keys::plan_page(name, plan));
    let both = async {
        tokio::try_join!(
            required(assets, &release_key),
            required(assets, &plan_key),
            required(assets, &page_key),
            required(assets, &lock_key)
        )
    };
    let (release, plan, page, lock) = both.await.map_err(in_cloud)?;
    let rendering = store::load::<Rendering>(assets, &release_key).await.map_err(in_cloud)?.value;
    let rendering = rendering.ok_or_else(|| in_cloud(store::missing_object(&release_key)))?;
    let specs = cloud.specs().await?;
    let spec = specs.get_version(&keys::spec(name), desired.accepted_version()).await;
    let spec = spec.map_err(|error| in_cloud(error.into()))?;
    Ok(Stored { desired, release, rendering, lock, plan, page, spec })
}

async fn required(assets: &impl Objects, key: &str) -> FlowResult<Object> {
    assets.get(key).await?.ok_or_else(|| store::missing_object(key))
}

/// The files with their content.
fn files(cluster: &str, stored: &Stored) -> BTreeMap<String, Vec<u8>> {
    let Desired { plan, target, .. } = &stored.desired;
    let mut files = render::files(&stored.rendering);
    if let Some(spec) = &stored.spec {
        files.insert("cluster.yaml".to_owned(), spec.bytes.clone());
    }
    files.insert("lock.json".to_owned(), stored.lock.bytes.clone());
    let folder = format!("clusters/{cluster}/");
    for (key, object) in [
        (keys::release(cluster, target), &stored.release),
        (keys::plan(cluster, plan), &stored.plan),
        (keys::plan_page(cluster, plan), &stored.page),
    ] {
        files.insert(key.strip_prefix(&folder).unwrap_or(&key).to_owned(), object.bytes.clone());
    }
    files
}

/// Whether there is a private key in PEM. Nothing that is rendered has one; a person may have put one into a spec.
fn has_private_key(bytes: &[u8]) -> bool {
    const END: &[u8] = b"PRIVATE KEY-----";
    bytes.windows(END.len()).any(|window| window == END)
}

fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}
