//! Kubelets' requests for certificates: their first one, and serving certificates. Kubernetes' own approver does not know the
//! machines, so this one does it.
//!
//! An attacker on a node can create any number of requests. So that they do not block others, each requester and name has one
//! request a pass, requesters take turns ([`in_turn`]), and EC2 is asked for all machines at once. Of serving certificates the newest
//! request counts, because a kubelet that asks again has forgotten its older one. Of a node's first certificate the oldest counts that
//! was made with the token of the machine's role, and after it no other: whoever has a token can list requests and copy one under
//! another key. A kubelet makes a new key for each attempt (`generateCSR` in client-go `util/certificate/certificate_manager.go`): one that starts
//! again before its first request was answered is denied, and its machine is replaced.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use slipway_core::node::is_instance;
use slipway_crypto::{CertificateRequest, certificate_request};

use super::judge::{
    JOIN_TIME, Machine, Registration, Requester, SILENT, Verdict, bootstrapping_node, judge_client,
    judge_serving, may_ask, serving_node,
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
pub struct OpenRequest {
    request: CertificateSigningRequest,
    name: String,
    requester: Requester,
    age: SignedDuration,
    is_first: bool,
    /// The node and the content of the request, or why it can never be approved.
    wanted: Result<(String, CertificateRequest), String>,
}

/// Approves or denies pending requests.
pub(super) async fn approve(client: &Client, cloud: &impl Cloud, cluster: &str) -> AgentResult<Value> {
    let all: Api<CertificateSigningRequest> = Api::all(client.clone());
    let now = Timestamp::now();
    let (mut found, mut joined) = (Vec::new(), BTreeMap::new());
    for signer in [SERVING, CLIENT] {
        let of_signer = ListParams::default().fields(&format!("spec.signerName={signer}"));
        let listed =
            all.list(&of_signer).await.map_err(|error| failed("the requests for certificates", &error))?;
        let (open, decided): (Vec<_>, Vec<_>) =
            listed.items.into_iter().partition(|request| is_open(request, signer));
        found.extend(open);
        joined.extend(decided.into_iter().filter_map(|request| joins(request, now)));
    }
    let open = in_turn(found.into_iter().map(|request| OpenRequest::read(request, now)).collect());
    let ids: BTreeSet<&str> =
        open.iter().filter_map(|one| one.wanted.as_ref().ok()).map(|(node, _)| node.as_str()).collect();
    let ids: Vec<&str> = ids.into_iter().filter(|id| is_instance(id)).collect();
    // If EC2 does not answer, nothing is approved, but invalid requests are still denied.
    let machines = if ids.is_empty() { Ok(BTreeMap::new()) } else { cloud.machines(&ids).await };
    let (mut approved, mut denied, mut undecided) = (Vec::new(), Vec::new(), Vec::new());
    let mut had_its_turn = BTreeSet::new();
    for one in open {
        let is_allowed =
            one.is_first && machines.as_ref().is_ok_and(|machines| one.is_allowed(machines, cluster));
        if is_allowed && !had_its_turn.insert(one.subject()) {
            continue;
        }
        let (registration, first) = match &one.wanted {
            Ok((node, _)) if is_allowed => (registration(client, node, now).await?, joined.get(node)),
            Ok(_) | Err(_) => (Registration::None, None),
        };
        let verdict = one.verdict(&machines, registration, first.map(String::as_str), now, cluster);
        let subject = one.subject();
        let (kind, reason) = match verdict {
            Verdict::Approve => ("Approved", format!("EC2 confirms the machine of {subject}")),
            Verdict::Deny(why) => ("Denied", why),
            Verdict::Leave(why) => {
                undecided.push(json!({ "request": one.name, "node": subject, "why": why }));
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
    Ok(json!({ "approved": approved, "denied": denied, "left": undecided }))
}

/// The requests of a pass: one for each requester and name, first certificates before others. Of first certificates it is the oldest, and
/// they come in the order of their age. Of others it is the newest.
///
/// If there are too many, requesters take turns. All machines of a role are one requester until they are nodes, so whoever floods with a
/// role's token delays machines of that role alone.
fn in_turn(mut open: Vec<OpenRequest>) -> Vec<OpenRequest> {
    open.sort_by(|one, other| (one.age, &one.name).cmp(&(other.age, &other.name)));
    let (mut first, mut serving): (Vec<_>, Vec<_>) = open.into_iter().partition(|one| one.is_first);
    first.reverse();
    let mut seen = BTreeSet::new();
    let mut is_new =
        |one: &OpenRequest| seen.insert((one.is_first, one.requester.user.clone(), one.subject()));
    first.retain(&mut is_new);
    serving.retain(&mut is_new);
    first = by_turns(first);
    first.sort_by(|one, other| (other.age, &one.name).cmp(&(one.age, &other.name)));
    first.into_iter().chain(by_turns(serving)).collect()
}

/// At most [`AT_MOST`] of them: the first of each requester, then the second of each, and so on.
fn by_turns(requests: Vec<OpenRequest>) -> Vec<OpenRequest> {
    let mut turns: BTreeMap<String, usize> = BTreeMap::new();
    let mut numbered: Vec<(usize, OpenRequest)> = requests
        .into_iter()
        .map(|one| {
            let turn = turns.entry(one.requester.user.clone()).or_default();
            *turn += 1;
            (*turn, one)
        })
        .collect();
    // Stable: those of one turn keep their order.
    numbered.sort_by_key(|(turn, _)| *turn);
    numbered.into_iter().take(AT_MOST).map(|(_, one)| one).collect()
}

/// The node and the request by which it got its first certificate, if that was approved so lately that the node may not have registered
/// yet.
fn joins(request: CertificateSigningRequest, now: Timestamp) -> Option<(String, String)> {
    let conditions = request.status.as_ref()?.conditions.as_ref()?;
    let approved = conditions.iter().any(|condition| condition.type_ == "Approved");
    let of_node = request.spec.username.as_ref().is_some_and(|user| user.starts_with(NODE));
    if !approved || of_node || request.spec.signer_name != CLIENT {
        return None;
    }
    let read = OpenRequest::read(request, now);
    let (node, _) = read.wanted.ok().filter(|_| read.age <= JOIN_TIME)?;
    Some((node, read.name))
}

impl OpenRequest {
    pub fn read(request: CertificateSigningRequest, now: Timestamp) -> Self {
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
            requester,
            age: made.map_or(SignedDuration::ZERO, |made| now.duration_since(made.0)),
            is_first,
            wanted,
            request,
        }
    }

    /// The user name of the node, or of the requester if the request is invalid.
    fn subject(&self) -> String {
        self.wanted.as_ref().map_or_else(|_| self.requester.user.clone(), |(node, _)| format!("{NODE}{node}"))
    }

    /// Whether it was made with the token of its machine's role.
    fn is_allowed(&self, machines: &BTreeMap<String, Machine>, cluster: &str) -> bool {
        let Ok((node, _)) = &self.wanted else { return false };
        may_ask(&self.requester, node, machines.get(node), self.age, cluster).is_ok()
    }

    /// Decides about it. `registration` is that of the node whose first certificate is requested, and `first` names the request by which that
    /// node got one before.
    pub fn verdict(
        &self,
        machines: &AgentResult<BTreeMap<String, Machine>>,
        registration: Registration,
        first: Option<&str>,
        now: Timestamp,
        cluster: &str,
    ) -> Verdict {
        let (node, wanted) = match &self.wanted {
            Ok((node, wanted)) if is_instance(node) => (node, wanted),
            Ok((node, _)) => return Verdict::Deny(format!("`{node}` is not the id of an instance")),
            Err(why) => return Verdict::Deny(why.clone()),
        };
        let machine = match machines {
            Ok(machines) => machines.get(node),
            Err(failure) => return Verdict::Leave(failure.message.clone()),
        };
        if !self.is_first {
            return judge_serving(node, wanted, machine, self.age, cluster);
        }
        let verdict = judge_client(&self.requester, node, machine, registration, self.age, now, cluster);
        match first {
            Some(first) if registration == Registration::None && verdict == Verdict::Approve => {
                Verdict::Deny(format!(
                    "the request {first} of the same node was approved first: if that was not the machine's own, have it replaced"
                ))
            }
            Some(_) | None => verdict,
        }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::process::Command;

    use super::*;

    /// A request of a kubelet with its role's token as the API server lists it, with a key of its own.
    fn listed(name: &str, node: &str, minutes_ago: i64, now: Timestamp) -> CertificateSigningRequest {
        listed_by("system:bootstrap:abcdef", name, node, now - SignedDuration::from_mins(minutes_ago))
    }

    fn listed_by(user: &str, name: &str, node: &str, made_at: Timestamp) -> CertificateSigningRequest {
        let subject = format!("/O=system:nodes/CN={NODE}{node}");
        let key = tempfile::tempdir().unwrap();
        let made = Command::new("openssl")
            .args([
                "req",
                "-new",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-subj",
                &subject,
            ])
            .arg("-keyout")
            .arg(key.path().join("key.pem"))
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        serde_json::from_value(json!({
            "metadata": { "name": name, "creationTimestamp": made_at.to_string() },
            "spec": {
                "signerName": CLIENT, "username": user, "groups": ["system:bootstrappers"],
                "usages": ["client auth", "digital signature"],
                "request": base64::Engine::encode(&base64::engine::general_purpose::STANDARD, made.stdout),
            },
        }))
        .unwrap()
    }

    fn decided(mut request: CertificateSigningRequest, kind: &str) -> CertificateSigningRequest {
        let approval = approval(&request, kind, "a test");
        request.status = serde_json::from_value(approval["status"].clone()).unwrap();
        request
    }

    /// Whoever has a bootstrap token may list requests. A worker saw a booting controller's, and copied it under a key of its own. The token of
    /// its role is another one (`a_workers_token_makes_nobody_a_controller`); were it the same, it would be too late.
    #[test]
    fn a_copy_of_a_booting_controllers_request_does_not_displace_it() {
        let now: Timestamp = "2026-11-25T12:00:00Z".parse().unwrap();
        let original = listed("node-csr-original", "i-1", 2, now);
        let copy = listed("node-csr-copy", "i-1", 1, now);
        let other = listed("node-csr-other", "i-2", 1, now);
        let open = [&copy, &original, &other].map(|request| OpenRequest::read(request.clone(), now));
        assert!(open.iter().all(|one| one.wanted.is_ok()));
        let names: Vec<String> = in_turn(open.into()).into_iter().map(|one| one.name).collect();
        assert_eq!(names, ["node-csr-original", "node-csr-other"]);
        // In the next pass the copy is the only one that is open.
        let taken = joins(decided(original.clone(), "Approved"), now);
        assert_eq!(taken, Some(("i-1".to_owned(), "node-csr-original".to_owned())));
        assert_eq!(joins(decided(original.clone(), "Denied"), now), None);
        assert_eq!(joins(original, now), None, "nobody has decided yet");
        assert_eq!(joins(decided(listed("node-csr-older", "i-1", 61, now), "Approved"), now), None);
    }

    #[test]
    fn of_two_first_requests_for_one_node_one_is_approved() {
        let now: Timestamp = "2026-11-25T12:00:00Z".parse().unwrap();
        let mut request = listed("node-csr-copy", "i-1", 1, now);
        let own = slipway_credentials::bootstrap::group(&slipway_core::role::Role::Controller);
        request.spec.groups.get_or_insert_default().extend(own);
        let read = OpenRequest::read(request, now);
        let tags = [("slipway:cluster", "c"), ("slipway:role", "controller")];
        let machine = Machine {
            state: "running".to_owned(),
            launched: Some(now - SignedDuration::from_mins(2)),
            tags: tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            ..Machine::default()
        };
        let machines = Ok(BTreeMap::from([("i-1".to_owned(), machine)]));
        let verdict = |first| read.verdict(&machines, Registration::None, first, now, "c");
        assert_eq!(verdict(None), Verdict::Approve);
        let Verdict::Deny(why) = verdict(Some("node-csr-original")) else { panic!("approved twice") };
        assert!(why.contains("node-csr-original"), "{why}");
        // It has lost its credentials since, and its certificate has expired.
        let silent = read.verdict(&machines, Registration::Silent, Some("node-csr-original"), now, "c");
        assert_eq!(silent, Verdict::Approve);
    }

    /// A worker floods: more requests than are looked at in one pass, all older than that of a controller that boots.
    #[test]
    fn a_flood_of_one_roles_requests_delays_no_other_role() {
        let now: Timestamp = "2026-11-25T12:00:00Z".parse().unwrap();
        let flood = listed_by("system:bootstrap:worker", "flood", "i-0", now - SignedDuration::from_mins(9));
        let serving = |request: &CertificateSigningRequest| {
            let mut request = request.clone();
            request.spec.signer_name = SERVING.to_owned();
            request
        };
        let mut open = Vec::new();
        for number in 0..AT_MOST + 500 {
            let mut one = OpenRequest::read(flood.clone(), now);
            one.name = format!("flood-{number}");
            // Each in the name of another machine.
            if let Ok((node, _)) = &mut one.wanted {
                *node = format!("i-{number:x}");
            }
            open.push(one);
            let mut invalid = OpenRequest::read(serving(&flood), now);
            (invalid.name, invalid.requester.user) =
                (format!("serving-{number}"), format!("{NODE}i-{number:x}"));
            invalid.requester.user.truncate(NODE.len() + 4);
            open.push(invalid);
        }
        let controller = listed_by("system:bootstrap:cntrlr", "controller", "i-ffff", now);
        open.push(OpenRequest::read(controller, now));
        let mut node = OpenRequest::read(serving(&listed("node", "i-fffe", 10, now)), now);
        node.requester.user = format!("{NODE}i-fffe");
        open.push(node);
        let turn = in_turn(open);
        assert!(turn.iter().any(|one| one.name == "controller"), "the controller has its turn");
        assert!(turn.iter().any(|one| one.name == "node"), "the node has its turn");
        assert_eq!(turn.iter().filter(|one| one.is_first).count(), AT_MOST);
        // The oldest come first, whoever made them: of several for one node the first one wins.
        assert_eq!(
            turn.iter().take_while(|one| one.is_first).last().map(|one| one.name.as_str()),
            Some("controller")
        );
    }

    /// A kubelet that asks for a serving certificate again has forgotten its older key.
    #[test]
    fn of_serving_certificates_the_newest_request_counts() {
        let now: Timestamp = "2026-11-25T12:00:00Z".parse().unwrap();
        let serving = |name: &str, minutes_ago: i64| {
            let mut request = listed(name, "i-1", minutes_ago, now);
            request.spec.signer_name = SERVING.to_owned();
            request.spec.username = Some(format!("{NODE}i-1"));
            OpenRequest::read(request, now)
        };
        let names: Vec<String> =
            in_turn(vec![serving("older", 9), serving("newer", 1)]).into_iter().map(|one| one.name).collect();
        assert_eq!(names, ["newer"]);
    }
}
