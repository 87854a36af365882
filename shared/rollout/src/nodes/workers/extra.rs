//! The surge of a pool: by how many machines a rollout has raised the desired capacity of the pool's group, while it rolls the pool and after
//! it ended early.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::RECONSIDERED;

/// By how many machines a group's desired capacity exceeds the size of its pool. The value outlives the work on the pool, even if that
/// fails, because the group still wants these machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Extra {
    /// What a rollout that ended early left over. The group was not observed since.
    Left(LeftOver),
    /// What is known since the group was observed.
    Known {
        /// How many.
        machines: u32,
        /// The desired capacity that was set last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expected: Option<Expected>,
    },
}

/// The surge of a pool whose rollout ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LeftOver {
    /// The desired capacity should have been set shortly before. It is unknown whether it was: the call is dropped when a person aborts,
    /// when an earlier call is refused, or when it is too old; and a function that died may have made the call without recording that.
    Requested {
        /// The machines of the surge.
        machines: u32,
        /// The desired capacity, with the surge.
        desired: u32,
    },
    /// The surge machines. The desired capacity was not set recently.
    Machines(u32),
}

/// The desired capacity that was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Expected {
    /// The desired capacity.
    pub desired: u32,
    /// By how many machines that raised it.
    #[serde(default)]
    pub first: u32,
    /// How many of the decrements in `desired` no answer has shown yet.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unseen: u32,
    /// The desired capacity in the answers before them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub before: u32,
    /// When it was set.
    pub since: Timestamp,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Default for Extra {
    fn default() -> Self {
        Self::Left(LeftOver::Machines(0))
    }
}

impl LeftOver {
    /// The surge machines, as far as is known.
    pub(crate) const fn machines(self) -> u32 {
        match self {
            Self::Requested { machines, .. } | Self::Machines(machines) => machines,
        }
    }

    /// The surge machines that are still there, if the group's desired capacity is `desired`. If that is less than what should have been
    /// set, the last call was never made, or somebody else has lowered it since.
    pub(super) const fn still_there(self, desired: u32) -> u32 {
        match self {
            Self::Requested { machines, desired: requested } => {
                machines.saturating_sub(requested.saturating_sub(desired))
            }
            Self::Machines(machines) => machines,
        }
    }
}

impl Extra {
    /// The machines of the surge.
    pub(super) const fn machines(self) -> u32 {
        match self {
            Self::Left(left) => left.machines(),
            Self::Known { machines, .. } => machines,
        }
    }

    /// What is left of the surge if the work on the pool ends now.
    pub(in super::super) const fn left_over(self) -> LeftOver {
        match self {
            Self::Left(left) => left,
            // A decrement that no answer has shown may not have been made.
            Self::Known { machines, expected: Some(Expected { desired, unseen, .. }) } => {
                LeftOver::Requested { machines: machines + unseen, desired: desired + unseen }
            }
            Self::Known { machines, expected: None } => LeftOver::Machines(machines),
        }
    }

    /// The machines of the surge that are still there, if the group's desired capacity is `desired`: somebody else may have taken some back.
    pub(super) fn still_there(self, desired: u32) -> u32 {
        let taken_back = self.expected().map_or(0, |expected| expected.desired.saturating_sub(desired));
        self.machines().saturating_sub(taken_back)
    }

    const fn expected(self) -> Option<Expected> {
        match self {
            Self::Left(_) => None,
            Self::Known { expected, .. } => expected,
        }
    }

    /// The surge that an earlier rollout left over, in a group whose desired capacity is `desired`. From now on it is noticed if somebody
    /// else takes it back.
    pub(super) fn found(machines: u32, desired: u32, now: Timestamp) -> Self {
        let expected = Expected { desired, first: 0, unseen: 0, before: 0, since: now };
        Self::Known { machines, expected: (machines > 0).then_some(expected) }
    }

    /// A surge that is larger by `first` machines. The desired capacity was `desired` before.
    pub(super) const fn raised(self, first: u32, desired: u32, since: Timestamp) -> Self {
        let expected = Some(Expected { desired: desired + first, first, unseen: 0, before: 0, since });
        Self::Known { machines: self.machines() + first, expected }
    }

    /// The desired capacity was not raised after all.
    pub(super) fn not_raised(self) -> Self {
        let first = self.expected().map_or(0, |expected| expected.first);
        Self::Known { machines: self.machines().saturating_sub(first), expected: None }
    }

    /// Whether an answer with `desired` shows that the desired capacity was not raised yet: the answer is too old, or the call was not
    /// made.
    pub(super) fn is_to_come(self, desired: u32) -> bool {
        self.expected().is_some_and(|expected| desired < expected.desired)
    }

    /// Whether answers have not shown all decrements yet: the surge may be larger than [`Extra::machines`].
    pub(super) fn may_be_larger(self) -> bool {
        self.expected().is_some_and(|expected| expected.unseen > 0)
    }

    /// The desired capacity is lowered by one, together with the termination of a machine, unless somebody else has taken the whole surge back.
    pub(super) fn shrinks(&mut self, desired: u32, now: Timestamp) {
        let Some(machines) = self.machines().checked_sub(1) else { return };
        let last =
            self.expected().unwrap_or(Expected { desired, first: 0, unseen: 0, before: 0, since: now });
        let expected = Expected {
            desired: last.desired.saturating_sub(1),
            first: 0,
            unseen: last.unseen + 1,
            before: if last.unseen == 0 { desired } else { last.before },
            since: now,
        };
        *self = Self::Known { machines, expected: Some(expected) };
    }

    /// The desired capacity is not lowered after all: Auto Scaling refused it, so that the machine belongs to the pool now; or it was not
    /// requested, because Auto Scaling had terminated the machine before, so that a machine of the surge `remains`.
    pub(super) fn not_lowered(&mut self, remains: bool) {
        if let Self::Known { machines, expected: Some(expected) } = self
            && expected.unseen > 0
        {
            *machines += u32::from(remains);
            expected.desired += 1;
            expected.unseen -= 1;
        }
    }

    /// Follows changes of the desired capacity by others; it is `desired` now. A cluster autoscaler sets absolute values, based on an
    /// observation that is up to a minute old (kubernetes/autoscaler, cloudprovider/aws, `IncreaseSize`), and removes a machine that has
    /// not become a node within a quarter of an hour (`removeOldUnregisteredNodes`). A machine that it removed does not belong to the surge
    /// any more.
    ///
    /// A decrement takes effect together with the termination of its machine, unless Auto Scaling terminated the machine first, for example
    /// because it died, or a late answer showed that the desired capacity was low enough. Nothing tells this apart from somebody else who
    /// raised it again before any answer showed the decrement. Then the machine counts as one of the surge again, unless the group is at its
    /// minimum `min`.
    ///
    /// `still_to_go`: the number of terminations with a lower desired capacity that were dropped and will be requested again.
    pub(super) fn follow(&mut self, desired: u32, min: u32, still_to_go: u32, now: Timestamp) {
        // A smaller size may be one from before the surge was requested, and shows no decrement.
        if let Self::Known { expected: Some(expected), .. } = self
            && desired >= expected.desired
        {
            // Each decrement is visible in the size that should be left, or as a difference to the size before.
            let made = expected.before.saturating_sub(desired).min(expected.unseen);
            let left = desired.saturating_sub(expected.desired);
            (expected.unseen, expected.before) = ((expected.unseen - made).min(left), expected.before - made);
        }
        let is_old = |one: &Expected| now.duration_since(one.since) > RECONSIDERED;
        let Some(expected) = self.expected().filter(is_old) else { return };
        let taken_back = expected.desired.saturating_sub(desired);
        let size = desired.saturating_sub(still_to_go).max(desired.min(expected.desired));
        let unseen = expected.unseen.min(still_to_go);
        let not_made = (expected.unseen - unseen).min(size.saturating_sub(expected.desired.max(min)));
        // A change by somebody else counts from when it was first observed: an answer that is some seconds late may still show the earlier
        // size.
        let since = if size == expected.desired { expected.since } else { now };
        *self = Self::Known {
            machines: self.machines().saturating_sub(taken_back) + not_made,
            expected: Some(Expected { desired: size, first: 0, unseen, before: expected.before, since }),
        };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use jiff::SignedDuration;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
    }

    /// Two machines of the surge are terminated at second 10, when the group wants six; each answer shows a size at a later second.
    #[test]
    fn p6_a_decrement_counts_once_an_answer_shows_it_and_not_for_ever_without_one() {
        for (answers, machines, unseen) in [
            (&[(20, 4)][..], 0, 0),
            (&[(20, 5)], 0, 1),
            (&[(20, 5), (30, 4)], 0, 0),
            // A late answer follows.
            (&[(20, 4), (30, 6)], 0, 0),
            (&[(20, 6), (30, 5), (40, 6)], 0, 1),
            (&[(20, 6), (310, 6)], 0, 2),
            (&[(20, 6), (311, 6)], 2, 0),
            (&[(20, 5), (311, 5)], 1, 0),
            // Afterwards, somebody raised the size.
            (&[(20, 4), (311, 5)], 0, 0),
            // The group is at its minimum.
            (&[(20, 3), (311, 3)], 0, 0),
        ] {
            let mut extra = Extra::Known { machines: 2, expected: None };
            extra.shrinks(6, at(10));
            extra.shrinks(6, at(10));
            for (second, desired) in answers {
                extra.follow(*desired, 3, 0, at(*second));
            }
            let left = extra.expected().map(|expected| expected.unseen);
            assert_eq!((extra.machines(), left), (machines, Some(unseen)), "{answers:?}");
            assert_eq!(extra.may_be_larger(), unseen > 0);
            assert_eq!(
                extra.left_over().machines(),
                machines + unseen,
                "it may not have been made: {answers:?}"
            );
        }
    }

    #[test]
    fn p6_a_decrement_that_was_not_made_leaves_a_surplus_machine_unless_it_was_refused() {
        for (remains, machines) in [(true, 1), (false, 0)] {
            let mut extra = Extra::Known { machines: 1, expected: None };
            extra.shrinks(4, at(0));
            extra.not_lowered(remains);
            assert_eq!((extra.machines(), extra.may_be_larger()), (machines, false), "{remains}");
            assert_eq!(extra.expected().map(|expected| expected.desired), Some(4));
            // An answer has shown the others already.
            extra.not_lowered(remains);
            assert_eq!(extra.machines(), machines);
        }
    }

    /// The group wanted 10, and then 13; Auto Scaling terminated the machine first, so that no decrement was made.
    #[test]
    fn p6_an_answer_from_before_the_surge_shows_no_decrement() {
        for before in [10, 13] {
            let mut extra = Extra::Known { machines: 1, expected: None }.raised(3, 10, at(0));
            extra.shrinks(before, at(10));
            for second in [12, 14] {
                extra.follow(10, 3, 0, at(second));
                assert!(extra.may_be_larger(), "{before}: {extra:?}");
            }
            extra.follow(13, 3, 0, at(311));
            assert_eq!((extra.machines(), extra.may_be_larger()), (4, false), "{before}: {extra:?}");
        }
    }

    /// Somebody raises the size while answers still have to show a decrement.
    #[test]
    fn p6_a_decrement_is_seen_as_a_difference_to_the_size_before_it_too() {
        let mut extra = Extra::Known { machines: 0, expected: None }.raised(1, 6, at(0));
        extra.shrinks(8, at(10));
        extra.follow(7, 3, 0, at(20));
        assert!(!extra.may_be_larger(), "7 is one less than 8: {extra:?}");
        // One of two terminations was dropped, and is requested again.
        let mut extra = Extra::Known { machines: 2, expected: None };
        extra.shrinks(6, at(10));
        extra.shrinks(6, at(10));
        extra.follow(8, 3, 1, at(311));
        let unseen = extra.expected().map(|expected| expected.unseen);
        assert_eq!((extra.machines(), unseen), (1, Some(1)), "{extra:?}");
    }

    #[test]
    fn p8_decrements_that_no_answer_has_shown_outlive_the_function() {
        let mut extra = Extra::Known { machines: 1, expected: None };
        extra.shrinks(6, at(10));
        let stored = serde_json::to_string(&extra).unwrap();
        assert_eq!(serde_json::from_str::<Extra>(&stored).unwrap(), extra);
        assert!(extra.may_be_larger());
    }
}
