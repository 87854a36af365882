//! The results of commands, as Run Command reports them.

use std::fmt;

use super::answer::{self, Answer, MOST_WORDS, Unreadable};
use super::command::Verb;
use super::{FailureCode, VerbFailure};
use crate::words::harmless;

/// The state of a [`Command`](super::Command).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandView {
    /// The machine has not received it.
    Pending,
    /// The machine is running it.
    InProgress,
    /// The verb succeeded, and this is its answer.
    Answered(Answer),
    /// The verb failed, and says why.
    Failed(VerbFailure),
    /// It has ended without an answer that could be read.
    Unanswered(Unanswered),
}

impl CommandView {
    /// Reads what Run Command reports about a command that runs `verb`.
    #[must_use]
    pub fn read(verb: &Verb, invocation: &Invocation<'_>) -> Self {
        let how = match invocation.status {
            CommandStatus::Pending => return Self::Pending,
            CommandStatus::InProgress => return Self::InProgress,
            CommandStatus::Success => HowUnanswered::Succeeded,
            CommandStatus::Failed if invocation.was_not_understood() => HowUnanswered::NotUnderstood,
            CommandStatus::Failed => HowUnanswered::Failed,
            CommandStatus::TimedOut => HowUnanswered::TimedOut,
            CommandStatus::Undelivered => HowUnanswered::Undelivered,
        };
        let unanswered = |unreadable: Option<&Unreadable>| {
            Self::Unanswered(Unanswered { how, problem: invocation.problem(unreadable) })
        };
        match (answer::read(verb, invocation.printed), how) {
            (Ok(Ok(answer)), HowUnanswered::Succeeded) if answer.is_of(verb) => Self::Answered(answer),
            (Ok(Ok(_)), HowUnanswered::Succeeded) => {
                Self::Unanswered(Unanswered { how, problem: Some("it answered for another node".to_owned()) })
            }
            // Run Command ended it while it was finishing by itself, so it is unknown whether it did everything that the answer says.
            (
                Ok(Ok(_)),
                HowUnanswered::Failed
                | HowUnanswered::NotUnderstood
                | HowUnanswered::TimedOut
                | HowUnanswered::Undelivered,
            ) => unanswered(None),
            (Ok(Err(failure)), _) => Self::Failed(failure),
            (Err(unreadable), _) => unanswered(Some(&unreadable)),
        }
    }

    /// Whether it has ended.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        match self {
            Self::Pending | Self::InProgress => false,
            Self::Answered(_) | Self::Failed(_) | Self::Unanswered(_) => true,
        }
    }

    /// Whether the verb failed with that code.
    #[must_use]
    pub fn failed_with(&self, code: FailureCode) -> bool {
        match self {
            Self::Failed(failure) => failure.is(code),
            Self::Pending | Self::InProgress | Self::Answered(_) | Self::Unanswered(_) => false,
        }
    }
}

/// A command that ended without a readable answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unanswered {
    /// How it ended.
    pub how: HowUnanswered,
    /// Run Command's description of the problem, and what was printed instead of an answer. `None`: nothing is known.
    pub problem: Option<String>,
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.how {
            HowUnanswered::Succeeded => "it gave no answer that can be read",
            HowUnanswered::Failed => "it gave no answer",
            HowUnanswered::NotUnderstood => "its agent is older than this verb",
            HowUnanswered::Undelivered => "Run Command did not reach it",
            HowUnanswered::TimedOut => "it took too long",
        })?;
        self.problem.iter().try_for_each(|problem| write!(f, ": {problem}"))
    }
}

/// How a command without an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HowUnanswered {
    /// The exit status says that the verb succeeded, but its output cannot be read.
    Succeeded,
    /// It failed or was cancelled.
    Failed,
    /// The agent does not know the verb or an option of it: it is older than that, and did nothing.
    NotUnderstood,
    /// It timed out while running.
    TimedOut,
    /// It never ran.
    Undelivered,
}

/// What `GetCommandInvocation` reports about a command on one machine.
#[derive(Debug, Clone, Copy)]
pub struct Invocation<'t> {
    /// How far it is.
    pub status: CommandStatus,
    /// `StatusDetails` as the service words it.
    pub details: &'t str,
    /// `ResponseCode`: the exit status of the command; negative while it has none.
    pub response_code: i32,
    /// `StandardOutputContent`.
    pub printed: &'t str,
    /// `StandardErrorContent`.
    pub errors: &'t str,
}

/// How many characters of standard output `GetCommandInvocation` returns at most.
const MOST_OUTPUT: usize = 24_000;

/// The exit status of an agent that was called wrongly: clap's (`clap::error::Error::exit_code`). A verb that fails ends with 1, after it has
/// printed why.
const USAGE: i32 = 2;

/// How clap begins its message about a verb or an option that the agent does not know (`clap_builder` 4, `src/error/format.rs`: the kinds
/// `InvalidSubcommand` and `UnknownArgument`). It begins others, such as `invalid value`, if the agent knows both and the value is wrong.
const UNKNOWN: [&str; 2] = ["error: unrecognized subcommand ", "error: unexpected argument "];

impl Invocation<'_> {
    /// Whether the agent did not know the verb or an option of it.
    fn was_not_understood(&self) -> bool {
        let is_unknown = |line: &str| UNKNOWN.iter().any(|words| line.trim_start().starts_with(words));
        self.response_code == USAGE && self.printed.trim().is_empty() && self.errors.lines().any(is_unknown)
    }

    /// Why there is no answer, in words. `unreadable`: what is wrong with the output.
    fn problem(&self, unreadable: Option<&Unreadable>) -> Option<String> {
        let mut problem = Vec::new();
        if self.status != CommandStatus::Success {
            problem.push(if self.details.is_empty() { "Failed".to_owned() } else { self.details.to_owned() });
            if self.response_code > 0 {
                problem.push(format!("it ended with status {}", self.response_code));
            }
        }
        // Agents end truncated output with `--output truncated--`.
        let cut =
            self.printed.chars().count() >= MOST_OUTPUT || self.printed.trim_end().ends_with("truncated--");
        match (self.printed, unreadable) {
            ("", _) if self.status == CommandStatus::Success => problem.push("it printed nothing".to_owned()),
            ("", _) | (_, None) => {}
            (_, Some(_)) if cut => problem.push(format!("its answer was cut after {MOST_OUTPUT} characters")),
            (_, Some(Unreadable::NoJson)) => {
                problem.push(format!("it printed no answer, but: {}", harmless(tail(self.printed))));
            }
            (_, Some(Unreadable::Unexpected(why))) => {
                problem.push(format!("its answer cannot be understood: {why}"));
            }
        }
        if unreadable.is_some() && !self.errors.trim().is_empty() {
            problem.push(harmless(tail(self.errors)).into_owned());
        }
        (!problem.is_empty()).then(|| problem.join("; "))
    }
}

/// The last characters of `text`, at most [`MOST_WORDS`]: the end of unreadable output says most.
fn tail(text: &str) -> &str {
    let text = text.trim();
    let from = text.char_indices().rev().nth(MOST_WORDS - 1).map_or(0, |(index, _)| index);
    &text[from..]
}

/// `StatusDetails` of `GetCommandInvocation`, as far as a rollout distinguishes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommandStatus {
    /// `Pending`, `Delayed`: the machine has not received it.
    Pending,
    /// `InProgress`, `Cancelling`.
    InProgress,
    /// `Success`.
    Success,
    /// `Failed`, `Cancelled`, `Terminated`: the verb's answer may say why.
    Failed,
    /// `Execution Timed Out`: it timed out while running.
    TimedOut,
    /// `Delivery Timed Out`, `Undeliverable`, `Invalid Platform`, `Access Denied`: it never ran.
    Undelivered,
}

#[cfg(test)]
mod tests;
