//! The configuration of an etcd member. It says nothing about Kubernetes.

use std::collections::BTreeMap;

use slipway_core::cluster::EtcdMember;
use slipway_core::members::MemberPin;
use slipway_core::node::{DataVolume, EtcdConfig, EtcdSettings, InitialClusterState};
use slipway_core::role::Role;

use super::{Config, base};
use crate::context::Context;
use crate::ports;

/// The configuration of one etcd member. Of the other members it contains only what its pin says, so that it does not change with them.
pub(crate) fn etcd(context: &mut Context<'_>, member: &EtcdMember, pin: &MemberPin, group: &str) -> Config {
    let version = context.etcd_version();
    let role = Role::Etcd(member.index);
    let base = base(context, &role, group);
    let cluster = context.cluster;
    let content = EtcdConfig {
        base,
        custom: cluster.etcd.custom.clone(),
        etcd: EtcdSettings {
            version,
            quota_bytes: cluster.etcd.quota_gib.map(|gib| u64::from(gib) << 30),
            name: role.to_string(),
            dns_name: member.dns_name.clone(),
            client_port: ports::ETCD_CLIENT,
            peer_port: ports::ETCD_PEER,
            initial_cluster: pin.initial_cluster.clone(),
            initial_cluster_state: pin.joins.then_some(InitialClusterState::Existing),
            initial_cluster_token: cluster.name.clone(),
            join_endpoints: pin.join_endpoints.clone(),
        },
        data_volume: DataVolume {
            tags: BTreeMap::from([
                ("slipway:cluster".to_owned(), cluster.name.clone()),
                ("slipway:role".to_owned(), role.to_string()),
                ("slipway:volume".to_owned(), pin.volume.tag()),
            ]),
            device: "/dev/sdf".to_owned(),
            file_system: "ext4".to_owned(),
            mount_point: "/var/lib/etcd".to_owned(),
        },
    };
    Config::new(context, &role, &content)
}
