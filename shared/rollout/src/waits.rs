//! What a rollout waits for, as values: they are compared to find out what is news, and turned into words only for people.

mod danger;
mod destruction;
mod gap;
mod next;
mod words;

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_core::drain::Cause;
use slipway_core::node::{BootstrapReport, Drained, Word};
use slipway_core::role::Role;

use super::fleet::{GroupView, Lifecycle};
use super::observed::StackStatus;

pub(crate) use danger::Danger;
pub(crate) use destruction::{GoingWaits, Held, Pace, Progress};
pub(crate) use gap::Gap;
pub(crate) use next::of_destruction;
pub(super) use words::{Boots, List};

/// A detail that is shown but makes no difference: the waiting reason stays the same while it changes.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Detail<T>(pub T);

impl<T> PartialEq for Detail<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T: fmt::Display> fmt::Display for Detail<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> Eq for Detail<T> {}

impl<T> PartialOrd for Detail<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Detail<T> {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

/// What the machines of a role wait for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Waits {
    /// For nothing: it failed, for this reason.
    Failed(Detail<String>),
    /// For an observation of them.
    Look(ObservedParts),
    /// For booting machines.
    Boot(Comes, Vec<Boot>),
    /// For a second observation, because Auto Scaling's first answer may be late.
    SecondLook(Many),
    /// For a maintenance window, at most until the renewal becomes urgent.
    Window {
        /// `None`: it waits for a window in any case.
        at_most_until: Option<Timestamp>,
    },
    /// For another try, a while after the last one failed for this reason.
    AnotherTry(Detail<String>),
    /// For a snapshot of etcd.
    Snapshot,
    /// For machines' answers about their health.
    Answers(Asks),
    /// Until these dangers are over.
    Dangers(Vec<Danger>),
    /// Until the whole cluster serves: these parts do not.
    Serves(Vec<Gap>),
    /// For another member to lead.
    Leader,
    /// For the replacement of the machine.
    Replaced,
    /// For machines that install new credentials; empty: the role's only machine.
    Credentials(Vec<String>),
    /// For the removal of a member from etcd.
    MemberRemoval,
    /// For a member that stays, to remove this one.
    MemberThatStays,
    /// For a cordoned machine to be uncordoned.
    Uncordon(String),
    /// For a controller that is being terminated.
    ControllerLeaves,
    /// For an additional controller that has just been requested.
    OneMoreController,
    /// For a departure.
    Departure(Departs),
    /// For workers.
    Workers(WorkersWait),
    /// For the drains of a pool that is removed.
    Removal {
        /// The first of the departures.
        departs: Vec<Departs>,
        /// Why there is none.
        idle: Option<Idle>,
        /// How many machines are empty, of how many.
        empty: Detail<(usize, usize)>,
    },
    /// For a person, who has to drain a machine that its group has retained.
    Kept(Kept),
    /// For CloudFormation, which is changing its stack for another reason.
    StackBusy(StackStatus),
    /// For a machine that somebody has taken out of service (`EnterStandby`), and that may have pods.
    Standby {
        /// Its group.
        group: String,
        /// `i-…`.
        machine: String,
    },
    /// For its stack, whose deletion has just been requested.
    DeletionBegins {
        /// Whether the same observation showed that its machines are empty.
        emptied: bool,
    },
    /// For the deletion of its stack.
    Deletion {
        /// How many machines its group still has.
        machines: Detail<usize>,
        /// A machine that blocks it.
        kept: Option<Kept>,
    },
}

/// What is observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ObservedParts {
    /// Its machine.
    Machine,
    /// Its machines.
    Machines,
    /// Its machines and its stack.
    MachinesAndStack,
}

/// One machine or several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Many {
    /// One.
    One,
    /// Several.
    Several,
}

/// Which machine is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Comes {
    /// A member's machine, if it has none.
    Own,
    /// The machine that replaces a member's.
    Successor,
    /// A machine that was launched before its group changed.
    Earlier,
    /// An additional controller, before one is terminated.
    OneMore,
    /// This number of additional workers, before others are terminated.
    First(u32),
}

/// Whose answers are expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Asks {
    /// All members of etcd.
    Members,
    /// The remaining members.
    MembersLeft,
    /// All controllers.
    Controllers,
    /// All controllers except the one to be taken down.
    OtherControllers,
    /// All controllers, about the whole cluster.
    Cluster,
}

/// A booting machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Boot {
    /// `i-…`.
    pub machine: String,
    /// The present step of its bootstrap.
    pub step: Detail<Option<String>>,
    /// The failure of its bootstrap.
    pub failure: Option<Detail<String>>,
}

impl Boot {
    /// The booting machines of `group`.
    pub(super) fn pending_in(group: &GroupView, reports: &BTreeMap<String, BootstrapReport>) -> Vec<Self> {
        let pending = group.machines.iter().filter(|(_, machine)| machine.lifecycle == Lifecycle::Pending);
        let boots = pending.map(|(id, _)| {
            let report = reports.get(id);
            Self {
                machine: id.clone(),
                step: Detail(report.and_then(|report| report.step.clone())),
                failure: report.and_then(|report| Some(Detail(report.failure.as_ref()?.message.clone()))),
            }
        });
        boots.collect()
    }
}

/// A departing machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Departs {
    /// `i-…`.
    pub machine: String,
    /// Its state.
    pub how: HowFar,
}

/// The state of a departing machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HowFar {
    /// It is being drained, and what blocks the drain.
    Drains(Option<HeldBy>),
    /// It is drained, and is being terminated.
    Leaves,
    /// It is drained, and stays until its stack is deleted.
    Empty,
    /// It is drained, and EC2 is about to interrupt it.
    Interrupted,
    /// It stays after all, and is being uncordoned.
    Stays,
    /// It stays after all, and cannot be uncordoned, for this reason.
    StaysCordoned(Detail<String>),
}

/// What blocks a drain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HeldBy {
    /// Pods that cannot be evicted now; only the first are listed.
    Pods(Vec<HeldPod>),
    /// The drain itself failed.
    Failure(Detail<String>),
}

/// A pod that cannot be evicted now.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldPod {
    /// `namespace/name`.
    pub pod: String,
    /// The cause.
    pub cause: Word<Cause>,
    /// The cause in the words of the draining controller, with changing figures.
    pub why: Detail<String>,
}

impl HeldPod {
    pub(super) fn first_three(drained: &Drained) -> Vec<Self> {
        let first = drained.waiting.iter().take(3);
        first
            .map(|one| Self { pod: one.pod.clone(), cause: one.cause.clone(), why: Detail(one.why.clone()) })
            .collect()
    }
}

/// What the workers of a pool wait for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkersWait {
    /// The first of the departures.
    pub departs: Vec<Departs>,
    /// Their number, if not all are listed.
    pub in_all: Option<Detail<usize>>,
    /// The booting machines, while the pool waits until all its machines serve.
    pub whole: Option<Vec<Boot>>,
    /// Why no worker is being replaced, if none is and none boots.
    pub idle: Option<Idle>,
    /// How many workers were replaced.
    pub done: Detail<usize>,
}

/// Why nothing happens in a pool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Idle {
    /// A newer spec comes first.
    NewerSpec,
    /// No maintenance window is open; it waits for one at most until then.
    Window {
        /// `None`: it waits for a window in any case.
        at_most_until: Option<Timestamp>,
    },
    /// No machine may be missing, and its group may have no more.
    NoRoom {
        /// The group.
        group: String,
        /// The maximum of the group.
        max: u32,
    },
    /// The maximum number of machines is being drained.
    Others,
}

/// A machine that its group has retained, because its terminate hook was abandoned before it was drained.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    /// The group.
    pub group: String,
    /// `i-…`.
    pub machine: String,
}

/// What a stack waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StackWaits {
    /// For its turn.
    Turn,
    /// For its change set.
    ChangeSet(ChangeSetWaits),
    /// For CloudFormation, in this status.
    AtWork(Option<StackStatus>),
    /// For a second answer that it is in this status, which would fail it: the first may be late.
    SecondLook(Option<StackStatus>),
    /// For CloudFormation to start.
    Starts,
    /// For the change set to be executed.
    Executes,
    /// For the deletion of an earlier failed creation.
    Wreck,
    /// For the deletion of its unfinished creation after an abort.
    CreationCancelled,
    /// For nothing: it was not begun, because of an order to stop.
    NotBegun,
    /// For nothing: it is as planned, in this status.
    Done(Option<StackStatus>),
    /// For nothing: there was nothing to change.
    NothingToChange,
    /// For nothing: it failed, for this reason.
    Failed(Detail<String>),
}

/// The state of a change set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ChangeSetWaits {
    /// It is being requested.
    Requesting,
    /// It was requested.
    Made,
    /// CloudFormation is creating it.
    Making,
    /// It is being created again, because somebody else changed the stack.
    Anew,
}

/// What was last published, so that it is published once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Published {
    /// What an open rollout waits for.
    Rolling {
        /// Whether it is being aborted.
        aborting: bool,
        /// What it waits for.
        waits: RolloutWaits,
    },
    /// A pause holds an urgent renewal.
    PauseCosts {
        /// When the certificates expire.
        ends: Timestamp,
        /// Whether they have expired.
        expired: bool,
    },
    /// The progress of a destruction.
    Destroying(Progress),
}

/// What an open rollout waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RolloutWaits {
    /// For nodes, by role.
    Nodes(BTreeMap<Role, Waits>),
    /// For stacks, by name.
    Stacks {
        /// How many are done.
        done: usize,
        /// What each stack whose turn it is waits for.
        waits: BTreeMap<String, StackWaits>,
    },
    /// For an observation of the stack whose turn has come.
    NextStack {
        /// How many are done.
        done: usize,
        /// The stack's name.
        stack: String,
    },
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_waited_for_is_the_same_in_whatever_words_somebody_tells_of_it() {
        let silent = |machine: &str, problem: &str| {
            let (machine, problem) = (machine.to_owned(), Detail(problem.to_owned()));
            Waits::Dangers(vec![Danger::SilentController { machine, problem }])
        };
        assert_eq!(silent("i-1", "timed out after 30 s"), silent("i-1", "timed out after 31 s"));
        assert_ne!(silent("i-1", "lost"), silent("i-2", "lost"));
        // This matters also where it is looked up among all published reasons.
        let order = |one: &Waits, other: &Waits| [Some(one.cmp(other)), one.partial_cmp(other)];
        assert_eq!(order(&silent("i-1", "b"), &silent("i-1", "a")), [Some(Ordering::Equal); 2]);
        assert_eq!(order(&silent("i-1", "b"), &silent("i-2", "a")), [Some(Ordering::Less); 2]);
        let drains = |held: HeldBy| {
            let how = HowFar::Drains(Some(held));
            Waits::Departure(Departs { machine: "i-1".to_owned(), how })
        };
        let failed = |why: &str| drains(HeldBy::Failure(Detail(why.to_owned())));
        assert_eq!(failed("the API server hangs up"), failed("the API server refuses"));
        assert_ne!(failed("lost"), drains(HeldBy::Pods(Vec::new())));
    }

    #[test]
    fn of_the_machines_that_boot_it_is_known_how_far_they_are_and_what_is_in_their_way() {
        let machine = |lifecycle: Lifecycle| json!({"zone": "a", "lifecycle": lifecycle, "healthy": true, "weight": 1, "template": null});
        let machines = json!({
            "i-1": machine(Lifecycle::Pending), "i-2": machine(Lifecycle::InService), "i-3": machine(Lifecycle::Pending),
            "i-4": machine(Lifecycle::Terminating),
        });
        let group = json!({
            "name": "c-pool-a", "machineArns": "arn:aws:ec2:eu-west-1:123456789012:instance/", "desired": 4, "min": 1, "max": 4, "template": null, "machines": machines, "tags": {},
        });
        let group: GroupView = serde_json::from_value(group).unwrap();
        let report = json!({
            "format": 1, "instance": "i-3", "role": "pool-a", "config": "", "credentials": "", "agent": "1", "state": "working",
            "step": "kubelet", "failure": {"code": "aws.denied", "message": "no disk", "help": "look"}, "at": Timestamp::UNIX_EPOCH,
        });
        let reports = BTreeMap::from([("i-3".to_owned(), serde_json::from_value(report).unwrap())]);
        let boots = Boot::pending_in(&group, &reports);
        // Details make no difference in a comparison.
        let shown: Vec<_> = boots
            .iter()
            .map(|boot| {
                (
                    boot.machine.as_str(),
                    boot.step.0.as_deref(),
                    boot.failure.as_ref().map(|why| why.0.as_str()),
                )
            })
            .collect();
        assert_eq!(shown, [("i-1", None, None), ("i-3", Some("kubelet"), Some("no disk"))]);
    }
}
