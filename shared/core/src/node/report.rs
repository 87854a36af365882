//! What a node reports about itself: the answers of `slipway-node status` and `slipway-node etcd health`, which scan and rollout
//! functions read. Each has a format version. A reader ignores fields that it does not know.

use std::fmt;
use std::net::SocketAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{NodeManagerStatus, Word};

/// The answer of `slipway-node status`. It describes the certificates that are *served*, not those on the disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// [`Self::FORMAT`].
    pub format: u32,
    /// When the status was taken, by the node's clock.
    pub at: Timestamp,
    /// The cluster's name.
    pub cluster: String,
    /// As [`crate::role::Role`] writes itself.
    pub role: String,
    /// The machine. `None`: the metadata service did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<Instance>,
    /// The digests of the configuration and credentials in use.
    pub applied: Applied,
    /// The certificate that each listening component presents, by component name.
    pub served: Vec<Served>,
    /// The certificates in use that no component serves, by path: client certificates, which are read at each call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<CertificateOnNode>,
    /// The health of the components, by name.
    pub components: Vec<ComponentHealth>,
    /// The health of etcd, on an etcd member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<EtcdHealth>,
    /// Of a controller or worker: what the cluster says of its Node. It is no part of `healthy`, which must not depend on the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeRegistration>,
    /// Of a controller: the workers that it has seen not to be Ready for longer than their pools allow. They are no part of `healthy`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unready: Vec<UnreadyWorker>,
    /// Of a controller: whether its node manager works. It is no part of `healthy`, which must not depend on the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_manager: Option<NodeManagerStatus>,
    /// Whether every component of this role is healthy and every certificate verifies.
    pub healthy: bool,
}

impl NodeStatus {
    /// The current format.
    pub const FORMAT: u32 = 1;
    /// The most that is read of one. They have some kilobytes.
    pub const MOST_BYTES: u64 = 256 * 1024;
}

/// A worker that has not been Ready for longer than its pool allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnreadyWorker {
    /// Its Node's name, which is the instance's id.
    pub node: String,
    /// Its pool.
    pub pool: String,
    /// Since when the controller has seen that, at least.
    pub since: Timestamp,
    /// What is done about it.
    pub repair: Word<RepairState>,
    /// Why nothing is done for now, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What is done about a worker that is not Ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RepairState {
    /// People are told.
    Told,
    /// Nothing is done for now.
    Waits,
    /// Auto Scaling was told to replace it.
    Begun,
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
    /// The instance id, `i-…`.
    pub id: String,
    /// Such as `eu-west-1a`.
    pub availability_zone: String,
    /// Its private IP address in the VPC.
    pub private_address: String,
}

/// The digests of what a node is running with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Applied {
    /// SHA-256 of the configuration on the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// Keyed digest of the credentials in use. `None`: there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<String>,
    /// SHA-256 of the running agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Whether they are those that `node.json` asks for. `false`: a bootstrap or refresh is in progress or was interrupted.
    pub matches_node_file: bool,
}

/// A port on which a certificate is presented.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Served {
    /// Which component on which port: `etcd-client`, `etcd-peer`, `kube-apiserver`, `kubelet`,
    /// `kube-controller-manager`, `kube-scheduler`.
    pub name: String,
    /// The address that was queried.
    pub address: SocketAddr,
    /// The certificate. `None`: nothing listens, or the handshake failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<ServedCertificate>,
    /// Why there is no certificate, or why it does not verify.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Whether it can verify: controller manager and scheduler use self-signed certificates, which nobody checks.
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
    /// Its issuer.
    pub issuer: String,
    /// Start of validity.
    pub not_before: Timestamp,
    /// End of validity.
    pub not_after: Timestamp,
    /// Whether its issuer is the authority that this role trusts for it, and its names and dates are valid.
    pub verifies: bool,
}

/// A client certificate on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateOnNode {
    /// A path of the role's bundle (`slipway_credentials::policy::bundle`), or the file in which the kubelet keeps its own certificate.
    pub path: String,
    /// Serial number in lower-case hex.
    pub serial: String,
    /// SHA-256 of the certificate's DER: the fingerprint in the inventory.
    pub fingerprint: String,
    /// Its subject, such as `CN=apiserver-etcd-client`.
    pub subject: String,
    /// Its issuer.
    pub issuer: String,
    /// Start of validity.
    pub not_before: Timestamp,
    /// End of validity.
    pub not_after: Timestamp,
}

/// A component of a node, by its name on the machine.
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
    /// The component's name.
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

/// The health of a component of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComponentHealth {
    /// Which.
    pub name: Word<ComponentName>,
    /// Whether it reports that it is healthy.
    pub healthy: bool,
    /// What it reports if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The answer of `slipway-node etcd health`: this member, and how it sees the others. Member ids, 64-bit numbers in etcd, are written in
/// hex as etcd's own tools print them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdHealth {
    /// [`Self::FORMAT`].
    pub format: u32,
    /// The member's name in its configuration.
    pub name: String,
    /// Whether another member may be taken down: this member answers, votes and reads through a majority, no alarm is raised, and every
    /// voter is reachable.
    pub healthy: bool,
    /// Why it is not healthy, in words; empty if it is.
    pub problems: Vec<String>,
    /// Whether it reads through a majority.
    pub serving: bool,
    /// Its id. `None`: it does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The cluster's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// The server's release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether it is a learner, without a vote.
    pub learner: bool,
    /// Whether it is the leader.
    pub leads: bool,
    /// The leader's id, if there is a leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// The Raft term.
    pub term: u64,
    /// The revision of the key space.
    pub revision: u64,
    /// The Raft index that is committed, as far as this member knows.
    pub raft_index: u64,
    /// The Raft index that is applied.
    pub raft_applied_index: u64,
    /// How many entries this member lags behind the leader, measured a moment apart. `None`: the leader did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raft_lag: Option<u64>,
    /// Size of the database file in bytes.
    pub db_size: u64,
    /// Bytes of the database file that are in use.
    pub db_size_in_use: u64,
    /// The size in bytes at which etcd stops accepting writes. `None`: it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub db_quota: Option<u64>,
    /// Alarms of the whole cluster.
    pub alarms: Vec<EtcdAlarm>,
    /// All members including this one, by name.
    pub members: Vec<EtcdMemberHealth>,
}

impl EtcdHealth {
    /// The current format.
    pub const FORMAT: u32 = 1;
}

/// An alarm, which stays raised until it is disarmed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdAlarm {
    /// The id of the member that it concerns.
    pub member: String,
    /// `NOSPACE` or `CORRUPT`.
    pub kind: String,
}

/// A member as seen by another one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdMemberHealth {
    /// Its number.
    pub id: String,
    /// Empty until the member has started once.
    pub name: String,
    /// Its peer URLs.
    pub peer_urls: Vec<String>,
    /// Its client URLs.
    pub client_urls: Vec<String>,
    /// Whether it is a learner, without a vote.
    pub learner: bool,
    /// Whether it answers.
    pub reachable: bool,
    /// Whether it is the leader.
    pub leads: bool,
    /// As in [`EtcdHealth::raft_lag`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raft_lag: Option<u64>,
    /// Why it is not reachable, or which problem it reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
