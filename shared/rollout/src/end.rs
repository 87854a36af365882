//! What a rollout leaves behind when it ends.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_core::role::Role;
use slipway_core::status::RolloutState;

use super::fleet::OWNER_TAG;
use super::{Active, Observed, Rollout, StackStatus, Step, StepState};

/// The end of a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ended {
    /// Id of the plan.
    pub plan: String,
    /// Version id of its spec.
    pub spec_version: String,
    /// Id of its release.
    pub target: String,
    /// Whether it was a renewal of what runs ([`slipway_plan::renewal_of_what_runs`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_what_runs: bool,
    /// Its result.
    pub result: RolloutResult,
    /// In words.
    pub message: String,
    /// When it ended.
    pub ended_at: Timestamp,
    /// The state of each stack.
    pub steps: Vec<Step>,
    /// Everything is as planned, and the cluster did not serve in the end, or a person aborted before that was known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unserved: bool,
}

/// [`Rollout::stopped`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Stopped {
    /// Version id of the spec.
    pub spec_version: String,
    /// [`Rendering::id_without_credentials`] of its release: patches and upgrades make another one of the same spec.
    pub changes: String,
}

/// [`Rollout::stopped_renewal`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StoppedRenewal {
    /// Version id of the spec.
    pub spec_version: String,
    /// [`Rendering::id_without_credentials`] of its release.
    ///
    /// [`Rendering::id_without_credentials`]: slipway_core::release::Rendering::id_without_credentials
    pub changes: String,
    /// Whether a person aborted it.
    pub aborted: bool,
    /// When it ended.
    pub at: Timestamp,
}

/// An upload that was rolled out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Upload {
    /// Version id of the spec.
    pub spec_version: String,
    /// Id of the plan.
    pub plan: String,
}

/// The result of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RolloutResult {
    /// Everything is as the plan says.
    Succeeded,
    /// It stopped by itself.
    Failed,
    /// A newer spec superseded it between two steps.
    Superseded,
    /// A person aborted it.
    Aborted,
}

/// The state in reports from then on.
impl From<RolloutResult> for RolloutState {
    fn from(result: RolloutResult) -> Self {
        match result {
            RolloutResult::Succeeded => Self::Succeeded,
            RolloutResult::Failed => Self::Failed,
            RolloutResult::Superseded => Self::Superseded,
            RolloutResult::Aborted => Self::Aborted,
        }
    }
}

impl Active {
    /// Whether CloudFormation is changing a stack, or is about to, so that what is deployed changes.
    #[must_use]
    pub fn changes_stacks(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.state, StepState::ChangeSet | StepState::Executing))
    }
}

impl Rollout {
    /// A rollout has ended. `changes`: [`slipway_core::release::Rendering::id_without_credentials`] of its release. `renews`: it renewed certificates and
    /// did nothing else, which says nothing about the upload that was rolled out before.
    pub(super) fn ends_with(&mut self, ended: Ended, changes: String, renews: bool) {
        if renews {
            let aborted = ended.result == RolloutResult::Aborted;
            let has_stopped = aborted || ended.result == RolloutResult::Failed && !ended.unserved;
            self.stopped_renewal = has_stopped.then(|| StoppedRenewal {
                spec_version: ended.spec_version.clone(),
                changes,
                aborted,
                at: ended.ended_at,
            });
        } else {
            self.stopped = match ended.result {
                // Everything is as planned, and nothing could begin again.
                RolloutResult::Failed if ended.unserved => None,
                RolloutResult::Failed | RolloutResult::Aborted => {
                    Some(Stopped { spec_version: ended.spec_version.clone(), changes })
                }
                RolloutResult::Succeeded | RolloutResult::Superseded => None,
            };
        }
        self.last = Some(ended);
    }

    /// Records that `active` begins: once stacks have its release, this is how its upload is known.
    pub(super) fn record_beginning(&mut self, active: &Active) {
        let has_release =
            |release: &String| self.deployed.values().chain(self.orphaned.values()).any(|has| has == release);
        let known: BTreeMap<String, Upload> = std::mem::take(&mut self.uploads)
            .into_iter()
            .filter(|(release, _)| has_release(release))
            .collect();
        self.uploads = known;
        let upload = Upload { spec_version: active.spec_version.clone(), plan: active.plan.clone() };
        // A release that stacks have already keeps its upload: another one renders to the same.
        self.uploads.entry(active.target.clone()).or_insert(upload);
        if !active.renews || active.approved {
            self.stopped_renewal = None;
        }
    }

    /// The work of `active` on a role is done.
    pub(super) fn completes(&mut self, active: &Active, role: &Role) {
        match active.left_behind.as_ref().and_then(|left| left.get(role)) {
            Some(left) => {
                self.earlier.insert(role.clone(), left.clone());
                let refreshed = active.nodes.refreshed_to(role);
                self.refreshed.extend(refreshed.map(|digest| (role.clone(), digest.to_owned())));
            }
            None => {
                self.earlier.remove(role);
                self.refreshed.remove(role);
            }
        }
    }

    /// Whether the upload with that version is looked at even if it changes nothing: after the last rollout the cluster did not serve. A
    /// daily scan plans the same version again, and does not count: it would fail again each day.
    #[must_use]
    pub fn must_check_again(&self, version: &str) -> bool {
        let last = self.last.as_ref().filter(|_| self.active().is_none());
        last.is_some_and(|last| last.unserved && last.spec_version != version)
    }
}

/// Remembers what runs. Returns whether only the look at the whole cluster is missing, so that the next upload has to be looked at.
pub(super) fn record_result(next: &mut Rollout, active: &Active, result: RolloutResult) -> bool {
    let only_the_look_is_left = stage_is_last(active);
    // However it ends: machines that have their credentials do not get them again.
    if result == RolloutResult::Succeeded || only_the_look_is_left {
        is_as_planned(next, active);
    }
    // A newer plan has a look of its own.
    matches!(result, RolloutResult::Failed | RolloutResult::Aborted) && only_the_look_is_left
}

/// The stacks that an ended rollout was creating and that exist, with its release.
pub(super) fn unfinished(next: &Rollout, active: &Active, observed: &Observed) -> Vec<(String, String)> {
    let creates =
        |step: &&Step| step.state != StepState::Done && !next.existing_releases().contains_key(&step.stack);
    let exists = |step: &&Step| {
        let view = observed.stacks.get(&step.stack).and_then(Option::as_ref);
        view.is_some_and(|view| {
            let is_ours = view.tags.get(OWNER_TAG) == step.tags.get(OWNER_TAG);
            is_ours && view.status != StackStatus::DeleteComplete
        })
    };
    let steps = active.steps.iter().filter(creates).filter(exists);
    steps.map(|step| (step.stack.clone(), active.target.clone())).collect()
}

/// Whether everything is as planned, and only the look at the whole cluster is not done.
fn stage_is_last(active: &Active) -> bool {
    active.steps.iter().all(|step| step.state == StepState::Done) && active.nodes.is_closing()
}

/// All stacks and nodes are as planned.
fn is_as_planned(next: &mut Rollout, active: &Active) {
    // Stacks that still exist are remembered with their release.
    for stack in active.stacks_by_hand.iter().chain(active.nodes.stacks_of_skipped()) {
        next.orphaned.extend(next.deployed.remove_entry(stack));
    }
    // Unchanged stacks are at the new release, too.
    for release in next.deployed.values_mut() {
        release.clone_from(&active.target);
    }
    // A role that the rollout did not change, or completed, is not behind; a role with skipped machines is.
    let left = |role: &Role| active.nodes.steps.iter().any(|step| step.is_skipped() && &step.role == role);
    let whole: Vec<Role> = next.earlier.keys().filter(|role| !left(role)).cloned().collect();
    whole.iter().for_each(|role| next.completes(active, role));
}
