//! Which certificates are renewed together, and which nodes are replaced for them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use slipway_core::role::{ETCD_CA, Role};

use crate::{Asset, manifest};

/// Where etcd runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// On its own machines.
    External,
    /// On the controllers, which are replaced once for both.
    Stacked,
}

/// Certificates that are renewed together.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum Group {
    /// All leaves of `etcd-ca`. Members are replaced; controllers take their etcd client certificate in place.
    Etcd,
    /// The leaves of the API server and the components beside it. Controllers are replaced.
    ControlPlane,
    /// The administrator's certificate: it needs a new kubeconfig, and no node is replaced.
    Administrator,
}

impl Group {
    /// Whether nodes of `role` are replaced for this group. Other roles take its certificates in place.
    #[must_use]
    pub fn rolls(self, role: &Role) -> bool {
        match (self, role) {
            (Self::Etcd, Role::Etcd(_)) | (Self::ControlPlane, Role::Controller) => true,
            (
                Self::Etcd | Self::ControlPlane | Self::Administrator,
                Role::Etcd(_) | Role::Controller | Role::Pool(_) | Role::Admin,
            ) => false,
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Etcd => "etcd",
            Self::ControlPlane => "the control plane",
            Self::Administrator => "the administrator's kubeconfig",
        })
    }
}

/// The group of a leaf. `None`: an authority, or no certificate.
#[must_use]
pub fn group(
    asset: &Asset,
    recipients: &BTreeMap<String, BTreeSet<Role>>,
    topology: Topology,
) -> Option<Group> {
    let profile = manifest::profile(asset).filter(|profile| !profile.authority)?;
    let administrator =
        recipients.get(&asset.name).is_some_and(|roles| roles.iter().all(|role| *role == Role::Admin));
    Some(match (profile.issuer.as_deref(), topology) {
        _ if administrator => Group::Administrator,
        (Some(ETCD_CA), Topology::External) => Group::Etcd,
        (_, Topology::External | Topology::Stacked) => Group::ControlPlane,
    })
}
