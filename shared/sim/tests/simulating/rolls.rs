//! How long a roll takes without faults, in the world's own time.

use jiff::Timestamp;
use slipway_rollout::{Decision, Observed, Rollout, Task, decide};
use slipway_sim::year::{Meddler, Roll, Rolled};

fn rolled(workers: u32, max_unavailable: u32, surge: u32) -> Rolled {
    let rolled = Roll { workers, max_unavailable, surge }.run(None);
    assert_eq!(rolled.violations, [], "{workers} workers, {max_unavailable} missing, {surge} more");
    rolled
}

fn ratio(rolled: &Rolled) -> f64 {
    rolled.rolling.as_secs_f64() / rolled.floor.as_secs_f64()
}

#[test]
fn a_roll_takes_little_more_than_its_drains_and_boots_and_no_more_calls_a_node_where_there_are_more() {
    let (alone, few, many, by_five) = (rolled(1, 1, 1), rolled(8, 1, 0), rolled(40, 1, 0), rolled(40, 5, 0));
    for (which, rolled) in [("alone", &alone), ("few", &few), ("many", &many), ("by five", &by_five)] {
        assert!(ratio(rolled) <= 1.05, "{which}: {rolled:?}");
    }
    assert!(by_five.whole.as_secs_f64() < many.whole.as_secs_f64() / 4.0, "{by_five:?} {many:?}");
    for (which, rolled) in [("many", &many), ("by five", &by_five)] {
        // Each answer of a drain is read together with those of the others that run: a tenth more is no growth.
        assert!(rolled.calls * 8 * 10 <= few.calls * 40 * 11, "{which}: {rolled:?} {few:?}");
        assert!(rolled.invocations / 40 <= few.invocations / 8, "{which}: {rolled:?}");
    }
}

#[test]
fn a_roll_of_a_hundred_workers_takes_little_more_than_its_drains_and_boots_and_no_more_calls_a_node() {
    let (few, many) = (rolled(40, 10, 0), rolled(100, 10, 0));
    assert!(ratio(&many) <= 1.05, "{many:?}");
    // Other ticks fall into the longer roll: a tenth more is no growth.
    assert!(many.calls * 40 <= few.calls * 110, "{few:?} {many:?}");
    assert!(many.invocations * 40 <= few.invocations * 110, "{few:?} {many:?}");
}

/// A meddler that makes the canary count as replaced from the beginning.
#[derive(Debug)]
struct NoCanary;

impl Meddler for NoCanary {
    fn decide(&self, rollout: &Rollout, observed: &Observed, now: Timestamp) -> Decision {
        let mut state = rollout.clone();
        for step in state.active_mut().into_iter().flat_map(|active| &mut active.nodes.steps) {
            if let Task::Workers(workers) = &mut step.task {
                workers.proved = true;
            }
        }
        decide(&state, observed, now)
    }
}

#[test]
fn the_checker_sees_that_the_first_of_a_pool_does_not_go_alone() {
    let rolled = Roll { workers: 8, max_unavailable: 3, surge: 0 }.run(Some(&NoCanary));
    let first = rolled.violations.first().unwrap();
    assert!(first.promise == "P6" && first.what.contains("the first of pool-"), "{first:?}");
}
