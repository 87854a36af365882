//! The requests of kubelets for certificates to serve with: Kubernetes' own approver leaves them to somebody who knows the
//! machines.

use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use slipway_pki::{CertificateRequest, certificate_request};

use super::cluster::Cloud;
use super::judge::{Asker, Verdict, judge, node_of};
use crate::api::{failed, status};
use crate::failure::Outcome;

const SIGNER: &str = "kubernetes.io/kubelet-serving";
/// So many in one pass.
const AT_MOST: usize = 200;

/// Approves or denies what is open.
pub(super) async fn approve(client: &Client, cloud: &impl Cloud, cluster: &str) -> Outcome<Value> {
    let all: Api<CertificateSigningRequest> = Api::all(client.clone());
    let serving = ListParams::default().fields(&format!("spec.signerName={SIGNER}"));
    let found = all.list(&serving).await.map_err(|error| failed("the requests for certificates", &error))?;
    let (mut approved, mut denied, mut left) = (Vec::new(), Vec::new(), Vec::new());
    for request in found.items.into_iter().filter(is_open).take(AT_MOST) {
        let name = request.metadata.name.clone().unwrap_or_default();
        let (kind, reason) = match verdict(&request, cloud, cluster).await {
            Verdict::Approve => ("Approved", format!("EC2 knows {} by these names", request_user(&request))),
            Verdict::Deny(why) => ("Denied", why),
            Verdict::Leave(why) => {
                left.push(json!({ "request": name, "node": request_user(&request), "why": why }));
                continue;
            }
        };
        match all
            .patch_approval(&name, &PatchParams::default(), &Patch::Merge(decided(&request, kind, &reason)))
            .await
        {
            Ok(_) if kind == "Approved" => approved.push(request_user(&request)),
            Ok(_) => denied.push(json!({ "request": name, "node": request_user(&request), "why": reason })),
            Err(error) if matches!(status(&error), Some(404 | 409)) => {}
            Err(error) => return Err(failed(&format!("the request {name}"), &error)),
        }
    }
    Ok(json!({ "approved": approved, "denied": denied, "left": left }))
}

fn is_open(request: &CertificateSigningRequest) -> bool {
    let status = request.status.as_ref();
    request.spec.signer_name == SIGNER
        && status.and_then(|status| status.conditions.as_ref()).is_none_or(Vec::is_empty)
        && status.and_then(|status| status.certificate.as_ref()).is_none()
}

fn request_user(request: &CertificateSigningRequest) -> String {
    request.spec.username.clone().unwrap_or_default()
}

async fn verdict(request: &CertificateSigningRequest, cloud: &impl Cloud, cluster: &str) -> Verdict {
    let asker = Asker {
        user: request_user(request),
        groups: request.spec.groups.iter().flatten().cloned().collect(),
        usages: request.spec.usages.iter().flatten().cloned().collect(),
    };
    let wanted: Result<CertificateRequest, String> = std::str::from_utf8(&request.spec.request.0)
        .map_err(|_| "it is no text".to_owned())
        .and_then(certificate_request);
    let wanted = match wanted {
        Ok(wanted) => wanted,
        Err(problem) => return Verdict::Deny(problem),
    };
    let node = match node_of(&asker, &wanted) {
        Ok(node) => node,
        Err(problem) => return Verdict::Deny(problem),
    };
    match cloud.machine(node).await {
        Ok(machine) => judge(node, &wanted, machine.as_ref(), cluster),
        Err(failure) => Verdict::Leave(failure.message),
    }
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
