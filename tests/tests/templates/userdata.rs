//! User data as a node gets it: its size, and the results of a shell and shellcheck.

use std::io::Write as _;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use slipway_tests::tools;

use slipway_tests::workshop::{Workshop, examples};

/// A quarter of EC2's limit (16 KiB): larger content belongs in the bundles.
const BYTES_AT_MOST: usize = 4096;

/// Takes the place of a value that CloudFormation fills in; as long as the longest of its kind, a hosted zone's id.
const FILLED_IN: &str = "Z0123456789ABCDEFGHIJKLMNOPQRSTU";

/// The text of `Fn::Base64`, joined as CloudFormation does.
fn text(userdata: &Value) -> String {
    match &userdata["Fn::Base64"] {
        Value::String(text) => text.clone(),
        joined => {
            let parts =
                joined["Fn::Join"].as_array().unwrap_or_else(|| panic!("neither text nor a join: {joined}"));
            assert_eq!(parts[0], "");
            parts[1].as_array().unwrap().iter().map(|part| part.as_str().unwrap_or(FILLED_IN)).collect()
        }
    }
}

/// The user data of every launch template of every example: its origin and its text.
async fn userdata() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for example in examples() {
        let rendered = Workshop::for_example(&example).render(&example.text).await;
        let before = found.len();
        for stack in &rendered.rendering.stacks {
            let template: Value = serde_json::from_str(&stack.body).unwrap();
            for (id, resource) in template["Resources"].as_object().unwrap() {
                if resource["Type"] == "AWS::EC2::LaunchTemplate" {
                    let text = text(&resource["Properties"]["LaunchTemplateData"]["UserData"]);
                    found.push((format!("{}, {}, {id}", example.name, stack.name), text));
                }
            }
        }
        // Every role except the administrator has nodes.
        assert_eq!(found.len() - before, rendered.rendering.roles.len(), "{}", example.name);
    }
    found
}

fn with_input(command: &mut Command, input: &str) -> (bool, String) {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = [ended.stdout, ended.stderr].concat();
    (ended.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// User data as EC2 gets it.
pub(crate) fn decoded(base64: &str) -> String {
    String::from_utf8(STANDARD.decode(base64).unwrap()).unwrap()
}

/// The `node.json` in user data.
pub(crate) fn node_file(text: &str) -> Map<String, Value> {
    let file = text.split("<<'NODE'\n").nth(1).and_then(|rest| rest.split("\nNODE\n").next()).unwrap();
    serde_json::from_str(file).unwrap_or_else(|error| panic!("{error}: {file}"))
}

#[tokio::test]
async fn userdata_is_small_and_a_shell_can_read_it() {
    for (whose, text) in userdata().await {
        assert!(text.len() < BYTES_AT_MOST, "{whose}: {} bytes", text.len());
        let (fine, said) = with_input(Command::new("sh").arg("-n"), &text);
        assert!(fine && said.is_empty(), "{whose}: {said}");
    }
}

#[tokio::test]
async fn shellcheck_finds_nothing_in_userdata() {
    let shellcheck = tools::python().unwrap().with_file_name("shellcheck");
    let check = |text: &str| {
        let mut command = Command::new(&shellcheck);
        with_input(command.args(["--shell=sh", "--severity=style", "--format=gcc", "-"]), text)
    };
    // The script is the same except for its values, so those of an etcd member, a controller and a worker are enough.
    let all = userdata().await;
    for (whose, text) in all.iter().filter(|(whose, _)| whose.starts_with("production,")) {
        let (fine, said) = check(text);
        assert!(fine && said.is_empty(), "{whose}: {said}");
    }
    let (fine, said) = check("#!/bin/sh\nrm $1\n");
    assert!(!fine && said.contains("SC2086"), "shellcheck reports nothing: {said}");
}

#[tokio::test]
async fn p9_userdata_holds_node_json_that_reads_back() {
    for (whose, text) in userdata().await {
        let node = node_file(&text);
        let keys: Vec<&str> = node.keys().map(String::as_str).collect();
        let known =
            ["agent", "assetBucket", "cluster", "config", "credentials", "format", "region", "role", "zone"];
        assert!(keys.iter().all(|key| known.contains(key)), "{whose}: {keys:?}");
        for digest in ["config", "credentials"] {
            let digest = node[digest].as_str().unwrap();
            assert!(
                digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()),
                "{whose}: {digest}"
            );
        }
    }
}
