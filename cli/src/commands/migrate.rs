//! `slipway migrate`.

mod credentials;

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use credentials::{Credentials, Fate};
use serde_json::json;
use slipway_migrate::{Change, ChangeKind, migrate};
use slipway_spec::{SCHEMA_FILE, schema};

use crate::Exit;
use crate::failure::CliError;
use crate::printer::Printer;
use crate::source::Source;

/// Convert the configuration of another tool into a Slipway spec.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    from: From,
}

#[derive(Debug, clap::Subcommand)]
enum From {
    KubeAws(KubeAws),
}

/// Read a kube-aws directory, and write a Slipway cluster.yaml and a report of what changed. The old CA is copied to import/, from where
/// the first rendering imports it. The kube-aws directory is not changed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  written; the report says what to decide
  1  the spec has a problem that you have to correct, or the output is not empty
  2  wrong usage
  3  something could not be read or written

Examples:
  slipway migrate kube-aws ./my-cluster --out ./migrated
  slipway migrate kube-aws ./my-cluster --out ./migrated --output json")]
struct KubeAws {
    /// The directory with kube-aws' cluster.yaml, and credentials/ if any.
    dir: PathBuf,
    /// The directory to write; it must not exist, or be empty.
    #[arg(long, value_name = "OUT")]
    out: PathBuf,
}

/// The report, beside the spec.
const REPORT: &str = "MIGRATION.md";

pub(crate) fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let From::KubeAws(args) = &args.from;
    refuse_to_overwrite(args)?;
    let spec_file = args.dir.join("cluster.yaml");
    let bytes = fs::read(&spec_file).map_err(|error| CliError::file("read", &spec_file, &error))?;
    let migrated = match migrate(&bytes) {
        Ok(migrated) => migrated,
        Err(refused) => {
            let source = Source::made(&spec_file, refused.text);
            printer.refused(&source, &refused.findings);
            return Ok(Exit::Findings);
        }
    };
    let credentials = credentials::read(&args.dir)?;
    let report = report(&migrated.changes, &credentials);
    let mut migrated = migrated;
    if credentials.imported() {
        migrated.text.push_str(&imported(&migrated.cluster));
    }
    write(&args.out.join("cluster.yaml"), migrated.text.as_bytes(), 0o644)?;
    let mut text = serde_json::to_string_pretty(&schema()).expect("a schema has string keys only");
    text.push('\n');
    write(&args.out.join(SCHEMA_FILE), text.as_bytes(), 0o644)?;
    for file in &credentials.files {
        if let Fate::Imported { as_file, bytes } = &file.fate {
            write(&args.out.join("import").join(as_file), bytes.expose(), 0o600)?;
        }
    }
    write(&args.out.join(REPORT), report.as_bytes(), 0o644)?;
    let out = args.out.display();
    let human = format!(
        "{report}\nWrote {out}: cluster.yaml, {SCHEMA_FILE}, {REPORT}{}.\n\nNext:\n  slipway validate {out}/cluster.yaml\n",
        if credentials.imported() { ", import/" } else { "" }
    );
    let machine = json!({
        "ok": true,
        "cluster": migrated.cluster,
        "out": args.out,
        "changes": migrated.changes,
        "credentials": credentials.files,
        "import": credentials.about_import(),
    });
    printer.result(&human, &machine);
    Ok(Exit::Done)
}

/// The part of the spec that declares the old CA. kube-aws takes its CA from command-line arguments, so its specs have no such key.
fn imported(cluster: &str) -> String {
    format!(
        "\n# The CA of the old cluster, from import/ beside this file; MIGRATION.md says what to do with its key.\n\
         certificatesConfiguration:\n  authorities:\n    ca:\n      source: imported\n      \
         passphraseParameter: /slipway/{cluster}/ca-passphrase\n"
    )
}

/// Fails if the target is not empty, or lies inside the directory that is read.
fn refuse_to_overwrite(args: &KubeAws) -> Result<(), CliError> {
    let occupied = match fs::read_dir(&args.out) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => return Err(CliError::file("read", &args.out, &error)),
    };
    if occupied {
        let problem = format!("{} is not empty", args.out.display());
        return Err(CliError::refused(problem, "name a directory with --out that is yet to be made"));
    }
    let inside = |path: &Path| std::path::absolute(path).ok();
    let within = fs::canonicalize(&args.dir).ok().zip(inside(&args.out)).is_some_and(|(dir, out)| {
        let above = out.ancestors().find_map(|path| fs::canonicalize(path).ok());
        above.is_some_and(|above| above.starts_with(&dir))
    });
    if within {
        let problem = format!("{} is in the directory that is read", args.out.display());
        return Err(CliError::refused(problem, "name a directory elsewhere: kube-aws' own is not touched"));
    }
    Ok(())
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), CliError> {
    use std::io::Write as _;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| CliError::file("make", folder, &error))?;
    }
    let mut options = fs::OpenOptions::new();
    options
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .and_then(|mut file| file.write_all(bytes))
        .map_err(|error| CliError::file("write", path, &error))
}

fn report(changes: &[Change], credentials: &Credentials) -> String {
    let mut text = "# From kube-aws\n".to_owned();
    let sections = [
        (ChangeKind::Decision, "To decide", "Look at each: something was chosen for you."),
        (ChangeKind::Translated, "Translated", "The same, as it is written today."),
        (ChangeKind::Dropped, "Dropped", "Gone from the spec, with what there is instead."),
    ];
    for (kind, title, about) in sections {
        let of_kind: Vec<&Change> = changes.iter().filter(|change| change.kind == kind).collect();
        if !of_kind.is_empty() {
            let _ = write!(text, "\n## {title}\n\n{about}\n\n");
            for change in of_kind {
                let _ = writeln!(text, "- `{}`: {}", change.path, change.message);
            }
        }
    }
    if !credentials.files.is_empty() {
        let _ = write!(text, "\n## Credentials\n\n");
        if let Some(about) = credentials.about_import() {
            let _ = writeln!(text, "{about}");
        }
        for file in &credentials.files {
            let _ = writeln!(text, "- `{}`: {}", file.name, file.in_words());
        }
        for shared in &credentials.shared {
            let _ = writeln!(
                text,
                "- {} are one and the same key: none is taken over, each name gets a key of its own",
                shared.join(", ")
            );
        }
    }
    text
}
