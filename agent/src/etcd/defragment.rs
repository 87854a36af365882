//! `etcd defragment`: gives the free pages of this member's database back to the file system, while the other members serve.
//!
//! etcd copies what is in use into a new file beside the database and holds the locks of its backend until it has replaced the old file
//! (`backend.defrag` in etcd's `server/storage/backend/backend.go`). Meanwhile this member neither reads nor writes, so [`obstacles`] decides
//! whether it may stand still.
//!
//! While the alarm `NOSPACE` is raised, no API server compacts: it first writes `compact_rev_key` (`compact` in Kubernetes'
//! `k8s.io/apiserver/pkg/storage/etcd3/compact.go`), and etcd refuses transactions that write (`applierV3Capped` in
//! `server/etcdserver/apply/capped.go`). So this verb compacts then, as etcd's own steps do: compact, defragment, disarm
//! (<https://etcd.io/docs/v3.6/op-guide/maintenance/#space-quota>).

use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use slipway_core::node::defragment::{NO_SPACE, Obstacle, SpaceAlarm, may_run_meanwhile, obstacles};
use slipway_core::node::{Defragmented, EtcdHealth};

use super::client::{CallError, Endpoint, EtcdClient, failed};
use super::health::{health, quota};
use super::local_member::LocalMember;
use super::snapshot::lock;
use super::wire::{Status, hex};
use crate::failure::{AgentError, AgentResult, FailureCode};

/// How long etcd may take. The document ends the command after 1,800 s; etcd itself goes on until it is done.
const TIMEOUT: Duration = Duration::from_secs(1_500);
/// A compaction deletes in small steps, and pauses between them.
const COMPACTION_TIMEOUT: Duration = Duration::from_secs(120);
/// How long this member may take to serve again.
const SERVES_WITHIN: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(500);
/// Bytes that stay free beside the new file, for the log: etcd ends if it cannot write it.
const SPARE: u64 = 64 << 20;
/// 1 while a member is being defragmented (etcd-io/etcd#13397). The status does not tell: before 3.6 it is answered meanwhile.
const IN_FLIGHT: &str = "etcd_disk_defrag_inflight";

/// Defragments this member.
pub async fn defragment(local: &LocalMember) -> AgentResult<Defragmented> {
    // A snapshot is one long read, and etcd could not close the old file before it ends: all clients of this member would wait for it.
    let _lock = lock(&local.root)?;
    let client = local.client()?;
    let own = local.endpoint(&client);
    let before = health(local).await?;
    refuse(&before, &others_in_flight(&client, &before).await)?;
    let compacted = match before.alarms.iter().any(|alarm| alarm.kind == NO_SPACE) {
        true => Some(compact(&own).await?),
        false => None,
    };
    let first = own.status().await.map_err(|refusal| failed(&refusal, "asking for the size"))?;
    room(&local.data(), first.db_size_in_use)?;

    let start = Instant::now();
    own.defragment(TIMEOUT).await.map_err(|refusal| failed(&refusal, "defragmenting"))?;
    let seconds = start.elapsed().as_secs();
    let after = serves_again(&own).await?;
    let quota = quota(&own, &after).await;
    let alarm = disarm(&own, &after, &before, quota).await?;
    Ok(Defragmented {
        size_before: first.db_size,
        size_after: after.db_size,
        in_use: after.db_size_in_use,
        quota,
        seconds,
        compacted,
        alarm: alarm.map(Into::into),
    })
}

/// Refuses a member that may not stand still.
fn refuse(health: &EtcdHealth, in_flight: &[String]) -> AgentResult<()> {
    let mut why: Vec<String> = obstacles(health).iter().map(Obstacle::to_string).collect();
    why.extend(in_flight.iter().map(|name| format!("{name} is being defragmented")));
    if !why.is_empty() {
        return Err(AgentError::transient(
            FailureCode::EtcdUnhealthy,
            format!(
                "{} is not defragmented, because it does not serve while it is defragmented: {}",
                health.name,
                why.join("; ")
            ),
            "see `/var/lib/slipway/slipway-node etcd health` on each member; once all are well, run this again",
        ));
    }
    match health.version.as_deref() {
        Some(version) if !may_run_meanwhile(version) => Err(AgentError::permanent(
            FailureCode::EtcdRelease,
            format!("a crash of etcd {version} while it is defragmented can make this member inconsistent"),
            "update etcd to 3.5.6 or later: name it in the spec, etcd.version",
        )),
        Some(_) | None => Ok(()),
    }
}

/// The other members that are being defragmented.
async fn others_in_flight(client: &EtcdClient, health: &EtcdHealth) -> Vec<String> {
    let others = health.members.iter().filter(|member| Some(&member.id) != health.id.as_ref());
    let queries = others.map(|member| async {
        let url = member.client_urls.first()?;
        // A release without the metric, or no answer: then the member's own state decides.
        let gauge = client.endpoint(url).gauge(IN_FLIGHT).await.ok().flatten();
        (gauge == Some(1)).then(|| member.name.clone())
    });
    join_all(queries).await.into_iter().flatten().collect()
}

/// Compacts the history of all members to the present revision, which is returned.
async fn compact(own: &Endpoint) -> AgentResult<u64> {
    let doing = "compacting";
    let revision = own.status().await.map_err(|refusal| failed(&refusal, doing))?.header.revision;
    match own.compact(revision, COMPACTION_TIMEOUT).await {
        Ok(()) => Ok(revision),
        // `rpctypes.ErrGRPCCompacted`: this verb on another member was faster.
        Err(CallError::Refused(words)) if words.contains("has been compacted") => Ok(revision),
        Err(refusal) => Err(failed(&refusal, doing)),
    }
}

/// Refuses if the disk has no room for `bytes` more beside the data. If the disk were full, etcd would stop.
pub(super) fn room(data: &Path, bytes: u64) -> AgentResult<()> {
    let free = rustix::fs::statvfs(data).map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    let wanted = bytes.saturating_add(SPARE);
    let (message, help) = match free {
        Ok(free) if free >= wanted => return Ok(()),
        Ok(free) => (
            format!("{} has {free} bytes free, and up to {wanted} are needed", data.display()),
            "make the volume larger: raise etcd.dataVolume.size in the spec; or free some of it, for example \
             folders that a restore put aside (data.before-…)",
        ),
        Err(error) => (format!("{}: {error}", data.display()), "see that the volume of etcd is mounted"),
    };
    Err(AgentError::permanent(FailureCode::EtcdDisk, message, help))
}

/// Waits until this member reads through a majority.
async fn serves_again(own: &Endpoint) -> AgentResult<Status> {
    let start = Instant::now();
    loop {
        let status = match own.serves().await {
            Ok(()) => own.status().await,
            Err(refusal) => Err(refusal),
        };
        match status {
            Ok(status) => return Ok(status),
            Err(refusal) if start.elapsed() > SERVES_WITHIN => {
                return Err(failed(&refusal, "waiting for the member after it was defragmented"));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Disarms this member's alarm if its file is below the quota, and those of members that have left: nobody else would.
async fn disarm(
    own: &Endpoint,
    status: &Status,
    before: &EtcdHealth,
    quota: Option<u64>,
) -> AgentResult<Option<SpaceAlarm>> {
    let doing = "disarming the alarm";
    let alarms = own.alarms().await.map_err(|refusal| failed(&refusal, doing))?.alarms;
    let id = status.header.member_id;
    let is_member = |id: u64| before.members.iter().any(|member| member.id == hex(id));
    let mut answer = None;
    for alarm in alarms.iter().filter(|alarm| alarm.kind == NO_SPACE) {
        if alarm.member != id && is_member(alarm.member) {
            continue;
        }
        // etcd refuses a write unless the file and the write together are below the quota (`BackendQuota.Available`).
        let disarmed = quota.is_some_and(|quota| status.db_size < quota);
        if disarmed {
            own.disarm_no_space(alarm.member).await.map_err(|refusal| failed(&refusal, doing))?;
        }
        if alarm.member == id {
            answer = Some(if disarmed { SpaceAlarm::Disarmed } else { SpaceAlarm::StillRaised });
        }
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn the_new_file_must_fit_beside_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        room(dir.path(), 0).unwrap();
        let failure = room(dir.path(), u64::MAX / 2).unwrap_err();
        assert_eq!(failure.code, FailureCode::EtcdDisk);
        assert!(failure.message.contains("bytes free"), "{}", failure.message);
        assert_eq!(room(&dir.path().join("absent"), 0).unwrap_err().code, FailureCode::EtcdDisk);
    }

    #[test]
    fn a_member_that_may_not_stand_still_is_refused_with_all_reasons() {
        let member = slipway_core::node::EtcdMemberHealth { reachable: true, ..Default::default() };
        let mut health = EtcdHealth {
            serving: true,
            leader: Some("1".to_owned()),
            version: Some("3.5.6".to_owned()),
            members: vec![member],
            ..EtcdHealth::default()
        };
        refuse(&health, &[]).unwrap();
        health.version = Some("3.5.4".to_owned());
        assert_eq!(refuse(&health, &[]).unwrap_err().code, FailureCode::EtcdRelease);
        health.members[0].learner = true;
        let failure = refuse(&health, &["etcd-1".to_owned()]).unwrap_err();
        assert_eq!((failure.code, failure.transient), (FailureCode::EtcdUnhealthy, true));
        assert!(
            failure.message.contains("learner") && failure.message.contains("etcd-1 is being"),
            "{failure}"
        );
    }
}
