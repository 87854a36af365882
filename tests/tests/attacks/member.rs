//! A compromised etcd member. It can write anything below `nodes/etcd-N/` of its cluster.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use slipway_core::keys;
use slipway_credentials::renewal::RenewalRequest;
use slipway_flows::scan::{ScanOutcome, Scanned};
use slipway_sim::mortal::Life;
use slipway_tests::workshop::{Workshop, example};

const NAME: &str = "production";

/// What a node says of itself: it serves `served` with a certificate that nobody knows.
fn status(role: &str, instance: &str, at: Timestamp, served: &str) -> Value {
    json!({"format": 1, "at": at, "cluster": NAME, "role": role,
        "instance": {"id": instance, "availabilityZone": "eu-west-1a", "privateAddress": "10.0.0.9"},
        "applied": {"asAsked": true}, "components": [], "healthy": true, "served": [{
            "name": served, "address": "127.0.0.1:6443", "verifiable": true, "certificate": {
                "serial": "1", "fingerprint": "f".repeat(64), "subject": "CN=x", "issuer": "CN=y",
                "notBefore": at, "notAfter": at, "verifies": true}}]})
}

async fn scanned(workshop: &Workshop, now: Timestamp) -> Scanned {
    match workshop.scan(&RenewalRequest::default(), &Life::unending(), now).await.unwrap() {
        ScanOutcome::Scanned(scanned) => *scanned,
        ScanOutcome::Nothing(why) => panic!("{why}"),
    }
}

/// Where certificates other than the inventory's are in use, by the nodes' own words.
fn places(scanned: &Scanned) -> Vec<String> {
    let all = scanned.standings.iter().flat_map(|one| &one.elsewhere);
    all.map(|elsewhere| elsewhere.place.clone()).collect()
}

#[tokio::test]
async fn a_member_speaks_for_no_other_node() {
    let workshop = Workshop::launched(&example(NAME)).await;
    let now = workshop.now + SignedDuration::from_hours(24);
    workshop.assets.set_clock(now);
    let put = |instance: &str, status: Value| {
        workshop.assets.upload(&keys::node_status(NAME, "etcd-0", instance), status.to_string());
    };
    put("i-1", status("controller", "i-1", now, "kube-apiserver"));
    put("i-2", status("etcd-1", "i-2", now, "etcd-client"));
    put("i-3", status("etcd-0", "i-9", now, "etcd-client"));
    let result = scanned(&workshop, now).await;
    assert_eq!(places(&result), [""; 0], "{:#?}", result.findings);
    let told: Vec<&str> = result.findings.iter().map(|finding| finding.key.as_str()).collect();
    for instance in ["i-1", "i-2", "i-3"] {
        assert!(told.contains(&keys::node_status(NAME, "etcd-0", instance).as_str()), "{told:?}");
    }
    // What it says of itself counts.
    put("i-1", status("etcd-0", "i-1", now, "etcd-client"));
    assert_eq!(places(&scanned(&workshop, now).await), ["etcd-client on i-1 (etcd-0)"]);
}

/// The newest report of a member counts, and a report of the year 2100 was the newest for ever.
#[tokio::test]
async fn a_report_is_no_newer_than_its_object() {
    let workshop = Workshop::launched(&example(NAME)).await;
    let now = workshop.now + SignedDuration::from_hours(24);
    workshop.assets.set_clock(now - SignedDuration::from_hours(2));
    let future: Timestamp = "2100-01-01T00:00:00Z".parse().unwrap();
    let forged = status("etcd-0", "i-1", future, "etcd-client");
    workshop.assets.upload(&keys::node_status(NAME, "etcd-0", "i-1"), forged.to_string());
    workshop.assets.set_clock(now);
    let mut honest = status("etcd-0", "i-2", now, "etcd-client");
    honest["served"] = json!([]);
    workshop.assets.upload(&keys::node_status(NAME, "etcd-0", "i-2"), honest.to_string());
    assert_eq!(
        places(&scanned(&workshop, now).await),
        [""; 0],
        "the member's new machine says nothing of it"
    );
}

/// Two hundred objects were all that was read of a cluster, the newest first.
#[tokio::test]
async fn a_flood_of_one_role_hides_no_other() {
    let workshop = Workshop::launched(&example(NAME)).await;
    let now = workshop.now + SignedDuration::from_hours(24);
    workshop.assets.set_clock(now - SignedDuration::from_mins(10));
    let told = status("controller", "i-7", now - SignedDuration::from_mins(10), "kube-apiserver");
    workshop.assets.upload(&keys::node_status(NAME, "controller", "i-7"), told.to_string());
    workshop.assets.set_clock(now);
    for flood in 0..300 {
        let instance = format!("i-{flood:05}");
        let status = status("etcd-0", &instance, now, "etcd-client");
        workshop.assets.upload(&keys::node_status(NAME, "etcd-0", &instance), status.to_string());
    }
    let places = places(&scanned(&workshop, now).await);
    assert!(places.contains(&"kube-apiserver on i-7 (controller)".to_owned()), "{places:?}");
}
