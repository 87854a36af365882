//! The files that make a machine a node, as the user data and the agent leave them in [`HOME`].

use std::io::ErrorKind;
use std::path::Path;

use slipway_core::node::{NodeConfig, NodeFile};

use crate::credentials::below;
use crate::failure::{AgentError, AgentResult, FailureCode};

/// Where the user data writes a node's files.
pub const HOME: &str = "/var/lib/slipway";
pub const NODE: &str = "/var/lib/slipway/node.json";
const CONFIG: &str = "/var/lib/slipway/config.json";
/// The bundle of credentials, as it is stored.
pub const SEALED: &str = "/var/lib/slipway/credentials.sealed";

/// This node's configuration, and its text.
pub fn config(root: &Path) -> AgentResult<(NodeConfig, String)> {
    let path = below(root, CONFIG);
    let text = std::fs::read_to_string(&path).map_err(|error| unreadable(&path, &error))?;
    let config = NodeConfig::read(&text).map_err(|error| unreadable(&path, &error))?;
    Ok((config, text))
}

/// `node.json`; `None` if it is missing.
pub fn node(root: &Path) -> AgentResult<Option<NodeFile>> {
    let path = below(root, NODE);
    match std::fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text).map(Some).map_err(|error| unreadable(&path, &error)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(&path, &error)),
    }
}

/// `node.json`, which must be there.
pub fn required_node(root: &Path) -> AgentResult<NodeFile> {
    node(root)?.ok_or_else(|| {
        AgentError::permanent(
            FailureCode::ConfigUnreadable,
            format!(
                "{} is missing: without it the agent does not know which node this is",
                below(root, NODE).display()
            ),
            "replace the node: its user data writes that file",
        )
    })
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> AgentError {
    AgentError::permanent(
        FailureCode::ConfigUnreadable,
        format!("{}: {error}", path.display()),
        "run `/var/lib/slipway/slipway-node bootstrap`, which fetches this node's configuration",
    )
}
