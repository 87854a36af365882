//! From a plan to stacks, through the real flows, with a simulated CloudFormation on a virtual clock.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test may panic")]

mod destroying;
mod ends;
mod nodes;
mod pools;
mod removal;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex};

use slipway_core::keys;
use slipway_core::release::AddonsPointer;
use slipway_core::status::{Report, Status};
use slipway_flows::FlowResult;
use slipway_flows::ports::Ticks as _;
use slipway_flows::rendering::RenderOutcome;
use slipway_flows::rollout::Waker;
use slipway_rollout::{Pending, Rollout};
use slipway_sim::mortal::Life;
use slipway_sim::ports::{SimulatedGroups, SimulatedTicks, lock};
use slipway_sim::world::{Outgoing, World};
use slipway_sim::year::{Cause, FUNCTION, Woken};
use slipway_tests::workshop::Workshop;

const PRODUCTION: &str = include_str!("../../../examples/production.yaml");
const NAME: &str = "production";

/// Which events of the world reach the function.
#[derive(Clone, Copy, PartialEq)]
enum Delivery {
    /// Everything, once.
    Everything,
    /// Everything, twice.
    Twice,
    /// CloudFormation's events are lost: only the tick wakes the function.
    TicksOnly,
    /// Everything; each invocation dies at some call, and is retried as Lambda does it.
    Deadly {
        /// The seed of the calls.
        seed: u64,
    },
}

fn approves(plan: String) -> Waker {
    Waker::Order { order: slipway_rollout::Order::Approve { plan }, at: None }
}

/// The cluster's account, and how often CloudFormation began to create or update each stack.
struct Account {
    workshop: Workshop,
    begun: Mutex<BTreeMap<String, u32>>,
}

impl Deref for Account {
    type Target = Workshop;

    fn deref(&self) -> &Workshop {
        &self.workshop
    }
}

impl Account {
    fn new() -> Self {
        Self { workshop: Workshop::for_spec(PRODUCTION), begun: Mutex::default() }
    }

    async fn render(&self, text: impl AsRef<[u8]>) -> RenderOutcome {
        let version = self.upload(text);
        (*self.workshop).render(Cause::Version(&version), &Life::unending(), self.now()).await.unwrap()
    }

    /// Invokes the rollout function: with a stack's event, or for the cluster.
    async fn invoke(&self, stack: Option<&str>, by: Waker, life: &Life) -> FlowResult<Option<Report>> {
        let woken = match (stack, by) {
            (Some(stack), _) => Woken::Stack(stack.to_owned()),
            (None, Waker::Group { name }) => Woken::Group(name),
            (None, by) => Woken::Rollout(by),
        };
        self.workshop.roll(&woken, life, self.now(), None).await
    }

    /// Advances the world and wakes the function as `delivery` says, until no rollout is open. Returns how often it was woken.
    async fn run(&self, delivery: Delivery) -> u32 {
        let mut wakes = 0;
        for _ in 0..20_000 {
            if self.rollout().is_some_and(|rollout| !rollout.is_open()) {
                return wakes;
            }
            let sent = {
                let mut world = lock(&self.world);
                let next = world.next_event_at().expect("a rollout is open, so there is at least its tick");
                world.advance(next);
                world.drain()
            };
            for outgoing in sent {
                let stack = match &outgoing {
                    Outgoing::Event(event) if event.detail_type == "CloudFormation Stack Status Change" => {
                        let id = event.envelope["detail"]["stack-id"].as_str().unwrap();
                        let name = id.split('/').nth(1).unwrap().to_owned();
                        let status = event.envelope["detail"]["status-details"]["status"].as_str().unwrap();
                        if matches!(status, "CREATE_IN_PROGRESS" | "UPDATE_IN_PROGRESS") {
                            *self.begun.lock().unwrap().entry(name.clone()).or_default() += 1;
                        }
                        Some(name)
                    }
                    Outgoing::Event(_) => continue,
                    Outgoing::Invoke { target_arn, .. } => {
                        assert_eq!(target_arn, FUNCTION);
                        None
                    }
                };
                if stack.is_some() && delivery == Delivery::TicksOnly {
                    continue;
                }
                wakes += 1;
                let repeat = match delivery {
                    Delivery::Everything | Delivery::TicksOnly => None,
                    Delivery::Twice => Some(Life::unending()),
                    Delivery::Deadly { seed } => {
                        let random = (seed ^ u64::from(wakes)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                        Some(Life::until(random % 12, random & 64 == 0))
                    }
                };
                if let Some(life) = repeat {
                    let _ = self.invoke(stack.as_deref(), Waker::Tick, &life).await;
                }
                self.invoke(stack.as_deref(), Waker::Tick, &Life::unending()).await.unwrap();
            }
        }
        panic!("the rollout never ended: {:?}", self.status().rollout);
    }

    fn status(&self) -> Status {
        self.workshop.status().unwrap()
    }

    /// The pointer that node managers read first.
    fn addons_pointer(&self) -> AddonsPointer {
        self.read(&keys::addons_pointer(NAME)).unwrap()
    }

    /// The add-ons that they read next; the digest is that of the bytes.
    fn add_ons(&self) -> Vec<u8> {
        let digest = self.addons_pointer().digest;
        let bytes = self.assets.peek(&keys::addons(NAME, &digest)).unwrap();
        assert_eq!(slipway_core::digest::sha256_hex(&bytes), digest);
        bytes
    }

    fn stacks(&self) -> BTreeMap<String, String> {
        let world = lock(&self.world);
        STACKS.iter().filter_map(|name| Some(((*name).to_owned(), world.stack_status(name)?))).collect()
    }

    fn calls(&self, action: &str) -> u64 {
        lock(&self.world).calls().get(action).copied().unwrap_or_default()
    }

    fn assert_each_began_once(&self) {
        let begun = self.begun.lock().unwrap();
        assert!(STACKS.iter().all(|name| begun.get(*name) == Some(&1)), "{begun:?}");
    }

    async fn launched() -> Self {
        let account = Self::new();
        account.render(PRODUCTION).await;
        account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
        account.run(Delivery::Everything).await;
        account
    }
}

const STACKS: [&str; 6] = [
    "production-network",
    "production-etcd",
    "production-control-plane",
    "production-pool-general-a",
    "production-pool-general-b",
    "production-pool-batch-c",
];

fn all(status: &str) -> BTreeMap<String, String> {
    STACKS.iter().map(|name| ((*name).to_owned(), status.to_owned())).collect()
}

fn bigger(text: &str) -> String {
    text.replacen("maxSize: 10", "maxSize: 12", 1)
}

#[tokio::test]
async fn p8_a_launch_creates_every_stack_however_its_events_come() {
    for delivery in [Delivery::Everything, Delivery::Twice, Delivery::TicksOnly] {
        let account = Account::new();
        account.render(PRODUCTION).await;
        account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
        account.run(delivery).await;
        assert_eq!(account.stacks(), all("CREATE_COMPLETE"));
        assert_eq!(account.status().rollout.unwrap().state.as_str(), "succeeded");
        assert_eq!(account.calls("CreateChangeSet"), 6, "no step is done twice");
        assert_eq!(account.calls("ExecuteChangeSet"), 6);
        account.assert_each_began_once();
        assert!(lock(&account.world).schedules().is_empty(), "the tick is deleted with the rollout");
    }
}

#[tokio::test]
async fn p1_an_unchanged_upload_and_a_late_event_touch_nothing() {
    let account = Account::launched().await;
    let before = (account.assets.writes(), lock(&account.world).calls().clone());
    assert_eq!(account.render(PRODUCTION).await, RenderOutcome::Unchanged);
    account.invoke(Some("production-network"), Waker::Event, &Life::unending()).await.unwrap();
    account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
    assert_eq!((account.assets.writes(), lock(&account.world).calls().clone()), before);
}

#[tokio::test]
async fn p2_a_pools_new_size_updates_its_stack_and_no_other() {
    let account = Account::launched().await;
    let RenderOutcome::Planned(plan) = account.render(bigger(PRODUCTION)).await else { panic!() };
    account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
    account.run(Delivery::Everything).await;
    let mut expected = all("CREATE_COMPLETE");
    expected.insert("production-pool-general-a".to_owned(), "UPDATE_COMPLETE".to_owned());
    assert_eq!(account.stacks(), expected);
    assert!(account.rollout().unwrap().deployed.values().all(|release| release == &plan.to));
}

/// Another number of DNS replicas: only objects in the cluster change.
fn more_dns(text: &str) -> String {
    text.replacen("\naddons:\n", "\naddons:\n  coreDns: {replicas: 3}\n", 1)
}

#[tokio::test]
async fn p2_an_add_on_alone_goes_to_the_node_managers_and_touches_no_stack_and_no_node() {
    let account = Account::launched().await;
    let before = (account.addons_pointer(), account.calls("CreateChangeSet"), account.rollout().unwrap());
    assert_eq!(before.0.generation, 1, "a new cluster is told at once");
    let RenderOutcome::Planned(plan) = account.render(more_dns(PRODUCTION)).await else { panic!() };
    assert_eq!(plan.summary(), "no stack; nodes: none touched; add-ons: 1 changed");
    assert_eq!(account.addons_pointer(), before.0, "a plan alone tells them nothing");
    account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
    account.run(Delivery::Everything).await;
    let report = account.status().rollout.unwrap();
    assert_eq!(report.state.as_str(), "succeeded");
    let words = "no stack had to change; add-ons for the controllers to apply: coredns changed (v1.14.6)";
    assert_eq!(report.message, words);
    assert_eq!(account.calls("CreateChangeSet"), before.1);
    let told = account.addons_pointer();
    assert_eq!((told.generation, &told.release), (2, &plan.to));
    assert_ne!(told.digest, before.0.digest);
    let set: serde_json::Value = serde_json::from_slice(&account.add_ons()).unwrap();
    let deployment = set["addons"].as_array().unwrap().iter().find(|one| one["name"] == "coredns").unwrap();
    let objects = deployment["objects"].as_array().unwrap();
    assert!(objects.iter().any(|object| object["spec"]["replicas"] == 3), "{objects:?}");
    assert!(lock(&account.world).schedules().is_empty());

    let writes = account.assets.writes();
    assert_eq!(account.render(more_dns(PRODUCTION)).await, RenderOutcome::Unchanged);
    assert_eq!(account.assets.writes(), writes);
}

#[tokio::test]
async fn p8_a_rollout_of_add_ons_that_dies_at_any_call_tells_the_node_managers_once_and_in_the_end() {
    for last in 0..20 {
        let account = Account::launched().await;
        let RenderOutcome::Planned(plan) = account.render(more_dns(PRODUCTION)).await else { panic!() };
        for after in [true, false] {
            let _ = account.invoke(None, Waker::Event, &Life::until(last, after)).await;
        }
        account.invoke(None, Waker::Tick, &Life::unending()).await.unwrap();
        account.run(Delivery::TicksOnly).await;
        let told = account.addons_pointer();
        assert_eq!((told.generation, &told.release), (2, &plan.to), "after a death at call {last}");
        assert_eq!(account.rollout().unwrap().addons, Some(told));
        assert!(lock(&account.world).schedules().is_empty());
    }
}

/// An effect that was decided long ago.
fn pending(effect: slipway_rollout::Effect) -> Pending {
    Pending { id: 1, effect, decided_at: jiff::Timestamp::UNIX_EPOCH, evidence: None }
}

#[tokio::test]
async fn p8_an_invocation_that_stood_still_does_not_bring_older_add_ons_back() {
    let account = Account::launched().await;
    let late = pending(slipway_rollout::Effect::PointAddons(account.addons_pointer()));
    account.render(more_dns(PRODUCTION)).await;
    account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
    let told = account.addons_pointer();
    let behind = Rollout { outbox: vec![late], ..Rollout::clone(&account.rollout().unwrap()) };
    account.assets.upload(&keys::rollout(NAME), slipway_flows::store::json(&behind));
    account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
    assert_eq!(account.addons_pointer(), told);
}

#[tokio::test]
async fn add_ons_are_switched_after_the_state_was_brought_back_from_an_earlier_version() {
    let account = Account::launched().await;
    let (first, early) = (account.addons_pointer(), account.rollout().unwrap());
    for replicas in ["{replicas: 3}", "{replicas: 4}"] {
        account.render(more_dns(PRODUCTION).replace("{replicas: 3}", replicas)).await;
        account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
    }
    assert_eq!(account.addons_pointer().generation, 3);

    // The state says that the first add-ons are applied, so a request for them again is not empty.
    account.assets.upload(&keys::rollout(NAME), slipway_flows::store::json(&*early));
    let RenderOutcome::Planned(plan) = account.render(PRODUCTION).await else { panic!() };
    assert_eq!(plan.summary(), "no stack; nodes: none touched; add-ons: 1 changed");
    account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
    let told = account.addons_pointer();
    assert_eq!((told.generation, &told.digest), (4, &first.digest));
    let state = account.rollout().unwrap();
    assert_eq!((state.generation, state.addons.clone()), (4, Some(told)));
}

#[tokio::test]
async fn a_failed_resource_ends_the_launch_with_cloudformations_reason_and_an_upload_goes_on_from_there() {
    let account = Account::new();
    lock(&account.world).fail("AWS::EC2::Volume", "Maximum number of volumes exceeded", 1);
    account.render(PRODUCTION).await;
    account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
    account.run(Delivery::Everything).await;
    let report = account.status().rollout.unwrap();
    assert_eq!(report.state.as_str(), "failed");
    assert!(report.message.contains("Maximum number of volumes exceeded"), "{}", report.message);
    assert!(report.message.starts_with("production-etcd could not be created: "), "{}", report.message);
    assert!(!account.stacks().contains_key("production-control-plane"));
    assert!(lock(&account.world).schedules().is_empty());

    let networks = account.calls("CreateChangeSet");
    assert!(matches!(account.render(PRODUCTION).await, RenderOutcome::Planned(_)));
    account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
    account.run(Delivery::Everything).await;
    assert_eq!(account.stacks(), all("CREATE_COMPLETE"));
    assert_eq!(account.calls("CreateChangeSet") - networks, 5, "the network stack was done already");
}

#[tokio::test]
async fn p8_a_rollout_function_that_dies_at_any_call_is_finished_by_the_next_wake() {
    // The number of calls of the longest invocations.
    for last in (0..40).step_by(2) {
        let account = Account::new();
        account.render(PRODUCTION).await;
        // Each of the first invocations dies at that call, before or after it took effect.
        for after in [true, false] {
            let _ = account.invoke(None, Waker::Event, &Life::until(last, after)).await;
        }
        account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
        account.run(Delivery::Everything).await;
        assert_eq!(account.stacks(), all("CREATE_COMPLETE"), "after a death at call {last}");
        account.assert_each_began_once();
        assert!(lock(&account.world).schedules().is_empty());
    }
}

#[tokio::test]
async fn p8_a_launch_whose_every_invocation_dies_once_ends_the_same() {
    for seed in 0..25 {
        let account = Account::new();
        account.render(PRODUCTION).await;
        account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
        account.run(Delivery::Deadly { seed }).await;
        assert_eq!(account.stacks(), all("CREATE_COMPLETE"), "seed {seed}");
        account.assert_each_began_once();
        assert!(lock(&account.world).schedules().is_empty(), "seed {seed}");
    }
}

#[tokio::test]
async fn a_tick_that_outlived_its_rollout_is_deleted_by_the_wake_that_it_causes() {
    let account = Account::launched().await;
    SimulatedTicks::new(Arc::clone(&account.world), FUNCTION).arm(NAME).await.unwrap();
    account.invoke(None, Waker::Tick, &Life::unending()).await.unwrap();
    assert!(lock(&account.world).schedules().is_empty());
}

#[tokio::test]
async fn p8_a_disarm_that_comes_late_leaves_the_next_rollout_its_tick() {
    let account = Account::launched().await;
    account.render(bigger(PRODUCTION)).await;
    account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
    assert!(account.rollout().unwrap().active().is_some());
    // As if the last rollout's invocation had stopped before its last effect.
    let mut late = Rollout::clone(&account.rollout().unwrap());
    late.outbox = vec![pending(slipway_rollout::Effect::DisarmTick)];
    account.assets.upload(&keys::rollout(NAME), slipway_flows::store::json(&late));
    account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
    assert_eq!(lock(&account.world).schedules().len(), 1);
}

#[tokio::test]
async fn what_will_not_pass_by_itself_is_said_in_the_status_and_goes_on_once_it_is_mended() {
    let account = Account::new();
    lock(&account.world).deny("CreateChangeSet", 1);
    account.render(PRODUCTION).await;
    let error = account.invoke(None, Waker::Event, &Life::unending()).await.unwrap_err();
    assert_eq!(error.kind(), "Slipway.cloudformation.Denied");
    let report = account.status().rollout.unwrap();
    assert_eq!(report.state.as_str(), "stuck");
    assert!(report.message.contains("Slipway.cloudformation.Denied"), "{}", report.message);
    account.run(Delivery::TicksOnly).await;
    assert_eq!(account.stacks(), all("CREATE_COMPLETE"));
    assert_eq!(account.status().rollout.unwrap().state.as_str(), "succeeded");
}

#[tokio::test]
async fn a_hundred_pools_are_launched_ten_at_a_time() {
    let account = Account::new();
    let (head, rest) = PRODUCTION.split_once("  nodePools:\n").unwrap();
    let tail = &rest[rest.find("\nkubernetes:").unwrap()..];
    let pool = |n: u32| {
        format!("    - name: p{n}\n      instanceType: m7i.large\n      subnets: [{{name: private-a}}]\n")
    };
    let pools: String = (0..100).map(pool).collect();
    let outcome = account.render(format!("{head}  nodePools:\n{pools}{tail}")).await;
    assert!(matches!(outcome, RenderOutcome::Planned(_)), "{outcome:?}");
    account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
    account.run(Delivery::Everything).await;
    let report = account.status().rollout.unwrap();
    assert!(report.message.starts_with("103 of 103 stacks are as planned"), "{}", report.message);
    assert_eq!(account.calls("CreateChangeSet"), 103);
}

#[tokio::test]
async fn a_newer_spec_that_comes_during_the_launch_is_adopted_between_two_steps() {
    let account = Account::new();
    account.render(PRODUCTION).await;
    account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
    let RenderOutcome::Planned(plan) = account.render(bigger(PRODUCTION)).await else { panic!() };
    account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
    account.run(Delivery::Everything).await;
    // The old rollout stops at a boundary; the same wake starts the newer one.
    account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
    if account.rollout().unwrap().active().is_some() {
        account.run(Delivery::Everything).await;
    }
    assert_eq!(account.stacks(), all("CREATE_COMPLETE"));
    let rollout = account.rollout().unwrap();
    assert!(rollout.deployed.values().all(|release| release == &plan.to), "{rollout:?}");
}

#[tokio::test]
async fn p3_a_manual_plan_moves_nothing_until_it_is_approved() {
    let account = Account::new();
    let spec = PRODUCTION.replacen("approval: auto", "approval: manual", 1);
    let RenderOutcome::Planned(plan) = account.render(spec).await else { panic!() };
    let report = account.invoke(None, Waker::Event, &Life::unending()).await.unwrap().unwrap();
    assert_eq!(report.state.as_str(), "waiting-for-approval");
    account.invoke(None, approves("some-other-plan".to_owned()), &Life::unending()).await.unwrap();
    assert!(account.stacks().is_empty());
    account.invoke(None, approves(plan.id.clone()), &Life::unending()).await.unwrap();
    account.run(Delivery::Everything).await;
    assert_eq!(account.stacks(), all("CREATE_COMPLETE"));
}
