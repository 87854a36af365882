//! AWS' EBS CSI driver: persistent volumes. The controller creates and attaches them, the node part mounts them.
//!
//! Snapshots are not included: whether to install their controller and resource definitions is the user's decision.

use serde_json::{Value, json};
use slipway_core::cluster::Mount;

use super::Kit;
use super::object::{
    apart, as_root, as_user, env_field, host_path, http_probe, mount, on_controllers, on_linux, restricted,
    rule, tolerate_control_plane, tolerate_everything,
};
use crate::images::Image;

const DRIVER: &str = "ebs.csi.aws.com";
const CONTROLLER: &str = "ebs-csi-controller";
const CONTROLLER_ACCOUNT: &str = "ebs-csi-controller-sa";
const NODE: &str = "ebs-csi-node";
const NODE_ACCOUNT: &str = "ebs-csi-node-sa";
const SOCKETS: &str = "/var/lib/csi/sockets/pluginproxy";

pub(super) fn objects(kit: &mut Kit<'_, '_>) -> Vec<Value> {
    let driver = kit.image(Image::EbsCsiDriver);
    let liveness = liveness_probe(&kit.image(Image::CsiLivenessProbe));
    let sidecars = [
        sidecar(
            "csi-provisioner",
            &kit.image(Image::CsiProvisioner),
            // Topology is enabled by default since release 5, and its feature gate may be removed.
            &["--extra-create-metadata", "--default-fstype=ext4", "--worker-threads=100"],
        ),
        sidecar("csi-attacher", &kit.image(Image::CsiAttacher), &["--worker-threads=100"]),
        sidecar(
            "csi-resizer",
            &kit.image(Image::CsiResizer),
            &["--handle-volume-inuse-error=false", "--workers=100"],
        ),
    ];
    let registrar = registrar(&kit.image(Image::CsiNodeDriverRegistrar));
    let replicas = kit.replicas_on_controllers();
    let aws = kit.aws("ebs-csi-controller");

    let mut containers = vec![controller(kit, &driver)];
    containers.extend(sidecars);
    containers.push(liveness.clone());
    let controller_pod = json!({
        "serviceAccountName": CONTROLLER_ACCOUNT,
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": on_controllers(),
        "tolerations": tolerate_control_plane(),
        "affinity": apart(CONTROLLER),
        "securityContext": with_group(as_user(1000)),
        "containers": containers,
        "volumes": [{ "name": "socket-dir", "emptyDir": {} }],
    });
    let node_pod = node_pod(kit, &driver, registrar, liveness);
    let mut objects = accounts(kit);
    objects.extend([
        kit.cluster_wide(
            "storage.k8s.io/v1",
            "CSIDriver",
            DRIVER,
            json!({ "spec": {
            "attachRequired": true,
            "podInfoOnMount": false,
            "fsGroupPolicy": "File",
        } }),
        ),
        kit.daemon_set(NODE, NODE, node_pod),
        aws.apply(kit.deployment(CONTROLLER, CONTROLLER, replicas, false, controller_pod)),
    ]);
    objects.extend(kit.disruption_budget(CONTROLLER, CONTROLLER, replicas));
    if kit.context.cluster.addons.default_storage_class {
        objects.push(storage_class(kit));
    }
    objects
}

fn with_group(mut security: Value) -> Value {
    security["fsGroup"] = json!(1000);
    security
}

/// The permissions of each sidecar, in one role, because all sidecars share the pod, the service account and the token.
fn accounts(kit: &Kit<'_, '_>) -> Vec<Value> {
    const LOOK: [&str; 3] = ["get", "list", "watch"];
    let controller = json!([
        rule(&[""], &["persistentvolumes"], &["get", "list", "watch", "create", "update", "patch", "delete"]),
        rule(&[""], &["persistentvolumeclaims"], &["get", "list", "watch", "update"]),
        rule(&[""], &["persistentvolumeclaims/status"], &["update", "patch"]),
        rule(&[""], &["events"], &["list", "watch", "create", "update", "patch"]),
        rule(&[""], &["nodes", "pods"], &LOOK),
        rule(&["storage.k8s.io"], &["storageclasses", "csinodes", "volumeattributesclasses"], &LOOK),
        rule(&["storage.k8s.io"], &["volumeattachments"], &["get", "list", "watch", "patch"]),
        rule(&["storage.k8s.io"], &["volumeattachments/status"], &["patch"]),
    ]);
    // The driver names its leases, one for each sidecar, so a rule for fixed names would break when a sidecar is added.
    let leases = json!([rule(
        &["coordination.k8s.io"],
        &["leases"],
        &["get", "list", "watch", "create", "update", "delete"],
    )]);
    // It runs on every worker, so it changes nothing: these are the rules of its chart with `node.serviceAccount.disableMutation`
    // (`templates/clusterrole-csi-node.yaml`). What the driver then cannot do is to remove its start-up taint: see `node_pod`.
    let node = json!([
        // It reads zone and type if the metadata service is not reachable.
        rule(&[""], &["nodes"], &["get"]),
        // On a node that is drained it waits for its volumes to be detached before it stops.
        rule(&["storage.k8s.io"], &["volumeattachments"], &LOOK),
    ]);
    vec![
        kit.service_account(CONTROLLER_ACCOUNT),
        kit.cluster_role(CONTROLLER, controller),
        kit.cluster_role_binding(CONTROLLER, CONTROLLER, CONTROLLER_ACCOUNT),
        kit.role(CONTROLLER, leases),
        kit.role_binding(CONTROLLER, CONTROLLER, CONTROLLER_ACCOUNT),
        kit.service_account(NODE_ACCOUNT),
        kit.cluster_role(NODE, node),
        kit.cluster_role_binding(NODE, NODE, NODE_ACCOUNT),
    ]
}

fn storage_class(kit: &Kit<'_, '_>) -> Value {
    let mut class = kit.cluster_wide(
        "storage.k8s.io/v1",
        "StorageClass",
        "gp3",
        json!({
            "provisioner": DRIVER,
            "parameters": { "type": "gp3", "encrypted": "true" },
            "reclaimPolicy": "Delete",
            "allowVolumeExpansion": true,
            // A volume belongs to one zone: that of the first pod that uses it.
            "volumeBindingMode": "WaitForFirstConsumer",
        }),
    );
    class["metadata"]["annotations"] = json!({ "storageclass.kubernetes.io/is-default-class": "true" });
    class
}

fn small() -> Value {
    json!({ "requests": { "cpu": "10m", "memory": "40Mi" }, "limits": { "memory": "256Mi" } })
}

fn sidecar(name: &str, image: &str, args: &[&str]) -> Value {
    let mut all = vec!["--csi-address=/csi/csi.sock", "--timeout=60s", "--leader-election=true"];
    all.extend(["--kube-api-qps=20", "--kube-api-burst=100", "--v=2"]);
    all.extend(args);
    json!({
        "name": name,
        "image": image,
        "args": all,
        "resources": small(),
        "securityContext": restricted(),
        "volumeMounts": [mount("socket-dir", "/csi")],
    })
}

/// The container that serves the driver's probe. The volume has the same name in both pods.
fn liveness_probe(image: &str) -> Value {
    json!({
        "name": "liveness-probe",
        "image": image,
        "args": ["--csi-address=/csi/csi.sock", "--health-port=9808"],
        "resources": small(),
        "securityContext": restricted(),
        "volumeMounts": [mount("socket-dir", "/csi")],
    })
}

fn registrar(image: &str) -> Value {
    json!({
        "name": "node-driver-registrar",
        "image": image,
        "args": [
            "--csi-address=/csi/csi.sock",
            format!("--kubelet-registration-path=/var/lib/kubelet/plugins/{DRIVER}/csi.sock"),
            "--v=2",
        ],
        "resources": small(),
        "securityContext": restricted(),
        "volumeMounts": [
            mount("socket-dir", "/csi"),
            mount("registration-dir", "/registration"),
            mount("probe-dir", &format!("/var/lib/kubelet/plugins/{DRIVER}/")),
        ],
    })
}

fn controller(kit: &Kit<'_, '_>, image: &str) -> Value {
    let cluster = kit.context.cluster;
    json!({
        "name": "ebs-plugin",
        "image": image,
        "args": [
            "controller",
            format!("--endpoint=unix://{SOCKETS}/csi.sock"),
            format!("--k8s-tag-cluster-id={}", cluster.name),
            "--batching=true",
            "--logging-format=text",
            "--v=2",
        ],
        "env": [env_field("CSI_NODE_NAME", "spec.nodeName"), { "name": "AWS_REGION", "value": cluster.region }],
        "ports": [{ "name": "healthz", "containerPort": 9808, "protocol": "TCP" }],
        "livenessProbe": http_probe("/healthz", "healthz"),
        "readinessProbe": http_probe("/healthz", "healthz"),
        "resources": kit.resources(json!({ "cpu": "10m", "memory": "40Mi" }), json!({ "memory": "256Mi" })),
        "securityContext": restricted(),
        "volumeMounts": [mount("socket-dir", SOCKETS)],
    })
}

/// How many volumes of a machine are not for pods: the root volume, and those of the pool's spec; of several pools, the most.
///
/// The driver computes how many volumes a node takes (`CSINode`) from its instance type less these. It would ask the metadata service for them,
/// which no pod reaches at a hop limit of 1, and the Node's labels, from which it takes everything else, know nothing of them: it then assumes one
/// interface and the root volume (`docs/install.md` of the driver, "Kubernetes Metadata"; `getVolumesLimit` in `pkg/driver/node.go`). Machines have
/// one interface here.
fn reserved_volumes(kit: &Kit<'_, '_>) -> usize {
    let of_pool = |mounts: &[Mount]| mounts.iter().map(|mount| mount.devices.len()).sum::<usize>();
    let most = kit.context.cluster.pools.iter().map(|pool| of_pool(&pool.storage.mounts)).max();
    1 + most.unwrap_or_default()
}

fn node_pod(kit: &Kit<'_, '_>, image: &str, registrar: Value, liveness: Value) -> Value {
    let mut arguments = vec![
        "node".to_owned(),
        "--endpoint=unix:/csi/csi.sock".to_owned(),
        format!("--csi-mount-point-prefix=/var/lib/kubelet/plugins/kubernetes.io/csi/{DRIVER}/"),
        "--logging-format=text".to_owned(),
        "--v=2".to_owned(),
    ];
    // The root volume alone is what the driver assumes.
    let reserved = reserved_volumes(kit);
    if reserved > 1 {
        arguments.push(format!("--reserved-volume-attachments={reserved}"));
    }
    let plugin = json!({
        "name": "ebs-plugin",
        "image": image,
        "args": arguments,
        "env": [
            env_field("CSI_NODE_NAME", "spec.nodeName"),
            // It would look for the taint `ebs.csi.aws.com/agent-not-ready` to remove it, and may not (`startNotReadyTaintWatcher` in
            // `pkg/driver/node.go`). A spec cannot give a pool this taint while the add-on is on.
            { "name": "DISABLE_TAINT_WATCHER", "value": "true" },
        ],
        "ports": [{ "name": "healthz", "containerPort": 9808, "protocol": "TCP" }],
        "livenessProbe": http_probe("/healthz", "healthz"),
        "lifecycle": { "preStop": { "exec": { "command": ["/bin/aws-ebs-csi-driver", "pre-stop-hook"] } } },
        "resources": kit.resources(json!({ "cpu": "10m", "memory": "40Mi" }), json!({ "memory": "256Mi" })),
        // It mounts devices for other pods.
        "securityContext": { "privileged": true, "readOnlyRootFilesystem": true },
        "volumeMounts": [
            { "name": "kubelet-dir", "mountPath": "/var/lib/kubelet", "mountPropagation": "Bidirectional" },
            mount("socket-dir", "/csi"),
            mount("device-dir", "/dev"),
        ],
    });
    json!({
        "serviceAccountName": NODE_ACCOUNT,
        "priorityClassName": "system-node-critical",
        "nodeSelector": on_linux(),
        "tolerations": tolerate_everything(),
        "securityContext": as_root(),
        "terminationGracePeriodSeconds": 30,
        "containers": [plugin, registrar, liveness],
        "volumes": [
            host_path("kubelet-dir", "/var/lib/kubelet", "Directory"),
            host_path("socket-dir", &format!("/var/lib/kubelet/plugins/{DRIVER}/"), "DirectoryOrCreate"),
            host_path("registration-dir", "/var/lib/kubelet/plugins_registry/", "Directory"),
            host_path("device-dir", "/dev", "Directory"),
            { "name": "probe-dir", "emptyDir": {} },
        ],
    })
}
