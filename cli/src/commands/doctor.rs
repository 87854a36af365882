//! `slipway doctor`.

mod alarms;
mod cluster;
mod findings;
mod installation;
mod permissions;
mod quotas;
mod reading;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use serde_json::json;
use slipway_aws::Aws;
use slipway_core::cluster::Cluster;
use slipway_core::release::Site;
use slipway_core::words::count;

use super::version;
use crate::Exit;
use crate::cloud::{Cloud, CloudArgs, Examined, Installation};
use crate::failure::CliError;
use crate::overview::plain;
use crate::printer::{Colour, Printer};
use crate::source::{PatchArgs, Source};
use cluster::{ClusterRead, SpecRead};
use findings::{Finding, Level, Read, Unread, unknown};
use reading::account;

/// Check an installation of Slipway and its clusters: what is wrong, where, and what to do about it. With a spec, also check what the spec needs.
///
/// Of the installation: its stack, release and parameters, buckets, rules, schedule, dead-letter queues, alarms, KMS key, the published node agent, and which verbs your permissions allow. Of each cluster: its rollout, whether it serves, a pause, certificates, snapshots of etcd, the age of its pins, its newest spec. Of a spec in a file: also whether the account's quotas have room for it. Nothing is written, and nothing is decrypted. What you may not read is a finding as well, with the permission that it needs.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Levels:
  problem  something does not work, or will stop working
  unknown  it could not be checked
  warning  it works, and could be safer or newer
  ok       it is as it should be

Exit codes:
  0  checked: there is no problem, and nothing is unknown
  1  there is a problem, or something could not be checked; or there is no such installation or cluster
  2  wrong usage
  3  the spec could not be read, or AWS could not be reached

The IAM permissions for this are listed in docs/cli.md. docs/cli.md also says what is not checked.

Examples:
  slipway doctor
  slipway doctor --cluster prod
  slipway doctor cluster.yaml
  slipway doctor --output json | jq '.findings[] | select(.level == \"problem\")'")]
pub(crate) struct Args {
    /// A spec, whose needs are checked as well; `-` reads the standard input. Its cluster need not exist yet.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The same as FILE.
    #[arg(id = "spec_option", short = 'f', long = "file", value_name = "FILE", conflicts_with = "file")]
    option: Option<PathBuf>,
    #[command(flatten)]
    patches: PatchArgs,
    /// The clusters are all of the installation, unless an option or the spec names one.
    #[command(flatten)]
    cloud: CloudArgs,
}

impl Args {
    fn spec(&self) -> Option<&Path> {
        self.file.as_deref().or(self.option.as_deref())
    }
}

/// The cluster for which permissions are asked where there is none yet.
const NOBODYS: &str = "example";
/// How many clusters are read at a time.
const AT_A_TIME: usize = 4;

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let source = args.spec().map(|path| Source::read(path, &args.patches)).transpose()?;
    let region = source.as_ref().and_then(|source| source.text_of("region"));
    let of_spec = source.as_ref().and_then(|source| source.text_of("clusterName"));
    let wanted = args.cloud.cluster_name().map(str::to_owned).or(of_spec);
    let examined = args.cloud.examine(region).await?;
    let now = Timestamp::now();

    let read = reading::installation(&examined, version::LONG).await;
    let mut all = installation::findings(&read, now);
    let mut names = Vec::new();
    match &examined.installation {
        Ok(installation) => {
            let may_be_new = source.is_some();
            match clusters(installation, wanted.as_deref(), may_be_new).await? {
                Ok(found) => names = found,
                Err(unread) => all.push(unknown("clusters", &unread)),
            }
            // A new cluster's spec is whose permissions are asked for.
            let example = wanted.as_deref().or(names.first().map(String::as_str)).unwrap_or(NOBODYS);
            all.extend(permissions::of_permissions(&account::permissions(&examined, example).await));
            all.extend(
                of_clusters(&examined.aws, installation, &names, source.as_ref(), wanted.as_deref(), now)
                    .await,
            );
        }
        Err(error) => {
            let help = error.help().unwrap_or_default().to_owned();
            let unread = Unread { why: error.to_string(), help, denied: false };
            all.push(unknown("buckets and clusters", &unread));
            if let Some(source) = &source {
                all.extend(of_file(&examined.aws, None, source, &Err(unread), None, now).await);
            }
        }
    }
    let well = all.iter().all(|finding| finding.level.is_well());
    let machine = json!({
        "ok": true,
        "well": well,
        "stack": examined.stack_name,
        "region": examined.aws.region(),
        "at": now,
        "clusters": names,
        "findings": all,
    });
    printer.result(&text(&all, &examined, printer), &machine);
    Ok(if well { Exit::Done } else { Exit::Findings })
}

/// The clusters to check: the one that is named, or all. A spec's need not exist.
async fn clusters(
    installation: &Installation,
    wanted: Option<&str>,
    may_be_new: bool,
) -> Result<Result<Vec<String>, Unread>, CliError> {
    let found = match installation.clusters().await {
        Ok(found) => found,
        Err(error) => return Ok(Err(error.into())),
    };
    let Some(wanted) = wanted else { return Ok(Ok(found)) };
    if found.iter().any(|name| name == wanted) {
        return Ok(Ok(vec![wanted.to_owned()]));
    }
    if may_be_new {
        return Ok(Ok(Vec::new()));
    }
    let problem = format!("the installation has no cluster {wanted}");
    let help = match found.as_slice() {
        [] => "it has no cluster at all; name a spec that is to become one: slipway doctor cluster.yaml"
            .to_owned(),
        found => format!("the clusters there are {}", found.join(", ")),
    };
    Err(CliError::refused(problem, help))
}

async fn of_clusters(
    aws: &Aws,
    installation: &Installation,
    names: &[String],
    source: Option<&Source>,
    wanted: Option<&str>,
    now: Timestamp,
) -> Vec<Finding> {
    if names.is_empty() && source.is_none() {
        return Vec::new();
    }
    let site = reading::site(installation).await;
    let reads = names.iter().map(|name| {
        let (cloud, site) = (installation.cloud(name), &site);
        async move { reading::cluster(&cloud, site, now).await }
    });
    let read: Vec<(ClusterRead, Option<SpecRead>)> = stream::iter(reads).buffered(AT_A_TIME).collect().await;
    let mut all = Vec::new();
    for (cluster, spec) in &read {
        all.extend(cluster::of_cluster(cluster, now));
        all.extend(spec.iter().flat_map(cluster::of_spec));
    }
    if let Some(source) = source {
        let cloud = wanted.map(|name| installation.cloud(name));
        let runs =
            read.iter().find(|(cluster, _)| Some(cluster.name.as_str()) == wanted && cluster.is_deployed());
        let stands = runs.and_then(|(_, spec)| spec.as_ref()?.cluster.as_deref());
        all.extend(of_file(aws, cloud.as_ref(), source, &site, stands, now).await);
    }
    all
}

/// The findings about a spec in a file, and about the quotas that it needs. `stands`: its cluster as it runs.
async fn of_file(
    aws: &Aws,
    cloud: Option<&Cloud>,
    source: &Source,
    site: &Read<Site>,
    stands: Option<&Cluster>,
    now: Timestamp,
) -> Vec<Finding> {
    let spec = reading::own_spec(cloud, source, site).await;
    let mut all = cluster::of_spec(&spec);
    // A spec that is refused launches nothing.
    if let Some(cluster) = &spec.cluster {
        all.extend(quotas::of_quotas(&account::quotas(aws, &spec.about, cluster, stands, now).await));
    }
    all
}

/// A line for each finding, with its cure below it; then how many there are of each level.
fn text(all: &[Finding], examined: &Examined, printer: &Printer) -> String {
    let mut text = format!("installation {} in {}\n", examined.stack_name, examined.aws.region());
    for finding in all {
        let colour = match finding.level {
            Level::Problem => Colour::Red,
            Level::Unknown | Level::Warning => Colour::Yellow,
            Level::Ok => Colour::Green,
        };
        let level = printer.paint(colour, &format!("{:<7}", finding.level.word()));
        let _ = writeln!(text, "{level}  {}: {}", plain(&finding.about), plain(&finding.message));
        if let Some(help) = &finding.help {
            let _ = writeln!(text, "{:7}    {}", "", plain(help));
        }
    }
    let counts = Level::ALL.map(|level| {
        let number = all.iter().filter(|finding| finding.level == level).count();
        match level {
            Level::Problem | Level::Warning => count(number, level.word()),
            Level::Unknown | Level::Ok => format!("{number} {}", level.word()),
        }
    });
    let _ = writeln!(text, "{}", counts.join(", "));
    text
}
