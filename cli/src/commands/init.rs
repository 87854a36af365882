//! `slipway init`.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use serde_json::json;
use slipway_core::diagnostic::Diagnostic;
use slipway_spec::{SCHEMA_FILE, Starter, parse, schema, starter};

use crate::Exit;
use crate::failure::CliError;
use crate::printer::{Printer, Stream};
use crate::source::Source;

/// Write a commented cluster.yaml to start from, and its schema for completion and validation in editors.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  written
  1  the options give no valid spec, or the file exists
  2  wrong usage
  3  something could not be written

Examples:
  slipway init --cluster-name prod --region eu-west-1 --dns-name api.example.com
  slipway init --cluster-name dev --region us-west-2 --availability-zone us-west-2a \\
    --dns-name api.dev.example.com --hosted-zone-id Z0123456789ABC")]
pub(crate) struct Args {
    /// The cluster's name.
    #[arg(long, value_name = "NAME")]
    cluster_name: String,
    /// The AWS region.
    #[arg(long, value_name = "REGION")]
    region: String,
    /// An availability zone; may be repeated. Use three for a cluster that survives the failure of one. Default: a, b and c of the
    /// region.
    #[arg(long = "availability-zone", value_name = "ZONE", value_delimiter = ',')]
    availability_zones: Vec<String>,
    /// The DNS name of the Kubernetes API.
    #[arg(long, visible_alias = "external-dns-name", value_name = "NAME")]
    dns_name: String,
    /// The Route 53 hosted zone for its record. Without it you have to make the record yourself.
    #[arg(long, value_name = "ID")]
    hosted_zone_id: Option<String>,
    /// An EC2 key pair for ssh.
    #[arg(long, value_name = "NAME")]
    key_name: Option<String>,
    /// The KMS key that seals the credentials. Default: the installation's key.
    #[arg(long, value_name = "ARN")]
    kms_key_arn: Option<String>,
    /// The file to write.
    #[arg(short, long, value_name = "FILE", default_value = "cluster.yaml")]
    file: PathBuf,
    /// Overwrite the file.
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    if args.file == Path::new("-") {
        return Err(CliError::usage(
            "init writes two files",
            "name the spec with --file; the schema is put beside it",
        ));
    }
    let availability_zones = if args.availability_zones.is_empty() {
        usual_zones(&args.region).chars().map(|letter| format!("{}{letter}", args.region)).collect()
    } else {
        args.availability_zones.clone()
    };
    let mut seen = BTreeSet::new();
    if let Some(twice) = availability_zones.iter().find(|zone| !seen.insert(*zone)) {
        return Err(CliError::usage(
            format!("--availability-zone {twice} is given twice"),
            "give each zone once",
        ));
    }
    let zones = availability_zones.clone();
    let text = starter(&Starter {
        cluster_name: args.cluster_name.clone(),
        region: args.region.clone(),
        availability_zones,
        dns_name: args.dns_name.clone(),
        hosted_zone_id: args.hosted_zone_id.clone(),
        key_name: args.key_name.clone(),
        kms_key_arn: args.kms_key_arn.clone(),
    });
    let warnings = match parse(text.as_bytes(), None) {
        Ok(accepted) => accepted.warnings,
        Err(findings) => {
            let nothing = Source::made(Path::new("the options of `slipway init`"), String::new());
            printer.refused(&nothing, &of_options(findings));
            return Ok(Exit::Findings);
        }
    };
    write(args, &text)?;
    let schema_file = write_schema(args)?;
    let file = args.file.display().to_string();
    printer.findings(Stream::Err, &Source::made(&args.file, text), &warnings);
    let human = format!(
        "Wrote {file}, and {schema_file} for your editor. Its zones are {}: which ones your account has, `aws ec2 \
         describe-availability-zones --region {}` says.\n\nNext:\n  slipway validate {file}              # after each change\n  \
         slipway render {file} --out rendered  # see the stacks and userdata\n",
        zones.join(", "),
        args.region
    );
    printer.result(
        &human,
        &json!({ "ok": true, "file": file, "schema": schema_file, "cluster": args.cluster_name, "diagnostics": warnings }),
    );
    Ok(Exit::Done)
}

/// The findings about the options. The text was never written, so no place in it helps anybody; a zone stands there several times.
fn of_options(findings: Vec<Diagnostic>) -> Vec<Diagnostic> {
    let option = |path: &str| match path.split(['.', '[']).next().unwrap_or_default() {
        "clusterName" => Some("--cluster-name"),
        "region" => Some("--region"),
        "apiEndpoints" if path.contains("hostedZone") => Some("--hosted-zone-id"),
        "apiEndpoints" => Some("--dns-name"),
        "keyName" => Some("--key-name"),
        "kmsKeyArn" => Some("--kms-key-arn"),
        "subnets" => Some("--availability-zone"),
        _ => None,
    };
    let mut unique: Vec<Diagnostic> = Vec::new();
    for finding in findings {
        let message = match option(&finding.path) {
            Some(option) => format!("{option}: {}", finding.message),
            None => finding.message,
        };
        if !unique.iter().any(|one| one.message == message) {
            unique.push(Diagnostic { line: 0, column: 0, span: None, message, ..finding });
        }
    }
    unique
}

/// The letters of the zones in which most accounts can make subnets. Which an account has only AWS knows; in these regions it is not the first
/// three, by what moto lists of a real account (`moto/ec2/models/availability_zones_and_regions.py`). In Tokyo AWS says so itself: "Subnets can
/// currently only be created in … ap-northeast-1a, ap-northeast-1c, ap-northeast-1d".
fn usual_zones(region: &str) -> &'static str {
    match region {
        "ap-northeast-1" => "acd",
        "ca-central-1" => "abd",
        "cn-north-1" | "us-west-1" => "ab",
        _ => "abc",
    }
}

/// Writes the spec; an existing file is overwritten only with --force.
fn write(args: &Args, text: &str) -> Result<(), CliError> {
    let mut options = OpenOptions::new();
    if args.force {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    let written = options.write(true).open(&args.file).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| {
        if error.kind() == ErrorKind::AlreadyExists {
            let problem = format!("{} is there already", args.file.display());
            CliError::refused(problem, "name another file with --file, or overwrite it with --force")
        } else {
            CliError::file("write", &args.file, &error)
        }
    })
}

/// Writes the schema beside the spec, where its first line points editors to it. An older schema is replaced.
fn write_schema(args: &Args) -> Result<String, CliError> {
    let path = args.file.with_file_name(SCHEMA_FILE);
    let mut text = serde_json::to_string_pretty(&schema()).expect("a schema has string keys only");
    text.push('\n');
    std::fs::write(&path, text).map_err(|error| CliError::file("write", &path, &error))?;
    Ok(path.display().to_string())
}
