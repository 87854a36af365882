//! Repair of workers: which worker whose Node is not Ready is reported to Auto Scaling as unhealthy, so that it is drained and replaced.
//!
//! [`decide`] is called again and again: by the node managers on the controllers with what the API server says, by the simulator with what
//! its world says. Auto Scaling replaces by itself what EC2 finds dead. This is about machines that EC2 finds well, and whose kubelets do not
//! report, or report that no pod can run.
//!
//! **A mistake of the network must not eat a cluster.** To a controller it looks the same whether a worker hangs or the way to it is
//! closed. So one worker of a pool is repaired at a time, and none while most workers of the cluster, of the pool or of the zone are not
//! Ready. After that the successor must be Ready, or [`PATIENCE`] must have passed.
//!
//! **Silence is measured by whoever acts.** After an outage of the control plane all Nodes look silent, and a condition's time is that of
//! another machine's clock. So a controller counts only what it has seen itself, without a gap ([`Watch`]).
//!
//! What all controllers must know is in one object that they share ([`Ledger`]), written under the version that was read before anybody acts.

mod decide;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

pub use crate::cluster::{Repair, RepairMode};
use crate::node::report::{RepairState, UnreadyWorker};
pub use decide::decide;

/// The longest time between two looks of a controller after which it still counts as having watched. A pass of the node manager begins 20 s
/// after the last one has ended, at the latest (`agent/src/manage.rs`).
const GAP_S: u64 = 120;
/// A controller looks once in so many seconds: a look lists all Nodes, and a Node has some 15 KB.
const LOOK_S: u64 = 45;
/// The time from one repair of a pool to the next one, at least.
pub const PAUSE: SignedDuration = SignedDuration::from_mins(15);
/// How long a repaired worker may take to go, and then its successor to become Ready, before the next one of its pool is repaired. If the way to
/// the workers is closed, none becomes Ready, and a pool loses four machines a day. A drain may take 48 hours, and one of several ill workers
/// must not keep the others ill for as long.
pub const PATIENCE: SignedDuration = SignedDuration::from_hours(6);
/// After so many repairs of a pool [`WITHIN`] this time, people are asked first. Successors that become Ready and fail after a while fail for a
/// reason that comes with them, and each repair costs its pods an interruption.
const MOST_REPAIRS: usize = 3;
const WITHIN: SignedDuration = SignedDuration::from_hours(6);
/// From so many workers in a hundred on that are not Ready, the fault is not that of one machine: `--unhealthy-zone-threshold` of
/// kube-controller-manager.
const MOST_PERCENT: usize = 55;
/// So many are not enough for that in a pool or a zone: `ComputeZoneState` in kubernetes `pkg/controller/nodelifecycle`.
const FEW: usize = 2;

/// What the spec says of the pools, as the node managers read it. A pool that is not in it has the default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    /// By pool.
    pub pools: BTreeMap<String, Repair>,
}

impl Settings {
    /// The namespace of the ConfigMap that holds them.
    pub const NAMESPACE: &'static str = "kube-system";
    /// The name of that ConfigMap.
    pub const NAME: &'static str = "slipway-repair";
    /// The key in that ConfigMap.
    pub const KEY: &'static str = "settings.json";

    /// Those of a pool.
    #[must_use]
    pub fn for_pool(&self, pool: &str) -> Repair {
        self.pools.get(pool).copied().unwrap_or_default()
    }
}

/// The Node of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// Its name: the id of its machine.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its pool.
    pub pool: String,
    /// Its availability zone, if it is known.
    pub zone: Option<String>,
    /// Its condition Ready is `True`.
    pub ready: bool,
    /// When it was created.
    pub created: Timestamp,
    /// It is cordoned, being drained or deleted, or the cluster autoscaler removes it.
    pub leaving: bool,
}

/// What one controller has seen itself, by a clock that only goes forward.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Watch {
    /// The time of its last look, in seconds since the machine was started.
    looked_s: Option<u64>,
    /// Since when each Node has not been Ready, by UID.
    unready_s: BTreeMap<String, u64>,
}

impl Watch {
    /// Whether it is time to look again.
    #[must_use]
    pub fn is_due(&self, now_s: u64) -> bool {
        self.looked_s.is_none_or(|last| now_s < last || now_s - last >= LOOK_S)
    }

    /// Records an observation of all workers. After a failed observation, discard the watch.
    pub fn record(&mut self, workers: &[Worker], now_s: u64) {
        let watched = self.looked_s.is_some_and(|last| last <= now_s && now_s - last <= GAP_S);
        let before = if watched { std::mem::take(&mut self.unready_s) } else { BTreeMap::new() };
        let unready = workers.iter().filter(|worker| !worker.ready);
        self.unready_s = unready
            .map(|worker| (worker.uid.clone(), before.get(&worker.uid).copied().unwrap_or(now_s)))
            .collect();
        self.looked_s = Some(now_s);
    }

    /// For how many seconds it has seen that this Node is not Ready.
    fn unready_for_s(&self, uid: &str) -> Option<u64> {
        Some(self.looked_s?.saturating_sub(*self.unready_s.get(uid)?))
    }
}

/// The last repair of each pool, which all controllers share.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ledger {
    /// By pool.
    pub pools: BTreeMap<String, Begun>,
}

/// A repair that was begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Begun {
    /// The Node.
    pub node: String,
    /// Its UID.
    pub uid: String,
    /// When, by the clock of the controller that began it.
    pub at: Timestamp,
    /// The times of the repairs of other workers of the pool before it, [`WITHIN`] its time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Timestamp>,
}

impl Ledger {
    /// Notes that the repair of this worker begins. It must be stored before Auto Scaling is told.
    pub fn begin(&mut self, ill: &Ill, at: Timestamp) {
        let mut earlier = Vec::new();
        if let Some(last) = self.pools.remove(&ill.pool) {
            // Auto Scaling may be told of the same worker again and again.
            let another = (last.uid != ill.uid).then_some(last.at);
            earlier.extend(last.earlier.into_iter().chain(another).filter(|time| is_within(*time, at)));
        }
        let begun = Begun { node: ill.node.clone(), uid: ill.uid.clone(), at, earlier };
        self.pools.insert(ill.pool.clone(), begun);
    }
}

impl Begun {
    /// How long ago it was begun. A controller whose clock was ahead must not hold the others for ever.
    fn age(&self, now: Timestamp) -> SignedDuration {
        now.duration_since(self.at).abs()
    }

    /// How many workers of its pool were repaired lately.
    fn lately(&self, now: Timestamp) -> usize {
        self.earlier.iter().chain([&self.at]).filter(|time| is_within(**time, now)).count()
    }
}

fn is_within(time: Timestamp, now: Timestamp) -> bool {
    now.duration_since(time).abs() < WITHIN
}

/// A worker that has not been Ready for longer than its pool allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ill {
    /// Its Node.
    pub node: String,
    /// The Node's UID.
    pub uid: String,
    /// Its pool.
    pub pool: String,
    /// For how many seconds it has not been Ready, at least.
    pub for_s: u64,
    /// What is done about it.
    pub verdict: Verdict,
}

impl Ill {
    /// What people are told of it. `ledger`: the repairs that were begun.
    #[must_use]
    pub fn report(&self, ledger: &Ledger, now: Timestamp) -> UnreadyWorker {
        let begun = ledger.pools.get(&self.pool).is_some_and(|begun| begun.uid == self.uid);
        let (repair, why) = match &self.verdict {
            Verdict::Reported => (RepairState::Told, None),
            Verdict::Repair => (RepairState::Begun, None),
            Verdict::Wait(Wait::Leaving | Wait::UnderWay { .. }) if begun => (RepairState::Begun, None),
            Verdict::Wait(why) => (RepairState::Waits, Some(why.to_string())),
        };
        let long = SignedDuration::from_secs(i64::try_from(self.for_s).unwrap_or(i64::MAX));
        UnreadyWorker {
            node: self.node.clone(),
            pool: self.pool.clone(),
            since: now.saturating_sub(long).unwrap_or(Timestamp::MIN),
            repair: repair.into(),
            why,
        }
    }
}

/// What is done about a worker that is not Ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// People are told, because the pool's `repair.mode` is `warn`.
    Reported,
    /// Auto Scaling is told that it is unhealthy.
    Repair,
    /// Nothing for now.
    Wait(Wait),
}

/// Why a worker is not repaired for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// Somebody is removing it already, or has cordoned it.
    Leaving,
    /// Auto Scaling was told to replace it [`PATIENCE`] ago, and it is still there.
    Stuck,
    /// It may still be booting.
    Young,
    /// Its machine cannot be replaced.
    Machine {
        /// Why, in words of whoever was asked.
        why: String,
    },
    /// So many others are not Ready that its machine is hardly the reason.
    Many {
        /// Of what.
        scope: Scope,
        /// How many are not Ready.
        unready: usize,
        /// How many there are.
        all: usize,
    },
    /// Another worker of its pool comes first.
    Turn {
        /// Its Node.
        node: String,
    },
    /// A worker of its pool was repaired a moment ago, or is being replaced.
    UnderWay {
        /// Its Node.
        node: String,
    },
    /// The successor of that worker is not Ready yet.
    Successor {
        /// The Node that is gone.
        node: String,
    },
    /// [`MOST_REPAIRS`] workers of its pool were repaired [`WITHIN`] the last hours.
    Often,
}

/// Workers that are counted together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All of the cluster.
    Cluster,
    /// Those of a pool.
    Pool(String),
    /// Those of a zone.
    Zone(String),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("the cluster"),
            Self::Pool(name) => write!(f, "the pool {name}"),
            Self::Zone(name) => write!(f, "the zone {name}"),
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leaving => f.write_str("it is cordoned, or being removed already"),
            Self::Stuck => write!(
                f,
                "Auto Scaling was told to replace it more than {} hours ago, and it is still there",
                PATIENCE.as_hours()
            ),
            Self::Young => f.write_str("it may still be booting"),
            Self::Machine { why } => f.write_str(why),
            Self::Many { scope, unready, all } => write!(
                f,
                "{unready} of {all} workers of {scope} are not Ready, so the fault is hardly that of one machine: check the network between \
                 controllers and workers"
            ),
            Self::Turn { node } => write!(f, "{node} of the same pool comes first"),
            Self::UnderWay { node } => write!(f, "{node} of the same pool is being repaired"),
            Self::Successor { node } => {
                write!(f, "no successor of {node} of the same pool has become Ready yet")
            }
            Self::Often => write!(
                f,
                "{MOST_REPAIRS} workers of the same pool were replaced in the last {} hours, so the fault is hardly that of single machines: \
                 find what makes them fail, for example a DaemonSet",
                WITHIN.as_hours()
            ),
        }
    }
}
