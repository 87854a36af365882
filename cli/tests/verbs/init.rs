//! `slipway init`.

use super::*;

const GOOD: &str = "init --cluster-name first --region eu-west-1 --dns-name api.first.example.com";

#[test]
fn what_is_written_is_accepted() {
    let place = Place::new();
    snapshot!(place.run(GOOD));
    let run = place.run("validate cluster.yaml");
    assert_eq!(run.code, 0, "{}", run.output());
    assert!(run.stdout.contains("is fine"), "{}", run.output());
    // Its first lines point editors at the schema that lies beside it.
    assert!(place.read("cluster.yaml").contains("$schema=cluster.schema.json"));
    assert!(place.read("cluster.schema.json").contains("\"clusterName\""));
}

#[test]
fn every_option_reaches_the_file() {
    let place = Place::new();
    let run = place.run(
        "init --cluster-name first --region us-west-2 --availability-zone us-west-2a,us-west-2b --availability-zone us-west-2c \
         --external-dns-name api.example.com --hosted-zone-id Z123 --key-name ops \
         --kms-key-arn arn:aws:kms:us-west-2:111122223333:key/a --file specs/first.yaml",
    );
    assert_eq!(run.code, 3, "the folder is not made by itself: {}", run.output());
    std::fs::create_dir(place.path("specs")).unwrap();
    let run = place.run(
        "init --cluster-name first --region us-west-2 --availability-zone us-west-2a,us-west-2b --availability-zone us-west-2c \
         --external-dns-name api.example.com --hosted-zone-id Z123 --key-name ops \
         --kms-key-arn arn:aws:kms:us-west-2:111122223333:key/a --file specs/first.yaml --output json",
    );
    assert_eq!(run.json()["file"], "specs/first.yaml");
    let text = place.read("specs/first.yaml");
    for piece in ["us-west-2c", "id: Z123", "keyName: ops", "key/a", "dnsName: api.example.com"] {
        assert!(text.contains(piece), "{piece} is not in\n{text}");
    }
}

#[test]
fn a_file_that_is_there_stays() {
    let place = Place::new();
    place.write("cluster.yaml", "mine");
    snapshot!(place.run(GOOD));
    assert_eq!(place.read("cluster.yaml"), "mine");
    assert_eq!(place.run(&format!("{GOOD} --force")).code, 0);
    assert!(place.read("cluster.yaml").contains("clusterName: first"));
}

#[test]
fn what_makes_no_spec_is_not_written() {
    let place = Place::new();
    snapshot!(place.run("init --cluster-name first_ --region eu-wset-1 --dns-name https://x"));
    assert!(place.files().is_empty());
    let run = place.run("init --cluster-name first_ --region eu-west-1 --dns-name x --output json");
    assert_eq!(run.code, 1);
    assert_eq!(run.json()["diagnostics"][0]["code"], "name-syntax");
}

/// `ap-northeast-1b` takes no new subnets, for example.
#[test]
fn zones_are_those_in_which_subnets_can_be_made() {
    for (region, zones) in
        [("ap-northeast-1", "acd"), ("ca-central-1", "abd"), ("us-west-1", "ab"), ("us-east-1", "abc")]
    {
        let place = Place::new();
        let run = place.run(&format!("init --cluster-name c --region {region} --dns-name api.example.com"));
        assert_eq!(run.code, 0, "{}", run.output());
        let named: Vec<String> = zones.chars().map(|letter| format!("{region}{letter}")).collect();
        assert!(run.stdout.contains(&format!("Its zones are {}:", named.join(", "))), "{}", run.output());
        assert_eq!(place.run("validate cluster.yaml").code, 0);
    }
}

#[test]
fn a_zone_that_is_given_twice_and_the_standard_output_are_wrong_usage() {
    for more in ["--availability-zone eu-west-1a --availability-zone eu-west-1a", "--file -"] {
        let place = Place::new();
        let run = place.run(&format!("{GOOD} {more}"));
        assert_eq!((run.code, place.files().len()), (2, 0), "{}", run.output());
    }
}
