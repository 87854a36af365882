//! Keys of kube-aws that are accepted in another form, or refused by name, and what to do instead.
//!
//! Notes on keys whose function Slipway has are here, all others in `rest`. A test of `slipway-migrate`, which has the list
//! of all keys, holds that each is a key of the schema or has a note.

mod rest;

use std::borrow::Cow;

use super::schema;

/// What to do about one key.
#[derive(Debug)]
pub struct Note {
    /// Its path without indices: `worker.nodePools[].name`.
    pub pattern: &'static str,
    /// What to write instead.
    pub help: &'static str,
}

const fn note(pattern: &'static str, help: &'static str) -> Note {
    Note { pattern, help }
}

/// Keys that are in the model, marked deprecated: accepted with a warning.
pub const TRANSLATED: &[Note] = &[
    note("externalDNSName", "write `apiEndpoints: [{name: default, dnsName: …}]`"),
    note("hostedZoneId", "write `apiEndpoints[].loadBalancer.hostedZone.id`"),
    note(
        "createRecordSet",
        "write `apiEndpoints[].loadBalancer.recordSetManaged`; it is on wherever a hosted zone is given",
    ),
    note("vpcId", "write `vpc: {id: …}`"),
    note("internetGatewayId", "write `internetGateway: {id: …}`"),
    note("routeTableId", "write `routeTable: {id: …}` on each of `subnets`"),
    note("mapPublicIPs", "write `private: true` on the subnets whose machines get no public address"),
    note("useCalico", "write `addons: {networkPolicy: {enabled: true}}`"),
    note("apiEndpoints[].loadBalancer.hostedZoneId", "write `hostedZone: {id: …}`"),
    note(
        "apiEndpoints[].loadBalancer.createRecordSet",
        "write `recordSetManaged`; it is on wherever a hosted zone is given",
    ),
    note(
        "apiEndpoints[].loadBalancer.recordSetTTL",
        "remove it: the record is an alias, which has the load balancer's own time to live",
    ),
    note(
        "etcd.memberIdentityProvider",
        "remove it: a member has a volume and a name in a private zone, and keeps both without an address of its own",
    ),
    note(
        "etcd.snapshot",
        "remove it: snapshots are taken every six hours (`etcd.snapshots`), and before an etcd member is touched",
    ),
    note(
        "etcd.disasterRecovery",
        "remove it: a member's volume and name outlive its machine, so a replacement comes back as itself",
    ),
    note("worker.nodePools[].availabilityZone", "write `subnets` with the names of that zone's subnets"),
    note(
        "worker.nodePools[].spotFleet",
        "write `mixedInstances` with `overrides`: spot fleets are legacy, an Auto Scaling group carries the weights now",
    ),
    note(
        "worker.nodePools[].spotPrice",
        "write `mixedInstances`: spot never costs more than on demand, so the price cap is dropped",
    ),
    note(
        "worker.nodePools[].autoScalingGroup.mixedInstances",
        "write `mixedInstances` on the pool itself, where it is on unless `enabled: false`",
    ),
    note(
        "worker.nodePools[].ephemeralImageStorage",
        "write `ephemeralStorage: {}`: the node finds its disks by itself",
    ),
    note(
        "controller.autoScalingGroup.rollingUpdateMinInstancesInService",
        "remove it: controllers are replaced one by one, by Slipway and not by CloudFormation",
    ),
    note(
        "worker.nodePools[].autoScalingGroup.rollingUpdateMinInstancesInService",
        "remove it and write `rollout.maxUnavailable`: nodes are replaced by Slipway, not by CloudFormation",
    ),
    note(
        "worker.nodePools[].autoScalingGroup.rollingUpdateMinInstanceInService",
        "remove it and write `rollout.maxUnavailable`: nodes are replaced by Slipway, not by CloudFormation",
    ),
];

/// A node pool of kube-aws had the cluster's keys, too.
const POOL: &str = "worker.nodePools[].";

/// What to write instead of a key that is refused by name; `None` if neither kube-aws nor Slipway knows it.
#[must_use]
pub fn replacement(pattern: &str) -> Option<Cow<'static, str>> {
    if let Some(note) = retired_keys().find(|note| note.pattern == pattern) {
        return Some(note.help.into());
    }
    // A pool of kube-aws took the cluster's keys too, and those of `experimental` and `kubelet` without their group.
    let key = pattern.strip_prefix(POOL)?;
    [key.to_owned(), format!("experimental.{key}"), format!("kubelet.{key}")].into_iter().find_map(|place| {
        if let Some(note) = retired_keys().find(|note| note.pattern == place) {
            return Some(note.help.into());
        }
        schema::knows(&place)
            .then(|| format!("write `{place}` at the top of the spec: it holds for all pools").into())
    })
}

/// Whether there are notes on keys below `pattern`.
#[must_use]
pub fn has_retired_below(pattern: &str) -> bool {
    let inside = |place: &str| {
        retired_keys().any(|note| note.pattern.strip_prefix(place).is_some_and(|rest| rest.starts_with('.')))
    };
    inside(pattern) || pattern.strip_prefix(POOL).is_some_and(inside)
}

/// Every key that is refused by name.
pub fn retired_keys() -> impl Iterator<Item = &'static Note> {
    RETIRED.iter().chain(rest::REST)
}

const AGENT_ROLES: &str = "write `iamRolesForServiceAccounts: {enabled: true, roles: […]}`: pods take roles by their service account's token; a node's own role is `iam.role`";
const OS: &str =
    "remove it: nodes run Amazon Linux 2023; choose another image with `amiId` or `image.ssmParameters`";
const VOLUMES: &str = "write `rootVolume: {size, type, iops}`";
const AWS_ENVIRONMENT: &str =
    "remove it: give pods their settings through ConfigMaps, machines through `customFiles`";
const ALWAYS_TLS: &str = "remove it: kubelets always join by TLS bootstrapping";
const OWNER_REFERENCES: &str =
    "write `kubernetes: {apiServer: {enableAdmissionPlugins: [OwnerReferencesPermissionEnforcement]}}`";
const KUBE_PROXY: &str = "write `addons: {kubeProxy: {mode: nftables, resources: …}}` for clusters with many services: Kubernetes has given up IPVS";
const RELEASES_OWN: &str = "remove it: the plugin is on in every release";

/// What to do about the second family of addresses.
pub(crate) const IPV4: &str = "remove it: clusters are IPv4 only for now, and so are their ranges";

/// Keys that are refused by name.
const RETIRED: &[Note] = &[
    note("ipFamily", IPV4),
    note("ipFamilies", IPV4),
    note("dualStack", IPV4),
    note("ipv6", IPV4),
    note("ipv6CIDR", IPV4),
    note("vpcIPv6CIDR", IPV4),
    note("podIPv6CIDR", IPV4),
    note("serviceIPv6CIDR", IPV4),
    note("egressOnlyInternetGateway", IPV4),
    note("vpc.ipv6CIDR", IPV4),
    note("subnets[].ipv6CIDR", IPV4),
    note("subnets[].assignIpv6AddressOnCreation", IPV4),
    note("apiEndpoints[].loadBalancer.ipAddressType", IPV4),
    note("containerRuntime", "remove it: rkt and Docker are gone, nodes run containerd"),
    note("releaseChannel", OS),
    note("s3URI", "remove it: assets are kept in the bucket of the Slipway installation"),
    note("manageCertificates", "remove it: Slipway always keeps the certificates"),
    note("elasticFileSystemId", "remove it: install the EFS CSI driver in the cluster"),
    note("sharedPersistentVolume", "remove it: install the EFS CSI driver in the cluster"),
    note("cloudFormationStreaming", "remove it: `slipway watch` shows the progress"),
    note("cloudWatchLogging", "remove it: install a log collector such as Fluent Bit in the cluster"),
    note("amazonSsmAgent", "remove it: the SSM agent is part of Amazon Linux 2023"),
    note(
        "kubeDns",
        "write `addons: {coreDns: {replicas: …, extraCoreDNSConfig: …}, nodeLocalDns: {enabled: true}}`: CoreDNS is the one provider, \
         and pods of it stand on controllers where there is no worker",
    ),
    note("kubeProxy", KUBE_PROXY),
    note("kubernetes.kubeProxy", KUBE_PROXY),
    note(
        "openICMP",
        "remove it: nobody needs to ping the nodes from everywhere; let ranges in by a security group of your own, and name it in \
         `securityGroupIds`",
    ),
    note("kubernetesDashboard", "remove it: install the dashboard's chart in the cluster"),
    note("workerSecurityGroupIds", "write `securityGroupIds` on each of `worker.nodePools`"),
    note("workerCount", "write `worker.nodePools[].count`"),
    note("workerInstanceType", "write `worker.nodePools[].instanceType`"),
    note("controllerCount", "write `controller.count`"),
    note("controllerInstanceType", "write `controller.instanceType`"),
    note("controllerIP", "remove it: controllers are behind the load balancers of `apiEndpoints`"),
    note("etcdCount", "write `etcd.count`"),
    note("etcdInstanceType", "write `etcd.instanceType`"),
    note("controllerRootVolumeSize", "write `controller.rootVolume.size`"),
    note("workerRootVolumeSize", "write `worker.nodePools[].rootVolume.size`"),
    note("tlsBootstrap", ALWAYS_TLS),
    note(
        "kubernetes.networking",
        "write `addons: {network: {provider: flannel}}`, and for Calico's policies `networkPolicy: {enabled: true}` beside it; \
         `provider: none` leaves the network to you",
    ),
    note("kubernetes.encryptionAtRest.keys", "remove it: the key is made and sealed by Slipway"),
    note(
        "subnets[].natGateway.preconfigured",
        "write `routeTable: {id: …}` with the table that leads to the gateway",
    ),
    note("subnets[].mapPublicIPs", "write `private: true` on subnets whose machines get no public address"),
    note(
        "controller.taints",
        "remove it: controllers carry the taint of Kubernetes' control plane, and no other",
    ),
    note(
        "controller.createTimeout",
        "remove it: Slipway waits for nodes itself, with `rollout.failureBudget`",
    ),
    note("controller.rootVolumeSize", VOLUMES),
    note("controller.rootVolumeType", VOLUMES),
    note("controller.rootVolumeIOPS", VOLUMES),
    note("etcd.manageRecordSets", "remove it: members keep their own records"),
    note(
        "etcd.userSuppliedArgs",
        "write `quotaBackendBytes` as `etcd: {quota: …}`, in GiB; the other arguments are not supported yet",
    ),
    note(
        "etcd.volumeMounts",
        "remove it: a member has its root volume and its data volume, see `rootVolume` and `dataVolume`",
    ),
    note("etcd.instanceTags", rest::TAGS),
    note("etcd.kmsKeyArn", "write `etcd.dataVolume.kmsKeyArn`"),
    note("etcd.dataVolume.ephemeral", "remove it: the data volume must outlive its machine"),
    note("etcd.nodes[].dataVolume.ephemeral", "remove it: the data volume must outlive its machine"),
    note("worker.nodePools[].kube2IamSupport", AGENT_ROLES),
    note("worker.nodePools[].kiamSupport", AGENT_ROLES),
    note(
        "worker.nodePools[].createTimeout",
        "remove it: Slipway waits for nodes itself, with `rollout.failureBudget`",
    ),
    note("worker.nodePools[].waitSignal", "remove it: a node is taken into service when it is healthy"),
    note(
        "worker.nodePools[].nodeDrainer",
        "remove it: nodes are always drained before they go; see `rollout.drain`",
    ),
    note("worker.nodePools[].clusterAutoscaler", "write `autoscaling: {clusterAutoscaler: {enabled: true}}`"),
    note(
        "worker.nodePools[].autoscaling.customMetrics",
        "remove it: install an autoscaler by events, such as KEDA, in the cluster",
    ),
    note("worker.nodePools[].gpuSupport", "write `gpu: {nvidia: {enabled: true}}`"),
    note(
        "worker.nodePools[].gpu.nvidia.version",
        "remove it: the driver is that of the image; choose another with `image`",
    ),
    note("worker.nodePools[].rootVolumeSize", VOLUMES),
    note("worker.nodePools[].rootVolumeType", VOLUMES),
    note("worker.nodePools[].rootVolumeIOPS", VOLUMES),
    note(
        "worker.nodePools[].mixedInstances.spotInstancePools",
        "remove it: it belongs to `lowest-price`; EC2 chooses the pools by `spotAllocationStrategy`",
    ),
    note("worker.nodePools[].mixedInstances.spotMaxPrice", "remove it: spot never costs more than on demand"),
    note(
        "worker.nodePools[].autoScalingGroup.mixedInstances.spotInstancePools",
        "remove it: it belongs to `lowest-price`; EC2 chooses the pools by `spotAllocationStrategy`",
    ),
    note(
        "worker.nodePools[].autoScalingGroup.mixedInstances.spotMaxPrice",
        "remove it: spot never costs more than on demand",
    ),
    note("worker.nodePools[].spotFleet.spotPrice", "remove it: spot never costs more than on demand"),
    note(
        "worker.nodePools[].spotFleet.iamFleetRoleArn",
        "remove it: an Auto Scaling group needs no fleet role",
    ),
    note("worker.nodePools[].spotFleet.unitRootVolumeSize", VOLUMES),
    note("worker.nodePools[].spotFleet.rootVolumeType", VOLUMES),
    note(
        "worker.nodePools[].spotFleet.launchSpecifications[].spotPrice",
        "remove it: spot never costs more than on demand",
    ),
    note("worker.nodePools[].spotFleet.launchSpecifications[].rootVolume", "write the pool's `rootVolume`"),
    note("addons.rescheduler", "remove it: install the descheduler's chart in the cluster"),
    note("addons.prometheus", "remove it: install Prometheus' chart in the cluster"),
    note("addons.kubernetesDashboard", "remove it: install the dashboard's chart in the cluster"),
    note("addons.heapster", "write `addons: {metricsServer: {enabled: true}}`: Heapster is retired"),
    note("addons.tiller", "remove it: Helm 3 and newer need no tiller"),
    note("experimental.kiamSupport", AGENT_ROLES),
    note("experimental.kube2IamSupport", AGENT_ROLES),
    note("experimental.tlsBootstrap", ALWAYS_TLS),
    note(
        "experimental.nodeDrainer",
        "remove it: nodes are always drained before they go; see `rollout.drain`",
    ),
    note(
        "experimental.auditLog",
        "write `kubernetes: {apiServer: {auditLog: {enabled: true, …}}}`, with the same keys",
    ),
    note(
        "experimental.oidc",
        "write `kubernetes: {apiServer: {oidc: {issuerURL, clientID, usernameClaim, groupsClaim}}}`",
    ),
    note(
        "experimental.nodeMonitorGracePeriod",
        "write `kubernetes: {controllerManager: {nodeMonitorGracePeriod: …}}`",
    ),
    note(
        "experimental.authentication",
        "write the webhook's file in `controller.customFiles`, its folder in `kubernetes.apiServer.volumes`, and the flag `authentication-token-webhook-config-file` in `kubernetes.apiServer.flags`",
    ),
    note(
        "experimental.dex",
        "install Dex's chart in the cluster, and name it in `kubernetes.apiServer.oidc`",
    ),
    note("experimental.plugins", "remove it: RBAC is always on"),
    note(
        "experimental.disableSecurityGroupIngress",
        "remove it: annotate the service with `service.beta.kubernetes.io/aws-load-balancer-manage-backend-security-group-rules: \"false\"`",
    ),
    note(
        "experimental.containerStorageInterface",
        "remove it: the EBS CSI driver is installed unless `addons: {ebsCsiDriver: {enabled: false}}`, with the images that belong to \
         the release",
    ),
    note("experimental.clusterAutoscalerSupport", "write `addons: {clusterAutoscaler: {enabled: true}}`"),
    note("experimental.ephemeralImageStorage", "write `ephemeralStorage: {}` on the pools"),
    note("experimental.gpuSupport", "write `gpu: {nvidia: {enabled: true}}` on the pools"),
    note("experimental.loadBalancer", "write `loadBalancer: {names: […]}` on the pools"),
    note("experimental.targetGroup", "write `targetGroup: {arns: […]}` on the pools"),
    note("experimental.awsEnvironment", AWS_ENVIRONMENT),
    note(
        "experimental.admission.alwaysPullImages",
        "write `kubernetes: {apiServer: {enableAdmissionPlugins: [AlwaysPullImages]}}`",
    ),
    note("experimental.admission.ownerReferencesPermissionEnforcement", OWNER_REFERENCES),
    note("experimental.admission.OwnerReferencesPermissionEnforcement", OWNER_REFERENCES),
    note(
        "experimental.admission.eventRateLimit",
        "write `kubernetes: {apiServer: {eventRateLimits: [{type: Namespace, qps: 250, burst: 500}, …]}}`",
    ),
    note(
        "experimental.admission.denyEscalatingExec",
        "remove it: the plugin is gone from Kubernetes; write `kubernetes.apiServer.podSecurity`, or label namespaces",
    ),
    note("experimental.admission.initializers", "remove it: initializers are gone from Kubernetes"),
    note("experimental.admission.priority", RELEASES_OWN),
    note("experimental.admission.mutatingAdmissionWebhook", RELEASES_OWN),
    note("experimental.admission.validatingAdmissionWebhook", RELEASES_OWN),
    note("experimental.admission.persistentVolumeClaimResize", RELEASES_OWN),
    note(
        "experimental.awsNodeLabels",
        "remove it: the cloud provider sets labels of zone, region and instance type",
    ),
    note("experimental.nodeLabels", "write `nodeLabels` on `controller` and the pools"),
    note("experimental.taints", "write `taints` on the pools"),
    note("kiam", AGENT_ROLES),
    note("kiamSupport", AGENT_ROLES),
    note("kube2IamSupport", AGENT_ROLES),
    note("tiller", "remove it: Helm 3 and newer need no tiller"),
    note("heapster", "write `addons: {metricsServer: {enabled: true}}`: Heapster is retired"),
];
