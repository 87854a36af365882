//! Measures how long a roll takes, compared with its drains and boots alone, and the cost of a decision.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use slipway_rollout::{Decision, Observed, Rollout, decide};
use slipway_sim::year::{Meddler, Roll};

/// Measures every decision and changes none.
#[derive(Debug, Default)]
struct Stopwatch(Mutex<Vec<Duration>>);

impl Meddler for Stopwatch {
    fn decide(&self, rollout: &Rollout, observed: &Observed, now: Timestamp) -> Decision {
        let began = Instant::now();
        let decision = decide(rollout, observed, now);
        let took = began.elapsed();
        if let Ok(mut all) = self.0.lock() {
            all.push(took);
        }
        decision
    }
}

/// The number of workers, how many of them may be missing, and the surge. A single worker needs a surge, because its pods have nowhere else
/// to run.
const SIZES: [(u32, u32, u32); 5] = [(1, 1, 1), (10, 1, 0), (100, 1, 0), (100, 10, 0), (1_000, 20, 0)];

/// How long a roll may take, compared with its floor.
const MOST: f64 = 1.05;

/// Rolls pools of growing size in a world without faults. Fails if one takes too long or breaks a promise.
pub(crate) fn rolls() -> super::Anyhow<()> {
    let mut well = true;
    println!(
        "{:<26} {:>9} {:>9} {:>7} {:>9} {:>9} {:>11} {:>9} {:>9} {:>9}",
        "workers (missing + more)",
        "rolling",
        "floor",
        "ratio",
        "whole",
        "calls",
        "invocations",
        "state",
        "decide",
        "of 100"
    );
    println!(
        "{:<26} {:>9} {:>9} {:>7} {:>9} {:>9} {:>11} {:>9} {:>9} {:>9}",
        "", "min", "min", "≤ 1.05", "min", "a node", "a node", "KiB", "ms", "≤ 5 ms"
    );
    for (workers, max_unavailable, surge) in SIZES {
        let watch = Stopwatch::default();
        let rolled = Roll { workers, max_unavailable, surge }.run(Some(&watch));
        let mut took = watch.0.into_inner().unwrap_or_default();
        took.sort();
        // Other processes take the processor now and then, so the 99th percentile is printed and not the maximum.
        let ms = |at: usize| took.get(at).map_or(f64::NAN, |took| took.as_secs_f64() * 1e3);
        let minutes = |time: SignedDuration| time.as_secs_f64() / 60.0;
        let ratio = rolled.rolling.as_secs_f64() / rolled.floor.as_secs_f64();
        well &= ratio <= MOST && rolled.violations.is_empty();
        let each = |count: u64| count as f64 / f64::from(workers);
        println!(
            "{:<26} {:>9.1} {:>9.1} {:>7.2} {:>9.1} {:>9.1} {:>11.1} {:>9.1} {:>9.2} {:>9.2}",
            format!("{workers} ({max_unavailable} + {surge})"),
            minutes(rolled.rolling),
            minutes(rolled.floor),
            ratio,
            minutes(rolled.whole),
            each(rolled.calls),
            each(rolled.invocations),
            rolled.state as f64 / 1024.0,
            ms(took.len() / 2),
            ms(took.len() * 99 / 100),
        );
        for violation in rolled.violations.iter().take(3) {
            println!("  {} {}: {}", violation.at, violation.promise, violation.what);
        }
    }
    if well {
        return Ok(());
    }
    Err(format!("a roll takes more than {MOST} times its floor, or breaks a promise").into())
}
