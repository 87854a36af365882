//! The agent's verbs on real members: health and leadership.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use slipway_credentials::CertificateProfile;
use slipway_crypto::AwsLc;
use slipway_ports::Crypto as _;

use super::Credentials;
use super::machine::{Machine, machines, newest, releases, running};
use super::member::{Client, put_pair};

#[tokio::test(flavor = "multi_thread")]
async fn health_tells_who_serves_who_is_gone_and_which_alarms_are_raised() {
    let credentials = Credentials::made("production").await;
    for release in releases() {
        let dir = tempfile::tempdir().unwrap();
        let mut three = machines(&credentials, &release, dir.path(), 3).await;
        let gone = three[0].health().await;
        assert!(!gone.healthy && !gone.serving && gone.id.is_none(), "nobody listens: {gone:?}");
        // A few large values reach two million bytes.
        three[1].member.flags = vec!["--quota-backend-bytes".to_owned(), "2000000".to_owned()];
        for machine in &mut three {
            machine.member.start();
        }
        let mut leaders = Vec::new();
        for machine in &three {
            let health = machine.is_healthy().await;
            assert_eq!(health.version.as_deref(), Some(release.version));
            assert!(health.serving && !health.learner && health.problems.is_empty());
            assert_eq!(health.members.len(), 3);
            assert!(health.members.iter().all(|member| member.reachable && !member.learner));
            assert_eq!(health.members.iter().filter(|member| member.leads).count(), 1);
            assert!(health.raft_lag.is_some_and(|entries| entries < 10), "{health:?}");
            assert!(health.db_size > 0 && health.raft_applied_index > 0 && health.revision > 0);
            assert_eq!(health.members[1].peer_urls, [three[1].member.peer_url()]);
            leaders.push(health.leader.clone().unwrap());
            assert_eq!(health.leads, health.leader == health.id);
        }
        assert!(leaders.iter().all(|leader| *leader == leaders[0]), "they agree on who leads");
        assert_eq!(three[1].health().await.db_quota, Some(2_000_000), "{}", release.version);
        assert_eq!(three[0].health().await.db_quota, Some(2 << 30), "etcd's own");

        // One member is down: the others serve, and report that no other may be taken down.
        three[2].member.stop().await;
        let health = three[0].serves().await;
        assert!(!health.healthy);
        assert!(
            health.problems.iter().any(|problem| problem.contains("etcd-2 cannot be reached")),
            "{health:?}"
        );
        three[2].member.start();
        three[0].is_healthy().await;

        // A write above one member's quota is refused for all.
        let client = Client::new(&three[0].member.pki, "etcd-ca.pem", "healthcheck-client");
        three[1].is_filled_through(&client, &three[0].member, &"v".repeat(400_000)).await;
        let health = three[2].comes_to(|health| !health.alarms.is_empty()).await;
        let quota_of = three[1].health().await.id.unwrap();
        let alarm = &health.alarms[0];
        assert_eq!((alarm.member.as_str(), alarm.kind.as_str()), (quota_of.as_str(), "NOSPACE"));
        assert!(!health.healthy && health.serving, "it can still be read");

        // Without a majority no member serves.
        three[1].member.stop().await;
        three[2].member.stop().await;
        let health = three[0].health().await;
        assert!(!health.serving && !health.healthy, "{health:?}");
        assert!(health.id.is_some(), "its own name is still reported");
    }
}

async fn leader(three: &[Machine]) -> usize {
    for (index, machine) in three.iter().enumerate() {
        if machine.is_healthy().await.leads {
            return index;
        }
    }
    panic!("nobody leads")
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_is_moved_by_who_has_it_and_by_nobody_else() {
    let credentials = Credentials::made("production").await;
    for release in releases() {
        let dir = tempfile::tempdir().unwrap();
        let mut three = running(&credentials, &release, dir.path(), 3).await;
        let first = leader(&three).await;
        let moved = three[first].does(&["etcd", "move-leader"]).await;
        assert_eq!(moved["moved"], json!(true), "{moved}");
        let second = leader(&three).await;
        assert_ne!(first, second);
        assert_eq!(moved["leader"], json!(three[second].health().await.id.unwrap()));
        let again = three[first].does(&["etcd", "move-leader"]).await;
        assert_eq!(
            (&again["moved"], &again["leader"]),
            (&json!(false), &moved["leader"]),
            "run again: {again}"
        );

        // Leadership goes to a member that runs, whatever was reported before.
        let third = 3 - first - second;
        three[first].member.stop().await;
        let moved = three[second].does(&["etcd", "move-leader"]).await;
        assert_eq!(moved["moved"], json!(true));
        assert!(three[third].health().await.leads);
        // No other member remains that could lead.
        three[second].member.stop().await;
        let (done, failure) = three[third].agent(&["etcd", "move-leader"]).await;
        assert!(!done && failure["error"]["transient"] == json!(true), "{failure}");
    }
}

/// P4: etcd itself refuses a removal for some seconds after members have joined. The agent waits for that, and a repeated call succeeds.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_is_taken_out_by_another_and_the_rest_serve_on() {
    let credentials = Credentials::made("production").await;
    for release in releases() {
        let dir = tempfile::tempdir().unwrap();
        let three = running(&credentials, &release, dir.path(), 3).await;
        let leads = leader(&three).await;
        let (stays, goes) = ((leads + 1) % 3, (leads + 2) % 3);
        let name = format!("etcd-{goes}");
        let removed = three[stays].does(&["etcd", "remove", "--member", &name]).await;
        assert_eq!((&removed["removed"], &removed["members"]), (&json!(true), &json!(2)), "{removed}");
        let again = three[stays].does(&["etcd", "remove", "--member", &name]).await;
        assert_eq!((&again["removed"], &again["members"]), (&json!(false), &json!(2)), "{again}");
        three[stays].is_healthy().await;
        let own = format!("etcd-{stays}");
        let (done, failure) = three[stays].agent(&["etcd", "remove", "--member", &own]).await;
        assert!(!done && failure["error"]["code"] == json!("etcd.remove-self"), "{failure}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_member_alone_keeps_leadership_and_a_node_of_another_role_has_none() {
    let Some(release) = newest() else { return };
    let credentials = Credentials::made("production").await;
    let dir = tempfile::tempdir().unwrap();
    let mut one = machines(&credentials, &release, dir.path(), 1).await;
    one[0].member.start();
    one[0].is_healthy().await;
    let stays = one[0].does(&["etcd", "move-leader"]).await;
    assert_eq!(stays["moved"], json!(false), "{stays}");

    std::fs::remove_file(one[0].member.dir.join("var/lib/slipway/config.json")).unwrap();
    let (done, failure) = one[0].agent(&["etcd", "health"]).await;
    assert!(!done && failure["error"]["code"] == json!("config.unreadable"), "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_tells_the_certificate_that_is_served_and_whether_it_verifies() {
    let Some(release) = newest() else { return };
    let credentials = Credentials::made("production").await;
    let dir = tempfile::tempdir().unwrap();
    let mut one = machines(&credentials, &release, dir.path(), 1).await;
    let machine = &mut one[0];
    let status = machine.status().await;
    assert!(!status.healthy && status.served.iter().all(|served| served.certificate.is_none()), "{status:?}");
    assert!(status.served[0].problem.as_ref().unwrap().contains("the connection failed"), "{status:?}");

    machine.member.start();
    machine.is_healthy().await;
    let status = machine.status().await;
    assert!(status.healthy, "{status:#?}");
    assert_eq!((status.format, status.role.as_str()), (1, "etcd-0"));
    for (served, file, port) in [
        (&status.served[0], "server.pem", machine.member.client_port),
        (&status.served[1], "peer.pem", machine.member.peer_port),
    ] {
        let pem = std::fs::read_to_string(machine.member.pki.join(file)).unwrap();
        let (facts, fingerprint) = AwsLc.facts(&pem).unwrap();
        let certificate = served.certificate.as_ref().unwrap();
        assert_eq!(certificate.serial, facts.serial);
        assert_eq!(certificate.fingerprint, fingerprint, "as in the inventory");
        assert_eq!((certificate.not_before, certificate.not_after), (facts.not_before, facts.not_after));
        assert_eq!((certificate.issuer.as_str(), certificate.verifies), ("CN=etcd-ca", true));
        assert_eq!(served.address.port(), port);
    }
    // Only the client's certificate; neither served certificates nor authorities.
    let [held] = status.held.as_slice() else { panic!("one client: {:?}", status.held) };
    let pem = std::fs::read_to_string(machine.member.pki.join("healthcheck-client.pem")).unwrap();
    let (facts, fingerprint) = AwsLc.facts(&pem).unwrap();
    assert_eq!(held.path, "/etc/etcd/pki/healthcheck-client.pem", "as the bundle has it");
    assert_eq!((&held.serial, held.not_after), (&facts.serial, facts.not_after));
    assert_eq!((&held.fingerprint, held.issuer.as_str()), (&fingerprint, "CN=etcd-ca"));

    let config = std::fs::read(machine.member.dir.join("var/lib/slipway/config.json")).unwrap();
    let config = slipway_core::digest::sha256_hex(&config);
    assert_eq!(status.applied.config.as_ref(), Some(&config));
    assert!(!status.applied.matches_node_file, "the expected credentials are unknown");

    // The served certificate counts and not the one on the disk, and a served certificate may be wrong.
    let past = Timestamp::now() - SignedDuration::from_hours(24 * 365 * 2);
    let of_another_name = CertificateProfile {
        sans: ["elsewhere.internal".to_owned()].into(),
        ..credentials.profile("etcd-server-0")
    };
    let stranger = Credentials::made("production").await;
    for (made, why) in [
        (credentials.issued("etcd-server-0", past).await, "expired"),
        (credentials.signed(&of_another_name, Timestamp::now()).await, "not valid for name"),
        (stranger.issued("etcd-server-0", Timestamp::now()).await, "BadSignature"),
    ] {
        put_pair(&machine.member.pki, "server", &made);
        let status = machine.status().await;
        let served = &status.served[0];
        let (facts, _) = AwsLc.facts(made.public.as_ref().unwrap()).unwrap();
        assert_eq!(served.certificate.as_ref().unwrap().serial, facts.serial, "{why}");
        assert!(!served.certificate.as_ref().unwrap().verifies && !status.healthy, "{why}");
        assert!(served.problem.as_ref().unwrap().contains(why), "{why}: {:?}", served.problem);
    }
}
