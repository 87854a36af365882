//! The software of a node in addition to its machine image: programs that the agent installs, and images of static pods.
//!
//! A node installs programs by the digests in its configuration. So what runs is determined when a cluster is rendered, and not by what a
//! site serves when a machine boots. The digest is the publisher's checksum, read once and kept in the lock. A version in this table
//! reaches a cluster only through its lock (P1).
//!
//! Sources of the versions: the newest release of each module (`go list -m -versions`), in November 2026. containerd 2 needs runc and the
//! CNI plugins as well (github.com/containerd/containerd, docs/getting-started.md).

use std::collections::{BTreeMap, BTreeSet};

use slipway_core::cluster::{Architecture, Cluster, SoftwareSource};
use slipway_core::role::Role;
use slipway_core::software::{Program, SystemImage};
use slipway_credentials::policy;

use crate::lock::{Lock, minor};

/// The release that this version of Slipway knows. `None`: the program follows the cluster's releases.
fn newest(program: Program) -> Option<&'static str> {
    match program {
        Program::CniPlugins => Some("1.9.1"),
        Program::Containerd => Some("2.4.2"),
        Program::Runc => Some("1.5.2"),
        Program::Etcd | Program::Kubelet => None,
    }
}

/// Whether its release is that of the cluster's Kubernetes or etcd.
pub(crate) fn follows_the_cluster(program: Program) -> bool {
    newest(program).is_none()
}

/// Its URL at the publisher.
fn url(program: Program, version: &str, architecture: Architecture) -> String {
    let arch = architecture.as_go();
    match program {
        Program::CniPlugins => format!(
            "https://github.com/containernetworking/plugins/releases/download/v{version}/cni-plugins-linux-{arch}-v{version}.tgz"
        ),
        Program::Containerd => format!(
            "https://github.com/containerd/containerd/releases/download/v{version}/containerd-{version}-linux-{arch}.tar.gz"
        ),
        Program::Etcd => format!(
            "https://github.com/etcd-io/etcd/releases/download/v{version}/etcd-v{version}-linux-{arch}.tar.gz"
        ),
        Program::Kubelet => format!("https://dl.k8s.io/release/v{version}/bin/linux/{arch}/kubelet"),
        Program::Runc => {
            format!("https://github.com/opencontainers/runc/releases/download/v{version}/runc.{arch}")
        }
    }
}

/// The URL of the publisher's SHA-256 of `url`: a file of its own, or a list in the same folder.
fn checksum_url(url: &str) -> String {
    let beside = |name: &str| format!("{}/{name}", url.rsplit_once('/').map_or(url, |(folder, _)| folder));
    if url.contains("/etcd-io/etcd/") {
        beside("SHA256SUMS")
    } else if url.contains("/opencontainers/runc/") {
        beside("runc.sha256sum")
    } else if url.contains("/containerd/containerd/") {
        format!("{url}.sha256sum")
    } else {
        format!("{url}.sha256")
    }
}

/// A program that nodes install.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredProgram {
    /// What.
    pub name: Program,
    /// Its release. `None`: it is not known.
    pub version: Option<String>,
    /// Its URL at the publisher; empty if the release is not known.
    pub url: String,
}

/// The releases of independent programs that the lock lacks.
pub(crate) fn missing_versions(cluster: &Cluster, lock: &Lock) -> BTreeMap<String, BTreeMap<String, String>> {
    if cluster.software.source == SoftwareSource::Image {
        return BTreeMap::new();
    }
    let of_pools = cluster.pools.iter().map(|pool| cluster.version_of(pool));
    let mut missing: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for minor in std::iter::once(cluster.kubernetes_version).chain(of_pools).map(minor) {
        let pinned = lock.program_versions.get(&minor);
        for name in [Program::CniPlugins, Program::Containerd, Program::Runc] {
            if let Some(newest) = newest(name)
                && pinned.is_none_or(|pinned| !pinned.contains_key(name.as_str()))
            {
                let minor = missing.entry(minor.clone()).or_default();
                minor.insert(name.as_str().to_owned(), newest.to_owned());
            }
        }
    }
    missing
}

/// The programs that nodes of `role` install, sorted by name. Empty: their image contains them.
#[must_use]
pub fn wanted(cluster: &Cluster, lock: &Lock, role: &Role) -> Vec<RequiredProgram> {
    if cluster.software.source == SoftwareSource::Image {
        return Vec::new();
    }
    let (architecture, kubernetes) = match role {
        Role::Etcd(_) | Role::Admin => {
            (Architecture::of_instance_type(&cluster.etcd.instance_type), cluster.kubernetes_version)
        }
        Role::Controller => {
            (Architecture::of_instance_type(&cluster.controller.instance_type), cluster.kubernetes_version)
        }
        Role::Pool(name) => {
            let Some(pool) = cluster.pools.iter().find(|pool| pool.name == *name) else { return Vec::new() };
            (Architecture::of_instance_type(&pool.instance_type), cluster.version_of(pool))
        }
    };
    let version = |name: Program| match name {
        Program::Etcd => lock.etcd_version(cluster).map(str::to_owned),
        Program::Kubelet => {
            let pinned = lock.kubernetes.get(&kubernetes.to_string()).cloned();
            pinned.or_else(|| kubernetes.patch.map(|_| kubernetes.to_string()))
        }
        Program::CniPlugins | Program::Containerd | Program::Runc => {
            lock.program_versions.get(&minor(kubernetes))?.get(name.as_str()).cloned()
        }
    };
    let wanted = Program::for_role(role).iter().map(|name| {
        let version = version(*name);
        let url = version.as_deref().map(|version| url(*name, version, architecture)).unwrap_or_default();
        RequiredProgram { name: *name, version, url }
    });
    wanted.collect()
}

/// For each file whose digest the lock lacks, by its URL: the URL of its checksum.
pub(crate) fn missing_files(cluster: &Cluster, lock: &Lock) -> BTreeMap<String, String> {
    policy::roles(cluster)
        .iter()
        .flat_map(|role| wanted(cluster, lock, role))
        .filter(|wanted| wanted.version.is_some() && !lock.program_files.contains_key(&wanted.url))
        .map(|wanted| {
            let checksum = checksum_url(&wanted.url);
            (wanted.url, checksum)
        })
        .collect()
}

/// The SHA-256 of `url` in a publisher's checksum file `text`: either a single digest, or lines with digest and file name as `sha256sum`
/// writes them.
#[must_use]
pub fn checksum(text: &str, url: &str) -> Option<String> {
    let name = url.rsplit('/').next()?;
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let found = lines.iter().find_map(|line| {
        let mut words = line.split_whitespace();
        let digest = words.next().filter(|word| is_sha256(word))?;
        let fits = match words.next() {
            None => lines.len() == 1,
            Some(file) => file.trim_start_matches('*').rsplit('/').next() == Some(name),
        };
        fits.then_some(digest)
    });
    found.map(str::to_ascii_lowercase)
}

fn is_sha256(word: &str) -> bool {
    word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The URL at which a node downloads what is published at `url`: with a mirror, host and path are appended to the mirror's URL.
pub(crate) fn mirrored(cluster: &Cluster, url: &str) -> String {
    match &cluster.software.base_url {
        None => url.to_owned(),
        Some(base) => format!("{base}/{}", url.strip_prefix("https://").unwrap_or(url)),
    }
}

/// `registry/repository:tag`, under which its digest is pinned. `None`: its release is not known.
#[must_use]
pub fn reference(image: SystemImage, cluster: &Cluster, lock: &Lock) -> Option<String> {
    let tag = match image {
        // `PauseVersion` in kubeadm's `constants.go`.
        SystemImage::Pause => {
            if cluster.kubernetes_version.minor <= 35 { "3.10.1" } else { "3.10.2" }.to_owned()
        }
        SystemImage::ApiServer | SystemImage::ControllerManager | SystemImage::Scheduler => {
            format!("v{}", lock.kubernetes_version(cluster)?)
        }
    };
    Some(format!("registry.k8s.io/{}:{tag}", image.as_str()))
}

/// The references of all system images of `cluster` whose release is known.
pub(crate) fn references(cluster: &Cluster, lock: &Lock) -> BTreeSet<String> {
    SystemImage::ALL.into_iter().filter_map(|image| reference(image, cluster, lock)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const KUBELET: &str = "https://dl.k8s.io/release/v1.37.2/bin/linux/amd64/kubelet";

    #[test]
    fn a_checksum_is_read_alone_or_by_the_files_name() {
        let (one, two) = ("a".repeat(64), "B".repeat(64));
        assert_eq!(checksum(&format!("{one}\n"), KUBELET), Some(one.clone()));
        assert_eq!(checksum(&one, KUBELET), Some(one.clone()));
        let list = format!("{one}  runc.amd64\n{two} *runc.arm64\n");
        let runc = |arch| format!("https://github.com/opencontainers/runc/releases/download/v1/runc.{arch}");
        assert_eq!(checksum(&list, &runc("amd64")), Some(one.clone()));
        assert_eq!(checksum(&list, &runc("arm64")), Some("b".repeat(64)));
        assert_eq!(checksum(&list, &runc("riscv64")), None);
        for nothing in ["", "<html>not found</html>", &one[1..], &format!("{one}  another\n")] {
            assert_eq!(checksum(nothing, KUBELET), None, "{nothing}");
        }
        assert_eq!(checksum(&format!("{one}\n{two}\n"), KUBELET), None, "which of them?");
    }

    #[test]
    fn publishers_say_checksums_where_they_do() {
        let say = |name: Program| checksum_url(&url(name, "1.2.3", Architecture::Arm64));
        assert_eq!(say(Program::Kubelet), "https://dl.k8s.io/release/v1.2.3/bin/linux/arm64/kubelet.sha256");
        assert!(say(Program::Etcd).ends_with("/download/v1.2.3/SHA256SUMS"));
        assert!(say(Program::Runc).ends_with("/download/v1.2.3/runc.sha256sum"));
        assert!(say(Program::Containerd).ends_with("/containerd-1.2.3-linux-arm64.tar.gz.sha256sum"));
        assert!(say(Program::CniPlugins).ends_with("/cni-plugins-linux-arm64-v1.2.3.tgz.sha256"));
    }
}
