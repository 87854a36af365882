//! `clusters/<name>/scan.json`: what was said of a cluster's certificates, and how they stood when it was scanned last.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Finding, Group, Renewal};

/// What a scan keeps for the next, for the render function, and for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct State {
    /// [`State::FORMAT`].
    pub format: u32,
    /// When it was scanned.
    pub at: Timestamp,
    /// What was announced, by asset.
    #[serde(default)]
    pub announced: BTreeMap<String, Announced>,
    /// What was renewed and may still be in use somewhere, by asset.
    #[serde(default)]
    pub superseded: BTreeMap<String, Superseded>,
    /// What cannot wait for a window or an approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub urgent: Option<Urgent>,
    /// Every certificate in use, by asset.
    #[serde(default)]
    pub certificates: BTreeMap<String, Told>,
    /// What a person has to look at.
    #[serde(default)]
    pub findings: Vec<Finding>,
}

/// What was announced of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Announced {
    /// Which one it was: another has been announced nothing of yet.
    pub fingerprint: String,
    /// The threshold: so many days before its end; 0: it has expired.
    pub days: u32,
}

/// A certificate that was renewed, and that nodes may still have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Superseded {
    /// The one before.
    pub fingerprint: String,
    /// When it ends.
    pub ends: Timestamp,
}

/// What cannot wait: a certificate that nodes use is about to expire, or has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Urgent {
    /// The asset.
    pub certificate: String,
    /// When the one ends that is in use.
    pub ends: Timestamp,
    /// It has expired: the API may be down, and kubelets locked out.
    pub expired: bool,
}

impl Urgent {
    /// Why windows and approval are overridden, in words.
    #[must_use]
    pub fn words(&self) -> String {
        let verb = if self.expired { "expired" } else { "expires" };
        format!(
            "{} {verb} {}: this waits for neither approval nor a maintenance window (rolloutBeforeExpiry.emergencyDays)",
            self.certificate, self.ends
        )
    }
}

/// How a certificate stands, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Told {
    /// When it ends.
    pub ends: Timestamp,
    /// What rolls when it is renewed; `None` for an authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Group>,
    /// When it is renewed by itself; `None`: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed_from: Option<Timestamp>,
    /// Where an older one is still in use, and until when that is good.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub older: BTreeMap<String, Timestamp>,
}

impl State {
    /// The current format.
    pub const FORMAT: u32 = 1;

    /// The state of a cluster that was never scanned.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self {
            format: Self::FORMAT,
            at: now,
            announced: BTreeMap::new(),
            superseded: BTreeMap::new(),
            urgent: None,
            certificates: BTreeMap::new(),
            findings: Vec::new(),
        }
    }

    /// This state once `renewals` are in the inventory: what they replaced is out there until nodes have the new.
    #[must_use]
    pub fn renewed(mut self, renewals: &[Renewal]) -> Self {
        for one in renewals.iter().flat_map(|renewal| &renewal.certificates) {
            let before = Superseded { fingerprint: one.fingerprint.clone(), ends: one.ends };
            // Of several that may still be out there the one that ends first counts.
            let kept = self.superseded.entry(one.name.clone()).or_insert_with(|| before.clone());
            if before.ends < kept.ends {
                *kept = before;
            }
        }
        self
    }
}
