//! `etcd move-leader`: before a member is taken down, another one leads, so that clients do not wait for an election.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use slipway_core::node::LeaderMoved;
use slipway_core::node::answer::LeaderStays;
use slipway_core::node::defragment::CORRUPT;

use super::client::{Endpoint, failed};
use super::health::member_status;
use super::local_member::LocalMember;
use super::wire::{Member, Status, hex};
use crate::failure::{AgentError, AgentResult, FailureCode};

/// How long this member may take to learn of the new leader.
const SETTLING: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);
/// A member further behind would first have to catch up.
const BEHIND_AT_MOST: u64 = 1000;

/// Moves leadership to another member, if this one leads.
pub async fn move_leader(local: &LocalMember) -> AgentResult<LeaderMoved> {
    let client = local.client()?;
    let own = local.endpoint(&client);
    let status = own.status().await.map_err(|refusal| failed(&refusal, "asking who leads"))?;
    let id = status.header.member_id;
    if status.leader == 0 {
        return Err(nobody_leads());
    }
    let stays = |reason: LeaderStays| LeaderMoved {
        moved: false,
        leader: hex(status.leader),
        reason: Some(reason.into()),
    };
    if status.leader != id {
        return Ok(stays(LeaderStays::AnotherLeads));
    }
    let members = own.members().await.map_err(|refusal| failed(&refusal, "asking for the members"))?;
    let voters: Vec<&Member> =
        members.members.iter().filter(|member| member.id != id && !member.is_learner).collect();
    if voters.is_empty() {
        return Ok(stays(LeaderStays::NoOtherVoter));
    }
    let alarms = own.alarms().await.map_err(|refusal| failed(&refusal, "asking for alarms"))?.alarms;
    let answers = join_all(voters.iter().map(|member| member_status(&client, member))).await;
    let fit = voters.into_iter().zip(answers).filter_map(|(member, answer)| {
        let entries_behind = status.raft_index.saturating_sub(answer.ok()?.raft_applied_index);
        let is_well = alarms.iter().all(|alarm| alarm.member != member.id || alarm.kind != CORRUPT);
        (is_well && entries_behind <= BEHIND_AT_MOST).then_some((entries_behind, &member.name, member.id))
    });
    let Some((_, _, to)) = fit.min() else {
        return Err(AgentError::transient(
            FailureCode::EtcdNoOtherVoter,
            format!(
                "{} leads, and no other voter is reachable, healthy and close enough behind to take over",
                local.config.etcd.name
            ),
            "repair the other members first (see `/var/lib/slipway/slipway-node etcd health`), then run this again",
        ));
    };
    own.move_leader(to).await.map_err(|refusal| failed(&refusal, "moving leadership"))?;
    let status = wait_for_leader(&own, id).await?;
    Ok(LeaderMoved { moved: true, leader: hex(status.leader), reason: None })
}

async fn wait_for_leader(own: &Endpoint, id: u64) -> AgentResult<Status> {
    let start = Instant::now();
    loop {
        match own.status().await {
            Ok(status) if status.leader != 0 && status.leader != id => return Ok(status),
            Ok(_) | Err(_) if start.elapsed() > SETTLING => return Err(nobody_leads()),
            Ok(_) | Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

fn nobody_leads() -> AgentError {
    AgentError::transient(
        FailureCode::EtcdNoLeader,
        "the cluster has no leader",
        "see that a majority of the members runs (`/var/lib/slipway/slipway-node etcd health` on each), then run this again",
    )
}
