//! What a cluster is doing.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use slipway_core::diagnostic::Diagnostic;
use slipway_core::words::moment;

use super::ways::{DOING, leads};
use super::{Active, CalledOff, Destroy, Destroyed, Rollout};

/// What a cluster is doing: one thing at a time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Doing {
    /// Nothing.
    #[default]
    Idle,
    /// A rollout is open.
    Rolling(Box<Active>),
    /// A rollout is open and is being ended, because the cluster is to be destroyed after it.
    Ending {
        /// The rollout.
        rolling: Box<Active>,
        /// What comes after it.
        then: Box<Destroy>,
    },
    /// It is being destroyed, or the destruction has stopped half-way.
    Going(Box<Destroy>),
    /// Its destruction was aborted half-way, and nothing was rolled out since.
    CalledOff(CalledOff),
    /// It was destroyed, and nothing was done since.
    Gone(Destroyed),
}

/// The name of what a cluster does in [`DOING`].
const fn doing_name(doing: &Doing) -> &'static str {
    match doing {
        Doing::Idle => "idle",
        Doing::Rolling(_) => "rolling",
        Doing::Ending { .. } => "ending",
        Doing::Going(_) => "going",
        Doing::CalledOff(_) => "calledOff",
        Doing::Gone(_) => "gone",
    }
}

impl Rollout {
    /// The open rollout.
    #[must_use]
    pub fn active(&self) -> Option<&Active> {
        match &self.doing {
            Doing::Rolling(active) | Doing::Ending { rolling: active, .. } => Some(active),
            Doing::Idle | Doing::Going(_) | Doing::CalledOff(_) | Doing::Gone(_) => None,
        }
    }

    /// The open rollout, to be changed.
    pub fn active_mut(&mut self) -> Option<&mut Active> {
        match &mut self.doing {
            Doing::Rolling(active) | Doing::Ending { rolling: active, .. } => Some(active),
            Doing::Idle | Doing::Going(_) | Doing::CalledOff(_) | Doing::Gone(_) => None,
        }
    }

    /// The destruction that is open or has stopped half-way, or that comes after the open rollout.
    #[must_use]
    pub fn destroy(&self) -> Option<&Destroy> {
        match &self.doing {
            Doing::Going(open) | Doing::Ending { then: open, .. } => Some(open),
            Doing::Idle | Doing::Rolling(_) | Doing::CalledOff(_) | Doing::Gone(_) => None,
        }
    }

    /// The same destruction, to be changed.
    pub fn destroy_mut(&mut self) -> Option<&mut Destroy> {
        match &mut self.doing {
            Doing::Going(open) | Doing::Ending { then: open, .. } => Some(open),
            Doing::Idle | Doing::Rolling(_) | Doing::CalledOff(_) | Doing::Gone(_) => None,
        }
    }

    /// The destruction that was aborted half-way, if nothing was rolled out since.
    #[must_use]
    pub const fn called_off(&self) -> Option<&CalledOff> {
        match &self.doing {
            Doing::CalledOff(off) => Some(off),
            Doing::Idle | Doing::Rolling(_) | Doing::Ending { .. } | Doing::Going(_) | Doing::Gone(_) => None,
        }
    }

    /// The destruction of the cluster, if nothing was done since.
    #[must_use]
    pub const fn was_destroyed(&self) -> Option<&Destroyed> {
        match &self.doing {
            Doing::Gone(gone) => Some(gone),
            Doing::Idle
            | Doing::Rolling(_)
            | Doing::Ending { .. }
            | Doing::Going(_)
            | Doing::CalledOff(_) => None,
        }
    }

    /// The last destruction of the cluster, whatever was done since.
    #[must_use]
    pub fn last_destroyed(&self) -> Option<&Destroyed> {
        self.was_destroyed().or(self.destroyed_before.as_ref())
    }

    /// Whether the table of the page has a move to here from what the cluster did `before`. A decision may make several moves at once.
    pub(super) fn follows(&self, before: &Doing) -> bool {
        leads(DOING, doing_name(before), doing_name(&self.doing))
    }

    /// Its destruction was aborted half-way.
    pub(super) fn calls_off(&mut self, off: CalledOff) {
        self.does(Doing::CalledOff(off));
    }

    /// It was destroyed.
    pub(super) fn is_gone(&mut self, gone: Destroyed) {
        self.does(Doing::Gone(gone));
    }

    /// Sets what the cluster does from now on. An earlier destruction is remembered.
    pub(super) fn does(&mut self, doing: Doing) {
        if let Doing::Gone(gone) = std::mem::replace(&mut self.doing, doing) {
            self.destroyed_before = Some(gone);
        }
    }

    /// Takes out the open rollout. The caller puts it back, or it has ended.
    pub(super) fn take_active(&mut self) -> Option<Active> {
        match std::mem::take(&mut self.doing) {
            Doing::Rolling(active) => Some(*active),
            Doing::Ending { rolling, then } => {
                self.doing = Doing::Going(then);
                Some(*rolling)
            }
            other @ (Doing::Idle | Doing::Going(_) | Doing::CalledOff(_) | Doing::Gone(_)) => {
                self.doing = other;
                None
            }
        }
    }

    /// Puts in an open rollout.
    pub(super) fn put_active(&mut self, active: Active) {
        let rolling = Box::new(active);
        match std::mem::take(&mut self.doing) {
            Doing::Going(then) | Doing::Ending { then, .. } => self.doing = Doing::Ending { rolling, then },
            other @ (Doing::Idle | Doing::Rolling(_) | Doing::CalledOff(_) | Doing::Gone(_)) => {
                self.doing = other;
                self.does(Doing::Rolling(rolling));
            }
        }
    }

    /// Takes out the open destruction, unless a rollout has to end before it.
    pub(super) fn take_going(&mut self) -> Option<Destroy> {
        match std::mem::take(&mut self.doing) {
            Doing::Going(open) => Some(*open),
            other @ (Doing::Idle
            | Doing::Rolling(_)
            | Doing::Ending { .. }
            | Doing::CalledOff(_)
            | Doing::Gone(_)) => {
                self.doing = other;
                None
            }
        }
    }

    /// The cluster is to be destroyed, at once or after the open rollout.
    pub(super) fn put_destroy(&mut self, open: Destroy) {
        let then = Box::new(open);
        match std::mem::take(&mut self.doing) {
            Doing::Rolling(rolling) | Doing::Ending { rolling, .. } => {
                self.doing = Doing::Ending { rolling, then };
            }
            other @ (Doing::Idle | Doing::Going(_) | Doing::CalledOff(_) | Doing::Gone(_)) => {
                self.doing = other;
                self.does(Doing::Going(then));
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
