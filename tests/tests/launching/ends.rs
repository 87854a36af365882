//! Rollouts that end early: the real flows with the simulated world.

use jiff::SignedDuration;
use slipway_core::role::Role;
use slipway_rollout::{NodeStep, Order, Place, RolloutResult, Task};

use super::nodes::{Watch, bigger_controllers};
use super::pools::spec;
use super::*;

impl Account {
    fn cordoned(&self) -> Vec<String> {
        lock(&self.world).cluster_facts(NAME).unwrap().cordoned
    }
}

/// A roll of controllers is ended by `order` at that moment: the drained controller is uncordoned and stays.
async fn stopped_when(moment: impl Fn(&NodeStep) -> bool, order: impl Fn(&str) -> Order) {
    let account = Account::up(PRODUCTION).await;
    account.render(bigger_controllers()).await;
    account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
    let mut watch = Watch { serve: 3, ..Watch::default() };
    let mut drained = None;
    for _ in 0..900 {
        account.live(SignedDuration::from_secs(2), &mut watch).await;
        account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
        let active = account.rollout().unwrap().active().cloned().expect("it is not over");
        let step = active.nodes.steps.iter().find(|step| step.role == Role::Controller).unwrap();
        let Task::Controllers(task) = &step.task else { panic!("{step:?}") };
        drained = task.departs.clone().filter(|_| moment(step));
        if drained.is_some() {
            break;
        }
    }
    let drained = drained.expect("a controller is drained");
    account.order(order(&drained)).await;
    account.live(SignedDuration::from_mins(3), &mut watch).await;
    assert!(!account.cordoned().contains(&drained), "it takes pods again");
    assert!(account.machines().contains_key(&drained), "and stays");
    account.live(SignedDuration::from_mins(15), &mut watch).await;
    assert!(!account.cordoned().contains(&drained), "no drain continued");
}

#[tokio::test]
async fn p10_a_controller_that_is_being_drained_when_it_is_aborted_takes_pods_again() {
    stopped_when(|step| step.place() == Place::Drain, |_| Order::Abort { plan: None }).await;
}

#[tokio::test]
async fn p10_a_controller_that_was_drained_when_it_is_aborted_takes_pods_again() {
    stopped_when(|step| step.place() == Place::Check, |_| Order::Abort { plan: None }).await;
}

#[tokio::test]
async fn p10_a_controller_that_is_to_be_left_while_it_is_drained_takes_pods_again() {
    stopped_when(|step| step.place() == Place::Drain, |id| Order::Skip { instance: id.to_owned() }).await;
}

/// One worker that cannot be drained is within the failure budget: the others are replaced nevertheless.
#[tokio::test]
async fn p10_a_worker_that_fails_within_the_budget_is_left_and_the_others_are_replaced() {
    let pace = "  maxUnavailable: 1\n  failureBudget: 1\n";
    let account = Account::up(&spec(4, "m7i.xlarge", pace)).await;
    let before = account.workers();
    account.render(spec(4, "m7i.2xlarge", pace)).await;
    account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
    let mut watch = Watch { serve: 3, ..Watch::default() };
    // The first worker is replaced; then no pod may be evicted, until one drain was given up.
    while watch.workers.is_empty() {
        account.live(SignedDuration::from_mins(1), &mut watch).await;
    }
    lock(&account.world).set_budgets(NAME, "pool-general-a", 0);
    let failures = || account.rollout().unwrap().active().expect("the rollout continues").nodes.failures;
    for _ in 0..120 {
        account.live(SignedDuration::from_mins(30), &mut watch).await;
        if failures() > 0 {
            break;
        }
    }
    assert_eq!(failures(), 1);
    lock(&account.world).set_budgets(NAME, "pool-general-a", 1);
    account.live(SignedDuration::from_hours(3), &mut watch).await;
    let rollout = account.rollout().unwrap();
    let last = rollout.last.clone().unwrap();
    assert_eq!(last.result, RolloutResult::Succeeded, "{}", last.message);
    let stay: Vec<String> = account.workers().into_iter().filter(|id| before.contains(id)).collect();
    assert_eq!((stay.len(), account.workers().len(), watch.workers.len()), (1, 4, 3));
    assert!(!account.cordoned().contains(&stay[0]), "it takes pods again");
    assert!(rollout.earlier.contains_key(&Role::Pool("general-a".to_owned())), "the next plan names it");
}
