//! The control-plane stack: one group of stateless controllers behind the API's endpoints.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use slipway_core::cluster::{Architecture, GroupSize};
use slipway_core::release::{NodeRole, StackKind};
use slipway_core::repair::RepairMode;
use slipway_core::role::Role;

use super::cfn::{Template, sub};
use super::context::{Context, export};
use super::groups::{Group, Hooks, Unspoken};
use super::iam::{self, Principal, allow, own_account};
use super::launch_template::{Machine, root_device};
use super::userdata::Boot;
use super::{addons, endpoints, node_config};

/// A controller pulls its images and waits for etcd before it is ready. It terminates within minutes, because few pods run on it.
const HOOKS: Hooks = Hooks { launch_s: 1800, terminate_s: 900, unspoken: Unspoken::Terminate };

/// Renders the control-plane stack and the controllers' role.
pub(super) fn template(context: &mut Context<'_>) -> (Template, (Role, NodeRole)) {
    let cluster = context.cluster;
    let controller = &cluster.controller;
    let role = Role::Controller;
    let stack = context.stack_name(StackKind::ControlPlane, "");
    let architecture = Architecture::of_instance_type(&controller.instance_type);
    let mut template = Template::new(format!("Control plane of the Kubernetes cluster {}", cluster.name));

    let target_groups = endpoints::add(context, &mut template);
    let principal = Principal {
        prefix: "Controller",
        suffix: String::new(),
        role: &role,
        stack: &stack,
        group: &stack,
        iam: &controller.iam,
    };
    let profile = iam::add(context, &mut template, &principal, statements(context));
    let machine = Machine {
        role: role.clone(),
        architecture,
        image_id: context.image_id(&role, &cluster.image, architecture),
        instance_types: vec![controller.instance_type.clone()],
        root_device: root_device(&cluster.image, cluster.root_device.as_deref()),
        volumes: BTreeMap::new(),
        key_name: None,
        root_volume: controller.root_volume.clone(),
        subnet: None,
        security_group: export::CONTROLLER_SECURITY_GROUP,
        security_group_ids: controller.security_group_ids.clone(),
        profile,
        tenancy: controller.tenancy,
    };
    let config = node_config::controller(context, &stack);
    let boot = Boot { config: &config, group: &stack, zone: None };
    let launch_template = machine.add_launch_template(context, &mut template, "LaunchTemplate", &boot);
    let size = GroupSize { min: controller.count, max: controller.count };
    let group = Group {
        name: &stack,
        role: &role,
        // An additional controller may start before one is terminated (P5).
        size: GroupSize { max: size.max + 1, ..size },
        subnet_ids: context.subnet_ids(&controller.subnets),
        hooks: HOOKS,
    }
    .resource(context, Vec::new())
    .set("LaunchTemplate", launch_template)
    .set("TargetGroupARNs", json!(target_groups));
    template.add("Group", group);
    let version = context.kubernetes_version(context.cluster.kubernetes_version);
    let node_role = machine.node_role(context, stack, size, config, version);
    (template, (role, node_role))
}

/// Add-ons that use AWS run on controllers, so that workers need no such permissions. The node manager reads the add-ons that it has to
/// apply, and looks up the machines behind nodes.
fn statements(context: &Context<'_>) -> Vec<Value> {
    let own = format!(
        "arn:{}:s3:::{}/clusters/{}",
        context.partition(),
        context.site.asset_bucket,
        context.cluster.name
    );
    let read = allow(
        "ReadAddons",
        &["s3:GetObject"],
        json!([format!("{own}/addons.json"), format!("{own}/addons/*")]),
        own_account(),
    );
    // The names in a kubelet's serving certificate are checked with EC2. This action has no resource-level permissions.
    let know = allow("KnowMachines", &["ec2:DescribeInstances"], json!("*"), Value::Null);
    let pull = iam::pull_images(context);
    let repairs = repairs(context);
    [read, know].into_iter().chain(pull).chain(repairs).chain(addons::instance_statements(context)).collect()
}

/// Lets the node managers report workers of this cluster as unhealthy, if a pool is to be repaired. The name of another cluster may begin
/// like that of this one's pools, and the tag tells them apart.
fn repairs(context: &Context<'_>) -> Option<Value> {
    let cluster = context.cluster;
    let repaired = cluster.pools.iter().any(|pool| pool.repair.mode == RepairMode::On);
    let groups = sub(format!(
        "arn:{}:autoscaling:{}:${{AWS::AccountId}}:autoScalingGroup:*:autoScalingGroupName/{}-pool-*",
        context.partition(),
        cluster.region,
        cluster.name
    ));
    let own = json!({ "StringEquals": { "aws:ResourceTag/slipway:cluster": cluster.name } });
    repaired.then(|| allow("ReplaceUnreadyWorkers", &["autoscaling:SetInstanceHealth"], groups, own))
}
