//! An AWS in memory. It behaves as AWS does in everything that Slipway uses, and refuses what it does not model.
//!
//! - [`world`]: CloudFormation, EventBridge Scheduler, Auto Scaling with machines and the programs on them, and Run Command. It is
//!   asynchronous, and its owner provides the clock.
//! - [`ports`]: the world behind the ports, for flows in the same process.
//! - [`wire`]: the world as HTTP endpoints on the loopback address, in AWS' own protocols, for unmodified programs.
//! - [`memory`]: a bucket, a key service, parameters and a bus for tests of the flows, with injected faults and races.
//! - [`mortal`]: ports that die at a chosen call.
//! - [`year`]: an account that runs the real flows on a virtual clock, with faults and orders, and a checker of its own that judges
//!   what the flows do.
//!
//! Nothing here reads the wall clock or uses real randomness: the owner of a part provides its time and its seed.

// Without the feature `wire`, the functions that only the servers use are dead code. A build with the feature finds real dead code.
#![cfg_attr(not(feature = "wire"), allow(dead_code, unused_imports, reason = "asked on the wire alone"))]

pub mod memory;
pub mod mortal;
pub mod ports;
mod schema;
#[cfg(feature = "wire")]
pub mod wire;
pub mod world;
pub mod year;

pub use schema::type_names;
pub use world::{
    BusEvent, ClusterFacts, Config, Delegated, DocumentFacts, DrainFacts, Ended, Fate, FleetFaults,
    GroupFacts, Launch, Loss, MachineFacts, MemberFacts, Outgoing, Phase, Power, World, documents,
};
