//! The false beliefs of mistakes: answers that nobody gave, and steps that are not done.

use jiff::Timestamp;
use slipway_core::node::{Answer, CommandView, DrainRecord, Refreshed, SnapshotTaken};
use slipway_rollout::{Departure, LastSnapshot, NodeStep, Phase, Place, Rollout, Task};

pub(super) fn success(answer: impl Into<Answer>) -> Option<CommandView> {
    Some(CommandView::Answered(answer.into()))
}

pub(super) fn refreshed(credentials: &str) -> Option<CommandView> {
    success(Refreshed {
        changed: true,
        credentials: credentials.to_owned(),
        served: Vec::new(),
        restarted: Vec::new(),
        kubelet: None,
        published: true,
    })
}

/// A snapshot that nobody took.
pub(super) fn snapshot() -> Option<CommandView> {
    let time = "20270119T120000Z";
    success(SnapshotTaken {
        time: time.to_owned(),
        key: format!("clusters/trial/etcd-snapshots/{time}"),
        size: 0,
        sha256: String::new(),
        revision: 0,
        version: String::new(),
        sealed_under: String::new(),
        seconds: 0,
    })
}

/// The first snapshot of a destruction counts as the last one.
pub(super) fn keeps_the_first(state: &mut Rollout) {
    if let Some(open) = state.destroy_mut()
        && let LastSnapshot::Taken(key) = &open.snapshot
    {
        open.snapshot = LastSnapshot::Complete(key.clone());
    }
}

pub(super) fn drained(node: &str) -> Option<CommandView> {
    success(DrainRecord::new(node).answer(true))
}

/// A machine that was terminated needs no other drain.
pub(super) fn is_drained_for_good(departure: &mut Departure) {
    let mut state = serde_json::to_value(&departure.state).unwrap();
    if let Some(leave) = state.get_mut("leave").and_then(|leave| leave.as_object_mut()) {
        leave.remove("last");
        departure.state = serde_json::from_value(state).unwrap();
    }
}

/// Makes the step count as done.
pub(super) fn is_done(step: &mut NodeStep) {
    match &mut step.task {
        Task::MemberReplace(task) => task.phase = Phase::Done { skipped: false },
        Task::MemberRefresh(task) => task.phase = Phase::Done { skipped: false },
        Task::Saver(task) => task.phase = Phase::Done { skipped: false },
        Task::Leaver(task) => task.phase = Phase::Done { skipped: false },
        Task::Controllers(task) => task.phase = Phase::Done { skipped: false },
        Task::PoolRefresh(task) => task.phase = Phase::Done { skipped: false },
        Task::Workers(task) => task.phase = Phase::Done { skipped: false },
        Task::Removal(task) => task.phase = Phase::Done { skipped: false },
        Task::Closing(task) => task.phase = Phase::Done { skipped: false },
    }
}

/// Removes failed tries.
pub(super) fn no_try_failed(step: &mut NodeStep) {
    let tries = match &mut step.task {
        Task::MemberReplace(task) => &mut task.tries,
        Task::MemberRefresh(task) => &mut task.tries,
        Task::Saver(task) => &mut task.tries,
        Task::Leaver(task) => &mut task.tries,
        Task::Controllers(task) => &mut task.tries,
        Task::PoolRefresh(task) => &mut task.tries,
        Task::Workers(_) | Task::Removal(_) | Task::Closing(_) => return,
    };
    std::mem::take(tries);
}

/// Whether the work on a machine of that role has begun.
pub(super) fn has_begun(step: &NodeStep) -> bool {
    match &step.task {
        Task::MemberRefresh(task) => task.work.renewed.is_some(),
        Task::Controllers(task) => {
            !task.done.is_empty() || task.departs.is_some() && step.place() == Place::Look
        }
        Task::PoolRefresh(task) => !task.done.is_empty(),
        Task::Workers(task) => task.phase.state().is_some() && !task.done.is_empty(),
        Task::Removal(task) => !task.empty.is_empty(),
        Task::MemberReplace(_) | Task::Saver(_) | Task::Leaver(_) | Task::Closing(_) => false,
    }
}

/// The work on a pool has waited for nothing yet.
pub(super) fn has_just_begun(step: &mut NodeStep) {
    if let Task::Workers(task) = &mut step.task
        && let Phase::Open { since, .. } = &mut task.phase
    {
        *since = None;
    }
}

/// The work on members or controllers has only just begun to wait.
pub(super) fn waits_since(step: &mut NodeStep, now: Timestamp) {
    match &mut step.task {
        Task::MemberReplace(task) => just_entered(&mut task.phase, now),
        Task::Controllers(task) => just_entered(&mut task.phase, now),
        Task::MemberRefresh(_)
        | Task::Saver(_)
        | Task::Leaver(_)
        | Task::PoolRefresh(_)
        | Task::Workers(_)
        | Task::Removal(_)
        | Task::Closing(_) => {}
    }
}

fn just_entered<S>(phase: &mut Phase<S>, now: Timestamp) {
    if let Phase::Open { since, .. } = phase {
        *since = Some(now);
    }
}
