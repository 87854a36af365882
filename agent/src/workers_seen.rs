//! What the node manager of a controller has seen of workers that are not Ready: kept for its next pass, and for the status of this machine.

use std::path::Path;

use serde::{Deserialize, Serialize};
use slipway_core::node::report::UnreadyWorker;
use slipway_core::repair::Watch;

use crate::credentials::below;
use crate::failure::{AgentError, AgentResult, FailureCode};

/// It is lost with a restart of the machine, as it should be.
const SEEN: &str = "/run/slipway-manage/workers.json";
/// Seconds since the machine was started, which also count while it is suspended (proc(5)).
const UPTIME: &str = "/proc/uptime";
const HELP: &str = "restart this controller's machine if it stays; no worker is replaced by it meanwhile";

/// What one controller knows of the workers, between two passes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct WorkerRecord {
    pub(crate) watch: Watch,
    /// Those that were not Ready for too long at the last look.
    pub(crate) unready: Vec<UnreadyWorker>,
}

impl WorkerRecord {
    /// What was not kept, or cannot be read, was not seen.
    pub(crate) fn read(root: &Path) -> Self {
        let text = std::fs::read_to_string(below(root, SEEN)).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// If this file cannot be written, each pass starts without history, and no worker would ever be replaced.
    pub(crate) fn write(&self, root: &Path) -> AgentResult<()> {
        let path = below(root, SEEN);
        let text = serde_json::to_string(self).expect("it has string keys only");
        let parent = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        parent.and_then(|()| std::fs::write(&path, text)).map_err(|error| unkept(&path, &error))
    }

    /// If it cannot be removed, nothing can be written either, and the next look comes too late.
    pub(crate) fn forget(root: &Path) {
        let _ = std::fs::remove_file(below(root, SEEN));
    }

    /// Whether the same workers are ill, and the same is done about them.
    pub(crate) fn says_the_same(&self, other: &Self) -> bool {
        let facts = |seen: &Self| -> Vec<_> {
            let each = seen.unready.iter();
            each.map(|one| (one.node.clone(), one.repair.clone(), one.why.clone())).collect()
        };
        facts(self) == facts(other)
    }
}

/// Seconds since this machine was started.
pub(crate) fn uptime_s() -> AgentResult<u64> {
    let path = Path::new(UPTIME);
    let text = std::fs::read_to_string(path).map_err(|error| unkept(path, &error))?;
    let seconds = text.split(['.', ' ']).next().and_then(|seconds| seconds.parse().ok());
    seconds.ok_or_else(|| {
        AgentError::permanent(FailureCode::ManageRepair, format!("{UPTIME} holds no time"), HELP)
    })
}

pub(crate) fn unkept(path: &Path, error: &std::io::Error) -> AgentError {
    AgentError::permanent(FailureCode::ManageRepair, format!("{}: {error}", path.display()), HELP)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;
    use slipway_core::repair::Worker;

    use super::*;

    #[test]
    fn what_was_seen_is_kept_between_passes_and_what_cannot_be_read_was_not_seen() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(WorkerRecord::read(root.path()), WorkerRecord::default());
        let ill = Worker {
            name: "i-1".to_owned(),
            uid: "u".to_owned(),
            pool: "general".to_owned(),
            zone: None,
            ready: false,
            created: "2026-11-25T12:00:00Z".parse().unwrap(),
            leaving: false,
        };
        let mut seen = WorkerRecord::default();
        seen.watch.record(&[ill], 100);
        seen.write(root.path()).unwrap();
        assert_eq!(WorkerRecord::read(root.path()), seen);
        std::fs::write(below(root.path(), SEEN), "no JSON").unwrap();
        assert_eq!(WorkerRecord::read(root.path()), WorkerRecord::default());
        seen.write(root.path()).unwrap();
        WorkerRecord::forget(root.path());
        assert_eq!(WorkerRecord::read(root.path()), WorkerRecord::default());
    }

    #[test]
    fn the_kernel_says_when_the_machine_was_started() {
        assert!(uptime_s().unwrap() > 0);
    }

    #[test]
    fn it_is_news_when_another_worker_is_ill_or_something_else_is_done_and_not_when_it_lasts() {
        let seen = |node: &str, repair: &str, since: &str| WorkerRecord {
            unready: serde_json::from_value(
                json!([{ "node": node, "pool": "a", "since": since, "repair": repair }]),
            )
            .unwrap(),
            ..WorkerRecord::default()
        };
        let first = seen("i-1", "told", "2026-11-25T12:00:00Z");
        assert!(first.says_the_same(&seen("i-1", "told", "2026-11-25T12:00:01Z")));
        assert!(!first.says_the_same(&seen("i-2", "told", "2026-11-25T12:00:00Z")));
        assert!(!first.says_the_same(&seen("i-1", "begun", "2026-11-25T12:00:00Z")));
        assert!(!first.says_the_same(&WorkerRecord::default()));
    }
}
