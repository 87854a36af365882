//! Destroying a cluster: the real flows with the simulated world.

use slipway_core::event::Event;
use slipway_flows::rendering::RenderOutcome;
use slipway_rollout::Order;
use slipway_sim::world::FleetFaults;

use super::*;

const GONE: &str = "DELETE_COMPLETE";

impl Account {
    /// Nothing of the cluster exists in the world.
    fn is_gone(&self) {
        let stacks = self.stacks();
        assert!(stacks.values().all(|status| status == GONE), "{stacks:?}");
        let world = lock(&self.world);
        assert_eq!(world.machines(), []);
        assert_eq!(world.records(), [""; 0]);
        assert!(world.schedules().is_empty(), "the tick is deleted, too");
    }

    fn records(&self) -> Vec<String> {
        lock(&self.world).records()
    }

    fn destroyed(&self) -> usize {
        let said = self.bus.events();
        said.iter().filter(|event| matches!(event, Event::ClusterDestroyed(_))).count()
    }
}

#[tokio::test]
async fn p8_a_cluster_is_destroyed_whose_every_invocation_dies_once_and_is_made_anew_by_an_upload() {
    let account = Account::up(PRODUCTION).await;
    assert_eq!(account.records().len(), 3, "each member has set its record");
    account.order(Order::Destroy { without_snapshot: false }).await;
    let RenderOutcome::Rejected(why) = account.render(bigger(PRODUCTION)).await else { panic!() };
    assert!(why[0].message.contains("production is being destroyed"), "{why:?}");
    account.run(Delivery::Deadly { seed: 7 }).await;
    let report = account.status().rollout.unwrap();
    assert_eq!(report.state.as_str(), "destroyed", "{}", report.message);
    let gone = account.rollout().unwrap().was_destroyed().cloned().unwrap();
    assert!(gone.snapshot.as_ref().unwrap().starts_with("clusters/production/etcd-snapshots/"));
    account.is_gone();
    // If the function died between publishing an event and recording that, it publishes the event again.
    assert!(account.destroyed() >= 1 && account.calls("DeleteStack") >= 6);

    // Later wakes find nothing to do, and so does the event of a refused spec; another upload creates the cluster again.
    account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
    account.is_gone();
    let refused = account.status().spec.unwrap().version;
    assert!(gone.spec_versions.contains(&refused) && gone.spec_versions.len() == 2, "{refused}");
    let RenderOutcome::Planned(_) = account.render(PRODUCTION).await else { panic!() };
    account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
    account.run(Delivery::Everything).await;
    assert_eq!(account.status().rollout.unwrap().state.as_str(), "succeeded");
    assert_eq!(account.stacks(), all("CREATE_COMPLETE"));
}

/// No member executes commands: everything except the network is deleted, and the status names the command that helps.
#[tokio::test]
async fn a_zone_that_still_holds_the_records_of_dead_members_stops_a_destruction_which_says_what_to_do() {
    let account = Account::up(PRODUCTION).await;
    lock(&account.world).set_fleet_faults(FleetFaults { command_fails: 1.0, ..FleetFaults::default() });
    account.order(Order::Destroy { without_snapshot: true }).await;
    account.run(Delivery::TicksOnly).await;
    let report = account.status().rollout.unwrap();
    assert_eq!(report.state.as_str(), "failed", "{}", report.message);
    for words in [
        "EtcdHostedZone (AWS::Route53::HostedZone) DELETE_FAILED",
        "no member deleted them: etcd-0: the machine is too busy to answer",
        "aws route53 change-resource-record-sets --hosted-zone-id $zone",
        "describe-stack-resource --stack-name production-network",
    ] {
        assert!(report.message.contains(words), "{words}: {}", report.message);
    }
    assert_eq!((account.records().len(), lock(&account.world).machines().len()), (3, 0));
    lock(&account.world).clear_records();
    account.order(Order::Destroy { without_snapshot: true }).await;
    account.run(Delivery::TicksOnly).await;
    assert_eq!(account.status().rollout.unwrap().state.as_str(), "destroyed");
    account.is_gone();
}
