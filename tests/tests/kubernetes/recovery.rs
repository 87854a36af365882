//! Everything has expired: no member of etcd accepts another, no API answers, and the kubelet is locked out. `refresh` alone recovers the
//! cluster.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use slipway_core::role::{KUBELET_CA, Role};
use slipway_credentials::CertificateProfile;
use slipway_credentials::policy::{ETCD_DIR, KUBERNETES_DIR};
use slipway_crypto::AwsLc;
use slipway_node::credentials::{Bundle, write};
use slipway_node::etcd::health::health;
use slipway_node::etcd::local_member::LocalMember;
use slipway_node::failure::FailureCode;
use slipway_node::refresh::Order;
use slipway_node::status;
use slipway_node::status::client_certificates::KUBELET_CLIENT;
use slipway_ports::{Crypto as _, Secret};
use slipway_tests::kubernetes::Kubernetes;
use slipway_tests::surroundings::Surroundings;
use slipway_tests::workshop::example;

use super::{client_profile, openssl, secret, who};

const NODE: &str = "i-0a1b2c3d4e5f60718";
/// The validity of a leaf in days.
const DAYS: i64 = 365;

/// Installs files as bootstrap and refresh do, without waiting.
fn lay(root: &Path, digest: &str, files: &BTreeMap<String, String>) {
    let plain = json!({ "format": 1, "files": files }).to_string();
    let bundle = Bundle::read(&Secret::new(plain.into_bytes())).unwrap();
    write(root, digest, &bundle).unwrap().remove_previous().unwrap();
}

/// Replaces the kubelet's certificate by one of the kubelets' authority that is valid for only this long.
async fn shorten(cluster: &Kubernetes, left: SignedDuration) {
    let profile = CertificateProfile {
        common_name: format!("system:node:{NODE}"),
        organizations: vec!["system:nodes".to_owned()],
        ..client_profile(cluster)
    };
    let at = Timestamp::now() - SignedDuration::from_hours(24 * DAYS) + left;
    let signer = cluster.workshop.authority(KUBELET_CA).await;
    let made = AwsLc.issue(&profile, Some(&signer), at).unwrap();
    let text = made.public.unwrap() + std::str::from_utf8(made.private.expose()).unwrap();
    let current = cluster.path(KUBELET_CLIENT);
    std::fs::write(std::fs::canonicalize(current).unwrap(), text).unwrap();
}

fn serial(pem: &str) -> String {
    AwsLc.facts(&pem[..pem.find("-----END CERTIFICATE-----").unwrap() + 26]).unwrap().0.serial
}

#[tokio::test(flavor = "multi_thread")]
async fn p7_what_has_really_expired_comes_back_by_refresh_without_the_api() {
    let spec = example("production");
    let Some(mut cluster) = Kubernetes::start_with(&spec, 3).await else { return };
    if !rustix::process::geteuid().is_root() {
        slipway_tests::tools::not_tested("the recovery of a kubelet, which runs as root alone");
        return;
    }
    let cloud = Surroundings::start().await;
    let members = [0, 1, 2].map(|index| (Role::Etcd(index), cluster.member_root(index as usize)));
    let programs = [0, 1, 2].map(Kubernetes::member_program);
    let controller = cluster.root().to_owned();

    // Before: everything runs, data was written, and the kubelet has its node.
    let secrets = "/api/v1/namespaces/default/secrets";
    assert_eq!(cluster.admin().post(secrets, &secret("before")).await.unwrap().status, 201);
    let socket = cluster.path("run/containerd/containerd.sock");
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let _silent = std::os::unix::net::UnixListener::bind(socket).unwrap();
    assert_eq!(cluster.manage(&[]).await["bootstrapTokens"]["made"], json!(["controller"]));
    cluster.start_kubelet();
    cluster
        .until("kubelet", "has its certificate", async || {
            cluster.admit_newcomers().await;
            cluster.path(KUBELET_CLIENT).exists()
        })
        .await;
    cluster.stop("kubelet").await;

    // All certificates have expired, and no connection from before remains.
    let past = Timestamp::now() - SignedDuration::from_hours(24 * DAYS * 2);
    for (role, root) in &members {
        lay(root, "e0", &cluster.workshop.certified(&spec, role, past).await);
    }
    lay(&controller, "e0", &cluster.workshop.certified(&spec, &Role::Controller, past).await);
    for program in ["kube-scheduler", "kube-controller-manager", "kube-apiserver"] {
        cluster.stop(program).await;
    }
    for program in &programs {
        cluster.respawn(program).await;
    }
    // The kubelet is running when its certificate expires. A kubelet that starts afterwards requests another one by itself.
    shorten(&cluster, SignedDuration::from_secs(20)).await;
    cluster.respawn("kubelet").await;
    tokio::time::sleep(Duration::from_secs(21)).await;
    for (role, root) in &members {
        cluster.configure_agent(root, role);
        let found = health(&LocalMember::read(root).unwrap()).await.unwrap();
        assert!(!found.serving && !found.healthy, "{role}: {found:?}");
    }
    let processes = programs.each_ref().map(|program| cluster.process(program));
    assert!(processes.iter().all(Option::is_some), "etcd runs, and serves nobody");

    // etcd, one member after the other: nothing of Kubernetes answers, and before the second member nothing of etcd.
    let begun = Instant::now();
    for (index, (role, root)) in members.iter().enumerate() {
        let files = cluster.workshop.certified(&spec, role, Timestamp::now()).await;
        let digest = cloud.publish(role, &files).await;
        cluster.configure_agent(root, role);
        cloud.host(root, role, &digest);
        let order = Order { credentials: digest, ..Order::default() };
        let done = cloud.refresh(root, &order, async |asked| assert_eq!(asked, None)).await.unwrap();
        assert!(done.changed && done.published && done.restarted.is_empty(), "{done:?}");
        let peer = done.served.iter().find(|served| served.name == "etcd-peer").unwrap();
        let peer = peer.certificate.as_ref().unwrap();
        assert_eq!(peer.serial, serial(&files[&format!("{ETCD_DIR}/peer.pem")]));
        if index == 2 {
            assert!(done.served.iter().all(|served| served.certificate.is_some()), "{done:?}");
        }
    }
    for (role, root) in &members {
        cluster
            .until("etcd", &format!("is healthy at {role}"), async || {
                health(&LocalMember::read(root).unwrap()).await.unwrap().healthy
            })
            .await;
    }
    let etcd_back = begun.elapsed();
    assert_eq!(programs.each_ref().map(|program| cluster.process(program)), processes, "the same processes");

    // The control plane: the certificates that the API server serves and uses with etcd, and the kubeconfigs of the others. Then the
    // kubelet, whose certificate only an API server can issue.
    let role = Role::Controller;
    let files = cluster.workshop.certified(&spec, &role, Timestamp::now()).await;
    let digest = cloud.publish(&role, &files).await;
    cluster.configure_agent(&controller, &role);
    cloud.host(&controller, &role, &digest);
    let locked_out = cluster.process("kubelet");
    let order = Order { credentials: digest.clone(), ..Order::default() };
    let (mut api_back, mut asked_for) = (None, false);
    let done = cloud
        .refresh(&controller, &order, async |asked| match asked {
            Some(unit) => {
                assert_eq!(unit, "kubelet.service");
                asked_for = true;
                cluster.respawn("kubelet").await;
            }
            None => {
                cluster.play_kubelet().await;
                cluster.admit_newcomers().await;
                // Without containerd the kubelet exits after five seconds, and its unit restarts it. It must not be restarted earlier,
                // because a new process would notice by itself that its certificate has expired.
                if asked_for && !cluster.runs("kubelet") {
                    cluster.respawn("kubelet").await;
                }
                if api_back.is_none()
                    && cluster.bearer(None).get("/readyz").await.is_ok_and(|it| it.status == 200)
                {
                    api_back = Some(begun.elapsed());
                }
            }
        })
        .await
        .unwrap();
    let all_back = begun.elapsed();
    let kubelet = done.kubelet.unwrap();
    assert!(kubelet.refused.contains("xpired"), "{}", kubelet.refused);
    assert_ne!(cluster.process("kubelet"), locked_out);
    let kubelet_ca = cluster.path(KUBERNETES_DIR).join("kubelet-ca.pem");
    assert!(openssl::verifies(&kubelet_ca, &cluster.path(KUBELET_CLIENT), "sslclient"));
    let client = KUBELET_CLIENT.trim_start_matches('/');
    let node = cluster.caller((client, client));
    assert_eq!(who(&node).await, format!("system:node:{NODE}"));
    let now = status::status_of_instance(&controller, None).await.unwrap();
    let api = now.served.iter().find(|served| served.name == "kube-apiserver").unwrap();
    let api = api.certificate.as_ref().unwrap();
    assert_eq!(api.serial, serial(&files[&format!("{KUBERNETES_DIR}/apiserver.pem")]));
    assert!(api.verifies);
    let held = now.held.iter().find(|held| held.path == KUBELET_CLIENT).unwrap();
    assert_eq!(held.serial, kubelet.serial);
    for held in &now.held {
        assert!(held.not_after > Timestamp::now(), "{held:?}");
    }

    // Nothing is lost: the administrator has access with a new certificate, and finds the data.
    for (name, text) in cluster.workshop.certified(&spec, &Role::Admin, Timestamp::now()).await {
        cluster.put(&format!("operator/admin/{name}"), &text);
    }
    let admin = cluster.admin();
    assert_eq!(admin.get(&format!("{secrets}/before")).await.unwrap().status, 200);
    assert_eq!(admin.post(secrets, &secret("after")).await.unwrap().status, 201);
    // A repeated refresh changes nothing.
    let again = cloud.refresh(&controller, &order, async |asked| assert_eq!(asked, None)).await.unwrap();
    assert!(!again.changed && again.kubelet.is_none() && again.restarted.is_empty(), "{again:?}");
    println!(
        "Kubernetes {} whose certificates had all expired: etcd x3 back {:.1?} after the first refresh began, its API {:.1?}, its \
         kubelet {:.1?}; nothing of etcd was restarted",
        cluster.version(),
        etcd_back,
        api_back.unwrap_or(all_back),
        all_back
    );
}

/// A file that the API server reads only at its start: the authorities of etcd.
#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_is_restarted_for_what_it_reads_at_its_start_and_put_back_if_it_does_not_come() {
    let spec = example("production");
    let Some(mut cluster) = Kubernetes::start(&spec).await else { return };
    let cloud = Surroundings::start().await;
    let (role, root) = (Role::Controller, cluster.root().to_owned());
    cluster.configure_agent(&root, &role);
    let files = cluster.workshop.bundle(&role).await;
    lay(&root, "b0", &files);
    // A kubelet whose certificate is valid, so that nothing has to be done for it.
    std::fs::create_dir_all(cluster.path("var/lib/kubelet/pki/")).unwrap();
    std::fs::write(cluster.path(KUBELET_CLIENT), "").unwrap();
    shorten(&cluster, SignedDuration::from_hours(24)).await;
    cluster.play_kubelet().await;

    let of_etcd = format!("{KUBERNETES_DIR}/etcd-ca.pem");
    let trusting = |more: &str| {
        let mut files = files.clone();
        files.entry(of_etcd.clone()).and_modify(|text| text.push_str(more));
        files
    };
    let good = cloud.publish(&role, &trusting(&files[&format!("{KUBERNETES_DIR}/ca.pem")])).await;
    cloud.host(&root, &role, &good);
    let order = Order { credentials: good.clone(), restart: false, patience: Duration::from_secs(120) };
    let failure = cloud.refresh(&root, &order, async |_| {}).await.unwrap_err();
    assert_eq!(failure.code, FailureCode::RefreshReadAtStart);
    assert!(
        failure.message.contains("etcd-ca.pem") && failure.message.contains("kube-apiserver"),
        "{failure:?}"
    );

    let was = cluster.process("kube-apiserver");
    let manager = cluster.static_pod("kube-controller-manager").0;
    let order = Order { restart: true, ..order };
    let begun = Instant::now();
    let done = cloud.refresh(&root, &order, async |asked| {
        assert_eq!(asked, None);
        cluster.play_kubelet().await;
    });
    let done = done.await.unwrap();
    println!(
        "kube-apiserver restarted for one more authority of etcd, and well after {:.1?}",
        begun.elapsed()
    );
    assert_eq!(done.restarted, ["kube-apiserver"]);
    assert_ne!(cluster.process("kube-apiserver"), was);
    // A new process proves nothing: a controller manager that is starting may exit by itself if the API server refuses it at first.
    assert_eq!(cluster.static_pod("kube-controller-manager").0, manager, "nobody else");
    assert_eq!(cluster.bearer(None).get("/readyz").await.unwrap().status, 200);

    // The API server cannot start with this file: it is restarted, does not become healthy, and the old file is restored.
    let mut broken = files.clone();
    broken.insert(of_etcd, "no authority\n".to_owned());
    let broken = cloud.publish(&role, &broken).await;
    let order = Order { credentials: broken, patience: Duration::from_secs(30), ..order };
    let done = cloud.refresh(&root, &order, async |_| cluster.play_kubelet().await);
    let failure = done.await.unwrap_err();
    assert_eq!((failure.code, failure.transient), (FailureCode::RefreshNotServed, true), "{failure:?}");
    let anybody = cluster.bearer(None);
    let start = Instant::now();
    while !anybody.get("/readyz").await.is_ok_and(|answer| answer.status == 200) {
        assert!(
            start.elapsed() < Duration::from_secs(120),
            "it is not back: {}",
            cluster.log("kube-apiserver")
        );
        cluster.play_kubelet().await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(
        status::status_of_instance(&root, None).await.unwrap().applied.credentials.as_deref(),
        Some(good.as_str())
    );
}
