//! The node agent with moto, and with a server whose answers a test chooses.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test may panic")]

mod aws;
mod bootstrap;
mod configs;
mod leaving;
mod pruning;
mod pulling;
mod repairing;
mod retiring;
mod scripted;
mod silent_storage;
mod storage;
mod userdata;
