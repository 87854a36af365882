//! What a destruction waits for.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};
use slipway_core::role::Role;

use crate::observed::StackStatus;
use crate::waits::Detail;

/// What a stack waits for that goes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum GoingWaits {
    /// For nothing: it stands, and is not to go now.
    Stands,
    /// For nothing: it failed, and why.
    Failed(Detail<String>),
    /// For nothing: it is gone.
    Gone,
    /// For nothing: it is somebody else's.
    NotOurs,
    /// For CloudFormation, which was only just told to delete it.
    Told,
    /// For CloudFormation, which deletes it.
    Deletes,
    /// For CloudFormation, which is at work on it for another reason.
    AtWork(StackStatus),
    /// For a look at the groups of etcd.
    LooksForMembers,
    /// For nothing: there is no etcd that a snapshot could be taken of.
    NoEtcd,
    /// For members that are asked which of them leads.
    Leader,
    /// For the last snapshot.
    Snapshot,
    /// For nothing: the last snapshot lies at that key.
    SnapshotTaken(String),
    /// Until this is over, which is in the way of the last snapshot.
    SnapshotHeld(Detail<String>),
    /// For a member that takes back the records of all.
    Records,
    /// For a machine that boots and sets its record meanwhile.
    RecordsBoot {
        /// `i-…`.
        machine: String,
        /// Its role.
        role: Role,
    },
    /// Until this is over, which is in the way of taking the records back.
    RecordsHeld(Detail<String>),
}

impl Display for GoingWaits {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stands => f.write_str("stands"),
            Self::Failed(why) => why.fmt(f),
            Self::Gone => f.write_str("gone"),
            Self::NotOurs => f.write_str("is not Slipway's, and is left alone"),
            Self::Told => f.write_str("CloudFormation is told to delete it"),
            Self::Deletes => f.write_str("CloudFormation deletes it"),
            Self::AtWork(status) => write!(f, "CloudFormation is at work ({status})"),
            Self::LooksForMembers => f.write_str("looks for members of etcd"),
            Self::NoEtcd => f.write_str("there is no etcd"),
            Self::Leader => f.write_str("asks the members of etcd which of them leads"),
            Self::Snapshot => f.write_str("takes the last snapshot"),
            Self::SnapshotTaken(key) => write!(f, "the last snapshot lies at {key}"),
            Self::SnapshotHeld(why) => write!(f, "waits: {why}"),
            Self::Records => f.write_str("a member takes the records of etcd's members back"),
            Self::RecordsBoot { machine, role } => {
                write!(f, "waits until {machine} of {role} has booted, which sets its record meanwhile")
            }
            Self::RecordsHeld(why) => {
                write!(f, "waits to have the records of etcd's members taken back: {why}")
            }
        }
    }
}

/// How far a destruction is, as far as it is worth saying.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// What it does.
    pub how: Pace,
    /// How many stacks are gone, of how many.
    pub gone: (usize, usize),
}

/// What a destruction does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Pace {
    /// It was called off.
    CalledOff,
    /// It stopped, and why.
    Stopped(Detail<String>),
    /// It goes on, to its end or until what CloudFormation works at has ended.
    Open {
        /// Whether it was called off, or nothing new may start.
        held: Option<Held>,
        /// What its stacks wait for.
        waits: BTreeMap<String, GoingWaits>,
    },
}

/// What holds a destruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Held {
    /// It was called off.
    CalledOff,
    /// It is paused.
    Paused,
}
