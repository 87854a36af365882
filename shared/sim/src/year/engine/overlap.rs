//! What happens between two calls of an invocation: another invocation, or time that passes.

use std::sync::{Arc, PoisonError};

use jiff::SignedDuration;

use super::super::account::Woken;
use super::super::rates::Trouble;
use super::{CALLS, Engine, Happening, Midst, Overlap, PAUSES_S, Waker};
use crate::mortal::Life;
use crate::ports::lock;

impl Engine<'_> {
    /// A process that is interrupted by another invocation or by a pause; `None` if it is not interrupted.
    pub(super) fn interrupted(&mut self) -> Option<Life> {
        let (overlaps, pauses) = (self.rates.rate_of(Trouble::Overlaps), self.rates.rate_of(Trouble::Pauses));
        let (twin, now) = (self.account.handle(), self.now());
        if overlaps > 0.0 && self.random.chance(self.faults * overlaps) {
            let (call, overlap) = (self.random.below(CALLS), Arc::clone(&self.overlap));
            let who = self.next_fact().unwrap_or(Woken::Rollout(Waker::Tick));
            return Some(Life::interrupted(call, move || {
                let (before, from) = (twin.state_version(), twin.journal.len());
                // The result does not matter: the event comes again, and so does the tick.
                drop(twin.invoke(&who, &Life::unending(), now, None));
                let of_it = Overlap { acts: from..twin.journal.len(), before, after: twin.state_version() };
                *overlap.lock().unwrap_or_else(PoisonError::into_inner) = Some(of_it);
            }));
        }
        if pauses > 0.0 && self.random.chance(self.faults * pauses) {
            let (call, long) = (self.random.below(CALLS), self.random.seconds(1, PAUSES_S));
            let (until, midst) = (now + SignedDuration::from_secs(long), Arc::clone(&self.midst));
            return Some(Life::interrupted(call, move || {
                let mut world = lock(&twin.world);
                let (acts, before) = (twin.journal.drain(), world.clone());
                world.advance(until);
                let midst_of = Midst { acts, before, after: world.clone() };
                *midst.lock().unwrap_or_else(PoisonError::into_inner) = Some(midst_of);
            }));
        }
        None
    }

    /// The next event on its way that reports something in the world. EventBridge may deliver it twice.
    fn next_fact(&self) -> Option<Woken> {
        self.queue.values().find_map(|happening| {
            let Happening::Invoke { who, .. } = happening else { return None };
            let reports =
                matches!(who, Woken::Stack(_) | Woken::Group(_) | Woken::Interruption(_) | Woken::Command(_));
            reports.then(|| who.clone())
        })
    }
}
