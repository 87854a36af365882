//! How a rollout stands, in words for a person.

use std::collections::{BTreeMap, BTreeSet};

use super::decide::{Stage, is_due, stage, turn};
use super::nodes::NodeState;
use super::orders::paused;
use super::urgency::{held_by_a_pause, overridden};
use super::{Active, Observed, Rollout, Step, StepState};
use jiff::Timestamp;
use slipway_core::event::RolloutReport;
use slipway_core::pki::Role;
use slipway_core::status::Report;

pub(super) fn succeeded(active: &Active) -> String {
    let mut message = match active.steps.len() {
        0 => "no stack had to change".to_owned(),
        steps => format!("{steps} of {steps} stacks are as planned"),
    };
    if let Some(step) = active.addons.as_ref().filter(|step| !step.words.is_empty()) {
        message.push_str(&format!("; add-ons for the controllers to apply: {}", step.words));
    }
    message.push_str(&active.nodes.summary());
    if active.nodes_left > 0 {
        message.push_str(&format!(
            "; {} nodes still run the previous release: this version of Slipway does not replace them, so replace \
             them one at a time by terminating them after a drain",
            active.nodes_left
        ));
    }
    if !active.stacks_left.is_empty() {
        message.push_str(&format!(
            "; no longer in the spec and left standing, to be deleted by hand: {}",
            active.stacks_left.join(", ")
        ));
    }
    message
}

/// What an abort leaves behind.
pub(super) fn aborted(active: &Active, failures: &[&str]) -> String {
    let done = active.steps.iter().filter(|step| step.state == StepState::Done).count();
    let failed = failures.iter().map(|reason| format!("; {reason}")).collect::<String>();
    format!(
        "aborted: {done} of {} stacks are as planned, the others as they were{failed}; upload the spec again to go on{}",
        active.steps.len(),
        only_forward(active)
    )
}

/// Where machines of another minor may be there already, the way is theirs: neither etcd nor what API servers wrote goes back.
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
    format!("; {} has begun, and there is no way but forward", begun.join(" and "))
}

pub(super) fn idle(rollout: &Rollout, observed: &Observed, now: Timestamp) -> Report {
    let waits = observed.desired.as_ref().filter(|wanted| {
        wanted.plan.waits_for_approval(now)
            && rollout.is_start_of(&wanted.plan)
            && !wanted.plan.is_empty()
            && !rollout.is_spent(&wanted.desired)
    });
    if let Some(wanted) = waits {
        let message = format!(
            "plan {} waits for approval: read plans/{0}.json, then put the event `Rollout Approved` \
             {{\"cluster\": \"{}\", \"plan\": \"{0}\"}} on the bus",
            wanted.plan.id, rollout.cluster
        );
        return report("waiting-for-approval", rollout, &wanted.plan.id, message, Default::default());
    }
    let held = observed.desired.as_ref().filter(|wanted| is_due(rollout, wanted));
    if let (Some(since), Some(wanted)) = (rollout.paused_since(), held) {
        let ends = held_by_a_pause(wanted.plan.urgency(now), rollout).map(|words| format!("; {words}"));
        let message =
            format!("plan {} waits: {}{}", wanted.plan.id, paused(rollout, since), ends.unwrap_or_default());
        return report("paused", rollout, &wanted.plan.id, message, Default::default());
    }
    if let Some(gone) = rollout.was_destroyed() {
        return Report {
            state: "destroyed".to_owned(),
            generation: rollout.generation,
            message: gone.message.clone(),
            ..Report::default()
        };
    }
    if let Some(off) = &rollout.called_off {
        return Report {
            state: "aborted".to_owned(),
            generation: rollout.generation,
            message: off.message.clone(),
            left: rollout.left.keys().cloned().collect(),
            ..Report::default()
        };
    }
    match &rollout.last {
        None => Report {
            state: "idle".to_owned(),
            message: "nothing was rolled out yet".to_owned(),
            ..Report::default()
        },
        Some(last) => report(
            last.result.as_str(),
            rollout,
            &last.plan,
            last.message.clone(),
            Words::default().stacks(&last.steps),
        ),
    }
}

pub(super) fn report(
    state: &str,
    rollout: &Rollout,
    plan: &str,
    message: String,
    stacks: BTreeMap<String, String>,
) -> Report {
    Report {
        state: state.to_owned(),
        generation: rollout.generation,
        plan: Some(plan.to_owned()),
        message,
        stacks,
        nodes: BTreeMap::new(),
        left: rollout.left.keys().cloned().collect(),
        ignored: None,
    }
}

pub(super) fn detail(rollout: &Rollout, active: &Active, message: &str) -> RolloutReport {
    RolloutReport::new(&rollout.cluster, &active.plan, clipped(message))
}

/// An event may have 256 KiB, and a stack 500 resources with a reason each: what comes first is what counts.
pub(super) fn clipped(message: &str) -> String {
    const LONGEST: usize = 8_000;
    match message.char_indices().nth(LONGEST) {
        None => message.to_owned(),
        Some((end, _)) => format!("{}… (the whole is in status.json)", &message[..end]),
    }
}

/// What each step says of itself in this decision.
#[derive(Default)]
pub(super) struct Words {
    stacks: BTreeMap<String, String>,
    /// What each node step whose turn it is waits for.
    pub(super) nodes: BTreeMap<Role, String>,
}

impl Words {
    pub(super) fn of(&mut self, step: &Step, words: String) {
        self.stacks.insert(step.stack.clone(), words);
    }

    pub(super) fn stacks(&self, steps: &[Step]) -> BTreeMap<String, String> {
        let fallback = |step: &Step| match &step.state {
            StepState::Waiting => "waits for its turn".to_owned(),
            StepState::ChangeSet => "its change set is being made".to_owned(),
            StepState::Executing => "CloudFormation is at work".to_owned(),
            StepState::Done => "done".to_owned(),
            StepState::Failed(reason) => reason.clone(),
        };
        steps
            .iter()
            .map(|step| {
                (step.stack.clone(), self.stacks.get(&step.stack).cloned().unwrap_or_else(|| fallback(step)))
            })
            .collect()
    }

    /// One line: what is waited for, and what comes after.
    pub(super) fn waiting(&self, active: &Active) -> String {
        let steps = &active.steps;
        let done = steps.iter().filter(|step| step.state == StepState::Done).count();
        let stacks = format!("{done} of {} stacks done", steps.len());
        if matches!(stage(active), Some(Stage::Nodes)) {
            let of = &active.nodes.steps;
            let done = of.iter().filter(|step| step.state == NodeState::Done).count();
            let waits = self.nodes.iter().map(|(role, waits)| format!("{role}: {waits}"));
            let waits = waits.collect::<Vec<_>>().join("; ");
            let overridden = overridden(&active.nodes).map(|words| format!("; {words}")).unwrap_or_default();
            return format!("{waits} ({stacks}, {done} of {} roles' nodes{overridden})", of.len());
        }
        let now: Vec<String> = turn(steps)
            .iter()
            .filter_map(|step| self.stacks.get(&step.stack).map(|words| format!("{}: {words}", step.stack)))
            .collect();
        // Nodes were the last to move, and no stack of the next wave was looked at yet.
        if let (true, Some(next)) = (now.is_empty(), turn(steps).first()) {
            return format!("{}: its turn has come ({stacks})", next.stack);
        }
        format!("{} ({stacks})", now.join("; "))
    }

    /// What makes `message` another reason than the one before: of a node's words all but what is in brackets, which holds figures that
    /// change with every look.
    pub(super) fn reason(&self, message: &str) -> String {
        if self.nodes.is_empty() {
            return message.to_owned();
        }
        let mut depth = 0_u32;
        message
            .chars()
            .filter(|letter| {
                match letter {
                    '(' => depth += 1,
                    ')' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                depth == 0
            })
            .collect()
    }
}
