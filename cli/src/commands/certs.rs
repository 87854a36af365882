//! `slipway certs`: shows, verifies and renews certificates of a folder or of a cluster in AWS, and removes unused ones.

mod folder;
mod gc;
mod place;
pub(in crate::commands) mod renew;
mod sealed;
mod show;
mod verify;

use jiff::Timestamp;

use crate::Exit;
use crate::failure::CliError;
use crate::printer::Printer;

/// Show, verify and renew certificates: those of a rendered cluster, of a cluster in AWS, of a node, or of kubeadm's and kube-aws'
/// folders.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Show(show::Args),
    Verify(verify::Args),
    Renew(renew::Args),
    Gc(gc::Args),
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    match &args.verb {
        Verb::Show(args) => show::run(args, printer).await,
        Verb::Verify(args) => verify::run(args, printer).await,
        Verb::Renew(args) => renew::run(args, printer).await,
        Verb::Gc(args) => gc::run(args, printer).await,
    }
}

/// The time with which dates are compared.
#[derive(Debug, clap::Args)]
pub(crate) struct Moment {
    /// The time to compare dates with, such as 2027-01-31T12:00:00Z. Default: now.
    #[arg(long, value_name = "TIME")]
    at: Option<Timestamp>,
}

impl Moment {
    fn get(&self) -> Timestamp {
        self.at.unwrap_or_else(Timestamp::now)
    }
}

/// A certificate that expires within so many days is yellow, and a finding.
const SOON_DAYS: u32 = 30;
