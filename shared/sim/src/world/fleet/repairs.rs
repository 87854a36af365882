//! The node managers on the controllers, as far as they have workers replaced that are not Ready (`agent/src/manage/repair.rs`): each looks
//! once a minute, and asks `slipway_core::repair`, as the agent does. Auto Scaling replaces a machine that was reported to it as unhealthy
//! through its terminate hook ("Health checks for Auto Scaling instances" in the user guide), like one whose status check fails.
//!
//! A controller whose API server does not answer forgets what it has seen. The records in the API are shared, so each reads what the one
//! before it wrote.

use jiff::{SignedDuration, Timestamp};
use slipway_core::repair::{Ill, Ledger, Repair, RepairMode, Settings, Verdict, Wait, Watch, Worker, decide};

use super::super::World;
use super::super::error::{ApiError, ApiResult};
use super::super::machine::{Power, Reported, State};
use super::super::task::FleetTask;

/// The time between two looks.
const LOOKS_S: f64 = 60.0;
/// How long a worker that was reported counts as being replaced (docs/nodes.md, "Repair of workers"). It is not the constant of the node
/// managers, whom this judges.
const REPLACED_WITHIN: SignedDuration = SignedDuration::from_hours(6);
/// The minutes in every trial.
const AFTER_MINUTES: u32 = 15;

/// How node managers decide: as they should, or with a mistake that the checker must see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repairers {
    /// As they should.
    Careful,
    /// They forget the repairs that were begun, and repair all workers of a pool that are ill.
    SeveralAtOnce,
    /// They do not count how many others are not Ready.
    InSpiteOfPartitions,
    /// They do not wait.
    AtOnce,
}

impl World {
    /// From now on node managers have workers replaced that are not Ready; `None`: no longer.
    pub fn set_repairs(&mut self, how: Option<Repairers>) {
        if self.fleet.repairers == how {
            return;
        }
        let runs = self.fleet.repairers.is_some();
        self.fleet.repairers = how;
        self.record(format!("workers are {}repaired", if how.is_some() { "" } else { "not " }));
        if !runs {
            self.fleet_after_s(1.0, FleetTask::Repairs);
        }
    }

    /// The workers of a cluster that were reported as unhealthy, in order.
    #[must_use]
    pub fn reported(&self, cluster: &str) -> &[Reported] {
        self.fleet.clusters.get(cluster).map(|found| found.reported.as_slice()).unwrap_or_default()
    }

    /// The node managers of all clusters look.
    pub(super) fn repairs(&mut self) {
        let Some(how) = self.fleet.repairers else {
            self.fleet.clusters.values_mut().for_each(|cluster| cluster.watches.clear());
            return;
        };
        let clusters: Vec<String> = self.fleet.clusters.keys().cloned().collect();
        for cluster in clusters {
            let look = self.api_servers(&cluster);
            if let Some(found) = self.fleet.clusters.get_mut(&cluster) {
                found.watches.retain(|controller, _| look.contains(controller));
            }
            for controller in look {
                self.looks(&cluster, &controller, how);
            }
        }
        self.fleet_after_s(LOOKS_S, FleetTask::Repairs);
    }

    /// One look of one controller.
    fn looks(&mut self, cluster: &str, controller: &str, how: Repairers) {
        let (workers, now) = (self.workers(cluster), self.now);
        let Some(found) = self.fleet.clusters.get_mut(cluster) else { return };
        let watch = found.watches.entry(controller.to_owned()).or_default();
        watch.record(&workers, u64::try_from(now.as_second()).unwrap_or_default());
        let ill = how.decide(&workers, watch, &found.repairs, now);
        for one in ill.into_iter().filter(|one| one.verdict == Verdict::Repair) {
            if self.refuses_writes(cluster) {
                return;
            }
            if let Some(found) = self.fleet.clusters.get_mut(cluster) {
                found.repairs.begin(&one, now);
            }
            self.record(format!("{controller} reports {} of {} as unhealthy", one.node, one.pool));
            // If Auto Scaling does not answer, it is told again after the pause.
            let _ = self.set_instance_health(cluster, &one.node);
        }
    }

    /// The nodes of workers, as an API server shows them.
    fn workers(&self, cluster: &str) -> Vec<Worker> {
        let nodes = self.fleet.clusters.get(cluster).into_iter().flat_map(|found| &found.kube.nodes);
        let workers = nodes.filter_map(|(name, node)| {
            let machine = self.fleet.machines.get(name)?;
            Some(Worker {
                name: name.clone(),
                uid: name.clone(),
                pool: node.role.strip_prefix("pool-")?.to_owned(),
                zone: Some(machine.zone.clone()),
                ready: node.ready,
                created: machine.launched_at,
                leaving: !node.is_open() || node.drain.started.is_some(),
            })
        });
        workers.collect()
    }

    /// `SetInstanceHealth` with `Unhealthy`.
    fn set_instance_health(&mut self, cluster: &str, id: &str) -> ApiResult<()> {
        self.enter("SetInstanceHealth")?;
        let Some(machine) = self.fleet.machines.get(id).filter(|one| one.state == State::InService) else {
            return Err(ApiError::validation(format!("{id} is not in service")));
        };
        let role = machine.role().to_owned();
        let workers = self.workers(cluster);
        let node = self.fleet.clusters.get(cluster).and_then(|found| found.kube.nodes.get(id));
        let before = self.reported(cluster).iter().filter(|one| one.role == role && one.machine != id);
        let reported = Reported {
            at: self.now,
            machine: id.to_owned(),
            unready_since: node.and_then(|node| node.unready),
            cordoned: node.is_some_and(|node| node.drain.cordoned),
            unready: workers.iter().filter(|worker| !worker.ready).count(),
            all: workers.len(),
            others: before
                .filter(|one| self.now.duration_since(one.at) < REPLACED_WITHIN)
                .map(|one| one.machine.clone())
                .filter(|one| self.fleet.machines.get(one).is_some_and(|one| one.power == Power::Up))
                .collect(),
            role,
        };
        if let Some(found) = self.fleet.clusters.get_mut(cluster) {
            found.reported.push(reported);
        }
        self.unhealthy(id);
        Ok(())
    }
}

impl Repairers {
    fn decide(self, workers: &[Worker], watch: &Watch, ledger: &Ledger, now: Timestamp) -> Vec<Ill> {
        let on = |after_minutes| {
            let repair = Repair { mode: RepairMode::On, after_minutes };
            let pools = workers.iter().map(|worker| (worker.pool.clone(), repair));
            Settings { pools: pools.collect() }
        };
        let forgives = |wait: &Wait| match self {
            Self::Careful | Self::AtOnce => false,
            Self::SeveralAtOnce => {
                matches!(
                    wait,
                    Wait::Turn { .. } | Wait::UnderWay { .. } | Wait::Successor { .. } | Wait::Often
                )
            }
            Self::InSpiteOfPartitions => matches!(wait, Wait::Many { .. }),
        };
        let after_minutes = if self == Self::AtOnce { 1 } else { AFTER_MINUTES };
        let mut ill = decide(workers, watch, ledger, &on(after_minutes), now);
        for one in &mut ill {
            if let Verdict::Wait(wait) = &one.verdict
                && forgives(wait)
            {
                one.verdict = Verdict::Repair;
            }
        }
        ill
    }
}
