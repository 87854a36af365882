//! The requests of kubelets for certificates: for their first one, and for those that they serve with. Who approves them must know
//! the machines, which Kubernetes' own approver does not.
//!
//! Whoever has taken a node can ask for as much as it likes, so nobody's requests keep others from their turn: the newest come first
//! (a kubelet that asks again has forgotten what it asked for before), of each asker and name one in a pass, and all machines are
//! asked for at once.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use slipway_crypto::{CertificateRequest, certificate_request};

use super::cluster::Cloud;
use super::judge::{Asker, Machine, SILENT, Standing, Verdict, admit, is_instance, judge, newcomer, node_of};
use crate::api::{failed, status};
use crate::failure::Outcome;

const SERVING: &str = "kubernetes.io/kubelet-serving";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Before the name of whoever is a node already: Kubernetes approves what that asks for itself.
const NODE: &str = "system:node:";
/// So many in one pass.
const AT_MOST: usize = 1000;

/// A request that is open, and what it says.
struct Open {
    request: CertificateSigningRequest,
    name: String,
    user: String,
    /// How long ago it was made.
    age: SignedDuration,
    is_first: bool,
    /// The node's name and what is asked for, or why it never may be.
    wanted: Result<(String, CertificateRequest), String>,
}

/// Approves or denies what is open.
pub(super) async fn approve(client: &Client, cloud: &impl Cloud, cluster: &str) -> Outcome<Value> {
    let all: Api<CertificateSigningRequest> = Api::all(client.clone());
    let now = Timestamp::now();
    let mut found = Vec::new();
    for signer in [SERVING, CLIENT] {
        let of = ListParams::default().fields(&format!("spec.signerName={signer}"));
        let listed = all.list(&of).await.map_err(|error| failed("the requests for certificates", &error))?;
        found.extend(listed.items.into_iter().filter(|request| is_open(request, signer)));
    }
    let open = in_turn(found.into_iter().map(|request| Open::read(request, now)).collect());
    let ids: BTreeSet<&str> =
        open.iter().filter_map(|one| one.wanted.as_ref().ok()).map(|(node, _)| node.as_str()).collect();
    let ids: Vec<&str> = ids.into_iter().filter(|id| is_instance(id)).collect();
    // Without EC2 nothing is approved; what never may be is denied all the same.
    let machines = if ids.is_empty() { Ok(BTreeMap::new()) } else { cloud.machines(&ids).await };
    let (mut approved, mut denied, mut left) = (Vec::new(), Vec::new(), Vec::new());
    for one in open {
        let verdict = match (&one.wanted, &machines) {
            (Err(why), _) => Verdict::Deny(why.clone()),
            (Ok((node, _)), _) if !is_instance(node) => {
                Verdict::Deny(format!("`{node}` is no instance's id"))
            }
            (Ok(_), Err(failure)) => Verdict::Leave(failure.message.clone()),
            (Ok((node, wanted)), Ok(machines)) => {
                one.verdict(client, node, wanted, machines.get(node), now, cluster).await?
            }
        };
        let told = one.told();
        let (kind, reason) = match verdict {
            Verdict::Approve => {
                ("Approved", format!("EC2 knows the machine of {told}, and it is as it says"))
            }
            Verdict::Deny(why) => ("Denied", why),
            Verdict::Leave(why) => {
                left.push(json!({ "request": one.name, "node": told, "why": why }));
                continue;
            }
        };
        let decided = Patch::Merge(decided(&one.request, kind, &reason));
        match all.patch_approval(&one.name, &PatchParams::default(), &decided).await {
            Ok(_) if kind == "Approved" => approved.push(told),
            Ok(_) => denied.push(json!({ "request": one.name, "node": told, "why": reason })),
            Err(error) if matches!(status(&error), Some(404 | 409)) => {}
            Err(error) => return Err(failed(&format!("the request {}", one.name), &error)),
        }
    }
    Ok(json!({ "approved": approved, "denied": denied, "left": left }))
}

/// Newest first, and of each asker and name one.
fn in_turn(mut open: Vec<Open>) -> Vec<Open> {
    open.sort_by(|one, other| (one.age, &one.name).cmp(&(other.age, &other.name)));
    let mut seen = BTreeSet::new();
    open.retain(|one| seen.insert((one.is_first, one.user.clone(), one.told())));
    open.truncate(AT_MOST);
    open
}

impl Open {
    fn read(request: CertificateSigningRequest, now: Timestamp) -> Self {
        let asker = Asker {
            user: request.spec.username.clone().unwrap_or_default(),
            groups: request.spec.groups.iter().flatten().cloned().collect(),
            usages: request.spec.usages.iter().flatten().cloned().collect(),
        };
        let is_first = request.spec.signer_name == CLIENT;
        let wanted = std::str::from_utf8(&request.spec.request.0)
            .map_err(|_| "it is no text".to_owned())
            .and_then(certificate_request);
        let wanted = wanted.and_then(|wanted| {
            let node = if is_first { newcomer(&asker, &wanted)? } else { node_of(&asker, &wanted)? };
            Ok((node.to_owned(), wanted))
        });
        let made = request.metadata.creation_timestamp.as_ref();
        Self {
            name: request.metadata.name.clone().unwrap_or_default(),
            user: asker.user,
            age: made.map_or(SignedDuration::ZERO, |made| now.duration_since(made.0)),
            is_first,
            wanted,
            request,
        }
    }

    /// The node that it is about; who asks, where it is about none.
    fn told(&self) -> String {
        self.wanted.as_ref().map_or_else(|_| self.user.clone(), |(node, _)| format!("{NODE}{node}"))
    }

    async fn verdict(
        &self,
        client: &Client,
        node: &str,
        wanted: &CertificateRequest,
        machine: Option<&Machine>,
        now: Timestamp,
        cluster: &str,
    ) -> Outcome<Verdict> {
        if !self.is_first {
            return Ok(judge(node, wanted, machine, self.age, cluster));
        }
        Ok(admit(node, machine, standing(client, node, now).await?, self.age, now, cluster))
    }
}

async fn standing(client: &Client, node: &str, now: Timestamp) -> Outcome<Standing> {
    let found = Api::<Node>::all(client.clone()).get_opt(node).await;
    if found.map_err(|error| failed(&format!("the node {node}"), &error))?.is_none() {
        return Ok(Standing::Unknown);
    }
    let leases = Api::<Lease>::namespaced(client.clone(), "kube-node-lease");
    let lease =
        leases.get_opt(node).await.map_err(|error| failed(&format!("the lease of {node}"), &error))?;
    let renewed = lease.and_then(|lease| lease.spec).and_then(|spec| spec.renew_time);
    let silent = renewed.is_some_and(|at| now.duration_since(at.0) > SILENT);
    Ok(if silent { Standing::Silent } else { Standing::Heard })
}

fn is_open(request: &CertificateSigningRequest, signer: &str) -> bool {
    let status = request.status.as_ref();
    let is_renewal =
        signer == CLIENT && request.spec.username.as_ref().is_some_and(|user| user.starts_with(NODE));
    request.spec.signer_name == signer
        && !is_renewal
        && status.and_then(|status| status.conditions.as_ref()).is_none_or(Vec::is_empty)
        && status.and_then(|status| status.certificate.as_ref()).is_none()
}

/// Under the version that was read: of several controllers one decides.
fn decided(request: &CertificateSigningRequest, kind: &str, reason: &str) -> Value {
    json!({
        "metadata": { "resourceVersion": request.metadata.resource_version },
        "status": { "conditions": [{
            "type": kind,
            "status": "True",
            "reason": "SlipwayNodeManager",
            "message": reason,
            "lastUpdateTime": Timestamp::now().to_string(),
        }]},
    })
}
