//! `slipway certs gc`.

use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use slipway_credentials::gc::{Referred, Verdict, YOUNG};
use slipway_flows::credentials::gc::{self, Nodes};
use slipway_flows::error::FlowResult;
use slipway_ports::{Listing, Objects, Removal};

use super::place::Place;
use crate::Exit;
use crate::cloud::CloudArgs;
use crate::failure::CliError;
use crate::local::Workspace;
use crate::printer::Printer;

/// Remove unused stored credentials: replaced certificates and keys, and bundles of earlier releases.
///
/// Shows what would be removed; --apply removes it. Credentials that the inventory names, that the release in the directory uses, or that
/// such a bundle contains are kept.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
For a cluster in AWS, every release in the asset bucket counts as used, and so does every object younger
than a day. The versioned bucket keeps removed objects as earlier versions.

A directory contains its last release only. If you launched nodes from an earlier one by hand, copy their
bundles from the directory before you remove anything.

Exit codes:
  0  done, or nothing to do
  1  the directory was not rendered, or somebody else is rendering into it
  2  wrong usage
  3  something could not be read or removed

Examples:
  slipway certs gc rendered
  slipway certs gc rendered --apply
  slipway certs gc --cluster prod")]
pub(crate) struct Args {
    /// A directory that `slipway render` wrote.
    #[arg(required_unless_present = "cluster", conflicts_with = "cluster")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    cloud: CloudArgs,
    /// Remove the unused credentials.
    #[arg(long)]
    apply: bool,
}

/// A locked directory has no other writers, so young files can be judged as well.
const AT_ONCE: SignedDuration = SignedDuration::ZERO;

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let place = Place::open(args.dir.as_deref().unwrap_or(Path::new(".")), &args.cloud).await?;
    let (cluster, going) = match &place {
        Place::Folder(dir) => {
            let workspace =
                if args.apply { Workspace::open_existing(dir)? } else { Workspace::open_read_only(dir)? };
            let Some((folder, cluster)) = workspace.bucket() else {
                let problem = format!("{} is not a directory that slipway render wrote", dir.display());
                return Err(CliError::refused(problem, "name one, such as the one given to --out"));
            };
            let Some(release) = workspace.release()? else {
                let problem =
                    format!("{} contains no release, so it is unknown what is in use", dir.display());
                return Err(CliError::refused(problem, "render into it to the end, then try again"));
            };
            let mut referred = Referred::default();
            referred.add_release(&release);
            // A file written in this moment must not be younger than the clock.
            let now = Timestamp::now() + SignedDuration::from_secs(1);
            let referred = || async { Ok(referred.clone()) };
            let going = unused(args.apply, &folder, &cluster, referred, AT_ONCE, now).await?;
            (cluster, going)
        }
        Place::Cloud(cloud) => {
            // Nodes are not queried, so every stored release may be in use.
            let referred = || gc::referred(cloud.assets(), &cloud.cluster, &Nodes::Unknown);
            let going =
                unused(args.apply, cloud.assets(), &cloud.cluster, referred, YOUNG, Timestamp::now()).await;
            (cloud.cluster.clone(), going.map_err(|error| CliError::from(error).in_cloud())?)
        }
    };
    let bytes: u64 = going.iter().map(|verdict| verdict.size).sum();
    let mut machine = json!({
        "ok": true,
        "cluster": cluster,
        "applied": args.apply,
        "unused": going.iter().map(|verdict| &verdict.name).collect::<Vec<_>>(),
        "bytes": bytes,
    });
    if let Place::Cloud(_) = place {
        place.name_in(&mut machine);
    }
    printer.result(&report(args, &place, &going, bytes), &machine);
    Ok(Exit::Done)
}

/// The unused objects; they are deleted with --apply.
async fn unused<B: Objects + Listing + Removal, F: Future<Output = FlowResult<Referred>>>(
    apply: bool,
    bucket: &B,
    cluster: &str,
    referred: impl Fn() -> F,
    young: SignedDuration,
    now: Timestamp,
) -> FlowResult<Vec<Verdict>> {
    if apply {
        return gc::collect(bucket, cluster, referred, young, now).await;
    }
    let verdicts = gc::verdicts(bucket, cluster, &referred().await?, young, now).await?;
    Ok(verdicts.into_iter().filter(|verdict| verdict.goes).collect())
}

fn report(args: &Args, place: &Place, going: &[Verdict], bytes: u64) -> String {
    let note = match place {
        Place::Folder(_) => "",
        Place::Cloud(_) => {
            "every release that is stored counts as in use, since nodes are not asked what they run; so does what is younger than a day\n"
        }
    };
    if going.is_empty() {
        return format!("nothing is unused\n{note}");
    }
    let mut text: String = going.iter().map(|verdict| format!("  {}\n", verdict.name)).collect();
    let count = match going.len() {
        1 => "1 file".to_owned(),
        count => format!("{count} files"),
    };
    text.push_str(&if args.apply {
        format!("{count} removed ({bytes} bytes): nobody referred to them\n")
    } else {
        format!("{count} ({bytes} bytes) that nobody refers to; --apply removes them\n")
    });
    text.push_str(note);
    text
}
