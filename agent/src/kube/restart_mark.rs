//! The credentials for which a static pod was last restarted, as an annotation of its manifest. Changing this annotation changes
//! the manifest, so the kubelet restarts the pod.

use std::path::Path;

use serde_json::Value;

use super::json;
use crate::credentials::below;
use crate::failure::{AgentError, AgentResult, FailureCode};
use crate::machine::Setup;
use crate::static_pods::MANIFESTS;

const ANNOTATION: &str = "slipway/restarted-for";
/// Added to a mark that is set already: an earlier run may have died before the restart, and the manifest must change again.
const AGAIN: &str = "-again";

/// `manifest` with the mark of `credentials`, changed in any case.
pub fn mark(manifest: &str, credentials: &str) -> AgentResult<String> {
    let repeated_mark = format!("{credentials}{AGAIN}");
    let value = if mark_of(manifest).as_deref() == Some(credentials) { &repeated_mark } else { credentials };
    with_mark(manifest, value).ok_or_else(|| {
        AgentError::permanent(
            FailureCode::RefreshManifest,
            "a static pod's manifest on this machine is not a pod in JSON",
            "run `/var/lib/slipway/slipway-node bootstrap`, which writes it again",
        )
    })
}

/// `setup` with the marks that the static pods have on this machine, so that a repeated bootstrap restarts nothing.
#[must_use]
pub fn keep_marks(root: &Path, mut setup: Setup) -> Setup {
    for file in setup.files.iter_mut().filter(|file| file.path.starts_with(MANIFESTS)) {
        let current = std::fs::read_to_string(below(root, &file.path)).ok();
        if let Some(marked) = current.and_then(|current| with_mark(&file.content, &mark_of(&current)?)) {
            file.content = marked;
        }
    }
    setup
}

fn mark_of(manifest: &str) -> Option<String> {
    let pod: Value = serde_json::from_str(manifest).ok()?;
    pod["metadata"]["annotations"][ANNOTATION].as_str().map(str::to_owned)
}

fn with_mark(manifest: &str, value: &str) -> Option<String> {
    let mut pod: Value = serde_json::from_str(manifest).ok()?;
    pod.get_mut("metadata")?.as_object_mut()?;
    pod["metadata"]["annotations"][ANNOTATION] = Value::from(value);
    Some(json(&pod))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;
    use crate::machine::File;

    #[test]
    fn a_pod_that_is_restarted_reads_otherwise_and_a_bootstrap_leaves_it_so() {
        let plain = super::json(&json!({ "kind": "Pod", "metadata": { "name": "kube-apiserver" } }));
        let once = mark(&plain, "ab12").unwrap();
        assert!(once != plain && once.contains("\"slipway/restarted-for\": \"ab12\""), "{once}");
        let twice = mark(&once, "ab12").unwrap();
        assert_ne!(once, twice, "whoever died before the kubelet looked");
        assert_eq!(mark(&twice, "ab12").unwrap(), once);
        assert_eq!(mark("[]", "ab12").unwrap_err().code, FailureCode::RefreshManifest);

        let root = tempfile::tempdir().unwrap();
        let path = format!("{MANIFESTS}/kube-apiserver.json");
        let setup = || Setup { files: vec![File::public(&path, &plain)], units: Vec::new() };
        assert_eq!(keep_marks(root.path(), setup()), setup(), "a first bootstrap");
        std::fs::create_dir_all(below(root.path(), MANIFESTS)).unwrap();
        std::fs::write(below(root.path(), &path), &once).unwrap();
        assert_eq!(keep_marks(root.path(), setup()).files[0].content, once);
    }
}
