//! What a node is given: `node.json` in its user data, and its configuration. Both are the contract between rendering and the node agent.
//!
//! A configuration's digest decides whether a node is outdated, so the configuration of a role holds only what that role uses (P2). The
//! names of the API and its extra SANs are left out because the certificates in the credentials contain them. An etcd member's
//! configuration says nothing about Kubernetes, and a worker's nothing about controllers, etcd or other pools.

pub mod answer;
mod arn;
mod bootstrap;
pub mod command;
mod command_view;
mod controller;
pub mod defragment;
mod etcd;
mod etcd_flags;
pub mod failure;
pub mod logs;
pub mod manager;
pub mod report;
mod serves;
pub mod space;
mod word;
mod worker;

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cluster::Taint;
use crate::role::Role;
use crate::software::{ProgramFile, SystemImage};
pub use answer::{
    Answer, DrainRecord, Drained, LeaderMoved, MemberRemoved, RecordsRetired, Refreshed, RestoreMark,
    Restored, RestoredEtcd, SnapshotTaken, Uncordoned,
};
pub use arn::{MachineArns, instance_of_arn};
pub use bootstrap::{BootstrapFailure, BootstrapReport, BootstrapState};
pub use command::{ANY, Command, RestoreOrder, RestoreStage, Verb, initial_cluster, is_sha256, machines};
pub use command_view::{CommandStatus, CommandView, HowUnanswered, Invocation, Unanswered};
pub use controller::{ControlPlane, ControllerConfig, ServiceAccountTokens};
pub use defragment::Defragmented;
pub use etcd::{DataVolume, EtcdConfig, EtcdSettings, InitialClusterState, SNAPSHOT_ROLE};
pub use etcd_flags::{ETCD_FLAGS, ETCD_QUOTA_FLAG, flag_of_variable};
pub use failure::{FailureCode, VerbFailure};
pub use logs::{LogLine, LogUnit, MachineLogs, UnitLog};
pub use manager::NodeManagerStatus;
pub use report::{EtcdAlarm, EtcdHealth, EtcdMemberHealth, NodeStatus};
pub use serves::{ClusterServes, NodesReady, NotReady, PartHealth};
pub use word::Word;
pub use worker::{InstanceStoreSettings, Machine, MountSettings, WorkerConfig};

/// Whether `text` has the form of an instance's id: `i-` and 8 or 17 hexadecimal digits, or fewer, as tests have them. Nodes choose what they
/// call themselves and the keys that they write to, and people and scripts read these ids.
#[must_use]
pub fn is_instance(text: &str) -> bool {
    text.strip_prefix("i-").is_some_and(|digits| {
        (1..=17).contains(&digits.len())
            && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// The launch hook: it holds a new machine until its agent reports that it is healthy.
pub const LAUNCH_HOOK: &str = "slipway-launch";
/// How long the launch hook of a worker waits without a heartbeat, in seconds.
pub const WORKER_LAUNCH_S: u32 = 1800;
/// The terminate hook: it holds a machine that is to be terminated until it is drained.
pub const TERMINATE_HOOK: &str = "slipway-terminate";

/// The folders that an instance store takes over: containerd's images and writable layers, the kubelet's ephemeral storage, and the logs
/// of pods.
pub const SCRATCH: [&str; 3] = ["/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"];

/// `node.json`: the node's identity, and what it downloads from the asset bucket. It contains no secret: the digest of the credentials is
/// keyed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeFile {
    /// Version of this file's format.
    pub format: u32,
    /// The cluster's name.
    pub cluster: String,
    /// As [`crate::role::Role`] writes itself.
    pub role: String,
    /// AWS region.
    pub region: String,
    /// The bucket that has agent and bundles.
    pub asset_bucket: String,
    /// SHA-256 of the agent. `None`: none is published yet.
    pub agent: Option<String>,
    /// SHA-256 of the configuration.
    pub config: String,
    /// Keyed digest of the credentials.
    pub credentials: String,
    /// The hosted zone in which an etcd member writes its record; CloudFormation may fill it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

impl NodeFile {
    /// The current format.
    pub const FORMAT: u32 = 1;
}

/// The fields that every node's configuration has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Base {
    /// Version of the configuration's format.
    pub format: u32,
    /// The cluster's name.
    pub cluster: String,
    /// As [`crate::role::Role`] writes itself.
    pub role: String,
    /// AWS region.
    pub region: String,
    /// Public keys that may log in over ssh.
    pub ssh_authorized_keys: Vec<String>,
    /// The Auto Scaling group whose lifecycle hooks the agent completes.
    pub auto_scaling_group: String,
    /// The hook that holds the machine until the node is healthy.
    pub launch_hook: String,
    /// The hook that holds the machine until the node is drained.
    pub terminate_hook: String,
    /// The software that the agent installs. Empty if the image contains it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub software: Vec<ProgramFile>,
    /// Images of its static pods, by [`crate::software::SystemImage::as_str`]: `repository:tag@digest`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub images: BTreeMap<String, String>,
}

/// Settings of a node's kubelet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kubelet {
    /// `clusterDNS`.
    pub cluster_dns: String,
    /// `clusterDomain`.
    pub cluster_domain: String,
    /// `--node-labels`.
    pub node_labels: BTreeMap<String, String>,
    /// `registerWithTaints`.
    pub taints: Vec<Taint>,
    /// Fields of `KubeletConfiguration`; they override Slipway's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub configuration: BTreeMap<String, Value>,
}

/// The pods' network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodNetwork {
    /// The range of all pods.
    pub pod_cidr: String,
    /// The UDP port of VXLAN.
    pub vxlan_port: u16,
    /// `network.provider: none`: the user installs a network, and perhaps later. A worker then counts once it has registered, as no node is
    /// Ready without a network. Never set for controllers, which count once they have registered in any case.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub external: bool,
}

/// A configuration of any role that has nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum NodeConfig {
    /// An etcd member's.
    Etcd(Box<EtcdConfig>),
    /// A controller's.
    Controller(Box<ControllerConfig>),
    /// A worker's.
    Worker(Box<WorkerConfig>),
}

impl NodeConfig {
    /// The Auto Scaling group that a configuration names, even if the rest cannot be read.
    #[must_use]
    pub fn auto_scaling_group(text: &str) -> Option<String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct OfGroup {
            auto_scaling_group: String,
        }
        serde_json::from_str::<OfGroup>(text).ok().map(|config| config.auto_scaling_group)
    }

    /// Reads a configuration as the role that it names.
    ///
    /// # Errors
    /// If it is not a valid configuration of that role.
    pub fn read(text: &str) -> Result<Self, serde_json::Error> {
        let base: Base = serde_json::from_str(text)?;
        let role: Role = base.role.parse().map_err(serde_json::Error::custom)?;
        if let Some(lacks) =
            SystemImage::for_role(&role).iter().find(|image| !base.images.contains_key(image.as_str()))
        {
            return Err(serde_json::Error::custom(format!("it names no image of {}", lacks.as_str())));
        }
        match role {
            Role::Etcd(_) => serde_json::from_str(text).map(Box::new).map(Self::Etcd),
            Role::Controller => serde_json::from_str(text).map(Box::new).map(Self::Controller),
            Role::Pool(_) => serde_json::from_str(text).map(Box::new).map(Self::Worker),
            Role::Admin => Err(serde_json::Error::custom("the role admin has no nodes")),
        }
    }

    /// The fields that all roles have.
    #[must_use]
    pub fn base(&self) -> &Base {
        match self {
            Self::Etcd(config) => &config.base,
            Self::Controller(config) => &config.base,
            Self::Worker(config) => &config.base,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_an_instances_id_is_one() {
        for id in ["i-0a1b2c3d4e5f60718", "i-12345678", "i-1"] {
            assert!(is_instance(id), "{id}");
        }
        for other in
            ["", "i-", "ip-10-0-0-1", "i-0A", "i-0a1b2c3d4e5f607181", "i-1&Filter.2", "i-*", "i-1\u{1b}[2J"]
        {
            assert!(!is_instance(other), "{other:?}");
        }
    }
}
