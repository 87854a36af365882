//! What a rollout observes of machines: Auto Scaling's groups and their launch templates. Commands to machines are in
//! [`slipway_core::node::command`].

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use slipway_core::node::MachineArns;

/// The tag of stacks and groups with the name of their cluster.
pub(crate) const OWNER_TAG: &str = "slipway:cluster";

/// An Auto Scaling group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupView {
    /// The group's name.
    pub name: String,
    /// Its desired capacity.
    pub desired: u32,
    /// Its minimum.
    pub min: u32,
    /// Its maximum.
    pub max: u32,
    /// The launch template that it uses now.
    pub template: Option<TemplateVersion>,
    /// The machines in it, by id.
    pub machines: BTreeMap<String, MachineView>,
    /// Its tags: `slipway:cluster` names the owner.
    pub tags: BTreeMap<String, String>,
    /// The target groups in which it registers its machines, by their ARNs.
    #[serde(default)]
    pub target_groups: BTreeSet<String>,
    /// Whether it launches no machine: somebody, or AWS itself, has suspended its process `Launch` (EC2 Auto Scaling user guide, "Suspend and
    /// resume processes").
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub launch_suspended: bool,
    /// Of which region and account its machines are, which the keys of their reports name.
    pub machine_arns: MachineArns,
}

impl GroupView {
    /// Adds what target groups say about its machines: `said` has each target group of [`GroupView::target_groups`] by its ARN, and `None`
    /// for one that does not exist.
    ///
    /// A target group in which no target is in use sends requests to no machine, so it does not count.
    #[must_use]
    pub fn with_target_health(mut self, health: &BTreeMap<String, Option<Targets>>) -> Self {
        let is_unused = |targets: &Targets| {
            !targets.is_empty() && targets.values().all(|state| *state == TargetState::NotInUse)
        };
        let sent: BTreeMap<&String, Option<&Targets>> = self
            .target_groups
            .iter()
            .map(|arn| (arn, health.get(arn).and_then(Option::as_ref)))
            .filter(|(_, targets)| !targets.is_some_and(is_unused))
            .collect();
        for (id, machine) in &mut self.machines {
            let reasons: Vec<String> = sent
                .iter()
                .filter_map(|(arn, targets)| {
                    let state = match targets {
                        None => "there is no such target group".to_owned(),
                        Some(targets) => match targets.get(id) {
                            Some(TargetState::Healthy) => return None,
                            Some(TargetState::NotInUse) => "its zone is not enabled".to_owned(),
                            Some(TargetState::NotHealthy(state)) => state.clone(),
                            None => "not registered".to_owned(),
                        },
                    };
                    Some(format!("{state} in {}", target_group_name(arn)))
                })
                .collect();
            machine.target = if sent.is_empty() {
                TargetHealth::NoTargetGroup
            } else if reasons.is_empty() {
                TargetHealth::Healthy
            } else {
                TargetHealth::NotHealthy(reasons.join(", "))
            };
        }
        self
    }
}

/// `prod-api` of `arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/prod-api/0123456789abcdef`.
fn target_group_name(arn: &str) -> &str {
    arn.split('/').nth(1).unwrap_or(arn)
}

/// The targets of a target group, by machine.
pub type Targets = BTreeMap<String, TargetState>;

/// A target's health, as `DescribeTargetHealth` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetState {
    /// `healthy`: requests are sent to it.
    Healthy,
    /// `unused`, for `Target.NotInUse`: no load balancer uses the target group, or none that uses it has the target's zone enabled.
    NotInUse,
    /// Any other state, and the reason code that AWS gives for it: `initial (Elb.InitialHealthChecking)`.
    NotHealthy(String),
}

/// Whether the load balancers of a machine's group send requests to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TargetHealth {
    /// It was not queried, because decisions need it only for controllers.
    #[default]
    NotAsked,
    /// Its group registers it in no target group that is in use.
    NoTargetGroup,
    /// It is healthy in each target group of its group.
    Healthy,
    /// It is not healthy in at least one: the state and the reason code in each of these.
    NotHealthy(String),
}

/// A launch template at a version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateVersion {
    /// `lt-…`.
    pub id: String,
    /// The number of the version.
    pub version: String,
}

/// A machine in a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineView {
    /// `eu-west-1a`.
    pub zone: String,
    /// Its lifecycle state.
    pub lifecycle: Lifecycle,
    /// Auto Scaling's health status (`HealthStatus`), which is EC2's.
    pub healthy: bool,
    /// The launch template that it was launched from; `None` for a machine that was attached.
    pub template: Option<TemplateVersion>,
    /// Whether load balancers send requests to it.
    #[serde(default)]
    pub target: TargetHealth,
    /// The number of capacity units that it counts for: one, unless the group weighs its instance types
    /// (docs.aws.amazon.com/autoscaling/ec2/userguide/asg-instance-weighting.html).
    pub weight: u32,
}

impl MachineView {
    /// Whether Auto Scaling terminates it, and it has to be drained.
    #[must_use]
    pub fn must_be_drained(&self) -> bool {
        match self.lifecycle {
            Lifecycle::TerminatingWait | Lifecycle::Retained => true,
            Lifecycle::Pending | Lifecycle::InService | Lifecycle::Terminating | Lifecycle::Elsewhere => {
                false
            }
        }
    }
}

/// `LifecycleState` of the Auto Scaling API, with the distinctions that a rollout needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Lifecycle {
    /// `Pending`, `Pending:Wait`, `Pending:Proceed`: its launch hook waits for the agent.
    Pending,
    /// `InService`: the agent has reported that it is healthy.
    InService,
    /// `Terminating:Wait`: its terminate hook waits.
    TerminatingWait,
    /// `Terminating`, `Terminating:Proceed`, `Terminated`: it is being terminated.
    Terminating,
    /// `Terminating:Retained`: its terminate hook was abandoned, so that its group retains it until somebody terminates it once more.
    Retained,
    /// `Standby`, `Detaching`, or a warm pool's state: another user's doing.
    Elsewhere,
}

/// The machines of a group in service.
pub(crate) fn serving(group: &GroupView) -> impl Iterator<Item = (&String, &MachineView)> {
    group.machines.iter().filter(|(_, machine)| machine.lifecycle == Lifecycle::InService)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const API: &str = "arn:aws:elasticloadbalancing:eu-west-1:1:targetgroup/api/01";
    const INNER: &str = "arn:aws:elasticloadbalancing:eu-west-1:1:targetgroup/inner/02";

    /// The answer of a target group, if it exists.
    type Said<'s> = (&'s str, Option<&'s [(&'s str, TargetState)]>);

    fn seen(target_groups: &[&str], reported: &[Said<'_>]) -> Vec<TargetHealth> {
        let machine = MachineView {
            zone: "a".to_owned(),
            lifecycle: Lifecycle::InService,
            healthy: true,
            template: None,
            target: TargetHealth::NotAsked,
            weight: 1,
        };
        let group = GroupView {
            name: "c-control-plane".to_owned(),
            desired: 2,
            min: 2,
            max: 3,
            template: None,
            machines: ["i-1", "i-2"].map(|id| (id.to_owned(), machine.clone())).into(),
            tags: BTreeMap::new(),
            target_groups: target_groups.iter().map(|arn| (*arn).to_owned()).collect(),
            launch_suspended: false,
            machine_arns: MachineArns::new("eu-west-1", "123456789012"),
        };
        let targets = |targets: &[(&str, TargetState)]| {
            targets.iter().map(|(id, state)| ((*id).to_owned(), state.clone())).collect()
        };
        let reported =
            reported.iter().map(|(arn, reported)| ((*arn).to_owned(), reported.map(targets))).collect();
        group.with_target_health(&reported).machines.into_values().map(|machine| machine.target).collect()
    }

    #[test]
    fn p5_a_machine_is_a_healthy_target_only_if_it_is_one_in_every_target_group() {
        use TargetHealth::{Healthy, NoTargetGroup, NotHealthy};
        let not = |why: &str| NotHealthy(why.to_owned());
        let well = || TargetState::Healthy;
        let initial = || TargetState::NotHealthy("initial (Elb.InitialHealthChecking)".to_owned());
        assert_eq!(seen(&[], &[]), [NoTargetGroup, NoTargetGroup]);
        assert_eq!(seen(&[API], &[(API, Some(&[("i-1", well()), ("i-2", well())]))]), [Healthy, Healthy]);
        let api: &[_] = &[("i-1", well()), ("i-2", initial())];
        let inner: &[_] = &[("i-1", well())];
        assert_eq!(
            seen(&[API, INNER], &[(API, Some(api)), (INNER, Some(inner))]),
            [Healthy, not("initial (Elb.InitialHealthChecking) in api, not registered in inner")]
        );
        // A target group that does not exist, or was not queried, does not count as healthy.
        let gone = not("there is no such target group in api");
        assert_eq!(seen(&[API], &[(API, None)]), [gone.clone(), gone.clone()]);
        assert_eq!(seen(&[API], &[]), [gone.clone(), gone]);
    }

    #[test]
    fn p5_a_target_group_that_no_load_balancer_uses_does_not_count_and_a_zone_that_is_not_enabled_does() {
        let unused = || TargetState::NotInUse;
        let all: &[_] = &[("i-1", unused()), ("i-2", unused())];
        assert_eq!(
            seen(&[API], &[(API, Some(all))]),
            [TargetHealth::NoTargetGroup, TargetHealth::NoTargetGroup]
        );
        let one: &[_] = &[("i-1", TargetState::Healthy), ("i-2", unused())];
        let not = TargetHealth::NotHealthy("its zone is not enabled in api".to_owned());
        assert_eq!(seen(&[API], &[(API, Some(one))]), [TargetHealth::Healthy, not.clone()]);
        // No target is registered yet.
        let none = TargetHealth::NotHealthy("not registered in api".to_owned());
        assert_eq!(seen(&[API], &[(API, Some(&[]))]), [none.clone(), none]);
    }
}
