//! What a controller is given, in a real Kubernetes: who is let in and who is not, who signs what, and what is written down.
//!
//! Needs `make kubernetes` once; without it each test says that it did not test.
#![allow(clippy::unwrap_used, reason = "tests")]

use slipway_tests::kubernetes::Kubernetes;
use slipway_tests::workshop::example;

#[tokio::test(flavor = "multi_thread")]
async fn a_controllers_static_pods_and_bundle_make_a_control_plane_that_lets_in_whom_it_should() {
    let Some(cluster) = Kubernetes::start(&example("production")).await else { return };
    let all = cluster.admin().get("/api/v1/namespaces").await.unwrap();
    assert_eq!(all.status, 200, "{all:?}");
}
