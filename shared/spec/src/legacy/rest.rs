//! Keys of kube-aws whose idea has no place here: its images and hosts, its own machinery, its plugins, its older names.

use super::{AGENT_ROLES, ALWAYS_TLS, Note, OS, VOLUMES, note};

const IMAGES: &str =
    "remove it: images belong to the Kubernetes release, and are pinned by digest in lock.json";
const CHART: &str = "remove it: install its chart in the cluster";
const STACKS: &str =
    "remove it: it names a part of kube-aws' stacks; Slipway's stacks are named `<clusterName>-<part>`";
const FROM_FN: &str = "write the `id`, or `idFromStackOutput` with the name of an export";
const FROM_OUTPUT: &str = "write `id`: a spec names things by their ids";
const CUSTOM: &str = "remove it and put what the template made of it into `patches/*.yaml` beside the spec";
const EFS: &str = "remove it: install the EFS CSI driver in the cluster";
const WAIT: &str = "remove it: a node is taken into service when it is healthy; see `rollout.maxUnavailable`";
const OWN_ROLE: &str = "write `iam: {instanceProfile: {arn: …}}` with the profile that holds the role";
const STATEMENTS: &str =
    "make a managed policy with these statements, and name it in `iam.role.managedPolicies`";

const TEMPLATE: &str = "write `content` with the text itself: what differs from node to node is known there, by `node.json` in `/var/lib/slipway`";
const SEALED: &str = "remove it: a file of the spec is not sealed; let the node fetch the secret with its role, from Secrets Manager for instance";

const KUBELET_FLAGS: &str = "write the flag's field of KubeletConfiguration in `kubernetes.kubelet.config`, or in a pool's `kubelet.config`";
const KUBECONFIG: &str = "remove it: Slipway writes the kubelet's kubeconfig";
const MOUNTS: &str = "remove it: the kubelet runs on the machine itself and sees all of it";
pub(super) const TAGS: &str = "write `stackTags`, which all machines get; tags of one group only are a patch of its stack in `patches/*.yaml`";

/// Refused by name, as [`super::RETIRED`] is.
pub(super) const REST: &[Note] = &[
    // kube-aws' own machinery.
    note("cloudformation", STACKS),
    note(
        "disableContainerLinuxAutomaticUpdates",
        "remove it: nodes never update themselves; a newer image is a planned rollout",
    ),
    note("waitSignal", WAIT),
    note("customSettings", CUSTOM),
    note("worker.nodePools[].customSettings", CUSTOM),
    note(
        "kubeResourcesAutosave",
        "remove it: etcd's snapshots hold every resource; for backups by resource install Velero's chart",
    ),
    note("hostOS", "remove it: nobody logs in to a node of Slipway's to work there"),
    note("eipAllocationIDs", "write `natGateway: {eipAllocationId: …}` on the private subnets"),
    note("recordSetTTL", "remove it: the record is an alias, which has the load balancer's own time to live"),
    // Images.
    note("hyperkubeImage", IMAGES),
    note("awsCliImage", IMAGES),
    note("clusterProportionalAutoscalerImage", IMAGES),
    note("coreDnsImage", IMAGES),
    note("kubeDnsImage", IMAGES),
    note("kubeDnsMasqImage", IMAGES),
    note("kubeReschedulerImage", IMAGES),
    note("dnsMasqMetricsImage", IMAGES),
    note("execHealthzImage", IMAGES),
    note("helmImage", IMAGES),
    note("tillerImage", IMAGES),
    note("metricsServerImage", IMAGES),
    note("addonResizerImage", IMAGES),
    note("pauseImage", IMAGES),
    note("journaldCloudWatchLogsImage", IMAGES),
    note("worker.nodePools[].AwsCliImage", IMAGES),
    // Ids from elsewhere.
    note("vpc.idFromFn", FROM_FN),
    note("internetGateway.idFromFn", FROM_FN),
    note("subnets[].idFromFn", FROM_FN),
    note("subnets[].natGateway.idFromFn", FROM_FN),
    note("subnets[].routeTable.idFromFn", FROM_FN),
    note("subnets[].internetGateway", "write `internetGateway: {id: …}` at the top of the spec"),
    note("subnets[].routeTableId", "write `routeTable: {id: …}`"),
    note("apiEndpoints[].loadBalancer.idFromFn", FROM_FN),
    note("apiEndpoints[].loadBalancer.hostedZone.idFromFn", FROM_FN),
    note("etcd.hostedZone.idFromStackOutput", FROM_OUTPUT),
    note("etcd.hostedZone.idFromFn", FROM_OUTPUT),
    note("hostedZone", "write `apiEndpoints[].loadBalancer.hostedZone.id`"),
    // Machines.
    note("controller.loadBalancer", "write `apiEndpoints[].loadBalancer` with `private` and `subnets`"),
    note("controller.iam.role.arn", OWN_ROLE),
    note("controller.iam.role.manageExternally", OWN_ROLE),
    note("controller.iam.policy", STATEMENTS),
    note("etcd.iam.role.arn", OWN_ROLE),
    note("etcd.iam.role.manageExternally", OWN_ROLE),
    note("etcd.iam.policy", STATEMENTS),
    note("worker.nodePools[].iam.role.arn", OWN_ROLE),
    note("worker.nodePools[].iam.role.manageExternally", OWN_ROLE),
    note("worker.nodePools[].iam.policy", STATEMENTS),
    note("etcd.createTimeout", "remove it: Slipway waits for members itself, with `rollout.failureBudget`"),
    note("controller.clusterAutoscaler", "remove it: controllers are not scaled by load"),
    note("controller.autoscaling", "remove it: controllers are not scaled by load"),
    note(
        "worker.nodePools[].clusterAutoscalerSupport",
        "write `autoscaling: {clusterAutoscaler: {enabled: true}}`",
    ),
    note("controller.autoScalingGroup.mixedInstances", "remove it: controllers are on demand"),
    note("worker.nodePools[].tlsBootstrap", ALWAYS_TLS),
    note("worker.nodePools[].private", "write `subnets` with the names of private subnets"),
    note("worker.nodePools[].releaseChannel", OS),
    note("worker.nodePools[].elasticFileSystemId", EFS),
    note("worker.nodePools[].kubeAwsPlugins", "write the add-on in `addons`, which holds for all pools"),
    note("worker.nodePools[].apiEndpoints", "write `worker.apiEndpointName`, which holds for all pools"),
    note("worker.nodePools[].externalDNSName", "write `worker.apiEndpointName`, which holds for all pools"),
    // Files.
    note("controller.customFiles[].template", TEMPLATE),
    note("controller.customFiles[].type", SEALED),
    note("etcd.customFiles[].template", TEMPLATE),
    note("etcd.customFiles[].type", SEALED),
    note("worker.nodePools[].customFiles[].template", TEMPLATE),
    note("worker.nodePools[].customFiles[].type", SEALED),
    // The cluster's inside.
    note(
        "kubeSystemNamespaceLabels",
        "remove it: label the namespace with `kubectl label namespace kube-system`",
    ),
    note("kubernetes.manifests", "remove it: apply the manifests with `kubectl apply`"),
    note("kubernetes.podAutoscalerUseRestClient", "write `addons: {metricsServer: {enabled: true}}`"),
    note(
        "kubernetes.authentication",
        "remove it: people sign in by OIDC; for IAM identities install aws-iam-authenticator's chart in the cluster",
    ),
    note("addons.apiserverAggregator", "remove it: the aggregation layer is always on"),
    note("experimental.kubeletOpts", KUBELET_FLAGS),
    note("kubelet.systemReserved", "write `kubernetes: {kubelet: {systemReserved: …}}`"),
    note("kubelet.kubeReserved", "write `kubernetes: {kubelet: {kubeReserved: …}}`"),
    note("kubelet.flags", KUBELET_FLAGS),
    note("kubelet.kubeconfig", KUBECONFIG),
    note("kubelet.mounts", MOUNTS),
    note("kubernetes.kubelet.flags", KUBELET_FLAGS),
    note("kubernetes.kubelet.kubeconfig", KUBECONFIG),
    note("kubernetes.kubelet.mounts", MOUNTS),
    note(
        "worker.nodePools[].admission",
        "write `kubernetes: {apiServer: {enableAdmissionPlugins: […]}}`, which holds for the cluster",
    ),
    note("worker.nodePools[].systemReserved", "write `kubelet: {systemReserved: …}` on the pool"),
    note("worker.nodePools[].kubeReserved", "write `kubelet: {kubeReserved: …}` on the pool"),
    note("worker.nodePools[].kubelet.flags", KUBELET_FLAGS),
    note("worker.nodePools[].kubelet.kubeconfig", KUBECONFIG),
    note("worker.nodePools[].kubelet.mounts", MOUNTS),
    note(
        "worker.nodePools[].nodeStatusUpdateFrequency",
        "write `kubelet: {config: {nodeStatusUpdateFrequency: …}}` on the pool",
    ),
    note("kubernetes.apiserver.flags", "write `kubernetes: {apiServer: {flags: […]}}`, with a capital S"),
    note("kubernetes.apiserver.volumes", "write `kubernetes: {apiServer: {volumes: […]}}`, with a capital S"),
    note(
        "kubernetes.apiServer.targetRamMb",
        "remove it: the flag is gone from Kubernetes, which sizes its caches by itself",
    ),
    note("customApiServerSettings", "write `kubernetes: {apiServer: {certSANs: […]}}`: names and addresses"),
    note(
        "controller.volumeMounts",
        "write a larger `controller.rootVolume`: a controller keeps nothing that outlives it",
    ),
    note("controller.instanceTags", TAGS),
    note("worker.nodePools[].instanceTags", TAGS),
    note("experimental.nodeLabel", "write `nodeLabels` on `controller` and the pools"),
    note("experimental.nodeProblemDetector", CHART),
    note(
        "experimental.skipIOPerformanceEtcdVolumeCheck",
        "remove it: a member waits for its volume, not for CloudWatch's figures about it",
    ),
    note(
        "experimental.cloudControllerManager",
        "remove it: the cloud controller manager is installed unless `addons: {cloudControllerManager: {enabled: false}}`",
    ),
    note(
        "experimental.admission.podSecurityPolicy",
        "remove it: write `kubernetes.apiServer.podSecurity`, or label namespaces for Pod Security Admission",
    ),
    // Plugins.
    note("kubeAwsPlugins.awsIamAuthenticator", CHART),
    note(
        "kubeAwsPlugins.clusterAutoscaler",
        "write `addons: {clusterAutoscaler: {enabled: true}}`: its version and settings belong to the release",
    ),
    note(
        "kubeAwsPlugins.upgradeHelper",
        "remove it: controllers are replaced one by one, each when the last is ready",
    ),
    note("kubeAwsPlugins.kube2iam", AGENT_ROLES),
    note("kubeAwsPlugins.kiam", AGENT_ROLES),
    note("kubeAwsPlugins.dashboard", CHART),
    // Names of the first releases.
    note(
        "controllerCreateTimeout",
        "remove it: Slipway waits for nodes itself, with `rollout.failureBudget`",
    ),
    note("controllerRootVolumeType", "write `controller.rootVolume.type`"),
    note("controllerRootVolumeIOPS", "write `controller.rootVolume.iops`"),
    note("controllerTenancy", "write `controller.tenancy`"),
    note("workerCreateTimeout", "remove it: Slipway waits for nodes itself, with `rollout.failureBudget`"),
    note("workerRootVolumeType", "write `worker.nodePools[].rootVolume.type`"),
    note("workerRootVolumeIOPS", "write `worker.nodePools[].rootVolume.iops`"),
    note("workerSpotPrice", "write `mixedInstances` on the pools: spot never costs more than on demand"),
    note("workerTenancy", "write `worker.nodePools[].tenancy`"),
    note("workerTopologyPrivate", "write `worker.nodePools[].subnets` with the names of private subnets"),
    note("etcdRootVolumeSize", "write `etcd.rootVolume.size`"),
    note("etcdRootVolumeType", "write `etcd.rootVolume.type`"),
    note("etcdRootVolumeIOPS", "write `etcd.rootVolume.iops`"),
    note("etcdDataVolumeSize", "write `etcd.dataVolume.size`"),
    note("etcdDataVolumeType", "write `etcd.dataVolume.type`"),
    note("etcdDataVolumeIOPS", "write `etcd.dataVolume.iops`"),
    note("etcdDataVolumeEphemeral", "remove it: the data volume must outlive its machine"),
    note("etcdDataVolumeEncrypted", "remove it: volumes are always encrypted"),
    note("etcdTenancy", "write `etcd.tenancy`"),
    note("worker.nodePools[].spotFleet.unitRootVolumeIOPS", VOLUMES),
];
