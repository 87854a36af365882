//! `make cluster`: a launch, from the upload to every node Ready, on virtual machines.
//!
//!     slipway-cluster [--keep] [--example FILE]
//!
//! Started by `tests/cluster/run.sh`, which makes what is needed and gives it namespaces of its own. `--keep` leaves the cluster running at
//! the end. `--example` is another spec than `examples/development.yaml`.
//!
//! Exit status: 0 if the cluster serves, 1 if the launch failed, 2 if it could not be set up or asked wrongly.

use std::path::PathBuf;
use std::process::ExitCode;

use slipway_ports::refusal::chain;
use slipway_tests::cluster::launch::Launch;
use slipway_tests::cluster::room::Stores;

/// What was asked for on the command line, and where the scripts have put things.
#[derive(Debug)]
struct Options {
    keep: bool,
    example: PathBuf,
    stores: Stores,
}

impl Options {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut keep = false;
        let mut example = slipway_tests::tools::root().join("examples/development.yaml");
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--keep" => keep = true,
                "--example" => example = arguments.next().ok_or("--example wants a file")?.into(),
                other => {
                    return Err(format!("unknown argument `{other}`; there are --keep and --example FILE"));
                }
            }
        }
        let stores = Stores::from_environment()
            .ok_or("start it by tests/cluster/run.sh, which makes what it needs")?;
        Ok(Self { keep, example, stores })
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => return fail(&problem),
    };
    tokio::select! {
        ended = run(options) => match ended {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::from(1),
            Err(error) => fail(&chain(error.as_ref())),
        },
        // Dropping the run takes everything down that it started.
        _ = tokio::signal::ctrl_c() => ExitCode::from(130),
    }
}

async fn run(options: Options) -> Result<bool, Box<dyn std::error::Error>> {
    let mut launch = Launch::set_up(&options.stores, &options.example).await?;
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

#[allow(clippy::print_stderr, reason = "this is the one place that tells a person what went wrong")]
fn fail(problem: &str) -> ExitCode {
    eprintln!("error: {problem}");
    ExitCode::from(2)
}
