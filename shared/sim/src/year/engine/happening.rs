//! What happens at a time, besides what the world does by itself.

use slipway_rollout::Order;

use super::super::account::Woken;
use super::super::trouble::Strike;

/// Something that happens at a time, besides what the world does by itself.
#[derive(Debug, Clone)]
pub enum Happening {
    /// A function is invoked.
    Invoke {
        /// Whom, by what.
        who: Woken,
        /// How often that was tried before.
        tried: usize,
        /// Whether what wakes it is never lost.
        durable: bool,
    },
    /// A person does something.
    Person(Deed),
    /// A machine dies, or those of a zone.
    Death {
        /// By chance: which.
        choice: u64,
        /// The others of its zone die with it.
        zone: bool,
    },
    /// A member of etcd raises an alarm.
    Alarm {
        /// By chance: which.
        choice: u64,
        /// `NOSPACE` or `CORRUPT`.
        kind: &'static str,
    },
    /// Somebody disarms it.
    Disarm,
    /// AWS, or somebody with the rights, does something to the world.
    Strike(Strike),
    /// The day's scan.
    Daily,
}

/// What a person does.
#[derive(Debug, Clone, PartialEq)]
pub enum Deed {
    /// Uploads a spec.
    Upload(String),
    /// Uploads the spec again that is there, since the last rollout did not end well.
    Again,
    /// Tells the rollout something.
    Say(Order),
    /// Approves the plan that is wished.
    Approve,
    /// Approves it if it is told to wait for that.
    ApproveWaiting,
    /// Has a machine skipped, by chance.
    Skip(u64),
    /// Takes down workers that are on their way out and that no drain can empty: there is no other worker for their pods.
    TakeDown,
}
