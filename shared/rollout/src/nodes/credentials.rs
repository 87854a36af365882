//! Refreshing workers in place: first one, then as many as the pool allows. They are not drained: their pods keep running while the
//! kubelets restart.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::transitions::{Transition, Wakes};

use super::super::errand::{Round, SentCommand};
use super::super::fleet::{GroupView, MachineView};
use super::super::waits::{Boot, Comes, Many, ObservedParts, Waits};
use super::idle::is_idle_long_enough;
use super::machine::{Machine, Move, Place, State, Tries, waited};
use super::members::refreshed;
use super::{AT_A_TIME, CONSISTENT, PATIENCE, Phase, Turn, counting, is_current, serves, serving, stands_by};
use slipway_core::cluster::Pace;
use slipway_core::node::Verb;

/// The refresh of a pool's workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PoolRefresh {
    /// Digest of the new credentials.
    pub credentials: String,
    /// How many workers may be refreshed at a time.
    pub pace: Pace,
    /// Failed tries.
    #[serde(default, skip_serializing_if = "Tries::is_none")]
    pub tries: Tries,
    /// Workers that have their new credentials.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub done: BTreeSet<String>,
    /// The state of the work.
    pub phase: Phase<PoolRefreshState>,
}

/// The states of a [`PoolRefresh`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum PoolRefreshState {
    /// Looks for the next work.
    Look {
        /// Since when there seems to be none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idle_since: Option<Timestamp>,
    },
    /// Machines install their credentials.
    Refresh(Round),
}

impl State for PoolRefreshState {
    const TRANSITIONS: &'static [Transition] = &[
        Transition::new(
            "look",
            "finds the machines that still have the old credentials; waits for a window",
            &[Wakes::Machine],
            &["refresh", "done", "failed"],
        ),
        Transition::new(
            "refresh",
            "some machines install the new credentials",
            &[Wakes::Command],
            &["look", "failed"],
        ),
        Transition::DONE,
        Transition::FAILED,
    ];

    fn start() -> Self {
        Self::Look { idle_since: None }
    }

    fn place(&self) -> Place {
        match self {
            Self::Look { .. } => Place::Look,
            Self::Refresh(_) => Place::Refresh,
        }
    }

    fn commands(&self) -> &[SentCommand] {
        match self {
            Self::Refresh(round) => round.as_slice(),
            Self::Look { .. } => &[],
        }
    }

    fn commands_mut(&mut self) -> &mut [SentCommand] {
        match self {
            Self::Refresh(round) => round.as_mut_slice(),
            Self::Look { .. } => &mut [],
        }
    }

    fn is_busy(&self) -> bool {
        match self {
            Self::Refresh(_) => true,
            Self::Look { .. } => false,
        }
    }
}

/// The machines in service that still have to change: not `done`, and not skipped.
pub(super) fn outdated<'g>(
    done: &BTreeSet<String>,
    turn: &Turn<'_>,
    group: &'g GroupView,
) -> Vec<&'g String> {
    let found = serving(group).filter(|(id, machine)| {
        !is_current(group, machine) && !done.contains(*id) && !turn.skipped.contains(*id)
    });
    found.map(|(id, _)| id).collect()
}

/// Whether machines that still have to change are booting.
pub(super) fn earlier_boot(done: &BTreeSet<String>, turn: &Turn<'_>, group: &GroupView) -> bool {
    counting(group)
        .any(|(id, machine)| !is_current(group, machine) && !done.contains(id) && !turn.skipped.contains(id))
}

/// The machines that are refreshed in that round.
fn takers(round: &Round) -> Waits {
    Waits::Credentials(round.iter().map(|sent| sent.command.instance.clone()).collect())
}

type To = Move<PoolRefreshState>;

impl Machine for PoolRefresh {
    type State = PoolRefreshState;

    fn phase_mut(&mut self) -> &mut Phase<PoolRefreshState> {
        &mut self.phase
    }

    fn tries_mut(&mut self) -> Option<&mut Tries> {
        Some(&mut self.tries)
    }

    fn next_move(
        &mut self,
        state: PoolRefreshState,
        since: &mut Option<Timestamp>,
        turn: &mut Turn<'_>,
    ) -> To {
        let Some(view) = turn.observed.groups.get(turn.group) else {
            return Move::Stay(state, Waits::Look(ObservedParts::Machines));
        };
        let Some(group) = view else { return Move::Fail(turn.no_group()) };
        match state {
            PoolRefreshState::Look { idle_since } => self.choose(idle_since, since, turn, group),
            PoolRefreshState::Refresh(round) => self.refresh(round, turn, group),
        }
    }
}

impl PoolRefresh {
    fn choose(
        &mut self,
        idle_since: Option<Timestamp>,
        since: &mut Option<Timestamp>,
        turn: &mut Turn<'_>,
        group: &GroupView,
    ) -> To {
        let outdated = outdated(&self.done, turn, group);
        let Some(first) = outdated.first() else {
            since.get_or_insert(turn.now);
            // An old machine that is still booting has to be in service first.
            if earlier_boot(&self.done, turn, group) && waited(*since, turn.now) <= PATIENCE {
                let boots = Boot::pending_in(group, &turn.observed.booting);
                return Move::Stay(PoolRefreshState::start(), Waits::Boot(Comes::Earlier, boots));
            }
            let idle_since = idle_since.unwrap_or(turn.now);
            if self.done.is_empty() && !is_idle_long_enough(idle_since, turn.now) {
                let state = PoolRefreshState::Look { idle_since: Some(idle_since) };
                return Move::Stay(state, Waits::SecondLook(Many::Several));
            }
            let renewed =
                |id: &String, machine: &MachineView| self.done.contains(id) || is_current(group, machine);
            let skipped = serving(group).any(|(id, _)| turn.skipped.contains(id));
            return Move::Done { skipped: skipped || stands_by(group, renewed) };
        };
        *since = None;
        if !turn.may_start() {
            return Move::Stay(PoolRefreshState::start(), turn.window());
        }
        self.tries.choose(first);
        // Before the first worker is refreshed, no other is.
        let machines = u32::try_from(counting(group).count()).unwrap_or(u32::MAX);
        let width =
            if self.done.is_empty() { 1 } else { self.pace.max_missing(machines).clamp(1, AT_A_TIME) };
        let verb = Verb::Refresh { credentials: self.credentials.clone(), restart: true };
        let whom = outdated.into_iter().take(width as usize);
        let round = turn.ask(whom.map(|id| (turn.role.clone(), id.clone(), verb.clone())).collect());
        let waits = takers(&round);
        Move::Enter(PoolRefreshState::Refresh(round), waits)
    }

    fn refresh(&mut self, round: Round, turn: &Turn<'_>, group: &GroupView) -> To {
        // Those that have gone do not answer any more. An answer of Auto Scaling may be from before they served.
        let gone = |sent: &SentCommand| {
            !serves(group, &sent.command.instance) && sent.is_older_than(CONSISTENT, turn.now)
        };
        let gone = round.iter().filter(|sent| gone(sent)).map(|sent| sent.command.instance.clone()).collect();
        let round = round.without(&gone);
        let took: Option<Vec<_>> = round.iter().map(|sent| Some((sent, refreshed(sent, turn)?))).collect();
        let Some(took) = took else {
            let waits = takers(&round);
            return Move::Stay(PoolRefreshState::Refresh(round), waits);
        };
        // Of several failures the first counts: its machine is the first one to be tried again.
        let mut failed = None;
        for (sent, has) in took {
            match has {
                Ok(()) => {
                    self.done.insert(sent.command.instance.clone());
                }
                Err(why) => {
                    failed.get_or_insert((sent, why));
                }
            }
        }
        match failed {
            None => {
                self.tries.forget();
                Move::To(PoolRefreshState::start())
            }
            Some((sent, why)) => self.tries.again("refreshing", &sent.command.instance, sent, &why, turn),
        }
    }
}
