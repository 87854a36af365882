//! What a node says of itself: the answers of `slipway-node status` and `slipway-node etcd health`, which scanner and rollout
//! read. Either has a format of its own; a reader takes what it knows and leaves the rest.

use std::fmt;
use std::net::SocketAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Word;

/// The answer of `slipway-node status`: what is *served*, not what lies on the disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// [`Self::FORMAT`].
    pub format: u32,
    /// When it was asked, by the node's clock.
    pub at: Timestamp,
    /// The cluster's name.
    pub cluster: String,
    /// As [`crate::role::Role`] writes itself.
    pub role: String,
    /// The machine; `None` where it could not be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<Instance>,
    /// What was applied.
    pub applied: Applied,
    /// What each listening component presents, by name.
    pub served: Vec<Served>,
    /// The certificates that nobody here serves, and that lie in force: those of clients, which are read when they call. By path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<Held>,
    /// How the components are, by name.
    pub components: Vec<ComponentHealth>,
    /// Of an etcd member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<EtcdHealth>,
    /// Of a controller or worker: what the cluster says of its Node. It is no part of `healthy`, which must not depend on the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeRegistration>,
    /// Everything that this role has is well, and every certificate verifies.
    pub healthy: bool,
}

impl NodeStatus {
    /// The current format.
    pub const FORMAT: u32 = 1;
}

/// What the cluster says of a machine's Node, asked with its kubelet's own credentials.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRegistration {
    /// The Node's name, which is the instance's id.
    pub name: String,
    /// Whether the kubelet has registered it.
    pub registered: bool,
    /// Whether its condition `Ready` is true.
    pub ready: bool,
    /// Why the launch hook waits for it; none if the Node is as it should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The machine, as EC2 knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// `i-…`.
    pub id: String,
    /// `eu-west-1a`.
    pub availability_zone: String,
    /// In the VPC.
    pub private_address: String,
}

/// The digests of what a node runs with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Applied {
    /// SHA-256 of the configuration that lies here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// Keyed digest of the credentials whose files are in force; `None`: none are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<String>,
    /// SHA-256 of the agent that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Whether they are what `node.json` asks for. `false`: a bootstrap or refresh is under way, or died.
    pub as_asked: bool,
}

/// A port on which a certificate is presented.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Served {
    /// Which component on which port: `etcd-client`, `etcd-peer`, `kube-apiserver`, `kubelet`,
    /// `kube-controller-manager`, `kube-scheduler`.
    pub name: String,
    /// Where it was asked.
    pub address: SocketAddr,
    /// What it presents; `None`: nobody listens, or no handshake came to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<ServedCertificate>,
    /// Why there is none, or why it does not verify.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Whether it should verify at all: controller manager and scheduler make certificates of their own, which nobody checks.
    pub verifiable: bool,
}

/// A certificate as it was presented in a handshake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServedCertificate {
    /// Serial number in lower-case hex.
    pub serial: String,
    /// SHA-256 of the certificate's DER: the fingerprint in the inventory.
    pub fingerprint: String,
    /// Its subject, such as `CN=etcd-0`.
    pub subject: String,
    /// Who signed it.
    pub issuer: String,
    /// Start of validity.
    pub not_before: Timestamp,
    /// End of validity.
    pub not_after: Timestamp,
    /// Whether the authority that this role trusts for it, the names and the dates are right.
    pub verifies: bool,
}

/// A certificate that lies on a node for somebody to call with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    /// Where: a path of the role's bundle ([`slipway_credentials::policy::bundle`]), or where a kubelet keeps what it asked for.
    pub path: String,
    /// Serial number in lower-case hex.
    pub serial: String,
    /// SHA-256 of the certificate's DER: the fingerprint in the inventory.
    pub fingerprint: String,
    /// Its subject, such as `CN=apiserver-etcd-client`.
    pub subject: String,
    /// Who signed it.
    pub issuer: String,
    /// Start of validity.
    pub not_before: Timestamp,
    /// End of validity.
    pub not_after: Timestamp,
}

/// A component of a node, as it is called on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComponentName {
    /// `etcd`.
    Etcd,
    /// `kube-apiserver`.
    #[serde(rename = "kube-apiserver")]
    ApiServer,
    /// `kube-controller-manager`.
    #[serde(rename = "kube-controller-manager")]
    ControllerManager,
    /// `kube-scheduler`.
    #[serde(rename = "kube-scheduler")]
    Scheduler,
    /// `kubelet`.
    Kubelet,
}

impl ComponentName {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kubelet => "kubelet",
        }
    }
}

impl fmt::Display for ComponentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a component of a node is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComponentHealth {
    /// Which.
    pub name: Word<ComponentName>,
    /// Whether it says that it is well.
    pub healthy: bool,
    /// What it says if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The answer of `slipway-node etcd health`: this member, and what it sees of the others. Numbers that etcd gives as 64 bits
/// to name members are hex here, as its own tools print them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdHealth {
    /// [`Self::FORMAT`].
    pub format: u32,
    /// The member's name in its configuration.
    pub name: String,
    /// It answers, has a vote, reads through a majority, no alarm is raised, and every voter is reachable: the next
    /// member may be taken down.
    pub healthy: bool,
    /// What is in the way, in words; empty if it is healthy.
    pub problems: Vec<String>,
    /// It reads through a majority.
    pub serving: bool,
    /// Its number; `None`: it does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The cluster's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// The server's release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// It has no vote yet.
    pub learner: bool,
    /// It is the leader.
    pub leads: bool,
    /// The leader's number, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// The election that the leader won.
    pub term: u64,
    /// Of the keys.
    pub revision: u64,
    /// What the cluster agreed on, as far as it knows.
    pub raft_index: u64,
    /// What of it is in its keys.
    pub raft_applied_index: u64,
    /// How many entries it lacks of what the leader had a moment before; `None`: the leader did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// Bytes of the database's file.
    pub db_size: u64,
    /// Bytes of it that are used.
    pub db_size_in_use: u64,
    /// Beyond this many bytes etcd takes no more writes; `None`: it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub db_quota: Option<u64>,
    /// Alarms of the whole cluster.
    pub alarms: Vec<EtcdAlarm>,
    /// All members, itself included, by name.
    pub members: Vec<EtcdMemberHealth>,
}

impl EtcdHealth {
    /// The current format.
    pub const FORMAT: u32 = 1;
}

/// An alarm that is raised until somebody disarms it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdAlarm {
    /// The number of whose it is.
    pub member: String,
    /// `NOSPACE` or `CORRUPT`.
    pub kind: String,
}

/// A member as one of them sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdMemberHealth {
    /// Its number.
    pub id: String,
    /// Empty until it has started once.
    pub name: String,
    /// Where its fellows come.
    pub peer_urls: Vec<String>,
    /// Where clients come.
    pub client_urls: Vec<String>,
    /// It has no vote yet.
    pub learner: bool,
    /// It answers.
    pub reachable: bool,
    /// It is the leader.
    pub leads: bool,
    /// As in [`EtcdHealth::behind`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// Why it is not reachable, or what it says is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
