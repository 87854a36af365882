//! `clusters/<name>/scan.json`: which certificates were announced, and the state of all at the last scan.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Finding, Group, Renewal};

/// What a scan keeps for the next scan, for the render function, and for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct State {
    /// [`State::FORMAT`].
    pub format: u32,
    /// When the cluster was scanned.
    pub at: Timestamp,
    /// The last announcements, by asset.
    #[serde(default)]
    pub announced: BTreeMap<String, Announced>,
    /// Certificates that were renewed and may still be in use, by asset.
    #[serde(default)]
    pub superseded: BTreeMap<String, Superseded>,
    /// The certificate whose renewal overrides windows and approval, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub urgent: Option<Urgent>,
    /// All certificates in use, by asset.
    #[serde(default)]
    pub certificates: BTreeMap<String, CertificateStatus>,
    /// The problems that a person has to resolve.
    #[serde(default)]
    pub findings: Vec<Finding>,
}

/// The last announcement about a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Announced {
    /// The fingerprint of the certificate that was announced; its successor starts without announcements.
    pub fingerprint: String,
    /// The threshold in days before it expires; 0: it has expired.
    pub days: u32,
}

/// A certificate that was renewed and that nodes may still use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Superseded {
    /// The fingerprint of the replaced certificate.
    pub fingerprint: String,
    /// When it expires.
    pub ends: Timestamp,
}

/// A certificate that nodes use and that has expired or expires soon, so that its renewal cannot wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Urgent {
    /// The asset.
    pub certificate: String,
    /// When the certificate in use expires.
    pub ends: Timestamp,
    /// Whether it has expired: the API may be down and kubelets rejected.
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

/// The state of a certificate, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CertificateStatus {
    /// When it expires.
    pub ends: Timestamp,
    /// The group that it is renewed with. `None`: an authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Group>,
    /// When it is renewed automatically. `None`: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed_from: Option<Timestamp>,
    /// Where older certificates are still in use, and when each expires.
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

    /// The state after `renewals` were written to the inventory: the replaced certificates may be in use until nodes have the new ones.
    #[must_use]
    pub fn renewed(mut self, renewals: &[Renewal]) -> Self {
        for one in renewals.iter().flat_map(|renewal| &renewal.certificates) {
            let before = Superseded { fingerprint: one.fingerprint.clone(), ends: one.ends };
            // If several may still be in use, the one that expires first counts.
            let kept = self.superseded.entry(one.name.clone()).or_insert_with(|| before.clone());
            if before.ends < kept.ends {
                *kept = before;
            }
        }
        self
    }
}
