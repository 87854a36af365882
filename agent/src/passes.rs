//! How the passes of this controller's node manager ended: kept for `serves`, and for the status of this machine.

use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use slipway_core::node::NodeManagerStatus;
use slipway_core::node::manager::FailedPart;

use crate::credentials::below;
use crate::workers_seen::uptime_s;

/// When the last pass ended in which everything succeeded. The unit's `RuntimeDirectory`, the only folder that it may write.
const PASSED: &str = "/run/slipway-manage/passed";
/// What failed in the last pass, if anything did: a [`Failed`].
const FAILED: &str = "/run/slipway-manage/failed";

/// What failed in a pass.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failed {
    pub(crate) words: String,
    pub(crate) parts: Vec<FailedPart>,
}

/// A pass ended at that time, and nothing in it failed.
pub(crate) fn has_passed(root: &Path, at: Timestamp) {
    let _ = std::fs::remove_file(below(root, FAILED));
    // If it cannot be written, `serves` and the status report the node manager.
    let _ = std::fs::write(below(root, PASSED), at.to_string());
}

/// Something failed in the last pass.
pub(crate) fn has_failed(root: &Path, failed: &Failed) {
    let text = serde_json::to_string(failed).expect("it has string keys only");
    let _ = std::fs::write(below(root, FAILED), text);
}

/// When the last pass ended in which everything succeeded; the error says why there is none.
pub(crate) fn last_pass(root: &Path) -> Result<Timestamp, String> {
    let path = below(root, PASSED);
    let unknown = |why: String| format!("{}: {why}", path.display());
    let text = std::fs::read_to_string(&path).map_err(|error| unknown(error.to_string()))?;
    text.trim().parse().map_err(|_| unknown("it holds no time".to_owned()))
}

/// What failed in the last pass; `None` if nothing did.
pub(crate) fn last_failure(root: &Path) -> Option<Failed> {
    let text = std::fs::read_to_string(below(root, FAILED)).ok()?;
    // An agent of an earlier release wrote the words alone.
    Some(serde_json::from_str(&text).unwrap_or(Failed { words: text, parts: Vec::new() }))
}

/// What the status of this controller says of its node manager; `None` if the kernel does not say when the machine was started.
pub(crate) fn report(root: &Path) -> Option<NodeManagerStatus> {
    let up = SignedDuration::from_secs(i64::try_from(uptime_s().ok()?).ok()?);
    Some(NodeManagerStatus {
        passed: last_pass(root).ok(),
        started: Timestamp::now().saturating_sub(up).ok()?,
        failed: last_failure(root).map(|failed| failed.parts).unwrap_or_default(),
    })
}
