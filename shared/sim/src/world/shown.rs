//! Stacks and change sets as CloudFormation shows them, which may be some seconds old.
//!
//! CloudFormation's reads are eventually consistent. Right after `ExecuteChangeSet` or `CreateStack`, `DescribeStacks` may still
//! return the previous status, or say that the stack does not exist (aws/aws-cdk-cli, pull requests 1803 and 1848, which work
//! around both). Every answer was true at some time, and a later answer may be older than an earlier one. In this model, a deleted
//! stack is missing at once.

use super::World;
use super::change_set::ChangeSet;
use super::error::{ApiError, ApiResult};
use super::stack::ShownStack;

/// The number of a stack's statuses that are kept: more than can change within the age of an answer.
pub(super) const KEPT: usize = 6;

impl World {
    /// `DescribeStacks` of one stack: its id, and its state in the answer.
    pub(crate) fn shown_stack(&mut self, name: &str) -> ApiResult<(String, ShownStack)> {
        self.enter("DescribeStacks")?;
        let missing = || ApiError::validation(format!("Stack with id {name} does not exist"));
        if self.find(name).is_none() {
            return Err(missing());
        }
        let staleness = self.stale_answer_time(self.fleet.faults.stale_stacks);
        let stack = self.find(name).ok_or_else(missing)?;
        let shown = match staleness {
            None => stack.show(self.now),
            Some(at) if at < stack.created_at => return Err(missing()),
            Some(at) => {
                let was = stack.shown.iter().rev().find(|shown| shown.since <= at);
                was.cloned().unwrap_or_else(|| stack.show(self.now))
            }
        };
        Ok((stack.id.clone(), shown))
    }

    /// `DescribeChangeSet`: the change set in the answer.
    pub(crate) fn shown_change_set(&mut self, stack: &str, name: &str) -> ApiResult<ChangeSet> {
        let mut shown = self.change_set(Some(stack), name)?.1.clone();
        let Some(at) = self.stale_answer_time(self.fleet.faults.stale_stacks) else { return Ok(shown) };
        let Some(was) = shown.past.iter().rev().find(|(since, ..)| *since <= at).copied() else {
            return Err(ApiError::change_set_not_found(name));
        };
        (_, shown.status, shown.execution_status) = was;
        if shown.status.ends_with("_PENDING") || shown.status.ends_with("_IN_PROGRESS") {
            (shown.changes, shown.reason) = (Vec::new(), None);
        }
        Ok(shown)
    }
}
