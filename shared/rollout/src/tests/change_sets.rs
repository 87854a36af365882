//! Change sets that somebody else changes or deletes.

use super::*;

#[test]
fn p8_a_change_set_that_somebody_deletes_before_it_was_executed_is_made_anew() {
    let mut fake = Fake::default();
    let first = wanted(&rendering(1), &Baseline::default(), Approval::Auto);
    let (mut state, _) = fake.run(Rollout::new("c"), &first, None, false);
    fake.change_sets.clear();
    fake.log.clear();
    let releases = BTreeMap::from([(rendering(1).id(), rendering(1))]);
    let baseline = Baseline::assemble("c", &state.deployed, &BTreeMap::new(), &releases).unwrap();
    let mut second = wanted(&rendering(2), &baseline, Approval::Auto);
    second.desired.spec_version = "v2".to_owned();
    // CloudFormation receives none of the first executions, and somebody deletes the change sets that wait for them.
    let mut deleted = BTreeSet::new();
    for _ in 0..60 {
        let look = to_observe(&state, Some(&second), Timestamp::UNIX_EPOCH);
        let decision = decide(&state, &fake.observe(&look, Some(&second)), Timestamp::UNIX_EPOCH);
        for effect in &decision.effects {
            if let Effect::ExecuteChangeSet { stack, .. } = effect
                && deleted.insert(stack.clone())
            {
                fake.change_sets.remove(stack);
            } else {
                fake.perform(std::slice::from_ref(effect));
            }
        }
        state = Rollout { outbox: Vec::new(), ..decision.next };
    }
    assert_eq!(state.last.as_ref().unwrap().result, RolloutResult::Succeeded, "{:?}", fake.log);
    let executed: BTreeSet<String> =
        fake.log.iter().filter_map(|line| Some(line.strip_prefix("execute ")?.to_owned())).collect();
    assert!(!deleted.is_empty());
    assert_eq!(executed, deleted, "{:?}", fake.log);
}
