//! Pools of workers.

use slipway_core::cluster::{ApiEndpoint, GroupSize, KubernetesVersion, MixedInstances, NodePool, Taint};
use slipway_core::repair::{Repair, RepairMode};
use slipway_core::versions::KUBELET_LAG;

use super::network::Draft;
use super::{Lowering, fold, word};
use crate::model::{PoolSpec, RepairSpec, TaintSpec};
use crate::path::Path;
use crate::text::{is_dns_label, is_label_key, is_label_value, is_name};

/// The start-up taint that AWS' EBS CSI driver removes from its own Node, if it may patch all of them. On workers it may not.
const EBS_NOT_READY: &str = "ebs.csi.aws.com/agent-not-ready";

impl Lowering<'_, '_, '_> {
    pub(super) fn pools(
        &mut self,
        cluster: Option<&str>,
        version: Option<KubernetesVersion>,
        network: &Draft,
        endpoints: &[ApiEndpoint],
    ) -> Vec<NodePool> {
        let specs = &self.spec.worker.node_pools;
        let root = Path::parse("worker.nodePools");
        if specs.is_empty() && !self.report.refused(&Path::parse("worker")) {
            let help =
                "add `worker: {nodePools: [{name: general, count: 2}]}`, unless pods are to wait for one";
            self.report.warning("no-pool", &root, "the cluster has no pool of workers", help);
        }
        let pools = specs
            .iter()
            .enumerate()
            .filter_map(|(index, pool)| {
                self.pool(pool, cluster, version, &root.index(index), network, endpoints)
            })
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
        endpoints: &[ApiEndpoint],
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
        let mut types = vec![instance_type.clone()];
        types.extend(
            mixed_instances
                .iter()
                .flat_map(|mixed| &mixed.types)
                .map(|weighted| weighted.instance_type.clone()),
        );
        if mixed_instances.is_some() {
            self.one_architecture(&types, &path.key("mixedInstances"));
        }
        let subnets = self.pool_subnets(spec, path, network);
        let size = self.size(spec, path);
        let cluster_autoscaler = spec.autoscaling.cluster_autoscaler.enabled;
        if cluster_autoscaler {
            self.autoscaled(spec, mixed_instances.as_ref(), &subnets, path, network);
        }
        self.labels(&spec.node_labels, &path.key("nodeLabels"));
        self.feature_gates(&spec.feature_gates, &path.key("featureGates"));
        let mut node_labels = spec.node_labels.clone();
        let mut taints = self.taints(&spec.taints, &path.key("taints"));
        let own_image = self.own_image(spec.ami_id.as_deref(), spec.image.as_ref(), path);
        let nvidia = self.nvidia(spec, &types, path);
        if nvidia {
            super::machines::label_gpus(&spec.gpu, &mut node_labels, &mut taints);
        }
        let root_image = self.image_of_pool(spec, nvidia);
        if let Some(keys) = &spec.ssh_authorized_keys {
            self.ssh_keys_of(keys, &path.key("sshAuthorizedKeys"));
        }
        let api_endpoint = spec.api_endpoint_name.as_deref().and_then(|name| {
            self.chosen_endpoint(Some(name), &path.key("apiEndpointName"), "workers go through", endpoints)
        });
        Some(NodePool {
            name: spec.name.clone()?,
            kubernetes_version: self.pool_version(spec.kubernetes_version.as_deref(), version, path),
            image: own_image.or_else(|| self.image_with_driver(spec, nvidia)),
            root_device: self.root_device(spec.image.as_ref(), path),
            key_name: spec.key_name.clone(),
            ssh_authorized_keys: spec.ssh_authorized_keys.clone(),
            api_endpoint,
            root_volume: self.root_volume(&spec.root_volume, root_image, &path.key("rootVolume"))?,
            storage: self.storage(spec, &types, path),
            nvidia,
            instance_type,
            subnets,
            size,
            mixed_instances,
            cluster_autoscaler,
            security_group_ids: self.groups_of_pool(spec, path),
            target_group_arns: self.target_groups(spec, path),
            load_balancer_names: self.load_balancers(spec, path),
            iam: self.iam(&spec.iam, stack, "", &path.key("iam")),
            node_labels,
            taints,
            feature_gates: spec.feature_gates.clone(),
            kubelet: self.kubelet(&spec.kubelet, &path.key("kubelet")),
            tenancy: spec.tenancy.unwrap_or_default(),
            custom: self.custom(&spec.custom_files, &spec.custom_systemd_units, path),
            repair: self.repair(&spec.repair, &path.key("repair")),
        })
    }

    fn repair(&mut self, spec: &RepairSpec, path: &Path) -> Repair {
        let default = Repair::default();
        let mode = spec.mode.unwrap_or(default.mode);
        if mode == RepairMode::Off && spec.after_minutes.is_some() {
            let message = "`afterMinutes` has no effect while `mode` is `off`";
            let help = "remove it, or write `mode: warn` or `mode: on`";
            self.report.error("repair-off", &path.key("afterMinutes"), message, help);
        }
        if mode == RepairMode::On && self.spec.controller.iam.instance_profile.arn.is_some() {
            let message = "controllers repair workers, and their instance profile is yours: its role may lack the permission";
            let help = "let its role have the statement `ReplaceUnreadyWorkers` that docs/nodes.md shows";
            self.report.warning("repair-permission", &path.key("mode"), message, help);
        }
        Repair { mode, after_minutes: spec.after_minutes.unwrap_or(default.after_minutes) }
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
                let help = "write `subnets` with the names of the pool's subnets";
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
    fn autoscaled(
        &mut self,
        spec: &PoolSpec,
        mixed: Option<&MixedInstances>,
        subnets: &[String],
        path: &Path,
        network: &Draft,
    ) {
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
        if mixed.is_some_and(|mixed| {
            mixed.types.iter().any(|weighted| weighted.weight.is_some_and(|weight| weight > 1))
        }) {
            let message =
                "the cluster autoscaler counts a weighted instance as one node, the group as several";
            let help =
                "leave the weights out and name instance types of one size, or scale the pool by other means";
            self.report.warning("autoscaler-weights", &switch, message, help);
        }
        // A tag's key may have 128 characters; a label's key 317.
        for key in
            spec.node_labels.keys().filter(|key| slipway_core::release::LABEL_TAG.len() + key.len() > 128)
        {
            let help = format!("shorten it to {} characters", 128 - slipway_core::release::LABEL_TAG.len());
            self.report.error(
                "autoscaler-label",
                &path.key("nodeLabels").key(key),
                "the key is too long for the tag by which the cluster autoscaler knows it",
                help,
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

    fn target_groups(&mut self, spec: &PoolSpec, path: &Path) -> Vec<String> {
        let path = path.key("targetGroup").key("arns");
        self.target_group_arns(&spec.target_group.arns, &path);
        if spec.target_group.enabled == Some(false) { Vec::new() } else { spec.target_group.arns.clone() }
    }

    fn load_balancers(&mut self, spec: &PoolSpec, path: &Path) -> Vec<String> {
        let path = path.key("loadBalancer").key("names");
        for (index, name) in spec.load_balancer.names.iter().enumerate() {
            if name.len() > 32 || !is_dns_label(name) {
                let help = "write the name of a classic load balancer: 32 letters, digits and hyphens at most; others are reached by `targetGroup`";
                self.report.error(
                    "name-syntax",
                    &path.index(index),
                    format!("`{name}` cannot be a classic load balancer's name"),
                    help,
                );
            }
        }
        if spec.load_balancer.enabled == Some(false) { Vec::new() } else { spec.load_balancer.names.clone() }
    }

    /// The pool's own groups, and those that let its balancers' traffic in.
    fn groups_of_pool(&mut self, spec: &PoolSpec, path: &Path) -> Vec<String> {
        let balancers = [
            ("targetGroup", spec.target_group.enabled, &spec.target_group.security_group_ids),
            ("loadBalancer", spec.load_balancer.enabled, &spec.load_balancer.security_group_ids),
        ];
        self.security_groups(&spec.security_group_ids, &path.key("securityGroupIds"));
        let mut groups = spec.security_group_ids.clone();
        for (key, enabled, ids) in balancers {
            self.security_groups(ids, &path.key(key).key("securityGroupIds"));
            if enabled != Some(false) {
                groups.extend(ids.iter().cloned());
            }
        }
        groups
    }

    fn taints(&mut self, specs: &[TaintSpec], path: &Path) -> Vec<Taint> {
        let mut taints: Vec<Taint> = Vec::new();
        for (index, spec) in specs.iter().enumerate() {
            let path = path.index(index);
            let (Some(key), Some(effect)) = (&spec.key, spec.effect) else { continue };
            let effect = word(effect);
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
            if *key == EBS_NOT_READY && self.spec.addons.ebs_csi_driver.enabled.unwrap_or(true) {
                let help =
                    "remove it, or turn `addons.ebsCsiDriver` off and install a driver that may patch Nodes";
                self.report.error(
                    "taint-stays",
                    &path.key("key"),
                    format!(
                        "nobody would remove the taint `{key}`: the driver of the add-on may not change Nodes"
                    ),
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
            taints.push(Taint { key: key.clone(), value: spec.value.clone(), effect });
        }
        taints
    }
}
