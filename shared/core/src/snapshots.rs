//! Scheduled snapshots of etcd: which member takes the next one, and when; which old ones are removed; when a missing one is a problem.
//!
//! The scan function writes the [`SnapshotSchedule`] into the asset bucket. A timer of the agent on each member reads it, and decides with
//! [`turn`]. The members agree through the [`SnapshotLedger`], which they write on the condition that nobody else changed it (`If-Match`).

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// `etcd.snapshots`: how often a snapshot is taken, and how long it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScheduledSnapshots {
    /// Hours between two snapshots.
    pub every_hours: u32,
    /// How long they are kept.
    pub keep: Retention,
}

/// How long scheduled snapshots are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Retention {
    /// For so many days all are kept.
    pub all_days: u32,
    /// For so many days the last one of each day is kept.
    pub daily_days: u32,
    /// The number of newest verified snapshots that are kept whatever their age.
    pub at_least: u32,
}

impl ScheduledSnapshots {
    /// The schedule with as many snapshots as `one` and `other` have, each as far as it has more. Off only if both are.
    #[must_use]
    pub fn larger_of_each(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let (Some(one), Some(other)) = (one, other) else { return one.or(other) };
        Some(Self {
            every_hours: one.every_hours.min(other.every_hours),
            keep: Retention {
                all_days: one.keep.all_days.max(other.keep.all_days),
                daily_days: one.keep.daily_days.max(other.keep.daily_days),
                at_least: one.keep.at_least.max(other.keep.at_least),
            },
        })
    }
}

impl Default for ScheduledSnapshots {
    fn default() -> Self {
        Self { every_hours: 6, keep: Retention::default() }
    }
}

impl Retention {
    /// The most that a spec can ask for.
    pub const MOST: Self = Self { all_days: 365, daily_days: 3650, at_least: 1000 };
}

impl Default for Retention {
    fn default() -> Self {
        Self { all_days: 7, daily_days: 30, at_least: 8 }
    }
}

/// What the members read ([`crate::keys::snapshot_schedule`]). It is no part of a node's configuration, so that a change of the schedule
/// replaces no machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotSchedule {
    /// [`SnapshotSchedule::FORMAT`].
    pub format: u32,
    /// Hours between two snapshots. `None`: the spec has turned them off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_hours: Option<u32>,
    /// Since when this interval holds. A snapshot is not missed before it could be taken.
    pub since: Timestamp,
    /// What was stored until then is of an etcd that was deleted ([`OfEtcd`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier_until: Option<Timestamp>,
}

impl SnapshotSchedule {
    /// The current format.
    pub const FORMAT: u32 = 1;
    /// The most that is read of one. It has some hundred bytes.
    pub const MOST_BYTES: u64 = 64 * 1024;

    /// The schedule that should be stored, if that is another one than `stored`.
    #[must_use]
    pub fn schedule_to_store(
        stored: Option<&Self>,
        wanted: Option<&ScheduledSnapshots>,
        earlier_until: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<Self> {
        let every_hours = wanted.map(|wanted| wanted.every_hours);
        match stored {
            Some(stored) if stored.every_hours == every_hours && stored.earlier_until == earlier_until => {
                None
            }
            // Nothing was ever scheduled, and nothing is.
            None if every_hours.is_none() => None,
            Some(_) | None => Some(Self { format: Self::FORMAT, every_hours, since: now, earlier_until }),
        }
    }

    /// Whether the snapshot with the name `time` is of an etcd that was deleted. Whoever takes a snapshot names it, so this is for words only.
    #[must_use]
    pub fn is_of_deleted_etcd(&self, time: &str) -> bool {
        // The names sort as the times do.
        self.earlier_until.is_some_and(|until| *time <= *until.strftime("%Y%m%dT%H%M%SZ").to_string())
    }
}

/// Which etcd a snapshot is of. A cluster that was destroyed and launched again under its name has a new one, whose snapshots lie in the same
/// folders.
///
/// etcd's cluster id does not tell them apart. It is a hash of the members' ids, and the id of a founder is a hash of its peer URLs and the
/// cluster's token (etcd, `server/etcdserver/api/membership/cluster.go`, `genID`, and `member.go`, `computeMemberID`). Both are the
/// same for every cluster of that name; and a restore, which needs another token, changes the id although the data live on. So the time
/// decides: S3 stored it before the stack of the earlier etcd was deleted, or after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OfEtcd {
    /// The one that exists now, however often it was restored.
    Present,
    /// One that was deleted.
    Earlier,
}

impl OfEtcd {
    /// Which etcd a snapshot of the time `stored_at` is of. `earlier_until`: when the last one was deleted.
    #[must_use]
    pub fn at(stored_at: Timestamp, earlier_until: Option<Timestamp>) -> Self {
        match earlier_until {
            Some(until) if stored_at <= until => Self::Earlier,
            Some(_) | None => Self::Present,
        }
    }
}

/// What the members tell each other ([`crate::keys::snapshot_ledger`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotLedger {
    /// [`SnapshotLedger::FORMAT`].
    pub format: u32,
    /// The member that is taking a snapshot now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<SnapshotClaim>,
    /// The last one that was taken and verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastSnapshot>,
    /// The last failure since then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<SnapshotFailure>,
}

impl SnapshotLedger {
    /// The current format.
    pub const FORMAT: u32 = 1;
    /// The most that is read of one. It has some hundred bytes, and with a failure some kilobytes.
    pub const MOST_BYTES: u64 = 64 * 1024;
}

impl Default for SnapshotLedger {
    fn default() -> Self {
        Self { format: Self::FORMAT, claim: None, last: None, failure: None }
    }
}

/// A machine of a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taker {
    /// The member: `etcd-0`.
    pub member: String,
    /// The id of its machine.
    pub instance: String,
}

/// The right to take the next snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotClaim {
    /// Who has it.
    #[serde(flatten)]
    pub by: Taker,
    /// When it ends by itself, in case that its owner died.
    pub until: Timestamp,
}

/// A scheduled snapshot that was read back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastSnapshot {
    /// Who took it.
    #[serde(flatten)]
    pub by: Taker,
    /// When it was begun.
    pub begun: Timestamp,
    /// Its time, which names it.
    pub time: String,
}

/// Why a scheduled snapshot was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotFailure {
    /// Who tried.
    #[serde(flatten)]
    pub by: Taker,
    /// When it failed.
    pub at: Timestamp,
    /// What was wrong.
    pub message: String,
    /// What to do.
    pub help: String,
}

/// How long systemd lets a member take a scheduled snapshot (`TimeoutStartSec`).
pub const SCHEDULED_TIMEOUT_S: u32 = 1_800;
/// How long a claim holds: longer than its owner can run.
pub const CLAIM_LIFE: SignedDuration = SignedDuration::from_secs(SCHEDULED_TIMEOUT_S as i64 + 600);

/// How far the clocks of two members may be apart: S3 refuses a request whose time is off by more (`RequestTimeTooSkewed`, "Error responses" of
/// its API reference).
const CLOCKS_APART: SignedDuration = SignedDuration::from_mins(15);

/// What a member does when its timer runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Turn {
    /// Nothing is scheduled.
    Off,
    /// The next snapshot is due then.
    NotDue {
        /// When.
        at: Timestamp,
    },
    /// Another member, or another machine of this one, is taking it.
    Claimed {
        /// Who.
        by: Taker,
        /// When the claim ends by itself.
        until: Timestamp,
    },
    /// It is due, and left to the leader until then.
    LeaderFirst {
        /// When any member may take it.
        until: Timestamp,
    },
    /// This member claims it, and takes it.
    Take,
    /// The last one that this machine took itself is so old that it takes one whatever the ledger says.
    TakeOwn,
}

/// After so many intervals a machine takes a snapshot of its own. Every member can write the ledger, and none can see whether a snapshot that it
/// tells of exists or is a good one: a compromised member alone must not keep the others from taking any.
pub const OWN_AFTER_INTERVALS: i64 = 4;

/// Decides. `leads`: this member leads. The leader takes each snapshot, so that only one member asks for the claim. A leader may be unable to
/// take one while it leads, for example because its disk is full, so after a while every other member may. `own_since`: when this machine began its
/// own last one or, before that, when it looked at the schedule for the first time.
#[must_use]
pub fn turn(
    schedule: Option<&SnapshotSchedule>,
    ledger: &SnapshotLedger,
    own: &Taker,
    leads: bool,
    own_since: Timestamp,
    now: Timestamp,
) -> Turn {
    let Some((schedule, every_hours)) = schedule.and_then(|one| Some((one, one.every_hours?))) else {
        return Turn::Off;
    };
    // A member's own claim is of an earlier run that died: a machine takes one snapshot at a time. One that holds for longer than any run
    // may take is of a wrong clock, or of somebody who wants no snapshot to be taken.
    let holds = |claim: &&SnapshotClaim| {
        claim.by != *own && claim.until > now && claim.until <= now + CLAIM_LIFE + CLOCKS_APART
    };
    let every = SignedDuration::from_hours(i64::from(every_hours));
    let own_age = now.duration_since(own_since);
    let own_after = SignedDuration::from_hours(OWN_AFTER_INTERVALS * i64::from(every_hours));
    // For the life of a claim that of another is heeded, so that honest members whose time comes at once take theirs one after the other.
    if let Some(claim) = ledger.claim.as_ref().filter(holds)
        && own_age < own_after + CLAIM_LIFE
    {
        return Turn::Claimed { by: claim.by.clone(), until: claim.until };
    }
    if own_age >= own_after {
        return Turn::TakeOwn;
    }
    // A time in the future, of a wrong clock, must not end the snapshots.
    let of_this = |begun: &Timestamp| OfEtcd::at(*begun, schedule.earlier_until) == OfEtcd::Present;
    let last = ledger.last.as_ref().map(|last| last.begun).filter(|begun| *begun <= now && of_this(begun));
    let at = last.map_or(schedule.since, |last| last + every);
    if at > now && last.is_some() {
        return Turn::NotDue { at };
    }
    let until = at.min(now) + leader_first(every);
    if leads || until <= now { Turn::Take } else { Turn::LeaderFirst { until } }
}

/// How long a due snapshot is left to the leader: a quarter of the interval, from half an hour to two hours.
fn leader_first(every: SignedDuration) -> SignedDuration {
    (every / 4).clamp(SignedDuration::from_mins(30), SignedDuration::from_hours(2))
}

/// A scheduled snapshot in the asset bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSnapshot {
    /// Its time, which names it.
    pub time: String,
    /// When S3 stored it. A member can choose the name of what it uploads, but not this.
    pub stored_at: Timestamp,
    /// Whether the member recorded that it read the snapshot back.
    pub verified: bool,
    /// Which etcd it is of.
    pub etcd: OfEtcd,
}

/// Those of `all` that `keep` does not keep, by their time, the oldest first. The newest verified ones are always kept, so when no snapshots are taken any more,
/// the last ones stay. Those of the etcds before this one are counted apart: none takes the place of one of the other kind.
#[must_use]
pub fn expired(all: &[StoredSnapshot], keep: Retention, now: Timestamp) -> Vec<String> {
    let mut newest_first: Vec<&StoredSnapshot> = all.iter().collect();
    newest_first.sort_by(|one, other| (other.stored_at, &other.time).cmp(&(one.stored_at, &one.time)));
    let days = |days: u32| SignedDuration::from_hours(24 * i64::from(days));
    let (mut verified, mut kept_days, mut expired) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
    for one in newest_first {
        let age = now.duration_since(one.stored_at);
        let newer: &mut u32 = verified.entry(one.etcd).or_default();
        let is_last_good = one.verified && *newer < keep.at_least;
        *newer += u32::from(one.verified);
        // One that was not verified is no backup, and takes no verified one's place.
        let day = one.stored_at.as_second().div_euclid(24 * 3600);
        let is_days_last = one.verified && kept_days.insert((one.etcd, day));
        let kept =
            age <= days(keep.all_days) || is_last_good || (is_days_last && age <= days(keep.daily_days));
        if !kept {
            expired.push(one.time.clone());
        }
    }
    expired.reverse();
    expired
}

/// How old the newest verified snapshot may be: two intervals and some hours, so that one that failed and was repeated is no problem.
#[must_use]
pub fn age_limit(every_hours: u32) -> SignedDuration {
    SignedDuration::from_hours(2 * i64::from(every_hours) + 2)
}

/// Since when there is no verified snapshot, if that is too long. Before the first one could be taken, that is since the schedule began.
#[must_use]
pub fn overdue_since(
    schedule: &SnapshotSchedule,
    newest: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    let every_hours = schedule.every_hours?;
    let since = newest.map_or(schedule.since, |newest| newest.max(schedule.since));
    (now.duration_since(since) > age_limit(every_hours)).then_some(since)
}

#[cfg(test)]
mod tests;
