//! What an etcd member must know: nothing of Kubernetes.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Base, Config};
use crate::cluster::{Custom, EtcdMember};
use crate::members::MemberPin;
use crate::pki::Role;
use crate::render::context::Context;
use crate::render::ports;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct EtcdConfig<'c> {
    #[serde(flatten)]
    base: Base,
    #[serde(skip_serializing_if = "Custom::is_empty")]
    custom: &'c Custom,
    etcd: EtcdSettings,
    data_volume: DataVolume,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct EtcdSettings {
    version: String,
    name: String,
    dns_name: String,
    client_port: u16,
    peer_port: u16,
    /// For a founder without data. A member that has data knows its fellows from there, and one that joins asks.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    initial_cluster: BTreeMap<String, String>,
    /// `existing`: with an empty volume it joins, as a learner first; absent: it founds the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    initial_cluster_state: Option<&'static str>,
    initial_cluster_token: String,
    /// Where one that joins asks to be added; the answer is its `initial-cluster`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    join_endpoints: Vec<String>,
}

/// Where the data lie: the node finds the volume by its tags, which its role limits it to.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DataVolume {
    tags: BTreeMap<&'static str, String>,
    device: &'static str,
    file_system: &'static str,
    mount_point: &'static str,
}

/// The configuration of one etcd member. Of its fellows it holds what was settled for it, and nothing that changes with them.
pub(in crate::render) fn etcd(
    context: &mut Context<'_>,
    member: &EtcdMember,
    pin: &MemberPin,
    group: &str,
) -> Config {
    let version = context.etcd_version();
    let cluster = context.cluster;
    let role = Role::Etcd(member.index).to_string();
    let content = EtcdConfig {
        base: Base::new(cluster, role.clone(), group),
        custom: &cluster.etcd.custom,
        etcd: EtcdSettings {
            version,
            name: member.name.clone(),
            dns_name: member.dns_name.clone(),
            client_port: ports::ETCD_CLIENT,
            peer_port: ports::ETCD_PEER,
            initial_cluster: pin.initial_cluster.clone(),
            initial_cluster_state: pin.joins.then_some("existing"),
            initial_cluster_token: cluster.name.clone(),
            join_endpoints: pin.join_endpoints.clone(),
        },
        data_volume: DataVolume {
            tags: BTreeMap::from([
                ("slipway:cluster", cluster.name.clone()),
                ("slipway:role", role),
                ("slipway:volume", pin.volume.tag()),
            ]),
            device: "/dev/sdf",
            file_system: "ext4",
            mount_point: "/var/lib/etcd",
        },
    };
    Config::new(context, &Role::Etcd(member.index), &content)
}
