//! Whole years of a cluster.

use slipway_sim::year::{Chronicle, Year};

fn live(example: &str, days: u32, seed: u64, faults: f64) -> Chronicle {
    let path = format!("{}/../../examples/{example}", env!("CARGO_MANIFEST_DIR"));
    let spec = std::fs::read_to_string(path).unwrap();
    let chronicle = Year { spec, days, seed, faults, unattended: false, upload: None }.live().unwrap();
    let told: Vec<String> = chronicle.events.iter().map(|(at, line)| format!("{at} {line}")).collect();
    assert_eq!(chronicle.violations, [], "{told:#?}");
    chronicle
}

/// A simulated account has everything that a spec names in AWS outside of Slipway (images for GPUs, the account's own images).
#[test]
fn examples_with_images_of_their_own_come_to_serve() {
    for example in ["gpu.yaml", "graviton.yaml"] {
        let year = live(example, 1, 1, 0.0);
        assert!(year.lived.as_hours() >= 24, "{example}: {:?}", year.events);
    }
}

/// A person approves plans, and the exports of other stacks exist.
#[test]
fn examples_that_wait_for_a_person_or_import_come_to_serve() {
    for example in ["careful.yaml", "imported-ids.yaml"] {
        let year = live(example, 2, 1, 0.0);
        assert!(year.lived.as_hours() >= 24, "{example}: {:?}", year.events);
    }
}

/// P2, P7: four hundred days of scans, renewals and rollouts; etcd and the API never stop.
#[test]
fn p7_no_certificate_ends_in_a_year_of_daily_scans() {
    let year = live("production.yaml", 400, 1, 0.0);
    let days = year.margin.unwrap().as_hours() / 24;
    let told =
        format!("{days} days at least, {:?}, {:?}, {} evicted", year.rollouts, year.tally, year.evicted);
    println!("{told}");
    assert!(days >= 1, "{told}");
    assert!(year.lived.as_hours() >= 400 * 24, "{told}");
    assert_eq!((year.etcd, year.api), (year.lived, year.lived), "{told}");
    assert!(year.rollouts["succeeded"] >= 2 && year.rollouts.len() == 1, "{told}");
    assert_eq!((year.lost, year.tally.dead_letters), (0, 0), "{told}");
}
