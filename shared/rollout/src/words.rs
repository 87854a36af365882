//! The state of a rollout in words, for people.

use std::collections::BTreeMap;

use jiff::Timestamp;
use slipway_core::event::RolloutReport;
use slipway_core::status::{Report, RolloutState};

use super::due::is_due;
use super::nodes::{held_by_a_pause, overridden};
use super::order::{paused, resume};
use super::progress::{Waiting, clipped, named, only_forward, stacks_done};
use super::waits::RolloutWaits;
use super::{Active, Observed, Rollout, StepState};

pub(super) fn succeeded(active: &Active) -> String {
    let mut message = match active.steps.len() {
        0 => "no stack had to change".to_owned(),
        steps => format!("{steps} of {steps} stacks are as planned"),
    };
    if let Some(step) = active.addons.as_ref().filter(|step| !step.words.is_empty()) {
        message.push_str(&format!("; add-ons for the controllers to apply: {}", step.words));
    }
    message.push_str(&active.nodes.summary());
    if active.nodes_by_hand > 0 {
        message.push_str(&format!(
            "; {} nodes still run the previous release: this version of Slipway does not replace them, so replace \
             them one at a time by terminating them after a drain",
            active.nodes_by_hand
        ));
    }
    if !active.stacks_by_hand.is_empty() {
        message.push_str(&format!(
            "; orphaned stacks, which the spec no longer has, for a person to delete: {}",
            active.stacks_by_hand.join(", ")
        ));
    }
    message
}

/// What an abort leaves unfinished.
pub(super) fn aborted(active: &Active, failures: &[String]) -> String {
    let done = active.steps.iter().filter(|step| step.state == StepState::Done).count();
    let failed = failures.iter().map(|reason| format!("; {reason}")).collect::<String>();
    format!(
        "aborted: {done} of {} stacks are as planned, the others as they were{failed}; upload the spec again to continue{}",
        active.steps.len(),
        only_forward(active)
    )
}

/// What becomes of members that may have joined etcd and have lost their groups.
pub(super) fn half_joined(rollout: &Rollout) -> String {
    let members: Vec<String> = rollout.joined_members.keys().map(ToString::to_string).collect();
    if members.is_empty() {
        return String::new();
    }
    format!(
        "; {} may be in etcd's membership although the update that creates their groups did not succeed. `slipway rollback --cluster {}` brings \
         back the spec from before, and its rollout removes them; do that before you continue a rollback of etcd's stack by hand. Until then no \
         member can be replaced or renewed",
        members.join(", "),
        rollout.cluster
    )
}

pub(super) fn idle(rollout: &Rollout, observed: &Observed, now: Timestamp) -> Report {
    let waits = observed.desired.as_ref().filter(|wanted| {
        wanted.plan.waits_for_approval(now)
            && rollout.is_start_of(&wanted.plan)
            && !wanted.plan.is_empty()
            && !rollout.was_rolled_out(&wanted.desired)
    });
    if let Some(wanted) = waits {
        let message = format!("plan {} waits for approval", wanted.plan.id);
        let next = format!(
            "`slipway approve {} --cluster {}` starts it; without it nothing changes",
            wanted.plan.id, rollout.cluster
        );
        let waits =
            report(RolloutState::WaitingForApproval, rollout, &wanted.plan.id, message, Default::default());
        return Report { next: Some(next), ..waits };
    }
    let held = observed.desired.as_ref().filter(|wanted| is_due(rollout, wanted, now));
    if let (Some(since), Some(wanted)) = (rollout.paused_since(), held) {
        let ends = held_by_a_pause(wanted.plan.urgency(now), rollout).map(|words| format!("; {words}"));
        let message =
            format!("plan {} waits: {}{}", wanted.plan.id, paused(rollout, since), ends.unwrap_or_default());
        let held = report(RolloutState::Paused, rollout, &wanted.plan.id, message, Default::default());
        return Report { next: Some(resume(&rollout.cluster)), ..held };
    }
    if let Some(gone) = rollout.was_destroyed() {
        return Report {
            state: RolloutState::Destroyed,
            generation: rollout.generation,
            message: gone.message.clone(),
            ..Report::default()
        };
    }
    if let Some(off) = rollout.aborted_destruction() {
        return Report {
            state: RolloutState::Aborted,
            generation: rollout.generation,
            message: off.message.clone(),
            orphaned: rollout.orphaned.keys().cloned().collect(),
            ..Report::default()
        };
    }
    match &rollout.last {
        None => Report { message: "nothing was rolled out yet".to_owned(), ..Report::default() },
        Some(last) => report(
            last.result.into(),
            rollout,
            &last.plan,
            last.message.clone(),
            Waiting::default().stacks(&last.steps),
        ),
    }
}

pub(super) fn report(
    state: RolloutState,
    rollout: &Rollout,
    plan: &str,
    message: String,
    stacks: BTreeMap<String, String>,
) -> Report {
    Report {
        state,
        generation: rollout.generation,
        decided: rollout.effects_decided,
        plan: Some(plan.to_owned()),
        message,
        next: None,
        stacks,
        nodes: BTreeMap::new(),
        orphaned: rollout.orphaned.keys().cloned().collect(),
        ignored: None,
    }
}

pub(super) fn detail(rollout: &Rollout, active: &Active, message: &str) -> RolloutReport {
    RolloutReport::new(&rollout.cluster, &active.plan, clipped(message))
}

/// One line: the waiting reason, and what comes after.
pub(super) fn waiting(active: &Active, waits: &RolloutWaits) -> String {
    let stacks = format!("{} of {} stacks done", stacks_done(active), active.steps.len());
    match waits {
        RolloutWaits::Nodes(nodes) => {
            let of: Vec<_> = active.nodes.steps.iter().filter(|step| !step.is_final_check()).collect();
            let done = of.iter().filter(|step| step.is_done()).count();
            let overridden = overridden(&active.nodes).map(|words| format!("; {words}")).unwrap_or_default();
            format!("{} ({stacks}, {done} of {} roles' nodes{overridden})", named(nodes), of.len())
        }
        RolloutWaits::NextStack { stack, .. } => format!("{stack}: its turn has come ({stacks})"),
        RolloutWaits::Stacks { waits, .. } => format!("{} ({stacks})", named(waits)),
    }
}
