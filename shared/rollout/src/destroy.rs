//! A cluster that is taken away, since a person said so: a last snapshot of etcd, then its stacks, in an order that leaves nothing behind.
//!
//! The stacks go in the waves in which they came, backwards: pools, control plane, etcd, network; the next wave begins when CloudFormation
//! says that all of the one before are gone. What is found is read off the world each time, also stacks that never came to be. Workers are not
//! drained, since there is nowhere for their pods to go: their terminate hooks, which would wait for a drain and keep the machine, are ended.
//!
//! Nothing is deleted before the snapshot is taken, on the member that leads, so that what was acknowledged is in it. Before etcd's stack goes, a
//! member takes back the records that members set themselves. A failure stops it where it is, and another order goes on from there; pause holds
//! it, and an abort ends it between two stacks.

mod end;
mod machines;
mod records;
mod save;
#[cfg(test)]
mod tests;
mod waits;

use std::collections::{BTreeMap, BTreeSet};

use end::{destroyed, last_snapshot, listed};
use jiff::Timestamp;
use machines::{is_seen_to_go, let_go};
use serde::{Deserialize, Serialize};

use super::decide::finish;
use super::doing::Doing;
use super::errand::Asked;
use super::nodes::PATIENCE;
use super::orders::{CLOCKS_APART, Given, ignore, is_late, paused, plan_of};
use super::outbox::Effects;
use super::stack_step::{OWNER_TAG, Phase, because, phase};
use super::states::{GOING, going_name, leads};
use super::waits::{Detail, Said};
use super::words::{clipped, named};
use super::{Decision, Effect, Observed, Rollout, StackStatus, ToObserve, operation_token};
pub(super) use records::zone_cure;
use records::{Records, retire};
use save::Inquiry;
pub use save::{LastSnapshot, Save};
use save::{member_groups, save};
use slipway_core::event::{Event, RolloutReport};
use slipway_core::release::{StackKind, stack_name};
use slipway_core::status::Report;
pub(crate) use waits::{GoingWaits, Held, Pace, Progress};

/// A cluster that is taken away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Destroy {
    /// When the newest order to do so was given.
    pub asked_at: Timestamp,
    /// Counts those orders: what CloudFormation refused to one is asked anew for the next.
    pub attempt: u32,
    /// The last snapshot of etcd.
    pub snapshot: LastSnapshot,
    /// The records that members of etcd set themselves.
    #[serde(default)]
    pub records: Records,
    /// Its stacks, by wave, the last that came first.
    pub stacks: Vec<Going>,
    /// How often members were asked something.
    #[serde(default)]
    pub rounds: u32,
    /// When terminate hooks were ended last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<Timestamp>,
    /// Since when it is to end, as a person said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aborted: Option<Timestamp>,
}

/// A stack that goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Going {
    /// Its name.
    pub stack: String,
    /// Its kind.
    pub kind: StackKind,
    /// How far it is.
    pub state: GoingState,
    /// Nobody began it, as far as is known: whether there is one is still to be seen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsure: bool,
}

/// How far a stack is that goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GoingState {
    /// It stands, or was not looked at.
    Stands,
    /// CloudFormation was told to delete it, then.
    Deleting(Timestamp),
    /// It is gone.
    Gone,
    /// There is one of that name, and it is somebody else's.
    NotOurs,
    /// It could not be deleted, and why.
    Failed(String),
}

/// A cluster that lacks what was deleted before a person thought better of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CalledOff {
    /// When what CloudFormation worked at had ended.
    pub at: Timestamp,
    /// In words.
    pub message: String,
}

/// A cluster that was taken away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Destroyed {
    /// When the last of it was gone.
    pub at: Timestamp,
    /// Versions of its newest specs then, also of one that was refused meanwhile: those make nothing any more, whatever event comes late.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub spec_versions: BTreeSet<String>,
    /// Where the last snapshot of etcd lies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// In words.
    pub message: String,
}

/// Stacks that are worked on side by side, as in a rollout.
const AT_A_TIME: usize = 10;

impl Rollout {
    /// Whether it is being taken away, or has stopped half-way.
    #[must_use]
    pub fn is_going(&self) -> bool {
        self.destroy().is_some()
    }

    /// Whether an etcd stands, as far as is known.
    fn has_etcd(&self) -> bool {
        let etcd = stack_name(&self.cluster, StackKind::Etcd, "");
        self.deployed.contains_key(&etcd) || self.left.contains_key(&etcd)
    }

    fn kind_of(&self, stack: &str) -> StackKind {
        let fixed = [StackKind::Network, StackKind::Identity, StackKind::Etcd, StackKind::ControlPlane];
        let found = fixed.into_iter().find(|kind| stack_name(&self.cluster, *kind, "") == stack);
        found.unwrap_or(StackKind::Pool)
    }
}

/// A person wants it gone.
pub(super) fn hear(state: &mut Rollout, given: &Given, no_snapshot: bool, now: Timestamp) -> Vec<Effect> {
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
        let cure = format!("if it is still wanted: slipway destroy --cluster {cluster}");
        return ignore(state, given.at, now, "destroy the cluster", why, &cure);
    }
    state.ignored = None;
    state.said = None;
    if let Some(active) = state.active_mut().filter(|active| active.aborted.is_none()) {
        active.aborted = Some(given.at);
    }
    let open = match state.destroy().cloned() {
        Some(open) => open.again(given.at, no_snapshot, now),
        None => {
            state.generation += 1;
            begin(state, given.at, no_snapshot, now)
        }
    };
    state.put_destroy(open);
    vec![Effect::ArmTick]
}

fn begin(state: &Rollout, at: Timestamp, no_snapshot: bool, now: Timestamp) -> Destroy {
    // Whether there is an etcd is looked at: a launch that stopped half-way may have made one that no release tells of.
    let snapshot = match (state.has_etcd(), no_snapshot) {
        (false, true) => LastSnapshot::Needless,
        (true, true) => LastSnapshot::Declined,
        (_, false) => LastSnapshot::wanted(None, now),
    };
    Destroy {
        asked_at: at,
        attempt: 1,
        snapshot,
        records: Records::Stand,
        stacks: stacks(state),
        rounds: 0,
        told: None,
        aborted: None,
    }
}

/// What may stand: also what an earlier rollout began and did not see to its end.
fn stacks(state: &Rollout) -> Vec<Going> {
    let fixed = [StackKind::Network, StackKind::Identity, StackKind::Etcd, StackKind::ControlPlane];
    let fixed = fixed.into_iter().map(|kind| stack_name(&state.cluster, kind, ""));
    let steps = state.active().into_iter().flat_map(|active| &active.steps);
    let steps = steps.chain(state.last.iter().flat_map(|last| &last.steps)).map(|step| step.stack.clone());
    let known = state.deployed.keys().chain(state.left.keys()).cloned();
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
    /// Another order: what failed is tried anew, and an abort is taken back.
    fn again(mut self, at: Timestamp, no_snapshot: bool, now: Timestamp) -> Self {
        if no_snapshot {
            self.does_without()
        } else {
            self.saves_anew(now)
        }
        for going in &mut self.stacks {
            if matches!(going.state, GoingState::Failed(_) | GoingState::NotOurs) {
                going.state = GoingState::Stands;
            }
        }
        let attempt = self.attempt + 1;
        Self { asked_at: at, attempt, aborted: None, records: Records::Stand, ..self }
    }

    /// A person thought better of it; whether that was after it was ordered.
    pub(super) fn abort(&mut self, at: Timestamp) -> bool {
        let after = at.saturating_add(CLOCKS_APART).is_ok_and(|at| at >= self.asked_at);
        if after {
            self.aborted = self.aborted.max(Some(at));
        }
        after
    }

    /// Whether nothing goes on by itself: it waits for another order.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.why().is_some() && !self.in_flight()
    }

    /// Whether machines on their way out, or back, are seen to: no stack was told to go yet, or none goes any more.
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

    /// The stacks whose turn it is, by their place: those of the first wave of which any may stand.
    fn turn(&self) -> Vec<usize> {
        let open = |going: &Going| !matches!(going.state, GoingState::Gone | GoingState::NotOurs);
        let Some(wave) = self.stacks.iter().find(|going| open(going)).map(|going| going.kind.wave()) else {
            return Vec::new();
        };
        let of_wave = |at: &usize| self.stacks[*at].kind.wave() == wave && open(&self.stacks[*at]);
        (0..self.stacks.len()).filter(of_wave).take(AT_A_TIME).collect()
    }

    /// Whether members of etcd are to be asked, and may have answered.
    fn asks_members(&self) -> bool {
        let etcd = |at: usize| {
            let going = &self.stacks[at];
            going.kind == StackKind::Etcd && going.state == GoingState::Stands
        };
        self.saves() || (self.records.are_open() && self.turn().into_iter().any(etcd))
    }

    const fn saves(&self) -> bool {
        matches!(self.snapshot, LastSnapshot::Wanted { .. })
    }

    /// What CloudFormation refused outright.
    pub(super) fn refused(&mut self, stack: &str, reason: &str) {
        for going in self.stacks.iter_mut().filter(|going| going.stack == stack) {
            going.state = GoingState::Failed(reason.to_owned());
        }
    }

    /// What members were asked, and have not done yet.
    #[must_use]
    pub fn asked(&self) -> &[Asked] {
        let inquiry = self.snapshot.inquiry().or_else(|| self.records.inquiry());
        inquiry.map_or(&[], |inquiry| inquiry.round.as_slice())
    }

    fn inquiry_mut(&mut self) -> Option<&mut Inquiry> {
        self.snapshot.inquiry_mut().or_else(|| self.records.inquiry_mut())
    }

    /// CloudFormation was not told to delete that stack, as far as is known.
    pub(super) fn not_deleted(&mut self, stack: &str) {
        for going in self.stacks.iter_mut().filter(|going| going.stack == stack) {
            if matches!(going.state, GoingState::Deleting(_)) {
                going.state = GoingState::Stands;
            }
        }
    }

    /// Run Command would not take the command of that token.
    pub(super) fn unsent(&mut self, token: &str, reason: &str) {
        for asked in self.inquiry_mut().into_iter().flat_map(|one| one.round.as_mut_slice()) {
            asked.was_refused(token, reason);
        }
    }

    /// The command of that token was never sent.
    pub(super) fn not_sent(&mut self, token: &str) {
        if let Some(inquiry) = self.inquiry_mut() {
            inquiry.round.forget(token);
        }
    }
}

/// What to look at.
pub(super) fn to_observe(state: &Rollout, open: &Destroy, look: &mut ToObserve) {
    if open.has_stopped() {
        return;
    }
    if open.asks_members() {
        look.groups.extend(member_groups(&state.cluster).map(|(_, group)| group));
        look.commands
            .extend(open.asked().iter().filter(|one| one.refused.is_none()).map(|one| one.command.clone()));
    }
    if open.saves() && !open.in_flight() {
        return;
    }
    for going in open.turn().into_iter().map(|at| &open.stacks[at]) {
        look.going.insert(going.stack.clone());
        let has_hooks = matches!(going.kind, StackKind::Pool | StackKind::ControlPlane);
        if has_hooks && matches!(going.state, GoingState::Deleting(_)) {
            look.groups.insert(going.stack.clone());
        }
    }
}

/// Takes it as far as what was observed allows.
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
        let saves = open.saves();
        if saves && !held && open.snapshot.failure().is_none() {
            let saves = save(&next, &mut open, observed, now, &mut effects);
            waits.insert(stack_name(&next.cluster, StackKind::Etcd, ""), saves);
        }
        // What CloudFormation works at is seen to its end meanwhile.
        if !saves || open.in_flight() {
            delete(&next, &mut open, observed, now, held || saves, &mut effects, &mut waits);
        }
    }
    for (was, is) in before.iter().flat_map(|was| open.stacks.iter().map(move |is| (was, is))) {
        let moves = (going_name(&was.state), going_name(&is.state));
        debug_assert!(was.stack != is.stack || leads(GOING, moves.0, moves.1), "{moves:?}");
    }
    // Pods of what goes have nowhere to go; those of a pool that stands still may stay, if the destruction is called off.
    let goes = |going: &Going| match going.state {
        GoingState::Gone => true,
        GoingState::Deleting(_) | GoingState::Failed(_) => is_seen_to_go(observed, &going.stack),
        GoingState::Stands | GoingState::NotOurs => false,
    };
    next.departures.retain(|_, one| !open.stacks.iter().any(|going| going.stack == one.group && goes(going)));
    // One that is half gone cannot be updated any more: a plan that has it makes it anew, and one that has not takes away what is left.
    let wanted = observed.desired.as_ref().map(|wanted| &wanted.release);
    let half_gone = |stack: &str| {
        let found = observed.stacks.get(stack).and_then(Option::as_ref);
        found.is_some_and(|stack| stack.status == StackStatus::DeleteFailed)
    };
    let gone = |going: &&Going| going.state == GoingState::Gone || half_gone(&going.stack);
    for going in open.stacks.iter().filter(gone) {
        let was_at = next.deployed.remove(&going.stack).or_else(|| next.left.remove(&going.stack));
        let is_wanted = wanted.is_none_or(|release| release.stack(&going.stack).is_some());
        if going.state != GoingState::Gone && !is_wanted {
            next.left.extend(was_at.map(|release| (going.stack.clone(), release)));
        }
    }
    let moved = before != open.stacks;
    let report = conclude(&mut next, open, observed, now, waits, moved, &mut effects);
    finish(next, effects, report)
}

/// The stacks whose turn it is; `held`: none is told to go, and what CloudFormation works at is seen to its end.
fn delete(
    state: &Rollout,
    open: &mut Destroy,
    observed: &Observed,
    now: Timestamp,
    held: bool,
    effects: &mut Effects,
    waits: &mut BTreeMap<String, GoingWaits>,
) {
    // After a failure no other is told to go.
    let held = held || open.why().is_some();
    let name = format!("slipway-{}-destroy-{}", state.generation, open.attempt);
    let mut never = BTreeSet::new();
    for at in open.turn() {
        let going = &open.stacks[at];
        let stack = observed.stacks.get(&going.stack).and_then(Option::as_ref);
        let etcd = stack.filter(|_| going.kind == StackKind::Etcd && going.state == GoingState::Stands);
        if let Some(retires) = etcd.and_then(|stack| retire(state, open, stack, held, observed, now, effects))
        {
            waits.insert(open.stacks[at].stack.clone(), retires);
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
        if stack.tags.get(OWNER_TAG) != Some(&state.cluster) {
            // What was deployed is ours, unless somebody has put another in its place: a person sees to that.
            let known = state.deployed.contains_key(&going.stack) || state.left.contains_key(&going.stack);
            going.state = match known {
                true => GoingState::Failed(format!("{} exists and is not Slipway's", going.stack)),
                false => GoingState::NotOurs,
            };
            continue;
        }
        let deleting = stack.status == StackStatus::DeleteInProgress;
        let what = match &going.state {
            GoingState::Deleting(_) if stack.status == StackStatus::DeleteFailed => {
                let failures = observed.failures.get(&going.stack).map(Vec::as_slice).unwrap_or_default();
                let why = because(format!("{} could not be deleted", going.stack), failures);
                let why = why + &records::cure(&going.stack, failures, &open.records);
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
    // What never was is not told as gone.
    open.stacks.retain(|going| !never.contains(&going.stack));
    effects.extend(let_go(state, open, observed, now));
}

/// Ends it if it is at its end, and says how it stands.
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
    let over = open.aborted.is_some() && !open.in_flight();
    // That it was called off when the last of it had gone already changes nothing.
    if !open.saves() && open.turn().is_empty() {
        return destroyed(next, &open, observed, now, listed, effects);
    }
    let (state, how, message, event): (&str, Pace, String, fn(RolloutReport) -> Event) = if over {
        let lies = last_snapshot(next, &open);
        let message = format!(
            "the destruction was aborted: {count}{}; `slipway apply cluster.yaml --cluster {cluster}` brings back what is missing",
            lies.unwrap_or_default()
        );
        next.destroys_over = open.aborted.max(Some(open.asked_at));
        if gone > 0 {
            next.does(Doing::CalledOff(CalledOff { at: now, message: message.clone() }));
        }
        ("aborted", Pace::CalledOff, message, Event::RolloutAborted)
    } else if let Some(why) = open.why().filter(|_| open.has_stopped()) {
        let cure = if open.saves() {
            format!(
                "`slipway destroy --cluster {cluster} --without-snapshot` does without; nothing is deleted yet"
            )
        } else {
            format!("mend that, then `slipway destroy --cluster {cluster}` goes on; {count}")
        };
        let how = Pace::Stopped(Detail(why.to_owned()));
        ("failed", how, format!("the destruction stopped: {why}; {cure}"), Event::RolloutFailed)
    } else {
        let now = if waits.is_empty() { String::new() } else { format!("{} ", named(&waits)) };
        let goes = format!("{now}({count})");
        let (state, held, message, event): (_, _, _, fn(RolloutReport) -> Event) =
            match (open.aborted, next.paused_since()) {
                (Some(_), _) => {
                    let message = format!("the destruction is aborted: {goes}");
                    ("aborting", Some(Held::CalledOff), message, Event::RolloutStep)
                }
                (None, Some(since)) => {
                    let message = format!("{}; {goes}", paused(next, since));
                    ("paused", Some(Held::Paused), message, Event::RolloutWaiting)
                }
                (None, None) if moved => ("destroying", None, goes, Event::RolloutStep),
                (None, None) => ("destroying", None, goes, Event::RolloutWaiting),
            };
        (state, Pace::Open { held, waits }, message, event)
    };
    let said = Said::Destroying(Progress { how, gone: gone_of });
    if next.said.as_ref() != Some(&said) {
        let plan = plan_of(next);
        let report = RolloutReport::new(&cluster, &plan, clipped(&message));
        effects.push(Effect::Publish(event(report)));
        next.said = Some(said);
        if over || open.has_stopped() {
            effects.push(Effect::DisarmTick);
        }
    }
    if !over {
        next.put_destroy(open);
    }
    Report {
        state: state.to_owned(),
        generation: next.generation,
        message,
        stacks: listed,
        ..Report::default()
    }
}
