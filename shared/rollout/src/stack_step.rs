//! The step of one stack, from its template to `…_COMPLETE`, through a change set.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_core::release::ETCD_HOSTED_ZONE;

use super::errand::PAUSE;
use super::fleet::OWNER_TAG;
use super::outbox::Effects;
use super::patience::CONSISTENT;
use super::progress::Waiting;
use super::waits::{ChangeSetWaits, Detail, StackWaits};
use super::{
    Active, ChangeSetRequest, ChangeSetStatus, ChangeSetView, Effect, Observed, ResourceFailure, Rollout,
    StackStatus, StackView, Step, StepState,
};

/// The next move of a step.
pub(super) struct Advance {
    /// Its next state.
    pub(super) state: StepState,
    /// The effects.
    pub(super) effects: Vec<Effect>,
    /// What it waits for.
    pub(super) waits: StackWaits,
}

/// What was requested of CloudFormation, and is not visible yet. Its answers may be late, for at most [`CONSISTENT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Unseen {
    /// The execution of a change set, or the repair of the stack by a person before the rollout.
    Execution {
        /// Since when neither its result nor the change set is there, or the stack is in a status that would fail the step.
        since: Timestamp,
    },
    /// The stack of a change set that is taken back.
    Stack {
        /// Since when it is looked for.
        since: Timestamp,
    },
    /// The deletion of a stack that is taken back.
    Deletion {
        /// When it was last requested.
        sent: Timestamp,
    },
}

/// The meaning of a stack's status for a step.
pub(super) enum Phase {
    /// No stack, or one that is only a change set so far.
    Absent,
    /// The rest of a failed creation: it can only be deleted.
    Wreck,
    /// It exists, and accepts a change set.
    Stable,
    /// CloudFormation is changing it.
    Busy,
    /// A person must act.
    Stuck(&'static str),
}

pub(super) fn phase(status: StackStatus) -> Phase {
    use StackStatus as S;
    match status {
        S::ReviewInProgress | S::DeleteComplete => Phase::Absent,
        // CloudFormation deletes them as they are; nothing is retained, because the next creation needs the names of the groups.
        S::RollbackComplete | S::CreateFailed | S::RollbackFailed => Phase::Wreck,
        S::CreateComplete
        | S::UpdateComplete
        | S::UpdateRollbackComplete
        | S::ImportComplete
        | S::ImportRollbackComplete => Phase::Stable,
        S::CreateInProgress
        | S::RollbackInProgress
        | S::UpdateInProgress
        | S::UpdateCompleteCleanupInProgress
        | S::UpdateRollbackInProgress
        | S::UpdateRollbackCompleteCleanupInProgress
        | S::DeleteInProgress
        | S::ImportInProgress
        | S::ImportRollbackInProgress => Phase::Busy,
        S::UpdateFailed | S::UpdateRollbackFailed => Phase::Stuck(
            "run `aws cloudformation continue-update-rollback`, with `--resources-to-skip` for what cannot be rolled back, then upload the \
                 spec again",
        ),
        S::DeleteFailed => Phase::Stuck("delete the stack by hand, then upload the spec again"),
        S::ImportRollbackFailed => Phase::Stuck("repair the stack by hand, then upload the spec again"),
    }
}

impl StackStatus {
    /// Whether CloudFormation is at work on the stack, so that it takes no other operation.
    #[must_use]
    pub fn is_in_progress(self) -> bool {
        matches!(phase(self), Phase::Busy)
    }
}

/// Advances `step` as far as the observation allows.
pub(super) fn advance(
    active: &Active,
    step: &Step,
    stack: Option<&StackView>,
    change_set: Option<&ChangeSetView>,
    failures: &[ResourceFailure],
    now: Timestamp,
) -> Advance {
    let stay = |waits| Advance { state: step.state.clone(), effects: Vec::new(), waits };
    let standing = match &step.state {
        StepState::Done => return stay(StackWaits::Done(None)),
        StepState::Failed(reason) => return stay(StackWaits::Failed(Detail(reason.clone()))),
        StepState::Waiting | StepState::ChangeSet | StepState::Executing => {
            stack.map(|view| phase(view.status))
        }
    };
    let executed = step.state == StepState::Executing;
    if let Some(view) = stack
        && matches!(standing, Some(Phase::Wreck | Phase::Stable))
        && view.tags.get(OWNER_TAG) != step.tags.get(OWNER_TAG)
    {
        let help = "delete or rename it, or give the cluster another name, then upload the spec again";
        return failed(format!("{} exists and is not Slipway's: {help}", step.stack), &[]);
    }
    let standing = standing.unwrap_or(Phase::Absent);
    if is_broken(step, &standing) && !step.is_execution_lost(now) {
        return stay(StackWaits::SecondLook(stack.map(|view| view.status)));
    }
    match standing {
        Phase::Busy => stay(StackWaits::AtWork(stack.map(|view| view.status))),
        Phase::Stuck(help) => {
            let what = format!("{} is {}: {help}", step.stack, status_of(stack));
            failed(because(what, failures) + &zone_help(&step.stack, failures, ""), &[])
        }
        Phase::Wreck if executed => failed(format!("{} could not be created", step.stack), failures),
        Phase::Wreck => Advance {
            state: StepState::Waiting,
            effects: stack.map(|view| delete_stack(active, step, view)).into_iter().collect(),
            waits: StackWaits::Wreck,
        },
        Phase::Absent if is_missing(step, stack, change_set) => {
            if !step.is_execution_lost(now) {
                return stay(StackWaits::AtWork(None));
            }
            failed(format!("{} was deleted while it was being created", step.stack), failures)
        }
        Phase::Absent => through_change_set(active, step, true, change_set),
        Phase::Stable if executed => settled(active, step, stack, change_set, failures, now),
        Phase::Stable => through_change_set(active, step, false, change_set),
    }
}

/// Whether the execution of its change set was requested, and neither the stack nor the change set is there. CloudFormation's answers may
/// be late, so that is believed only if it is still so after a while ([`CONSISTENT`]).
fn is_missing(step: &Step, stack: Option<&StackView>, change_set: Option<&ChangeSetView>) -> bool {
    let is_absent = stack.is_none_or(|view| matches!(phase(view.status), Phase::Absent));
    step.state == StepState::Executing && is_absent && change_set.is_none()
}

/// Whether the step fails if the stack is in that phase. The answer may be from before a person repaired the stack, or from before an earlier
/// creation was deleted, so that is believed only if it is still so after a while ([`CONSISTENT`]).
const fn is_broken(step: &Step, phase: &Phase) -> bool {
    match phase {
        Phase::Stuck(_) => true,
        Phase::Wreck => matches!(step.state, StepState::Executing),
        Phase::Absent | Phase::Stable | Phase::Busy => false,
    }
}

/// Whether the answers do not show what the step needs: the execution of its change set was requested, and the stack is missing or as an
/// earlier rollback left it; or the stack is in a status that would fail it. They may be late.
pub(super) fn is_unseen(step: &Step, stack: Option<&StackView>, change_set: Option<&ChangeSetView>) -> bool {
    let is_over =
        change_set.is_none_or(|view| matches!(view.status, ChangeSetStatus::Executed)) && !is_complete(stack);
    let is_stable = stack.is_some_and(|view| matches!(phase(view.status), Phase::Stable));
    let is_rolled_back = step.state == StepState::Executing && is_stable && is_over;
    let is_broken = stack.is_some_and(|view| is_broken(step, &phase(view.status)));
    is_missing(step, stack, change_set) || is_rolled_back || is_broken
}

fn is_complete(stack: Option<&StackView>) -> bool {
    stack.is_some_and(|view| matches!(view.status, StackStatus::CreateComplete | StackStatus::UpdateComplete))
}

/// The stack is stable and the execution of the change set was requested: checks whether it was executed.
fn settled(
    active: &Active,
    step: &Step,
    stack: Option<&StackView>,
    change_set: Option<&ChangeSetView>,
    failures: &[ResourceFailure],
    now: Timestamp,
) -> Advance {
    let complete = is_complete(stack);
    match change_set.map(|view| view.status) {
        Some(ChangeSetStatus::Executed) if complete => {
            let waits = StackWaits::Done(stack.map(|view| view.status));
            Advance { state: StepState::Done, effects: Vec::new(), waits }
        }
        // CloudFormation removed the change set after its execution, or somebody deleted it before: the stack looks the same in both cases.
        // If it was executed, another change set finds nothing to change.
        None if complete => through_change_set(active, step, false, None),
        // The stack may have been rolled back before, and this answer is from before the execution.
        Some(ChangeSetStatus::Executed) | None if !step.is_execution_lost(now) => Advance {
            state: StepState::Executing,
            effects: Vec::new(),
            waits: StackWaits::AtWork(stack.map(|view| view.status)),
        },
        Some(ChangeSetStatus::Executed | ChangeSetStatus::ExecuteFailed) | None => {
            failed(format!("the update of {} was rolled back ({})", step.stack, status_of(stack)), failures)
        }
        // The execution was requested and the change set is still ready: the call was lost between two steps.
        Some(
            ChangeSetStatus::Ready
            | ChangeSetStatus::Pending
            | ChangeSetStatus::NoChanges
            | ChangeSetStatus::Failed
            | ChangeSetStatus::Obsolete,
        ) => through_change_set(active, step, false, change_set),
        Some(ChangeSetStatus::Executing) => {
            Advance { state: StepState::Executing, effects: Vec::new(), waits: StackWaits::Starts }
        }
    }
}

fn through_change_set(
    active: &Active,
    step: &Step,
    create: bool,
    change_set: Option<&ChangeSetView>,
) -> Advance {
    let name = active.change_set.clone();
    let Some(view) = change_set else {
        let request = ChangeSetRequest {
            stack: step.stack.clone(),
            name,
            create,
            template_key: step.template_key.clone(),
            tags: step.tags.clone(),
        };
        return Advance {
            state: StepState::ChangeSet,
            effects: vec![Effect::CreateChangeSet(request)],
            waits: StackWaits::ChangeSet(ChangeSetWaits::Requesting),
        };
    };
    let reason = view.reason.as_deref().unwrap_or("CloudFormation gave no reason");
    let drop = || Effect::DeleteChangeSet { stack: step.stack.clone(), name: active.change_set.clone() };
    // By its change set a stack that is no more than that is known when it is taken back.
    let drop_update = || (!create).then(drop).into_iter().collect();
    match view.status {
        ChangeSetStatus::Pending => Advance {
            state: StepState::ChangeSet,
            effects: Vec::new(),
            waits: StackWaits::ChangeSet(ChangeSetWaits::Making),
        },
        ChangeSetStatus::Ready => match unplanned(step, view) {
            Some(problem) => Advance { effects: drop_update(), ..failed(problem, &[]) },
            None => Advance {
                state: StepState::Executing,
                effects: vec![Effect::ExecuteChangeSet {
                    stack: step.stack.clone(),
                    name,
                    token: active.token(&step.stack, "execute"),
                }],
                waits: StackWaits::Executes,
            },
        },
        ChangeSetStatus::NoChanges if create => {
            failed(format!("CloudFormation finds nothing to create in {}: {reason}", step.stack), &[])
        }
        ChangeSetStatus::NoChanges => {
            Advance { state: StepState::Done, effects: vec![drop()], waits: StackWaits::NothingToChange }
        }
        ChangeSetStatus::Failed => Advance {
            effects: drop_update(),
            ..failed(format!("CloudFormation refuses the template of {}: {reason}", step.stack), &[])
        },
        ChangeSetStatus::Executing | ChangeSetStatus::Executed | ChangeSetStatus::ExecuteFailed => {
            Advance { state: StepState::Executing, effects: Vec::new(), waits: StackWaits::Starts }
        }
        ChangeSetStatus::Obsolete => Advance {
            state: StepState::Waiting,
            effects: vec![drop()],
            waits: StackWaits::ChangeSet(ChangeSetWaits::Anew),
        },
    }
}

/// P3: the change set may replace or remove only what the plan says.
fn unplanned(step: &Step, change_set: &ChangeSetView) -> Option<String> {
    let extra: Vec<&str> =
        change_set.replaces.iter().filter(|id| !step.may_replace.contains(id)).map(String::as_str).collect();
    (!extra.is_empty()).then(|| {
        format!(
            "CloudFormation would replace or remove {} in {}, which the plan does not say: somebody changed the stack \
             outside Slipway; bring it back (drift detection shows what), then upload the spec again",
            extra.join(", "),
            step.stack
        )
    })
}

fn delete_stack(active: &Active, step: &Step, view: &StackView) -> Effect {
    let token = active.token(&view.id, "delete");
    Effect::DeleteStack { stack: step.stack.clone(), id: view.id.clone(), stands: false, token }
}

fn failed(what: String, failures: &[ResourceFailure]) -> Advance {
    let why = because(what, failures);
    let waits = StackWaits::Failed(Detail(why.clone()));
    Advance { state: StepState::Failed(why), effects: Vec::new(), waits }
}

/// `what`, followed by CloudFormation's reasons.
pub(super) fn because(what: String, failures: &[ResourceFailure]) -> String {
    let causes: Vec<String> = failures
        .iter()
        .map(|failure| {
            format!(
                "{} ({}) {}: {}",
                failure.logical_id, failure.resource_type, failure.status, failure.reason
            )
        })
        .collect();
    if causes.is_empty() { what } else { format!("{what}: {}", causes.join("; ")) }
}

/// The status as CloudFormation spells it.
pub(super) fn status_of(stack: Option<&StackView>) -> String {
    stack.map_or_else(|| "absent".to_owned(), |view| view.status.to_string())
}

/// Whether CloudFormation must still be told to execute the change set of a stack. The call may have been dropped because it was too late:
/// then the change set is still ready, and the stack is not being changed.
pub(super) fn is_to_begin(step: &Step, observed: &Observed) -> bool {
    match step.state {
        StepState::Waiting | StepState::ChangeSet => true,
        StepState::Executing => {
            let ready = |view: &ChangeSetView| view.status == ChangeSetStatus::Ready;
            observed.change_sets.get(&step.stack).and_then(Option::as_ref).is_some_and(ready)
        }
        StepState::Done | StepState::Failed(_) => false,
    }
}

/// The deletion of a stack that was being created for the first time when the rollout was aborted: CloudFormation may wait for hours until
/// the stack's groups are stable, and nothing depends on the stack yet.
pub(super) fn called_off_creation(
    state: &Rollout,
    active: &Active,
    step: &Step,
    stack: Option<&StackView>,
) -> Option<Effect> {
    let stack = stack.filter(|stack| stack.status == StackStatus::CreateInProgress)?;
    let is_ours = stack.tags.get(OWNER_TAG) == step.tags.get(OWNER_TAG);
    let called_off = active.aborted.is_some() && is_ours && creates(state, step);
    called_off.then(|| call_off(active, step, stack))
}

/// Whether the step creates its stack.
fn creates(state: &Rollout, step: &Step) -> bool {
    !state.deployed.contains_key(&step.stack) && !state.orphaned.contains_key(&step.stack)
}

fn call_off(active: &Active, step: &Step, stack: &StackView) -> Effect {
    let token = active.token(&stack.id, "call-off");
    Effect::DeleteStack { stack: step.stack.clone(), id: stack.id.clone(), stands: false, token }
}

/// A rollout that is to end early deletes the stacks that are no more than its change sets, again and again until they are gone: such a stack
/// would stay behind in `REVIEW_IN_PROGRESS` if the next spec did not have it (`DeleteChangeSet` leaves the stack:
/// <https://docs.aws.amazon.com/AWSCloudFormation/latest/APIReference/API_DeleteChangeSet.html>). Such a stack has no tags; by its change
/// set it is ours.
pub(super) fn take_back(
    state: &Rollout,
    active: &mut Active,
    observed: &Observed,
    waits: &mut Waiting,
    effects: &mut Effects,
    now: Timestamp,
) {
    let failed = active.nodes.failure().is_some() || active.steps.iter().any(|step| step.failure().is_some());
    // While paused, a newer spec does not wait for the change sets.
    let superseded = state.paused_since().is_some() && super::due::is_newer(state, active, observed, now);
    if active.aborted.is_none() && !failed && !superseded {
        return;
    }
    let mut steps = std::mem::take(&mut active.steps);
    for step in steps.iter_mut().filter(|step| creates(state, step)) {
        // Only stacks whose turn it is were observed.
        let Some(stack) = observed.stacks.get(&step.stack) else { continue };
        let is_ours = observed.change_sets.get(&step.stack).is_some_and(Option::is_some);
        step.unseen = match (&step.state, stack) {
            (StepState::Waiting | StepState::ChangeSet | StepState::Failed(_), Some(stack))
                if is_ours && stack.status == StackStatus::ReviewInProgress =>
            {
                let sent = match step.unseen {
                    Some(Unseen::Deletion { sent }) => Some(sent),
                    Some(Unseen::Execution { .. } | Unseen::Stack { .. }) | None => None,
                };
                let is_due = sent.is_none_or(|at| now.duration_since(at) >= PAUSE);
                effects.extend(is_due.then(|| call_off(active, step, stack)));
                let sent = sent.filter(|_| !is_due).unwrap_or(now);
                // It has come to light: once it is gone, nothing is waited for any more.
                if step.state == StepState::ChangeSet {
                    step.state = StepState::Waiting;
                }
                Some(Unseen::Deletion { sent })
            }
            (StepState::ChangeSet, None) => {
                let since = match step.unseen {
                    Some(Unseen::Stack { since }) => since,
                    Some(Unseen::Execution { .. } | Unseen::Deletion { .. }) | None => now,
                };
                Some(Unseen::Stack { since })
            }
            (StepState::Waiting | StepState::ChangeSet | StepState::Failed(_), _) => None,
            (StepState::Executing | StepState::Done, _) => continue,
        };
        if step.is_taken_back(now) {
            let called_off = || StackWaits::CreationCancelled;
            waits.insert_stack(step, step.failure().map_or_else(called_off, StackWaits::Failed));
        }
    }
    active.steps = steps;
}

impl Step {
    fn failure(&self) -> Option<Detail<String>> {
        match &self.state {
            StepState::Failed(reason) => Some(Detail(reason.clone())),
            StepState::Waiting | StepState::ChangeSet | StepState::Executing | StepState::Done => None,
        }
    }

    /// Whether a rollout that is to end early waits until its stack is gone, or for that to come to light ([`take_back`]).
    pub(super) fn is_taken_back(&self, now: Timestamp) -> bool {
        match self.unseen {
            Some(Unseen::Stack { since: at } | Unseen::Deletion { sent: at }) => {
                now.duration_since(at) < CONSISTENT
            }
            Some(Unseen::Execution { .. }) | None => false,
        }
    }

    /// Records whether the requested execution is visible.
    pub(super) fn sees_execution(&mut self, is_missing: bool, now: Timestamp) {
        let since = match self.unseen {
            Some(Unseen::Execution { since }) => since,
            Some(Unseen::Stack { .. } | Unseen::Deletion { .. }) | None => now,
        };
        self.unseen = is_missing.then_some(Unseen::Execution { since });
    }

    /// Whether the requested execution has not been visible for so long that no late answer explains it.
    pub(super) fn is_execution_lost(&self, now: Timestamp) -> bool {
        match self.unseen {
            Some(Unseen::Execution { since }) => now.duration_since(since) >= CONSISTENT,
            Some(Unseen::Stack { .. } | Unseen::Deletion { .. }) | None => false,
        }
    }
}

/// What a person does about a hosted zone of etcd that still has records, if that is what failed: the exact command. `why`: why they are there.
pub(super) fn zone_help(stack: &str, failures: &[ResourceFailure], why: &str) -> String {
    if !failures.iter().any(|failure| failure.logical_id == ETCD_HOSTED_ZONE) {
        return String::new();
    }
    format!(
        "; if the zone holds records of etcd's members{why}, this deletes them: zone=$(aws cloudformation describe-stack-resource \
         --stack-name {stack} --logical-resource-id {ETCD_HOSTED_ZONE} --query StackResourceDetail.PhysicalResourceId --output text); \
         aws route53 change-resource-record-sets --hosted-zone-id $zone --change-batch \"$(aws route53 list-resource-record-sets \
         --hosted-zone-id $zone --output json --query \"{{Changes: ResourceRecordSets[?Type=='A'].{{Action: 'DELETE', ResourceRecordSet: @}}}}\")\""
    )
}
