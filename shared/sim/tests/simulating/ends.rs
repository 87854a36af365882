//! A cluster that is destroyed, during a rollout or after it, and sometimes the destruction is aborted.

use slipway_sim::year::{People, SIZES, Trial};

use super::seeds::{Case, all_end_well, base, rates, report};

/// The trials of [`super::seeds`], with a person who destroys the cluster.
fn every_seed_ends_well(people: People) {
    all_end_well(&format!("{people:?}"), SIZES as u64, false, |seed| {
        let faults = [0.0, 0.05, 0.02, 0.1][(seed as usize + seed as usize / SIZES) % 4];
        let trial = Trial { people, rates: rates(), ..Trial::new(seed, faults) };
        Case { trial, base: base(trial.base()), on: String::new() }
    });
}

/// The checker checks the order of deletions, and that there is a last snapshot; at the end it searches for remains.
#[test]
fn p8_of_a_cluster_that_is_taken_away_nothing_is_left_and_its_last_snapshot_lies_there_whatever_goes_wrong() {
    every_seed_ends_well(People::Destroy);
}

#[test]
fn p10_a_cluster_that_is_to_stay_after_all_comes_back_whole_by_another_upload_whatever_goes_wrong() {
    every_seed_ends_well(People::DestroyAndAbort);
}

#[test]
fn p8_destructions_that_once_ended_badly_end_well() {
    for (people, seed, faults) in [
        // A booting member wrote its record after another member had deleted it, and its zone could not be deleted.
        (People::Destroy, 24, 0.0),
        (People::DestroyAndAbort, 837, 0.0),
        // The next rollout deleted the rest of a failed creation, which counted against an aborted order.
        (People::DestroyAndAbort, 469, 0.1),
        // The destruction deleted a pool that the spec no longer had, which counted against the removal that the destruction had ended.
        (People::Destroy, 2334, 0.1),
        (People::Destroy, 2808, 0.0),
        // A removal was aborted when nothing was left to do.
        (People::DestroyAndAbort, 1381, 0.1),
        // The group of the removed pool retained a machine that a person has to drain.
        (People::DestroyAndAbort, 2340, 0.02),
    ] {
        let trial = Trial { people, ..Trial::new(seed, faults) };
        let verdict = trial.run(base(trial.base()), None);
        assert_eq!(verdict.violations, [], "{}", report(trial, &verdict));
    }
}
