//! `slipway apply`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::json;
use slipway_aws::S3Bucket;
use slipway_core::cluster::{Approval, Cluster};
use slipway_core::diagnostic::{Diagnostic, Severity};
use slipway_core::keys;
use slipway_flows::error::FlowError;
use slipway_flows::rendering::Preview;
use slipway_ports::{Condition, Objects as _, Put, Removal as _};
use slipway_rollout::Rollout;

use super::approve::{self, paused_in_words};
use super::validate::about_imports;
use super::watch;
use crate::Exit;
use crate::cloud::{BusArgs, Cloud, CloudArgs};
use crate::failure::CliError;
use crate::printer::{Printer, Stream};
use crate::source::{PatchArgs, Source, SpecArgs};
use crate::upload::{Going, OtherPatches, Patches, foresee, page};

/// Check a cluster's spec with its patches and imports, and upload them. This is how a cluster is created and changed.
///
/// Files in patches/ and import/ beside the spec are uploaded as well. The command shows what changes in the files and asks for
/// confirmation; a script passes --yes. The render function makes a plan of the changes. With `rollout.approval: manual` in the spec, the
/// plan is shown as well, and begins only after you approve it, here or by `slipway approve`; otherwise it begins by itself. Uploading the
/// same spec again restarts a failed rollout.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  uploaded; with --watch: and rolled out, or nothing had to change
  1  the spec was refused, the cluster is being destroyed or you declined, and nothing was uploaded; with --watch: the render function refused it, or the rollout failed
  2  wrong usage
  3  something could not be read or uploaded

The IAM permissions for this are listed in docs/cli.md.

Examples:
  slipway apply cluster.yaml
  slipway apply -f clusters/prod/cluster.yaml --yes --watch
  slipway apply cluster.yaml --cluster prod --dry-run")]
pub(crate) struct Args {
    #[command(flatten)]
    spec: SpecArgs,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    patches: PatchArgs,
    #[command(flatten)]
    cloud: CloudArgs,
    #[command(flatten)]
    bus: BusArgs,
    #[command(flatten)]
    others: OtherPatches,
    /// Show what would be uploaded, without uploading it.
    #[arg(long)]
    dry_run: bool,
    /// Watch the rollout until it ends.
    #[arg(long, conflicts_with = "dry_run")]
    watch: bool,
}

/// What is uploaded and deleted, and what exists already.
#[derive(Debug, Default)]
struct Upload {
    imports: BTreeMap<String, Vec<u8>>,
    patches: Patches,
    /// The condition for writing the spec.
    condition: Option<Condition>,
    /// Whether the stored spec is the same.
    same_spec: bool,
    /// The stored spec.
    stored: Option<Vec<u8>>,
}

impl Upload {
    /// What would change, for a person who is asked.
    fn changes(&self, printer: &Printer, source: &Source) -> String {
        let mut text = match &self.stored {
            _ if self.is_unchanged() => "nothing differs from what was uploaded before\n".to_owned(),
            Some(stored) => {
                differences(&String::from_utf8_lossy(stored), &String::from_utf8_lossy(&source.bytes))
            }
            None => "the cluster is new\n".to_owned(),
        };
        for (sign, folder, files) in [
            ("~", "import", self.imports.keys().collect::<Vec<_>>()),
            ("~", "patches", self.patches.new.iter().collect()),
            ("-", "patches", self.patches.pruned.iter().collect()),
        ] {
            for file in files {
                let _ = writeln!(text, "{sign} {folder}/{file}");
            }
        }
        printer.coloured(&text)
    }

    /// Whether everything was there already.
    fn is_unchanged(&self) -> bool {
        let patches = self.patches.new.is_empty() && self.patches.pruned.is_empty();
        self.same_spec && self.imports.is_empty() && patches
    }
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let source = Source::read(args.spec.path(), &args.patches)?;
    let named = source.text_of("clusterName");
    if named.is_none()
        && let Err(findings) = source.parse()
    {
        printer.refused(&source, &findings);
        return Ok(Exit::Findings);
    }
    let cloud = args.cloud.of_spec(named.as_deref(), source.text_of("region")).await?;
    let checked = match source.parse_for(&cloud.cluster, cloud.region()) {
        Ok(checked) => checked,
        Err(findings) => {
            printer.refused(&source, &findings);
            return Ok(Exit::Findings);
        }
    };
    let going = Going::beside(&source, false);
    let about = about_imports(&going, going.is_there(), &checked).await?;
    let grave = about.iter().any(|finding| finding.severity == Severity::Error);
    let advice = slipway_spec::advice(&checked.cluster, &checked.places);
    let findings = [about, checked.warnings, advice].concat();
    if grave {
        printer.refused(&source, &findings);
        return Ok(Exit::Findings);
    }
    let paused_since = must_not_go(&cloud).await?;
    printer.findings(Stream::Err, &source, &findings);
    let specs = cloud.specs().await?;
    let upload = upload_of(args, &cloud, &specs, &source, going).await.map_err(CliError::in_cloud)?;
    let approval = checked.cluster.rollout.approval;
    if !args.dry_run && !args.yes {
        printer.beside(&upload.changes(printer, &source));
        if show_plan(&cloud, &source, &upload, approval, printer).await == Exit::Findings {
            return Ok(Exit::Findings);
        }
        let help = "see `slipway apply … --dry-run`, then add --yes".to_owned();
        if !printer.confirm(&format!("upload it as the cluster {}?", cloud.cluster), help)? {
            let machine = json!({ "ok": true, "cluster": cloud.cluster, "applied": false });
            printer.result("nothing was uploaded\n", &machine);
            return Ok(Exit::Findings);
        }
    }
    let version = match args.dry_run {
        true => None,
        false => Some(send(&cloud, &specs, &source, &upload).await.map_err(CliError::in_cloud)?),
    };
    print_upload(printer, &cloud, &specs, &checked.cluster, &upload, version.as_deref(), &findings);
    if let Some(since) = paused_since.filter(|_| version.is_some()) {
        printer.beside(&paused_in_words(&cloud.cluster, since));
    }
    if let Some(version) = version.filter(|_| !args.yes && approval == Approval::Manual)
        && let Some(plan) = watch::plan_of(&cloud, &version, printer).await?
    {
        let approved = approve::ask(&cloud, &args.bus, Some(&plan), false, printer).await?;
        if approved != Exit::Done || !args.watch {
            return Ok(approved);
        }
    }
    if args.watch {
        let follow = watch::Follow { uploaded: true, unchanged: upload.is_unchanged() };
        watch::to_the_end(&cloud, &watch::Pace::default(), &follow, printer).await
    } else {
        Ok(Exit::Done)
    }
}

/// Shows the plan that the upload would result in. If it cannot be known, says why, and goes on.
async fn show_plan(
    cloud: &Cloud,
    source: &Source,
    upload: &Upload,
    approval: Approval,
    printer: &Printer,
) -> Exit {
    // The render function may find the files in the spec bucket, and the passphrase in a parameter, which this command does not read.
    let only_there = |code: &str| matches!(code, "import-missing" | "import-passphrase");
    let imports = Going::beside(source, false);
    let why = match foresee(cloud, source, &upload.patches.set, &imports).await {
        Ok(Preview::Planned(foreseen)) => {
            printer.beside(&page(&foreseen, printer));
            return Exit::Done;
        }
        Ok(Preview::Rejected(findings)) => match findings.iter().find(|one| only_there(&one.code)) {
            Some(finding) => finding.message.clone(),
            None => {
                printer.refused(source, &findings);
                return Exit::Findings;
            }
        },
        Err(error) => match error.help() {
            Some(help) => format!("{error} ({help})"),
            None => error.to_string(),
        },
    };
    let next = match approval {
        Approval::Auto => {
            "begins by itself after the upload (rollout.approval: auto), unless the installation wants an approval"
        }
        Approval::Manual => "is shown after the upload, and begins only if you approve it",
    };
    printer
        .beside(&format!("its plan cannot be shown now, so that the above is not exact: {why}\nit {next}\n"));
    Exit::Done
}

/// The most lines of a text that are compared.
const MOST_LINES: usize = 2_000;
/// The most differences that are shown.
const MOST_SHOWN: usize = 80;

/// The lines that went (`-`) and came (`+`), each with its number.
fn differences(before: &str, after: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    if old.len().max(new.len()) > MOST_LINES {
        return format!("~ the spec differs ({} lines before, {} now)\n", old.len(), new.len());
    }
    let same = |pairs: &mut dyn Iterator<Item = (&&str, &&str)>| {
        pairs.take_while(|(one, other)| one == other).count()
    };
    let first = same(&mut old.iter().zip(&new));
    let last = same(&mut old[first..].iter().rev().zip(new[first..].iter().rev()));
    let (a, b) = (&old[first..old.len() - last], &new[first..new.len() - last]);
    // The longest common subsequence of what is between: `longest[i][j]` is that of a[i..] and b[j..].
    let mut longest = vec![vec![0_u32; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            longest[i][j] = if a[i] == b[j] {
                longest[i + 1][j + 1] + 1
            } else {
                longest[i + 1][j].max(longest[i][j + 1])
            };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == b.len() || (i < a.len() && longest[i + 1][j] >= longest[i][j + 1]) {
            lines.push(format!("- {:>4}  {}", first + i + 1, a[i]));
            i += 1;
        } else {
            lines.push(format!("+ {:>4}  {}", first + j + 1, b[j]));
            j += 1;
        }
    }
    let mut text: String = lines.iter().take(MOST_SHOWN).map(|line| format!("{line}\n")).collect();
    if lines.len() > MOST_SHOWN {
        let _ = writeln!(text, "… and {} more lines", lines.len() - MOST_SHOWN);
    }
    text
}

/// Fails while the cluster is being destroyed, because the render function would refuse the spec.
/// Otherwise returns since when everything is paused.
async fn must_not_go(cloud: &Cloud) -> Result<Option<Timestamp>, CliError> {
    let (name, rollout) = (&cloud.cluster, cloud.known_rollout().await?);
    let paused_since = rollout.as_ref().and_then(Rollout::paused_since);
    let Some((rollout, going)) =
        rollout.and_then(|state| state.destruction_message().map(|going| (state, going)))
    else {
        return Ok(paused_since);
    };
    let continues = if rollout.destroy().is_some_and(slipway_rollout::Destroy::has_stopped) {
        format!("`slipway destroy --cluster {name}` goes on with it")
    } else {
        format!("wait until it is over: slipway watch --cluster {name}")
    };
    let help =
        format!("{continues}, or end it first: slipway abort --cluster {name}; then upload this again");
    Err(CliError::refused(going, help))
}

/// What is missing in the spec bucket.
async fn upload_of(
    args: &Args,
    cloud: &Cloud,
    specs: &S3Bucket,
    source: &Source,
    going: Going,
) -> Result<Upload, CliError> {
    let name = cloud.cluster.as_str();
    let stored = specs.get(&keys::spec(name)).await.map_err(FlowError::from)?;
    let same_spec = stored.as_ref().is_some_and(|stored| stored.bytes == source.bytes);
    let condition =
        stored.as_ref().map_or(Condition::Absent, |stored| Condition::Unchanged(stored.etag.clone()));
    let stored = stored.map(|stored| stored.bytes);
    let mut upload = Upload { condition: Some(condition), same_spec, stored, ..Upload::default() };
    upload.patches = args.others.after_upload(cloud, source).await?;
    for (file, bytes) in going.into_read() {
        let stored = specs.get(&keys::import(name, &file)).await.map_err(FlowError::from)?;
        if stored.is_none_or(|stored| stored.bytes != bytes.expose()) {
            upload.imports.insert(file, bytes.expose().to_vec());
        }
    }
    Ok(upload)
}

/// Uploads everything, the spec last. Each patch wakes the render function, which stops when it finds a newer spec.
async fn send(cloud: &Cloud, specs: &S3Bucket, source: &Source, upload: &Upload) -> Result<String, CliError> {
    let name = cloud.cluster.as_str();
    for (file, bytes) in &upload.imports {
        put(specs, &keys::import(name, file), bytes, Condition::Always).await?;
    }
    for patch in &upload.patches.new {
        let bytes = &upload.patches.set.files[patch];
        put(specs, &format!("{}{patch}", keys::patches(name)), bytes, Condition::Always).await?;
    }
    for patch in &upload.patches.pruned {
        specs.remove(&format!("{}{patch}", keys::patches(name))).await.map_err(FlowError::from)?;
    }
    let key = keys::spec(name);
    let condition = upload.condition.clone().unwrap_or(Condition::Always);
    if !put(specs, &key, &source.bytes, condition).await? {
        return Err(CliError::refused(
            format!("somebody else changed s3://{}/{key} at this moment", specs.name()),
            "see what they did, then try again",
        ));
    }
    let head = specs.head(&key).await.map_err(FlowError::from)?;
    Ok(head.map(|head| head.version).unwrap_or_default())
}

async fn put(specs: &S3Bucket, key: &str, bytes: &[u8], condition: Condition) -> Result<bool, CliError> {
    let put = specs.put(key, bytes.to_vec(), condition).await.map_err(FlowError::from)?;
    Ok(matches!(put, Put::Written(_)))
}

fn print_upload(
    printer: &Printer,
    cloud: &Cloud,
    specs: &S3Bucket,
    cluster: &Cluster,
    upload: &Upload,
    version: Option<&str>,
    findings: &[Diagnostic],
) {
    let name = cloud.cluster.as_str();
    let place = format!("s3://{}/{}", specs.name(), keys::spec(name));
    let did = if version.is_some() { "" } else { "would be " };
    let mut text = String::new();
    let groups: [(&str, Vec<&String>); 3] = [
        ("uploaded import/", upload.imports.keys().collect()),
        ("uploaded patches/", upload.patches.new.iter().collect()),
        ("taken away patches/", upload.patches.pruned.iter().collect()),
    ];
    for (what, files) in &groups {
        for file in files {
            let _ = writeln!(text, "{did}{what}{file}");
        }
    }
    let same = if upload.same_spec { ", the same as was there" } else { "" };
    let _ = writeln!(text, "{did}uploaded {place}{same}");
    if version.is_some() {
        text.push_str(match cluster.rollout.approval {
            Approval::Auto => "its plan begins by itself\n",
            Approval::Manual => "its plan waits for an approval: ",
        });
        if cluster.rollout.approval == Approval::Manual {
            let _ = writeln!(text, "slipway approve --cluster {name}");
        }
        let _ = writeln!(text, "slipway watch --cluster {name}");
    }
    let machine = json!({
        "ok": true, "cluster": name, "applied": version.is_some(), "specVersion": version, "sameSpec": upload.same_spec,
        "imports": upload.imports.keys().collect::<Vec<_>>(), "patches": upload.patches.new,
        "pruned": upload.patches.pruned, "kept": upload.patches.kept, "diagnostics": findings,
    });
    printer.result(&text, &machine);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_is_shown_line_by_line_with_its_place() {
        let (before, after) = ("a: 1\nb: 2\nc: 3\nd: 4\n", "a: 1\nb: 5\nc: 3\ne: 6\nd: 4\n");
        assert_eq!(differences(before, after), "-    2  b: 2\n+    2  b: 5\n+    4  e: 6\n");
        assert_eq!(differences(before, before), "");
        assert_eq!(differences("", "a\n"), "+    1  a\n");
        let long = |count: usize| "x\n".repeat(count);
        assert!(differences(&long(6_000), "").contains("6000 lines before, 0 now"));
        let many: String = (0..100).map(|line| format!("{line}\n")).collect();
        assert!(differences("", &many).ends_with("… and 20 more lines\n"));
    }
}
