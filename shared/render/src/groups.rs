//! Auto Scaling groups: what etcd members, controllers and pools have in common.
//!
//! No group has an `UpdatePolicy`: CloudFormation records the new launch template, and the rollout function
//! replaces nodes, one safe step after the other (design §6).

use serde_json::{Value, json};
use slipway_core::cluster::GroupSize;
use slipway_core::node::{LAUNCH_HOOK, TERMINATE_HOOK};
use slipway_core::role::Role;

use super::cfn::{Resource, get_att, reference};
use super::context::Context;
use super::launch_template::node_tags;

/// What becomes of an instance when nobody speaks for its terminate hook any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unspoken {
    /// It is terminated: it has nothing that the others lack, and its successor may need its volume.
    Terminate,
    /// It is kept running, beside the group, until it is terminated in so many words: its pods were not evicted (P6).
    /// docs.aws.amazon.com/autoscaling/ec2/userguide/instance-lifecycle-policy.html
    Retain,
}

/// Lifecycle hooks and how long they wait without a heartbeat, in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hooks {
    /// Until the agent says that the node is locally healthy.
    pub(super) launch_s: u32,
    /// Until the agent says that the node is drained, or may go.
    pub(super) terminate_s: u32,
    /// What then becomes of one that was to be terminated.
    pub(super) unspoken: Unspoken,
}

impl Hooks {
    /// Name of the hook on launch.
    pub(super) const LAUNCH: &'static str = LAUNCH_HOOK;
    /// Name of the hook on termination.
    pub(super) const TERMINATE: &'static str = TERMINATE_HOOK;
}

/// A group under construction.
pub(super) struct Group<'a> {
    pub(super) name: &'a str,
    pub(super) role: &'a Role,
    pub(super) size: GroupSize,
    pub(super) subnet_ids: Vec<Value>,
    pub(super) hooks: Hooks,
}

impl Group<'_> {
    /// The group, without what it launches.
    ///
    /// It is named outright, not by CloudFormation, so that a node's role can be limited to its own group
    /// without a circle between the two, and the agent knows the group whose hooks it settles.
    /// `DesiredCapacity` is not set: at creation it is the minimum; after that it belongs to the autoscaler
    /// or to the rollout, and a stack update that set it again would terminate nodes undrained. Health is
    /// EC2's, not the balancer's: while etcd is down no controller is ready, and the group would kill them
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

    /// Hooks in the group itself: as resources of their own they would miss the first instances.
    fn hooks(&self) -> Value {
        json!([
            {
                "LifecycleHookName": Hooks::LAUNCH,
                "LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING",
                // A node that never reports healthy is replaced.
                "DefaultResult": "ABANDON",
                "HeartbeatTimeout": self.hooks.launch_s,
            },
            {
                "LifecycleHookName": Hooks::TERMINATE,
                "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
                // Who drains the node prolongs this by heartbeats for as long as it takes. When they stop,
                // nobody is draining it any more.
                "DefaultResult": match self.hooks.unspoken {
                    Unspoken::Terminate => "CONTINUE",
                    Unspoken::Retain => "ABANDON",
                },
                "HeartbeatTimeout": self.hooks.terminate_s,
            },
        ])
    }
}

/// The launch template with the version that the stack's own update makes, so that a new instance is always
/// of the newest.
pub(super) fn launch_template_specification(launch_template: &str) -> Value {
    json!({
        "LaunchTemplateId": reference(launch_template),
        "Version": get_att(launch_template, "LatestVersionNumber"),
    })
}
