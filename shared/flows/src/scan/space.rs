//! The room of etcd's databases, and whether their data differ, by the members' hourly reports.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use slipway_core::node::EtcdHealth;
use slipway_core::node::defragment::CORRUPT;
use slipway_core::node::space::{self, EtcdSpace, InWords};
use slipway_core::role::Role;
use slipway_credentials::renewal::Finding;

/// Members report hourly. An older report says nothing of today.
const FRESH: SignedDuration = SignedDuration::from_hours(24);

/// The newest report of each member.
#[derive(Debug, Default)]
pub struct Spaces {
    newest: BTreeMap<Role, Report>,
}

#[derive(Debug)]
struct Report {
    at: Timestamp,
    key: String,
    space: EtcdSpace,
    corrupt: bool,
}

impl Spaces {
    /// Notes what the report with that key, written at `at`, says.
    pub(super) fn note(
        &mut self,
        role: &Role,
        key: &str,
        at: Timestamp,
        health: &EtcdHealth,
        now: Timestamp,
    ) {
        let Some(space) = EtcdSpace::from_health(health).filter(|_| now.duration_since(at) <= FRESH) else {
            return;
        };
        // An earlier machine of the member has a report as well.
        if self.newest.get(role).is_none_or(|known| known.at < at) {
            let corrupt = health.alarms.iter().any(|alarm| alarm.kind == CORRUPT);
            self.newest.insert(role.clone(), Report { at, key: key.to_owned(), space, corrupt });
        }
    }

    /// How much of the quota the fullest member uses, in percent; 100 while etcd refuses writes.
    pub(super) fn percent(&self) -> Option<u64> {
        let used_percent =
            |report: &Report| if report.space.full { Some(100) } else { report.space.percent() };
        self.newest.values().filter_map(used_percent).max()
    }

    /// Data that differ, a file that is too large for snapshots, and the gravest problem with the room.
    pub(super) fn findings(&self, cluster: &str) -> Vec<Finding> {
        [self.differ(cluster), self.too_large(cluster), self.gravest(cluster)].into_iter().flatten().collect()
    }

    fn too_large(&self, cluster: &str) -> Option<Finding> {
        let largest = self.newest.iter().max_by_key(|(_, report)| report.space.size);
        let (role, report) = largest.filter(|(_, report)| report.space.is_near_snapshot_limit())?;
        Some(Finding {
            key: report.key.clone(),
            message: format!(
                "the database file of {role} has {}, and no snapshot of more than 5 GiB can be stored: without one, no member is replaced or gets \
                 new certificates",
                space::mib(report.space.size)
            ),
            help: format!(
                "slipway defragment --cluster {cluster}; if it stays as large, delete objects that nobody needs first: \"etcd is full\" in \
                 docs/runbook.md"
            ),
        })
    }

    fn differ(&self, cluster: &str) -> Option<Finding> {
        let (role, report) = self.newest.iter().find(|(_, report)| report.corrupt)?;
        Some(Finding {
            key: report.key.clone(),
            message: format!(
                "etcd accepts no write and no snapshot of it is taken: its members' data differ, {role} says (alarm {CORRUPT})"
            ),
            help: format!(
                "find the damaged member (slipway logs {role} --cluster {cluster} --unit etcd), replace its data, then disarm the alarm: \
                 \"The data of etcd's members differ\" in docs/runbook.md"
            ),
        })
    }

    fn gravest(&self, cluster: &str) -> Option<Finding> {
        let members = self.newest.iter().map(|(role, report)| ((role, &report.key), report.space));
        let ((role, key), space, problem) = space::gravest(members)?;
        let member = role.to_string();
        let words = InWords { member: &member, space, problem };
        Some(Finding { key: key.clone(), message: words.to_string(), help: words.help(cluster) })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use slipway_core::node::EtcdAlarm;

    use super::*;

    fn health(size: u64, in_use: u64) -> EtcdHealth {
        EtcdHealth {
            id: Some("1".to_owned()),
            db_size: size << 20,
            db_size_in_use: in_use << 20,
            db_quota: Some(2000 << 20),
            ..EtcdHealth::default()
        }
    }

    #[test]
    fn the_newest_report_of_each_member_counts_for_a_day() {
        let now: Timestamp = "2026-11-26T12:00:00Z".parse().unwrap();
        let ago = |hours: i64| now - SignedDuration::from_hours(hours);
        let role = |number: u32| Role::Etcd(number);
        let mut spaces = Spaces::default();
        assert!(spaces.percent().is_none() && spaces.findings("prod").is_empty());
        // A former machine of etcd-0, a member that has been silent for days, and one that does not answer.
        spaces.note(&role(0), "new", ago(1), &health(1000, 900), now);
        spaces.note(&role(0), "old", ago(20), &health(1900, 1900), now);
        spaces.note(&role(1), "silent", ago(25), &health(1900, 1900), now);
        spaces.note(&role(2), "down", ago(1), &EtcdHealth::default(), now);
        assert_eq!(spaces.percent(), Some(45));
        assert!(spaces.findings("prod").is_empty());

        spaces.note(&role(1), "fragmented", ago(1), &health(1200, 100), now);
        let [found] = &spaces.findings("prod")[..] else { panic!() };
        assert_eq!(
            (found.key.as_str(), found.help.as_str()),
            ("fragmented", "slipway defragment --cluster prod")
        );
        spaces.note(&role(2), "near", ago(1), &health(1700, 1600), now);
        let [found] = &spaces.findings("prod")[..] else { panic!() };
        assert!(found.key == "near" && found.message.contains("etcd-2 uses 1600 MiB (80 %)"), "{found:?}");
        assert_eq!(spaces.percent(), Some(80));

        // The alarm is that of the whole cluster, whatever a member uses.
        let full = EtcdHealth {
            alarms: vec![EtcdAlarm { member: "2".to_owned(), kind: "NOSPACE".to_owned() }],
            ..health(1200, 100)
        };
        spaces.note(&role(1), "full", ago(0), &full, now);
        let [found] = &spaces.findings("prod")[..] else { panic!() };
        assert!(found.key == "full" && found.message.starts_with("etcd refuses all writes"), "{found:?}");
        assert_eq!(spaces.percent(), Some(100));
    }

    #[test]
    fn data_that_differ_are_found_beside_the_room() {
        let now: Timestamp = "2026-11-26T12:00:00Z".parse().unwrap();
        let mut spaces = Spaces::default();
        spaces.note(&Role::Etcd(0), "near", now, &health(1700, 1600), now);
        // etcd does not know which member is damaged.
        let alarms = vec![EtcdAlarm { member: "0".to_owned(), kind: "CORRUPT".to_owned() }];
        spaces.note(&Role::Etcd(1), "corrupt", now, &EtcdHealth { alarms, ..health(10, 10) }, now);
        let [corrupt, near] = &spaces.findings("prod")[..] else { panic!() };
        assert_eq!((corrupt.key.as_str(), near.key.as_str()), ("corrupt", "near"));
        assert!(
            corrupt.message.contains("CORRUPT") && corrupt.help.contains("docs/runbook.md"),
            "{corrupt:?}"
        );
        // A file that no snapshot can hold soon.
        spaces.note(&Role::Etcd(2), "large", now, &EtcdHealth { db_quota: None, ..health(4608, 4000) }, now);
        let found = spaces.findings("prod");
        assert_eq!((found.len(), found[1].key.as_str()), (3, "large"), "{found:?}");
        assert!(found[1].message.contains("etcd-2 has 4608 MiB"), "{found:?}");
        spaces.note(&Role::Etcd(2), "small", now + SignedDuration::from_hours(1), &health(100, 90), now);
        // It was disarmed.
        spaces.note(&Role::Etcd(1), "well", now + SignedDuration::from_hours(1), &health(10, 10), now);
        assert_eq!(spaces.findings("prod").len(), 1);
    }
}
