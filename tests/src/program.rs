//! What the programs that people start have in common.

use std::error::Error;
use std::process::ExitCode;

use slipway_ports::refusal::chain;

/// Runs until the end, or until it is interrupted; dropping `run` stops everything that it started. The status is 0 if all came out as
/// promised, 1 if not, and 2 if it could not be set up.
#[allow(clippy::print_stderr, reason = "this is the one place that tells a person what went wrong")]
pub async fn ended(run: impl Future<Output = Result<bool, Box<dyn Error>>>) -> ExitCode {
    let ended = tokio::select! {
        ended = run => ended,
        _ = tokio::signal::ctrl_c() => return ExitCode::from(130),
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {}", chain(error.as_ref()));
            ExitCode::from(2)
        }
    }
}
