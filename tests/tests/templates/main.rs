//! Every template that `examples/` renders to, checked by programs of others: AWS' own linter, a shell, a simulated CloudFormation, moto.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test may panic")]

mod changes;
mod emulated;
mod lint;
mod manifests;
mod userdata;
