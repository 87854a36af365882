//! For which credentials a static pod was restarted last: an annotation of its manifest, since a kubelet starts anew what reads otherwise.

use std::path::Path;

use serde_json::Value;

use super::{MANIFESTS, json};
use crate::credentials::below;
use crate::failure::{Failure, FailureCode, Outcome};
use crate::machine::Furniture;

const ANNOTATION: &str = "slipway/restarted-for";
/// Where somebody died between the mark and the restart, the next mark must read otherwise.
const AGAIN: &str = "-again";

/// `manifest` with the mark of `credentials`, by which it reads otherwise than before.
///
/// # Errors
/// If it is no pod in JSON.
pub fn mark(manifest: &str, credentials: &str) -> Outcome<String> {
    let again = format!("{credentials}{AGAIN}");
    let value = if marked(manifest).as_deref() == Some(credentials) { &again } else { credentials };
    with(manifest, value).ok_or_else(|| {
        Failure::lasting(
            FailureCode::RefreshManifest,
            "a static pod's manifest here is no pod in JSON",
            "run `slipway-node bootstrap`, which writes it anew",
        )
    })
}

/// `furniture`, whose static pods keep the marks that they have on this machine: what is bootstrapped again is not restarted.
#[must_use]
pub fn kept(root: &Path, mut furniture: Furniture) -> Furniture {
    for file in furniture.files.iter_mut().filter(|file| file.path.starts_with(MANIFESTS)) {
        let stands = std::fs::read_to_string(below(root, &file.path)).ok();
        if let Some(marked) = stands.and_then(|stands| with(&file.content, &marked(&stands)?)) {
            file.content = marked;
        }
    }
    furniture
}

fn marked(manifest: &str) -> Option<String> {
    let pod: Value = serde_json::from_str(manifest).ok()?;
    pod["metadata"]["annotations"][ANNOTATION].as_str().map(str::to_owned)
}

fn with(manifest: &str, value: &str) -> Option<String> {
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
        let furniture = || Furniture { files: vec![File::public(&path, &plain)], units: Vec::new() };
        assert_eq!(kept(root.path(), furniture()), furniture(), "a first bootstrap");
        std::fs::create_dir_all(below(root.path(), MANIFESTS)).unwrap();
        std::fs::write(below(root.path(), &path), &once).unwrap();
        assert_eq!(kept(root.path(), furniture()).files[0].content, once);
    }
}
