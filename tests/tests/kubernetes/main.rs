//! A controller's files in a real Kubernetes: who has access and who has not, who signs what, and how secrets are stored.
//!
//! Needs `make kubernetes` once; without it each test reports that it tested nothing.
#![allow(clippy::unwrap_used, reason = "tests")]

mod admission;
mod flags;
mod kubelets;
mod openssl;
mod own_node;
mod recovery;
mod refresh;
mod tokens;
mod workers;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use slipway_core::role::CA;
use slipway_credentials::policy::{self, KUBERNETES_DIR};
use slipway_credentials::{AssetKind, CertificateProfile};
use slipway_crypto::AwsLc;
use slipway_ports::Crypto as _;
use slipway_tests::kubernetes::{Caller, Kubernetes};
use slipway_tests::workshop::example;

/// The value of a key in etcd, read with the API server's own certificate.
async fn stored(cluster: &Kubernetes, key: &str) -> Vec<u8> {
    let pki = |name: &str| format!("{KUBERNETES_DIR}/apiserver-etcd-client{name}.pem");
    let client = cluster.etcd_client(&pki(""), &pki("-key"));
    let answer = client.post("/v3/kv/range", &json!({ "key": STANDARD.encode(key) })).await.unwrap();
    let value = answer.body["kvs"][0]["value"].as_str();
    STANDARD.decode(value.unwrap_or_else(|| panic!("no {key}: {answer:?}"))).unwrap()
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

fn secret(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "stringData": { "word": "open sesame" } })
}

/// A client with that name and group, with a certificate of the cluster's own authority, but without permissions.
async fn somebody(cluster: &Kubernetes, name: &str, group: Option<&str>) -> Caller {
    let profile = CertificateProfile {
        common_name: name.to_owned(),
        organizations: group.map(str::to_owned).into_iter().collect(),
        ..client_profile(cluster)
    };
    let signer = cluster.workshop.authority(CA).await;
    let made = AwsLc.issue(&profile, Some(&signer), cluster.workshop.now).unwrap();
    let (certificate, key) = (format!("operator/{name}.pem"), format!("operator/{name}-key.pem"));
    cluster.put(&certificate, made.public.as_ref().unwrap());
    cluster.put(&key, std::str::from_utf8(made.private.expose()).unwrap());
    cluster.caller((&certificate, &key))
}

/// A client certificate according to the cluster's policy.
fn client_profile(cluster: &Kubernetes) -> CertificateProfile {
    let spec = example("production");
    let lowered = slipway_spec::parse(spec.as_bytes(), None).unwrap().cluster;
    assert_eq!(lowered.name, cluster.workshop.name);
    let asset = policy::assets(&lowered).into_iter().find(|asset| asset.name == "admin").unwrap();
    let AssetKind::Certificate(profile) = asset.kind else { panic!("the administrator has no certificate") };
    profile
}

async fn who(caller: &Caller) -> String {
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let answer = caller.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await.unwrap();
    answer.body["status"]["userInfo"]["username"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_administrator_may_do_everything_a_stranger_nothing_and_nobody_is_asked_for_health_alone() {
    let Some(cluster) = Kubernetes::start(&example("production")).await else { return };

    let admin = cluster.admin();
    assert_eq!(who(&admin).await, "kubernetes-admin");
    let kubeconfig = cluster.admin_kubeconfig();
    let output = cluster.kubectl(&kubeconfig, &["auth", "can-i", "*", "*", "--all-namespaces"], "").await;
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "yes", "{output:?}");
    let output = cluster.kubectl(&kubeconfig, &["create", "namespace", "theirs"], "").await;
    assert!(output.status.success(), "{output:?}");
    for path in
        ["/api/v1/secrets", "/api/v1/nodes", "/metrics", "/apis/rbac.authorization.k8s.io/v1/clusterroles"]
    {
        assert_eq!(admin.get(path).await.unwrap().status, 200, "{path}");
    }

    // Accepted by the same authority, and in no group that has a binding.
    let nobody = somebody(&cluster, "nobody", None).await;
    assert_eq!(who(&nobody).await, "nobody", "the request is authenticated");
    for path in ["/api/v1/namespaces", "/api/v1/namespaces/default/secrets/x", "/api/v1/nodes", "/metrics"] {
        assert_eq!(nobody.get(path).await.unwrap().status, 403, "{path}");
    }
    let refused = nobody.post("/api/v1/namespaces/default/secrets", &secret("theirs")).await.unwrap();
    assert_eq!(refused.status, 403);
    // The name alone does not make an administrator; the group does.
    let namesake = somebody(&cluster, "kubernetes-admin", None).await;
    assert_eq!(namesake.get("/api/v1/nodes").await.unwrap().status, 403);

    // Without credentials: only the health endpoints, whatever RBAC allows.
    let anonymous = cluster.bearer(None);
    for (path, status) in [
        ("/readyz", 200),
        ("/livez", 200),
        ("/healthz", 200),
        ("/version", 401),
        ("/api", 401),
        ("/readyz/etcd", 401),
    ] {
        assert_eq!(anonymous.get(path).await.unwrap().status, status, "{path}");
    }
    assert_eq!(cluster.bearer(Some("no token")).get("/readyz").await.unwrap().status, 401);

    // A certificate of etcd's authority, which is for another purpose, has no access here.
    let etcds = cluster.caller((
        "etc/kubernetes/pki/apiserver-etcd-client.pem",
        "etc/kubernetes/pki/apiserver-etcd-client-key.pem",
    ));
    assert_eq!(etcds.get("/version").await.unwrap().status, 401);

    // The API server gets kubelets' logs with a certificate of its own, which may do only that.
    let kubelet_client = cluster.caller((
        "etc/kubernetes/pki/apiserver-kubelet-client.pem",
        "etc/kubernetes/pki/apiserver-kubelet-client-key.pem",
    ));
    let may = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": { "verb": "get", "resource": "nodes", "subresource": "log" } } });
    let answer =
        kubelet_client.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &may).await.unwrap();
    assert_eq!(answer.body["status"]["allowed"], true, "{answer:?}");
    assert_eq!(kubelet_client.get("/api/v1/secrets").await.unwrap().status, 403);

    // The audit log records who requested what, without the content.
    admin.post("/api/v1/namespaces/default/secrets", &secret("audited")).await.unwrap();
    cluster
        .until("kube-apiserver", "writes the audit log", async || {
            let log =
                std::fs::read_to_string(cluster.path("var/log/kube-apiserver/audit.log")).unwrap_or_default();
            assert!(!log.contains("open sesame") && !log.contains(&STANDARD.encode("open sesame")));
            log.lines().any(|line| line.contains("\"nobody\"") && line.contains("\"code\":403"))
                && log.lines().any(|line| line.contains("audited") && line.contains("kubernetes-admin"))
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_probe_of_a_static_pod_is_answered() {
    let Some(cluster) = Kubernetes::start(&example("production")).await else { return };
    for program in ["kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
        let (pod, port) = cluster.static_pod(program);
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            let asked = &pod["spec"]["containers"][0][probe]["httpGet"];
            let Some(path) = asked["path"].as_str() else { continue };
            let (host, scheme) = (asked["host"].as_str().unwrap(), asked["scheme"].as_str().unwrap());
            let url = format!("{}://{host}:{port}{path}", scheme.to_lowercase());
            cluster
                .until(program, &format!("answers its {probe}"), async || {
                    // As a kubelet does it: without credentials, and without checking the certificate.
                    let mut curl = tokio::process::Command::new("curl");
                    curl.args([
                        "--silent",
                        "--insecure",
                        "--output",
                        "-",
                        "--write-out",
                        " %{http_code}",
                        &url,
                    ]);
                    String::from_utf8_lossy(&curl.output().await.unwrap().stdout) == "ok 200"
                })
                .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_encryption_at_rest_etcd_holds_no_secret_in_plain() {
    let Some(cluster) = Kubernetes::start(&example("production")).await else { return };
    let admin = cluster.admin();
    let secrets = "/api/v1/namespaces/default/secrets";
    assert_eq!(admin.post(secrets, &secret("hidden")).await.unwrap().status, 201);
    let raw = stored(&cluster, "/registry/secrets/default/hidden").await;
    assert!(raw.starts_with(b"k8s:enc:secretbox:v1:key1:"), "{}", String::from_utf8_lossy(&raw));
    assert!(!contains(&raw, "open sesame"));
    let read = admin.get(&format!("{secrets}/hidden")).await.unwrap();
    assert_eq!(read.body["data"]["word"], STANDARD.encode("open sesame"));

    // Objects other than secrets stay readable.
    let map = json!({ "metadata": { "name": "plain" }, "data": { "word": "open sesame" } });
    assert_eq!(admin.post("/api/v1/namespaces/default/configmaps", &map).await.unwrap().status, 201);
    assert!(contains(&stored(&cluster, "/registry/configmaps/default/plain").await, "open sesame"));
}

#[tokio::test(flavor = "multi_thread")]
async fn encryption_that_is_switched_on_is_taken_up_without_a_restart_and_what_was_plain_is_read() {
    let spec = example("production")
        .replace("encryptionAtRest:\n    enabled: true", "encryptionAtRest:\n    enabled: false");
    assert_ne!(spec, example("production"));
    let Some(cluster) = Kubernetes::start(&spec).await else { return };
    let admin = cluster.admin();
    let secrets = "/api/v1/namespaces/default/secrets";
    assert_eq!(admin.post(secrets, &secret("plain")).await.unwrap().status, 201);
    assert!(contains(&stored(&cluster, "/registry/secrets/default/plain").await, "open sesame"));

    // Enabled by a file that a refresh would install: the API server reads it again by itself.
    let file = cluster.path(KUBERNETES_DIR).join("encryption-config.yaml");
    let off = std::fs::read_to_string(&file).unwrap();
    let (head, identity) = off.split_once("  - identity: {}\n").unwrap();
    let (before, provider) = head.split_once("  providers:\n").unwrap();
    assert_eq!(provider, "", "identity comes first");
    let on = format!("{before}  providers:\n{identity}  - identity: {{}}\n");
    cluster.put(&format!("{KUBERNETES_DIR}/encryption-config.yaml"), &on);
    cluster
        .until("kube-apiserver", "encrypts", async || {
            let name = format!("hidden-{}", jiff::Timestamp::now().as_millisecond());
            admin.post(secrets, &secret(&name)).await.unwrap();
            stored(&cluster, &format!("/registry/secrets/default/{name}")).await.starts_with(b"k8s:enc:")
        })
        .await;
    let read = admin.get(&format!("{secrets}/plain")).await.unwrap();
    assert_eq!(read.body["data"]["word"], STANDARD.encode("open sesame"));
}
