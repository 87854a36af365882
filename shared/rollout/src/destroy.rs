//! The destruction of a cluster by order of a person: its stacks, in an order that leaves nothing behind, and a last snapshot of etcd.
//!
//! The stacks are deleted in the reverse order of their waves: pools, control plane, etcd, network. The next wave begins when
//! CloudFormation says that all stacks of the one before are gone. The state is read from the world each time, including stacks that were
//! never created completely. Workers are not drained, because their pods have nowhere else to run: their terminate hooks, which would wait
//! for a drain and then retain the machine, are completed.
//!
//! Nothing is deleted before a snapshot was taken on the leader. Before etcd's stack is deleted, and after the last API server is gone, the
//! last one is taken, so that it has every acknowledged write (`save.rs`). Then a member deletes the DNS records that members wrote. A
//! failure stops the destruction where it is, and another order continues it. A pause holds it, and an abort ends it between two stacks.

mod end;
mod machines;
mod owner;
mod records;
mod refusals;
mod save;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use end::{destroyed, help, last_snapshot, listed};
use jiff::Timestamp;
use machines::{groups, is_seen_to_go, let_go};
use serde::{Deserialize, Serialize};

use super::errand::SentCommand;
use super::fleet::OWNER_TAG;
use super::order::{CLOCKS_APART, Given, again, ignore, is_late, paused, plan_of, resume};
use super::outbox::{Effects, finish};
use super::patience::{CONSISTENT, PATIENCE};
use super::progress::{clipped, named};
use super::stack_step::{Phase, because, phase};
use super::transitions::{STACK_DELETION, leads};
use super::waits::{Detail, GoingWaits, Held, Pace, Progress, Published, of_destruction};
use super::{Decision, Effect, Observed, Rollout, StackStatus, ToObserve, operation_token};
use records::{Records, retire};
pub(crate) use save::Inquiry;
#[cfg(test)]
pub(crate) use save::snapshot_name;
pub use save::{LastSnapshot, Save, Which};
use save::{member_groups, save, save_again};
use slipway_core::event::{Event, RolloutReport};
use slipway_core::release::{StackKind, stack_name};
use slipway_core::status::{Report, RolloutState};

/// A destruction in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Destroy {
    /// When the newest order was given.
    pub asked_at: Timestamp,
    /// The number of orders: a call that CloudFormation refused is made again after the next order.
    pub attempt: u32,
    /// The last snapshot of etcd.
    pub snapshot: LastSnapshot,
    /// The DNS records that members of etcd wrote.
    #[serde(default)]
    pub records: Records,
    /// The cluster's stacks by wave, the last wave first.
    pub stacks: Vec<Going>,
    /// The number of command rounds.
    #[serde(default)]
    pub rounds: u32,
    /// Whether members were told to delete their records, so that some may be missing if etcd stays.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retired: bool,
    /// Whether a request to delete a stack was withdrawn: an invocation may have sent it before, and died.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withdrawn: bool,
    /// When terminate hooks were last completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<Timestamp>,
    /// When a person aborted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aborted: Option<Timestamp>,
}

/// A stack that is being deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Going {
    /// The stack's name.
    pub stack: String,
    /// Its kind.
    pub kind: StackKind,
    /// Its state.
    pub state: GoingState,
    /// Whether nobody is known to have begun it, so that it may not exist.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsure: bool,
}

/// The state of a stack that is being deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GoingState {
    /// It exists, or was not observed yet.
    Stands,
    /// Its deletion was requested at that time.
    Deleting(Timestamp),
    /// It is gone.
    Gone,
    /// There is a stack with that name that belongs to somebody else.
    NotOurs,
    /// It could not be deleted; the reason.
    Failed(String),
}

/// Its name in [`STACK_DELETION`].
pub(crate) const fn going_name(state: &GoingState) -> &'static str {
    match state {
        GoingState::Stands => "stands",
        GoingState::Deleting(_) => "deleting",
        GoingState::Gone => "gone",
        GoingState::NotOurs => "notOurs",
        GoingState::Failed(_) => "failed",
    }
}

/// A destruction that was aborted, so that the cluster lacks what was deleted before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AbortedDestruction {
    /// When CloudFormation's operations had ended.
    pub at: Timestamp,
    /// In words.
    pub message: String,
}

/// A destroyed cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Destroyed {
    /// When its last stack was gone.
    pub at: Timestamp,
    /// The versions of its newest specs at that time, including refused ones: they create nothing any more, however late their events come.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub spec_versions: BTreeSet<String>,
    /// The key of the last snapshot of etcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// In words.
    pub message: String,
}

/// The number of stacks that are processed in parallel, as in a rollout.
const AT_A_TIME: usize = 10;

impl Rollout {
    /// Whether it is being destroyed, or the destruction has stopped half-way.
    #[must_use]
    pub fn is_going(&self) -> bool {
        self.destroy().is_some()
    }

    /// Whether there is an etcd, as far as is known.
    fn has_etcd(&self) -> bool {
        let etcd = stack_name(&self.cluster, StackKind::Etcd, "");
        self.deployed.contains_key(&etcd) || self.orphaned.contains_key(&etcd)
    }

    fn kind_of(&self, stack: &str) -> StackKind {
        let fixed = [StackKind::Network, StackKind::Identity, StackKind::Etcd, StackKind::ControlPlane];
        let found = fixed.into_iter().find(|kind| stack_name(&self.cluster, *kind, "") == stack);
        found.unwrap_or(StackKind::Pool)
    }
}

/// A person ordered the destruction.
pub(super) fn receive(state: &mut Rollout, given: &Given, no_snapshot: bool, now: Timestamp) -> Vec<Effect> {
    let over = state.destroys_over.is_some_and(|over| given.at <= over);
    let again = state.destroy().is_some_and(|open| {
        given.at <= open.asked_at || open.aborted.is_some_and(|aborted| given.at <= aborted)
    });
    if over || again {
        return Vec::new();
    }
    if is_late(given.at, now) {
        let cluster = &state.cluster;
        let why = "somebody may have thought better of it meanwhile";
        let help = format!("if it is still wanted: slipway destroy --cluster {cluster}");
        return ignore(state, given.at, now, "destroy the cluster", why, &help);
    }
    state.ignored = None;
    state.published = None;
    if let Some(active) = state.active_mut().filter(|active| active.aborted.is_none()) {
        active.aborted = Some(given.at);
    }
    let open = match state.destroy().cloned() {
        Some(open) => open.again(given.at, no_snapshot, state.has_etcd(), now),
        None => {
            state.generation += 1;
            if state.has_etcd() {
                // It is of another etcd, from before the cluster was created again.
                state.last_snapshot = None;
            }
            begin(state, given.at, no_snapshot, now)
        }
    };
    state.put_destruction(open);
    vec![Effect::ArmTick]
}

fn begin(state: &Rollout, at: Timestamp, no_snapshot: bool, now: Timestamp) -> Destroy {
    // Whether there is an etcd is observed: a launch that stopped half-way may have made one that no release mentions.
    let snapshot = match (state.has_etcd(), no_snapshot) {
        (false, true) => LastSnapshot::Needless,
        (true, true) => LastSnapshot::Declined,
        (_, false) => LastSnapshot::first(now),
    };
    Destroy {
        asked_at: at,
        attempt: 1,
        snapshot,
        records: Records::Stand,
        retired: false,
        withdrawn: false,
        stacks: stacks(state),
        rounds: 0,
        settled_at: None,
        aborted: None,
    }
}

/// The stacks that may exist, including those that an earlier rollout began and did not complete.
pub(super) fn stacks(state: &Rollout) -> Vec<Going> {
    let fixed = [StackKind::Network, StackKind::Identity, StackKind::Etcd, StackKind::ControlPlane];
    let fixed = fixed.into_iter().map(|kind| stack_name(&state.cluster, kind, ""));
    let steps = state.active().into_iter().flat_map(|active| &active.steps);
    let steps = steps.chain(state.last.iter().flat_map(|last| &last.steps)).map(|step| step.stack.clone());
    let known = state.deployed.keys().chain(state.orphaned.keys()).chain(state.unfinished.keys()).cloned();
    let begun: BTreeSet<String> = steps.chain(known).collect();
    let names: BTreeSet<String> = fixed.chain(begun.iter().cloned()).collect();
    let going = |stack: String| {
        let unsure = !begun.contains(&stack);
        Going { kind: state.kind_of(&stack), stack, state: GoingState::Stands, unsure }
    };
    let mut all: Vec<Going> = names.into_iter().map(going).collect();
    all.sort_by(|a, b| (b.kind.wave(), &a.stack).cmp(&(a.kind.wave(), &b.stack)));
    all
}

impl Destroy {
    /// Another order: failed calls are made again, and an abort is reverted.
    ///
    /// `has_etcd`: etcd is not known to be deleted, not even half. Its deletion may have been refused.
    fn again(mut self, at: Timestamp, no_snapshot: bool, has_etcd: bool, now: Timestamp) -> Self {
        let is_refused = |going: &Going| matches!(going.state, GoingState::Failed(_)) && has_etcd;
        let etcd_stands = self.etcd_stands() || self.of_etcd().is_some_and(is_refused);
        for going in &mut self.stacks {
            if matches!(going.state, GoingState::Failed(_) | GoingState::NotOurs) {
                going.state = GoingState::Stands;
            }
        }
        if no_snapshot {
            self.does_without()
        } else {
            self.saves_anew(etcd_stands, now)
        }
        // What a person has to delete by hand is known until the end.
        let records = match self.records {
            Records::Left(why) if !etcd_stands => Records::Left(why),
            Records::Stand | Records::Deleting(_) | Records::TakenBack | Records::Left(_) => Records::Stand,
        };
        let attempt = self.attempt + 1;
        Self { asked_at: at, attempt, aborted: None, records, ..self }
    }

    /// The stack of etcd.
    fn of_etcd(&self) -> Option<&Going> {
        self.stacks.iter().find(|going| going.kind == StackKind::Etcd)
    }

    /// A person aborts it. Returns whether the abort was given after the order.
    pub(super) fn abort(&mut self, at: Timestamp) -> bool {
        let after = at.saturating_add(CLOCKS_APART).is_ok_and(|at| at >= self.asked_at);
        if after {
            self.aborted = self.aborted.max(Some(at));
        }
        after
    }

    /// Whether it continues only after another order.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.why().is_some() && !self.in_flight()
    }

    /// Whether departures continue meanwhile: no stack is being deleted yet, or no more stacks will be.
    pub(super) fn sees_to_machines(&self) -> bool {
        self.stacks.iter().all(|going| going.state == GoingState::Stands) || self.has_stopped()
    }

    fn in_flight(&self) -> bool {
        self.stacks.iter().any(|going| matches!(going.state, GoingState::Deleting(_)))
    }

    fn why(&self) -> Option<&str> {
        let failed = self.stacks.iter().find_map(|going| match &going.state {
            GoingState::Failed(why) => Some(why.as_str()),
            GoingState::Stands | GoingState::Deleting(_) | GoingState::Gone | GoingState::NotOurs => None,
        });
        self.snapshot.failure().or(failed)
    }

    /// The stacks whose turn it is, by their index: those of the first wave that may still exist.
    fn turn(&self) -> Vec<usize> {
        let open = |going: &Going| !matches!(going.state, GoingState::Gone | GoingState::NotOurs);
        let Some(wave) = self.stacks.iter().find(|going| open(going)).map(|going| going.kind.wave()) else {
            return Vec::new();
        };
        let of_wave = |at: &usize| self.stacks[*at].kind.wave() == wave && open(&self.stacks[*at]);
        (0..self.stacks.len()).filter(of_wave).take(AT_A_TIME).collect()
    }

    /// Whether members of etcd have commands that they may have answered.
    fn asks_members(&self) -> bool {
        let etcd = |at: usize| {
            let going = &self.stacks[at];
            going.kind == StackKind::Etcd && going.state == GoingState::Stands
        };
        self.snapshot.is_wanted() || (self.records.are_open() && self.turn().into_iter().any(etcd))
    }

    /// The commands to members that are not done yet.
    #[must_use]
    pub fn commands(&self) -> &[SentCommand] {
        let inquiry = self.snapshot.inquiry().or_else(|| self.records.inquiry());
        inquiry.map_or(&[], |inquiry| inquiry.round.as_slice())
    }

    fn inquiry_mut(&mut self) -> Option<&mut Inquiry> {
        self.snapshot.inquiry_mut().or_else(|| self.records.inquiry_mut())
    }
}

/// What to observe.
pub(super) fn to_observe(state: &Rollout, open: &Destroy, scope: &mut ToObserve) {
    if open.has_stopped() {
        return;
    }
    if open.asks_members() {
        scope.groups.extend(member_groups(&state.cluster).map(|(_, group)| group));
        scope.commands.extend(
            open.commands().iter().filter(|one| one.refused.is_none()).map(|one| one.command.clone()),
        );
    }
    if open.snapshot.is_wanted() && !open.in_flight() {
        return;
    }
    for going in open.turn().into_iter().map(|at| &open.stacks[at]) {
        scope.going.insert(going.stack.clone());
        if matches!(going.state, GoingState::Deleting(_)) {
            scope.groups.extend(groups(&state.cluster, going));
        }
    }
}

/// Advances the destruction as far as the observation allows.
pub(super) fn decide(
    mut next: Rollout,
    mut open: Destroy,
    observed: &Observed,
    now: Timestamp,
    mut effects: Effects,
) -> Decision {
    let mut waits = BTreeMap::new();
    let held = next.paused_since().is_some() || open.aborted.is_some();
    let before = open.stacks.clone();
    if !open.has_stopped() {
        let saves = open.snapshot.is_wanted();
        if saves && !held && open.snapshot.failure().is_none() {
            let saves = save(&next, &mut open, observed, now, &mut effects);
            waits.insert(stack_name(&next.cluster, StackKind::Etcd, ""), saves);
        }
        // Operations of CloudFormation in progress are completed meanwhile.
        if !saves || open.in_flight() {
            delete(&next, &mut open, observed, now, held || saves, &mut effects, &mut waits);
        }
    }
    for (was, is) in before.iter().flat_map(|was| open.stacks.iter().map(move |is| (was, is))) {
        let moves = (going_name(&was.state), going_name(&is.state));
        debug_assert!(was.stack != is.stack || leads(STACK_DELETION, moves.0, moves.1), "{moves:?}");
    }
    // Pods of a stack that is being deleted have nowhere to run; those of a pool that still exists may stay if the destruction is aborted.
    let goes = |going: &Going| match going.state {
        GoingState::Gone => true,
        GoingState::Deleting(_) | GoingState::Failed(_) => is_seen_to_go(observed, &going.stack),
        GoingState::Stands | GoingState::NotOurs => false,
    };
    next.departures.retain(|_, one| !open.stacks.iter().any(|going| going.stack == one.group && goes(going)));
    // A partly deleted stack cannot be updated any more: a plan that has it creates it again, and a plan without it deletes the rest.
    let half_gone = |stack: &str| {
        let found = observed.stacks.get(stack).and_then(Option::as_ref);
        found.is_some_and(|stack| stack.status == StackStatus::DeleteFailed)
    };
    let gone = |going: &&Going| going.state == GoingState::Gone || half_gone(&going.stack);
    let is_etcd = |going: &Going| going.kind == StackKind::Etcd;
    let went = |going: &Going| !before.contains(going);
    if open.stacks.iter().filter(gone).any(|going| is_etcd(going) && went(going)) {
        next.etcd_gone_at = Some(now);
        next.removed_members.clear();
        next.joined_members.clear();
    }
    for going in open.stacks.iter().filter(gone) {
        let stood = next.deployed.remove(&going.stack).or_else(|| next.orphaned.remove(&going.stack));
        if going.state == GoingState::Gone {
            next.unfinished.remove(&going.stack);
        } else {
            next.unfinished.extend(stood.map(|release| (going.stack.clone(), release)));
        }
    }
    let moved = before != open.stacks;
    let report = conclude(&mut next, open, observed, now, waits, moved, &mut effects);
    finish(next, effects, report)
}

/// Deletes the stacks whose turn it is; `held`: no further deletion is requested, and operations in progress are completed.
fn delete(
    state: &Rollout,
    open: &mut Destroy,
    observed: &Observed,
    now: Timestamp,
    held: bool,
    effects: &mut Effects,
    waits: &mut BTreeMap<String, GoingWaits>,
) {
    // After a failure no further deletion is requested.
    let held = held || open.why().is_some();
    let name = format!("slipway-{}-destroy-{}", state.generation, open.attempt);
    let mut never = BTreeSet::new();
    for at in open.turn() {
        let going = &open.stacks[at];
        let stack = observed.stacks.get(&going.stack).and_then(Option::as_ref);
        let etcd = stack.filter(|stack| {
            going.kind == StackKind::Etcd
                && going.state == GoingState::Stands
                && stack.tags.get(OWNER_TAG) == Some(&state.cluster)
        });
        let before_etcd = etcd.and_then(|stack| {
            if !held && let Some(saves) = save_again(state, open, stack, observed, now, effects) {
                // Machines may boot meanwhile and write their records again.
                open.records = Records::Stand;
                return Some(saves);
            }
            retire(state, open, stack, held, observed, now, effects)
        });
        if let Some(waits_before) = before_etcd {
            waits.insert(open.stacks[at].stack.clone(), waits_before);
            continue;
        }
        let going = &mut open.stacks[at];
        let Some(found) = observed.stacks.get(&going.stack) else { continue };
        let Some(stack) = found.as_ref().filter(|stack| stack.status != StackStatus::DeleteComplete) else {
            if going.unsure {
                never.insert(going.stack.clone());
            }
            going.state = GoingState::Gone;
            continue;
        };
        going.unsure = false;
        // Its deletion was requested by its ARN. A late answer may be of a time when it had no tags yet.
        let is_late = matches!(going.state, GoingState::Deleting(_)) && stack.tags.is_empty();
        if let Some(foreign) = owner::foreign(state, &going.stack, stack).filter(|_| !is_late) {
            going.state = foreign;
            continue;
        }
        let deleting = stack.status == StackStatus::DeleteInProgress;
        let what = match &going.state {
            // An earlier deletion failed, and the answer may be from before this one.
            GoingState::Deleting(since)
                if stack.status == StackStatus::DeleteFailed && now.duration_since(*since) >= CONSISTENT =>
            {
                let failures = observed.failures.get(&going.stack).map(Vec::as_slice).unwrap_or_default();
                let why = because(format!("{} could not be deleted", going.stack), failures);
                let why = why + &records::help(&going.stack, failures, &open.records);
                going.state = GoingState::Failed(why.clone());
                GoingWaits::Failed(Detail(why))
            }
            GoingState::Deleting(since) if !deleting && now.duration_since(*since) > PATIENCE => {
                let minutes = PATIENCE.as_mins();
                let why = stack.reason.as_deref().unwrap_or("CloudFormation does not say why");
                let why =
                    format!("the deletion of {} has not begun within {minutes} minutes: {why}", going.stack);
                going.state = GoingState::Failed(why.clone());
                GoingWaits::Failed(Detail(why))
            }
            GoingState::Deleting(_) => GoingWaits::Deletes,
            GoingState::Stands if deleting => {
                going.state = GoingState::Deleting(now);
                GoingWaits::Deletes
            }
            GoingState::Stands if matches!(phase(stack.status), Phase::Busy) => {
                GoingWaits::AtWork(stack.status)
            }
            GoingState::Stands if held => GoingWaits::Stands,
            GoingState::Stands => {
                let (stack_name, id) = (going.stack.clone(), stack.id.clone());
                let token = operation_token(&name, &id, "delete");
                effects.push(Effect::DeleteStack { stack: stack_name, id, stands: true, token });
                going.state = GoingState::Deleting(now);
                GoingWaits::Told
            }
            GoingState::Failed(why) => GoingWaits::Failed(Detail(why.clone())),
            GoingState::Gone | GoingState::NotOurs => continue,
        };
        waits.insert(going.stack.clone(), what);
    }
    // A stack that never existed is not reported as gone.
    open.stacks.retain(|going| !never.contains(&going.stack));
    effects.extend(let_go(state, open, observed, now));
}

/// Ends it if it is complete, and reports its state.
fn conclude(
    next: &mut Rollout,
    open: Destroy,
    observed: &Observed,
    now: Timestamp,
    waits: BTreeMap<String, GoingWaits>,
    moved: bool,
    effects: &mut Effects,
) -> Report {
    let listed = listed(&open, &waits);
    let gone = open.stacks.iter().filter(|going| going.state == GoingState::Gone).count();
    let count = format!("{gone} of {} stacks are gone", listed.len());
    let gone_of = (gone, listed.len());
    let cluster = next.cluster.clone();
    // A deletion that was requested and withdrawn comes to light.
    let is_certain = |at: Timestamp| !open.withdrawn || now.duration_since(at) >= CONSISTENT;
    let over = open.aborted.is_some_and(is_certain) && !open.in_flight();
    // An abort after the last stack was gone changes nothing.
    if !open.snapshot.is_wanted() && open.turn().is_empty() {
        return destroyed(next, &open, observed, now, listed, effects);
    }
    let mut command = None;
    let (state, how, message, event): (RolloutState, Pace, String, fn(RolloutReport) -> Event) = if over {
        let lies = last_snapshot(next, &open);
        let message = format!(
            "the destruction was aborted: {count}{}{}; `slipway apply cluster.yaml --cluster {cluster}` brings back what is missing",
            lies.unwrap_or_default(),
            records::missing(next, &open)
        );
        next.destroys_over = open.aborted.max(Some(open.asked_at));
        if gone > 0 {
            next.record_abort(AbortedDestruction { at: now, message: message.clone() });
        }
        (RolloutState::Aborted, Pace::Aborted, message, Event::RolloutAborted)
    } else if let Some(why) = open.why().filter(|_| open.has_stopped()) {
        let help = help(&open, &cluster, gone, &count);
        let how = Pace::Stopped(Detail(why.to_owned()));
        (RolloutState::Failed, how, format!("the destruction stopped: {why}; {help}"), Event::RolloutFailed)
    } else {
        let now = if waits.is_empty() { String::new() } else { format!("{} ", named(&waits)) };
        let goes = format!("{now}({count})");
        command = Some(match (open.aborted, next.paused_since()) {
            (Some(_), _) => again(&cluster),
            (None, Some(_)) => resume(&cluster),
            (None, None) => of_destruction(&waits, &cluster).words(),
        });
        let (state, held, message, event): (_, _, _, fn(RolloutReport) -> Event) =
            match (open.aborted, next.paused_since()) {
                (Some(_), _) => {
                    let message = format!("the destruction is aborted: {goes}");
                    (RolloutState::Aborting, Some(Held::Aborted), message, Event::RolloutStep)
                }
                (None, Some(since)) => {
                    let message = format!("{}; {goes}", paused(next, since));
                    (RolloutState::Paused, Some(Held::Paused), message, Event::RolloutWaiting)
                }
                (None, None) if moved => (RolloutState::Destroying, None, goes, Event::RolloutStep),
                (None, None) => (RolloutState::Destroying, None, goes, Event::RolloutWaiting),
            };
        (state, Pace::Open { held, waits }, message, event)
    };
    let publication = Published::Destroying(Progress { how, gone: gone_of });
    if next.published.as_ref() != Some(&publication) {
        let plan = plan_of(next);
        let report = RolloutReport::new(&cluster, &plan, clipped(&message)).with_next(command.clone());
        effects.push(Effect::Publish(event(report)));
        next.published = Some(publication);
        if over || open.has_stopped() {
            effects.push(Effect::DisarmTick);
        }
    }
    if !over {
        next.put_destruction(open);
    }
    Report { state, generation: next.generation, message, next: command, stacks: listed, ..Report::default() }
}
