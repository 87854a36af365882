//! When a role's machines really need nothing.

use jiff::{SignedDuration, Timestamp};

/// Auto Scaling's answers may be late (docs/aws.md): shortly after CloudFormation has updated a group, an answer may still show the old
/// launch template, so that every machine seems to be as planned. So that is believed only if it is still so after this time.
pub(crate) const CONSISTENT: SignedDuration = SignedDuration::from_mins(2);

/// Whether it has seemed for long enough that no machine needs anything.
pub(super) fn surely(idle_since: Timestamp, now: Timestamp) -> bool {
    now.duration_since(idle_since) >= CONSISTENT
}
