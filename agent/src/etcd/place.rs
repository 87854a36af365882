//! The member on this machine: what its configuration says, and where its files lie below the root.

use std::path::{Path, PathBuf};

use slipway_core::node::{EtcdConfig, NodeConfig};
use slipway_credentials::policy::ETCD_DIR;

use super::client::{Caller, Endpoint};
use crate::credentials::below;
use crate::failure::{Failure, FailureCode, Outcome};

/// Where userdata puts a node's configuration.
pub const CONFIG: &str = "/var/lib/slipway/config.json";
/// The folder of etcd's data in its volume: beside it there is room for what is put aside.
const DATA: &str = "data";

/// This machine's member.
#[derive(Debug, Clone)]
pub struct Place {
    /// Before every path.
    pub root: PathBuf,
    /// What it was told.
    pub config: EtcdConfig,
}

impl Place {
    /// Reads the configuration below `root`.
    ///
    /// # Errors
    /// If there is none, or it is not of an etcd member.
    pub fn read(root: &Path) -> Outcome<Self> {
        let path = below(root, CONFIG);
        let unreadable = |problem: String| {
            Failure::lasting(
                FailureCode::ConfigUnreadable,
                format!("{}: {problem}", path.display()),
                "run `slipway-node bootstrap`, which fetches this node's configuration",
            )
        };
        let text = std::fs::read_to_string(&path).map_err(|error| unreadable(error.to_string()))?;
        match NodeConfig::read(&text).map_err(|error| unreadable(error.to_string()))? {
            NodeConfig::Etcd(config) => Ok(Self { root: root.to_owned(), config: *config }),
            NodeConfig::Controller(_) | NodeConfig::Worker(_) => Err(Failure::lasting(
                FailureCode::EtcdNone,
                "this node is no etcd member",
                "run this on a node whose role is etcd-N",
            )),
        }
    }

    /// Its credentials.
    #[must_use]
    pub fn pki(&self) -> PathBuf {
        below(&self.root, ETCD_DIR)
    }

    /// `--data-dir` as the unit has it: without the root.
    #[must_use]
    pub fn data_path(config: &EtcdConfig) -> String {
        format!("{}/{DATA}", config.data_volume.mount_point.trim_end_matches('/'))
    }

    /// Its data.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        below(&self.root, &Self::data_path(&self.config))
    }

    /// Who calls, with the credentials as they are now.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn caller(&self) -> Outcome<Caller> {
        Caller::new(&self.pki())
    }

    /// The member itself, on this machine: its certificate names the loopback.
    #[must_use]
    pub fn own(&self, caller: &Caller) -> Endpoint {
        caller.at(&format!("https://127.0.0.1:{}", self.config.etcd.client_port))
    }

    /// Where its fellows come to it.
    #[must_use]
    pub fn peer_url(&self) -> String {
        format!("https://{}:{}", self.config.etcd.dns_name, self.config.etcd.peer_port)
    }

    /// Where its fellows may be found that it was told of, without itself.
    #[must_use]
    pub fn told(&self) -> Vec<String> {
        let etcd = &self.config.etcd;
        // A founder is told of peers alone; clients come to the same names.
        let founders = etcd.initial_cluster.iter().filter(|(name, _)| **name != etcd.name);
        let founders = founders.filter_map(|(_, url)| {
            let (host, _) = url.rsplit_once(':')?;
            Some(format!("{host}:{}", etcd.client_port))
        });
        let mut urls = etcd.join_endpoints.clone();
        urls.extend(founders);
        urls.dedup();
        urls
    }
}
