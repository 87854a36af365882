//! Whether a kubelet may serve under the names that it asks for. Pure: what the request says, what EC2 says.
//!
//! **Whom is believed.** The API server says who asked: it checked the kubelet's client certificate. EC2 says what machine that
//! is. `Node.status.addresses` is not believed, though kubelet and cloud provider agree on it in peace: a node may write its
//! own status, so whoever has taken one could name any address there, and get a certificate that passes for another node's.
//! A node's name is its instance's id, which never comes back as another machine's.
//!
//! **What is not shown.** Whoever holds the bootstrap token can ask for a *client* certificate in the name of any node
//! (Kubernetes' own approver grants it, see `slipway_core::render::addons`): EC2 knows the machine, but nothing in such a request
//! says from which machine it came. With a client certificate of another node's name one still gets serving certificates only
//! for that node's own addresses.

use std::collections::BTreeSet;
use std::net::IpAddr;

use slipway_pki::CertificateRequest;

pub use crate::aws::Machine;

/// Everybody who asks as a node is in it.
const NODES: &str = "system:nodes";
/// Before a node's name.
const NODE: &str = "system:node:";
/// The two sets of usages that the signer takes, sorted: RSA keys encipher, others do not.
/// <https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/#kubernetes-signers>
const USAGES: [&[&str]; 2] =
    [&["digital signature", "key encipherment", "server auth"], &["digital signature", "server auth"]];
/// The tag of a cluster's machines.
const CLUSTER: &str = "slipway:cluster";

/// Who asked, as the API server says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Asker {
    /// `spec.username`.
    pub(super) user: String,
    /// `spec.groups`.
    pub(super) groups: BTreeSet<String>,
    /// `spec.usages`.
    pub(super) usages: BTreeSet<String>,
}

/// What becomes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is approved.
    Approve,
    /// It never may be.
    Deny(String),
    /// It may be later: it stays as it is.
    Leave(String),
}

/// The node that `asker` is, if what it asks for is what a kubelet of that name asks for; the machine has not been asked for yet.
///
/// # Errors
/// With the reason why it never may be.
pub(super) fn node_of<'a>(asker: &'a Asker, request: &CertificateRequest) -> Result<&'a str, String> {
    let Some(node) = asker.user.strip_prefix(NODE).filter(|name| !name.is_empty()) else {
        return Err(format!("`{}` is no node, and asks for a node's certificate", asker.user));
    };
    if !asker.groups.contains(NODES) {
        return Err(format!("`{}` is not in the group {NODES}", asker.user));
    }
    if request.common_names != [asker.user.as_str()] {
        return Err(format!("`{}` asks for a certificate of {:?}", asker.user, request.common_names));
    }
    if request.organizations != [NODES] || request.more_in_subject {
        return Err(format!("the subject must name the organization {NODES} and nothing besides"));
    }
    if !USAGES.iter().any(|usages| asker.usages.iter().eq(usages.iter())) {
        return Err(format!("the usages {:?} are not those of a server", asker.usages));
    }
    if request.other_names > 0 {
        return Err("names of other kinds than DNS and addresses are asked for".to_owned());
    }
    if request.dns_names.is_empty() && request.addresses.is_empty() {
        return Err("no name is asked for".to_owned());
    }
    Ok(node)
}

/// Whether the kubelet of `node` may serve under the names in `request`, when `machine` is what EC2 has of that id.
#[must_use]
pub fn judge(node: &str, request: &CertificateRequest, machine: Option<&Machine>, cluster: &str) -> Verdict {
    let Some(machine) = machine else {
        // EC2 may know a young machine a moment later.
        return Verdict::Leave(format!("EC2 has no instance `{node}`"));
    };
    if machine.tags.get(CLUSTER).map(String::as_str) != Some(cluster) {
        return Verdict::Deny(format!("the instance {node} is not tagged as of the cluster {cluster}"));
    }
    if machine.state != "running" {
        return Verdict::Leave(format!("the instance {node} is {}", machine.state));
    }
    let strange: Vec<String> = request
        .dns_names
        .iter()
        .filter(|name| *name != node && !machine.names.contains(*name))
        .cloned()
        .chain(request.addresses.iter().filter(|address| !is_of(machine, **address)).map(ToString::to_string))
        .collect();
    if strange.is_empty() {
        Verdict::Approve
    } else {
        Verdict::Deny(format!("not the instance's own: {}", strange.join(", ")))
    }
}

fn is_of(machine: &Machine, address: IpAddr) -> bool {
    machine.addresses.contains(&address.to_canonical())
}
