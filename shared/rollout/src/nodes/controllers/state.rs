//! The states of the work on controllers.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::transitions::{Transition, Wakes};

use super::super::Phase;
use super::super::machine::{Place, State, Tries};
use crate::errand::{Round, SentCommand};

/// The work on the controllers of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Controllers {
    /// What is done to them.
    pub work: ControllersWork,
    /// The number of controllers in the spec.
    pub size: u32,
    /// Seconds after which a drain may use force, if all other rules for that hold; `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_after_s: Option<u32>,
    /// Controllers that have their new credentials.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub done: BTreeSet<String>,
    /// The controller that has a [`Departure`](crate::Departure): it is being drained, or is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub departs: Option<String>,
    /// Failed tries.
    #[serde(default, skip_serializing_if = "Tries::is_none")]
    pub tries: Tries,
    /// The state of the work.
    pub phase: Phase<ControllersState>,
}

/// What is done to controllers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ControllersWork {
    /// They install credentials with that digest in place.
    Refresh {
        /// The digest.
        credentials: String,
    },
    /// They are replaced.
    Replace,
    /// A surplus controller is removed, if there is one.
    Fewer {
        /// Whether it is removed before their stack is updated.
        before_stack: bool,
    },
}

/// The states of [`Controllers`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ControllersState {
    /// Looks for the next work.
    Look {
        /// Since when there seems to be none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idle_since: Option<Timestamp>,
    },
    /// The others are asked whether they are healthy.
    Check {
        /// The controller to be changed or terminated.
        machine: String,
        /// The queries.
        round: Round,
    },
    /// A snapshot of etcd is being taken.
    Snapshot {
        /// The controller to be changed or terminated.
        machine: String,
        /// The command.
        sent: SentCommand,
    },
    /// A controller installs its credentials.
    Refresh(SentCommand),
    /// An additional controller is launched before one is terminated.
    OneMore,
    /// Pods are evicted.
    Drain {
        /// The controller that is drained.
        machine: String,
    },
    /// A controller was terminated, and no machine replaces it.
    Leave {
        /// The controller.
        machine: String,
    },
    /// All are asked whether they are healthy.
    Verify(Round),
}

impl State for ControllersState {
    const TRANSITIONS: &'static [Transition] = &[
        Transition::new(
            "look",
            "finds the controllers that have to change or leave; waits for a window",
            &[Wakes::Machine],
            &["check", "verify", "failed"],
        ),
        Transition::new(
            "check",
            "checks the health of the other controllers",
            &[Wakes::Command],
            &["snapshot", "refresh", "oneMore", "drain", "leave", "look", "failed"],
        ),
        Transition::new(
            "snapshot",
            "a snapshot of etcd is taken before the first controller of another minor release is launched",
            &[Wakes::Command],
            &["check", "look", "failed"],
        ),
        Transition::new(
            "refresh",
            "a controller installs its new credentials",
            &[Wakes::Command],
            &["verify", "look", "failed"],
        ),
        Transition::new(
            "oneMore",
            "an additional controller is launched before one is terminated",
            &[Wakes::Machine],
            &["look", "failed"],
        ),
        Transition::new(
            "drain",
            "the pods of the controller that leaves are evicted",
            &[Wakes::Command],
            &["check", "look", "failed"],
        ),
        Transition::new(
            "leave",
            "a controller was terminated, and has no successor",
            &[Wakes::Machine],
            &["verify", "look", "failed"],
        ),
        Transition::new(
            "verify",
            "checks the health of all controllers",
            &[Wakes::Command],
            &["look", "done", "failed"],
        ),
        Transition::DONE,
        Transition::FAILED,
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
            | Self::Drain { machine }
            | Self::Leave { machine } => Some(machine),
            Self::Refresh(sent) => Some(&sent.command.instance),
            Self::Look { .. } | Self::OneMore | Self::Verify(_) => None,
        }
    }

    fn commands(&self) -> &[SentCommand] {
        match self {
            Self::Check { round, .. } | Self::Verify(round) => round.as_slice(),
            Self::Snapshot { sent, .. } | Self::Refresh(sent) => std::slice::from_ref(sent),
            Self::Look { .. } | Self::OneMore | Self::Drain { .. } | Self::Leave { .. } => &[],
        }
    }

    fn commands_mut(&mut self) -> &mut [SentCommand] {
        match self {
            Self::Check { round, .. } | Self::Verify(round) => round.as_mut_slice(),
            Self::Snapshot { sent, .. } | Self::Refresh(sent) => std::slice::from_mut(sent),
            Self::Look { .. } | Self::OneMore | Self::Drain { .. } | Self::Leave { .. } => &mut [],
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
