//! Snapshots in trouble: the cluster moves to another KMS key, or the data of its members differ.

use std::path::Path;

use serde_json::json;
use slipway_core::role::Role;
use slipway_tests::surroundings::Surroundings as Cloud;

use super::Credentials;
use super::machine::{Machine, Release, machines, newest, releases};
use super::member::Client;
use super::writer::client;

pub(crate) const MEMBER: Role = Role::Etcd(0);

/// A running member, the only one of its cluster, and the digest of its bundle.
pub(crate) async fn single(
    credentials: &Credentials,
    cloud: &Cloud,
    release: &Release,
    dir: &Path,
) -> (Machine, String) {
    let mut machine = machines(credentials, release, dir, 1).await.remove(0);
    let digest = cloud.publish(&MEMBER, &credentials.workshop.bundle(&MEMBER).await).await;
    machine.hosted(cloud, &MEMBER, &digest);
    machine.member.start();
    machine.is_healthy().await;
    machine.does(&["refresh", "--credentials", &digest]).await;
    (machine, digest)
}

#[tokio::test(flavor = "multi_thread")]
async fn p7_snapshots_are_taken_and_restored_after_the_cluster_moved_to_another_kms_key_and_back() {
    let Some(release) = newest() else { return };
    let credentials = Credentials::made("production").await;
    let cloud = Cloud::start().await;
    let dir = tempfile::tempdir().unwrap();
    let (mut machine, digest) = single(&credentials, &cloud, &release, dir.path()).await;
    let before = machine.does(&["etcd", "snapshot"]).await;
    assert_eq!(before["sealedUnder"], json!(cloud.key));

    // The role may seal only under the new key now, and the bundle on the machine's disk does not have it.
    let new = cloud.seal_anew(&MEMBER, &digest).await;
    let copy = machine.member.dir.join("var/lib/slipway/credentials.sealed");
    let bytes = std::fs::read(&copy).unwrap();
    machine.environment = cloud.environment_with_key(&new, None).await;
    let moved = machine.does(&["etcd", "snapshot"]).await;
    assert_eq!(moved["sealedUnder"], json!(new));
    assert_eq!(std::fs::read(&copy).unwrap(), bytes, "a refresh replaces it, and nobody else");
    machine.restores(&["--snapshot", before["time"].as_str().unwrap(), "--token", "earlier"]).await;
    machine.is_healthy().await;

    // A machine that booted meanwhile has both sealings, of which the newest is not the one to use after the cluster went back.
    machine.does(&["refresh", "--credentials", &digest]).await;
    assert_ne!(std::fs::read(&copy).unwrap(), bytes);
    machine.environment = cloud.environment_with_key(&cloud.key, None).await;
    let back = machine.does(&["etcd", "snapshot"]).await;
    assert_eq!(back["sealedUnder"], json!(cloud.key));

    // A key that nobody may use any more: nothing is stored, and the failure names what has to allow it.
    machine.environment =
        cloud.environment_with_key("arn:aws:kms:eu-west-1:111122223333:key/other", None).await;
    let (done, failure) = machine.agent(&["etcd", "snapshot"]).await;
    assert!(!done && failure["error"]["code"] == json!("aws.denied"), "{failure}");
    assert!(failure["error"]["help"].as_str().unwrap().contains("SealOwnSnapshots"), "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_data_of_members_differ_no_snapshot_is_taken_although_etcd_answers_reads() {
    let credentials = Credentials::made("production").await;
    let cloud = Cloud::start().await;
    for release in releases() {
        let dir = tempfile::tempdir().unwrap();
        let (machine, _) = single(&credentials, &cloud, &release, dir.path()).await;
        let writes = Client::new(&machine.member.pki, "etcd-ca.pem", "healthcheck-client");
        assert!(writes.writes(&machine.member, "a", "1").await);
        let url = format!("{}/v3/maintenance/alarm", machine.member.client_url());
        let pki = machine.member.pki.clone();
        let alarm = async |action: &str| {
            let body = json!({ "action": action, "memberID": "0", "alarm": "CORRUPT" });
            let answer = client(&pki).unwrap().post(&url).json(&body).send().await.unwrap();
            assert!(answer.status().is_success(), "{action}");
        };
        alarm("ACTIVATE").await;
        assert!(!writes.try_write(&machine.member, "a", "2").await, "etcd {}", release.version);
        assert!(writes.get(&machine.member, "a").await.contains("\"MQ==\""), "etcd {}", release.version);
        let (done, failure) = machine.agent(&["etcd", "snapshot"]).await;
        assert!(!done && failure["error"]["code"] == json!("snapshot.corrupt"), "{failure}");
        assert!(failure["error"]["help"].as_str().unwrap().contains("docs/runbook.md"), "{failure}");
        // As the runbook has it.
        alarm("DEACTIVATE").await;
        machine.does(&["etcd", "snapshot"]).await;
    }
}
