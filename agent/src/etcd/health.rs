//! `etcd health`: this member, and what it sees of the others.

use std::time::Duration;

use futures_util::future::join_all;
use slipway_core::node::{EtcdAlarm, EtcdHealth, EtcdMemberHealth};

use super::client::{Answer, Caller, Endpoint, Refusal};
use super::place::Place;
use super::wire::{Alarms, Member, Status, hex};
use crate::failure::Outcome;

/// How long a fellow may take to answer before it counts as gone.
const PASSING: Duration = Duration::from_secs(3);
/// A gauge that all versions have; the status tells the quota since 3.6 alone.
const QUOTA: &str = "etcd_server_quota_backend_bytes";

/// How this member is. That it does not answer is an answer.
///
/// # Errors
/// If its configuration or credentials cannot be read.
pub async fn health(place: &Place) -> Outcome<EtcdHealth> {
    let caller = place.caller()?;
    let own = place.own(&caller);
    let mut health = EtcdHealth {
        format: EtcdHealth::FORMAT,
        name: place.config.etcd.name.clone(),
        ..EtcdHealth::default()
    };
    match own.status().await {
        Ok(status) => look(place, &caller, &own, status, &mut health).await,
        Err(refusal) => health.problems.push(refusal.to_string()),
    }
    health.healthy = health.problems.is_empty();
    Ok(health)
}

async fn look(place: &Place, caller: &Caller, own: &Endpoint, first: Status, health: &mut EtcdHealth) {
    let id = first.header.member_id;
    let members = match members(place, caller, own, first.is_learner).await {
        Ok(members) => members,
        Err(refusal) => {
            health.problems.push(format!("the members are not known: {refusal}"));
            Vec::new()
        }
    };
    let fellows = join_all(members.iter().map(|member| async {
        if member.id == id { own.status_within(PASSING).await } else { reach(caller, member).await }
    }));
    let (fellows, serves, alarms) = tokio::join!(fellows, own.serves(), own.alarms());
    // Asked last, so that what the leader had before is a floor and not a race.
    let status = own.status().await.unwrap_or(first);
    let leader = members
        .iter()
        .zip(&fellows)
        .find(|(member, _)| member.id == status.leader)
        .and_then(|(_, answer)| answer.as_ref().ok());
    let leaders_index = leader.map(|leader| leader.raft_index);

    tell(&status, health);
    health.behind = leaders_index.map(|index| index.saturating_sub(status.raft_applied_index));
    if status.leader == 0 {
        health.problems.push("there is no leader".to_owned());
    }
    health.problems.extend(status.errors.iter().map(|error| format!("it says of itself: {error}")));
    if status.is_learner {
        health.problems.push("it is a learner, and has no vote yet".to_owned());
    } else {
        match serves {
            Ok(()) => health.serving = true,
            Err(refusal) => health.problems.push(format!("it does not serve: {refusal}")),
        }
        judge_alarms(alarms, health);
    }
    health.db_quota = match status.db_size_quota {
        0 => own.gauge(QUOTA).await.ok().flatten(),
        quota => Some(quota),
    };
    health.members = members
        .iter()
        .zip(fellows)
        .map(|(member, answer)| seen(member, answer, leaders_index, status.leader))
        .collect();
    health.members.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
    for member in health.members.iter().filter(|member| !member.reachable) {
        let name = if member.name.is_empty() { &member.id } else { &member.name };
        let why = member.problem.as_deref().unwrap_or_default();
        health.problems.push(format!("{name} cannot be reached: {why}"));
    }
}

fn tell(status: &Status, health: &mut EtcdHealth) {
    health.id = Some(hex(status.header.member_id));
    health.cluster_id = Some(hex(status.header.cluster_id));
    health.version = Some(status.version.clone());
    health.learner = status.is_learner;
    health.leads = status.leader == status.header.member_id;
    health.leader = (status.leader != 0).then(|| hex(status.leader));
    health.term = status.raft_term;
    health.revision = status.header.revision;
    health.raft_index = status.raft_index;
    health.raft_applied_index = status.raft_applied_index;
    health.db_size = status.db_size;
    health.db_size_in_use = status.db_size_in_use;
}

fn judge_alarms(alarms: Answer<Alarms>, health: &mut EtcdHealth) {
    match alarms {
        Ok(alarms) => {
            for alarm in alarms.alarms {
                let alarm = EtcdAlarm { member: hex(alarm.member), kind: alarm.kind };
                health.problems.push(format!("the alarm {} of {} is raised", alarm.kind, alarm.member));
                health.alarms.push(alarm);
            }
        }
        Err(refusal) => health.problems.push(format!("the alarms are not known: {refusal}")),
    }
}

fn seen(
    member: &Member,
    answer: Answer<Status>,
    leaders_index: Option<u64>,
    leader: u64,
) -> EtcdMemberHealth {
    let mut seen = EtcdMemberHealth {
        id: hex(member.id),
        name: member.name.clone(),
        peer_urls: member.peer_urls.clone(),
        client_urls: member.client_urls.clone(),
        learner: member.is_learner,
        leads: member.id == leader,
        ..EtcdMemberHealth::default()
    };
    match answer {
        Ok(status) => {
            seen.reachable = true;
            seen.behind = leaders_index.map(|index| index.saturating_sub(status.raft_applied_index));
            seen.problem = (!status.errors.is_empty()).then(|| status.errors.join("; "));
        }
        Err(refusal) => seen.problem = Some(refusal.to_string()),
    }
    seen
}

/// All members; a learner does not say, so that its fellows are asked that it was told of.
async fn members(place: &Place, caller: &Caller, own: &Endpoint, is_learner: bool) -> Answer<Vec<Member>> {
    let mut answer = Err(Refusal::Unreachable("it is a learner, and was told of no other member".to_owned()));
    if !is_learner {
        answer = own.members().await;
    }
    for url in place.told() {
        if answer.is_ok() {
            break;
        }
        let fellow = caller.at(&url).members().await;
        if fellow.is_ok() || is_learner {
            answer = fellow;
        }
    }
    answer.map(|answer| answer.members)
}

/// A fellow's status, by the first of its addresses at which it answers.
pub(super) async fn reach(caller: &Caller, member: &Member) -> Answer<Status> {
    let mut answer = Err(Refusal::Unreachable("it has not started yet".to_owned()));
    for url in &member.client_urls {
        answer = caller.at(url).status_within(PASSING).await;
        if answer.is_ok() {
            break;
        }
    }
    answer
}
