//! Deploys stacks directly, for tests that need deployed stacks but no rollout.
#![allow(clippy::missing_panics_doc, reason = "for tests")]

use slipway_core::release::Stack;
use slipway_flows::ports::Stacks as _;
use slipway_rollout::{ChangeSetRequest, ChangeSetStatus, ChangeSetView, StackStatus};

use super::{SimulatedStacks, lock};

impl SimulatedStacks {
    /// Uploads the template of `stack` and waits for its change set. Returns the name of the change set, and its changes.
    pub async fn change_set_of(&self, stack: &Stack) -> (String, ChangeSetView) {
        let name = format!("change-{}", lock(&self.world).calls().values().sum::<u64>());
        let template_key = stack.template_key("any");
        self.templates.upload(&template_key, stack.body.clone());
        let create = !self.exists(&stack.name);
        let tags = stack.tags.clone();
        let request =
            ChangeSetRequest { stack: stack.name.clone(), name: name.clone(), create, template_key, tags };
        self.create_change_set(&request).await.expect("CloudFormation takes the template");
        lock(&self.world).settle();
        let view = self.change_set(&stack.name, &name).await.expect("the simulator answers");
        (name, view.expect("it was just created"))
    }

    /// Deploys the template of `stack`. Returns the resources that this replaced or removed; `None` if nothing changed.
    pub async fn bring(&self, stack: &Stack) -> Option<Vec<String>> {
        let is_new = !self.exists(&stack.name);
        let (name, view) = self.change_set_of(stack).await;
        if view.status == ChangeSetStatus::NoChanges {
            return None;
        }
        assert_eq!(view.status, ChangeSetStatus::Ready, "{}: {:?}", stack.name, view.reason);
        self.execute_change_set(&stack.name, &name, &name)
            .await
            .expect("a change set that is ready executes");
        lock(&self.world).settle();
        let wanted = if is_new { StackStatus::CreateComplete } else { StackStatus::UpdateComplete };
        let view_after = self.stack(&stack.name).await.expect("the simulator answers");
        let failures = self.failures(&stack.name).await.expect("the simulator answers");
        assert_eq!(view_after.map(|stack| stack.status), Some(wanted), "{}: {failures:#?}", stack.name);
        Some(view.replaces)
    }

    /// Whether the stack exists and has resources: it is not deleted, and not in `REVIEW_IN_PROGRESS`.
    #[must_use]
    pub fn exists(&self, name: &str) -> bool {
        let status = lock(&self.world).stack_status(name);
        status.is_some_and(|status| !["DELETE_COMPLETE", "REVIEW_IN_PROGRESS"].contains(&status.as_str()))
    }
}
