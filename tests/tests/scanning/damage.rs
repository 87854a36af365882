//! Damage is reported with its key and the next step, and the rest of the scan continues.

use super::*;

/// The key of a certificate's object.
fn key_of(manifest: &Manifest, asset: &str) -> String {
    keys::public_half(NAME, asset, &manifest.assets[asset].fingerprint)
}

#[tokio::test]
async fn each_damage_is_a_finding_with_its_key_and_the_rest_goes_on() {
    let account = Workshop::launched(PRODUCTION).await;
    let manifest = account.manifest();
    let key = |asset: &str| key_of(&manifest, asset);
    let pem = account.assets.peek(&key("scheduler")).unwrap();
    account.assets.upload(&key("scheduler"), &pem[..pem.len() / 2]);
    account.assets.upload(&key("apiserver"), vec![b'x'; 70_000]);
    account.assets.upload(&key("controller-manager"), account.assets.peek(&key("node-manager")).unwrap());
    account.assets.purge(&key("front-proxy-client"));
    account.assets.upload(&key("etcd-peer-0"), "no certificate at all");
    let now = launch() + days(359);
    account.assets.set_clock(now);
    account.assets.upload(&keys::node_status(NAME, "etcd-0", &machine_arn("i-1")), "{");
    account.assets.upload(&keys::scan(NAME), "{");
    let scanned = scan(&account, now).await;
    let found: BTreeMap<String, String> =
        scanned.findings.iter().map(|found| (found.key.clone(), found.message.clone())).collect();
    for (key, words) in [
        (key("scheduler"), "truncated"),
        (key("apiserver"), "70000 bytes"),
        (key("controller-manager"), "the object contains another certificate"),
        (key("front-proxy-client"), "it is lost"),
        (key("etcd-peer-0"), "PEM"),
        (keys::node_status(NAME, "etcd-0", &machine_arn("i-1")), "cannot be read"),
        (keys::scan(NAME), "cannot be read"),
    ] {
        let message = found.get(&key).unwrap_or_else(|| panic!("{key}: {found:#?}"));
        assert!(message.contains(words), "{key}: {message}");
    }
    assert_eq!(found.len(), 7, "{found:#?}");
    assert!(scanned.findings.iter().all(|found| !found.help.is_empty()));
    assert!(
        !account
            .assets
            .journal()
            .calls()
            .iter()
            .any(|call| call.subject == key("apiserver") && call.operation == "s3:GetObject"),
        "too large to be read"
    );
    // The inventory knows the damaged certificate, which is renewed with the others; that repairs the damage.
    assert_eq!(scanned.renewed.len(), 15);
    account.assets.upload(&keys::node_status(NAME, "etcd-0", &machine_arn("i-1")), "{}");
    account.assets.purge(&keys::node_status(NAME, "etcd-0", &machine_arn("i-1")));
    snapshots::takes(&account, now + SignedDuration::from_hours(20), true);
    assert_eq!(scan(&account, now + days(1)).await.findings, []);
    assert_eq!(scan_state(&account).findings, []);
}

#[tokio::test]
async fn a_clock_behind_the_certificates_start_is_a_finding_each_and_renews_nothing() {
    let account = Workshop::launched(PRODUCTION).await;
    let scanned = scan(&account, launch() - days(2)).await;
    assert_eq!(scanned.findings.len(), 19, "{:#?}", scanned.findings);
    assert!(scanned.findings.iter().all(|found| found.message.contains("is not valid before")));
    assert_eq!((scanned.renewed.len(), scanned.announced.len()), (0, 0));
}

#[tokio::test]
async fn an_inventory_that_lacks_what_the_spec_asks_for_is_a_finding() {
    let account = Workshop::launched(PRODUCTION).await;
    let mut manifest = account.manifest();
    manifest.assets.remove("node-manager");
    account.assets.upload(&keys::manifest(NAME), store::json(&manifest));
    let scanned = scan(&account, launch() + days(1)).await;
    assert_eq!(scanned.findings.len(), 1, "{:#?}", scanned.findings);
    assert_eq!(scanned.findings[0].key, keys::manifest(NAME));
    assert!(scanned.findings[0].message.contains("node-manager"));

    // Without a readable inventory nothing can be done, and the error names the solution.
    account.assets.upload(&keys::manifest(NAME), "{");
    let error = account.scan(&RenewalRequest::default(), &Life::unending(), launch()).await.unwrap_err();
    assert_eq!(error.kind(), "Slipway.Corrupt");
    account.assets.purge(&keys::manifest(NAME));
    let error = account.scan(&RenewalRequest::default(), &Life::unending(), launch()).await.unwrap_err();
    assert_eq!(error.kind(), "Slipway.Corrupt");
    assert!(error.to_string().contains("is lost"), "{error}");
    // Nothing was launched yet.
    account.assets.purge(&keys::desired(NAME));
    account.assets.purge(&keys::rollout(NAME));
    let outcome = account.scan(&RenewalRequest::default(), &Life::unending(), launch()).await.unwrap();
    assert!(matches!(outcome, ScanOutcome::Nothing(_)));
}

/// If a spec is refused or deleted, the cluster's certificates are still renewed by the last accepted one.
#[tokio::test]
async fn the_newest_spec_that_was_accepted_counts() {
    let account = Workshop::launched(PRODUCTION).await;
    account.specs.upload(&keys::spec(NAME), PRODUCTION.replace("instanceType:", "instanceTyp:"));
    assert_eq!(scan(&account, launch() + days(359)).await.renewed.len(), 15);

    // A newer spec disables it, without changing any rendered byte.
    let account = Workshop::launched(PRODUCTION).await;
    let off = PRODUCTION.replace("    enabled: true\n    days: 30", "    enabled: false\n    days: 30");
    assert_ne!(off, PRODUCTION);
    assert_eq!(account.outcome(off).await, rendering::RenderOutcome::Unchanged);
    take_event_counts(&account);
    let scanned = scan(&account, launch() + days(359)).await;
    assert_eq!((scanned.renewed.len(), scanned.announced.len()), (0, 15), "off still warns");
    assert_eq!(take_event_counts(&account), [("Certificate Expiring".to_owned(), 15)].into());
    scan(&account, launch() + days(360)).await;
    assert_eq!(take_event_counts(&account), BTreeMap::new(), "once a threshold");
}

/// Whoever controls a node can make it report anything. The report is shown, and overrides nothing.
#[tokio::test]
async fn p7_what_a_node_tells_makes_no_plan_urgent() {
    let account = Workshop::launched(&PRODUCTION.replace("approval: auto", "approval: manual")).await;
    let now = launch() + days(350);
    let status = serde_json::json!({"format": 1, "at": now, "cluster": NAME, "role": "controller",
        "applied": {"matchesNodeFile": true}, "components": [], "healthy": true, "served": [{
            "name": "kube-apiserver", "address": "127.0.0.1:6443", "verifiable": true, "certificate": {
                "serial": "1", "fingerprint": "f".repeat(64), "subject": "CN=kube-apiserver", "issuer": "CN=kubernetes-ca",
                "notBefore": launch(), "notAfter": now, "verifies": true}}]});
    account.assets.set_clock(now);
    account.assets.upload(&keys::node_status(NAME, "controller", &machine_arn("i-7")), status.to_string());
    scan(&account, now).await;
    assert!(scan_state(&account).urgent.is_some(), "the report is shown");
    let plan = planned(&account, now).await.unwrap();
    assert!(plan.waits_for_approval(now) && !plan.urgency(now).overrides(), "{}", plan.summary());
    assert!(!take_event_counts(&account).contains_key("Rollout Requested"));
}

/// A certificate that a node still serves counts, whatever the store has.
#[tokio::test]
async fn p7_what_a_node_still_serves_is_said_and_urgent() {
    let account = Workshop::launched(PRODUCTION).await;
    let old = account.manifest().assets["apiserver"].clone();
    let now = launch() + days(350);
    scan(&account, now).await;
    let plan = planned(&account, now).await.unwrap();
    account.deployed(&plan).await;
    let release = account.release(&plan.to).unwrap();
    assert!(release.roles.contains_key(&Role::Controller));
    take_event_counts(&account);
    let facts = old.certificate.unwrap();
    let later = launch() + days(363);
    let status = serde_json::json!({"format": 1, "at": later, "cluster": NAME, "role": "controller",
        "applied": {"matchesNodeFile": true}, "components": [], "healthy": true, "served": [{
            "name": "kube-apiserver", "address": "127.0.0.1:6443", "verifiable": true, "certificate": {
                "serial": facts.serial, "fingerprint": old.fingerprint, "subject": "CN=kube-apiserver", "issuer": "CN=kubernetes-ca",
                "notBefore": facts.not_before, "notAfter": facts.not_after, "verifies": true}}]});
    account.assets.set_clock(later);
    account.assets.upload(&keys::node_status(NAME, "controller", &machine_arn("i-7")), status.to_string());
    scan(&account, later).await;
    let expiring = account.bus.drain().into_iter().find_map(|event| match event {
        Event::CertificateExpiring(detail) if detail.certificate == "apiserver" => Some(detail),
        _ => None,
    });
    let expiring = expiring.unwrap();
    assert_eq!(expiring.place.as_deref(), Some("kube-apiserver on i-7 (controller)"));
    assert_eq!((expiring.threshold_days, expiring.days_left), (3, 2));
    assert!(expiring.message.contains("renewed in the store"), "{}", expiring.message);
    let urgent = scan_state(&account).urgent.unwrap();
    assert_eq!((urgent.certificate.as_str(), urgent.expired), ("apiserver", false));
}

/// A person forgets a destruction that has stopped, or that was ordered while everything is paused: the cluster serves until its certificates
/// expire.
#[tokio::test]
async fn p7_while_a_destruction_makes_no_progress_certificates_are_announced_and_not_renewed() {
    let account = Workshop::launched(PRODUCTION).await;
    let running: Rollout = account.read(&keys::rollout(NAME)).unwrap();
    let order = |order: Order| Given { order, at: account.now };
    let ordered = order(Order::Destroy { without_snapshot: true });
    let going = after_order(&running, &ordered, None, account.now);
    let now = launch() + days(364);
    account.assets.upload(&keys::rollout(NAME), store::json(&going));
    account.assets.set_clock(now);
    let nothing = account.scan(&RenewalRequest::default(), &Life::unending(), now).await.unwrap();
    assert!(matches!(nothing, ScanOutcome::Nothing(_)), "{nothing:?}");
    let paused = after_order(&going, &order(Order::Pause), None, account.now);
    account.assets.upload(&keys::rollout(NAME), store::json(&paused));
    let before = account.manifest();
    take_event_counts(&account);
    let scanned = scan(&account, now).await;
    assert_eq!((scanned.renewed.len(), account.manifest()), (0, before));
    let finding =
        scanned.findings.iter().find(|finding| finding.message.contains("makes no progress")).unwrap();
    assert!(finding.help.contains("slipway abort --cluster production"), "{finding:?}");
    let said = take_event_counts(&account);
    assert!(said.contains_key("Certificate Expiring"), "{said:?}");
    assert!(!said.contains_key("Certificate Renewed"), "{said:?}");
}
