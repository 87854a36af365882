//! Members that joined etcd by an update of its stack that CloudFormation rolls back: it is about to delete their groups.
//!
//! Each of them that votes is removed from the membership while its machine still runs. Otherwise the others would have to find a majority
//! with the votes of machines that are gone: a single member to which a second one was added would never find one again (P4).
//!
//! The groups go in `UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS`: "CloudFormation is still removing resources" then (knowledge center,
//! "stuck in the UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS state"); or when a person continues a rollback that failed (user guide,
//! "Continue rolling back an update").
//!
//! A member that was not in the membership yet may join a moment later, because it waited for the place of the only learner. So all are asked
//! for again and again until CloudFormation is done.
//!
//! Nothing waits for this. What it does not reach is in [`super::Rollout::joined_members`], and the next plan removes it.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use slipway_core::node::{MemberRemoved, Verb};
use slipway_core::release::StackKind;
use slipway_core::role::Role;

use super::errand::{PAUSE, Round, Sender};
use super::fleet::serving;
use super::outbox::{Effects, Evidence, Seen};
use super::{Active, Effect, Observed, StackStatus, StepState, ToObserve};

/// How long one member is waited for until another one is told.
const ANSWERS: SignedDuration = SignedDuration::from_mins(3);

/// The removal of joined members, one at a time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Withdrawal {
    /// The last command.
    #[serde(default, skip_serializing_if = "Round::is_empty")]
    sent: Round,
    /// How many commands were sent.
    rounds: u32,
    /// Members whose removal was answered in this turn.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    answered: BTreeSet<Role>,
}

impl Withdrawal {
    /// The command with that token was not sent: another one is.
    pub(super) fn not_sent(&mut self, token: &str) {
        self.sent.forget(token);
    }
}

/// Whether CloudFormation may be rolling back what lets members join.
fn is_executing(active: &Active) -> bool {
    let executes = |step: &super::Step| step.kind == StackKind::Etcd && step.state == StepState::Executing;
    !active.joins.is_empty() && active.steps.iter().any(executes)
}

/// The groups of the members that stay, and the answers to commands.
pub(super) fn to_observe(active: &Active, scope: &mut ToObserve) {
    if is_executing(active) {
        let stay = active.nodes.members.iter().filter(|(role, _)| !active.joins.contains(*role));
        scope.groups.extend(stay.map(|(_, group)| group.clone()));
        let commands = active.withdrawal.iter().flat_map(|one| one.sent.iter());
        scope.commands.extend(commands.map(|sent| sent.command.clone()));
    }
}

/// Has a member that stays remove the next one, if etcd's stack is in that `status`.
pub(super) fn advance(
    active: &mut Active,
    cluster: &str,
    status: StackStatus,
    observed: &Observed,
    now: Timestamp,
) -> Effects {
    let mut effects = Effects::new(now);
    let rolls_back = matches!(
        status,
        StackStatus::UpdateRollbackInProgress
            | StackStatus::UpdateRollbackCompleteCleanupInProgress
            | StackStatus::UpdateRollbackFailed
    );
    if !rolls_back || !is_executing(active) {
        return effects;
    }
    let open = active.withdrawal.get_or_insert_default();
    if let Some(sent) = open.sent.first() {
        match sent.answer::<MemberRemoved>(observed, now) {
            Some(Ok(_)) => {
                if let Verb::EtcdRemove { member } = &sent.command.verb {
                    let asked = active.joins.iter().filter(|role| role.to_string() == *member);
                    open.answered.extend(asked.cloned());
                }
            }
            // Another member may be reached, or etcd may be ready for it then (`--strict-reconfig-check`).
            Some(Err(_)) if !sent.is_older_than(PAUSE, now) => return effects,
            None if !sent.is_older_than(ANSWERS, now) => return effects,
            Some(Err(_)) | None => {}
        }
        if open.answered.len() == active.joins.len() {
            if !sent.is_older_than(PAUSE, now) {
                return effects;
            }
            open.answered.clear();
        }
    }
    // The newest first, as it joined last.
    let next = active.joins.iter().rfind(|role| !open.answered.contains(*role));
    let Some(next) = next else { return effects };
    let stay = active.nodes.members.iter().filter(|(role, _)| !active.joins.contains(*role));
    let machines: Vec<(&Role, String)> = stay
        .filter_map(|(role, group)| {
            let view = observed.groups.get(group)?.as_ref()?;
            Some((role, serving(view).next()?.0.clone()))
        })
        .collect();
    let turn = (open.rounds as usize).checked_rem(machines.len());
    let Some((role, machine)) = turn.and_then(|turn| machines.into_iter().nth(turn)) else { return effects };
    open.rounds += 1;
    let owner = format!("{cluster} {} {}", active.change_set, active.started_at);
    let sender = Sender { owner: &owner, cluster, name: "withdrawal" };
    let whom = vec![(role.clone(), machine, Verb::EtcdRemove { member: next.to_string() })];
    open.sent = Round::new(sender, open.rounds, whom, now);
    for sent in open.sent.iter() {
        effects.push_on(Effect::Send(sent.command.clone()), Evidence::new(Seen::World, now));
    }
    effects
}
