//! `slipway export`: what is stored and rendered for a cluster, as files.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use slipway_tests::leaks::Secrets;

use crate::permissions::an_export_needs_what_the_page_says_and_nothing_more;
use crate::{ADMINISTRATOR, CLUSTER, PATIENCE, QUIET, installation, named, spec, upload};

/// The files below a folder with their content.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().display().to_string();
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn p9_an_export_has_everything_that_was_rendered_and_no_secret() {
    let slipway = installation(0).await;
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("minimal");
    let export = format!("export --cluster {CLUSTER} --out {}", out.display());
    let before = slipway.assets().await.unwrap();
    let mark = slipway.world().observer().mark();
    let run = named(&slipway, ADMINISTRATOR, &export).await;
    assert_eq!(run.code, 0, "{run:?}");
    let calls = slipway.world().observer().calls(mark);
    assert!(calls.iter().all(|call| !call.is_write() && !call.action.starts_with("kms:")), "{calls:?}");
    assert_eq!(slipway.assets().await.unwrap(), before);

    let desired: Value = slipway.document(CLUSTER, "desired.json").await.unwrap().unwrap();
    let (release, plan) = (desired["target"].as_str().unwrap(), desired["plan"].as_str().unwrap());
    let written = files(&out);
    let names: Vec<&str> = written.keys().map(String::as_str).collect();
    let mut expected = vec!["addons.json", "cluster.yaml", "export.json", "lock.json"];
    let (page, plan_file) = (format!("plans/{plan}.html"), format!("plans/{plan}.json"));
    let release_file = format!("releases/{release}.json");
    expected.extend([page.as_str(), &plan_file, &release_file]);
    for role in ["controller", "etcd-0", "pool-general"] {
        expected.extend(names.iter().filter(|name| **name == format!("nodes/{role}.json")));
        expected.extend(names.iter().filter(|name| **name == format!("userdata/{role}.sh")));
    }
    for stack in ["control-plane", "etcd", "network", "pool-general"] {
        expected.extend(names.iter().filter(|name| **name == format!("stacks/minimal-{stack}.json")));
    }
    expected.sort_unstable();
    assert_eq!((names.len(), &names), (17, &expected));
    assert_eq!(written["cluster.yaml"], spec().into_bytes());
    for (file, key) in [
        (&release_file, &release_file),
        (&plan_file, &plan_file),
        (&"lock.json".to_owned(), &format!("locks/{release}.json")),
    ] {
        let stored: Value = slipway.document(CLUSTER, key).await.unwrap().unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&written[file]).unwrap(), stored, "{file}");
    }
    let stored: Value = slipway.document(CLUSTER, &release_file).await.unwrap().unwrap();
    for stack in stored["stacks"].as_array().unwrap() {
        let file = format!("stacks/{}.json", stack["name"].as_str().unwrap());
        let body: Value = serde_json::from_str(stack["body"].as_str().unwrap()).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&written[&file]).unwrap(), body, "{file}");
    }
    let secrets = Secrets::open(&slipway, CLUSTER).await.unwrap();
    assert!(secrets.scanner.len() > 10);
    for (name, bytes) in &written {
        assert!(secrets.scanner.find(bytes).is_empty(), "{name}: {:?}", secrets.scanner.find(bytes));
    }

    // Nothing has changed; then the spec changes, and its plan waits for a person.
    let again = named(&slipway, ADMINISTRATOR, &format!("{export} --output json")).await;
    assert_eq!((again.code, &again.json()["changed"]), (0, &json!([])), "{again:?}");
    assert_eq!(files(&out), written);
    let waits = format!("{}      autoScalingGroup: {{maxSize: 4}}\nrollout:\n  approval: manual\n", spec());
    slipway.upload(CLUSTER, waits.clone()).await.unwrap();
    assert!(slipway.world().settle(QUIET, PATIENCE).await);
    let run = named(&slipway, ADMINISTRATOR, &export).await;
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.out.contains("minimal-network was last rolled out with release"), "{run:?}");
    let newer = files(&out);
    assert_eq!(newer["cluster.yaml"], waits.into_bytes());
    assert_ne!(newer["stacks/minimal-pool-general.json"], written["stacks/minimal-pool-general.json"]);
    assert!(!newer.contains_key(&release_file), "files of the earlier release are removed");

    // What is not its own stays.
    std::fs::write(out.join("lock.json"), "mine").unwrap();
    let refused = named(&slipway, ADMINISTRATOR, &export).await;
    assert!(
        refused.code == 1 && refused.stderr.contains("lock.json is not as an export of minimal"),
        "{refused:?}"
    );
    assert_eq!(std::fs::read(out.join("lock.json")).unwrap(), b"mine");
    let other = format!("export --cluster {CLUSTER} --out {}", folder.path().display());
    let refused = named(&slipway, ADMINISTRATOR, &other).await;
    assert!(refused.code == 1 && refused.stderr.contains("is not empty"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_says_what_it_cannot_do() {
    let slipway = installation(0).await;
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let out = out.display();
    let run = named(&slipway, ADMINISTRATOR, &format!("export --cluster nobodys --out {out}")).await;
    assert!(run.code == 1 && run.stderr.contains("has no objects of a cluster nobodys"), "{run:?}");
    // A cluster whose only spec was refused.
    slipway.upload("other", "clusterName: other\n").await.unwrap();
    assert!(slipway.world().settle(QUIET, PATIENCE).await);
    let run = named(&slipway, ADMINISTRATOR, &format!("export --cluster other --out {out}")).await;
    assert!(run.code == 1 && run.stderr.contains("nothing was planned yet for the cluster other"), "{run:?}");
    // A person put a key where it is rendered: it is in the bucket by now, and goes no further.
    let key = "-----BEGIN PRIVATE KEY----- x -----END PRIVATE KEY-----";
    upload(&slipway, &format!("# {key}\n{}      autoScalingGroup: {{maxSize: 4}}\n", spec())).await;
    let run = named(&slipway, ADMINISTRATOR, &format!("export --cluster {CLUSTER} --out {out}")).await;
    assert!(run.code == 1 && run.stderr.contains("cluster.yaml would hold a private key"), "{run:?}");
    assert!(!folder.path().join("out").exists(), "nothing was written");
    upload(&slipway, &spec()).await;
    an_export_needs_what_the_page_says_and_nothing_more(&slipway, &out.to_string()).await;
    // The accepted version was removed from the spec bucket.
    let bucket = slipway.world().reference("SpecBucket").unwrap();
    for version in slipway.world().client().versions(bucket).await.unwrap() {
        slipway.world().remove("SpecBucket", &version.key, &version.version).await.unwrap();
    }
    let run = named(&slipway, ADMINISTRATOR, &format!("export --cluster {CLUSTER} --out {out}")).await;
    assert!(run.code == 0 && run.out.contains("without cluster.yaml"), "{run:?}");
    assert!(!folder.path().join("out/cluster.yaml").exists());
}
