//! Renderings that meet a renewal of credentials.

use slipway_core::keys;
use slipway_core::role::Role;
use slipway_crypto::AwsLc;
use slipway_flows::credentials;
use slipway_sim::mortal::Life;
use slipway_tests::workshop::Workshop;

use super::{NAME, PRODUCTION, bigger};

/// A rendering is slow, and meanwhile a scan renews a certificate. The rendering that the scan asks for may be over by then.
#[tokio::test]
async fn p8_a_slow_rendering_brings_back_no_credentials_that_a_scan_has_renewed_meanwhile() {
    let account = Workshop::launched(PRODUCTION).await;
    let renewed: Vec<(String, Vec<u8>)> = {
        let other = account.fork();
        let cluster = slipway_spec::parse(PRODUCTION.as_bytes(), None).unwrap().cluster;
        let before = other.assets.keys();
        credentials::renew(&other.assets, &other.keys, &AwsLc, &cluster, "apiserver", true, other.now)
            .await
            .unwrap();
        let written = other.assets.keys().into_iter();
        let written = written.filter(|key| !before.contains(key) || *key == keys::manifest(NAME));
        written.map(|key| (key.clone(), other.assets.peek(&key).unwrap())).collect()
    };
    let version = account.upload(bigger(PRODUCTION));
    let whole = Life::unending();
    account.fork().rendered(Some(&version), &whole).await.unwrap();
    let (mut overtaken, mut late) = (0, Vec::new());
    for call in 0..whole.calls() {
        let account = account.fork();
        let (assets, renewed) = (account.assets.clone(), renewed.clone());
        let renews = move || renewed.into_iter().for_each(|(key, bytes)| drop(assets.upload(&key, bytes)));
        match account.rendered(Some(&version), &Life::interrupted(call, renews)).await {
            Err(error) => {
                assert!(error.is_transient(), "{error}");
                overtaken += 1;
            }
            Ok(_) => {
                let release = account.release(&account.desired().unwrap().target).unwrap();
                let digest = &release.roles[&Role::Controller].credentials_digest;
                if *digest != account.manifest().bundles[&Role::Controller].digest {
                    late.push(call);
                }
            }
        }
    }
    assert!(overtaken > 3, "{overtaken}");
    // After its last look it only reports, and the scan asks for its own rendering later.
    assert!(late.iter().all(|call| call + 6 > whole.calls()), "{late:?} of {}", whole.calls());
}

/// S3 refuses a write that meets another one of the same key, and that one may fail: then nobody has written.
#[tokio::test]
async fn p8_an_object_whose_write_met_another_one_that_failed_is_written_nevertheless() {
    let account = Workshop::launched(PRODUCTION).await;
    let written: Vec<String> = {
        let fork = account.fork();
        fork.render(bigger(PRODUCTION)).await;
        let before = account.assets.keys();
        fork.assets.keys().into_iter().filter(|key| !before.contains(key)).collect()
    };
    assert!(written.iter().any(|key| key.contains("/templates/")), "{written:?}");
    for key in written {
        let account = account.fork();
        account.assets.conflict(&key);
        account.render(bigger(PRODUCTION)).await;
        assert!(account.assets.peek(&key).is_some(), "{key} is missing, and what is desired refers to it");
    }
}
