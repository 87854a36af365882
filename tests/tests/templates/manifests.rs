//! Every add-on's objects, checked against Kubernetes' own schemas of each supported minor, with unknown fields refused.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use slipway_core::versions::RELEASES;
use slipway_tests::tools;
use slipway_tests::workshop::{Workshop, example, examples};

/// Every add-on, and every setting that changes the form of an object: modes, budgets, resources, roles for service accounts.
const VARIANTS: &[&str] = &[
    "
addons:
  clusterAutoscaler: {enabled: true}
  metricsServer: {enabled: true}
  networkPolicy: {enabled: true}
  nodeLocalDns: {enabled: true}
",
    "
addons:
  clusterAutoscaler: {enabled: true, replicas: 1, options: {expander: random}}
  coreDns: {replicas: 1, resources: {requests: {cpu: 250m}}}
  ebsCsiDriver: {replicas: 1, defaultStorageClass: false}
  kubeProxy: {mode: nftables}
  metricsServer: {enabled: true, replicas: 1, resources: {limits: {cpu: \"1\", memory: 1Gi}}}
iamRolesForServiceAccounts: {enabled: true}
",
];

/// The smallest example with another minor and `more`.
fn variant(minor: u16, more: &str) -> String {
    let text = example("minimal");
    let (head, rest) = text.split_once("kubernetesVersion: ").unwrap();
    let (_, tail) = rest.split_once('\n').unwrap();
    format!("{head}kubernetesVersion: \"1.{minor}\"\n{tail}{more}")
}

/// The objects that a text renders to, each with its add-on.
async fn objects(text: &str) -> Vec<Value> {
    let rendered = Workshop::for_spec(text).render(text).await;
    let addons = rendered.rendering.addons.addons.into_iter();
    addons.flat_map(|addon| addon.objects.into_iter().map(move |one| json!([addon.name, one]))).collect()
}

fn held(objects: &BTreeMap<String, Vec<Value>>) -> (bool, String) {
    let script = tools::root().join("tests/scripts/check_manifests.py");
    let mut child = Command::new(tools::python().unwrap())
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(serde_json::to_string(objects).unwrap().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

#[tokio::test]
async fn kubernetes_itself_finds_nothing_in_any_object_of_any_add_on_of_any_minor() {
    let mut all: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for release in RELEASES {
        let of_minor = all.entry(format!("1.{}", release.minor)).or_default();
        for more in VARIANTS {
            of_minor.extend(objects(&variant(release.minor, more)).await);
        }
    }
    for example in examples() {
        let cluster = slipway_spec::parse(example.text.as_bytes(), None).unwrap().cluster;
        let of_minor = all.entry(format!("1.{}", cluster.kubernetes_version.minor)).or_default();
        of_minor.extend(objects(&example.text).await);
    }
    for objects in all.values_mut() {
        objects.sort_by_key(Value::to_string);
        objects.dedup();
    }
    let count: usize = all.values().map(Vec::len).sum();
    let (fine, said) = held(&all);
    assert!(fine && said == format!("held {count}, found 0\n"), "{said}");

    // The check works: it reports a field that does not exist, at any depth, and an unknown kind.
    let (minor, mut broken) = all.pop_last().unwrap();
    let pod =
        broken.iter_mut().find_map(|one| one[1].pointer_mut("/spec/template/spec/containers/0")).unwrap();
    pod["livenesProbe"] = json!({});
    let config = broken.iter_mut().find(|one| one[1]["kind"] == "ConfigMap").unwrap();
    config[1]["kind"] = json!("ConfigMop");
    let (fine, said) = held(&BTreeMap::from([(minor, broken)]));
    assert!(!fine && said.contains("livenesProbe") && said.contains("ConfigMop"), "{said}");
    assert!(said.ends_with("found 2\n"), "{said}");
}
