//! The node manager with a real API server, controller manager and scheduler: nodes are drained, add-ons are applied, and kubelets'
//! requests are decided. Only the machines are not real ([`fleet`]).
//!
//! Needs `make kubernetes` once; without it each test reports that it tested nothing.
#![allow(clippy::unwrap_used, reason = "tests")]

mod drain;
mod fleet;
mod manage;
