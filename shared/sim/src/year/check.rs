//! The checker: what must hold at every moment, read off the world and off what was done to it. It shares nothing with the decision:
//! what a plan, a spec and an order say is data to it, and all else it sees for itself.
//!
//! Whoever decides saw the world some moments before it is acted upon, so what breaks by itself in between is nobody's mistake:
//! [`Checker::grace`] says for how long. In a world without faults it is nothing.

mod ends;
mod evidence;
mod looks;
mod membership;
mod pods;
mod refreshes;
mod stops;
mod surge;
mod target;
mod targets;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use slipway_core::node::{Command, Verb};

use super::acts::Act;
use super::rules::Rules;
use super::skew::Skew;
use super::validity::Validity;
use crate::world::{ClusterFacts, MachineFacts, World};
use ends::Ends;
pub(super) use ends::left_behind;
use refreshes::Refreshes;
use stops::Stops;
use surge::Surges;
pub(super) use target::{Begun, Told};
use target::{Spent, Target};

/// What was seen to be wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// When.
    pub at: Timestamp,
    /// `P4`.
    pub promise: &'static str,
    /// What.
    pub what: String,
}

/// How old what machines told may be when one is taken down, what an invocation that dies may add to it, and an hour's quarter of the
/// clock's own error: what is decided by is never older.
const GRACE: SignedDuration = SignedDuration::from_mins(6);
/// How old a snapshot may be when a member goes (P4).
const SNAPSHOT: SignedDuration = SignedDuration::from_mins(15);
/// For how long a machine may be told to take its credentials before it does.
const RESTARTS: SignedDuration = SignedDuration::from_mins(20);

/// How far clocks may be apart, and how long an event takes.
const CLOCKS: SignedDuration = SignedDuration::from_secs(10);

/// A scan says what machines have in force, once a day.
const SCANNED: SignedDuration = SignedDuration::from_hours(25);

/// How long an invocation may take: what it does at its end it may have decided at its beginning.
const INVOCATION: SignedDuration = SignedDuration::from_secs(60);

/// A machine that we took down, or had started anew, and that nobody stands in for yet.
#[derive(Debug, Clone)]
struct Taken {
    machine: String,
    role: String,
    at: Timestamp,
    /// It is only started anew, to have these credentials; and by which command, by its token.
    restart: Option<(String, String)>,
}

/// Whoever looks.
#[derive(Debug, Clone)]
pub struct Checker {
    cluster: String,
    /// What the spec asks for.
    pub rules: Rules,
    /// Whether anything goes wrong by itself in this world.
    pub faults: bool,
    /// All that was wrong.
    pub violations: Vec<Violation>,
    /// Members, and machines by their id, that are well.
    well: BTreeSet<String>,
    /// When each was well last.
    last_well: BTreeMap<String, Timestamp>,
    /// When each controller was last one that load balancers send to.
    last_target: BTreeMap<String, Timestamp>,
    machines: BTreeMap<String, MachineFacts>,
    /// The cluster, as it was seen last.
    facts: Option<ClusterFacts>,
    /// The role of every machine that ever was.
    roles: BTreeMap<String, String>,
    taken: Vec<Taken>,
    surges: Surges,
    /// Machines whose pods were asked to go, and when they were first.
    drained: BTreeMap<String, Timestamp>,
    /// Machines that became nodes when they were on their way out already, and when.
    joined: BTreeMap<String, Timestamp>,
    /// Machines that their groups had kept, and that were told to go.
    kept_no_more: BTreeSet<String>,
    /// Machines whose hook was ended, and when.
    released: BTreeMap<String, Timestamp>,
    /// Commands that were sent, by their tokens: a function that takes the place of one that died sends them once more.
    sent: BTreeSet<String>,
    losses: usize,
    /// How many removals of pods were looked at.
    removals: usize,
    /// When a pod of each machine was last deleted against its budget.
    forced_at: BTreeMap<String, Timestamp>,
    /// When each member was asked last how it is, by its machine.
    asked: BTreeMap<String, Timestamp>,
    /// What is rolled out, as the bus has it, and since when.
    target: Option<Target>,
    /// How machines took their credentials in it.
    refreshes: Refreshes,
    /// What did not end well.
    spent: Spent,
    /// Since when nothing is evicted any more but from machines that go by themselves.
    stood_still_at: Option<Timestamp>,
    begun_at: Option<Timestamp>,
    paused_at: Option<Timestamp>,
    resumed_at: Option<Timestamp>,
    aborted: bool,
    /// Since when an alarm of etcd is raised.
    alarmed_at: Option<Timestamp>,
    skipped: BTreeSet<String>,
    /// Machines whose certificates ended while they were to be left as they are.
    ended_as_told: BTreeSet<String>,
    approved: BTreeSet<String>,
    ends: Ends,
    /// Since when the machines of a cluster stand at all.
    pub stands: bool,
    /// What each configuration runs.
    pub skew: Skew,
    /// How long what is in force holds.
    pub validity: Validity,
    /// Members of etcd as they were seen last, and whether they had a vote.
    members: BTreeMap<String, bool>,
    /// Members that a plan has had join.
    may_join: BTreeSet<String>,
    /// When a certificate in force was last so near its end that nothing may hold its renewal up.
    hurried_at: Option<Timestamp>,
    /// When a certificate in force had last ended.
    expired_at: Option<Timestamp>,
}

impl Checker {
    /// One that knows what is asked for, and has seen nothing.
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
            joined: BTreeMap::new(),
            kept_no_more: BTreeSet::new(),
            released: BTreeMap::new(),
            sent: BTreeSet::new(),
            losses: 0,
            removals: 0,
            forced_at: BTreeMap::new(),
            asked: BTreeMap::new(),
            target: None,
            refreshes: Refreshes::default(),
            spent: Spent::default(),
            stood_still_at: None,
            begun_at: None,
            paused_at: None,
            resumed_at: None,
            aborted: false,
            alarmed_at: None,
            skipped: BTreeSet::new(),
            ended_as_told: BTreeSet::new(),
            approved: BTreeSet::new(),
            ends: Ends::default(),
            stands: false,
            skew: Skew::default(),
            validity: Validity::default(),
            members: BTreeMap::new(),
            may_join: BTreeSet::new(),
            hurried_at: None,
            expired_at: None,
        }
    }

    fn grace(&self) -> SignedDuration {
        if self.faults { GRACE } else { SignedDuration::ZERO }
    }

    /// Something is wrong.
    pub fn wrong(&mut self, at: Timestamp, promise: &'static str, what: String) {
        self.violations.push(Violation { at, promise, what });
    }

    /// From now on things break by themselves.
    pub fn breaks(&mut self) {
        self.faults = true;
    }

    /// A person approved a plan, and may have been heard.
    pub fn approved(&mut self, plan: &str) {
        self.approved.insert(plan.to_owned());
    }

    /// Whether `who` is well, or was until so short a time ago that nobody could know.
    fn counts_as_well(&self, who: &str, now: Timestamp) -> bool {
        let known = if who.starts_with("etcd-") { self.evidence_lasts() } else { self.grace() };
        self.last_well.get(who).is_some_and(|at| now.duration_since(*at) <= known)
    }

    /// Looks at what was done in an invocation, one after the other; what was seen last is what was so before it. Each by
    /// what was `told` then.
    pub(super) fn acts(&mut self, world: &World, acts: &[Act], told: Told) {
        if acts.is_empty() {
            return;
        }
        let Some(facts) = self.facts.take() else { return };
        let facts = &facts;
        self.nothing_twice(acts, world.now());
        for (at, act) in acts.iter().enumerate() {
            let then = told.unheard.as_ref().filter(|(of, _)| of.contains(&at)).map(|(_, then)| then);
            let now = then.map(|then| {
                let now = self.stops();
                self.not_heard(now.as_of(then));
                now
            });
            let earlier = told.earlier.as_ref().filter(|earlier| at < earlier.until);
            let newer = earlier.map(|earlier| self.target.replace(earlier.target.clone()));
            self.act(world, facts, act);
            if let Some(newer) = newer {
                self.target = newer;
            }
            now.into_iter().for_each(|now| self.not_heard(now));
        }
    }

    fn act(&mut self, world: &World, facts: &ClusterFacts, act: &Act) {
        if self.ends_by(world, facts, act) {
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
            Act::DeleteStack(id, _) => self.deletes(facts, id, world.now()),
        }
    }

    /// P8: a machine is not told the same twice at once; what an invocation that died has sent bears the same name.
    fn nothing_twice(&mut self, acts: &[Act], now: Timestamp) {
        let mut sent = BTreeMap::new();
        for act in acts {
            let Act::Send(command) = act else { continue };
            // One that was sent moments ago, and is only said to have been sent again, may have its answer by now, and the next follow.
            if !self.sent.insert(command.token.clone()) {
                continue;
            }
            // Questions may be asked as often as one likes, and a rollout takes a snapshot of its own when it follows another at once.
            if matches!(command.verb, Verb::Status | Verb::EtcdHealth | Verb::EtcdSnapshot | Verb::EtcdRetire)
            {
                continue;
            }
            let token = sent.entry((&command.instance, &command.verb)).or_insert(&command.token);
            if *token != &command.token {
                self.wrong(now, "P8", format!("{act}, twice at once"));
            }
        }
    }

    /// P10: nothing begins after a pause or an abort, nor when nothing is open.
    fn may_start(&mut self, world: &World, act: &Act) {
        let now = world.now();
        // One that Auto Scaling takes down by itself is no rollout's doing; a pause holds its drain, too. One that is gone by now, as an
        // answer that was late did not say, has nothing left to be evicted.
        let goes_anyway = |node: &String| {
            let machines = world.machines();
            machines.iter().find(|one| one.id == *node).is_none_or(|one| one.leaving) && !self.is_paused()
        };
        let begins = match act {
            Act::Send(command) => match command.verb {
                Verb::Refresh { .. }
                | Verb::EtcdMoveLeader
                | Verb::EtcdSnapshot
                | Verb::EtcdRemove { .. }
                | Verb::EtcdRetire => true,
                Verb::Drain { ref node, .. } => !goes_anyway(node),
                // What is let go of again evicts, ends and makes nothing: that is part of stopping.
                Verb::Status | Verb::EtcdHealth | Verb::Uncordon { .. } => false,
            },
            // What its group keeps was to go before: somebody has to end it, whatever goes on; and does so once more where a function died.
            Act::Terminate(_, machine, _) => {
                if self.machines.get(machine).is_some_and(|one| one.retained) {
                    self.kept_no_more.insert(machine.clone());
                }
                !self.kept_no_more.contains(machine)
            }
            Act::SetDesired(..) | Act::CreateChangeSet(..) | Act::Execute(..) | Act::DeleteStack(..) => true,
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
            return;
        };
        self.wrong(now, "P10", format!("{act} although {why}"));
    }

    /// Whether a certificate that a machine has in force is so near its end that neither window nor approval holds its renewal up.
    fn is_hurried(&self, now: Timestamp) -> bool {
        self.hurried_at.is_some_and(|at| now.duration_since(at) <= CLOCKS + INVOCATION)
    }

    /// Whether one was within the last day: whoever plans believes the newest scan, and there is one a day.
    fn was_hurried(&self, now: Timestamp) -> bool {
        self.hurried_at.is_some_and(|at| now.duration_since(at) <= SCANNED)
    }

    /// Whether a certificate that a machine has in force has ended, or had before that machine was told to take another.
    fn has_expired(&self, now: Timestamp) -> bool {
        self.expired_at.is_some_and(|at| now.duration_since(at) <= RESTARTS)
    }

    fn terminates(&mut self, world: &World, facts: &ClusterFacts, group: &str, id: &str) {
        let now = world.now();
        let Some(machine) = self.machines.get(id).cloned() else { return };
        // One that is on its way out already is not terminated again, and one that never served takes nothing along.
        if machine.leaving || self.taken.iter().any(|taken| taken.machine == id && taken.restart.is_none()) {
            return;
        }
        let role = machine.role.as_str();
        if !self.may_go(world, &machine) {
            self.wrong(now, "P2", format!("{id}, a {role}, is terminated, and is as the spec wants it"));
        }
        self.only_renews(&machine, now);
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
            self.is_canary(facts, &machine, now);
            let pods = facts.pods.get(id).copied().unwrap_or_default();
            if pods > 0 {
                self.wrong(now, "P6", format!("{id} is terminated with {pods} pods on it"));
            }
        }
        let at = now;
        self.taken.push(Taken { machine: id.to_owned(), role: role.to_owned(), at, restart: None });
    }

    /// A machine that serves stops serving because of us.
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
            // What died by itself is missing besides, and no fault of ours.
            let mine = |id: &String| self.taken.iter().any(|taken| taken.machine == *id);
            let of_role = self.machines.values().filter(|one| one.role == role && one.id != machine.id);
            let died = of_role.filter(|one| one.leaving && !mine(&one.id)).count();
            let may = self.rules.may_miss(&role) + if self.faults { died } else { 0 };
            // Where others may stand in for it, that was looked at when its drain began.
            let stood_in_for = self.rules.has_surge(&role) && self.drained.contains_key(&machine.id);
            if down > may && !stood_in_for {
                self.wrong(now, "P6", format!("{down} machines of {role} are away, and {may} may be"));
            }
        }
        // Windows bound the start: what was drained in one goes on.
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
        // Where certificates have ended there may be no majority to take one of.
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
        if facts.leader.as_deref() == Some(role) && facts.members.len() > 1 && !self.faults && !restart {
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

    /// Windows hold up everything but the renewal of a machine whose certificates end soon.
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
        self.asks_to_refresh(command);
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
                let again = self.taken.iter().any(|taken| taken.machine == machine.id);
                if self.skipped.contains(&machine.id) {
                    self.wrong(
                        now,
                        "P10",
                        format!("{} is refreshed although a person said to leave it", machine.id),
                    );
                }
                // Whoever has them already starts nothing anew.
                let takes = machine.credentials != *credentials;
                if takes && *restart && machine.ready && !machine.role.starts_with("pool-") && !again {
                    self.takes(facts, &machine, true, now);
                    let role = machine.role.clone();
                    self.taken.push(Taken {
                        machine: machine.id,
                        role,
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
                let is_first = !self.drained.contains_key(node);
                self.drained.entry(node.clone()).or_insert(now);
                // One that goes by itself is only helped.
                if machine.leaving {
                    self.others_take_the_canary(&machine);
                    return;
                }
                if !self.may_go(world, &machine) && !self.is_to_go(&machine.role) {
                    let what = format!("{node}, a {}, is drained, and is as the spec wants it", machine.role);
                    self.wrong(now, "P2", what);
                }
                self.only_renews(&machine, now);
                self.is_canary(facts, &machine, now);
                if self.skipped.contains(node) {
                    self.wrong(now, "P10", format!("{node} is drained although a person said to leave it"));
                }
                if is_first {
                    self.may_miss_one(&machine, now);
                    self.in_window(&machine.role, Some(&machine), now);
                }
            }
            Verb::EtcdRemove { member } => self.takes_out(facts, member, now),
            Verb::EtcdHealth => self.asks_for_health(&command.instance, now),
            // Its next drain is another.
            Verb::Uncordon { node } => drop(self.drained.remove(node)),
            Verb::Status | Verb::EtcdMoveLeader | Verb::EtcdSnapshot | Verb::EtcdRetire => {}
        }
    }

    fn sizes(&mut self, world: &World, facts: &ClusterFacts, group: &str, desired: u32) {
        let role = self.machines.values().find(|machine| machine.group == group).map(|one| one.role.clone());
        let Some(role) = role else { return };
        if role == "controller" {
            self.brings_minor(facts, world.now());
        }
        // Where certificates are renewed in place, a single controller gets a fellow first.
        let more = self.machines.values().filter(|one| one.group == group && !one.leaving).count();
        let renews = role == "controller" && self.target.is_some();
        if desired as usize > more.max(self.rules.size(&role)) && !self.is_replaced(world, group) && !renews {
            let what = format!("{group} is to have {desired} machines, and none of it is to be replaced");
            self.wrong(world.now(), "P2", what);
        }
        let most = self.most(&role, group);
        if desired as usize > most {
            self.wrong(
                world.now(),
                "P8",
                format!("{group} is to have {desired} machines, and {most} are the most"),
            );
        }
        self.surges.sized(group, desired as usize);
    }

    fn completes(&mut self, facts: &ClusterFacts, machine: &str, now: Timestamp) {
        self.released.entry(machine.to_owned()).or_insert(now);
        let pods = facts.pods.get(machine).copied().unwrap_or_default();
        // A machine that its group takes down while it boots may become a node after its drain has found none: pods come to it by themselves.
        let joined = self.joined.get(machine).is_some_and(|at| now.duration_since(*at) <= INVOCATION);
        if pods > 0 && !self.goes_with_its_stack(machine) && !(self.faults && joined) {
            self.wrong(now, "P6", format!("the hook of {machine} is ended with {pods} pods on it"));
        }
    }
}
