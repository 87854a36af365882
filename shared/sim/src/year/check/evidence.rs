//! What is known of etcd when one of its members is taken down: how old that is counts when it is done, and not when it was decided.

use jiff::{SignedDuration, Timestamp};

use super::{Checker, SNAPSHOT};
use crate::world::ClusterFacts;

/// What members say of themselves and of each other counts for so long.
const FRESH: SignedDuration = SignedDuration::from_mins(3);
/// From the last look at the clock until a call takes effect: the function that makes it is ended after a minute
/// (`infra/template.yaml`, `Timeout` of the rollout function).
const CALL: SignedDuration = SignedDuration::from_secs(60);

impl Checker {
    /// A member was asked how it is.
    pub(super) fn asks_for_health(&mut self, instance: &str, now: Timestamp) {
        self.asked.insert(instance.to_owned(), now);
    }

    /// How old what is known may be when a member is taken down.
    pub(super) fn evidence_lasts(&self) -> SignedDuration {
        if self.faults { FRESH + CALL } else { SignedDuration::ZERO }
    }

    /// A snapshot is young enough.
    pub(super) fn has_snapshot(&self, facts: &ClusterFacts, now: Timestamp) -> bool {
        facts.snapshots.iter().any(|at| now.duration_since(*at) <= SNAPSHOT + CALL)
    }

    /// Every other member was asked moments before; where there is no other, that one itself was.
    pub(super) fn knows_of_the_others(&mut self, facts: &ClusterFacts, role: &str, now: Timestamp) {
        let alone = facts.members.len() == 1;
        let others = facts.members.iter().filter(|(other, member)| member.voter && (alone || *other != role));
        let known = |machine: &String| {
            self.asked.get(machine).is_some_and(|at| now.duration_since(*at) <= FRESH + CALL)
        };
        // One whose machine has fallen silent since was asked when it had one; what is so meanwhile the rules of quorum judge.
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
