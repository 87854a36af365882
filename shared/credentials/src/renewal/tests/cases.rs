//! Single cases, by what a person would be told.

use slipway_core::cluster::{OwnAuthority, OwnSource};

use super::*;
use crate::Asset;

fn names(decision: &Decision) -> BTreeMap<Group, Vec<&str>> {
    let of = |one: &'_ Renewal| one.group;
    let mut names: BTreeMap<Group, Vec<&str>> = BTreeMap::new();
    for renewal in &decision.renew {
        names
            .entry(of(renewal))
            .or_default()
            .extend(renewal.certificates.iter().map(|one| one.name.as_str()));
    }
    names
}

/// Six days before the end of everything.
fn nearly() -> World {
    let mut world = World::new(Some((7, 3)), 365, 3650);
    world.now = start() + days(359);
    world
}

#[test]
fn leaves_that_roll_together_are_renewed_together_and_workers_have_none() {
    let mut world = nearly();
    let decision = world.decide(&RenewalRequest::default());
    let groups = names(&decision);
    assert_eq!(
        groups[&Group::Etcd],
        [
            "apiserver-etcd-client",
            "etcd-server-0",
            "etcd-peer-0",
            "etcd-server-1",
            "etcd-peer-1",
            "etcd-server-2",
            "etcd-peer-2",
            "etcd-healthcheck-client"
        ]
    );
    assert_eq!(
        groups[&Group::ControlPlane],
        [
            "apiserver",
            "apiserver-kubelet-client",
            "front-proxy-client",
            "controller-manager",
            "scheduler",
            "node-manager"
        ]
    );
    assert_eq!(groups[&Group::Administrator], ["admin"]);
    let workers = world.workers();
    world.perform(&decision, 3);
    assert_eq!(world.workers(), workers);
    assert!(world.decide(&RenewalRequest::default()).renew.is_empty(), "once");

    // One that was made for a new member goes along only when it is old enough to be worth it.
    let mut world = nearly();
    world.issue("etcd-server-1", start() + days(300));
    world.issue("etcd-peer-1", start() + days(100));
    let decision = world.decide(&RenewalRequest::default());
    let etcd = &names(&decision)[&Group::Etcd];
    assert!(!etcd.contains(&"etcd-server-1") && etcd.contains(&"etcd-peer-1"), "{etcd:?}");
}

#[test]
fn a_certificate_goes_along_only_in_less_than_half_of_its_life() {
    let mut world = nearly();
    let half_life = SignedDuration::from_hours(365 * 24 / 2);
    let second = SignedDuration::from_secs(1);
    world.issue("etcd-peer-0", world.now - half_life);
    world.issue("etcd-peer-1", world.now - half_life - second);
    world.issue("etcd-peer-2", world.now - half_life + second);
    let decision = world.decide(&RenewalRequest::default());
    let etcd = &names(&decision)[&Group::Etcd];
    let peers: Vec<_> = etcd.iter().filter(|name| name.starts_with("etcd-peer-")).collect();
    assert_eq!(peers, [&"etcd-peer-1"], "etcd-peer-0 has exactly half of its life left");
}

#[test]
fn groups_are_named_in_messages_by_what_rolls() {
    let said = [Group::Etcd, Group::ControlPlane, Group::Administrator].map(|group| group.to_string());
    assert_eq!(said, ["etcd", "the control plane", "the administrator's kubeconfig"]);
}

#[test]
fn a_stacked_etcd_renews_with_its_controllers() {
    let cluster = World::new(None, 365, 3650).cluster;
    let recipients = policy::recipients(&cluster);
    let of = |asset: &Asset, topology| group(asset, &recipients, topology);
    for asset in policy::assets(&cluster) {
        let stacked = of(&asset, Topology::Stacked);
        let leaf = manifest::profile(&asset).is_some_and(|profile| !profile.authority);
        assert_eq!(stacked.is_some(), leaf, "{}", asset.name);
        assert_ne!(stacked, Some(Group::Etcd), "{}", asset.name);
        assert_eq!(of(&asset, Topology::External) == Some(Group::Administrator), asset.name == "admin");
    }
}

#[test]
fn off_still_warns_and_renews_nothing() {
    let mut world = World::new(None, 365, 3650);
    world.now = start() + days(336);
    let decision = world.scan(3);
    assert!(decision.renew.is_empty());
    let of = |decision: &Decision, name: &str| {
        decision.announce.iter().find(|one| one.certificate == name).cloned()
    };
    let said = of(&decision, "apiserver").unwrap();
    assert_eq!((said.threshold_days, said.days_left, said.renewed_from), (30, 29, None));
    assert_eq!(said.message, "apiserver expires in 29 days, at 2027-11-20T12:00:00Z");
    assert!(
        said.help.contains("rolloutBeforeExpiry.enabled") && said.help.contains("slipway renew apiserver")
    );
    world.now = start() + days(337);
    assert_eq!(world.scan(3).announce, [], "not each day");
    // A threshold that no scan hit is said by the next that comes, and only the nearest.
    world.now = start() + days(360);
    assert_eq!(of(&world.scan(3), "apiserver").unwrap().threshold_days, 7);
    world.now = start() + days(365);
    let expired = of(&world.scan(3), "apiserver").unwrap();
    assert_eq!(
        (expired.threshold_days, expired.message.as_str()),
        (0, "apiserver expired at 2027-11-20T12:00:00Z")
    );
}

#[test]
fn an_authority_is_announced_a_year_ahead_and_never_renewed() {
    let mut world = World::new(Some((7, 3)), 365, 3650);
    world.now = start() + days(3650 - 364);
    let decision = world.scan(3);
    let said = decision.announce.iter().find(|one| one.certificate == "etcd-ca").unwrap();
    assert_eq!(said.threshold_days, 365);
    assert_eq!(said.help, "rotate it, in stages: slipway rotate-ca etcd-ca --cluster base");
    assert!(!decision.renew.iter().flat_map(|one| &one.certificates).any(|one| one.name.ends_with("-ca")));
    // A leaf under it ends with it, and is not renewed for nothing.
    let end = world.ends("ca");
    assert_eq!(world.ends("apiserver"), end);
    world.roll_out();
    world.tell = true;
    world.now = end - days(2);
    let decision = world.decide(&RenewalRequest::default());
    assert!(decision.renew.is_empty(), "{:?}", decision.renew);
    let said = decision.announce.iter().find(|one| one.certificate == "apiserver").unwrap();
    assert!(said.help.contains("slipway rotate-ca ca"), "{}", said.help);
}

/// What is due and nobody begins is said, once, with what its owner does; what begins by itself is not asked of anybody.
#[test]
fn p7_an_exchange_that_is_due_and_begins_not_by_itself_is_announced_once() {
    let said = |world: &mut World, left: i64| {
        world.now = world.ends("etcd-ca") - days(left);
        let said = world.scan(3).announce;
        said.into_iter()
            .find(|one| one.certificate == "etcd-ca")
            .map(|one| (one.threshold_days, one.message, one.help))
    };
    // Leaves of 400 days come up for renewal while their authority has 380, and nobody gave caRotationDays.
    let mut world = World::new(Some((30, 3)), 400, 770);
    let (threshold, message, help) = said(&mut world, 380).unwrap();
    assert_eq!(threshold, 400);
    assert!(
        message.contains("in 380 days") && message.ends_with("are renewed soon and would outlive it"),
        "{message}"
    );
    assert_eq!(help, "rotate it, in stages: slipway rotate-ca etcd-ca --cluster base");
    for left in [379, 370, 366] {
        assert_eq!(said(&mut world, left), None, "{left}: not each day");
    }
    assert_eq!(said(&mut world, 364).unwrap().0, 365);

    // By itself: before its day, on it, and while it is under way.
    world.cluster.certificates.ca_rotation_days = Some(90);
    world.cluster.certificates.leaf_days = 60;
    let words = [
        (170, "its rotation begins by itself, at 2028-09-30T12:00:00Z"),
        (89, "nothing: its rotation begins now"),
    ];
    for (left, words) in words {
        let (_, _, help) = said(&mut world, left).unwrap();
        assert!(help.contains(words), "{left}: {help}");
    }
    crate::rotation::begin(&mut world.manifest, "etcd-ca", world.now);
    assert!(said(&mut world, 29).unwrap().2.starts_with("its rotation is under way; "));

    // What was brought begins by itself on no day that caRotationDays names, and that day is said.
    let mut world = World::new(Some((7, 3)), 60, 3650);
    let (certificate, key) = policy::import_files("etcd-ca");
    let own = OwnAuthority { source: OwnSource::Imported, certificate, key, passphrase_parameter: None };
    world.cluster.certificates.authorities.insert("etcd-ca".to_owned(), own);
    let entry = world.manifest.assets.get_mut("etcd-ca").unwrap();
    entry.origin = Origin::Imported;
    entry.chain = Some(crate::ChainFacts { sha256: String::new(), intermediates: 0 });
    world.cluster.certificates.ca_rotation_days = Some(500);
    let (threshold, _, help) = said(&mut world, 499).unwrap();
    assert_eq!(threshold, 500);
    assert!(help.starts_with("you imported or provided it, and this version does not rotate it: "), "{help}");
    assert_eq!(said(&mut world, 498), None);
    assert_eq!(said(&mut world, 365).unwrap().0, 365);
}

/// `caRotationDays` is a threshold for people. Where the rotation begins by itself, or has begun, nobody has to do anything on that day.
#[test]
fn a_rotation_that_begins_by_itself_or_is_under_way_is_not_announced_on_its_day() {
    let mut world = World::new(Some((7, 3)), 60, 3650);
    world.cluster.certificates.ca_rotation_days = Some(400);
    let said = |world: &mut World, left: i64| {
        world.now = world.ends("etcd-ca") - days(left);
        let decision = world.decide(&RenewalRequest::default());
        decision.announce.into_iter().find(|one| one.certificate == "etcd-ca").map(|one| one.threshold_days)
    };
    assert_eq!(said(&mut world, 399), None, "it begins now");
    crate::rotation::begin(&mut world.manifest, "etcd-ca", world.now);
    assert_eq!(said(&mut world, 398), None, "it is under way");
    assert_eq!(said(&mut world, 365), Some(365));
}

#[test]
fn what_we_cannot_issue_is_announced_with_its_owners_next_step() {
    let mut world = World::new(Some((7, 3)), 365, 3650);
    let (certificate, key) = policy::import_files("etcd-ca");
    let own = OwnAuthority { source: OwnSource::Provided, certificate, key, passphrase_parameter: None };
    world.cluster.certificates.authorities.insert("etcd-ca".to_owned(), own);
    world.now = start() + days(359);
    let decision = world.decide(&RenewalRequest::default());
    assert!(!names(&decision).contains_key(&Group::Etcd), "{:?}", decision.renew);
    assert!(names(&decision).contains_key(&Group::ControlPlane));
    let said = decision.announce.iter().find(|one| one.certificate == "etcd-peer-1").unwrap();
    assert!(
        said.help.contains("clusters/base/import/ as etcd-peer-1.pem and etcd-peer-1-key.pem"),
        "{}",
        said.help
    );
    assert_eq!(decision.standings.iter().find(|one| one.name == "etcd-ca").unwrap().origin, Origin::Provided);
}

#[test]
fn renewed_in_the_store_and_not_on_a_node_is_still_a_danger() {
    for tell in [true, false] {
        let mut world = nearly();
        world.tell = tell;
        let first = world.scan(3);
        assert_eq!(first.announce, [], "what is renewed in this moment is not said to expire");
        assert_eq!(first.next.urgent, None, "six days are time enough");
        world.now = start() + days(360);
        let decision = world.scan(3);
        assert!(decision.renew.is_empty());
        let said = decision.announce.iter().find(|one| one.certificate == "apiserver").unwrap();
        assert_eq!((said.threshold_days, said.days_left), (7, 5));
        let place = if tell {
            "somebody on i-controller (controller)"
        } else {
            "nodes that have not reported the new one yet (controller)"
        };
        assert_eq!(said.place.as_deref(), Some(place));
        assert!(
            said.message.contains("renewed in the store") && said.message.contains("expires in 5 days"),
            "{}",
            said.message
        );
        // Three days before, nothing may hold it up any more.
        world.now = start() + days(362);
        let urgent = world.scan(3).next.urgent.unwrap();
        assert_eq!((urgent.ends, urgent.expired), (start() + days(365), false));
        assert!(urgent.words().contains("neither approval nor a maintenance window"));
        world.now = start() + days(366);
        assert!(world.scan(3).next.urgent.unwrap().expired);
        // Once the nodes have it, and tell so, all is well.
        world.roll_out();
        world.tell = true;
        let done = world.scan(3);
        assert_eq!((done.next.urgent, done.announce), (None, Vec::new()));
        assert!(world.state.superseded.is_empty());
    }
}

#[test]
fn without_reports_a_rollout_that_reached_its_goal_says_that_nodes_have_it() {
    let mut world = nearly();
    world.scan(3);
    let digests: BTreeMap<_, _> =
        world.manifest.bundles.iter().map(|(role, bundle)| (role.clone(), bundle.digest.clone())).collect();
    let decide = |planned: Planned| {
        let observed = Observed {
            cluster: &world.cluster,
            manifest: &world.manifest,
            stored: &BTreeMap::new(),
            nodes: &[],
            machines: &Machines::default(),
            planned: Some(&planned),
            state: &world.state,
            request: &RenewalRequest::default(),
        };
        super::super::decide(&observed, world.now)
    };
    let on_its_way = decide(Planned { digests: digests.clone(), reached: false });
    // The administrator's is on no node.
    assert_eq!((on_its_way.unplanned, on_its_way.next.superseded.len()), (false, 14));
    let reached = decide(Planned { digests, reached: true });
    assert_eq!((reached.unplanned, reached.next.superseded.len()), (false, 0));
    let stale = decide(Planned { digests: [(Role::Controller, "0".repeat(64))].into(), reached: true });
    assert!(stale.unplanned, "what the newest plan lacks is to be planned");
    assert_eq!(stale.next.superseded.len(), 14, "what it reached is another");
}

#[test]
fn a_certificate_that_no_node_holds_is_renewed_and_overrides_nothing() {
    // Of each of the two, one day is left.
    for (name, group, urgent) in
        [("admin", Group::Administrator, None), ("apiserver", Group::ControlPlane, Some("apiserver"))]
    {
        let mut world = World::new(Some((7, 3)), 365, 3650);
        world.now = start() + days(100);
        world.issue(name, world.now - days(364));
        world.seal();
        let decision = world.decide(&RenewalRequest::default());
        assert_eq!(names(&decision), [(group, vec![name])].into());
        let told = decision.next.urgent.map(|urgent| urgent.certificate);
        assert_eq!(told.as_deref(), urgent, "{name}");
    }
}

#[test]
fn an_expired_certificate_is_renewed_at_once_and_nothing_holds_it_up() {
    let mut world = World::new(Some((7, 0)), 365, 3650);
    world.now = start() + days(400);
    let decision = world.scan(3);
    assert_eq!(names(&decision).len(), 3);
    let urgent = decision.next.urgent.unwrap();
    assert!(urgent.expired && urgent.words().contains("expired 2027-11-20T12:00:00Z"), "{}", urgent.words());
    assert!(world.ends("apiserver") > world.now);
}

#[test]
fn what_is_asked_for_is_renewed_once_however_often_it_is_asked() {
    let mut world = World::new(None, 365, 3650);
    world.now = start() + days(10);
    let asked = RenewalRequest {
        certificates: vec!["scheduler".to_owned(), "ca".to_owned()],
        at: Some(world.now),
        ..RenewalRequest::default()
    };
    let decision = world.decide(&asked);
    assert_eq!(names(&decision), [(Group::ControlPlane, vec!["scheduler"])].into());
    world.perform(&decision, 3);
    world.now = start() + days(11);
    assert!(world.decide(&asked).renew.is_empty());
    let everything = RenewalRequest { everything: true, at: Some(world.now), ..RenewalRequest::default() };
    assert_eq!(names(&world.decide(&everything)).len(), 3);
}

#[test]
fn what_is_broken_is_found_and_the_rest_goes_on() {
    let world = nearly();
    let broken = Finding {
        key: "clusters/base/pki/scheduler/x.pem".into(),
        message: "is lost".into(),
        help: "mend it".into(),
    };
    let mut facts = world.manifest.assets["apiserver"].certificate.clone().unwrap();
    facts.not_before = world.now + days(1);
    let stored: BTreeMap<String, Stored> = [
        ("scheduler".to_owned(), Stored::Broken(broken.clone())),
        (
            "apiserver".to_owned(),
            Stored::Read { key: "k".into(), facts, flaws: vec![("weak".into(), "renew".into())] },
        ),
    ]
    .into();
    let mut manifest = world.manifest.clone();
    manifest.assets.remove("node-manager");
    manifest.assets.get_mut("front-proxy-client").unwrap().certificate = None;
    let observed = Observed {
        cluster: &world.cluster,
        manifest: &manifest,
        stored: &stored,
        nodes: &[],
        machines: &Machines::default(),
        planned: None,
        state: &world.state,
        request: &RenewalRequest::default(),
    };
    let decision = super::super::decide(&observed, world.now);
    let told: Vec<&str> = decision.findings.iter().map(|found| found.message.as_str()).collect();
    let has = |words: &str| assert!(told.iter().any(|one| one.contains(words)), "{words}: {told:#?}");
    has("is lost");
    has("the inventory has no node-manager");
    has("has no data about the certificate front-proxy-client");
    has("apiserver is not valid before");
    has("apiserver: weak");
    has("the inventory says that apiserver is valid from");
    assert!(decision.findings.iter().all(|found| !found.key.is_empty() && !found.help.is_empty()));
    // What is lost in the store is known by the inventory, and is renewed all the same.
    let control_plane = &names(&decision)[&Group::ControlPlane];
    assert!(
        control_plane.contains(&"scheduler") && control_plane.contains(&"controller-manager"),
        "{control_plane:?}"
    );
    assert_eq!(decision.next.findings, decision.findings);
}

#[test]
fn a_role_that_told_once_and_is_silent_is_a_finding_and_a_machine_of_before_is_none() {
    let mut world = World::new(Some((7, 3)), 365, 3650);
    world.tell = true;
    let mut nodes = world.reports();
    let old = Reported { instance: "i-before".into(), at: world.now - days(3), ..nodes[1].clone() };
    nodes.push(old);
    nodes.retain(|node| node.role != Role::Controller);
    nodes.push(Reported {
        role: Role::Controller,
        instance: "i-c".into(),
        key: "i-c/status.json".into(),
        at: world.now - days(2),
        held: Vec::new(),
    });
    let observed = Observed {
        cluster: &world.cluster,
        manifest: &world.manifest,
        stored: &BTreeMap::new(),
        nodes: &nodes,
        machines: &Machines::default(),
        planned: None,
        state: &world.state,
        request: &RenewalRequest::default(),
    };
    let findings = super::super::decide(&observed, world.now).findings;
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].key, "i-c/status.json");
}

#[test]
fn seed_002_a_renewal_of_etcds_rolls_etcd_and_no_controller() {
    let mut world = World::new(Some((7, 3)), 365, 3650);
    let before: BTreeMap<Role, String> =
        world.manifest.bundles.iter().map(|(role, bundle)| (role.clone(), bundle.digest.clone())).collect();
    assert_eq!(by_strategy(&world.cluster, &world.manifest, &before), BTreeMap::new());
    for name in ["apiserver-etcd-client", "etcd-server-0", "etcd-peer-0", "etcd-healthcheck-client"] {
        world.issue(name, world.now);
    }
    world.seal();
    let replaced = by_strategy(&world.cluster, &world.manifest, &before);
    let roles: Vec<String> = replaced.keys().map(Role::to_string).collect();
    assert_eq!(roles, ["etcd-0", "etcd-1", "etcd-2"], "controllers take etcd's client certificate in place");
    assert!(replaced[&Role::Etcd(1)].starts_with("renewed: etcd-healthcheck-client; "), "{replaced:?}");

    world.issue("scheduler", world.now);
    world.seal();
    assert!(by_strategy(&world.cluster, &world.manifest, &before).contains_key(&Role::Controller));
    let renewal = world.cluster.certificates.rollout_before_expiry.as_mut().unwrap();
    renewal.strategy = RenewalStrategy::Refresh;
    assert_eq!(by_strategy(&world.cluster, &world.manifest, &before), BTreeMap::new());
}

/// What a node serves and holds, by the names of the inventory.
#[test]
fn what_a_node_tells_is_known_by_its_assets() {
    let cluster = World::new(None, 365, 3650).cluster;
    let certificate = serde_json::json!({"serial": "01", "fingerprint": "f", "subject": "CN=a", "issuer": "CN=b",
        "notBefore": "2026-11-20T12:00:00Z", "notAfter": "2027-11-20T12:00:00Z", "verifies": true});
    let served = |name: &str| serde_json::json!({"name": name, "address": "127.0.0.1:1", "certificate": certificate, "verifiable": true});
    let mut held = certificate.clone();
    held["path"] = "/etc/kubernetes/pki/apiserver-etcd-client.pem".into();
    let mut kubelet = held.clone();
    kubelet["path"] = "/var/lib/kubelet/pki/kubelet-client-current.pem".into();
    // These are files of its bundle, and no leaf: an authority, and a leaf's key.
    let no_leaf = ["ca.pem", "apiserver-key.pem"].map(|file| {
        let mut held = held.clone();
        held["path"] = format!("/etc/kubernetes/pki/{file}").into();
        held
    });
    let status = |role: &str, served: Vec<serde_json::Value>| -> slipway_core::node::NodeStatus {
        serde_json::from_value(serde_json::json!({"format": 1, "at": "2026-11-20T12:00:00Z", "cluster": "base", "role": role,
            "applied": {"matchesNodeFile": true}, "served": served, "held": [held, kubelet, no_leaf[0], no_leaf[1]], "components": [], "healthy": true}))
        .unwrap()
    };
    let told = reported(
        &cluster,
        "i-1",
        "i-1/status.json",
        &status("controller", vec![served("kube-apiserver"), served("kube-scheduler"), served("kubelet")]),
    );
    let assets: Vec<String> = told.unwrap().held.into_iter().map(|one| one.asset).collect();
    assert_eq!(assets, ["apiserver", "apiserver-etcd-client"]);
    let told = reported(
        &cluster,
        "i-2",
        "i-2/status.json",
        &status("etcd-1", vec![served("etcd-client"), served("etcd-peer")]),
    )
    .unwrap();
    let assets: Vec<&str> = told.held.iter().map(|one| one.asset.as_str()).collect();
    assert_eq!((told.role, assets), (Role::Etcd(1), vec!["etcd-server-1", "etcd-peer-1"]));
    assert_eq!(reported(&cluster, "i-3", "i-3/status.json", &status("etcd-9", vec![])), None);
    // A report of another cluster's machine says nothing of the certificates of this one.
    let mut other = status("controller", vec![served("kube-apiserver")]);
    other.cluster = "another".to_owned();
    assert_eq!(reported(&cluster, "i-1", "i-1/status.json", &other), None);
}

/// The last word on the one before, that it had expired, is smaller than any that its successor will get.
#[test]
fn the_successor_of_a_certificate_that_expired_is_announced_too() {
    for (before, is_said) in [("before", true), ("apiserver", false)] {
        let mut world = World::new(None, 365, 3650);
        let fingerprint = world.manifest.assets.get(before).map(|entry| entry.fingerprint.clone());
        let fingerprint = fingerprint.unwrap_or_else(|| before.to_owned());
        world.state.announced.insert("apiserver".to_owned(), Announced { fingerprint, days: 0 });
        world.now = world.ends("apiserver") - days(29);
        let said = world.decide(&RenewalRequest::default()).announce;
        let said = said.iter().any(|one| (one.certificate.as_str(), one.threshold_days) == ("apiserver", 30));
        assert_eq!(said, is_said, "{before}");
    }
}
