//! Whether a kubelet may have the certificate that it asks for. Pure: what the request says, what EC2 and the API server say.
//!
//! **Whom is believed.** The API server says who asked: it checked the kubelet's certificate or token. EC2 says what machine a name
//! is. `Node.status.addresses` is not believed, though kubelet and cloud provider agree on it in peace: a node may write its
//! own status, so whoever has taken one could name any address there, and get a certificate that passes for another node's.
//! A node's name is its instance's id, which never comes back as another machine's.
//!
//! **A node's first certificate** ([`admit`]) is asked for with the bootstrap token, which every node has: nothing in the request
//! says from which machine it came. So nobody gets one in the name of a node that stands: the machine is one of ours that runs
//! nodes, it was started within the hour, and no node of that name has registered yet. What is left to whoever has taken a node
//! is the time until a machine that is just booting has registered. A node renews its certificate by itself, which Kubernetes
//! approves. One whose certificate has expired cannot, and is not heard of any more: it may begin again (P7).

use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use slipway_core::role::Role;
use slipway_credentials::policy::BOOTSTRAPPERS;
use slipway_crypto::CertificateRequest;

pub use crate::aws::Machine;

/// Everybody who asks as a node is in it.
const NODES: &str = "system:nodes";
/// Before a node's name.
const NODE: &str = "system:node:";
/// The two sets of usages that the signer takes, sorted: RSA keys encipher, others do not.
/// <https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/#kubernetes-signers>
const USAGES: [&[&str]; 2] =
    [&["digital signature", "key encipherment", "server auth"], &["digital signature", "server auth"]];
/// As [`USAGES`], of the signer of first certificates.
const CLIENT_USAGES: [&[&str]; 2] =
    [&["client auth", "digital signature", "key encipherment"], &["client auth", "digital signature"]];
/// The tags of a cluster's machines.
const CLUSTER: &str = "slipway:cluster";
const ROLE: &str = "slipway:role";
/// So long after its start a machine may become a node: longer than a launch hook waits and a bootstrap tries.
const YOUNG: SignedDuration = SignedDuration::from_hours(1);
/// So long EC2 may not know of an instance that it has just made.
const UNKNOWN: SignedDuration = SignedDuration::from_mins(10);

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

/// The node in whose name `asker` asks for a first certificate, if that is what a kubelet asks for.
///
/// # Errors
/// With the reason why it never may be.
pub(super) fn newcomer<'a>(asker: &Asker, request: &'a CertificateRequest) -> Result<&'a str, String> {
    let [name] = request.common_names.as_slice() else {
        return Err(format!("a certificate of {:?} is asked for", request.common_names));
    };
    let Some(node) = name.strip_prefix(NODE) else {
        return Err(format!("`{name}` is no node"));
    };
    if !asker.groups.contains(BOOTSTRAPPERS) {
        return Err(format!("`{}` is not in the group {BOOTSTRAPPERS}", asker.user));
    }
    if request.organizations != [NODES] || request.more_in_subject {
        return Err(format!("the subject must name the organization {NODES} and nothing besides"));
    }
    if !CLIENT_USAGES.iter().any(|usages| asker.usages.iter().eq(usages.iter())) {
        return Err(format!("the usages {:?} are not those of a client", asker.usages));
    }
    if !request.dns_names.is_empty() || !request.addresses.is_empty() || request.other_names > 0 {
        return Err("a client's certificate has no names besides its subject".to_owned());
    }
    Ok(node)
}

/// Whether `node` is an instance's id: nobody asks EC2 for what cannot be one.
pub(super) fn is_instance(node: &str) -> bool {
    node.strip_prefix("i-").is_some_and(|digits| {
        (1..=17).contains(&digits.len())
            && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// What `machine` must be for any certificate of its name; `age`: how long ago that was asked for.
fn runs<'m>(
    node: &str,
    machine: Option<&'m Machine>,
    age: SignedDuration,
    cluster: &str,
) -> Result<&'m Machine, Verdict> {
    let Some(machine) = machine else {
        let why = format!("EC2 has no instance `{node}`");
        // EC2 may know a young machine a moment later.
        return Err(if age > UNKNOWN { Verdict::Deny(why) } else { Verdict::Leave(why) });
    };
    if machine.tags.get(CLUSTER).map(String::as_str) != Some(cluster) {
        return Err(Verdict::Deny(format!("the instance {node} is not tagged as of the cluster {cluster}")));
    }
    match machine.state.as_str() {
        "running" => Ok(machine),
        state @ ("terminated" | "shutting-down") => {
            Err(Verdict::Deny(format!("the instance {node} is {state}")))
        }
        state => Err(Verdict::Leave(format!("the instance {node} is {state}"))),
    }
}

/// What the API server knows of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// None of that name has registered.
    Unknown,
    /// One has, and its kubelet was heard of lately.
    Heard,
    /// One has, and its kubelet has not renewed its lease for longer than [`SILENT`].
    Silent,
}

/// A kubelet renews its lease every ten seconds, and counts as lost after forty; whoever cannot sign in any more is silent for good.
pub(super) const SILENT: SignedDuration = SignedDuration::from_mins(10);

/// Whether there may be a first certificate in the name of `node`, whose machine is `machine`.
pub(super) fn admit(
    node: &str,
    machine: Option<&Machine>,
    standing: Standing,
    age: SignedDuration,
    now: Timestamp,
    cluster: &str,
) -> Verdict {
    let machine = match runs(node, machine, age, cluster) {
        Ok(machine) => machine,
        Err(verdict) => return verdict,
    };
    let role = machine.tags.get(ROLE).map(|role| role.parse::<Role>());
    if !matches!(role, Some(Ok(Role::Controller | Role::Pool(_)))) {
        return Verdict::Deny(format!("the instance {node} is no controller and of no pool"));
    }
    match standing {
        Standing::Unknown => {}
        Standing::Heard => {
            return Verdict::Deny(format!(
                "the node {node} has registered and was heard of in the last {} minutes: it renews its certificate by itself",
                SILENT.as_mins()
            ));
        }
        Standing::Silent => return Verdict::Approve,
    }
    match machine.launched.map(|at| now.duration_since(at)) {
        Some(up) if up <= YOUNG => Verdict::Approve,
        Some(_) => Verdict::Deny(format!(
            "the instance {node} was started more than {} minutes ago: have it replaced",
            YOUNG.as_mins()
        )),
        None => Verdict::Leave(format!("EC2 does not say when the instance {node} was started")),
    }
}

/// Whether the kubelet of `node` may serve under the names in `request`, when `machine` is what EC2 has of that id.
#[must_use]
pub fn judge(
    node: &str,
    request: &CertificateRequest,
    machine: Option<&Machine>,
    age: SignedDuration,
    cluster: &str,
) -> Verdict {
    let machine = match runs(node, machine, age, cluster) {
        Ok(machine) => machine,
        Err(verdict) => return verdict,
    };
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
