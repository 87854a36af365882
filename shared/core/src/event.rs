//! The events on the bus `slipway` (design §4), each detail-type a Rust type.
//!
//! An event wakes somebody up; whoever is woken reads the state and trusts that, not the event. Details carry no
//! secrets.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `source` of every event that Slipway publishes.
pub const SOURCE: &str = "slipway";

/// The JSON Schema of each detail, by detail-type: what `infra/events/` holds.
#[must_use]
pub fn schemas() -> BTreeMap<&'static str, schemars::Schema> {
    BTreeMap::from([
        ("Spec Rejected", schemars::schema_for!(SpecRejected)),
        ("Plan Ready", schemars::schema_for!(PlanReady)),
        ("Plan Unchanged", schemars::schema_for!(PlanUnchanged)),
        ("Rollout Requested", schemars::schema_for!(PlanReference)),
        ("Rollout Approved", schemars::schema_for!(PlanReference)),
        ("Rollout Started", schemars::schema_for!(PlanReference)),
        ("Rollout Step", schemars::schema_for!(RolloutReport)),
        ("Rollout Waiting", schemars::schema_for!(RolloutReport)),
        ("Rollout Succeeded", schemars::schema_for!(RolloutReport)),
        ("Rollout Failed", schemars::schema_for!(RolloutReport)),
    ])
}

/// What Slipway publishes, and what it is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "detail-type", content = "detail")]
pub enum Event {
    /// A spec was refused; what runs stays as it was.
    #[serde(rename = "Spec Rejected")]
    SpecRejected(SpecRejected),
    /// There is a plan.
    #[serde(rename = "Plan Ready")]
    PlanReady(PlanReady),
    /// A spec was uploaded that changes nothing.
    #[serde(rename = "Plan Unchanged")]
    PlanUnchanged(PlanUnchanged),
    /// Asks that a plan be executed; sent by the render function where approval is `auto`.
    #[serde(rename = "Rollout Requested")]
    RolloutRequested(PlanReference),
    /// A person approves a plan that waits.
    #[serde(rename = "Rollout Approved")]
    RolloutApproved(PlanReference),
    /// A rollout has begun.
    #[serde(rename = "Rollout Started")]
    RolloutStarted(PlanReference),
    /// A step was taken.
    #[serde(rename = "Rollout Step")]
    RolloutStep(RolloutReport),
    /// A rollout waits, said once a reason.
    #[serde(rename = "Rollout Waiting")]
    RolloutWaiting(RolloutReport),
    /// A rollout has reached its target.
    #[serde(rename = "Rollout Succeeded")]
    RolloutSucceeded(RolloutReport),
    /// A rollout stopped by itself.
    #[serde(rename = "Rollout Failed")]
    RolloutFailed(RolloutReport),
}

/// Detail of `Spec Rejected`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpecRejected {
    /// The folder under `clusters/`.
    pub cluster: String,
    /// Version id of the refused object.
    pub spec_version: String,
    /// The findings, `line:column: message` with their help; the first fifty.
    pub diagnostics: Vec<String>,
    /// How many there are in all.
    pub total: usize,
}

/// Detail of `Plan Ready`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanReady {
    /// `clusterName`.
    pub cluster: String,
    /// Id of the plan: `plans/<id>.json`.
    pub plan: String,
    /// Version id of the spec that it was made from.
    pub spec_version: String,
    /// Whether it waits for `Rollout Approved`.
    pub needs_approval: bool,
    /// One line for a person.
    pub summary: String,
}

/// Detail of `Plan Unchanged`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanUnchanged {
    /// `clusterName`.
    pub cluster: String,
    /// Version id of the spec.
    pub spec_version: String,
}

/// Names a plan of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanReference {
    /// `clusterName`.
    pub cluster: String,
    /// Id of the plan.
    pub plan: String,
}

/// Detail of the `Rollout …` events that report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutReport {
    /// `clusterName`.
    pub cluster: String,
    /// Id of the plan.
    pub plan: String,
    /// What was done, or what is waited for, in words.
    pub message: String,
}

impl Event {
    /// The `detail-type` and the `detail` as they go onto the bus.
    #[must_use]
    pub fn to_wire(&self) -> (String, String) {
        let value = serde_json::to_value(self).expect("events have string keys only");
        let text = |key: &str| value.get(key).cloned().unwrap_or_default();
        (text("detail-type").as_str().unwrap_or_default().to_owned(), text("detail").to_string())
    }

    /// The cluster that it is about.
    #[must_use]
    pub fn cluster(&self) -> &str {
        match self {
            Self::SpecRejected(detail) => &detail.cluster,
            Self::PlanReady(detail) => &detail.cluster,
            Self::PlanUnchanged(detail) => &detail.cluster,
            Self::RolloutRequested(detail) | Self::RolloutApproved(detail) | Self::RolloutStarted(detail) => {
                &detail.cluster
            }
            Self::RolloutStep(detail)
            | Self::RolloutWaiting(detail)
            | Self::RolloutSucceeded(detail)
            | Self::RolloutFailed(detail) => &detail.cluster,
        }
    }
}
