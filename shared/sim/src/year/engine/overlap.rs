//! What happens between two calls of an invocation: another invocation, or time that passes.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use jiff::SignedDuration;

use super::super::account::Woken;
use super::super::check::Stops;
use super::super::rates::Trouble;
use super::{CALLS, Engine, Happening, Midst, Overlap, PAUSES_S, Waker};
use crate::mortal::Life;
use crate::ports::lock;

impl Engine<'_> {
    /// A process that is interrupted by another invocation or by a pause; `None` if it is not interrupted.
    pub(super) fn interrupted(&mut self, interrupted: &Woken) -> Option<Life> {
        let (overlaps, pauses) = (self.rates.rate_of(Trouble::Overlaps), self.rates.rate_of(Trouble::Pauses));
        if overlaps > 0.0 && self.random.chance(self.faults * overlaps) {
            let who = self.next_event(!is_order(interrupted)).unwrap_or(Woken::Rollout(Waker::Tick));
            return Some(self.interrupted_by(who));
        }
        let (twin, now) = (self.account.handle(), self.now());
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

    /// A process during which `who` is invoked.
    fn interrupted_by(&mut self, who: Woken) -> Life {
        let (twin, now) = (self.account.handle(), self.now());
        let (call, overlap) = (self.random.below(CALLS), Arc::clone(&self.overlap));
        Life::interrupted(call, move || {
            let (before, from) = (twin.state_version(), twin.journal.len());
            // The event comes again, and so does the tick.
            let succeeded = twin.invoke(&who, &Life::unending(), now, None).is_ok();
            let (acts, after) = (from..twin.journal.len(), twin.state_version());
            let of_it = Overlap { who, acts, before, after, succeeded };
            *overlap.lock().unwrap_or_else(PoisonError::into_inner) = Some(of_it);
        })
    }

    /// A process of a tick during which the order `who` is received; `None` if the order comes between two invocations.
    pub(super) fn interrupted_by_order(&mut self, who: &Woken) -> Option<Life> {
        let overlaps = self.rates.rate_of(Trouble::Overlaps);
        let comes =
            is_order(who) && overlaps > 0.0 && self.random.chance((self.faults * overlaps * 5.0).min(0.5));
        comes.then(|| self.interrupted_by(who.clone()))
    }

    /// The next event on its way that reports something in the world, or that is an order. EventBridge may deliver it twice.
    fn next_event(&self, or_order: bool) -> Option<Woken> {
        self.queue.values().find_map(|happening| {
            let Happening::Invoke { who, .. } = happening else { return None };
            let reports =
                matches!(who, Woken::Stack(_) | Woken::Group(_) | Woken::Interruption(_) | Woken::Command(_));
            (reports || or_order && is_order(who)).then(|| who.clone())
        })
    }

    /// The acts of an invocation and of `overlap` that were decided when only the earlier orders were known, and these orders. `version`
    /// is that of the state when the invocation began, `before` the orders until then, and `after_it` the acts at which the state was as
    /// `overlap` left it.
    pub(super) fn unheard(
        &mut self,
        overlap: &Overlap,
        version: &Option<String>,
        before: Stops,
        after_it: BTreeSet<usize>,
    ) -> Option<(BTreeSet<usize>, Stops)> {
        if !is_order(&overlap.who) {
            // If the interrupted invocation has stored nothing yet, the other one does not know its order.
            return (overlap.before == *version).then(|| (overlap.acts.clone().collect(), before));
        }
        self.transcript.push((self.now(), format!("meanwhile {:?}", overlap.who)));
        let before = self.checker.stops();
        self.order_may_be_received(&overlap.who);
        if !overlap.succeeded && overlap.acts.is_empty() && overlap.before == overlap.after {
            self.checker.order_not_received(before);
            return None;
        }
        // Until it writes its state again, the interrupted invocation does what it decided before the order.
        let later = after_it.into_iter().filter(|act| *act >= overlap.acts.end);
        Some(((0..overlap.acts.start).chain(later).collect(), before))
    }
}

/// Whether it brings the order of a person.
fn is_order(who: &Woken) -> bool {
    matches!(who, Woken::Rollout(Waker::Order { .. }))
}
