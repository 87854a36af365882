//! How each etcd member comes up, and on which volume: settled when it is first asked for, and not touched by what the
//! spec says of other members later.
//!
//! etcd reads `initial-cluster` once, with an empty volume. Were it made of the present spec each time, a change of the count
//! would make every member outdated, although it concerns only who comes or goes (P2). A member that stands is left exactly as it was
//! deployed; one that is new, or comes back on another volume, joins a cluster that is there: as a learner first, one at a time.
//!
//! A joiner is given no list of members: etcd refuses to start with one that differs from the membership ("member count is
//! unequal"), and who is there at that moment depends on who joined before it. Its node asks those that stand to be added, and makes
//! `initial-cluster` of the answer to `member add`, which names them all.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, EtcdMember};

/// Port for those who ask etcd.
pub const CLIENT_PORT: u16 = 2379;

/// Port of the members among themselves.
pub const PEER_PORT: u16 = 2380;

/// What is settled about one member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MemberPin {
    /// It joins a cluster that is there, as a learner first. `false`: it is one of those that found it.
    pub joins: bool,
    /// Peer URL of each member by name, for one that founds the cluster; empty for one that joins.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub initial_cluster: BTreeMap<String, String>,
    /// Client URLs of those that stood when it was asked for, for one that joins: any of them adds it to the membership.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub join_endpoints: Vec<String>,
    /// Where its data lie.
    pub volume: VolumePin,
}

/// A data volume can be moved neither to another zone nor under another key: it is another volume then, without the data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VolumePin {
    /// Counts the member's volumes, from 1.
    pub number: u32,
    /// The zone that it lies in.
    pub availability_zone: String,
    /// The key that it is encrypted with, where it is the user's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kms_key_arn: Option<String>,
}

impl VolumePin {
    /// Value of its tag `slipway:volume`, by which the node tells it from an earlier one.
    #[must_use]
    pub fn tag(&self) -> String {
        match self.number {
            0 | 1 => "etcd-data".to_owned(),
            number => format!("etcd-data-{number}"),
        }
    }
}

/// A member as a release has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MemberRole {
    /// How its fellows reach it. etcd keeps this in the membership itself.
    pub peer_url: String,
    /// The size of its data volume.
    pub volume_gib: u32,
    /// What was settled.
    pub pin: MemberPin,
    /// The hosted zone of its name.
    pub zone: NameZone,
}

/// The hosted zone that a member sets its record in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NameZone {
    /// The one that the network stack makes.
    Made,
    /// One of the user's, by its id.
    Given(String),
}

impl NameZone {
    /// The zone with that id; without one, the one that is made.
    #[must_use]
    pub fn of(id: Option<&str>) -> Self {
        id.map_or(Self::Made, |id| Self::Given(id.to_owned()))
    }
}

/// `https://<name>:2380`.
#[must_use]
pub fn peer_url(member: &EtcdMember) -> String {
    format!("https://{}:{PEER_PORT}", member.dns_name)
}

/// The members of `cluster` with their peer URLs, by name.
fn all(cluster: &Cluster) -> BTreeMap<String, String> {
    cluster.etcd.members.iter().map(|member| (member.name.clone(), peer_url(member))).collect()
}

fn volume(cluster: &Cluster, member: &EtcdMember, number: u32) -> VolumePin {
    VolumePin {
        number,
        availability_zone: cluster.subnet(&member.subnet).availability_zone.clone(),
        kms_key_arn: member.data_volume.kms_key_arn.clone(),
    }
}

/// `member` as one of those that found the cluster.
#[must_use]
pub fn founder(cluster: &Cluster, member: &EtcdMember) -> MemberPin {
    MemberPin {
        joins: false,
        initial_cluster: all(cluster),
        join_endpoints: Vec::new(),
        volume: volume(cluster, member, 1),
    }
}

/// What is deployed of etcd, for [`settle`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Nothing, and nothing is on its way.
    Nothing,
    /// A rollout is at work that may be making these: what was settled for it holds.
    OnItsWay,
    /// These members, each as its release has it.
    Members(BTreeMap<u32, MemberPin>),
}

/// Client URLs of the members that stand and stay as they are, for one that is to join them.
fn endpoints(
    cluster: &Cluster,
    known: &BTreeMap<u32, MemberPin>,
    standing: &Standing,
    joiner: u32,
) -> Vec<String> {
    let stays = |member: &EtcdMember| {
        let pin = match standing {
            Standing::Nothing => return false,
            // Those that joined an earlier upload may not be part of what is under way.
            Standing::OnItsWay => known.get(&member.index).filter(|pin| !pin.joins),
            Standing::Members(members) => members.get(&member.index),
        };
        pin.is_some_and(|pin| pin.volume == volume(cluster, member, pin.volume.number))
    };
    let members = cluster.etcd.members.iter().filter(|member| member.index != joiner && stays(member));
    members.map(|member| format!("https://{}:{CLIENT_PORT}", member.dns_name)).collect()
}

/// Settles each member of `cluster`. `settled_before` is what was settled for earlier specs.
///
/// The same cluster against the same standing gives the same, and what is given stays when it has been deployed (P1). Taking a change
/// back before it was rolled out takes back what was settled for it.
#[must_use]
pub fn settle(
    cluster: &Cluster,
    settled_before: &BTreeMap<u32, MemberPin>,
    standing: &Standing,
) -> BTreeMap<u32, MemberPin> {
    let one = |member: &EtcdMember| {
        let known = settled_before.get(&member.index);
        let wanted = |number| volume(cluster, member, number);
        let joining = |number| {
            // What was settled for it when it was first asked for holds until it stands: a rollout may be making it just now.
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
            Standing::Nothing => return founder(cluster, member),
            Standing::OnItsWay => known,
            Standing::Members(members) => members.get(&member.index),
        };
        match before {
            Some(pin) if pin.volume == wanted(pin.volume.number) => pin.clone(),
            Some(pin) => joining(pin.volume.number + 1),
            None => joining(1),
        }
    };
    cluster.etcd.members.iter().map(|member| (member.index, one(member))).collect()
}
