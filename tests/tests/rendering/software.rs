//! Programs that nodes install: their digests are looked up once, and a cluster without a digest is not rendered.

use slipway_core::cluster::Architecture;
use slipway_core::diagnostic::Severity;
use slipway_core::keys;
use slipway_flows::rendering::RenderOutcome;
use slipway_render::lock::Lock;
use slipway_sim::mortal::Life;
use slipway_sim::year::publish_agent;
use slipway_tests::workshop::Workshop;

use super::{NAME, PRODUCTION, bigger};

const KUBELET: &str = "https://dl.k8s.io/release/v1.37.2/bin/linux/amd64/kubelet";

fn https_requests(account: &Workshop) -> usize {
    account.registry.journal().count("https:Get")
}

#[tokio::test]
async fn p1_publishers_are_asked_for_each_digest_once() {
    let account = Workshop::for_spec(PRODUCTION);
    account.render(PRODUCTION).await;
    let lock: Lock = serde_json::from_slice(&account.assets.peek(&keys::lock(NAME)).unwrap()).unwrap();
    let names: Vec<&str> = lock.program_files.keys().filter_map(|url| url.rsplit('/').next()).collect();
    let published = [
        "kubelet",
        "containerd-2.4.2-linux-amd64.tar.gz",
        "cni-plugins-linux-amd64-v1.9.1.tgz",
        "etcd-v3.7.3-linux-amd64.tar.gz",
        "runc.amd64",
    ];
    assert_eq!(names, published, "{:?}", lock.program_files);
    assert_eq!(https_requests(&account), names.len());
    account.render(bigger(PRODUCTION)).await;
    assert_eq!(https_requests(&account), names.len(), "a pinned digest is looked up again");
}

#[tokio::test]
async fn a_program_whose_publisher_says_no_digest_is_not_rendered_with() {
    let account = Workshop::for_spec(PRODUCTION);
    account.registry.remove(&format!("{KUBELET}.sha256"));
    let upload = account.upload(PRODUCTION);
    let error = account.rendered(Some(&upload), &Life::unending()).await.unwrap_err().to_string();
    assert!(error.contains(KUBELET) && error.contains("software.source"), "{error}");
    assert!(account.desired().is_none() && account.assets.peek(&keys::lock(NAME)).is_none());
}

#[tokio::test]
async fn nobody_is_asked_where_the_image_has_it_all() {
    let account = Workshop::for_spec(PRODUCTION);
    account.render(format!("{PRODUCTION}\nsoftware: {{source: image}}\n")).await;
    assert_eq!(https_requests(&account), 0);
}

/// Machines without an agent boot, and do nothing.
#[tokio::test]
async fn p11_a_launch_without_a_published_agent_is_refused_before_anything_is_made() {
    let account = Workshop::for_spec(PRODUCTION);
    // Only Graviton has one.
    account.assets.upload(keys::AGENT_MANIFEST, format!("{{\"arm64\": \"{}\"}}", "c".repeat(64)));
    let before = account.assets.keys();
    let RenderOutcome::Rejected(findings) = account.outcome(PRODUCTION).await else { panic!("not refused") };
    let told: Vec<_> = findings.iter().filter(|one| one.severity == Severity::Error).collect();
    let [one] = told.as_slice() else { panic!("{findings:?}") };
    assert_eq!(one.code, "no-agent");
    assert!(one.message.contains("x86_64"), "{one:?}");
    let help = one.help.as_deref().unwrap();
    assert!(help.contains("slipway publish-agent dist/x86_64/slipway-node"), "{help}");
    let mut made = account.assets.keys();
    made.retain(|key| !before.contains(key));
    assert_eq!(made, [keys::status(NAME)], "nothing but the refusal is stored");
    assert_eq!(https_requests(&account), 0, "no publisher is asked");

    // A spec that is in use keeps its machines: their certificates are renewed, with a warning.
    publish_agent(&account.assets, &"a".repeat(64));
    account.uses_newest_spec(&account.render(PRODUCTION).await.plan);
    account.assets.upload(keys::AGENT_MANIFEST, "{}");
    let lock = account.assets.peek(&keys::lock(NAME)).unwrap();
    let mut lock: serde_json::Value = serde_json::from_slice(&lock).unwrap();
    lock["agent"] = serde_json::json!({});
    account.assets.upload(&keys::lock(NAME), lock.to_string());
    let outcome = account.rendered(None, &Life::unending()).await.unwrap();
    assert!(matches!(outcome, RenderOutcome::Planned(_)), "{outcome:?}");
}

#[tokio::test]
async fn p1_an_agent_is_pinned_for_each_processor_and_stays() {
    let account = Workshop::for_spec(PRODUCTION);
    let pinned = |account: &Workshop| {
        let lock = account.assets.peek(&keys::lock(NAME)).unwrap();
        serde_json::from_slice::<Lock>(&lock).unwrap().agent.into_iter().collect::<Vec<_>>()
    };
    let publish = |x86: &str| {
        let manifest = format!("{{\"x86_64\": \"{x86}\", \"arm64\": \"{}\"}}", "c".repeat(64));
        account.assets.upload(keys::AGENT_MANIFEST, manifest)
    };
    publish(&"a".repeat(64));
    account.render(PRODUCTION).await;
    // No machine of the cluster is a Graviton.
    assert_eq!(pinned(&account), [(Architecture::X86_64, "a".repeat(64))]);
    publish(&"b".repeat(64));
    account.render(bigger(PRODUCTION)).await;
    assert_eq!(
        pinned(&account),
        [(Architecture::X86_64, "a".repeat(64))],
        "a newer agent changes nothing by itself"
    );
}
