//! kube-aws' `credentials/`: the CA is copied for the import, everything else is issued anew, and each file is accounted for.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Serialize, Serializer};
use slipway_crypto::{Inspected, inspect};
use slipway_ports::Secret;

use crate::failure::CliError;

/// The largest file that is read. kube-aws' files are smaller.
const MOST_BYTES: u64 = 256 * 1024;

/// What to do with the key before it is uploaded.
const ABOUT_IMPORT: &str = "\
The old CA lies in import/ and is named in cluster.yaml (certificatesConfiguration.authorities.ca): the first rendering imports it,
so that whoever trusts the old CA trusts the new cluster. kube-aws signed everything with it; here it signs the API server and its
clients, and etcd, kubelets and the front proxy get authorities of their own.

`slipway render` takes import/ca-key.pem from your own machine as it is. The spec's bucket is not for keys in plain: there it is
refused. Before you upload it, encrypt it:

    openssl pkcs8 -topk8 -v2 aes-256-cbc -in import/ca-key.pem -out ca-key.enc && mv ca-key.enc import/ca-key.pem

and put the passphrase into the SSM SecureString that cluster.yaml names as passphraseParameter. Upload import/ before cluster.yaml;
once the cluster is rendered, import/ is not needed any more. Whoever holds the key is master of the old cluster and the new one. If
the new cluster needs no old CA, take certificatesConfiguration out of cluster.yaml and delete import/ before the first rendering:
afterwards a CA is not replaced.
";

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Credentials {
    /// The files, sorted by name.
    pub(super) files: Vec<File>,
    /// Groups of private keys that are the same key.
    pub(super) shared: Vec<Vec<String>>,
}

impl Credentials {
    pub(super) fn imported(&self) -> bool {
        self.files.iter().any(|file| matches!(file.fate, Fate::Imported { .. }))
    }

    /// What to do with `import/`, if there is one.
    pub(super) fn about_import(&self) -> Option<&'static str> {
        self.imported().then_some(ABOUT_IMPORT)
    }
}

/// A file, and what was done with it.
#[derive(Debug)]
pub(super) struct File {
    pub(super) name: String,
    pub(super) fate: Fate,
}

#[derive(Debug)]
pub(super) enum Fate {
    /// It was copied for the import.
    Imported { as_file: &'static str, bytes: Secret },
    /// It was not copied, with the reason.
    Left(String),
}

impl File {
    pub(super) fn in_words(&self) -> String {
        match &self.fate {
            Fate::Imported { as_file, .. } => {
                format!("carried over as import/{as_file}")
            }
            Fate::Left(why) => why.clone(),
        }
    }
}

impl Serialize for File {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let imported = match &self.fate {
            Fate::Imported { as_file, .. } => Some(format!("import/{as_file}")),
            Fate::Left(_) => None,
        };
        serde_json::json!({ "name": self.name, "imported": imported, "message": self.in_words() })
            .serialize(serializer)
    }
}

/// Reads `credentials/` of a kube-aws directory, which may be missing.
pub(super) fn read(dir: &Path) -> Result<Credentials, CliError> {
    let folder = dir.join("credentials");
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Credentials::default()),
        Err(error) => return Err(CliError::file("read", &folder, &error)),
    };
    let mut names: Vec<String> = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| CliError::file("read", &folder, &error))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    let root = fs::canonicalize(dir).map_err(|error| CliError::file("read", dir, &error))?;
    let mut found = Credentials::default();
    let mut keys: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut pems: BTreeMap<String, (Inspected, Secret)> = BTreeMap::new();
    for name in &names {
        match open(&folder.join(name), &root)? {
            Opened::Left(why) => found.files.push(File { name: name.clone(), fate: Fate::Left(why) }),
            Opened::Bytes(bytes) => {
                let has_plain = |suffix: &str| {
                    name.strip_suffix(suffix).is_some_and(|plain| names.iter().any(|other| other == plain))
                };
                if let Some(why) = not_pem(name, has_plain(".enc")) {
                    found.files.push(File { name: name.clone(), fate: Fate::Left(why) });
                    continue;
                }
                let inspected = inspect(&bytes);
                if let Inspected::Key { public_key } = &inspected {
                    keys.entry(public_key.clone()).or_default().push(name.clone());
                }
                pems.insert(name.clone(), (inspected, bytes));
            }
        }
    }
    found.shared = keys.into_values().filter(|names| names.len() > 1).collect();
    authority(&mut pems, &mut found);
    for (name, (inspected, _)) in pems {
        let why = match inspected {
            Inspected::Certificate { authority: true, subject, .. } => {
                format!("the authority {subject} has no part in a cluster of Slipway's, which makes its own")
            }
            Inspected::Certificate { .. } => "issued anew".to_owned(),
            Inspected::Key { .. } | Inspected::LockedKey => "made anew".to_owned(),
            Inspected::Other(problem) => format!("not taken over: {problem}"),
        };
        found.files.push(File { name, fate: Fate::Left(why) });
    }
    found.files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

enum Opened {
    Bytes(Secret),
    Left(String),
}

/// A file's bytes. Links are reported and not followed.
fn open(path: &Path, root: &Path) -> Result<Opened, CliError> {
    let fail = |error: std::io::Error| CliError::file("read", path, &error);
    let about = fs::symlink_metadata(path).map_err(fail)?;
    let inside = |real: &Path| real.starts_with(root) && real.is_file();
    let followed = ["ca.pem", "ca-key.pem"].iter().any(|name| path.ends_with(name))
        && fs::canonicalize(path).is_ok_and(|real| inside(&real));
    let about = if followed { fs::metadata(path).map_err(fail)? } else { about };
    if about.is_symlink() {
        let target = fs::read_link(path).map_err(fail)?;
        let shown = target.display();
        return Ok(Opened::Left(match fs::canonicalize(path) {
            Ok(real) if real.starts_with(root) => format!("a link to {shown}, which is read itself"),
            Ok(_) => format!("a link to {shown}, outside the directory: not read"),
            Err(_) => format!("a link to {shown}, which is not there"),
        }));
    }
    if !about.is_file() {
        return Ok(Opened::Left("no file".to_owned()));
    }
    if about.len() > MOST_BYTES {
        return Ok(Opened::Left(format!("{} bytes are not a credential of kube-aws", about.len())));
    }
    fs::read(path).map(|bytes| Opened::Bytes(Secret::new(bytes))).map_err(fail)
}

/// The remark about a file that contains no PEM; `None` for one that does.
fn not_pem(name: &str, has_plain: bool) -> Option<String> {
    if name.ends_with(".fingerprint") {
        return Some("kube-aws' cache, not needed".to_owned());
    }
    if let Some(plain) = name.strip_suffix(".enc") {
        return Some(if has_plain {
            format!("{plain} encrypted, which is there in plain")
        } else {
            format!(
                "encrypted with KMS, which cannot be undone here: if it is needed, run `base64 -d {name} | aws kms decrypt \
                 --ciphertext-blob fileb:///dev/stdin --query Plaintext --output text | base64 -d > {plain}` and migrate again"
            )
        });
    }
    match name {
        "tokens.csv" => Some("static tokens are not taken over: people sign in by OIDC or certificates".to_owned()),
        "kubelet-tls-bootstrap-token" => Some("made anew".to_owned()),
        "encryption-config.yaml" => Some(
            "the key that secrets in etcd are encrypted with is made anew: keep this file while you have snapshots of the old cluster"
                .to_owned(),
        ),
        _ => (!name.ends_with(".pem")).then(|| "unknown: not taken over".to_owned()),
    }
}

/// Imports the cluster's CA, if its key is present and belongs to it.
fn authority(pems: &mut BTreeMap<String, (Inspected, Secret)>, found: &mut Credentials) {
    let Some((certificate, certificate_bytes)) = pems.remove("ca.pem") else {
        if pems.remove("ca-key.pem").is_some() {
            let why = "a key without its certificate, ca.pem: not taken over".to_owned();
            found.files.push(File { name: "ca-key.pem".to_owned(), fate: Fate::Left(why) });
        }
        return;
    };
    let Inspected::Certificate { authority: true, public_key: of_certificate, .. } = certificate else {
        let why = match certificate {
            Inspected::Other(problem) => format!("not taken over: {problem}"),
            Inspected::Certificate { .. } | Inspected::Key { .. } | Inspected::LockedKey => {
                "not taken over: it is not a certificate of an authority".to_owned()
            }
        };
        found.files.push(File { name: "ca.pem".to_owned(), fate: Fate::Left(why) });
        return;
    };
    let not_migrated =
        |name: &str, why: &str| File { name: name.to_owned(), fate: Fate::Left(why.to_owned()) };
    let Some((key, bytes)) = pems.remove("ca-key.pem") else {
        let why = "not carried over: its key, ca-key.pem, is not there, and nothing can be issued without; the cluster gets a CA of its own";
        found.files.push(not_migrated("ca.pem", why));
        return;
    };
    let shared = found.shared.iter().any(|names| names.iter().any(|name| name == "ca-key.pem"));
    let fate = match key {
        Inspected::Key { .. } if shared => Fate::Left(
            "other names have the same key: not taken over, since who holds one holds the CA".to_owned(),
        ),
        Inspected::Key { public_key } if public_key == of_certificate => {
            Fate::Imported { as_file: "ca-key.pem", bytes }
        }
        Inspected::Key { .. } => Fate::Left("not taken over: it is not the key of ca.pem".to_owned()),
        // Whether the key belongs to it is checked at the import, when the passphrase is known.
        Inspected::LockedKey => Fate::Imported { as_file: "ca-key.pem", bytes },
        Inspected::Certificate { .. } => Fate::Left("not taken over: it is not a private key".to_owned()),
        Inspected::Other(problem) => Fate::Left(format!("not taken over: {problem}")),
    };
    if matches!(fate, Fate::Imported { .. }) {
        let fate = Fate::Imported { as_file: "ca.pem", bytes: certificate_bytes };
        found.files.push(File { name: "ca.pem".to_owned(), fate });
    } else {
        found.files.push(not_migrated(
            "ca.pem",
            "not carried over without its key: the cluster gets a CA of its own",
        ));
    }
    found.files.push(File { name: "ca-key.pem".to_owned(), fate });
}
