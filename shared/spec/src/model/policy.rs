//! Certificates and rollouts.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use slipway_core::cluster::{Approval, Day, KeyAlgorithm, RenewalStrategy};
use slipway_core::pin::Pin;

/// How certificates are made and renewed.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CertificatesSpec {
    /// The key of each certificate; `ECDSA-P256` unless given.
    pub(crate) key_algorithm: Option<KeyAlgorithm>,
    /// Where each authority comes from. It is set before the first upload and cannot change: a rotation replaces an authority by one from the same place.
    pub(crate) authorities: AuthoritiesSpec,
    /// Renewal before certificates expire; off unless enabled.
    pub(crate) rollout_before_expiry: RolloutBeforeExpirySpec,
    /// How many days before an authority that Slipway made expires its rotation begins by itself, in stages; earlier if certificates that have to be renewed would outlive it; never unless given.
    #[schemars(range(min = 1, max = 3650))]
    pub(crate) ca_rotation_days: Option<u32>,
}

/// Where each authority comes from.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct AuthoritiesSpec {
    /// Signs the API server, its clients and the administrator.
    pub(crate) ca: AuthoritySpec,
    /// Signs kubelets. Its key is on the controllers, which sign with it.
    pub(crate) kubelet_ca: AuthoritySpec,
    /// Signs the members of etcd, and those who may speak to them.
    pub(crate) etcd_ca: AuthoritySpec,
    /// Signs the API server towards its extensions.
    pub(crate) front_proxy_ca: AuthoritySpec,
}

/// Where an authority comes from.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AuthoritySpec {
    /// Who made it; `generated` unless given.
    pub(crate) source: Option<AuthoritySourceSpec>,
    /// The file of its certificates in the folder `import/` beside the spec: its own first, then those above it, perhaps up to the root. Without it, the file has the name of the authority, such as `ca.pem`.
    pub(crate) certificate: Option<String>,
    /// The file of its private key in `import/`, PEM under a passphrase. Without it, the file has the name of the authority, such as `ca-key.pem`.
    pub(crate) key: Option<String>,
    /// The SSM parameter, a SecureString below `/slipway/<clusterName>/`, with the passphrase of its key, or of the keys of what is provided.
    pub(crate) passphrase_parameter: Option<String>,
}

/// Who makes an authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum AuthoritySourceSpec {
    /// Slipway.
    Generated,
    /// You, and its key comes with it: Slipway issues under it.
    Imported,
    /// You, without its key: you issue what it signs, too, and Slipway checks and distributes it.
    Provided,
}

/// Renewal before certificates expire.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RolloutBeforeExpirySpec {
    /// Whether certificates are renewed by themselves.
    pub(crate) enabled: bool,
    /// How many days before the end; 7 unless given.
    #[schemars(range(min = 1, max = 3650))]
    pub(crate) days: Option<u32>,
    /// How renewed certificates reach the nodes; `rollout` unless given.
    pub(crate) strategy: Option<RenewalStrategy>,
    /// From how many days before the expiry a renewal waits neither for windows nor for approval; half of `days` and 3 at most
    /// unless given. That begins earlier where the slowest roll of this cluster needs longer: `slipway validate` says so. At most 30, because
    /// an upload should not decide alone when etcd and the controllers are rolled.
    #[schemars(range(min = 0, max = 30))]
    pub(crate) emergency_days: Option<u32>,
}

/// How changes reach the nodes.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RolloutSpec {
    /// Whether a plan waits for a person; `auto` unless given.
    pub(crate) approval: Option<Approval>,
    /// How many nodes of a pool may be missing, as a number or a percentage; 1 unless given.
    pub(crate) max_unavailable: Option<CountText>,
    /// How many nodes a pool may have beyond its size, as a number or a percentage; 0 unless given.
    pub(crate) surge: Option<CountText>,
    /// How nodes are emptied.
    pub(crate) drain: DrainSpec,
    /// How many workers may fail to be replaced before a rollout stops; 1 unless given. The first of a pool stops it at once.
    #[schemars(range(max = 1000))]
    pub(crate) failure_budget: Option<u32>,
    /// When disruptive steps may start, in UTC; always unless given.
    pub(crate) windows: Vec<WindowSpec>,
}

/// How nodes are emptied.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct DrainSpec {
    /// After this many minutes a pod is deleted although its budget forbids it, if it is 72 hours old, its budget's healthy pods have been so
    /// for an hour and the others for six, and no pod of the node was deleted in this way for five minutes; never unless given.
    #[schemars(range(min = 1, max = 2880))]
    pub(crate) force_after_minutes: Option<u32>,
}

/// When the versions that the lock pins are looked up again. What is newer becomes a plan like any other.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct UpgradesSpec {
    /// After how many days pins are looked up again automatically; unless given, only `slipway upgrade` does it.
    #[schemars(range(min = 1, max = 365))]
    pub(crate) every_days: Option<u32>,
    /// The kinds of pins; all unless given.
    pub(crate) pins: Vec<Pin>,
}

/// A weekly window, in UTC.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("required" = ["start", "minutes"]))]
pub(crate) struct WindowSpec {
    /// Its days; each day unless given.
    pub(crate) days: Vec<Day>,
    /// The time at which it opens, such as `02:30`.
    pub(crate) start: Option<String>,
    /// For how many minutes it is open.
    #[schemars(range(min = 1, max = 10080))]
    pub(crate) minutes: Option<u16>,
}

/// `2` or `25%`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct CountText(pub(crate) String);

impl JsonSchema for CountText {
    fn schema_name() -> Cow<'static, str> {
        "CountOrPercent".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number of nodes, or a percentage of a pool such as `25%`.",
            "type": ["integer", "string"],
            "minimum": 0,
            "pattern": "^[0-9]+%?$"
        })
    }
}
