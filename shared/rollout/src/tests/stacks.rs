//! The moves of a stack's step in each state, for each status of its stack and its change set.

use jiff::SignedDuration;
use serde_json::json;

use super::decisions::{NOW, executed, rolling, seen, stack};
use super::*;
use crate::stack_step::advance;
use crate::waits::{ChangeSetWaits, Detail, StackWaits};
use slipway_core::release::ETCD_HOSTED_ZONE;

const STACK: &str = "c-etcd";

fn view(status: StackStatus) -> StackView {
    let tags = BTreeMap::from([("slipway:cluster".to_owned(), "c".to_owned())]);
    StackView { id: "arn:c-etcd".to_owned(), status, reason: None, tags }
}

/// The move of a step in that state, and its waiting reason.
fn moved(
    state: &StepState,
    stands: Option<StackStatus>,
    change_set: Option<ChangeSetStatus>,
    failures: &[ResourceFailure],
) -> (StepState, Vec<Effect>, StackWaits) {
    moved_after(120, state, stands, change_set, failures)
}

/// As [`moved`], if the stack has been missing for this long, where it is missing.
fn moved_after(
    missing_s: i64,
    state: &StepState,
    stands: Option<StackStatus>,
    change_set: Option<ChangeSetStatus>,
    failures: &[ResourceFailure],
) -> (StepState, Vec<Effect>, StackWaits) {
    let now = Timestamp::from_second(1_000).unwrap();
    let rollout = rolling(&[stack(STACK, "etcd", json!(state))], &[]);
    let mut active = rollout.active().unwrap().clone();
    active.steps[0].unseen = Some(Unseen::Execution { since: now - SignedDuration::from_secs(missing_s) });
    let stands = stands.map(view);
    let reason = Some("why".to_owned());
    let change_set = change_set.map(|status| ChangeSetView { status, reason, replaces: Vec::new() });
    let next = advance(&active, &active.steps[0], stands.as_ref(), change_set.as_ref(), failures, now);
    (next.state, next.effects, next.waits)
}

fn creates(create: bool) -> Effect {
    Effect::CreateChangeSet(ChangeSetRequest {
        stack: STACK.to_owned(),
        name: "slipway-4-p".to_owned(),
        create,
        template_key: "k".to_owned(),
        tags: view(StackStatus::CreateComplete).tags,
    })
}

fn token(of: &str, operation: &str) -> String {
    rolling(&[], &[]).active().unwrap().token(of, operation)
}

fn executes() -> Effect {
    let token = token(STACK, "execute");
    Effect::ExecuteChangeSet { stack: STACK.to_owned(), name: "slipway-4-p".to_owned(), token }
}

fn drops() -> Effect {
    Effect::DeleteChangeSet { stack: STACK.to_owned(), name: "slipway-4-p".to_owned() }
}

fn deletes() -> Effect {
    let token = token("arn:c-etcd", "delete");
    Effect::DeleteStack { stack: STACK.to_owned(), id: "arn:c-etcd".to_owned(), stands: false, token }
}

fn waits(waits: ChangeSetWaits) -> StackWaits {
    StackWaits::ChangeSet(waits)
}

#[test]
fn a_step_goes_on_as_its_stack_and_its_change_set_allow() {
    use ChangeSetStatus as C;
    use StackStatus as S;
    use StepState::{ChangeSet, Done, Executing, Waiting};
    for (state, stands, change_set, next, effects, says) in [
        (Waiting, None, None, ChangeSet, vec![creates(true)], waits(ChangeSetWaits::Requesting)),
        (
            Waiting,
            Some(S::UpdateRollbackComplete),
            None,
            ChangeSet,
            vec![creates(false)],
            waits(ChangeSetWaits::Requesting),
        ),
        (Waiting, Some(S::RollbackComplete), None, Waiting, vec![deletes()], StackWaits::Wreck),
        (
            ChangeSet,
            Some(S::ReviewInProgress),
            Some(C::Pending),
            ChangeSet,
            vec![],
            waits(ChangeSetWaits::Making),
        ),
        (
            ChangeSet,
            Some(S::UpdateComplete),
            Some(C::Ready),
            Executing,
            vec![executes()],
            StackWaits::Executes,
        ),
        (
            ChangeSet,
            Some(S::UpdateComplete),
            Some(C::NoChanges),
            Done,
            vec![drops()],
            StackWaits::NothingToChange,
        ),
        (
            ChangeSet,
            Some(S::UpdateComplete),
            Some(C::Obsolete),
            Waiting,
            vec![drops()],
            waits(ChangeSetWaits::Anew),
        ),
        // An invocation requested the execution and could not record that any more.
        (ChangeSet, Some(S::UpdateComplete), Some(C::Executed), Executing, vec![], StackWaits::Starts),
        // CloudFormation has not received the request.
        (
            Executing,
            Some(S::ReviewInProgress),
            Some(C::Ready),
            Executing,
            vec![executes()],
            StackWaits::Executes,
        ),
        (
            Executing,
            Some(S::UpdateInProgress),
            Some(C::Executing),
            Executing,
            vec![],
            StackWaits::AtWork(Some(S::UpdateInProgress)),
        ),
        (Executing, Some(S::UpdateComplete), Some(C::Executing), Executing, vec![], StackWaits::Starts),
        (
            Executing,
            Some(S::UpdateComplete),
            Some(C::Executed),
            Done,
            vec![],
            StackWaits::Done(Some(S::UpdateComplete)),
        ),
        (
            Executing,
            Some(S::CreateComplete),
            None,
            ChangeSet,
            vec![creates(false)],
            waits(ChangeSetWaits::Requesting),
        ),
    ] {
        let case = format!("{state:?} {stands:?} {change_set:?}");
        assert_eq!(moved(&state, stands, change_set, &[]), (next, effects, says), "{case}");
    }
}

#[test]
fn a_step_that_cannot_go_on_fails_with_what_cloudformation_says_and_its_change_set_is_dropped() {
    use ChangeSetStatus as C;
    use StackStatus as S;
    use StepState::{ChangeSet, Executing};
    let rolled_back = "the update of c-etcd was rolled back (UPDATE_ROLLBACK_COMPLETE)";
    let by_hand = "c-etcd is DELETE_FAILED: delete the stack by hand, then upload the spec again";
    for (state, stands, change_set, why, effects) in [
        (
            ChangeSet,
            Some(S::ReviewInProgress),
            Some(C::NoChanges),
            "CloudFormation finds nothing to create in c-etcd: why",
            vec![],
        ),
        // Without its change set nobody would know the empty stack as ours, and it would stay.
        (
            ChangeSet,
            Some(S::ReviewInProgress),
            Some(C::Failed),
            "CloudFormation refuses the template of c-etcd: why",
            vec![],
        ),
        (
            ChangeSet,
            Some(S::UpdateComplete),
            Some(C::Failed),
            "CloudFormation refuses the template of c-etcd: why",
            vec![drops()],
        ),
        (Executing, None, None, "c-etcd was deleted while it was being created", vec![]),
        (Executing, Some(S::RollbackComplete), Some(C::Executed), "c-etcd could not be created", vec![]),
        (Executing, Some(S::UpdateRollbackComplete), Some(C::Executed), rolled_back, vec![]),
        (Executing, Some(S::UpdateRollbackComplete), Some(C::ExecuteFailed), rolled_back, vec![]),
        (Executing, Some(S::UpdateRollbackComplete), None, rolled_back, vec![]),
        (Executing, Some(S::DeleteFailed), Some(C::Executed), by_hand, vec![]),
    ] {
        let why = why.to_owned();
        let failed = (StepState::Failed(why.clone()), effects, StackWaits::Failed(Detail(why)));
        assert_eq!(moved(&state, stands, change_set, &[]), failed, "{state:?} {stands:?} {change_set:?}");
    }
}

/// CloudFormation's answers may be late: the first one after the execution may be from before the stack was there.
#[test]
fn a_stack_that_is_missing_for_moments_was_not_deleted() {
    for stands in [None, Some(StackStatus::DeleteComplete), Some(StackStatus::ReviewInProgress)] {
        let (state, effects, waits) = moved_after(119, &StepState::Executing, stands, None, &[]);
        assert_eq!(
            (state, effects, waits),
            (StepState::Executing, vec![], StackWaits::AtWork(None)),
            "{stands:?}"
        );
        let (state, ..) = moved_after(120, &StepState::Executing, stands, None, &[]);
        assert!(matches!(state, StepState::Failed(_)), "{stands:?}");
    }
}

/// The stack was rolled back before, and the first answer after the execution is from before it.
#[test]
fn a_stack_that_still_shows_an_earlier_rollback_was_not_rolled_back() {
    for change_set in [Some(ChangeSetStatus::Executed), None] {
        let stands = Some(StackStatus::UpdateRollbackComplete);
        let (state, effects, waits) = moved_after(119, &StepState::Executing, stands, change_set, &[]);
        assert_eq!((state, effects), (StepState::Executing, vec![]), "{change_set:?}");
        assert_eq!(waits, StackWaits::AtWork(stands), "{change_set:?}");
    }
    // The time counts from the first answer that shows it, and not while the change set is still executed.
    let at = |second: i64| Timestamp::from_second(1_000 + second).unwrap();
    let mut state = rolling(&[stack(STACK, "etcd", json!("executing"))], &[]);
    for (second, ended) in [(-100, false), (-1, false), (0, false), (60, false), (119, false), (120, true)] {
        let answer = Some(view(StackStatus::UpdateRollbackComplete));
        let status = if second < 0 { ChangeSetStatus::Executing } else { ChangeSetStatus::Executed };
        let change_set = ChangeSetView { status, reason: None, replaces: Vec::new() };
        let observed = Observed {
            stacks: [(STACK.to_owned(), answer)].into(),
            change_sets: [(STACK.to_owned(), Some(change_set))].into(),
            ..Observed::default()
        };
        let decision = decide(&state, &observed, at(second));
        assert_eq!(decision.next.active().is_none(), ended, "{second}: {}", decision.report.message);
        state = Rollout { outbox: Vec::new(), ..decision.next };
    }
}

#[test]
fn a_stack_that_shows_itself_between_two_answers_without_it_counts_as_missing_anew() {
    let at = |second: i64| Timestamp::from_second(1_000 + second).unwrap();
    let mut state = rolling(&[stack(STACK, "etcd", json!("executing"))], &[]);
    for (second, shows) in [(0, false), (60, false), (100, true), (130, false), (249, false), (250, false)] {
        let answer = shows.then(|| view(StackStatus::CreateInProgress));
        let observed = Observed { stacks: [(STACK.to_owned(), answer)].into(), ..Observed::default() };
        let decision = decide(&state, &observed, at(second));
        let ended = decision.next.active().is_none();
        assert_eq!(ended, second == 250, "{second}: {}", decision.report.message);
        state = Rollout { outbox: Vec::new(), ..decision.next };
    }
}

/// Somebody changed the stack by hand, so that CloudFormation would replace a volume along with what the plan replaces.
#[test]
fn p3_a_change_set_may_replace_what_the_plan_names_and_nothing_besides() {
    for (replaces, unplanned) in [(&["Thing"][..], false), (&["Thing", "Volume"], true), (&["Volume"], true)]
    {
        let rollout = rolling(&[stack(STACK, "etcd", json!("changeSet"))], &[]);
        let mut active = rollout.active().unwrap().clone();
        active.steps[0].may_replace = ["Thing".to_owned()].into();
        let replaces = replaces.iter().map(|&id| id.to_owned()).collect();
        let change_set = ChangeSetView { status: ChangeSetStatus::Ready, reason: None, replaces };
        let stands = view(StackStatus::UpdateComplete);
        let now = Timestamp::from_second(1_000).unwrap();
        let next = advance(&active, &active.steps[0], Some(&stands), Some(&change_set), &[], now);
        assert_eq!(next.effects, [if unplanned { drops() } else { executes() }], "{change_set:?}");
        let named = "CloudFormation would replace or remove Volume in c-etcd, which the plan does not say";
        let fails = matches!(&next.state, StepState::Failed(why) if why.starts_with(named));
        assert_eq!(fails, unplanned, "{:?}", next.state);
    }
}

#[test]
fn a_zone_that_could_not_be_deleted_is_told_with_the_command_that_empties_it() {
    for (resource, is_told) in [(ETCD_HOSTED_ZONE, true), ("Thing", false)] {
        let failure = ResourceFailure {
            logical_id: resource.to_owned(),
            resource_type: "AWS::Route53::HostedZone".to_owned(),
            status: "DELETE_FAILED".to_owned(),
            reason: "it is not empty".to_owned(),
        };
        let (state, ..) = moved(&StepState::Executing, Some(StackStatus::DeleteFailed), None, &[failure]);
        let StepState::Failed(why) = state else { panic!("{state:?}") };
        let zone = format!("--stack-name c-etcd --logical-resource-id {ETCD_HOSTED_ZONE}");
        assert_eq!(why.contains(&zone), is_told, "{why}");
        assert_eq!(why.contains("aws route53 change-resource-record-sets"), is_told, "{why}");
    }
}

#[test]
fn a_status_says_that_the_newest_operation_failed_where_cloudformation_calls_it_failed_or_rolled_back() {
    use StackStatus as S;
    for status in [
        S::ReviewInProgress,
        S::CreateInProgress,
        S::CreateComplete,
        S::CreateFailed,
        S::RollbackInProgress,
        S::RollbackComplete,
        S::RollbackFailed,
        S::UpdateInProgress,
        S::UpdateCompleteCleanupInProgress,
        S::UpdateComplete,
        S::UpdateFailed,
        S::UpdateRollbackInProgress,
        S::UpdateRollbackCompleteCleanupInProgress,
        S::UpdateRollbackComplete,
        S::UpdateRollbackFailed,
        S::DeleteInProgress,
        S::DeleteComplete,
        S::DeleteFailed,
        S::ImportInProgress,
        S::ImportComplete,
        S::ImportRollbackInProgress,
        S::ImportRollbackComplete,
        S::ImportRollbackFailed,
    ] {
        let name = status.to_string();
        let fails = name.contains("ROLLBACK") || name.ends_with("_FAILED");
        assert_eq!(status.is_failure(), fails, "{name}");
    }
}

/// A person repaired the stack before the rollout, or an earlier creation was deleted, and the answer is from before.
#[test]
fn p8_a_status_that_fails_a_stack_is_believed_after_two_minutes() {
    use StackStatus as S;
    let executing = StepState::Executing;
    for (state, status) in [
        (StepState::Waiting, S::UpdateRollbackFailed),
        (StepState::ChangeSet, S::UpdateFailed),
        (executing.clone(), S::UpdateRollbackFailed),
        (executing.clone(), S::RollbackComplete),
        (executing, S::CreateFailed),
    ] {
        for (seconds, fails) in [(0, false), (119, false), (120, true)] {
            let (next, effects, waits) = moved_after(seconds, &state, Some(status), None, &[]);
            assert_eq!(matches!(next, StepState::Failed(_)), fails, "{status} after {seconds} s: {next:?}");
            assert_eq!(effects, []);
            assert_eq!(waits == StackWaits::SecondLook(Some(status)), !fails, "{waits:?}");
        }
    }
    // The whole decision counts the two minutes, and goes on once the answer is newer.
    let state = rolling(&[stack("c-pool-a", "pool", json!("executing"))], &[]);
    let late = seen(&[("c-pool-a", S::UpdateRollbackFailed)]);
    let looked = decide(&state, &late, NOW).next;
    let since = Some(Unseen::Execution { since: NOW });
    assert_eq!(looked.active().unwrap().steps[0].unseen, since);
    let newer = decide(&looked, &executed(&[("c-pool-a", S::UpdateComplete)]), NOW).next;
    assert_eq!(newer.deployed["c-pool-a"], "t");
    let failed = decide(&looked, &late, NOW + SignedDuration::from_mins(2)).next;
    assert!(failed.last.is_some_and(|last| last.message.contains("continue-update-rollback")));
}

#[test]
fn p10_only_a_stack_of_ours_that_was_being_made_and_exists_is_unfinished() {
    const POOL: &str = "c-pool-a";
    let unfinished = |state: &str, stands: bool, change: fn(&mut StackView)| {
        let mut rollout = rolling(&[stack(POOL, "pool", json!(state))], &[]);
        if stands {
            rollout.deployed.insert(POOL.to_owned(), "old".to_owned());
        }
        let mut observed = seen(&[(POOL, StackStatus::RollbackFailed)]);
        let active = rollout.active().unwrap();
        observed.stacks.get_mut(POOL).unwrap().as_mut().unwrap().tags.clone_from(&active.steps[0].tags);
        change(observed.stacks.get_mut(POOL).unwrap().as_mut().unwrap());
        crate::end::unfinished(&rollout, active, &observed)
    };
    let foreign = |view: &mut StackView| {
        view.tags.insert("slipway:cluster".to_owned(), "another".to_owned());
    };
    assert_eq!(unfinished("executing", false, |_| {}), [(POOL.to_owned(), "t".to_owned())]);
    assert_eq!(unfinished("executing", true, |_| {}), []);
    assert_eq!(unfinished("done", false, |_| {}), []);
    assert_eq!(unfinished("executing", false, foreign), []);
    assert_eq!(unfinished("executing", false, |view| view.status = StackStatus::DeleteComplete), []);
}
