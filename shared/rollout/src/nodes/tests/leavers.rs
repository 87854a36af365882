//! Removing a member from etcd, look by look.

use slipway_core::cluster::{Approval, MaintenanceWindow};
use slipway_core::deadline::Deadline;
use slipway_core::node::{EtcdHealth, EtcdMemberHealth, LeaderMoved, MemberRemoved};

use super::dock::*;
use super::*;
use crate::outbox::{Evidence, Seen};
use crate::tests::{rendering, wanted};
use crate::waits::{Asks, Detail};

/// How long a machine that could take a snapshot is waited for.
const HOUR: i64 = 3_600;

/// etcd-0 is removed, and the two others stay.
fn leaver(phase: Value) -> Dock {
    leaver_with(json!({"phase": phase}))
}

fn leaver_with(task: Value) -> Dock {
    let mut dock = Dock::of_etcd_0(json!({"leaver": task}));
    let (role, group) = dock.active.nodes.members.pop_first().unwrap();
    dock.active.nodes.leaving.insert(role, group);
    dock
}

/// A step whose members were asked at second 0, and all are healthy.
fn checks() -> Dock {
    leaver(since(0, json!({"check": {"machine": "i-0", "round": round(0)}}))).saved(0)
}

/// The answer of a healthy member that does not know etcd-0.
fn without_etcd_0(number: u32) -> EtcdHealth {
    let mut health = well(number);
    health.members.retain(|member| member.name != "etcd-0");
    health
}

fn all_are_well(dock: &mut Dock, well: fn(u32) -> EtcdHealth) {
    let tokens: Vec<String> = dock.step().commands().iter().map(|one| one.command.token.clone()).collect();
    for (token, number) in tokens.iter().zip(0..) {
        dock.set_answer(token, well(number));
    }
}

/// etcd-1, which stays, has the command to remove etcd-0.
fn takes_out() -> Vec<(String, Verb)> {
    vec![("i-1".to_owned(), Verb::EtcdRemove { member: "etcd-0".to_owned() })]
}

#[test]
fn p4_a_member_leaves_after_a_snapshot_and_a_check_and_one_that_stays_takes_it_out() {
    let mut dock = leaver(open(json!("look")));
    let again = (Place::Look, Some(Waits::AnotherTry(Detail(String::new()))));
    assert_eq!(dock.advance_at(0), (Place::Snapshot, Some(Waits::Snapshot)));
    assert_eq!(dock.commands_sent(), asks_snapshot("i-1"));
    // A failed snapshot is tried again after a pause.
    dock.fails(&dock.token());
    assert_eq!(dock.advance_at(10), again);
    let tries =
        tries("Slipway-EtcdSnapshot", json!({"tries": 1, "last": {"at": at(10), "why": "no (on i-1)"}}));
    assert_eq!(dock.task(), json!({"tries": tries, "phase": since(10, json!("look"))}));
    assert_eq!((dock.advance_at(69), dock.effects()), (again, Vec::new()));
    assert_eq!(dock.advance_at(70), (Place::Snapshot, Some(Waits::Snapshot)));
    assert_eq!(dock.commands_sent(), asks_snapshot("i-1"));
    dock.takes_snapshot();
    assert_eq!(dock.advance_at(80), (Place::Check, Some(Waits::Answers(Asks::Members))));
    assert_eq!((dock.commands_sent(), dock.active.nodes.snapshot_at), (health_commands(), Some(at(70))));
    all_are_well(&mut dock, well);
    assert_eq!(dock.advance_at(90), (Place::Remove, Some(Waits::MemberRemoval)));
    assert_eq!(dock.commands_sent(), takes_out());
    assert_eq!(dock.done[0].evidence, Some(Evidence::new(Seen::Members, at(80))));
    let token = dock.token();
    dock.set_answer(&token, MemberRemoved { removed: true, id: None, members: 2 });
    assert_eq!(dock.advance_at(100), (Place::Verify, Some(Waits::Answers(Asks::MembersLeft))));
    assert_eq!(dock.commands_sent(), health_commands());
    all_are_well(&mut dock, without_etcd_0);
    assert_eq!((dock.advance_at(110), dock.effects()), ((Place::Done, None), Vec::new()));
    assert_eq!(dock.active.nodes.leaving, BTreeMap::new());
}

#[test]
fn a_member_leaves_not_while_none_serves_that_could_take_a_snapshot_and_is_given_up_after_an_hour() {
    let mut dock = leaver(open(json!("look")));
    for number in 0..3 {
        dock.sees(&format!("c-etcd-{number}"), &[]);
    }
    for second in [0, 1, HOUR] {
        assert_eq!(dock.advance_at(second), (Place::Look, Some(Waits::Snapshot)), "{second}");
    }
    assert_eq!(dock.advance_at(HOUR + 1).0, Place::Failed);
    let why = "no member of etcd has served for 60 minutes that could take a snapshot";
    assert_eq!(dock.step().failure(), Some(why));
}

#[test]
fn p4_a_member_is_believed_to_be_out_only_if_one_that_serves_says_so_and_nobody_else_knows_it() {
    let silent = |_: u32| EtcdHealth { serving: true, ..EtcdHealth::default() };
    let stopped = |number: u32| EtcdHealth { serving: false, ..without_etcd_0(number) };
    // The answers of etcd-0, etcd-1 and etcd-2, and the result.
    for (case, said, place) in [
        ("all know it", [well(0), well(1), well(2)], Place::Remove),
        (
            "it knows none itself",
            [EtcdHealth::default(), without_etcd_0(1), without_etcd_0(2)],
            Place::Verify,
        ),
        ("it knows itself alone", [well(0), without_etcd_0(1), without_etcd_0(2)], Place::Verify),
        ("one knows it still", [EtcdHealth::default(), without_etcd_0(1), well(2)], Place::Check),
        ("none serves", [EtcdHealth::default(), stopped(1), stopped(2)], Place::Check),
        ("nobody knows of members", [silent(0), silent(1), silent(2)], Place::Check),
    ] {
        let mut dock = checks();
        for (number, health) in said.into_iter().enumerate() {
            dock.set_answer(&format!("i-{number}"), health);
        }
        assert_eq!(dock.advance_at(10).0, place, "{case}");
    }
}

#[test]
fn p4_an_ill_member_leaves_while_the_others_are_well_and_a_well_one_stays_while_one_of_them_is_ill() {
    let mut dock = checks();
    dock.fails("i-0");
    assert_eq!(dock.advance_at(10), (Place::Remove, Some(Waits::MemberRemoval)));
    assert_eq!(dock.commands_sent(), takes_out());
    let mut dock = checks();
    dock.fails("i-2");
    assert_eq!((dock.advance_at(10).0, dock.effects()), (Place::Check, Vec::new()));
}

#[test]
fn p4_leadership_moves_before_a_member_leaves_as_long_as_its_machine_is_the_one_that_was_looked_at() {
    let leads = || EtcdHealth { leads: true, ..well(0) };
    let mut dock = checks();
    dock.set_answer("i-0", leads());
    assert_eq!(dock.advance_at(10), (Place::MoveLeader, Some(Waits::Leader)));
    assert_eq!(dock.commands_sent(), [("i-0".to_owned(), Verb::EtcdMoveLeader)]);
    assert_eq!((dock.advance_at(20), dock.effects()), ((Place::MoveLeader, Some(Waits::Leader)), Vec::new()));
    // Another machine has come: all are asked again.
    dock.sees("c-etcd-0", &[("i-9", NEW)]);
    assert_eq!(dock.advance_at(30), (Place::Check, Some(Waits::Answers(Asks::Members))));
    assert_eq!(
        dock.commands_sent().iter().map(|(machine, _)| machine.as_str()).collect::<Vec<_>>(),
        ["i-9", "i-1", "i-2"]
    );
}

#[test]
fn p4_leadership_that_was_moved_once_can_be_moved_again_whatever_failed_before() {
    let forgotten = tries("Slipway-EtcdMoveLeader", json!({"tries": 1}));
    let tries = keeps_leadership(&forgotten);
    let moves = since(0, json!({"moveLeader": asks(0, &json!("etcdMoveLeader"), 0)}));
    let mut dock = leaver_with(json!({"phase": moves, "tries": tries})).saved(0);
    dock.set_answer("i-0", LeaderMoved { moved: true, leader: "1".to_owned(), reason: None });
    assert_eq!(dock.advance_at(10).0, Place::Check);
    assert_eq!(dock.task()["tries"], forgotten);
}

/// Its zone is lost, for example. Nothing else could be done before it is gone, and no spec takes it alone.
#[test]
fn p4_of_two_members_that_leave_a_dead_one_goes_first() {
    let mut dock = leaver(since(0, json!({"check": {"machine": "i-0", "round": round(0)}}))).saved(0);
    let step = serde_json::to_value(dock.step()).unwrap();
    let mut newest = step.clone();
    let leaves = json!({"leaver": {"phase": open(json!("look"))}});
    let mut older = step;
    newest["role"] = json!("etcd-2");
    newest["group"] = json!("c-etcd-2");
    older["task"] = leaves;
    dock.active.nodes.steps =
        vec![serde_json::from_value(newest).unwrap(), serde_json::from_value(older).unwrap()];
    let (role, group) = dock.active.nodes.members.pop_last().unwrap();
    dock.active.nodes.leaving.insert(role, group);
    dock.fails("i-0");
    dock.set_answer("i-1", well(1));
    dock.set_answer("i-2", well(2));
    dock.advance_at(10);
    let roles: Vec<_> = dock.active.nodes.steps.iter().map(|step| step.role.to_string()).collect();
    assert_eq!(roles, ["etcd-0", "etcd-2"]);
}

/// It asked all members again and again, without an end.
#[test]
fn p4_a_member_in_standby_that_leads_is_waited_for_an_hour() {
    let leads = |number| {
        let mut health = well(number);
        for member in &mut health.members {
            member.leads = member.name == "etcd-0";
        }
        health
    };
    for (second, place) in [(HOUR, Place::Check), (HOUR + 1, Place::Failed)] {
        let phase = since(0, json!({"check": {"machine": null, "round": round(second - 10)}}));
        let mut dock = leaver(phase).saved(second - 10);
        dock.sees("c-etcd-0", &[("i-0", ("elsewhere", "1"))]);
        dock.fails("i-0");
        dock.set_answer("i-1", leads(1));
        dock.set_answer("i-2", leads(2));
        assert_eq!(dock.advance_at(second).0, place, "{second}: {:?}", dock.step().failure());
    }
}

/// Where etcd-0 leaves together with the first `lost` members, and these have lost their groups; of all members, `staying` others stay. What they
/// list of each member: whether it is reachable, and whether it is a learner.
fn where_groups_are_lost(lost: u32, staying: u32, listed: impl Fn(u32) -> (bool, bool)) -> Place {
    let mut dock = leaver(open(json!("look"))).saved(0);
    let named = |at: u32| (Role::Etcd(at), format!("c-etcd-{at}"));
    for at in 1..lost {
        let mut other = serde_json::to_value(dock.step()).unwrap();
        (other["role"], other["group"]) = (json!(named(at).0), json!(named(at).1));
        dock.active.nodes.steps.push(serde_json::from_value(other).unwrap());
    }
    let leaving = lost.max(1);
    dock.active.nodes.leaving = (0..leaving).map(named).collect();
    dock.active.nodes.members = (leaving..leaving + staying).map(named).collect();
    dock.observed.groups = (0..lost).map(|at| (named(at).1, None)).collect();
    for at in lost..leaving + staying {
        dock.sees(&named(at).1, &[(&format!("i-{at}"), NEW)]);
    }
    let health = |number: u32| {
        let member = |at: u32| EtcdMemberHealth {
            name: format!("etcd-{at}"),
            reachable: listed(at).0,
            learner: listed(at).1,
            raft_lag: Some(0),
            ..EtcdMemberHealth::default()
        };
        // A member may not know yet what the others list.
        EtcdHealth { members: (0..leaving + staying).map(member).collect(), ..well(number) }
    };
    assert_eq!(dock.advance_at(0).0, Place::Check);
    let asked: Vec<(String, u32)> = dock
        .step()
        .commands()
        .iter()
        .map(|one| (one.command.token.clone(), one.role.member().unwrap()))
        .collect();
    for (token, number) in asked {
        dock.set_answer(&token, health(number));
    }
    dock.advance_at(10).0
}

/// The rollout that let them join was rolled back, and none of them has a machine.
#[test]
fn p4_members_that_have_lost_their_groups_are_removed_as_long_as_those_that_stay_are_a_majority() {
    for (lost, learner, staying, ends) in [
        (2, true, 3, Place::Remove),
        (2, false, 3, Place::Remove),
        // Of five voters that stay, three serve.
        (3, false, 3, Place::Remove),
        // Of three voters or two, the one that stays is no majority.
        (2, false, 1, Place::Check),
        (2, true, 1, Place::Check),
        // The other one was removed in time.
        (1, true, 1, Place::Remove),
        (1, false, 1, Place::Check),
    ] {
        let place = where_groups_are_lost(lost, staying, |at| (at >= lost, learner && at == 0));
        assert_eq!(place, ends, "{lost}, {learner}, {staying}");
    }
}

#[test]
fn p4_a_learner_may_be_removed_and_nothing_is_removed_beside_a_learner_or_a_silent_member_that_stays() {
    // It has a machine.
    assert_eq!(where_groups_are_lost(0, 3, |at| (true, at == 0)), Place::Remove);
    assert_eq!(where_groups_are_lost(0, 3, |at| (true, at == 2)), Place::Check);
    assert_eq!(where_groups_are_lost(1, 3, |at| (at > 0, at == 2)), Place::Check);
    assert_eq!(where_groups_are_lost(1, 3, |at| (at > 0 && at != 2, false)), Place::Check);
}

/// Its own certificates hurry nobody, and the newer plan cannot begin before etcd's stack is without both.
#[test]
fn p7_the_last_members_leave_outside_of_a_window_if_an_urgent_plan_waits_for_that() {
    let newer = |ends: i64| {
        let mut wanted = wanted(&rendering(2), &slipway_plan::Baseline::default(), Approval::Auto);
        wanted.plan.renewal.deadline =
            Deadline { ends: [(Role::Controller, at(ends))].into(), lead_s: 3_600 };
        wanted
    };
    for (waits, ends, is_out, place) in [
        (true, 60, true, Place::Snapshot),
        (false, 60, true, Place::Look),
        (true, 1_000_000, true, Place::Look),
        (true, 60, false, Place::Look),
    ] {
        let mut dock = leaver(open(json!("look")));
        dock.active.nodes.windows =
            vec![MaintenanceWindow { days: vec![], start_minute: 600, length_min: 30 }];
        dock.newer = waits;
        dock.observed.desired = Some(newer(ends));
        let phase = if is_out { done(false) } else { open(json!("look")) };
        let mut other = serde_json::to_value(dock.step()).unwrap();
        (other["role"], other["task"]) = (json!("etcd-4"), json!({"leaver": {"phase": phase}}));
        dock.active.nodes.steps.push(serde_json::from_value(other).unwrap());
        assert_eq!(dock.advance_at(0).0, place, "{waits}, {ends}, {is_out}");
    }
}
