//! The listeners of each role, and how the health of each component is probed.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use slipway_core::node::NodeConfig;
use slipway_core::node::report::ComponentName;
use slipway_credentials::policy::{ETCD_DIR, KUBERNETES_DIR};

use crate::credentials::below;

/// The kubelet: HTTPS, and its health in plain HTTP on the loopback.
const KUBELET: u16 = 10250;
const KUBELET_HEALTH: u16 = 10248;
pub(crate) const CONTROLLER_MANAGER_PORT: u16 = 10257;
pub(crate) const SCHEDULER_PORT: u16 = 10259;

/// A TLS listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    pub name: &'static str,
    pub port: u16,
    /// The authority of its certificate; `None` if it is self-signed.
    pub authority: Option<PathBuf>,
    pub names_loopback: bool,
    /// The client certificate and key that it requires.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The file of its certificate, if it is in the bundle.
    pub file: Option<PathBuf>,
}

/// A component with an HTTP health endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    pub name: ComponentName,
    pub url: String,
    /// The authority of its certificate; `None` if it is not checked.
    pub authority: Option<PathBuf>,
    /// The client certificate and key to present.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Listener {
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    #[must_use]
    pub fn identity(&self) -> Option<(&Path, &Path)> {
        self.identity.as_ref().map(|(certificate, key)| (certificate.as_path(), key.as_path()))
    }
}

/// The listeners of a node.
#[must_use]
pub fn listeners(root: &Path, config: &NodeConfig) -> Vec<Listener> {
    let kubernetes = |name: &str| below(root, KUBERNETES_DIR).join(name);
    // On a controller, kubelet-ca.pem has only the current signer; client-ca.pem has the earlier ones too.
    let signers = match config {
        NodeConfig::Controller(_) => "client-ca.pem",
        NodeConfig::Etcd(_) | NodeConfig::Worker(_) => "kubelet-ca.pem",
    };
    // The kubelet requests its own certificate, which names the machine and not the loopback.
    let kubelet = Listener {
        name: "kubelet",
        port: KUBELET,
        authority: Some(kubernetes(signers)),
        names_loopback: false,
        identity: None,
        file: None,
    };
    let own = |name, port| Listener {
        name,
        port,
        authority: None,
        names_loopback: false,
        identity: None,
        file: None,
    };
    match config {
        NodeConfig::Etcd(config) => {
            let pki = below(root, ETCD_DIR);
            let listener = |name, port, file: &str| Listener {
                name,
                port,
                authority: Some(pki.join("etcd-ca.pem")),
                names_loopback: true,
                identity: Some((pki.join("healthcheck-client.pem"), pki.join("healthcheck-client-key.pem"))),
                file: Some(pki.join(file)),
            };
            let etcd = &config.etcd;
            vec![
                listener("etcd-client", etcd.client_port, "server.pem"),
                listener("etcd-peer", etcd.peer_port, "peer.pem"),
            ]
        }
        NodeConfig::Controller(config) => {
            let apiserver = Listener {
                name: "kube-apiserver",
                port: config.control_plane.bind_port,
                authority: Some(kubernetes("ca.pem")),
                names_loopback: true,
                identity: None,
                file: Some(kubernetes("apiserver.pem")),
            };
            let manager = own("kube-controller-manager", CONTROLLER_MANAGER_PORT);
            vec![apiserver, manager, own("kube-scheduler", SCHEDULER_PORT), kubelet]
        }
        NodeConfig::Worker(_) => vec![kubelet],
    }
}

/// The components of a node, except etcd, whose own verb checks it.
#[must_use]
pub fn components(root: &Path, config: &NodeConfig) -> Vec<Component> {
    let kubernetes = |name: &str| below(root, KUBERNETES_DIR).join(name);
    let kubelet = Component {
        name: ComponentName::Kubelet,
        url: format!("http://127.0.0.1:{KUBELET_HEALTH}/healthz"),
        authority: None,
        identity: None,
    };
    let own = |name, port: u16| Component {
        name,
        url: format!("https://127.0.0.1:{port}/healthz"),
        authority: None,
        identity: None,
    };
    match config {
        NodeConfig::Etcd(_) => Vec::new(),
        NodeConfig::Controller(config) => {
            let apiserver = Component {
                name: ComponentName::ApiServer,
                url: format!("https://127.0.0.1:{}/readyz", config.control_plane.bind_port),
                authority: Some(kubernetes("ca.pem")),
                identity: Some((kubernetes("node-manager.pem"), kubernetes("node-manager-key.pem"))),
            };
            let manager = own(ComponentName::ControllerManager, CONTROLLER_MANAGER_PORT);
            vec![apiserver, manager, own(ComponentName::Scheduler, SCHEDULER_PORT), kubelet]
        }
        NodeConfig::Worker(_) => vec![kubelet],
    }
}
