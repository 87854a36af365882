//! The whole table of credentials, for each key type and each layout of a cluster.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};

use slipway_core::cluster::{Cluster, EtcdMember, KeyAlgorithm};
use slipway_credentials::{CertificateProfile, manifest, policy};
use slipway_crypto::AwsLc;
use slipway_ports::{Crypto as _, NewAsset};
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::public_key::PublicKey;

use crate::common::{cluster, issue_all, now, profile, signer};

/// Compares the certificate in `pem` with its profile.
fn holds(name: &str, profile: &CertificateProfile, made: &NewAsset, issuer: Option<&NewAsset>) {
    let der = |made: &NewAsset| {
        let body: String =
            made.public.as_ref().unwrap().lines().filter(|line| !line.starts_with('-')).collect();
        base64::Engine::decode(&base64::engine::general_purpose::STANDARD, body).unwrap()
    };
    let (own, above) = (der(made), issuer.map(der));
    let (_, certificate) = X509Certificate::from_der(&own).unwrap();
    let issuer = above.as_ref().map_or_else(
        || X509Certificate::from_der(&own).unwrap().1,
        |der| X509Certificate::from_der(der).unwrap().1,
    );
    certificate.verify_signature(Some(issuer.public_key())).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(certificate.issuer().as_raw(), issuer.subject().as_raw(), "{name}");

    let serial = certificate.raw_serial();
    assert!((9..=20).contains(&serial.len()) && serial[0] & 0x80 == 0, "{name}: {serial:x?}");
    assert_eq!(certificate.validity().not_before.timestamp(), now().as_second() - 300, "{name}");

    let constraints = certificate.basic_constraints().unwrap().unwrap();
    assert!(constraints.critical, "{name}");
    assert_eq!(constraints.value.ca, profile.authority, "{name}");
    assert_eq!(constraints.value.path_len_constraint, profile.authority.then_some(0), "{name}");
    let usage = certificate.key_usage().unwrap().unwrap();
    let (rsa, bits) = match certificate.public_key().parsed().unwrap() {
        PublicKey::RSA(key) => (true, key.key_size()),
        PublicKey::EC(point) => (false, point.key_size()),
        other => panic!("{name}: {other:?}"),
    };
    let expected = match profile.algorithm {
        KeyAlgorithm::EcdsaP256 => (false, 256),
        KeyAlgorithm::EcdsaP384 => (false, 384),
        KeyAlgorithm::Rsa2048 => (true, 2048),
        KeyAlgorithm::Rsa3072 => (true, 3072),
        KeyAlgorithm::Rsa4096 => (true, 4096),
    };
    assert_eq!((rsa, bits), expected, "{name}");
    assert!(usage.critical, "{name}");
    let told = (
        usage.value.key_cert_sign(),
        usage.value.crl_sign(),
        usage.value.digital_signature(),
        usage.value.key_encipherment(),
    );
    let authority = profile.authority;
    assert_eq!(told, (authority, authority, !authority, !authority && rsa), "{name}");

    let extended = certificate.extended_key_usage().unwrap();
    let purposes = extended
        .map(|usage| (usage.value.server_auth, usage.value.client_auth, usage.value.any, usage.critical));
    assert_eq!(
        purposes,
        (!authority).then_some((profile.server, profile.client, false, false)),
        "{name}: the purpose"
    );
    assert!(
        certificate.iter_extensions().any(|found| found.oid.to_id_string() == "2.5.29.14"),
        "{name}: SKI"
    );
    let names_issuer = certificate.iter_extensions().any(|found| found.oid.to_id_string() == "2.5.29.35");
    assert_eq!(names_issuer, profile.issuer.is_some(), "{name}: AKI");
}

fn the_whole_table(algorithm: KeyAlgorithm) {
    let mut cluster = cluster();
    cluster.certificates.key_algorithm = algorithm;
    let made = issue_all(&cluster);
    let mut certificates = 0;
    for asset in policy::assets(&cluster) {
        let Some(profile) = manifest::profile(&asset) else { continue };
        holds(&asset.name, profile, &made[&asset.name], profile.issuer.as_ref().map(|name| &made[name]));
        certificates += 1;
    }
    assert_eq!(certificates, 19);
}

#[test]
fn ecdsa_p256_issues_the_whole_table() {
    the_whole_table(KeyAlgorithm::EcdsaP256);
}

#[test]
fn ecdsa_p384_issues_the_whole_table() {
    the_whole_table(KeyAlgorithm::EcdsaP384);
}

#[test]
fn rsa_2048_issues_the_whole_table() {
    the_whole_table(KeyAlgorithm::Rsa2048);
}

/// Keys of 3072 and 4096 bits take seconds, so two of them are used for all names, unlike in a real cluster.
fn the_whole_table_by_two_keys(algorithm: KeyAlgorithm) {
    let mut cluster = cluster();
    cluster.certificates.key_algorithm = algorithm;
    let authority = AwsLc.issue(&profile(&cluster, "ca"), None, now()).unwrap();
    let leaf = AwsLc.issue(&profile(&cluster, "admin"), Some(&signer(&authority)), now()).unwrap();
    let mut made: BTreeMap<String, NewAsset> = BTreeMap::new();
    for asset in policy::assets(&cluster) {
        let Some(profile) = manifest::profile(&asset) else { continue };
        let key = if profile.authority { &authority.private } else { &leaf.private };
        let above = profile.issuer.as_ref().map(|name| &made[name]);
        let new = AwsLc.certify(profile, key, above.map(signer).as_ref(), now()).unwrap();
        assert_eq!(new.private.expose(), key.expose());
        holds(&asset.name, profile, &new, above);
        made.insert(asset.name, new);
    }
    assert_eq!(made.len(), 19);
}

#[test]
fn rsa_3072_issues_the_whole_table() {
    the_whole_table_by_two_keys(KeyAlgorithm::Rsa3072);
}

#[test]
fn rsa_4096_issues_the_whole_table() {
    the_whole_table_by_two_keys(KeyAlgorithm::Rsa4096);
}

#[test]
fn what_a_key_is_for_follows_the_key_that_there_is() {
    // A cluster with RSA keys that makes ECDSA keys from now on: an asset that keeps its key may still encipher.
    let mut cluster = cluster();
    let authority = signer(&AwsLc.issue(&profile(&cluster, "ca"), None, now()).unwrap());
    cluster.certificates.key_algorithm = KeyAlgorithm::Rsa2048;
    let asked = profile(&cluster, "apiserver");
    let old = AwsLc.issue(&asked, Some(&authority), now()).unwrap();
    let renewed = CertificateProfile { algorithm: KeyAlgorithm::EcdsaP256, ..asked.clone() };
    let again = AwsLc.certify(&renewed, &old.private, Some(&authority), now()).unwrap();
    let above = NewAsset { private: authority.key.clone(), public: Some(authority.certificate.clone()) };
    holds("apiserver", &asked, &again, Some(&above));
    assert_ne!(old.public, again.public);
    let broken = slipway_ports::Secret::new(b"no key".to_vec());
    assert!(AwsLc.certify(&asked, &broken, Some(&authority), now()).is_err());
}

/// Every public key of a cluster's credentials, with the names it belongs to.
fn keys_of(cluster: &Cluster) -> BTreeMap<String, BTreeSet<String>> {
    let mut keys: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, made) in issue_all(cluster) {
        let Some(public) = &made.public else { continue };
        let hash = if public.contains("CERTIFICATE") {
            AwsLc.facts(public).unwrap().0.spki_sha256
        } else {
            manifest::key_pair_fingerprint(public).unwrap()
        };
        keys.entry(hash).or_default().insert(name);
    }
    keys
}

fn distinct(layout: &str, cluster: &Cluster) {
    let keys = keys_of(cluster);
    assert!(keys.len() > 12, "{layout}");
    for names in keys.into_values() {
        assert_eq!(names.len(), 1, "{layout}: one key for {names:?}");
    }
}

#[test]
fn p9_no_two_names_share_a_key_whatever_the_layout() {
    for members in [1, 3, 5] {
        let mut cluster = cluster();
        let first = cluster.etcd.members[0].clone();
        cluster.etcd.members = (0..members)
            .map(|index| EtcdMember {
                index,
                dns_name: format!("etcd-{index}.prod.etcd.internal"),
                ..first.clone()
            })
            .collect();
        distinct(&format!("{members} members of etcd"), &cluster);
    }
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut layouts = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let cluster = slipway_spec::parse(&std::fs::read(&path).unwrap(), None).unwrap().cluster;
            distinct(
                &path.display().to_string(),
                &Cluster {
                    certificates: slipway_core::cluster::Certificates {
                        // The key type does not matter here, and this one is fast.
                        key_algorithm: KeyAlgorithm::EcdsaP256,
                        ..cluster.certificates.clone()
                    },
                    ..cluster
                },
            );
            layouts += 1;
        }
    }
    assert!(layouts > 25, "{layouts}");
}
