//! `slipway status`.

use jiff::Timestamp;

use crate::Exit;
use crate::cloud::CloudArgs;
use crate::failure::Failure;
use crate::overview::{Overview, Page, Reports};
use crate::printer::Printer;

/// Show how a cluster in AWS stands: what became of its spec, its rollout, what its nodes report, when its certificates end, and
/// what helps where something is wrong.
///
/// Only the installation's asset bucket is read. Nodes tell of their bootstrap there, and members and controllers hourly what
/// they serve; which machines EC2 has, nobody is asked.
#[derive(Debug, clap::Args)]
#[command(
    mut_arg("cluster", |arg| arg.required(true)),
    after_help = "\
Exit codes:
  0  shown; with --exit-code: nothing is wrong
  1  there is no such cluster; with --exit-code: something is wrong
  2  wrong usage
  3  the asset bucket could not be read

What you need to be allowed in AWS for this is listed in docs/cli.md.

Examples:
  slipway status --cluster prod
  slipway status --cluster prod --all
  slipway status --cluster prod --exit-code && echo 'all is well'
  slipway status --cluster prod --output json | jq '.findings[] | select(.gravity == \"wrong\")'"
)]
pub(crate) struct Args {
    #[command(flatten)]
    cloud: CloudArgs,
    /// List every node and certificate, the machines of the past as well.
    #[arg(long)]
    all: bool,
    /// End with 1 if anything is wrong.
    #[arg(long)]
    exit_code: bool,
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, Failure> {
    let cloud = args.cloud.named().await?;
    let view = Overview::look(&cloud, &mut Reports::default(), Timestamp::now()).await?;
    printer.result(&Page { printer, all: args.all }.text(&view), &view);
    Ok(if args.exit_code && !view.well { Exit::Findings } else { Exit::Done })
}
