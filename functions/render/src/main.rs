//! The render function: turns an uploaded `cluster.yaml`, or a change of its patches or credentials, into a plan. It is woken by S3,
//! by the scan function and by orders to upgrade, through EventBridge.

use std::process::ExitCode;

use serde_json::Value;
use slipway_aws::{Aws, EventBus, KmsKeys, S3Bucket, SsmParameters};
use slipway_core::release::Site;
use slipway_crypto::AwsLc;
use slipway_flows::rendering::{RenderPorts, render_newest, render_upload, upgrade};
use slipway_lambda::event::Changed::{Credentials, Patches, Pins, Spec};
use slipway_lambda::{Environment, Function, Invocation, InvocationError, environment, event};
use slipway_registry::OciRegistry;

struct Render {
    specs: S3Bucket,
    assets: S3Bucket,
    issuer: Option<S3Bucket>,
    keys: KmsKeys,
    parameters: SsmParameters,
    registry: OciRegistry,
    bus: EventBus,
    site: Site,
    spec_bucket: String,
}

impl Function for Render {
    async fn start(environment: &Environment) -> Result<Self, InvocationError> {
        let variables = environment::Render::read(environment)?;
        let registry = OciRegistry::by_mirror(environment::IMAGE_MIRROR, variables.image_mirror.as_deref());
        let aws = Aws::from_env().await.map_err(InvocationError::environment)?;
        Ok(Self {
            specs: aws.bucket(&variables.spec_bucket),
            assets: aws.bucket(&variables.asset_bucket),
            issuer: variables.issuer_bucket.as_deref().map(|bucket| aws.bucket(bucket).public_json()),
            keys: aws.keys(&variables.kms_key_arn),
            parameters: aws.parameters(),
            registry: registry.map_err(InvocationError::environment)?,
            bus: aws.bus(&variables.bus_name),
            site: variables.site(),
            spec_bucket: variables.spec_bucket,
        })
    }

    async fn handle(&self, event: Value, invocation: &Invocation) -> Result<String, InvocationError> {
        let Some(changed) = event::changed(event, &self.spec_bucket, invocation.now)? else {
            return Ok("neither spec nor patch: left alone".to_owned());
        };
        invocation.about(changed.cluster());
        let ports = RenderPorts {
            specs: &self.specs,
            assets: &self.assets,
            issuer: self.issuer.as_ref(),
            keys: &self.keys,
            parameters: &self.parameters,
            registry: &self.registry,
            bus: &self.bus,
            crypto: &AwsLc,
        };
        let (site, now) = (&self.site, invocation.now);
        let outcome = match &changed {
            Spec(upload) => render_upload(&ports, site, upload, now).await?,
            Patches(cluster) | Credentials(cluster) => render_newest(&ports, site, cluster, now).await?,
            Pins { cluster, order } => upgrade(&ports, site, cluster, order, now).await?,
        };
        Ok(outcome.to_string())
    }
}

fn main() -> ExitCode {
    slipway_lambda::run::<Render>()
}
