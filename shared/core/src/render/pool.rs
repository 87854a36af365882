//! The stack of one pool of workers.

use serde_json::{Value, json};

use super::cfn::{Tags, Template};
use super::context::{Context, export};
use super::groups::{Group, Hooks, Unspoken, launch_template_specification};
use super::iam::{self, Principal};
use super::launch_template::{Machine, root_device};
use super::node_config::{self, labels};
use super::userdata::{Digests, userdata};
use super::{NodeRole, StackKind};
use crate::cluster::{Architecture, MixedInstances, NodePool};
use crate::pki::Role;

/// A drain may take hours; the agent's heartbeat, not this figure, keeps the instance while it does. A worker whose
/// drain nobody finished still has its pods.
const HOOKS: Hooks = Hooks { launch_s: 1800, terminate_s: 1800, unspoken: Unspoken::Retain };

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
    let profile = iam::add(context, &mut template, &principal, Vec::new());
    let mut instance_types = vec![pool.instance_type.clone()];
    if let Some(mixed) = &pool.mixed_instances {
        instance_types.extend(mixed.types.iter().map(|weighted| weighted.instance_type.clone()));
    }
    let machine = Machine {
        role: role.clone(),
        architecture,
        image_id: context.image_id(&role, image, architecture),
        instance_types,
        root_device: root_device(image),
        root_volume: pool.root_volume.clone(),
        subnet: None,
        security_group: export::WORKER_SECURITY_GROUP,
        security_group_ids: pool.security_group_ids.clone(),
        profile,
    };
    let config = node_config::worker(context, pool, &stack);
    let credentials = context.credentials_digest(&role);
    let userdata = userdata(
        context,
        Digests { role: &role, architecture, config: &config.digest, credentials: &credentials, zone: None },
    );
    let launch_template = template.add("LaunchTemplate", machine.launch_template(context, userdata));

    let mut target_groups = pool.target_group_arns.clone();
    target_groups.sort();
    target_groups.dedup();
    let group = Group {
        name: &stack,
        role: &role,
        size: pool.size,
        subnet_ids: context.subnet_ids(&pool.subnets),
        hooks: HOOKS,
    }
    .resource(context, autoscaler_tags(context, pool))
    .set_some("TargetGroupARNs", (!target_groups.is_empty()).then(|| json!(target_groups)));
    let launch = launch_template_specification(&launch_template);
    template.add(
        "Group",
        match &pool.mixed_instances {
            None => group.set("LaunchTemplate", launch),
            Some(mixed) => group
                .set("MixedInstancesPolicy", mixed_instances_policy(mixed, &launch))
                // Where spot instances are used, a replacement comes up before the warned instance is taken.
                .set_some("CapacityRebalance", (mixed.on_demand_percentage < 100).then_some(true)),
        },
    );
    let node_role = NodeRole {
        stack,
        nodes: pool.size,
        machine: machine.describe(context),
        config: config.text,
        config_digest: config.digest,
        credentials_digest: credentials,
        version: Some(context.kubernetes_version(context.cluster.version_of(pool))),
        member: None,
    };
    (template, (role, node_role))
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
    json!({
        "LaunchTemplate": { "LaunchTemplateSpecification": launch, "Overrides": overrides },
        "InstancesDistribution": {
            "OnDemandBaseCapacity": mixed.on_demand_base,
            "OnDemandPercentageAboveBaseCapacity": mixed.on_demand_percentage,
            "SpotAllocationStrategy": mixed.spot_strategy,
        },
    })
}

/// What the cluster autoscaler finds its groups by, and what it must know of a node to scale up from none.
/// They stay on the group: instances have no use for them.
fn autoscaler_tags(context: &Context<'_>, pool: &NodePool) -> Vec<Value> {
    if !pool.cluster_autoscaler {
        return Vec::new();
    }
    const PREFIX: &str = "k8s.io/cluster-autoscaler";
    let mut tags = Tags::default()
        .with(format!("{PREFIX}/enabled"), "true")
        .with(format!("{PREFIX}/{}", context.cluster.name), "owned");
    for (key, value) in labels(pool) {
        tags = tags.with(format!("{PREFIX}/node-template/label/{key}"), value);
    }
    for taint in &pool.taints {
        let value = format!("{}:{}", taint.value, taint.effect);
        tags = tags.with(format!("{PREFIX}/node-template/taint/{}", taint.key), value);
    }
    tags.propagating(false)
}
