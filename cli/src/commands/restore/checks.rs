//! What a restore requires and what it says, without a call.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::{Value, json};
use slipway_core::keys;
use slipway_core::node::{ClusterServes, EtcdHealth, RestoreStage, Restored, SnapshotTaken, is_sha256};
use slipway_core::role::Role;
use slipway_core::words::moment;
use slipway_flows::credentials::rotation::Machines;
use slipway_rollout::unserved;

use super::super::snapshots::{Snapshot, Snapshots};
use crate::failure::CliError;
use crate::members;
use crate::overview::plain;

/// What each member answered, or why it did not.
pub(super) type Answers = BTreeMap<Role, (String, Result<Restored, String>)>;

/// The snapshot that `wanted` names.
pub(super) fn chosen<'s>(
    name: &str,
    snapshots: &'s Snapshots,
    wanted: &str,
    unverified: bool,
) -> Result<&'s Snapshot, CliError> {
    let help = format!("slipway snapshots --cluster {name} lists them");
    let found = match wanted {
        "latest" if snapshots.is_cut() => {
            let problem = "not all snapshots could be listed, so it is not known which one is the latest";
            return Err(CliError::refused(problem, format!("name one by its time: {help}")));
        }
        "latest" => snapshots.newest(),
        time => snapshots.at(time),
    };
    let Some(found) = found else {
        let problem = match wanted {
            "latest" => format!("{name} has no verified snapshot of its present etcd"),
            time => format!("{name} has no snapshot {time:?}"),
        };
        return Err(CliError::refused(problem, help));
    };
    let twins = snapshots.twins(&found.time);
    if !twins.is_empty() {
        return Err(CliError::refused(
            format!("two snapshots have the time {}: {}", found.time, twins.join(" and ")),
            format!(
                "whoever has taken over a member, or may write into the bucket, can put a false one beside a good one: choose another one ({help}), or find out which is true \
                 (the log of the member that took it: slipway logs etcd-N --cluster {name} --unit agent), and delete the other"
            ),
        ));
    }
    if !found.verified && !unverified {
        let problem = format!("no member recorded that the snapshot {} can be read back", found.time);
        return Err(CliError::refused(
            problem,
            format!(
                "choose a verified one ({help}), or pass --unverified, and --sha256 if a log that you trust names it: each member verifies that it is whole before anything is replaced"
            ),
        ));
    }
    Ok(found)
}

/// The database that the members must find in the snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExpectedDatabase {
    /// Its SHA-256. `None`: nobody has said what the snapshot holds.
    pub(super) sha256: Option<String>,
    /// Whether the person named it, and not only the record beside the snapshot.
    pub(super) by_person: bool,
}

/// What `record`, which lies beside the snapshot, and the person say of it. `given`: what the person says.
pub(super) fn wanted(
    name: &str,
    snapshot: &Snapshot,
    record: Option<&[u8]>,
    given: Option<&str>,
    unverified: bool,
) -> Result<ExpectedDatabase, CliError> {
    if let Some(given) = given {
        return Ok(ExpectedDatabase { sha256: Some(given.to_owned()), by_person: true });
    }
    let Some(record) = record else {
        return Ok(ExpectedDatabase { sha256: None, by_person: false });
    };
    let read: Option<SnapshotTaken> = serde_json::from_slice(record).ok();
    let of_this = |taken: &SnapshotTaken| {
        taken.key == snapshot.key && taken.time == snapshot.time && is_sha256(&taken.sha256)
    };
    match read.filter(of_this) {
        Some(taken) => Ok(ExpectedDatabase { sha256: Some(taken.sha256), by_person: false }),
        None if unverified => Ok(ExpectedDatabase { sha256: None, by_person: false }),
        None => Err(CliError::refused(
            format!("the record {} is not of this snapshot", keys::snapshot_record(&snapshot.key)),
            format!(
                "members write it themselves, so somebody else may have written both: choose another one (slipway snapshots --cluster {name}), or pass --sha256 \
                 with what a log that you trust says of this one"
            ),
        )),
    }
}

/// Fails unless all members have found that database, and nothing speaks against it being the snapshot of its time, or a person has named it.
pub(super) fn must_be_wanted(
    name: &str,
    answers: &Answers,
    wanted: &ExpectedDatabase,
) -> Result<(), CliError> {
    for (role, (_, answer)) in answers {
        let Ok(answer) = answer else { continue };
        let mark = &answer.mark;
        if let Some(sha256) = wanted.sha256.as_ref().filter(|sha256| **sha256 != mark.sha256) {
            return Err(CliError::refused(
                format!(
                    "{role} has found a database with the SHA-256 {}, and not {sha256}",
                    plain(&mark.sha256)
                ),
                "nothing was replaced; look at that member's machine, or choose another snapshot",
            ));
        }
        if !mark.doubts.is_empty() && !wanted.by_person {
            return Err(CliError::refused(
                format!(
                    "the snapshot may not be the one that was taken at this time: {}",
                    plain(&mark.doubts.join("; "))
                ),
                format!(
                    "nothing was replaced; choose another one (slipway snapshots --cluster {name}), or pass --sha256 with what a log that you trust says of this one: \
                     that of the member that took it (slipway logs etcd-N --cluster {name} --unit agent), or of the command that ordered it"
                ),
            ));
        }
    }
    Ok(())
}

/// Fails unless each member that is deployed has a machine: a cluster that is restored without some of its members may lack a majority.
pub(super) fn must_be_whole(
    name: &str,
    members: &BTreeMap<Role, String>,
    peer_urls: &BTreeMap<String, String>,
) -> Result<(), CliError> {
    let machines: BTreeSet<String> = members.keys().map(Role::to_string).collect();
    let deployed: BTreeSet<String> = peer_urls.keys().cloned().collect();
    let missing: Vec<&str> = deployed.difference(&machines).map(String::as_str).collect();
    let unknown: Vec<&str> = machines.difference(&deployed).map(String::as_str).collect();
    let problem = match (missing.as_slice(), unknown.as_slice()) {
        ([], []) => return Ok(()),
        ([], unknown) => {
            format!("{} has a machine, but no deployed release contains this member", unknown.join(" and "))
        }
        (missing, _) => format!("{} has no machine that is in service or starting", missing.join(" and ")),
    };
    let help = format!(
        "all members are restored together: wait until Auto Scaling has launched it (slipway status --cluster {name})"
    );
    Err(CliError::refused(problem, help))
}

pub(super) fn about(
    name: &str,
    snapshot: &Snapshot,
    wanted: &ExpectedDatabase,
    members: &BTreeMap<Role, String>,
    now: Timestamp,
) -> String {
    let age = now.duration_since(snapshot.stored_at);
    let (hours, minutes) = (age.as_hours(), age.as_mins() % 60);
    let mut text = format!(
        "{name} would be restored from the snapshot {}, stored {} ({hours} h {minutes} min ago)\n",
        snapshot.time,
        moment(snapshot.stored_at)
    );
    let _ = match wanted {
        ExpectedDatabase { sha256: Some(sha256), by_person: true } => {
            writeln!(text, "its database must have the SHA-256 {sha256}, as you say")
        }
        ExpectedDatabase { sha256: Some(sha256), by_person: false } => writeln!(
            text,
            "its database must have the SHA-256 {sha256}, as the record beside it says; compare it with a log that you trust, if somebody may have written into the bucket"
        ),
        ExpectedDatabase { sha256: None, .. } => writeln!(text, "nobody says what its database must hold"),
    };
    if snapshot.of_earlier_etcd {
        let _ = writeln!(text, "it is of an earlier etcd of that name, which was deleted");
    }
    let _ = writeln!(
        text,
        "everything that was written to the API since then would be lost, and the API would be unavailable for some minutes"
    );
    for (role, instance) in members {
        let _ = writeln!(text, "- {role} ({instance})");
    }
    text
}

/// What the controllers say that is not well, and roles of which some machines have no Node.
pub(super) fn problems_of(
    answers: &BTreeMap<String, ClusterServes>,
    members: &BTreeSet<String>,
    machines: &Machines,
) -> Vec<String> {
    let mut problems: Vec<String> = unserved(answers, members).iter().map(|gap| plain(gap)).collect();
    // The list in which the most are Ready is the newest one.
    let lists = answers.values().filter_map(|answer| answer.nodes.as_ref());
    let newest = lists.max_by_key(|nodes| nodes.values().map(|role| role.ready).sum::<u32>());
    for (role, nodes) in newest.into_iter().flatten() {
        let named = nodes.not_ready.iter().map(|one| format!("{}: {}", one.node, plain(&one.why)));
        problems.extend(named);
        if nodes.not_ready_more > 0 {
            problems.push(format!("{} more Nodes of {role} are not Ready", nodes.not_ready_more));
        }
    }
    let registered = newest.into_iter().flatten().map(|(role, nodes)| (role.as_str(), nodes.registered));
    if newest.is_some() {
        problems.extend(without_node(registered, machines));
    }
    problems
}

/// The roles that have more machines than Nodes. A kubelet registers its Node once after its start (`registrationCompleted` in
/// kubernetes/pkg/kubelet/kubelet_node_status.go), so a machine that joined after the snapshot has none until its kubelet is restarted.
fn without_node<'n>(registered: impl Iterator<Item = (&'n str, u32)>, machines: &Machines) -> Vec<String> {
    let registered: BTreeMap<&str, u32> = registered.collect();
    let with_nodes = machines.iter().filter(|(role, _)| matches!(role, Role::Controller | Role::Pool(_)));
    with_nodes
        .filter_map(|(role, machines)| {
            let role = role.to_string();
            let nodes = registered.get(role.as_str()).copied().unwrap_or_default() as usize;
            (nodes < machines.len()).then(|| {
                format!(
                    "{role} has {} machines and {nodes} Nodes: one that joined after the snapshot has no Node until its kubelet is restarted \
                     (`systemctl restart kubelet` on it), or until it is terminated and replaced",
                    machines.len()
                )
            })
        })
        .collect()
}

pub(super) fn must_be_prepared(
    name: &str,
    answers: &Answers,
    api_servers_stopped: bool,
) -> Result<(), CliError> {
    let failed = failures(answers);
    if !failed.is_empty() {
        let help = format!(
            "nothing was replaced, and etcd runs as before; once that is repaired, run this again, or choose another snapshot: slipway snapshots --cluster {name}"
        );
        return Err(CliError::refused(
            format!("not all members can be restored: {}", failed.join("; ")),
            help,
        ));
    }
    let databases: BTreeSet<(&str, bool)> = answers
        .values()
        .filter_map(|(_, answer)| answer.as_ref().ok())
        .map(|answer| (answer.mark.sha256.as_str(), answer.mark.bumped))
        .collect();
    if databases.len() > 1 {
        return Err(CliError::refused(
            "the members have made different databases of this snapshot",
            "nothing was replaced; see that all members have the same release of etcd (slipway status), or choose another snapshot",
        ));
    }
    if !api_servers_stopped && databases.iter().any(|(_, bumped)| !bumped) {
        return Err(CliError::refused(
            "this release of etcd cannot raise revisions, so API servers that run would mistake the restored history for the present one",
            "nothing was replaced; stop the API server on each controller (move /etc/kubernetes/manifests/kube-apiserver.yaml to another folder), run this again with \
             --api-servers-stopped, and put the files back afterwards",
        ));
    }
    Ok(())
}

/// Fails if etcd has other members than those that are restored: two of them could be a majority in either cluster.
pub(super) fn must_be_members(
    name: &str,
    role: &Role,
    health: &EtcdHealth,
    peer_urls: &BTreeMap<String, String>,
) -> Result<(), CliError> {
    let known: BTreeSet<&str> = health.members.iter().map(|member| member.name.as_str()).collect();
    if known.iter().copied().eq(peer_urls.keys().map(String::as_str)) {
        return Ok(());
    }
    let list = |names: Vec<&str>| names.join(", ");
    Err(CliError::refused(
        format!(
            "{role} says that etcd has the members {}, and deployed are {}",
            plain(&list(known.into_iter().collect())),
            list(peer_urls.keys().map(String::as_str).collect())
        ),
        format!(
            "apply the spec first, so that the membership matches it: slipway apply cluster.yaml --cluster {name}"
        ),
    ))
}

/// By how much the snapshot's revisions are raised, for a restore that began at `millisecond`: a hundred revisions each millisecond, more than any
/// cluster writes. So a later restore raises them by more than an earlier one and all that was written after it. Fifty restores come to the largest
/// number that JavaScript's clients can read.
pub(super) fn bump(millisecond: i64) -> u64 {
    u64::try_from(millisecond).unwrap_or_default().saturating_mul(100)
}

/// An answer, or why there is none, also if AWS refused to say.
pub(super) fn flat(
    answer: Result<Result<Restored, members::NoAnswer>, CliError>,
) -> Result<Restored, String> {
    match answer {
        Ok(Ok(restored)) => Ok(restored),
        Ok(Err(why)) => Err(plain(&why.to_string())),
        Err(error) => Err(plain(&error.to_string())),
    }
}

pub(super) fn words_of(stage: RestoreStage, answer: &Result<Restored, String>) -> String {
    match (stage, answer) {
        (_, Err(why)) => why.clone(),
        (RestoreStage::Verify, Ok(_)) => "has verified and unpacked the snapshot".to_owned(),
        (RestoreStage::Prepare, Ok(_)) => "has unpacked the snapshot beside its data".to_owned(),
        (RestoreStage::Discard, Ok(_)) => "has deleted what it unpacked".to_owned(),
        (RestoreStage::Whole, Ok(restored)) => {
            let aside = restored
                .kept_aside
                .iter()
                .map(|aside| format!("; the previous ones are in {}", plain(aside)));
            let waits =
                restored.reason.iter().map(|why| format!("; etcd does not serve yet: {}", plain(why)));
            ["has the restored data".to_owned()].into_iter().chain(aside).chain(waits).collect()
        }
    }
}

pub(super) fn must_be_restored(name: &str, answers: &Answers) -> Result<(), CliError> {
    let failed = failures(answers);
    if failed.is_empty() {
        return Ok(());
    }
    let done: Vec<String> =
        answers.iter().filter(|(_, (_, answer))| answer.is_ok()).map(|(role, _)| role.to_string()).collect();
    let so_far = if done.is_empty() {
        "no member is restored".to_owned()
    } else {
        format!("only {} is restored", done.join(" and "))
    };
    let help = format!(
        "see what is wrong there (slipway logs ROLE --cluster {name}), and run this again: it restores all members anew, also those that are done"
    );
    Err(CliError::refused(format!("{so_far}: {}", failed.join("; ")), help))
}

fn failures(answers: &Answers) -> Vec<String> {
    let failed = answers.iter().filter_map(|(role, (instance, answer))| {
        Some(format!("{role} ({instance}): {}", answer.as_ref().err()?))
    });
    failed.collect()
}

pub(super) fn result(
    name: &str,
    snapshot: &str,
    undo: Option<&str>,
    answers: &Answers,
    problems: &[String],
) -> (String, Value) {
    let restored: Vec<(&Role, &String, &Restored)> = answers
        .iter()
        .filter_map(|(role, (instance, answer))| Some((role, instance, answer.as_ref().ok()?)))
        .collect();
    let bumped = restored.iter().all(|(_, _, answer)| answer.mark.bumped);
    let mut text = format!("{name} is restored from the snapshot {snapshot}\n");
    for (role, instance, answer) in &restored {
        if let Some(aside) = &answer.kept_aside {
            let _ = writeln!(text, "{role} ({instance}): the previous data are in {}", plain(aside));
        }
    }
    if let Some(undo) = undo {
        let _ = writeln!(text, "to undo it: slipway restore {undo} --cluster {name}");
    }
    if !bumped {
        let _ = writeln!(
            text,
            "this release of etcd cannot raise revisions: start the API servers, and restart everything else that watches the API (docs/runbook.md, \"Restoring etcd\")"
        );
    }
    match problems {
        [] => {
            let _ =
                writeln!(text, "it serves again; delete the previous data when nobody needs them any more");
        }
        problems => {
            let _ = writeln!(text, "it does not serve yet:");
            for problem in problems {
                let _ = writeln!(text, "- {problem}");
            }
            let _ = writeln!(
                text,
                "docs/runbook.md, \"Restoring etcd\", says what to do; slipway status --cluster {name} shows what the nodes report"
            );
        }
    }
    let members: Vec<Value> = restored
        .iter()
        .map(|(role, instance, answer)| {
            json!({ "role": role, "instance": instance, "changed": answer.changed, "keptAside": answer.kept_aside })
        })
        .collect();
    let machine = json!({
        "ok": problems.is_empty(), "cluster": name, "snapshot": snapshot, "restored": true, "undo": undo, "members": members,
        "bumped": bumped, "problems": problems,
    });
    (text, machine)
}

#[cfg(test)]
mod tests;
