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
            "publish the agent of this release with `slipway publish-agent`, take \"agent\" out of the cluster's lock.json, and upload \
             the spec again: docs/upgrading.md"
                .to_owned(),
        ),
        ..Diagnostic::whole(
            "shared-bootstrap-token",
            "the pinned node agent knows one bootstrap token for all nodes only: whoever has taken over a worker can ask for the first \
             certificate of a controller that boots",
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
