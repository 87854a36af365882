//! What a cluster is doing.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use slipway_core::diagnostic::Diagnostic;
use slipway_core::words::moment;

use super::transitions::{ACTIVITY, leads};
use super::{AbortedDestruction, Active, Destroy, Destroyed, Rollout};

/// What a cluster is doing: one thing at a time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Activity {
    /// Nothing.
    #[default]
    Idle,
    /// A rollout is open.
    RollingOut(Box<Active>),
    /// A rollout is open and is being ended, because the cluster is to be destroyed after it.
    EndingRollout {
        /// The rollout.
        rolling: Box<Active>,
        /// What comes after it.
        then: Box<Destroy>,
    },
    /// It is being destroyed, or the destruction has stopped half-way.
    Destroying(Box<Destroy>),
    /// Its destruction was aborted half-way, and nothing was rolled out since.
    DestructionAborted(AbortedDestruction),
    /// It was destroyed, and nothing was done since.
    Destroyed(Destroyed),
}

/// The name of an activity in [`ACTIVITY`].
const fn activity_name(activity: &Activity) -> &'static str {
    match activity {
        Activity::Idle => "idle",
        Activity::RollingOut(_) => "rollingOut",
        Activity::EndingRollout { .. } => "endingRollout",
        Activity::Destroying(_) => "destroying",
        Activity::DestructionAborted(_) => "destructionAborted",
        Activity::Destroyed(_) => "destroyed",
    }
}

impl Rollout {
    /// The open rollout.
    #[must_use]
    pub fn active(&self) -> Option<&Active> {
        match &self.activity {
            Activity::RollingOut(active) | Activity::EndingRollout { rolling: active, .. } => Some(active),
            Activity::Idle
            | Activity::Destroying(_)
            | Activity::DestructionAborted(_)
            | Activity::Destroyed(_) => None,
        }
    }

    /// The open rollout, to be changed.
    pub fn active_mut(&mut self) -> Option<&mut Active> {
        match &mut self.activity {
            Activity::RollingOut(active) | Activity::EndingRollout { rolling: active, .. } => Some(active),
            Activity::Idle
            | Activity::Destroying(_)
            | Activity::DestructionAborted(_)
            | Activity::Destroyed(_) => None,
        }
    }

    /// The destruction that is open or has stopped half-way, or that comes after the open rollout.
    #[must_use]
    pub fn destroy(&self) -> Option<&Destroy> {
        match &self.activity {
            Activity::Destroying(open) | Activity::EndingRollout { then: open, .. } => Some(open),
            Activity::Idle
            | Activity::RollingOut(_)
            | Activity::DestructionAborted(_)
            | Activity::Destroyed(_) => None,
        }
    }

    /// The same destruction, to be changed.
    pub fn destroy_mut(&mut self) -> Option<&mut Destroy> {
        match &mut self.activity {
            Activity::Destroying(open) | Activity::EndingRollout { then: open, .. } => Some(open),
            Activity::Idle
            | Activity::RollingOut(_)
            | Activity::DestructionAborted(_)
            | Activity::Destroyed(_) => None,
        }
    }

    /// The destruction that was aborted half-way, if nothing was rolled out since.
    #[must_use]
    pub const fn aborted_destruction(&self) -> Option<&AbortedDestruction> {
        match &self.activity {
            Activity::DestructionAborted(off) => Some(off),
            Activity::Idle
            | Activity::RollingOut(_)
            | Activity::EndingRollout { .. }
            | Activity::Destroying(_)
            | Activity::Destroyed(_) => None,
        }
    }

    /// The destruction of the cluster, if nothing was done since.
    #[must_use]
    pub const fn was_destroyed(&self) -> Option<&Destroyed> {
        match &self.activity {
            Activity::Destroyed(gone) => Some(gone),
            Activity::Idle
            | Activity::RollingOut(_)
            | Activity::EndingRollout { .. }
            | Activity::Destroying(_)
            | Activity::DestructionAborted(_) => None,
        }
    }

    /// The last destruction of the cluster, whatever was done since.
    #[must_use]
    pub fn last_destroyed(&self) -> Option<&Destroyed> {
        self.was_destroyed().or(self.destroyed_before.as_ref())
    }

    /// Whether the table of the page has a move to here from what the cluster did `before`. A decision may make several moves at once.
    pub(super) fn follows(&self, before: &Activity) -> bool {
        leads(ACTIVITY, activity_name(before), activity_name(&self.activity))
    }

    /// Its destruction was aborted half-way.
    pub(super) fn record_abort(&mut self, off: AbortedDestruction) {
        self.set_activity(Activity::DestructionAborted(off));
    }

    /// It was destroyed.
    pub(super) fn record_destroyed(&mut self, gone: Destroyed) {
        self.set_activity(Activity::Destroyed(gone));
    }

    /// Sets what the cluster does from now on. An earlier destruction is remembered.
    pub(super) fn set_activity(&mut self, activity: Activity) {
        if let Activity::Destroyed(gone) = std::mem::replace(&mut self.activity, activity) {
            self.destroyed_before = Some(gone);
        }
    }

    /// Takes out the open rollout. The caller puts it back, or it has ended.
    pub(super) fn take_active(&mut self) -> Option<Active> {
        match std::mem::take(&mut self.activity) {
            Activity::RollingOut(active) => Some(*active),
            Activity::EndingRollout { rolling, then } => {
                self.activity = Activity::Destroying(then);
                Some(*rolling)
            }
            other @ (Activity::Idle
            | Activity::Destroying(_)
            | Activity::DestructionAborted(_)
            | Activity::Destroyed(_)) => {
                self.activity = other;
                None
            }
        }
    }

    /// Puts in an open rollout.
    pub(super) fn put_active(&mut self, active: Active) {
        let rolling = Box::new(active);
        match std::mem::take(&mut self.activity) {
            Activity::Destroying(then) | Activity::EndingRollout { then, .. } => {
                self.activity = Activity::EndingRollout { rolling, then }
            }
            other @ (Activity::Idle
            | Activity::RollingOut(_)
            | Activity::DestructionAborted(_)
            | Activity::Destroyed(_)) => {
                self.activity = other;
                self.set_activity(Activity::RollingOut(rolling));
            }
        }
    }

    /// Takes out the open destruction, unless a rollout has to end before it.
    pub(super) fn take_destruction(&mut self) -> Option<Destroy> {
        match std::mem::take(&mut self.activity) {
            Activity::Destroying(open) => Some(*open),
            other @ (Activity::Idle
            | Activity::RollingOut(_)
            | Activity::EndingRollout { .. }
            | Activity::DestructionAborted(_)
            | Activity::Destroyed(_)) => {
                self.activity = other;
                None
            }
        }
    }

    /// The cluster is to be destroyed, at once or after the open rollout.
    pub(super) fn put_destruction(&mut self, open: Destroy) {
        let then = Box::new(open);
        match std::mem::take(&mut self.activity) {
            Activity::RollingOut(rolling) | Activity::EndingRollout { rolling, .. } => {
                self.activity = Activity::EndingRollout { rolling, then };
            }
            other @ (Activity::Idle
            | Activity::Destroying(_)
            | Activity::DestructionAborted(_)
            | Activity::Destroyed(_)) => {
                self.activity = other;
                self.set_activity(Activity::Destroying(then));
            }
        }
    }
}

impl Rollout {
    /// Since when its destruction has been ordered, if it makes no progress: it has stopped, or everything is paused. The cluster may serve all
    /// that time.
    #[must_use]
    pub fn stalled_destruction(&self) -> Option<Timestamp> {
        let stalled = |open: &&Destroy| open.has_stopped() || self.paused_since().is_some();
        self.destroy().filter(stalled).map(|open| open.asked_at)
    }
}

/// The finding for a spec of a cluster that is being destroyed, or that was destroyed together with this version.
#[must_use]
pub fn destruction_finding(rollout: &Rollout, version: &str) -> Option<Diagnostic> {
    let cluster = &rollout.cluster;
    let gone = rollout.last_destroyed().filter(|gone| gone.spec_versions.contains(version));
    let (message, help) = match (rollout.destruction_message(), gone) {
        (Some(going), _) => (
            going,
            format!(
                "upload it again when that is over, which makes the cluster anew; or first end it: slipway abort --cluster {cluster}"
            ),
        ),
        (None, Some(gone)) => (
            format!("{cluster} was destroyed at {}", moment(gone.at)),
            format!("slipway apply cluster.yaml --cluster {cluster} makes it anew"),
        ),
        (None, None) => return None,
    };
    Some(Diagnostic { help: Some(help), ..Diagnostic::for_whole_spec("destroyed", message) })
}
