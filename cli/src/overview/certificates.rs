//! When the cluster's certificates expire, according to the inventory.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use slipway_credentials::renewal::State;
use slipway_credentials::{Manifest, Origin, policy};

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

/// What happens to a leaf that expires soon, and what its owner has to do. `Err`: it should have been renewed, or is not renewed
/// automatically.
pub(super) fn fate(
    cluster: &str,
    name: &str,
    manifest: Option<&Manifest>,
    scan: Option<&State>,
    now: Timestamp,
) -> Result<String, String> {
    let brought =
        manifest.and_then(|manifest| manifest.assets.get(name)).is_some_and(|entry| match entry.origin {
            Origin::Generated => false,
            Origin::Imported | Origin::Provided => true,
        });
    if brought {
        let (certificate, key) = policy::import_files(name);
        return Err(format!(
            "you issue it: put the new one into import/ beside the spec as {certificate} and {key}, then: slipway apply cluster.yaml \
             --cluster {cluster}"
        ));
    }
    let by_hand = format!("slipway renew {name} --cluster {cluster} --watch");
    let known: Option<&BTreeMap<_, _>> = scan.map(|scan| &scan.certificates);
    match known.and_then(|known| known.get(name)).map(|known| known.renewed_from) {
        Some(Some(from)) if from > now => Ok(format!("nothing: it is renewed by itself from {from}")),
        Some(Some(from)) => Err(format!(
            "it was to be renewed from {from}: the event Renewal Failed, or the scan function's log, says why not; {by_hand}"
        )),
        Some(None) => Err(format!(
            "{by_hand}; certificatesConfiguration.rolloutBeforeExpiry.enabled has it done by itself"
        )),
        None => Err(by_hand),
    }
}
