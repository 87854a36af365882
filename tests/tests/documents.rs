//! The documents of Systems Manager in `infra/template.yaml`: the only way in which the functions reach nodes.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use regex::Regex;
use serde_json::{Value, json};
use slipway_core::node::logs::MOST_LINES;
use slipway_core::node::{LogUnit, RestoreOrder, RestoreStage, Verb};
use slipway_tests::deploy::translate;
use slipway_tests::tools;

const AGENT: &str = "/var/lib/slipway/slipway-node";

/// Each document, and the words of its command with valid parameters.
const DOCUMENTS: [(&str, &str); 13] = [
    ("Slipway-Drain", "drain i-0abc123def4567890 --for 600 --force-after never"),
    ("Slipway-EtcdDefragment", "etcd defragment"),
    ("Slipway-EtcdHealth", "etcd health"),
    ("Slipway-EtcdMoveLeader", "etcd move-leader"),
    ("Slipway-EtcdRemove", "etcd remove --member etcd-4"),
    (
        "Slipway-EtcdRestore",
        "etcd restore --snapshot 20261121T204500Z --token auto --initial-cluster founders --bump 1000000000 --sha256 any --stage whole",
    ),
    ("Slipway-EtcdRetire", "etcd retire"),
    ("Slipway-EtcdSnapshot", "etcd snapshot"),
    ("Slipway-Logs", "logs --unit all --lines 50"),
    (
        "Slipway-Refresh",
        "refresh --credentials 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff --restart never",
    ),
    ("Slipway-Serves", "serves --without none"),
    ("Slipway-Status", "status"),
    ("Slipway-Uncordon", "uncordon i-0abc123def4567890"),
];

/// Valid values of each parameter; the first is the one in [`DOCUMENTS`].
const GOOD: [(&str, &[&str]); 15] = [
    ("Node", &["i-0abc123def4567890", "ip-10-0-1-2.eu-west-1.compute.internal", "a"]),
    ("For", &["600", "1", "799"]),
    ("Unit", &["all", "agent", "kubelet", "containerd", "etcd"]),
    ("Lines", &["50", "1", "99", "500"]),
    ("Member", &["etcd-4", "etcd-0", "etcd-10"]),
    ("Snapshot", &["20261121T204500Z"]),
    ("Token", &["auto", "production-20261121T204500Z.2"]),
    (
        "InitialCluster",
        &[
            "founders",
            "etcd-0=https://etcd-0.production.etcd.internal:2380",
            "etcd-0=https://etcd-0.production.etcd.internal:2380,etcd-1=https://etcd-1.production.etcd.internal:2380",
        ],
    ),
    ("Bump", &["1000000000", "1", "176418390000000000"]),
    ("Sha256", &["any", "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f"]),
    ("Stage", &["whole", "prepare", "verify", "discard"]),
    ("ForceAfter", &["never", "3600", "172800"]),
    ("Restart", &["never", "allowed"]),
    ("Without", &["none", "i-0abc123def4567890", "i-0abc123def4567890,i-0abcdef1"]),
    ("Credentials", &["00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"]),
];

/// Values that would be more than one argument if they were accepted.
const BAD: [&str; 21] = [
    "",
    "'",
    "a'b",
    "a b",
    "a;reboot",
    "a|b",
    "a&b",
    "$(id)",
    "`id`",
    "${IFS}",
    "a\nb",
    "a>b",
    "a*",
    "~",
    "--help",
    "-x",
    "../a",
    "a/b",
    "{{ ssm:secret }}",
    "a\u{0}b",
    "etcd-0=https://a:2380'",
];

struct Document {
    parameters: BTreeMap<String, Value>,
    command: String,
    timeout_s: u32,
}

async fn documents() -> BTreeMap<String, Document> {
    let template = translate(&tools::root().join("infra/template.yaml")).await.unwrap();
    let resources = template["Resources"].as_object().unwrap().values();
    let found = resources.filter(|resource| resource["Type"] == "AWS::SSM::Document").map(|resource| {
        let properties = &resource["Properties"];
        let content = &properties["Content"];
        assert_eq!(content["schemaVersion"], "2.2");
        let [step] = content["mainSteps"].as_array().unwrap().as_slice() else {
            panic!("one step: {content}")
        };
        assert_eq!(step["action"], "aws:runShellScript");
        assert_eq!(step["precondition"], json!({ "StringEquals": ["platformType", "Linux"] }));
        let timeout: u32 = step["inputs"]["timeoutSeconds"].as_str().unwrap().parse().unwrap();
        assert!((60..=172_800).contains(&timeout), "Systems Manager accepts no other value");
        let [command] = step["inputs"]["runCommand"].as_array().unwrap().as_slice() else {
            panic!("one line: {step}")
        };
        let parameters = content.get("parameters").and_then(Value::as_object).cloned().unwrap_or_default();
        let document = Document {
            parameters: parameters.into_iter().collect(),
            command: command.as_str().unwrap().to_owned(),
            timeout_s: timeout,
        };
        (properties["Name"].as_str().unwrap().to_owned(), document)
    });
    found.collect()
}

/// Replaces parameters as Systems Manager does, by plain text replacement.
fn filled(document: &Document, values: &BTreeMap<&str, &str>) -> String {
    let mut command = document.command.clone();
    for (name, value) in values {
        command = command.replace(&format!("{{{{ {name} }}}}"), value);
    }
    command
}

fn good() -> BTreeMap<&'static str, &'static str> {
    GOOD.iter().map(|(name, values)| (*name, values[0])).collect()
}

/// The arguments into which the shell splits `command`.
fn words(command: &str) -> Vec<String> {
    let shown = command.replace(AGENT, "printf '%s\\n'");
    let output = Command::new("sh").args(["-c", &shown]).output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn each_document_is_one_verb_that_the_shell_and_the_agent_understand() {
    let documents = documents().await;
    let names: Vec<_> = documents.keys().map(String::as_str).collect();
    assert_eq!(names, DOCUMENTS.map(|(name, _)| name));
    for (name, line) in DOCUMENTS {
        let command = filled(&documents[name], &good());
        let checked = Command::new("sh").args(["-n", "-c", &command]).output().unwrap();
        assert!(checked.status.success(), "{name}: {checked:?}");
        let expected: Vec<_> = line.split(' ').collect();
        assert!(command.starts_with(&format!("exec {AGENT} ")), "{command}");
        assert_eq!(words(&command.replace("exec ", "")), expected, "{name}");
        slipway_node::understands(&expected).unwrap();
    }
}

#[tokio::test]
async fn each_parameter_is_a_word_between_quotes_and_can_be_nothing_else() {
    let mut seen = BTreeSet::new();
    let placeholder = Regex::new(r"\{\{ *(\w+) *\}\}").unwrap();
    for (name, document) in documents().await {
        let used: BTreeSet<_> =
            placeholder.captures_iter(&document.command).map(|found| found[1].to_owned()).collect();
        let declared: BTreeSet<_> = document.parameters.keys().cloned().collect();
        assert_eq!(used, declared, "{name}");
        for (parameter, said) in &document.parameters {
            seen.insert(parameter.clone());
            assert!(
                document.command.contains(&format!("'{{{{ {parameter} }}}}'")),
                "{name}: {parameter} unquoted"
            );
            assert_eq!(said["type"], "String");
            let pattern = said["allowedPattern"].as_str().unwrap();
            assert!(pattern.starts_with('^') && pattern.ends_with('$'), "{pattern}");
            let pattern = Regex::new(pattern).unwrap();
            let (_, values) = GOOD.iter().find(|(known, _)| known == parameter).unwrap();
            for value in *values {
                assert!(pattern.is_match(value), "{name}: {parameter} refuses `{value}`");
                let mut all = good();
                all.insert(parameter, value);
                let command = filled(&document, &all);
                assert!(words(&command.replace("exec ", "")).iter().any(|word| word == value), "{command}");
            }
            for value in BAD {
                assert!(!pattern.is_match(value), "{name}: {parameter} takes `{value}`");
            }
            if let Some(default) = said.get("default") {
                assert!(pattern.is_match(default.as_str().unwrap()), "{name}: {parameter}");
            }
        }
    }
    assert_eq!(seen, GOOD.iter().map(|(name, _)| (*name).to_owned()).collect());
}

/// The functions send what the documents accept: the document of each verb exists, has exactly its parameters, and its patterns accept the
/// verb's values.
#[tokio::test]
async fn each_verb_of_the_functions_is_one_that_its_document_takes() {
    let documents = documents().await;
    let (node, member) = ("i-0abc123def4567890".to_owned(), "etcd-4".to_owned());
    let credentials = "0123456789abcdef".repeat(4);
    let verbs = [
        Verb::Status,
        Verb::Refresh { credentials: credentials.clone(), restart: false },
        Verb::Refresh { credentials, restart: true },
        Verb::Logs { unit: None, lines: 1 },
        Verb::Logs { unit: Some(LogUnit::Kubelet), lines: MOST_LINES },
        Verb::Serves { without: BTreeSet::new() },
        Verb::Serves { without: [node.clone(), "i-0abcdef1".to_owned()].into() },
        Verb::EtcdHealth,
        Verb::EtcdMoveLeader,
        Verb::EtcdSnapshot,
        Verb::EtcdRemove { member },
        Verb::EtcdRetire,
        Verb::EtcdRestore(Box::new(RestoreOrder {
            snapshot: "20261121T204500Z".to_owned(),
            token: "production-20261121T204500Z-1764183900000".to_owned(),
            members: ["etcd-0", "etcd-1"]
                .map(|name| (name.to_owned(), format!("https://{name}.production.etcd.internal:2380")))
                .into(),
            bump: u64::from(u32::MAX) << 24,
            sha256: Some("0f".repeat(32)),
            stage: RestoreStage::Prepare,
        })),
        Verb::EtcdDefragment,
        Verb::Drain { node: node.clone(), for_s: 1, force_after_s: None },
        Verb::Drain { node: node.clone(), for_s: 799, force_after_s: Some(172_800) },
        Verb::Uncordon { node },
    ];
    let mut named = BTreeSet::new();
    for verb in &verbs {
        named.insert(verb.document());
        let document = &documents[verb.document()];
        assert_eq!(document.timeout_s, verb.timeout_s(), "{verb:?}");
        let parameters = verb.parameters();
        assert!(parameters.keys().eq(document.parameters.keys()), "{verb:?}");
        for (name, value) in &parameters {
            let pattern = document.parameters[name]["allowedPattern"].as_str().unwrap();
            assert!(Regex::new(pattern).unwrap().is_match(value), "{verb:?}: {name}");
        }
        let values = parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let words = words(&filled(document, &values).replace("exec ", ""));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        slipway_node::understands(&words).unwrap();
    }
    assert!(documents.keys().map(String::as_str).eq(named), "no verb names one of the documents");
}

/// The simulator's documents are those of the template.
#[tokio::test]
async fn the_simulator_has_the_documents_of_the_template() {
    let mut documents = documents().await;
    for simulated in slipway_sim::documents() {
        let document = documents.remove(simulated.name).unwrap();
        assert_eq!(document.timeout_s, simulated.timeout_s, "{}", simulated.name);
        let declared = document.parameters.iter();
        let declared: BTreeMap<&str, Option<&str>> = declared
            .map(|(name, said)| (name.as_str(), said.get("default").and_then(Value::as_str)))
            .collect();
        assert_eq!(
            simulated.parameters.into_iter().collect::<BTreeMap<_, _>>(),
            declared,
            "{}",
            simulated.name
        );
    }
    assert_eq!(documents.keys().collect::<Vec<_>>(), Vec::<&String>::new());
}

/// A drain ends by itself before Systems Manager ends it, and then says what it waits for. A hanging drain does not occupy a worker of its
/// machine's SSM agent for long: the agent has five, and would otherwise accept no other command.
#[tokio::test]
async fn a_drain_has_more_time_than_it_may_be_told_to_take_and_not_much_more() {
    let template = translate(&tools::root().join("infra/template.yaml")).await.unwrap();
    let content = &template["Resources"]["DrainDocument"]["Properties"]["Content"];
    let timeout: u32 = content["mainSteps"][0]["inputs"]["timeoutSeconds"].as_str().unwrap().parse().unwrap();
    let allowed = Regex::new(content["parameters"]["For"]["allowedPattern"].as_str().unwrap()).unwrap();
    let longest = (1..=172_800).rev().find(|seconds: &u32| allowed.is_match(&seconds.to_string())).unwrap();
    assert!((longest + 60..=longest + 120).contains(&timeout), "{longest} of {timeout}");
}

#[test]
fn every_state_is_drawn_as_its_table_has_it() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/states.md");
    let page = slipway_rollout::states::page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == page,
        "docs/states.md is not what the tables say: run UPDATE_DOCS=1 cargo test --workspace --test documents every_state"
    );
}
