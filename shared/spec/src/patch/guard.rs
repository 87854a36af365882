//! What a patch may not touch: what nodes are found by, live by and are planned by, and what would make a writer of
//! specs an administrator. Each refusal says why, and where the thing is said instead.

mod foreign;
mod node;
mod places;
mod references;
mod secrets;

use std::collections::BTreeSet;

use foreign::Own;
use places::{BALANCER_ATTRIBUTES, NODE, free, kept};
use serde_json::{Map, Value};
use slipway_core::allowed::is_ownership_tag;
use slipway_core::role::Role;

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

/// The types that a patch may bring in: CloudFormation may do for us whatever any cluster needs, to resources of every cluster.
const WELCOME: [&str; 3] =
    ["AWS::EC2::SecurityGroup", "AWS::EC2::SecurityGroupEgress", "AWS::EC2::SecurityGroupIngress"];

/// Why a patch may not bring in a resource of that type.
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
            "a spec's author would become an administrator of the account; use `iam` in the spec, or create the resource outside of Slipway and name it there",
        );
    }
    if kind.starts_with("AWS::CloudFormation::") || kind.starts_with("Custom::") {
        return Some("it runs what no plan shows; make it in a stack of your own");
    }
    if MACHINES.contains(&kind) {
        return Some("machines that no rollout knows of are never replaced; make a node pool");
    }
    (!WELCOME.contains(&kind)).then_some(
        "a patch brings in no more than AWS::EC2::SecurityGroup, AWS::EC2::SecurityGroupIngress and \
         AWS::EC2::SecurityGroupEgress; make it in a stack of your own",
    )
}

/// What may not be done to the template of the stack `name`.
pub(super) fn stack(name: &str, before: &Value, after: &Value) -> Vec<Refusal> {
    let mut found = Vec::new();
    let (Some(old), Some(new)) = (resources(before), resources(after)) else {
        return vec![Refusal::new("no resources would be left", "patch what lies below `/Resources`")];
    };
    for key in ["Transform", "Hooks", "Rules", "Mappings"] {
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
    let own = Own::new(before, old, new);
    for (id, was) in old {
        found.extend(resource(name, id, was, new.get(id)));
    }
    for (id, is) in new.iter().filter(|(id, is)| old.get(*id) != Some(*is)) {
        found.extend(own.refusals(id, old.get(id), is));
    }
    for (id, is) in new.iter().filter(|(id, _)| !old.contains_key(*id)) {
        let kind = kind(is);
        if kind.is_empty() {
            let help = "add one, such as `AWS::EC2::SecurityGroup`";
            found.push(Refusal::new(format!("`{id}` would have no `Type`"), help));
        } else if let Some(help) = unwelcome(kind) {
            found.push(Refusal::new(format!("`{id}` would be a {kind}"), help));
        }
    }
    found.extend(exports(before, after));
    found.extend(secrets::composed(before, after));
    found.extend(references::dangling(before, after));
    found.extend(foreign::unforeseen(before, after));
    // Two rules may refuse the same thing.
    let mut seen = BTreeSet::new();
    found.retain(|refusal| seen.insert(refusal.what.clone()));
    found
}

fn resource(stack: &str, id: &str, was: &Value, is: Option<&Value>) -> Vec<Refusal> {
    let kind = kind(was);
    let of_iam = kind.starts_with("AWS::IAM::");
    let Some(is) = is else {
        let help = "the cluster cannot do without it; take what asks for it out of the spec";
        return vec![Refusal::new(format!("`{id}` ({kind}) would be gone"), help)];
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
    let mut found: Vec<Refusal> = kept(kind)
        .iter()
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
    found.extend(not_free(stack, id, was, is));
    found.extend(attributes(id, is));
    found.extend(tags(id, was, is));
    found.extend(hooks(id, was, is));
    found.extend(unencrypted(id, is));
    found.extend(etcd_device(stack, id, is));
    found
}

/// What changes beside the few keys that may, where only those may, and is not told as a fixed place.
fn not_free(stack: &str, id: &str, was: &Value, is: &Value) -> Vec<Refusal> {
    let mut found = Vec::new();
    for free in free(kind(was)) {
        let mut may = free.keys.to_vec();
        if stack.starts_with("pool-") {
            may.extend(free.of_workers);
        }
        let keys = |resource: &Value| -> Vec<String> {
            let object = resource.pointer(free.below).and_then(Value::as_object);
            object.into_iter().flat_map(Map::keys).cloned().collect()
        };
        let all: BTreeSet<String> = keys(was).into_iter().chain(keys(is)).collect();
        for key in all.iter().filter(|key| !may.contains(&key.as_str())) {
            let value =
                |resource: &Value| resource.pointer(free.below).and_then(|below| below.get(key)).cloned();
            let place = format!("{}/{key}", free.below);
            let is_kept = kept(kind(was)).iter().any(|fixed| fixed.pointer == place);
            if !is_kept && value(was) != value(is) {
                let help = format!(
                    "a patch may change `{}` there; say what else you need in the spec",
                    may.join("`, `")
                );
                found.push(Refusal::new(format!("`{key}` of `{id}`"), help));
            }
        }
    }
    found
}

/// Attributes of a load balancer that a patch may not bring.
fn attributes(id: &str, is: &Value) -> Vec<Refusal> {
    let list = is.pointer("/Properties/LoadBalancerAttributes").and_then(Value::as_array);
    let help = || format!("a patch may set `{}` there", BALANCER_ATTRIBUTES.join("`, `"));
    let refusal = |attribute: &Value| match attribute.get("Key").and_then(Value::as_str) {
        Some(key) if BALANCER_ATTRIBUTES.contains(&key) => None,
        Some(key) => Some(Refusal::new(format!("the attribute `{key}` of `{id}`"), help())),
        None => Some(Refusal::new(format!("an attribute of `{id}` whose key is not plain text"), help())),
    };
    list.into_iter().flatten().filter_map(refusal).collect()
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
            let kind = one.get("ResourceType").and_then(Value::as_str).unwrap_or_default();
            lists.push((format!(" of each {kind}"), list(one.get("Tags"))));
        }
        lists
    };
    let after = lists(is);
    for (whose, list) in lists(was) {
        let there = |tag: &&Value| after.iter().any(|(other, tags)| *other == whose && tags.contains(tag));
        for tag in list.iter().filter(|tag| !there(tag)) {
            let key = tag.get("Key").and_then(Value::as_str).unwrap_or_default();
            if is_ownership_tag(key) {
                let help = "nodes, volumes and groups are found by it; `stackTags` in the spec, or an `add` at the list's end, brings tags of your own";
                found.push(Refusal::new(format!("the tag `{key}`{whose} of `{id}`"), help));
            }
        }
    }
    found.dedup();
    found
}

/// How long a hook may wait (API reference of EC2 Auto Scaling, `PutLifecycleHook`, `HeartbeatTimeout`).
const HEARTBEAT_S: std::ops::RangeInclusive<u64> = 30..=7200;

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
    // CloudFormation takes the number as text, too.
    let waits = |hook: &Value| {
        let time = hook.get("HeartbeatTimeout")?;
        Some(time.as_u64().or_else(|| time.as_str()?.parse().ok()).is_none_or(|s| !HEARTBEAT_S.contains(&s)))
    };
    let wrong = list(is).into_iter().filter(|hook| waits(hook) == Some(true)).map(|hook| {
        let name = hook.get("LifecycleHookName").and_then(Value::as_str).unwrap_or_default();
        let help = "write 30 to 7200 seconds: Auto Scaling takes no other";
        Refusal::new(format!("the HeartbeatTimeout of the lifecycle hook `{name}` of `{id}`"), help)
    });
    gone.map(|hook| {
        let name = hook.get("LifecycleHookName").and_then(Value::as_str).unwrap_or_default();
        let help = "nodes report and are drained through it; only its HeartbeatTimeout may change";
        Refusal::new(format!("the lifecycle hook `{name}` of `{id}`"), help)
    })
    .chain(wrong)
    .collect()
}

/// Where a member attaches its data.
const ETCD_DEVICE: &str = "/dev/sdf";
const MAPPINGS: &str = "/Properties/LaunchTemplateData/BlockDeviceMappings";

fn unencrypted(id: &str, is: &Value) -> Option<Refusal> {
    let mappings = is.pointer(MAPPINGS)?.as_array()?;
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

/// A member attaches its data under this name.
fn etcd_device(stack: &str, id: &str, is: &Value) -> Option<Refusal> {
    let mappings = is.pointer(MAPPINGS).filter(|_| stack == "etcd")?.as_array()?;
    mappings.iter().any(|mapping| mapping["DeviceName"] == ETCD_DEVICE).then(|| {
        let help = "the member attaches its data there: take another name";
        Refusal::new(format!("the volume `{ETCD_DEVICE}` of `{id}`"), help)
    })
}

/// Other stacks import them, and find each other's by their names.
fn exports(before: &Value, after: &Value) -> Vec<Refusal> {
    let exported = |template: &Value| -> Vec<(Value, Value)> {
        let outputs = template.get("Outputs").and_then(Value::as_object).into_iter().flatten();
        let exported = |output: &Value| Some((output.pointer("/Export/Name")?.clone(), output.clone()));
        outputs.filter_map(|(_, output)| exported(output)).collect()
    };
    let essence = |output: &Value| (output.get("Value").cloned(), output.get("Condition").cloned());
    let (old, new) = (exported(before), exported(after));
    let mut found = Vec::new();
    for (name, was) in &old {
        let name_of = name.as_str().map_or_else(|| name.to_string(), str::to_owned);
        match new.iter().find(|(other, _)| other == name) {
            None => found.push(Refusal::new(
                format!("the export `{name_of}` would be gone"),
                "other stacks of the cluster import it",
            )),
            Some((_, is)) if essence(is) != essence(was) => found.push(Refusal::new(
                format!("the export `{name_of}` would say something else"),
                "other stacks of the cluster import it",
            )),
            Some(_) => {}
        }
    }
    for (name, _) in new.iter().filter(|(name, _)| !old.iter().any(|(other, _)| other == name)) {
        let help = "another cluster's stacks might take it for their own: have an output without an export";
        found.push(Refusal::new(format!("the export {name} would be new"), help));
    }
    found
}

pub(super) use node::idle_keys;

/// What may not be done to a node's configuration.
pub(super) fn node(role: &Role, before: &Value, after: &Value) -> Vec<Refusal> {
    if !after.is_object() {
        return vec![Refusal::new("nothing would be left of it", "patch what lies below it")];
    }
    let fixed = NODE.iter().filter(|fixed| before.pointer(fixed.pointer) != after.pointer(fixed.pointer));
    let fixed: Vec<Refusal> =
        fixed.map(|fixed| Refusal::new(format!("`{}`", fixed.pointer), fixed.help)).collect();
    if fixed.is_empty() { node::check(role, before, after) } else { fixed }
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
