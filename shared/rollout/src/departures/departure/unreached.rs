//! A command that did not reach its controller.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Departure;
use crate::Observed;

/// A command that Run Command refused, or could not deliver: the agent of the controller does not run, or has no connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Unreached {
    /// The controller.
    pub controller: String,
    /// The token of the command.
    pub token: String,
    /// When this was noticed.
    pub at: Timestamp,
}

impl Departure {
    /// Notes that its last command did not reach the controller.
    pub(in super::super) fn note_unreached(&mut self, observed: &Observed, now: Timestamp) {
        let Some(sent) = self.command() else { return };
        let token = &sent.command.token;
        let is_news = self.unreached.as_ref().is_none_or(|known| known.token != *token);
        if is_news && sent.outcome(observed, now).is_some() && !sent.has_reached(observed) {
            let (controller, token) = (sent.command.instance.clone(), token.clone());
            self.unreached = Some(Unreached { controller, token, at: now });
        }
    }
}
