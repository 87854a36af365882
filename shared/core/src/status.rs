//! `status.json`: what a person or a script asks first. Nothing decides by it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::diagnostic::Diagnostic;

/// `clusters/<name>/status.json`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Version of this format.
    pub format: u32,
    /// `clusterName`.
    pub cluster: String,
    /// What became of the newest spec that was looked at.
    pub spec: Option<SpecStatus>,
    /// What the rollout does, or did last.
    pub rollout: Option<Report>,
}

/// How a rollout stands, for a person.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// `idle`, `running`, `paused`, `aborting`, `waiting-for-approval`, `succeeded`, `failed`, `superseded`, `aborted`, `stuck`,
    /// `destroying`, `destroyed`.
    pub state: String,
    /// Counts the rollouts.
    pub generation: u64,
    /// Id of the plan.
    pub plan: Option<String>,
    /// What it does or waits for, in words, with the command that helps where one does.
    pub message: String,
    /// Each stack's step in words.
    pub stacks: BTreeMap<String, String>,
    /// Each role's nodes in words.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, String>,
    /// Stacks that the spec has no longer and that still stand: to be deleted by a person, or pools that the next plan takes away.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
    /// The newest order that came too late and was not obeyed, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored: Option<String>,
}

/// What became of a spec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SpecStatus {
    /// Version id of the object. An upload that changes nothing leaves the version that was looked at before.
    pub version: String,
    /// What became of it.
    pub result: SpecResult,
    /// Findings: errors of a refused spec, warnings of an accepted one.
    pub diagnostics: Vec<Diagnostic>,
    /// Why it failed, for a spec that is sound where the world is not: the kind of the error and its text.
    pub failure: Option<String>,
    /// The plan that was made from it.
    pub plan: Option<String>,
    /// That plan in one line.
    pub summary: Option<String>,
}

/// What became of a spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SpecResult {
    /// Rendered and planned.
    Accepted,
    /// Refused: it has errors.
    Rejected,
    /// Neither: something that rendering needs did not work.
    Failed,
}

/// `clusters/<name>/desired.json`: the plan that should be executed. The render function writes it, the rollout
/// function reads it, and neither trusts an event to say it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Desired {
    /// Version of this format.
    pub format: u32,
    /// Version id of the spec.
    pub spec_version: String,
    /// Id of the plan.
    pub plan: String,
    /// Id of the release that it leads to.
    pub target: String,
}

impl Status {
    /// The current format.
    pub const FORMAT: u32 = 1;

    /// An empty status of a cluster.
    #[must_use]
    pub fn of(cluster: &str) -> Self {
        Self { format: Self::FORMAT, cluster: cluster.to_owned(), spec: None, rollout: None }
    }
}

impl Desired {
    /// The current format.
    pub const FORMAT: u32 = 1;
}
