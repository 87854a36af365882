//! How many workers may go, and how many more are launched.

#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::*;
use slipway_core::cluster::CountOrPercent;

/// A group with this desired number of units, twice that as its maximum, and machines of these weights.
fn group(desired: u32, weights: &[u32]) -> GroupView {
    let machine = |(at, weight): (usize, &u32)| {
        let machine = json!({
            "zone": "a", "lifecycle": "inService", "healthy": true, "weight": weight, "template": null,
        });
        (format!("i-{at}"), machine)
    };
    let machines: BTreeMap<String, Value> = weights.iter().enumerate().map(machine).collect();
    serde_json::from_value(json!({
        "name": "c-pool-a", "desired": desired, "min": 1, "max": desired * 2, "template": null,
        "machines": machines, "tags": {}, "machineArns": "arn:aws:ec2:eu-west-1:123456789012:instance/",
    }))
    .unwrap()
}

#[test]
fn p6_a_group_with_weights_lacks_as_many_machines_as_its_heaviest_need_for_the_units() {
    for (desired, weights, machines) in [
        (8, &[4, 4][..], 0),
        (9, &[4, 4], 1),
        (10, &[4, 4], 1),
        (12, &[4, 4], 1),
        (13, &[4, 4], 2),
        (10, &[1, 8], 1),
        (7, &[4, 4], 0),
        (3, &[], 3),
        (3, &[0], 3),
    ] {
        assert_eq!(lacking(&group(desired, weights)), machines, "{desired} of {weights:?}");
    }
}

#[test]
fn p6_to_a_pool_with_weights_none_comes_first_since_nobody_knows_how_many_machines_a_unit_is() {
    let group = group(4, &[1, 1, 1, 1]);
    let outdated: Vec<&String> = group.machines.keys().collect();
    let pool = Pool { outdated, available: 4, comes: 0, wanted: 4 };
    for (weighted, more) in [(false, 2), (true, 0)] {
        let pace = Pace { max_unavailable: CountOrPercent::Count(1), surge: CountOrPercent::Count(2) };
        let workers = Workers {
            size: 4,
            most: 4,
            pace,
            weighted,
            force_after_s: None,
            extra: Extra::Known { machines: 0, expected: None },
            done: BTreeSet::new(),
            given_up: BTreeMap::new(),
            proved: true,
            phase: Phase::new(WorkersState::start()),
        };
        assert_eq!(workers.missing_surge(&group, &pool), more, "{weighted}");
    }
}
