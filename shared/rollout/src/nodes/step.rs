//! The step of one role, for any kind of work.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_core::deadline::Urgency;
use slipway_core::node::Command;
use slipway_core::release::StackKind;
use slipway_core::role::Role;

use super::super::Effect;
use super::super::departures::Departure;
use super::super::errand::SentCommand;
use super::super::waits::Waits;
use super::machine::{Open, Place, run};
use super::{
    Closing, Controllers, ControllersWork, Leaver, LeftOver, Member, Phase, PoolRefresh, PoolRefreshState,
    RefreshMember, Refreshing, Removal, ReplaceMember, Replacing, Saver, Turn, Workers, WorkersState,
};

/// The work on the machines of a role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeStep {
    /// The role.
    pub role: Role,
    /// The stack of its group.
    pub stack: String,
    /// Its Auto Scaling group.
    pub group: String,
    /// Pools whose steps come first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<Role>,
    /// `Kubernetes 1.36 → 1.37`, if its machines get another minor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor: Option<String>,
    /// The number of command rounds.
    #[serde(default)]
    pub rounds: u32,
    /// The work and its state.
    pub task: Task,
}

/// The kinds of work on a role, with their states.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Task {
    /// A member of etcd is replaced.
    MemberReplace(Member<ReplaceMember, Replacing>),
    /// A member of etcd is refreshed.
    MemberRefresh(Member<RefreshMember, Refreshing>),
    /// A snapshot of etcd is taken, before a stack is updated.
    Saver(Saver),
    /// A member is removed from etcd, before its group is deleted.
    Leaver(Leaver),
    /// Controllers are replaced or refreshed, or a surplus one is removed.
    Controllers(Controllers),
    /// Workers are refreshed.
    PoolRefresh(PoolRefresh),
    /// Workers are replaced.
    Workers(Workers),
    /// A pool is removed with its stack.
    Removal(Removal),
    /// Whether the whole cluster serves, after everything else.
    Closing(Closing),
}

/// What is done to machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// They are refreshed in place.
    Refresh,
    /// They are replaced.
    Replace,
    /// A snapshot is taken before a stack is updated.
    Save,
    /// A surplus machine is removed; the others do not change.
    Fewer,
    /// A member is removed from etcd, before its group is deleted.
    Leave,
    /// The machines are removed together with their stack.
    Remove,
    /// Nothing: the whole cluster is looked at.
    Look,
}

impl Work {
    /// Whether the old machines are gone, or have changed, when the work is done.
    pub(crate) const fn renews(self) -> bool {
        match self {
            Self::Refresh | Self::Replace => true,
            Self::Save | Self::Fewer | Self::Leave | Self::Remove | Self::Look => false,
        }
    }
}

impl Task {
    fn open(&self) -> &dyn Open {
        match self {
            Self::MemberReplace(task) => &task.phase,
            Self::MemberRefresh(task) => &task.phase,
            Self::Saver(task) => &task.phase,
            Self::Leaver(task) => &task.phase,
            Self::Controllers(task) => &task.phase,
            Self::PoolRefresh(task) => &task.phase,
            Self::Workers(task) => &task.phase,
            Self::Removal(task) => &task.phase,
            Self::Closing(task) => &task.phase,
        }
    }

    fn open_mut(&mut self) -> &mut dyn Open {
        match self {
            Self::MemberReplace(task) => &mut task.phase,
            Self::MemberRefresh(task) => &mut task.phase,
            Self::Saver(task) => &mut task.phase,
            Self::Leaver(task) => &mut task.phase,
            Self::Controllers(task) => &mut task.phase,
            Self::PoolRefresh(task) => &mut task.phase,
            Self::Workers(task) => &mut task.phase,
            Self::Removal(task) => &mut task.phase,
            Self::Closing(task) => &mut task.phase,
        }
    }

    /// Advances the step as far as the observation allows. Returns what it waits for in the end.
    pub(super) fn advance(&mut self, turn: &mut Turn<'_>) -> Option<Waits> {
        match self {
            Self::MemberReplace(task) => run(task, turn),
            Self::MemberRefresh(task) => run(task, turn),
            Self::Saver(task) => run(task, turn),
            Self::Leaver(task) => run(task, turn),
            Self::Controllers(task) => run(task, turn),
            Self::PoolRefresh(task) => run(task, turn),
            Self::Workers(task) => run(task, turn),
            Self::Removal(task) => run(task, turn),
            Self::Closing(task) => run(task, turn),
        }
    }

    const fn work(&self) -> Work {
        match self {
            Self::MemberReplace(_) | Self::Workers(_) => Work::Replace,
            Self::MemberRefresh(_) | Self::PoolRefresh(_) => Work::Refresh,
            Self::Saver(_) => Work::Save,
            Self::Leaver(_) => Work::Leave,
            Self::Controllers(Controllers { work, .. }) => match work {
                ControllersWork::Refresh { .. } => Work::Refresh,
                ControllersWork::Replace => Work::Replace,
                ControllersWork::Fewer { .. } => Work::Fewer,
            },
            Self::Removal(_) => Work::Remove,
            Self::Closing(_) => Work::Look,
        }
    }

    /// By how many machines its group's desired capacity exceeds the pool's size; `None` if the pool is not being rolled.
    pub(super) const fn left_over(&self) -> Option<LeftOver> {
        match self {
            Self::Workers(workers) => Some(workers.extra.left_over()),
            Self::MemberReplace(_)
            | Self::MemberRefresh(_)
            | Self::Saver(_)
            | Self::Leaver(_)
            | Self::Controllers(_)
            | Self::PoolRefresh(_)
            | Self::Removal(_)
            | Self::Closing(_) => None,
        }
    }

    /// How many machines are done, and how many have begun.
    fn counts(&self) -> (usize, usize) {
        match self {
            Self::MemberRefresh(task) => (usize::from(task.work.renewed.is_some()), 0),
            Self::MemberReplace(_) | Self::Saver(_) | Self::Leaver(_) | Self::Closing(_) => (0, 0),
            Self::Controllers(task) => (task.done.len(), 0),
            Self::PoolRefresh(task) => (task.done.len(), 0),
            Self::Workers(task) => (task.done.len(), task.phase.state().map_or(0, WorkersState::begun)),
            Self::Removal(task) => (task.empty.len(), task.begun.len()),
        }
    }
}

/// The wave of stacks after which the machines of `role` are worked on.
const fn wave(role: &Role) -> u8 {
    match role {
        Role::Etcd(_) => StackKind::Etcd.wave(),
        Role::Controller => StackKind::ControlPlane.wave(),
        Role::Pool(_) | Role::Admin => StackKind::Pool.wave(),
    }
}

impl NodeStep {
    /// The kind of work.
    #[must_use]
    pub const fn work(&self) -> Work {
        self.task.work()
    }

    /// Whether it is the look at the whole cluster.
    #[must_use]
    pub const fn is_final_check(&self) -> bool {
        matches!(self.task, Task::Closing(_))
    }

    /// Whether a member of etcd is replaced or refreshed.
    pub(super) const fn changes_member(&self) -> bool {
        matches!(self.task, Task::MemberReplace(_) | Task::MemberRefresh(_))
    }

    /// The credentials that its machines install in place; `None` if it does something else.
    pub(crate) fn refreshed_to(&self) -> Option<&str> {
        match &self.task {
            Task::MemberRefresh(task) => Some(&task.work.credentials),
            Task::Controllers(Controllers { work: ControllersWork::Refresh { credentials }, .. }) => {
                Some(credentials)
            }
            Task::PoolRefresh(task) => Some(&task.credentials),
            Task::MemberReplace(_)
            | Task::Saver(_)
            | Task::Leaver(_)
            | Task::Controllers(_)
            | Task::Workers(_)
            | Task::Removal(_)
            | Task::Closing(_) => None,
        }
    }

    /// The name of its state.
    #[must_use]
    pub fn place(&self) -> Place {
        self.task.open().place()
    }

    /// The parts of its state that change when it makes progress.
    pub(crate) fn progress(&self) -> impl PartialEq + use<> {
        (self.place(), self.task.open().machine().cloned(), self.task.counts())
    }

    /// Whether nothing is left to do.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.place() == Place::Done
    }

    /// Whether it is done, and a machine was skipped.
    #[must_use]
    pub fn is_skipped(&self) -> bool {
        self.task.open().is_skipped()
    }

    /// Why it failed.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.task.open().failure()
    }

    /// The last commands to its machines.
    #[must_use]
    pub fn commands(&self) -> &[SentCommand] {
        self.task.open().commands()
    }

    /// The wave of stacks after which it is done.
    pub(super) fn wave(&self) -> u8 {
        if self.is_final_check() {
            return StackKind::Pool.wave();
        }
        let own = wave(&self.role);
        let is_before = match &self.task {
            Task::Saver(_) | Task::Leaver(_) => true,
            Task::Controllers(task) => task.work == ControllersWork::Fewer { before_stack: true },
            Task::MemberReplace(_)
            | Task::MemberRefresh(_)
            | Task::PoolRefresh(_)
            | Task::Workers(_)
            | Task::Removal(_)
            | Task::Closing(_) => false,
        };
        if is_before { own.saturating_sub(1) } else { own }
    }

    /// Whether work has begun that should be completed before anything else begins.
    pub(super) fn is_busy(&self) -> bool {
        let is_emptied = match &self.task {
            Task::Controllers(task) => task.departs.is_some() && self.place() == Place::Check,
            Task::MemberReplace(_)
            | Task::MemberRefresh(_)
            | Task::Saver(_)
            | Task::Leaver(_)
            | Task::PoolRefresh(_)
            | Task::Workers(_)
            | Task::Removal(_)
            | Task::Closing(_) => false,
        };
        is_emptied || self.task.open().is_busy()
    }

    /// Whether the target health of its machines is needed: they are controllers, and their certificates have not expired.
    pub(super) const fn asks_balancers(&self, urgency: Urgency) -> bool {
        match &self.task {
            Task::Controllers(task) => !task.has_expired(urgency),
            Task::MemberReplace(_)
            | Task::MemberRefresh(_)
            | Task::Saver(_)
            | Task::Leaver(_)
            | Task::PoolRefresh(_)
            | Task::Workers(_)
            | Task::Removal(_)
            | Task::Closing(_) => false,
        }
    }

    /// Whether the deletion of its pool's stack was requested and has not ended.
    pub(super) fn is_deleting(&self) -> bool {
        self.place() == Place::Delete
    }

    /// Whether its member may have been removed from etcd.
    pub(super) fn may_be_out(&self) -> bool {
        match &self.task {
            Task::Leaver(_) => matches!(self.place(), Place::Remove | Place::Verify | Place::Done),
            Task::MemberReplace(_)
            | Task::MemberRefresh(_)
            | Task::Saver(_)
            | Task::Controllers(_)
            | Task::PoolRefresh(_)
            | Task::Workers(_)
            | Task::Removal(_)
            | Task::Closing(_) => false,
        }
    }

    /// The commands whose results are needed.
    pub(super) fn awaited_commands(&self) -> impl Iterator<Item = Command> {
        self.commands().iter().filter(|one| one.refused.is_none()).map(|one| one.command.clone())
    }

    pub(super) fn fail(&mut self, why: &str) {
        self.task.open_mut().fail(why);
    }

    pub(super) fn resumed(&mut self, at: Timestamp) {
        self.task.open_mut().resumed(at);
    }

    pub(super) fn not_sent(&mut self, token: &str) {
        self.task.open_mut().not_sent(token);
    }

    /// The machine of the command with that token is skipped: the other machines of the round still answer.
    pub(super) fn not_refreshed(&mut self, token: &str) {
        let is_alone = self.commands().len() == 1;
        match &mut self.task {
            Task::PoolRefresh(PoolRefresh {
                phase: Phase::Open { state: PoolRefreshState::Refresh(round), .. },
                ..
            }) if !is_alone => round.forget(token),
            Task::MemberReplace(_)
            | Task::MemberRefresh(_)
            | Task::Saver(_)
            | Task::Leaver(_)
            | Task::Controllers(_)
            | Task::PoolRefresh(_)
            | Task::Workers(_)
            | Task::Removal(_)
            | Task::Closing(_) => {
                if self.place() == Place::Refresh {
                    self.not_sent(token);
                }
            }
        }
    }

    /// Run Command refused the command with that token.
    pub(super) fn refused(&mut self, token: &str, reason: &str) {
        for sent in self.task.open_mut().commands_mut() {
            sent.was_refused(token, reason);
        }
    }

    /// Its rollout ends: running commands are cancelled, and cordoned machines stay.
    pub(super) fn called_off(
        &mut self,
        departures: &mut BTreeMap<String, Departure>,
        now: Timestamp,
    ) -> Vec<Effect> {
        let place = self.place();
        let is_snapshot = place == Place::Snapshot;
        let effects =
            self.commands().iter().filter(|_| is_snapshot).filter_map(SentCommand::take_back).collect();
        match &mut self.task {
            // This includes a machine whose termination was decided, because it may not have been performed; a machine that is really
            // terminated does not need it.
            Task::Controllers(task) => task.call_off(departures, now),
            Task::Removal(task) if place != Place::Delete => {
                task.let_all_stay(&self.role, &self.group, departures, now);
            }
            Task::Removal(_)
            | Task::MemberReplace(_)
            | Task::MemberRefresh(_)
            | Task::Saver(_)
            | Task::Leaver(_)
            | Task::PoolRefresh(_)
            | Task::Workers(_)
            | Task::Closing(_) => {}
        }
        effects
    }
}
