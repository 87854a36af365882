//! What a rollout sees of machines: Auto Scaling's groups, and what they would launch. What it asks machines is
//! [`slipway_core::node::command`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// An Auto Scaling group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupView {
    /// Its name.
    pub name: String,
    /// How many machines it wants.
    pub desired: u32,
    /// At least.
    pub min: u32,
    /// At most.
    pub max: u32,
    /// What it would launch now.
    pub template: Option<TemplateVersion>,
    /// The machines in it, by id.
    pub machines: BTreeMap<String, MachineView>,
    /// Its tags: `slipway:cluster` says whose it is.
    pub tags: BTreeMap<String, String>,
}

/// A launch template at a version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateVersion {
    /// `lt-…`.
    pub id: String,
    /// A number.
    pub version: String,
}

/// A machine in a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineView {
    /// `eu-west-1a`.
    pub zone: String,
    /// Where in its life it is.
    pub lifecycle: Lifecycle,
    /// Auto Scaling's opinion (`HealthStatus`), which is EC2's.
    pub healthy: bool,
    /// What it was launched from; `None` for one that was attached.
    pub template: Option<TemplateVersion>,
}

impl MachineView {
    /// Whether Auto Scaling wants it to go, and somebody has to drain it.
    #[must_use]
    pub fn must_be_drained(&self) -> bool {
        match self.lifecycle {
            Lifecycle::TerminatingWait | Lifecycle::Retained => true,
            Lifecycle::Pending | Lifecycle::InService | Lifecycle::Terminating | Lifecycle::Elsewhere => {
                false
            }
        }
    }
}

/// `LifecycleState` of the Auto Scaling API, as far as a rollout tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Lifecycle {
    /// `Pending`, `Pending:Wait`, `Pending:Proceed`: its launch hook waits for the agent.
    Pending,
    /// `InService`: the agent said that it is healthy.
    InService,
    /// `Terminating:Wait`: its terminate hook waits.
    TerminatingWait,
    /// `Terminating`, `Terminating:Proceed`, `Terminated`: on its way out.
    Terminating,
    /// `Terminating:Retained`: its terminate hook was abandoned, so that its group keeps it until somebody terminates it once more.
    Retained,
    /// `Standby`, `Detaching`, the warm pool's: somebody else's doing.
    Elsewhere,
}
