//! The scan rotates an authority: stage by stage, and only after every machine of every group has reported the last stage.

use serde_json::json;
use slipway_credentials::rotation::Stage;
use slipway_flows::credentials::rotation;
use slipway_flows::ports::Groups as _;
use slipway_sim::ports::{SimulatedGroups, lock};
use slipway_sim::world::MachineFacts;

use super::recovery::facts;
use super::*;

fn role(machine: &MachineFacts) -> Role {
    machine.role.parse().unwrap()
}

/// The machine reports that it uses the present credentials of its role.
fn report_credentials(account: &Workshop, machine: &MachineFacts, manifest: &Manifest, at: Timestamp) {
    let status = json!({"format": 1, "at": at, "cluster": NAME, "role": machine.role,
        "applied": {"matchesNodeFile": true, "credentials": manifest.bundles[&role(machine)].digest},
        "components": [], "healthy": true, "served": []});
    account
        .assets
        .upload(&keys::node_status(NAME, &machine.role, &machine_arn(&machine.id)), status.to_string());
}

/// The stage of the rotation of `ca`; `None` if it is over.
fn stage_of(account: &Workshop) -> Option<Stage> {
    account.manifest().rotations.get("ca").map(|rotation| rotation.stage)
}

#[tokio::test]
async fn p7_a_stage_of_an_exchange_follows_when_every_machine_of_every_group_has_told_of_the_last() {
    let mut account = Workshop::launched(PRODUCTION).await;
    account.world = account.fleet(1).await;
    // One machine more than the spec asks for: only Auto Scaling knows of it.
    let pool = facts(&account.world).into_iter().find(|one| one.role == "pool-general-a").unwrap();
    let groups = SimulatedGroups::new(Arc::clone(&account.world));
    groups.raise_desired(&pool.group, 3).await.unwrap();
    let later = lock(&account.world).now() + SignedDuration::from_mins(30);
    lock(&account.world).advance(later);
    let (machines, mut now) = (facts(&account.world), launch() + days(10));
    assert_eq!(machines.iter().filter(|one| one.group == pool.group).count(), 3, "{machines:?}");

    let cluster = slipway_spec::parse(PRODUCTION.as_bytes(), None).unwrap().cluster;
    // A machine that is gone has reported other credentials, and is not waited for.
    let gone = MachineFacts { id: "i-90e".to_owned(), ..pool.clone() };
    report_credentials(&account, &gone, &account.manifest(), now);
    let mut before = account.manifest();
    rotation::change(&account.assets, &account.keys, &AwsLc, &cluster, "ca", now, rotation::Request::Start)
        .await
        .unwrap();

    for (stage, next) in
        [(Stage::Trust, Some(Stage::Issue)), (Stage::Issue, Some(Stage::Drop)), (Stage::Drop, None)]
    {
        now += days(1);
        assert_eq!(stage_of(&account), Some(stage));
        let manifest = account.manifest();
        // Launch templates are waited for, too, whatever machines report.
        for machine in &machines {
            report_credentials(&account, machine, &manifest, now);
        }
        scan(&account, now).await;
        assert_eq!(stage_of(&account), Some(stage), "the launch templates have the earlier credentials");
        let plan = planned(&account, now).await.unwrap();
        account.deployed(&plan).await;

        // One machine of any role blocks the stage, including the newest: without a report, or with the earlier credentials.
        let last: BTreeMap<&str, &MachineFacts> =
            machines.iter().map(|machine| (machine.role.as_str(), machine)).collect();
        for machine in last.into_values() {
            let key = keys::node_status(NAME, &machine.role, &machine_arn(&machine.id));
            account.assets.purge(&key);
            scan(&account, now).await;
            assert_eq!(stage_of(&account), Some(stage), "{machine:?} has not reported");
            // A role whose bundle does not change has the last stage already.
            if before.bundles[&role(machine)].digest != manifest.bundles[&role(machine)].digest {
                report_credentials(&account, machine, &before, now);
                scan(&account, now).await;
                assert_eq!(stage_of(&account), Some(stage), "{machine:?} has the earlier credentials");
            }
            report_credentials(&account, machine, &manifest, now);
        }
        scan(&account, now).await;
        assert_eq!(stage_of(&account), next, "every machine has reported");
        before = manifest;
    }
    assert!(!account.manifest().assets.contains_key("ca-previous"));
}

/// Auto Scaling retains a worker whose pods have not left: it is no part of a refresh, and its pods need the next stage as all others do.
#[tokio::test]
async fn p6_a_stage_waits_for_a_worker_that_auto_scaling_retains() {
    let mut account = Workshop::launched(PRODUCTION).await;
    account.world = account.fleet(1).await;
    let leaving = facts(&account.world).into_iter().find(|one| one.role == "pool-general-a").unwrap();
    let groups = SimulatedGroups::new(Arc::clone(&account.world));
    groups.terminate(&leaving.group, &leaving.id, None).await.unwrap();
    let later = lock(&account.world).now() + SignedDuration::from_hours(49);
    lock(&account.world).advance(later);
    let machines = facts(&account.world);
    assert!(machines.iter().any(|one| one.id == leaving.id && one.retained), "{machines:?}");

    let cluster = slipway_spec::parse(PRODUCTION.as_bytes(), None).unwrap().cluster;
    let (before, now) = (account.manifest(), launch() + days(10));
    rotation::change(&account.assets, &account.keys, &AwsLc, &cluster, "ca", now, rotation::Request::Start)
        .await
        .unwrap();
    let plan = planned(&account, now).await.unwrap();
    account.deployed(&plan).await;
    for machine in &machines {
        let has = if machine.id == leaving.id { before.clone() } else { account.manifest() };
        report_credentials(&account, machine, &has, now);
    }
    scan(&account, now).await;
    assert_eq!(stage_of(&account), Some(Stage::Trust), "it does not trust the new authority");
    report_credentials(&account, &leaving, &account.manifest(), now);
    scan(&account, now).await;
    assert_eq!(stage_of(&account), Some(Stage::Issue));
}
