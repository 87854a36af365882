//! The scan function: checks the certificates of one cluster, renews those that are due, and publishes events about them. It is woken by
//! requests on the bus, by the end of a successful rollout, and by the daily schedule, for which it requests a scan of each cluster by a
//! separate event.

use std::process::ExitCode;

use serde_json::Value;
use slipway_aws::{AutoScaling, Aws, EventBus, KmsKeys, S3Bucket};
use slipway_crypto::AwsLc;
use slipway_flows::scan::{self, ScanOutcome, ScanPorts};
use slipway_lambda::event::{ToScan, to_scan};
use slipway_lambda::{Environment, Function, Invocation, InvocationError, environment, metrics};

struct Scan {
    specs: S3Bucket,
    assets: S3Bucket,
    groups: AutoScaling,
    keys: KmsKeys,
    bus: EventBus,
}

impl Function for Scan {
    async fn start(environment: &Environment) -> Result<Self, InvocationError> {
        let variables = environment::Scan::read(environment)?;
        let aws = Aws::from_env().await.map_err(InvocationError::environment)?;
        let (specs, assets) = (aws.bucket(&variables.spec_bucket), aws.bucket(&variables.asset_bucket));
        let (groups, keys) = (aws.groups(), aws.keys(&variables.kms_key_arn));
        Ok(Self { specs, assets, groups, keys, bus: aws.bus(&variables.bus_name) })
    }

    async fn handle(&self, event: Value, invocation: &Invocation) -> Result<String, InvocationError> {
        let (cluster, request) = match to_scan(event, invocation.now)? {
            ToScan::Everything => {
                let count = scan::fan_out(&self.assets, &self.bus).await?;
                metrics::report_requested(count, invocation.now);
                return Ok(format!("asked for {count} clusters"));
            }
            ToScan::Cluster { cluster, request } => (cluster, request),
        };
        invocation.about(&cluster);
        let Self { specs, assets, groups, keys, bus } = self;
        let ports = ScanPorts { specs, assets, groups, keys, bus, crypto: &AwsLc };
        let outcome = scan::scan(&ports, &cluster, &request, invocation.now).await?;
        if let ScanOutcome::Scanned(scanned) = &outcome {
            metrics::report(scanned, invocation.now);
        }
        Ok(outcome.to_string())
    }
}

fn main() -> ExitCode {
    slipway_lambda::run::<Scan>()
}
