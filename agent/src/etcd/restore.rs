//! `etcd restore`: replaces a member's data by a snapshot. Run with the same options on every member, it founds a new cluster.
//!
//! The data are prepared and checked while etcd runs; [`RestoreStage`] says whether that is all. Then etcd is stopped, the data are
//! swapped by renames, and etcd is started without waiting: the first of three members has no majority yet. The previous data are kept
//! aside and never deleted. The verb can be killed at any point and run again.
//!
//! **Revisions only go up.** Clients compare them, so those after a restore must be larger than any that they have seen. They are raised by
//! `--bump`, which must be larger with each restore (etcd.io, "Restoring with revision bump"; kubernetes 107457).
//!
//! **A token names one restore.** Members of two clusters with the same token would accept each other although their histories
//! differ, so a member never uses a token twice, nor that of its founding.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{BufWriter, ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use slipway_core::node::{NodeFile, RestoreMark, RestoreStage, Restored, RestoredEtcd, initial_cluster};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::timeout;

use super::SERVICE;
use super::checker::Checker;
use super::defragment::room;
use super::local_member::LocalMember;
use super::scheduled::schedule;
use super::snapshot::{Draft, Opened, download_any, open};
use crate::aws::{Aws, Endpoints};
use crate::credentials::below;
use crate::failure::{AgentError, AgentResult, FailureCode};
use crate::machine::apply::UNITS;
use crate::machine::commands::Commands;
use crate::machine::files::{self, Owner};
use crate::{node_files, sealed_bundle, software};

/// etcdutl, which etcd's releases have since 3.5; etcdctl until 3.5.
const RESTORERS: [&str; 2] = ["etcdutl", "etcdctl"];
/// Beside the data, in the same volume.
const WORK: &str = "restore.part";
const MARK: &str = "restored.json";
/// How long to wait for a member that may have no majority yet.
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// The request, the same for all members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub snapshot: String,
    /// `--initial-cluster-token`. `None`: made of the cluster's name and the snapshot's time.
    pub token: Option<String>,
    /// Peer URLs by member. Empty: the founders of this cluster.
    pub members: BTreeMap<String, String>,
    /// By how much revisions are raised.
    pub bump: u64,
    /// SHA-256 of the database that the snapshot must hold. `None`: any, if there are no doubts.
    pub sha256: Option<String>,
    pub stage: RestoreStage,
}

/// Replaces this member's data by the snapshot, and starts it.
pub async fn restore(
    local: &LocalMember,
    endpoints: &Endpoints,
    commands: &impl Commands,
    request: &Request,
) -> AgentResult<Restored> {
    let node = node_files::required_node(&local.root)?;
    let members = members(local, request)?;
    let token = request.token.clone().unwrap_or_else(|| format!("{}-{}", node.cluster, request.snapshot));
    let (data, volume) = (local.data(), volume(local));
    let (work, mark) = (volume.join(WORK), volume.join(MARK));
    let same = |found: &RestoreMark| {
        found.snapshot == request.snapshot
            && found.token == token
            && found.initial_cluster == members
            && found.bump.is_none_or(|bump| bump == request.bump)
            && request.sha256.as_ref().is_none_or(|sha256| *sha256 == found.sha256)
    };
    // Two restores, or a snapshot, would disturb each other.
    let draft = Draft::after_a_scheduled_one(&local.root).await?;
    let before = read(&mark)?;
    if let Some(found) = before.clone().filter(same)
        && data.exists()
    {
        // With an explicit token the restore may be repeated, and the answer says that it is done.
        if found.started && request.token.is_none() {
            return Err(token_used(&token, "this member was restored from that snapshot, and has run since"));
        }
        if request.stage != RestoreStage::Whole {
            return Ok(unchanged(found));
        }
        return start(local, commands, &mark, found, false, None).await;
    }
    // An earlier run died between its last two steps.
    if let Some(done) = read(&work.join(MARK))?.filter(same)
        && data.exists()
        && !work.join("data").exists()
    {
        if request.stage != RestoreStage::Whole {
            return Ok(unchanged(done));
        }
        write(&mark, &done)?;
        remove(&work)?;
        return start(local, commands, &mark, done, false, None).await;
    }
    // After those: a replacement that was interrupted is not forgotten, nor its token.
    if request.stage == RestoreStage::Discard {
        refuse_without_data(&data, &work)?;
        remove(&work)?;
        return Ok(unchanged(RestoreMark::new(request.snapshot.clone(), token, members)));
    }
    if token == local.config.etcd.initial_cluster_token {
        return Err(token_used(&token, "the cluster was founded with it"));
    }
    let raised = before.as_ref().and_then(raised);
    let tokens_before = before.map_or_else(Vec::new, |mut mark| {
        mark.tokens_before.push(mark.token);
        mark.tokens_before
    });
    if tokens_before.contains(&token) {
        return Err(token_used(&token, "a restore before this one on this member had it"));
    }
    must_raise_more(raised, request.bump, &mark)?;
    // Data that an earlier run has completed are reused.
    let made = match read(&work.join(MARK))?.filter(same).filter(|_| work.join("data").exists()) {
        Some(done) => Ok(done),
        None => {
            let mark = RestoreMark::new(request.snapshot.clone(), token, members);
            let mark = RestoreMark { bump: Some(request.bump), tokens_before, ..mark };
            make(local, endpoints, &node, &draft, mark, request.sha256.as_deref()).await
        }
    };
    // etcd runs on, and needs the room.
    if made.is_err() || request.stage == RestoreStage::Verify {
        remove(&work)?;
    }
    let done = made?;
    if request.stage != RestoreStage::Whole {
        return Ok(unchanged(done));
    }
    let kept_aside = swap(local, commands, &done).await?;
    write(&mark, &done)?;
    remove(&work)?;
    start(local, commands, &mark, done, true, kept_aside).await
}

fn unchanged(mark: RestoreMark) -> Restored {
    Restored { changed: false, mark, kept_aside: None, etcd: RestoredEtcd::Unchanged, reason: None }
}

/// By how much the restore of that mark raised revisions, if it did.
fn raised(mark: &RestoreMark) -> Option<u64> {
    /// Of agents that did not note it.
    const ALWAYS: u64 = 1_000_000_000;
    mark.bumped.then(|| mark.bump.unwrap_or(ALWAYS))
}

/// Fails unless revisions are raised by more than the last restore of this member raised them: they would go backwards.
fn must_raise_more(before: Option<u64>, bump: u64, mark: &Path) -> AgentResult<()> {
    let Some(before) = before.filter(|before| *before >= bump) else { return Ok(()) };
    Err(AgentError::permanent(
        FailureCode::RestoreRevisionBump,
        format!(
            "the last restore of this member raised revisions by {before}, and this one would raise them by only {bump}: clients would take restored data for \
             data that they have already"
        ),
        format!(
            "see that the clock of the computer that orders it is right, or give all members the same larger --bump; if there is none, stop all API servers and \
             delete {} on each member; nothing was changed",
            mark.display()
        ),
    ))
}

/// What speaks against a snapshot that could be opened: its name is all that says which one it is, and a key of the cluster who sealed it.
async fn doubts<W>(
    local: &LocalMember,
    aws: &Aws,
    node: &NodeFile,
    opened: &Opened<W>,
) -> AgentResult<Vec<String>> {
    let mut doubts = Vec::new();
    if !opened.has_name {
        doubts.push("an agent of before sealed it, so it may be a copy of an earlier snapshot".to_owned());
    }
    if !sealed_bundle::is_own_key(&local.root, aws, node, &opened.sealed_under).await? {
        let key: String = opened.sealed_under.chars().take(200).collect();
        doubts.push(format!("it is sealed under {key}, and this member's credentials are not"));
    }
    Ok(doubts)
}

/// Fails if the snapshot does not hold what it must, or if nobody has said what that is and there are doubts.
fn must_be_wanted(mark: &RestoreMark, key: &str, wanted: Option<&str>) -> AgentResult<()> {
    let problem = match wanted {
        Some(wanted) if wanted == mark.sha256 => return Ok(()),
        Some(wanted) => format!("{key} holds a database with the SHA-256 {}, and not {wanted}", mark.sha256),
        None if mark.doubts.is_empty() => return Ok(()),
        None => format!("{key} may be another snapshot: {}", mark.doubts.join("; ")),
    };
    Err(AgentError::permanent(
        FailureCode::RestoreWrongSnapshot,
        problem,
        "give --sha256 with the SHA-256 that a log you trust names for it (that of the member that took it: `slipway logs etcd-N --unit agent`), or restore from \
         another snapshot; nothing was changed",
    ))
}

/// Prepares the data beside the current ones. `wanted`: the SHA-256 that they must have.
async fn make(
    local: &LocalMember,
    endpoints: &Endpoints,
    node: &NodeFile,
    draft: &Draft,
    mut mark: RestoreMark,
    wanted: Option<&str>,
) -> AgentResult<RestoreMark> {
    let (data, work) = (local.data(), volume(local).join(WORK));
    let aws = Aws::new(endpoints, &node.region)?;
    let tool = restore_tool(&local.root)?;
    let key = download_any(&aws, node, &mark.snapshot, draft).await?;
    // Nothing depends on it, so a schedule that cannot be read prevents no restore.
    let schedule = schedule(&aws.bucket(&node.asset_bucket), node).await.ok().flatten();
    mark.of_earlier_etcd = schedule.is_some_and(|schedule| schedule.is_of_deleted_etcd(&mark.snapshot));
    remove(&work)?;
    // The database, and what is unpacked from it.
    room(&volume(local), draft.bytes()?.saturating_mul(2))?;
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&work);
    made.map_err(|error| failed(&work, &error))?;
    let plain = work.join("snapshot.db");
    let to = CheckedFile { file: BufWriter::new(create(&plain)?), checker: Checker::default() };
    let opened = open(&aws, node, draft, &key, to).await?;
    mark.doubts = doubts(local, &aws, node, &opened).await?;
    let whole = opened.text.checker.finish().map_err(|why| {
        AgentError::permanent(
            FailureCode::RestoreDamaged,
            format!("s3://{}/{key} is not a complete snapshot: {why}", node.asset_bucket),
            "restore from another snapshot; nothing was changed",
        )
    })?;
    mark.sha256 = whole.sha256;
    must_be_wanted(&mark, &key, wanted)?;
    let made = work.join("making");
    mark.bumped = run_restore_tool(local, &tool, &plain, &mark, &made).await?;
    fs::remove_file(&plain).map_err(|error| failed(&plain, &error))?;
    let reference = if data.exists() { data } else { local.pki() };
    chown_like(&made, &reference)?;
    rename(&made, &work.join("data"))?;
    // From here on the prepared data are complete.
    write(&work.join(MARK), &mark)?;
    Ok(mark)
}

/// Stops etcd and swaps the data. Returns where the previous data are.
async fn swap(
    local: &LocalMember,
    commands: &impl Commands,
    done: &RestoreMark,
) -> AgentResult<Option<String>> {
    let (data, work) = (local.data(), volume(local).join(WORK));
    // A missing unit has nothing to stop, and one that keeps running is detected by the lock.
    commands.run("systemctl", &["stop", SERVICE]).await?;
    if let Err(failure) = refuse_if_running(local).await {
        // With the previous data.
        commands.run("systemctl", &["start", "--no-block", SERVICE]).await?;
        return Err(failure);
    }
    match exchange(&data, &work.join("data"), &done.snapshot) {
        Ok(kept_aside) => Ok(kept_aside),
        Err(failure) => {
            // With the previous data. A member that has none must not found a new cluster.
            if data.exists() {
                commands.run("systemctl", &["start", "--no-block", SERVICE]).await?;
            }
            Err(failure)
        }
    }
}

/// Puts `prepared` in the place of `data`, and `data` aside. If that fails, `data` are where they were. Returns where they are now.
fn exchange(data: &Path, prepared: &Path, snapshot: &str) -> AgentResult<Option<String>> {
    if !data.exists() {
        rename(prepared, data)?;
        return Ok(None);
    }
    let aside = unused_path(data, snapshot);
    rename(data, &aside)?;
    if let Err(failure) = rename(prepared, data) {
        rename(&aside, data)?;
        return Err(failure);
    }
    Ok(Some(aside.display().to_string()))
}

/// Fails if a replacement was interrupted after the previous data were put aside: what is prepared is all that this member would start with.
fn refuse_without_data(data: &Path, work: &Path) -> AgentResult<()> {
    if data.exists() || !work.join("data").exists() {
        return Ok(());
    }
    Err(AgentError::permanent(
        FailureCode::RestoreInterrupted,
        format!("an earlier restore was interrupted while it replaced {}, which is missing", data.display()),
        format!(
            "run that restore again with the same snapshot and options; or rename {}.before-… to {} and start etcd",
            data.display(),
            data.display()
        ),
    ))
}

/// Starts etcd with the current data, and watches it for a while.
async fn start(
    local: &LocalMember,
    commands: &impl Commands,
    path: &Path,
    mut mark: RestoreMark,
    changed: bool,
    kept_aside: Option<String>,
) -> AgentResult<Restored> {
    // A machine whose bootstrap is not that far has no unit yet, and starts etcd with these data when it is.
    if !below(&local.root, UNITS).join(SERVICE).exists() {
        let reason = Some(format!("this machine has no {SERVICE} yet: its bootstrap starts etcd"));
        return Ok(Restored { changed, mark, kept_aside, etcd: RestoredEtcd::Waiting, reason });
    }
    // A unit that failed again and again may keep the count of its restarts, which would look like restarts with the restored data.
    commands.run("systemctl", &["reset-failed", SERVICE]).await?;
    // Without waiting: the unit is ready once etcd has a majority.
    let started = commands.run_checked("systemctl", &["start", "--no-block", SERVICE]).await;
    started.map_err(|failure| {
        let help = "the data are in place: see why systemd does not start etcd, then run this again";
        AgentError { help: help.to_owned(), ..failure }
    })?;
    if !mark.started {
        mark.started = true;
        write(path, &mark)?;
    }
    let begun = Instant::now();
    let reason = loop {
        let reason = match local.client() {
            Ok(client) => match local.endpoint(&client).serves().await {
                Ok(()) => {
                    let etcd = RestoredEtcd::Serving;
                    return Ok(Restored { changed, mark, kept_aside, etcd, reason: None });
                }
                Err(refusal) => refusal.to_string(),
            },
            Err(failure) => failure.message,
        };
        if begun.elapsed() > START_TIMEOUT {
            break reason;
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    };
    let shown =
        commands.run_checked("systemctl", &["show", "--property=ActiveState,NRestarts", SERVICE]).await?;
    let value = |name: &str| shown.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let restarts = value("NRestarts").and_then(|text| text.parse::<u32>().ok()).unwrap_or_default();
    let state = value("ActiveState").unwrap_or("unknown");
    if restarts > 0 || !matches!(state, "active" | "activating" | "reloading") {
        return Err(AgentError::transient(
            FailureCode::RestoreStart,
            format!(
                "etcd was started with the restored data and does not stay up: it is {state} after {restarts} restarts"
            ),
            "see `journalctl -u etcd` on the node; the previous data are kept beside the restored ones",
        ));
    }
    Ok(Restored { changed, mark, kept_aside, etcd: RestoredEtcd::Waiting, reason: Some(reason) })
}

fn token_used(token: &str, why: &str) -> AgentError {
    AgentError::permanent(
        FailureCode::RestoreToken,
        format!("the token {token} was used before: {why}"),
        "give all members the same new --token, for example today's date, and run this again; nothing was changed",
    )
}

/// `--initial-cluster`, which must name this member's own URL.
fn members(local: &LocalMember, request: &Request) -> AgentResult<String> {
    let etcd = &local.config.etcd;
    let members = if request.members.is_empty() { &etcd.initial_cluster } else { &request.members };
    let own = local.peer_url();
    if members.get(&etcd.name) != Some(&own) {
        return Err(AgentError::permanent(
            FailureCode::RestoreMembers,
            format!("the list of members to restore lacks this member, {}={own}", etcd.name),
            "give --initial-cluster NAME=URL,… with every member of the restored cluster, the same on all of them",
        ));
    }
    Ok(initial_cluster(members))
}

/// A running member holds its database's lock and listens on its ports.
async fn refuse_if_running(local: &LocalMember) -> AgentResult<()> {
    let database = local.data().join("member/snap/db");
    let locked = match OpenOptions::new().read(true).write(true).open(&database) {
        Ok(file) => matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock)),
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => return Err(failed(&database, &error)),
    };
    let etcd = &local.config.etcd;
    let mut listens = false;
    for port in [etcd.client_port, etcd.peer_port] {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let connected = timeout(Duration::from_secs(1), TcpStream::connect(address)).await;
        listens |= connected.is_ok_and(|connected| connected.is_ok());
    }
    if !locked && !listens {
        return Ok(());
    }
    Err(AgentError::permanent(
        FailureCode::RestoreRunning,
        format!(
            "{} still runs although {SERVICE} was stopped: its data must not be replaced meanwhile",
            etcd.name
        ),
        "stop the other etcd process on this machine, then run this again; nothing was changed",
    ))
}

/// Runs etcd's own tool. `true` if it raised the revisions.
async fn run_restore_tool(
    local: &LocalMember,
    tool: &Path,
    plain: &Path,
    mark: &RestoreMark,
    to: &Path,
) -> AgentResult<bool> {
    let own = local.peer_url();
    let command = |arguments: &[&str]| {
        let mut command = Command::new(tool);
        command.env_clear().env("ETCDCTL_API", "3").args(["snapshot", "restore"]).args(arguments);
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    };
    let help = command(&["--help"]).output().await.map_err(|error| failed(tool, &error))?;
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    // etcdctl cannot restore since 3.6, and prints the help of `snapshot` instead.
    if !help.contains("--initial-cluster") {
        return Err(AgentError::permanent(
            FailureCode::RestoreProgram,
            format!("{} cannot restore snapshots, and this machine has no {}", tool.display(), RESTORERS[0]),
            "add etcdutl of the same release to the archive of etcd on your mirror, or to your image, and replace the machine; nothing was changed",
        ));
    }
    let bumps = help.contains("--bump-revision");
    let mut restoring =
        command(&["--name", &local.config.etcd.name, "--initial-cluster", &mark.initial_cluster]);
    restoring.args(["--initial-cluster-token", &mark.token, "--initial-advertise-peer-urls", &own]);
    restoring.arg("--data-dir").arg(to);
    if bumps {
        let bump = mark.bump.unwrap_or_default().to_string();
        restoring.args(["--bump-revision", &bump, "--mark-compacted"]);
    }
    let output = restoring.arg(plain).output().await.map_err(|error| failed(tool, &error))?;
    if output.status.success() {
        return Ok(bumps);
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let last = words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it printed no reason");
    Err(AgentError::permanent(
        FailureCode::RestoreProgram,
        format!(
            "{} ended with {}: {}",
            tool.display(),
            output.status,
            last.chars().take(300).collect::<String>()
        ),
        "see that the volume has room for a second copy of the data; the data in use were not touched",
    ))
}

fn restore_tool(root: &Path) -> AgentResult<PathBuf> {
    let found =
        software::find_program(root, RESTORERS[0]).or_else(|_| software::find_program(root, RESTORERS[1]));
    found.map(|path| below(root, &path.to_string_lossy()))
}

/// Writes a file and checks it at the same time.
struct CheckedFile {
    file: BufWriter<File>,
    checker: Checker,
}

impl Write for CheckedFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.file.write_all(bytes)?;
        self.checker.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

fn volume(local: &LocalMember) -> PathBuf {
    let data = local.data();
    data.parent().map_or_else(|| data.clone(), Path::to_path_buf)
}

/// A path for the previous data that does not exist yet.
fn unused_path(data: &Path, snapshot: &str) -> PathBuf {
    let name = |number: u32| data.with_extension(format!("before-{snapshot}-{number}"));
    (1..).map(name).find(|path| !path.exists()).unwrap_or_else(|| name(0))
}

/// Gives the data to the owner of `reference`, which is etcd's user.
fn chown_like(folder: &Path, reference: &Path) -> AgentResult<()> {
    let found = fs::metadata(reference).map_err(|error| failed(reference, &error))?;
    files::chown_all(folder, Owner { uid: found.uid(), gid: found.gid() })
}

fn read(path: &Path) -> AgentResult<Option<RestoreMark>> {
    match fs::read(path) {
        // A half-written mark counts as none.
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(path, &error)),
    }
}

fn write(path: &Path, mark: &RestoreMark) -> AgentResult<()> {
    let bytes = serde_json::to_vec(mark).expect("a mark has string keys only");
    let mut file = create(path)?;
    file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(|error| failed(path, &error))
}

fn create(path: &Path) -> AgentResult<File> {
    let mut options = OpenOptions::new();
    let file = options.create(true).truncate(true).write(true).mode(0o600).open(path);
    file.map_err(|error| failed(path, &error))
}

/// Renames, and syncs the folder.
fn rename(from: &Path, to: &Path) -> AgentResult<()> {
    let renamed = || {
        fs::rename(from, to)?;
        to.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    };
    renamed().map_err(|error: std::io::Error| failed(to, &error))
}

fn remove(folder: &Path) -> AgentResult<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(folder, &error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn failed(path: &Path, error: &std::io::Error) -> AgentError {
    AgentError::transient(
        FailureCode::RestoreFiles,
        format!("{}: {error}", path.display()),
        "see that the volume is mounted and has room, then run this again",
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn p4_data_that_cannot_be_replaced_stay_where_they_were() {
        let volume = tempfile::tempdir().unwrap();
        let (data, prepared) = (volume.path().join("data"), volume.path().join("part/data"));
        for path in [&data, &prepared] {
            fs::create_dir_all(path).unwrap();
        }
        fs::write(data.join("old"), "").unwrap();
        fs::write(prepared.join("new"), "").unwrap();
        let aside = exchange(&data, &prepared, "now").unwrap().unwrap();
        assert!(data.join("new").exists() && Path::new(&aside).join("old").exists());
        // Nothing is prepared any more.
        assert_eq!(exchange(&data, &prepared, "now").unwrap_err().code, FailureCode::RestoreFiles);
        assert!(data.join("new").exists());
    }

    #[test]
    fn p4_the_only_data_of_a_member_are_not_discarded() {
        let volume = tempfile::tempdir().unwrap();
        let (data, work) = (volume.path().join("data"), volume.path().join("part"));
        assert!(refuse_without_data(&data, &work).is_ok(), "nothing is prepared");
        fs::create_dir_all(work.join("data")).unwrap();
        let refused = refuse_without_data(&data, &work).unwrap_err();
        assert_eq!(refused.code, FailureCode::RestoreInterrupted);
        fs::create_dir(&data).unwrap();
        assert!(refuse_without_data(&data, &work).is_ok());
    }
}
