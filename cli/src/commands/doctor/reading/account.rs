//! Reads the account: its quotas, the installation's alarms, and what whoever signed in may do.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use slipway_aws::{Aws, InstalledResource, InstalledStack, Quota};
use slipway_core::cluster::Cluster;

use super::super::alarms::AlarmsRead;
use super::super::findings::{Read, Unread};
use super::super::permissions::{PermissionsRead, Places, Principal, principal};
use super::super::quotas::{Amount, Limit, Needs, QuotasRead, Room, without_family};
use super::read;
use crate::cloud::Examined;

/// Reads the quotas that the cluster of a spec needs beyond those that it has in use already. `stands`: the cluster as it runs.
pub(in super::super) async fn quotas(
    aws: &Aws,
    about: &str,
    cluster: &Cluster,
    stands: Option<&Cluster>,
    now: Timestamp,
) -> QuotasRead {
    let needs = Needs::for_cluster(cluster);
    let present = stands.map(Needs::for_cluster).unwrap_or_default();
    let types: BTreeSet<String> = needs.types().union(&present.types()).cloned().collect();
    let vcpus = read(aws.vcpus(&types).await);
    let no_types = match &vcpus {
        Ok(vcpus) => Ok(needs.types().into_iter().filter(|name| !vcpus.contains_key(name)).collect()),
        Err(unread) => Err(unread.clone()),
    };
    let vcpus = vcpus.unwrap_or_default();
    let present = present.amounts(&vcpus);
    let mut rooms = Vec::new();
    let mut gateways = None;
    for ((limit, zone), amount) in needs.amounts(&vcpus) {
        let has = present.get(&(limit, zone.clone())).copied().unwrap_or_default();
        let needed = Amount {
            launch: amount.launch.saturating_sub(has.launch),
            most: amount.most.saturating_sub(has.most),
        };
        if needed == Amount::default() {
            continue;
        }
        let (service, code) = limit.code();
        let quota = read(aws.quota(service, code).await);
        let used = match limit {
            Limit::Vcpus(_) | Limit::SpotVcpus(_) => used_vcpus(aws, &quota, now).await,
            Limit::Addresses => counted(read(aws.elastic_addresses().await)),
            Limit::Vpcs => counted(read(aws.vpcs().await)),
            Limit::Balancers => counted(read(aws.network_load_balancers().await)),
            Limit::NatGateways => {
                if gateways.is_none() {
                    gateways = Some(read(aws.nat_gateways().await));
                }
                let found = gateways.clone().unwrap_or_else(|| Ok(BTreeMap::new()));
                let of_zone = |found: BTreeMap<String, usize>| {
                    zone.as_ref().and_then(|zone| found.get(zone).copied()).unwrap_or_default()
                };
                counted(found.map(of_zone))
            }
        };
        let quota = quota.map(|quota| quota.map(|quota| quota.value));
        rooms.push(Room { limit, zone, needed, quota, used });
    }
    QuotasRead {
        about: about.to_owned(),
        region: aws.region().to_owned(),
        no_types,
        no_family: without_family(&needs.types()),
        rooms,
    }
}

fn counted(found: Read<usize>) -> Read<f64> {
    found.map(|count| count as f64)
}

/// The vCPUs that run, as CloudWatch measures them for that quota.
async fn used_vcpus(aws: &Aws, quota: &Read<Option<Quota>>, now: Timestamp) -> Read<f64> {
    let Ok(Some(quota)) = quota else { return Ok(0.0) };
    match &quota.usage {
        Some(metric) => read(aws.usage(metric, now).await),
        None => Err(Unread {
            why: format!("Service Quotas names no metric of how much of {} is used", quota.name),
            help: "count them by hand: aws ec2 describe-instances --filters Name=instance-state-name,Values=running"
                .to_owned(),
            denied: false,
        }),
    }
}

/// Reads the alarms of the installation's stack.
pub(in super::super) async fn alarms(
    aws: &Aws,
    stack: &InstalledStack,
    resources: &[InstalledResource],
) -> AlarmsRead {
    let of_stack = resources.iter().filter(|one| one.kind == "AWS::CloudWatch::Alarm");
    let wanted: BTreeMap<String, String> =
        of_stack.map(|one| (one.logical_id.clone(), one.physical_id.clone())).collect();
    let names: Vec<&str> = wanted.values().map(String::as_str).collect();
    let found = read(aws.alarms(&names).await);
    let topic = stack.parameters.get("AlarmTopicArn").filter(|topic| !topic.is_empty()).cloned();
    AlarmsRead { wanted, found, topic }
}

/// Reads what whoever signed in may do in the installation. `cluster`: the one that stands for all.
pub(in super::super) async fn permissions(examined: &Examined, cluster: &str) -> PermissionsRead {
    let aws = &examined.aws;
    let caller = read(aws.caller().await);
    let Ok(found) = &caller else { return PermissionsRead { caller, places: None, missing: None } };
    let Some(places) = places(examined, &found.account, cluster).await else {
        return PermissionsRead { caller, places: None, missing: None };
    };
    let arn = match principal(&found.arn) {
        Principal::User(arn) => Ok(Some(arn)),
        // Its session does not show the role's path.
        Principal::Role(name) => read(aws.role_arn(&name).await),
        Principal::Root | Principal::Other => Ok(None),
    };
    let missing = match arn {
        Ok(Some(arn)) => Some(simulated(aws, &arn, &places).await),
        Ok(None) => None,
        Err(unread) => Some(Err(unread)),
    };
    PermissionsRead { caller, places: Some(places), missing }
}

/// `None`: the installation could not be read, which is a finding of its own.
async fn places(examined: &Examined, account: &str, cluster: &str) -> Option<Places> {
    let installation = examined.installation.as_ref().ok()?;
    let outputs = &examined.stack.as_ref().ok()?.outputs;
    Some(Places {
        region: examined.aws.region().to_owned(),
        account: account.to_owned(),
        stack: examined.stack_name.clone(),
        asset_bucket: installation.assets.name().to_owned(),
        spec_bucket: installation.specs().await.ok()?.name().to_owned(),
        bus: outputs.get("BusName")?.clone(),
        key: outputs.get("KeyArn")?.clone(),
        cluster: cluster.to_owned(),
    })
}

async fn simulated(aws: &Aws, arn: &str, places: &Places) -> Read<BTreeSet<(String, String)>> {
    let mut missing = BTreeSet::new();
    for (resources, actions) in places.questions() {
        missing.extend(aws.not_allowed(arn, &actions, &resources).await?);
    }
    Ok(missing)
}
