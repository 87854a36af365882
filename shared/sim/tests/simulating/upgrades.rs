//! What goes in an order of its own, with whatever goes wrong: another minor of Kubernetes and of etcd, and fewer members and controllers.

use slipway_sim::year::{Base, Change, SIZES, Trial};

use super::seeds::number;

/// As [`super::seeds`]' trials, each on a cluster of another size that is about to be changed so.
fn every_seed_ends_well(change: Change) {
    let seeds = number("SLIPWAY_SEEDS").map_or(SIZES as u64, |seeds| seeds as u64);
    let bases: Vec<Base> = (0..SIZES).map(|shape| Base::with(shape, change)).collect();
    for (seed, base) in (0..seeds).zip(bases.iter().cycle()) {
        let faults = [0.0, 0.05, 0.02, 0.1][(seed as usize + seed as usize / SIZES) % 4];
        let verdict = Trial::new(seed, faults).run(base, None);
        let told: Vec<String> =
            verdict.transcript.iter().rev().take(60).rev().map(|(at, line)| format!("{at} {line}")).collect();
        let told = told.join("\n");
        assert!(verdict.violations.is_empty(), "seed {seed}, {faults}: {:#?}\n{told}", verdict.violations);
        if faults == 0.0 {
            assert_eq!(verdict.first, "succeeded", "seed {seed}: {told}");
        }
    }
}

/// From 1.36 to 1.37, and from etcd 3.6 to 3.7. The checker holds the versions of all machines against each other after every event.
#[test]
fn p4_p5_between_two_minors_no_kubelet_is_newer_than_an_api_server_whatever_goes_wrong() {
    every_seed_ends_well(Change::Upgrade);
}

/// From 5 members to 3 and from 3 to 1, with one controller fewer where there are several.
#[test]
fn p4_p5_members_and_controllers_that_are_too_many_go_one_at_a_time_whatever_goes_wrong() {
    every_seed_ends_well(Change::Fewer);
}
