//! A world in memory, which behaves as AWS does where Slipway looks, and refuses what it does not model.
//!
//! - [`memory`]: a bucket, a key service, parameters and a bus for tests of the flows, with injected faults and races.
//!
//! Nothing here knows the wall clock or randomness: whoever owns a part of this world owns its time.

pub mod memory;
pub mod mortal;
