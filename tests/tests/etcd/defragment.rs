//! The agent's defragmentation on real members: when it is refused, what it gives back, and what becomes of the alarm.

use std::fs::OpenOptions;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use slipway_core::node::{Defragmented, EtcdHealth};

use super::Credentials;
use super::machine::{Machine, machines, releases, running};
use super::member::Client;

const VALUE: usize = 400_000;

/// Deletes all keys. Their history remains.
async fn delete_all(client: &Client, machine: &Machine) {
    let body = json!({ "key": STANDARD.encode("\0"), "range_end": STANDARD.encode("\0") }).to_string();
    let answer = client.call(&machine.member, "POST /v3/kv/deleterange", &body).await;
    assert!(answer.contains("deleted"), "{answer}");
}

async fn compact(client: &Client, machine: &Machine) {
    let revision = machine.health().await.revision.to_string();
    let body = json!({ "revision": revision, "physical": true }).to_string();
    let answer = client.call(&machine.member, "POST /v3/kv/compaction", &body).await;
    assert!(answer.contains("200 OK"), "{answer}");
}

async fn defragments(machine: &Machine) -> Defragmented {
    serde_json::from_value(machine.does(&["etcd", "defragment"]).await).unwrap()
}

/// The code and the message of the failure.
async fn refuses(machine: &Machine) -> (String, String) {
    let (done, value) = machine.agent(&["etcd", "defragment"]).await;
    assert!(!done, "{value}");
    let text = |name: &str| value["error"][name].as_str().unwrap().to_owned();
    (text("code"), text("message"))
}

/// Waits until the members know of the alarms, or of none.
async fn alarm(machine: &Machine, raised: bool) -> EtcdHealth {
    machine.comes_to(|health| health.alarms.is_empty() != raised).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_gives_back_what_was_deleted_while_all_others_are_well() {
    let credentials = Credentials::made("production").await;
    for release in releases() {
        let dir = tempfile::tempdir().unwrap();
        let mut three = running(&credentials, &release, dir.path(), 3).await;
        let client = Client::new(&three[0].member.pki, "etcd-ca.pem", "healthcheck-client");
        let value = "v".repeat(VALUE);
        for number in 0..20 {
            assert!(client.writes(&three[0].member, &format!("large-{number}"), &value).await);
        }
        for machine in &three {
            machine.is_healthy().await;
        }
        delete_all(&client, &three[0]).await;
        compact(&client, &three[0]).await;
        let full = three[0].is_healthy().await;
        assert!(full.db_size > 8_000_000, "the file stays as large as it was: {full:?}");

        // A member is down: another one must not stand still as well.
        three[2].member.stop().await;
        three[0].serves().await;
        let (code, message) = refuses(&three[0]).await;
        assert_eq!(code, "etcd.unhealthy", "{message}");
        assert!(message.contains("etcd-2 cannot be reached"), "{message}");
        assert_eq!(three[0].serves().await.db_size, full.db_size, "nothing was done");
        three[2].member.start();
        for machine in &three {
            machine.is_healthy().await;
        }

        // A snapshot is being taken.
        let path = three[0].member.dir.join("var/lib/slipway/snapshot.lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path).unwrap();
        lock.lock().unwrap();
        assert_eq!(refuses(&three[0]).await.0, "snapshot.busy");
        drop(lock);

        let done = defragments(&three[0]).await;
        assert_eq!(done.size_before, full.db_size);
        assert!(done.size_after < 1 << 20 && done.in_use <= done.size_after, "{done:?}");
        assert_eq!(
            (done.quota, done.compacted, &done.alarm),
            (Some(2 << 30), None, &None),
            "{}",
            release.version
        );
        assert_eq!(three[0].is_healthy().await.db_size, done.size_after);
        assert!(three[1].health().await.db_size > 8_000_000, "no other member is defragmented");
        // Running it again does no harm.
        let again = defragments(&three[0]).await;
        assert!(again.size_after <= done.size_after + (1 << 16), "{again:?}");
        assert!(client.writes(&three[0].member, "after", "it").await);

        // A learner cannot stand in for anybody.
        let learner = json!({ "peerURLs": ["https://127.0.0.1:1"], "isLearner": true }).to_string();
        // For some seconds after a member has restarted, etcd refuses.
        for attempt in 0.. {
            let added = client.call(&three[0].member, "POST /v3/cluster/member/add", &learner).await;
            if added.contains("200 OK") {
                break;
            }
            assert!(attempt < 100, "{added}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let (code, message) = refuses(&three[1]).await;
        assert!(code == "etcd.unhealthy" && message.contains("is a learner without a vote"), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_member_accepts_writes_again_only_once_it_has_room() {
    let credentials = Credentials::made("production").await;
    for release in releases() {
        let dir = tempfile::tempdir().unwrap();
        let mut three = machines(&credentials, &release, dir.path(), 3).await;
        three[1].member.flags = vec!["--quota-backend-bytes".to_owned(), "2000000".to_owned()];
        for machine in &mut three {
            machine.member.start();
        }
        for machine in &three {
            machine.is_healthy().await;
        }
        let client = Client::new(&three[0].member.pki, "etcd-ca.pem", "healthcheck-client");
        let full = three[1].is_filled_through(&client, &three[0].member, &"v".repeat(VALUE)).await;
        assert_eq!(full.alarms.len(), 1, "{full:?}");
        assert!(!client.try_write(&three[0].member, "more", "of it").await, "etcd takes no writes");

        // Under a smaller quota, what is in use is too much, so the alarm stays.
        three[1].member.stop().await;
        three[1].member.flags = vec!["--quota-backend-bytes".to_owned(), "1000000".to_owned()];
        three[1].member.start();
        for machine in &three {
            machine.comes_to(|health| health.serving && health.members.iter().all(|one| one.reachable)).await;
        }
        let done: Value = three[1].does(&["etcd", "defragment"]).await;
        assert_eq!(done["alarm"], "still raised", "{done}");
        assert!(done["sizeAfter"].as_u64() >= done["quota"].as_u64(), "{done}");
        alarm(&three[1], true).await;

        // The history that keeps the deleted values is compacted by the verb: an API server cannot do it now.
        delete_all(&client, &three[0]).await;
        // Another member has room, and its alarm was never raised.
        let other = defragments(&three[0]).await;
        assert_eq!(other.alarm, None);
        assert!(other.compacted.is_some() && other.size_after < 1_000_000, "{other:?}");
        alarm(&three[1], true).await;
        let done: Value = three[1].does(&["etcd", "defragment"]).await;
        assert_eq!(done["alarm"], "disarmed", "{done}");
        assert!(done["sizeAfter"].as_u64() < done["quota"].as_u64(), "{done}");
        alarm(&three[2], false).await;
        for _ in 0..50 {
            if client.try_write(&three[0].member, "again", "yes").await {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(client.try_write(&three[2].member, "again", "yes").await, "etcd takes writes again");
    }
}
