//! A cluster goes through the operations of a node's life while a client writes steadily.

use std::collections::BTreeMap;
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use slipway_core::role::Role;
use slipway_crypto::AwsLc;
use slipway_node::etcd::join::{FounderStart, check_founder};
use slipway_node::etcd::local_member::LocalMember;
use slipway_node::failure::FailureCode;
use slipway_ports::{Crypto as _, NewAsset};
use slipway_tests::surroundings::Surroundings as Cloud;

use super::Credentials;
use super::machine::{Machine, machines, newest, releases};
use super::writer::Writer;

pub(crate) fn role(index: usize) -> Role {
    Role::Etcd(u32::try_from(index).unwrap())
}

pub(crate) fn urls(three: &[Machine]) -> impl Iterator<Item = String> {
    three.iter().map(|machine| machine.member.client_url())
}

/// The bundle of a member with another pair for `server` or `peer`.
pub(crate) fn with_pair(
    files: &BTreeMap<String, String>,
    name: &str,
    made: &NewAsset,
) -> BTreeMap<String, String> {
    let mut files = files.clone();
    let key = String::from_utf8(made.private.expose().to_vec()).unwrap();
    files.insert(format!("/etc/etcd/pki/{name}.pem"), made.public.clone().unwrap());
    files.insert(format!("/etc/etcd/pki/{name}-key.pem"), key);
    files
}

fn serial(made: &NewAsset) -> String {
    AwsLc.facts(made.public.as_ref().unwrap()).unwrap().0.serial
}

pub(crate) async fn started(
    credentials: &Credentials,
    release: &super::machine::Release,
    dir: &std::path::Path,
) -> Vec<Machine> {
    let mut three = machines(credentials, release, dir, 3).await;
    for machine in &mut three {
        machine.member.start();
    }
    for machine in &three {
        machine.is_healthy().await;
    }
    three
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_are_destroyed_come_back_as_themselves_and_no_write_is_lost() {
    let credentials = Credentials::made("production").await;
    for release in releases() {
        let dir = tempfile::tempdir().unwrap();
        let mut three = started(&credentials, &release, dir.path()).await;
        let writer = Writer::start(&three[0].member.pki, urls(&three));
        let begun = Instant::now();
        for (index, machine) in three.iter_mut().enumerate() {
            let before = machine.is_healthy().await.id;
            machine.does(&["etcd", "move-leader"]).await;
            machine.member.stop().await;
            // Another machine with the volume of the first and new certificates, because its bundle was renewed meanwhile.
            let member = &mut machine.member;
            for name in ["server", "peer"] {
                let asset = format!("etcd-{name}-{index}");
                super::member::put_pair(
                    &member.pki,
                    name,
                    &credentials.issued(&asset, Timestamp::now()).await,
                );
            }
            let elsewhere = dir.path().join(format!("machine-{index}"));
            std::fs::rename(&member.dir, &elsewhere).unwrap();
            member.pki = elsewhere.join("etc/etcd/pki");
            member.data = elsewhere.join("var/lib/etcd/data");
            member.dir = elsewhere;
            member.start();
            let after = machine.is_healthy().await;
            assert_eq!(after.id, before, "the same member");
            assert_eq!(after.members.len(), 3);
        }
        let took = begun.elapsed();
        let record = writer.stop().await;
        for machine in &three {
            assert_eq!(record.lost(&machine.member).await, [""; 0], "etcd {}", release.version);
        }
        println!(
            "etcd {}: three members destroyed and back with new certificates in {took:.1?}: {} writes, 0 lost, {} retried, \
             longest gap {:.3} s",
            release.version,
            record.writes(),
            record.retried,
            record.gap.as_secs_f64()
        );
        assert!(record.writes() > 50);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_serves_new_certificates_without_a_restart_and_without_a_failed_write() {
    let credentials = Credentials::made("production").await;
    let cloud = Cloud::start().await;
    for release in releases() {
        let dir = tempfile::tempdir().unwrap();
        let mut three = started(&credentials, &release, dir.path()).await;
        let mut firsts = Vec::new();
        for (index, machine) in three.iter_mut().enumerate() {
            let first = cloud.publish(&role(index), &credentials.workshop.bundle(&role(index)).await).await;
            machine.hosted(&cloud, &role(index), &first);
            // Installed as bootstrap does it; a failed refresh restores these files.
            machine.does(&["refresh", "--credentials", &first]).await;
            firsts.push(first);
        }
        let processes: Vec<_> = three.iter().map(|machine| machine.member.process()).collect();
        let writer = Writer::start(&three[0].member.pki, urls(&three));
        let begun = Instant::now();
        for (index, machine) in three.iter().enumerate() {
            let files = credentials.workshop.bundle(&role(index)).await;
            let [server, peer] = ["server", "peer"].map(|name| format!("etcd-{name}-{index}"));
            let server = credentials.issued(&server, Timestamp::now()).await;
            let peer = credentials.issued(&peer, Timestamp::now()).await;
            let files = with_pair(&with_pair(&files, "server", &server), "peer", &peer);
            let second = cloud.publish(&role(index), &files).await;
            let refreshed = machine.does(&["refresh", "--credentials", &second]).await;
            assert_eq!(refreshed["changed"], json!(true));
            assert_eq!(refreshed["served"][0]["certificate"]["serial"], json!(serial(&server)));
            assert_eq!(refreshed["served"][1]["certificate"]["serial"], json!(serial(&peer)));
            assert_eq!(refreshed["published"], json!(true), "{refreshed}");
            let told = cloud.status(&role(index)).await;
            assert_eq!(told.applied.credentials.as_deref(), Some(second.as_str()));
            assert_eq!(told.served[0].certificate.as_ref().unwrap().serial, serial(&server));
            let status = machine.status().await;
            assert_eq!(status.applied.credentials.as_deref(), Some(second.as_str()));
            assert!(status.applied.matches_node_file && status.healthy, "{status:#?}");
            assert_eq!(status.instance.unwrap().id, "i-0123456789abcdef0");
            machine.does(&["status", "--publish"]).await;
            assert!(cloud.status(&role(index)).await.at > told.at, "told again");
            let again = machine.does(&["refresh", "--credentials", &second]).await;
            assert_eq!(again["changed"], json!(false), "run again");
        }
        let took = begun.elapsed();
        let record = writer.stop().await;
        assert_eq!(record.lost(&three[2].member).await, [""; 0]);
        let after: Vec<_> = three.iter().map(|machine| machine.member.process()).collect();
        assert_eq!(after, processes, "the same processes");
        println!(
            "etcd {}: three members refreshed in place in {took:.1?}: {} writes, each in a handshake of its own, 0 lost, \
             {} retried, longest gap {:.3} s",
            release.version,
            record.writes(),
            record.retried,
            record.gap.as_secs_f64()
        );
        assert_eq!(record.retried, 0, "no write failed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_that_nobody_would_take_is_put_back() {
    let Some(release) = newest() else { return };
    let credentials = Credentials::made("production").await;
    let cloud = Cloud::start().await;
    let dir = tempfile::tempdir().unwrap();
    let mut one = machines(&credentials, &release, dir.path(), 1).await;
    let machine = &mut one[0];
    machine.member.start();
    machine.is_healthy().await;
    let files = credentials.workshop.bundle(&role(0)).await;
    let first = cloud.publish(&role(0), &files).await;
    machine.hosted(&cloud, &role(0), &first);
    let before = machine.does(&["refresh", "--credentials", &first]).await;

    // Expired; of another authority; of another role; missing.
    let past = Timestamp::now() - SignedDuration::from_hours(24 * 365 * 2);
    let expired = with_pair(&files, "server", &credentials.issued("etcd-server-0", past).await);
    let mut foreign = files.clone();
    let stranger = Credentials::made("production").await;
    foreign.extend(stranger.workshop.bundle(&role(0)).await);
    let unopened = cloud.publish(&role(1), &credentials.workshop.bundle(&role(1)).await).await;
    for (digest, code) in [
        (cloud.publish(&role(0), &expired).await, "refresh.not-served"),
        (cloud.publish(&role(0), &foreign).await, "refresh.read-at-start"),
        (unopened, "credentials.missing"),
    ] {
        let (done, failure) = machine.agent(&["refresh", "--credentials", &digest]).await;
        assert!(!done, "{code}");
        assert_eq!(failure["error"]["code"], json!(code), "{failure}");
        let status = machine.status().await;
        assert!(status.healthy && status.applied.matches_node_file, "{code}: {status:#?}");
        assert_eq!(status.applied.credentials.as_deref(), Some(first.as_str()));
        let serial = &status.served[0].certificate.as_ref().unwrap().serial;
        assert_eq!(json!(serial), before["served"][0]["certificate"]["serial"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p4_a_founder_that_lost_its_data_does_not_found_again_and_one_that_comes_late_may() {
    let credentials = Credentials::made("production").await;
    for release in releases() {
        let dir = tempfile::tempdir().unwrap();
        let mut three = machines(&credentials, &release, dir.path(), 3).await;
        for machine in &mut three[..2] {
            machine.member.start();
        }
        for machine in &three[..2] {
            machine.serves().await;
        }
        // All members have the same address here. With its own endpoint in the list, the member would ask itself.
        let fellows: Vec<String> = urls(&three[..2]).collect();
        three[2].configure(&json!({ "joinEndpoints": fellows }));
        // The other members know its name already, and it has never run.
        let late = LocalMember::read(&three[2].member.dir).unwrap();
        assert_eq!(check_founder(&late).await.unwrap(), FounderStart::Founds);
        three[2].member.start();
        for machine in &three {
            machine.is_healthy().await;
        }
        three[2].member.stop().await;
        std::fs::remove_dir_all(&three[2].member.data).unwrap();
        let failure = check_founder(&late).await.unwrap_err();
        assert_eq!(
            (failure.code, failure.transient),
            (FailureCode::JoinData, false),
            "{}: {failure:?}",
            release.version
        );
        // Who was removed joins as a new member, also when it is asked again before it has started.
        three[0].does(&["etcd", "remove", "--member", "etcd-2"]).await;
        assert_eq!(check_founder(&late).await.unwrap(), FounderStart::Joins, "{}", release.version);
        let joined = three[2].does(&["etcd", "join"]).await;
        assert_eq!(joined["added"], json!(true));
        assert_eq!(check_founder(&late).await.unwrap(), FounderStart::Joins, "{}", release.version);
        three[2].member.founders = joined["initialCluster"].as_str().unwrap().to_owned();
        three[2].member.flags = vec!["--initial-cluster-state".to_owned(), "existing".to_owned()];
        three[2].member.start();
        three[2].comes_to(|health| health.learner).await;
        assert_eq!(three[2].does(&["etcd", "promote"]).await["promoted"], json!(true));
        for machine in &three {
            machine.is_healthy().await;
        }
    }
}
