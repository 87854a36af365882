//! What is tried again after it failed: when, how often, and for how long.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use slipway_core::deadline::{BETWEEN_TRIES, TRIES};
use slipway_core::node::Verb;

use super::PAUSE;
use crate::patience::PATIENCE;

/// When failed work is tried again, and when it is given up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetryPolicy {
    /// It is given up after this number of failed tries in a row.
    tries: u32,
    /// It is given up if no command reaches a machine for longer.
    unreached: SignedDuration,
    /// The pause after this number of failed tries.
    pause: fn(u32) -> SignedDuration,
}

impl RetryPolicy {
    /// The work on one machine; [`Self::by`] says how long its command may reach nothing.
    pub(crate) const WORK: Self = Self {
        tries: TRIES,
        unreached: SignedDuration::MAX,
        pause: |tries| BETWEEN_TRIES[(tries as usize).saturating_sub(1).min(BETWEEN_TRIES.len() - 1)],
    };

    /// The same for work by `verb`. What no command reaches is given up after the time in which two tries time out, since
    /// [`slipway_core::deadline`] counts three tries.
    pub(crate) fn by(self, verb: &Verb) -> Self {
        Self { unreached: verb.answers_within() * (TRIES as i32 - 1), ..self }
    }

    /// A drain, by any controller: an outage of Systems Manager may last an hour.
    pub(crate) const DRAIN: Self =
        Self { tries: TRIES, unreached: SignedDuration::from_hours(2), pause: |_| PAUSE };

    /// A machine that stays is uncordoned until that succeeds, and less often after a while: the API may be down for hours. Then it blocks
    /// nobody any more.
    pub(crate) const UNCORDON: Self = Self {
        tries: 10 * TRIES,
        unreached: SignedDuration::MAX,
        pause: |tries| if tries < Self::UNCORDON.tries { PAUSE } else { SignedDuration::from_mins(10) },
    };

    /// A command to the members of etcd before their stack is deleted: machines may be booting, or out of reach.
    pub(crate) const FAREWELL: Self = Self { tries: TRIES, unreached: PATIENCE, pause: |_| PAUSE };
}

/// The failures in a row of one piece of work.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryState {
    /// The number of failed tries. A command that never reached its machine is none.
    #[serde(default)]
    pub tries: u32,
    /// Since when no command has reached a machine; `None`: the last one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreached_since: Option<Timestamp>,
    /// The last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastFailure>,
}

/// A failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LastFailure {
    /// When it was noticed.
    pub at: Timestamp,
    /// Why it failed.
    pub why: String,
}

/// What follows from a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryDecision {
    /// It is tried again after a pause.
    Again,
    /// It failed too often.
    TooOften,
    /// No command has reached a machine for this time.
    Unreached(SignedDuration),
}

impl RetryState {
    /// It failed, by a command of the time `asked_at`; `reached`: the command reached its machine.
    pub(crate) fn failed(
        &mut self,
        reached: bool,
        asked_at: Timestamp,
        why: &str,
        now: Timestamp,
        policy: RetryPolicy,
    ) -> RetryDecision {
        // Nothing was tried during a pause, or between two windows.
        let in_a_row = self.last.as_ref().is_some_and(|last| asked_at.duration_since(last.at) <= PATIENCE);
        let before = self.unreached_since.filter(|_| in_a_row);
        self.unreached_since = if reached { None } else { before.or(Some(asked_at)) };
        self.tries += u32::from(reached);
        self.last = Some(LastFailure { at: now, why: why.to_owned() });
        let unreached = self.unreached_since.map_or(SignedDuration::ZERO, |since| now.duration_since(since));
        if unreached > policy.unreached {
            RetryDecision::Unreached(unreached)
        } else if self.is_too_often(policy) {
            RetryDecision::TooOften
        } else {
            RetryDecision::Again
        }
    }

    /// A command has reached its machine.
    pub(crate) const fn record_reached(&mut self) {
        self.unreached_since = None;
    }

    /// Whether it failed so often that it is given up.
    pub(crate) const fn is_too_often(&self, policy: RetryPolicy) -> bool {
        self.tries >= policy.tries
    }

    /// Why the last try failed, if the next one has to wait.
    pub(crate) fn pauses(&self, now: Timestamp, policy: RetryPolicy) -> Option<&str> {
        let last = self.last.as_ref()?;
        (now.duration_since(last.at) < (policy.pause)(self.tries)).then_some(last.why.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn after(seconds: i64) -> Timestamp {
        NOW + SignedDuration::from_secs(seconds)
    }

    /// The verdict on a command that was sent in one second and failed in another.
    fn fails(
        tried: &mut RetryState,
        reached: bool,
        (sent, now): (i64, i64),
        policy: RetryPolicy,
    ) -> RetryDecision {
        tried.failed(reached, after(sent), "no", after(now), policy)
    }

    #[test]
    fn p7_the_third_failure_in_a_row_is_one_too_many_and_what_reached_no_machine_is_none() {
        let mut tried = RetryState::default();
        let mut verdicts = [true, false, true, false, true].into_iter();
        let verdicts: Vec<_> =
            verdicts.by_ref().map(|reached| fails(&mut tried, reached, (0, 1), RetryPolicy::DRAIN)).collect();
        assert_eq!(verdicts[..4], [RetryDecision::Again; 4]);
        assert_eq!((verdicts[4], tried.tries), (RetryDecision::TooOften, 3));
    }

    #[test]
    fn p7_what_no_command_reaches_is_given_up_by_the_time_since_the_first_one() {
        let policies =
            [RetryPolicy::DRAIN, RetryPolicy::FAREWELL, RetryPolicy::WORK.by(&Verb::EtcdMoveLeader)];
        for policy in policies {
            let most = policy.unreached.as_secs();
            // The second command was sent within an hour of the first failure.
            for (last, verdict) in [
                (most, RetryDecision::Again),
                (most + 1, RetryDecision::Unreached(SignedDuration::from_secs(most + 1))),
            ] {
                let mut tried = RetryState::default();
                assert_eq!(fails(&mut tried, false, (0, 60), policy), RetryDecision::Again);
                assert_eq!(fails(&mut tried, false, (120, last), policy), verdict, "{policy:?}");
                assert_eq!(tried.tries, 0);
            }
            let mut tried = RetryState::default();
            fails(&mut tried, false, (0, 60), policy);
            tried.record_reached();
            assert_eq!(
                fails(&mut tried, false, (120, most + 1), policy),
                RetryDecision::Again,
                "one was reached"
            );
        }
    }

    #[test]
    fn p7_a_failure_of_what_reached_its_machine_ends_the_time_in_which_nothing_did() {
        let mut tried = RetryState::default();
        fails(&mut tried, false, (0, 60), RetryPolicy::FAREWELL);
        fails(&mut tried, true, (120, 180), RetryPolicy::FAREWELL);
        assert_eq!((tried.unreached_since, tried.tries), (None, 1));
        fails(&mut tried, false, (240, 300), RetryPolicy::FAREWELL);
        assert_eq!(tried.unreached_since, Some(after(240)), "it begins anew");
    }

    #[test]
    fn p7_the_time_of_a_pause_does_not_count_as_time_in_which_nothing_was_reached() {
        let hour = PATIENCE.as_secs();
        for (sent, since) in [(hour, 0), (hour + 1, hour + 1)] {
            let mut tried = RetryState::default();
            fails(&mut tried, false, (0, 0), RetryPolicy::FAREWELL);
            fails(&mut tried, false, (sent, hour + 2), RetryPolicy::FAREWELL);
            assert_eq!(tried.unreached_since, Some(after(since)));
        }
    }

    #[test]
    fn the_next_try_waits_for_a_while_and_says_why() {
        let often = RetryPolicy::UNCORDON.tries;
        for (policy, tries, seconds) in [
            (RetryPolicy::WORK, 0, 60),
            (RetryPolicy::WORK, 1, 60),
            (RetryPolicy::WORK, 2, 300),
            (RetryPolicy::WORK, 9, 300),
            (RetryPolicy::DRAIN, 2, 50),
            (RetryPolicy::FAREWELL, 2, 50),
            (RetryPolicy::UNCORDON, often - 1, 50),
            (RetryPolicy::UNCORDON, often, 600),
        ] {
            let last = Some(LastFailure { at: NOW, why: "no".to_owned() });
            let tried = RetryState { tries, last, ..RetryState::default() };
            assert_eq!(tried.pauses(after(seconds - 1), policy), Some("no"), "{policy:?} {tries}");
            assert_eq!(tried.pauses(after(seconds), policy), None, "{policy:?} {tries}");
        }
        assert_eq!(RetryState::default().pauses(NOW, RetryPolicy::WORK), None);
    }
}
