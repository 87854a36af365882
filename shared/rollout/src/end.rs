//! What a rollout leaves behind when it ends.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_core::release::StackKind;
use slipway_core::role::Role;
use slipway_core::status::RolloutState;

use super::fleet::OWNER_TAG;
use super::{Active, Observed, Rollout, StackStatus, Step, StepState, Wanted};

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

impl Ended {
    /// The end of a rollout that never began, because nothing may be changed, or nothing has to be.
    pub(super) fn without_beginning(
        wanted: &Wanted,
        result: RolloutResult,
        message: String,
        now: Timestamp,
    ) -> Self {
        let (desired, plan) = (&wanted.desired, &wanted.plan);
        Self {
            plan: plan.id.clone(),
            spec_version: desired.spec_version.clone(),
            target: plan.to.clone(),
            of_what_runs: plan.left_behind.is_some(),
            result,
            message,
            ended_at: now,
            steps: Vec::new(),
            unserved: false,
        }
    }
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
            // An order to destroy the cluster ends a renewal, too, and says nothing about it.
            let aborted = ended.result == RolloutResult::Aborted && !self.is_going();
            let has_stopped = !ended.unserved && (aborted || ended.result == RolloutResult::Failed);
            self.stopped_renewal = has_stopped.then(|| StoppedRenewal {
                spec_version: ended.spec_version.clone(),
                changes,
                aborted,
                at: ended.ended_at,
            });
        } else {
            self.stopped = match ended.result {
                // Everything is as planned, and nothing could begin again.
                RolloutResult::Failed | RolloutResult::Aborted if ended.unserved => None,
                RolloutResult::Failed | RolloutResult::Aborted => {
                    Some(Stopped { spec_version: ended.spec_version.clone(), changes })
                }
                RolloutResult::Succeeded | RolloutResult::Superseded => None,
            };
        }
        self.last = Some(ended);
    }

    /// Records that the newest upload changes nothing, if it came after a rollout that did not succeed: a person went back to what runs, and nothing
    /// of what had stopped can begin any more.
    ///
    /// `why_not`: why the cluster is not as the spec says although no stack differs.
    pub(super) fn record_return(&mut self, wanted: &Wanted, why_not: Option<String>, now: Timestamp) {
        let (desired, plan) = (&wanted.desired, &wanted.plan);
        let is_other = |last: &&Ended| {
            last.result != RolloutResult::Succeeded
                && !last.unserved
                && last.spec_version != desired.spec_version
        };
        let changes_nothing = plan.is_empty() && plan.left_behind.is_none() && self.is_start_of(plan);
        if !changes_nothing || self.last.as_ref().filter(is_other).is_none() {
            return;
        }
        let (result, message) = match why_not {
            Some(why_not) => (RolloutResult::Failed, why_not),
            None => {
                self.stopped = None;
                let message = "nothing to roll out: everything is already as the newest spec says";
                (RolloutResult::Succeeded, message.to_owned())
            }
        };
        self.last = Some(Ended::without_beginning(wanted, result, message, now));
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

/// Deleted stacks are not part of the state any more: a plan starts without them.
pub(super) fn forget(next: &mut Rollout, active: &Active) {
    for step in active.nodes.deleted_pools() {
        next.deployed.remove(&step.stack);
        next.orphaned.remove(&step.stack);
        next.unfinished.remove(&step.stack);
        next.earlier.remove(&step.role);
        next.refreshed.remove(&step.role);
        next.force_after_s.remove(&step.role);
        next.left_over.remove(&step.role);
    }
}

/// A stack is at the target from now on; its nodes are not yet.
pub(super) fn stands(next: &mut Rollout, active: &Active, stack: &str) {
    // An orphaned stack belongs to the cluster again; its nodes still have the release that it was left with.
    let orphaned = next.orphaned.remove(stack);
    next.unfinished.remove(stack);
    let before = next.deployed.insert(stack.to_owned(), active.target.clone()).or(orphaned);
    if active.steps.iter().any(|step| step.stack == stack && step.kind == StackKind::Etcd) {
        // A renewal of what runs keeps the groups of members that an earlier rollout has removed.
        if active.left_behind.is_none() {
            next.removed_members.clear();
        }
        next.joined_members.clear();
    }
    let of_stack = active.nodes.steps.iter().filter(|step| step.stack == stack && step.work().renews());
    for step in of_stack.filter(|step| !step.is_done()) {
        let earlier = next.earlier.entry(step.role.clone()).or_default();
        earlier.extend(before.clone());
        earlier.remove(&active.target);
        if earlier.is_empty() {
            next.earlier.remove(&step.role);
            next.refreshed.remove(&step.role);
        }
    }
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

/// Stacks of removed pools that could not be deleted: nobody knows what there is of them, so a plan creates them again or deletes the rest.
pub(super) fn record_half_deleted(next: &mut Rollout, active: &Active, observed: &Observed) {
    let failed = |stack: &String| {
        let view = observed.stacks.get(stack).and_then(Option::as_ref);
        view.is_some_and(|view| view.status == StackStatus::DeleteFailed)
    };
    for stack in active.nodes.removed_stacks().filter(|stack| failed(stack)) {
        let stood = next.deployed.remove(stack).or_else(|| next.orphaned.remove(stack));
        next.unfinished.extend(stood.map(|release| (stack.clone(), release)));
    }
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
