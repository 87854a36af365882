//! How certificates stand, by what the inventory, the store and the nodes say.

use super::*;

fn decide(world: &World, stored: &BTreeMap<String, Stored>, nodes: &[Reported]) -> Decision {
    decide_with(world, stored, nodes, &Machines::default())
}

/// As [`decide`], where Auto Scaling lists these machines.
fn decide_with(
    world: &World,
    stored: &BTreeMap<String, Stored>,
    nodes: &[Reported],
    machines: &Machines,
) -> Decision {
    let observed = Observed {
        cluster: &world.cluster,
        manifest: &world.manifest,
        stored,
        nodes,
        machines,
        planned: None,
        state: &world.state,
        request: &RenewalRequest::default(),
    };
    super::super::decide(&observed, world.now)
}

fn standing(decision: &Decision, name: &str) -> CertificateState {
    decision.standings.iter().find(|one| one.name == name).unwrap().clone()
}

/// What a machine told so many hours ago: that it has this certificate, and nothing else.
fn reported(
    world: &World,
    role: Role,
    instance: &str,
    hours: i64,
    held: &[(&str, &str, Timestamp)],
) -> Reported {
    let held = held.iter().map(|(asset, fingerprint, ends)| LeafOnNode {
        asset: (*asset).to_owned(),
        fingerprint: (*fingerprint).to_owned(),
        ends: *ends,
        by: "somebody".to_owned(),
    });
    let at = world.now - SignedDuration::from_hours(hours);
    let key = format!("{instance}/status.json");
    Reported { role, instance: instance.to_owned(), key, at, held: held.collect() }
}

#[test]
fn a_leaf_ends_with_its_own_authority_and_with_no_other() {
    let mut world = World::new(None, 365, 3650);
    let end = start() + days(100);
    world.manifest.assets.get_mut("etcd-ca").unwrap().certificate.as_mut().unwrap().not_after = end;
    let decision = decide(&world, &BTreeMap::new(), &[]);
    assert_eq!(standing(&decision, "etcd-peer-1").ends, end);
    assert_eq!(standing(&decision, "apiserver").ends, start() + days(365));
}

#[test]
fn a_certificate_may_begin_five_minutes_ahead_of_this_clock() {
    let world = World::new(None, 365, 3650);
    let ahead = |seconds: i64| {
        let mut facts = world.manifest.assets["apiserver"].certificate.clone().unwrap();
        facts.not_before = world.now + SignedDuration::from_secs(seconds);
        let read = Stored::Read { key: "k".to_owned(), facts, flaws: Vec::new() };
        let findings = decide(&world, &[("apiserver".to_owned(), read)].into(), &[]).findings;
        findings.iter().any(|found| found.message.contains("apiserver is not valid before"))
    };
    assert!(!ahead(300) && ahead(301));
}

#[test]
fn an_older_certificate_is_where_a_node_says_so_even_if_it_is_all_that_the_node_says() {
    let world = World::new(None, 365, 3650);
    let older = start() + days(50);
    let nodes = [reported(&world, Role::Controller, "i-c", 1, &[("scheduler", "older", older)])];
    let decision = decide(&world, &BTreeMap::new(), &nodes);
    let place = "somebody on i-c (controller)".to_owned();
    let elsewhere = vec![Elsewhere { ends: older, fingerprint: "older".to_owned(), place }];
    assert_eq!(standing(&decision, "scheduler").elsewhere, elsewhere);
    assert_eq!(standing(&decision, "apiserver").elsewhere, []);
}

#[test]
fn an_older_certificate_comes_first_only_if_it_ends_before_the_newest() {
    let world = World::new(None, 365, 3650);
    let ends = world.ends("scheduler");
    let first = |ends: Timestamp| {
        let nodes = [reported(&world, Role::Controller, "i-c", 1, &[("scheduler", "older", ends)])];
        standing(&decide(&world, &BTreeMap::new(), &nodes), "scheduler").first_end().1.to_owned()
    };
    assert_eq!(first(ends - SignedDuration::from_secs(1)), "older");
    assert_eq!(first(ends), world.manifest.assets["scheduler"].fingerprint);
}

#[test]
fn of_what_a_member_and_its_successor_told_the_newest_counts_in_whatever_order_it_is_listed() {
    let world = World::new(None, 365, 3650);
    let newest = world.manifest.assets["etcd-peer-0"].fingerprint.clone();
    let before =
        reported(&world, Role::Etcd(0), "i-before", 2, &[("etcd-peer-0", "older", start() + days(50))]);
    let held = [("etcd-peer-0", newest.as_str(), world.ends("etcd-peer-0"))];
    let after = reported(&world, Role::Etcd(0), "i-after", 1, &held);
    for nodes in [[before.clone(), after.clone()], [after, before]] {
        let decision = decide(&world, &BTreeMap::new(), &nodes);
        assert_eq!(standing(&decision, "etcd-peer-0").elsewhere, [], "{nodes:?}");
    }
}

/// The clock of the machine that is gone was ahead, or somebody gave the group another one with the older certificate.
#[test]
fn p7_what_the_machine_of_a_member_told_counts_and_not_what_one_that_is_gone_told_later() {
    let world = World::new(None, 365, 3650);
    let newest = world.manifest.assets["etcd-peer-0"].fingerprint.clone();
    let held = [("etcd-peer-0", newest.as_str(), world.ends("etcd-peer-0"))];
    let gone = reported(&world, Role::Etcd(0), "i-gone", 1, &held);
    let stands =
        reported(&world, Role::Etcd(0), "i-stands", 2, &[("etcd-peer-0", "older", start() + days(50))]);
    let listed = BTreeMap::from([("i-stands".to_owned(), stands.key.clone())]);
    let machines = Machines::Listed(BTreeMap::from([(Role::Etcd(0), listed)]));
    for nodes in [[gone.clone(), stands.clone()], [stands, gone]] {
        let decision = decide_with(&world, &BTreeMap::new(), &nodes, &machines);
        let elsewhere = standing(&decision, "etcd-peer-0").elsewhere;
        let elsewhere: Vec<_> = elsewhere.iter().map(|one| one.fingerprint.as_str()).collect();
        assert_eq!(elsewhere, ["older"], "{nodes:?}");
    }
}

#[test]
fn of_a_role_that_is_silent_the_node_that_told_last_is_named_in_whatever_order_they_are_listed() {
    let world = World::new(None, 365, 3650);
    let first = reported(&world, Role::Controller, "i-first", 60, &[]);
    let last = reported(&world, Role::Controller, "i-last", 50, &[]);
    for nodes in [[first.clone(), last.clone()], [last, first]] {
        let findings = decide(&world, &BTreeMap::new(), &nodes).findings;
        let keys: Vec<&str> = findings.iter().map(|found| found.key.as_str()).collect();
        assert_eq!(keys, ["i-last/status.json"]);
    }
}

#[test]
fn of_several_that_were_replaced_the_one_that_ends_first_is_kept_and_stays() {
    let replaced = |state: State, fingerprint: &str, ends: Timestamp| {
        let (name, fingerprint) = ("scheduler".to_owned(), fingerprint.to_owned());
        let renew = Renew { name, fingerprint, ends, due: true };
        state.renewed(&[Renewal { group: Group::ControlPlane, certificates: vec![renew] }])
    };
    let kept = |state: &State| state.superseded["scheduler"].fingerprint.clone();
    let state = replaced(State::new(start()), "a", start() + days(9));
    let state = replaced(state, "later", start() + days(10));
    assert_eq!(kept(&state), "a");
    // With another fingerprint, what was said of it would be said once more.
    let state = replaced(state, "as late", start() + days(9));
    assert_eq!(kept(&state), "a");
    let state = replaced(state, "sooner", start() + days(8));
    assert_eq!((kept(&state), state.superseded["scheduler"].ends), ("sooner".to_owned(), start() + days(8)));
}

/// A scan writes down what it is about to renew, and may die before it does.
#[test]
fn p7_a_certificate_whose_renewal_was_only_planned_is_not_forgotten() {
    let mut world = World::new(None, 365, 3650);
    let before = Superseded {
        fingerprint: world.manifest.assets["scheduler"].fingerprint.clone(),
        ends: world.ends("scheduler"),
    };
    world.state.superseded = BTreeMap::from([("scheduler".to_owned(), before)]);
    let next = decide(&world, &BTreeMap::new(), &[]).next;
    assert_eq!(next.superseded, world.state.superseded);
}
