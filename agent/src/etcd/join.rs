//! How a member joins a running cluster: first as a learner, which does not count for the quorum, then with a vote once it has
//! caught up.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde::Serialize;
use tokio::time::timeout;

use super::client::{CallError, Endpoint, EtcdClient, failed};
use super::local_member::LocalMember;
use super::wire::{Member, Members, hex};
use crate::failure::{AgentError, AgentResult, FailureCode};

/// etcd takes one learner at a time, so another member may have to finish first.
const ADD_TIMEOUT: Duration = Duration::from_secs(600);
/// The leader may have to send it a snapshot of gigabytes.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(1800);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(500);

/// The result of joining.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Joined {
    /// `false` if it was a member before.
    pub added: bool,
    pub id: String,
    /// The value for `--initial-cluster`, to be used with `--initial-cluster-state existing`.
    pub initial_cluster: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Promoted {
    /// `false` if it had a vote before.
    pub promoted: bool,
    pub id: String,
}

/// Adds this member as a learner, through whichever member answers. Safe to repeat. Refuses a member that has run before and lost
/// its data.
pub async fn join(local: &LocalMember) -> AgentResult<Joined> {
    let client = local.client()?;
    let endpoints: Vec<Endpoint> = local.known_client_urls().iter().map(|url| client.endpoint(url)).collect();
    if endpoints.is_empty() {
        return Err(AgentError::permanent(
            FailureCode::JoinEndpoints,
            "the configuration names no member of the cluster to join",
            "render the cluster again; if a patch changes `joinEndpoints`, correct the patch",
        ));
    }
    let (start, peer_url) = (Instant::now(), local.peer_url());
    let mut at = 0;
    loop {
        let endpoint = &endpoints[at % endpoints.len()];
        let refusal = match find_or_add(endpoint, &peer_url).await {
            Ok((added, member, members)) => {
                refuse_without_data(local, &member)?;
                return Ok(Joined {
                    added,
                    id: hex(member.id),
                    initial_cluster: initial_cluster(local, &members),
                });
            }
            Err(refusal) => refusal,
        };
        if start.elapsed() > ADD_TIMEOUT {
            return Err(failed(&refusal, "joining as a learner"));
        }
        // Another member may answer, or the cluster may recover.
        at += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether it was added, the member itself, and all members.
async fn find_or_add(endpoint: &Endpoint, peer_url: &str) -> Result<(bool, Member, Vec<Member>), CallError> {
    let is_it = |member: &&Member| member.peer_urls.iter().any(|url| url == peer_url);
    let Members { members, .. } = endpoint.members().await?;
    if let Some(member) = members.iter().find(is_it).cloned() {
        return Ok((false, member, members));
    }
    // If the answer is lost, the next try finds the member in the list.
    let Members { members, .. } = endpoint.add_learner(peer_url).await?;
    let added = members.iter().find(is_it).cloned();
    let added = added.ok_or_else(|| {
        CallError::Refused("etcd answered that it was added, but does not list it as a member".to_owned())
    })?;
    Ok((true, added, members))
}

/// How a founder without data starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FounderStart {
    /// It founds the cluster with the others.
    Founds,
    /// It was removed from the cluster, and joins it as a new member.
    Joins,
}

/// How a founder without data starts. Refused if it has run in this cluster before and is still a member: it would get a vote without
/// remembering its previous votes. If no other member answers, the cluster is new.
///
/// Founders list each other by name from the start, so one that is not listed was removed. It must not found again: etcd computes a founder's
/// id from its URL and the token (etcd `server/etcdserver/api/membership/member.go`, `NewMember`), and the others refuse a removed id.
pub async fn check_founder(local: &LocalMember) -> AgentResult<FounderStart> {
    let (client, peer_url) = (local.client()?, local.peer_url());
    let others: Vec<Endpoint> = local.known_client_urls().iter().map(|url| client.endpoint(url)).collect();
    let answers = others.iter().map(|other| timeout(ANSWER_TIMEOUT, other.members()));
    let mut start = FounderStart::Founds;
    for Members { members, .. } in join_all(answers).await.into_iter().flatten().flatten() {
        let own = members.iter().find(|member| member.peer_urls.contains(&peer_url));
        // A member publishes its client URLs only once it has run.
        if let Some(member) = own.filter(|member| !member.client_urls.is_empty()) {
            refuse_without_data(local, member)?;
        }
        // Without a name, an earlier run added it again, and it has not started since.
        if !members.is_empty() && own.is_none_or(|member| member.name.is_empty()) {
            start = FounderStart::Joins;
        }
    }
    Ok(start)
}

/// A member that has voted must not return without its data: it could vote twice.
fn refuse_without_data(local: &LocalMember, member: &Member) -> AgentResult<()> {
    if member.name.is_empty() || local.data().join("member").exists() {
        return Ok(());
    }
    Err(AgentError::permanent(
        FailureCode::JoinData,
        format!(
            "{} is already a member of the cluster ({}) and has run before, but its data directory is empty",
            local.config.etcd.name,
            hex(member.id)
        ),
        "attach its volume again, or remove the member from the cluster first (`/var/lib/slipway/slipway-node etcd remove`); then it joins as a new member",
    ))
}

fn initial_cluster(local: &LocalMember, members: &[Member]) -> String {
    let own = local.peer_url();
    let named = members.iter().flat_map(|member| {
        let name = match member.name.as_str() {
            _ if member.peer_urls.contains(&own) => local.config.etcd.name.clone(),
            // It has not started yet. etcd compares the URLs and accepts any name.
            "" => hex(member.id),
            name => name.to_owned(),
        };
        member.peer_urls.iter().map(move |url| format!("{name}={url}"))
    });
    let mut named: Vec<String> = named.collect();
    named.sort();
    named.join(",")
}

/// Waits until this running member has caught up, and gives it a vote. A voter is left alone.
pub async fn promote(local: &LocalMember) -> AgentResult<Promoted> {
    let client = local.client()?;
    let own = local.endpoint(&client);
    let start = Instant::now();
    let mut promoted = false;
    loop {
        let refusal = match own.status().await {
            Ok(status) if !status.is_learner && status.leader != 0 => {
                return Ok(Promoted { promoted, id: hex(status.header.member_id) });
            }
            // It does not know its own id yet.
            Ok(status) if status.header.member_id == 0 || !status.is_learner => None,
            Ok(status) => match give_vote(local, &client, status.header.member_id).await {
                Ok(()) => {
                    promoted = true;
                    None
                }
                Err(refusal) => Some(refusal),
            },
            Err(refusal) => Some(refusal),
        };
        if start.elapsed() > CATCH_UP_TIMEOUT {
            let refusal = refusal.unwrap_or_else(|| CallError::Refused("it is still a learner".to_owned()));
            return Err(failed(&refusal, "waiting for the learner to catch up"));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Through the first other member that answers: a learner cannot promote itself.
async fn give_vote(local: &LocalMember, client: &EtcdClient, id: u64) -> Result<(), CallError> {
    let mut refusal = CallError::Unreachable("the configuration names no other member".to_owned());
    for url in local.known_client_urls() {
        match client.endpoint(&url).promote(id).await {
            Ok(_) => return Ok(()),
            Err(why) => refusal = why,
        }
    }
    Err(refusal)
}
