//! `manage`: what every controller sees to, again and again: the add-ons, the nodes' serving certificates, and what the
//! cluster must be told of its own.
//!
//! One call is one pass, which a timer starts ([`units`]): nothing has to be told when credentials are refreshed, and what
//! hangs or dies is over at the next. **There is no leader.** Whatever is done is done by server-side apply or under the
//! version that was read, so that three controllers do no more than one would; and what takes many calls, applying the
//! add-ons, is done by whoever first sees that it is due ([`ledger`]). A lease would add a way to stand still.
//!
//! A pass does all that it can: what fails is in its answer beside what was done, and comes again with the next.

mod addons;
mod cluster;
mod judge;
mod ledger;
mod own;
mod prune;
mod requests;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use slipway_core::node::NodeFile;

use crate::api;
use crate::aws::{Aws, Endpoints};
use crate::credentials::below;
use crate::failure::{Failure, FailureCode, Outcome};
use crate::machine::Unit;

pub use cluster::{Cloud, Library};
pub use judge::{Machine, Verdict, judge};

/// Where userdata puts it.
const NODE: &str = "/var/lib/slipway/node.json";
/// Among others, the certificates that kubelets' serving certificates are signed by, all of them while one takes the other's place.
const KUBELET_CA: &str = "/etc/kubernetes/pki/client-ca.pem";

/// The field manager of all that is applied.
pub const MANAGER: &str = "slipway";

/// What a pass is about.
#[derive(Debug, Clone)]
pub struct Site {
    /// Before every path.
    pub root: PathBuf,
    /// The cluster.
    pub cluster: String,
    /// This controller's node.
    pub node: String,
}

/// One pass, on this machine.
///
/// # Errors
/// If this is no controller.
pub async fn manage(root: &Path, endpoints: &Endpoints) -> Outcome<Value> {
    let path = below(root, NODE);
    let unreadable = |problem: String| {
        Failure::lasting(
            FailureCode::ManageUnreadable,
            format!("{}: {problem}", path.display()),
            "it comes with the userdata: let this instance be replaced",
        )
    };
    let text = std::fs::read_to_string(&path).map_err(|error| unreadable(error.to_string()))?;
    let told: NodeFile = serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
    let aws = Aws::new(endpoints, &told.region)?;
    let node = aws.imds().instance().await?.id;
    let site = Site { root: root.to_owned(), cluster: told.cluster, node };
    pass(&site, &aws.bucket(&told.asset_bucket), &aws).await
}

/// One pass, with what `library` keeps and `cloud` says.
///
/// # Errors
/// If this is no controller.
pub async fn pass(site: &Site, library: &impl Library, cloud: &impl Cloud) -> Outcome<Value> {
    let client = api::client(&site.root).await?;
    let told = |part: Outcome<Value>| part.unwrap_or_else(|failure| json!({ "error": failure }));
    // Nodes first: their certificates and labels are wanted by what the add-ons bring.
    let node = own::label(&client, &site.node).await;
    let authority = own::publish(&client, &below(&site.root, KUBELET_CA)).await;
    let requests = requests::approve(&client, cloud, &site.cluster).await;
    let addons = addons::keep(&client, library, &site.cluster).await;
    Ok(json!({
        "node": told(node),
        "kubeletAuthority": told(authority),
        "requests": told(requests),
        "addons": told(addons),
    }))
}

/// What starts a pass on a controller: fifteen seconds after the last one ended, as a kubelet waits for its certificate.
#[must_use]
pub fn units() -> [Unit; 2] {
    let service = "[Unit]\nDescription=Slipway's node manager\nAfter=network-online.target\nWants=network-online.target\n\n\
                   [Service]\nType=oneshot\nExecStart=/var/lib/slipway/slipway-node manage\nTimeoutStartSec=300\n\
                   Nice=5\nNoNewPrivileges=yes\nProtectSystem=strict\nProtectHome=yes\nPrivateTmp=yes\n";
    let timer = "[Unit]\nDescription=Slipway's node manager\n\n\
                 [Timer]\nOnBootSec=30\nOnUnitInactiveSec=15\nAccuracySec=1\nRandomizedDelaySec=5\n\n\
                 [Install]\nWantedBy=timers.target\n";
    // The timer alone is to be started; it starts the service.
    [
        Unit { name: "slipway-manage.service".to_owned(), content: Some(service.to_owned()) },
        Unit { name: "slipway-manage.timer".to_owned(), content: Some(timer.to_owned()) },
    ]
}
