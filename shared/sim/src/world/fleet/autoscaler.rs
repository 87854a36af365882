//! The cluster autoscaler, as it behaves on AWS (kubernetes/autoscaler, `cluster-autoscaler`).
//!
//! Its behaviour by its source and its FAQ, with the default flags:
//! - A loop runs every ten seconds (`scan-interval`), or later if a loop takes longer ("no more than 60 sec", FAQ, "What are the
//!   Service Level Objectives").
//! - It uses an observation of groups that is up to a minute old (`refreshInterval` in `cloudprovider/aws/aws_manager.go`),
//!   corrected by its own calls (`asg.curSize` in `auto_scaling_groups.go`).
//! - It grows a group if pods fit on no node and on no machine that is still booting. It calls `SetDesiredCapacity` with an
//!   absolute size (`setAsgSizeNoLock`), at most the group's maximum.
//! - A node is unneeded if less than half of it is used, every pod may be evicted (a budget allows it, no local storage), and the
//!   pods fit on another node (FAQ, "How does scale-down work?"). A cordoned node is a candidate like any other, but accepts no
//!   pods. The annotation `scale-down-disabled` protects a node (`core/scaledown/eligibility/eligibility.go`); our agent sets it
//!   when it cordons a node for a drain, and removes it when it uncordons the node.
//! - If a node was unneeded for ten minutes, and the last growth was ten minutes ago (`scale-down-unneeded-time`,
//!   `scale-down-delay-after-add`), it taints the node and evicts its pods under their budgets for two minutes. It leaves a node
//!   that it cannot empty. It terminates the machine with `TerminateInstanceInAutoScalingGroup` and a decrement
//!   (`DeleteInstances`), never below the group's minimum.
//! - It terminates a machine that has not become a node within 15 minutes (`max-node-provision-time`) in the same way
//!   (`removeOldUnregisteredNodes` in `core/static_autoscaler.go`).
//! - If it cannot read the nodes or the groups, it does nothing in that loop.
//!
//! It scales groups of one zone, because Slipway refuses it for pools of several zones. While it runs, [`ROOM`] pods fit on a node.
//! Otherwise their number is not limited, because nothing depends on it.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::super::World;
use super::super::cluster::NodeLoad;
use super::super::machine::State;
use super::super::task::FleetTask;
use super::api::Termination;

/// The number of pods of workloads that fit on a node.
const ROOM: usize = 4;
/// The time from one loop to the next.
const LOOPS_S: (f64, f64) = (10.0, 60.0);
/// How long it uses an observation of groups.
const BELIEVES: SignedDuration = SignedDuration::from_secs(60);
/// How long a node is unneeded before it is removed, and how long no node is removed after a growth.
const UNNEEDED: SignedDuration = SignedDuration::from_mins(10);
/// How long a machine may take to become a node.
const BECOMES_A_NODE: SignedDuration = SignedDuration::from_mins(15);
/// How long it tries to evict the pods of a node (`max-pod-eviction-time`).
const EVICTS: SignedDuration = SignedDuration::from_mins(2);

/// A cluster autoscaler that runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Autoscaler {
    /// Groups as it last observed them, and when that was.
    seen: BTreeMap<String, Seen>,
    seen_at: Option<Timestamp>,
    /// Since when each node is unneeded.
    unneeded: BTreeMap<String, Timestamp>,
    /// Since when it has known each machine that has not become a node.
    unregistered: BTreeMap<String, Timestamp>,
    grown_at: Option<Timestamp>,
    /// The node whose pods it is evicting, and since when.
    empties: Option<(String, Timestamp)>,
}

/// A group as it observed it.
#[derive(Debug, Clone)]
struct Seen {
    name: String,
    cluster: String,
    role: String,
    min: u32,
    max: u32,
    desired: u32,
    machines: Vec<String>,
}

impl Seen {
    fn may_shrink(&self) -> bool {
        self.desired > self.min
    }
}

impl World {
    /// Starts or stops a cluster autoscaler.
    pub fn set_autoscaler(&mut self, runs: bool) {
        if self.fleet.autoscaler.is_some() == runs {
            return;
        }
        self.record(format!("{} cluster autoscaler runs", if runs { "a" } else { "no" }));
        self.fleet.autoscaler = runs.then(Autoscaler::default);
        self.set_room(runs.then_some(ROOM));
        if runs {
            self.fleet_after_s(1.0, FleetTask::Autoscales);
        }
    }

    /// One loop.
    pub(super) fn autoscales(&mut self) {
        let Some(mut scaler) = self.fleet.autoscaler.take() else { return };
        self.scales(&mut scaler);
        self.fleet.autoscaler = Some(scaler);
        let seconds = self.draw_s("the autoscaler looks", LOOPS_S.0, LOOPS_S.1);
        self.fleet_after_s(seconds, FleetTask::Autoscales);
    }

    fn scales(&mut self, scaler: &mut Autoscaler) {
        if scaler.seen_at.is_none_or(|at| self.now.duration_since(at) >= BELIEVES) && !self.sees(scaler) {
            return;
        }
        let mut seen = std::mem::take(&mut scaler.seen);
        // It acts in one group at a time, and observes all groups again in the next loop.
        let acted = seen.values_mut().any(|group| {
            self.api_serves(&group.cluster)
                && (self.removes_unregistered(scaler, group) || self.grows(scaler, group))
        });
        if !acted {
            for group in seen.values_mut() {
                if self.api_serves(&group.cluster) {
                    self.notes_unneeded(scaler, group);
                    self.shrinks(scaler, group);
                }
            }
        }
        scaler.seen = seen;
    }

    /// Reads all groups. Returns whether AWS answered.
    fn sees(&mut self, scaler: &mut Autoscaler) -> bool {
        let Ok(groups) = self.groups(&[]) else { return false };
        let tag = |shown: &super::ShownGroup, key: &str| shown.group.tags.get(key).cloned();
        let ours = groups.into_iter().filter_map(|shown| {
            let role = tag(&shown, "slipway:role").filter(|role| role.starts_with("pool-"))?;
            let counts = shown.machines.iter().filter(|machine| machine.state.counts());
            let seen = Seen {
                name: shown.group.name.clone(),
                cluster: tag(&shown, "slipway:cluster")?,
                role,
                min: shown.group.min,
                max: shown.group.max,
                desired: shown.group.desired,
                machines: counts.map(|machine| machine.id.clone()).collect(),
            };
            (shown.group.zones.len() == 1).then_some((seen.name.clone(), seen))
        });
        scaler.seen = ours.collect();
        scaler.seen_at = Some(self.now);
        true
    }

    /// Terminates machines that never became nodes. Returns whether there was one.
    fn removes_unregistered(&mut self, scaler: &mut Autoscaler, group: &mut Seen) -> bool {
        let now = self.now;
        let nodes = self.node_loads(&group.cluster, &group.role);
        let late = group.machines.iter().filter(|id| !nodes.contains_key(*id)).find(|id| {
            let since = scaler.unregistered.entry((*id).clone()).or_insert(now);
            now.duration_since(*since) > BECOMES_A_NODE
        });
        let late = late.cloned();
        scaler.unregistered.retain(|id, _| !nodes.contains_key(id));
        let Some(id) = late.filter(|_| group.may_shrink()) else { return false };
        self.record(format!("the autoscaler ends {id} of {}, which is not a node", group.name));
        self.lets_go_of(group, &id)
    }

    /// Requests more machines for pods that fit nowhere. Returns whether it did.
    fn grows(&mut self, scaler: &mut Autoscaler, group: &mut Seen) -> bool {
        let (nodes, pending) =
            (self.node_loads(&group.cluster, &group.role), self.pending_pods(&group.cluster, &group.role));
        // Machines that are still booting, without those that are late.
        let late = |since: &&Timestamp| self.now.duration_since(**since) > BECOMES_A_NODE;
        let known = group.machines.iter().filter(|id| nodes.contains_key(*id)).count();
        let late = group.machines.iter().filter_map(|id| scaler.unregistered.get(id)).filter(late).count();
        let comes = (group.desired as usize).saturating_sub(known + late);
        let lacks = pending.saturating_sub(comes * ROOM).div_ceil(ROOM);
        let size = group.desired.saturating_add(u32::try_from(lacks).unwrap_or(u32::MAX)).min(group.max);
        if size <= group.desired {
            return false;
        }
        self.record(format!("the autoscaler sets {} to {size} for {pending} pods", group.name));
        if self.set_desired_capacity(&group.name, size).is_err() {
            return false;
        }
        group.desired = size;
        scaler.grown_at = Some(self.now);
        true
    }

    fn notes_unneeded(&mut self, scaler: &mut Autoscaler, group: &Seen) {
        for id in &group.machines {
            if self.is_unneeded(group, id) {
                scaler.unneeded.entry(id.clone()).or_insert(self.now);
            } else {
                scaler.unneeded.remove(id);
            }
        }
        let machines = &self.fleet.machines;
        scaler.unneeded.retain(|id, _| machines.contains_key(id));
    }

    fn is_unneeded(&self, group: &Seen, id: &str) -> bool {
        let nodes = self.node_loads(&group.cluster, &group.role);
        let serves = |id: &str| {
            let machine = self.fleet.machines.get(id);
            machine.is_some_and(|machine| machine.state == State::InService && !machine.silent)
        };
        let may_go = |load: &&NodeLoad| !load.tainted && !load.scale_down_disabled;
        let Some(load) = nodes.get(id).filter(may_go).filter(|_| serves(id)) else { return false };
        let others = nodes.iter().filter(|(other, load)| *other != id && load.is_open() && serves(other));
        let free: usize = others.map(|(_, load)| ROOM.saturating_sub(load.pods)).sum();
        load.pods * 2 < ROOM && load.pods <= free && self.may_all_be_evicted(&group.cluster, id)
    }

    /// Empties an unneeded node, and terminates it.
    fn shrinks(&mut self, scaler: &mut Autoscaler, group: &mut Seen) {
        let now = self.now;
        if let Some((id, since)) = scaler.empties.clone() {
            if !group.machines.contains(&id) {
                return;
            }
            let Some(load) = self.node_loads(&group.cluster, &group.role).remove(&id) else {
                scaler.empties = None;
                return;
            };
            if load.pods == 0 {
                scaler.empties = None;
                self.record(format!("the autoscaler ends {id} of {}, which is empty", group.name));
                if !(group.may_shrink() && self.lets_go_of(group, &id)) {
                    self.taint(&group.cluster, &id, false);
                }
            } else if self.evicts_all(&group.cluster, &id) && now.duration_since(since) > EVICTS {
                scaler.empties = None;
                self.record(format!("the autoscaler cannot empty {id} of {}", group.name));
                self.taint(&group.cluster, &id, false);
            }
            return;
        }
        let is_cool = scaler.grown_at.is_none_or(|at| now.duration_since(at) >= UNNEEDED);
        let long = |id: &&String| {
            scaler.unneeded.get(*id).is_some_and(|since| now.duration_since(*since) >= UNNEEDED)
        };
        let next = group.machines.iter().find(long).cloned();
        if let Some(id) = next.filter(|_| is_cool && group.may_shrink()) {
            self.record(format!("the autoscaler does not need {id} of {}", group.name));
            self.taint(&group.cluster, &id, true);
            scaler.unneeded.remove(&id);
            scaler.empties = Some((id, now));
            self.shrinks(scaler, group);
        }
    }

    fn lets_go_of(&mut self, group: &mut Seen, id: &str) -> bool {
        let asked = Termination { instance: id.to_owned(), shrink: true };
        let done = self.terminate_instance(&asked).is_ok();
        if done {
            group.desired -= 1;
            group.machines.retain(|one| one != id);
        }
        done
    }
}
