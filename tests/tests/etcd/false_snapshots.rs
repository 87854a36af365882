//! Attacks on restores: whoever may write into the bucket, or has taken over a member, puts a false snapshot where a good one is looked for.

use serde_json::json;
use slipway_core::keys;
use slipway_tests::surroundings::Surroundings as Cloud;

use super::Credentials;
use super::machine::{Machine, newest};
use super::snapshots_in_trouble::single;

const NAME: &str = "production";

/// Has the member verify the snapshot of that time. Returns the code of the failure, and all that it says.
async fn refused(machine: &mut Machine, time: &str, more: &[&str]) -> (String, String) {
    let words = [&["etcd", "restore", "--snapshot", time, "--stage", "verify"], more].concat();
    let (done, told) = machine.agent_with_systemd(&words).await;
    assert!(!done, "{words:?}: {told}");
    (told["error"]["code"].as_str().unwrap().to_owned(), told.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_false_snapshot_takes_the_place_of_no_good_one() {
    let Some(release) = newest() else { return };
    let credentials = Credentials::made(NAME).await;
    let cloud = Cloud::start().await;
    let dir = tempfile::tempdir().unwrap();
    let (mut machine, _) = single(&credentials, &cloud, &release, dir.path()).await;
    let old = machine.does(&["etcd", "snapshot"]).await;
    let good = machine.does(&["etcd", "snapshot"]).await;
    let text = |told: &serde_json::Value, name: &str| told[name].as_str().unwrap().to_owned();
    let (time, sha256) = (text(&good, "time"), text(&good, "sha256"));
    let bytes = cloud.object(&text(&old, "key")).await;

    // An old snapshot of the cluster, copied to a time at which there is none.
    let copied = "20300101T000000Z";
    for key in [keys::etcd_snapshot(NAME, copied), keys::scheduled_snapshot(NAME, "20300102T000000Z")] {
        cloud.put(&key, &bytes).await;
    }
    for time in [copied, "20300102T000000Z"] {
        let (code, told) = refused(&mut machine, time, &[]).await;
        assert!(code == "restore.wrong-snapshot" && told.contains("is a copy of another snapshot"), "{told}");
    }
    // The same, with the name in its head changed, or taken off.
    let name = text(&old, "key");
    let at = bytes.windows(name.len()).position(|part| part == name.as_bytes()).unwrap();
    let named = keys::etcd_snapshot(NAME, "20300103T000000Z");
    let renamed = [&bytes[..at], named.as_bytes(), &bytes[at + name.len()..]].concat();
    cloud.put(&named, &renamed).await;
    let former = [b"SLPS1", &bytes[5..at - 2], &bytes[at + name.len()..]].concat();
    cloud.put(&keys::etcd_snapshot(NAME, "20300104T000000Z"), &former).await;
    for time in ["20300103T000000Z", "20300104T000000Z"] {
        let (_, told) = refused(&mut machine, time, &[]).await;
        assert!(told.contains("tampered with"), "{told}");
    }

    // The good one says what it must hold.
    let verified = ["--snapshot", &time, "--stage", "verify", "--sha256", &sha256];
    assert_eq!(machine.restores(&verified).await["sha256"], json!(sha256));
    let other = "0f".repeat(32);
    let (code, told) = refused(&mut machine, &time, &["--sha256", &other]).await;
    assert!(code == "restore.wrong-snapshot" && told.contains(&sha256) && told.contains(&other), "{told}");

    // One beside the good one, in the other folder: neither is chosen.
    cloud.put(&keys::scheduled_snapshot(NAME, &time), &bytes).await;
    for more in [&[][..], &["--sha256", &sha256]] {
        let (code, told) = refused(&mut machine, &time, more).await;
        assert!(code == "restore.twins" && told.contains(&text(&good, "key")), "{told}");
    }
}

/// A key of somebody else, which the machine's role may use because of that key's own policy. And a snapshot of an agent of before, which could be a copy.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_nobody_knows_is_restored_only_by_its_sha256() {
    let Some(release) = newest() else { return };
    let credentials = Credentials::made(NAME).await;
    let cloud = Cloud::start().await;
    let dir = tempfile::tempdir().unwrap();
    let (mut machine, digest) = single(&credentials, &cloud, &release, dir.path()).await;
    // The snapshot is sealed under a key that the credentials have as well, and then these are of the first key alone.
    let own = machine.member.dir.join("var/lib/slipway/credentials.sealed");
    let of_first = std::fs::read(&own).unwrap();
    let foreign = cloud.seal_anew(&super::snapshots_in_trouble::MEMBER, &digest).await;
    machine.environment = cloud.environment_with_key(&foreign, None).await;
    let taken = machine.does(&["etcd", "snapshot"]).await;
    assert_eq!(taken["sealedUnder"], json!(foreign));
    let stored = keys::credentials(NAME, "etcd-0", &digest);
    cloud.put(&stored, &of_first).await;
    std::fs::write(&own, &of_first).unwrap();

    let (time, sha256) = (taken["time"].as_str().unwrap(), taken["sha256"].as_str().unwrap());
    let (code, told) = refused(&mut machine, time, &[]).await;
    assert!(code == "restore.wrong-snapshot" && told.contains(&foreign), "{told}");
    let by_person = ["--snapshot", time, "--stage", "verify", "--sha256", sha256];
    let doubts = machine.restores(&by_person).await["doubts"].clone();
    assert!(
        doubts.as_array().unwrap().len() == 1 && doubts[0].as_str().unwrap().contains(&foreign),
        "{doubts}"
    );
}
