//! What Slipway decides, as pure functions over values.
//!
//! Nothing here knows the clock, randomness, the environment, a file or AWS: time comes in as a
//! [`jiff::Timestamp`], credentials as facts and digests, and what should happen goes out as data.
//!
//! Read in this order:
//! 1. [`spec`] turns the text of a `cluster.yaml` into a checked [`cluster::Cluster`], or into diagnostics.
//!    [`instance_types`] knows what EC2 has.
//! 2. [`lock`] pins what the outside world decides, [`software`] and [`addons`] among it; [`pki`] says which credentials a cluster has.
//! 3. [`render`] makes the CloudFormation stacks and the node configurations, byte for byte the same each time.
//!    [`node`] is what a node is told of it.
//! 4. [`plan`] compares two renderings; the crate `slipway-rollout` decides the next safe steps towards one.
//!    [`drain`] decides how a node is emptied meanwhile.
//! 5. [`renewal`] decides which certificates are issued anew, and what is said of them before.
//! 6. [`event`] and [`status`] are what other systems see of all that; [`page`] is what people see in a browser.

pub mod addons;
pub mod cluster;
pub mod digest;
pub mod drain;
pub mod event;
pub mod instance_types;
pub mod lock;
pub mod members;
pub mod node;
pub mod oidc;
pub mod page;
pub mod patch;
pub mod pki;
pub mod plan;
pub mod render;
pub mod renewal;
pub mod skew;
pub mod software;
pub mod spec;
pub mod status;
pub mod versions;
pub mod words;
