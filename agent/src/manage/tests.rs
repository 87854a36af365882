//! Who may have a first certificate, who may serve under which names, and what the ledger is for.
#![allow(clippy::unwrap_used, reason = "tests")]

use jiff::{SignedDuration, Timestamp};
use slipway_crypto::CertificateRequest;

use super::judge::{Asker, Machine, Standing, Verdict, admit, is_instance, judge, newcomer, node_of};
use super::ledger::Ledger;
use super::units;

fn texts(all: &[&str]) -> Vec<String> {
    all.iter().map(|text| (*text).to_owned()).collect()
}

fn asker() -> Asker {
    Asker {
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
    assert_eq!(node_of(&asker(), &request()), Ok("i-1"));
    let rsa = texts(&["key encipherment", "digital signature", "server auth"]).into_iter().collect();
    assert_eq!(node_of(&Asker { usages: rsa, ..asker() }, &request()), Ok("i-1"));
    assert_eq!(judge("i-1", &request(), Some(&machine()), minutes(1), "c"), Verdict::Approve);
    let mapped = CertificateRequest { addresses: vec!["::ffff:10.0.0.9".parse().unwrap()], ..request() };
    assert_eq!(judge("i-1", &mapped, Some(&machine()), minutes(1), "c"), Verdict::Approve);
}

/// What differs, in words and in deed.
type Case<'c> = (&'static str, &'c dyn Fn(&mut Asker, &mut CertificateRequest));

#[test]
fn whoever_is_not_the_node_that_it_says_is_refused() {
    let cases: [Case<'_>; 14] = [
        ("another node's name", &|_, request| request.common_names = texts(&["system:node:i-2"])),
        ("two names", &|_, request| request.common_names.push("system:node:i-2".to_owned())),
        ("no name", &|_, request| request.common_names.clear()),
        ("no node", &|asker, request| {
            asker.user = "system:serviceaccount:a:b".to_owned();
            request.common_names = vec![asker.user.clone()];
        }),
        ("a node without a name", &|asker, request| {
            asker.user = "system:node:".to_owned();
            request.common_names = vec![asker.user.clone()];
        }),
        ("a bootstrapper", &|asker, _| asker.user = "kubelet-bootstrap".to_owned()),
        ("not in the group", &|asker, _| _ = asker.groups.remove("system:nodes")),
        ("an administrator too", &|_, request| request.organizations.push("system:masters".to_owned())),
        ("no organization", &|_, request| request.organizations.clear()),
        ("more in the subject", &|_, request| request.more_in_subject = true),
        ("a client", &|asker, _| _ = asker.usages.insert("client auth".to_owned())),
        ("no server", &|asker, _| _ = asker.usages.remove("server auth")),
        ("a URI", &|_, request| request.other_names = 1),
        ("nothing", &|_, request| {
            request.dns_names.clear();
            request.addresses.clear();
        }),
    ];
    for (case, change) in cases {
        let (mut asker, mut request) = (asker(), request());
        change(&mut asker, &mut request);
        assert!(node_of(&asker, &request).is_err(), "{case}");
    }
}

#[test]
fn a_taken_node_gets_no_certificate_for_another_nodes_address() {
    let denied = |request: CertificateRequest, machine: Machine| {
        matches!(judge("i-1", &request, Some(&machine), minutes(1), "c"), Verdict::Deny(_))
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
    let verdict = |machine: Option<&Machine>, age| judge("i-1", &request(), machine, minutes(age), "c");
    let in_state = |state: &str| Machine { state: state.to_owned(), ..machine() };
    assert!(matches!(verdict(None, 9), Verdict::Leave(_)));
    assert!(matches!(verdict(None, 11), Verdict::Deny(_)), "EC2 has had its time");
    assert!(matches!(verdict(Some(&in_state("pending")), 11), Verdict::Leave(_)));
    for state in ["shutting-down", "terminated"] {
        assert!(matches!(verdict(Some(&in_state(state)), 1), Verdict::Deny(_)));
    }
}

fn first() -> (Asker, CertificateRequest) {
    let asker = Asker {
        user: "kubelet-bootstrap".to_owned(),
        groups: texts(&["system:bootstrappers", "system:authenticated"]).into_iter().collect(),
        usages: texts(&["digital signature", "client auth"]).into_iter().collect(),
    };
    (asker, CertificateRequest { dns_names: Vec::new(), addresses: Vec::new(), ..request() })
}

#[test]
fn a_first_certificate_is_for_a_young_machine_of_ours_whose_node_does_not_stand() {
    let (asker, request) = first();
    assert_eq!(newcomer(&asker, &request), Ok("i-1"));
    let of = |role: &str| {
        let mut machine = machine();
        machine.tags.insert("slipway:role".to_owned(), role.to_owned());
        machine
    };
    let verdict = |machine: &Machine, stands| admit("i-1", Some(machine), stands, minutes(1), now(), "c");
    let denied = |verdict| matches!(verdict, Verdict::Deny(_));
    for role in ["controller", "pool-general-a"] {
        assert_eq!(verdict(&of(role), Standing::Unknown), Verdict::Approve, "{role}");
        // The hole that this closes: with the token that every worker has, in the name of a node that stands.
        assert!(denied(verdict(&of(role), Standing::Heard)), "{role}");
        let old = Machine { launched: Some(now() - minutes(61)), ..of(role) };
        assert!(denied(verdict(&old, Standing::Unknown)), "{role}");
        // Its certificate has expired: nobody has heard of it, and it may begin again (P7).
        assert_eq!(verdict(&old, Standing::Silent), Verdict::Approve, "{role}");
        assert!(matches!(
            verdict(&Machine { launched: None, ..of(role) }, Standing::Unknown),
            Verdict::Leave(_)
        ));
    }
    for role in ["etcd-0", "", "controllers"] {
        assert!(denied(verdict(&of(role), Standing::Unknown)), "`{role}`");
    }
    assert!(denied(verdict(&machine(), Standing::Unknown)), "without a role");
    let mut other = of("controller");
    other.tags.insert("slipway:cluster".to_owned(), "other".to_owned());
    assert!(denied(verdict(&other, Standing::Unknown)));
    let unknown = |age| admit("i-1", None, Standing::Unknown, minutes(age), now(), "c");
    assert!(matches!(unknown(9), Verdict::Leave(_)) && denied(unknown(11)));
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
        ("without the token", &|asker, _| _ = asker.groups.remove("system:bootstrappers")),
        ("a server", &|asker, _| _ = asker.usages.insert("server auth".to_owned())),
        ("a server's names", &|_, request| request.dns_names = texts(&["kubernetes.default.svc"])),
        ("a URI", &|_, request| request.other_names = 1),
    ];
    for (case, change) in cases {
        let (mut asker, mut request) = first();
        change(&mut asker, &mut request);
        assert!(newcomer(&asker, &request).is_err(), "{case}");
    }
    for name in ["i-0a1b2c3d4e5f60718", "i-12345678", "i-1"] {
        assert!(is_instance(name), "{name}");
    }
    for name in ["", "i-", "ip-10-0-0-1", "i-0A", "i-0a1b2c3d4e5f607181", "i-1&Filter.2", "i-*"] {
        assert!(!is_instance(name), "{name}");
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
    let rests = |ledger: &Ledger, digest, seconds| {
        ledger.rests(digest, now() + SignedDuration::from_secs(seconds), minutes(5))
    };
    assert!(!rests(&ledger, "d", 0));
    for longest in [10, 20, 40, 80, 160, 300, 300] {
        ledger.fails("d", now());
        assert!(rests(&ledger, "d", longest - 1) && !rests(&ledger, "d", longest), "{longest}");
        assert!(!rests(&ledger, "e", 0), "another set is not what failed");
    }
    assert!(!rests(&ledger, "d", -301), "a clock that is ahead keeps nobody from it");
    ledger.fails("e", now());
    assert!(!rests(&ledger, "e", 10), "it begins anew");
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
