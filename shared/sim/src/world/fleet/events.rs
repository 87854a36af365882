//! The events that Auto Scaling sends to the bus.

use serde_json::{Value, json};

use super::super::World;
use super::super::machine::Machine;

impl World {
    /// A machine waits in a hook.
    pub(super) fn lifecycle_action(&mut self, machine: &Machine, launches: bool) {
        let Some(waits) = &machine.waits else { return };
        let (kind, transition) = if launches {
            ("EC2 Instance-launch Lifecycle Action", "autoscaling:EC2_INSTANCE_LAUNCHING")
        } else {
            ("EC2 Instance-terminate Lifecycle Action", "autoscaling:EC2_INSTANCE_TERMINATING")
        };
        let detail = json!({
            "LifecycleActionToken": waits.token,
            "AutoScalingGroupName": machine.group,
            "LifecycleHookName": waits.hook.name,
            "EC2InstanceId": machine.id,
            "LifecycleTransition": transition,
        });
        self.group_event(kind, machine, detail);
    }

    /// A machine is in service.
    pub(super) fn launched(&mut self, machine: &Machine) {
        self.group_event("EC2 Instance Launch Successful", machine, self.outcome(machine));
    }

    /// A machine is gone.
    pub(super) fn terminated(&mut self, machine: &Machine) {
        self.group_event("EC2 Instance Terminate Successful", machine, self.outcome(machine));
    }

    fn outcome(&self, machine: &Machine) -> Value {
        json!({
            "StatusCode": "InProgress",
            "AutoScalingGroupName": machine.group,
            "EC2InstanceId": machine.id,
            "Details": {"Availability Zone": machine.zone},
        })
    }

    fn group_event(&mut self, kind: &str, machine: &Machine, detail: Value) {
        let (region, account) = (self.config.region.clone(), self.config.account.clone());
        let resource = format!("arn:aws:ec2:{region}:{account}:instance/{}", machine.id);
        self.send_event("aws.autoscaling", kind, &resource, detail);
    }
}
