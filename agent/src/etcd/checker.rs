//! The check of a snapshot: etcd appends the SHA-256 of the database.

use std::io::{self, Write};

use sha2::{Digest as _, Sha256};
use slipway_core::digest::hex;

const SUM: usize = 32;
/// bbolt's database is a multiple of this.
const PAGE: u64 = 512;

/// Checks a snapshot while it streams through.
#[derive(Debug, Clone, Default)]
pub(super) struct Checker {
    sum: Sha256,
    /// The last bytes so far, which may be the checksum.
    held: Vec<u8>,
    length: u64,
}

/// A snapshot whose checksum is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VerifiedSnapshot {
    /// In bytes, without the checksum.
    pub(super) size: u64,
    pub(super) sha256: String,
}

impl Checker {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
        let known = self.held.len().saturating_sub(SUM);
        self.sum.update(&self.held[..known]);
        self.held.drain(..known);
        self.length += bytes.len() as u64;
    }

    /// The error says what is wrong with the snapshot.
    pub(super) fn finish(self) -> Result<VerifiedSnapshot, String> {
        let size = self.length.saturating_sub(SUM as u64);
        if size == 0 || !size.is_multiple_of(PAGE) {
            return Err(format!("{} bytes cannot be a database with its checksum", self.length));
        }
        let sum = self.sum.finalize();
        if sum.as_slice() != self.held.as_slice() {
            return Err(format!("its SHA-256 is {}, and etcd sent {}", hex(&sum), hex(&self.held)));
        }
        Ok(VerifiedSnapshot { size, sha256: hex(&sum) })
    }
}

impl Write for Checker {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn check(bytes: &[u8], at_once: usize) -> Result<VerifiedSnapshot, String> {
        let mut checker = Checker::default();
        bytes.chunks(at_once).for_each(|part| checker.push(part));
        checker.finish()
    }

    #[test]
    fn a_snapshot_is_whole_if_its_last_bytes_are_the_sum_of_the_others() {
        let database = vec![3; 4096];
        let whole = [database.as_slice(), &Sha256::digest(&database)].concat();
        for at_once in [1, 31, 32, 33, 4096, 5000] {
            let checked = check(&whole, at_once).unwrap();
            assert_eq!((checked.size, checked.sha256), (4096, hex(&Sha256::digest(&database))));
        }
        let mut other = whole.clone();
        other[17] ^= 1;
        assert!(check(&other, 100).unwrap_err().contains("SHA-256"));
        for length in [0, 31, 32, 33, 4096, 4127] {
            check(&whole[..length], 100).unwrap_err();
        }
    }
}
