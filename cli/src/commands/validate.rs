//! `slipway validate`.

use std::path::PathBuf;

use serde_json::json;

use crate::Exit;
use crate::failure::Failure;
use crate::printer::{Printer, Stream};
use crate::source::{PatchArgs, Source};

/// Check a cluster.yaml and its patches: every finding at once, each with its place and what to do.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  accepted, perhaps with warnings
  1  refused
  2  wrong usage
  3  the file could not be read

Examples:
  slipway validate cluster.yaml
  slipway validate clusters/prod/cluster.yaml    # the folder's name must be the cluster's
  slipway validate cluster.yaml --patches more   # patches that do not lie in patches/ beside it
  slipway validate - --output json < cluster.yaml")]
pub(crate) struct Args {
    /// The spec; `-` reads the standard input.
    file: PathBuf,
    #[command(flatten)]
    patches: PatchArgs,
}

pub(crate) fn run(args: &Args, printer: &Printer) -> Result<Exit, Failure> {
    let source = Source::read(&args.file, &args.patches)?;
    let (cluster, findings) = match source.parse() {
        Ok(accepted) => (Some(accepted.cluster), accepted.warnings),
        Err(findings) => (None, findings),
    };
    printer.findings(Stream::Out, &source, &findings);
    let name = cluster.as_ref().map(|cluster| cluster.name.as_str());
    let text = match (&cluster, findings.is_empty()) {
        (None, _) => String::new(),
        (Some(cluster), true) => format!(
            "{}: cluster {} is fine (controllers: {}, etcd members: {}, pools: {})\n",
            source.name,
            cluster.name,
            cluster.controller.count,
            cluster.etcd.members.len(),
            cluster.pools.len(),
        ),
        (Some(cluster), false) => format!("{}: cluster {} is accepted\n", source.name, cluster.name),
    };
    let machine =
        json!({ "ok": cluster.is_some(), "file": source.name, "cluster": name, "diagnostics": findings });
    printer.result(&text, &machine);
    Ok(if cluster.is_some() { Exit::Done } else { Exit::Findings })
}
