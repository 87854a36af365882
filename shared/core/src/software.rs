//! The programs and images that a node runs in addition to its machine image.

use serde::{Deserialize, Serialize};

use crate::role::Role;

/// A program, or several programs that are published in one archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names are the projects'")]
pub enum Program {
    CniPlugins,
    Containerd,
    Etcd,
    Kubelet,
    Runc,
}

impl Program {
    /// The programs that nodes of `role` need.
    #[must_use]
    pub fn for_role(role: &Role) -> &'static [Self] {
        match role {
            Role::Etcd(_) => &[Self::Etcd],
            Role::Controller | Role::Pool(_) => {
                &[Self::CniPlugins, Self::Containerd, Self::Kubelet, Self::Runc]
            }
            Role::Admin => &[],
        }
    }

    /// Its name in the lock and in a node's configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CniPlugins => "cni-plugins",
            Self::Containerd => "containerd",
            Self::Etcd => "etcd",
            Self::Kubelet => "kubelet",
            Self::Runc => "runc",
        }
    }
}

/// A file that a node installs, as its configuration names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProgramFile {
    /// What it is.
    pub name: Program,
    /// Its release.
    pub version: String,
    /// An `https` URL, or an `s3` URL that the node reads with its own IAM role.
    pub url: String,
    /// SHA-256, in hex.
    pub sha256: String,
}

/// The images of the static pods, and of the pause container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are the projects'")]
pub enum SystemImage {
    ApiServer,
    ControllerManager,
    Pause,
    Scheduler,
}

impl SystemImage {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::ApiServer, Self::ControllerManager, Self::Pause, Self::Scheduler];

    /// The images that nodes of `role` run.
    #[must_use]
    pub fn for_role(role: &Role) -> &'static [Self] {
        match role {
            Role::Controller => &Self::ALL,
            Role::Pool(_) => &[Self::Pause],
            Role::Etcd(_) | Role::Admin => &[],
        }
    }

    /// Its name in a node's configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Pause => "pause",
            Self::Scheduler => "kube-scheduler",
        }
    }
}
