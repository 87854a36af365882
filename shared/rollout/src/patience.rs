//! How long is waited for what.

use jiff::SignedDuration;
use slipway_core::deadline;

/// How long a machine may take from its launch until it is in service, and how long etcd or the API may take until all is healthy again.
/// The launch hook waits for half an hour; twice that leaves Auto Scaling one more try.
pub(crate) const PATIENCE: SignedDuration = deadline::PATIENCE;

/// If a decided effect is not visible after this time, it is decided again: its evidence is too old by then ([`super::outbox::FRESH`]), and
/// Auto Scaling's answers are not that late.
pub(crate) const RECONSIDERED: SignedDuration = SignedDuration::from_mins(5);

/// Auto Scaling's answers may be late (docs/aws.md): shortly after CloudFormation has updated a group, an answer may still show the old
/// launch template, so that every machine seems to be as planned. So that is believed only if it is still so after this time.
pub(crate) const CONSISTENT: SignedDuration = SignedDuration::from_mins(2);
