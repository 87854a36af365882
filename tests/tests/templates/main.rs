//! Every template that `examples/` render to, before whoever knows templates better than we do: AWS' own linter, a
//! shell, a simulated CloudFormation, moto.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test may panic")]

mod changes;
mod emulated;
mod lint;
mod manifests;
mod userdata;
