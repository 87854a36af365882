//! `slipway-node`: see the library.

use std::process::ExitCode;

use clap::Parser as _;
use slipway_node::Arguments;

#[tokio::main]
async fn main() -> ExitCode {
    slipway_node::run(Arguments::parse()).await
}
