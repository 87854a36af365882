//! Authorities that somebody brings, from `import/` beside the spec.

use std::os::unix::fs::PermissionsExt as _;

use slipway_credentials::{Origin, policy};
use slipway_crypto::testing::Own;

use super::apply::NOWHERE;
use super::*;

const EXAMPLE: &str = include_str!("../../../examples/own-ca/cluster.yaml");
const PASSPHRASE: &str = "correct horse";

/// The example with everything that it says is brought, keys under a passphrase.
fn place() -> (Place, Own) {
    let (place, own) = (Place::new(), Own::new());
    place.write("cluster.yaml", EXAMPLE);
    let cluster = slipway_spec::parse(EXAMPLE.as_bytes(), None).unwrap().cluster;
    own.root("root", "/O=Example/CN=Example Root");
    own.below(
        "ca",
        "root",
        "/O=Example/CN=Example Kubernetes",
        "basicConstraints=critical,CA:TRUE,pathlen:0\nkeyUsage=critical,keyCertSign,cRLSign",
    );
    own.write("ca.pem", &[own.read("ca.pem"), own.read("root.pem")].concat());
    own.lock("ca", PASSPHRASE);
    own.root("etcd-ca", "/O=Example/CN=Example etcd");
    for asset in policy::assets(&cluster) {
        if asset.origin == Origin::Provided && asset.name != "etcd-ca" {
            own.leaf(&asset);
            own.lock(&asset.name, PASSPHRASE);
        }
    }
    for (name, bytes) in own.files() {
        if !name.starts_with("root") && name != "etcd-ca-key.pem" {
            place.write(&format!("import/{name}"), bytes);
            let path = place.path(&format!("import/{name}"));
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
    }
    (place, own)
}

/// The environment with the passphrases.
const KNOWN: [(&str, &str); 2] =
    [("SLIPWAY_CA_KEY_PASSPHRASE", PASSPHRASE), ("SLIPWAY_ETCD_CA_KEY_PASSPHRASE", PASSPHRASE)];

#[test]
fn the_example_is_rendered_under_its_own_authorities_and_needs_the_files_once() {
    let (place, _own) = place();
    let run = place.run_in("render cluster.yaml --out rendered", &KNOWN);
    assert_eq!(run.code, 0, "{}", run.output());
    let manifest: serde_json::Value =
        serde_json::from_str(&place.read("rendered/credentials/pki/manifest.json")).unwrap();
    let origin = |asset: &str| manifest["assets"][asset]["origin"].as_str().unwrap_or("generated").to_owned();
    assert_eq!(
        ["ca", "etcd-ca", "etcd-peer-0", "apiserver"].map(origin),
        ["imported", "provided", "provided", "generated"]
    );
    // Its own verifier finds nothing wrong with intermediates, chains and an authority without a key.
    let run = place.run("certs verify rendered");
    assert!(run.code == 0 && run.stdout.contains("cluster.yaml"), "{}", run.output());
    assert!(!place.run("certs show rendered").stdout.contains("nobody any more"));
    // P9: nothing that was written shows a passphrase, or a key in the form that it was brought in or in ours.
    for (path, (bytes, _)) in place.files() {
        if !path.starts_with("import") {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            assert!(!text.contains("PRIVATE KEY-----") && !text.contains(PASSPHRASE), "{}", path.display());
        }
    }
    let run = place.run("certs verify rendered");
    assert_eq!(run.code, 0, "{}", run.output());
    // P1: again, and when the files are gone, and without a passphrase.
    let run = place.run("render cluster.yaml --out rendered");
    assert_eq!(run.code, 0, "{}", run.output());
    assert!(run.stdout.contains("nothing changed"), "{}", run.output());
    std::fs::remove_dir_all(place.path("import")).unwrap();
    let run = place.run("render cluster.yaml --out rendered");
    assert!(run.code == 0 && run.stdout.contains("nothing changed"), "{}", run.output());
    // Another authority is a rotation; so is none.
    place.write(
        "cluster.yaml",
        EXAMPLE
            .replace("source: imported\n      #", "source: generated\n      #")
            .replace("      passphraseParameter: /slipway/own-ca/ca-passphrase\n", ""),
    );
    let run = place.run("render cluster.yaml --out rendered");
    assert_eq!(run.code, 1, "{}", run.output());
    assert!(run.output().contains("it is imported") && run.output().contains("rotation"), "{}", run.output());
}

#[test]
fn what_is_amiss_with_what_is_brought_is_told_by_validate_and_render_alike() {
    let (place, own) = place();
    assert_eq!(place.run("validate cluster.yaml").code, 0);
    // Nobody is asked where there is no terminal.
    let run = place.run("render cluster.yaml --out rendered");
    assert_eq!(run.code, 1, "{}", run.output());
    assert!(run.output().contains("SLIPWAY_CA_KEY_PASSPHRASE is not set"), "{}", run.output());
    assert!(!place.path("rendered/credentials/pki").exists(), "something was made");

    // A key in plain is taken on one's own machine, if it is one's own.
    let key = "import/ca-key.pem";
    place.write(key, own.read("ca-plain-key.pem"));
    std::fs::set_permissions(place.path(key), std::fs::Permissions::from_mode(0o644)).unwrap();
    for verb in ["validate cluster.yaml", "render cluster.yaml --out rendered"] {
        let run = place.run_in(verb, &KNOWN);
        assert_eq!(run.code, 1, "{}", run.output());
        assert!(run.output().contains("may be read by others (mode 644)"), "{}", run.output());
    }
    std::fs::set_permissions(place.path(key), std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(place.run_in("validate cluster.yaml", &KNOWN).code, 0);

    place.write("import/ca.pem", own.first("root.pem"));
    place.write("import/etcd-peer-0.pem", place.read("import/etcd-healthcheck-client.pem"));
    for verb in ["validate cluster.yaml", "render cluster.yaml --out rendered"] {
        let run = place.run_in(verb, &KNOWN);
        assert_eq!(run.code, 1, "{}", run.output());
        for piece in
            ["this is not the key of the certificate", "import/etcd-peer-0.pem", "is not for serverAuth"]
        {
            assert!(run.output().contains(piece), "{verb}: {piece}\n{}", run.output());
        }
    }
    let run = place.run_in("validate cluster.yaml", &[("SLIPWAY_CA_KEY_PASSPHRASE", "wrong")]);
    assert!(!run.output().contains("wrong"), "{}", run.output());
}

#[test]
fn p9_apply_sends_no_private_key_in_plain_to_the_spec_bucket() {
    let (place, own) = place();
    place.write("import/ca-key.pem", own.read("ca-plain-key.pem"));
    let path = place.path("import/ca-key.pem");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let accepted = place.run_in("validate cluster.yaml", &KNOWN);
    assert_eq!(accepted.code, 0, "on a person's machine it may lie so: {}", accepted.output());
    let run = place.run_in("apply cluster.yaml --cluster own-ca", &[&KNOWN[..], &NOWHERE[..]].concat());
    assert_eq!(run.code, 1, "{}", run.output());
    assert!(run.stderr.contains("ca-key.pem is not encrypted"), "{}", run.output());
    assert!(run.stderr.contains("openssl pkcs8 -topk8"), "{}", run.output());
}
