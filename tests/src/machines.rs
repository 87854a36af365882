//! Machines: systemd-nspawn on overlays of one Debian root, in a network of their own, with AWS' names around them.
//!
//! `make test-machines` runs the test's process in network, mount and process namespaces of its own, so that whatever is started here
//! ends with it and nothing of the host is touched. In there are a bridge that plays the VPC, `tests/machines/cloud.py` (TLS under
//! AWS' names, metadata, DNS), moto behind it, and for each machine a network namespace, an overlay and a disk.
#![allow(clippy::missing_panics_doc, clippy::print_stderr, reason = "a test's room may panic")]

mod shell;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use shell::{put, run};
use slipway_core::digest::sha256_hex;
use slipway_core::keys;
use slipway_core::node::{BootstrapReport, BootstrapState, EtcdConfig};
use slipway_core::role::Role;
use slipway_credentials::manifest;
use slipway_crypto::AwsLc;
use slipway_ports::{Context, Crypto as _, DataKey, Secret};

use crate::client::{ACCOUNT, Client, machine_arn};
use crate::moto::Moto;
use crate::tools;
use crate::workshop::{Rendered, Workshop, example};

/// The asset bucket of the workshop.
const BUCKET: &str = "assets";
/// As in a VPC: the router is the first address, the resolver the second.
const ROUTER: &str = "10.0.0.1";
const RESOLVER: &str = "10.0.0.2";
/// One in each private subnet of the example.
const ADDRESSES: [&str; 3] = ["10.0.32.10", "10.0.64.10", "10.0.96.10"];
/// How long a settled node may take to tell so.
const TELLING: Duration = Duration::from_secs(10);
/// What is expected where nothing but the host could be at fault.
const FINE: &str = "the host does as it is asked";
const VARIABLE: &str = "SLIPWAY_MACHINES";

/// Whether machines can be booted in this process; says it loudly if not.
#[must_use]
pub fn here() -> bool {
    // The namespaces are made around the whole process.
    let here = std::env::var_os(VARIABLE).is_some();
    if !here {
        tools::not_tested("machines that boot: run `make test-machines`, as root");
    }
    here
}

/// A cluster's etcd members as machines.
#[derive(Debug)]
pub struct Rig {
    folder: tempfile::TempDir,
    base: PathBuf,
    moto: Moto,
    operator: Client,
    workshop: Workshop,
    rendered: Rendered,
    _cloud: Child,
    machines: Vec<Machine>,
    secrets: Vec<String>,
}

#[derive(Debug)]
struct Machine {
    role: Role,
    config: EtcdConfig,
    userdata: String,
    volume: String,
    disk: Disk,
    instance: String,
    process: Option<Child>,
    boots: usize,
}

/// A loop device that is gone when nobody has it open any more.
#[derive(Debug)]
struct Disk {
    path: String,
    _held: File,
}

impl Rig {
    /// Renders the production example, publishes what its nodes take, and lays the network. No machine runs yet.
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().expect(FINE);
        let base = PathBuf::from(run("tests/machines/rootfs.sh", &[]).trim());
        for arguments in [
            "link set lo up",
            "link add vpc type bridge",
            "link set vpc up",
            "addr add 10.0.0.1/16 dev vpc",
            "addr add 10.0.0.2/16 dev vpc",
            "addr add 169.254.169.254/32 dev vpc",
        ] {
            run("ip", &arguments.split(' ').collect::<Vec<_>>());
        }
        fs::create_dir_all("/run/netns").expect(FINE);
        run("mount", &["-t", "tmpfs", "tmpfs", "/run/netns"]);

        let moto = Moto::start(&[]).await.expect(FINE);
        let text = example("production").replacen("keyName:", "software: {source: image}\nkeyName:", 1);
        let workshop = Workshop::for_spec(&text);
        let operator = moto.operator(&workshop.region());
        operator.create_bucket(BUCKET).await;
        let agent = agent(folder.path());
        let digest = sha256_hex(&agent);
        put(&operator, &format!("agent/{digest}/slipway-node"), agent).await;
        let published = json!({ "x86_64": digest, "arm64": digest }).to_string();
        workshop.assets.upload(slipway_core::keys::AGENT_MANIFEST, published);
        let rendered = workshop.render(&text).await;

        let mut rig = Self {
            _cloud: Command::new("true").spawn().expect(FINE),
            folder,
            base,
            moto,
            operator,
            workshop,
            rendered,
            machines: Vec::new(),
            secrets: Vec::new(),
        };
        rig.publish().await;
        rig
    }

    /// Bundles, volumes, the zone, and AWS' names.
    async fn publish(&mut self) {
        let arn = self.operator.create_key().await;
        let cluster = self.workshop.name.clone();
        let mut domain = String::new();
        let mut prepared = Vec::new();
        for index in 0..u32::try_from(ADDRESSES.len()).expect(FINE) {
            let role = Role::Etcd(index);
            let node = &self.rendered.rendering.roles[&role];
            let bundles = format!("clusters/{cluster}/bundles/{role}");
            put(
                &self.operator,
                &format!("{bundles}/config-{}", node.config_digest),
                node.config.as_bytes().to_vec(),
            )
            .await;
            let files = self.workshop.bundle(&role).await;
            let key_lines =
                files.values().filter(|text| text.contains("PRIVATE KEY")).flat_map(|text| text.lines());
            self.secrets.extend(key_lines.filter(|line| line.len() > 40).map(str::to_owned));
            let sealed = self.seal(&arn, &role, &files).await;
            put(&self.operator, &format!("{bundles}/credentials-{}", node.credentials_digest), sealed).await;
            let config: EtcdConfig = serde_json::from_str(&node.config).expect(FINE);
            domain = config.etcd.dns_name.split_once('.').expect(FINE).1.to_owned();
            prepared.push((role, config));
        }
        let zone = self.operator.create_zone(&domain).await;
        for (number, (role, config)) in prepared.into_iter().enumerate() {
            let volume = self.operator.create_volume(1, &config.data_volume.tags).await;
            let disk = self.make_disk(number);
            let userdata = self.userdata(number, &zone);
            self.machines.push(Machine {
                role,
                config,
                userdata,
                volume,
                disk,
                instance: String::new(),
                process: None,
                boots: 0,
            });
        }
        self.start_cloud(&zone, &domain);
    }

    /// As a rendering seals, by moto's KMS.
    async fn seal(&self, arn: &str, role: &Role, files: &BTreeMap<String, String>) -> Vec<u8> {
        let names = [("cluster", self.workshop.name.clone()), ("role", role.to_string())];
        let context: Context = names.map(|(name, value)| (name.to_owned(), value)).into();
        let request = json!({ "KeyId": arn, "KeySpec": "AES_256", "EncryptionContext": context });
        let made = self.operator.json("kms", "TrentService.GenerateDataKey", request).await.expect(FINE);
        let bytes = |name: &str| STANDARD.decode(made[name].as_str().expect(FINE)).expect(FINE);
        let key = DataKey {
            wrapped_by: arn.to_owned(),
            plain: Secret::new(bytes("Plaintext")),
            wrapped: bytes("CiphertextBlob"),
        };
        let files = files.iter().map(|(path, text)| (path.clone(), text.as_str())).collect();
        AwsLc.seal(&key, &context, &manifest::plaintext(&files)).expect(FINE)
    }

    /// What a machine sees of its volume: EC2 attaches nothing here.
    fn make_disk(&self, number: usize) -> Disk {
        let image = self.folder.path().join(format!("volume-{number}"));
        File::create(&image).expect(FINE).set_len(1 << 30).expect(FINE);
        let path = run("losetup", &["--find", "--show", image.to_str().expect(FINE)]).trim().to_owned();
        let held = File::open(&path).expect(FINE);
        // Lazily: it goes when the last one closes it.
        run("losetup", &["--detach", &path]);
        Disk { path, _held: held }
    }

    /// The userdata of the member's launch template, with the zone that CloudFormation fills in.
    fn userdata(&self, number: usize, zone: &str) -> String {
        let stack = self.rendered.rendering.stack(&format!("{}-etcd", self.workshop.name)).expect(FINE);
        let template: Value = serde_json::from_str(&stack.body).expect(FINE);
        let resource = &template["Resources"][&format!("LaunchTemplate{number}")];
        let userdata = &resource["Properties"]["LaunchTemplateData"]["UserData"]["Fn::Base64"];
        let parts = userdata["Fn::Join"][1].as_array().expect(FINE);
        parts.iter().map(|part| part.as_str().unwrap_or(zone)).collect()
    }

    fn start_cloud(&mut self, zone: &str, domain: &str) {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        // One authority for this test, in the machines' trust alone.
        let names = "subjectAltName=DNS:*.eu-west-1.amazonaws.com,DNS:*.s3.eu-west-1.amazonaws.com,DNS:route53.amazonaws.com";
        let (authority, authority_key) = (path("authority.pem"), path("authority-key.pem"));
        let make = |more: &[&str]| {
            let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
            run("openssl", &[&["req", "-x509"], curve.as_slice(), more].concat());
        };
        make(&["-subj", "/CN=authority of the tests", "-keyout", &authority_key, "-out", &authority]);
        let by =
            ["-CA", &authority, "-CAkey", &authority_key, "-addext", "basicConstraints=critical,CA:FALSE"];
        let (key, certificate) = (path("key.pem"), path("certificate.pem"));
        let of = ["-subj", "/CN=AWS of the tests", "-addext", names, "-keyout", &key, "-out", &certificate];
        make(&[by.as_slice(), of.as_slice()].concat());
        fs::write(path("machines.json"), "{}").expect(FINE);
        let config = json!({
            "moto": self.moto.url(), "certificate": path("certificate.pem"), "key": path("key.pem"), "address": ROUTER,
            "resolver": RESOLVER, "zone": zone, "domain": domain, "log": path("calls.log"), "machines": path("machines.json"),
        });
        fs::write(path("cloud.json"), config.to_string()).expect(FINE);
        let mut cloud = Command::new(tools::python().expect(FINE));
        cloud.arg(tools::root().join("tests/machines/cloud.py")).arg(path("cloud.json"));
        let mut cloud = cloud.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect(FINE);
        let mut said = [0; 6];
        std::io::Read::read_exact(cloud.stdout.as_mut().expect(FINE), &mut said).expect(FINE);
        assert_eq!(&said, b"ready\n");
        self._cloud = cloud;
    }

    /// Launches the member as a new instance on an empty root, with its old volume, as its Auto Scaling group does.
    pub async fn boot(&mut self, index: usize) {
        self.machines[index].instance = self.operator.run_instance().await;
        self.machines[index].boots += 1;
        self.write_metadata();
        let tree = self.make_tree(index);
        self.connect(index);
        let machine = &mut self.machines[index];
        let console =
            File::create(self.folder.path().join(format!("console-{index}-{}", machine.boots))).expect(FINE);
        let disk = format!(
            "{}:/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_{}",
            machine.disk.path,
            machine.volume.replace('-', "")
        );
        let command = format!(
            "exec systemd-nspawn --quiet --machine=m{index} --directory={} --boot --network-namespace-path=/run/netns/m{index} \
             --register=no --keep-unit --resolv-conf=off --timezone=off --link-journal=no --bind={disk}",
            tree.display()
        );
        // It wants a terminal.
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &command, "/dev/null"]);
        let script = script.stdin(Stdio::null()).stdout(console.try_clone().expect(FINE)).stderr(console);
        machine.process = Some(script.spawn().expect(FINE));
    }

    fn write_metadata(&self) {
        let known = self.machines.iter().zip(ADDRESSES).filter(|(machine, _)| !machine.instance.is_empty());
        let told = known.map(|(machine, address)| {
            let credentials = json!({
                "Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": "ASIANODE", "SecretAccessKey": crate::imds::SECRET,
                "Token": "session+token/==", "LastUpdated": "2026-11-20T12:00:00Z", "Expiration": "2099-01-01T00:00:00Z",
            });
            let identity = json!({ "accountId": ACCOUNT, "region": "eu-west-1", "instanceId": machine.instance });
            let metadata = json!({
                "user-data": machine.userdata,
                "dynamic/instance-identity/document": identity.to_string(),
                "meta-data/instance-id": machine.instance,
                "meta-data/ami-id": "ami-0123456789abcdef0",
                "meta-data/hostname": format!("{}.eu-west-1.compute.internal", machine.role),
                "meta-data/local-hostname": format!("{}.eu-west-1.compute.internal", machine.role),
                "meta-data/local-ipv4": address,
                "meta-data/placement/availability-zone": "eu-west-1a",
                "meta-data/iam/security-credentials/": "node-role",
                "meta-data/iam/security-credentials/node-role": credentials.to_string(),
            });
            (address.to_owned(), metadata)
        });
        let told: serde_json::Map<String, Value> = told.collect();
        let path = self.folder.path().join("machines.json");
        let draft = path.with_extension("new");
        fs::write(&draft, Value::Object(told).to_string()).expect(FINE);
        fs::rename(draft, path).expect(FINE);
    }

    /// An image's root, as a machine finds it at its first boot.
    fn make_tree(&self, index: usize) -> PathBuf {
        let home = self.folder.path().join(format!("m{index}-{}", self.machines[index].boots));
        for name in ["upper", "work", "tree"] {
            fs::create_dir_all(home.join(name)).expect(FINE);
        }
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            self.base.display(),
            home.join("upper").display(),
            home.join("work").display()
        );
        let tree = home.join("tree");
        run("mount", &["-t", "overlay", "overlay", "-o", &options, tree.to_str().expect(FINE)]);
        let write = |path: &str, text: &str| {
            let path = tree.join(path);
            fs::create_dir_all(path.parent().expect(FINE)).expect(FINE);
            // What the image has there may be a link.
            let _ = fs::remove_file(&path);
            fs::write(path, text).expect(FINE);
        };
        write("etc/machine-id", "");
        write("etc/hostname", "localhost\n");
        write("etc/resolv.conf", &format!("nameserver {RESOLVER}\n"));
        write(
            "etc/cloud/cloud.cfg.d/90-slipway-tests.cfg",
            "datasource_list: [Ec2]\n\
             datasource: {Ec2: {strict_id: false, metadata_urls: [\"http://169.254.169.254\"], max_wait: 20, timeout: 5}}\n\
             network: {config: disabled}\ngrowpart: {mode: \"off\"}\nresize_rootfs: false\n",
        );
        write("etc/cloud/ds-identify.cfg", "policy: enabled\n");
        // Debian's package starts an etcd of its own, which no image of a cluster has.
        for link in ["multi-user.target.wants/etcd.service", "etcd2.service"] {
            let _ = fs::remove_file(tree.join("etc/systemd/system").join(link));
        }
        fs::create_dir_all(tree.join("var/log/journal")).expect(FINE);
        let trusted = tree.join("etc/ssl/certs/ca-certificates.crt");
        let mut trusted = fs::OpenOptions::new().append(true).open(trusted).expect(FINE);
        trusted.write_all(&fs::read(self.folder.path().join("authority.pem")).expect(FINE)).expect(FINE);
        tree
    }

    /// A namespace of the machine's own, as wide as its network card.
    fn connect(&self, index: usize) {
        let address = ADDRESSES[index];
        let _ =
            Command::new("ip").args(["netns", "delete", &format!("m{index}")]).stderr(Stdio::null()).status();
        for arguments in [
            format!("netns add m{index}"),
            format!("link add v{index} type veth peer name eth0 netns m{index}"),
            format!("link set v{index} master vpc up"),
            format!("-n m{index} addr add {address}/16 dev eth0"),
            format!("-n m{index} link set eth0 up"),
            format!("-n m{index} link set lo up"),
            format!("-n m{index} route add 169.254.169.254/32 dev eth0"),
            format!("-n m{index} route add default via {ROUTER}"),
        ] {
            run("ip", &arguments.split(' ').collect::<Vec<_>>());
        }
    }

    /// Waits until the member's launch hook is settled.
    pub async fn settled(&mut self, index: usize, patience: Duration) {
        let begun = Instant::now();
        while self.hook(index).is_none() {
            let ended =
                self.machines[index].process.as_mut().and_then(|process| process.try_wait().expect(FINE));
            if begun.elapsed() > patience || ended.is_some() {
                panic!("member {index} ({ended:?}) settles no hook:\n{}", self.story(index));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// How the launch hook of the member's present instance was settled, if it was.
    #[must_use]
    pub fn hook(&self, index: usize) -> Option<String> {
        let instance = &self.machines[index].instance;
        let is_it = |call: &&Value| {
            let form = &call["form"];
            form["Action"] == "CompleteLifecycleAction"
                && form["InstanceId"] == instance.as_str()
                && call["status"] == 200
        };
        self.calls().iter().find(is_it)?["form"]["LifecycleActionResult"].as_str().map(str::to_owned)
    }

    /// Every call of AWS that the machines made.
    #[must_use]
    pub fn calls(&self) -> Vec<Value> {
        let log = fs::read_to_string(self.folder.path().join("calls.log")).unwrap_or_default();
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The calls of the machines, with when they came: seconds since the first.
    #[must_use]
    pub fn timeline(&self) -> String {
        let calls = self.calls();
        let at = |call: &Value| call["at"].as_f64().unwrap_or_default();
        let first = calls.first().map(at).unwrap_or_default();
        let line = |call: &Value| {
            let what = call["target"].as_str().or(call["form"]["Action"].as_str()).or(call["path"].as_str());
            format!(
                "{:7.2} s  {:12} {} {}",
                at(call) - first,
                call["from"].as_str().unwrap_or_default(),
                call["method"].as_str().unwrap_or_default(),
                what.unwrap_or_default()
            )
        };
        calls.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// What the member's present instance told of its bootstrap.
    pub async fn report(&self, index: usize) -> BootstrapReport {
        let Machine { role, instance, .. } = &self.machines[index];
        let key = keys::bootstrap_report(&self.workshop.name, &role.to_string(), &machine_arn(instance));
        // It is told once the hook is settled.
        let begun = Instant::now();
        loop {
            let found = self.operator.object(BUCKET, &key).await.expect(FINE).unwrap_or_default();
            match serde_json::from_slice::<BootstrapReport>(&found) {
                Ok(report) if report.state == BootstrapState::Healthy => return report,
                Ok(report) if begun.elapsed() > TELLING => return report,
                Err(_) if begun.elapsed() > TELLING => panic!("the node told nothing"),
                Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// A call of the member's own API, with the health check's certificate.
    ///
    /// # Errors
    /// If it does not answer with success.
    pub fn etcd(&self, index: usize, path: &str, body: &str) -> Result<Value, String> {
        let pki = self.tree(index).join("etc/etcd/pki");
        let file = |name: &str| pki.join(name).display().to_string();
        let identity = [
            "--cert".to_owned(),
            file("healthcheck-client.pem"),
            "--key".to_owned(),
            file("healthcheck-client-key.pem"),
        ];
        self.curl(index, &identity, path, body)
    }

    /// The same by somebody.
    ///
    /// # Errors
    /// As it should.
    pub fn etcd_without_certificate(&self, index: usize) -> Result<Value, String> {
        self.curl(index, &[], "kv/range", r#"{"key": "a2V5"}"#)
    }

    fn curl(&self, index: usize, identity: &[String], path: &str, body: &str) -> Result<Value, String> {
        let name = &self.machines[index].config.etcd.dns_name;
        let authority = self.tree(index).join("etc/etcd/pki/etcd-ca.pem");
        let output = Command::new("curl")
            .args(["-sS", "--fail-with-body", "-m", "10", "--cacert"])
            .arg(authority)
            .args(identity)
            .args(["--connect-to", &format!("{name}:2379:{}:2379", ADDRESSES[index]), "-d", body])
            .arg(format!("https://{name}:2379/v3/{path}"))
            .output()
            .expect(FINE);
        let words = String::from_utf8_lossy(&[output.stdout.clone(), output.stderr].concat()).into_owned();
        if !output.status.success() {
            return Err(words);
        }
        serde_json::from_slice(&output.stdout).map_err(|_| words)
    }

    /// Runs a shell's line on the machine; what it wrote.
    pub fn run(&self, index: usize, line: &str) -> String {
        let leader = self.leader(index);
        run(
            "nsenter",
            &["--target", &leader, "--mount", "--uts", "--ipc", "--net", "--pid", "sh", "-c", line],
        )
    }

    /// The machine's first process, as it is known out here.
    fn leader(&self, index: usize) -> String {
        let script = self.machines[index].process.as_ref().expect(FINE).id();
        // script → systemd-nspawn → (its own child →) systemd.
        let mut pid = script.to_string();
        loop {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            let Some(child) = children.split_whitespace().next() else { panic!("m{index} has no systemd") };
            pid = child.to_owned();
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            if name.trim() == "systemd" {
                return pid;
            }
        }
    }

    fn tree(&self, index: usize) -> PathBuf {
        self.folder.path().join(format!("m{index}-{}/tree", self.machines[index].boots))
    }

    /// All that the machine told anybody: its console, its journal, its logs.
    #[must_use]
    pub fn story(&self, index: usize) -> String {
        let boots = self.machines[index].boots;
        let read = |path: PathBuf| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        let tree = self.tree(index);
        let journal =
            Command::new("journalctl").args(["--no-pager", "-D"]).arg(tree.join("var/log/journal")).output();
        let journal = journal.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        [
            read(self.folder.path().join(format!("console-{index}-{boots}"))),
            journal.unwrap_or_default(),
            read(tree.join("var/log/cloud-init.log")),
            read(tree.join("var/log/cloud-init-output.log")),
            read(tree.join("var/lib/slipway/progress.json")),
        ]
        .join("\n")
    }

    /// P9: no key and no credential is in anything that a machine told, nor on its way to AWS.
    pub fn assert_no_secret_was_told(&self) {
        let calls = fs::read_to_string(self.folder.path().join("calls.log")).expect(FINE);
        let stories: Vec<String> = (0..self.machines.len()).map(|index| self.story(index)).collect();
        assert!(stories.iter().all(|story| story.contains("etcd")), "nothing was told at all");
        assert!(self.secrets.len() > 9, "nothing is looked for");
        for secret in self.secrets.iter().map(String::as_str).chain([crate::imds::SECRET]) {
            assert!(!calls.contains(secret), "a secret is in a call");
            assert!(!stories.iter().any(|story| story.contains(secret)), "a machine told a secret");
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for process in self.machines.iter_mut().filter_map(|machine| machine.process.as_mut()) {
            // The rest goes with the namespaces.
            let _ = process.kill();
        }
        let _ = self._cloud.kill();
    }
}

/// The agent, as small as the debug build gets.
fn agent(folder: &Path) -> Vec<u8> {
    let built = tools::binary("slipway-node").expect(FINE);
    let stripped = folder.join("slipway-node");
    run("strip", &["-o", stripped.to_str().expect(FINE), built.to_str().expect(FINE)]);
    fs::read(stripped).expect(FINE)
}
