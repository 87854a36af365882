//! A world in memory, which behaves as AWS does where Slipway looks, and refuses what it does not model.
//!
//! - [`world`]: CloudFormation, EventBridge Scheduler, Auto Scaling with machines and what runs on them, and Run Command;
//!   asynchronous, on whatever clock its owner has.
//! - [`ports`]: the world behind the ports, for flows in one process.
//! - [`wire`]: the world on loopback, in AWS' own protocols, for unmodified programs.
//! - [`memory`]: a bucket, a key service, parameters and a bus for tests of the flows, with injected faults and races.
//! - [`mortal`]: ports that die at a chosen call.
//! - [`year`]: an account with the real flows on a virtual clock, what befalls it, and a check of its own of what they do.
//!
//! Nothing here knows the wall clock or randomness: whoever owns a part of this world owns its time.

// What only the servers of the world ask is found to be dead with them: by the build that has them.
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
