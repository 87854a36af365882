//! What belongs to another cluster, or to nobody of ours: CloudFormation's role may touch whatever lies in the account, so
//! what a patched resource names must be this cluster's own.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use slipway_core::allowed::is_ownership_tag;

use super::places::{EGRESS, FOREIGN_DATA};
use super::{Refusal, kind};

/// Properties that name the thing which a resource changes or lies in.
const NAMING: [&str; 20] = [
    "Address",
    "AllocationId",
    "CertificateArn",
    "GatewayId",
    "GroupId",
    "HostedZoneId",
    "HostedZoneName",
    "InstanceId",
    "InternetGatewayId",
    "ListenerArn",
    "LoadBalancerArn",
    "NatGatewayId",
    "NetworkInterfaceId",
    "RouteTableId",
    "RouteTableIds",
    "SubnetId",
    "SubnetIds",
    "TargetGroupArn",
    "VpcId",
    "VpcPeeringConnectionId",
];
/// Properties that bring data from elsewhere.
const DATA: [&str; 3] = ["SnapshotId", "SourceVolumeId", "VolumeId"];
/// Functions that a patch may bring: what comes of them is in the template, or names something in it. All others are refused, also those that
/// CloudFormation does not have yet: they choose, split, count or fetch, and no plan shows what comes of that
/// (CloudFormation template reference, "Intrinsic function reference"; `Fn::ForEach` has a name of its own as the end of its key).
const FORESEEN: [&str; 6] =
    ["Fn::Base64", "Fn::GetAZs", "Fn::GetAtt", "Fn::ImportValue", "Fn::Join", "Fn::Sub"];

/// What is this cluster's own, as far as a stack's template tells.
pub(super) struct Own<'a> {
    old: &'a Map<String, Value>,
    new: &'a Map<String, Value>,
    /// What the rendered template has for each of [`NAMING`].
    own_names: BTreeMap<&'static str, Vec<&'a Value>>,
    /// What the names of the exports begin with that it imports.
    imports: BTreeSet<&'a str>,
}

impl<'a> Own<'a> {
    pub(super) fn new(before: &'a Value, old: &'a Map<String, Value>, new: &'a Map<String, Value>) -> Self {
        let mut own = Self { old, new, own_names: BTreeMap::new(), imports: BTreeSet::new() };
        walk(before, &mut |key, value| {
            if let Some(name) = NAMING.into_iter().find(|name| *name == key) {
                own.own_names.entry(name).or_default().extend(each(value));
            }
            if key == "Fn::ImportValue" {
                own.imports.extend(value.as_str().and_then(stack_of));
            }
        });
        own
    }

    /// What may not be said in a resource that is new (`was` is none) or changed.
    pub(super) fn refusals(&self, id: &str, was: Option<&Value>, is: &Value) -> Vec<Refusal> {
        let mut found = Vec::new();
        if is.get("Condition") != was.and_then(|was| was.get("Condition")) {
            let help =
                "whether it is there would depend on what no plan shows: a cluster has what its spec says";
            found.push(Refusal::new(format!("`Condition` of `{id}`"), help));
        }
        let properties = is.get("Properties").unwrap_or(&Value::Null);
        let there = was.and_then(|was| was.get("Properties")).unwrap_or(&Value::Null);
        let of_rule =
            kind(is).starts_with("AWS::EC2::SecurityGroup") && kind(is) != "AWS::EC2::SecurityGroup";
        walk(properties, &mut |key, value| {
            let names = NAMING.contains(&key) || (of_rule && key == "GroupName");
            if names && each(value).any(|one| !self.has(key, one)) {
                let help = "it must be of this stack, or imported from the cluster's own network stack: what else \
                            there is may be another cluster's";
                found.push(Refusal::new(format!("`{key}` of `{id}`"), help));
            }
            if DATA.contains(&key) {
                found.push(Refusal::new(format!("`{key}` of `{id}`"), FOREIGN_DATA));
            }
            if key == "Tags" {
                found.extend(self::tags(id, there, value));
            }
        });
        if kind(is) == "AWS::EC2::SecurityGroupEgress" && !self.is_new(properties.get("GroupId")) {
            found.push(Refusal::new(format!("`GroupId` of `{id}`"), EGRESS));
        }
        found.dedup();
        found
    }

    fn has(&self, key: &str, value: &Value) -> bool {
        let imported = value.get("Fn::ImportValue").and_then(Value::as_str).and_then(stack_of);
        self.own_names.get(key).is_some_and(|values| values.contains(&value))
            || referred(value).is_some_and(|name| self.new.contains_key(name))
            || imported.is_some_and(|stack| self.imports.contains(stack))
    }

    /// Whether the value refers to a resource that the patch brings.
    fn is_new(&self, value: Option<&Value>) -> bool {
        let name = value.and_then(referred);
        name.is_some_and(|name| self.new.contains_key(name) && !self.old.contains_key(name))
    }
}

/// Tags that nodes, volumes and groups of any cluster are found by, and were not there.
fn tags(id: &str, there: &Value, tags: &Value) -> Vec<Refusal> {
    let mut known = Vec::new();
    walk(there, &mut |key, value| {
        if key == "Tags" {
            known.extend(value.as_array().into_iter().flatten());
        }
    });
    let Some(tags) = tags.as_array() else {
        let help = "write a list of `Key` and `Value`";
        return vec![Refusal::new(format!("the tags of `{id}` would be no list"), help)];
    };
    let refusal = |tag: &Value| match tag.get("Key").and_then(Value::as_str).filter(|key| !key.contains("{{"))
    {
        Some(key) if is_ownership_tag(key) => Some(Refusal::new(
            format!("the tag `{key}` of `{id}`"),
            "such a tag says which cluster a resource belongs to: choose a key of your own",
        )),
        Some(_) => None,
        None => Some(Refusal::new(
            format!("a tag of `{id}` whose key is not plain text"),
            "write the key itself: what begins with `slipway:` and `kubernetes.io/cluster/` is Slipway's own",
        )),
    };
    tags.iter().filter(|tag| !known.contains(tag)).filter_map(refusal).collect()
}

/// The name of the stack of an export: those of its outputs have no hyphen.
fn stack_of(export: &str) -> Option<&str> {
    export.rsplit_once('-').map(|(stack, _)| stack)
}

/// The resource that a reference is to, whole.
fn referred(value: &Value) -> Option<&str> {
    let object = value.as_object().filter(|object| object.len() == 1)?;
    match object.get("Fn::GetAtt") {
        Some(Value::String(text)) => text.split('.').next(),
        Some(Value::Array(parts)) => parts.first()?.as_str(),
        Some(_) | None => object.get("Ref")?.as_str(),
    }
}

/// The value, or what a list of them has.
fn each(value: &Value) -> impl Iterator<Item = &Value> {
    let (list, one) = match value {
        Value::Array(items) => (items.as_slice(), None),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            (&[][..], Some(value))
        }
    };
    list.iter().chain(one)
}

/// Functions of the template whose outcome nothing here can foresee, and which were not there.
pub(super) fn unforeseen(before: &Value, after: &Value) -> Vec<Refusal> {
    let mut known: Vec<(&str, &Value)> = Vec::new();
    walk(before, &mut |key, value| {
        if is_unforeseen(key) {
            known.push((key, value));
        }
    });
    let mut new: BTreeSet<&str> = BTreeSet::new();
    walk(after, &mut |key, value| {
        if is_unforeseen(key) && !known.contains(&(key, value)) {
            new.insert(key);
        }
    });
    let help = "what comes of it no plan shows: write the outcome itself";
    new.into_iter().map(|key| Refusal::new(format!("`{key}`"), help)).collect()
}

fn is_unforeseen(key: &str) -> bool {
    key.starts_with("Fn::") && !FORESEEN.contains(&key)
}

/// Every key with its value, at any depth.
fn walk<'a>(value: &'a Value, see: &mut impl FnMut(&'a str, &'a Value)) {
    match value {
        Value::Object(object) => {
            for (key, below) in object {
                see(key, below);
                walk(below, see);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, see)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
