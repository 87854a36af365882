//! `slipway restore`.

mod checks;

use std::collections::{BTreeMap, BTreeSet};

use futures_util::StreamExt as _;
use futures_util::future::try_join_all;
use futures_util::stream::FuturesUnordered;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use slipway_core::keys;
use slipway_core::node::{
    ClusterServes, EtcdHealth, RestoreOrder, RestoreStage, Restored, SnapshotTaken, Verb, is_sha256,
};
use slipway_core::role::Role;
use slipway_flows::recovery;
use slipway_ports::{Bounded, Objects as _};
use tokio::time::sleep;

use checks::{
    Answers, ExpectedDatabase, about, bump, chosen, flat, must_be_members, must_be_prepared,
    must_be_restored, must_be_wanted, must_be_whole, problems_of, result, wanted, words_of,
};

use super::snapshots::{Snapshot, Snapshots};
use crate::Exit;
use crate::cloud::{Cloud, CloudArgs};
use crate::failure::CliError;
use crate::members::{self, POLL_PAUSE, in_cloud};
use crate::overview::plain;
use crate::printer::Printer;

/// Restore etcd from a snapshot: replace the data of all members, and wait until the cluster serves again.
///
/// Each member first downloads, verifies and unpacks the snapshot while etcd runs; nothing is replaced unless all of them succeed. If etcd still serves,
/// a snapshot of its present data is taken as well, so that a restore can be undone by another one. Then all members replace their data at once. What was
/// written after the snapshot is lost, and the API is unavailable for some minutes. The previous data stay on the members' volumes. On a terminal the
/// command asks for the cluster's name; a script passes --yes. It can be repeated at any time, and then restores all members anew.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  restored, and the cluster serves; with --dry-run: verified
  1  there is no such cluster or snapshot, a rollout is open, a member cannot be restored, or you did not confirm the name; or the cluster does not serve afterwards
  2  wrong usage
  3  something could not be read, or AWS refused; if the data were being replaced, run it again

The IAM permissions for this are listed in docs/cli.md. docs/runbook.md says when to restore, and what to look at afterwards.

Examples:
  slipway restore latest --cluster prod
  slipway restore 20261121T204500Z --cluster prod
  slipway restore latest --cluster prod --dry-run
  slipway restore 20261121T204500Z --cluster prod --sha256 \"$(cat sha256-of-the-log)\"")]
pub(crate) struct Args {
    /// The time of the snapshot, as `slipway snapshots` lists it; `latest`: the newest verified one of the present etcd.
    snapshot: String,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,
    /// Let the members, one after the other, download, verify and unpack the snapshot, and replace nothing: a drill.
    #[arg(long)]
    dry_run: bool,
    /// Also take a snapshot of which no member recorded that it can be read back.
    #[arg(long)]
    unverified: bool,
    /// SHA-256 of the database that the snapshot must hold, from a log that you trust. Unless given, that of the record beside the snapshot counts.
    #[arg(long, value_name = "HEX", value_parser = sha256)]
    sha256: Option<String>,
    /// The API servers are stopped, as a restore needs where etcd is older than 3.5.10 or 3.4.27 and cannot raise revisions.
    #[arg(long)]
    api_servers_stopped: bool,
    /// For how many seconds on end the cluster must serve without a problem.
    #[arg(long, value_name = "SECONDS", default_value_t = STABLE_S)]
    stable_for: u32,
    #[command(flatten)]
    cloud: CloudArgs,
}

/// Nodes that were Ready in the snapshot are Ready in the restored data, too, until the node controller finds that their kubelets are silent: after
/// `--node-monitor-grace-period`, once a controller manager leads.
const STABLE_S: u32 = 150;
/// How long the members may take until etcd serves.
const ETCD_WITHIN: SignedDuration = SignedDuration::from_mins(5);
/// How long the cluster may take until it serves. An API server that could not reach etcd for long waits up to five minutes before its next start.
const CLUSTER_WITHIN: SignedDuration = SignedDuration::from_mins(15);

/// A restore of all members.
struct Plan<'c> {
    cloud: &'c Cloud,
    printer: &'c Printer,
    snapshot: String,
    wanted: ExpectedDatabase,
    /// When it began, in milliseconds: tokens are made of it.
    begun: i64,
    members: BTreeMap<Role, String>,
    peer_urls: BTreeMap<String, String>,
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    if args.yes && !args.cloud.is_named() {
        let help = "name it: slipway restore SNAPSHOT --yes --cluster NAME; with --yes the cluster must be named, because the default could be the wrong one";
        return Err(CliError::usage("no cluster is named", help));
    }
    let (cloud, now) = (args.cloud.named().await?, Timestamp::now());
    let name = cloud.cluster.as_str();
    members::must_be_at_rest(&cloud).await?;
    let earlier_until = cloud.known_rollout().await?.and_then(|rollout| rollout.etcd_gone_at);
    let snapshots = Snapshots::read(&cloud, earlier_until).await?;
    let snapshot = chosen(name, &snapshots, &args.snapshot, args.unverified)?;
    let record = if args.sha256.is_none() { record(&cloud, snapshot).await? } else { None };
    let wanted = wanted(name, snapshot, record.as_deref(), args.sha256.as_deref(), args.unverified)?;
    let members = members::one_each(name, members::machines(&cloud).await?)?;
    let peer_urls = recovery::peer_urls(cloud.assets(), name).await.map_err(in_cloud)?;
    must_be_whole(name, &members, &peer_urls)?;
    let (time, begun) = (snapshot.time.clone(), now.as_millisecond());
    let plan = Plan { cloud: &cloud, printer, snapshot: time, wanted, begun, members, peer_urls };
    if args.dry_run {
        plan.verify().await?;
        let machine = json!({ "ok": true, "cluster": name, "snapshot": plan.snapshot, "restored": false, "verified": true });
        printer.result("the snapshot can be restored; nothing was changed\n", &machine);
        return Ok(Exit::Done);
    }
    printer.beside(&about(name, snapshot, &plan.wanted, &plan.members, now));
    let help = format!("slipway restore {} --cluster {name} --yes", snapshot.time);
    if !args.yes && printer.answer("its name, to restore it: ", help)? != name {
        let machine = json!({ "ok": true, "cluster": name, "snapshot": plan.snapshot, "restored": false });
        printer.result("nothing is restored\n", &machine);
        return Ok(Exit::Findings);
    }
    let undo = plan.saves_the_present().await?;
    let prepared = plan.send(RestoreStage::Prepare).await;
    let judged = must_be_prepared(name, &prepared, args.api_servers_stopped)
        .and_then(|()| must_be_wanted(name, &prepared, &plan.wanted));
    let may_go_on = match judged {
        Ok(()) => members::must_be_at_rest(&cloud).await,
        refused => refused,
    };
    if let Err(refused) = may_go_on {
        plan.discard(&prepared).await;
        return Err(refused);
    }
    printer.beside(&format!(
        "all {} members have unpacked the snapshot, and replace their data\n",
        prepared.len()
    ));
    let restored = plan.send(RestoreStage::Whole).await;
    must_be_restored(name, &restored)?;
    let problems = plan.serves_again(args).await;
    let (text, machine) = result(name, &plan.snapshot, undo.as_deref(), &restored, &problems);
    printer.result(&text, &machine);
    Ok(if problems.is_empty() { Exit::Done } else { Exit::Findings })
}

#[cfg(test)]
pub(super) fn chosen_of_prod<'s>(snapshots: &'s Snapshots, wanted: &str) -> Result<&'s Snapshot, CliError> {
    chosen("prod", snapshots, wanted, false)
}

/// The record beside the snapshot, if there is one; nothing of what is no record, because it is too large.
async fn record(cloud: &Cloud, snapshot: &Snapshot) -> Result<Option<Vec<u8>>, CliError> {
    if !snapshot.verified {
        return Ok(None);
    }
    const MOST_BYTES: u64 = 64 << 10;
    let found = cloud.assets().get_at_most(&keys::snapshot_record(&snapshot.key), MOST_BYTES).await;
    Ok(found.map_err(|error| in_cloud(error.into()))?.map(|found| match found {
        Bounded::Read(object) => object.bytes,
        Bounded::TooLarge { .. } => Vec::new(),
    }))
}

fn sha256(text: &str) -> Result<String, String> {
    if is_sha256(text) {
        Ok(text.to_owned())
    } else {
        Err("a SHA-256 has 64 hexadecimal digits, in lower case".to_owned())
    }
}

impl Plan<'_> {
    /// Sends the stage to all members at once. If AWS refuses one command, that is this member's failure: the others have got theirs.
    async fn send(&self, stage: RestoreStage) -> Answers {
        let mut queries: FuturesUnordered<_> =
            self.members.iter().map(|(role, instance)| self.ask(stage, role, instance)).collect();
        let mut answers = Answers::new();
        while let Some((role, instance, answer)) = queries.next().await {
            self.printer.beside(&format!("{role} ({instance}): {}\n", words_of(stage, &answer)));
            answers.insert(role.clone(), (instance.clone(), answer));
        }
        answers
    }

    async fn ask<'m>(
        &self,
        stage: RestoreStage,
        role: &'m Role,
        instance: &'m String,
    ) -> (&'m Role, &'m String, Result<Restored, String>) {
        let verb = Verb::EtcdRestore(Box::new(RestoreOrder {
            snapshot: self.snapshot.clone(),
            // Of its own: members of two restores never form one cluster, and a repeated restore is a new one.
            token: format!("{}-{}-{}", self.cloud.cluster, self.snapshot, self.begun),
            members: self.peer_urls.clone(),
            bump: bump(self.begun),
            sha256: self.wanted.sha256.clone(),
            stage,
        }));
        let token = format!("{}-{}", self.token_of_commands(), stage.word());
        let answer = members::answer::<Restored>(self.cloud, instance, verb, &token).await;
        (role, instance, flat(answer))
    }

    /// Lets one member after the other verify the snapshot: each reads and writes as much as the database has.
    async fn verify(&self) -> Result<(), CliError> {
        let mut answers = Answers::new();
        for (role, instance) in &self.members {
            let (_, _, answer) = self.ask(RestoreStage::Verify, role, instance).await;
            self.printer
                .beside(&format!("{role} ({instance}): {}\n", words_of(RestoreStage::Verify, &answer)));
            answers.insert(role.clone(), (instance.clone(), answer));
        }
        // That the API servers run does not matter to a drill.
        must_be_prepared(&self.cloud.cluster, &answers, true)?;
        must_be_wanted(&self.cloud.cluster, &answers, &self.wanted)
    }

    /// Deletes what members have prepared, as far as they are reached.
    async fn discard(&self, prepared: &Answers) {
        for (role, (instance, _)) in prepared.iter().filter(|(_, (_, answer))| answer.is_ok()) {
            let _ = self.ask(RestoreStage::Discard, role, instance).await;
        }
    }

    /// If etcd serves: checks that its members are those that are restored, and takes a snapshot of the present data. Returns its time.
    async fn saves_the_present(&self) -> Result<Option<String>, CliError> {
        let mut failed = Vec::new();
        for (role, instance) in &self.members {
            let token = format!("{}-present", self.token_of_commands());
            let health =
                members::answer::<EtcdHealth>(self.cloud, instance, Verb::EtcdHealth, &token).await?;
            let Some(health) = health.ok().filter(|health| health.serving) else { continue };
            must_be_members(&self.cloud.cluster, role, &health, &self.peer_urls)?;
            match members::answer::<SnapshotTaken>(self.cloud, instance, Verb::EtcdSnapshot, &token).await? {
                Ok(taken) => {
                    let time = plain(&taken.time);
                    self.printer.beside(&format!("{role} took the snapshot {time} of the present data\n"));
                    return Ok(Some(time));
                }
                Err(why) => failed.push(format!("{role}: {}", plain(&why.to_string()))),
            }
        }
        let why = if failed.is_empty() { "no member serves".to_owned() } else { failed.join("; ") };
        self.printer.beside(&format!("no snapshot of the present data is taken: {why}\n"));
        Ok(None)
    }

    /// Waits until etcd and then the cluster serve. Returns what is still wrong.
    async fn serves_again(&self, args: &Args) -> Vec<String> {
        self.printer.beside("waits until etcd serves\n");
        let none = SignedDuration::ZERO;
        let problems = self.until(ETCD_WITHIN, none, async |ask| self.etcd_problems(ask).await).await;
        if !problems.is_empty() || args.api_servers_stopped {
            return problems;
        }
        let stable = SignedDuration::from_secs(i64::from(args.stable_for));
        self.printer.beside(&format!(
            "etcd serves; waits until the API and the Nodes do, for {} s on end\n",
            args.stable_for
        ));
        self.until(CLUSTER_WITHIN, stable, async |ask| self.cluster_problems(ask).await).await
    }

    /// Asks until there was no problem for `stable`, or the time is over. What cannot be asked is a problem, too.
    async fn until(
        &self,
        within: SignedDuration,
        stable: SignedDuration,
        problems: impl AsyncFn(u32) -> Result<Vec<String>, CliError>,
    ) -> Vec<String> {
        let until = Timestamp::now() + within;
        let mut well_since = None;
        for ask in 0.. {
            let found = problems(ask).await.unwrap_or_else(|error| vec![error.to_string()]);
            let now = Timestamp::now();
            if !found.is_empty() {
                well_since = None;
                if now >= until {
                    return found;
                }
            } else if now.duration_since(*well_since.get_or_insert(now)) >= stable {
                break;
            }
            sleep(POLL_PAUSE).await;
        }
        Vec::new()
    }

    async fn etcd_problems(&self, ask: u32) -> Result<Vec<String>, CliError> {
        let queries = self.members.iter().map(|(role, instance)| async move {
            let token = format!("{}-health-{ask}", self.token_of_commands());
            let health =
                members::answer::<EtcdHealth>(self.cloud, instance, Verb::EtcdHealth, &token).await?;
            Ok::<_, CliError>((role, instance, health))
        });
        let mut problems = Vec::new();
        let mut clusters = BTreeSet::new();
        for (role, instance, health) in try_join_all(queries).await? {
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
        let queries = controllers.into_iter().map(|instance| async move {
            let token = format!("{}-serves-{ask}", self.token_of_commands());
            let verb = Verb::Serves { without: BTreeSet::new() };
            let serves = members::answer::<ClusterServes>(self.cloud, &instance, verb, &token).await?;
            Ok::<_, CliError>((instance, serves))
        });
        let (mut problems, mut answers) = (Vec::new(), BTreeMap::new());
        for (instance, serves) in try_join_all(queries).await? {
            match serves {
                Ok(serves) => drop(answers.insert(instance, serves)),
                Err(why) => problems.push(format!("controller {instance}: {}", plain(&why.to_string()))),
            }
        }
        // Of controllers that did not answer nothing else is known.
        if !answers.is_empty() || problems.is_empty() {
            let members = self.members.keys().map(Role::to_string).collect();
            problems.extend(problems_of(&answers, &members, &machines));
        }
        Ok(problems)
    }

    /// What the tokens of its commands begin with. They are no cluster's, so the rollout function ignores them.
    fn token_of_commands(&self) -> String {
        format!("restore-{}", self.begun)
    }
}
