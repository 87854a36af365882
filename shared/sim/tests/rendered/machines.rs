//! The machines of Slipway's templates: they boot, answer commands, are terminated, and are replaced.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use slipway_core::drain::Cause;
use slipway_core::node::answer::VerbAnswer;
use slipway_core::node::{
    Command, CommandView, Drained, EtcdHealth, FailureCode, HowUnanswered, LeaderMoved, NodeStatus,
    Refreshed, SnapshotTaken, Uncordoned, Verb,
};
use slipway_core::role::Role;
use slipway_flows::ports::{Commands as _, Groups as _};
use slipway_ports::ErrorKind;
use slipway_rollout::fleet::{GroupView, Lifecycle, TargetState};
use slipway_sim::ports::{SimulatedCommands, SimulatedGroups, lock};
use slipway_sim::{ClusterFacts, Fate, FleetFaults, MachineFacts, Power};

use super::PRODUCTION;
use super::account::{Account, rendering};

struct Fleet {
    account: Account,
    groups: SimulatedGroups,
    commands: SimulatedCommands,
}

impl Fleet {
    /// The production example, an hour after its launch.
    async fn up() -> Self {
        Self::up_with(|_| {}).await
    }

    async fn up_with(before: impl FnOnce(&mut slipway_sim::World)) -> Self {
        let account = Account::new("eu-west-1");
        before(&mut lock(&account.world));
        for stack in &rendering(&super::cluster(PRODUCTION)).stacks {
            account.stacks.bring(stack).await;
        }
        let groups = SimulatedGroups::new(Arc::clone(&account.world));
        let commands = SimulatedCommands::new(Arc::clone(&account.world));
        let fleet = Self { account, groups, commands };
        fleet.pass(3_600);
        fleet
    }

    fn pass(&self, seconds: i64) {
        let mut world = lock(&self.account.world);
        let to = world.now() + SignedDuration::from_secs(seconds);
        world.advance(to);
    }

    fn now(&self) -> Timestamp {
        lock(&self.account.world).now()
    }

    fn facts(&self) -> ClusterFacts {
        lock(&self.account.world).cluster_facts("production").unwrap()
    }

    fn machines(&self) -> Vec<MachineFacts> {
        lock(&self.account.world).machines()
    }

    fn of_role(&self, role: &str) -> Vec<MachineFacts> {
        self.machines().into_iter().filter(|machine| machine.role == role).collect()
    }

    async fn group(&self, name: &str) -> GroupView {
        self.groups.group(name).await.unwrap().unwrap()
    }

    /// The result of `verb` within `seconds`.
    async fn ask(&self, instance: &str, verb: Verb, seconds: i64) -> CommandView {
        let token = format!("test/{}", self.now());
        let command = Command { token, instance: instance.to_owned(), verb };
        self.commands.send(&command).await.unwrap();
        let end = self.now() + SignedDuration::from_secs(seconds);
        loop {
            let view = self.commands.answer(&command).await.unwrap().unwrap();
            if view.is_over() || self.now() >= end {
                return view;
            }
            self.pass(1);
        }
    }

    async fn answer<T: VerbAnswer>(&self, instance: &str, verb: Verb) -> T {
        let view = self.ask(instance, verb, 600).await;
        let CommandView::Answered(answer) = view else { panic!("{view:?}") };
        T::from_answer(&answer).unwrap()
    }

    fn story(&self) -> Vec<(Timestamp, String)> {
        lock(&self.account.world).story()
    }
}

fn drain(node: &str) -> Verb {
    Verb::Drain { node: node.to_owned(), for_s: 3_000, force_after_s: None }
}

#[tokio::test]
async fn a_cluster_comes_up_with_a_quorum_api_servers_and_pods_and_the_same_way_each_time() {
    let fleet = Fleet::up().await;
    let facts = fleet.facts();
    assert_eq!(facts.members.keys().collect::<Vec<_>>(), ["etcd-0", "etcd-1", "etcd-2"]);
    assert!(facts.members.values().all(|member| member.voter && member.up), "{facts:?}");
    assert!(facts.members.contains_key(facts.leader.as_deref().unwrap()));
    assert_eq!(facts.api_servers.len(), 3);
    assert!(facts.pods.len() > 3 && !facts.pods.contains_key(""), "{:?}", facts.pods);
    assert_eq!(facts.losses, []);
    for machine in fleet.machines() {
        assert!(machine.ready && !machine.leaving && machine.power == Power::Up, "{machine:?}");
    }
    let control = fleet.group("production-control-plane").await;
    assert_eq!((control.desired, control.machines.len()), (3, 3));
    assert_eq!(control.tags["slipway:cluster"], "production");
    assert!(control.machines.values().all(|machine| machine.template == control.template));
    let zones: std::collections::BTreeSet<&str> =
        control.machines.values().map(|machine| machine.zone.as_str()).collect();
    assert_eq!(zones.len(), 3, "one in each zone");

    let story = fleet.story();
    assert!(story.len() > 20);
    assert_eq!(Fleet::up().await.story(), story, "the same seed gives the same story");
}

#[tokio::test]
async fn p4_a_member_comes_back_with_its_volume_and_its_fellows_keep_the_quorum() {
    let fleet = Fleet::up().await;
    let old = fleet.of_role("etcd-1").remove(0);
    fleet.groups.terminate("production-etcd-1", &old.id, None).await.unwrap();
    fleet.groups.terminate("production-etcd-1", &old.id, None).await.unwrap();
    fleet.pass(2);
    assert!(fleet.facts().members["etcd-1"].up, "its agent has not yet noticed the termination");
    fleet.pass(15);
    assert!(!fleet.facts().members["etcd-1"].up, "its agent has stopped etcd, so that its volume is free");
    // Its agent has completed its hook; completing a hook that does not wait is no error.
    fleet.groups.complete_termination("production-etcd-1", &old.id).await.unwrap();
    fleet.groups.complete_termination("production-etcd-1", &old.id).await.unwrap();
    for _ in 0..400 {
        fleet.pass(1);
        let facts = fleet.facts();
        assert!(facts.leader.is_some() && facts.members.values().filter(|one| one.up).count() >= 2);
    }
    let new = fleet.of_role("etcd-1").remove(0);
    assert!(new.ready && new.id != old.id);
    assert_eq!(fleet.facts().members["etcd-1"].machine.as_ref(), Some(&new.id));
    let health: EtcdHealth = fleet.answer(&new.id, Verb::EtcdHealth).await;
    assert!(health.healthy && !health.learner && health.raft_lag == Some(0), "{health:?}");
    assert_eq!(health.members.len(), 3);
}

#[tokio::test]
async fn a_member_that_leads_hands_over_and_a_cluster_without_a_majority_says_so() {
    let fleet = Fleet::up().await;
    let leader = fleet.facts().leader.unwrap();
    let machine = fleet.of_role(&leader).remove(0);
    let moved: LeaderMoved = fleet.answer(&machine.id, Verb::EtcdMoveLeader).await;
    assert!(moved.moved);
    assert_ne!(fleet.facts().leader.unwrap(), leader);
    assert!(!fleet.answer::<LeaderMoved>(&machine.id, Verb::EtcdMoveLeader).await.moved);
    let taken: SnapshotTaken = fleet.answer(&machine.id, Verb::EtcdSnapshot).await;
    assert!(taken.revision > 0);
    assert_eq!(fleet.facts().snapshots.len(), 1);

    let others =
        fleet.machines().into_iter().filter(|one| one.role.starts_with("etcd-") && one.id != machine.id);
    for other in others.collect::<Vec<_>>() {
        lock(&fleet.account.world).kill_machine(&other.id);
    }
    assert_eq!((fleet.facts().leader, fleet.facts().api_servers), (None, vec![]));
    let health: EtcdHealth = fleet.answer(&machine.id, Verb::EtcdHealth).await;
    assert!(!health.healthy && !health.serving && health.leader.is_none(), "{health:?}");
    let view = fleet.ask(&machine.id, Verb::EtcdSnapshot, 600).await;
    assert!(view.failed_with(FailureCode::EtcdNoLeader), "{view:?}");
    // Their groups replace them, with the same volumes.
    fleet.pass(1_800);
    assert!(fleet.facts().members.values().all(|member| member.up));
}

#[tokio::test]
async fn p6_a_drained_worker_goes_without_a_loss_and_one_that_nobody_drained_is_kept() {
    let fleet = Fleet::up().await;
    let controller = fleet.of_role("controller").remove(0);
    let workers = fleet.of_role("pool-general-a");
    let (drained, left) = (workers[0].id.clone(), workers[1].id.clone());
    fleet.groups.raise_desired("production-pool-general-a", 3).await.unwrap();
    fleet.pass(400);
    let before = fleet.facts().pods[&drained];
    assert!(before > 0);
    let answer: Drained = fleet.answer(&controller.id, drain(&drained)).await;
    assert_eq!((answer.done, &answer.node, answer.evicted.count), (true, &drained, before));
    let facts = fleet.facts();
    assert_eq!((facts.pods.get(&drained), facts.cordoned.as_slice()), (None, &[drained.clone()][..]));

    fleet.groups.terminate("production-pool-general-a", &drained, Some(0)).await.unwrap();
    fleet.groups.complete_termination("production-pool-general-a", &drained).await.unwrap();
    fleet.pass(120);
    assert_eq!(fleet.facts().losses, []);
    assert!(!fleet.machines().iter().any(|machine| machine.id == drained));

    fleet.groups.terminate("production-pool-general-a", &left, None).await.unwrap();
    fleet.pass(1_700);
    fleet.groups.prolong_termination("production-pool-general-a", &left).await.unwrap();
    fleet.pass(1_700);
    assert!(!fleet.machines().iter().any(|machine| machine.retained), "a heartbeat extends its hook");
    fleet.pass(200);
    let kept = fleet.machines().into_iter().find(|machine| machine.id == left).unwrap();
    assert!(kept.retained && kept.power == Power::Up);
    assert_eq!(fleet.facts().losses, []);
    let group = fleet.group("production-pool-general-a").await;
    assert_eq!((group.desired, group.machines[&left].lifecycle), (2, Lifecycle::Retained));
    let in_service = group.machines.values().filter(|one| one.lifecycle == Lifecycle::InService);
    assert_eq!(in_service.count(), 2, "it was replaced");
}

#[tokio::test]
async fn p6_a_budget_that_never_allows_keeps_a_drain_waiting_in_words_and_a_dead_worker_is_a_loss() {
    let faults = FleetFaults { stubborn_budget: 1.0, ..FleetFaults::default() };
    let fleet = Fleet::up_with(|world| world.set_fleet_faults(faults)).await;
    let controller = fleet.of_role("controller").remove(0);
    let worker = fleet.of_role("pool-general-a").remove(0);
    let verb = Verb::Drain { node: worker.id.clone(), for_s: 300, force_after_s: None };
    let answer: Drained = fleet.answer(&controller.id, verb).await;
    assert!(!answer.done);
    assert_eq!(answer.waiting[0].cause, Cause::Budget.into());
    assert!(answer.waiting[0].why.contains("rollout.drain.forceAfterMinutes"));
    let uncordon = Verb::Uncordon { node: worker.id.clone() };
    assert!(!fleet.answer::<Uncordoned>(&controller.id, uncordon).await.cordoned);
    lock(&fleet.account.world).kill_machine(&worker.id);
    let facts = fleet.facts();
    assert_eq!((facts.losses.len(), facts.losses[0].terminated), (1, false));
    fleet.pass(2_400);
    assert_eq!(fleet.of_role("pool-general-a").iter().filter(|one| one.ready).count(), 2);
}

#[tokio::test]
async fn machines_that_never_come_up_or_give_up_are_replaced_and_only_then() {
    let fates = |world: &mut slipway_sim::World| {
        world.set_fate("production-control-plane", [Fate::Dead, Fate::GivesUp, Fate::Boots(3.0)]);
    };
    let fleet = Fleet::up_with(fates).await;
    let story: Vec<String> = fleet.story().into_iter().map(|(_, line)| line).collect();
    let count = |part: &str| story.iter().filter(|line| line.contains(part)).count();
    assert_eq!(count("production-control-plane launches"), 5, "{story:#?}");
    assert_eq!(count("is given up before it served"), 2);
    assert_eq!(count("nobody speaks for"), 1);
    assert_eq!(fleet.facts().api_servers.len(), 3);
}

#[tokio::test]
async fn p2_a_new_launch_template_reaches_new_machines_alone() {
    let fleet = Fleet::up().await;
    let mut next = rendering(&super::cluster(PRODUCTION));
    let digest = next.roles[&Role::Controller].config_digest.clone();
    let stack = next.stacks.iter_mut().find(|stack| stack.name == "production-control-plane").unwrap();
    stack.body = stack.body.replace(&digest, &"a".repeat(64));
    fleet.account.stacks.bring(stack).await;
    let group = fleet.group("production-control-plane").await;
    assert_eq!(group.template.as_ref().unwrap().version, "2");
    assert!(group.machines.values().all(|machine| machine.template.as_ref().unwrap().version == "1"));
    let old = fleet.of_role("controller").remove(0);
    fleet.groups.terminate("production-control-plane", &old.id, None).await.unwrap();
    fleet.groups.complete_termination("production-control-plane", &old.id).await.unwrap();
    fleet.pass(900);
    let new: Vec<MachineFacts> =
        fleet.of_role("controller").into_iter().filter(|one| one.config == "a".repeat(64)).collect();
    assert_eq!(new.len(), 1);
    assert_eq!(new[0].template, group.template);
    let status: NodeStatus = fleet.answer(&new[0].id, Verb::Status).await;
    assert_eq!((status.healthy, status.applied.config), (true, Some("a".repeat(64))));
}

#[tokio::test]
async fn p8_a_command_is_sent_once_and_what_a_machine_does_not_answer_ends_at_its_time() {
    let fleet = Fleet::up().await;
    let worker = fleet.of_role("pool-general-a").remove(0);
    let refresh = |digest: &str| Verb::Refresh { credentials: digest.repeat(64), restart: false };
    let answer: Refreshed = fleet.answer(&worker.id, refresh("b")).await;
    assert_eq!((answer.changed, answer.credentials), (true, "b".repeat(64)));
    assert!(!fleet.answer::<Refreshed>(&worker.id, refresh("b")).await.changed);
    let status: NodeStatus = fleet.answer(&worker.id, Verb::Status).await;
    assert_eq!(status.applied.credentials, Some("b".repeat(64)));

    let command =
        |instance: &str, verb: Verb| Command { token: "t".to_owned(), instance: instance.to_owned(), verb };
    let health = command(&worker.id, Verb::EtcdHealth);
    fleet.commands.send(&health).await.unwrap();
    fleet.commands.send(&health).await.unwrap();
    assert_eq!(lock(&fleet.account.world).calls()["SendCommand"], 4);
    fleet.pass(10);
    let view = fleet.commands.answer(&health).await.unwrap().unwrap();
    assert!(view.failed_with(FailureCode::EtcdNotAMember), "{view:?}");
    let error = fleet.commands.send(&command("i-0123", Verb::Status)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");

    let controller = fleet.of_role("controller").remove(0);
    let draining = command(&controller.id, drain(&worker.id));
    fleet.commands.send(&draining).await.unwrap();
    fleet.pass(5);
    lock(&fleet.account.world).kill_machine(&controller.id);
    fleet.pass(60);
    assert_eq!(fleet.commands.answer(&draining).await.unwrap(), Some(CommandView::InProgress));
    fleet.pass(172_800);
    let how = async |command: &Command| match fleet.commands.answer(command).await.unwrap() {
        Some(CommandView::Unanswered(lost)) => lost.how,
        other => panic!("{other:?}"),
    };
    assert_eq!(how(&draining).await, HowUnanswered::TimedOut);

    let late = command(&worker.id, Verb::Status);
    fleet.commands.send(&late).await.unwrap();
    lock(&fleet.account.world).kill_machine(&worker.id);
    fleet.pass(121);
    assert_eq!(how(&late).await, HowUnanswered::Undelivered);
}

/// The API's target group is checked every 10 s, and a target is healthy after two successful checks (`render/endpoints.rs`).
#[tokio::test]
async fn p5_a_controller_is_a_healthy_target_only_some_health_checks_after_it_is_in_service() {
    let fleet = Fleet::up().await;
    let controllers: Vec<String> = fleet.of_role("controller").into_iter().map(|one| one.id).collect();
    let name = "production-control-plane";
    let group = fleet.group(name).await;
    let [arn] = &group.target_groups.iter().collect::<Vec<_>>()[..] else { panic!("{group:?}") };
    let targets = async || fleet.groups.targets(arn).await.unwrap().unwrap();
    assert_eq!(targets().await.into_keys().collect::<Vec<_>>(), controllers);
    assert_eq!(fleet.facts().targets, controllers);
    let workers = fleet.group("production-pool-general-a").await;
    assert!(workers.target_groups.is_empty(), "{workers:?}");
    assert_eq!(fleet.groups.targets(&arn.replace("targetgroup/", "targetgroup/x")).await.unwrap(), None);

    // A successor is registered when it is in service, is checked, and then healthy.
    fleet.groups.terminate(name, &controllers[0], None).await.unwrap();
    let (mut served_at, mut seen) = (None, Vec::new());
    let healthy_at = loop {
        fleet.pass(1);
        let new = fleet.of_role("controller").into_iter().find(|one| !controllers.contains(&one.id));
        let Some(new) = new else { continue };
        let state = targets().await.get(&new.id).cloned();
        assert_eq!(new.serves, state.is_some(), "{state:?}");
        assert_eq!(fleet.facts().targets.contains(&new.id), state == Some(TargetState::Healthy));
        if let Some(state) = state {
            served_at = served_at.or(Some(fleet.now()));
            if seen.last() != Some(&state) {
                seen.push(state.clone());
            }
            if state == TargetState::Healthy {
                break fleet.now();
            }
        }
    };
    let initial = |why: &str| TargetState::NotHealthy(format!("initial ({why})"));
    let states =
        [initial("Elb.RegistrationInProgress"), initial("Elb.InitialHealthChecking"), TargetState::Healthy];
    assert_eq!(seen, states);
    let took = healthy_at.duration_since(served_at.unwrap()).as_secs();
    assert!((20..=90).contains(&took), "{took} s");
    let state = targets().await.remove(&controllers[0]);
    assert!(state.is_none_or(|state| state != TargetState::Healthy), "the old one is gone, or drains");

    // A silent machine becomes unhealthy, and has to pass its checks again.
    lock(&fleet.account.world).hang_machine(&controllers[1], SignedDuration::from_secs(60), None);
    fleet.pass(8);
    assert_eq!(
        targets().await[&controllers[1]],
        TargetState::Healthy,
        "a single failed check does not count"
    );
    fleet.pass(12);
    let unhealthy = TargetState::NotHealthy("unhealthy (Target.FailedHealthChecks)".to_owned());
    assert_eq!(targets().await[&controllers[1]], unhealthy);
    fleet.pass(50);
    assert_eq!(targets().await[&controllers[1]], unhealthy);
    fleet.pass(15);
    assert_eq!(targets().await[&controllers[1]], TargetState::Healthy);
}
