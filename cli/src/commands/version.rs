//! `slipway version`.

use serde_json::json;

use crate::Exit;
use crate::failure::CliError;
use crate::printer::Printer;

/// Show the version of this program and the commit that it was built from.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  shown
  2  wrong usage
  3  the result could not be written

Examples:
  slipway version
  slipway version -o json | jq -r .commit")]
pub(crate) struct Args {}

/// The release.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit; `unknown` if it was built outside of a checkout.
const COMMIT: &str = env!("SLIPWAY_COMMIT");
/// Both, for `slipway --version`.
pub(crate) const LONG: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("SLIPWAY_COMMIT"), ")");

pub(crate) fn run(_: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let machine = json!({ "ok": true, "version": VERSION, "commit": COMMIT });
    printer.result(&format!("slipway {LONG}\n"), &machine);
    Ok(Exit::Done)
}
