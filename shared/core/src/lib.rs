//! What all of Slipway agrees on: what a cluster is, what a release and its parts are called, and what the functions, the node
//! agent and other systems say to each other.
//!
//! Nothing here, nor in the crates that decide (`slipway-spec`, `slipway-credentials`, `slipway-render`, `slipway-plan`,
//! `slipway-rollout`), knows the clock, randomness, the environment, a file or AWS: time comes in as a [`jiff::Timestamp`],
//! credentials as facts and digests, and what should happen goes out as data.
//!
//! - [`cluster`]: a spec that was checked. [`members`]: how each member of etcd comes up. [`versions`]: which releases there are.
//! - [`keys`]: where things lie in the buckets.
//! - [`release`]: what a spec turns into. [`role`], [`software`], [`digest`], [`canonical`] and [`diff`] are what it is made of.
//! - [`node`]: what a node is told, what it answers, and how it fails. [`drain`]: how one is emptied.
//! - [`deadline`]: until when renewed certificates must have reached the nodes.
//! - [`diagnostic`], [`event`], [`status`] and [`oidc`]: what people and other systems see. [`page`]: in a browser. [`words`]: as people read it.

pub mod canonical;
pub mod cluster;
pub mod deadline;
pub mod diagnostic;
pub mod diff;
pub mod digest;
pub mod drain;
pub mod event;
pub mod keys;
pub mod members;
pub mod node;
pub mod oidc;
pub mod page;
pub mod release;
pub mod role;
pub mod software;
pub mod status;
pub mod versions;
pub mod words;
