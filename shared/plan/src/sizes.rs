//! How many machines a plan is about.
//!
//! A plan is made without asking Auto Scaling: of a group whose desired capacity is its own to choose, only the limits are known. A number
//! that is not exact is therefore a range, and never the minimum alone.

use serde::{Deserialize, Serialize};
use slipway_core::cluster::GroupSize;
use slipway_core::role::Role;
use slipway_core::words::count;

use super::{NodeAction, NodePlan, Plan};

/// A number of machines, as exactly as it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Machines {
    /// At least so many.
    pub least: u32,
    /// At most so many.
    pub most: u32,
}

impl Machines {
    pub(super) const fn exactly(number: u32) -> Self {
        Self { least: number, most: number }
    }

    /// `3`, or `3–5`.
    #[must_use]
    pub fn figure(self) -> String {
        if self.least == self.most {
            self.most.to_string()
        } else {
            format!("{}–{}", self.least, self.most)
        }
    }

    /// `1 worker`, `3 workers`, `3 to 5 workers`, `up to 5 workers`.
    #[must_use]
    pub fn words(self, noun: &str) -> String {
        match (self.least, self.most) {
            (least, most) if least == most => count(most, noun),
            (0, most) => format!("up to {}", count(most, noun)),
            (least, most) => format!("{least} to {}", count(most, noun)),
        }
    }

    /// Whether a verb after [`Machines::words`] is singular.
    #[must_use]
    pub const fn is_one(self) -> bool {
        self.most == 1
    }

    /// Whether there are any, for all that is known.
    #[must_use]
    pub const fn any(self) -> bool {
        self.most > 0
    }
}

impl std::ops::Add for Machines {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { least: self.least.saturating_add(other.least), most: self.most.saturating_add(other.most) }
    }
}

impl std::iter::Sum for Machines {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), std::ops::Add::add)
    }
}

/// A group's size before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resized {
    /// Before.
    pub from: GroupSize,
    /// After.
    pub to: GroupSize,
}

impl Resized {
    /// How much capacity comes: a group that has less than its new minimum is raised to it, and its desired capacity is between the old
    /// limits before.
    const fn added(self) -> Machines {
        Machines {
            least: self.to.min.saturating_sub(self.from.max),
            most: self.to.min.saturating_sub(self.from.min),
        }
    }

    /// The same in words; empty if none comes.
    pub(super) fn words(self, weighted: bool) -> String {
        let added = self.added();
        if !added.any() {
            return String::new();
        }
        let noun = if weighted { "capacity unit" } else { "machine" };
        let (whom, is) = (added.words(noun), if added.is_one() { "is" } else { "are" });
        if added.least == added.most {
            format!("; {whom} {is} added")
        } else {
            format!("; {whom} {is} added, as many as it lacks of {}", self.to.min)
        }
    }
}

impl NodePlan {
    /// How many machines `capacity` is: of a group with weights one machine may be all of its units, and each unit may be one machine.
    const fn machines_of(&self, capacity: Machines) -> Machines {
        if self.weighted {
            Machines { least: if capacity.least > 0 { 1 } else { 0 }, most: capacity.most }
        } else {
            capacity
        }
    }

    /// How many machines its action concerns.
    #[must_use]
    pub const fn machines(&self) -> Machines {
        let GroupSize { min, max } = self.nodes;
        self.machines_of(match self.action {
            // A new group begins with its minimum.
            NodeAction::Create => Machines::exactly(min),
            NodeAction::Replace
            | NodeAction::Refresh
            | NodeAction::Untouched
            | NodeAction::Remove
            | NodeAction::Orphaned => Machines { least: min, most: max },
        })
    }

    /// How many machines come because its group grows.
    #[must_use]
    pub fn added(&self) -> Machines {
        self.resized.map(|resized| self.machines_of(resized.added())).unwrap_or_default()
    }
}

impl Plan {
    /// How many machines meet `action`. Growing groups count with those that are created, controllers too many with those removed.
    #[must_use]
    pub fn machines(&self, action: NodeAction) -> Machines {
        let meet: Machines =
            self.nodes.iter().filter(|node| node.action == action).map(NodePlan::machines).sum();
        let more: Machines = match action {
            NodeAction::Create => self.nodes.iter().map(NodePlan::added).sum(),
            NodeAction::Remove => {
                let fewer = self.nodes.iter().filter(|node| node.fewer && node.role == Role::Controller);
                fewer.map(|_| Machines::exactly(1)).sum()
            }
            NodeAction::Replace | NodeAction::Refresh | NodeAction::Untouched | NodeAction::Orphaned => {
                Machines::default()
            }
        };
        meet + more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(from: (u32, u32), to: (u32, u32)) -> Machines {
        let size = |(min, max)| GroupSize { min, max };
        Resized { from: size(from), to: size(to) }.added()
    }

    #[test]
    fn p3_a_group_gains_what_it_lacks_of_its_new_minimum() {
        assert_eq!(added((3, 3), (5, 5)), Machines::exactly(2));
        assert_eq!(added((2, 10), (5, 10)), Machines { least: 0, most: 3 });
        assert_eq!(added((2, 4), (5, 10)), Machines { least: 1, most: 3 });
        assert_eq!(added((2, 10), (1, 10)), Machines::default());
    }

    #[test]
    fn p3_a_number_that_is_not_exact_is_a_range() {
        let machines = |least, most| Machines { least, most };
        assert_eq!(machines(1, 1).words("machine"), "1 machine");
        assert_eq!(machines(0, 3).words("machine"), "up to 3 machines");
        assert_eq!(machines(2, 3).words("machine"), "2 to 3 machines");
        assert_eq!((machines(2, 3).figure().as_str(), machines(2, 2).figure().as_str()), ("2–3", "2"));
    }
}
