//! A worker whose kubelet is refused everywhere. The test simulates the kubelet; `recovery` has a real one.

use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use slipway_core::role::{KUBELET_CA, Role};
use slipway_credentials::{AssetKind, CertificateProfile, policy};
use slipway_crypto::AwsLc;
use slipway_node::failure::FailureCode;
use slipway_node::refresh::Order;
use slipway_node::status;
use slipway_node::status::client_certificates::KUBELET_CLIENT;
use slipway_ports::{Crypto as _, Signer};
use slipway_tests::surroundings::Surroundings;
use slipway_tests::workshop::{Workshop, example};

/// A kubelet's certificate and key in its own file format, and the serial number.
fn issued(signer: &Signer, at: Timestamp) -> (String, String) {
    let cluster = slipway_spec::parse(example("production").as_bytes(), None).unwrap().cluster;
    let admin = policy::assets(&cluster).into_iter().find(|asset| asset.name == "admin").unwrap();
    let AssetKind::Certificate(profile) = admin.kind else { panic!("the administrator has no certificate") };
    let profile = CertificateProfile {
        common_name: "system:node:i-0123456789abcdef0".to_owned(),
        organizations: vec!["system:nodes".to_owned()],
        ..profile
    };
    let made = AwsLc.issue(&profile, Some(signer), at).unwrap();
    let certificate = made.public.unwrap();
    let (facts, _) = AwsLc.facts(&certificate).unwrap();
    (certificate + std::str::from_utf8(made.private.expose()).unwrap(), facts.serial)
}

fn put(root: &Path, text: &str) {
    let path = root.join(KUBELET_CLIENT.trim_start_matches('/'));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn p7_a_workers_kubelet_that_is_locked_out_asks_anew_and_one_that_is_not_is_left_alone() {
    let spec = example("production");
    let mut workshop = Workshop::for_spec(&spec);
    workshop.now = Timestamp::now();
    let rendered = workshop.render(&spec).await;
    let cloud = Surroundings::start().await;
    let (folder, role) = (tempfile::tempdir().unwrap(), Role::Pool("general-a".to_owned()));
    let root = folder.path();
    let home = root.join("var/lib/slipway");
    std::fs::create_dir_all(&home).unwrap();
    std::fs::write(home.join("config.json"), &rendered.rendering.roles[&role].config).unwrap();
    let digest = cloud.publish(&role, &workshop.bundle(&role).await).await;
    cloud.host(root, &role, &digest);
    let order = Order { credentials: digest.clone(), restart: false, patience: Duration::from_secs(2) };
    let now = Timestamp::now();
    let (signer, past) =
        (workshop.authority(KUBELET_CA).await, now - SignedDuration::from_hours(24 * 365 * 2));

    let (good, serial) = issued(&signer, now);
    put(root, &good);
    let done = cloud.refresh(root, &order, async |asked| assert_eq!(asked, None)).await.unwrap();
    assert!(done.changed && done.kubelet.is_none(), "{done:?}");
    let told = cloud.status(&role).await;
    assert_eq!(told.held.iter().map(|held| &held.serial).collect::<Vec<_>>(), [&serial], "{told:?}");

    // Expired; and issued by an authority that this node does not trust any more, as after a rotation.
    let mut elsewhere = Workshop::for_spec(&spec);
    elsewhere.now = now;
    elsewhere.render(&spec).await;
    let stranger = elsewhere.authority(KUBELET_CA).await;
    for (bad, why) in [(issued(&signer, past), "xpired"), (issued(&stranger, now), "BadSignature")] {
        put(root, &bad.0);
        let (another, serial) = issued(&signer, now);
        let done = cloud
            .refresh(root, &order, async |asked| {
                if let Some(unit) = asked {
                    assert_eq!(unit, "kubelet.service");
                    assert!(!root.join(KUBELET_CLIENT.trim_start_matches('/')).exists(), "it is set aside");
                    put(root, &another);
                }
            })
            .await
            .unwrap();
        let kubelet = done.kubelet.unwrap();
        assert!(kubelet.refused.contains(why) && kubelet.serial == serial, "{kubelet:?}");
        let aside = std::fs::read_to_string(root.join("var/lib/kubelet/pki/kubelet-client-refused.pem"));
        assert_eq!(aside.unwrap(), bad.0);
    }

    // No API server answers yet: the files of the bundle are installed, and a repeated refresh continues.
    put(root, &issued(&signer, past).0);
    let failure = cloud.refresh(root, &order, async |_| {}).await.unwrap_err();
    assert_eq!((failure.code, failure.transient), (FailureCode::RefreshKubelet, true), "{failure:?}");
    assert_eq!(
        status::status_of_instance(root, None).await.unwrap().applied.credentials.as_ref(),
        Some(&digest)
    );
    let (another, serial) = issued(&signer, now);
    let again = cloud.refresh(root, &order, async |asked| {
        if asked.is_some() {
            put(root, &another);
        }
    });
    assert_eq!(again.await.unwrap().kubelet.unwrap().serial, serial);
}
