//! When the cluster's certificates expire, according to the inventory.

use jiff::Timestamp;
use serde::Serialize;
use slipway_credentials::Manifest;

use super::words::days_left;

/// When a certificate expires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Expiry {
    /// Its name in the inventory.
    pub(crate) name: String,
    pub(crate) not_after: Timestamp,
    pub(crate) days_left: i64,
    pub(super) serial: String,
    /// Whether it is an authority.
    pub(crate) authority: bool,
}

/// All certificates, those that expire first first.
pub(super) fn expiries(manifest: &Manifest, now: Timestamp) -> Vec<Expiry> {
    let facts = manifest.assets.iter().filter_map(|(name, entry)| Some((name, entry.certificate.as_ref()?)));
    let authority = |fingerprint: &str| {
        let mut issued = manifest.assets.values().filter(|entry| entry.fingerprint != fingerprint);
        issued.any(|entry| {
            entry.certificate.as_ref().is_some_and(|facts| facts.issuer_fingerprint == fingerprint)
        })
    };
    let mut expiries: Vec<Expiry> = facts
        .map(|(name, facts)| Expiry {
            name: name.clone(),
            not_after: facts.not_after,
            days_left: days_left(facts.not_after, now),
            serial: facts.serial.clone(),
            authority: manifest.assets.get(name).is_some_and(|entry| authority(&entry.fingerprint)),
        })
        .collect();
    expiries.sort_by(|one, other| (one.not_after, &one.name).cmp(&(other.not_after, &other.name)));
    expiries
}
