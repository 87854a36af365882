//! A newer spec comes in the middle of a rollout: another change on top of the first one, or the spec from before it.

use std::collections::BTreeMap;

use slipway_sim::year::{Base, Change, People, SIZES, Trial};

use super::seeds::{Case, all_end_well, rates};

/// The changes whose rollouts are overtaken, in turns.
const OVERTAKEN: [Change; 9] = [
    Change::Fewer,
    Change::More,
    Change::Members,
    Change::Controllers,
    Change::Workers,
    Change::Removal,
    Change::AdditionAndRoll,
    Change::Upgrade,
    Change::Renew,
];

/// The cluster and the change of the seed number `seed`.
fn kind(seed: u64) -> (usize, Change) {
    let turn = seed as usize / 2;
    let (shape, change) = (turn / OVERTAKEN.len() % SIZES, OVERTAKEN[turn % OVERTAKEN.len()]);
    // No spec may have seven members.
    (shape, if (shape, change) == (5, Change::More) { Change::All } else { change })
}

/// Members that have left etcd while the newer spec comes still lose their stack, and nothing waits for ever.
#[test]
fn p3_p4_p5_a_spec_that_comes_in_the_middle_of_a_rollout_is_what_the_cluster_ends_as_whatever_goes_wrong() {
    let bases: BTreeMap<(usize, Change), Base> = (0..2 * (OVERTAKEN.len() * SIZES) as u64)
        .map(kind)
        .map(|(shape, change)| ((shape, change), Base::with(shape, change)))
        .collect();
    all_end_well("a newer spec", 108, false, |seed| {
        let (shape, change) = kind(seed);
        let faults = [0.0, 0.02, 0.0, 0.05][(seed / 108 % 4) as usize];
        // Nothing goes back a minor of Kubernetes.
        let goes_back = seed % 2 == 1 && change != Change::Upgrade;
        let people = if goes_back { People::Back } else { People::Newer };
        let trial = Trial { people, rates: rates(), ..Trial::new(seed, faults) };
        Case { trial, base: &bases[&(shape, change)], on: format!("SLIPWAY_WITH={shape}/{change:?} ") }
    });
}
