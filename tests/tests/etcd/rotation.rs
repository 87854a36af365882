//! Rotating the authority of a running cluster: trust both, issue from the new one, drop the old one. etcd reads the trusted authorities
//! only at its start, so that two of the three stages restart each member once, one after the other.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::json;
use slipway_core::cluster::Cluster;
use slipway_core::node::Refreshed;
use slipway_core::role::Role;
use slipway_credentials::rotation::{KnownNodes, NodeReport};
use slipway_crypto::AwsLc;
use slipway_flows::credentials::rotation::{self, Did, Request};
use slipway_node::failure::{AgentResult, FailureCode};
use slipway_node::refresh::Order;
use slipway_ports::{Crypto as _, Signer};
use slipway_tests::surroundings::{INSTANCE, Surroundings};
use slipway_tests::workshop::example;

use super::Credentials;
use super::machine::{Machine, newest, releases};
use super::runs::{role, started, urls, with_pair};
use super::writer::Writer;

const AUTHORITY: &str = "/etc/etcd/pki/etcd-ca.pem";

type Files = BTreeMap<String, String>;

/// A new etcd authority.
fn another(credentials: &Credentials) -> Signer {
    let made = AwsLc.issue(&credentials.profile("etcd-ca"), None, Timestamp::now()).unwrap();
    Signer { certificate: made.public.unwrap(), key: made.private }
}

/// The bundle of a member whose certificates are all issued by `signer`, which the bundle does not trust yet.
fn from(credentials: &Credentials, files: &Files, index: usize, signer: &Signer) -> Files {
    let [server, peer] = ["server", "peer"].map(|name| format!("etcd-{name}-{index}"));
    let mut files = files.clone();
    for (name, asset) in
        [("server", server.as_str()), ("peer", &peer), ("healthcheck-client", "etcd-healthcheck-client")]
    {
        let made = AwsLc.issue(&credentials.profile(asset), Some(signer), Timestamp::now()).unwrap();
        files = with_pair(&files, name, &made);
    }
    files
}

fn trusting(files: &Files, authorities: &[&str]) -> Files {
    let mut files = files.clone();
    files.insert(AUTHORITY.to_owned(), authorities.concat());
    files
}

/// Refreshes as its document does; the test does systemd's work.
async fn refreshed(cloud: &Surroundings, machine: &mut Machine, order: &Order) -> AgentResult<Refreshed> {
    let root = machine.member.dir.clone();
    cloud
        .refresh(&root, order, async |unit| {
            if let Some(unit) = unit {
                assert_eq!(unit, "etcd.service");
                machine.member.stop().await;
                machine.member.start();
            }
        })
        .await
}

/// Installs each member's first bundle as bootstrap does. Returns the bundles.
async fn bootstrapped(cloud: &Surroundings, credentials: &Credentials, three: &mut [Machine]) -> Vec<Files> {
    let mut bundles = Vec::new();
    for (index, machine) in three.iter_mut().enumerate() {
        let (files, digest) = published(cloud, credentials, &role(index)).await;
        machine.hosted(cloud, &role(index), &digest);
        machine.does(&["refresh", "--credentials", &digest]).await;
        bundles.push(files);
    }
    bundles
}

/// Publishes the present bundle of `role` where its agent reads it. Returns it with its digest.
async fn published(cloud: &Surroundings, credentials: &Credentials, role: &Role) -> (Files, String) {
    let files = credentials.workshop.bundle(role).await;
    let digest = credentials.workshop.manifest().bundles[role].digest.clone();
    cloud.publish_as(role, &digest, &files).await;
    (files, digest)
}

/// The reports that the next stage depends on: those of the members, and for the controllers, which do not exist here, that they have their
/// credentials.
async fn seen(cloud: &Surroundings, credentials: &Credentials) -> KnownNodes {
    let bundles = credentials.workshop.manifest().bundles;
    let mut seen = KnownNodes::default();
    for (role, bundle) in &bundles {
        seen.boots_with.insert(role.clone(), [bundle.digest.clone()].into());
    }
    for index in 0..3 {
        let told = NodeReport::from(&cloud.status(&role(index)).await);
        seen.nodes.insert(role(index), [(INSTANCE.to_owned(), told)].into());
    }
    let controller = NodeReport {
        at: Timestamp::now(),
        credentials: Some(bundles[&Role::Controller].digest.clone()),
        matches_node_file: true,
        serves: BTreeMap::new(),
    };
    let controllers = (0..3).map(|number| (format!("i-{number:017x}"), controller.clone())).collect();
    seen.nodes.insert(Role::Controller, controllers);
    seen
}

/// Advances the rotation, if the members' reports allow it.
async fn go_on(cloud: &Surroundings, credentials: &Credentials, cluster: &Cluster) -> Did {
    let (workshop, seen) = (&credentials.workshop, seen(cloud, credentials).await);
    let now = Timestamp::now();
    let request = Request::Continue(&seen);
    let done = rotation::change(&workshop.assets, &workshop.keys, &AwsLc, cluster, "etcd-ca", now, request)
        .await
        .unwrap();
    if done.did == Did::Waits {
        assert!(!done.waits.is_empty());
    }
    done.did
}

#[tokio::test(flavor = "multi_thread")]
async fn p4_the_whole_rotation_of_etcds_authority_loses_no_write() {
    let cloud = Surroundings::start().await;
    let cluster = slipway_spec::parse(example("production").as_bytes(), None).unwrap().cluster;
    for release in releases() {
        let credentials = Credentials::made("production").await;
        let workshop = &credentials.workshop;
        let dir = tempfile::tempdir().unwrap();
        let mut three = started(&credentials, &release, dir.path()).await;
        let before = bootstrapped(&cloud, &credentials, &mut three).await;
        let outside = dir.path().join("outside");
        std::fs::create_dir_all(&outside).unwrap();
        credentials.put(&role(0), &outside).await;
        let (mut writes, mut gap, mut retried) = (0, Duration::ZERO, 0);
        let begun = Instant::now();
        let now = Timestamp::now();
        let (assets, keys) = (&workshop.assets, &workshop.keys);
        let start = rotation::change(assets, keys, &AwsLc, &cluster, "etcd-ca", now, Request::Start);
        assert_eq!(start.await.unwrap().did, Did::Begun);
        for (stage, restarts, authorities, then) in [
            ("trust both", true, 2, Did::Issues),
            ("issue from the new one", false, 2, Did::Dropped),
            ("drop the old one", true, 1, Did::Ended),
        ] {
            // It uses the files of the first member, like any client beside it.
            let writer = Writer::start(&three[0].member.pki, urls(&three));
            let (stage_began, was) = (Instant::now(), processes(&three));
            for index in 0..three.len() {
                assert_eq!(
                    go_on(&cloud, &credentials, &cluster).await,
                    Did::Waits,
                    "{stage}: {index} is missing"
                );
                let (files, digest) = published(&cloud, &credentials, &role(index)).await;
                assert_eq!(files[AUTHORITY].matches("BEGIN CERTIFICATE").count(), authorities, "{stage}");
                for machine in &three {
                    machine.is_healthy().await;
                }
                if restarts {
                    let (done, failure) = three[index].agent(&["refresh", "--credentials", &digest]).await;
                    assert!(!done && failure["error"]["code"] == json!("refresh.read-at-start"), "{failure}");
                }
                let order = Order { credentials: digest, restart: restarts, ..Order::default() };
                let done = refreshed(&cloud, &mut three[index], &order).await.unwrap();
                let expected: &[&str] = if restarts { &["etcd"] } else { &[] };
                let restarted: Vec<&str> = done.restarted.iter().map(String::as_str).collect();
                assert_eq!((restarted.as_slice(), done.changed), (expected, true), "{stage}");
                assert!(done.served.iter().all(|served| served.certificate.as_ref().unwrap().verifies));
            }
            let took = stage_began.elapsed();
            for (was, is) in was.iter().zip(processes(&three)) {
                assert_eq!(*was == is, !restarts, "{stage}: restarted only if necessary");
            }
            let record = writer.stop().await;
            for machine in &three {
                machine.is_healthy().await;
                assert_eq!(record.lost(&machine.member).await, [""; 0], "etcd {}: {stage}", release.version);
            }
            println!(
                "etcd {}: {stage}: {took:.1?}, {} writes, 0 lost, {} retried, longest gap {:.3} s",
                release.version,
                record.writes(),
                record.retried,
                record.gap.as_secs_f64()
            );
            writes += record.writes();
            retried += record.retried;
            gap = gap.max(record.gap);
            assert_eq!(
                go_on(&cloud, &credentials, &cluster).await,
                then,
                "every member has reported its credentials"
            );
        }
        println!(
            "etcd {}: the whole rotation of its authority in {:.1?}: {writes} writes, 0 lost, {retried} retried, longest gap {:.3} s",
            release.version,
            begun.elapsed(),
            gap.as_secs_f64()
        );
        assert!(writes > 100);
        // A client whose certificate only the old authority issued is refused now.
        let status = three[0].status().await;
        assert!(status.healthy, "{status:#?}");
        assert_ne!(workshop.bundle(&role(0)).await[AUTHORITY], before[0][AUTHORITY]);
        let answer = super::writer::client(&outside).unwrap().get(three[0].member.client_url() + "/health");
        assert!(answer.send().await.is_err(), "the old authority still counts");
    }
}

fn processes(three: &[Machine]) -> Vec<Option<u32>> {
    three.iter().map(|machine| machine.member.process()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn p4_a_member_is_not_restarted_while_the_others_need_it_and_comes_back_as_it_was_if_it_fails() {
    let Some(release) = newest() else { return };
    let credentials = Credentials::made("production").await;
    let cloud = Surroundings::start().await;
    let dir = tempfile::tempdir().unwrap();
    let mut three = started(&credentials, &release, dir.path()).await;
    let before = bootstrapped(&cloud, &credentials, &mut three).await;
    let first = three[0].status().await.applied.credentials.unwrap();
    let (old, new) = (before[0][AUTHORITY].clone(), another(&credentials));
    let digest = cloud.publish(&role(0), &trusting(&before[0], &[&old, &new.certificate])).await;
    let order = Order { credentials: digest, restart: true, patience: Duration::from_secs(20) };

    three[2].member.stop().await;
    three[0].serves().await;
    let was = three[0].member.process();
    let failure = refreshed(&cloud, &mut three[0], &order).await.unwrap_err();
    assert_eq!((failure.code, failure.transient), (FailureCode::RefreshEtcdUnhealthy, true), "{failure:?}");
    assert_eq!(three[0].member.process(), was);
    assert_eq!(three[0].status().await.applied.credentials.as_ref(), Some(&first), "nothing was changed");
    three[2].member.start();
    for machine in &three {
        machine.is_healthy().await;
    }

    // The last stage before the first: no other member would trust it.
    let alone = trusting(&from(&credentials, &before[0], 0, &new), &[&new.certificate]);
    let alone = Order { credentials: cloud.publish(&role(0), &alone).await, ..order.clone() };
    let failure = refreshed(&cloud, &mut three[0], &alone).await.unwrap_err();
    assert_eq!((failure.code, failure.transient), (FailureCode::RefreshNotServed, true), "{failure:?}");
    for machine in &three {
        machine.is_healthy().await;
    }
    let status = three[0].status().await;
    assert!(status.healthy && status.applied.matches_node_file, "{status:#?}");
    assert_eq!(status.applied.credentials.as_ref(), Some(&first));
    assert_ne!(three[0].member.process(), was, "it was restarted, and restarted back");

    // In the right order it works.
    let done = refreshed(&cloud, &mut three[0], &order).await.unwrap();
    assert_eq!(done.restarted, ["etcd"]);
}
