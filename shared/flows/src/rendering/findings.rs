//! Findings that come from what is stored, not from the spec.

use slipway_core::cluster::Architecture;
use slipway_core::diagnostic::{Diagnostic, Severity};

use crate::credentials::Healed;

pub(super) fn healed(healed: &Healed) -> Diagnostic {
    Diagnostic {
        severity: Severity::Warning,
        help: Some("find out who wrote or deleted it: no function of Slipway does".to_owned()),
        ..Diagnostic::whole(
            "healed-credentials",
            format!(
                "{} {}; it was written again with what it held, and no node changes",
                healed.key, healed.problem
            ),
        )
    }
}

pub(super) fn shared_token() -> Diagnostic {
    Diagnostic {
        severity: Severity::Warning,
        help: Some(
            "publish the agent of this release with `slipway publish-agent`, then order the cluster to use it with \
             `slipway upgrade agent`: docs/upgrading.md"
                .to_owned(),
        ),
        ..Diagnostic::whole(
            "shared-bootstrap-token",
            "the pinned node agent supports only one bootstrap token for all nodes, so a compromised worker can request the first \
             certificate of a booting controller",
        )
    }
}

pub(super) fn no_agent(architecture: Architecture, severity: Severity) -> Diagnostic {
    let name = architecture.as_str();
    Diagnostic {
        severity,
        help: Some(format!(
            "publish it with `slipway publish-agent dist/{name}/slipway-node` (`make package` builds it), then upload the spec again"
        )),
        ..Diagnostic::whole(
            "no-agent",
            format!(
                "no node agent has been published for {name}: machines would boot, and never join the cluster"
            ),
        )
    }
}
