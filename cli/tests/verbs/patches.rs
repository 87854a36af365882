//! Patches beside the spec: taken by themselves, or named.

use serde_json::Value;

use super::Place;

const PODS: &str = "target: { node: pool-general }\nmerge: { kubelet: { maxPods: 58 } }\n";
const BAD: &str = "target: { stack: pool-genral }\nops:\n  - op: remove\n    path: /Resources/Group\n";

#[test]
fn patches_beside_the_spec_are_rendered_and_planned() {
    let place = Place::small();
    assert_eq!(place.run("render cluster.yaml --out plain").code, 0);
    place.write("patches/10-pods.yaml", PODS);
    let run = place.run("plan cluster.yaml --against plain");
    assert_eq!(run.code, 0, "{}", run.output());
    assert!(run.stdout.contains("config kubelet.maxPods: (absent) → 58"), "{}", run.stdout);
    let run = place.run("render cluster.yaml --out plain");
    assert_eq!(run.code, 0, "{}", run.output());
    let node: Value = serde_json::from_str(&place.read("plain/nodes/pool-general.json")).unwrap();
    assert_eq!(node["kubelet"]["maxPods"], 58);
    assert!(!place.read("plain/nodes/pool-other.json").contains("maxPods"));
    // P1: the same again changes no file.
    let before = place.files();
    assert_eq!(place.run("render cluster.yaml --out plain").code, 0);
    assert_eq!(place.files(), before);
}

#[test]
fn patches_that_lie_elsewhere_are_named() {
    let place = Place::small();
    place.write("mine/10-pods.yaml", PODS);
    let run = place.run("render cluster.yaml --out out --patches mine");
    assert_eq!(run.code, 0, "{}", run.output());
    assert!(place.read("out/nodes/pool-general.json").contains("maxPods"));
    let run = place.run("render cluster.yaml --out out --patches nowhere");
    assert_eq!(run.code, 3, "{}", run.output());
    assert!(run.stderr.contains("nowhere"), "{}", run.stderr);
}

#[test]
fn a_patch_that_does_not_fit_is_shown_with_its_file_and_line() {
    let place = Place::small();
    place.write("patches/10-bad.yaml", BAD);
    place.write("patches/20-worse.yaml", "target: { node: controller }\nmerge: { region: 1 }\n");
    place.write("patches/notes.yml", "x");
    let run = place.run("validate cluster.yaml");
    assert_eq!(run.code, 1);
    insta::assert_snapshot!(run.stdout);
    let run = place.run("validate cluster.yaml --output json");
    let told: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(told["ok"], false);
    assert_eq!(told["diagnostics"][0]["file"], "patches/10-bad.yaml");
    assert_eq!(told["diagnostics"][0]["code"], "unknown-target");
    assert_eq!(place.run("render cluster.yaml --out out").code, 1);
    assert!(!place.path("out/release.json").exists());
}
