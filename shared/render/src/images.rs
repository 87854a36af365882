//! The add-ons that Slipway installs: their names, their images, and the versions for each Kubernetes minor.
//!
//! A version in this table reaches a cluster only through its lock. The versions of a cluster are pinned when its Kubernetes minor is
//! first rendered, so a newer Slipway changes nothing by itself (P1). Digests are not listed here: the registry is asked once.
//!
//! Sources of the versions: the manifests of the Kubernetes release (CoreDNS, node-local DNS), each project's newest release (`go list
//! -m` for Go modules), and the chart of the AWS EBS CSI driver for its sidecars. The cloud provider and the cluster autoscaler follow
//! the Kubernetes minor: the newest patch of that minor whose image was promoted (kubernetes/k8s.io, `registry.k8s.io/images`; the builds of
//! the cloud provider's v1.34.1, v1.35.1 and v1.36.0 failed). Earlier patches of the cloud provider end in a panic on an instance that is
//! gone (cloud-provider-aws issue 1365), and have no HTTP time-outs (PR 1374). The cluster autoscaler has no release for 1.37 yet; its skew
//! policy allows the newest earlier one. Read in November 2026.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use slipway_core::cluster::{Addon, Addons, Cluster, KubernetesVersion, NetworkProvider};

use crate::lock::Lock;

/// An add-on. Add-ons are applied in this order, in which dependencies come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names are the projects'")]
pub enum AddonName {
    ClusterAccess,
    KubeProxy,
    Flannel,
    NetworkPolicy,
    CloudControllerManager,
    CoreDns,
    NodeLocalDns,
    EbsCsiDriver,
    MetricsServer,
    ClusterAutoscaler,
}

impl AddonName {
    /// All add-ons, in the order in which they are applied.
    pub const ALL: [Self; 10] = [
        Self::ClusterAccess,
        Self::KubeProxy,
        Self::Flannel,
        Self::NetworkPolicy,
        Self::CloudControllerManager,
        Self::CoreDns,
        Self::NodeLocalDns,
        Self::EbsCsiDriver,
        Self::MetricsServer,
        Self::ClusterAutoscaler,
    ];

    /// The name in labels and plans.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClusterAccess => "cluster-access",
            Self::KubeProxy => "kube-proxy",
            Self::Flannel => "flannel",
            Self::NetworkPolicy => "kube-network-policies",
            Self::CloudControllerManager => "aws-cloud-controller-manager",
            Self::CoreDns => "coredns",
            Self::NodeLocalDns => "node-local-dns",
            Self::EbsCsiDriver => "aws-ebs-csi-driver",
            Self::MetricsServer => "metrics-server",
            Self::ClusterAutoscaler => "cluster-autoscaler",
        }
    }

    /// Its images, with its own first; empty if it has none.
    #[must_use]
    pub fn images(self) -> &'static [Image] {
        match self {
            Self::ClusterAccess => &[],
            Self::KubeProxy => &[Image::KubeProxy],
            Self::Flannel => &[Image::Flannel, Image::FlannelCni],
            Self::NetworkPolicy => &[Image::NetworkPolicies],
            Self::CloudControllerManager => &[Image::CloudControllerManager],
            Self::CoreDns => &[Image::CoreDns],
            Self::NodeLocalDns => &[Image::NodeLocalDns],
            Self::EbsCsiDriver => &[
                Image::EbsCsiDriver,
                Image::CsiProvisioner,
                Image::CsiAttacher,
                Image::CsiResizer,
                Image::CsiNodeDriverRegistrar,
                Image::CsiLivenessProbe,
            ],
            Self::MetricsServer => &[Image::MetricsServer],
            Self::ClusterAutoscaler => &[Image::ClusterAutoscaler],
        }
    }
}

/// A container image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names are the projects'")]
pub enum Image {
    KubeProxy,
    Flannel,
    FlannelCni,
    NetworkPolicies,
    CloudControllerManager,
    CoreDns,
    NodeLocalDns,
    EbsCsiDriver,
    CsiProvisioner,
    CsiAttacher,
    CsiResizer,
    CsiNodeDriverRegistrar,
    CsiLivenessProbe,
    MetricsServer,
    ClusterAutoscaler,
}

impl Image {
    /// Registry and repository.
    #[must_use]
    pub fn repository(self) -> &'static str {
        match self {
            Self::KubeProxy => "registry.k8s.io/kube-proxy",
            Self::Flannel => "ghcr.io/flannel-io/flannel",
            Self::FlannelCni => "ghcr.io/flannel-io/flannel-cni-plugin",
            Self::NetworkPolicies => "registry.k8s.io/networking/kube-network-policies",
            Self::CloudControllerManager => "registry.k8s.io/provider-aws/cloud-controller-manager",
            Self::CoreDns => "registry.k8s.io/coredns/coredns",
            Self::NodeLocalDns => "registry.k8s.io/dns/k8s-dns-node-cache",
            Self::EbsCsiDriver => "public.ecr.aws/ebs-csi-driver/aws-ebs-csi-driver",
            Self::CsiProvisioner => "public.ecr.aws/csi-components/csi-provisioner",
            Self::CsiAttacher => "public.ecr.aws/csi-components/csi-attacher",
            Self::CsiResizer => "public.ecr.aws/csi-components/csi-resizer",
            Self::CsiNodeDriverRegistrar => "public.ecr.aws/csi-components/csi-node-driver-registrar",
            Self::CsiLivenessProbe => "public.ecr.aws/csi-components/livenessprobe",
            Self::MetricsServer => "registry.k8s.io/metrics-server/metrics-server",
            Self::ClusterAutoscaler => "registry.k8s.io/autoscaling/cluster-autoscaler",
        }
    }

    /// The last part of the repository, which is its name in the lock.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.repository().rsplit('/').next().unwrap_or_default()
    }

    /// The tag for a Kubernetes minor. `None`: kube-proxy, whose tag is the exact Kubernetes release.
    fn tag(self, minor: u16) -> Option<&'static str> {
        Some(match self {
            Self::KubeProxy => return None,
            Self::Flannel => "v0.28.9",
            Self::FlannelCni => "v1.9.1-flannel1",
            Self::NetworkPolicies => "v1.1.2",
            Self::CloudControllerManager => match minor {
                ..=34 => "v1.34.3",
                35 => "v1.35.2",
                36 => "v1.36.1",
                37.. => "v1.37.0",
            },
            Self::CoreDns => "v1.14.6",
            Self::NodeLocalDns => "1.26.8",
            Self::EbsCsiDriver => "v1.62.0",
            Self::CsiProvisioner => "v6.3.0-eksbuild.1",
            Self::CsiAttacher => "v4.12.0-eksbuild.2",
            Self::CsiResizer => "v2.2.0-eksbuild.2",
            Self::CsiNodeDriverRegistrar => "v2.17.0-eksbuild.2",
            Self::CsiLivenessProbe => "v2.19.0-eksbuild.2",
            Self::MetricsServer => "v0.9.0",
            Self::ClusterAutoscaler => match minor {
                ..=34 => "v1.34.4",
                35 => "v1.35.1",
                36.. => "v1.36.1",
            },
        })
    }
}

/// The tags of an add-on's images for Kubernetes `version` that this version of Slipway knows, by [`Image::name`].
#[must_use]
pub fn newest(version: KubernetesVersion, addon: AddonName) -> BTreeMap<String, String> {
    let tagged = |image: &Image| Some((image.name().to_owned(), image.tag(version.minor)?.to_owned()));
    addon.images().iter().filter_map(tagged).collect()
}

/// The add-ons that `cluster` enables, in the order in which they are applied.
#[must_use]
pub fn enabled(cluster: &Cluster) -> Vec<AddonName> {
    AddonName::ALL.into_iter().filter(|name| is_enabled(&cluster.addons, *name)).collect()
}

fn is_enabled(addons: &Addons, name: AddonName) -> bool {
    match name {
        AddonName::ClusterAccess => true,
        AddonName::Flannel => addons.network == NetworkProvider::Flannel,
        AddonName::KubeProxy
        | AddonName::NetworkPolicy
        | AddonName::CloudControllerManager
        | AddonName::CoreDns
        | AddonName::NodeLocalDns
        | AddonName::EbsCsiDriver
        | AddonName::MetricsServer
        | AddonName::ClusterAutoscaler => settings(addons, name).is_some_and(|addon| addon.enabled),
    }
}

/// The spec's settings of an add-on. `None`: the one that cannot be configured.
#[must_use]
pub fn settings(addons: &Addons, name: AddonName) -> Option<&Addon> {
    Some(match name {
        AddonName::ClusterAccess => return None,
        AddonName::KubeProxy => &addons.kube_proxy,
        AddonName::Flannel => &addons.flannel,
        AddonName::NetworkPolicy => &addons.network_policy,
        AddonName::CloudControllerManager => &addons.cloud_controller_manager,
        AddonName::CoreDns => &addons.core_dns,
        AddonName::NodeLocalDns => &addons.node_local_dns,
        AddonName::EbsCsiDriver => &addons.ebs_csi_driver,
        AddonName::MetricsServer => &addons.metrics_server,
        AddonName::ClusterAutoscaler => &addons.cluster_autoscaler,
    })
}

/// The `repository:tag` of an image of `cluster` in its own registry, not in a mirror, under which its digest is pinned. `None`: the lock
/// has no version.
#[must_use]
pub fn reference(cluster: &Cluster, lock: &Lock, addon: AddonName, image: Image) -> Option<String> {
    let spec_version = settings(&cluster.addons, addon).and_then(|addon| addon.version.as_deref());
    let is_main = addon.images().first() == Some(&image);
    let tag = match (image, spec_version.filter(|_| is_main)) {
        (_, Some(spec_version)) => spec_version.to_owned(),
        (Image::KubeProxy, None) => format!("v{}", lock.kubernetes_version(cluster)?),
        (_, None) => lock.addon_version(cluster, image.name())?.to_owned(),
    };
    Some(format!("{}:{tag}", image.repository()))
}

/// The references of all images that `cluster`'s add-ons need and whose version is known.
#[must_use]
pub fn references(cluster: &Cluster, lock: &Lock) -> Vec<String> {
    let images = enabled(cluster).into_iter().flat_map(|addon| {
        addon.images().iter().filter_map(move |image| reference(cluster, lock, addon, *image))
    });
    let mut all: Vec<String> = images.collect();
    all.sort();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use slipway_core::versions::RELEASES;

    use super::*;

    /// The cloud provider of an earlier minor has the faults of that minor.
    #[test]
    fn the_cloud_provider_is_of_the_minor_of_kubernetes() {
        for release in RELEASES {
            let tag = Image::CloudControllerManager.tag(release.minor).unwrap();
            assert!(tag.starts_with(&format!("v1.{}.", release.minor)), "{tag}");
        }
    }

    #[test]
    fn every_image_has_a_tag_for_every_release_and_a_name_of_its_own() {
        let mut names = Vec::new();
        for addon in AddonName::ALL {
            for image in addon.images() {
                names.push(image.name());
                for release in RELEASES {
                    assert!(image.tag(release.minor).is_some() || *image == Image::KubeProxy, "{image:?}");
                }
            }
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn what_follows_kubernetes_is_never_newer_and_at_most_one_minor_older() {
        for release in RELEASES {
            for image in [Image::CloudControllerManager, Image::ClusterAutoscaler] {
                let tag = image.tag(release.minor).unwrap();
                let minor: u16 = tag.split('.').nth(1).unwrap().parse().unwrap();
                assert!(
                    minor <= release.minor && minor + 1 >= release.minor,
                    "{tag} for 1.{}",
                    release.minor
                );
            }
        }
    }
}
