//! Removing pools from the spec: the real flows with the simulated world. A check that does not know `decide` observes the world after
//! every event.

use jiff::SignedDuration;
use slipway_plan::{NodeAction, StackAction};
use slipway_rollout::Order;

use super::nodes::Watch;
use super::*;

const POOL: &str = "production-pool-batch-c";

/// The production example without one of its pools.
fn without_batch() -> String {
    let (head, rest) = PRODUCTION.split_once("    - name: batch-c\n").unwrap();
    format!("{head}{}", &rest[rest.find("\nkubernetes:").unwrap()..])
}

impl Account {
    /// The production example, whose batch jobs may also run in another pool.
    async fn with_room() -> Self {
        let account = Self::up(PRODUCTION).await;
        lock(&account.world).let_pods_go_to(NAME, "pool-batch-c", "pool-general-a");
        account
    }

    fn batch(&self) -> Vec<String> {
        let machines = self.machines().into_values();
        machines.filter(|one| one.role == "pool-batch-c").map(|one| one.id).collect()
    }

    fn nothing_was_lost(&self) {
        let facts = lock(&self.world).cluster_facts(NAME).unwrap();
        assert!(facts.losses.is_empty() && facts.cordoned.is_empty(), "{facts:?}");
        assert!(!self.rollout().unwrap().is_open());
        assert!(lock(&self.world).schedules().is_empty());
    }
}

async fn removed(deadly: Option<u64>) {
    let account = Account::with_room().await;
    let (before, batch) = (account.machines(), account.batch());
    let RenderOutcome::Planned(plan) = account.render(without_batch()).await else { panic!() };
    let stack = plan.stacks.iter().find(|stack| stack.name == POOL).unwrap();
    assert_eq!(stack.action, StackAction::Delete);
    let mut watch = Watch { serve: 3, ..Watch::default() };
    let report = account.roll(&mut watch, deadly).await;
    assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
    assert!(report.message.contains("; removed: pool-batch-c"), "{}", report.message);
    assert!(plan.nodes.iter().all(|node| (node.stack == POOL) == (node.action == NodeAction::Remove)));
    assert_eq!(watch.drained_at_once, batch.len(), "all are empty before the first is terminated");
    let mut after = account.machines();
    assert!(batch.iter().all(|id| !after.contains_key(id)));
    after.extend(before.clone().into_iter().filter(|(id, _)| batch.contains(id)));
    assert_eq!(
        after.keys().collect::<Vec<_>>(),
        before.keys().collect::<Vec<_>>(),
        "no other machine is changed"
    );
    assert!(account.stacks().get(POOL).is_none_or(|status| status == "DELETE_COMPLETE"));
    let rollout = account.rollout().unwrap();
    assert!(!rollout.deployed.contains_key(POOL) && rollout.orphaned.is_empty(), "{rollout:?}");
    account.nothing_was_lost();
    assert_eq!(account.render(without_batch()).await, RenderOutcome::Unchanged);
}

#[tokio::test]
async fn p2_p6_a_pool_that_left_the_spec_is_emptied_and_then_deleted_with_its_stack() {
    removed(None).await;
}

#[tokio::test]
async fn p8_a_removal_whose_every_invocation_dies_once_ends_the_same() {
    for seed in 0..2 {
        removed(Some(seed)).await;
    }
}

#[tokio::test]
async fn p6_a_machine_that_the_group_of_a_pool_keeps_is_drained_before_the_pool_is_deleted() {
    let account = Account::with_room().await;
    let kept = account.batch().pop().unwrap();
    lock(&account.world).keep_machine(&kept);
    account.render(without_batch()).await;
    account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
    let report = account.roll(&mut Watch { serve: 3, told_by_others: true, ..Watch::default() }, None).await;
    assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
    assert!(account.batch().is_empty());
    account.nothing_was_lost();
}

#[tokio::test]
async fn p10_a_pool_whose_removal_is_aborted_before_its_stack_goes_takes_pods_again_and_stays() {
    let account = Account::with_room().await;
    let before = account.machines();
    account.render(without_batch()).await;
    account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
    let mut watch = Watch { serve: 3, ..Watch::default() };
    for _ in 0..600 {
        account.live(SignedDuration::from_secs(2), &mut watch).await;
        account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
        if watch.drained_at_once >= 2 {
            break;
        }
    }
    assert!(watch.drained_at_once >= 2, "the second is being drained, and the first is empty and stays");
    account.order(Order::Abort { plan: None }).await;
    assert_eq!(account.status().rollout.unwrap().state.as_str(), "aborted");
    account.live(SignedDuration::from_mins(30), &mut watch).await;
    account.nothing_was_lost();
    assert_eq!(account.machines().keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    assert_eq!(account.stacks()[POOL], "CREATE_COMPLETE");
    // The same spec again deletes it.
    account.render(without_batch()).await;
    let report = account.roll(&mut watch, None).await;
    assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
    assert!(account.batch().is_empty());
}
