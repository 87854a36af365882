//! Machines as targets of load balancers. Auto Scaling registers a machine in the target groups of its group when the machine is in
//! service. A target is healthy once it has passed its health checks.
//!
//! "It can take a few minutes for the registration process to complete and health checks to start" (Elastic Load Balancing, Network
//! Load Balancers, "Health checks for Network Load Balancer target groups"). A target is `initial` until `HealthyThresholdCount`
//! checks in a row have passed, and `unhealthy` after `UnhealthyThresholdCount` failed checks in a row. There is one check every
//! `HealthCheckIntervalSeconds` (botocore, `CreateTargetGroup`, which has the defaults, and `TargetHealth`, which has the states
//! and their reasons). If no target is healthy, a load balancer sends requests to all of them; nothing here relies on that.
//!
//! Answers may be some seconds old, like those of Auto Scaling ("ELBv2's operations usually operate on an eventual consistency
//! model": an AWS engineer in aws/aws-sdk-js, issue 1593). In this model, a removed target is missing at once.
//!
//! The moment of a check within its interval is unknown. So passing takes the longest possible time, and failing the shortest.
//!
//! A check is no event. A target's answer changes when something happens to its machine, and its state follows from how long it has
//! had that answer.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::super::error::{ApiError, ApiResult};
use super::super::machine::{Health, Machine, Power, State, Target};
use super::super::{World, cluster, physical};

const TARGET_GROUP: &str = "AWS::ElasticLoadBalancingV2::TargetGroup";

/// The time from a machine's `InService` to its first health check.
const REGISTERS_S: (f64, f64) = (5.0, 60.0);
/// The default interval of a target group (botocore, `CreateTargetGroup`).
const INTERVAL_S: u32 = 30;
const PASSES: u32 = 5;
const FAILURES: u32 = 2;

impl Target {
    fn health(&self, now: Timestamp) -> Health {
        let checked_since = self.since.max(self.checked_from);
        let (long, becomes) = if self.answers {
            (self.passes_for, Health::Healthy)
        } else {
            (self.fails_for, Health::Unhealthy)
        };
        if now.duration_since(checked_since) >= long { becomes } else { self.was }
    }

    fn turn(&mut self, answers: bool, now: Timestamp) {
        if self.answers != answers {
            (self.was, self.answers, self.since) = (self.health(now), answers, now);
        }
    }
}

/// A target in an answer of `DescribeTargetHealth`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShownTarget {
    pub(crate) machine: String,
    pub(crate) port: u32,
    pub(crate) state: &'static str,
    pub(crate) reason: Option<&'static str>,
}

impl World {
    /// `DescribeTargetHealth`: the targets of the target group with that ARN, in the order of their machines.
    pub(crate) fn target_health(&mut self, arn: &str) -> ApiResult<Vec<ShownTarget>> {
        self.enter("DescribeTargetHealth")?;
        self.note_targets();
        let attached = self.fleet.groups.values().any(|group| group.target_groups.contains(arn));
        // A target group that a spec names existed before.
        if !attached && self.target_group(arn).is_none() {
            return Err(ApiError::target_group_not_found());
        }
        let port = self.checks(arn).port;
        let at = self.stale_answer_time(self.fleet.faults.stale_targets).unwrap_or(self.now);
        let machines = self.fleet.machines.values();
        let targets = machines.filter_map(|machine| {
            let target = machine.targets.iter().find(|target| target.group == arn)?;
            if at < target.registered_at {
                return None;
            }
            let served = machine.left_at.is_some_and(|left| at < left);
            let state = if served { State::InService } else { machine.state };
            let (state, reason) = match (state, target.health(at)) {
                (State::InService, Health::Healthy) => ("healthy", None),
                (State::InService, Health::Initial) if at < target.checked_from => {
                    ("initial", Some("Elb.RegistrationInProgress"))
                }
                (State::InService, Health::Initial) => ("initial", Some("Elb.InitialHealthChecking")),
                (State::InService, Health::Unhealthy) => ("unhealthy", Some("Target.FailedHealthChecks")),
                (
                    State::Pending
                    | State::PendingWait
                    | State::PendingProceed
                    | State::TerminatingWait
                    | State::TerminatingProceed
                    | State::TerminatingRetained,
                    Health::Initial | Health::Healthy | Health::Unhealthy,
                ) => ("draining", Some("Target.DeregistrationInProgress")),
            };
            Some(ShownTarget { machine: machine.id.clone(), port, state, reason })
        });
        Ok(targets.collect())
    }

    /// A group registers a machine that is in service.
    pub(super) fn register(&mut self, id: &str) {
        let Some(machine) = self.fleet.machines.get(id) else { return };
        let Some(group) = self.fleet.groups.get(&machine.group) else { return };
        let known = machine.targets.iter().map(|target| &target.group).collect::<BTreeSet<_>>();
        let new: Vec<String> =
            group.target_groups.iter().filter(|arn| !known.contains(arn)).cloned().collect();
        let gone: Vec<String> =
            known.into_iter().filter(|arn| !group.target_groups.contains(*arn)).cloned().collect();
        let answers = self.answers(machine);
        let mut targets = Vec::new();
        for arn in new {
            let checks = self.checks(&arn);
            let seconds = self.draw_s("registers a target", REGISTERS_S.0, REGISTERS_S.1);
            let seconds = SignedDuration::from_secs_f64(seconds * self.config.pace);
            let duration_of = |count: u32| SignedDuration::from_secs(i64::from(checks.interval_s * count));
            targets.push(Target {
                group: arn,
                registered_at: self.now,
                checked_from: self.now + seconds,
                passes_for: duration_of(checks.passes),
                fails_for: duration_of(checks.failures.saturating_sub(1)),
                answers,
                since: self.now,
                was: Health::Initial,
            });
        }
        if let Some(machine) = self.fleet.machines.get_mut(id) {
            machine.targets.retain(|target| !gone.contains(&target.group));
            machine.targets.extend(targets);
        }
    }

    /// Registers the machines of a group in its target groups, and in no others.
    pub(super) fn registers_all(&mut self, group: &str) {
        for id in self.machines_of(group) {
            if self.fleet.machines[&id].state == State::InService {
                self.register(&id);
            }
        }
    }

    /// Updates the answers of all targets after something may have happened to machines.
    pub(in crate::world) fn note_targets(&mut self) {
        let machines = self.fleet.machines.values().filter(|machine| !machine.targets.is_empty());
        let turned: Vec<(String, bool)> = machines
            .map(|machine| (machine, self.answers(machine)))
            .filter(|(machine, answers)| machine.targets.iter().any(|target| target.answers != *answers))
            .map(|(machine, answers)| (machine.id.clone(), answers))
            .collect();
        let now = self.now;
        for (id, answers) in turned {
            let machine = self.fleet.machines.get_mut(&id);
            machine
                .into_iter()
                .flat_map(|machine| &mut machine.targets)
                .for_each(|one| one.turn(answers, now));
        }
    }

    /// Whether load balancers send requests to a machine: it is healthy in each target group of its group.
    pub(in crate::world) fn is_healthy_target(&self, machine: &Machine) -> bool {
        machine.state == State::InService
            && machine.targets.iter().all(|target| target.health(self.now) == Health::Healthy)
    }

    /// Whether a machine is no target, or has failed its health checks.
    pub(in crate::world) fn has_failed_checks(&self, machine: &Machine) -> bool {
        machine.state != State::InService
            || machine.targets.iter().any(|target| target.health(self.now) == Health::Unhealthy)
    }

    /// Whether a machine answers health checks.
    fn answers(&self, machine: &Machine) -> bool {
        if self.fleet.others_run_machines {
            return machine.answers;
        }
        match machine.role() {
            "controller" => self.is_api_server(machine),
            _ => machine.power == Power::Up && machine.ready && !machine.silent,
        }
    }

    fn target_group(&self, arn: &str) -> Option<&Value> {
        let identity = physical::identity(TARGET_GROUP, arn, &Value::Null);
        let found = self.things.get(&(TARGET_GROUP.to_owned(), identity));
        found.map(|thing| &thing.properties)
    }

    fn checks(&self, arn: &str) -> Checks {
        let properties = self.target_group(arn);
        let number = |key: &str| {
            let found = properties?.get(key)?;
            u32::try_from(found.as_u64().or_else(|| found.as_str()?.parse().ok())?).ok()
        };
        Checks {
            interval_s: number("HealthCheckIntervalSeconds").unwrap_or(INTERVAL_S),
            passes: number("HealthyThresholdCount").unwrap_or(PASSES),
            failures: number("UnhealthyThresholdCount").unwrap_or(FAILURES),
            port: number("Port").unwrap_or(cluster::API_PORT),
        }
    }
}

/// The health check settings of a target group.
struct Checks {
    interval_s: u32,
    passes: u32,
    failures: u32,
    port: u32,
}
