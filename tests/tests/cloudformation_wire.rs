//! The simulated CloudFormation with a second client: boto3, which reads answers by AWS' own models.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::{Arc, Mutex};

use slipway_sim::wire::{Options, serve};
use slipway_sim::{Config, World};
use slipway_tests::tools;

/// Seconds of the world per second: fast, but slow enough for a client that polls a hundred times a second.
const SPEED: f64 = 500.0;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn boto3_lives_through_a_whole_life() {
    let world = Arc::new(Mutex::new(World::new(Config::default())));
    let options = Options { speed: SPEED, s3_endpoint: None };
    let served = serve("127.0.0.1:0".parse().unwrap(), world, options).await.unwrap();
    let script = tools::root().join("tests/wire/cloudformation_boto3.py");
    let output = tokio::process::Command::new(tools::python().unwrap())
        .arg(script)
        .arg(served.endpoint())
        .output()
        .await
        .unwrap();
    let (told, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}{complained}");
}
