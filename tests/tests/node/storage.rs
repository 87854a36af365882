//! A worker's disks. The real programs make and check file systems: on files in a folder, with a recorder for systemd and `mdadm`, where
//! the agent is killed at every program and started again; and as root on loop devices, mounted as the units say.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use slipway_core::node::Machine;
use slipway_node::aws::{Aws, Endpoints, Retry};
use slipway_node::failure::{AgentError, AgentResult, FailureCode};
use slipway_node::machine::apply::Host;
use slipway_node::machine::commands::{Commands, Ran, System};
use slipway_node::storage::Storage;
use slipway_tests::imds::Imds;
use slipway_tests::tools;
use tokio::sync::Notify;

use crate::scripted::Scripted;

const SIZE: u64 = 16 << 20;
const UNITS: &str = "etc/systemd/system";
/// EC2's answer: three volumes of this instance, one of which is also attached to another instance.
const ATTACHED: &str = "<DescribeVolumesResponse><volumeSet>\
    <item><volumeId>vol-0f</volumeId><attachmentSet>\
      <item><volumeId>vol-0f</volumeId><instanceId>i-0other</instanceId><device>/dev/sdh</device></item>\
      <item><volumeId>vol-0f</volumeId><instanceId>i-0own</instanceId><device>/dev/sdf</device></item></attachmentSet></item>\
    <item><volumeId>vol-0a</volumeId><attachmentSet>\
      <item><volumeId>vol-0a</volumeId><instanceId>i-0own</instanceId><device>/dev/xvda</device></item></attachmentSet></item>\
    <item><volumeId>vol-0d</volumeId><attachmentSet>\
      <item><volumeId>vol-0d</volumeId><instanceId>i-0own</instanceId><device>/dev/xvdg</device></item></attachmentSet></item>\
    <item><volumeId>vol-0e</volumeId><attachmentSet>\
      <item><volumeId>vol-0e</volumeId><instanceId>i-0own</instanceId><device>/dev/xvdh</device></item></attachmentSet></item>\
    </volumeSet></DescribeVolumesResponse>";

fn volume(id: &str) -> String {
    format!("nvme-Amazon_Elastic_Block_Store_{id}")
}

fn own_disk(serial: &str) -> String {
    format!("nvme-Amazon_EC2_NVMe_Instance_Storage_{serial}")
}

fn all_of_it() -> Machine {
    serde_json::from_value(json!({
        "mounts": [
            { "devices": ["/dev/xvdf"], "path": "/data", "fileSystem": "ext4", "createTmp": true },
            { "devices": ["/dev/xvdg", "/dev/xvdh"], "path": "/data/array", "fileSystem": "ext4" },
        ],
        "instanceStore": { "raid0": true, "fileSystem": "ext4", "holds": ["/var/lib/containerd", "/var/lib/kubelet"] },
    }))
    .unwrap()
}

/// EC2 and the metadata service.
struct Cloud {
    ec2: Scripted,
    imds: Imds,
}

impl Cloud {
    async fn new() -> Self {
        let imds = Imds::start("i-0own", "eu-west-1a", "10.0.0.5", "ASIANODE").await.unwrap();
        Self { ec2: Scripted::start(&[(200, ATTACHED)]).await, imds }
    }

    fn aws(&self) -> Aws {
        let variables = BTreeMap::from([
            ("AWS_ENDPOINT_URL", self.ec2.url.as_str()),
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", self.imds.url()),
        ]);
        let endpoints = Endpoints::read(|name| variables.get(name).map(|&value| value.to_owned()));
        let retry = Retry { tries: 1, pause: Duration::from_millis(1) };
        Aws::new(&endpoints, "eu-west-1").unwrap().with_retry(retry)
    }
}

/// A machine in a folder.
#[derive(Debug, Clone)]
struct Worker {
    root: PathBuf,
    state: Arc<Mutex<State>>,
    death: Arc<Notify>,
    without_mdadm: bool,
}

#[derive(Debug, Default)]
struct State {
    log: Vec<String>,
    active: BTreeSet<String>,
    life: Option<(usize, bool)>,
}

impl Worker {
    fn new(root: &Path) -> Self {
        let worker = Self {
            root: root.to_owned(),
            state: Arc::default(),
            death: Arc::default(),
            without_mdadm: false,
        };
        for folder in ["dev/disk/by-id", "sys/block", "run", UNITS, "var/lib/slipway"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for (number, id) in ["vol0a", "vol0f", "vol0d", "vol0e"].into_iter().enumerate() {
            worker.plug(&format!("nvme{number}n1"), &volume(id));
        }
        worker.plug("nvme4n1", &own_disk("AWS1"));
        worker.plug("nvme5n1", &own_disk("AWS2"));
        // Newer versions of udev add this link, too.
        symlink("../../nvme5n1", root.join("dev/disk/by-id").join(own_disk("AWS2_1"))).unwrap();
        worker
    }

    /// An empty disk.
    fn plug(&self, name: &str, link: &str) {
        File::create(self.root.join("dev").join(name)).unwrap().set_len(SIZE).unwrap();
        let _ = fs::remove_file(self.root.join("dev/disk/by-id").join(link));
        symlink(format!("../../{name}"), self.root.join("dev/disk/by-id").join(link)).unwrap();
    }

    fn disk(&self, name: &str) -> Vec<u8> {
        fs::read(self.root.join("dev").join(name)).unwrap()
    }

    fn unit(&self, name: &str) -> String {
        fs::read_to_string(self.root.join(UNITS).join(name)).unwrap()
    }

    fn leads_to(&self, link: &str) -> Option<String> {
        let target = fs::read_link(self.root.join("run/slipway/disks").join(link)).ok()?;
        Some(format!("/{}", target.strip_prefix(&self.root).unwrap().display()))
    }

    /// How often programs with these command lines ran since the last call.
    fn ran(&self, wanted: &[&str]) -> Vec<usize> {
        let log = std::mem::take(&mut self.state.lock().unwrap().log);
        wanted.iter().map(|words| log.iter().filter(|line| line.starts_with(words)).count()).collect()
    }

    /// Removes what a reboot removes.
    fn reboot(&self) {
        let _ = fs::remove_dir_all(self.root.join("run"));
        let _ = fs::remove_dir_all(self.root.join("sys/block"));
        fs::create_dir_all(self.root.join("sys/block")).unwrap();
        self.state.lock().unwrap().active.clear();
    }

    async fn go(&self, cloud: &Cloud, machine: &Machine) -> AgentResult<()> {
        let (host, aws) = (Host { root: self.root.clone(), commands: self.clone() }, cloud.aws());
        let storage = Storage { host: &host, machine, aws: &aws };
        storage.ensure_file_systems().await?;
        storage.mount().await
    }

    /// `mdadm` for files: what it writes to its disks, and what the kernel shows then.
    fn mdadm(&self, arguments: &[&str]) {
        let member = |path: &&&str| path.contains("/dev/disk/");
        let members: Vec<&str> = arguments.iter().filter(member).copied().collect();
        let name =
            arguments.get(1).map(|place| place.rsplit('/').next().unwrap().to_owned()).unwrap_or_default();
        match arguments[0] {
            "--create" => {
                for path in &members {
                    let mut head = [0; 4096];
                    head[..4].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9]);
                    let set = format!("any:{name}");
                    head[32..32 + set.len()].copy_from_slice(set.as_bytes());
                    File::options().write(true).open(path).unwrap().write_at(&head, 4096).unwrap();
                }
                // Data of an earlier array of these disks is not found any more.
                File::create(self.root.join(format!("dev/{name}"))).unwrap().set_len(2 * SIZE).unwrap();
                self.run_array(&name, &members);
            }
            "--assemble" => self.run_array(&name, &members),
            "--stop" => {
                let block = self.root.join("sys/block").join(name.trim_start_matches("/dev/"));
                fs::remove_dir_all(block).unwrap();
            }
            _ => {}
        }
    }

    fn run_array(&self, name: &str, members: &[&str]) {
        // Not under its own name, like udev for an array of another host.
        let array = if name.ends_with("temp") { "md127" } else { "md126" };
        let block = self.root.join("sys/block").join(array);
        fs::create_dir_all(block.join("slaves")).unwrap();
        fs::create_dir_all(block.join("md")).unwrap();
        fs::write(block.join("md/array_state"), "clean\n").unwrap();
        for member in members {
            let disk = fs::canonicalize(member).unwrap();
            fs::write(block.join("slaves").join(disk.file_name().unwrap()), "").unwrap();
        }
        let _ = fs::remove_file(self.root.join("dev").join(array));
        symlink(name, self.root.join("dev").join(array)).unwrap();
    }

    async fn effect(&self, program: &str, arguments: &[&str]) -> AgentResult<Ran> {
        let mut ran = Ran { status: Some(0), stdout: String::new(), stderr: String::new() };
        let last = arguments.last().copied().unwrap_or_default().to_owned();
        match (program, arguments[0]) {
            ("mdadm", _) if self.without_mdadm => {
                return Err(AgentError::permanent(
                    FailureCode::CommandAbsent,
                    "no mdadm",
                    "take another image",
                ));
            }
            ("mdadm", _) => self.mdadm(arguments),
            ("mkfs.ext4" | "e2fsck" | "resize2fs", _) => return System.run(program, arguments).await,
            ("systemctl", "is-active") => {
                ran.status = Some(i32::from(!self.state.lock().unwrap().active.contains(&last)));
            }
            ("systemctl", "show") => ran.stdout = "ActiveState=inactive\n".to_owned(),
            ("systemctl", "start") => {
                self.state.lock().unwrap().active.insert(last);
            }
            ("systemctl", "enable" | "daemon-reload") | ("udevadm", _) => {}
            other => panic!("{other:?} is not known here"),
        }
        Ok(ran)
    }
}

impl Commands for Worker {
    async fn run(&self, program: &str, arguments: &[&str]) -> AgentResult<Ran> {
        let dies = {
            let mut state = self.state.lock().unwrap();
            state.log.push(format!("{program} {}", arguments.join(" ")));
            match &mut state.life {
                None => None,
                Some((0, after)) => Some(*after),
                Some((left, _)) => {
                    *left -= 1;
                    None
                }
            }
        };
        if dies != Some(false) {
            let ran = self.effect(program, arguments).await;
            if dies.is_none() {
                return ran;
            }
        }
        self.death.notify_one();
        std::future::pending().await
    }
}

const MAKING: [&str; 3] = ["mkfs.ext4", "mdadm --create", "mdadm --assemble"];

#[tokio::test]
async fn a_workers_disks_are_formatted_once_and_an_instance_store_again_when_it_is_empty() {
    let cloud = Cloud::new().await;
    let folder = tempfile::tempdir().unwrap();
    let (worker, machine) = (Worker::new(folder.path()), all_of_it());
    worker.go(&cloud, &machine).await.unwrap();
    assert_eq!(worker.ran(&MAKING), [3, 2, 0]);
    assert_eq!(worker.leads_to("data-f").unwrap(), format!("/dev/disk/by-id/{}", volume("vol0f")));
    assert_eq!(worker.leads_to("data-g").unwrap(), "/dev/md126");
    assert_eq!(worker.leads_to("temp").unwrap(), "/dev/md127");
    let tmp = fs::metadata(worker.root.join("data/tmp")).unwrap();
    assert_eq!(tmp.permissions().mode() & 0o7777, 0o1777);
    let mount = worker.unit("var-lib-kubelet.mount");
    assert!(
        mount.contains("What=/var/lib/slipway/store/var-lib-kubelet\nWhere=/var/lib/kubelet\n"),
        "{mount}"
    );
    for of in ["containerd", "kubelet"] {
        let wait = worker.unit(&format!("{of}.service.d/50-slipway-storage.conf"));
        for path in
            ["/data", "/data/array", "/var/lib/slipway/store", "/var/lib/containerd", "/var/lib/kubelet"]
        {
            assert!(
                wait.contains("RequiresMountsFor=") && wait.split([' ', '=', '\n']).any(|word| word == path),
                "{wait}"
            );
        }
    }
    assert_eq!(cloud.ec2.received().len(), 1);
    assert!(worker.disk("nvme0n1").iter().all(|byte| *byte == 0), "the root's volume was touched");

    // A second run on the same machine, and one after a reboot, when arrays are not running: everything is found unchanged, and EC2 is not
    // called.
    let data = worker.disk("nvme1n1");
    worker.go(&cloud, &machine).await.unwrap();
    assert_eq!(worker.ran(&MAKING), [0, 0, 0]);
    worker.reboot();
    worker.go(&cloud, &machine).await.unwrap();
    assert_eq!(worker.ran(&MAKING), [0, 0, 2]);
    assert_eq!(worker.leads_to("temp").unwrap(), "/dev/md127");
    assert_eq!(cloud.ec2.received().len(), 1);

    // Stopped and started: the machine's own disks are new and empty.
    worker.reboot();
    for (name, serial) in [("nvme4n1", "AWS1"), ("nvme5n1", "AWS2"), ("nvme5n1", "AWS2_1")] {
        fs::remove_file(worker.root.join("dev/disk/by-id").join(own_disk(serial))).unwrap();
        let _ = fs::remove_file(worker.root.join("dev").join(name));
    }
    worker.plug("nvme6n1", &own_disk("AWS8"));
    worker.plug("nvme7n1", &own_disk("AWS9"));
    worker.go(&cloud, &machine).await.unwrap();
    assert_eq!(worker.ran(&MAKING), [1, 1, 1]);
    // For scratch data, half an array is worthless and is made again; for other data, a person has to decide.
    worker.reboot();
    worker.plug("nvme7n1", &own_disk("AWS9"));
    worker.go(&cloud, &machine).await.unwrap();
    assert_eq!(worker.ran(&MAKING), [1, 1, 1]);
    worker.reboot();
    worker.plug("nvme3n1", &volume("vol0e"));
    let failure = worker.go(&cloud, &machine).await.unwrap_err();
    assert_eq!((failure.code, failure.transient), (FailureCode::VolumeArray, false));
    assert_eq!(worker.ran(&MAKING), [0, 0, 0]);
    assert!(worker.disk("nvme3n1").iter().all(|byte| *byte == 0));
    // Nothing changed on the volume except the time of its last check.
    assert!(worker.disk("nvme1n1")[4096..] == data[4096..], "a volume changed");
}

#[tokio::test]
async fn a_disk_with_anything_else_on_it_and_an_array_without_mdadm_are_refused_with_nothing_written() {
    let cloud = Cloud::new().await;
    let folder = tempfile::tempdir().unwrap();
    let worker = Worker { without_mdadm: true, ..Worker::new(folder.path()) };
    let failure = worker.go(&cloud, &all_of_it()).await.unwrap_err();
    assert_eq!((failure.code, failure.transient), (FailureCode::CommandAbsent, false));
    for name in ["nvme2n1", "nvme3n1", "nvme4n1", "nvme5n1"] {
        assert!(worker.disk(name).iter().all(|byte| *byte == 0), "{name}");
    }
    let worker = Worker { without_mdadm: false, ..worker };
    for (disk, at) in [("nvme2n1", 0), ("nvme3n1", SIZE - 1), ("nvme5n1", 8192)] {
        let whole = worker.disk(disk);
        File::options()
            .write(true)
            .open(worker.root.join("dev").join(disk))
            .unwrap()
            .write_at(b"x", at)
            .unwrap();
        let before = worker.disk(disk);
        let failure = worker.go(&cloud, &all_of_it()).await.unwrap_err();
        assert_eq!((failure.code, failure.transient), (FailureCode::VolumeForeign, false), "{disk}");
        assert!(worker.disk(disk) == before, "{disk}");
        fs::write(worker.root.join("dev").join(disk), whole).unwrap();
    }
    worker.go(&cloud, &all_of_it()).await.unwrap();

    // A volume that is not attached yet may still come, and so may the machine's own disks.
    let none = tempfile::tempdir().unwrap();
    let empty = Worker::new(none.path());
    for entry in fs::read_dir(none.path().join("dev/disk/by-id")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let failure = empty.go(&cloud, &all_of_it()).await.unwrap_err();
    assert_eq!((failure.code, failure.transient), (FailureCode::VolumeAbsent, true));
    let store = Machine { mounts: Vec::new(), ..all_of_it() };
    let failure = empty.go(&cloud, &store).await.unwrap_err();
    assert_eq!((failure.code, failure.transient), (FailureCode::StorageAbsent, true));
}

#[tokio::test]
async fn p8_disks_whose_preparation_is_killed_anywhere_end_the_same() {
    let cloud = Cloud::new().await;
    let folder = tempfile::tempdir().unwrap();
    let whole = Worker::new(&folder.path().join("whole"));
    let machine = all_of_it();
    whole.go(&cloud, &machine).await.unwrap();
    let log = whole.state.lock().unwrap().log.clone();
    let expected =
        (whole.leads_to("data-g"), whole.leads_to("temp"), whole.state.lock().unwrap().active.clone());
    assert!(log.len() > 20, "{log:?}");
    let heart = log
        .iter()
        .enumerate()
        .filter(|(_, line)| !line.starts_with("systemctl") && !line.starts_with("udevadm"));
    for (at, line) in heart {
        for after in [false, true] {
            let worker = Worker::new(&folder.path().join(format!("{at}-{after}")));
            worker.state.lock().unwrap().life = Some((at, after));
            let death = async {
                tokio::select! { _ = worker.go(&cloud, &machine) => false, () = worker.death.notified() => true }
            };
            assert!(death.await, "it outlived {line}");
            worker.state.lock().unwrap().life = None;
            // Killed, or after a power failure.
            worker.reboot();
            worker
                .go(&cloud, &machine)
                .await
                .unwrap_or_else(|failure| panic!("killed at `{line}`: {failure:?}"));
            let found = (
                worker.leads_to("data-g"),
                worker.leads_to("temp"),
                worker.state.lock().unwrap().active.clone(),
            );
            assert_eq!(found, expected, "killed at `{line}`, after: {after}");
        }
    }
}

/// Loop devices, mounted below a root as the units say; dropping this value removes them.
#[derive(Debug, Clone)]
struct Real {
    root: PathBuf,
    active: Arc<Mutex<Vec<String>>>,
}

impl Real {
    fn run(program: &str, arguments: &[&str]) -> String {
        let output = Command::new(program).args(arguments).output().unwrap();
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn plug(&self, file: &str, link: &str) {
        let path = self.root.join(file);
        File::create(&path).unwrap().set_len(384 << 20).unwrap();
        let device = Self::run("losetup", &["--find", "--show", path.to_str().unwrap()]);
        let link = self.root.join("dev/disk/by-id").join(link);
        let _ = fs::remove_file(&link);
        symlink(device, link).unwrap();
    }

    /// Starts a unit as systemd does.
    fn start(&self, name: &str) {
        if self.active.lock().unwrap().iter().any(|active| active == name) {
            return;
        }
        let text = fs::read_to_string(self.root.join(UNITS).join(name)).unwrap();
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        let below = |path: &str| self.root.join(path.trim_start_matches('/')).display().to_string();
        if name.ends_with(".mount") {
            let (what, place) = (below(value("What=")), below(value("Where=")));
            fs::create_dir_all(&place).unwrap();
            Self::run("mount", &["-t", value("Type="), "-o", value("Options="), &what, &place]);
        } else if let Some(folders) = value("ExecStart=").strip_prefix("mkdir -p ") {
            folders.split(' ').for_each(|folder| fs::create_dir_all(below(folder)).unwrap());
        }
        self.active.lock().unwrap().push(name.to_owned());
    }

    fn stop(&self) {
        let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let points = text
            .lines()
            .filter_map(|line| line.split(' ').nth(4))
            .filter(|point| Path::new(point).starts_with(&self.root));
        for point in points.collect::<Vec<_>>().into_iter().rev() {
            let _ = Command::new("umount").arg(point).status();
        }
        self.active.lock().unwrap().clear();
        let _ = fs::remove_dir_all(self.root.join("run"));
    }

    async fn go(&self, cloud: &Cloud, machine: &Machine) {
        let (host, aws) = (Host { root: self.root.clone(), commands: self.clone() }, cloud.aws());
        let storage = Storage { host: &host, machine, aws: &aws };
        storage.ensure_file_systems().await.unwrap();
        storage.mount().await.unwrap();
    }
}

impl Commands for Real {
    async fn run(&self, program: &str, arguments: &[&str]) -> AgentResult<Ran> {
        let mut ran = Ran { status: Some(0), stdout: String::new(), stderr: String::new() };
        match (program, arguments[0]) {
            ("systemctl", "is-active") => {
                let active =
                    self.active.lock().unwrap().iter().any(|name| Some(&name.as_str()) == arguments.last());
                ran.status = Some(i32::from(!active));
            }
            ("systemctl", "show") => ran.stdout = "ActiveState=inactive\n".to_owned(),
            ("systemctl", "start") => self.start(arguments.last().unwrap()),
            ("systemctl" | "udevadm", _) => {}
            _ => return System.run(program, arguments).await,
        }
        Ok(ran)
    }
}

struct Gone(Real);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.stop();
        for line in Real::run("losetup", &["--list", "--noheadings", "--output", "NAME,BACK-FILE"]).lines() {
            if let Some((device, file)) = line.split_once(' ')
                && Path::new(file.trim()).starts_with(&self.0.root)
            {
                let _ = Command::new("losetup").args(["--detach", device]).status();
            }
        }
    }
}

#[tokio::test]
async fn what_pods_wrote_is_on_the_volume_after_a_reboot_and_off_the_instance_store_after_a_stop() {
    let has = |program: &str| {
        Command::new(program).arg("--version").output().is_ok()
            || Command::new(program).arg("-V").output().is_ok()
    };
    if !rustix::process::geteuid().is_root() || !has("losetup") || !Path::new("/dev/loop-control").exists() {
        tools::not_tested(
            "a worker's disks as loop devices, formatted and mounted: that needs root and losetup",
        );
        return;
    }
    let kinds = if has("mkfs.xfs") { vec!["ext4", "xfs"] } else { vec!["ext4"] };
    if kinds.len() == 1 {
        tools::not_tested("XFS on a worker's disks: there is no mkfs.xfs (apt-get install xfsprogs)");
    }
    let cloud = Cloud::new().await;
    for kind in kinds {
        let folder = tempfile::tempdir().unwrap();
        let real = Real { root: folder.path().to_owned(), active: Arc::default() };
        let _gone = Gone(real.clone());
        for folder in ["dev/disk/by-id", "var/lib/slipway", UNITS] {
            fs::create_dir_all(real.root.join(folder)).unwrap();
        }
        real.plug("volume", &volume("vol0f"));
        real.plug("store", &own_disk("AWS1"));
        let machine: Machine = serde_json::from_value(json!({
            "mounts": [{ "devices": ["/dev/xvdf"], "path": "/data", "fileSystem": kind, "createTmp": true }],
            "instanceStore": { "raid0": true, "fileSystem": kind, "holds": ["/var/lib/containerd", "/var/lib/kubelet"] },
        }))
        .unwrap();
        real.go(&cloud, &machine).await;
        let (kept, lost) = (real.root.join("data/tmp/kept"), real.root.join("var/lib/kubelet/lost"));
        fs::write(&kept, "kept").unwrap();
        fs::write(&lost, "lost").unwrap();
        assert!(
            fs::read(real.root.join("var/lib/slipway/store/var-lib-kubelet/lost")).is_ok(),
            "it lies elsewhere"
        );

        real.stop();
        assert!(!kept.exists() && !lost.exists(), "{kind}: nothing was mounted");
        real.go(&cloud, &machine).await;
        assert!(kept.exists() && lost.exists(), "{kind}: a reboot lost something");

        real.stop();
        fs::remove_file(real.root.join("dev/disk/by-id").join(own_disk("AWS1"))).unwrap();
        real.plug("store-after", &own_disk("AWS7"));
        real.go(&cloud, &machine).await;
        assert!(kept.exists() && !lost.exists(), "{kind}: after a stop");
        fs::write(&lost, "again").unwrap();
    }
}
