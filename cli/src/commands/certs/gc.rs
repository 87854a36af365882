//! `slipway certs gc`.

use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use slipway_core::pki::gc::{Referred, Verdict};
use slipway_driver::credentials::gc;

use crate::Exit;
use crate::failure::Failure;
use crate::local::Workspace;
use crate::printer::Printer;

/// Remove stored credentials that nobody refers to any more: replaced certificates and keys, and bundles of earlier releases.
///
/// Says what would go; --apply removes it. What the inventory names, what the release in the directory refers to, and what
/// such a bundle holds stays.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A directory knows its own release alone. If nodes were made from an earlier one by hand, copy their
bundles from the directory before you remove anything here.

Exit codes:
  0  done, or nothing to do
  1  the directory was not rendered, or somebody else is rendering into it
  2  wrong usage
  3  something could not be read or removed

Examples:
  slipway certs gc rendered
  slipway certs gc rendered --apply")]
pub(crate) struct Args {
    /// A directory that `slipway render` wrote.
    dir: PathBuf,
    /// Remove what nobody refers to.
    #[arg(long)]
    apply: bool,
}

/// Nobody else writes into a locked directory, so nothing in it is too young to be judged.
const AT_ONCE: SignedDuration = SignedDuration::ZERO;

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, Failure> {
    let workspace =
        if args.apply { Workspace::open_existing(&args.dir)? } else { Workspace::look(&args.dir)? };
    let Some((folder, cluster)) = workspace.bucket() else {
        let problem = format!("{} is no directory that slipway render wrote", args.dir.display());
        return Err(Failure::refused(problem, "name one, such as the one given to --out"));
    };
    let Some(release) = workspace.release()? else {
        let problem = format!("{} holds no release, so that nobody knows what is in use", args.dir.display());
        return Err(Failure::refused(problem, "render into it to the end, then try again"));
    };
    let mut referred = Referred::default();
    referred.add_release(&release);
    // A file of this very moment is no younger than the clock says.
    let now = Timestamp::now() + SignedDuration::from_secs(1);
    let going: Vec<Verdict> = if args.apply {
        gc::collect(&folder, &cluster, || async { Ok(referred.clone()) }, AT_ONCE, now).await?
    } else {
        let verdicts = gc::look(&folder, &cluster, &referred, AT_ONCE, now).await?;
        verdicts.into_iter().filter(|verdict| verdict.goes).collect()
    };
    let bytes: u64 = going.iter().map(|verdict| verdict.size).sum();
    let machine = json!({
        "ok": true,
        "cluster": cluster,
        "applied": args.apply,
        "unused": going.iter().map(|verdict| &verdict.name).collect::<Vec<_>>(),
        "bytes": bytes,
    });
    printer.result(&told(args, &going, bytes), &machine);
    Ok(Exit::Done)
}

fn told(args: &Args, going: &[Verdict], bytes: u64) -> String {
    if going.is_empty() {
        return "nothing is unused\n".to_owned();
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
    text
}
