//! What the checker observes of the world by itself: which machines are healthy, which are back, and what must hold at each moment.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::targets::reached;
use super::{CLOCKS, Checker, RESTARTS, Violation, WORKER_GRACE};
use crate::world::{ClusterFacts, World};

impl Checker {
    /// Observes the world.
    pub fn observe(&mut self, world: &World) {
        let now = world.now();
        let Some(facts) = world.cluster_facts(&self.cluster) else { return };
        world.update_machines(&mut self.machines);
        for (id, machine) in &self.machines {
            if machine.ready && !self.joined.contains_key(id) {
                self.joined.insert(id.clone(), machine.leaving.then_some(now));
            }
            if !self.roles.contains_key(id) {
                self.roles.insert(id.clone(), machine.role.clone());
            }
        }
        for (promise, what) in self.skew.amiss(self.machines.values()) {
            self.violations.push(Violation { at: now, promise, what });
        }
        self.in_force(now);
        self.note_members(&facts, now);
        self.note_writers(&facts, now);
        self.note_well(&facts, now);
        self.note_leader(&facts, now);
        self.note_targets(&facts, now);
        self.alarmed_at = facts.alarm.and(self.alarmed_at.or(Some(now)));
        self.note_back(world, &facts, now);
        self.note_stacks(world, now);
        self.note_tries(world, now);
        self.note_sizes(world, now);
        self.note_serving(world, &facts, now);
        self.note_canaries(world, now);
        self.note_standstill(now);
        self.note_removals(world);
        self.note_reported(world);
        self.note_cordons(world);
        for loss in facts.losses.iter().skip(self.losses).filter(|loss| loss.terminated) {
            if self.is_deleted_with_its_stack(&loss.machine)
                || self.cordons.was_uncordoned_at_the_end(&loss.machine)
                || self.faults && self.joined_too_late(&loss.machine)
            {
                continue;
            }
            let what = format!(
                "{} pods are lost with {}, a {}, which was terminated",
                loss.pods, loss.machine, loss.role
            );
            self.violations.push(Violation { at: now, promise: "P6", what });
        }
        self.losses = facts.losses.len();
        if self.stands && !self.faults {
            self.quiet(&facts, now);
        }
        self.facts = Some(facts);
    }

    /// Whether a machine that was terminated while it booted became a node after its drain had found none, or after its hook was completed.
    /// Nobody can keep pods from it then, or drain it.
    fn joined_too_late(&self, machine: &str) -> bool {
        let Some(released) = self.released.get(machine) else { return false };
        match self.joined.get(machine) {
            // It was shut down before anybody saw that it had become a node.
            None => true,
            Some(None) => false,
            Some(Some(joined)) => released.duration_since(*joined) <= self.evidence_lasts(),
        }
    }

    /// What must hold at every moment in a world without faults.
    fn quiet(&mut self, facts: &ClusterFacts, now: Timestamp) {
        let (all, up) =
            (facts.members.len(), facts.members.values().filter(|one| one.voter && one.up).count());
        let is_whole = up == all && facts.leader.is_some() && reached(facts) >= self.rules.controllers;
        if self.is_apart(is_whole) {
            return;
        }
        if all > 1 && (up + 1 < all || facts.leader.is_none()) {
            self.wrong(now, "P4", format!("{up} of {all} members of etcd serve"));
        }
        let (wanted, serve) = (self.rules.controllers, facts.api_servers.len());
        let needed = if wanted == 1 { 1 } else { wanted - 1 };
        // A single controller is restarted if its renewal cannot wait for an additional one.
        let is_short = self.taken.iter().any(|taken| taken.role == "controller" && taken.restart.is_some());
        if is_short && wanted == 1 && self.has_expired(now) {
            return;
        }
        // If etcd is a single machine that is being replaced, no API server can serve.
        if serve < needed && (all > 1 || up == all) {
            self.wrong(now, "P5", format!("{serve} of {wanted} API servers serve"));
        } else if all > 1 || up == all {
            self.reach(facts, needed, now);
        }
    }

    /// P7: no certificate in use has expired.
    fn in_force(&mut self, now: Timestamp) {
        let Some((end, _)) = self.validity.nearest(self.machines.values()) else { return };
        let remaining = end.duration_since(now);
        if remaining <= self.rules.emergency + CLOCKS {
            self.hurried_at = Some(now);
        }
        if remaining <= SignedDuration::ZERO {
            self.expired_at = Some(now);
        } else {
            return;
        }
        // A person's order to skip a machine has precedence (P10): its certificates may expire, and stay expired until the next upload.
        let skipped_and_expired = self.machines.values().filter(|one| self.skipped.contains(&one.id));
        let skipped_and_expired = skipped_and_expired
            .filter(|one| self.validity.nearest(std::iter::once(*one)).is_some_and(|(end, _)| end <= now));
        let skipped_and_expired: Vec<String> = skipped_and_expired.map(|one| one.id.clone()).collect();
        self.expired_while_skipped.extend(skipped_and_expired);
        let kept = self.machines.values().filter(|one| !self.expired_while_skipped.contains(&one.id));
        let Some((end, machine)) = self.validity.nearest(kept) else { return };
        if end <= now && self.rules.renews {
            let what = format!("a certificate of {}, a {}, ended at {end}", machine.id, machine.role);
            self.wrong(now, "P7", what);
        }
    }

    fn note_well(&mut self, facts: &ClusterFacts, now: Timestamp) {
        let members = facts.members.iter().filter(|(_, member)| member.voter && member.up);
        let mut well: BTreeSet<&str> = members.map(|(role, _)| role.as_str()).collect();
        let workers = self.machines.values().filter(|machine| machine.role.starts_with("pool-"));
        well.extend(workers.filter(|one| one.ready && !one.leaving).map(|machine| machine.id.as_str()));
        well.extend(facts.api_servers.iter().map(String::as_str));
        // Without a leader no API server answers, even if it is healthy.
        let spared = facts.leader.is_none();
        let before = self.well.iter().map(String::as_str);
        well.extend(before.clone().filter(|id| spared && self.machines.contains_key(*id)));
        for who in well.iter().copied().chain(before.clone()) {
            match self.last_well.get_mut(who) {
                Some(at) => *at = now,
                None => drop(self.last_well.insert(who.to_owned(), now)),
            }
        }
        self.last_well
            .retain(|who, at| well.contains(who.as_str()) || now.duration_since(*at) <= WORKER_GRACE);
        if !before.eq(well.iter().copied()) {
            self.well = well.into_iter().map(str::to_owned).collect();
        }
    }

    /// Notes which of the machines that Slipway took down have been replaced.
    fn note_back(&mut self, world: &World, facts: &ClusterFacts, now: Timestamp) {
        self.drained.retain(|id, _| self.machines.contains_key(id));
        if self.taken.is_empty() {
            return;
        }
        let machines = &self.machines;
        let died = self.died(now);
        let mut missing: BTreeMap<String, usize> = BTreeMap::new();
        // Any machine of a group can replace any other; the machines that were taken down first are replaced first.
        self.taken.reverse();
        self.taken.retain(|taken| {
            if let Some((credentials, command)) = &taken.restart {
                let Some(machine) = machines.get(&taken.machine) else { return false };
                let ill = match facts.members.get(&taken.role) {
                    Some(member) => !member.up,
                    None => !facts.api_servers.contains(&taken.machine),
                };
                // If a machine's command ended without the installation of the credentials, the machine was not restarted, and will not be
                // by that command.
                let asked = machine.credentials != *credentials
                    && now.duration_since(taken.at) < RESTARTS
                    && !world.is_over(command);
                return asked || ill;
            }
            if let Some(member) = facts.members.get(&taken.role) {
                let on = member.machine.as_ref();
                return !(member.up && on.is_some_and(|on| *on != taken.machine));
            }
            // A machine that Auto Scaling is still terminating while its successor serves is not missing.
            let left = missing.entry(taken.role.clone()).or_insert_with(|| {
                let of_role = || machines.values().filter(|machine| machine.role == taken.role);
                let group = of_role().next().and_then(|one| world.group_facts(&one.group));
                let serve = of_role().filter(|machine| machine.ready && !machine.leaving).count();
                let died = died.get(&taken.role).copied().unwrap_or_default();
                group.map_or(0, |group| group.desired as usize).saturating_sub(serve + died)
            });
            let is_missing = *left > 0;
            *left = left.saturating_sub(1);
            is_missing
        });
        self.taken.reverse();
    }
}
