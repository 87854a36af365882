//! An installation of Slipway in AWS, and a cluster in it: its folders in the installation's buckets.
//!
//! `clusters/<name>/…` in the asset bucket has the layout of a directory that `slipway render` writes. `local` and this module implement
//! the same ports, so the verbs need not distinguish them.

use std::collections::BTreeMap;
use std::env;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use slipway_aws::{AutoScaling, Aws, EventBus, InstalledStack, KmsKeys, RunCommand, S3Bucket, SsmParameters};
use slipway_core::event::{DestroyRequested, Event};
use slipway_core::keys;
use slipway_core::status::Desired;
use slipway_crypto::verify::{File, FileContent};
use slipway_flows::environment::{Environment, REGION, Render as RenderSettings};
use slipway_flows::error::FlowError;
use slipway_flows::ports::Bus as _;
use slipway_flows::store::{self, AT_A_TIME};
use slipway_ports::{ErrorKind, Listed, Listing as _, Objects as _, PortError, PortResult, Secret};
use slipway_rollout::{Active, Rollout};

use crate::failure::CliError;
use crate::session::{AWS, SessionArgs};
use crate::settings::Settings;

/// Which cluster of which installation.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct CloudArgs {
    /// The cluster in AWS to work on. Default, for verbs that work in AWS only: SLIPWAY_CLUSTER, else the configuration file's.
    #[arg(long, value_name = "NAME", help_heading = AWS)]
    cluster: Option<String>,
    #[command(flatten)]
    installation: InstallationArgs,
    /// The spec bucket of the Slipway installation. Default: SLIPWAY_SPEC_BUCKET, else the output of the installation's stack.
    #[arg(long, value_name = "NAME", help_heading = AWS)]
    spec_bucket: Option<String>,
}

/// Which installation, and how to sign in.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct InstallationArgs {
    /// The asset bucket of the Slipway installation. Default: SLIPWAY_ASSET_BUCKET, else the output of the installation's stack.
    #[arg(long, value_name = "NAME", help_heading = AWS)]
    asset_bucket: Option<String>,
    /// The CloudFormation stack of the Slipway installation. Default: `slipway`.
    #[arg(long, value_name = "NAME", help_heading = AWS)]
    stack: Option<String>,
    #[command(flatten)]
    session: SessionArgs,
}

/// The bus of an installation.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct BusArgs {
    /// The event bus of the Slipway installation. Default: SLIPWAY_BUS_NAME, else the output of the installation's stack.
    #[arg(long, value_name = "NAME", help_heading = AWS)]
    bus: Option<String>,
}

impl BusArgs {
    /// Puts `event` on the bus of the cluster's installation. An order gets the present time.
    pub(crate) async fn publish(&self, cloud: &Cloud, event: Event) -> Result<(), CliError> {
        let event = event.given(Timestamp::now());
        flow(self.open(cloud).await?.publish(&[event]).await)
    }

    /// Puts an order to destroy on the bus that takes such orders. The template names it after the other bus.
    pub(crate) async fn publish_destruction(
        &self,
        cloud: &Cloud,
        order: DestroyRequested,
    ) -> Result<(), CliError> {
        let Installation { aws, stack, settings, .. } = &cloud.installation;
        let bus = aws.bus(&format!("{}-destroy", self.name(aws, stack, settings).await?));
        flow(bus.publish(&[Event::DestroyRequested(order).given(Timestamp::now())]).await)
    }

    /// The bus of the cluster's installation.
    pub(crate) async fn open(&self, cloud: &Cloud) -> Result<EventBus, CliError> {
        let Installation { aws, stack, settings, .. } = &cloud.installation;
        Ok(aws.bus(&self.name(aws, stack, settings).await?))
    }

    /// Puts `event`, which concerns no particular cluster, on the installation's bus.
    pub(crate) async fn publish_to_all(&self, cloud: &CloudArgs, event: Event) -> Result<(), CliError> {
        let settings = Settings::read()?;
        let aws = cloud.installation.session.sign_in(&settings).await?;
        let stack = cloud.installation.stack(&settings);
        flow(aws.bus(&self.name(&aws, &stack, &settings).await?).publish(&[event]).await)
    }

    async fn name(&self, aws: &Aws, stack: &str, settings: &Settings) -> Result<String, CliError> {
        if let Some(name) = value_or_default(self.bus.as_deref(), "SLIPWAY_BUS_NAME", &settings.bus) {
            return Ok(name);
        }
        let mut outputs = outputs(aws, stack, "--bus").await?;
        output(&mut outputs, stack, BUS, "--bus")
    }
}

impl CloudArgs {
    /// The cluster in AWS, if one was named.
    pub(crate) async fn cluster(&self) -> Result<Option<Cloud>, CliError> {
        match &self.cluster {
            Some(_) => self.named().await.map(Some),
            None => Ok(None),
        }
    }

    /// The cluster, for a verb that works in AWS only.
    pub(crate) async fn named(&self) -> Result<Cloud, CliError> {
        let cloud = self.of_installation().await?;
        cloud.must_exist().await.map_err(CliError::in_cloud)?;
        Ok(cloud)
    }

    /// The cluster that is named, by the option, the environment or the configuration file.
    pub(crate) async fn of_installation(&self) -> Result<Cloud, CliError> {
        let settings = Settings::read()?;
        let Some(cluster) = value_or_default(self.cluster.as_deref(), CLUSTER, &settings.cluster) else {
            return Err(CliError::usage(
                "no cluster is named",
                format!(
                    "name it with --cluster NAME, the variable {CLUSTER}, or `cluster: NAME` in the configuration file (docs/cli.md); `slipway list` \
                     shows all"
                ),
            ));
        };
        self.open(&cluster, settings).await
    }

    /// The cluster of a spec, which may not exist yet: the one that the option names, else the one that the spec names. Where nothing else
    /// names a region, it is that of the spec, which must be the installation's.
    pub(crate) async fn of_spec(
        &self,
        name: Option<&str>,
        region: Option<String>,
    ) -> Result<Cloud, CliError> {
        match self.cluster.as_deref().or(name) {
            Some(cluster) => {
                let settings = Settings::read()?;
                let region = settings.region.clone().or(region);
                self.open(cluster, Settings { region, ..settings }).await
            }
            None => self.of_installation().await,
        }
    }

    /// The installation as far as it can be read, for a verb that tells what it cannot read. `region`: that of the spec, where nothing else
    /// names one.
    pub(crate) async fn examine(&self, region: Option<String>) -> Result<Examined, CliError> {
        let settings = Settings::read()?;
        let settings = Settings { region: settings.region.clone().or(region), ..settings };
        let args = &self.installation;
        let aws = args.session.sign_in(&settings).await?;
        let stack_name = args.stack(&settings);
        let stack = match aws.stack(&stack_name).await {
            Ok(Some(stack)) => Ok(stack),
            Ok(None) => return Err(no_stack(&aws, &stack_name, "--asset-bucket")),
            // The person is signed in, and may not see the stack.
            Err(error) if error.kind == ErrorKind::Denied && error.message.starts_with("AccessDenied") => {
                Err(error)
            }
            Err(error) => return flow(Err(error)),
        };
        let installation = Installation::with(args, self.spec_bucket.as_deref(), settings, aws.clone()).await;
        Ok(Examined { aws, stack_name, stack, installation: installation.map_err(CliError::in_cloud) })
    }

    /// The cluster that an option of the command names.
    pub(crate) fn cluster_name(&self) -> Option<&str> {
        self.cluster.as_deref()
    }

    /// The asset bucket that an option of the command names.
    pub(crate) fn asset_bucket(&self) -> Option<&str> {
        self.installation.asset_bucket.as_deref()
    }

    /// Whether the cluster is named by an option of the command.
    pub(crate) fn is_named(&self) -> bool {
        self.cluster.is_some()
    }

    async fn open(&self, cluster: &str, settings: Settings) -> Result<Cloud, CliError> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if cluster.is_empty() || !cluster.bytes().all(plain) {
            let problem = format!("{cluster:?} is not a valid name of a cluster");
            return Err(CliError::refused(problem, "name it as the spec does: clusterName"));
        }
        let found = Installation::find(&self.installation, self.spec_bucket.as_deref(), settings).await;
        let installation = found.map_err(CliError::in_cloud)?;
        self.installation.session.tell(&format!("cluster {cluster}"));
        Ok(Cloud { cluster: cluster.to_owned(), installation })
    }
}

impl InstallationArgs {
    /// The installation.
    pub(crate) async fn find(&self) -> Result<Installation, CliError> {
        Installation::find(self, None, Settings::read()?).await.map_err(CliError::in_cloud)
    }

    fn stack(&self, settings: &Settings) -> String {
        self.stack.clone().or_else(|| settings.stack.clone()).unwrap_or_else(|| STACK.to_owned())
    }
}

/// An installation of Slipway, by its buckets.
#[derive(Debug, Clone)]
pub(crate) struct Installation {
    /// The asset bucket.
    pub(crate) assets: S3Bucket,
    specs: Option<S3Bucket>,
    stack: String,
    aws: Aws,
    settings: Settings,
}

impl Installation {
    /// What no option names is taken from the environment, then from the configuration file, and then from the outputs of its stack.
    async fn find(
        args: &InstallationArgs,
        specs: Option<&str>,
        settings: Settings,
    ) -> Result<Self, CliError> {
        let aws = args.session.sign_in(&settings).await?;
        Self::with(args, specs, settings, aws).await
    }

    async fn with(
        args: &InstallationArgs,
        specs: Option<&str>,
        settings: Settings,
        aws: Aws,
    ) -> Result<Self, CliError> {
        let stack = args.stack(&settings);
        // Whoever names another stack means its buckets.
        let of_stack = args.stack.is_some();
        let default = |default: &Option<String>| default.clone().filter(|_| !of_stack);
        let mut specs = value_or_default(specs, "SLIPWAY_SPEC_BUCKET", &default(&settings.spec_bucket));
        let asset_bucket = args.asset_bucket.as_deref();
        let assets =
            match value_or_default(asset_bucket, "SLIPWAY_ASSET_BUCKET", &default(&settings.asset_bucket)) {
                Some(bucket) => bucket,
                None => {
                    let mut outputs = outputs(&aws, &stack, "--asset-bucket").await?;
                    specs = specs.or(Some(output(&mut outputs, &stack, SPECS, "--spec-bucket")?));
                    output(&mut outputs, &stack, ASSETS, "--asset-bucket")?
                }
            };
        args.session.tell(&format!("installation: asset bucket {assets}, stack {stack}"));
        let specs = specs.map(|bucket| aws.bucket(&bucket));
        Ok(Self { assets: aws.bucket(&assets), specs, stack, aws, settings })
    }

    /// The cluster of that name in it.
    pub(crate) fn cloud(&self, cluster: &str) -> Cloud {
        Cloud { cluster: cluster.to_owned(), installation: self.clone() }
    }

    /// The spec bucket.
    pub(crate) async fn specs(&self) -> Result<S3Bucket, CliError> {
        match &self.specs {
            Some(bucket) => Ok(bucket.clone()),
            None => {
                let mut outputs = outputs(&self.aws, &self.stack, "--spec-bucket").await?;
                Ok(self.aws.bucket(&output(&mut outputs, &self.stack, SPECS, "--spec-bucket")?))
            }
        }
    }

    /// The settings of the installation's render function, which its stack shows.
    pub(crate) async fn render_settings(&self) -> Result<RenderSettings, CliError> {
        let Self { aws, stack, assets, .. } = self;
        let mut outputs = outputs(aws, stack, "--asset-bucket").await?;
        let Some(text) = outputs.remove(SETTINGS) else {
            let problem = format!("the stack {stack} has no output {SETTINGS}");
            let help = "update the installation: since this release, its template shows the settings of the render function; \
                        or name another stack with --stack";
            return Err(CliError::refused(problem, help));
        };
        let variables = Environment::of_lines(&text).with(REGION, aws.region());
        let settings = RenderSettings::read(&variables).map_err(|why| self.bad_settings(&why.to_string()))?;
        for (what, shown, used) in [
            ("asset", &settings.asset_bucket, assets.name()),
            ("spec", &settings.spec_bucket, self.specs().await?.name()),
        ] {
            if shown != used {
                let problem = format!(
                    "the stack {stack} is another installation: its {what} bucket is {shown}, and the cluster's is {used}"
                );
                return Err(CliError::refused(
                    problem,
                    "name the stack of the cluster's installation with --stack",
                ));
            }
        }
        Ok(settings)
    }

    /// The settings of the render function are not usable, and `why`.
    fn bad_settings(&self, why: &str) -> CliError {
        let problem = format!("the output {SETTINGS} of the stack {}: {why}", self.stack);
        CliError::refused(problem, "correct the parameters of the installation's stack")
    }

    /// The names of its clusters.
    pub(crate) async fn clusters(&self) -> Result<Vec<String>, CliError> {
        let mut folders = flow(self.assets.folders(keys::CLUSTERS).await)?;
        folders.retain(|name| keys::is_cluster(name));
        Ok(folders)
    }
}

/// An installation, as far as it can be read.
#[derive(Debug)]
pub(crate) struct Examined {
    pub(crate) aws: Aws,
    pub(crate) stack_name: String,
    /// Its stack. An error: the person may not see it.
    pub(crate) stack: PortResult<InstalledStack>,
    /// Its buckets. An error: nothing that the person may read names them.
    pub(crate) installation: Result<Installation, CliError>,
}

/// A cluster of an installation.
#[derive(Debug)]
pub(crate) struct Cloud {
    /// The cluster's name.
    pub(crate) cluster: String,
    installation: Installation,
}

/// The largest file that is read as a certificate, key or bundle.
const MOST_BYTES: u64 = 1 << 20;
/// The maximum number of files of a cluster.
const MOST_FILES: usize = 20_000;

impl Cloud {
    /// All clusters of an installation, by name.
    pub(crate) async fn all(args: &InstallationArgs) -> Result<Vec<Self>, CliError> {
        let installation = args.find().await?;
        Ok(installation.clusters().await?.iter().map(|cluster| installation.cloud(cluster)).collect())
    }

    /// Fails if nothing of the cluster exists, and lists the existing clusters in case the name was mistyped.
    async fn must_exist(&self) -> Result<(), CliError> {
        if !list(self.assets(), &self.key(""), 1).await?.is_empty() {
            return Ok(());
        }
        let bucket = self.assets().name();
        let problem = format!("the bucket {bucket} has no objects of a cluster {}", self.cluster);
        let help = match self.installation.clusters().await?.as_slice() {
            [] => "it holds no cluster at all: upload a spec first, or name another installation's bucket"
                .to_owned(),
            clusters => format!("the clusters there are {}", clusters.join(", ")),
        };
        Err(CliError::refused(problem, help))
    }

    /// The key of `name` in the cluster's folder.
    pub(crate) fn key(&self, name: &str) -> String {
        format!("clusters/{}/{name}", self.cluster)
    }

    /// The asset bucket.
    pub(crate) fn assets(&self) -> &S3Bucket {
        &self.installation.assets
    }

    /// The spec bucket, if it is known without a call.
    pub(crate) fn known_specs(&self) -> Option<&S3Bucket> {
        self.installation.specs.as_ref()
    }

    /// The spec bucket.
    pub(crate) async fn specs(&self) -> Result<S3Bucket, CliError> {
        self.installation.specs().await
    }

    /// The settings of the installation's render function, which its stack shows.
    pub(crate) async fn render_settings(&self) -> Result<RenderSettings, CliError> {
        self.installation.render_settings().await
    }

    /// The settings of the render function are not usable, and `why`.
    pub(crate) fn bad_settings(&self, why: &str) -> CliError {
        self.installation.bad_settings(why)
    }

    /// The region of the installation, and so of the cluster.
    pub(crate) fn region(&self) -> &str {
        self.installation.aws.region()
    }

    /// KMS, with `own` for a cluster that names no key.
    pub(crate) fn keys(&self, own: &str) -> KmsKeys {
        self.installation.aws.keys(own)
    }

    /// SSM parameters.
    pub(crate) fn parameters(&self) -> SsmParameters {
        self.installation.aws.parameters()
    }

    /// Auto Scaling.
    pub(crate) fn groups(&self) -> AutoScaling {
        self.installation.aws.groups()
    }

    /// What a person may ask AWS.
    pub(crate) fn aws(&self) -> &Aws {
        &self.installation.aws
    }

    /// Run Command.
    pub(crate) fn commands(&self) -> RunCommand {
        self.installation.aws.commands()
    }

    /// The objects in `part` of the cluster's folder, at most `most`.
    pub(crate) async fn list(&self, part: &str, most: usize) -> Result<Vec<Listed>, CliError> {
        list(self.assets(), &self.key(part), most).await
    }

    /// The objects whose keys begin with `prefix`, at most `most`.
    pub(crate) async fn list_below(&self, prefix: &str, most: usize) -> Result<Vec<Listed>, CliError> {
        list(self.assets(), prefix, most).await
    }

    /// The cluster's credentials, as if they were files of a directory that `slipway render` wrote.
    pub(crate) async fn files(&self) -> Result<Vec<File>, CliError> {
        let mut listed = Vec::new();
        for part in ["bundles/", "pki/"] {
            listed.extend(list(self.assets(), &self.key(part), MOST_FILES + 1).await?);
        }
        if listed.len() > MOST_FILES {
            let problem = format!("the cluster {} has more than {MOST_FILES} credentials", self.cluster);
            return Err(CliError::refused(problem, "`slipway certs gc` removes what nobody refers to"));
        }
        let folder = self.key("");
        let reads = listed.into_iter().filter_map(|object| {
            let path = object.key.strip_prefix(&folder)?.to_owned();
            // A role's configuration contains no credentials.
            let config = path.starts_with("bundles/") && path.contains("/config-");
            (!config).then(|| self.read(path, object))
        });
        stream::iter(reads).buffered(AT_A_TIME).try_collect().await
    }

    async fn read(&self, path: String, listed: Listed) -> Result<File, CliError> {
        let found = if listed.size > MOST_BYTES {
            FileContent::Unreadable(format!("{} bytes are more than any certificate or key has", listed.size))
        } else {
            match flow(self.assets().get(&listed.key).await)? {
                Some(object) => FileContent::Bytes(Secret::new(object.bytes)),
                None => FileContent::Unreadable("it was removed a moment ago".to_owned()),
            }
        };
        // IAM controls access to objects, so a file mode says nothing.
        Ok(File { path, found, mode: 0o600, link: false })
    }

    /// The state of the rollout; an error if nothing was ever planned.
    pub(crate) async fn rollout(&self) -> Result<Rollout, CliError> {
        let name = self.cluster.as_str();
        let (rollout, desired) = (keys::rollout(name), keys::desired(name));
        let both = tokio::try_join!(
            store::load::<Rollout>(self.assets(), &rollout),
            store::load::<Desired>(self.assets(), &desired),
        );
        let (rollout, desired) = both.map_err(|error| CliError::from(error).in_cloud())?;
        if rollout.value.is_none() && desired.value.is_none() {
            let problem = format!("nothing was planned yet for the cluster {name}");
            return Err(CliError::refused(problem, format!("slipway status --cluster {name} says why")));
        }
        Ok(rollout.value.unwrap_or_else(|| Rollout::new(name)))
    }

    /// The state of the rollout. `None`: nothing is known of the cluster.
    pub(crate) async fn known_rollout(&self) -> Result<Option<Rollout>, CliError> {
        // Without permission to list the bucket, a missing object would look like a denied one.
        if list(self.assets(), &self.key(""), 1).await?.is_empty() {
            return Ok(None);
        }
        let stored = store::load::<Rollout>(self.assets(), &keys::rollout(&self.cluster)).await;
        Ok(stored.map_err(|error| CliError::from(error).in_cloud())?.value)
    }

    /// The open rollout; an error if there is none.
    pub(crate) async fn open_rollout(&self) -> Result<Active, CliError> {
        self.rollout().await?.active().cloned().ok_or_else(|| {
            let problem = format!("no rollout of {} is open", self.cluster);
            CliError::refused(problem, format!("slipway status --cluster {} shows its state", self.cluster))
        })
    }

    /// Its name in messages.
    pub(crate) fn place(&self) -> String {
        format!("s3://{}/clusters/{}", self.assets().name(), self.cluster)
    }
}

/// Fails for a cluster that was destroyed and not created again.
pub(crate) fn must_stand(rollout: &Rollout) -> Result<(), CliError> {
    let anew = || format!("slipway apply cluster.yaml --cluster {} makes it anew", rollout.cluster);
    rollout.destroyed_message().map_or(Ok(()), |gone| Err(CliError::refused(gone, anew())))
}

/// The outputs of the installation's stack with the names of its resources.
const ASSETS: &str = "AssetBucketName";
const SPECS: &str = "SpecBucketName";
const BUS: &str = "BusName";
const SETTINGS: &str = "RenderSettings";
/// The default name of the installation's stack.
const STACK: &str = "slipway";

/// The variable with the default cluster.
const CLUSTER: &str = "SLIPWAY_CLUSTER";

/// The given value, or that of the environment variable, or the default.
fn value_or_default(given: Option<&str>, variable: &str, default: &Option<String>) -> Option<String> {
    let of_variable = || env::var(variable).ok().filter(|value| !value.is_empty());
    given.map(str::to_owned).or_else(of_variable).or_else(|| default.clone())
}

/// The outputs of the installation's stack.
async fn outputs(aws: &Aws, stack: &str, option: &str) -> Result<BTreeMap<String, String>, CliError> {
    let found = flow(aws.stack(stack).await)?.map(|found| found.outputs);
    found.ok_or_else(|| no_stack(aws, stack, option))
}

fn no_stack(aws: &Aws, stack: &str, option: &str) -> CliError {
    let problem = format!("there is no CloudFormation stack {stack} in {}", aws.region());
    CliError::refused(problem, help(option))
}

fn output(
    outputs: &mut BTreeMap<String, String>,
    stack: &str,
    name: &str,
    option: &str,
) -> Result<String, CliError> {
    outputs.remove(name).ok_or_else(|| {
        let problem =
            format!("the stack {stack} is not an installation of Slipway: it lacks the output {name}");
        CliError::refused(problem, help(option))
    })
}

fn help(option: &str) -> String {
    let what = if option == "--bus" { "bus" } else { "bucket" };
    format!("name the installation's stack with --stack, or its {what} with {option}")
}

async fn list(bucket: &S3Bucket, prefix: &str, most: usize) -> Result<Vec<Listed>, CliError> {
    flow(bucket.list(prefix, most).await)
}

fn flow<T>(result: Result<T, PortError>) -> Result<T, CliError> {
    result.map_err(|error| CliError::from(FlowError::from(error)).in_cloud())
}
