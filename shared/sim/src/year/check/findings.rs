//! Rules that the engine is known to break: each is looked at only when the finding that it holds is repaired, or when
//! `SLIPWAY_STRICT` asks for all of them, so that whoever repairs one sees it before and after.

use std::sync::OnceLock;

/// A defect of the engine that is known, and that a rule of the checker finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::year) enum Finding {
    /// F1, F5: what an earlier invocation stored is performed, and departures go on, before an order is read.
    OrdersHeardLate,
    /// F1, F4: a member is taken down on answers, or after a snapshot, that are older than they may be when that is performed.
    EvidenceTooOld,
    /// An approval of what was aborted, or has failed, has it planned anew, and that plan begins where its policy or its urgency asks for no
    /// approval, although nobody has uploaded a spec.
    ApprovalBeginsAgain,
    /// A machine that its group has kept is mentioned to nobody.
    RetainedUnmentioned,
}

impl Finding {
    /// Findings that are repaired: their rules hold in every trial.
    const REPAIRED: &'static [Finding] = &[
        Finding::OrdersHeardLate,
        Finding::EvidenceTooOld,
        Finding::ApprovalBeginsAgain,
        Finding::RetainedUnmentioned,
    ];

    /// Whether its rule is looked at.
    pub(in crate::year) fn is_held(self) -> bool {
        static STRICT: OnceLock<bool> = OnceLock::new();
        Self::REPAIRED.contains(&self) || *STRICT.get_or_init(|| std::env::var_os("SLIPWAY_STRICT").is_some())
    }
}
