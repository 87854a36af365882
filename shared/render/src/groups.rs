//! Auto Scaling groups: what those of etcd members, controllers and pools have in common.
//!
//! No group has an `UpdatePolicy`. CloudFormation records the new launch template, and the rollout function replaces the nodes one safe
//! step after the other.

use serde_json::{Value, json};
use slipway_core::cluster::GroupSize;
use slipway_core::node::{LAUNCH_HOOK, TERMINATE_HOOK};
use slipway_core::role::Role;

use super::cfn::Resource;
use super::context::Context;
use super::launch_template::node_tags;

/// What happens to an instance when its terminate hook times out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unspoken {
    /// It is terminated: it has no unique data, and its successor may need its volume.
    Terminate,
    /// It is retained outside of the group until it is terminated explicitly, because its pods were not evicted (P6).
    /// docs.aws.amazon.com/autoscaling/ec2/userguide/instance-lifecycle-policy.html
    Retain,
}

/// The lifecycle hooks with their heartbeat timeouts in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hooks {
    /// Until the agent reports that the node is healthy.
    pub(super) launch_s: u32,
    /// Until the node is drained, or may terminate without a drain.
    pub(super) terminate_s: u32,
    /// What happens when the terminate hook times out.
    pub(super) unspoken: Unspoken,
}

/// A group to render.
pub(super) struct Group<'a> {
    pub(super) name: &'a str,
    pub(super) role: &'a Role,
    pub(super) size: GroupSize,
    pub(super) subnet_ids: Vec<Value>,
    pub(super) hooks: Hooks,
}

impl Group<'_> {
    /// The group, without its launch template.
    ///
    /// Its name is not left to CloudFormation, so that a node's role can be limited to its own group without a circular dependency, and
    /// the agent knows the group whose hooks it completes. `DesiredCapacity` is not set: at creation it defaults to the minimum, and
    /// afterwards it belongs to the autoscaler or the rollout. Setting it in a stack update would terminate nodes without a drain. Health
    /// checks are those of EC2, not of the load balancer: while etcd is down no controller is ready, and the group would terminate them
    /// all.
    pub(super) fn resource(&self, context: &Context<'_>, extra_tags: Vec<Value>) -> Resource {
        let mut tags = node_tags(context, self.role).propagating(true);
        tags.extend(extra_tags);
        tags.sort_by(|one, other| one["Key"].as_str().cmp(&other["Key"].as_str()));
        Resource::new("AWS::AutoScaling::AutoScalingGroup")
            .set("AutoScalingGroupName", self.name)
            .set("MinSize", self.size.min.to_string())
            .set("MaxSize", self.size.max.to_string())
            .set("VPCZoneIdentifier", json!(self.subnet_ids))
            .set("HealthCheckType", "EC2")
            .set("LifecycleHookSpecificationList", self.hooks())
            .set_some(
                "InstanceLifecyclePolicy",
                match self.hooks.unspoken {
                    Unspoken::Terminate => None,
                    Unspoken::Retain => {
                        Some(json!({ "RetentionTriggers": { "TerminateHookAbandon": "retain" } }))
                    }
                },
            )
            .set("Tags", json!(tags))
    }

    /// The hooks are part of the group, because separate resources would be created after the first instances.
    fn hooks(&self) -> Value {
        json!([
            {
                "LifecycleHookName": LAUNCH_HOOK,
                "LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING",
                // A node that never becomes healthy is replaced.
                "DefaultResult": "ABANDON",
                "HeartbeatTimeout": self.hooks.launch_s,
            },
            {
                "LifecycleHookName": TERMINATE_HOOK,
                "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
                // While a drain is in progress, heartbeats extend the timeout. When it runs out, nobody is draining the node any more.
                "DefaultResult": match self.hooks.unspoken {
                    Unspoken::Terminate => "CONTINUE",
                    Unspoken::Retain => "ABANDON",
                },
                "HeartbeatTimeout": self.hooks.terminate_s,
            },
        ])
    }
}
