//! Runs the credentials flow in a world in memory, and the queries of its tests.

use std::collections::BTreeMap;

use slipway_core::cluster::Cluster;
use slipway_core::keys;
use slipway_core::role::Role;
use slipway_credentials::Manifest;
use slipway_crypto::AwsLc;
use slipway_flows::credentials::{self, Credentials};
use slipway_flows::error::FlowResult;

use crate::common::now;
use crate::world::World;

pub(crate) const MANIFEST: &str = "clusters/prod/pki/manifest.json";

pub(crate) async fn ensure(world: &World, cluster: &Cluster) -> FlowResult<Credentials> {
    credentials::ensure(&world.bucket, &world.kms, &AwsLc, cluster, now()).await
}

/// The files in the bundle of `role`, opened as a node opens it.
pub(crate) async fn bundle(
    world: &World,
    credentials: &Credentials,
    role: &Role,
) -> BTreeMap<String, String> {
    let key = keys::credentials("prod", &role.to_string(), &credentials.digests[role]);
    let sealed = world.bucket.peek(&key).unwrap();
    let plain =
        slipway_ports::sealed::open(&world.kms, &AwsLc, "prod", &role.to_string(), &sealed).await.unwrap();
    let value: serde_json::Value = serde_json::from_slice(plain.expose()).unwrap();
    serde_json::from_value(value["files"].clone()).unwrap()
}

pub(crate) fn stored(world: &World) -> Manifest {
    serde_json::from_slice(&world.bucket.peek(MANIFEST).unwrap()).unwrap()
}

pub(crate) fn calls(world: &World) -> (usize, usize, usize) {
    let keys = world.kms.journal();
    let puts = world.bucket.journal().count("s3:PutObject");
    (keys.count("kms:GenerateDataKey"), keys.count("kms:Decrypt"), puts)
}

pub(crate) fn forget_calls(world: &World) {
    world.kms.journal().clear();
    world.bucket.journal().clear();
}

pub(crate) fn with_san(cluster: &Cluster) -> Cluster {
    let mut cluster = cluster.clone();
    cluster.kubernetes.extra_sans.push("k8s.example.com".to_owned());
    cluster
}

/// The roles whose digest differs between `a` and `b`.
pub(crate) fn changed(a: &Credentials, b: &Credentials) -> Vec<String> {
    a.digests
        .iter()
        .filter(|(role, digest)| b.digests[*role] != **digest)
        .map(|(role, _)| role.to_string())
        .collect()
}
