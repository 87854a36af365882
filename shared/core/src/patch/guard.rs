//! What a patch may not touch: what nodes are found by, live by and are planned by, and what would make a writer of
//! specs an administrator. Each refusal says why, and where the thing is said instead.

mod references;

use serde_json::{Map, Value};

/// Something that a patch may not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) what: String,
    pub(super) help: String,
}

impl Refusal {
    fn new(what: impl Into<String>, help: impl Into<String>) -> Self {
        Self { what: what.into(), help: help.into() }
    }
}

/// A place that stays as it was rendered, and why.
struct Fixed {
    /// Below the resource, or from the top of a node's configuration.
    pointer: &'static str,
    help: &'static str,
}

const fn fixed(pointer: &'static str, help: &'static str) -> Fixed {
    Fixed { pointer, help }
}

const SIZE: &str = "the plan counts nodes by it: say it in the spec (`autoScalingGroup`, `count`)";
const MACHINE: &str = "the plan tells outdated nodes by it: say it in the spec";

/// Auto Scaling groups.
const GROUP: [Fixed; 14] = [
    fixed(
        "/UpdatePolicy",
        "CloudFormation would replace nodes itself, undrained; the rollout replaces them, one by one",
    ),
    fixed("/CreationPolicy", "nodes report through their lifecycle hooks, and nobody would send the signals"),
    fixed("/DeletionPolicy", "a group that outlives its stack runs nodes that nobody knows of"),
    fixed("/Properties/AutoScalingGroupName", "a node's role is limited to the group of this name"),
    fixed("/Properties/MinSize", SIZE),
    fixed("/Properties/MaxSize", SIZE),
    fixed(
        "/Properties/DesiredCapacity",
        "each update would set it again and terminate nodes undrained; the autoscaler and the rollout own it",
    ),
    fixed("/Properties/LaunchTemplate", MACHINE),
    fixed("/Properties/LaunchConfigurationName", MACHINE),
    fixed("/Properties/InstanceId", MACHINE),
    fixed("/Properties/MixedInstancesPolicy/LaunchTemplate", MACHINE),
    fixed(
        "/Properties/HealthCheckType",
        "while etcd is down no controller is ready, and a balancer's health would have all of them terminated",
    ),
    fixed(
        "/Properties/InstanceLifecyclePolicy",
        "a worker whose drain nobody finished must stay, for its pods were not evicted",
    ),
    fixed(
        "/Properties/VPCZoneIdentifier",
        "say it in the spec (`subnets`), which checks routes, zones and where volumes lie",
    ),
];

/// Launch templates.
const LAUNCH_TEMPLATE: [Fixed; 7] = [
    fixed(
        "/Properties/LaunchTemplateData/UserData",
        "it fetches and checks the node agent; use `customFiles` and `customSystemdUnits` in the spec for what a node should have besides",
    ),
    fixed("/Properties/LaunchTemplateData/ImageId", MACHINE),
    fixed("/Properties/LaunchTemplateData/InstanceType", MACHINE),
    fixed("/Properties/LaunchTemplateData/InstanceRequirements", MACHINE),
    fixed(
        "/Properties/LaunchTemplateData/IamInstanceProfile",
        "a node without its role cannot read its bundles; say `iam` in the spec",
    ),
    fixed(
        "/Properties/LaunchTemplateData/MetadataOptions",
        "tokens are required and answers go one hop far, so that pods cannot take the node's role; run what needs it on the host network",
    ),
    fixed("/Properties/LaunchTemplateData/SecurityGroupIds", "say it in the spec (`securityGroupIds`)"),
];

/// Volumes that outlive their nodes.
const VOLUME: [Fixed; 2] = [
    fixed("/Properties/Encrypted", "volumes are encrypted"),
    fixed(
        "/Properties/AvailabilityZone",
        "the volume must lie where its member does; say it in the spec (`subnets`)",
    ),
];

/// Node configurations.
const NODE: [Fixed; 16] = [
    fixed("/format", "the node agent reads the configuration by it"),
    fixed("/cluster", "the node is found by it"),
    fixed("/role", "the node reads its bundles by it"),
    fixed("/region", "the node lies there"),
    fixed("/autoScalingGroup", "the node settles the hooks of this group"),
    fixed("/launchHook", "without it the node would be terminated as never healthy"),
    fixed("/terminateHook", "without it the node would go undrained"),
    fixed("/kubernetesVersion", "version skew is checked by the spec's `kubernetesVersion`: say it there"),
    fixed("/etcd/version", "say it in the spec (`etcd.version`)"),
    fixed("/etcd/name", "the member is known to its fellows by it"),
    fixed("/etcd/dnsName", "the member's certificates carry it"),
    fixed("/etcd/initialClusterState", "members come and go by the spec (`etcd.count`), one at a time"),
    fixed("/etcd/initialClusterToken", "members know their cluster by it"),
    fixed("/etcd/joinEndpoints", "members come and go by the spec (`etcd.count`), one at a time"),
    fixed("/etcd/initialCluster", "members come and go by the spec (`etcd.count`), one at a time"),
    fixed("/dataVolume", "the member finds its data by it"),
];

/// Resources that stay, by type, with the places that stay in them.
fn kept(kind: &str) -> Option<&'static [Fixed]> {
    match kind {
        "AWS::AutoScaling::AutoScalingGroup" => Some(&GROUP),
        "AWS::EC2::LaunchTemplate" => Some(&LAUNCH_TEMPLATE),
        "AWS::EC2::Volume" => Some(&VOLUME),
        "AWS::EC2::VPC" | "AWS::Route53::HostedZone" => Some(&[]),
        _ => None,
    }
}

/// Types that a patch may not bring in, and why.
fn unwelcome(kind: &str) -> Option<&'static str> {
    const MACHINES: [&str; 7] = [
        "AWS::AutoScaling::AutoScalingGroup",
        "AWS::AutoScaling::LaunchConfiguration",
        "AWS::EC2::EC2Fleet",
        "AWS::EC2::Instance",
        "AWS::EC2::LaunchTemplate",
        "AWS::EC2::SpotFleet",
        "AWS::Batch::ComputeEnvironment",
    ];
    if kind.starts_with("AWS::IAM::") {
        return Some(
            "whoever writes a spec would be an administrator; say `iam` in the spec, or make it outside and name it there",
        );
    }
    if kind.starts_with("AWS::CloudFormation::") || kind.starts_with("Custom::") {
        return Some("it runs what no plan shows; make it in a stack of your own");
    }
    MACHINES
        .contains(&kind)
        .then_some("machines that no rollout knows of are never replaced; make a node pool")
}

/// What may not be done to a template.
pub(super) fn stack(before: &Value, after: &Value) -> Vec<Refusal> {
    let mut found = Vec::new();
    let (Some(old), Some(new)) = (resources(before), resources(after)) else {
        return vec![Refusal::new("no resources would be left", "patch what lies below `/Resources`")];
    };
    for key in ["Transform", "Hooks", "Rules"] {
        if after.get(key) != before.get(key) {
            found.push(Refusal::new(
                format!("`{key}`"),
                "it runs what no plan shows; write the resources themselves",
            ));
        }
    }
    for (name, parameter) in after.get("Parameters").and_then(Value::as_object).into_iter().flatten() {
        if parameter.get("Default").is_none() {
            let help = "give it a `Default`, or write its value where it is used: nobody is there to ask";
            found.push(Refusal::new(format!("the parameter `{name}` has no default"), help));
        }
    }
    for (id, was) in old {
        found.extend(resource(id, was, new.get(id)));
    }
    for (id, is) in new.iter().filter(|(id, _)| !old.contains_key(*id)) {
        let kind = kind(is);
        match unwelcome(kind) {
            Some(help) => found.push(Refusal::new(format!("`{id}` would be a {kind}"), help)),
            None if kind.is_empty() => {
                found.push(Refusal::new(
                    format!("`{id}` would have no `Type`"),
                    "add one, such as `AWS::EC2::SecurityGroup`",
                ));
            }
            None => {}
        }
    }
    found.extend(exports(before, after));
    found.extend(references::dangling(before, after));
    found
}

fn resource(id: &str, was: &Value, is: Option<&Value>) -> Vec<Refusal> {
    let kind = kind(was);
    let kept = kept(kind);
    let of_iam = kind.starts_with("AWS::IAM::");
    let Some(is) = is else {
        let help = "the cluster cannot do without it; take what asks for it out of the spec";
        return Vec::from_iter(
            (kept.is_some() || of_iam).then(|| Refusal::new(format!("`{id}` ({kind}) would be gone"), help)),
        );
    };
    if was == is {
        return Vec::new();
    }
    if self::kind(is) != kind {
        let help = "CloudFormation changes no resource's type: add one under another name";
        return vec![Refusal::new(format!("`{id}` would be no {kind} any more"), help)];
    }
    if let Some(help) = unwelcome(kind).filter(|_| of_iam) {
        return vec![Refusal::new(format!("`{id}` ({kind})"), help)];
    }
    let mut found: Vec<Refusal> = kept
        .into_iter()
        .flatten()
        .filter(|fixed| was.pointer(fixed.pointer) != is.pointer(fixed.pointer))
        .map(|fixed| Refusal::new(format!("`{}` of `{id}`", name(fixed.pointer)), fixed.help))
        .collect();
    for policy in ["DeletionPolicy", "UpdateReplacePolicy"] {
        let kinder = is.get(policy).and_then(Value::as_str) == Some("Retain");
        if was.get(policy).is_some() && was.get(policy) != is.get(policy) && !kinder {
            found.push(Refusal::new(
                format!("`{policy}` of `{id}`"),
                "its data must outlive it: only `Retain` may take its place",
            ));
        }
    }
    found.extend(tags(id, was, is));
    found.extend(hooks(id, was, is));
    found.extend(unencrypted(id, is));
    found
}

/// Tags that nodes, volumes and groups are found by.
fn is_ours(key: &str) -> bool {
    ["slipway:", "kubernetes.io/cluster/"].iter().any(|prefix| key.starts_with(prefix))
}

fn tags(id: &str, was: &Value, is: &Value) -> Vec<Refusal> {
    let mut found = Vec::new();
    let lists = |resource: &Value| -> Vec<(String, Vec<Value>)> {
        let list = |tags: Option<&Value>| -> Vec<Value> {
            tags.and_then(Value::as_array).cloned().unwrap_or_default()
        };
        let mut lists = vec![(String::new(), list(resource.pointer("/Properties/Tags")))];
        let specifications = resource.pointer("/Properties/LaunchTemplateData/TagSpecifications");
        for one in specifications.and_then(Value::as_array).into_iter().flatten() {
            let of = one.get("ResourceType").and_then(Value::as_str).unwrap_or_default();
            lists.push((format!(" of each {of}"), list(one.get("Tags"))));
        }
        lists
    };
    let after = lists(is);
    for (whose, list) in lists(was) {
        let there = |tag: &&Value| after.iter().any(|(other, tags)| *other == whose && tags.contains(tag));
        for tag in list.iter().filter(|tag| !there(tag)) {
            let key = tag.get("Key").and_then(Value::as_str).unwrap_or_default();
            if is_ours(key) {
                let help = "nodes, volumes and groups are found by it; `stackTags` in the spec, or an `add` at the list's end, brings tags of your own";
                found.push(Refusal::new(format!("the tag `{key}`{whose} of `{id}`"), help));
            }
        }
        let mine =
            |tag: &&Value| tag.get("Key").and_then(Value::as_str).is_some_and(is_ours) && !list.contains(tag);
        let added =
            after.iter().filter(|(other, _)| *other == whose).flat_map(|(_, tags)| tags.iter().filter(mine));
        for tag in added {
            let key = tag.get("Key").and_then(Value::as_str).unwrap_or_default();
            found.push(Refusal::new(
                format!("the tag `{key}`{whose} of `{id}`"),
                "what begins so is Slipway's own: choose another key",
            ));
        }
    }
    found.dedup();
    found
}

/// The lifecycle hooks that we rendered stay as they are; only how long they wait may change.
fn hooks(id: &str, was: &Value, is: &Value) -> Vec<Refusal> {
    const LIST: &str = "/Properties/LifecycleHookSpecificationList";
    let list =
        |resource: &Value| resource.pointer(LIST).and_then(Value::as_array).cloned().unwrap_or_default();
    let without_time = |hook: &Value| {
        let mut hook = hook.clone();
        if let Some(hook) = hook.as_object_mut() {
            hook.remove("HeartbeatTimeout");
        }
        hook
    };
    let after: Vec<Value> = list(is).iter().map(without_time).collect();
    let gone = list(was).into_iter().filter(|hook| !after.contains(&without_time(hook)));
    gone.map(|hook| {
        let name = hook.get("LifecycleHookName").and_then(Value::as_str).unwrap_or_default();
        let help = "nodes report and are drained through it; only its HeartbeatTimeout may change";
        Refusal::new(format!("the lifecycle hook `{name}` of `{id}`"), help)
    })
    .collect()
}

fn unencrypted(id: &str, is: &Value) -> Option<Refusal> {
    let mappings = is.pointer("/Properties/LaunchTemplateData/BlockDeviceMappings")?.as_array()?;
    let open = |mapping: &&Value| {
        let ebs = mapping.get("Ebs").and_then(Value::as_object);
        ebs.is_some_and(|ebs: &Map<String, Value>| ebs.get("Encrypted") != Some(&Value::Bool(true)))
    };
    let device =
        mappings.iter().find(open)?.get("DeviceName").and_then(Value::as_str).unwrap_or_default().to_owned();
    Some(Refusal::new(
        format!("the volume `{device}` of `{id}` would not be encrypted"),
        "add `Encrypted: true` to it",
    ))
}

/// Other stacks import them.
fn exports(before: &Value, after: &Value) -> Vec<Refusal> {
    let names = |template: &Value| -> Vec<Value> {
        let outputs = template.get("Outputs").and_then(Value::as_object).into_iter().flatten();
        outputs.filter_map(|(_, output)| output.pointer("/Export/Name").cloned()).collect()
    };
    let after = names(after);
    let gone = names(before).into_iter().filter(|name| !after.contains(name));
    gone.map(|name| {
        let name = name.as_str().map_or_else(|| name.to_string(), str::to_owned);
        Refusal::new(format!("the export `{name}` would be gone"), "other stacks of the cluster import it")
    })
    .collect()
}

/// What may not be done to a node's configuration.
pub(super) fn node(before: &Value, after: &Value) -> Vec<Refusal> {
    if !after.is_object() {
        return vec![Refusal::new("nothing would be left of it", "patch what lies below it")];
    }
    NODE.iter()
        .filter(|fixed| before.pointer(fixed.pointer) != after.pointer(fixed.pointer))
        .map(|fixed| Refusal::new(format!("`{}`", fixed.pointer), fixed.help))
        .collect()
}

fn resources(template: &Value) -> Option<&Map<String, Value>> {
    template.get("Resources").and_then(Value::as_object).filter(|resources| !resources.is_empty())
}

fn kind(resource: &Value) -> &str {
    resource.get("Type").and_then(Value::as_str).unwrap_or_default()
}

/// The last step of a pointer, or the last two where one says too little.
fn name(pointer: &str) -> &str {
    let pointer = pointer.strip_prefix("/Properties/").unwrap_or(pointer);
    pointer.strip_prefix("LaunchTemplateData/").unwrap_or(pointer).trim_start_matches('/')
}
