//! How much room etcd's database has: what a person has to know before the quota is reached.
//!
//! The quota limits the *file* (`BackendQuota::Available` in etcd's `server/storage/quota.go` compares `be.Size()`). Free pages inside of it are
//! used again, but the file never shrinks by itself. At the quota, etcd raises the alarm `NOSPACE` and accepts only reads and deletions
//! (<https://etcd.io/docs/v3.6/op-guide/maintenance/#space-quota>).

use std::fmt;

use serde::Serialize;

use super::EtcdHealth;
use super::defragment::NO_SPACE;

/// From which part of the quota, in percent, a database counts as nearly full.
pub const NEAR_PERCENT: u64 = 80;

/// From which size in bytes of the file a snapshot is nearly too large: it has all of the file, and S3 takes 5 GiB in one call.
const NEAR_SNAPSHOT_LIMIT: u64 = (9 << 30) / 2;

/// The room of a member's database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdSpace {
    /// Bytes of the database file.
    pub size: u64,
    /// Bytes of it that are in use.
    pub in_use: u64,
    /// The size in bytes at which etcd stops accepting writes. `None`: it does not say.
    pub quota: Option<u64>,
    /// Whether etcd refuses writes: some member's alarm `NOSPACE` is raised.
    pub full: bool,
}

/// What is wrong with the room, the gravest last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum SpaceProblem {
    /// Much of a large file is free: defragmentation gives it back.
    Fragmented,
    /// What is in use nearly reaches the quota. Defragmentation does not help.
    NearQuota,
    /// etcd refuses writes.
    Full,
}

impl EtcdSpace {
    /// The room of a member. `None`: it does not answer.
    #[must_use]
    pub fn from_health(health: &EtcdHealth) -> Option<Self> {
        health.id.as_ref()?;
        Some(Self {
            size: health.db_size,
            in_use: health.db_size_in_use,
            quota: health.db_quota,
            full: health.alarms.iter().any(|alarm| alarm.kind == NO_SPACE),
        })
    }

    /// How much of the quota is in use, in percent.
    #[must_use]
    pub fn percent(&self) -> Option<u64> {
        let quota = self.quota.filter(|quota| *quota > 0)?;
        Some(self.in_use.saturating_mul(100) / quota)
    }

    /// Whether a snapshot is nearly too large to be stored. Without one, no member is replaced, and none gets new certificates.
    #[must_use]
    pub const fn is_near_snapshot_limit(&self) -> bool {
        self.size >= NEAR_SNAPSHOT_LIMIT
    }

    /// What is wrong, if anything is.
    ///
    /// A file is fragmented if over half of it is free and it has reached half of the quota, or if a quarter is free and the file itself
    /// has nearly reached the quota. A small file is not worth that a member stands still.
    #[must_use]
    pub fn problem(&self) -> Option<SpaceProblem> {
        if self.full {
            return Some(SpaceProblem::Full);
        }
        let quota = self.quota.filter(|quota| *quota > 0)?;
        if self.percent() >= Some(NEAR_PERCENT) {
            return Some(SpaceProblem::NearQuota);
        }
        let (size, free) = (self.size, self.size.saturating_sub(self.in_use));
        let half = free > size / 2 && size >= quota / 2;
        let quarter = free >= size / 4 && size.saturating_mul(100) >= quota.saturating_mul(NEAR_PERCENT);
        (half || quarter).then_some(SpaceProblem::Fragmented)
    }
}

/// The problem that comes first among `members`: the gravest, and of those the one of the fullest database.
#[must_use]
pub fn gravest<N>(members: impl IntoIterator<Item = (N, EtcdSpace)>) -> Option<(N, EtcdSpace, SpaceProblem)> {
    let problems = members.into_iter().filter_map(|(name, space)| Some((name, space, space.problem()?)));
    problems.max_by_key(|(_, space, problem)| (*problem, space.in_use, space.size))
}

/// A problem with the room, in words.
#[derive(Debug, Clone, Copy)]
pub struct InWords<'n> {
    /// The member.
    pub member: &'n str,
    /// Its room.
    pub space: EtcdSpace,
    /// What is wrong.
    pub problem: SpaceProblem,
}

impl fmt::Display for InWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (member, EtcdSpace { size, in_use, quota, .. }) = (self.member, self.space);
        let (size, in_use) = (mib(size), mib(in_use));
        let quota =
            quota.map_or_else(|| "an unknown quota".to_owned(), |quota| format!("a quota of {}", mib(quota)));
        match self.problem {
            SpaceProblem::Full => write!(
                f,
                "etcd refuses all writes, since its alarm NOSPACE is raised: the database file of {member} has {size} under {quota}, and {in_use} \
                 of it are in use"
            ),
            SpaceProblem::NearQuota => write!(
                f,
                "etcd's data nearly reach its quota, and then it refuses all writes: {member} uses {in_use} ({} %) of {quota}",
                self.space.percent().unwrap_or_default()
            ),
            SpaceProblem::Fragmented => write!(
                f,
                "the database file of {member} has {size} under {quota}, and only {in_use} of it are in use: etcd counts the file, which does not \
                 shrink by itself"
            ),
        }
    }
}

impl InWords<'_> {
    /// What a person does about it.
    #[must_use]
    pub fn help(&self, cluster: &str) -> String {
        let page = "\"etcd is full\" in docs/runbook.md";
        match self.problem {
            SpaceProblem::Full => format!(
                "delete objects that nobody needs, then: slipway defragment --cluster {cluster}; it compacts, defragments and disarms the alarm; see \
                 {page}"
            ),
            SpaceProblem::NearQuota => format!(
                "find what fills it and delete that, or raise etcd.quota (8 GiB at most) in the spec, then: slipway apply cluster.yaml --cluster \
                 {cluster}; see {page}"
            ),
            SpaceProblem::Fragmented => format!("slipway defragment --cluster {cluster}"),
        }
    }
}

/// A size in words.
#[must_use]
pub fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(size: u64, in_use: u64, quota: u64) -> EtcdSpace {
        EtcdSpace { size: size << 20, in_use: in_use << 20, quota: Some(quota << 20), full: false }
    }

    #[test]
    fn a_problem_is_known_before_the_quota_is_reached() {
        for (size, in_use, problem) in [
            (100, 10, None),
            // Half of the quota.
            (999, 10, None),
            (1000, 499, Some(SpaceProblem::Fragmented)),
            (1000, 500, None),
            // Near the quota, a quarter is worth it.
            (1599, 1000, None),
            (1600, 1200, Some(SpaceProblem::Fragmented)),
            (1600, 1201, None),
            (1600, 1599, None),
            (1600, 1600, Some(SpaceProblem::NearQuota)),
            (2000, 1600, Some(SpaceProblem::NearQuota)),
        ] {
            assert_eq!(space(size, in_use, 2000).problem(), problem, "{size} {in_use}");
        }
        let unknown = EtcdSpace { quota: None, ..space(2000, 10, 0) };
        assert_eq!((unknown.problem(), unknown.percent()), (None, None));
        assert_eq!(space(2000, 10, 0).problem(), None, "a quota of 0 is none");
        let full = EtcdSpace { full: true, ..unknown };
        assert_eq!(full.problem(), Some(SpaceProblem::Full), "the alarm says it without a quota");
    }

    #[test]
    fn a_file_is_near_the_limit_of_snapshots_whatever_of_it_is_in_use() {
        for (size, near) in [(4607, false), (4608, true), (6000, true)] {
            assert_eq!(space(size, 10, 8192).is_near_snapshot_limit(), near, "{size}");
        }
    }

    #[test]
    fn the_gravest_problem_comes_first_and_each_names_the_next_command() {
        let members = [
            ("etcd-0", space(1000, 100, 2000)),
            ("etcd-1", space(1700, 1650, 2000)),
            ("etcd-2", space(1700, 1690, 2000)),
            ("etcd-3", space(10, 10, 2000)),
        ];
        assert_eq!(gravest([members[3]]), None);
        assert_eq!(
            gravest(members).map(|(name, _, problem)| (name, problem)),
            Some(("etcd-2", SpaceProblem::NearQuota))
        );
        let words = |member, space: EtcdSpace, problem| {
            let words = InWords { member, space, problem };
            (words.to_string(), words.help("prod"))
        };
        let (near, help) = words("etcd-2", members[2].1, SpaceProblem::NearQuota);
        assert!(near.ends_with("etcd-2 uses 1690 MiB (84 %) of a quota of 2000 MiB"), "{near}");
        assert!(
            help.contains("etcd.quota") && help.contains("slipway apply cluster.yaml --cluster prod"),
            "{help}"
        );
        for (problem, word) in [(SpaceProblem::Full, "NOSPACE"), (SpaceProblem::Fragmented, "only 100 MiB")] {
            let (words, help) = words("etcd-0", members[0].1, problem);
            assert!(words.contains(word) && words.contains("1000 MiB"), "{words}");
            assert!(help.contains("slipway defragment --cluster prod"), "{help}");
        }
    }
}
