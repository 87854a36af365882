//! Keys, requests and verification by OpenSSL instead of our own code.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A P-256 key and a certificate request with that subject, such as `/O=system:nodes/CN=system:node:x`.
pub(crate) fn request(dir: &Path, name: &str, subject: &str, names: Option<&str>) -> (PathBuf, String) {
    std::fs::create_dir_all(dir).unwrap();
    let (key, request) = (dir.join(format!("{name}-key.pem")), dir.join(format!("{name}.csr")));
    let mut command = Command::new("openssl");
    command.args([
        "req",
        "-new",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-subj",
        subject,
    ]);
    if let Some(names) = names {
        command.args(["-addext", &format!("subjectAltName={names}")]);
    }
    let output = command.arg("-keyout").arg(&key).arg("-out").arg(&request).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (key, std::fs::read_to_string(request).unwrap())
}

/// Whether that authority issued a certificate for the purpose `sslclient` or `sslserver`.
pub(crate) fn verifies(authority: &Path, certificate: &Path, purpose: &str) -> bool {
    let mut command = Command::new("openssl");
    command.args(["verify", "-x509_strict", "-purpose", purpose, "-CAfile"]).arg(authority).arg(certificate);
    command.output().unwrap().status.success()
}

/// The subject, as OpenSSL writes it.
pub(crate) fn subject(certificate: &Path) -> String {
    let mut command = Command::new("openssl");
    command.args(["x509", "-noout", "-subject", "-nameopt", "RFC2253", "-in"]).arg(certificate);
    String::from_utf8(command.output().unwrap().stdout).unwrap().trim().to_owned()
}
