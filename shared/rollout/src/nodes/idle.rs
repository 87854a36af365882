//! When it is believed that a role's machines need nothing.

use jiff::{SignedDuration, Timestamp};

/// Auto Scaling's answers may be late (docs/aws.md): just after CloudFormation has updated a group, one may still show what the group launched
/// before, by which every machine seems to be as planned. So that is believed only when it is still so after a while.
pub(crate) const CONSISTENT: SignedDuration = SignedDuration::from_mins(2);

/// Whether it may be believed that no machine needs anything, since it has seemed so for long enough.
pub(super) fn surely(idle_since: Timestamp, now: Timestamp) -> bool {
    now.duration_since(idle_since) >= CONSISTENT
}
