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
    pub is: String,
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
    let is = match (rotation.stage, rotation.aborted) {
        (Stage::Trust, false) => {
            format!("nodes come to trust a new {name} beside the old one, which goes on {}", does(name))
        }
        (Stage::Trust, true) => {
            format!("it goes back: the old {name} {} again, and both are trusted", does(name))
        }
        (Stage::Issue, _) => format!("the new {name} {}, and the old one is trusted still", does(name)),
        (Stage::Drop, false) => format!("the old {name} is trusted no more"),
        (Stage::Drop, true) => format!("it goes back: the new {name} is trusted no more"),
    };
    let next = match (rotation.stage, rotation.aborted) {
        (Stage::Trust, false) => "once every node has it, the new one takes over".to_owned(),
        (Stage::Trust, true) => format!("once every node has it{}, the new one goes", until(name, rotation)),
        (Stage::Issue, _) => format!("once every node has it{}, the old one goes", until(name, rotation)),
        (Stage::Drop, _) => "once every node has it, the rotation is over".to_owned(),
    };
    RotationStatus { stage: rotation.stage.to_string(), aborted: rotation.aborted, is, next }
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
pub fn after(name: &str, stage: Stage) -> Option<&'static str> {
    match (name, stage) {
        (CA, Stage::Trust) => Some(
            "hand out new kubeconfigs before the new authority issues: who trusts the old one alone does not know the API server any more",
        ),
        (CA, Stage::Issue) => Some(
            "hand out new kubeconfigs before the old authority goes: a certificate that it signed signs in nobody then. Pods see the new \
             authority by kube-root-ca.crt; what has read it at its start needs a restart",
        ),
        (SERVICE_ACCOUNT, Stage::Issue) => Some(
            "tokens in Secrets (kubernetes.io/service-account-token) never end by themselves: make those anew before the old key goes",
        ),
        (ETCD_CA, Stage::Trust) => {
            Some("etcd reads whom it trusts when it starts: each member is started anew, one at a time")
        }
        _ => None,
    }
}

/// The next step and what it waits for, one line each.
#[must_use]
pub fn lines(next: &Next) -> Vec<String> {
    let all = |waits: &[Wait]| waits.iter().map(ToString::to_string).collect();
    match next {
        Next::Issue => vec!["every node has it: the new one can take over".to_owned()],
        Next::Drop => vec!["every node has it: the other one can go".to_owned()],
        Next::Settle => {
            vec!["every node has it: from now on what the other one signed is waited for".to_owned()]
        }
        Next::End => vec!["every node has it: the rotation is over".to_owned()],
        Next::Wait(waits) | Next::Unsettle(waits) => all(waits),
    }
}
