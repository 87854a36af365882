//! What network, endpoints and nodes must agree on, which none of them can see alone.

use slipway_core::cluster::{ApiEndpoint, Backing, Controller, Egress, NodePool, SubnetSource};

use super::Lowering;
use super::network::Draft;
use crate::path::Path;

/// The part of the pods' range that each node takes.
const NODE_PREFIX: u8 = 24;

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
        let room = 1_u64 << NODE_PREFIX.saturating_sub(range.prefix_len());
        let controllers = u64::from(controller.map_or(0, |controller| controller.count));
        let nodes = |size: fn(&NodePool) -> u32| {
            controllers + pools.iter().map(|pool| u64::from(size(pool))).sum::<u64>()
        };
        let (least, most) = (nodes(|pool| pool.size.min), nodes(|pool| pool.size.max));
        let path = Path::parse("podCIDR");
        let help = format!(
            "take a wider range (each node takes a /{NODE_PREFIX} of it) before the cluster is launched: it cannot be changed later"
        );
        if least > room {
            let message = format!("{range} has addresses for {room} nodes, and there are {least} at least");
            self.report.error("pod-range-too-small", &path, message, help);
        } else if most > room {
            let message = format!("{range} has addresses for {room} nodes, and the pools may grow to {most}");
            self.report.warning("pod-range-too-small", &path, message, help);
        }
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
