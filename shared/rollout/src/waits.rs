//! What a rollout waits for, as values: they are compared where it is decided what is news, and turned into words only for people.

mod danger;
mod words;

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_core::drain::Cause;
use slipway_core::node::{BootstrapReport, Drained, Word};
use slipway_core::role::Role;

use super::departures::Departure;
use super::fleet::{GroupView, Lifecycle};
use super::observed::StackStatus;

pub(crate) use danger::Danger;
pub(super) use words::{Boots, List};

/// A figure, or somebody's words, that is said and makes no difference: what is waited for stays the same while it changes.
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
    /// For nothing: it failed, and why.
    Failed(Detail<String>),
    /// For a look at them.
    Look(Looked),
    /// For machines that boot.
    Boot(Comes, Vec<Boot>),
    /// For a second look, since Auto Scaling's first answer may be late.
    SecondLook(Many),
    /// For a maintenance window; from then on certificates are so near their end that it waits no longer.
    Window {
        /// `None`: it waits for a window whatever happens.
        at_most_until: Option<Timestamp>,
    },
    /// For another try a while after the last one, which failed for that reason.
    AnotherTry(Detail<String>),
    /// For a snapshot of etcd.
    Snapshot,
    /// For answers of machines that are asked how they are.
    Answers(Asks),
    /// Until this is over.
    Dangers(Vec<Danger>),
    /// For another member to lead.
    Leader,
    /// For the machine to be replaced.
    Replaced,
    /// For machines that take new credentials; none named: its only one.
    Credentials(Vec<String>),
    /// For a member to be taken out of the membership.
    TakenOut,
    /// For a member that stays.
    MemberThatStays,
    /// For a machine that was cordoned and is to take pods again.
    Uncordon(String),
    /// For a controller that was told to go.
    ControllerLeaves,
    /// For one more controller, which was only just asked for.
    OneMoreController,
    /// For a controller that can drain that one.
    Drainer(String),
    /// For a machine that is being drained, or goes.
    Departure(Departs),
    /// For workers.
    Workers(WorkersWait),
    /// For the machines of a pool that is removed to be empty.
    Removal {
        /// Those on their way out, the first of them.
        departs: Vec<Departs>,
        /// Why none is, where none is.
        idle: Option<Idle>,
        /// How many are empty, of how many.
        empty: Detail<(usize, usize)>,
    },
    /// For a person, who has to drain a machine that its group keeps.
    Kept(Kept),
    /// For CloudFormation, which is at work on its stack for another reason.
    StackBusy(StackStatus),
    /// For its stack, which CloudFormation was only just told to delete.
    DeletionBegins {
        /// Whether its machines were seen to be empty by the same look.
        emptied: bool,
    },
    /// For its stack to be deleted.
    Deletion {
        /// How many machines are left.
        left: Detail<usize>,
        /// A machine that is in the way.
        kept: Option<Kept>,
    },
}

/// What is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Looked {
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

/// Which machine comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Comes {
    /// A member's, which has none.
    Own,
    /// The one that takes a member's place.
    Successor,
    /// One that was launched before its group changed.
    Earlier,
    /// A controller more than there are to be, before one goes.
    OneMore,
    /// So many workers more, before others go.
    First(u32),
}

/// Whose answers are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Asks {
    /// All members of etcd.
    Members,
    /// The members that are left.
    MembersLeft,
    /// All controllers.
    Controllers,
    /// All controllers but the one that is to go.
    OtherControllers,
}

/// A machine that boots.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Boot {
    /// `i-…`.
    pub machine: String,
    /// The step of its bootstrap that it is at.
    pub step: Detail<Option<String>>,
    /// What is in its way.
    pub failure: Option<Detail<String>>,
}

impl Boot {
    /// The machines of `group` that boot.
    pub(super) fn of(group: &GroupView, reports: &BTreeMap<String, BootstrapReport>) -> Vec<Self> {
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

/// A machine on its way out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Departs {
    /// `i-…`.
    pub machine: String,
    /// How far it is.
    pub how: HowFar,
}

impl Departs {
    /// The first of those that were told to go and have not gone.
    pub(super) fn of<'a>(
        begun: impl Iterator<Item = &'a String>,
        departures: &BTreeMap<String, Departure>,
    ) -> Vec<Self> {
        begun.filter_map(|id| Some(departures.get(id)?.departs(id))).take(3).collect()
    }
}

/// How far a machine on its way out is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HowFar {
    /// It is drained, and what holds that up.
    Drains(Option<HeldBy>),
    /// It is drained, and goes.
    Leaves,
    /// It is drained, and stays until its stack goes.
    Empty,
    /// It stays after all, and is told to take pods again.
    Stays,
    /// It stays after all, and cannot be told to take pods again; why.
    StaysCordoned(Detail<String>),
}

/// What holds up a drain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HeldBy {
    /// Pods that cannot be evicted now, the first of them.
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
    /// Why.
    pub cause: Word<Cause>,
    /// Why, in the words of the controller that drains, with figures that change.
    pub why: Detail<String>,
}

impl HeldPod {
    pub(super) fn of(drained: &Drained) -> Vec<Self> {
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
    /// Those on their way out, the first of them.
    pub departs: Vec<Departs>,
    /// How many are in all, where not all are named.
    pub in_all: Option<Detail<usize>>,
    /// Until all its machines serve: those that boot.
    pub whole: Option<Vec<Boot>>,
    /// Why none is on its way, where none is and none boots.
    pub idle: Option<Idle>,
    /// How many were replaced.
    pub done: Detail<usize>,
}

/// Why nothing happens in a pool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Idle {
    /// A newer spec comes first.
    NewerSpec,
    /// No maintenance window is open; from then on it waits for none.
    Window {
        /// `None`: it waits for a window whatever happens.
        at_most_until: Option<Timestamp>,
    },
    /// None of its machines may be missing, and its group may have no more.
    NoRoom {
        /// The group.
        group: String,
        /// How many it may have at most.
        max: u32,
    },
    /// As many machines are drained as may be.
    Others,
}

/// A machine that its group keeps, since its terminate hook was abandoned before anybody had drained it.
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
    /// For CloudFormation, in that status.
    AtWork(Option<StackStatus>),
    /// For CloudFormation to start.
    Starts,
    /// For the change set to be executed.
    Executes,
    /// For an earlier failed creation to be deleted.
    Wreck,
    /// For its creation to be taken back.
    CreationCalledOff,
    /// To be begun: it was not, since a person said so.
    NotBegun,
    /// For nothing: it is as planned, in that status.
    Done(Option<StackStatus>),
    /// For nothing: there was nothing to change.
    NothingToChange,
    /// For nothing: it failed, and why.
    Failed(Detail<String>),
}

/// How far a change set is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ChangeSetWaits {
    /// It is asked for.
    Asked,
    /// It was asked for.
    Made,
    /// CloudFormation makes it.
    Making,
    /// It is made anew, since somebody else changed the stack.
    Anew,
}

/// What was said last on the bus, so that it is said once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Said {
    /// What an open rollout waits for.
    Rolling {
        /// Whether it was told to abort.
        aborting: bool,
        /// What it waits for.
        waits: RolloutWaits,
    },
    /// That a pause holds up a renewal.
    PauseCosts {
        /// When the certificates end.
        ends: Timestamp,
        /// Whether they have.
        expired: bool,
    },
    /// What was said of a destruction.
    Destroying(super::destroy::Progress),
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
        /// What those wait for whose turn it is.
        waits: BTreeMap<String, StackWaits>,
    },
    /// For a look at the stack whose turn has come.
    NextStack {
        /// How many are done.
        done: usize,
        /// Its name.
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
        // Also where it is looked up among all that was said.
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
            "name": "c-pool-a", "desired": 4, "min": 1, "max": 4, "template": null, "machines": machines, "tags": {},
        });
        let group: GroupView = serde_json::from_value(group).unwrap();
        let report = json!({
            "format": 1, "instance": "i-3", "role": "pool-a", "config": "", "credentials": "", "agent": "1", "state": "working",
            "step": "kubelet", "failure": {"code": "aws.denied", "message": "no disk", "help": "look"}, "at": Timestamp::UNIX_EPOCH,
        });
        let reports = BTreeMap::from([("i-3".to_owned(), serde_json::from_value(report).unwrap())]);
        let boots = Boot::of(&group, &reports);
        // What is told of each makes no difference where they are compared.
        let told: Vec<_> = boots
            .iter()
            .map(|boot| {
                (
                    boot.machine.as_str(),
                    boot.step.0.as_deref(),
                    boot.failure.as_ref().map(|why| why.0.as_str()),
                )
            })
            .collect();
        assert_eq!(told, [("i-1", None, None), ("i-3", Some("kubelet"), Some("no disk"))]);
    }
}
