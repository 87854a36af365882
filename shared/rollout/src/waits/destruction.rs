//! What a destruction waits for.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};
use slipway_core::role::Role;

use super::Detail;
use crate::observed::StackStatus;

/// What a stack waits for during a destruction.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum GoingWaits {
    /// For nothing: it exists, and is not to be deleted now.
    Stands,
    /// For nothing: it failed, for this reason.
    Failed(Detail<String>),
    /// For nothing: it is gone.
    Gone,
    /// For nothing: it belongs to somebody else.
    NotOurs,
    /// For CloudFormation, which has just been told to delete it.
    Told,
    /// For CloudFormation, which deletes it.
    Deletes,
    /// For CloudFormation, which is changing it for another reason.
    AtWork(StackStatus),
    /// For an observation of etcd's groups.
    LooksForMembers,
    /// For nothing: there is no etcd to take a snapshot of.
    NoEtcd,
    /// For the answer which member leads.
    Leader,
    /// For the snapshot before anything is deleted.
    FirstSnapshot,
    /// For nothing: the snapshot before anything is deleted has this key.
    FirstTaken(String),
    /// For the last snapshot.
    Snapshot,
    /// For nothing: the last snapshot has this key.
    SnapshotTaken(String),
    /// Until this no longer prevents the last snapshot.
    SnapshotHeld(Detail<String>),
    /// For a member that deletes the records of all members.
    Records,
    /// For a booting machine, which writes its record.
    RecordsBoot {
        /// `i-…`.
        machine: String,
        /// Its role.
        role: Role,
    },
    /// Until this no longer prevents the deletion of the records.
    RecordsHeld(Detail<String>),
}

impl Display for GoingWaits {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stands => f.write_str("exists"),
            Self::Failed(why) => why.fmt(f),
            Self::Gone => f.write_str("deleted"),
            Self::NotOurs => f.write_str("is not Slipway's, and is left alone"),
            Self::Told => f.write_str("its deletion was requested"),
            Self::Deletes => f.write_str("CloudFormation deletes it"),
            Self::AtWork(status) => write!(f, "CloudFormation is at work ({status})"),
            Self::LooksForMembers => f.write_str("looks for members of etcd"),
            Self::NoEtcd => f.write_str("there is no etcd"),
            Self::Leader => f.write_str("asks the members of etcd which one leads"),
            Self::FirstSnapshot => f.write_str("takes a snapshot before anything is deleted"),
            Self::FirstTaken(key) => {
                write!(f, "a snapshot is stored at {key}; the last one follows when no API server is left")
            }
            Self::Snapshot => f.write_str("takes the last snapshot, after the last API server is gone"),
            Self::SnapshotTaken(key) => write!(f, "the last snapshot is stored at {key}"),
            Self::SnapshotHeld(why) => write!(f, "waits: {why}"),
            Self::Records => f.write_str("a member deletes the DNS records of all members"),
            Self::RecordsBoot { machine, role } => {
                write!(
                    f,
                    "waits until {machine} of {role} has booted, because it writes its record until then"
                )
            }
            Self::RecordsHeld(why) => {
                write!(f, "waits to delete the DNS records of etcd's members: {why}")
            }
        }
    }
}

/// The progress of a destruction, as far as it is published.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// Its state.
    pub how: Pace,
    /// How many stacks are gone, of how many.
    pub gone: (usize, usize),
}

/// The state of a destruction.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Pace {
    /// It was aborted.
    Aborted,
    /// It stopped, for this reason.
    Stopped(Detail<String>),
    /// It continues, to its end or until CloudFormation's operations have ended.
    Open {
        /// Whether it was aborted or paused.
        held: Option<Held>,
        /// What its stacks wait for.
        waits: BTreeMap<String, GoingWaits>,
    },
}

/// What holds a destruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Held {
    /// It was aborted.
    Aborted,
    /// It is paused.
    Paused,
}
