//! Destroying a cluster: the order, what holds it, and what remains.

mod back;
mod ends;
mod records;
mod saved;

use slipway_core::node::{
    CommandView, EtcdHealth, FailureCode, MachineArns, RecordsRetired, Verb, VerbFailure,
};

use super::undeleted::{Harbour, exporting};
use super::*;
use crate::fleet::{GroupView, Lifecycle, MachineView, TargetHealth};

/// A time after the launch; minutes pass between wakes.
fn at(minute: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + 60 * minute).unwrap()
}

fn ordered(minute: i64, without_snapshot: bool) -> Given {
    Given { order: Order::Destroy { without_snapshot }, at: at(minute) }
}

/// A running cluster and the answers of its machines.
struct Quay {
    harbour: Harbour,
    state: Rollout,
    minute: i64,
    log: Vec<String>,
    /// The number of members in service.
    members: u32,
    /// The leader.
    leader: Option<u32>,
    /// The result of a snapshot.
    snapshot: Result<&'static str, &'static str>,
    /// The result of one when the control plane is gone, if it is another.
    second: Option<Result<&'static str, &'static str>>,
    /// The member that can delete the records.
    retires: Option<u32>,
    /// The commands by their token.
    sent: BTreeMap<String, (Verb, String)>,
    /// The workers of pool `a` in their terminate hooks, and controllers, whose names begin with `i-cp`.
    hooked: Vec<&'static str>,
    /// The workers of pool `a` in service, and controllers.
    serving: Vec<&'static str>,
    /// The retained workers.
    retained: Vec<&'static str>,
    /// The member whose machine boots, and until which minute.
    booting: Option<(u32, i64)>,
    /// The newest spec.
    wanted: Option<Wanted>,
}

const KEY: &str = "clusters/c/etcd-snapshots/20261122T120000Z.db";

impl Quay {
    fn new() -> Self {
        let (harbour, state) = Harbour::launched();
        Self {
            harbour,
            state,
            minute: 0,
            log: Vec::new(),
            members: 3,
            leader: Some(1),
            snapshot: Ok(KEY),
            second: None,
            retires: Some(2),
            sent: BTreeMap::new(),
            hooked: Vec::new(),
            serving: Vec::new(),
            retained: Vec::new(),
            booting: None,
            wanted: None,
        }
    }

    fn group(&self, name: &str) -> Option<GroupView> {
        let machine = |lifecycle| MachineView {
            zone: "a".to_owned(),
            lifecycle,
            healthy: true,
            template: None,
            target: TargetHealth::NotAsked,
            weight: 1,
        };
        let members = (0..self.members).filter(|index| name == format!("c-etcd-{index}"));
        let serves = members.map(|index| (format!("i-{index}"), machine(Lifecycle::InService)));
        let in_hook = |id: &str| if id.starts_with("i-cp") { "c-control-plane" } else { "c-pool-a" };
        let hooked = self.hooked.iter().filter(|id| name == in_hook(id));
        let waits = hooked.map(|id| ((*id).to_owned(), machine(Lifecycle::TerminatingWait)));
        let serving = self.serving.iter().filter(|id| name == in_hook(id));
        let serving = serving.map(|id| ((*id).to_owned(), machine(Lifecycle::InService)));
        let retained = self.retained.iter().filter(|_| name == "c-pool-a");
        let kept = retained.map(|id| ((*id).to_owned(), machine(Lifecycle::Retained)));
        let boots =
            self.booting.filter(|(index, until)| self.minute <= *until && name == format!("c-etcd-{index}"));
        let boots = boots.map(|(index, _)| (format!("i-new-{index}"), machine(Lifecycle::Pending)));
        let machines: BTreeMap<_, _> = serves.chain(waits).chain(serving).chain(kept).chain(boots).collect();
        (!machines.is_empty()).then(|| GroupView {
            name: name.to_owned(),
            desired: 1,
            min: 0,
            max: 1,
            template: None,
            machines,
            tags: BTreeMap::from([("slipway:cluster".to_owned(), "c".to_owned())]),
            target_groups: BTreeSet::new(),
            launch_suspended: false,
            machine_arns: MachineArns::new("eu-west-1", "123456789012"),
        })
    }

    fn answer_to(&self, verb: &Verb, instance: &str) -> CommandView {
        let leads = self.leader.is_some_and(|index| instance == format!("i-{index}"));
        let failed =
            |why: &str| CommandView::Failed(VerbFailure::transient(FailureCode::AwsDenied, why, "look"));
        let retires = self.retires.is_some_and(|index| instance == format!("i-{index}"));
        let second = self.second.filter(|_| !self.harbour.fake.stacks.contains_key("c-control-plane"));
        match (verb, second.unwrap_or(self.snapshot)) {
            (Verb::EtcdRetire, _) if retires => {
                CommandView::Answered(RecordsRetired { zone: "Z1".to_owned(), records: Vec::new() }.into())
            }
            (Verb::EtcdRetire, _) => failed("AccessDenied"),
            (Verb::EtcdHealth, _) => {
                CommandView::Answered(EtcdHealth { leads, ..EtcdHealth::default() }.into())
            }
            (_, Ok(key)) => CommandView::Answered(snapshot_taken(key).into()),
            (_, Err(why)) => failed(why),
        }
    }

    /// One minute passes.
    fn wake(&mut self, order: Option<Given>) -> Report {
        let now = at(self.minute);
        self.minute += 1;
        let before = self.harbour.fake.log.len();
        if let Some(order) = order {
            let state = std::mem::replace(&mut self.state, Rollout::new(""));
            self.state = self.harbour.fake.after_order_performed(state, &order, None, now);
        }
        let look = to_observe(&self.state, None, now);
        let mut observed = self.harbour.fake.observe(&look, self.wanted.as_ref());
        observed.groups = look.groups.iter().map(|name| (name.clone(), self.group(name))).collect();
        observed.newest = BTreeSet::from(["v9".to_owned()]);
        for command in &look.commands {
            let (verb, instance) = &self.sent[&command.token];
            observed.answers.insert(command.token.clone(), Some(self.answer_to(verb, instance)));
        }
        let decision = decide(&self.state, &observed, now);
        let (mut ours, mut others) = (Vec::new(), Vec::new());
        for effect in decision.effects {
            if let Effect::Send(command) = effect {
                self.log.push(format!("{} on {}", command.verb.document(), command.instance));
                assert!(!self.sent.contains_key(&command.token), "asked twice under one token");
                self.sent.insert(command.token.clone(), (command.verb, command.instance));
            } else if let Effect::CompleteTermination { instance, .. } = effect {
                self.log.push(format!("let {instance} go"));
                ours.push(instance);
            } else if let Effect::Terminate { instance, then_desired: None, .. } = effect {
                self.log.push(format!("terminate {instance}"));
                ours.push(instance);
            } else {
                others.push(effect);
            }
        }
        self.hooked.retain(|id| !ours.iter().any(|gone| gone == id));
        self.retained.retain(|id| !ours.iter().any(|gone| gone == id));
        self.harbour.fake.perform(&others);
        self.log.extend(self.harbour.fake.log[before..].iter().cloned());
        self.state = Rollout { outbox: Vec::new(), ..decision.next };
        decision.report
    }

    /// Runs until the destruction ends or stops.
    fn run(&mut self, order: Given) -> Report {
        let mut report = self.wake(Some(order));
        for _ in 0..200 {
            if self.state.destroy().is_none_or(Destroy::has_stopped) {
                return report;
            }
            report = self.wake(None);
        }
        panic!("it never ends: {report:?}");
    }

    fn deletions(&self) -> Vec<&str> {
        self.log.iter().filter_map(|line| line.strip_prefix("delete ")).collect()
    }
}

#[test]
fn a_destruction_takes_a_snapshot_where_etcd_leads_and_then_the_stacks_backwards() {
    let mut quay = Quay::new();
    let report = quay.run(ordered(0, false));
    assert_eq!(report.state.as_str(), "destroyed", "{}", report.message);
    assert!(report.message.contains(KEY), "{}", report.message);
    let first = quay.log.iter().position(|line| line.starts_with("delete")).unwrap();
    assert_eq!(
        quay.log[..first].iter().filter(|line| line.contains(" on ")).collect::<Vec<_>>(),
        [
            "Slipway-EtcdHealth on i-0",
            "Slipway-EtcdHealth on i-1",
            "Slipway-EtcdHealth on i-2",
            "Slipway-EtcdSnapshot on i-1"
        ]
    );
    assert_eq!(quay.deletions(), ["c-pool-a", "c-pool-b", "c-control-plane", "c-etcd", "c-network"]);
    // The number of an effect, and so of an event, is unique within a cluster's name, even if the cluster is created again.
    assert!(quay.state.effects_decided >= quay.log.len() as u64, "{}", quay.state.effects_decided);
    assert!(quay.log.contains(&"Cluster Destroyed".to_owned()), "{:?}", quay.log);
    let (last, arms) = (quay.log.last().unwrap(), quay.log.iter().filter(|line| *line == "arm").count());
    assert_eq!((last.as_str(), arms), ("disarm", 1));
    let gone = quay.state.was_destroyed().unwrap();
    assert!(gone.spec_versions.contains("v9") && gone.snapshot.as_deref() == Some(KEY), "{gone:?}");
    assert!(quay.state.existing_releases().is_empty() && !quay.state.is_open());
    // It keeps reporting that, and does nothing.
    assert_eq!(quay.wake(None).state.as_str(), "destroyed");
    let read: Rollout = serde_json::from_value(serde_json::to_value(&quay.state).unwrap()).unwrap();
    assert_eq!(read, quay.state);
}

#[test]
fn nothing_is_deleted_unless_the_last_snapshot_is_taken_or_a_person_does_without() {
    for (members, leader, snapshot, why) in [
        (0, None, Ok(KEY), "no member of etcd has a machine in service"),
        (3, None, Ok(KEY), "no member of etcd leads"),
        (3, Some(0), Err("the bucket is full"), "the bucket is full"),
    ] {
        let mut quay = Quay { members, leader, snapshot, ..Quay::new() };
        let report = quay.run(ordered(0, false));
        assert_eq!(report.state.as_str(), "failed", "{}", report.message);
        assert!(report.message.contains(why), "{}", report.message);
        assert!(report.message.contains("--without-snapshot"), "{}", report.message);
        assert_eq!(quay.deletions(), [""; 0]);
        assert!(!quay.state.needs_tick() && quay.state.is_going());
        let minute = quay.minute;
        let report = quay.run(ordered(minute, true));
        assert_eq!((report.state.as_str(), quay.deletions().len()), ("destroyed", 5));
        assert_eq!(quay.state.was_destroyed().unwrap().snapshot, None);
    }
}

#[test]
fn p4_whether_there_is_an_etcd_to_be_saved_is_looked_at_and_not_taken_from_the_state() {
    // A launch stopped before the state recorded that etcd's stack exists.
    for (members, saved) in [(3, true), (0, false)] {
        let mut quay = Quay { members, ..Quay::new() };
        quay.state.deployed.remove("c-etcd");
        let report = quay.run(ordered(0, false));
        assert_eq!(report.state.as_str(), "destroyed", "{}", report.message);
        assert_eq!(
            quay.log.iter().any(|line| line.starts_with("Slipway-EtcdSnapshot")),
            saved,
            "{:?}",
            quay.log
        );
    }
}

#[test]
fn p8_an_order_to_destroy_that_comes_twice_or_late_counts_once() {
    let mut quay = Quay::new();
    quay.run(ordered(0, false));
    // The earlier order deletes nothing of the cluster that is created again.
    let made = quay.harbour.plan(&quay.state, &exporting(1, true));
    quay.harbour.fake.change_sets.clear();
    let (state, report) = quay.harbour.fake.run(quay.state.clone(), &made, None, false);
    assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
    quay.state = state;
    assert_eq!(quay.wake(Some(ordered(0, false))).state.as_str(), "succeeded");
    // Nor does an order that comes hours late.
    quay.minute += 120;
    let late = quay.minute - 61;
    let report = quay.wake(Some(ordered(late, false)));
    assert!(!quay.state.is_going());
    // The report tells its sender once, with the command that gives the order again.
    let told = report.ignored.unwrap();
    for words in ["to destroy the cluster arrived 1h 1m late and was ignored", "slipway destroy --cluster c"]
    {
        assert!(told.contains(words), "{words}: {told}");
    }
    let said = |quay: &Quay| quay.log.iter().filter(|line| *line == "Order Ignored").count();
    assert_eq!((said(&quay), report.state.as_str()), (1, "succeeded"));
    let report = quay.wake(Some(ordered(late, false)));
    assert_eq!((said(&quay), report.ignored.as_ref()), (1, Some(&told)));
    let read: Rollout = serde_json::from_value(serde_json::to_value(&quay.state).unwrap()).unwrap();
    assert_eq!(read, quay.state);
    let in_time = quay.minute - 60;
    let report = quay.wake(Some(ordered(in_time, false)));
    assert_eq!((quay.state.is_going(), report.ignored), (true, None));
}

#[test]
fn p10_an_abort_that_comes_hours_after_what_it_was_about_is_told_and_not_obeyed() {
    let abort = |minute| Given { order: Order::Abort { plan: None }, at: at(minute) };
    let mut quay = Quay { minute: 200, ..Quay::new() };
    quay.harbour.fake.deleting = Some(StackStatus::DeleteInProgress);
    quay.wake(Some(ordered(200, false)));
    // Whoever gave it waits for it, also if it comes only a little late.
    let told = quay.wake(Some(abort(190))).ignored.unwrap();
    assert!(told.contains("to abort was ignored, because another rollout or destruction is open"), "{told}");
    let told = quay.wake(Some(abort(100))).ignored.unwrap();
    assert!(told.contains("to abort arrived 1h 42m late and was ignored"), "{told}");
    assert!(quay.state.destroy().is_some_and(|open| open.aborted.is_none()));
    let minute = quay.minute;
    assert_eq!(
        quay.wake(Some(abort(minute))).ignored,
        None,
        "an obeyed order clears the report of an ignored one"
    );
}

#[test]
fn what_never_was_is_not_told_of_as_standing_or_gone() {
    let mut quay = Quay::new();
    let all = |report: &Report| report.stacks.keys().cloned().collect::<Vec<_>>();
    let stood = ["c-control-plane", "c-etcd", "c-network", "c-pool-a", "c-pool-b"];
    let first = quay.wake(Some(ordered(0, false)));
    assert_eq!(all(&first), stood);
    assert!(first.message.contains("0 of 5 stacks"), "{}", first.message);
    while quay.state.is_going() {
        let report = quay.wake(None);
        assert_eq!(all(&report), stood, "{}", report.message);
    }
}

#[test]
fn the_spec_of_what_was_destroyed_makes_nothing_any_more_and_another_does() {
    let mut quay = Quay::new();
    quay.run(ordered(0, false));
    let mut wanted = quay.harbour.plan(&quay.state, &exporting(1, true));
    wanted.desired.spec_version = "v9".to_owned();
    let look = to_observe(&quay.state, Some(&wanted), at(500));
    let seen = quay.harbour.fake.observe(&look, Some(&wanted));
    assert_eq!(decide(&quay.state, &seen, at(500)).next.active(), None);
    let refused = crate::destruction_finding(&quay.state, "v9").unwrap();
    assert!(refused.message.contains("was destroyed"), "{refused:?}");
    assert!(crate::destruction_finding(&quay.state, "v10").is_none());
}

#[test]
fn p10_a_rollout_that_is_open_is_aborted_first_and_no_other_begins() {
    let mut quay = Quay::new();
    let wanted = quay.harbour.plan(&quay.state, &exporting(2, true));
    quay.harbour.fake.change_sets.clear();
    quay.state = quay.harbour.wake(quay.state.clone(), &wanted, None).0;
    assert!(quay.state.active().is_some());
    let report = quay.run(ordered(0, false));
    assert_eq!(report.state.as_str(), "destroyed", "{}", report.message);
    assert!(quay.log.contains(&"Rollout Aborted".to_owned()), "{:?}", quay.log);
    assert_eq!(quay.deletions().len(), 5);

    let mut quay = Quay::new();
    quay.wake(Some(ordered(0, false)));
    let look = to_observe(&quay.state, Some(&wanted), at(1));
    let mut seen = quay.harbour.fake.observe(&look, Some(&wanted));
    seen.groups.clear();
    assert_eq!(decide(&quay.state, &seen, at(1)).next.active(), None);
    let refused = crate::destruction_finding(&quay.state, "v10").unwrap();
    assert!(refused.message.contains("is being destroyed"), "{refused:?}");
}

#[test]
fn p10_a_pause_holds_a_destruction_and_an_abort_ends_it_between_two_stacks() {
    let mut quay = Quay::new();
    quay.harbour.fake.deleting = Some(StackStatus::DeleteInProgress);
    for minute in 0..6 {
        quay.wake((minute == 0).then(|| ordered(0, false)));
    }
    assert_eq!(quay.deletions(), ["c-pool-a", "c-pool-b"]);
    let report = quay.wake(Some(Given { order: Order::Pause, at: at(6) }));
    assert_eq!(report.state.as_str(), "paused");
    quay.harbour.fake.stacks.remove("c-pool-a");
    quay.harbour.fake.stacks.remove("c-pool-b");
    for _ in 0..5 {
        quay.wake(None);
    }
    assert_eq!(quay.deletions().len(), 2, "nothing new starts");
    assert!(!quay.state.deployed.contains_key("c-pool-a"), "the stacks that are gone are known");
    let minute = quay.minute;
    quay.wake(Some(Given { order: Order::Resume, at: at(minute) }));
    // Another snapshot comes first.
    for _ in 0..3 {
        quay.wake(None);
    }
    assert_eq!(quay.deletions().last(), Some(&"c-control-plane"));
    let minute = quay.minute;
    let report = quay.wake(Some(Given { order: Order::Abort { plan: None }, at: at(minute) }));
    assert_eq!(report.state.as_str(), "aborting", "operations of CloudFormation are completed");
    // An abort that was given before the order and comes late does not revert the order.
    quay.wake(Some(ordered(minute - 1, false)));
    quay.harbour.fake.stacks.remove("c-control-plane");
    let report = quay.wake(None);
    assert_eq!(report.state.as_str(), "aborted", "{}", report.message);
    assert!(report.message.contains("slipway apply"), "{}", report.message);
    assert!(!quay.state.is_going() && quay.state.deployed.contains_key("c-etcd"));
    // The next wake does not report the earlier rollout.
    let later = quay.wake(None);
    assert_eq!((&later.state, &later.message), (&report.state, &report.message));
    let (wanted, state) = (quay.harbour.plan(&quay.state, &exporting(2, true)), quay.state.clone());
    assert_eq!(
        quay.harbour.wake(state, &wanted, None).0.aborted_destruction(),
        None,
        "the report is about the next rollout"
    );
    // A repetition of the earlier order has no effect.
    quay.wake(Some(ordered(0, false)));
    assert!(!quay.state.is_going());
}

#[test]
fn a_stack_that_cannot_be_deleted_stops_a_destruction_and_another_order_goes_on() {
    let mut quay = Quay::new();
    quay.harbour.fake.deleting = Some(StackStatus::DeleteFailed);
    let report = quay.run(ordered(0, false));
    assert_eq!(report.state.as_str(), "failed");
    assert!(
        report.message.contains("c-pool-a could not be deleted: Thing (AWS::EC2::VPC)"),
        "{}",
        report.message
    );
    assert!(!quay.deletions().contains(&"c-control-plane"));
    quay.harbour.fake.deleting = None;
    let minute = quay.minute;
    let report = quay.run(ordered(minute, false));
    assert_eq!(report.state.as_str(), "destroyed", "{}", report.message);
    assert!(report.message.contains(KEY), "the snapshot that was taken counts: {}", report.message);
}

#[test]
fn a_stack_of_that_name_that_is_somebody_elses_is_not_destroyed() {
    let mut quay = Quay::new();
    quay.harbour.fake.tags = BTreeMap::from([("slipway:cluster".to_owned(), "another".to_owned())]);
    let report = quay.run(ordered(0, false));
    assert_eq!((report.state.as_str(), quay.deletions().len()), ("failed", 0));
    assert!(report.message.contains("is not Slipway's"), "{}", report.message);
}

#[test]
fn a_stack_that_is_no_more_than_a_change_set_is_deleted_with_the_others() {
    let mut quay = Quay::new();
    for (stack, state) in [("c-pool-y", "changeSet"), ("c-pool-z", "waiting")] {
        let step = serde_json::json!({"stack": stack, "kind": "pool", "templateKey": "", "tags": {}, "mayReplace": [], "state": state});
        quay.state.last.as_mut().unwrap().steps.push(serde_json::from_value(step).unwrap());
        quay.harbour.fake.stacks.insert(stack.to_owned(), StackStatus::ReviewInProgress);
    }
    let report = quay.run(ordered(0, false));
    assert_eq!(report.state.as_str(), "destroyed", "{}", report.message);
    assert!(quay.deletions().contains(&"c-pool-y"), "{:?}", quay.deletions());
    assert!(!quay.deletions().contains(&"c-pool-z"), "no rollout began it: {:?}", quay.deletions());
}

#[test]
fn workers_whose_stack_goes_do_not_wait_for_a_drain() {
    let mut quay = Quay::new();
    quay.hooked = vec!["i-a", "i-b"];
    quay.retained = vec!["i-c"];
    quay.harbour.fake.deleting = Some(StackStatus::DeleteInProgress);
    for minute in 0..8 {
        quay.wake((minute == 0).then(|| ordered(0, false)));
    }
    let let_go: Vec<&String> = quay.log.iter().filter(|line| line.starts_with("let ")).collect();
    assert_eq!(let_go, ["let i-a go", "let i-b go"]);
    let terminated = quay.log.iter().filter(|line| line.starts_with("terminate "));
    assert_eq!(terminated.collect::<Vec<_>>(), ["terminate i-c"], "a retained machine costs money");
    assert!(!quay.log.iter().any(|line| line.contains("Drain")), "{:?}", quay.log);
}

/// Whether `line` was logged after the last occurrence of `other`.
fn comes_after(quay: &Quay, line: &str, other: &str) -> bool {
    let at = |what: &str| quay.log.iter().rposition(|line| line.contains(what));
    at(line) > at(other)
}

#[test]
fn a_snapshot_of_before_a_pause_or_another_order_is_not_the_last() {
    // In both cases pools are already gone, and etcd still accepts writes.
    for paused in [true, false] {
        let mut quay = Quay::new();
        quay.harbour.fake.deleting = (!paused).then_some(StackStatus::DeleteFailed);
        quay.wake(Some(ordered(0, false)));
        while !quay.deletions().contains(&"c-pool-a") {
            quay.wake(None);
        }
        if paused {
            let minute = quay.minute;
            quay.wake(Some(Given { order: Order::Pause, at: at(minute) }));
        } else {
            // A failure is believed after two minutes.
            (0..3).for_each(|_| drop(quay.wake(None)));
        }
        quay.harbour.fake.deleting = None;
        quay.minute += 600;
        let minute = quay.minute;
        quay.log.clear();
        let order = if paused { Order::Resume } else { ordered(minute, false).order };
        let report = quay.run(Given { order, at: at(minute) });
        assert_eq!(report.state.as_str(), "destroyed", "{}", report.message);
        assert!(comes_after(&quay, "delete c-etcd", "EtcdSnapshot") && report.message.contains(KEY));
        assert!(quay.log.iter().any(|line| line.contains("EtcdSnapshot")), "{:?}", quay.log);
    }

    // An order without another snapshot keeps the earlier one.
    let mut quay = Quay::new();
    quay.harbour.fake.deleting = Some(StackStatus::DeleteFailed);
    quay.run(ordered(0, false));
    quay.harbour.fake.deleting = None;
    quay.snapshot = Err("no space left");
    let minute = quay.minute;
    assert_eq!(quay.run(ordered(minute, false)).state.as_str(), "failed");
    let minute = quay.minute;
    let report = quay.run(ordered(minute, true));
    assert!(report.state.as_str() == "destroyed" && report.message.contains(KEY), "{}", report.message);

    // Operations of CloudFormation in progress are completed, even if there is no snapshot.
    let mut quay = Quay::new();
    quay.harbour.fake.deleting = Some(StackStatus::DeleteInProgress);
    for minute in 0..6 {
        quay.wake((minute == 0).then(|| ordered(0, false)));
    }
    quay.snapshot = Err("no space left");
    let minute = quay.minute;
    quay.wake(Some(ordered(minute, false)));
    for _ in 0..10 {
        quay.wake(None);
    }
    quay.harbour.fake.stacks.remove("c-pool-a");
    quay.harbour.fake.stacks.remove("c-pool-b");
    let report = quay.wake(None);
    assert_eq!((report.state.as_str(), quay.state.needs_tick()), ("failed", false), "{}", report.message);
    assert_eq!(quay.deletions(), ["c-pool-a", "c-pool-b"]);
}

#[test]
fn p10_an_order_to_destroy_that_comes_after_the_abort_that_was_given_later_is_not_obeyed() {
    let mut quay = Quay::new();
    quay.wake(Some(Given { order: Order::Abort { plan: None }, at: at(5) }));
    quay.wake(Some(ordered(4, false)));
    assert!(!quay.state.is_going());
    quay.wake(Some(ordered(6, false)));
    assert!(quay.state.is_going(), "a later order is obeyed");
}

#[test]
fn a_stack_that_is_half_gone_when_a_destruction_is_called_off_is_made_anew() {
    let mut quay = Quay::new();
    quay.harbour.fake.deleting = Some(StackStatus::DeleteFailed);
    assert_eq!(quay.run(ordered(0, false)).state.as_str(), "failed");
    let minute = quay.minute;
    let report = quay.wake(Some(Given { order: Order::Abort { plan: None }, at: at(minute) }));
    assert_eq!(report.state.as_str(), "aborted", "{}", report.message);
    assert!(!quay.state.deployed.contains_key("c-pool-a") && quay.state.deployed.contains_key("c-etcd"));
    let wanted = quay.harbour.plan(&quay.state, &exporting(2, true));
    let made = wanted.plan.stacks.iter().find(|stack| stack.name == "c-pool-a").map(|stack| stack.action);
    assert_eq!(made, Some(slipway_plan::StackAction::Create));
}

#[test]
fn where_the_last_snapshot_lies_is_still_known_when_what_is_left_of_a_cluster_goes_later() {
    let mut quay = Quay::new();
    quay.wake(Some(ordered(0, false)));
    while !quay.deletions().contains(&"c-etcd") {
        quay.wake(None);
    }
    let minute = quay.minute;
    let mut report = quay.wake(Some(Given { order: Order::Abort { plan: None }, at: at(minute) }));
    quay.harbour.fake.stacks.remove("c-etcd");
    quay.members = 0;
    while report.state.as_str() != "aborted" {
        report = quay.wake(None);
    }
    assert!(report.message.contains(KEY), "{}", report.message);
    quay.log.clear();
    let minute = quay.minute;
    let report = quay.run(ordered(minute, false));
    assert!(report.state.as_str() == "destroyed" && report.message.contains(KEY), "{}", report.message);
    assert!(!quay.log.iter().any(|line| line.contains("EtcdSnapshot")), "there is no etcd to save");
    let gone = quay.state.was_destroyed().and_then(|gone| gone.snapshot.as_deref());
    assert_eq!((gone, quay.state.last_snapshot.as_deref()), (Some(KEY), Some(KEY)));
}

#[test]
fn a_snapshot_that_was_being_taken_when_it_was_paused_is_not_the_last() {
    let mut quay = Quay::new();
    quay.wake(Some(ordered(0, false)));
    let taken = |quay: &Quay| quay.log.iter().filter(|line| line.contains("EtcdSnapshot")).count();
    while taken(&quay) == 0 {
        quay.wake(None);
    }
    for order in [Order::Pause, Order::Resume] {
        let minute = quay.minute;
        quay.wake(Some(Given { order, at: at(minute) }));
    }
    while quay.deletions().is_empty() {
        quay.wake(None);
    }
    assert_eq!(taken(&quay), 2);
}
