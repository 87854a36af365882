//! Whole rolls of nodes through `decide`, against a cluster of a few lines: who is touched, in which order, and what is waited for. Where
//! something goes wrong, what is said, and that nobody else is touched after it.

use serde_json::{Value, json};
use slipway_core::cluster::MaintenanceWindow;
use slipway_core::node::{
    Command, CommandStatus, CommandView, EtcdAlarm, EtcdHealth, EtcdMemberHealth, Verb,
};
use slipway_core::plan::RenewalPlan;

use super::*;
use crate::fleet::{GroupView, Lifecycle, MachineView, TemplateVersion};

/// A machine of the cluster.
#[derive(Debug, Clone)]
struct Machine {
    lifecycle: Lifecycle,
    current: bool,
    /// When it boots to its end, or is gone.
    until: Option<i64>,
}

/// An Auto Scaling group of it.
#[derive(Debug, Clone)]
struct Group {
    desired: u32,
    max: u32,
    machines: BTreeMap<String, Machine>,
}

/// A cluster whose machines do what they are told.
struct Yard {
    fake: Fake,
    state: Rollout,
    wanted: Wanted,
    now: i64,
    groups: BTreeMap<String, Group>,
    answers: BTreeMap<String, CommandView>,
    /// What was done to machines: asking them how they are is left out.
    log: Vec<String>,
    /// How often they were asked that.
    asked: usize,
    /// The machine of the member that leads.
    leader: String,
    /// Minutes from a launch to service.
    boots: i64,
    /// Machines that do not answer, and nodes that cannot be emptied.
    silent: BTreeSet<String>,
    stuck: BTreeSet<String>,
    alarm: bool,
    /// How many raft entries members lack.
    behind: u64,
    /// How many of the next commands of a document fail.
    failing: BTreeMap<&'static str, usize>,
    launched: usize,
    /// Minutes between two wakes.
    pace: i64,
    report: Report,
}

/// What is changed of the cluster.
#[derive(Clone, Copy, PartialEq)]
enum Change {
    Machines,
    Credentials,
}

/// How large it is.
struct Size {
    members: u32,
    controllers: u32,
    workers: u32,
}

const SMALL: Size = Size { members: 3, controllers: 2, workers: 3 };

/// Whose machines are changed.
type Whom<'w> = &'w dyn Fn(&Role) -> bool;

fn release(size: &Size, changed: Option<(Change, Whom<'_>)>) -> Rendering {
    let mut release = with_members(1, size.members, "a");
    let pool = release.roles[&Role::Pool("a".to_owned())].clone();
    let controllers = NodeRole { stack: "c-control-plane".to_owned(), ..pool };
    release.roles.insert(Role::Controller, controllers);
    for (role, node) in &mut release.roles {
        let (min, max) = match role {
            Role::Etcd(_) => (1, 1),
            Role::Controller => (size.controllers, size.controllers + 1),
            Role::Pool(_) | Role::Admin => (size.workers, size.workers + 2),
        };
        node.nodes = GroupSize { min, max };
        node.credentials_digest = "old".to_owned();
        match changed.filter(|(_, whom)| whom(role)) {
            Some((Change::Machines, _)) => node.machine = json!({"InstanceType": "m7i.xlarge"}),
            Some((Change::Credentials, _)) => node.credentials_digest = "new".to_owned(),
            None => {}
        }
    }
    release
}

impl Yard {
    /// A cluster of that size, of which `whom` is about to be changed so.
    fn new(size: &Size, change: Change, whom: Whom<'_>, policy: &RolloutPolicy) -> Self {
        let (before, after) = (release(size, None), release(size, Some((change, whom))));
        let mut fake = Fake::default();
        let first = wanted(&before, &Baseline::default(), Approval::Auto);
        let (state, _) = fake.run(Rollout::new("c"), &first, None, false);
        fake.log.clear();
        fake.change_sets.clear();
        let releases = BTreeMap::from([(before.id(), before.clone())]);
        let baseline = Baseline::assemble("c", &state.deployed, &BTreeMap::new(), &releases).unwrap();
        let plan = plan(&baseline, &after, policy);
        let (plan_id, target) = (plan.id.clone(), plan.to.clone());
        let desired = Desired { format: 1, spec_version: "v2".to_owned(), plan: plan_id, target };
        let mut groups = BTreeMap::new();
        for (role, node) in &after.roles {
            // Other credentials are another launch template, too.
            let current = !whom(role);
            let name = match role {
                Role::Etcd(index) => format!("c-etcd-{index}"),
                Role::Controller | Role::Pool(_) | Role::Admin => node.stack.clone(),
            };
            let machine = Machine { lifecycle: Lifecycle::InService, current, until: None };
            let machines = (0..node.nodes.min).map(|number| (format!("{role}.{number}"), machine.clone()));
            let group = Group { desired: node.nodes.min, max: node.nodes.max, machines: machines.collect() };
            groups.insert(name, group);
        }
        Self {
            fake,
            state,
            wanted: Wanted { desired, plan, release: after },
            now: 1_000_000,
            groups,
            answers: BTreeMap::new(),
            log: Vec::new(),
            asked: 0,
            leader: "etcd-1.0".to_owned(),
            boots: 2,
            silent: BTreeSet::new(),
            stuck: BTreeSet::new(),
            alarm: false,
            behind: 0,
            failing: BTreeMap::new(),
            launched: 0,
            pace: 1,
            report: Report::default(),
        }
    }

    fn urgent(mut self) -> Self {
        let renewal =
            RenewalPlan { urgent: Some("apiserver ends tomorrow".to_owned()), ..RenewalPlan::default() };
        self.wanted.plan = self.wanted.plan.clone().with_renewal(&renewal);
        self.wanted.desired.plan.clone_from(&self.wanted.plan.id);
        self
    }

    fn member(&self, id: &str) -> String {
        id.split('.').next().unwrap_or_default().to_owned()
    }

    fn serves(&self, id: &str) -> bool {
        let machines = self.groups.values().flat_map(|group| &group.machines);
        let found = machines.into_iter().find(|(one, _)| *one == id);
        found.is_some_and(|(_, one)| one.lifecycle == Lifecycle::InService) && !self.silent.contains(id)
    }

    fn health(&self, id: &str) -> Value {
        let groups = self.groups.iter().filter(|(name, _)| name.starts_with("c-etcd-"));
        let member = |(name, group): (&String, &Group)| {
            let serves = group.machines.keys().any(|id| self.serves(id));
            EtcdMemberHealth {
                name: name.trim_start_matches("c-").to_owned(),
                reachable: serves,
                behind: serves.then_some(0),
                ..EtcdMemberHealth::default()
            }
        };
        let alarm = EtcdAlarm { member: "1".to_owned(), kind: "NOSPACE".to_owned() };
        let health = EtcdHealth {
            format: EtcdHealth::FORMAT,
            name: self.member(id),
            healthy: true,
            serving: true,
            leads: self.leader == id,
            cluster_id: Some("c".to_owned()),
            behind: Some(self.behind),
            members: groups.map(member).collect(),
            alarms: self.alarm.then_some(alarm).into_iter().collect(),
            ..EtcdHealth::default()
        };
        serde_json::to_value(health).unwrap()
    }

    fn answer(&mut self, command: &Command) -> Result<Value, Value> {
        let id = command.instance.clone();
        let document = command.verb.document();
        if let Some(left) = self.failing.get_mut(document).filter(|left| **left > 0) {
            *left -= 1;
            return Err(json!({"error": {"code": "usage", "message": "it does not want to"}}));
        }
        let line = match &command.verb {
            Verb::EtcdHealth => {
                self.asked += 1;
                return Ok(self.health(&id));
            }
            Verb::Status => {
                self.asked += 1;
                return Ok(json!({
                    "format": 1, "at": "1970-01-01T00:00:00Z", "cluster": "c", "role": "controller", "healthy": true,
                    "applied": {"asAsked": true}, "served": [], "held": [],
                    "components": [{"name": "kube-apiserver", "healthy": true}],
                }));
            }
            Verb::Refresh { credentials, restart } => {
                self.log
                    .push(format!("{id} takes {credentials}{}", if *restart { ", restarts" } else { "" }));
                return Ok(json!({"credentials": credentials}));
            }
            Verb::EtcdMoveLeader => {
                let others = self.groups.iter().filter(|(name, _)| name.starts_with("c-etcd-"));
                let mut others =
                    others.flat_map(|(_, group)| group.machines.keys()).filter(|one| **one != id);
                self.leader = others.next().cloned().unwrap_or_default();
                format!("{id} leads no more")
            }
            Verb::EtcdSnapshot => format!("{id} takes a snapshot"),
            Verb::EtcdRetire | Verb::EtcdRemove { .. } => panic!("no member leaves"),
            Verb::Uncordon { node } => format!("{node} takes pods again"),
            Verb::Drain { node, .. } => {
                self.log.push(format!("{id} drains {node}"));
                let done = !self.stuck.contains(node);
                return Ok(json!({"done": done, "waiting": [{"pod": "shop/app", "why": "its budget"}]}));
            }
        };
        self.log.push(line);
        Ok(json!({}))
    }

    /// A minute goes by, and it is woken.
    fn wake(&mut self, order: Option<Order>) {
        self.now += 60 * self.pace;
        self.time_goes_by();
        let now = Timestamp::from_second(self.now).unwrap();
        let order = order.map(|order| Given { order, at: now });
        let look = to_observe(&self.state, Some(&self.wanted), order.as_ref(), now);
        let mut observed = self.fake.observe(&look, Some(&self.wanted), None);
        observed.order = order;
        for name in &look.groups {
            observed.groups.insert(name.clone(), self.groups.get(name).map(|group| view(name, group)));
        }
        for command in &look.commands {
            observed.answers.insert(command.token.clone(), self.answers.get(&command.token).cloned());
        }
        let decision = decide(&self.state, &observed, now);
        let mut others = Vec::new();
        for effect in decision.effects {
            match effect.clone() {
                Effect::Send(command) => self.send(&command),
                Effect::Cancel(command) => {
                    self.log.push(format!("{} is taken back", command.verb.document()))
                }
                Effect::SetDesired { group, desired } => {
                    self.log.push(format!("{group} wants {desired}"));
                    self.groups.get_mut(&group).unwrap().desired = desired;
                }
                Effect::Terminate { group, instance, shrink } => {
                    self.log.push(format!("{instance} goes{}", if shrink { ", and none comes" } else { "" }));
                    self.terminate(&group, &instance, shrink);
                }
                Effect::ProlongTermination { instance, .. } => {
                    self.log.push(format!("{instance} is waited for"))
                }
                Effect::CompleteTermination { group, instance } => {
                    self.log.push(format!("{instance} is let go"));
                    let group = self.groups.get_mut(&group).unwrap();
                    group.machines.get_mut(&instance).unwrap().lifecycle = Lifecycle::Terminating;
                }
                Effect::CreateChangeSet(_)
                | Effect::ExecuteChangeSet { .. }
                | Effect::DeleteChangeSet { .. }
                | Effect::DeleteStack { .. }
                | Effect::PointAddons(_)
                | Effect::ArmTick
                | Effect::DisarmTick
                | Effect::Publish(_) => others.push(effect),
            }
        }
        self.fake.perform(&others);
        self.state = Rollout { outbox: Vec::new(), ..decision.next };
        self.report = decision.report;
    }

    fn send(&mut self, command: &Command) {
        assert!(!self.answers.contains_key(&command.token), "{} is sent twice", command.token);
        let up = self.serves(&command.instance);
        let said = if up { self.answer(command) } else { Err(json!({"error": {"message": "lost"}})) };
        let (status, answer) = match said {
            Ok(answer) => (CommandStatus::Success, answer),
            Err(error) => (CommandStatus::Failed, error),
        };
        let view = CommandView { status, answer: Some(answer), problem: None };
        self.answers.insert(command.token.clone(), view);
    }

    fn terminate(&mut self, name: &str, id: &str, shrink: bool) {
        let group = self.groups.get_mut(name).unwrap();
        group.desired -= u32::from(shrink);
        let machine = group.machines.get_mut(id).unwrap();
        let waits = name.contains("-pool-");
        machine.lifecycle = if waits { Lifecycle::TerminatingWait } else { Lifecycle::Terminating };
    }

    fn time_goes_by(&mut self) {
        let (now, boots) = (self.now, self.boots);
        for (name, group) in &mut self.groups {
            group.machines.retain(|_, one| one.lifecycle != Lifecycle::Terminating);
            for one in group.machines.values_mut().filter(|one| one.until.is_some_and(|until| until <= now)) {
                (one.lifecycle, one.until) = (Lifecycle::InService, None);
            }
            let counts = |one: &&Machine| matches!(one.lifecycle, Lifecycle::Pending | Lifecycle::InService);
            while (group.machines.values().filter(counts).count() as u32) < group.desired {
                self.launched += 1;
                let (until, role) = (Some(now + 60 * boots), name.trim_start_matches("c-"));
                let role = if role == "control-plane" { "controller" } else { role };
                let one = Machine { lifecycle: Lifecycle::Pending, current: true, until };
                group.machines.insert(format!("{role}.new{}", self.launched), one);
            }
        }
    }

    /// Until it ends, or a day has gone by: how it ended.
    fn run(&mut self) -> String {
        for _ in 0..400 {
            self.wake(None);
            if self.state.active.is_none() && self.state.departures.is_empty() {
                return self.report.state.clone();
            }
        }
        panic!("it never ends: {}", self.report.message);
    }

    fn in_order(&self) -> Vec<&str> {
        self.log.iter().map(String::as_str).collect()
    }
}

fn view(name: &str, group: &Group) -> GroupView {
    let template =
        |current: bool| TemplateVersion { id: "lt".to_owned(), version: u8::from(current).to_string() };
    let machine = |(id, one): (&String, &Machine)| {
        let view = MachineView {
            zone: "a".to_owned(),
            lifecycle: one.lifecycle,
            healthy: true,
            template: Some(template(one.current)),
        };
        (id.clone(), view)
    };
    GroupView {
        name: name.to_owned(),
        desired: group.desired,
        min: 1,
        max: group.max,
        template: Some(template(true)),
        machines: group.machines.iter().map(machine).collect(),
        tags: BTreeMap::from([("slipway:cluster".to_owned(), "c".to_owned())]),
    }
}

fn is_member(role: &Role) -> bool {
    role.member().is_some()
}

fn is_controller(role: &Role) -> bool {
    *role == Role::Controller
}

fn is_worker(role: &Role) -> bool {
    matches!(role, Role::Pool(_))
}

fn auto() -> RolloutPolicy {
    policy(Approval::Auto)
}

/// A minute of the day of [`Yard`]'s beginning.
fn minute_of_day(second: i64) -> u16 {
    u16::try_from(second.rem_euclid(86_400) / 60).unwrap()
}

#[test]
fn p4_members_are_replaced_one_after_the_other_with_a_snapshot_and_without_the_lead() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_member, &auto());
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    let log = [
        "etcd-1.0 takes a snapshot",
        "etcd-0.0 goes",
        "etcd-1.0 leads no more",
        "etcd-1.0 goes",
        "etcd-2.0 goes",
    ];
    assert_eq!(yard.in_order(), log);
    // All are asked before and after each goes, and once more when another leads.
    assert_eq!(yard.asked, 21);
    assert!(yard.report.message.ends_with("replaced: etcd-0, etcd-1, etcd-2"), "{}", yard.report.message);

    // A snapshot counts for a quarter of an hour.
    let mut yard = Yard { boots: 14, ..Yard::new(&SMALL, Change::Machines, &is_member, &auto()) };
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    let log = [
        "etcd-1.0 takes a snapshot",
        "etcd-0.0 goes",
        "etcd-0.new1 takes a snapshot",
        "etcd-1.0 leads no more",
        "etcd-1.0 goes",
        "etcd-0.new1 takes a snapshot",
        "etcd-2.0 goes",
    ];
    assert_eq!(yard.in_order(), log);

    // A single one has nobody to lead in its place, and nobody else to take the snapshot.
    let one = Size { members: 1, ..SMALL };
    let yard = Yard::new(&one, Change::Machines, &is_member, &auto());
    let mut yard = Yard { leader: "etcd-0.0".to_owned(), ..yard };
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    assert_eq!(yard.in_order(), ["etcd-0.0 takes a snapshot", "etcd-0.0 goes"]);
}

#[test]
fn p4_p7_members_take_credentials_in_place_one_after_the_other_and_keep_the_lead() {
    let mut yard = Yard::new(&SMALL, Change::Credentials, &is_member, &auto());
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    let log = [
        "etcd-1.0 takes a snapshot",
        "etcd-0.0 takes new, restarts",
        "etcd-1.0 takes new, restarts",
        "etcd-2.0 takes new, restarts",
    ];
    assert_eq!(yard.in_order(), log);

    for (document, most) in [("Slipway-Refresh", 3), ("Slipway-EtcdSnapshot", 3)] {
        for failing in [most - 1, most] {
            let mut yard = Yard::new(&SMALL, Change::Credentials, &is_member, &auto());
            yard.failing.insert(document, failing);
            let ends = if failing < most { "succeeded" } else { "failed" };
            assert_eq!(yard.run(), ends, "{document} {failing}: {}", yard.report.message);
            let taken = yard.log.iter().filter(|line| line.contains("takes new")).count();
            assert_eq!(taken, if failing < most { 3 } else { 0 }, "{document}: {:?}", yard.log);
        }
    }
}

#[test]
fn p4_a_member_waits_for_the_others_an_hour_and_says_why() {
    type Spoil = fn(&mut Yard);
    let cases: [(Spoil, &str); 4] = [
        (|yard| yard.silent.extend(["etcd-2.0".to_owned()]), "etcd-2 does not answer"),
        (|yard| yard.alarm = true, "the alarm NOSPACE is raised"),
        (|yard| yard.behind = 11, "has to catch up (raft index 11 behind, limit 10)"),
        (|yard| yard.groups.get_mut("c-etcd-2").unwrap().machines.clear(), "etcd-2"),
    ];
    for (at, (spoil, why)) in cases.into_iter().enumerate() {
        for change in [Change::Machines, Change::Credentials] {
            let mut yard = Yard::new(&SMALL, change, &|role| *role == Role::Etcd(0), &auto());
            spoil(&mut yard);
            let ends = yard.run();
            // A machine that is gone comes back.
            if at == 3 {
                assert_eq!(ends, "succeeded");
                continue;
            }
            assert_eq!(ends, "failed", "{why}");
            assert!(yard.report.message.contains(why), "{}", yard.report.message);
            assert!(
                yard.report.message.contains("may not be taken down after 60 minutes"),
                "{}",
                yard.report.message
            );
            assert_eq!(yard.in_order(), ["etcd-1.0 takes a snapshot"], "nobody is touched");
            let minutes = (yard.now - 1_000_000) / 60;
            assert!((62..=66).contains(&minutes), "{minutes}");
        }
    }
    // Ten entries are what one lacks that keeps up; what passes by itself is waited for.
    let mut yard =
        Yard { behind: 10, alarm: true, ..Yard::new(&SMALL, Change::Machines, &is_member, &auto()) };
    (0..30).for_each(|_| yard.wake(None));
    assert!(yard.report.message.contains("waits: the alarm NOSPACE is raised"), "{}", yard.report.message);
    yard.alarm = false;
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
}

#[test]
fn p4_what_was_said_and_a_snapshot_count_for_minutes_and_are_asked_for_anew() {
    // Until a window opens they have grown old: everything is asked for after it has.
    let start = minute_of_day(1_000_000) + 20;
    let window = MaintenanceWindow { days: Vec::new(), start_minute: start, length_min: 30 };
    let policy = RolloutPolicy { windows: vec![window], ..auto() };
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_member, &policy);
    (0..18).for_each(|_| yard.wake(None));
    assert_eq!(yard.in_order(), [""; 0], "{}", yard.report.message);
    assert!(yard.report.message.contains("waits for the next maintenance window"), "{}", yard.report.message);
    (0..5).for_each(|_| yard.wake(None));
    assert!(!yard.log.is_empty(), "{}", yard.report.message);
    assert_eq!(yard.run(), "succeeded");
    assert!((yard.now - 1_000_000) / 60 < 60);
    // One that closes in the midst of it holds up the next.
    let window =
        MaintenanceWindow { days: Vec::new(), start_minute: minute_of_day(1_000_000), length_min: 4 };
    let policy = RolloutPolicy { windows: vec![window], ..auto() };
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_member, &policy);
    (0..60).for_each(|_| yard.wake(None));
    assert_eq!(yard.in_order(), ["etcd-1.0 takes a snapshot", "etcd-0.0 goes"]);
}

#[test]
fn p7_what_nothing_may_hold_up_waits_for_no_window_and_for_the_others_only_some_minutes() {
    let window = MaintenanceWindow {
        days: Vec::new(),
        start_minute: (minute_of_day(1_000_000) + 600) % 1_440,
        length_min: 30,
    };
    let policy = RolloutPolicy { windows: vec![window], ..policy(Approval::Manual) };
    let mut yard = Yard::new(&SMALL, Change::Credentials, &is_member, &policy).urgent();
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    assert!(yard.report.message.contains("no maintenance window held it up"), "{}", yard.report.message);
    let three =
        ["etcd-0.0 takes new, restarts", "etcd-1.0 takes new, restarts", "etcd-2.0 takes new, restarts"];
    assert_eq!(yard.in_order(), three);

    let mut yard = Yard::new(&SMALL, Change::Credentials, &is_controller, &policy).urgent();
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    assert_eq!(yard.in_order(), ["controller.0 takes new, restarts", "controller.1 takes new, restarts"]);

    // One that is not urgent waits for both, and for a person.
    let mut yard = Yard::new(&SMALL, Change::Credentials, &is_member, &policy);
    yard.wake(None);
    assert_eq!((yard.report.state.as_str(), yard.log.len()), ("waiting-for-approval", 0));
}

#[test]
fn p4_a_member_whose_place_nobody_takes_ends_it_after_an_hour_and_the_others_stay() {
    let mut yard = Yard { boots: 10_000, ..Yard::new(&SMALL, Change::Machines, &is_member, &auto()) };
    assert_eq!(yard.run(), "failed");
    assert!(
        yard.report.message.contains("nobody took the place of its machine within 60 minutes"),
        "{}",
        yard.report.message
    );
    assert_eq!(yard.in_order(), ["etcd-1.0 takes a snapshot", "etcd-0.0 goes"]);
    let minutes = (yard.now - 1_000_000) / 60;
    assert!((62..=66).contains(&minutes), "{minutes}");
}

#[test]
fn p5_one_more_controller_comes_before_one_is_drained_and_goes() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_controller, &auto());
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    let log = [
        "c-control-plane wants 3",
        "controller.1 drains controller.0",
        "controller.0 goes, and none comes",
        "c-control-plane wants 3",
        "controller.new1 drains controller.1",
        "controller.1 goes, and none comes",
    ];
    assert_eq!(yard.in_order(), log);
    assert_eq!(yard.groups["c-control-plane"].desired, 2);

    let one = Size { controllers: 1, ..SMALL };
    let mut yard = Yard::new(&one, Change::Machines, &is_controller, &auto());
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    let log = [
        "c-control-plane wants 2",
        "controller.new1 drains controller.0",
        "controller.0 goes, and none comes",
    ];
    assert_eq!(yard.in_order(), log);
}

#[test]
fn p5_controllers_take_credentials_one_after_the_other_and_a_single_one_is_not_started_anew() {
    let mut yard = Yard::new(&SMALL, Change::Credentials, &is_controller, &auto());
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    assert_eq!(yard.in_order(), ["controller.0 takes new, restarts", "controller.1 takes new, restarts"]);
    let one = Size { controllers: 1, ..SMALL };
    let mut yard = Yard::new(&one, Change::Credentials, &is_controller, &auto());
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    assert_eq!(yard.in_order(), ["controller.0 takes new"]);
    // One that does not answer holds the others up, and ends it.
    let mut yard = Yard::new(&SMALL, Change::Credentials, &is_controller, &auto());
    yard.silent.insert("controller.1".to_owned());
    assert_eq!(yard.run(), "failed");
    assert!(yard.report.message.contains("controller.1 does not answer"), "{}", yard.report.message);
    assert_eq!(yard.in_order(), [""; 0]);
    for failing in [2, 3] {
        let mut yard = Yard::new(&SMALL, Change::Credentials, &is_controller, &auto());
        yard.failing.insert("Slipway-Refresh", failing);
        let ends = if failing < 3 { "succeeded" } else { "failed" };
        assert_eq!(yard.run(), ends, "{failing}: {}", yard.report.message);
    }
}

#[test]
fn p5_a_controller_that_does_not_come_or_cannot_be_drained_ends_it_and_none_goes() {
    let mut yard = Yard { boots: 10_000, ..Yard::new(&SMALL, Change::Machines, &is_controller, &auto()) };
    assert_eq!(yard.run(), "failed");
    let why = "no new controller came within 60 minutes";
    assert!(yard.report.message.contains(why), "{}", yard.report.message);
    assert_eq!(yard.in_order(), ["c-control-plane wants 3"]);

    let mut yard = Yard::new(&SMALL, Change::Machines, &is_controller, &auto());
    yard.stuck.insert("controller.0".to_owned());
    (0..15).for_each(|_| yard.wake(None));
    yard.pace = 10;
    assert_eq!(yard.run(), "failed");
    assert!(yard.report.message.contains("controller.0 could not be drained"), "{}", yard.report.message);
    assert!(yard.report.message.contains("shop/app: its budget"), "{}", yard.report.message);
    assert!(!yard.log.iter().any(|line| line.contains("goes")), "{:?}", yard.log);
    assert_eq!(yard.log.last().unwrap(), "controller.0 takes pods again");
}

#[test]
fn p6_workers_go_as_many_at_once_as_may_be_missing_and_the_first_alone() {
    let five = Size { workers: 5, ..SMALL };
    let wide = RolloutPolicy { max_unavailable: CountOrPercent::Count(2), ..auto() };
    let mut yard = Yard::new(&five, Change::Machines, &is_worker, &wide);
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    let goes = |log: &[String]| -> Vec<String> {
        log.iter().filter(|line| line.contains(" drains ") || line.ends_with(" goes")).cloned().collect()
    };
    let log = [
        "controller.0 drains pool-a.0",
        "pool-a.0 goes",
        "controller.1 drains pool-a.1",
        "controller.0 drains pool-a.2",
        "pool-a.1 goes",
        "pool-a.2 goes",
        "controller.1 drains pool-a.3",
        "controller.0 drains pool-a.4",
        "pool-a.3 goes",
        "pool-a.4 goes",
    ];
    assert_eq!(goes(&yard.log), log);
    let mut yard = Yard::new(&five, Change::Credentials, &is_worker, &wide);
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    let taken: Vec<&str> = yard.in_order();
    assert_eq!(taken.len(), 5, "{taken:?}");
    assert!(taken.iter().all(|line| line.ends_with("takes new, restarts")), "{taken:?}");
}

#[test]
fn p6_where_none_may_be_missing_more_come_first_and_as_many_go_in_the_end() {
    let five = Size { workers: 5, ..SMALL };
    let none = RolloutPolicy {
        max_unavailable: CountOrPercent::Count(0),
        surge: CountOrPercent::Count(2),
        ..auto()
    };
    let mut yard = Yard::new(&five, Change::Machines, &is_worker, &none);
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    let changes: Vec<&str> = yard.in_order().into_iter().filter(|line| !line.contains("let go")).collect();
    assert_eq!(
        changes,
        [
            "c-pool-a wants 6",
            "controller.0 drains pool-a.0",
            "pool-a.0 goes",
            "c-pool-a wants 7",
            "controller.1 drains pool-a.1",
            "pool-a.1 goes",
            "controller.0 drains pool-a.2",
            "pool-a.2 goes",
            "controller.1 drains pool-a.3",
            "pool-a.3 goes, and none comes",
            "controller.0 drains pool-a.4",
            "pool-a.4 goes, and none comes",
        ]
    );
    assert_eq!((yard.groups["c-pool-a"].desired, yard.groups["c-pool-a"].machines.len()), (5, 5));
}

#[test]
fn p6_a_worker_that_cannot_be_emptied_stays_and_takes_pods_again() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &auto());
    yard.stuck.insert("pool-a.0".to_owned());
    yard.pace = 10;
    (0..60).for_each(|_| yard.wake(None));
    assert!(yard.report.message.contains("drains pool-a.0, which waits for shop/app: its budget"));
    assert_eq!(yard.run(), "failed");
    assert!(
        yard.report.message.contains("pool-a.0 could not be drained within 24 hours"),
        "{}",
        yard.report.message
    );
    assert!(!yard.log.iter().any(|line| line.contains("goes")), "{:?}", yard.log.last());
    assert_eq!(yard.log.last().unwrap(), "pool-a.0 takes pods again");
    // Once the first was replaced, as many may stay as the budget for failures says.
    let lenient = RolloutPolicy { failure_budget: 1, ..auto() };
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &lenient);
    yard.stuck.insert("pool-a.1".to_owned());
    yard.pace = 10;
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    assert!(
        yard.log.contains(&"pool-a.2 goes".to_owned()) && !yard.log.contains(&"pool-a.1 goes".to_owned())
    );
    let strict = RolloutPolicy { failure_budget: 0, ..auto() };
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &strict);
    yard.stuck.insert("pool-a.1".to_owned());
    yard.pace = 10;
    assert_eq!(yard.run(), "failed");
    assert!(!yard.log.contains(&"pool-a.2 goes".to_owned()));
    // What fails for the third time does not fail by chance.
    for failing in [2, 3] {
        let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &auto());
        yard.failing.insert("Slipway-Drain", failing);
        assert_eq!(yard.run(), if failing < 3 { "succeeded" } else { "failed" }, "{}", yard.report.message);
    }
}

#[test]
fn p2_a_member_that_is_as_it_should_be_is_left_and_one_without_a_machine_is_waited_for_an_hour() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_member, &auto());
    yard.groups.get_mut("c-etcd-0").unwrap().machines.get_mut("etcd-0.0").unwrap().current = true;
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    let log = ["etcd-0.0 takes a snapshot", "etcd-1.0 leads no more", "etcd-1.0 goes", "etcd-2.0 goes"];
    assert_eq!(yard.in_order(), log);

    let mut yard = Yard { boots: 10_000, ..Yard::new(&SMALL, Change::Machines, &is_member, &auto()) };
    yard.groups.get_mut("c-etcd-0").unwrap().machines.clear();
    assert_eq!(yard.run(), "failed");
    let why = "c-etcd-0 has no machine in service after 60 minutes";
    assert!(yard.report.message.contains(why), "{}", yard.report.message);
    let minutes = (yard.now - 1_000_000) / 60;
    assert!((61..=64).contains(&minutes) && yard.log.is_empty(), "{minutes}: {:?}", yard.log);
}

#[test]
fn p4_p7_after_one_was_changed_the_next_waits_until_all_are_well_unless_certificates_end() {
    for change in [Change::Machines, Change::Credentials] {
        let mut yard = Yard::new(&SMALL, change, &is_member, &auto());
        while yard.log.len() < 2 {
            yard.wake(None);
        }
        yard.silent.insert("etcd-2.0".to_owned());
        assert_eq!(yard.run(), "failed");
        for why in ["etcd-0: is not well with the others after 60 minutes", "etcd-2 does not answer: lost"] {
            assert!(yard.report.message.contains(why), "{}", yard.report.message);
        }
        assert_eq!(yard.log.len(), 2, "{:?}", yard.log);
    }
    let mut yard = Yard::new(&SMALL, Change::Credentials, &is_member, &auto()).urgent();
    yard.silent.insert("etcd-2.0".to_owned());
    let (mut first, mut second) = (0, 0);
    while second == 0 {
        yard.wake(None);
        first = if yard.log.len() == 1 && first == 0 { yard.now } else { first };
        second = if yard.log.len() == 2 { yard.now } else { 0 };
    }
    assert_eq!(yard.in_order(), ["etcd-0.0 takes new, restarts", "etcd-1.0 takes new, restarts"]);
    assert!((180..=360).contains(&(second - first)), "{}", second - first);
}

/// Whether a line of the log stops, empties or makes anything, or has a machine take something.
fn disrupts(line: &str) -> bool {
    ["goes", "drains", "wants", "takes new", "leads no more", "snapshot"]
        .iter()
        .any(|what| line.contains(what))
}

#[test]
fn p10_after_a_pause_at_any_minute_nothing_begins_and_a_resume_goes_on_to_the_end() {
    for at in 0..40 {
        let mut yard = Yard::new(&SMALL, Change::Machines, &|_| true, &auto());
        (0..at).for_each(|_| yard.wake(None));
        yard.wake(Some(Order::Pause));
        let before = yard.log.len();
        (0..25).for_each(|_| yard.wake(None));
        // What was drained when it was paused is let go of only by its hook.
        let after: Vec<&String> = yard.log[before..].iter().filter(|line| disrupts(line)).collect();
        assert!(after.is_empty(), "paused at {at}: {after:?}");
        yard.wake(Some(Order::Resume));
        assert_eq!(yard.run(), "succeeded", "paused at {at}: {}", yard.report.message);
        let replaced = yard.groups.values().flat_map(|group| group.machines.values()).all(|one| one.current);
        assert!(replaced, "paused at {at}");
    }
}

#[test]
fn p10_after_an_abort_at_any_minute_nothing_begins_and_all_take_pods_again() {
    for at in 1..45 {
        let mut yard = Yard::new(&SMALL, Change::Machines, &|_| true, &auto());
        yard.stuck.extend(["controller.1".to_owned(), "pool-a.1".to_owned()]);
        (0..at).for_each(|_| yard.wake(None));
        yard.wake(Some(Order::Abort { plan: None }));
        let before = yard.log.len();
        (0..25).for_each(|_| yard.wake(None));
        let after: Vec<&String> = yard.log[before..].iter().filter(|line| disrupts(line)).collect();
        assert!(after.is_empty(), "aborted at {at}: {after:?}");
        assert_eq!(yard.report.state, "aborted", "at {at}: {}", yard.report.message);
        assert!(yard.state.departures.is_empty() && !yard.state.is_open(), "at {at}");
        for (line, node) in yard.log.iter().filter_map(|line| Some((line, line.split_once(" drains ")?.1))) {
            let gone = yard.log.iter().any(|other| other.starts_with(&format!("{node} goes")));
            let back = yard.log.contains(&format!("{node} takes pods again"));
            assert!(gone || back, "at {at}: {line}");
        }
    }
}

#[test]
fn p10_a_machine_that_a_person_says_to_leave_is_left_and_the_others_are_replaced() {
    for left in ["etcd-1.0", "pool-a.1"] {
        let mut yard = Yard::new(&SMALL, Change::Machines, &|role| !is_controller(role), &auto());
        yard.wake(None);
        yard.wake(Some(Order::Skip { instance: left.to_owned() }));
        assert_eq!(yard.run(), "succeeded", "{left}: {}", yard.report.message);
        let old: Vec<String> = yard
            .groups
            .values()
            .flat_map(|group| &group.machines)
            .filter(|(_, one)| !one.current)
            .map(|(id, _)| id.clone())
            .collect();
        assert_eq!(old, [left]);
        assert!(yard.report.message.contains("left as they are, as told"), "{}", yard.report.message);
    }
}

#[test]
fn p6_a_worker_that_auto_scaling_takes_down_is_drained_kept_alive_and_let_go() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &|role| *role == Role::Etcd(0), &auto());
    yard.stuck.insert("pool-a.2".to_owned());
    yard.groups.get_mut("c-pool-a").unwrap().machines.get_mut("pool-a.2").unwrap().lifecycle =
        Lifecycle::TerminatingWait;
    (0..45).for_each(|_| yard.wake(None));
    let kept = yard.log.iter().filter(|line| *line == "pool-a.2 is waited for").count();
    assert!((4..=5).contains(&kept), "{kept}: {:?}", yard.log);
    assert!(!yard.log.contains(&"pool-a.2 is let go".to_owned()));
    yard.stuck.clear();
    (0..12).for_each(|_| yard.wake(None));
    assert!(yard.log.contains(&"pool-a.2 is let go".to_owned()), "{:?}", yard.log);
    assert!(yard.state.departures.is_empty() && !yard.log.contains(&"pool-a.2 goes".to_owned()));
}
