//! When a role's machines really need nothing.

use jiff::Timestamp;

use crate::patience::CONSISTENT;

/// Whether it has seemed for long enough that no machine needs anything.
pub(super) fn is_idle_long_enough(idle_since: Timestamp, now: Timestamp) -> bool {
    now.duration_since(idle_since) >= CONSISTENT
}
