//! `etcd remove`: another member leaves the membership, before its group goes.

use std::time::{Duration, Instant};

use slipway_core::node::MemberRemoved;

use super::client::{Endpoint, Refusal, failed};
use super::place::Place;
use super::wire::hex;
use crate::failure::{Failure, FailureCode, Outcome};

/// etcd refuses until the members that stay have been connected to each other for five seconds (`--strict-reconfig-check`), as after a
/// restart of one: that passes.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_secs(1);

/// Removes the member of that name from the membership. etcd itself refuses where too few of the others run
/// (`--strict-reconfig-check`).
///
/// # Errors
/// If it is this member, this member does not answer, or etcd refuses.
pub async fn remove(place: &Place, name: &str) -> Outcome<MemberRemoved> {
    if name == place.config.etcd.name {
        return Err(Failure::lasting(
            FailureCode::EtcdRemoveSelf,
            format!("{name} is this member, and who is removed can say no more what became of it"),
            "run this on a member that stays",
        ));
    }
    let own = place.caller().map(|caller| place.own(&caller))?;
    let start = Instant::now();
    loop {
        match ask(&own, name).await {
            Ok(removed) => return Ok(removed),
            Err(refusal) if start.elapsed() > PATIENCE => return Err(failed(&refusal, "removing a member")),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Asks once. Whether it was removed before is looked at each time: an answer may have been lost.
async fn ask(own: &Endpoint, name: &str) -> Result<MemberRemoved, Refusal> {
    let members = own.members().await?.members;
    let Some(member) = members.iter().find(|member| member.name == name) else {
        return Ok(MemberRemoved { removed: false, id: None, members: members.len() });
    };
    let left = own.remove(member.id).await?;
    Ok(MemberRemoved { removed: true, id: Some(hex(member.id)), members: left.members.len() })
}
