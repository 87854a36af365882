//! Rare changes of a cluster: a pool is removed or added, pools have many machines, members of etcd join, certificates are about to expire.

use slipway_sim::year::{Change, People, Surely, Trial};

use super::seeds::{Case, all_end_well, base, rates, report, trial};

/// The trials of [`super::seeds`], with these clusters in turns and that change.
fn every_seed_ends_well(change: Change, shapes: &[usize]) {
    all_end_well(&format!("{change:?}"), 2 * shapes.len() as u64, true, |seed| {
        let faults = [0.0, 0.05, 0.02, 0.1][(seed as usize + seed as usize / shapes.len()) % 4];
        let shape = shapes[seed as usize % shapes.len()];
        let trial = Trial { rates: rates(), ..Trial::on(seed, faults, shape, change) };
        Case { trial, base: base(trial.base()), on: format!("SLIPWAY_ON={shape}/{change:?} ") }
    });
}

/// These seeds found mistakes, each with these faults.
fn seeds_break_no_promise(change: Change, shape: usize, seeds: &[(u64, f64)]) {
    for (seed, faults) in seeds {
        let trial = Trial { rates: rates(), ..Trial::on(*seed, *faults, shape, change) };
        let verdict = trial.run(base(trial.base()), None);
        assert_eq!(verdict.violations, [], "{}", report(trial, &verdict));
    }
}

/// The checker checks that machines are empty before they are terminated; at the end it searches for remains.
#[test]
fn p6_a_pool_that_left_the_spec_is_emptied_and_goes_with_its_stack_whatever_goes_wrong() {
    every_seed_ends_well(Change::Removal, &[1, 2, 5, 7]);
    // A pause in the same second as a resume was received by a function whose clock was behind, and counted as the older of the two.
    seeds_break_no_promise(Change::Removal, 2, &[(1_433, 0.1)]);
}

/// Pools of three zones, in which two workers may be missing, and whose drains use force after a while.
#[test]
fn p6_pools_of_several_zones_are_rolled_two_at_a_time_whatever_goes_wrong() {
    every_seed_ends_well(Change::Workers, &[12, 13]);
    // A surplus worker died, and Auto Scaling terminated it before the call that was to shrink the group. Late answers showed dead workers in
    // service, and the next ones did not, before the drain of another one was requested. An autoscaler made a group larger during a pause.
    seeds_break_no_promise(Change::Workers, 12, &[(62, 0.05), (298, 0.1), (442, 0.1)]);
    seeds_break_no_promise(Change::Workers, 13, &[(637, 0.1)]);
}

/// One pool after the other; the surge is two, or half of the workers may be missing, and none may fail.
#[test]
fn p6_pools_with_several_surges_and_shares_are_rolled_in_turn_whatever_goes_wrong() {
    every_seed_ends_well(Change::Workers, &[14]);
    // A worker died two seconds before Auto Scaling put it into service. A late answer showed a group as small as it should become, so that
    // a surplus worker was replaced. The surge was requested in the same decision as a decrement, and undid it.
    seeds_break_no_promise(Change::Workers, 14, &[(141, 0.02), (253, 0.02), (501, 0.02)]);
}

/// Nothing is drained outside of a window, not even to make room after the surge.
#[test]
fn p6_pools_with_a_surge_are_rolled_in_several_windows_whatever_goes_wrong() {
    every_seed_ends_well(Change::Workers, &[20, 21]);
}

/// A pool of Spot machines whose group counts capacity units.
#[test]
fn p6_a_pool_with_weights_is_rolled_whatever_goes_wrong() {
    every_seed_ends_well(Change::Workers, &[15]);
}

/// A pool is added to a cluster that runs. The checker checks that the rollout does not succeed before the workers serve.
#[test]
fn p6_a_pool_that_the_spec_adds_comes_up_beside_the_others_whatever_goes_wrong() {
    every_seed_ends_well(Change::Addition, &[1, 2, 5, 7, 12, 15]);
}

/// A pool is added, and the workers of the other pools are replaced in the same rollout.
#[test]
fn p6_a_pool_is_added_while_the_others_are_rolled_whatever_goes_wrong() {
    every_seed_ends_well(Change::AdditionAndRoll, &[1, 2, 5, 14]);
}

/// Pools of 16 to 24 workers: a quarter of them may be missing, or half, or all, and 22 workers come or go at once.
#[test]
fn p6_pools_of_many_workers_are_rolled_many_at_a_time_whatever_goes_wrong() {
    every_seed_ends_well(Change::Workers, &[16, 17, 18]);
}

/// The hook of a worker that a person had uncordoned after its drain was completed with pods on it, before it was drained again there.
#[test]
fn p6_a_worker_that_a_person_uncordons_goes_without_pods() {
    for seed in [239, 253] {
        let rates = "uncordons=10".parse().unwrap();
        let trial = Trial { rates, ..trial(seed) };
        let verdict = trial.run(base(trial.base()), None);
        assert_eq!(verdict.violations, [], "{}", report(trial, &verdict));
    }
}

/// Pools of 22 workers are added and removed.
#[test]
fn p6_a_pool_of_many_workers_is_added_or_removed_whatever_goes_wrong() {
    every_seed_ends_well(Change::Addition, &[19]);
    every_seed_ends_well(Change::Removal, &[19]);
}

/// From 3 to 5: each is a learner before it votes, and only one at a time is a learner.
#[test]
fn p4_members_join_as_learners_one_at_a_time_whatever_goes_wrong() {
    every_seed_ends_well(Change::More, &[1, 2, 3]);
}

/// The renewal waits for a window of an hour or ten minutes a week, or for an approval that nobody gives, and continues before a
/// certificate expires.
#[test]
fn p7_what_waits_for_a_window_or_a_person_goes_on_in_time_whatever_goes_wrong() {
    every_seed_ends_well(Change::Deadline, &[8, 9, 10, 11]);
}

/// Workers are rolled while the scan renews credentials and their expiry comes near. In every second trial, budgets allow no eviction for
/// 30 hours, so that the roll is still open when nothing may hold up the renewal any more; in every fourth, a person aborts such a roll. Nobody
/// approves the renewal.
#[test]
fn p7_a_renewal_that_comes_while_workers_are_rolled_is_done_in_time_whatever_goes_wrong() {
    const SHAPES: [usize; 6] = [2, 3, 4, 11, 20, 21];
    all_end_well("RollBeforeDeadline", 24, false, |seed| {
        let (turn, shape) = (seed as usize / SHAPES.len(), SHAPES[seed as usize % SHAPES.len()]);
        let faults = [0.0, 0.05, 0.02, 0.1][turn / 2 % 4];
        let surely = if turn % 2 == 0 { Surely::Stuck } else { Surely::Nothing };
        let people = if turn % 4 == 2 { People::Abort } else { People::ByChance };
        let change = Change::RollBeforeDeadline;
        let trial = Trial { people, rates: rates(), surely, ..Trial::on(seed, faults, shape, change) };
        let stuck = if turn % 2 == 0 { "SLIPWAY_STUCK=1 " } else { "" };
        Case { trial, base: base(trial.base()), on: format!("SLIPWAY_ON={shape}/{change:?} {stuck}") }
    });
}

/// No window is open for hours, and nobody has approved the renewal. The checker checks that nothing else is treated as urgent.
#[test]
fn p7_what_is_about_to_end_waits_for_no_window_and_no_approval() {
    every_seed_ends_well(Change::Urgent, &[6, 7]);
    // The second controller was refreshed before the first one served again after its refresh.
    seeds_break_no_promise(Change::Urgent, 7, &[(203, 0.0), (227, 0.0)]);
}
