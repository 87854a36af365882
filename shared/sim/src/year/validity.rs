//! The validity of certificates, read from the certificates themselves: the digest of a machine's bundle says which ones it uses. Of the
//! inventory only the fingerprints are read, because urgency is computed from what else it says.

use std::collections::BTreeMap;

use jiff::Timestamp;
use slipway_core::keys;
use slipway_core::role::Role;
use slipway_credentials::Manifest;

use crate::world::{MachineFacts, Power};

/// By the digest of a bundle: when the first of its certificates expires.
#[derive(Debug, Clone, Default)]
pub struct Validity {
    ends: BTreeMap<String, Timestamp>,
}

impl Validity {
    /// Records the certificates of each bundle for machines. `not_after` reads the certificate of that key in the assets' bucket.
    pub fn knows(
        &mut self,
        cluster: &str,
        manifest: &Manifest,
        not_after: impl Fn(&str) -> Option<Timestamp>,
    ) {
        for (role, bundle) in &manifest.bundles {
            if *role == Role::Admin || self.ends.contains_key(&bundle.digest) {
                continue;
            }
            let inside = manifest.assets.iter().filter(|(_, entry)| {
                entry.certificate.is_some()
                    && bundle.files.values().any(|files| files.contains(&entry.fingerprint))
            });
            // One that cannot be read counts as expired.
            let ends = inside.map(|(asset, entry)| {
                not_after(&keys::public_half(cluster, asset, &entry.fingerprint)).unwrap_or(Timestamp::MIN)
            });
            let end = ends.min();
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
