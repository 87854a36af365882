//! Two independent judges check every certificate of every layout, key type and example: `openssl verify -x509_strict` and GnuTLS'
//! `certtool`, each for the purpose of the certificate.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use jiff::Timestamp;
use slipway_core::cluster::Cluster;
use slipway_credentials::{manifest, policy};
use slipway_ports::NewAsset;

use crate::common::{ALGORITHMS, certify_all, cluster, issue_all_at, with_members};

/// A cluster and its certificates, each in a file with its name.
struct Layout {
    name: String,
    cluster: Cluster,
    dir: tempfile::TempDir,
}

impl Layout {
    fn new(name: String, cluster: Cluster, made: BTreeMap<String, NewAsset>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, made) in made {
            if let Some(pem) = made.public.filter(|pem| pem.contains("CERTIFICATE")) {
                std::fs::write(dir.path().join(format!("{name}.pem")), pem).unwrap();
            }
        }
        Self { name, cluster, dir }
    }

    fn issued(name: &str, cluster: Cluster) -> Self {
        let made = issue_all_at(&cluster, Timestamp::now());
        Self::new(name.to_owned(), cluster, made)
    }

    /// The leaves by authority and purpose (`true`: server).
    fn leaves(&self) -> BTreeMap<(String, bool), Vec<String>> {
        let mut leaves: BTreeMap<(String, bool), Vec<String>> = BTreeMap::new();
        for asset in policy::assets(&self.cluster) {
            let Some(profile) = manifest::profile(&asset) else { continue };
            let Some(issuer) = &profile.issuer else { continue };
            for (server, meant) in [(true, profile.server), (false, profile.client)] {
                if meant {
                    leaves.entry((issuer.clone(), server)).or_default().push(format!("{}.pem", asset.name));
                }
            }
        }
        assert!(leaves.values().flatten().count() > 12, "{}: the leaves are gone", self.name);
        leaves
    }
}

/// One, three and five members of etcd, and then every key type.
fn layouts() -> Vec<Layout> {
    let mut layouts: Vec<Layout> = [1, 3, 5]
        .map(|members| Layout::issued(&format!("{members} members of etcd"), with_members(members)))
        .into();
    for algorithm in ALGORITHMS {
        let mut cluster = cluster();
        cluster.certificates.key_algorithm = algorithm;
        let made = certify_all(&cluster, Timestamp::now());
        layouts.push(Layout::new(format!("{algorithm:?}"), cluster, made));
    }
    layouts
}

fn examples() -> Vec<Layout> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let specs = files.map(|path| if path.is_dir() { path.join("cluster.yaml") } else { path });
    let layouts = specs.map(|path| {
        let mut cluster = slipway_spec::parse(&std::fs::read(&path).unwrap(), None).unwrap().cluster;
        // The examples differ in names and members; key types are tested elsewhere.
        cluster.certificates.key_algorithm = slipway_core::cluster::KeyAlgorithm::EcdsaP256;
        Layout::issued(&path.display().to_string(), cluster)
    });
    let layouts: Vec<Layout> = layouts.collect();
    assert!(layouts.len() > 20, "the examples are gone");
    layouts
}

/// Whether all `leaves` verify, and the output.
fn openssl(layout: &Layout, authority: &str, server: bool, leaves: &[String]) -> (bool, String) {
    let purpose = if server { "sslserver" } else { "sslclient" };
    let mut command = Command::new("openssl");
    command.args(["verify", "-x509_strict", "-check_ss_sig", "-purpose", purpose, "-CAfile"]);
    run(command.arg(format!("{authority}.pem")).args(leaves).current_dir(layout.dir.path()))
}

fn run(command: &mut Command) -> (bool, String) {
    let output = command.output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

#[test]
fn openssl_verifies_every_certificate_of_every_layout_and_example_strictly_by_its_purpose() {
    for layout in layouts().into_iter().chain(examples()) {
        for ((authority, server), leaves) in layout.leaves() {
            let (fine, text) = openssl(&layout, &authority, server, &leaves);
            assert!(
                fine && text.lines().filter(|line| line.ends_with(": OK")).count() == leaves.len(),
                "{}: {text}",
                layout.name
            );
            let stranger = if authority == "ca" { "etcd-ca" } else { "ca" };
            let (fine, text) = openssl(&layout, stranger, server, &leaves);
            assert!(
                !fine && !text.contains(": OK"),
                "{}: {stranger} did not sign these: {text}",
                layout.name
            );
        }
    }
}

/// GnuTLS' tool, downloaded without root if necessary. `None` if it is not available; the test then says so loudly.
fn certtool() -> Option<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scripts/debian_tool.sh");
    let output =
        Command::new(script).args(["gnutls-bin", "certtool"]).stderr(Stdio::inherit()).output().unwrap();
    match output.status.code() {
        Some(0) => Some(PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())),
        Some(3) => None,
        _ => panic!("tests/scripts/debian_tool.sh: {}", output.status),
    }
}

#[test]
fn gnutls_verifies_every_certificate_of_every_layout_by_its_purpose_and_no_other() {
    let Some(certtool) = certtool() else { return };
    let verify = |layout: &Layout, authority: &str, server: bool, leaf: &str| {
        // serverAuth and clientAuth, RFC 5280, 4.2.1.12.
        let purpose = if server { "1.3.6.1.5.5.7.3.1" } else { "1.3.6.1.5.5.7.3.2" };
        let mut command = Command::new(&certtool);
        command.args(["--verify", "--verify-profile", "medium", "--verify-purpose", purpose]);
        command.args(["--load-ca-certificate", &format!("{authority}.pem"), "--infile", leaf]);
        run(command.current_dir(layout.dir.path()))
    };
    for layout in layouts() {
        for ((authority, server), leaves) in layout.leaves() {
            for leaf in &leaves {
                let (fine, text) = verify(&layout, &authority, server, leaf);
                assert!(fine, "{}: {leaf}: {text}", layout.name);
            }
        }
    }
    let layout = Layout::issued("one", with_members(1));
    assert!(!verify(&layout, "etcd-ca", true, "apiserver.pem").0, "another authority");
    assert!(!verify(&layout, "ca", true, "admin.pem").0, "a client as a server");
    assert!(!verify(&layout, "ca", false, "apiserver.pem").0, "a server as a client");
}
