//! In-memory stand-ins for S3, KMS, SSM parameters and EventBridge behind the ports.
//!
//! Each is a cheap handle: clones share one state, so a test keeps one and gives one away. Each journals its calls
//! ([`Journal`]) and can be told to fail ([`Faults`]).

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
