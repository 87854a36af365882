//! Snapshots that can be restored, of which only complete ones are reported; and members that join.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use slipway_core::keys;
use slipway_core::role::Role;
use slipway_core::snapshots::{LastSnapshot, SnapshotClaim, SnapshotLedger, Taker};
use slipway_tests::surroundings::Surroundings as Cloud;

use super::Credentials;
use super::machine::{Machine, Release, machines, newest, releases};
use super::member::Client;
use super::writer::{Writer, client};

fn role(index: usize) -> Role {
    Role::Etcd(u32::try_from(index).unwrap())
}

/// Three running members that use the cloud.
async fn three(credentials: &Credentials, cloud: &Cloud, release: &Release, dir: &Path) -> Vec<Machine> {
    let mut three = machines(credentials, release, dir, 3).await;
    for (index, machine) in three.iter_mut().enumerate() {
        let digest = cloud.publish(&role(index), &credentials.workshop.bundle(&role(index)).await).await;
        machine.hosted(cloud, &role(index), &digest);
        machine.member.start();
    }
    for machine in &three {
        machine.is_healthy().await;
        let digest = machine.status().await.applied.credentials;
        assert_eq!(digest, None, "laid out by hand");
        let asked: Value = machine.read("node.json");
        machine.does(&["refresh", "--credentials", asked["credentials"].as_str().unwrap()]).await;
    }
    three
}

async fn revision(machine: &Machine) -> u64 {
    machine.health().await.revision
}

/// The first message for a watcher from `revision`.
async fn watched(machine: &Machine, revision: u64) -> Value {
    let url = format!("{}/v3/watch", machine.member.client_url());
    let body = json!({ "create_request": { "key": "AA==", "range_end": "AA==", "start_revision": revision.to_string() } });
    let mut answer = client(&machine.member.pki).unwrap().post(url).json(&body).send().await.unwrap();
    let mut text = Vec::new();
    loop {
        text.extend(answer.chunk().await.unwrap().expect("the watch stays"));
        let lines = std::str::from_utf8(&text).unwrap().lines();
        let told: Vec<Value> = lines.filter_map(|line| serde_json::from_str(line).ok()).collect();
        if let Some(told) = told.iter().find(|told| told["result"]["canceled"] == json!(true)) {
            return told["result"].clone();
        }
        if let Some(told) = told.iter().find(|told| told["result"]["events"].is_array()) {
            return told["result"].clone();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_was_destroyed_is_restored_with_every_key_and_revisions_go_forward() {
    let credentials = Credentials::made("production").await;
    let cloud = Cloud::start().await;
    for release in releases() {
        let dir = tempfile::tempdir().unwrap();
        let mut three = three(&credentials, &cloud, &release, dir.path()).await;
        let writer = Writer::start(&three[0].member.pki, three.iter().map(|one| one.member.client_url()));
        tokio::time::sleep(Duration::from_millis(500)).await;
        let record = writer.stop().await;
        let snapshot = three[1].does(&["etcd", "snapshot"]).await;
        let time = snapshot["time"].as_str().unwrap().to_owned();
        assert!(snapshot["revision"].as_u64().unwrap() >= record.revision, "{snapshot}");
        assert_eq!(snapshot["key"], json!(format!("clusters/production/etcd-snapshots/{time}.db")));
        assert_eq!(snapshot["sealedUnder"], json!(cloud.key));
        // No part of it remains on the disk, and the object in the bucket is sealed.
        let left = std::fs::read_dir(three[1].member.dir.join("var/lib/slipway")).unwrap();
        let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert!(left.into_iter().all(|name| !name.starts_with("snapshot-")));
        let stored = cloud.object(snapshot["key"].as_str().unwrap()).await;
        assert!(stored.starts_with(b"SLPS2") && stored.len() as u64 > snapshot["size"].as_u64().unwrap());
        assert!(!stored.windows(8).any(|bytes| bytes == b"value of"));

        // Writes after the snapshot are lost with a restore, and a watcher that saw them must not see their revisions again.
        let client = Client::new(&three[0].member.pki, "etcd-ca.pem", "healthcheck-client");
        assert!(client.writes(&three[0].member, "later", "1").await);
        let seen = revision(&three[0]).await;
        // Two of the machines are lost with their data; the third still runs.
        three[1].member.stop().await;
        three[2].member.stop().await;
        std::fs::remove_dir_all(&three[2].member.data).unwrap();
        for (index, machine) in three.iter_mut().enumerate() {
            let restored = machine.restores(&["--snapshot", &time]).await;
            assert_eq!(restored["changed"], json!(true));
            assert_eq!(restored["sha256"], snapshot["sha256"]);
            assert_eq!(restored["token"], json!(format!("production-{time}")));
            assert_eq!(restored["bumped"], json!(release.version != "3.4.23"), "{restored}");
            // The first has no majority, waits for no other, and says so.
            let etcd = if index == 0 { "waiting" } else { "serving" };
            assert_eq!(restored["etcd"], json!(etcd), "{restored}");
            assert!(!machine.member.data.with_file_name("restore.part").exists());
            // The restore is not skipped silently: data that was written since is not taken for the requested restore.
            let (done, again) = machine.agent_with_systemd(&["etcd", "restore", "--snapshot", &time]).await;
            assert!(!done && again["error"]["code"] == json!("restore.token"), "{again}");
        }
        let asides = |machine: &Machine| -> Vec<PathBuf> {
            let entries = std::fs::read_dir(machine.member.data.parent().unwrap()).unwrap();
            let paths = entries.map(|entry| entry.unwrap().path());
            paths.filter(|path| path.to_string_lossy().contains("data.before-")).collect()
        };
        assert_eq!([asides(&three[0]).len(), asides(&three[2]).len()], [1, 0], "old data are kept");
        assert!(asides(&three[0])[0].join("member/snap/db").exists());

        let mut ids = BTreeSet::new();
        for machine in &three {
            let health = machine.is_healthy().await;
            ids.insert(health.cluster_id);
            assert_eq!(record.lost(&machine.member).await, [""; 0], "etcd {}", release.version);
        }
        assert_eq!(ids.len(), 1, "all members have the same cluster id");
        assert!(!client.get(&three[0].member, "later").await.contains("\"count\""));
        let after = revision(&three[0]).await;
        if release.version == "3.4.23" {
            assert!(after < seen, "its program cannot raise revisions, and the agent says so");
        } else {
            assert!(after > seen + 900_000_000, "{after} after {seen}");
            // A watcher from an old revision is told to start again, instead of receiving nothing.
            let told = watched(&three[0], seen).await;
            assert!(told["compact_revision"].as_str().unwrap().parse::<u64>().unwrap() > seen, "{told}");
        }
        // Again from the same snapshot, under a new token, which identifies this restore.
        assert!(client.writes(&three[0].member, "later", "2").await);
        let once_more = ["--snapshot", &time, "--token", "once-more", "--bump", "2000000000"];
        for machine in &mut three {
            assert_eq!(machine.restores(&once_more).await["changed"], json!(true));
            let again = machine.restores(&once_more).await;
            assert_eq!((&again["changed"], &again["started"]), (&json!(false), &json!(true)));
        }
        for machine in &three {
            let other = machine.is_healthy().await.cluster_id;
            assert!(!ids.contains(&other), "members of the two would mix");
            assert_eq!(record.lost(&machine.member).await, [""; 0], "etcd {}", release.version);
        }
        assert!(!client.get(&three[0].member, "later").await.contains("\"count\""));
        // Clients have seen the revisions of the first restore, so no later one may raise them by less.
        if release.version != "3.4.23" {
            let less = ["etcd", "restore", "--snapshot", &time, "--token", "less", "--bump", "2000000000"];
            let (done, refused) = three[0].agent_with_systemd(&less).await;
            assert!(!done && refused["error"]["code"] == json!("restore.revision-bump"), "{refused}");
        }
        let twice = revision(&three[0]).await;
        assert!(release.version == "3.4.23" || twice > after + 900_000_000, "{twice} after {after}");
        for token in ["test", &format!("production-{time}")] {
            let used = ["etcd", "restore", "--snapshot", &time, "--token", token];
            let (done, refused) = three[0].agent_with_systemd(&used).await;
            assert!(!done && refused["error"]["code"] == json!("restore.token"), "{refused}");
        }
        println!(
            "etcd {}: snapshot of {} bytes sealed, uploaded and read back in {} s; restored: {} keys back, revision {seen} -> {after}",
            release.version,
            snapshot["size"],
            snapshot["seconds"],
            record.writes()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_a_large_database_takes_no_more_memory_than_a_small_one() {
    let Some(release) = newest() else { return };
    let credentials = Credentials::made("production").await;
    let cloud = Cloud::start().await;
    let dir = tempfile::tempdir().unwrap();
    let mut one = machines(&credentials, &release, dir.path(), 1).await;
    let machine = &mut one[0];
    let digest = cloud.publish(&role(0), &credentials.workshop.bundle(&role(0)).await).await;
    machine.hosted(&cloud, &role(0), &digest);
    machine.member.start();
    machine.is_healthy().await;
    machine.does(&["refresh", "--credentials", &digest]).await;
    let (small, floor) = machine.peak(&["etcd", "snapshot"]).await;
    let value = STANDARD.encode("v".repeat(1_000_000));
    let url = format!("{}/v3/kv/put", machine.member.client_url());
    for number in 0..50 {
        let body = json!({ "key": STANDARD.encode(format!("large/{number}")), "value": value });
        let answer = client(&machine.member.pki)
            .unwrap()
            .post(&url)
            .json(&body)
            .timeout(Duration::from_secs(20))
            .send();
        assert!(answer.await.unwrap().status().is_success());
    }
    let (large, peak) = machine.peak(&["etcd", "snapshot"]).await;
    assert!(large["size"].as_u64().unwrap() > 50_000_000, "{large}");
    println!(
        "snapshot of {} bytes: {floor} KiB at most; of {} bytes: {peak} KiB, {} s",
        small["size"], large["size"], large["seconds"]
    );
    assert!(peak < floor + 16 * 1024, "{peak} KiB, and a small snapshot takes {floor} KiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_at_one_time_do_not_write_into_one_another() {
    let Some(release) = newest() else { return };
    let credentials = Credentials::made("production").await;
    let cloud = Cloud::start().await;
    let dir = tempfile::tempdir().unwrap();
    let mut three = three(&credentials, &cloud, &release, dir.path()).await;
    // Concurrently on one member: each either succeeds or says that another is being taken.
    let words = ["etcd", "snapshot"];
    let one = &three[0];
    let answers = tokio::join!(one.agent(&words), one.agent(&words), one.agent(&words), one.agent(&words));
    let answers = [answers.0, answers.1, answers.2, answers.3];
    let (done, busy): (Vec<_>, Vec<_>) = answers.iter().partition(|(done, _)| *done);
    assert!(!done.is_empty(), "{answers:?}");
    assert!(busy.iter().all(|(_, told)| told["error"]["code"] == json!("snapshot.busy")), "{busy:?}");
    // Concurrently on all members in one second: each gets its own name.
    let all = tokio::join!(three[0].does(&words), three[1].does(&words), three[2].does(&words));
    let taken: Vec<&Value> = done.into_iter().map(|(_, told)| told).chain([&all.0, &all.1, &all.2]).collect();
    let keys: BTreeSet<&str> = taken.iter().map(|told| told["key"].as_str().unwrap()).collect();
    assert_eq!(keys.len(), taken.len(), "{taken:?}");
    let left = std::fs::read_dir(three[0].member.dir.join("var/lib/slipway")).unwrap();
    let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(left.into_iter().all(|name| !name.ends_with(".sealed") || name == "credentials.sealed"));
    for (number, told) in (1..).zip(taken) {
        let token = told["time"].as_str().unwrap().replace('T', "-");
        let (time, bump) = (told["time"].as_str().unwrap(), (number * 1_000_000).to_string());
        three[0].restores(&["--snapshot", time, "--token", &token, "--bump", &bump]).await;
    }
}

const SCHEDULED: [&str; 3] = ["etcd", "snapshot", "--scheduled"];

/// Every member's timer runs at the same time, as often as asked. Returns the members that took a snapshot.
async fn timers_run(three: &[Machine]) -> Vec<Value> {
    let runs = tokio::join!(three[0].does(&SCHEDULED), three[1].does(&SCHEDULED), three[2].does(&SCHEDULED));
    [runs.0, runs.1, runs.2].into_iter().filter(|run| run["taken"].is_object()).collect()
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
async fn a_scheduled_snapshot_is_taken_once_whoever_leads_and_without_the_leader_another_takes_it() {
    let Some(release) = newest() else { return };
    let credentials = Credentials::made("production").await;
    let cloud = Cloud::start().await;
    let dir = tempfile::tempdir().unwrap();
    let mut three = three(&credentials, &cloud, &release, dir.path()).await;
    let schedule = |since: Timestamp| json!({ "format": 1, "everyHours": 1, "since": since }).to_string();
    let key = keys::snapshot_schedule("production");
    // The scan has not written a schedule yet.
    assert_eq!(timers_run(&three).await.len(), 0);
    cloud.put(&key, schedule(Timestamp::now()).as_bytes()).await;

    // All timers run at once, and again: the leader takes one.
    let taken = timers_run(&three).await;
    assert_eq!(taken.len(), 1, "{taken:?}");
    let first = &taken[0]["taken"];
    let time = first["time"].as_str().unwrap().to_owned();
    assert_eq!(first["key"], json!(keys::scheduled_snapshot("production", &time)));
    let ledger = keys::snapshot_ledger("production");
    let told: SnapshotLedger = serde_json::from_slice(&cloud.object(&ledger).await).unwrap();
    assert_eq!((told.claim.as_ref(), told.failure.as_ref()), (None, None));
    let last = told.last.clone().unwrap();
    let leads = leader(&three).await;
    assert_eq!(
        (last.by.member.as_str(), last.time.as_str()),
        (three[leads].member.name.as_str(), time.as_str())
    );
    let record: Value =
        serde_json::from_slice(&cloud.object(&keys::snapshot_record(first["key"].as_str().unwrap())).await)
            .unwrap();
    assert_eq!(record, *first, "it says what was verified");

    // Another leads: the snapshot was taken.
    three[leads].does(&["etcd", "move-leader"]).await;
    assert_ne!(leader(&three).await, leads);
    assert_eq!(timers_run(&three).await.len(), 0);

    // The next one is due, and the leader cannot take it: it is left to the leader for a while, and no longer.
    let leads = leader(&three).await;
    let other = (leads + 1) % 3;
    let ago = |minutes| Timestamp::now() - SignedDuration::from_mins(minutes);
    let due_since = async |minutes: i64| {
        let last = LastSnapshot { begun: ago(60 + minutes), ..last.clone() };
        let ledger = SnapshotLedger { last: Some(last), ..SnapshotLedger::default() };
        cloud.put(&keys::snapshot_ledger("production"), &serde_json::to_vec(&ledger).unwrap()).await;
    };
    due_since(1).await;
    let left = three[other].does(&SCHEDULED).await;
    assert!(left["turn"]["leaderFirst"].is_object() && left["taken"].is_null(), "{left}");
    due_since(31).await;
    three[leads].member.stop().await;
    three[other].serves().await;
    let taken = three[other].does(&SCHEDULED).await;
    assert!(taken["taken"].is_object(), "{taken}");
    three[leads].member.start();
    three[leads].is_healthy().await;

    // A member that holds the claim keeps the others away until it must have ended.
    let claim = |until: Timestamp| SnapshotClaim {
        by: Taker { member: three[leads].member.name.clone(), instance: "i-another".to_owned() },
        until,
    };
    for (until, takes) in [(ago(-10), false), (ago(1), true)] {
        let old = LastSnapshot { begun: ago(600), ..last.clone() };
        let claimed =
            SnapshotLedger { claim: Some(claim(until)), last: Some(old), ..SnapshotLedger::default() };
        cloud.put(&ledger, &serde_json::to_vec(&claimed).unwrap()).await;
        assert_eq!(timers_run(&three).await.len(), usize::from(takes), "{until}");
    }

    // A failure is told to people, the claim ends with it, and the next run tries again.
    let cause = three[0].member.dir.join("var/lib/slipway/credentials.sealed");
    let away = cause.with_extension("away");
    due_since(600).await;
    std::fs::rename(&cause, &away).unwrap();
    let (done, failure) = three[0].agent(&SCHEDULED).await;
    assert!(!done, "{failure}");
    let told: SnapshotLedger = serde_json::from_slice(&cloud.object(&ledger).await).unwrap();
    let problem = told.failure.unwrap();
    assert_eq!((told.claim, problem.by.member.as_str()), (None, "etcd-0"));
    assert_eq!(json!(problem.message), failure["error"]["message"]);
    std::fs::rename(&away, &cause).unwrap();
    assert_eq!(timers_run(&three).await.len(), 1);
    let told: SnapshotLedger = serde_json::from_slice(&cloud.object(&ledger).await).unwrap();
    assert_eq!(told.failure, None);

    // It is restored as any other.
    for machine in &mut three {
        machine.restores(&["--snapshot", &time]).await;
    }
    three[2].is_healthy().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_waits_for_a_scheduled_snapshot_and_does_not_fail() {
    let Some(release) = newest() else { return };
    let credentials = Credentials::made("production").await;
    let cloud = Cloud::start().await;
    let dir = tempfile::tempdir().unwrap();
    let three = three(&credentials, &cloud, &release, dir.path()).await;
    // A scheduled run has both locks of the machine.
    let locks = ["scheduled-snapshot.lock", "snapshot.lock"]
        .map(|name| std::fs::File::create(three[0].member.dir.join("var/lib/slipway").join(name)).unwrap());
    for lock in &locks {
        lock.try_lock().unwrap();
    }
    let busy = three[0].does(&SCHEDULED).await;
    assert_eq!(busy, json!({ "turn": "busy" }));
    let ordered = async {
        let start = Instant::now();
        let taken = three[0].does(&["etcd", "snapshot"]).await;
        (start.elapsed(), taken)
    };
    let ends = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        drop(locks);
    };
    let ((waited, taken), ()) = tokio::join!(ordered, ends);
    assert!(waited >= Duration::from_secs(2), "{waited:?}");
    assert!(taken["key"].as_str().unwrap().starts_with("clusters/production/etcd-snapshots/"), "{taken}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_dies_goes_on_and_one_that_cannot_be_changes_nothing() {
    let Some(release) = newest() else { return };
    let credentials = Credentials::made("production").await;
    let cloud = Cloud::start().await;
    let dir = tempfile::tempdir().unwrap();
    let mut three = three(&credentials, &cloud, &release, dir.path()).await;
    let client = Client::new(&three[0].member.pki, "etcd-ca.pem", "healthcheck-client");
    assert!(client.writes(&three[0].member, "a", "1").await);
    let snapshot = three[0].does(&["etcd", "snapshot"]).await;
    let (time, key) = (snapshot["time"].as_str().unwrap().to_owned(), snapshot["key"].as_str().unwrap());
    let data = three[0].member.data.clone();
    let listing = || {
        let names = std::fs::read_dir(data.parent().unwrap()).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<BTreeSet<_>>()
    };
    let before = listing();

    // Changed, truncated, missing, or with other members.
    let whole = cloud.object(key).await;
    let mut tampered = whole.clone();
    tampered[100_000.min(whole.len() / 2)] ^= 1;
    for (number, bytes) in
        [tampered, whole[..whole.len() - 1].to_vec(), b"SQLite".to_vec()].into_iter().enumerate()
    {
        let other = format!("2026010{number}T000000Z");
        cloud.put(&format!("clusters/production/etcd-snapshots/{other}.db"), &bytes).await;
        for stage in ["verify", "prepare", "whole"] {
            let words = ["etcd", "restore", "--snapshot", &other, "--stage", stage];
            let (done, failure) = three[0].agent_with_systemd(&words).await;
            assert!(!done, "{failure}");
            assert_eq!(listing(), before, "etcd runs on, and needs the room: {failure}");
        }
    }
    let elsewhere =
        ["etcd", "restore", "--snapshot", &time, "--initial-cluster", "etcd-0=https://elsewhere:2380"];
    let (done, failure) = three[0].agent_with_systemd(&elsewhere).await;
    assert!(!done && failure["error"]["code"] == json!("restore.members"), "{failure}");
    assert!(data.join("member/snap/db").exists());
    // Verified, and prepared twice: the data that were unpacked are kept for the restore with the same token, and for no other.
    let staged =
        |stage: &'static str| ["--snapshot", &time, "--token", "staged", "--stage", stage].map(str::to_owned);
    for (stage, kept) in [
        ("verify", false),
        ("prepare", true),
        ("prepare", true),
        ("discard", false),
        ("prepare", true),
        ("verify", false),
        ("prepare", true),
    ] {
        let words = staged(stage);
        let answer = three[0].restores(&words.each_ref().map(String::as_str)).await;
        assert_eq!((&answer["changed"], &answer["etcd"]), (&json!(false), &json!("unchanged")), "{answer}");
        let sha256 = if stage == "discard" { json!("") } else { snapshot["sha256"].clone() };
        assert_eq!((&answer["started"], &answer["sha256"]), (&json!(false), &sha256), "{answer}");
        assert_eq!(data.with_file_name("restore.part").join("data/member/snap/db").exists(), kept, "{stage}");
    }
    // The member ran all the time: nothing is stopped for a restore that is impossible, or only prepared.
    assert!(client.writes(&three[0].member, "a", "1").await);

    // Killed before its last step, after its last step, and before it started etcd.
    let volume = data.parent().unwrap().to_owned();
    three[0].restores(&["--snapshot", &time]).await;
    let mut mark: Value =
        serde_json::from_slice(&std::fs::read(volume.join("restored.json")).unwrap()).unwrap();
    mark["started"] = json!(false);
    for (swapped, marked) in [(false, false), (true, false), (true, true)] {
        three[0].member.stop().await;
        if marked {
            std::fs::write(volume.join("restored.json"), mark.to_string()).unwrap();
        } else {
            std::fs::create_dir_all(volume.join("restore.part")).unwrap();
            std::fs::write(volume.join("restore.part/restored.json"), mark.to_string()).unwrap();
            std::fs::remove_file(volume.join("restored.json")).unwrap();
        }
        if !swapped {
            std::fs::rename(&data, volume.join("restore.part/data")).unwrap();
        }
        // Whoever gives the restore up does not make it forget that the data were replaced, and under which token, nor delete the only data.
        let words = ["etcd", "restore", "--snapshot", &time, "--stage", "discard"];
        let (done, value) = three[0].agent(&words).await;
        let refused = (!swapped).then_some("restore.interrupted");
        assert_eq!((done, value["error"]["code"].as_str()), (swapped, refused), "{value}");
        assert_eq!(volume.join("restore.part/restored.json").exists(), !marked);
        let restored = three[0].restores(&["--snapshot", &time]).await;
        assert_eq!((&restored["changed"], &restored["started"]), (&json!(!swapped), &json!(true)));
        assert!(data.join("member/snap/db").exists() && volume.join("restored.json").exists());
        assert!(!volume.join("restore.part").exists() && three[0].member.process().is_some());
    }
    for machine in &mut three[1..] {
        machine.restores(&["--snapshot", &time]).await;
    }
    three[2].is_healthy().await;
    assert!(client.get(&three[2].member, "a").await.contains("\"MQ==\""));
}

/// Starts with the answer of `etcd join`, as a learner.
async fn begins(machine: &mut Machine, joined: &Value) {
    machine.member.founders = joined["initialCluster"].as_str().unwrap().to_owned();
    machine.member.flags = vec!["--initial-cluster-state".to_owned(), "existing".to_owned()];
    machine.member.start();
    machine.comes_to(|health| health.learner).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_joins_as_a_learner_and_gets_its_vote_once_it_has_caught_up() {
    let credentials = Credentials::made("production").await;
    for release in releases() {
        let dir = tempfile::tempdir().unwrap();
        let mut all = machines(&credentials, &release, dir.path(), 3).await;
        let first = all[0].member.client_url();
        all[0].member.founders = format!("etcd-0={}", all[0].member.peer_url());
        all[0].configure(&json!({}));
        all[0].member.start();
        all[0].is_healthy().await;
        let writer = Writer::start(&all[0].member.pki, std::iter::once(first.clone()));
        let [founder, second, third] = &mut all[..] else { unreachable!("three were made") };
        for machine in [&*second, &*third] {
            // One endpoint does not answer.
            let endpoints = json!(["https://127.0.0.1:9", first]);
            machine.configure(&json!({
                "joinEndpoints": endpoints, "initialCluster": {}, "initialClusterState": "existing",
            }));
        }
        let joined = second.does(&["etcd", "join"]).await;
        assert_eq!(joined["added"], json!(true));
        let again = second.does(&["etcd", "join"]).await;
        assert_eq!(again["added"], json!(false), "run again");
        assert_eq!((&again["id"], &again["initialCluster"]), (&joined["id"], &joined["initialCluster"]));
        // It has never run, so etcd knows no name of it.
        let nameless = founder.health().await.members;
        assert!(nameless.iter().any(|member| member.learner && member.name.is_empty()), "{nameless:?}");
        let removed = founder.does(&["etcd", "remove", "--member", "etcd-1"]).await;
        assert_eq!((&removed["removed"], &removed["id"]), (&json!(true), &joined["id"]));
        assert_eq!(founder.does(&["etcd", "remove", "--member", "etcd-1"]).await["removed"], json!(false));
        let joined = second.does(&["etcd", "join"]).await;
        assert_eq!(joined["added"], json!(true));
        begins(second, &joined).await;
        let learner = second.health().await;
        assert!(!learner.healthy && !learner.serving);
        assert_eq!(learner.members.len(), 2, "reported by another member: {learner:?}");
        // etcd accepts one learner at a time: the next one waits until this one has its vote.
        let later = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            second.does(&["etcd", "promote"]).await
        };
        let (promoted, next) = tokio::join!(later, third.does(&["etcd", "join"]));
        assert_eq!((&promoted["promoted"], &promoted["id"]), (&json!(true), &joined["id"]));
        assert_eq!(second.does(&["etcd", "promote"]).await["promoted"], json!(false), "run again");
        assert_eq!(next["added"], json!(true));
        begins(third, &next).await;
        assert_eq!(third.does(&["etcd", "promote"]).await["promoted"], json!(true));
        for machine in &all {
            let health = machine.is_healthy().await;
            assert!(!health.learner && health.members.len() == 3);
        }
        let record = writer.stop().await;
        for machine in &all {
            assert_eq!(record.lost(&machine.member).await, [""; 0]);
        }
        println!(
            "etcd {}: two members joined under {} writes, {} retried, longest gap {:.3} s",
            release.version,
            record.writes(),
            record.retried,
            record.gap.as_secs_f64()
        );

        // A member that has voted and lost its data may not come back as the same member.
        all[2].member.stop().await;
        std::fs::remove_dir_all(&all[2].member.data).unwrap();
        let (done, failure) = all[2].agent(&["etcd", "join"]).await;
        assert!(!done && failure["error"]["code"] == json!("join.data"), "{failure}");
    }
}
