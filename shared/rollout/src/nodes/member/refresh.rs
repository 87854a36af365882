//! Refreshing a member of etcd in place.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_core::deadline::Urgency;
use slipway_core::node::Verb;

use super::{Act, LOOK, MemberState, MemberWork, SNAPSHOT, To, VERIFY, still_serves, verifies};
use crate::errand::{Round, SentCommand};
use crate::fleet::GroupView;
use crate::nodes::Turn;
use crate::nodes::danger::Answers;
use crate::nodes::machine::{Move, Place, State, Tries};
use crate::nodes::members::refreshed;
use crate::outbox::{Evidence, Seen};
use crate::patience::CONSISTENT;
use crate::transitions::{Transition, Wakes};
use crate::waits::Waits;

/// The refresh of a member in place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RefreshMember {
    /// The digest of the new credentials.
    pub credentials: String,
    /// The machine that has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed: Option<String>,
}

/// The own state of a refresh: the machine of a member that the others can do without has the command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Refreshing {
    /// It installs the credentials.
    Refresh(SentCommand),
}

impl Act for Refreshing {
    const TRANSITIONS: &'static [Transition] = &[
        LOOK,
        SNAPSHOT,
        Transition::new(
            "check",
            "checks on all members whether they can do without it",
            &[Wakes::Command],
            &["refresh", "look", "failed"],
        ),
        Transition::new(
            "refresh",
            "it installs its new credentials",
            &[Wakes::Command],
            &["verify", "look", "failed"],
        ),
        VERIFY,
        Transition::DONE,
        Transition::FAILED,
    ];

    fn place(&self) -> Place {
        Place::Refresh
    }

    fn machine(&self) -> &String {
        let Self::Refresh(sent) = self;
        &sent.command.instance
    }

    fn commands(&self) -> &[SentCommand] {
        let Self::Refresh(sent) = self;
        std::slice::from_ref(sent)
    }

    fn commands_mut(&mut self) -> &mut [SentCommand] {
        let Self::Refresh(sent) = self;
        std::slice::from_mut(sent)
    }

    fn is_busy(&self) -> bool {
        true
    }
}

impl MemberWork<Refreshing> for RefreshMember {
    fn has_expired(&self, urgency: Urgency) -> bool {
        urgency.has_expired()
    }

    fn needs_successor(&self) -> bool {
        false
    }

    fn done(&self) -> Option<&String> {
        self.renewed.as_ref()
    }

    fn has_acted(&self) -> bool {
        self.renewed.is_some()
    }

    fn begin(
        &self,
        machine: String,
        round: &Round,
        _: &Answers,
        _: &Tries,
        turn: &mut Turn<'_>,
    ) -> To<Refreshing> {
        // With expired certificates, the decision is not based on the answers of the others.
        let evidence = if self.has_expired(turn.urgency) {
            Evidence::new(Seen::World, turn.now)
        } else {
            turn.evidence_of_members(round)
        };
        let verb = Verb::Refresh { credentials: self.credentials.clone(), restart: true };
        let sent = turn.ask_one_on(evidence, turn.role, machine, verb);
        Move::Enter(MemberState::Act(Refreshing::Refresh(sent)), Waits::Credentials(Vec::new()))
    }

    fn go_on(
        &mut self,
        act: Refreshing,
        tries: &mut Tries,
        _: Option<Timestamp>,
        turn: &mut Turn<'_>,
        group: &GroupView,
    ) -> To<Refreshing> {
        let Refreshing::Refresh(sent) = act;
        // It has gone, and does not answer any more. An answer of Auto Scaling may be from before it served.
        if !still_serves(&sent.command.instance, group) && sent.is_older_than(CONSISTENT, turn.now) {
            return Move::To(MemberState::start());
        }
        match refreshed(&sent, turn) {
            None => Move::Stay(MemberState::Act(Refreshing::Refresh(sent)), Waits::Credentials(Vec::new())),
            Some(Ok(())) => {
                self.renewed = Some(sent.command.instance);
                verifies(turn)
            }
            Some(Err(why)) => tries.again("refreshing", &sent.command.instance, &sent, &why, turn),
        }
    }
}
