//! Root on a worker: it has the tokens of the pods there, and the certificate of the kubelet. What it may change of Nodes with them.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use slipway_tests::kubernetes::{Answer, Caller, Kubernetes};
use slipway_tests::workshop::example;

use super::somebody;

/// The worker that the attacker has, and another.
const OWN: &str = "i-0aaaaaaaaaaaaaaaa";
const OTHER: &str = "i-0bbbbbbbbbbbbbbbb";

const SYSTEM: &str = "/api/v1/namespaces/kube-system";
const POLICY: &str = "ValidatingAdmissionPolicy 'flannel-own-node'";

/// A cluster with every add-on that can run on workers.
fn spec() -> String {
    let spec = example("production");
    let more = "\naddons:\n  networkPolicy: {enabled: true}\n  nodeLocalDns: {enabled: true}\n";
    let all = spec.replace("\naddons:\n", more);
    assert_ne!(all, spec);
    all
}

fn addons(cluster: &Kubernetes) -> impl Iterator<Item = &Value> {
    cluster.rendered.rendering.addons.addons.iter().flat_map(|addon| &addon.objects)
}

fn is_policy(object: &Value) -> bool {
    object["kind"].as_str().unwrap().starts_with("ValidatingAdmissionPolicy")
}

/// Service accounts and what they may do. No pods, which nobody would run here, and no API that such a pod would serve.
async fn apply_accounts(cluster: &Kubernetes) {
    let is_one = |object: &&Value| {
        let (kind, pod) = (&object["kind"], object.pointer("/spec/template/spec"));
        !is_policy(object) && pod.is_none() && kind != "APIService"
    };
    cluster.apply(&addons(cluster).filter(is_one).cloned().collect::<Vec<_>>()).await;
}

fn node(name: &str) -> String {
    format!("/api/v1/nodes/{name}")
}

fn status(name: &str) -> String {
    format!("{}/status", node(name))
}

async fn has_node(admin: &Caller, name: &str) {
    let labels = json!({ "slipway/pool": "general-a", "kubernetes.io/os": "linux" });
    let made = json!({ "metadata": { "name": name, "labels": labels, "annotations": { "kept": "yes" } } });
    assert_eq!(admin.post("/api/v1/nodes", &made).await.unwrap().status, 201);
    let condition = |kind: &str, status: &str| json!({ "type": kind, "status": status });
    let conditions = json!([condition("MemoryPressure", "False"), condition("Ready", "True")]);
    let told = admin.strategic(&status(name), &json!({ "status": { "conditions": conditions } })).await;
    assert_eq!(told.unwrap().status, 200);
}

/// A request for a token of `account`: for one of its pods, or for none.
fn token_request(pod: Option<&Value>) -> Value {
    let mut spec = json!({ "expirationSeconds": 3600 });
    if let Some(pod) = pod {
        let (name, uid) = (&pod["metadata"]["name"], &pod["metadata"]["uid"]);
        spec["boundObjectRef"] = json!({ "apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid });
    }
    json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec })
}

async fn requested(caller: &Caller, account: &str, pod: Option<&Value>) -> Answer {
    let path = format!("{SYSTEM}/serviceaccounts/{account}/token");
    caller.post(&path, &token_request(pod)).await.unwrap()
}

async fn with_token(cluster: &Kubernetes, account: &str, pod: Option<&Value>) -> Caller {
    let answer = requested(&cluster.admin(), account, pod).await;
    cluster.bearer(Some(answer.body["status"]["token"].as_str().unwrap_or_else(|| panic!("{answer:?}"))))
}

/// A pod of `account` on that node, which nobody starts.
async fn pod(admin: &Caller, account: &str, node: &str) -> Value {
    let container = json!({ "name": "it", "image": "registry.example.com/it:1" });
    let pod = json!({
        "metadata": { "name": format!("{account}-{node}") },
        "spec": { "serviceAccountName": account, "nodeName": node, "containers": [container] },
    });
    let made = admin.post(&format!("{SYSTEM}/pods"), &pod).await.unwrap();
    assert_eq!(made.status, 201, "{made:?}");
    made.body
}

fn labels(labels: &Value) -> Value {
    json!({ "metadata": { "labels": labels } })
}

fn annotations(annotations: &Value) -> Value {
    json!({ "metadata": { "annotations": annotations } })
}

fn condition(kind: &str, status: &str) -> Value {
    let condition = json!({
        "type": kind, "status": status, "reason": "FlannelIsUp", "message": "Flannel is running on this node",
        "lastTransitionTime": "2026-11-27T07:00:00Z", "lastHeartbeatTime": "2026-11-27T07:00:00Z",
    });
    json!({ "status": { "conditions": [condition] } })
}

/// What flannel writes when it starts: `AcquireLease` and `CompleteLease` in its `pkg/subnet/kube/kube.go`.
fn flannels_own(address: &str) -> [Value; 2] {
    let lease = json!({
        "flannel.alpha.coreos.com/backend-data": "{\"VNI\":1,\"VtepMAC\":\"0a:0b:0c:0d:0e:0f\"}",
        "flannel.alpha.coreos.com/backend-type": "vxlan",
        "flannel.alpha.coreos.com/kube-subnet-manager": "true",
        "flannel.alpha.coreos.com/public-ip": address,
    });
    [annotations(&lease), condition("NetworkUnavailable", "False")]
}

/// Asserts that the policy refuses this, and says why.
async fn refused(caller: &Caller, path: &str, patch: &Value, why: &str) {
    let answer = caller.strategic(path, patch).await.unwrap();
    let message = answer.body["message"].as_str().unwrap_or_default();
    assert_eq!(answer.status, 403, "{path}: {patch}: {answer:?}");
    assert!(message.contains(POLICY) && message.contains(why), "{path}: {patch}: {message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_token_of_flannel_on_a_worker_nobody_changes_another_node_or_makes_its_own_a_controller() {
    let Some(cluster) = Kubernetes::start(&spec()).await else { return };
    let admin = cluster.admin();
    for name in [OWN, OTHER] {
        has_node(&admin, name).await;
    }
    apply_accounts(&cluster).await;
    let stolen = with_token(&cluster, "flannel", Some(&pod(&admin, "flannel", OWN).await)).await;

    // Without the policy, RBAC alone lets it do both.
    let controller = labels(&json!({ "node-role.kubernetes.io/control-plane": "" }));
    for name in [OWN, OTHER] {
        assert_eq!(stolen.strategic(&status(name), &controller).await.unwrap().status, 200);
        let off = labels(&json!({ "node-role.kubernetes.io/control-plane": null }));
        assert_eq!(admin.strategic(&node(name), &off).await.unwrap().status, 200);
    }
    cluster.apply(&addons(&cluster).filter(|object| is_policy(object)).cloned().collect::<Vec<_>>()).await;
    cluster
        .until("kube-apiserver", "enforces the policy", async || {
            let harmless = labels(&json!({ "tried": jiff::Timestamp::now().as_millisecond().to_string() }));
            stolen.strategic(&status(OTHER), &harmless).await.unwrap().status == 403
        })
        .await;

    // Another Node: nothing, also not what flannel writes there itself.
    let before = admin.get(&node(OTHER)).await.unwrap().body;
    let [lease, up] = flannels_own("10.0.1.66");
    for patch in [&controller, &condition("Ready", "False"), &lease, &up] {
        refused(&stolen, &status(OTHER), patch, "may change only the Node that its own pod runs on").await;
    }
    assert_eq!(admin.get(&node(OTHER)).await.unwrap().body, before);

    // Its own: what flannel writes, at its first start and at the next one, and nothing else.
    for address in ["10.0.1.5", "10.0.1.6"] {
        for patch in flannels_own(address) {
            let answer = stolen.strategic(&status(OWN), &patch).await.unwrap();
            assert_eq!(answer.status, 200, "{answer:?}");
        }
    }
    let written = admin.get(&node(OWN)).await.unwrap().body;
    assert_eq!(written["metadata"]["annotations"]["flannel.alpha.coreos.com/public-ip"], "10.0.1.6");
    let conditions = written["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|one| one["type"] == "NetworkUnavailable" && one["status"] == "False"));
    let owner = json!([{ "apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "gone" }]);
    let spec = "may not change labels, taints, finalizers, owners or the spec";
    for (patch, why) in [
        (controller.clone(), spec),
        (labels(&json!({ "slipway/pool": null })), spec),
        (json!({ "metadata": { "finalizers": ["example.com/stay"] } }), spec),
        (json!({ "metadata": { "ownerReferences": owner } }), spec),
        (annotations(&json!({ "more": "yes" })), "annotations that begin with flannel.alpha.coreos.com/"),
        (annotations(&json!({ "kept": "no" })), "annotations that begin with flannel.alpha.coreos.com/"),
        (annotations(&json!({ "kept": null })), "annotations that begin with flannel.alpha.coreos.com/"),
        (condition("Ready", "False"), "may change only the condition NetworkUnavailable"),
        (condition("Mine", "True"), "may change only the condition NetworkUnavailable"),
    ] {
        refused(&stolen, &status(OWN), &patch, why).await;
    }

    // Taints are refused by RBAC, and by the policy if somebody grants more.
    let taint = json!({ "spec": { "taints": [{ "key": "mine", "effect": "NoExecute" }] } });
    let answer = stolen.strategic(&node(OTHER), &taint).await.unwrap();
    assert_eq!(answer.status, 403);
    assert!(answer.body["message"].as_str().unwrap().contains("cannot patch resource \"nodes\""));
    let rules = json!([{ "apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"] }]);
    let subject = json!({ "kind": "ServiceAccount", "name": "flannel", "namespace": "kube-system" });
    let reference = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "more" });
    let name = json!({ "name": "more" });
    for (kind, object) in [
        ("clusterroles", json!({ "metadata": name, "rules": rules })),
        ("clusterrolebindings", json!({ "metadata": name, "roleRef": reference, "subjects": [subject] })),
    ] {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/{kind}");
        assert_eq!(admin.post(&path, &object).await.unwrap().status, 201);
    }
    cluster
        .until("kube-apiserver", "grants more", async || {
            let answer = stolen.strategic(&node(OTHER), &taint).await.unwrap();
            answer.body["message"].as_str().unwrap_or_default().contains(POLICY)
        })
        .await;
    refused(&stolen, &node(OTHER), &taint, "may change only the Node that its own pod runs on").await;
    refused(&stolen, &node(OWN), &taint, spec).await;

    // A token of no pod names no Node.
    let unbound = with_token(&cluster, "flannel", None).await;
    refused(&unbound, &status(OWN), &up, "may change only the Node that its own pod runs on").await;
}

/// What the policy relies on.
#[tokio::test(flavor = "multi_thread")]
async fn a_workers_kubelet_gets_tokens_for_pods_of_its_own_node_alone() {
    let Some(cluster) = Kubernetes::start(&spec()).await else { return };
    let admin = cluster.admin();
    for name in [OWN, OTHER] {
        has_node(&admin, name).await;
    }
    apply_accounts(&cluster).await;
    let own = pod(&admin, "flannel", OWN).await;
    let others = pod(&admin, "flannel", OTHER).await;
    let kubelet = somebody(&cluster, &format!("system:node:{OWN}"), Some("system:nodes")).await;
    cluster
        .until("kube-apiserver", "knows the pods of the node", async || {
            requested(&kubelet, "flannel", Some(&own)).await.status == 201
        })
        .await;
    for pod in [Some(&others), None] {
        let answer = requested(&kubelet, "flannel", pod).await;
        assert_eq!(answer.status, 403, "{answer:?}");
    }
    // It has pods of no account that runs on controllers.
    let answer = requested(&kubelet, "cloud-controller-manager", Some(&own)).await;
    assert_eq!(answer.status, 403, "{answer:?}");
}

/// The accounts whose pods may run on workers.
fn on_workers(cluster: &Kubernetes) -> BTreeSet<String> {
    let pods = addons(cluster).filter_map(|object| object.pointer("/spec/template/spec"));
    pods.filter(|pod| pod["nodeSelector"]["node-role.kubernetes.io/control-plane"].is_null())
        .map(|pod| pod["serviceAccountName"].as_str().unwrap().to_owned())
        .collect()
}

/// Whatever roles grant it, Kubernetes' own ones included.
#[tokio::test(flavor = "multi_thread")]
async fn no_add_on_on_a_worker_reads_a_secret_or_writes_anything_but_events_and_flannels_node() {
    let Some(cluster) = Kubernetes::start(&spec()).await else { return };
    apply_accounts(&cluster).await;
    let accounts = on_workers(&cluster);
    let mut writes = BTreeSet::new();
    for account in &accounts {
        let caller = with_token(&cluster, account, None).await;
        let review = json!({ "spec": { "namespace": "kube-system" } });
        let answer = caller.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", &review).await;
        let answer = answer.unwrap();
        assert_eq!(answer.status, 201, "{answer:?}");
        for rule in answer.body["status"]["resourceRules"].as_array().unwrap() {
            let words = |key: &str| -> Vec<String> {
                let words = rule[key].as_array().into_iter().flatten();
                words.map(|word| word.as_str().unwrap().to_owned()).collect()
            };
            for resource in words("resources") {
                assert!(resource != "secrets" && resource != "*", "{account}: {rule}");
                for verb in words("verbs") {
                    if !["get", "list", "watch"].contains(&verb.as_str()) {
                        writes.insert(format!("{account}: {verb} {resource}"));
                    }
                }
            }
        }
    }
    // Every account may ask about itself.
    writes.retain(|one| !one.contains(": create selfsubject"));
    let expected = [
        "flannel: patch nodes/status",
        "kube-proxy: create events",
        "kube-proxy: patch events",
        "kube-proxy: update events",
        // These two ask whether a token or a name is good.
        "metrics-server: create subjectaccessreviews",
        "metrics-server: create tokenreviews",
    ];
    assert_eq!(writes.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    let names =
        ["coredns", "ebs-csi-node-sa", "flannel", "kube-network-policies", "kube-proxy", "metrics-server"];
    let names = names.into_iter().chain(["node-local-dns"]);
    assert_eq!(accounts.iter().map(String::as_str).collect::<Vec<_>>(), names.collect::<Vec<_>>());
}
