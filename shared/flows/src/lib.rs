//! The ports through which Slipway reaches the world, and the flows that go through them:
//! load → observe → decide → store → perform.
//!
//! Production (`slipway-aws`), the command line (`slipway`, a directory) and the simulator (`slipway-sim`) each
//! implement [`slipway_ports`] and [`ports`]; the flows are the same code for all three.
//!
//! - [`rendering`]: a spec was uploaded; ends with a plan on the bus, or with diagnostics.
//! - [`patches`]: what lies beside the spec and changes what was rendered.
//! - [`credentials`] and [`lock`]: what rendering calls for keys, certificates, images and releases.
//! - [`imports`]: authorities and leaves that somebody brought.
//! - [`launch`]: a rollout was woken; takes the next safe step.
//! - [`scan`]: a cluster's certificates were to be looked at; renews what is due.
//! - [`store`]: JSON objects under conditional writes.

pub mod credentials;
pub mod error;
pub mod imports;
pub mod issuer;
pub mod launch;
pub mod lock;
pub mod patches;
pub mod ports;
pub mod recovery;
pub mod rendering;
pub mod scan;
pub mod store;

pub use error::{FlowError, FlowResult};
