//! `status.json`: a summary for people and scripts. No decision depends on it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};

use jiff::Timestamp;
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
    /// The result of the newest spec that was processed.
    pub spec: Option<SpecStatus>,
    /// The state of the current or last rollout.
    pub rollout: Option<Report>,
}

/// What a rollout or a destruction does, or how the last one ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RolloutState {
    /// Nothing was rolled out yet.
    #[default]
    Idle,
    /// A plan was requested, and no function has begun it. `slipway status` alone reports this.
    AboutToBegin,
    /// A plan waits for a person.
    WaitingForApproval,
    /// A rollout is open.
    Running,
    /// Nothing new starts until a person resumes.
    Paused,
    /// A rollout or a destruction ends early, and waits for what CloudFormation has begun.
    Aborting,
    /// What was decided cannot be performed.
    Stuck,
    /// The stacks are as planned, and the cluster serves.
    Succeeded,
    /// It stopped by itself.
    Failed,
    /// A newer spec ended it.
    Superseded,
    /// A person ended it.
    Aborted,
    /// The cluster is being destroyed.
    Destroying,
    /// The cluster was destroyed.
    Destroyed,
}

impl RolloutState {
    /// The word for it in `status.json`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::AboutToBegin => "about-to-begin",
            Self::WaitingForApproval => "waiting-for-approval",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Aborting => "aborting",
            Self::Stuck => "stuck",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Superseded => "superseded",
            Self::Aborted => "aborted",
            Self::Destroying => "destroying",
            Self::Destroyed => "destroyed",
        }
    }
}

impl Display for RolloutState {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The state of a rollout, for people.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// What it does, or how it ended.
    pub state: RolloutState,
    /// The number of the rollout.
    pub generation: u64,
    /// How many effects had been decided: a report with fewer is an older one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub decided: u64,
    /// Id of the plan.
    pub plan: Option<String>,
    /// What it does or waits for, in words, with the command that helps if there is one.
    pub message: String,
    /// While something is waited for: the command that a person can run about it, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The step of each stack, in words.
    pub stacks: BTreeMap<String, String>,
    /// The state of each role's nodes, in words.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, String>,
    /// Orphaned stacks: the spec no longer has them, but they still exist. A person deletes them; pools are deleted by the next plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub orphaned: Vec<String>,
    /// The newest order that came too late and was ignored, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored: Option<String>,
}

/// The result of processing a spec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SpecStatus {
    /// Version id of the object. After an upload that changes nothing it is the version that was processed before.
    pub version: String,
    /// The result.
    pub result: SpecResult,
    /// Findings: errors of a refused spec, warnings of an accepted one.
    pub diagnostics: Vec<Diagnostic>,
    /// Why processing failed although the spec is valid: the kind of error and its text.
    pub failure: Option<String>,
    /// The plan that was made from it.
    pub plan: Option<String>,
    /// The summary of the plan, in one line.
    pub summary: Option<String>,
}

/// The result of processing a spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SpecResult {
    /// Rendered and planned.
    Accepted,
    /// Refused because of errors.
    Rejected,
    /// Neither: something that rendering needs failed.
    Failed,
}

/// `clusters/<name>/desired.json`: the plan to execute. The render function writes it and the rollout function reads it. No event is
/// trusted for this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Desired {
    /// Version of this format.
    pub format: u32,
    /// Version id of the spec.
    pub spec_version: String,
    /// Id of the plan.
    pub plan: String,
    /// Id of the release that it results in.
    pub target: String,
    /// `deletionProtection` of the newest accepted spec: orders to destroy the cluster are not obeyed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deletion_protection: bool,
    /// `approval: manual` of an accepted spec, which counts until a person has approved a plan that takes it off: the plans that were
    /// known when it was turned on, none of which does that. `None`: no accepted spec says so, or it was taken off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manual_since: Option<BTreeSet<String>>,
    /// The newest accepted spec: scans use this one. `None`: an earlier release wrote this, and the accepted spec is that of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<AcceptedSpec>,
    /// The spec whose `etcd.snapshots` count although no rollout brought them: they change nothing that is rolled out, and no approval was
    /// asked for. A rollout that began later counts instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<SnapshotsSince>,
    /// The plan that waits for an approval while [`Self::plan`] renews certificates that expire soon, and does nothing else. It is desired again
    /// after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_aside: Option<SetAside>,
}

/// [`Desired::set_aside`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetAside {
    /// Version id of the spec.
    pub spec_version: String,
    /// Id of the plan.
    pub plan: String,
    /// Id of the release that it results in.
    pub target: String,
}

impl Desired {
    /// The plan `plan` of the spec `spec_version`, before the present one, which is set aside.
    #[must_use]
    pub fn set_aside_for(self, spec_version: &str, plan: &str, target: &str) -> Self {
        let present = SetAside {
            spec_version: self.spec_version.clone(),
            plan: self.plan.clone(),
            target: self.target.clone(),
        };
        let set_aside = self.set_aside.clone().or(Some(present));
        Self { set_aside, ..self.replaced_by(spec_version, plan, target) }
    }

    /// The plan `plan` of the spec `spec_version` in place of the present one, which nothing waits for.
    #[must_use]
    pub fn replaced_by(self, spec_version: &str, plan: &str, target: &str) -> Self {
        let (spec_version, plan, target) = (spec_version.to_owned(), plan.to_owned(), target.to_owned());
        Self { spec_version, plan, target, ..self }
    }

    /// The plan that was set aside is desired again; `None` if none was.
    #[must_use]
    pub fn restore_set_aside(&self) -> Option<Self> {
        let SetAside { spec_version, plan, target } = self.set_aside.clone()?;
        Some(Self { spec_version, plan, target, set_aside: None, ..self.clone() })
    }
}

/// A spec that was accepted: it was rendered, and its plan may wait for an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AcceptedSpec {
    /// Version id of the spec.
    pub version: String,
    /// SHA-256 of its text: the same text uploaded again changes nothing here.
    pub sha256: String,
}

/// [`Desired::snapshots`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SnapshotsSince {
    /// Version id of the spec.
    pub version: String,
    /// When it was accepted.
    pub at: Timestamp,
}

impl Status {
    /// The current format.
    pub const FORMAT: u32 = 1;

    /// The status of a cluster about which nothing is known yet.
    #[must_use]
    pub fn new(cluster: &str) -> Self {
        Self { format: Self::FORMAT, cluster: cluster.to_owned(), spec: None, rollout: None }
    }
}

impl Desired {
    /// The current format.
    pub const FORMAT: u32 = 1;

    /// Version id of the newest accepted spec.
    #[must_use]
    pub fn accepted_version(&self) -> &str {
        self.accepted.as_ref().map_or(&self.spec_version, |accepted| &accepted.version)
    }
}
