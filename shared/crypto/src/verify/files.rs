//! Sorts the files into certificates, keys and others, each with the name that connects a certificate with its key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use slipway_core::digest::sha256_hex;
use slipway_core::page::clean;
use slipway_ports::Secret;
use zeroize::Zeroizing;

use super::facts::Facts;
use super::{Finding, Severity};
use crate::{armor, keys};

/// A file, as the caller found it.
#[derive(Debug)]
pub struct File {
    /// Its path below the folder that was asked for, with `/`.
    pub path: String,
    /// The content.
    pub found: FileContent,
    /// Its permissions, as `chmod` writes them.
    pub mode: u32,
    /// Whether it is a link. The file that it leads to is not a copy.
    pub link: bool,
}

/// The content of a [`File`].
#[derive(Debug)]
pub enum FileContent {
    /// The bytes, which may be a private key.
    Bytes(Secret),
    /// The reason why the file could not be read.
    Unreadable(String),
}

/// A certificate and its file.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The file.
    pub file: String,
    /// The number of the certificate in its file, from 1; 0 if the file has only one.
    pub place: usize,
    /// The path of the file without its ending: `etcd/server`. The key has the same name.
    pub name: String,
    /// The content.
    pub facts: Facts,
    pub(super) link: bool,
}

impl Certificate {
    /// For messages: the file, and the number in it.
    #[must_use]
    pub fn at(&self) -> String {
        if self.place == 0 {
            self.file.clone()
        } else {
            format!("{} (certificate {})", self.file, self.place)
        }
    }
}

/// A private or public key, and its file.
#[derive(Debug, Clone)]
pub struct KeyFile {
    /// The file.
    pub file: String,
    /// As [`Certificate::name`].
    pub name: String,
    /// SHA-256 of its SubjectPublicKeyInfo; `None` if the key is encrypted.
    pub spki_sha256: Option<String>,
    /// Whether it is the private half.
    pub private: bool,
    pub(super) link: bool,
}

/// A file without a certificate or key.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct OtherFile {
    /// The file.
    pub file: String,
    /// What the file seems to be.
    pub what: String,
    /// Whether that is certain, so that nobody has to look at the file.
    pub known: bool,
}

/// The content of all files together.
#[derive(Debug, Default)]
pub(super) struct Sorted {
    pub(super) certificates: Vec<Certificate>,
    pub(super) keys: Vec<KeyFile>,
    pub(super) others: Vec<OtherFile>,
    pub(super) findings: Vec<Finding>,
}

/// The endings of files that should contain certificates or keys.
const ENDINGS: [&str; 6] = [".pem", ".crt", ".cer", ".key", ".pub", ".der"];

/// The name that a certificate, its key and its public key share.
pub(super) fn name_of(path: &str) -> String {
    let mut name = path;
    while let Some(shorter) = ENDINGS.iter().find_map(|ending| name.strip_suffix(ending)) {
        name = shorter;
    }
    name.strip_suffix("-key").unwrap_or(name).to_owned()
}

impl Sorted {
    pub(super) fn take(&mut self, file: &File) {
        let path = clean(&file.path);
        let bytes = match &file.found {
            FileContent::Bytes(bytes) => bytes,
            FileContent::Unreadable(why) => {
                self.find(
                    &path,
                    "unreadable",
                    format!("it cannot be read: {why}"),
                    "look at what it should be",
                );
                return;
            }
        };
        let pem_expected = ENDINGS.iter().any(|ending| path.ends_with(ending));
        if bytes.expose().is_empty() {
            if pem_expected {
                self.find(&path, "empty", "it is empty", "bring the file back, or delete it");
            } else {
                self.other(path, "empty", false);
            }
            return;
        }
        let Ok(text) = std::str::from_utf8(bytes.expose()) else {
            self.binary(path, pem_expected, bytes.expose());
            return;
        };
        let blocks = blocks(text);
        let mut taken = FileSummary::default();
        let several = blocks.iter().filter(|block| block.label == "CERTIFICATE").count() > 1;
        for block in &blocks {
            self.block(file, &path, &name_of(&path), block, several, &mut taken);
        }
        if blocks.is_empty() {
            self.kubeconfig(file, &path, text, &mut taken);
        }
        let secret = taken.private || path.ends_with("local.key");
        if secret && file.mode & 0o077 != 0 {
            self.open_to_others(&path, file.mode);
        }
        if taken.anything {
            return;
        }
        match (pem_expected, known_file_kind(&path)) {
            (_, Some(what)) => self.other(path, what, true),
            (true, None) => {
                let problem = "it holds neither a certificate nor a key in PEM";
                self.find(&path, "damaged", problem, "bring the file back, or delete it");
            }
            (false, None) => self.other(path, "no certificate and no key", false),
        }
    }

    fn binary(&mut self, path: String, pem_expected: bool, bytes: &[u8]) {
        match Facts::read(bytes) {
            Ok(facts) => {
                let name = name_of(&path);
                self.certificates.push(Certificate { file: path, place: 0, name, facts, link: false });
            }
            Err(_) if pem_expected => {
                let problem = "it is neither PEM nor a certificate in DER";
                self.find(&path, "damaged", problem, "bring the file back, or delete it");
            }
            Err(_) => {
                let known = known_file_kind(&path);
                self.other(path, known.unwrap_or("binary, and no certificate"), known.is_some());
            }
        }
    }

    fn block(
        &mut self,
        file: &File,
        path: &str,
        name: &str,
        block: &Block<'_>,
        several: bool,
        taken: &mut FileSummary,
    ) {
        let damaged = |problem: String| format!("its block {} is damaged: {problem}", clean(block.label));
        match block.label {
            "CERTIFICATE" | "TRUSTED CERTIFICATE" | "X509 CERTIFICATE" => {
                taken.anything = true;
                taken.certificates += 1;
                match armor::decode(&[block.label], block.text).and_then(|der| Facts::read(&der)) {
                    Ok(facts) => self.certificates.push(Certificate {
                        file: path.to_owned(),
                        place: if several { taken.certificates } else { 0 },
                        name: name.to_owned(),
                        facts,
                        link: file.link,
                    }),
                    Err(problem) => self.find(
                        path,
                        "damaged",
                        damaged(problem),
                        "bring the file back from where it was made",
                    ),
                }
            }
            "ENCRYPTED PRIVATE KEY" => self.key(file, path, name, None, taken),
            "PRIVATE KEY" | "EC PRIVATE KEY" | "RSA PRIVATE KEY" => {
                if block.text.contains("Proc-Type: 4,ENCRYPTED") {
                    return self.key(file, path, name, None, taken);
                }
                let pem = Secret::new(block.text.as_bytes().to_vec());
                match keys::Key::from_pem(&pem) {
                    Ok(key) => self.key(file, path, name, Some(sha256_hex(&key.public_der())), taken),
                    Err(problem) => {
                        (taken.anything, taken.private) = (true, true);
                        self.find(
                            path,
                            "damaged",
                            problem,
                            "bring the key back, or issue the certificate anew",
                        );
                    }
                }
            }
            "PUBLIC KEY" => {
                taken.anything = true;
                match armor::decode(&["PUBLIC KEY"], block.text) {
                    Ok(der) => self.keys.push(KeyFile {
                        file: path.to_owned(),
                        name: name.to_owned(),
                        spki_sha256: Some(sha256_hex(&der)),
                        private: false,
                        link: file.link,
                    }),
                    Err(problem) => self.find(
                        path,
                        "damaged",
                        damaged(problem),
                        "write it anew from the private key: openssl pkey -pubout",
                    ),
                }
            }
            // `openssl ecparam -genkey` writes this block before the key.
            "EC PARAMETERS" => taken.anything = true,
            label => {
                taken.anything = true;
                self.other(path.to_owned(), &format!("a PEM block {}", clean(label)), false);
            }
        }
    }

    fn key(
        &mut self,
        file: &File,
        path: &str,
        name: &str,
        spki_sha256: Option<String>,
        taken: &mut FileSummary,
    ) {
        (taken.anything, taken.private) = (true, true);
        self.keys.push(KeyFile {
            file: path.to_owned(),
            name: name.to_owned(),
            spki_sha256,
            private: true,
            link: file.link,
        });
    }

    /// The certificates and keys in base64 in a kubeconfig. They are read line by line, because every tool writes one key of the mapping
    /// per line.
    fn kubeconfig(&mut self, file: &File, path: &str, text: &str, taken: &mut FileSummary) {
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            let part = match key.trim().trim_start_matches("- ").trim_matches('"') {
                "certificate-authority-data" => "certificate-authority",
                "client-certificate-data" | "client-key-data" => "client",
                _ => continue,
            };
            taken.anything = true;
            let name = format!("{}#{part}", name_of(path));
            let value = value.trim().trim_end_matches(',').trim_matches(['"', '\'']);
            let decoded = STANDARD.decode(value).map(Zeroizing::new);
            let pem = decoded.as_ref().ok().and_then(|bytes| std::str::from_utf8(bytes).ok());
            let inside = pem.map(blocks).unwrap_or_default();
            if inside.is_empty() {
                let problem = format!("its {} holds no PEM in base64", key.trim());
                self.find(path, "damaged", problem, "write the kubeconfig anew");
            }
            for block in &inside {
                self.block(file, path, &name, block, false, taken);
            }
        }
    }

    fn open_to_others(&mut self, path: &str, mode: u32) {
        let (who, severity) = match mode & 0o007 {
            0 => ("the file's group", Severity::Warning),
            _ => ("everybody on this machine", Severity::Error),
        };
        let message = format!("a private key that {who} may read or change (mode {:03o})", mode & 0o777);
        let help = "take the permission away, chmod 600; if others had it, issue the key anew".to_owned();
        self.findings.push(Finding { severity, ..Finding::new(path, "permissions", message, help) });
    }

    fn find(&mut self, path: &str, code: &'static str, message: impl Into<String>, help: &str) {
        self.findings.push(Finding::new(path, code, message.into(), help.to_owned()));
    }

    fn other(&mut self, file: String, what: &str, known: bool) {
        self.others.push(OtherFile { file, what: what.to_owned(), known });
    }
}

/// The content of one file.
#[derive(Default)]
struct FileSummary {
    anything: bool,
    private: bool,
    certificates: usize,
}

struct Block<'t> {
    label: &'t str,
    /// From `-----BEGIN` to the end of the `-----END` line, or of the text.
    text: &'t str,
}

/// The PEM blocks of a text; text between them is ignored.
fn blocks(text: &str) -> Vec<Block<'_>> {
    const BEGIN: &str = "-----BEGIN ";
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(BEGIN) {
        rest = &rest[start..];
        let Some(label) = rest[BEGIN.len()..].split_once("-----").map(|(label, _)| label) else { break };
        if label.is_empty() || label.len() > 64 || label.contains(char::is_control) {
            rest = &rest[BEGIN.len()..];
            continue;
        }
        let end = format!("-----END {label}-----");
        let next = rest[BEGIN.len()..].find(BEGIN).map_or(rest.len(), |next| next + BEGIN.len());
        let length = rest[..next].find(&end).map_or(next, |at| at + end.len());
        found.push(Block { label, text: &rest[..length] });
        rest = &rest[length..];
    }
    found
}

/// Whether a file has the name of a sealed file of Slipway.
pub(super) fn sealed(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.ends_with(".sealed") || name.starts_with("credentials-")
}

/// Known files without certificates that are often beside certificates, by name.
fn known_file_kind(path: &str) -> Option<&'static str> {
    let name = path.rsplit('/').next().unwrap_or(path);
    if sealed(path) {
        return Some("sealed: opened by whoever holds its KMS key or local.key alone");
    }
    if name.ends_with(".enc") {
        return Some("encrypted with KMS: not looked into");
    }
    if name.ends_with(".fingerprint") {
        return Some("kube-aws' cache");
    }
    match name {
        "tokens.csv" | "bootstrap-token" | "kubelet-tls-bootstrap-token" => Some("tokens: no certificate"),
        "bootstrap-key" => Some("the key of the nodes' bootstrap tokens: no certificate"),
        "encryption-config.yaml" => Some("keys of encryption at rest: no certificate"),
        "local.key" => Some("the key that opens what is sealed here"),
        "manifest.json" => Some("the inventory"),
        ".gitignore" => Some("git's"),
        "kubelet.conf" | "bootstrap-kubelet.conf" => Some("a kubeconfig that refers to files"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_its_key_and_its_public_key_have_one_name() {
        for (paths, name) in [
            (&["ca.pem", "ca-key.pem", "ca.crt", "ca.key"][..], "ca"),
            (&["service-account.pub.pem", "service-account-key.pem"], "service-account"),
            (&["etcd/server.crt", "etcd/server.key"], "etcd/server"),
            (&["sa.key", "sa.pub"], "sa"),
        ] {
            for path in paths {
                assert_eq!(name_of(path), name, "{path}");
            }
        }
    }

    #[test]
    fn blocks_are_found_among_what_people_wrote() {
        let text = "Bag Attributes\n-----BEGIN A-----\nx\n-----END A-----\nwords\n-----BEGIN B-----\ny\n-----BEGIN C-----\nz\n-----END C-----";
        let labels: Vec<_> = blocks(text).into_iter().map(|block| (block.label, block.text.len())).collect();
        assert_eq!(labels, [("A", 35), ("B", 20), ("C", 35)]);
        for text in [
            "",
            "-----BEGIN ",
            "-----BEGIN A",
            "-----BEGIN A----",
            "-----BEGIN -----",
            "-----BEGIN -----BEGIN -----",
        ] {
            assert!(blocks(text).len() < 2, "{text}");
        }
    }
}
