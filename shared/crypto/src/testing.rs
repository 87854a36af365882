//! A user's own PKI, which `openssl` makes in a temporary directory.
#![allow(
    clippy::new_without_default,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    missing_docs,
    reason = "tests"
)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use slipway_core::cluster::{Cluster, OwnAuthority, OwnSource};
use slipway_credentials::{Asset, manifest};
use slipway_ports::Secret;
use tempfile::TempDir;

/// `cluster` with the authority `name` imported.
pub fn brought(cluster: &Cluster, name: &str) -> Cluster {
    with(cluster, name, OwnSource::Imported)
}

/// `cluster` with everything provided that can be provided without the authority's key.
pub fn provided(cluster: &Cluster) -> Cluster {
    ["ca", "etcd-ca", "front-proxy-ca"]
        .iter()
        .fold(cluster.clone(), |cluster, name| with(&cluster, name, OwnSource::Provided))
}

fn with(cluster: &Cluster, name: &str, source: OwnSource) -> Cluster {
    let mut cluster = cluster.clone();
    let own = OwnAuthority {
        source,
        certificate: format!("{name}.pem"),
        key: format!("{name}-key.pem"),
        passphrase_parameter: Some("/slipway/prod/ca-passphrase".to_owned()),
    };
    cluster.certificates.authorities.insert(name.to_owned(), own);
    cluster
}

/// A directory with files named as in `import/`. Unencrypted keys are beside them as `NAME-plain-key.pem`.
pub struct Own {
    dir: TempDir,
}

impl Own {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn try_run(&self, arguments: &str) -> bool {
        self.output(&arguments.split(' ').collect::<Vec<_>>()).0
    }

    pub fn run(&self, arguments: &str) {
        self.words(&arguments.split(' ').collect::<Vec<_>>());
    }

    fn output(&self, words: &[&str]) -> (bool, String) {
        let output = Command::new("openssl")
            .args(words)
            .current_dir(self.dir.path())
            .output()
            .expect("openssl is installed");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn words(&self, words: &[&str]) {
        let (success, output) = self.output(words);
        assert!(success, "openssl {words:?}: {output}");
    }

    /// A self-signed authority, valid for 4000 days.
    pub fn root(&self, name: &str, subject: &str) {
        let usage = "keyUsage=critical,keyCertSign,cRLSign";
        self.root_with(
            name,
            subject,
            &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-addext", usage],
        );
    }

    pub fn root_with(&self, name: &str, subject: &str, more: &[&str]) {
        let (key, file) = (format!("{name}-plain-key.pem"), format!("{name}.pem"));
        let fixed =
            ["req", "-x509", "-nodes", "-days", "4000", "-subj", subject, "-keyout", &key, "-out", &file];
        self.words(&[&fixed[..], more].concat());
        std::fs::copy(self.path(&file), self.path(&format!("{name}-plain.pem"))).unwrap();
        std::fs::copy(self.path(&key), self.path(&format!("{name}-key.pem"))).unwrap();
    }

    /// The same authority, signed again for that many days.
    pub fn short(&self, name: &str, days: u32) {
        let (key, file) = (format!("{name}-plain-key.pem"), format!("{name}.pem"));
        self.words(&[
            "req",
            "-x509",
            "-key",
            &key,
            "-days",
            &days.to_string(),
            "-subj",
            "/CN=CA",
            "-out",
            &file,
        ]);
    }

    /// A certificate that `above` signs.
    pub fn below(&self, name: &str, above: &str, subject: &str, extension: &str) {
        let (key, request, file) =
            (format!("{name}-plain-key.pem"), format!("{name}.csr"), format!("{name}.pem"));
        self.words(&[
            "req",
            "-new",
            "-nodes",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-subj",
            subject,
            "-keyout",
            &key,
            "-out",
            &request,
        ]);
        let identifiers = "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid";
        std::fs::write(self.path("extensions"), format!("{extension}\n{identifiers}\n")).unwrap();
        let above = above.trim_end_matches("-plain");
        let (certificate, signer) = (format!("{above}.pem"), format!("{above}-plain-key.pem"));
        self.words(&[
            "x509",
            "-req",
            "-in",
            &request,
            "-CA",
            &certificate,
            "-CAkey",
            &signer,
            "-CAcreateserial",
            "-days",
            "3900",
            "-extfile",
            "extensions",
            "-out",
            &file,
        ]);
        std::fs::copy(self.path(&key), self.path(&format!("{name}-key.pem"))).unwrap();
    }

    /// A leaf that the user's own authority issues according to the profile.
    pub fn leaf(&self, asset: &Asset) {
        let profile = manifest::profile(asset).unwrap();
        let mut subject = String::new();
        for organization in &profile.organizations {
            subject.push_str(&format!("/O={organization}"));
        }
        subject.push_str(&format!("/CN={}", profile.common_name));
        let mut purposes = Vec::new();
        purposes.extend(profile.server.then_some("serverAuth"));
        purposes.extend(profile.client.then_some("clientAuth"));
        let mut extensions = format!(
            "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\nextendedKeyUsage={}\n",
            purposes.join(",")
        );
        if !profile.sans.is_empty() {
            let kind = |name: &String| if name.parse::<std::net::IpAddr>().is_ok() { "IP" } else { "DNS" };
            let names: Vec<String> =
                profile.sans.iter().map(|name| format!("{}:{name}", kind(name))).collect();
            extensions.push_str(&format!("subjectAltName={}\n", names.join(",")));
        }
        self.below(&asset.name, profile.issuer.as_ref().unwrap(), &subject, &extensions);
    }

    /// Encrypts the key with a passphrase.
    pub fn lock(&self, name: &str, passphrase: &str) {
        self.write("pass", passphrase);
        self.run(&format!(
            "pkcs8 -topk8 -v2 aes-256-cbc -in {name}-plain-key.pem -out {name}-key.pem -passout file:pass"
        ));
    }

    /// Certificate and key of `name` become those of `other`.
    pub fn rename(&self, name: &str, other: &str) {
        for suffix in [".pem", "-plain-key.pem", "-key.pem"] {
            let from = self.path(&format!("{name}{suffix}"));
            if from.exists() {
                std::fs::copy(from, self.path(&format!("{other}{suffix}"))).unwrap();
            }
        }
    }

    /// Certificate and key of `name` become those of `other`, which has the same profile.
    pub fn same_key(&self, name: &str, other: &str) {
        self.rename(other, name);
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub fn remove(&self, name: &str) {
        std::fs::remove_file(self.path(name)).unwrap();
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    pub fn read(&self, name: &str) -> String {
        String::from_utf8(self.bytes(name)).unwrap()
    }

    pub fn secret(&self, name: &str) -> Secret {
        Secret::new(self.bytes(name))
    }

    /// The first certificate of a file.
    pub fn first(&self, name: &str) -> String {
        self.read(name).split_inclusive("-----END CERTIFICATE-----\n").next().unwrap().to_owned()
    }

    /// The files to upload: without unencrypted keys under other names, and without openssl's working files.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        for entry in std::fs::read_dir(self.dir.path()).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".pem") && !name.contains("-plain") {
                files.insert(name.clone(), self.bytes(&name));
            }
        }
        files
    }

    pub fn copy(&self) -> Self {
        let names: Vec<String> = std::fs::read_dir(self.dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        self.only(&names.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Another directory with only these files.
    pub fn only(&self, names: &[&str]) -> Self {
        let other = Self::new();
        for name in names {
            std::fs::copy(self.path(name), other.path(name)).unwrap();
        }
        other
    }

    /// `openssl verify` of the first certificate of `served` under `trusted`.
    pub fn verify(&self, trusted: &str, served: &str, more: &[&str]) -> Result<(), String> {
        let fixed = ["verify", "-x509_strict", "-CAfile", trusted];
        let (success, output) = self.output(&[&fixed[..], more, &[served]].concat());
        if success { Ok(()) } else { Err(output) }
    }
}
