//! The departure of one machine.

mod again;
mod interrupted;
mod kind;
mod leaves;
mod stays;
mod unreached;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use slipway_core::deadline::CONTROLLER_DRAIN;
use slipway_core::node::Verb;
use slipway_core::role::Role;

use super::{Scene, Slots};
use crate::Effect;
use crate::drain::{Drain, DrainProgress, Patience};
use crate::errand::{RetryPolicy, RetryState, Sender, SentCommand};
use crate::fleet::{GroupView, Lifecycle, MachineView};
use crate::patience::{CONSISTENT, PATIENCE};
use crate::transitions::{Transition, Wakes, leads};
use crate::waits::{Departs, Detail, HowFar};
use again::{LastDrain, prolong};
pub(super) use interrupted::NOTICE_COUNTS;
#[cfg(test)]
pub(super) use interrupted::NOTICE_S;
use unreached::Unreached;

/// How long pods may block the drain of a worker that a rollout replaces: they may be jobs that end by themselves overnight.
const WORKER_DRAIN: SignedDuration = SignedDuration::from_hours(24);

/// The interval of heartbeats. The hook's timeout is half an hour, so that two heartbeats may be lost.
const HEARTBEAT: SignedDuration = SignedDuration::from_mins(10);

/// The result of a look at a departure: it continues, or it is over.
const STAYS: bool = true;
const GONE: bool = false;

/// A machine that is being removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Departure {
    /// Its pool, or `controller`.
    pub role: Role,
    /// Its Auto Scaling group.
    pub group: String,
    /// Why it is removed.
    pub cause: Cause,
    /// The state of the departure.
    pub state: DepartureState,
    /// When the departure entered that state.
    pub since: Timestamp,
    /// Seconds after which its drain may use force, if all other rules for that hold; `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_after_s: Option<u32>,
    /// How many requests were sent for it.
    #[serde(default)]
    pub rounds: u32,
    /// How many of them Run Command did not take.
    #[serde(default)]
    pub unsent: u32,
    /// The last of them that did not reach its controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreached: Option<Unreached>,
    /// Why it could not be removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Who removes the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Cause {
    /// A rollout, and what comes after the drain.
    Rollout(Ending),
    /// Auto Scaling itself: its group decides whether another machine replaces it.
    AutoScaling,
    /// EC2, which takes the Spot machine back.
    Interruption {
        /// The time of EC2's notice.
        at: Timestamp,
    },
}

/// What a rollout does with a machine after its drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Ending {
    /// It is terminated, and another machine replaces it.
    Replaced,
    /// It is terminated as surplus, and no machine replaces it.
    Surplus {
        /// The least that its group may want before it goes, unless somebody else lowers that: the desired capacity when it was chosen, less
        /// the other surplus machines on their way out.
        of: u32,
    },
    /// It stays, empty, until the step that let it be drained terminates it or deletes its stack.
    Rests,
}

/// The state of a [`Departure`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum DepartureState {
    /// Its pods are evicted.
    Drain {
        /// The state of the drain.
        drain: Drain,
        /// When its terminate hook was last extended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prolonged: Option<Timestamp>,
    },
    /// It is drained, and is being terminated.
    Leave {
        /// When Auto Scaling was last asked to terminate it.
        requested_at: Timestamp,
        /// How far it is with its last drain, once it waits in its terminate hook. `None`: its hook is being completed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last: Option<LastDrain>,
    },
    /// It is drained, and stays until its step terminates it or deletes its stack, or until EC2 interrupts it.
    Rest {
        /// When the command was sent that found it empty.
        emptied_at: Timestamp,
    },
    /// It stays after all: its drain is being cancelled.
    Withdraw {
        /// The drain that may still run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sent: Option<SentCommand>,
        /// When the drain was last cancelled.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cancelled_at: Option<Timestamp>,
    },
    /// It is being uncordoned.
    Uncordon {
        /// The uncordon command that may still run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sent: Option<SentCommand>,
        /// Commands that failed.
        #[serde(default)]
        tried: RetryState,
    },
}

/// The states of a departure. In each of them the departure ends when the machine is gone.
pub(crate) const TRANSITIONS: &[Transition] = &[
    Transition::new(
        "drain",
        "its pods are evicted, and its terminate hook is kept alive",
        &[Wakes::Command, Wakes::Machine],
        &["leave", "rest", "withdraw", "gone"],
    ),
    Transition::new(
        "leave",
        "it is drained, and is terminated; once it waits in its terminate hook, it is drained again, because a person may have uncordoned it",
        &[Wakes::Command, Wakes::Machine],
        &["drain", "withdraw", "gone"],
    ),
    Transition::new(
        "rest",
        "it is drained, and stays until its step terminates it or deletes its stack, or until EC2 interrupts it",
        &[Wakes::Machine],
        &["drain", "withdraw", "gone"],
    ),
    Transition::new(
        "withdraw",
        "it stays after all: its drain is cancelled",
        &[Wakes::Command],
        &["uncordon", "drain", "gone"],
    ),
    Transition::new("uncordon", "it is uncordoned", &[Wakes::Command], &["drain", "withdraw", "gone"]),
    Transition::new("gone", "it is terminated, or uncordoned; nothing remains to be done", &[], &[]),
];

impl DepartureState {
    const fn name(&self) -> &'static str {
        match self {
            Self::Drain { .. } => "drain",
            Self::Leave { .. } => "leave",
            Self::Rest { .. } => "rest",
            Self::Withdraw { .. } => "withdraw",
            Self::Uncordon { .. } => "uncordon",
        }
    }

    fn drains() -> Self {
        Self::Drain { drain: Drain::default(), prolonged: None }
    }

    fn command(&self) -> Option<&SentCommand> {
        match self {
            Self::Drain { drain, .. } | Self::Leave { last: Some(LastDrain { drain, .. }), .. } => {
                drain.sent.as_ref()
            }
            Self::Withdraw { sent, .. } | Self::Uncordon { sent, .. } => sent.as_ref(),
            Self::Leave { last: None, .. } | Self::Rest { .. } => None,
        }
    }

    fn command_mut(&mut self) -> Option<&mut Option<SentCommand>> {
        match self {
            Self::Drain { drain, .. } | Self::Leave { last: Some(LastDrain { drain, .. }), .. } => {
                Some(&mut drain.sent)
            }
            Self::Withdraw { sent, .. } | Self::Uncordon { sent, .. } => Some(sent),
            Self::Leave { last: None, .. } | Self::Rest { .. } => None,
        }
    }
}

/// Whether and how its group holds a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// It is in service.
    Free,
    /// It waits in its terminate hook.
    Hook,
    /// Its terminate hook timed out before it was drained: it keeps running until somebody terminates it once more
    /// (docs.aws.amazon.com/autoscaling/ec2/userguide, "Manage retained instances").
    Kept,
}

impl Hold {
    /// Whether Auto Scaling does not count it any more.
    const fn must_go(self) -> bool {
        match self {
            Self::Free => false,
            Self::Hook | Self::Kept => true,
        }
    }
}

impl Departure {
    /// The departure of a machine that Auto Scaling terminates.
    pub(crate) fn by_auto_scaling(
        role: Role,
        group: &str,
        force_after_s: Option<u32>,
        now: Timestamp,
    ) -> Self {
        Self {
            role,
            group: group.to_owned(),
            cause: Cause::AutoScaling,
            state: DepartureState::drains(),
            since: now,
            force_after_s,
            rounds: 0,
            unsent: 0,
            unreached: None,
            problem: None,
        }
    }

    /// The departure of a cordoned machine that stays after all; `asked`: the drain that may still run.
    pub(crate) fn called_off(role: Role, group: &str, sent: Option<SentCommand>, now: Timestamp) -> Self {
        let (cause, state) =
            (Cause::Rollout(Ending::Replaced), DepartureState::Withdraw { sent, cancelled_at: None });
        Self { cause, state, ..Self::by_auto_scaling(role, group, None, now) }
    }

    /// The departure of a machine that a rollout removes.
    pub(crate) fn by_rollout(
        role: &Role,
        group: &GroupView,
        ends: Ending,
        force_after_s: Option<u32>,
        now: Timestamp,
    ) -> Self {
        let one = Self::by_auto_scaling(role.clone(), &group.name, force_after_s, now);
        Self { cause: Cause::Rollout(ends), ..one }
    }

    /// One more surplus machine of its group is being removed, and may be terminated first.
    pub(crate) const fn count_removed_surplus(&mut self) {
        if let Cause::Rollout(Ending::Surplus { of }) = &mut self.cause {
            *of = of.saturating_sub(1);
        }
    }

    /// The last command for it.
    #[must_use]
    pub fn command(&self) -> Option<&SentCommand> {
        self.state.command()
    }

    /// The command that uncordons it.
    pub(super) fn uncordon_command(&self) -> Option<&SentCommand> {
        let DepartureState::Uncordon { sent, .. } = &self.state else { return None };
        sent.as_ref()
    }

    /// Whether it stays, and could not be uncordoned for a long time: the tries continue, and a rollout may remove it meanwhile.
    pub(crate) const fn only_stays_cordoned(&self) -> bool {
        match &self.state {
            DepartureState::Uncordon { tried, .. } => tried.is_too_often(RetryPolicy::UNCORDON),
            DepartureState::Drain { .. }
            | DepartureState::Leave { .. }
            | DepartureState::Rest { .. }
            | DepartureState::Withdraw { .. } => false,
        }
    }

    /// The drain command for it.
    pub(super) fn drain_command(&self) -> Option<&SentCommand> {
        match &self.state {
            DepartureState::Drain { .. } | DepartureState::Leave { .. } => self.state.command(),
            DepartureState::Rest { .. }
            | DepartureState::Withdraw { .. }
            | DepartureState::Uncordon { .. } => None,
        }
    }

    /// Run Command refused the command with that token.
    pub(crate) fn was_refused(&mut self, token: &str, reason: &str) {
        if let Some(Some(sent)) = self.state.command_mut()
            && sent.command.token == token
        {
            // Its refusal may be recorded a second time.
            self.unsent += u32::from(sent.refused.is_none());
            sent.was_refused(token, reason);
        }
    }

    /// The command with that token was never sent.
    pub(crate) fn not_sent(&mut self, token: &str) {
        if let Some(sent) = self.state.command_mut()
            && sent.as_ref().is_some_and(|one| one.command.token == token)
        {
            *sent = None;
            self.unsent += 1;
        }
    }

    /// A person skips the machine. `stays`: it was to be terminated, and is not.
    pub(crate) fn leave_alone(&mut self, stays: bool, now: Timestamp) {
        let goes = match self.state {
            DepartureState::Drain { .. } => true,
            DepartureState::Leave { .. } => stays,
            DepartureState::Rest { .. }
            | DepartureState::Withdraw { .. }
            | DepartureState::Uncordon { .. } => false,
        };
        if goes {
            self.withdraw(None, now);
        }
    }

    /// Its state in words, with what holds its drain.
    #[must_use]
    pub fn in_words(&self, id: &str) -> String {
        self.departs(id).to_string()
    }

    /// Its state, for a person.
    pub(crate) fn departs(&self, id: &str) -> Departs {
        let how = match &self.state {
            DepartureState::Drain { drain, .. } => HowFar::Drains(drain.held.clone()),
            // Pods that came after its drain hold it.
            DepartureState::Leave { last: Some(LastDrain { drain, .. }), .. } if drain.held.is_some() => {
                HowFar::Drains(drain.held.clone())
            }
            DepartureState::Leave { .. } => HowFar::Leaves,
            DepartureState::Rest { .. } => self.empty_in_words(),
            DepartureState::Withdraw { .. } => HowFar::Stays,
            DepartureState::Uncordon { tried, .. } => match &tried.last {
                Some(last) if tried.is_too_often(RetryPolicy::UNCORDON) => {
                    HowFar::StaysCordoned(Detail(last.why.clone()))
                }
                Some(_) | None => HowFar::Stays,
            },
        };
        Departs { machine: id.to_owned(), how }
    }

    fn enter(&mut self, state: DepartureState, now: Timestamp) -> bool {
        debug_assert!(
            leads(TRANSITIONS, self.state.name(), state.name()),
            "the table has no move from {} to {}",
            self.state.name(),
            state.name()
        );
        self.state = state;
        self.since = now;
        STAYS
    }

    /// It leaves: Auto Scaling is told so now, by `effect`.
    pub(super) fn leaves(&mut self, effect: &Effect, now: Timestamp) {
        let completes = matches!(effect, Effect::CompleteTermination { .. });
        let last = (!completes).then(LastDrain::default);
        self.enter(DepartureState::Leave { requested_at: now, last }, now);
    }

    /// It stays after all: its command is cancelled, and it is uncordoned once that has ended.
    pub(crate) fn withdraw(&mut self, why: Option<String>, now: Timestamp) -> bool {
        self.problem = why.or_else(|| self.problem.take());
        let sent = self.state.command().cloned();
        self.enter(DepartureState::Withdraw { sent, cancelled_at: None }, now)
    }

    /// It was to stay, and has to go: it is drained. A drain that was called off and is not cancelled yet goes on.
    fn drains_after_all(&mut self, now: Timestamp) -> bool {
        self.problem = None;
        let sent = match &self.state {
            DepartureState::Withdraw { sent, cancelled_at } => {
                sent.clone().filter(|_| cancelled_at.is_none())
            }
            DepartureState::Drain { .. }
            | DepartureState::Leave { .. }
            | DepartureState::Rest { .. }
            | DepartureState::Uncordon { .. } => None,
        };
        let drain = Drain { sent, ..Drain::default() };
        self.enter(DepartureState::Drain { drain, prolonged: None }, now)
    }

    pub(super) fn advance(
        &mut self,
        id: &str,
        machine: Option<&MachineView>,
        scene: &Scene<'_>,
        slots: &mut Slots,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let hold = match machine.map(|machine| machine.lifecycle) {
            None => return GONE,
            // A load balancer deregisters it before its hook comes, and EC2 does not wait (Auto Scaling user guide, "How lifecycle hooks work").
            Some(Lifecycle::Terminating) if self.is_urgent(scene.now) => Hold::Free,
            // It is being terminated without a hook that would wait.
            Some(Lifecycle::Terminating) if scene.now.duration_since(self.since) > PATIENCE => return GONE,
            Some(Lifecycle::Terminating) => return STAYS,
            Some(Lifecycle::TerminatingWait) => Hold::Hook,
            Some(Lifecycle::Retained) => Hold::Kept,
            Some(Lifecycle::Pending | Lifecycle::InService | Lifecycle::Elsewhere) => Hold::Free,
        };
        // A controller that its group terminates leaves by itself.
        if hold.must_go() && self.role == Role::Controller {
            return GONE;
        }
        match &self.state {
            DepartureState::Drain { .. } => self.drain(id, hold, scene, slots, effects),
            DepartureState::Leave { last: Some(_), .. } if hold == Hold::Hook => {
                self.drain_again(id, scene, slots, effects)
            }
            DepartureState::Leave { requested_at, .. } => {
                let requested_at = *requested_at;
                self.leave(id, requested_at, hold, scene, effects)
            }
            DepartureState::Rest { .. }
            | DepartureState::Withdraw { .. }
            | DepartureState::Uncordon { .. }
                if hold.must_go() =>
            {
                // Auto Scaling terminates it now.
                self.cause = Cause::AutoScaling;
                self.drains_after_all(scene.now)
            }
            DepartureState::Rest { .. } if self.is_still_leaving(scene) => STAYS,
            DepartureState::Rest { .. } => self.withdraw(None, scene.now),
            DepartureState::Withdraw { .. } => self.take_back(scene, effects),
            DepartureState::Uncordon { .. } => self.uncordon(id, scene, slots, effects),
        }
    }

    fn drain(
        &mut self,
        id: &str,
        hold: Hold,
        scene: &Scene<'_>,
        slots: &mut Slots,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let now = scene.now;
        let (is_still_leaving, is_urgent) = (self.is_still_leaving(scene), self.is_urgent(now));
        let DepartureState::Drain { prolonged, .. } = &mut self.state else { return STAYS };
        if hold == Hold::Hook {
            prolong(&self.group, id, prolonged, now, effects);
        }
        if !hold.must_go() && self.cause == Cause::AutoScaling {
            // A late answer may be older than its hook (docs/aws.md). After a while this is impossible: then somebody removed it from its
            // group.
            return if now.duration_since(self.since) < CONSISTENT { STAYS } else { GONE };
        }
        if !hold.must_go() && !is_still_leaving {
            return self.withdraw(None, now);
        }
        // A hook waits for a resume; EC2 does not.
        if scene.paused && !is_urgent {
            return STAYS;
        }
        let gives_up = !hold.must_go() && self.is_of_a_rollout();
        let patience = gives_up.then_some(Patience { since: self.since, most: self.patience() });
        let DepartureState::Drain { drain, .. } = &mut self.state else { return STAYS };
        match drain.progress(id, scene.observed, now, patience) {
            DrainProgress::Runs | DrainProgress::Pauses => {}
            DrainProgress::Empty { asked_at } => self.is_empty(id, hold, asked_at, scene, effects),
            DrainProgress::GivenUp(why) => return self.withdraw(Some(why), now),
            DrainProgress::Idle => self.ask_to_drain(id, scene, slots, effects),
        }
        STAYS
    }

    /// Sends its drain to a controller, if one has time for it.
    fn ask_to_drain(&mut self, id: &str, scene: &Scene<'_>, slots: &mut Slots, effects: &mut Vec<Effect>) {
        let free = if self.is_urgent(scene.now) { slots.urgent } else { slots.drains };
        if free > 0
            && let Some(sent) = self.ask(id, self.drain_verb(id, scene.now), scene, effects)
            && let Some(command) = self.state.command_mut()
        {
            slots.drains = slots.drains.saturating_sub(1);
            slots.urgent -= 1;
            *command = Some(sent);
        }
    }

    /// How long pods may block its drain if a rollout removes it.
    const fn patience(&self) -> SignedDuration {
        match self.role {
            Role::Controller => CONTROLLER_DRAIN,
            Role::Pool(_) | Role::Etcd(_) | Role::Admin => WORKER_DRAIN,
        }
    }

    /// Sends a command to the controller with the fewest drains; `None` if no other controller is in service.
    fn ask(
        &mut self,
        id: &str,
        verb: Verb,
        scene: &Scene<'_>,
        effects: &mut Vec<Effect>,
    ) -> Option<SentCommand> {
        // Among equal controllers, another one each time, and not the same one for all machines.
        let at = id.bytes().fold(self.rounds as usize, |sum, byte| sum.wrapping_mul(31) + usize::from(byte));
        let (later, first) = scene.controllers.split_at(at % scene.controllers.len().max(1));
        let mut busy = scene.busy.borrow_mut();
        let in_turn = first.iter().chain(later).copied().filter(|one| *one != id);
        let controller = in_turn.min_by_key(|id| busy.get(*id).copied().unwrap_or_default())?;
        *busy.entry(controller.clone()).or_default() += 1;
        self.rounds += 1;
        let (of, name) = (format!("{id} {}", self.since), self.role.to_string());
        let sender = Sender { owner: &of, cluster: scene.cluster, name: &name };
        let command = sender.command(self.rounds, controller.clone(), verb, scene.now);
        effects.push(Effect::Send(command.clone()));
        Some(SentCommand { role: Role::Controller, command, at: scene.now, refused: None })
    }
}

#[cfg(test)]
mod tests;
