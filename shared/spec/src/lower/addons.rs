//! Add-ons.

use slipway_core::cluster::{Addon, Addons, NetworkProvider, ProxyMode};

use super::Lowering;
use crate::duration::nanoseconds;
use crate::model::ComputeResourcesSpec;
use crate::path::Path;
use crate::text::is_dns_name;

/// Flags of the cluster autoscaler that say which groups it scales: the pools say that.
const OWN_FLAGS: [&str; 5] =
    ["cloud-provider", "cluster-name", "node-group-auto-discovery", "nodes", "kubeconfig"];

/// Flags of the cluster autoscaler with a duration, and others that people set (kubernetes/autoscaler,
/// `cluster-autoscaler/config/flags/flags.go`). The list of the others is only for suggestions.
const SCALER_DURATIONS: [&str; 17] = [
    "max-binpacking-time",
    "max-bulk-soft-taint-time",
    "max-failing-time",
    "max-inactivity",
    "max-node-provision-time",
    "max-pod-eviction-time",
    "new-pod-scale-up-delay",
    "node-deletion-batcher-interval",
    "node-deletion-delay-timeout",
    "node-delete-delay-after-taint",
    "scale-down-delay-after-add",
    "scale-down-delay-after-delete",
    "scale-down-delay-after-failure",
    "scale-down-unneeded-time",
    "scale-down-unready-time",
    "scan-interval",
    "unremovable-node-recheck-timeout",
];
const SCALER_FLAGS: [&str; 20] = [
    "aws-use-static-instance-list",
    "balance-similar-node-groups",
    "balancing-ignore-label",
    "cores-total",
    "daemonset-eviction-for-empty-nodes",
    "daemonset-eviction-for-occupied-nodes",
    "enforce-node-group-min-size",
    "expander",
    "ignore-daemonsets-utilization",
    "max-empty-bulk-delete",
    "max-graceful-termination-sec",
    "max-nodes-total",
    "memory-total",
    "ok-total-unready-count",
    "scale-down-enabled",
    "scale-down-gpu-utilization-threshold",
    "scale-down-utilization-threshold",
    "skip-nodes-with-local-storage",
    "skip-nodes-with-system-pods",
    "startup-taint",
];
/// The same repository, `cluster-autoscaler/expander/expander.go`.
const EXPANDERS: [&str; 7] =
    ["grpc", "least-nodes", "least-waste", "most-pods", "price", "priority", "random"];

/// Replicas of add-ons that serve the whole cluster, so that one of them may be missing.
const REPLICAS: u32 = 2;

impl Lowering<'_, '_, '_> {
    pub(super) fn addons(&mut self) -> Addons {
        let spec = &self.spec.addons;
        let root = Path::parse("addons");
        let legacy = self.spec.use_calico.unwrap_or(false);
        let mut addon = |name: &str,
                         enabled: bool,
                         version: &Option<String>,
                         replicas,
                         resources: &ComputeResourcesSpec| {
            let path = root.key(name);
            Addon {
                enabled,
                version: self.tag(version.as_deref(), &path.key("version")),
                replicas,
                resources: self.resources(resources, &path.key("resources")),
            }
        };
        let network = spec.network.provider.unwrap_or(NetworkProvider::Flannel);
        let proxy = &spec.kube_proxy;
        let policy = &spec.network_policy;
        let cloud = &spec.cloud_controller_manager;
        let dns = &spec.core_dns;
        let local = &spec.node_local_dns;
        let ebs = &spec.ebs_csi_driver;
        let metrics = &spec.metrics_server;
        let scaler = &spec.cluster_autoscaler;
        let on = |enabled: Option<bool>| enabled.unwrap_or(true);
        let addons = Addons {
            kube_proxy: addon("kubeProxy", on(proxy.enabled), &None, None, &proxy.resources),
            kube_proxy_mode: proxy.mode.unwrap_or(ProxyMode::Iptables),
            network,
            flannel: addon(
                "network",
                network == NetworkProvider::Flannel,
                &spec.network.version,
                None,
                &spec.network.resources,
            ),
            network_policy: addon(
                "networkPolicy",
                policy.enabled || legacy,
                &policy.version,
                None,
                &policy.resources,
            ),
            cloud_controller_manager: addon(
                "cloudControllerManager",
                on(cloud.enabled),
                &cloud.version,
                None,
                &cloud.resources,
            ),
            core_dns: addon(
                "coreDns",
                on(dns.enabled),
                &dns.version,
                Some(dns.replicas.unwrap_or(REPLICAS)),
                &dns.resources,
            ),
            core_dns_extra: dns.extra_config.clone(),
            core_dns_zones: dns.zone_config.clone(),
            node_local_dns: addon("nodeLocalDns", local.enabled, &local.version, None, &local.resources),
            ebs_csi_driver: addon(
                "ebsCsiDriver",
                on(ebs.enabled),
                &ebs.version,
                ebs.replicas,
                &ebs.resources,
            ),
            default_storage_class: ebs.default_storage_class.unwrap_or(true),
            metrics_server: addon(
                "metricsServer",
                metrics.enabled,
                &metrics.version,
                Some(metrics.replicas.unwrap_or(REPLICAS)),
                &metrics.resources,
            ),
            cluster_autoscaler: addon(
                "clusterAutoscaler",
                scaler.enabled,
                &scaler.version,
                scaler.replicas,
                &scaler.resources,
            ),
            cluster_autoscaler_options: scaler.options.clone(),
            image_repository: None,
        };
        let image_repository =
            self.image_repository(spec.image_repository.as_deref(), &root.key("imageRepository"));
        for (text, blocks, key) in [
            (&addons.core_dns_extra, false, "extraCoreDNSConfig"),
            (&addons.core_dns_zones, true, "additionalZoneCoreDNSConfig"),
        ] {
            if let Some(text) = text {
                self.corefile(text, blocks, &root.key("coreDns").key(key));
            }
        }
        self.addon_relations(&addons, &root);
        self.addons_left_out(&addons, &root);
        Addons { image_repository, ..addons }
    }

    /// What does not go together.
    fn addon_relations(&mut self, addons: &Addons, root: &Path) {
        if addons.network == NetworkProvider::None && addons.flannel.version.is_some() {
            self.report.error(
                "addon",
                &root.key("network").key("version"),
                "`addons.network.version` says the version of a network that `addons.network.provider: none` does not install",
                "remove it, or the provider",
            );
        }
        if addons.node_local_dns.enabled && !addons.core_dns.enabled {
            self.report.error(
                "addon",
                &root.key("nodeLocalDns").key("enabled"),
                "`addons.nodeLocalDns` is a cache in front of CoreDNS, which `addons.coreDns.enabled: false` turns off",
                "turn CoreDNS on, or leave the cache out",
            );
        }
        // The cache takes the DNS service's own address by rules of iptables; on nftables nobody has shown that it holds.
        if addons.node_local_dns.enabled && addons.kube_proxy_mode == ProxyMode::Nftables {
            self.report.error(
                "addon",
                &root.key("kubeProxy").key("mode"),
                "`addons.nodeLocalDns` intercepts the DNS service's address with iptables, which `addons.kubeProxy.mode: nftables` bypasses",
                "keep `iptables`, or leave the cache out",
            );
        }
        let options = root.key("clusterAutoscaler").key("options");
        for name in addons.cluster_autoscaler_options.keys() {
            let path = options.key(name);
            let plain = !name.is_empty()
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
                && !name.starts_with('-');
            if !plain {
                let message = format!("`{name}` is not a flag of the cluster autoscaler");
                self.report.error(
                    "addon",
                    &path,
                    message,
                    "write it without dashes in front: `expander: priority`",
                );
            } else if OWN_FLAGS.contains(&name.as_str()) {
                let message = format!("`{name}` is set by Slipway");
                let help = "say which pools are scaled by `worker.nodePools[].autoscaling.clusterAutoscaler.enabled`";
                self.report.error("addon", &path, message, help);
            } else {
                self.scaler_option(name, &addons.cluster_autoscaler_options[name], &path);
            }
        }
    }

    /// Add-ons without which no cluster works: who turns one off has to bring another.
    fn addons_left_out(&mut self, addons: &Addons, root: &Path) {
        let left_out = [
            (
                !addons.cloud_controller_manager.enabled,
                "cloudControllerManager",
                // kubernetes.io/docs/concepts/architecture/cloud-controller, and "Cloud Controller Manager Administration".
                "kubelets run with `--cloud-provider=external`: each new node keeps the taint \
                 `node.cloudprovider.kubernetes.io/uninitialized`, and no pod starts there, until a cloud controller manager initializes it",
                "install one that runs on the controllers and tolerates that taint, before the first worker joins; or remove the line",
            ),
            (
                // Another network, such as Cilium's, may do it, too.
                !addons.kube_proxy.enabled && addons.network == NetworkProvider::Flannel,
                "kubeProxy",
                "flannel does not do what kube-proxy does: no Service is reached, CoreDNS and the API's own included",
                "install another proxy of Services, or remove the line; with `addons.network.provider: none` the network that you install may do it",
            ),
            (
                !addons.core_dns.enabled,
                "coreDns",
                "pods ask the address `dnsServiceIP` for names, and nothing answers there",
                "install a DNS service with that address, such as CoreDNS from its chart with `service.clusterIP`; or remove the line",
            ),
        ];
        for (_, key, message, help) in left_out.into_iter().filter(|(left_out, ..)| *left_out) {
            self.report.warning("addon-needed", &root.key(key).key("enabled"), message, help);
        }
    }

    /// Pods that stand on controllers, one on each (`shared/render/src/addons`).
    pub(super) fn replicas_fit(&mut self, addons: &Addons, controllers: u32) {
        for (addon, key) in
            [(&addons.ebs_csi_driver, "ebsCsiDriver"), (&addons.cluster_autoscaler, "clusterAutoscaler")]
        {
            let Some(replicas) = addon.replicas.filter(|replicas| *replicas > controllers && addon.enabled)
            else {
                continue;
            };
            let message =
                format!("{replicas} pods are wanted, one on each controller, and there are {controllers}");
            let help = format!("write {controllers}, or remove the line: the others would stay pending");
            let path = Path::parse("addons").key(key).key("replicas");
            self.report.warning("addon", &path, message, help);
        }
    }

    /// The flags are those of the autoscaler's newest release, and a spec may name another one: so these are warnings.
    fn scaler_option(&mut self, name: &str, value: &str, path: &Path) {
        let known = || SCALER_DURATIONS.into_iter().chain(SCALER_FLAGS);
        if SCALER_DURATIONS.contains(&name) && nanoseconds(value).is_none() {
            let message = format!("`{value}` is not a duration: the cluster autoscaler would not start");
            let help = "write hours, minutes and seconds, such as `24h` or `1m30s`: there are no days";
            self.report.warning("addon", path, message, help);
        } else if name == "expander" && value.split(',').any(|word| !EXPANDERS.contains(&word.trim())) {
            let message = format!("`{value}` is not an expander: the cluster autoscaler would not start");
            let help = format!("write one or more of `{}`, joined by commas", EXPANDERS.join("`, `"));
            self.report.warning("addon", path, message, help);
        } else if known().all(|known| known != name)
            && let Some(near) = self.report.nearest(name, known())
        {
            let message = format!("`{name}` is not a flag of the cluster autoscaler that is known here");
            self.report.warning("addon", path, message, format!("did you mean `{near}`?"));
        }
    }

    /// An image's tag, as the OCI distribution specification writes it.
    fn tag(&mut self, tag: Option<&str>, path: &Path) -> Option<String> {
        let tag = tag?;
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        let fits = (1..=128).contains(&tag.len())
            && tag.bytes().all(inner)
            && tag.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_')
            && tag != "latest";
        if !fits {
            let help = "write the tag of a release, such as `v1.14.6`; its digest is pinned in the lock";
            self.report.error("image-tag", path, format!("`{tag}` is not the tag of a release"), help);
            return None;
        }
        Some(tag.to_owned())
    }

    pub(super) fn image_repository(&mut self, text: Option<&str>, path: &Path) -> Option<String> {
        let text = text?;
        let (host, rest) = text.split_once('/').unwrap_or((text, ""));
        let (name, port) = host.split_once(':').unwrap_or((host, "443"));
        let word = |part: &str| {
            !part.is_empty()
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte))
        };
        // A registry has a dot, a port, or is localhost: else the first part is a repository of Docker Hub.
        let is_host = is_dns_name(name) && port.parse::<u16>().is_ok() && (host.contains(['.', ':']));
        if !is_host || !(rest.is_empty() || rest.split('/').all(word)) {
            let help = "write a registry and perhaps a path, without scheme: `mirror.example.com/kubernetes`";
            self.report.error("image-repository", path, format!("`{text}` is not a place for images"), help);
            return None;
        }
        Some(text.to_owned())
    }
}
