//! `renew --recover` after everything has expired: the binary, with the embedded AWS' Auto Scaling and Run Command. And a rotation with
//! `rotate-ca`, which waits for each machine and names it.

use jiff::{SignedDuration, Timestamp};
use slipway_core::keys;
use slipway_core::role::Role;
use slipway_credentials::Manifest;
use slipway_sim::world::MachineFacts;
use slipway_tests::client::machine_arn;

use super::permissions::{
    a_defragmentation_needs_what_the_page_says_and_nothing_more,
    a_recovery_needs_what_the_page_says_and_nothing_more,
    a_restore_needs_what_the_page_says_and_nothing_more,
    a_snapshot_needs_what_the_page_says_and_nothing_more,
};
use super::*;

fn machines(slipway: &Installation) -> Vec<MachineFacts> {
    slipway.world().cloud().with(|cloud| cloud.machines())
}

async fn manifest(slipway: &Installation) -> Manifest {
    slipway.document(CLUSTER, "pki/manifest.json").await.unwrap().unwrap()
}

/// Waits until every machine of the cluster is in service.
async fn all_up(slipway: &Installation) {
    for _ in 0..600 {
        if machines(slipway).iter().all(|one| one.ready) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{:?}", machines(slipway));
}

/// P7: the stored certificates expired a month ago, no member of etcd accepts another, and no API answers; one command recovers the
/// cluster.
#[tokio::test(flavor = "multi_thread")]
async fn p7_a_cluster_whose_certificates_have_all_expired_is_brought_back_by_one_command() {
    let settings = maintained(Settings { one_clock: true, ..Settings::default() });
    let slipway = Installation::start(&settings).await.unwrap();
    // For the functions, the launch was that long ago.
    slipway.set_clock_ahead(SignedDuration::from_hours(-24 * 395));
    upload(&slipway, &spec()).await;
    slipway.set_clock_ahead(SignedDuration::ZERO);
    all_up(&slipway).await;
    slipway.world().cloud().with(|cloud| cloud.expire(CLUSTER));
    let stands = || slipway.world().cloud().with(|cloud| cloud.cluster_facts(CLUSTER)).unwrap();
    assert!(stands().leader.is_none() && stands().api_servers.is_empty(), "{:?}", stands());
    let old = manifest(&slipway).await;

    let run = async |arguments: &str| named(&slipway, ADMINISTRATOR, arguments).await;
    let dry = run("renew --recover --cluster minimal --dry-run --output json").await.json();
    assert_eq!(dry["wouldRenew"].as_array().unwrap().len(), 11, "{dry}");
    assert_eq!(manifest(&slipway).await, old, "a verb that only reads writes nothing");
    let mark = slipway.world().observer().mark();
    let recovered = run("renew --recover --cluster minimal").await;
    assert_eq!(recovered.code, 0, "{recovered:?}");
    let at = |words: &str| recovered.out.find(words).unwrap_or_else(|| panic!("{words}: {}", recovered.out));
    assert!(
        at("renewed: ") < at("(etcd-0)") && at("(etcd-0)") < at("etcd serves again"),
        "{}",
        recovered.out
    );
    assert!(at("etcd serves again") < at("(controller)"), "{}", recovered.out);
    assert!(at("the API is back on 1 of 1") < at("(pool-general)"), "{}", recovered.out);
    assert!(recovered.out.contains("slipway kubeconfig --cluster minimal"), "{}", recovered.out);

    let new = manifest(&slipway).await;
    let now = Timestamp::now();
    for (name, entry) in &new.assets {
        let Some(certificate) = &entry.certificate else { continue };
        assert_eq!(entry.fingerprint != old.assets[name].fingerprint, !name.ends_with("ca"), "{name}");
        assert!(certificate.not_after > now, "{name}: {certificate:?}");
    }
    for machine in machines(&slipway) {
        let role: Role = machine.role.parse().unwrap();
        assert_eq!(machine.credentials, new.bundles[&role].digest, "{machine:?}");
        assert!(!machine.expired, "{machine:?}");
    }
    assert!(stands().leader.is_some() && stands().api_servers.len() == 1, "{:?}", stands());

    // An event was published, so that launch templates get the new credentials, too; a second run changes nothing.
    assert!(slipway.event(mark, &["Certificate Renewed"], PATIENCE).await.is_some());
    slipway.rolled_out(mark).await.unwrap();
    let again = run("renew --recover --cluster minimal").await;
    assert!(again.code == 0 && again.out.contains("no certificate was renewed"), "{again:?}");
    assert_eq!(manifest(&slipway).await, new);

    // In the same installation, because starting one takes time.
    let snapshot = a_snapshot_needs_what_the_page_says_and_nothing_more(&slipway).await;
    a_restore_needs_what_the_page_says_and_nothing_more(&slipway, &snapshot).await;
    a_defragmentation_needs_what_the_page_says_and_nothing_more(&slipway).await;
    a_recovery_needs_what_the_page_says_and_nothing_more(&slipway).await;
    assert!(slipway.world().settle(QUIET, PATIENCE).await);
    a_rotation_waits_for_each_machine_by_name_and_goes_on_when_all_have_told(&slipway).await;
    assert_eq!(slipway.dead_letters().await.unwrap(), 0);
}

/// The next stage begins when every machine that Auto Scaling knows has reported the last one, and each machine without a report is named.
async fn a_rotation_waits_for_each_machine_by_name_and_goes_on_when_all_have_told(slipway: &Installation) {
    let run = async |arguments: &str| {
        named(slipway, ADMINISTRATOR, &format!("rotate-ca {arguments} --cluster minimal")).await
    };
    let mark = slipway.world().observer().mark();
    let begun = run("etcd-ca --upload").await;
    assert!(begun.code == 0 && begun.out.contains("the rotation of etcd-ca has begun"), "{begun:?}");
    slipway.rolled_out(mark).await.unwrap();

    let waits = run("etcd-ca").await;
    let reached: Vec<MachineFacts> =
        machines(slipway).into_iter().filter(|one| !one.role.starts_with("pool-")).collect();
    assert_eq!(reached.len(), 2, "{reached:?}");
    for machine in &reached {
        let words = format!("{} of {} was never heard of", machine.id, machine.role);
        assert!(waits.out.contains(&words), "{words}: {}", waits.out);
    }
    let manifest = manifest(slipway).await;
    for (told, machine) in reached.iter().enumerate() {
        let before = run("etcd-ca --dry-run --output json").await.json();
        assert_eq!(before["waits"].as_array().unwrap().len(), reached.len() - told, "{before}");
        let role: Role = machine.role.parse().unwrap();
        let status = json!({"format": 1, "at": Timestamp::now(), "cluster": CLUSTER, "role": machine.role,
            "applied": {"matchesNodeFile": true, "credentials": manifest.bundles[&role].digest},
            "components": [], "healthy": true, "served": []});
        let key = keys::node_status(CLUSTER, &machine.role, &machine_arn(&machine.id));
        slipway.world().upload("AssetBucket", &key, status.to_string().into_bytes()).await.unwrap();
    }
    let issues = run("etcd-ca").await;
    assert!(issues.code == 0 && issues.out.contains("the new etcd-ca has taken over"), "{issues:?}");
    let back = run("etcd-ca --abort").await;
    assert!(back.code == 0 && back.out.contains("the rotation of etcd-ca goes back"), "{back:?}");
}
