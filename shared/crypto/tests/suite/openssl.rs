//! The real `openssl` reads and verifies our certificates.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use slipway_core::cluster::KeyAlgorithm;
use slipway_credentials::{AssetKind, CertificateProfile, manifest, policy};
use slipway_crypto::AwsLc;
use slipway_ports::{Crypto as _, NewAsset};

use crate::common::{ALGORITHMS, cluster, issue_all, now, profile, signer};

/// Runs `openssl`; the exit status and both outputs.
fn openssl(dir: &Path, arguments: &[&str]) -> (bool, String) {
    let output =
        Command::new("openssl").args(arguments).current_dir(dir).output().expect("openssl is installed");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

fn ok(dir: &Path, arguments: &[&str]) -> String {
    let (success, text) = openssl(dir, arguments);
    assert!(success, "openssl {arguments:?}: {text}");
    text
}

fn write(dir: &Path, name: &str, made: &NewAsset) {
    if let Some(public) = &made.public {
        std::fs::write(dir.join(format!("{name}.pem")), public).unwrap();
    }
    std::fs::write(dir.join(format!("{name}-key.pem")), made.private.expose()).unwrap();
}

fn verify(dir: &Path, authority: &str, leaf: &str, purpose: &str) -> (bool, String) {
    let at = now().as_second().to_string();
    let (authority, leaf) = (format!("{authority}.pem"), format!("{leaf}.pem"));
    openssl(
        dir,
        &[
            "verify",
            "-x509_strict",
            "-check_ss_sig",
            "-attime",
            &at,
            "-purpose",
            purpose,
            "-CAfile",
            &authority,
            &leaf,
        ],
    )
}

#[test]
fn every_certificate_of_a_three_member_cluster_verifies_strictly_for_its_purpose_and_no_other() {
    let cluster = cluster();
    let dir = tempfile::tempdir().unwrap();
    for (name, made) in issue_all(&cluster) {
        write(dir.path(), &name, &made);
    }
    for asset in policy::assets(&cluster) {
        let Some(profile) = manifest::profile(&asset) else { continue };
        let authority = profile.issuer.as_ref().unwrap_or(&asset.name);
        for (purpose, allowed) in [("sslserver", profile.server), ("sslclient", profile.client)] {
            let (verified, text) = verify(dir.path(), authority, &asset.name, purpose);
            assert_eq!(verified, allowed, "{} as {purpose}: {text}", asset.name);
        }
        let (verified, text) = verify(dir.path(), authority, &asset.name, "any");
        assert!(verified, "{}: {text}", asset.name);
        let stranger = if authority == "ca" { "etcd-ca" } else { "ca" };
        assert!(
            !verify(dir.path(), stranger, &asset.name, "any").0,
            "{} verifies under {stranger}",
            asset.name
        );
        says_what_its_profile_says(dir.path(), &asset.name, profile);
    }
}

#[test]
fn a_client_finds_the_name_that_it_called_and_no_other() {
    let mut cluster = cluster();
    cluster.kubernetes.extra_sans =
        ["*.apps.example.com", "203.0.113.7", "2001:db8::7"].map(str::to_owned).into();
    let dir = tempfile::tempdir().unwrap();
    for (name, made) in issue_all(&cluster) {
        write(dir.path(), &name, &made);
    }
    let at = now().as_second().to_string();
    let called = |leaf: &str, authority: &str, option: &str, name: &str| {
        let (leaf, authority) = (format!("{leaf}.pem"), format!("{authority}.pem"));
        openssl(
            dir.path(),
            &["verify", "-attime", &at, "-purpose", "sslserver", option, name, "-CAfile", &authority, &leaf],
        )
        .0
    };
    for name in [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "api.prod.example.com",
        "a.apps.example.com",
        "localhost",
    ] {
        assert!(called("apiserver", "ca", "-verify_hostname", name), "{name}");
    }
    for address in ["10.3.0.1", "127.0.0.1", "203.0.113.7", "2001:db8::7"] {
        assert!(called("apiserver", "ca", "-verify_ip", address), "{address}");
    }
    assert!(!called("apiserver", "ca", "-verify_hostname", "kube-apiserver"), "the CN is not a server name");
    assert!(!called("apiserver", "ca", "-verify_hostname", "example.com"));
    assert!(!called("apiserver", "ca", "-verify_ip", "10.3.0.2"));
    for leaf in ["etcd-server-1", "etcd-peer-1"] {
        assert!(called(leaf, "etcd-ca", "-verify_hostname", "etcd-1.prod.etcd.internal"));
        assert!(called(leaf, "etcd-ca", "-verify_ip", "127.0.0.1"));
        assert!(!called(leaf, "etcd-ca", "-verify_hostname", "etcd-0.prod.etcd.internal"));
    }
}

/// Compares `openssl x509 -text` with the profile.
fn says_what_its_profile_says(dir: &Path, name: &str, profile: &CertificateProfile) {
    let file = format!("{name}.pem");
    let show = |what: &[&str]| ok(dir, &[&["x509", "-in", &file, "-noout"], what].concat());
    let extension = |ext: &str| {
        let text = show(&["-ext", ext]);
        text.lines().map(str::trim).collect::<Vec<_>>().join("|")
    };
    let subject = show(&["-subject", "-nameopt", "RFC2253"]);
    let mut expected = format!("subject=CN={}", profile.common_name);
    for organization in &profile.organizations {
        expected.push_str(&format!(",O={organization}"));
    }
    assert_eq!(subject.trim(), expected, "{name}"); // RFC 2253 prints the last first.
    assert_eq!(show(&["-startdate", "-dateopt", "iso_8601"]).trim(), "notBefore=2026-11-20 11:55:00Z");
    let end = manifest::not_after(now(), profile.days).unwrap().strftime("%F %TZ").to_string();
    assert_eq!(show(&["-enddate", "-dateopt", "iso_8601"]).trim(), format!("notAfter={end}"));

    let constraints = extension("basicConstraints");
    let usage = extension("keyUsage");
    assert!(constraints.contains("critical") && usage.contains("critical"), "{name}: {constraints} {usage}");
    if profile.authority {
        assert!(constraints.ends_with("CA:TRUE, pathlen:0"), "{name}: {constraints}");
        assert!(usage.ends_with("|Certificate Sign, CRL Sign"), "{name}: {usage}");
    } else {
        assert!(constraints.ends_with("CA:FALSE"), "{name}: {constraints}");
        let rsa = matches!(
            profile.algorithm,
            KeyAlgorithm::Rsa2048 | KeyAlgorithm::Rsa3072 | KeyAlgorithm::Rsa4096
        );
        let expected = if rsa { "|Digital Signature, Key Encipherment" } else { "|Digital Signature" };
        assert!(usage.ends_with(expected), "{name}: {usage}");
        assert!(!extension("authorityKeyIdentifier").contains("No extensions"), "{name}");
        let eku = extension("extendedKeyUsage");
        assert_eq!(eku.contains("TLS Web Server Authentication"), profile.server, "{name}: {eku}");
        assert_eq!(eku.contains("TLS Web Client Authentication"), profile.client, "{name}: {eku}");
    }
    assert!(!extension("subjectKeyIdentifier").contains("No extensions"), "{name}");
    let sans: BTreeSet<String> = extension("subjectAltName")
        .split(['|', ','])
        .filter_map(|item| item.trim().strip_prefix("DNS:").or(item.trim().strip_prefix("IP Address:")))
        .map(str::to_owned)
        .collect();
    assert_eq!(sans, profile.sans, "{name}");

    let key = format!("{name}-key.pem");
    assert!(ok(dir, &["pkey", "-in", &key, "-noout", "-check"]).contains("valid"), "{name}");
    assert_eq!(show(&["-pubkey"]), ok(dir, &["pkey", "-in", &key, "-pubout"]), "{name}");
}

#[test]
fn every_key_algorithm_signs_and_is_signed() {
    let cluster = cluster();
    for algorithm in ALGORITHMS {
        let dir = tempfile::tempdir().unwrap();
        let authority = CertificateProfile { algorithm, ..profile(&cluster, "etcd-ca") };
        let leaf = CertificateProfile { algorithm, ..profile(&cluster, "etcd-peer-1") };
        let authority_made = AwsLc.issue(&authority, None, now()).unwrap();
        let leaf_made = AwsLc.issue(&leaf, Some(&signer(&authority_made)), now()).unwrap();
        write(dir.path(), "etcd-ca", &authority_made);
        write(dir.path(), "etcd-peer-1", &leaf_made);
        for purpose in ["sslserver", "sslclient"] {
            let (verified, text) = verify(dir.path(), "etcd-ca", "etcd-peer-1", purpose);
            assert!(verified, "{algorithm:?} {text}");
        }
        says_what_its_profile_says(dir.path(), "etcd-ca", &authority);
        says_what_its_profile_says(dir.path(), "etcd-peer-1", &leaf);
        let expected = match algorithm {
            KeyAlgorithm::EcdsaP256 => "(256 bit)",
            KeyAlgorithm::EcdsaP384 => "(384 bit)",
            KeyAlgorithm::Rsa2048 => "(2048 bit)",
            KeyAlgorithm::Rsa3072 => "(3072 bit)",
            KeyAlgorithm::Rsa4096 => "(4096 bit)",
        };
        let text = ok(dir.path(), &["x509", "-in", "etcd-peer-1.pem", "-noout", "-text"]);
        assert!(text.contains(&format!("Public-Key: {expected}")), "{text}");

        if algorithm == KeyAlgorithm::Rsa4096 {
            continue; // Two of these keys are enough to wait for.
        }
        let pair = AwsLc.make(&AssetKind::KeyPair(algorithm)).unwrap();
        write(dir.path(), "service-account", &pair);
        let public = ok(dir.path(), &["pkey", "-in", "service-account-key.pem", "-pubout"]);
        assert_eq!(Some(public), pair.public);
    }
}

#[test]
fn an_authority_made_by_openssl_signs_for_us() {
    // Imported authorities have other identifiers, serial numbers and key encodings than ours.
    let dir = tempfile::tempdir().unwrap();
    for (name, key) in [
        ("sec1", vec!["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "sec1-key.pem"]),
        ("pkcs1", vec!["genrsa", "-traditional", "-out", "pkcs1-key.pem", "2048"]),
    ] {
        ok(dir.path(), &key);
        let key = format!("{name}-key.pem");
        let file = format!("{name}.pem");
        ok(
            dir.path(),
            &[
                "req",
                "-x509",
                "-new",
                "-key",
                &key,
                "-out",
                &file,
                "-days",
                "4000",
                "-subj",
                "/C=DE/O=Example GmbH/CN=Imported CA",
                "-addext",
                "keyUsage=critical,keyCertSign,cRLSign",
            ],
        );
        let authority = slipway_ports::Signer {
            certificate: std::fs::read_to_string(dir.path().join(&file)).unwrap(),
            key: slipway_ports::Secret::new(std::fs::read(dir.path().join(&key)).unwrap()),
        };
        let (facts, fingerprint) = AwsLc.facts(&authority.certificate).unwrap();
        assert_eq!(facts.issuer_fingerprint, fingerprint);
        // openssl uses the present date.
        let today = facts.not_before;
        let leaf = AwsLc.issue(&profile(&cluster(), "apiserver"), Some(&authority), today).unwrap();
        write(dir.path(), "leaf", &leaf);
        let at = today.as_second().to_string();
        ok(
            dir.path(),
            &[
                "verify",
                "-x509_strict",
                "-attime",
                &at,
                "-purpose",
                "sslserver",
                "-CAfile",
                &file,
                "leaf.pem",
            ],
        );
    }
}

#[test]
fn the_facts_are_what_openssl_says() {
    let dir = tempfile::tempdir().unwrap();
    let all = issue_all(&cluster());
    for (name, made) in &all {
        let Some(pem) = made.public.as_ref().filter(|pem| pem.contains("CERTIFICATE")) else { continue };
        write(dir.path(), name, made);
        let file = format!("{name}.pem");
        let (facts, fingerprint) = AwsLc.facts(pem).unwrap();
        let printed = ok(dir.path(), &["x509", "-in", &file, "-noout", "-serial", "-fingerprint", "-sha256"]);
        assert!(printed.to_lowercase().contains(&format!("serial={}", facts.serial)), "{printed}");
        assert_eq!(facts.serial.len(), 32);
        let colons = printed.to_lowercase().replace(':', "");
        assert!(colons.contains(&format!("fingerprint={fingerprint}")), "{printed}");
        std::fs::write(
            dir.path().join("spki.pem"),
            ok(dir.path(), &["x509", "-in", &file, "-noout", "-pubkey"]),
        )
        .unwrap();
        ok(dir.path(), &["pkey", "-pubin", "-in", "spki.pem", "-outform", "DER", "-out", "spki.der"]);
        assert!(ok(dir.path(), &["dgst", "-sha256", "spki.der"]).contains(&facts.spki_sha256));
        let own = name.ends_with("-ca") || name == "ca";
        assert_eq!(facts.issuer_fingerprint, if own { fingerprint } else { String::new() });
    }
}
