//! `slipway render`.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn rendered() -> Place {
    let place = Place::small();
    let run = place.run("render cluster.yaml --out out");
    assert_eq!(run.code, 0, "{}", run.output());
    place
}

#[test]
fn a_first_rendering() {
    let place = Place::small();
    snapshot!(place.run("render cluster.yaml --out out"));
    let names: Vec<String> =
        place.files().keys().map(|path| place.masked(&path.display().to_string())).collect();
    insta::assert_snapshot!("the_files_of_a_rendering", names.join("\n"));
}

#[test]
fn a_rendering_as_json() {
    let place = Place::small();
    snapshot!(place.run("render cluster.yaml --out out --output json"));
}

#[test]
fn p1_the_same_spec_changes_no_byte_and_no_time() {
    let place = rendered();
    let before = place.files();
    let run = place.run("render cluster.yaml --out out");
    assert_eq!(run.code, 0);
    assert!(run.stdout.contains("nothing changed"), "{}", run.output());
    assert!(place.files() == before, "a file changed");
}

#[test]
fn p2_a_change_of_one_pool_writes_that_pool_alone() {
    let place = rendered();
    let before = place.files();
    place.write("cluster.yaml", SMALL.replace("maxSize: 3", "maxSize: 4"));
    assert_eq!(place.run("render cluster.yaml --out out").code, 0);
    let after = place.files();
    let changed: Vec<String> = after
        .iter()
        .filter(|(path, file)| before.get(*path) != Some(file))
        .map(|(path, _)| path.display().to_string())
        .collect();
    assert_eq!(changed, ["cluster.yaml", "out/release.json", "out/stacks/small-pool-general.json"]);
}

#[test]
fn what_the_spec_no_longer_has_is_removed() {
    let place = rendered();
    assert!(place.path("out/stacks/small-pool-other.json").exists());
    place.write("cluster.yaml", SMALL.replace("    - name: other\n", ""));
    assert_eq!(place.run("render cluster.yaml --out out").code, 0);
    for gone in ["stacks/small-pool-other.json", "userdata/pool-other.sh", "nodes/pool-other.json"] {
        assert!(!place.path("out").join(gone).exists(), "{gone} is still there");
    }
    assert!(place.path("out/stacks/small-pool-general.json").exists());
}

#[test]
fn p9_private_keys_are_sealed_and_nowhere_else() {
    let place = rendered();
    let mode = place.path("out/credentials/local.key").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let key = place.read("out/credentials/local.key");
    for (path, (bytes, _)) in place.files() {
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("PRIVATE KEY"), "{} holds a private key", path.display());
        assert!(
            path.ends_with("local.key") || !text.contains(key.trim()),
            "{} holds the local key",
            path.display()
        );
    }
    assert!(place.read("out/credentials/.gitignore").contains("local.key"));
}

#[test]
fn a_refused_spec_writes_nothing() {
    let place = Place::new();
    place.write("cluster.yaml", format!("{SMALL}zebra: 1\n"));
    snapshot!(place.run("render cluster.yaml --out out"));
    assert!(!place.path("out").exists());
    let run = place.run("render cluster.yaml --out out --output json");
    assert_eq!((run.code, run.json()["diagnostics"][0]["code"].clone()), (1, "unknown-key".into()));
}

#[test]
fn a_directory_of_another_cluster_is_refused() {
    let place = rendered();
    let before = place.files();
    place.write("other.yaml", SMALL.replace("clusterName: small", "clusterName: large"));
    snapshot!(place.run("render other.yaml --out out"));
    std::fs::remove_file(place.path("other.yaml")).unwrap();
    assert!(place.files() == before, "a file changed");
}

#[test]
fn a_directory_that_is_a_file() {
    let place = Place::small();
    place.write("out", "a file");
    snapshot!(place.run("render cluster.yaml --out out"));
    let run = place.run("render cluster.yaml --out out --output json");
    assert_eq!((run.code, run.json()["ok"].clone()), (3, false.into()));
}

#[test]
fn a_lost_key_file_is_not_replaced() {
    let place = rendered();
    std::fs::rename(place.path("out/credentials/local.key"), place.path("found.key")).unwrap();
    let before = place.files();
    let run = place.run("render cluster.yaml --out out");
    assert!(place.files() == before, "a file changed");
    snapshot!(run);

    // Both hints are true: it is brought back …
    std::fs::rename(place.path("found.key"), place.path("out/credentials/local.key")).unwrap();
    let run = place.run("render cluster.yaml --out out");
    assert_eq!(run.code, 0, "{}", run.output());
    assert!(run.stdout.contains("nothing changed"), "{}", run.output());
    // … or another directory has credentials of its own.
    std::fs::remove_file(place.path("out/credentials/local.key")).unwrap();
    let run = place.run("render cluster.yaml --out new");
    assert_eq!(run.code, 0, "{}", run.output());
    assert!(run.stdout.contains("19 credentials were made"), "{}", run.output());
    let run = place.run("certs verify new");
    assert_eq!(run.code, 0, "{}", run.output());
}

#[test]
fn a_lost_folder_of_credentials_is_told_and_may_come_back() {
    let place = rendered();
    std::fs::rename(place.path("out/credentials"), place.path("found")).unwrap();
    let run = place.run("render cluster.yaml --out out");
    assert_eq!(run.code, 1, "{}", run.output());
    assert!(run.stderr.contains("credentials/local.key is gone"), "{}", run.output());
    assert!(run.stderr.contains("render into a new directory"), "{}", run.output());
    assert!(!place.path("out/credentials").exists(), "something stands in the way of the old folder");
    std::fs::rename(place.path("found"), place.path("out/credentials")).unwrap();
    let run = place.run("render cluster.yaml --out out");
    assert!(run.stdout.contains("nothing changed"), "{}", run.output());
}

#[test]
fn no_key_is_made_as_long_as_nothing_is_sealed() {
    let place = Place::small();
    let own = "  authorities:\n    ca: {source: imported}\n";
    place.write("cluster.yaml", format!("{SMALL}{own}"));
    let run = place.run("render cluster.yaml --out out");
    assert_eq!(run.code, 1, "{}", run.output());
    assert!(run.output().contains("import/ca.pem"), "{}", run.output());
    assert!(!place.path("out/credentials").exists());
    place.write("cluster.yaml", SMALL);
    let run = place.run("render cluster.yaml --out out");
    assert_eq!(run.code, 0, "{}", run.output());
}

#[test]
fn another_key_file_opens_nothing() {
    let place = rendered();
    let other = Place::small();
    assert_eq!(other.run("render cluster.yaml --out out").code, 0);
    place.write("out/credentials/local.key", other.read("out/credentials/local.key"));
    // A pool more needs a bundle more, for which the stored credentials are opened.
    place.write("cluster.yaml", SMALL.replace("- name: other", "- name: other\n    - name: third"));
    let run = place.run("render cluster.yaml --out out");
    assert_eq!(run.code, 3, "{}", run.output());
    assert!(run.stderr.contains("cannot be unwrapped"), "{}", run.output());
}

#[test]
fn an_inventory_that_was_damaged() {
    let place = rendered();
    place.write("out/credentials/pki/manifest.json", "{");
    snapshot!(place.run("render cluster.yaml --out out"));
}

#[test]
fn images_are_pinned_or_referred_to() {
    let place = rendered();
    assert!(
        place
            .read("out/stacks/small-pool-general.json")
            .contains("{{resolve:ssm:/aws/service/ami-amazon-linux-latest/")
    );
    let pinned = place.run("render cluster.yaml --out out --image x86_64=ami-0123456789abcdef0");
    assert_eq!(pinned.code, 0, "{}", pinned.output());
    let template = place.read("out/stacks/small-pool-general.json");
    assert!(template.contains("ami-0123456789abcdef0") && !template.contains("resolve:ssm"));
    assert_eq!(place.run("render cluster.yaml --out out").code, 0);
    assert_eq!(place.read("out/stacks/small-pool-general.json"), template, "a pin stays");
    snapshot!(place.run("render cluster.yaml --out out --image mips=ami-0123456789abcdef0"));
}

#[test]
fn the_installation_is_kept_once_it_was_named() {
    let place = Place::small();
    let site = "--asset-bucket my-assets --kms-key-arn arn:aws:kms:eu-west-1:111122223333:key/a";
    let run = place.run(&format!("render cluster.yaml --out out {site}"));
    assert!(!run.stdout.contains("a stand-in bucket"), "{}", run.output());
    let before = place.files();
    assert_eq!(place.run("render cluster.yaml --out out").code, 0);
    assert!(place.files() == before, "a file changed");
    assert!(place.read("out/userdata/controller.sh").contains("my-assets"));
}

#[test]
fn every_userdata_is_a_script_of_its_role() {
    let place = rendered();
    for role in ["controller", "etcd-0", "pool-general", "pool-other"] {
        let script = place.read(&format!("out/userdata/{role}.sh"));
        assert!(
            script.starts_with("#!/bin/sh\n") && script.contains(&format!("\"role\":\"{role}\"")),
            "{role}"
        );
    }
}

#[test]
fn every_example_and_every_starter_can_be_rendered() {
    let place = Place::new();
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples");
    let mut count = 0;
    for entry in std::fs::read_dir(examples).unwrap() {
        let path = entry.unwrap().path();
        let path = if path.is_dir() { path.join("cluster.yaml") } else { path };
        if path.ends_with("own-ca/cluster.yaml") {
            continue; // It needs what `own_ca` makes.
        }
        let run = place.run(&format!("render {} --out {count}", path.display()));
        assert_eq!(run.code, 0, "{}: {}", path.display(), run.output());
        count += 1;
    }
    assert!(count >= 8, "only {count} examples");
    for zones in ["us-east-2a", "us-east-2a,us-east-2b,us-east-2c"] {
        let run = place.run(&format!(
            "init --force --cluster-name first --region us-east-2 --availability-zone {zones} --dns-name api.example.com"
        ));
        assert_eq!(run.code, 0, "{}", run.output());
        let run = place.run("render cluster.yaml --out first");
        assert_eq!(run.code, 0, "{}", run.output());
    }
}
