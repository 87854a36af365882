//! Client certificates in files on a node. Nobody serves them, so no handshake shows their dates.

use std::fs;
use std::path::{Path, PathBuf};

use slipway_core::node::NodeConfig;
use slipway_core::node::report::CertificateOnNode;
use slipway_crypto::verify::Facts;

use super::{credentials_folder, listeners};
use crate::credentials::below;
use crate::http;

/// The kubelet's own certificate and key, which it requests and renews.
pub const KUBELET_CLIENT: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";

/// Client certificates of a node, by path. Authorities and unreadable files are left out.
#[must_use]
pub fn certificates_on_node(root: &Path, config: &NodeConfig) -> Vec<CertificateOnNode> {
    let folder = credentials_folder(config);
    let served: Vec<PathBuf> =
        listeners::listeners(root, config).into_iter().filter_map(|listener| listener.file).collect();
    let names = fs::read_dir(below(root, folder)).into_iter().flatten().filter_map(Result::ok);
    let mut paths: Vec<String> = names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.ends_with(".pem") && !name.starts_with('.'))
        .map(|name| format!("{folder}/{name}"))
        .filter(|path| !served.contains(&below(root, path)))
        .collect();
    match config {
        NodeConfig::Etcd(_) => {}
        NodeConfig::Controller(_) | NodeConfig::Worker(_) => paths.push(KUBELET_CLIENT.to_owned()),
    }
    paths.sort();
    paths.iter().filter_map(|path| Some(described(path, leaf(&below(root, path))?))).collect()
}

/// The first certificate of a file, unless it is an authority.
#[must_use]
pub fn leaf(file: &Path) -> Option<Facts> {
    let first = http::certificates(file).ok()?.into_iter().next()?;
    Facts::read(&first).ok().filter(|facts| !facts.authority)
}

fn described(path: &str, facts: Facts) -> CertificateOnNode {
    CertificateOnNode {
        path: path.to_owned(),
        serial: facts.serial,
        fingerprint: facts.fingerprint,
        subject: facts.subject,
        issuer: facts.issuer,
        not_before: facts.not_before,
        not_after: facts.not_after,
    }
}
