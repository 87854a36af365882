//! The embedded AWS as a whole: started, with a template deployed, observed, and stopped when dropped.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use slipway_rollout::StackStatus;
use slipway_sim::world::ForeignStack;
use tempfile::TempDir;

use crate::client::{Client, ClientError};
use crate::cloud::{Cloud, Reach, Tempo};
use crate::deploy::{DeployError, Deployed, Target, deploy, translate};
use crate::gateway::Gateway;
use crate::lambda::{Caller, Lambda};
use crate::moto::Moto;
use crate::observe::Observer;
use crate::registry::{Manners, Registry};
use crate::relay::Relays;
use crate::router::Router;

/// Why the embedded AWS does not start or work.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// A process could not be started, or no port was available.
    #[error("the embedded AWS does not start")]
    Start(#[from] io::Error),
    /// The template cannot be deployed.
    #[error("the template cannot be deployed")]
    Deploy(#[from] DeployError),
    /// A service refuses.
    #[error("a service of the embedded AWS refuses")]
    Client(#[from] ClientError),
    /// The template does not have the requested resource.
    #[error("the template has no {0}")]
    NoSuch(String),
}

/// The settings of an embedded AWS.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The region.
    pub region: String,
    /// `AWS::StackName` of the installation.
    pub stack_name: String,
    /// Seconds of CloudFormation and Scheduler per second.
    pub speed: f64,
    /// How long operations take, as a factor of their duration in AWS.
    pub pace: f64,
    /// Machines are really booted, by a program that follows what groups launch.
    pub real_machines: bool,
    /// The registry and server of images and programs; `None`: a registry that has every image, with the image's name as content.
    pub mirror: Option<String>,
    /// The factor for Lambda's delays between tries: with 0.002 a minute takes 120 ms.
    pub time_scale: f64,
    /// Parameters of the installation. Unless a test says otherwise, it allows what the examples use.
    pub installation: BTreeMap<String, String>,
    /// `RUST_LOG` of the functions; `None` leaves the template's.
    pub log: Option<String>,
    /// Public SSM parameters.
    pub parameters: Vec<(String, String)>,
    /// S3 reports the modification time of every object as this many hours earlier.
    pub hours_ago: u32,
    /// Whether the functions use the world's clock, as in AWS. Otherwise they use this machine's, which is behind: waits of hours end there
    /// within moments. A person's commands always use this machine's clock.
    pub one_clock: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            region: "eu-west-1".to_owned(),
            stack_name: "slipway".to_owned(),
            speed: 200.0,
            pace: 1.0,
            real_machines: false,
            mirror: None,
            time_scale: 0.002,
            installation: installation_of_examples(),
            log: None,
            parameters: Vec::new(),
            hours_ago: 0,
            one_clock: false,
        }
    }
}

/// The parameters of an installation that allows what the examples use.
#[must_use]
pub fn installation_of_examples() -> BTreeMap<String, String> {
    let allowed = crate::workshop::allowed();
    let zones = |part: fn(&slipway_core::allowed::AllowedZone) -> &str| {
        allowed.hosted_zones.iter().map(part).collect::<Vec<_>>().join(",")
    };
    BTreeMap::from([
        ("HostedZoneIds".to_owned(), zones(|zone| &zone.id)),
        ("HostedZoneDomains".to_owned(), zones(|zone| &zone.domain)),
        ("ClusterKeyArns".to_owned(), allowed.cluster_key_arns.unwrap_or_default().join(",")),
        ("InstanceRoleArns".to_owned(), allowed.instance_role_arns.unwrap_or_default().join(",")),
        ("ProgramBuckets".to_owned(), allowed.program_buckets.join(",")),
        ("ManagedPolicyArns".to_owned(), allowed.managed_policy_arns.join(",")),
    ])
}

/// A template that was deployed beside the first one. Dropping this value stops the deliveries of its rules.
#[derive(Debug)]
pub struct Beside {
    /// The deployed template.
    pub deployed: Deployed,
    _relays: Relays,
}

/// An embedded AWS with a deployed template.
#[derive(Debug)]
pub struct Embedded {
    // The router and the functions are dropped before the services that they call.
    router: Router,
    cloud: Cloud,
    lambda: Lambda,
    deployed: Deployed,
    client: Client,
    gateway: Gateway,
    observer: Observer,
    region: String,
    _moto: Moto,
    _registry: Registry,
    work_folder: TempDir,
}

impl Embedded {
    /// Starts everything and deploys the SAM template at `template`.
    ///
    /// # Errors
    /// If a part does not start, or the template cannot be deployed.
    pub async fn start(template: &Path, settings: &Settings) -> Result<Self, WorldError> {
        let work_folder = tempfile::tempdir()?;
        let parameters: Vec<_> =
            settings.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let (moto, plain) =
            tokio::join!(Moto::start_old(&parameters, settings.hours_ago), translate(template));
        let (moto, plain) = (moto?, plain?);
        let observer = Observer::default();
        let gateway = Gateway::start(moto.url(), &settings.region, observer.clone()).await?;
        // The harness' own calls go directly to moto, so that they are not observed.
        let client = Client::new(moto.url(), &settings.region, "OPERATOR");
        let lambda = Lambda::new(client.clone(), observer.clone(), settings.time_scale);
        let registry = Registry::start(Manners::default()).await?;
        let log = settings.log.iter().map(|log| ("RUST_LOG".to_owned(), log.clone()));
        let takes = |name: &str| plain["Parameters"].get(name).is_some();
        let target = Target {
            client: &client,
            gateway: &gateway,
            lambda: &lambda,
            stack_name: &settings.stack_name,
            parameters: settings
                .installation
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .chain([("ImageMirror", settings.mirror.as_deref().unwrap_or(registry.url()))])
                .filter(|(name, _)| takes(name))
                .collect(),
            extra_environment: log.collect(),
            work_folder: work_folder.path(),
        };
        let deployed = deploy(&plain, &target).await?;
        let reach = Reach::new(&client, &lambda, &observer, gateway.bell(), &deployed);
        let tempo = Tempo { speed: settings.speed, pace: settings.pace, keeps_going: settings.real_machines };
        let cloud = Cloud::start(&settings.region, tempo, &gateway.templates_url(), reach).await?;
        if settings.real_machines {
            cloud.with(slipway_sim::World::leave_machines_to_others);
        }
        gateway.serve_by_world(cloud.world(), cloud.endpoint());
        if settings.one_clock {
            lambda.live_by(cloud.clock(), work_folder.path());
        }
        let router = Router::start(
            client.clone(),
            &gateway,
            lambda.clone(),
            observer.clone(),
            deployed.routes.clone(),
            deployed.taps.clone(),
        );
        Ok(Self {
            router,
            cloud,
            lambda,
            deployed,
            client,
            gateway,
            observer,
            region: settings.region.clone(),
            _moto: moto,
            _registry: registry,
            work_folder,
        })
    }

    /// Deploys another template, whose rules deliver to what is no function. Whatever they send to the origin of a URL that `web` names goes to
    /// its value instead.
    ///
    /// # Errors
    /// If the template cannot be deployed.
    pub async fn deploy_beside(
        &self,
        template: &Path,
        stack_name: &str,
        parameters: &[(&str, &str)],
        web: &[(&str, &str)],
    ) -> Result<Beside, WorldError> {
        let target = Target {
            client: &self.client,
            gateway: &self.gateway,
            lambda: &self.lambda,
            stack_name,
            parameters: parameters.iter().copied().collect(),
            extra_environment: BTreeMap::new(),
            work_folder: self.work_folder.path(),
        };
        let deployed = deploy(&translate(template).await?, &target).await?;
        let web = web.iter().map(|(origin, instead)| ((*origin).to_owned(), (*instead).to_owned()));
        let (all, destinations) = (deployed.relays.clone(), deployed.destinations.clone());
        let relays = Relays::start(&self.client, &self.gateway, all, destinations, web.collect());
        Ok(Beside { deployed, _relays: relays })
    }

    /// The stream of observations.
    #[must_use]
    pub fn observer(&self) -> &Observer {
        &self.observer
    }

    /// The single endpoint.
    #[must_use]
    pub fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// The functions.
    #[must_use]
    pub fn lambda(&self) -> &Lambda {
        &self.lambda
    }

    /// The simulated CloudFormation and Scheduler.
    #[must_use]
    pub fn cloud(&self) -> &Cloud {
        &self.cloud
    }

    /// The router of events.
    #[must_use]
    pub fn router(&self) -> &Router {
        &self.router
    }

    /// The operator's client, directly to moto: its calls are neither observed nor checked.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.region
    }

    /// The deployed template.
    #[must_use]
    pub fn deployed(&self) -> &Deployed {
        &self.deployed
    }

    /// From now on CloudFormation shows the deployed template as a stack with that status, and Scheduler its schedules, as in AWS. With
    /// another status, or after a change of the world, once more.
    pub fn stand_stack(&self, name: &str, status: StackStatus) {
        let deployed = &self.deployed;
        let physical = |id: &String| {
            let reference = deployed.references[id].clone();
            // The physical id of a rule on another bus than the default one names both
            // (https://github.com/aws-cloudformation/cloudformation-coverage-roadmap/issues/1131).
            let route =
                deployed.routes.iter().find(|route| route.rule_arn.ends_with(&format!("/{reference}")));
            match route.map(|route| route.bus.as_str()) {
                None | Some("default") => reference,
                Some(bus) => format!("{bus}|{reference}"),
            }
        };
        let resources = deployed.kinds.iter().map(|(id, kind)| (id.clone(), (kind.clone(), physical(id))));
        let of = ForeignStack {
            parameters: deployed.parameters.clone(),
            outputs: deployed.outputs.clone(),
            resources: resources.collect(),
        };
        self.cloud.with(|world| {
            world.stand_stack(name, status, &of);
            for (kind, schedule) in of.resources.values() {
                if kind == "AWS::Scheduler::Schedule" {
                    world.stand_schedule(schedule, "cron(23 4 * * ? *)", true);
                }
            }
        });
    }

    /// `Ref` of a resource of the template.
    ///
    /// # Errors
    /// If the template has no such resource.
    pub fn reference(&self, id: &str) -> Result<&str, WorldError> {
        let reference = self.deployed.references.get(id);
        reference.map(String::as_str).ok_or_else(|| WorldError::NoSuch(id.to_owned()))
    }

    /// Uploads an object as a person would. Returns its version id.
    ///
    /// # Errors
    /// If the template has no such bucket, or S3 refuses.
    pub async fn upload(&self, bucket_id: &str, key: &str, bytes: Vec<u8>) -> Result<String, WorldError> {
        let version = self.client.put_object(self.reference(bucket_id)?, key, bytes).await?;
        // The upload bypasses the gateway, so the bell is rung here.
        self.gateway.bell().ring();
        Ok(version)
    }

    /// Deletes the only version of an object in a bucket of the template, as a person would.
    ///
    /// # Errors
    /// If S3 refuses.
    pub async fn remove(&self, bucket_id: &str, key: &str, version: &str) -> Result<(), WorldError> {
        self.client.delete_version(self.reference(bucket_id)?, key, version).await?;
        self.gateway.bell().ring();
        Ok(())
    }

    /// Invokes a function of the template as a person would.
    ///
    /// # Errors
    /// If there is no such function.
    pub fn invoke(&self, function_id: &str, event: &Value) -> Result<String, WorldError> {
        let arn = self.deployed.arns.get(function_id);
        let arn = arn.ok_or_else(|| WorldError::NoSuch(function_id.to_owned()))?;
        let invoked = self.lambda.invoke(arn, &Caller::Operator, event.to_string().into_bytes());
        invoked.map_err(WorldError::NoSuch)
    }

    /// Whether every event on a bus was observed and delivered.
    async fn delivered(&self) -> bool {
        let Ok(waiting) = self.client.waiting().await else { return true };
        let taps = self.deployed.taps.iter().map(|(_, url)| url);
        let mut urls = taps.chain(self.deployed.routes.iter().map(|route| &route.queue_url));
        !urls.any(|url| url.rsplit('/').next().is_some_and(|name| waiting.contains(name)))
    }

    /// Waits until nothing has happened for `quiet` and no event is open; false after `timeout`.
    pub async fn settle(&self, quiet: Duration, timeout: Duration) -> bool {
        let settled = async {
            loop {
                let mark = self.observer.mark();
                let more = tokio::time::timeout(quiet, self.observer.more(mark)).await;
                if more.is_err()
                    && self.lambda.open() == 0
                    && !self.gateway.bell().rings().open()
                    && self.delivered().await
                {
                    return;
                }
            }
        };
        tokio::time::timeout(timeout, settled).await.is_ok()
    }
}
