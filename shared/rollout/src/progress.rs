//! How far an open rollout is: whose turn it is, and what it waits for.

use std::collections::{BTreeMap, BTreeSet};

use slipway_core::role::Role;

use super::waits::{ChangeSetWaits, Detail, RolloutWaits, StackWaits, Waits};
use super::{Active, Step, StepState};

/// The first stage that is not done.
pub(super) enum Stage {
    /// The stacks of that wave.
    Stacks(u8),
    /// The nodes of a wave whose stacks are done.
    Nodes,
}

pub(super) fn stage(active: &Active) -> Option<Stage> {
    let stacks = active.steps.iter().find(|step| step.state != StepState::Done).map(|step| step.kind.wave());
    match (stacks, active.nodes.wave()) {
        (Some(stacks), Some(nodes)) if nodes < stacks => Some(Stage::Nodes),
        (Some(stacks), _) => Some(Stage::Stacks(stacks)),
        (None, Some(_)) => Some(Stage::Nodes),
        (None, None) => None,
    }
}

/// The steps whose turn it is: those of the first wave that is not done. None once a step has failed and no operation is in progress.
pub(super) fn turn(steps: &[Step]) -> Vec<&Step> {
    let Some(wave) = steps.iter().find(|step| step.state != StepState::Done).map(|step| step.kind.wave())
    else {
        return Vec::new();
    };
    steps.iter().filter(|step| step.kind.wave() == wave && step.state != StepState::Done).collect()
}

/// If machines of another minor may exist already, the rollout can only continue: neither etcd nor data that API servers wrote can go back.
pub(super) fn only_forward(active: &Active) -> String {
    let waits = |stack: &String| {
        let waiting = |step: &Step| match step.state {
            StepState::Waiting | StepState::ChangeSet => &step.stack == stack,
            StepState::Executing | StepState::Done | StepState::Failed(_) => false,
        };
        active.steps.iter().any(waiting)
    };
    let begun = active.nodes.steps.iter().filter(|step| !waits(&step.stack));
    let begun: BTreeSet<&str> = begun.filter_map(|step| step.minor.as_deref()).collect();
    if begun.is_empty() {
        return String::new();
    }
    let begun: Vec<&str> = begun.into_iter().collect();
    format!("; {} has begun, so the cluster can only go forward", begun.join(" and "))
}

/// An event may have 256 KiB, and a stack 500 resources with a reason each, so only the beginning is kept.
pub(super) fn clipped(message: &str) -> String {
    const LONGEST: usize = 8_000;
    match message.char_indices().nth(LONGEST) {
        None => message.to_owned(),
        Some((end, _)) => format!("{}… (the whole is in status.json)", &message[..end]),
    }
}

/// What each step waits for in this decision.
#[derive(Default)]
pub(super) struct Waiting {
    stacks: BTreeMap<String, StackWaits>,
    /// What each node step whose turn it is waits for.
    pub(super) nodes: BTreeMap<Role, Waits>,
}

impl Waiting {
    pub(super) fn insert_stack(&mut self, step: &Step, waits: StackWaits) {
        self.stacks.insert(step.stack.clone(), waits);
    }

    pub(super) fn stacks(&self, steps: &[Step]) -> BTreeMap<String, String> {
        let fallback = |step: &Step| match &step.state {
            StepState::Waiting => StackWaits::Turn,
            StepState::ChangeSet => StackWaits::ChangeSet(ChangeSetWaits::Made),
            StepState::Executing => StackWaits::AtWork(None),
            StepState::Done => StackWaits::Done(None),
            StepState::Failed(reason) => StackWaits::Failed(Detail(reason.clone())),
        };
        let waits = |step: &Step| self.stacks.get(&step.stack).cloned().unwrap_or_else(|| fallback(step));
        steps.iter().map(|step| (step.stack.clone(), waits(step).to_string())).collect()
    }

    /// What the rollout as a whole waits for.
    pub(super) fn whole(&self, active: &Active) -> RolloutWaits {
        if matches!(stage(active), Some(Stage::Nodes)) {
            return RolloutWaits::Nodes(self.nodes.clone());
        }
        let steps = &active.steps;
        let done = stacks_done(active);
        let now = turn(steps).into_iter().filter_map(|step| self.stacks.get_key_value(&step.stack));
        let waits: BTreeMap<String, StackWaits> =
            now.map(|(stack, waits)| (stack.clone(), waits.clone())).collect();
        // Nodes made the last progress, and no stack of the next wave was observed yet.
        match turn(steps).first().filter(|_| waits.is_empty()) {
            Some(next) => RolloutWaits::NextStack { done, stack: next.stack.clone() },
            None => RolloutWaits::Stacks { done, waits },
        }
    }
}

pub(super) fn stacks_done(active: &Active) -> usize {
    active.steps.iter().filter(|step| step.state == StepState::Done).count()
}

/// The waiting reasons with their names.
pub(super) fn named<K: std::fmt::Display, V: std::fmt::Display>(waits: &BTreeMap<K, V>) -> String {
    let named: Vec<String> = waits.iter().map(|(name, waits)| format!("{name}: {waits}")).collect();
    named.join("; ")
}
