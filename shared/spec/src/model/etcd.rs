//! What the etcd members have of their own.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{SubnetRef, VolumeKind};

/// One etcd member.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct EtcdNodeSpec {
    /// The first part of the member's DNS name; `etcd-0`, `etcd-1`, … unless given.
    pub(crate) name: Option<String>,
    /// The member's full DNS name, inside `internalDomainName`; `<name>.<internalDomainName>` unless given.
    pub(crate) fqdn: Option<String>,
    /// The member's subnet; the next of `etcd.subnets` unless given. It cannot change yet for a member that runs: in another zone it needs another data volume, and no plan that moves a member is begun.
    pub(crate) subnet: Option<SubnetRef>,
    /// The member's data volume; what is not given here is as in `etcd.dataVolume`.
    pub(crate) data_volume: MemberVolumeSpec,
}

/// What a member's data volume has of its own.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct MemberVolumeSpec {
    /// Size in GiB. It may grow, and never shrinks.
    #[schemars(range(min = 1, max = 65536))]
    pub(crate) size: Option<u32>,
    /// The volume type. A member with a type of its own inherits neither `iops` nor `throughput` from `etcd.dataVolume`.
    #[serde(rename = "type")]
    pub(crate) kind: Option<VolumeKind>,
    /// Provisioned operations a second, for gp3, io1 and io2.
    #[schemars(range(min = 100, max = 256_000))]
    pub(crate) iops: Option<u32>,
    /// MiB a second, for gp3.
    #[schemars(range(min = 125, max = 2000))]
    pub(crate) throughput: Option<u32>,
    /// A KMS key of yours. It cannot change yet for a member that runs: it needs another volume, and no plan that replaces one is begun.
    pub(crate) kms_key_arn: Option<String>,
    /// Whether it is encrypted; it always is.
    pub(crate) encrypted: Option<bool>,
}

/// Snapshots of etcd that its members take on a schedule. A change takes effect with the next scan and replaces no machine. With `approval: manual`, fewer snapshots wait for the next approved plan.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SnapshotsSpec {
    /// Whether they are taken; `true` unless given.
    pub(crate) enabled: Option<bool>,
    /// Hours between two snapshots; `6` unless given.
    #[schemars(range(min = 1, max = 24))]
    pub(crate) every_hours: Option<u32>,
    /// How long they are kept. Snapshots that a rollout, a destruction or a person ordered are always kept.
    pub(crate) keep: RetentionSpec,
}

/// How long scheduled snapshots of etcd are kept. What the scan deletes can be restored for 30 more days.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RetentionSpec {
    /// For how many days all are kept; `7` unless given.
    #[schemars(range(min = 1, max = 365))]
    pub(crate) all_days: Option<u32>,
    /// For how many days the last verified one of each day is kept; `30` or `allDays`, the larger one, unless given.
    #[schemars(range(min = 1, max = 3650))]
    pub(crate) daily_days: Option<u32>,
    /// How many verified ones are kept whatever their age, the newest ones; `8` unless given.
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) at_least: Option<u32>,
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
