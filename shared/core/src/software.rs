//! The programs and images that a node runs besides its image, by name.

use serde::{Deserialize, Serialize};

use crate::role::Role;

/// A program, or several that are published in one archive.
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
    /// What nodes of `role` need.
    #[must_use]
    pub fn of(role: &Role) -> &'static [Self] {
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
    /// `https`, or `s3` for an object that the node reads by its own role.
    pub url: String,
    /// SHA-256, in hex.
    pub sha256: String,
}

/// The images of the static pods, and of the container that holds a pod's network.
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

    /// What nodes of `role` run.
    #[must_use]
    pub fn of(role: &Role) -> &'static [Self] {
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
