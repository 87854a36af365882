//! pkilint checks every certificate of a cluster against RFC 5280.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use slipway_ports::NewAsset;

/// Runs the linter on `files`. Returns whether they are clean, and the output.
fn lint(files: &[impl AsRef<std::ffi::OsStr>]) -> (bool, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let made = Command::new(root.join("tests/scripts/lint-venv.sh")).status().unwrap();
    assert!(made.success(), "tests/scripts/lint-venv.sh: {made}");
    let mut command = Command::new(root.join(".tools/lint/bin/python"));
    let output = command.arg(root.join("tests/scripts/lint_certificates.py")).args(files).output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

/// Every key type, and every number of etcd members.
#[test]
fn every_certificate_of_every_layout_is_lint_clean_and_the_linter_sees_a_bad_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = vec![];
    let mut layouts: Vec<(String, BTreeMap<String, NewAsset>)> = Vec::new();
    for members in [1, 3, 5] {
        layouts.push((format!("{members}"), crate::common::issue_all(&crate::common::with_members(members))));
    }
    let mut cluster = crate::common::cluster();
    for algorithm in crate::common::ALGORITHMS {
        cluster.certificates.key_algorithm = algorithm;
        layouts.push((format!("{algorithm:?}"), crate::common::certify_all(&cluster, crate::common::now())));
    }
    for (layout, made) in layouts {
        for (name, made) in made {
            let Some(pem) = made.public.filter(|pem| pem.contains("CERTIFICATE")) else { continue };
            files.push(dir.path().join(format!("{name}-{layout}.pem")));
            std::fs::write(files.last().unwrap(), pem).unwrap();
        }
    }
    assert_eq!(files.len(), 15 + 19 + 23 + 5 * 19);
    let (clean, text) = lint(&files);
    assert!(clean, "{text}");

    // An ECDSA key with the usage to encipher, and a serial number of 0.
    let bad = dir.path().join("bad.pem");
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-keyout",
            "bad-key.pem",
        ])
        .args([
            "-out",
            "bad.pem",
            "-subj",
            "/CN=bad",
            "-set_serial",
            "0",
            "-addext",
            "keyUsage=keyEncipherment",
        ])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let (clean, text) = lint(&[bad]);
    assert!(
        !clean && text.contains("serial_number_out_of_range") && text.contains("prohibited_for_ec"),
        "{text}"
    );
}
