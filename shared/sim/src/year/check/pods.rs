//! The rules for removing a pod from its node. They are judged by the facts of the pod, the other pods of its workload and its budget (the
//! API server's own rule, kubernetes.io/docs/concepts/workloads/pods/disruptions), and by the spec's rule for force. The agent's own
//! judgement is not used.

use jiff::{SignedDuration, Timestamp};

use super::Checker;
use crate::world::{MachineFacts, Removal, World};

/// What must hold for a pod, the other pods and the node if the pod's budget is ignored (docs/cluster-yaml.md, `forceAfterMinutes`).
const AGE: SignedDuration = SignedDuration::from_hours(72);
const SERVES_FOR: SignedDuration = SignedDuration::from_hours(1);
const ILL_FOR: SignedDuration = SignedDuration::from_hours(6);
const BETWEEN: SignedDuration = SignedDuration::from_mins(5);

impl Checker {
    /// Checks the pods that were removed since the last call.
    pub(super) fn note_removals(&mut self, world: &World) {
        let all = world.removals(&self.cluster);
        for removal in all.iter().skip(self.removals) {
            self.removal(removal);
        }
        self.removals = all.len();
    }

    fn removal(&mut self, removal: &Removal) {
        let (at, pod, id) = (removal.at, &removal.pod, &removal.machine);
        if !removal.moves {
            self.wrong(at, "P6", format!("{pod} is removed from {id}, and its node would make it again"));
        }
        if !removal.cordoned {
            self.wrong(at, "P6", format!("{pod} is removed from {id}, to which pods are still scheduled"));
        }
        let Some(began) = self.drained.get(id).copied() else {
            return self.wrong(
                at,
                "P6",
                format!("{pod} is removed from {id}, which nobody asked to be drained"),
            );
        };
        // A machine that Auto Scaling terminates or EC2 interrupts is drained whatever a person orders.
        let goes_anyway = self.machines.get(id).is_none_or(MachineFacts::goes_anyway);
        if !goes_anyway && self.stands_still(at) {
            self.wrong(at, "P10", format!("{pod} is removed from {id} although no rollout goes on"));
        }
        if removal.forced {
            self.forced(removal, began);
        } else if let Some((left, wanted)) = removal.remaining.filter(|(left, wanted)| left < wanted) {
            self.wrong(
                at,
                "P6",
                format!("{pod} is evicted, {left} of its fellows serve, and {wanted} have to"),
            );
        }
    }

    /// A pod was deleted without asking its budget.
    fn forced(&mut self, removal: &Removal, began: Timestamp) {
        let (at, pod, id) = (removal.at, &removal.pod, &removal.machine);
        let role = self.roles.get(id).cloned().unwrap_or_default();
        let Some(after) = self.rules.forces_after(&role) else {
            let what =
                format!("{pod} of {role} is deleted against its budget, and the spec never lets that be");
            return self.wrong(at, "P6", what);
        };
        let fresh =
            |(serves, long): &&(bool, SignedDuration)| *long < if *serves { SERVES_FOR } else { ILL_FOR };
        let last = self.forced_at.insert(id.clone(), at);
        let why = if at.duration_since(began) < after {
            format!("{id} has been drained for less than {} minutes", after.as_mins())
        } else if removal.age < AGE {
            "it is younger than three days".to_owned()
        } else if removal.siblings.iter().any(|one| fresh(&one)) {
            "one of its fellows has not been as it is for long enough".to_owned()
        } else if last.is_some_and(|last| at.duration_since(last) < BETWEEN) {
            "another was, less than five minutes ago".to_owned()
        } else {
            return;
        };
        self.wrong(at, "P6", format!("{pod} is deleted against its budget although {why}"));
    }
}
