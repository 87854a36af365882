//! Whose a stack is that has the name of one of the cluster's.

use super::super::fleet::OWNER_TAG;
use super::super::{Rollout, StackStatus, StackView, StepState};
use super::GoingState;

/// The state of a stack that is not the cluster's to delete; `None` if it is.
pub(super) fn foreign(state: &Rollout, name: &str, stack: &StackView) -> Option<GoingState> {
    // A stack that was deployed is ours, unless somebody has replaced it: then a person has to decide.
    let known = state.deployed.contains_key(name) || state.orphaned.contains_key(name);
    let is_ours = stack.tags.get(OWNER_TAG) == Some(&state.cluster)
        || !known && stack.status == StackStatus::ReviewInProgress && is_begun(state, name);
    (!is_ours).then(|| match known {
        true => GoingState::Failed(format!("{name} exists and is not Slipway's")),
        false => GoingState::NotOurs,
    })
}

/// Whether the newest rollout asked for a change set of the stack. A stack that is no more than a change set does not have its tags yet
/// (docs/security.md), and would stay behind.
fn is_begun(state: &Rollout, name: &str) -> bool {
    let open = state.active().into_iter().flat_map(|active| &active.steps);
    let mut steps = open.chain(state.last.iter().flat_map(|last| &last.steps));
    steps.any(|step| step.stack == name && step.state != StepState::Waiting)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;
    use crate::Ended;

    /// By whether it was deployed, whether the last rollout asked for its change set, its status, and its owner.
    #[test]
    fn p3_a_stack_is_deleted_only_if_its_tags_or_a_change_set_of_ours_say_whose_it_is() {
        let failed = || GoingState::Failed("c-pool-a exists and is not Slipway's".to_owned());
        for (known, begun, status, owner, foreigner) in [
            (true, false, "CREATE_COMPLETE", Some("c"), None),
            (false, false, "CREATE_COMPLETE", Some("c"), None),
            (true, false, "CREATE_COMPLETE", Some("other"), Some(failed())),
            (true, true, "REVIEW_IN_PROGRESS", None, Some(failed())),
            (false, false, "CREATE_COMPLETE", None, Some(GoingState::NotOurs)),
            (false, true, "CREATE_COMPLETE", None, Some(GoingState::NotOurs)),
            (false, true, "CREATE_COMPLETE", Some("other"), Some(GoingState::NotOurs)),
            (false, false, "REVIEW_IN_PROGRESS", None, Some(GoingState::NotOurs)),
            (false, true, "REVIEW_IN_PROGRESS", None, None),
        ] {
            let sent = if begun { "changeSet" } else { "waiting" };
            let step = json!({
                "stack": "c-pool-a", "kind": "pool", "templateKey": "k", "tags": {}, "mayReplace": [], "state": sent,
            });
            let last: Value = json!({
                "plan": "p", "specVersion": "v1", "target": "t", "result": "aborted", "message": "",
                "endedAt": "2027-01-01T00:00:00Z", "steps": [step],
            });
            let last: Ended = serde_json::from_value(last).unwrap();
            let deployed = if known {
                BTreeMap::from([("c-pool-a".to_owned(), "t".to_owned())])
            } else {
                BTreeMap::new()
            };
            let state = Rollout { last: Some(last), deployed, ..Rollout::new("c") };
            let tags: BTreeMap<&str, &str> = owner.into_iter().map(|owner| (OWNER_TAG, owner)).collect();
            let stack: StackView =
                serde_json::from_value(json!({"id": "arn", "status": status, "tags": tags})).unwrap();
            let found = foreign(&state, "c-pool-a", &stack);
            assert_eq!(found, foreigner, "{known} {begun} {status} {owner:?}");
        }
    }
}
