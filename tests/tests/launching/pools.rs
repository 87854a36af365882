//! Rolling pools at the pace of their spec, and workers that Auto Scaling itself terminates: the real flows with the simulated world.

use jiff::{SignedDuration, Timestamp};
use slipway_flows::ports::Groups as _;
use slipway_rollout::Order;
use slipway_sim::FleetFaults;

use super::nodes::Watch;
use super::*;

const POOL: &str = "production-pool-general-a";

/// One pool with this number of workers and this pace.
pub(super) fn spec(count: u32, kind: &str, rollout: &str) -> String {
    let (head, rest) = PRODUCTION.split_once("\nworker:\n").unwrap();
    let (_, rest) = rest.split_once("\nkubernetes:\n").unwrap();
    let (rest, _) = rest.split_once("\nrollout:\n").unwrap();
    let pool = format!(
        "worker:\n  nodePools:\n    - name: general-a\n      count: {count}\n      instanceType: {kind}\n      subnets: [{{ name: private-a }}]\n"
    );
    let rest =
        rest.replacen("clusterAutoscaler:\n    enabled: true", "clusterAutoscaler:\n    enabled: false", 1);
    format!("{head}\n{pool}\nkubernetes:\n{rest}\nrollout:\n{rollout}")
}

impl Account {
    /// Advances the world for this time. The tick and Auto Scaling's events wake the function.
    pub(super) async fn live(&self, long: SignedDuration, watch: &mut Watch) {
        let end = lock(&self.world).now() + long;
        loop {
            let sent = {
                let mut world = lock(&self.world);
                let next = world.next_event_at().filter(|at| *at <= end);
                world.advance(next.unwrap_or(end));
                watch.observe(&world);
                world.drain()
            };
            for outgoing in sent {
                let by = match &outgoing {
                    Outgoing::Invoke { .. } => Waker::Tick,
                    Outgoing::Event(event) if event.envelope["source"] == "aws.autoscaling" => {
                        let group = event.envelope["detail"]["AutoScalingGroupName"].as_str().unwrap();
                        Waker::Group { name: group.to_owned() }
                    }
                    Outgoing::Event(_) => continue,
                };
                self.invoke(None, by, &Life::unending()).await.unwrap();
            }
            if lock(&self.world).now() >= end {
                return;
            }
        }
    }

    /// As [`Account::live`], for a worker that is terminated with pods on it.
    async fn live_without_watch(&self, long: SignedDuration) {
        self.live(long, &mut Watch { told_by_others: true, ..Watch::default() }).await;
    }

    pub(super) fn later(&self, long: SignedDuration) {
        let mut world = lock(&self.world);
        let later: Timestamp = world.now() + long;
        world.advance(later);
        drop(world.drain());
    }

    pub(super) fn workers(&self) -> Vec<String> {
        let machines = self.machines().into_values();
        machines.filter(|one| one.role == "pool-general-a" && !one.leaving).map(|one| one.id).collect()
    }

    /// Auto Scaling terminates a worker, as it does with an unhealthy or surplus one.
    async fn takes_down(&self, id: &str) {
        SimulatedGroups::new(Arc::clone(&self.world)).terminate(POOL, id, None).await.unwrap();
    }

    pub(super) async fn order(&self, order: Order) {
        self.invoke(None, Waker::Order { order, at: None }, &Life::unending()).await.unwrap();
    }
}

async fn rolled(count: u32, rollout: &str, deadly: Option<u64>) -> Watch {
    let account = Account::up(&spec(count, "m7i.xlarge", rollout)).await;
    let before = account.workers();
    account.render(spec(count, "m7i.2xlarge", rollout)).await;
    let mut watch = Watch { serve: 3, ..Watch::default() };
    let report = account.roll(&mut watch, deadly).await;
    assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
    let after = account.workers();
    assert_eq!(after.len(), count as usize, "{after:?}");
    assert!(after.iter().all(|id| !before.contains(id)), "every one was replaced");
    assert_eq!(watch.workers.len(), count as usize, "each once");
    assert!(account.rollout().unwrap().departures.is_empty());
    watch
}

#[tokio::test]
async fn p6_as_many_workers_go_at_once_as_may_be_missing_and_the_first_alone() {
    let watch = rolled(7, "  maxUnavailable: 3\n", None).await;
    assert_eq!(watch.served["pool-general-a"], (4, 7));
    assert_eq!(watch.drained_at_once, 3);
}

#[tokio::test]
async fn p6_a_pool_that_may_miss_no_machine_gets_more_first() {
    let watch = rolled(4, "  maxUnavailable: 0\n  surge: 50%\n", None).await;
    assert_eq!(watch.served["pool-general-a"], (4, 6));
}

#[tokio::test]
async fn p6_a_pools_only_worker_gets_a_fellow_before_it_goes() {
    let watch = rolled(1, "  maxUnavailable: 0\n  surge: 1\n", None).await;
    assert_eq!(watch.served["pool-general-a"], (1, 2));
}

#[tokio::test]
async fn p8_a_wide_roll_whose_every_invocation_dies_once_ends_the_same() {
    for seed in 0..3 {
        let watch = rolled(5, "  maxUnavailable: 2\n  surge: 1\n", Some(seed)).await;
        assert!(watch.served["pool-general-a"].0 >= 3, "{:?}", watch.served);
        assert!(watch.served["pool-general-a"].1 <= 6, "{:?}", watch.served);
    }
}

#[tokio::test]
async fn p6_a_worker_that_auto_scaling_takes_down_is_drained_first_and_then_let_go() {
    let account = Account::up(&spec(4, "m7i.xlarge", "  maxUnavailable: 1\n")).await;
    let gone = account.workers()[0].clone();
    account.takes_down(&gone).await;
    account.live_without_watch(SignedDuration::from_mins(25)).await;
    assert!(!account.machines().contains_key(&gone), "its hook was completed");
    let facts = lock(&account.world).cluster_facts(NAME).unwrap();
    assert!(facts.losses.is_empty(), "P6: {:?}", facts.losses);
    assert_eq!(account.workers().len(), 4);
    assert!(!account.rollout().unwrap().is_open());
    assert!(lock(&account.world).schedules().is_empty(), "the tick is deleted when nothing is open");
}

#[tokio::test]
async fn p6_a_hook_is_kept_alive_for_as_long_as_its_drain_goes_on_and_is_never_completed_before() {
    let account = Account::new();
    let faults = FleetFaults { stubborn_budget: 1.0, ..FleetFaults::default() };
    lock(&account.world).set_fleet_faults(faults);
    let text = spec(4, "m7i.xlarge", "  maxUnavailable: 1\n  drain: {forceAfterMinutes: 300}\n");
    let account = account.all_up(&text).await;
    // Force requires pods that are three days old.
    account.later(SignedDuration::from_hours(80));
    let gone = account.workers()[0].clone();
    account.takes_down(&gone).await;
    for hour in 1..5 {
        account.live_without_watch(SignedDuration::from_hours(1)).await;
        let machine = account.machines().remove(&gone).expect("it waits");
        assert!(machine.leaving && machine.ready && !machine.retained, "after {hour} hours: {machine:?}");
        assert!(account.status().rollout.unwrap().message.contains(&format!("drains {gone}")));
    }
    let pods = |account: &Account| lock(&account.world).cluster_facts(NAME).unwrap().pods;
    assert!(pods(&account).contains_key(&gone), "no eviction is allowed");
    account.live_without_watch(SignedDuration::from_hours(6)).await;
    assert!(!account.machines().contains_key(&gone), "force was allowed, and the pod is gone");
    let facts = lock(&account.world).cluster_facts(NAME).unwrap();
    assert!(facts.losses.is_empty(), "P6: {:?}", facts.losses);
    assert!(facts.forced > 0);
}

#[tokio::test]
async fn p10_a_paused_cluster_keeps_a_hook_alive_and_drains_after_the_resume() {
    let account = Account::up(&spec(4, "m7i.xlarge", "  maxUnavailable: 1\n")).await;
    account.order(Order::Pause).await;
    let gone = account.workers()[0].clone();
    account.takes_down(&gone).await;
    let before = account.calls("SendCommand");
    account.live_without_watch(SignedDuration::from_hours(3)).await;
    let machine = account.machines().remove(&gone).expect("it waits");
    assert!(machine.leaving && machine.ready && !machine.retained, "{machine:?}");
    assert_eq!(account.calls("SendCommand"), before, "no command is sent");
    account.order(Order::Resume).await;
    account.live_without_watch(SignedDuration::from_mins(25)).await;
    assert!(!account.machines().contains_key(&gone));
    let facts = lock(&account.world).cluster_facts(NAME).unwrap();
    assert!(facts.losses.is_empty(), "P6: {:?}", facts.losses);
}

#[tokio::test]
async fn p10_workers_that_are_being_drained_when_it_is_aborted_take_pods_again() {
    let account = Account::new();
    let faults = FleetFaults { stubborn_budget: 1.0, ..FleetFaults::default() };
    lock(&account.world).set_fleet_faults(faults);
    let account = account.all_up(&spec(4, "m7i.xlarge", "  maxUnavailable: 2\n")).await;
    let before = account.workers();
    account.render(spec(4, "m7i.2xlarge", "  maxUnavailable: 2\n")).await;
    account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
    let mut watch = Watch { serve: 3, ..Watch::default() };
    account.live(SignedDuration::from_hours(1), &mut watch).await;
    assert_eq!(lock(&account.world).cluster_facts(NAME).unwrap().cordoned.len(), 1, "the first");
    account.order(Order::Abort { plan: None }).await;
    assert_eq!(account.status().rollout.unwrap().state.as_str(), "aborted");
    // Earlier than the drain would have ended by itself.
    account.live(SignedDuration::from_mins(3), &mut watch).await;
    assert!(account.calls("CancelCommand") > 0);
    assert_eq!(lock(&account.world).cluster_facts(NAME).unwrap().cordoned, Vec::<String>::new());
    assert_eq!(account.workers(), before);
    assert!(!account.rollout().unwrap().is_open());
    assert!(lock(&account.world).schedules().is_empty());
}
