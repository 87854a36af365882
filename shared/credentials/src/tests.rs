//! Policy held over generated clusters.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use proptest::prelude::*;
use slipway_core::cluster::{Cluster, EtcdMember, OwnAuthority, OwnSource};
use slipway_core::digest::sha256_hex;

use super::manifest::{self, Brought, PolicyError, Reason};
use super::policy::{self, Part};
use super::{AssetKind, BundleEntry, CertificateFacts, ChainFacts, Entry, Manifest, Origin, Role};

fn sample() -> Cluster {
    slipway_spec::parse(include_bytes!("testdata/cluster.yaml"), None).unwrap().cluster
}

fn now() -> Timestamp {
    "2026-11-20T12:00:00Z".parse().unwrap()
}

/// A three-member cluster grown or shrunk to so many members, with pools of these names.
fn shaped(members: u32, pools: &BTreeSet<String>, sans: &BTreeSet<String>, encrypted: bool) -> Cluster {
    let mut cluster = sample();
    cluster.etcd.members = (0..members)
        .map(|index| EtcdMember {
            index,
            name: format!("etcd-{index}"),
            dns_name: format!("etcd-{index}.prod.etcd.internal"),
            ..cluster.etcd.members[0].clone()
        })
        .collect();
    let pool = cluster.pools[0].clone();
    cluster.pools = pools
        .iter()
        .map(|name| slipway_core::cluster::NodePool { name: name.clone(), ..pool.clone() })
        .collect();
    cluster.kubernetes.extra_sans = sans.iter().cloned().collect();
    cluster.kubernetes.encryption_at_rest = encrypted;
    cluster
}

fn clusters() -> impl Strategy<Value = Cluster> {
    let names = || proptest::collection::btree_set("[a-z]{1,8}", 0..5);
    let own = || prop_oneof![Just(None), Just(Some(OwnSource::Imported)), Just(Some(OwnSource::Provided))];
    (prop_oneof![Just(1u32), Just(3), Just(5)], names(), names(), any::<bool>(), own(), own(), own())
        .prop_map(|(members, pools, sans, encrypted, ca, etcd, front)| {
            let mut cluster = shaped(members, &pools, &sans, encrypted);
            for (name, source) in [("ca", ca), ("etcd-ca", etcd), ("front-proxy-ca", front)] {
                if let Some(source) = source {
                    bring(&mut cluster, name, source);
                }
            }
            cluster
        })
}

fn bring(cluster: &mut Cluster, name: &str, source: OwnSource) {
    let (certificate, key) = policy::import_files(name);
    let own = OwnAuthority { source, certificate, key, passphrase_parameter: None };
    cluster.certificates.authorities.insert(name.to_owned(), own);
}

/// What a run of the credentials flow leaves behind, with fingerprints made of `generation` instead of keys.
fn make(cluster: &Cluster, manifest: &mut Manifest, generation: u32) -> Vec<String> {
    let assets = policy::assets(cluster);
    let list: Vec<_> = manifest::to_make(&assets, manifest, &brought(&assets, manifest, generation), now())
        .unwrap()
        .into_iter()
        .map(|made| made.asset.clone())
        .collect();
    for asset in &list {
        issue(manifest, asset, generation);
    }
    for (role, files) in manifest::bundle_files(cluster, manifest).unwrap() {
        let digest = sha256_hex(serde_json::to_string(&files).unwrap().as_bytes());
        let entry = BundleEntry {
            digest,
            files,
            sealed_under: cluster.kms_key_arn.clone().unwrap_or_default(),
            etag: String::new(),
        };
        manifest::record(manifest, &role, entry);
    }
    list.into_iter().map(|asset| asset.name).collect()
}

fn fingerprint(asset: &str, generation: u32) -> String {
    sha256_hex(format!("{asset} {generation}").as_bytes())
}

/// What others made: as it stands, or of `generation`.
fn brought(assets: &[super::Asset], manifest: &Manifest, generation: u32) -> BTreeMap<String, Brought> {
    let theirs = assets.iter().filter(|asset| asset.origin != Origin::Generated);
    let one = |asset: &super::Asset| {
        let stands = manifest.assets.get(&asset.name).map(|entry| entry.fingerprint.clone());
        let fingerprint = stands.unwrap_or_else(|| fingerprint(&asset.name, generation));
        (asset.name.clone(), Brought { fingerprint, not_after: manifest::not_after(now(), 3650).unwrap() })
    };
    theirs.map(one).collect()
}

fn issue(manifest: &mut Manifest, asset: &super::Asset, generation: u32) {
    let fingerprint = fingerprint(&asset.name, generation);
    let certificate = manifest::profile(asset).map(|profile| CertificateFacts {
        serial: "01".to_owned(),
        not_before: now(),
        not_after: manifest::not_after(now(), profile.days).unwrap(),
        spki_sha256: String::new(),
        issuer_fingerprint: profile
            .issuer
            .as_ref()
            .map_or_else(|| fingerprint.clone(), |issuer| manifest.assets[issuer].fingerprint.clone()),
    });
    let entry = Entry {
        fingerprint,
        names: manifest::names(&asset.kind),
        certificate,
        roles: BTreeSet::new(),
        origin: asset.origin,
        chain: (asset.origin != Origin::Generated && issuer_of(asset).is_none())
            .then(|| ChainFacts { sha256: format!("chain of {}", asset.name), intermediates: 1 }),
    };
    manifest.assets.insert(asset.name.clone(), entry);
}

fn issuer_of(asset: &super::Asset) -> Option<&str> {
    manifest::profile(asset).and_then(|profile| profile.issuer.as_deref())
}

fn names_of(cluster: &Cluster, manifest: &Manifest) -> Vec<(String, Reason)> {
    manifest::to_make(&policy::assets(cluster), manifest, &BTreeMap::new(), now())
        .unwrap()
        .into_iter()
        .map(|made| (made.asset.name.clone(), made.reason))
        .collect()
}

proptest! {
    #[test]
    fn every_file_of_every_bundle_has_its_asset(cluster in clusters()) {
        let kinds: BTreeMap<_, _> =
            policy::assets(&cluster).into_iter().map(|asset| (asset.name, asset.kind)).collect();
        for role in policy::roles(&cluster) {
            let files = policy::bundle(&cluster, &role);
            let paths: BTreeSet<_> = files.iter().map(|file| &file.path).collect();
            prop_assert_eq!(paths.len(), files.len(), "a path twice in {}", role);
            for source in files.iter().flat_map(|file| &file.sources) {
                let fits = matches!(
                    (source.part, &kinds[&source.asset]),
                    (Part::Certificate | Part::Intermediates | Part::Chain, AssetKind::Certificate(_))
                        | (Part::PrivateKey, AssetKind::Certificate(_) | AssetKind::KeyPair(_))
                        | (Part::PublicKey, AssetKind::KeyPair(_))
                        | (Part::Secret | Part::RoleToken, AssetKind::RandomKey)
                        | (Part::EncryptionConfig | Part::EncryptionConfigOff, AssetKind::RandomKey)
                );
                prop_assert!(fits, "{:?} of {}", source, role);
            }
            // A private key is useless without what belongs to it, and a leaf without its authority.
            for file in &files {
                if let Some(stem) = file.path.strip_suffix("-key.pem") {
                    let beside = [format!("{stem}.pem"), format!("{stem}.pub.pem")];
                    prop_assert!(beside.iter().any(|path| paths.contains(path)), "{} alone", file.path);
                }
            }
            for source in files.iter().flat_map(|file| &file.sources).filter(|source| source.part == Part::Certificate) {
                let AssetKind::Certificate(profile) = &kinds[&source.asset] else { unreachable!() };
                let authority = profile.issuer.as_ref().unwrap_or(&source.asset);
                prop_assert!(
                    files.iter().flat_map(|file| &file.sources).any(|other| &other.asset == authority && other.part == Part::Certificate),
                    "{} receives {} without {}", role, source.asset, authority
                );
            }
        }
    }

    #[test]
    fn p9_keys_go_where_they_must_and_nowhere_else(cluster in clusters()) {
        for role in policy::roles(&cluster) {
            for source in policy::bundle(&cluster, &role).into_iter().flat_map(|file| file.sources) {
                prop_assert_ne!(&source.asset, policy::DIGEST_KEY);
                // With the key one can make the token of every role.
                if source.asset == policy::BOOTSTRAP_KEY && source.part != Part::RoleToken {
                    prop_assert_eq!(&role, &Role::Controller);
                }
                if source.part == Part::PrivateKey {
                    prop_assert!(!matches!(role, Role::Pool(_)), "a worker receives the key of {}", source.asset);
                    if source.asset.ends_with("ca") {
                        prop_assert_eq!(&source.asset, "kubelet-ca");
                        prop_assert_eq!(&role, &Role::Controller);
                    }
                    if let Role::Etcd(index) = &role {
                        let own = [format!("etcd-server-{index}"), format!("etcd-peer-{index}"), "etcd-healthcheck-client".to_owned()];
                        prop_assert!(own.contains(&source.asset), "{} holds {}", role, source.asset);
                    }
                    if source.asset == "admin" {
                        prop_assert_eq!(&role, &Role::Admin);
                    }
                }
            }
        }
    }

    #[test]
    fn p1_what_was_made_is_not_made_again(cluster in clusters()) {
        let mut manifest = Manifest::default();
        prop_assert_eq!(make(&cluster, &mut manifest, 1).len(), policy::assets(&cluster).len());
        let before = manifest.clone();
        prop_assert!(manifest::to_seal(&cluster, &manifest).unwrap().is_empty());
        prop_assert!(make(&cluster, &mut manifest, 2).is_empty());
        prop_assert_eq!(before, manifest);
    }

    #[test]
    fn p2_a_new_leaf_never_changes_a_worker(cluster in clusters(), pick in any::<prop::sample::Index>()) {
        let mut manifest = Manifest::default();
        make(&cluster, &mut manifest, 1);
        let assets = policy::assets(&cluster);
        let leaves: Vec<_> =
            assets.iter().filter(|asset| manifest::profile(asset).is_some_and(|profile| !profile.authority)).collect();
        let leaf = leaves[pick.index(leaves.len())];
        issue(&mut manifest, leaf, 2);
        let changed = manifest::to_seal(&cluster, &manifest).unwrap();
        prop_assert!(!changed.is_empty());
        prop_assert!(changed.iter().all(|role| !matches!(role, Role::Pool(_))), "{} changes {:?}", leaf.name, changed);
        prop_assert_eq!(changed.into_iter().collect::<BTreeSet<_>>(), policy::recipients(&cluster)[&leaf.name].clone());
    }

    #[test]
    fn p2_a_change_of_names_makes_only_what_it_names(
        members in prop_oneof![Just(1u32), Just(3)],
        pools in proptest::collection::btree_set("[a-z]{1,8}", 0..4),
        more in proptest::collection::btree_set("[a-z]{3,8}", 0..4),
        sans in proptest::collection::btree_set("[a-z]{3,8}\\.example", 0..3),
    ) {
        let mut manifest = Manifest::default();
        make(&shaped(members, &pools, &BTreeSet::new(), true), &mut manifest, 1);
        let before = manifest.clone();
        let grown = shaped(members + 2, &pools.union(&more).cloned().collect(), &sans, true);
        let made: BTreeSet<_> = make(&grown, &mut manifest, 2).into_iter().collect();
        let mut expected: BTreeSet<_> = (members..members + 2)
            .flat_map(|index| [format!("etcd-server-{index}"), format!("etcd-peer-{index}")])
            .collect();
        if !sans.is_empty() {
            expected.insert("apiserver".to_owned());
        }
        prop_assert_eq!(made, expected);
        for (role, bundle) in &before.bundles {
            let same = manifest.bundles[role].digest == bundle.digest;
            prop_assert_eq!(same, *role != Role::Controller || sans.is_empty(), "{}", role);
        }
    }

    #[test]
    fn the_plaintext_is_read_back_as_it_was(files in proptest::collection::btree_map("/[a-z/]{1,20}", ".{0,200}", 0..6)) {
        let borrowed = files.iter().map(|(path, text)| (path.clone(), text.as_str())).collect();
        let bytes = manifest::plaintext(&borrowed);
        prop_assert_eq!(&bytes, &manifest::plaintext(&borrowed));
        let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        prop_assert_eq!(&value["format"], &serde_json::json!(1));
        prop_assert_eq!(&value["files"], &serde_json::json!(files));
    }
}

#[test]
fn the_table_of_a_three_member_cluster() {
    let cluster = sample();
    let mut table = String::new();
    for asset in policy::assets(&cluster) {
        let line = match &asset.kind {
            AssetKind::Certificate(profile) => format!(
                "{} | {}{} | {}{}{} | {} | {} | {} d",
                asset.name,
                profile.common_name,
                profile.organizations.iter().map(|name| format!(", O {name}")).collect::<String>(),
                if profile.authority { "CA" } else { "" },
                if profile.server { "server " } else { "" },
                if profile.client { "client" } else { "" },
                profile.sans.iter().cloned().collect::<Vec<_>>().join(" "),
                profile.issuer.as_deref().unwrap_or("itself"),
                profile.days,
            ),
            AssetKind::KeyPair(_) => format!("{} | key pair", asset.name),
            AssetKind::RandomKey => format!("{} | random key", asset.name),
        };
        table.push_str(&line);
        table.push('\n');
    }
    for role in policy::roles(&cluster) {
        table.push_str(&format!("\n{role}\n"));
        for file in policy::bundle(&cluster, &role) {
            let sources: Vec<_> =
                file.sources.iter().map(|source| format!("{} of {}", source.part, source.asset)).collect();
            table.push_str(&format!("  {}: {}\n", file.path, sources.join(" + ")));
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn algorithm_and_lifetime_show_in_what_is_issued_next_alone() {
    let mut cluster = sample();
    let mut manifest = Manifest::default();
    make(&cluster, &mut manifest, 1);
    cluster.certificates.key_algorithm = slipway_core::cluster::KeyAlgorithm::Rsa4096;
    cluster.certificates.leaf_days = 90;
    cluster.certificates.ca_days = 7300;
    assert_eq!(names_of(&cluster, &manifest), []);
}

#[test]
fn a_dns_name_in_other_letters_is_the_same_name() {
    let mut cluster = sample();
    let mut manifest = Manifest::default();
    make(&cluster, &mut manifest, 1);
    cluster.api_endpoints[0].dns_name = "API.prod.example.com.".to_owned();
    assert_eq!(names_of(&cluster, &manifest), []);
}

#[test]
fn an_authority_is_never_made_anew_for_its_name_but_a_lost_one_takes_its_leaves_along() {
    let cluster = sample();
    let mut manifest = Manifest::default();
    make(&cluster, &mut manifest, 1);
    manifest.assets.get_mut("etcd-ca").unwrap().names = "of another release".to_owned();
    assert_eq!(names_of(&cluster, &manifest), []);

    manifest.assets.remove("front-proxy-ca");
    assert_eq!(
        names_of(&cluster, &manifest),
        [
            ("front-proxy-ca".to_owned(), Reason::Missing),
            ("front-proxy-client".to_owned(), Reason::IssuerChanged)
        ]
    );
}

#[test]
fn p7_a_leaf_ends_with_its_authority_and_is_refused_under_one_that_ends() {
    let mut cluster = sample();
    cluster.certificates.leaf_days = 365;
    let mut manifest = Manifest::default();
    make(&cluster, &mut manifest, 1);
    cluster.kubernetes.extra_sans.push("more.example".to_owned());
    let assets = policy::assets(&cluster);
    let list = |at| manifest::to_make(&assets, &manifest, &BTreeMap::new(), at);
    let end = manifest.assets["ca"].certificate.as_ref().unwrap().not_after;

    // In its last year an authority signs on, and once it is about to end it does not.
    let in_last_year = end - jiff::SignedDuration::from_hours(24 * 100);
    assert_eq!(list(in_last_year).unwrap().len(), 1, "{:?}", list(in_last_year));
    let late = end - jiff::SignedDuration::from_mins(59);
    let error = list(late).unwrap_err();
    assert!(matches!(&error, PolicyError::OutlivesIssuer { asset, .. } if asset == "apiserver"), "{error}");
    assert!(error.to_string().contains("2036-11-17T12:00:00Z"), "{error}");
    assert!(error.help().contains("rotate-ca ca"), "{}", error.help());

    let long = now() + jiff::SignedDuration::from_hours(24 * 4000);
    assert_eq!(manifest::capped_expiry(long, end, now()), Some(end));
    assert_eq!(manifest::capped_expiry(in_last_year, end, now()), Some(in_last_year));
    assert_eq!(manifest::capped_expiry(long, end, late), None);
    assert_eq!(manifest::capped_expiry(long, end, long), None);

    cluster.certificates.ca_days = u32::MAX;
    let error = manifest::to_make(&policy::assets(&cluster), &Manifest::default(), &BTreeMap::new(), now())
        .unwrap_err();
    assert!(matches!(error, PolicyError::TooLong { .. }), "{error}");
}

#[test]
fn p2_another_kms_key_adds_a_sealing_to_every_bundle_and_changes_none() {
    let mut cluster = sample();
    let mut manifest = Manifest::default();
    make(&cluster, &mut manifest, 1);
    let key = "arn:aws:kms:eu-west-1:111122223333:key/other";
    cluster.kms_key_arn = Some(key.to_owned());
    assert_eq!(names_of(&cluster, &manifest), []);
    assert_eq!(manifest::to_seal(&cluster, &manifest).unwrap(), []);
    let roles: BTreeSet<_> = manifest::to_seal_under(&cluster, &manifest, key).into_iter().collect();
    assert_eq!(roles, policy::roles(&cluster));
    assert_eq!(manifest::to_seal_under(&cluster, &manifest, ""), []);
}

#[test]
fn what_a_smaller_cluster_no_longer_uses_is_named_and_kept() {
    let mut cluster = sample();
    let mut manifest = Manifest::default();
    make(&cluster, &mut manifest, 1);
    let full = manifest.clone();
    cluster.etcd.members.truncate(1);
    cluster.pools.clear();
    let unused = manifest::unused(&cluster, &manifest);
    assert_eq!(unused.assets, ["etcd-peer-1", "etcd-peer-2", "etcd-server-1", "etcd-server-2"]);
    assert_eq!(unused.roles, [Role::Etcd(1), Role::Etcd(2), Role::Pool("general".to_owned())]);
    make(&cluster, &mut manifest, 2);
    assert_eq!(make(&sample(), &mut manifest, 3), Vec::<String>::new());
    assert_eq!(manifest, full);
}

#[test]
fn a_long_member_name_stays_whole_in_the_san_alone() {
    let mut cluster = sample();
    let long = format!("etcd-0.{}.internal", "a".repeat(60));
    cluster.etcd.members[0].dns_name = long.clone();
    let assets = policy::assets(&cluster);
    let asset = assets.iter().find(|asset| asset.name == "etcd-server-0").unwrap();
    let profile = manifest::profile(asset).unwrap();
    assert_eq!(profile.common_name, "etcd-0");
    assert!(profile.sans.contains(&long));
}

#[test]
fn files_made_of_a_secret_are_what_the_api_server_reads() {
    insta::assert_snapshot!(
        "encryption_config",
        Part::EncryptionConfig.content(&Role::Controller, "c2VjcmV0")
    );
    let off = Part::EncryptionConfigOff.content(&Role::Controller, "c2VjcmV0");
    assert!(off.find("identity").unwrap() < off.find("secretbox").unwrap());
}

#[test]
fn p1_what_is_not_brought_renders_as_it_did() {
    // The files' names and parts stand in every inventory that was ever written: they may not change by themselves.
    let cluster = sample();
    let text = |cluster: &Cluster| {
        format!(
            "{:?}",
            policy::roles(cluster).iter().map(|role| policy::bundle(cluster, role)).collect::<Vec<_>>()
        )
    };
    assert!(!text(&cluster).contains("Intermediates") && !text(&cluster).contains("Chain"));
    let mut own = cluster.clone();
    bring(&mut own, "front-proxy-ca", OwnSource::Imported);
    assert_eq!(text(&own), text(&cluster), "nobody is served by what it signs");
    assert!(
        policy::assets(&own)
            .iter()
            .all(|asset| (asset.origin == Origin::Generated) != (asset.name == "front-proxy-ca"))
    );
}

#[test]
fn p9_the_root_of_an_intermediate_signs_nobody_in() {
    let mut own = sample();
    bring(&mut own, "ca", OwnSource::Imported);
    bring(&mut own, "etcd-ca", OwnSource::Imported);
    for role in policy::roles(&own) {
        for file in policy::bundle(&own, &role) {
            let chain = file.sources.iter().any(|source| source.part == Part::Chain);
            assert_eq!(chain, file.path == "/etc/kubernetes/pki/root-ca.pem", "{role}: {}", file.path);
            let presents = file.sources.iter().any(|source| source.part == Part::Intermediates);
            let server = ["apiserver.pem", "server.pem", "peer.pem"]
                .iter()
                .any(|name| file.path.ends_with(&format!("/{name}")));
            assert_eq!(presents, server, "{role}: {}", file.path);
        }
    }
}

#[test]
fn an_authority_is_not_exchanged_by_rendering() {
    let (mut own, plain) = (sample(), sample());
    bring(&mut own, "ca", OwnSource::Imported);
    let mut stands = Manifest::default();
    make(&plain, &mut stands, 1);
    let assets = policy::assets(&own);
    let asked = manifest::to_make(&assets, &stands, &brought(&assets, &stands, 2), now());
    assert!(
        matches!(
            asked,
            Err(PolicyError::Rotation {
                current_origin: Origin::Generated,
                spec_origin: Origin::Imported,
                ..
            })
        ),
        "{asked:?}"
    );

    let mut stands = Manifest::default();
    make(&own, &mut stands, 1);
    let generated = policy::assets(&plain);
    let back = manifest::to_make(&generated, &stands, &BTreeMap::new(), now());
    assert!(matches!(back, Err(PolicyError::Rotation { current_origin: Origin::Imported, .. })), "{back:?}");
    let another = manifest::to_make(&assets, &stands, &brought(&assets, &Manifest::default(), 2), now());
    assert!(matches!(another, Err(PolicyError::AnotherAuthority { .. })), "{another:?}");
    // The files were taken away: nothing is asked for.
    assert_eq!(manifest::to_make(&assets, &stands, &BTreeMap::new(), now()), Ok(Vec::new()));
    let missing = manifest::to_make(&assets, &Manifest::default(), &BTreeMap::new(), now());
    assert!(matches!(missing, Err(PolicyError::NotBrought { ref asset }) if asset == "ca"), "{missing:?}");
    for error in [asked.unwrap_err(), back.unwrap_err(), another.unwrap_err()] {
        assert!(error.help().contains("is not replaced"), "{error}");
    }
    assert!(missing.unwrap_err().help().contains("import/ca.pem"));
}

#[test]
fn what_can_be_renewed_by_itself_is_a_leaf_of_ours() {
    let mut cluster = sample();
    bring(&mut cluster, "etcd-ca", OwnSource::Provided);
    let mut stands = Manifest::default();
    make(&cluster, &mut stands, 1);
    let assets = policy::assets(&cluster);
    let renew =
        |name: &str, at| manifest::to_renew(&assets, &stands, name, at).map(|asset| asset.name.clone());
    for asset in &assets {
        let leaf = manifest::profile(asset).is_some_and(|profile| !profile.authority)
            && asset.origin == Origin::Generated;
        assert_eq!(renew(&asset.name, now()).is_ok(), leaf, "{}", asset.name);
    }
    let told = |name: &str| {
        let error = renew(name, now()).unwrap_err();
        format!("{error}; {}", error.help())
    };
    assert!(told("apisever").contains("did you mean apiserver?"), "{}", told("apisever"));
    assert!(told("ca").contains("rotate it, in stages"), "{}", told("ca"));
    assert!(told("service-account").contains("tokens"), "{}", told("service-account"));
    assert!(told("bootstrap-key").contains("no certificate"), "{}", told("bootstrap-key"));
    assert!(told("etcd-peer-0").contains("you bring it"), "{}", told("etcd-peer-0"));
    let in_last_year = now() + jiff::SignedDuration::from_hours(24 * 3600);
    assert!(renew("apiserver", in_last_year).is_ok(), "what is issued ends with its authority");
    let late = now() + jiff::SignedDuration::from_mins(60 * 24 * 3650 - 30);
    assert!(matches!(renew("apiserver", late), Err(PolicyError::OutlivesIssuer { .. })));
    assert!(
        manifest::to_renew(&assets, &Manifest::default(), "apiserver", now())
            .unwrap_err()
            .help()
            .contains("render")
    );
}
