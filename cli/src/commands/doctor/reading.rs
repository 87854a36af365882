//! Reads what the checks look at. A call that fails is part of what was read, so that the other checks go on.

pub(super) mod account;

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use slipway_aws::{Aws, InstalledResource, InstalledStack, S3Bucket};
use slipway_core::keys;
use slipway_core::pin::Pin;
use slipway_core::release::Site;
use slipway_flows::error::FlowError;
use slipway_flows::lock::{self, Agent};
use slipway_flows::patches::PatchSet;
use slipway_flows::rendering::{Checked, check};
use slipway_flows::store;
use slipway_ports::{Context, Objects as _, Parameters as _, PortResult};
use slipway_render::lock::Lock;

use super::super::snapshots::Snapshots;
use super::super::upgrade::rows;
use super::cluster::{Backups, ClusterRead, SpecRead, StateRead};
use super::findings::{Read, Unread};
use super::installation::{
    AgentRead, BucketRead, InstallationRead, KeyRead, QueueRead, RuleRead, ScheduleRead,
};
use crate::cloud::{Cloud, Examined, Installation};
use crate::failure::CliError;
use crate::overview::{Overview, Reports, ServingState};
use crate::source::Source;

/// How many calls run at a time.
const AT_A_TIME: usize = 8;
/// More objects below `agent/` are not listed. Each release adds one for each processor.
const MOST_AGENTS: usize = 5_000;

fn read<T>(result: PortResult<T>) -> Read<T> {
    result.map_err(Unread::from)
}

fn in_cloud<T>(result: Result<T, FlowError>) -> Read<T> {
    result.map_err(|error| Unread::from(CliError::from(error).in_cloud()))
}

/// Reads an installation. `ours`: the release of this command.
pub(super) async fn installation(examined: &Examined, ours: &str) -> InstallationRead {
    let Examined { aws, stack_name, stack, .. } = examined;
    let mut buckets = Vec::new();
    let mut agent = None;
    if let Ok(installation) = &examined.installation {
        buckets.push(bucket("asset bucket", &installation.assets, false).await);
        if let Ok(specs) = installation.specs().await {
            buckets.push(bucket("spec bucket", &specs, true).await);
        }
        agent = Some(published(&installation.assets).await);
    }
    // Without the stack nobody knows its resources.
    let (mut rules, mut schedules, mut alarms, mut queues, mut key) = (None, None, None, Vec::new(), None);
    if let Ok(stack) = stack {
        match aws.stack_resources(stack_name).await {
            Ok(resources) => {
                rules = Some(Ok(rules_of(aws, &resources).await));
                schedules = Some(schedules_of(aws, &resources).await);
                alarms = Some(account::alarms(aws, stack, &resources).await);
            }
            Err(error) => rules = Some(Err(Unread::from(error))),
        }
        queues = queues_of(aws, stack).await;
        if let Some(arn) = stack.outputs.get("KeyArn") {
            key = Some(key_of(aws, arn).await);
        }
    }
    let stack = match stack {
        Ok(stack) => Ok(stack.clone()),
        Err(error) => Err(Unread::from(error)),
    };
    InstallationRead {
        stack_name: stack_name.clone(),
        stack,
        ours: ours.to_owned(),
        buckets,
        rules,
        schedules,
        alarms,
        queues,
        key,
        agent,
    }
}

async fn bucket(about: &'static str, bucket: &S3Bucket, tells: bool) -> BucketRead {
    let (versioned, closed, encryption) =
        tokio::join!(bucket.is_versioned(), bucket.blocks_public_access(), bucket.encryption());
    BucketRead {
        about,
        name: bucket.name().to_owned(),
        versioned: read(versioned),
        closed: read(closed),
        encryption: read(encryption),
        tells: if tells { Some(read(bucket.tells_event_bridge().await)) } else { None },
    }
}

/// The bus and the name of a rule by its physical id, which is `BUS|RULE` for a rule on another bus than the default one
/// (<https://github.com/aws-cloudformation/cloudformation-coverage-roadmap/issues/1131>).
fn place(physical_id: &str) -> (&str, &str) {
    physical_id.split_once('|').unwrap_or(("default", physical_id))
}

async fn rules_of(aws: &Aws, resources: &[InstalledResource]) -> Vec<RuleRead> {
    let rules = resources.iter().filter(|one| one.kind == "AWS::Events::Rule").map(|one| async move {
        let (bus, name) = place(&one.physical_id);
        let enabled = read(aws.rule_is_enabled(bus, name).await);
        let targets = match &enabled {
            Ok(None) => Ok(0),
            Ok(Some(_)) | Err(_) => read(aws.targets_of_rule(bus, name).await),
        };
        RuleRead { id: one.logical_id.clone(), bus: bus.to_owned(), name: name.to_owned(), enabled, targets }
    });
    stream::iter(rules).buffered(AT_A_TIME).collect().await
}

async fn schedules_of(aws: &Aws, resources: &[InstalledResource]) -> Vec<ScheduleRead> {
    let mut schedules = Vec::new();
    for one in resources.iter().filter(|one| one.kind == "AWS::Scheduler::Schedule") {
        let schedule = read(aws.schedule(&one.physical_id).await);
        schedules.push(ScheduleRead { id: one.logical_id.clone(), name: one.physical_id.clone(), schedule });
    }
    schedules
}

async fn queues_of(aws: &Aws, stack: &InstalledStack) -> Vec<QueueRead> {
    let mut queues = Vec::new();
    for (output, url) in stack.outputs.iter().filter(|(name, _)| name.ends_with("DeadLettersUrl")) {
        let depth = read(aws.queue_depth(url).await);
        queues.push(QueueRead { output: output.clone(), url: url.clone(), depth });
    }
    queues
}

async fn key_of(aws: &Aws, arn: &str) -> KeyRead {
    // As credentials are sealed, for a cluster that there is not.
    let context: Context = [("cluster", "slipway-doctor"), ("role", "none")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    let (key, rotated, policy, usable) = tokio::join!(
        aws.key(arn),
        aws.key_is_rotated(arn),
        aws.key_policy(arn),
        aws.may_generate_data_key(arn, &context)
    );
    KeyRead {
        arn: arn.to_owned(),
        key: read(key),
        rotated: read(rotated),
        policy: read(policy),
        usable: read(usable),
    }
}

async fn published(assets: &S3Bucket) -> AgentRead {
    use slipway_ports::Listing as _;
    AgentRead {
        published: in_cloud(store::load::<Agent>(assets, keys::AGENT_MANIFEST).await)
            .map(|agent| agent.value.unwrap_or_default()),
        stored: read(assets.list("agent/", MOST_AGENTS).await),
    }
}

/// What specs may use, and where.
pub(super) async fn site(installation: &Installation) -> Read<Site> {
    Ok(installation.render_settings().await?.site())
}

/// Reads a cluster and its newest spec.
pub(super) async fn cluster(
    cloud: &Cloud,
    site: &Read<Site>,
    now: Timestamp,
) -> (ClusterRead, Option<SpecRead>) {
    let name = cloud.cluster.clone();
    let view = match Overview::read(cloud, &mut Reports::default(), now).await {
        Ok(view) => view,
        Err(error) => {
            let read = ClusterRead { name, state: Err(error.into()), backups: None, pins: None };
            return (read, None);
        }
    };
    let stands = view.serving.state != ServingState::Gone;
    let (mut backups, mut pins, mut spec) = (None, None, None);
    if stands && !view.spec_is_past {
        let checked = stored_spec(cloud).await;
        match checked {
            Ok(None) => {}
            Ok(Some(checked)) => {
                let about = format!("{name}: spec");
                if let Ok(checked) = &checked {
                    pins = Some(pins_of(cloud, checked).await);
                    backups = Some(backups_of(cloud, checked).await);
                }
                spec = Some(spec_of(Some(cloud), about, checked, site).await);
            }
            Err(unread) => pins = Some(Err(unread)),
        }
    }
    let state = StateRead {
        rollout: view.rollout.state,
        since: view.rollout.ended_at.or(view.rollout.started_at),
        first: view.certificates.first().map(|one| (one.name.clone(), one.days_left)),
        serving: view.serving,
        findings: view.findings,
    };
    (ClusterRead { name, state: Ok(state), backups, pins }, spec)
}

type SpecCheck = Result<Checked, Vec<slipway_core::diagnostic::Diagnostic>>;

/// The newest spec in the spec bucket, with its findings. `None`: there is none.
async fn stored_spec(cloud: &Cloud) -> Read<Option<SpecCheck>> {
    let object = read(cloud.specs().await?.get(&keys::spec(&cloud.cluster)).await)?;
    let expected = slipway_spec::Expected { name: &cloud.cluster, region: Some(cloud.region()) };
    Ok(object.map(|object| check(&object.bytes, Some(&expected), &PatchSet::default())))
}

/// What a spec in a file needs. `cloud`: its cluster, which may not exist yet.
pub(super) async fn own_spec(cloud: Option<&Cloud>, source: &Source, site: &Read<Site>) -> SpecRead {
    let checked = match cloud {
        Some(cloud) => source.parse_for(&cloud.cluster, cloud.region()),
        None => source.parse(),
    };
    spec_of(cloud, source.name.clone(), checked, site).await
}

async fn spec_of(cloud: Option<&Cloud>, about: String, checked: SpecCheck, site: &Read<Site>) -> SpecRead {
    let apply = match cloud {
        Some(cloud) => format!("slipway apply cluster.yaml --cluster {}", cloud.cluster),
        None => "slipway apply cluster.yaml".to_owned(),
    };
    let mut spec = SpecRead {
        about,
        apply,
        cluster: None,
        diagnostics: Vec::new(),
        objections: None,
        images: BTreeMap::new(),
        no_agent: BTreeSet::new(),
    };
    let checked = match checked {
        Ok(checked) => checked,
        Err(diagnostics) => return SpecRead { diagnostics, ..spec },
    };
    spec.objections = Some(match site {
        Ok(site) => Ok(checked.places.findings(slipway_spec::allowed::objections(&checked.cluster, site))),
        Err(unread) => Err(unread.clone()),
    });
    if let Some(cloud) = cloud {
        let lock = store::load::<Lock>(cloud.assets(), &keys::lock(&cloud.cluster)).await;
        let lock = lock.ok().and_then(|lock| lock.value).unwrap_or_default();
        let agent = store::load::<Agent>(cloud.assets(), keys::AGENT_MANIFEST).await;
        // If it cannot be read, the check of the agent says so.
        let agent = agent.map(|agent| agent.value.unwrap_or_default());
        let missing = lock.missing(&checked.cluster).agent.into_iter();
        spec.no_agent =
            missing.filter(|one| agent.as_ref().is_ok_and(|agent| !agent.contains_key(one))).collect();
        let parameters = cloud.parameters();
        for name in lock.outdated(&checked.cluster, &BTreeSet::from([Pin::Images])).parameters {
            let value = read(parameters.value(&name).await);
            spec.images.insert(name, value);
        }
    }
    spec.diagnostics = slipway_spec::advice(&checked.cluster, &checked.places);
    spec.diagnostics.extend(checked.warnings);
    spec.cluster = Some(Box::new(checked.cluster));
    spec
}

async fn pins_of(cloud: &Cloud, checked: &Checked) -> Read<Vec<super::super::upgrade::Row>> {
    let pins: BTreeSet<Pin> = Pin::ALL.into();
    let cluster = &checked.cluster;
    let (old, new) = in_cloud(lock::preview(cloud.assets(), &cloud.parameters(), cluster, &pins).await)?;
    Ok(rows(cluster, &old, &new, &pins))
}

async fn backups_of(cloud: &Cloud, checked: &Checked) -> Read<Backups> {
    let rollout = cloud.known_rollout().await?;
    let snapshots = Snapshots::read(cloud, rollout.as_ref().and_then(|rollout| rollout.etcd_gone_at)).await?;
    let every_hours = checked.cluster.etcd.snapshots.map(|one| one.every_hours);
    let since =
        rollout.as_ref().and_then(|rollout| rollout.rollback_targets.iter().map(|good| good.ended_at).min());
    Ok(Backups { every_hours, newest: snapshots.newest_verified(), since })
}
