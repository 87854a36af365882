//! A bucket that is only read: writes stay in memory.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use slipway_core::digest::sha256_hex;
use slipway_ports::{Bounded, Condition, Head, Object, Objects, PortResult, Put};

/// Reads from the bucket below, unless the object was written here.
#[derive(Debug)]
pub struct Overlay<'b, O> {
    below: &'b O,
    written: Mutex<BTreeMap<String, Vec<u8>>>,
}

impl<'b, O: Objects> Overlay<'b, O> {
    /// A view of `below` that writes nothing there.
    #[must_use]
    pub fn new(below: &'b O) -> Self {
        Self { below, written: Mutex::new(BTreeMap::new()) }
    }

    fn written(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        // Values are inserted as a whole, so the map is consistent even after a panic.
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<O: Objects> Objects for Overlay<'_, O> {
    async fn get(&self, key: &str) -> PortResult<Option<Object>> {
        let written = self.written().get(key).cloned();
        match written {
            Some(bytes) => Ok(Some(Object { etag: sha256_hex(&bytes), bytes, version: String::new() })),
            None => self.below.get(key).await,
        }
    }

    async fn get_at_most(&self, key: &str, most: u64) -> PortResult<Option<Bounded>> {
        if self.written().contains_key(key) {
            return Ok(self.get(key).await?.map(|object| object.within(most)));
        }
        self.below.get_at_most(key, most).await
    }

    async fn get_version(&self, key: &str, version: &str) -> PortResult<Option<Object>> {
        self.below.get_version(key, version).await
    }

    async fn head(&self, key: &str) -> PortResult<Option<Head>> {
        let written = self.written().get(key).map(|bytes| (bytes.len() as u64, sha256_hex(bytes)));
        match written {
            Some((size, etag)) => Ok(Some(Head { version: String::new(), size, etag })),
            None => self.below.head(key).await,
        }
    }

    async fn put(&self, key: &str, bytes: Vec<u8>, condition: Condition) -> PortResult<Put> {
        let stored = self.get(key).await?.map(|object| object.etag);
        let holds = match &condition {
            Condition::Absent => stored.is_none(),
            Condition::Unchanged(etag) => stored.as_ref() == Some(etag),
            Condition::Always => true,
        };
        if !holds {
            return Ok(Put::Lost);
        }
        let etag = sha256_hex(&bytes);
        self.written().insert(key.to_owned(), bytes);
        Ok(Put::Written(etag))
    }

    fn url(&self, key: &str) -> String {
        self.below.url(key)
    }
}
