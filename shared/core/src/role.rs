//! The roles that receive credentials, and the names of the credentials that can be rotated.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A role that receives a bundle of credentials. Its text form (`etcd-0`, `controller`, `pool-general`, `admin`) is the `role` in the
/// encryption context and the folder of its bundles.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Role {
    /// One etcd member, by its index.
    Etcd(u32),
    /// Every controller.
    Controller,
    /// Every worker of the named pool.
    Pool(String),
    /// An administrator with a kubeconfig.
    Admin,
}

impl Role {
    /// The index of an etcd member; `None` for the others.
    #[must_use]
    pub fn member(&self) -> Option<u32> {
        match self {
            Self::Etcd(index) => Some(*index),
            Self::Controller | Self::Pool(_) | Self::Admin => None,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Etcd(index) => write!(f, "etcd-{index}"),
            Self::Controller => f.write_str("controller"),
            Self::Pool(name) => write!(f, "pool-{name}"),
            Self::Admin => f.write_str("admin"),
        }
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "controller" => return Ok(Self::Controller),
            "admin" => return Ok(Self::Admin),
            _ => {}
        }
        if let Some(index) = text.strip_prefix("etcd-").and_then(|index| index.parse().ok()) {
            return Ok(Self::Etcd(index));
        }
        match text.strip_prefix("pool-") {
            Some(name) if !name.is_empty() => Ok(Self::Pool(name.to_owned())),
            _ => Err(format!("{text:?} is not a role: etcd-N, controller, pool-NAME or admin")),
        }
    }
}

impl From<Role> for String {
    fn from(role: Role) -> Self {
        role.to_string()
    }
}

impl TryFrom<String> for Role {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// The asset that is the cluster's main certificate authority.
pub const CA: &str = "ca";
/// The authority for kubelets; controllers hold its key.
pub const KUBELET_CA: &str = "kubelet-ca";
/// The authority for etcd's members and clients.
pub const ETCD_CA: &str = "etcd-ca";
/// The authority for the client certificate with which the API server calls its extensions.
pub const FRONT_PROXY_CA: &str = "front-proxy-ca";
/// The key pair that signs service account tokens.
pub const SERVICE_ACCOUNT: &str = "service-account";

/// The assets that can be rotated while a cluster runs (`slipway_credentials::rotation`).
pub const ROTATABLE: [&str; 5] = [CA, KUBELET_CA, ETCD_CA, FRONT_PROXY_CA, SERVICE_ACCOUNT];

const NEXT: &str = "-next";
const PREVIOUS: &str = "-previous";

/// The asset whose successor or predecessor `name` is: `ca` for `ca-next` and `ca-previous`. Otherwise `name` itself. All three are
/// stored in the folder of the base asset, so that no object moves when they change places.
#[must_use]
pub fn base(name: &str) -> &str {
    let cut = name.strip_suffix(NEXT).or_else(|| name.strip_suffix(PREVIOUS));
    cut.filter(|base| ROTATABLE.contains(base)).unwrap_or(name)
}

/// The name of the asset that will replace `name`.
#[must_use]
pub fn successor(name: &str) -> String {
    format!("{name}{NEXT}")
}

/// The name of the asset that `name` replaced.
#[must_use]
pub fn predecessor(name: &str) -> String {
    format!("{name}{PREVIOUS}")
}
