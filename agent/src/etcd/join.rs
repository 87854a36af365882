//! How a member joins a cluster that stands: as a learner, which slows nobody's vote down, and with a vote once it has
//! caught up.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde::Serialize;
use tokio::time::timeout;

use super::client::{Caller, Endpoint, Refusal, failed};
use super::place::Place;
use super::wire::{Member, Members, hex};
use crate::failure::{Failure, FailureCode, Outcome};

/// Another member may be joining: etcd takes one learner at a time.
const PATIENCE: Duration = Duration::from_secs(600);
/// A snapshot of gigabytes is sent to it first.
const CATCHING_UP: Duration = Duration::from_secs(1800);
/// A fellow that is there answers at once.
const ANSWER: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(500);

/// How a member finds the cluster that it joins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Joined {
    /// Whether it was added now, and was not a member before.
    pub added: bool,
    /// Its number.
    pub id: String,
    /// `--initial-cluster`, with `--initial-cluster-state existing`.
    pub initial_cluster: String,
}

/// What became of a learner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Promoted {
    /// Whether it got its vote now, and had none before.
    pub promoted: bool,
    /// Its number.
    pub id: String,
}

/// Has this member added as a learner, by whichever member answers; one that was added already is not added again.
///
/// # Errors
/// If nobody answers, or the cluster does not take it in time; if it was a member before and its data are gone.
pub async fn join(place: &Place) -> Outcome<Joined> {
    let caller = place.caller()?;
    let endpoints: Vec<Endpoint> = place.told().iter().map(|url| caller.at(url)).collect();
    if endpoints.is_empty() {
        return Err(Failure::lasting(
            FailureCode::JoinEndpoints,
            "the configuration names no member to ask",
            "this member founds its cluster, or its configuration was patched: see `joinEndpoints`",
        ));
    }
    let (start, peer_url) = (Instant::now(), place.peer_url());
    let mut at = 0;
    loop {
        let endpoint = &endpoints[at % endpoints.len()];
        let refusal = match ask(endpoint, &peer_url).await {
            Ok((added, member, members)) => {
                refuse_without_data(place, &member)?;
                return Ok(Joined {
                    added,
                    id: hex(member.id),
                    initial_cluster: initial_cluster(place, &members),
                });
            }
            Err(refusal) => refusal,
        };
        if start.elapsed() > PATIENCE {
            return Err(failed(&refusal, "asking to be added as a learner"));
        }
        // Another may answer, or the cluster be well in a moment.
        at += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether it was added, what it is, and all members.
async fn ask(endpoint: &Endpoint, peer_url: &str) -> Result<(bool, Member, Vec<Member>), Refusal> {
    let is_it = |member: &&Member| member.peer_urls.iter().any(|url| url == peer_url);
    let Members { members, .. } = endpoint.members().await?;
    if let Some(member) = members.iter().find(is_it).cloned() {
        return Ok((false, member, members));
    }
    // If the answer is lost, the next look finds it among the members.
    let Members { members, .. } = endpoint.add_learner(peer_url).await?;
    let added = members.iter().find(is_it).cloned();
    let added =
        added.ok_or_else(|| Refusal::Refused("it was added, and is not among the members".to_owned()))?;
    Ok((true, added, members))
}

/// Whether this founder, which has no data, is a member already of a cluster that stands: then it has lost them, and to found anew
/// would give it a vote without the memory of what it voted for. Where nobody answers, nothing stands that could say so.
///
/// # Errors
/// If a member says that it has run before.
pub async fn founds(place: &Place) -> Outcome<()> {
    let (caller, peer_url) = (place.caller()?, place.peer_url());
    let fellows: Vec<Endpoint> = place.told().iter().map(|url| caller.at(url)).collect();
    let asked = fellows.iter().map(|fellow| timeout(ANSWER, fellow.members()));
    for Members { members, .. } in join_all(asked).await.into_iter().flatten().flatten() {
        // Founders know one another's names from the start; where clients find a member, it says itself once it has run.
        let own = members.iter().find(|member| member.peer_urls.contains(&peer_url));
        if let Some(member) = own.filter(|member| !member.client_urls.is_empty()) {
            refuse_without_data(place, member)?;
        }
    }
    Ok(())
}

/// A member that has voted must not come back without its memory: it could vote twice.
fn refuse_without_data(place: &Place, member: &Member) -> Outcome<()> {
    if member.name.is_empty() || place.data().join("member").exists() {
        return Ok(());
    }
    Err(Failure::lasting(
        FailureCode::JoinData,
        format!(
            "{} is a member of the cluster ({}) that has run before, and its data are not here",
            place.config.etcd.name,
            hex(member.id)
        ),
        "bring back its volume, or remove the member first; then it joins as a new one",
    ))
}

fn initial_cluster(place: &Place, members: &[Member]) -> String {
    let own = place.peer_url();
    let named = members.iter().flat_map(|member| {
        let name = match member.name.as_str() {
            _ if member.peer_urls.contains(&own) => place.config.etcd.name.clone(),
            // It has not started yet either: etcd compares URLs, and wants any name.
            "" => hex(member.id),
            name => name.to_owned(),
        };
        member.peer_urls.iter().map(move |url| format!("{name}={url}"))
    });
    let mut named: Vec<String> = named.collect();
    named.sort();
    named.join(",")
}

/// Waits until this member, which runs, has caught up, and gives it a vote. One that has a vote already is left alone.
///
/// # Errors
/// If it does not catch up in time.
pub async fn promote(place: &Place) -> Outcome<Promoted> {
    let caller = place.caller()?;
    let own = place.own(&caller);
    let start = Instant::now();
    let mut promoted = false;
    loop {
        let refusal = match own.status().await {
            Ok(status) if !status.is_learner && status.leader != 0 => {
                return Ok(Promoted { promoted, id: hex(status.header.member_id) });
            }
            // It has not heard of itself yet.
            Ok(status) if status.header.member_id == 0 || !status.is_learner => None,
            Ok(status) => match give_vote(place, &caller, status.header.member_id).await {
                Ok(()) => {
                    promoted = true;
                    None
                }
                Err(refusal) => Some(refusal),
            },
            Err(refusal) => Some(refusal),
        };
        if start.elapsed() > CATCHING_UP {
            let refusal = refusal.unwrap_or_else(|| Refusal::Refused("it is still a learner".to_owned()));
            return Err(failed(&refusal, "waiting until the learner has caught up"));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// By the first fellow that answers: a learner cannot ask for itself.
async fn give_vote(place: &Place, caller: &Caller, id: u64) -> Result<(), Refusal> {
    let mut refusal = Refusal::Unreachable("it was told of no other member".to_owned());
    for url in place.told() {
        match caller.at(&url).promote(id).await {
            Ok(_) => return Ok(()),
            Err(why) => refusal = why,
        }
    }
    Err(refusal)
}
