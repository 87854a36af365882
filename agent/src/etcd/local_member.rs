//! The member on this machine: its configuration, and the paths of its files.

use std::path::{Path, PathBuf};

use slipway_core::node::{EtcdConfig, NodeConfig};
use slipway_credentials::policy::ETCD_DIR;

use super::client::{Endpoint, EtcdClient};
use crate::credentials::below;
use crate::failure::{AgentError, AgentResult, FailureCode};
use crate::node_files;

/// The folder of etcd's data in its volume. Other folders beside it hold data that was put aside.
const DATA: &str = "data";

#[derive(Debug, Clone)]
pub struct LocalMember {
    /// The root of the file system, in tests another folder.
    pub root: PathBuf,
    pub config: EtcdConfig,
}

impl LocalMember {
    /// Reads the configuration below `root`. Refuses one that is not an etcd member's.
    pub fn read(root: &Path) -> AgentResult<Self> {
        match node_files::config(root)?.0 {
            NodeConfig::Etcd(config) => Ok(Self { root: root.to_owned(), config: *config }),
            NodeConfig::Controller(_) | NodeConfig::Worker(_) => Err(AgentError::permanent(
                FailureCode::EtcdNotAMember,
                "this node is not an etcd member",
                "run this on a node whose role is etcd-N",
            )),
        }
    }

    #[must_use]
    pub fn pki(&self) -> PathBuf {
        below(&self.root, ETCD_DIR)
    }

    /// `--data-dir` as in the unit, without the root.
    #[must_use]
    pub fn data_path(config: &EtcdConfig) -> String {
        format!("{}/{DATA}", config.data_volume.mount_point.trim_end_matches('/'))
    }

    #[must_use]
    pub fn data(&self) -> PathBuf {
        below(&self.root, &Self::data_path(&self.config))
    }

    pub fn client(&self) -> AgentResult<EtcdClient> {
        EtcdClient::new(&self.pki())
    }

    /// The member itself, on the loopback: its certificate names it.
    #[must_use]
    pub fn endpoint(&self, client: &EtcdClient) -> Endpoint {
        client.endpoint(&format!("https://127.0.0.1:{}", self.config.etcd.client_port))
    }

    #[must_use]
    pub fn peer_url(&self) -> String {
        self.config.etcd.peer_url()
    }

    /// Client URLs of the other members that the configuration names.
    #[must_use]
    pub fn known_client_urls(&self) -> Vec<String> {
        let etcd = &self.config.etcd;
        // A founder's configuration has only peer URLs; clients use the same names.
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
