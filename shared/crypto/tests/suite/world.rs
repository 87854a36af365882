//! A bucket and a key service, as one process uses them.

use slipway_sim::memory::{MemoryBucket, MemoryKeys};
use slipway_sim::mortal::{Life, Mortal};

/// The two ports of the flow, as one process uses them.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) bucket: Mortal<MemoryBucket>,
    pub(crate) kms: Mortal<MemoryKeys>,
    life: Life,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::seen_by(Life::unending(), &MemoryBucket::new("assets", "eu-west-1"), &MemoryKeys::new(1))
    }

    fn seen_by(life: Life, bucket: &MemoryBucket, kms: &MemoryKeys) -> Self {
        Self { bucket: life.wrap(bucket), kms: life.wrap(kms), life }
    }

    /// Another process with the same bucket and keys.
    pub(crate) fn process(&self, life: Life) -> Self {
        Self::seen_by(life, &self.bucket, &self.kms)
    }

    /// Another process, which dies at its call number `last` (counted from 0), before or after the call takes effect.
    pub(crate) fn mortal(&self, last: u64, after: bool) -> Self {
        self.process(Life::until(last, after))
    }

    /// Another process, which yields to others as `seed` says.
    pub(crate) fn interrupted(&self, seed: u64) -> Self {
        self.process(Life::yielding(seed))
    }

    /// The number of calls of this process.
    pub(crate) fn calls(&self) -> u64 {
        self.life.calls()
    }
}
