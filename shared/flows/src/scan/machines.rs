//! The machines whose certificates a scan looks at.

use slipway_core::keys;
use slipway_credentials::renewal::{Finding, Machines};
use slipway_ports::Objects;

use crate::credentials::rotation;
use crate::error::FlowResult;
use crate::ports::Groups;

/// The machines that Auto Scaling has of etcd and the control plane. What no retry resolves is a finding. After any other failure the scan goes
/// on without them, so that it holds up no renewal, and fails at its end with the second value.
pub(super) async fn list(
    assets: &impl Objects,
    groups: &impl Groups,
    cluster: &str,
    findings: &mut Vec<Finding>,
) -> (Machines, FlowResult<()>) {
    match rotation::machines_with_leaves(assets, groups, cluster).await {
        Ok(machines) => (machines, Ok(())),
        Err(error) if error.is_transient() => (Machines::Unknown, Err(error)),
        Err(error) => {
            findings.push(Finding {
                key: keys::nodes(cluster),
                message: format!("it is not known which machines have to report their certificates: {error}"),
                help: "resolve that; until then, replaced certificates are taken for certificates in use"
                    .to_owned(),
            });
            (Machines::Unknown, Ok(()))
        }
    }
}
