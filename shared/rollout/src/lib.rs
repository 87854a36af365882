//! What a rollout is, what it sees of the world, and what it does next (design §9).
//!
//! Level-triggered: an event only wakes it. `slipway-flows` loads a [`Rollout`], looks at what [`to_observe`] names,
//! calls [`decide`], stores the next state with its pending effects, performs them. Every effect may be performed
//! twice: change sets are named and executions carry a token, both derived from generation and stack.
//!
//! A rollout launches and updates stacks, in waves; the nodes of a wave follow its stacks (`nodes`).

mod addons;
mod decide;
mod departures;
mod destroy;
mod doing;
mod drain;
mod errand;
pub mod fleet;
mod good;
mod nodes;
mod observed;
mod orders;
mod outbox;
mod stack_step;
pub mod states;
#[cfg(test)]
mod tests;
mod urgency;
mod waits;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_core::diagnostic::Diagnostic;
use slipway_core::event::Event;
use slipway_core::node::BootstrapReport;
use slipway_core::release::{AddonsPointer, Rendering, StackKind};
use slipway_core::role::Role;
use slipway_core::status::{Desired, Report};
use slipway_core::words::moment;
use slipway_plan::Plan;

pub use addons::AddonStep;
pub use decide::{decide, to_observe};
pub use departures::Departure;
pub use destroy::{CalledOff, Destroy, Destroyed, Going, GoingState, LastSnapshot, Save};
pub use doing::Doing;
pub use drain::Drain;
pub use errand::{Asked, Round};
use fleet::GroupView;
pub use good::Good;
pub use nodes::{LeftOver, NodeStep, Nodes, Phase, Place, Task, Work};
pub use observed::{
    ChangeSetRequest, ChangeSetStatus, ChangeSetView, ResourceFailure, StackStatus, StackView,
};
pub use orders::{CLOCKS_APART, Given, Ignored, Order, Switch, heard};
pub use outbox::{Evidence, FRESH, Outcome, Pending, Seen};
use slipway_core::node::{Command, CommandView};
use waits::Said;

/// `clusters/<name>/rollout.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rollout {
    /// Version of this format; one that is newer than [`Self::FORMAT`] is not read.
    #[serde(deserialize_with = "known_format")]
    pub format: u32,
    /// `clusterName`.
    pub cluster: String,
    /// Counts the rollouts of this cluster; part of every idempotency token.
    pub generation: u64,
    /// The release that each stack is at: what is deployed.
    pub deployed: BTreeMap<String, String>,
    /// Stacks that the spec has no longer and that still stand, each with the release that it was at last: their nodes may run, and
    /// they use what other stacks export, until CloudFormation says that they are gone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left: BTreeMap<String, String>,
    /// The add-ons that the node managers were told to keep applied; `None` as long as they were told of none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addons: Option<AddonsPointer>,
    /// What it is doing.
    #[serde(default)]
    pub doing: Doing,
    /// How the last one ended.
    pub last: Option<Ended>,
    /// What succeeded, the newest first: where `slipway rollback` leads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub good: Vec<Good>,
    /// Effects that were decided and may not have been performed yet.
    pub outbox: Vec<Pending>,
    /// How many effects were ever decided: each has its number, and so has each event.
    #[serde(default)]
    pub effects_decided: u64,
    /// The plan that a person approved, if any.
    pub approved: Option<String>,
    /// The reason for waiting that was last said on the bus, so that each is said once.
    pub said: Option<Said>,
    /// Those that were said since it went on last: it may wait for two things in turn.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub said_since: BTreeSet<Said>,
    /// The newest pause or resume; `None`: nobody ever paused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<Switch>,
    /// Releases that some nodes of a role may still be of, besides the one that its stack is at: a rollout ended before it had seen
    /// to them, or left one as it was told.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub behind: BTreeMap<Role, BTreeSet<String>>,
    /// Workers on their way out, by their machine: they outlive the rollout that began them, and some have none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub departures: BTreeMap<String, Departure>,
    /// Members of etcd that may be out of its membership already, though their groups stand: no spec may have them before the stack of
    /// etcd is without them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taken_out: BTreeSet<Role>,
    /// Seconds after which a drain of a pool's machine may be forced, as the newest spec that was begun has it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub force_after_s: BTreeMap<Role, u32>,
    /// How many machines pools were to have more while they were rolled, where that ended early: their groups want them still.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left_over: BTreeMap<Role, LeftOver>,
    /// How it was taken away last, where it was made anew since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destroyed_before: Option<Destroyed>,
    /// Orders to take it away that were given until then are over: done, or called off. An event may come twice, and late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destroys_over: Option<Timestamp>,
    /// Where the last snapshot lies of an etcd that was taken away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_snapshot: Option<String>,
    /// The newest order that came too late and was not obeyed, until another is, or a rollout begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored: Option<Ignored>,
}

/// A rollout that is open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Active {
    /// Id of the plan.
    pub plan: String,
    /// Version id of the spec that asked for it.
    pub spec_version: String,
    /// Id of the release that it leads to.
    pub target: String,
    /// When it began.
    pub started_at: Timestamp,
    /// Name of its change sets, which no other rollout has: an idempotency key within each stack.
    pub change_set: String,
    /// The stacks to create or update, in order.
    pub steps: Vec<Step>,
    /// Nodes that the plan says to replace and that a person has to see to: reported, since this version does not do it.
    pub nodes_left: u32,
    /// The nodes to refresh or replace.
    #[serde(default, skip_serializing_if = "Nodes::is_none")]
    pub nodes: Nodes,
    /// Stacks that the plan says to delete and that a person has to see to: those without nodes.
    pub stacks_left: Vec<String>,
    /// The add-ons that it leads to; `None` where an older Slipway began it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addons: Option<AddonStep>,
    /// When it was told to abort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aborted: Option<Timestamp>,
    /// Machines that it was told to leave as they are.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub skipped: BTreeSet<String>,
}

/// One stack to create or update.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Step {
    /// Name of the stack.
    pub stack: String,
    /// Its kind: steps of one wave run side by side, waves one after the other.
    pub kind: StackKind,
    /// Key of the template in the asset bucket.
    pub template_key: String,
    /// Tags of the stack.
    pub tags: BTreeMap<String, String>,
    /// Logical ids that the change set may replace or remove: what the plan said, and no other.
    pub may_replace: Vec<String>,
    /// How far it is.
    pub state: StepState,
}

/// How far a [`Step`] is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StepState {
    /// Its turn has not come.
    Waiting,
    /// Its change set was asked for.
    ChangeSet,
    /// Its change set was told to execute.
    Executing,
    /// The stack is as the plan says.
    Done,
    /// It failed, and why.
    Failed(String),
}

/// How a rollout ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ended {
    /// Id of the plan.
    pub plan: String,
    /// Version id of the spec that asked for it.
    pub spec_version: String,
    /// Id of the release that it led to.
    pub target: String,
    /// Whether it reached it.
    pub result: RolloutResult,
    /// In words.
    pub message: String,
    /// When it ended.
    pub ended_at: Timestamp,
    /// What became of each stack.
    pub steps: Vec<Step>,
}

/// How a rollout ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RolloutResult {
    /// Everything is as the plan says.
    Succeeded,
    /// It stopped by itself.
    Failed,
    /// A newer spec took its place between two steps.
    Superseded,
    /// A person ended it.
    Aborted,
}

impl RolloutResult {
    /// The state that a report has from then on.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Superseded => "superseded",
            Self::Aborted => "aborted",
        }
    }
}

/// What is to be done to the world. Performing one twice is performing it once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Effect {
    /// Ask for a change set.
    CreateChangeSet(ChangeSetRequest),
    /// Execute one.
    ExecuteChangeSet {
        /// The stack.
        stack: String,
        /// The change set.
        name: String,
        /// Idempotency token.
        token: String,
    },
    /// Delete one that is of no use.
    DeleteChangeSet {
        /// The stack.
        stack: String,
        /// The change set.
        name: String,
    },
    /// Delete a stack that never came to be, whose machines are empty, or whose cluster goes.
    DeleteStack {
        /// The stack's name.
        stack: String,
        /// Its ARN: this incarnation and no later one.
        id: String,
        /// Whether it may be one that stands: a pool's that the spec has no longer, and whose machines are empty; or that of a cluster
        /// that goes.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stands: bool,
        /// Idempotency token.
        token: String,
    },
    /// Tell the node managers which add-ons to keep applied.
    PointAddons(AddonsPointer),
    /// Ask a machine for something.
    Send(Command),
    /// Take back what a machine was asked for, if it has not answered yet.
    Cancel(Command),
    /// Have a group want that many machines at least.
    SetDesired {
        /// The group.
        group: String,
        /// So many.
        desired: u32,
    },
    /// Terminate a machine, through its terminate hook.
    Terminate {
        /// Its group.
        group: String,
        /// The machine.
        instance: String,
        /// How many machines its group is to want from then on, if that is less than it wants now; `None`: another takes its place. A level and
        /// no difference, so that it can be said twice.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        then_desired: Option<u32>,
    },
    /// Keep the terminate hook of a machine alive that is being drained.
    ProlongTermination {
        /// Its group.
        group: String,
        /// The machine.
        instance: String,
    },
    /// End the terminate hook of a machine that was drained.
    CompleteTermination {
        /// Its group.
        group: String,
        /// The machine.
        instance: String,
    },
    /// Have the rollout woken regularly.
    ArmTick,
    /// Have it woken no more.
    DisarmTick,
    /// Say something on the bus.
    Publish(Event),
}

/// What was observed. Nothing of it comes from an event's payload.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observed {
    /// The stacks that [`to_observe`] named; `None` for one that does not exist.
    pub stacks: BTreeMap<String, Option<StackView>>,
    /// Their change sets.
    pub change_sets: BTreeMap<String, Option<ChangeSetView>>,
    /// Why their newest operation failed, for those whose status says that it did.
    pub failures: BTreeMap<String, Vec<ResourceFailure>>,
    /// What should be executed, with its plan and release, if there is any.
    pub desired: Option<Wanted>,
    /// What CloudFormation does not know, or no longer, of what [`to_observe`] named as left.
    pub gone: BTreeSet<String>,
    /// The groups that [`to_observe`] named; `None` for one that does not exist.
    pub groups: BTreeMap<String, Option<GroupView>>,
    /// What became of the commands that it named, by their token; `None`: nobody knows of it.
    pub answers: BTreeMap<String, Option<CommandView>>,
    /// What machines tell that boot, by their id.
    pub booting: BTreeMap<String, BootstrapReport>,
    /// Version of the newest spec that there is a plan of; while the cluster goes, also of the newest that was refused.
    pub newest: BTreeSet<String>,
}

/// What should be executed.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// The pointer to it.
    pub desired: Desired,
    /// The plan.
    pub plan: Plan,
    /// The release that it leads to.
    pub release: Rendering,
}

/// What to look at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToObserve {
    /// Stack → the name of its change set.
    pub stacks: BTreeMap<String, String>,
    /// Stacks that were left standing: whether they still are.
    pub left: BTreeSet<String>,
    /// Stacks that go: how they are.
    pub going: BTreeSet<String>,
    /// Auto Scaling groups.
    pub groups: BTreeSet<String>,
    /// Those of them whose machines' health as targets of load balancers is asked for.
    pub targets: BTreeSet<String>,
    /// Commands that were sent.
    pub commands: Vec<Command>,
    /// The role and the group whose machines are asked what they tell while they boot.
    pub booting: Option<(Role, String)>,
}

/// What comes next.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The state to store, its outbox filled with `effects`.
    pub next: Rollout,
    /// What to do once it is stored: what this decision added to the outbox.
    pub effects: Vec<Effect>,
    /// For a person.
    pub report: Report,
}

/// A newer release may mean something else by the same words.
fn known_format<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let format = u32::deserialize(from)?;
    if format > Rollout::FORMAT {
        let known = Rollout::FORMAT;
        return Err(serde::de::Error::custom(format!(
            "format {format} is newer than {known}, the newest that this release knows"
        )));
    }
    Ok(format)
}

impl Rollout {
    /// The current format: 3 since departures and destructions changed their shape. A state of an earlier one is read where nothing is open.
    pub const FORMAT: u32 = 3;

    /// The state of a cluster that nothing was ever done for.
    #[must_use]
    pub fn new(cluster: &str) -> Self {
        Self {
            format: Self::FORMAT,
            cluster: cluster.to_owned(),
            generation: 0,
            deployed: BTreeMap::new(),
            left: BTreeMap::new(),
            addons: None,
            doing: Doing::Idle,
            last: None,
            good: Vec::new(),
            outbox: Vec::new(),
            effects_decided: 0,
            approved: None,
            said: None,
            said_since: BTreeSet::new(),
            switch: None,
            behind: BTreeMap::new(),
            departures: BTreeMap::new(),
            taken_out: BTreeSet::new(),
            force_after_s: BTreeMap::new(),
            left_over: BTreeMap::new(),
            destroyed_before: None,
            destroys_over: None,
            last_snapshot: None,
            ignored: None,
        }
    }

    /// The release that each stack is at that stands: what is deployed, and what was left. A plan starts from here.
    #[must_use]
    pub fn standing(&self) -> BTreeMap<String, String> {
        let both = self.left.iter().chain(&self.deployed);
        both.map(|(stack, release)| (stack.clone(), release.clone())).collect()
    }

    /// Whether there is anything left to do: a rollout, workers on their way out, or effects of what has ended.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.needs_tick() || !self.outbox.is_empty()
    }

    /// Whether it has to be woken regularly.
    #[must_use]
    pub fn needs_tick(&self) -> bool {
        let goes = self.destroy().is_some_and(|open| !open.has_stopped());
        self.active().is_some() || goes || !self.departures.is_empty()
    }

    /// The release whose add-ons the node managers keep applied.
    #[must_use]
    pub fn addons_release(&self) -> Option<&str> {
        self.addons.as_ref().map(|pointer| pointer.release.as_str())
    }

    /// Whether things are as `plan` takes them to be at its start.
    #[must_use]
    pub fn is_start_of(&self, plan: &Plan) -> bool {
        plan.from == self.standing()
            && plan.behind == self.behind
            && plan.addons_from.as_deref() == self.addons_release()
    }

    /// Whether `desired` was rolled out already, however that ended: an equal plan of a later upload was not. The spec of a cluster that
    /// was taken away makes nothing any more, whatever is planned of it.
    #[must_use]
    pub fn is_spent(&self, desired: &Desired) -> bool {
        let last = self.last.as_ref();
        let rolled =
            last.is_some_and(|last| last.plan == desired.plan && last.spec_version == desired.spec_version);
        let gone = self.last_destroyed();
        rolled || gone.is_some_and(|gone| gone.spec_versions.contains(&desired.spec_version))
    }

    /// Run Command would not send a command: whoever waits for its answer has it.
    fn unsent(&mut self, token: &str, reason: &str) {
        if let Some(active) = self.active_mut() {
            active.nodes.unsent(token, reason);
        }
        self.departures.values_mut().for_each(|one| one.was_refused(token, reason));
        if let Some(open) = self.destroy_mut() {
            open.unsent(token, reason);
        }
    }

    /// A command was not sent, since what it was decided on is too old, or a person said to stop: nobody waits for its answer, and
    /// it counts as no try.
    fn not_sent(&mut self, token: &str) {
        if let Some(active) = self.active_mut() {
            active.nodes.not_sent(token);
        }
        self.departures.values_mut().for_each(|one| one.not_sent(token));
        if let Some(open) = self.destroy_mut() {
            open.not_sent(token);
        }
    }

    /// CloudFormation was not told to delete `stack`, as far as is known: that is looked at anew.
    fn not_deleted(&mut self, stack: &str) {
        if let Some(active) = self.active_mut() {
            active.nodes.not_deleted(stack);
        }
        if let Some(open) = self.destroy_mut() {
            open.not_deleted(stack);
        }
    }

    /// Auto Scaling refused a call for `group` outright: the step of its machines has failed. A worker that could not be terminated takes
    /// pods again.
    fn group_refused(&mut self, group: &str, instance: Option<&String>, reason: &str) {
        let one = instance.and_then(|instance| self.departures.get_mut(instance));
        if let Some(one) = one {
            one.not_terminated(reason);
        } else if let Some(active) = self.active_mut() {
            active.nodes.stuck(group, reason);
        }
    }

    /// CloudFormation refused a call for `stack` outright: its step has failed.
    fn stack_refused(&mut self, stack: &str, reason: &str) {
        for step in self.active_mut().into_iter().flat_map(|active| &mut active.steps) {
            if step.stack == stack {
                step.state = StepState::Failed(reason.to_owned());
            }
        }
        if let Some(active) = self.active_mut() {
            active.nodes.undeletable(stack, reason);
        }
        if let Some(open) = self.destroy_mut() {
            open.refused(stack, reason);
        }
    }
}

impl Decision {
    /// The same decision with these effects besides what is in its outbox: whoever tries mistakes out sees by it whether they are noticed.
    #[must_use]
    pub fn with_effects(self, effects: Vec<Effect>, now: Timestamp) -> Self {
        let mut others = outbox::Effects::new(now);
        others.extend(effects);
        decide::finish(self.next, others, self.report)
    }
}

impl Active {
    /// An idempotency token for an operation on `stack` (CloudFormation: at most 128 of `[a-zA-Z0-9-]`).
    #[must_use]
    pub fn token(&self, stack: &str, operation: &str) -> String {
        operation_token(&self.change_set, stack, operation)
    }
}

/// [`Active::token`] of the rollout whose change sets bear that name.
fn operation_token(change_set: &str, stack: &str, operation: &str) -> String {
    let whole = format!("{change_set}/{stack}/{operation}");
    format!("{change_set}-{}", &slipway_core::digest::sha256_hex(whole.as_bytes())[..32])
}

/// The finding about a spec of a cluster that is being taken away, or whose version that is was taken away.
#[must_use]
pub fn of_what_goes(rollout: &Rollout, version: &str) -> Option<Diagnostic> {
    let cluster = &rollout.cluster;
    let gone = rollout.last_destroyed().filter(|gone| gone.spec_versions.contains(version));
    let (message, help) = match (rollout.going_in_words(), gone) {
        (Some(going), _) => (
            going,
            format!(
                "upload it again when that is over, which makes the cluster anew; or first end it: slipway abort --cluster {cluster}"
            ),
        ),
        (None, Some(gone)) => (
            format!("{cluster} was destroyed at {}", moment(gone.at)),
            format!("slipway apply cluster.yaml --cluster {cluster} makes it anew"),
        ),
        (None, None) => return None,
    };
    Some(Diagnostic { help: Some(help), ..Diagnostic::whole("destroyed", message) })
}
