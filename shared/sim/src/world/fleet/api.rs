//! The actions of Auto Scaling.

use super::super::World;
use super::super::error::{ApiError, ApiResult};
use super::super::machine::{Group, Hook, HookResult, State};
use super::{ShownGroup, ShownMachine};

/// The parameters of `TerminateInstanceInAutoScalingGroup`.
#[derive(Debug, Clone)]
pub(crate) struct Termination {
    pub(crate) instance: String,
    pub(crate) shrink: bool,
}

impl World {
    /// `DescribeAutoScalingGroups`: the groups with these names, or all groups, each with its machines in the order of their ids.
    pub(crate) fn groups(&mut self, names: &[String]) -> ApiResult<Vec<ShownGroup>> {
        self.enter("DescribeAutoScalingGroups")?;
        let groups = self.fleet.groups.keys();
        let groups: Vec<String> =
            groups.filter(|name| names.is_empty() || names.contains(name)).cloned().collect();
        Ok(groups.iter().filter_map(|name| self.answered(name)).collect())
    }

    /// `DescribeAutoScalingInstances` for one machine: the name of its group, and the machine.
    pub(crate) fn machine_in_group(&mut self, instance: &str) -> ApiResult<Option<(String, ShownMachine)>> {
        self.enter("DescribeAutoScalingInstances")?;
        let found = self.fleet.machines.get(instance);
        Ok(found.map(|machine| (machine.group.clone(), ShownMachine::of(machine))))
    }

    /// `SetDesiredCapacity`.
    pub(crate) fn set_desired_capacity(&mut self, name: &str, desired: u32) -> ApiResult<()> {
        self.enter("SetDesiredCapacity")?;
        let group = self.group_mut(name)?;
        if desired > group.max {
            return Err(ApiError::validation(format!(
                "New SetDesiredCapacity value {desired} is above max value {} for the AutoScalingGroup.",
                group.max
            )));
        }
        if desired < group.min {
            return Err(ApiError::validation(format!(
                "New SetDesiredCapacity value {desired} is below min value {} for the AutoScalingGroup.",
                group.min
            )));
        }
        let before = std::mem::replace(&mut group.desired, desired);
        if before != desired {
            self.record(format!("{name} wants {desired} machines instead of {before}"));
            self.reconcile_soon(name);
            self.remember_group(name);
        }
        Ok(())
    }

    /// `TerminateInstanceInAutoScalingGroup`.
    pub(crate) fn terminate_instance(&mut self, asked: &Termination) -> ApiResult<()> {
        self.enter("TerminateInstanceInAutoScalingGroup")?;
        self.terminates(asked)
    }

    /// Performs the termination for any caller, Slipway or somebody else.
    pub(super) fn terminates(&mut self, asked: &Termination) -> ApiResult<()> {
        let id = asked.instance.as_str();
        let found = self.fleet.machines.get(id);
        let found = found.map(|machine| (machine.group.clone(), machine.state, machine.weight));
        let Some((group, state, weight)) = found else {
            return Err(ApiError::validation(format!(
                "Instance Id not found - No managed instance found for instance ID: {id}"
            )));
        };
        let group = self.group_mut(&group)?;
        if asked.shrink {
            // AWS does not document by how much the capacity of a group with weights decreases; here it is the machine's units.
            if group.desired < group.min + weight {
                return Err(ApiError::validation(format!(
                    "Currently, desiredSize equals minSize ({}). Terminating instance without replacement will violate group's min size constraint. Either set shouldDecrementDesiredCapacity flag to false or lower group's min size.",
                    group.min
                )));
            }
            group.desired -= weight;
        }
        let name = group.name.clone();
        let how = if asked.shrink { ", and wants one less" } else { "" };
        self.record(format!("{name} is asked to terminate {id}{how}"));
        if let Some(machine) = self.fleet.machines.get_mut(id) {
            machine.asked_to_go = true;
        }
        match state {
            State::TerminatingRetained => self.proceed(id),
            State::Pending
            | State::PendingWait
            | State::PendingProceed
            | State::InService
            | State::TerminatingWait
            | State::TerminatingProceed => self.begin_termination(id),
        }
        self.reconcile_soon(&name);
        self.remember_group(&name);
        Ok(())
    }

    /// `CompleteLifecycleAction`.
    pub(crate) fn complete_lifecycle_action(
        &mut self,
        group: &str,
        hook: &str,
        instance: &str,
        result: HookResult,
    ) -> ApiResult<()> {
        self.enter("CompleteLifecycleAction")?;
        self.waiting(group, hook, instance)?;
        self.record(format!("{hook} of {instance} is ended by {result:?}"));
        self.settle_hook(instance, hook, result);
        self.remember_group(group);
        Ok(())
    }

    /// `RecordLifecycleActionHeartbeat`.
    pub(crate) fn record_heartbeat(&mut self, group: &str, hook: &str, instance: &str) -> ApiResult<()> {
        self.enter("RecordLifecycleActionHeartbeat")?;
        self.waiting(group, hook, instance)?;
        self.heartbeat(instance, hook);
        Ok(())
    }

    fn waiting(&mut self, group: &str, hook: &str, instance: &str) -> ApiResult<()> {
        let known = self.group_mut(group)?;
        let has = |one: &Option<Hook>| one.as_ref().is_some_and(|one| one.name == hook);
        if !has(&known.launch_hook) && !has(&known.terminate_hook) {
            return Err(ApiError::validation(format!("Lifecycle hook {hook} not found")));
        }
        let machine = self.fleet.machines.get(instance).filter(|machine| machine.group == group);
        let waits = machine.and_then(|machine| machine.waits.as_ref());
        if waits.is_some_and(|waits| waits.hook.name == hook) {
            return Ok(());
        }
        Err(ApiError::validation(format!("No active Lifecycle Action found with instance ID {instance}")))
    }

    fn group_mut(&mut self, name: &str) -> ApiResult<&mut Group> {
        let missing = || {
            ApiError::validation(format!(
                "AutoScalingGroup name not found - AutoScalingGroup '{name}' not found"
            ))
        };
        self.fleet.groups.get_mut(name).ok_or_else(missing)
    }
}
