//! All ports in a few lines: what is asked of them is logged, and may be refused.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use slipway_core::event::Event;
use slipway_core::keys;
use slipway_core::node::{Command, CommandView};
use slipway_core::release::Rendering;
use slipway_core::status::{Report, Status};
use slipway_ports::{Condition, ErrorKind, Head, Object, Objects, PortError, PortResult, Put};
use slipway_rollout::fleet::{GroupView, TargetState, Targets};
use slipway_rollout::{
    ChangeSetRequest, ChangeSetStatus, ChangeSetView, EffectOutcome, Pending, ResourceFailure, Rollout,
    StackStatus, StackView, decide,
};

use crate::error::{FlowError, FlowResult};
use crate::ports::{Bus, Commands, Groups, Stacks, Ticks};
use crate::rollout::{Clock, Decide, RolloutPorts, Wake, Waker, attempt, wake_deciding, wake_or_leave};
use crate::store;

/// The key of the template `{}`, by its digest.
pub(super) const TEMPLATE_KEY: &str =
    "clusters/c/templates/c-network/44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a.json";

/// So many seconds after the beginning.
pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

/// The ports of one that is everything.
pub(super) type ShorePorts<'s> = RolloutPorts<'s, Shore, Shore, Shore, Shore, Shore, Shore>;

/// An account of a few lines.
#[derive(Debug, Default)]
pub(super) struct Shore(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    second: i64,
    objects: BTreeMap<String, (Vec<u8>, usize)>,
    writes: usize,
    log: Vec<String>,
    /// Calls that fail, as the log has them.
    fails: BTreeMap<String, ErrorKind>,
    /// Calls that take so many seconds.
    slow: BTreeMap<String, i64>,
    /// Keys that somebody else writes just before we do.
    /// What somebody else writes just before the next write of that key; `None`: the same again.
    raced: BTreeMap<String, Option<Vec<u8>>>,
    stacks: BTreeMap<String, StackView>,
    change_sets: BTreeMap<String, ChangeSetView>,
    groups: BTreeMap<String, GroupView>,
    answers: BTreeMap<String, CommandView>,
    published: Vec<Event>,
}

impl Shore {
    /// The events that were published, in order.
    pub(super) fn published(&self) -> Vec<Event> {
        self.inner().published.clone()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// A cluster whose state is that.
    pub(super) fn with(state: &Rollout) -> Self {
        let shore = Self::default();
        shore.keeps(&keys::rollout(&state.cluster), state);
        shore.keeps_text(TEMPLATE_KEY, "{}");
        shore
    }

    /// Keeps a text byte by byte, as what is named by its digest.
    pub(super) fn keeps_text(&self, key: &str, text: &str) {
        let mut inner = self.inner();
        inner.writes += 1;
        let written = (text.as_bytes().to_vec(), inner.writes);
        inner.objects.insert(key.to_owned(), written);
    }

    pub(super) fn keeps(&self, key: &str, value: &impl Serialize) {
        let mut inner = self.inner();
        inner.writes += 1;
        let written = (store::json(value), inner.writes);
        inner.objects.insert(key.to_owned(), written);
    }

    /// Keeps a release and its templates.
    pub(super) fn keeps_release(&self, release: &Rendering) {
        for stack in &release.stacks {
            self.keeps_text(&stack.template_key("c"), &stack.body);
        }
        self.keeps_text(&keys::release("c", &release.id()), &release.to_json());
    }

    pub(super) fn kept<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let inner = self.inner();
        inner.objects.get(key).map(|(bytes, _)| serde_json::from_slice(bytes).unwrap())
    }

    pub(super) fn state(&self) -> Rollout {
        self.kept(&keys::rollout("c")).unwrap()
    }

    /// What `status.json` tells of the rollout.
    pub(super) fn report(&self) -> Option<Report> {
        self.kept::<Status>(&keys::status("c"))?.rollout
    }

    pub(super) fn has(&self, name: &str, status: StackStatus) {
        let tags = BTreeMap::from([("slipway:cluster".to_owned(), "c".to_owned())]);
        let view = StackView { id: format!("arn:{name}"), status, reason: None, tags };
        self.inner().stacks.insert(name.to_owned(), view);
    }

    /// A change set that is being made.
    pub(super) fn has_change_set(&self, stack: &str) {
        let view = ChangeSetView { status: ChangeSetStatus::Pending, reason: None, replaces: Vec::new() };
        self.inner().change_sets.insert(stack.to_owned(), view);
    }

    pub(super) fn has_group(&self, group: GroupView) {
        self.inner().groups.insert(group.name.clone(), group);
    }

    pub(super) fn fails(&self, call: &str, kind: ErrorKind) {
        self.inner().fails.insert(call.to_owned(), kind);
    }

    pub(super) fn works(&self) {
        self.inner().fails.clear();
    }

    pub(super) fn takes(&self, call: &str, seconds: i64) {
        self.inner().slow.insert(call.to_owned(), seconds);
    }

    /// Somebody else writes `key` just before it is written next.
    pub(super) fn is_raced(&self, key: &str) {
        self.inner().raced.insert(key.to_owned(), None);
    }

    pub(super) fn is_raced_by(&self, key: &str, value: &impl Serialize) {
        self.inner().raced.insert(key.to_owned(), Some(serde_json::to_vec(value).unwrap()));
    }

    pub(super) fn passes(&self, seconds: i64) {
        self.inner().second += seconds;
    }

    pub(super) fn now(&self) -> Timestamp {
        at(self.inner().second)
    }

    /// What was asked since this was asked last.
    pub(super) fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.inner().log)
    }

    /// What was done since then: all but what was only read, and what was written to the bucket.
    pub(super) fn done(&self) -> Vec<String> {
        let mut log = self.log();
        let reads =
            ["get ", "put ", "stack ", "change set of ", "failures of ", "group ", "targets ", "answer "];
        log.retain(|line| !reads.iter().any(|read| line.starts_with(read)));
        log
    }

    fn call(&self, line: String) -> PortResult<()> {
        let mut inner = self.inner();
        inner.second += inner.slow.get(&line).copied().unwrap_or_default();
        let kind = inner.fails.get(&line).copied();
        inner.log.push(line.clone());
        match kind {
            None => Ok(()),
            Some(kind) => {
                Err(PortError { kind, operation: "test:Call", subject: line, message: "no".to_owned() })
            }
        }
    }

    /// Runs `flow` against these ports.
    pub(super) async fn run<T>(&self, flow: impl AsyncFnOnce(&ShorePorts<'_>) -> T) -> T {
        let clock = || self.now();
        let ports = RolloutPorts {
            assets: self,
            stacks: self,
            groups: self,
            commands: self,
            bus: self,
            ticks: self,
            clock: Clock(&clock),
        };
        flow(&ports).await
    }

    pub(super) async fn wakes(&self, by: Waker) -> FlowResult<Report> {
        self.wakes_deciding(by, &decide).await
    }

    pub(super) async fn wakes_deciding(&self, by: Waker, decide: Decide<'_>) -> FlowResult<Report> {
        let who = Wake { cluster: "c".to_owned(), by };
        let now = self.now();
        self.run(async |ports| wake_deciding(ports, &who, now, decide).await).await
    }

    pub(super) async fn wakes_or_leaves(&self, by: Waker) -> FlowResult<Result<Report, FlowError>> {
        let who = Wake { cluster: "c".to_owned(), by };
        let now = self.now();
        self.run(async |ports| wake_or_leave(ports, &who, now).await).await
    }

    pub(super) async fn attempts(&self, pending: &Pending) -> FlowResult<EffectOutcome> {
        self.run(async |ports| attempt(ports, "c", pending).await).await
    }
}

impl Objects for Shore {
    async fn get(&self, key: &str) -> PortResult<Option<Object>> {
        self.call(format!("get {key}"))?;
        let object = |(bytes, etag): &(Vec<u8>, usize)| Object {
            bytes: bytes.clone(),
            etag: etag.to_string(),
            version: String::new(),
        };
        Ok(self.inner().objects.get(key).map(object))
    }

    async fn get_version(&self, key: &str, _: &str) -> PortResult<Option<Object>> {
        self.get(key).await
    }

    async fn head(&self, key: &str) -> PortResult<Option<Head>> {
        let head = |(bytes, etag): &(Vec<u8>, usize)| Head {
            version: String::new(),
            size: bytes.len() as u64,
            etag: etag.to_string(),
        };
        Ok(self.inner().objects.get(key).map(head))
    }

    async fn put(&self, key: &str, bytes: Vec<u8>, condition: Condition) -> PortResult<Put> {
        self.call(format!("put {key}"))?;
        let mut inner = self.inner();
        if let Some(theirs) = inner.raced.remove(key) {
            if let Some(bytes) = theirs {
                inner.writes += 1;
                let etag = inner.writes;
                inner.objects.insert(key.to_owned(), (bytes, etag));
            }
            return Ok(Put::Lost);
        }
        let there = inner.objects.get(key).map(|(_, etag)| etag.to_string());
        let holds = match condition {
            Condition::Always => true,
            Condition::Absent => there.is_none(),
            Condition::Unchanged(etag) => there == Some(etag),
        };
        if !holds {
            return Ok(Put::Lost);
        }
        inner.writes += 1;
        let etag = inner.writes;
        inner.objects.insert(key.to_owned(), (bytes, etag));
        Ok(Put::Written(etag.to_string()))
    }

    fn url(&self, key: &str) -> String {
        key.to_owned()
    }
}

impl Stacks for Shore {
    async fn stack(&self, name: &str) -> PortResult<Option<StackView>> {
        self.call(format!("stack {name}"))?;
        Ok(self.inner().stacks.get(name).cloned())
    }

    async fn change_set(&self, stack: &str, _: &str) -> PortResult<Option<ChangeSetView>> {
        self.call(format!("change set of {stack}"))?;
        Ok(self.inner().change_sets.get(stack).cloned())
    }

    async fn create_change_set(&self, request: &ChangeSetRequest) -> PortResult<()> {
        self.call(format!("create {}", request.stack))?;
        self.has_change_set(&request.stack);
        if request.create {
            self.has(&request.stack, StackStatus::ReviewInProgress);
        }
        Ok(())
    }

    async fn execute_change_set(&self, stack: &str, _: &str, _: &str) -> PortResult<()> {
        self.call(format!("execute {stack}"))
    }

    async fn delete_change_set(&self, stack: &str, _: &str) -> PortResult<()> {
        self.call(format!("drop {stack}"))
    }

    async fn delete_stack(&self, id: &str, _: bool, _: &str) -> PortResult<()> {
        self.call(format!("delete {id}"))
    }

    async fn failures(&self, name: &str) -> PortResult<Vec<ResourceFailure>> {
        self.call(format!("failures of {name}"))?;
        Ok(Vec::new())
    }
}

impl Groups for Shore {
    async fn group(&self, name: &str) -> PortResult<Option<GroupView>> {
        self.call(format!("group {name}"))?;
        Ok(self.inner().groups.get(name).cloned())
    }

    async fn group_of(&self, instance: &str) -> PortResult<Option<String>> {
        self.call(format!("group of {instance}"))?;
        let holds = |group: &&GroupView| group.machines.contains_key(instance);
        Ok(self.inner().groups.values().find(holds).map(|group| group.name.clone()))
    }

    async fn targets(&self, target_group: &str) -> PortResult<Option<Targets>> {
        self.call(format!("targets {target_group}"))?;
        // The first machine of every test is well.
        Ok(Some(Targets::from([("i-1".to_owned(), TargetState::Healthy)])))
    }

    async fn raise_desired(&self, group: &str, desired: u32) -> PortResult<()> {
        self.call(format!("{group} wants {desired}"))
    }

    async fn terminate(&self, _: &str, instance: &str, _: Option<u32>) -> PortResult<()> {
        self.call(format!("terminate {instance}"))
    }

    async fn complete_termination(&self, _: &str, instance: &str) -> PortResult<()> {
        self.call(format!("complete {instance}"))
    }

    async fn prolong_termination(&self, _: &str, instance: &str) -> PortResult<()> {
        self.call(format!("prolong {instance}"))
    }
}

impl Commands for Shore {
    async fn send(&self, command: &Command) -> PortResult<()> {
        self.call(format!("send {}", command.token))
    }

    async fn answer(&self, command: &Command) -> PortResult<Option<CommandView>> {
        self.call(format!("answer {}", command.token))?;
        Ok(self.inner().answers.get(&command.token).cloned())
    }

    async fn cancel(&self, command: &Command) -> PortResult<()> {
        self.call(format!("cancel {}", command.token))
    }

    async fn token(&self, id: &str) -> PortResult<Option<String>> {
        self.call(format!("token {id}"))?;
        Ok(id.strip_prefix("of ").map(str::to_owned))
    }
}

impl Bus for Shore {
    async fn publish(&self, events: &[Event]) -> PortResult<()> {
        for event in events {
            self.call(format!("publish {}", event.to_wire().0))?;
            self.inner().published.push(event.clone());
        }
        Ok(())
    }
}

impl Ticks for Shore {
    async fn arm(&self, _: &str) -> PortResult<()> {
        self.call("arm".to_owned())
    }

    async fn disarm(&self, _: &str) -> PortResult<()> {
        self.call("disarm".to_owned())
    }
}
