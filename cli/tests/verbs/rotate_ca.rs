//! `slipway rotate-ca`, over a directory.

use super::*;

fn stage(place: &Place, name: &str) -> String {
    let text = place.read("out/credentials/pki/manifest.json");
    let manifest: serde_json::Value = serde_json::from_str(&text).unwrap();
    manifest["rotations"][name]["stage"].as_str().unwrap_or("none").to_owned()
}

fn assert_rotation_prints(place: &Place, args: &str, words: &[&str]) {
    let run = place.run(&format!("rotate-ca {args} cluster.yaml --out out"));
    assert_eq!(run.code, 0, "{}", run.output());
    for word in words {
        assert!(run.output().contains(word), "{args}: {word}: {}", run.output());
    }
    let run = place.run("render cluster.yaml --out out");
    assert!(run.code == 0 && run.stdout.contains("nothing changed"), "{}", run.output());
    let run = place.run("certs verify out");
    assert_eq!(run.code, 0, "{}", run.output());
}

#[test]
fn an_authority_is_exchanged_stage_by_stage_once_a_person_says_that_nodes_have_it() {
    let place = Place::small();
    assert_eq!(place.run("render cluster.yaml --out out").code, 0);
    let before = place.read("out/credentials/pki/manifest.json");
    assert_rotation_prints(
        &place,
        "etcd-ca --dry-run",
        &["would begin", "etcd-0, controller", "nothing was changed"],
    );
    assert_eq!(place.read("out/credentials/pki/manifest.json"), before);
    assert_rotation_prints(&place, "etcd-ca", &["has begun", "stage trust", "restarted, one at a time"]);
    let trusted = place.read("out/credentials/pki/manifest.json");
    assert_rotation_prints(&place, "etcd-ca", &["stage trust", "with --everywhere"]);
    assert_eq!(place.read("out/credentials/pki/manifest.json"), trusted, "nobody said that nodes have it");
    let run = place.run("certs show out");
    assert!(run.stdout.contains("etcd-ca-next"), "{}", run.output());
    assert_rotation_prints(
        &place,
        "etcd-ca --everywhere",
        &["the new etcd-ca has taken over", "etcd-peer-0", "stage issue"],
    );
    assert_eq!(stage(&place, "etcd-ca"), "issue");
    assert_rotation_prints(&place, "etcd-ca --abort", &["goes back", "stage trust"]);
    assert_rotation_prints(&place, "etcd-ca --everywhere", &["stage drop"]);
    assert_rotation_prints(&place, "etcd-ca --everywhere", &["is over"]);
    assert_eq!(stage(&place, "etcd-ca"), "none");
}

#[test]
fn what_is_no_authority_is_refused_and_nothing_is_written() {
    let place = Place::small();
    let run = place.run("rotate-ca ca cluster.yaml --out out");
    assert_eq!(run.code, 3, "{}", run.output());
    assert_eq!(place.run("render cluster.yaml --out out").code, 0);
    let before = place.read("out/credentials/pki/manifest.json");
    for (args, words) in [
        ("apiserver", "slipway certs renew"),
        ("etcdca", "did you mean etcd-ca?"),
        ("ca --abort", "it is not being rotated"),
    ] {
        let run = place.run(&format!("rotate-ca {args} cluster.yaml --out out"));
        assert_eq!(run.code, 1, "{}", run.output());
        assert!(run.output().contains(words), "{}", run.output());
    }
    assert_eq!(place.read("out/credentials/pki/manifest.json"), before);
}

#[test]
fn a_spec_that_says_more_is_refused_and_no_byte_of_the_folder_changes() {
    let place = Place::small();
    assert_eq!(place.run("render cluster.yaml --out out").code, 0);
    // Rendering it would issue a certificate anew, and change a stack.
    let more = format!("{SMALL}kubernetes:\n  apiServer:\n    certSANs: [k8s.small.example.com]\n");
    place.write("cluster.yaml", more.replace("maxSize: 3", "maxSize: 4"));
    let before = place.bytes();
    for verb in ["rotate-ca etcd-ca", "certs renew scheduler"] {
        let run = place.run(&format!("{verb} cluster.yaml --out out"));
        assert_eq!(run.code, 1, "{}", run.output());
        assert!(run.output().contains("the spec differs from what was rendered"), "{}", run.output());
        assert_eq!(place.bytes(), before, "{verb}");
    }
    place.write("cluster.yaml", "clusterName: [");
    let before = place.bytes();
    assert_eq!(place.run("rotate-ca etcd-ca cluster.yaml --out out").code, 1);
    assert_eq!(place.bytes(), before);
}
