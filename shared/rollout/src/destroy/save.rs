//! The last snapshot of etcd, on the member that leads: what was acknowledged is in it.

use jiff::Timestamp;

use super::super::fleet::GroupView;
use super::super::nodes::asks::{answer, command};
use super::super::nodes::{Asked, PATIENCE, PAUSE, TRIES, serving};
use super::super::outbox::Effects;
use super::super::stack_step::OWNER_TAG;
use super::super::{Effect, Observed, Rollout};
use super::{Destroy, GoingState, LastSnapshot};
use slipway_core::node::{EtcdHealth, SnapshotTaken, Verb};
use slipway_core::pki::Role;
use slipway_core::render::{StackKind, stack_name};

/// More members than any etcd has.
const MOST_MEMBERS: u32 = 9;

impl Destroy {
    /// It goes on after it has stood still: what was written since is in no snapshot, nor for certain in one that was being taken, so that
    /// another is the last, unless etcd goes already.
    pub(in super::super) fn saves_again(&mut self, now: Timestamp) {
        let stands =
            |going: &super::Going| going.kind == StackKind::Etcd && going.state == GoingState::Stands;
        if !self.stacks.iter().any(stands) {
            return;
        }
        match &self.snapshot {
            LastSnapshot::Taken(key) => self.earlier = Some(key.clone()),
            LastSnapshot::Asked => {}
            LastSnapshot::Leader | LastSnapshot::Declined | LastSnapshot::Needless => return,
        }
        self.snapshot = LastSnapshot::Leader;
        self.asked.clear();
        (self.since, self.tries) = (now, 0);
    }

    /// A person does without another.
    pub(super) fn does_without(&mut self) {
        if matches!(self.snapshot, LastSnapshot::Leader | LastSnapshot::Asked) {
            self.snapshot = self.earlier.take().map_or(LastSnapshot::Declined, LastSnapshot::Taken);
            self.asked.clear();
        }
    }

    pub(super) fn asks(
        &mut self,
        cluster: &str,
        generation: u64,
        whom: Vec<(Role, String, Verb)>,
        now: Timestamp,
    ) -> Vec<Effect> {
        self.round += 1;
        let of = format!("{generation} destroy {}", self.attempt);
        let asked = whom.into_iter().map(|(role, instance, verb)| {
            let command = command(&of, cluster, &role, self.round, instance, verb);
            Asked { role, command, at: now, refused: None }
        });
        self.asked = asked.collect();
        self.asked.iter().map(|asked| Effect::Send(asked.command.clone())).collect()
    }
}

/// The groups that members of etcd may have.
pub(super) fn member_groups(cluster: &str) -> impl Iterator<Item = (Role, String)> {
    let stack = stack_name(cluster, StackKind::Etcd, "");
    (0..MOST_MEMBERS).map(move |index| (Role::Etcd(index), format!("{stack}-{index}")))
}

/// The members that serve, and their machines.
pub(super) fn members(state: &Rollout, observed: &Observed) -> Vec<(Role, String)> {
    let found = member_groups(&state.cluster).filter_map(|(role, group)| {
        let group = observed.groups.get(&group)?.as_ref()?;
        let ours = group.tags.get(OWNER_TAG) == Some(&state.cluster);
        serving(group).next().filter(|_| ours).map(|(id, _)| (role, id.clone()))
    });
    found.collect()
}

/// Whether any group of members stands that is ours; `None`: not all were looked at.
fn has_groups(state: &Rollout, observed: &Observed) -> Option<bool> {
    let is_ours = |group: &GroupView| group.tags.get(OWNER_TAG) == Some(&state.cluster);
    let found = member_groups(&state.cluster)
        .map(|(_, name)| observed.groups.get(&name).map(|group| group.as_ref().is_some_and(is_ours)));
    let found: Option<Vec<bool>> = found.collect();
    found.map(|found| found.contains(&true))
}

/// What members said that could not do what they were asked.
pub(super) fn why_not<T>(open: &Destroy, said: &[Result<T, String>]) -> String {
    let why = open.asked.iter().zip(said);
    let why = why.filter_map(|(asked, said)| Some(format!("{}: {}", asked.role, said.as_ref().err()?)));
    why.collect::<Vec<_>>().join("; ")
}

/// The last snapshot, on the member that leads.
pub(super) fn save(
    state: &Rollout,
    open: &mut Destroy,
    observed: &Observed,
    now: Timestamp,
    effects: &mut Effects,
) -> String {
    let machines = members(state, observed);
    let waits = match open.snapshot {
        LastSnapshot::Asked => "takes the last snapshot",
        LastSnapshot::Leader | LastSnapshot::Taken(_) | LastSnapshot::Declined | LastSnapshot::Needless => {
            "asks the members of etcd which of them leads"
        }
    };
    if open.asked.is_empty() {
        if machines.is_empty() && !state.has_etcd() {
            match has_groups(state, observed) {
                None => return "looks for members of etcd".to_owned(),
                Some(false) => {
                    open.snapshot = LastSnapshot::Needless;
                    return "there is no etcd".to_owned();
                }
                Some(true) => {}
            }
        }
        if machines.is_empty() {
            return come_to_nothing(open, "no member of etcd has a machine in service", now);
        }
        let whom = machines.into_iter().map(|(role, id)| (role, id, Verb::EtcdHealth)).collect();
        effects.extend(open.asks(&state.cluster, state.generation, whom, now));
        return waits.to_owned();
    }
    if let (LastSnapshot::Asked, Some(asked)) = (&open.snapshot, open.asked.first()) {
        return match answer(asked, observed, now) {
            None => waits.to_owned(),
            Some(said) => taken(open, said, now),
        };
    }
    let said: Option<Vec<Result<EtcdHealth, String>>> =
        open.asked.iter().map(|asked| answer(asked, observed, now)).collect();
    let Some(said) = said else { return waits.to_owned() };
    let leads = |said: &Result<EtcdHealth, String>| said.as_ref().is_ok_and(|health| health.leads);
    let Some(leader) = said.iter().position(leads).map(|at| &open.asked[at]) else {
        let why = why_not(open, &said);
        let why = if why.is_empty() { why } else { format!(" ({why})") };
        return come_to_nothing(open, &format!("no member of etcd leads{why}"), now);
    };
    let whom = vec![(leader.role.clone(), leader.command.instance.clone(), Verb::EtcdSnapshot)];
    effects.extend(open.asks(&state.cluster, state.generation, whom, now));
    open.snapshot = LastSnapshot::Asked;
    "takes the last snapshot".to_owned()
}

/// What became of the snapshot.
fn taken(open: &mut Destroy, said: Result<SnapshotTaken, String>, now: Timestamp) -> String {
    match said.map(|said| said.key) {
        Ok(key) => {
            let words = format!("the last snapshot lies at {key}");
            open.snapshot = LastSnapshot::Taken(key);
            open.asked.clear();
            open.since = now;
            words
        }
        Err(why) => come_to_nothing(open, &why, now),
    }
}

/// Tried again in a minute, and not for ever.
fn come_to_nothing(open: &mut Destroy, why: &str, now: Timestamp) -> String {
    if gives_up(open, now) {
        open.failure = Some(format!("the last snapshot cannot be taken: {why}"));
    }
    if open.asked.is_empty() {
        open.snapshot = LastSnapshot::Leader;
    }
    format!("waits: {why}")
}

/// What was asked came to nothing: it is asked again after a while (nobody counts as asked then), and not for ever.
pub(super) fn gives_up(open: &mut Destroy, now: Timestamp) -> bool {
    let asked_at = open.asked.iter().map(|asked| asked.at).max();
    if asked_at.is_some_and(|at| now.duration_since(at) < PAUSE) {
        return false;
    }
    // Machines may be on their way up; those that answer nonsense are given as many tries as anything else.
    let given_up = match open.asked.is_empty() {
        true => now.duration_since(open.since) > PATIENCE,
        false => open.tries + 1 >= TRIES,
    };
    open.tries += u32::from(!open.asked.is_empty());
    open.asked.clear();
    given_up
}
