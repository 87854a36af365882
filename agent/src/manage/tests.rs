//! Who may have a first certificate, who may serve under which names, and what the ledger is for.
#![allow(clippy::unwrap_used, reason = "tests")]

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use slipway_core::role::Role;
use slipway_credentials::bootstrap::{RoleToken, group};
use slipway_crypto::CertificateRequest;

use super::judge::{
    JOIN_TIME, Machine, Registration, Requester, Verdict, bootstrapping_node, judge_client, judge_serving,
    serving_node,
};
use super::ledger::{Ledger, Rest};
use super::{has_ended, units};
use crate::bootstrap::Patience;
use crate::failure::{AgentError, FailureCode};
use crate::passes::{last_failure, report};

fn texts(all: &[&str]) -> Vec<String> {
    all.iter().map(|text| (*text).to_owned()).collect()
}

fn requester() -> Requester {
    Requester {
        user: "system:node:i-1".to_owned(),
        groups: texts(&["system:nodes", "system:authenticated"]).into_iter().collect(),
        usages: texts(&["digital signature", "server auth"]).into_iter().collect(),
    }
}

fn request() -> CertificateRequest {
    CertificateRequest {
        common_names: texts(&["system:node:i-1"]),
        organizations: texts(&["system:nodes"]),
        dns_names: texts(&["i-1", "ip-10-0-0-1.eu-west-1.compute.internal"]),
        addresses: vec!["10.0.0.1".parse().unwrap()],
        ..CertificateRequest::default()
    }
}

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn minutes(many: i64) -> SignedDuration {
    SignedDuration::from_mins(many)
}

/// The Auto Scaling group of that role.
fn group_of(role: &str) -> String {
    format!("c-{}", if role == "controller" { "control-plane" } else { role })
}

fn machine() -> Machine {
    Machine {
        state: "running".to_owned(),
        launched: Some(now() - minutes(59)),
        tags: [("slipway:cluster".to_owned(), "c".to_owned())].into(),
        addresses: ["10.0.0.1".parse().unwrap(), "10.0.0.9".parse().unwrap()].into(),
        names: texts(&["ip-10-0-0-1.eu-west-1.compute.internal"]).into_iter().collect(),
    }
}

#[test]
fn a_kubelet_may_serve_under_its_own_name_and_its_machines_names_and_addresses() {
    assert_eq!(serving_node(&requester(), &request()), Ok("i-1"));
    let rsa = texts(&["key encipherment", "digital signature", "server auth"]).into_iter().collect();
    assert_eq!(serving_node(&Requester { usages: rsa, ..requester() }, &request()), Ok("i-1"));
    assert_eq!(judge_serving("i-1", &request(), Some(&machine()), minutes(1), "c"), Verdict::Approve);
    let mapped = CertificateRequest { addresses: vec!["::ffff:10.0.0.9".parse().unwrap()], ..request() };
    assert_eq!(judge_serving("i-1", &mapped, Some(&machine()), minutes(1), "c"), Verdict::Approve);
}

/// What differs, in words and in deed.
type Case<'c> = (&'static str, &'c dyn Fn(&mut Requester, &mut CertificateRequest));

#[test]
fn whoever_is_not_the_node_that_it_says_is_refused() {
    let cases: [Case<'_>; 14] = [
        ("another node's name", &|_, request| request.common_names = texts(&["system:node:i-2"])),
        ("two names", &|_, request| request.common_names.push("system:node:i-2".to_owned())),
        ("no name", &|_, request| request.common_names.clear()),
        ("no node", &|requester, request| {
            requester.user = "system:serviceaccount:a:b".to_owned();
            request.common_names = vec![requester.user.clone()];
        }),
        ("a node without a name", &|requester, request| {
            requester.user = "system:node:".to_owned();
            request.common_names = vec![requester.user.clone()];
        }),
        ("a bootstrapper", &|requester, _| requester.user = "kubelet-bootstrap".to_owned()),
        ("not in the group", &|requester, _| _ = requester.groups.remove("system:nodes")),
        ("an administrator too", &|_, request| request.organizations.push("system:masters".to_owned())),
        ("no organization", &|_, request| request.organizations.clear()),
        ("more in the subject", &|_, request| request.more_in_subject = true),
        ("a client", &|requester, _| _ = requester.usages.insert("client auth".to_owned())),
        ("no server", &|requester, _| _ = requester.usages.remove("server auth")),
        ("a URI", &|_, request| request.other_names = 1),
        ("nothing", &|_, request| {
            request.dns_names.clear();
            request.addresses.clear();
        }),
    ];
    for (case, change) in cases {
        let (mut requester, mut request) = (requester(), request());
        change(&mut requester, &mut request);
        assert!(serving_node(&requester, &request).is_err(), "{case}");
    }
}

#[test]
fn a_taken_node_gets_no_certificate_for_another_nodes_address() {
    let denied = |request: CertificateRequest, machine: Machine| {
        matches!(judge_serving("i-1", &request, Some(&machine), minutes(1), "c"), Verdict::Deny(_))
    };
    let and = |address: &str| {
        let mut request = request();
        request.addresses.push(address.parse().unwrap());
        request
    };
    assert!(denied(and("10.0.0.2"), machine()));
    assert!(denied(and("127.0.0.1"), machine()));
    assert!(denied(and("fd00::1"), machine()));
    for name in
        ["i-2", "kubernetes.default.svc", "*.compute.internal", "IP-10-0-0-1.eu-west-1.compute.internal"]
    {
        assert!(denied(CertificateRequest { dns_names: texts(&[name]), ..request() }, machine()), "{name}");
    }
    assert!(denied(request(), Machine { tags: [].into(), ..machine() }));
    let other = [("slipway:cluster".to_owned(), "other".to_owned())].into();
    assert!(denied(request(), Machine { tags: other, ..machine() }));
    // What may still become true is left as it is.
    let verdict =
        |machine: Option<&Machine>, age| judge_serving("i-1", &request(), machine, minutes(age), "c");
    let in_state = |state: &str| Machine { state: state.to_owned(), ..machine() };
    assert!(matches!(verdict(None, 9), Verdict::Leave(_)));
    assert!(matches!(verdict(None, 11), Verdict::Deny(_)), "EC2 has had its time");
    assert!(matches!(verdict(Some(&in_state("pending")), 11), Verdict::Leave(_)));
    for state in ["shutting-down", "terminated"] {
        assert!(matches!(verdict(Some(&in_state(state)), 1), Verdict::Deny(_)));
    }
}

fn first() -> (Requester, CertificateRequest) {
    let requester = Requester {
        user: "kubelet-bootstrap".to_owned(),
        groups: texts(&["system:bootstrappers", "system:authenticated"]).into_iter().collect(),
        usages: texts(&["digital signature", "client auth"]).into_iter().collect(),
    };
    (requester, CertificateRequest { dns_names: Vec::new(), addresses: Vec::new(), ..request() })
}

#[test]
fn a_first_certificate_is_for_a_young_machine_of_ours_whose_node_does_not_stand() {
    let (requester, request) = first();
    assert_eq!(bootstrapping_node(&requester, &request), Ok("i-1"));
    let of = |role: &str| {
        let mut machine = machine();
        machine.tags.insert("slipway:role".to_owned(), role.to_owned());
        machine.tags.insert("aws:autoscaling:groupName".to_owned(), group_of(role));
        machine
    };
    let verdict = |machine: &Machine, stands| {
        let role = machine
            .tags
            .get("slipway:role")
            .filter(|role| ["controller", "pool-general-a"].contains(&role.as_str()));
        let requester = role.map_or_else(|| requester.clone(), |role| with_token_of(role));
        judge_client(&requester, "i-1", Some(machine), stands, minutes(1), now(), "c")
    };
    let denied = |verdict| matches!(verdict, Verdict::Deny(_));
    for role in ["controller", "pool-general-a"] {
        assert_eq!(verdict(&of(role), Registration::None), Verdict::Approve, "{role}");
        // Whoever has its token asks in the name of a node that stands.
        assert!(denied(verdict(&of(role), Registration::Active)), "{role}");
        let old = Machine { launched: Some(now() - minutes(61)), ..of(role) };
        assert!(denied(verdict(&old, Registration::None)), "{role}");
        // Its certificate has expired and it is silent: it may request another one (P7).
        assert_eq!(verdict(&old, Registration::Silent), Verdict::Approve, "{role}");
        assert!(matches!(
            verdict(&Machine { launched: None, ..of(role) }, Registration::None),
            Verdict::Leave(_)
        ));
    }
    for role in ["etcd-0", "", "controllers"] {
        assert!(denied(verdict(&of(role), Registration::None)), "`{role}`");
    }
    assert!(denied(verdict(&machine(), Registration::None)), "without a role");
    for (tag, value) in [
        ("slipway:cluster", "other"),
        // Somebody tagged an instance of another group, or one that no group launched.
        ("slipway:role", "pool-general-a"),
        ("aws:autoscaling:groupName", "web"),
        ("aws:autoscaling:groupName", ""),
    ] {
        let mut other = of("controller");
        other.tags.insert(tag.to_owned(), value.to_owned());
        assert!(denied(verdict(&other, Registration::None)), "{tag}: {value}");
    }
    let unknown = |age| judge_client(&requester, "i-1", None, Registration::None, minutes(age), now(), "c");
    assert!(matches!(unknown(9), Verdict::Leave(_)) && denied(unknown(11)));
}

/// The requester with the token of `role`.
fn with_token_of(role: &str) -> Requester {
    let (requester, _) = first();
    let role: Role = role.parse().unwrap();
    let mut groups = requester.groups;
    groups.insert(group(&role).unwrap());
    Requester {
        user: format!("system:bootstrap:{}", RoleToken::derive("key", &role).id),
        groups,
        ..requester
    }
}

#[test]
fn a_workers_token_makes_nobody_a_controller() {
    let of = |role: &str| {
        let mut machine = machine();
        machine.tags.insert("slipway:role".to_owned(), role.to_owned());
        machine.tags.insert("aws:autoscaling:groupName".to_owned(), group_of(role));
        machine
    };
    let verdict = |requester: &Requester, machine: &Machine, registration| {
        judge_client(requester, "i-1", Some(machine), registration, minutes(1), now(), "c")
    };
    let roles = ["controller", "pool-general-a", "pool-other"];
    // Also in the name of a node that is silent: nobody changes its role.
    for registration in [Registration::None, Registration::Silent] {
        for (token, role) in roles.iter().flat_map(|token| roles.map(|role| (*token, role))) {
            let verdict = verdict(&with_token_of(token), &of(role), registration);
            if token == role {
                assert_eq!(verdict, Verdict::Approve, "{role}");
            } else {
                let Verdict::Deny(why) = verdict else { panic!("{token} became {role}: {verdict:?}") };
                assert!(why.contains(token) && why.contains(role), "{why}");
            }
        }
        // A token without the group of a role, as in a static token file.
        let (of_no_role, _) = first();
        for role in roles {
            assert!(matches!(verdict(&of_no_role, &of(role), registration), Verdict::Deny(_)), "{role}");
        }
    }
    // Somebody else's bootstrap token, as kubeadm makes them, is none of ours.
    let (mut foreign, _) = first();
    foreign.user = "system:bootstrap:abcdef".to_owned();
    assert!(matches!(verdict(&foreign, &of("controller"), Registration::None), Verdict::Deny(_)));
    foreign.groups.insert("system:bootstrappers:kubeadm:default-node-token".to_owned());
    assert!(matches!(verdict(&foreign, &of("controller"), Registration::None), Verdict::Deny(_)));
}

#[test]
fn who_asks_for_more_than_a_first_certificate_gets_nothing() {
    let cases: [Case<'_>; 10] = [
        ("an administrator", &|_, request| request.organizations = texts(&["system:masters"])),
        ("an administrator too", &|_, request| request.organizations.push("system:masters".to_owned())),
        ("no node", &|_, request| request.common_names = texts(&["kubernetes-admin"])),
        ("two nodes", &|_, request| request.common_names.push("system:node:i-2".to_owned())),
        ("no name", &|_, request| request.common_names.clear()),
        ("more in the subject", &|_, request| request.more_in_subject = true),
        ("without the token", &|requester, _| _ = requester.groups.remove("system:bootstrappers")),
        ("a server", &|requester, _| _ = requester.usages.insert("server auth".to_owned())),
        ("a server's names", &|_, request| request.dns_names = texts(&["kubernetes.default.svc"])),
        ("a URI", &|_, request| request.other_names = 1),
    ];
    for (case, change) in cases {
        let (mut requester, mut request) = first();
        change(&mut requester, &mut request);
        assert!(bootstrapping_node(&requester, &request).is_err(), "{case}");
    }
}

#[test]
fn of_several_controllers_one_applies_and_a_clock_that_is_ahead_keeps_nobody_from_it() {
    let now = now();
    let applied = |ago: i64| Ledger {
        digest: "d".to_owned(),
        applied_at: Some(now - minutes(ago)),
        ..Ledger::default()
    };
    let fresh = |ledger: Ledger| ledger.is_fresh("d", now, minutes(5));
    assert!(fresh(applied(4)) && !fresh(applied(5)) && !fresh(applied(-5)));
    assert!(!applied(1).is_fresh("e", now, minutes(5)));
    // What was begun and not ended has no digest.
    assert!(!fresh(Ledger { digest: String::new(), ..applied(1) }));
    assert!(!fresh(Ledger { applied_at: None, ..applied(1) }));
}

#[test]
fn what_cannot_be_applied_is_tried_at_growing_pauses_and_anything_new_at_once() {
    let mut ledger = Ledger::default();
    let is_backing_off = |ledger: &Ledger, digest, seconds| {
        ledger.is_backing_off(digest, now() + SignedDuration::from_secs(seconds), minutes(5))
    };
    assert!(!is_backing_off(&ledger, "d", 0));
    for longest in [10, 20, 40, 80, 160, 300, 300] {
        ledger.record_failure("d", now(), Rest::default());
        assert!(
            is_backing_off(&ledger, "d", longest - 1) && !is_backing_off(&ledger, "d", longest),
            "{longest}"
        );
        assert!(!is_backing_off(&ledger, "e", 0), "another set is not what failed");
    }
    assert!(!is_backing_off(&ledger, "d", -301), "a clock that is ahead keeps nobody from it");
    ledger.record_failure("e", now(), Rest::default());
    assert!(!is_backing_off(&ledger, "e", 10), "it begins anew");
}

/// All controllers share it, and any of them goes on. An API server that is slow and works is no reason to pause longer each time.
#[test]
fn a_try_whose_time_was_up_goes_on_where_it_stopped_without_a_longer_pause() {
    let mut ledger = Ledger::default();
    assert_eq!(ledger.rest("d"), Rest::default());
    for from in [40, 80, 120] {
        let rest = Rest { from, lacking: false };
        ledger.record_failure("d", now(), rest);
        let text = serde_json::to_string(&ledger).unwrap();
        ledger = serde_json::from_str(&text).unwrap();
        assert_eq!(ledger.rest("d"), rest, "{text}");
        assert!(!ledger.is_backing_off("d", now() + SignedDuration::from_secs(10), minutes(5)), "{from}");
    }
    assert_eq!(ledger.rest("e"), Rest::default(), "another set begins with its first object");
    ledger.record_failure("d", now(), ledger.rest("d"));
    assert!(ledger.is_backing_off("d", now() + SignedDuration::from_secs(10), minutes(5)), "no progress");
}

#[test]
fn a_timer_starts_the_service_and_systemd_takes_both() {
    let folder = tempfile::tempdir().unwrap();
    for unit in units() {
        std::fs::write(folder.path().join(&unit.name), unit.content.unwrap()).unwrap();
    }
    let text = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(text("slipway-manage.service").contains("\nType=oneshot\n"));
    assert!(text("slipway-manage.timer").contains("\nOnUnitInactiveSec=15\n"));
}

#[test]
fn a_machine_gives_up_at_its_launch_hook_before_its_requests_are_denied_for_its_age() {
    // EC2 counts from the launch: the boot, eight and a half minutes of the user data, then the bootstrap, which ends with a Node that is
    // Ready. After that no first certificate is requested any more.
    let (boot, user_data) = (SignedDuration::from_mins(5), SignedDuration::from_secs(510));
    let bootstrap = SignedDuration::try_from(Patience::default().whole).unwrap();
    assert!(boot + user_data + bootstrap < JOIN_TIME);
}

/// Nobody asks a quiet cluster whether its node managers work, so each controller says it.
#[test]
fn a_controllers_status_says_when_a_pass_was_last_complete_and_which_part_failed_with_which_code() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    std::fs::create_dir_all(root.join("run/slipway-manage")).unwrap();
    let said = || {
        let said = report(root).unwrap();
        assert!(said.started < Timestamp::now());
        (said.passed, said.failed.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
    };
    assert_eq!(said(), (None, String::new()), "no pass has ended yet");
    has_ended(root, now(), &Ok(json!({ "addons": { "state": "fresh" }, "requests": {} })));
    assert_eq!(said(), (Some(now()), String::new()));
    let error = |code: FailureCode| serde_json::to_value(AgentError::transient(code, "why", "help")).unwrap();
    let object =
        json!({ "object": "DaemonSet kube-system/a", "error": error(FailureCode::KubernetesRefused) });
    let parts = json!({
        "addons": { "state": "incomplete", "failures": [object] },
        "requests": { "error": error(FailureCode::ManageAws) },
    });
    has_ended(root, now() + minutes(1), &Ok(parts));
    let failed = "addons: kubernetes.refused, requests: manage.aws".to_owned();
    assert_eq!(said(), (Some(now()), failed.clone()));
    // Between two tries to apply the add-ons, the one that failed has said more.
    let rests = json!({ "addons": { "state": "resting" } });
    has_ended(root, now() + minutes(2), &Ok(rests.clone()));
    assert_eq!(said(), (Some(now()), failed));
    let failure = AgentError::transient(FailureCode::KubernetesCredentials, "no kubeconfig", "");
    has_ended(root, now() + minutes(3), &Err(failure));
    assert_eq!(said(), (Some(now()), "all: kubernetes.credentials".to_owned()));
    has_ended(root, now() + minutes(4), &Ok(json!({})));
    assert_eq!(said(), (Some(now() + minutes(4)), String::new()));
    // It was another controller's try.
    has_ended(root, now() + minutes(5), &Ok(rests));
    assert_eq!(said(), (Some(now() + minutes(4)), "addons".to_owned()));
    // Of an agent before this one, which was replaced by a refresh of the machine.
    std::fs::write(root.join("run/slipway-manage/failed"), "addons: refused").unwrap();
    assert_eq!(said(), (Some(now() + minutes(4)), String::new()));
    assert_eq!(last_failure(root).unwrap().words, "addons: refused");
}
