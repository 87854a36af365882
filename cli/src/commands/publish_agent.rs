//! `slipway publish-agent`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use slipway_core::cluster::Architecture;
use slipway_core::digest::sha256_hex;
use slipway_core::keys;
use slipway_flows::error::FlowResult;
use slipway_flows::lock::Agent;
use slipway_flows::store;
use slipway_ports::Objects;

use crate::Exit;
use crate::cloud::InstallationArgs;
use crate::failure::CliError;
use crate::printer::Printer;

/// Publish the node agent into the asset bucket of an installation, for each processor architecture that a file is built for.
///
/// The architecture is read from the file. The object is named by its digest, so publishing the same file again changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A cluster without an agent for an architecture pins the published one when its spec is uploaded next,
even if the spec is unchanged. A cluster with an agent keeps it, so publishing a newer one replaces no node.

The IAM permissions for this are listed in docs/pki.md.

Exit codes:
  0  published, or published already
  1  a file is no node agent, or there is no such installation; nothing was published
  2  wrong usage
  3  something could not be read or written

Examples:
  infra/package.sh arm64 && slipway publish-agent dist/arm64/slipway-node
  slipway publish-agent dist/arm64/slipway-node dist/x86_64/slipway-node --stack slipway")]
pub(crate) struct Args {
    /// The agent, built for one architecture: a program for 64-bit Linux.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    installation: InstallationArgs,
}

/// An agent to publish.
struct Program {
    file: PathBuf,
    sha256: String,
    bytes: Vec<u8>,
}

/// The result for one agent.
struct Published {
    architecture: Architecture,
    /// Whether it was not in the bucket before.
    new: bool,
    /// The agent that was published for this architecture before.
    before: Option<String>,
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let programs = programs(&args.files)?;
    let assets = args.installation.find().await?.assets;
    let published = publish(&assets, &programs).await.map_err(|error| CliError::from(error).in_cloud())?;
    let mut text = String::new();
    let mut agents = Vec::new();
    for Published { architecture, new, before } in published {
        let Some(program) = programs.get(&architecture) else { continue };
        let named = before.as_ref() == Some(&program.sha256);
        let words = match (new, named) {
            (false, true) => "was published already".to_owned(),
            (_, _) => before.as_ref().map_or_else(
                || "published, the first for this processor".to_owned(),
                |before| format!("published, in the place of {before}"),
            ),
        };
        let _ = writeln!(text, "{} {}: {words}", architecture.as_str(), program.sha256);
        agents.push(json!({
            "architecture": architecture,
            "sha256": program.sha256,
            "bytes": program.bytes.len(),
            "file": program.file.display().to_string(),
            "key": keys::agent(&program.sha256),
            "new": new || !named,
            "before": before,
        }));
    }
    text.push_str(
        "a cluster that has no agent for such a processor pins this one when its spec is uploaded next (the same spec, too); \
         one that has an agent keeps it\n",
    );
    let machine = json!({ "ok": true, "assetBucket": assets.name(), "manifest": keys::AGENT_MANIFEST, "agents": agents });
    printer.result(&text, &machine);
    Ok(Exit::Done)
}

/// Publishes the programs first and then the manifest, so that it never names a missing program.
async fn publish(
    assets: &impl Objects,
    programs: &BTreeMap<Architecture, Program>,
) -> FlowResult<Vec<Published>> {
    // A damaged manifest is detected before megabytes are uploaded.
    let before = store::load::<Agent>(assets, keys::AGENT_MANIFEST).await?.value.unwrap_or_default();
    let mut published = Vec::new();
    for (architecture, program) in programs {
        let new = store::keep(assets, &keys::agent(&program.sha256), program.bytes.clone()).await?;
        let before = before.get(architecture).cloned();
        published.push(Published { architecture: *architecture, new, before });
    }
    store::update(assets, keys::AGENT_MANIFEST, |stored: Option<&Agent>| {
        let mut agents = stored.cloned().unwrap_or_default();
        agents.extend(programs.iter().map(|(architecture, program)| (*architecture, program.sha256.clone())));
        Some(agents)
    })
    .await?;
    Ok(published)
}

/// The given files by architecture; it is an error if one is no agent or two are for the same architecture.
fn programs(files: &[PathBuf]) -> Result<BTreeMap<Architecture, Program>, CliError> {
    let mut programs: BTreeMap<Architecture, Program> = BTreeMap::new();
    for file in files {
        let bytes = read(file)?;
        let architecture = architecture(&bytes).map_err(|what| {
            let problem = format!("{} {what}", file.display());
            CliError::refused(problem, "name the slipway-node that infra/package.sh built")
        })?;
        let program = Program { file: file.clone(), sha256: sha256_hex(&bytes), bytes };
        if let Some(other) = programs.insert(architecture, program) {
            let (one, other, processor) = (file.display(), other.file.display(), architecture.as_str());
            let problem = format!("{one} and {other} are both for {processor}");
            return Err(CliError::refused(problem, "name one for each processor"));
        }
    }
    Ok(programs)
}

/// The largest file that is read; an agent has a tenth of that.
const MOST_BYTES: u64 = 100 << 20;

fn read(file: &Path) -> Result<Vec<u8>, CliError> {
    let failed = |why: std::io::Error| CliError::file("read", file, &why);
    let size = fs::metadata(file).map_err(failed)?.len();
    if size > MOST_BYTES {
        let problem = format!("{} has {size} bytes, which is more than any node agent has", file.display());
        return Err(CliError::refused(problem, "name the slipway-node that infra/package.sh built"));
    }
    fs::read(file).map_err(failed)
}

/// The architecture of an ELF file; the error says what the file is instead.
fn architecture(bytes: &[u8]) -> Result<Architecture, String> {
    let (magic, header) = (b"\x7fELF", 64);
    if bytes.is_empty() {
        return Err("is empty".to_owned());
    }
    if bytes.starts_with(b"#!") {
        return Err("is a script, and no program".to_owned());
    }
    if !bytes.starts_with(magic) {
        return Err("is not a program for Linux (no ELF file)".to_owned());
    }
    let field = |at: usize, length: usize| -> Option<u64> {
        let bytes = bytes.get(at..at + length)?;
        Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    };
    if bytes.get(4) == Some(&1) {
        return Err("is a 32-bit program, and nodes have 64 bits".to_owned());
    }
    if bytes.len() < header {
        return Err("is cut off".to_owned());
    }
    if bytes.get(4..6) != Some(&[2, 1]) {
        return Err("is no 64-bit little-endian program".to_owned());
    }
    // An executable, or a position-independent one.
    if !matches!(field(16, 2), Some(2 | 3)) {
        return Err("is not a program, but another kind of ELF file".to_owned());
    }
    // The section header table is at the end, so it shows whether the file is complete.
    let end = match (field(40, 8), field(58, 2), field(60, 2)) {
        (Some(0), _, _) => Some(0),
        (Some(at), Some(each), Some(count)) => at.checked_add(each * count),
        (_, _, _) => None,
    };
    if end.is_none_or(|end| end > bytes.len() as u64) {
        return Err("is cut off".to_owned());
    }
    match field(18, 2) {
        Some(62) => Ok(Architecture::X86_64),
        Some(183) => Ok(Architecture::Arm64),
        Some(machine) => Err(format!(
            "is for an unsupported processor (ELF machine {machine}); expected x86_64 (62) or arm64 (183)"
        )),
        None => Err("is cut off".to_owned()),
    }
}
