//! Kubelets' requests for certificates: their first one, and serving certificates. Kubernetes' own approver does not know the
//! machines, so this one does it.
//!
//! An attacker on a node can create any number of requests. So that they do not block others, the newest come first (a kubelet
//! that asks again has forgotten its older request), each requester and name has one request a pass, and EC2 is asked for all
//! machines at once.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use slipway_crypto::{CertificateRequest, certificate_request};

use super::judge::{
    Machine, Registration, Requester, SILENT, Verdict, bootstrapping_node, is_instance, judge_client,
    judge_serving, serving_node,
};
use super::sources::Cloud;
use crate::api::{failed, status};
use crate::failure::AgentResult;

const SERVING: &str = "kubernetes.io/kubelet-serving";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// The prefix of a node's user name. Kubernetes approves the renewals of client certificates that nodes request.
const NODE: &str = "system:node:";
/// Requests in one pass.
const AT_MOST: usize = 1000;

/// A pending request.
struct OpenRequest {
    request: CertificateSigningRequest,
    name: String,
    user: String,
    age: SignedDuration,
    is_first: bool,
    /// The node and the content of the request, or why it can never be approved.
    wanted: Result<(String, CertificateRequest), String>,
}

/// Approves or denies pending requests.
pub(super) async fn approve(client: &Client, cloud: &impl Cloud, cluster: &str) -> AgentResult<Value> {
    let all: Api<CertificateSigningRequest> = Api::all(client.clone());
    let now = Timestamp::now();
    let mut found = Vec::new();
    for signer in [SERVING, CLIENT] {
        let of = ListParams::default().fields(&format!("spec.signerName={signer}"));
        let listed = all.list(&of).await.map_err(|error| failed("the requests for certificates", &error))?;
        found.extend(listed.items.into_iter().filter(|request| is_open(request, signer)));
    }
    let open =
        newest_per_requester(found.into_iter().map(|request| OpenRequest::read(request, now)).collect());
    let ids: BTreeSet<&str> =
        open.iter().filter_map(|one| one.wanted.as_ref().ok()).map(|(node, _)| node.as_str()).collect();
    let ids: Vec<&str> = ids.into_iter().filter(|id| is_instance(id)).collect();
    // If EC2 does not answer, nothing is approved, but invalid requests are still denied.
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
        let subject = one.subject();
        let (kind, reason) = match verdict {
            Verdict::Approve => ("Approved", format!("EC2 confirms the machine of {subject}")),
            Verdict::Deny(why) => ("Denied", why),
            Verdict::Leave(why) => {
                left.push(json!({ "request": one.name, "node": subject, "why": why }));
                continue;
            }
        };
        let approval = Patch::Merge(approval(&one.request, kind, &reason));
        match all.patch_approval(&one.name, &PatchParams::default(), &approval).await {
            Ok(_) if kind == "Approved" => approved.push(subject),
            Ok(_) => denied.push(json!({ "request": one.name, "node": subject, "why": reason })),
            Err(error) if matches!(status(&error), Some(404 | 409)) => {}
            Err(error) => return Err(failed(&format!("the request {}", one.name), &error)),
        }
    }
    Ok(json!({ "approved": approved, "denied": denied, "left": left }))
}

/// Newest first, and one for each requester and name.
fn newest_per_requester(mut open: Vec<OpenRequest>) -> Vec<OpenRequest> {
    open.sort_by(|one, other| (one.age, &one.name).cmp(&(other.age, &other.name)));
    let mut seen = BTreeSet::new();
    open.retain(|one| seen.insert((one.is_first, one.user.clone(), one.subject())));
    open.truncate(AT_MOST);
    open
}

impl OpenRequest {
    fn read(request: CertificateSigningRequest, now: Timestamp) -> Self {
        let requester = Requester {
            user: request.spec.username.clone().unwrap_or_default(),
            groups: request.spec.groups.iter().flatten().cloned().collect(),
            usages: request.spec.usages.iter().flatten().cloned().collect(),
        };
        let is_first = request.spec.signer_name == CLIENT;
        let wanted = std::str::from_utf8(&request.spec.request.0)
            .map_err(|_| "it is not text".to_owned())
            .and_then(certificate_request);
        let wanted = wanted.and_then(|wanted| {
            let node = if is_first {
                bootstrapping_node(&requester, &wanted)?
            } else {
                serving_node(&requester, &wanted)?
            };
            Ok((node.to_owned(), wanted))
        });
        let made = request.metadata.creation_timestamp.as_ref();
        Self {
            name: request.metadata.name.clone().unwrap_or_default(),
            user: requester.user,
            age: made.map_or(SignedDuration::ZERO, |made| now.duration_since(made.0)),
            is_first,
            wanted,
            request,
        }
    }

    /// The user name of the node, or of the requester if the request is invalid.
    fn subject(&self) -> String {
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
    ) -> AgentResult<Verdict> {
        if !self.is_first {
            return Ok(judge_serving(node, wanted, machine, self.age, cluster));
        }
        Ok(judge_client(node, machine, registration(client, node, now).await?, self.age, now, cluster))
    }
}

async fn registration(client: &Client, node: &str, now: Timestamp) -> AgentResult<Registration> {
    let found = Api::<Node>::all(client.clone()).get_opt(node).await;
    if found.map_err(|error| failed(&format!("the node {node}"), &error))?.is_none() {
        return Ok(Registration::None);
    }
    let leases = Api::<Lease>::namespaced(client.clone(), "kube-node-lease");
    let lease =
        leases.get_opt(node).await.map_err(|error| failed(&format!("the lease of {node}"), &error))?;
    let renewed = lease.and_then(|lease| lease.spec).and_then(|spec| spec.renew_time);
    let silent = renewed.is_some_and(|at| now.duration_since(at.0) > SILENT);
    Ok(if silent { Registration::Silent } else { Registration::Active })
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

/// Under the resource version that was read, so that one of several controllers decides.
fn approval(request: &CertificateSigningRequest, kind: &str, reason: &str) -> Value {
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
