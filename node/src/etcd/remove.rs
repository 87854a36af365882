//! `etcd remove`: another member leaves the membership, before its group goes.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::client::{Endpoint, Refusal, failed};
use super::place::Place;
use super::wire::hex;
use crate::failure::{Failure, Outcome};

/// etcd refuses until the members that stay have been connected to each other for five seconds (`--strict-reconfig-check`), as after a
/// restart of one: that passes.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_secs(1);

/// What `etcd remove` did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Removed {
    /// Whether it was removed now; `false`: the membership had it no longer.
    pub removed: bool,
    /// Its number, if it was removed now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// How many members there are now.
    pub members: usize,
}

/// Removes the member of that name from the membership. etcd itself refuses where too few of the others run
/// (`--strict-reconfig-check`).
///
/// # Errors
/// If it is this member, this member does not answer, or etcd refuses.
pub async fn remove(place: &Place, name: &str) -> Outcome<Removed> {
    if name == place.config.etcd.name {
        return Err(Failure::lasting(
            "etcd.remove-self",
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
async fn ask(own: &Endpoint, name: &str) -> Result<Removed, Refusal> {
    let members = own.members().await?.members;
    let Some(member) = members.iter().find(|member| member.name == name) else {
        return Ok(Removed { removed: false, id: None, members: members.len() });
    };
    let left = own.remove(member.id).await?;
    Ok(Removed { removed: true, id: Some(hex(member.id)), members: left.members.len() })
}
