//! Changes with an order of their own under faults: another minor of Kubernetes and of etcd, and fewer members and controllers.

use slipway_sim::year::{Base, Change, SIZES, Trial};

use super::seeds::{Case, all_end_well, rates};

/// The trials of [`super::seeds`], with clusters of different sizes and that change.
fn every_seed_ends_well(change: Change) {
    let bases: Vec<Base> = (0..SIZES).map(|shape| Base::with(shape, change)).collect();
    all_end_well(&format!("{change:?}"), SIZES as u64, true, |seed| {
        let shape = seed as usize % SIZES;
        let faults = [0.0, 0.05, 0.02, 0.1][(seed as usize + seed as usize / SIZES) % 4];
        let trial = Trial { rates: rates(), ..Trial::new(seed, faults) };
        Case { trial, base: &bases[shape], on: format!("SLIPWAY_WITH={shape}/{change:?} ") }
    });
}

/// From 1.36 to 1.37, and from etcd 3.6 to 3.7. The checker compares the versions of all machines after every event.
#[test]
fn p4_p5_between_two_minors_no_kubelet_is_newer_than_an_api_server_whatever_goes_wrong() {
    every_seed_ends_well(Change::Upgrade);
}

/// From 5 members to 3 and from 3 to 1, with one controller fewer if there are several.
#[test]
fn p4_p5_members_and_controllers_that_are_too_many_go_one_at_a_time_whatever_goes_wrong() {
    every_seed_ends_well(Change::Fewer);
}
