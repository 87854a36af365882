//! Pools of several instance types, spot instances and weights.

use slipway_core::cluster::{Architecture, MixedInstances, WeightedType};

use super::{Lowering, word};
use crate::model::{MixedInstancesSpec, OnDemandStrategySpec, PoolSpec, WeightedTypeSpec};
use crate::path::Path;

/// Amazon's own advice for most workloads.
const SPOT_STRATEGY: &str = "price-capacity-optimized";

/// Auto Scaling's own limit.
const MOST_TYPES: usize = 40;

impl Lowering<'_, '_, '_> {
    pub(super) fn mixed_instances(&mut self, spec: &PoolSpec, path: &Path) -> Option<MixedInstances> {
        // kube-aws had it below `autoScalingGroup`, off unless it was switched on.
        let below = spec.auto_scaling_group.as_ref().and_then(|group| group.mixed_instances.as_ref());
        let below = below.filter(|mixed| mixed.enabled == Some(true));
        let ways = [
            ("mixedInstances", spec.mixed_instances.is_some()),
            ("autoScalingGroup", below.is_some()),
            ("spotFleet", spec.spot_fleet.is_some()),
            ("spotPrice", spec.spot_price.is_some()),
        ];
        let ways: Vec<&str> = ways.into_iter().filter(|(_, given)| *given).map(|(key, _)| key).collect();
        if let [first, second, ..] = ways.as_slice() {
            let message = format!("`{first}` and `{second}` both say how the pool is made up");
            self.report.error("given-twice", &path.key(second), message, "keep `mixedInstances`");
            return None;
        }
        let spot = |types| MixedInstances {
            types,
            on_demand_base: 0,
            on_demand_percentage: 0,
            on_demand_strategy: None,
            spot_strategy: SPOT_STRATEGY.to_owned(),
            capacity_rebalance: true,
        };
        let own = || {
            let instance_type =
                spec.instance_type.clone().unwrap_or_else(|| super::nodes::INSTANCE_TYPE.to_owned());
            vec![WeightedType { instance_type, weight: None }]
        };
        if let Some(mixed) = &spec.mixed_instances {
            return self.mixed(mixed, &path.key("mixedInstances"), own);
        }
        if let Some(mixed) = below {
            return self.mixed(mixed, &path.key("autoScalingGroup").key("mixedInstances"), own);
        }
        if let Some(fleet) = &spec.spot_fleet {
            let types = self
                .weighted(&fleet.launch_specifications, &path.key("spotFleet").key("launchSpecifications"));
            return Some(spot(if types.is_empty() { own() } else { types }));
        }
        spec.spot_price.as_ref().map(|_| spot(own()))
    }

    fn mixed(
        &mut self,
        spec: &MixedInstancesSpec,
        path: &Path,
        own: impl Fn() -> Vec<WeightedType>,
    ) -> Option<MixedInstances> {
        if spec.enabled == Some(false) {
            return None;
        }
        if !spec.instance_types.is_empty() && !spec.overrides.is_empty() {
            let message = "`instanceTypes` and `overrides` both name the instance types";
            self.report.error(
                "given-twice",
                &path.key("overrides"),
                message,
                "keep `overrides` if types have weights, else `instanceTypes`",
            );
        }
        let plain = path.key("instanceTypes");
        for (path, count) in
            [(plain.clone(), spec.instance_types.len()), (path.key("overrides"), spec.overrides.len())]
        {
            if count > MOST_TYPES {
                let message =
                    format!("`{path}` has {count} types; Auto Scaling takes {MOST_TYPES} in one group");
                self.report.error(
                    "too-many-types",
                    &path,
                    message,
                    "keep those that are alike, or make two pools",
                );
                return None;
            }
        }
        for (index, name) in spec.instance_types.iter().enumerate() {
            self.check_instance_type(name, &plain.index(index));
            if spec.instance_types[..index].contains(name) {
                self.named_twice(name, &plain.index(index));
            }
        }
        let mut types = self.weighted(&spec.overrides, &path.key("overrides"));
        types.extend(
            spec.instance_types.iter().map(|name| WeightedType { instance_type: name.clone(), weight: None }),
        );
        let on_demand_percentage = spec.on_demand_percentage_above_base_capacity.unwrap_or(0);
        Some(MixedInstances {
            types: if types.is_empty() { own() } else { types },
            on_demand_base: spec.on_demand_base_capacity.unwrap_or(0),
            on_demand_percentage,
            // EC2's own default is not rendered: saying it must change nothing.
            on_demand_strategy: spec.on_demand_allocation_strategy.and_then(|strategy| match strategy {
                OnDemandStrategySpec::Prioritized => None,
                OnDemandStrategySpec::LowestPrice => Some("lowest-price".to_owned()),
            }),
            spot_strategy: spec.spot_allocation_strategy.map_or_else(|| SPOT_STRATEGY.to_owned(), word),
            // Where spot instances are used, a replacement comes up before the warned instance is taken.
            capacity_rebalance: on_demand_percentage < 100 && spec.capacity_rebalance.unwrap_or(true),
        })
    }

    /// Types with weights: Auto Scaling wants one for each type or for none, so an absent weight is 1, and where all are 1 there
    /// are none.
    fn weighted(&mut self, specs: &[WeightedTypeSpec], path: &Path) -> Vec<WeightedType> {
        let weigh = specs.iter().any(|spec| spec.weighted_capacity.is_some_and(|weight| weight != 1));
        let mut types: Vec<WeightedType> = Vec::new();
        for (index, spec) in specs.iter().enumerate() {
            let Some(instance_type) = spec.instance_type.clone() else { continue };
            let path = path.index(index).key("instanceType");
            self.check_instance_type(&instance_type, &path);
            if types.iter().any(|other| other.instance_type == instance_type) {
                self.named_twice(&instance_type, &path);
            }
            types.push(WeightedType {
                instance_type,
                weight: weigh.then(|| spec.weighted_capacity.unwrap_or(1)),
            });
        }
        types
    }

    /// Auto Scaling takes no two overrides of one type.
    fn named_twice(&mut self, name: &str, path: &Path) {
        let help = "name each instance type once";
        self.report.error("duplicate-name", path, format!("`{name}` is named twice"), help);
    }

    /// A pool has one image, so one architecture.
    pub(super) fn one_architecture(&mut self, types: &[String], path: &Path) {
        let mut architectures = types.iter().map(|name| Architecture::of_instance_type(name));
        if let Some(first) = architectures.next()
            && architectures.any(|other| other != first)
        {
            let help = "make one pool for Graviton and one for Intel and AMD: a pool has one image";
            self.report.error(
                "mixed-architectures",
                path,
                "the pool's instance types have different architectures",
                help,
            );
        }
    }
}
