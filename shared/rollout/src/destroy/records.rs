//! The records that members of etcd set themselves in their hosted zone: a member takes them back, before etcd goes.
//!
//! No stack knows of them, and Route 53 deletes no zone that is not empty. Members are asked all at once, and one that does it is enough: it takes
//! back what it finds of its fellows, too, of those that are dead or left long ago. The stack is told to go by the same look that hears of it,
//! so that hardly any machine boots in between. A member's machine sets its record while it boots, so nobody is asked, and no answer counts,
//! while one of them boots; that is waited for as long as a boot may take. Where nobody can, etcd goes all the same, since its machines cost
//! money; if the zone is ours it then stays, and a person is told what to do. A machine that is launched in that moment has the same end.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_core::node::{RecordsRetired, Verb};
use slipway_core::release::ETCD_HOSTED_ZONE;

use super::super::errand::Round;
use super::super::fleet::Lifecycle;
use super::super::nodes::PATIENCE;
use super::super::outbox::Effects;
use super::super::stack_step::{OWNER_TAG, Phase, phase};
use super::super::waits::Detail;
use super::super::{Observed, ResourceFailure, Rollout, StackView};
use super::save::{Inquiry, member_groups, members, why_not};
use super::{Destroy, GoingWaits};

/// How far the records of the members of etcd are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Records {
    /// They may stand.
    #[default]
    Stand,
    /// Members are asked to take them back.
    Asked(Inquiry),
    /// A member took them back.
    TakenBack,
    /// Nobody could, and why.
    Left(String),
}

impl Records {
    /// Whether something is still to be done about them.
    pub(super) const fn are_open(&self) -> bool {
        matches!(self, Self::Stand | Self::Asked(_))
    }

    pub(super) const fn inquiry(&self) -> Option<&Inquiry> {
        match self {
            Self::Asked(inquiry) => Some(inquiry),
            Self::Stand | Self::TakenBack | Self::Left(_) => None,
        }
    }

    pub(super) const fn inquiry_mut(&mut self) -> Option<&mut Inquiry> {
        match self {
            Self::Asked(inquiry) => Some(inquiry),
            Self::Stand | Self::TakenBack | Self::Left(_) => None,
        }
    }

    /// What of them may be left at the end.
    pub(super) fn left(&self) -> String {
        match self {
            Self::Left(why) => format!(
                "; in a hosted zone of your own, delete the A records of etcd's members, which nobody took back ({why})"
            ),
            Self::Stand | Self::Asked(_) | Self::TakenBack => String::new(),
        }
    }
}

/// Has members take their records back before `stack`, etcd's own, goes; `None`: it may be told to.
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
        // Machines may boot meanwhile, and set theirs again.
        open.records = Records::Stand;
        return None;
    }
    let inquiry = match open.records.clone() {
        Records::Stand => Inquiry::new(now),
        Records::Asked(inquiry) => inquiry,
        Records::TakenBack | Records::Left(_) => return None,
    };
    let (records, waits) = take_back(state, open, inquiry, observed, now, effects);
    open.records = records;
    waits
}

/// What becomes of the records, and what is waited for.
fn take_back(
    state: &Rollout,
    open: &mut Destroy,
    inquiry: Inquiry,
    observed: &Observed,
    now: Timestamp,
    effects: &mut Effects,
) -> (Records, Option<GoingWaits>) {
    if inquiry.round.is_empty() {
        if member_groups(&state.cluster).any(|(_, group)| !observed.groups.contains_key(&group)) {
            return (Records::Asked(inquiry), Some(GoingWaits::Records));
        }
        if let Some(waits) = boots(state, &inquiry, observed, now) {
            return (Records::Asked(inquiry), Some(waits));
        }
        let whom = members(state, observed);
        if whom.is_empty() {
            return left(inquiry, observed, "no member of etcd has a machine in service", now);
        }
        let whom = whom.into_iter().map(|(role, id)| (role, id, Verb::EtcdRetire)).collect();
        let round = open.ask(state, whom, now, effects);
        return (Records::Asked(Inquiry { round, ..inquiry }), Some(GoingWaits::Records));
    }
    let said: Vec<_> =
        inquiry.round.iter().map(|asked| asked.answer::<RecordsRetired>(observed, now)).collect();
    if said.iter().flatten().any(Result::is_ok) {
        // It was launched after they were asked, and may have set its record after the answer.
        return match boots(state, &inquiry, observed, now) {
            Some(waits) => (Records::Asked(Inquiry { round: Round::default(), ..inquiry }), Some(waits)),
            None => (Records::TakenBack, None),
        };
    }
    let Some(said) = said.into_iter().collect::<Option<Vec<_>>>() else {
        return (Records::Asked(inquiry), Some(GoingWaits::Records));
    };
    let why = why_not(&inquiry.round, &said);
    left(inquiry, observed, &why, now)
}

/// Why the records are not taken back yet: a member's machine boots, and would set its own again. `None`: none boots, or it has been
/// waited for as long as a boot may take.
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

/// Nobody could: tried again, and not for ever, nor where there is no machine that could.
fn left(
    mut inquiry: Inquiry,
    observed: &Observed,
    why: &str,
    now: Timestamp,
) -> (Records, Option<GoingWaits>) {
    let machines = observed.groups.values().flatten().any(|group| !group.machines.is_empty());
    if inquiry.gives_up(now) || !machines {
        return (Records::Left(why.to_owned()), None);
    }
    (Records::Asked(inquiry), Some(GoingWaits::RecordsHeld(Detail(why.to_owned()))))
}

/// What a person does about a zone of ours that still holds records: the exact command.
pub(super) fn cure(stack: &str, failures: &[ResourceFailure], records: &Records) -> String {
    if !failures.iter().any(|failure| failure.logical_id == ETCD_HOSTED_ZONE) {
        return String::new();
    }
    let why = match records {
        Records::Left(why) => format!(" (nobody took them back: {why})"),
        Records::Stand | Records::Asked(_) | Records::TakenBack => String::new(),
    };
    format!(
        "; if the zone holds records of etcd's members{why}, this deletes them: zone=$(aws cloudformation describe-stack-resource \
         --stack-name {stack} --logical-resource-id {ETCD_HOSTED_ZONE} --query StackResourceDetail.PhysicalResourceId --output text); \
         aws route53 change-resource-record-sets --hosted-zone-id $zone --change-batch \"$(aws route53 list-resource-record-sets \
         --hosted-zone-id $zone --output json --query \"{{Changes: ResourceRecordSets[?Type=='A'].{{Action: 'DELETE', ResourceRecordSet: @}}}}\")\""
    )
}

/// The same, where nobody knows any more how it was with the records.
pub(crate) fn zone_cure(stack: &str, failures: &[ResourceFailure]) -> String {
    cure(stack, failures, &Records::Stand)
}
