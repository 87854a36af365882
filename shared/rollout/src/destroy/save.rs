//! The last snapshot of etcd, taken on the leader, so that it has every acknowledged write.
//!
//! Two are taken. The first one comes before anything is deleted: it shows that etcd can take one, and counts if the second fails. Pods and
//! people may write until the last API server is gone, which can take hours. So the second one is taken after the stack of the control
//! plane is gone and before the deletion of etcd's is requested: nothing is written any more, and it has every write.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_core::node::{EtcdHealth, SnapshotTaken, Verb};
use slipway_core::release::{StackKind, stack_name};
use slipway_core::role::Role;

use super::super::errand::{RetryDecision, RetryPolicy, RetryState, Round, Sender};
use super::super::fleet::serving;
use super::super::fleet::{GroupView, OWNER_TAG};
use super::super::outbox::Effects;
use super::super::stack_step::{Phase, phase};
use super::super::transitions::{LAST_SNAPSHOT, leads};
use super::super::waits::Detail;
use super::super::{Effect, Observed, Rollout, StackView};
use super::{Destroy, GoingState, GoingWaits};

/// More members than any etcd has.
const MOST_MEMBERS: u32 = 9;

/// The state of the last snapshot of etcd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum LastSnapshot {
    /// One has to be taken before any other stack is deleted.
    Wanted {
        /// Which one.
        which: Which,
        /// The progress.
        save: Save,
        /// The key of an earlier snapshot of this destruction.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        earlier: Option<String>,
    },
    /// The first one is taken and verified, and has this key. The second one follows when no API server is left.
    Taken(String),
    /// The second one is taken and verified, and has this key: nothing was written after it.
    Complete(String),
    /// A person ordered to go without another one. This is the key of the first one, which lacks what was written after it.
    Kept(String),
    /// A person ordered to go without any.
    Declined,
    /// There never was an etcd.
    Needless,
}

/// The name of the state of a destruction's last snapshot in [`LAST_SNAPSHOT`].
pub(crate) const fn snapshot_name(snapshot: &LastSnapshot) -> &'static str {
    match snapshot {
        LastSnapshot::Wanted { save: Save::Failed(_), .. } => "failed",
        LastSnapshot::Wanted { which: Which::First, .. } => "first",
        LastSnapshot::Wanted { which: Which::Second, .. } => "second",
        LastSnapshot::Taken(_) => "taken",
        LastSnapshot::Complete(_) => "complete",
        LastSnapshot::Kept(_) => "kept",
        LastSnapshot::Declined => "declined",
        LastSnapshot::Needless => "needless",
    }
}

/// Which of the two snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Which {
    /// The one before anything is deleted.
    First,
    /// The one after the last API server is gone.
    Second,
}

/// The progress of a last snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Save {
    /// Members are asked which of them leads.
    Leader(Inquiry),
    /// It is being taken.
    Taking(Inquiry),
    /// It cannot be taken, for this reason; another order is needed.
    Failed(String),
}

impl LastSnapshot {
    /// The first snapshot, which has to be taken.
    pub(super) fn first(now: Timestamp) -> Self {
        Self::wanted(Which::First, None, now)
    }

    /// A snapshot that has to be taken.
    pub(super) fn wanted(which: Which, earlier: Option<String>, now: Timestamp) -> Self {
        Self::Wanted { which, save: Save::Leader(Inquiry::new(now)), earlier }
    }

    pub(super) const fn inquiry(&self) -> Option<&Inquiry> {
        match self {
            Self::Wanted { save: Save::Leader(inquiry) | Save::Taking(inquiry), .. } => Some(inquiry),
            Self::Wanted { save: Save::Failed(_), .. }
            | Self::Taken(_)
            | Self::Complete(_)
            | Self::Kept(_)
            | Self::Declined
            | Self::Needless => None,
        }
    }

    pub(super) const fn inquiry_mut(&mut self) -> Option<&mut Inquiry> {
        match self {
            Self::Wanted { save: Save::Leader(inquiry) | Save::Taking(inquiry), .. } => Some(inquiry),
            Self::Wanted { save: Save::Failed(_), .. }
            | Self::Taken(_)
            | Self::Complete(_)
            | Self::Kept(_)
            | Self::Declined
            | Self::Needless => None,
        }
    }

    /// Why it cannot be taken.
    pub(super) fn failure(&self) -> Option<&str> {
        match self {
            Self::Wanted { save: Save::Failed(why), .. } => Some(why),
            Self::Wanted { save: Save::Leader(_) | Save::Taking(_), .. }
            | Self::Taken(_)
            | Self::Complete(_)
            | Self::Kept(_)
            | Self::Declined
            | Self::Needless => None,
        }
    }

    /// The key of the newest snapshot of this destruction.
    pub(super) fn key(&self) -> Option<&String> {
        match self {
            Self::Wanted { earlier, .. } => earlier.as_ref(),
            Self::Taken(key) | Self::Complete(key) | Self::Kept(key) => Some(key),
            Self::Declined | Self::Needless => None,
        }
    }

    /// Whether one has to be taken before any other stack is deleted.
    pub(super) const fn is_wanted(&self) -> bool {
        matches!(self, Self::Wanted { .. })
    }
}

/// A command that members get until one has done it, but not forever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Inquiry {
    /// When it began.
    pub since: Timestamp,
    /// Rounds that failed.
    #[serde(default)]
    pub tried: RetryState,
    /// The last round of commands.
    #[serde(default, skip_serializing_if = "Round::is_empty")]
    pub round: Round,
}

impl Inquiry {
    /// A new inquiry.
    #[must_use]
    pub fn new(since: Timestamp) -> Self {
        Self { since, tried: RetryState::default(), round: Round::default() }
    }

    /// The round failed, or there was nobody to ask: it is repeated after a pause, but not forever. Returns whether to give up.
    pub(super) fn gives_up(&mut self, why: &str, observed: &Observed, now: Timestamp) -> bool {
        let round = std::mem::take(&mut self.round);
        let (reached, asked_at) = (round.has_reached_any(observed), round.at().unwrap_or(now));
        match self.tried.failed(reached, asked_at, why, now, RetryPolicy::FAREWELL) {
            RetryDecision::Again => false,
            RetryDecision::TooOften | RetryDecision::Unreached(_) => true,
        }
    }

    /// Why the last round failed, if the next one has to wait.
    pub(super) fn pauses(&self, now: Timestamp) -> Option<String> {
        self.tried.pauses(now, RetryPolicy::FAREWELL).map(str::to_owned)
    }
}

impl Destroy {
    /// Whether no API server is left, and so nobody who writes to etcd: CloudFormation deletes the stack of controllers only after the last
    /// of their machines is gone, and nothing creates it again.
    fn has_no_writers(&self) -> bool {
        let gone = |state: &GoingState| matches!(state, GoingState::Gone | GoingState::NotOurs);
        let controls = |going: &&super::Going| going.kind == StackKind::ControlPlane;
        self.stacks.iter().filter(controls).all(|going| gone(&going.state))
    }

    /// Whether the stack of etcd is not known to be deleted, wholly or half.
    pub(super) fn etcd_stands(&self) -> bool {
        let stands =
            |going: &super::Going| going.kind == StackKind::Etcd && going.state == GoingState::Stands;
        self.stacks.iter().any(stands)
    }

    /// The destruction continues after it has stopped: the first snapshot is old by now, and one that was being taken may be. So another
    /// one is taken, unless etcd is being deleted already.
    pub(in super::super) fn saves_again(&mut self, now: Timestamp) {
        match &self.snapshot {
            LastSnapshot::Taken(_) | LastSnapshot::Wanted { save: Save::Leader(_) | Save::Taking(_), .. } => {
                self.saves_anew(self.etcd_stands(), now)
            }
            LastSnapshot::Wanted { save: Save::Failed(_), .. }
            | LastSnapshot::Complete(_)
            | LastSnapshot::Kept(_)
            | LastSnapshot::Declined
            | LastSnapshot::Needless => {}
        }
    }

    /// The newest order asks for a last snapshot, whatever an earlier one said. Whether there is an etcd is observed.
    pub(super) fn saves_anew(&mut self, etcd_stands: bool, now: Timestamp) {
        let is_complete = self.has_no_writers() && matches!(self.snapshot, LastSnapshot::Complete(_));
        if is_complete || !etcd_stands && self.snapshot.failure().is_none() {
            return;
        }
        let which = if self.has_no_writers() { Which::Second } else { Which::First };
        self.becomes(LastSnapshot::wanted(which, self.snapshot.key().cloned(), now));
    }

    /// A person orders to go without another snapshot.
    pub(super) fn does_without(&mut self) {
        match &self.snapshot {
            LastSnapshot::Wanted { earlier: None, .. } => self.becomes(LastSnapshot::Declined),
            LastSnapshot::Wanted { earlier: Some(key), .. } | LastSnapshot::Taken(key) => {
                self.becomes(LastSnapshot::Kept(key.clone()));
            }
            LastSnapshot::Complete(_)
            | LastSnapshot::Kept(_)
            | LastSnapshot::Declined
            | LastSnapshot::Needless => {}
        }
    }

    fn becomes(&mut self, next: LastSnapshot) {
        let moves = (snapshot_name(&self.snapshot), snapshot_name(&next));
        debug_assert!(leads(LAST_SNAPSHOT, moves.0, moves.1), "{moves:?}");
        self.snapshot = next;
    }

    /// Sets the progress of the snapshot that has to be taken.
    fn saves_by(&mut self, save: Save) {
        if let LastSnapshot::Wanted { which, earlier, .. } = &self.snapshot {
            self.becomes(LastSnapshot::Wanted { which: *which, save, earlier: earlier.clone() });
        }
    }

    /// It is taken and verified.
    fn saved(&mut self, which: Which, key: String) {
        self.becomes(match which {
            Which::First => LastSnapshot::Taken(key),
            Which::Second => LastSnapshot::Complete(key),
        });
    }

    /// There is no etcd.
    fn has_nothing_to_save(&mut self) {
        self.becomes(self.snapshot.key().cloned().map_or(LastSnapshot::Needless, LastSnapshot::Kept));
    }

    /// Sends members a command.
    pub(super) fn ask(
        &mut self,
        state: &Rollout,
        whom: Vec<(Role, String, Verb)>,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Round {
        self.rounds += 1;
        let prefix = format!("{} destroy {}", state.generation, self.attempt);
        let sender = Sender { owner: &prefix, cluster: &state.cluster, name: "etcd" };
        let round = Round::new(sender, self.rounds, whom, now);
        effects.extend(round.iter().map(|sent| Effect::Send(sent.command.clone())));
        round
    }
}

/// The groups that members of etcd may have.
pub(super) fn member_groups(cluster: &str) -> impl Iterator<Item = (Role, String)> {
    let stack = stack_name(cluster, StackKind::Etcd, "");
    (0..MOST_MEMBERS).map(move |index| (Role::Etcd(index), format!("{stack}-{index}")))
}

/// The members in service, and their machines.
pub(super) fn members(state: &Rollout, observed: &Observed) -> Vec<(Role, String)> {
    let found = member_groups(&state.cluster).filter_map(|(role, group)| {
        let group = observed.groups.get(&group)?.as_ref()?;
        let ours = group.tags.get(OWNER_TAG) == Some(&state.cluster);
        serving(group).next().filter(|_| ours).map(|(id, _)| (role, id.clone()))
    });
    found.collect()
}

/// Whether any group of members exists that is ours; `None` if not all were observed.
fn has_groups(state: &Rollout, observed: &Observed) -> Option<bool> {
    let is_ours = |group: &GroupView| group.tags.get(OWNER_TAG) == Some(&state.cluster);
    let found = member_groups(&state.cluster)
        .map(|(_, name)| observed.groups.get(&name).map(|group| group.as_ref().is_some_and(is_ours)));
    let found: Option<Vec<bool>> = found.collect();
    found.map(|found| found.contains(&true))
}

/// The messages of members that could not execute the command.
pub(super) fn failure_messages<T>(round: &Round, answers: &[Result<T, String>]) -> String {
    let why = round.iter().zip(answers);
    let why = why.filter_map(|(sent, answer)| Some(format!("{}: {}", sent.role, answer.as_ref().err()?)));
    why.collect::<Vec<_>>().join("; ")
}

/// Takes the second snapshot before `stack`, etcd's own, is deleted; `None` if there is no second one to take.
pub(super) fn save_again(
    state: &Rollout,
    open: &mut Destroy,
    stack: &StackView,
    observed: &Observed,
    now: Timestamp,
    effects: &mut Effects,
) -> Option<GoingWaits> {
    // Somebody else may have requested the deletion: then there is nothing left to wait for.
    if matches!(phase(stack.status), Phase::Busy) || !open.has_no_writers() {
        return None;
    }
    let LastSnapshot::Taken(key) = &open.snapshot else { return None };
    open.becomes(LastSnapshot::wanted(Which::Second, Some(key.clone()), now));
    Some(save(state, open, observed, now, effects))
}

/// Takes a snapshot on the leader.
pub(super) fn save(
    state: &Rollout,
    open: &mut Destroy,
    observed: &Observed,
    now: Timestamp,
    effects: &mut Effects,
) -> GoingWaits {
    match open.snapshot.clone() {
        LastSnapshot::Wanted { which, save: Save::Leader(inquiry), .. } => {
            finds_leader(state, open, which, inquiry, observed, now, effects)
        }
        LastSnapshot::Wanted { which, save: Save::Taking(inquiry), .. } => {
            match inquiry.round.only_answer::<SnapshotTaken>(observed, now) {
                None => takes(which),
                Some(Ok(taken)) => {
                    open.saved(which, taken.key.clone());
                    match which {
                        Which::First => GoingWaits::FirstTaken(taken.key),
                        Which::Second => GoingWaits::SnapshotTaken(taken.key),
                    }
                }
                Some(Err(why)) => retry_or_give_up(open, inquiry, &why, observed, now),
            }
        }
        LastSnapshot::Wanted { save: Save::Failed(why), .. } => GoingWaits::SnapshotHeld(Detail(why)),
        LastSnapshot::Taken(key) => GoingWaits::FirstTaken(key),
        LastSnapshot::Complete(key) | LastSnapshot::Kept(key) => GoingWaits::SnapshotTaken(key),
        LastSnapshot::Declined | LastSnapshot::Needless => GoingWaits::NoEtcd,
    }
}

const fn takes(which: Which) -> GoingWaits {
    match which {
        Which::First => GoingWaits::FirstSnapshot,
        Which::Second => GoingWaits::Snapshot,
    }
}

/// Finds the leader, and lets it take a snapshot.
fn finds_leader(
    state: &Rollout,
    open: &mut Destroy,
    which: Which,
    inquiry: Inquiry,
    observed: &Observed,
    now: Timestamp,
    effects: &mut Effects,
) -> GoingWaits {
    if let Some(why) = inquiry.pauses(now) {
        return GoingWaits::SnapshotHeld(Detail(why));
    }
    if inquiry.round.is_empty() {
        let machines = members(state, observed);
        if machines.is_empty() && !state.has_etcd() {
            match has_groups(state, observed) {
                None => return GoingWaits::LooksForMembers,
                Some(false) => {
                    open.has_nothing_to_save();
                    return GoingWaits::NoEtcd;
                }
                Some(true) => {}
            }
        }
        if machines.is_empty() {
            let why = "no member of etcd has a machine in service";
            return retry_or_give_up(open, inquiry, why, observed, now);
        }
        let whom = machines.into_iter().map(|(role, id)| (role, id, Verb::EtcdHealth)).collect();
        let round = open.ask(state, whom, now, effects);
        open.saves_by(Save::Leader(Inquiry { round, ..inquiry }));
        return GoingWaits::Leader;
    }
    let Some(answers) = inquiry.round.answers::<EtcdHealth>(observed, now) else { return GoingWaits::Leader };
    let leads =
        |(_, answer): &&(_, Result<EtcdHealth, String>)| answer.as_ref().is_ok_and(|health| health.leads);
    let leader = answers.iter().find(leads).map(|(sent, _)| (*sent).clone());
    let Some(leader) = leader else {
        let results: Vec<_> = answers.into_iter().map(|(_, answer)| answer).collect();
        let why = failure_messages(&inquiry.round, &results);
        let why = if why.is_empty() { why } else { format!(" ({why})") };
        let why = format!("no member of etcd leads{why}");
        return retry_or_give_up(open, inquiry, &why, observed, now);
    };
    let whom = vec![(leader.role, leader.command.instance, Verb::EtcdSnapshot)];
    let round = open.ask(state, whom, now, effects);
    open.saves_by(Save::Taking(Inquiry { round, ..inquiry }));
    takes(which)
}

/// Tried again in a minute, but not forever. Another member may lead by then.
fn retry_or_give_up(
    open: &mut Destroy,
    mut inquiry: Inquiry,
    why: &str,
    observed: &Observed,
    now: Timestamp,
) -> GoingWaits {
    open.saves_by(if inquiry.gives_up(why, observed, now) {
        Save::Failed(format!("the last snapshot cannot be taken: {why}"))
    } else {
        Save::Leader(inquiry)
    });
    GoingWaits::SnapshotHeld(Detail(why.to_owned()))
}
