//! The changes of a change set in a public form, for comparison with a plan.

use std::collections::BTreeSet;

use super::error::ApiResult;
use super::{Change, World};

/// A change of a resource, in the API's own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Logical id.
    pub logical_id: String,
    /// `AWS::EC2::VPC`.
    pub kind: String,
    /// `Add`, `Modify`, `Remove`.
    pub action: &'static str,
    /// For a modification: `True`, `Conditional`, `False`.
    pub replacement: Option<&'static str>,
    /// `Properties`, `Tags`, …
    pub scope: BTreeSet<&'static str>,
    /// The top-level properties that change.
    pub properties: BTreeSet<String>,
}

impl World {
    /// Every change of a change set.
    ///
    /// # Errors
    /// Those of the API: there is no such change set.
    pub fn verdicts(&mut self, stack: &str, change_set: &str) -> ApiResult<Vec<Verdict>> {
        let (_, change_set) = self.change_set(Some(stack), change_set)?;
        Ok(change_set.changes.iter().map(verdict).collect())
    }
}

fn verdict(change: &Change) -> Verdict {
    Verdict {
        logical_id: change.logical_id.clone(),
        kind: change.kind.clone(),
        action: change.action.name(),
        replacement: change.replacement,
        scope: change.scope.clone(),
        properties: change.details.iter().filter_map(|detail| detail.name.clone()).collect(),
    }
}
