//! `slipway plan`.

use super::*;

fn rendered() -> Place {
    let place = Place::small();
    let run = place.run("render cluster.yaml --out out");
    assert_eq!(run.code, 0, "{}", run.output());
    place
}

#[test]
fn p1_the_same_spec_plans_nothing() {
    let place = rendered();
    let before = place.files();
    snapshot!(place.run("plan cluster.yaml --against out"));
    assert_eq!(place.run("plan cluster.yaml --against out --exit-code").code, 0);
    assert!(place.files() == before, "a plan wrote something");
}

#[test]
fn p2_one_pools_size_touches_its_stack_alone() {
    let place = rendered();
    place.write("cluster.yaml", SMALL.replace("maxSize: 3", "maxSize: 4"));
    let before = place.files();
    snapshot!(place.run("plan cluster.yaml --against out"));
    assert_eq!(place.run("plan cluster.yaml --against out --exit-code").code, 1);
    assert!(place.files() == before, "a plan wrote something");
}

#[test]
fn a_pool_more_and_a_pool_less() {
    let place = rendered();
    place.write("cluster.yaml", SMALL.replace("name: other", "name: third"));
    let before = place.files();
    snapshot!(place.run("plan cluster.yaml --against out"));
    assert!(place.files() == before, "a plan wrote something");
}

#[test]
fn a_name_more_in_the_certificate_renews_it_on_the_controllers_alone() {
    let place = rendered();
    place.write(
        "cluster.yaml",
        format!("{SMALL}kubernetes: {{apiServer: {{certSANs: [api.example.org]}}}}\n"),
    );
    let before = place.files();
    let run = place.run("plan cluster.yaml --against out --output json");
    let actions: Vec<String> = run.json()["plan"]["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| format!("{} {}", node["role"].as_str().unwrap(), node["action"].as_str().unwrap()))
        .collect();
    assert_eq!(
        actions,
        ["etcd-0 untouched", "controller refresh", "pool-general untouched", "pool-other untouched"]
    );
    assert!(place.files() == before, "a plan wrote something");
}

#[test]
fn a_cluster_that_does_not_exist_yet() {
    let place = Place::small();
    std::fs::create_dir(place.path("out")).unwrap();
    snapshot!(place.run("plan cluster.yaml --against out"));
    assert_eq!(std::fs::read_dir(place.path("out")).unwrap().count(), 0, "a plan wrote something");
}

#[test]
fn as_json() {
    let place = rendered();
    let json = place.run("plan cluster.yaml --against out --output json").json();
    assert_eq!((&json["ok"], &json["unchanged"]), (&true.into(), &true.into()));
    assert_eq!(json["plan"]["stacks"].as_array().unwrap().len(), 5);
}

#[test]
fn a_directory_that_is_not_there() {
    let place = Place::small();
    snapshot!(place.run("plan cluster.yaml --against nowhere"));
}

#[test]
fn a_directory_of_another_cluster() {
    let place = rendered();
    place.write("cluster.yaml", SMALL.replace("clusterName: small", "clusterName: large"));
    snapshot!(place.run("plan cluster.yaml --against out"));
}

#[test]
fn a_release_that_was_damaged() {
    let place = rendered();
    place.write("out/release.json", "{}");
    snapshot!(place.run("plan cluster.yaml --against out"));
}

#[test]
fn a_refused_spec() {
    let place = rendered();
    place.write("cluster.yaml", "clusterName: small\n");
    let run = place.run("plan cluster.yaml --against out");
    assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{}", run.output());
    assert!(run.stderr.contains("lacks `region`"), "{}", run.output());
}

#[test]
fn p3_as_a_page_that_stands_alone() {
    let place = rendered();
    place.write("cluster.yaml", SMALL.replace("maxSize: 3", "maxSize: 4"));
    let run = place.run("plan cluster.yaml --against out --html plan.html");
    assert_eq!(run.code, 0, "{}", run.output());
    let page = place.read("plan.html");
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("The cluster small changes"), "{page}");
    assert!(!page.contains("<script") && !page.contains("src="), "{page}");
    let run = place.run("plan cluster.yaml --against out --html nowhere/plan.html/x.html");
    assert_eq!(run.code, 0, "folders are made: {}", run.output());
}

#[test]
fn p3_a_plan_that_is_not_executed_says_so_by_its_exit_code_and_a_field() {
    let place = rendered();
    let json = place.run("plan cluster.yaml --against out --output json").json();
    assert_eq!((&json["executable"], &json["notExecuted"]), (&true.into(), &serde_json::Value::Null));
    // The only member would move to another zone, away from its volume.
    let moved = SMALL.replace("availabilityZone: eu-west-1a", "availabilityZone: eu-west-1b");
    assert_ne!(moved, SMALL);
    place.write("cluster.yaml", moved);
    let run = place.run("plan cluster.yaml --against out --output json");
    assert_eq!((run.code, &run.json()["executable"]), (1, &false.into()), "{}", run.output());
    let why = run.json()["notExecuted"].as_str().unwrap().to_owned();
    let run = place.run("plan cluster.yaml --against out");
    assert_eq!(run.code, 1);
    assert!(run.stdout.contains(&format!("This plan is not executed: {why}")), "{}", run.stdout);
}

/// A mistyped directory looked like a new cluster.
#[test]
fn a_directory_with_other_files_is_no_new_cluster() {
    let place = Place::small();
    place.write("other/file", "mine");
    let run = place.run("plan cluster.yaml --against other");
    assert_eq!(run.code, 1, "{}", run.output());
    assert!(run.stderr.contains("nothing was rendered into it"), "{}", run.output());
    std::fs::create_dir(place.path("empty")).unwrap();
    assert_eq!(place.run("plan cluster.yaml --against empty").code, 0);
}
