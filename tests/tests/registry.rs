//! Looks up the digests of images through a registry's protocol.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use slipway_ports::{ErrorKind, Registry as _};
use slipway_registry::{Mirror, OciRegistry};
use slipway_tests::registry::{Manners, Registry};

const IMAGE: &str = "registry.k8s.io/coredns/coredns:v1.14.6";

async fn registry(manners: Manners) -> (Registry, OciRegistry) {
    let registry = Registry::start(manners).await.unwrap();
    let client = OciRegistry::new(Some(Mirror::parse(registry.url()).unwrap()));
    (registry, client)
}

#[tokio::test]
async fn a_tag_is_pinned_by_its_digest_with_the_token_that_anybody_gets() {
    let (registry, client) = registry(Manners::default()).await;
    assert_eq!(client.digest(IMAGE).await.unwrap(), Some(Registry::digest(IMAGE)));
    let path = "HEAD /v2/registry.k8s.io/coredns/coredns/manifests/v1.14.6";
    assert_eq!(registry.seen(), [path.to_owned(), format!("{path} with a token")]);
}

#[tokio::test]
async fn a_registry_may_send_on_and_leave_out_the_digest() {
    let (registry, client) = registry(Manners { redirects: true, silent: true, ..Manners::default() }).await;
    assert_eq!(client.digest(IMAGE).await.unwrap(), Some(Registry::digest(IMAGE)));
    let seen = registry.seen();
    assert!(seen.last().unwrap().starts_with("GET /elsewhere/"), "{seen:?}");
}

#[tokio::test]
async fn an_image_that_is_not_there_is_none() {
    let lacks = BTreeSet::from([IMAGE.to_owned()]);
    let (_registry, client) = registry(Manners { lacks, ..Manners::default() }).await;
    assert_eq!(client.digest(IMAGE).await.unwrap(), None);
}

#[tokio::test]
async fn a_publishers_checksum_is_read_through_the_mirror_or_is_none() {
    let lacks = BTreeSet::from(["dl.k8s.io/none.sha256".to_owned()]);
    let (registry, client) = registry(Manners { lacks, ..Manners::default() }).await;
    let text = client.text("https://dl.k8s.io/kubelet.sha256").await.unwrap().unwrap();
    assert_eq!(text.trim(), slipway_core::digest::sha256_hex(b"dl.k8s.io/kubelet.sha256"));
    assert_eq!(registry.seen(), ["GET /dl.k8s.io/kubelet.sha256"]);
    assert_eq!(client.text("https://dl.k8s.io/none.sha256").await.unwrap(), None);
    let error = client.text("ftp://dl.k8s.io/kubelet").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
}

#[tokio::test]
async fn what_a_registry_says_no_with_says_what_to_do() {
    for (manners, kind, words) in [
        (Manners { closed: true, ..Manners::default() }, ErrorKind::Denied, "gives no token"),
        (Manners { fails_with: Some(503), ..Manners::default() }, ErrorKind::Transient, "answers HTTP 503"),
        (Manners { fails_with: Some(429), ..Manners::default() }, ErrorKind::Transient, "answers HTTP 429"),
        (Manners { fails_with: Some(403), ..Manners::default() }, ErrorKind::Denied, "answers HTTP 403"),
        (Manners { fails_with: Some(401), ..Manners::default() }, ErrorKind::Denied, "wants credentials"),
    ] {
        let (_registry, client) = registry(manners.clone()).await;
        let error = client.digest(IMAGE).await.unwrap_err();
        assert_eq!(error.kind, kind, "{manners:?}: {error}");
        assert!(error.to_string().contains(words), "{manners:?}: {error}");
        assert!(error.to_string().contains(IMAGE), "{error}");
    }
}

#[tokio::test]
async fn a_registry_that_is_not_there_may_come_back() {
    let (registry, client) = registry(Manners::default()).await;
    let url = registry.url().to_owned();
    drop(registry);
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    let error = client.digest(IMAGE).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Transient, "{error}");
    assert!(
        error.to_string().contains(&format!("{url}/v2/")) && error.to_string().contains("cannot be reached"),
        "{error}"
    );
}

#[test]
fn a_mirror_is_https_or_on_this_machine() {
    assert!(Mirror::parse("https://mirror.example.com/k8s/").is_ok());
    for wrong in [
        "mirror.example.com",
        "http://mirror.example.com",
        "https://",
        "ftp://x",
        "http://localhost.example.com",
    ] {
        assert!(Mirror::parse(wrong).is_err(), "{wrong}");
    }
}
