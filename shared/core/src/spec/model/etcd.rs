//! What the etcd members have of their own.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{SubnetRef, VolumeSpec};

/// One etcd member.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct EtcdNodeSpec {
    /// The member's name in etcd, and the first part of its DNS name; `etcd-0`, `etcd-1`, … unless given.
    pub(crate) name: Option<String>,
    /// The member's full DNS name, inside `internalDomainName`; `<name>.<internalDomainName>` unless given.
    pub(crate) fqdn: Option<String>,
    /// The member's subnet; the next of `etcd.subnets` unless given. Another zone means another data volume, so the member then leaves and joins anew.
    pub(crate) subnet: Option<SubnetRef>,
    /// The member's data volume; what is not given here is as in `etcd.dataVolume`.
    pub(crate) data_volume: VolumeSpec,
}

/// Where etcd runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EtcdTopology {
    /// On machines of its own.
    External,
    /// On the controllers; not supported yet.
    Stacked,
}

/// What kept a member's identity in kube-aws.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum IdentityProvider {
    /// An Elastic IP address.
    Eip,
    /// A network interface.
    Eni,
}
