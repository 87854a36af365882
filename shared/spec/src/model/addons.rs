//! Add-ons: what Slipway keeps installed in the cluster.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use slipway_core::cluster::{NetworkProvider, ProxyMode};

use super::kubernetes::ComputeResourcesSpec;

/// Add-ons.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AddonsSpec {
    /// A registry, perhaps with a path, that holds copies of all images under `<registry>/<repository>` (for
    /// `mirror.example.com/k8s`: `mirror.example.com/k8s/registry.k8s.io/coredns/coredns`), for nodes that reach no other.
    pub(crate) image_repository: Option<String>,
    /// Kube-proxy, which makes services reachable; on unless turned off.
    pub(crate) kube_proxy: KubeProxySpec,
    /// The pod network.
    pub(crate) network: PodNetworkSpec,
    /// Enforcement of Kubernetes network policies, with any pod network; off unless enabled.
    pub(crate) network_policy: OptionalAddonSpec,
    /// AWS' cloud controller manager, which tells nodes their zone and makes load balancers; on unless turned off.
    pub(crate) cloud_controller_manager: AddonSpec,
    /// CoreDNS, the cluster's DNS service; on unless turned off.
    pub(crate) core_dns: CoreDnsSpec,
    /// A DNS cache on every node, in front of CoreDNS; off unless enabled.
    pub(crate) node_local_dns: OptionalAddonSpec,
    /// AWS' EBS CSI driver, which makes persistent volumes; on unless turned off.
    pub(crate) ebs_csi_driver: EbsCsiDriverSpec,
    /// The metrics server, for `kubectl top` and horizontal autoscaling.
    pub(crate) metrics_server: ReplicatedAddonSpec,
    /// The cluster autoscaler, which scales the pools that ask for it.
    pub(crate) cluster_autoscaler: ClusterAutoscalerSpec,
}

/// An add-on that is on unless turned off.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AddonSpec {
    /// Whether it is installed; `true` unless given.
    pub(crate) enabled: Option<bool>,
    /// The tag of its image; the one that goes with the Kubernetes minor, pinned once, unless given.
    pub(crate) version: Option<String>,
    /// The resource requests and limits of each of its pods.
    pub(crate) resources: ComputeResourcesSpec,
}

/// An add-on that is off unless enabled.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct OptionalAddonSpec {
    /// Whether it is installed.
    pub(crate) enabled: bool,
    /// The tag of its image; the one that goes with the Kubernetes minor, pinned once, unless given.
    pub(crate) version: Option<String>,
    /// The resource requests and limits of each of its pods.
    pub(crate) resources: ComputeResourcesSpec,
}

/// An add-on with replicas, off unless enabled.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ReplicatedAddonSpec {
    /// Whether it is installed.
    pub(crate) enabled: bool,
    /// The tag of its image; the one that goes with the Kubernetes minor, pinned once, unless given.
    pub(crate) version: Option<String>,
    /// How many pods; 2 unless given.
    #[schemars(range(min = 1, max = 50))]
    pub(crate) replicas: Option<u32>,
    /// The resource requests and limits of each of its pods.
    pub(crate) resources: ComputeResourcesSpec,
}

/// kube-proxy.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct KubeProxySpec {
    /// Whether it is installed; `true` unless given. Turn it off for a pod network that does its work, such as Cilium.
    pub(crate) enabled: Option<bool>,
    /// How it sends traffic on; `iptables` unless given.
    pub(crate) mode: Option<ProxyMode>,
    /// The resource requests and limits of each of its pods.
    pub(crate) resources: ComputeResourcesSpec,
}

/// The pod network.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PodNetworkSpec {
    /// Which pod network Slipway installs; `flannel` unless given, `none` if you install one yourself.
    pub(crate) provider: Option<NetworkProvider>,
    /// The tag of its image; the one that goes with the Kubernetes minor, pinned once, unless given.
    pub(crate) version: Option<String>,
    /// The resource requests and limits of each of its pods.
    pub(crate) resources: ComputeResourcesSpec,
}

/// CoreDNS.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CoreDnsSpec {
    /// Whether it is installed; `true` unless given.
    pub(crate) enabled: Option<bool>,
    /// The tag of its image; the one that goes with the Kubernetes minor, pinned once, unless given.
    pub(crate) version: Option<String>,
    /// How many pods; 2 unless given.
    #[schemars(range(min = 1, max = 50))]
    pub(crate) replicas: Option<u32>,
    /// The resource requests and limits of each of its pods.
    pub(crate) resources: ComputeResourcesSpec,
    /// Lines for the server block of the root zone, such as `rewrite` rules.
    #[serde(rename = "extraCoreDNSConfig")]
    pub(crate) extra_config: Option<String>,
    /// Server blocks of other zones, such as a stub zone for a corporate domain.
    #[serde(rename = "additionalZoneCoreDNSConfig")]
    pub(crate) zone_config: Option<String>,
}

/// AWS' EBS CSI driver.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct EbsCsiDriverSpec {
    /// Whether it is installed; `true` unless given.
    pub(crate) enabled: Option<bool>,
    /// The tag of the driver's image; the one that goes with the Kubernetes minor, pinned once, unless given.
    pub(crate) version: Option<String>,
    /// How many pods of the controller; left out, two, or one beside a single controller.
    #[schemars(range(min = 1, max = 5))]
    pub(crate) replicas: Option<u32>,
    /// What the driver's container asks for.
    pub(crate) resources: ComputeResourcesSpec,
    /// Whether the storage class `gp3` (encrypted, bound to the pod's zone) is made, and is the default; `true` unless given.
    pub(crate) default_storage_class: Option<bool>,
}

/// The cluster autoscaler.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ClusterAutoscalerSpec {
    /// Whether it is installed.
    pub(crate) enabled: bool,
    /// The tag of its image; the one that goes with the Kubernetes minor, pinned once, unless given.
    pub(crate) version: Option<String>,
    /// How many pods, of which one is active; left out, two, or one if there is a single controller.
    #[schemars(range(min = 1, max = 5))]
    pub(crate) replicas: Option<u32>,
    /// The resource requests and limits of each of its pods.
    pub(crate) resources: ComputeResourcesSpec,
    /// Its flags without the dashes, such as `scale-down-unneeded-time: 15m`.
    pub(crate) options: BTreeMap<String, String>,
}
