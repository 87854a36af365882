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
mod judge;
mod ledger;
mod objects;
mod prune;
mod publish;
mod repair;
mod requests;
mod sources;
mod stored;
mod terminated_nodes;
#[cfg(test)]
mod tests;
mod tokens;

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde_json::{Value, json};
use slipway_core::node::NodeFile;
use slipway_core::node::manager::FailedPart;

use crate::api;
use crate::aws::{Aws, Endpoints};
use crate::credentials::below;
use crate::failure::{AgentError, AgentResult, FailureCode};
use crate::machine::Unit;
use crate::node_files::NODE;
use crate::passes::{self, Failed};
use crate::workers_seen::uptime_s;

pub use judge::{Machine, Registration, Verdict, judge_serving};
pub use requests::OpenRequest;
pub use sources::{Cloud, Library};

/// Contains the authorities that sign kubelets' serving certificates, all of them during a rotation.
const KUBELET_CA: &str = "/etc/kubernetes/pki/client-ca.pem";

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
        AgentError::permanent(
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
    let failed = match passed {
        Ok(parts) => failed(parts),
        Err(failure) => Failed {
            words: failure.message.clone(),
            parts: vec![FailedPart { part: "all".to_owned(), code: Some(failure.code.into()) }],
        },
    };
    if failed.parts.is_empty() {
        passes::has_passed(root, at);
    } else if failed.words != RESTS || passes::last_failure(root).is_none() {
        // Else the try that failed has said more.
        passes::has_failed(root, &failed);
    }
}

/// The failure of a pass between two tries to apply the add-ons.
const RESTS: &str = "addons: the last try failed";

/// What failed in a pass with these parts.
fn failed(parts: &Value) -> Failed {
    let words = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let parts = parts.as_object().into_iter().flatten();
    let failed = parts.filter_map(|(name, part)| {
        let first = &part["failures"][0];
        let (why, error) = match (part["error"]["message"].as_str(), part["state"].as_str()) {
            (Some(why), _) => (format!("{name}: {why}"), &part["error"]),
            (None, Some(addons::INCOMPLETE)) => {
                let (object, why) = (words(&first["object"]), words(&first["error"]["message"]));
                (format!("{name}: {object}: {why}"), &first["error"])
            }
            (None, Some(addons::RESTING)) => (RESTS.to_owned(), &Value::Null),
            (None, _) => return None,
        };
        let code = serde_json::from_value(error["code"].clone()).ok();
        Some((why, FailedPart { part: name.clone(), code }))
    });
    let (words, parts): (Vec<String>, Vec<FailedPart>) = failed.unzip();
    Failed { words: words.join("; "), parts }
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
    let repair = repair::repair(&client, cloud, site, uptime_s()).await;
    let gone = terminated_nodes::delete(&client, cloud, site, uptime_s()).await;
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
