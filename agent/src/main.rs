//! `slipway-node`: see the library.

use std::process::ExitCode;

use clap::Parser as _;
use slipway_node::Arguments;
use slipway_node::aws::Endpoints;

#[tokio::main]
async fn main() -> ExitCode {
    // The environment is read only here.
    let endpoints = Endpoints::read(|name| std::env::var(name).ok());
    slipway_node::run(Arguments::parse(), &endpoints).await
}
