//! Add-ons: the Kubernetes objects that the node manager keeps applied, with all images pinned by digest.
//!
//! They belong to no stack and no node's configuration, so a changed add-on replaces no node (P2). The set is stored under its digest. A
//! pointer, which a rollout updates at its end, tells the node managers which set is current.
//!
//! Each add-on has a module. `object` contains what their manifests have in common, `permissions` what they may do in AWS. Each object
//! has the label [`ADDON_LABEL`](slipway_core::release::ADDON_LABEL), by which the node manager prunes objects that are no longer in the
//! set.

mod cloud_controller_manager;
mod cluster_access;
mod cluster_autoscaler;
mod coredns;
mod ebs_csi_driver;
mod flannel;
mod kube_proxy;
mod metrics_server;
mod network_policy;
mod node_local_dns;
mod object;
mod own_node;
mod permissions;
mod repair;
#[cfg(test)]
mod tests;

use slipway_core::cluster::Addon;
use slipway_core::release::{AddonSet, Installed};

use super::RenderError;
use super::context::Context;
use crate::images as addons;
use crate::images::{AddonName, Image};
pub(super) use permissions::{instance_statements, permissions};

/// Renders the add-ons that the spec enables.
pub(super) fn render(context: &mut Context<'_>) -> AddonSet {
    let enabled = addons::enabled(context.cluster);
    let addons = enabled.into_iter().map(|name| {
        let mut kit = Kit { context, name };
        let objects = match name {
            AddonName::ClusterAccess => [cluster_access::objects(&kit), repair::objects(&kit)].concat(),
            AddonName::KubeProxy => kube_proxy::objects(&mut kit),
            AddonName::Flannel => flannel::objects(&mut kit),
            AddonName::NetworkPolicy => network_policy::objects(&mut kit),
            AddonName::CloudControllerManager => cloud_controller_manager::objects(&mut kit),
            AddonName::CoreDns => coredns::objects(&mut kit),
            AddonName::NodeLocalDns => node_local_dns::objects(&mut kit),
            AddonName::EbsCsiDriver => ebs_csi_driver::objects(&mut kit),
            AddonName::MetricsServer => metrics_server::objects(&mut kit),
            AddonName::ClusterAutoscaler => cluster_autoscaler::objects(&mut kit),
        };
        Installed { name: name.as_str().to_owned(), version: kit.version(), objects }
    });
    AddonSet::new(addons.collect())
}

/// What the modules of add-ons need for rendering.
pub(super) struct Kit<'k, 'a> {
    context: &'k mut Context<'a>,
    name: AddonName,
}

impl Kit<'_, '_> {
    /// The add-on's settings in the spec.
    fn settings(&self) -> Option<&Addon> {
        addons::settings(&self.context.cluster.addons, self.name)
    }

    fn wanted_replicas(&self) -> Option<u32> {
        self.settings()?.replicas
    }

    /// The number of replicas of an add-on that runs on any node.
    fn replicas(&self) -> u32 {
        self.wanted_replicas().unwrap_or(2)
    }

    /// The number of replicas of an add-on that runs on controllers: at most one for each, because they use host ports.
    fn replicas_on_controllers(&self) -> u32 {
        self.wanted_replicas().unwrap_or_else(|| self.context.cluster.controller.count.clamp(1, 2))
    }

    fn reference(&self, image: Image) -> Option<String> {
        addons::reference(self.context.cluster, self.context.lock, self.name, image)
    }

    /// The tag of the add-on's own image; empty if it has none.
    fn version(&self) -> String {
        let main = self.name.images().first().and_then(|image| self.reference(*image));
        main.and_then(|reference| Some(reference.rsplit_once(':')?.1.to_owned())).unwrap_or_default()
    }

    /// `image` with tag and digest.
    fn image(&mut self, image: Image) -> String {
        let Some(reference) = self.reference(image) else {
            let error = RenderError::UnpinnedAddon { image: image.repository() };
            self.context.errors.push(error);
            return String::new();
        };
        let mirror = self.context.cluster.addons.image_repository.as_deref();
        self.context.image(reference, mirror)
    }
}
