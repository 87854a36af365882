//! `make cluster`: a launch, from the upload to every node Ready, on virtual machines.
//!
//!     slipway-cluster [--keep] [--example FILE]
//!
//! Started by `tests/cluster/run.sh`, which makes what is needed and gives it namespaces of its own. `--keep` leaves the cluster running at
//! the end. `--example` is another spec than `examples/development.yaml`.
//!
//! Exit status: 0 if the cluster serves, 1 if the launch failed, 2 if it could not be set up or asked wrongly.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser as _;
use slipway_tests::cluster::launch::Launch;
use slipway_tests::cluster::room::Stores;

/// Launches a cluster on virtual machines.
#[derive(Debug, clap::Parser)]
struct Options {
    /// Leave the cluster running at the end.
    #[arg(long)]
    keep: bool,
    /// Another spec than `examples/development.yaml`.
    #[arg(long, value_name = "FILE")]
    example: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    slipway_tests::program::ended(run(Options::parse())).await
}

async fn run(options: Options) -> Result<bool, Box<dyn Error>> {
    let stores =
        Stores::from_environment().ok_or("start it by tests/cluster/run.sh, which makes what it needs")?;
    let example =
        options.example.unwrap_or_else(|| slipway_tests::tools::root().join("examples/development.yaml"));
    let mut launch = Launch::set_up(&stores, &example).await?;
    let mut good = launch.launch().await?;
    if good {
        good = launch.show().await?;
    }
    if options.keep {
        launch.leave_running();
        std::future::pending::<()>().await;
    }
    Ok(good)
}
