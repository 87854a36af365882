//! `etcd restore`: a member's data out of a snapshot; run on every member with the same words, they make a new cluster.
//!
//! Everything is made and checked while etcd runs. Then it is stopped, the data are swapped by renames, and it is started again,
//! which waits for nobody: the first of three has no majority yet. What was there before is put aside and never deleted. It may
//! die anywhere and run again.
//!
//! **A token names one restore.** Members of two clusters with one token take each other for their own, though their pasts
//! differ: no token is ever used twice on a member, and that of the founders never.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{BufWriter, ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use slipway_core::keys;
use slipway_core::node::NodeFile;
use slipway_core::node::answer::{RestoreMark, Restored, RestoredEtcd};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::timeout;

use super::checker::Checker;
use super::place::Place;
use super::snapshot::{Draft, fetch, node};
use crate::aws::{Aws, Endpoints};
use crate::bootstrap::ETCD_SERVICE as SERVICE;
use crate::credentials::below;
use crate::failure::{Failure, FailureCode, Outcome};
use crate::machine::commands::Commands;
use crate::software;

/// Kubernetes' controllers compare revisions: after a restore they must be larger than any that was ever seen.
const BUMP: &str = "1000000000";
/// Since 3.5, and before.
const RESTORERS: [&str; 2] = ["etcdutl", "etcdctl"];
/// Beside the data, in their volume.
const WORK: &str = "restore.part";
const MARK: &str = "restored.json";
/// So long a member is waited for that may have no majority yet.
const STARTING: Duration = Duration::from_secs(5);

/// What is to be restored: the same for all members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The snapshot's time, as `etcd snapshot` told it.
    pub snapshot: String,
    /// `--initial-cluster-token`: a new one, so that nobody of the cluster before takes part. `None`: made of the cluster's name
    /// and the snapshot's time.
    pub token: Option<String>,
    /// Peer URLs by member. Empty: those that this member was founded with.
    pub members: BTreeMap<String, String>,
}

/// Makes this member's data out of a snapshot, and starts it with them.
///
/// # Errors
/// If the snapshot cannot be had or opened, or is not whole; if etcd's program fails; if the member cannot be stopped, or ends once
/// it is started.
pub async fn restore(
    place: &Place,
    endpoints: &Endpoints,
    commands: &impl Commands,
    request: &Request,
) -> Outcome<Restored> {
    let node = node(place)?;
    let members = members(place, request)?;
    let token = request.token.clone().unwrap_or_else(|| format!("{}-{}", node.cluster, request.snapshot));
    let (data, volume) = (place.data(), volume(place));
    let (work, mark) = (volume.join(WORK), volume.join(MARK));
    let same = |found: &RestoreMark| {
        found.snapshot == request.snapshot && found.token == token && found.initial_cluster == members
    };
    let before = read(&mark)?;
    if let Some(found) = before.clone().filter(same)
        && data.exists()
    {
        // Whoever names the restore by its token may ask for it again, and hears that it is done.
        if found.started && request.token.is_none() {
            return Err(used(&token, "this member was restored from that snapshot, and has run since"));
        }
        return start(place, commands, &mark, found, false, None).await;
    }
    // A run before this died between its last two steps.
    if let Some(done) = read(&work.join(MARK))?.filter(same)
        && data.exists()
        && !work.join("data").exists()
    {
        write(&mark, &done)?;
        remove(&work)?;
        return start(place, commands, &mark, done, false, None).await;
    }
    if token == place.config.etcd.initial_cluster_token {
        return Err(used(&token, "the cluster was founded with it"));
    }
    let tokens_before = before.map_or_else(Vec::new, |mut mark| {
        mark.tokens_before.push(mark.token);
        mark.tokens_before
    });
    if tokens_before.contains(&token) {
        return Err(used(&token, "a restore before this one on this member had it"));
    }
    // What a run before this made is as good, if it was finished.
    let done = match read(&work.join(MARK))?.filter(same).filter(|_| work.join("data").exists()) {
        Some(done) => done,
        None => {
            let mark = RestoreMark {
                snapshot: request.snapshot.clone(),
                token,
                initial_cluster: members,
                sha256: String::new(),
                bumped: false,
                started: false,
                tokens_before,
            };
            make(place, endpoints, &node, mark).await?
        }
    };
    let kept_aside = swap(place, commands, &done).await?;
    write(&mark, &done)?;
    remove(&work)?;
    start(place, commands, &mark, done, true, kept_aside).await
}

/// Makes the data beside those that are in force.
async fn make(
    place: &Place,
    endpoints: &Endpoints,
    node: &NodeFile,
    mut mark: RestoreMark,
) -> Outcome<RestoreMark> {
    let (data, work) = (place.data(), volume(place).join(WORK));
    let aws = Aws::new(endpoints, &node.region)?;
    let tool = tool(&place.root)?;
    let draft = Draft::new(&place.root)?;
    remove(&work)?;
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&work);
    made.map_err(|error| failed(&work, &error))?;
    let plain = work.join("snapshot.db");
    let to = Both { file: BufWriter::new(create(&plain)?), checker: Checker::default() };
    let key = keys::etcd_snapshot(&node.cluster, &mark.snapshot);
    let opened = fetch(&aws, node, &key, &draft, to).await?;
    let whole = opened.checker.finish().map_err(|why| {
        Failure::lasting(
            FailureCode::RestoreDamaged,
            format!("s3://{}/{key} is no whole snapshot: {why}", node.asset_bucket),
            "restore from another one; nothing was changed",
        )
    })?;
    mark.sha256 = whole.sha256;
    let made = work.join("making");
    mark.bumped = run(place, &tool, &plain, &mark, &made).await?;
    fs::remove_file(&plain).map_err(|error| failed(&plain, &error))?;
    let whose = if data.exists() { data } else { place.pki() };
    give(&made, &whose).map_err(|error| failed(&made, &error))?;
    rename(&made, &work.join("data"))?;
    // From here on it is finished, and need not be made again.
    write(&work.join(MARK), &mark)?;
    Ok(mark)
}

/// Stops etcd, and puts what was made in place; where the data before it lie.
async fn swap(place: &Place, commands: &impl Commands, done: &RestoreMark) -> Outcome<Option<String>> {
    let (data, work) = (place.data(), volume(place).join(WORK));
    // A unit that is not there (yet) has nothing to stop, and one that does not stop is seen at its lock.
    commands.run("systemctl", &["stop", SERVICE]).await?;
    refuse_live(place).await?;
    let kept_aside = if data.exists() {
        let aside = free(&data, &done.snapshot);
        if let Err(failure) = rename(&data, &aside)
            && data.exists()
        {
            // It goes on with what it had.
            commands.run("systemctl", &["start", "--no-block", SERVICE]).await?;
            return Err(failure);
        }
        Some(aside.display().to_string())
    } else {
        None
    };
    rename(&work.join("data"), &data)?;
    Ok(kept_aside)
}

/// Starts etcd with the data that are in place, and looks for a while how it is.
async fn start(
    place: &Place,
    commands: &impl Commands,
    path: &Path,
    mut mark: RestoreMark,
    changed: bool,
    kept_aside: Option<String>,
) -> Outcome<Restored> {
    // Not waiting: it is ready once a majority is.
    let started = commands.must("systemctl", &["start", "--no-block", SERVICE]).await;
    started.map_err(|failure| {
        let help = "the data are in place: see why systemd does not start etcd, then run this again";
        Failure { help: help.to_owned(), ..failure }
    })?;
    if !mark.started {
        mark.started = true;
        write(path, &mark)?;
    }
    let begun = Instant::now();
    let reason = loop {
        let reason = match place.caller() {
            Ok(caller) => match place.own(&caller).serves().await {
                Ok(()) => {
                    let etcd = RestoredEtcd::Serving;
                    return Ok(Restored { changed, mark, kept_aside, etcd, reason: None });
                }
                Err(refusal) => refusal.to_string(),
            },
            Err(failure) => failure.message,
        };
        if begun.elapsed() > STARTING {
            break reason;
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    };
    let shown = commands.must("systemctl", &["show", "--property=ActiveState,NRestarts", SERVICE]).await?;
    let value = |name: &str| shown.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let restarts = value("NRestarts").and_then(|text| text.parse::<u32>().ok()).unwrap_or_default();
    let state = value("ActiveState").unwrap_or("unknown");
    if restarts > 0 || !matches!(state, "active" | "activating" | "reloading") {
        return Err(Failure::passing(
            FailureCode::RestoreStart,
            format!(
                "etcd was started with the restored data, and does not stay: it is {state} after {restarts} restarts"
            ),
            "`journalctl -u etcd` on the node says why; the data before lie beside it",
        ));
    }
    Ok(Restored { changed, mark, kept_aside, etcd: RestoredEtcd::Waiting, reason: Some(reason) })
}

fn used(token: &str, why: &str) -> Failure {
    Failure::lasting(
        FailureCode::RestoreToken,
        format!("the token {token} is not a new one: {why}"),
        "to restore (again), give all members one --token that none of them had, such as today's date; nothing was changed",
    )
}

/// `--initial-cluster`: with this member in it, under its own URL.
fn members(place: &Place, request: &Request) -> Outcome<String> {
    let etcd = &place.config.etcd;
    let members = if request.members.is_empty() { &etcd.initial_cluster } else { &request.members };
    let own = place.peer_url();
    if members.get(&etcd.name) != Some(&own) {
        return Err(Failure::lasting(
            FailureCode::RestoreMembers,
            format!("the members to restore do not name {}={own}, which is this one", etcd.name),
            "give --initial-cluster NAME=URL,… with every member of the cluster to be, the same on all of them",
        ));
    }
    Ok(members.iter().map(|(name, url)| format!("{name}={url}")).collect::<Vec<_>>().join(","))
}

/// A member that runs holds its database's lock, and listens.
async fn refuse_live(place: &Place) -> Outcome<()> {
    let database = place.data().join("member/snap/db");
    let locked = match OpenOptions::new().read(true).write(true).open(&database) {
        Ok(file) => matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock)),
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => return Err(failed(&database, &error)),
    };
    let etcd = &place.config.etcd;
    let mut listens = false;
    for port in [etcd.client_port, etcd.peer_port] {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let connected = timeout(Duration::from_secs(1), TcpStream::connect(address)).await;
        listens |= connected.is_ok_and(|connected| connected.is_ok());
    }
    if !locked && !listens {
        return Ok(());
    }
    Err(Failure::lasting(
        FailureCode::RestoreRunning,
        format!("{} runs, though {SERVICE} was stopped: its data are not replaced under it", etcd.name),
        "end whatever else runs etcd on this machine, then run this again; nothing was changed",
    ))
}

/// Runs etcd's own program; whether it raised the revisions.
async fn run(place: &Place, tool: &Path, plain: &Path, mark: &RestoreMark, to: &Path) -> Outcome<bool> {
    let own = place.peer_url();
    let command = |arguments: &[&str]| {
        let mut command = Command::new(tool);
        command.env_clear().env("ETCDCTL_API", "3").args(["snapshot", "restore"]).args(arguments);
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    };
    let help = command(&["--help"]).output().await.map_err(|error| failed(tool, &error))?;
    let bumps = String::from_utf8_lossy(&help.stdout).contains("--bump-revision");
    let mut restoring =
        command(&["--name", &place.config.etcd.name, "--initial-cluster", &mark.initial_cluster]);
    restoring.args(["--initial-cluster-token", &mark.token, "--initial-advertise-peer-urls", &own]);
    restoring.arg("--data-dir").arg(to);
    if bumps {
        restoring.args(["--bump-revision", BUMP, "--mark-compacted"]);
    }
    let output = restoring.arg(plain).output().await.map_err(|error| failed(tool, &error))?;
    if output.status.success() {
        return Ok(bumps);
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let last = words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it does not say why");
    Err(Failure::lasting(
        FailureCode::RestoreProgram,
        format!(
            "{} ended with {}: {}",
            tool.display(),
            output.status,
            last.chars().take(300).collect::<String>()
        ),
        "see that the volume has room for the data once more; what was there before was not touched",
    ))
}

fn tool(root: &Path) -> Outcome<PathBuf> {
    let found = software::find(root, RESTORERS[0]).or_else(|_| software::find(root, RESTORERS[1]));
    found.map(|path| below(root, &path.to_string_lossy()))
}

/// What is opened goes into a file and through the check.
struct Both {
    file: BufWriter<File>,
    checker: Checker,
}

impl Write for Both {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.file.write_all(bytes)?;
        self.checker.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

fn volume(place: &Place) -> PathBuf {
    let data = place.data();
    data.parent().map_or_else(|| data.clone(), Path::to_path_buf)
}

/// A name for what is put aside that nothing has yet.
fn free(data: &Path, snapshot: &str) -> PathBuf {
    let name = |number: u32| data.with_extension(format!("before-{snapshot}-{number}"));
    (1..).map(name).find(|path| !path.exists()).unwrap_or_else(|| name(0))
}

/// The data belong to whoever the data before them belonged to, or the credentials: etcd's user.
fn give(folder: &Path, whose: &Path) -> std::io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let owner = fs::metadata(whose)?;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        chown(&folder, Some(owner.uid()), Some(owner.gid()))?;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else {
                chown(entry.path(), Some(owner.uid()), Some(owner.gid()))?;
            }
        }
    }
    Ok(())
}

fn read(path: &Path) -> Outcome<Option<RestoreMark>> {
    match fs::read(path) {
        // Half a mark is none.
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(path, &error)),
    }
}

fn write(path: &Path, mark: &RestoreMark) -> Outcome<()> {
    let bytes = serde_json::to_vec(mark).expect("a mark has string keys only");
    let mut file = create(path)?;
    file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(|error| failed(path, &error))
}

fn create(path: &Path) -> Outcome<File> {
    let mut options = OpenOptions::new();
    let file = options.create(true).truncate(true).write(true).mode(0o600).open(path);
    file.map_err(|error| failed(path, &error))
}

/// And waits until the volume has it.
fn rename(from: &Path, to: &Path) -> Outcome<()> {
    let renamed = || {
        fs::rename(from, to)?;
        to.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    };
    renamed().map_err(|error: std::io::Error| failed(to, &error))
}

fn remove(folder: &Path) -> Outcome<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(folder, &error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::passing(
        FailureCode::RestoreFiles,
        format!("{}: {error}", path.display()),
        "see that the volume is mounted and has room, then run this again",
    )
}
