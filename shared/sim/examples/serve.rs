//! Serves an empty world until it is stopped, so that you can try a client with it:
//!
//! `cargo run -p slipway-sim --example serve -- 127.0.0.1:5001 100 http://127.0.0.1:5000`
//! (address, seconds of the world per second, S3 endpoint for `TemplateURL`s).
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::sync::{Arc, Mutex};

use slipway_sim::wire::{Options, serve};
use slipway_sim::{Config, World};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned()).parse()?;
    let speed = arguments.next().unwrap_or_else(|| "100".to_owned()).parse()?;
    let options = Options { speed, s3_endpoint: arguments.next() };
    let world = Arc::new(Mutex::new(World::new(Config::default())));
    let mut served = serve(address, world, options).await?;
    println!("{}", served.endpoint());
    while let Some(one) = served.outgoing.recv().await {
        println!("{one:?}");
    }
    Ok(())
}
