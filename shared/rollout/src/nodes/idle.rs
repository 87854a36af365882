//! When it is believed that a role's machines need nothing.

use jiff::{SignedDuration, Timestamp};

use super::NodeStep;

/// Auto Scaling's answers may be late (docs/aws.md): just after CloudFormation has updated a group, one may still show what the group launched
/// before, by which every machine seems to be as planned. So that is believed only when it is still so after a while.
const CONSISTENT: SignedDuration = SignedDuration::from_mins(2);

impl NodeStep {
    /// Whether it may be believed that no machine needs anything: something was done to one, or it has seemed so for long enough.
    pub(super) fn is_surely_idle(&mut self, now: Timestamp) -> bool {
        if !self.done.is_empty() || !self.work.renews() {
            return true;
        }
        now.duration_since(*self.idle_since.get_or_insert(now)) >= CONSISTENT
    }
}
