//! The outbox: effects that were decided and may not have been performed yet, each with what it was decided on (P12).
//!
//! A decision is stored first and performed after that, so that a function that dies in between loses nothing. What is performed later than
//! decided may be wrong by then: a member of etcd that was well when another was to be terminated may have died meanwhile. So every effect
//! that changes what runs carries when the world was seen as it was decided on, and until when it may be performed. After that it is
//! dropped, and the next decision looks at the world anew: every state that follows such an effect can tell from the world whether the
//! effect took place.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use slipway_core::node::Verb;

use super::departures::DepartureState;
use super::{Effect, Rollout};

/// How old what was seen may be when something disruptive is done: the tick comes once a minute, and may come late once.
pub const FRESH: SignedDuration = SignedDuration::from_mins(3);

/// How long an invocation that stored effects is given to perform them, before another does so in its place. Lambda tries an invocation that
/// died again after a minute (docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html), and the tick comes once a minute.
const LEASE: SignedDuration = SignedDuration::from_secs(45);

/// An effect that was decided and may not have been performed yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pending {
    /// Counts the effects of this cluster: no other has its number.
    pub id: u64,
    /// What is to be done.
    pub effect: Effect,
    /// When it was decided.
    pub decided_at: Timestamp,
    /// What it was decided on; `None` where that cannot change: it is performed at any age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
}

/// What an effect was decided on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Evidence {
    /// What was seen.
    pub seen: Seen,
    /// When the oldest of it was seen.
    pub at: Timestamp,
    /// Until when the effect may be performed.
    pub until: Timestamp,
}

/// What was seen of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Seen {
    /// Stacks, groups and answers, as they were described when the decision was made.
    World,
    /// The members of etcd said that they are well without the one that goes.
    Members,
    /// The other controllers said that they are well.
    Controllers,
}

impl Evidence {
    /// What was seen at `at`.
    #[must_use]
    pub fn new(seen: Seen, at: Timestamp) -> Self {
        Self { seen, at, until: at.saturating_add(FRESH).unwrap_or(Timestamp::MAX) }
    }
}

/// The effects of a decision, each with what it was decided on.
#[derive(Debug)]
pub(super) struct Effects {
    now: Timestamp,
    acts: Vec<(Effect, Evidence)>,
    /// How many of them do not depend on whether the rollout that is open goes on.
    apart: usize,
}

impl Effects {
    /// None yet, of a decision that is made now.
    pub(super) fn new(now: Timestamp) -> Self {
        Self { now, acts: Vec::new(), apart: 0 }
    }

    /// What follows is what the rollout that is open does.
    pub(super) fn of_the_rollout(&mut self) {
        self.apart = self.acts.len();
    }

    /// The rollout ends: what it would have begun in the same decision is not begun, and given back.
    pub(super) fn begin_nothing(&mut self) -> Vec<Effect> {
        let own = self.acts.split_off(self.apart);
        let (begins, rest): (Vec<_>, Vec<_>) = own.into_iter().partition(|(effect, _)| effect.begins());
        self.acts.extend(rest);
        begins.into_iter().map(|(effect, _)| effect).collect()
    }

    /// One that was decided on what the world is described as now.
    pub(super) fn push(&mut self, effect: Effect) {
        self.push_on(effect, Seen::World, self.now);
    }

    /// One that was decided on answers that were asked for at `at`.
    pub(super) fn push_on(&mut self, effect: Effect, seen: Seen, at: Timestamp) {
        self.acts.push((effect, Evidence::new(seen, at)));
    }

    pub(super) fn append(&mut self, others: Self) {
        self.acts.extend(others.acts);
    }
}

impl Extend<Effect> for Effects {
    fn extend<T: IntoIterator<Item = Effect>>(&mut self, effects: T) {
        effects.into_iter().for_each(|effect| self.push(effect));
    }
}

/// What became of an effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was performed.
    Done,
    /// The service refused it outright, in these words: asking again would not help.
    Refused(String),
    /// It was not performed, since what it was decided on is too old or is gone.
    Dropped,
}

impl Pending {
    /// Whether what it was decided on is too old by `now`.
    #[must_use]
    pub fn is_stale(&self, now: Timestamp) -> bool {
        self.evidence.is_some_and(|evidence| now > evidence.until)
    }

    /// Whether what is decided next depends on it.
    #[must_use]
    pub fn holds_up(&self) -> bool {
        !self.effect.only_tells()
    }
}

impl Effect {
    /// Whether it changes what runs: it is done only on fresh evidence, and not after a person said to stop.
    #[must_use]
    pub fn is_disruptive(&self) -> bool {
        match self {
            Self::ExecuteChangeSet { .. }
            | Self::DeleteStack { .. }
            | Self::SetDesired { .. }
            | Self::Terminate { .. }
            | Self::CompleteTermination { .. } => true,
            Self::Send(command) => match command.verb {
                Verb::Refresh { .. }
                | Verb::EtcdMoveLeader
                | Verb::EtcdRemove { .. }
                | Verb::EtcdRetire
                | Verb::Drain { .. } => true,
                Verb::Status | Verb::EtcdHealth | Verb::EtcdSnapshot | Verb::Uncordon { .. } => false,
            },
            Self::CreateChangeSet(_)
            | Self::DeleteChangeSet { .. }
            | Self::PointAddons(_)
            | Self::Cancel(_)
            | Self::ProlongTermination { .. }
            | Self::ArmTick
            | Self::DisarmTick
            | Self::Publish(_) => false,
        }
    }

    /// Whether it only tells or tidies up: no decision depends on it, and it stays true however late it is performed.
    fn only_tells(&self) -> bool {
        match self {
            Self::DeleteChangeSet { .. }
            | Self::Cancel(_)
            | Self::ArmTick
            | Self::DisarmTick
            | Self::Publish(_) => true,
            Self::CreateChangeSet(_)
            | Self::ExecuteChangeSet { .. }
            | Self::DeleteStack { .. }
            | Self::PointAddons(_)
            | Self::Send(_)
            | Self::SetDesired { .. }
            | Self::Terminate { .. }
            | Self::ProlongTermination { .. }
            | Self::CompleteTermination { .. } => false,
        }
    }

    /// Whether it takes `machine` down, empties it, or starts it anew.
    fn takes(&self, machine: &str) -> bool {
        match self {
            Self::Terminate { instance, .. } => instance == machine,
            Self::Send(command) => match &command.verb {
                Verb::Drain { node, .. } => node == machine,
                Verb::Refresh { .. } => command.instance == machine,
                Verb::Status
                | Verb::EtcdHealth
                | Verb::EtcdMoveLeader
                | Verb::EtcdSnapshot
                | Verb::EtcdRemove { .. }
                | Verb::EtcdRetire
                | Verb::Uncordon { .. } => false,
            },
            Self::CreateChangeSet(_)
            | Self::ExecuteChangeSet { .. }
            | Self::DeleteChangeSet { .. }
            | Self::DeleteStack { .. }
            | Self::PointAddons(_)
            | Self::Cancel(_)
            | Self::SetDesired { .. }
            | Self::ProlongTermination { .. }
            | Self::CompleteTermination { .. }
            | Self::ArmTick
            | Self::DisarmTick
            | Self::Publish(_) => false,
        }
    }

    /// Whether it begins something, so that it must not be performed once a person said to stop. A terminate hook that waits is completed all
    /// the same: its machine was drained, and goes either way.
    #[must_use]
    pub fn begins(&self) -> bool {
        let completes = matches!(self, Self::CompleteTermination { .. });
        // A snapshot disrupts nothing, and is a beginning all the same.
        let saves = matches!(self, Self::Send(command) if command.verb == Verb::EtcdSnapshot);
        matches!(self, Self::CreateChangeSet(_)) || saves || self.is_disruptive() && !completes
    }
}

impl Rollout {
    /// Puts effects into the outbox, in order.
    pub(super) fn enqueue(&mut self, effects: Effects) {
        for (mut effect, evidence) in effects.acts {
            self.effects_decided += 1;
            let id = self.effects_decided;
            if let Effect::Publish(event) = &mut effect {
                event.identify(format!("{}/{id}", self.cluster));
            }
            // The add-ons that node managers follow are part of the state, and never too late.
            let lasts = effect.only_tells() || matches!(effect, Effect::PointAddons(_));
            let evidence = (!lasts).then_some(evidence);
            self.outbox.push(Pending { id, effect, decided_at: effects.now, evidence });
        }
    }

    /// Takes what would begin something out of the outbox: a person said to stop.
    pub(super) fn withdraw_pending(&mut self) {
        let (withdrawn, rest): (Vec<Pending>, Vec<Pending>) =
            std::mem::take(&mut self.outbox).into_iter().partition(|pending| pending.effect.begins());
        self.outbox = rest;
        for pending in withdrawn {
            self.dropped(&pending.effect);
        }
    }

    /// Takes what would be done to `machine` out of the outbox: a person said to leave it after that was decided, and before it was done.
    /// A drain may have been sent by a function that died before it could say so, so that it is taken back.
    pub(super) fn leave_alone(&mut self, machine: &str, now: Timestamp) {
        // What Auto Scaling takes down goes, whatever anybody says here.
        if self.departures.get(machine).is_some_and(|one| !one.is_of_a_rollout()) {
            return;
        }
        let (withdrawn, rest): (Vec<Pending>, Vec<Pending>) =
            std::mem::take(&mut self.outbox).into_iter().partition(|pending| pending.effect.takes(machine));
        self.outbox = rest;
        let mut stays = false;
        for Pending { effect, .. } in withdrawn {
            stays |= matches!(effect, Effect::Terminate { .. });
            if let (Effect::Send(command), Some(active)) = (&effect, self.active_mut())
                && matches!(command.verb, Verb::Refresh { .. })
            {
                active.nodes.not_refreshed(&command.token);
            }
        }
        let goes = |state: &DepartureState| match state {
            DepartureState::Drain { .. } => true,
            DepartureState::Leave { .. } => stays,
            DepartureState::Rest | DepartureState::Withdraw { .. } | DepartureState::Uncordon { .. } => false,
        };
        if let Some(one) = self.departures.get_mut(machine).filter(|one| goes(&one.state)) {
            one.withdraw(None, now);
        }
    }

    /// The state once it is known what became of effects of the outbox, by their numbers. What is not in the outbox any more is passed over:
    /// somebody else recorded it, or it was withdrawn.
    #[must_use]
    pub fn recorded(mut self, outcomes: &[(u64, Outcome)]) -> Self {
        for (id, outcome) in outcomes {
            let Some(at) = self.outbox.iter().position(|pending| pending.id == *id) else { continue };
            let Pending { effect, .. } = self.outbox.remove(at);
            match outcome {
                Outcome::Done => {}
                Outcome::Refused(reason) => self.refused(&effect, reason),
                Outcome::Dropped => self.dropped(&effect),
            }
        }
        self
    }

    /// Whether another invocation stored what is in the outbox only just now, and is about to perform it.
    #[must_use]
    pub fn is_leased(&self, now: Timestamp) -> bool {
        let newest = self.outbox.iter().map(|pending| pending.decided_at).max();
        newest.is_some_and(|newest| now.duration_since(newest) < LEASE)
    }

    /// The service would not do that, ever: whoever waits for it hears so.
    fn refused(&mut self, effect: &Effect, reason: &str) {
        match effect {
            Effect::CreateChangeSet(request) => self.stack_refused(&request.stack, reason),
            Effect::ExecuteChangeSet { stack, .. } | Effect::DeleteStack { stack, .. } => {
                self.stack_refused(stack, reason);
            }
            Effect::SetDesired { group, .. } => {
                if let Some(active) = self.active_mut() {
                    active.nodes.not_raised(group);
                }
                self.group_refused(group, None, reason);
            }
            Effect::ProlongTermination { group, .. } | Effect::CompleteTermination { group, .. } => {
                self.group_refused(group, None, reason);
            }
            Effect::Terminate { group, instance, .. } => self.group_refused(group, Some(instance), reason),
            Effect::Send(command) => self.unsent(&command.token, reason),
            // The world is as the state says without it.
            Effect::DeleteChangeSet { .. }
            | Effect::PointAddons(_)
            | Effect::Cancel(_)
            | Effect::ArmTick
            | Effect::DisarmTick
            | Effect::Publish(_) => {}
        }
    }

    /// It was not done, and is decided anew: of a command nobody waits for the answer any more. Of all else the world tells whether it
    /// was done, since it may have been, by an invocation that died before it could say so.
    fn dropped(&mut self, effect: &Effect) {
        match effect {
            Effect::Send(command) => self.not_sent(&command.token),
            Effect::DeleteStack { stack, .. } => self.not_deleted(stack),
            Effect::CreateChangeSet(_)
            | Effect::ExecuteChangeSet { .. }
            | Effect::DeleteChangeSet { .. }
            | Effect::PointAddons(_)
            | Effect::Cancel(_)
            | Effect::SetDesired { .. }
            | Effect::Terminate { .. }
            | Effect::ProlongTermination { .. }
            | Effect::CompleteTermination { .. }
            | Effect::ArmTick
            | Effect::DisarmTick
            | Effect::Publish(_) => {}
        }
    }
}
