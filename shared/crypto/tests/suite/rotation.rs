//! Rotations with real keys: `openssl` verifies every pair of bundles of two stages that may meet. A process that dies at any call leaves a
//! stage either begun or not begun.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use jiff::{SignedDuration, Timestamp};
use slipway_core::cluster::{Cluster, IamRoles, KeyAlgorithm};
use slipway_core::keys;
use slipway_core::release::Site;
use slipway_core::role::{CA, ETCD_CA, FRONT_PROXY_CA, KUBELET_CA, ROTATABLE, Role, SERVICE_ACCOUNT};
use slipway_credentials::gc::{self, Referred, Stored};
use slipway_credentials::rotation::{KnownNodes, Stage};
use slipway_credentials::{CertificateProfile, Manifest, policy};
use slipway_crypto::AwsLc;
use slipway_crypto::verify::{self, File, FileContent};
use slipway_flows::credentials::rotation::{self, Did, Request, Rotated};
use slipway_flows::credentials::{self, Credentials};
use slipway_flows::error::FlowResult;
use slipway_flows::issuer;
use slipway_ports::{Crypto as _, Keys as _, NewAsset, Secret};

use crate::common::{cluster, now, signer};
use crate::flow::{MANIFEST, bundle, changed, ensure, forget_calls, stored};
use crate::world::World;

/// A person confirms that every node has the stored credentials.
fn vouched() -> KnownNodes {
    KnownNodes { vouched: true, ..KnownNodes::default() }
}

async fn start(world: &World, cluster: &Cluster, name: &str) -> FlowResult<Rotated> {
    rotation::change(&world.bucket, &world.kms, &AwsLc, cluster, name, now(), Request::Start).await
}

async fn go_on(world: &World, cluster: &Cluster, name: &str, at: Timestamp) -> FlowResult<Rotated> {
    rotation::change(&world.bucket, &world.kms, &AwsLc, cluster, name, at, Request::Continue(&vouched()))
        .await
}

async fn abort(world: &World, cluster: &Cluster, name: &str) -> FlowResult<Rotated> {
    rotation::change(&world.bucket, &world.kms, &AwsLc, cluster, name, now(), Request::Abort).await
}

/// The files in the bundle of each role.
type Bundles = BTreeMap<Role, BTreeMap<String, String>>;

/// The bundles that nodes get from a rendering now, which issues and seals nothing itself.
async fn rendered(world: &World, cluster: &Cluster) -> (Credentials, Bundles) {
    forget_calls(world);
    let credentials = ensure(world, cluster).await.unwrap();
    assert_eq!(crate::flow::calls(world), (0, 0, 0), "a rendering has nothing to do");
    let mut bundles = Bundles::new();
    for role in policy::roles(cluster) {
        bundles.insert(role.clone(), bundle(world, &credentials, &role).await);
    }
    (credentials, bundles)
}

fn file<'b>(bundles: &'b Bundles, role: &Role, name: &str) -> Option<&'b String> {
    bundles[role].iter().find(|(path, _)| path.rsplit('/').next() == Some(name)).map(|(_, text)| text)
}

/// `openssl verify` of `leaves` with what a node trusts: one process for all of them.
fn verify(dir: &Path, trusted: &str, purpose: &str, leaves: &BTreeSet<&String>) {
    std::fs::write(dir.join("trusted.pem"), trusted).unwrap();
    let names: Vec<String> = (0..leaves.len()).map(|index| format!("leaf-{index}.pem")).collect();
    for (name, leaf) in names.iter().zip(leaves) {
        std::fs::write(dir.join(name), leaf).unwrap();
    }
    let at = (now() + SignedDuration::from_hours(1)).as_second().to_string();
    let output = Command::new("openssl")
        .args(["verify", "-x509_strict", "-check_ss_sig", "-attime", &at, "-purpose", purpose])
        .args(["-CAfile", "trusted.pem"])
        .args(&names)
        .current_dir(dir)
        .output()
        .expect("openssl is installed");
    let told =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{purpose}: {told}");
    assert_eq!(told.matches(": OK").count(), leaves.len(), "{told}");
}

/// The certificate that a controller with these files signs for a kubelet.
fn kubelets(bundles: &Bundles) -> String {
    let authority = file(bundles, &Role::Controller, "kubelet-ca.pem").unwrap();
    assert_eq!(
        authority.matches("BEGIN CERTIFICATE").count(),
        1,
        "kube-controller-manager accepts one certificate"
    );
    let key = file(bundles, &Role::Controller, "kubelet-ca-key.pem").unwrap();
    let authority =
        NewAsset { public: Some(authority.clone()), private: Secret::new(key.clone().into_bytes()) };
    let profile = CertificateProfile {
        issuer: Some(KUBELET_CA.to_owned()),
        authority: false,
        common_name: "system:node:i-1".to_owned(),
        organizations: vec!["system:nodes".to_owned()],
        server: true,
        client: true,
        sans: BTreeSet::from(["10.0.0.7".to_owned()]),
        algorithm: KeyAlgorithm::EcdsaP256,
        days: 365,
    };
    AwsLc.issue(&profile, Some(&signer(&authority)), now()).unwrap().public.unwrap()
}

/// A node with `one` accepts what a node with `other` presents.
fn meet(one: &Bundles, other: &Bundles) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let mut judged: BTreeMap<(&String, &str), BTreeSet<&String>> = BTreeMap::new();
    let mut takes = |role: &Role, trusts: &str, leaf, purpose| {
        if let (Some(trusted), Some(leaf)) = (file(one, role, trusts), leaf) {
            judged.entry((trusted, purpose)).or_default().insert(leaf);
        }
    };
    let controller = &Role::Controller;
    let kubelet = kubelets(other);
    for role in one.keys() {
        takes(role, "ca.pem", file(other, controller, "apiserver.pem"), "sslserver");
        takes(role, "ca.pem", file(other, controller, "apiserver-kubelet-client.pem"), "sslclient");
        if role != controller {
            takes(role, "kubelet-ca.pem", Some(&kubelet), "sslserver");
        }
        for member in other.keys().filter(|role| role.member().is_some()) {
            takes(role, "etcd-ca.pem", file(other, member, "server.pem"), "sslserver");
            takes(role, "etcd-ca.pem", file(other, member, "peer.pem"), "sslclient");
            takes(role, "etcd-ca.pem", file(other, member, "healthcheck-client.pem"), "sslclient");
        }
        takes(role, "etcd-ca.pem", file(other, controller, "apiserver-etcd-client.pem"), "sslclient");
    }
    for leaf in ["controller-manager.pem", "scheduler.pem", "node-manager.pem"] {
        takes(controller, "client-ca.pem", file(other, controller, leaf), "sslclient");
    }
    takes(controller, "client-ca.pem", file(other, &Role::Admin, "admin.pem"), "sslclient");
    takes(controller, "client-ca.pem", Some(&kubelet), "sslclient");
    takes(controller, "client-ca.pem", Some(&kubelet), "sslserver");
    takes(controller, "front-proxy-ca.pem", file(other, controller, "front-proxy-client.pem"), "sslclient");
    for ((trusted, purpose), leaves) in &judged {
        verify(dir.path(), trusted, purpose, leaves);
    }
    // Tokens: the public half of the signing key is among the accepted keys.
    std::fs::write(dir.path().join("key.pem"), file(other, controller, "service-account-key.pem").unwrap())
        .unwrap();
    let public = Command::new("openssl")
        .args(["pkey", "-in", "key.pem", "-pubout"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let public = String::from_utf8(public.stdout).unwrap();
    let taken = file(one, controller, "service-account.pub.pem").unwrap();
    assert!(public.contains("PUBLIC KEY") && taken.contains(public.trim()), "a token is refused");
    judged.values().map(BTreeSet::len).sum()
}

#[tokio::test]
async fn whoever_meets_in_two_stages_that_meet_is_taken_by_openssl() {
    let cluster = cluster();
    for name in ROTATABLE {
        let world = World::new();
        let first = ensure(&world, &cluster).await.unwrap();
        let (_, mut before) = rendered(&world, &cluster).await;
        let oldest = before.clone();
        start(&world, &cluster, name).await.unwrap();
        let mut stages = 0;
        loop {
            let (credentials, bundles) = rendered(&world, &cluster).await;
            assert!(meet(&before, &bundles) + meet(&bundles, &before) + meet(&bundles, &bundles) > 50);
            stages += 1;
            before = bundles;
            if credentials.manifest.rotations[name].stage == Stage::Drop {
                break;
            }
            let mut went = go_on(&world, &cluster, name, now()).await.unwrap();
            if went.did == Did::Noted {
                // Certificates that nodes signed have expired by then.
                let later = now() + SignedDuration::from_hours(24 * 400);
                assert_eq!(go_on(&world, &cluster, name, now()).await.unwrap().did, Did::Waits);
                went = go_on(&world, &cluster, name, later).await.unwrap();
            }
            assert!(matches!(went.did, Did::Issues | Did::Dropped), "{went:?}");
        }
        assert_eq!(stages, 3, "{name}");
        // Without the stages, neither side would accept the other.
        if name != SERVICE_ACCOUNT {
            assert!(std::panic::catch_unwind(|| meet(&oldest, &before)).is_err(), "{name}");
        }
        assert_eq!(go_on(&world, &cluster, name, now()).await.unwrap().did, Did::Ended);
        let end = stored(&world);
        assert!(end.rotations.is_empty() && end.assets.len() == first.manifest.assets.len());
        assert!(end.assets[name].fingerprint != first.manifest.assets[name].fingerprint);
    }
}

#[tokio::test]
async fn gone_back_from_in_any_stage_whoever_meets_is_taken_and_the_old_one_is_left() {
    let cluster = cluster();
    for name in ROTATABLE {
        for issued in [false, true] {
            let world = World::new();
            let first = ensure(&world, &cluster).await.unwrap();
            let (_, mut before) = rendered(&world, &cluster).await;
            start(&world, &cluster, name).await.unwrap();
            if issued {
                (_, before) = rendered(&world, &cluster).await;
                go_on(&world, &cluster, name, now()).await.unwrap();
            }
            let (_, forward) = rendered(&world, &cluster).await;
            let went = abort(&world, &cluster, name).await.unwrap();
            assert_eq!(went.did, Did::WentBack);
            let (_, back) = rendered(&world, &cluster).await;
            // Nodes that are two stages apart: one of them did not get the last stage.
            for (one, other) in [(&forward, &back), (&back, &before)] {
                meet(one, other);
                meet(other, one);
            }
            let again = abort(&world, &cluster, name).await.unwrap();
            assert_eq!(
                (again.did, again.manifest),
                (Did::Waits, stored(&world)),
                "a repetition changes nothing"
            );
            let mut at = now();
            while !stored(&world).rotations.is_empty() {
                go_on(&world, &cluster, name, at).await.unwrap();
                at += SignedDuration::from_hours(24 * 200);
            }
            let (_, end) = rendered(&world, &cluster).await;
            meet(&back, &end);
            meet(&end, &back);
            let entry = |manifest: &Manifest| manifest.assets[name].fingerprint.clone();
            assert_eq!(entry(&stored(&world)), entry(&first.manifest));
        }
    }
}

/// Begins a stage with a process that dies at each of its calls, and checks the result.
async fn dies_anywhere<F: Future<Output = FlowResult<Rotated>>>(
    prepared: impl AsyncFn() -> World,
    step: impl Fn(World) -> F,
) {
    let total = {
        let world = prepared().await.interrupted(0);
        step(world.clone()).await.unwrap();
        world.calls()
    };
    for (last, after) in (0..total).flat_map(|last| [(last, false), (last, true)]) {
        let world = prepared().await;
        let before = stored(&world);
        step(world.mortal(last, after)).await.unwrap_err();
        let done = stored(&world) != before;
        assert_eq!(done, after && last == total - 1, "{last} {after}: the inventory is the last call");
        forget_calls(&world);
        assert_eq!(ensure(&world, &cluster()).await.unwrap().manifest == before, !done);
        assert_eq!(crate::flow::calls(&world), (0, 0, 0), "a rendering has nothing to do");
        if !done {
            // The next process begins the stage, once.
            step(world.interrupted(0)).await.unwrap();
        }
        let twins: Vec<_> =
            stored(&world).assets.into_keys().filter(|name| name.ends_with("-next")).collect();
        assert!(twins.len() <= 1, "{twins:?}");
    }
}

#[tokio::test]
async fn p8_killed_at_any_call_a_stage_was_begun_or_was_not() {
    let new = async || {
        let world = World::new();
        ensure(&world, &cluster()).await.unwrap();
        world
    };
    let trusting = async || {
        let world = new().await;
        start(&world, &cluster(), FRONT_PROXY_CA).await.unwrap();
        world
    };
    let issuing = async || {
        let world = trusting().await;
        go_on(&world, &cluster(), FRONT_PROXY_CA, now()).await.unwrap();
        world
    };
    let begin = |world: World| async move { start(&world, &cluster(), FRONT_PROXY_CA).await };
    let further = |world: World| async move { go_on(&world, &cluster(), FRONT_PROXY_CA, now()).await };
    let back = |world: World| async move { abort(&world, &cluster(), FRONT_PROXY_CA).await };
    dies_anywhere(new, begin).await;
    dies_anywhere(trusting, further).await;
    dies_anywhere(issuing, further).await;
    dies_anywhere(trusting, back).await;
    dies_anywhere(issuing, back).await;
}

#[tokio::test]
async fn p8_a_write_whose_answer_is_lost_is_not_done_twice() {
    let world = World::new();
    ensure(&world, &cluster()).await.unwrap();
    world.bucket.repeat(MANIFEST);
    let begun = start(&world, &cluster(), CA).await.unwrap();
    assert_eq!((begun.did, &begun.made), (Did::Begun, &vec!["ca-next".to_owned()]));
    assert_eq!(stored(&world), begun.manifest);
    world.bucket.repeat(MANIFEST);
    let issues = go_on(&world, &cluster(), CA, now()).await.unwrap();
    assert_eq!(issues.did, Did::Issues);
    assert_eq!(stored(&world), issues.manifest);
    assert_eq!(issues.stands.unwrap().stage, Stage::Issue);
}

/// The files of a pool are the same in two stages, so its bundle is sealed once. It counts for the stage in which the pool comes back.
#[tokio::test]
async fn a_pool_that_comes_back_in_a_later_stage_has_that_stage() {
    let world = World::new();
    let whole = cluster();
    ensure(&world, &whole).await.unwrap();
    start(&world, &whole, CA).await.unwrap();
    let trusting = ensure(&world, &whole).await.unwrap();
    let pool = Role::Pool(whole.pools[0].name.clone());
    let mut without = whole.clone();
    without.pools.retain(|other| pool != Role::Pool(other.name.clone()));
    ensure(&world, &without).await.unwrap();
    let issues = go_on(&world, &without, CA, now()).await.unwrap();
    assert_eq!(issues.did, Did::Issues);
    assert!(!issues.manifest.rotations[CA].digests.contains_key(&pool));

    let back = ensure(&world, &whole).await.unwrap();
    assert_eq!((&back.sealed, &back.digests[&pool]), (&Vec::new(), &trusting.digests[&pool]));
    let digest = back.digests[&pool].clone();
    assert_eq!(stored(&world).rotations[CA].digests.get(&pool), Some(&BTreeSet::from([digest])));
    rendered(&world, &whole).await;
}

#[tokio::test]
async fn p8_two_who_begin_at_once_begin_one() {
    for seed in 1..30 {
        let world = World::new();
        ensure(&world, &cluster()).await.unwrap();
        let (one, other) = (world.interrupted(seed), world.interrupted(seed + 1000));
        let cluster = cluster();
        let (one, other) = tokio::join!(start(&one, &cluster, ETCD_CA), start(&other, &cluster, ETCD_CA));
        let begun: Vec<_> = [one, other].into_iter().filter_map(Result::ok).collect();
        assert_eq!(begun.len(), 1, "{seed}");
        assert_eq!(stored(&world), begun[0].manifest);
        // A rendering and a stage run concurrently.
        let (one, other) = (world.interrupted(seed), world.interrupted(seed + 1000));
        let wider = crate::flow::with_san(&cluster);
        let (went, made) = tokio::join!(go_on(&one, &cluster, ETCD_CA, now()), ensure(&other, &wider));
        went.unwrap();
        made.unwrap();
        let end = stored(&world);
        assert_eq!(end.rotations[ETCD_CA].stage, Stage::Issue);
        let signed = end.assets["etcd-peer-0"].certificate.as_ref().unwrap().issuer_fingerprint.clone();
        assert_eq!(signed, end.assets[ETCD_CA].fingerprint);
    }
}

#[tokio::test]
async fn advancing_begins_what_the_spec_says_and_takes_each_further() {
    let mut cluster = cluster();
    let world = World::new();
    let ends =
        ensure(&world, &cluster).await.unwrap().manifest.assets[CA].certificate.clone().unwrap().not_after;
    let advance = async |cluster: &Cluster, seen: &KnownNodes, at: Timestamp| {
        rotation::advance(&world.bucket, &world.kms, &AwsLc, cluster, seen, at).await.unwrap()
    };
    let soon = ends - SignedDuration::from_hours(24 * 60);
    assert_eq!(advance(&cluster, &vouched(), soon).await, [], "off unless the spec says so");
    cluster.certificates.ca_rotation_days = Some(90);
    assert_eq!(advance(&cluster, &vouched(), ends - SignedDuration::from_hours(24 * 400)).await, []);
    let begun = advance(&cluster, &vouched(), soon).await;
    let what: Vec<_> = begun.iter().map(|one| (one.name.as_str(), one.did, one.changes_nodes())).collect();
    let all = [CA, KUBELET_CA, ETCD_CA, FRONT_PROXY_CA];
    assert_eq!(what, all.map(|name| (name, Did::Begun, true)));
    // No node has reported: nothing advances, and the result names the nodes that are waited for.
    let waits = advance(&cluster, &KnownNodes::default(), soon).await;
    assert!(waits.iter().all(|one| one.did == Did::Waits && !one.waits.is_empty()), "{waits:#?}");
    assert_eq!(stored(&world), waits[3].manifest);
    let issue = advance(&cluster, &vouched(), soon).await;
    assert!(issue.iter().all(|one| one.did == Did::Issues));
    let issued: BTreeSet<_> = issue.iter().flat_map(|one| one.made.clone()).collect();
    let leaves = policy::assets(&cluster).into_iter().filter(|asset| {
        slipway_credentials::manifest::profile(asset).is_some_and(|profile| !profile.authority)
    });
    assert_eq!(issued, leaves.map(|asset| asset.name).collect(), "each leaf once");
    let drop = advance(&cluster, &vouched(), soon).await;
    let did: Vec<_> = drop.iter().map(|one| (one.name.as_str(), one.did)).collect();
    assert_eq!(
        did,
        [
            (CA, Did::Dropped),
            (ETCD_CA, Did::Dropped),
            (FRONT_PROXY_CA, Did::Dropped),
            (KUBELET_CA, Did::Noted)
        ]
    );
    let end = advance(&cluster, &vouched(), soon).await;
    assert_eq!(end.iter().filter(|one| one.did == Did::Ended).count(), 3);
    assert_eq!(stored(&world).rotations.keys().collect::<Vec<_>>(), [KUBELET_CA]);
}

#[tokio::test]
async fn what_is_stored_of_either_stays_is_opened_and_is_brought_back() {
    let cluster = cluster();
    let world = World::new();
    ensure(&world, &cluster).await.unwrap();
    for name in ROTATABLE {
        start(&world, &cluster, name).await.unwrap();
        if name != KUBELET_CA {
            go_on(&world, &cluster, name, now()).await.unwrap();
        }
    }
    let manifest = stored(&world);
    let both: Vec<(&String, &String)> = manifest
        .assets
        .iter()
        .filter(|(name, _)| name.ends_with("-next") || name.ends_with("-previous"))
        .map(|(name, entry)| (name, &entry.fingerprint))
        .collect();
    assert_eq!(both.len(), 5);
    // Both are in one folder: no object moved when one replaced the other.
    let folders: BTreeSet<String> = world
        .bucket
        .keys()
        .iter()
        .filter_map(|key| {
            key.strip_prefix("clusters/prod/pki/")?.split_once('/').map(|(folder, _)| folder.to_owned())
        })
        .collect();
    assert!(
        folders.iter().all(|folder| !folder.ends_with("-next") && !folder.ends_with("-previous")),
        "{folders:?}"
    );
    // Garbage collection deletes neither.
    let objects: Vec<Stored> = world
        .bucket
        .keys()
        .iter()
        .filter_map(|key| key.strip_prefix("clusters/prod/"))
        .map(|name| Stored { name: name.to_owned(), modified: Timestamp::MIN, size: 1 })
        .collect();
    let verdicts = gc::decide(&manifest, &objects, &Referred::default(), SignedDuration::ZERO, now());
    for (name, fingerprint) in &both {
        for half in
            [keys::public_half("prod", name, fingerprint), keys::private_half("prod", name, fingerprint)]
        {
            let half = half.strip_prefix("clusters/prod/").unwrap().to_owned();
            let verdict = verdicts.iter().find(|verdict| verdict.name == half).unwrap();
            assert!(!verdict.goes, "{half}");
        }
    }
    // Another KMS key: all of them are sealed under it, too.
    let mut moved = cluster.clone();
    moved.kms_key_arn = Some("arn:aws:kms:eu-west-1:111122223333:key/two".to_owned());
    let done = ensure(&world, &moved).await.unwrap();
    assert_eq!(done.made, Vec::<String>::new());
    assert_eq!(done.manifest.sealed_under, world.kms.name(moved.kms_key_arn.as_deref()));
    // A lost public half is restored from a bundle, at any position there, when another bundle has to be sealed.
    let shared = both
        .iter()
        .filter(|(name, _)| ["ca-previous", "kubelet-ca-next", "etcd-ca-previous"].contains(&name.as_str()));
    for (name, fingerprint) in shared {
        let key = keys::public_half("prod", name, fingerprint);
        let good = world.bucket.peek(&key).unwrap();
        world.bucket.purge(&key);
        world.bucket.purge(&keys::credentials("prod", "etcd-0", &done.digests[&Role::Etcd(0)]));
        let healed = ensure(&world, &moved).await.unwrap();
        assert_eq!(changed(&done, &healed), Vec::<String>::new());
        assert_eq!(world.bucket.peek(&key), Some(good), "{name}");
    }
}

#[tokio::test]
async fn a_folder_in_the_middle_of_a_rotation_is_in_order() {
    let cluster = cluster();
    for name in ROTATABLE {
        let world = World::new();
        ensure(&world, &cluster).await.unwrap();
        start(&world, &cluster, name).await.unwrap();
        for stage in [Stage::Trust, Stage::Issue, Stage::Drop] {
            assert_eq!(stored(&world).rotations[name].stage, stage);
            let files = world.bucket.keys().into_iter().map(|key| {
                let path = key.strip_prefix("clusters/prod/").unwrap().to_owned();
                let bytes = Secret::new(world.bucket.peek(&key).unwrap());
                File { path, mode: 0o600, found: FileContent::Bytes(bytes), link: false }
            });
            let survey = verify::read_files(&files.collect::<Vec<_>>());
            let findings = survey.verify(Some(&cluster), now(), 30);
            assert!(findings.is_empty(), "{name}, {stage}: {findings:#?}");
            let shown: BTreeSet<String> = survey
                .certificates
                .iter()
                .filter(|certificate| survey.is_current(certificate))
                .map(|certificate| survey.name_of(certificate))
                .collect();
            let beside = match stage {
                Stage::Trust => Some(format!("{name}-next")),
                Stage::Issue => Some(format!("{name}-previous")),
                Stage::Drop => None,
            };
            let beside = beside.filter(|_| name != SERVICE_ACCOUNT);
            assert!(beside.is_none_or(|beside| shown.contains(&beside)), "{shown:?}");
            // So is the part that a node has of it.
            for (role, files) in rendered(&world, &cluster).await.1 {
                let files = files.into_iter().map(|(path, text)| File {
                    mode: 0o600,
                    path: path.trim_start_matches('/').to_owned(),
                    found: FileContent::Bytes(Secret::new(text.into_bytes())),
                    link: false,
                });
                let findings =
                    verify::read_files(&files.collect::<Vec<_>>()).verify(Some(&cluster), now(), 30);
                assert!(findings.is_empty(), "{name}, {stage}, {role}: {findings:#?}");
            }
            let mut at = now();
            while stored(&world).rotations.get(name).is_some_and(|rotation| rotation.stage == stage) {
                go_on(&world, &cluster, name, at).await.unwrap();
                at += SignedDuration::from_hours(24 * 200);
            }
        }
    }
}

#[tokio::test]
async fn the_published_keys_are_both_as_long_as_tokens_of_either_live() {
    let mut cluster = cluster();
    cluster.iam_roles = Some(IamRoles { enabled: true, roles: Vec::new() });
    let world = World::new();
    ensure(&world, &cluster).await.unwrap();
    let site = Site {
        asset_bucket: "assets".to_owned(),
        kms_key_arn: String::new(),
        region: None,
        issuer_bucket: Some("issuers".to_owned()),
        allowed: None,
    };
    let published = async || -> Vec<String> {
        let documents =
            issuer::documents(&world.bucket, &AwsLc, &cluster, &stored(&world), &site).await.unwrap();
        let jwks: serde_json::Value = serde_json::from_slice(&documents[0].1).unwrap();
        jwks["keys"].as_array().unwrap().iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect()
    };
    let id = async |name: &str| {
        let manifest = stored(&world);
        let pem = credentials::public_half(&world.bucket, &AwsLc, "prod", &manifest, name).await.unwrap();
        AwsLc.verification_key(&pem).unwrap().id
    };
    let old = id(SERVICE_ACCOUNT).await;
    assert_eq!(published().await, std::slice::from_ref(&old));
    start(&world, &cluster, SERVICE_ACCOUNT).await.unwrap();
    let new = id("service-account-next").await;
    let both = BTreeSet::from([old.clone(), new.clone()]);
    assert_eq!(published().await.into_iter().collect::<BTreeSet<_>>(), both, "before the key signs anything");
    go_on(&world, &cluster, SERVICE_ACCOUNT, now()).await.unwrap();
    assert_eq!(id(SERVICE_ACCOUNT).await, new);
    assert_eq!(published().await.into_iter().collect::<BTreeSet<_>>(), both);
    go_on(&world, &cluster, SERVICE_ACCOUNT, now()).await.unwrap();
    let dropped =
        go_on(&world, &cluster, SERVICE_ACCOUNT, now() + SignedDuration::from_hours(366 * 24)).await.unwrap();
    assert_eq!(dropped.did, Did::Dropped);
    assert_eq!(published().await, [new]);
}
