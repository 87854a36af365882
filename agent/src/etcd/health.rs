//! `etcd health`: this member, and what it sees of the others.

use std::time::Duration;

use futures_util::future::join_all;
use slipway_core::node::{EtcdAlarm, EtcdHealth, EtcdMemberHealth};

use super::client::{CallError, CallResult, Endpoint, EtcdClient};
use super::local_member::LocalMember;
use super::wire::{Alarms, Member, Status, hex};
use crate::failure::AgentResult;

/// Another member that does not answer within this time counts as unreachable.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(3);
/// A metric of all releases; the status has the quota only since 3.6.
const QUOTA: &str = "etcd_server_quota_backend_bytes";

/// The health of this member. A member that does not answer is a result, not an error.
pub async fn health(local: &LocalMember) -> AgentResult<EtcdHealth> {
    let client = local.client()?;
    let own = local.endpoint(&client);
    let mut health = EtcdHealth {
        format: EtcdHealth::FORMAT,
        name: local.config.etcd.name.clone(),
        ..EtcdHealth::default()
    };
    match own.status().await {
        Ok(status) => observe_cluster(local, &client, &own, status, &mut health).await,
        Err(refusal) => health.problems.push(refusal.to_string()),
    }
    health.healthy = health.problems.is_empty();
    Ok(health)
}

async fn observe_cluster(
    local: &LocalMember,
    client: &EtcdClient,
    own: &Endpoint,
    first: Status,
    health: &mut EtcdHealth,
) {
    let id = first.header.member_id;
    let members = match members(local, client, own, first.is_learner).await {
        Ok(members) => members,
        Err(refusal) => {
            health.problems.push(format!("the members are not known: {refusal}"));
            Vec::new()
        }
    };
    let answers = join_all(members.iter().map(|member| async {
        if member.id == id {
            own.status_within(MEMBER_TIMEOUT).await
        } else {
            member_status(client, member).await
        }
    }));
    let (answers, serves, alarms) = tokio::join!(answers, own.serves(), own.alarms());
    // Read last, so that the leader's index, read before, is a lower bound.
    let status = own.status().await.unwrap_or(first);
    let leader = members
        .iter()
        .zip(&answers)
        .find(|(member, _)| member.id == status.leader)
        .and_then(|(_, answer)| answer.as_ref().ok());
    let leaders_index = leader.map(|leader| leader.raft_index);

    copy_status(&status, health);
    health.raft_lag = leaders_index.map(|index| index.saturating_sub(status.raft_applied_index));
    if status.leader == 0 {
        health.problems.push("etcd has no leader".to_owned());
    }
    health.problems.extend(status.errors.iter().map(|error| format!("etcd reports: {error}")));
    if status.is_learner {
        health.problems.push("it is a learner without a vote".to_owned());
    } else {
        match serves {
            Ok(()) => health.serving = true,
            Err(refusal) => health.problems.push(format!("it does not serve: {refusal}")),
        }
        add_alarms(alarms, health);
    }
    health.db_quota = quota(own, &status).await;
    health.members = members
        .iter()
        .zip(answers)
        .map(|(member, answer)| member_health(member, answer, leaders_index, status.leader))
        .collect();
    health.members.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
    for member in health.members.iter().filter(|member| !member.reachable) {
        let name = if member.name.is_empty() { &member.id } else { &member.name };
        let why = member.problem.as_deref().unwrap_or_default();
        health.problems.push(format!("{name} cannot be reached: {why}"));
    }
}

/// The size in bytes at which the member stops accepting writes.
pub(super) async fn quota(own: &Endpoint, status: &Status) -> Option<u64> {
    match status.db_size_quota {
        0 => own.gauge(QUOTA).await.ok().flatten(),
        quota => Some(quota),
    }
}

fn copy_status(status: &Status, health: &mut EtcdHealth) {
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

fn add_alarms(alarms: CallResult<Alarms>, health: &mut EtcdHealth) {
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

fn member_health(
    member: &Member,
    answer: CallResult<Status>,
    leaders_index: Option<u64>,
    leader: u64,
) -> EtcdMemberHealth {
    let mut member_health = EtcdMemberHealth {
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
            member_health.reachable = true;
            member_health.raft_lag =
                leaders_index.map(|index| index.saturating_sub(status.raft_applied_index));
            member_health.problem = (!status.errors.is_empty()).then(|| status.errors.join("; "));
        }
        Err(refusal) => member_health.problem = Some(refusal.to_string()),
    }
    member_health
}

/// All members. A learner does not list them, so the other members that the configuration names are asked.
async fn members(
    local: &LocalMember,
    client: &EtcdClient,
    own: &Endpoint,
    is_learner: bool,
) -> CallResult<Vec<Member>> {
    let mut result = Err(CallError::Unreachable(
        "it is a learner, and its configuration names no other member".to_owned(),
    ));
    if !is_learner {
        result = own.members().await;
    }
    for url in local.known_client_urls() {
        if result.is_ok() {
            break;
        }
        let answer = client.endpoint(&url).members().await;
        if answer.is_ok() || is_learner {
            result = answer;
        }
    }
    result.map(|result| result.members)
}

/// The status of another member, at the first of its addresses that answers.
pub(super) async fn member_status(client: &EtcdClient, member: &Member) -> CallResult<Status> {
    let mut answer = Err(CallError::Unreachable("it has not started yet".to_owned()));
    for url in &member.client_urls {
        answer = client.endpoint(url).status_within(MEMBER_TIMEOUT).await;
        if answer.is_ok() {
            break;
        }
    }
    answer
}
