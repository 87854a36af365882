//! What a roll takes where nothing goes wrong, by the world's own time.

use slipway_sim::year::{Roll, Rolled};

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
        assert!(rolled.calls / 40 <= few.calls / 8, "{which}: {rolled:?}");
        assert!(rolled.invocations / 40 <= few.invocations / 8, "{which}: {rolled:?}");
    }
}
