//! The rollouts that have ended, for people (`slipway history`): no decision depends on them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Active, Rollout, RolloutResult};

/// A rollout that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Past {
    /// Its generation.
    pub generation: u64,
    /// Id of the plan.
    pub plan: String,
    /// Its result.
    pub result: RolloutResult,
    /// Whether a person had approved exactly this plan. Who that was, no event says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approved: bool,
    /// When it began. `None`: it was refused before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Timestamp,
    /// Why it did not succeed, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// How many are kept. Older ones are in the versions of `rollout.json`.
const MOST: usize = 30;
/// How many characters of a message are kept.
const LONGEST: usize = 300;

impl Rollout {
    /// A rollout of the present generation has ended. `active`: `None` if it was refused before it began.
    pub(super) fn has_ended(
        &mut self,
        plan: &str,
        active: Option<&Active>,
        end: (RolloutResult, &str),
        now: Timestamp,
    ) {
        let (result, message) = end;
        let mut message = match result {
            RolloutResult::Succeeded => String::new(),
            RolloutResult::Failed | RolloutResult::Superseded | RolloutResult::Aborted => message.to_owned(),
        };
        if let Some((at, _)) = message.char_indices().nth(LONGEST) {
            message.truncate(at);
            message.push('…');
        }
        let past = Past {
            generation: self.generation,
            plan: plan.to_owned(),
            result,
            approved: active.is_some_and(|active| active.approved),
            started_at: active.map(|active| active.started_at),
            ended_at: now,
            message,
        };
        self.past.insert(0, past);
        self.past.truncate(MOST);
    }
}
