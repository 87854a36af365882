//! What `slipway-node` does and answers when a document runs one of its verbs.

use std::collections::BTreeSet;

use slipway_core::keys;
use slipway_core::node::answer::{KubeletRenewed, LeaderStays, VerbOutcome};
use slipway_core::node::defragment::{NO_SPACE, Obstacle, SpaceAlarm, obstacles};
use slipway_core::node::logs::Entry;
use slipway_core::node::report::{Applied, ComponentHealth, ComponentName, Instance};
use slipway_core::node::{
    ClusterServes, Defragmented, EtcdAlarm, EtcdHealth, EtcdMemberHealth, FailureCode, LeaderMoved, LogUnit,
    MachineLogs, NodeStatus, NodesReady, PartHealth, RecordsRetired, Refreshed, SnapshotTaken, Uncordoned,
    UnitLog, Verb, VerbFailure,
};

use super::super::World;
use super::super::cluster::{DATABASE, Etcd, Node, snapshot_time};
use super::super::machine::{Machine, Power};
use super::super::weather::Service;

/// A member that lacks more entries than this has to catch up before it can lead.
const BEHIND_AT_MOST: u64 = 1_000;
/// The quota; above it etcd accepts no writes.
const QUOTA: u64 = 8 << 30;
/// What is in use of a member's database.
const IN_USE: u64 = DATABASE / 2;
/// The help of a simulated failure.
pub(in crate::world) const HELP: &str = "see docs/runbook.md";
/// How long a restart of a controller's static pods takes.
const RESTARTS_S: (f64, f64) = (5.0, 20.0);

impl World {
    /// Performs a command on the machine that it was sent to.
    pub(super) fn perform_verb(&mut self, place: usize) -> VerbOutcome {
        let sent = self.fleet.commands[place].clone();
        let Some(machine) = self.fleet.machines.get(&sent.instance).cloned() else {
            let message = "this machine was never told who it is";
            return Err(VerbFailure::permanent(FailureCode::ConfigUnreadable, message, HELP));
        };
        let cluster = machine.cluster().unwrap_or_default().to_owned();
        let is_member = machine.role().starts_with("etcd-");
        match &sent.verb {
            Verb::Status => Ok(self.node_status(&cluster, &machine).into()),
            Verb::Logs { unit, lines } => self.logs(&machine, *unit, *lines),
            Verb::Serves { without } => self.cluster_serves(&cluster, &machine, without),
            Verb::Refresh { credentials, restart } => self.refresh(&machine, credentials, *restart),
            Verb::Uncordon { node } => {
                self.uncordon(&cluster, node)?;
                Ok(Uncordoned { node: node.clone(), cordoned: false }.into())
            }
            Verb::EtcdHealth
            | Verb::EtcdMoveLeader
            | Verb::EtcdSnapshot
            | Verb::EtcdRemove { .. }
            | Verb::EtcdRetire
            | Verb::EtcdRestore { .. }
            | Verb::EtcdDefragment
                if !is_member =>
            {
                Err(VerbFailure::permanent(
                    FailureCode::EtcdNotAMember,
                    "this node is not an etcd member",
                    HELP,
                ))
            }
            Verb::EtcdHealth => Ok(self.etcd_health(&cluster, machine.role()).into()),
            Verb::EtcdMoveLeader => self.move_leader(&cluster, machine.role()),
            Verb::EtcdRemove { member } => {
                self.etcd_removes(&cluster, machine.role(), member).map(Into::into)
            }
            Verb::EtcdRetire => {
                let Some(zone) = machine.node.as_ref().and_then(|node| node.zone.clone()) else {
                    let message = "node.json names no hosted zone for this member's record";
                    return Err(VerbFailure::permanent(FailureCode::BootstrapZone, message, HELP));
                };
                Ok(RecordsRetired { zone, records: self.takes_records_back(&machine.id) }.into())
            }
            Verb::EtcdSnapshot => self.snapshot(&cluster, machine.role()),
            Verb::EtcdRestore { .. } => {
                self.reaches_storage()?;
                self.etcd_restore(&cluster, &machine, &sent.verb).map(Into::into)
            }
            Verb::EtcdDefragment => self.defragment(&cluster, machine.role()),
            // A drain takes time, and is performed round by round.
            Verb::Drain { .. } => {
                Err(VerbFailure::permanent(FailureCode::Usage, "a drain does not end at once", HELP))
            }
        }
    }

    /// Each unit has written more lines than anybody may ask for.
    fn logs(&self, machine: &Machine, unit: Option<LogUnit>, lines: u32) -> VerbOutcome {
        let role = machine.role();
        let of_role = LogUnit::of_role(role);
        if let Some(unit) = unit.filter(|unit| !of_role.contains(unit)) {
            let message = format!("{role} has no unit {}", unit.name());
            return Err(VerbFailure::permanent(FailureCode::Usage, message, HELP));
        }
        let units: Vec<LogUnit> = unit.map_or_else(|| of_role.to_vec(), |unit| vec![unit]);
        let log = |unit: &LogUnit| {
            let entry = |left: u32| {
                let message = format!("{} of {} runs, {left} to go, token=hunter2", unit.name(), machine.id);
                Entry { at: self.now, from: unit.name().to_owned(), message }
            };
            let entries: Vec<Entry> = (0..lines).rev().map(entry).collect();
            UnitLog::new(*unit, "active (running)", 0, &entries)
        };
        Ok(MachineLogs::new(role.to_owned(), units.iter().map(log).collect()).into())
    }

    fn refresh(&mut self, machine: &Machine, wanted: &str, restarts: bool) -> VerbOutcome {
        let wanted = wanted.to_owned();
        let changed = machine.credentials != wanted;
        if changed {
            self.reaches_storage()?;
            if let Some(machine) = self.fleet.machines.get_mut(&machine.id) {
                machine.credentials.clone_from(&wanted);
            }
            self.record(format!("{} of {} takes new credentials", machine.id, machine.group));
            self.no_longer_expired(machine);
            if restarts {
                self.restart(machine);
            }
        }
        let kubelet = match self.kubelet_asks(machine) {
            None => None,
            Some(Ok(())) => {
                Some(KubeletRenewed { refused: "it has expired".to_owned(), serial: "01".to_owned() })
            }
            Some(Err(why)) => return Err(VerbFailure::transient(FailureCode::RefreshKubelet, why, HELP)),
        };
        let restarted = if changed && restarts { restarted(machine.role()) } else { &[] };
        let restarted = restarted.iter().map(|name| (*name).to_owned()).collect();
        Ok(Refreshed {
            changed,
            credentials: wanted,
            served: Vec::new(),
            restarted,
            kubelet,
            published: true,
        }
        .into())
    }

    /// Restarts the processes that read their files only at the start.
    fn restart(&mut self, machine: &Machine) {
        if machine.role().starts_with("etcd-") {
            return self.etcd_restarts(machine);
        }
        if machine.role() == "controller" {
            let seconds = self.draw_s("controller restarts", RESTARTS_S.0, RESTARTS_S.1);
            let until = self.now + jiff::SignedDuration::from_secs_f64(seconds * self.config.pace);
            if let Some(machine) = self.fleet.machines.get_mut(&machine.id) {
                machine.restarting = Some(until);
            }
            self.restarted_at(until, &machine.id);
        }
    }

    /// Credentials are read from S3 and opened with KMS; snapshots are sealed with a key of KMS and stored in S3.
    fn reaches_storage(&self) -> Result<(), VerbFailure> {
        let down = [Service::Storage, Service::Keys].into_iter().find(|one| self.down_until(*one).is_some());
        let unreachable = |service| {
            VerbFailure::transient(FailureCode::AwsUnreachable, format!("{service:?} does not answer"), HELP)
        };
        down.map_or(Ok(()), |service| Err(unreachable(service)))
    }

    fn snapshot(&mut self, cluster: &str, role: &str) -> VerbOutcome {
        self.reaches_storage()?;
        let now = self.now;
        let version = self.etcd_version();
        let Some(etcd) = self.fleet.clusters.get_mut(cluster).map(|found| &mut found.etcd) else {
            return Err(unreachable());
        };
        let serves = etcd.members.get(role).is_some_and(|member| Etcd::is_up(member, now));
        if !serves || etcd.leader.is_none() {
            return Err(no_leader());
        }
        etcd.snapshots.push(now);
        let revision = etcd.index(now);
        let time = snapshot_time(now);
        let sha256 = self.hex(&format!("snapshot {cluster} {time}"));
        Ok(SnapshotTaken {
            key: keys::etcd_snapshot(cluster, &time),
            time,
            size: DATABASE,
            sha256,
            revision,
            version: version.to_owned(),
            sealed_under: "arn:aws:kms:simulated".to_owned(),
            seconds: 1,
        }
        .into())
    }

    /// The member stands still until the command ends; that is not modelled.
    fn defragment(&mut self, cluster: &str, role: &str) -> VerbOutcome {
        let health = self.etcd_health(cluster, role);
        let why: Vec<String> = obstacles(&health).iter().map(Obstacle::to_string).collect();
        if !why.is_empty() {
            let message =
                format!("{role} is not defragmented, since it stands still meanwhile: {}", why.join("; "));
            return Err(VerbFailure::transient(FailureCode::EtcdUnhealthy, message, HELP));
        }
        let Some(etcd) = self.fleet.clusters.get_mut(cluster).map(|found| &mut found.etcd) else {
            return Err(unreachable());
        };
        let Some(member) = etcd.members.get_mut(role) else { return Err(unreachable()) };
        let size_before = std::mem::replace(&mut member.file, IN_USE);
        let raised = etcd.alarm.as_ref().filter(|(_, kind)| *kind == NO_SPACE).map(|(by, _)| by.clone());
        // IN_USE is below the quota, so the alarm can be disarmed.
        let disarmed = raised.is_some_and(|by| by == role || !etcd.members.contains_key(&by));
        if disarmed {
            etcd.alarm = None;
        }
        let compacted = health.alarms.iter().any(|alarm| alarm.kind == NO_SPACE).then_some(health.revision);
        let answer = Defragmented {
            size_before,
            size_after: IN_USE,
            in_use: IN_USE,
            quota: Some(QUOTA),
            seconds: 1,
            compacted,
            alarm: disarmed.then(|| SpaceAlarm::Disarmed.into()),
        };
        self.record(format!("{role} of {cluster} is defragmented"));
        if disarmed {
            self.accepts_writes(cluster);
        }
        Ok(answer.into())
    }

    fn move_leader(&mut self, cluster: &str, role: &str) -> VerbOutcome {
        let now = self.now;
        let Some(etcd) = self.fleet.clusters.get(cluster).map(|found| &found.etcd) else {
            return Err(unreachable());
        };
        if !etcd.members.get(role).is_some_and(|member| Etcd::is_up(member, now)) {
            return Err(unreachable());
        }
        let Some(leader) = etcd.leader.clone() else {
            return Err(no_leader());
        };
        let number = |role: &str| etcd.members.get(role).map(|member| member.id.clone()).unwrap_or_default();
        let stays = |reason: LeaderStays| {
            Ok(LeaderMoved { moved: false, leader: number(&leader), reason: Some(reason.into()) }.into())
        };
        if leader != role {
            return stays(LeaderStays::AnotherLeads);
        }
        let others = etcd.members.iter().filter(|(other, member)| *other != role && !member.learner);
        if others.clone().next().is_none() {
            return stays(LeaderStays::NoOtherVoter);
        }
        let fit = others.filter(|(_, member)| {
            Etcd::is_up(member, now) && etcd.missing_entries(member, now) <= BEHIND_AT_MOST
        });
        let Some((to, id)) = fit.map(|(to, member)| (to.clone(), member.id.clone())).next() else {
            let message = format!("{role} leads, and no other voter answers that is well and close behind");
            return Err(VerbFailure::transient(FailureCode::EtcdNoOtherVoter, message, HELP));
        };
        self.lead(cluster, to);
        Ok(LeaderMoved { moved: true, leader: id, reason: None }.into())
    }

    fn etcd_version(&self) -> &'static str {
        "3.6.5"
    }

    /// The health of a member, as `slipway-node etcd health` judges it.
    fn etcd_health(&self, cluster: &str, role: &str) -> EtcdHealth {
        let now = self.now;
        let mut health =
            EtcdHealth { format: EtcdHealth::FORMAT, name: role.to_owned(), ..EtcdHealth::default() };
        let etcd = self.fleet.clusters.get(cluster).map(|found| &found.etcd);
        let Some((etcd, member)) = etcd.and_then(|etcd| Some((etcd, etcd.members.get(role)?))) else {
            health.problems.push("etcd does not answer".to_owned());
            return health;
        };
        if member.process.is_none() {
            health.problems.push("etcd does not answer".to_owned());
            return health;
        }
        let index = etcd.index(now);
        let missing = etcd.missing_entries(member, now);
        let leader = etcd.leader.as_ref().filter(|leader| etcd.reaches(role, leader));
        let leader = leader.and_then(|leader| etcd.members.get(leader));
        health.id = Some(member.id.clone());
        health.cluster_id = Some(self.hex(&format!("etcd of {cluster}"))[..16].to_owned());
        health.version = Some(self.etcd_version().to_owned());
        health.learner = member.learner;
        health.leads = etcd.leader.as_deref() == Some(role);
        health.leader = leader.map(|leader| leader.id.clone());
        health.term = etcd.term;
        health.raft_index = index;
        health.raft_applied_index = index.saturating_sub(missing);
        health.revision = health.raft_applied_index;
        health.raft_lag = leader.is_some().then_some(missing);
        health.db_size = member.file;
        health.db_size_in_use = IN_USE;
        health.db_quota = Some(QUOTA);
        if leader.is_none() {
            health.problems.push("there is no leader".to_owned());
        }
        if member.learner {
            health.problems.push("it is a learner, and has no vote yet".to_owned());
        } else if leader.is_some() && Etcd::is_up(member, now) {
            health.serving = true;
        } else {
            health.problems.push("it does not serve: no majority answers".to_owned());
        }
        if let Some((raised_by, kind)) = &etcd.alarm {
            // A member that has left is in no list, but its alarm stays.
            let member = etcd.members.get(raised_by).map(|member| member.id.clone()).unwrap_or_default();
            health.problems.push(format!("the alarm {kind} of {member} is raised"));
            health.alarms.push(EtcdAlarm { member, kind: (*kind).to_owned() });
        }
        for (name, member) in &etcd.members {
            let reachable = etcd.reaches(role, name);
            let url = |port: u32| vec![format!("https://{name}.{cluster}.internal:{port}")];
            health.members.push(EtcdMemberHealth {
                id: member.id.clone(),
                name: name.clone(),
                peer_urls: url(2380),
                client_urls: url(2379),
                learner: member.learner,
                reachable,
                leads: leader.is_some() && etcd.leader.as_ref() == Some(name),
                raft_lag: (reachable && leader.is_some()).then(|| etcd.missing_entries(member, now)),
                problem: (!reachable).then(|| "connection refused".to_owned()),
            });
            if !reachable {
                health.problems.push(format!("{name} cannot be reached: connection refused"));
            }
        }
        health.healthy = health.problems.is_empty();
        health
    }

    /// Whether the cluster serves, as `slipway-node serves` tells it on a controller.
    fn cluster_serves(&self, cluster: &str, machine: &Machine, without: &BTreeSet<String>) -> VerbOutcome {
        if machine.role() != "controller" {
            return Err(VerbFailure::permanent(FailureCode::Usage, "this node is not a controller", HELP));
        }
        let part = |healthy: bool| PartHealth::new((!healthy).then(|| "it does not answer".to_owned()));
        let api = self.is_api_server(machine);
        let found = self.fleet.clusters.get(cluster);
        let etcd = found.map(|found| &found.etcd).filter(|etcd| etcd.leader.is_some());
        let members = etcd.into_iter().flat_map(|etcd| &etcd.members);
        // An alarm concerns every member (`agent/src/serves.rs`).
        let is_read_only = etcd.is_some_and(|etcd| etcd.alarm.is_some());
        let is_ready = |id: &String, node: &Node| {
            let of_it = self.fleet.machines.get(id);
            node.ready && of_it.is_some_and(|one| one.power == Power::Up && !one.expired && !one.locked_out)
        };
        let nodes = found.into_iter().flat_map(|found| &found.kube.nodes).map(|(id, node)| {
            let problem =
                (!is_ready(id, node)).then(|| "it is not Ready: its kubelet does not report".to_owned());
            (node.role.clone(), id.clone(), problem)
        });
        Ok(ClusterServes {
            api_server: part(api),
            controller_manager: part(api),
            scheduler: part(api),
            node_manager: part(machine.ready && !machine.expired),
            etcd: members
                .map(|(role, member)| {
                    let serves = !member.learner && Etcd::is_up(member, self.now) && !is_read_only;
                    (role.clone(), part(serves))
                })
                .collect(),
            nodes: api.then(|| NodesReady::by_role(nodes, without)),
        }
        .into())
    }

    fn node_status(&self, cluster: &str, machine: &Machine) -> NodeStatus {
        let role = machine.role();
        let is_member = role.starts_with("etcd-");
        let etcd = is_member.then(|| self.etcd_health(cluster, role));
        let api = self.api_servers(cluster).contains(&machine.id);
        let component = |name: ComponentName, healthy: bool| ComponentHealth {
            name: name.into(),
            healthy,
            problem: (!healthy).then(|| "it does not answer".to_owned()),
        };
        let components = if let Some(etcd) = &etcd {
            vec![component(ComponentName::Etcd, etcd.serving)]
        } else if role == "controller" {
            let names =
                [ComponentName::ApiServer, ComponentName::ControllerManager, ComponentName::Scheduler];
            names
                .into_iter()
                .map(|name| component(name, api))
                .chain([component(ComponentName::Kubelet, machine.ready)])
                .collect()
        } else {
            vec![component(ComponentName::Kubelet, machine.ready)]
        };
        let hex = self.hex(&format!("address {}", machine.id));
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap_or_default();
        NodeStatus {
            format: NodeStatus::FORMAT,
            at: self.now,
            cluster: cluster.to_owned(),
            role: role.to_owned(),
            instance: Some(Instance {
                id: machine.id.clone(),
                availability_zone: machine.zone.clone(),
                private_address: format!("10.0.{}.{}", byte(0), byte(2)),
            }),
            applied: Applied {
                config: machine.node.as_ref().map(|node| node.config.clone()),
                credentials: Some(machine.credentials.clone()),
                agent: machine.node.as_ref().and_then(|node| node.agent.clone()),
                matches_node_file: machine.ready,
            },
            served: Vec::new(),
            held: Vec::new(),
            healthy: machine.power == Power::Up && components.iter().all(|one| one.healthy),
            components,
            etcd,
            node: None,
            unready: Vec::new(),
            node_manager: None,
        }
    }
}

/// The processes that read some credentials only at the start, with the agent's names.
fn restarted(role: &str) -> &'static [&'static str] {
    match role {
        "controller" => &["kube-apiserver"],
        _ if role.starts_with("etcd-") => &["etcd"],
        _ => &["kubelet"],
    }
}

fn unreachable() -> VerbFailure {
    VerbFailure::transient(FailureCode::EtcdUnreachable, "etcd does not answer", HELP)
}

fn no_leader() -> VerbFailure {
    VerbFailure::transient(FailureCode::EtcdNoLeader, "the cluster has no leader", HELP)
}
