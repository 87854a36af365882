//! `slipway certs renew`.

use super::*;

fn manifest(place: &Place) -> serde_json::Value {
    serde_json::from_str(&place.read("out/credentials/pki/manifest.json")).unwrap()
}

/// The entries of a group of the inventory that differ.
fn differ(before: &serde_json::Value, after: &serde_json::Value, group: &str) -> Vec<String> {
    let entries = before[group].as_object().unwrap();
    let names = entries.iter().filter(|(name, entry)| after[group][*name] != **entry);
    names.map(|(name, _)| name.clone()).collect()
}

#[test]
fn p2_one_certificate_is_renewed_and_everything_else_keeps_its_bytes() {
    let place = Place::small();
    assert_eq!(place.run("render cluster.yaml --out out").code, 0);
    for (name, role, new_key) in [("apiserver", "controller", false), ("etcd-peer-0", "etcd-0", true)] {
        let (before, files) = (manifest(&place), place.files());
        let flag = if new_key { " --new-key" } else { "" };
        let run = place.run(&format!("certs renew {name} cluster.yaml --out out{flag}"));
        assert_eq!(run.code, 0, "{}", run.output());
        let after = manifest(&place);
        assert_eq!(differ(&before, &after, "assets"), [name]);
        assert_eq!(differ(&before, &after, "bundles"), [role]);
        let spki =
            |manifest: &serde_json::Value| manifest["assets"][name]["certificate"]["spkiSha256"].clone();
        assert_eq!(spki(&before) != spki(&after), new_key, "{name}");
        // Of what was there, the templates of that role, its scripts and the inventory are new, and nothing else.
        let later = place.files();
        let changed: Vec<String> = files
            .iter()
            .filter(|(path, (bytes, _))| later[*path].0 != *bytes)
            .map(|(path, _)| path.display().to_string())
            .collect();
        let stack = if role == "controller" { "small-control-plane" } else { "small-etcd" };
        let expected = [
            "out/credentials/pki/manifest.json".to_owned(),
            "out/release.json".to_owned(),
            format!("out/stacks/{stack}.json"),
            format!("out/userdata/{role}.sh"),
        ];
        assert_eq!(changed, expected, "{name}");
        // P1: that is how it stands from now on.
        let run = place.run("render cluster.yaml --out out");
        assert!(run.code == 0 && run.stdout.contains("nothing changed"), "{}", run.output());
    }
    let run = place.run("certs verify out");
    assert_eq!(run.code, 0, "{}", run.output());
}

#[test]
fn what_is_not_renewed_by_itself_is_refused_and_nothing_is_written() {
    let place = Place::small();
    let run = place.run("certs renew apiserver cluster.yaml --out out");
    assert_eq!(run.code, 3, "{}", run.output());
    assert_eq!(place.run("render cluster.yaml --out out").code, 0);
    let before = place.bytes();
    for (name, words) in [
        ("ca", "it is an authority"),
        ("apisever", "did you mean apiserver?"),
        ("service-account", "tokens that it signed"),
        ("bootstrap-token", "no certificate"),
    ] {
        let run = place.run(&format!("certs renew {name} cluster.yaml --out out"));
        assert_eq!(run.code, 1, "{}", run.output());
        assert!(run.output().contains(words), "{}", run.output());
    }
    place.write("cluster.yaml", SMALL.replace("maxSize: 3", "maxSize: 4"));
    let run = place.run("certs renew apiserver cluster.yaml --out out");
    assert_eq!(run.code, 1, "{}", run.output());
    assert!(run.output().contains("the spec differs from what was rendered"), "{}", run.output());
    place.write("cluster.yaml", SMALL);
    assert_eq!(place.bytes(), before);
}
