//! A three-member cluster and its whole PKI, for the tests of this crate.

use std::collections::BTreeMap;

use jiff::Timestamp;
use slipway_core::cluster::{Cluster, EtcdMember, KeyAlgorithm};
use slipway_credentials::{AssetKind, manifest, policy};
use slipway_crypto::AwsLc;
use slipway_ports::{Crypto as _, NewAsset, Signer};

pub(crate) fn cluster() -> Cluster {
    slipway_spec::parse(include_bytes!("../../../credentials/src/testdata/cluster.yaml"), None)
        .unwrap()
        .cluster
}

pub(crate) fn now() -> Timestamp {
    "2026-11-20T12:00:00Z".parse().unwrap()
}

/// Every asset of the cluster, issued as policy says.
pub(crate) fn issue_all(cluster: &Cluster) -> BTreeMap<String, NewAsset> {
    issue_all_at(cluster, now())
}

/// Every asset of the cluster, issued as policy says, at that moment.
pub(crate) fn issue_all_at(cluster: &Cluster, at: Timestamp) -> BTreeMap<String, NewAsset> {
    let mut made: BTreeMap<String, NewAsset> = BTreeMap::new();
    for asset in policy::assets(cluster) {
        let new = match manifest::profile(&asset) {
            None => AwsLc.make(&asset.kind).unwrap(),
            Some(profile) => {
                let signer = profile.issuer.as_ref().map(|issuer| signer(&made[issuer]));
                AwsLc.issue(profile, signer.as_ref(), at).unwrap()
            }
        };
        made.insert(asset.name, new);
    }
    made
}

pub(crate) fn signer(made: &NewAsset) -> Signer {
    Signer { certificate: made.public.clone().unwrap(), key: made.private.clone() }
}

/// The profile of an asset, for tests that vary it.
pub(crate) fn profile(cluster: &Cluster, name: &str) -> slipway_credentials::CertificateProfile {
    let asset = policy::assets(cluster).into_iter().find(|asset| asset.name == name).unwrap();
    let AssetKind::Certificate(profile) = asset.kind else { panic!("{name} is not a certificate") };
    profile
}

pub(crate) const ALGORITHMS: [KeyAlgorithm; 5] = [
    KeyAlgorithm::EcdsaP256,
    KeyAlgorithm::EcdsaP384,
    KeyAlgorithm::Rsa2048,
    KeyAlgorithm::Rsa3072,
    KeyAlgorithm::Rsa4096,
];

/// The cluster with this number of etcd members.
pub(crate) fn with_members(count: u32) -> Cluster {
    let mut cluster = cluster();
    let first = cluster.etcd.members[0].clone();
    cluster.etcd.members = (0..count)
        .map(|index| EtcdMember {
            index,
            dns_name: format!("etcd-{index}.prod.etcd.internal"),
            ..first.clone()
        })
        .collect();
    cluster
}

/// Every certificate of the cluster with key types that are slow to generate: one key for all authorities and one for all leaves, which no
/// real cluster has.
pub(crate) fn certify_all(cluster: &Cluster, at: Timestamp) -> BTreeMap<String, NewAsset> {
    let authority = AwsLc.issue(&profile(cluster, "ca"), None, at).unwrap();
    let leaf = AwsLc.issue(&profile(cluster, "admin"), Some(&signer(&authority)), at).unwrap();
    let mut made: BTreeMap<String, NewAsset> = BTreeMap::new();
    for asset in policy::assets(cluster) {
        let Some(profile) = manifest::profile(&asset) else { continue };
        let key = if profile.authority { &authority.private } else { &leaf.private };
        let above = profile.issuer.as_ref().map(|name| signer(&made[name]));
        let new = AwsLc.certify(profile, key, above.as_ref(), at).unwrap();
        made.insert(asset.name, new);
    }
    made
}
