//! A bell that wakes the router: rung when a queue may have messages, answered when all messages have been delivered.

use std::sync::Arc;

use tokio::sync::watch;

/// A bell that knows whether its last ring was answered. Clones are the same bell.
#[derive(Debug, Clone)]
pub struct Bell(Arc<watch::Sender<Rings>>);

/// The number of rings, and the number of the last ring that was answered.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rings {
    rung: u64,
    answered: u64,
}

impl Rings {
    /// Whether a ring is unanswered, so that a message may be on its way.
    #[must_use]
    pub fn open(self) -> bool {
        self.answered < self.rung
    }
}

impl Default for Bell {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Rings::default())))
    }
}

impl Bell {
    /// Rings the bell: a queue may have a new message.
    pub fn ring(&self) {
        self.0.send_modify(|rings| rings.rung += 1);
    }

    /// The present state.
    #[must_use]
    pub fn rings(&self) -> Rings {
        *self.0.borrow()
    }

    /// The state of [`Bell::rings`] as it changes.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Rings> {
        self.0.subscribe()
    }

    /// Waits for an unanswered ring.
    pub(crate) async fn rung(&self) {
        // The sender lives in `self`: the channel cannot close here.
        let _ = self.0.subscribe().wait_for(|rings| rings.open()).await;
    }

    /// Answers all rings up to `then`: the messages of that time have been delivered.
    pub(crate) fn answer(&self, then: Rings) {
        self.0.send_modify(|rings| rings.answered = rings.answered.max(then.rung));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_rung_meanwhile_is_not_answered_with_it() {
        let bell = Bell::default();
        assert!(!bell.rings().open());
        bell.ring();
        let then = bell.rings();
        bell.ring();
        bell.answer(then);
        assert!(bell.rings().open());
        bell.answer(bell.rings());
        assert!(!bell.rings().open());
    }
}
