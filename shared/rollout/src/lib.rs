//! The state of a rollout, what it observes, and what it does next (design §9).
//!
//! A rollout is level-triggered: an event only wakes it. `slipway-flows` loads a [`Rollout`], observes what [`to_observe`] names, calls
//! [`decide`], stores the next state with its pending effects, and performs the effects. Every effect may be performed twice: change sets
//! have names and executions have tokens, both derived from generation and stack.
//!
//! A rollout launches and updates stacks, in waves; the nodes of a wave follow its stacks (`nodes`).

mod activity;
mod addons;
mod decide;
mod departures;
mod destroy;
mod drain;
mod due;
mod end;
mod errand;
pub mod fleet;
mod nodes;
mod observed;
mod order;
mod orders;
mod outbox;
mod past;
mod patience;
mod progress;
mod rollback_target;
mod stack_step;
pub mod states;
#[cfg(test)]
mod tests;
mod transitions;
mod waits;
mod withdrawal;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_core::event::Event;
use slipway_core::node::{BootstrapReport, Command, CommandView};
use slipway_core::release::{AddonsPointer, Rendering, StackKind};
use slipway_core::role::Role;
use slipway_core::status::{Desired, Report};
use slipway_plan::Plan;

pub use activity::{Activity, destruction_finding};
pub use addons::AddonStep;
pub use decide::{decide, to_observe};
pub use departures::Departure;
pub use destroy::{AbortedDestruction, Destroy, Destroyed, Going, GoingState, LastSnapshot, Save, Which};
pub use drain::Drain;
pub use end::{Ended, RolloutResult, Stopped, StoppedRenewal, Upload};
pub use errand::{Round, SentCommand};
use fleet::GroupView;
pub use nodes::{LeftOver, NodeStep, Nodes, Phase, Place, Task, Work, unserved};
pub use observed::{
    ChangeSetRequest, ChangeSetStatus, ChangeSetView, ResourceFailure, StackStatus, StackView,
};
pub use order::{CLOCKS_APART, Given, Ignored, Order, Switch};
pub use orders::after_order;
pub use outbox::{EffectOutcome, Evidence, FRESH, Pending, Seen};
pub use past::Past;
pub use rollback_target::RollbackTarget;
pub use stack_step::Unseen;
use waits::Published;
pub use withdrawal::Withdrawal;

/// `clusters/<name>/rollout.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rollout {
    /// Version of this format. A version above [`Self::FORMAT`] is not read.
    #[serde(deserialize_with = "known_format")]
    pub format: u32,
    /// `clusterName`.
    pub cluster: String,
    /// The number of this cluster's rollouts; part of every idempotency token.
    pub generation: u64,
    /// The deployed release of each stack.
    pub deployed: BTreeMap<String, String>,
    /// Stacks that the spec no longer has, each with its last release, until CloudFormation says that they are gone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub orphaned: BTreeMap<String, String>,
    /// The add-ons that the node managers were told to apply; `None` until they were told of any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addons: Option<AddonsPointer>,
    /// What the cluster is doing.
    #[serde(default)]
    pub activity: Activity,
    /// How the last one ended.
    pub last: Option<Ended>,
    /// The upload whose rollout failed or was aborted, until that of another one has ended: it does not begin again by itself, whatever is
    /// renewed meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
    /// The last renewal of certificates, if it failed or was aborted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_renewal: Option<StoppedRenewal>,
    /// The upload of each release that a stack has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub uploads: BTreeMap<String, Upload>,
    /// For roles in [`Self::earlier`], the credentials that their older nodes got in place.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refreshed: BTreeMap<Role, String>,
    /// Successful rollouts, newest first: the targets of `slipway rollback`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rollback_targets: Vec<RollbackTarget>,
    /// The last rollouts that have ended, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past: Vec<Past>,
    /// Effects that were decided and may not have been performed yet.
    pub outbox: Vec<Pending>,
    /// The number of effects that were ever decided: each effect and each event has its number.
    #[serde(default)]
    pub effects_decided: u64,
    /// The plan that a person approved, if any.
    pub approved: Option<String>,
    /// The waiting reason that was last published, so that each is published once.
    pub published: Option<Published>,
    /// Waiting reasons already published since the last progress. A rollout may wait for two reasons alternately.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub published_since: BTreeSet<Published>,
    /// The newest pause or resume; `None` if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<Switch>,
    /// Releases that some nodes of a role may still have, other than the release of their stack, because a rollout ended early or skipped
    /// nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub earlier: BTreeMap<Role, BTreeSet<String>>,
    /// Stacks whose creation did not succeed and that still exist, with the release that wanted them. A plan creates them again, or deletes
    /// what there is of them if its spec does not have them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unfinished: BTreeMap<String, String>,
    /// The departures of workers and controllers, by machine: they continue after the rollout that began them, and some have no rollout.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub departures: BTreeMap<String, Departure>,
    /// Members that may have been removed from etcd while their groups still exist: no spec may have them before etcd's stack is without
    /// them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub removed_members: BTreeSet<Role>,
    /// Members that may have joined etcd while the update of its stack that was to create their groups has not succeeded, with the release that
    /// wanted them. The next plan removes them from etcd, or its spec has them, and they join anew.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub joined_members: BTreeMap<Role, String>,
    /// Seconds after which a drain of a pool's machine may use force, from the newest spec that was begun.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub force_after_s: BTreeMap<Role, u32>,
    /// The surge of pools whose roll ended early: their groups still want these machines.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left_over: BTreeMap<Role, LeftOver>,
    /// The last destruction, if the cluster was created again since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destroyed_before: Option<Destroyed>,
    /// Orders to destroy it that were given until then are over: executed or aborted. An event may come twice, and late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destroys_over: Option<Timestamp>,
    /// When the last etcd of that name was deleted, wholly or half: snapshots until then are of it (`slipway_core::snapshots::OfEtcd`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_gone_at: Option<Timestamp>,
    /// The key of the last snapshot of an etcd that was destroyed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_snapshot: Option<String>,
    /// The newest order that came too late and was not obeyed, until another order is obeyed or a rollout begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored: Option<Ignored>,
}

/// An open rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Active {
    /// Id of the plan.
    pub plan: String,
    /// Version id of its spec.
    pub spec_version: String,
    /// Id of its release.
    pub target: String,
    /// [`Rendering::id_without_credentials`] of its release.
    #[serde(default)]
    pub changes: String,
    /// Whether a person had approved exactly this plan when it began.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approved: bool,
    /// When it began.
    pub started_at: Timestamp,
    /// Name of its change sets, which is unique among all rollouts: an idempotency key within each stack.
    pub change_set: String,
    /// The stacks to create or update, in order.
    pub steps: Vec<Step>,
    /// The number of nodes that the plan replaces but a person has to handle, because this version does not. They are reported.
    pub nodes_by_hand: u32,
    /// The nodes to refresh or replace.
    #[serde(default, skip_serializing_if = "Nodes::is_none")]
    pub nodes: Nodes,
    /// Stacks that the plan deletes but a person has to handle: those without nodes.
    pub stacks_by_hand: Vec<String>,
    /// Its add-ons; `None` if its release has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addons: Option<AddonStep>,
    /// When it was aborted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aborted: Option<Timestamp>,
    /// Machines that are to be skipped.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub skipped: BTreeSet<String>,
    /// [`Plan::left_behind`]: for each role, the older releases that its nodes may still have when the work on it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_behind: Option<BTreeMap<Role, BTreeSet<String>>>,
    /// Whether it renews certificates and does nothing else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub renews: bool,
    /// Members that join etcd as soon as its stack is updated.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub joins: BTreeSet<Role>,
    /// Their removal, while CloudFormation rolls that update back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawal: Option<Withdrawal>,
}

/// One stack to create or update.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Step {
    /// Name of the stack.
    pub stack: String,
    /// Its kind: steps of one wave run in parallel, and waves run one after the other.
    pub kind: StackKind,
    /// Key of the template in the asset bucket.
    pub template_key: String,
    /// Tags of the stack.
    pub tags: BTreeMap<String, String>,
    /// Logical ids that the change set may replace or remove: exactly those of the plan.
    pub may_replace: Vec<String>,
    /// Its state.
    pub state: StepState,
    /// What was requested, and CloudFormation does not show yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unseen: Option<Unseen>,
}

/// The state of a [`Step`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StepState {
    /// Its turn has not come.
    Waiting,
    /// Its change set was requested.
    ChangeSet,
    /// The execution of its change set was requested.
    Executing,
    /// The stack is as the plan says.
    Done,
    /// It failed, for this reason.
    Failed(String),
}

/// A change to the world, or a message. Performing it twice has the same result as performing it once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Effect {
    /// Creates a change set.
    CreateChangeSet(ChangeSetRequest),
    /// Executes a change set.
    ExecuteChangeSet {
        /// The stack.
        stack: String,
        /// The change set.
        name: String,
        /// Idempotency token.
        token: String,
    },
    /// Deletes an unused change set.
    DeleteChangeSet {
        /// The stack.
        stack: String,
        /// The change set.
        name: String,
    },
    /// Deletes a stack that was never created, whose machines are empty, or whose cluster is destroyed.
    DeleteStack {
        /// The stack's name.
        stack: String,
        /// Its ARN, which identifies this stack and no later one with the same name.
        id: String,
        /// Whether it may be an existing stack: that of a removed pool with empty machines, or that of a cluster that is being destroyed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stands: bool,
        /// Idempotency token.
        token: String,
    },
    /// Tells the node managers which add-ons to apply.
    PointAddons(AddonsPointer),
    /// Sends a machine a command.
    Send(Command),
    /// Cancels a command, if its machine has not answered yet.
    Cancel(Command),
    /// Raises the desired capacity of a group to at least this number.
    SetDesired {
        /// The group.
        group: String,
        /// The desired capacity.
        desired: u32,
    },
    /// Terminates a machine, through its terminate hook.
    Terminate {
        /// Its group.
        group: String,
        /// The machine.
        instance: String,
        /// The desired capacity of its group afterwards, if that is less than now; `None`: another machine replaces it. It is an absolute
        /// value and no difference, so that the call can be repeated.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        then_desired: Option<u32>,
    },
    /// Extends the terminate hook of a machine that is being drained.
    ProlongTermination {
        /// Its group.
        group: String,
        /// The machine.
        instance: String,
    },
    /// Completes the terminate hook of a drained machine.
    CompleteTermination {
        /// Its group.
        group: String,
        /// The machine.
        instance: String,
    },
    /// Creates the tick, which wakes the rollout regularly.
    ArmTick,
    /// Deletes the tick.
    DisarmTick,
    /// Publishes an event.
    Publish(Event),
}

/// The observation. Nothing of it comes from an event's payload.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observed {
    /// The stacks that [`to_observe`] named; `None` for one that does not exist.
    pub stacks: BTreeMap<String, Option<StackView>>,
    /// Their change sets.
    pub change_sets: BTreeMap<String, Option<ChangeSetView>>,
    /// Why their newest operation failed, for stacks whose status says that it did.
    pub failures: BTreeMap<String, Vec<ResourceFailure>>,
    /// The newest plan with its release, if there is one.
    pub desired: Option<Wanted>,
    /// The orphaned stacks named by [`to_observe`] that CloudFormation does not have any more.
    pub gone: BTreeSet<String>,
    /// The groups that [`to_observe`] named; `None` for one that does not exist.
    pub groups: BTreeMap<String, Option<GroupView>>,
    /// The results of the commands that it named, by their token; `None` if the command is unknown.
    pub answers: BTreeMap<String, Option<CommandView>>,
    /// The bootstrap reports of booting machines, by their id.
    pub booting: BTreeMap<String, BootstrapReport>,
    /// Version of the newest spec with a plan; during a destruction, also of the newest refused one.
    pub newest: BTreeSet<String>,
}

/// The newest plan, which should be executed.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// The pointer to it.
    pub desired: Desired,
    /// The plan.
    pub plan: Plan,
    /// The release of the plan.
    pub release: Rendering,
}

/// What to observe.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToObserve {
    /// Stacks, with the names of their change sets.
    pub stacks: BTreeMap<String, String>,
    /// Orphaned stacks, to find out whether they still exist.
    pub orphaned: BTreeSet<String>,
    /// Stacks that are being deleted.
    pub going: BTreeSet<String>,
    /// Auto Scaling groups.
    pub groups: BTreeSet<String>,
    /// Those of them whose machines' target health is needed.
    pub targets: BTreeSet<String>,
    /// Commands that were sent.
    pub commands: Vec<Command>,
    /// The role and the group whose bootstrap reports are needed.
    pub booting: Option<(Role, String)>,
}

/// The result of a decision.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The state to store, with `effects` in its outbox.
    pub next: Rollout,
    /// What to do after the state is stored: the effects that this decision added to the outbox.
    pub effects: Vec<Effect>,
    /// The report for people.
    pub report: Report,
}

/// A newer release may use the same words with another meaning.
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
    /// The current format: 4 since controllers have departures. A state of an earlier format is read if nothing is open.
    pub const FORMAT: u32 = 4;

    /// The state of a new cluster.
    #[must_use]
    pub fn new(cluster: &str) -> Self {
        Self {
            format: Self::FORMAT,
            cluster: cluster.to_owned(),
            generation: 0,
            deployed: BTreeMap::new(),
            orphaned: BTreeMap::new(),
            addons: None,
            activity: Activity::Idle,
            last: None,
            stopped: None,
            stopped_renewal: None,
            uploads: BTreeMap::new(),
            refreshed: BTreeMap::new(),
            rollback_targets: Vec::new(),
            past: Vec::new(),
            outbox: Vec::new(),
            effects_decided: 0,
            approved: None,
            published: None,
            published_since: BTreeSet::new(),
            switch: None,
            earlier: BTreeMap::new(),
            unfinished: BTreeMap::new(),
            departures: BTreeMap::new(),
            removed_members: BTreeSet::new(),
            joined_members: BTreeMap::new(),
            force_after_s: BTreeMap::new(),
            left_over: BTreeMap::new(),
            destroyed_before: None,
            destroys_over: None,
            etcd_gone_at: None,
            last_snapshot: None,
            ignored: None,
        }
    }

    /// The release of each existing stack, deployed or orphaned. A plan starts from here.
    #[must_use]
    pub fn existing_releases(&self) -> BTreeMap<String, String> {
        let both = self.orphaned.iter().chain(&self.deployed);
        both.map(|(stack, release)| (stack.clone(), release.clone())).collect()
    }

    /// Whether there is anything left to do: a rollout, departures, or effects of something that has ended.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.needs_tick() || !self.outbox.is_empty()
    }

    /// Whether it needs the tick.
    #[must_use]
    pub fn needs_tick(&self) -> bool {
        let goes = self.destroy().is_some_and(|open| !open.has_stopped());
        self.active().is_some() || goes || !self.departures.is_empty()
    }

    /// The release whose add-ons the node managers apply.
    #[must_use]
    pub fn addons_release(&self) -> Option<&str> {
        self.addons.as_ref().map(|pointer| pointer.release.as_str())
    }

    /// Whether the state is the one that `plan` starts from.
    #[must_use]
    pub fn is_start_of(&self, plan: &Plan) -> bool {
        plan.from == self.existing_releases()
            && plan.earlier == self.earlier
            && plan.unfinished == self.unfinished
            && plan.joined == self.joined_members
            && plan.addons_from.as_deref() == self.addons_release()
    }

    /// Whether `desired` was already rolled out, with any result; an equal plan of a later upload was not. The spec of a destroyed cluster
    /// creates nothing any more, whatever plan it has.
    #[must_use]
    pub fn was_rolled_out(&self, desired: &Desired) -> bool {
        let last = self.last.as_ref();
        let rolled =
            last.is_some_and(|last| last.plan == desired.plan && last.spec_version == desired.spec_version);
        let gone = self.last_destroyed();
        rolled || gone.is_some_and(|gone| gone.spec_versions.contains(&desired.spec_version))
    }

    /// Run Command refused a command: whoever waits for its answer gets the refusal.
    fn unsent(&mut self, token: &str, reason: &str) {
        if let Some(active) = self.active_mut() {
            active.nodes.unsent(token, reason);
            active.withdrawal.iter_mut().for_each(|one| one.not_sent(token));
        }
        self.departures.values_mut().for_each(|one| one.was_refused(token, reason));
        if let Some(open) = self.destroy_mut() {
            open.unsent(token, reason);
        }
    }

    /// A command was not sent, because its evidence is too old or a person ordered to stop: nobody waits for its answer, and it does not
    /// count as a try.
    fn not_sent(&mut self, token: &str) {
        if let Some(active) = self.active_mut() {
            active.nodes.not_sent(token);
            active.withdrawal.iter_mut().for_each(|one| one.not_sent(token));
        }
        self.departures.values_mut().for_each(|one| one.not_sent(token));
        if let Some(open) = self.destroy_mut() {
            open.not_sent(token);
        }
    }

    /// As far as is known, CloudFormation did not receive the request to delete `stack`: it is observed again.
    fn not_deleted(&mut self, stack: &str) {
        if let Some(active) = self.active_mut() {
            active.nodes.not_deleted(stack);
        }
        if let Some(open) = self.destroy_mut() {
            open.not_deleted(stack);
        }
    }

    /// Auto Scaling refused a call for `group` permanently: the step of its machines has failed. A worker that could not be terminated is
    /// uncordoned.
    fn group_refused(&mut self, group: &str, instance: Option<&String>, reason: &str) {
        let one = instance.and_then(|instance| self.departures.get_mut(instance));
        let is_its_own = one.is_some_and(|one| one.not_terminated(reason));
        if !is_its_own && let Some(active) = self.active_mut() {
            active.nodes.record_group_refusal(group, reason);
        }
    }

    /// CloudFormation refused a call for `stack` permanently: its step has failed.
    fn stack_refused(&mut self, stack: &str, reason: &str) {
        for step in self.active_mut().into_iter().flat_map(|active| &mut active.steps) {
            if step.stack == stack {
                step.state = StepState::Failed(reason.to_owned());
            }
        }
        if let Some(active) = self.active_mut() {
            active.nodes.record_deletion_refusal(stack, reason);
        }
        if let Some(open) = self.destroy_mut() {
            open.refused(stack, reason);
        }
    }
}

impl Decision {
    /// The same decision with these effects added to its outbox, for tests that try out mistakes.
    #[must_use]
    pub fn with_effects(self, effects: Vec<Effect>, now: Timestamp) -> Self {
        let mut others = outbox::Effects::new(now);
        others.extend(effects);
        outbox::finish(self.next, others, self.report)
    }
}

impl Active {
    /// An idempotency token for an operation on `stack` (CloudFormation: at most 128 of `[a-zA-Z0-9-]`).
    #[must_use]
    pub fn token(&self, stack: &str, operation: &str) -> String {
        operation_token(&self.change_set, stack, operation)
    }
}

/// [`Active::token`] of the rollout whose change sets have that name.
fn operation_token(change_set: &str, stack: &str, operation: &str) -> String {
    let whole = format!("{change_set}/{stack}/{operation}");
    format!("{change_set}-{}", &slipway_core::digest::sha256_hex(whole.as_bytes())[..32])
}
