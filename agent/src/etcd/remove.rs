//! `etcd remove`: removes another member from the cluster, before its group is deleted.

use std::time::{Duration, Instant};

use slipway_core::node::MemberRemoved;

use super::client::{CallError, Endpoint, failed};
use super::local_member::LocalMember;
use super::wire::hex;
use crate::failure::{AgentError, AgentResult, FailureCode};

/// etcd refuses until the remaining members have been connected to each other for five seconds (`--strict-reconfig-check`), for
/// example after one of them restarted.
const TIMEOUT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_secs(1);

/// Removes the member of that name. etcd itself refuses if too few of the others run (`--strict-reconfig-check`).
pub async fn remove(local: &LocalMember, name: &str) -> AgentResult<MemberRemoved> {
    if name == local.config.etcd.name {
        return Err(AgentError::permanent(
            FailureCode::EtcdRemoveSelf,
            format!("{name} is this member, which cannot answer any more once it is removed"),
            "run this on another member",
        ));
    }
    let own = local.client().map(|client| local.endpoint(&client))?;
    let start = Instant::now();
    loop {
        match try_remove(&own, name).await {
            Ok(removed) => return Ok(removed),
            Err(refusal) if start.elapsed() > TIMEOUT => return Err(failed(&refusal, "removing a member")),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// One try. It lists the members first, since the answer of an earlier try may have been lost.
///
/// If none has the name, the member that has never run is removed: "If the member is not started, the name will be an empty string" (etcd API,
/// `Member.name`). There is one at most, because etcd allows a single learner ("Learner", etcd's design documents).
async fn try_remove(own: &Endpoint, name: &str) -> Result<MemberRemoved, CallError> {
    let members = own.members().await?.members;
    let named = members.iter().find(|member| member.name == name);
    let Some(member) =
        named.or_else(|| members.iter().find(|member| member.name.is_empty() && member.is_learner))
    else {
        return Ok(MemberRemoved { removed: false, id: None, members: members.len() });
    };
    let remaining = own.remove(member.id).await?;
    Ok(MemberRemoved { removed: true, id: Some(hex(member.id)), members: remaining.members.len() })
}
