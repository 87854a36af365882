//! Controllers, etcd members and pools of workers.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slipway_core::cluster::Tenancy;
use slipway_core::repair::RepairMode;

use super::{
    ClassicLoadBalancerSpec, CountText, CustomFileSpec, CustomUnitSpec, DrainSpec, EphemeralImageStorageSpec,
    EphemeralStorageSpec, EtcdNodeSpec, EtcdTopology, GpuSpec, IdSpec, IdentityProvider, ImageSpec,
    KubeletSpec, Raid0MountSpec, SnapshotsSpec, SubnetRef, SwitchSpec, VolumeMountSpec,
};

/// The controllers.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ControllerSpec {
    /// How many controllers; 1 unless given, 2 or more for a highly available API.
    #[schemars(range(max = 1000))]
    pub(crate) count: Option<u32>,
    /// Sizes of the Auto Scaling group, instead of `count`: both the same, as controllers are not scaled by load.
    pub(crate) auto_scaling_group: ControllerGroupSpec,
    /// EC2 instance type; `t3.medium` unless given.
    pub(crate) instance_type: Option<String>,
    /// The root volume.
    pub(crate) root_volume: VolumeSpec,
    /// Their subnets; unless given, all private ones, or all public ones if there are none.
    pub(crate) subnets: Vec<SubnetRef>,
    /// Security groups besides Slipway's own.
    pub(crate) security_group_ids: Vec<String>,
    /// IAM role or instance profile.
    pub(crate) iam: IamSpec,
    /// Labels of the Kubernetes nodes.
    pub(crate) node_labels: BTreeMap<String, String>,
    /// Feature gates of these machines' components, besides `kubernetes.featureGates`.
    pub(crate) feature_gates: BTreeMap<String, bool>,
    /// Settings of these kubelets, which override those of `kubernetes.kubelet`.
    pub(crate) kubelet: KubeletSpec,
    /// The tenancy of the machines (`dedicated`: hardware of this account only); `default` unless given.
    pub(crate) tenancy: Option<Tenancy>,
    /// Files that are written to each of these nodes before its services start.
    pub(crate) custom_files: Vec<CustomFileSpec>,
    /// Systemd units on each of these nodes.
    pub(crate) custom_systemd_units: Vec<CustomUnitSpec>,
}

/// The size of the controllers' Auto Scaling group.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ControllerGroupSpec {
    /// How many controllers; `maxSize` unless given.
    #[schemars(range(max = 1000))]
    pub(crate) min_size: Option<u32>,
    /// How many controllers; `minSize` unless given.
    #[schemars(range(max = 1000))]
    pub(crate) max_size: Option<u32>,
    /// How many controllers stay while others are replaced.
    #[schemars(extend("deprecated" = true))]
    pub(crate) rolling_update_min_instances_in_service: Option<u32>,
}

/// The etcd members.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct EtcdSpec {
    /// How many: 1, 3 or 5; as many as `nodes` name, or 1, unless given. A change is carried out member by member.
    #[schemars(range(max = 1000))]
    pub(crate) count: Option<u32>,
    /// Where etcd runs; `external`, on machines of its own, unless given.
    pub(crate) topology: Option<EtcdTopology>,
    /// Settings of single members, in order; members that are not listed here have the settings of `etcd`.
    pub(crate) nodes: Vec<EtcdNodeSpec>,
    /// EC2 instance type; `t3.medium` unless given.
    pub(crate) instance_type: Option<String>,
    /// The etcd release, such as `3.6.16`; what the Kubernetes release wants unless given.
    pub(crate) version: Option<String>,
    /// How large the database may grow, in GiB. Without it etcd's own limit holds, which is 2 GiB. A database at its limit refuses writes.
    #[schemars(range(min = 1, max = 8))]
    pub(crate) quota: Option<u32>,
    /// The root volume.
    pub(crate) root_volume: VolumeSpec,
    /// The data volume, which outlives the instance.
    pub(crate) data_volume: VolumeSpec,
    /// The domain of the members' names, for which a private zone is made; `<clusterName>.etcd.internal` unless given. With `hostedZone` it must be given: that zone's domain, or one below it that no other cluster uses.
    pub(crate) internal_domain_name: Option<String>,
    /// An existing private hosted zone, associated with the VPC, that holds the members' records; one is made unless given.
    pub(crate) hosted_zone: IdSpec,
    /// What kept a member's identity.
    #[schemars(extend("deprecated" = true))]
    pub(crate) member_identity_provider: Option<IdentityProvider>,
    /// Their subnets, one member in each in turn; unless given, all private ones, or all public ones if there are none. A member that runs cannot move yet: no such plan is begun.
    pub(crate) subnets: Vec<SubnetRef>,
    /// Security groups besides Slipway's own.
    pub(crate) security_group_ids: Vec<String>,
    /// IAM role or instance profile.
    pub(crate) iam: IamSpec,
    /// The tenancy of the machines (`dedicated`: hardware of this account only); `default` unless given.
    pub(crate) tenancy: Option<Tenancy>,
    /// Files that are written to each of these nodes before its services start.
    pub(crate) custom_files: Vec<CustomFileSpec>,
    /// Systemd units on each of these nodes.
    pub(crate) custom_systemd_units: Vec<CustomUnitSpec>,
    /// Snapshots that are taken on a schedule.
    pub(crate) snapshots: SnapshotsSpec,
    /// Automated snapshots.
    #[schemars(extend("deprecated" = true))]
    pub(crate) snapshot: AutomatedSpec,
    /// Automated recovery.
    #[schemars(extend("deprecated" = true))]
    pub(crate) disaster_recovery: AutomatedSpec,
}

/// A switch of kube-aws.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AutomatedSpec {
    /// Whether it is on.
    pub(crate) automated: Option<bool>,
}

/// The workers.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct WorkerSpec {
    /// The endpoint through which workers reach the API; needed with two or more endpoints.
    pub(crate) api_endpoint_name: Option<String>,
    /// In which order pools are rolled; `Parallel` unless given.
    pub(crate) node_pool_rolling_strategy: Option<PoolStrategySpec>,
    /// Pools of workers.
    pub(crate) node_pools: Vec<PoolSpec>,
}

/// In which order pools are rolled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum PoolStrategySpec {
    /// It waits for no other.
    Parallel,
    /// After every pool that the spec names before it.
    Sequential,
    /// After the pools of the zones before its own, side by side with those of its own.
    AvailabilityZone,
}

/// How changes reach one pool's nodes.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PoolRolloutSpec {
    /// How many of its nodes may be missing, as a number or a percentage; `rollout.maxUnavailable` unless given.
    pub(crate) max_unavailable: Option<CountText>,
    /// How many nodes it may have beyond its size, as a number or a percentage; `rollout.surge` unless given.
    pub(crate) surge: Option<CountText>,
    /// How its nodes are emptied; as `rollout.drain` says unless given.
    pub(crate) drain: DrainSpec,
}

/// One pool of workers.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("required" = ["name"]))]
pub(crate) struct PoolSpec {
    /// The pool's name, unique in the cluster and the end of its stack's name.
    pub(crate) name: Option<String>,
    /// A fixed number of nodes; 1 unless given. `autoScalingGroup` gives a range instead.
    #[schemars(range(max = 1000))]
    pub(crate) count: Option<u32>,
    /// EC2 instance type; `t3.medium` unless given, or the first type of `mixedInstances`.
    pub(crate) instance_type: Option<String>,
    /// The Kubernetes release of this pool's kubelets, where it lags: at most three minors behind the cluster's `kubernetesVersion`, never newer.
    pub(crate) kubernetes_version: Option<String>,
    /// An AMI for this pool.
    pub(crate) ami_id: Option<String>,
    /// Another image for this pool.
    pub(crate) image: Option<ImageSpec>,
    /// Another EC2 key pair for this pool.
    pub(crate) key_name: Option<String>,
    /// Other public ssh keys for this pool, instead of the cluster's.
    pub(crate) ssh_authorized_keys: Option<Vec<String>>,
    /// Another endpoint through which this pool's nodes reach the API.
    pub(crate) api_endpoint_name: Option<String>,
    /// The root volume.
    pub(crate) root_volume: VolumeSpec,
    /// Volumes besides the root, each with a file system of its own.
    pub(crate) volume_mounts: Vec<VolumeMountSpec>,
    /// File systems on several equal volumes, put together by RAID 0.
    pub(crate) raid0_mounts: Vec<Raid0MountSpec>,
    /// Use of the machine's own NVMe disks, which are empty at every start.
    pub(crate) ephemeral_storage: Option<EphemeralStorageSpec>,
    /// Use of the machine's own disks for container images.
    #[schemars(extend("deprecated" = true))]
    pub(crate) ephemeral_image_storage: Option<EphemeralImageStorageSpec>,
    /// GPUs for pods.
    pub(crate) gpu: GpuSpec,
    /// Its subnets; unless given, all private ones, or all public ones if there are none. One zone only with the cluster autoscaler.
    pub(crate) subnets: Vec<SubnetRef>,
    /// The zone whose subnets the pool stands in.
    #[schemars(extend("deprecated" = true))]
    pub(crate) availability_zone: Option<String>,
    /// Sizes of the Auto Scaling group.
    pub(crate) auto_scaling_group: Option<GroupSpec>,
    /// Several instance types, spot instances and weights.
    pub(crate) mixed_instances: Option<MixedInstancesSpec>,
    /// A spot fleet.
    #[schemars(extend("deprecated" = true))]
    pub(crate) spot_fleet: Option<SpotFleetSpec>,
    /// The most that a spot instance may cost.
    #[schemars(extend("deprecated" = true))]
    pub(crate) spot_price: Option<String>,
    /// Scaling by load.
    pub(crate) autoscaling: AutoscalingSpec,
    /// Security groups besides Slipway's own.
    pub(crate) security_group_ids: Vec<String>,
    /// Target groups that the nodes register with.
    pub(crate) target_group: TargetGroupSpec,
    /// Classic load balancers that the nodes register with.
    pub(crate) load_balancer: ClassicLoadBalancerSpec,
    /// IAM role or instance profile.
    pub(crate) iam: IamSpec,
    /// Labels of the Kubernetes nodes.
    pub(crate) node_labels: BTreeMap<String, String>,
    /// Taints of the Kubernetes nodes.
    pub(crate) taints: Vec<TaintSpec>,
    /// Feature gates of this pool's kubelets, besides `kubernetes.featureGates`.
    pub(crate) feature_gates: BTreeMap<String, bool>,
    /// Settings of these kubelets, which override those of `kubernetes.kubelet`.
    pub(crate) kubelet: KubeletSpec,
    /// The tenancy of the machines (`dedicated`: hardware of this account only); `default` unless given.
    pub(crate) tenancy: Option<Tenancy>,
    /// Files that are written to each of these nodes before its services start.
    pub(crate) custom_files: Vec<CustomFileSpec>,
    /// Systemd units on each of these nodes.
    pub(crate) custom_systemd_units: Vec<CustomUnitSpec>,
    /// When this pool is rolled; as `worker.nodePoolRollingStrategy` says unless given.
    pub(crate) node_pool_rolling_strategy: Option<PoolStrategySpec>,
    /// How changes reach this pool's nodes; takes precedence over `rollout`.
    pub(crate) rollout: PoolRolloutSpec,
    /// What is done about nodes that are not Ready although EC2 finds their machines well.
    pub(crate) repair: RepairSpec,
}

/// What is done about a pool's nodes that are not Ready.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RepairSpec {
    /// With `on` they are drained, as far as they can be, and replaced, one at a time; with `warn` `slipway status` names them; with `off` nothing is said. `warn` unless given.
    pub(crate) mode: Option<RepairMode>,
    /// How many minutes a node must be not Ready before it is named or replaced; `15` unless given.
    #[schemars(range(min = 10, max = 1440))]
    pub(crate) after_minutes: Option<u32>,
}

/// Sizes of an Auto Scaling group.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct GroupSpec {
    /// The fewest nodes; `maxSize`, or 1, unless given.
    #[schemars(range(max = 10_000))]
    pub(crate) min_size: Option<u32>,
    /// The most nodes; `minSize` unless given.
    #[schemars(range(max = 10_000))]
    pub(crate) max_size: Option<u32>,
    /// How many nodes stay while others are replaced.
    #[schemars(extend("deprecated" = true))]
    pub(crate) rolling_update_min_instances_in_service: Option<u32>,
    /// How many nodes stay while others are replaced.
    #[schemars(extend("deprecated" = true))]
    pub(crate) rolling_update_min_instance_in_service: Option<u32>,
    /// Several instance types, spot instances and weights; off unless `enabled: true`.
    #[schemars(extend("deprecated" = true))]
    pub(crate) mixed_instances: Option<MixedInstancesSpec>,
}

/// A mixed-instances policy.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct MixedInstancesSpec {
    /// Whether it is used; `true` unless given.
    pub(crate) enabled: Option<bool>,
    /// Instance types in order of priority, each counting as one.
    pub(crate) instance_types: Vec<String>,
    /// Instance types with their weights; instead of `instanceTypes`.
    pub(crate) overrides: Vec<WeightedTypeSpec>,
    /// The capacity that is always on demand; 0 unless given.
    #[schemars(range(max = 10_000))]
    pub(crate) on_demand_base_capacity: Option<u32>,
    /// The percentage of the capacity above that which is on demand; 0 unless given, which means spot instances only.
    #[schemars(range(min = 0, max = 100))]
    pub(crate) on_demand_percentage_above_base_capacity: Option<u32>,
    /// How instance types are chosen for capacity on demand; `prioritized` unless given, which is the order of the types.
    pub(crate) on_demand_allocation_strategy: Option<OnDemandStrategySpec>,
    /// How spot pools are chosen; `price-capacity-optimized` unless given.
    pub(crate) spot_allocation_strategy: Option<SpotStrategySpec>,
    /// Whether a spot instance that EC2 says is at risk is replaced before it is taken; `true` unless given.
    pub(crate) capacity_rebalance: Option<bool>,
}

/// How EC2 chooses instance types on demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnDemandStrategySpec {
    /// The first that is to be had.
    Prioritized,
    /// The cheapest.
    LowestPrice,
}

/// How EC2 chooses among spot pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SpotStrategySpec {
    /// The likeliest to last among the cheaper ones.
    PriceCapacityOptimized,
    /// The likeliest to last.
    CapacityOptimized,
    /// The likeliest to last, with the order of the types as a hint.
    CapacityOptimizedPrioritized,
    /// The cheapest, which are interrupted most.
    LowestPrice,
}

/// An instance type and its weight.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("required" = ["instanceType"]))]
pub(crate) struct WeightedTypeSpec {
    /// An EC2 instance type.
    pub(crate) instance_type: Option<String>,
    /// How much capacity one instance counts for; 1 unless given.
    #[schemars(range(min = 1, max = 999))]
    pub(crate) weighted_capacity: Option<u32>,
}

/// A spot fleet of kube-aws.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("required" = ["targetCapacity"]))]
pub(crate) struct SpotFleetSpec {
    /// The capacity to keep, in weights.
    #[schemars(range(max = 10_000))]
    pub(crate) target_capacity: Option<u32>,
    /// The instance types that make it up.
    pub(crate) launch_specifications: Vec<WeightedTypeSpec>,
}

/// Scaling by load.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AutoscalingSpec {
    /// Whether the cluster autoscaler scales this pool.
    pub(crate) cluster_autoscaler: SwitchSpec,
}

/// Target groups.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct TargetGroupSpec {
    /// Whether they are used; `true` unless given.
    pub(crate) enabled: Option<bool>,
    /// Their ARNs.
    pub(crate) arns: Vec<String>,
    /// Security groups that let the balancers' traffic in; the nodes get them besides `securityGroupIds`.
    pub(crate) security_group_ids: Vec<String>,
}

/// A volume. It is always encrypted.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct VolumeSpec {
    /// Size in GiB; 30 unless given.
    #[schemars(range(min = 1, max = 65536))]
    pub(crate) size: Option<u32>,
    /// The kind; `gp3` unless given.
    #[serde(rename = "type")]
    pub(crate) kind: Option<VolumeKind>,
    /// Provisioned operations a second, for gp3, io1 and io2.
    #[schemars(range(min = 100, max = 256_000))]
    pub(crate) iops: Option<u32>,
    /// MiB a second, for gp3.
    #[schemars(range(min = 125, max = 2000))]
    pub(crate) throughput: Option<u32>,
    /// A KMS key of yours; the account's own for EBS unless given. Its policy must let in the account's IAM, and the
    /// role `AWSServiceRoleForAutoScaling`, which launches the machines: use of the key, and `kms:CreateGrant`.
    pub(crate) kms_key_arn: Option<String>,
    /// Whether it is encrypted; it always is.
    pub(crate) encrypted: Option<bool>,
}

/// The kind of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum VolumeKind {
    /// General purpose.
    Gp3,
    /// General purpose, the generation before.
    Gp2,
    /// Provisioned operations.
    Io1,
    /// Provisioned operations, durable.
    Io2,
}

/// IAM settings.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct IamSpec {
    /// The role that Slipway makes.
    pub(crate) role: RoleSpec,
    /// An existing instance profile, used instead. Its role must be among the installation's `InstanceRoleArns`.
    pub(crate) instance_profile: ArnSpec,
}

/// An IAM role.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RoleSpec {
    /// The end of the role's name: the whole is `<stack>-<name>`, at most 64 characters.
    pub(crate) name: Option<String>,
    /// Whether `name` is the whole of the role's name. It must then begin with `<clusterName>-`. Each etcd member has a role of its own, whose name
    /// ends in `-<number>` all the same.
    pub(crate) strict_name: bool,
    /// Managed policies besides Slipway's own statements. They must be among the installation's `ManagedPolicyArns`.
    pub(crate) managed_policies: Vec<PolicySpec>,
}

/// Something by its ARN.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ArnSpec {
    /// Its ARN.
    pub(crate) arn: Option<String>,
}

/// A managed policy.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("required" = ["arn"]))]
pub(crate) struct PolicySpec {
    /// The policy's ARN.
    pub(crate) arn: Option<String>,
}

/// A taint.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("required" = ["key", "effect"]))]
pub(crate) struct TaintSpec {
    /// The taint's key.
    pub(crate) key: Option<String>,
    /// The taint's value, perhaps empty.
    pub(crate) value: String,
    /// What the taint does to pods that do not tolerate it.
    pub(crate) effect: Option<TaintEffect>,
}

/// What a taint does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum TaintEffect {
    /// New pods stay away.
    NoSchedule,
    /// New pods stay away where they can.
    PreferNoSchedule,
    /// Pods that run leave too.
    NoExecute,
}
