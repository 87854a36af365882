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
use clap::Parser as _;

/// Shows what Slipway does, in an AWS that is embedded on this machine.
#[derive(Debug, clap::Parser)]
struct Options {
    /// Leave the embedded AWS running at the end, and say how to point the AWS CLI at it.
    #[arg(long)]
    keep: bool,
    /// How many times faster than in AWS CloudFormation works.
    #[arg(long, value_name = "FACTOR", default_value_t = 60.0, value_parser = speed)]
    speed: f64,
}

fn speed(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|speed| *speed > 0.0).ok_or_else(|| "it has to be a number above 0".to_owned())
}

#[tokio::main]
async fn main() -> ExitCode {
    slipway_tests::program::ended(run(Options::parse())).await
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
