//! What a plan is for, in one word.

use serde::Serialize;

use super::Plan;

/// What a plan is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlanKind {
    /// The first one of a cluster: nothing stood.
    Launch,
    /// It brings another minor of Kubernetes or etcd.
    MinorUpgrade,
    /// It only brings other credentials to etcd members and controllers.
    Renewal,
    /// It changes nothing, and looks at what runs.
    Look,
    /// Any other.
    Change,
}

impl PlanKind {
    /// For a line of text.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::MinorUpgrade => "minor upgrade",
            Self::Renewal => "renewal",
            Self::Look => "look",
            Self::Change => "change",
        }
    }
}

impl Plan {
    /// What it is for.
    #[must_use]
    pub fn kind(&self) -> PlanKind {
        if self.is_empty() {
            PlanKind::Look
        } else if self.from.is_empty() {
            PlanKind::Launch
        } else if !self.minors.is_empty() {
            PlanKind::MinorUpgrade
        } else if self.is_renewal() {
            PlanKind::Renewal
        } else {
            PlanKind::Change
        }
    }
}
