//! The DNS records that members of etcd wrote to their hosted zone: a member deletes them before etcd is deleted.
//!
//! No stack knows of these records, and Route 53 deletes no zone that is not empty. All members get the command at the same time, and one
//! success is enough: a member deletes the records of all members, including dead ones. The look that reads the success also requests the
//! deletion of the stack, so that hardly any machine boots in between. A booting member writes its record. Therefore no command is sent,
//! and no answer counts, while a member's machine boots; the destruction waits for that as long as a boot may take. If no member can delete
//! the records, etcd is deleted nevertheless, because its machines cost money. If the zone is ours, it then remains, and a person is told
//! what to do. A machine that is launched at the wrong moment has the same result.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_core::node::{RecordsRetired, Verb};
use slipway_core::release::{StackKind, stack_name};

use super::super::errand::Round;
use super::super::fleet::{Lifecycle, OWNER_TAG};
use super::super::outbox::Effects;
use super::super::patience::PATIENCE;
use super::super::stack_step::{Phase, phase, zone_help};
use super::super::waits::Detail;
use super::super::{Observed, ResourceFailure, Rollout, StackView};
use super::save::{Inquiry, failure_messages, member_groups, members};
use super::{Destroy, GoingWaits};

/// The state of the records of etcd's members.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Records {
    /// They may exist.
    #[default]
    Stand,
    /// Members have the command to delete them.
    Deleting(Inquiry),
    /// A member has deleted them.
    TakenBack,
    /// No member could delete them; the reason.
    Left(String),
}

impl Records {
    /// Whether they still have to be deleted.
    pub(super) const fn are_open(&self) -> bool {
        matches!(self, Self::Stand | Self::Deleting(_))
    }

    pub(super) const fn inquiry(&self) -> Option<&Inquiry> {
        match self {
            Self::Deleting(inquiry) => Some(inquiry),
            Self::Stand | Self::TakenBack | Self::Left(_) => None,
        }
    }

    pub(super) const fn inquiry_mut(&mut self) -> Option<&mut Inquiry> {
        match self {
            Self::Deleting(inquiry) => Some(inquiry),
            Self::Stand | Self::TakenBack | Self::Left(_) => None,
        }
    }

    /// Which records may remain at the end.
    pub(super) fn undeleted_words(&self) -> String {
        match self {
            Self::Left(why) => format!(
                "; in a hosted zone of your own, delete the A records of etcd's members, which no member deleted ({why})"
            ),
            Self::Stand | Self::Deleting(_) | Self::TakenBack => String::new(),
        }
    }
}

/// Lets members delete their records before `stack`, etcd's own, is deleted; `None` if the stack may be deleted.
pub(super) fn retire(
    state: &Rollout,
    open: &mut Destroy,
    stack: &StackView,
    held: bool,
    observed: &Observed,
    now: Timestamp,
    effects: &mut Effects,
) -> Option<GoingWaits> {
    if held || matches!(phase(stack.status), Phase::Busy) {
        // Machines may boot meanwhile and write their records again.
        open.records = Records::Stand;
        return None;
    }
    let inquiry = match open.records.clone() {
        Records::Stand => Inquiry::new(now),
        Records::Deleting(inquiry) => inquiry,
        Records::TakenBack | Records::Left(_) => return None,
    };
    let (records, waits) = take_back(state, open, inquiry, observed, now, effects);
    open.records = records;
    waits
}

/// Deletes the records, or says what it waits for.
fn take_back(
    state: &Rollout,
    open: &mut Destroy,
    inquiry: Inquiry,
    observed: &Observed,
    now: Timestamp,
    effects: &mut Effects,
) -> (Records, Option<GoingWaits>) {
    if let Some(why) = inquiry.pauses(now) {
        return (Records::Deleting(inquiry), Some(GoingWaits::RecordsHeld(Detail(why))));
    }
    if inquiry.round.is_empty() {
        if member_groups(&state.cluster).any(|(_, group)| !observed.groups.contains_key(&group)) {
            return (Records::Deleting(inquiry), Some(GoingWaits::Records));
        }
        if let Some(waits) = boots(state, &inquiry, observed, now) {
            return (Records::Deleting(inquiry), Some(waits));
        }
        let whom = members(state, observed);
        if whom.is_empty() {
            return retry_or_give_up(inquiry, observed, "no member of etcd has a machine in service", now);
        }
        let whom = whom.into_iter().map(|(role, id)| (role, id, Verb::EtcdRetire)).collect();
        open.retired = true;
        let round = open.ask(state, whom, now, effects);
        return (Records::Deleting(Inquiry { round, ..inquiry }), Some(GoingWaits::Records));
    }
    let answers: Vec<_> =
        inquiry.round.iter().map(|sent| sent.answer::<RecordsRetired>(observed, now)).collect();
    if answers.iter().flatten().any(Result::is_ok) {
        // It was launched after the command was sent, and may have written its record after the answer.
        return match boots(state, &inquiry, observed, now) {
            Some(waits) => (Records::Deleting(Inquiry { round: Round::default(), ..inquiry }), Some(waits)),
            None => (Records::TakenBack, None),
        };
    }
    let Some(answers) = answers.into_iter().collect::<Option<Vec<_>>>() else {
        return (Records::Deleting(inquiry), Some(GoingWaits::Records));
    };
    let why = failure_messages(&inquiry.round, &answers);
    retry_or_give_up(inquiry, observed, &why, now)
}

/// Why the records are not deleted yet: a member's machine boots, and would write its own again. `None` if none boots, or the longest boot
/// time is over.
fn boots(state: &Rollout, inquiry: &Inquiry, observed: &Observed, now: Timestamp) -> Option<GoingWaits> {
    if now.duration_since(inquiry.since) > PATIENCE {
        return None;
    }
    member_groups(&state.cluster).find_map(|(role, group)| {
        let group = observed.groups.get(&group)?.as_ref()?;
        let ours = group.tags.get(OWNER_TAG) == Some(&state.cluster);
        let mut booting =
            group.machines.iter().filter(|(_, one)| ours && one.lifecycle == Lifecycle::Pending);
        let (machine, _) = booting.next()?;
        Some(GoingWaits::RecordsBoot { machine: machine.clone(), role })
    })
}

/// No member could delete them: tried again, but not forever, and not if there is no machine that could.
fn retry_or_give_up(
    mut inquiry: Inquiry,
    observed: &Observed,
    why: &str,
    now: Timestamp,
) -> (Records, Option<GoingWaits>) {
    let machines = observed.groups.values().flatten().any(|group| !group.machines.is_empty());
    if inquiry.gives_up(why, observed, now) || !machines {
        return (Records::Left(why.to_owned()), None);
    }
    (Records::Deleting(inquiry), Some(GoingWaits::RecordsHeld(Detail(why.to_owned()))))
}

/// What a person does if etcd stays after all and its records may be gone: nothing but a boot writes them (agent/src/bootstrap/steps.rs), and
/// members and API servers find each other by them.
pub(super) fn missing(state: &Rollout, open: &Destroy) -> String {
    if !open.retired || !state.has_etcd() {
        return String::new();
    }
    let group = stack_name(&state.cluster, StackKind::Etcd, "");
    format!(
        "; members of etcd were told to delete their DNS records, so first reboot the machines of the groups {group}-0 and so on, one after \
         the other, which writes them again: aws ec2 reboot-instances --instance-ids i-…"
    )
}

/// What a person does about a zone of ours that still has records ([`zone_help`]).
pub(super) fn help(stack: &str, failures: &[ResourceFailure], records: &Records) -> String {
    let why = match records {
        Records::Left(why) => format!(" (no member deleted them: {why})"),
        Records::Stand | Records::Deleting(_) | Records::TakenBack => String::new(),
    };
    zone_help(stack, failures, &why)
}
