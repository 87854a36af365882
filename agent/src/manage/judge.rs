//! Decides whether a kubelet gets the certificate that it requests. Pure: the inputs are the request and the facts from EC2 and
//! the API server.
//!
//! **What is trusted.** The API server says who made the request, because it checked the kubelet's certificate or token. EC2 says
//! which machine a name stands for. `Node.status.addresses` is not trusted although it usually agrees: a node may write its own
//! status, so an attacker on one node could put any address there and get a certificate that passes for another node's. A node's
//! name is its instance's id, which is never reused.
//!
//! **A node's first certificate** ([`judge_client`]) is requested with the bootstrap token of the machine's role. So the request
//! proves a role, and not which machine of it. It is approved only if the name is a running instance of this cluster with that
//! role, and no node of that name has registered yet. An attacker can use the time until a booting machine of the same role has
//! registered, and no longer. A node whose certificate has expired cannot renew it and has gone silent: it may start again (P7), in its
//! role.
//!
//! **A renewal** ([`judge_renewal`]) is requested with the certificate that it renews. So the request proves a node's key, and not that its
//! machine still exists: whoever copied the key could keep a certificate for ever. It is approved only while EC2 says that the machine runs
//! with the tags of this cluster and of a role whose machines are nodes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use slipway_core::release::{StackKind, stack_name};
use slipway_core::role::Role;
use slipway_credentials::bootstrap::{BOOTSTRAPPERS, group};
use slipway_crypto::CertificateRequest;

pub use crate::aws::Machine;

/// The group of all nodes.
const NODES: &str = "system:nodes";
/// The prefix of a node's user name.
const NODE: &str = "system:node:";
/// The two sets of usages that the signer accepts, sorted: with RSA keys, and with others.
/// <https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/#kubernetes-signers>
const USAGES: [&[&str]; 2] =
    [&["digital signature", "key encipherment", "server auth"], &["digital signature", "server auth"]];
/// The same for the signer of client certificates.
const CLIENT_USAGES: [&[&str]; 2] =
    [&["client auth", "digital signature", "key encipherment"], &["client auth", "digital signature"]];
const CLUSTER: &str = "slipway:cluster";
pub(super) const ROLE: &str = "slipway:role";
/// The tag with which Auto Scaling names the group of an instance.
const GROUP: &str = "aws:autoscaling:groupName";
/// A machine may become a node within this time after its launch. One that has not given up at its launch hook by then ([`Patience`]) has
/// a Node, and renews its certificate by itself.
///
/// [`Patience`]: crate::bootstrap::Patience
pub(super) const JOIN_TIME: SignedDuration = SignedDuration::from_hours(1);
/// How long EC2 may not yet know an instance that it has just launched.
const EC2_DELAY: SignedDuration = SignedDuration::from_mins(10);

/// The requester, as the API server has authenticated it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Requester {
    pub(super) user: String,
    pub(super) groups: BTreeSet<String>,
    pub(super) usages: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Approve,
    /// It can never be approved.
    Deny(String),
    /// It stays pending, because it may become approvable.
    Leave(String),
}

/// The node that requests a serving certificate, if the request is one of a kubelet's. The machine is not checked here. The error
/// says why the request can never be approved.
pub(super) fn serving_node<'a>(
    requester: &'a Requester,
    request: &CertificateRequest,
) -> Result<&'a str, String> {
    let node = own_node(requester, request)?;
    if !USAGES.iter().any(|usages| requester.usages.iter().eq(usages.iter())) {
        return Err(format!("the usages {:?} are not those of a server", requester.usages));
    }
    if request.other_names > 0 {
        return Err("names of other kinds than DNS and addresses are asked for".to_owned());
    }
    if request.dns_names.is_empty() && request.addresses.is_empty() {
        return Err("no name is asked for".to_owned());
    }
    Ok(node)
}

/// The node in whose name a first client certificate is requested, if the request is one of a kubelet's. The error says why the
/// request can never be approved.
pub(super) fn bootstrapping_node<'a>(
    requester: &Requester,
    request: &'a CertificateRequest,
) -> Result<&'a str, String> {
    let [name] = request.common_names.as_slice() else {
        return Err(format!("a certificate of {:?} is asked for", request.common_names));
    };
    let Some(node) = name.strip_prefix(NODE) else {
        return Err(format!("`{name}` is not a node"));
    };
    if !requester.groups.contains(BOOTSTRAPPERS) {
        return Err(format!("`{}` is not in the group {BOOTSTRAPPERS}", requester.user));
    }
    names_only_nodes(request)?;
    is_client(requester, request)?;
    Ok(node)
}

/// The node that requests a certificate in its own name.
fn own_node<'a>(requester: &'a Requester, request: &CertificateRequest) -> Result<&'a str, String> {
    let Some(node) = requester.user.strip_prefix(NODE).filter(|name| !name.is_empty()) else {
        return Err(format!("`{}` is not a node, and asks for a node's certificate", requester.user));
    };
    if !requester.groups.contains(NODES) {
        return Err(format!("`{}` is not in the group {NODES}", requester.user));
    }
    if request.common_names != [requester.user.as_str()] {
        return Err(format!("`{}` asks for a certificate of {:?}", requester.user, request.common_names));
    }
    names_only_nodes(request)?;
    Ok(node)
}

fn names_only_nodes(request: &CertificateRequest) -> Result<(), String> {
    if request.organizations != [NODES] || request.more_in_subject {
        return Err(format!("the subject must name the organization {NODES} and nothing besides"));
    }
    Ok(())
}

/// Whether a client's certificate is requested, and no more.
fn is_client(requester: &Requester, request: &CertificateRequest) -> Result<(), String> {
    if !CLIENT_USAGES.iter().any(|usages| requester.usages.iter().eq(usages.iter())) {
        return Err(format!("the usages {:?} are not those of a client", requester.usages));
    }
    if !request.dns_names.is_empty() || !request.addresses.is_empty() || request.other_names > 0 {
        return Err("a client's certificate has no names besides its subject".to_owned());
    }
    Ok(())
}

/// The node that renews its client certificate, if the request is one of a kubelet's. The error says why the request can never be approved.
pub(super) fn renewing_node<'a>(
    requester: &'a Requester,
    request: &CertificateRequest,
) -> Result<&'a str, String> {
    let node = own_node(requester, request)?;
    is_client(requester, request)?;
    Ok(node)
}

/// What any certificate requires of the machine. `age` is the age of the request.
fn running_machine<'m>(
    node: &str,
    machine: Option<&'m Machine>,
    age: SignedDuration,
    cluster: &str,
) -> Result<&'m Machine, Verdict> {
    let Some(machine) = machine else {
        let why = format!("EC2 has no instance `{node}`");
        // EC2 may know a new instance a moment later.
        return Err(if age > EC2_DELAY { Verdict::Deny(why) } else { Verdict::Leave(why) });
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

/// Whether a node of that name exists in the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registration {
    None,
    /// It exists, and its kubelet has renewed its lease lately.
    Active,
    /// It exists, and its kubelet has not renewed its lease for longer than [`SILENT`].
    Silent,
}

/// A kubelet renews its lease every ten seconds and counts as lost after forty. One whose certificate has expired stays silent.
pub(super) const SILENT: SignedDuration = SignedDuration::from_mins(10);

/// Why the token of `requester` is not that of the machine `node`, which is of `role`. Each role has a token with a group of its own.
fn not_its_token(requester: &Requester, node: &str, role: &Role) -> Option<String> {
    let own = group(role)?;
    if requester.groups.contains(&own) {
        return None;
    }
    let others = requester.groups.iter().find(|group| group.starts_with(&format!("{BOOTSTRAPPERS}:")));
    match others {
        None => {
            Some(format!("`{}` does not have the bootstrap token of {role}, which {node} is", requester.user))
        }
        Some(others) => {
            Some(format!("`{}` has the bootstrap token of {others}, and {node} is a {role}", requester.user))
        }
    }
}

/// The role of a machine of `cluster` whose node may join: its tag says so, and Auto Scaling launched it in the group of that role. Whoever may tag
/// instances could give any instance the first, and only AWS the second: tags that begin with `aws:` cannot be set
/// (docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-tagging.html, "Tag naming and usage restrictions").
pub(super) fn role_of(machine: &Machine, cluster: &str) -> Option<Role> {
    let role: Role = machine.tags.get(ROLE)?.parse().ok()?;
    let group = match &role {
        Role::Controller => stack_name(cluster, StackKind::ControlPlane, ""),
        Role::Pool(pool) => stack_name(cluster, StackKind::Pool, pool),
        Role::Etcd(_) | Role::Admin => return None,
    };
    (machine.tags.get(GROUP) == Some(&group)).then_some(role)
}

fn role(node: &str, machine: &Machine, cluster: &str) -> Result<Role, Verdict> {
    let why = || format!("Auto Scaling launched {node} neither as a controller nor in a pool of {cluster}");
    role_of(machine, cluster).ok_or_else(|| Verdict::Deny(why()))
}

/// Whether `requester` may ask in the name of `node` at all. If not, its request is denied and keeps no other from its turn.
pub(super) fn may_ask(
    requester: &Requester,
    node: &str,
    machine: Option<&Machine>,
    age: SignedDuration,
    cluster: &str,
) -> Result<(), Verdict> {
    let machine = running_machine(node, machine, age, cluster)?;
    let role = role(node, machine, cluster)?;
    not_its_token(requester, node, &role).map_or(Ok(()), |why| Err(Verdict::Deny(why)))
}

/// Decides on a first client certificate for `node`, whose instance is `machine`.
pub(super) fn judge_client(
    requester: &Requester,
    node: &str,
    machine: Option<&Machine>,
    registration: Registration,
    age: SignedDuration,
    now: Timestamp,
    cluster: &str,
) -> Verdict {
    let machine = match running_machine(node, machine, age, cluster) {
        Ok(machine) => machine,
        Err(verdict) => return verdict,
    };
    if let Err(verdict) = may_ask(requester, node, Some(machine), age, cluster) {
        return verdict;
    }
    match registration {
        Registration::None => {}
        Registration::Active => {
            return Verdict::Deny(format!(
                "the node {node} has registered and was heard of in the last {} minutes: it renews its certificate by itself",
                SILENT.as_mins()
            ));
        }
        Registration::Silent => return Verdict::Approve,
    }
    match machine.launched.map(|at| now.duration_since(at)) {
        Some(up) if up <= JOIN_TIME => Verdict::Approve,
        Some(_) => Verdict::Deny(format!(
            "the instance {node} was started more than {} minutes ago: have it replaced",
            JOIN_TIME.as_mins()
        )),
        None => Verdict::Leave(format!("EC2 does not say when the instance {node} was started")),
    }
}

/// Decides on the renewal of the client certificate of `node`, whose instance is `machine`.
pub(super) fn judge_renewal(
    node: &str,
    machine: Option<&Machine>,
    age: SignedDuration,
    cluster: &str,
) -> Verdict {
    match running_machine(node, machine, age, cluster).and_then(|machine| role(node, machine, cluster)) {
        Ok(_) => Verdict::Approve,
        Err(verdict) => verdict,
    }
}

/// Decides on a serving certificate for the names in `request`, if `machine` is the instance of `node`.
#[must_use]
pub fn judge_serving(
    node: &str,
    request: &CertificateRequest,
    machine: Option<&Machine>,
    age: SignedDuration,
    cluster: &str,
) -> Verdict {
    let machine = match running_machine(node, machine, age, cluster) {
        Ok(machine) => machine,
        Err(verdict) => return verdict,
    };
    let strange: Vec<String> = request
        .dns_names
        .iter()
        .filter(|name| *name != node && !machine.names.contains(*name))
        .cloned()
        .chain(
            request
                .addresses
                .iter()
                .filter(|address| !has_address(machine, **address))
                .map(ToString::to_string),
        )
        .collect();
    if strange.is_empty() {
        Verdict::Approve
    } else {
        Verdict::Deny(format!("not the instance's own: {}", strange.join(", ")))
    }
}

fn has_address(machine: &Machine, address: IpAddr) -> bool {
    machine.addresses.contains(&address.to_canonical())
}
