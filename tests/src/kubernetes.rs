//! A real Kubernetes: etcd, API server, controller manager and scheduler run as child processes. They are started from the static pods of a
//! controller, with the files of its bundle, which the real flow sealed and stored, and which are opened as on a node.
//!
//! There is no kubelet and no container. Files that a controller has below `/` are below [`Kubernetes::root`], and ports are free ports of
//! this machine. [`Elsewhere`] is the only place that rewrites paths and ports.
#![allow(clippy::missing_panics_doc, reason = "a test's room may panic")]

mod caller;
mod manager;
mod program;

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use slipway_core::node::{ControllerConfig, NodeConfig};
use slipway_core::release::is_for_earlier_agents;
use slipway_core::role::Role;
use slipway_core::versions::RELEASES;
use slipway_credentials::policy::ETCD_DIR;
use slipway_node::kube::{self, Facts};
use slipway_node::static_pods::{MANIFESTS, copies};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::observe::PATIENCE;
use crate::tools;
use crate::workshop::{Rendered, Workshop};

pub use caller::{Answer, Caller};
use program::Program;

/// The administrator's certificate and key below [`Kubernetes::root`].
const ADMIN: (&str, &str) = ("operator/admin/admin.pem", "operator/admin/admin-key.pem");
const NODE_MANAGER: (&str, &str) =
    ("etc/kubernetes/pki/node-manager.pem", "etc/kubernetes/pki/node-manager-key.pem");

/// A running control plane. Dropping this value stops it and everything that it started.
#[derive(Debug)]
pub struct Kubernetes {
    /// The cluster's buckets.
    pub workshop: Workshop,
    /// The result of rendering its spec.
    pub rendered: Rendered,
    /// The controller's configuration.
    pub config: ControllerConfig,
    /// `https://127.0.0.1:<port>`.
    pub server: String,
    /// The URL of etcd's first member.
    pub etcd: String,
    programs: BTreeMap<String, Program>,
    /// The static pods at the time when their programs were started.
    manifests: BTreeMap<String, String>,
    binaries: PathBuf,
    elsewhere: Elsewhere,
    folder: TempDir,
}

impl Kubernetes {
    /// Starts a control plane for the cluster of `spec`, with the release that was built here, whatever the spec says. It is ready, and has
    /// the add-on cluster-access. `None` if there is no real Kubernetes, which is then reported as not tested.
    pub async fn start(spec: &str) -> Option<Self> {
        Self::start_with(spec, 1).await
    }

    /// As [`Kubernetes::start`], with this number of etcd members.
    pub async fn start_with(spec: &str, members: usize) -> Option<Self> {
        let binaries = tools::kubernetes()?;
        let release = binaries.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let etcd_program = tools::etcd(etcd_of(&release), "etcd")?;
        let spec = with_release(spec, &release);
        let mut workshop = Workshop::for_spec(&spec);
        // Real programs use the machine's clock.
        workshop.now = Timestamp::now();
        let rendered = workshop.render(&spec).await;
        let NodeConfig::Controller(config) =
            NodeConfig::read(&rendered.rendering.roles[&Role::Controller].config)
                .expect("a configuration reads back")
        else {
            panic!("a controller is told to be something else")
        };
        let folder = tempfile::tempdir().expect("a folder");
        let [api, manager, scheduler, ports @ ..] = free_ports::<9>();
        let etcd: Vec<(u16, u16)> = ports.chunks(2).map(|pair| (pair[0], pair[1])).take(members).collect();
        let elsewhere = Elsewhere { root: folder.path().to_owned(), api, etcd, manager, scheduler };

        for (path, text) in workshop.bundle(&Role::Controller).await {
            elsewhere.put_with_copies(&path, &text);
        }
        for index in 0..members {
            let role = Role::Etcd(u32::try_from(index).expect("a few"));
            for (path, text) in workshop.bundle(&role).await {
                put(&elsewhere.member(index).join(path.trim_start_matches('/')), 0o600, &text);
            }
        }
        for (name, text) in workshop.bundle(&Role::Admin).await {
            elsewhere.put(&format!("/operator/admin/{name}"), 0o600, &text);
        }
        let facts = facts(folder.path());
        for file in kube::controller(&config, &facts).files {
            elsewhere.put(&file.path, file.mode, &elsewhere.rewritten(&file.content, &config));
        }

        let mut started = Self {
            workshop,
            rendered,
            config: *config,
            server: format!("https://127.0.0.1:{api}"),
            etcd: elsewhere.etcd_url(0),
            programs: BTreeMap::new(),
            manifests: BTreeMap::new(),
            binaries,
            elsewhere,
            folder,
        };
        started.start_etcd(&etcd_program).await;
        // The others exit if no API answers; a kubelet would restart them, but there is none here.
        for (name, more) in started.elsewhere.more_flags() {
            started.start_static_pod(name, &more);
            started.is_ready().await;
        }
        started.apply_cluster_access().await;
        Some(started)
    }

    /// The folder that takes the place of the controller's `/`.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    /// A path below [`Kubernetes::root`].
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        self.root().join(path.trim_start_matches('/'))
    }

    /// The release that runs: `1.36.3`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.config.kubernetes_version
    }

    /// The administrator as a caller.
    #[must_use]
    pub fn admin(&self) -> Caller {
        self.caller(ADMIN)
    }

    /// The node manager as a caller, which may do everything from the beginning.
    #[must_use]
    pub fn node_manager(&self) -> Caller {
        self.caller(NODE_MANAGER)
    }

    /// A caller without a certificate, with `token` or without.
    #[must_use]
    pub fn bearer(&self, token: Option<&str>) -> Caller {
        Caller::new(&self.server, &self.path("etc/kubernetes/pki/ca.pem"), None, token)
    }

    /// A caller with this certificate and key, below the root.
    #[must_use]
    pub fn caller(&self, (certificate, key): (&str, &str)) -> Caller {
        let identity = (self.path(certificate), self.path(key));
        Caller::new(
            &self.server,
            &self.path("etc/kubernetes/pki/ca.pem"),
            Some((&identity.0, &identity.1)),
            None,
        )
    }

    /// The administrator's kubeconfig, for `kubectl` and client libraries.
    #[must_use]
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.kubeconfig("admin", ADMIN)
    }

    /// A kubeconfig with this certificate and key.
    #[must_use]
    pub fn kubeconfig(&self, name: &str, (certificate, key): (&str, &str)) -> PathBuf {
        let path = self.path(&format!("operator/{name}.kubeconfig"));
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "it", "cluster": {
                "server": self.server, "certificate-authority": self.path("etc/kubernetes/pki/ca.pem"),
            } }],
            "users": [{ "name": name, "user": {
                "client-certificate": self.path(certificate), "client-key": self.path(key),
            } }],
            "contexts": [{ "name": "it", "context": { "cluster": "it", "user": name } }],
            "current-context": "it",
        });
        put(&path, 0o600, &config.to_string());
        path
    }

    /// The output of `kubectl` with this kubeconfig and standard input.
    pub async fn kubectl(&self, kubeconfig: &Path, arguments: &[&str], stdin: &str) -> Output {
        let mut command = Command::new(self.binaries.join("kubectl"));
        command.env_clear().env("HOME", self.root()).arg("--kubeconfig").arg(kubeconfig).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("kubectl can be started");
        let mut input = child.stdin.take().expect("it is piped");
        input.write_all(stdin.as_bytes()).await.expect("kubectl reads what it is given");
        drop(input);
        let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await;
        output.expect("kubectl ends").expect("kubectl can be waited for")
    }

    /// A static pod as the kubelet reads it, and the port of its program on this machine.
    #[must_use]
    pub fn static_pod(&self, name: &str) -> (Value, u16) {
        let text = fs::read_to_string(self.path(MANIFESTS).join(format!("{name}.json")));
        let pod = serde_json::from_str(&text.expect("the static pod is there")).expect("it is JSON");
        let Elsewhere { api, manager, scheduler, .. } = self.elsewhere;
        let ports =
            [("kube-apiserver", api), ("kube-controller-manager", manager), ("kube-scheduler", scheduler)];
        let port = ports.into_iter().find(|(program, _)| *program == name);
        (pod, port.expect("a static pod's name").1)
    }

    /// The log of `kube-apiserver` or another program, so far.
    #[must_use]
    pub fn log(&self, program: &str) -> String {
        self.programs.get(program).map(Program::log).unwrap_or_default()
    }

    /// Replaces files of the controller, as a refresh does.
    pub fn put(&self, path: &str, text: &str) {
        self.elsewhere.put_with_copies(path, text);
    }

    /// Restarts a program with the same flags.
    pub async fn restart(&mut self, program: &str) {
        self.programs.get_mut(program).expect("it runs").restart().await;
        self.is_ready().await;
    }

    /// Kills a program and starts it again with the same flags, without waiting until it is healthy.
    pub async fn respawn(&mut self, program: &str) {
        self.programs.get_mut(program).expect("it was started").restart().await;
    }

    /// Kills a program.
    pub async fn stop(&mut self, program: &str) {
        self.programs.get_mut(program).expect("it was started").stop().await;
    }

    /// Whether a program is still running.
    #[must_use]
    pub fn runs(&self, program: &str) -> bool {
        self.programs.get(program).is_some_and(Program::runs)
    }

    /// The process id of a program while it runs.
    #[must_use]
    pub fn process(&self, program: &str) -> Option<u32> {
        self.programs.get(program).and_then(Program::id)
    }

    /// Does what a kubelet would do: restarts static pods that have ended, or whose manifest has changed.
    pub async fn play_kubelet(&mut self) {
        for (name, _) in self.elsewhere.more_flags() {
            let text = self.static_pod(name).0.to_string();
            let is_other = self.manifests.get(name).is_some_and(|was| *was != text);
            if is_other || !self.programs[name].runs() {
                self.respawn(name).await;
            }
            self.manifests.insert(name.to_owned(), text);
        }
    }

    /// The folder that takes the place of a member's `/`; the first member shares the controller's.
    #[must_use]
    pub fn member_root(&self, index: usize) -> PathBuf {
        self.elsewhere.member(index)
    }

    /// The name of a member's program for [`Kubernetes::respawn`] and similar functions.
    #[must_use]
    pub fn member_program(index: usize) -> String {
        if index == 0 { "etcd".to_owned() } else { format!("etcd-{index}") }
    }

    /// Writes the `config.json` of the controller or of a member below `root`, with the ports of this machine.
    pub fn configure_agent(&self, root: &Path, role: &Role) {
        let config = &self.rendered.rendering.roles[role].config;
        let mut config: Value = serde_json::from_str(config).expect("it is JSON");
        if let Role::Etcd(index) = role {
            let (client, peer) = self.elsewhere.etcd[*index as usize];
            let etcd = &mut config["etcd"];
            etcd["dnsName"] = json!("127.0.0.1");
            etcd["clientPort"] = json!(client);
            etcd["peerPort"] = json!(peer);
            etcd["initialCluster"] = json!(self.elsewhere.founders());
        } else {
            config["controlPlane"]["bindPort"] = json!(self.elsewhere.api);
        }
        put(&root.join("var/lib/slipway/config.json"), 0o600, &config.to_string());
    }

    async fn start_etcd(&mut self, program: &Path) {
        let founders: Vec<String> =
            self.elsewhere.founders().into_iter().map(|(name, url)| format!("{name}={url}")).collect();
        for index in 0..self.elsewhere.etcd.len() {
            let client = self.elsewhere.etcd_url(index);
            let peer = format!("https://127.0.0.1:{}", self.elsewhere.etcd[index].1);
            let root = self.elsewhere.member(index);
            let file =
                |name: &str| root.join(ETCD_DIR.trim_start_matches('/')).join(name).display().to_string();
            let flags = [
                ("name", format!("etcd-{index}")),
                ("data-dir", root.join("var/lib/etcd").display().to_string()),
                ("listen-client-urls", client.clone()),
                ("advertise-client-urls", client),
                ("listen-peer-urls", peer.clone()),
                ("initial-advertise-peer-urls", peer),
                ("initial-cluster", founders.join(",")),
                ("cert-file", file("server.pem")),
                ("key-file", file("server-key.pem")),
                ("client-cert-auth", "true".to_owned()),
                ("trusted-ca-file", file("etcd-ca.pem")),
                ("peer-cert-file", file("peer.pem")),
                ("peer-key-file", file("peer-key.pem")),
                ("peer-client-cert-auth", "true".to_owned()),
                ("peer-trusted-ca-file", file("etcd-ca.pem")),
                // Data of a test does not have to survive a crash.
                ("unsafe-no-fsync", "true".to_owned()),
            ];
            let arguments = flags.map(|(name, value)| format!("--{name}={value}"));
            self.run(&Self::member_program(index), program, arguments.into());
        }
        let member = self.etcd_client(
            &format!("{ETCD_DIR}/healthcheck-client.pem"),
            &format!("{ETCD_DIR}/healthcheck-client-key.pem"),
        );
        self.until("etcd", "is healthy", async || {
            member.get("/health").await.is_ok_and(|answer| answer.body["health"] == "true")
        })
        .await;
    }

    /// A caller of etcd with this certificate and key.
    #[must_use]
    pub fn etcd_client(&self, certificate: &str, key: &str) -> Caller {
        let identity = (self.path(certificate), self.path(key));
        let authority = self.path(ETCD_DIR).join("etcd-ca.pem");
        Caller::new(&self.etcd, &authority, Some((&identity.0, &identity.1)), None)
    }

    /// A caller of etcd without a certificate.
    #[must_use]
    pub fn etcd_stranger(&self) -> Caller {
        Caller::new(&self.etcd, &self.path(ETCD_DIR).join("etcd-ca.pem"), None, None)
    }

    fn start_static_pod(&mut self, name: &str, more: &[String]) {
        let (pod, _) = self.static_pod(name);
        let command = pod["spec"]["containers"][0]["command"].as_array().expect("it has a command").clone();
        let mut words = command.iter().map(|word| word.as_str().expect("words are strings").to_owned());
        assert_eq!(words.next().as_deref(), Some(name));
        let arguments = words.chain(more.iter().cloned()).collect();
        let program = self.binaries.join(name);
        self.run(name, &program, arguments);
    }

    /// Starts the controller's kubelet with the command line of its unit. There is no containerd, so it gets only as far as needing one.
    pub fn start_kubelet(&mut self) {
        // Nodes have control groups of version 2; the test machine may not.
        let file = self.path("etc/kubernetes/kubelet.json");
        let text = fs::read_to_string(&file).expect("a kubelet is configured");
        let mut configuration: Value = serde_json::from_str(&text).expect("it is JSON");
        configuration["failCgroupV1"] = json!(false);
        put(&file, 0o600, &configuration.to_string());
        let units = kube::controller(&self.config, &facts(self.root())).units;
        let unit =
            units.into_iter().find(|unit| unit.name == "kubelet.service").and_then(|unit| unit.content);
        let unit = self.elsewhere.rewritten(&unit.expect("a kubelet has a unit"), &self.config);
        // The agent is where cargo put it.
        let agent = tools::binary("slipway-node").expect("the agent was built");
        let unit = unit.replace(
            "bin-dir=/var/lib/slipway",
            &format!("bin-dir={}", agent.parent().expect("a folder").display()),
        );
        let (_, command) = unit.split_once("\nExecStart=").expect("it starts something");
        let mut arguments: Vec<String> = Vec::new();
        for line in command.lines() {
            arguments.extend(line.trim_end_matches('\\').split_whitespace().map(str::to_owned));
            if !line.ends_with('\\') {
                break;
            }
        }
        assert!(arguments.remove(0).ends_with("kubelet"), "{unit}");
        arguments.push(format!("--root-dir={}", self.path("var/lib/kubelet").display()));
        let program = self.binaries.join("kubelet");
        self.run("kubelet", &program, arguments);
    }

    fn run(&mut self, name: &str, program: &Path, arguments: Vec<String>) {
        let log = self.path(&format!("var/log/{name}.log"));
        let program = Program::start(program, arguments, &log);
        self.programs.insert(name.to_owned(), program);
    }

    async fn is_ready(&self) {
        // A load balancer sends requests without credentials.
        let anybody = self.bearer(None);
        self.until("kube-apiserver", "is ready", async || {
            anybody.get("/readyz").await.is_ok_and(|answer| answer.status == 200)
        })
        .await;
    }

    /// Waits until `holds` returns true. Fails with the program's log if the program ends, or after a timeout.
    pub async fn until(&self, program: &str, what: &str, holds: impl AsyncFn() -> bool) {
        let begun = std::time::Instant::now();
        while !holds().await {
            let running = &self.programs[program];
            assert!(
                begun.elapsed() < PATIENCE && running.runs(),
                "{program}: not so that it {what}:\n{}",
                program::tail(&running.log())
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Approves first certificates, as the node manager does for machines that it knows. (There is no EC2 here.) Does nothing if no API
    /// answers.
    pub async fn admit_newcomers(&self) {
        const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
        let manager = self.node_manager();
        let Ok(found) = manager.get(REQUESTS).await else { return };
        for mut request in found.body["items"].as_array().cloned().unwrap_or_default() {
            let is_first = request["spec"]["signerName"] == "kubernetes.io/kube-apiserver-client-kubelet";
            if is_first && request["status"]["conditions"].is_null() {
                let name = request["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                request["status"] =
                    json!({ "conditions": [{ "type": "Approved", "status": "True", "reason": "Test" }] });
                let _ = manager.put(&format!("{REQUESTS}/{name}/approval"), &request).await;
            }
        }
    }

    /// Does what the node manager does first: without this add-on nobody else may do anything.
    async fn apply_cluster_access(&self) {
        let addons = &self.rendered.rendering.addons.addons;
        let access = addons.iter().find(|addon| addon.name == "cluster-access").expect("it is always there");
        let objects = access.objects.iter().filter(|object| !is_for_earlier_agents(object));
        self.apply(&objects.cloned().collect::<Vec<_>>()).await;
    }

    /// Applies objects of add-ons, as the node manager does.
    pub async fn apply(&self, objects: &[Value]) {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        let kubeconfig = self.path(kube::NODE_MANAGER_KUBECONFIG);
        let arguments = ["apply", "--server-side", "--field-manager=slipway", "--filename=-"];
        let output = self.kubectl(&kubeconfig, &arguments, &list.to_string()).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Paths and ports that differ from those of a controller.
#[derive(Debug)]
struct Elsewhere {
    root: PathBuf,
    api: u16,
    /// The ports of each member, for clients and for other members.
    etcd: Vec<(u16, u16)>,
    manager: u16,
    scheduler: u16,
}

impl Elsewhere {
    fn member(&self, index: usize) -> PathBuf {
        if index == 0 { self.root.clone() } else { self.root.join(format!("members/etcd-{index}")) }
    }

    fn etcd_url(&self, index: usize) -> String {
        format!("https://127.0.0.1:{}", self.etcd[index].0)
    }

    fn founders(&self) -> BTreeMap<String, String> {
        let peers = self.etcd.iter().enumerate();
        peers
            .map(|(index, (_, peer))| (format!("etcd-{index}"), format!("https://127.0.0.1:{peer}")))
            .collect()
    }

    /// A controller's file with the paths and ports of this machine.
    fn rewritten(&self, text: &str, config: &ControllerConfig) -> String {
        let root = self.root.display();
        let plane = &config.control_plane;
        let mut text = text.to_owned();
        for folder in ["/etc/kubernetes", "/var/log/", "/var/lib/kubelet", "/run/containerd/"] {
            text = text.replace(folder, &format!("{root}{folder}"));
        }
        for (was, is) in [
            (config.api_server.clone(), format!("https://127.0.0.1:{}", self.api)),
            (format!("--secure-port={}", plane.bind_port), format!("--secure-port={}", self.api)),
            // Only some of the members exist.
            (
                plane.etcd_servers.join(","),
                (0..self.etcd.len()).map(|index| self.etcd_url(index)).collect::<Vec<_>>().join(","),
            ),
        ] {
            text = text.replace(&was, &is);
        }
        text
    }

    /// Additional flags, because the programs share one machine.
    fn more_flags(&self) -> [(&'static str, Vec<String>); 3] {
        [
            ("kube-apiserver", vec!["--bind-address=127.0.0.1".to_owned()]),
            ("kube-controller-manager", vec![format!("--secure-port={}", self.manager)]),
            ("kube-scheduler", vec![format!("--secure-port={}", self.scheduler)]),
        ]
    }

    /// A file of the credentials, also where static pods find it.
    fn put_with_copies(&self, path: &str, text: &str) {
        for path in copies(path).into_iter().chain([path.to_owned()]) {
            self.put(&path, 0o600, text);
        }
    }

    fn put(&self, path: &str, mode: u32, text: &str) {
        put(&self.root.join(path.trim_start_matches('/')), mode, text);
    }
}

/// Writes a file atomically, and creates the folders above it.
fn put(path: &Path, mode: u32, text: &str) {
    use std::io::Write as _;
    let folder = path.parent().expect("a file lies somewhere");
    fs::create_dir_all(folder).expect("folders can be made");
    let draft = path.with_extension("draft");
    let mut file = fs::OpenOptions::new();
    let file = file.write(true).create(true).truncate(true).mode(mode).open(&draft);
    let mut file = file.expect("a file can be made");
    file.set_permissions(fs::Permissions::from_mode(mode)).expect("it is ours");
    file.write_all(text.as_bytes()).expect("it can be written");
    fs::rename(draft, path).expect("it can be put in place");
}

/// The facts of an EC2 instance with an address that is not in use.
fn facts(root: &Path) -> Facts {
    Facts {
        instance_id: "i-0a1b2c3d4e5f60718".to_owned(),
        zone: "eu-west-1a".to_owned(),
        address: "192.0.2.10".parse().expect("an address"),
        resolv_conf: "/etc/resolv.conf".to_owned(),
        root_ca: root.join("etc/kubernetes/pki/root-ca.pem").exists(),
    }
}

/// All sockets are kept open until all ports are known, so that no two are the same.
fn free_ports<const N: usize>() -> [u16; N] {
    let held: [TcpListener; N] =
        std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").expect("there are free ports"));
    held.map(|one| one.local_addr().expect("it is bound").port())
}

/// The etcd release that belongs to a Kubernetes release.
fn etcd_of(release: &str) -> &'static str {
    let minor = release.split('.').nth(1).and_then(|minor| minor.parse().ok());
    let known = RELEASES.iter().find(|known| Some(known.minor) == minor);
    known.expect("the release that is built here is one that is launched").etcd
}

/// `spec` with the release that was built here.
fn with_release(spec: &str, release: &str) -> String {
    let lines = spec.lines().map(|line| {
        if line.starts_with("kubernetesVersion:") {
            format!("kubernetesVersion: \"{release}\"\n")
        } else {
            format!("{line}\n")
        }
    });
    lines.collect()
}
