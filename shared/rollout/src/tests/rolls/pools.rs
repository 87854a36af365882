//! How many of a pool's workers are replaced at a time, when, and which pool comes first.

use super::*;
use slipway_core::cluster::PoolRollout;

/// How many workers of a pool may be missing, and its surge.
fn pace(max_unavailable: u32, surge: u32) -> RolloutPolicy {
    RolloutPolicy {
        max_unavailable: CountOrPercent::Count(max_unavailable),
        surge: CountOrPercent::Count(surge),
        ..auto()
    }
}

fn workers(workers: u32) -> Size {
    Size { workers, ..SMALL }
}

/// With a pool b that is like pool a.
fn with_pool_b(mut release: Rendering) -> Rendering {
    let node = release.roles[&Role::Pool("a".to_owned())].clone();
    release.roles.insert(Role::Pool("b".to_owned()), NodeRole { stack: "c-pool-b".to_owned(), ..node });
    release
}

fn is_over(yard: &Yard) -> bool {
    yard.state.active().is_none() && yard.state.departures.is_empty()
}

impl Yard {
    /// One minute passes. Returns the effects of the decision.
    fn minute_passes(&mut self) -> Vec<Effect> {
        let decision = self.decides(None);
        self.performs(decision.effects.clone());
        self.state = Rollout { outbox: Vec::new(), ..decision.next };
        self.report = decision.report;
        decision.effects
    }

    fn minute(&self) -> i64 {
        (self.now - 1_000_000) / 60
    }

    /// The indexes of the first and the last line of the log about these machines.
    fn lines_of(&self, machines: &str) -> (usize, usize) {
        let is_about = |line: &String| line.contains(machines);
        let first = self.log.iter().position(is_about).unwrap();
        (first, self.log.iter().rposition(is_about).unwrap())
    }
}

#[test]
fn p6_workers_take_credentials_within_a_window_alone() {
    let start_minute = (minute_of_day(1_000_000) + 10) % 1_440;
    let window = MaintenanceWindow { days: Vec::new(), start_minute, length_min: 8 };
    let policy = RolloutPolicy { windows: vec![window], ..auto() };
    let mut yard = Yard::new(&workers(10), Change::Credentials, &is_worker, &policy);
    let mut taken = BTreeMap::new();
    for _ in 0..1_440 + 30 {
        let before = yard.log.len();
        yard.wake(None);
        if yard.log.len() > before {
            taken.insert(yard.minute(), yard.log.len() - before);
        }
        if (yard.minute() == 5 || yard.minute() == 100) && yard.state.active().is_some() {
            let words = "waits for the next maintenance window";
            assert!(yard.report.message.contains(words), "{}", yard.report.message);
        }
    }
    let open = |minute: &i64| (10..18).contains(&(minute % 1_440));
    assert!(taken.keys().all(open), "{taken:?}");
    assert_eq!(taken.values().sum::<usize>(), 10, "{taken:?}");
    assert!(taken.keys().any(|minute| *minute > 1_440), "some waited for the second window: {taken:?}");
    assert_eq!(yard.report.state.as_str(), "succeeded", "{}", yard.report.message);
}

#[test]
fn p6_workers_take_credentials_as_many_at_once_as_may_be_missing_ten_at_most_and_the_first_alone() {
    for (size, missing, rounds) in [
        (5, CountOrPercent::Count(2), &[1, 2, 2][..]),
        (3, CountOrPercent::Count(0), &[1, 1, 1]),
        (24, CountOrPercent::Percent(100), &[1, 10, 10, 3]),
    ] {
        let policy = RolloutPolicy { max_unavailable: missing, ..auto() };
        let mut yard = Yard::new(&workers(size), Change::Credentials, &is_worker, &policy);
        let mut taken = Vec::new();
        while taken.is_empty() || !is_over(&yard) {
            let effects = yard.minute_passes();
            let refreshes =
                |effect: &&Effect| matches!(effect, Effect::Send(Command { verb: Verb::Refresh { .. }, .. }));
            let count = effects.iter().filter(refreshes).count();
            taken.extend((count > 0).then_some(count));
            assert!(yard.minute() < 60, "{taken:?}: {}", yard.report.message);
        }
        assert_eq!(taken, rounds, "{size} workers");
    }
}

#[test]
fn p6_a_pool_that_comes_after_another_is_rolled_only_when_that_is_and_else_they_are_rolled_side_by_side() {
    let after = |first: &str| PoolRollout { after: vec![first.to_owned()], ..PoolRollout::default() };
    for (second, first) in [("a", Some("b")), ("b", Some("a")), ("a", None)] {
        let pools = first.map(|first| (second.to_owned(), after(first))).into_iter().collect();
        let before = with_pool_b(release(&SMALL, None));
        let changed = with_pool_b(release(&SMALL, Some((Change::Machines, &is_worker))));
        let mut yard = Yard::between(&before, changed, &is_worker, &RolloutPolicy { pools, ..auto() });
        assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
        assert!(yard.groups.values().flat_map(|group| group.machines.values()).all(|one| one.current));
        let (a, b) = (yard.lines_of("pool-a."), yard.lines_of("pool-b."));
        match first {
            Some("a") => assert!(a.1 < b.0, "{:?}", yard.log),
            Some(_) => assert!(b.1 < a.0, "{:?}", yard.log),
            None => assert!(a.0 < b.1 && b.0 < a.1, "{:?}", yard.log),
        }
    }
}

#[test]
fn p6_two_that_are_too_many_and_leave_in_one_look_leave_their_group_two_machines_smaller() {
    let mut yard = Yard::new(&workers(5), Change::Machines, &is_worker, &pace(2, 2));
    let (mut in_one_look, mut sizes) = (0, Vec::new());
    yard.stuck.extend(["pool-a.3".to_owned(), "pool-a.4".to_owned()]);
    while in_one_look == 0 || !is_over(&yard) {
        let effects = yard.minute_passes();
        // Both are empty at the same moment.
        if yard.state.departures.values().filter(|one| one.is_surplus()).count() == 2 {
            yard.stuck.clear();
        }
        let sized = effects.iter().filter_map(|effect| match effect {
            Effect::Terminate { then_desired, .. } => *then_desired,
            Effect::CreateChangeSet(_)
            | Effect::ExecuteChangeSet { .. }
            | Effect::DeleteChangeSet { .. }
            | Effect::DeleteStack { .. }
            | Effect::PointAddons(_)
            | Effect::Send(_)
            | Effect::Cancel(_)
            | Effect::SetDesired { .. }
            | Effect::ProlongTermination { .. }
            | Effect::CompleteTermination { .. }
            | Effect::ArmTick
            | Effect::DisarmTick
            | Effect::Publish(_) => None,
        });
        let sized: Vec<u32> = sized.collect();
        in_one_look = in_one_look.max(sized.len());
        sizes.extend(sized);
        assert!(yard.minute() < 120, "{:?}: {}", yard.log, yard.report.message);
    }
    assert_eq!((in_one_look, sizes), (2, vec![5, 5]), "{:?}", yard.log);
    let group = &yard.groups["c-pool-a"];
    assert_eq!((group.desired, group.machines.len()), (5, 5), "{:?}", yard.log);
}

#[test]
fn p6_a_worker_that_ec2_finds_ill_counts_as_missing_until_another_has_taken_its_place() {
    let drains = |yard: &Yard| yard.log.iter().filter(|line| line.contains(" drains ")).count();
    // Before the first one is gone, and between two.
    for (missing, gone) in [(2, 0), (1, 1), (1, 3)] {
        let mut yard = Yard::new(&workers(5), Change::Machines, &is_worker, &pace(missing, 0));
        while yard.log.iter().filter(|line| line.ends_with(" goes")).count() < gone {
            yard.wake(None);
        }
        yard.ill.insert("pool-a.4".to_owned());
        // Auto Scaling has not terminated it.
        (0..30).for_each(|_| yard.wake(None));
        assert_eq!(drains(&yard), gone, "{missing} may be missing: {:?}", yard.log);
        assert_eq!(yard.report.state.as_str(), "running", "{}", yard.report.message);
        // Auto Scaling terminates it: another one replaces it, and the other workers follow.
        yard.groups.get_mut("c-pool-a").unwrap().machines.remove("pool-a.4");
        assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
        assert_eq!(drains(&yard), 4, "{:?}", yard.log);
    }
}

/// If more may be missing, another worker is replaced nevertheless. The rollout does not terminate the unhealthy one: Auto Scaling does,
/// and launches another.
#[test]
fn p6_a_worker_that_ec2_finds_ill_is_left_to_auto_scaling() {
    let mut yard = Yard::new(&workers(7), Change::Machines, &is_worker, &pace(2, 0));
    let two = ["pool-a.1", "pool-a.2"];
    while !two.iter().all(|id| yard.log.contains(&format!("{id} goes"))) {
        yard.wake(None);
    }
    yard.ill.insert("pool-a.3".to_owned());
    for _ in 0..30 {
        yard.wake(None);
        let others = yard.state.departures.keys().filter(|id| !two.contains(&id.as_str()));
        assert!(others.count() <= 1, "one of two is missing already: {:?}", yard.state.departures);
    }
    let drained: Vec<&str> =
        yard.log.iter().filter_map(|line| Some(line.split_once(" drains ")?.1)).collect();
    let well = ["pool-a.0", "pool-a.1", "pool-a.2", "pool-a.4", "pool-a.5", "pool-a.6"];
    assert_eq!(drained, well, "{:?}", yard.log);
}

#[test]
fn p6_a_pool_that_is_as_large_as_it_may_be_is_told_to_want_no_more_and_is_rolled_with_what_may_be_missing() {
    let raises = |yard: &Yard| -> Vec<String> {
        yard.log.iter().filter(|line| line.starts_with("c-pool-a wants")).cloned().collect()
    };
    for (max, wants) in
        [(3, &[][..]), (4, &["c-pool-a wants 4"]), (5, &["c-pool-a wants 4", "c-pool-a wants 5"])]
    {
        let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &pace(1, 2));
        yard.groups.get_mut("c-pool-a").unwrap().max = max;
        assert_eq!(yard.run(), "succeeded", "{max}: {}", yard.report.message);
        assert_eq!(raises(&yard), wants, "{max}: {:?}", yard.log);
        let group = &yard.groups["c-pool-a"];
        assert!(group.desired == 3 && group.machines.values().all(|one| one.current), "{:?}", yard.log);
    }
    // If none may be missing, it waits, and says for what.
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &pace(0, 1));
    yard.groups.get_mut("c-pool-a").unwrap().max = 3;
    (0..30).for_each(|_| yard.wake(None));
    assert!(yard.log.is_empty() && yard.report.state.as_str() == "running", "{:?}", yard.log);
    assert!(yard.report.message.contains("c-pool-a"), "{}", yard.report.message);
}

#[test]
fn p6_a_pool_with_weights_gets_none_first_and_is_rolled_with_what_may_be_missing() {
    let weighted = |mut release: Rendering| {
        release.roles.values_mut().for_each(|node| node.weighted = true);
        release
    };
    let before = weighted(release(&SMALL, None));
    let after = weighted(release(&SMALL, Some((Change::Machines, &is_worker))));
    let mut yard = Yard::between(&before, after, &is_worker, &pace(1, 2));
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    assert!(!yard.log.iter().any(|line| line.contains("wants")), "{:?}", yard.log);
}

/// A rule that a person removed from the spec does not apply any more, even for machines that Auto Scaling terminates.
#[test]
fn p6_a_drain_in_a_hook_is_forced_after_what_the_newest_spec_says_and_never_where_it_says_nothing() {
    let minutes = |minutes| RolloutPolicy { drain_force_after_min: minutes, ..auto() };
    for (before, newest, forced) in
        [(Some(5), None, None), (Some(5), Some(10), Some(600)), (None, Some(10), Some(600))]
    {
        let mut yard = Yard::new(&SMALL, Change::Machines, &is_member, &minutes(newest));
        let pool = Role::Pool("a".to_owned());
        yard.state.force_after_s.extend(before.map(|minutes: u32| (pool.clone(), minutes * 60)));
        yard.wake(None);
        assert!(yard.state.active().is_some());
        let group = yard.groups.get_mut("c-pool-a").unwrap();
        group.machines.get_mut("pool-a.2").unwrap().lifecycle = Lifecycle::TerminatingWait;
        let mut sent = Vec::new();
        for _ in 0..5 {
            for effect in yard.minute_passes() {
                if let Effect::Send(Command { verb: Verb::Drain { force_after_s, .. }, .. }) = effect {
                    sent.push(force_after_s);
                }
            }
        }
        assert!(!sent.is_empty() && sent.iter().all(|after| *after == forced), "{newest:?}: {sent:?}");
    }
}

#[test]
fn p6_of_a_pool_that_goes_no_more_are_emptied_at_once_than_may_be_missing() {
    for (missing, most) in
        [(CountOrPercent::Count(2), 2), (CountOrPercent::Count(0), 1), (CountOrPercent::Percent(50), 3)]
    {
        let policy = RolloutPolicy { max_unavailable: missing, ..auto() };
        let size = workers(7);
        let before = with_pool_b(release(&size, None));
        let mut after = release(&size, None);
        after.stacks.retain(|stack| stack.name != "c-pool-b");
        let mut yard = Yard::between(&before, after, &|_| false, &policy);
        yard.fake.tags = BTreeMap::from([("slipway:cluster".to_owned(), "c".to_owned())]);
        let mut at_once = BTreeSet::new();
        while yard.minute() < 60 && !yard.fake.log.contains(&"delete c-pool-b".to_owned()) {
            yard.wake(None);
            let removed = |one: &&crate::Departure| one.role == Role::Pool("b".to_owned());
            at_once.insert(yard.state.departures.values().filter(removed).count());
        }
        assert_eq!(at_once.last(), Some(&most), "{missing:?}: {:?}", yard.log);
        let drained: BTreeSet<&str> =
            yard.log.iter().filter_map(|line| Some(line.split_once(" drains ")?.1)).collect();
        assert_eq!(drained.len(), 7, "{:?}", yard.log);
        assert!(!yard.log.iter().any(|line| line.contains("goes")), "they stay, empty: {:?}", yard.log);
        assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    }
}
