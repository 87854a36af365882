//! `slipway certs verify`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use slipway_core::cluster::Cluster;
use slipway_core::keys;
use slipway_crypto::verify::{Finding, Severity, Survey};
use slipway_flows::error::FlowError;
use slipway_ports::Objects as _;

use super::place::{Place, PlaceArgs};
use super::{Moment, SOON_DAYS, folder, sealed};
use crate::Exit;
use crate::cloud::Cloud;
use crate::failure::CliError;
use crate::printer::{Colour, Printer};
use crate::source::{PatchArgs, Source};

/// Verify the certificates and keys of a folder or of a cluster in AWS: chain, names, purpose, keys, dates. All problems are reported at
/// once.
///
/// The layout of the folder (Slipway's, kubeadm's or kube-aws') is detected. Files that do not belong to it are listed as unknown.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The names that certificates must have are derived from the spec: --spec, or cluster.yaml in the folder or
beside it, in Slipway's or kube-aws' format; for a cluster in AWS, the newest in the spec bucket, if that is
known. Without a spec only the names that every cluster has are checked.

Sealed objects are opened if the directory has its local.key; in AWS, with --open.

Exit codes:
  0  nothing is wrong
  1  something is wrong or expires soon, or there is no certificate
  2  wrong usage
  3  something could not be read

Examples:
  slipway certs verify rendered --spec cluster.yaml
  slipway certs verify --cluster prod --open
  slipway certs verify /etc/kubernetes --days 60
  slipway certs verify my-kube-aws-cluster/credentials
  slipway certs verify rendered --output json | jq '.findings[].code'")]
pub(crate) struct Args {
    #[command(flatten)]
    place: PlaceArgs,
    /// Decrypt sealed objects with KMS, and verify the private keys as well. They are neither shown nor stored. Needs kms:Decrypt.
    #[arg(long, requires = "cluster")]
    open: bool,
    /// The cluster's spec, from which the certificates' names are checked.
    #[arg(long, value_name = "FILE")]
    spec: Option<PathBuf>,
    /// Report certificates that expire within so many days.
    #[arg(long, value_name = "DAYS", default_value_t = SOON_DAYS)]
    days: u32,
    #[command(flatten)]
    moment: Moment,
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let given = match &args.spec {
        Some(path) => match demanded(path)? {
            Ok(cluster) => Some((path.display().to_string(), cluster)),
            Err((source, findings)) => {
                printer.refused(&source, &findings);
                return Ok(Exit::Findings);
            }
        },
        None => None,
    };
    let place = args.place.find().await?;
    let mut files = place.files().await?;
    let opened = match &place {
        Place::Folder(dir) => folder::is_ours(dir) && sealed::open_folder(dir, &mut files).await?,
        Place::Cloud(cloud) if args.open => {
            let opened = sealed::open(cloud.assets(), &cloud.keys(""), &cloud.cluster, &mut files).await;
            opened.map_err(|error| CliError::from(error).in_cloud())?;
            true
        }
        Place::Cloud(_) => false,
    };
    let survey = place.survey(files)?;
    let (spec, note) = match (given, &place) {
        (Some(given), _) => (Some(given), None),
        (None, Place::Folder(dir)) => beside(dir),
        (None, Place::Cloud(cloud)) => newest(cloud).await?,
    };
    let cluster = spec.as_ref().map(|(_, cluster)| cluster);
    let findings = survey.verify(cluster, args.moment.get(), args.days);
    let mut machine = json!({
        "ok": findings.is_empty(),
        "layout": survey.layout,
        "at": args.moment.get(),
        "spec": spec.as_ref().map(|(path, _)| path),
        "certificates": survey.certificates.len(),
        "keys": survey.keys.len(),
        "sealedOpened": opened,
        "findings": findings,
        "unknown": survey.others.iter().filter(|other| !other.known).collect::<Vec<_>>(),
        "notLookedInto": survey.others.iter().filter(|other| other.known).collect::<Vec<_>>(),
    });
    place.name_in(&mut machine);
    let spec = spec.as_ref().map(|(path, _)| path.as_str());
    let opened = opened.then_some(match &place {
        Place::Folder(_) => "sealed files were opened with the local.key in this folder",
        Place::Cloud(_) => "what is sealed was opened by KMS",
    });
    printer.result(&report(printer, &survey, &findings, (spec, note), opened), &machine);
    Ok(if findings.is_empty() { Exit::Done } else { Exit::Findings })
}

/// The cluster that a spec describes, Slipway's or kube-aws'.
fn demanded(
    path: &Path,
) -> Result<Result<Cluster, (Source, Vec<slipway_core::diagnostic::Diagnostic>)>, CliError> {
    let source = Source::read(path, &PatchArgs::default())?;
    let findings = match source.parse() {
        Ok(checked) => return Ok(Ok(checked.cluster)),
        Err(findings) => findings,
    };
    let migrated = slipway_migrate::migrate(&source.bytes).ok();
    let old = migrated.and_then(|migrated| slipway_spec::parse(migrated.text.as_bytes(), None).ok());
    Ok(old.map(|parsed| parsed.cluster).ok_or((source, findings)))
}

/// The newest spec of a cluster in AWS, and why it cannot be used.
async fn newest(cloud: &Cloud) -> Result<Spec, CliError> {
    let Some(specs) = cloud.known_specs() else { return Ok((None, None)) };
    let key = keys::spec(&cloud.cluster);
    let object = specs.get(&key).await.map_err(|error| CliError::from(FlowError::from(error)).in_cloud())?;
    let path = format!("s3://{}/{key}", specs.name());
    let Some(object) = object else { return Ok((None, Some(format!("there is no {path}")))) };
    Ok(match slipway_spec::parse(&object.bytes, None) {
        Ok(accepted) => (Some((path, accepted.cluster)), None),
        Err(_) => (None, Some(format!("{path} is refused: see slipway validate"))),
    })
}

/// A spec and its place, or why there is none.
type Spec = (Option<(String, Cluster)>, Option<String>);

/// The spec in the folder or beside it, and why it cannot be used.
fn beside(dir: &Path) -> Spec {
    let above = fs::canonicalize(dir).ok().and_then(|dir| dir.parent().map(Path::to_path_buf));
    let mut places =
        [Some(dir.to_owned()), above].into_iter().flatten().map(|folder| folder.join("cluster.yaml"));
    let Some(path) = places.find(|path| path.is_file()) else { return (None, None) };
    match demanded(&path) {
        Ok(Ok(cluster)) => (Some((path.display().to_string(), cluster)), None),
        Ok(Err(_)) => (None, Some(format!("{} is refused: see slipway validate", path.display()))),
        Err(failure) => (None, Some(failure.to_string())),
    }
}

fn report(
    printer: &Printer,
    survey: &Survey,
    findings: &[Finding],
    (spec, note): (Option<&str>, Option<String>),
    opened: Option<&str>,
) -> String {
    let mut text = String::new();
    for finding in findings {
        let (colour, word) = match finding.severity {
            Severity::Error => (Colour::Red, "error"),
            Severity::Warning => (Colour::Yellow, "warning"),
        };
        let word = printer.paint(colour, &format!("{word}[{}]", finding.code));
        let _ = writeln!(text, "{word} {}: {}", finding.file, finding.message);
        let _ = writeln!(text, "   {} {}\n", printer.paint(Colour::Cyan, "help:"), finding.help);
    }
    for other in survey.others.iter().filter(|other| !other.known) {
        let _ = writeln!(text, "unknown: {} ({})", other.file, other.what);
    }
    let _ = writeln!(text, "the layout is {}", survey.layout.words());
    match (spec, note) {
        (Some(path), _) => {
            let _ = writeln!(text, "names are checked against {path}");
        }
        (None, Some(note)) => {
            let _ = writeln!(text, "names are checked against no spec: {note}");
        }
        (None, None) => {
            text.push_str("names are checked against no spec: give --spec to have them checked\n")
        }
    }
    let known = survey.others.iter().filter(|other| other.known).count();
    if let Some(opened) = opened {
        let _ = writeln!(text, "{opened}");
    } else if known > 0 {
        let _ = writeln!(text, "{known} files were not inspected: they are sealed, or no certificate");
    }
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    let verdict = match (errors, findings.len() - errors) {
        (0, 0) => "nothing is wrong".to_owned(),
        (errors, warnings) => format!("{errors} errors, {warnings} warnings"),
    };
    let _ =
        writeln!(text, "{} certificates, {} keys: {verdict}", survey.certificates.len(), survey.keys.len());
    text
}
