//! `slipway status`.

use jiff::Timestamp;

use crate::Exit;
use crate::cloud::CloudArgs;
use crate::failure::CliError;
use crate::overview::{Overview, Page, Reports};
use crate::printer::Printer;

/// Show the state of a cluster in AWS: its spec, its rollout, the reports of its nodes, the expiry of its certificates, and what to do
/// about problems.
///
/// Only the installation's asset bucket is read. Nodes report their bootstrap there, and members and controllers report hourly what they
/// serve. EC2 is not queried.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  shown; with --exit-code: nothing is wrong, and the cluster serves (or was destroyed)
  1  there is no such cluster; with --exit-code: something is wrong, or its machines do not say that it serves
  2  wrong usage
  3  the asset bucket could not be read

The IAM permissions for this are listed in docs/cli.md.

Examples:
  slipway status --cluster prod
  slipway status --cluster prod --all
  slipway status --cluster prod --exit-code && echo 'all is well'
  slipway status --cluster prod --output json | jq '.findings[] | select(.gravity == \"wrong\")'")]
pub(crate) struct Args {
    #[command(flatten)]
    cloud: CloudArgs,
    /// List all nodes and certificates, including former nodes.
    #[arg(long)]
    all: bool,
    /// Exit with 1 if anything is wrong, or unless the reports of all wanted machines say that the cluster serves: etcd has its quorum, the
    /// API answers, the nodes are ready.
    #[arg(long)]
    exit_code: bool,
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let cloud = args.cloud.named().await?;
    let view = Overview::read(&cloud, &mut Reports::default(), Timestamp::now()).await?;
    printer.result(&Page { printer, all: args.all }.text(&view), &view);
    Ok(if args.exit_code && !(view.well && view.serving.is_well()) { Exit::Findings } else { Exit::Done })
}
