//! The node manager: the add-ons of a rendered cluster, and the certificate requests of its kubelets.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Mutex;

use jiff::Timestamp;
use serde_json::{Value, json};
use slipway_core::digest::sha256_hex;
use slipway_core::keys;
use slipway_core::release::{AddonsPointer, is_for_earlier_agents};
use slipway_core::role::Role;
use slipway_credentials::bootstrap::{RoleToken, group};
use slipway_node::failure::AgentResult;
use slipway_node::manage::{Cloud, Library, Machine, Site, pass};
use slipway_tests::kubernetes::Kubernetes;
use slipway_tests::workshop::example;

use super::fleet::Fleet;

const CLUSTER: &str = "production";
const NODE: &str = "i-0a1b2c3d4e5f60718";

/// A bucket in memory for the node manager.
#[derive(Default)]
struct Shelves(Mutex<BTreeMap<String, Vec<u8>>>);

impl Library for Shelves {
    async fn get(&self, key: &str) -> AgentResult<Option<Vec<u8>>> {
        Ok(self.0.lock().unwrap().get(key).cloned())
    }
}

impl Shelves {
    fn put(&self, key: String, bytes: &[u8]) {
        self.0.lock().unwrap().insert(key, bytes.to_vec());
    }

    /// Stores a set of add-ons and points to it, as a rollout with that generation does.
    fn point(&self, set: &str, generation: u64) {
        let digest = sha256_hex(set.as_bytes());
        self.put(keys::addons(CLUSTER, &digest), set.as_bytes());
        let pointer =
            AddonsPointer { format: AddonsPointer::FORMAT, digest, release: "r".repeat(64), generation };
        self.put(keys::addons_pointer(CLUSTER), &serde_json::to_vec(&pointer).unwrap());
    }
}

/// EC2, with these machines.
#[derive(Default)]
struct Machines(BTreeMap<String, Machine>);

impl Cloud for Machines {
    async fn machines(&self, ids: &[&str]) -> AgentResult<BTreeMap<String, Machine>> {
        Ok(ids.iter().filter_map(|id| Some(((*id).to_owned(), self.0.get(*id)?.clone()))).collect())
    }

    async fn starting_roles(&self, _: &str, _: Timestamp) -> AgentResult<BTreeSet<String>> {
        Ok(self.0.values().filter_map(|machine| machine.tags.get("slipway:role").cloned()).collect())
    }

    async fn report_unhealthy(&self, id: &str) -> AgentResult<Result<(), String>> {
        Ok(Err(format!("{id} is in no Auto Scaling group")))
    }
}

fn site(cluster: &Kubernetes) -> Site {
    Site { root: cluster.root().to_owned(), cluster: CLUSTER.to_owned(), node: NODE.to_owned() }
}

async fn exists(cluster: &Kubernetes, path: &str) -> bool {
    let answer = cluster.admin().get(path).await.unwrap();
    assert!([200, 404].contains(&answer.status), "{answer:?}");
    answer.status == 200
}

#[tokio::test(flavor = "multi_thread")]
async fn the_addons_of_a_rendered_cluster_are_kept_and_what_is_no_longer_wanted_goes() {
    const METRICS: &str = "/apis/apps/v1/namespaces/kube-system/deployments/metrics-server";
    const FOREIGN: &str = "/api/v1/namespaces/kube-system/configmaps/foreign";
    let Some(cluster) = Kubernetes::start(&example("production")).await else { return };
    let (site, shelves, nobody) = (site(&cluster), Shelves::default(), Machines::default());
    let said = pass(&site, &shelves, &nobody).await.unwrap();
    assert_eq!(said["addons"]["state"], "none", "{said}");
    assert_eq!(said["node"], json!({ "name": NODE, "registered": false }));

    // All add-ons are applied to a real API server.
    let set = &cluster.rendered.rendering.addons;
    shelves.point(&set.to_json(), 1);
    let said = pass(&site, &shelves, &nobody).await.unwrap();
    let objects = set.addons.iter().flat_map(|addon| &addon.objects);
    let objects = objects.filter(|object| !is_for_earlier_agents(object)).count();
    assert_eq!(said["addons"]["state"], "applied", "{said}");
    assert_eq!(said["addons"]["objects"], objects);
    assert_eq!(said["addons"]["pruned"], json!([]));
    assert!(exists(&cluster, METRICS).await);
    let said = pass(&site, &shelves, &nobody).await.unwrap();
    assert_eq!(said["addons"]["state"], "fresh", "another controller does not have to do it again: {said}");

    // An object of a user with our label stays the user's.
    let kubeconfig = cluster.admin_kubeconfig();
    let foreign = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "foreign", "namespace": "kube-system", "labels": { "slipway/addon": "metrics-server" },
    }});
    let made =
        cluster.kubectl(&kubeconfig, &["apply", "--server-side", "-f", "-"], &foreign.to_string()).await;
    assert!(made.status.success(), "{made:?}");
    let mut fewer: Value = serde_json::from_str(&set.to_json()).unwrap();
    let addons = fewer["addons"].as_array_mut().unwrap();
    let all = addons.len();
    addons.retain(|addon| addon["name"] != "metrics-server");
    assert_eq!(addons.len(), all - 1);
    shelves.point(&fewer.to_string(), 2);
    let said = pass(&site, &shelves, &nobody).await.unwrap();
    assert_eq!(said["addons"]["state"], "applied", "{said}");
    let pruned = said["addons"]["pruned"].as_array().unwrap();
    let metrics = set.addon("metrics-server").unwrap();
    assert_eq!(pruned.len(), metrics.objects.len(), "{said}");
    assert!(!exists(&cluster, METRICS).await);
    assert!(exists(&cluster, FOREIGN).await);

    // A controller that still has an older pointer reverts nothing.
    shelves.point(&set.to_json(), 1);
    let said = pass(&site, &shelves, &nobody).await.unwrap();
    assert_eq!(said["addons"]["state"], "left", "{said}");
    assert!(!exists(&cluster, METRICS).await);

    // An object whose content differs from its name changes nothing.
    shelves.point(&set.to_json(), 3);
    shelves.put(keys::addons(CLUSTER, &set.digest), fewer.to_string().as_bytes());
    let said = pass(&site, &shelves, &nobody).await.unwrap();
    assert_eq!(said["addons"]["error"]["code"], "manage.addons", "{said}");
    assert!(!exists(&cluster, METRICS).await);

    // Without its ledger it applies everything again, as the help says.
    shelves.point(&fewer.to_string(), 3);
    let proxy = "/apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy";
    assert_eq!(cluster.admin().delete(proxy).await.unwrap().status, 200);
    let ledger = "/api/v1/namespaces/kube-system/configmaps/slipway-addons";
    assert_eq!(cluster.admin().delete(ledger).await.unwrap().status, 200);
    let said = pass(&site, &shelves, &nobody).await.unwrap();
    assert_eq!(said["addons"]["state"], "applied", "{said}");
    assert!(exists(&cluster, proxy).await);

    // The cluster's own ConfigMap.
    let map =
        cluster.admin().get("/api/v1/namespaces/kube-system/configmaps/slipway-kubelet-ca").await.unwrap();
    let authority = std::fs::read_to_string(cluster.path("/etc/kubernetes/pki/client-ca.pem")).unwrap();
    assert_eq!(map.body["data"]["ca.crt"].as_str(), Some(authority.as_str()));
    let fleet = Fleet::start(&cluster, &[NODE]).await;
    let said = pass(&site, &shelves, &nobody).await.unwrap();
    assert_eq!(said["node"], json!({ "name": NODE, "registered": true }));
    let labels = fleet.node(NODE).await["metadata"]["labels"].clone();
    assert_eq!(labels["node-role.kubernetes.io/control-plane"], "", "{labels}");
}

/// A request as a kubelet makes it.
fn pkcs10(subject: &str, names: Option<&str>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key.pem");
    let made = Command::new("openssl")
        .args(["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-subj", subject])
        .args(names.iter().flat_map(|names| ["-addext".to_owned(), format!("subjectAltName={names}")]))
        .arg("-keyout")
        .arg(&key)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    String::from_utf8(made.stdout).unwrap()
}

/// Requests a serving certificate.
async fn ask(cluster: &Kubernetes, name: &str, asker: &str, subject: &str, names: &str) {
    let pem = pkcs10(subject, Some(names));
    file(cluster, name, ("kubernetes.io/kubelet-serving", "server auth"), (asker, &["system:nodes"]), &pem)
        .await;
}

/// Requests a node's first certificate with the bootstrap token of `role`.
async fn ask_first(cluster: &Kubernetes, name: &str, node: &str, role: &str) {
    let role: Role = role.parse().unwrap();
    let key = std::fs::read_to_string(cluster.path("/etc/kubernetes/pki/bootstrap-key")).unwrap();
    let user = format!("system:bootstrap:{}", RoleToken::derive(&key, &role).id);
    ask_first_as(cluster, name, node, (&user, &["system:bootstrappers", &group(&role).unwrap()])).await;
}

async fn ask_first_as(cluster: &Kubernetes, name: &str, node: &str, asker: (&str, &[&str])) {
    let pem = pkcs10(&format!("/O=system:nodes/CN=system:node:{node}"), None);
    let signer = ("kubernetes.io/kube-apiserver-client-kubelet", "client auth");
    file(cluster, name, signer, asker, &pem).await;
}

async fn file(
    cluster: &Kubernetes,
    name: &str,
    (signer, usage): (&str, &str),
    (asker, groups): (&str, &[&str]),
    pem: &str,
) {
    use base64::Engine as _;
    let request = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": { "name": name },
        "spec": {
            "signerName": signer,
            "usages": ["digital signature", usage],
            "request": base64::engine::general_purpose::STANDARD.encode(pem),
        },
    });
    let kubeconfig = cluster.path(slipway_node::kube::NODE_MANAGER_KUBECONFIG);
    let who = format!("--as={asker}");
    let groups: Vec<String> = groups.iter().map(|group| format!("--as-group={group}")).collect();
    let mut words = vec!["create", &who, "--as-group=system:authenticated", "-f", "-"];
    words.extend(groups.iter().map(String::as_str));
    let made = cluster.kubectl(&kubeconfig, &words, &request.to_string()).await;
    assert!(made.status.success(), "{made:?}");
}

fn named(requests: &Value, list: &str) -> Vec<String> {
    let all = requests[list].as_array().unwrap().iter();
    let mut all: Vec<_> = all.map(|one| one["request"].as_str().unwrap().to_owned()).collect();
    all.sort();
    all
}

fn machine(address: &str, cluster: &str, role: &str) -> Machine {
    let group = format!("{cluster}-{}", if role == "controller" { "control-plane" } else { role });
    let tags = [("slipway:cluster", cluster), ("slipway:role", role), ("aws:autoscaling:groupName", &group)];
    Machine {
        state: "running".to_owned(),
        launched: Some(Timestamp::now()),
        tags: tags.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        addresses: [address.parse().unwrap()].into(),
        names: [format!("ip-{}.eu-west-1.compute.internal", address.replace('.', "-"))].into(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bootstrap_token_makes_nobody_a_node_that_stands() {
    let Some(cluster) = Kubernetes::start(&example("production")).await else { return };
    let (site, shelves) = (site(&cluster), Shelves::default());
    let hours = |many| Some(Timestamp::now() - jiff::SignedDuration::from_hours(many));
    let old = Machine { launched: hours(2), ..machine("10.0.0.5", CLUSTER, "pool-general-a") };
    let machines = Machines(BTreeMap::from([
        ("i-1".to_owned(), machine("10.0.0.1", CLUSTER, "pool-general-a")),
        ("i-2".to_owned(), machine("10.0.0.2", CLUSTER, "controller")),
        ("i-3".to_owned(), machine("10.0.0.3", CLUSTER, "controller")),
        ("i-4".to_owned(), machine("10.0.0.4", CLUSTER, "etcd-0")),
        ("i-5".to_owned(), old),
        ("i-6".to_owned(), machine("10.0.0.6", "another", "pool-general-a")),
        ("i-7".to_owned(), machine("10.0.0.7", CLUSTER, "pool-general-a")),
        ("i-8".to_owned(), machine("10.0.0.8", CLUSTER, "controller")),
    ]));
    // A controller with a registered node.
    let _fleet = Fleet::start(&cluster, &["i-3"]).await;
    // A worker asks in the name of a controller that boots, before the controller does.
    ask_first(&cluster, "stolen", "i-2", "pool-general-a").await;
    for (name, node, role) in [
        ("worker", "i-1", "pool-general-a"),
        ("controller", "i-2", "controller"),
        ("stands", "i-3", "controller"),
        ("etcd", "i-4", "controller"),
        ("old", "i-5", "pool-general-a"),
        ("anothers", "i-6", "pool-general-a"),
        ("unknown", "i-9", "pool-general-a"),
        ("no-instance", "ip-10-0-0-1", "pool-general-a"),
    ] {
        ask_first(&cluster, name, node, role).await;
    }
    let said = pass(&site, &shelves, &machines).await.unwrap();
    let requests = &said["requests"];
    let approved: BTreeSet<&str> =
        requests["approved"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(approved, BTreeSet::from(["system:node:i-1", "system:node:i-2"]), "{said}");
    let refused = ["anothers", "etcd", "no-instance", "old", "stands", "stolen"];
    assert_eq!(named(requests, "denied"), refused, "{said}");
    assert_eq!(named(requests, "left"), ["unknown"], "{said}");
    let path = |name: &str| format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}");
    let admin = cluster.admin();
    for name in ["worker", "controller"] {
        let signed = async || {
            let found = admin.get(&path(name)).await.unwrap().body;
            found["status"]["certificate"].is_string()
        };
        cluster.until("kube-controller-manager", &format!("signs {name}"), signed).await;
    }

    // A requester with many requests gets one decision per pass, and a new requester gets one in the same pass. Who copies a request that
    // was approved gets nothing.
    for number in 0..20 {
        ask_first(&cluster, &format!("again-{number}"), "i-9", "pool-general-a").await;
    }
    ask_first(&cluster, "copy", "i-1", "pool-general-a").await;
    ask_first(&cluster, "late", "i-7", "pool-general-a").await;
    // The token that all nodes shared once is nobody's in this cluster.
    ask_first_as(&cluster, "shared", "i-8", ("kubelet-bootstrap", &["system:bootstrappers"])).await;
    let said = pass(&site, &shelves, &machines).await.unwrap();
    assert_eq!(said["requests"]["approved"], json!(["system:node:i-7"]), "{said}");
    assert_eq!(named(&said["requests"], "denied"), ["copy", "shared"], "{said}");
    assert_eq!(named(&said["requests"], "left").len(), 1, "{said}");
}

/// Requests another client certificate, as a node that has one.
async fn renew(cluster: &Kubernetes, name: &str, node: &str) {
    let pem = pkcs10(&format!("/O=system:nodes/CN=system:node:{node}"), None);
    let signer = ("kubernetes.io/kube-apiserver-client-kubelet", "client auth");
    file(cluster, name, signer, (&format!("system:node:{node}"), &["system:nodes"]), &pem).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p13_a_node_renews_its_certificate_only_while_its_machine_runs() {
    const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let Some(cluster) = Kubernetes::start(&example("production")).await else { return };
    let (site, shelves) = (site(&cluster), Shelves::default());
    let running = machine("10.0.0.1", CLUSTER, "pool-general-a");
    let terminated = Machine { state: "terminated".to_owned(), ..machine("10.0.0.2", CLUSTER, "controller") };
    let machines = Machines(BTreeMap::from([("i-1".to_owned(), running), ("i-2".to_owned(), terminated)]));
    let admin = cluster.admin();
    let status = async |name: &str| {
        let path = format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}");
        admin.get(&path).await.unwrap().body["status"].take()
    };
    // In a cluster of an earlier agent, Kubernetes asks nothing about the machine.
    let set = &cluster.rendered.rendering.addons;
    let earlier: Vec<Value> = set
        .addons
        .iter()
        .flat_map(|addon| &addon.objects)
        .filter(|object| is_for_earlier_agents(object))
        .cloned()
        .collect();
    cluster.apply(&earlier).await;
    renew(&cluster, "by-kubernetes", "i-2").await;
    let signed = async || status("by-kubernetes").await["certificate"].is_string();
    cluster.until("kube-controller-manager", "renews for a machine that is gone", signed).await;
    // This agent deletes what allows that.
    let binding = format!("{BINDINGS}/{}", earlier[0]["metadata"]["name"].as_str().unwrap());
    assert!(exists(&cluster, &binding).await);
    shelves.point(&set.to_json(), 1);
    let said = pass(&site, &shelves, &machines).await.unwrap();
    assert_eq!(said["addons"]["state"], "applied", "{said}");
    assert_eq!(said["addons"]["pruned"].as_array().unwrap().len(), earlier.len(), "{said}");
    assert!(!exists(&cluster, &binding).await);

    // The API server's authorizer hears of it a moment later.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    for (name, node) in [("runs", "i-1"), ("gone", "i-2"), ("unknown", "i-9")] {
        renew(&cluster, name, node).await;
    }
    // Kubernetes had its time.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    for name in ["runs", "gone", "unknown"] {
        assert_eq!(status(name).await, json!({}), "{name}");
    }
    let said = pass(&site, &shelves, &machines).await.unwrap();
    let requests = &said["requests"];
    assert_eq!(requests["approved"], json!(["system:node:i-1"]), "{said}");
    assert_eq!(named(requests, "denied"), ["gone"], "{said}");
    assert_eq!(named(requests, "left"), ["unknown"], "{said}");
    let signed = async || status("runs").await["certificate"].is_string();
    cluster.until("kube-controller-manager", "signs the renewal", signed).await;
    assert!(status("gone").await["certificate"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_serves_under_the_names_of_its_own_machine_and_no_other() {
    let Some(cluster) = Kubernetes::start(&example("production")).await else { return };
    let (site, shelves) = (site(&cluster), Shelves::default());
    let of_pool = |address: &str, cluster: &str| machine(address, cluster, "pool-general-a");
    let machines = Machines(BTreeMap::from([
        ("i-1".to_owned(), of_pool("10.0.0.1", CLUSTER)),
        ("i-2".to_owned(), of_pool("10.0.0.2", CLUSTER)),
        ("i-3".to_owned(), of_pool("10.0.0.3", "another")),
    ]));
    let of = |node: &str| format!("/O=system:nodes/CN=system:node:{node}");
    let own = "DNS:i-1,DNS:ip-10-0-0-1.eu-west-1.compute.internal,IP:10.0.0.1";
    ask(&cluster, "good", "system:node:i-1", &of("i-1"), own).await;
    ask(&cluster, "false-address", "system:node:i-1", &of("i-1"), "DNS:i-1,IP:10.0.0.2").await;
    ask(&cluster, "api", "system:node:i-1", &of("i-1"), "DNS:kubernetes.default.svc").await;
    ask(&cluster, "other-cluster", "system:node:i-3", &of("i-3"), "DNS:i-3,IP:10.0.0.3").await;
    ask(&cluster, "unknown", "system:node:i-9", &of("i-9"), "DNS:i-9").await;
    // One request per requester in a pass.
    let (mut approved, mut denied) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let said = pass(&site, &shelves, &machines).await.unwrap();
        let requests = &said["requests"];
        approved.extend(requests["approved"].as_array().unwrap().clone());
        denied.extend(named(requests, "denied"));
        assert_eq!(named(requests, "left"), ["unknown"], "{said}");
    }
    denied.sort();
    assert_eq!(approved, [json!("system:node:i-1")]);
    assert_eq!(denied, ["api", "false-address", "other-cluster"]);

    // The approved request is signed by the kubelets' authority; the others never are.
    let path = |name: &str| format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}");
    let admin = cluster.admin();
    let certificate = async |name: &str| {
        let found = admin.get(&path(name)).await.unwrap().body;
        found["status"]["certificate"].as_str().map(str::to_owned)
    };
    cluster.until("kube-controller-manager", "signs", async || certificate("good").await.is_some()).await;
    let pem = {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.decode(certificate("good").await.unwrap()).unwrap()
    };
    let file = cluster.path("/operator/good.pem");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, pem).unwrap();
    let verified = Command::new("openssl")
        .args(["verify", "-purpose", "sslserver", "-CAfile"])
        .arg(cluster.path("/etc/kubernetes/pki/kubelet-ca.pem"))
        .arg(&file)
        .output()
        .unwrap();
    assert!(verified.status.success(), "{verified:?}");
    for name in ["api", "false-address", "other-cluster", "unknown"] {
        assert_eq!(certificate(name).await, None, "{name}");
    }
    // A decided request is not decided again.
    let again = pass(&site, &shelves, &machines).await.unwrap();
    assert_eq!(
        (&again["requests"]["approved"], &again["requests"]["denied"]),
        (&json!([]), &json!([])),
        "{again}"
    );
}
