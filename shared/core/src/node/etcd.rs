//! What an etcd member must know: nothing of Kubernetes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Base;
use crate::cluster::Custom;

/// The role in the encryption context of snapshots: no node's own, as each is restored by all members.
pub const SNAPSHOT_ROLE: &str = "etcd-snapshot";

/// The configuration of one member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdConfig {
    /// What every configuration has.
    #[serde(flatten)]
    pub base: Base,
    /// Files and units of the user's.
    #[serde(default, skip_serializing_if = "Custom::is_empty")]
    pub custom: Custom,
    /// The member.
    pub etcd: EtcdSettings,
    /// Where its data lie.
    pub data_volume: DataVolume,
}

/// What etcd is told.
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
    /// Its DNS name, which outlives its machine.
    pub dns_name: String,
    /// Where clients come.
    pub client_port: u16,
    /// Where its fellows come.
    pub peer_port: u16,
    /// For a founder without data: peer URLs by member. A member that has data knows its fellows from there, and one that
    /// joins asks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub initial_cluster: BTreeMap<String, String>,
    /// Absent: it founds the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_cluster_state: Option<InitialClusterState>,
    /// `--initial-cluster-token`.
    pub initial_cluster_token: String,
    /// Where one that joins asks to be added; the answer is its `initial-cluster`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub join_endpoints: Vec<String>,
}

/// `--initial-cluster-state`, as far as it is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InitialClusterState {
    /// With an empty volume the member joins, as a learner first.
    Existing,
}

/// Where the data lie: the node finds the volume by its tags, which its role limits it to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DataVolume {
    /// All of these.
    pub tags: BTreeMap<String, String>,
    /// The name under which it is attached.
    pub device: String,
    /// `ext4`.
    pub file_system: String,
    /// Where it is mounted.
    pub mount_point: String,
}
