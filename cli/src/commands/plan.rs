//! `slipway plan`.

use std::path::PathBuf;

use serde_json::json;
use slipway_crypto::AwsLc;
use slipway_flows::overlay::Overlay;
use slipway_plan::{Baseline, plan};

use super::render::{With, prepared};
use crate::Exit;
use crate::failure::CliError;
use crate::local::{LocalKeys, LocalRegistry, Workspace, pin, write_atomic};
use crate::printer::{Printer, Stream};
use crate::source::{Source, SpecArgs};

/// Show what a spec would change in a rendered directory, without changing the directory.
///
/// Missing credentials are made in memory and discarded: the plan shows which nodes would receive them, and `slipway render` makes new
/// ones.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  planned; with --exit-code: nothing changes
  1  the spec was refused, the plan would not be executed, or DIR belongs to another cluster; with --exit-code: something changes
  2  wrong usage
  3  something could not be read

Examples:
  slipway plan cluster.yaml --against rendered
  slipway plan cluster.yaml --against rendered --output json | jq .plan.nodes
  slipway plan cluster.yaml --against rendered --html plan.html
  slipway plan cluster.yaml --against rendered --exit-code && echo 'nothing to do'")]
pub(crate) struct Args {
    #[command(flatten)]
    spec: SpecArgs,
    /// The directory that `slipway render` wrote; an empty one for a new cluster.
    #[arg(long, value_name = "DIR")]
    against: PathBuf,
    /// Also write the plan as a self-contained HTML page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Exit with 1 if anything changes.
    #[arg(long)]
    exit_code: bool,
    #[command(flatten)]
    with: With,
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let source = Source::read(args.spec.path(), &args.with.patches)?;
    let cluster = match source.parse() {
        Ok(accepted) => accepted.cluster,
        Err(findings) => {
            printer.refused(&source, &findings);
            return Ok(Exit::Findings);
        }
    };
    let workspace = Workspace::open_read_only(&args.against)?;
    let (folder, site) = workspace.claim(&cluster, &args.with.site)?;
    let keys = match LocalKeys::read(AwsLc, &workspace.key_file())? {
        Some(keys) => keys,
        None => LocalKeys::make(AwsLc)?.0,
    };
    let objects = Overlay::new(&folder);
    pin(&objects, &cluster, &args.with.images).await?;
    let registry = LocalRegistry::new(args.with.resolve);
    let baseline = Baseline::whole(workspace.release()?);
    let prepared =
        match prepared(&objects, &keys, &registry, &site, &cluster.name, &source, &baseline).await? {
            Ok(prepared) => prepared,
            Err(findings) => {
                printer.refused(&source, &findings);
                return Ok(Exit::Findings);
            }
        };
    let plan = plan(&baseline, &prepared.rendering, &cluster.rollout);
    // A missing agent matters when deploying, and `render` reports it.
    let warnings: Vec<_> =
        prepared.warnings.into_iter().filter(|warning| warning.code != "no-agent").collect();
    printer.findings(Stream::Err, &source, &warnings);
    let refused = plan.not_executable();
    let machine = json!({
        "ok": true,
        "cluster": cluster.name,
        "against": args.against.display().to_string(),
        "unchanged": plan.is_empty(),
        "summary": plan.summary(),
        "executable": refused.is_none(),
        "notExecuted": refused,
        "plan": plan,
        "diagnostics": warnings,
    });
    if let Some(path) = &args.html {
        write_atomic(path, plan.to_html().as_bytes())
            .map_err(|error| CliError::file("write", path, &error))?;
    }
    printer.result(&printer.coloured(&plan.to_text()), &machine);
    let no = refused.is_some() || (args.exit_code && !plan.is_empty());
    Ok(if no { Exit::Findings } else { Exit::Done })
}
