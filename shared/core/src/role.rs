//! The roles that nodes and people have, and the names of the credentials that are exchanged while a cluster runs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Who receives a bundle of credentials. Its text form (`etcd-0`, `controller`, `pool-general`, `admin`) is the
/// `role` of the encryption context and the folder of its bundles.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Role {
    /// One etcd member, by its index.
    Etcd(u32),
    /// Every controller.
    Controller,
    /// Every worker of the named pool.
    Pool(String),
    /// The operator's kubeconfig.
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

/// The asset that is the cluster's own authority.
pub const CA: &str = "ca";
/// The asset that signs kubelets: controllers hold its key.
pub const KUBELET_CA: &str = "kubelet-ca";
/// The asset that signs etcd's members and clients.
pub const ETCD_CA: &str = "etcd-ca";
/// The asset that signs the API server towards its extensions.
pub const FRONT_PROXY_CA: &str = "front-proxy-ca";
/// The key pair that signs tokens of service accounts.
pub const SERVICE_ACCOUNT: &str = "service-account";

/// What can be exchanged while a cluster runs, in stages (`slipway_credentials::rotation`).
pub const ROTATABLE: [&str; 5] = [CA, KUBELET_CA, ETCD_CA, FRONT_PROXY_CA, SERVICE_ACCOUNT];

const NEXT: &str = "-next";
const PREVIOUS: &str = "-previous";

/// The asset that `name` takes the place of, or whose place was taken from it: `ca` of `ca-next` and `ca-previous`. Otherwise itself.
/// What is stored of it lies in that asset's folder, so that nothing moves when its turn comes.
#[must_use]
pub fn base(name: &str) -> &str {
    let cut = name.strip_suffix(NEXT).or_else(|| name.strip_suffix(PREVIOUS));
    cut.filter(|base| ROTATABLE.contains(base)).unwrap_or(name)
}

/// What the inventory calls the one that is to take `name`'s place.
#[must_use]
pub fn successor(name: &str) -> String {
    format!("{name}{NEXT}")
}

/// What the inventory calls the one whose place `name` took.
#[must_use]
pub fn predecessor(name: &str) -> String {
    format!("{name}{PREVIOUS}")
}
