//! What pods may be where nothing is said about them, and which TLS the API server serves.

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use slipway_tests::kubernetes::{Caller, Kubernetes};
use slipway_tests::workshop::example;

/// A pod with these fields of its spec, and of its container.
fn pod(name: &str, spec: &Value, container: &Value) -> Value {
    let mut pod = json!({
        "metadata": { "name": name },
        "spec": { "containers": [{ "name": "it", "image": "registry.example.com/it:1" }] },
    });
    let merge = |into: &mut Value, more: &Value| {
        for (key, value) in more.as_object().unwrap() {
            into[key] = value.clone();
        }
    };
    merge(&mut pod["spec"], spec);
    merge(&mut pod["spec"]["containers"][0], container);
    pod
}

async fn made(admin: &Caller, namespace: &str, pod: &Value) -> (u16, String) {
    let answer = admin.post(&format!("/api/v1/namespaces/{namespace}/pods"), pod).await.unwrap();
    (answer.status, answer.body["message"].as_str().unwrap_or_default().to_owned())
}

/// Pods need the account `default` of their namespace, which the controller manager makes.
async fn has_account(cluster: &Kubernetes, admin: &Caller, namespace: &str) {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
    cluster
        .until("kube-controller-manager", "makes the account", async || {
            admin.get(&path).await.unwrap().status == 200
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_would_get_its_node_is_refused_except_in_kube_system() {
    // Says nothing about the security of pods.
    let Some(cluster) = Kubernetes::start(&example("production")).await else { return };
    let admin = cluster.admin();
    for name in ["theirs", "agents"] {
        let made = admin.post("/api/v1/namespaces", &json!({ "metadata": { "name": name } })).await.unwrap();
        assert_eq!(made.status, 201);
    }
    for namespace in ["default", "theirs", "agents", "kube-system"] {
        has_account(&cluster, &admin, namespace).await;
    }
    let root = json!({ "securityContext": { "privileged": true } });
    let volume = json!({ "volumes": [{ "name": "node", "hostPath": { "path": "/" } }] });
    let (none, port) = (json!({}), json!({ "ports": [{ "containerPort": 80, "hostPort": 80 }] }));
    let powerful = [
        pod("privileged", &none, &root),
        pod("network", &json!({ "hostNetwork": true }), &none),
        pod("processes", &json!({ "hostPID": true }), &none),
        pod("folder", &volume, &none),
        pod("port", &none, &port),
    ];
    for pod in &powerful {
        let name = &pod["metadata"]["name"];
        for namespace in ["default", "theirs"] {
            let (status, message) = made(&admin, namespace, pod).await;
            assert_eq!(status, 403, "{name} in {namespace}: {message}");
            assert!(message.contains("violates PodSecurity \"baseline:latest\""), "{message}");
        }
        // Where the add-ons are.
        let (status, message) = made(&admin, "kube-system", pod).await;
        assert_eq!(status, 201, "{name} in kube-system: {message}");
    }
    // An ordinary pod, whose image runs as any user, is made, and its maker is told what it could do without.
    let ordinary = pod("ordinary", &none, &none);
    let kubeconfig = cluster.admin_kubeconfig();
    let mut manifest = ordinary.clone();
    (manifest["apiVersion"], manifest["kind"]) = (json!("v1"), json!("Pod"));
    let output = cluster
        .kubectl(&kubeconfig, &["create", "--namespace=theirs", "--filename=-"], &manifest.to_string())
        .await;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    assert!(told.contains("would violate PodSecurity \"restricted:latest\""), "{told}");
    // The namespace's own label counts.
    let label = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "privileged" } } });
    assert_eq!(admin.merge("/api/v1/namespaces/agents", &label).await.unwrap().status, 200);
    for pod in &powerful {
        let (status, message) = made(&admin, "agents", pod).await;
        assert_eq!(status, 201, "{}: {message}", pod["metadata"]["name"]);
    }
    // The audit log says who made them, and not what they are.
    let path = cluster.path("var/log/kube-apiserver/audit.log");
    cluster
        .until("kube-apiserver", "writes the audit log", async || {
            let log = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(!log.contains("registry.example.com"), "it has contents");
            log.lines()
                .any(|line| line.contains("\"ordinary\"") && line.contains("pod-security.kubernetes.io"))
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_spec_says_of_pods_holds() {
    let spec = example("production");
    let said = spec.replace("  apiServer:\n", "  apiServer:\n    podSecurity:\n      enforce: restricted\n");
    assert_ne!(said, spec);
    let Some(cluster) = Kubernetes::start(&said).await else { return };
    let admin = cluster.admin();
    has_account(&cluster, &admin, "default").await;
    let (status, message) = made(&admin, "default", &pod("ordinary", &json!({}), &json!({}))).await;
    assert_eq!(status, 403, "{message}");
    assert!(message.contains("violates PodSecurity \"restricted:latest\""), "{message}");
}

/// Whether OpenSSL comes to terms with that server.
fn agrees(server: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", server.trim_start_matches("https://")]).args(arguments);
    command.args(["-brief"]).stdin(Stdio::null());
    command.output().unwrap().status.success()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_control_plane_serves_tls_1_2_with_authenticated_encryption_and_nothing_older() {
    let Some(cluster) = Kubernetes::start(&example("production")).await else { return };
    for program in ["kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
        let server = format!("127.0.0.1:{}", cluster.static_pod(program).1);
        cluster.until(program, "serves", async || agrees(&server, &["-tls1_3"])).await;
        for suite in ["AES128-GCM-SHA256", "AES256-GCM-SHA384"] {
            // The certificates of production have ECDSA keys; those that a program makes for itself may have RSA ones.
            let suites = format!("ECDHE-ECDSA-{suite}:ECDHE-RSA-{suite}");
            assert!(agrees(&server, &["-tls1_2", "-cipher", &suites]), "{program}: {suite}");
        }
        for old in [
            ["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA:ECDHE-RSA-AES128-SHA"],
            ["-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-SHA:ECDHE-RSA-AES256-SHA"],
            ["-tls1_1", "-cipher", "DEFAULT:@SECLEVEL=0"],
        ] {
            assert!(!agrees(&server, &old), "{program}: {old:?}");
        }
    }
}
