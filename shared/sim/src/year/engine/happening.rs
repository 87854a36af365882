//! Scheduled happenings outside of the world.

use slipway_rollout::Order;

use super::super::account::Woken;
use super::super::strikes::Strike;

/// Something that is scheduled, in addition to what the world does by itself.
#[derive(Debug, Clone)]
pub enum Happening {
    /// A function is invoked.
    Invoke {
        /// The function and the event.
        who: Woken,
        /// The number of earlier tries.
        tried: usize,
        /// Whether the event is never lost.
        durable: bool,
    },
    /// A person does something.
    Person(Deed),
    /// A machine dies, or those of a zone.
    Death {
        /// Selects a random machine.
        choice: u64,
        /// The other machines of its zone die, too.
        zone: bool,
    },
    /// A member of etcd raises an alarm.
    Alarm {
        /// Selects a random member.
        choice: u64,
        /// `NOSPACE` or `CORRUPT`.
        kind: &'static str,
    },
    /// Somebody disarms it.
    Disarm,
    /// AWS or another user does something to the world.
    Strike(Strike),
    /// The day's scan.
    Daily,
}

/// What a person does.
#[derive(Debug, Clone, PartialEq)]
pub enum Deed {
    /// Uploads a spec.
    Upload(String),
    /// Uploads the present spec again, because the last rollout did not succeed.
    Again,
    /// Gives an order.
    Say(Order),
    /// Approves the newest plan.
    Approve,
    /// Approves it if the status says that it waits for approval.
    ApproveWaiting,
    /// Has a random machine skipped.
    Skip(u64),
    /// Terminates workers whose drain cannot end, because there is no other worker for their pods.
    TakeDown,
}
