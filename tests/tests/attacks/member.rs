//! A compromised etcd member. It can write anything below `nodes/etcd-N/` of its cluster.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use slipway_core::keys;
use slipway_flows::scan::Scanned;
use slipway_tests::client::{ACCOUNT, machine_arn};
use slipway_tests::iam::{self, Decision};
use slipway_tests::workshop::{Workshop, example};

use crate::controller::statements_of;
use crate::{UNREADABLE, installation, is_allowed, request, scanned, spoil, workshop};

const NAME: &str = "production";

/// What a node says of itself: it serves `served` with a certificate that nobody knows.
fn status(role: &str, instance: &str, at: Timestamp, served: &str) -> Value {
    json!({"format": 1, "at": at, "cluster": NAME, "role": role,
        "instance": {"id": instance, "availabilityZone": "eu-west-1a", "privateAddress": "10.0.0.9"},
        "applied": {"matchesNodeFile": true}, "components": [], "healthy": true, "served": [{
            "name": served, "address": "127.0.0.1:6443", "verifiable": true, "certificate": {
                "serial": "1", "fingerprint": "f".repeat(64), "subject": "CN=x", "issuer": "CN=y",
                "notBefore": at, "notAfter": at, "verifies": true}}]})
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
        workshop
            .assets
            .upload(&keys::node_status(NAME, "etcd-0", &machine_arn(instance)), status.to_string());
    };
    put("i-1", status("controller", "i-1", now, "kube-apiserver"));
    put("i-2", status("etcd-1", "i-2", now, "etcd-client"));
    put("i-3", status("etcd-0", "i-9", now, "etcd-client"));
    let result = scanned(&workshop, now).await;
    assert_eq!(places(&result), [""; 0], "{:#?}", result.findings);
    let told: Vec<&str> = result.findings.iter().map(|finding| finding.key.as_str()).collect();
    for instance in ["i-1", "i-2", "i-3"] {
        assert!(
            told.contains(&keys::node_status(NAME, "etcd-0", &machine_arn(instance)).as_str()),
            "{told:?}"
        );
    }
    // What it says of itself counts.
    put("i-1", status("etcd-0", "i-1", now, "etcd-client"));
    assert_eq!(places(&scanned(&workshop, now).await), ["etcd-client on i-1 (etcd-0)"]);
}

/// A member chooses the keys below its role's folder, and findings name keys: a key that names no machine is no report.
#[tokio::test]
async fn a_key_that_names_no_machine_is_no_report() {
    let workshop = Workshop::launched(&example(NAME)).await;
    let now = workshop.now + SignedDuration::from_hours(24);
    workshop.assets.set_clock(now);
    for name in ["i-1\u{1b}]0;owned\u{7}", "\u{202e}i-1", "owned", "i-1\n"] {
        let key = keys::node_status(NAME, "etcd-0", &machine_arn(name));
        workshop.assets.upload(&key, status("etcd-0", name, now, "etcd-client").to_string());
    }
    let result = scanned(&workshop, now).await;
    assert_eq!(places(&result), [""; 0], "{:#?}", result.findings);
    assert!(result.findings.iter().all(|finding| !finding.key.contains("nodes/")), "{:#?}", result.findings);
}

/// The newest report of a member counts, and a report of the year 2100 was the newest for ever.
#[tokio::test]
async fn a_report_is_no_newer_than_its_object() {
    let workshop = Workshop::launched(&example(NAME)).await;
    let now = workshop.now + SignedDuration::from_hours(24);
    workshop.assets.set_clock(now - SignedDuration::from_hours(2));
    let future: Timestamp = "2100-01-01T00:00:00Z".parse().unwrap();
    let forged = status("etcd-0", "i-1", future, "etcd-client");
    workshop.assets.upload(&keys::node_status(NAME, "etcd-0", &machine_arn("i-1")), forged.to_string());
    workshop.assets.set_clock(now);
    let mut honest = status("etcd-0", "i-2", now, "etcd-client");
    honest["served"] = json!([]);
    workshop.assets.upload(&keys::node_status(NAME, "etcd-0", &machine_arn("i-2")), honest.to_string());
    assert_eq!(
        places(&scanned(&workshop, now).await),
        [""; 0],
        "the member's new machine says nothing of it"
    );
}

/// Whoever has taken over a member can read its cluster's snapshots and add false ones. It can delete none and overwrite none, whatever its own
/// role allows, so the good ones stay; and a false one takes the place of no good one at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_neither_deletes_nor_overwrites_a_snapshot() {
    let world = installation().await;
    let bucket = world.deployed().arns["AssetBucket"].clone();
    let policy = world.gateway().policy_of(&bucket).unwrap();
    let denied = |who: &str, action: &str, key: &str, more: &[(&str, &str)]| {
        let context = [&[("aws:PrincipalArn", who)], more].concat();
        let asked = request(action, &format!("{bucket}/{key}"), &context);
        matches!(iam::decide_for(&policy, "*", &asked), Decision::Denied(_))
    };
    let member = format!("arn:aws:iam::{ACCOUNT}:role/slipway/production-etcd-EtcdRole0-1A2B");
    let instance = ("ec2:SourceInstanceArn", "arn:aws:ec2:eu-west-1:123456789012:instance/i-1");
    let (new, unchanged) = (("s3:if-none-match", "*"), ("s3:if-match", "\"e1\""));
    for key in ["clusters/production/etcd-snapshots/1.db", "scheduled-snapshots/production/1.db"] {
        for key in [key.to_owned(), keys::snapshot_record(key)] {
            assert!(!denied(&member, "s3:PutObject", &key, &[instance, new]), "{key}");
            assert!(!denied(&member, "s3:GetObject", &key, &[]), "{key}");
            assert!(denied(&member, "s3:PutObject", &key, &[instance]), "{key}");
            assert!(denied(&member, "s3:PutObject", &key, &[instance, unchanged]), "{key}");
            for action in ["s3:DeleteObject", "s3:DeleteObjectVersion"] {
                assert!(denied(&member, action, &key, &[]), "{action} {key}");
            }
        }
    }
    // Nor with an instance profile of the account's own. People may delete, and nobody overwrites.
    let own = format!("arn:aws:iam::{ACCOUNT}:role/etcd-of-ours");
    for key in ["clusters/production/etcd-snapshots/1.db", "scheduled-snapshots/production/1.db"] {
        assert!(!denied(&own, "s3:PutObject", key, &[instance, new]), "{key}");
        assert!(denied(&own, "s3:PutObject", key, &[instance]), "{key}");
        assert!(denied(&own, "s3:PutObject", key, &[instance, unchanged]), "{key}");
        assert!(denied(&own, "s3:PutObject", key, &[]), "{key}");
        for action in ["s3:DeleteObject", "s3:DeleteObjectVersion"] {
            assert!(denied(&own, action, key, &[instance]), "{action} {key}");
            assert!(!denied(&own, action, key, &[]), "{action} {key}");
        }
    }
    assert!(!denied(&own, "s3:PutObject", &keys::snapshot_ledger(NAME), &[instance, unchanged]));
    assert!(!denied(&member, "s3:PutObject", &keys::snapshot_ledger(NAME), &[instance, unchanged]));
    assert!(denied(&member, "s3:PutObject", &keys::snapshot_schedule(NAME), &[instance, unchanged]));
    let scan = &world.deployed().arns["ScanRole"];
    assert!(!denied(scan, "s3:DeleteObject", "scheduled-snapshots/production/1.db", &[]));
    // Its own role grants none of it either, and its boundary no more.
    let text = example(NAME);
    let workshop = workshop(&text);
    let rendering = workshop.render(&text).await.rendering;
    let statements = statements_of(&rendering, "EtcdRole0");
    let own = format!("arn:aws:s3:::{}", workshop.assets.name());
    for (action, key, may) in [
        ("s3:GetObject", "clusters/production/snapshots.json", true),
        ("s3:PutObject", "clusters/production/snapshots.json", false),
        ("s3:PutObject", "scheduled-snapshots/production/1.db", true),
        ("s3:GetObject", "scheduled-snapshots/production/1.db", true),
        ("s3:DeleteObject", "scheduled-snapshots/production/1.db", false),
        ("s3:GetObject", "scheduled-snapshots/other/1.db", false),
        ("s3:PutObject", "scheduled-snapshots/other/1.db", false),
        ("s3:ListBucket", "", false),
    ] {
        let object = format!("{own}/{key}");
        let asked = request(action, object.trim_end_matches('/'), &[("aws:ResourceAccount", ACCOUNT)]);
        assert_eq!(is_allowed(&iam::decide(&statements, &asked)), may, "{action} {key}");
    }
}

/// A volume of its role would be taken away from the machine that replaces it, or its own be given to a machine that it chooses.
#[tokio::test]
async fn a_member_attaches_its_volume_to_its_own_machine_alone() {
    let text = example(NAME);
    let rendering = workshop(&text).render(&text).await.rendering;
    let member = statements_of(&rendering, "EtcdRole0");
    let own = machine_arn("i-1");
    let tags = |role: &'static str| {
        [("aws:ResourceTag/slipway:cluster", NAME), ("aws:ResourceTag/slipway:role", role)]
    };
    let may = |resource: &str, context: &[(&str, &str)]| {
        is_allowed(&iam::decide(&member, &request("ec2:AttachVolume", resource, context)))
    };
    let from = ("ec2:SourceInstanceARN", own.as_str());
    let to = |id: &'static str, role| [&tags(role)[..], &[("ec2:InstanceID", id), from]].concat();
    assert!(may(&own, &to("i-1", "etcd-0")));
    assert!(!may(&machine_arn("i-2"), &to("i-2", "etcd-0")), "another machine of its role");
    assert!(!may(&own, &to("i-1", "etcd-1")), "with a tag of another role");
    assert!(!may(&own, &[&tags("etcd-0")[..], &[("ec2:InstanceID", "i-1")]].concat()), "from nowhere");
    // EC2 authorizes the volume on its own.
    let volume = format!("arn:aws:ec2:eu-west-1:{ACCOUNT}:volume/vol-1");
    assert!(may(&volume, &[&tags("etcd-0")[..], &[from]].concat()));
    assert!(!may(&volume, &[&tags("etcd-1")[..], &[from]].concat()));
}

/// Two hundred objects were all that was read of a cluster, the newest first.
#[tokio::test]
async fn a_flood_of_one_role_hides_no_other() {
    let workshop = Workshop::launched(&example(NAME)).await;
    let now = workshop.now + SignedDuration::from_hours(24);
    workshop.assets.set_clock(now - SignedDuration::from_mins(10));
    let told = status("controller", "i-7", now - SignedDuration::from_mins(10), "kube-apiserver");
    workshop.assets.upload(&keys::node_status(NAME, "controller", &machine_arn("i-7")), told.to_string());
    workshop.assets.set_clock(now);
    for flood in 0..300 {
        let instance = format!("i-{flood:05}");
        let status = status("etcd-0", &instance, now, "etcd-client");
        workshop
            .assets
            .upload(&keys::node_status(NAME, "etcd-0", &machine_arn(&instance)), status.to_string());
    }
    let places = places(&scanned(&workshop, now).await);
    assert!(places.contains(&"kube-apiserver on i-7 (controller)".to_owned()), "{places:?}");
}

/// A scan reads what members told. One that wrote something else had each scan of its cluster fail, so that nothing was renewed; and what was too
/// large was passed over in silence.
#[tokio::test]
async fn a_report_that_nobody_can_read_ends_no_scan_and_is_named() {
    let workshop = Workshop::launched(&example(NAME)).await;
    let now = workshop.now + SignedDuration::from_hours(24);
    let key = keys::node_status(NAME, "etcd-0", &machine_arn("i-1"));
    let long = "x".repeat(200_000);
    let mut fingerprint = status("etcd-0", "i-1", now, "etcd-client");
    fingerprint["served"][0]["certificate"]["fingerprint"] = json!(long);
    let lies = [
        fingerprint.to_string(),
        status(&long, "i-1", now, "etcd-client").to_string(),
        status("etcd-0", &long, now, "etcd-client").to_string(),
        json!({"format": 1, "etcd": {"alarms": [long]}}).to_string(),
    ];
    for how in UNREADABLE.into_iter().chain(lies.iter().map(String::as_str)) {
        workshop.assets.set_clock(now);
        match UNREADABLE.contains(&how) {
            true => spoil(&workshop, &key, how),
            false => drop(workshop.assets.upload(&key, how)),
        }
        let findings = scanned(&workshop, now).await.findings;
        let found = findings.iter().find(|finding| finding.key == key);
        let found = found.unwrap_or_else(|| panic!("{}: {findings:#?}", &how[..how.len().min(100)]));
        assert!(found.message.len() < 1_000, "{} bytes: {:.300}", found.message.len(), found.message);
    }
}
