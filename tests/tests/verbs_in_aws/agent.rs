//! Publishing an agent, without which no cluster is launched, and which an upload of a spec pins.

use serde_json::{Value, json};
use slipway_core::digest::sha256_hex;
use slipway_tests::installation::Installation;
use slipway_tests::world::Settings;

use crate::{ADMINISTRATOR, CLUSTER, PATIENCE, named, permissions, run, spec};

/// An ELF header of a 64-bit program for that machine type, followed by `inside`.
pub(crate) fn program(machine: u16, inside: &str) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    bytes[16] = 3;
    bytes[18..20].copy_from_slice(&machine.to_le_bytes());
    bytes.extend_from_slice(inside.as_bytes());
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn p1_an_agent_is_published_once_and_pinned_by_the_next_upload() {
    let slipway = Installation::without_agent(&Settings::default()).await.unwrap();
    let bucket = slipway.world().reference("AssetBucket").unwrap().to_owned();
    let folder = tempfile::tempdir().unwrap();
    let publish = async |inside: &[(u16, &str)]| {
        let files: Vec<String> = inside
            .iter()
            .map(|(machine, inside)| {
                let path = folder.path().join(format!("{machine}-{inside}"));
                std::fs::write(&path, program(*machine, inside)).unwrap();
                path.display().to_string()
            })
            .collect();
        let arguments = format!("publish-agent {} --asset-bucket {bucket} --output json", files.join(" "));
        let run = run(&slipway, ADMINISTRATOR, &arguments, &[]).await;
        assert_eq!(run.code, 0, "{run:?}");
        run.json()
    };
    let digest = |machine, inside| sha256_hex(&program(machine, inside));
    let object = async |key: &str| slipway.world().client().object(&bucket, key).await.unwrap();

    let mark = slipway.world().observer().mark();
    slipway.upload(CLUSTER, spec()).await.unwrap();
    assert!(slipway.event(mark, &["Spec Rejected"], PATIENCE).await.is_some());
    let shown = named(&slipway, ADMINISTRATOR, "status --cluster minimal").await;
    assert!(shown.out.contains("slipway publish-agent"), "{shown:?}");
    assert!(slipway.document::<Value>(CLUSTER, "lock.json").await.unwrap().is_none(), "nothing is made");
    let first = publish(&[(62, "one")]).await;
    assert_eq!(first["agents"][0]["architecture"], "x86_64");
    assert_eq!((&first["agents"][0]["new"], &first["agents"][0]["before"]), (&json!(true), &Value::Null));
    // Publishing for another processor does not change the first, and an existing object is not written again.
    let both = publish(&[(183, "one"), (62, "one")]).await;
    let new: Vec<_> = both["agents"].as_array().unwrap().iter().map(|agent| &agent["new"]).collect();
    assert_eq!(new, [&json!(true), &json!(false)], "arm64 before x86_64: {both}");
    let before = slipway.assets().await.unwrap();
    publish(&[(62, "one"), (183, "one")]).await;
    assert_eq!(slipway.assets().await.unwrap(), before, "publishing the same agent again writes nothing");
    let manifest: Value = serde_json::from_slice(&object("agent/manifest.json").await.unwrap()).unwrap();
    let ours = json!({ "arm64": digest(183, "one"), "x86_64": digest(62, "one") });
    assert_eq!(manifest, ours);
    for (machine, architecture) in [(62, "x86_64"), (183, "arm64")] {
        let key = format!("agent/{}/slipway-node", ours[architecture].as_str().unwrap());
        assert_eq!(object(&key).await.unwrap(), program(machine, "one"));
    }

    // The same spec again.
    let mark = slipway.world().observer().mark();
    slipway.upload(CLUSTER, spec()).await.unwrap();
    slipway.rolled_out(mark).await.unwrap();
    let lock: Value = slipway.document(CLUSTER, "lock.json").await.unwrap().unwrap();
    let pinned = lock["agent"].as_object().unwrap();
    assert!(!pinned.is_empty(), "{lock}");
    let desired: Value = slipway.document(CLUSTER, "desired.json").await.unwrap().unwrap();
    let release = format!("releases/{}.json", desired["target"].as_str().unwrap());
    let release: Value = slipway.document(CLUSTER, &release).await.unwrap().unwrap();
    let userdata = release["stacks"].to_string();
    for (architecture, sha256) in pinned {
        assert_eq!(*sha256, ours[architecture]);
        assert!(userdata.contains(&format!("agent='{}'", sha256.as_str().unwrap())), "{architecture}");
    }
    assert!(!userdata.contains("agent=''"), "every role has one");
    // A newer agent changes nothing by itself.
    let newer = publish(&[(62, "two"), (183, "two")]).await;
    assert_eq!(newer["agents"][0]["before"], ours["arm64"]);
    assert_eq!(slipway.document::<Value>(CLUSTER, "lock.json").await.unwrap().unwrap(), lock);

    // An order to upgrade brings it, and nothing else.
    let named = async |arguments: &str| named(&slipway, ADMINISTRATOR, arguments).await;
    let shown = named("upgrade --cluster minimal --dry-run").await;
    assert_eq!(shown.code, 0, "{shown:?}");
    let from = &ours["x86_64"].as_str().unwrap()[..12];
    let to = &digest(62, "two")[..12];
    for words in [format!("{from} → {to}"), "kubernetes  1.37".to_owned(), "(0 days ago)".to_owned()] {
        assert!(shown.out.contains(&words), "{words}: {}", shown.out);
    }
    permissions::an_upgrade_needs_what_the_page_says_and_nothing_more(&slipway).await;
    assert_eq!(slipway.document::<Value>(CLUSTER, "lock.json").await.unwrap().unwrap(), lock);

    let mark = slipway.world().observer().mark();
    let asked = named("upgrade agent --cluster minimal --output json").await.json();
    assert_eq!((&asked["asked"], &asked["backTo"]), (&json!(true), &Value::Null), "{asked}");
    assert!(slipway.event(mark, &["Plan Ready"], PATIENCE).await.is_some());
    let upgraded: Value = slipway.document(CLUSTER, "lock.json").await.unwrap().unwrap();
    assert_eq!(upgraded["agent"]["x86_64"], json!(digest(62, "two")));
    let pins =
        |lock: &Value| ["images", "kubernetes", "etcd", "programVersions"].map(|kind| lock[kind].clone());
    assert_eq!(pins(&upgraded), pins(&lock));

    // The drain of the only worker waits for pods that have nowhere else to run, so that nothing newer is not the whole truth.
    let other = named("upgrade images --cluster minimal").await;
    assert!(other.code == 1 && other.stderr.contains("its newest plan has not been rolled out"), "{other:?}");
    let back = named("upgrade agent --undo --dry-run --cluster minimal").await;
    assert_eq!(back.code, 0, "{back:?}");
    assert!(back.out.contains(&format!("{to} → {from}")), "{back:?}");
    let back = named("upgrade --undo=0a1b --cluster minimal").await;
    assert!(
        back.code == 1 && back.stderr.contains("the pins of plan 0a1b of minimal are not recorded"),
        "{back:?}"
    );
}
