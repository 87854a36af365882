//! Groups as `DescribeAutoScalingGroups` shows them, which may be some seconds old.
//!
//! Auto Scaling, like EC2, is eventually consistent: what a call changed "might not be immediately visible to all subsequent
//! commands" (EC2 developer guide, "Eventual consistency in the Amazon EC2 API"). Every answer was true at some time. AWS does not
//! promise how old an answer may be, and a later answer may be older than an earlier one.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

use super::super::World;
use super::super::machine::{Group, Machine, State};
use slipway_rollout::fleet::TemplateVersion;

/// How old an answer may be.
const BEHIND_S: (f64, f64) = (2.0, 30.0);
/// States older than this are not kept.
const FORGOTTEN: SignedDuration = SignedDuration::from_secs(60);

/// A group in an answer.
#[derive(Debug, Clone)]
pub(crate) struct ShownGroup {
    pub(crate) group: Group,
    pub(crate) machines: Vec<ShownMachine>,
}

/// A machine in an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShownMachine {
    pub(crate) id: String,
    pub(crate) zone: String,
    pub(crate) state: State,
    pub(crate) healthy: bool,
    pub(crate) protected: bool,
    pub(crate) weight: u32,
    pub(crate) template: Option<TemplateVersion>,
}

impl ShownMachine {
    pub(super) fn of(machine: &Machine) -> Self {
        Self {
            id: machine.id.clone(),
            zone: machine.zone.clone(),
            state: machine.state,
            healthy: machine.healthy,
            protected: machine.protected,
            weight: machine.weight,
            template: machine.template.clone(),
        }
    }
}

impl World {
    /// The group with that name, or of that machine; empty if there is none.
    pub(super) fn group_about(&self, name: &str) -> String {
        let of_machine = self.fleet.machines.get(name).map(|machine| machine.group.clone());
        of_machine.unwrap_or_else(|| name.to_owned())
    }

    /// Stores the state of a group before it may change, for late answers.
    pub(super) fn remember_group(&mut self, name: &str) {
        if self.fleet.faults.stale_groups == 0.0 {
            return;
        }
        let Some(shown) = self.shown(name) else { return };
        let now = self.now;
        let past = self.fleet.past.entry(name.to_owned()).or_default();
        while past.len() > 1 && now.duration_since(past[1].0) > FORGOTTEN {
            past.pop_front();
        }
        past.push_back((now, shown));
    }

    /// The present state of a group.
    fn shown(&self, name: &str) -> Option<ShownGroup> {
        let group = self.fleet.groups.get(name)?.clone();
        let machines = self.fleet.machines.values().filter(|machine| machine.group == name);
        Some(ShownGroup { machines: machines.map(ShownMachine::of).collect(), group })
    }

    /// With the probability `rate`, the time that a late answer shows; `None`: the answer is up to date.
    pub(in crate::world) fn stale_answer_time(&mut self, rate: f64) -> Option<Timestamp> {
        let is_behind = self.chance("an answer is behind", rate);
        is_behind
            .then(|| self.now - SignedDuration::from_secs_f64(self.draw_s("behind", BEHIND_S.0, BEHIND_S.1)))
    }

    /// A group as an answer shows it.
    pub(super) fn answered(&mut self, name: &str) -> Option<ShownGroup> {
        if let Some(at) = self.stale_answer_time(self.fleet.faults.stale_groups) {
            let past = self.fleet.past.get(name).map(VecDeque::iter);
            let was = past.into_iter().flatten().rev().find(|(since, _)| *since <= at);
            if let Some((_, shown)) = was {
                return Some(shown.clone());
            }
        }
        self.shown(name)
    }
}
