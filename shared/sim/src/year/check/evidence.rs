//! The age of the facts about etcd when a member is taken down. It counts at the time of the act, and not at the time of the decision.

use jiff::{SignedDuration, Timestamp};

use super::{Checker, SNAPSHOT, WORKER_GRACE};
use crate::world::ClusterFacts;

/// How long the members' answers about themselves and each other count.
const FRESH: SignedDuration = SignedDuration::from_mins(3);
/// The time from the last reading of the clock until a call takes effect: the function is stopped after a minute (`infra/template.yaml`,
/// `Timeout` of the rollout function).
const CALL: SignedDuration = SignedDuration::from_secs(60);

/// The member that leads.
#[derive(Debug, Clone)]
pub(super) struct Leader {
    role: String,
    since: Timestamp,
    /// It was told to hand over, and does not.
    is_to_hand_over: bool,
}

impl Checker {
    /// A member is asked about its health.
    pub(super) fn asks_for_health(&mut self, instance: &str, now: Timestamp) {
        self.asked.insert(instance.to_owned(), now);
    }

    /// The age that the facts about a member or a machine may have.
    pub(super) fn may_know(&self, who: &str) -> SignedDuration {
        let is_worker = self.roles.get(who).is_some_and(|role| role.starts_with("pool-"));
        match who.starts_with("etcd-") {
            true => self.evidence_lasts(),
            false if is_worker && self.faults => WORKER_GRACE,
            false => self.grace(),
        }
    }

    /// Notes which member leads.
    pub(super) fn note_leader(&mut self, facts: &ClusterFacts, now: Timestamp) {
        if self.led.as_ref().map(|led| &led.role) != facts.leader.as_ref() {
            self.led = facts.leader.clone().map(|role| Leader { role, since: now, is_to_hand_over: false });
        }
        let Some(led) = &mut self.led else { return };
        let machine = facts.members.get(&led.role).and_then(|member| member.machine.as_ref());
        let machine = machine.and_then(|id| self.machines.get(id));
        // Nobody can tell it so. It hands over in its terminate hook.
        led.is_to_hand_over |= machine.is_some_and(|machine| machine.unregistered);
    }

    /// A machine was told to hand over leadership.
    pub(super) fn is_to_hand_over(&mut self, instance: &str) {
        let role = self.roles.get(instance);
        if let Some(led) = self.led.as_mut().filter(|led| role == Some(&led.role)) {
            led.is_to_hand_over = true;
        }
    }

    /// Whether a member has led for so long that every answer that counts says so, and was not told to hand over.
    pub(super) fn is_known_to_lead(&self, role: &str, now: Timestamp) -> bool {
        let led = self.led.as_ref().filter(|led| led.role == role && !led.is_to_hand_over);
        led.is_some_and(|led| now.duration_since(led.since) >= self.evidence_lasts())
    }

    /// The maximum age of the facts when a member is taken down.
    pub(super) fn evidence_lasts(&self) -> SignedDuration {
        if self.faults { FRESH + CALL } else { SignedDuration::ZERO }
    }

    /// Whether there is a recent snapshot.
    pub(super) fn has_snapshot(&self, facts: &ClusterFacts, now: Timestamp) -> bool {
        facts.snapshots.iter().any(|at| now.duration_since(*at) <= SNAPSHOT + CALL)
    }

    /// Every other member must have been asked recently; if there is no other member, the member itself.
    pub(super) fn knows_of_the_others(&mut self, facts: &ClusterFacts, role: &str, now: Timestamp) {
        let alone = facts.members.len() == 1;
        let others = facts.members.iter().filter(|(other, member)| member.voter && (alone || *other != role));
        let known = |machine: &String| {
            self.asked.get(machine).is_some_and(|at| now.duration_since(*at) <= FRESH + CALL)
        };
        // A member whose machine is gone was asked when it had one; the rules about quorum judge its present state.
        let unknown = others.filter(|(_, member)| !member.machine.as_ref().is_none_or(known));
        let unknown: Vec<String> = unknown.map(|(other, _)| other.clone()).collect();
        if !unknown.is_empty() {
            let what = format!(
                "{role} is taken down, and nobody has asked {unknown:?} how they are for three minutes"
            );
            self.wrong(now, "P4", what);
        }
    }
}
