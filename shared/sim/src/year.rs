//! The life of a cluster, simulated: an [`Account`] with the real flows of `slipway_flows` on a virtual clock, an [`Engine`] that
//! delivers events to them and lets things go wrong, and a [`Checker`] that judges the result without knowing how the flows decide.
//!
//! One seed gives one transcript, byte for byte: keys are made from the seed, too, and no order depends on anything else.

mod account;
mod acts;
mod base;
mod bill;
mod check;
mod engine;
mod imports;
mod lives;
mod meddle;
mod people;
mod picture;
mod random;
mod rates;
mod roll;
mod rules;
mod shapes;
mod skew;
mod strikes;
mod trial;
mod trouble;
mod validity;
mod whole;
mod worlds;

pub use account::{Account, Cause, FUNCTION, Woken, publish_agent};
pub use acts::{Act, Journal};
pub use base::Base;
pub use bill::{Bill, Usage, prices};
pub use check::{Checker, Violation};
pub use engine::{Deed, Engine, Happening, Tally};
pub use lives::Lifetime;
pub use meddle::Meddler;
pub use random::Random;
pub use rates::{Rates, Trouble};
pub use roll::{Roll, Rolled};
pub use rules::Rules;
pub use shapes::{BASES, Change, SIZES, Shape};
pub use skew::Skew;
pub use strikes::Strike;
pub use trial::{People, Surely, Trial, Verdict};
pub use validity::Validity;
pub use whole::{Chronicle, Refused, Year};
pub use worlds::{Found, Path, Small, Turn};
