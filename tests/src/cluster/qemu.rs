//! A virtual machine: its disk over the image, its console in a file, its volumes as NVMe disks that come and go by QMP.

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::process::Command;

use super::network;
use crate::process::Group;

const QEMU: &str = "qemu-system-x86_64";
/// Slots into which volumes are put.
const SLOTS: usize = 4;
/// How long KVM has to bring a kernel to its end.
const PROBE: Duration = Duration::from_secs(10);
/// How long a machine has to shut down before it is switched off; EC2 gives it some minutes.
const SHUTDOWN: Duration = Duration::from_secs(90);
const QMP: Duration = Duration::from_secs(20);

/// What machines run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// The processor's own.
    Kvm,
    /// Translation.
    Tcg,
}

impl Accelerator {
    /// What a guest really runs on here: where `/dev/kvm` opens, guests may hang all the same, so one is started that has a kernel and
    /// nothing to mount, which ends by itself.
    pub async fn probe(image: &Path) -> Self {
        if !Path::new("/dev/kvm").exists() {
            return Self::Tcg;
        }
        let kernel = image.join("vmlinuz");
        let mut command = Command::new(QEMU);
        command
            .args(["-machine", "q35", "-accel", "kvm", "-cpu", "host", "-m", "256", "-nic", "none"])
            .args([
                "-display",
                "none",
                "-no-reboot",
                "-serial",
                "stdio",
                "-append",
                "console=ttyS0 panic=-1",
                "-kernel",
            ])
            .arg(kernel)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        match tokio::time::timeout(PROBE, command.output()).await {
            Ok(Ok(output)) if String::from_utf8_lossy(&output.stdout).contains("Kernel panic") => Self::Kvm,
            Ok(Ok(_) | Err(_)) | Err(_) => Self::Tcg,
        }
    }

    fn arguments(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            // As much translated code as QEMU keeps at most, in MiB: what does not fit is all thrown away, and a controller with the default of
            // 1,024 began anew sixteen times in half an hour. The processor is what Debian needs and no more: Go takes AVX where it is offered, and translated it is a third slower (32 MiB of SHA-256 in 1.67 s
            // by `max`, in 1.25 s by this).
            Self::Tcg => ["-accel", "tcg,thread=multi,tb-size=2047", "-cpu", "Nehalem"],
        }
    }

    /// What the output calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "KVM",
            Self::Tcg => "TCG, without KVM",
        }
    }
}

/// How a machine is to be.
#[derive(Debug, Clone)]
pub struct Hardware<'a> {
    /// `i-…`.
    pub id: &'a str,
    /// What it runs on.
    pub accelerator: Accelerator,
    /// The folder of the image.
    pub image: &'a Path,
    /// Its own folder, which is made.
    pub folder: PathBuf,
    /// Its address.
    pub address: Ipv4Addr,
    /// Of its root volume.
    pub disk_gib: u64,
    /// Of its memory.
    pub memory_mib: u64,
    /// What it says of itself.
    pub instance_type: &'a str,
}

/// How QEMU is told about a machine. Clones tell the same.
#[derive(Debug, Clone)]
pub struct Handle {
    socket: PathBuf,
}

/// A machine that runs; it is switched off when dropped.
#[derive(Debug)]
pub struct Running {
    process: Group,
    handle: Handle,
    tap: String,
}

impl Running {
    /// Switches a machine on.
    ///
    /// # Errors
    /// If QEMU or its disk cannot be had.
    pub async fn start(hardware: &Hardware<'_>) -> io::Result<Self> {
        let Hardware { folder, image, address, .. } = hardware;
        std::fs::create_dir_all(folder)?;
        let disk = folder.join("root.qcow2");
        if !disk.exists() {
            let base = image.join("root.ext4");
            let size = format!("{}G", hardware.disk_gib);
            run(Command::new("qemu-img")
                .args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b"])
                .arg(base)
                .arg(&disk)
                .arg(size))
            .await?;
        }
        let [_, _, c, d] = address.octets();
        let tap = format!("t{c}-{d}");
        network::plug(&tap).await?;
        let handle = Handle { socket: folder.join("qmp") };
        let uuid = uuid(hardware.id);
        let mut command = Command::new(QEMU);
        command
            .args(["-nodefaults", "-machine", "q35", "-display", "none", "-smp", "2"])
            .args(hardware.accelerator.arguments())
            .args(["-m", &hardware.memory_mib.to_string()])
            .arg("-kernel")
            .arg(image.join("vmlinuz"))
            .arg("-initrd")
            .arg(image.join("initrd"))
            .args([
                "-append",
                "root=/dev/vda console=ttyS0 net.ifnames=0 mitigations=off quiet systemd.show_status=false",
            ])
            .args(["-drive", &format!("file={},if=virtio,cache=unsafe,discard=unmap", disk.display())])
            .args(["-netdev", &format!("tap,id=net,ifname={tap},script=no,downscript=no")])
            .args(["-device", &format!("virtio-net-pci,netdev=net,mac={}", network::mac(*address))])
            .args(["-device", "virtio-rng-pci"])
            .args(["-serial", &format!("file:{}", folder.join("console").display())])
            .args(["-qmp", &format!("unix:{},server=on,wait=off", handle.socket.display())])
            // By these cloud-init knows EC2 (`identify_aws` in its DataSourceEc2.py: a UUID that begins with "ec2", and the same as the
            // serial number).
            .args([
                "-smbios",
                &format!(
                    "type=1,manufacturer=Amazon EC2,product={},uuid={uuid},serial={uuid}",
                    hardware.instance_type
                ),
            ]);
        for slot in 0..SLOTS {
            command.args([
                "-device",
                &format!("pcie-root-port,id=slot{slot},chassis={},slot={}", slot + 1, slot + 1),
            ]);
        }
        Ok(Self { process: Group::spawn(&mut command)?, handle, tap })
    }

    /// How it is told things.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Its end, in words.
    pub async fn ended(&mut self) -> String {
        let ended = self.process.ended().await;
        let Some(mut errors) = self.process.stderr() else { return ended };
        let mut said = String::new();
        let _ = tokio::io::AsyncReadExt::read_to_string(&mut errors, &mut said).await;
        format!("{ended} {said}").trim().to_owned()
    }

    /// Presses the power button, and switches the machine off if that takes too long.
    pub async fn shut_down(mut self) {
        if self.handle.execute("system_powerdown", json!({})).await.is_ok() {
            let _ = tokio::time::timeout(SHUTDOWN, self.process.ended()).await;
        }
        self.cut_power().await;
    }

    /// Switches the machine off.
    pub async fn cut_power(mut self) {
        self.process.kill();
        self.process.ended().await;
        // It is gone with its namespace, too.
        let _ = network::unplug(&self.tap).await;
    }
}

impl Handle {
    /// Puts a volume's file into the slot as an NVMe disk whose serial number is `serial`.
    ///
    /// # Errors
    /// If QEMU refuses.
    pub async fn attach(&self, file: &Path, serial: &str, slot: usize) -> io::Result<()> {
        if slot >= SLOTS {
            return Err(io::Error::other("there is no slot left for a volume"));
        }
        let node = format!("volume-{serial}");
        let block = json!({
            "driver": "raw", "node-name": node, "discard": "unmap",
            "file": { "driver": "file", "filename": file, "cache": { "direct": false, "no-flush": true } },
        });
        self.execute("blockdev-add", block).await?;
        let device = json!({ "driver": "nvme", "id": serial, "serial": serial, "drive": node, "bus": format!("slot{slot}") });
        self.execute("device_add", device).await.map(drop)
    }

    /// Resets the machine, as a reboot by EC2 does where the system does not listen.
    ///
    /// # Errors
    /// If QEMU refuses.
    pub async fn reset(&self) -> io::Result<()> {
        self.execute("system_reset", json!({})).await.map(drop)
    }

    /// Ends it at once, as if its power were cut.
    ///
    /// # Errors
    /// If QEMU refuses.
    pub async fn cut_power(&self) -> io::Result<()> {
        self.execute("quit", json!({})).await.map(drop)
    }

    async fn execute(&self, command: &str, arguments: Value) -> io::Result<Value> {
        let told = tokio::time::timeout(QMP, self.converse(command, arguments)).await;
        told.map_err(|_| io::Error::other(format!("QEMU does not answer {command}")))?
    }

    async fn converse(&self, command: &str, arguments: Value) -> io::Result<Value> {
        let (reader, mut writer) = UnixStream::connect(&self.socket).await?.into_split();
        let mut lines = BufReader::new(reader).lines();
        // The greeting.
        lines.next_line().await?;
        for (name, arguments) in [("qmp_capabilities", json!({})), (command, arguments)] {
            let line = json!({ "execute": name, "arguments": arguments }).to_string() + "\n";
            writer.write_all(line.as_bytes()).await?;
            loop {
                let line = lines.next_line().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
                let told: Value = serde_json::from_str(&line)?;
                if let Some(error) = told.get("error") {
                    return Err(io::Error::other(format!("QEMU refuses {name}: {}", error["desc"])));
                }
                if let Some(answer) = told.get("return") {
                    if name == command {
                        return Ok(answer.clone());
                    }
                    break;
                }
                // What else it says are events.
            }
        }
        Ok(Value::Null)
    }
}

/// As EC2 makes one of an instance's id, or nearly.
fn uuid(id: &str) -> String {
    let hex: String =
        id.chars().filter(char::is_ascii_hexdigit).chain(std::iter::repeat('0')).take(29).collect();
    format!("ec2{}-{}-4{}-8{}-{}", &hex[..5], &hex[5..9], &hex[9..12], &hex[12..15], &hex[15..27])
}

async fn run(command: &mut Command) -> io::Result<()> {
    let output = command.stdin(Stdio::null()).output().await?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
}
