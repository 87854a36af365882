//! Runs the userdata itself, under `sh`, with stand-ins for `curl` and `sleep`.
#![cfg(unix)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use slipway_core::digest::sha256_hex;
use slipway_core::release::Rendering;

use crate::fixture::{cluster, credentials, lock, site};
use crate::lock::Lock;
use crate::{Inputs, render};

/// Answers as the metadata service and S3 do; what S3 has lies in `$ROOT/s3`. It notes its arguments and its
/// standard input.
const CURL: &str = r#"#!/bin/sh
echo "$*" >>"$ROOT/curl.log"
while [ $# -gt 1 ]; do
  case "$1" in
    -o) out=$2; shift ;;
    -K) cat >>"$ROOT/stdin.log"; shift ;;
    --data-binary) sent=${2#@}; shift ;;
    -d) echo "$2" >>"$ROOT/form.log"; shift ;;
    -X | -H | -m | --aws-sigv4) shift ;;
  esac
  shift
done
case "$1" in
  */api/token) echo IMDS-TOKEN ;;
  */meta-data/instance-id) echo i-0123456789abcdef0 ;;
  */latest/dynamic/instance-identity/document)
    printf '{\n  "accountId" : "123456789012",\n  "region" : "eu-west-1"\n}\n' ;;
  https://autoscaling.eu-west-1.amazonaws.com/) ;;
  https://slipway-assets-example.s3.eu-west-1.amazonaws.com/clusters/prod/nodes/*)
    cp "$sent" "$ROOT/${1##*/}" ;;
  */security-credentials/) echo node-role ;;
  */security-credentials/node-role)
    printf '{\n  "Code" : "Success",\n  "AccessKeyId" : "ASIAEXAMPLE",\n'
    printf '  "SecretAccessKey" : "s3cr3t/+=",\n  "Token" : "t0k3n/+==",\n  "Expiration" : "2026-11-20T18:00:00Z"\n}\n' ;;
  https://slipway-assets-example.s3.eu-west-1.amazonaws.com/*)
    [ -f "$ROOT/s3/${1##*/}" ] || { echo 'curl: (22) 404' >&2; exit 22; }
    cp "$ROOT/s3/${1##*/}" "$out" ;;
  *) echo "unexpected $1" >&2; exit 6 ;;
esac
"#;

const SLEEP: &str = "#!/bin/sh\necho \"$1\" >>\"$ROOT/sleep.log\"\n";
const AGENT: &str = "#!/bin/sh\necho \"$@\" >agent.log\nexit \"${AGENT_EXIT:-0}\"\n";

struct Machine {
    root: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let machine = Self { root: tempfile::tempdir().unwrap() };
        for folder in ["bin", "s3"] {
            std::fs::create_dir(machine.path(folder)).unwrap();
        }
        for (name, text) in [("curl", CURL), ("sleep", SLEEP)] {
            let path = machine.path("bin").join(name);
            std::fs::write(&path, text).unwrap();
            executable(&path);
        }
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path("s3").join(name), bytes).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn run(&self, script: &str, agent_exit: &str) -> Output {
        let home = self.path("slipway").display().to_string();
        let path = format!("{}:/usr/bin:/bin", self.path("bin").display());
        Command::new("sh")
            .args(["-c", &script.replace("/var/lib/slipway", &home)])
            .env_clear()
            .envs([
                ("PATH", path.as_str()),
                ("ROOT", self.root.path().to_str().unwrap()),
                ("AGENT_EXIT", agent_exit),
            ])
            .output()
            .unwrap()
    }
}

fn executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn rendering(lock: &Lock) -> Rendering {
    render(&Inputs::new(&cluster(), lock, &credentials(&cluster()), &site())).unwrap()
}

fn with_agent() -> Lock {
    let mut lock = lock();
    lock.agent = lock.agent.into_keys().map(|key| (key, sha256_hex(AGENT.as_bytes()))).collect();
    lock
}

/// The userdata of a launch template, with the imported zone in its place.
fn script(rendering: &Rendering, stack: &str, launch_template: &str) -> String {
    let template: Value = serde_json::from_str(&rendering.stack(stack).unwrap().body).unwrap();
    let data = &template["Resources"][launch_template]["Properties"]["LaunchTemplateData"];
    let userdata = &data["UserData"]["Fn::Base64"];
    match userdata["Fn::Join"][1].as_array() {
        Some(parts) => parts.iter().map(|part| part.as_str().unwrap_or("Z0ETCD")).collect(),
        None => userdata.as_str().unwrap().to_owned(),
    }
}

/// A machine whose bucket holds everything that a role's userdata asks for.
fn furnished(rendering: &Rendering, role: &str) -> Machine {
    let machine = Machine::new();
    let role = &rendering.roles[&role.parse().unwrap()];
    machine.put("slipway-node", AGENT.as_bytes());
    machine.put(&format!("config-{}", role.config_digest), role.config.as_bytes());
    machine.put(&format!("credentials-{}", role.credentials_digest), b"sealed");
    machine
}

#[test]
fn userdata_fetches_checks_and_hands_over() {
    let rendering = rendering(&with_agent());
    let machine = furnished(&rendering, "etcd-0");
    let output = machine.run(&script(&rendering, "prod-etcd", "LaunchTemplate0"), "0");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(machine.read("slipway/agent.log"), "bootstrap\n");
    assert_eq!(machine.read("slipway/config.json"), rendering.roles[&"etcd-0".parse().unwrap()].config);
    assert_eq!(machine.read("slipway/credentials.sealed"), "sealed");
    let node: Value = serde_json::from_str(&machine.read("slipway/node.json")).unwrap();
    assert_eq!((node["role"].as_str(), node["zone"].as_str()), (Some("etcd-0"), Some("Z0ETCD")));
    assert_eq!(machine.read("sleep.log"), "");
}

#[test]
fn p9_the_roles_credentials_reach_curl_by_standard_input_alone() {
    let rendering = rendering(&with_agent());
    let machine = furnished(&rendering, "controller");
    machine.run(&script(&rendering, "prod-control-plane", "LaunchTemplate"), "0");
    let arguments = machine.read("curl.log");
    assert!(arguments.contains("--aws-sigv4 aws:amz:eu-west-1:s3"), "{arguments}");
    assert!(!arguments.contains("s3cr3t") && !arguments.contains("t0k3n"), "{arguments}");
    let first = machine.read("stdin.log");
    let expected = "user = \"ASIAEXAMPLE:s3cr3t/+=\"\nheader = \"x-amz-security-token: t0k3n/+==\"\n";
    assert!(first.starts_with(expected), "{first}");
}

#[test]
fn userdata_gives_up_with_a_reason_on_a_bundle_that_was_tampered_with() {
    let rendering = rendering(&with_agent());
    let machine = furnished(&rendering, "controller");
    let digest = &rendering.roles[&"controller".parse().unwrap()].config_digest;
    machine.put(&format!("config-{digest}"), b"{}");
    let output = machine.run(&script(&rendering, "prod-control-plane", "LaunchTemplate"), "0");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("giving up") && said.contains("is not what its digest says"), "{said}");
    assert_eq!(machine.read("sleep.log"), "2\n4\n8\n16\n32\n64\n128\n256\n");
    assert_eq!(machine.read("slipway/agent.log"), "", "the agent must not start");
    let report: Value = serde_json::from_str(&machine.read("bootstrap.json")).unwrap();
    assert_eq!(
        (report["role"].as_str(), report["config"].as_str()),
        (Some("controller"), Some(digest.as_str()))
    );
    assert_eq!(report["state"], "given-up");
    // Where IAM lets this machine write, and no other; with the colons as S3 signs them.
    let place = "/clusters/prod/nodes/controller/arn%3Aaws%3Aec2%3Aeu-west-1%3A123456789012%3Ainstance/i-0123456789abcdef0/bootstrap.json\n";
    assert!(machine.read("curl.log").contains(place), "{}", machine.read("curl.log"));
    assert!(report["failure"]["message"].as_str().unwrap().contains("is not what its digest says"));
    let expected = "Action=CompleteLifecycleAction&AutoScalingGroupName=prod-control-plane&InstanceId=i-0123456789abcdef0\
                    &LifecycleActionResult=ABANDON&LifecycleHookName=slipway-launch&Version=2011-01-01\n";
    assert_eq!(machine.read("form.log"), expected);
    assert!(!machine.path("slipway/config.json").exists());
}

#[test]
fn userdata_says_that_no_agent_is_published_and_fetches_nothing() {
    let rendering = rendering(&Lock { agent: Default::default(), ..lock() });
    let machine = Machine::new();
    let output = machine.run(&script(&rendering, "prod-pool-general", "LaunchTemplate"), "0");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("the lock pins no node agent for arm64"), "{said}");
    assert!(!machine.read("curl.log").contains("/agent/"), "there is nothing to fetch");
}

#[test]
fn userdata_reports_an_agent_that_failed() {
    let rendering = rendering(&with_agent());
    let machine = furnished(&rendering, "controller");
    let output = machine.run(&script(&rendering, "prod-control-plane", "LaunchTemplate"), "7");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("bootstrap ended with status 7"));
    assert!(machine.read("bootstrap.json").contains("status 7"));
}

#[test]
fn what_the_agent_told_by_itself_is_not_told_again() {
    let rendering = rendering(&with_agent());
    let machine = furnished(&rendering, "controller");
    let output = machine.run(&script(&rendering, "prod-control-plane", "LaunchTemplate"), "1");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(machine.read("bootstrap.json"), "");
    assert!(machine.read("form.log").contains("ABANDON"), "the group must not wait for the hook's end");
}

#[test]
fn userdata_stays_small() {
    let rendering = rendering(&with_agent());
    for (stack, launch_template) in [
        ("prod-etcd", "LaunchTemplate0"),
        ("prod-control-plane", "LaunchTemplate"),
        ("prod-pool-spot", "LaunchTemplate"),
    ] {
        let script = script(&rendering, stack, launch_template);
        assert!(script.len() < 4096, "{} bytes", script.len());
        assert!(script.lines().count() <= 60);
    }
}
