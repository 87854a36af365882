//! Replacing and refreshing a member of etcd, look by look.

use slipway_core::node::{EtcdHealth, LeaderMoved};

use super::dock::*;
use super::*;
use crate::outbox::{Evidence, Seen};
use crate::waits::{Asks, Comes, Danger, Detail, Many};

const MINUTE: i64 = 60;
/// How long a machine, or the health of the others, is waited for.
const HOUR: i64 = 3_600;

fn replace(phase: Value) -> Value {
    json!({"memberReplace": {"work": {}, "phase": phase}})
}

fn refresh(work: Value, phase: Value) -> Value {
    json!({"memberRefresh": {"work": work, "phase": phase}})
}

fn new_credentials() -> Value {
    json!({"credentials": "new"})
}

fn check(round: Value) -> Value {
    json!({"check": {"machine": "i-0", "round": round}})
}

fn moves_leader() -> Value {
    json!({"act": {"moveLeader": asks(0, &json!("etcdMoveLeader"), 0)}})
}

fn terminates(machine: &str) -> Effect {
    Effect::Terminate { group: "c-etcd-0".to_owned(), instance: machine.to_owned(), then_desired: None }
}

fn saver(phase: Value) -> Value {
    json!({"saver": {"phase": phase}})
}

#[test]
fn p4_a_member_that_is_silent_for_a_hundred_seconds_goes_on_what_the_others_said_of_their_health() {
    let mut dock = Dock::of_etcd_0(replace(look_state()));
    assert_eq!(dock.advance_at(0), (Place::Snapshot, Some(Waits::Snapshot)));
    assert_eq!(dock.commands_sent(), asks_snapshot("i-1"));
    assert_eq!(dock.advance_at(10), (Place::Snapshot, Some(Waits::Snapshot)));
    dock.takes_snapshot();
    assert_eq!(dock.advance_at(20), (Place::Check, Some(Waits::Answers(Asks::Members))));
    assert_eq!(dock.commands_sent(), health_commands());
    let tokens: Vec<String> = dock.step().commands().iter().map(|one| one.command.token.clone()).collect();
    dock.set_answer(&tokens[1], well(1));
    dock.set_answer(&tokens[2], well(2));
    assert_eq!(dock.advance_at(20 + 100), (Place::Check, Some(Waits::Answers(Asks::Members))));
    assert_eq!(dock.advance_at(20 + 101), (Place::Successor, Some(Waits::Replaced)));
    assert_eq!(dock.effects(), [terminates("i-0")]);
    assert_eq!(dock.done[0].evidence, Some(Evidence::new(Seen::Members, at(20))));
    // A snapshot is as old as its beginning.
    assert_eq!(dock.active.nodes.snapshot_at, Some(at(0)));
    assert_eq!(
        dock.task(),
        json!({"work": {}, "phase": since(121, json!({"act": {"successor": {"machine": "i-0"}}}))})
    );
}

#[test]
fn p4_p12_what_was_said_more_than_three_minutes_ago_is_asked_anew_for_an_hour() {
    // All have answered, but no look came in time: the state was entered at second 0.
    let old = |now: i64, age: i64| {
        Dock::of_etcd_0(replace(since(0, check(round(now - age))))).saved(now - 2 * MINUTE)
    };
    let mut dock = old(1_000, 180);
    assert_eq!(dock.advance_at(1_000), (Place::Successor, Some(Waits::Replaced)));
    assert_eq!(dock.effects(), [terminates("i-0")]);
    for now in [1_000, HOUR] {
        let mut dock = old(now, 181);
        assert_eq!(dock.advance_at(now), (Place::Check, Some(Waits::Answers(Asks::Members))));
        assert_eq!(dock.commands_sent(), health_commands());
    }
    let mut dock = old(HOUR + 1, 181);
    assert_eq!(dock.advance_at(HOUR + 1).0, Place::Failed);
    assert_eq!(dock.step().failure(), Some("not all members answer within 60 minutes"));
}

#[test]
fn p4_a_member_goes_only_while_the_snapshot_counts_and_a_window_is_open() {
    let checked = || Dock::of_etcd_0(replace(since(1_900, check(round(1_900)))));
    // The snapshot has become too old meanwhile: another one is taken first.
    let mut dock = checked().saved(2_000 - 15 * MINUTE - 1);
    assert_eq!(dock.advance_at(2_000), (Place::Snapshot, Some(Waits::Snapshot)));
    assert_eq!(dock.commands_sent(), asks_snapshot("i-1"));
    // The window has closed meanwhile.
    let mut dock = checked().saved(1_900);
    dock.active.nodes.windows = vec![MaintenanceWindow { days: vec![], start_minute: 600, length_min: 30 }];
    assert_eq!(dock.advance_at(2_000), (Place::Look, Some(Waits::Window { at_most_until: None })));
    assert_eq!(dock.effects(), []);
}

/// Its termination is decided at the end of the quarter of an hour, and may be performed by another invocation minutes later.
#[test]
fn p4_p12_the_age_of_the_snapshot_ends_the_evidence_too() {
    for (age, until) in [(11, 3), (13, 2), (15, 0)] {
        let now = 2_000;
        let mut dock = Dock::of_etcd_0(replace(since(now, check(round(now))))).saved(now - age * MINUTE);
        assert_eq!(dock.advance_at(now), (Place::Successor, Some(Waits::Replaced)));
        let evidence = Evidence { until: at(now + until * MINUTE), ..Evidence::new(Seen::Members, at(now)) };
        assert_eq!(dock.done[0].evidence, Some(evidence), "{age}");
    }
}

/// Auto Scaling terminates a machine that it finds unhealthy although its member serves: two of three would go in the same minute.
#[test]
fn p4_no_member_goes_while_auto_scaling_is_about_to_replace_another_one() {
    for (unhealthy, place) in [(0, Place::Successor), (1, Place::Check), (2, Place::Check)] {
        let mut dock = Dock::of_etcd_0(replace(since(0, check(round(0))))).saved(0);
        let name = format!("c-etcd-{unhealthy}");
        let group = dock.observed.groups.get_mut(&name).unwrap().as_mut().unwrap();
        group.machines.values_mut().for_each(|machine| machine.healthy = false);
        let (reached, waits) = dock.advance_at(10);
        assert_eq!(reached, place, "{unhealthy}");
        let danger = Danger::ReplacedByOthers(format!("i-{unhealthy}"));
        assert_eq!(waits == Some(Waits::Dangers(vec![danger])), place == Place::Check, "{waits:?}");
    }
}

/// A rollout that failed left a member ill. The next one, which has the correction, could otherwise begin with no other member, nor end.
#[test]
fn p4_the_only_ill_member_goes_first_if_it_is_to_be_worked_on_later() {
    let verifies = replace(since(0, json!({"verify": round(0)})));
    let checks = replace(since(0, check(round(0))));
    let dock = |task: &Value, ill: &[u32]| {
        let mut dock = Dock::of_etcd_0(task.clone()).saved(0);
        dock.active.nodes.steps.push(step("etcd-1", replace(look_state())));
        dock.active.nodes.steps.push(step("etcd-2", refresh(new_credentials(), look_state())));
        ill.iter().for_each(|number| dock.fails(&format!("i-{number}")));
        dock
    };
    let order = |dock: &mut Dock, second| {
        dock.advance_at(second);
        Vec::from_iter(dock.active.nodes.steps.iter().map(|step| (step.role.member().unwrap(), step.place())))
    };
    let look = Place::Look;
    let refreshed = refresh(new_credentials(), since(0, json!({"verify": round(0)})));
    for task in [&checks, &verifies, &refreshed] {
        assert_eq!(order(&mut dock(task, &[1]), 10), [(1, look), (0, look), (2, look)]);
        let mut last = dock(task, &[2]);
        assert_eq!(order(&mut last, 10), [(2, look), (0, look), (1, look)]);
        assert_eq!(last.effects(), []);
        // No time of its own counts until its turn comes again.
        let first = serde_json::to_value(&last.active.nodes.steps[1].task).unwrap();
        let first = first.as_object().unwrap().values().next().unwrap();
        assert_eq!(first["phase"], look_state());
        assert_eq!(order(&mut last, 70), [(2, Place::Check), (0, look), (1, look)]);
        assert_eq!(last.commands_sent(), health_commands());

        // If more than one is ill, nobody is taken down.
        let same = |dock: &mut Dock| order(dock, 10)[0] != (0, look) && order(dock, 10)[0].0 == 0;
        assert!(same(&mut dock(task, &[1, 2])), "two are ill");
        let mut without = dock(task, &[2]);
        without.active.nodes.steps.pop();
        assert!(same(&mut without), "the one that is ill stays as it is");
        let mut done_before = dock(task, &[2]);
        done_before.active.nodes.steps[2] = step("etcd-2", replace(done(false)));
        assert!(same(&mut done_before), "the one that is ill is done already");
        let mut closed = dock(task, &[2]);
        closed.active.nodes.windows =
            vec![MaintenanceWindow { days: vec![], start_minute: 600, length_min: 30 }];
        assert!(same(&mut closed), "nothing may begin");
    }
    // Two never let each other go first.
    let mut swapped = dock(&replace(look_state()), &[0]);
    swapped.active.nodes.steps.rotate_right(1);
    swapped.active.nodes.steps[0] = step("etcd-2", checks);
    assert_eq!(order(&mut swapped, 10), [(2, Place::Check), (0, look), (1, look)]);
    // What was just changed may be why another one is ill.
    let mut changed = verifies;
    changed["memberReplace"]["work"] = json!({"replaced": true});
    assert_eq!(order(&mut dock(&changed, &[2]), 10)[0], (0, Place::Verify));
}

#[test]
fn p4_p10_what_members_said_before_a_pause_proves_nothing_after_it() {
    for (task, place) in [(json!({"verify": round(0)}), Place::Verify), (check(round(0)), Place::Look)] {
        let mut dock = Dock::of_etcd_0(replace(since(0, task)));
        dock.active.nodes.resumed(at(7 * HOUR));
        assert_eq!(dock.step().place(), place);
        assert_eq!(dock.step().commands(), []);
    }
}

#[test]
fn p4_a_member_that_may_not_be_taken_down_is_waited_for_an_hour() {
    let lags = |now| {
        let mut dock = Dock::of_etcd_0(replace(since(0, check(round(now)))));
        dock.set_answer("i-2", EtcdHealth { raft_lag: Some(11), ..well(2) });
        dock.advance_at(now)
    };
    let danger = Danger::Behind { role: Role::Etcd(2), entries: Detail(11), limit: 10 };
    for second in [30, HOUR] {
        assert_eq!(lags(second), (Place::Check, Some(Waits::Dangers(vec![danger.clone()]))), "{second}");
    }
    assert_eq!(lags(HOUR + 1).0, Place::Failed);
}

#[test]
fn a_member_without_a_machine_is_waited_for_an_hour() {
    for task in [replace(look_state()), refresh(new_credentials(), look_state())] {
        let mut dock = Dock::of_etcd_0(task);
        dock.sees("c-etcd-0", &[]);
        for second in [0, HOUR] {
            let waits = Waits::Boot(Comes::Own, Vec::new());
            assert_eq!(dock.advance_at(second), (Place::Look, Some(waits)), "{second}");
        }
        assert_eq!(dock.advance_at(HOUR + 1).0, Place::Failed);
        let why = "c-etcd-0 has no machine in service after 60 minutes: no machine boots";
        assert_eq!(dock.step().failure(), Some(why));
    }
}

fn looks_for_a_snapshot() -> Value {
    open(json!("look"))
}

#[test]
fn p4_a_snapshot_that_no_member_can_take_is_waited_for_an_hour() {
    let of_nobody = |task: Value| {
        let mut dock = Dock::of_etcd_0(task);
        dock.active.nodes.members.clear();
        dock
    };
    for mut dock in [of_nobody(replace(look_state())), of_nobody(saver(looks_for_a_snapshot()))] {
        for second in [0, HOUR] {
            assert_eq!(dock.advance_at(second), (Place::Look, Some(Waits::Snapshot)), "{second}");
        }
        assert_eq!(dock.advance_at(HOUR + 1).0, Place::Failed);
        let why = "no member of etcd has served for 60 minutes that could take a snapshot";
        assert_eq!(dock.step().failure(), Some(why));
    }
}

#[test]
fn p4_a_snapshot_before_members_join_is_tried_again_after_pauses_and_given_up_for_good() {
    let mut dock = Dock::of_etcd_0(saver(looks_for_a_snapshot()));
    let mut now = 0;
    for pause in [MINUTE, 5 * MINUTE] {
        assert_eq!(dock.advance_at(now), (Place::Snapshot, Some(Waits::Snapshot)));
        assert_eq!(dock.commands_sent(), asks_snapshot("i-1"));
        let token = dock.token();
        dock.fails(&token);
        let again = (Place::Look, Some(Waits::AnotherTry(Detail(String::new()))));
        assert_eq!(dock.advance_at(now + 1), again);
        assert_eq!(dock.advance_at(now + pause), again);
        assert_eq!(dock.effects(), []);
        now += 1 + pause;
    }
    assert_eq!(dock.advance_at(now).0, Place::Snapshot);
    let token = dock.token();
    dock.fails(&token);
    assert_eq!(dock.advance_at(now + 1).0, Place::Failed);
    // While Run Command refuses the commands, or reaches no agent, it is no try: Systems Manager may be out of reach.
    let mut dock = Dock::of_etcd_0(saver(looks_for_a_snapshot()));
    let mut now = 0;
    let most = 2 * Verb::EtcdSnapshot.answers_within().as_secs();
    while now < most {
        assert_eq!(dock.advance_at(now), (Place::Snapshot, Some(Waits::Snapshot)), "{now}");
        let token = dock.token();
        dock.active.nodes.unsent(&token, "no");
        let again = (Place::Look, Some(Waits::AnotherTry(Detail(String::new()))));
        assert_eq!(dock.advance_at(now + 1), again, "{now}");
        now += 2 + MINUTE;
    }
    assert_eq!(dock.advance_at(now).0, Place::Snapshot);
    let token = dock.token();
    dock.active.nodes.unsent(&token, "no");
    assert_eq!(dock.advance_at(now + 1).0, Place::Failed);
    let why = dock.step().failure().unwrap_or_default();
    assert!(why.contains("no command has reached i-1 for 68 minutes: no"), "{why}");
    // One that takes longer than it counts is never of use: without an end, another one was taken each time.
    let mut dock = Dock::of_etcd_0(saver(looks_for_a_snapshot()));
    let mut now = 0;
    let counts = crate::nodes::danger::SNAPSHOT_AGE.as_secs();
    for place in [Place::Look, Place::Look, Place::Failed] {
        assert_eq!(dock.advance_at(now).0, Place::Snapshot);
        dock.takes_snapshot();
        assert_eq!(dock.advance_at(now + counts + 1).0, place, "{now}");
        now += counts + 1 + 6 * MINUTE;
    }
    let why = dock.step().failure().unwrap_or_default();
    assert!(why.contains("it took 15 minutes on i-1"), "{why}");
    // A snapshot is all that this step needs.
    let mut dock = Dock::of_etcd_0(saver(looks_for_a_snapshot()));
    dock.advance_at(0);
    dock.takes_snapshot();
    assert_eq!(dock.advance_at(10), (Place::Done, None));
    assert_eq!(dock.active.nodes.snapshot_at, Some(at(0)));
}

/// A renewal failed by a single lost command, half an hour after another one.
#[test]
fn p7_what_reached_no_machine_does_not_count_once_something_has_or_after_a_pause() {
    let tries = |document: &str, failed_at: i64| {
        let last = json!({"at": at(failed_at), "why": "no"});
        tries(document, json!({"tries": 0, "unreachedSince": at(0), "last": last}))
    };
    for (document, failed_at, place) in [
        ("Slipway-EtcdSnapshot", 3_300, Place::Look),
        ("Slipway-EtcdMoveLeader", 3_300, Place::Failed),
        ("Slipway-EtcdMoveLeader", -1, Place::Look),
    ] {
        let tries = tries(document, failed_at);
        let task = json!({"work": {}, "tries": tries, "phase": since(3_600, check(round(3_600)))});
        let mut dock = Dock::of_etcd_0(json!({"memberReplace": task})).saved(3_500);
        (0..3).for_each(|index| dock.set_answer(&format!("i-{index}"), well(index)));
        dock.set_answer("i-0", EtcdHealth { leads: true, ..well(0) });
        assert_eq!(dock.advance_at(3_600).0, Place::MoveLeader);
        let token = dock.token();
        dock.active.nodes.unsent(&token, "no");
        assert_eq!(dock.advance_at(3_601).0, place, "{failed_at}");
    }
    // The snapshot that comes in the end is what counts.
    let task = json!({"work": {}, "tries": tries("Slipway-EtcdSnapshot", 300), "phase": since(400, json!({"look": {}}))});
    let mut dock = Dock::of_etcd_0(json!({"memberReplace": task}));
    assert_eq!(dock.advance_at(400).0, Place::Snapshot);
    dock.takes_snapshot();
    dock.advance_at(410);
    assert!(!serde_json::to_string(&dock.step().task).unwrap().contains("unreached"));
}

/// A group whose process Launch is suspended launches no successor.
#[test]
fn p4_no_member_goes_for_which_no_other_machine_would_come() {
    for (suspended, place) in [(true, Place::Check), (false, Place::Successor)] {
        let mut dock =
            Dock::of_etcd_0(json!({"memberReplace": {"work": {}, "phase": since(0, check(round(0)))}}))
                .saved(0);
        (0..3).for_each(|index| dock.set_answer(&format!("i-{index}"), well(index)));
        dock.observed.groups.get_mut("c-etcd-0").unwrap().as_mut().unwrap().launch_suspended = suspended;
        assert_eq!(dock.advance_at(10).0, place, "{suspended}");
        assert_eq!(dock.effects().is_empty(), suspended);
    }
}

/// Its answer was lost or cut, and it was terminated as if another one led.
#[test]
fn p4_whether_a_member_leads_is_known_by_the_others_if_its_own_answer_is_not() {
    for (leads, place) in [(true, Place::MoveLeader), (false, Place::Successor)] {
        // An earlier snapshot failed, which says nothing about leadership.
        let tries = tries("Slipway-EtcdMoveLeader", json!({"tries": 1}));
        let task = json!({"work": {}, "phase": since(0, check(round(0))), "tries": tries});
        let mut dock = Dock::of_etcd_0(json!({"memberReplace": task})).saved(0);
        dock.fails("i-0");
        let mut other = well(1);
        other.members[0].leads = leads;
        dock.set_answer("i-1", other.clone());
        assert_eq!(dock.advance_at(10).0, place, "{leads}");
        if !leads {
            continue;
        }
        assert_eq!(dock.commands_sent(), [("i-0".to_owned(), Verb::EtcdMoveLeader)]);
        // Its agent cannot move leadership either: the member goes, and hands over as the last thing it does.
        let token = dock.token();
        dock.fails(&token);
        assert_eq!(dock.advance_at(20).0, Place::Look);
        for second in (30..900).step_by(30) {
            let commands: Vec<_> = dock.step().commands().to_vec();
            for sent in commands {
                let number = sent.role.member().unwrap();
                if number == 0 {
                    dock.fails(&sent.command.token);
                } else {
                    dock.set_answer(
                        &sent.command.token,
                        EtcdHealth { members: other.members.clone(), ..well(number) },
                    );
                }
            }
            if dock.advance_at(second).0 == Place::Successor {
                break;
            }
        }
        assert_eq!(dock.effects(), [terminates("i-0")]);
    }
}

#[test]
fn p2_a_member_that_seems_as_planned_is_looked_at_for_two_minutes_before_that_is_believed() {
    for task in [replace(look_state()), refresh(new_credentials(), look_state())] {
        let mut dock = Dock::of_etcd_0(task);
        dock.sees("c-etcd-0", &[("i-0", NEW)]);
        for second in [0, 119] {
            assert_eq!(
                dock.advance_at(second),
                (Place::Look, Some(Waits::SecondLook(Many::One))),
                "{second}"
            );
            assert_eq!(dock.effects(), []);
        }
        assert_eq!(dock.advance_at(120), (Place::Verify, Some(Waits::Answers(Asks::Members))));
        assert_eq!(dock.commands_sent(), health_commands());
    }
    // A machine that was refreshed is known to have its credentials, whatever its group shows.
    let mut dock = Dock::of_etcd_0(refresh(json!({"credentials": "new", "renewed": "i-0"}), look_state()));
    assert_eq!(dock.advance_at(0), (Place::Verify, Some(Waits::Answers(Asks::Members))));
}

#[test]
fn p4_leadership_is_moved_by_the_machine_that_serves_and_by_no_other() {
    let moving = || Dock::of_etcd_0(replace(since(0, moves_leader()))).saved(0);
    let mut dock = moving();
    dock.observed.answers.clear();
    assert_eq!(dock.advance_at(10), (Place::MoveLeader, Some(Waits::Leader)));
    assert_eq!(dock.effects(), []);
    // Its machine is gone, and another one is in service: all are asked about that one.
    dock.sees("c-etcd-0", &[("i-9", OLD)]);
    assert_eq!(dock.advance_at(20), (Place::Check, Some(Waits::Answers(Asks::Members))));
    let sent: Vec<String> = dock.commands_sent().into_iter().map(|(machine, _)| machine).collect();
    assert_eq!(sent, ["i-9", "i-1", "i-2"]);
    // Run Command refused the command: it is tried again.
    let mut dock = moving();
    dock.active.nodes.unsent("i-0", "no");
    assert_eq!(dock.advance_at(10), (Place::Look, Some(Waits::AnotherTry(Detail(String::new())))));
    let tried = json!({"tries": 0, "unreachedSince": at(0), "last": {"at": at(10), "why": "no"}});
    let failures = keeps_leadership(&tries("Slipway-EtcdMoveLeader", tried));
    assert_eq!(dock.task(), json!({"work": {}, "tries": failures, "phase": since(10, json!({"look": {}}))}));
}

/// It leads again after that, and its own answer was lost: it was terminated as the leader.
#[test]
fn p4_leadership_that_was_moved_once_can_be_moved_again_whatever_failed_before() {
    let forgotten = tries("Slipway-EtcdMoveLeader", json!({"tries": 1}));
    let tries = keeps_leadership(&forgotten);
    let task = json!({"memberReplace": {"work": {}, "phase": since(0, moves_leader()), "tries": tries}});
    let mut dock = Dock::of_etcd_0(task).saved(0);
    dock.set_answer("i-0", LeaderMoved { moved: true, leader: "1".to_owned(), reason: None });
    assert_eq!(dock.advance_at(10).0, Place::Check);
    assert_eq!(dock.task()["tries"], forgotten);
}

/// The answer to the command was cut although it had moved leadership. Much later it leads again, and its own answer is lost.
#[test]
fn p4_a_failure_to_move_leadership_counts_no_more_once_another_member_was_seen_to_lead() {
    for (is_seen, place) in [(true, Place::MoveLeader), (false, Place::Successor)] {
        let tries = keeps_leadership(&tries("Slipway-EtcdMoveLeader", json!({"tries": 1})));
        let task = json!({"memberReplace": {"work": {}, "phase": since(0, check(round(0))), "tries": tries}});
        let mut dock = Dock::of_etcd_0(task).saved(0);
        let leads = |which: usize| {
            let mut health = well(1);
            health.members.iter_mut().enumerate().for_each(|(n, member)| member.leads = n == which);
            health
        };
        // etcd-2 does not answer, so that nothing goes on in this round.
        dock.fails("i-2");
        dock.set_answer("i-1", leads(if is_seen { 1 } else { 0 }));
        assert_eq!(dock.advance_at(10).0, Place::Check);
        dock.advance_at(70);
        let commands: Vec<_> = dock.step().commands().to_vec();
        assert_eq!(commands.len(), 3);
        for sent in commands {
            match sent.role.member().unwrap() {
                0 => dock.fails(&sent.command.token),
                number => dock.set_answer(
                    &sent.command.token,
                    EtcdHealth { members: leads(0).members, ..well(number) },
                ),
            }
        }
        assert_eq!(dock.advance_at(80).0, place, "{is_seen}");
    }
}

#[test]
fn p4_a_member_that_was_told_to_go_and_still_serves_is_looked_at_anew_after_five_minutes() {
    let goes = || {
        let state = json!({"act": {"successor": {"machine": "i-0"}}});
        Dock::of_etcd_0(replace(since(0, state))).saved(0)
    };
    let waits = Some(Waits::Boot(Comes::Successor, Vec::new()));
    let mut dock = goes();
    for second in [0, 1, 300] {
        assert_eq!(dock.advance_at(second), (Place::Successor, waits.clone()), "{second}");
    }
    assert_eq!(dock.advance_at(301), (Place::Check, Some(Waits::Answers(Asks::Members))));
    // Only a machine with the new template is the successor: neither an old one, nor the machine itself in a late answer.
    for machine in [("i-9", OLD), ("i-0", NEW)] {
        let mut dock = goes();
        dock.sees("c-etcd-0", &[machine]);
        assert_eq!(dock.advance_at(60), (Place::Successor, waits.clone()), "{machine:?}");
    }
    let mut dock = goes();
    dock.sees("c-etcd-0", &[("i-9", NEW)]);
    assert_eq!(dock.advance_at(60), (Place::Verify, Some(Waits::Answers(Asks::Members))));
    // No successor comes.
    let mut dock = goes();
    dock.sees("c-etcd-0", &[]);
    for second in [301, HOUR] {
        assert_eq!(dock.advance_at(second), (Place::Successor, waits.clone()), "{second}");
    }
    assert_eq!(dock.advance_at(HOUR + 1).0, Place::Failed);
}

#[test]
fn p4_p11_a_member_that_came_back_is_done_only_once_it_is_healthy_itself() {
    let verified = |own: EtcdHealth| {
        let mut dock = Dock::of_etcd_0(replace(since(0, json!({"verify": round(0)}))));
        dock.sees("c-etcd-0", &[("i-0", NEW)]);
        dock.set_answer("i-0", own);
        dock.advance_at(10).0
    };
    assert_eq!(verified(well(0)), Place::Done);
    for ill in [
        EtcdHealth { serving: false, ..well(0) },
        EtcdHealth { learner: true, ..well(0) },
        EtcdHealth { raft_lag: Some(11), ..well(0) },
        EtcdHealth { raft_lag: None, ..well(0) },
    ] {
        assert_eq!(verified(ill.clone()), Place::Verify, "{ill:?}");
    }
}

#[test]
fn p7_credentials_that_expired_are_taken_on_what_is_seen_now_and_those_that_did_not_on_what_members_said() {
    for (expired, evidence) in
        [(false, Evidence::new(Seen::Members, at(0))), (true, Evidence::new(Seen::World, at(100)))]
    {
        let dock = Dock::of_etcd_0(refresh(new_credentials(), since(0, check(round(0))))).saved(0);
        let mut dock = if expired { dock.expired() } else { dock };
        assert_eq!(dock.advance_at(100), (Place::Refresh, Some(Waits::Credentials(Vec::new()))));
        let verb = Verb::Refresh { credentials: "new".to_owned(), restart: true };
        assert_eq!(dock.commands_sent(), [("i-0".to_owned(), verb)]);
        assert_eq!(dock.done[0].evidence, Some(evidence), "{expired}");
    }
}

#[test]
fn p7_after_credentials_that_expired_the_others_are_waited_for_three_minutes() {
    let verify = |now: i64| {
        let state = json!({"verify": round(now)});
        let mut dock = Dock::of_etcd_0(refresh(new_credentials(), since(0, state))).expired();
        dock.fails("i-2");
        dock.advance_at(now)
    };
    let problem = Detail(String::new());
    let danger = Danger::SilentMember { role: Role::Etcd(2), problem };
    assert_eq!(verify(179), (Place::Verify, Some(Waits::Dangers(vec![danger]))));
    assert_eq!(verify(180), (Place::Done, None));
}

#[test]
fn p4_a_member_that_has_left_is_asked_no_more_and_one_that_leaves_is() {
    let leaver = |phase: Value| step("etcd-3", json!({"leaver": {"phase": phase}}));
    let mut dock = Dock::of_etcd_0(saver(looks_for_a_snapshot()));
    dock.active.nodes.steps = vec![leaver(since(0, json!({"verify": round(0)})))];
    dock.active.nodes.leaving.insert(Role::Etcd(3), "c-etcd-3".to_owned());
    dock.sees("c-etcd-3", &[("i-3", OLD)]);
    dock.fails("i-2");
    assert_eq!(dock.advance_at(1).0, Place::Verify);
    assert_eq!(Vec::from_iter(dock.active.nodes.leaving.keys()), [&Role::Etcd(3)]);
    dock.set_answer("i-2", well(2));
    assert_eq!(dock.advance_at(2).0, Place::Done);
    assert_eq!(dock.active.nodes.leaving, BTreeMap::new());
}

/// Each look changed the state, so that no invocation came to rest while the only member had no machine.
#[test]
fn p8_asking_nobody_changes_nothing() {
    let work = json!({"credentials": "new", "renewed": "i-0"});
    let task = json!({"memberRefresh": {"work": work, "phase": since(0, json!({"verify": []}))}});
    let mut dock = Dock::of_etcd_0(task);
    for number in 0..3 {
        dock.sees(&format!("c-etcd-{number}"), &[]);
    }
    dock.advance_at(10);
    let before = serde_json::to_value(dock.step()).unwrap();
    dock.advance_at(20);
    assert_eq!(serde_json::to_value(dock.step()).unwrap(), before);
}
