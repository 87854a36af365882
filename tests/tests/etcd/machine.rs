//! A machine: a root folder with the credentials, configuration and data of a member, on which the real agent runs.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use slipway_core::node::{EtcdHealth, NodeStatus};
use slipway_core::role::Role;
use slipway_tests::observe::PATIENCE;
use slipway_tests::surroundings::Surroundings;
use slipway_tests::tools;
use tokio::process::Command;

use super::Credentials;
use super::member::{Client, Member, cluster, tail};

/// A tested release of etcd.
#[derive(Debug, Clone)]
pub(crate) struct Release {
    pub(crate) version: &'static str,
    pub(crate) etcd: PathBuf,
    /// The program that restores snapshots: `etcdutl`, or `etcdctl` before 3.6.
    pub(crate) restorer: PathBuf,
}

/// The release that `make test-etcd` builds.
const NEWEST: &str = "3.7.3";

/// Debian's release and those of Kubernetes' minors (`slipway_core::versions`), as far as they are available.
pub(crate) fn releases() -> Vec<Release> {
    let old = tools::debian("etcd-server", "etcd").zip(tools::debian("etcd-client", "etcdctl"));
    let old = old.map(|(etcd, restorer)| Release { version: "3.4.23", etcd, restorer });
    let new = |version, program: fn(&str, &str) -> Option<PathBuf>| {
        let (etcd, restorer) = program(version, "etcd").zip(program(version, "etcdutl"))?;
        Some(Release { version, etcd, restorer })
    };
    // One release is built in every run, and the newest if there is time.
    old.into_iter().chain(new("3.6.16", tools::etcd)).chain(new(NEWEST, tools::cached_etcd)).collect()
}

/// The newest available release.
pub(crate) fn newest() -> Option<Release> {
    releases().pop()
}

/// A machine whose root is `member.dir`.
pub(crate) struct Machine {
    pub(crate) member: Member,
    /// The environment of its agent.
    pub(crate) environment: BTreeMap<String, String>,
}

/// Machines of the cluster; none is started.
pub(crate) async fn machines(
    credentials: &Credentials,
    release: &Release,
    dir: &Path,
    count: usize,
) -> Vec<Machine> {
    let machines = bare(release, dir, count);
    for (index, machine) in machines.iter().enumerate() {
        credentials.put(&Role::Etcd(u32::try_from(index).unwrap()), &machine.member.pki).await;
    }
    machines
}

/// As [`machines`], with a member that runs on each.
pub(crate) async fn running(
    credentials: &Credentials,
    release: &Release,
    dir: &Path,
    count: usize,
) -> Vec<Machine> {
    let mut machines = machines(credentials, release, dir, count).await;
    machines.iter_mut().for_each(|machine| machine.member.start());
    machines
}

/// As [`machines`], without credentials.
pub(crate) fn bare(release: &Release, dir: &Path, count: usize) -> Vec<Machine> {
    let mut machines = Vec::new();
    for mut member in cluster(&release.etcd, dir, count) {
        member.pki = member.dir.join("etc/etcd/pki");
        member.data = member.dir.join("var/lib/etcd/data");
        let programs = member.dir.join("opt/slipway/bin");
        for folder in
            [&programs, &member.pki, &member.dir.join("var/lib/etcd"), &member.dir.join("var/lib/slipway")]
        {
            fs::create_dir_all(folder).unwrap();
        }
        let tool = programs.join(release.restorer.file_name().unwrap());
        std::os::unix::fs::symlink(&release.restorer, tool).unwrap();
        let machine = Machine { member, environment: BTreeMap::new() };
        machine.configure(&json!({}));
        machines.push(machine);
    }
    machines
}

impl Machine {
    /// Writes its configuration as rendering does, with the values of `etcd` in place of its own.
    pub(crate) fn configure(&self, etcd: &Value) {
        let member = &self.member;
        let founders: serde_json::Map<String, Value> = member
            .founders
            .split(',')
            .filter_map(|one| one.split_once('='))
            .map(|(name, url)| (name.to_owned(), json!(url)))
            .collect();
        let mut settings = json!({
            "version": NEWEST, "name": member.name, "dnsName": "127.0.0.1", "clientPort": member.client_port,
            "peerPort": member.peer_port, "initialCluster": founders, "initialClusterToken": "test",
        });
        settings.as_object_mut().unwrap().extend(etcd.as_object().unwrap().clone());
        let config = json!({
            "format": 1, "cluster": "production", "role": member.name, "region": "eu-west-1", "sshAuthorizedKeys": [],
            "autoScalingGroup": "g", "launchHook": "l", "terminateHook": "t", "etcd": settings,
            "dataVolume": { "tags": {}, "device": "/dev/sdf", "fileSystem": "ext4", "mountPoint": "/var/lib/etcd" },
        });
        self.write("config.json", &config);
    }

    /// Writes the machine's identity, with `cloud` as its environment.
    pub(crate) fn hosted(&mut self, cloud: &Surroundings, role: &Role, credentials: &str) {
        cloud.host(&self.member.dir, role, credentials);
        self.environment = cloud.environment();
    }

    /// Writes a file of the agent.
    pub(crate) fn write(&self, name: &str, value: &Value) {
        fs::write(self.member.dir.join("var/lib/slipway").join(name), value.to_string()).unwrap();
    }

    /// Reads a file of the agent.
    pub(crate) fn read(&self, name: &str) -> Value {
        let bytes = fs::read(self.member.dir.join("var/lib/slipway").join(name)).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    /// Runs the agent. Returns whether it succeeded, and the object that it printed.
    pub(crate) async fn agent(&self, arguments: &[&str]) -> (bool, Value) {
        let agent = tools::binary("slipway-node").unwrap();
        let mut command = Command::new(agent);
        command.arg("--root").arg(&self.member.dir).args(arguments);
        let output = command
            .env_clear()
            .envs(&self.environment)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let value = serde_json::from_str(&text);
        (output.status.success(), value.unwrap_or_else(|_| panic!("no JSON but {text:?}; {errors}")))
    }

    /// Runs the agent with a `systemctl` that starts and stops the member as requested.
    pub(crate) async fn agent_with_systemd(&mut self, arguments: &[&str]) -> (bool, Value) {
        let folder = self.member.dir.join("systemd");
        fs::create_dir_all(&folder).unwrap();
        let units = self.member.dir.join("etc/systemd/system");
        fs::create_dir_all(&units).unwrap();
        fs::write(units.join("etcd.service"), "").unwrap();
        let (asked, answer) = (folder.join("asked"), folder.join("answer"));
        let script = format!(
            "#!/bin/sh\ncd {} || exit 9\necho \"$*\" > draft && mv draft asked\n\
             while ! [ -e answer ]; do sleep 0.02; done\ncat answer && rm answer\n",
            folder.display()
        );
        let program = folder.join("systemctl");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/bin:/bin", folder.display());
        let mut command = Command::new(tools::binary("slipway-node").unwrap());
        command.arg("--root").arg(&self.member.dir).args(arguments);
        command.env_clear().envs(&self.environment).env("PATH", path).kill_on_drop(true);
        let output = command.stdin(Stdio::null()).output();
        tokio::pin!(output);
        let output = loop {
            tokio::select! {
                output = &mut output => break output.unwrap(),
                () = tokio::time::sleep(Duration::from_millis(10)) => {}
            }
            let Ok(words) = fs::read_to_string(&asked) else { continue };
            fs::remove_file(&asked).unwrap();
            let said = match words.trim() {
                "stop etcd.service" => {
                    self.member.stop().await;
                    ""
                }
                "start --no-block etcd.service" => {
                    if self.member.process().is_none() {
                        self.member.start();
                    }
                    ""
                }
                "reset-failed etcd.service" => "",
                "show --property=ActiveState,NRestarts etcd.service" => {
                    "ActiveState=activating\nNRestarts=0\n"
                }
                other => panic!("systemctl {other}"),
            };
            let draft = folder.join("answer.draft");
            fs::write(&draft, said).unwrap();
            fs::rename(draft, &answer).unwrap();
        };
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let value = serde_json::from_str(&text);
        (output.status.success(), value.unwrap_or_else(|_| panic!("no JSON but {text:?}; {errors}")))
    }

    /// The answer of a successful `etcd restore` with these arguments.
    pub(crate) async fn restores(&mut self, words: &[&str]) -> Value {
        let words = [&["etcd", "restore"], words].concat();
        let (done, value) = self.agent_with_systemd(&words).await;
        assert!(done, "{words:?}: {value}");
        value
    }

    /// As [`Self::does`], with the agent's peak memory in KiB.
    pub(crate) async fn peak(&self, arguments: &[&str]) -> (Value, u64) {
        let mut command = Command::new(tools::binary("slipway-node").unwrap());
        command.arg("--root").arg(&self.member.dir).args(arguments).env_clear().envs(&self.environment);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let child = command.spawn().unwrap();
        let status = format!("/proc/{}/status", child.id().unwrap());
        let ended = child.wait_with_output();
        tokio::pin!(ended);
        let mut peak = 0;
        let output = loop {
            tokio::select! {
                output = &mut ended => break output.unwrap(),
                () = tokio::time::sleep(Duration::from_millis(2)) => {
                    let text = fs::read_to_string(&status).unwrap_or_default();
                    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
                    let size = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
                    peak = peak.max(size.unwrap_or_default());
                }
            }
        };
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && peak > 0, "{text}");
        (serde_json::from_str(&text).unwrap(), peak)
    }

    /// The answer of [`Self::agent`], which must succeed.
    pub(crate) async fn does(&self, arguments: &[&str]) -> Value {
        let (done, value) = self.agent(arguments).await;
        assert!(done, "slipway-node {}: {value}", arguments.join(" "));
        value
    }

    /// The answer of `status`.
    pub(crate) async fn status(&self) -> NodeStatus {
        serde_json::from_value(self.does(&["status"]).await).unwrap()
    }

    /// The answer of `etcd health`.
    pub(crate) async fn health(&self) -> EtcdHealth {
        serde_json::from_value(self.does(&["etcd", "health"]).await).unwrap()
    }

    /// Waits until the member serves, healthy or not: the leader may just have gone.
    pub(crate) async fn serves(&self) -> EtcdHealth {
        self.comes_to(|health| health.serving).await
    }

    /// Waits until the agent reports it as healthy.
    pub(crate) async fn is_healthy(&self) -> EtcdHealth {
        self.comes_to(|health| health.healthy).await
    }

    /// Writes through another member until this one is above its quota, which no member may know of before the other's next write: the quota
    /// counts the size of the file as of the last commit, and commits are 100 ms apart (etcd, `server/storage/quota.go`, `Available`, and
    /// `server/storage/backend/backend.go`, `defaultBatchInterval`). The alarm is raised by a separate proposal, after the write.
    pub(crate) async fn is_filled_through(&self, client: &Client, other: &Member, value: &str) -> EtcdHealth {
        let start = Instant::now();
        for number in 0.. {
            client.try_write(other, &format!("large-{number}"), value).await;
            let health = self.health().await;
            if !health.alarms.is_empty() {
                return health;
            }
            assert!(start.elapsed() < PATIENCE, "no alarm after {number} writes: {health:#?}");
        }
        unreachable!("there is always another number")
    }

    /// Waits until that state is reached.
    pub(crate) async fn comes_to(&self, state: impl Fn(&EtcdHealth) -> bool) -> EtcdHealth {
        let start = Instant::now();
        loop {
            let health = self.health().await;
            if state(&health) {
                return health;
            }
            let name = &self.member.name;
            assert!(start.elapsed() < PATIENCE, "{name}: {health:#?}\n{}", tail(&self.member.log()));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
