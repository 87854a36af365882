//! The credentials flow over what is lost, damaged or refused: named with its cure, and nothing made in its place.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/flow.rs"]
mod flow;
#[path = "common/world.rs"]
mod world;

use common::cluster;
use flow::{MANIFEST, bundle, changed, ensure, stored, with_san};
use slipway_core::pki::Role;
use slipway_driver::credentials::Credentials;
use slipway_driver::error::{FlowError, FlowResult};
use slipway_driver::keys;
use slipway_driver::ports::ErrorKind;
use slipway_sim::memory::{Fault, OWN_KEY};
use world::World;

fn corrupt(result: FlowResult<Credentials>) -> (String, String, String) {
    match result.unwrap_err() {
        FlowError::Corrupt { key, problem, cure } => (key, problem, cure),
        other @ (FlowError::Port(_) | FlowError::Refused { .. } | FlowError::Race { .. }) => {
            panic!("{other:?}")
        }
    }
}

#[tokio::test]
async fn a_stored_key_that_is_lost_or_damaged_is_named_with_its_cure_and_nothing_is_written() {
    let (world, cluster) = (World::new(), cluster());
    let first = ensure(&world, &cluster).await.unwrap();
    let wide = with_san(&cluster);
    let path = |asset: &str, half: &str| {
        format!("clusters/prod/pki/{asset}/{}.{half}", first.manifest.assets[asset].fingerprint)
    };
    let good = |key: &str| world.bucket.peek(key).unwrap();
    let ca = path("ca", "sealed");
    let scheduler = path("scheduler", "sealed");
    let half_of_it = good(&ca)[..good(&ca).len() / 2].to_vec();
    let flipped = |key: &str, at_end: usize| {
        let mut bytes = good(key);
        let index = bytes.len() - at_end;
        bytes[index] ^= 1;
        bytes
    };
    let wrapped_flipped = {
        let mut bytes = good(&ca);
        bytes[7 + OWN_KEY.len() + 2] ^= 1;
        bytes
    };
    let pem = path("etcd-ca", "pem");
    let account = path("service-account", "pem");
    for (key, bytes, word, whom) in [
        (&ca, None, "is lost", "every certificate that it signed"),
        (&ca, Some(half_of_it), "truncated after", "controller"),
        (&ca, Some(b"hello".to_vec()), "not sealed by Slipway", "controller"),
        (&ca, Some(flipped(&ca, 1)), "tampered", "controller"),
        (&ca, Some(wrapped_flipped), "data key that cannot be unwrapped", "controller"),
        // Another asset's object: sealed by us under the same data key, and still not this one.
        (&scheduler, Some(good(&ca)), "tampered", "controller"),
        (&pem, None, "is lost", "etcd-0, etcd-1, etcd-2, controller"),
        (&pem, Some(good(&path("ca", "pem"))), "another than the inventory says", "controller"),
        (&pem, Some(b"\xff".to_vec()), "is not text", "controller"),
        (&pem, Some(b"{}".to_vec()), "cannot be read: it is not PEM", "controller"),
        (&account, Some(b"?".to_vec()), "not a public key", "controller"),
    ] {
        let before = good(key);
        match bytes {
            None => world.bucket.purge(key),
            Some(bytes) => drop(world.bucket.upload(key, bytes)),
        }
        let writes = world.bucket.writes();
        let (at, problem, cure) = corrupt(ensure(&world, &wide).await);
        assert_eq!(&at, key);
        assert!(problem.contains(word), "{problem}");
        assert!(cure.contains(whom) && cure.contains(MANIFEST), "{cure}");
        assert_eq!(world.bucket.writes(), writes, "{problem}");
        // While nobody needs it, nobody minds.
        assert_eq!(ensure(&world, &cluster).await.unwrap().digests, first.digests);
        world.bucket.upload(key, before);
    }
    // The cure works: taken out of the inventory, it is made anew, and only what it reaches changes.
    let mut manifest = stored(&world);
    manifest.assets.remove("front-proxy-ca");
    world.bucket.upload(MANIFEST, serde_json::to_vec(&manifest).unwrap());
    let healed = ensure(&world, &cluster).await.unwrap();
    assert_eq!(healed.made, ["front-proxy-ca", "front-proxy-client"]);
    assert_eq!(changed(&first, &healed), ["controller"]);
}

#[tokio::test]
async fn a_lost_bundle_is_sealed_again_and_rolls_nobody() {
    let (world, cluster) = (World::new(), cluster());
    let first = ensure(&world, &cluster).await.unwrap();
    let key = keys::credentials("prod", "controller", &first.digests[&Role::Controller]);
    world.bucket.purge(&key);
    let second = ensure(&world, &cluster).await.unwrap();
    assert_eq!((second.made.len(), second.sealed.clone()), (0, vec![Role::Controller]));
    assert_eq!(second.digests, first.digests);
    assert_eq!(
        world.bucket.versions(MANIFEST),
        1,
        "of a bundle sealed again the inventory says what it said"
    );
    bundle(&world, &second, &Role::Controller).await;
}

#[tokio::test]
async fn p8_killed_while_it_seals_a_lost_bundle_again_a_second_run_ends_it() {
    let cluster = cluster();
    for (last, after) in (0..100).flat_map(|last| [(last, false), (last, true)]) {
        let world = World::new();
        let first = ensure(&world, &cluster).await.unwrap();
        world.bucket.purge(&keys::credentials("prod", "controller", &first.digests[&Role::Controller]));
        let died = ensure(&world.mortal(last, after), &cluster).await.is_err();
        assert!(died || last > 30, "{last}");
        let end = ensure(&world, &cluster).await.unwrap();
        assert_eq!(end.manifest, first.manifest);
        bundle(&world, &end, &Role::Controller).await;
    }
}

#[tokio::test]
async fn a_bundle_that_is_there_is_never_sealed_again_and_must_be_the_right_one() {
    let (world, cluster) = (World::new(), cluster());
    let first = ensure(&world, &cluster).await.unwrap();
    let key = keys::credentials("prod", "etcd-1", &first.digests[&Role::Etcd(1)]);
    let forget = |world: &World| {
        let mut manifest = stored(world);
        manifest.bundles.remove(&Role::Etcd(1));
        world.bucket.upload(MANIFEST, serde_json::to_vec(&manifest).unwrap());
    };
    forget(&world);
    let versions = world.bucket.versions(&key);
    let second = ensure(&world, &cluster).await.unwrap();
    assert_eq!(second.digests, first.digests);
    assert_eq!(world.bucket.versions(&key), versions);

    let good = world.bucket.peek(&key).unwrap();
    let other = keys::credentials("prod", "etcd-0", &first.digests[&Role::Etcd(0)]);
    for (bytes, word) in [
        (good[..100].to_vec(), "truncated after 100 bytes"),
        (world.bucket.peek(&other).unwrap(), "cannot be unwrapped"),
        ([&good[..good.len() - 1], &[good[good.len() - 1] ^ 1]].concat(), "tampered"),
    ] {
        forget(&world);
        world.bucket.upload(&key, bytes);
        let (at, problem, cure) = corrupt(ensure(&world, &cluster).await);
        assert_eq!(at, key);
        assert!(problem.contains(word), "{problem}");
        assert!(cure.contains("delete the object"));
        world.bucket.purge(&key);
        assert_eq!(ensure(&world, &cluster).await.unwrap().digests, first.digests);
    }
}

#[tokio::test]
async fn an_inventory_that_cannot_be_read_is_no_reason_to_make_another_pki() {
    let (world, cluster) = (World::new(), cluster());
    ensure(&world, &cluster).await.unwrap();
    let good = String::from_utf8(world.bucket.peek(MANIFEST).unwrap()).unwrap();
    for (bytes, word) in [
        (good[..good.len() / 2].to_owned(), "cannot be read"),
        (String::new(), "cannot be read"),
        (good.replace("\"format\": 1", "\"format\": 2"), "has format 2"),
        (good.replace("\"fingerprint\"", "\"finger\""), "cannot be read"),
    ] {
        world.bucket.upload(MANIFEST, bytes);
        let writes = world.bucket.writes();
        let (key, problem, _) = corrupt(ensure(&world, &cluster).await);
        assert_eq!(key, MANIFEST);
        assert!(problem.contains(word), "{problem}");
        assert_eq!(world.bucket.writes(), writes);
    }
}

#[tokio::test]
async fn what_the_ports_refuse_keeps_its_kind() {
    let (world, cluster) = (World::new(), cluster());
    let refused = |result: FlowResult<Credentials>| result.unwrap_err().kind();
    world.kms.faults().plan("kms:GenerateDataKey", "role=vault", Fault::Before(ErrorKind::Denied), 1);
    assert_eq!(refused(ensure(&world, &cluster).await), "Slipway.kms.Denied");
    world.bucket.faults().plan("s3:PutObject", "manifest.json", Fault::Before(ErrorKind::Missing), 1);
    assert_eq!(refused(ensure(&world, &cluster).await), "Slipway.s3.Missing");
    assert_eq!(world.bucket.peek(MANIFEST), None);
    ensure(&world, &cluster).await.unwrap();
    world.kms.faults().plan("kms:Decrypt", "role=vault", Fault::Before(ErrorKind::Denied), 1);
    assert_eq!(refused(ensure(&world, &with_san(&cluster)).await), "Slipway.kms.Denied");
    let mut long = with_san(&cluster);
    long.certificates.leaf_days = 4000;
    let error = ensure(&world, &long).await.unwrap_err();
    assert_eq!(error.kind(), "Slipway.Refused");
    assert!(error.to_string().contains("2037-11-02T12:00:00Z"), "{error}");
    assert!(error.to_string().contains("2036-11-17T12:00:00Z"), "{error}");
    assert!(error.to_string().contains("lower tlsCertDurationDays (now 4000), or rotate ca"), "{error}");

    // A rival that always wins: given up after some tries, to be tried later.
    let manifest = stored(&world);
    for round in 0..10u32 {
        let mut rival = manifest.clone();
        rival.assets.get_mut("ca").unwrap().names = round.to_string();
        world.bucket.race(MANIFEST, serde_json::to_vec(&rival).unwrap());
    }
    let error = ensure(&world, &with_san(&cluster)).await.unwrap_err();
    assert!(matches!(error, FlowError::Race { tries: 5, .. }), "{error}");
}
