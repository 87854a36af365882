//! The outbox: effects that were decided and may not have been performed yet, each with its evidence (P12).
//!
//! A decision is stored first and performed afterwards, so that a function that dies in between loses nothing. An effect that is performed
//! later may be wrong by then: a member of etcd that was healthy when the termination of another was decided may have died meanwhile. So
//! every effect that changes what runs has the time of its evidence, and the time until which it may be performed. After that it is
//! dropped, and the next decision observes the world again: every state that follows such an effect can tell from the world whether the
//! effect took place.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use slipway_core::node::Verb;

use slipway_core::status::Report;

use super::{Decision, Effect, Rollout};

/// The maximum age of the evidence when something disruptive is done: the tick comes once a minute, and may be late once.
pub const FRESH: SignedDuration = SignedDuration::from_mins(3);

/// How long an invocation that stored effects has time to perform them, before another invocation performs them in its place: as long as it
/// may live (`Timeout` of the rollout function, infra/template.yaml), by a clock that may be behind ([`super::CLOCKS_APART`]). Two
/// invocations that perform the same termination at the same moment would make its group smaller twice, because Auto Scaling has no call
/// that makes a group as small as a given size. Lambda retries a dead invocation after a minute
/// (docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html), and the tick comes once a minute: what a dead invocation left
/// waits for two minutes at most.
pub(super) const LEASE: SignedDuration = SignedDuration::from_secs(60);

/// An effect that was decided and may not have been performed yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pending {
    /// Its number among the effects of this cluster, which is unique.
    pub id: u64,
    /// The effect.
    pub effect: Effect,
    /// When it was decided.
    pub decided_at: Timestamp,
    /// Its evidence; `None` if that cannot change: the effect is performed at any age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
}

/// The evidence of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Evidence {
    /// The kind of the observation.
    pub seen: Seen,
    /// When the oldest part of it was observed.
    pub at: Timestamp,
    /// Until when the effect may be performed.
    pub until: Timestamp,
}

/// The kinds of observations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Seen {
    /// Stacks, groups and answers at the time of the decision.
    World,
    /// The other members of etcd reported that they stay healthy without the member to be taken down.
    Members,
    /// The other controllers said that they are healthy.
    Controllers,
}

impl Evidence {
    /// Evidence of the time `at`.
    #[must_use]
    pub fn new(seen: Seen, at: Timestamp) -> Self {
        Self { seen, at, until: at.saturating_add(FRESH).unwrap_or(Timestamp::MAX) }
    }

    /// The same evidence, if it counts no longer than until then.
    pub(super) fn at_most_until(self, until: Timestamp) -> Self {
        Self { until: self.until.min(until), ..self }
    }
}

/// The effects of a decision, each with its evidence.
#[derive(Debug)]
pub(super) struct Effects {
    now: Timestamp,
    acts: Vec<(Effect, Evidence)>,
    /// How many of them do not depend on whether the open rollout continues.
    apart: usize,
}

impl Effects {
    /// No effects yet, for a decision that is made now.
    pub(super) fn new(now: Timestamp) -> Self {
        Self { now, acts: Vec::new(), apart: 0 }
    }

    /// The following effects belong to the open rollout.
    pub(super) fn of_the_rollout(&mut self) {
        self.apart = self.acts.len();
    }

    /// The rollout ends: effects of the same decision that would begin something are removed and returned, also the drains of
    /// machines that the rollout chose before.
    pub(super) fn begin_nothing(&mut self, is_own_drain: impl Fn(&str) -> bool) -> Vec<Effect> {
        let own = self.acts.split_off(self.apart);
        let (drains, apart): (Vec<_>, Vec<_>) = std::mem::take(&mut self.acts)
            .into_iter()
            .partition(|(effect, _)| matches!(effect, Effect::Send(command) if is_own_drain(&command.token)));
        let (begins, rest): (Vec<_>, Vec<_>) = own.into_iter().partition(|(effect, _)| effect.starts_work());
        self.acts = apart;
        self.acts.extend(rest);
        drains.into_iter().chain(begins).map(|(effect, _)| effect).collect()
    }

    /// Adds an effect with the present observation as its evidence.
    pub(super) fn push(&mut self, effect: Effect) {
        self.push_on(effect, Evidence::new(Seen::World, self.now));
    }

    /// Adds an effect with that evidence.
    pub(super) fn push_on(&mut self, effect: Effect, evidence: Evidence) {
        self.acts.push((effect, evidence));
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

/// The result of an effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EffectOutcome {
    /// It was performed.
    Done,
    /// The service refused it permanently, with this message.
    Refused(String),
    /// It was not performed, because its evidence is too old or gone.
    Dropped,
}

impl Pending {
    /// Whether its evidence is too old at `now`.
    #[must_use]
    pub fn is_stale(&self, now: Timestamp) -> bool {
        self.evidence.is_some_and(|evidence| now > evidence.until)
    }

    /// Whether the next decision depends on it.
    #[must_use]
    pub fn blocks_decision(&self) -> bool {
        !self.effect.only_reports()
    }
}

impl Effect {
    /// Whether it changes what runs: it is performed only with fresh evidence, and not after an order to stop.
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
                | Verb::EtcdRestore { .. }
                | Verb::EtcdDefragment
                | Verb::Drain { .. } => true,
                Verb::Status
                | Verb::Logs { .. }
                | Verb::Serves { .. }
                | Verb::EtcdHealth
                | Verb::EtcdSnapshot
                | Verb::Uncordon { .. } => false,
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

    /// Whether it only reports or cleans up: no decision depends on it, and it stays right however late it is performed.
    fn only_reports(&self) -> bool {
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

    /// Whether it takes `machine` down, drains it, or restarts it.
    fn takes(&self, machine: &str) -> bool {
        match self {
            Self::Terminate { instance, .. } => instance == machine,
            Self::Send(command) => match &command.verb {
                Verb::Drain { node, .. } => node == machine,
                Verb::Refresh { .. } | Verb::EtcdRestore { .. } | Verb::EtcdDefragment => {
                    command.instance == machine
                }
                Verb::Status
                | Verb::Logs { .. }
                | Verb::Serves { .. }
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

    /// Whether it begins something, so that it must not be performed after an order to stop. A waiting terminate hook is completed
    /// nevertheless: its machine was drained, and is terminated in any case.
    #[must_use]
    pub fn starts_work(&self) -> bool {
        let completes = matches!(self, Self::CompleteTermination { .. });
        // A snapshot disrupts nothing, but counts as a beginning.
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
            match &mut effect {
                Effect::Publish(event) => event.identify(format!("{}/{id}", self.cluster)),
                // CloudFormation refuses a token that an earlier operation on the stack had, also of a change set with the same name that
                // is made anew ("has already been used for this stack": banzaicloud/pipeline 3016).
                Effect::ExecuteChangeSet { token, .. } | Effect::DeleteStack { token, .. } => {
                    token.push_str(&format!("-{id}"));
                }
                Effect::CreateChangeSet(_)
                | Effect::DeleteChangeSet { .. }
                | Effect::PointAddons(_)
                | Effect::Send(_)
                | Effect::Cancel(_)
                | Effect::SetDesired { .. }
                | Effect::Terminate { .. }
                | Effect::ProlongTermination { .. }
                | Effect::CompleteTermination { .. }
                | Effect::ArmTick
                | Effect::DisarmTick => {}
            }
            // The pointer to the add-ons is part of the state, and never too late.
            let lasts = effect.only_reports() || matches!(effect, Effect::PointAddons(_));
            let evidence = (!lasts).then_some(evidence);
            self.outbox.push(Pending { id, effect, decided_at: effects.now, evidence });
        }
    }

    /// Removes effects that would begin something from the outbox, after an order to stop. If that ends the rollout, its drains are cancelled:
    /// a function may have sent them and not recorded that yet, and a drain whose node is uncordoned begins again.
    pub(super) fn withdraw_pending(&mut self) {
        let ends = self.destroy().is_some() || self.active().is_some_and(|active| active.aborted.is_some());
        let (withdrawn, rest): (Vec<Pending>, Vec<Pending>) =
            std::mem::take(&mut self.outbox).into_iter().partition(|pending| pending.effect.starts_work());
        self.outbox = rest;
        for Pending { effect, .. } in withdrawn {
            let is_drain = matches!(&effect, Effect::Send(command)
                if self.departures.values().any(|one| one.drains_by(&command.token)));
            if !(ends && is_drain) {
                self.dropped(&effect);
            }
        }
    }

    /// Removes effects on `machine` from the outbox: a person skipped it after they were decided and before they were performed. A drain is
    /// cancelled, because a function may have sent it and died before recording that.
    pub(super) fn leave_alone(&mut self, machine: &str, now: Timestamp) {
        // A machine that Auto Scaling terminates leaves in any case.
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
        if let Some(one) = self.departures.get_mut(machine) {
            one.leave_alone(stays, now);
        }
    }

    /// The state after the results of effects of the outbox, by their numbers. An effect that is not in the outbox any more is ignored:
    /// another invocation recorded it, or it was withdrawn.
    #[must_use]
    pub fn recorded(mut self, outcomes: &[(u64, EffectOutcome)]) -> Self {
        for (id, outcome) in outcomes {
            let Some(at) = self.outbox.iter().position(|pending| pending.id == *id) else { continue };
            let Pending { effect, .. } = self.outbox.remove(at);
            match outcome {
                EffectOutcome::Done => {}
                EffectOutcome::Refused(reason) => self.refused(&effect, reason),
                EffectOutcome::Dropped => self.dropped(&effect),
            }
        }
        self
    }

    /// Whether another invocation has just stored the effects in the outbox, and is about to perform them.
    #[must_use]
    pub fn is_leased(&self, now: Timestamp) -> bool {
        let newest = self.outbox.iter().map(|pending| pending.decided_at).max();
        newest.is_some_and(|newest| now.duration_since(newest) < LEASE)
    }

    /// The service refused the effect permanently: whatever waits for it gets the refusal.
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
            Effect::Terminate { group, instance, .. } => self.group_refused(group, Some(instance), reason),
            Effect::Send(command) => self.unsent(&command.token, reason),
            // The state matches the world without it. A hook is settled again while its machine waits in it, which may be one that Auto
            // Scaling removes by itself.
            Effect::DeleteChangeSet { .. }
            | Effect::ProlongTermination { .. }
            | Effect::CompleteTermination { .. }
            | Effect::PointAddons(_)
            | Effect::Cancel(_)
            | Effect::ArmTick
            | Effect::DisarmTick
            | Effect::Publish(_) => {}
        }
    }

    /// It was not performed, and is decided again: nobody waits for the answer of a command any more. For all other effects the world tells
    /// whether they were performed, because an invocation may have performed one and died before recording that.
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

/// The decision with these effects, each in the outbox with its evidence.
pub(super) fn finish(mut next: Rollout, effects: Effects, mut report: Report) -> Decision {
    let before = next.outbox.len();
    next.enqueue(effects);
    let effects = next.outbox[before..].iter().map(|pending| pending.effect.clone()).collect();
    report.decided = next.effects_decided;
    Decision { next, effects, report }
}
