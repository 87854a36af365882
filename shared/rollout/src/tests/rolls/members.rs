//! Members of etcd, one after the other.

use super::*;

#[test]
fn p4_members_are_replaced_one_after_the_other_with_a_snapshot_and_without_the_lead() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_member, &auto());
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    let log = [
        "etcd-1.0 takes a snapshot",
        "etcd-0.0 goes",
        "etcd-1.0 leads no more",
        "etcd-1.0 goes",
        "etcd-2.0 goes",
    ];
    assert_eq!(yard.in_order(), log);
    // All are asked before and after each replacement, and once more after the leader has changed; both controllers at the end.
    assert_eq!(yard.sent, 21 + 2);
    assert!(yard.report.message.ends_with("replaced: etcd-0, etcd-1, etcd-2"), "{}", yard.report.message);

    // A snapshot counts for a quarter of an hour.
    let mut yard = Yard { boots: 14, ..Yard::new(&SMALL, Change::Machines, &is_member, &auto()) };
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    let log = [
        "etcd-1.0 takes a snapshot",
        "etcd-0.0 goes",
        "etcd-0.new1 takes a snapshot",
        "etcd-1.0 leads no more",
        "etcd-1.0 goes",
        "etcd-0.new1 takes a snapshot",
        "etcd-2.0 goes",
    ];
    assert_eq!(yard.in_order(), log);

    // A single member has no other that could lead or take the snapshot.
    let one = Size { members: 1, ..SMALL };
    let yard = Yard::new(&one, Change::Machines, &is_member, &auto());
    let mut yard = Yard { leader: "etcd-0.0".to_owned(), ..yard };
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    assert_eq!(yard.in_order(), ["etcd-0.0 takes a snapshot", "etcd-0.0 goes"]);
}

#[test]
fn p4_p7_members_take_credentials_in_place_one_after_the_other_and_keep_the_lead() {
    let mut yard = Yard::new(&SMALL, Change::Credentials, &is_member, &auto());
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    let log = [
        "etcd-1.0 takes a snapshot",
        "etcd-0.0 takes new, restarts",
        "etcd-1.0 takes new, restarts",
        "etcd-2.0 takes new, restarts",
    ];
    assert_eq!(yard.in_order(), log);

    for (document, most) in [("Slipway-Refresh", 3), ("Slipway-EtcdSnapshot", 3)] {
        for failing in [most - 1, most] {
            let mut yard = Yard::new(&SMALL, Change::Credentials, &is_member, &auto());
            yard.failing.insert(document, failing);
            let ends = if failing < most { "succeeded" } else { "failed" };
            assert_eq!(yard.run(), ends, "{document} {failing}: {}", yard.report.message);
            let taken = yard.log.iter().filter(|line| line.contains("takes new")).count();
            assert_eq!(taken, if failing < most { 3 } else { 0 }, "{document}: {:?}", yard.log);
        }
    }
}

#[test]
fn p4_a_member_waits_for_the_others_an_hour_and_says_why() {
    type Spoil = fn(&mut Yard);
    let cases: [(Spoil, &str); 4] = [
        (|yard| yard.silent.extend(["etcd-2.0".to_owned()]), "etcd-2 does not answer"),
        (|yard| yard.alarm = true, "the alarm NOSPACE is raised"),
        (|yard| yard.behind = 11, "has to catch up (raft index 11 behind, limit 10)"),
        (|yard| yard.groups.get_mut("c-etcd-2").unwrap().machines.clear(), "etcd-2"),
    ];
    for (at, (spoil, why)) in cases.into_iter().enumerate() {
        for change in [Change::Machines, Change::Credentials] {
            let mut yard = Yard::new(&SMALL, change, &|role| *role == Role::Etcd(0), &auto());
            spoil(&mut yard);
            let ends = yard.run();
            // A machine that is gone is replaced.
            if at == 3 {
                assert_eq!(ends, "succeeded");
                continue;
            }
            assert_eq!(ends, "failed", "{why}");
            assert!(yard.report.message.contains(why), "{}", yard.report.message);
            assert!(
                yard.report.message.contains("may not be taken down after 60 minutes"),
                "{}",
                yard.report.message
            );
            assert_eq!(yard.in_order(), ["etcd-1.0 takes a snapshot"], "no machine is changed");
            let minutes = (yard.now - 1_000_000) / 60;
            assert!((62..=66).contains(&minutes), "{minutes}");
        }
    }
    // A member that keeps up may lack ten entries; a passing problem is waited for.
    let mut yard =
        Yard { behind: 10, alarm: true, ..Yard::new(&SMALL, Change::Machines, &is_member, &auto()) };
    (0..30).for_each(|_| yard.wake(None));
    assert!(yard.report.message.contains("waits: the alarm NOSPACE is raised"), "{}", yard.report.message);
    yard.alarm = false;
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
}

/// The present state of its group is newer than any answer: a member whose machine is gone or replaced has no answer.
#[test]
fn p4_a_member_that_answered_and_whose_machine_has_gone_since_is_not_taken_for_well() {
    type Spoil = fn(&mut BTreeMap<String, Machine>);
    let gone: Spoil = |machines| machines.get_mut("etcd-2.0").unwrap().lifecycle = Lifecycle::Elsewhere;
    let another: Spoil = |machines| {
        let machine = machines.remove("etcd-2.0").unwrap();
        machines.insert("etcd-2.1".to_owned(), machine);
    };
    for (change, spoil) in [
        (Change::Machines, gone),
        (Change::Machines, another),
        (Change::Credentials, gone),
        (Change::Credentials, another),
    ] {
        for moment in 1..15 {
            let mut yard = Yard::new(&SMALL, change, &|role| *role == Role::Etcd(0), &auto());
            (0..moment).for_each(|_| yard.wake(None));
            let touched = |yard: &Yard| {
                yard.log
                    .iter()
                    .any(|line| line.starts_with("etcd-0.0 goes") || line.starts_with("etcd-0.0 takes new"))
            };
            if touched(&yard) {
                assert!(moment > 2, "the test has a moment to try");
                break;
            }
            yard.launches = false;
            spoil(&mut yard.groups.get_mut("c-etcd-2").unwrap().machines);
            yard.wake(None);
            assert!(!touched(&yard), "at {moment}: {:?}", yard.log);
        }
    }
}

#[test]
fn p4_what_was_said_and_a_snapshot_count_for_minutes_and_are_asked_for_anew() {
    // Until a window opens the answers become too old: everything is asked again after that.
    let start = minute_of_day(1_000_000) + 20;
    let window = MaintenanceWindow { days: Vec::new(), start_minute: start, length_min: 30 };
    let policy = RolloutPolicy { windows: vec![window], ..auto() };
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_member, &policy);
    (0..18).for_each(|_| yard.wake(None));
    assert_eq!(yard.in_order(), [""; 0], "{}", yard.report.message);
    assert!(yard.report.message.contains("waits for the next maintenance window"), "{}", yard.report.message);
    (0..5).for_each(|_| yard.wake(None));
    assert!(!yard.log.is_empty(), "{}", yard.report.message);
    assert_eq!(yard.run(), "succeeded");
    assert!((yard.now - 1_000_000) / 60 < 60);
    // A window that closes during the roll holds the next member.
    let window =
        MaintenanceWindow { days: Vec::new(), start_minute: minute_of_day(1_000_000), length_min: 4 };
    let policy = RolloutPolicy { windows: vec![window], ..auto() };
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_member, &policy);
    (0..60).for_each(|_| yard.wake(None));
    assert_eq!(yard.in_order(), ["etcd-1.0 takes a snapshot", "etcd-0.0 goes"]);
}

#[test]
fn p7_what_nothing_may_hold_up_waits_for_no_window_and_no_person() {
    let window = MaintenanceWindow {
        days: Vec::new(),
        start_minute: (minute_of_day(1_000_000) + 600) % 1_440,
        length_min: 30,
    };
    // A policy that asks for no approval has none that was ignored.
    let policy_of = |approval| RolloutPolicy { windows: vec![window.clone()], ..policy(approval) };
    let mut yard = Yard::new(&SMALL, Change::Credentials, &is_member, &policy_of(Approval::Auto)).ends_in(24);
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    assert!(!yard.report.message.contains("approval"), "{}", yard.report.message);
    let policy = policy_of(Approval::Manual);
    let mut yard = Yard::new(&SMALL, Change::Credentials, &is_member, &policy).ends_in(24);
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    for words in ["begun without approval", "outside of the maintenance windows"] {
        assert!(yard.report.message.contains(words), "{words}: {}", yard.report.message);
    }
    assert!(
        !yard.state.rollback_targets[0].approved,
        "nobody has approved it, and the next upload cannot say so"
    );
    let all = [
        "etcd-1.0 takes a snapshot",
        "etcd-0.0 takes new, restarts",
        "etcd-1.0 takes new, restarts",
        "etcd-2.0 takes new, restarts",
    ];
    assert_eq!(yard.in_order(), all);

    let mut yard = Yard::new(&SMALL, Change::Credentials, &is_controller, &policy).ends_in(24);
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    assert_eq!(yard.in_order(), ["controller.0 takes new, restarts", "controller.1 takes new, restarts"]);

    // A roll that is not urgent waits for approval.
    let mut yard = Yard::new(&SMALL, Change::Credentials, &is_member, &policy);
    yard.wake(None);
    assert_eq!((yard.report.state.as_str(), yard.log.len()), ("waiting-for-approval", 0));
}

/// Workers that go later are drained by force as the policy says that somebody approved, not as an upload says whose renewal waited for nobody.
#[test]
fn a_renewal_that_nobody_approved_sets_no_limits_for_force() {
    for (approval, expected) in [(Approval::Auto, vec![3_600]), (Approval::Manual, vec![86_400])] {
        let policy = RolloutPolicy { drain_force_after_min: Some(60), ..policy(approval) };
        let mut yard = Yard::new(&SMALL, Change::Credentials, &is_member, &policy).ends_in(24);
        yard.state.force_after_s = BTreeMap::from([(Role::Pool("standing".to_owned()), 86_400)]);
        assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
        let limits: Vec<u32> = yard.state.force_after_s.values().copied().collect();
        assert_eq!(limits, expected, "{approval:?}");
    }
}

#[test]
fn p4_a_member_whose_place_nobody_takes_ends_it_after_an_hour_and_the_others_stay() {
    let mut yard = Yard { boots: 10_000, ..Yard::new(&SMALL, Change::Machines, &is_member, &auto()) };
    assert_eq!(yard.run(), "failed");
    assert!(
        yard.report.message.contains("its machine had no successor within 60 minutes"),
        "{}",
        yard.report.message
    );
    assert_eq!(yard.in_order(), ["etcd-1.0 takes a snapshot", "etcd-0.0 goes"]);
    let minutes = (yard.now - 1_000_000) / 60;
    assert!((62..=66).contains(&minutes), "{minutes}");
}

#[test]
fn p2_a_member_that_is_as_it_should_be_is_left_and_one_without_a_machine_is_waited_for_an_hour() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_member, &auto());
    yard.groups.get_mut("c-etcd-0").unwrap().machines.get_mut("etcd-0.0").unwrap().current = true;
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    let log = ["etcd-0.0 takes a snapshot", "etcd-1.0 leads no more", "etcd-1.0 goes", "etcd-2.0 goes"];
    assert_eq!(yard.in_order(), log);

    let mut yard = Yard { boots: 10_000, ..Yard::new(&SMALL, Change::Machines, &is_member, &auto()) };
    yard.groups.get_mut("c-etcd-0").unwrap().machines.clear();
    assert_eq!(yard.run(), "failed");
    let why = "c-etcd-0 has no machine in service after 60 minutes";
    assert!(yard.report.message.contains(why), "{}", yard.report.message);
    let minutes = (yard.now - 1_000_000) / 60;
    assert!((61..=64).contains(&minutes) && yard.log.is_empty(), "{minutes}: {:?}", yard.log);
}

#[test]
fn p4_p7_after_one_was_changed_the_next_waits_until_all_are_well_unless_certificates_end() {
    for change in [Change::Machines, Change::Credentials] {
        let mut yard = Yard::new(&SMALL, change, &is_member, &auto());
        while yard.log.len() < 2 {
            yard.wake(None);
        }
        yard.silent.insert("etcd-2.0".to_owned());
        assert_eq!(yard.run(), "failed");
        for why in [
            "etcd-0: is not healthy together with the others after 60 minutes",
            "etcd-2 does not answer: lost",
        ] {
            assert!(yard.report.message.contains(why), "{}", yard.report.message);
        }
        assert_eq!(yard.log.len(), 2, "{:?}", yard.log);
    }
    let mut yard = Yard::new(&SMALL, Change::Credentials, &is_member, &auto()).ends_in(-1);
    yard.silent.insert("etcd-2.0".to_owned());
    let (mut first, mut second) = (0, 0);
    while second == 0 {
        yard.wake(None);
        first = if yard.log.len() == 1 && first == 0 { yard.now } else { first };
        second = if yard.log.len() == 2 { yard.now } else { 0 };
    }
    assert_eq!(yard.in_order(), ["etcd-0.0 takes new, restarts", "etcd-1.0 takes new, restarts"]);
    assert!((180..=360).contains(&(second - first)), "{}", second - first);
}

#[test]
fn p4_a_member_that_hangs_is_replaced_within_minutes_while_what_the_others_said_is_new() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &|role| *role == Role::Etcd(0), &auto());
    yard.hanging.insert("etcd-0.0".to_owned());
    while yard.sent == 0 {
        yard.wake(None);
    }
    let sent = yard.now;
    while !yard.log.contains(&"etcd-0.0 goes".to_owned()) && yard.now < sent + 300 {
        yard.wake(None);
    }
    assert_eq!(yard.in_order(), ["etcd-1.0 takes a snapshot", "etcd-0.0 goes"], "{}", yard.report.message);
    assert!(yard.now - sent > 100, "a slow member is waited for");
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    // The roll does not continue without a member that stays and hangs.
    let mut yard = Yard::new(&SMALL, Change::Machines, &|role| *role == Role::Etcd(0), &auto());
    yard.hanging.insert("etcd-2.0".to_owned());
    assert_eq!(yard.run(), "failed");
    assert_eq!(yard.in_order(), ["etcd-1.0 takes a snapshot"]);
}

#[test]
fn p12_a_member_or_a_controller_goes_only_while_what_the_others_said_is_three_minutes_old_at_most() {
    for (change, whom, held) in [
        (Change::Machines, &is_member as Whom<'_>, 3),
        (Change::Machines, &is_controller, 2),
        (Change::Credentials, &is_member, 3),
        (Change::Credentials, &is_controller, 2),
    ] {
        let mut yard = Yard::new(&SMALL, change, whom, &auto());
        assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
        assert_eq!(yard.asks.held, held, "{:?}", yard.log);
    }
}
