//! `slipway certs renew`.

pub(in crate::commands) mod standing;

use std::path::PathBuf;

use jiff::Timestamp;
use serde_json::json;
use slipway_core::plan::Baseline;
use slipway_driver::{credentials, issuer};
use slipway_pki::AwsLc;

use crate::Exit;
use crate::cloud::{AWS, CloudArgs};
use crate::commands::render;
use crate::failure::Failure;
use crate::local::{LocalRegistry, Overlay, SiteArgs, Workspace};
use crate::printer::Printer;
use crate::source::{PatchArgs, Source};

/// Issue one certificate of a rendered cluster, or of one in AWS, anew. Everything else keeps its bytes: only the bundles that
/// hold it get a new digest, and only the nodes that receive them change.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Of a cluster in AWS it says what it would change; --apply issues the certificate. Nodes have it after the
rollout that the next upload of the spec leads to: --upload uploads the same spec again.

Exit codes:
  0  renewed, and rendered; of a cluster in AWS: renewed, or said what would be
  1  there is no such certificate, it is not renewed by itself, or the spec changes more than that
  2  wrong usage
  3  something could not be read or written

Examples:
  slipway certs renew apiserver cluster.yaml --out rendered
  slipway certs renew etcd-peer-0 cluster.yaml --out rendered --new-key
  slipway certs renew apiserver --cluster prod
  slipway certs renew apiserver --cluster prod --apply --upload")]
pub(in crate::commands) struct Args {
    /// The certificate, as `slipway certs show` calls it.
    name: String,
    /// The spec that was rendered.
    #[arg(required_unless_present = "cluster", conflicts_with = "cluster")]
    file: Option<PathBuf>,
    /// The directory that `slipway render` wrote.
    #[arg(long, value_name = "DIR", required_unless_present = "cluster", conflicts_with = "cluster")]
    out: Option<PathBuf>,
    /// Give it a new key, too.
    #[arg(long)]
    new_key: bool,
    #[command(flatten)]
    patches: PatchArgs,
    #[command(flatten)]
    cloud: CloudArgs,
    /// Issue it; without this, only what it would change is said.
    #[arg(long, requires = "cluster", help_heading = AWS)]
    apply: bool,
    /// Upload the same spec again afterwards: that is what a rollout is planned by.
    #[arg(long, requires = "apply", help_heading = AWS)]
    upload: bool,
}

pub(in crate::commands) async fn run(args: &Args, printer: &Printer) -> Result<Exit, Failure> {
    if let Some(cloud) = args.cloud.cluster().await? {
        return standing::run(args, &cloud, printer).await;
    }
    let (Some(file), Some(out)) = (&args.file, &args.out) else {
        return Err(Failure::refused("neither a directory nor a cluster is named", "see --help"));
    };
    let source = Source::read(file, &args.patches)?;
    let cluster = match source.parse() {
        Ok(accepted) => accepted.cluster,
        Err(findings) => {
            printer.refused(&source, &findings);
            return Ok(Exit::Findings);
        }
    };
    // Looked at before it is opened: opening makes a directory.
    let before = Workspace::look(out)?.release()?.ok_or_else(|| {
        let problem = format!("nothing was rendered into {}", out.display());
        Failure::refused(problem, "name the directory that `slipway render` wrote")
    })?;
    let workspace = Workspace::open(out)?;
    let (folder, site) = workspace.claim(&cluster, &SiteArgs::default())?;
    let keys = render::keys(&workspace)?;
    let registry = LocalRegistry::new(false);
    let baseline = Baseline::whole(Some(before.clone()));

    // What the spec would change besides is not done in passing: it is looked at in memory.
    let (overlay, _) = workspace.claim(&cluster, &SiteArgs::default())?;
    let overlay = Overlay::new(overlay);
    let first =
        match render::prepared(&overlay, &keys, &registry, &site, &cluster.name, &source, &baseline).await? {
            Ok(prepared) => prepared,
            Err(findings) => {
                printer.refused(&source, &findings);
                return Ok(Exit::Findings);
            }
        };
    if first.rendering.id() != before.id() {
        return Err(Failure::refused(
            "the spec says more than was rendered, and renewing a certificate changes nothing else",
            "run `slipway render` first, and look at what it changes with `slipway plan`",
        ));
    }

    let now = Timestamp::now();
    let renewed = credentials::renew(&folder, &keys, &AwsLc, &cluster, &args.name, args.new_key, now).await?;
    let prepared =
        match render::prepared(&folder, &keys, &registry, &site, &cluster.name, &source, &baseline).await? {
            Ok(prepared) => prepared,
            Err(findings) => {
                printer.refused(&source, &findings);
                return Ok(Exit::Findings);
            }
        };
    let manifest = &prepared.credentials.manifest;
    let documents = issuer::documents(&folder, &AwsLc, &cluster, manifest, &site).await?;
    let changed = render::write(&workspace, Some(&before), &prepared.rendering, documents)?;
    let facts = manifest.assets.get(&args.name).and_then(|entry| entry.certificate.as_ref());
    let (serial, end) =
        facts.map(|facts| (facts.serial.clone(), facts.not_after.to_string())).unwrap_or_default();
    let roles: Vec<String> = renewed.sealed.iter().map(ToString::to_string).collect();
    let key = if args.new_key { "a new key" } else { "the key that it had" };
    let text = format!(
        "{} was issued anew with {key}: serial {serial}, until {end}\nchanged credentials: {}\n{} files changed\n",
        args.name,
        roles.join(", "),
        changed.len()
    );
    let machine = json!({
        "ok": true,
        "cluster": cluster.name,
        "renewed": args.name,
        "newKey": args.new_key,
        "serial": serial,
        "notAfter": end,
        "roles": roles,
        "changed": changed,
    });
    printer.result(&text, &machine);
    Ok(Exit::Done)
}
