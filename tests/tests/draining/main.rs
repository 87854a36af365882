//! The node manager before a real API server, with a real controller manager and a real scheduler: nodes are drained, add-ons are
//! kept, kubelets' requests are judged. Only the machines are not real ([`fleet`]).
//!
//! Needs `make kubernetes` once; without it each test says that it did not test.
#![allow(clippy::unwrap_used, reason = "tests")]

mod drain;
mod fleet;
mod manage;
