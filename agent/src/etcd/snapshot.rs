//! `etcd snapshot`: out of the running member into the asset bucket, and never in plain on a disk.
//!
//! What etcd streams is checked, sealed piece by piece into a file, uploaded, fetched again, opened under the key as KMS gives it, and
//! checked again: a snapshot that was reported can be restored. Memory does not grow with it.

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
use slipway_core::node::{NodeFile, SNAPSHOT_ROLE, SnapshotTaken};
use slipway_crypto::AwsLc;
use slipway_crypto::stream::{Sealed, Sealer};
use slipway_ports::{Context, Crypto as _, Keys as _};
use tempfile::TempPath;
use tokio::time::timeout;

use super::checker::{Checker, Whole};
use super::client::{Endpoint, Refusal, failed};
use super::place::Place;
use super::wire::Piece;
use crate::aws::{Aws, Endpoints};
use crate::credentials::below;
use crate::failure::{Failure, FailureCode, Outcome};
use crate::refresh::SEALED;
use crate::status;

/// How long etcd may take between two pieces.
const PATIENCE: Duration = Duration::from_secs(60);
/// A piece is some 44 KB; a line beyond this is none.
const LINE_AT_MOST: usize = 8 << 20;
/// What S3 takes in one call.
const SIZE_AT_MOST: u64 = 5 << 30;
/// Where it waits until it is uploaded, sealed.
const DRAFTS: &str = "/var/lib/slipway";
const DRAFT: (&str, &str) = ("snapshot-", ".sealed");
/// Who holds it is the only one with a draft.
const LOCK: &str = "snapshot.lock";
/// Another member may take one in the same second, and the name tells seconds.
const NAMES_AT_MOST: u32 = 10;

/// Takes a snapshot of the cluster by this member.
///
/// # Errors
/// If the member does not serve; if a call fails; if what comes back is not what was sent.
pub async fn snapshot(place: &Place, endpoints: &Endpoints) -> Outcome<SnapshotTaken> {
    let start = Instant::now();
    let node = node(place)?;
    let draft = Draft::new(&place.root)?;
    let aws = Aws::new(endpoints, &node.region)?;
    let caller = place.caller()?;
    let own = place.own(&caller);
    // Through a majority: whatever was acknowledged until now is in it.
    own.serves().await.map_err(|refusal| failed(&refusal, "reading through a majority"))?;
    let status = own.status().await.map_err(|refusal| failed(&refusal, "asking how the member is"))?;

    let arn = key_of(&place.root)?;
    let context = context(&node.cluster);
    let data_key = aws.keys(Some(arn.clone())).generate(None, &context).await?;
    let sealer = Sealer::new(&data_key, &context, BufWriter::new(draft.create()?))?;
    let (whole, sealer) = stream(&own, sealer).await?;
    let file = sealer.finish()?.into_inner().map_err(|error| unwritable(&draft.path, error.error()))?;
    file.sync_all().map_err(|error| unwritable(&draft.path, &error))?;
    let length = file.metadata().map_err(|error| unwritable(&draft.path, &error))?.len();
    if length > SIZE_AT_MOST {
        return Err(Failure::lasting(
            FailureCode::SnapshotSize,
            format!("the sealed snapshot has {length} bytes, and S3 takes {SIZE_AT_MOST} at once"),
            "compact and defragment etcd; nothing was uploaded",
        ));
    }
    drop(data_key);

    let (time, key) = upload(&aws, &node, &draft).await?;
    let back = Checker::default();
    let back = fetch(&aws, &node, &key, &draft, back).await?.finish();
    if back.as_ref() != Ok(&whole) {
        return Err(Failure::passing(
            FailureCode::SnapshotReadBack,
            format!("s3://{}/{key} is not what was uploaded: {back:?}", node.asset_bucket),
            "run this again; restore from another snapshot than that",
        ));
    }
    Ok(SnapshotTaken {
        time,
        key,
        size: whole.size,
        sha256: whole.sha256,
        revision: status.header.revision,
        version: status.version,
        sealed_under: arn,
        seconds: start.elapsed().as_secs(),
    })
}

/// Uploads it under a name that nobody has yet: its time, and its key.
async fn upload(aws: &Aws, node: &NodeFile, draft: &Draft) -> Outcome<(String, String)> {
    let bucket = aws.bucket(&node.asset_bucket);
    for _ in 0..NAMES_AT_MOST {
        let time = Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let key = keys::etcd_snapshot(&node.cluster, &time);
        if bucket.upload_new(&key, &draft.path).await? {
            return Ok((time, key));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Err(Failure::passing(
        FailureCode::SnapshotNames,
        format!("others took a snapshot in each of the last {NAMES_AT_MOST} seconds"),
        "one is enough: see who asks for them",
    ))
}

/// Reads what etcd streams, line by line, into `sealer`.
async fn stream<W: std::io::Write>(own: &Endpoint, mut sealer: Sealer<W>) -> Outcome<(Whole, Sealer<W>)> {
    let broken = |why: String| failed(&Refusal::Unreachable(why), "streaming a snapshot");
    let response = own.snapshot().await.map_err(|refusal| failed(&refusal, "beginning a snapshot"))?;
    let (mut stream, mut line, mut checker) = (response.bytes_stream(), Vec::new(), Checker::default());
    loop {
        let bytes = timeout(PATIENCE, stream.next()).await;
        let bytes = match bytes.map_err(|_| broken("no more of it comes".to_owned()))? {
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
            return Err(broken("it comes in other pieces than etcd's".to_owned()));
        }
    }
    if !line.trim_ascii().is_empty() {
        let piece = piece(&line).map_err(broken)?;
        checker.push(&piece);
        sealer.push(&piece)?;
    }
    let whole = checker.finish().map_err(|why| broken(format!("it is not whole: {why}")))?;
    Ok((whole, sealer))
}

fn piece(line: &[u8]) -> Result<Vec<u8>, String> {
    if line.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    // The error's own words might quote what it met.
    let piece: Piece = serde_json::from_slice(line).map_err(|_| "it is no JSON".to_owned())?;
    match (piece.error, piece.result) {
        (Some(error), _) => Err(format!("etcd says: {}", error["message"].as_str().unwrap_or("it failed"))),
        (None, Some(blob)) => STANDARD.decode(blob.blob).map_err(|_| "a piece is no base64".to_owned()),
        (None, None) => Err("a piece holds nothing".to_owned()),
    }
}

/// Fetches a sealed snapshot, and opens it into `to`.
pub(super) async fn fetch<W: std::io::Write + Send + 'static>(
    aws: &Aws,
    node: &NodeFile,
    key: &str,
    draft: &Draft,
    mut to: W,
) -> Outcome<W> {
    draft.create()?;
    aws.bucket(&node.asset_bucket).download(key, &draft.path).await?;
    let file = File::open(&draft.path).map_err(|error| unwritable(&draft.path, &error))?;
    let sealed = Sealed::read(BufReader::new(file))?;
    let context = context(&node.cluster);
    let data_key = aws.keys(None).unwrap(&sealed.wrapped, &context).await?;
    let opening = tokio::task::spawn_blocking(move || sealed.open(&data_key, &context, &mut to).map(|()| to));
    let opened = opening.await.map_err(|error| {
        Failure::lasting(
            FailureCode::SnapshotPanic,
            format!("opening the snapshot: {error}"),
            "report this: it is a defect",
        )
    })?;
    Ok(opened?)
}

/// Who this node is.
pub(super) fn node(place: &Place) -> Outcome<NodeFile> {
    status::node(&place.root)?.ok_or_else(|| {
        Failure::lasting(
            FailureCode::ConfigUnreadable,
            "node.json is missing: this machine was never told which cluster it belongs to",
            "replace the node: its userdata writes that file",
        )
    })
}

fn context(cluster: &str) -> Context {
    BTreeMap::from([
        ("cluster".to_owned(), cluster.to_owned()),
        ("role".to_owned(), SNAPSHOT_ROLE.to_owned()),
    ])
}

/// The KMS key under which this node's credentials were sealed last: the cluster's own, or Slipway's.
fn key_of(root: &Path) -> Outcome<String> {
    let path = below(root, SEALED);
    let bytes = fs::read(&path).map_err(|error| unwritable(&path, &error))?;
    let newest = AwsLc.sealings(&bytes)?.pop();
    Ok(newest.map(|sealing| sealing.wrapped_by.to_owned()).unwrap_or_default())
}

/// A sealed file on its way, gone when dropped, and the lock of who may have one: what Systems Manager delivers twice must not
/// write into one file, nor fill the disk with two.
#[derive(Debug)]
pub(super) struct Draft {
    path: TempPath,
    _lock: File,
}

impl Draft {
    /// # Errors
    /// If somebody has one.
    pub(super) fn new(root: &Path) -> Outcome<Self> {
        let folder = below(root, DRAFTS);
        let path = folder.join(LOCK);
        let mut options = OpenOptions::new();
        let lock = options.create(true).truncate(false).write(true).mode(0o600).open(&path);
        let lock = lock.map_err(|error| unwritable(&path, &error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::passing(
                    FailureCode::SnapshotBusy,
                    "a snapshot is being taken or restored on this machine",
                    "wait for it; its answer tells its time",
                ));
            }
            Err(TryLockError::Error(error)) => return Err(unwritable(&path, &error)),
        }
        // Sealed: who was killed left nothing but space.
        for entry in fs::read_dir(&folder).map_err(|error| unwritable(&folder, &error))?.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(DRAFT.0) && name.ends_with(DRAFT.1) {
                // What stays takes space, and is in nobody's way.
                let _ = fs::remove_file(entry.path());
            }
        }
        let draft = tempfile::Builder::new().prefix(DRAFT.0).suffix(DRAFT.1).tempfile_in(&folder);
        let path = draft.map_err(|error| unwritable(&folder, &error))?.into_temp_path();
        Ok(Self { path, _lock: lock })
    }

    /// Empty; for its owner alone.
    fn create(&self) -> Outcome<File> {
        let file = OpenOptions::new().truncate(true).write(true).open(&self.path);
        file.map_err(|error| unwritable(&self.path, &error))
    }
}

pub(super) fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::passing(
        FailureCode::SnapshotFiles,
        format!("{}: {error}", path.display()),
        "see that the disk has room, then run this again",
    )
}
