//! Whole rolls of nodes through `decide`, with a cluster of a few lines: which machines are changed, in which order, and what is waited
//! for. If something fails, what is reported, and that no other machine is changed after it.

mod late;
mod looks;
mod machines;
mod members;
mod nights;
mod others;
mod plans;
mod pools;
mod refusals;
mod sizes;
mod stops;

use serde_json::{Value, json};
use slipway_core::cluster::MaintenanceWindow;
use slipway_core::deadline::Deadline;
use slipway_core::node::{
    Answer, Command, CommandView, EtcdAlarm, EtcdHealth, EtcdMemberHealth, FailureCode, HowUnanswered,
    MachineArns, Unanswered, Verb, VerbFailure,
};
use slipway_plan::RenewalPlan;

use super::evidence::LastAsks;
use super::*;
use crate::fleet::{GroupView, Lifecycle, MachineView, TargetHealth, TargetState, TemplateVersion};

/// The target group of its API.
const TARGETS: &str =
    "arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/c-api/0123456789abcdef";

/// A machine of the cluster.
#[derive(Debug, Clone)]
struct Machine {
    zone: &'static str,
    lifecycle: Lifecycle,
    current: bool,
    /// When its boot ends, or when it is gone.
    until: Option<i64>,
    /// From when on its target is healthy.
    target_from: i64,
}

/// An Auto Scaling group of the cluster.
#[derive(Debug, Clone)]
struct Group {
    desired: u32,
    max: u32,
    machines: BTreeMap<String, Machine>,
}

/// A cluster whose machines execute commands.
struct Yard {
    fake: Fake,
    state: Rollout,
    wanted: Wanted,
    now: i64,
    groups: BTreeMap<String, Group>,
    answers: BTreeMap<String, CommandView>,
    /// The commands and calls for machines, without queries about health.
    log: Vec<String>,
    /// The number of these queries.
    sent: usize,
    /// The groups whose target health was queried.
    targets_asked: BTreeSet<String>,
    /// The machine of the leader.
    leader: String,
    /// Minutes from a launch until the machine is in service.
    boots: i64,
    /// Minutes from then, or from a restart, until a controller's target is healthy.
    checks: i64,
    /// Machines that do not answer, machines whose commands never end, machines that EC2 finds unhealthy, and nodes that cannot be drained.
    silent: BTreeSet<String>,
    hanging: BTreeSet<String>,
    ill: BTreeSet<String>,
    stuck: BTreeSet<String>,
    /// Why no API server is ready, machines whose Nodes are not Ready, and members of etcd that do not serve, as the controllers say.
    api_down: Option<&'static str>,
    unready: BTreeSet<String>,
    /// Machines that have no Node.
    unregistered: BTreeSet<String>,
    members_down: BTreeSet<String>,
    /// Controllers whose commands to say whether the cluster serves end in that way.
    unanswered: BTreeMap<String, HowUnanswered>,
    alarm: bool,
    /// Whether its groups accept a desired capacity, and launch missing machines.
    deaf: bool,
    launches: bool,
    /// The zone in which they launch machines.
    launches_in: &'static str,
    /// The number of raft entries that members lack.
    behind: u64,
    /// How many of the next commands of each document fail.
    failing: BTreeMap<&'static str, usize>,
    launched: usize,
    /// Minutes between two wakes.
    pace: i64,
    asks: LastAsks,
    report: Report,
}

/// The change of the cluster.
#[derive(Clone, Copy, PartialEq)]
enum Change {
    Machines,
    Credentials,
}

/// The size of the cluster.
struct Size {
    members: u32,
    controllers: u32,
    workers: u32,
}

const SMALL: Size = Size { members: 3, controllers: 2, workers: 3 };

/// The roles whose machines change.
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
    /// A cluster of that size with that change for `whom`.
    fn new(size: &Size, change: Change, whom: Whom<'_>, policy: &RolloutPolicy) -> Self {
        Self::between(&release(size, None), release(size, Some((change, whom))), whom, policy)
    }

    /// A cluster that changes from the release `before` to `after`, in which the machines of `whom` change.
    fn between(before: &Rendering, after: Rendering, whom: Whom<'_>, policy: &RolloutPolicy) -> Self {
        let mut fake = Fake::default();
        let first = wanted(before, &Baseline::default(), Approval::Auto);
        let (state, _) = fake.run(Rollout::new("c"), &first, None, false);
        fake.log.clear();
        fake.change_sets.clear();
        let releases = BTreeMap::from([(before.id(), before.clone())]);
        let baseline = Baseline::assemble("c", &state.deployed, &BTreeMap::new(), &releases).unwrap();
        let plan = plan(&baseline, &after, policy);
        let (plan_id, target) = (plan.id.clone(), plan.to.clone());
        let desired = Desired {
            format: 1,
            spec_version: "v2".to_owned(),
            plan: plan_id,
            target,
            deletion_protection: false,
            manual_since: None,
            accepted: None,
            snapshots: None,
            set_aside: None,
        };
        let mut groups = BTreeMap::new();
        for (role, node) in before.roles.iter().chain(&after.roles) {
            // Other credentials make another launch template, too.
            let current = !whom(role);
            let name = match role {
                Role::Etcd(index) => format!("c-etcd-{index}"),
                Role::Controller | Role::Pool(_) | Role::Admin => node.stack.clone(),
            };
            let lifecycle = Lifecycle::InService;
            let machine = Machine { zone: "a", lifecycle, current, until: None, target_from: 0 };
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
            sent: 0,
            targets_asked: BTreeSet::new(),
            leader: "etcd-1.0".to_owned(),
            boots: 2,
            checks: 0,
            silent: BTreeSet::new(),
            hanging: BTreeSet::new(),
            ill: BTreeSet::new(),
            stuck: BTreeSet::new(),
            api_down: None,
            unready: BTreeSet::new(),
            unregistered: BTreeSet::new(),
            members_down: BTreeSet::new(),
            unanswered: BTreeMap::new(),
            alarm: false,
            deaf: false,
            launches: true,
            launches_in: "a",
            behind: 0,
            failing: BTreeMap::new(),
            launched: 0,
            pace: 1,
            asks: LastAsks::default(),
            report: Report::default(),
        }
    }

    /// All certificates expire that many hours after the beginning, or have expired that long before it.
    fn ends_in(mut self, hours: i64) -> Self {
        let ends = Timestamp::from_second(1_000_000 + 3_600 * hours).unwrap();
        let roles = self.wanted.release.roles.keys().filter(|role| !is_worker(role));
        let deadline =
            Deadline { ends: roles.map(|role| (role.clone(), ends)).collect(), lead_s: 48 * 3_600 };
        self.wanted.plan =
            self.wanted.plan.clone().with_renewal(&RenewalPlan { deadline, ..RenewalPlan::default() });
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
                raft_lag: serves.then_some(0),
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
            raft_lag: Some(self.behind),
            members: groups.map(member).collect(),
            alarms: self.alarm.then_some(alarm).into_iter().collect(),
            ..EtcdHealth::default()
        };
        serde_json::to_value(health).unwrap()
    }

    /// What a controller says of the whole cluster.
    fn cluster_serves(&self, without: &BTreeSet<String>) -> Value {
        let nodes = self.groups.iter().filter_map(|(name, group)| {
            let role = match name.strip_prefix("c-")? {
                "control-plane" => "controller".to_owned(),
                pool if pool.starts_with("pool-") => pool.to_owned(),
                _ => return None,
            };
            // The Node of a machine that is being terminated stays for a while.
            let nodes =
                group.machines.keys().filter(|id| !without.contains(*id) && !self.unregistered.contains(*id));
            let nodes: Vec<&String> = nodes.collect();
            let unready: Vec<&&String> = nodes.iter().filter(|id| self.unready.contains(**id)).collect();
            let ready = nodes.len() - unready.len();
            let not_ready = unready.iter().map(|id| json!({"node": id, "why": "no network"}));
            let not_ready: Vec<Value> = not_ready.collect();
            Some((role, json!({"registered": nodes.len(), "ready": ready, "notReady": not_ready})))
        });
        let members = self.groups.keys().filter_map(|name| name.strip_prefix("c-etcd-"));
        let members = members.map(|number| {
            let name = format!("etcd-{number}");
            let serves = !self.members_down.contains(&name);
            (name, json!({"healthy": serves}))
        });
        let etcd: serde_json::Map<_, _> = members.collect();
        let api_server = json!({"healthy": self.api_down.is_none(), "problem": self.api_down});
        let well = json!({"healthy": true});
        json!({
            "apiServer": api_server, "controllerManager": well, "scheduler": well, "nodeManager": well, "etcd": etcd,
            "nodes": nodes.collect::<serde_json::Map<_, _>>(),
        })
    }

    fn answer(&mut self, command: &Command) -> Result<Value, &'static str> {
        let id = command.instance.clone();
        let document = command.verb.document();
        if let Some(left) = self.failing.get_mut(document).filter(|left| **left > 0) {
            *left -= 1;
            return Err("it does not want to");
        }
        match &command.verb {
            Verb::EtcdHealth => {
                self.sent += 1;
                Ok(self.health(&id))
            }
            Verb::Serves { without } => {
                self.sent += 1;
                Ok(self.cluster_serves(without))
            }
            Verb::Status => {
                self.sent += 1;
                Ok(json!({
                    "format": 1, "at": "1970-01-01T00:00:00Z", "cluster": "c", "role": "controller", "healthy": true,
                    "applied": {"matchesNodeFile": true}, "served": [], "held": [],
                    "components": [{"name": "kube-apiserver", "healthy": true}],
                }))
            }
            Verb::Refresh { credentials, restart } => {
                self.log
                    .push(format!("{id} takes {credentials}{}", if *restart { ", restarts" } else { "" }));
                let target_from = self.now + 60 * self.checks;
                let machines = self.groups.values_mut().flat_map(|group| &mut group.machines);
                for (_, machine) in machines.filter(|(one, _)| **one == id && *restart) {
                    machine.target_from = target_from;
                }
                Ok(json!({"changed": true, "credentials": credentials}))
            }
            Verb::EtcdMoveLeader => {
                self.log.push(format!("{id} leads no more"));
                let others = self.groups.iter().filter(|(name, _)| name.starts_with("c-etcd-"));
                let mut others =
                    others.flat_map(|(_, group)| group.machines.keys()).filter(|one| **one != id);
                self.leader = others.next().cloned().unwrap_or_default();
                Ok(json!({"moved": true, "leader": "1"}))
            }
            Verb::EtcdSnapshot => {
                self.log.push(format!("{id} takes a snapshot"));
                Ok(json!({"time": "t", "key": "clusters/c/etcd-snapshots/t"}))
            }
            Verb::EtcdRetire | Verb::EtcdRemove { .. } => panic!("no member leaves"),
            Verb::EtcdRestore { .. } | Verb::EtcdDefragment | Verb::Logs { .. } => {
                panic!("only people send it")
            }
            Verb::Uncordon { node } => {
                self.log.push(format!("{node} takes pods again"));
                Ok(json!({"node": node, "cordoned": false}))
            }
            Verb::Drain { node, .. } => {
                // Once it waits in its terminate hook, because a person may have uncordoned it.
                let goes = format!("{node} goes");
                let is_again = self.log.iter().any(|line| line.starts_with(&goes));
                self.log.push(match is_again {
                    true => format!("{node} is drained again"),
                    false => format!("{id} drains {node}"),
                });
                let done = !self.stuck.contains(node);
                let waiting = json!([{"pod": "shop/app", "cause": "budget", "why": "its budget"}]);
                Ok(json!({"node": node, "done": done, "waiting": if done { json!([]) } else { waiting }}))
            }
        }
    }

    /// Adds the target health of a group's machines.
    fn with_targets(&self, name: &str, seen: GroupView) -> GroupView {
        let machines = self.groups[name].machines.iter();
        let state = |(id, one): (&String, &Machine)| {
            let is_healthy = one.target_from <= self.now;
            let initial = TargetState::NotHealthy("initial (Elb.InitialHealthChecking)".to_owned());
            (id.clone(), if is_healthy { TargetState::Healthy } else { initial })
        };
        let said = machines.filter(|(_, one)| one.lifecycle == Lifecycle::InService).map(state).collect();
        seen.with_target_health(&BTreeMap::from([(TARGETS.to_owned(), Some(said))]))
    }

    /// Machines of a group in service with healthy targets.
    fn targets(&self, name: &str) -> BTreeSet<String> {
        let machines = self.groups[name].machines.iter();
        let is_target = |one: &Machine| one.lifecycle == Lifecycle::InService && one.target_from <= self.now;
        machines.filter(|(_, one)| is_target(one)).map(|(id, _)| id.clone()).collect()
    }

    /// One minute passes, and the rollout is woken.
    fn wake(&mut self, order: Option<Order>) {
        let decision = self.decides(order);
        self.performs(decision.effects);
        self.state = Rollout { outbox: Vec::new(), ..decision.next };
        self.report = decision.report;
    }

    /// One minute passes, and the rollout decides.
    fn decides(&mut self, order: Option<Order>) -> Decision {
        self.now += 60 * self.pace;
        self.time_goes_by();
        let now = Timestamp::from_second(self.now).unwrap();
        if let Some(order) = order {
            let (state, given) = (self.state.clone(), Given { order, at: now });
            self.state = self.fake.after_order_performed(state, &given, Some(&self.wanted), now);
        }
        let look = to_observe(&self.state, Some(&self.wanted), now);
        self.targets_asked.extend(look.targets.iter().cloned());
        let mut observed = self.fake.observe(&look, Some(&self.wanted));
        for name in &look.groups {
            let seen = self.groups.get(name).map(|group| view(name, group, &self.ill));
            let sent = look.targets.contains(name);
            let seen = seen.map(|seen| if sent { self.with_targets(name, seen) } else { seen });
            observed.groups.insert(name.clone(), seen);
        }
        for command in &look.commands {
            observed.answers.insert(command.token.clone(), self.answers.get(&command.token).cloned());
        }
        let decision = decide(&self.state, &observed, now);
        let expired = self.wanted.plan.renewal.deadline.ends.values().any(|ends| *ends <= now);
        self.asks.hold(&decision, expired);
        decision
    }

    fn performs(&mut self, effects: Vec<Effect>) {
        let mut others = Vec::new();
        for effect in effects {
            match effect.clone() {
                Effect::Send(command) => self.send(&command),
                Effect::Cancel(command) => {
                    self.log.push(format!("{} is taken back", command.verb.document()))
                }
                Effect::SetDesired { group, desired } => {
                    self.log.push(format!("{group} wants {desired}"));
                    if !self.deaf {
                        self.groups.get_mut(&group).unwrap().desired = desired;
                    }
                }
                Effect::Terminate { group, instance, then_desired } => {
                    let none = if then_desired.is_some() { ", and none comes" } else { "" };
                    self.log.push(format!("{instance} goes{none}"));
                    self.terminate(&group, &instance, then_desired);
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
    }

    fn send(&mut self, command: &Command) {
        assert!(!self.answers.contains_key(&command.token), "{} is sent twice", command.token);
        if self.hanging.contains(&command.instance) {
            self.answers.insert(command.token.clone(), CommandView::InProgress);
            return;
        }
        let asks = matches!(command.verb, Verb::Serves { .. });
        if let Some(how) = self.unanswered.get(&command.instance).filter(|_| asks) {
            let unanswered = Unanswered { how: *how, problem: None };
            self.answers.insert(command.token.clone(), CommandView::Unanswered(unanswered));
            return;
        }
        let up = self.serves(&command.instance);
        let said = if up { self.answer(command) } else { Err("lost") };
        let view = match said {
            Ok(answer) => CommandView::Answered(Answer::read(&command.verb, answer).unwrap()),
            Err(why) => CommandView::Failed(VerbFailure::transient(FailureCode::AwsDenied, why, "look")),
        };
        self.answers.insert(command.token.clone(), view);
    }

    fn terminate(&mut self, name: &str, id: &str, then_desired: Option<u32>) {
        let group = self.groups.get_mut(name).unwrap();
        // Like the port: Auto Scaling can only decrement by one.
        group.desired -= u32::from(then_desired.is_some_and(|least| group.desired > least));
        let machine = group.machines.get_mut(id).unwrap();
        let waits = name.contains("-pool-");
        machine.lifecycle = if waits { Lifecycle::TerminatingWait } else { Lifecycle::Terminating };
    }

    fn time_goes_by(&mut self) {
        let (now, boots, checks) = (self.now, self.boots, self.checks);
        for (name, group) in &mut self.groups {
            group.machines.retain(|_, one| one.lifecycle != Lifecycle::Terminating);
            for one in group.machines.values_mut().filter(|one| one.until.is_some_and(|until| until <= now)) {
                (one.lifecycle, one.until) = (Lifecycle::InService, None);
                one.target_from = now + 60 * checks;
            }
            let counts = |one: &&Machine| matches!(one.lifecycle, Lifecycle::Pending | Lifecycle::InService);
            while self.launches && (group.machines.values().filter(counts).count() as u32) < group.desired {
                self.launched += 1;
                let (until, role) = (Some(now + 60 * boots), name.trim_start_matches("c-"));
                let role = if role == "control-plane" { "controller" } else { role };
                let lifecycle = Lifecycle::Pending;
                let one = Machine { zone: self.launches_in, lifecycle, current: true, until, target_from: 0 };
                group.machines.insert(format!("{role}.new{}", self.launched), one);
            }
        }
    }

    /// Runs until a surplus worker of the pool is being drained, with a slow drain. Returns the worker.
    fn drains_one_too_many(&mut self) -> String {
        loop {
            self.wake(None);
            self.stuck.extend(self.groups["c-pool-a"].machines.keys().cloned());
            let mut departures = self.state.departures.iter();
            if let Some((id, _)) = departures.find(|(_, one)| one.is_surplus()) {
                return id.clone();
            }
            self.stuck.clear();
        }
    }

    /// Runs until the rollout ends, or for a day. Returns the result.
    fn run(&mut self) -> &'static str {
        for _ in 0..400 {
            self.wake(None);
            if self.state.active().is_none() && self.state.departures.is_empty() {
                return self.report.state.as_str();
            }
        }
        panic!("it never ends: {}", self.report.message);
    }

    fn in_order(&self) -> Vec<&str> {
        self.log.iter().map(String::as_str).collect()
    }
}

fn view(name: &str, group: &Group, ill: &BTreeSet<String>) -> GroupView {
    let template =
        |current: bool| TemplateVersion { id: "lt".to_owned(), version: u8::from(current).to_string() };
    let machine = |(id, one): (&String, &Machine)| {
        let view = MachineView {
            zone: one.zone.to_owned(),
            lifecycle: one.lifecycle,
            healthy: !ill.contains(id),
            template: Some(template(one.current)),
            target: TargetHealth::NotAsked,
            weight: 1,
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
        target_groups: BTreeSet::from([TARGETS.to_owned()]),
        launch_suspended: false,
        machine_arns: MachineArns::new("eu-west-1", "123456789012"),
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

/// The minute of the day when [`Yard`] begins.
fn minute_of_day(second: i64) -> u16 {
    u16::try_from(second.rem_euclid(86_400) / 60).unwrap()
}
