//! The records that members of etcd set themselves in their hosted zone: a member takes them back, before etcd goes.
//!
//! No stack knows of them, and Route 53 deletes no zone that is not empty. Members are asked all at once, and one that does it is enough: it takes
//! back what it finds of its fellows, too, of those that are dead or left long ago. The stack is told to go by the same look that hears of it,
//! so that hardly any machine boots in between. A member's machine sets its record while it boots, so nobody is asked, and no answer counts,
//! while one of them boots; that is waited for as long as a boot may take. Where nobody can, etcd goes all the same, since its machines cost
//! money; if the zone is ours it then stays, and a person is told what to do. A machine that is launched in that moment has the same end.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::super::fleet::Lifecycle;
use super::super::nodes::PATIENCE;
use super::super::nodes::asks::answer;
use super::super::outbox::Effects;
use super::super::stack_step::{OWNER_TAG, Phase, phase};
use super::super::{Observed, ResourceFailure, Rollout, StackStatus, StackView};
use super::Destroy;
use super::save::{gives_up, member_groups, members, why_not};
use slipway_core::node::{RecordsRetired, Verb};
use slipway_core::render::ETCD_HOSTED_ZONE;

/// How far the records of the members of etcd are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Records {
    /// They may stand.
    #[default]
    Stand,
    /// Members are asked to take them back.
    Asked,
    /// A member took them back.
    TakenBack,
    /// Nobody could, and why.
    Left(String),
}

impl Records {
    /// Whether something is still to be done about them.
    pub(super) const fn are_open(&self) -> bool {
        matches!(self, Self::Stand | Self::Asked)
    }

    /// What of them may be left at the end.
    pub(super) fn left(&self) -> String {
        match self {
            Self::Left(why) => format!(
                "; in a hosted zone of your own, delete the A records of etcd's members, which nobody took back ({why})"
            ),
            Self::Stand | Self::Asked | Self::TakenBack => String::new(),
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
) -> Option<String> {
    let idle = stack.status != StackStatus::DeleteInProgress && !matches!(phase(stack.status), Phase::Busy);
    if held || !idle {
        // Machines may boot meanwhile, and set theirs again.
        open.records = Records::Stand;
        return None;
    }
    match open.records {
        Records::Stand => {
            open.records = Records::Asked;
            (open.since, open.tries) = (now, 0);
            open.asked.clear();
        }
        Records::Asked => {}
        Records::TakenBack | Records::Left(_) => return None,
    }
    let waits = "a member takes the records of etcd's members back".to_owned();
    if open.asked.is_empty() {
        if member_groups(&state.cluster).any(|(_, group)| !observed.groups.contains_key(&group)) {
            return Some(waits);
        }
        if let Some(waits) = boots(state, open, observed, now) {
            return Some(waits);
        }
        let whom = members(state, observed);
        if whom.is_empty() {
            return left(open, observed, "no member of etcd has a machine in service", now);
        }
        let whom = whom.into_iter().map(|(role, id)| (role, id, Verb::EtcdRetire)).collect();
        effects.extend(open.asks(&state.cluster, state.generation, whom, now));
        return Some(waits);
    }
    let said: Vec<_> =
        open.asked.iter().map(|asked| answer::<RecordsRetired>(asked, observed, now)).collect();
    if said.iter().flatten().any(Result::is_ok) {
        open.asked.clear();
        // It was launched after they were asked, and may have set its record after the answer.
        if let Some(waits) = boots(state, open, observed, now) {
            return Some(waits);
        }
        open.records = Records::TakenBack;
        return None;
    }
    let Some(said) = said.into_iter().collect::<Option<Vec<_>>>() else { return Some(waits) };
    let why = why_not(open, &said);
    left(open, observed, &why, now)
}

/// Why the records are not taken back yet: a member's machine boots, and would set its own again. `None`: none boots, or it has been
/// waited for as long as a boot may take.
fn boots(state: &Rollout, open: &Destroy, observed: &Observed, now: Timestamp) -> Option<String> {
    if now.duration_since(open.since) > PATIENCE {
        return None;
    }
    member_groups(&state.cluster).find_map(|(role, group)| {
        let group = observed.groups.get(&group)?.as_ref()?;
        let ours = group.tags.get(OWNER_TAG) == Some(&state.cluster);
        let mut booting =
            group.machines.iter().filter(|(_, one)| ours && one.lifecycle == Lifecycle::Pending);
        let (id, _) = booting.next()?;
        Some(format!("waits until {id} of {role} has booted, which sets its record meanwhile"))
    })
}

/// Nobody could: tried again, and not for ever, nor where there is no machine that could.
fn left(open: &mut Destroy, observed: &Observed, why: &str, now: Timestamp) -> Option<String> {
    let machines = observed.groups.values().flatten().any(|group| !group.machines.is_empty());
    if gives_up(open, now) || !machines {
        open.records = Records::Left(why.to_owned());
        return None;
    }
    Some(format!("waits to have the records of etcd's members taken back: {why}"))
}

/// What a person does about a zone of ours that still holds records: the exact command.
pub(super) fn cure(stack: &str, failures: &[ResourceFailure], records: &Records) -> String {
    if !failures.iter().any(|failure| failure.logical_id == ETCD_HOSTED_ZONE) {
        return String::new();
    }
    let why = match records {
        Records::Left(why) => format!(" (nobody took them back: {why})"),
        Records::Stand | Records::Asked | Records::TakenBack => String::new(),
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
