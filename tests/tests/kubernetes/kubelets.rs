//! How a node gets its identity, what it may do with it, and what it may not.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use slipway_core::role::Role;
use slipway_credentials::policy::KUBERNETES_DIR;
use slipway_node::kube::KUBELET_KUBECONFIG;
use slipway_tests::kubernetes::{Caller, Kubernetes};
use slipway_tests::workshop::example;

use super::{openssl, who};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING: &str = "kubernetes.io/kubelet-serving";
const NODE: &str = "i-0a1b2c3d4e5f60718";

/// A certificate request at the API server, and its key.
struct Request<'c> {
    cluster: &'c Kubernetes,
    name: String,
    key: PathBuf,
}

impl<'c> Request<'c> {
    /// Makes a request as a kubelet does.
    async fn by(
        caller: &Caller,
        cluster: &'c Kubernetes,
        name: &str,
        signer: &str,
        (subject, names): (&str, Option<&str>),
    ) -> Self {
        let (key, body) = certificate_request(cluster, name, signer, subject, names);
        let answer = caller.post(REQUESTS, &body).await.unwrap();
        assert_eq!(answer.status, 201, "{name}: {answer:?}");
        Self { cluster, name: name.to_owned(), key }
    }

    async fn status(&self) -> Value {
        let answer = self.cluster.admin().get(&format!("{REQUESTS}/{}", self.name)).await.unwrap();
        answer.body["status"].clone()
    }

    async fn has(&self, condition: &str) -> bool {
        let status = self.status().await;
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == condition)
    }

    async fn approve(&self) {
        let admin = self.cluster.admin();
        let path = format!("{REQUESTS}/{}", self.name);
        let mut request = admin.get(&path).await.unwrap().body;
        request["status"] =
            json!({ "conditions": [{ "type": "Approved", "status": "True", "reason": "Test" }] });
        let answer = admin.put(&format!("{path}/approval"), &request).await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    /// The path of the certificate below the root, once it is signed.
    async fn certificate(&self) -> String {
        self.cluster
            .until("kube-controller-manager", &format!("signs {}", self.name), async || {
                self.status().await["certificate"].is_string()
            })
            .await;
        let pem = STANDARD.decode(self.status().await["certificate"].as_str().unwrap()).unwrap();
        let path = format!("kubelets/{}.pem", self.name);
        self.cluster.put(&path, std::str::from_utf8(&pem).unwrap());
        path
    }

    fn key(&self) -> String {
        self.key.strip_prefix(self.cluster.root()).unwrap().to_string_lossy().into_owned()
    }
}

/// A key, and the request object for it.
fn certificate_request(
    cluster: &Kubernetes,
    name: &str,
    signer: &str,
    subject: &str,
    names: Option<&str>,
) -> (PathBuf, Value) {
    let (key, pem) = openssl::request(&cluster.path("kubelets"), name, subject, names);
    let usage = if signer == SERVING { "server auth" } else { "client auth" };
    let body = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": { "name": name },
        "spec": { "request": STANDARD.encode(pem), "signerName": signer, "usages": ["digital signature", usage] },
    });
    (key, body)
}

fn subject(node: &str) -> String {
    format!("/O=system:nodes/CN=system:node:{node}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelets_request_is_signed_by_kubelet_ca_and_refused_for_a_false_name() {
    let Some(cluster) = Kubernetes::start(&example("production")).await else { return };
    let worker = cluster.workshop.bundle(&Role::Pool("general-a".to_owned())).await;
    let token = worker[&format!("{KUBERNETES_DIR}/bootstrap-token")].trim();
    let newcomer = cluster.bearer(Some(token));
    assert_eq!(newcomer.get(REQUESTS).await.unwrap().status, 401, "no machine of the pool was ever started");
    // As soon as a machine of the pool starts, its token counts; only what is missing is made.
    let made = cluster.manage(&["pool-general-a", "etcd-0", "unreadable"]).await;
    assert_eq!(made["bootstrapTokens"], json!({ "made": ["controller", "pool-general-a"] }));
    assert_eq!(cluster.manage(&["pool-general-a"]).await["bootstrapTokens"]["made"], json!([]));
    cluster
        .until("kube-apiserver", "knows the token", async || {
            newcomer.get(REQUESTS).await.unwrap().status == 200
        })
        .await;
    assert_eq!(who(&newcomer).await, format!("system:bootstrap:{}", &token[..6]));
    // Somebody changed it: it is put back.
    let secret = format!("/api/v1/namespaces/kube-system/secrets/bootstrap-token-{}", &token[..6]);
    let mut changed = cluster.admin().get(&secret).await.unwrap().body;
    let groups = STANDARD.decode(changed["data"]["auth-extra-groups"].as_str().unwrap()).unwrap();
    assert_eq!(groups, b"system:bootstrappers:slipway:pool-general-a");
    changed["data"]["auth-extra-groups"] = json!(STANDARD.encode("system:bootstrappers:slipway:controller"));
    assert_eq!(cluster.admin().put(&secret, &changed).await.unwrap().status, 200);
    let made = cluster.manage(&["pool-general-a"]).await;
    assert_eq!(made["bootstrapTokens"]["made"], json!(["pool-general-a"]), "{made}");
    assert!(!made.to_string().contains(token), "the answer shows no token");
    let again = cluster.admin().get(&secret).await.unwrap().body;
    assert_eq!(STANDARD.decode(again["data"]["auth-extra-groups"].as_str().unwrap()).unwrap(), groups);
    for path in ["/api/v1/nodes", "/api/v1/namespaces/kube-system/secrets", "/api/v1/pods"] {
        assert_eq!(newcomer.get(path).await.unwrap().status, 403, "the token gives no access: {path}");
    }

    // False names first: by the time the true one is approved, they have been processed.
    let mut false_ones = Vec::new();
    for (name, subject) in [
        ("an-administrator", "/O=system:masters/CN=kubernetes-admin"),
        ("a-nodes-name-in-another-group", "/O=slipway:cluster-admins/CN=system:node:x"),
        ("no-nodes-name", "/O=system:nodes/CN=kubernetes-admin"),
    ] {
        false_ones.push(Request::by(&newcomer, &cluster, name, CLIENT, (subject, None)).await);
    }
    // Kubernetes does not approve a true name by itself either: the node manager does, which knows the machine (tests/draining/manage.rs).
    let anothers = subject("i-00000000000000000");
    let unapproved = Request::by(&newcomer, &cluster, "unapproved", CLIENT, (&anothers, None)).await;
    let request = Request::by(&newcomer, &cluster, "true", CLIENT, (&subject(NODE), None)).await;
    request.approve().await;
    let certificate = request.certificate().await;
    let kubelet_ca = cluster.path(KUBERNETES_DIR).join("kubelet-ca.pem");
    assert!(openssl::verifies(&kubelet_ca, &cluster.path(&certificate), "sslclient"));
    assert!(!openssl::verifies(
        &cluster.path(KUBERNETES_DIR).join("ca.pem"),
        &cluster.path(&certificate),
        "sslclient"
    ));
    assert_eq!(
        openssl::subject(&cluster.path(&certificate)),
        format!("subject=CN=system:node:{NODE},O=system:nodes")
    );
    for one in &false_ones {
        assert!(!one.has("Approved").await && one.status().await["certificate"].is_null(), "{}", one.name);
        // Not even if somebody approves it by mistake.
        one.approve().await;
    }
    for one in &false_ones {
        cluster
            .until("kube-controller-manager", &format!("refuses {}", one.name), async || {
                one.has("Failed").await
            })
            .await;
        assert!(one.status().await["certificate"].is_null(), "{}", one.name);
    }

    // It has the identity of its own node, and of no other.
    let node = cluster.caller((&certificate, &request.key()));
    assert_eq!(who(&node).await, format!("system:node:{NODE}"));
    let body = |name: &str| json!({ "metadata": { "name": name }, "spec": { "providerID": format!("aws:///eu-west-1a/{name}") } });
    assert_eq!(node.post("/api/v1/nodes", &body(NODE)).await.unwrap().status, 201);
    let refused = node.post("/api/v1/nodes", &body("i-00000000000000000")).await.unwrap();
    assert_eq!(refused.status, 403, "{refused:?}");
    assert_eq!(node.get("/api/v1/namespaces/kube-system/secrets").await.unwrap().status, 403);

    // The controller manager assigns it a range of the pod network.
    let admin = cluster.admin();
    let path = format!("/api/v1/nodes/{NODE}");
    let range = async || admin.get(&path).await.unwrap().body["spec"]["podCIDR"].as_str().map(str::to_owned);
    cluster
        .until("kube-controller-manager", "gives the node a range", async || range().await.is_some())
        .await;
    assert!(range().await.unwrap().starts_with("10.2."), "{:?}", range().await);

    // It can ask for another certificate for itself, but not for another node. Kubernetes leaves that to the node manager, too.
    let again = Request::by(&node, &cluster, "renewed", CLIENT, (&subject(NODE), None)).await;
    let (_, another) =
        certificate_request(&cluster, "anothers", CLIENT, &subject("i-00000000000000000"), None);
    assert_eq!(node.post(REQUESTS, &another).await.unwrap().status, 403);
    assert!(!again.has("Approved").await, "its key alone renews nothing");
    again.approve().await;
    again.certificate().await;
    assert!(!unapproved.has("Approved").await, "the token alone makes no node");
    // Only the node manager approves a serving certificate.
    let serving =
        Request::by(&node, &cluster, "serving", SERVING, (&subject(NODE), Some("IP:192.0.2.20"))).await;
    // One more round, so that the request has been processed.
    let round = Request::by(&node, &cluster, "renewed-twice", CLIENT, (&subject(NODE), None)).await;
    round.approve().await;
    round.certificate().await;
    assert!(!serving.has("Approved").await);
    serving.approve().await;
    let certificate = serving.certificate().await;
    assert!(openssl::verifies(&kubelet_ca, &cluster.path(&certificate), "sslserver"));

    // This cluster signs nobody else: no node has the key of its authority.
    let kubelet_like = Request::by(
        &cluster.admin(),
        &cluster,
        "a-client",
        "kubernetes.io/kube-apiserver-client",
        ("/CN=x", None),
    )
    .await;
    kubelet_like.approve().await;
    let round = Request::by(&node, &cluster, "renewed-again", CLIENT, (&subject(NODE), None)).await;
    round.approve().await;
    round.certificate().await;
    assert!(kubelet_like.status().await["certificate"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_kubelet_takes_its_configuration_and_becomes_its_node_by_the_bootstrap_token() {
    let Some(mut cluster) = Kubernetes::start(&example("production")).await else { return };
    if !rustix::process::geteuid().is_root() {
        slipway_tests::tools::not_tested("the kubelet, which runs as root alone");
        return;
    }
    // In place of containerd, a server that accepts calls and never answers: the kubelet waits for it, and requests its certificate
    // meanwhile.
    let socket = cluster.path("run/containerd/containerd.sock");
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let _silent = std::os::unix::net::UnixListener::bind(socket).unwrap();
    assert_eq!(cluster.manage(&[]).await["bootstrapTokens"]["made"], json!(["controller"]));
    let token = std::fs::read_to_string(cluster.path(KUBERNETES_DIR).join("bootstrap-token")).unwrap();
    let own = cluster.bearer(Some(token.trim()));
    cluster
        .until("kube-apiserver", "knows the token", async || own.get(REQUESTS).await.unwrap().status == 200)
        .await;
    cluster.start_kubelet();
    // As the node manager does it.
    let admin = cluster.admin();
    let asked = async || {
        let found = admin.get(REQUESTS).await.unwrap().body;
        found["items"][0]["metadata"]["name"].as_str().map(str::to_owned)
    };
    cluster.until("kubelet", "asks for its certificate", async || asked().await.is_some()).await;
    let name = asked().await.unwrap();
    Request { cluster: &cluster, name, key: PathBuf::new() }.approve().await;
    let certificate = "var/lib/kubelet/pki/kubelet-client-current.pem";
    cluster.until("kubelet", "has its certificate", async || cluster.path(certificate).exists()).await;
    let kubelet_ca = cluster.path(KUBERNETES_DIR).join("kubelet-ca.pem");
    assert!(openssl::verifies(&kubelet_ca, &cluster.path(certificate), "sslclient"));
    assert_eq!(
        openssl::subject(&cluster.path(certificate)),
        format!("subject=CN=system:node:{NODE},O=system:nodes")
    );
    // Its own kubeconfig names files, and contains no token.
    let kubeconfig = std::fs::read_to_string(cluster.path(KUBELET_KUBECONFIG)).unwrap();
    assert!(
        kubeconfig.contains("kubelet-client-current.pem") && !kubeconfig.contains("token"),
        "{kubeconfig}"
    );
    let node = cluster.caller((certificate, certificate));
    assert_eq!(who(&node).await, format!("system:node:{NODE}"));
    let log = cluster.log("kubelet");
    for complaint in ["unknown flag", "strict decoding", "unknown field", "unrecognized feature gate"] {
        assert!(!log.contains(complaint), "{complaint}: {log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_worker_has_opens_no_etcd() {
    let Some(cluster) = Kubernetes::start(&example("production")).await else { return };
    let worker = cluster.workshop.bundle(&Role::Pool("general-a".to_owned())).await;
    for (path, text) in &worker {
        assert!(!text.contains("PRIVATE KEY"), "{path} holds a key");
    }
    // The controller's own client is accepted, so that a refusal proves something.
    let pki = |name: &str| format!("{KUBERNETES_DIR}/{name}.pem");
    let api_server = cluster.etcd_client(&pki("apiserver-etcd-client"), &pki("apiserver-etcd-client-key"));
    assert_eq!(api_server.get("/health").await.unwrap().status, 200);

    // The certificate that a worker can get with its bundle: a kubelet's.
    let token = worker[&pki("bootstrap-token").trim_end_matches(".pem").to_owned()].trim();
    let newcomer = cluster.bearer(Some(token));
    cluster.manage(&["pool-general-a"]).await;
    cluster
        .until("kube-apiserver", "knows the token", async || {
            newcomer.get(REQUESTS).await.unwrap().status == 200
        })
        .await;
    let request = Request::by(&newcomer, &cluster, "worker", CLIENT, (&subject(NODE), None)).await;
    request.approve().await;
    let kubelet = cluster.etcd_client(&request.certificate().await, &request.key());
    assert!(kubelet.get("/health").await.is_err(), "a kubelet's certificate gives access to etcd");
    let bare = cluster.etcd_stranger();
    assert!(bare.get("/health").await.is_err(), "etcd answers without a certificate");
    for name in ["apiserver-kubelet-client", "front-proxy-client", "node-manager", "scheduler"] {
        let other = cluster.etcd_client(&pki(name), &pki(&format!("{name}-key")));
        assert!(other.get("/health").await.is_err(), "{name} opens etcd");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_placed_and_know_the_api_server_by_the_clusters_authority() {
    let Some(cluster) = Kubernetes::start(&example("production")).await else { return };
    let admin = cluster.admin();
    let node = json!({ "metadata": { "name": NODE }, "status": {
        "allocatable": { "cpu": "2", "memory": "4Gi", "pods": "10" },
        "capacity": { "cpu": "2", "memory": "4Gi", "pods": "10" },
        "conditions": [{ "type": "Ready", "status": "True", "reason": "Test" }],
    } });
    assert_eq!(admin.post("/api/v1/nodes", &node).await.unwrap().status, 201);
    let authority = std::fs::read_to_string(cluster.path(KUBERNETES_DIR).join("ca.pem")).unwrap();
    let map = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt";
    cluster
        .until("kube-controller-manager", "publishes the authority", async || {
            admin.get(map).await.unwrap().body["data"]["ca.crt"] == authority.as_str()
        })
        .await;
    let pod = json!({ "metadata": { "name": "it" }, "spec": {
        "containers": [{ "name": "it", "image": "registry.example.com/it" }],
        "tolerations": [{ "operator": "Exists" }],
    } });
    cluster
        .until("kube-controller-manager", "makes the default account", async || {
            admin.post("/api/v1/namespaces/default/pods", &pod).await.unwrap().status == 201
        })
        .await;
    cluster
        .until("kube-scheduler", "places the pod", async || {
            admin.get("/api/v1/namespaces/default/pods/it").await.unwrap().body["spec"]["nodeName"] == NODE
        })
        .await;
}
