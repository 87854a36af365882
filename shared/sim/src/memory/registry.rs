//! A registry of container images in memory.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use slipway_core::digest::sha256_hex;
use slipway_ports::{PortResult, Registry};

use super::faults::{Faults, Journal, call, lock};

/// A registry that has every image, and a publisher that has a checksum for every file, except for those that a test removes. The
/// content of an image is its name, so the digest is that of the name.
#[derive(Debug, Clone, Default)]
pub struct MemoryRegistry {
    gone: Arc<Mutex<BTreeSet<String>>>,
    journal: Journal,
    faults: Faults,
}

impl MemoryRegistry {
    /// Removes an image or a text.
    pub fn remove(&self, reference: &str) {
        lock(&self.gone).insert(reference.to_owned());
    }

    /// The calls that the registry received: `oci:HeadManifest`, by reference; `https:Get`, by URL.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Plans faults. The subject of a fault is a reference.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }
}

impl Registry for MemoryRegistry {
    async fn digest(&self, reference: &str) -> PortResult<Option<String>> {
        call(&self.journal, &self.faults, "oci:HeadManifest", reference, || {
            let gone = lock(&self.gone).contains(reference);
            Ok((!gone).then(|| format!("sha256:{}", sha256_hex(reference.as_bytes()))))
        })
    }

    async fn text(&self, url: &str) -> PortResult<Option<String>> {
        call(&self.journal, &self.faults, "https:Get", url, || {
            let gone = lock(&self.gone).contains(url);
            Ok((!gone).then(|| format!("{}\n", sha256_hex(url.as_bytes()))))
        })
    }
}
