//! Auto Scaling in this process, with the answers in the form that `slipway-aws` makes of the API's.

use slipway_core::node::{MachineArns, TERMINATE_HOOK};
use slipway_flows::ports::Groups;
use slipway_ports::PortResult;
use slipway_rollout::fleet::{GroupView, Lifecycle, MachineView, TargetHealth, TargetState, Targets};

use super::{SharedWorld, lock, port_error};
use crate::world::{ApiError, HookResult, Process, ShownGroup, ShownMachine, ShownTarget, Termination};

/// Auto Scaling in this process.
#[derive(Debug, Clone)]
pub struct SimulatedGroups {
    world: SharedWorld,
}

impl SimulatedGroups {
    /// A handle of `world`.
    #[must_use]
    pub fn new(world: SharedWorld) -> Self {
        Self { world }
    }
}

fn waits_for_nothing(error: &ApiError) -> bool {
    error.code == "ValidationError" && error.message.contains("No active Lifecycle Action")
}

impl Groups for SimulatedGroups {
    async fn group(&self, name: &str) -> PortResult<Option<GroupView>> {
        let mut world = lock(&self.world);
        let arns = world.machine_arns();
        match world.groups(&[name.to_owned()]) {
            Ok(found) => Ok(found.first().map(|shown| view(shown, arns))),
            Err(error) => Err(port_error("autoscaling:DescribeAutoScalingGroups", name, &error)),
        }
    }

    async fn group_of(&self, instance: &str) -> PortResult<Option<String>> {
        match lock(&self.world).machine_in_group(instance) {
            Ok(found) => Ok(found.map(|(group, _)| group)),
            Err(error) => Err(port_error("autoscaling:DescribeAutoScalingInstances", instance, &error)),
        }
    }

    async fn targets(&self, target_group: &str) -> PortResult<Option<Targets>> {
        match lock(&self.world).target_health(target_group) {
            Ok(found) => Ok(Some(found.into_iter().map(target).collect())),
            Err(error) if error.code == "TargetGroupNotFound" => Ok(None),
            Err(error) => Err(port_error("elasticloadbalancing:DescribeTargetHealth", target_group, &error)),
        }
    }

    async fn raise_desired(&self, group: &str, desired: u32) -> PortResult<()> {
        if self.group(group).await?.is_some_and(|seen| seen.desired >= desired) {
            return Ok(());
        }
        let set = lock(&self.world).set_desired_capacity(group, desired);
        set.map_err(|error| port_error("autoscaling:SetDesiredCapacity", group, &error))
    }

    async fn terminate(&self, group: &str, instance: &str, then_desired: Option<u32>) -> PortResult<()> {
        let Some(seen) = self.group(group).await? else { return Ok(()) };
        match seen.machines.get(instance).map(|machine| machine.lifecycle) {
            None | Some(Lifecycle::TerminatingWait | Lifecycle::Terminating) => return Ok(()),
            Some(Lifecycle::Pending | Lifecycle::InService | Lifecycle::Retained | Lifecycle::Elsewhere) => {}
        }
        let shrink = then_desired.is_some_and(|size| seen.desired > size);
        let asked = Termination { instance: instance.to_owned(), shrink };
        match lock(&self.world).terminate_instance(&asked) {
            Ok(()) => Ok(()),
            Err(error) if error.code == "ValidationError" && error.message.contains("not found") => Ok(()),
            Err(error) => {
                Err(port_error("autoscaling:TerminateInstanceInAutoScalingGroup", instance, &error))
            }
        }
    }

    async fn complete_termination(&self, group: &str, instance: &str) -> PortResult<()> {
        let mut world = lock(&self.world);
        match world.complete_lifecycle_action(group, TERMINATE_HOOK, instance, HookResult::Continue) {
            Ok(()) => Ok(()),
            Err(error) if waits_for_nothing(&error) => Ok(()),
            Err(error) => Err(port_error("autoscaling:CompleteLifecycleAction", instance, &error)),
        }
    }

    async fn prolong_termination(&self, group: &str, instance: &str) -> PortResult<()> {
        match lock(&self.world).record_heartbeat(group, TERMINATE_HOOK, instance) {
            Ok(()) => Ok(()),
            Err(error) if waits_for_nothing(&error) => Ok(()),
            Err(error) => Err(port_error("autoscaling:RecordLifecycleActionHeartbeat", instance, &error)),
        }
    }
}

fn view(shown: &ShownGroup, machine_arns: MachineArns) -> GroupView {
    let group = &shown.group;
    GroupView {
        name: group.name.clone(),
        desired: group.desired,
        min: group.min,
        max: group.max,
        template: group.template.clone(),
        machines: shown.machines.iter().map(|machine| (machine.id.clone(), seen(machine))).collect(),
        tags: group.tags.clone(),
        target_groups: group.target_groups.clone(),
        launch_suspended: group.suspended.contains(&Process::Launch),
        machine_arns,
    }
}

fn target(shown: ShownTarget) -> (String, TargetState) {
    let state = match (shown.state, shown.reason) {
        ("healthy", _) => TargetState::Healthy,
        (state, Some(reason)) => TargetState::NotHealthy(format!("{state} ({reason})")),
        (state, None) => TargetState::NotHealthy(state.to_owned()),
    };
    (shown.machine, state)
}

fn seen(machine: &ShownMachine) -> MachineView {
    use crate::world::State;
    MachineView {
        zone: machine.zone.clone(),
        lifecycle: match machine.state {
            State::Pending | State::PendingWait | State::PendingProceed => Lifecycle::Pending,
            State::InService => Lifecycle::InService,
            State::TerminatingWait => Lifecycle::TerminatingWait,
            State::TerminatingProceed => Lifecycle::Terminating,
            State::TerminatingRetained => Lifecycle::Retained,
        },
        healthy: machine.healthy,
        template: machine.template.clone(),
        target: TargetHealth::NotAsked,
        weight: machine.weight,
    }
}
