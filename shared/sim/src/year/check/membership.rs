//! The rules for removing a member of etcd, for launching an API server of another minor, and for deleting a stack; and which machines are
//! missing without Slipway's doing.

use std::collections::BTreeMap;

use jiff::Timestamp;

use slipway_core::node::{Command, Verb};

use super::Checker;
use crate::world::{ClusterFacts, MachineFacts, MemberFacts, Power, World};
use crate::year::acts::Act;

impl Checker {
    /// No member is taken down while an alarm is raised that the decision could know of.
    pub(super) fn quiet_of_alarms(&mut self, facts: &ClusterFacts, role: &str, now: Timestamp) {
        let Some(kind) = facts.alarm else { return };
        if self.alarmed_at.is_some_and(|at| now.duration_since(at) > self.grace()) {
            self.wrong(now, "P4", format!("{role} goes while the alarm {kind} is raised"));
        }
    }

    /// Whether a member is removed that joined in this rollout, because CloudFormation rolls etcd's stack back and deletes its group in any
    /// case.
    pub(super) fn withdraws(&self, world: &World, act: &Act) -> bool {
        let Act::Send(Command { verb: Verb::EtcdRemove { member }, .. }) = act else { return false };
        let status = world.stack_status(&format!("{}-etcd", self.cluster)).unwrap_or_default();
        // The decision may have seen a late answer.
        let rolls_back = status.starts_with("UPDATE_ROLLBACK");
        let target = self.target.as_ref().filter(|target| target.has(member));
        rolls_back && target.is_some_and(|target| !target.members_before.contains(member))
    }

    /// A member is to be removed: one at a time, while all others serve, with a snapshot, and only if the plan says so.
    pub(super) fn takes_out(&mut self, facts: &ClusterFacts, member: &str, now: Timestamp) {
        if self.target.as_ref().is_none_or(|target| target.has(member)) {
            self.wrong(now, "P2", format!("{member} is taken out of etcd, and the spec has it"));
        }
        // A member that is already removed is not removed again.
        if !facts.members.contains_key(member) {
            return;
        }
        let others: Vec<&String> = facts.members.keys().filter(|one| *one != member).collect();
        let ill: Vec<&String> = others.into_iter().filter(|one| !self.counts_as_well(one, now)).collect();
        // Members whose groups were never kept have no machine that could serve. Those that serve must be a majority without them.
        let is_lost = |one: &&&String| {
            self.target.as_ref().is_some_and(|target| !target.has(one))
                && !self.machines.values().any(|machine| machine.role == ***one)
        };
        let (lost, ill): (Vec<&String>, Vec<&String>) = ill.iter().partition(is_lost);
        let stay = facts.members.iter().filter(|(name, other)| *name != member && other.voter);
        let (up, voters) = (stay.clone().filter(|(_, other)| other.up).count(), stay.count());
        if !ill.is_empty() || !lost.is_empty() && up <= voters / 2 {
            self.wrong(now, "P4", format!("{member} is taken out of etcd while {ill:?} do not serve"));
        }
        self.quiet_of_alarms(facts, member, now);
        self.knows_of_the_others(facts, member, now);
        if !self.has_snapshot(facts, now) {
            self.wrong(
                now,
                "P4",
                format!("{member} is taken out of etcd without a snapshot of the last quarter of an hour"),
            );
        }
        if facts.leader.as_deref() == Some(member) && !self.faults {
            self.wrong(now, "P4", format!("{member} is taken out of etcd while it leads"));
        }
        self.in_window(member, None, now);
    }

    /// There is a snapshot before Slipway launches the first API server of another minor, because that server may write what only the new
    /// minor can read.
    pub(super) fn brings_minor(&mut self, facts: &ClusterFacts, now: Timestamp) {
        let Some(minor) = self.target.as_ref().and_then(|target| target.minor("controller")) else { return };
        let first = self.skew.is_another(self.machines.values(), "controller", minor);
        if first && !self.has_snapshot(facts, now) {
            let what = format!(
                "the first API server of 1.{minor} comes without a snapshot of the last quarter of an hour"
            );
            self.wrong(now, "P4", what);
        }
    }

    /// There is a snapshot of the last 15 minutes when members join, as when a member is taken down.
    pub(super) fn joins_with_a_snapshot(&mut self, facts: &ClusterFacts, stack: &str, now: Timestamp) {
        let is_etcd = stack == format!("{}-etcd", self.cluster) && !facts.members.is_empty();
        let grows = self.target.as_ref().is_some_and(|target| target.members() > facts.members.len());
        if is_etcd && grows && !self.has_snapshot(facts, now) {
            let what = "members join etcd without a snapshot of the last quarter of an hour";
            self.wrong(now, "P4", what.to_owned());
        }
    }

    /// A new member of etcd is a learner first, only one joins at a time, and a plan has added it.
    pub(super) fn note_members(&mut self, facts: &ClusterFacts, now: Timestamp) {
        let same = |(one, other): ((&String, &MemberFacts), (&String, &bool))| {
            one.0 == other.0 && one.1.voter == *other.1
        };
        if facts.members.len() == self.members.len() && facts.members.iter().zip(&self.members).all(same) {
            return;
        }
        let mut wrong = Vec::new();
        let learners = facts.members.iter().filter(|(_, member)| !member.voter);
        let learners: Vec<&String> = learners.map(|(role, _)| role).collect();
        if learners.len() > 1 {
            wrong.push(("P4", format!("{learners:?} are learners at the same time")));
        }
        // If there was no member, the present members found the cluster.
        let joined = facts.members.iter().filter(|(role, _)| !self.members.contains_key(*role));
        for (role, member) in joined.filter(|_| !self.members.is_empty()) {
            if member.voter {
                wrong.push(("P4", format!("{role} has a vote at once, and was no learner before")));
            }
            if !self.may_join.contains(role) {
                wrong.push(("P2", format!("{role} joins etcd, and no plan has said so")));
            }
        }
        self.members = facts.members.iter().map(|(role, member)| (role.clone(), member.voter)).collect();
        wrong.into_iter().for_each(|(promise, what)| self.wrong(now, promise, what));
    }

    /// A stack with machines is deleted only if the plan says so, and if no pod is on them.
    pub(super) fn deletes(&mut self, facts: &ClusterFacts, id: &str, stands: bool, now: Timestamp) {
        // A creation that a person called off. What its machines have is judged when their terminate hooks are completed.
        if !stands && (self.aborted || !self.ends.given.is_empty()) {
            return;
        }
        let name = id.split('/').nth(1).unwrap_or(id);
        let planned = self.target.as_ref().is_some_and(|target| !target.has_stack(name));
        let serve = self.machines.values().filter(|one| one.group == name && one.ready && !one.leaving);
        let counts = |one: &&MachineFacts| !self.cordons.was_uncordoned(&one.id);
        let (pods, serve): (usize, usize) =
            (serve.clone().filter(counts).filter_map(|one| facts.pods.get(&one.id)).sum(), serve.count());
        if pods > 0 || (serve > 0 && !planned) {
            let what =
                format!("{name} is deleted with {pods} pods on it; the spec has it no longer: {planned}");
            self.wrong(now, "P6", what);
        }
        if serve > 0 {
            self.in_window(name, None, now);
        }
    }

    /// How many machines of each role died by themselves so recently that no decision could know. A machine that replaces one of these is
    /// not the successor of a machine that Slipway took down.
    pub(super) fn died(&self, now: Timestamp) -> BTreeMap<String, usize> {
        let mut died = BTreeMap::new();
        for (who, _) in self.last_well.iter().filter(|(who, _)| !self.well.contains(*who)) {
            let serves = self.machines.get(who).is_some_and(|machine| machine.ready && !machine.leaving);
            let ours = self.taken.iter().any(|taken| taken.machine == *who);
            if let Some(role) =
                self.roles.get(who).filter(|_| !serves && !ours && self.counts_as_well(who, now))
            {
                *died.entry(role.clone()).or_default() += 1;
            }
        }
        // A machine that died shortly after its launch was never healthy, and Auto Scaling shows it in service until it notices.
        let never_well = |one: &&MachineFacts| !self.last_well.contains_key(&one.id);
        let dead = |one: &&MachineFacts| one.serves && one.power != Power::Up && !one.leaving;
        for one in self.machines.values().filter(|one| self.faults && dead(one) && never_well(one)) {
            *died.entry(one.role.clone()).or_default() += 1;
        }
        died
    }
}
