//! Random histories of a cluster: its spec changes, runs die, and objects get lost; stable credentials must not change.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use slipway_core::cluster::{Cluster, EtcdMember, NodePool};
use slipway_core::role::Role;
use slipway_credentials::{manifest, policy};
use slipway_crypto::AwsLc;
use slipway_flows::credentials::Credentials;
use slipway_ports::Crypto as _;

use crate::common::cluster;
use crate::flow::{bundle, ensure};
use crate::world::World;

/// One upload, and the fault while it is rendered.
#[derive(Debug, Clone)]
struct Step {
    members: u32,
    pools: BTreeSet<String>,
    sans: BTreeSet<String>,
    encrypted: bool,
    /// The run dies at this call, before or after the call takes effect.
    dies: Option<(u64, bool)>,
    /// Somebody deletes a sealed bundle before.
    loses: Option<prop::sample::Index>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (
        prop_oneof![Just(1u32), Just(3), Just(5)],
        proptest::collection::btree_set("[ab]", 0..2),
        proptest::collection::btree_set("[ab]\\.example", 0..2),
        any::<bool>(),
        proptest::option::of((0u64..60, any::<bool>())),
        proptest::option::weighted(0.2, any::<prop::sample::Index>()),
    )
        .prop_map(|(members, pools, sans, encrypted, dies, loses)| Step {
            members,
            pools,
            sans,
            encrypted,
            dies,
            loses,
        });
    proptest::collection::vec(step, 1..7)
}

fn spec(step: &Step) -> Cluster {
    let mut spec = cluster();
    let member = |index| EtcdMember {
        index,
        dns_name: format!("etcd-{index}.prod.etcd.internal"),
        ..spec.etcd.members[0].clone()
    };
    spec.etcd.members = (0..step.members).map(member).collect();
    let pool = |name: &String| NodePool { name: name.clone(), ..spec.pools[0].clone() };
    spec.pools = step.pools.iter().map(pool).collect();
    spec.kubernetes.extra_sans = step.sans.iter().cloned().collect();
    spec.kubernetes.encryption_at_rest = step.encrypted;
    spec
}

/// Opens the bundle of `role` as a node does, and checks it against the inventory, and each key against its certificate.
async fn inspect(world: &World, spec: &Cluster, end: &Credentials, role: &Role) {
    let files = bundle(world, end, role).await;
    let expected = &manifest::bundle_files(spec, &end.manifest).unwrap()[role];
    assert_eq!(expected, &end.manifest.bundles[role].files);
    assert_eq!(files.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (path, text) in &files {
        if let Some(stem) = path.strip_suffix("-key.pem") {
            let pair = rcgen::KeyPair::from_pem(text).unwrap();
            let spki =
                slipway_core::digest::sha256_hex(&rcgen::PublicKeyData::subject_public_key_info(&pair));
            match files.get(&format!("{stem}.pem")) {
                Some(certificate) => {
                    let (facts, fingerprint) = AwsLc.facts(certificate).unwrap();
                    assert_eq!(facts.spki_sha256, spki, "{role}: {path} is not the key of its certificate");
                    assert_eq!(expected[&format!("{stem}.pem")], format!("certificate:{fingerprint}"));
                }
                None => assert_eq!(expected[path], format!("private-key:{spki}")),
            }
        }
    }
}

async fn live(steps: Vec<Step>) {
    let world = World::new();
    // Must never change once they exist: the authorities, and the bundles of workers and members.
    let mut fixed: BTreeMap<String, String> = BTreeMap::new();
    for step in steps {
        let spec = spec(&step);
        if let Some(index) = step.loses {
            let bundles: Vec<_> =
                world.bucket.keys().into_iter().filter(|key| key.contains("/bundles/")).collect();
            if !bundles.is_empty() {
                world.bucket.purge(&bundles[index.index(bundles.len())]);
            }
        }
        if let Some((last, after)) = step.dies {
            // The run may end before that call.
            let _ = ensure(&world.mortal(last, after), &spec).await;
        }
        let end = ensure(&world, &spec).await.unwrap();
        let writes = world.bucket.writes();
        let again = ensure(&world, &spec).await.unwrap();
        assert_eq!((again.made.len(), again.sealed.len(), world.bucket.writes()), (0, 0, writes), "P1");
        assert_eq!(again.digests, end.digests);
        assert_eq!(end.digests.keys().cloned().collect::<BTreeSet<_>>(), policy::roles(&spec));

        for role in policy::roles(&spec) {
            inspect(&world, &spec, &end, &role).await;
            if role != Role::Controller {
                let before = fixed.insert(role.to_string(), end.digests[&role].clone());
                assert!(before.is_none_or(|digest| digest == end.digests[&role]), "P2: {role} changed");
            }
        }
        for authority in ["ca", "kubelet-ca", "etcd-ca", "front-proxy-ca"] {
            let fingerprint = &end.manifest.assets[authority].fingerprint;
            let before = fixed.insert(authority.to_owned(), fingerprint.clone());
            assert!(before.is_none_or(|before| before == *fingerprint), "P8: a second {authority}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn p1_p2_p8_through_any_history_workers_members_and_authorities_keep_what_they_have(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(live(steps));
    }
}
