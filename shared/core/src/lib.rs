//! What all parts of Slipway agree on: the model of a cluster, the names of a release's parts, and the messages between functions, node
//! agent and other systems.
//!
//! Neither this crate nor those that decide (`slipway-spec`, `slipway-credentials`, `slipway-render`, `slipway-plan`, `slipway-rollout`)
//! read the clock, the environment or files, use randomness, or call AWS: time is passed in as a [`jiff::Timestamp`], credentials as
//! facts and digests, and what should happen is returned as data.
//!
//! - [`cluster`]: a validated spec. [`members`]: how each etcd member starts. [`versions`]: the known Kubernetes releases. [`pin`]: the
//!   kinds of what the lock pins.
//! - [`allowed`]: what an installation allows its specs to use.
//! - [`keys`]: the keys of objects in the buckets.
//! - [`release`]: what a spec is rendered into. Its parts are in [`role`], [`software`], [`digest`], [`canonical`] and [`diff`].
//! - [`node`]: configurations, commands, answers and failures of nodes. [`drain`]: how a node is drained. [`repair`]: which workers that
//!   are not Ready are replaced.
//! - [`deadline`]: when renewed certificates must have reached the nodes.
//! - [`snapshots`]: when snapshots of etcd are taken and removed.
//! - [`diagnostic`], [`event`], [`status`] and [`oidc`]: what people and other systems see. [`page`]: HTML pages.
//! - [`words`]: times and counts in words.

pub mod allowed;
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
pub mod pin;
pub mod release;
pub mod repair;
pub mod role;
pub mod snapshots;
pub mod software;
pub mod status;
pub mod versions;
pub mod words;
