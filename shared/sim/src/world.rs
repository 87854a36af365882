//! The simulated AWS: CloudFormation's stacks, change sets, exports and events; Scheduler's ticks; Auto Scaling's groups and their
//! machines (`fleet`), the programs on these machines (`cluster`), and Run Command (`commands`).
//!
//! [`World`] is deterministic: only its calls, its seed and the times at which it is advanced decide what happens. It is
//! asynchronous like AWS: a call begins something, [`World::advance`] continues it, and [`World::drain`] returns the events that
//! were sent. It refuses what it does not model.
//!
//! Where to start: `template` reads templates, `expression` evaluates them, `changes` computes what a change set would do,
//! `execute` does it step by step (`apply`, `delete`), and `finish` ends it with success or a rollback.

mod api;
mod apply;
mod attributes;
mod change_set;
mod change_sets;
mod changes;
mod cidr;
mod cluster;
mod commands;
mod constraints;
mod delete;
mod drift;
mod error;
mod events;
mod execute;
pub mod expression;
mod faults;
mod finish;
mod fleet;
mod graph;
mod hands;
mod limits;
mod machine;
mod maker;
mod operation;
mod physical;
mod request;
mod resource;
mod scheduler;
mod scope;
mod shown;
mod stack;
mod task;
mod template;
#[cfg(test)]
mod tests;
mod timing;
mod verdicts;
mod weather;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use slipway_core::digest::sha256_hex;

pub(crate) use api::Validated;
pub(crate) use change_set::{ChangeSet, ExecutionStatus, NO_CHANGES, NO_UPDATES};
pub(crate) use changes::{Action, Change, Detail};
pub use cluster::{ClusterFacts, Loss, MemberFacts, Removal};
pub(crate) use commands::{CommandRequest, Details, PRINTED_AT_MOST, Sent};
pub use commands::{Delegated, DocumentFacts, DrainFacts, Ended, documents};
pub(crate) use drift::{Detection, DriftInformation, ResourceDrift, drift_statuses};
pub use error::{ApiError, ApiResult};
pub use events::{BusEvent, Outgoing};
pub use faults::Phase;
pub use fleet::{FleetFaults, GroupFacts, Launch, MachineFacts, Repairers};
pub(crate) use fleet::{ShownGroup, ShownMachine, ShownTarget, Termination};
pub use hands::ForeignStack;
pub use machine::{Fate, Power, Process, Reported};
pub(crate) use machine::{HookResult, State};
pub(crate) use request::{ChangeSetKind, OnFailure, StackRequest, TemplateSource};
pub(crate) use resource::{Resource, ResourceStatus, Revision};
pub(crate) use scheduler::{Schedule, ScheduleRequest};
pub(crate) use stack::{Stack, StackEvent, status_name};

pub use verdicts::Verdict;
pub use weather::Service;

use drift::Drifts;
use faults::Faults;
use fleet::Fleet;
use task::Task;
use weather::Weather;

/// The configuration of a world.
#[derive(Debug, Clone)]
pub struct Config {
    /// The account, twelve digits.
    pub account: String,
    /// The region.
    pub region: String,
    /// The seed of all ids and of everything random.
    pub seed: u64,
    /// The time at which the world begins.
    pub start: Timestamp,
    /// The duration of operations, as a factor of their duration in AWS.
    pub pace: f64,
    /// The number of items on a page of stack events or changes.
    pub page_size: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            account: "123456789012".to_owned(),
            region: "eu-central-1".to_owned(),
            seed: 1,
            start: Timestamp::from_second(1_800_000_000).expect("2027 is a time"),
            pace: 1.0,
            page_size: 100,
        }
    }
}

impl Config {
    /// The zones of the region that the account sees.
    #[must_use]
    pub fn zones(&self) -> Vec<String> {
        let letters = match self.region.as_str() {
            "ap-northeast-1" => "acd",
            "ap-northeast-2" | "us-west-2" => "abcd",
            "ca-central-1" => "abd",
            "us-east-1" => "abcdef",
            _ => "abc",
        };
        letters.chars().map(|letter| format!("{}{letter}", self.region)).collect()
    }
}

/// A world; see the module. A clone develops independently of the original.
#[derive(Debug, Clone)]
pub struct World {
    config: Config,
    now: Timestamp,
    sequence: u64,
    /// By id. Deleted stacks stay, as in AWS. The clones of a world share a stack until one of them changes it.
    stacks: BTreeMap<String, Arc<Stack>>,
    queue: BTreeMap<(Timestamp, u64), Task>,
    /// All resources that exist, by type and physical id, whether or not a stack still has them. Shared like stacks.
    things: Arc<BTreeMap<(String, String), Arc<Thing>>>,
    faults: Faults,
    tokens: BTreeMap<String, (&'static str, String)>,
    schedules: BTreeMap<(String, String), Schedule>,
    fleet: Fleet,
    drifts: Drifts,
    weather: Weather,
    outbox: Vec<Outgoing>,
    calls: BTreeMap<&'static str, u64>,
}

/// A resource that exists.
#[derive(Debug, Clone)]
struct Thing {
    properties: Value,
    /// Whether its creation has completed, so that other resources can use it.
    ready: bool,
}

impl World {
    /// An empty world.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            now: config.start,
            config,
            sequence: 0,
            stacks: BTreeMap::new(),
            queue: BTreeMap::new(),
            things: Arc::default(),
            faults: Faults::default(),
            tokens: BTreeMap::new(),
            schedules: BTreeMap::new(),
            fleet: Fleet::default(),
            drifts: Drifts::default(),
            weather: Weather::default(),
            outbox: Vec::new(),
            calls: BTreeMap::new(),
        }
    }

    /// The configuration of this world.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// From now on everything random follows from `seed`. So one launched world can be the start of many different trials.
    pub fn reseed(&mut self, seed: u64) {
        self.config.seed = seed;
    }

    /// The time of the world.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The time of the next event that happens without a call; `None` if there is none.
    #[must_use]
    pub fn next_event_at(&self) -> Option<Timestamp> {
        self.queue.keys().next().map(|(at, _)| *at)
    }

    /// Lets everything happen that is due until `to`. A time in the past changes nothing.
    pub fn advance(&mut self, to: Timestamp) {
        // Calls may have changed machines since the last time.
        self.note_targets();
        while let Some(entry) = self.queue.first_entry() {
            let at = entry.key().0;
            if at > to {
                break;
            }
            let task = entry.remove();
            self.now = self.now.max(at);
            self.run(task);
            self.note_targets();
        }
        self.now = self.now.max(to);
    }

    /// Advances until no stack is being changed and no change set is being made. Ticks and machines do not count.
    pub fn settle(&mut self) {
        while let Some((at, _)) = self.queue.iter().find(|(_, task)| task.is_a_stacks()).map(|(key, _)| *key)
        {
            self.advance(at);
        }
    }

    /// Takes what the world sent since the last call: events for the default bus, and invocations by schedules.
    #[must_use]
    pub fn drain(&mut self) -> Vec<Outgoing> {
        std::mem::take(&mut self.outbox)
    }

    /// The number of calls of each API action.
    #[must_use]
    pub fn calls(&self) -> &BTreeMap<&'static str, u64> {
        &self.calls
    }

    /// The status of the live stack with that name, as the API writes it; `None` if there is none.
    #[must_use]
    pub fn stack_status(&self, name: &str) -> Option<String> {
        self.live(name).map(|stack| status_name(stack.status))
    }

    /// Every stack that is not deleted, by name, with its status as the API writes it.
    #[must_use]
    pub fn stacks_there(&self) -> BTreeMap<String, String> {
        let there = self.all_stacks().filter(|stack| !stack.is_deleted());
        there.map(|stack| (stack.name.clone(), status_name(stack.status))).collect()
    }

    /// The template and tags that the live stack with that name was last deployed with; `None` if it was never deployed.
    #[must_use]
    pub fn stack_source(&self, name: &str) -> Option<(&str, &BTreeMap<String, String>)> {
        let revision = self.live(name)?.revision.as_ref()?;
        Some((revision.template.body.as_str(), &revision.tags))
    }

    /// Logical and physical ids of the resources of the live stack with that name.
    #[must_use]
    pub fn physical_ids(&self, name: &str) -> BTreeMap<String, String> {
        let resources = self.live(name).into_iter().flat_map(|stack| stack.resources.values());
        resources.filter_map(|one| Some((one.logical_id.clone(), one.physical_id.clone()?))).collect()
    }

    /// Types and identities (mostly the physical id) of all resources that exist, whether or not a stack still has them.
    #[must_use]
    pub fn existing(&self) -> BTreeSet<(String, String)> {
        self.things.keys().cloned().collect()
    }

    fn live(&self, name: &str) -> Option<&Stack> {
        self.all_stacks().find(|stack| stack.name == name && !stack.is_deleted())
    }

    /// The stack with that name or id. A deleted stack is found only by its id.
    fn find(&self, name_or_id: &str) -> Option<&Stack> {
        self.stacks.get(name_or_id).map(Arc::as_ref).or_else(|| self.live(name_or_id))
    }

    fn stack_mut(&mut self, id: &str) -> &mut Stack {
        let stack = self.stacks.get_mut(id).expect("stacks are never removed, and ids come from a stack");
        Arc::make_mut(stack)
    }

    /// All stacks, including deleted ones.
    fn all_stacks(&self) -> impl Iterator<Item = &Stack> {
        self.stacks.values().map(Arc::as_ref)
    }

    /// The exports of all live stacks except `except`: name to value.
    fn exports(&self, except: &str) -> BTreeMap<String, String> {
        let stacks = self.all_stacks().filter(|stack| !stack.is_deleted() && stack.id != except);
        stacks
            .flat_map(|stack| stack.outputs.values())
            .filter_map(|output| Some((output.export.clone()?, output.value.clone())))
            .collect()
    }

    /// Names of the other live stacks that import `export`.
    fn importers(&self, export: &str, except: &str) -> Vec<String> {
        let stacks = self.all_stacks().filter(|stack| !stack.is_deleted() && stack.id != except);
        stacks.filter(|stack| stack.imports.contains(export)).map(|stack| stack.name.clone()).collect()
    }

    fn after_s(&mut self, seconds: f64, task: Task) {
        let wait = SignedDuration::from_secs_f64(seconds * self.config.pace);
        self.sequence += 1;
        self.queue.insert((self.now + wait, self.sequence), task);
    }

    /// 64 hex digits that follow from the seed and `label`.
    fn hex(&self, label: &str) -> String {
        sha256_hex(format!("{} {label}", self.config.seed).as_bytes())
    }

    /// A new id for a request.
    pub(crate) fn request_id(&mut self) -> String {
        self.uuid()
    }

    fn arn(&self, rest: &str) -> String {
        format!("arn:aws:cloudformation:{}:{}:{rest}", self.config.region, self.config.account)
    }

    /// A UUID that follows from the seed and from how many were made before.
    fn uuid(&mut self) -> String {
        self.sequence += 1;
        let hex = self.hex(&format!("uuid {}", self.sequence));
        format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..32])
    }
}
