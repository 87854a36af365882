//! What machines are asked, and what became of it.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::super::departures::Departure;
use super::super::outbox::Seen;
use super::super::{Effect, Observed};
use super::{Asked, NodeState, NodeStep, Nodes, PAUSE, Turn, Work};
use slipway_core::digest::sha256_hex;
use slipway_core::node::answer::OfVerb;
use slipway_core::node::{Answer, Command, CommandView, FailureCode, HowUnanswered, Unanswered, Verb};
use slipway_core::pki::Role;

impl NodeStep {
    /// Asks machines something, in a round of its own.
    pub(super) fn ask(&mut self, turn: &mut Turn<'_>, whom: Vec<(Role, String, Verb)>) {
        self.ask_on(turn, Seen::World, turn.now, whom);
    }

    /// As [`NodeStep::ask`], decided on what was seen at `at`.
    pub(super) fn ask_on(
        &mut self,
        turn: &mut Turn<'_>,
        seen: Seen,
        at: Timestamp,
        whom: Vec<(Role, String, Verb)>,
    ) {
        self.round += 1;
        self.asked.clear();
        for (role, instance, verb) in whom {
            let command = self.command(&turn.token, turn.cluster, instance, verb);
            turn.effects.push_on(Effect::Send(command.clone()), seen, at);
            self.asked.push(Asked { role, command, at: turn.now, refused: None });
        }
    }

    /// A command of the present round. The rollout is in its token, and no other has its like.
    pub(super) fn command(&self, rollout: &str, cluster: &str, instance: String, verb: Verb) -> Command {
        command(rollout, cluster, &self.role, self.round, instance, verb)
    }

    /// A controller that was cordoned does not go now: pods may come to it again ([`Departure`]).
    pub(super) fn call_off(&mut self, departures: &mut BTreeMap<String, Departure>, now: Timestamp) {
        let Some(id) = self.cordoned.take() else { return };
        self.drained = None;
        let drains = |asked: &&Asked| matches!(&asked.command.verb, Verb::Drain { node, .. } if *node == id);
        let asked = self.asked.iter().find(drains).cloned();
        departures.insert(id, Departure::called_off(self.role.clone(), &self.group, asked, now));
    }

    /// The answers to the last round; `None`: some are still to come.
    pub(super) fn answers<T: OfVerb>(&self, turn: &Turn<'_>) -> Option<Vec<(&Asked, Result<T, String>)>> {
        self.asked.iter().map(|asked| Some((asked, answer(asked, turn.observed, turn.now)?))).collect()
    }

    /// Whether the last round's first answer is an error of that code.
    pub(super) fn is_told(&self, turn: &Turn<'_>, code: FailureCode) -> bool {
        self.asked.first().is_some_and(|asked| is_told(asked, turn.observed, code))
    }

    /// When the last round began.
    pub(super) fn asked_at(&self) -> Option<Timestamp> {
        self.asked.iter().map(|asked| asked.at).max()
    }

    /// Whether it is time to ask once more.
    pub(super) fn may_ask_again(&self, turn: &Turn<'_>) -> bool {
        self.asked_at().is_none_or(|at| turn.now.duration_since(at) >= PAUSE)
    }
}

impl Nodes {
    /// The rollout ends: what was asked for and still runs is taken back, and controllers that were cordoned stay.
    pub(in super::super) fn called_off(
        &mut self,
        departures: &mut BTreeMap<String, Departure>,
        now: Timestamp,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        for step in &mut self.steps {
            // One that was told to go, goes.
            if step.state != NodeState::Leave {
                step.call_off(departures, now);
            }
            if step.work == Work::Remove && !step.is_deleting() {
                step.let_all_stay(departures, now);
            }
            let snapshots = step.asked.iter().filter(|_| step.state == NodeState::Snapshot);
            effects.extend(snapshots.filter_map(call_back));
        }
        effects
    }
}

/// A command of `round`, whose token no other has: `of` is what else names it.
pub(in super::super) fn command(
    of: &str,
    cluster: &str,
    role: &Role,
    round: u32,
    instance: String,
    verb: Verb,
) -> Command {
    let whole = format!("{of} {role} {round} {instance} {}", verb.document());
    let short = |text: &str, most: usize| text.chars().take(most).collect::<String>();
    let token = format!(
        "{}/{}/{round}/{}",
        short(cluster, 44),
        short(&role.to_string(), 24),
        &sha256_hex(whole.as_bytes())[..24]
    );
    Command { token, instance, verb }
}

/// Takes back what was asked, if that is of use. What only asks ends within moments, and a machine that takes new credentials is seen to
/// its end: half of that is worse than all of it.
pub(in super::super) fn call_back(asked: &Asked) -> Option<Effect> {
    match asked.command.verb {
        Verb::Drain { .. } | Verb::EtcdSnapshot => Some(Effect::Cancel(asked.command.clone())),
        Verb::Status
        | Verb::Refresh { .. }
        | Verb::EtcdHealth
        | Verb::EtcdMoveLeader
        | Verb::EtcdRemove { .. }
        | Verb::EtcdRetire
        | Verb::Uncordon { .. } => None,
    }
}

/// Whether what was asked was answered by an error of that code.
pub(in super::super) fn is_told(asked: &Asked, observed: &Observed, code: FailureCode) -> bool {
    let view = observed.answers.get(&asked.command.token).and_then(Option::as_ref);
    view.is_some_and(|view| view.failed_with(code))
}

/// Whether what was asked never ran: its machine was off, or its agent had too much to do. That tells nothing of what was asked.
pub(in super::super) fn never_ran(asked: &Asked, observed: &Observed) -> bool {
    match observed.answers.get(&asked.command.token).and_then(Option::as_ref) {
        Some(CommandView::Unanswered(Unanswered { how, .. })) => *how == HowUnanswered::Undelivered,
        Some(CommandView::Pending) => true,
        Some(CommandView::InProgress | CommandView::Answered(_) | CommandView::Failed(_)) => false,
        None => asked.refused.is_none(),
    }
}

/// What became of a command whose verb answers with `T`; `None`: it is under way.
pub(in super::super) fn answer<T: OfVerb>(
    asked: &Asked,
    observed: &Observed,
    now: Timestamp,
) -> Option<Result<T, String>> {
    let answer = outcome(asked, observed, now)?;
    let verb = asked.command.verb.document();
    Some(
        answer.and_then(|answer| {
            T::of(answer).ok_or_else(|| format!("{verb} gave the answer of another verb"))
        }),
    )
}

/// What became of a command, whatever it was; `None`: it is under way.
pub(in super::super) fn outcome<'o>(
    asked: &Asked,
    observed: &'o Observed,
    now: Timestamp,
) -> Option<Result<&'o Answer, String>> {
    if let Some(refused) = &asked.refused {
        return Some(Err(refused.clone()));
    }
    let waits = now.duration_since(asked.at);
    let verb = asked.command.verb.document();
    let Some(view) = observed.answers.get(&asked.command.token) else {
        // It was only just asked for.
        return None;
    };
    let late = |what: &str| {
        (waits > longest(&asked.command.verb))
            .then(|| Err(format!("{verb} {what} for {} minutes", waits.as_mins())))
    };
    match view {
        None => late("was not heard of"),
        Some(CommandView::Pending | CommandView::InProgress) => late("was not answered"),
        Some(CommandView::Answered(answer)) => Some(Ok(answer)),
        Some(CommandView::Failed(failure)) => Some(Err(failure.message.clone())),
        Some(CommandView::Unanswered(Unanswered { problem, .. })) => {
            let problem = problem.as_deref().unwrap_or("Run Command does not say why");
            Some(Err(format!("{verb}: {problem}")))
        }
    }
}

/// After so long a command that was not answered never will be: a little more than its document lets it run.
pub(in super::super) const fn longest(verb: &Verb) -> SignedDuration {
    match verb {
        Verb::Status | Verb::EtcdHealth | Verb::EtcdRetire | Verb::Uncordon { .. } => {
            SignedDuration::from_mins(6)
        }
        Verb::EtcdMoveLeader | Verb::EtcdRemove { .. } => SignedDuration::from_mins(9),
        Verb::Refresh { .. } => SignedDuration::from_mins(20),
        Verb::EtcdSnapshot => SignedDuration::from_mins(35),
        // It ends by itself, done or not.
        Verb::Drain { for_s, .. } => SignedDuration::from_secs(*for_s as i64 + 300),
    }
}
