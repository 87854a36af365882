//! The progress of an open rollout's machines, and an estimate of its end, from the machines' own reports.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use slipway_rollout::{Active, Work};

use super::nodes::{Node, NodeState};

/// The progress of the machines of a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Progress {
    /// How many are as planned, and became so since it began.
    pub(crate) done: i32,
    /// How many there are in total.
    pub(crate) of: i32,
    /// When the last one will be done if the rest take as long as those so far. Drains and windows are not included.
    pub(crate) through_at: Option<Timestamp>,
}

impl Progress {
    /// Words that change only when a machine is done, not with time.
    pub(crate) fn words(&self) -> String {
        let words = format!("{} of {} machines are as planned", self.done, self.of);
        match self.through_at {
            Some(at) => {
                format!("{words}; at this pace the rest are by {}", at.strftime("%Y-%m-%d %H:%M UTC"))
            }
            None => words,
        }
    }
}

/// The progress of one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// It became what is planned, at that time.
    Done(Timestamp),
    /// It is unchanged so far.
    ToCome,
}

/// Counts the machines of the roles that `active` refreshes or replaces. `None`: none of them has reported.
pub(super) fn progress(nodes: &[Node], active: &Active) -> Option<Progress> {
    let turn = |node: &Node| {
        let step = active.nodes.steps.iter().find(|step| step.role.to_string() == node.role)?;
        let heard = node.bootstrap.as_ref().map(|boot| boot.heard);
        let heard = match step.work() {
            Work::Replace => heard,
            Work::Refresh => heard.max(node.status.as_ref().map(|status| status.heard)),
            Work::Save | Work::Fewer | Work::Leave | Work::Remove | Work::Look => return None,
        };
        match (node.standing, node.outdated) {
            (NodeState::Earlier, _) => None,
            (_, Some(_)) => Some(Turn::ToCome),
            (NodeState::Up, None) => heard.filter(|at| *at > active.started_at).map(Turn::Done),
            (NodeState::GivenUp | NodeState::Silent | NodeState::Working, None) => None,
        }
    };
    count(nodes.iter().filter_map(turn), active.started_at)
}

fn count(turns: impl Iterator<Item = Turn>, began: Timestamp) -> Option<Progress> {
    let (mut done, mut to_come, mut newest) = (0, 0, began);
    for turn in turns {
        match turn {
            Turn::Done(at) => {
                done += 1;
                newest = newest.max(at);
            }
            Turn::ToCome => to_come += 1,
        }
    }
    let took: SignedDuration = newest.duration_since(began);
    let rest = (done > 0 && to_come > 0).then(|| took / done * to_come);
    let through_at = rest.and_then(|rest| newest.checked_add(rest).ok());
    (done + to_come > 0).then_some(Progress { done, of: done + to_come, through_at })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + minute * 60).unwrap()
    }

    #[test]
    fn the_rest_takes_as_long_as_what_was_done() {
        let turns = [Turn::Done(at(4)), Turn::ToCome, Turn::Done(at(10)), Turn::ToCome, Turn::ToCome];
        let seen = count(turns.into_iter(), at(0)).unwrap();
        assert_eq!((seen.done, seen.of, seen.through_at), (2, 5, Some(at(25))));
        let words = "2 of 5 machines are as planned; at this pace the rest are by 2027-01-15 08:25 UTC";
        assert_eq!(seen.words(), words);
    }

    #[test]
    fn there_is_no_pace_before_the_first_and_none_after_the_last() {
        let seen = count([Turn::ToCome].into_iter(), at(0)).unwrap();
        assert_eq!((seen.words().as_str(), seen.through_at), ("0 of 1 machines are as planned", None));
        assert_eq!(count([Turn::Done(at(3))].into_iter(), at(0)).unwrap().through_at, None);
        assert_eq!(count(std::iter::empty(), at(0)), None);
    }
}
