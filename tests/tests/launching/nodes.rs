//! Refreshing and replacing nodes: the real flows with the simulated world. A check that does not know `decide` observes the world after
//! every event.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use slipway_credentials::renewal::RenewalRequest;
use slipway_flows::rollout::{Clock, RolloutPorts};
use slipway_flows::scan::ScanOutcome;
use slipway_plan::{NodeAction, Plan};
use slipway_sim::ports::{SimulatedCommands, SimulatedStacks};
use slipway_sim::{FleetFaults, MachineFacts};

use super::*;

fn refreshing() -> String {
    PRODUCTION.replacen("strategy: rollout", "strategy: refresh", 1)
}

fn bigger_members() -> String {
    PRODUCTION.replacen(
        "etcd:\n  count: 3\n  instanceType: m7i.large",
        "etcd:\n  count: 3\n  instanceType: m7i.xlarge",
        1,
    )
}

/// What must hold at every moment, judged only by the world.
pub(super) struct Watch {
    /// How many API servers must serve.
    pub(super) serve: usize,
    pub(super) leaving: BTreeSet<String>,
    pub(super) known: BTreeMap<String, MachineFacts>,
    /// Members whose machine was terminated, in order.
    pub(super) taken: Vec<String>,
    /// The pools of the workers that were terminated, in order.
    pub(super) workers: Vec<String>,
    /// For each pool, the smallest number of schedulable workers and the largest number of machines since the beginning.
    pub(super) served: BTreeMap<String, (usize, usize)>,
    /// The largest number of cordoned workers at a time.
    pub(super) drained_at_once: usize,
    /// Auto Scaling itself terminates workers: they are drained in their hooks, and not before.
    pub(super) told_by_others: bool,
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            serve: 2,
            leaving: BTreeSet::new(),
            known: BTreeMap::new(),
            taken: Vec::new(),
            workers: Vec::new(),
            served: BTreeMap::new(),
            drained_at_once: 0,
            told_by_others: false,
        }
    }
}

impl Watch {
    pub(super) fn observe(&mut self, world: &World) {
        let Some(facts) = world.cluster_facts(NAME) else { return };
        let now = world.now();
        let up = facts.members.values().filter(|member| member.voter && member.up).count();
        assert!(up + 1 >= facts.members.len(), "P4 at {now}: {:?}", facts.members);
        assert!(facts.api_servers.len() >= self.serve, "P5 at {now}: only {:?} serve", facts.api_servers);
        assert!(facts.losses.is_empty(), "P6 at {now}: {:?}", facts.losses);
        self.drained_at_once = self.drained_at_once.max(facts.cordoned.len());
        let mut served: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for machine in world.machines().iter().filter(|one| one.role.starts_with("pool-")) {
            let takes = machine.ready && !machine.leaving && !facts.cordoned.contains(&machine.id);
            let count = served.entry(machine.role.clone()).or_default();
            *count = (count.0 + usize::from(takes), count.1 + usize::from(!machine.leaving));
        }
        for (role, (takes, has)) in served {
            let (fewest, most) = self.served.entry(role).or_insert((takes, has));
            (*fewest, *most) = ((*fewest).min(takes), (*most).max(has));
        }
        for machine in world.machines() {
            // A machine that never served does not count.
            let goes = machine.leaving && machine.ready && self.leaving.insert(machine.id.clone());
            if goes && machine.role.starts_with("etcd-") {
                let fresh =
                    facts.snapshots.iter().any(|at| now.duration_since(*at) <= SignedDuration::from_mins(15));
                assert!(fresh, "P4 at {now}: {} goes without a snapshot", machine.role);
                let others = facts.members.iter().filter(|(role, _)| **role != machine.role);
                assert!(
                    others.clone().all(|(_, member)| member.voter && member.up),
                    "P4 at {now}: {:?}",
                    facts.members
                );
                self.taken.push(machine.role.clone());
            }
            if goes && machine.role.starts_with("pool-") && !self.told_by_others {
                assert_eq!(
                    facts.pods.get(&machine.id).copied().unwrap_or_default(),
                    0,
                    "P6 at {now}: {}",
                    machine.id
                );
                self.workers.push(machine.role.clone());
            }
            self.known.insert(machine.id.clone(), machine);
        }
    }
}

impl Account {
    /// A cluster whose machines are all in service.
    pub(super) async fn up(text: &str) -> Self {
        Self::new().all_up(text).await
    }

    pub(super) async fn all_up(self, text: &str) -> Self {
        self.render(text).await;
        self.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
        self.run(Delivery::Everything).await;
        let mut world = lock(&self.world);
        let later = world.now() + SignedDuration::from_mins(30);
        world.advance(later);
        drop(world.drain());
        let machines = world.machines();
        assert!(machines.iter().all(|machine| machine.ready), "{machines:?}");
        drop(world);
        self
    }

    /// Issues every certificate again and plans the result.
    async fn renewed(&self, text: &str) -> Plan {
        let asked = RenewalRequest { everything: true, at: Some(self.now()), ..RenewalRequest::default() };
        let scanned = self.scan(&asked, &Life::unending(), self.now()).await.unwrap();
        let ScanOutcome::Scanned(scanned) = scanned else { panic!("{scanned}") };
        assert!(!scanned.renewed.is_empty(), "{scanned:?}");
        let RenderOutcome::Planned(plan) = self.render(text).await else { panic!("nothing is planned") };
        *plan
    }

    /// As [`Account::run`], with an observation after every event. Only the tick wakes the function.
    pub(super) async fn roll(&self, watch: &mut Watch, deadly: Option<u64>) -> Report {
        let mut wakes: u64 = 0;
        watch.observe(&lock(&self.world));
        self.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
        while self.rollout().unwrap().is_open() {
            let sent = {
                let mut world = lock(&self.world);
                let next = world.next_event_at().expect("there is at least the tick");
                world.advance(next);
                watch.observe(&world);
                world.drain()
            };
            for _ in sent.iter().filter(|outgoing| matches!(outgoing, Outgoing::Invoke { .. })) {
                wakes += 1;
                assert!(wakes < 3_000, "it never ends: {:?}", self.status().rollout);
                if let Some(seed) = deadly {
                    let random = (seed ^ wakes).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                    let _ = self.invoke(None, Waker::Tick, &Life::until(random % 30, random & 64 == 0)).await;
                }
                self.invoke(None, Waker::Tick, &Life::unending()).await.unwrap();
                watch.observe(&lock(&self.world));
            }
        }
        self.status().rollout.unwrap()
    }

    pub(super) fn machines(&self) -> BTreeMap<String, MachineFacts> {
        let machines = lock(&self.world).machines();
        machines.into_iter().map(|machine| (machine.id.clone(), machine)).collect()
    }

    fn published_waits(&self) -> Vec<String> {
        let events = self.bus.drain().into_iter();
        events
            .filter_map(|event| match event {
                slipway_core::event::Event::RolloutWaiting(report) => Some(report.message),
                _ => None,
            })
            .collect()
    }
}

/// The action for each role.
fn actions(plan: &Plan) -> BTreeMap<String, NodeAction> {
    plan.nodes.iter().map(|node| (node.role.to_string(), node.action)).collect()
}

/// P2, P7: every machine of etcd and every controller has the new credentials at the end; none is replaced, and no worker gets a command.
async fn refreshed(deadly: Option<u64>) {
    let account = Account::up(&refreshing()).await;
    let before = account.machines();
    let plan = account.renewed(&refreshing()).await;
    for (role, action) in actions(&plan) {
        let expected = if role.starts_with("pool-") { NodeAction::Untouched } else { NodeAction::Refresh };
        assert_eq!(action, expected, "{role}");
    }
    let report = account.roll(&mut Watch::default(), deadly).await;
    assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
    assert!(report.message.contains("refreshed: etcd-0, etcd-1, etcd-2, controller"), "{}", report.message);
    let (after, release) = (account.machines(), account.release(&plan.to).unwrap());
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>(), "nobody was replaced");
    for machine in after.values() {
        let role = machine.role.parse().unwrap();
        assert_eq!(machine.credentials, release.roles[&role].credentials_digest, "{}", machine.role);
    }
    assert_eq!(account.rollout().unwrap().earlier, BTreeMap::new());
    assert_eq!(account.render(refreshing()).await, RenderOutcome::Unchanged);
}

#[tokio::test]
async fn p2_p4_p5_p7_renewed_credentials_are_in_force_on_every_machine_of_etcd_and_control_plane() {
    refreshed(None).await;
}

#[tokio::test]
async fn p8_a_refresh_whose_every_invocation_dies_once_ends_the_same() {
    for seed in 0..4 {
        refreshed(Some(seed)).await;
    }
}

/// P2, P4: the machine of each member is replaced, one at a time, and no other.
async fn replaced(deadly: Option<u64>) {
    let account = Account::up(PRODUCTION).await;
    let before = account.machines();
    let RenderOutcome::Planned(plan) = account.render(bigger_members()).await else { panic!() };
    for (role, action) in actions(&plan) {
        let expected = if role.starts_with("etcd-") { NodeAction::Replace } else { NodeAction::Untouched };
        assert_eq!(action, expected, "{role}");
    }
    let mut watch = Watch::default();
    let report = account.roll(&mut watch, deadly).await;
    assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
    assert_eq!(watch.taken, ["etcd-0", "etcd-1", "etcd-2"], "each once, one after the other");
    for (id, machine) in account.machines() {
        assert_eq!(before.contains_key(&id), !machine.role.starts_with("etcd-"), "{}", machine.role);
    }
    let world = lock(&account.world);
    let facts = world.cluster_facts(NAME).unwrap();
    assert!(facts.members.values().all(|member| member.voter && member.up), "{facts:?}");
}

#[tokio::test]
async fn p2_p4_members_are_replaced_one_at_a_time_and_nobody_else_is_touched() {
    replaced(None).await;
}

#[tokio::test]
async fn p8_a_replacement_whose_every_invocation_dies_once_takes_no_member_twice() {
    for seed in 0..4 {
        replaced(Some(seed)).await;
    }
}

pub(super) fn bigger_controllers() -> String {
    PRODUCTION.replacen(
        "controller:\n  count: 3\n  instanceType: m7i.large",
        "controller:\n  count: 3\n  instanceType: m7i.xlarge",
        1,
    )
}

/// P2, P5: each controller gets a successor before it is terminated, and no other machine is replaced.
async fn controllers_replaced(deadly: Option<u64>) {
    let account = Account::up(PRODUCTION).await;
    let before = account.machines();
    let RenderOutcome::Planned(plan) = account.render(bigger_controllers()).await else { panic!() };
    for (role, action) in actions(&plan) {
        let expected = if role == "controller" { NodeAction::Replace } else { NodeAction::Untouched };
        assert_eq!(action, expected, "{role}");
    }
    let mut watch = Watch { serve: 3, ..Watch::default() };
    let report = account.roll(&mut watch, deadly).await;
    assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
    let after = account.machines();
    for (id, machine) in &after {
        assert_eq!(before.contains_key(id), machine.role != "controller", "{}", machine.role);
    }
    assert_eq!(after.values().filter(|machine| machine.role == "controller").count(), 3);
}

#[tokio::test]
async fn p2_p5_controllers_are_replaced_one_at_a_time_and_three_serve_throughout() {
    controllers_replaced(None).await;
}

#[tokio::test]
async fn p8_a_replacement_of_controllers_whose_every_invocation_dies_once_ends_the_same() {
    for seed in 0..4 {
        controllers_replaced(Some(seed)).await;
    }
}

#[tokio::test]
async fn p8_a_size_that_an_invocation_which_stood_still_would_set_late_is_not_set() {
    let account = Account::up(PRODUCTION).await;
    account.render(bigger_controllers()).await;
    let mut late = None;
    account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
    // The function dies after it has stored its decision, repeatedly, until the decision is a size.
    for _ in 0..200 {
        let _ = account.invoke(None, Waker::Tick, &Life::until_change(1)).await;
        let outbox = account.rollout().unwrap().outbox.clone();
        late =
            outbox.into_iter().find(|one| matches!(one.effect, slipway_rollout::Effect::SetDesired { .. }));
        if late.is_some() {
            break;
        }
        account.later(SignedDuration::from_secs(50));
        account.invoke(None, Waker::Tick, &Life::unending()).await.unwrap();
        account.later(SignedDuration::from_secs(10));
    }
    let late = late.expect("one more controller is asked for");
    let report = account.roll(&mut Watch { serve: 3, ..Watch::default() }, None).await;
    assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);

    // The retry finds that the effect was performed.
    let done = account.calls("SetDesiredCapacity");
    let stacks = SimulatedStacks::new(Arc::clone(&account.world), account.assets.clone());
    let groups = SimulatedGroups::new(Arc::clone(&account.world));
    let commands = SimulatedCommands::new(Arc::clone(&account.world));
    let ticks = SimulatedTicks::new(Arc::clone(&account.world), FUNCTION);
    let clock = || lock(&account.world).now();
    let ports = RolloutPorts {
        assets: &account.assets,
        stacks: &stacks,
        groups: &groups,
        commands: &commands,
        bus: &account.bus,
        ticks: &ticks,
        clock: Clock(&clock),
    };
    let outcome = slipway_flows::rollout::attempt(&ports, NAME, &late).await.unwrap();
    assert_eq!(outcome, slipway_rollout::EffectOutcome::Dropped);
    assert_eq!(account.calls("SetDesiredCapacity"), done);
}

fn other_workers() -> String {
    let pool = |zone: &str, kind: &str| {
        format!("instanceType: {kind}\n      subnets:\n        - name: private-{zone}")
    };
    let text = PRODUCTION.replacen(&pool("a", "m7i.xlarge"), &pool("a", "m7i.2xlarge"), 1);
    text.replacen(&pool("b", "m7i.xlarge"), &pool("b", "m7i.2xlarge"), 1)
}

/// P2, P6: each worker of the two pools is terminated after its pods were evicted, one pool after the other.
async fn workers_replaced(deadly: Option<u64>) {
    let account = Account::up(PRODUCTION).await;
    let before = account.machines();
    let RenderOutcome::Planned(plan) = account.render(other_workers()).await else { panic!() };
    let rolled = |role: &str| ["pool-general-a", "pool-general-b"].contains(&role);
    for (role, action) in actions(&plan) {
        let expected = if rolled(&role) { NodeAction::Replace } else { NodeAction::Untouched };
        assert_eq!(action, expected, "{role}");
    }
    let mut watch = Watch { serve: 3, ..Watch::default() };
    let report = account.roll(&mut watch, deadly).await;
    assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
    assert_eq!(watch.workers, ["pool-general-a", "pool-general-a", "pool-general-b", "pool-general-b"]);
    for (id, machine) in account.machines() {
        assert_eq!(before.contains_key(&id), !rolled(&machine.role), "{}", machine.role);
    }
}

#[tokio::test]
async fn p2_p6_workers_are_drained_and_replaced_pool_after_pool() {
    workers_replaced(None).await;
}

#[tokio::test]
async fn p8_a_replacement_of_workers_whose_every_invocation_dies_once_ends_the_same() {
    for seed in 0..4 {
        workers_replaced(Some(seed)).await;
    }
}

#[tokio::test]
async fn p6_p10_a_worker_whose_pods_no_budget_lets_go_is_kept_and_ends_the_rollout_with_the_reason() {
    let account = Account::new();
    let faults = FleetFaults { stubborn_budget: 1.0, ..FleetFaults::default() };
    lock(&account.world).set_fleet_faults(faults);
    let account = account.all_up(PRODUCTION).await;
    let before = account.machines();
    account.render(other_workers()).await;
    let mut watch = Watch { serve: 3, ..Watch::default() };
    let report = account.roll(&mut watch, None).await;
    assert_eq!(report.state.as_str(), "failed", "{}", report.message);
    assert!(report.message.contains("could not be drained within 24 hours: "), "{}", report.message);
    // One additional machine of the new release came first, and stays for the next rollout.
    let mut after = account.machines();
    after.retain(|id, _| !before.contains_key(id));
    assert_eq!(account.machines().len(), before.len() + 1, "nobody went");
    assert_eq!(after.values().map(|one| one.role.as_str()).collect::<Vec<_>>(), ["pool-general-a"]);
    let mut world = lock(&account.world);
    let later = world.now() + SignedDuration::from_mins(20);
    world.advance(later);
    assert_eq!(world.cluster_facts(NAME).unwrap().cordoned, Vec::<String>::new(), "the node is uncordoned");
}

#[tokio::test]
async fn p8_commands_that_fail_hang_come_twice_or_are_in_no_list_delay_a_roll_and_do_not_break_it() {
    let faults = FleetFaults {
        command_fails: 0.05,
        command_doubled: 0.2,
        command_unlisted: 0.3,
        slow_boot: 0.3,
        ..FleetFaults::default()
    };
    for text in [bigger_members(), refreshing()] {
        let account =
            Account::up(&if text == refreshing() { refreshing() } else { PRODUCTION.to_owned() }).await;
        if text == refreshing() {
            account.renewed(&text).await;
        } else {
            account.render(text).await;
        }
        lock(&account.world).set_fleet_faults(faults);
        let report = account.roll(&mut Watch::default(), Some(7)).await;
        assert!(["succeeded", "failed"].contains(&report.state.as_str()), "{report:?}");
        assert_eq!(
            report.state.as_str() == "succeeded",
            account.rollout().unwrap().earlier.is_empty(),
            "{report:?}"
        );
    }
}

#[tokio::test]
async fn p7_p10_a_node_that_takes_no_credentials_ends_the_rollout_by_name_and_the_next_upload_goes_on_with_the_rest()
 {
    let account = Account::up(&refreshing()).await;
    let plan = account.renewed(&refreshing()).await;
    let broken = FleetFaults { command_fails: 1.0, ..FleetFaults::default() };
    lock(&account.world).set_fleet_faults(broken);
    let report = account.roll(&mut Watch::default(), None).await;
    assert_eq!(report.state.as_str(), "failed");
    assert!(report.message.starts_with("etcd-0: a snapshot before i-"), "{}", report.message);
    assert!(
        report.message.contains("failed 3 times: the machine is too busy to answer"),
        "{}",
        report.message
    );
    let behind: Vec<String> = account.rollout().unwrap().earlier.keys().map(ToString::to_string).collect();
    assert_eq!(behind, ["etcd-0", "etcd-1", "etcd-2"], "the control plane's stack was not reached");

    // Nothing is forgotten: the same spec does not count as done.
    lock(&account.world).set_fleet_faults(FleetFaults::default());
    let RenderOutcome::Planned(again) = account.render(refreshing()).await else {
        panic!("it was forgotten")
    };
    assert_eq!(again.to, plan.to);
    assert_eq!(actions(&again)["etcd-0"], NodeAction::Refresh);
    let report = account.roll(&mut Watch::default(), None).await;
    assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
    let release = account.release(&plan.to).unwrap();
    for machine in account.machines().values() {
        let role = machine.role.parse().unwrap();
        assert_eq!(machine.credentials, release.roles[&role].credentials_digest, "{}", machine.role);
    }
}

#[tokio::test]
async fn p4_p10_a_member_that_does_not_come_back_ends_the_rollout_and_the_others_are_left() {
    let account = Account::up(PRODUCTION).await;
    account.render(bigger_members()).await;
    let dead = FleetFaults { dead_boot: 1.0, ..FleetFaults::default() };
    lock(&account.world).set_fleet_faults(dead);
    let mut watch = Watch::default();
    let report = account.roll(&mut watch, None).await;
    assert_eq!(report.state.as_str(), "failed");
    assert_eq!(watch.taken.iter().collect::<BTreeSet<_>>().len(), 1, "{:?}", watch.taken);
    assert!(
        report.message.starts_with("etcd-0: its machine had no successor within 60 minutes: i-"),
        "{}",
        report.message
    );
    let said = account.published_waits();
    let mut distinct = said.clone();
    distinct.dedup();
    assert_eq!(said, distinct, "each reason is published once");
    assert!(said.len() < 20, "{said:?}");
}

#[tokio::test]
async fn p10_nothing_is_asked_of_any_machine_after_a_pause_and_a_resume_goes_on() {
    let account = Account::up(&refreshing()).await;
    account.renewed(&refreshing()).await;
    account.invoke(None, Waker::Event, &Life::unending()).await.unwrap();
    let asked = |account: &Account| account.calls("SendCommand");
    let advance = |minutes: i64| {
        let mut world = lock(&account.world);
        let later: Timestamp = world.now() + SignedDuration::from_mins(minutes);
        world.advance(later);
    };
    while asked(&account) < 4 {
        advance(1);
        account.invoke(None, Waker::Tick, &Life::unending()).await.unwrap();
    }
    let order = |order| Waker::Order { order, at: None };
    account.invoke(None, order(slipway_rollout::Order::Pause), &Life::unending()).await.unwrap();
    let before = asked(&account);
    for _ in 0..90 {
        advance(1);
        account.invoke(None, Waker::Tick, &Life::unending()).await.unwrap();
    }
    assert_eq!((asked(&account), account.status().rollout.unwrap().state.as_str()), (before, "paused"));
    account.invoke(None, order(slipway_rollout::Order::Resume), &Life::unending()).await.unwrap();
    let report = account.roll(&mut Watch::default(), None).await;
    assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
}
