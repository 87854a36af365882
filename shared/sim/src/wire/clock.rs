//! The wall clock, at a speed, as the world's time.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::ports::{SharedWorld, lock};
use crate::world::Outgoing;

/// Longest sleep of the driver: what is missed by a lost wake-up is only late by this.
const LONGEST_SLEEP: Duration = Duration::from_millis(200);

/// A clock that began at some time of a world and runs at some speed.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    started: Instant,
    base: Timestamp,
    speed: f64,
}

impl Clock {
    pub(crate) fn start(base: Timestamp, speed: f64) -> Self {
        Self { started: Instant::now(), base, speed }
    }

    /// The world's time.
    pub(crate) fn now(&self) -> Timestamp {
        self.base + SignedDuration::from_secs_f64(self.started.elapsed().as_secs_f64() * self.speed)
    }

    /// How long it is, on the wall, until a time of the world.
    fn until(&self, at: Timestamp) -> Duration {
        let seconds = at.duration_since(self.now()).as_secs_f64() / self.speed;
        Duration::from_secs_f64(seconds.max(0.0))
    }
}

/// Advances the world as time passes, and hands out what it sends, until nobody listens any more.
pub(super) async fn drive(
    world: SharedWorld,
    clock: Clock,
    called: Arc<Notify>,
    sender: mpsc::UnboundedSender<Outgoing>,
) {
    loop {
        let (sent, next) = {
            let mut world = lock(&world);
            world.advance(clock.now());
            (world.drain(), world.next_event_at())
        };
        for one in sent {
            if sender.send(one).is_err() {
                return;
            }
        }
        let wait = next.map_or(LONGEST_SLEEP, |at| clock.until(at)).min(LONGEST_SLEEP);
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = called.notified() => {}
        }
    }
}
