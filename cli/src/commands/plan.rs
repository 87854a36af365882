//! `slipway plan`.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde_json::json;
use slipway_crypto::AwsLc;
use slipway_flows::overlay::Overlay;
use slipway_flows::rendering::Preview;
use slipway_plan::{Baseline, Plan, plan};
use slipway_rollout::Rollout;

use super::approve::paused_in_words;
use super::render::prepared;
use crate::Exit;
use crate::cloud::CloudArgs;
use crate::failure::CliError;
use crate::local::{ImagePin, LocalKeys, LocalRegistry, SiteArgs, Workspace, pin, write_atomic};
use crate::printer::{Printer, Stream};
use crate::source::{PatchArgs, Source, SpecArgs};
use crate::upload::{Going, OtherPatches, foresee, page};

/// Show what an upload of a spec would change in a cluster in AWS, without uploading it; or what it would change in a rendered directory.
///
/// In AWS it is the plan that the render function would publish, made by the same code from the same objects. Nothing is written, no key
/// is made and none is used. Credentials that the upload would make are named; the plan's id is then known only afterwards. The
/// command and the installation must have the same release.
///
/// With --against, missing credentials are made in memory and discarded: the plan shows which nodes would receive them, and
/// `slipway render` makes new ones.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  planned; with --exit-code: nothing changes
  1  the spec was refused, the plan would not be executed, the installation does not show its settings, or DIR belongs to another cluster; with --exit-code: something changes
  2  wrong usage
  3  something could not be read

The IAM permissions for this are listed in docs/cli.md.

Examples:
  slipway plan cluster.yaml
  slipway plan cluster.yaml --output json | jq .plan.nodes
  slipway plan cluster.yaml --against rendered
  slipway plan cluster.yaml --against rendered --html plan.html
  slipway plan cluster.yaml --exit-code && echo 'nothing to do'")]
pub(crate) struct Args {
    #[command(flatten)]
    spec: SpecArgs,
    /// Plan without AWS, against the directory that `slipway render` wrote; an empty one for a new cluster.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["cluster", "spec_bucket", "stack", "profile", "region", "prune", "keep_patches"])]
    against: Option<PathBuf>,
    /// Also write the plan as a self-contained HTML page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Exit with 1 if anything changes.
    #[arg(long)]
    exit_code: bool,
    #[command(flatten)]
    patches: PatchArgs,
    /// The machine image of an architecture (x86_64 or arm64), for nodes whose spec names none; may be repeated.
    #[arg(long = "image", value_name = "ARCH=AMI", requires = "against")]
    images: Vec<ImagePin>,
    /// Query registries and publishers for digests. Without this, digests of zeros are used as placeholders.
    #[arg(long, requires = "against")]
    resolve: bool,
    /// The KMS key of the Slipway installation, for templates if the spec names no key. Default: a placeholder.
    #[arg(long, value_name = "ARN", requires = "against")]
    kms_key_arn: Option<String>,
    /// The issuer bucket of the Slipway installation, for `iamRolesForServiceAccounts`. Default: a placeholder.
    #[arg(long, value_name = "NAME", requires = "against")]
    issuer_bucket: Option<String>,
    #[command(flatten)]
    cloud: CloudArgs,
    #[command(flatten)]
    others: OtherPatches,
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let source = Source::read(args.spec.path(), &args.patches)?;
    match &args.against {
        Some(directory) => against(directory, args, &source, printer).await,
        None => in_cloud(args, &source, printer).await,
    }
}

/// What an upload would change in AWS.
async fn in_cloud(args: &Args, source: &Source, printer: &Printer) -> Result<Exit, CliError> {
    let named = source.text_of("clusterName");
    if named.is_none()
        && let Err(findings) = source.parse()
    {
        printer.refused(source, &findings);
        return Ok(Exit::Findings);
    }
    let cloud = args.cloud.of_spec(named.as_deref(), source.text_of("region")).await?;
    if let Err(findings) = source.parse_for(&cloud.cluster, cloud.region()) {
        printer.refused(source, &findings);
        return Ok(Exit::Findings);
    }
    let paused_since = cloud.known_rollout().await?.as_ref().and_then(Rollout::paused_since);
    let patches = args.others.after_upload(&cloud, source).await.map_err(CliError::in_cloud)?;
    let imports = Going::beside(source, true);
    let foreseen = match foresee(&cloud, source, &patches.set, &imports).await? {
        Preview::Planned(foreseen) => foreseen,
        Preview::Rejected(findings) => {
            printer.refused(source, &findings);
            return Ok(Exit::Findings);
        }
    };
    printer.findings(Stream::Err, source, &foreseen.warnings);
    let plan = &foreseen.plan;
    let machine = json!({
        "ok": true,
        "cluster": cloud.cluster,
        "assetBucket": cloud.assets().name(),
        "unchanged": foreseen.unchanged,
        "exact": foreseen.is_exact(),
        "credentialsToMake": foreseen.made,
        "waitsForApproval": plan.waits_for_approval(Timestamp::now()),
        "pausedSince": paused_since,
        "summary": plan.summary(),
        "executable": plan.not_executable().is_none(),
        "notExecuted": plan.not_executable(),
        "plan": plan,
        "diagnostics": foreseen.warnings,
    });
    let paused = paused_since.map(|since| paused_in_words(&cloud.cluster, since)).unwrap_or_default();
    let text = page(&foreseen, printer) + &paused;
    done(args, plan, foreseen.unchanged, &text, &machine, printer)
}

/// What a rendering would change in a directory.
async fn against(
    directory: &Path,
    args: &Args,
    source: &Source,
    printer: &Printer,
) -> Result<Exit, CliError> {
    let cluster = match source.parse() {
        Ok(accepted) => accepted.cluster,
        Err(findings) => {
            printer.refused(source, &findings);
            return Ok(Exit::Findings);
        }
    };
    let site = SiteArgs {
        asset_bucket: args.cloud.asset_bucket().map(str::to_owned),
        kms_key_arn: args.kms_key_arn.clone(),
        issuer_bucket: args.issuer_bucket.clone(),
    };
    let workspace = Workspace::open_read_only(directory)?;
    let (folder, site) = workspace.claim(&cluster, &site)?;
    let keys = match LocalKeys::read(AwsLc, &workspace.key_file())? {
        Some(keys) => keys,
        None => LocalKeys::make(AwsLc)?.0,
    };
    let objects = Overlay::new(&folder);
    pin(&objects, &cluster, &args.images).await?;
    let registry = LocalRegistry::new(args.resolve);
    let release = workspace.release()?;
    let is_empty = std::fs::read_dir(directory).is_ok_and(|mut found| found.next().is_none());
    if release.is_none() && !is_empty {
        return Err(CliError::refused(
            format!("{} has files, and nothing was rendered into it", directory.display()),
            "name the directory of `slipway render --out`, or an empty one to plan a new cluster",
        ));
    }
    let baseline = Baseline::single_release(release);
    let prepared = match prepared(&objects, &keys, &registry, &site, &cluster.name, source, &baseline).await?
    {
        Ok(prepared) => prepared,
        Err(findings) => {
            printer.refused(source, &findings);
            return Ok(Exit::Findings);
        }
    };
    let plan = plan(&baseline, &prepared.rendering, &cluster.rollout);
    // A missing agent matters when deploying, and `render` reports it.
    let warnings: Vec<_> =
        prepared.warnings.into_iter().filter(|warning| warning.code != "no-agent").collect();
    printer.findings(Stream::Err, source, &warnings);
    let machine = json!({
        "ok": true,
        "cluster": cluster.name,
        "against": directory.display().to_string(),
        "unchanged": plan.is_empty(),
        "summary": plan.summary(),
        "executable": plan.not_executable().is_none(),
        "notExecuted": plan.not_executable(),
        "plan": plan,
        "diagnostics": warnings,
    });
    let text = printer.coloured(&plan.to_text());
    done(args, &plan, plan.is_empty(), &text, &machine, printer)
}

fn done(
    args: &Args,
    plan: &Plan,
    unchanged: bool,
    text: &str,
    machine: &serde_json::Value,
    printer: &Printer,
) -> Result<Exit, CliError> {
    if let Some(path) = &args.html {
        write_atomic(path, plan.to_html().as_bytes())
            .map_err(|error| CliError::file("write", path, &error))?;
    }
    printer.result(text, machine);
    let no = plan.not_executable().is_some() || (args.exit_code && !unchanged);
    Ok(if no { Exit::Findings } else { Exit::Done })
}
