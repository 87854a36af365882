//! Node managers that fail in a quiet cluster: nothing else says so before the first certificate of a kubelet expires.

use serde_json::{Value, json};
use slipway_credentials::renewal::Finding;
use slipway_sim::world::MachineFacts;

use super::recovery::facts;
use super::*;

/// The controller reports what it has seen of its node manager.
fn report(account: &Workshop, machine: &MachineFacts, at: Timestamp, node_manager: &Value) {
    let status = json!({"format": 1, "at": at, "cluster": NAME, "role": machine.role, "applied": {"matchesNodeFile": true},
        "components": [], "healthy": true, "served": [], "nodeManager": node_manager});
    let key = keys::node_status(NAME, &machine.role, &machine_arn(&machine.id));
    account.assets.set_clock(at);
    account.assets.upload(&key, status.to_string());
}

/// Their last complete pass ended before that time, and these parts failed in the last one.
fn fails(before: Timestamp, failed: &Value) -> Value {
    json!({"passed": before, "started": before - days(20), "failed": failed})
}

/// The findings about node managers. The members of etcd have not reported, which are others.
async fn found(account: &Workshop, now: Timestamp) -> Vec<Finding> {
    let scanned = scan(account, now).await;
    assert_eq!(scan_state(account).findings, scanned.findings, "status and the alarm see them");
    scanned.findings.into_iter().filter(|one| one.message.contains("node manager")).collect()
}

#[tokio::test]
async fn p7_a_scan_says_that_all_node_managers_fail_days_before_a_kubelets_certificate_expires() {
    let mut account = Workshop::launched(PRODUCTION).await;
    account.world = account.fleet(1).await;
    let controllers: Vec<MachineFacts> =
        facts(&account.world).into_iter().filter(|one| one.role == "controller").collect();
    let [first, others @ ..] = controllers.as_slice() else { panic!() };
    assert!(!others.is_empty());
    let begun = launch() + days(100);
    let now = begun + SignedDuration::from_hours(24);
    let denied = fails(begun, &json!([{"part": "requests", "code": "manage.aws"}]));
    let works = fails(now, &json!([]));
    // One controller whose node manager works does the work of all.
    others.iter().for_each(|one| report(&account, one, now, &denied));
    report(&account, first, now, &works);
    assert_eq!(found(&account, now).await, []);

    report(&account, first, now, &denied);
    let all = found(&account, now).await;
    let [one] = all.as_slice() else { panic!("{all:?}") };
    assert!(one.message.starts_with("no node manager completes its passes: "), "{one:?}");
    for controller in &controllers {
        let named = format!("{} since 2027-02-28T12:00:00Z (requests: manage.aws)", controller.id);
        assert!(one.message.contains(&named), "{named}: {one:?}");
    }
    assert!(one.key.starts_with(&keys::nodes(NAME)) && one.help.contains("docs/runbook.md"), "{one:?}");
    // One that Auto Scaling has replaced speaks for nobody.
    report(&account, &MachineFacts { id: "i-0a1b2c3d".to_owned(), ..first.clone() }, now, &works);
    assert_eq!(found(&account, now).await, all);

    // Whether they have passed since they reported is not known.
    controllers.iter().for_each(|one| report(&account, one, now, &works));
    assert_eq!(found(&account, now + SignedDuration::from_hours(20)).await, []);
}
