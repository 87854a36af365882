//! Successful rollouts are remembered, and a rollback leads to one of them.

use super::undeleted::{Harbour, exporting};
use super::*;

#[test]
fn a_failed_rollout_names_the_generation_that_succeeded_and_the_command_that_leads_back_there() {
    let (mut harbour, state) = Harbour::launched();
    let (before, after) = (exporting(1, true), exporting(2, true));
    harbour.fake.fails = Some("c-control-plane");
    let (state, report, failed) = harbour.roll(state, &after);
    assert_eq!(report.state.as_str(), "failed");
    let way = "; generation 1 succeeded last (1970-01-01T00:01:50Z): `slipway rollback --cluster c` brings back its spec";
    assert!(report.message.ends_with(way), "{}", report.message);
    assert_eq!(state.last.as_ref().unwrap().message, report.message);
    // Half of the rollout is done, and is reverted by a plan from the present state.
    assert_eq!(state.deployed["c-network"], after.id());
    assert_eq!(state.deployed["c-pool-a"], before.id());
    harbour.fake.fails = None;
    let (state, report, back) = harbour.roll(state, &before);
    assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
    assert!(harbour.fake.log.contains(&"execute c-network".to_owned()), "{:?}", harbour.fake.log);
    assert!(!harbour.fake.log.contains(&"execute c-pool-a".to_owned()), "{:?}", harbour.fake.log);
    assert_eq!(state.deployed.values().collect::<BTreeSet<_>>(), BTreeSet::from([&before.id()]));
    let good: Vec<(u64, &str)> =
        state.rollback_targets.iter().map(|one| (one.generation, one.plan.as_str())).collect();
    assert_eq!((good[0], good[1].0, good.len()), ((3, back.id.as_str()), 1, 2));
    assert!(!good.iter().any(|(_, plan)| *plan == failed.id));
    // People are told of all three.
    let past: Vec<(u64, RolloutResult, bool)> =
        state.past.iter().map(|one| (one.generation, one.result, one.message.is_empty())).collect();
    let results = [(3, RolloutResult::Succeeded), (2, RolloutResult::Failed), (1, RolloutResult::Succeeded)];
    assert_eq!(past, results.map(|(number, result)| (number, result, result == RolloutResult::Succeeded)));
    assert!(
        state.past.iter().all(|one| one.started_at.is_some_and(|at| at < one.ended_at)),
        "{:?}",
        state.past
    );
    assert_eq!(state.past[1].plan, failed.id);
}

#[test]
fn what_never_succeeded_or_is_that_very_spec_is_no_way_back() {
    let mut harbour = Harbour::empty();
    harbour.fake.fails = Some("c-etcd");
    let (state, report, _) = harbour.roll(Rollout::new("c"), &exporting(1, true));
    assert_eq!((report.state.as_str(), state.rollback_targets.len()), ("failed", 0));
    assert!(!report.message.contains("rollback"), "{}", report.message);

    // A renewal for the successful spec is a rollout of its own, with the same version.
    let (mut harbour, state) = Harbour::launched();
    let mut renewal = harbour.plan(&state, &exporting(2, true));
    renewal.desired.spec_version.clone_from(&state.rollback_targets[0].spec_version);
    harbour.fake.change_sets.clear();
    harbour.fake.fails = Some("c-etcd");
    let (_, report) = harbour.fake.run(state, &renewal, None, false);
    assert_eq!(report.state.as_str(), "failed");
    assert!(!report.message.contains("rollback"), "{}", report.message);
}

#[test]
fn of_each_spec_the_newest_success_is_remembered_and_no_more_than_five() {
    let (mut harbour, mut state) = Harbour::launched();
    for size in 2..9 {
        state = harbour.roll(state, &exporting(size, true)).0;
    }
    let generations: Vec<u64> = state.rollback_targets.iter().map(|one| one.generation).collect();
    assert_eq!(generations, [8, 7, 6, 5, 4]);
    let mut again = harbour.plan(&state, &exporting(9, true));
    again.desired.spec_version.clone_from(&state.rollback_targets[2].spec_version);
    harbour.fake.change_sets.clear();
    let (state, _) = harbour.fake.run(state, &again, None, false);
    let generations: Vec<u64> = state.rollback_targets.iter().map(|one| one.generation).collect();
    assert_eq!(generations, [9, 8, 7, 5, 4]);
    assert_eq!(state.past.len(), 9, "what people are told does not depend on the spec");
    let mut state = state;
    for size in 10..34 {
        state = harbour.roll(state, &exporting(size, true)).0;
    }
    let past: Vec<u64> = state.past.iter().map(|one| one.generation).collect();
    assert_eq!((past.len(), past[0], past[29]), (30, 33, 4));
}

#[test]
fn the_spec_in_use_is_that_of_the_open_rollout_and_of_the_last_that_succeeded() {
    let (mut harbour, state) = Harbour::launched();
    let launched = state.rollback_targets[0].spec_version.clone();
    assert!(state.uses_spec(&launched) && !state.uses_spec("another"));
    let (state, ..) = harbour.roll(state, &exporting(2, true));
    let newest = state.rollback_targets[0].spec_version.clone();
    assert_ne!(newest, launched);
    assert!(state.uses_spec(&newest) && !state.uses_spec(&launched));
    assert!(!Rollout::new("c").uses_spec(&newest));
}
