//! `status`: what this node serves, how its components are, and what was applied.

pub mod handshake;
pub mod held;
pub mod listeners;
pub mod publish;

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;
use handshake::Recorder;
use jiff::Timestamp;
use listeners::{Component, Listener};
use rustls::pki_types::ServerName;
use sha2::{Digest as _, Sha256};
use slipway_core::digest::{hex, sha256_hex};
use slipway_core::node::report::{Applied, ComponentHealth, ComponentName, Instance, Served};
use slipway_core::node::{NodeConfig, NodeFile, NodeStatus};
use slipway_credentials::policy::{ETCD_DIR, KUBERNETES_DIR};

use crate::aws::{Aws, Endpoints, Retry};
use crate::credentials::{self, below};
use crate::etcd::place::CONFIG;
use crate::failure::{Failure, FailureCode, Outcome};
use crate::{etcd, http};

/// Where userdata puts who the node is.
pub const NODE: &str = "/var/lib/slipway/node.json";

const PATIENCE: Duration = Duration::from_secs(10);
/// Longest words of a component's that are passed on.
const WORDS: usize = 300;

/// What this node is at.
///
/// # Errors
/// If its configuration cannot be read.
pub async fn status(root: &Path, endpoints: &Endpoints) -> Outcome<NodeStatus> {
    of(root, instance(root, endpoints).await).await
}

/// What this node is at, which is `instance`.
///
/// # Errors
/// If its configuration cannot be read.
pub async fn of(root: &Path, instance: Option<Instance>) -> Outcome<NodeStatus> {
    let (config, text) = self::config(root)?;
    let now = Timestamp::now();
    let listeners = listeners::listeners(root, &config);
    let components = listeners::components(root, &config);
    let (served, components, etcd) = tokio::join!(
        join_all(listeners.iter().map(|listener| served(listener, now))),
        join_all(components.iter().map(ask)),
        member(root, &config),
    );
    let etcd = etcd?;
    let mut components = components;
    components.extend(etcd.as_ref().map(|health| ComponentHealth {
        name: ComponentName::Etcd.into(),
        healthy: health.healthy,
        problem: (!health.healthy).then(|| health.problems.join("; ")),
    }));
    let serves =
        |served: &Served| served.certificate.as_ref().is_some_and(|one| one.verifies || !served.verifiable);
    Ok(NodeStatus {
        format: NodeStatus::FORMAT,
        at: now,
        cluster: config.base().cluster.clone(),
        role: config.base().role.clone(),
        instance,
        applied: applied(root, &config, &text)?,
        healthy: served.iter().all(serves) && components.iter().all(|component| component.healthy),
        served,
        held: held::held(root, &config),
        components,
        etcd,
    })
}

/// What this node was told, and the text of it.
///
/// # Errors
/// If it cannot be read.
pub fn config(root: &Path) -> Outcome<(NodeConfig, String)> {
    let path = below(root, CONFIG);
    let text = std::fs::read_to_string(&path).map_err(|error| unreadable(&path, &error))?;
    let config = NodeConfig::read(&text).map_err(|error| unreadable(&path, &error))?;
    Ok((config, text))
}

/// The machine, if it is one of EC2's.
async fn instance(root: &Path, endpoints: &Endpoints) -> Option<Instance> {
    let region = node(root).ok()??.region;
    let retry = Retry { tries: 2, pause: Duration::from_millis(200) };
    let found = Aws::new(endpoints, &region).ok()?.with_retry(retry).imds().instance().await.ok()?;
    Some(Instance::from(found))
}

impl From<crate::aws::Instance> for Instance {
    fn from(found: crate::aws::Instance) -> Self {
        Self { id: found.id, availability_zone: found.availability_zone, private_address: found.local_ipv4 }
    }
}

async fn member(root: &Path, config: &NodeConfig) -> Outcome<Option<slipway_core::node::EtcdHealth>> {
    match config {
        NodeConfig::Etcd(config) => {
            let place = etcd::place::Place { root: root.to_owned(), config: (**config).clone() };
            etcd::health::health(&place).await.map(Some)
        }
        NodeConfig::Controller(_) | NodeConfig::Worker(_) => Ok(None),
    }
}

/// What `listener` presents.
pub async fn served(listener: &Listener, now: Timestamp) -> Served {
    let address = listener.address();
    let loopback = ServerName::IpAddress(address.ip().into());
    let name = listener.names_loopback.then_some(&loopback);
    let presented = handshake::present(address, listener.identity()).await;
    let judged = presented.and_then(|presented| presented.judge(listener.authority.as_deref(), name, now));
    let (certificate, problem) = match judged {
        Ok((certificate, problem)) => (Some(certificate), problem),
        Err(problem) => (None, Some(problem)),
    };
    Served {
        name: listener.name.to_owned(),
        address,
        certificate,
        problem,
        verifiable: listener.authority.is_some(),
    }
}

pub(crate) async fn ask(component: &Component) -> ComponentHealth {
    let problem = asked(component).await.err();
    ComponentHealth { name: component.name.into(), healthy: problem.is_none(), problem }
}

async fn asked(component: &Component) -> Result<(), String> {
    let identity =
        component.identity.as_ref().map(|(certificate, key)| (certificate.as_path(), key.as_path()));
    let tls = match &component.authority {
        Some(authority) => http::mutual(authority, identity).map_err(|failure| failure.message)?,
        None => Recorder::new().config(None)?,
    };
    let client = http::client(tls, PATIENCE).map_err(|failure| failure.message)?;
    let response = client.get(&component.url).send().await.map_err(|error| cause(&error))?;
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let text = response.text().await.unwrap_or_default();
    Err(format!("{status}: {}", text.trim().chars().take(WORDS).collect::<String>()))
}

/// The innermost cause says what happened: "connection refused", not "error sending request".
fn cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

fn applied(root: &Path, config: &NodeConfig, text: &str) -> Outcome<Applied> {
    let applied = Applied {
        config: Some(sha256_hex(text.as_bytes())),
        credentials: credentials::applied(root, credentials_folder(config))?,
        agent: agent(),
        as_asked: false,
    };
    let as_asked = node(root)?.is_some_and(|node| {
        applied.config.as_ref() == Some(&node.config)
            && applied.credentials.as_ref() == Some(&node.credentials)
            && (node.agent.is_none() || applied.agent == node.agent)
    });
    Ok(Applied { as_asked, ..applied })
}

/// The folder of a role's credentials.
#[must_use]
pub fn credentials_folder(config: &NodeConfig) -> &'static str {
    match config {
        NodeConfig::Etcd(_) => ETCD_DIR,
        NodeConfig::Controller(_) | NodeConfig::Worker(_) => KUBERNETES_DIR,
    }
}

/// Who the node is; `None` if nobody said.
///
/// # Errors
/// If that cannot be read.
pub fn node(root: &Path) -> Outcome<Option<NodeFile>> {
    let path = below(root, NODE);
    match std::fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text).map(Some).map_err(|error| unreadable(&path, &error)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(&path, &error)),
    }
}

/// SHA-256 of this very program.
fn agent() -> Option<String> {
    let mut file = File::open("/proc/self/exe").ok()?;
    let (mut digest, mut buffer) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer).ok()? {
            0 => return Some(hex(&digest.finalize())),
            length => digest.update(&buffer[..length]),
        }
    }
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::lasting(
        FailureCode::ConfigUnreadable,
        format!("{}: {error}", path.display()),
        "run `slipway-node bootstrap`, which fetches this node's configuration",
    )
}
