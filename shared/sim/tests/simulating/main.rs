//! Seeded rollouts: small clusters are changed while faults happen, and a checker that does not know the decision observes them.
//!
//! `SLIPWAY_SEEDS` sets the number of seeds (`make simulate SEEDS=10000`), `SLIPWAY_SEED` selects one, and `SLIPWAY_FAULTS` sets its
//! probability of faults.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test may panic")]

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod bugs;
mod deadlines;
mod ends;
mod newer;
mod rare;
mod rolls;
mod seeds;
mod troubles;
mod upgrades;
mod worlds;
mod years;
