//! `make demo`: a launch from start to end, in an AWS that is embedded on this machine.
//!
//!     slipway-demo [--keep] [--speed FACTOR]
//!
//! `--keep` leaves the embedded AWS running at the end, and says how to point the AWS CLI at it. `--speed` is how
//! many times faster than in AWS CloudFormation works; 60 if not given.
//!
//! Exit status: 0 if everything came out as promised, 1 if not, 2 if it could not be set up or asked wrongly.

mod acts;

use std::error::Error;
use std::process::ExitCode;

use acts::Demo;
use slipway_ports::refusal::chain;

/// The options of the command line.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Options {
    keep: bool,
    speed: f64,
}

impl Options {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self { keep: false, speed: 60.0 };
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--keep" => options.keep = true,
                "--speed" => {
                    let speed = arguments.next().and_then(|speed| speed.parse().ok());
                    options.speed =
                        speed.filter(|speed| *speed > 0.0).ok_or("--speed wants a number above 0")?;
                }
                other => {
                    return Err(format!("unknown argument `{other}`; there are --keep and --speed FACTOR"));
                }
            }
        }
        Ok(options)
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
        // Dropping the run stops everything that it started.
        _ = tokio::signal::ctrl_c() => ExitCode::from(130),
    }
}

async fn run(options: Options) -> Result<bool, Box<dyn Error>> {
    let mut demo = Demo::set_up(options.speed).await?;
    demo.launch().await?;
    // After a failed launch the other acts would fail, too.
    if demo.is_whole() {
        demo.unchanged().await?;
        demo.resized().await?;
        demo.patched().await?;
        demo.renewed().await?;
        demo.refused().await?;
        demo.simulated().await?;
    }
    let good = demo.summary().await?;
    if options.keep {
        demo.leave_running();
        std::future::pending::<()>().await;
    }
    Ok(good)
}

#[allow(clippy::print_stderr, reason = "this is the one place that tells a person what went wrong")]
fn fail(problem: &str) -> ExitCode {
    eprintln!("error: {problem}");
    ExitCode::from(2)
}
