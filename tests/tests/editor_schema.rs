//! `infra/cluster.schema.json`, as editors use it, judged by Python's jsonschema: it accepts what `slipway validate` accepts, and refuses
//! errors of form.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use slipway_tests::tools;

/// The schema's error for each text; `None` if it is valid.
fn complaints(texts: &[String]) -> Vec<Option<String>> {
    let mut child = Command::new(tools::python().unwrap())
        .arg(tools::root().join("tests/scripts/check_specs.py"))
        .arg(tools::root().join("infra/cluster.schema.json"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(serde_json::to_string(texts).unwrap().as_bytes()).unwrap();
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let told: Vec<Option<String>> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told.len(), texts.len());
    told
}

const HEAD: &str = "clusterName: editor\nregion: eu-west-1\navailabilityZone: eu-west-1a\n";
const REST: &str = "kubernetesVersion: \"1.37\"\napiEndpoints: [{name: default, dnsName: api.example.com}]\nworker: {nodePools: [{name: a}]}\n";

#[test]
fn every_example_is_good() {
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(tools::root().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        let path = if path.is_dir() { path.join("cluster.yaml") } else { path };
        if path.extension().is_some_and(|extension| extension == "yaml") {
            texts.push(std::fs::read_to_string(path).unwrap());
        }
    }
    assert!(texts.len() >= 25, "only {} examples", texts.len());
    for (text, complaint) in texts.iter().zip(complaints(&texts)) {
        assert_eq!(complaint, None, "{}", text.lines().next().unwrap_or_default());
    }
}

#[test]
fn whatever_form_yaml_gives_a_good_spec_it_stays_good() {
    let with = |keys: &str| format!("{HEAD}{REST}{keys}");
    let version =
        |text: &str| with("").replace("kubernetesVersion: \"1.37\"", &format!("kubernetesVersion: {text}"));
    let mut texts = vec![
        version("1.37"),
        version("'1.37'"),
        version("1.37.2"),
        with("stackTags: {cost: 42, on: true, ratio: 0.5, empty: ''}\n"),
        with("stackTags: {42: x}\n"),
        with("controller:\netcd:\nkubernetes:\n  apiServer:\naddons: {}\n"),
        with("sshAuthorizedKeys:\nstackTags:\n"),
        with("controller: {customFiles: [{path: /etc/motd.d/a, permissions: 0600, content: x}]}\n"),
        with("controller: {customFiles: [{path: /etc/motd.d/a, permissions: '0600', content: 12}]}\n"),
        with(
            "controller:\n  customFiles:\n  - path: /etc/motd.d/a\n    content: |\n      lines\n      of text\n",
        ),
        with("controller: {nodeLabels: {example.com/on: true, example.com/n: 1}}\n"),
        with("rollout: {maxUnavailable: 2, surge: 25%}\n"),
        with("rollout: {maxUnavailable: '2', surge: \"25%\"}\n"),
        with("controller: {rootVolume: &small {size: 30}}\netcd: {rootVolume: *small}\n"),
        with("controller: {rootVolume: &small {size: 30}}\netcd: {rootVolume: {<<: *small, type: gp3}}\n"),
        with("kubernetes: {apiServer: {flags: [{name: max-requests-inflight, value: 800}]}}\n"),
        with(
            "kubernetes: {kubelet: {config: {imageGCHighThresholdPercent: 90, shutdownGracePeriod: 30s}}}\n",
        ),
        with("controller: {count: 3, kubelet: {evictionHard: {memory.available: 5%}}}\n"),
        format!("---\n# A comment.\n{}...\n", with("")),
        with("").replace('\n', "\r\n"),
    ];
    // The same as JSON, which is valid YAML.
    texts.push(json!({"clusterName": "editor", "region": "eu-west-1", "kubernetesVersion": 1.37, "availabilityZone": "eu-west-1a",
        "apiEndpoints": [{"name": "default", "dnsName": "api.example.com"}], "worker": {"nodePools": [{"name": "a"}]}}).to_string());
    for (text, complaint) in texts.iter().zip(complaints(&texts)) {
        assert_eq!(slipway_spec::parse(text.as_bytes(), None).err(), None, "{text}");
        assert_eq!(complaint, None, "{text}");
    }
}

#[test]
fn what_is_amiss_in_form_an_editor_shows() {
    let with = |keys: &str| format!("{HEAD}{REST}{keys}");
    let texts = [
        HEAD.to_owned(),
        with("contoller: {count: 3}\n"),
        with("controller: {rootVolume: {sizes: 30}}\n"),
        with("containerRuntime: docker\n"),
        with("controller: {count: three}\n"),
        with("controller: {count: '3'}\n"),
        with("controller: {count: 1001}\n"),
        with("controller: {count: -1}\n"),
        with("controller: {count: 1.5}\n"),
        with("controller: []\n"),
        with("controller: yes\n"),
        with("controller: {tenancy: host}\n"),
        with("controller: {rootVolume: {type: gp4}}\n"),
        with("controller: {rootVolume: {size: 0}}\n"),
        with("kubernetes: {encryptionAtRest: {enabled: 'true'}}\n"),
        with("kubernetes: {encryptionAtRest: {enabled: yes}}\n"),
        with("subnets: eu-west-1a\n"),
        with("subnets: [{private: 1}]\n"),
        with("sshAuthorizedKeys: [{key: x}]\n"),
        with("sshAuthorizedKeys: [~]\n"),
        with("keyName: [operations]\n"),
        with("keyName:\n"),
        with("rollout: {maxUnavailable: many}\n"),
        with("iamRolesForServiceAccounts: {roles: [{name: a}]}\n"),
        "- a\n- b\n".to_owned(),
    ];
    for (text, complaint) in texts.iter().zip(complaints(&texts)) {
        assert!(slipway_spec::parse(text.as_bytes(), None).is_err(), "{text}");
        assert!(complaint.is_some(), "the schema accepts\n{text}");
    }
}

/// Each key of the schema once, as a path: `worker.nodePools[].taints[].key`.
fn keys(root: &Value, at: &Value, path: &str, met: &mut BTreeSet<String>, found: &mut Vec<String>) {
    if let Some(name) = at["$ref"].as_str() {
        if met.insert(name.to_owned()) {
            keys(root, root.pointer(&name[1..]).unwrap(), path, met, found);
        }
        return;
    }
    for choice in at["anyOf"].as_array().into_iter().flatten() {
        keys(root, choice, path, met, found);
    }
    if at["items"].is_object() {
        keys(root, &at["items"], &format!("{path}[]"), met, found);
    }
    for (name, property) in at["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        found.push(path.clone());
        keys(root, property, &path, met, found);
    }
}

/// A document with only `value` at `path`.
fn at(path: &str, value: &Value) -> Value {
    path.rsplit('.').fold(value.clone(), |below, step| match step.strip_suffix("[]") {
        Some(name) => json!({name: [below]}),
        None => json!({step: below}),
    })
}

/// Errors of a spec's form, which show without knowing its meaning.
const OF_FORM: [&str; 6] =
    ["unknown-key", "retired-key", "wrong-type", "out-of-range", "unknown-value", "empty-value"];

#[test]
fn editors_and_we_agree_on_every_key() {
    let schema = slipway_spec::schema();
    let mut found = Vec::new();
    keys(&schema, &schema, "", &mut BTreeSet::new(), &mut found);
    assert!(found.len() > 200, "the schema has only {} keys", found.len());
    let values = [
        json!("word"),
        json!("12"),
        json!(12),
        json!(-1),
        json!(99_999_999),
        json!(true),
        Value::Null,
        json!([]),
        json!(["word"]),
        json!([12]),
        json!([null]),
        json!({}),
        json!({"zzz": 1}),
    ];
    let mut texts = Vec::new();
    for path in &found {
        texts.extend(values.iter().map(|value| {
            let mut spec = at(path, value);
            for (key, value) in
                [("clusterName", "editor"), ("region", "eu-west-1"), ("kubernetesVersion", "1.37")]
            {
                spec.as_object_mut().unwrap().entry(key).or_insert_with(|| json!(value));
            }
            spec.to_string()
        }));
    }
    let told = complaints(&texts);
    let mut disagreements = Vec::new();
    for (text, complaint) in texts.iter().zip(told) {
        let ours = slipway_spec::parse(text.as_bytes(), None).err().unwrap_or_default();
        let of_form = ours.iter().find(|finding| OF_FORM.contains(&finding.code.as_str()));
        let missing = ours.iter().any(|finding| finding.code == "missing-key");
        match (complaint, of_form) {
            (Some(complaint), None) if !missing => {
                disagreements.push(format!("only the schema refuses {text}: {complaint}"));
            }
            (None, Some(finding)) => {
                disagreements.push(format!("only we refuse {text}: {} {}", finding.code, finding.message));
            }
            (Some(_) | None, _) => {}
        }
    }
    assert!(disagreements.is_empty(), "{}: {disagreements:#?}", disagreements.len());
}
