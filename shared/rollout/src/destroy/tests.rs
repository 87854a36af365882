//! A destruction, look by look: the effect of another order, which members get commands, and the moves from each state of a stack.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde_json::json;

use super::*;
use crate::departures::tests::group;
use crate::errand::{PAUSE, RetryState};
use crate::fleet::{GroupView, Lifecycle};
use crate::order::Order;
use crate::stack_step::zone_help;
use crate::{Departure, ResourceFailure, StackView};
use slipway_core::node::CommandView;
use slipway_core::release::ETCD_HOSTED_ZONE;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn at(second: i64) -> Timestamp {
    NOW + SignedDuration::from_secs(second)
}

fn going(stack: &str, state: GoingState) -> Going {
    let kind = Rollout::new("c").kind_of(stack);
    Going { stack: stack.to_owned(), kind, state, unsure: false }
}

fn open(stacks: &[(&str, GoingState)]) -> Destroy {
    let stacks = stacks.iter().map(|(stack, state)| going(stack, state.clone())).collect();
    Destroy { stacks, ..begin(&Rollout::new("c"), NOW, true, NOW) }
}

/// The state of a cluster with these stacks.
fn cluster(stacks: &[&str]) -> Rollout {
    let deployed = stacks.iter().map(|stack| ((*stack).to_owned(), "t".to_owned())).collect();
    Rollout { generation: 4, deployed, ..Rollout::new("c") }
}

fn seen(stacks: &[(&str, StackStatus)]) -> Observed {
    let view = |stack: &str, status: StackStatus| StackView {
        id: format!("arn:{stack}"),
        status,
        reason: None,
        tags: BTreeMap::from([(OWNER_TAG.to_owned(), "c".to_owned())]),
    };
    let stacks = stacks.iter().map(|(stack, status)| ((*stack).to_owned(), Some(view(stack, *status))));
    Observed { stacks: stacks.collect(), ..Observed::default() }
}

fn decided(state: Rollout, open: Destroy, observed: &Observed, now: Timestamp) -> Decision {
    decide(state, open, observed, now, Effects::new(now))
}

/// The events of a decision.
fn events(decision: &Decision) -> Vec<String> {
    let mut said = Vec::new();
    for effect in &decision.effects {
        if let Effect::Publish(event) = effect {
            said.push(event.to_wire().0);
        }
    }
    said
}

fn inquiry(tokens: &[&str]) -> Inquiry {
    let one = |token: &&str| json!({"role": "etcd-0", "command": {"token": token, "instance": "i-0", "verb": "etcdHealth"}, "at": NOW});
    let round: Vec<_> = tokens.iter().map(one).collect();
    Inquiry { round: serde_json::from_value(json!(round)).unwrap(), ..Inquiry::new(NOW) }
}

fn deleting() -> GoingState {
    GoingState::Deleting(NOW)
}

fn failed() -> GoingState {
    GoingState::Failed("no".to_owned())
}

#[test]
fn p10_another_order_counts_from_then_on_takes_an_abort_back_and_tries_anew_what_failed() {
    let stacks = [
        ("c-pool-a", failed()),
        ("c-pool-b", GoingState::NotOurs),
        ("c-pool-c", deleting()),
        ("c-pool-d", GoingState::Gone),
    ];
    let before = Destroy { aborted: Some(at(5)), records: Records::TakenBack, ..open(&stacks) };
    let after = before.again(at(9), true, true, at(9));
    assert_eq!((after.asked_at, after.attempt, after.aborted), (at(9), 2, None));
    // Machines may have written their records again meanwhile.
    assert_eq!(after.records, Records::Stand);
    let states: Vec<GoingState> = after.stacks.into_iter().map(|going| going.state).collect();
    assert_eq!(states, [GoingState::Stands, GoingState::Stands, deleting(), GoingState::Gone]);
}

/// The deletion of etcd was refused (termination protection), and a person thinks better of going without a snapshot.
#[test]
fn p4_an_order_with_a_last_snapshot_counts_although_an_earlier_deletion_of_etcd_failed() {
    let stacks = [("c-control-plane", GoingState::Gone), ("c-etcd", failed())];
    for before in [LastSnapshot::Declined, LastSnapshot::Kept("key".to_owned())] {
        let key = before.key().cloned();
        let open = Destroy { snapshot: before.clone(), ..open(&stacks) };
        let anew = LastSnapshot::wanted(Which::Second, key, at(9));
        assert_eq!(open.clone().again(at(9), false, true, at(9)).snapshot, anew);
        // It is deleted, at least half.
        assert_eq!(open.again(at(9), false, false, at(9)).snapshot, before);
    }
}

/// Where etcd is gone, a person still has to delete the records.
#[test]
fn p10_what_a_person_has_to_delete_by_hand_is_known_after_another_order() {
    let left = Records::Left("no".to_owned());
    for (etcd, then) in [(GoingState::Gone, left.clone()), (GoingState::Stands, Records::Stand)] {
        let open = Destroy { records: left.clone(), ..open(&[("c-etcd", etcd)]) };
        assert_eq!(open.again(at(9), false, true, at(9)).records, then);
    }
}

/// An order may be received up to an hour after it was given.
#[test]
fn another_order_that_is_heard_late_is_as_patient_as_one_that_was_heard_at_once() {
    let stacks = [("c-control-plane", GoingState::Stands), ("c-etcd", GoingState::Stands)];
    let open = open(&stacks).again(at(9), false, true, at(3_000));
    assert_eq!(open.asked_at, at(9));
    assert_eq!(open.snapshot, LastSnapshot::first(at(3_000)));
}

#[test]
fn p8_no_two_destructions_share_a_generation_and_so_no_token() {
    let mut state = cluster(&["c-network"]);
    let given = Given { order: Order::Destroy { without_snapshot: true }, at: NOW };
    assert_eq!(receive(&mut state, &given, true, NOW), [Effect::ArmTick]);
    assert_eq!(state.generation, 5);
}

#[test]
fn machines_are_seen_to_as_long_as_no_stack_was_told_to_go_and_where_none_goes_any_more() {
    for (stacks, sees) in [
        (&[("c-pool-a", GoingState::Stands), ("c-pool-b", GoingState::Stands)][..], true),
        (&[("c-pool-a", deleting()), ("c-pool-b", GoingState::Stands)], false),
        (&[("c-pool-a", GoingState::Gone), ("c-pool-b", GoingState::Stands)], false),
        (&[("c-pool-a", failed()), ("c-pool-b", deleting())], false),
        (&[("c-pool-a", failed()), ("c-pool-b", GoingState::Stands)], true),
    ] {
        assert_eq!(open(stacks).sees_to_machines(), sees, "{stacks:?}");
    }
}

#[test]
fn members_of_etcd_are_asked_for_the_last_snapshot_and_for_their_records_once_etcd_is_about_to_go() {
    let stands = || GoingState::Stands;
    let etcd = [("c-etcd", stands()), ("c-network", stands())];
    let pools = [("c-pool-a", stands()), ("c-etcd", stands())];
    let goes = [("c-etcd", deleting())];
    for (stacks, records, asks) in [
        (&etcd[..], Records::Stand, true),
        (&etcd, Records::Deleting(inquiry(&["1"])), true),
        (&etcd, Records::TakenBack, false),
        (&etcd, Records::Left("no".to_owned()), false),
        (&pools, Records::Stand, false),
        (&goes, Records::Stand, false),
    ] {
        let without = Destroy { records, ..open(stacks) };
        assert_eq!(without.asks_members(), asks, "{without:?}");
        let saves = Destroy { snapshot: LastSnapshot::first(NOW), ..without };
        assert!(saves.asks_members());
    }
}

#[test]
fn p8_of_what_members_were_asked_it_is_known_what_was_refused_and_what_was_never_sent() {
    let save = Save::Leader(inquiry(&["1", "2"]));
    let snapshot =
        Destroy { snapshot: LastSnapshot::Wanted { which: Which::First, save, earlier: None }, ..open(&[]) };
    let records = Destroy { records: Records::Deleting(inquiry(&["1", "2"])), ..open(&[]) };
    for mut open in [snapshot, records] {
        open.unsent("1", "unknown");
        let refused: Vec<Option<&str>> = open.commands().iter().map(|one| one.refused.as_deref()).collect();
        assert_eq!(refused, [Some("unknown"), None]);
        open.not_sent("1");
        assert_eq!(open.commands().iter().map(|one| one.command.token.as_str()).collect::<Vec<_>>(), ["2"]);
    }
}

#[test]
fn machines_whose_stack_is_seen_to_go_are_forgotten_and_those_of_another_pool_are_not() {
    let departure = |group: &str| -> Departure {
        let state = json!({"uncordon": {}});
        let one =
            json!({"role": "pool-a", "group": group, "cause": "autoScaling", "state": state, "since": NOW});
        serde_json::from_value(one).unwrap()
    };
    let mut state = cluster(&["c-pool-a", "c-pool-b"]);
    for (id, group) in [("i-a", "c-pool-a"), ("i-b", "c-pool-b")] {
        state.departures.insert(id.to_owned(), departure(group));
    }
    let open = open(&[("c-pool-a", deleting()), ("c-pool-b", GoingState::Stands)]);
    let paused = Some(crate::Switch { paused: true, at: NOW });
    let state = Rollout { switch: paused, ..state };
    let observed =
        seen(&[("c-pool-a", StackStatus::DeleteInProgress), ("c-pool-b", StackStatus::UpdateComplete)]);
    let decision = decided(state, open, &observed, at(60));
    assert_eq!(decision.next.departures.keys().collect::<Vec<_>>(), ["i-b"]);
    assert_eq!(decision.next.deployed.keys().collect::<Vec<_>>(), ["c-pool-a", "c-pool-b"]);
}

#[test]
fn what_is_half_gone_is_not_deployed_any_more_and_what_stands_is() {
    let stacks = ["c-pool-a", "c-pool-b"];
    let open = open(&[("c-pool-a", deleting()), ("c-pool-b", GoingState::Stands)]);
    let observed =
        seen(&[("c-pool-a", StackStatus::DeleteFailed), ("c-pool-b", StackStatus::UpdateComplete)]);
    let decision = decided(cluster(&stacks), open, &observed, at(60));
    assert_eq!(decision.next.deployed.keys().collect::<Vec<_>>(), ["c-pool-b"]);
}

#[test]
fn a_deletion_that_does_not_begin_is_given_up_in_the_end_and_one_that_is_under_way_never() {
    let patience = PATIENCE.as_secs();
    for (status, second, expected) in [
        (StackStatus::UpdateComplete, patience, "CloudFormation deletes it"),
        (
            StackStatus::UpdateComplete,
            patience + 1,
            "the deletion of c-pool-a has not begun within 60 minutes: CloudFormation does not say why",
        ),
        (StackStatus::DeleteInProgress, 10 * patience, "CloudFormation deletes it"),
    ] {
        let decision = decided(
            cluster(&["c-pool-a"]),
            open(&[("c-pool-a", deleting())]),
            &seen(&[("c-pool-a", status)]),
            at(second),
        );
        assert_eq!(decision.report.stacks["c-pool-a"], expected, "{status} {second}");
        assert_eq!(decision.report.generation, 4);
    }
}

#[test]
fn p10_a_stack_is_told_to_go_once_and_not_while_cloudformation_is_at_work_on_it() {
    let delete = |decision: &Decision| {
        let tells = |effect: &&Effect| matches!(effect, Effect::DeleteStack { .. });
        decision.effects.iter().filter(tells).count()
    };
    for (status, state, tells) in [
        (StackStatus::UpdateComplete, GoingState::Deleting(at(60)), 1),
        // Somebody else requested the deletion.
        (StackStatus::DeleteInProgress, GoingState::Deleting(at(60)), 0),
        (StackStatus::UpdateInProgress, GoingState::Stands, 0),
    ] {
        let stands = open(&[("c-pool-a", GoingState::Stands)]);
        let decision = decided(cluster(&["c-pool-a"]), stands, &seen(&[("c-pool-a", status)]), at(60));
        let open = decision.next.destroy().unwrap();
        assert_eq!((&open.stacks[0].state, delete(&decision)), (&state, tells), "{status}");
    }
}

#[test]
fn each_step_of_a_destruction_is_said_once_and_what_is_only_waited_for_is_no_step() {
    let observed = [StackStatus::UpdateComplete, StackStatus::DeleteInProgress]
        .map(|status| seen(&[("c-pool-a", status)]));
    let first =
        decided(cluster(&["c-pool-a"]), open(&[("c-pool-a", GoingState::Stands)]), &observed[0], at(0));
    assert_eq!(events(&first), ["Rollout Step"]);
    let again = |decision: &Decision, second| {
        let mut state = decision.next.clone();
        let open = state.take_destruction().unwrap();
        decided(state, open, &observed[1], at(second))
    };
    let second = again(&first, 60);
    assert_eq!(events(&second), ["Rollout Waiting"]);
    assert_eq!(events(&again(&second, 120)), [""; 0]);
}

#[test]
fn p8_the_tick_is_disarmed_where_a_destruction_has_stopped_or_is_over_and_not_before() {
    let disarms = |decision: &Decision| decision.effects.contains(&Effect::DisarmTick);
    let observed = seen(&[("c-pool-a", StackStatus::DeleteInProgress)]);
    for (state, aborted, expected) in [
        (deleting(), None, false),
        (deleting(), Some(at(1)), false),
        (failed(), None, true),
        (GoingState::Stands, Some(at(1)), true),
    ] {
        let open = Destroy { aborted, ..open(&[("c-pool-a", state.clone())]) };
        // After an abort its deletion is not requested.
        let observed = if state == GoingState::Stands { Observed::default() } else { observed.clone() };
        let decision = decided(cluster(&["c-pool-a"]), open, &observed, at(60));
        assert_eq!(disarms(&decision), expected, "{state:?} {aborted:?}: {}", decision.report.message);
    }
}

#[test]
fn p10_a_cluster_lacks_something_where_a_destruction_was_called_off_after_a_stack_had_gone_and_not_before() {
    for (state, lacks) in [(GoingState::Gone, true), (GoingState::Stands, false)] {
        let stacks = [("c-pool-a", state), ("c-network", GoingState::Stands)];
        let open = Destroy { aborted: Some(at(1)), ..open(&stacks) };
        let decision = decided(cluster(&["c-network"]), open, &Observed::default(), at(60));
        assert_eq!(decision.report.state.as_str(), "aborted");
        assert_eq!(decision.next.aborted_destruction().is_some(), lacks);
    }
}

/// All groups that members may have; those of `machines` exist, with one machine each.
fn members_seen(machines: &[(u32, &str, Lifecycle)]) -> BTreeMap<String, Option<GroupView>> {
    let mut seen: BTreeMap<_, _> = member_groups("c").map(|(_, group)| (group, None)).collect();
    for (index, cluster, lifecycle) in machines {
        let (name, mut view) = group(&format!("c-etcd-{index}"), &[(&format!("i-{index}"), *lifecycle)]);
        view.as_mut().unwrap().tags.insert(OWNER_TAG.to_owned(), (*cluster).to_owned());
        seen.insert(name, view);
    }
    seen
}

#[test]
fn p8_what_names_tokens_and_what_a_person_said_outlive_a_cluster_that_was_taken_away() {
    let pointer = json!({"format": 1, "generation": 3, "release": "t", "digest": "d"});
    let addons = Some(serde_json::from_value(pointer).unwrap());
    let switch = Some(crate::Switch { paused: false, at: at(2) });
    let state = Rollout { addons, switch, effects_decided: 9, ..cluster(&[]) };
    assert_eq!(state.destroyed_message(), None);
    let before = state.clone();
    let decision = decided(state, open(&[("c-pool-a", GoingState::Gone)]), &Observed::default(), at(60));
    assert_eq!((decision.report.state.as_str(), decision.report.generation), ("destroyed", 4));
    let next = decision.next;
    assert_eq!(
        (next.generation, next.addons.clone(), next.switch.clone()),
        (4, before.addons, before.switch)
    );
    // The end is published, and the tick is deleted.
    assert_eq!(next.effects_decided, 11);
    assert_eq!(next.destroyed_message().as_deref(), Some("c was destroyed at 1970-01-01T00:01:00Z"));
}

#[test]
fn machines_of_a_stack_that_goes_are_let_go_once_a_minute_and_those_of_no_other() {
    let in_a =
        [("i-a", Lifecycle::TerminatingWait), ("i-b", Lifecycle::Retained), ("i-c", Lifecycle::InService)];
    let in_b = [("i-d", Lifecycle::TerminatingWait)];
    let observed = Observed {
        groups: [group("c-pool-a", &in_a), group("c-pool-b", &in_b)].into(),
        ..seen(&[("c-pool-a", StackStatus::DeleteInProgress), ("c-pool-b", StackStatus::DeleteFailed)])
    };
    let pool = || "c-pool-a".to_owned();
    let lets_go = [
        Effect::CompleteTermination { group: pool(), instance: "i-a".to_owned() },
        Effect::Terminate { group: pool(), instance: "i-b".to_owned(), then_desired: None },
    ];
    let state = cluster(&["c-pool-a", "c-pool-b"]);
    let mut open = open(&[("c-pool-a", deleting()), ("c-pool-b", failed())]);
    for (second, told, goes) in [(0, 0, true), (49, 0, false), (50, 50, true), (51, 50, false)] {
        let effects = let_go(&state, &mut open, &observed, at(second));
        assert_eq!(effects, if goes { &lets_go[..] } else { &[] }, "{second}");
        assert_eq!(open.settled_at, Some(at(told)), "{second}");
    }
    // A group of somebody else's, of the same name.
    let mut foreign = group("c-pool-a", &in_a);
    foreign.1.as_mut().unwrap().tags.clear();
    let foreign = Observed { groups: [foreign].into(), ..observed };
    open.settled_at = None;
    assert_eq!(let_go(&state, &mut open, &foreign, at(60)), []);
    // If no machine was released, none has to be waited for.
    open.settled_at = None;
    assert_eq!(
        (let_go(&state, &mut open, &Observed::default(), at(60)), open.settled_at),
        (Vec::new(), None)
    );
}

#[test]
fn members_whose_stack_goes_are_not_waited_for_in_their_terminate_hooks() {
    let state = cluster(&["c-etcd"]);
    let mut open = open(&[("c-etcd", deleting())]);
    let mut scope = ToObserve::default();
    to_observe(&state, &open, &mut scope);
    assert!(scope.groups.contains("c-etcd-2"), "{:?}", scope.groups);
    let machines = [(0, "c", Lifecycle::InService), (2, "c", Lifecycle::TerminatingWait)];
    let groups = members_seen(&machines);
    for (status, ended) in [(StackStatus::CreateComplete, None), (StackStatus::DeleteInProgress, Some("i-2"))]
    {
        let observed = Observed { groups: groups.clone(), ..seen(&[("c-etcd", status)]) };
        let lets_go = ended
            .map(|id| Effect::CompleteTermination { group: "c-etcd-2".to_owned(), instance: id.to_owned() });
        assert_eq!(let_go(&state, &mut open, &observed, at(0)), lets_go.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn records_are_not_taken_back_while_a_member_boots_for_an_hour_at_most_nor_while_its_stack_is_at_work() {
    let state = cluster(&["c-etcd"]);
    let machines = [(0, "c", Lifecycle::InService), (1, "c", Lifecycle::Pending)];
    let observed = Observed { groups: members_seen(&machines), ..Observed::default() };
    let stack = |status| seen(&[("c-etcd", status)]).stacks["c-etcd"].clone().unwrap();
    let boots = GoingWaits::RecordsBoot { machine: "i-1".to_owned(), role: "etcd-1".parse().unwrap() };
    let patience = PATIENCE.as_secs();
    for (status, held, second, waits, asks) in [
        (StackStatus::UpdateComplete, false, patience, Some(boots), 0),
        (StackStatus::UpdateComplete, false, patience + 1, Some(GoingWaits::Records), 1),
        (StackStatus::UpdateComplete, true, patience + 1, None, 0),
        (StackStatus::UpdateInProgress, false, patience + 1, None, 0),
        (StackStatus::DeleteInProgress, false, patience + 1, None, 0),
    ] {
        let records = Records::Deleting(Inquiry::new(NOW));
        let mut open = Destroy { records, ..open(&[("c-etcd", GoingState::Stands)]) };
        let mut effects = Effects::new(at(second));
        let what = retire(&state, &mut open, &stack(status), held, &observed, at(second), &mut effects);
        assert_eq!((&what, open.commands().len()), (&waits, asks), "{status} {held} {second}");
        assert_eq!(open.records == Records::Stand, what.is_none());
    }
}

/// Groups of somebody else's may have the names of ours.
#[test]
fn machines_of_groups_that_are_not_ours_are_neither_asked_nor_waited_for() {
    let state = cluster(&["c-etcd"]);
    let machines = [
        (0, "another", Lifecycle::InService),
        (1, "c", Lifecycle::InService),
        (2, "another", Lifecycle::Pending),
    ];
    let observed = Observed { groups: members_seen(&machines), ..Observed::default() };
    assert_eq!(save::members(&state, &observed), [("etcd-1".parse().unwrap(), "i-1".to_owned())]);
    let mut open = open(&[("c-etcd", GoingState::Stands)]);
    let stack = seen(&[("c-etcd", StackStatus::UpdateComplete)]).stacks["c-etcd"].clone().unwrap();
    retire(&state, &mut open, &stack, false, &observed, NOW, &mut Effects::new(NOW));
    let sent: Vec<&str> = open.commands().iter().map(|sent| sent.command.instance.as_str()).collect();
    assert_eq!(sent, ["i-1"]);
}

#[test]
fn who_empties_a_zone_by_hand_is_told_why_nobody_did_and_nothing_where_another_resource_is_left() {
    let failure = |resource: &str| ResourceFailure {
        logical_id: resource.to_owned(),
        resource_type: String::new(),
        status: String::new(),
        reason: String::new(),
    };
    let zone = [failure("Thing"), failure(ETCD_HOSTED_ZONE)];
    let help = |failures: &[ResourceFailure], records| records::help("c-etcd", failures, &records);
    let left = || Records::Left("lost".to_owned());
    assert_eq!(help(&zone[..1], left()), "");
    let told = help(&zone, left());
    assert!(
        told.starts_with(
            "; if the zone holds records of etcd's members (no member deleted them: lost), this"
        ),
        "{told}"
    );
    assert!(told.contains("--stack-name c-etcd --logical-resource-id EtcdHostedZone"), "{told}");
    // If the state of the records is not known any more.
    assert_eq!(zone_help("c-etcd", &zone, ""), help(&zone, Records::TakenBack));
    assert_eq!(zone_help("c-etcd", &zone, ""), told.replace(" (no member deleted them: lost)", ""));
}

#[test]
fn what_comes_to_nothing_is_asked_again_a_minute_after_it_was_asked_and_three_times_in_all() {
    let (pause, patience) = (PAUSE.as_secs(), PATIENCE.as_secs());
    let answers = BTreeMap::from([("1".to_owned(), Some(CommandView::InProgress))]);
    let (unheard, heard) = (Observed::default(), Observed { answers, ..Observed::default() });
    for (observed, tries, second, gives_up, then) in [
        (&heard, 0, 9, false, 1),
        (&heard, 1, 9, false, 2),
        (&heard, 2, 9, true, 3),
        // A command that reached no machine is no try.
        (&unheard, 2, patience, false, 2),
        (&unheard, 2, patience + 1, true, 2),
    ] {
        let mut inquiry = Inquiry { tried: RetryState { tries, ..RetryState::default() }, ..inquiry(&["1"]) };
        let given_up = inquiry.gives_up("no", observed, at(second));
        assert_eq!((given_up, inquiry.tried.tries), (gives_up, then), "{tries} {second}");
        assert!(inquiry.round.is_empty(), "no command is open after that");
        assert_eq!(inquiry.pauses(at(second + pause - 1)).as_deref(), Some("no"));
        assert_eq!(inquiry.pauses(at(second + pause)), None);
    }
    // If there is no member that could get the command: machines may be booting.
    let mut inquiry = Inquiry::new(NOW);
    for (second, gives_up) in [(0, false), (patience, false), (patience + 1, true)] {
        let given_up = inquiry.gives_up("no", &unheard, at(second));
        assert_eq!((given_up, inquiry.tried.tries), (gives_up, 0), "{second}");
    }
}

#[test]
fn p4_another_snapshot_is_taken_where_etcd_stands_and_not_where_it_goes_and_others_stand() {
    let taken = || LastSnapshot::Taken("key".to_owned());
    let anew = |which| LastSnapshot::wanted(which, Some("key".to_owned()), at(9));
    let stands = GoingState::Stands;
    for (control, etcd, then) in [
        (stands.clone(), stands.clone(), anew(Which::First)),
        (deleting(), stands.clone(), anew(Which::First)),
        (failed(), stands.clone(), anew(Which::First)),
        (GoingState::Gone, stands.clone(), anew(Which::Second)),
        (GoingState::NotOurs, stands.clone(), anew(Which::Second)),
        (GoingState::Gone, deleting(), taken()),
        (GoingState::Gone, GoingState::Gone, taken()),
    ] {
        let stacks =
            [("c-control-plane", control.clone()), ("c-etcd", etcd.clone()), ("c-network", stands.clone())];
        let mut open = Destroy { snapshot: taken(), ..open(&stacks) };
        open.saves_again(at(9));
        assert_eq!(open.snapshot, then, "{control:?} {etcd:?}");
    }
}

#[test]
fn p4_a_snapshot_of_after_the_last_write_stays_the_last_only_while_nobody_can_write() {
    let complete = || LastSnapshot::Complete("key".to_owned());
    let anew = LastSnapshot::wanted(Which::First, Some("key".to_owned()), at(9));
    // A stack of that name that was somebody else's is looked at again, and may be ours by now.
    for (control, then) in [(GoingState::Gone, complete()), (GoingState::NotOurs, anew)] {
        let stacks = [("c-control-plane", control.clone()), ("c-etcd", GoingState::Stands)];
        let open = Destroy { snapshot: complete(), ..open(&stacks) };
        assert_eq!(open.clone().again(at(9), false, true, at(9)).snapshot, then, "{control:?}");
        assert_eq!(open.again(at(9), true, true, at(9)).snapshot, complete(), "{control:?}");
    }
}

#[test]
fn p4_nothing_is_saved_only_where_every_group_that_members_may_have_was_seen_not_to_be_there() {
    let wanted = || LastSnapshot::first(NOW);
    let boots = Lifecycle::Pending;
    let mut not_all = members_seen(&[]);
    not_all.remove("c-etcd-8");
    let none = "no member of etcd has a machine in service".to_owned();
    for (groups, waits, is_needless) in [
        (not_all, GoingWaits::LooksForMembers, false),
        (members_seen(&[]), GoingWaits::NoEtcd, true),
        (members_seen(&[(0, "another", boots)]), GoingWaits::NoEtcd, true),
        (members_seen(&[(2, "c", boots)]), GoingWaits::SnapshotHeld(Detail(none)), false),
    ] {
        let mut open = Destroy { snapshot: wanted(), ..open(&[("c-etcd", GoingState::Stands)]) };
        let observed = Observed { groups, ..Observed::default() };
        let mut effects = Effects::new(at(60));
        let saves = save(&cluster(&["c-network"]), &mut open, &observed, at(60), &mut effects);
        assert_eq!((saves, open.rounds), (waits, 0));
        assert_eq!(open.snapshot == LastSnapshot::Needless, is_needless);
    }
}

#[test]
fn p8_members_are_asked_in_rounds_that_are_counted_so_that_no_two_share_a_token() {
    let state = cluster(&["c-etcd"]);
    let serves = [0, 1].map(|index| (index, "c", Lifecycle::InService));
    let observed = Observed { groups: members_seen(&serves), ..Observed::default() };
    let mut open = Destroy { snapshot: LastSnapshot::first(NOW), ..open(&[("c-etcd", GoingState::Stands)]) };
    let mut tokens = BTreeSet::new();
    for rounds in 1..=3 {
        open.snapshot = LastSnapshot::first(NOW);
        let mut effects = Effects::new(NOW);
        assert_eq!(save(&state, &mut open, &observed, NOW, &mut effects), GoingWaits::Leader);
        assert_eq!((open.rounds, open.commands().len()), (rounds, 2));
        tokens.extend(open.commands().iter().map(|one| one.command.token.clone()));
    }
    assert_eq!(tokens.len(), 6);
}

#[test]
fn the_status_of_a_destruction_names_the_next_command_as_its_event_does() {
    let observed = seen(&[("c-pool-a", StackStatus::DeleteInProgress)]);
    let again =
        "nothing has to be done; when it has ended, `slipway apply cluster.yaml --cluster c` continues";
    let pause = Some(crate::Switch { paused: true, at: at(2) });
    for (switch, aborted, state, next) in [
        (None, Some(at(1)), "aborting", again),
        (pause, None, "paused", "`slipway resume --cluster c` continues"),
    ] {
        let open = Destroy { aborted, ..open(&[("c-pool-a", deleting())]) };
        let decision = decided(Rollout { switch, ..cluster(&["c-pool-a"]) }, open, &observed, at(60));
        assert_eq!((decision.report.state.as_str(), decision.report.next.as_deref()), (state, Some(next)));
        let told =
            |effect: &Effect| matches!(effect, Effect::Publish(event) if event.to_wire().1.contains(next));
        assert!(decision.effects.iter().any(told), "{:?}", decision.effects);
    }
}

/// A person decides what comes next, with as much of the cluster left as possible; and no write is lost that a snapshot could have.
#[test]
fn p4_p10_while_a_deletion_goes_on_no_other_begins_after_a_failure_or_before_the_snapshot() {
    let observed = seen(&[
        ("c-pool-a", StackStatus::UpdateComplete),
        ("c-pool-b", StackStatus::DeleteInProgress),
        ("c-pool-c", StackStatus::UpdateComplete),
    ]);
    let needless = || open(&[]).snapshot;
    for (state_of_a, snapshot, goes) in [
        (GoingState::Gone, needless(), true),
        (failed(), needless(), false),
        (GoingState::Gone, LastSnapshot::first(NOW), false),
    ] {
        let stacks = [("c-pool-a", state_of_a), ("c-pool-b", deleting()), ("c-pool-c", GoingState::Stands)];
        let open = Destroy { snapshot, ..open(&stacks) };
        let decision = decided(cluster(&["c-pool-b", "c-pool-c"]), open, &observed, at(60));
        let deletes = |effect: &Effect| matches!(effect, Effect::DeleteStack { .. });
        assert_eq!(decision.effects.iter().any(deletes), goes, "{}", decision.report.message);
    }
}
