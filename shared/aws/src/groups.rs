//! Auto Scaling: groups, the machines in them, and how load balancers take these.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_autoscaling::config::retry::RetryConfig;
use aws_sdk_autoscaling::types::{AutoScalingGroup, Instance, LaunchTemplateSpecification};
use aws_sdk_elasticloadbalancingv2::types::{
    TargetHealth, TargetHealthDescription, TargetHealthReasonEnum, TargetHealthStateEnum,
};
use slipway_core::node::{MachineArns, TERMINATE_HOOK};
use slipway_flows::ports::Groups;
use slipway_ports::{ErrorKind, PortError, PortResult};
use slipway_rollout::fleet::{
    self, GroupView, Lifecycle, MachineView, TargetState, Targets, TemplateVersion,
};

use crate::error::{code, port_error, words};

const DESCRIBE: &str = "autoscaling:DescribeAutoScalingGroups";
const HEALTH: &str = "elasticloadbalancing:DescribeTargetHealth";

/// Auto Scaling, and Elastic Load Balancing as far as it says how a group's machines are taken.
#[derive(Debug, Clone)]
pub struct AutoScaling {
    client: aws_sdk_autoscaling::Client,
    balancing: aws_sdk_elasticloadbalancingv2::Client,
}

impl AutoScaling {
    pub(crate) fn new(
        client: aws_sdk_autoscaling::Client,
        balancing: aws_sdk_elasticloadbalancingv2::Client,
    ) -> Self {
        Self { client, balancing }
    }
}

impl Groups for AutoScaling {
    async fn group(&self, name: &str) -> PortResult<Option<GroupView>> {
        // The machines of a group come with it, all of them: only groups have pages.
        match self.client.describe_auto_scaling_groups().auto_scaling_group_names(name).send().await {
            Ok(found) => found
                .auto_scaling_groups
                .unwrap_or_default()
                .into_iter()
                .find(|group| group.auto_scaling_group_name() == Some(name))
                .map(|group| view(name, &group))
                .transpose(),
            Err(error) => Err(port_error(DESCRIBE, name, &error)),
        }
    }

    async fn group_of(&self, instance: &str) -> PortResult<Option<String>> {
        // A machine that is in no group is not in the answer, which is no error.
        match self.client.describe_auto_scaling_instances().instance_ids(instance).send().await {
            Ok(found) => {
                let found = found.auto_scaling_instances.unwrap_or_default();
                let mut of_it = found.into_iter().filter(|one| one.instance_id() == Some(instance));
                Ok(of_it.find_map(|one| one.auto_scaling_group_name))
            }
            Err(error) => Err(port_error("autoscaling:DescribeAutoScalingInstances", instance, &error)),
        }
    }

    async fn targets(&self, target_group: &str) -> PortResult<Option<Targets>> {
        // All targets come at once: the action knows no pages.
        match self.balancing.describe_target_health().target_group_arn(target_group).send().await {
            Ok(found) => targets(target_group, found.target_health_descriptions()).map(Some),
            Err(error) if code(&error) == "TargetGroupNotFound" => Ok(None),
            Err(error) => Err(port_error(HEALTH, target_group, &error)),
        }
    }

    async fn raise_desired(&self, group: &str, desired: u32) -> PortResult<()> {
        const OPERATION: &str = "autoscaling:SetDesiredCapacity";
        let refused = |message: &str| PortError {
            kind: ErrorKind::Invalid,
            operation: OPERATION,
            subject: group.to_owned(),
            message: message.to_owned(),
        };
        // Somebody else, a cluster autoscaler for example, may have made it larger meanwhile: to set a size would take machines away. Auto
        // Scaling has no call that only raises it, so that who raises it further between this look and the call is still undone: Auto Scaling
        // then takes down machines through their terminate hooks, which keep each until its pods have left (P6).
        if self.group(group).await?.is_some_and(|seen| seen.desired >= desired) {
            return Ok(());
        }
        let desired = i32::try_from(desired).map_err(|_| refused("no group has so many machines"))?;
        // A rollout's own pace is the better cooldown.
        let call = self.client.set_desired_capacity().honor_cooldown(false);
        match call.auto_scaling_group_name(group).desired_capacity(desired).send().await {
            Ok(_) => Ok(()),
            Err(error) => Err(port_error(OPERATION, group, &error)),
        }
    }

    async fn terminate(&self, group: &str, instance: &str, then_desired: Option<u32>) -> PortResult<()> {
        const OPERATION: &str = "autoscaling:TerminateInstanceInAutoScalingGroup";
        // Auto Scaling takes the call for a machine that waits in its terminate hook, too, and would shrink the group once more.
        let Some(seen) = self.group(group).await?.filter(|seen| !leaves(seen, instance)) else {
            return Ok(());
        };
        let shrink = then_desired.is_some_and(|size| seen.desired > size);
        let call = self.client.terminate_instance_in_auto_scaling_group().instance_id(instance);
        // The SDK tries a call again that timed out, and the group would shrink twice: whoever tries again looks first.
        let once = aws_sdk_autoscaling::config::Builder::new().retry_config(RetryConfig::disabled());
        match call.should_decrement_desired_capacity(shrink).customize().config_override(once).send().await {
            Ok(_) => Ok(()),
            // It went between the look and the call: another invocation, or the SDK's own second try, had the same to do. Where the
            // group shrank with it, what is said is that it is as small as it may be.
            Err(error) if code(&error) == "ValidationError" && self.leaves(group, instance).await? => Ok(()),
            Err(error) => Err(port_error(OPERATION, format!("{instance} of {group}"), &error)),
        }
    }

    async fn complete_termination(&self, group: &str, instance: &str) -> PortResult<()> {
        let call = self.client.complete_lifecycle_action().lifecycle_hook_name(TERMINATE_HOOK);
        let call = call.auto_scaling_group_name(group).instance_id(instance);
        match call.lifecycle_action_result("CONTINUE").send().await {
            Ok(_) => Ok(()),
            Err(error) if waits_for_nothing(code(&error), words(&error)) => Ok(()),
            Err(error) => {
                let subject = format!("{TERMINATE_HOOK} of {group} for {instance}");
                Err(port_error("autoscaling:CompleteLifecycleAction", subject, &error))
            }
        }
    }

    async fn prolong_termination(&self, group: &str, instance: &str) -> PortResult<()> {
        let call = self.client.record_lifecycle_action_heartbeat().lifecycle_hook_name(TERMINATE_HOOK);
        match call.auto_scaling_group_name(group).instance_id(instance).send().await {
            Ok(_) => Ok(()),
            Err(error) if waits_for_nothing(code(&error), words(&error)) => Ok(()),
            Err(error) => {
                let subject = format!("{TERMINATE_HOOK} of {group} for {instance}");
                Err(port_error("autoscaling:RecordLifecycleActionHeartbeat", subject, &error))
            }
        }
    }
}

/// Whether a machine is on its way out of its group, or gone.
fn leaves(seen: &GroupView, instance: &str) -> bool {
    match seen.machines.get(instance).map(|machine| machine.lifecycle) {
        None | Some(Lifecycle::TerminatingWait | Lifecycle::Terminating) => true,
        Some(Lifecycle::Pending | Lifecycle::InService | Lifecycle::Retained | Lifecycle::Elsewhere) => false,
    }
}

impl AutoScaling {
    /// Whether a machine is on its way out of its group, or gone.
    async fn leaves(&self, group: &str, instance: &str) -> PortResult<bool> {
        Ok(self.group(group).await?.is_none_or(|seen| leaves(&seen, instance)))
    }
}

/// The hook was settled, or its time was over, or the machine is gone.
fn waits_for_nothing(code: &str, words: &str) -> bool {
    code == "ValidationError" && words.contains("No active Lifecycle Action")
}

/// What the API says of a group, or why it cannot be told.
fn view(name: &str, group: &AutoScalingGroup) -> PortResult<GroupView> {
    let unreadable = |message: String| PortError {
        kind: ErrorKind::Invalid,
        operation: DESCRIBE,
        subject: name.to_owned(),
        message,
    };
    let count = |what: &str, value: Option<i32>| {
        value
            .and_then(|value| u32::try_from(value).ok())
            .ok_or_else(|| unreadable(format!("an answer without {what}")))
    };
    let mixed = group.mixed_instances_policy().and_then(|policy| policy.launch_template());
    let template =
        group.launch_template().or_else(|| mixed.and_then(|mixed| mixed.launch_template_specification()));
    let mut machines = BTreeMap::new();
    for instance in group.instances() {
        let (Some(id), Some(machine)) = (instance.instance_id(), machine(instance)) else {
            return Err(unreadable("an answer with a machine that has no id, zone or state".to_owned()));
        };
        machines.insert(id.to_owned(), machine);
    }
    Ok(GroupView {
        name: name.to_owned(),
        desired: count("DesiredCapacity", group.desired_capacity())?,
        min: count("MinSize", group.min_size())?,
        max: count("MaxSize", group.max_size())?,
        template: template.and_then(version),
        machines,
        tags: group
            .tags()
            .iter()
            .filter_map(|tag| Some((tag.key()?.to_owned(), tag.value()?.to_owned())))
            .collect(),
        target_groups: target_groups(group),
        launch_suspended: group.suspended_processes().iter().any(|one| one.process_name() == Some("Launch")),
        machine_arns: group
            .auto_scaling_group_arn()
            .and_then(MachineArns::from_resource_arn)
            .ok_or_else(|| unreadable("an answer without the group's ARN".to_owned()))?,
    })
}

/// The target groups in which a group registers its machines, whichever of the two ways they were attached by. Classic load balancers and
/// VPC Lattice have none of ours.
fn target_groups(group: &AutoScalingGroup) -> BTreeSet<String> {
    let sources = group.traffic_sources().iter();
    let sources =
        sources.filter(|source| source.r#type() == Some("elbv2")).filter_map(|source| source.identifier());
    group.target_group_arns().iter().map(String::as_str).chain(sources).map(str::to_owned).collect()
}

/// What is said of the targets of a target group, or why it cannot be told. A machine that is registered by more than one port is as its
/// worst target is.
fn targets(target_group: &str, found: &[TargetHealthDescription]) -> PortResult<Targets> {
    let mut targets = Targets::new();
    for one in found {
        let id = one.target().and_then(|target| target.id());
        let (Some(id), Some(state)) = (id, one.target_health().and_then(target_state)) else {
            return Err(PortError {
                kind: ErrorKind::Invalid,
                operation: HEALTH,
                subject: target_group.to_owned(),
                message: "an answer with a target that has no id or state".to_owned(),
            });
        };
        let known = targets.entry(id.to_owned()).or_insert_with(|| state.clone());
        if *known == TargetState::Healthy {
            *known = state;
        }
    }
    Ok(targets)
}

fn target_state(health: &TargetHealth) -> Option<TargetState> {
    let (state, reason) = (health.state()?, health.reason());
    if *state == TargetHealthStateEnum::Healthy {
        return Some(TargetState::Healthy);
    }
    if *state == TargetHealthStateEnum::Unused && reason == Some(&TargetHealthReasonEnum::NotInUse) {
        return Some(TargetState::NotInUse);
    }
    let reason = reason.map(|reason| format!(" ({})", reason.as_str())).unwrap_or_default();
    Some(TargetState::NotHealthy(format!("{}{reason}", state.as_str())))
}

fn machine(instance: &Instance) -> Option<MachineView> {
    Some(MachineView {
        zone: instance.availability_zone()?.to_owned(),
        lifecycle: lifecycle(instance.lifecycle_state()?.as_str()),
        healthy: instance.health_status().is_some_and(|health| health.eq_ignore_ascii_case("healthy")),
        template: instance.launch_template().and_then(version),
        target: fleet::TargetHealth::NotAsked,
        // Said of groups with weights alone.
        weight: instance.weighted_capacity().and_then(|weight| weight.parse().ok()).unwrap_or(1),
    })
}

fn version(specification: &LaunchTemplateSpecification) -> Option<TemplateVersion> {
    let id = specification.launch_template_id()?.to_owned();
    // No version is the template's default one, by the API's own rule.
    Some(TemplateVersion { id, version: specification.version().unwrap_or("$Default").to_owned() })
}

/// A state that this release does not know is nothing that a rollout brought about.
fn lifecycle(state: &str) -> Lifecycle {
    match state {
        "Pending" | "Pending:Wait" | "Pending:Proceed" => Lifecycle::Pending,
        "InService" => Lifecycle::InService,
        "Terminating:Wait" => Lifecycle::TerminatingWait,
        "Terminating" | "Terminating:Proceed" | "Terminated" => Lifecycle::Terminating,
        "Terminating:Retained" => Lifecycle::Retained,
        _ => Lifecycle::Elsewhere,
    }
}

#[cfg(test)]
mod tests;
