//! A bucket that is only read: writes stay in memory.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use slipway_core::digest::sha256_hex;
use slipway_ports::{Condition, Head, Object, Objects, PortResult, Put};

/// Reads from the bucket below, unless the object was written here.
#[derive(Debug)]
pub(crate) struct Overlay<O> {
    below: O,
    written: Mutex<BTreeMap<String, Vec<u8>>>,
}

impl<O: Objects> Overlay<O> {
    pub(crate) fn new(below: O) -> Self {
        Self { below, written: Mutex::new(BTreeMap::new()) }
    }

    fn written(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        // Values are inserted as a whole, so the map is consistent even after a panic.
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<O: Objects> Objects for Overlay<O> {
    async fn get(&self, key: &str) -> PortResult<Option<Object>> {
        let written = self.written().get(key).cloned();
        match written {
            Some(bytes) => Ok(Some(Object { etag: sha256_hex(&bytes), bytes, version: String::new() })),
            None => self.below.get(key).await,
        }
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
        if !super::holds(&condition, stored.as_deref()) {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::Folder;
    use super::*;

    #[tokio::test]
    async fn nothing_below_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let overlay = Overlay::new(Folder::new(dir.path(), "a"));
        assert!(matches!(
            overlay.put("clusters/a/x", b"1".to_vec(), Condition::Absent).await.unwrap(),
            Put::Written(_)
        ));
        assert_eq!(overlay.put("clusters/a/x", b"2".to_vec(), Condition::Absent).await.unwrap(), Put::Lost);
        assert_eq!(overlay.get("clusters/a/x").await.unwrap().unwrap().bytes, b"1");
        assert_eq!(overlay.head("clusters/a/x").await.unwrap().unwrap().size, 1);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
