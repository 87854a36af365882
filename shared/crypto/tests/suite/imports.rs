//! Authorities, leaves and keys that `openssl` made, imported as a person imports them.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test may panic")]

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use slipway_core::cluster::OwnSource;
use slipway_core::role::Role;
use slipway_credentials::{Origin, policy};
use slipway_crypto::AwsLc;
use slipway_crypto::testing::{Own, brought, provided};
use slipway_flows::credentials::{self, Constraints, NodeBundles};
use slipway_flows::imports;
use slipway_ports::{Crypto as _, Secret};
use slipway_sim::memory::{MemoryBucket, MemoryParameters};

use crate::bring::{PARAMETER, PASSPHRASE, accepted, objection, objection_at, render, uploaded};
use crate::common::cluster;
use crate::flow::{bundle, calls, forget_calls, stored};
use crate::world::World;

#[tokio::test]
async fn an_imported_authority_signs_the_cluster_and_its_key_is_sealed_like_ours() {
    let own = Own::new();
    own.root("ca", "/O=Example/CN=Example Kubernetes CA");
    own.lock("ca", PASSPHRASE);
    let (world, cluster) = (World::new(), brought(&cluster(), "ca"));
    let uploads = uploaded(&own);
    let made = accepted(&world, &uploads, &cluster).await;

    let worker = bundle(&world, &made, &Role::Pool("general".to_owned())).await;
    assert_eq!(worker["/etc/kubernetes/pki/ca.pem"], own.read("ca.pem"));
    let controller = bundle(&world, &made, &Role::Controller).await;
    own.write("served.pem", &controller["/etc/kubernetes/pki/apiserver.pem"]);
    own.verify("ca.pem", "served.pem", &["-purpose", "sslserver"]).unwrap();
    assert_eq!(
        controller["/etc/kubernetes/pki/apiserver.pem"].matches("BEGIN").count(),
        1,
        "a root is not presented"
    );
    assert_eq!(controller["/etc/kubernetes/pki/root-ca.pem"], own.read("ca.pem"));
    for (name, entry) in &made.manifest.assets {
        assert_eq!(entry.origin == Origin::Imported, name == "ca", "{name}");
    }

    // No object contains the plain key, in the imported form or in ours.
    let key =
        AwsLc.brought_key(&own.secret("ca-key.pem"), Some(&Secret::new(PASSPHRASE.into()))).unwrap().pem;
    let body = std::str::from_utf8(key.expose()).unwrap().lines().nth(1).unwrap().to_owned();
    for name in world.bucket.keys() {
        let text = String::from_utf8_lossy(&world.bucket.peek(&name).unwrap()).into_owned();
        assert!(!text.contains(&body) && !text.contains("PRIVATE") && !text.contains(PASSPHRASE), "{name}");
    }
    assert!(!format!("{made:?}").contains(&body));

    // The authority signs again from the vault, so the file may be deleted.
    let mut wider = cluster.clone();
    wider.kubernetes.extra_sans.push("more.example.com".to_owned());
    let empty = (MemoryBucket::new("specs", "eu-west-1"), MemoryParameters::default());
    let second = accepted(&world, &empty, &wider).await;
    assert_eq!(second.made, ["apiserver"]);
    let controller = bundle(&world, &second, &Role::Controller).await;
    own.write("served.pem", &controller["/etc/kubernetes/pki/apiserver.pem"]);
    own.verify("ca.pem", "served.pem", &["-purpose", "sslserver"]).unwrap();
}

#[tokio::test]
async fn p1_the_same_authority_again_or_its_files_gone_changes_nothing_and_reads_no_key() {
    let own = Own::new();
    own.root("ca", "/CN=Example CA");
    own.lock("ca", PASSPHRASE);
    let (world, cluster) = (World::new(), brought(&cluster(), "ca"));
    let uploads = uploaded(&own);
    let first = accepted(&world, &uploads, &cluster).await;
    uploads.1.journal().clear();
    uploads.0.journal().clear();
    let gone = (MemoryBucket::new("specs", "eu-west-1"), MemoryParameters::default());
    for again in [&uploads, &gone] {
        forget_calls(&world);
        let second = accepted(&world, again, &cluster).await;
        assert_eq!(second.digests, first.digests);
        assert_eq!(second.manifest, first.manifest);
        assert_eq!(calls(&world), (0, 0, 0));
        assert_eq!(again.1.journal().count("ssm:GetParameter"), 0, "the passphrase was asked for");
    }
    // After it has expired, ten years later, an unchanged spec is still unchanged.
    let late = Timestamp::now() + SignedDuration::from_hours(24 * 3000);
    let late = render(&world, &uploads, &cluster, late).await.unwrap().unwrap();
    assert_eq!(late.digests, first.digests);
}

#[tokio::test]
async fn another_authority_for_a_cluster_that_has_one_is_a_rotation_and_refused() {
    let (own, plain) = (Own::new(), cluster());
    own.root("ca", "/CN=Example CA");
    own.lock("ca", PASSPHRASE);
    let imported = brought(&plain, "ca");
    // Slipway has made the authority, and then the spec imports one.
    let world = World::new();
    let uploads = uploaded(&own);
    let first = accepted(&world, &uploads, &plain).await;
    let found = render(&world, &uploads, &imported, Timestamp::now()).await.unwrap_err();
    assert_eq!(found, ["import-rotation: the cluster has the authority ca already, and it is generated"]);
    assert_eq!(stored(&world), first.manifest);
    // The same, if Slipway makes it between the check and the import.
    let (read, _) = imports::read(
        &imports::BucketImports { cluster: "prod", specs: &uploads.0, parameters: &uploads.1 },
        &world.bucket,
        &AwsLc,
        &imported,
        &Default::default(),
        Timestamp::now(),
    )
    .await
    .unwrap();
    let raced = credentials::ensure_with(
        &world.bucket,
        &world.kms,
        &AwsLc,
        &imported,
        &Constraints { known: &NodeBundles::new(), imported: &read },
        Timestamp::now(),
    )
    .await
    .unwrap_err();
    assert!(raced.to_string().contains("is not replaced by one of another kind"), "{raced}");

    // An authority is imported, and then replaced in the folder, or the spec no longer imports it.
    let world = World::new();
    let first = accepted(&world, &uploads, &imported).await;
    let found = render(&world, &uploads, &plain, Timestamp::now()).await.unwrap_err();
    assert_eq!(found, ["import-rotation: the cluster has the authority ca already, and it is imported"]);
    let other = Own::new();
    other.root("ca", "/CN=Example CA");
    other.lock("ca", PASSPHRASE);
    let found = render(&world, &uploaded(&other), &imported, Timestamp::now()).await.unwrap_err();
    assert_eq!(
        found,
        [
            "import-rotation: import/ca.pem: it differs from the certificate of ca that the cluster uses, which was imported"
        ]
    );
    assert_eq!(stored(&world), first.manifest);
}

#[tokio::test]
async fn an_intermediate_is_what_nodes_trust_and_servers_present_the_way_to_its_root() {
    let own = Own::new();
    own.root("root", "/CN=Example Root");
    own.below(
        "middle",
        "root",
        "/CN=Example Middle",
        "basicConstraints=critical,CA:TRUE,pathlen:1\nkeyUsage=critical,keyCertSign",
    );
    own.below(
        "etcd-ca",
        "middle",
        "/CN=Example etcd",
        "basicConstraints=critical,CA:TRUE,pathlen:0\nkeyUsage=critical,keyCertSign",
    );
    own.below(
        "ca",
        "middle",
        "/CN=Example Kubernetes",
        "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign",
    );
    for name in ["ca", "etcd-ca"] {
        own.lock(name, PASSPHRASE);
        own.write(
            &format!("{name}.pem"),
            &[own.read(&format!("{name}.pem")), own.read("middle.pem"), own.read("root.pem")].concat(),
        );
    }
    let issuing = own.first("ca.pem");
    let (world, cluster) = (World::new(), brought(&brought(&cluster(), "ca"), "etcd-ca"));
    let uploads = uploaded(&own);
    let made = accepted(&world, &uploads, &cluster).await;
    let controller = bundle(&world, &made, &Role::Controller).await;
    let file = |name: &str| &controller[&format!("/etc/kubernetes/pki/{name}")];

    // Another certificate under the root is not accepted from a client.
    assert_eq!(file("ca.pem"), &issuing);
    assert!(!file("client-ca.pem").contains(own.read("root.pem").lines().nth(1).unwrap()));
    assert_eq!(file("client-ca.pem").matches("BEGIN").count(), 2);
    let member = bundle(&world, &made, &Role::Etcd(0)).await;
    assert_eq!(member["/etc/etcd/pki/etcd-ca.pem"], own.first("etcd-ca.pem"));
    // For pods, whose libraries may need the root.
    assert_eq!(file("root-ca.pem"), &own.read("ca.pem"));

    // A client that knows only the root uses the chain that the server presents; a client that knows only the intermediate needs nothing
    // else.
    for (served, name) in [(file("apiserver.pem"), "api"), (&member["/etc/etcd/pki/server.pem"], "etcd")] {
        assert_eq!(served.matches("BEGIN").count(), 3, "{name}: leaf, issuing, middle");
        own.write("served.pem", served);
        own.verify("root.pem", "served.pem", &["-purpose", "sslserver", "-untrusted", "served.pem"]).unwrap();
        assert!(own.verify("root.pem", "served.pem", &["-purpose", "sslserver"]).is_err());
    }
    own.write("issuing.pem", &issuing);
    own.write("served.pem", file("apiserver.pem"));
    own.verify("issuing.pem", "served.pem", &["-purpose", "sslserver", "-partial_chain"]).unwrap();
    own.verify("ca.pem", "served.pem", &["-purpose", "sslserver"]).unwrap();
    // A client's certificate needs no chain: servers know the issuing certificate.
    assert_eq!(file("scheduler.pem").matches("BEGIN").count(), 1);

    // The chain is part of the import: a changed chain is noticed, also in our own bucket.
    let whole = own.read("ca.pem");
    own.write("ca.pem", &issuing);
    let found = render(&world, &uploaded(&own), &cluster, Timestamp::now()).await.unwrap_err();
    assert!(found[0].starts_with("import-rotation"), "{found:?}");
    let key = world
        .bucket
        .keys()
        .into_iter()
        .find(|key| key.contains("/pki/ca/") && key.ends_with(".chain.pem"))
        .unwrap();
    world.bucket.upload(&key, own.read("root.pem").into_bytes());
    let mut other = cluster.clone();
    other.kms_key_arn = Some("arn:aws:kms:eu-west-1:111122223333:key/mine".to_owned());
    let healed = render(&world, &uploads, &other, Timestamp::now()).await.unwrap().unwrap();
    assert_eq!(healed.healed.len(), 1, "{:?}", healed.healed);
    assert_eq!(healed.healed[0].problem, "is another than the inventory says");
    assert_eq!(world.bucket.peek(&key).unwrap(), whole.into_bytes(), "it was brought back from a bundle");
}

#[tokio::test]
async fn each_flaw_of_an_authority_is_called_by_its_name_and_nothing_is_stored() {
    let cluster = brought(&cluster(), "ca");
    let fresh = |subject: &str| {
        let own = Own::new();
        own.root("ca", subject);
        own.lock("ca", PASSPHRASE);
        own
    };
    let own = fresh("/CN=CA");
    let now = Timestamp::now();
    let later = now + SignedDuration::from_hours(24 * 4001);
    // Only the dates are reported, although leaves would also outlive the authority.
    let found = {
        let world = World::new();
        render(&world, &uploaded(&own), &cluster, later).await.unwrap_err()
    };
    assert!(
        found.iter().any(|one| one.starts_with("import-certificate: import/ca.pem: `CN=CA` expired ")),
        "{found:?}"
    );
    let message = objection_at(&own, &cluster, now - SignedDuration::from_hours(48)).await;
    assert!(message.contains("`CN=CA` is not valid before "), "{message}");

    let own = fresh("/CN=CA");
    own.short("ca", 100);
    own.lock("ca", PASSPHRASE);
    let message = objection(&own, &cluster).await;
    assert!(
        message.contains("certificates of 365 days would outlive the authority ca, which ends "),
        "{message}"
    );

    let own = fresh("/CN=CA");
    own.below("leaf", "ca-plain", "/CN=leaf", "basicConstraints=CA:FALSE");
    own.rename("leaf", "ca");
    own.lock("ca", PASSPHRASE);
    let message = objection(&own, &cluster).await;
    assert!(message.contains("`CN=leaf` is a leaf, no authority"), "{message}");

    for (digest, word) in [("sha1", "SHA-1"), ("md5", "MD5")] {
        let own = Own::new();
        own.root_with("ca", "/CN=CA", &["-newkey", "rsa:2048", &format!("-{digest}")]);
        own.lock("ca", PASSPHRASE);
        let message = objection(&own, &cluster).await;
        assert!(message.contains(&format!("`CN=CA` is signed with {word}")), "{message}");
    }
    for (kind, words) in [
        (&["-newkey", "rsa:1024"][..], "an RSA key of 1024 bits"),
        (&["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-521"], "a curve other than P-256 and P-384"),
        (&["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:secp256k1"], "a curve other than P-256 and P-384"),
        (&["-newkey", "ed25519"], "neither ECDSA nor RSA"),
    ] {
        let own = Own::new();
        own.root_with("ca", "/CN=CA", kind);
        own.lock("ca", PASSPHRASE);
        let message = objection(&own, &cluster).await;
        assert!(message.contains(words), "{message}");
    }
    for (extension, words) in [
        ("keyUsage=critical,cRLSign", "may not sign certificates (keyUsage lacks keyCertSign)"),
        ("extendedKeyUsage=codeSigning", "the extendedKeyUsage of"),
        (
            "nameConstraints=critical,permitted;DNS:example.com",
            "may sign certain names alone (nameConstraints)",
        ),
    ] {
        let own = Own::new();
        own.root_with("ca", "/CN=CA", &["-newkey", "rsa:2048", "-addext", extension]);
        own.lock("ca", PASSPHRASE);
        let message = objection(&own, &cluster).await;
        assert!(message.contains(words), "{message}");
    }

    // A name that cannot be encoded again in the same way is found before anything is issued.
    let own = fresh("/O=Example/OU=one/OU=two/CN=CA");
    let message = objection(&own, &cluster).await;
    assert!(
        message.contains("nothing can be issued under it: the authority's name cannot be written"),
        "{message}"
    );

    // A path length that is too short, a wrong order, and an unrelated certificate in the chain.
    let own = Own::new();
    own.root_with(
        "root",
        "/CN=Root",
        &["-newkey", "rsa:2048", "-addext", "basicConstraints=critical,CA:TRUE,pathlen:0"],
    );
    own.below("ca", "root", "/CN=CA", "basicConstraints=critical,CA:TRUE");
    own.lock("ca", PASSPHRASE);
    let (issuing, root) = (own.read("ca.pem"), own.read("root.pem"));
    own.write("ca.pem", &[&issuing[..], &root].concat());
    let message = objection(&own, &cluster).await;
    assert!(
        message.contains("`CN=Root` allows 0 authorities below it (pathlen), and the file has 1"),
        "{message}"
    );
    own.write("ca.pem", &[&root[..], &issuing].concat());
    let message = objection(&own, &cluster).await;
    assert!(message.contains("`CN=CA` comes after `CN=Root`, which it did not sign"), "{message}");
    own.write("ca.pem", &issuing);
    accepted(&World::new(), &uploaded(&own), &cluster).await;

    // Files whose content does not match their names.
    let own = fresh("/CN=CA");
    for (text, words) in [
        ("hello", "it is not PEM"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "not an X.509 certificate"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n", "truncated"),
        ("-----BEGIN PKCS7-----\nAAAA\n-----END PKCS7-----\n", "certificates alone belong there"),
        (&own.read("ca-plain-key.pem"), "it holds a private key"),
    ] {
        own.write("ca.pem", text);
        let message = objection(&own, &cluster).await;
        assert!(
            message.starts_with("import-certificate: import/ca.pem: ") && message.contains(words),
            "{message}"
        );
    }
    own.remove("ca.pem");
    assert_eq!(
        objection(&own, &cluster).await,
        "import-missing: import/ca.pem: the certificate of ca does not exist"
    );
}

#[tokio::test]
async fn each_flaw_of_a_key_is_called_by_its_name_and_nothing_is_stored() {
    let cluster = brought(&cluster(), "ca");
    let own = Own::new();
    own.root("ca", "/CN=CA");
    own.lock("ca", PASSPHRASE);
    let (plain, locked) = (own.read("ca-plain-key.pem"), own.read("ca-key.pem"));
    // P9: secrets must not be in that bucket.
    own.write("ca-key.pem", &plain);
    let message = objection(&own, &cluster).await;
    assert!(
        message.starts_with("import-plain-key: the private key in import/ca-key.pem is not encrypted"),
        "{message}"
    );

    let other = Own::new();
    other.root("ca", "/CN=CA");
    other.lock("ca", PASSPHRASE);
    let stranger = other.read("ca-key.pem");
    for (text, words) in [
        (stranger.as_str(), "this is not the key of the certificate beside it"),
        (&[locked.clone(), stranger.clone()].concat(), "it holds 2 private keys"),
        (&own.read("ca.pem"), "it holds no private key, but a CERTIFICATE"),
        ("secret", "it is not PEM"),
        (&locked.replace("-----END ENCRYPTED PRIVATE KEY-----", ""), "truncated"),
        (
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAAwAA==\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "not known here, or damaged",
        ),
    ] {
        own.write("ca-key.pem", text);
        let message = objection(&own, &cluster).await;
        assert!(
            message.starts_with("import-key: import/ca-key.pem: ") && message.contains(words),
            "{message}"
        );
    }
    own.remove("ca-key.pem");
    assert_eq!(
        objection(&own, &cluster).await,
        "import-missing: import/ca-key.pem: the private key does not exist"
    );

    // Passphrases: a wrong one, none in the spec, a missing parameter, and a parameter that is not encrypted.
    own.write("ca-key.pem", &locked);
    let uploads = uploaded(&own);
    uploads.1.set_secret(PARAMETER, "wrong");
    let world = World::new();
    let now = Timestamp::now();
    let findings = render(&world, &uploads, &cluster, now).await.unwrap_err();
    assert_eq!(findings, ["import-key: import/ca-key.pem: the passphrase does not open it"]);
    let none = (uploads.0.clone(), MemoryParameters::default());
    let findings = render(&world, &none, &cluster, now).await.unwrap_err();
    assert_eq!(
        findings,
        [format!(
            "import-passphrase: import/ca-key.pem: there is no SSM parameter {PARAMETER} in the installation's region"
        )]
    );
    none.1.set(PARAMETER, PASSPHRASE);
    let findings = render(&world, &none, &cluster, now).await.unwrap_err();
    assert!(findings[0].contains("is not a SecureString"), "{findings:?}");
    let mut unnamed = cluster.clone();
    unnamed.certificates.authorities.get_mut("ca").unwrap().passphrase_parameter = None;
    let findings = render(&world, &uploads, &unnamed, now).await.unwrap_err();
    assert!(findings[0].contains("no passphraseParameter is named"), "{findings:?}");
    assert!(world.bucket.keys().is_empty());

    // All at once: two authorities with a flaw each.
    let both = brought(&cluster, "etcd-ca");
    own.remove("ca-key.pem");
    let found = render(&world, &uploaded(&own), &both, now).await.unwrap_err();
    assert_eq!(found.len(), 2, "{found:?}");
    // One key for two authorities: the controllers would have the key of the cluster's authority.
    own.write("ca-key.pem", &locked);
    own.write("etcd-ca.pem", &own.read("ca.pem"));
    own.write("etcd-ca-key.pem", &locked);
    let found = render(&world, &uploaded(&own), &both, now).await.unwrap_err();
    assert_eq!(found, ["import-key: ca.pem and etcd-ca.pem have the same private key"]);
}

#[test]
fn a_key_is_read_in_every_form_that_openssl_writes_and_opened_by_its_own_passphrase_alone() {
    let own = Own::new();
    own.run("ecparam -name prime256v1 -genkey -out p256.pem"); // with a block of parameters before the key
    own.run("ecparam -name secp384r1 -genkey -noout -out p384.pem");
    own.run("genrsa -traditional -out rsa.pem 2048");
    let pass = Secret::new(PASSPHRASE.into());
    let mut forms = 0;
    for key in ["p256", "p384", "rsa"] {
        own.run(&format!("pkey -in {key}.pem -pubout -outform DER -out {key}.spki"));
        let spki = slipway_core::digest::sha256_hex(&own.bytes(&format!("{key}.spki")));
        let old = if key == "rsa" { "rsa -traditional" } else { "ec" };
        let mut commands = vec![(format!("pkcs8 -topk8 -nocrypt -in {key}.pem -out out.pem"), false)];
        for cipher in ["aes-128-cbc", "aes-192-cbc", "aes-256-cbc", "des3"] {
            for prf in ["hmacWithSHA1", "hmacWithSHA256", "hmacWithSHA512"] {
                commands.push((
                    format!(
                        "pkcs8 -topk8 -v2 {cipher} -v2prf {prf} -iter 64 -in {key}.pem -out out.pem -passout file:pass"
                    ),
                    true,
                ));
            }
        }
        commands.push((
            format!("pkcs8 -topk8 -scrypt -scrypt_N 1024 -in {key}.pem -out out.pem -passout file:pass"),
            true,
        ));
        if key == "p256" {
            // The default of OpenSSL, with 2048 rounds.
            commands.push((format!("pkey -aes256 -in {key}.pem -out out.pem -passout file:pass"), true));
        }
        for cipher in ["aes128", "aes192", "aes256", "des3"] {
            commands.push((format!("{old} -{cipher} -in {key}.pem -out out.pem -passout file:pass"), true));
        }
        own.write("pass", PASSPHRASE);
        for (command, locked) in commands {
            own.run(&command);
            let text = own.secret("out.pem");
            assert_eq!(AwsLc.is_locked(&text), locked, "{command}");
            let read =
                AwsLc.brought_key(&text, Some(&pass)).unwrap_or_else(|flaw| panic!("{command}: {flaw:?}"));
            assert_eq!(read.spki_sha256, spki, "{command}");
            assert!(read.pem.expose().starts_with(b"-----BEGIN PRIVATE KEY-----"), "{command}");
            assert!(!format!("{read:?}").contains("MII"));
            if locked {
                let wrong = AwsLc.brought_key(&text, Some(&Secret::new(b"no".to_vec()))).unwrap_err();
                assert_eq!(wrong.message, "the passphrase does not open it", "{command}");
                assert!(
                    AwsLc.brought_key(&text, None).unwrap_err().message.contains("no passphrase"),
                    "{command}"
                );
            }
            forms += 1;
        }
        let plain = AwsLc.brought_key(&own.secret(&format!("{key}.pem")), None).unwrap();
        assert_eq!(plain.spki_sha256, spki, "{key}");
    }
    assert_eq!(forms, 55);
    // Unsupported encryptions name the solution, and so does a round count that would take minutes.
    for command in ["pkcs8 -topk8 -v1 PBE-SHA1-3DES", "pkcs8 -topk8 -v2 aes-256-cbc -iter 100000000"] {
        if own.try_run(&format!("{command} -in rsa.pem -out out.pem -passout file:pass")) {
            let flaw = AwsLc.brought_key(&own.secret("out.pem"), Some(&pass)).unwrap_err();
            assert!(flaw.help.contains("openssl pkcs8 -topk8"), "{command}: {flaw:?}");
        }
    }
}

#[tokio::test]
async fn everything_brought_is_checked_against_the_table_and_distributed_as_it_is() {
    let own = Own::new();
    let mut cluster = provided(&cluster());
    let missing = render(&World::new(), &uploaded(&own), &cluster, Timestamp::now()).await.unwrap_err();
    assert_eq!(missing.len(), 3, "{missing:?}");
    for authority in ["ca", "etcd-ca", "front-proxy-ca"] {
        own.root(authority, &format!("/CN=Example {authority}"));
    }
    // The names of all missing files at once.
    let missing = render(&World::new(), &uploaded(&own), &cluster, Timestamp::now()).await.unwrap_err();
    let leaves: Vec<_> = policy::assets(&cluster)
        .into_iter()
        .filter(|asset| asset.origin == Origin::Provided && !asset.name.ends_with("ca"))
        .collect();
    assert_eq!(missing.len(), leaves.len(), "{missing:#?}");
    assert_eq!(leaves.len(), 15);
    for leaf in &leaves {
        own.leaf(leaf);
        own.lock(&leaf.name, PASSPHRASE);
    }
    own.remove("ca-key.pem");
    let world = World::new();
    let made = accepted(&world, &uploaded(&own), &cluster).await;
    let controller = bundle(&world, &made, &Role::Controller).await;
    assert_eq!(controller["/etc/kubernetes/pki/apiserver.pem"], own.read("apiserver.pem"));
    assert!(
        !world.bucket.keys().iter().any(|key| key.contains("/pki/ca/") && key.ends_with(".sealed")),
        "no key of ca"
    );
    let keys: BTreeSet<_> = made
        .manifest
        .assets
        .values()
        .filter_map(|entry| Some(entry.certificate.as_ref()?.spki_sha256.clone()))
        .collect();
    assert_eq!(keys.len(), 19);
    assert_eq!(made.manifest.assets["kubelet-ca"].origin, Origin::Generated);

    // P1 and P2: one import follows another, and only its recipients change. All earlier files may be deleted.
    forget_calls(&world);
    let again = accepted(&world, &uploaded(&own), &cluster).await;
    assert_eq!((again.digests.clone(), calls(&world)), (made.digests.clone(), (0, 0, 0)));
    let scheduler = leaves.iter().find(|leaf| leaf.name == "scheduler").unwrap();
    own.leaf(scheduler);
    own.lock("scheduler", PASSPHRASE);
    let only = own.only(&["scheduler.pem", "scheduler-key.pem"]);
    let second = accepted(&world, &uploaded(&only), &cluster).await;
    assert_eq!(second.made, ["scheduler"]);
    assert_eq!(crate::flow::changed(&made, &second), ["controller"]);

    // A name that the table requires and the certificate lacks.
    cluster.kubernetes.extra_sans.push("new.example.com".to_owned());
    let found = render(&world, &uploaded(&own), &cluster, Timestamp::now()).await.unwrap_err();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("lacks the names new.example.com"), "{found:?}");
    cluster.kubernetes.extra_sans.clear();
    let wrong = |name: &str, file: &str| {
        let broken = own.copy();
        broken.rename(name, file);
        broken
    };
    for (name, file, words) in [
        ("admin", "scheduler", "is for another than `system:kube-scheduler`"),
        ("scheduler", "node-manager", "has no organization, and organizations are groups with rights"),
        ("scheduler", "apiserver", "is not for serverAuth"),
        ("front-proxy-client", "scheduler", "was not signed by"),
    ] {
        let found = render(&World::new(), &uploaded(&wrong(name, file)), &cluster, Timestamp::now())
            .await
            .unwrap_err();
        assert!(
            found.iter().any(|one| one.contains(&format!("import/{file}.pem")) && one.contains(words)),
            "{found:#?}"
        );
    }
    let shared = own.copy();
    shared.same_key("etcd-peer-0", "etcd-server-0");
    let found = render(&World::new(), &uploaded(&shared), &cluster, Timestamp::now()).await.unwrap_err();
    assert!(
        found
            .iter()
            .any(|one| one.contains("etcd-server-0.pem and etcd-peer-0.pem have the same private key")),
        "{found:#?}"
    );
    assert_eq!(cluster.certificates.authorities["ca"].source, OwnSource::Provided);
}
