//! etcd: members with volumes that outlive their machines, a quorum, a leader, and the time that a member takes to catch up.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use slipway_core::node::{FailureCode, MemberRemoved, VerbFailure};

use super::super::World;
use super::super::machine::{Machine, groups_of};
use super::super::task::ClusterTask;
use super::restore::Restore;
use super::{HELP, seconds};

/// Entries per second that a cluster writes while it has a leader.
const WRITES: f64 = 20.0;
/// Entries per second that a member receives while it catches up.
const CATCHES_UP: f64 = 4_000.0;
/// A member that lacks more entries than this gets a snapshot of the whole database.
const KEPT: u64 = 100_000;
/// Size of the database in bytes.
pub(crate) const DATABASE: u64 = 256 << 20;
/// Bytes per second of a snapshot.
const SENDS: f64 = 40_000_000.0;
/// The time from the start of a process to its first answer.
const STARTS_S: (f64, f64) = (1.0, 3.0);
/// The time that a restart of a process takes.
const RESTARTS_S: (f64, f64) = (2.0, 5.0);

/// The etcd of a cluster.
#[derive(Debug, Clone, Default)]
pub(crate) struct Etcd {
    /// By role: `etcd-0`.
    pub(crate) members: BTreeMap<String, Member>,
    pub(crate) leader: Option<String>,
    pub(crate) term: u64,
    /// The index at the time `index_at`.
    index: u64,
    index_at: Timestamp,
    /// Members that were removed while their volumes still exist. etcd does not start with the data of a removed member, and the
    /// agent lets only a member without data join (`agent/src/bootstrap/etcd.rs`).
    removed: BTreeSet<String>,
    /// When each snapshot was taken.
    pub(crate) snapshots: Vec<Timestamp>,
    /// The last restore of each member.
    pub(crate) restores: BTreeMap<String, Restore>,
    /// How often a member's data were replaced.
    pub(crate) restored: u32,
    /// The alarm that is raised, and the member that raised it. `NOSPACE` has an effect on writes: see `quota.rs`.
    pub(crate) alarm: Option<(String, &'static str)>,
}

/// A member of the membership.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    /// Its id, in hexadecimal.
    pub(crate) id: String,
    pub(crate) learner: bool,
    /// The machine that has its volume.
    pub(crate) attached: Option<String>,
    pub(crate) process: Option<Process>,
    /// The index that it had received when its process started or stopped.
    applied: u64,
    /// Bytes of its database file.
    pub(crate) file: u64,
}

/// A member's process.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) machine: String,
    since: Timestamp,
    pub(crate) caught_up_at: Timestamp,
    /// The other members do not reach it, and it does not reach them.
    pub(crate) isolated: bool,
}

impl Etcd {
    /// The index of the cluster.
    pub(crate) fn index(&self, now: Timestamp) -> u64 {
        let more = if self.leader.is_some() { seconds(self.index_at, now) * WRITES } else { 0.0 };
        self.index + more as u64
    }

    /// The number of entries that a member lacks.
    pub(crate) fn missing_entries(&self, member: &Member, now: Timestamp) -> u64 {
        let lacks = self.index(now).saturating_sub(member.applied);
        match &member.process {
            None => lacks,
            Some(process) if process.isolated => lacks,
            Some(process) if process.caught_up_at <= now => 0,
            Some(process) => {
                let whole = seconds(process.since, process.caught_up_at).max(0.001);
                let left = seconds(now, process.caught_up_at) / whole;
                ((lacks as f64 * left) as u64).max(1)
            }
        }
    }

    /// Whether a member serves.
    pub(crate) fn is_up(member: &Member, now: Timestamp) -> bool {
        member.process.as_ref().is_some_and(|process| !process.isolated && process.caught_up_at <= now)
    }

    /// Whether the member `from` reaches the member `to`.
    pub(crate) fn reaches(&self, from: &str, to: &str) -> bool {
        let isolated = |role: &str| {
            let process = self.members.get(role).and_then(|member| member.process.as_ref());
            process.map(|process| process.isolated)
        };
        from == to && isolated(to).is_some() || isolated(from) == Some(false) && isolated(to) == Some(false)
    }

    /// The number of voters, and how many of them serve.
    pub(crate) fn voters(&self, now: Timestamp) -> (usize, usize) {
        let voters = self.members.values().filter(|member| !member.learner);
        let up = voters.clone().filter(|member| Self::is_up(member, now)).count();
        (voters.count(), up)
    }

    fn fold(&mut self, now: Timestamp) {
        self.index = self.index(now);
        self.index_at = now;
    }
}

impl World {
    /// A random member of etcd raises an alarm with the name `kind`, until [`World::disarm`].
    pub fn raise_alarm(&mut self, cluster: &str, choice: u64, kind: &'static str) {
        let etcd = self.etcd(cluster);
        let at = usize::try_from(choice).unwrap_or_default() % etcd.members.len().max(1);
        let Some(role) = etcd.members.keys().nth(at).cloned() else { return };
        etcd.alarm = Some((role.clone(), kind));
        self.record(format!("{role} of {cluster} raises the alarm {kind}"));
    }

    /// A person has fixed the cause of an alarm and disarms it.
    pub fn disarm(&mut self, cluster: &str) {
        if let Some((role, kind)) = self.etcd(cluster).alarm.take() {
            self.record(format!("the alarm {kind} that {role} of {cluster} has raised is disarmed"));
            self.accepts_writes(cluster);
        }
    }

    /// The machine of a member continues its bootstrap. Returns whether the member is healthy.
    pub(super) fn etcd_joins(&mut self, cluster: &str, role: &str, machine: &Machine) -> bool {
        let now = self.now;
        if self.etcd(cluster).members.is_empty() {
            self.found(cluster);
        }
        let is_member = self.etcd(cluster).members.contains_key(role);
        if !is_member && (self.etcd(cluster).removed.contains(role) || !self.add_learner(cluster, role)) {
            return false;
        }
        let etcd = self.etcd(cluster);
        let Some(member) = etcd.members.get_mut(role) else { return false };
        match &member.attached {
            Some(other) if *other != machine.id => return false,
            Some(_) | None => member.attached = Some(machine.id.clone()),
        }
        let Some(process) = &member.process else {
            self.etcd_starts(cluster, role, &machine.id);
            return false;
        };
        if process.caught_up_at > now || process.isolated {
            return false;
        }
        if etcd.members[role].learner && etcd.leader.is_some() {
            if let Some(member) = etcd.members.get_mut(role) {
                member.learner = false;
            }
            self.record(format!("{role} of {cluster} has caught up and gets a vote"));
            self.etcd_changed(cluster);
        }
        let etcd = self.etcd(cluster);
        etcd.leader.is_some() && !etcd.members[role].learner
    }

    pub(super) fn etcd(&mut self, cluster: &str) -> &mut Etcd {
        &mut self.fleet.clusters.entry(cluster.to_owned()).or_default().etcd
    }

    /// The cluster loses everything of etcd except its snapshots, which are stored elsewhere.
    pub(in crate::world) fn loses_etcd(&mut self, cluster: &str) {
        let etcd = self.etcd(cluster);
        let (snapshots, term) = (std::mem::take(&mut etcd.snapshots), etcd.term);
        *etcd = Etcd { snapshots, term, ..Etcd::default() };
        self.record(format!("nothing is left of etcd of {cluster}"));
    }

    /// The group of a member is deleted together with its volume: a later member with the same name has no data.
    pub(in crate::world) fn forgets_member(&mut self, cluster: &str, role: &str) {
        self.etcd(cluster).removed.remove(role);
    }

    /// The members whose groups exist now found the cluster.
    fn found(&mut self, cluster: &str) {
        let founders = groups_of(self.fleet.groups.values(), cluster, "etcd-");
        let now = self.now;
        let members: Vec<(String, Member)> =
            founders.into_iter().map(|role| (role.clone(), self.new_member(cluster, &role, false))).collect();
        let etcd = self.etcd(cluster);
        etcd.index_at = now;
        etcd.members.extend(members);
    }

    fn new_member(&self, cluster: &str, role: &str, learner: bool) -> Member {
        let id = self.hex(&format!("member {cluster} {role}"))[..16].to_owned();
        Member { id, learner, attached: None, process: None, applied: 0, file: DATABASE }
    }

    /// Adds a new member as a learner, if there is a quorum and no other learner.
    fn add_learner(&mut self, cluster: &str, role: &str) -> bool {
        let member = self.new_member(cluster, role, true);
        let etcd = self.etcd(cluster);
        if etcd.leader.is_none() || etcd.members.values().any(|member| member.learner) {
            return false;
        }
        etcd.members.insert(role.to_owned(), member);
        self.record(format!("{role} is added to etcd of {cluster} as a learner"));
        true
    }

    /// A member's process starts, and receives the entries that it lacks.
    fn etcd_starts(&mut self, cluster: &str, role: &str, machine: &str) {
        let now = self.now;
        let starts_s = self.draw_s("etcd starts", STARTS_S.0, STARTS_S.1);
        let faults = self.fleet.faults;
        let slower = if self.chance("slow member", faults.slow_member) { 20.0 } else { 1.0 };
        let pace = self.config.pace * slower;
        let etcd = self.etcd(cluster);
        let index = etcd.index(now);
        let Some(member) = etcd.members.get_mut(role) else { return };
        let lacks = index.saturating_sub(member.applied);
        let sent = if lacks > KEPT || (member.learner && member.applied == 0) {
            DATABASE as f64 / SENDS
        } else {
            0.0
        };
        let long_s = (starts_s + sent + lacks as f64 / CATCHES_UP) * pace;
        let caught_up_at = now + SignedDuration::from_secs_f64(long_s);
        let process = Process { machine: machine.to_owned(), since: now, caught_up_at, isolated: false };
        member.process = Some(process);
        self.record(format!("{role} of {cluster} starts on {machine}, {lacks} entries behind"));
        self.etcd_settles_at(cluster, caught_up_at);
    }

    fn etcd_settles_at(&mut self, cluster: &str, caught_up_at: Timestamp) {
        self.sequence += 1;
        let task = ClusterTask::EtcdSettles { cluster: cluster.to_owned() };
        self.queue.insert((caught_up_at, self.sequence), super::Task::Cluster(task));
    }

    /// Stops the member's process on that machine, if there is one.
    pub(in crate::world) fn process_stops(&mut self, machine: &Machine) {
        let Some(cluster) = machine.cluster() else { return };
        let member = self.fleet.clusters.get(cluster).and_then(|one| one.etcd.members.get(machine.role()));
        let process = member.and_then(|member| member.process.as_ref());
        if process.is_some_and(|process| process.machine == machine.id) {
            self.etcd_stops(cluster, machine.role());
        }
    }

    /// Stops a member's process. Its volume stays.
    pub(in crate::world) fn etcd_stops(&mut self, cluster: &str, role: &str) {
        let now = self.now;
        let etcd = self.etcd(cluster);
        let Some(member) = etcd.members.get(role) else { return };
        let applied = etcd.index(now).saturating_sub(etcd.missing_entries(member, now));
        let Some(member) = etcd.members.get_mut(role) else { return };
        if member.process.take().is_some() {
            member.applied = applied;
            self.record(format!("{role} of {cluster} stops"));
            self.etcd_changed(cluster);
        }
    }

    /// The member `by` removes the member `name`, as etcd does it: with a majority, and only if a majority remains.
    pub(in crate::world) fn etcd_removes(
        &mut self,
        cluster: &str,
        by: &str,
        name: &str,
    ) -> Result<MemberRemoved, VerbFailure> {
        let now = self.now;
        let refused = |why: &str| VerbFailure::transient(FailureCode::EtcdRefused, why, HELP);
        let etcd = self.etcd(cluster);
        let serves =
            etcd.members.get(by).is_some_and(|member| Etcd::is_up(member, now)) && etcd.leader.is_some();
        if by == name {
            let message = format!("{name} is this member");
            return Err(VerbFailure::permanent(FailureCode::EtcdRemoveSelf, message, HELP));
        }
        if !serves {
            return Err(refused("etcdserver: no leader"));
        }
        let Some(leaves) = etcd.members.get(name) else {
            return Ok(MemberRemoved { removed: false, id: None, members: etcd.members.len() });
        };
        let (voters, up) = etcd.voters(now);
        let gone = usize::from(!leaves.learner && Etcd::is_up(leaves, now));
        if !leaves.learner && up - gone <= (voters - 1) / 2 {
            return Err(refused("etcdserver: re-configuration failed due to not enough started members"));
        }
        etcd.fold(now);
        let Some(member) = etcd.members.remove(name) else {
            return Err(refused("etcdserver: member not found"));
        };
        etcd.removed.insert(name.to_owned());
        let left = etcd.members.len();
        self.record(format!("{name} is removed from etcd of {cluster}"));
        self.etcd_changed(cluster);
        Ok(MemberRemoved { removed: true, id: Some(member.id), members: left })
    }

    /// Cuts off the member on that machine from the other members, in both directions. A single member cannot be cut off. Returns
    /// whether anything has changed.
    pub(in crate::world) fn etcd_isolated(&mut self, machine: &Machine) -> bool {
        let (Some(cluster), role, now) = (machine.cluster().map(str::to_owned), machine.role(), self.now)
        else {
            return false;
        };
        let etcd = self.etcd(&cluster);
        let is_alone = etcd.members.len() < 2;
        let Some(member) = etcd.members.get(role).filter(|_| !is_alone) else { return false };
        let applied = etcd.index(now).saturating_sub(etcd.missing_entries(member, now));
        let Some(member) = etcd.members.get_mut(role) else { return false };
        let Some(process) = &mut member.process else { return false };
        if process.machine != machine.id || process.isolated {
            return false;
        }
        process.isolated = true;
        member.applied = applied;
        self.record(format!("the others of {cluster} do not reach {role} on {}", machine.id));
        self.etcd_changed(&cluster);
        true
    }

    /// The other members reach the member again, and it receives the entries that it lacks.
    pub(in crate::world) fn etcd_reconnected(&mut self, machine: &Machine) {
        let (Some(cluster), role, now) = (machine.cluster().map(str::to_owned), machine.role(), self.now)
        else {
            return;
        };
        let etcd = self.etcd(&cluster);
        let index = etcd.index(now);
        let Some(member) = etcd.members.get_mut(role) else { return };
        let Some(process) = &mut member.process else { return };
        if process.machine != machine.id || !process.isolated {
            return;
        }
        let lacks = index.saturating_sub(member.applied);
        let caught_up_at = now + SignedDuration::from_secs_f64(lacks as f64 / CATCHES_UP);
        (process.isolated, process.since, process.caught_up_at) = (false, now, caught_up_at);
        self.record(format!("the others of {cluster} reach {role} again, {lacks} entries behind"));
        self.etcd_settles_at(&cluster, caught_up_at);
    }

    /// Restarts a member on the same machine.
    pub(in crate::world) fn etcd_restarts(&mut self, machine: &Machine) {
        let Some(cluster) = machine.cluster().map(str::to_owned) else { return };
        self.etcd_stops(&cluster, machine.role());
        let seconds = self.draw_s("etcd restarts", RESTARTS_S.0, RESTARTS_S.1);
        self.cluster_after_s(seconds, ClusterTask::EtcdReturns { machine: machine.id.clone() });
    }

    pub(in crate::world) fn etcd_returns(&mut self, id: &str) {
        let Some(machine) = self.fleet.machines.get(id).cloned() else { return };
        if machine.power != super::Power::Up || machine.expired || machine.silent {
            return;
        }
        let (Some(cluster), role) = (machine.cluster().map(str::to_owned), machine.role().to_owned()) else {
            return;
        };
        let attached = self.etcd(&cluster).members.get(&role).and_then(|member| member.attached.as_deref());
        if attached == Some(id) {
            self.etcd_starts(&cluster, &role, id);
        }
    }

    /// Computes quorum and leader after a member came or went.
    pub(super) fn etcd_changed(&mut self, cluster: &str) {
        let now = self.now;
        let etcd = self.etcd(cluster);
        let (voters, up) = etcd.voters(now);
        let serves = |etcd: &Etcd, role: &String| {
            etcd.members.get(role).is_some_and(|member| !member.learner && Etcd::is_up(member, now))
        };
        if etcd.leader.as_ref().is_some_and(|leader| serves(etcd, leader)) && up > voters / 2 {
            return;
        }
        etcd.fold(now);
        let before = etcd.leader.take();
        if up > voters / 2 {
            let fit: Vec<String> = etcd.members.keys().filter(|role| serves(etcd, role)).cloned().collect();
            let chosen = self.draw(&format!("leader of {cluster}"));
            let chosen = fit[((chosen * fit.len() as f64) as usize).min(fit.len() - 1)].clone();
            self.lead(cluster, chosen);
        } else if before.is_some() {
            self.record(format!("etcd of {cluster} has lost its quorum: {up} of {voters} members serve"));
        }
    }

    /// A member leads from now on.
    pub(in crate::world) fn lead(&mut self, cluster: &str, role: String) {
        let now = self.now;
        let etcd = self.etcd(cluster);
        etcd.fold(now);
        etcd.term += 1;
        etcd.leader = Some(role.clone());
        self.record(format!("{role} leads etcd of {cluster}"));
    }
}
