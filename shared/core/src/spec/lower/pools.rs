//! Pools of workers.

use super::network::Draft;
use super::nodes::ROOT_GIB;
use super::text::{arn, is_label_key, is_label_value, is_name};
use super::{Lowering, fold};
use crate::cluster::{
    Architecture, GroupSize, KubernetesVersion, MixedInstances, NodePool, PoolStrategy, Taint, WeightedType,
};
use crate::spec::model::{
    MixedInstancesSpec, PoolSpec, PoolStrategySpec, SpotStrategySpec, TaintEffect, TaintSpec,
    WeightedTypeSpec,
};
use crate::spec::path::Path;
use crate::versions::KUBELET_LAG;

/// Amazon's own advice for most workloads.
const SPOT_STRATEGY: &str = "price-capacity-optimized";

impl Lowering<'_, '_, '_> {
    pub(super) fn pools(
        &mut self,
        cluster: Option<&str>,
        version: Option<KubernetesVersion>,
        network: &Draft,
    ) -> Vec<NodePool> {
        let specs = &self.spec.worker.node_pools;
        let root = Path::of("worker.nodePools");
        if specs.is_empty() && !self.report.refused(&Path::of("worker")) {
            let help =
                "add `worker: {nodePools: [{name: general, count: 2}]}`, unless pods are to wait for one";
            self.report.warning("no-pool", &root, "the cluster has no pool of workers", help);
        }
        let pools = specs
            .iter()
            .enumerate()
            .filter_map(|(index, pool)| self.pool(pool, cluster, version, &root.index(index), network))
            .collect();
        let names = specs
            .iter()
            .enumerate()
            .filter_map(|(index, pool)| Some((pool.name.as_deref()?, root.index(index).key("name"))));
        self.unique(names, "pool", fold);
        pools
    }

    fn pool(
        &mut self,
        spec: &PoolSpec,
        cluster: Option<&str>,
        version: Option<KubernetesVersion>,
        path: &Path,
        network: &Draft,
    ) -> Option<NodePool> {
        let stack = cluster.zip(spec.name.as_deref()).map(|(cluster, name)| format!("{cluster}-pool-{name}"));
        if let Some(name) = &spec.name {
            self.pool_name(name, &path.key("name"));
        }
        let mixed_instances = self.mixed_instances(spec, path);
        let first = mixed_instances
            .as_ref()
            .and_then(|mixed| mixed.types.first())
            .map(|first| first.instance_type.as_str());
        let instance_type = self.instance_type(spec.instance_type.as_deref().or(first), path);
        if let Some(mixed) = &mixed_instances {
            self.one_architecture(mixed, &path.key("mixedInstances"));
        }
        let subnets = self.pool_subnets(spec, path, network);
        let cluster_autoscaler = spec.autoscaling.cluster_autoscaler.enabled;
        if cluster_autoscaler {
            self.autoscaled(&subnets, path, network);
        }
        self.security_groups(&spec.security_group_ids, &path.key("securityGroupIds"));
        self.labels(&spec.node_labels, &path.key("nodeLabels"));
        let target_group_arns = self.target_groups(spec, path);
        Some(NodePool {
            name: spec.name.clone()?,
            instance_type,
            kubernetes_version: self.pool_version(spec.kubernetes_version.as_deref(), version, path),
            image: self.own_image(spec.ami_id.as_deref(), spec.image.as_ref(), path),
            root_volume: self.volume(&spec.root_volume, ROOT_GIB, &path.key("rootVolume"))?,
            subnets,
            size: self.size(spec, path),
            mixed_instances,
            cluster_autoscaler,
            security_group_ids: spec.security_group_ids.clone(),
            target_group_arns,
            iam: self.iam(&spec.iam, stack, "", &path.key("iam")),
            node_labels: spec.node_labels.clone(),
            taints: self.taints(&spec.taints, &path.key("taints")),
        })
    }

    /// The pool's own release, if it is another than the controllers': kubelets may lag behind the API server, and never lead
    /// (kubernetes.io/releases/version-skew-policy).
    fn pool_version(
        &mut self,
        text: Option<&str>,
        cluster: Option<KubernetesVersion>,
        path: &Path,
    ) -> Option<KubernetesVersion> {
        let path = path.key("kubernetesVersion");
        let own = self.release(text?, &path)?;
        let cluster = cluster?;
        if own.minor > cluster.minor {
            let message = format!(
                "kubelets of {own} would be newer than the API server, whose `kubernetesVersion` is {cluster}"
            );
            let help = format!(
                "write 1.{} at most, or raise the cluster's `kubernetesVersion` first",
                cluster.minor
            );
            self.report.error("kubelet-skew", &path, message, help);
        } else if cluster.minor - own.minor > KUBELET_LAG {
            let message = format!(
                "kubelets of {own} are {} minors behind the API server, whose `kubernetesVersion` is {cluster}",
                cluster.minor - own.minor
            );
            let help = format!(
                "write 1.{} or newer: {KUBELET_LAG} minors are the most",
                cluster.minor - KUBELET_LAG
            );
            self.report.error("kubelet-skew", &path, message, help);
        }
        Some(own).filter(|own| *own != cluster)
    }

    /// Its longest stack, `<cluster>-pool-<name>` with 56 and 63 characters, stays below CloudFormation's 128.
    fn pool_name(&mut self, name: &str, path: &Path) {
        if !is_name(name) {
            self.report.error(
                "name-syntax",
                path,
                format!("`{name}` cannot be a pool's name"),
                "begin with a letter, go on with letters, digits and hyphens, 63 at most: a stack is named after it",
            );
        }
    }

    fn pool_subnets(&mut self, spec: &PoolSpec, path: &Path, network: &Draft) -> Vec<String> {
        let mut default = network.names_for_nodes();
        if let Some(zone) = &spec.availability_zone {
            let zone_path = path.key("availabilityZone");
            if !spec.subnets.is_empty() {
                let message = "`availabilityZone` and `subnets` both say where the pool stands";
                self.report.error("given-twice", &zone_path, message, "keep `subnets`");
            }
            default
                .retain(|name| network.subnet(name).is_some_and(|subnet| subnet.availability_zone == *zone));
            if default.is_empty() && !network.incomplete {
                let help = "write `subnets` with the names of those that the pool is to stand in";
                self.report.error(
                    "unknown-zone",
                    &zone_path,
                    format!("no subnet for nodes lies in `{zone}`"),
                    help,
                );
            }
        }
        self.subnet_names(&spec.subnets, &path.key("subnets"), default, network)
    }

    /// The cluster autoscaler asks for a node, not for a zone: a group in several gives it the wrong one
    /// (seed 001; kubernetes/autoscaler, "Common notes and gotchas" of its AWS provider).
    fn autoscaled(&mut self, subnets: &[String], path: &Path, network: &Draft) {
        let switch = path.key("autoscaling").key("clusterAutoscaler").key("enabled");
        let mut zones: Vec<&str> = subnets
            .iter()
            .filter_map(|name| network.subnet(name))
            .map(|subnet| subnet.availability_zone.as_str())
            .collect();
        zones.sort_unstable();
        zones.dedup();
        if zones.len() > 1 {
            let written = path.key("subnets");
            let path = if self.report.has(&written) { written } else { switch.clone() };
            let message = format!(
                "the cluster autoscaler cannot scale a pool that stands in several zones ({})",
                zones.join(", ")
            );
            self.report.error(
                "autoscaler-zones",
                &path,
                message,
                "make one pool for each zone, with `subnets` in that zone alone",
            );
        }
        if !self.spec.addons.cluster_autoscaler.enabled {
            let help = "add `addons: {clusterAutoscaler: {enabled: true}}`";
            self.report.warning(
                "autoscaler-off",
                &switch,
                "nothing scales this pool: the add-on is off",
                help,
            );
        }
    }

    fn size(&mut self, spec: &PoolSpec, path: &Path) -> GroupSize {
        let fleet = spec.spot_fleet.as_ref().and_then(|fleet| fleet.target_capacity);
        let given = [
            ("count", spec.count.is_some()),
            (
                "autoScalingGroup",
                spec.auto_scaling_group
                    .as_ref()
                    .is_some_and(|group| group.min_size.or(group.max_size).is_some()),
            ),
            ("spotFleet", fleet.is_some()),
        ];
        let given: Vec<&str> = given.into_iter().filter(|(_, given)| *given).map(|(key, _)| key).collect();
        if let [first, second, ..] = given.as_slice() {
            let message = format!("`{first}` and `{second}` both give the pool's size");
            self.report.error(
                "given-twice",
                &path.key(second),
                message,
                "keep `autoScalingGroup: {minSize, maxSize}`, or `count` for a fixed size",
            );
        }
        let size = match (&spec.auto_scaling_group, fleet) {
            (_, Some(capacity)) => GroupSize { min: capacity, max: capacity },
            (Some(group), None) => {
                let min = group.min_size.or(group.max_size).or(spec.count).unwrap_or(1);
                GroupSize { min, max: group.max_size.or(group.min_size).or(spec.count).unwrap_or(1) }
            }
            (None, None) => {
                let count = spec.count.unwrap_or(1);
                GroupSize { min: count, max: count }
            }
        };
        let place = path.key(given.first().copied().unwrap_or("name"));
        if size.min > size.max {
            let message = format!("`minSize` is {}, above the `maxSize` of {}", size.min, size.max);
            self.report.error(
                "group-size",
                &place.key("minSize"),
                message,
                "write a `minSize` that is not above `maxSize`",
            );
        } else if size.max == 0 {
            let help = "give it a size, or remove the pool";
            self.report.warning("empty-pool", &place, "the pool never has a node", help);
        }
        size
    }

    fn mixed_instances(&mut self, spec: &PoolSpec, path: &Path) -> Option<MixedInstances> {
        let ways = [
            ("mixedInstances", spec.mixed_instances.is_some()),
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
            spot_strategy: SPOT_STRATEGY.to_owned(),
        };
        let own = || {
            let instance_type =
                spec.instance_type.clone().unwrap_or_else(|| super::nodes::INSTANCE_TYPE.to_owned());
            vec![WeightedType { instance_type, weight: None }]
        };
        if let Some(mixed) = &spec.mixed_instances {
            return self.mixed(mixed, &path.key("mixedInstances"), own);
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
        for (index, name) in spec.instance_types.iter().enumerate() {
            self.check_instance_type(name, &plain.index(index));
        }
        let mut types = self.weighted(&spec.overrides, &path.key("overrides"));
        types.extend(
            spec.instance_types.iter().map(|name| WeightedType { instance_type: name.clone(), weight: None }),
        );
        let strategy = match spec.spot_allocation_strategy {
            None | Some(SpotStrategySpec::PriceCapacityOptimized) => SPOT_STRATEGY,
            Some(SpotStrategySpec::CapacityOptimized) => "capacity-optimized",
            Some(SpotStrategySpec::CapacityOptimizedPrioritized) => "capacity-optimized-prioritized",
            Some(SpotStrategySpec::LowestPrice) => "lowest-price",
        };
        Some(MixedInstances {
            types: if types.is_empty() { own() } else { types },
            on_demand_base: spec.on_demand_base_capacity.unwrap_or(0),
            on_demand_percentage: spec.on_demand_percentage_above_base_capacity.unwrap_or(0),
            spot_strategy: strategy.to_owned(),
        })
    }

    /// Types with weights: Auto Scaling wants one for each type or for none, so an absent weight is 1.
    fn weighted(&mut self, specs: &[WeightedTypeSpec], path: &Path) -> Vec<WeightedType> {
        let weigh = specs.iter().any(|spec| spec.weighted_capacity.is_some());
        let mut types: Vec<WeightedType> = Vec::new();
        for (index, spec) in specs.iter().enumerate() {
            let Some(instance_type) = spec.instance_type.clone() else { continue };
            let path = path.index(index).key("instanceType");
            self.check_instance_type(&instance_type, &path);
            if types.iter().any(|other| other.instance_type == instance_type) {
                self.report.error(
                    "duplicate-name",
                    &path,
                    format!("`{instance_type}` is named twice"),
                    "name each instance type once",
                );
            }
            types.push(WeightedType {
                instance_type,
                weight: weigh.then(|| spec.weighted_capacity.unwrap_or(1)),
            });
        }
        types
    }

    fn one_architecture(&mut self, mixed: &MixedInstances, path: &Path) {
        let mut architectures =
            mixed.types.iter().map(|of| Architecture::of_instance_type(&of.instance_type));
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

    fn target_groups(&mut self, spec: &PoolSpec, path: &Path) -> Vec<String> {
        let path = path.key("targetGroup").key("arns");
        for (index, text) in spec.target_group.arns.iter().enumerate() {
            if arn(text, "elasticloadbalancing")
                .is_none_or(|(_, resource)| !resource.starts_with("targetgroup/"))
            {
                let help = "write one such as `arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/name/0123456789abcdef`";
                self.report.error(
                    "arn-syntax",
                    &path.index(index),
                    format!("`{text}` is no ARN of a target group"),
                    help,
                );
            }
        }
        if spec.target_group.enabled == Some(false) { Vec::new() } else { spec.target_group.arns.clone() }
    }

    fn taints(&mut self, specs: &[TaintSpec], path: &Path) -> Vec<Taint> {
        let mut taints: Vec<Taint> = Vec::new();
        for (index, spec) in specs.iter().enumerate() {
            let path = path.index(index);
            let (Some(key), Some(effect)) = (&spec.key, spec.effect) else { continue };
            let effect = match effect {
                TaintEffect::NoSchedule => "NoSchedule",
                TaintEffect::PreferNoSchedule => "PreferNoSchedule",
                TaintEffect::NoExecute => "NoExecute",
            };
            if !is_label_key(key) {
                let help = "write a name of 63 characters at most (letters, digits, `-_.`), perhaps with a DNS prefix: `example.com/name`";
                self.report.error(
                    "taint-syntax",
                    &path.key("key"),
                    format!("`{key}` cannot be a taint's key"),
                    help,
                );
            }
            if !is_label_value(&spec.value) {
                let help = "write 63 characters at most: letters, digits, `-_.`, the first and last a letter or digit";
                self.report.error(
                    "taint-syntax",
                    &path.key("value"),
                    format!("`{}` cannot be a taint's value", spec.value),
                    help,
                );
            }
            if taints.iter().any(|other| other.key == *key && other.effect == effect) {
                let help = "keep one: a node has a key and an effect once, whatever the value";
                self.report.error(
                    "duplicate-name",
                    &path.key("key"),
                    format!("the taint `{key}:{effect}` is given twice"),
                    help,
                );
            }
            taints.push(Taint { key: key.clone(), value: spec.value.clone(), effect: effect.to_owned() });
        }
        taints
    }

    pub(super) fn pool_strategy(&self) -> PoolStrategy {
        match self.spec.worker.node_pool_rolling_strategy {
            None | Some(PoolStrategySpec::Parallel) => PoolStrategy::Parallel,
            Some(PoolStrategySpec::Sequential) => PoolStrategy::Sequential,
            Some(PoolStrategySpec::AvailabilityZone) => PoolStrategy::AvailabilityZone,
        }
    }
}
