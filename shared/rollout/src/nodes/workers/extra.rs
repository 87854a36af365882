//! How many machines more a pool's group wants than there are to be, while the pool is rolled and after that.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::RECONSIDERED;

/// How many machines more a group wants than there are to be. It outlives the work on the pool, also where that fails: the group wants them
/// still.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Extra {
    /// As many as an earlier rollout left that ended early: the group was not looked at yet.
    Left(LeftOver),
    /// So many.
    Known {
        /// How many.
        machines: u32,
        /// What the group was told last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expected: Option<Expected>,
    },
}

/// How many machines more a group was to have when the work on its pool ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LeftOver {
    /// As many, and what the group was told to want with them. That may never have been done: it is dropped where a person aborts, where another
    /// call is refused before it, or where it is too old, and also then a function may have done it that died before it could say so.
    Told {
        /// How many.
        machines: u32,
        /// How many the group was told to want in all.
        desired: u32,
    },
    /// As many, of a group that was told nothing of late.
    Machines(u32),
}

/// How many machines a group should want after what it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Expected {
    /// So many.
    pub desired: u32,
    /// So many of them are to come first, and were not wanted before it was told so.
    #[serde(default)]
    pub first: u32,
    /// When it was told.
    pub since: Timestamp,
}

impl Default for Extra {
    fn default() -> Self {
        Self::Left(LeftOver::Machines(0))
    }
}

impl LeftOver {
    /// How many.
    pub(crate) const fn machines(self) -> u32 {
        match self {
            Self::Told { machines, .. } | Self::Machines(machines) => machines,
        }
    }

    /// How many there still are where the group wants `desired`: where it wants less than it was told to, it was never told, or somebody took
    /// them back.
    pub(super) const fn of(self, desired: u32) -> u32 {
        match self {
            Self::Told { desired: told, .. } if desired < told => 0,
            Self::Told { machines, .. } | Self::Machines(machines) => machines,
        }
    }
}

impl Extra {
    /// How many.
    pub(super) const fn machines(self) -> u32 {
        match self {
            Self::Left(left) => left.machines(),
            Self::Known { machines, .. } => machines,
        }
    }

    /// What is left over of them where the work on the pool ends now.
    pub(in super::super) const fn left_over(self) -> LeftOver {
        match self {
            Self::Left(left) => left,
            Self::Known { machines, expected: Some(Expected { desired, .. }) } => {
                LeftOver::Told { machines, desired }
            }
            Self::Known { machines, expected: None } => LeftOver::Machines(machines),
        }
    }

    const fn expected(self) -> Option<Expected> {
        match self {
            Self::Left(_) => None,
            Self::Known { expected, .. } => expected,
        }
    }

    /// So many, and the group was told to want `desired` in all.
    pub(super) const fn told(machines: u32, desired: u32, since: Timestamp) -> Self {
        Self::Known { machines, expected: Some(Expected { desired, first: 0, since }) }
    }

    /// So many more are to come first to a group that wants `desired`.
    pub(super) const fn raised(self, first: u32, desired: u32, since: Timestamp) -> Self {
        let expected = Some(Expected { desired: desired + first, first, since });
        Self::Known { machines: self.machines() + first, expected }
    }

    /// Those that were to come first never come.
    pub(super) fn not_raised(self) -> Self {
        let first = self.expected().map_or(0, |expected| expected.first);
        Self::Known { machines: self.machines().saturating_sub(first), expected: None }
    }

    /// Whether an answer that shows `desired` is of before the group was told to want more, or it was never told.
    pub(super) fn is_to_come(self, desired: u32) -> bool {
        self.expected().is_some_and(|expected| desired < expected.desired)
    }

    /// The group was told to want one less.
    pub(super) fn shrinks(&mut self, desired: u32, now: Timestamp) {
        let expected = self.expected().map_or(desired, |expected| expected.desired);
        *self = Self::told(self.machines().saturating_sub(1), expected.saturating_sub(1), now);
    }

    /// Somebody else changes the group's size, too: a cluster autoscaler sets absolute values from what it saw up to a minute before
    /// (kubernetes/autoscaler, cloudprovider/aws, `IncreaseSize`), and takes back a machine that has not become a node within a quarter of an hour
    /// (`removeOldUnregisteredNodes`). What it took back of the machines that were to come first is not one too many any more.
    ///
    /// So many of those that it wants are still to go with a smaller group: their termination was dropped, and is told again.
    pub(super) fn follow(&mut self, desired: u32, still_to_go: u32, now: Timestamp) {
        let is_old = |one: &Expected| now.duration_since(one.since) > RECONSIDERED;
        let Some(expected) = self.expected().filter(is_old) else { return };
        let taken_back = expected.desired.saturating_sub(desired);
        let desired = desired.saturating_sub(still_to_go).max(desired.min(expected.desired));
        *self = Self::told(self.machines().saturating_sub(taken_back), desired, expected.since);
    }
}
