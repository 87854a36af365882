//! Who listens on a node of each role, and how each is asked whether it is well.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use slipway_core::node::NodeConfig;
use slipway_core::node::report::ComponentName;
use slipway_credentials::policy::{ETCD_DIR, KUBERNETES_DIR};

use crate::credentials::below;

/// Of the kubelet: with a certificate, and its health in plain on the loopback.
const KUBELET: u16 = 10250;
const KUBELET_HEALTH: u16 = 10248;
/// Of kube-controller-manager and kube-scheduler.
const CONTROLLER_MANAGER: u16 = 10257;
const SCHEDULER: u16 = 10259;

/// One who listens with a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// As the status names it.
    pub name: &'static str,
    /// On the loopback.
    pub port: u16,
    /// Who signs its certificate; `None`: it makes its own.
    pub authority: Option<PathBuf>,
    /// Whether its certificate names the loopback.
    pub names_loopback: bool,
    /// What it wants to see of whoever calls: certificate and key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Its certificate's file, where the bundle brings it.
    pub file: Option<PathBuf>,
}

/// One that is asked over HTTP whether it is well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// Which.
    pub name: ComponentName,
    /// Where.
    pub url: String,
    /// Who signs what it presents; `None`: nobody checks that.
    pub authority: Option<PathBuf>,
    /// Who asks.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Listener {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// See [`Listener::identity`].
    #[must_use]
    pub fn identity(&self) -> Option<(&Path, &Path)> {
        self.identity.as_ref().map(|(certificate, key)| (certificate.as_path(), key.as_path()))
    }
}

/// Who listens on a node that was told `config`, whose files lie below `root`.
#[must_use]
pub fn listeners(root: &Path, config: &NodeConfig) -> Vec<Listener> {
    let kubernetes = |name: &str| below(root, KUBERNETES_DIR).join(name);
    // A controller's kubelet-ca.pem is the one that signs; who signed before lies with all that sign clients.
    let signers = match config {
        NodeConfig::Controller(_) => "client-ca.pem",
        NodeConfig::Etcd(_) | NodeConfig::Worker(_) => "kubelet-ca.pem",
    };
    // It asks for its certificate by itself, and names the machine in it.
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
            let manager = own("kube-controller-manager", CONTROLLER_MANAGER);
            vec![apiserver, manager, own("kube-scheduler", SCHEDULER), kubelet]
        }
        NodeConfig::Worker(_) => vec![kubelet],
    }
}

/// Who is asked whether it is well; etcd is asked by its own verb.
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
            let manager = own(ComponentName::ControllerManager, CONTROLLER_MANAGER);
            vec![apiserver, manager, own(ComponentName::Scheduler, SCHEDULER), kubelet]
        }
        NodeConfig::Worker(_) => vec![kubelet],
    }
}
