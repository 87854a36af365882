//! Passes of the node manager in a cluster of [`Kubernetes`], as far as they need no machines.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;
use slipway_node::failure::AgentResult;
use slipway_node::manage::{Cloud, Library, Machine, Site, pass};

use super::Kubernetes;

impl Kubernetes {
    /// A pass of the node manager, in a cluster in which machines of `roles` are starting.
    pub async fn manage(&self, roles: &[&str]) -> Value {
        let site = Site {
            root: self.root().to_owned(),
            cluster: self.rendered.rendering.cluster.clone(),
            node: "i-0a1b2c3d4e5f60718".to_owned(),
        };
        let starting = Starting(roles.iter().map(|role| (*role).to_owned()).collect());
        pass(&site, &NoLibrary, &starting).await.expect("the node manager reaches the API server")
    }
}

/// A bucket without add-ons.
struct NoLibrary;

impl Library for NoLibrary {
    async fn get(&self, _: &str) -> AgentResult<Option<Vec<u8>>> {
        Ok(None)
    }
}

/// EC2 with machines of these roles, which have just been started and about which nothing else is known.
struct Starting(BTreeSet<String>);

impl Cloud for Starting {
    async fn machines(&self, _: &[&str]) -> AgentResult<BTreeMap<String, Machine>> {
        Ok(BTreeMap::new())
    }

    async fn starting_roles(&self, _: &str, _: Timestamp) -> AgentResult<BTreeSet<String>> {
        Ok(self.0.clone())
    }

    async fn report_unhealthy(&self, id: &str) -> AgentResult<Result<(), String>> {
        Ok(Err(format!("{id} is in no Auto Scaling group")))
    }
}
