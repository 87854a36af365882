//! When certificates are renewed, which events are published before they expire, and what is wrong with them (P2, P7).
//!
//! [`decide`] is level-triggered: from the inventory, the stored certificates and the nodes' reports ([`Observed`]) it computes what to
//! renew, what to announce, which findings there are, and the [`State`] to keep. The caller may be interrupted anywhere, because a
//! renewed certificate has another fingerprint and is not due again.
//!
//! - Renewal is off by default, and expiry is still announced. When it is on, a leaf is due `days` before it expires, and up to
//!   [`SPREAD_DAYS`] earlier: how much depends on the cluster's name, so that the clusters of an organization are not all renewed on one
//!   day.
//! - Leaves whose renewal replaces the same nodes are renewed together ([`Group`]). Workers have no leaves.
//! - No leaf outlives its authority. A leaf that would not last longer after a renewal is not renewed.

mod announce;
mod certificate_state;
mod decide;
mod groups;
pub mod recovery;
mod reported;
mod state;
mod strategy;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use slipway_core::cluster::Cluster;
use slipway_core::role::Role;

use crate::{CertificateFacts, Manifest};

pub use announce::{AUTHORITY_DAYS, Announcement, LEAF_DAYS};
pub use certificate_state::{CertificateState, Elsewhere};
pub use decide::{decide, renewal_time};
pub use groups::{Group, Topology, group};
pub use reported::{LeafOnNode, Reported, reported};
pub use state::{Announced, CertificateStatus, State, Superseded, Urgent};
pub use strategy::{by_strategy, replaced};

/// A certificate is renewed at most this many days earlier than the spec says.
pub const SPREAD_DAYS: u32 = 7;

/// How long a node's report counts as current. Nodes report every hour.
pub const REPORT_LIFE: SignedDuration = SignedDuration::from_hours(25);

pub(crate) const DAY_S: i64 = 86_400;

/// Everything that a scan of a cluster depends on.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'a> {
    /// The newest accepted spec.
    pub cluster: &'a Cluster,
    /// Its inventory.
    pub manifest: &'a Manifest,
    /// The stored certificates that the inventory names, by asset.
    pub stored: &'a BTreeMap<String, Stored>,
    /// The last reports of its nodes.
    pub nodes: &'a [Reported],
    /// The machines that Auto Scaling has of these.
    pub machines: &'a Machines,
    /// The result of the newest plan. `None`: there was never a plan.
    pub planned: Option<&'a Planned>,
    /// The state kept by the last scan.
    pub state: &'a State,
    /// The renewals that a person requested.
    pub request: &'a RenewalRequest,
}

/// The machines that hold leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Machines {
    /// Those of each role, with the keys of their reports. The nodes that report of a role that is missing speak for all of it, and so does
    /// a rollout.
    Listed(BTreeMap<Role, BTreeMap<String, String>>),
    /// They could not be listed: a replaced certificate may be on any of them.
    Unknown,
}

impl Default for Machines {
    fn default() -> Self {
        Self::Listed(BTreeMap::new())
    }
}

impl Machines {
    /// The machines of `role`; `None`: they were not listed.
    fn of_role(&self, role: &Role) -> Option<&BTreeMap<String, String>> {
        match self {
            Self::Listed(machines) => machines.get(role),
            Self::Unknown => None,
        }
    }
}

/// A request to renew certificates whatever their dates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RenewalRequest {
    /// The assets to renew.
    pub certificates: Vec<String>,
    /// Whether every leaf that can be renewed is requested.
    pub everything: bool,
    /// When it was requested. A certificate that was issued since is not renewed again, so the request may be repeated.
    pub at: Option<Timestamp>,
}

/// The result of the newest plan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Planned {
    /// The digest of each role's bundle.
    pub digests: BTreeMap<Role, String>,
    /// Whether a rollout has reached it, and none is in progress.
    pub reached: bool,
}

/// The object that the inventory names for a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored {
    /// The certificate that was expected.
    Read {
        /// Its key in the asset bucket.
        key: String,
        /// Its content.
        facts: CertificateFacts,
        /// What is wrong with it besides its dates: messages, each with its help.
        flaws: Vec<(String, String)>,
    },
    /// It is missing or something else.
    Broken(Finding),
}

/// A problem that a person has to resolve. The scan continues without it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Finding {
    /// The key of the object concerned, in the asset bucket unless it says otherwise.
    pub key: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: String,
}

/// What is to be done about a cluster's certificates.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The certificates to renew, by group. All of them go into one version of the inventory.
    pub renew: Vec<Renewal>,
    /// The events to publish.
    pub announce: Vec<Announcement>,
    /// The problems that a person has to resolve.
    pub findings: Vec<Finding>,
    /// All certificates in use, by name.
    pub standings: Vec<CertificateState>,
    /// Whether the inventory has credentials that the newest plan lacks, so that a new plan is needed.
    pub unplanned: bool,
    /// The state to keep if nothing is renewed; see [`State::renewed`].
    pub next: State,
}

/// Certificates that are renewed together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewal {
    /// The group that they belong to.
    pub group: Group,
    /// The certificates.
    pub certificates: Vec<Renew>,
}

/// A certificate to renew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renew {
    /// The asset.
    pub name: String,
    /// The fingerprint of the certificate that is replaced. If the inventory has another one meanwhile, another scan was first.
    pub fingerprint: String,
    /// When the replaced certificate expires.
    pub ends: Timestamp,
    /// Whether it is due itself; otherwise it is renewed because another one of its group is.
    pub due: bool,
}

/// The whole days until `ends`; negative once it has passed.
pub(crate) fn days_left(ends: Timestamp, now: Timestamp) -> i64 {
    (ends.as_second() - now.as_second()).div_euclid(DAY_S)
}

/// The time so many days before `at`.
pub(crate) fn days_before(at: Timestamp, days: u32) -> Timestamp {
    seconds_before(at, i64::from(days) * DAY_S)
}

pub(crate) fn seconds_before(at: Timestamp, seconds: i64) -> Timestamp {
    Timestamp::from_second(at.as_second().saturating_sub(seconds)).unwrap_or(Timestamp::MIN)
}
