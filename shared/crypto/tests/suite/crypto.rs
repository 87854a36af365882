//! The guarantees of `AwsLc` about keys, refusals and sealing.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use slipway_core::digest::sha256_hex;
use slipway_credentials::{AssetKind, CertificateProfile, manifest};
use slipway_crypto::AwsLc;
use slipway_ports::{Context, Crypto as _, DataKey, ErrorKind, PortError, Sealing, Secret, Signer};

use crate::common::{cluster, issue_all, now, profile, signer};

#[test]
fn p9_no_two_names_share_a_key_a_serial_or_a_secret() {
    let (mut keys, mut serials, mut secrets) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let all = issue_all(&cluster());
    for (name, made) in &all {
        assert!(secrets.insert(made.private.expose().to_vec()), "{name}");
        match &made.public {
            Some(pem) if pem.contains("CERTIFICATE") => {
                let (facts, _) = AwsLc.facts(pem).unwrap();
                assert!(keys.insert(facts.spki_sha256), "{name}");
                assert!(serials.insert(facts.serial), "{name}");
            }
            Some(pem) => assert!(keys.insert(manifest::key_pair_fingerprint(pem).unwrap()), "{name}"),
            None => {}
        }
    }
    assert_eq!(secrets.len(), all.len());
    assert_eq!(keys.len(), all.len() - 3);
}

#[test]
fn p9_nothing_printed_shows_a_secret() {
    let made = AwsLc.make(&AssetKind::RandomKey).unwrap();
    let random = String::from_utf8(made.private.expose().to_vec()).unwrap();
    assert!(!format!("{made:?}").contains(&random));
    let authority = AwsLc.issue(&profile(&cluster(), "ca"), None, now()).unwrap();
    let key = String::from_utf8(authority.private.expose().to_vec()).unwrap();
    // A key with a missing line is refused, and the message does not quote it.
    let line = key.lines().nth(1).unwrap().to_owned();
    let broken = Signer {
        certificate: authority.public.clone().unwrap(),
        key: Secret::new(key.replacen(&line, "", 1).into_bytes()),
    };
    let error = AwsLc.issue(&profile(&cluster(), "admin"), Some(&broken), now()).unwrap_err();
    assert!(!error.to_string().contains(key.lines().nth(2).unwrap()), "{error}");
    assert!(!format!("{broken:?} {error:?}").contains(key.lines().nth(2).unwrap()));
}

fn refusal(profile: &CertificateProfile, signer: Option<&Signer>) -> String {
    let error = AwsLc.issue(profile, signer, now()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert_eq!(error.subject, profile.common_name);
    error.to_string()
}

#[test]
fn what_would_not_verify_is_not_issued() {
    let cluster = cluster();
    let all = issue_all(&cluster);
    let ca = signer(&all["ca"]);
    let admin = profile(&cluster, "admin");

    // A leaf expires no later than its authority, and an authority that is about to expire issues none.
    let long = AwsLc.issue(&CertificateProfile { days: 3651, ..admin.clone() }, Some(&ca), now()).unwrap();
    let (end, (facts, _)) =
        (AwsLc.facts(&ca.certificate).unwrap().0.not_after, AwsLc.facts(&long.public.unwrap()).unwrap());
    assert_eq!((facts.not_after, end.to_string()), (end, "2036-11-17T12:00:00Z".to_owned()));
    let late = end - jiff::SignedDuration::from_mins(30);
    let text = AwsLc.issue(&admin, Some(&ca), late).unwrap_err().to_string();
    assert!(text.contains("2036-11-17T11:30:00Z") && text.contains("Nov 17 12:00:00 2036"), "{text}");
    let mixed = Signer { certificate: ca.certificate.clone(), key: all["etcd-ca"].private.clone() };
    assert!(refusal(&admin, Some(&mixed)).contains("does not belong"));
    assert!(refusal(&admin, Some(&signer(&all["apiserver"]))).contains("not an authority"));
    let garbage = Signer { certificate: "garbage".to_owned(), key: ca.key.clone() };
    assert!(refusal(&admin, Some(&garbage)).contains("not PEM"));
    let garbage = Signer { certificate: ca.certificate.clone(), key: Secret::new(vec![0xff; 10]) };
    assert!(refusal(&admin, Some(&garbage)).contains("not PEM"));
    let forever = CertificateProfile { days: u32::MAX, ..profile(&cluster, "ca") };
    assert!(refusal(&forever, None).contains("9999"));
    let umlaut = CertificateProfile { sans: BTreeSet::from(["schön.example".to_owned()]), ..admin.clone() };
    assert!(refusal(&umlaut, Some(&ca)).contains("schön.example"));
    let many = CertificateProfile { organizations: vec!["a".to_owned(), "b".to_owned()], ..admin.clone() };
    assert!(refusal(&many, Some(&ca)).contains("organization"));
    assert!(AwsLc.make(&AssetKind::Certificate(admin)).is_err());
}

#[test]
fn what_is_no_certificate_is_refused_in_words() {
    let all = issue_all(&cluster());
    let pem = all["apiserver"].public.clone().unwrap();
    let message = |text: &str| AwsLc.facts(text).unwrap_err().message;
    assert!(message("").contains("not PEM"));
    assert!(message(&pem[..pem.len() / 2]).contains("truncated"));
    assert!(message(&"x".repeat(10 << 20)).contains("too many"));
    assert!(message(all["service-account"].public.as_ref().unwrap()).contains("not a CERTIFICATE"));
    assert!(message(std::str::from_utf8(all["ca"].private.expose()).unwrap()).contains("not a CERTIFICATE"));
    assert!(
        message("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").contains("not an X.509")
    );
    let body: Vec<_> = pem.lines().collect();
    let cut = [&body[..3], &body[body.len() - 1..]].concat().join("\n");
    assert!(message(&cut).contains("not an X.509"));
    let two = format!("{pem}{pem}");
    assert!(message(&two).contains("more than one"));
    // Surrounding spaces and Windows line ends are accepted.
    assert_eq!(
        AwsLc.facts(&format!("\n {}", pem.replace('\n', "\r\n"))).unwrap(),
        AwsLc.facts(&pem).unwrap()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn a_damaged_certificate_is_read_or_refused_and_never_worse(
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        static DER: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| {
            let pem = issue_all(&cluster())["apiserver"].public.clone().unwrap();
            let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
            STANDARD.decode(body).unwrap()
        });
        let mut der = DER.clone();
        for (index, value) in &flips {
            let index = index.index(der.len());
            der[index] ^= value;
        }
        if let Some(cut) = cut {
            der.truncate(cut.index(der.len()));
        }
        let pem = format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(&der));
        if let Ok((facts, fingerprint)) = AwsLc.facts(&pem) {
            prop_assert_eq!(fingerprint, sha256_hex(&der));
            prop_assert_eq!(facts.spki_sha256.len(), 64);
        }
        // The same bytes as an authority: it either issues or is refused.
        let authority = Signer { certificate: pem, key: Secret::new(b"no key".to_vec()) };
        prop_assert!(AwsLc.issue(&profile(&cluster(), "admin"), Some(&authority), now()).is_err());
    }

    #[test]
    fn any_bytes_are_refused_as_sealed_bytes_in_peace(bytes in proptest::collection::vec(any::<u8>(), 0..200), ours in any::<bool>()) {
        let bytes = if ours { [&b"SLPW2"[..], &bytes].concat() } else { bytes };
        prop_assert!(AwsLc.open(&Secret::new(vec![0; 32]), &context("admin"), &bytes).is_err());
    }
}

fn context(role: &str) -> Context {
    BTreeMap::from([("cluster".to_owned(), "prod".to_owned()), ("role".to_owned(), role.to_owned())])
}

fn key(byte: u8, wrapped: &[u8]) -> DataKey {
    DataKey { wrapped_by: "a key".to_owned(), plain: Secret::new(vec![byte; 32]), wrapped: wrapped.to_vec() }
}

fn message(result: Result<Secret, PortError>) -> String {
    result.unwrap_err().message
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_is_sealed_opens_under_the_same_key_and_context_alone(
        plain in proptest::collection::vec(any::<u8>(), 0..2000),
        wrapped in proptest::collection::vec(any::<u8>(), 1..300),
        byte in any::<u8>(),
    ) {
        let data_key = key(byte, &wrapped);
        let sealed = AwsLc.seal(&data_key, &context("controller"), &plain).unwrap();
        let sealings = AwsLc.sealings(&sealed).unwrap();
        prop_assert_eq!(&sealings, &[Sealing { wrapped_by: "a key", wrapped: &wrapped, bytes: &sealed }]);
        let opened = AwsLc.open(&data_key.plain, &context("controller"), &sealed).unwrap();
        prop_assert_eq!(opened.expose(), &plain[..]);
        prop_assert!(message(AwsLc.open(&data_key.plain, &context("etcd-0"), &sealed)).contains("another key or context"));
        let other = Secret::new(vec![byte ^ 1; 32]);
        prop_assert!(message(AwsLc.open(&other, &context("controller"), &sealed)).contains("another key or context"));
        let again = AwsLc.seal(&data_key, &context("controller"), &plain).unwrap();
        prop_assert_ne!(sha256_hex(&sealed), sha256_hex(&again), "a nonce came twice");
    }
}

#[test]
fn each_byte_tampered_with_each_byte_missing_or_added_is_noticed() {
    let data_key = key(3, b"wrapped by KMS");
    let sealed = AwsLc.seal(&data_key, &context("controller"), b"the plaintext").unwrap();
    let open = |bytes: &[u8]| AwsLc.open(&data_key.plain, &context("controller"), bytes);
    for index in 0..sealed.len() {
        for bit in 0..8 {
            let mut bytes = sealed.clone();
            bytes[index] ^= 1 << bit;
            let text = message(open(&bytes));
            if index < 5 {
                assert!(text.contains("not sealed by Slipway"), "{index}: {text}");
            }
            // The name of the key, the wrapped key, the ciphertext and its tag.
            if index >= sealed.len() - 29 || (7..12).contains(&index) || (14..28).contains(&index) {
                let text = if (7..12).contains(&index) && bit == 7 { "tampered: not text" } else { &text };
                assert!(text.contains("tampered"), "{index}: {text}");
            }
        }
    }
    for length in 0..sealed.len() {
        assert!(
            message(open(&sealed[..length])).contains(&format!("truncated after {length} bytes")),
            "{length}"
        );
        assert!(AwsLc.sealings(&sealed[..length]).is_err());
    }
    let longer = [&sealed[..], b"x"].concat();
    assert!(message(open(&longer)).contains("longer than their head says"));
    let twice = [&sealed[..], &sealed[..]].concat();
    assert!(message(open(&twice)).contains("longer than their head says"), "one sealing is opened at a time");
    assert_eq!(AwsLc.sealings(&twice).unwrap().len(), 2);
    assert!(AwsLc.sealings(&longer).is_err() && AwsLc.sealings(&twice[..twice.len() - 1]).is_err());
    assert!(message(open(b"-----BEGIN PRIVATE KEY-----")).contains("not sealed by Slipway"));
}

#[test]
fn a_data_key_of_another_size_is_refused() {
    let short = DataKey { plain: Secret::new(vec![1; 16]), ..key(1, &[1]) };
    assert!(AwsLc.seal(&short, &context("admin"), b"x").unwrap_err().message.contains("32 bytes"));
    let bare = key(1, &[]);
    assert!(AwsLc.seal(&bare, &context("admin"), b"x").unwrap_err().message.contains("between 1 and 65535"));
}
