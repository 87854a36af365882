//! Another minor of Kubernetes and of etcd, with whatever goes wrong.

use slipway_sim::year::{Base, Change, SIZES, Trial};

use super::seeds::number;

/// As [`super::seeds`]' trials, each on a cluster that is about to go from 1.36 to 1.37 and from etcd 3.6 to 3.7. The checker holds the
/// versions of all machines against each other after every event.
#[test]
fn p4_p5_between_two_minors_no_kubelet_is_newer_than_an_api_server_whatever_goes_wrong() {
    let seeds = number("SLIPWAY_SEEDS").map_or(6, |seeds| seeds as u64);
    let bases: Vec<Base> = (0..SIZES).map(|shape| Base::with(shape, Change::Upgrade)).collect();
    for (seed, base) in (0..seeds).zip(bases.iter().cycle()) {
        let faults = [0.0, 0.05, 0.02, 0.1][(seed as usize + seed as usize / SIZES) % 4];
        let verdict = Trial { seed, faults }.run(base, None);
        let told: Vec<String> =
            verdict.transcript.iter().rev().take(60).rev().map(|(at, line)| format!("{at} {line}")).collect();
        assert!(
            verdict.violations.is_empty(),
            "seed {seed}, {faults}: {:#?}\n{}",
            verdict.violations,
            told.join("\n")
        );
        if faults == 0.0 {
            assert_eq!(verdict.first, "succeeded", "{}", told.join("\n"));
        }
    }
}
