//! Recovering from expired certificates with Run Command, machine by machine, without an API.

use slipway_credentials::renewal::recovery::{Progress, Recovery, Stage};
use slipway_flows::recovery::{machines, turn};
use slipway_sim::ports::{SharedWorld, SimulatedCommands, SimulatedGroups, lock};
use slipway_sim::world::{FleetFaults, MachineFacts};

use super::*;

pub(super) fn facts(cloud: &SharedWorld) -> Vec<MachineFacts> {
    lock(cloud).machines()
}

/// Repeats until it is over. Returns the messages and the duration.
async fn recover(cloud: &SharedWorld, recovery: &mut Recovery) -> (Vec<String>, SignedDuration) {
    let commands = SimulatedCommands::new(Arc::clone(cloud));
    let begun = lock(cloud).now();
    let mut said = Vec::new();
    while recovery.stage() != Stage::Over {
        let now = lock(cloud).now();
        assert!(now.duration_since(begun) < SignedDuration::from_hours(6), "{}: {said:#?}", recovery.words());
        said.extend(turn(&commands, recovery, now).await.unwrap());
        lock(cloud).advance(now + SignedDuration::from_secs(2));
    }
    let took = lock(cloud).now().duration_since(begun);
    (said, took)
}

/// A cluster whose certificates have all expired, with new ones in the store.
async fn expired(account: &Workshop, seed: u64) -> (SharedWorld, Recovery) {
    let cloud = account.fleet(seed).await;
    lock(&cloud).expire(NAME);
    let lost = lock(&cloud).cluster_facts(NAME).unwrap();
    assert!(lost.leader.is_none() && lost.api_servers.is_empty(), "{lost:?}");
    assert_eq!(scan(account, launch() + days(400)).await.renewed.len(), 15);
    let machines = machines(&account.assets, &SimulatedGroups::new(Arc::clone(&cloud)), NAME).await.unwrap();
    assert_eq!(machines.values().map(BTreeSet::len).sum::<usize>(), facts(&cloud).len());
    let digests =
        account.manifest().bundles.into_iter().map(|(role, bundle)| (role, bundle.digest)).collect();
    let recovery = Recovery::new("r1", &machines, &digests, lock(&cloud).now());
    (cloud, recovery)
}

/// P7: everything has expired and the API is down. Whatever Run Command does to single commands, all machines recover, and in the right
/// order.
#[tokio::test]
async fn p7_what_has_expired_comes_back_member_by_member_and_then_controllers_and_workers() {
    let account = Workshop::launched(PRODUCTION).await;
    for (seed, faults) in [
        (1, FleetFaults::default()),
        (
            2,
            FleetFaults {
                command_fails: 0.2,
                command_doubled: 0.2,
                command_unlisted: 0.3,
                ..FleetFaults::default()
            },
        ),
    ] {
        let account = account.fork();
        let (cloud, mut recovery) = expired(&account, seed).await;
        lock(&cloud).set_fleet_faults(faults);
        let _ = lock(&cloud).story();
        let (said, took) = recover(&cloud, &mut recovery).await;
        assert!(recovery.is_well(), "{said:#?}");
        let manifest = account.manifest();
        for machine in facts(&cloud) {
            let role: Role = machine.role.parse().unwrap();
            assert_eq!(machine.credentials, manifest.bundles[&role].digest, "{machine:?}");
            assert!(!machine.expired && machine.power == slipway_sim::world::Power::Up, "{machine:?}");
        }
        let back = lock(&cloud).cluster_facts(NAME).unwrap();
        assert!(back.leader.is_some() && back.api_servers.len() == 3, "{back:?}");

        // No machine gets a command before the machines that it depends on.
        let at = |word: &str| said.iter().position(|said| said.contains(word)).unwrap();
        let last = |role: &str| said.iter().rposition(|said| said.contains(role) && said.contains("is back"));
        assert!(
            last("(etcd-2)").unwrap() < at("etcd serves again") || faults.command_fails > 0.0,
            "{said:#?}"
        );
        assert!(at("etcd serves again") < at("(controller)"), "{said:#?}");
        assert!(at("the API is back on 3 of 3") < at("(pool-"), "{said:#?}");
        // A controller's kubelet waits for the API server beside it.
        assert!(
            said.iter().any(|said| said.contains("(controller)") && said.contains("asked again")),
            "{said:#?}"
        );
        let story: Vec<String> = lock(&cloud).story().into_iter().map(|(_, line)| line).collect();
        let starts = story.iter().filter(|line| line.contains(" starts on ")).count();
        assert_eq!(starts, 3, "members were started in another order: {story:#?}");
        println!("seed {seed}: {} machines back in {took:#}", facts(&cloud).len());

        // A second recovery changes nothing, and is fast.
        let machines =
            machines(&account.assets, &SimulatedGroups::new(Arc::clone(&cloud)), NAME).await.unwrap();
        let digests = manifest.bundles.iter().map(|(role, bundle)| (role.clone(), bundle.digest.clone()));
        lock(&cloud).set_fleet_faults(FleetFaults::default());
        let mut again = Recovery::new("r2", &machines, &digests.collect(), lock(&cloud).now());
        let (said, _) = recover(&cloud, &mut again).await;
        assert!(again.is_well() && !said.iter().any(|said| said.contains("new credentials")), "{said:#?}");
    }
}

/// P7: a lost machine blocks no other as long as there is a majority; without one, nothing else is changed.
#[tokio::test]
async fn p7_a_lost_member_is_named_and_holds_up_nobody_and_without_a_majority_nothing_else_is_asked() {
    let account = Workshop::launched(PRODUCTION).await;
    for (lost, well_enough) in [(1, true), (2, false)] {
        let account = account.fork();
        let (cloud, mut recovery) = expired(&account, 3).await;
        let members: Vec<String> =
            facts(&cloud).into_iter().filter(|one| one.role.starts_with("etcd-")).map(|one| one.id).collect();
        for id in &members[..lost] {
            lock(&cloud).kill_machine(id);
        }
        let (said, _) = recover(&cloud, &mut recovery).await;
        assert!(!recovery.is_well());
        for id in &members[..lost] {
            let node = recovery.nodes().iter().find(|node| node.instance == *id).unwrap();
            assert!(matches!(node.progress, Progress::Failed(_)), "{node:?}");
            assert!(said.iter().any(|said| said.contains(id.as_str())), "{said:#?}");
        }
        let others = facts(&cloud).into_iter().filter(|one| !one.role.starts_with("etcd-"));
        for machine in others {
            assert_eq!(!machine.expired, well_enough, "{machine:?}: {said:#?}");
        }
        assert_eq!(recovery.ended().is_none(), well_enough, "{:?}", recovery.ended());
        if !well_enough {
            assert!(recovery.ended().unwrap().contains("1 of 3 members of etcd"), "{:?}", recovery.ended());
        }
    }
}
