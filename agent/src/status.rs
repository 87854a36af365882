//! `status`: what this node serves, the health of its components, and what was applied.

pub mod client_certificates;
pub mod handshake;
pub(crate) mod late_report;
pub mod listeners;
pub mod publish;
pub(crate) mod registration;

use std::fs::File;
use std::io::Read as _;
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
use slipway_core::node::{NodeConfig, NodeStatus};
use slipway_credentials::policy::{ETCD_DIR, KUBERNETES_DIR};

use crate::aws::{Aws, Endpoints, Retry};
use crate::credentials;
use crate::failure::AgentResult;
use crate::node_files::{config, node};
use crate::workers_seen::WorkerRecord;
use crate::{etcd, http, passes};

const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Characters of a component's message that are reported.
const MESSAGE_LENGTH: usize = 300;

/// The status of this node.
pub async fn status(root: &Path, endpoints: &Endpoints) -> AgentResult<NodeStatus> {
    status_of_instance(root, instance(root, endpoints).await).await
}

/// The status of this node, which runs on `instance`.
pub async fn status_of_instance(root: &Path, instance: Option<Instance>) -> AgentResult<NodeStatus> {
    let (config, text) = config(root)?;
    // Before the time of this status is taken, so that no pass seems to have ended after it.
    let node_manager = match &config {
        NodeConfig::Controller(_) => passes::report(root),
        NodeConfig::Etcd(_) | NodeConfig::Worker(_) => None,
    };
    let now = Timestamp::now();
    let listeners = listeners::listeners(root, &config);
    let components = listeners::components(root, &config);
    let name = instance.as_ref().map(|instance| instance.id.clone());
    let node = async { registration::registration(root, &config, name.as_deref()?).await };
    let (served, components, etcd, node) = tokio::join!(
        join_all(listeners.iter().map(|listener| served(listener, now))),
        join_all(components.iter().map(component_health)),
        etcd_health(root, &config),
        node,
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
        held: client_certificates::certificates_on_node(root, &config),
        components,
        etcd,
        node,
        unready: match &config {
            NodeConfig::Controller(_) => WorkerRecord::read(root).unready,
            NodeConfig::Etcd(_) | NodeConfig::Worker(_) => Vec::new(),
        },
        node_manager,
    })
}

/// The instance, if this is one of EC2's.
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

async fn etcd_health(
    root: &Path,
    config: &NodeConfig,
) -> AgentResult<Option<slipway_core::node::EtcdHealth>> {
    match config {
        NodeConfig::Etcd(config) => {
            let local = etcd::local_member::LocalMember { root: root.to_owned(), config: (**config).clone() };
            etcd::health::health(&local).await.map(Some)
        }
        NodeConfig::Controller(_) | NodeConfig::Worker(_) => Ok(None),
    }
}

/// The certificate that `listener` presents.
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

pub(crate) async fn component_health(component: &Component) -> ComponentHealth {
    let problem = probe(component).await.err();
    ComponentHealth { name: component.name.into(), healthy: problem.is_none(), problem }
}

async fn probe(component: &Component) -> Result<(), String> {
    let identity =
        component.identity.as_ref().map(|(certificate, key)| (certificate.as_path(), key.as_path()));
    let tls = match &component.authority {
        Some(authority) => http::mutual(authority, identity).map_err(|failure| failure.message)?,
        None => Recorder::new().config(None)?,
    };
    let client = http::client(tls, PROBE_TIMEOUT).map_err(|failure| failure.message)?;
    let response = client.get(&component.url).send().await.map_err(|error| http::innermost_cause(&error))?;
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let text = response.text().await.unwrap_or_default();
    Err(format!("{status}: {}", text.trim().chars().take(MESSAGE_LENGTH).collect::<String>()))
}

fn applied(root: &Path, config: &NodeConfig, text: &str) -> AgentResult<Applied> {
    let applied = Applied {
        config: Some(sha256_hex(text.as_bytes())),
        credentials: credentials::applied(root, credentials_folder(config))?,
        agent: own_digest(),
        matches_node_file: false,
    };
    let matches_node_file = node(root)?.is_some_and(|node| {
        applied.config.as_ref() == Some(&node.config)
            && applied.credentials.as_ref() == Some(&node.credentials)
            && (node.agent.is_none() || applied.agent == node.agent)
    });
    Ok(Applied { matches_node_file, ..applied })
}

#[must_use]
pub fn credentials_folder(config: &NodeConfig) -> &'static str {
    match config {
        NodeConfig::Etcd(_) => ETCD_DIR,
        NodeConfig::Controller(_) | NodeConfig::Worker(_) => KUBERNETES_DIR,
    }
}

/// The SHA-256 of this program.
fn own_digest() -> Option<String> {
    let mut file = File::open("/proc/self/exe").ok()?;
    let (mut digest, mut buffer) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer).ok()? {
            0 => return Some(hex(&digest.finalize())),
            length => digest.update(&buffer[..length]),
        }
    }
}
