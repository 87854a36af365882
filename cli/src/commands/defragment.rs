//! `slipway defragment`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use futures_util::future::try_join_all;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::json;
use slipway_core::node::defragment::{Obstacle, SpaceAlarm, obstacles};
use slipway_core::node::space::mib;
use slipway_core::node::{Defragmented, EtcdHealth, Verb, Word};
use slipway_core::role::Role;
use tokio::time::sleep;

use crate::Exit;
use crate::cloud::{Cloud, CloudArgs};
use crate::failure::CliError;
use crate::members::{self, POLL_PAUSE};
use crate::overview::plain;
use crate::printer::Printer;

/// Shrink the database files of etcd, one member after the other and the leader last, and disarm their alarms NOSPACE.
///
/// A member does not serve while it is defragmented; in a cluster with a single member, the API is unavailable meanwhile. The next member follows only
/// once all are healthy; the first failure ends the command. While an alarm NOSPACE is raised, etcd's history is compacted first, because no API server
/// can do it then.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  all members are defragmented, and no alarm is raised
  1  there is no such cluster, a rollout is open, a member is not well, or one failed; or an alarm stays, since its database is still too large
  2  wrong usage
  3  something could not be read, or AWS refused

The IAM permissions for this are listed in docs/cli.md. `slipway status` shows when it is due.

Examples:
  slipway defragment --cluster prod
  slipway defragment --cluster prod --output json | jq '.members[].sizeAfter'")]
pub(crate) struct Args {
    #[command(flatten)]
    cloud: CloudArgs,
}

/// How long all members may take to be well again.
const WELL_WITHIN: SignedDuration = SignedDuration::from_mins(5);

/// A member that was defragmented.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Done {
    role: String,
    instance: String,
    /// Whether it was the leader.
    led: bool,
    #[serde(flatten)]
    result: Defragmented,
}

impl Done {
    fn words(&self) -> String {
        let Self { role, instance, result, .. } = self;
        let alarm = match &result.alarm {
            Some(Word::Known(SpaceAlarm::Disarmed)) => "; its alarm NOSPACE is disarmed",
            Some(Word::Known(SpaceAlarm::StillRaised)) => {
                "; its alarm NOSPACE stays, since the file is not below the quota"
            }
            Some(Word::Other(_)) | None => "",
        };
        format!(
            "{role} ({instance}): {} before, {} after, in {} s{alarm}",
            mib(result.size_before),
            mib(result.size_after),
            result.seconds
        )
    }
}

/// What the members say of themselves.
type Healths = BTreeMap<Role, EtcdHealth>;

/// A defragmentation of all members.
struct Round<'c> {
    cloud: &'c Cloud,
    members: BTreeMap<Role, String>,
    token: String,
    query_count: u32,
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let cloud = args.cloud.named().await?;
    let name = cloud.cluster.as_str();
    members::must_be_at_rest(&cloud).await?;
    let members = members::one_each(name, members::machines(&cloud).await?)?;
    let token = format!("defragment-{}", Timestamp::now().as_millisecond());
    let mut round = Round { cloud: &cloud, members, token, query_count: 0 };
    let mut healths = round.healths().await?.map_err(|why| refused(name, &why, &[]))?;
    let (mut remaining, mut done): (BTreeSet<Role>, Vec<Done>) =
        (round.members.keys().cloned().collect(), Vec::new());
    while let Some(role) = next(&remaining, &healths) {
        members::must_be_at_rest(&cloud).await?;
        printer.beside(&format!("{role} is defragmented, and does not serve meanwhile\n"));
        let led = healths.get(&role).is_some_and(|health| health.leads);
        let one = round.defragment(&role, led).await?.map_err(|why| refused(name, &why, &done))?;
        printer.beside(&format!("{}\n", one.words()));
        done.push(one);
        remaining.remove(&role);
        healths = round.well_again().await?.map_err(|why| refused(name, &why, &done))?;
    }
    let alarms: BTreeSet<String> =
        healths.values().flat_map(|health| &health.alarms).map(|alarm| alarm.kind.clone()).collect();
    let machine = json!({ "ok": alarms.is_empty(), "cluster": name, "members": done, "alarms": alarms });
    printer.result(&summary(name, &done, !alarms.is_empty()), &machine);
    Ok(if alarms.is_empty() { Exit::Done } else { Exit::Findings })
}

/// The next member: the leader is the last.
fn next(left: &BTreeSet<Role>, healths: &Healths) -> Option<Role> {
    let leads = |role: &Role| healths.get(role).is_some_and(|health| health.leads);
    left.iter().min_by_key(|role| leads(role)).cloned()
}

/// Why the members may not be defragmented now, by what all of them say.
fn unfit(members: &BTreeMap<Role, String>, healths: &Healths) -> Vec<String> {
    let mut why = BTreeSet::new();
    for (role, health) in healths {
        why.extend(obstacles(health).iter().map(|obstacle: &Obstacle| format!("{role}: {obstacle}")));
        let (known, machines) = (health.members.len(), members.len());
        if known != machines {
            why.insert(format!(
                "{role}: etcd has {known} members, and Auto Scaling has machines of {machines}"
            ));
        }
    }
    why.into_iter().collect()
}

impl Round<'_> {
    /// The health of all members. The inner error is why they may not be defragmented.
    async fn healths(&mut self) -> Result<Result<Healths, String>, CliError> {
        self.query_count += 1;
        let cloud = self.cloud;
        let token = format!("{}-{}", self.token, self.query_count);
        let queries = self.members.iter().map(|(role, instance)| {
            let token = token.as_str();
            async move {
                let health = members::answer::<EtcdHealth>(cloud, instance, Verb::EtcdHealth, token).await?;
                Ok::<_, CliError>((
                    role.clone(),
                    health.map_err(|why| format!("{role} ({instance}): {}", plain(&why.to_string()))),
                ))
            }
        });
        let mut healths = Healths::new();
        for (role, health) in try_join_all(queries).await? {
            match health {
                Ok(health) => drop(healths.insert(role, health)),
                Err(why) => return Ok(Err(why)),
            }
        }
        let why = unfit(&self.members, &healths);
        Ok(if why.is_empty() { Ok(healths) } else { Err(plain(&why.join("; "))) })
    }

    /// Waits until all members are well.
    async fn well_again(&mut self) -> Result<Result<Healths, String>, CliError> {
        let until = Timestamp::now() + WELL_WITHIN;
        loop {
            match self.healths().await? {
                Err(_) if Timestamp::now() < until => sleep(POLL_PAUSE).await,
                healths => return Ok(healths),
            }
        }
    }

    async fn defragment(&self, role: &Role, led: bool) -> Result<Result<Done, String>, CliError> {
        let Some(instance) = self.members.get(role) else { return Ok(Err(format!("{role} has no machine"))) };
        let answer =
            members::answer::<Defragmented>(self.cloud, instance, Verb::EtcdDefragment, &self.token).await?;
        Ok(match answer {
            Ok(result) => Ok(Done { role: role.to_string(), instance: instance.clone(), led, result }),
            Err(why) => Err(format!("{role} ({instance}): {}", plain(&why.to_string()))),
        })
    }
}

fn refused(name: &str, why: &str, done: &[Done]) -> CliError {
    let done: Vec<&str> = done.iter().map(|one| one.role.as_str()).collect();
    let so_far = match done.as_slice() {
        [] => "no member was defragmented".to_owned(),
        done => format!("only {} was defragmented", done.join(" and ")),
    };
    let help = format!(
        "slipway status --cluster {name} shows what is wrong with etcd; once that is repaired, run this again: defragmenting twice does no harm"
    );
    CliError::refused(format!("{so_far}: {why}"), help)
}

fn summary(name: &str, done: &[Done], alarm: bool) -> String {
    let freed: u64 =
        done.iter().map(|one| one.result.size_before.saturating_sub(one.result.size_after)).sum();
    let mut text =
        format!("all {} members of {name} are defragmented: {} are free again\n", done.len(), mib(freed));
    for one in done {
        let _ = writeln!(text, "{}", one.words());
    }
    if alarm {
        let _ = writeln!(
            text,
            "an alarm is still raised, and etcd refuses writes: delete objects that nobody needs and run this again, or raise etcd.quota in the spec; \
             see \"etcd is full\" in docs/runbook.md"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use slipway_core::node::EtcdMemberHealth;

    use super::*;

    fn role(number: u32) -> Role {
        Role::Etcd(number)
    }

    fn three(leader: u32) -> (BTreeMap<Role, String>, Healths) {
        let member = |number: u32| EtcdMemberHealth {
            name: role(number).to_string(),
            reachable: true,
            ..EtcdMemberHealth::default()
        };
        let health = |number: u32| EtcdHealth {
            serving: true,
            leads: number == leader,
            leader: Some(leader.to_string()),
            members: (0..3).map(member).collect(),
            ..EtcdHealth::default()
        };
        let machines = (0..3).map(|number| (role(number), format!("i-{number}"))).collect();
        (machines, (0..3).map(|number| (role(number), health(number))).collect())
    }

    #[test]
    fn the_leader_is_the_last_one_also_if_another_one_leads_meanwhile() {
        let (_, healths) = three(0);
        let mut left = BTreeSet::from([role(0), role(1), role(2)]);
        assert_eq!(next(&left, &healths), Some(role(1)));
        left.remove(&role(1));
        let (_, healths) = three(2);
        assert_eq!(next(&left, &healths), Some(role(0)));
        left.remove(&role(0));
        assert_eq!(next(&left, &healths), Some(role(2)), "the leader, as the last one");
        left.remove(&role(2));
        assert_eq!(next(&left, &healths), None);
    }

    #[test]
    fn members_are_unfit_if_one_is_ill_or_unknown_or_has_two_machines() {
        let (machines, mut healths) = three(0);
        assert_eq!(unfit(&machines, &healths), [""; 0]);
        healths.get_mut(&role(1)).unwrap().members[2].reachable = false;
        let why = unfit(&machines, &healths);
        assert_eq!(why, ["etcd-1: etcd-2 cannot be reached: it does not answer"]);
        let (mut machines, healths) = three(0);
        machines.remove(&role(2));
        let why = unfit(&machines, &healths);
        assert!(why[0].ends_with("etcd has 3 members, and Auto Scaling has machines of 2"), "{why:?}");
        let two = vec![(role(0), "i-0".to_owned()), (role(0), "i-9".to_owned())];
        assert!(
            members::one_each("prod", two).unwrap_err().to_string().contains("two machines, i-0 and i-9")
        );
    }
}
