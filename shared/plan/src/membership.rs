//! Changes of etcd's membership: members that join, move, return or leave, in order, one at a time.
//!
//! Members join first and leave last, so that there are never fewer voters than necessary. The list is empty for a new cluster, whose
//! members start together.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use slipway_core::members::{MemberRole, VolumePin};
use slipway_core::release::{NodeRole, Rendering};
use slipway_core::role::Role;

use super::Baseline;

/// One change of the membership. The next one begins when this one is done and every voter is healthy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MembershipChange {
    /// The member's role, `etcd-3`.
    pub member: Role,
    /// What happens to it.
    pub action: MembershipAction,
    /// The number of voters before.
    pub voters_before: u32,
    /// The number of voters after.
    pub voters_after: u32,
    /// Why, in words.
    pub reason: String,
    /// What it means for the quorum, in words.
    pub quorum: String,
}

/// What happens to one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MembershipAction {
    /// It joins as a learner, and votes once it has caught up.
    Add,
    /// The other members are told its new address.
    Readdress,
    /// It leaves and joins again with an empty volume.
    Replace,
    /// It leaves.
    Remove,
}

/// The changes from `old` to `new`; empty if `old` has no etcd.
pub(super) fn compare(old: &Baseline, new: &Rendering) -> Vec<MembershipChange> {
    let all = old.rendering.as_ref().map(standing).unwrap_or_default();
    let joined = |index: &u32| old.joined.contains_key(&Role::Etcd(*index));
    let (lost, before): (BTreeMap<u32, _>, BTreeMap<u32, _>) =
        all.into_iter().partition(|(index, _)| joined(index));
    let after = standing(new);
    if before.is_empty() {
        return Vec::new();
    }
    let mut found: Vec<(MembershipAction, u32, String)> = Vec::new();
    let counts = format!("members deployed: {}, asked for: {}", before.len(), after.len());
    for (index, node) in &after {
        match before.get(index).map(|before| (&before.member, &node.member)) {
            None => found.push((MembershipAction::Add, *index, counts.clone())),
            Some((Some(before), Some(after))) => {
                found.extend(moved(before, after).map(|(action, reason)| (action, *index, reason)));
            }
            Some((None, _) | (_, None)) => {}
        }
    }
    let gone = before.keys().filter(|index| !after.contains_key(index));
    // The newest member leaves first, because controllers and people know the founding members best.
    found.extend(gone.rev().map(|index| (MembershipAction::Remove, *index, counts.clone())));
    let why = "it may have joined etcd in a rollout that could not create its group";
    found.extend(lost.into_keys().rev().map(|index| (MembershipAction::Remove, index, why.to_owned())));
    found.sort_by_key(|(action, ..)| *action);

    let mut voters = u32::try_from(before.len()).unwrap_or(u32::MAX);
    found
        .into_iter()
        .map(|(action, index, reason)| {
            let before = voters;
            match action {
                MembershipAction::Add => voters += 1,
                MembershipAction::Remove if joined(&index) => {}
                MembershipAction::Remove => voters -= 1,
                MembershipAction::Readdress | MembershipAction::Replace => {}
            }
            MembershipChange {
                member: Role::Etcd(index),
                action,
                voters_before: before,
                voters_after: voters,
                reason,
                quorum: match action {
                    MembershipAction::Remove if joined(&index) => {
                        format!("{voters} voters have machines, and stay")
                    }
                    MembershipAction::Add
                    | MembershipAction::Readdress
                    | MembershipAction::Replace
                    | MembershipAction::Remove => quorum_words(action, before, voters),
                },
            }
        })
        .collect()
}

fn standing(rendering: &Rendering) -> BTreeMap<u32, &NodeRole> {
    let roles = rendering.roles.iter();
    roles.filter_map(|(role, node)| Some((role.member()?, node))).collect()
}

/// What happens to a member that stays. A new volume takes precedence over a new address, because joining again changes both.
fn moved(before: &MemberRole, after: &MemberRole) -> Option<(MembershipAction, String)> {
    if before.pin.volume != after.pin.volume {
        return Some((MembershipAction::Replace, other_volume(&before.pin.volume, &after.pin.volume)));
    }
    readdressed(&before.peer_url, &after.peer_url)
}

fn readdressed(before: &str, after: &str) -> Option<(MembershipAction, String)> {
    (before != after).then(|| {
        let reason = format!("its address changes, which etcd keeps in the membership: {before} → {after}");
        (MembershipAction::Readdress, reason)
    })
}

/// Why a member gets another volume, and what that costs.
pub(super) fn other_volume(before: &VolumePin, after: &VolumePin) -> String {
    let what = if before.availability_zone == after.availability_zone {
        "a volume cannot be encrypted under another key".to_owned()
    } else {
        format!("a volume cannot move from {} to {}", before.availability_zone, after.availability_zone)
    };
    format!("its data volume is replaced by an empty one: {what}; a snapshot of the old one is kept")
}

/// How many of `voters` must be available.
const fn quorum(voters: u32) -> u32 {
    voters / 2 + 1
}

/// How many of `voters` may fail.
const fn may_fail(voters: u32) -> u32 {
    voters.saturating_sub(quorum(voters))
}

fn quorum_words(action: MembershipAction, before: u32, after: u32) -> String {
    let change = || {
        format!(
            "{before} → {after} voters, quorum {} → {}, {} → {} may fail",
            quorum(before),
            quorum(after),
            may_fail(before),
            may_fail(after)
        )
    };
    match action {
        MembershipAction::Add => {
            format!("{}; until it has caught up it is a learner without a vote", change())
        }
        MembershipAction::Readdress => format!("{after} voters as before; it must be up and reached by both names meanwhile"),
        MembershipAction::Replace if before == 1 => {
            "it is the only member: all data of the cluster is lost with its volume, unless it is restored from a snapshot"
                .to_owned()
        }
        MembershipAction::Replace => {
            let meanwhile = before - 1;
            format!(
                "{before} → {meanwhile} voters until it has caught up from them: quorum {}, {} may fail meanwhile",
                quorum(meanwhile),
                may_fail(meanwhile)
            )
        }
        MembershipAction::Remove if before == 2 => format!("{}; both must be up when it leaves", change()),
        MembershipAction::Remove => change(),
    }
}
