//! Rollouts by the seed: small clusters are changed while things go wrong, and a checker that knows nothing of the decision looks on.
//!
//! `SLIPWAY_SEEDS` says how many (`make simulate SEEDS=10000`), `SLIPWAY_SEED` which one, and `SLIPWAY_FAULTS` how likely things go
//! wrong in it.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test may panic")]

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod bugs;
mod deadlines;
mod ends;
mod rare;
mod rolls;
mod seeds;
mod upgrades;
mod worlds;
mod years;
