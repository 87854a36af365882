//! Whether any node manager of the cluster still completes its passes, by the controllers' hourly reports.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use slipway_core::node::{NodeStatus, manager};
use slipway_core::role::Role;
use slipway_credentials::renewal::{Finding, Machines};

/// Controllers report hourly. An older report says nothing of today: that a machine is silent is a finding of its own.
const FRESH: SignedDuration = SignedDuration::from_hours(24);

/// What each controller has reported of its node manager.
#[derive(Debug, Default)]
pub struct Managers {
    heard: BTreeMap<String, Report>,
}

#[derive(Debug)]
struct Report {
    key: String,
    /// What [`slipway_core::node::NodeManagerStatus::late`] says.
    late: Option<String>,
}

impl Managers {
    /// Notes what the report of `instance` with that key says, which S3 took at `modified`.
    pub(super) fn note(
        &mut self,
        instance: &str,
        key: &str,
        status: &NodeStatus,
        modified: Timestamp,
        now: Timestamp,
    ) {
        if now.duration_since(status.at.min(modified)) <= FRESH {
            // By the node's own clock, as are all times in it.
            let late = status.node_manager.as_ref().and_then(|manager| manager.late(status.at));
            self.heard.insert(instance.to_owned(), Report { key: key.to_owned(), late });
        }
    }

    /// The finding if none passes. A controller that Auto Scaling no longer has does not count. If it is not known which ones it has, each that has
    /// reported does.
    pub(super) fn finding(&self, cluster: &str, machines: &Machines) -> Option<Finding> {
        let listed = match machines {
            Machines::Listed(machines) => machines.get(&Role::Controller),
            Machines::Unknown => None,
        };
        let stands = |instance: &str| listed.is_none_or(|listed| listed.contains_key(instance));
        let heard = || self.heard.iter().filter(|(instance, _)| stands(instance));
        let reports = heard().map(|(instance, report)| (instance.as_str(), report.late.as_deref()));
        let message = manager::problem(reports)?;
        let (instance, report) = heard().next()?;
        Some(Finding { key: report.key.clone(), message, help: manager::help(cluster, instance) })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        "2026-11-26T12:00:00Z".parse().unwrap()
    }

    fn ago(hours: i64) -> Timestamp {
        now() - SignedDuration::from_hours(hours)
    }

    /// A report of `at`, by a controller whose last pass was complete at `passed`.
    fn report(at: Timestamp, passed: Timestamp) -> NodeStatus {
        serde_json::from_value(json!({
            "format": 1, "at": at, "cluster": "c", "role": "controller", "applied": {"matchesNodeFile": true}, "healthy": true,
            "served": [], "components": [], "nodeManager": {"passed": passed, "started": ago(900)},
        }))
        .unwrap()
    }

    fn noted(reports: &[(&str, NodeStatus)]) -> Managers {
        let mut managers = Managers::default();
        for (instance, status) in reports {
            managers.note(instance, &format!("key of {instance}"), status, now(), now());
        }
        managers
    }

    fn listed(instances: &[&str]) -> Machines {
        let with_keys = instances.iter().map(|one| ((*one).to_owned(), format!("key of {one}")));
        Machines::Listed([(Role::Controller, with_keys.collect())].into())
    }

    #[test]
    fn of_controllers_that_stand_and_have_reported_lately_one_that_passes_is_enough() {
        let fails = report(ago(1), ago(5));
        let passes = report(ago(1), ago(1));
        let found = |reports: &[(&str, NodeStatus)], machines: &Machines| {
            noted(reports).finding("prod", machines).map(|found| found.key)
        };
        let both = listed(&["i-1", "i-2"]);
        assert_eq!(found(&[], &both), None);
        let all = [("i-1", fails.clone()), ("i-2", fails.clone())];
        assert_eq!(found(&all, &both), Some("key of i-1".to_owned()));
        let one = [("i-1", fails.clone()), ("i-2", passes)];
        assert_eq!(found(&one, &both), None);
        // It was terminated meanwhile.
        assert_eq!(found(&one, &listed(&["i-1"])), Some("key of i-1".to_owned()));
        assert_eq!(found(&one, &Machines::Unknown), None);
        assert_eq!(found(&all, &Machines::Unknown), Some("key of i-1".to_owned()));
        // Its node manager worked when it reported, which it has not done since.
        assert_eq!(found(&[("i-1", report(ago(23), ago(23)))], &both), None);
        // It has been silent for too long to say anything, and the other one speaks.
        let silent = [("i-1", fails), ("i-2", report(ago(25), ago(25)))];
        assert_eq!(found(&silent, &both), Some("key of i-1".to_owned()));
    }

    #[test]
    fn the_age_of_a_pass_is_counted_by_the_clock_of_its_own_node() {
        // That clock is five hours behind, and the manager passed when it reported.
        let behind = report(ago(5), ago(5));
        assert_eq!(noted(&[("i-1", behind)]).finding("prod", &Machines::Unknown), None);
        // A report from the future counts from when S3 took it.
        let ahead = report(ago(-5), ago(1));
        assert!(noted(&[("i-1", ahead)]).finding("prod", &Machines::Unknown).is_some());
    }

    #[test]
    fn an_agent_of_an_earlier_release_does_not_say_and_is_not_blamed() {
        let silent = NodeStatus { node_manager: None, ..report(ago(0), ago(5)) };
        let reports = [("i-1", report(ago(0), ago(5))), ("i-2", silent)];
        assert_eq!(noted(&reports).finding("prod", &Machines::Unknown), None);
    }
}
