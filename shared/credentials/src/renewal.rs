//! When certificates are renewed, what is said of them before, and what is wrong with them (design §8, P2, P7).
//!
//! Level-triggered like a rollout: [`decide`] looks at what the inventory, the stored certificates and the nodes say
//! ([`Observed`]) and gives what to renew, what to announce, what is found, and the [`State`] to keep. Whoever performs it
//! may die anywhere: what was renewed is known by another fingerprint, and is not due again.
//!
//! - Off is the default, and still warns. On, a leaf is due `days` before its end, and up to [`SPREAD_DAYS`] sooner:
//!   how much sooner follows from the cluster's name, so that a fleet does not move on one day.
//! - Leaves that roll together are renewed together ([`Group`]); workers have none.
//! - No leaf outlives its authority, and renewing one that gains nothing by it is left.

mod announce;
mod decide;
mod groups;
pub mod recovery;
mod reported;
mod standing;
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
pub use decide::{decide, renewal_time};
pub use groups::{Group, Topology, group};
pub use reported::{Held, Reported, reported};
pub use standing::{Elsewhere, Standing};
pub use state::{Announced, State, Superseded, Told, Urgent};
pub use strategy::{by_strategy, replaced};

/// So many days sooner than `days` before its end, at most, a certificate is renewed.
pub const SPREAD_DAYS: u32 = 7;

/// What a node told longer ago than this is not what it is like now: it tells each hour.
pub const REPORT_LIFE: SignedDuration = SignedDuration::from_hours(25);

pub(crate) const DAY_S: i64 = 86_400;

/// What is known of a cluster when it is scanned.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'a> {
    /// Its newest spec that was accepted.
    pub cluster: &'a Cluster,
    /// Its inventory.
    pub manifest: &'a Manifest,
    /// What lies where the inventory says that a certificate does, by asset.
    pub stored: &'a BTreeMap<String, Stored>,
    /// What its nodes told last.
    pub nodes: &'a [Reported],
    /// What the newest plan leads to; `None`: there never was one.
    pub wished: Option<&'a Wished>,
    /// What was said and done before.
    pub state: &'a State,
    /// Certificates that a person wants renewed now.
    pub asked: &'a Asked,
}

/// What a person asks to be renewed, whatever its dates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// The assets; [`Asked::everything`] for every leaf that can be renewed.
    pub certificates: Vec<String>,
    /// Every leaf.
    pub everything: bool,
    /// When it was asked: what was issued since is not renewed again, however often the question comes.
    pub at: Option<Timestamp>,
}

/// What the newest plan leads to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wished {
    /// The bundle of each role.
    pub digests: BTreeMap<Role, String>,
    /// A rollout has reached it, and nothing is on its way.
    pub reached: bool,
}

/// What lies where the inventory says that a certificate does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored {
    /// That certificate.
    Read {
        /// Its key in the asset bucket.
        key: String,
        /// What it says.
        facts: CertificateFacts,
        /// What is wrong with it besides its dates: message and cure.
        flaws: Vec<(String, String)>,
    },
    /// Nothing, or something else.
    Broken(Finding),
}

/// Something that a person has to look at. The scan goes on without it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Finding {
    /// Key of the object that it is about, in the asset bucket unless it says otherwise.
    pub key: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: String,
}

/// What is to be done about a cluster's certificates.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Certificates to issue anew, by what rolls together. All of them go into one version of the inventory.
    pub renew: Vec<Renewal>,
    /// What to say on the bus.
    pub announce: Vec<Announcement>,
    /// What a person has to look at.
    pub findings: Vec<Finding>,
    /// Every certificate that is in use, by name.
    pub standings: Vec<Standing>,
    /// The inventory has what the newest plan lacks: it is to be planned anew, again if need be.
    pub unwished: bool,
    /// What to keep, as if nothing were renewed; see [`State::renewed`].
    pub next: State,
}

/// Certificates that are renewed together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewal {
    /// What rolls by it.
    pub group: Group,
    /// Which.
    pub certificates: Vec<Renew>,
}

/// A certificate to issue anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renew {
    /// The asset.
    pub name: String,
    /// The one that is replaced: if it is another by then, somebody else was first.
    pub fingerprint: String,
    /// When that ends.
    pub ends: Timestamp,
    /// It is due by itself; the others go along with it.
    pub due: bool,
}

/// `of` as whole days and the time of day: what people compare.
pub(crate) fn days_left(ends: Timestamp, now: Timestamp) -> i64 {
    (ends.as_second() - now.as_second()).div_euclid(DAY_S)
}

/// So many days before `at`.
pub(crate) fn days_before(at: Timestamp, days: u32) -> Timestamp {
    seconds_before(at, i64::from(days) * DAY_S)
}

pub(crate) fn seconds_before(at: Timestamp, seconds: i64) -> Timestamp {
    Timestamp::from_second(at.as_second().saturating_sub(seconds)).unwrap_or(Timestamp::MIN)
}
