//! How each etcd member starts, and on which volume. This is pinned when the spec first asks for the member, and later changes of other
//! members do not change it.
//!
//! etcd reads `initial-cluster` once, when its volume is empty. If that list were computed from the present spec each time, a change of
//! the member count would make every member outdated, although it concerns only the members that are added or removed (P2). A deployed
//! member therefore keeps its pin unchanged. A member that is new, or that gets another volume, joins the existing cluster: first as a
//! learner, and one at a time.
//!
//! A joining member is given no list of members: etcd refuses to start with a list that differs from the membership ("member count is
//! unequal"), and the membership depends on who joined before. Instead its agent asks the existing members to add it, and takes
//! `initial-cluster` from the answer to `member add`, which names all members.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, EtcdMember};
use crate::role::Role;

/// Port for etcd's clients.
pub const CLIENT_PORT: u16 = 2379;

/// Port for traffic between the members.
pub const PEER_PORT: u16 = 2380;

/// What is pinned about one member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MemberPin {
    /// Whether it joins an existing cluster, first as a learner. `false`: it is one of the members that found the cluster.
    pub joins: bool,
    /// Peer URL of each member by name, for a founding member. Empty for a joining member.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub initial_cluster: BTreeMap<String, String>,
    /// Client URLs of the members that existed when this one was first asked for, for a joining member: any of them adds it to the
    /// membership.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub join_endpoints: Vec<String>,
    /// Its data volume.
    pub volume: VolumePin,
}

/// The data volume of a member. A volume cannot move to another zone or be encrypted with another key, so such a change makes a new,
/// empty volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VolumePin {
    /// Counts the member's volumes, from 1.
    pub number: u32,
    /// Its availability zone.
    pub availability_zone: String,
    /// The user's key that encrypts it. `None`: the account's default key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kms_key_arn: Option<String>,
}

impl VolumePin {
    /// Value of its tag `slipway:volume`, by which the node tells it from the member's earlier volumes.
    #[must_use]
    pub fn tag(&self) -> String {
        match self.number {
            0 | 1 => "etcd-data".to_owned(),
            number => format!("etcd-data-{number}"),
        }
    }
}

/// What a release says about an etcd member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MemberRole {
    /// Its peer URL, which etcd stores in its membership.
    pub peer_url: String,
    /// The size of its data volume.
    pub volume_gib: u32,
    /// What is pinned about it.
    pub pin: MemberPin,
    /// The hosted zone of its DNS record.
    pub zone: NameZone,
}

/// The hosted zone of a member's DNS record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NameZone {
    /// The zone that the network stack makes.
    Made,
    /// A zone of the user's, by its id.
    Given(String),
}

impl NameZone {
    /// The zone with that id; without an id, the zone that the network stack makes.
    #[must_use]
    pub fn from_id(id: Option<&str>) -> Self {
        id.map_or(Self::Made, |id| Self::Given(id.to_owned()))
    }
}

/// The member's peer URL: `https://<name>:2380`.
#[must_use]
pub fn peer_url(member: &EtcdMember) -> String {
    format!("https://{}:{PEER_PORT}", member.dns_name)
}

/// The members of `cluster` with their peer URLs, by the name that they have in etcd: their role, whatever their DNS name is. By that name
/// rollouts, reports and commands know them.
fn all(cluster: &Cluster) -> BTreeMap<String, String> {
    cluster
        .etcd
        .members
        .iter()
        .map(|member| (Role::Etcd(member.index).to_string(), peer_url(member)))
        .collect()
}

fn volume(cluster: &Cluster, member: &EtcdMember, number: u32) -> VolumePin {
    VolumePin {
        number,
        availability_zone: cluster.subnet(&member.subnet).availability_zone.clone(),
        kms_key_arn: member.data_volume.kms_key_arn.clone(),
    }
}

/// The pin of `member` as one that founds the cluster.
#[must_use]
pub fn founder(cluster: &Cluster, member: &EtcdMember) -> MemberPin {
    MemberPin {
        joins: false,
        initial_cluster: all(cluster),
        join_endpoints: Vec::new(),
        volume: volume(cluster, member, 1),
    }
}

/// Which members are deployed, for [`settle`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeployedMembers {
    /// None, and no rollout is making any.
    Nothing,
    /// A rollout may be creating these members, so the pins made for it hold.
    InProgress,
    /// These, each with its pin in the deployed release.
    Members(BTreeMap<u32, MemberPin>),
}

/// Client URLs of the members that exist and stay unchanged, for a member that is to join them.
fn endpoints(
    cluster: &Cluster,
    known: &BTreeMap<u32, MemberPin>,
    standing: &DeployedMembers,
    joiner: u32,
) -> Vec<String> {
    let stays = |member: &EtcdMember| {
        let pin = match standing {
            DeployedMembers::Nothing => return false,
            // Members that joined in an earlier upload may not be part of the rollout in progress.
            DeployedMembers::InProgress => known.get(&member.index).filter(|pin| !pin.joins),
            DeployedMembers::Members(members) => members.get(&member.index),
        };
        pin.is_some_and(|pin| pin.volume == volume(cluster, member, pin.volume.number))
    };
    let members = cluster.etcd.members.iter().filter(|member| member.index != joiner && stays(member));
    members.map(|member| format!("https://{}:{CLIENT_PORT}", member.dns_name)).collect()
}

/// The pin of each member of `cluster`. `settled_before` has the pins made for earlier specs.
///
/// The same cluster and the same deployed members give the same pins, and they do not change once they are deployed (P1). Reverting a
/// change before it was rolled out reverts its pins.
#[must_use]
pub fn pin_members(
    cluster: &Cluster,
    settled_before: &BTreeMap<u32, MemberPin>,
    standing: &DeployedMembers,
) -> BTreeMap<u32, MemberPin> {
    let one = |member: &EtcdMember| {
        let known = settled_before.get(&member.index);
        let wanted = |number| volume(cluster, member, number);
        let joining = |number| {
            // The pin made when the member was first asked for holds until it is deployed: a rollout may be creating it now.
            let settled = known
                .filter(|pin| pin.joins && pin.initial_cluster.is_empty() && pin.volume == wanted(number));
            settled.cloned().unwrap_or_else(|| MemberPin {
                joins: true,
                initial_cluster: BTreeMap::new(),
                join_endpoints: endpoints(cluster, settled_before, standing, member.index),
                volume: wanted(number),
            })
        };
        let before = match standing {
            DeployedMembers::Nothing => return founder(cluster, member),
            DeployedMembers::InProgress => known,
            DeployedMembers::Members(members) => members.get(&member.index),
        };
        match before {
            Some(pin) if pin.volume == wanted(pin.volume.number) => pin.clone(),
            Some(pin) => joining(pin.volume.number + 1),
            None => joining(1),
        }
    };
    cluster.etcd.members.iter().map(|member| (member.index, one(member))).collect()
}
