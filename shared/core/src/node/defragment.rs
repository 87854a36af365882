//! `etcd defragment`: when a member may be defragmented, and what it answers.
//!
//! While a member is defragmented it neither reads nor writes, and the request concerns no other member (etcd, "Maintenance",
//! <https://etcd.io/docs/v3.6/op-guide/maintenance/#defragmentation>). So the others have to be well, and one follows the other: "recommended to
//! do it for each member one by one" (<https://etcd.io/blog/2023/how_to_debug_large_db_size_issue/>). As the tool of etcd's maintainers does, the
//! leader is the last one, and the alarm `NOSPACE` is no obstacle, since it is a reason to defragment
//! (<https://github.com/ahrtr/etcd-defrag#overview>).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{EtcdHealth, Word};

/// The alarm of a member whose database has reached its quota. Until it is disarmed, etcd accepts only reads and deletions.
pub const NO_SPACE: &str = "NOSPACE";
/// The alarm of a member whose data differ from those of the majority; of member 0, if etcd does not know whose are damaged. Until it is
/// disarmed, etcd accepts no write, and still answers reads.
pub const CORRUPT: &str = "CORRUPT";
/// A member further behind than this first has to catch up.
const BEHIND_AT_MOST: u64 = 1_000;

/// What `etcd defragment` did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Defragmented {
    /// Bytes of the database file before.
    pub size_before: u64,
    /// Bytes of the database file after.
    pub size_after: u64,
    /// Bytes of the file that are in use after.
    #[serde(default)]
    pub in_use: u64,
    /// The size in bytes at which etcd stops accepting writes. `None`: it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<u64>,
    /// How long etcd took, in seconds.
    #[serde(default)]
    pub seconds: u64,
    /// The revision to which history was compacted first, because no API server can compact while the alarm `NOSPACE` is raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compacted: Option<u64>,
    /// What became of this member's alarm `NOSPACE`. `None`: it was not raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alarm: Option<Word<SpaceAlarm>>,
}

/// What became of an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpaceAlarm {
    /// It was disarmed.
    #[serde(rename = "disarmed")]
    Disarmed,
    /// The file is not below the quota, so the alarm stays.
    #[serde(rename = "still raised")]
    StillRaised,
}

/// Why a member may not be defragmented now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// It does not answer or reads through no majority.
    NotServing(Vec<String>),
    /// The cluster has no leader.
    NoLeader,
    /// The member does not know the others.
    MembersUnknown,
    /// That member has no vote yet.
    Learner(String),
    /// That member does not answer.
    Unreachable {
        /// Which.
        member: String,
        /// Why, in words.
        problem: String,
    },
    /// That member lags behind the leader.
    Behind {
        /// Which.
        member: String,
        /// How many entries.
        entries: u64,
    },
    /// An alarm other than `NOSPACE`: `CORRUPT`.
    Alarm {
        /// The member's id.
        member: String,
        /// Its kind.
        kind: String,
    },
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotServing(problems) if problems.is_empty() => f.write_str("it does not serve"),
            Self::NotServing(problems) => write!(f, "it does not serve: {}", problems.join("; ")),
            Self::NoLeader => f.write_str("the cluster has no leader"),
            Self::MembersUnknown => f.write_str("it does not know the other members"),
            Self::Learner(member) => write!(f, "{member} is a learner without a vote"),
            Self::Unreachable { member, problem } => write!(f, "{member} cannot be reached: {problem}"),
            Self::Behind { member, entries } => {
                write!(
                    f,
                    "{member} is {entries} entries behind the leader, and at most {BEHIND_AT_MOST} are allowed"
                )
            }
            Self::Alarm { member, kind } => write!(f, "the alarm {kind} of the member {member} is raised"),
        }
    }
}

/// Why the member that sees itself and the others so may not be defragmented now; empty if it may. The alarm `NOSPACE` is no obstacle.
#[must_use]
pub fn obstacles(health: &EtcdHealth) -> Vec<Obstacle> {
    if !health.serving {
        return vec![Obstacle::NotServing(health.problems.clone())];
    }
    let mut obstacles = Vec::new();
    if health.leader.is_none() {
        obstacles.push(Obstacle::NoLeader);
    }
    if health.members.is_empty() {
        obstacles.push(Obstacle::MembersUnknown);
    }
    for member in &health.members {
        let name = if member.name.is_empty() { member.id.clone() } else { member.name.clone() };
        if member.learner {
            obstacles.push(Obstacle::Learner(name));
        } else if !member.reachable {
            let problem = member.problem.clone().unwrap_or_else(|| "it does not answer".to_owned());
            obstacles.push(Obstacle::Unreachable { member: name, problem });
        } else if let Some(entries) = member.raft_lag.filter(|entries| *entries > BEHIND_AT_MOST) {
            obstacles.push(Obstacle::Behind { member: name, entries });
        }
    }
    let others = health.alarms.iter().filter(|alarm| alarm.kind != NO_SPACE);
    obstacles.extend(
        others.map(|alarm| Obstacle::Alarm { member: alarm.member.clone(), kind: alarm.kind.clone() }),
    );
    obstacles
}

/// Whether a release of etcd may be defragmented while it runs. In 3.5.0 to 3.5.5, a crash meanwhile makes the member apply entries twice
/// (<https://github.com/etcd-io/etcd/pull/14685>; "introduced in v3.5.0 and fixed in v3.5.6", <https://etcd.io/blog/2025/announcing-etcd-3.6/>).
#[must_use]
pub fn may_run_meanwhile(version: &str) -> bool {
    let mut numbers = version.split(['.', '-', '+']).map(|part| part.parse::<u32>().ok());
    let release = (numbers.next().flatten(), numbers.next().flatten(), numbers.next().flatten());
    !matches!(release, (Some(3), Some(5), Some(0..=5)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::super::{EtcdAlarm, EtcdMemberHealth};
    use super::*;

    fn well() -> EtcdHealth {
        let member = |number: u32| EtcdMemberHealth {
            id: number.to_string(),
            name: format!("etcd-{number}"),
            reachable: true,
            leads: number == 0,
            raft_lag: Some(3),
            ..EtcdMemberHealth::default()
        };
        EtcdHealth {
            name: "etcd-0".to_owned(),
            serving: true,
            leader: Some("0".to_owned()),
            members: (0..3).map(member).collect(),
            ..EtcdHealth::default()
        }
    }

    fn after(change: impl FnOnce(&mut EtcdHealth)) -> Vec<String> {
        let mut health = well();
        change(&mut health);
        obstacles(&health).iter().map(Obstacle::to_string).collect()
    }

    #[test]
    fn a_member_is_defragmented_only_beside_healthy_voters() {
        assert_eq!(after(|_| {}), [""; 0]);
        let down = after(|health| {
            health.members[2].reachable = false;
            health.members[2].problem = Some("connection refused".to_owned());
        });
        assert_eq!(down, ["etcd-2 cannot be reached: connection refused"]);
        assert_eq!(after(|health| health.members[1].learner = true), ["etcd-1 is a learner without a vote"]);
        assert_eq!(after(|health| health.members[1].raft_lag = Some(1_000)), [""; 0]);
        let behind = after(|health| health.members[1].raft_lag = Some(1_001));
        assert_eq!(behind, ["etcd-1 is 1001 entries behind the leader, and at most 1000 are allowed"]);
        assert_eq!(after(|health| health.leader = None), ["the cluster has no leader"]);
        assert_eq!(after(|health| health.members.clear()), ["it does not know the other members"]);
        let silent = after(|health| {
            health.serving = false;
            health.problems = vec!["no answer".to_owned()];
        });
        assert_eq!(silent, ["it does not serve: no answer"]);
    }

    #[test]
    fn a_full_database_is_no_obstacle_and_a_corrupt_one_is() {
        let alarm = |kind: &str| EtcdAlarm { member: "2".to_owned(), kind: kind.to_owned() };
        assert_eq!(after(|health| health.alarms.push(alarm("NOSPACE"))), [""; 0]);
        let corrupt = after(|health| health.alarms.push(alarm("CORRUPT")));
        assert_eq!(corrupt, ["the alarm CORRUPT of the member 2 is raised"]);
    }

    #[test]
    fn releases_that_a_crash_meanwhile_leaves_inconsistent_are_known() {
        for version in ["3.5.0", "3.5.5", "3.5.3-rc.0"] {
            assert!(!may_run_meanwhile(version), "{version}");
        }
        for version in ["3.4.1", "3.5.6", "3.5.21", "3.6.0", "3.7.1", "4.5.1", ""] {
            assert!(may_run_meanwhile(version), "{version}");
        }
    }
}
