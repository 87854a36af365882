//! The work on one member of etcd: a snapshot, a check of all other members, then a refresh or a replacement, and a check of all members
//! (P4).
//!
//! No earlier state is trusted: only the members' recent answers count.

mod refresh;
mod replace;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use slipway_core::deadline::Urgency;

use super::super::errand::{Round, SentCommand};
use super::super::fleet::GroupView;
use super::super::waits::{Asks, Boot, Boots, Comes, Many, ObservedParts, Waits};
use super::danger::{self, Answers};
use super::idle::is_idle_long_enough;
use super::machine::{Machine, Move, Place, State, Tries, waited};
use super::members::{
    answers, ask_everyone, gives_way, is_old, machine, no_snapshot, sees_who_leads, snapshot, take_snapshot,
    waits_for_members,
};
use super::{PATIENCE, Phase, Turn, is_current, serving};
use crate::transitions::{Transition, Wakes};

pub(crate) use refresh::{RefreshMember, Refreshing};
pub(crate) use replace::{ReplaceMember, Replacing};

/// The replacement or the refresh of a member: `W` says which, and `A` are the states of that work alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Member<W, A> {
    /// The kind of work.
    pub work: W,
    /// Failed tries.
    #[serde(default, skip_serializing_if = "Tries::is_none")]
    pub tries: Tries,
    /// The state of the work.
    pub phase: Phase<MemberState<A>>,
}

/// The states of a [`Member`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum MemberState<A> {
    /// Looks for the next work.
    Look {
        /// Since when there seems to be none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idle_since: Option<Timestamp>,
    },
    /// A snapshot is being taken.
    Snapshot {
        /// Its machine.
        machine: String,
        /// The command.
        sent: SentCommand,
    },
    /// All members are asked whether they can do without it.
    Check {
        /// Its machine.
        machine: String,
        /// The queries.
        round: Round,
    },
    /// The others can do without it: it is replaced or refreshed.
    Act(A),
    /// All members are asked whether they are healthy.
    Verify(Round),
}

/// What is done to a member.
pub(super) trait MemberWork<A> {
    /// Whether certificates have expired, which is why the others do not answer: waiting for their health would never end (P7).
    /// Certificates that only expire soon do not count: then quorum and the API are kept as always. Only a refresh can continue without the
    /// others.
    fn has_expired(&self, urgency: Urgency) -> bool;

    /// Whether another machine takes the member's place.
    fn needs_successor(&self) -> bool;

    /// The machine on which the work is done, if its group does not show that.
    fn done(&self) -> Option<&String>;

    /// Whether this rollout has changed the member. If so, the change may be the reason why another one is not healthy now.
    fn has_acted(&self) -> bool;

    /// Begins the work on `machine`, which the others can do without, according to `round`.
    fn begin(
        &self,
        machine: String,
        round: &Round,
        answers: &Answers,
        tries: &Tries,
        turn: &mut Turn<'_>,
    ) -> Move<MemberState<A>>;

    /// The next move from one of the work's own states.
    fn go_on(
        &mut self,
        act: A,
        tries: &mut Tries,
        since: Option<Timestamp>,
        turn: &mut Turn<'_>,
        group: &GroupView,
    ) -> Move<MemberState<A>>;
}

const LOOK: Transition = Transition::new(
    "look",
    "finds what has to be done; waits for its machine or for a window",
    &[Wakes::Machine],
    &["snapshot", "check", "verify", "done", "failed"],
);
const SNAPSHOT: Transition = Transition::new(
    "snapshot",
    "another member takes a snapshot",
    &[Wakes::Command],
    &["check", "look", "failed"],
);
const VERIFY: Transition = Transition::new(
    "verify",
    "checks the health of all members",
    &[Wakes::Command],
    &["look", "done", "failed"],
);

/// The own states of one kind of work on a member.
pub(super) trait Act {
    /// All states, and the moves from each.
    const TRANSITIONS: &'static [Transition];

    fn place(&self) -> Place;
    fn machine(&self) -> &String;
    fn commands(&self) -> &[SentCommand];
    fn commands_mut(&mut self) -> &mut [SentCommand];

    /// Whether the work should be completed before anything else begins.
    fn is_busy(&self) -> bool;
}

impl<A: Act> State for MemberState<A> {
    const TRANSITIONS: &'static [Transition] = A::TRANSITIONS;

    fn start() -> Self {
        Self::Look { idle_since: None }
    }

    fn place(&self) -> Place {
        match self {
            Self::Look { .. } => Place::Look,
            Self::Snapshot { .. } => Place::Snapshot,
            Self::Check { .. } => Place::Check,
            Self::Act(act) => act.place(),
            Self::Verify(_) => Place::Verify,
        }
    }

    fn machine(&self) -> Option<&String> {
        match self {
            Self::Snapshot { machine, .. } | Self::Check { machine, .. } => Some(machine),
            Self::Act(act) => Some(act.machine()),
            Self::Look { .. } | Self::Verify(_) => None,
        }
    }

    fn commands(&self) -> &[SentCommand] {
        match self {
            Self::Snapshot { sent, .. } => std::slice::from_ref(sent),
            Self::Check { round, .. } | Self::Verify(round) => round.as_slice(),
            Self::Act(act) => act.commands(),
            Self::Look { .. } => &[],
        }
    }

    fn commands_mut(&mut self) -> &mut [SentCommand] {
        match self {
            Self::Snapshot { sent, .. } => std::slice::from_mut(sent),
            Self::Check { round, .. } | Self::Verify(round) => round.as_mut_slice(),
            Self::Act(act) => act.commands_mut(),
            Self::Look { .. } => &mut [],
        }
    }

    fn is_busy(&self) -> bool {
        match self {
            Self::Act(act) => act.is_busy(),
            Self::Verify(_) => true,
            Self::Look { .. } | Self::Snapshot { .. } | Self::Check { .. } => false,
        }
    }

    fn not_sent(&self) -> Self {
        if let Self::Verify(_) = self { Self::Verify(Round::default()) } else { Self::start() }
    }
}

type To<A> = Move<MemberState<A>>;

/// Grace period after a refresh of expired certificates: those of others may not have expired, and they keep quorum and the API meanwhile.
const COMES_BACK: SignedDuration = SignedDuration::from_mins(3);

/// Whether it continues although another machine is unhealthy: certificates have expired, and the grace period is over.
pub(super) fn grace_is_over(has_expired: bool, since: Option<Timestamp>, now: Timestamp) -> bool {
    has_expired && waited(since, now) >= COMES_BACK
}

impl<W: MemberWork<A>, A: Act> Machine for Member<W, A> {
    type State = MemberState<A>;

    fn phase_mut(&mut self) -> &mut Phase<MemberState<A>> {
        &mut self.phase
    }

    fn tries_mut(&mut self) -> Option<&mut Tries> {
        Some(&mut self.tries)
    }

    fn next_move(
        &mut self,
        state: MemberState<A>,
        since: &mut Option<Timestamp>,
        turn: &mut Turn<'_>,
    ) -> To<A> {
        let Some(view) = turn.observed.groups.get(turn.group) else {
            return Move::Stay(state, Waits::Look(ObservedParts::Machine));
        };
        let Some(group) = view else { return Move::Fail(turn.no_group()) };
        match state {
            MemberState::Look { idle_since } => choose(self, idle_since, since, turn, group),
            MemberState::Snapshot { machine, sent } => match snapshot(&sent, turn) {
                None => Move::Stay(MemberState::Snapshot { machine, sent }, Waits::Snapshot),
                Some(Ok(())) => checks(machine, turn),
                Some(Err(why)) => self.tries.again("a snapshot before", &machine, &sent, &why, turn),
            },
            // The machine may be gone by now, or a person skipped it while the others were asked.
            MemberState::Check { machine: id, .. }
                if !still_serves(&id, group) || turn.skipped.contains(&id) =>
            {
                Move::To(MemberState::start())
            }
            MemberState::Check { machine, round } => {
                check(&self.work, machine, round, &mut self.tries, since, turn)
            }
            MemberState::Act(act) => self.work.go_on(act, &mut self.tries, *since, turn, group),
            MemberState::Verify(round) => verify(&self.work, round, since, turn),
        }
    }
}

/// Whether `id` is still the member's machine and in service.
fn still_serves(id: &String, group: &GroupView) -> bool {
    machine(group).as_ref() == Some(id)
}

/// Asks all members whether they can do without `machine`.
fn checks<A>(machine: String, turn: &mut Turn<'_>) -> To<A> {
    let round = ask_everyone(turn);
    Move::Enter(MemberState::Check { machine, round }, Waits::Answers(Asks::Members))
}

fn verifies<A>(turn: &mut Turn<'_>) -> To<A> {
    Move::Enter(MemberState::Verify(ask_everyone(turn)), Waits::Answers(Asks::Members))
}

fn choose<W: MemberWork<A>, A: Act>(
    member: &mut Member<W, A>,
    idle_since: Option<Timestamp>,
    since: &mut Option<Timestamp>,
    turn: &mut Turn<'_>,
    group: &GroupView,
) -> To<A> {
    let Some(id) = machine(group) else {
        since.get_or_insert(turn.now);
        let boots = Boot::pending_in(group, &turn.observed.booting);
        if waited(*since, turn.now) > PATIENCE {
            return Move::Fail(format!(
                "{} has no machine in service after {} minutes: {}",
                turn.group,
                PATIENCE.as_mins(),
                Boots(&boots)
            ));
        }
        return Move::Stay(MemberState::start(), Waits::Boot(Comes::Own, boots));
    };
    let work = &member.work;
    // The work is done already.
    if serving(group).any(|(id, machine)| is_current(group, machine) || work.done() == Some(id)) {
        *since = None;
        let idle_since = idle_since.unwrap_or(turn.now);
        if work.done().is_none() && !is_idle_long_enough(idle_since, turn.now) {
            let state = MemberState::Look { idle_since: Some(idle_since) };
            return Move::Stay(state, Waits::SecondLook(Many::One));
        }
        return verifies(turn);
    }
    if turn.skipped.contains(&id) {
        return Move::Done { skipped: true };
    }
    if !turn.may_start() {
        *since = None;
        return Move::Stay(MemberState::start(), turn.window());
    }
    member.tries.choose(&id);
    // With expired certificates there may be no majority to take a snapshot of; a refresh loses no data.
    if work.has_expired(turn.urgency) || danger::is_fresh_snapshot(*turn.snapshot_at, turn.now) {
        return checks(id, turn);
    }
    match take_snapshot(turn) {
        Some(sent) => Move::Enter(MemberState::Snapshot { machine: id, sent }, Waits::Snapshot),
        None if waited(*since, turn.now) > PATIENCE => Move::Fail(no_snapshot()),
        None => {
            since.get_or_insert(turn.now);
            Move::Stay(MemberState::start(), Waits::Snapshot)
        }
    }
}

fn check<A: Act>(
    work: &impl MemberWork<A>,
    machine: String,
    round: Round,
    tries: &mut Tries,
    since: &mut Option<Timestamp>,
    turn: &mut Turn<'_>,
) -> To<A> {
    let Some(answers) = answers(&round, turn) else {
        return Move::Stay(MemberState::Check { machine, round }, Waits::Answers(Asks::Members));
    };
    sees_who_leads(turn.role, &answers, tries);
    let cannot_launch = turn.group_cannot_launch().filter(|_| work.needs_successor());
    if let Some(danger) = cannot_launch {
        let checks = |round| MemberState::Check { machine, round };
        return waits_for_members(vec![danger], round, *since, turn, "may not be taken down", checks);
    }
    if !work.has_expired(turn.urgency) {
        let dangers = danger::of_member(Some(turn.role), &answers);
        let checks = |round| MemberState::Check { machine: machine.clone(), round };
        if !dangers.is_empty() {
            if gives_way(&answers, since, turn) {
                return Move::Stay(MemberState::start(), Waits::Dangers(dangers));
            }
            return waits_for_members(dangers, round, *since, turn, "may not be taken down", checks);
        }
        if let Some(first) = is_old(&round, *since, turn, checks) {
            return first;
        }
    }
    work.begin(machine, &round, &answers, tries, turn)
}

fn verify<A: Act>(
    work: &impl MemberWork<A>,
    round: Round,
    since: &mut Option<Timestamp>,
    turn: &mut Turn<'_>,
) -> To<A> {
    let round = if round.is_empty() { ask_everyone(turn) } else { round };
    let Some(answers) = answers(&round, turn) else {
        return Move::Stay(MemberState::Verify(round), Waits::Answers(Asks::Members));
    };
    let dangers = danger::of_member(None, &answers);
    // The others may still have the expired certificates; they are refreshed next.
    let is_last = turn.members.keys().next_back() == Some(turn.role);
    let may_wait_no_longer = grace_is_over(work.has_expired(turn.urgency), *since, turn.now) && !is_last;
    if dangers.is_empty() || may_wait_no_longer {
        return Move::Done { skipped: false };
    }
    let what = "is not healthy together with the others";
    if !work.has_acted() && gives_way(&answers, since, turn) {
        return Move::Stay(MemberState::start(), Waits::Dangers(dangers));
    }
    waits_for_members(dangers, round, *since, turn, what, MemberState::Verify)
}
