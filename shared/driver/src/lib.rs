//! The ports through which Slipway reaches the world, and the flows that go through them:
//! load → observe → decide → store → perform.
//!
//! Production (`slipway-aws`), the command line (`slipway`, a directory) and the simulator (`slipway-sim`) each
//! implement the [`ports`]; the flows are the same code for all three.

pub mod credentials;
pub mod error;
pub mod keys;
pub mod launch;
pub mod lock;
pub mod ports;
pub mod store;

pub use error::{FlowError, FlowResult};
