//! Findings that come from what is stored, not from the spec.

use slipway_core::cluster::Architecture;
use slipway_core::diagnostic::{Diagnostic, Severity};

use crate::credentials::Healed;

pub(super) fn healed(healed: &Healed) -> Diagnostic {
    Diagnostic {
        severity: Severity::Warning,
        help: Some("find out who wrote or deleted it: no function of Slipway does".to_owned()),
        ..Diagnostic::for_whole_spec(
            "healed-credentials",
            format!(
                "{} {}; it was restored with the same content, and no node changes",
                healed.key, healed.problem
            ),
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
        ..Diagnostic::for_whole_spec(
            "no-agent",
            format!(
                "no node agent has been published for {name}: machines would boot, and never join the cluster"
            ),
        )
    }
}
