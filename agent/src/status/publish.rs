//! Publishes a node's status to the asset bucket for scan and rotation: only the node itself can see what it serves.

use std::path::Path;

use slipway_core::keys;
use slipway_core::node::{NodeFile, NodeStatus};

use super::{Instance, late_report, status_of_instance};
use crate::aws::{self, Aws, Endpoints};
use crate::failure::AgentResult;
use crate::machine::Unit;
use crate::node_files::required_node;

/// Writes this node's status to the asset bucket, and returns it.
pub async fn publish(root: &Path, endpoints: &Endpoints) -> AgentResult<NodeStatus> {
    let node = required_node(root)?;
    let aws = Aws::new(endpoints, &node.region)?;
    publish_with(root, &aws, &node).await
}

/// The same, for `node` and with the client `aws`.
pub async fn publish_with(root: &Path, aws: &Aws, node: &NodeFile) -> AgentResult<NodeStatus> {
    let found = aws.imds().instance().await?;
    let late = keys::bootstrap_report(&node.cluster, &node.role, &found.arn);
    let status = publish_status_of(root, aws, node, found).await?;
    let bucket = aws.bucket(&node.asset_bucket);
    late_report::publish(root, async |report| bucket.put(&late, &report).await).await;
    Ok(status)
}

/// The same without what is left of the bootstrap: it writes nothing to this machine.
pub(crate) async fn publish_status(root: &Path, aws: &Aws, node: &NodeFile) -> AgentResult<NodeStatus> {
    publish_status_of(root, aws, node, aws.imds().instance().await?).await
}

async fn publish_status_of(
    root: &Path,
    aws: &Aws,
    node: &NodeFile,
    found: aws::Instance,
) -> AgentResult<NodeStatus> {
    let key = keys::node_status(&node.cluster, &node.role, &found.arn);
    let status = status_of_instance(root, Some(Instance::from(found))).await?;
    let text = serde_json::to_vec(&status).expect("a status has string keys only");
    aws.bucket(&node.asset_bucket).put(&key, &text).await?;
    Ok(status)
}

/// The units that publish it once an hour: expiry dates come nearer, and an earlier try may have been killed. Workers publish
/// too, because a rotation waits for every node before it drops an authority.
#[must_use]
pub fn units() -> [Unit; 2] {
    let service = "[Unit]\nDescription=Slipway: publish what this node serves\n\
                   After=network-online.target\nWants=network-online.target\n\n\
                   [Service]\nType=oneshot\nExecStart=/var/lib/slipway/slipway-node status --publish\nTimeoutStartSec=300\n\
                   Nice=5\nNoNewPrivileges=yes\nProtectSystem=strict\nProtectHome=yes\nPrivateTmp=yes\n";
    // The random delay spreads the calls of machines that booted together.
    let timer = "[Unit]\nDescription=Slipway: publish what this node serves\n\n\
                 [Timer]\nOnBootSec=10min\nOnUnitInactiveSec=1h\nRandomizedDelaySec=10min\n\n\
                 [Install]\nWantedBy=timers.target\n";
    [
        Unit { name: "slipway-status.service".to_owned(), content: Some(service.to_owned()) },
        Unit { name: "slipway-status.timer".to_owned(), content: Some(timer.to_owned()) },
    ]
}
