//! `slipway certs renew`.

pub(in crate::commands) mod deployed;

use std::path::PathBuf;

use jiff::Timestamp;
use serde_json::json;
use slipway_crypto::AwsLc;
use slipway_flows::credentials;

use crate::Exit;
use crate::cloud::CloudArgs;
use crate::commands::render::{Changed, Rendered};
use crate::failure::CliError;
use crate::printer::Printer;
use crate::session::AWS;
use crate::source::PatchArgs;

/// Renew one certificate of a rendered cluster or of a cluster in AWS. Everything else stays the same: only bundles that contain it get a
/// new digest, and only nodes that receive these bundles change.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
For a cluster in AWS it shows what would change; --apply renews the certificate. Nodes receive it by the
rollout that follows the next upload of the spec: --upload uploads the same spec again.

Exit codes:
  0  renewed and rendered; for a cluster in AWS: renewed, or the consequences were shown
  1  there is no such certificate, it cannot be renewed individually, or the spec changes something else as well
  2  wrong usage
  3  something could not be read or written

Examples:
  slipway certs renew apiserver cluster.yaml --out rendered
  slipway certs renew etcd-peer-0 cluster.yaml --out rendered --new-key
  slipway certs renew apiserver --cluster prod
  slipway certs renew apiserver --cluster prod --apply --upload")]
pub(in crate::commands) struct Args {
    /// The certificate, as shown by `slipway certs show`.
    name: String,
    /// The spec that was rendered.
    #[arg(required_unless_present = "cluster", conflicts_with = "cluster")]
    file: Option<PathBuf>,
    /// The directory that `slipway render` wrote.
    #[arg(long, value_name = "DIR", required_unless_present = "cluster", conflicts_with = "cluster")]
    out: Option<PathBuf>,
    /// Make a new key for it as well.
    #[arg(long)]
    new_key: bool,
    #[command(flatten)]
    patches: PatchArgs,
    #[command(flatten)]
    cloud: CloudArgs,
    /// Renew it. Without this, only the consequences are shown.
    #[arg(long, requires = "cluster", help_heading = AWS)]
    apply: bool,
    /// Upload the same spec again afterwards, which plans the rollout.
    #[arg(long, requires = "apply", help_heading = AWS)]
    upload: bool,
}

pub(in crate::commands) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    if let Some(cloud) = args.cloud.cluster().await? {
        return deployed::run(args, &cloud, printer).await;
    }
    let (Some(file), Some(out)) = (&args.file, &args.out) else {
        return Err(CliError::refused("neither a directory nor a cluster is named", "see --help"));
    };
    let Some(rendered) = Rendered::find(file, &args.patches, out, printer)? else {
        return Ok(Exit::Findings);
    };
    let (cluster, now) = (&rendered.cluster, Timestamp::now());
    let changed = rendered.change("renewing a certificate", printer, async |folder, keys| {
        Ok(credentials::renew(folder, keys, &AwsLc, cluster, &args.name, args.new_key, now).await?)
    });
    let Some(Changed { done: renewed, manifest, files: changed }) = changed.await? else {
        return Ok(Exit::Findings);
    };
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
