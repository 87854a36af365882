//! P1: where a list of the spec is a set, its order reaches no byte.

use proptest::prelude::*;
use slipway_core::cluster::Cluster;

use crate::fixture::{cluster, rendered};

/// A cluster whose sets have several entries.
fn with_sets() -> Cluster {
    let mut cluster = cluster();
    let groups = ["sg-0000000000000000c", "sg-0000000000000000a", "sg-0000000000000000b"].map(str::to_owned);
    cluster.controller.security_group_ids = groups.to_vec();
    cluster.ssh_authorized_keys.extend(["ssh-ed25519 C", "ssh-ed25519 B"].map(str::to_owned));
    cluster.controller.iam.managed_policy_arns =
        ["Two", "One", "Three"].map(|name| format!("arn:aws:iam::111122223333:policy/{name}")).to_vec();
    let cidrs = ["203.0.113.0/24", "192.0.2.0/24", "198.51.100.0/24"].map(|cidr| cidr.parse().unwrap());
    cluster.api_endpoints[0].load_balancer.source_cidrs = cidrs.to_vec();
    cluster
}

fn shuffled<T: Clone + std::fmt::Debug + 'static>(list: &[T]) -> impl Strategy<Value = Vec<T>> + use<T> {
    Just(list.to_vec()).prop_shuffle()
}

fn reordered() -> impl Strategy<Value = Cluster> {
    let cluster = with_sets();
    let lists = (
        shuffled(&cluster.network.subnets),
        shuffled(&cluster.controller.subnets),
        shuffled(&cluster.controller.security_group_ids),
        shuffled(&cluster.controller.iam.managed_policy_arns),
        shuffled(&cluster.ssh_authorized_keys),
        shuffled(&cluster.api_endpoints[0].load_balancer.source_cidrs),
        shuffled(&cluster.api_endpoints),
    );
    lists.prop_map(move |(subnets, of_controller, groups, policies, keys, cidrs, mut endpoints)| {
        let mut cluster = cluster.clone();
        for endpoint in &mut endpoints {
            if !endpoint.load_balancer.private {
                endpoint.load_balancer.source_cidrs.clone_from(&cidrs);
            }
        }
        cluster.network.subnets = subnets;
        cluster.controller.subnets = of_controller;
        cluster.controller.security_group_ids = groups;
        cluster.controller.iam.managed_policy_arns = policies;
        cluster.ssh_authorized_keys = keys;
        cluster.api_endpoints = endpoints;
        cluster
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn p1_the_order_of_sets_reaches_no_byte(cluster in reordered()) {
        prop_assert_eq!(rendered(&cluster).id(), rendered(&with_sets()).id());
    }
}
