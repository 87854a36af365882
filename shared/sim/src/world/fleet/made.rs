//! Groups and launch templates, as CloudFormation applies them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use slipway_rollout::fleet::TemplateVersion;

use super::super::machine::{Group, Hook, HookResult, State, groups_of};
use super::super::resource::Resource;
use super::super::task::FleetTask;
use super::super::{World, physical};

const GROUP: &str = "AWS::AutoScaling::AutoScalingGroup";
const TEMPLATE: &str = "AWS::EC2::LaunchTemplate";
const HOOK: &str = "AWS::AutoScaling::LifecycleHook";

/// The time until Auto Scaling reacts to a changed group.
const LOOKS_S: (f64, f64) = (2.0, 10.0);

impl World {
    /// CloudFormation has created or changed `resource`.
    pub(in crate::world) fn applied(&mut self, resource: &Resource) {
        let Some(id) = resource.physical_id.clone() else { return };
        match resource.kind.as_str() {
            TEMPLATE => {
                let version = resource.attributes.get("LatestVersionNumber").and_then(Value::as_str);
                let version = version.and_then(|text| text.parse().ok()).unwrap_or(1);
                let data = resource.properties.get("LaunchTemplateData").cloned().unwrap_or_default();
                self.fleet.templates.entry(id).or_default().insert(version, data);
            }
            GROUP => self.group_applied(&id, resource),
            HOOK => self.hook_applied(&id, &resource.properties, true),
            _ => {}
        }
    }

    /// CloudFormation has deleted `resource`.
    pub(in crate::world) fn unmade(&mut self, resource: &Resource) {
        let Some(id) = resource.physical_id.as_deref() else { return };
        match resource.kind.as_str() {
            TEMPLATE => {
                self.fleet.templates.remove(id);
            }
            HOOK => self.hook_applied(id, &resource.properties, false),
            GROUP => {
                let Some(group) = self.fleet.groups.remove(id) else { return };
                // CloudFormation waits until the group is empty; the hooks of its machines end with it.
                let machines: Vec<String> = self.machines_of(id);
                for machine in machines {
                    self.stops(&machine);
                    self.gone(&machine);
                }
                self.ends_with(&group);
            }
            _ => {}
        }
    }

    /// CloudFormation deletes a group: its desired capacity is zero, and machines in service pass through their terminate hooks.
    pub(in crate::world) fn group_empties(&mut self, resource: &Resource) {
        let Some(id) = resource.physical_id.clone().filter(|_| resource.kind == GROUP) else { return };
        let Some(group) = self.fleet.groups.get_mut(&id) else { return };
        (group.min, group.max, group.desired) = (0, 0, 0);
        let mut machines = self.machines_of(&id);
        machines.retain(|one| self.fleet.machines[one].ready);
        for machine in machines {
            self.begin_termination(&machine);
        }
    }

    /// Whether a machine blocks the deletion of its group, because its hook waits or the group has retained it. CloudFormation
    /// deletes a group without force, which Auto Scaling refuses as long as the group has machines. A retained machine belongs to
    /// its group until somebody terminates it (`RetentionTriggers`).
    pub(in crate::world) fn group_holds(&self, resource: &Resource) -> bool {
        let id = resource.physical_id.as_deref().filter(|_| resource.kind == GROUP && !self.fleet.lets_go);
        let Some(id) = id else { return false };
        let machines = self.machines_of(id);
        machines.iter().map(|one| &self.fleet.machines[one]).any(|one| {
            let waits = one.waits.is_some() && !one.state.counts();
            waits || one.state == State::TerminatingRetained
        })
    }

    /// Whether the machines in service, or their capacity units, reach the group's desired capacity.
    pub(in crate::world) fn group_is_stable(&self, resource: &Resource) -> bool {
        let id = resource.physical_id.as_deref().unwrap_or_default();
        let Some(group) = self.fleet.groups.get(id) else { return true };
        let machines = self.fleet.machines.values().filter(|machine| machine.group == id);
        let serve = machines.filter(|one| one.state == State::InService);
        serve.map(|one| one.weight).sum::<u32>() >= group.desired
    }

    /// The last group of a cluster's members is gone together with the volumes, so a new etcd starts empty.
    fn ends_with(&mut self, group: &Group) {
        let tag = |key: &str| group.tags.get(key).cloned().unwrap_or_default();
        let (cluster, role) = (tag("slipway:cluster"), tag("slipway:role"));
        if role.starts_with("etcd-") {
            self.forgets_member(&cluster, &role);
        }
        if role.starts_with("etcd-") && groups_of(self.fleet.groups.values(), &cluster, "etcd-").is_empty() {
            self.loses_etcd(&cluster);
        }
    }

    /// Makes a group retain that machine, as if nobody had drained it when its hook ended.
    pub fn keep_machine(&mut self, id: &str) {
        let Some(machine) = self.fleet.machines.get_mut(id) else { return };
        machine.waits = None;
        machine.state = State::TerminatingRetained;
        let group = machine.group.clone();
        self.record(format!("{group} keeps {id}, which nobody has drained"));
        self.reconcile_soon(&group);
    }

    /// Somebody has changed a group by hand: `resource` has its properties as they are now.
    pub(in crate::world) fn group_is_set(&mut self, resource: &Resource) {
        if let Some(id) = resource.physical_id.clone().filter(|_| resource.kind == GROUP) {
            self.group_applied(&id, resource);
            self.remember_group(&id);
        }
    }

    fn group_applied(&mut self, name: &str, resource: &Resource) {
        let properties = &resource.properties;
        let (min, max) = (number(properties, "MinSize"), number(properties, "MaxSize"));
        let (min, max) = (min.unwrap_or_default(), max.unwrap_or_default());
        let before = self.fleet.groups.get(name).cloned();
        let created_at = before.as_ref().map_or(self.now, |group| group.created_at);
        let desired = number(properties, "DesiredCapacity").or(before.as_ref().map(|group| group.desired));
        let desired = desired.unwrap_or(min).clamp(min, max.max(min));
        let group = Group {
            name: name.to_owned(),
            min,
            max,
            desired,
            template: self.template_of(properties),
            weights: weights(properties),
            zones: self.zones_of(properties),
            launch_hook: hook(properties, "autoscaling:EC2_INSTANCE_LAUNCHING"),
            terminate_hook: hook(properties, "autoscaling:EC2_INSTANCE_TERMINATING"),
            retains: properties.pointer("/InstanceLifecyclePolicy/RetentionTriggers/TerminateHookAbandon")
                == Some(&Value::from("retain")),
            tags: tags(resource),
            created_at,
            ahead: before.as_ref().and_then(|group| group.ahead.clone()),
            rebalances: before.as_ref().is_some_and(|group| group.rebalances),
            replaces_spot: properties.get("CapacityRebalance") == Some(&Value::Bool(true)),
            no_capacity: before.as_ref().is_some_and(|group| group.no_capacity),
            suspended: before.map(|group| group.suspended).unwrap_or_default(),
            target_groups: texts(properties, "TargetGroupARNs"),
        };
        self.fleet.groups.insert(name.to_owned(), group);
        self.registers_all(name);
        self.reconcile_soon(name);
    }

    /// Applies a hook that is a resource of its own.
    fn hook_applied(&mut self, name: &str, properties: &Value, is_there: bool) {
        let group = properties.get("AutoScalingGroupName").and_then(Value::as_str).unwrap_or_default();
        let launches = text(properties, "LifecycleTransition") == "autoscaling:EC2_INSTANCE_LAUNCHING";
        let Some(group) = self.fleet.groups.get_mut(group) else { return };
        let place = if launches { &mut group.launch_hook } else { &mut group.terminate_hook };
        *place = is_there.then(|| Hook { name: name.to_owned(), ..read_hook(properties) });
    }

    /// The template that a group launches, with its present version number.
    fn template_of(&self, properties: &Value) -> Option<TemplateVersion> {
        let mixed = properties.pointer("/MixedInstancesPolicy/LaunchTemplate/LaunchTemplateSpecification");
        let specification = properties.get("LaunchTemplate").or(mixed)?;
        let id = match specification.get("LaunchTemplateId").and_then(Value::as_str) {
            Some(id) => id.to_owned(),
            None => self.template_by_name(text(specification, "LaunchTemplateName"))?,
        };
        Some(TemplateVersion { id, version: text(specification, "Version").to_owned() })
    }

    fn template_by_name(&self, name: &str) -> Option<String> {
        let stacks = self.all_stacks().filter(|stack| !stack.is_deleted());
        let mut found = stacks.flat_map(|stack| stack.resources.values());
        let found = found.find(|one| {
            one.kind == TEMPLATE
                && one
                    .physical_id
                    .as_deref()
                    .is_some_and(|id| physical::identity(TEMPLATE, id, &one.properties) == name)
        });
        found?.physical_id.clone()
    }

    /// The content of a version of a template.
    pub(super) fn template_data(&self, template: &TemplateVersion) -> Option<(u64, &Value)> {
        let versions = self.fleet.templates.get(&template.id)?;
        let found = match template.version.as_str() {
            "$Latest" => versions.last_key_value(),
            "$Default" => versions.first_key_value(),
            number => versions.get_key_value(&number.parse().ok()?),
        };
        found.map(|(number, data)| (*number, data))
    }

    /// The zones of a group's subnets. A subnet that this world did not make gets any zone.
    fn zones_of(&self, properties: &Value) -> Vec<String> {
        let all = self.config.zones();
        let subnets = properties.get("VPCZoneIdentifier").and_then(Value::as_array);
        let subnets = subnets.into_iter().flatten().filter_map(Value::as_str);
        let mut zones: Vec<String> = Vec::new();
        for (index, subnet) in subnets.enumerate() {
            let made = self.things.get(&("AWS::EC2::Subnet".to_owned(), subnet.to_owned()));
            let zone = made.map(|thing| text(&thing.properties, "AvailabilityZone").to_owned());
            let zone = zone.filter(|zone| !zone.is_empty()).unwrap_or_else(|| all[index % all.len()].clone());
            if !zones.contains(&zone) {
                zones.push(zone);
            }
        }
        if zones.is_empty() { all } else { zones }
    }

    pub(super) fn reconcile_soon(&mut self, group: &str) {
        let seconds = self.draw_s("look at a group", LOOKS_S.0, LOOKS_S.1);
        self.fleet_after_s(seconds, FleetTask::Reconcile { group: group.to_owned() });
    }

    /// The ids of the machines of a group, in the order of their launch.
    pub(super) fn machines_of(&self, group: &str) -> Vec<String> {
        let machines = self.fleet.machines.values().filter(|machine| machine.group == group);
        let mut machines: Vec<_> =
            machines.map(|machine| (machine.launched_at, machine.id.clone())).collect();
        machines.sort();
        machines.into_iter().map(|(_, id)| id).collect()
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn texts(value: &Value, key: &str) -> BTreeSet<String> {
    let found = value.get(key).and_then(Value::as_array).into_iter().flatten();
    found.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn number(value: &Value, key: &str) -> Option<u32> {
    let value = value.get(key)?;
    let found = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
    u32::try_from(found).ok()
}

/// `WeightedCapacity` of the overrides, which all have one or none has (botocore, `LaunchTemplateOverrides`).
fn weights(properties: &Value) -> Vec<u32> {
    let overrides = properties.pointer("/MixedInstancesPolicy/LaunchTemplate/Overrides");
    let overrides = overrides.and_then(Value::as_array).into_iter().flatten();
    overrides.filter_map(|one| number(one, "WeightedCapacity")).collect()
}

fn hook(properties: &Value, transition: &str) -> Option<Hook> {
    let hooks = properties.get("LifecycleHookSpecificationList").and_then(Value::as_array)?;
    hooks.iter().find(|one| text(one, "LifecycleTransition") == transition).map(read_hook)
}

fn read_hook(properties: &Value) -> Hook {
    Hook {
        name: text(properties, "LifecycleHookName").to_owned(),
        heartbeat_s: number(properties, "HeartbeatTimeout").unwrap_or(3_600),
        default: match text(properties, "DefaultResult") {
            "CONTINUE" => HookResult::Continue,
            _ => HookResult::Abandon,
        },
    }
}

/// The group's own tags, and those of its stack.
fn tags(resource: &Resource) -> BTreeMap<String, String> {
    resource.stack_tags.clone().into_iter().chain(listed(resource.properties.get("Tags"))).collect()
}

/// The tags that a launch template with this `LaunchTemplateData` gives its machines.
pub(super) fn machine_tags(data: &Value) -> BTreeMap<String, String> {
    let all = data.get("TagSpecifications").and_then(Value::as_array).into_iter().flatten();
    let of_machines = all.filter(|one| text(one, "ResourceType") == "instance");
    of_machines.flat_map(|one| listed(one.get("Tags"))).collect()
}

fn listed(tags: Option<&Value>) -> impl Iterator<Item = (String, String)> {
    let tags = tags.and_then(Value::as_array).into_iter().flatten();
    tags.map(|tag| (text(tag, "Key").to_owned(), text(tag, "Value").to_owned()))
}
