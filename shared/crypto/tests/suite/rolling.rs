//! Changing the KMS key: everything is sealed once more and no digest changes. Whoever may use either key can open its bundle at every
//! moment.

use std::collections::BTreeMap;

use slipway_core::cluster::Cluster;
use slipway_core::keys;
use slipway_core::role::Role;
use slipway_credentials::{Manifest, policy};
use slipway_crypto::AwsLc;
use slipway_flows::credentials::{self, Credentials};
use slipway_ports::{Context, Crypto as _, DataKey, ErrorKind, Keys, PortError, PortResult, Secret};
use slipway_sim::memory::OWN_KEY;

use crate::common::cluster;
use crate::flow::{bundle, calls, ensure, forget_calls, stored, with_san};
use crate::world::World;

const MINE: &str = "arn:aws:kms:eu-west-1:111122223333:key/mine";
const OTHER: &str = "arn:aws:kms:eu-west-1:111122223333:key/other";

fn under(key: &str) -> Cluster {
    Cluster { kms_key_arn: Some(key.to_owned()), ..cluster() }
}

/// A node whose IAM role may use only one KMS key.
struct Node<'w> {
    world: &'w World,
    may: &'w str,
    asked: std::sync::atomic::AtomicUsize,
}

impl Keys for Node<'_> {
    fn name(&self, arn: Option<&str>) -> String {
        self.world.kms.name(arn)
    }

    async fn generate(&self, _: Option<&str>, _: &Context) -> PortResult<DataKey> {
        panic!("a node may not make a data key")
    }

    async fn unwrap(&self, wrapped: &[u8], context: &Context) -> PortResult<Secret> {
        self.asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        if !wrapped.starts_with(format!("{}\n", self.may).as_bytes()) {
            return Err(PortError {
                kind: ErrorKind::Denied,
                operation: "kms:Decrypt",
                subject: "a node".to_owned(),
                message: "AccessDeniedException".to_owned(),
            });
        }
        self.world.kms.unwrap(wrapped, context).await
    }
}

/// How many calls to KMS a node of `role` that may use `key` needs for its bundle; `None` if it cannot open the bundle.
async fn boot(world: &World, end: &Credentials, role: &Role, key: &str) -> Option<usize> {
    let sealed =
        world.bucket.peek(&keys::credentials("prod", &role.to_string(), &end.digests[role])).unwrap();
    let node = Node { world, may: key, asked: 0.into() };
    let opened = slipway_ports::sealed::open(&node, &AwsLc, "prod", &role.to_string(), &sealed).await;
    opened.is_ok().then(|| node.asked.into_inner())
}

/// The KMS keys that each object under `clusters/prod` is sealed under.
fn sealed_under(world: &World) -> BTreeMap<String, Vec<String>> {
    let keys = world.bucket.keys().into_iter();
    let sealed = keys.filter(|key| key.ends_with(".sealed") || key.contains("/bundles/"));
    sealed
        .map(|key| {
            let bytes = world.bucket.peek(&key).unwrap();
            let names = AwsLc.sealings(&bytes).unwrap().iter().map(|one| one.wrapped_by.to_owned()).collect();
            (key, names)
        })
        .collect()
}

/// The inventory without the information about sealing.
fn content(manifest: &Manifest) -> Manifest {
    let mut manifest = manifest.clone();
    manifest.sealed_under.clear();
    for bundle in manifest.bundles.values_mut() {
        bundle.sealed_under.clear();
        bundle.etag.clear();
    }
    manifest
}

#[tokio::test]
async fn p1_p2_another_kms_key_seals_everything_once_more_and_changes_no_digest() {
    let (world, cluster) = (World::new(), cluster());
    let first = ensure(&world, &cluster).await.unwrap();
    forget_calls(&world);
    let second = ensure(&world, &under(MINE)).await.unwrap();
    assert_eq!(second.made, Vec::<String>::new());
    assert_eq!(second.digests, first.digests);
    assert_eq!(content(&second.manifest), content(&first.manifest));
    // One data key for the vault and one per bundle; existing objects are opened once: the vault's one data key, and each bundle.
    let (generated, decrypted, _) = calls(&world);
    assert_eq!((generated, decrypted), (1 + first.digests.len(), 1 + first.digests.len()));
    assert!(sealed_under(&world).values().all(|keys| keys == &[OWN_KEY, MINE]));
    for role in policy::roles(&cluster) {
        assert_eq!(bundle(&world, &first, &role).await, bundle(&world, &second, &role).await);
        assert_eq!(boot(&world, &second, &role, MINE).await, Some(1), "{role}: one call to KMS per bundle");
        assert_eq!(
            boot(&world, &second, &role, OWN_KEY).await,
            Some(2),
            "{role}: its stack is the earlier one"
        );
        assert_eq!(boot(&world, &second, &role, OTHER).await, None);
    }
    // P1: the same key again, and the earlier key again, where nothing has to be sealed.
    forget_calls(&world);
    assert_eq!(ensure(&world, &under(MINE)).await.unwrap().manifest, second.manifest);
    assert_eq!(calls(&world), (0, 0, 0));
    let back = ensure(&world, &cluster).await.unwrap();
    assert_eq!(content(&back.manifest), content(&first.manifest));
    assert_eq!((calls(&world).0, calls(&world).2), (0, 1), "only the inventory is written");
    assert!(sealed_under(&world).values().all(|keys| keys == &[OWN_KEY, MINE]));
}

#[tokio::test]
async fn once_rolled_the_old_key_may_go_and_everything_still_works() {
    let (world, cluster) = (World::new(), cluster());
    let first = ensure(&world, &cluster).await.unwrap();
    ensure(&world, &under(MINE)).await.unwrap();
    world.kms.disable(None);
    let wide = Cluster { kms_key_arn: Some(MINE.to_owned()), ..with_san(&cluster) };
    let second = ensure(&world, &wide).await.unwrap();
    assert_eq!(second.made, ["apiserver"]);
    assert_eq!(boot(&world, &second, &Role::Controller, MINE).await, Some(1));
    // A bundle with an old sealing that nobody can open any more gets only the new sealing.
    let mut manifest = stored(&world);
    manifest.bundles.remove(&Role::Admin);
    world.bucket.upload(crate::flow::MANIFEST, serde_json::to_vec(&manifest).unwrap());
    assert_eq!(ensure(&world, &wide).await.unwrap().digests[&Role::Admin], first.digests[&Role::Admin]);
    // The change to a third key.
    let third = Cluster { kms_key_arn: Some(OTHER.to_owned()), ..wide };
    let end = ensure(&world, &third).await.unwrap();
    assert_eq!(end.digests, second.digests);
    for role in policy::roles(&cluster) {
        assert_eq!(boot(&world, &end, &role, OTHER).await, Some(1), "{role}");
    }
}

/// A stack's permissions change shortly before its launch template, so a machine that boots in between has the earlier bundle and the other
/// key.
#[tokio::test]
async fn p8_an_earlier_bundle_that_still_runs_is_sealed_under_the_other_key_as_well() {
    let (world, cluster) = (World::new(), cluster());
    let oldest = ensure(&world, &cluster).await.unwrap();
    let wide = with_san(&cluster);
    let old = ensure(&world, &wide).await.unwrap();
    let known = [(Role::Controller, [oldest.digests[&Role::Controller].clone()].into())].into();
    let mut wider = Cluster { kms_key_arn: Some(MINE.to_owned()), ..wide };
    wider.kubernetes.extra_sans.push("more.example.com".to_owned());
    let end =
        credentials::ensure_for(&world.bucket, &world.kms, &AwsLc, &wider, &known, crate::common::now())
            .await
            .unwrap();
    let digests = [&oldest, &old, &end].map(|end| end.digests[&Role::Controller].clone());
    assert_eq!(digests.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
    for which in [&oldest, &old] {
        assert_eq!(boot(&world, which, &Role::Controller, MINE).await, Some(1));
        assert_eq!(boot(&world, which, &Role::Controller, OWN_KEY).await, Some(2));
    }
    assert_eq!(boot(&world, &end, &Role::Controller, MINE).await, Some(1));
    forget_calls(&world);
    assert_eq!(ensure(&world, &wider).await.unwrap().manifest, end.manifest);
    assert_eq!(calls(&world), (0, 0, 0));
}

#[tokio::test]
async fn a_key_that_is_gone_before_the_roll_is_an_error_and_changes_nothing() {
    let (world, cluster) = (World::new(), cluster());
    ensure(&world, &cluster).await.unwrap();
    world.kms.disable(None);
    let writes = world.bucket.writes();
    let error = ensure(&world, &under(MINE)).await.unwrap_err();
    assert_eq!(error.kind(), "Slipway.kms.Denied", "{error}");
    assert_eq!(world.bucket.writes(), writes);
}

#[tokio::test]
async fn p1_new_material_behind_the_same_key_is_nobodys_business() {
    let (world, cluster) = (World::new(), cluster());
    let first = ensure(&world, &cluster).await.unwrap();
    world.kms.rotate(None);
    forget_calls(&world);
    assert_eq!(ensure(&world, &cluster).await.unwrap().manifest, first.manifest);
    assert_eq!(calls(&world), (0, 0, 0));
    let wide = ensure(&world, &with_san(&cluster)).await.unwrap();
    for role in policy::roles(&cluster) {
        assert_eq!(boot(&world, &wide, &role, OWN_KEY).await, Some(1), "{role}");
    }
}

#[tokio::test]
async fn p8_killed_at_any_call_of_a_roll_every_node_boots_and_a_second_run_ends_it() {
    let cluster = cluster();
    let total = {
        let world = World::new();
        ensure(&world, &cluster).await.unwrap();
        let second = world.interrupted(0);
        ensure(&second, &under(MINE)).await.unwrap();
        second.calls()
    };
    assert!(total > 80, "{total}");
    // Dying after a call equals dying before the next one: the world is the same.
    for last in 0..total {
        let world = World::new();
        let first = ensure(&world, &cluster).await.unwrap();
        ensure(&world.mortal(last, false), &under(MINE)).await.unwrap_err();
        for role in policy::roles(&cluster) {
            assert!(boot(&world, &first, &role, OWN_KEY).await.is_some(), "{last}: {role}");
        }
        let end = ensure(&world, &under(MINE)).await.unwrap();
        assert_eq!(content(&end.manifest), content(&first.manifest), "{last}");
        assert!(sealed_under(&world).values().all(|keys| keys == &[OWN_KEY, MINE]), "{last}");
    }
}

#[tokio::test]
async fn p8_two_who_want_different_keys_leave_what_both_open() {
    for seed in 0..20 {
        let world = World::new();
        let first = ensure(&world, &cluster()).await.unwrap();
        let (one, other) = (world.interrupted(seed), world.interrupted(seed + 1000));
        let (mine, theirs) = (under(MINE), under(OTHER));
        let (a, b) = tokio::join!(ensure(&one, &mine), ensure(&other, &theirs));
        assert_eq!((&a.unwrap().digests, &b.unwrap().digests), (&first.digests, &first.digests));
        for keys in sealed_under(&world).values() {
            let mut keys = keys.clone();
            keys.sort();
            assert_eq!(keys, [OWN_KEY, MINE, OTHER].map(str::to_owned), "seed {seed}");
        }
    }
}
