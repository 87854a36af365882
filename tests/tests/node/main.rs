//! The node agent against moto, and against a server that answers what a test wants.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test may panic")]

mod aws;
mod bootstrap;
mod configs;
mod leaving;
mod retiring;
mod scripted;
mod storage;
mod userdata;
