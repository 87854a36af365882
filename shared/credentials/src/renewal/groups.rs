//! Which certificates roll together, and what rolls by them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use slipway_core::role::{ETCD_CA, Role};

use crate::{Asset, manifest};

/// Where etcd runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// On machines of its own.
    External,
    /// On the controllers, which roll once for both.
    Stacked,
}

/// Certificates that roll together.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum Group {
    /// All that `etcd-ca` signs. Its members roll; controllers take their client certificate in place and do not roll.
    Etcd,
    /// The API server's and those of its neighbours: controllers roll.
    ControlPlane,
    /// The administrator's: a new kubeconfig, and nobody rolls.
    Administrator,
}

impl Group {
    /// Whether `role` is what rolls for it: others that hold one of its certificates take it in place.
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

/// The group of a leaf; `None` for an authority and for what is no certificate.
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
