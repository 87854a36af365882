//! Pools of workers.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Custom, Iam, Image, KubernetesVersion, Storage, Tenancy, Volume};

/// One pool of workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePool {
    /// `name`: unique, and the last part of its stack's name.
    pub name: String,
    /// The first instance type; all types of a pool share one architecture.
    pub instance_type: String,
    /// The pool's own `kubernetesVersion`, if it lags behind the controllers'. `None`: the cluster's.
    pub kubernetes_version: Option<KubernetesVersion>,
    /// The pool's own image. `None`: the cluster's.
    pub image: Option<Image>,
    /// `image.rootDeviceName` of the pool's own image.
    pub root_device: Option<String>,
    /// The pool's own `keyName`. `None`: the cluster's.
    pub key_name: Option<String>,
    /// The pool's own `sshAuthorizedKeys`. `None`: the cluster's.
    pub ssh_authorized_keys: Option<Vec<String>>,
    /// The pool's own `apiEndpointName`. `None`: that of all workers.
    pub api_endpoint: Option<String>,
    pub root_volume: Volume,
    /// Volumes besides the root, and the instance store.
    pub storage: Storage,
    /// `gpu.nvidia.enabled`: pods may use NVIDIA GPUs.
    pub nvidia: bool,
    /// Names of subnets, resolved; never empty.
    pub subnets: Vec<String>,
    /// Group sizes.
    pub size: GroupSize,
    /// Several instance types, spot instances and weights. `None`: on-demand instances of one type.
    pub mixed_instances: Option<MixedInstances>,
    /// `autoscaling.clusterAutoscaler.enabled`.
    pub cluster_autoscaler: bool,
    /// Security groups besides Slipway's own.
    pub security_group_ids: Vec<String>,
    /// `targetGroup.arns`.
    pub target_group_arns: Vec<String>,
    /// `loadBalancer.names`: Classic Load Balancers.
    pub load_balancer_names: Vec<String>,
    pub iam: Iam,
    pub node_labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    /// `featureGates` of the pool's kubelets, in addition to those of all components.
    pub feature_gates: BTreeMap<String, bool>,
    /// `kubelet`: fields of `KubeletConfiguration`; they override those of `kubernetes.kubelet`.
    pub kubelet: BTreeMap<String, serde_json::Value>,
    pub tenancy: Tenancy,
    /// `customFiles` and `customSystemdUnits`.
    pub custom: Custom,
    /// `repair`.
    #[serde(default, skip_serializing_if = "Repair::is_default")]
    pub repair: Repair,
}

impl NodePool {
    /// Whether its group counts capacity units instead of machines.
    #[must_use]
    pub fn is_weighted(&self) -> bool {
        let types = self.mixed_instances.iter().flat_map(|mixed| &mixed.types);
        types.filter_map(|one| one.weight).any(|weight| weight != 1)
    }
}

/// Sizes of an Auto Scaling group, in machines, or in capacity units if types have weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSize {
    /// `minSize`.
    pub min: u32,
    /// `maxSize`.
    pub max: u32,
}

/// A mixed-instances policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MixedInstances {
    /// Instance types with their weights, in order of priority.
    pub types: Vec<WeightedType>,
    /// `onDemandBaseCapacity`.
    pub on_demand_base: u32,
    /// `onDemandPercentageAboveBaseCapacity`.
    pub on_demand_percentage: u32,
    /// `onDemandAllocationStrategy`. `None`: the order of the types.
    pub on_demand_strategy: Option<String>,
    /// `spotAllocationStrategy`.
    pub spot_strategy: String,
    /// `capacityRebalance`: a spot instance at elevated risk is replaced before EC2 interrupts it.
    pub capacity_rebalance: bool,
}

/// An instance type and the capacity units that it counts for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightedType {
    /// EC2 instance type.
    pub instance_type: String,
    /// `weightedCapacity`.
    pub weight: Option<u32>,
}

/// A node taint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Taint {
    pub key: String,
    /// Value; may be empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// Whether workers that are not Ready are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "RepairModeSpec")]
pub enum RepairMode {
    /// Nothing is said or done.
    Off,
    /// `slipway status` names them.
    #[default]
    Warn,
    /// They are drained, as far as they can be, and replaced.
    On,
}

/// `repair` of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Repair {
    /// Whether its workers are replaced.
    pub mode: RepairMode,
    /// For how many minutes a worker must not have been Ready.
    pub after_minutes: u32,
}

impl Default for Repair {
    /// By then its pods are elsewhere, if they may be: 50 s until it is not Ready, and 300 s that most pods tolerate (`DefaultTolerationSeconds`
    /// of the API server). A machine that reboots is back.
    fn default() -> Self {
        Self { mode: RepairMode::default(), after_minutes: 15 }
    }
}

impl Repair {
    /// Whether nobody has to be told, because every agent assumes it.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The same in seconds.
    #[must_use]
    pub fn after_s(self) -> u64 {
        u64::from(self.after_minutes) * 60
    }
}
