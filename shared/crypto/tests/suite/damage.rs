//! The credentials flow with lost, damaged or refused objects: damage is reported, and healed if that changes no digest. Otherwise the flow
//! names it with a help, and issues nothing in its place.

use std::collections::BTreeSet;

use slipway_core::cluster::{Cluster, EtcdMember};
use slipway_core::keys;
use slipway_core::role::Role;
use slipway_credentials::{Manifest, policy};
use slipway_crypto::AwsLc;
use slipway_flows::credentials::{self, Credentials, NodeBundles};
use slipway_flows::error::{FlowError, FlowResult};
use slipway_ports::{Crypto as _, ErrorKind};
use slipway_sim::memory::{Fault, OWN_KEY};

use crate::common::{cluster, now};
use crate::flow::{MANIFEST, bundle, changed, ensure, stored, with_san};
use crate::world::World;

fn corrupt(result: FlowResult<Credentials>) -> (String, String, String) {
    match result.unwrap_err() {
        FlowError::Corrupt { key, problem, help } => (key, problem, help),
        other @ (FlowError::Port(_) | FlowError::Refused { .. } | FlowError::Race { .. }) => {
            panic!("{other:?}")
        }
    }
}

/// The damage of an object.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Damage {
    Lost,
    Empty,
    Truncated,
    Foreign,
    /// One bit of the last byte is flipped.
    Flipped,
    /// One bit of the wrapped data key is flipped.
    WrappedFlipped,
    /// Another object of the same cluster is in its place.
    Swapped,
    /// The same object of another cluster is in its place.
    OfAnotherCluster,
    /// An earlier version of the object is in its place.
    Older,
}

use Damage::{Empty, Flipped, Foreign, Lost, OfAnotherCluster, Older, Swapped, Truncated, WrappedFlipped};

const SEALED: [Damage; 8] =
    [Lost, Empty, Truncated, Foreign, Flipped, WrappedFlipped, Swapped, OfAnotherCluster];
const OPEN: [Damage; 6] = [Lost, Empty, Truncated, Foreign, Swapped, OfAnotherCluster];

/// The words that the message must contain.
fn words(damage: Damage, is_sealed: bool) -> &'static [&'static str] {
    match damage {
        Lost => &["is lost"],
        Empty | Truncated if is_sealed => &["is truncated after"],
        Foreign if is_sealed => &["is not sealed by Slipway"],
        Empty | Truncated | Foreign => &["cannot be read", "not a public key"],
        Flipped => &["cannot be opened: tampered with"],
        WrappedFlipped => &["contains a data key that cannot be unwrapped"],
        // KMS itself refuses the encryption context of another bundle.
        Swapped | OfAnotherCluster if is_sealed => {
            &["cannot be opened: tampered with, or sealed under another", "cannot be unwrapped"]
        }
        Swapped | OfAnotherCluster => &["is another than the inventory says"],
        Older => &["holds other credentials than its name says"],
    }
}

/// A world with two clusters, and the keys of the objects of one asset or role of the first.
struct Scene {
    world: World,
    first: Credentials,
    theirs: Credentials,
}

impl Scene {
    async fn new() -> Self {
        let world = World::new();
        let first = ensure(&world, &cluster()).await.unwrap();
        let theirs = ensure(&world, &Cluster { name: "theirs".to_owned(), ..cluster() }).await.unwrap();
        Self { world, first, theirs }
    }

    fn half(&self, asset: &str, half: &str) -> String {
        format!("clusters/prod/pki/{asset}/{}.{half}", self.first.manifest.assets[asset].fingerprint)
    }

    fn their_half(&self, asset: &str, half: &str) -> String {
        format!("clusters/theirs/pki/{asset}/{}.{half}", self.theirs.manifest.assets[asset].fingerprint)
    }

    fn good(&self, key: &str) -> Vec<u8> {
        self.world.bucket.peek(key).unwrap()
    }

    /// Damages `key`, with `other` and `theirs` as the objects that may take its place. Returns the original.
    fn damage(&self, key: &str, damage: Damage, other: &str, theirs: &str) -> Vec<u8> {
        let good = self.good(key);
        let flipped = |index: usize| {
            let mut bytes = good.clone();
            bytes[index] ^= 1;
            bytes
        };
        let bytes = match damage {
            Lost => {
                self.world.bucket.purge(key);
                return good;
            }
            Empty => Vec::new(),
            Truncated => good[..good.len() / 2].to_vec(),
            Foreign => b"hello".to_vec(),
            Flipped => flipped(good.len() - 1),
            WrappedFlipped => flipped(7 + OWN_KEY.len() + 2),
            Swapped => self.good(other),
            OfAnotherCluster => self.good(theirs),
            Older => panic!("only a bundle has an older one"),
        };
        self.world.bucket.upload(key, bytes);
        good
    }
}

/// A change that needs the key of every authority and everything of the controllers.
fn wide() -> Cluster {
    let mut wide = with_san(&cluster());
    let first = wide.etcd.members[0].clone();
    wide.etcd.members.push(EtcdMember {
        index: 3,
        dns_name: "etcd-3.prod.etcd.internal".to_owned(),
        ..first
    });
    wide.kubernetes.encryption_at_rest = !wide.kubernetes.encryption_at_rest;
    wide
}

fn mentions(problem: &str, damage: Damage, is_sealed: bool) -> bool {
    words(damage, is_sealed).iter().any(|word| problem.contains(word))
}

#[tokio::test]
async fn p1_every_damage_to_a_bundle_is_told_and_healed_under_the_same_digest() {
    let scene = Scene::new().await;
    let (world, first) = (&scene.world, &scene.first);
    for role in policy::roles(&cluster()) {
        let name = role.to_string();
        let key = keys::credentials("prod", &name, &first.digests[&role]);
        let other = if role == Role::Admin { Role::Controller } else { Role::Admin };
        let other = keys::credentials("prod", &other.to_string(), &first.digests[&other]);
        let theirs = keys::credentials("theirs", &name, &scene.theirs.digests[&role]);
        for damage in SEALED {
            scene.damage(&key, damage, &other, &theirs);
            let healed = ensure(world, &cluster()).await.unwrap();
            assert_eq!(healed.digests, first.digests, "{role} {damage:?}");
            let [one] = &healed.healed[..] else { panic!("{role} {damage:?}: {:?}", healed.healed) };
            assert!(one.key == key && mentions(&one.problem, damage, true), "{role} {damage:?}: {one:?}");
            bundle(world, &healed, &role).await;
            let writes = world.bucket.writes();
            assert_eq!(ensure(world, &cluster()).await.unwrap().healed, []);
            assert_eq!(world.bucket.writes(), writes, "once");
        }
    }
    // An earlier bundle of the same role: sealed by us and for the role, but with another digest than its name says.
    let older = scene.good(&keys::credentials("prod", "controller", &first.digests[&Role::Controller]));
    let newer = ensure(world, &with_san(&cluster())).await.unwrap();
    let key = keys::credentials("prod", "controller", &newer.digests[&Role::Controller]);
    world.bucket.upload(&key, older);
    let healed = ensure(world, &with_san(&cluster())).await.unwrap();
    assert_eq!(healed.digests, newer.digests);
    assert!(mentions(&healed.healed[0].problem, Older, true), "{:?}", healed.healed);
    let files = bundle(world, &healed, &Role::Controller).await;
    let (_, fingerprint) = AwsLc.facts(&files["/etc/kubernetes/pki/apiserver.pem"]).unwrap();
    assert_eq!(fingerprint, newer.manifest.assets["apiserver"].fingerprint);
}

#[tokio::test]
async fn p1_a_half_that_a_bundle_holds_is_brought_back_from_there() {
    for (asset, other, half) in [
        ("etcd-ca", "ca", "pem"),
        ("ca", "etcd-ca", "pem"),
        ("scheduler", "apiserver", "pem"),
        ("service-account", "scheduler", "pem"),
        ("scheduler", "apiserver", "sealed"),
        ("kubelet-ca", "ca", "sealed"),
        ("service-account", "scheduler", "sealed"),
        ("bootstrap-key", "encryption-config", "sealed"),
    ] {
        let damages = if half == "pem" { &OPEN[..] } else { &SEALED[..] };
        for &damage in damages {
            let scene = Scene::new().await;
            let (world, key) = (&scene.world, scene.half(asset, half));
            let good = scene.damage(&key, damage, &scene.half(other, half), &scene.their_half(asset, half));
            // The damage does not matter while nobody needs the object.
            assert_eq!(ensure(world, &cluster()).await.unwrap().manifest, scene.first.manifest);
            let healed = ensure(world, &wide()).await.unwrap();
            let one = healed.healed.iter().find(|one| one.key == key);
            let one = one.unwrap_or_else(|| panic!("{asset}.{half} {damage:?}: {:?}", healed.healed));
            let word = if asset == "service-account" && half == "pem" && damage == Swapped {
                one.problem.contains("another than the inventory says")
                    || one.problem.contains("not a public")
            } else {
                mentions(&one.problem, damage, half == "sealed")
            };
            assert!(word, "{asset}.{half} {damage:?}: {one:?}");
            assert_eq!(
                healed.made,
                ["apiserver", "etcd-server-3", "etcd-peer-3"],
                "nothing is issued in its place"
            );
            assert_eq!(
                healed.manifest.assets[asset].fingerprint,
                scene.first.manifest.assets[asset].fingerprint
            );
            if half == "pem" {
                assert_eq!(scene.good(&key), good);
            }
            let again = ensure(world, &with_san(&cluster())).await.unwrap();
            assert_eq!(again.healed, [], "{asset}.{half} {damage:?}");
        }
    }
}

#[tokio::test]
async fn what_no_bundle_holds_is_named_with_its_cure_and_nothing_is_made_in_its_place() {
    let scene = Scene::new().await;
    let world = &scene.world;
    for (asset, other, whom) in [
        ("ca", "etcd-ca", "every certificate that it signed"),
        ("etcd-ca", "ca", "every certificate that it signed"),
        ("digest-key", "ca", "no node's own"),
        ("encryption-config", "bootstrap-key", "controller"),
    ] {
        let key = scene.half(asset, "sealed");
        for damage in SEALED {
            let good =
                scene.damage(&key, damage, &scene.half(other, "sealed"), &scene.their_half(asset, "sealed"));
            let writes = world.bucket.writes();
            let (at, problem, help) = corrupt(ensure(world, &wide()).await);
            assert_eq!(at, key);
            assert!(mentions(&problem, damage, true), "{asset} {damage:?}: {problem}");
            assert!(help.contains(whom) && help.contains(MANIFEST), "{help}");
            assert_eq!(world.bucket.writes(), writes, "{problem}");
            // The damage does not matter while nobody needs the object.
            assert_eq!(ensure(world, &cluster()).await.unwrap().manifest, scene.first.manifest);
            world.bucket.upload(&key, good);
        }
    }
    // The help works: an asset that is removed from the inventory is issued again, and only its recipients change.
    let mut manifest = stored(world);
    manifest.assets.remove("front-proxy-ca");
    world.bucket.upload(MANIFEST, serde_json::to_vec(&manifest).unwrap());
    let healed = ensure(world, &cluster()).await.unwrap();
    assert_eq!(healed.made, ["front-proxy-ca", "front-proxy-client"]);
    assert_eq!(changed(&scene.first, &healed), ["controller"]);
}

#[tokio::test]
async fn p1_an_inventory_that_is_lost_or_older_than_what_runs_is_refused() {
    let (world, cluster) = (World::new(), cluster());
    let first = ensure(&world, &cluster).await.unwrap();
    let old = world.bucket.peek(MANIFEST).unwrap();
    let second = ensure(&world, &with_san(&cluster)).await.unwrap();
    let known = |end: &Credentials| -> NodeBundles {
        end.digests.iter().map(|(role, digest)| (role.clone(), [digest.clone()].into())).collect()
    };
    let run = async |known: &NodeBundles| {
        credentials::ensure_for(&world.bucket, &world.kms, &AwsLc, &with_san(&cluster), known, now()).await
    };
    // The earlier, the present, and both during a change: all digests are known.
    for known in [known(&first), known(&second)] {
        assert_eq!(run(&known).await.unwrap().manifest, second.manifest);
    }
    let good = world.bucket.peek(MANIFEST).unwrap();
    world.bucket.upload(MANIFEST, old.clone());
    let writes = world.bucket.writes();
    let (key, problem, help) = corrupt(run(&known(&second)).await);
    assert_eq!(key, MANIFEST);
    assert!(problem.contains("controller runs: it is older"), "{problem}");
    assert_eq!(world.bucket.writes(), writes);
    // The manual help works as it says.
    let mut manifest: Manifest = serde_json::from_slice(&old).unwrap();
    let digest = second.digests[&Role::Controller].clone();
    assert!(help.contains(&format!("\"{digest}\": [] under \"retired\", \"controller\"")), "{help}");
    manifest.retired.entry(Role::Controller).or_default().insert(digest, BTreeSet::new());
    world.bucket.upload(MANIFEST, serde_json::to_vec(&manifest).unwrap());
    assert_eq!(run(&known(&second)).await.unwrap().made, ["apiserver"]);

    // An inventory of another cluster, and none.
    let theirs = ensure(&world, &Cluster { name: "theirs".to_owned(), ..cluster.clone() }).await.unwrap();
    world.bucket.upload(MANIFEST, serde_json::to_vec(&theirs.manifest).unwrap());
    assert!(corrupt(run(&known(&second)).await).1.contains("or of another cluster"));
    world.bucket.purge(MANIFEST);
    let writes = world.bucket.writes();
    let (key, problem, help) = corrupt(run(&known(&second)).await);
    assert_eq!(
        (key.as_str(), problem.as_str()),
        (MANIFEST, "is lost, and other stored credentials were made with it")
    );
    assert!(help.contains("restore its last version"), "{help}");
    // A plan that was never begun is enough.
    world.bucket.upload(&keys::desired("prod"), "{}");
    assert_eq!(corrupt(run(&NodeBundles::new()).await).0, MANIFEST);
    assert_eq!(world.bucket.writes(), writes + 1);
    world.bucket.upload(MANIFEST, good);
    assert_eq!(run(&known(&second)).await.unwrap().digests, second.digests);
}

#[tokio::test]
async fn p2_a_digest_that_no_longer_follows_from_what_is_listed_is_refused() {
    let (world, cluster) = (World::new(), cluster());
    let first = ensure(&world, &cluster).await.unwrap();
    let mut manifest = stored(&world);
    manifest.bundles.get_mut(&Role::Admin).unwrap().digest = "0".repeat(64);
    world.bucket.upload(MANIFEST, serde_json::to_vec(&manifest).unwrap());
    let (key, problem, help) = corrupt(ensure(&world, &cluster).await);
    assert_eq!(key, MANIFEST);
    assert!(
        problem.contains("the bundle of admin") && problem.contains(&first.digests[&Role::Admin]),
        "{problem}"
    );
    assert!(help.contains("take \"admin\" out of its \"bundles\""), "{help}");
    manifest.bundles.remove(&Role::Admin);
    world.bucket.upload(MANIFEST, serde_json::to_vec(&manifest).unwrap());
    assert_eq!(ensure(&world, &cluster).await.unwrap().digests, first.digests);
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
    assert_eq!(second.healed[0].problem, "is lost");
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
        assert_eq!(end.digests, first.digests);
        bundle(&world, &end, &Role::Controller).await;
    }
}

#[tokio::test]
async fn a_bundle_that_is_there_and_the_right_one_is_never_sealed_again() {
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

    // If a rival always wins, the flow gives up after some tries and can be retried later.
    let manifest = stored(&world);
    for round in 0..10u32 {
        let mut rival = manifest.clone();
        rival.assets.get_mut("ca").unwrap().names = round.to_string();
        world.bucket.race(MANIFEST, serde_json::to_vec(&rival).unwrap());
    }
    let error = ensure(&world, &with_san(&cluster)).await.unwrap_err();
    assert!(matches!(error, FlowError::Race { tries: 5, .. }), "{error}");
}
