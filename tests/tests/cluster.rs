//! A whole cluster on virtual machines: see `tests/src/cluster.rs`. Run by `make test-cluster`, as root; elsewhere it says that it did not.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic, and this one tells figures")]

use std::time::{Duration, Instant};

use slipway_tests::cluster::kubectl::Kubectl;
use slipway_tests::cluster::room::{Room, Stores, adapted};
use slipway_tests::tools;

const CLUSTER: &str = "development";
const API: &str = "api.development.example.com";
/// How long the launch may take on two processors without KVM.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// Issue 19, section 2, runs 1 and 2.
#[tokio::test(flavor = "multi_thread")]
async fn the_development_example_launches_on_virtual_machines_and_runs_what_it_is_given() {
    let Some(stores) = Stores::from_environment() else {
        return tools::not_tested("a cluster on virtual machines: run `make test-cluster`, as root");
    };
    let room = Room::start(&stores).await.unwrap();
    room.workshop().state.set_api_names(vec![API.to_owned()]);
    let example = std::fs::read_to_string(tools::root().join("examples/development.yaml")).unwrap();
    let slipway = room.slipway();
    let (mark, begun) = (slipway.world().observer().mark(), Instant::now());
    slipway.upload(CLUSTER, adapted(&example, &stores.kubernetes)).await.unwrap();
    let ends = ["Rollout Succeeded", "Rollout Failed", "Rollout Aborted", "Spec Rejected"];
    let end = slipway.event(mark, &ends, PATIENCE).await;
    let story = slipway.world().cloud().with(slipway_sim::World::story);
    for (at, line) in &story {
        println!("{at:.0} {line}");
    }
    let (kind, detail) = end.expect("an end");
    assert_eq!(kind, ends[0], "{detail}");
    println!("from upload to success: {:.0} s", begun.elapsed().as_secs_f64());

    let kubectl = Kubectl::new(&room, CLUSTER, &[API.to_owned()]).await.unwrap();
    let nodes = kubectl.run(&["get", "nodes", "--no-headers"]).await.unwrap();
    println!("{nodes}");
    assert_eq!(nodes.lines().count(), 2, "a controller and a worker");
    assert!(nodes.lines().all(|line| line.contains(" Ready")));
    kubectl
        .run(&["--namespace=kube-system", "rollout", "status", "--timeout=600s", "deployment/coredns"])
        .await
        .unwrap();
    println!("from upload to DNS: {:.0} s", begun.elapsed().as_secs_f64());
}
