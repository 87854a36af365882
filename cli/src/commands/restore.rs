//! `slipway restore`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use futures_util::future::try_join_all;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use slipway_core::node::{ClusterServes, EtcdHealth, RestoreStage, Restored, Verb};
use slipway_core::role::Role;
use slipway_core::words::moment;
use slipway_flows::credentials::rotation::Machines;
use slipway_flows::recovery;
use tokio::time::sleep;

use super::snapshots::{Snapshot, Snapshots};
use crate::Exit;
use crate::cloud::{Cloud, CloudArgs};
use crate::failure::CliError;
use crate::members::{self, LOOKS, in_cloud};
use crate::overview::plain;
use crate::printer::Printer;

/// Restore etcd from a snapshot: replace the data of all members, and wait until the cluster serves again.
///
/// Each member first downloads, verifies and unpacks the snapshot while etcd runs; nothing is changed unless all of them succeed. Then all replace
/// their data at once. What was written after the snapshot is lost, and the API is unavailable for about a minute. The previous data stay on the
/// members' volumes. On a terminal the command asks for the cluster's name; a script passes --yes. It can be repeated at any time, and then restores all
/// members anew.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  restored, and the cluster serves
  1  there is no such cluster or snapshot, a rollout is open, a member cannot be restored, or you did not confirm the name; or the cluster does not serve afterwards
  2  wrong usage
  3  something could not be read, or AWS refused

The IAM permissions for this are listed in docs/cli.md. docs/runbook.md says when to restore, and what to look at afterwards.

Examples:
  slipway restore latest --cluster prod
  slipway restore 20261121T204500Z --cluster prod
  slipway restore latest --cluster prod --dry-run")]
pub(crate) struct Args {
    /// The time of the snapshot, as `slipway snapshots` lists it; `latest`: the newest verified one of the present etcd.
    snapshot: String,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,
    /// Let every member download, verify and unpack the snapshot, and replace nothing: a rehearsal that can be done at any time.
    #[arg(long)]
    dry_run: bool,
    /// Also take a snapshot of which no member recorded that it can be read back.
    #[arg(long)]
    unverified: bool,
    #[command(flatten)]
    cloud: CloudArgs,
}

/// How long the members may take until etcd serves.
const ETCD_WITHIN: SignedDuration = SignedDuration::from_mins(5);
/// How long the cluster may take until it serves. An API server that could not reach etcd for long waits up to five minutes before its next start.
const CLUSTER_WITHIN: SignedDuration = SignedDuration::from_mins(10);

/// A restore of all members.
struct Plan<'c> {
    cloud: &'c Cloud,
    snapshot: String,
    token: String,
    members: BTreeMap<Role, String>,
    peer_urls: BTreeMap<String, String>,
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    if args.yes && !args.cloud.is_named() {
        let help = "name it: slipway restore SNAPSHOT --yes --cluster NAME; a default cluster is restored only after a question";
        return Err(CliError::usage("no cluster is named", help));
    }
    let (cloud, now) = (args.cloud.named().await?, Timestamp::now());
    let name = cloud.cluster.as_str();
    members::must_be_at_rest(&cloud).await?;
    let earlier_until = cloud.known_rollout().await?.and_then(|rollout| rollout.etcd_gone_at);
    let snapshots = Snapshots::read(&cloud, earlier_until).await?;
    let snapshot = chosen(name, &snapshots, &args.snapshot, args.unverified)?;
    let members = members::one_each(name, members::machines(&cloud).await?)?;
    let peer_urls = recovery::peer_urls(cloud.assets(), name).await.map_err(in_cloud)?;
    must_be_whole(name, &members, &peer_urls)?;
    printer.beside(&about(name, snapshot, &members, now));
    let help = format!("slipway restore {} --cluster {name} --yes", snapshot.time);
    // A rehearsal replaces nothing.
    let sure = args.dry_run || args.yes || printer.answer("its name, to restore it: ", help)? == name;
    if !sure {
        let machine = json!({ "ok": true, "cluster": name, "snapshot": snapshot.time, "restored": false });
        printer.result("nothing is restored\n", &machine);
        return Ok(Exit::Findings);
    }
    // A token of its own: members of two restores never form one cluster, and a repeated restore is a new one.
    let token = format!("{name}-{}-{}", snapshot.time, now.as_millisecond());
    let plan = Plan { cloud: &cloud, snapshot: snapshot.time.clone(), token, members, peer_urls };
    let stage = if args.dry_run { RestoreStage::Verify } else { RestoreStage::Prepare };
    let prepared = plan.send(stage).await?;
    must_be_prepared(name, &prepared)?;
    printer.beside(&format!(
        "all {} members of {name} have verified and unpacked the snapshot\n",
        prepared.len()
    ));
    if args.dry_run {
        let machine = json!({ "ok": true, "cluster": name, "snapshot": plan.snapshot, "restored": false, "verified": true });
        printer.result("the snapshot can be restored; nothing was changed\n", &machine);
        return Ok(Exit::Done);
    }
    members::must_be_at_rest(&cloud).await?;
    printer.beside("all members replace their data\n");
    let restored = plan.send(RestoreStage::Whole).await?;
    must_be_restored(name, &restored)?;
    let problems = plan.serves_again(printer).await?;
    let (text, machine) = result(name, &plan.snapshot, &restored, &problems);
    printer.result(&text, &machine);
    Ok(if problems.is_empty() { Exit::Done } else { Exit::Findings })
}

/// The snapshot that `wanted` names.
fn chosen<'s>(
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
    if !found.verified && !unverified {
        let problem = format!("no member recorded that the snapshot {} can be read back", found.time);
        return Err(CliError::refused(
            problem,
            format!(
                "choose a verified one ({help}), or pass --unverified: each member verifies it before anything is replaced"
            ),
        ));
    }
    Ok(found)
}

/// Fails unless each member that is deployed has a machine: a cluster that is restored without some of its members may lack a majority.
fn must_be_whole(
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
        ([], unknown) => format!("{} has a machine, and no deployed release has it", unknown.join(" and ")),
        (missing, _) => format!("{} has no machine that is in service or starting", missing.join(" and ")),
    };
    let help = format!(
        "all members are restored together: wait until Auto Scaling has launched it (slipway status --cluster {name})"
    );
    Err(CliError::refused(problem, help))
}

fn about(name: &str, snapshot: &Snapshot, members: &BTreeMap<Role, String>, now: Timestamp) -> String {
    let age = now.duration_since(snapshot.stored_at);
    let (hours, minutes) = (age.as_hours(), age.as_mins() % 60);
    let mut text = format!(
        "{name} is restored from the snapshot {}, stored {} ({hours} h {minutes} min ago)\n",
        snapshot.time,
        moment(snapshot.stored_at)
    );
    if snapshot.of_earlier_etcd {
        let _ = writeln!(text, "it is of an earlier etcd of that name, which was deleted");
    }
    let _ = writeln!(
        text,
        "everything that was written to the API since then is lost, and the API is unavailable for about a minute"
    );
    for (role, instance) in members {
        let _ = writeln!(text, "- {role} ({instance})");
    }
    text
}

/// What each member answered, or why it did not.
type Answers = BTreeMap<Role, (String, Result<Restored, String>)>;

impl Plan<'_> {
    /// Sends it to all members at once.
    async fn send(&self, stage: RestoreStage) -> Result<Answers, CliError> {
        let asked = self.members.iter().map(|(role, instance)| async move {
            let verb = Verb::EtcdRestore {
                snapshot: self.snapshot.clone(),
                token: self.token.clone(),
                members: self.peer_urls.clone(),
                stage,
            };
            let token = format!("{}-{}", self.token_of_commands(), stage.word());
            let answer = members::answer::<Restored>(self.cloud, instance, verb, &token).await?;
            let answer = answer.map_err(|why| plain(&why.to_string()));
            Ok::<_, CliError>((role.clone(), (instance.clone(), answer)))
        });
        Ok(try_join_all(asked).await?.into_iter().collect())
    }

    /// Waits until etcd and then the cluster serve. Returns what is still wrong.
    async fn serves_again(&self, printer: &Printer) -> Result<Vec<String>, CliError> {
        printer.beside("waits until etcd serves\n");
        let problems = self.until(ETCD_WITHIN, async |ask| self.etcd_problems(ask).await).await?;
        if !problems.is_empty() {
            return Ok(problems);
        }
        printer.beside("etcd serves; waits until the API and the Nodes do\n");
        self.until(CLUSTER_WITHIN, async |ask| self.cluster_problems(ask).await).await
    }

    /// Asks until there is no problem, or the time is over.
    async fn until(
        &self,
        within: SignedDuration,
        problems: impl AsyncFn(u32) -> Result<Vec<String>, CliError>,
    ) -> Result<Vec<String>, CliError> {
        let until = Timestamp::now() + within;
        for ask in 0.. {
            let found = problems(ask).await?;
            if found.is_empty() || Timestamp::now() >= until {
                return Ok(found);
            }
            sleep(LOOKS).await;
        }
        Ok(Vec::new())
    }

    async fn etcd_problems(&self, ask: u32) -> Result<Vec<String>, CliError> {
        let asked = self.members.iter().map(|(role, instance)| async move {
            let token = format!("{}-health-{ask}", self.token_of_commands());
            let health =
                members::answer::<EtcdHealth>(self.cloud, instance, Verb::EtcdHealth, &token).await?;
            Ok::<_, CliError>((role, instance, health))
        });
        let mut problems = Vec::new();
        let mut clusters = BTreeSet::new();
        for (role, instance, health) in try_join_all(asked).await? {
            match health {
                Ok(health) if health.healthy && health.members.len() == self.members.len() => {
                    clusters.insert(health.cluster_id);
                }
                Ok(health) => problems.push(format!(
                    "{role} ({instance}): {}",
                    match health.problems.as_slice() {
                        [] => format!("etcd has {} members", health.members.len()),
                        problems => plain(&problems.join("; ")),
                    }
                )),
                Err(why) => problems.push(format!("{role} ({instance}): {}", plain(&why.to_string()))),
            }
        }
        if clusters.len() > 1 {
            problems.push("the members are of different clusters of etcd: restore them again".to_owned());
        }
        Ok(problems)
    }

    /// What the controllers say of the cluster, and the roles of which some machines have no Node.
    async fn cluster_problems(&self, ask: u32) -> Result<Vec<String>, CliError> {
        let machines = members::all_machines(self.cloud).await?;
        let controllers = machines.get(&Role::Controller).cloned().unwrap_or_default();
        let asked = controllers.into_iter().map(|instance| async move {
            let token = format!("{}-serves-{ask}", self.token_of_commands());
            let verb = Verb::Serves { without: BTreeSet::new() };
            let serves = members::answer::<ClusterServes>(self.cloud, &instance, verb, &token).await?;
            Ok::<_, CliError>((instance, serves))
        });
        let mut problems = Vec::new();
        for (instance, serves) in try_join_all(asked).await? {
            match serves {
                Ok(serves) => problems.extend(problems_of(&instance, &serves, &machines)),
                Err(why) => problems.push(format!("controller {instance}: {}", plain(&why.to_string()))),
            }
        }
        let once: BTreeSet<String> = problems.into_iter().collect();
        Ok(once.into_iter().collect())
    }

    /// What the tokens of its commands begin with. They are no cluster's, so the rollout function ignores them.
    fn token_of_commands(&self) -> String {
        format!("restore-{}", self.token.rsplit('-').next().unwrap_or_default())
    }
}

/// What a controller says that is not well, and roles of which some machines have no Node.
fn problems_of(instance: &str, serves: &ClusterServes, machines: &Machines) -> Vec<String> {
    let parts = [
        ("the API server", &serves.api_server),
        ("the controller manager", &serves.controller_manager),
        ("the scheduler", &serves.scheduler),
        ("the node manager", &serves.node_manager),
    ];
    let why = |problem: &Option<String>| plain(problem.as_deref().unwrap_or("it is not healthy"));
    let mut problems: Vec<String> = parts
        .into_iter()
        .filter(|(_, part)| !part.healthy)
        .map(|(what, part)| format!("{what} on {instance}: {}", why(&part.problem)))
        .collect();
    let members = serves.etcd.iter().filter(|(_, part)| !part.healthy);
    problems.extend(members.map(|(member, part)| format!("{member}: {}", why(&part.problem))));
    for (role, nodes) in serves.nodes.iter().flatten() {
        let named = nodes.not_ready.iter().map(|one| format!("{}: {}", one.node, plain(&one.why)));
        problems.extend(named);
        if nodes.not_ready_more > 0 {
            problems.push(format!("{} more Nodes of {role} are not Ready", nodes.not_ready_more));
        }
    }
    if let Some(nodes) = &serves.nodes {
        problems.extend(without_node(
            nodes.iter().map(|(role, nodes)| (role.as_str(), nodes.registered)),
            machines,
        ));
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

fn must_be_prepared(name: &str, answers: &Answers) -> Result<(), CliError> {
    let failed = failures(answers);
    if !failed.is_empty() {
        let help = format!(
            "nothing was changed, and etcd runs as before; once that is repaired, run this again, or choose another snapshot: slipway snapshots --cluster {name}"
        );
        return Err(CliError::refused(
            format!("not all members can be restored: {}", failed.join("; ")),
            help,
        ));
    }
    let databases: BTreeSet<&str> =
        answers.values().filter_map(|(_, answer)| Some(answer.as_ref().ok()?.mark.sha256.as_str())).collect();
    if databases.len() > 1 {
        return Err(CliError::refused(
            "the members have unpacked different databases from this snapshot",
            "nothing was changed; choose another snapshot, and look at who may write snapshots to the asset bucket",
        ));
    }
    Ok(())
}

fn must_be_restored(name: &str, answers: &Answers) -> Result<(), CliError> {
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

fn result(name: &str, snapshot: &str, answers: &Answers, problems: &[String]) -> (String, Value) {
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
    if !bumped {
        let _ = writeln!(
            text,
            "this release of etcd cannot raise revisions: restart everything that watches the API, controllers first (docs/runbook.md, \"Restoring etcd\")"
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
        "ok": problems.is_empty(), "cluster": name, "snapshot": snapshot, "restored": true, "members": members, "bumped": bumped,
        "problems": problems,
    });
    (text, machine)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use slipway_core::node::{NodesReady, PartHealth, RestoreMark, RestoredEtcd};

    use super::*;

    fn role(number: u32) -> Role {
        Role::Etcd(number)
    }

    fn members(numbers: &[u32]) -> BTreeMap<Role, String> {
        numbers.iter().map(|number| (role(*number), format!("i-{number}"))).collect()
    }

    fn urls(numbers: &[u32]) -> BTreeMap<String, String> {
        numbers.iter().map(|number| (role(*number).to_string(), "https://e:2380".to_owned())).collect()
    }

    fn answered(sha256: &str, bumped: bool) -> Result<Restored, String> {
        let mark = RestoreMark {
            snapshot: "20261121T204500Z".to_owned(),
            token: "t".to_owned(),
            initial_cluster: String::new(),
            sha256: sha256.to_owned(),
            bumped,
            of_earlier_etcd: false,
            started: true,
            tokens_before: Vec::new(),
        };
        let kept_aside = Some("/var/lib/etcd/data.before-1".to_owned());
        Ok(Restored { changed: true, mark, kept_aside, etcd: RestoredEtcd::Serving, reason: None })
    }

    fn answers(list: Vec<Result<Restored, String>>) -> Answers {
        (0u32..).zip(list).map(|(number, answer)| (role(number), (format!("i-{number}"), answer))).collect()
    }

    #[test]
    fn all_members_that_are_deployed_are_restored_or_none() {
        assert!(must_be_whole("prod", &members(&[0, 1, 2]), &urls(&[0, 1, 2])).is_ok());
        let refused = must_be_whole("prod", &members(&[0, 2]), &urls(&[0, 1, 2])).unwrap_err().to_string();
        assert!(refused.contains("etcd-1 has no machine"), "{refused}");
        let refused = must_be_whole("prod", &members(&[0, 1]), &urls(&[0])).unwrap_err().to_string();
        assert!(refused.contains("etcd-1 has a machine, and no deployed release has it"), "{refused}");
    }

    #[test]
    fn nothing_is_replaced_unless_all_members_have_unpacked_the_same_database() {
        assert!(must_be_prepared("prod", &answers(vec![answered("a", true), answered("a", true)])).is_ok());
        let one = answers(vec![answered("a", true), Err("the volume is full".to_owned())]);
        let refused = must_be_prepared("prod", &one).unwrap_err().to_string();
        assert!(refused.contains("etcd-1 (i-1): the volume is full"), "{refused}");
        let two = must_be_prepared("prod", &answers(vec![answered("a", true), answered("b", true)]));
        assert!(two.unwrap_err().to_string().contains("different databases"));
    }

    #[test]
    fn a_restore_that_stops_half_way_says_which_members_are_done() {
        let half = answers(vec![answered("a", true), Err("etcd still runs".to_owned())]);
        let refused = must_be_restored("prod", &half).unwrap_err().to_string();
        assert!(refused.contains("only etcd-0 is restored: etcd-1 (i-1): etcd still runs"), "{refused}");
        let none = answers(vec![Err("a".to_owned()), Err("b".to_owned())]);
        let refused = must_be_restored("prod", &none).unwrap_err().to_string();
        assert!(refused.contains("no member is restored"), "{refused}");
    }

    #[test]
    fn a_machine_that_joined_after_the_snapshot_is_missed() {
        let well = || PartHealth::new(None);
        let nodes = |registered: u32| NodesReady { registered, ready: registered, ..NodesReady::default() };
        let mut serves = ClusterServes {
            api_server: well(),
            controller_manager: well(),
            scheduler: well(),
            node_manager: well(),
            etcd: BTreeMap::from([("etcd-0".to_owned(), well())]),
            nodes: Some(BTreeMap::from([
                ("controller".to_owned(), nodes(1)),
                ("pool-a".to_owned(), nodes(2)),
            ])),
        };
        let mut machines = Machines::from([
            (Role::Etcd(0), BTreeSet::from(["i-0".to_owned()])),
            (Role::Controller, BTreeSet::from(["i-1".to_owned()])),
            ("pool-a".parse().unwrap(), BTreeSet::from(["i-2".to_owned(), "i-3".to_owned()])),
        ]);
        assert_eq!(problems_of("i-1", &serves, &machines), [""; 0]);
        machines.insert("pool-b".parse().unwrap(), BTreeSet::from(["i-4".to_owned()]));
        let problems = problems_of("i-1", &serves, &machines);
        assert!(problems[0].starts_with("pool-b has 1 machines and 0 Nodes: "), "{problems:?}");
        serves.api_server = PartHealth::new(Some("it does not answer".to_owned()));
        serves.nodes = None;
        assert_eq!(problems_of("i-1", &serves, &machines), ["the API server on i-1: it does not answer"]);
    }

    #[test]
    fn the_result_says_where_the_previous_data_are_and_what_watchers_need() {
        let (text, machine) = result("prod", "20261121T204500Z", &answers(vec![answered("a", true)]), &[]);
        assert!(
            text.contains("etcd-0 (i-0): the previous data are in /var/lib/etcd/data.before-1"),
            "{text}"
        );
        assert!(text.contains("it serves again") && !text.contains("restart everything"), "{text}");
        assert_eq!((&machine["ok"], &machine["bumped"]), (&json!(true), &json!(true)));
        let problems = ["etcd-0: no leader".to_owned()];
        let old = answers(vec![answered("a", false)]);
        let (text, machine) = result("prod", "20261121T204500Z", &old, &problems);
        assert!(
            text.contains("restart everything that watches") && text.contains("- etcd-0: no leader"),
            "{text}"
        );
        assert_eq!(machine["ok"], json!(false));
    }
}
