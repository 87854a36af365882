//! The static pods of a controller: their names, where the kubelet reads their manifests, and the folder that each of them sees.
//!
//! A static pod does not see `/etc/kubernetes`, which has the keys of all of them and the key that bootstrap tokens are derived from. It
//! mounts a folder of its own, with copies of the credentials that it reads, and with its other files. It mounts a folder and no single
//! files, because a mounted file stays the old one when the agent replaces it.

use slipway_core::node::NodeConfig;
use slipway_credentials::policy::KUBERNETES_DIR;

use crate::credentials::Bundle;

pub const MANIFESTS: &str = "/etc/kubernetes/manifests";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    ApiServer,
    ControllerManager,
    Scheduler,
}

impl Program {
    const ALL: [Self; 3] = [Self::ApiServer, Self::ControllerManager, Self::Scheduler];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
        }
    }

    /// The folder that its pod mounts.
    pub(crate) const fn folder(self) -> &'static str {
        match self {
            Self::ApiServer => "/etc/kubernetes/kube-apiserver",
            Self::ControllerManager => "/etc/kubernetes/kube-controller-manager",
            Self::Scheduler => "/etc/kubernetes/kube-scheduler",
        }
    }

    /// The path of a file in its folder.
    pub(crate) fn file(self, name: &str) -> String {
        format!("{}/{name}", self.folder())
    }

    /// The credentials that it reads. Not every cluster has `root-ca.pem`.
    const fn credentials(self) -> &'static [&'static str] {
        match self {
            Self::ApiServer => &[
                "apiserver-etcd-client-key.pem",
                "apiserver-etcd-client.pem",
                "apiserver-key.pem",
                "apiserver-kubelet-client-key.pem",
                "apiserver-kubelet-client.pem",
                "apiserver.pem",
                "client-ca.pem",
                "encryption-config.yaml",
                "etcd-ca.pem",
                "front-proxy-ca.pem",
                "front-proxy-client-key.pem",
                "front-proxy-client.pem",
                "service-account-key.pem",
                "service-account.pub.pem",
            ],
            Self::ControllerManager => &[
                "ca.pem",
                "controller-manager-key.pem",
                "controller-manager.pem",
                "front-proxy-ca.pem",
                "kubelet-ca-key.pem",
                "kubelet-ca.pem",
                "root-ca.pem",
                "service-account-key.pem",
            ],
            Self::Scheduler => &["ca.pem", "front-proxy-ca.pem", "scheduler-key.pem", "scheduler.pem"],
        }
    }
}

/// Their names, which are also the names of their manifests.
pub const STATIC_PODS: [&str; 3] =
    [Program::ApiServer.name(), Program::ControllerManager.name(), Program::Scheduler.name()];

/// Where static pods find the file `path` of a controller's credentials.
#[must_use]
pub fn copies(path: &str) -> Vec<String> {
    let name = path.strip_prefix(KUBERNETES_DIR).and_then(|name| name.strip_prefix('/'));
    let readers = Program::ALL
        .into_iter()
        .filter_map(|program| Some((program, name.filter(|name| program.credentials().contains(name))?)));
    readers.map(|(program, name)| program.file(name)).collect()
}

/// The bundle with the [`copies`] for static pods, if the node has any.
#[must_use]
pub fn with_copies(bundle: Bundle, config: &NodeConfig) -> Bundle {
    match config {
        NodeConfig::Controller(_) => bundle.with_copies(copies),
        NodeConfig::Etcd(_) | NodeConfig::Worker(_) => bundle,
    }
}
