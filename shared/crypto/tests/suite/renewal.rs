//! Renewing a single certificate.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use slipway_credentials::{Manifest, manifest, policy};
use slipway_crypto::AwsLc;
use slipway_flows::credentials::{ToRenew, renew, renew_all};

use crate::common::{cluster, now};
use crate::flow::{MANIFEST, bundle, changed, ensure, forget_calls, stored};
use crate::world::World;

#[tokio::test]
async fn p2_a_renewed_certificate_reaches_who_holds_it_and_nobody_else() {
    let (cluster, later) = (cluster(), now() + SignedDuration::from_hours(24 * 300));
    for asset in policy::assets(&cluster) {
        if manifest::profile(&asset).is_none_or(|profile| profile.authority) {
            continue;
        }
        for new_key in [false, true] {
            let world = World::new();
            let first = ensure(&world, &cluster).await.unwrap();
            let kept: Vec<_> =
                world.bucket.keys().into_iter().map(|key| (key.clone(), world.bucket.peek(&key))).collect();
            let second = renew(&world.bucket, &world.kms, &AwsLc, &cluster, &asset.name, new_key, later)
                .await
                .unwrap();
            let holders: BTreeSet<String> =
                policy::recipients(&cluster)[&asset.name].iter().map(ToString::to_string).collect();
            assert_eq!(
                changed(&first, &second).into_iter().collect::<BTreeSet<_>>(),
                holders,
                "{}",
                asset.name
            );
            for (name, entry) in &first.manifest.assets {
                assert_eq!(second.manifest.assets[name] == *entry, *name != asset.name, "{name}");
            }
            let facts = |manifest: &Manifest| manifest.assets[&asset.name].certificate.clone().unwrap();
            let (old, new) = (facts(&first.manifest), facts(&second.manifest));
            assert_eq!(old.spki_sha256 == new.spki_sha256, !new_key, "{}", asset.name);
            assert!(
                new.serial != old.serial
                    && new.not_after == old.not_after + SignedDuration::from_hours(24 * 300)
            );
            // Stored objects are unchanged except for the inventory, and every node can open its bundle.
            for (key, bytes) in kept {
                assert!(world.bucket.peek(&key) == bytes || key.ends_with("manifest.json"), "{key}");
            }
            for role in policy::roles(&cluster) {
                bundle(&world, &second, &role).await;
            }
            // P1: rendering again finds nothing to do.
            forget_calls(&world);
            let third = ensure(&world, &cluster).await.unwrap();
            assert_eq!((third.digests, third.manifest), (second.digests, stored(&world)));
            assert_eq!(crate::flow::calls(&world), (0, 0, 0));
        }
    }
}

#[tokio::test]
async fn p8_killed_at_any_call_a_renewal_was_done_or_was_not() {
    let cluster = cluster();
    let total = {
        let world = World::new();
        ensure(&world, &cluster).await.unwrap();
        let one = world.interrupted(0);
        renew(&one.bucket, &one.kms, &AwsLc, &cluster, "apiserver", false, now()).await.unwrap();
        one.calls()
    };
    for (last, after) in (0..total).flat_map(|last| [(last, false), (last, true)]) {
        let world = World::new();
        let first = ensure(&world, &cluster).await.unwrap();
        let mortal = world.mortal(last, after);
        renew(&mortal.bucket, &mortal.kms, &AwsLc, &cluster, "apiserver", false, now()).await.unwrap_err();
        let done = stored(&world) != first.manifest;
        assert_eq!(done, after && last == total - 1, "{last} {after}: the inventory is the last call");
        let end = ensure(&world, &cluster).await.unwrap();
        assert_eq!(changed(&first, &end).is_empty(), !done);
    }
}

#[tokio::test]
async fn p8_a_renewal_whose_answer_is_lost_is_told_and_is_not_done_twice() {
    let world = World::new();
    let first = ensure(&world, &cluster()).await.unwrap();
    world.bucket.repeat(MANIFEST);
    let renewed =
        renew(&world.bucket, &world.kms, &AwsLc, &cluster(), "apiserver", true, now()).await.unwrap();
    assert_eq!((&renewed.made, renewed.manifest == stored(&world)), (&vec!["apiserver".to_owned()], true));
    assert_eq!(world.bucket.versions(MANIFEST), 2, "renewed twice");
    // As the scan does it: what has another fingerprint than was asked for needs no renewal.
    let fingerprint = Some(renewed.manifest.assets["scheduler"].fingerprint.clone());
    let wanted = [ToRenew { name: "scheduler".to_owned(), fingerprint }];
    world.bucket.repeat(MANIFEST);
    let renewed =
        renew_all(&world.bucket, &world.kms, &AwsLc, &cluster(), &wanted, true, now()).await.unwrap();
    assert_eq!(renewed.made, ["scheduler"]);
    assert_eq!(changed(&first, &renewed), ["controller"]);
}

#[tokio::test]
async fn there_is_nothing_to_renew_before_there_is_anything() {
    let world = World::new();
    let error =
        renew(&world.bucket, &world.kms, &AwsLc, &cluster(), "apiserver", false, now()).await.unwrap_err();
    assert!(error.to_string().contains("no credentials yet"), "{error}");
    ensure(&world, &cluster()).await.unwrap();
    let error = renew(&world.bucket, &world.kms, &AwsLc, &cluster(), "ca", true, now()).await.unwrap_err();
    assert!(error.to_string().contains("cannot be renewed by itself"), "{error}");
}
