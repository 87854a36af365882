//! How each key of kube-aws is written today. A test holds that what comes out means what went in.

use super::Log;
use super::item::Item;

/// Keys that have another place today, and the same value there.
const MOVED: &[(&str, &str)] = &[
    ("vpcId", "vpc.id"),
    ("internetGatewayId", "internetGateway.id"),
    ("useCalico", "addons.networkPolicy.enabled"),
    ("controllerCount", "controller.count"),
    ("controllerInstanceType", "controller.instanceType"),
    ("controllerRootVolumeSize", "controller.rootVolume.size"),
    ("controllerRootVolumeType", "controller.rootVolume.type"),
    ("controllerRootVolumeIOPS", "controller.rootVolume.iops"),
    ("controller.rootVolumeSize", "controller.rootVolume.size"),
    ("controller.rootVolumeType", "controller.rootVolume.type"),
    ("controller.rootVolumeIOPS", "controller.rootVolume.iops"),
    ("etcdCount", "etcd.count"),
    ("etcdInstanceType", "etcd.instanceType"),
    ("etcdRootVolumeSize", "etcd.rootVolume.size"),
    ("etcdRootVolumeType", "etcd.rootVolume.type"),
    ("etcdRootVolumeIOPS", "etcd.rootVolume.iops"),
    ("etcdDataVolumeSize", "etcd.dataVolume.size"),
    ("etcdDataVolumeType", "etcd.dataVolume.type"),
    ("etcdDataVolumeIOPS", "etcd.dataVolume.iops"),
    ("etcd.kmsKeyArn", "etcd.dataVolume.kmsKeyArn"),
    ("experimental.clusterAutoscalerSupport.enabled", "addons.clusterAutoscaler.enabled"),
    ("kubeAwsPlugins.clusterAutoscaler.enabled", "addons.clusterAutoscaler.enabled"),
    ("addons.heapster.enabled", "addons.metricsServer.enabled"),
    ("controllerTenancy", "controller.tenancy"),
    ("etcdTenancy", "etcd.tenancy"),
];

/// The same within a pool.
const MOVED_IN_POOL: &[(&str, &str)] = &[
    ("rootVolumeSize", "rootVolume.size"),
    ("rootVolumeType", "rootVolume.type"),
    ("rootVolumeIOPS", "rootVolume.iops"),
    ("clusterAutoscaler.enabled", "autoscaling.clusterAutoscaler.enabled"),
    ("clusterAutoscalerSupport.enabled", "autoscaling.clusterAutoscaler.enabled"),
];

/// What a worker had by default at the top of the spec, and where each pool has it.
const WORKER_DEFAULTS: &[(&str, &str)] = &[
    ("workerCount", "count"),
    ("workerInstanceType", "instanceType"),
    ("workerRootVolumeSize", "rootVolume.size"),
    ("workerRootVolumeType", "rootVolume.type"),
    ("workerRootVolumeIOPS", "rootVolume.iops"),
    ("workerSecurityGroupIds", "securityGroupIds"),
    ("workerTenancy", "tenancy"),
    ("workerSpotPrice", "spotPrice"),
];

/// Applies every rule to the spec.
pub(super) fn apply(root: &mut Item, log: &mut Log) {
    images(root, log);
    volumes(root, log);
    controllers(root, log);
    units(root, log);
    super::components::apply(root, log);
    for (from, to) in MOVED {
        log.carry(root, "", from, to);
    }
    let existing = ["vpc.id", "vpc.idFromStackOutput"].iter().any(|key| root.at(key).is_some());
    if existing && root.get("vpcCIDR").is_none() {
        root.put("vpcCIDR", Item::word("10.0.0.0/16"));
        log.decision(
            "vpcCIDR",
            "kube-aws took 10.0.0.0/16 for the existing VPC: write the range that it has",
        );
    }
    endpoint(root, log);
    load_balancers(root, log);
    subnets(root, log);
    for (from, to) in WORKER_DEFAULTS {
        let Some(value) = root.take(from) else { continue };
        log.translated(from, format!("written as `{to}` in each pool that says nothing else"));
        for pool in pools(root) {
            pool.put(to, value.clone());
        }
    }
    let zones = zones(root);
    for (index, pool) in pools(root).iter_mut().enumerate() {
        self::pool(pool, &format!("worker.nodePools[{index}]"), &zones, log);
    }
}

/// The pools of the spec.
pub(super) fn pools(root: &mut Item) -> &mut [Item] {
    root.get_mut("worker").map_or(&mut [][..], |worker| worker.items_mut("nodePools"))
}

/// kube-aws' machines ran Container Linux, whose images cannot run here, and etcd of its day.
fn images(root: &mut Item, log: &mut Log) {
    let image = "an image of Container Linux has no place here: nodes run Amazon Linux 2023; name another with `amiId` or `image`";
    if root.take("amiId").is_some() {
        log.decision("amiId", image);
    }
    for (index, pool) in pools(root).iter_mut().enumerate() {
        if pool.take("amiId").is_some() {
            log.decision(&format!("worker.nodePools[{index}].amiId"), image);
        }
        if pool.take("kubernetesVersion").is_some() {
            let path = format!("worker.nodePools[{index}].kubernetesVersion");
            log.decision(&path, "the pool runs the cluster's release");
        }
    }
    if root.take("etcd.version").is_some() {
        log.decision(
            "etcd.version",
            "etcd's release follows from that of Kubernetes; restore the data from a snapshot",
        );
    }
}

/// Volumes of a type that nobody makes any more, and figures that mean none.
fn volumes(root: &mut Item, log: &mut Log) {
    let mut visit = |group: &mut Item, path: String| {
        if group.at("type").is_some_and(|kind| kind.is("standard")) {
            group.take("type");
            log.decision(
                &format!("{path}.type"),
                "magnetic volumes are slower and dearer than `gp3`, which it is now",
            );
        }
        if group.at("iops").is_some_and(|iops| iops.is("0")) {
            group.take("iops");
            log.translated(&format!("{path}.iops"), "removed: 0 means none".to_owned());
        }
    };
    for (role, volume) in [("controller", "rootVolume"), ("etcd", "rootVolume"), ("etcd", "dataVolume")] {
        if let Some(group) = root.get_mut(role).and_then(|role| role.get_mut(volume)) {
            visit(group, format!("{role}.{volume}"));
        }
    }
    let pools = pools(root);
    for (index, pool) in pools.iter_mut().enumerate() {
        let path = format!("worker.nodePools[{index}]");
        if let Some(group) = pool.get_mut("rootVolume") {
            visit(group, format!("{path}.rootVolume"));
        }
        for list in ["volumeMounts", "raid0Mounts"] {
            for (number, mount) in pool.items_mut(list).iter_mut().enumerate() {
                visit(mount, format!("{path}.{list}[{number}]"));
            }
        }
    }
}

/// Controllers are not scaled by load: as many as their group may have had.
fn controllers(root: &mut Item, log: &mut Log) {
    let size = |key: &str| root.at(&format!("controller.autoScalingGroup.{key}")).cloned();
    let (least, most) = (size("minSize"), size("maxSize"));
    if let Some(count) = most.clone().or(least.clone())
        && least != most
    {
        root.take("controller.count");
        root.take("controller.autoScalingGroup");
        root.put("controller.count", count);
        log.decision(
            "controller.autoScalingGroup",
            "controllers are not scaled by load: `controller.count` is the most that there were",
        );
    }
}

/// Units that nothing pulls in at boot could be enabled on Container Linux, without effect.
fn units(root: &mut Item, log: &mut Log) {
    let mut visit = |group: &mut Item, path: &str| {
        for (index, unit) in group.items_mut("customSystemdUnits").iter_mut().enumerate() {
            let installed =
                unit.get("content").and_then(Item::text).is_none_or(|content| content.contains("[Install]"));
            if !installed && unit.get("enable").is_some_and(Item::is_true) {
                unit.take("enable");
                let path = format!("{path}.customSystemdUnits[{index}].enable");
                log.decision(&path, "it had no effect without an `[Install]` section: add one if the unit is to start at each boot");
            }
        }
    };
    for role in ["controller", "etcd"] {
        if let Some(group) = root.get_mut(role) {
            visit(group, role);
        }
    }
    let pools = pools(root);
    for (index, pool) in pools.iter_mut().enumerate() {
        visit(pool, &format!("worker.nodePools[{index}]"));
    }
}

/// `externalDNSName` and what went with it.
fn endpoint(root: &mut Item, log: &mut Log) {
    if root.get("apiEndpoints").is_some() {
        return;
    }
    let Some(name) = root.take("externalDNSName") else { return };
    let mut endpoint = Item::map([("name", Item::word("default")), ("dnsName", name)]);
    if let Some(zone) = root.take("hostedZoneId").or_else(|| root.take("hostedZone.id")) {
        log.translated("hostedZoneId", "written as `apiEndpoints[].loadBalancer.hostedZone.id`".to_owned());
        endpoint.put("loadBalancer.hostedZone.id", zone);
    }
    if let Some(made) = root.take("createRecordSet") {
        log.translated(
            "createRecordSet",
            "written as `apiEndpoints[].loadBalancer.recordSetManaged`".to_owned(),
        );
        if made.boolean() == Some(false) {
            endpoint.put("loadBalancer.recordSetManaged", made);
        }
    }
    for key in ["private", "subnets"] {
        let from = format!("controller.loadBalancer.{key}");
        if let Some(value) = root.take(&from) {
            log.moved(&from, &format!("apiEndpoints[0].loadBalancer.{key}"));
            endpoint.put(&format!("loadBalancer.{key}"), value);
        }
    }
    log.translated("externalDNSName", "written as `apiEndpoints`".to_owned());
    root.put("apiEndpoints", Item::List(vec![endpoint]));
}

fn load_balancers(root: &mut Item, log: &mut Log) {
    for (index, endpoint) in root.items_mut("apiEndpoints").iter_mut().enumerate() {
        let path = format!("apiEndpoints[{index}].loadBalancer");
        let Some(balancer) = endpoint.get_mut("loadBalancer") else { continue };
        if let Some(zone) = balancer.take("hostedZoneId") {
            balancer.put("hostedZone.id", zone);
            log.translated(&format!("{path}.hostedZoneId"), "written as `hostedZone.id`".to_owned());
        }
        if let Some(made) = balancer.take("createRecordSet") {
            balancer.put("recordSetManaged", made);
            log.translated(&format!("{path}.createRecordSet"), "written as `recordSetManaged`".to_owned());
        }
        if balancer.get("type").is_some_and(|kind| kind.is("classic")) {
            balancer.take("type");
            log.decision(
                &format!("{path}.type"),
                "the load balancer becomes a network load balancer, with another address",
            );
        }
    }
}

/// Settings of all subnets, which each has for itself today.
fn subnets(root: &mut Item, log: &mut Log) {
    for (index, subnet) in root.items_mut("subnets").iter_mut().enumerate() {
        let path = format!("subnets[{index}].");
        log.carry(subnet, &path, "routeTableId", "routeTable.id");
        if let Some(public) = subnet.take("mapPublicIPs") {
            log.translated(&format!("{path}mapPublicIPs"), "written as `private`".to_owned());
            if public.boolean() == Some(false) {
                subnet.put("private", Item::word("true"));
            }
        }
    }
    if root.get("mapPublicIPs").is_some_and(Item::is_true) {
        root.take("mapPublicIPs");
        log.translated("mapPublicIPs", "removed: subnets are public unless they are `private`".to_owned());
    }
    if root.get("mapPublicIPs").or(root.get("routeTableId")).is_none() {
        return;
    }
    if root.get("subnets").is_none() {
        // The single subnet, in so many words.
        let mut subnet = Item::Map(Vec::new());
        for key in ["availabilityZone", "instanceCIDR"] {
            if let Some(value) = root.take(key) {
                subnet.put(key, value);
            }
        }
        subnet.put("instanceCIDR", Item::word("10.0.0.0/24"));
        root.put("subnets", Item::List(vec![subnet]));
    }
    if let Some(table) = root.take("routeTableId") {
        log.translated("routeTableId", "written as `routeTable` on each of `subnets`".to_owned());
        for subnet in root.items_mut("subnets") {
            if subnet.get("id").is_none() {
                subnet.put("routeTable.id", table.clone());
            }
        }
    }
    if let Some(public) = root.take("mapPublicIPs") {
        log.translated("mapPublicIPs", "written as `private` on each of `subnets`".to_owned());
        if public.boolean() == Some(false) {
            for subnet in root.items_mut("subnets") {
                subnet.put("private", Item::word("true"));
            }
        }
    }
}

/// Names of the subnets that pools stand in by default, with their zones; empty where there is only the one.
fn zones(root: &Item) -> Vec<(String, String)> {
    let Some(Item::List(subnets)) = root.get("subnets") else { return Vec::new() };
    let of = |private: bool| -> Vec<(String, String)> {
        let subnets = subnets.iter().enumerate();
        subnets
            .filter(|(_, subnet)| subnet.get("private").is_some_and(Item::is_true) == private)
            .filter_map(|(index, subnet)| {
                let name = subnet.get("name").and_then(Item::text).map(str::to_owned);
                let zone = subnet.get("availabilityZone")?.text()?.to_owned();
                Some((name.unwrap_or_else(|| format!("Subnet{index}")), zone))
            })
            .collect()
    };
    let private = of(true);
    if private.is_empty() { of(false) } else { private }
}

fn pool(pool: &mut Item, path: &str, zones: &[(String, String)], log: &mut Log) {
    for (from, to) in MOVED_IN_POOL {
        log.carry(pool, &format!("{path}."), from, to);
    }
    if let Some(zone) = pool.get("availabilityZone").and_then(Item::text).map(str::to_owned)
        && pool.get("subnets").is_none()
    {
        let names: Vec<Item> = zones
            .iter()
            .filter(|(_, of)| *of == zone)
            .map(|(name, _)| Item::map([("name", Item::Scalar { text: name.clone(), plain: false })]))
            .collect();
        // A cluster with one subnet needs no name for it.
        if zones.is_empty() || !names.is_empty() {
            pool.take("availabilityZone");
            log.translated(&format!("{path}.availabilityZone"), "written as the zone's `subnets`".to_owned());
        }
        if !names.is_empty() {
            pool.put("subnets", Item::List(names));
        }
    }
    spot(pool, path, log);
    if let Some(mut storage) = pool.take("ephemeralImageStorage") {
        let on = storage.take("enabled").is_some_and(|on| on.is_true());
        log.translated(&format!("{path}.ephemeralImageStorage"), "written as `ephemeralStorage`".to_owned());
        if on {
            let mut store = Item::Map(Vec::new());
            if let Some(system) = storage.take("filesystem") {
                store.put("filesystem", system);
            }
            pool.put("ephemeralStorage", store);
        }
        log.left_over(&format!("{path}.ephemeralImageStorage"), &storage);
    }
}

/// Three ways to have spot instances, which are one today.
fn spot(pool: &mut Item, path: &str, log: &mut Log) {
    if let Some(mut mixed) = pool.take("autoScalingGroup.mixedInstances") {
        let on = mixed.take("enabled").is_some_and(|on| on.is_true());
        log.translated(
            &format!("{path}.autoScalingGroup.mixedInstances"),
            "written as `mixedInstances`".to_owned(),
        );
        if on {
            pool.put("mixedInstances", mixed);
        } else {
            log.left_over(&format!("{path}.autoScalingGroup.mixedInstances"), &mixed);
        }
    }
    if let Some(mut fleet) = pool.take("spotFleet") {
        let said = |count: &Item| count.text().is_some_and(|count| count != "0");
        log.translated(
            &format!("{path}.spotFleet"),
            "written as `mixedInstances` and `autoScalingGroup`".to_owned(),
        );
        if let Some(capacity) = fleet.take("targetCapacity").filter(said) {
            let mut mixed = Item::Map(Vec::new());
            if let Some(Item::List(specifications)) = fleet.take("launchSpecifications") {
                let mut overrides = Vec::new();
                for (index, specification) in specifications.into_iter().enumerate() {
                    let Item::Map(entries) = specification else { continue };
                    let kept = ["instanceType", "weightedCapacity"];
                    let (kept, rest) = entries.into_iter().partition(|(key, _)| kept.contains(&key.as_str()));
                    let place = format!("{path}.spotFleet.launchSpecifications[{index}]");
                    log.left_over(&place, &Item::Map(rest));
                    overrides.push(Item::Map(kept));
                }
                if !overrides.is_empty() {
                    mixed.put("overrides", Item::List(overrides));
                }
            }
            pool.take("count");
            pool.put("autoScalingGroup.minSize", capacity.clone());
            pool.put("autoScalingGroup.maxSize", capacity);
            pool.put("mixedInstances", mixed);
        }
        log.left_over(&format!("{path}.spotFleet"), &fleet);
    }
    if pool.take("spotPrice").is_some() {
        log.translated(
            &format!("{path}.spotPrice"),
            "written as `mixedInstances`; spot never costs more than on demand".to_owned(),
        );
        pool.put("mixedInstances", Item::Map(Vec::new()));
    }
}
