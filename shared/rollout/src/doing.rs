//! What a cluster is doing.

use serde::{Deserialize, Serialize};

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
    /// A rollout is open and comes to its end, since the cluster is to be taken away after it.
    Ending {
        /// The rollout.
        rolling: Box<Active>,
        /// What comes after it.
        then: Box<Destroy>,
    },
    /// It is being taken away, or that has stopped half-way.
    Going(Box<Destroy>),
    /// To take it away was called off half-way, and nothing was rolled out since.
    CalledOff(CalledOff),
    /// It was taken away, and nothing was done since.
    Gone(Destroyed),
}

impl Rollout {
    /// The rollout that is open.
    #[must_use]
    pub fn active(&self) -> Option<&Active> {
        match &self.doing {
            Doing::Rolling(active) | Doing::Ending { rolling: active, .. } => Some(active),
            Doing::Idle | Doing::Going(_) | Doing::CalledOff(_) | Doing::Gone(_) => None,
        }
    }

    /// The same, to be changed.
    pub fn active_mut(&mut self) -> Option<&mut Active> {
        match &mut self.doing {
            Doing::Rolling(active) | Doing::Ending { rolling: active, .. } => Some(active),
            Doing::Idle | Doing::Going(_) | Doing::CalledOff(_) | Doing::Gone(_) => None,
        }
    }

    /// The destruction that is open or has stopped half-way, or comes after the rollout that is open.
    #[must_use]
    pub fn destroy(&self) -> Option<&Destroy> {
        match &self.doing {
            Doing::Going(open) | Doing::Ending { then: open, .. } => Some(open),
            Doing::Idle | Doing::Rolling(_) | Doing::CalledOff(_) | Doing::Gone(_) => None,
        }
    }

    /// The same, to be changed.
    pub fn destroy_mut(&mut self) -> Option<&mut Destroy> {
        match &mut self.doing {
            Doing::Going(open) | Doing::Ending { then: open, .. } => Some(open),
            Doing::Idle | Doing::Rolling(_) | Doing::CalledOff(_) | Doing::Gone(_) => None,
        }
    }

    /// That to take it away was called off half-way, and nothing was rolled out since.
    #[must_use]
    pub const fn called_off(&self) -> Option<&CalledOff> {
        match &self.doing {
            Doing::CalledOff(off) => Some(off),
            Doing::Idle | Doing::Rolling(_) | Doing::Ending { .. } | Doing::Going(_) | Doing::Gone(_) => None,
        }
    }

    /// That it was taken away, and nothing was done since.
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

    /// How it was taken away last, whatever was done since.
    #[must_use]
    pub fn last_destroyed(&self) -> Option<&Destroyed> {
        self.was_destroyed().or(self.destroyed_before.as_ref())
    }

    /// It does that from now on. That it was taken away is remembered.
    pub(super) fn does(&mut self, doing: Doing) {
        if let Doing::Gone(gone) = std::mem::replace(&mut self.doing, doing) {
            self.destroyed_before = Some(gone);
        }
    }

    /// Takes out the rollout that is open: who does puts it back, or it has ended.
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

    /// Puts a rollout in, or back, which is open.
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

    /// Takes out the destruction that is open, where no rollout has to end before it.
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

    /// It is to be taken away, at once or after the rollout that is open.
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
