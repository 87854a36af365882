//! The stack of one pool of workers.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use slipway_core::cluster::{Architecture, GroupSize, MixedInstances, NodePool, Volume};
use slipway_core::node::WORKER_LAUNCH_S;
use slipway_core::release::{LABEL_TAG, NodeRole, StackKind};
use slipway_core::role::Role;

use super::cfn::{Tags, Template};
use super::context::{Context, export};
use super::groups::{Group, Hooks, Unspoken};
use super::iam::{self, Principal};
use super::launch_template::{Machine, root_device};
use super::node_config::{self, labels};
use super::userdata::Boot;

/// The prefix of the cluster autoscaler's tags.
const PREFIX: &str = "k8s.io/cluster-autoscaler";
/// A drain may take hours; heartbeats extend the hook meanwhile. A worker whose drain was not finished still has pods, so it is retained.
const HOOKS: Hooks = Hooks { launch_s: WORKER_LAUNCH_S, terminate_s: 1800, unspoken: Unspoken::Retain };

/// Renders one pool's stack and its workers' role.
pub(super) fn template(context: &mut Context<'_>, pool: &NodePool) -> (Template, (Role, NodeRole)) {
    let cluster = context.cluster;
    let role = Role::Pool(pool.name.clone());
    let stack = context.stack_name(StackKind::Pool, &pool.name);
    let architecture = Architecture::of_instance_type(&pool.instance_type);
    let image = cluster.image_of(pool);
    let mut template =
        Template::new(format!("Node pool {} of the Kubernetes cluster {}", pool.name, cluster.name));

    let principal = Principal {
        prefix: "Worker",
        suffix: String::new(),
        role: &role,
        stack: &stack,
        group: &stack,
        iam: &pool.iam,
    };
    // Only EC2 can tell the volumes apart. This action has no resource-level permissions.
    let find = iam::allow("FindOwnVolume", &["ec2:DescribeVolumes"], json!("*"), Value::Null);
    let find = (!pool.storage.mounts.is_empty()).then_some(find);
    let own = iam::pull_images(context).into_iter().chain(find).collect();
    let profile = iam::add(context, &mut template, &principal, own);
    let mut instance_types = vec![pool.instance_type.clone()];
    if let Some(mixed) = &pool.mixed_instances {
        instance_types.extend(mixed.types.iter().map(|weighted| weighted.instance_type.clone()));
    }
    let machine = Machine {
        role: role.clone(),
        architecture,
        image_id: context.image_id(&role, image, architecture),
        instance_types,
        root_device: root_device(image, cluster.root_device_of(pool)),
        root_volume: pool.root_volume.clone(),
        volumes: volumes(pool),
        key_name: pool.key_name.clone(),
        subnet: None,
        security_group: export::WORKER_SECURITY_GROUP,
        security_group_ids: pool.security_group_ids.clone(),
        profile,
        tenancy: pool.tenancy,
    };
    let config = node_config::worker(context, pool, &stack);
    let boot = Boot { config: &config, group: &stack, zone: None };
    let launch = machine.add_launch_template(context, &mut template, "LaunchTemplate", &boot);

    let target_groups = sorted(&pool.target_group_arns);
    let load_balancers = sorted(&pool.load_balancer_names);
    let group = Group {
        name: &stack,
        role: &role,
        size: GroupSize { max: cluster.most_of(pool), ..pool.size },
        subnet_ids: context.subnet_ids(&pool.subnets),
        hooks: HOOKS,
    }
    .resource(context, autoscaler_tags(context, pool))
    .set_some("TargetGroupARNs", (!target_groups.is_empty()).then(|| json!(target_groups)))
    .set_some("LoadBalancerNames", (!load_balancers.is_empty()).then(|| json!(load_balancers)));
    template.add(
        "Group",
        match &pool.mixed_instances {
            None => group.set("LaunchTemplate", launch),
            Some(mixed) => group
                .set("MixedInstancesPolicy", mixed_instances_policy(mixed, &launch))
                .set_some("CapacityRebalance", mixed.capacity_rebalance.then_some(true)),
        },
    );
    let version = context.kubernetes_version(context.cluster.version_of(pool));
    let node_role = NodeRole {
        weighted: pool.is_weighted(),
        ..machine.node_role(context, stack, pool.size, config, version)
    };
    (template, (role, node_role))
}

/// The names sorted, so that their order in the spec does not matter (P1).
fn sorted(names: &[String]) -> Vec<&String> {
    let mut names: Vec<&String> = names.iter().collect();
    names.sort();
    names.dedup();
    names
}

/// Volumes besides the root. The instance store needs no mapping, because its NVMe disks are always present.
fn volumes(pool: &NodePool) -> BTreeMap<String, Volume> {
    let mounts = pool.storage.mounts.iter();
    mounts
        .flat_map(|mount| mount.devices.iter().map(|device| (device.clone(), mount.volume.clone())))
        .collect()
}

fn mixed_instances_policy(mixed: &MixedInstances, launch: &Value) -> Value {
    let overrides: Vec<Value> = mixed
        .types
        .iter()
        .map(|weighted| {
            let mut one = json!({ "InstanceType": weighted.instance_type });
            if let Some(weight) = weighted.weight {
                one["WeightedCapacity"] = json!(weight.to_string());
            }
            one
        })
        .collect();
    let mut distribution = json!({
        "OnDemandBaseCapacity": mixed.on_demand_base,
        "OnDemandPercentageAboveBaseCapacity": mixed.on_demand_percentage,
        "SpotAllocationStrategy": mixed.spot_strategy,
    });
    if let Some(strategy) = &mixed.on_demand_strategy {
        distribution["OnDemandAllocationStrategy"] = json!(strategy);
    }
    json!({
        "LaunchTemplate": { "LaunchTemplateSpecification": launch, "Overrides": overrides },
        "InstancesDistribution": distribution,
    })
}

/// The tags by which the cluster autoscaler finds its groups, and what it must know about a node to scale up from zero. They are not
/// propagated to instances.
fn autoscaler_tags(context: &Context<'_>, pool: &NodePool) -> Vec<Value> {
    if !pool.cluster_autoscaler {
        return Vec::new();
    }
    let mut tags = Tags::default()
        .with(format!("{PREFIX}/enabled"), "true")
        .with(format!("{PREFIX}/{}", context.cluster.name), "owned");
    for (key, value) in labels(pool) {
        tags = tags.with(format!("{LABEL_TAG}{key}"), value);
    }
    // The autoscaler derives the rest from the instance type, but not the size of the root volume.
    if pool.storage.instance_store.as_ref().is_none_or(|store| store.path.is_some()) {
        let size = format!("{}Gi", pool.root_volume.size_gib);
        tags = tags.with(format!("{PREFIX}/node-template/resources/ephemeral-storage"), size);
    }
    for taint in &pool.taints {
        let value = format!("{}:{}", taint.value, taint.effect);
        tags = tags.with(format!("{PREFIX}/node-template/taint/{}", taint.key), value);
    }
    tags.propagating(false)
}
