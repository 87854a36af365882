//! The configuration of an etcd member. It says nothing about Kubernetes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Base;
use crate::cluster::Custom;

/// The role in the encryption context of snapshots. It is no node's role, because every member may restore every snapshot.
pub const SNAPSHOT_ROLE: &str = "etcd-snapshot";

/// The configuration of one member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdConfig {
    /// The fields that every configuration has.
    #[serde(flatten)]
    pub base: Base,
    /// Files and units of the user's.
    #[serde(default, skip_serializing_if = "Custom::is_empty")]
    pub custom: Custom,
    /// Settings of the member.
    pub etcd: EtcdSettings,
    /// Its data volume.
    pub data_volume: DataVolume,
}

/// Settings of etcd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdSettings {
    /// The release.
    pub version: String,
    /// `--quota-backend-bytes`; etcd's own limit if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
    /// The member's name.
    pub name: String,
    /// Its DNS name, which stays when the machine is replaced.
    pub dns_name: String,
    /// Port for clients.
    pub client_port: u16,
    /// Port for traffic between the members.
    pub peer_port: u16,
    /// Peer URLs by member, for a founding member with an empty volume. A member with data reads them from there, and a joining member
    /// gets them from the others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub initial_cluster: BTreeMap<String, String>,
    /// `None`: it founds the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_cluster_state: Option<InitialClusterState>,
    /// `--initial-cluster-token`.
    pub initial_cluster_token: String,
    /// Where a joining member asks to be added. The answer is its `initial-cluster`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub join_endpoints: Vec<String>,
}

impl EtcdSettings {
    /// Its peer URL, as `--initial-cluster` has it.
    #[must_use]
    pub fn peer_url(&self) -> String {
        format!("https://{}:{}", self.dns_name, self.peer_port)
    }
}

/// `--initial-cluster-state`, where it is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InitialClusterState {
    /// If its volume is empty the member joins, first as a learner.
    Existing,
}

/// The data volume. The node finds it by its tags, and its IAM role allows it no other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DataVolume {
    /// The tags that it has.
    pub tags: BTreeMap<String, String>,
    /// The device name under which it is attached.
    pub device: String,
    /// `ext4`.
    pub file_system: String,
    /// Where it is mounted.
    pub mount_point: String,
}
