//! Machines that Auto Scaling has and that no longer say which certificates they serve.

use serde_json::json;
use slipway_credentials::policy::{self, Part};
use slipway_credentials::renewal::Finding;
use slipway_sim::ports::lock;
use slipway_sim::world::{MachineFacts, Service};

use super::recovery::facts;
use super::*;

fn report_key(machine: &MachineFacts) -> String {
    keys::node_status(NAME, &machine.role, &machine_arn(&machine.id))
}

/// The machine reports that it has the certificates of `manifest`.
fn report(account: &Workshop, machine: &MachineFacts, manifest: &Manifest, at: Timestamp) {
    let cluster = slipway_spec::parse(PRODUCTION.as_bytes(), None).unwrap().cluster;
    let files = policy::bundle(&cluster, &machine.role.parse().unwrap());
    let held = files.into_iter().filter_map(|file| {
        let leaf = file.sources.into_iter().find(|source| source.part == Part::Certificate)?.asset;
        let entry = &manifest.assets[&leaf];
        let facts = entry.certificate.as_ref()?;
        Some(json!({"path": file.path, "serial": facts.serial, "fingerprint": entry.fingerprint, "subject": leaf,
            "issuer": "", "notBefore": facts.not_before, "notAfter": facts.not_after}))
    });
    let held: Vec<_> = held.collect();
    let status = json!({"format": 1, "at": at, "cluster": NAME, "role": machine.role, "applied": {"matchesNodeFile": true},
        "components": [], "healthy": true, "served": [], "held": held});
    account.assets.set_clock(at);
    account.assets.upload(&report_key(machine), status.to_string());
}

/// The rollout of `plan` has succeeded, as it does if a person skips a machine.
fn succeeded(account: &Workshop, plan: &Plan, now: Timestamp) {
    let last = ended(plan, RolloutResult::Succeeded, now);
    let rollout = Rollout { last: Some(last), ..rolled_out(plan) };
    account.assets.upload(&keys::rollout(NAME), store::json(&rollout));
}

/// The findings about reports of machines.
fn of_machines(scanned: Scanned) -> Vec<Finding> {
    let found = scanned.findings.into_iter();
    found.filter(|finding| finding.key.starts_with(&keys::nodes(NAME))).collect()
}

/// One of three controllers does not take the renewal, and falls silent. A person skips it, so that the rollout succeeds.
#[tokio::test]
async fn p7_the_old_certificate_of_a_silent_controller_is_announced_until_it_has_the_new_one() {
    let mut account = Workshop::launched(PRODUCTION).await;
    account.world = account.fleet(1).await;
    let holders: Vec<MachineFacts> =
        facts(&account.world).into_iter().filter(|one| !one.role.starts_with("pool-")).collect();
    let silent = holders.iter().find(|one| one.role == "controller").unwrap();
    let now = launch() + days(350);
    let before = account.manifest();
    holders.iter().for_each(|one| report(&account, one, &before, now));
    let scanned = scan(&account, now).await;
    assert_eq!((scanned.renewed.len(), of_machines(scanned)), (15, Vec::new()));
    let plan = planned(&account, now).await.unwrap();
    succeeded(&account, &plan, now);
    take_event_counts(&account);

    let later = now + SignedDuration::from_hours(26);
    let others = || holders.iter().filter(|one| one.id != silent.id);
    others().for_each(|one| report(&account, one, &account.manifest(), later));
    let found = of_machines(scan(&account, later).await);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].key, report_key(silent));
    assert!(found[0].message.contains("has not reported since 2027-11-05T12:00:00Z"), "{found:?}");
    let superseded = scan_state(&account).superseded;
    assert!(
        superseded.contains_key("apiserver") && !superseded.contains_key("etcd-peer-0"),
        "{superseded:?}"
    );
    let said = account.bus.drain().into_iter().filter_map(|event| match event {
        Event::CertificateExpiring(detail) if detail.certificate == "apiserver" => Some(detail.place),
        _ => None,
    });
    let places: Vec<_> = said.collect();
    let place = format!("/etc/kubernetes/pki/apiserver.pem on {} (controller)", silent.id);
    assert_eq!(places, [Some(place)]);

    // It has the new one: nothing is left to say.
    holders.iter().for_each(|one| report(&account, one, &account.manifest(), later));
    let found = of_machines(scan(&account, later).await);
    assert_eq!((found, scan_state(&account).superseded), (Vec::new(), BTreeMap::new()));
}

/// Auto Scaling does not answer. What is due is renewed all the same, and the scan is repeated.
#[tokio::test]
async fn p7_while_auto_scaling_does_not_answer_certificates_are_renewed_and_the_scan_is_repeated() {
    let mut account = Workshop::launched(PRODUCTION).await;
    account.world = account.fleet(1).await;
    lock(&account.world).outage(Service::AutoScaling, SignedDuration::from_hours(1));
    let now = launch() + days(350);
    account.assets.set_clock(now);
    let error = account.scan(&RenewalRequest::default(), &Life::unending(), now).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("DescribeAutoScalingGroups"), "{error}");
    assert_eq!(take_event_counts(&account), [("Certificate Renewed".to_owned(), 1)].into());
    assert_eq!(scan_state(&account).superseded.len(), 15);
    lock(&account.world).clear_weather();
    // No machine has ever reported.
    let scanned = scan(&account, now).await;
    let machines = facts(&account.world).into_iter().filter(|one| !one.role.starts_with("pool-"));
    assert_eq!((scanned.renewed.len(), of_machines(scanned).len()), (0, machines.count()));
    assert_eq!(scan_state(&account).superseded.len(), 14, "the administrator's is on no machine");
}
