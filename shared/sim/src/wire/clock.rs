//! The time of a world, derived from the wall clock at some speed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::ports::{SharedWorld, lock};
use crate::world::Outgoing;

/// Longest sleep of the driver: a lost wake-up delays an event by at most this time.
const LONGEST_SLEEP: Duration = Duration::from_millis(200);

/// A clock that starts at some time of a world and runs at some speed, or is stopped. Clones are the same clock.
#[derive(Debug, Clone)]
pub struct Clock {
    reading: Arc<Mutex<Reading>>,
    /// Notified when something may be due sooner than before.
    changed: Arc<Notify>,
    speed: f64,
}

/// The time of the clock when it was last read, stopped or started.
#[derive(Debug)]
struct Reading {
    taken: Instant,
    showed: Timestamp,
    stands: bool,
}

impl Clock {
    pub(crate) fn start(base: Timestamp, speed: f64) -> Self {
        let reading = Reading { taken: Instant::now(), showed: base, stands: false };
        Self { reading: Arc::new(Mutex::new(reading)), changed: Arc::default(), speed }
    }

    /// The world's time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.read().showed
    }

    /// Stops the world's time, or starts it again.
    ///
    /// In a world that is hundreds of times as fast as its functions, minutes would pass during one invocation, and ticks would
    /// pile up behind it, more of them on a busier machine. In AWS an invocation takes a moment. If it takes no time at all, no
    /// test depends on the speed of its machine.
    pub fn stand(&self, stands: bool) {
        self.read().stands = stands;
        self.changed.notify_one();
    }

    /// How long it is, on the wall, until a time of the world; none while it stands.
    fn until(&self, at: Timestamp) -> Option<Duration> {
        let reading = self.read();
        let seconds = at.duration_since(reading.showed).as_secs_f64() / self.speed;
        (!reading.stands).then(|| Duration::from_secs_f64(seconds.max(0.0)))
    }

    pub(super) fn called(&self) {
        self.changed.notify_one();
    }

    fn read(&self) -> MutexGuard<'_, Reading> {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if !reading.stands {
            let passed = now.duration_since(reading.taken).as_secs_f64() * self.speed;
            reading.showed += SignedDuration::from_secs_f64(passed);
        }
        reading.taken = now;
        reading
    }
}

/// Advances the world as time passes, and hands out what it sends, until nobody listens any more.
pub(super) async fn drive(world: SharedWorld, clock: Clock, sender: mpsc::UnboundedSender<Outgoing>) {
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
        let wait = next.and_then(|at| clock.until(at)).map_or(LONGEST_SLEEP, |wait| wait.min(LONGEST_SLEEP));
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = clock.changed.notified() => {}
        }
    }
}
