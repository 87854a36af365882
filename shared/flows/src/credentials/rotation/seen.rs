//! Collects what is known of a cluster's nodes, from their reports and from what was rolled out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use slipway_core::keys;
use slipway_core::node::{Base, NodeStatus};
use slipway_core::release::Rendering;
use slipway_core::role::Role;
use slipway_credentials::rotation::{NodeReport, Seen};
use slipway_ports::{Listing, Objects};
use slipway_rollout::Rollout;
use slipway_rollout::fleet::Lifecycle;

use crate::error::{FlowError, FlowResult};
use crate::ports::Groups;
use crate::store::{self, AT_A_TIME};

/// The existing machines by role, as Auto Scaling lists them. Roles that were not queried are missing.
pub type Machines = BTreeMap<Role, BTreeSet<String>>;

/// The maximum number of reports that are listed, including those of former nodes.
const MOST: usize = 100_000;

/// The deployed releases, each with its stack.
type DeployedReleases = Vec<(Option<String>, Arc<Rendering>)>;

/// The last report of every node of `cluster`, the machines that Auto Scaling has, and the credentials that they boot with. A report that
/// cannot be read is ignored.
///
/// # Errors
/// If a port fails, or a deployed release is lost, because then it is unknown what machines boot with.
pub async fn see<A: Objects + Listing>(assets: &A, groups: &impl Groups, cluster: &str) -> FlowResult<Seen> {
    let standing = deployed_releases(assets, cluster).await?;
    let boots_with = boots_with(&standing);
    // A machine that is being drained still has pods that communicate, so it counts until it is gone. So does one in standby.
    let machines = machines(groups, cluster, &standing, |lifecycle| match lifecycle {
        Lifecycle::Pending | Lifecycle::InService | Lifecycle::TerminatingWait | Lifecycle::Elsewhere => true,
        Lifecycle::Terminating | Lifecycle::Retained => false,
    });
    let machines = machines.await?;
    let prefix = format!("clusters/{cluster}/nodes/");
    let listed = assets.list(&prefix, MOST).await?;
    let reads = listed.into_iter().filter_map(|one| {
        let (role, node) = one.key.strip_prefix(&prefix)?.strip_suffix("/status.json")?.split_once('/')?;
        let (role, node) = (role.parse::<Role>().ok()?, node.to_owned());
        // Reports of machines that no longer exist do not count.
        let gone = machines.get(&role).is_some_and(|machines| !machines.contains(&node));
        (!gone && boots_with.contains_key(&role)).then_some(async move {
            let object = assets.get(&one.key).await?;
            let status = object.and_then(|object| serde_json::from_slice::<NodeStatus>(&object.bytes).ok());
            // A node can write whatever it likes, also about another one.
            let status = status.filter(|status| {
                status.role == role.to_string() && status.instance.as_ref().is_none_or(|of| of.id == node)
            });
            FlowResult::Ok(status.map(|status| (role, node, NodeReport::from(&status))))
        })
    });
    let reads: Vec<_> = reads.collect();
    let heard: Vec<_> = stream::iter(reads).buffer_unordered(AT_A_TIME).try_collect().await?;
    let mut nodes: BTreeMap<Role, BTreeMap<String, NodeReport>> = BTreeMap::new();
    for (role, node, heard) in heard.into_iter().flatten() {
        nodes.entry(role).or_default().insert(node, heard);
    }
    Ok(Seen { nodes, machines, boots_with, vouched: false })
}

/// The machines of each role whose group exists, in the lifecycle states for which `counts` holds.
pub(crate) async fn machines(
    groups: &impl Groups,
    cluster: &str,
    standing: &DeployedReleases,
    counts: fn(Lifecycle) -> bool,
) -> FlowResult<Machines> {
    let mut names: BTreeMap<Role, BTreeSet<String>> = BTreeMap::new();
    for (stack, release) in standing {
        for (role, node) in &release.roles {
            let stands = stack.as_ref().is_none_or(|stack| *stack == node.stack);
            // The configuration is written by rendering, for the agent.
            let base = serde_json::from_str::<Base>(&node.config).ok().filter(|_| stands);
            names.entry(role.clone()).or_default().extend(base.map(|base| base.auto_scaling_group));
        }
    }
    let mut machines = Machines::new();
    for (role, names) in names {
        for name in names {
            let Some(group) = groups.group(&name).await? else { continue };
            // A group of that name that belongs to somebody else does not count.
            if group.tags.get("slipway:cluster").is_none_or(|owner| owner != cluster) {
                continue;
            }
            let there = group.machines.into_iter().filter(|(_, machine)| counts(machine.lifecycle));
            machines.entry(role.clone()).or_default().extend(there.map(|(instance, _)| instance));
        }
    }
    Ok(machines)
}

/// The digests in the launch templates of each deployed role, and those that a rollout in progress brings to them.
fn boots_with(standing: &DeployedReleases) -> BTreeMap<Role, BTreeSet<String>> {
    let mut boots: BTreeMap<Role, BTreeSet<String>> = BTreeMap::new();
    for (stack, release) in standing {
        for (role, node) in &release.roles {
            if stack.as_ref().is_none_or(|stack| *stack == node.stack) {
                boots.entry(role.clone()).or_default().insert(node.credentials_digest.clone());
            }
        }
    }
    boots
}

/// The release of each deployed stack, and, without a stack, the target of a rollout in progress.
pub(crate) async fn deployed_releases<A: Objects>(assets: &A, cluster: &str) -> FlowResult<DeployedReleases> {
    let rollout = store::load::<Rollout>(assets, &keys::rollout(cluster)).await?.value;
    let Some(rollout) = rollout else { return Ok(Vec::new()) };
    let mut stacks: BTreeSet<(Option<String>, String)> =
        rollout.standing().into_iter().map(|(stack, release)| (Some(stack), release)).collect();
    stacks.extend(rollout.active().map(|active| (None, active.target.clone())));
    let ids: BTreeSet<String> = stacks.iter().map(|(_, release)| release.clone()).collect();
    let loads = ids.into_iter().map(|id| async move {
        let key = keys::release(cluster, &id);
        let release = store::load::<Rendering>(assets, &key).await?.value;
        let release = release.ok_or_else(|| FlowError::Corrupt {
            key,
            problem: "is lost, and what is deployed refers to it".to_owned(),
            help: "bring back a version of the object (the bucket keeps them), or upload the spec again"
                .to_owned(),
        })?;
        FlowResult::Ok((id, Arc::new(release)))
    });
    let releases: BTreeMap<String, Arc<Rendering>> =
        stream::iter(loads).buffer_unordered(AT_A_TIME).try_collect().await?;
    Ok(stacks.into_iter().map(|(stack, release)| (stack, Arc::clone(&releases[&release]))).collect())
}
