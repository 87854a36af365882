//! `slipway validate`.

use std::path::Path;

use jiff::Timestamp;
use serde_json::json;
use slipway_core::diagnostic::{Diagnostic, Severity};
use slipway_credentials::Manifest;
use slipway_crypto::AwsLc;
use slipway_flows::imports::{self, Imports};
use slipway_flows::rendering::Checked;
use slipway_spec::Objection;

use crate::Exit;
use crate::failure::CliError;
use crate::local::Folder;
use crate::printer::{Printer, Stream};
use crate::source::{PatchArgs, Source, SpecArgs};

/// Check a cluster.yaml and its patches, and report all problems at once, each with its place and what to do.
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
    #[command(flatten)]
    spec: SpecArgs,
    #[command(flatten)]
    patches: PatchArgs,
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let source = Source::read(args.spec.path(), &args.patches)?;
    let (cluster, findings) = match source.parse() {
        Ok(accepted) => {
            let about_imports = imports(&source, &accepted).await?;
            let grave = about_imports.iter().any(|finding| finding.severity == Severity::Error);
            let cluster = (!grave).then_some(accepted.cluster);
            let advice = cluster.as_ref().map(|cluster| slipway_spec::advice(cluster, &accepted.places));
            (cluster, [about_imports, accepted.warnings, advice.unwrap_or_default()].concat())
        }
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

/// Objections to the certificates and keys in `import/`, if the spec names any. A missing file is no error, because it is needed only for
/// the first rendering. No passphrase is asked for: an encrypted key whose passphrase is not in the environment is left to `render`.
async fn imports(source: &Source, checked: &Checked) -> Result<Vec<Diagnostic>, CliError> {
    let beside = source.imports(false);
    about_imports(&beside, beside.is_there(), checked).await
}

/// The same for files from any place. `is_there`: missing files are an error.
pub(crate) async fn about_imports(
    beside: &impl Imports,
    is_there: bool,
    checked: &Checked,
) -> Result<Vec<Diagnostic>, CliError> {
    let (manifest, now) = (Manifest::default(), Timestamp::now());
    let nothing = Folder::new(Path::new(""), &checked.cluster.name);
    let (_, objections) = imports::read(beside, &nothing, &AwsLc, &checked.cluster, &manifest, now).await?;
    let notes = objections.into_iter().filter_map(|objection| match objection.code {
        "import-passphrase" => None,
        "import-missing" => is_there.then_some(Objection { severity: Severity::Warning, ..objection }),
        _ => Some(objection),
    });
    Ok(checked.places.findings(notes.collect()))
}
