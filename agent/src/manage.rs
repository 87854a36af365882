//! `manage`: what every controller keeps up to date: the add-ons, the nodes' certificates, and what the cluster must know about
//! itself. It also has workers replaced that are not Ready ([`repair`]), and deletes Nodes whose machines are gone ([`gone`]).
//!
//! One call is one pass, and a timer starts it ([`units`]), so refreshed credentials and a pass that hangs or dies need no
//! special care. **There is no leader.** Everything is done by server-side apply or under the resource version that was read, so
//! several controllers do no more than one would. Applying the add-ons takes many calls, and is done by the first controller that
//! sees it is due ([`ledger`]). A lease would be one more thing that can block progress.
//!
//! A pass does all that it can. Failures are in its answer, and the next pass tries again.

mod addons;
mod gone;
mod judge;
mod ledger;
mod objects;
mod prune;
mod publish;
mod repair;
mod requests;
mod sources;
mod stored;
#[cfg(test)]
mod tests;
mod tokens;

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde_json::{Value, json};
use slipway_core::node::NodeFile;

use crate::api;
use crate::aws::{Aws, Endpoints};
use crate::credentials::below;
use crate::failure::{AgentError, AgentResult, FailureCode};
use crate::machine::Unit;
use crate::node_files::NODE;

pub use judge::{Machine, Registration, Verdict, judge_serving};
pub use requests::OpenRequest;
pub use sources::{Cloud, Library};

/// Contains the authorities that sign kubelets' serving certificates, all of them during a rotation.
const KUBELET_CA: &str = "/etc/kubernetes/pki/client-ca.pem";

/// When the last pass ended in which everything succeeded. The unit's `RuntimeDirectory`, the only folder that it may write.
const PASSED: &str = "/run/slipway-manage/passed";
/// What failed in the last pass, if anything did.
const FAILED: &str = "/run/slipway-manage/failed";
/// The label of controllers' Nodes.
pub(crate) use publish::ROLE as CONTROLLER_LABEL;

pub const MANAGER: &str = "slipway";

#[derive(Debug, Clone)]
pub struct Site {
    /// The root of the file system, in tests another folder.
    pub root: PathBuf,
    pub cluster: String,
    pub node: String,
}

/// One pass on this machine, which must be a controller.
pub async fn manage(root: &Path, endpoints: &Endpoints) -> AgentResult<Value> {
    let path = below(root, NODE);
    let unreadable = |problem: String| {
        AgentError::lasting(
            FailureCode::ManageUnreadable,
            format!("{}: {problem}", path.display()),
            "the user data writes it: replace this instance",
        )
    };
    let text = std::fs::read_to_string(&path).map_err(|error| unreadable(error.to_string()))?;
    let file: NodeFile = serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
    let aws = Aws::new(endpoints, &file.region)?;
    let node = aws.imds().instance().await?.id;
    let site = Site { root: root.to_owned(), cluster: file.cluster.clone(), node };
    let passed = pass(&site, &aws.bucket(&file.asset_bucket), &aws).await;
    has_ended(root, Timestamp::now(), &passed);
    if passed.as_ref().is_ok_and(repair::has_news) {
        // People look at what controllers publish. If it fails, the hourly timer publishes it.
        let _ = crate::status::publish::publish_status(root, &aws, &file).await;
    }
    passed
}

/// A pass has ended at that time: the time is written down if nothing failed, and what failed otherwise.
pub(crate) fn has_ended(root: &Path, at: Timestamp, passed: &AgentResult<Value>) {
    let failures = match passed {
        Ok(parts) => failures(parts),
        Err(failure) => vec![failure.message.clone()],
    };
    // If it cannot be written, `serves` reports the node manager.
    let _ = if failures.is_empty() {
        let _ = std::fs::remove_file(below(root, FAILED));
        std::fs::write(below(root, PASSED), at.to_string())
    } else if failures == [RESTS] && last_failure(root).is_some() {
        // The try that failed has said more.
        Ok(())
    } else {
        std::fs::write(below(root, FAILED), failures.join("; "))
    };
}

/// The failure of a pass between two tries to apply the add-ons.
const RESTS: &str = "addons: the last try failed";

/// What failed in a pass, by its parts.
fn failures(parts: &Value) -> Vec<String> {
    let words = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let parts = parts.as_object().into_iter().flatten();
    let failed = parts.filter_map(|(name, part)| {
        let first = &part["failures"][0];
        let why = match (part["error"]["message"].as_str(), part["state"].as_str()) {
            (Some(why), _) => why.to_owned(),
            (None, Some(addons::INCOMPLETE)) => {
                format!("{}: {}", words(&first["object"]), words(&first["error"]["message"]))
            }
            (None, Some(addons::RESTING)) => return Some(RESTS.to_owned()),
            (None, _) => return None,
        };
        Some(format!("{name}: {why}"))
    });
    failed.collect()
}

/// When the last pass ended in which everything succeeded; the error says why there is none.
pub(crate) fn last_pass(root: &Path) -> Result<Timestamp, String> {
    let path = below(root, PASSED);
    let unknown = |why: String| format!("{}: {why}", path.display());
    let text = std::fs::read_to_string(&path).map_err(|error| unknown(error.to_string()))?;
    text.trim().parse().map_err(|_| unknown("it holds no time".to_owned()))
}

/// What failed in the last pass; `None` if nothing did.
pub(crate) fn last_failure(root: &Path) -> Option<String> {
    std::fs::read_to_string(below(root, FAILED)).ok()
}

/// One pass. `library` has the add-ons, `cloud` the instances.
pub async fn pass(site: &Site, library: &impl Library, cloud: &impl Cloud) -> AgentResult<Value> {
    let client = api::client(&site.root).await?;
    let value = |part: AgentResult<Value>| part.unwrap_or_else(|failure| json!({ "error": failure }));
    // Nodes first: the add-ons' pods need their labels and certificates.
    let node = publish::controller_labels(&client, &site.node).await;
    let authority = publish::kubelet_authority(&client, &below(&site.root, KUBELET_CA)).await;
    let tokens = tokens::keep(&client, cloud, &site.root, &site.cluster).await;
    let requests = requests::approve(&client, cloud, &site.cluster).await;
    let repair = repair::repair(&client, cloud, site, repair::uptime_s()).await;
    let gone = gone::delete(&client, cloud, site, repair::uptime_s()).await;
    let addons = addons::apply_all(&client, library, &site.cluster).await;
    Ok(json!({
        "node": value(node),
        "kubeletAuthority": value(authority),
        "bootstrapTokens": value(tokens),
        "requests": value(requests),
        "repair": value(repair),
        "goneNodes": value(gone),
        "addons": value(addons),
    }))
}

/// The units that start a pass 15 s after the last one ended: a kubelet waits for its certificate.
#[must_use]
pub fn units() -> [Unit; 2] {
    let service = "[Unit]\nDescription=Slipway's node manager\nAfter=network-online.target\nWants=network-online.target\n\n\
                   [Service]\nType=oneshot\nExecStart=/var/lib/slipway/slipway-node manage\nTimeoutStartSec=300\n\
                   Nice=5\nNoNewPrivileges=yes\nProtectSystem=strict\nProtectHome=yes\nPrivateTmp=yes\n\
                   RuntimeDirectory=slipway-manage\nRuntimeDirectoryPreserve=yes\n";
    let timer = "[Unit]\nDescription=Slipway's node manager\n\n\
                 [Timer]\nOnBootSec=30\nOnUnitInactiveSec=15\nAccuracySec=1\nRandomizedDelaySec=5\n\n\
                 [Install]\nWantedBy=timers.target\n";
    // The timer starts the service.
    [
        Unit { name: "slipway-manage.service".to_owned(), content: Some(service.to_owned()) },
        Unit { name: "slipway-manage.timer".to_owned(), content: Some(timer.to_owned()) },
    ]
}
