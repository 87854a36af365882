//! In-memory stand-ins for S3, KMS, SSM parameters and EventBridge behind the ports.
//!
//! Each is a cheap handle. Clones share one state, so a test can keep one and give one away. Each keeps a journal of its calls
//! ([`Journal`]), and a test can make it fail ([`Faults`]).

mod bucket;
mod bus;
mod crypto;
mod faults;
mod keys;
mod parameters;
mod registry;

pub use bucket::MemoryBucket;
pub use bus::MemoryBus;
pub use crypto::SeededCrypto;
pub use faults::{Call, Fault, Faults, Journal};
pub use keys::{MemoryKeys, OWN_KEY};
pub use parameters::MemoryParameters;
pub use registry::MemoryRegistry;
