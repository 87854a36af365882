//! The credentials flow with real cryptography over a world in memory.

use std::collections::BTreeSet;

use slipway_core::cluster::EtcdMember;
use slipway_core::role::Role;
use slipway_credentials::bootstrap::RoleToken;
use slipway_credentials::{Manifest, manifest, policy};
use slipway_crypto::AwsLc;
use slipway_flows::credentials;
use slipway_ports::Crypto as _;

use crate::common::{cluster, now};
use crate::flow::{MANIFEST, bundle, calls, changed, ensure, forget_calls, stored, with_san};
use crate::world::World;

#[tokio::test]
async fn a_first_run_makes_everything_that_the_table_asks_for_and_each_node_opens_its_own() {
    let (world, cluster) = (World::new(), cluster());
    let made = ensure(&world, &cluster).await.unwrap();
    assert_eq!(made.made.len(), policy::assets(&cluster).len());
    assert_eq!(made.digests.keys().cloned().collect::<BTreeSet<_>>(), policy::roles(&cluster));
    assert_eq!(made.manifest, stored(&world));
    // One data key for the vault and one per bundle; nothing has to be opened.
    let (generated, decrypted, _) = calls(&world);
    assert_eq!((generated, decrypted), (1 + made.digests.len(), 0));

    for role in policy::roles(&cluster) {
        let files = bundle(&world, &made, &role).await;
        let expected: Vec<_> = policy::bundle(&cluster, &role).into_iter().map(|file| file.path).collect();
        assert_eq!(files.keys().cloned().collect::<Vec<_>>(), expected, "{role}");
        for (path, text) in &files {
            assert_eq!(text.contains("PRIVATE KEY"), path.ends_with("-key.pem"), "{role}: {path}");
        }
    }
    let controller = bundle(&world, &made, &Role::Controller).await;
    let (facts, fingerprint) = AwsLc.facts(&controller["/etc/kubernetes/pki/apiserver.pem"]).unwrap();
    assert_eq!(made.manifest.assets["apiserver"].fingerprint, fingerprint);
    assert_eq!(made.manifest.assets["apiserver"].certificate.as_ref().unwrap().serial, facts.serial);
    assert_eq!(
        made.manifest.assets["apiserver"].certificate.as_ref().unwrap().issuer_fingerprint,
        made.manifest.assets["ca"].fingerprint
    );
    assert_eq!(controller["/etc/kubernetes/pki/client-ca.pem"].matches("BEGIN CERTIFICATE").count(), 2);
    let worker = bundle(&world, &made, &Role::Pool("general".to_owned())).await;
    let token = &worker["/etc/kubernetes/pki/bootstrap-token"];
    let key = &controller["/etc/kubernetes/pki/bootstrap-key"];
    assert_eq!(*token, RoleToken::derive(key, &Role::Pool("general".to_owned())).text());
    assert_ne!(*token, controller["/etc/kubernetes/pki/bootstrap-token"]);
    assert!(!worker.values().any(|text| text.contains(key.trim())), "a worker can make no other token");
    assert_eq!(
        made.manifest.assets["ca"].roles.len(),
        made.digests.len(),
        "every role receives the authority's certificate"
    );
    let ca = credentials::public_half(&world.bucket, &AwsLc, "prod", &made.manifest, "ca").await.unwrap();
    assert_eq!(ca, worker["/etc/kubernetes/pki/ca.pem"]);
}

#[tokio::test]
async fn p9_no_object_shows_a_private_key_or_a_token() {
    let (world, cluster) = (World::new(), cluster());
    let made = ensure(&world, &cluster).await.unwrap();
    let mut secrets = vec![];
    for role in policy::roles(&cluster) {
        for (path, text) in bundle(&world, &made, &role).await {
            if path.ends_with("-key.pem") {
                secrets.push(text.lines().nth(1).unwrap().to_owned());
            } else if path.ends_with("token") {
                secrets.push(text);
            } else if path.ends_with("encryption-config.yaml") {
                secrets.push(text.split("secret: ").nth(1).unwrap().lines().next().unwrap().to_owned());
            }
        }
    }
    assert!(secrets.len() > 20);
    for key in world.bucket.keys() {
        let bytes = world.bucket.peek(&key).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("PRIVATE"), "{key}");
        assert!(secrets.iter().all(|secret| !text.contains(secret)), "{key}");
    }
    assert!(secrets.iter().all(|secret| !format!("{made:?}").contains(secret)));
}

#[tokio::test]
async fn p1_an_unchanged_spec_makes_no_kms_call_and_no_object() {
    let (world, cluster) = (World::new(), cluster());
    let first = ensure(&world, &cluster).await.unwrap();
    forget_calls(&world);
    let a_year_later = now() + jiff::SignedDuration::from_hours(24 * 400);
    let again = credentials::ensure(&world.bucket, &world.kms, &AwsLc, &cluster, a_year_later).await.unwrap();
    assert_eq!(calls(&world), (0, 0, 0));
    assert_eq!((again.made.len(), again.sealed.len()), (0, 0));
    assert_eq!(again.digests, first.digests);
    assert_eq!(again.manifest, first.manifest);
}

#[tokio::test]
async fn p2_a_new_san_makes_one_certificate_and_seals_one_bundle() {
    let (world, cluster) = (World::new(), cluster());
    let first = ensure(&world, &cluster).await.unwrap();
    forget_calls(&world);
    let second = ensure(&world, &with_san(&cluster)).await.unwrap();
    assert_eq!(second.made, ["apiserver"]);
    assert_eq!(second.sealed, [Role::Controller]);
    assert_eq!(changed(&first, &second), ["controller"]);
    // One data key for the vault's new object and one for the bundle; all old keys are wrapped with one data key. Four writes: two halves
    // of the key, the bundle, the inventory.
    assert_eq!(calls(&world), (2, 1, 4));
    let files = bundle(&world, &second, &Role::Controller).await;
    let before = bundle(&world, &first, &Role::Controller).await;
    let differ: Vec<_> =
        files.iter().filter(|(path, text)| before[*path] != **text).map(|(path, _)| path).collect();
    assert_eq!(differ, ["/etc/kubernetes/pki/apiserver-key.pem", "/etc/kubernetes/pki/apiserver.pem"]);
    // Now the vault uses two wrapped keys.
    forget_calls(&world);
    let mut third = with_san(&cluster);
    third.kubernetes.extra_sans.push("more.example.com".to_owned());
    ensure(&world, &third).await.unwrap();
    assert_eq!(calls(&world), (2, 1, 4), "the replaced certificate's key is not opened");
    forget_calls(&world);
    third.kubernetes.encryption_at_rest = false;
    assert_eq!(ensure(&world, &third).await.unwrap().sealed, [Role::Controller]);
    assert_eq!(calls(&world), (1, 2, 2), "two wrapped keys, each opened once");
}

#[tokio::test]
async fn p2_a_new_member_and_a_new_pool_leave_the_others_alone() {
    let (world, cluster) = (World::new(), cluster());
    let first = ensure(&world, &cluster).await.unwrap();
    let mut grown = cluster.clone();
    for index in [3, 4] {
        let dns_name = format!("etcd-{index}.prod.etcd.internal");
        let first = grown.etcd.members[0].clone();
        grown.etcd.members.push(EtcdMember { index, dns_name, ..first });
    }
    let mut pool = grown.pools[0].clone();
    pool.name = "spot".to_owned();
    grown.pools.push(pool);
    let second = ensure(&world, &grown).await.unwrap();
    assert_eq!(second.made, ["etcd-server-3", "etcd-peer-3", "etcd-server-4", "etcd-peer-4"]);
    assert_eq!(second.sealed, [Role::Etcd(3), Role::Etcd(4), Role::Pool("spot".to_owned())]);
    assert_eq!(changed(&first, &second), Vec::<String>::new());

    // After two changes back to the earlier specs, the earlier credentials are found.
    let back = ensure(&world, &cluster).await.unwrap();
    assert_eq!(back.digests, first.digests);
    forget_calls(&world);
    assert_eq!(ensure(&world, &grown).await.unwrap().digests, second.digests);
    assert_eq!(calls(&world), (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn p8_many_at_once_end_with_one_pki() {
    let world = World::new();
    let tasks: Vec<_> = (0..12)
        .map(|seed| {
            let world = world.interrupted(seed);
            tokio::spawn(async move { ensure(&world, &cluster()).await.unwrap() })
        })
        .collect();
    let mut ends = vec![];
    for task in tasks {
        ends.push(task.await.unwrap());
    }
    assert_eq!(ends.iter().filter(|end| !end.made.is_empty()).count(), 1, "one made it, the others found it");
    assert!(ends.iter().all(|end| end.manifest == stored(&world)));
    assert_eq!(world.bucket.versions(MANIFEST), 1);
    for role in policy::roles(&cluster()) {
        bundle(&world, &ends[0], &role).await;
    }
}

#[tokio::test]
async fn p8_two_specs_that_overtake_each_other_leave_one_pki_that_serves_the_last() {
    for seed in 0..40 {
        let world = World::new();
        ensure(&world, &cluster()).await.unwrap();
        let (one, other) = (world.interrupted(seed), world.interrupted(seed + 1000));
        let (plain, wide) = (cluster(), with_san(&cluster()));
        let mut more = wide.clone();
        more.kubernetes.encryption_at_rest = false;
        let (a, b) = tokio::join!(ensure(&one, &wide), ensure(&other, &more));
        let (a, b) = (a.unwrap(), b.unwrap());
        assert_eq!(a.manifest.assets["ca"], b.manifest.assets["ca"]);
        // The last writer wrote what its spec asks for; the other one may run again and succeeds.
        for spec in [&wide, &more, &plain] {
            let end = ensure(&world, spec).await.unwrap();
            assert_eq!(end.manifest.assets["ca"], a.manifest.assets["ca"]);
            assert!(manifest::to_seal(spec, &stored(&world)).unwrap().is_empty());
            for role in policy::roles(spec) {
                bundle(&world, &end, &role).await;
            }
        }
    }
}

#[tokio::test]
async fn p8_killed_at_any_call_of_a_first_run_a_second_run_ends_it() {
    let cluster = cluster();
    let total = {
        let world = World::new();
        ensure(&world, &cluster).await.unwrap();
        world.calls()
    };
    assert!(total > 50);
    for (last, after) in (0..total).flat_map(|last| [(last, false), (last, true)]) {
        let world = World::new();
        ensure(&world.mortal(last, after), &cluster).await.unwrap_err();
        let survived = world.bucket.peek(MANIFEST).is_some();
        assert_eq!(survived, after && last == total - 1, "the manifest is the last call");
        let end = ensure(&world, &cluster).await.unwrap();
        assert_eq!(end.made.is_empty(), survived);
        let all: BTreeSet<_> = end
            .manifest
            .assets
            .values()
            .filter_map(|entry| entry.certificate.as_ref())
            .collect::<Vec<_>>()
            .iter()
            .map(|facts| facts.issuer_fingerprint.clone())
            .collect();
        assert_eq!(all.len(), 4, "four authorities signed everything");
        for role in policy::roles(&cluster) {
            bundle(&world, &end, &role).await;
        }
        forget_calls(&world);
        assert_eq!(ensure(&world, &cluster).await.unwrap().digests, end.digests);
        assert_eq!(calls(&world), (0, 0, 0));
    }
}

#[tokio::test]
async fn p8_killed_at_any_call_of_a_change_nothing_else_changes() {
    let (first_spec, second_spec) = (cluster(), with_san(&cluster()));
    let total = {
        let world = World::new();
        ensure(&world, &first_spec).await.unwrap();
        let second = world.interrupted(0);
        ensure(&second, &second_spec).await.unwrap();
        second.calls()
    };
    for (last, after) in (0..total).flat_map(|last| [(last, false), (last, true)]) {
        let world = World::new();
        let first = ensure(&world, &first_spec).await.unwrap();
        ensure(&world.mortal(last, after), &second_spec).await.unwrap_err();
        let second = ensure(&world, &second_spec).await.unwrap();
        assert_eq!(changed(&first, &second), ["controller"], "{last} {after}");
        let mut other: Manifest = second.manifest.clone();
        for (name, entry) in &first.manifest.assets {
            assert_eq!(other.assets.remove(name).as_ref() == Some(entry), name != "apiserver", "{name}");
        }
        bundle(&world, &second, &Role::Controller).await;
    }
}

#[tokio::test]
async fn p8_a_win_that_looked_like_a_loss_is_reported_as_what_it_was() {
    let world = World::new();
    world.bucket.repeat(MANIFEST);
    let end = ensure(&world, &cluster()).await.unwrap();
    assert_eq!(end.made.len(), policy::assets(&cluster()).len());
    assert_eq!(end.manifest, stored(&world));
    assert_eq!(world.bucket.versions(MANIFEST), 1);
}
