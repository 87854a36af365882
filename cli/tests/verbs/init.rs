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
