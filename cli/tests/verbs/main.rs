//! Each verb as a person or a script meets it: what the built binary writes, and how it ends.
#![allow(clippy::unwrap_used, reason = "tests")]

mod apply;
mod certs;
mod completions;
mod day_two;
mod exit_codes;
mod init;
mod inventory;
mod migrate;
mod own_ca;
mod patches;
mod plan;
mod publish_agent;
mod render;
mod renew;
mod rotate_ca;
mod settings;
mod simulate;
mod validate;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use tempfile::TempDir;

/// The smallest spec that the tests render: one of each.
const SMALL: &str = "\
clusterName: small
region: eu-west-1
kubernetesVersion: \"1.37\"
availabilityZone: eu-west-1a
apiEndpoints:
  - name: default
    dnsName: api.small.example.com
worker:
  nodePools:
    - name: general
      autoScalingGroup: {minSize: 1, maxSize: 3}
    - name: other
certificatesConfiguration:
  rolloutBeforeExpiry: {enabled: true}
";

/// A directory of a test's own, in which the binary runs.
struct Place {
    dir: TempDir,
}

/// How a run ended.
#[derive(Debug)]
struct Run {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Place {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    /// With [`SMALL`] as `cluster.yaml`.
    fn small() -> Self {
        let place = Self::new();
        place.write("cluster.yaml", SMALL);
        place
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.dir.path().join(relative)
    }

    fn write(&self, relative: &str, content: impl AsRef<[u8]>) {
        let path = self.path(relative);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn read(&self, relative: &str) -> String {
        std::fs::read_to_string(self.path(relative)).unwrap()
    }

    fn run(&self, args: &str) -> Run {
        self.run_with(args, "")
    }

    /// Runs the binary with words and a standard input, in an environment of its own.
    fn run_with(&self, args: &str, input: &str) -> Run {
        self.run_as(args, input, &[])
    }

    /// With these variables.
    fn run_in(&self, args: &str, environment: &[(&str, &str)]) -> Run {
        self.run_as(args, "", environment)
    }

    fn run_as(&self, args: &str, input: &str, environment: &[(&str, &str)]) -> Run {
        let mut child = Command::new(env!("CARGO_BIN_EXE_slipway"))
            .args(args.split_whitespace())
            .current_dir(self.dir.path())
            .env_clear()
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that reads nothing may be gone already.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| self.masked(&String::from_utf8(bytes).unwrap());
        Run { code: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Without what differs from run to run: the directory, and digests of random credentials.
    fn masked(&self, text: &str) -> String {
        let text = text.replace(&self.dir.path().display().to_string(), "[DIR]");
        let mut masked = String::new();
        let mut word = String::new();
        for letter in text.chars().chain(['\0']) {
            if letter.is_ascii_hexdigit() {
                word.push(letter);
                continue;
            }
            let digest = word.len() >= 12 && word.bytes().any(|byte| byte.is_ascii_digit());
            masked.push_str(if digest { "[HEX]" } else { &word });
            word.clear();
            masked.push(letter);
        }
        masked.trim_end_matches('\0').to_owned()
    }

    /// Every file below the place with its content and time.
    fn files(&self) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.dir.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let time = path.metadata().unwrap().modified().unwrap();
                    files.insert(self.relative(&path), (std::fs::read(&path).unwrap(), time));
                }
            }
        }
        files
    }

    /// Every file below the place with its content.
    fn bytes(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        self.files().into_iter().map(|(path, (bytes, _))| (path, bytes)).collect()
    }

    fn relative(&self, path: &Path) -> PathBuf {
        path.strip_prefix(self.dir.path()).unwrap().to_owned()
    }
}

impl Run {
    /// For a snapshot.
    fn output(&self) -> String {
        let Self { code, stdout, stderr } = self;
        format!("exit {code}\n--- stdout\n{stdout}--- stderr\n{stderr}")
    }

    fn json(&self) -> serde_json::Value {
        assert_eq!(self.stderr, "", "JSON speaks on the standard output alone");
        serde_json::from_str(&self.stdout).unwrap()
    }
}

macro_rules! snapshot {
    ($run:expr) => {
        insta::assert_snapshot!($run.output())
    };
}
use snapshot;

/// Every verb, in the order of the help page.
const VERBS: &[&str] = &[
    "init",
    "validate",
    "render",
    "plan",
    "cost",
    "simulate",
    "apply",
    "list",
    "status",
    "watch",
    "logs",
    "diff",
    "history",
    "doctor",
    "approve",
    "pause",
    "resume",
    "abort",
    "skip",
    "rollback",
    "upgrade",
    "destroy",
    "snapshot",
    "snapshots",
    "restore",
    "defragment",
    "kubeconfig",
    "export",
    "certs show",
    "certs verify",
    "certs renew",
    "certs gc",
    "scan",
    "renew",
    "rotate-ca",
    "publish-agent",
    "migrate kube-aws",
    "completions",
    "man",
    "version",
];

#[test]
fn the_page_of_help_and_of_each_verb() {
    let place = Place::new();
    let mut pages = String::new();
    for verb in [""].iter().chain(VERBS) {
        let run = place.run(&format!("{verb} --help"));
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{verb}");
        assert!(
            run.stdout.contains("Examples:") && run.stdout.contains("slipway "),
            "{verb} --help has no example"
        );
        assert!(run.stdout.contains("Exit codes:"), "{verb} --help names no exit code");
        pages.push_str(&run.stdout);
        pages.push_str("\n=====\n\n");
    }
    insta::assert_snapshot!(pages);
}

#[test]
fn wrong_usage_ends_with_2() {
    let place = Place::small();
    for args in [
        "",
        "launch",
        "render cluster.yaml",
        "plan",
        "simulate",
        "validate",
        "init --cluster-name a",
        "status",
        "apply",
        "apply cluster.yaml -f cluster.yaml",
        "destroy --yes",
        "pause",
        "skip prod-etcd-0 --cluster prod",
        "validate cluster.yaml --output xml",
    ] {
        let run = place.run(args);
        assert_eq!(run.code, 2, "{args}: {}", run.output());
        assert_eq!(run.stdout, "", "{args}");
    }
}

#[test]
fn a_result_that_cannot_be_written_is_an_error() {
    let place = Place::small();
    for args in ["validate cluster.yaml", "validate cluster.yaml --output json", "completions bash"] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_slipway"))
            .args(args.split_whitespace())
            .current_dir(place.dir.path())
            .env_clear()
            .stdout(full)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{args}: {told}");
        let json = args.ends_with("json");
        assert!(json || told.contains("cannot write the standard output: No space left"), "{args}: {told}");
    }
}

#[test]
fn what_cannot_be_simulated_is_said_in_either_format() {
    let place = Place::small();
    place.write("empty.yaml", "");
    assert_eq!(place.run("simulate empty.yaml --output json").json()["ok"], false);
    for args in ["--seed -1", "--faults -1", "--days 0"] {
        let run = place.run(&format!("simulate cluster.yaml {args}"));
        assert_eq!(run.code, 2, "{args}: {}", run.output());
        assert!(run.stderr.contains("invalid value"), "{args}: {}", run.output());
    }
    let run = place.run("simulate cluster.yaml --days 1 --html .");
    assert!(run.code == 1 && run.stderr.contains("is a directory"), "{}", run.output());
}

#[test]
fn what_is_piped_has_no_colour() {
    let place = Place::new();
    place.write("cluster.yaml", "zebra: 1\n");
    let run = place.run("validate cluster.yaml");
    assert!(!run.stdout.contains('\u{1b}'));
}
