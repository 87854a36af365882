//! What Auto Scaling may do to nodes by itself once the stack of their group is updated.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use slipway_core::cluster::GroupSize;
use slipway_core::release::{NodeRole, Rendering, Stack, StackKind};
use slipway_core::role::Role;

use super::stacks::parse;
use super::words::short;

/// A reason for which Auto Scaling terminates nodes by itself (P6): no step of the rollout, no maintenance window and no budget holds it back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Undrained {
    /// The reason.
    pub cause: UndrainedCause,
    /// What it may do and when, and what to do beforehand.
    pub words: String,
}

/// Why Auto Scaling terminates nodes by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum UndrainedCause {
    /// The group's maximum is lowered: surplus nodes are terminated when its stack is updated.
    LowerMaximum,
    /// The group loses subnets: the nodes in them are terminated when its stack is updated.
    LeavesSubnets,
    /// The group's minimum is lowered: no node is terminated until something scales the group.
    LowerMinimum,
    /// The group gains zones: Auto Scaling may launch nodes there and terminate others.
    GainsZones,
    /// The group's mix of on-demand and Spot instances changes: Auto Scaling gradually replaces nodes.
    OtherPurchases,
}

impl UndrainedCause {
    /// What happens to nodes of the group.
    #[must_use]
    pub const fn effect(self) -> GroupEffect {
        match self {
            Self::LowerMaximum | Self::LeavesSubnets => GroupEffect::Terminates,
            Self::GainsZones | Self::OtherPurchases => GroupEffect::Replaces,
            Self::LowerMinimum => GroupEffect::Nothing,
        }
    }
}

/// What Auto Scaling does to nodes of a group once its stack is updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupEffect {
    /// It terminates several at once.
    Terminates,
    /// It launches others, then terminates some.
    Replaces,
    /// Nothing, before something scales the group.
    Nothing,
}

/// A role as it is deployed, or as it will be, with the rendering that it is part of.
#[derive(Clone, Copy)]
pub(super) struct Placed<'r> {
    pub(super) node: &'r NodeRole,
    pub(super) rendering: &'r Rendering,
}

impl<'r> Placed<'r> {
    fn stack(self) -> Option<&'r Stack> {
        self.rendering.stack(&self.node.stack)
    }
}

/// Everything that the update of the group of `role` may have Auto Scaling do.
pub(super) fn undrained(role: &Role, before: Placed<'_>, after: Placed<'_>) -> Vec<Undrained> {
    let mut found: Vec<Undrained> = smaller(role, before.node.nodes, after.node.nodes).into_iter().collect();
    // Without nodes there is nothing to terminate or to replace.
    let (Some(old), Some(new)) = (before.stack(), after.stack()) else { return found };
    if before.node.nodes.max == 0 || old.sha256 == new.sha256 {
        return found;
    }
    let (old, new) = (Group::from_stack(old), Group::from_stack(new));
    // For etcd members, the change of the volume's zone says it.
    if role.member().is_none() {
        found.extend(leaves(role, &old, &new));
        found.extend(joins(role, before, after, &old, &new));
    }
    found.extend(purchases(&old, &new));
    found
}

/// The group's limits are lowered.
fn smaller(role: &Role, before: GroupSize, after: GroupSize) -> Option<Undrained> {
    // The group of the controllers has a fixed size: a terminated controller is replaced by Auto Scaling. A plan in which controllers
    // would be terminated in this way is refused.
    let pool = *role != Role::Controller;
    if after.max < before.max && (pool || !one_fewer(before, after)) {
        let before_that = format!("; drain and terminate them before, if more than {} run", after.max);
        let words = format!(
            "the group's maximum falls from {} to {}: when its stack is updated, Auto Scaling may terminate up to {} of its nodes at once, \
             undrained{}",
            before.max,
            after.max,
            before.max - after.max,
            if pool { before_that.as_str() } else { "" }
        );
        return Some(Undrained { cause: UndrainedCause::LowerMaximum, words });
    }
    (pool && after.min < before.min).then(|| {
        let words = format!(
            "the group's minimum falls from {} to {}: no node goes by that, but whatever scales the group may then have Auto Scaling \
             terminate nodes at once, undrained",
            before.min, after.min
        );
        Undrained { cause: UndrainedCause::LowerMinimum, words }
    })
}

/// Whether a controllers' group gets one machine fewer. The maximum of these groups is one more than the count, so such an update
/// terminates none by itself.
pub(super) const fn one_fewer(before: GroupSize, after: GroupSize) -> bool {
    before.max == after.max + 1
}

/// The group loses subnets.
fn leaves(role: &Role, old: &Group, new: &Group) -> Option<Undrained> {
    let removed = Group::besides(old, new);
    let pool = *role != Role::Controller;
    (!removed.is_empty()).then(|| {
        let words = format!(
            "the group leaves {}: when its stack is updated, Auto Scaling may terminate the nodes there at once, undrained, and launch \
             others elsewhere{}",
            names(&removed),
            if pool { "; drain and terminate them one at a time before, if they must not go so" } else { "" }
        );
        Undrained { cause: UndrainedCause::LeavesSubnets, words }
    })
}

/// The group gains zones. "Rebalancing activities" (EC2 Auto Scaling user guide): after a change of zones, Auto Scaling launches instances in
/// the new ones before it terminates others. A group with one node is in balance whatever its zones.
fn joins(role: &Role, before: Placed<'_>, after: Placed<'_>, old: &Group, new: &Group) -> Option<Undrained> {
    let added = Group::besides(new, old);
    let staying: Vec<&Value> = old.subnets.iter().filter(|subnet| new.subnets.contains(subnet)).collect();
    // The maximum of the controllers' group is one more than their count.
    let size = before.node.nodes;
    let most = if *role == Role::Controller { size.min } else { size.max };
    if added.is_empty() || staying.is_empty() || most < 2 {
        return None;
    }
    let had = zones(before.rendering, &staying);
    let gains = zones(after.rendering, &added);
    // Balance is between zones, not subnets. The zone of an existing subnet is not known here.
    if gains.iter().all(|zone| zone.is_some() && had.contains(zone)) {
        return None;
    }
    let whom = if *role == Role::Controller {
        "it launches controllers there first, and then terminates others that are in service"
    } else {
        "it launches nodes there first, and then terminates others, which are drained in their terminate hook"
    };
    let words = format!(
        "the group gains {}: once its stack is updated, Auto Scaling may rebalance its zones by itself: {whom}, whatever the maintenance \
         windows, `maxUnavailable` and budgets of the rollout say",
        names(&added)
    );
    Some(Undrained { cause: UndrainedCause::GainsZones, words })
}

/// The group's mix of on-demand and Spot instances changes. "An update to this setting means a gradual replacement of instances": API reference
/// of EC2 Auto Scaling, `InstancesDistribution`.
fn purchases(old: &Group, new: &Group) -> Option<Undrained> {
    (old.split != new.split).then(|| {
        let all_spot = if new.split == Split::ALL_SPOT {
            "; afterwards all are Spot instances, which EC2 may take back at two minutes' notice, all of a type and zone at once"
        } else {
            ""
        };
        let words = format!(
            "the group's mix of On-Demand and Spot instances changes from {} to {}. When its stack is updated, Auto Scaling gradually replaces nodes by itself: it \
             launches others first, and then terminates nodes, which are drained in their terminate hook, whatever the maintenance \
             windows, `maxUnavailable` and budgets of the rollout say{all_spot}",
            old.split.words(),
            new.split.words()
        );
        Undrained { cause: UndrainedCause::OtherPurchases, words }
    })
}

fn names(subnets: &[&Value]) -> String {
    // A managed subnet is named by the network stack's export.
    let name = |subnet: &&Value| {
        let name = subnet.get("Fn::ImportValue").unwrap_or(subnet);
        name.as_str().map_or_else(|| short(Some(name)), str::to_owned)
    };
    subnets.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// The zone of each subnet that the network stack makes.
fn zones(rendering: &Rendering, subnets: &[&Value]) -> Vec<Option<String>> {
    let network = rendering.stacks.iter().find(|stack| stack.kind == StackKind::Network);
    let template = network.map(parse).unwrap_or_default();
    let outputs = template.get("Outputs").and_then(Value::as_object);
    let zone = |subnet: &&Value| {
        let name = subnet.get("Fn::ImportValue")?;
        let output = outputs?.values().find(|one| one.pointer("/Export/Name") == Some(name))?;
        let id = output.pointer("/Value/Ref")?.as_str()?;
        let zone = template.get("Resources")?.get(id)?.pointer("/Properties/AvailabilityZone")?;
        zone.as_str().map(str::to_owned)
    };
    subnets.iter().map(zone).collect()
}

/// What the template of a stack says of its groups.
struct Group {
    subnets: Vec<Value>,
    split: Split,
}

impl Group {
    fn from_stack(stack: &Stack) -> Self {
        let template = parse(stack);
        let resources = template.get("Resources").and_then(Value::as_object);
        let groups: Vec<&Map<String, Value>> = resources
            .into_iter()
            .flat_map(|all| all.values())
            .filter_map(|one| one.get("Properties")?.as_object())
            .filter(|properties| properties.contains_key("VPCZoneIdentifier"))
            .collect();
        let lists = groups.iter().filter_map(|group| group.get("VPCZoneIdentifier")?.as_array());
        let subnets = lists.flatten().cloned().collect();
        let split = groups.iter().find_map(|group| group.get("MixedInstancesPolicy"));
        Self { subnets, split: split.map_or(Split::ALL_ON_DEMAND, Split::from_policy) }
    }

    /// The subnets of `one` that `other` does not have.
    fn besides<'g>(one: &'g Self, other: &Self) -> Vec<&'g Value> {
        one.subnets.iter().filter(|subnet| !other.subnets.contains(subnet)).collect()
    }
}

/// How many machines of a group are bought on demand; the others are Spot instances.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Split {
    base: u64,
    percentage: u64,
}

impl Split {
    const ALL_ON_DEMAND: Self = Self { base: 0, percentage: 100 };
    const ALL_SPOT: Self = Self { base: 0, percentage: 0 };

    /// The defaults are those of `InstancesDistribution`.
    fn from_policy(policy: &Value) -> Self {
        let number = |key: &str| policy.pointer(&format!("/InstancesDistribution/{key}"))?.as_u64();
        match number("OnDemandPercentageAboveBaseCapacity") {
            // Whatever the base is, all are on demand.
            None | Some(100) => Self::ALL_ON_DEMAND,
            Some(percentage) => Self { base: number("OnDemandBaseCapacity").unwrap_or(0), percentage },
        }
    }

    fn words(self) -> String {
        match self {
            Self::ALL_ON_DEMAND => "all on demand".to_owned(),
            Self::ALL_SPOT => "all Spot".to_owned(),
            Self { base: 0, percentage } => format!("{percentage} % on demand"),
            Self { base, percentage } => format!("{base} and {percentage} % of the others on demand"),
        }
    }
}
