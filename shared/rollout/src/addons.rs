//! The add-ons in a rollout: which set the node managers keep applied, and when they are told of a new set.
//!
//! Node managers are told when a rollout has succeeded. At that time the stacks are as planned, but possibly not every node. Therefore no
//! plan begins that changes the minor of running components (`plan/refusals.rs`), and the API servers already have whatever an add-on
//! depends on. A cluster whose control plane is being created is told at once: it has no workloads that could be disturbed, and no node
//! becomes ready before it has its network.

use serde::{Deserialize, Serialize};
use slipway_core::release::{AddonsPointer, StackKind};
use slipway_plan::{Plan, StackAction};

use super::{Active, Effect, Rollout, Wanted};

/// The add-ons after a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddonStep {
    /// What the node managers will read.
    pub pointer: AddonsPointer,
    /// What changes, in words; empty if nothing does.
    pub words: String,
}

impl AddonStep {
    /// The add-ons of `wanted`; `None` for a release without any.
    pub(super) fn from_wanted(generation: u64, wanted: &Wanted) -> Option<Self> {
        let digest = &wanted.release.addons.digest;
        let pointer = || AddonsPointer {
            format: AddonsPointer::FORMAT,
            digest: digest.clone(),
            release: wanted.plan.to.clone(),
            generation,
        };
        (!digest.is_empty()).then(|| Self { pointer: pointer(), words: words(&wanted.plan) })
    }
}

/// Names a few changes, and counts many.
fn words(plan: &Plan) -> String {
    const FEW: usize = 3;
    if plan.addons.len() > FEW {
        return plan.addons_summary();
    }
    let each = plan.addons.iter().map(|addon| format!("{} {}", addon.name, addon.fate()));
    each.collect::<Vec<_>>().join(", ")
}

/// Whether `plan` creates the control plane.
pub(super) fn makes_control_plane(plan: &Plan) -> bool {
    let made = |kind, action| kind == StackKind::ControlPlane && action == StackAction::Create;
    plan.stacks.iter().any(|stack| made(stack.kind, stack.action))
}

/// Tells the node managers of the add-ons of `active`, unless they know them already.
pub(super) fn hand_over(rollout: &mut Rollout, active: &Active) -> Option<Effect> {
    let pointer = active.addons.as_ref().map(|step| &step.pointer)?;
    if rollout.addons.as_ref() == Some(pointer) {
        return None;
    }
    rollout.addons = Some(pointer.clone());
    Some(Effect::PointAddons(pointer.clone()))
}

impl Rollout {
    /// The state, corrected by what the node managers were told. They ignore a set with a lower generation than theirs. So a state that was
    /// lost, or restored from an earlier version, continues with their generation; otherwise they would ignore everything that it tells
    /// them.
    #[must_use]
    pub fn with_stored_generation(mut self, stored: Option<&AddonsPointer>) -> Self {
        let Some(stored) = stored.filter(|stored| stored.generation > self.generation) else { return self };
        self.generation = stored.generation;
        if self.addons.is_some() {
            self.addons = Some(stored.clone());
        }
        let generation = self.generation + 1;
        if let Some(step) = self.active_mut().and_then(|active| active.addons.as_mut()) {
            step.pointer.generation = generation;
            self.generation = generation;
        }
        self
    }
}
