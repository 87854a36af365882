//! `slipway simulate`.

use super::*;

#[test]
fn a_year_is_lived_through_and_summed_up_and_one_seed_gives_one_history() {
    let place = Place::small();
    let run = || place.run("simulate cluster.yaml --days 40 --seed 3 --faults 0.02 --output json");
    let (one, again) = (run(), run());
    assert_eq!(one.code, 0, "{one:?}");
    assert_eq!(one.stdout, again.stdout);
    let year: serde_json::Value = serde_json::from_str(&one.stdout).unwrap();
    assert_eq!(year["rollouts"]["succeeded"], 1, "{year}");
    assert_eq!(year["broken"], serde_json::json!([]), "{year}");
    assert!(year["availability"]["api"].as_f64().unwrap() > 0.9, "{year}");
    assert!(year["invocations"]["scan"].as_u64().unwrap() >= 40, "{year}");
    let text = place.run("simulate cluster.yaml --days 2 --faults 0");
    assert!(text.code == 0 && text.stdout.contains("100.0000 % of the time"), "{text:?}");
    let files: Vec<_> = std::fs::read_dir(place.path(".")).unwrap().collect();
    assert_eq!(files.len(), 1, "nothing is written: {files:?}");
}

#[test]
fn a_refused_spec_and_a_wrong_probability_are_told_as_everywhere() {
    let place = Place::new();
    place.write("cluster.yaml", format!("{SMALL}zebra: 1\n"));
    let refused = place.run("simulate cluster.yaml");
    assert!(refused.code == 1 && refused.stderr.contains("zebra"), "{refused:?}");
    let wrong = place.run("simulate cluster.yaml --faults 2");
    assert!(wrong.code == 2 && wrong.stderr.contains("it must be from 0 to 0.2"), "{wrong:?}");
}

/// Without renewals no promise is broken by that, and no such year is good.
#[test]
fn a_year_in_which_certificates_expired_is_not_called_good() {
    let place = Place::new();
    let off = SMALL.replace("{enabled: true}", "{enabled: false}");
    place.write("cluster.yaml", format!("{off}tlsCertDurationDays: 9\n"));
    let year = place.run("simulate cluster.yaml --days 12 --faults 0");
    assert!(year.code == 1 && year.stdout.contains("EXPIRED: a certificate in use expired"), "{year:?}");
    assert!(year.stdout.contains("certificatesConfiguration.rolloutBeforeExpiry"), "{year:?}");
    let year = place.run("simulate cluster.yaml --days 5 --faults 0 --output json");
    let json: serde_json::Value = serde_json::from_str(&year.stdout).unwrap();
    assert_eq!((year.code, &json["certificatesExpired"]), (0, &serde_json::json!(false)), "{year:?}");
}
