//! What network, endpoints and nodes must agree on, which none of them can see alone.

use slipway_core::cluster::{ApiEndpoint, Backing, Controller, Egress, NodePool, SubnetSource};

use super::Lowering;
use super::network::Draft;
use crate::model::FlagSpec;
use crate::path::Path;

/// The part of the pods' range that each node takes, unless a flag of the controller manager says otherwise.
const NODE_PREFIX: u8 = 24;
/// "The size of the node CIDR mask must be greater than or equal to the cluster's", and by 16 at most (k8s.io/kubernetes,
/// `pkg/controller/nodeipam/ipam/cidrset/cidr_set.go`, `clusterSubnetMaxDiff`).
const MOST_DIFFERENCE: u8 = 16;

impl Lowering<'_, '_, '_> {
    /// Workers that reach a guarded public endpoint from addresses that its security group cannot know would never join.
    pub(super) fn workers_let_in(
        &mut self,
        endpoints: &[ApiEndpoint],
        chosen: Option<&str>,
        pools: &[NodePool],
        network: &Draft,
    ) {
        // One that was refused is missing here, and the places of the others with it.
        if endpoints.len() != self.spec.api_endpoints.len().max(1) {
            return;
        }
        for (index, endpoint) in endpoints.iter().enumerate() {
            let balancer = &endpoint.load_balancer;
            let guarded = balancer.backing == Backing::Managed
                && !balancer.private
                && balancer.security_group_ids.is_empty()
                && balancer.source_cidrs.iter().all(|range| range.prefix_len() > 0);
            let mut strangers: Vec<&str> = pools
                .iter()
                .filter(|pool| pool.api_endpoint.as_deref().or(chosen) == Some(endpoint.name.as_str()))
                .flat_map(|pool| &pool.subnets)
                .filter_map(|name| network.subnet(name))
                .filter(|subnet| !leaves_through_our_address(&subnet.source))
                .map(|subnet| subnet.name.as_str())
                .collect();
            if !guarded || strangers.is_empty() {
                continue;
            }
            strangers.sort_unstable();
            strangers.dedup();
            let path = Path::parse("apiEndpoints")
                .index(index)
                .key("loadBalancer")
                .key("apiAccessAllowedSourceCIDRs");
            let message = format!(
                "workers in `{}` reach this public endpoint from addresses that are not known here: unless the ranges hold them, those workers cannot join",
                strangers.join("`, `")
            );
            let help = "add an endpoint with `private: true` and name it in `worker.apiEndpointName`, or list in `securityGroupIds` a security group that lets them in";
            self.report.warning("workers-shut-out", &path, message, help);
        }
    }

    /// The range of pods limits the number of nodes: beyond it, a node gets no addresses for its pods.
    pub(super) fn pods_fit(&mut self, controller: Option<&Controller>, pools: &[NodePool], network: &Draft) {
        let Some(range) = network.pod_cidr else { return };
        let (prefix, written) = self.node_prefix();
        let widest = range.prefix_len();
        let most = (widest + MOST_DIFFERENCE).min(32);
        if let Some(place) = written.filter(|_| !(widest..=most).contains(&prefix)) {
            let message = format!(
                "nodes cannot each take a /{prefix} of the pods' range {range}: the controller manager would not start"
            );
            let help = format!("write {widest} to {most}");
            self.report.error("flag-value", &place, message, help);
            return;
        }
        let room = 1_u64 << prefix.saturating_sub(widest);
        let controllers = u64::from(controller.map_or(0, |controller| controller.count));
        let nodes = |size: fn(&NodePool) -> u32| {
            controllers + pools.iter().map(|pool| u64::from(size(pool))).sum::<u64>()
        };
        let (least, most) = (nodes(|pool| pool.size.min), nodes(|pool| pool.size.max));
        let path = Path::parse("podCIDR");
        let help = format!(
            "take a wider range (each node takes a /{prefix} of it) before the cluster is launched: it cannot be changed later"
        );
        if least > room {
            let message = format!("{range} has addresses for {room} nodes, and there are {least} at least");
            self.report.error("pod-range-too-small", &path, message, help);
        } else if most > room {
            let message = format!("{range} has addresses for {room} nodes, and the pools may grow to {most}");
            self.report.warning("pod-range-too-small", &path, message, help);
        }
    }

    /// The size of each node's part of the pods' range, and where it is written.
    fn node_prefix(&self) -> (u8, Option<Path>) {
        let flags = &self.spec.kubernetes.controller_manager.flags;
        let named = |flag: &FlagSpec| {
            let name = flag.name.as_deref().unwrap_or_default();
            ["node-cidr-mask-size", "node-cidr-mask-size-ipv4"].contains(&name)
        };
        let found = flags.iter().position(named).and_then(|index| {
            let size = flags[index].value.as_deref()?.parse().ok().filter(|size| *size > 0)?;
            let place = Path::parse("kubernetes.controllerManager.flags").index(index).key("value");
            Some((size, Some(place)))
        });
        found.unwrap_or((NODE_PREFIX, None))
    }
}

/// Whether traffic to the internet bears an address that our network stack made, and so can let in.
fn leaves_through_our_address(source: &SubnetSource) -> bool {
    match source {
        SubnetSource::Managed { egress: Egress::ManagedNat { eip_allocation_id, .. }, .. } => {
            eip_allocation_id.is_none()
        }
        SubnetSource::Managed {
            egress: Egress::InternetGateway | Egress::ExistingNat { .. } | Egress::RouteTable { .. },
            ..
        }
        | SubnetSource::Existing { .. } => false,
    }
}
