//! The validity of certificates, read from the inventory: the digest of a machine's bundle says which certificates it uses.

use std::collections::BTreeMap;

use jiff::Timestamp;
use slipway_core::role::Role;
use slipway_credentials::Manifest;

use crate::world::{MachineFacts, Power};

/// By the digest of a bundle: when the first of its certificates expires.
#[derive(Debug, Clone, Default)]
pub struct Validity {
    ends: BTreeMap<String, Timestamp>,
}

impl Validity {
    /// Records the certificates of each bundle for machines.
    pub fn knows(&mut self, manifest: &Manifest) {
        for (role, bundle) in &manifest.bundles {
            if *role == Role::Admin || self.ends.contains_key(&bundle.digest) {
                continue;
            }
            let inside = manifest
                .assets
                .values()
                .filter(|entry| bundle.files.values().any(|files| files.contains(&entry.fingerprint)));
            let end = inside.filter_map(|entry| Some(entry.certificate.as_ref()?.not_after)).min();
            if let Some(end) = end {
                self.ends.insert(bundle.digest.clone(), end);
            }
        }
    }

    /// Among the machines that run and stay, the one whose certificates in use expire first, and when.
    pub(super) fn nearest<'m>(
        &self,
        machines: impl Iterator<Item = &'m MachineFacts>,
    ) -> Option<(Timestamp, &'m MachineFacts)> {
        let stays = machines.filter(|one| !one.leaving && one.power == Power::Up);
        let ends = stays.filter_map(|one| Some((*self.ends.get(&one.credentials)?, one)));
        ends.min_by_key(|(end, _)| *end)
    }
}
