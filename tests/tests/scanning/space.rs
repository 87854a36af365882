//! What a scan finds about the room of etcd's databases.

use serde_json::{Value, json};

use super::*;

const MIB: u64 = 1 << 20;

/// The member reports the room of its database, and whether some member's alarm is raised.
fn reports(
    account: &Workshop,
    role: &str,
    instance: &str,
    at: Timestamp,
    in_use: u64,
    alarms: &Value,
) -> String {
    let etcd = json!({"format": 1, "name": role, "healthy": true, "problems": [], "serving": true, "id": "1", "learner": false,
        "leads": false, "term": 1, "revision": 1, "raftIndex": 1, "raftAppliedIndex": 1, "dbSize": 1900 * MIB, "dbSizeInUse": in_use * MIB,
        "dbQuota": 2048 * MIB, "alarms": alarms, "members": []});
    let status = json!({"format": 1, "at": at, "cluster": NAME, "role": role, "applied": {"matchesNodeFile": true},
        "components": [], "healthy": true, "served": [], "etcd": etcd});
    account.assets.set_clock(at);
    let key = keys::node_status(NAME, role, &machine_arn(instance));
    account.assets.upload(&key, status.to_string());
    key
}

#[tokio::test]
async fn a_scan_warns_before_etcd_reaches_its_quota_and_says_when_to_defragment() {
    let account = Workshop::launched(PRODUCTION).await;
    let now = launch() + days(2);
    let quiet = scan(&account, now).await;
    assert_eq!((quiet.findings, quiet.etcd_quota_percent), (Vec::new(), None), "no member has reported");

    let key = reports(&account, "etcd-1", "i-1", now, 600, &json!([]));
    let fragmented = scan(&account, now).await;
    assert_eq!(fragmented.etcd_quota_percent, Some(29));
    let [found] = fragmented.findings.as_slice() else { panic!("{:?}", fragmented.findings) };
    assert_eq!((&found.key, found.help.as_str()), (&key, "slipway defragment --cluster production"));
    assert!(found.message.contains("has 1900 MiB under a quota of 2048 MiB, and only 600 MiB"), "{found:?}");
    assert_eq!(scan_state(&account).findings, fragmented.findings, "status and the alarm see it");

    let key = reports(&account, "etcd-0", "i-0", now, 1700, &json!([]));
    let near = scan(&account, now).await;
    assert_eq!((near.etcd_quota_percent, near.findings.len(), &near.findings[0].key), (Some(83), 1, &key));
    assert!(near.findings[0].help.contains("raise etcd.quota"), "{near:?}");

    let alarm = json!([{"member": "1", "kind": "NOSPACE"}]);
    reports(&account, "etcd-0", "i-0", now, 700, &alarm);
    let full = scan(&account, now).await;
    assert_eq!(full.etcd_quota_percent, Some(100));
    assert!(full.findings[0].message.starts_with("etcd refuses all writes"), "{full:?}");

    // The machine was replaced: the report of the new one counts.
    reports(&account, "etcd-0", "i-9", now + SignedDuration::from_hours(1), 1800, &json!([]));
    reports(&account, "etcd-1", "i-1", now + SignedDuration::from_hours(1), 1500, &json!([]));
    let well = scan(&account, now + SignedDuration::from_hours(2)).await;
    assert_eq!(well.etcd_quota_percent, Some(87), "the newest report of etcd-0: {well:?}");
}
