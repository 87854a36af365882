//! How each key of kube-aws is written today. A test holds that both forms give the same cluster.

mod components;

use super::Log;
use super::item::Item;

/// Keys that have another place today, with the same value.
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

/// As [`MOVED`], within a pool.
const MOVED_IN_POOL: &[(&str, &str)] = &[
    ("rootVolumeSize", "rootVolume.size"),
    ("rootVolumeType", "rootVolume.type"),
    ("rootVolumeIOPS", "rootVolume.iops"),
    ("clusterAutoscaler.enabled", "autoscaling.clusterAutoscaler.enabled"),
    ("clusterAutoscalerSupport.enabled", "autoscaling.clusterAutoscaler.enabled"),
];

/// Defaults of workers at the top of the spec, and the key in each pool.
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
    components::apply(root, log);
    for (from, to) in MOVED {
        log.move_value(root, "", from, to);
    }
    let existing = ["vpc.id", "vpc.idFromStackOutput"].iter().any(|key| root.at(key).is_some());
    if existing && root.get("vpcCIDR").is_none() {
        root.put_if_absent("vpcCIDR", Item::plain("10.0.0.0/16"));
        log.decision(
            "vpcCIDR",
            "kube-aws took 10.0.0.0/16 for the existing VPC: write the range that it has",
        );
    }
    etcd_quota(root, log);
    endpoint(root, log);
    load_balancers(root, log);
    subnets(root, log);
    for (from, to) in WORKER_DEFAULTS {
        let Some(value) = root.take(from) else { continue };
        log.translated(from, format!("written as `{to}` in each pool that says nothing else"));
        for pool in pools(root) {
            pool.put_if_absent(to, value.clone());
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

/// Images and releases of kube-aws' machines, which cannot be used here.
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

/// Magnetic volumes, and `iops: 0`, which meant none.
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

/// Controllers are not scaled by load: the old maximum becomes their number.
fn controllers(root: &mut Item, log: &mut Log) {
    let size = |key: &str| root.at(&format!("controller.autoScalingGroup.{key}")).cloned();
    let (least, most) = (size("minSize"), size("maxSize"));
    if let Some(count) = most.clone().or(least.clone())
        && least != most
    {
        root.take("controller.count");
        root.take("controller.autoScalingGroup");
        root.put_if_absent("controller.count", count);
        log.decision(
            "controller.autoScalingGroup",
            "controllers are not scaled by load: `controller.count` is the most that there were",
        );
    }
}

/// Container Linux allowed to enable a unit without an `[Install]` section, without effect.
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

/// kube-aws' templates write an empty id where there is no zone.
const NO_ZONE: &str =
    "it names no zone: make the record of the API's name yourself, or write `hostedZone.id`";

/// The largest size of etcd's database, which kube-aws had in bytes.
fn etcd_quota(root: &mut Item, log: &mut Log) {
    let (args, key) = ("etcd.userSuppliedArgs", "etcd.userSuppliedArgs.quotaBackendBytes");
    let bytes = root.at(key).and_then(Item::text).and_then(|text| text.parse::<u64>().ok());
    // Without a value etcd has its own, and so it has with 0.
    let Some(bytes) = bytes.filter(|bytes| *bytes > 0) else { return };
    root.take(key);
    if root.at(args).is_some_and(Item::is_empty) {
        root.take(args);
    }
    log.moved(key, "etcd.quota");
    root.put_if_absent("etcd.quota", Item::plain(bytes.div_ceil(1 << 30).to_string()));
}

/// `externalDNSName` and the keys that belonged to it.
fn endpoint(root: &mut Item, log: &mut Log) {
    if root.get("apiEndpoints").is_some() {
        return;
    }
    let Some(name) = root.take("externalDNSName") else { return };
    let mut endpoint = Item::map([("name", Item::plain("default")), ("dnsName", name)]);
    let zone = root.take("hostedZoneId").or_else(|| root.take("hostedZone.id"));
    if zone.as_ref().is_some_and(|zone| zone.is("")) {
        log.dropped("hostedZoneId", NO_ZONE.to_owned());
    } else if let Some(zone) = zone {
        log.translated("hostedZoneId", "written as `apiEndpoints[].loadBalancer.hostedZone.id`".to_owned());
        endpoint.put_if_absent("loadBalancer.hostedZone.id", zone);
    }
    if let Some(made) = root.take("createRecordSet") {
        log.translated(
            "createRecordSet",
            "written as `apiEndpoints[].loadBalancer.recordSetManaged`".to_owned(),
        );
        if made.boolean() == Some(false) {
            endpoint.put_if_absent("loadBalancer.recordSetManaged", made);
        }
    }
    for key in ["private", "subnets"] {
        let from = format!("controller.loadBalancer.{key}");
        if let Some(value) = root.take(&from) {
            log.moved(&from, &format!("apiEndpoints[0].loadBalancer.{key}"));
            endpoint.put_if_absent(&format!("loadBalancer.{key}"), value);
        }
    }
    log.translated("externalDNSName", "written as `apiEndpoints`".to_owned());
    root.put_if_absent("apiEndpoints", Item::List(vec![endpoint]));
}

fn load_balancers(root: &mut Item, log: &mut Log) {
    for (index, endpoint) in root.items_mut("apiEndpoints").iter_mut().enumerate() {
        let path = format!("apiEndpoints[{index}].loadBalancer");
        let Some(balancer) = endpoint.get_mut("loadBalancer") else { continue };
        let zone = balancer.take("hostedZoneId");
        if zone.as_ref().is_some_and(|zone| zone.is("")) {
            log.dropped(&format!("{path}.hostedZoneId"), NO_ZONE.to_owned());
        } else if let Some(zone) = zone {
            balancer.put_if_absent("hostedZone.id", zone);
            log.translated(&format!("{path}.hostedZoneId"), "written as `hostedZone.id`".to_owned());
        }
        if let Some(made) = balancer.take("createRecordSet") {
            balancer.put_if_absent("recordSetManaged", made);
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

/// Settings of all subnets, which are now keys of each subnet.
fn subnets(root: &mut Item, log: &mut Log) {
    for (index, subnet) in root.items_mut("subnets").iter_mut().enumerate() {
        let path = format!("subnets[{index}].");
        log.move_value(subnet, &path, "routeTableId", "routeTable.id");
        if let Some(public) = subnet.take("mapPublicIPs") {
            log.translated(&format!("{path}mapPublicIPs"), "written as `private`".to_owned());
            if public.boolean() == Some(false) {
                subnet.put_if_absent("private", Item::plain("true"));
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
        // kube-aws' single subnet, as a list.
        let mut subnet = Item::Map(Vec::new());
        for key in ["availabilityZone", "instanceCIDR"] {
            if let Some(value) = root.take(key) {
                subnet.put_if_absent(key, value);
            }
        }
        subnet.put_if_absent("instanceCIDR", Item::plain("10.0.0.0/24"));
        root.put_if_absent("subnets", Item::List(vec![subnet]));
    }
    if let Some(table) = root.take("routeTableId") {
        log.translated("routeTableId", "written as `routeTable` on each of `subnets`".to_owned());
        for subnet in root.items_mut("subnets") {
            if subnet.get("id").is_none() {
                subnet.put_if_absent("routeTable.id", table.clone());
            }
        }
    }
    if let Some(public) = root.take("mapPublicIPs") {
        log.translated("mapPublicIPs", "written as `private` on each of `subnets`".to_owned());
        if public.boolean() == Some(false) {
            for subnet in root.items_mut("subnets") {
                subnet.put_if_absent("private", Item::plain("true"));
            }
        }
    }
}

/// Names and zones of the subnets that pools use by default; empty if the spec lists no subnets.
fn zones(root: &Item) -> Vec<(String, String)> {
    let Some(Item::List(subnets)) = root.get("subnets") else { return Vec::new() };
    let named = |private: bool| -> Vec<(String, String)> {
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
    let private = named(true);
    if private.is_empty() { named(false) } else { private }
}

fn pool(pool: &mut Item, path: &str, zones: &[(String, String)], log: &mut Log) {
    for (from, to) in MOVED_IN_POOL {
        log.move_value(pool, &format!("{path}."), from, to);
    }
    if let Some(zone) = pool.get("availabilityZone").and_then(Item::text).map(str::to_owned)
        && pool.get("subnets").is_none()
    {
        let names: Vec<Item> = zones
            .iter()
            .filter(|(_, subnet_zone)| *subnet_zone == zone)
            .map(|(name, _)| Item::map([("name", Item::quoted(name))]))
            .collect();
        // A cluster with a single subnet has no name for it.
        if zones.is_empty() || !names.is_empty() {
            pool.take("availabilityZone");
            log.translated(&format!("{path}.availabilityZone"), "written as the zone's `subnets`".to_owned());
        }
        if !names.is_empty() {
            pool.put_if_absent("subnets", Item::List(names));
        }
    }
    spot(pool, path, log);
    if let Some(mut storage) = pool.take("ephemeralImageStorage") {
        let on = storage.take("enabled").is_some_and(|on| on.is_true());
        log.translated(&format!("{path}.ephemeralImageStorage"), "written as `ephemeralStorage`".to_owned());
        if on {
            let mut store = Item::Map(Vec::new());
            if let Some(system) = storage.take("filesystem") {
                store.put_if_absent("filesystem", system);
            }
            pool.put_if_absent("ephemeralStorage", store);
        }
        log.drop_rest(&format!("{path}.ephemeralImageStorage"), &storage);
    }
}

/// kube-aws' three ways to have spot instances.
fn spot(pool: &mut Item, path: &str, log: &mut Log) {
    if let Some(mut mixed) = pool.take("autoScalingGroup.mixedInstances") {
        let on = mixed.take("enabled").is_some_and(|on| on.is_true());
        log.translated(
            &format!("{path}.autoScalingGroup.mixedInstances"),
            "written as `mixedInstances`".to_owned(),
        );
        if on {
            pool.put_if_absent("mixedInstances", mixed);
        } else {
            log.drop_rest(&format!("{path}.autoScalingGroup.mixedInstances"), &mixed);
        }
    }
    if let Some(mut fleet) = pool.take("spotFleet") {
        let is_set = |count: &Item| count.text().is_some_and(|count| count != "0");
        log.translated(
            &format!("{path}.spotFleet"),
            "written as `mixedInstances` and `autoScalingGroup`".to_owned(),
        );
        if let Some(capacity) = fleet.take("targetCapacity").filter(is_set) {
            let mut mixed = Item::Map(Vec::new());
            if let Some(Item::List(specifications)) = fleet.take("launchSpecifications") {
                let mut overrides = Vec::new();
                for (index, specification) in specifications.into_iter().enumerate() {
                    let Item::Map(entries) = specification else { continue };
                    let kept = ["instanceType", "weightedCapacity"];
                    let (kept, rest) = entries.into_iter().partition(|(key, _)| kept.contains(&key.as_str()));
                    let place = format!("{path}.spotFleet.launchSpecifications[{index}]");
                    log.drop_rest(&place, &Item::Map(rest));
                    overrides.push(Item::Map(kept));
                }
                if !overrides.is_empty() {
                    mixed.put_if_absent("overrides", Item::List(overrides));
                }
            }
            pool.take("count");
            pool.put_if_absent("autoScalingGroup.minSize", capacity.clone());
            pool.put_if_absent("autoScalingGroup.maxSize", capacity);
            pool.put_if_absent("mixedInstances", mixed);
        }
        log.drop_rest(&format!("{path}.spotFleet"), &fleet);
    }
    if pool.take("spotPrice").is_some() {
        log.translated(
            &format!("{path}.spotPrice"),
            "written as `mixedInstances`; spot never costs more than on demand".to_owned(),
        );
        pool.put_if_absent("mixedInstances", Item::Map(Vec::new()));
    }
}
