//! What a node serves and holds, put where scanner and rotation read it: nobody else can know it.

use std::path::Path;

use slipway_core::keys;
use slipway_core::node::{NodeFile, NodeStatus};

use super::{Instance, NODE, node, of};
use crate::aws::{Aws, Endpoints};
use crate::credentials::below;
use crate::failure::{Failure, FailureCode, Outcome};
use crate::machine::Unit;

/// Puts the status of this machine into the asset bucket, under its instance; the status.
///
/// # Errors
/// If the node was never told who it is, or AWS refuses.
pub async fn publish(root: &Path, endpoints: &Endpoints) -> Outcome<NodeStatus> {
    let node = node(root)?.ok_or_else(|| {
        Failure::lasting(
            FailureCode::ConfigUnreadable,
            format!("{} is missing: this machine was never told who it is", below(root, NODE).display()),
            "replace the node: its userdata writes that file",
        )
    })?;
    let aws = Aws::new(endpoints, &node.region)?;
    told(root, &aws, &node).await
}

/// As [`publish`], of `node`, with `aws`.
///
/// # Errors
/// As there.
pub async fn told(root: &Path, aws: &Aws, node: &NodeFile) -> Outcome<NodeStatus> {
    let found = aws.imds().instance().await?;
    let key = keys::node_status(&node.cluster, &node.role, &found.id);
    let status = of(root, Some(Instance::from(found))).await?;
    let text = serde_json::to_vec(&status).expect("a status has string keys only");
    aws.bucket(&node.asset_bucket).put(&key, &text).await?;
    Ok(status)
}

/// What tells it again, once an hour: dates draw near by themselves, and whoever was killed before he told is made up for. On workers
/// too: an authority is not dropped before each of them was heard of.
#[must_use]
pub fn units() -> [Unit; 2] {
    let service = "[Unit]\nDescription=What this node serves, told to Slipway\n\
                   After=network-online.target\nWants=network-online.target\n\n\
                   [Service]\nType=oneshot\nExecStart=/var/lib/slipway/slipway-node status --publish\nTimeoutStartSec=300\n\
                   Nice=5\nNoNewPrivileges=yes\nProtectSystem=strict\nProtectHome=yes\nPrivateTmp=yes\n";
    // At random: the members of a fleet that booted together need not tell together.
    let timer = "[Unit]\nDescription=What this node serves, told to Slipway\n\n\
                 [Timer]\nOnBootSec=10min\nOnUnitInactiveSec=1h\nRandomizedDelaySec=10min\n\n\
                 [Install]\nWantedBy=timers.target\n";
    [
        Unit { name: "slipway-status.service".to_owned(), content: Some(service.to_owned()) },
        Unit { name: "slipway-status.timer".to_owned(), content: Some(timer.to_owned()) },
    ]
}
