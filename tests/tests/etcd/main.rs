//! Real etcd, three members with mutual TLS, with the files of a node's bundle, which the flow sealed, stored and opened: what etcd accepts
//! and what it refuses.
//!
//! The members listen on ports of 127.0.0.1, an address in their certificates. `openssl s_client` checks that their DNS names are in them,
//! too.
#![allow(clippy::unwrap_used, reason = "tests")]

mod defragment;
mod false_snapshots;
mod machine;
mod member;
mod orchestrated;
mod rotation;
mod runs;
mod snapshots;
mod snapshots_in_trouble;
mod verbs;
mod writer;

use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use member::{Client, Member, cluster};
use slipway_core::role::Role;
use slipway_credentials::{AssetKind, CertificateProfile, policy};
use slipway_crypto::AwsLc;
use slipway_ports::{Crypto as _, NewAsset};
use slipway_tests::tools;
use slipway_tests::workshop::{Workshop, example};

/// The credentials of a cluster that was rendered now, because etcd uses the machine's clock.
struct Credentials {
    workshop: Workshop,
}

impl Credentials {
    async fn made(example_name: &str) -> Self {
        let text = example(example_name);
        let mut workshop = Workshop::for_spec(&text);
        workshop.now = Timestamp::now();
        workshop.render(&text).await;
        Self { workshop }
    }

    /// Writes the files of a role's bundle to `dir`, without their folders.
    async fn put(&self, role: &Role, dir: &Path) {
        for (path, text) in self.workshop.bundle(role).await {
            member::put(dir, path.rsplit('/').next().unwrap(), &text);
        }
    }

    /// A certificate for `asset`, issued by the cluster's own etcd authority at another time.
    async fn issued(&self, asset: &str, at: Timestamp) -> NewAsset {
        self.signed(&self.profile(asset), at).await
    }

    async fn signed(&self, profile: &CertificateProfile, at: Timestamp) -> NewAsset {
        let signer = self.workshop.authority("etcd-ca").await;
        AwsLc.issue(profile, Some(&signer), at).unwrap()
    }

    fn profile(&self, asset: &str) -> CertificateProfile {
        let cluster = slipway_spec::parse(example("production").as_bytes(), None).unwrap().cluster;
        let found = policy::assets(&cluster).into_iter().find(|one| one.name == asset).unwrap();
        let AssetKind::Certificate(profile) = found.kind else { panic!("{asset} is not a certificate") };
        profile
    }
}

/// Three members that are not started, each with its own bundle; and the API server's client.
async fn three(credentials: &Credentials, dir: &Path) -> Option<(Vec<Member>, Client)> {
    let etcd = tools::debian("etcd-server", "etcd")?;
    let members = cluster(&etcd, dir, 3);
    for (index, member) in members.iter().enumerate() {
        credentials.put(&Role::Etcd(u32::try_from(index).unwrap()), &member.dir).await;
    }
    let controller = dir.join("controller");
    std::fs::create_dir_all(&controller).unwrap();
    credentials.put(&Role::Controller, &controller).await;
    let client = Client::new(&controller, "etcd-ca.pem", "apiserver-etcd-client");
    Some((members, client))
}

#[tokio::test(flavor = "multi_thread")]
async fn three_members_form_a_quorum_and_a_refreshed_certificate_is_served_without_a_restart() {
    let credentials = Credentials::made("production").await;
    let dir = tempfile::tempdir().unwrap();
    let Some((mut members, client)) = three(&credentials, dir.path()).await else { return };
    for member in &mut members {
        member.start();
    }
    for member in &members {
        member.is_healthy(&client).await;
    }
    // Written to one member and read from another, which needs a majority.
    assert!(client.writes(&members[0], "a", "1").await);
    assert!(client.get(&members[2], "a").await.contains("\"MQ==\""), "base64 of 1");
    // A member's own client, for its health check.
    let own = Client::new(&members[1].dir, "etcd-ca.pem", "healthcheck-client");
    assert!(own.get(&members[1], "a").await.contains("\"MQ==\""));
    // The cluster keeps its quorum without one member, and accepts it again.
    members[1].stop().await;
    assert!(client.writes(&members[0], "a", "2").await);
    members[1].start();
    members[1].is_healthy(&client).await;
    assert!(client.get(&members[1], "a").await.contains("\"Mg==\""), "base64 of 2");
    // Each member is accepted under its own DNS name, and not under another's.
    for (index, member) in members.iter().enumerate() {
        let called = |name: String| client.finds(member, name);
        assert!(called(format!("etcd-{index}.production.etcd.internal")).await);
        assert!(!called(format!("etcd-{}.production.etcd.internal", (index + 1) % 3)).await);
    }

    // The node agent installs a renewed certificate and its key.
    let process = members[0].process();
    let before = client.served_serial(&members[0]).await;
    let renewed = credentials.issued("etcd-server-0", Timestamp::now()).await;
    member::put_pair(&members[0].dir, "server", &renewed);
    let after = client.served_serial(&members[0]).await;
    let (facts, _) = AwsLc.facts(renewed.public.as_ref().unwrap()).unwrap();
    assert_ne!(before, after);
    assert_eq!(after, facts.serial, "the new one is served");
    assert_eq!(members[0].process(), process, "by the same process");
    assert!(client.writes(&members[0], "a", "3").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_another_authority_with_none_or_with_an_expired_certificate_is_refused() {
    let credentials = Credentials::made("production").await;
    let dir = tempfile::tempdir().unwrap();
    let Some((mut members, client)) = three(&credentials, dir.path()).await else { return };
    for member in &mut members {
        member.start();
    }
    members[0].is_healthy(&client).await;

    // An authority of the same cluster for another purpose: an administrator of Kubernetes has no access to etcd.
    let admin = dir.path().join("admin");
    std::fs::create_dir_all(&admin).unwrap();
    credentials.put(&Role::Admin, &admin).await;
    std::fs::copy(members[0].dir.join("etcd-ca.pem"), admin.join("etcd-ca.pem")).unwrap();
    members[0]
        .refuses(&Client::new(&admin, "etcd-ca.pem", "admin"), "certificate signed by unknown authority")
        .await;

    // An authority of another cluster with the same name.
    let stranger = Credentials::made("production").await;
    let theirs = dir.path().join("stranger");
    std::fs::create_dir_all(&theirs).unwrap();
    stranger.put(&Role::Controller, &theirs).await;
    let their_client = Client::new(&theirs, "etcd-ca.pem", "apiserver-etcd-client");
    assert!(!their_client.trusts(&members[0]).await, "nor does it trust the server");
    std::fs::copy(members[0].dir.join("etcd-ca.pem"), theirs.join("etcd-ca.pem")).unwrap();
    members[0].refuses(&their_client, "certificate signed by unknown authority").await;

    // Issued two years ago for one year, by the same authority and with the same names.
    let past = Timestamp::now() - SignedDuration::from_hours(24 * 365 * 2);
    let expired = credentials.issued("apiserver-etcd-client", past).await;
    member::put_pair(&dir.path().join("controller"), "expired", &expired);
    let expired = Client::new(&dir.path().join("controller"), "etcd-ca.pem", "expired");
    members[0].refuses(&expired, "certificate has expired or is not yet valid").await;

    members[0].refuses(&client.without_certificate(), "client didn't provide a certificate").await;
    assert!(client.writes(&members[0], "a", "1").await, "the right client is served all the time");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_with_a_wrong_certificate_stays_out_until_it_has_its_own() {
    let credentials = Credentials::made("production").await;
    let dir = tempfile::tempdir().unwrap();
    let Some((mut members, client)) = three(&credentials, dir.path()).await else { return };
    members[0].start();
    members[1].start();
    members[0].is_healthy(&client).await;
    assert!(client.writes(&members[0], "a", "1").await, "two of three are a majority");

    let stranger = Credentials::made("production").await;
    let strange = dir.path().join("strange");
    std::fs::create_dir_all(&strange).unwrap();
    stranger.put(&Role::Etcd(2), &strange).await;
    let past = Timestamp::now() - SignedDuration::from_hours(24 * 365 * 2);
    let expired = credentials.issued("etcd-peer-2", past).await;
    // With the member's names, so that only its purpose is wrong.
    let only_client = CertificateProfile { server: false, ..credentials.profile("etcd-peer-2") };
    let only_client = credentials.signed(&only_client, Timestamp::now()).await;
    let own: Vec<(String, String)> = ["peer.pem", "peer-key.pem"]
        .map(|name| (name.to_owned(), std::fs::read_to_string(members[2].dir.join(name)).unwrap()))
        .into();
    for (what, complaint) in [
        ("another authority", "certificate signed by unknown authority"),
        ("expired", "certificate has expired or is not yet valid"),
        ("a client's", "certificate specifies an incompatible key usage"),
    ] {
        match what {
            "another authority" => {
                for name in ["peer.pem", "peer-key.pem"] {
                    std::fs::copy(strange.join(name), members[2].dir.join(name)).unwrap();
                }
            }
            "expired" => member::put_pair(&members[2].dir, "peer", &expired),
            _ => member::put_pair(&members[2].dir, "peer", &only_client),
        }
        members[2].start();
        // Either side may open the connection, and one of them must report the reason.
        member::complains(&members, complaint, what).await;
        // etcd then connects in only one direction: a member that is refused as a server can still be a client of the others.
        if what != "a client's" {
            assert!(!members[2].joins_within(Duration::from_secs(1)).await, "{what}: it joined");
        }
        members[2].stop().await;
    }
    for (name, text) in own {
        member::put(&members[2].dir, &name, &text);
    }
    members[2].start();
    members[2].is_healthy(&client).await;
    assert!(members[2].joins_within(Duration::from_secs(1)).await, "the log says it in other words");
    assert!(client.get(&members[2], "a").await.contains("\"MQ==\""));

    // Clients judge the server's certificate: they refuse a client's certificate in its place.
    let only_client = CertificateProfile { server: false, ..credentials.profile("etcd-server-2") };
    member::put_pair(&members[2].dir, "server", &credentials.signed(&only_client, Timestamp::now()).await);
    assert!(!client.trusts(&members[2]).await);
    let expired = credentials.issued("etcd-server-1", past).await;
    member::put_pair(&members[1].dir, "server", &expired);
    assert!(!client.trusts(&members[1]).await);
    assert!(client.trusts(&members[0]).await);
}
