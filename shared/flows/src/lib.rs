//! The flows: load → observe → decide → store → perform, and the ports that they use.
//!
//! Production (`slipway-aws`), the command line (`slipway`, a local directory) and the simulator (`slipway-sim`) each implement
//! [`slipway_ports`] and [`ports`]. The flows are the same code for all three.
//!
//! - [`rendering`]: after the upload of a spec. Ends with a plan on the bus, or with findings.
//! - [`patches`]: the patches beside the spec.
//! - [`credentials`] and [`lock`]: credentials, images and releases, as rendering needs them.
//! - [`imports`]: authorities and leaves that the user provides.
//! - [`environment`]: the settings of the functions.
//! - [`rollout`]: when a rollout is woken. Takes the next safe step.
//! - [`scan`]: the daily check of a cluster's certificates. Renews those that are due.
//! - [`overlay`]: a bucket that is only read.
//! - [`store`]: JSON objects with conditional writes.

pub mod credentials;
pub mod environment;
pub mod error;
pub mod imports;
pub mod issuer;
pub mod lock;
pub mod overlay;
pub mod patches;
pub mod ports;
pub mod recovery;
pub mod rendering;
pub mod rollout;
pub mod scan;
pub mod store;

pub use error::{FlowError, FlowResult};
