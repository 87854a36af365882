//! When the next stage may begin: what every node has to report first, and what is waited for, in words.
//!
//! The gate is closed unless everything is known. A node without a report keeps it closed, and so does a launch template that would start
//! machines with earlier credentials.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use slipway_core::cluster::Cluster;
use slipway_core::node::NodeStatus;
use slipway_core::role::{CA, KUBELET_CA, Role, SERVICE_ACCOUNT, predecessor, successor};

use super::{Rotation, Stage, affected_roles};
use crate::{Manifest, policy};

/// The default lifetime of kubelet certificates from kube-controller-manager, and of pods' tokens that kube-apiserver extends. Agents of this
/// release have certificates signed for thirty days (agent, `kube/controller_manager.rs`). But kubelets of clusters that ran before have some
/// of a year, and a cluster's lock may pin an earlier agent: nobody who holds such a certificate may be locked out (P7).
const YEAR: SignedDuration = SignedDuration::from_hours(365 * 24);
/// Allowance for differing clocks and backdating.
const SLACK: SignedDuration = SignedDuration::from_hours(1);

/// A node's last report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeReport {
    /// When it was written, by the node's clock.
    pub at: Timestamp,
    /// The digest of the credentials in use.
    pub credentials: Option<String>,
    /// Whether the node has what it was told to have, with no bootstrap or refresh in progress.
    pub matches_node_file: bool,
    /// The fingerprints of the served certificates that are in the inventory, by the listener's name.
    pub serves: BTreeMap<String, String>,
}

impl From<&NodeStatus> for NodeReport {
    fn from(status: &NodeStatus) -> Self {
        // The kubelet requests its own certificate, which is in no inventory.
        let ours = status.served.iter().filter(|one| one.verifiable && one.name != "kubelet");
        let serves =
            ours.filter_map(|one| Some((one.name.clone(), one.certificate.as_ref()?.fingerprint.clone())));
        Self {
            at: status.at,
            credentials: status.applied.credentials.clone(),
            matches_node_file: status.applied.matches_node_file,
            serves: serves.collect(),
        }
    }
}

/// The last report of a node that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableReport {
    /// Its key.
    pub key: String,
    /// What is wrong with it.
    pub problem: String,
}

/// What is known of the nodes of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KnownNodes {
    /// The last reports, by role and machine. Machines that no longer exist may be among them.
    pub nodes: BTreeMap<Role, BTreeMap<String, NodeReport>>,
    /// The last reports that cannot be read, by role and machine. A node can write anything in place of its report, so such a machine may have
    /// any credentials.
    pub unreadable: BTreeMap<Role, BTreeMap<String, UnreadableReport>>,
    /// The existing machines, as Auto Scaling lists them. A role that is missing was not queried; then every machine that ever reported
    /// counts.
    pub machines: BTreeMap<Role, BTreeSet<String>>,
    /// The digests with which a machine of each role would start now, from the launch templates that are deployed and being deployed. A
    /// role that is missing has no stack.
    pub boots_with: BTreeMap<Role, BTreeSet<String>>,
    /// A person confirms that every node has what the inventory says, for a cluster whose nodes cannot be queried.
    pub vouched: bool,
}

/// The next step of a rotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// The new one issues, and everything that the old one signed is issued anew.
    Issue,
    /// One is removed: the old one, or the new one after an abort.
    Drop,
    /// Every node has the stage. From now on the rotation waits until what the other one signed has expired.
    Settle,
    /// A node went back to an earlier stage, so the waiting time starts again later.
    Unsettle(Vec<Wait>),
    /// Every node has the last stage: the rotation ends.
    End,
    /// The rotation waits.
    Wait(Vec<Wait>),
}

/// What a rotation waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// A role of the spec has no stack yet.
    NotRolledOut(Role),
    /// New machines of the role would start with earlier credentials.
    Template(Role),
    /// A role that the spec no longer has still exists, with earlier credentials.
    StillDeployed(Role),
    /// Too few nodes of a role have reported: how many did, and how many are needed.
    TooFew(Role, usize, u32),
    /// An existing machine has never reported.
    NeverReported(Role, String),
    /// The last report of an existing machine cannot be read.
    Unreadable(Role, String),
    /// The machine last reported other credentials.
    Other(Role, String, Timestamp),
    /// The machine last reported that a bootstrap or refresh is in progress.
    UnderWay(Role, String, Timestamp),
    /// The machine serves a certificate that is no longer in the inventory.
    Serves(Role, String, String),
    /// What the other one signed may be valid until then.
    Until(Timestamp, &'static str),
}

impl Wait {
    /// Whether some machine has, or a new one would get, the credentials of an earlier stage.
    fn is_back(&self) -> bool {
        match self {
            Self::Template(_) | Self::StillDeployed(_) | Self::Other(..) => true,
            Self::NotRolledOut(_)
            | Self::TooFew(..)
            | Self::NeverReported(..)
            | Self::Unreadable(..)
            | Self::UnderWay(..)
            | Self::Serves(..)
            | Self::Until(..) => false,
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRolledOut(role) => {
                write!(f, "{role} is in the spec and is not deployed yet: roll it out")
            }
            Self::Template(role) => {
                write!(
                    f,
                    "a new machine of {role} would start with the previous credentials: roll out the newest rendering"
                )
            }
            Self::StillDeployed(role) => write!(
                f,
                "{role} is no longer in the spec and is still deployed: drain it and delete its stack, or add it to the spec again"
            ),
            Self::TooFew(role, heard, least) => {
                write!(f, "{heard} of at least {least} nodes of {role} were heard of")
            }
            Self::NeverReported(role, node) => write!(
                f,
                "{node} of {role} was never heard of: see that it runs, and that `/var/lib/slipway/slipway-node status --publish` works there"
            ),
            Self::Unreadable(role, node) => write!(
                f,
                "the last report of {node} of {role} cannot be read: replace that machine, and find out what runs on it if a new one does the same"
            ),
            Self::Other(role, node, at) => write!(
                f,
                "the last report of {node} of {role}, of {at}, shows the previous credentials: refresh or replace it; if the machine is gone, delete its \
                 status.json"
            ),
            Self::UnderWay(role, node, at) => {
                write!(f, "the last report of {node} of {role}, of {at}, says that its update is in progress")
            }
            Self::Serves(role, node, listener) => {
                write!(f, "{listener} on {node} of {role} serves a certificate that was replaced: refresh it")
            }
            Self::Until(at, what) => write!(f, "until {at} {what}"),
        }
    }
}

/// The next step of the rotation of `name`. `None`: it is not being rotated.
#[must_use]
pub fn next(
    cluster: &Cluster,
    manifest: &Manifest,
    name: &str,
    seen: &KnownNodes,
    now: Timestamp,
) -> Option<Next> {
    let rotation = manifest.rotations.get(name)?;
    let waits = if seen.vouched { Vec::new() } else { closed(cluster, manifest, name, rotation, seen) };
    if !waits.is_empty() {
        let back = rotation.settled.is_some() && waits.iter().any(Wait::is_back);
        return Some(if back { Next::Unsettle(waits) } else { Next::Wait(waits) });
    }
    Some(match (rotation.stage, rotation.aborted) {
        (Stage::Trust, false) => Next::Issue,
        (Stage::Drop, _) => Next::End,
        (Stage::Trust, true) | (Stage::Issue, _) => match outlived(cluster, manifest, name, rotation) {
            Outlived::AtOnce => Next::Drop,
            Outlived::NotCounted => Next::Settle,
            Outlived::At(end, _) if now >= end => Next::Drop,
            Outlived::At(end, what) => Next::Wait(vec![Wait::Until(end, what)]),
        },
    })
}

/// When the last thing expires that the one to be removed has signed outside of the inventory.
enum Outlived {
    AtOnce,
    NotCounted,
    At(Timestamp, &'static str),
}

fn outlived(cluster: &Cluster, manifest: &Manifest, name: &str, rotation: &Rotation) -> Outlived {
    let Some((life, what)) = life(cluster, name) else { return Outlived::AtOnce };
    let Some(settled) = rotation.settled else { return Outlived::NotCounted };
    let counted = settled.checked_add(life).and_then(|end| end.checked_add(SLACK));
    let counted = counted.unwrap_or(Timestamp::MAX);
    // What an authority signed expires with it at the latest.
    let going = [predecessor(name), successor(name)];
    let ends = going.iter().filter_map(|name| manifest.assets.get(name)?.certificate.as_ref());
    let end = ends.map(|facts| facts.not_after).fold(counted, Timestamp::min);
    Outlived::At(end, what)
}

/// The lifetime of what is signed on the nodes, and what that is.
fn life(cluster: &Cluster, name: &str) -> Option<(SignedDuration, &'static str)> {
    let flag = |flags: &BTreeMap<String, String>, name: &str| flags.get(name).and_then(|text| duration(text));
    match name {
        KUBELET_CA => {
            let flags = &cluster.kubernetes.controller_manager.flags;
            let life = flag(flags, "cluster-signing-duration").unwrap_or(YEAR);
            Some((life, "kubelets may have certificates that the other one signed"))
        }
        SERVICE_ACCOUNT => {
            let flags = &cluster.kubernetes.api_server.flags;
            let most = flag(flags, "service-account-max-token-expiration");
            let extended =
                flags.get("service-account-extend-token-expiration").is_none_or(|is| is != "false");
            let life = match most {
                Some(most) if !extended => most,
                Some(most) => most.max(YEAR),
                None => YEAR,
            };
            Some((life, "pods may have tokens that the other one signed"))
        }
        _ => None,
    }
}

/// A duration in Go's format: `8760h0m0s`.
fn duration(text: &str) -> Option<SignedDuration> {
    let mut total = SignedDuration::ZERO;
    let mut digits = String::new();
    for character in text.chars() {
        if character.is_ascii_digit() {
            digits.push(character);
            continue;
        }
        let count: i64 = std::mem::take(&mut digits).parse().ok()?;
        let seconds = match character {
            'h' => count.checked_mul(3600)?,
            'm' => count.checked_mul(60)?,
            's' => count,
            _ => return None,
        };
        total = total.checked_add(SignedDuration::from_secs(seconds))?;
    }
    (digits.is_empty() && !text.is_empty()).then_some(total)
}

/// All reasons why the gate is closed; empty: it is open.
fn closed(
    cluster: &Cluster,
    manifest: &Manifest,
    name: &str,
    rotation: &Rotation,
    seen: &KnownNodes,
) -> Vec<Wait> {
    let mut waits = Vec::new();
    let current: BTreeSet<&str> = manifest.assets.values().map(|entry| entry.fingerprint.as_str()).collect();
    for role in affected_roles(cluster, name) {
        let digests = rotation.digests.get(&role).cloned().unwrap_or_default();
        match seen.boots_with.get(&role) {
            None => {
                waits.push(Wait::NotRolledOut(role));
                continue;
            }
            Some(boots) if !boots.is_subset(&digests) => waits.push(Wait::Template(role.clone())),
            Some(_) => {}
        }
        waits.extend(machines(cluster, rotation, seen, &role, &digests, &current));
    }
    let roles = policy::roles(cluster);
    for (role, boots) in seen.boots_with.iter().filter(|(role, _)| !roles.contains(role)) {
        match keeps_up(manifest, role, name, rotation) {
            KeepsUp::Always => {}
            KeepsUp::With(digests) => {
                let waiting_machines = machines(cluster, rotation, seen, role, &digests, &current);
                if !waiting_machines.is_empty() || !boots.is_subset(&digests) {
                    waits.push(Wait::StillDeployed(role.clone()));
                }
                waits.extend(waiting_machines);
            }
            KeepsUp::Never => waits.push(Wait::StillDeployed(role.clone())),
        }
    }
    waits
}

/// What is missing of the machines of a role, which have to report one of the `digests`. `current`: the fingerprints in the inventory.
fn machines(
    cluster: &Cluster,
    rotation: &Rotation,
    seen: &KnownNodes,
    role: &Role,
    digests: &BTreeSet<String>,
    current: &BTreeSet<&str>,
) -> Vec<Wait> {
    let mut waits = Vec::new();
    let none = BTreeMap::new();
    let heard = seen.nodes.get(role).unwrap_or(&none);
    let machines = seen.machines.get(role);
    let counts = |node: &String| machines.is_none_or(|machines| machines.contains(node));
    let unreadable = seen.unreadable.get(role);
    let is_unreadable = |node: &String| unreadable.is_some_and(|nodes| nodes.contains_key(node));
    let silent = machines.into_iter().flatten();
    let silent = silent.filter(|node| !heard.contains_key(*node) && !is_unreadable(node));
    waits.extend(silent.map(|node| Wait::NeverReported(role.clone(), node.clone())));
    let unknown = unreadable.into_iter().flat_map(BTreeMap::keys).filter(|node| counts(node));
    waits.extend(unknown.map(|node| Wait::Unreadable(role.clone(), node.clone())));
    let (count, least) = (heard.keys().filter(|node| counts(node)).count(), least(cluster, role));
    if machines.is_none() && count < usize::try_from(least).unwrap_or(usize::MAX) {
        waits.push(Wait::TooFew(role.clone(), count, least));
    }
    for (node, report) in heard.iter().filter(|(node, _)| counts(node)) {
        let has = report.credentials.as_ref().is_some_and(|digest| digests.contains(digest));
        if !has {
            waits.push(Wait::Other(role.clone(), node.clone(), report.at));
        } else if !report.matches_node_file {
            waits.push(Wait::UnderWay(role.clone(), node.clone(), report.at));
        } else if rotation.removes_authority() {
            let old = report.serves.iter().filter(|(_, fingerprint)| !current.contains(fingerprint.as_str()));
            waits.extend(old.map(|(name, _)| Wait::Serves(role.clone(), node.clone(), name.clone())));
        }
    }
    waits
}

/// Whether nodes of a role that gets no new bundles work in the next stage.
enum KeepsUp {
    /// They have nothing that the rotation changes.
    Always,
    /// Those with one of these bundles, which contain what they have to trust then.
    With(BTreeSet<String>),
    /// They present certificates that it signed, and need new ones.
    Never,
}

fn keeps_up(manifest: &Manifest, role: &Role, name: &str, rotation: &Rotation) -> KeepsUp {
    match role {
        Role::Etcd(_) | Role::Controller | Role::Admin => return KeepsUp::Never,
        Role::Pool(_) if ![CA, KUBELET_CA].contains(&name) => return KeepsUp::Always,
        Role::Pool(_) => {}
    }
    let comes = match (rotation.stage, rotation.aborted) {
        (Stage::Trust, false) => successor(name),
        (Stage::Trust, true) | (Stage::Issue | Stage::Drop, _) => name.to_owned(),
    };
    let comes = manifest.assets.get(&comes).map(|entry| &entry.fingerprint);
    let holds = |held: &BTreeSet<String>| comes.is_some_and(|comes| held.contains(comes));
    let bundle = manifest.bundles.get(role).filter(|bundle| holds(&crate::manifest::fingerprints(bundle)));
    let retired = manifest.retired.get(role).into_iter().flatten();
    let earlier = retired.filter(|(_, held)| holds(held)).map(|(digest, _)| digest.clone());
    KeepsUp::With(bundle.map(|bundle| bundle.digest.clone()).into_iter().chain(earlier).collect())
}

/// The minimum number of nodes of a role according to the spec.
fn least(cluster: &Cluster, role: &Role) -> u32 {
    match role {
        Role::Etcd(_) => 1,
        Role::Controller => cluster.controller.count,
        Role::Pool(name) => {
            let pool = cluster.pools.iter().find(|pool| pool.name == *name);
            // A machine may count for several units if types have weights.
            pool.map_or(
                0,
                |pool| if pool.mixed_instances.is_some() { pool.size.min.min(1) } else { pool.size.min },
            )
        }
        Role::Admin => 0,
    }
}
