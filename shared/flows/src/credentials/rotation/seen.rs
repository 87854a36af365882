//! Collects what is known of a cluster's nodes, from their reports and from what was rolled out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use slipway_core::keys;
use slipway_core::node::{Base, NodeStatus};
use slipway_core::release::Rendering;
use slipway_core::role::Role;
use slipway_credentials::renewal;
use slipway_credentials::rotation::{KnownNodes, NodeReport, UnreadableReport};
use slipway_ports::{Listing, Objects};
use slipway_rollout::Rollout;
use slipway_rollout::fleet::Lifecycle;

use crate::error::{FlowError, FlowResult};
use crate::ports::Groups;
use crate::store::{self, AT_A_TIME, MOST_KEPT_BYTES, NodeObject};

/// The existing machines by role, as Auto Scaling lists them. Roles that were not queried are missing.
pub type Machines = BTreeMap<Role, BTreeSet<String>>;

/// The same with the ARN of each, by its id.
type MachinesByArn = BTreeMap<Role, BTreeMap<String, String>>;

/// The maximum number of objects that are listed of a role, including those of former nodes.
const MOST: usize = 10_000;

/// The deployed releases, each with its stack.
type DeployedReleases = Vec<(Option<String>, Arc<Rendering>)>;

/// The last report of every node of `cluster`, the machines that Auto Scaling has, and the credentials that they boot with. A report that
/// cannot be read is kept as such: that machine may have any credentials.
///
/// # Errors
/// If a port fails, or a deployed release is lost, because then it is unknown what machines boot with; or if the reports of a role without a
/// group are too many to be read.
pub async fn see<A: Objects + Listing>(
    assets: &A,
    groups: &impl Groups,
    cluster: &str,
) -> FlowResult<KnownNodes> {
    let standing = deployed_releases(assets, cluster).await?;
    let boots_with = boots_with(&standing);
    // A machine that is being drained still has pods that communicate, so it counts until it is gone. So does one in standby, and a worker that
    // Auto Scaling retains because its pods have not left.
    let every = |_: &Role| true;
    let arns = machine_arns(groups, cluster, &standing, every, |lifecycle| match lifecycle {
        Lifecycle::Pending
        | Lifecycle::InService
        | Lifecycle::TerminatingWait
        | Lifecycle::Retained
        | Lifecycle::Elsewhere => true,
        Lifecycle::Terminating => false,
    });
    let arns = arns.await?;
    let mut seen = KnownNodes { boots_with, ..KnownNodes::default() };
    let mut reports: Vec<(Role, String, String)> = Vec::new();
    for role in seen.boots_with.keys() {
        let name = role.to_string();
        let nodes = match arns.get(role) {
            // Nothing is listed, so whatever else a node writes below the folder of its role, it hides no machine.
            Some(arns) => arns
                .iter()
                .map(|(node, arn)| (node.clone(), keys::node_status(cluster, &name, arn)))
                .collect(),
            None => reported(assets, cluster, role).await?,
        };
        reports.extend(nodes.into_iter().map(|(node, key)| (role.clone(), node, key)));
    }
    let reads = reports.into_iter().map(|(role, node, key)| async move {
        let report = report(assets, &role, &node, &key).await?;
        FlowResult::Ok((role, node, key, report))
    });
    let heard: Vec<_> = stream::iter(reads).buffer_unordered(AT_A_TIME).try_collect().await?;
    for (role, node, key, report) in heard {
        match report {
            NodeObject::Missing => {}
            NodeObject::Read(report) => drop(seen.nodes.entry(role).or_default().insert(node, report)),
            NodeObject::Unreadable(problem) => {
                seen.unreadable.entry(role).or_default().insert(node, UnreadableReport { key, problem });
            }
        }
    }
    seen.machines = ids(arns);
    Ok(seen)
}

/// The machines that hold leaf certificates and have booted, by role, with the keys of their reports: those of etcd and the control plane. One
/// in Standby, and one that Auto Scaling retains, still serve; one that boots serves nothing yet.
///
/// # Errors
/// As [`see`].
pub(crate) async fn machines_with_leaves<A: Objects>(
    assets: &A,
    groups: &impl Groups,
    cluster: &str,
) -> FlowResult<renewal::Machines> {
    let standing = deployed_releases(assets, cluster).await?;
    let holds_leaves = |role: &Role| match role {
        Role::Etcd(_) | Role::Controller => true,
        Role::Pool(_) | Role::Admin => false,
    };
    let arns = machine_arns(groups, cluster, &standing, holds_leaves, |lifecycle| match lifecycle {
        Lifecycle::InService | Lifecycle::TerminatingWait | Lifecycle::Retained | Lifecycle::Elsewhere => {
            true
        }
        Lifecycle::Pending | Lifecycle::Terminating => false,
    });
    let with_keys = |(role, arns): (Role, BTreeMap<String, String>)| {
        let name = role.to_string();
        let key = |(machine, arn): (String, String)| (machine, keys::node_status(cluster, &name, &arn));
        (role, arns.into_iter().map(key).collect())
    };
    Ok(renewal::Machines::Listed(arns.await?.into_iter().map(with_keys).collect()))
}

/// The nodes of `role` that have ever reported, with the keys of their reports, for a role whose machines are not known.
async fn reported(assets: &impl Listing, cluster: &str, role: &Role) -> FlowResult<Vec<(String, String)>> {
    let role = role.to_string();
    let folder = keys::nodes_of(cluster, &role);
    let listed = assets.list(&folder, MOST).await?;
    if listed.len() >= MOST {
        return Err(FlowError::Corrupt {
            key: folder,
            problem: format!("has {MOST} objects or more, so it is not known which nodes have reported"),
            help: "find out which node writes there, and replace it; then delete what it wrote".to_owned(),
        });
    }
    let nodes = listed.into_iter().filter_map(|one| {
        let node = keys::instance_of_status(cluster, &role, &one.key)?.to_owned();
        Some((node, one.key))
    });
    Ok(nodes.collect())
}

/// The last report of a node at its key, if it is one.
///
/// # Errors
/// If the port fails, and may work later.
pub async fn report(
    assets: &impl Objects,
    role: &Role,
    node: &str,
    key: &str,
) -> FlowResult<NodeObject<NodeReport>> {
    let status = match store::read_node_object::<NodeStatus>(assets, key, NodeStatus::MOST_BYTES).await? {
        NodeObject::Missing => return Ok(NodeObject::Missing),
        NodeObject::Read(status) => status,
        NodeObject::Unreadable(why) => return Ok(NodeObject::Unreadable(why)),
    };
    // A node can write whatever it likes, also about another one.
    if status.role != role.to_string() || status.instance.as_ref().is_some_and(|instance| instance.id != node)
    {
        let instance = status.instance.as_ref().map_or("no machine", |instance| instance.id.as_str());
        let claim = format!("it claims to be from {} ({instance})", status.role);
        return Ok(NodeObject::Unreadable(store::clipped(&claim)));
    }
    let report = NodeReport::from(&status);
    let serves = report.serves.iter().map(|(name, fingerprint)| name.len() + fingerprint.len());
    let kept = serves.sum::<usize>() + report.credentials.as_ref().map_or(0, String::len);
    Ok(match kept <= MOST_KEPT_BYTES {
        true => NodeObject::Read(report),
        false => NodeObject::Unreadable(format!(
            "its digest and fingerprints have {kept} bytes, and those of an agent have {MOST_KEPT_BYTES} at most"
        )),
    })
}

/// The machines of each role whose group exists, in the lifecycle states for which `counts` holds.
pub(crate) async fn machines(
    groups: &impl Groups,
    cluster: &str,
    standing: &DeployedReleases,
    counts: fn(Lifecycle) -> bool,
) -> FlowResult<Machines> {
    Ok(ids(machine_arns(groups, cluster, standing, |_| true, counts).await?))
}

fn ids(arns: MachinesByArn) -> Machines {
    arns.into_iter().map(|(role, arns)| (role, arns.into_keys().collect())).collect()
}

/// The same with their ARNs, for the roles that are `wanted`.
async fn machine_arns(
    groups: &impl Groups,
    cluster: &str,
    standing: &DeployedReleases,
    wanted: fn(&Role) -> bool,
    counts: fn(Lifecycle) -> bool,
) -> FlowResult<MachinesByArn> {
    let mut names: BTreeMap<Role, BTreeSet<String>> = BTreeMap::new();
    for (stack, release) in standing {
        for (role, node) in release.roles.iter().filter(|(role, _)| wanted(role)) {
            let stands = stack.as_ref().is_none_or(|stack| *stack == node.stack);
            // The configuration is written by rendering, for the agent.
            let base = serde_json::from_str::<Base>(&node.config).ok().filter(|_| stands);
            names.entry(role.clone()).or_default().extend(base.map(|base| base.auto_scaling_group));
        }
    }
    let mut machines = MachinesByArn::new();
    for (role, names) in names {
        for name in names {
            let Some(group) = groups.group(&name).await? else { continue };
            // A group of that name that belongs to somebody else does not count.
            if group.tags.get("slipway:cluster").is_none_or(|owner| owner != cluster) {
                continue;
            }
            let arns = group.machine_arns;
            let there = group.machines.into_iter().filter(|(_, machine)| counts(machine.lifecycle));
            let there = there.map(|(instance, _)| {
                let arn = arns.arn_of(&instance);
                (instance, arn)
            });
            machines.entry(role.clone()).or_default().extend(there);
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
        rollout.existing_releases().into_iter().map(|(stack, release)| (Some(stack), release)).collect();
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
