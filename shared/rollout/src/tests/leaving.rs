//! Members of etcd that join after a snapshot, and members that are removed: each is removed from the membership before the update of
//! etcd's stack deletes its group.

use slipway_core::node::{
    Answer, Command, CommandView, EtcdHealth, EtcdMemberHealth, FailureCode, HowUnanswered, MachineArns,
    MemberRemoved, Unanswered, Verb, VerbFailure,
};

use super::evidence::LastAsks;
use super::*;
use crate::fleet::{GroupView, Lifecycle, MachineView, TargetHealth};

/// An etcd that executes commands and reports its health.
struct Store {
    fake: Fake,
    members: BTreeSet<String>,
    /// The commands in order.
    log: Vec<String>,
    answers: BTreeMap<String, CommandView>,
    /// The number of commands whose answer is lost although they were executed.
    mute: usize,
    /// The number of next snapshots that fail.
    failing: usize,
    /// The number of next executions of a change set that come too late and are dropped.
    late: usize,
    asks: LastAsks,
}

impl Store {
    fn health(&self, name: &str) -> EtcdHealth {
        let member = |name: &String| EtcdMemberHealth {
            name: name.clone(),
            reachable: true,
            raft_lag: Some(0),
            ..EtcdMemberHealth::default()
        };
        EtcdHealth {
            format: EtcdHealth::FORMAT,
            name: name.to_owned(),
            healthy: true,
            serving: self.members.contains(name),
            leads: name == "etcd-0",
            cluster_id: Some("c".to_owned()),
            raft_lag: self.members.contains(name).then_some(0),
            // A removed member has stopped.
            members: self.members.iter().filter(|_| self.members.contains(name)).map(member).collect(),
            ..EtcdHealth::default()
        }
    }

    fn run_command(&mut self, command: &Command) {
        let name = command.instance.trim_start_matches("i-").to_owned();
        let answer: Answer = match &command.verb {
            Verb::EtcdHealth => self.health(&name).into(),
            Verb::EtcdRemove { member } => {
                assert!(self.members.contains(&name) && name != *member, "{name} cannot remove {member}");
                self.log.push(format!("{name} removes {member}"));
                self.members.remove(member);
                if self.mute > 0 {
                    self.mute -= 1;
                    let lost = Unanswered { how: HowUnanswered::TimedOut, problem: None };
                    let view = CommandView::Unanswered(lost);
                    self.answers.insert(command.token.clone(), view);
                    return;
                }
                MemberRemoved { removed: true, id: None, members: self.members.len() }.into()
            }
            Verb::EtcdSnapshot => {
                self.log.push(format!("{name} {}", command.verb.document()));
                if self.failing > 0 {
                    self.failing -= 1;
                    let full = VerbFailure::transient(FailureCode::AwsDenied, "no room", "look");
                    self.answers.insert(command.token.clone(), CommandView::Failed(full));
                    return;
                }
                snapshot_taken("clusters/c/etcd-snapshots/t").into()
            }
            Verb::Serves { .. }
            | Verb::Status
            | Verb::Logs { .. }
            | Verb::Refresh { .. }
            | Verb::EtcdMoveLeader
            | Verb::EtcdRetire
            | Verb::EtcdRestore { .. }
            | Verb::EtcdDefragment
            | Verb::Drain { .. }
            | Verb::Uncordon { .. } => {
                panic!("{name} is asked {}", command.verb.document());
            }
        };
        self.answers.insert(command.token.clone(), CommandView::Answered(answer));
    }

    /// Wakes the rollout once, at that second.
    fn wake(
        &mut self,
        state: Rollout,
        wanted: &Wanted,
        order: Option<&Given>,
        second: i64,
    ) -> (Rollout, Report) {
        let now = Timestamp::from_second(second).unwrap();
        let state = match order {
            Some(order) => self.fake.after_order_performed(state, order, Some(wanted), now),
            None => state,
        };
        let look = to_observe(&state, Some(wanted), now);
        let mut observed = self.fake.observe(&look, Some(wanted));
        for group in &look.groups {
            let id = format!("i-etcd-{}", group.trim_start_matches("c-etcd-"));
            let machine = MachineView {
                zone: "a".to_owned(),
                lifecycle: Lifecycle::InService,
                healthy: true,
                template: None,
                target: TargetHealth::NotAsked,
                weight: 1,
            };
            let view = GroupView {
                name: group.clone(),
                desired: 1,
                min: 1,
                max: 1,
                template: None,
                machines: BTreeMap::from([(id, machine)]),
                tags: BTreeMap::new(),
                target_groups: BTreeSet::new(),
                launch_suspended: false,
                machine_arns: MachineArns::new("eu-west-1", "123456789012"),
            };
            observed.groups.insert(group.clone(), Some(view));
        }
        for command in &look.commands {
            observed.answers.insert(command.token.clone(), self.answers.get(&command.token).cloned());
        }
        let decision = decide(&state, &observed, now);
        self.asks.hold(&decision, false);
        let joins = |node: &slipway_plan::NodePlan| node.action == slipway_plan::NodeAction::Create;
        let joins = wanted.plan.nodes.iter().any(joins);
        for Pending { effect, evidence, .. } in decision.next.outbox.iter().filter(|_| joins) {
            if matches!(effect, Effect::ExecuteChangeSet { stack, .. } if stack == "c-etcd") {
                let counts = self.asks.snapshot.unwrap() + jiff::SignedDuration::from_mins(15);
                assert!(
                    evidence.unwrap().until <= counts,
                    "P4: members join after the snapshot has ceased to count"
                );
            }
        }
        let mut others = Vec::new();
        for effect in decision.effects {
            if let Effect::Send(command) = &effect {
                self.run_command(command);
            } else if matches!(&effect, Effect::ExecuteChangeSet { stack, .. } if stack == "c-etcd")
                && self.late > 0
            {
                self.late -= 1;
            } else {
                others.push(effect);
            }
        }
        let before = self.fake.log.len();
        self.fake.perform(&others);
        self.log.extend(
            self.fake.log[before..].iter().filter(|line| line.starts_with("execute c-etcd")).cloned(),
        );
        (Rollout { outbox: Vec::new(), ..decision.next }, decision.report)
    }
}

/// A cluster with one number of members, and a spec with another.
fn resized(from: u32, to: u32) -> (Store, Rollout, Wanted) {
    let (before, after) = (with_members(1, from, "a"), with_members(2, to, "a"));
    let mut fake = Fake::default();
    let (state, _) =
        fake.run(Rollout::new("c"), &wanted(&before, &Baseline::default(), Approval::Auto), None, false);
    let releases = BTreeMap::from([(before.id(), before.clone())]);
    let baseline = Baseline::assemble("c", &state.deployed, &BTreeMap::new(), &releases).unwrap();
    fake.log.clear();
    fake.change_sets.clear();
    let members = (0..from).map(|index| format!("etcd-{index}")).collect();
    let store = Store {
        fake,
        members,
        log: Vec::new(),
        answers: BTreeMap::new(),
        mute: 0,
        failing: 0,
        late: 0,
        asks: LastAsks::default(),
    };
    (store, state, wanted(&after, &baseline, Approval::Auto))
}

fn runs(store: &mut Store, mut state: Rollout, wanted: &Wanted) -> (Rollout, Report) {
    for wake in 0..60 {
        let (next, report) = store.wake(state, wanted, None, wake * 60);
        state = next;
        if state.active().is_none() {
            return (state, report);
        }
    }
    panic!("it never comes to rest: {:?}", store.log);
}

#[test]
fn p4_members_that_leave_are_taken_out_one_at_a_time_before_their_groups_go() {
    for (mute, log) in [
        (
            0,
            &[
                "etcd-0 Slipway-EtcdSnapshot",
                "etcd-0 removes etcd-4",
                "etcd-0 removes etcd-3",
                "execute c-etcd",
            ][..],
        ),
        // The membership shows what the lost answer would have said.
        (
            1,
            &[
                "etcd-0 Slipway-EtcdSnapshot",
                "etcd-0 removes etcd-4",
                "etcd-0 removes etcd-3",
                "execute c-etcd",
            ],
        ),
    ] {
        let (mut store, state, wanted) = resized(5, 3);
        store.mute = mute;
        let (state, report) = runs(&mut store, state, &wanted);
        assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
        assert_eq!(store.log, log);
        assert_eq!(state.removed_members, BTreeSet::new());
        assert!(report.message.contains("out of etcd's membership: etcd-4, etcd-3"), "{}", report.message);
        assert_eq!(store.asks.held, 2, "each was removed with fresh evidence");
    }
}

#[test]
fn p4_members_join_after_a_snapshot() {
    let (mut store, state, wanted) = resized(3, 5);
    let (state, report) = runs(&mut store, state, &wanted);
    assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
    assert_eq!(store.log, ["etcd-1 Slipway-EtcdSnapshot", "execute c-etcd"]);
    assert!(state.deployed.values().all(|release| release == &with_members(2, 5, "a").id()));
}

/// Members join when CloudFormation executes the change set, which may be hours after the snapshot: because of a pause, or of an outage of
/// CloudFormation.
#[test]
fn p4_a_snapshot_that_has_grown_old_before_members_join_is_taken_once_more() {
    let snapshot = "etcd-1 Slipway-EtcdSnapshot";
    for (minutes, snapshots) in [(10, 1), (60, 2)] {
        let (mut store, mut state, wanted) = resized(3, 5);
        let mut second = 0;
        while store.log.is_empty() || state.active().is_some_and(|active| active.nodes.snapshot_at.is_none())
        {
            (state, _) = store.wake(state, &wanted, None, second);
            second += 60;
        }
        let mut at = |minutes: i64| {
            second += 60 * minutes;
            Timestamp::from_second(second).unwrap()
        };
        let pause = Given { order: Order::Pause, at: at(1) };
        (state, _) = store.wake(state, &wanted, Some(&pause), pause.at.as_second());
        let resume = Given { order: Order::Resume, at: at(minutes) };
        (state, _) = store.wake(state, &wanted, Some(&resume), resume.at.as_second());
        for _ in 0..20 {
            (state, _) = store.wake(state, &wanted, None, at(1).as_second());
        }
        assert_eq!(store.late, 0, "{:?}", store.fake.log);
        assert_eq!(store.log, [&vec![snapshot; snapshots][..], &["execute c-etcd"]].concat(), "{minutes}");
        assert!(state.active().is_none());
    }
}

#[test]
fn p4_no_member_joins_without_a_snapshot_and_one_that_fails_three_times_ends_it_before_the_stack_is_touched()
{
    let snapshot = "etcd-1 Slipway-EtcdSnapshot";
    for (failing, ends) in [(2, "succeeded"), (3, "failed")] {
        let (mut store, state, wanted) = resized(3, 5);
        store.failing = failing;
        let (state, report) = runs(&mut store, state, &wanted);
        assert_eq!(report.state.as_str(), ends, "{failing}: {}", report.message);
        let executes = (failing < 3).then_some("execute c-etcd");
        assert_eq!(store.log, [&[snapshot; 3][..], executes.as_slice()].concat(), "{failing}");
        let stands = state.deployed["c-etcd"] == wanted.plan.to;
        assert_eq!(stands, failing < 3, "{:?}", state.deployed);
        let why = "a snapshot on i-etcd-1 failed 3 times: no room";
        assert_eq!(report.message.contains(why), failing == 3, "{}", report.message);
    }
}

/// The call to CloudFormation after the snapshot was dropped repeatedly, and the snapshot has become too old meanwhile.
#[test]
fn p4_no_member_joins_by_a_call_that_comes_later_than_its_snapshot_is_fresh() {
    let snapshot = "etcd-1 Slipway-EtcdSnapshot";
    for (late, snapshots) in [(5, 1), (20, 2)] {
        let (mut store, state, wanted) = resized(3, 5);
        store.late = late;
        let (_, report) = runs(&mut store, state, &wanted);
        assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
        assert_eq!(store.late, 0, "{:?}", store.fake.log);
        assert_eq!(store.log, [&vec![snapshot; snapshots][..], &["execute c-etcd"]].concat(), "{late}");
    }
}

#[test]
fn p4_a_member_that_may_be_out_already_is_wanted_again_only_after_its_group_is_gone() {
    let (mut store, state, wanted_three) = resized(5, 3);
    let (mut state, mut wake) = (state, 0);
    while store.log.last().is_none_or(|last| last != "etcd-0 removes etcd-4") {
        (state, _) = store.wake(state, &wanted_three, None, wake * 60);
        wake += 1;
    }
    // A newer spec waits until etcd's stack is without the member.
    let active = state.active().cloned().unwrap();
    let abort = Given {
        order: Order::Abort { plan: Some(active.plan) },
        at: Timestamp::from_second(wake * 60).unwrap(),
    };
    (state, _) = store.wake(state, &wanted_three, Some(&abort), wake * 60);
    assert!(state.active().is_none());
    assert_eq!(state.removed_members, BTreeSet::from([Role::Etcd(4)]));
    let releases = [with_members(1, 5, "a"), with_members(2, 3, "a")].map(|release| (release.id(), release));
    let plan = |state: &Rollout, size| {
        let baseline =
            Baseline::assemble("c", &state.deployed, &BTreeMap::new(), &BTreeMap::from(releases.clone()));
        let mut wanted = wanted(&with_members(size, 5, "a"), &baseline.unwrap(), Approval::Auto);
        wanted.desired.spec_version.clone_from(&wanted.plan.id);
        wanted
    };
    let (refused, report) = store.wake(state.clone(), &plan(&state, 7), None, 10_000);
    assert_eq!(report.state.as_str(), "failed");
    assert!(
        report.message.contains("etcd-4 may have been removed from etcd's membership already"),
        "{}",
        report.message
    );
    // The same spec continues the work, and does not remove the member twice.
    store.log.clear();
    store.fake.change_sets.clear();
    let mut again = wanted_three.clone();
    again.desired.spec_version = "v3".to_owned();
    let baseline =
        Baseline::assemble("c", &refused.deployed, &BTreeMap::new(), &BTreeMap::from(releases.clone()));
    again.plan = slipway_plan::plan(&baseline.unwrap(), &again.release, &policy(Approval::Auto));
    again.desired.plan.clone_from(&again.plan.id);
    let (state, report) = runs(&mut store, refused, &again);
    assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
    assert_eq!(store.log, ["etcd-0 Slipway-EtcdSnapshot", "etcd-0 removes etcd-3", "execute c-etcd"]);
    let (_, report) = store.wake(state.clone(), &plan(&state, 8), None, 20_000);
    assert_eq!(report.state.as_str(), "running", "it joins again: {}", report.message);
}

/// Work that follows the stack, such as a roll of the controllers or the last check, does not bring them back into the record.
#[test]
fn p4_members_whose_groups_are_gone_may_join_again_whatever_the_rollout_does_next() {
    let (mut store, mut state, mut wanted) = resized(3, 1);
    let controllers = wanted.release.roles.values().next().unwrap().clone();
    wanted.release.roles.insert(Role::Controller, controllers);
    let action = slipway_plan::NodeAction::Replace;
    let replaced = slipway_plan::NodePlan { role: Role::Controller, action, ..wanted.plan.nodes[0].clone() };
    wanted.plan.nodes.push(replaced);
    let mut seen = false;
    for wake in 0..30 {
        (state, _) = store.wake(state, &wanted, None, wake * 60);
        seen |= !state.removed_members.is_empty();
    }
    assert!(seen && state.deployed["c-etcd"] == wanted.plan.to, "{state:?}");
    assert_eq!(state.removed_members, BTreeSet::new());
}

#[test]
fn p4_where_all_that_leave_are_out_already_the_next_rollout_goes_on() {
    let (mut store, mut state, wanted) = resized(3, 1);
    let mut wake = 0;
    while store.log.last().is_none_or(|last| last != "etcd-0 removes etcd-1") {
        (state, _) = store.wake(state, &wanted, None, wake * 60);
        wake += 1;
    }
    let abort = Given { order: Order::Abort { plan: None }, at: Timestamp::from_second(wake * 60).unwrap() };
    (state, _) = store.wake(state, &wanted, Some(&abort), wake * 60);
    assert!(state.active().is_none() && store.members.len() == 1);
    store.log.clear();
    store.fake.change_sets.clear();
    let mut again = wanted.clone();
    again.desired.spec_version = "v3".to_owned();
    let releases = [with_members(1, 3, "a"), with_members(2, 1, "a")].map(|release| (release.id(), release));
    let baseline = Baseline::assemble("c", &state.deployed, &BTreeMap::new(), &BTreeMap::from(releases));
    again.plan = slipway_plan::plan(&baseline.unwrap(), &again.release, &policy(Approval::Auto));
    again.desired.plan.clone_from(&again.plan.id);
    let (_, report) = runs(&mut store, state, &again);
    assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
    assert_eq!(store.log, ["etcd-0 Slipway-EtcdSnapshot", "execute c-etcd"]);
}
