//! The bell of the buses: rung when something may lie in a queue, answered when all that lay there has been brought.

use std::sync::Arc;

use tokio::sync::watch;

/// A bell that remembers whether it was answered. Clones are the same bell.
#[derive(Debug, Clone)]
pub struct Bell(Arc<watch::Sender<Rings>>);

/// How often it was rung, and up to which ring all was brought.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rings {
    rung: u64,
    answered: u64,
}

impl Rings {
    /// Whether something may be on its way.
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
    /// Something may have come to lie in a queue.
    pub fn ring(&self) {
        self.0.send_modify(|rings| rings.rung += 1);
    }

    /// How it stands.
    #[must_use]
    pub fn rings(&self) -> Rings {
        *self.0.borrow()
    }

    /// [`Bell::rings`], as they change.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Rings> {
        self.0.subscribe()
    }

    /// Waits for a ring that is not answered.
    pub(crate) async fn rung(&self) {
        // The sender lives in `self`: the channel cannot close here.
        let _ = self.0.subscribe().wait_for(|rings| rings.open()).await;
    }

    /// All that lay in the queues when it was so has been brought.
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
