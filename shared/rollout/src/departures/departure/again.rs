//! A machine that waits in its terminate hook after a rollout has terminated it: it is drained once more.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::super::{Scene, Slots};
use super::{Departure, DepartureState, HEARTBEAT, STAYS};
use crate::Effect;
use crate::drain::{Drain, DrainProgress};

/// The drain of a machine that waits in its terminate hook after a rollout has terminated it. It was empty when it was terminated, but a
/// person may have uncordoned it since, so that pods have come.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LastDrain {
    /// The state of the drain.
    #[serde(default)]
    pub(super) drain: Drain,
    /// When its terminate hook was last extended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) prolonged: Option<Timestamp>,
}

impl Departure {
    /// A rollout has terminated it, and it waits in its terminate hook. A person may have uncordoned it after its drain, and pods may have
    /// come since. So its hook is completed only once another drain has ended.
    pub(super) fn drain_again(
        &mut self,
        id: &str,
        scene: &Scene<'_>,
        slots: &mut Slots,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let now = scene.now;
        let DepartureState::Leave { last: Some(last), .. } = &mut self.state else { return STAYS };
        prolong(&self.group, id, &mut last.prolonged, now, effects);
        if scene.paused {
            return STAYS;
        }
        match last.drain.progress(id, scene.observed, now, None) {
            // Without patience no drain is given up.
            DrainProgress::Runs | DrainProgress::Pauses | DrainProgress::GivenUp(_) => {}
            DrainProgress::Empty { .. } => {
                let (group, instance) = (self.group.clone(), id.to_owned());
                effects.push(Effect::CompleteTermination { group, instance });
                self.state = DepartureState::Leave { requested_at: now, last: None };
            }
            DrainProgress::Idle => self.ask_to_drain(id, scene, slots, effects),
        }
        STAYS
    }
}

/// Extends the terminate hook in which a machine waits, if that was not done for a while.
pub(super) fn prolong(
    group: &str,
    id: &str,
    prolonged: &mut Option<Timestamp>,
    now: Timestamp,
    effects: &mut Vec<Effect>,
) {
    if prolonged.is_none_or(|at| now.duration_since(at) >= HEARTBEAT) {
        *prolonged = Some(now);
        let (group, instance) = (group.to_owned(), id.to_owned());
        effects.push(Effect::ProlongTermination { group, instance });
    }
}
