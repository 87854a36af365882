//! The commands that machines get through Run Command, and their results.
//!
//! Commands are sent in rounds. Each command has its own token, so that a function that dies between two calls sends no command twice. The
//! number of the round is part of the token, so that an answer to an earlier round does not count for a later one.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use slipway_core::digest::sha256_hex;
use slipway_core::node::answer::VerbAnswer;
use slipway_core::node::{Answer, Command, CommandView, FailureCode, HowUnanswered, Unanswered, Verb};
use slipway_core::role::Role;

use super::{Effect, Observed};

mod retry;

pub(crate) use retry::{RetryDecision, RetryPolicy, RetryState};

/// The pause before machines are asked about their health again: about one tick.
pub(super) const PAUSE: SignedDuration = SignedDuration::from_secs(50);

/// The longest token: `Comment` of `SendCommand` has at most 100 characters
/// (<https://docs.aws.amazon.com/systems-manager/latest/APIReference/API_SendCommand.html>).
const MOST_TOKEN: usize = 100;

/// The most of what a sender works on in a token.
const MOST_NAME: usize = 24;

/// A command that was requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SentCommand {
    /// The role of the machine.
    pub role: Role,
    /// The command.
    pub command: Command,
    /// When it was requested.
    pub at: Timestamp,
    /// Why Run Command refused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// The sender of commands: no two senders share a token.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sender<'a> {
    /// What identifies the sender within its cluster, such as its rollout.
    pub(super) owner: &'a str,
    /// `clusterName`.
    pub(super) cluster: &'a str,
    /// What it works on.
    pub(super) name: &'a str,
}

impl Sender<'_> {
    /// A command of round `round`, decided at `now`. The time is in its token: whoever may send the documents cannot send a command with that
    /// token before it is decided, and so not have an old answer count for it.
    pub(super) fn command(&self, round: u32, instance: String, verb: Verb, now: Timestamp) -> Command {
        let Self { owner: of, cluster, name } = self;
        let whole = format!(
            "{of} {name} {round} {instance} {} {:?} {}",
            verb.document(),
            verb.parameters(),
            now.as_nanosecond()
        );
        let digest = &sha256_hex(whole.as_bytes())[..24];
        // The cluster's name stays whole: Run Command's event wakes the cluster that the token names (`cluster_of_token`). What is worked on is for people,
        // and is part of the digest.
        let rest = format!("/{round}/{digest}");
        let room = MOST_TOKEN.saturating_sub(cluster.chars().count() + "/".len() + rest.len());
        let name: String = name.chars().take(room.min(MOST_NAME)).collect();
        let token = format!("{cluster}/{name}{rest}");
        Command { token, instance, verb }
    }
}

/// Commands that were sent together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Round(Vec<SentCommand>);

impl Round {
    /// The commands of round `number`.
    pub(super) fn new(
        sender: Sender<'_>,
        number: u32,
        whom: Vec<(Role, String, Verb)>,
        now: Timestamp,
    ) -> Self {
        Self(whom.into_iter().map(|one| SentCommand::new(sender, number, one, now)).collect())
    }

    /// Each command and its recipient.
    pub fn iter(&self) -> std::slice::Iter<'_, SentCommand> {
        self.0.iter()
    }

    /// Whether there is no command.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn first(&self) -> Option<&SentCommand> {
        self.0.first()
    }

    pub(super) fn as_slice(&self) -> &[SentCommand] {
        &self.0
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [SentCommand] {
        &mut self.0
    }

    /// The command with that token was never sent.
    pub(super) fn forget(&mut self, token: &str) {
        self.0.retain(|sent| sent.command.token != token);
    }

    /// The round without the commands to these machines: nobody waits for their answers.
    pub(super) fn without(mut self, machines: &BTreeSet<String>) -> Self {
        self.0.retain(|sent| !machines.contains(&sent.command.instance));
        self
    }

    /// All answers; `None` if some are still missing.
    pub(super) fn answers<T: VerbAnswer>(
        &self,
        observed: &Observed,
        now: Timestamp,
    ) -> Option<Vec<(&SentCommand, Result<T, String>)>> {
        self.0.iter().map(|sent| Some((sent, sent.answer(observed, now)?))).collect()
    }

    /// The answer of a round with a single machine; `None` if it is still missing.
    pub(super) fn only_answer<T: VerbAnswer>(
        &self,
        observed: &Observed,
        now: Timestamp,
    ) -> Option<Result<T, String>> {
        let nobody = || Some(Err("nobody was asked".to_owned()));
        self.first().map_or_else(nobody, |sent| sent.answer(observed, now))
    }

    /// Whether a command reached its machine.
    pub(super) fn has_reached_any(&self, observed: &Observed) -> bool {
        self.0.iter().any(|sent| sent.has_reached(observed))
    }

    /// When it began; `None` if there is no command.
    pub(super) fn at(&self) -> Option<Timestamp> {
        self.0.iter().map(|sent| sent.at).max()
    }

    /// Whether it is time to ask again.
    pub(super) fn may_ask_again(&self, now: Timestamp) -> bool {
        self.at().is_none_or(|at| now.duration_since(at) >= PAUSE)
    }
}

impl SentCommand {
    /// The command of round `number` to one machine.
    pub(super) fn new(
        sender: Sender<'_>,
        number: u32,
        (role, instance, verb): (Role, String, Verb),
        now: Timestamp,
    ) -> Self {
        Self { role, command: sender.command(number, instance, verb, now), at: now, refused: None }
    }

    /// Run Command refused it, if that is its token.
    pub(super) fn was_refused(&mut self, token: &str, reason: &str) {
        if self.command.token == token {
            self.refused = Some(reason.to_owned());
        }
    }

    /// Whether it was requested longer ago than that.
    pub(super) fn is_older_than(&self, age: SignedDuration, now: Timestamp) -> bool {
        now.duration_since(self.at) > age
    }

    /// Cancels it, if that is useful. A query ends within moments, and a refresh is completed, because half of it is worse than all of it.
    pub(super) fn take_back(&self) -> Option<Effect> {
        match self.command.verb {
            Verb::Drain { .. } | Verb::EtcdSnapshot => Some(Effect::Cancel(self.command.clone())),
            Verb::Status
            | Verb::Logs { .. }
            | Verb::Serves { .. }
            | Verb::Refresh { .. }
            | Verb::EtcdHealth
            | Verb::EtcdMoveLeader
            | Verb::EtcdRemove { .. }
            | Verb::EtcdRetire
            | Verb::EtcdRestore { .. }
            | Verb::EtcdDefragment
            | Verb::Uncordon { .. } => None,
        }
    }

    fn view<'o>(&self, observed: &'o Observed) -> Option<&'o CommandView> {
        observed.answers.get(&self.command.token).and_then(Option::as_ref)
    }

    /// Whether its answer is an error with that code.
    pub(super) fn failed_with(&self, observed: &Observed, code: FailureCode) -> bool {
        self.view(observed).is_some_and(|view| view.failed_with(code))
    }

    /// Whether its machine's agent does not know the verb.
    pub(super) fn was_not_understood(&self, observed: &Observed) -> bool {
        let view = self.view(observed);
        matches!(view, Some(CommandView::Unanswered(Unanswered { how: HowUnanswered::NotUnderstood, .. })))
    }

    /// Whether it never ran, because its machine was off or its agent had too much to do. Then nothing is known about the work.
    fn never_ran(&self, observed: &Observed) -> bool {
        match self.view(observed) {
            Some(CommandView::Unanswered(Unanswered { how, .. })) => *how == HowUnanswered::Undelivered,
            Some(CommandView::Pending) => true,
            Some(CommandView::InProgress | CommandView::Answered(_) | CommandView::Failed(_)) => false,
            None => self.refused.is_none(),
        }
    }

    /// Whether it reached its machine. One that did not is no try: Systems Manager may be out of reach for longer than three tries take.
    pub(super) fn has_reached(&self, observed: &Observed) -> bool {
        self.refused.is_none() && !self.never_ran(observed)
    }

    /// The answer of its verb as a `T`; `None` if it is still running.
    pub(super) fn answer<T: VerbAnswer>(
        &self,
        observed: &Observed,
        now: Timestamp,
    ) -> Option<Result<T, String>> {
        let answer = self.outcome(observed, now)?;
        let verb = self.command.verb.document();
        Some(answer.and_then(|answer| {
            T::from_answer(answer).ok_or_else(|| format!("{verb} gave the answer of another verb"))
        }))
    }

    /// Its result for any verb; `None` if it is still running.
    pub(super) fn outcome<'o>(
        &self,
        observed: &'o Observed,
        now: Timestamp,
    ) -> Option<Result<&'o Answer, String>> {
        if let Some(refused) = &self.refused {
            return Some(Err(refused.clone()));
        }
        let waits = now.duration_since(self.at);
        let verb = self.command.verb.document();
        // `None`: it has only just been sent, and was not observed.
        let view = observed.answers.get(&self.command.token)?;
        let late = |what: &str| {
            (waits > self.command.verb.answers_within())
                .then(|| Err(format!("{verb} {what} for {} minutes", waits.as_mins())))
        };
        match view {
            None => late("did not appear in Run Command"),
            Some(CommandView::Pending | CommandView::InProgress) => late("was not answered"),
            Some(CommandView::Answered(answer)) => Some(Ok(answer)),
            Some(CommandView::Failed(failure)) => Some(Err(failure.message.clone())),
            Some(CommandView::Unanswered(Unanswered { problem, .. })) => {
                let problem = problem.as_deref().unwrap_or("Run Command does not say why");
                Some(Err(format!("{verb}: {problem}")))
            }
        }
    }
}

#[cfg(test)]
mod tests;
