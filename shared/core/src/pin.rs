//! The kinds of versions, images and digests that a cluster's lock pins. What is pinned stays until somebody asks for an upgrade.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A kind of pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Pin {
    /// Machine images behind SSM parameters.
    Images,
    /// The patch release of a Kubernetes minor.
    Kubernetes,
    /// The etcd release, if the spec names none.
    Etcd,
    /// Programs that nodes install and that do not follow Kubernetes or etcd: containerd, runc, CNI plugins.
    Programs,
    /// Tags of add-on images, if the spec names none.
    Addons,
    /// The node agent.
    Agent,
}

impl Pin {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Images, Self::Kubernetes, Self::Etcd, Self::Programs, Self::Addons, Self::Agent];

    /// Its name in events, in the lock and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Images => "images",
            Self::Kubernetes => "kubernetes",
            Self::Etcd => "etcd",
            Self::Programs => "programs",
            Self::Addons => "addons",
            Self::Agent => "agent",
        }
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Pin {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|pin| pin.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("{name:?} is not a kind of pin; there are {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_kind_is_written_everywhere_by_the_same_name() {
        for pin in Pin::ALL {
            assert_eq!(pin.name().parse(), Ok(pin));
            assert_eq!(serde_json::to_value(pin).unwrap(), pin.name());
        }
        assert!("image".parse::<Pin>().unwrap_err().contains("images, kubernetes, etcd"));
    }
}
