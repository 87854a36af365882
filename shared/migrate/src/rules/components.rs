//! Settings of Kubernetes' own components, which kube-aws had in `experimental`, `kubelet`, `kubeDns` and other groups.

use slipway_spec::read_tree;

use super::pools;
use crate::Log;
use crate::item::Item;

/// Keys that have another place today, with the same value.
const MOVED: &[(&str, &str)] = &[
    ("experimental.nodeMonitorGracePeriod", "kubernetes.controllerManager.nodeMonitorGracePeriod"),
    ("kubelet.systemReserved", "kubernetes.kubelet.systemReserved"),
    ("kubelet.kubeReserved", "kubernetes.kubelet.kubeReserved"),
    ("kubernetes.apiserver.volumes", "kubernetes.apiServer.volumes"),
    ("kubernetes.apiserver.flags", "kubernetes.apiServer.flags"),
    ("kubernetes.podAutoscalerUseRestClient.enabled", "addons.metricsServer.enabled"),
    ("kubeDns.extraCoreDNSConfig", "addons.coreDns.extraCoreDNSConfig"),
    ("kubeDns.dnsDeploymentResources", "addons.coreDns.resources"),
    ("kubeDns.autoscaler.min", "addons.coreDns.replicas"),
    ("kubeDns.nodeLocalResolver", "addons.nodeLocalDns.enabled"),
    ("kubeProxy.resources", "addons.kubeProxy.resources"),
    ("kubernetes.kubeProxy.resources", "addons.kubeProxy.resources"),
    ("experimental.clusterAutoscalerSupport.options", "addons.clusterAutoscaler.options"),
];

/// As [`MOVED`], within a pool.
const MOVED_IN_POOL: &[(&str, &str)] = &[
    ("systemReserved", "kubelet.systemReserved"),
    ("kubeReserved", "kubelet.kubeReserved"),
    ("nodeStatusUpdateFrequency", "kubelet.config.nodeStatusUpdateFrequency"),
    ("gpuSupport.enabled", "gpu.nvidia.enabled"),
];

/// Settings of `experimental` that each pool has today.
const POOL_SETTINGS: &[&str] = &[
    "loadBalancer",
    "targetGroup",
    "ephemeralImageStorage",
    "gpuSupport",
    "kubeletOpts",
    "taints",
    "nodeLabels",
];

/// Flags of the kubelet, and the keys that replace them.
const KUBELET_FLAGS: &[(&str, &str)] = &[
    ("container-log-max-files", "config.containerLogMaxFiles"),
    ("container-log-max-size", "config.containerLogMaxSize"),
    ("cpu-cfs-quota", "config.cpuCFSQuota"),
    ("cpu-manager-policy", "config.cpuManagerPolicy"),
    ("event-burst", "config.eventBurst"),
    ("event-qps", "config.eventRecordQPS"),
    ("eviction-max-pod-grace-period", "config.evictionMaxPodGracePeriod"),
    ("image-gc-high-threshold", "config.imageGCHighThresholdPercent"),
    ("image-gc-low-threshold", "config.imageGCLowThresholdPercent"),
    ("kube-api-burst", "config.kubeAPIBurst"),
    ("kube-api-qps", "config.kubeAPIQPS"),
    ("kube-reserved", "kubeReserved"),
    ("max-pods", "maxPods"),
    ("node-status-update-frequency", "config.nodeStatusUpdateFrequency"),
    ("pod-max-pids", "podPidsLimit"),
    ("protect-kernel-defaults", "config.protectKernelDefaults"),
    ("registry-burst", "config.registryBurst"),
    ("registry-qps", "config.registryPullQPS"),
    ("serialize-image-pulls", "config.serializeImagePulls"),
    ("streaming-connection-idle-timeout", "config.streamingConnectionIdleTimeout"),
    ("sync-frequency", "config.syncFrequency"),
    ("system-reserved", "systemReserved"),
];

/// kube-aws' default limits.
const EVENT_LIMITS: &str =
    "- {type: Namespace, qps: 250, burst: 500, cacheSize: 4096}\n- {type: User, qps: 50, burst: 250}\n";

pub(super) fn apply(root: &mut Item, log: &mut Log) {
    for name in POOL_SETTINGS {
        let from = format!("experimental.{name}");
        let Some(value) = root.take(&from) else { continue };
        log.translated(&from, format!("written as `{name}` in each pool that says nothing else"));
        pools(root).iter_mut().for_each(|pool| pool.put_if_absent(name, value.clone()));
    }
    names_of_the_api(root, log);
    audit_log(root, log);
    oidc(root, log);
    admission(root, log);
    network(root, log);
    for group in ["kubelet", "kubernetes.kubelet"] {
        kubelet_flag_list(root, "", group, "kubernetes.kubelet", log);
    }
    for (from, to) in MOVED {
        log.move_value(root, "", from, to);
    }
    for (index, pool) in pools(root).iter_mut().enumerate() {
        let path = format!("worker.nodePools[{index}].");
        kubelet_flag_list(pool, &path, "kubelet", "kubelet", log);
        kubelet_command_line(pool, &path, log);
        for (from, to) in MOVED_IN_POOL {
            log.move_value(pool, &path, from, to);
        }
    }
}

/// Removes a group and returns it if it was enabled; notes it if it was not.
fn take_enabled(root: &mut Item, group: &str, log: &mut Log) -> Option<Item> {
    let mut taken = root.take(group)?;
    if taken.take("enabled").is_some_and(|on| on.is_true()) {
        return Some(taken);
    }
    log.dropped(group, "it was off".to_owned());
    None
}

/// Names in the API server's certificate.
fn names_of_the_api(root: &mut Item, log: &mut Log) {
    for key in ["additionalDnsSans", "additionalIPAddressSans"] {
        let from = format!("customApiServerSettings.{key}");
        match root.take(&from) {
            Some(Item::List(names)) => {
                log.moved(&from, "kubernetes.apiServer.certSANs");
                root.append("kubernetes.apiServer.certSANs", names);
            }
            Some(Item::Scalar { .. } | Item::Map(_)) => {
                log.decision(&from, "removed, as it is not a list: write `kubernetes.apiServer.certSANs`");
            }
            None => {}
        }
    }
}

fn audit_log(root: &mut Item, log: &mut Log) {
    let (from, to) = ("experimental.auditLog", "kubernetes.apiServer.auditLog");
    let Some(mut settings) = root.take(from) else { return };
    if !settings.take("enabled").is_some_and(|on| on.is_true()) {
        log.translated(from, format!("it was off: `{to}.enabled: false`, since it is on by default"));
        root.put_if_absent(to, Item::map([("enabled", Item::plain("false"))]));
        return;
    }
    // kube-aws kept a single old file.
    settings.put_if_absent("maxBackup", Item::plain("1"));
    if settings.get("logPath").is_some_and(|path| path.is("/dev/stdout") || path.is("-")) {
        settings = Item::map([("logPath", Item::quoted("-"))]);
    }
    settings.put_if_absent("enabled", Item::plain("true"));
    log.moved(from, to);
    root.put_if_absent(to, settings);
}

fn oidc(root: &mut Item, log: &mut Log) {
    let Some(mut settings) = take_enabled(root, "experimental.oidc", log) else { return };
    let to = "kubernetes.apiServer.oidc";
    let mut provider = Item::Map(Vec::new());
    for (from, to, default) in [
        ("issuerUrl", "issuerURL", "https://accounts.google.com"),
        ("clientId", "clientID", "kubernetes"),
        ("usernameClaim", "usernameClaim", "email"),
        ("groupsClaim", "groupsClaim", "groups"),
    ] {
        provider.put_if_absent(to, settings.take(from).unwrap_or_else(|| Item::plain(default)));
    }
    log.moved("experimental.oidc", to);
    root.put_if_absent(to, provider);
}

fn admission(root: &mut Item, log: &mut Log) {
    let mut plugins = Vec::new();
    for (key, plugin) in [
        ("alwaysPullImages", "AlwaysPullImages"),
        ("ownerReferencesPermissionEnforcement", "OwnerReferencesPermissionEnforcement"),
        ("OwnerReferencesPermissionEnforcement", "OwnerReferencesPermissionEnforcement"),
    ] {
        let from = format!("experimental.admission.{key}");
        if take_enabled(root, &from, log).is_some() {
            log.moved(&from, "kubernetes.apiServer.enableAdmissionPlugins");
            if !plugins.contains(&Item::plain(plugin)) {
                plugins.push(Item::plain(plugin));
            }
        }
    }
    if !plugins.is_empty() {
        root.append("kubernetes.apiServer.enableAdmissionPlugins", plugins);
    }
    let from = "experimental.admission.eventRateLimit";
    let Some(mut settings) = take_enabled(root, from, log) else { return };
    let limits = settings.take("limits");
    // The limits are YAML in a string. `read_tree` reads a map only, so they get a key.
    let text = limits.as_ref().and_then(Item::text).unwrap_or(EVENT_LIMITS);
    let read = format!("limits:\n{text}\n");
    match read_tree(read.as_bytes()).ok().and_then(|node| Item::from(&node).take("limits")) {
        Some(list @ Item::List(_)) => {
            log.moved(from, "kubernetes.apiServer.eventRateLimits");
            root.put_if_absent("kubernetes.apiServer.eventRateLimits", list);
        }
        Some(Item::Scalar { .. } | Item::Map(_)) | None => log.decision(
            from,
            "removed, as its `limits` are not a list in YAML: write them as `kubernetes.apiServer.eventRateLimits`",
        ),
    }
}

fn network(root: &mut Item, log: &mut Log) {
    for group in ["kubeProxy.ipvsMode", "kubernetes.kubeProxy.ipvsMode"] {
        if take_enabled(root, group, log).is_some() {
            log.moved(group, "addons.kubeProxy.mode");
            root.put_if_absent("addons.kubeProxy.mode", Item::plain("nftables"));
        }
    }
    let from = "kubernetes.networking.selfHosting.type";
    if let Some(kind) = root.at(from).and_then(Item::text).map(str::to_owned) {
        if kind == "canal" {
            root.take(from);
            log.moved(from, "addons.networkPolicy.enabled");
            root.put_if_absent("addons.networkPolicy.enabled", Item::plain("true"));
        } else if kind == "flannel" {
            root.take(from);
            log.translated(
                from,
                "removed: flannel makes the pod network unless another is chosen".to_owned(),
            );
        }
    }
}

/// The kubelet's flags, given as a list of names and values.
fn kubelet_flag_list(root: &mut Item, prefix: &str, from: &str, to: &str, log: &mut Log) {
    let key = format!("{from}.flags");
    // Anything else than a list is refused by the parser.
    let Some(Item::List(flags)) = root.at(&key).cloned() else { return };
    root.take(&key);
    for (index, flag) in flags.iter().enumerate() {
        let path = format!("{prefix}{from}.flags[{index}]");
        let text = |key: &str| flag.get(key).and_then(Item::text).unwrap_or_default();
        kubelet_flag(root, prefix, &path, to, (text("name"), text("value")), log);
    }
}

/// The kubelet's flags, given as one command line.
fn kubelet_command_line(pool: &mut Item, prefix: &str, log: &mut Log) {
    let Some(options) = pool.take("kubeletOpts") else { return };
    let path = format!("{prefix}kubeletOpts");
    for option in options.text().unwrap_or_default().split_whitespace() {
        let (name, value) = option.split_once('=').unwrap_or((option, "true"));
        kubelet_flag(pool, prefix, &path, "kubelet", (name, value), log);
    }
}

fn kubelet_flag(root: &mut Item, prefix: &str, from: &str, to: &str, flag: (&str, &str), log: &mut Log) {
    let (name, value) = (flag.0.trim_start_matches('-'), flag.1);
    match KUBELET_FLAGS.iter().find(|(known, _)| *known == name) {
        Some((_, field)) => {
            let to = format!("{to}.{field}");
            log.moved(from, &format!("{prefix}{to}"));
            root.put_if_absent(&to, Item::plain(value));
        }
        None => log.decision(
            from,
            &format!("the flag `{name}` was removed: write its field of KubeletConfiguration in `{prefix}{to}.config`, if it has one"),
        ),
    }
}
