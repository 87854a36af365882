//! A member of etcd as a child process, and a client: `openssl s_client`, which reports the reason of a failed handshake.

use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use slipway_crypto::AwsLc;
use slipway_ports::{Crypto as _, NewAsset};
use slipway_tests::observe::PATIENCE;
use slipway_tests::process::Group;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// Writes a file atomically, readable only by its owner.
pub(crate) fn put(dir: &Path, name: &str, text: &str) {
    use std::io::Write as _;
    let draft = dir.join(format!(".{name}"));
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(&draft).unwrap().write_all(text.as_bytes()).unwrap();
    fs::rename(draft, dir.join(name)).unwrap();
}

/// Writes a certificate and its key as `name.pem` and `name-key.pem`.
pub(crate) fn put_pair(dir: &Path, name: &str, made: &NewAsset) {
    put(dir, &format!("{name}-key.pem"), std::str::from_utf8(made.private.expose()).unwrap());
    put(dir, &format!("{name}.pem"), made.public.as_ref().unwrap());
}

/// One member of etcd.
pub(crate) struct Member {
    /// The folder of its log, and of its credentials and data if they are nowhere else.
    pub(crate) dir: PathBuf,
    /// Its credentials.
    pub(crate) pki: PathBuf,
    /// Its data.
    pub(crate) data: PathBuf,
    pub(crate) etcd: PathBuf,
    pub(crate) name: String,
    pub(crate) client_port: u16,
    pub(crate) peer_port: u16,
    /// `--initial-cluster`.
    pub(crate) founders: String,
    /// Additional flags.
    pub(crate) flags: Vec<String>,
    running: Option<Group>,
}

/// A free port that was not returned before and is not in the kernel's range for outgoing connections (from 32768 on), so that a member
/// that is started later, or again, finds it still free.
fn port() -> u16 {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    // Other processes of this test begin at another port.
    let start = std::process::id() % 200 * 100;
    loop {
        let next = u32::from(GIVEN.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(11_000 + (start + next) % 20_000).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Members that know each other, on free ports; none is started.
pub(crate) fn cluster(etcd: &Path, dir: &Path, count: usize) -> Vec<Member> {
    let ports: Vec<u16> = (0..2 * count).map(|_| port()).collect();
    let mut founders = String::new();
    for index in 0..count {
        let comma = if index > 0 { "," } else { "" };
        let _ = write!(founders, "{comma}etcd-{index}=https://127.0.0.1:{}", ports[2 * index + 1]);
    }
    (0..count)
        .map(|index| {
            let dir = dir.join(format!("etcd-{index}"));
            fs::create_dir_all(&dir).unwrap();
            Member {
                pki: dir.clone(),
                data: dir.join("data"),
                dir,
                flags: Vec::new(),
                etcd: etcd.to_owned(),
                name: format!("etcd-{index}"),
                client_port: ports[2 * index],
                peer_port: ports[2 * index + 1],
                founders: founders.clone(),
                running: None,
            }
        })
        .collect()
}

impl Member {
    pub(crate) fn start(&mut self) {
        let (client, peer) = (self.client_url(), self.peer_url());
        let file = |name: &str| self.pki.join(name).display().to_string();
        let mut command = Command::new(&self.etcd);
        command.env_clear().args(["--name", &self.name, "--data-dir"]).arg(&self.data);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &self.founders, "--initial-cluster-token", "test"]);
        command.args(["--cert-file", &file("server.pem"), "--key-file", &file("server-key.pem")]);
        command.args(["--client-cert-auth", "--trusted-ca-file", &file("etcd-ca.pem")]);
        command.args(["--peer-cert-file", &file("peer.pem"), "--peer-key-file", &file("peer-key.pem")]);
        command.args(["--peer-client-cert-auth", "--peer-trusted-ca-file", &file("etcd-ca.pem")]);
        command.args(["--logger", "zap", "--log-outputs"]).arg(self.dir.join("log"));
        command.args(&self.flags);
        let mut group = Group::spawn(&mut command).unwrap();
        // It logs to a file. Its output is read nevertheless, because a closed pipe would end it.
        drop(group.stdin());
        if let (Some(mut out), Some(mut errors)) = (group.stdout(), group.stderr()) {
            tokio::spawn(async move { tokio::io::copy(&mut out, &mut tokio::io::sink()).await });
            tokio::spawn(async move { tokio::io::copy(&mut errors, &mut tokio::io::sink()).await });
        }
        self.running = Some(group);
    }

    pub(crate) fn client_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.client_port)
    }

    pub(crate) fn peer_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.peer_port)
    }

    pub(crate) async fn stop(&mut self) {
        if let Some(mut group) = self.running.take() {
            group.kill();
            group.ended().await;
        }
        // Only complaints after this are counted.
        let _ = fs::remove_file(self.dir.join("log"));
    }

    pub(crate) fn process(&self) -> Option<u32> {
        self.running.as_ref().and_then(Group::id)
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// Waits until it reports that it is healthy, which needs a quorum.
    pub(crate) async fn is_healthy(&self, client: &Client) {
        let start = Instant::now();
        while !client.call(self, "GET /health", "").await.contains("\"health\":\"true\"") {
            assert!(start.elapsed() < PATIENCE, "{} is not healthy:\n{}", self.name, tail(&self.log()));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Whether it serves clients within that time, by its log; a request would wait for etcd's own timeout.
    pub(crate) async fn joins_within(&self, patience: Duration) -> bool {
        let start = Instant::now();
        while !self.log().contains("serving client traffic") {
            if start.elapsed() > patience {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        true
    }

    /// The client gets no answer, and the member's log has the reason.
    pub(crate) async fn refuses(&self, client: &Client, why: &str) {
        let before = self.log().len();
        let answer = client.call(self, "GET /health", "").await;
        assert!(
            !answer.contains("HTTP/1"),
            "{} took a client that it should refuse ({why}): {answer}",
            self.name
        );
        let start = Instant::now();
        while !self.log()[before..].contains(why) {
            let log = self.log();
            assert!(
                start.elapsed() < PATIENCE,
                "{} does not say {why:?}:\n{}",
                self.name,
                tail(&log[before..])
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Waits until a member's log has that message.
pub(crate) async fn complains(members: &[Member], complaint: &str, of: &str) {
    let start = Instant::now();
    while !members.iter().any(|member| member.log().contains(complaint)) {
        let logs: String =
            members.iter().map(|member| format!("{}\n{}\n", member.name, tail(&member.log()))).collect();
        assert!(start.elapsed() < PATIENCE, "{of}: nobody says {complaint:?}:\n{logs}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(crate) fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

/// A client with or without a certificate.
pub(crate) struct Client {
    dir: PathBuf,
    authority: PathBuf,
    certificate: Option<String>,
}

impl Client {
    /// A client with `dir/<name>.pem` and its key, which trusts `dir/<authority>`.
    pub(crate) fn new(dir: &Path, authority: &str, name: &str) -> Self {
        Self { dir: dir.to_owned(), authority: dir.join(authority), certificate: Some(name.to_owned()) }
    }

    pub(crate) fn without_certificate(&self) -> Self {
        Self { dir: self.dir.clone(), authority: self.authority.clone(), certificate: None }
    }

    async fn s_client(&self, member: &Member, options: &[&str], input: &str) -> (bool, String) {
        let address = format!("127.0.0.1:{}", member.client_port);
        let mut command = Command::new("openssl");
        command.args([
            "s_client",
            "-connect",
            &address,
            "-verify_return_error",
            "-purpose",
            "sslserver",
            "-CAfile",
        ]);
        command.arg(&self.authority).args(options);
        if let Some(name) = &self.certificate {
            command.arg("-cert").arg(self.dir.join(format!("{name}.pem")));
            command.arg("-key").arg(self.dir.join(format!("{name}-key.pem")));
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // If the handshake failed, the process may have ended already.
        let _ = stdin.write_all(input.as_bytes()).await;
        let output = tokio::time::timeout(Duration::from_secs(20), child.wait_with_output()).await;
        drop(stdin);
        let output = output.map(Result::unwrap);
        output.map_or((false, String::new()), |output| {
            (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
        })
    }

    /// Sends an HTTP request and returns the answer, if there is one.
    pub(crate) async fn call(&self, member: &Member, what: &str, body: &str) -> String {
        let request = format!(
            "{what} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.s_client(member, &["-quiet", "-no_ign_eof"], &request).await.1
    }

    /// Writes. Returns whether the write was acknowledged.
    pub(crate) async fn try_write(&self, member: &Member, key: &str, value: &str) -> bool {
        let body =
            format!("{{\"key\":\"{}\",\"value\":\"{}\"}}", STANDARD.encode(key), STANDARD.encode(value));
        self.call(member, "POST /v3/kv/put", &body).await.contains("revision")
    }

    /// Writes, which needs a leader: if there is none yet, it retries until there is one.
    pub(crate) async fn writes(&self, member: &Member, key: &str, value: &str) -> bool {
        let start = Instant::now();
        while !self.try_write(member, key, value).await {
            if start.elapsed() > PATIENCE {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        true
    }

    pub(crate) async fn get(&self, member: &Member, key: &str) -> String {
        let body = format!("{{\"key\":\"{}\"}}", STANDARD.encode(key));
        self.call(member, "POST /v3/kv/range", &body).await
    }

    /// Whether the client accepts the server's certificate as a server's.
    pub(crate) async fn trusts(&self, member: &Member) -> bool {
        self.s_client(member, &[], "Q\n").await.0
    }

    /// Whether the client accepts it for that name.
    pub(crate) async fn finds(&self, member: &Member, name: String) -> bool {
        self.s_client(member, &["-servername", &name, "-verify_hostname", &name], "Q\n").await.0
    }

    /// The serial number of the certificate that is served, in lower-case hex.
    pub(crate) async fn served_serial(&self, member: &Member) -> String {
        let (_, text) = self.s_client(member, &[], "Q\n").await;
        let start = text.find("-----BEGIN CERTIFICATE-----").unwrap();
        let end = text.find("-----END CERTIFICATE-----").unwrap() + "-----END CERTIFICATE-----".len();
        AwsLc.facts(&text[start..end]).unwrap().0.serial
    }
}
