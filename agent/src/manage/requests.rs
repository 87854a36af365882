//! Kubelets' requests for certificates: their first one, its renewals, and serving certificates. Kubernetes' own approver does not know the
//! machines, so this one does it.
//!
//! An attacker on a node can create any number of requests. So that they do not block others, each requester and name has one
//! request a pass, requesters take turns ([`in_turn`]), and EC2 is asked for all machines at once. Of renewals and serving certificates the newest
//! request counts, because a kubelet that asks again has forgotten its older one. Of a node's first certificate the oldest counts that
//! was made with the token of the machine's role, and after it no other: whoever has a token can list requests and copy one under
//! another key. A kubelet makes a new key for each attempt (`generateCSR` in client-go `util/certificate/certificate_manager.go`): one that starts
//! again before its first request was answered is denied, and its machine is replaced.
//!
//! A kubelet asks for a renewal when between 70 and 90 % of its certificate's life are over, and again after a quarter of an hour without an
//! answer, and half a minute after a denial (`nextRotationDeadline` and `Start` there). So a request that EC2 gives no answer for stays open.

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
    judge_renewal, judge_serving, may_ask, renewing_node, serving_node,
};
use super::sources::Cloud;
use crate::api::{failed, status};
use crate::failure::AgentResult;

const SERVING: &str = "kubernetes.io/kubelet-serving";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// The prefix of a node's user name.
const NODE: &str = "system:node:";
/// Requests in one pass.
const AT_MOST: usize = 1000;

/// What is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// A node's first client certificate.
    First,
    /// A client certificate, by a node that has one.
    Renewal,
    Serving,
}

impl Kind {
    fn of(request: &CertificateSigningRequest) -> Self {
        let is_node = request.spec.username.as_ref().is_some_and(|user| user.starts_with(NODE));
        match (request.spec.signer_name == CLIENT, is_node) {
            (false, _) => Self::Serving,
            (true, true) => Self::Renewal,
            (true, false) => Self::First,
        }
    }
}

/// A pending request.
pub struct OpenRequest {
    request: CertificateSigningRequest,
    name: String,
    requester: Requester,
    age: SignedDuration,
    kind: Kind,
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
        let is_allowed = one.kind == Kind::First
            && machines.as_ref().is_ok_and(|machines| one.is_allowed(machines, cluster));
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

/// The requests of a pass: one for each requester and name, first certificates before renewals, and these before serving certificates. Of first
/// For first certificates this is the oldest request, and the oldest are handled first. For all others it is the newest request.
///
/// If there are too many, requesters take turns. All machines of a role are one requester until they are nodes, so whoever floods with a
/// role's token delays machines of that role alone.
fn in_turn(mut open: Vec<OpenRequest>) -> Vec<OpenRequest> {
    open.sort_by(|one, other| (one.age, &one.name).cmp(&(other.age, &other.name)));
    let (mut first, mut others): (Vec<_>, Vec<_>) = open.into_iter().partition(|one| one.kind == Kind::First);
    first.reverse();
    let mut seen = BTreeSet::new();
    let mut is_new = |one: &OpenRequest| seen.insert((one.kind, one.requester.user.clone(), one.subject()));
    first.retain(&mut is_new);
    others.retain(&mut is_new);
    first = by_turns(first);
    first.sort_by(|one, other| (other.age, &one.name).cmp(&(one.age, &other.name)));
    let (renewals, serving): (Vec<_>, Vec<_>) = others.into_iter().partition(|one| one.kind == Kind::Renewal);
    first.into_iter().chain(by_turns(renewals)).chain(by_turns(serving)).collect()
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
    if !approved || Kind::of(&request) != Kind::First {
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
        let kind = Kind::of(&request);
        let wanted = std::str::from_utf8(&request.spec.request.0)
            .map_err(|_| "it is not text".to_owned())
            .and_then(certificate_request);
        let wanted = wanted.and_then(|wanted| {
            let node = match kind {
                Kind::First => bootstrapping_node(&requester, &wanted)?,
                Kind::Renewal => renewing_node(&requester, &wanted)?,
                Kind::Serving => serving_node(&requester, &wanted)?,
            };
            Ok((node.to_owned(), wanted))
        });
        let made = request.metadata.creation_timestamp.as_ref();
        Self {
            name: request.metadata.name.clone().unwrap_or_default(),
            requester,
            age: made.map_or(SignedDuration::ZERO, |made| now.duration_since(made.0)),
            kind,
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
        match self.kind {
            Kind::First => {}
            Kind::Renewal => return judge_renewal(node, machine, self.age, cluster),
            Kind::Serving => return judge_serving(node, wanted, machine, self.age, cluster),
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
    request.spec.signer_name == signer
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

    use k8s_openapi::ByteString;

    use super::*;

    /// A request of a kubelet with its role's token as the API server lists it, with a key of its own.
    fn listed(name: &str, node: &str, minutes_ago: i64, now: Timestamp) -> CertificateSigningRequest {
        listed_by("system:bootstrap:abcdef", name, node, now - SignedDuration::from_mins(minutes_ago))
    }

    fn listed_by(user: &str, name: &str, node: &str, made_at: Timestamp) -> CertificateSigningRequest {
        let request = of_subject(&format!("/O=system:nodes/CN={NODE}{node}"), None);
        serde_json::from_value(json!({
            "metadata": { "name": name, "creationTimestamp": made_at.to_string() },
            "spec": {
                "signerName": CLIENT, "username": user, "groups": ["system:bootstrappers"],
                "usages": ["client auth", "digital signature"],
                "request": request,
            },
        }))
        .unwrap()
    }

    /// What a kubelet asks for, with a key of its own.
    fn of_subject(subject: &str, names: Option<&str>) -> ByteString {
        let key = tempfile::tempdir().unwrap();
        let made = Command::new("openssl")
            .args(["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
            .args(["-subj", subject])
            .args(names.iter().flat_map(|names| ["-addext".to_owned(), format!("subjectAltName={names}")]))
            .arg("-keyout")
            .arg(key.path().join("key.pem"))
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        ByteString(made.stdout)
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
        let tags = [
            ("slipway:cluster", "c"),
            ("slipway:role", "controller"),
            ("aws:autoscaling:groupName", "c-control-plane"),
        ];
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
        assert_eq!(turn.iter().filter(|one| one.kind == Kind::First).count(), AT_MOST);
        // The oldest come first, whoever made them: of several for one node the first one wins.
        assert_eq!(
            turn.iter().take_while(|one| one.kind == Kind::First).last().map(|one| one.name.as_str()),
            Some("controller")
        );
    }

    /// A kubelet's request for another client certificate, made with the one that it has.
    fn renewal(name: &str, node: &str, minutes_ago: i64, now: Timestamp) -> CertificateSigningRequest {
        let made_at = now - SignedDuration::from_mins(minutes_ago);
        let mut request = listed_by(&format!("{NODE}{node}"), name, node, made_at);
        request.spec.groups = Some(vec!["system:nodes".to_owned(), "system:authenticated".to_owned()]);
        request
    }

    fn machine(state: &str, cluster: &str, role: &str) -> Machine {
        let group = format!("{cluster}-{}", if role == "controller" { "control-plane" } else { role });
        let tags =
            [("slipway:cluster", cluster), ("slipway:role", role), ("aws:autoscaling:groupName", &group)];
        Machine {
            state: state.to_owned(),
            tags: tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            ..Machine::default()
        }
    }

    /// Whoever was root on it has its key, and asks from anywhere.
    #[test]
    fn p13_a_node_whose_machine_is_gone_renews_nothing() {
        let now: Timestamp = "2026-11-25T12:00:00Z".parse().unwrap();
        let verdict = |request: &CertificateSigningRequest, machine: Option<Machine>| {
            assert!(is_open(request, CLIENT), "it is left to nobody else");
            let machines = machine.map(|machine| ("i-1".to_owned(), machine)).into_iter().collect();
            let read = OpenRequest::read(request.clone(), now);
            read.verdict(&Ok(machines), Registration::None, None, now, "c")
        };
        let denied = |verdict| matches!(verdict, Verdict::Deny(_));
        let left = |verdict| matches!(verdict, Verdict::Leave(_));
        let request = renewal("node-csr-1", "i-1", 1, now);
        // P7: also years after its launch, and while the Node is silent or is not there.
        for role in ["controller", "pool-general"] {
            assert_eq!(verdict(&request, Some(machine("running", "c", role))), Verdict::Approve, "{role}");
        }
        for state in ["shutting-down", "terminated"] {
            assert!(denied(verdict(&request, Some(machine(state, "c", "pool-general")))), "{state}");
        }
        for state in ["pending", "stopping", "stopped"] {
            assert!(left(verdict(&request, Some(machine(state, "c", "pool-general")))), "{state}");
        }
        // EC2 shows a terminated instance for an hour.
        assert!(denied(verdict(&renewal("node-csr-2", "i-1", 11, now), None)));
        assert!(left(verdict(&request, None)), "EC2 may not have it yet, for a moment");
        assert!(denied(verdict(&request, Some(machine("running", "another", "pool-general")))));
        for role in ["etcd-0", "admin", ""] {
            assert!(denied(verdict(&request, Some(machine("running", "c", role)))), "{role}");
        }
        // P7: the kubelet asks again, and has days left.
        let unknown = Err(crate::failure::AgentError::transient(
            crate::failure::FailureCode::ManageAws,
            "EC2 does not answer",
            "the next pass tries again",
        ));
        let read = OpenRequest::read(request.clone(), now);
        assert!(left(read.verdict(&unknown, Registration::None, None, now, "c")));
        // A renewal makes nobody's first certificate a second one.
        assert_eq!(joins(decided(request, "Approved"), now), None);
    }

    #[test]
    fn p13_who_asks_for_more_than_a_renewal_gets_nothing() {
        type Change = fn(&mut CertificateSigningRequest);
        let now: Timestamp = "2026-11-25T12:00:00Z".parse().unwrap();
        let machines =
            Ok(["i-1", "i-2"].map(|id| (id.to_owned(), machine("running", "c", "pool-general"))).into());
        let verdict = |request: CertificateSigningRequest| {
            OpenRequest::read(request, now).verdict(&machines, Registration::None, None, now, "c")
        };
        let cases: [(&str, Change); 6] = [
            ("in another node's name", |request| request.spec.username = Some(format!("{NODE}i-2"))),
            ("without a name of its own", |request| request.spec.username = Some(NODE.to_owned())),
            ("not in the group of nodes", |request| request.spec.groups = Some(Vec::new())),
            ("for a server", |request| {
                request.spec.usages = Some(vec!["server auth".to_owned(), "digital signature".to_owned()]);
            }),
            ("for both", |request| {
                request.spec.usages.get_or_insert_default().push("server auth".to_owned())
            }),
            ("with an administrator's subject", |request| {
                request.spec.request = of_subject(&format!("/O=system:masters/CN={NODE}i-1"), None);
            }),
        ];
        for (case, change) in cases {
            let mut request = renewal("node-csr-1", "i-1", 1, now);
            assert_eq!(verdict(request.clone()), Verdict::Approve);
            change(&mut request);
            assert!(matches!(verdict(request), Verdict::Deny(_)), "{case}");
        }
        let subject = format!("/O=system:nodes/CN={NODE}i-1");
        for (subject, names) in [
            (format!("/O=system:nodes/O=system:masters/CN={NODE}i-1"), None),
            (format!("/O=system:nodes/OU=x/CN={NODE}i-1"), None),
            (subject.clone(), Some("DNS:kubernetes.default.svc")),
            (subject, Some("IP:10.0.0.1")),
        ] {
            let mut request = renewal("node-csr-1", "i-1", 1, now);
            request.spec.request = of_subject(&subject, names);
            assert!(matches!(verdict(request), Verdict::Deny(_)), "{subject} {names:?}");
        }
        // A node that is no instance, such as one that somebody joined by hand.
        assert!(matches!(verdict(renewal("node-csr-1", "ip-10-0-0-1", 1, now)), Verdict::Deny(_)));
    }

    /// A node's thousand requests, and those of serving certificates that wait for EC2, delay no other node's renewal.
    #[test]
    fn p7_each_node_has_one_renewal_in_a_pass_the_newest_before_serving_certificates() {
        let now: Timestamp = "2026-11-25T12:00:00Z".parse().unwrap();
        let mut open: Vec<OpenRequest> = [("older", 9), ("newer", 1)]
            .map(|(name, minutes)| OpenRequest::read(renewal(name, "i-1", minutes, now), now))
            .into();
        open.push(OpenRequest::read(renewal("other", "i-2", 3, now), now));
        let mut serving = renewal("serving", "i-1", 0, now);
        serving.spec.signer_name = SERVING.to_owned();
        open.push(OpenRequest::read(serving, now));
        open.push(OpenRequest::read(listed("first", "i-3", 0, now), now));
        let names: Vec<String> = in_turn(open).into_iter().map(|one| one.name).collect();
        assert_eq!(names, ["first", "newer", "other", "serving"]);
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
