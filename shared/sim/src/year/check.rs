//! The checker: what must hold at every moment, judged by the world and by what was done to it. It shares no code with the decision. Plans,
//! specs and orders are only input for it; it observes everything else itself.
//!
//! A decision is based on an observation that is a little old, so the checker ignores what broke within [`Checker::grace`] before. In a
//! world without faults, that time is zero.

mod cordons;
mod ends;
mod evidence;
mod membership;
mod observe;
mod pods;
mod repairs;
mod serves;
mod stops;
mod surge;
mod target;
mod targets;
mod tries;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use slipway_core::node::{Command, Verb};

use super::acts::Act;
use super::rules::Rules;
use super::skew::Skew;
use super::validity::Validity;
use crate::world::{ClusterFacts, MachineFacts, World};
use cordons::Cordons;
use ends::Ends;
pub(super) use ends::remaining_resources;
use evidence::Leader;
use serves::Serving;
pub(super) use stops::Stops;
use surge::Surges;
use target::{Approvals, Spent, Target};
pub(super) use target::{Begun, End, Knowledge};
use tries::Tried;

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// When it was broken.
    pub at: Timestamp,
    /// `P4`.
    pub promise: &'static str,
    /// What happened.
    pub what: String,
}

/// The age that the facts behind an act may have: the evidence counts for three minutes, the answers may show what was half a minute before,
/// and the invocation that acts may live for a minute.
const GRACE: SignedDuration = SignedDuration::from_secs(180 + 30 + 60);
/// The same for a worker, of which only Auto Scaling speaks: it notices a death after up to three minutes.
const WORKER_GRACE: SignedDuration = SignedDuration::from_mins(6);
/// The maximum age of a snapshot when a member is taken down (P4).
const SNAPSHOT: SignedDuration = SignedDuration::from_mins(15);
/// How long a command that makes a machine install its credentials may take.
const RESTARTS: SignedDuration = SignedDuration::from_mins(20);

/// How far clocks may differ, plus the time that an event takes.
const CLOCKS: SignedDuration = SignedDuration::from_secs(10);

/// The time between two scans, which report the certificates in use once a day.
const SCANNED: SignedDuration = SignedDuration::from_hours(25);

/// The maximum duration of an invocation: an act at its end may follow from an observation at its beginning.
const INVOCATION: SignedDuration = SignedDuration::from_secs(60);

/// A machine that Slipway took down or had restarted, and that has no replacement yet.
#[derive(Debug, Clone)]
struct Taken {
    machine: String,
    role: String,
    at: Timestamp,
    /// For a restart: the credentials that the machine installs, and the token of the command.
    restart: Option<(String, String)>,
}

/// The checker.
#[derive(Debug, Clone)]
pub struct Checker {
    cluster: String,
    /// What the spec asks for.
    pub rules: Rules,
    /// Whether faults happen in this world.
    pub faults: bool,
    /// All broken promises.
    pub violations: Vec<Violation>,
    /// The healthy members, and the ids of healthy machines.
    well: BTreeSet<String>,
    /// When each was last healthy.
    last_well: BTreeMap<String, Timestamp>,
    /// When load balancers last sent requests to each controller.
    last_target: BTreeMap<String, Timestamp>,
    machines: BTreeMap<String, MachineFacts>,
    /// The cluster at the last observation.
    facts: Option<ClusterFacts>,
    /// The role of every machine that ever existed.
    roles: BTreeMap<String, String>,
    taken: Vec<Taken>,
    surges: Surges,
    /// Machines that were ordered to be drained, and when this was first ordered.
    drained: BTreeMap<String, Timestamp>,
    cordons: Cordons,
    /// Machines that became nodes, and when, if they were already being terminated.
    joined: BTreeMap<String, Option<Timestamp>>,
    /// Retained machines that were terminated.
    kept_no_more: BTreeSet<String>,
    /// Machines whose terminate hook was completed, and when.
    released: BTreeMap<String, Timestamp>,
    /// The tokens of all commands that were sent. A function sends a command again if an earlier one died.
    sent: BTreeSet<String>,
    losses: usize,
    /// The number of pod removals that were checked.
    removals: usize,
    /// The number of reports of unhealthy workers that were checked.
    reported: usize,
    /// When a pod of each machine was last deleted against its budget.
    forced_at: BTreeMap<String, Timestamp>,
    /// When each member was last asked about its health, by its machine.
    asked: BTreeMap<String, Timestamp>,
    /// The open rollout as the bus reports it, and since when.
    target: Option<Target>,
    /// How machines installed their credentials in that rollout.
    tried: Tried,
    /// The rollouts that did not succeed.
    spent: Spent,
    /// Since when no pod may be evicted, except from machines that Auto Scaling terminates.
    stood_still_at: Option<Timestamp>,
    begun_at: Option<Timestamp>,
    paused_at: Option<Timestamp>,
    resumed_at: Option<Timestamp>,
    aborted: bool,
    /// Since when an alarm of etcd has been raised.
    alarmed_at: Option<Timestamp>,
    skipped: BTreeSet<String>,
    /// Skipped machines whose certificates expired.
    expired_while_skipped: BTreeSet<String>,
    approvals: Approvals,
    ends: Ends,
    /// Whether the cluster has been launched.
    pub stands: bool,
    /// The versions in each configuration.
    pub skew: Skew,
    /// The validity of the certificates in use.
    pub validity: Validity,
    /// The members of etcd at the last observation, and whether each had a vote.
    members: BTreeMap<String, bool>,
    /// Members that a plan has added.
    may_join: BTreeSet<String>,
    /// When a certificate in use was last so close to its expiry that its renewal is urgent.
    hurried_at: Option<Timestamp>,
    /// When a certificate in use was last expired.
    expired_at: Option<Timestamp>,
    /// Which parts of the cluster serve, and when each last did.
    serving: Serving,
    led: Option<Leader>,
}

impl Checker {
    /// A checker that knows the rules and has observed nothing yet.
    #[must_use]
    pub fn new(cluster: &str, rules: Rules, faults: bool) -> Self {
        Self {
            cluster: cluster.to_owned(),
            rules,
            faults,
            violations: Vec::new(),
            well: BTreeSet::new(),
            last_well: BTreeMap::new(),
            last_target: BTreeMap::new(),
            machines: BTreeMap::new(),
            facts: None,
            roles: BTreeMap::new(),
            taken: Vec::new(),
            surges: Surges::default(),
            drained: BTreeMap::new(),
            cordons: Cordons::default(),
            joined: BTreeMap::new(),
            kept_no_more: BTreeSet::new(),
            released: BTreeMap::new(),
            sent: BTreeSet::new(),
            losses: 0,
            removals: 0,
            reported: 0,
            forced_at: BTreeMap::new(),
            asked: BTreeMap::new(),
            target: None,
            tried: Tried::default(),
            spent: Spent::default(),
            stood_still_at: None,
            begun_at: None,
            paused_at: None,
            resumed_at: None,
            aborted: false,
            alarmed_at: None,
            skipped: BTreeSet::new(),
            expired_while_skipped: BTreeSet::new(),
            approvals: Approvals::default(),
            ends: Ends::default(),
            stands: false,
            skew: Skew::default(),
            validity: Validity::default(),
            members: BTreeMap::new(),
            may_join: BTreeSet::new(),
            hurried_at: None,
            expired_at: None,
            serving: Serving::default(),
            led: None,
        }
    }

    fn grace(&self) -> SignedDuration {
        if self.faults { GRACE } else { SignedDuration::ZERO }
    }

    /// Records a broken promise.
    pub fn wrong(&mut self, at: Timestamp, promise: &'static str, what: String) {
        self.violations.push(Violation { at, promise, what });
    }

    /// From now on faults happen.
    pub fn breaks(&mut self) {
        self.faults = true;
    }

    /// Whether `who` is healthy, or was until so recently that no decision could know otherwise.
    fn counts_as_well(&self, who: &str, now: Timestamp) -> bool {
        let known = self.may_know(who);
        self.last_well.get(who).is_some_and(|at| now.duration_since(*at) <= known)
    }

    /// Checks the acts of an invocation in order. The last observation is from before the acts. Each act is judged by the `knowledge`
    /// that the invocation had at that time.
    pub(super) fn acts(&mut self, world: &World, acts: &[Act], knowledge: Knowledge) {
        if acts.is_empty() {
            return;
        }
        let Some(facts) = self.facts.take() else { return };
        let facts = &facts;
        self.nothing_twice(acts, world.now());
        for (at, act) in acts.iter().enumerate() {
            let then = knowledge.unheard.as_ref().filter(|(of, _)| of.contains(&at)).map(|(_, then)| then);
            let now = then.map(|then| {
                let now = self.stops();
                self.order_not_received(now.as_of(then));
                now
            });
            let earlier = knowledge.earlier.as_ref().filter(|earlier| at < earlier.until);
            let newer = earlier.map(|earlier| self.target.replace(earlier.target.clone()));
            self.act(world, facts, act);
            if let Some(newer) = newer {
                self.target = newer;
            }
            now.into_iter().for_each(|now| self.order_not_received(now));
        }
    }

    fn act(&mut self, world: &World, facts: &ClusterFacts, act: &Act) {
        if self.withdraws(world, act) || self.ends_by(world, facts, act) {
            return;
        }
        self.may_start(world, act);
        match act {
            Act::Terminate(group, machine, shrinks) => {
                self.terminates(world, facts, group, machine);
                if *shrinks {
                    self.surges.shrunk(group);
                }
            }
            Act::Send(command) => self.sends(world, facts, command),
            Act::SetDesired(group, desired) => self.sizes(world, facts, group, *desired),
            Act::Execute(stack, _) => {
                self.joins_with_a_snapshot(facts, stack, world.now());
                self.changes(stack, true, world.now());
            }
            Act::CreateChangeSet(stack, _) => self.changes(stack, false, world.now()),
            Act::Complete(_, machine) => self.completes(facts, machine, world.now()),
            Act::DeleteStack(id, stands) => self.deletes(facts, id, *stands, world.now()),
        }
    }

    /// P8: a machine does not get the same command twice at once. A retry after a dead invocation has the same token.
    fn nothing_twice(&mut self, acts: &[Act], now: Timestamp) {
        let mut sent = BTreeMap::new();
        for act in acts {
            let Act::Send(command) = act else { continue };
            // A command that was sent before and is only recorded again may have its answer by now, so that the next one follows.
            if !self.sent.insert(command.token.clone()) {
                continue;
            }
            // Queries may be repeated, and a rollout that follows another one at once takes a snapshot of its own.
            if matches!(
                command.verb,
                Verb::Status | Verb::Serves { .. } | Verb::EtcdHealth | Verb::EtcdSnapshot | Verb::EtcdRetire
            ) {
                continue;
            }
            let token = sent.entry((&command.instance, &command.verb)).or_insert(&command.token);
            if *token != &command.token {
                self.wrong(now, "P8", format!("{act}, twice at once"));
            }
        }
    }

    /// P10: nothing begins after a pause or an abort, or when nothing is open.
    fn may_start(&mut self, world: &World, act: &Act) {
        let now = world.now();
        // Auto Scaling's own termination is not part of a rollout; a pause still holds the drain, unless EC2 interrupts the machine. A
        // machine that is gone, which a late answer did not show, has no pods.
        let goes_anyway = |node: &String| {
            let machines = world.machines();
            let machine = machines.iter().find(|one| one.id == *node);
            machine.is_some_and(|one| one.interrupted)
                || machine.is_none_or(|one| one.leaving) && !self.is_paused()
        };
        let begins = match act {
            Act::Send(command) => match command.verb {
                Verb::Refresh { .. }
                | Verb::EtcdMoveLeader
                | Verb::EtcdSnapshot
                | Verb::EtcdRemove { .. }
                | Verb::EtcdRetire
                | Verb::EtcdRestore { .. }
                | Verb::EtcdDefragment
                | Verb::Logs { .. } => true,
                Verb::Drain { ref node, .. } => !goes_anyway(node),
                // Uncordoning evicts, ends and makes nothing; it is part of stopping.
                Verb::Status | Verb::Serves { .. } | Verb::EtcdHealth | Verb::Uncordon { .. } => false,
            },
            // A retained machine was being terminated already. Somebody has to terminate it, and does so again after a function died.
            Act::Terminate(_, machine, _) => {
                if self.machines.get(machine).is_some_and(|one| one.retained) {
                    self.kept_no_more.insert(machine.clone());
                }
                !self.kept_no_more.contains(machine)
            }
            Act::SetDesired(..) | Act::CreateChangeSet(..) | Act::Execute(..) => true,
            // The deletion of a stack that never came to be is part of stopping.
            Act::DeleteStack(_, stands) => *stands,
            Act::Complete(..) => false,
        };
        if !begins {
            return;
        }
        let why = if self.target.is_none() {
            "no rollout is open".to_owned()
        } else if self.aborted {
            "it was aborted".to_owned()
        } else if self.is_paused() {
            "it is paused".to_owned()
        } else if let Some(stack) = self.known_failure(now) {
            format!("{stack} has failed")
        } else {
            return self.note_going_on();
        };
        self.wrong(now, "P10", format!("{act} although {why}"));
    }

    /// Whether a certificate in use expires so soon that its renewal ignores windows and approval.
    fn is_hurried(&self, now: Timestamp) -> bool {
        self.hurried_at.is_some_and(|at| now.duration_since(at) <= CLOCKS + INVOCATION)
    }

    /// Whether that was so within the last day: plans use the newest scan, and there is one a day.
    fn was_hurried(&self, now: Timestamp) -> bool {
        self.hurried_at.is_some_and(|at| now.duration_since(at) <= SCANNED)
    }

    /// Whether a certificate in use has expired, or had expired before the machine was told to install another.
    fn has_expired(&self, now: Timestamp) -> bool {
        self.expired_at.is_some_and(|at| now.duration_since(at) <= RESTARTS)
    }

    fn terminates(&mut self, world: &World, facts: &ClusterFacts, group: &str, id: &str) {
        let now = world.now();
        let Some(machine) = self.machines.get(id).cloned() else { return };
        // A machine that is already being terminated is not terminated again. A machine that never served matters to nobody.
        if machine.leaving || self.has_terminated(id) {
            return;
        }
        let role = machine.role.as_str();
        if !self.may_go(world, &machine) {
            self.wrong(now, "P2", format!("{id}, a {role}, is terminated, and is as the spec wants it"));
        }
        self.touches(&machine, false, now);
        if self.skipped.contains(id) {
            self.wrong(now, "P10", format!("{id} is terminated although a person said to leave it"));
        }
        let of_group = self.machines.values().filter(|one| one.group == group && !one.leaving).count();
        if let Some(facts) = world.group_facts(group)
            && machine.template == facts.template
            && of_group <= self.rules.size(role).max(1)
        {
            self.wrong(
                now,
                "P2",
                format!("{id}, a {role}, is terminated although its group would launch the same"),
            );
        }
        if machine.ready {
            self.takes(facts, &machine, false, now);
            self.is_canary(facts, &machine, true, now);
            let pods = facts.pods.get(id).copied().unwrap_or_default();
            if pods > 0 && !self.cordons.was_uncordoned(id) {
                self.wrong(now, "P6", format!("{id} is terminated with {pods} pods on it"));
            }
        }
        let at = now;
        self.taken.push(Taken { machine: id.to_owned(), role: role.to_owned(), at, restart: None });
    }

    /// Slipway makes a machine that serves stop serving.
    fn takes(&mut self, facts: &ClusterFacts, machine: &MachineFacts, restart: bool, now: Timestamp) {
        let role = machine.role.clone();
        let other: Vec<String> = self
            .taken
            .iter()
            .filter(|taken| taken.machine != machine.id && taken.role != role)
            .map(|taken| taken.role.clone())
            .collect();
        let is_member = role.starts_with("etcd-");
        let busy =
            other.iter().find(|one| is_member || !one.starts_with("pool-") || !role.starts_with("pool-"));
        if let Some(busy) = busy.filter(|_| !(restart && self.has_expired(now))) {
            self.wrong(now, "P8", format!("{role} is taken down while {busy} is not back"));
        }
        if is_member {
            self.takes_member(facts, &role, restart, now);
        } else if role == "controller" {
            self.takes_controller(&machine.id, restart, now);
            self.takes_target(&machine.id, restart, now);
        } else if !restart {
            let down =
                self.taken.iter().filter(|taken| taken.role == role && taken.restart.is_none()).count() + 1;
            // Machines that died by themselves are missing, too, but not because of Slipway.
            let mine = |id: &String| self.taken.iter().any(|taken| taken.machine == *id);
            let of_role = self.machines.values().filter(|one| one.role == role && one.id != machine.id);
            let size = self.rules.size(&role).max(of_role.clone().count() + 1);
            let died = of_role.filter(|one| one.leaving && !mine(&one.id)).count();
            let may = self.rules.max_missing(&role, size) + if self.faults { died } else { 0 };
            // If surge machines can replace it, this was checked when its drain began.
            let stood_in_for = self.rules.has_surge(&role) && self.drained.contains_key(&machine.id);
            if down > may && !stood_in_for {
                self.wrong(now, "P6", format!("{down} machines of {role} are away, and {may} may be"));
            }
        }
        // Windows limit the beginning: a replacement whose drain began in a window may continue.
        if restart || !self.drained.contains_key(&machine.id) {
            self.in_window(&role, Some(machine), now);
        }
    }

    fn takes_member(&mut self, facts: &ClusterFacts, role: &str, restart: bool, now: Timestamp) {
        let mut others: Vec<&String> = facts.members.keys().filter(|one| *one != role).collect();
        others.retain(|one| {
            let taken = self.taken.iter().any(|taken| taken.role == **one);
            taken || !self.counts_as_well(one, now)
        });
        let excused = restart && self.has_expired(now);
        if !others.is_empty() && !excused {
            let what = format!("{role} is taken down while {others:?} do not serve");
            self.wrong(now, "P4", what);
        }
        if !excused {
            self.quiet_of_alarms(facts, role, now);
        }
        // If certificates have expired, the members may have no majority, and give no answers.
        if !excused {
            self.knows_of_the_others(facts, role, now);
        }
        if !self.has_snapshot(facts, now) && !excused {
            self.wrong(
                now,
                "P4",
                format!("{role} is taken down without a snapshot of the last quarter of an hour"),
            );
        }
        if self.is_known_to_lead(role, now) && facts.members.len() > 1 && !restart {
            self.wrong(now, "P4", format!("{role} is taken down while it leads"));
        }
    }

    fn takes_controller(&mut self, id: &str, restart: bool, now: Timestamp) {
        let taken = |id: &String| self.taken.iter().any(|taken| taken.machine == *id);
        let controllers =
            self.last_well.keys().filter(|who| self.roles.get(*who).is_some_and(|role| role == "controller"));
        let others = controllers.filter(|who| *who != id && !taken(who) && self.counts_as_well(who, now));
        let (serve, wanted) = (others.count(), self.rules.controllers);
        let needed = if wanted == 1 { 1 } else { wanted - 1 };
        if serve < needed && !(restart && self.has_expired(now)) {
            self.wrong(
                now,
                "P5",
                format!("{id} is taken down while {serve} other API servers serve of {wanted}"),
            );
        }
    }

    /// Windows hold everything except the renewal of a machine whose certificates expire soon.
    fn in_window(&mut self, what: &str, machine: Option<&MachineFacts>, now: Timestamp) {
        let renews =
            machine.zip(self.target.as_ref()).is_some_and(|(machine, target)| target.renews(machine));
        if (renews && self.is_hurried(now)) || self.rules.is_open(now, self.grace()) {
            return;
        }
        self.wrong(now, "§9", format!("{what} is taken down outside of the maintenance windows"));
    }

    fn sends(&mut self, world: &World, facts: &ClusterFacts, command: &Command) {
        let now = world.now();
        self.note_try(command, now);
        match &command.verb {
            Verb::Refresh { restart, credentials } => {
                let Some(machine) = self.machines.get(&command.instance).cloned() else { return };
                let wants =
                    self.target.as_ref().is_some_and(|target| target.wants(&machine.role, credentials));
                if !wants {
                    let what = format!(
                        "{} of {} is refreshed, and the spec has other credentials for it",
                        machine.id, machine.role
                    );
                    self.wrong(now, "P2", what);
                }
                self.touches(&machine, true, now);
                let again = self.taken.iter().any(|taken| taken.machine == machine.id);
                if self.skipped.contains(&machine.id) {
                    self.wrong(
                        now,
                        "P10",
                        format!("{} is refreshed although a person said to leave it", machine.id),
                    );
                }
                // A machine that already has these credentials restarts nothing.
                let takes = machine.credentials != *credentials;
                if takes && *restart && machine.ready && !machine.role.starts_with("pool-") && !again {
                    self.takes(facts, &machine, true, now);
                    self.taken.push(Taken {
                        machine: machine.id,
                        role: machine.role,
                        at: now,
                        restart: Some((credentials.clone(), command.token.clone())),
                    });
                }
            }
            Verb::Drain { node, force_after_s, .. } => {
                let role = self.roles.get(node).cloned().unwrap_or_default();
                let least = self.rules.forces_after(&role);
                let given = force_after_s.map(|after| SignedDuration::from_secs(i64::from(after)));
                if given.is_some_and(|after| least.is_none_or(|least| after < least)) {
                    self.wrong(
                        now,
                        "P6",
                        format!("the drain of {node} may use force sooner than the spec lets it, or the spec never does"),
                    );
                }
                let Some(machine) = self.machines.get(node).cloned() else { return };
                self.cordons.drains(node, &command.token);
                let is_first = !self.drained.contains_key(node);
                self.drained.entry(node.clone()).or_insert(now);
                // Auto Scaling terminates this machine, perhaps since this very moment, or EC2 interrupts it: the drain only helps.
                if machine.goes_anyway() || self.has_terminated(node) {
                    self.others_take_the_canary(&machine);
                    return;
                }
                if !self.may_go(world, &machine) && !self.is_to_go(&machine.role) {
                    let what = format!("{node}, a {}, is drained, and is as the spec wants it", machine.role);
                    self.wrong(now, "P2", what);
                }
                self.touches(&machine, false, now);
                self.is_canary(facts, &machine, false, now);
                if self.skipped.contains(node) {
                    self.wrong(now, "P10", format!("{node} is drained although a person said to leave it"));
                }
                self.note_begun(&machine.role);
                if is_first {
                    self.may_miss_one(&machine, now);
                    self.in_window(&machine.role, Some(&machine), now);
                }
            }
            Verb::EtcdRemove { member } => self.takes_out(facts, member, now),
            Verb::EtcdHealth => self.asks_for_health(&command.instance, now),
            Verb::EtcdMoveLeader => self.is_to_hand_over(&command.instance),
            // A later drain is a new one.
            Verb::Uncordon { node } => drop(self.drained.remove(node)),
            Verb::Status | Verb::Serves { .. } | Verb::EtcdSnapshot | Verb::EtcdRetire => {}
            Verb::EtcdRestore { .. } | Verb::EtcdDefragment | Verb::Logs { .. } => {
                self.wrong(now, "P4", "a rollout sends what only people send".to_owned())
            }
        }
    }
}
