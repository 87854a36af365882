//! Credentials that are installed while a real API server runs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use serde_json::json;
use slipway_core::role::{CA, Role};
use slipway_credentials::policy::{self, KUBERNETES_DIR};
use slipway_credentials::{AssetKind, CertificateProfile};
use slipway_crypto::AwsLc;
use slipway_node::credentials::{Bundle, Written, write};
use slipway_node::static_pods;
use slipway_node::status::handshake::present;
use slipway_ports::{Crypto as _, Secret};
use slipway_tests::kubernetes::Kubernetes;
use slipway_tests::workshop::example;

fn put(cluster: &Kubernetes, digest: &str, files: &BTreeMap<String, String>) -> Written {
    let plain = json!({ "format": 1, "files": files }).to_string();
    let bundle = Bundle::read(&Secret::new(plain.into_bytes())).unwrap();
    write(cluster.root(), digest, &bundle.with_copies(static_pods::copies)).unwrap()
}

fn profile() -> CertificateProfile {
    let cluster = slipway_spec::parse(example("production").as_bytes(), None).unwrap().cluster;
    let asset = policy::assets(&cluster).into_iter().find(|asset| asset.name == "apiserver").unwrap();
    let AssetKind::Certificate(profile) = asset.kind else { panic!("the API server has no certificate") };
    profile
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_serves_what_a_refresh_puts_in_place_and_was_not_restarted() {
    let Some(cluster) = Kubernetes::start(&example("production")).await else { return };
    let mut files = cluster.workshop.bundle(&Role::Controller).await;
    // The folder as bootstrap makes it: links in place of plain files.
    put(&cluster, "a0", &files).remove_previous().unwrap();
    let address: SocketAddr = cluster.server.trim_start_matches("https://").parse().unwrap();
    let admin = cluster.admin();
    // Several times: the API server watches the files that the links led to when the watch began. If it gets no event (because there were
    // plain files, or the next swap came before it checked again), it checks the files itself once a minute.
    for digest in ["a1", "a2", "a3"] {
        let signer = cluster.workshop.authority(CA).await;
        let made = AwsLc.issue(&profile(), Some(&signer), jiff::Timestamp::now()).unwrap();
        let certificate = made.public.unwrap();
        let (facts, _) = AwsLc.facts(&certificate).unwrap();
        files.insert(format!("{KUBERNETES_DIR}/apiserver.pem"), certificate);
        let key = String::from_utf8(made.private.expose().to_vec()).unwrap();
        files.insert(format!("{KUBERNETES_DIR}/apiserver-key.pem"), key);
        let begun = Instant::now();
        let written = put(&cluster, digest, &files);
        cluster
            .until("kube-apiserver", "serves the new certificate", async || {
                let presented = present(address, None).await.unwrap();
                AwsLc.facts(&presented.pem()).unwrap().0.serial == facts.serial
            })
            .await;
        println!(
            "kube-apiserver {}: served {:.1?} after it was put in place",
            cluster.version(),
            begun.elapsed()
        );
        written.remove_previous().unwrap();
        assert_eq!(admin.get("/readyz").await.unwrap().status, 200);
    }
}
