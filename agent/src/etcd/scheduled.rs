//! `etcd snapshot --scheduled`: a timer runs it on each member, every ten minutes.
//!
//! The schedule is an object that the scan writes. The ledger is an object that the members write, each on the condition that nobody else
//! changed it: whoever has the claim in it takes the snapshot, so the members never take two at a time, and a snapshot that was taken is
//! not taken again by a new leader. [`turn`] decides, from schedule, ledger and time.
//!
//! A member may neither list the bucket nor delete from it.

use jiff::Timestamp;
use serde::Serialize;
use slipway_core::keys;
use slipway_core::node::{NodeFile, SnapshotTaken};
use slipway_core::snapshots::{
    CLAIM_LIFE, LastSnapshot, SCHEDULED_TIMEOUT_S, SnapshotClaim, SnapshotFailure, SnapshotLedger,
    SnapshotSchedule, Taker, Turn, turn,
};
use slipway_ports::{Condition, ErrorKind, PortError, Put};

use super::client::failed;
use super::local_member::LocalMember;
use super::snapshot::{Draft, Place, take};
use crate::aws::{Aws, BucketOfAssets, Endpoints};
use crate::failure::{AgentError, AgentResult, FailureCode};
use crate::machine::Unit;
use crate::node_files;

/// What a run did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    pub turn: RunTurn,
    /// The snapshot, if it was this member's turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken: Option<SnapshotTaken>,
}

/// Why a run took a snapshot or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", untagged)]
pub enum RunTurn {
    Decided(Turn),
    Local(NotAsked),
}

/// Why a member did not ask for the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum NotAsked {
    /// A learner has no vote, and etcd gives it no reads through a majority.
    Learner,
    /// Another snapshot is being taken or restored on this machine, or etcd is being defragmented.
    Busy,
    /// Another member was faster.
    AnotherClaimed,
}

impl Run {
    const fn not_asked(why: NotAsked) -> Self {
        Self { turn: RunTurn::Local(why), taken: None }
    }
}

/// Takes a snapshot if it is this member's turn.
pub async fn run(local: &LocalMember, endpoints: &Endpoints) -> AgentResult<Run> {
    let node = node_files::required_node(&local.root)?;
    let client = local.client()?;
    let etcd = local.endpoint(&client).status().await;
    let etcd = etcd.map_err(|refusal| failed(&refusal, "asking who leads"))?;
    if etcd.is_learner {
        return Ok(Run::not_asked(NotAsked::Learner));
    }
    // From here on no other run of this machine takes a snapshot, so a claim of this machine is one of a run that died.
    let draft = match Draft::scheduled(&local.root) {
        Err(failure) if failure.code == FailureCode::SnapshotBusy => {
            return Ok(Run::not_asked(NotAsked::Busy));
        }
        draft => draft?,
    };
    let aws = Aws::new(endpoints, &node.region)?;
    let bucket = aws.bucket(&node.asset_bucket);
    let schedule = schedule(&bucket, &node).await?;
    // Without one, there is no need to know more.
    let stored = match &schedule {
        Some(_) => ledger(&bucket, &node).await?,
        None => Stored { ledger: SnapshotLedger::default(), condition: Condition::Absent, denied: None },
    };
    let own = Taker { member: node.role.clone(), instance: aws.imds().instance().await?.id };
    let begun = Timestamp::now();
    let leads = etcd.leader == etcd.header.member_id;
    let turn = turn(schedule.as_ref(), &stored.ledger, &own, leads, begun);
    if turn != Turn::Take {
        return Ok(Run { turn: RunTurn::Decided(turn), taken: None });
    }
    let claim = SnapshotClaim { by: own.clone(), until: begun + CLAIM_LIFE };
    let claimed = SnapshotLedger { claim: Some(claim), ..stored.ledger.clone() };
    let condition = match write(&bucket, &node, &claimed, &stored.condition).await? {
        Put::Written(etag) => Condition::Unchanged(etag),
        Put::Lost => {
            return match stored.denied {
                // It exists, so it was not denied because it is missing.
                Some(denied) => Err(denied.into()),
                None => Ok(Run::not_asked(NotAsked::AnotherClaimed)),
            };
        }
    };
    let result = take(local, &node, &aws, &draft, Place::Scheduled).await;
    let after = match &result {
        Ok(taken) => SnapshotLedger {
            last: Some(LastSnapshot { by: own, begun, time: taken.time.clone() }),
            ..SnapshotLedger::default()
        },
        Err(AgentError { message, help, .. }) => SnapshotLedger {
            failure: Some(SnapshotFailure {
                by: own,
                at: Timestamp::now(),
                message: message.clone(),
                help: help.clone(),
            }),
            claim: None,
            ..stored.ledger
        },
    };
    // If the claim was taken over, the ledger is that member's.
    let written = write(&bucket, &node, &after, &condition).await;
    let taken = result?;
    written?;
    Ok(Run { turn: RunTurn::Decided(Turn::Take), taken: Some(taken) })
}

/// The schedule; `None`: the scan has not written one. A node may not list the bucket, so S3 denies it a missing object.
pub(super) async fn schedule(
    bucket: &BucketOfAssets,
    node: &NodeFile,
) -> AgentResult<Option<SnapshotSchedule>> {
    let key = keys::snapshot_schedule(&node.cluster);
    let bytes = match bucket.get(&key).await {
        Ok(bytes) => bytes,
        Err(error) if error.kind == ErrorKind::Denied => None,
        Err(error) => return Err(error.into()),
    };
    bytes
        .map(|bytes| serde_json::from_slice(&bytes).map_err(|error| unreadable(bucket, &key, &error)))
        .transpose()
}

/// The ledger as it was read, and the condition under which it may be written.
struct Stored {
    ledger: SnapshotLedger,
    condition: Condition,
    /// S3 denied the read: probably because there is no ledger yet.
    denied: Option<PortError>,
}

async fn ledger(bucket: &BucketOfAssets, node: &NodeFile) -> AgentResult<Stored> {
    let none = |denied| Stored { ledger: SnapshotLedger::default(), condition: Condition::Absent, denied };
    match bucket.object(&keys::snapshot_ledger(&node.cluster)).await {
        // One that cannot be read is written anew: at worst a snapshot is taken too early.
        Ok(Some(object)) => Ok(Stored {
            ledger: serde_json::from_slice(&object.bytes).unwrap_or_default(),
            condition: Condition::Unchanged(object.etag),
            denied: None,
        }),
        Ok(None) => Ok(none(None)),
        Err(error) if error.kind == ErrorKind::Denied => Ok(none(Some(error))),
        Err(error) => Err(error.into()),
    }
}

async fn write(
    bucket: &BucketOfAssets,
    node: &NodeFile,
    ledger: &SnapshotLedger,
    condition: &Condition,
) -> AgentResult<Put> {
    let bytes = serde_json::to_vec_pretty(ledger).expect("a ledger has string keys only");
    Ok(bucket.put_if(&keys::snapshot_ledger(&node.cluster), &bytes, condition).await?)
}

fn unreadable(bucket: &BucketOfAssets, key: &str, error: &serde_json::Error) -> AgentError {
    AgentError::lasting(
        FailureCode::ConfigUnreadable,
        format!("s3://{}/{key} cannot be read: {error}", bucket.name()),
        "run `slipway scan`, which writes it again; if it stays, the cluster's agent is older than the installation: `slipway upgrade agent`",
    )
}

/// The units that run it. A run reads two objects of S3, which is a cent a month for a cluster of three members.
#[must_use]
pub fn units() -> [Unit; 2] {
    let service = format!(
        "[Unit]\nDescription=Slipway: take a snapshot of etcd if one is due\n\
         After=network-online.target\nWants=network-online.target\n\n\
         [Service]\nType=oneshot\nExecStart=/var/lib/slipway/slipway-node etcd snapshot --scheduled\n\
         TimeoutStartSec={SCHEDULED_TIMEOUT_S}\nNice=10\nIOSchedulingClass=best-effort\nIOSchedulingPriority=7\n\
         NoNewPrivileges=yes\nProtectSystem=strict\nReadWritePaths=/var/lib/slipway\nProtectHome=yes\nPrivateTmp=yes\n"
    );
    let timer = "[Unit]\nDescription=Slipway: take a snapshot of etcd if one is due\n\n\
                 [Timer]\nOnBootSec=10min\nOnUnitInactiveSec=10min\nRandomizedDelaySec=2min\n\n\
                 [Install]\nWantedBy=timers.target\n";
    [
        Unit { name: "slipway-snapshot.service".to_owned(), content: Some(service) },
        Unit { name: "slipway-snapshot.timer".to_owned(), content: Some(timer.to_owned()) },
    ]
}
