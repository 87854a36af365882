//! The add-ons' part in a rollout: which set the node managers keep applied, and when they are told of another.
//!
//! They are told when a rollout has succeeded. That says that the stacks are as planned, and not yet that every node is: so no plan is
//! begun that changes the minor of what runs (`plan/refusals.rs`), and whatever an add-on has to follow, the API servers have. Only
//! a cluster whose control plane is just being made is told at once: nothing runs there that could be disturbed, and no node becomes
//! ready before it has its network.

use serde::{Deserialize, Serialize};
use slipway_core::release::{AddonsPointer, StackKind};
use slipway_plan::{Plan, StackAction};

use super::{Active, Effect, Rollout, Wanted};

/// The add-ons that a rollout leads to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddonStep {
    /// What the node managers will read.
    pub pointer: AddonsPointer,
    /// What changes, in words; empty if nothing does.
    pub words: String,
}

impl AddonStep {
    /// What `wanted` leads to; `None` for a release of an older Slipway, which rendered no add-ons.
    pub(super) fn of(generation: u64, wanted: &Wanted) -> Option<Self> {
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

/// A few by name, many by number.
fn words(plan: &Plan) -> String {
    const FEW: usize = 3;
    if plan.addons.len() > FEW {
        return plan.addons_summary();
    }
    let each = plan.addons.iter().map(|addon| format!("{} {}", addon.name, addon.fate()));
    each.collect::<Vec<_>>().join(", ")
}

/// Whether `plan` makes the control plane.
pub(super) fn makes_control_plane(plan: &Plan) -> bool {
    let made = |kind, action| kind == StackKind::ControlPlane && action == StackAction::Create;
    plan.stacks.iter().any(|stack| made(stack.kind, stack.action))
}

/// Tells the node managers of the add-ons that `active` leads to, unless they were told.
pub(super) fn hand_over(rollout: &mut Rollout, active: &Active) -> Option<Effect> {
    let pointer = active.addons.as_ref().map(|step| &step.pointer)?;
    if rollout.addons.as_ref() == Some(pointer) {
        return None;
    }
    rollout.addons = Some(pointer.clone());
    Some(Effect::PointAddons(pointer.clone()))
}

impl Rollout {
    /// This state, given what the node managers were told. They take no set of an earlier generation than theirs, so a state that was
    /// brought back from an earlier version, or lost, goes on from their generation: all that it told them would be ignored else.
    #[must_use]
    pub fn recalled(mut self, told: Option<&AddonsPointer>) -> Self {
        let Some(told) = told.filter(|told| told.generation > self.generation) else { return self };
        self.generation = told.generation;
        if self.addons.is_some() {
            self.addons = Some(told.clone());
        }
        let generation = self.generation + 1;
        if let Some(step) = self.active_mut().and_then(|active| active.addons.as_mut()) {
            step.pointer.generation = generation;
            self.generation = generation;
        }
        self
    }
}
