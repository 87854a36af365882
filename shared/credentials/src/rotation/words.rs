//! The state of a rotation, in words.

use std::collections::BTreeMap;

use serde::Serialize;
use slipway_core::role::{CA, ETCD_CA, KUBELET_CA, SERVICE_ACCOUNT};

use super::{Next, Rotation, Stage, Wait};
use crate::Manifest;

/// The state of the rotation of one asset, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RotationStatus {
    /// `trust`, `issue` or `drop`.
    pub stage: String,
    /// Whether it was aborted.
    pub aborted: bool,
    /// What the stage means.
    pub meaning: String,
    /// What comes next, and what it depends on.
    pub next: String,
}

/// The state of each rotation in the inventory, by asset.
#[must_use]
pub fn words(manifest: &Manifest) -> BTreeMap<String, RotationStatus> {
    manifest
        .rotations
        .iter()
        .map(|(name, rotation)| (name.clone(), rotation_status(name, rotation)))
        .collect()
}

/// The state of one rotation.
#[must_use]
pub fn rotation_status(name: &str, rotation: &Rotation) -> RotationStatus {
    let meaning = match (rotation.stage, rotation.aborted) {
        (Stage::Trust, false) => {
            format!(
                "nodes are updated to trust a new {name} in addition to the old one, which still {}",
                does(name)
            )
        }
        (Stage::Trust, true) => {
            format!(
                "the rotation is being reverted: the old {name} {} again, and both are trusted",
                does(name)
            )
        }
        (Stage::Issue, _) => format!("the new {name} {}, and the old one is trusted still", does(name)),
        (Stage::Drop, false) => format!("the old {name} is no longer trusted"),
        (Stage::Drop, true) => format!("it goes back: the new {name} is trusted no more"),
    };
    let next = match (rotation.stage, rotation.aborted) {
        (Stage::Trust, false) => "once every node has it, the new one takes over".to_owned(),
        (Stage::Trust, true) => format!("once every node has it{}, the new one goes", until(name, rotation)),
        (Stage::Issue, _) => format!("once every node has it{}, the old one goes", until(name, rotation)),
        (Stage::Drop, _) => "once every node has it, the rotation is over".to_owned(),
    };
    RotationStatus { stage: rotation.stage.to_string(), aborted: rotation.aborted, meaning, next }
}

fn does(name: &str) -> &'static str {
    if name == SERVICE_ACCOUNT { "signs tokens" } else { "issues" }
}

fn until(name: &str, rotation: &Rotation) -> String {
    match (name, rotation.settled) {
        (KUBELET_CA | SERVICE_ACCOUNT, None) => ", and what the other one signed has ended".to_owned(),
        (KUBELET_CA | SERVICE_ACCOUNT, Some(since)) => {
            format!(" (all have had it since {since}) and what the other one signed has ended")
        }
        _ => String::new(),
    }
}

/// What a person may have to do outside of the cluster before the next stage.
#[must_use]
pub fn manual_steps(name: &str, stage: Stage) -> Option<&'static str> {
    match (name, stage) {
        (CA, Stage::Trust) => Some(
            "distribute new kubeconfigs before the new authority issues certificates: a client that trusts only the old authority then rejects the API server",
        ),
        (CA, Stage::Issue) => Some(
            "distribute new kubeconfigs before the old authority is removed: the API server then rejects client certificates that it signed. Pods see the new \
             authority in kube-root-ca.crt; restart programs that read that file only when they start",
        ),
        (SERVICE_ACCOUNT, Stage::Issue) => Some(
            "tokens in Secrets (kubernetes.io/service-account-token) never end by themselves: make those anew before the old key goes",
        ),
        (ETCD_CA, Stage::Trust) => Some(
            "etcd reads the authorities that it trusts only when it starts: the members are restarted, one at a time",
        ),
        _ => None,
    }
}

/// The next step and what it waits for, one line each.
#[must_use]
pub fn next_step_lines(next: &Next) -> Vec<String> {
    let all = |waits: &[Wait]| waits.iter().map(ToString::to_string).collect();
    match next {
        Next::Issue => vec!["every node has it: the new one can take over".to_owned()],
        Next::Drop => vec!["every node has it: the other one can go".to_owned()],
        Next::Settle => {
            vec!["every node has it: the rotation now waits until everything that the other one signed has expired".to_owned()]
        }
        Next::End => vec!["every node has it: the rotation is over".to_owned()],
        Next::Wait(waits) | Next::Unsettle(waits) => all(waits),
    }
}
