//! `etcd snapshot --scheduled`: a timer runs it on each member, every ten minutes.
//!
//! The schedule is an object that the scan writes. The ledger is an object that the members write, each on the condition that nobody else
//! changed it: whoever has the claim in it takes the snapshot, so the members never take two at a time, and a snapshot that was taken is
//! not taken again by a new leader. [`turn`] decides, from schedule, ledger and time.
//!
//! A member may neither list the bucket nor delete from it.

use std::path::Path;
use std::{fs, io};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_core::keys;
use slipway_core::node::{NodeFile, SnapshotTaken};
use slipway_core::snapshots::{
    CLAIM_LIFE, LastSnapshot, SCHEDULED_TIMEOUT_S, SnapshotClaim, SnapshotFailure, SnapshotLedger,
    SnapshotSchedule, Taker, Turn, turn,
};
use slipway_ports::{Bounded, Condition, ErrorKind, PortError, Put};

use super::client::failed;
use super::local_member::LocalMember;
use super::snapshot::{Draft, Place, take, unwritable};
use crate::aws::{Aws, BucketOfAssets, Endpoints};
use crate::credentials::below;
use crate::failure::{AgentError, AgentResult, FailureCode};
use crate::machine::Unit;
use crate::machine::files::{self, Owner};
use crate::node_files;

/// What a run did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    pub turn: RunTurn,
    /// Why the ledger was not read, and counted as empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger_unreadable: Option<String>,
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
        Self { turn: RunTurn::Local(why), ledger_unreadable: None, taken: None }
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
        Some(_) => ledger(&bucket, &node.cluster).await?,
        None => Stored::none(Condition::Absent),
    };
    let own = Taker { member: node.role.clone(), instance: aws.imds().instance().await?.id };
    let begun = Timestamp::now();
    let leads = etcd.leader == etcd.header.member_id;
    let mark = OwnMark::read_or_begin(&local.root, begun)?;
    let known = stored.known(&own, &mark);
    let turn = turn(schedule.as_ref(), &known, &own, leads, mark.since, begun);
    let run = Run { turn: RunTurn::Decided(turn.clone()), ledger_unreadable: stored.problem(), taken: None };
    let is_forced = match turn {
        Turn::Take => false,
        Turn::TakeOwn => true,
        Turn::Off | Turn::NotDue { .. } | Turn::Claimed { .. } | Turn::LeaderFirst { .. } => return Ok(run),
    };
    let claimed = SnapshotLedger {
        claim: Some(SnapshotClaim { by: own.clone(), until: begun + CLAIM_LIFE }),
        ..stored.ledger.clone()
    };
    let condition = claim(&bucket, &node.cluster, &stored, &claimed).await?;
    // Whoever writes the ledger all the time must not keep this member from its own one.
    if condition.is_none() && !is_forced {
        return Ok(Run::not_asked(NotAsked::AnotherClaimed));
    }
    let result = take(local, &node, &aws, &draft, Place::Scheduled).await;
    let after = after(claimed, own, (begun, Timestamp::now()), &result);
    // If the claim was taken over, the ledger is that member's.
    let written = match &condition {
        Some(condition) => write(&bucket, &node.cluster, &after, condition).await.map(drop),
        None => Ok(()),
    };
    let taken = result?;
    OwnMark { since: begun, taken: true }.write(&local.root)?;
    written?;
    Ok(Run { taken: Some(taken), ..run })
}

/// The ledger after a member with a claim has tried to take a snapshot, from `begun` until `ended`. The claim has ended with the try.
fn after(
    claimed: SnapshotLedger,
    own: Taker,
    (begun, ended): (Timestamp, Timestamp),
    result: &AgentResult<SnapshotTaken>,
) -> SnapshotLedger {
    match result {
        Ok(taken) => SnapshotLedger {
            last: Some(LastSnapshot { by: own, begun, time: taken.time.clone() }),
            ..SnapshotLedger::default()
        },
        Err(AgentError { message, help, .. }) => SnapshotLedger {
            failure: Some(SnapshotFailure {
                by: own,
                at: ended,
                message: message.clone(),
                help: help.clone(),
            }),
            claim: None,
            ..claimed
        },
    }
}

/// The schedule; `None`: the scan has not written one. A node may not list the bucket, so S3 denies it a missing object.
pub(super) async fn schedule(
    bucket: &BucketOfAssets,
    node: &NodeFile,
) -> AgentResult<Option<SnapshotSchedule>> {
    let key = keys::snapshot_schedule(&node.cluster);
    let object = match bucket.object_at_most(&key, SnapshotSchedule::MOST_BYTES).await {
        Ok(object) => object,
        Err(error) if error.kind == ErrorKind::Denied => None,
        Err(error) => return Err(error.into()),
    };
    match object {
        None => Ok(None),
        Some(Bounded::Read(object)) => serde_json::from_slice(&object.bytes)
            .map(Some)
            .map_err(|error| unreadable(bucket, &key, &error.to_string())),
        Some(Bounded::TooLarge { .. }) => {
            let most = SnapshotSchedule::MOST_BYTES;
            Err(unreadable(bucket, &key, &format!("it has more than {most} bytes")))
        }
    }
}

/// The ledger as it was read, and the condition under which it may be written.
#[derive(Debug)]
struct Stored {
    ledger: SnapshotLedger,
    condition: Condition,
    /// S3 denied the read: probably because there is no ledger yet.
    denied: Option<PortError>,
    /// It is there, and this is what is wrong with it.
    broken: Option<String>,
}

impl Stored {
    fn none(condition: Condition) -> Self {
        Self { ledger: SnapshotLedger::default(), condition, denied: None, broken: None }
    }

    /// What is known of the last snapshot. Without a ledger that is this machine's own one: if nobody can ever read the ledger, each member takes as
    /// many snapshots as the schedule says, and not one in each run.
    fn known(&self, own: &Taker, mark: &OwnMark) -> SnapshotLedger {
        let mut known = self.ledger.clone();
        if (self.denied.is_some() || self.broken.is_some()) && mark.taken {
            known.last = Some(LastSnapshot { by: own.clone(), begun: mark.since, time: String::new() });
        }
        known
    }

    fn problem(&self) -> Option<String> {
        self.broken.clone().or_else(|| self.denied.as_ref().map(ToString::to_string))
    }
}

/// A mark of this machine, which no other member can write: see [`slipway_core::snapshots::OWN_AFTER_INTERVALS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct OwnMark {
    /// When its last scheduled snapshot was begun or, before that, when it looked for the first time.
    since: Timestamp,
    /// Whether there is such a snapshot.
    taken: bool,
}

impl OwnMark {
    const PATH: &str = "/var/lib/slipway/own-scheduled-snapshot.json";

    /// Reads the mark. One that cannot be read, or is of a clock that was wrong, begins at `now`.
    fn read_or_begin(root: &Path, now: Timestamp) -> AgentResult<Self> {
        let path = below(root, Self::PATH);
        let mark = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice::<Self>(&bytes).ok(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(unwritable(&path, &error)),
        };
        if let Some(mark) = mark.filter(|mark| mark.since <= now) {
            return Ok(mark);
        }
        let begun = Self { since: now, taken: false };
        begun.write(root)?;
        Ok(begun)
    }

    fn write(self, root: &Path) -> AgentResult<()> {
        let bytes = serde_json::to_vec(&self).expect("a mark has string keys only");
        files::write(&below(root, Self::PATH), 0o600, Owner::ROOT, &bytes).map(drop)
    }
}

/// Reads the ledger. Every member may write it, and one of them may be compromised: a ledger that cannot be read, whatever is wrong with it, counts
/// as an empty one and is written anew. At worst a snapshot is taken too early.
async fn ledger(bucket: &BucketOfAssets, cluster: &str) -> AgentResult<Stored> {
    let broken = |condition, why: String| Stored { broken: Some(why), ..Stored::none(condition) };
    let key = keys::snapshot_ledger(cluster);
    match bucket.object_at_most(&key, SnapshotLedger::MOST_BYTES).await {
        Ok(Some(Bounded::Read(object))) => {
            let unchanged = Condition::Unchanged(object.etag);
            Ok(match serde_json::from_slice(&object.bytes) {
                Ok(ledger) => Stored { ledger, ..Stored::none(unchanged) },
                // A parser's error may quote anything that a member wrote.
                Err(_) => broken(unchanged, "it is not the JSON of a ledger".to_owned()),
            })
        }
        Ok(Some(Bounded::TooLarge { etag })) => {
            let why = format!("it has more than {} bytes", SnapshotLedger::MOST_BYTES);
            Ok(broken(Condition::Unchanged(etag), why))
        }
        Ok(None) => Ok(Stored::none(Condition::Absent)),
        Err(error) if error.kind == ErrorKind::Denied => {
            Ok(Stored { denied: Some(error), ..Stored::none(Condition::Absent) })
        }
        // It is there: S3 gives out no object that its writer encrypted with a key of its own (SSE-C: "InvalidRequest").
        Err(error) if error.kind == ErrorKind::Invalid => Ok(broken(Condition::Always, error.to_string())),
        Err(error) => Err(error.into()),
    }
}

/// Writes the claim under the condition that nobody else wrote the ledger since. The condition for what comes after; `None`: another member was
/// faster.
async fn claim(
    bucket: &BucketOfAssets,
    cluster: &str,
    stored: &Stored,
    claimed: &SnapshotLedger,
) -> AgentResult<Option<Condition>> {
    if let Put::Written(etag) = write(bucket, cluster, claimed, &stored.condition).await? {
        return Ok(Some(Condition::Unchanged(etag)));
    }
    if stored.denied.is_none() {
        return Ok(None);
    }
    // It exists, so the read was not denied because it is missing: another member has just written it, or nobody can read it (an archived object:
    // "InvalidObjectState"; one under a KMS key of its writer: "AccessDenied").
    let reread = ledger(bucket, cluster).await?;
    if reread.denied.is_none() {
        return Ok(None);
    }
    match write(bucket, cluster, claimed, &Condition::Always).await? {
        Put::Written(etag) => Ok(Some(Condition::Unchanged(etag))),
        Put::Lost => Ok(None),
    }
}

async fn write(
    bucket: &BucketOfAssets,
    cluster: &str,
    ledger: &SnapshotLedger,
    condition: &Condition,
) -> AgentResult<Put> {
    let bytes = serde_json::to_vec_pretty(ledger).expect("a ledger has string keys only");
    Ok(bucket.put_if(&keys::snapshot_ledger(cluster), &bytes, condition).await?)
}

fn unreadable(bucket: &BucketOfAssets, key: &str, error: &str) -> AgentError {
    AgentError::permanent(
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::{Arc, Mutex};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// A ledger as S3 has it.
    #[derive(Debug, Clone)]
    enum StoredLedger {
        Nothing,
        Text(String),
        /// So many bytes. The head of the answer says so, or does not.
        Large {
            megabytes: usize,
            says_length: bool,
        },
        /// What S3 answers to whoever reads it: a status and a code.
        Refused(u16, &'static str),
    }

    /// S3 with the ledger, and the metadata service of a machine.
    #[derive(Debug, Clone)]
    struct Site {
        ledger: Arc<Mutex<StoredLedger>>,
        /// How many bytes of a body were taken from it.
        sent: Arc<Mutex<usize>>,
        bucket: BucketOfAssets,
    }

    impl Site {
        async fn with(ledger: StoredLedger) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let endpoints = Endpoints::read(|name| {
                ["AWS_ENDPOINT_URL", "AWS_EC2_METADATA_SERVICE_ENDPOINT"].contains(&name).then(|| url.clone())
            });
            let bucket = Aws::new(&endpoints, "eu-west-1").unwrap().bucket("assets");
            let site = Self { ledger: Arc::new(Mutex::new(ledger)), sent: Arc::default(), bucket };
            let served = site.clone();
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let site = served.clone();
                    tokio::spawn(async move { site.answer(stream).await });
                }
            });
            site
        }

        fn text(&self) -> Option<String> {
            match &*self.ledger.lock().unwrap() {
                StoredLedger::Text(text) => Some(text.clone()),
                StoredLedger::Nothing | StoredLedger::Large { .. } | StoredLedger::Refused(..) => None,
            }
        }

        async fn answer(&self, mut stream: TcpStream) {
            let (mut request, mut buffer) = (String::new(), [0; 65_536]);
            let (head, length) = loop {
                let read = stream.read(&mut buffer).await.unwrap();
                request.push_str(&String::from_utf8_lossy(&buffer[..read]));
                let Some((head, body)) = request.split_once("\r\n\r\n") else { continue };
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                let length: usize = length.map_or(0, |length| length.parse().unwrap());
                if body.len() >= length || read == 0 {
                    break (head.to_owned(), length);
                }
            };
            let body = request[request.len() - length..].to_owned();
            let answer = |status: u16, headers: &str, body: &str| {
                let length = body.len();
                format!(
                    "HTTP/1.1 {status} X\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
                )
            };
            let path = head.split(' ').nth(1).unwrap();
            let text = match path {
                "/latest/api/token" => answer(200, "", "token"),
                "/latest/meta-data/iam/security-credentials/" => answer(200, "", "role"),
                "/latest/meta-data/iam/security-credentials/role" => answer(
                    200,
                    "",
                    r#"{"AccessKeyId":"a","SecretAccessKey":"b","Token":"c","Expiration":"2100-01-01T00:00:00Z"}"#,
                ),
                "/assets/scheduled-snapshots/production/ledger.json" if head.starts_with("PUT") => {
                    let mut ledger = self.ledger.lock().unwrap();
                    let holds = if head.contains("if-none-match: *") {
                        matches!(*ledger, StoredLedger::Nothing)
                    } else {
                        !head.contains("if-match: ") || head.contains("if-match: \"e1\"")
                    };
                    if holds {
                        *ledger = StoredLedger::Text(body);
                        answer(200, "etag: \"e2\"\r\n", "")
                    } else {
                        answer(412, "", "<Error><Code>PreconditionFailed</Code><Message>no</Message></Error>")
                    }
                }
                "/assets/scheduled-snapshots/production/ledger.json" => {
                    let held = self.ledger.lock().unwrap().clone();
                    match held {
                        // Whoever may not list the bucket is denied what is missing.
                        StoredLedger::Nothing => {
                            answer(403, "", "<Error><Code>AccessDenied</Code><Message>no</Message></Error>")
                        }
                        StoredLedger::Text(text) => answer(200, "etag: \"e1\"\r\n", &text),
                        StoredLedger::Refused(status, code) => answer(
                            status,
                            "",
                            &format!("<Error><Code>{code}</Code><Message>no</Message></Error>"),
                        ),
                        StoredLedger::Large { megabytes, says_length } => {
                            let length = match says_length {
                                true => format!("content-length: {}\r\n", megabytes << 20),
                                false => String::new(),
                            };
                            let head = format!(
                                "HTTP/1.1 200 X\r\nconnection: close\r\netag: \"e1\"\r\n{length}\r\n"
                            );
                            let mut result = stream.write_all(head.as_bytes()).await;
                            let part = vec![b' '; 1 << 20];
                            for _ in 0..megabytes {
                                if result.is_err() {
                                    break;
                                }
                                result = stream.write_all(&part).await;
                                *self.sent.lock().unwrap() += part.len();
                            }
                            return;
                        }
                    }
                }
                other => panic!("{other}"),
            };
            let _ = stream.write_all(text.as_bytes()).await;
        }
    }

    fn claimed() -> SnapshotLedger {
        let by = Taker { member: "etcd-1".to_owned(), instance: "i-1".to_owned() };
        let until = "2026-11-26T12:00:00Z".parse().unwrap();
        SnapshotLedger { claim: Some(SnapshotClaim { by, until }), ..SnapshotLedger::default() }
    }

    /// A member that was taken over wrote a ledger that ended the snapshots of all others, or filled their memory.
    #[tokio::test]
    async fn a_ledger_that_cannot_be_read_ends_no_snapshots_and_is_written_anew() {
        for held in [
            StoredLedger::Nothing,
            StoredLedger::Text("torn".to_owned()),
            StoredLedger::Text(String::new()),
            StoredLedger::Large { megabytes: 400, says_length: true },
            StoredLedger::Large { megabytes: 400, says_length: false },
            // Encrypted with a key of its writer's own; archived; under a KMS key that others may not use.
            StoredLedger::Refused(400, "InvalidRequest"),
            StoredLedger::Refused(403, "InvalidObjectState"),
            StoredLedger::Refused(403, "AccessDenied"),
        ] {
            let site = Site::with(held.clone()).await;
            let stored = ledger(&site.bucket, "production").await.unwrap();
            assert_eq!(stored.ledger, SnapshotLedger::default(), "{held:?}");
            let sent = *site.sent.lock().unwrap();
            assert!(sent < 64 << 20, "{held:?}: {sent} bytes were read");
            let condition = claim(&site.bucket, "production", &stored, &claimed()).await.unwrap();
            assert_eq!(condition, Some(Condition::Unchanged("\"e2\"".to_owned())), "{held:?}");
            let written: SnapshotLedger = serde_json::from_str(&site.text().unwrap()).unwrap();
            assert_eq!(written, claimed(), "{held:?}");
        }
    }

    /// A member that keeps writing an unreadable ledger does not make the other members take a snapshot in every run.
    #[test]
    fn without_a_ledger_a_machine_goes_by_its_own_last_one() {
        let own = claimed().claim.unwrap().by;
        let since: Timestamp = "2026-11-26T12:00:00Z".parse().unwrap();
        let mark = |taken| OwnMark { since, taken };
        let broken = Stored { broken: Some("torn".to_owned()), ..Stored::none(Condition::Always) };
        assert_eq!(broken.known(&own, &mark(true)).last.map(|last| last.begun), Some(since));
        assert_eq!(broken.known(&own, &mark(false)).last, None, "the first one is not put off");
        assert_eq!(Stored::none(Condition::Absent).known(&own, &mark(true)).last, None);
    }

    #[test]
    fn the_mark_of_a_machine_begins_once_and_a_wrong_one_again() {
        let root = tempfile::tempdir().unwrap();
        let at = |text: &str| -> Timestamp { text.parse().unwrap() };
        let read = |now| OwnMark::read_or_begin(root.path(), at(now)).unwrap();
        let first = OwnMark { since: at("2026-11-26T12:00:00Z"), taken: false };
        assert_eq!(read("2026-11-26T12:00:00Z"), first);
        assert_eq!(read("2026-11-27T12:00:00Z"), first);
        let own = OwnMark { since: at("2026-11-27T12:00:00Z"), taken: true };
        own.write(root.path()).unwrap();
        assert_eq!(read("2026-11-28T12:00:00Z"), own);
        assert_eq!(read("2026-11-27T11:00:00Z").since, at("2026-11-27T11:00:00Z"), "the clock was wrong");
        fs::write(below(root.path(), OwnMark::PATH), "torn").unwrap();
        let again = OwnMark { since: at("2026-11-29T12:00:00Z"), taken: false };
        assert_eq!((read("2026-11-29T12:00:00Z"), read("2026-11-30T12:00:00Z")), (again, again));
    }

    /// Until a claim ends by itself, 40 minutes later, nobody else would take a snapshot.
    #[test]
    fn a_member_whose_snapshot_failed_leaves_the_turn_to_the_others() {
        let at = |text: &str| -> Timestamp { text.parse().unwrap() };
        let (begun, ended) = (at("2026-11-26T11:20:00Z"), at("2026-11-26T11:21:00Z"));
        let own = claimed().claim.unwrap().by;
        let last = LastSnapshot { by: own.clone(), begun: at("2026-11-26T05:00:00Z"), time: "t".to_owned() };
        let claimed = SnapshotLedger { last: Some(last.clone()), ..claimed() };
        let failed = Err(AgentError::transient(FailureCode::SnapshotBusy, "the disk is full", "make room"));
        let left = after(claimed, own, (begun, ended), &failed);
        assert_eq!((left.claim, left.last), (None, Some(last)));
        let failure = left.failure.map(|failure| (failure.at, failure.message));
        assert_eq!(failure, Some((ended, "the disk is full".to_owned())));
    }

    #[tokio::test]
    async fn a_member_that_was_faster_keeps_its_claim() {
        let text = serde_json::to_string(&claimed()).unwrap();
        // There was none, and the read was denied; meanwhile another member has written it.
        let site = Site::with(StoredLedger::Nothing).await;
        let stored = ledger(&site.bucket, "production").await.unwrap();
        assert!(stored.denied.is_some());
        *site.ledger.lock().unwrap() = StoredLedger::Text(text.clone());
        let own = SnapshotLedger::default();
        assert_eq!(claim(&site.bucket, "production", &stored, &own).await.unwrap(), None);
        // There was one, and it was changed.
        let stored = Stored::none(Condition::Unchanged("\"e0\"".to_owned()));
        assert_eq!(claim(&site.bucket, "production", &stored, &own).await.unwrap(), None);
        assert_eq!(site.text().unwrap(), text);
    }
}
