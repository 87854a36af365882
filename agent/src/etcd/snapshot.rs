//! `etcd snapshot`: from the running member into the asset bucket, never in plain on a disk.
//!
//! What etcd streams is checked, sealed into a file, uploaded, downloaded again, opened with the key as KMS returns it, and
//! checked again, so a reported snapshot can be restored. A record beside it says so. Memory use does not depend on its size.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{BufReader, BufWriter};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt as _;
use jiff::Timestamp;
use slipway_core::keys;
use slipway_core::node::defragment::CORRUPT;
use slipway_core::node::{NodeFile, SNAPSHOT_ROLE, SnapshotTaken};
use slipway_crypto::stream::{Sealed, Sealer};
use slipway_ports::{Condition, Context, Keys as _};
use tempfile::TempPath;
use tokio::time::timeout;

use super::checker::{Checker, VerifiedSnapshot};
use super::client::{CallError, Endpoint, failed};
use super::local_member::LocalMember;
use super::wire::{Piece, hex};
use crate::aws::{Aws, Endpoints, MOST_FILE_BYTES};
use crate::credentials::below;
use crate::failure::{AgentError, AgentResult, FailureCode};
use crate::node_files::required_node;
use crate::sealed_bundle;

const PIECE_TIMEOUT: Duration = Duration::from_secs(60);
/// A piece has about 44 KB; a longer line is not etcd's.
const LINE_AT_MOST: usize = 8 << 20;
/// S3's limit for one call.
const SIZE_AT_MOST: u64 = 5 << 30;
/// Where the sealed file is kept until it is uploaded.
const DRAFTS: &str = "/var/lib/slipway";
const DRAFT: (&str, &str) = ("snapshot-", ".sealed");
/// The holder of this lock is the only one with a draft.
const LOCK: &str = "snapshot.lock";
/// Held by a scheduled run, in addition.
const SCHEDULED_LOCK: &str = "scheduled-snapshot.lock";
/// How long a command waits for a scheduled run. The document's limit leaves as much for the snapshot itself.
const SCHEDULED_ENDS_WITHIN: Duration = Duration::from_secs(900);
/// Keys have a resolution of one second, and another member may take a snapshot in the same second.
const NAMES_AT_MOST: u32 = 10;

/// Where a snapshot is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Where no function deletes: a rollout, a destruction or a person ordered it.
    Ordered,
    /// Where the scan deletes old ones.
    Scheduled,
}

impl Place {
    const ALL: [Self; 2] = [Self::Ordered, Self::Scheduled];

    pub(super) fn key(self, cluster: &str, time: &str) -> String {
        match self {
            Self::Ordered => keys::etcd_snapshot(cluster, time),
            Self::Scheduled => keys::scheduled_snapshot(cluster, time),
        }
    }
}

/// A snapshot that was ordered. A scheduled one that is being taken on this machine ends first.
pub async fn snapshot(local: &LocalMember, endpoints: &Endpoints) -> AgentResult<SnapshotTaken> {
    let node = required_node(&local.root)?;
    let draft = Draft::after_a_scheduled_one(&local.root).await?;
    let aws = Aws::new(endpoints, &node.region)?;
    take(local, &node, &aws, &draft, Place::Ordered).await
}

/// Takes a snapshot, stores it and reads it back.
pub(super) async fn take(
    local: &LocalMember,
    node: &NodeFile,
    aws: &Aws,
    draft: &Draft,
    place: Place,
) -> AgentResult<SnapshotTaken> {
    let start = Instant::now();
    let client = local.client()?;
    let own = local.endpoint(&client);
    // A read through a majority: the snapshot then contains every write acknowledged so far.
    own.serves().await.map_err(|refusal| failed(&refusal, "reading through a majority"))?;
    refuse_corrupt(&own).await?;
    let status = own.status().await.map_err(|refusal| failed(&refusal, "asking how the member is"))?;

    let context = context(&node.cluster);
    let data_key = sealed_bundle::data_key(&local.root, aws, node, &context).await?;
    let mut tries = 0..NAMES_AT_MOST;
    // It is sealed with its name, so one whose name was taken meanwhile is taken anew.
    let (time, key, whole) = loop {
        let (time, key) = unused_name(aws, node, place, &mut tries).await?;
        let sealer = Sealer::new(&data_key, &context, &key, BufWriter::new(draft.create()?))?;
        let (whole, sealer) = stream(&own, sealer).await?;
        let file = sealer.finish()?.into_inner().map_err(|error| unwritable(&draft.path, error.error()))?;
        file.sync_all().map_err(|error| unwritable(&draft.path, &error))?;
        must_fit(file.metadata().map_err(|error| unwritable(&draft.path, &error))?.len())?;
        if aws.bucket(&node.asset_bucket).upload_new(&key, &draft.path).await? {
            break (time, key, whole);
        }
    };
    let arn = data_key.wrapped_by.clone();
    drop(data_key);

    download(aws, node, &key, draft).await?;
    let back = open(aws, node, draft, &key, Checker::default()).await?.text.finish();
    if back.as_ref() != Ok(&whole) {
        return Err(AgentError::transient(
            FailureCode::SnapshotReadBack,
            format!("s3://{}/{key} differs from what was uploaded: {back:?}", node.asset_bucket),
            "run this again, and do not restore from that snapshot",
        ));
    }
    let taken = SnapshotTaken {
        time,
        key,
        size: whole.size,
        sha256: whole.sha256,
        revision: status.header.revision,
        version: status.version,
        sealed_under: arn,
        seconds: start.elapsed().as_secs(),
    };
    // A snapshot without it counts as one that was never verified. A lost write is a retry of one that was done.
    let record = serde_json::to_vec(&taken).expect("an answer has string keys only");
    let bucket = aws.bucket(&node.asset_bucket);
    bucket.put_if(&keys::snapshot_record(&taken.key), &record, &Condition::Absent).await?;
    Ok(taken)
}

/// Refuses while members are known to differ: this one may be the damaged one. etcd answers reads then as always (`Range` in its
/// `server/etcdserver/v3_server.go` reads the store, and only what goes through raft meets `applierV3Corrupt`), and streams snapshots.
async fn refuse_corrupt(own: &Endpoint) -> AgentResult<()> {
    let alarms = own.alarms().await.map_err(|refusal| failed(&refusal, "asking for alarms"))?.alarms;
    let Some(alarm) = alarms.iter().find(|alarm| alarm.kind == CORRUPT) else { return Ok(()) };
    let whose = match alarm.member {
        0 => "and does not know whose are damaged".to_owned(),
        member => format!("and names the member {}", hex(member)),
    };
    Err(AgentError::permanent(
        FailureCode::SnapshotCorrupt,
        format!(
            "etcd found that its members' data differ ({CORRUPT}), {whose}: a snapshot may be of damaged data"
        ),
        "repair the member, then disarm the alarm: \"The data of etcd's members differ\" in docs/runbook.md; earlier snapshots stay as they are",
    ))
}

fn must_fit(length: u64) -> AgentResult<()> {
    if length <= SIZE_AT_MOST {
        return Ok(());
    }
    Err(AgentError::permanent(
        FailureCode::SnapshotSize,
        format!("the sealed snapshot has {length} bytes, and S3 takes {SIZE_AT_MOST} at once"),
        "compact and defragment etcd (`etcdctl defrag`), or delete objects that nobody needs; nothing was uploaded",
    ))
}

/// A time that no snapshot has, wherever it lies, and the key of a snapshot with it. It tries as often as `tries` allows.
async fn unused_name(
    aws: &Aws,
    node: &NodeFile,
    place: Place,
    tries: &mut std::ops::Range<u32>,
) -> AgentResult<(String, String)> {
    let bucket = aws.bucket(&node.asset_bucket);
    for number in tries {
        if number > 0 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let time = Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let mut is_used = false;
        for any in Place::ALL {
            is_used |= bucket.exists(&any.key(&node.cluster, &time)).await?;
        }
        if !is_used {
            let key = place.key(&node.cluster, &time);
            return Ok((time, key));
        }
    }
    Err(AgentError::transient(
        FailureCode::SnapshotNames,
        format!(
            "other members took a snapshot in each of the last {NAMES_AT_MOST} seconds, so no name was free"
        ),
        "one snapshot is enough: find out who starts the others",
    ))
}

/// Seals what etcd streams, line by line.
async fn stream<W: std::io::Write>(
    own: &Endpoint,
    mut sealer: Sealer<W>,
) -> AgentResult<(VerifiedSnapshot, Sealer<W>)> {
    let broken = |why: String| failed(&CallError::Unreachable(why), "streaming a snapshot");
    let response = own.snapshot().await.map_err(|refusal| failed(&refusal, "beginning a snapshot"))?;
    let (mut stream, mut line, mut checker) = (response.bytes_stream(), Vec::new(), Checker::default());
    loop {
        let bytes = timeout(PIECE_TIMEOUT, stream.next()).await;
        let bytes = match bytes.map_err(|_| broken("etcd stopped sending".to_owned()))? {
            Some(bytes) => bytes.map_err(|error| broken(format!("it broke off: {}", error.without_url())))?,
            None => break,
        };
        line.extend_from_slice(&bytes);
        while let Some(end) = line.iter().position(|byte| *byte == b'\n') {
            let rest = line.split_off(end + 1);
            let piece = piece(&line).map_err(broken)?;
            checker.push(&piece);
            sealer.push(&piece)?;
            line = rest;
        }
        if line.len() > LINE_AT_MOST {
            return Err(broken("a line is longer than etcd's pieces".to_owned()));
        }
    }
    if !line.trim_ascii().is_empty() {
        let piece = piece(&line).map_err(broken)?;
        checker.push(&piece);
        sealer.push(&piece)?;
    }
    let whole = checker.finish().map_err(|why| broken(format!("it is not complete: {why}")))?;
    Ok((whole, sealer))
}

fn piece(line: &[u8]) -> Result<Vec<u8>, String> {
    if line.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    // A parser's error may quote a secret.
    let piece: Piece = serde_json::from_slice(line).map_err(|_| "it is not JSON".to_owned())?;
    match (piece.error, piece.result) {
        (Some(error), _) => Err(format!("etcd says: {}", error["message"].as_str().unwrap_or("it failed"))),
        (None, Some(blob)) => STANDARD.decode(blob.blob).map_err(|_| "a piece is not base64".to_owned()),
        (None, None) => Err("a piece holds nothing".to_owned()),
    }
}

/// Downloads a sealed snapshot into `draft`.
async fn download(aws: &Aws, node: &NodeFile, key: &str, draft: &Draft) -> AgentResult<()> {
    draft.create()?;
    aws.bucket(&node.asset_bucket).download(key, &draft.path, MOST_FILE_BYTES).await?;
    Ok(())
}

/// Downloads the sealed snapshot of that time into `draft`, wherever it lies. Returns its key. If one lies in each folder, neither is chosen:
/// whoever has taken over a member, or may write into the bucket, can put a false one beside a good one.
pub(super) async fn download_any(
    aws: &Aws,
    node: &NodeFile,
    time: &str,
    draft: &Draft,
) -> AgentResult<String> {
    let bucket = aws.bucket(&node.asset_bucket);
    let keys = Place::ALL.map(|place| place.key(&node.cluster, time));
    if bucket.exists(&keys[0]).await? && bucket.exists(&keys[1]).await? {
        return Err(AgentError::permanent(
            FailureCode::RestoreTwins,
            format!("two snapshots have the time {time}: {} in {}", keys.join(" and "), node.asset_bucket),
            "restore from another snapshot; or find out which of the two is true (the log of the member that took it names its key and SHA-256: `slipway logs etcd-N --unit agent`), delete the other one, and run this again; nothing was changed",
        ));
    }
    let mut refused = Vec::new();
    for key in keys {
        match download(aws, node, &key, draft).await {
            Ok(()) => return Ok(key),
            // A node may not list the bucket, so S3 denies it an object that does not exist.
            Err(failure) if matches!(failure.code, FailureCode::AwsMissing | FailureCode::AwsDenied) => {
                refused.push(failure.message);
            }
            Err(failure) => return Err(failure),
        }
    }
    Err(AgentError::permanent(
        FailureCode::AwsMissing,
        format!("no snapshot of {time} can be read: {}", refused.join("; ")),
        "`slipway snapshots` lists those that exist; for one of them, check that the statement KeepSnapshots of the node's role is up to date",
    ))
}

/// A snapshot that was opened.
#[derive(Debug)]
pub(super) struct Opened<W> {
    pub(super) text: W,
    /// The key that it was sealed under.
    pub(super) sealed_under: String,
    /// Whether it was sealed with the key of its object. Agents of before did not.
    pub(super) has_name: bool,
}

/// Opens the sealed snapshot in `draft`, which lay at `key`, and writes its plain text to `to`.
pub(super) async fn open<W: std::io::Write + Send + 'static>(
    aws: &Aws,
    node: &NodeFile,
    draft: &Draft,
    key: &str,
    mut to: W,
) -> AgentResult<Opened<W>> {
    let file = File::open(&draft.path).map_err(|error| unwritable(&draft.path, &error))?;
    let sealed = Sealed::read(BufReader::new(file))?;
    if let Some(name) = sealed.name.as_deref().filter(|name| *name != key) {
        let name: String = name.chars().take(200).collect();
        return Err(AgentError::permanent(
            FailureCode::RestoreWrongSnapshot,
            format!("s3://{}/{key} is a copy of another snapshot, of {name}", node.asset_bucket),
            "somebody copied it there: delete it, and restore from another snapshot; nothing was changed",
        ));
    }
    let (sealed_under, has_name) = (sealed.wrapped_by.clone(), sealed.name.is_some());
    let context = context(&node.cluster);
    let data_key = aws.keys(Some(sealed_under.clone())).unwrap(&sealed.wrapped, &context).await?;
    let opening = tokio::task::spawn_blocking(move || sealed.open(&data_key, &context, &mut to).map(|()| to));
    let opened = opening.await.map_err(|error| {
        AgentError::permanent(
            FailureCode::SnapshotPanic,
            format!("opening the snapshot: {error}"),
            "report this: it is a defect",
        )
    })?;
    Ok(Opened { text: opened?, sealed_under, has_name })
}

fn context(cluster: &str) -> Context {
    BTreeMap::from([
        ("cluster".to_owned(), cluster.to_owned()),
        ("role".to_owned(), SNAPSHOT_ROLE.to_owned()),
    ])
}

/// A sealed temporary file, deleted when dropped, and the lock that allows only one: Systems Manager may deliver a command twice,
/// and two runs must not share a file or fill the disk.
#[derive(Debug)]
pub(super) struct Draft {
    path: TempPath,
    _lock: File,
    _scheduled: Option<File>,
}

/// Takes a lock of this machine, which ends with its file.
fn try_lock(root: &Path, name: &str) -> AgentResult<File> {
    let path = below(root, DRAFTS).join(name);
    let mut options = OpenOptions::new();
    let lock = options.create(true).truncate(false).write(true).mode(0o600).open(&path);
    let lock = lock.map_err(|error| unwritable(&path, &error))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(AgentError::transient(
            FailureCode::SnapshotBusy,
            "on this machine a snapshot is being taken or restored, or etcd is being defragmented",
            "wait until it ends, then run this again",
        )),
        Err(TryLockError::Error(error)) => Err(unwritable(&path, &error)),
    }
}

/// Keeps this machine from taking or restoring a snapshot as long as it is held.
pub(super) fn lock(root: &Path) -> AgentResult<File> {
    try_lock(root, LOCK)
}

impl Draft {
    /// For a command: a scheduled run must not make a rollout fail, so it is waited for.
    pub(super) async fn after_a_scheduled_one(root: &Path) -> AgentResult<Self> {
        let start = Instant::now();
        loop {
            match Self::new(root) {
                Err(failure)
                    if failure.code == FailureCode::SnapshotBusy
                        && start.elapsed() < SCHEDULED_ENDS_WITHIN
                        && try_lock(root, SCHEDULED_LOCK).is_err() =>
                {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                done => return done,
            }
        }
    }

    /// The size of what was downloaded, in bytes.
    pub(super) fn bytes(&self) -> AgentResult<u64> {
        let found = fs::metadata(&self.path).map_err(|error| unwritable(&self.path, &error))?;
        Ok(found.len())
    }

    /// For a scheduled run, which waits for nothing.
    pub(super) fn scheduled(root: &Path) -> AgentResult<Self> {
        let scheduled = try_lock(root, SCHEDULED_LOCK)?;
        Ok(Self { _scheduled: Some(scheduled), ..Self::new(root)? })
    }

    fn new(root: &Path) -> AgentResult<Self> {
        let folder = below(root, DRAFTS);
        let lock = try_lock(root, LOCK)?;
        // Left by a run that was killed.
        for entry in fs::read_dir(&folder).map_err(|error| unwritable(&folder, &error))?.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(DRAFT.0) && name.ends_with(DRAFT.1) {
                // One that cannot be deleted only takes space.
                let _ = fs::remove_file(entry.path());
            }
        }
        let draft = tempfile::Builder::new().prefix(DRAFT.0).suffix(DRAFT.1).tempfile_in(&folder);
        let path = draft.map_err(|error| unwritable(&folder, &error))?.into_temp_path();
        Ok(Self { path, _lock: lock, _scheduled: None })
    }

    fn create(&self) -> AgentResult<File> {
        let file = OpenOptions::new().truncate(true).write(true).open(&self.path);
        file.map_err(|error| unwritable(&self.path, &error))
    }
}

pub(super) fn unwritable(path: &Path, error: &std::io::Error) -> AgentError {
    AgentError::transient(
        FailureCode::SnapshotFiles,
        format!("{}: {error}", path.display()),
        "see that the disk has room, then run this again",
    )
}
