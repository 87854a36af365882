//! docs/tutorial.md, command by command: what the page tells a newcomer to run runs here in the given order, in an embedded AWS that was
//! deployed with the page's own parameters. Commands that need a real account are marked in the page (`# in AWS`), and listed here.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod smoke;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use slipway_core::keys;
use slipway_rollout::StackStatus;
use slipway_tests::client::{ACCOUNT, machine_arn};
use slipway_tests::gateway::Principal;
use slipway_tests::iam;
use slipway_tests::installation::Installation;
use slipway_tests::tools;
use slipway_tests::world::Settings;
use tokio::process::Command;

const PAGE: &str = "docs/tutorial.md";
/// The first line of a block whose commands need a real account, or others' tools.
const REAL: &str = "# in AWS";
/// The beginnings of these commands, in order. A new one is named here once it is known that nothing can run it without an account.
const IN_AWS: &[&str] = &[
    "aws service-quotas get-service-quota",
    "aws service-quotas request-service-quota-increase",
    "cargo install",
    "make package",
    "aws sts get-caller-identity",
    "sam deploy",
    "export AWS_REGION",
    "kubectl --kubeconfig first.kubeconfig get nodes",
    "kubectl --kubeconfig first.kubeconfig create deployment",
    "kubectl --kubeconfig first.kubeconfig rollout status",
    "kubectl --kubeconfig first.kubeconfig port-forward",
    "kubectl --kubeconfig first.kubeconfig delete deployment",
    "kubectl --kubeconfig first.kubeconfig get services,persistentvolumes",
    "OUTPUTS=$(aws cloudformation",
    "KEY=$(aws cloudformation",
    "sam delete",
    "python3 -m venv .boto3",
    "for BUCKET in",
    "aws kms schedule-key-deletion",
    "aws ec2 describe-snapshots",
];
/// The programs of the other commands.
const HERE: [&str; 2] = ["slipway", "sed"];
/// No command takes longer here.
const PATIENCE: Duration = Duration::from_secs(300);

/// A block of the page.
#[derive(Debug, PartialEq, Eq)]
enum Block {
    /// Commands that need a real account.
    Real(Vec<String>),
    /// Commands to run.
    Commands(Vec<String>),
    /// Lines that the commands before it print.
    Printed(Vec<String>),
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else { continue };
        let body: Vec<String> = lines.by_ref().take_while(|line| *line != "```").map(str::to_owned).collect();
        blocks.push(match (language, body.first().map(String::as_str)) {
            ("sh", Some(REAL)) => Block::Real(body[1..].to_vec()),
            ("sh", _) => Block::Commands(body),
            ("text", _) => Block::Printed(body),
            (other, _) => panic!("{PAGE}: a block of {other:?}"),
        });
    }
    blocks
}

fn page() -> Vec<Block> {
    blocks(&fs::read_to_string(tools::root().join(PAGE)).unwrap())
}

fn real(blocks: &[Block]) -> Vec<String> {
    let of = |block: &Block| match block {
        Block::Real(commands) => commands.clone(),
        Block::Commands(_) | Block::Printed(_) => Vec::new(),
    };
    blocks.iter().flat_map(of).collect()
}

#[test]
fn the_page_marks_each_command_that_needs_an_account_and_no_other() {
    let blocks = page();
    let real = real(&blocks);
    assert_eq!(real.len(), IN_AWS.len(), "{real:#?}");
    for (command, begins) in real.iter().zip(IN_AWS) {
        assert!(command.starts_with(begins), "{command}: expected {begins}");
        assert!(!command.starts_with("slipway"), "{command} runs here");
    }
    let mut verbs = Vec::new();
    for block in &blocks {
        let Block::Commands(commands) = block else { continue };
        for command in commands {
            let mut words = command.split_whitespace();
            let program = words.next().unwrap();
            assert!(
                HERE.contains(&program),
                "{command}: mark the block with `{REAL}` if it needs an account"
            );
            verbs.extend((program == "slipway").then(|| words.next().unwrap()));
        }
    }
    // What a newcomer meets on the way.
    for verb in [
        "publish-agent",
        "doctor",
        "init",
        "validate",
        "plan",
        "apply",
        "status",
        "kubeconfig",
        "upgrade",
        "renew",
        "destroy",
    ] {
        assert!(verbs.contains(&verb), "the page does not use {verb}: {verbs:?}");
    }
}

/// Whether `line` is as `shown`, in which `…` stands for any text.
fn is_as_shown(line: &str, shown: &str) -> bool {
    let mut parts = shown.split('…');
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    for (at, part) in parts.iter().enumerate() {
        if at + 1 == parts.len() {
            return rest.ends_with(part);
        }
        let Some(found) = rest.find(part) else { return false };
        rest = &rest[found + part.len()..];
    }
    rest.is_empty()
}

#[test]
fn a_line_is_as_shown_only_if_all_but_the_gaps_is() {
    for (line, shown, is) in [
        ("a b c", "a … c", true),
        ("a b c", "a …", true),
        ("a b c", "… c", true),
        ("a b c", "a b c", true),
        ("a b c d", "a b c", false),
        ("a b c", "a … d", false),
        ("a b c", "b …", false),
        ("one two three", "…two…", true),
    ] {
        assert_eq!(is_as_shown(line, shown), is, "{line} {shown}");
    }
}

/// The word after `option` in the only command that begins so.
fn option(real: &[String], begins: &str, option: &str) -> String {
    let command = real.iter().find(|command| command.starts_with(begins)).unwrap();
    let mut words = command.split_whitespace().skip_while(|word| *word != option);
    words.nth(1).unwrap_or_else(|| panic!("{command} has no {option}")).to_owned()
}

/// The parameters of the page's own `sam deploy`.
fn parameters(real: &[String]) -> BTreeMap<String, String> {
    let command = real.iter().find(|command| command.starts_with("sam deploy")).unwrap();
    let (_, overrides) = command.split_once("--parameter-overrides ").unwrap();
    let pair = |word: &str| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    overrides.split_whitespace().map(|word| pair(word).unwrap()).collect()
}

/// An ELF header of a 64-bit program for x86_64, in the place of the agent that `make package` builds.
fn agent() -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    bytes[16] = 3;
    bytes[18..20].copy_from_slice(&62_u16.to_le_bytes());
    bytes
}

/// The reports of the machines that the plan wants: no machine boots here.
async fn report(slipway: &Installation, cluster: &str) {
    let Some(desired) = slipway.document::<Value>(cluster, "desired.json").await.unwrap() else { return };
    let release = format!("releases/{}.json", desired["target"].as_str().unwrap());
    let release: Value = slipway.document(cluster, &release).await.unwrap().unwrap();
    let manifest: Value = slipway.document(cluster, "pki/manifest.json").await.unwrap().unwrap();
    let write = async |key: String, report: Value| {
        slipway.world().upload("AssetBucket", &key, report.to_string().into_bytes()).await.unwrap();
    };
    for (role, asked) in release["roles"].as_object().unwrap() {
        let machines = asked["nodes"]["min"].as_u64().unwrap_or(1).max(1);
        for number in 0..machines {
            let instance = format!("i-0a1b2c3d4e5f6071{number}");
            let boot = json!({
                "format": 1, "instance": instance, "role": role, "agent": "0.1.0", "at": Timestamp::now(),
                "config": asked["configDigest"], "credentials": asked["credentialsDigest"], "state": "healthy",
            });
            write(keys::bootstrap_report(cluster, role, &machine_arn(&instance)), boot).await;
            if role != "controller" {
                continue;
            }
            let status = json!({
                "format": 1, "at": Timestamp::now(), "cluster": cluster, "role": role,
                "applied": {"config": "c", "credentials": "k", "agent": "a", "matchesNodeFile": true},
                "served": [{
                    "name": "kube-apiserver", "address": "127.0.0.1:6443", "verifiable": true,
                    "certificate": {
                        "serial": "1f", "fingerprint": manifest["assets"]["apiserver"]["fingerprint"], "subject": "CN=kube-apiserver",
                        "issuer": "CN=kubernetes-ca", "notBefore": Timestamp::now(),
                        "notAfter": Timestamp::now() + SignedDuration::from_hours(24 * 300), "verifies": true,
                    },
                }],
                "components": [], "healthy": true,
            });
            write(keys::node_status(cluster, role, &machine_arn(&instance)), status).await;
        }
    }
}

/// Runs a command of the page in `folder`. Returns what it printed; it must succeed.
async fn run(slipway: &Installation, folder: &Path, key: &str, command: &str) -> String {
    let world = slipway.world();
    let programs = tools::binary("slipway").unwrap();
    let path = format!("{}:/usr/bin:/bin", programs.parent().unwrap().display());
    let ran = Command::new("sh")
        .args(["-ec", command])
        .current_dir(folder)
        .env_clear()
        .envs([
            ("PATH", path.as_str()),
            ("AWS_ENDPOINT_URL", world.gateway().url()),
            ("AWS_REGION", world.region()),
            ("AWS_ACCESS_KEY_ID", key),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_EC2_METADATA_DISABLED", "true"),
            ("HOME", "/nonexistent"),
        ])
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(PATIENCE, ran)
        .await
        .unwrap_or_else(|_| panic!("{command} does not end"))
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command}: {:?}\n{out}\n{err}", output.status.code());
    out
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tutorial_leads_from_nothing_to_a_cluster_and_back() {
    let blocks = page();
    let real = real(&blocks);
    let settings = Settings {
        region: option(&real, "sam deploy", "--region"),
        stack_name: option(&real, "sam deploy", "--stack-name"),
        installation: parameters(&real),
        ..Settings::default()
    };
    let slipway = Installation::without_agent(&settings).await.unwrap();
    slipway.world().stand_stack(&settings.stack_name, StackStatus::CreateComplete);
    // Who deploys is the maintainer that the page names, and the policies of the buckets say what that role may.
    let everything = json!({"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]});
    let arn = settings.installation["MaintainerArns"].clone();
    assert!(arn.contains(ACCOUNT), "{arn}");
    let administrator =
        Principal { name: "reader".to_owned(), arn, statements: iam::parse(&everything).unwrap() };
    slipway.world().gateway().know("AKIAREADER", administrator);
    let folder = tempfile::tempdir().unwrap();
    let built = folder.path().join("dist/x86_64");
    fs::create_dir_all(&built).unwrap();
    fs::write(built.join("slipway-node"), agent()).unwrap();

    let mut printed = String::new();
    for block in &blocks {
        match block {
            Block::Real(_) => {}
            Block::Commands(commands) => {
                printed.clear();
                for command in commands {
                    printed += &run(&slipway, folder.path(), "AKIAREADER", command).await;
                    report(&slipway, "first").await;
                }
            }
            Block::Printed(lines) => {
                for shown in lines {
                    let is_there = printed.lines().any(|line| is_as_shown(line.trim_end(), shown.trim_end()));
                    assert!(is_there, "{PAGE} shows {shown:?}, and what was printed is\n{printed}");
                }
            }
        }
    }
    assert!(folder.path().join("first.kubeconfig").is_file());
    assert_eq!(slipway.dead_letters().await.unwrap(), 0);
}
