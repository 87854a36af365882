//! Auto Scaling and the machines that it launches.
//!
//! Groups are created from the templates that CloudFormation applies (`made`). They keep the desired number of machines
//! (`scaling`), and hold machines in lifecycle hooks (`hooks`) until the machine's agent (`boot`), or whoever drains the machine,
//! completes the hook. `api` has the actions that others may call.

mod api;
mod autoscaler;
mod boot;
mod events;
mod faults;
mod hooks;
mod leave;
mod made;
mod others;
mod outside;
mod partitions;
mod repairs;
mod scaling;
mod shown;
mod silence;
mod targets;
mod userdata;
mod view;
mod zones;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::Timestamp;
use serde_json::Value;
use slipway_core::node::BootstrapReport;

pub(crate) use api::Termination;
pub use faults::FleetFaults;
pub use outside::Launch;
pub use repairs::Repairers;
pub(crate) use shown::{ShownGroup, ShownMachine};
pub(crate) use targets::ShownTarget;
pub use view::{GroupFacts, MachineFacts};

use super::cluster::Cluster;
use super::commands::{Delegated, Sent};
use super::machine::{Fate, Group, Machine};

/// The state of everything outside of CloudFormation itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fleet {
    /// The content of each version of each launch template (`LaunchTemplateData`).
    pub(super) templates: BTreeMap<String, BTreeMap<u64, Value>>,
    /// By name.
    pub(super) groups: BTreeMap<String, Group>,
    /// By id; machines that are gone are not included.
    pub(super) machines: BTreeMap<String, Machine>,
    /// The programs on the machines, by the cluster's name.
    pub(super) clusters: BTreeMap<String, Cluster>,
    /// Run Command's commands, in the order in which they were sent.
    pub(super) commands: Vec<Sent>,
    /// Records that members of etcd have written to hosted zones, by zone and name. No stack knows of them.
    pub(super) records: BTreeSet<(String, String)>,
    /// Roles whose machines get their commands executed by somebody outside of this world, and the commands that were not fetched
    /// yet.
    pub(super) outside: BTreeSet<String>,
    pub(super) delegated: Vec<Delegated>,
    /// Nothing happens to machines by itself: see `outside`.
    pub(super) others_run_machines: bool,
    pub(super) faults: FleetFaults,
    pub(super) autoscaler: Option<autoscaler::Autoscaler>,
    /// How node managers have workers replaced that are not Ready; `None`: they do not.
    pub(super) repairers: Option<Repairers>,
    /// How many pods of workloads fit on a worker's node; `None`: any number.
    pub(super) room: Option<usize>,
    /// How many of the next workers that are cordoned a person uncordons.
    pub(super) uncordons: usize,
    /// Whether somebody releases the machines of groups that are deleted.
    pub(super) lets_go: bool,
    /// The planned fates of the next machines of a group.
    pub(super) fates: BTreeMap<String, VecDeque<Fate>>,
    /// The number of machines that were launched, so that each gets an id of its own.
    pub(super) launched: u64,
    /// Earlier states of groups, newest last, for answers that are late.
    pub(super) past: BTreeMap<String, VecDeque<(Timestamp, ShownGroup)>>,
    /// The bootstrap reports of agents, with the cluster's name.
    pub(super) reports: Vec<(String, BootstrapReport)>,
    /// What happened, one line per event.
    pub(super) story: Vec<(Timestamp, String)>,
}
