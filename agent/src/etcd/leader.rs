//! `etcd move-leader`: before a member goes, somebody else leads, so that nobody waits for an election.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use slipway_core::node::LeaderMoved;
use slipway_core::node::answer::LeaderStays;

use super::client::{Endpoint, failed};
use super::health::reach;
use super::place::Place;
use super::wire::{Member, Status, hex};
use crate::failure::{Failure, FailureCode, Outcome};

/// How long the new leader may take to be known here.
const SETTLING: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);
/// A member that is this far behind would have to catch up before it could lead.
const BEHIND_AT_MOST: u64 = 1000;

/// Moves leadership away from this member, if it leads.
///
/// # Errors
/// If it does not answer, or nobody can take it over.
pub async fn move_leader(place: &Place) -> Outcome<LeaderMoved> {
    let caller = place.caller()?;
    let own = place.own(&caller);
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
    let answers = join_all(voters.iter().map(|member| reach(&caller, member))).await;
    let fit = voters.into_iter().zip(answers).filter_map(|(member, answer)| {
        let behind = status.raft_index.saturating_sub(answer.ok()?.raft_applied_index);
        let is_well = alarms.iter().all(|alarm| alarm.member != member.id || alarm.kind != "CORRUPT");
        (is_well && behind <= BEHIND_AT_MOST).then_some((behind, &member.name, member.id))
    });
    let Some((_, _, to)) = fit.min() else {
        return Err(Failure::passing(
            FailureCode::EtcdNobodyElse,
            format!(
                "{} leads, and no other voter answers that is well and close behind",
                place.config.etcd.name
            ),
            "mend the others first (`slipway-node etcd health` tells what is wrong with them), then run this again",
        ));
    };
    own.move_leader(to).await.map_err(|refusal| failed(&refusal, "moving leadership"))?;
    let status = settled(&own, id).await?;
    Ok(LeaderMoved { moved: true, leader: hex(status.leader), reason: None })
}

/// Waits until another member than `id` leads.
async fn settled(own: &Endpoint, id: u64) -> Outcome<Status> {
    let start = Instant::now();
    loop {
        match own.status().await {
            Ok(status) if status.leader != 0 && status.leader != id => return Ok(status),
            Ok(_) | Err(_) if start.elapsed() > SETTLING => return Err(nobody_leads()),
            Ok(_) | Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

fn nobody_leads() -> Failure {
    Failure::passing(
        FailureCode::EtcdNoLeader,
        "the cluster has no leader",
        "see that a majority of the members runs (`slipway-node etcd health` on each), then run this again",
    )
}
