//! `bootstrap` of an etcd member on a machine in a folder: moto is AWS, and a recorder is systemd. The agent is killed at every program
//! that it runs, before and after the program's effect, and started again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use slipway_core::keys;
use slipway_core::node::{BootstrapReport, BootstrapState, NodeFile};
use slipway_credentials::manifest;
use slipway_crypto::AwsLc;
use slipway_node::aws::{Aws, Endpoints, Retry};
use slipway_node::bootstrap::{Bootstrap, LABEL, Patience, Step};
use slipway_node::failure::{AgentResult, FailureCode};
use slipway_node::machine::apply::Host;
use slipway_node::machine::commands::{Commands, Ran};
use slipway_node::node_files::HOME;
use slipway_ports::{Context, Crypto as _, Keys as _};
use slipway_tests::client::machine_arn;
use slipway_tests::imds::Imds;
use slipway_tests::moto::Moto;
use slipway_tests::workshop::{Workshop, example};
use tokio::sync::Notify;

use crate::scripted::Scripted;

const REGION: &str = "eu-west-1";
const BUCKET: &str = "assets";
/// How Auto Scaling refuses a call about a lifecycle action of an instance that has none.
const NO_LIFECYCLE_ACTION: (u16, &str) = (
    400,
    "<ErrorResponse><Error><Type>Sender</Type><Code>ValidationError</Code><Message>No active Lifecycle Action found with instance ID i-1\
     </Message></Error></ErrorResponse>",
);

/// The part of an account that one member needs.
pub(super) struct Account {
    moto: Moto,
    /// In place of S3.
    pub(super) storage: Option<String>,
    pub(super) groups: Scripted,
    imds: Imds,
    instance: String,
    volume: String,
    node: NodeFile,
    config: String,
    sealed: Vec<u8>,
    secrets: Vec<String>,
}

impl Account {
    pub(super) async fn new() -> Self {
        let moto = Moto::start(&[]).await.unwrap();
        let operator = moto.operator(REGION);
        operator.create_bucket(BUCKET).await;
        let instance = operator.run_instance().await;
        let imds = Imds::start(&instance, "eu-west-1a", "10.0.0.5", "ASIANODE").await.unwrap();
        let groups = Scripted::start(&[(200, "")]).await;

        let key = "sshAuthorizedKeys: [ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8hFZ0b2QnX5mC7dT1yR4sVwGzE6kLpQ9uNfHaBcDeF ops]\n";
        let text = example("production").replacen(
            "keyName:",
            &format!("software: {{source: image}}\n{key}keyName:"),
            1,
        );
        let workshop = Workshop::for_spec(&text);
        let rendered = workshop.render(&text).await;
        let role = "etcd-0".parse().unwrap();
        let node_role = &rendered.rendering.roles[&role];
        let files = workshop.bundle(&role).await;
        let arn = operator.create_key().await;
        let mut account = Self {
            node: NodeFile {
                format: NodeFile::FORMAT,
                cluster: workshop.name.clone(),
                role: "etcd-0".to_owned(),
                region: REGION.to_owned(),
                asset_bucket: BUCKET.to_owned(),
                agent: None,
                config: node_role.config_digest.clone(),
                credentials: node_role.credentials_digest.clone(),
                zone: None,
            },
            config: node_role.config.clone(),
            moto,
            storage: None,
            groups,
            imds,
            instance,
            volume: String::new(),
            sealed: Vec::new(),
            secrets: files.values().filter(|text| text.contains("PRIVATE KEY")).cloned().collect(),
        };
        let names = [("cluster", account.node.cluster.clone()), ("role", account.node.role.clone())];
        let context: Context = names.map(|(name, value)| (name.to_owned(), value)).into();
        let key = account.aws().keys(Some(arn)).generate(None, &context).await.unwrap();
        let files = files.iter().map(|(path, text)| (path.clone(), text.as_str())).collect();
        account.sealed = AwsLc.seal(&key, &context, &manifest::plaintext(&files)).unwrap();
        account.volume = account.make_volume().await;
        account.node.zone = Some(operator.create_zone("internal").await);
        account
    }

    /// The tags by which the member finds its volume.
    fn volume_tags(&self) -> BTreeMap<String, String> {
        let config: Value = serde_json::from_str(&self.config).unwrap();
        serde_json::from_value(config["dataVolume"]["tags"].clone()).unwrap()
    }

    async fn make_volume(&self) -> String {
        self.moto.operator(REGION).create_volume(8, &self.volume_tags()).await
    }

    async fn detach(&self) {
        if self.aws().volumes(&self.volume_tags()).await.unwrap()[0].attachment.is_none() {
            return;
        }
        let (volume, instance) = (&self.volume, &self.instance);
        let detach = format!("DetachVolume&VolumeId={volume}&InstanceId={instance}&Device=%2Fdev%2Fsdf");
        self.moto.operator(REGION).ec2(&detach).await;
    }

    fn aws(&self) -> Aws {
        let variables = BTreeMap::from([
            ("AWS_ENDPOINT_URL", self.moto.url()),
            ("AWS_ENDPOINT_URL_S3", self.storage.as_deref().unwrap_or(self.moto.url())),
            ("AWS_ENDPOINT_URL_AUTO_SCALING", &self.groups.url),
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", self.imds.url()),
        ]);
        let endpoints = Endpoints::read(|name| variables.get(name).map(|&value| value.to_owned()));
        let retry = Retry { tries: 3, pause: Duration::from_millis(1) };
        Aws::new(&endpoints, REGION).unwrap().with_retry(retry)
    }

    /// What Auto Scaling was asked since the first `before` calls: the actions, and how a hook was settled.
    fn asked_of_groups(&self, before: usize) -> Vec<&'static str> {
        let words = [
            "RecordLifecycleActionHeartbeat",
            "LifecycleActionResult=CONTINUE",
            "LifecycleActionResult=ABANDON",
        ];
        let asked = self.groups.received();
        let bodies = asked.iter().skip(before).map(|one| String::from_utf8_lossy(&one.body));
        bodies
            .map(|body| words.into_iter().find(|word| body.contains(word)).unwrap_or("something else"))
            .collect()
    }

    async fn report(&self) -> BootstrapReport {
        let key = keys::bootstrap_report(&self.node.cluster, "etcd-0", &machine_arn(&self.instance));
        let found = self.aws().bucket(BUCKET).get(&key).await.unwrap().expect("the node wrote no report");
        serde_json::from_slice(&found).unwrap()
    }
}

/// A machine in a folder, with a simulated systemd.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    root: PathBuf,
    systemd: Arc<Mutex<Systemd>>,
    death: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Systemd {
    log: Vec<String>,
    enabled: BTreeSet<String>,
    active: BTreeSet<String>,
    formats: usize,
    /// The number of programs that may still run before the agent is killed; `true`: after the program's effect.
    life: Option<(usize, bool)>,
}

impl Machine {
    pub(super) fn new(folder: &Path, account: &Account) -> Self {
        let root = folder.join("root");
        let machine = Self { root, systemd: Arc::default(), death: Arc::default() };
        machine.file(&format!("{HOME}/node.json"), serde_json::to_vec(&account.node).unwrap());
        machine.file(&format!("{HOME}/config.json"), account.config.as_bytes());
        machine.file(&format!("{HOME}/credentials.sealed"), &account.sealed);
        machine.file("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nadmin:x:1000:1000::/srv/admin:/bin/sh\n");
        machine.file("/etc/group", "root:x:0:\n");
        machine.file("/usr/bin/etcd", "");
        fs::set_permissions(machine.path("/usr/bin/etcd"), fs::Permissions::from_mode(0o755)).unwrap();
        machine.file(&machine.device(account), vec![0; 2 << 20]);
        machine
    }

    #[allow(clippy::unused_self, reason = "it is the machine's")]
    pub(super) fn device(&self, account: &Account) -> String {
        format!("/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_{}", account.volume.replace('-', ""))
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    pub(super) fn file(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub(super) async fn bootstrap(&self, account: &Account) -> AgentResult<Bootstrap<Self>> {
        let host = Host { root: self.root.clone(), commands: self.clone() };
        let patience = Patience {
            // Enough for a machine that is busy with other tests.
            whole: Duration::from_secs(3),
            permissions: Duration::from_millis(100),
            first: Duration::from_millis(5),
            longest: Duration::from_millis(20),
            heartbeat: Duration::from_millis(50),
        };
        Bootstrap::read(host, account.aws(), patience).await
    }

    /// Runs the steps that need no real etcd; the machines of tests/machines have one.
    async fn go(&self, account: &Account, steps: &[Step]) -> AgentResult<()> {
        let bootstrap = self.bootstrap(account).await?;
        for step in steps {
            let mut tries = 0;
            while let Err(failure) = bootstrap.perform(*step).await {
                tries += 1;
                if !failure.transient || tries > 3 {
                    return Err(failure);
                }
            }
        }
        Ok(())
    }

    /// Whether the agent was killed at a program.
    async fn dies(&self, account: &Account, steps: &[Step]) -> bool {
        tokio::select! { _ = self.go(account, steps) => false, () = self.death.notified() => true }
    }

    /// The visible state of the machine, without the progress report.
    fn state(&self) -> BTreeMap<String, String> {
        fn walk(folder: &Path, root: &Path, found: &mut BTreeMap<String, String>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(root).unwrap().display().to_string();
                let data = fs::symlink_metadata(&path).unwrap();
                if name.ends_with("progress.json") {
                    continue;
                }
                let mode = data.permissions().mode() & 0o7777;
                let what = if data.is_symlink() {
                    format!("-> {}", fs::read_link(&path).unwrap().display())
                } else if data.is_dir() {
                    walk(&path, root, found);
                    format!("{mode:o}")
                } else {
                    format!("{mode:o} {}", slipway_core::digest::sha256_hex(&fs::read(&path).unwrap()))
                };
                found.insert(name, what);
            }
        }
        let mut found = BTreeMap::new();
        walk(&self.root, &self.root, &mut found);
        let systemd = self.systemd.lock().unwrap();
        found.insert("systemd".to_owned(), format!("{:?} {:?}", systemd.enabled, systemd.active));
        found
    }

    fn effect(&self, program: &str, arguments: &[&str]) -> Ran {
        let mut systemd = self.systemd.lock().unwrap();
        let last = arguments.last().copied().unwrap_or_default().to_owned();
        let (mut status, mut stdout) = (0, String::new());
        match (program, arguments[0]) {
            ("systemd-sysusers", _) => {
                let passwd = self.path("/etc/passwd");
                let text = fs::read_to_string(&passwd).unwrap();
                if !text.contains("\netcd:") {
                    fs::write(&passwd, format!("{text}etcd:x:998:998::/var/lib/etcd:/usr/sbin/nologin\n"))
                        .unwrap();
                }
            }
            ("mkfs.ext4", _) => {
                systemd.formats += 1;
                let mut bytes = vec![0; 1 << 20];
                bytes[1080..1082].copy_from_slice(&[0x53, 0xef]);
                bytes[1144..1144 + LABEL.len()].copy_from_slice(LABEL.as_bytes());
                fs::OpenOptions::new().write(true).open(arguments[4]).unwrap().write_at(&bytes, 0).unwrap();
            }
            // The image's etcd is asked for its version.
            (program, "--version") if program.ends_with("/etcd") => {
                stdout = "etcd Version: 3.5.16\n".to_owned()
            }
            ("e2fsck" | "resize2fs", _) | ("systemctl", "daemon-reload") => {}
            ("systemctl", "enable") => {
                assert!(self.path(&format!("/etc/systemd/system/{last}")).exists(), "{last} is not written");
                systemd.enabled.insert(last);
            }
            ("systemctl", "start" | "restart") => {
                systemd.active.insert(last);
            }
            ("systemctl", "is-active") => status = i32::from(!systemd.active.contains(&last)),
            ("systemctl", "show") => {
                let active = systemd.active.contains(&last);
                let state = if active { "active" } else { "inactive" };
                stdout = format!(
                    "ActiveState={state}\nActiveEnterTimestamp={}\n",
                    if active { "@99999999999" } else { "" }
                );
            }
            other => panic!("{other:?} is not known here"),
        }
        Ran { status: Some(status), stdout, stderr: String::new() }
    }
}

impl Commands for Machine {
    async fn run(&self, program: &str, arguments: &[&str]) -> AgentResult<Ran> {
        let dies = {
            let mut systemd = self.systemd.lock().unwrap();
            systemd.log.push(format!("{program} {}", arguments.join(" ")));
            match &mut systemd.life {
                None => None,
                Some((0, after)) => Some(*after),
                Some((left, _)) => {
                    *left -= 1;
                    None
                }
            }
        };
        if dies == Some(false) {
            self.death.notify_one();
            return std::future::pending().await;
        }
        let ran = self.effect(program, arguments);
        if dies == Some(true) {
            self.death.notify_one();
            return std::future::pending().await;
        }
        Ok(ran)
    }
}

const WITHOUT_ETCD: [Step; 10] = [
    Step::Account,
    Step::Volume,
    Step::FileSystem,
    Step::Software,
    Step::Credentials,
    Step::Record,
    Step::Files,
    Step::Units,
    Step::Again,
    Step::Hook,
];

#[tokio::test]
async fn p8_a_bootstrap_killed_anywhere_and_run_again_ends_the_same() {
    let account = Account::new().await;
    let folder = tempfile::tempdir().unwrap();
    let whole = Machine::new(&folder.path().join("whole"), &account);
    whole.go(&account, &WITHOUT_ETCD).await.unwrap();
    let expected = whole.state();
    let (log, formats) = {
        let systemd = whole.systemd.lock().unwrap();
        (systemd.log.clone(), systemd.formats)
    };
    assert!(log.len() > 10, "{log:?}");
    assert_eq!(formats, 1);
    for path in
        ["etc/etcd/pki/server-key.pem", "etc/systemd/system/etcd.service", "srv/admin/.ssh/authorized_keys"]
    {
        assert!(expected.contains_key(path), "{path} is not there: {expected:#?}");
    }

    // A second run changes nothing.
    whole.systemd.lock().unwrap().log.clear();
    whole.go(&account, &WITHOUT_ETCD).await.unwrap();
    assert_eq!(whole.state(), expected);
    let again = whole.systemd.lock().unwrap().log.clone();
    let moves =
        |line: &&String| line.starts_with("mkfs") || line.contains(" restart ") || line.contains("sysusers");
    assert_eq!(again.iter().filter(moves).count(), 0, "{again:?}");

    // Stopped between two steps.
    for upto in 0..WITHOUT_ETCD.len() {
        account.detach().await;
        let machine = Machine::new(&folder.path().join(format!("step-{upto}")), &account);
        machine.go(&account, &WITHOUT_ETCD[..upto]).await.unwrap();
        machine.go(&account, &WITHOUT_ETCD).await.unwrap();
        assert_eq!(machine.state(), expected, "stopped after {upto} steps");
    }
    // Killed at a program.
    for (at, line) in log.iter().enumerate() {
        for after in [false, true] {
            account.detach().await;
            let machine = Machine::new(&folder.path().join(format!("{at}-{after}")), &account);
            machine.systemd.lock().unwrap().life = Some((at, after));
            assert!(machine.dies(&account, &WITHOUT_ETCD).await, "it outlived {line}");
            machine.systemd.lock().unwrap().life = None;
            machine.go(&account, &WITHOUT_ETCD).await.unwrap();
            assert_eq!(machine.state(), expected, "killed at `{line}`, after: {after}");
        }
    }
}

#[tokio::test]
async fn p9_no_secret_reaches_a_command_line_or_what_is_told() {
    let account = Account::new().await;
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::new(folder.path(), &account);
    machine.go(&account, &WITHOUT_ETCD).await.unwrap();
    let log = machine.systemd.lock().unwrap().log.join("\n");
    assert!(!account.secrets.is_empty());
    let mut checked = 0;
    for line in account.secrets.iter().flat_map(|text| text.lines()).filter(|line| line.len() > 40) {
        assert!(!log.contains(line));
        checked += 1;
    }
    assert!(checked > 3, "nothing was checked");
    // Only the owner may read them in their place.
    let pki = machine.path("/etc/etcd/pki");
    assert_eq!(fs::metadata(&pki).unwrap().permissions().mode() & 0o777, 0o700);
    let above = fs::metadata(machine.path("/etc/etcd")).unwrap().permissions().mode();
    assert_eq!(above & 0o777, 0o755, "its owner is not root");
    let key = fs::metadata(pki.join("server-key.pem")).unwrap();
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
    if rustix::process::geteuid().is_root() {
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&key), 998);
    }
}

#[tokio::test]
async fn a_volume_with_anything_unknown_on_it_is_never_formatted_and_the_reason_is_told() {
    let account = Account::new().await;
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::new(folder.path(), &account);
    let mut somebodys = vec![0; 2 << 20];
    somebodys[4096] = 7;
    machine.file(&machine.device(&account), &somebodys);
    let failure = machine.bootstrap(&account).await.unwrap().run().await.unwrap_err();
    assert_eq!(failure.code, FailureCode::VolumeForeign, "{failure:?}");
    assert!(fs::read(machine.path(&machine.device(&account))).unwrap() == somebodys);
    assert_eq!(machine.systemd.lock().unwrap().formats, 0);

    let report = account.report().await;
    assert_eq!((report.state, report.step.as_deref()), (BootstrapState::GivenUp, Some("file-system")));
    assert_eq!(report.failure.unwrap().code, FailureCode::VolumeForeign.into());
    let asked = account.groups.received();
    let bodies: Vec<_> = asked.iter().map(|one| String::from_utf8_lossy(&one.body)).collect();
    assert!(bodies.last().unwrap().contains("LifecycleActionResult=ABANDON"), "{bodies:?}");
    assert!(!bodies.iter().any(|body| body.contains("CONTINUE")), "{bodies:?}");
}

#[tokio::test]
async fn a_node_waits_for_what_may_pass_with_heartbeats_and_gives_up_in_the_end() {
    let account = Account::new().await;
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::new(folder.path(), &account);
    // Everything starts except etcd itself.
    let failure = machine.bootstrap(&account).await.unwrap().run().await.unwrap_err();
    assert_eq!(failure.code, FailureCode::NodeUnhealthy, "{failure:?}");
    let asked = account.groups.received();
    let bodies: Vec<_> = asked.iter().map(|one| String::from_utf8_lossy(&one.body)).collect();
    assert!(bodies.iter().any(|body| body.contains("RecordLifecycleActionHeartbeat")), "{bodies:?}");
    assert_eq!(account.report().await.step.as_deref(), Some("healthy"));
}

#[tokio::test]
async fn a_member_takes_the_volume_of_its_stack_whatever_others_are_tagged() {
    let account = Account::new().await;
    account.make_volume().await;
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::new(folder.path(), &account);
    let waits = machine.go(&account, &[Step::Account, Step::Volume]).await.unwrap_err();
    assert!(waits.code == FailureCode::VolumeAmbiguous && waits.transient, "{waits:?}");
    assert!(waits.message.contains(&account.volume), "{waits:?}");
    let stack = ("aws:cloudformation:stack-name".to_owned(), format!("{}-etcd", account.node.cluster));
    let tags = account.volume_tags().into_iter().chain([stack]).collect();
    let own = account.moto.operator(REGION).create_volume(8, &tags).await;
    let waits = machine.go(&account, &[Step::Volume]).await.unwrap_err();
    assert!(waits.code == FailureCode::VolumeDevice && waits.message.contains(&own), "{waits:?}");
}

/// A machine that died while it formatted a volume is replaced, and the next machine can learn about that only from the volume.
#[tokio::test]
async fn a_volume_that_another_machine_began_to_format_is_formatted_and_a_whole_one_is_not() {
    let account = Account::new().await;
    let folder = tempfile::tempdir().unwrap();
    let first = Machine::new(&folder.path().join("first"), &account);
    let steps = [Step::Account, Step::Volume, Step::FileSystem];
    first.go(&account, &steps[..2]).await.unwrap();
    // Right before mkfs, which then leaves a partial file system.
    first.systemd.lock().unwrap().life = Some((1, false));
    assert!(first.dies(&account, &steps).await, "it lived");
    assert!(first.systemd.lock().unwrap().log.last().unwrap().starts_with("mkfs.ext4"));
    let disk = first.path(&first.device(&account));
    let mut half = fs::read(&disk).unwrap();
    half[4096..8192].fill(7);

    let second = Machine::new(&folder.path().join("second"), &account);
    second.file(&second.device(&account), &half);
    second.go(&account, &steps).await.unwrap();
    assert_eq!(second.systemd.lock().unwrap().formats, 1);
    let whole = fs::read(second.path(&second.device(&account))).unwrap();

    let third = Machine::new(&folder.path().join("third"), &account);
    third.file(&third.device(&account), &whole);
    third.go(&account, &steps).await.unwrap();
    assert_eq!(third.systemd.lock().unwrap().formats, 0);
    assert!(fs::read(third.path(&third.device(&account))).unwrap() == whole);
}

#[tokio::test]
async fn after_a_reboot_in_service_the_launch_hook_is_left_alone_and_nobody_is_given_up() {
    let mut account = Account::new().await;
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::new(folder.path(), &account);
    machine.go(&account, &WITHOUT_ETCD).await.unwrap();
    assert!(machine.systemd.lock().unwrap().enabled.contains("slipway-bootstrap.service"));
    assert!(
        !machine.systemd.lock().unwrap().active.contains("slipway-bootstrap.service"),
        "it runs beside the first"
    );
    let report = account.report().await;
    assert_eq!((report.state, report.served), (BootstrapState::Working, true), "said before the hook");
    let expected = machine.state();
    account.groups = Scripted::start(&[NO_LIFECYCLE_ACTION]).await;

    // A file is lost, and etcd does not start.
    fs::remove_file(machine.path("/etc/systemd/system/etcd.service")).unwrap();
    let failure = machine.bootstrap(&account).await.unwrap().run_after_reboot().await.unwrap_err();
    assert_eq!(failure.code, FailureCode::NodeUnhealthy, "{failure:?}");
    assert_eq!(machine.state(), expected);
    assert_eq!(account.asked_of_groups(0), ["RecordLifecycleActionHeartbeat"], "whether the hook waits");
    let report = account.report().await;
    assert_eq!((report.state, report.step.as_deref()), (BootstrapState::Working, Some("healthy")));
    assert!(report.served);

    // A permanent failure is reported, and the instance is not given up.
    machine.file(&machine.device(&account), vec![7; 2 << 20]);
    machine.systemd.lock().unwrap().active.clear();
    let failure = machine.bootstrap(&account).await.unwrap().run_after_reboot().await.unwrap_err();
    assert_eq!(failure.code, FailureCode::VolumeForeign, "{failure:?}");
    assert_eq!(account.asked_of_groups(1), ["RecordLifecycleActionHeartbeat"], "whether the hook waits");
    assert_eq!(account.report().await.state, BootstrapState::Working);
}

#[tokio::test]
async fn a_machine_that_rebooted_during_its_launch_goes_on_with_the_hook() {
    let account = Account::new().await;
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::new(folder.path(), &account);
    machine.go(&account, &WITHOUT_ETCD[..9]).await.unwrap();

    // The hook waits, and etcd does not come up: heartbeats, and in the end the group replaces the machine.
    let failure = machine.bootstrap(&account).await.unwrap().run_after_reboot().await.unwrap_err();
    assert_eq!(failure.code, FailureCode::NodeUnhealthy, "{failure:?}");
    let asked = account.asked_of_groups(0);
    let (last, heartbeats) = asked.split_last().unwrap();
    assert_eq!(*last, "LifecycleActionResult=ABANDON", "{asked:?}");
    assert!(heartbeats.len() > 1, "{asked:?}");
    assert!(heartbeats.iter().all(|one| *one == "RecordLifecycleActionHeartbeat"), "{asked:?}");
    let report = account.report().await;
    assert_eq!((report.state, report.served), (BootstrapState::GivenUp, false));
}

#[tokio::test]
async fn while_auto_scaling_is_away_a_rebooted_machine_sends_heartbeats_and_is_kept() {
    let mut account = Account::new().await;
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::new(folder.path(), &account);
    machine.go(&account, &WITHOUT_ETCD).await.unwrap();
    account.groups = Scripted::start(&[(503, "")]).await;
    let failure = machine.bootstrap(&account).await.unwrap().run_after_reboot().await.unwrap_err();
    assert_eq!(failure.code, FailureCode::NodeUnhealthy, "{failure:?}");
    let asked = account.asked_of_groups(0);
    assert!(asked.len() > 3 && asked.iter().all(|one| *one == "RecordLifecycleActionHeartbeat"), "{asked:?}");
    let report = account.report().await;
    assert_eq!((report.state, report.served), (BootstrapState::Working, true));
}

#[tokio::test]
async fn what_does_not_belong_together_is_refused_before_anything_is_touched() {
    let account = Account::new().await;
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::new(folder.path(), &account);
    let before = machine.state();
    machine.file(&format!("{HOME}/config.json"), format!("{} ", account.config));
    let failure = machine.bootstrap(&account).await.unwrap_err();
    assert!(failure.message.contains("SHA-256"), "{failure:?}");
    machine.file(&format!("{HOME}/config.json"), &account.config);
    assert_eq!(machine.state(), before);

    // Another role's credentials stay closed: KMS has another context for them.
    let other = NodeFile { role: "etcd-1".to_owned(), ..account.node.clone() };
    machine.file(&format!("{HOME}/node.json"), serde_json::to_vec(&other).unwrap());
    let failure = machine.bootstrap(&account).await.unwrap_err();
    assert!(failure.message.contains("node.json names another role or cluster"), "{failure:?}");
}
