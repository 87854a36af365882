//! What the machines that Auto Scaling lists say, and those of them that say nothing.

use super::*;

/// What Auto Scaling lists.
type Listed = BTreeMap<Role, BTreeMap<String, String>>;

/// Six days before the end everything is renewed, and all machines but one of three controllers take it.
struct Silent {
    world: World,
    machines: Listed,
    /// The last reports of all machines, each with the certificates of before.
    before: Vec<Reported>,
    /// The same with the renewed ones.
    after: Vec<Reported>,
}

const SILENT: &str = "i-controller-2";

fn key(machine: &str) -> String {
    format!("{machine}/status.json")
}

impl Silent {
    fn new() -> Self {
        let mut world = World::new(Some((7, 3)), 365, 3650);
        world.now = start() + days(359);
        world.tell = true;
        let before = of_three_controllers(world.reports());
        let machines = before.iter().fold(Listed::new(), |mut machines, node| {
            machines.entry(node.role.clone()).or_default().insert(node.instance.clone(), node.key.clone());
            machines
        });
        world.scan(3);
        world.roll_out();
        world.now += days(1);
        let after = of_three_controllers(world.reports());
        Self { world, machines, before, after }
    }

    /// The reports of all machines, with that of the silent one.
    fn reports(&self, silent: Option<Reported>) -> Vec<Reported> {
        let others = self.after.iter().filter(|node| node.instance != SILENT).cloned();
        others.chain(silent).collect()
    }

    /// The last report of the silent machine in `reports`, as old as that.
    fn last(reports: &[Reported], at: Timestamp) -> Reported {
        let last = reports.iter().find(|node| node.instance == SILENT).unwrap().clone();
        Reported { at, ..last }
    }

    fn decide(&self, nodes: &[Reported], machines: &Listed) -> Decision {
        self.decide_with(nodes, &Machines::Listed(machines.clone()))
    }

    fn decide_with(&self, nodes: &[Reported], machines: &Machines) -> Decision {
        let digests = self.world.manifest.bundles.iter();
        let digests = digests.map(|(role, bundle)| (role.clone(), bundle.digest.clone())).collect();
        let observed = Observed {
            cluster: &self.world.cluster,
            manifest: &self.world.manifest,
            stored: &BTreeMap::new(),
            nodes,
            machines,
            // A rollout succeeds, too, if a person skips a machine.
            planned: Some(&Planned { digests, reached: true }),
            state: &self.world.state,
            request: &RenewalRequest::default(),
        };
        super::super::decide(&observed, self.world.now)
    }
}

fn of_three_controllers(reports: Vec<Reported>) -> Vec<Reported> {
    let three = reports.into_iter().flat_map(|node| match node.role {
        Role::Controller => (0..3)
            .map(|index| {
                let instance = format!("i-controller-{index}");
                Reported { key: key(&instance), instance, ..node.clone() }
            })
            .collect(),
        Role::Etcd(_) | Role::Pool(_) | Role::Admin => vec![node],
    });
    three.collect()
}

#[test]
fn p7_one_silent_controller_with_the_old_certificate_is_a_danger_until_it_has_the_new_one_or_is_gone() {
    let silent = Silent::new();
    let hours = |hours: i64| silent.world.now - SignedDuration::from_hours(hours);
    let ended = start() + days(365);
    for (last, place) in [
        (Some(Silent::last(&silent.before, hours(26))), "somebody on i-controller-2 (controller)"),
        (None, "nodes that have not reported the new one yet (i-controller-2 of controller)"),
    ] {
        let told = last.as_ref().map(|last| last.at);
        let decision = silent.decide(&silent.reports(last), &silent.machines);
        let said = decision.announce.iter().find(|one| one.certificate == "apiserver").unwrap();
        assert_eq!((said.place.as_deref(), said.ends), (Some(place), ended));
        assert_eq!(decision.next.superseded["apiserver"].ends, ended, "{:?}", decision.next.superseded);
        assert!(!decision.next.superseded.contains_key("etcd-peer-0"), "all who hold it have the new one");
        let found: Vec<&Finding> = decision.findings.iter().collect();
        assert_eq!((found.len(), found[0].key.as_str()), (1, "i-controller-2/status.json"), "{found:?}");
        let what = told
            .map_or("there is no recent report of i-controller-2 of controller".to_owned(), |at| {
                format!("i-controller-2 of controller has not reported since {at}")
            });
        assert!(found[0].message.starts_with(&what), "{found:?}");
    }
    // A report of the present one clears it, and so does the end of the machine.
    let well = silent.decide(&silent.after, &silent.machines);
    assert_eq!((well.next.superseded.len(), well.announce, well.findings), (0, Vec::new(), Vec::new()));
    let mut others = silent.machines.clone();
    others.get_mut(&Role::Controller).unwrap().remove(SILENT);
    let gone = silent.decide(&silent.reports(None), &others);
    assert_eq!((gone.next.superseded.len(), gone.announce, gone.findings), (0, Vec::new(), Vec::new()));
}

#[test]
fn p7_a_machine_that_fell_silent_with_the_new_certificate_is_a_finding_and_no_danger() {
    let silent = Silent::new();
    let last = Silent::last(&silent.after, silent.world.now - SignedDuration::from_hours(26));
    let decision = silent.decide(&silent.reports(Some(last)), &silent.machines);
    assert_eq!((decision.next.superseded.len(), decision.announce), (0, Vec::new()));
    assert_eq!(decision.findings.len(), 1, "{:?}", decision.findings);
    // A day is allowed for: the timer is hourly, and a scan may be late.
    let last = Silent::last(&silent.after, silent.world.now - SignedDuration::from_hours(25));
    assert_eq!(silent.decide(&silent.reports(Some(last)), &silent.machines).findings, []);
}

/// A role that another spec may have, and a role whose machines nobody listed.
#[test]
fn machines_of_other_roles_are_no_findings_and_roles_that_were_not_listed_are_judged_by_their_reports() {
    let silent = Silent::new();
    let mut more = silent.machines.clone();
    more.insert(Role::Etcd(7), [("i-etcd-7".to_owned(), key("i-etcd-7"))].into());
    assert_eq!(silent.decide(&silent.after, &more).findings, []);
    more.remove(&Role::Controller);
    let decision = silent.decide(&silent.reports(None), &more);
    assert_eq!((decision.next.superseded.len(), decision.findings), (0, Vec::new()));
}

#[test]
fn p7_while_machines_cannot_be_listed_every_replaced_certificate_may_be_in_use() {
    let silent = Silent::new();
    let decision = silent.decide_with(&silent.after, &Machines::Unknown);
    let said = decision.announce.iter().find(|one| one.certificate == "apiserver").unwrap();
    assert_eq!(said.place.as_deref(), Some("nodes that have not reported the new one yet (controller)"));
    // The administrator's is on no machine.
    assert_eq!((decision.next.superseded.len(), decision.findings), (14, Vec::new()));
}
