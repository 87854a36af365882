//! The findings of `verify`: each test breaks one thing. No content of a file makes it fail.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::LazyLock;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use slipway_core::cluster::{Cluster, KeyAlgorithm};
use slipway_core::role::Role;
use slipway_credentials::{CertificateProfile, policy};
use slipway_crypto::AwsLc;
use slipway_crypto::verify::{File, FileContent, Layout, Survey, read_files};
use slipway_ports::{Crypto as _, NewAsset, Secret};

use crate::common::{cluster, now, profile, signer};

static ALL: LazyLock<BTreeMap<String, NewAsset>> = LazyLock::new(|| crate::common::issue_all(&cluster()));

/// The files of a folder, by path.
type Files = BTreeMap<String, Vec<u8>>;

/// A node's folder, as its agent writes it.
fn node(cluster: &Cluster, role: &Role) -> Files {
    let file = |file: policy::BundleFile| {
        let text: String = file
            .sources
            .iter()
            .map(|source| {
                let made = &ALL[&source.asset];
                let private = || String::from_utf8(made.private.expose().to_vec()).unwrap();
                let public = || made.public.clone().unwrap();
                source.part.content(role, &if source.part.is_secret() { private() } else { public() })
            })
            .collect();
        (file.path.rsplit('/').next().unwrap().to_owned(), text.into_bytes())
    };
    policy::bundle(cluster, role).into_iter().map(file).collect()
}

fn controller() -> Files {
    node(&cluster(), &Role::Controller)
}

fn put(files: &mut Files, name: &str, made: &NewAsset) {
    files.insert(format!("{name}.pem"), made.public.clone().unwrap().into_bytes());
    files.insert(format!("{name}-key.pem"), made.private.expose().to_vec());
}

fn survey_of(files: &Files) -> Survey {
    let files: Vec<File> = files
        .iter()
        .map(|(path, bytes)| File {
            path: path.clone(),
            found: FileContent::Bytes(Secret::new(bytes.clone())),
            mode: 0o600,
            link: false,
        })
        .collect();
    read_files(&files)
}

/// `code file` of each finding.
fn found(files: &Files, cluster: Option<&Cluster>, at: Timestamp) -> Vec<String> {
    let findings = survey_of(files).verify(cluster, at, 30);
    findings.into_iter().map(|finding| format!("{} {}", finding.code, finding.file)).collect()
}

fn wrong(files: &Files) -> Vec<String> {
    found(files, Some(&cluster()), now())
}

/// A controller's folder with a different certificate of the API server.
fn apiserver(vary: impl Fn(&mut CertificateProfile)) -> Files {
    let mut profile = profile(&cluster(), "apiserver");
    vary(&mut profile);
    let mut files = controller();
    put(&mut files, "apiserver", &AwsLc.issue(&profile, Some(&signer(&ALL["ca"])), now()).unwrap());
    files
}

#[test]
fn nothing_is_wrong_with_what_each_role_receives() {
    let cluster = cluster();
    for role in policy::roles(&cluster) {
        let files = node(&cluster, &role);
        if role == Role::Admin || matches!(role, Role::Pool(_)) {
            // Too few files to recognize the layout.
            assert_eq!(found(&files, Some(&cluster), now()), Vec::<String>::new(), "{role}");
            continue;
        }
        assert_eq!(survey_of(&files).layout, Layout::SlipwayNode, "{role}");
        assert_eq!(found(&files, Some(&cluster), now()), Vec::<String>::new(), "{role}");
        assert_eq!(found(&files, None, now()), Vec::<String>::new(), "{role} without a spec");
    }
}

#[test]
fn each_wrong_date_is_told() {
    let at =
        |days: i64| found(&controller(), Some(&cluster()), now() + SignedDuration::from_hours(24 * days));
    let leaves = |code: &str, found: &[String]| {
        assert!(!found.is_empty() && found.iter().all(|one| one.starts_with(code)), "{code}: {found:?}");
        found.len()
    };
    assert_eq!(leaves("expires-soon", &at(340)), 7);
    assert_eq!(leaves("expired", &at(366)), 7);
    assert_eq!(leaves("expired", &at(4000)), 13, "with the authorities, and the two in client-ca.pem");
    assert_eq!(leaves("not-yet-valid", &at(-10)), 13);
}

#[test]
fn each_wrong_name_is_told() {
    for vary in [
        |profile: &mut CertificateProfile| assert!(profile.sans.remove("kubernetes")),
        |profile: &mut CertificateProfile| assert!(profile.sans.insert("evil.example.com".to_owned())),
        |profile: &mut CertificateProfile| profile.sans.clear(),
        |profile: &mut CertificateProfile| profile.common_name = "someone".to_owned(),
        |profile: &mut CertificateProfile| profile.organizations.push("system:masters".to_owned()),
    ] {
        assert_eq!(wrong(&apiserver(vary)), ["name apiserver.pem"]);
    }
    // A member's certificate in another member's place has names that the spec gives to a member.
    let mut files = node(&cluster(), &Role::Etcd(0));
    put(&mut files, "server", &ALL["etcd-server-1"]);
    assert_eq!(wrong(&files), Vec::<String>::new(), "the owner of the folder is unknown");
}

#[test]
fn each_wrong_purpose_is_told() {
    let as_client = apiserver(|profile| (profile.server, profile.client) = (false, true));
    assert_eq!(wrong(&as_client), ["purpose apiserver.pem", "purpose apiserver.pem"]);
    assert_eq!(wrong(&apiserver(|profile| profile.client = true)), ["purpose apiserver.pem"]);
    let any = apiserver(|profile| profile.server = false);
    assert_eq!(
        wrong(&any),
        ["purpose apiserver.pem"],
        "without an extended usage it may be used for anything"
    );
    let mut files = controller();
    files.insert("apiserver.pem".to_owned(), files["ca.pem"].clone());
    assert!(wrong(&files).contains(&"purpose apiserver.pem".to_owned()), "an authority in a leaf's place");
    let mut files = controller();
    files.insert("ca.pem".to_owned(), files["apiserver.pem"].clone());
    assert!(wrong(&files).contains(&"purpose ca.pem".to_owned()), "a leaf in an authority's place");
}

#[test]
fn each_wrong_chain_is_told() {
    let issue = |issuer: &str| {
        AwsLc.issue(&profile(&cluster(), "apiserver"), Some(&signer(&ALL[issuer])), now()).unwrap()
    };
    let mut files = controller();
    put(&mut files, "apiserver", &issue("etcd-ca"));
    assert_eq!(wrong(&files), ["chain apiserver.pem"], "another authority's purpose");
    // An authority with the same name and another key: another generation.
    let other = crate::common::issue_all(&cluster());
    let mut files = controller();
    put(&mut files, "apiserver", &other["apiserver"]);
    assert_eq!(wrong(&files), ["chain apiserver.pem"]);
    let mut files = controller();
    files.remove("front-proxy-ca.pem");
    assert_eq!(wrong(&files), ["chain front-proxy-client.pem"], "its issuer is not here");
    // One bit of a signature.
    let mut files = controller();
    let pem = String::from_utf8(files["scheduler.pem"].clone()).unwrap();
    let end = pem.find("\n-----END").unwrap() - 6;
    let flipped = if &pem[end..=end] == "A" { "B" } else { "A" };
    files.insert(
        "scheduler.pem".to_owned(),
        format!("{}{flipped}{}", &pem[..end], &pem[end + 1..]).into_bytes(),
    );
    assert!(wrong(&files).iter().any(|one| one == "chain scheduler.pem" || one == "damaged scheduler.pem"));
}

#[test]
fn each_wrong_key_is_told() {
    let mut files = controller();
    files.insert("apiserver-key.pem".to_owned(), files["scheduler-key.pem"].clone());
    assert_eq!(wrong(&files), ["key-mismatch apiserver-key.pem", "twin scheduler.pem"]);
    let mut files = controller();
    files.remove("apiserver-key.pem");
    assert_eq!(wrong(&files), ["key-missing apiserver.pem"]);
    // Two names with the same key, as kube-aws made them.
    let mut files = controller();
    let twin = AwsLc.certify(
        &profile(&cluster(), "scheduler"),
        &ALL["apiserver"].private,
        Some(&signer(&ALL["ca"])),
        now(),
    );
    put(&mut files, "scheduler", &twin.unwrap());
    assert_eq!(wrong(&files), ["twin apiserver.pem"]);
    let twins = survey_of(&files).twins();
    assert_eq!((twins.len(), &twins[0].names), (1, &vec!["apiserver".to_owned(), "scheduler".to_owned()]));
    // The two halves of the pair that signs tokens.
    let mut files = controller();
    let other = AwsLc.make(&slipway_credentials::AssetKind::KeyPair(KeyAlgorithm::EcdsaP256)).unwrap();
    files.insert("service-account.pub.pem".to_owned(), other.public.unwrap().into_bytes());
    assert_eq!(wrong(&files), ["key-mismatch service-account-key.pem"]);
}

/// Certificates that only openssl makes, because we would refuse to issue them.
#[test]
fn what_we_would_never_issue_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let openssl = |args: &str| {
        let output =
            Command::new("openssl").args(args.split_whitespace()).current_dir(dir.path()).output().unwrap();
        assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let new = |name: &str, more: &str| {
        openssl(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {name}-key.pem -out {name}.pem -subj /CN={name} {more}"
        ));
    };
    let signed = |name: &str, by: &str, extension: &str, more: &str| {
        std::fs::write(dir.path().join("ext"), extension.replace(';', "\n")).unwrap();
        openssl(&format!(
            "req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {name}-key.pem -out csr -subj /CN={name}"
        ));
        openssl(&format!(
            "x509 -req -in csr -CA {by}.pem -CAkey {by}-key.pem -extfile ext -out {name}.pem {more}"
        ));
    };
    let authority = "basicConstraints=critical,CA:TRUE;keyUsage=critical,keyCertSign";
    new(
        "root",
        "-days 100 -addext basicConstraints=critical,CA:TRUE,pathlen:0 -addext keyUsage=critical,keyCertSign",
    );
    signed("middle", "root", authority, "-set_serial 7 -days 90");
    signed("below", "middle", "extendedKeyUsage=clientAuth", "-set_serial 1 -days 80");
    signed("longer", "root", "extendedKeyUsage=clientAuth", "-set_serial 8 -days 300");
    signed("same", "root", "extendedKeyUsage=clientAuth", "-set_serial 8 -days 50");
    signed("zero", "root", "extendedKeyUsage=clientAuth", "-set_serial 0 -days 50");
    signed("sha1", "root", "extendedKeyUsage=clientAuth", "-set_serial 9 -days 50 -sha1");
    signed(
        "forbidden",
        "root",
        "basicConstraints=critical,CA:TRUE;keyUsage=critical,cRLSign",
        "-set_serial 10 -days 50",
    );
    signed(
        "foreign",
        "root",
        "1.2.3.4=critical,ASN1:NULL;extendedKeyUsage=clientAuth",
        "-set_serial 11 -days 50",
    );
    signed("nameless", "root", "extendedKeyUsage=serverAuth", "-set_serial 12 -days 50");
    signed(
        "enciphers",
        "root",
        "keyUsage=keyEncipherment;extendedKeyUsage=clientAuth",
        "-set_serial 13 -days 50",
    );
    signed(
        "leaf",
        "root",
        "basicConstraints=CA:FALSE;extendedKeyUsage=clientAuth",
        "-set_serial 14 -days 50",
    );
    signed("byleaf", "leaf", "extendedKeyUsage=clientAuth", "-set_serial 15 -days 40");
    new("alone", "-days 50 -addext basicConstraints=critical,CA:FALSE");
    openssl("req -x509 -newkey rsa:1024 -nodes -keyout weak-key.pem -out weak.pem -subj /CN=weak -days 60");
    std::fs::remove_file(dir.path().join("weak-key.pem")).unwrap();
    openssl("ec -aes256 -passout pass:secret -in same-key.pem -out locked-key.pem");
    let mut files = Files::new();
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "pem") {
            files.insert(
                path.file_name().unwrap().to_string_lossy().into_owned(),
                std::fs::read(&path).unwrap(),
            );
        }
    }
    files.insert("same-key.pem".to_owned(), files["locked-key.pem"].clone());
    files.remove("locked-key.pem");
    let all = found(&files, None, Timestamp::now() + SignedDuration::from_mins(1));
    let expected = [
        "chain alone.pem",
        "chain byleaf.pem",
        "extension foreign.pem",
        "key-locked same-key.pem",
        "name nameless.pem",
        "outlives-issuer longer.pem",
        "path-length forbidden.pem",
        "path-length middle.pem",
        "purpose enciphers.pem",
        "purpose forbidden.pem",
        "serial same.pem",
        "serial zero.pem",
        "weak-key weak.pem",
        "weak-signature sha1.pem",
    ];
    let mut all = all;
    all.sort();
    assert_eq!(all, expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Truncated, duplicated and changed bytes: something is reported, nothing panics, and no report contains a key.
    #[test]
    fn whatever_becomes_of_the_files_it_is_told_in_peace(
        which in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        doubled in any::<bool>(),
    ) {
        let mut files = controller();
        let name = which.get(&files.keys().cloned().collect::<Vec<_>>()).clone();
        let bytes = files.get_mut(&name).unwrap();
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        if doubled {
            bytes.extend(bytes.clone());
        }
        let survey = survey_of(&files);
        let told = format!("{:?}", survey.verify(Some(&cluster()), now(), 30));
        for made in ALL.values() {
            let secret = std::str::from_utf8(made.private.expose()).unwrap();
            let line = secret.lines().nth(1).unwrap_or(secret);
            prop_assert!(!told.contains(line), "{name}");
        }
    }

    #[test]
    fn any_bytes_are_told_in_peace(bytes in prop::collection::vec(any::<u8>(), 0..2000), name in "[a-z]{1,8}(\\.pem|\\.crt|\\.key|\\.conf|)") {
        let files = Files::from([(name, bytes)]);
        let survey = survey_of(&files);
        prop_assert_eq!(survey.certificates.len(), 0);
        prop_assert!(!survey.findings.is_empty() || survey.others.len() == 1);
    }
}
