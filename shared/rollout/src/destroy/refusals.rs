//! What AWS refused, or never received.

use super::{Destroy, GoingState};

impl Destroy {
    /// CloudFormation refused a call permanently.
    pub(in super::super) fn refused(&mut self, stack: &str, reason: &str) {
        for going in self.stacks.iter_mut().filter(|going| going.stack == stack) {
            going.state = GoingState::Failed(reason.to_owned());
        }
    }

    /// As far as is known, CloudFormation did not receive the request to delete that stack.
    pub(in super::super) fn not_deleted(&mut self, stack: &str) {
        for going in self.stacks.iter_mut().filter(|going| going.stack == stack) {
            if matches!(going.state, GoingState::Deleting(_)) {
                going.state = GoingState::Stands;
                self.withdrawn = true;
            }
        }
    }

    /// Run Command refused the command with that token.
    pub(in super::super) fn unsent(&mut self, token: &str, reason: &str) {
        for sent in self.inquiry_mut().into_iter().flat_map(|one| one.round.as_mut_slice()) {
            sent.was_refused(token, reason);
        }
    }

    /// The command with that token was never sent.
    pub(in super::super) fn not_sent(&mut self, token: &str) {
        if let Some(inquiry) = self.inquiry_mut() {
            inquiry.round.forget(token);
        }
    }
}
