//! What controllers are that are worked on, and how far they are.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::states::{Wakes, Way};

use super::super::Phase;
use super::super::machine::{Place, State, Tries};
use crate::drain::Drain;
use crate::errand::{Asked, Round};

/// The controllers of a cluster that are worked on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Controllers {
    /// What is done to them.
    pub work: ControllersWork,
    /// How many there are to be.
    pub size: u32,
    /// Seconds after which a drain may be forced by all the other rules; `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_after_s: Option<u32>,
    /// Those that took new credentials.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub done: BTreeSet<String>,
    /// The one that pods were told to leave, and that has not gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordon: Option<Cordon>,
    /// How the work on one failed.
    #[serde(default, skip_serializing_if = "Tries::is_none")]
    pub tries: Tries,
    /// How far it is.
    pub phase: Phase<ControllersState>,
}

/// What is done to controllers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ControllersWork {
    /// They take credentials of that digest in place.
    Refresh {
        /// The digest.
        credentials: String,
    },
    /// Others take their places.
    Replace,
    /// There may be one too many, and it goes.
    Fewer {
        /// Whether it goes before their stack is updated.
        before_stack: bool,
    },
}

/// A controller that pods were told to leave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cordon {
    /// `i-…`.
    pub machine: String,
    /// Whether they have left.
    pub drained: bool,
}

/// How far [`Controllers`] are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ControllersState {
    /// Looks for what is to be done.
    Look {
        /// Since when nothing seems to be.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idle_since: Option<Timestamp>,
    },
    /// The others are asked whether they are well.
    Check {
        /// The one that is to change or go.
        machine: String,
        /// Who is asked.
        round: Round,
    },
    /// A snapshot of etcd is being taken.
    Snapshot {
        /// The one that is to change or go.
        machine: String,
        /// Who takes it.
        asked: Asked,
    },
    /// One takes its credentials.
    Refresh(Asked),
    /// One more comes before one goes.
    OneMore,
    /// Pods are evicted.
    Drain {
        /// The one that they leave.
        machine: String,
        /// How far that is.
        drain: Drain,
    },
    /// One was terminated, and none comes for it.
    Leave {
        /// Which.
        machine: String,
    },
    /// All are asked whether they are well.
    Verify(Round),
}

impl State for ControllersState {
    const WAYS: &'static [Way] = &[
        Way::new(
            "look",
            "looks who is to change or go; waits for a window",
            &[Wakes::Machine],
            &["check", "verify", "failed"],
        ),
        Way::new(
            "check",
            "the others are asked whether they are well",
            &[Wakes::Command],
            &["snapshot", "refresh", "oneMore", "drain", "leave", "look", "failed"],
        ),
        Way::new(
            "snapshot",
            "a snapshot of etcd is taken, before the first of another minor comes",
            &[Wakes::Command],
            &["check", "look", "failed"],
        ),
        Way::new(
            "refresh",
            "one takes its new credentials",
            &[Wakes::Command],
            &["verify", "look", "failed"],
        ),
        Way::new("oneMore", "one more comes before one goes", &[Wakes::Machine], &["look", "failed"]),
        Way::new(
            "drain",
            "the pods of the one that goes are evicted",
            &[Wakes::Command],
            &["check", "look", "failed"],
        ),
        Way::new(
            "leave",
            "it was terminated, and none comes for it",
            &[Wakes::Machine],
            &["verify", "look", "failed"],
        ),
        Way::new(
            "verify",
            "all are asked whether they are well",
            &[Wakes::Command],
            &["look", "done", "failed"],
        ),
        Way::DONE,
        Way::FAILED,
    ];

    fn start() -> Self {
        Self::Look { idle_since: None }
    }

    fn place(&self) -> Place {
        match self {
            Self::Look { .. } => Place::Look,
            Self::Check { .. } => Place::Check,
            Self::Snapshot { .. } => Place::Snapshot,
            Self::Refresh(_) => Place::Refresh,
            Self::OneMore => Place::OneMore,
            Self::Drain { .. } => Place::Drain,
            Self::Leave { .. } => Place::Leave,
            Self::Verify(_) => Place::Verify,
        }
    }

    fn machine(&self) -> Option<&String> {
        match self {
            Self::Check { machine, .. }
            | Self::Snapshot { machine, .. }
            | Self::Drain { machine, .. }
            | Self::Leave { machine } => Some(machine),
            Self::Refresh(asked) => Some(&asked.command.instance),
            Self::Look { .. } | Self::OneMore | Self::Verify(_) => None,
        }
    }

    fn asked(&self) -> &[Asked] {
        match self {
            Self::Check { round, .. } | Self::Verify(round) => round.as_slice(),
            Self::Snapshot { asked, .. } | Self::Refresh(asked) => std::slice::from_ref(asked),
            Self::Drain { drain, .. } => drain.asked.as_slice(),
            Self::Look { .. } | Self::OneMore | Self::Leave { .. } => &[],
        }
    }

    fn asked_mut(&mut self) -> &mut [Asked] {
        match self {
            Self::Check { round, .. } | Self::Verify(round) => round.as_mut_slice(),
            Self::Snapshot { asked, .. } | Self::Refresh(asked) => std::slice::from_mut(asked),
            Self::Drain { drain, .. } => drain.asked.as_mut_slice(),
            Self::Look { .. } | Self::OneMore | Self::Leave { .. } => &mut [],
        }
    }

    fn is_busy(&self) -> bool {
        match self {
            Self::Refresh(_) | Self::OneMore | Self::Drain { .. } | Self::Leave { .. } | Self::Verify(_) => {
                true
            }
            Self::Look { .. } | Self::Check { .. } | Self::Snapshot { .. } => false,
        }
    }

    fn not_sent(&self) -> Self {
        if let Self::Verify(_) = self { Self::Verify(Round::default()) } else { Self::start() }
    }
}
