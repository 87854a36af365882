//! A newer plan while a rollout is open: when it ends that, and what stays of its approval. What the end of a rollout says about its upload.

use serde_json::json;

use super::decisions::{NOW, rolling, stack};
use super::*;

/// A rollout whose pool waits, and a newer plan.
fn overtaken(newer: &Wanted) -> (Rollout, Observed) {
    let state = rolling(&[stack("c-pool-a", "pool", json!("waiting"))], &[]);
    (state, Observed { desired: Some(newer.clone()), ..Observed::default() })
}

fn newer(approval: Approval) -> Wanted {
    let wanted = wanted(&rendering(2), &Baseline::default(), approval);
    Wanted { desired: Desired { spec_version: "v2".to_owned(), ..wanted.desired }, ..wanted }
}

fn state_of(state: &Rollout, observed: &Observed) -> &'static str {
    decide(state, observed, NOW).report.state.as_str()
}

#[test]
fn p10_a_plan_that_could_not_begin_ends_no_rollout() {
    let plain = newer(Approval::Auto);
    let (state, observed) = overtaken(&plain);
    assert_eq!(state_of(&state, &observed), "superseded");

    let mut objected = plain.clone();
    objected.plan.objections.push("it goes back a minor release".to_owned());
    assert_eq!(state_of(&state, &overtaken(&objected).1), "running");

    let stopped = Stopped { spec_version: "v2".to_owned(), changes: plain.release.id_without_credentials() };
    let blocked = Rollout { stopped: Some(stopped), ..state.clone() };
    assert_eq!(state_of(&blocked, &observed), "running");
    let approved = Rollout { approved: Some(plain.plan.id.clone()), ..blocked };
    assert_eq!(state_of(&approved, &observed), "superseded", "a person wants it after all");

    let mut with_members = plain.clone();
    with_members.release = with_members_of(2);
    let out = Rollout { removed_members: BTreeSet::from([Role::Etcd(1)]), ..state.clone() };
    assert_eq!(state_of(&out, &overtaken(&with_members).1), "running");
    // A renewal of what runs leaves such members as they are.
    with_members.plan.left_behind = Some(BTreeMap::new());
    assert_eq!(state_of(&out, &overtaken(&with_members).1), "superseded");

    let mut renewal = plain.clone();
    renewal.plan.left_behind = Some(BTreeMap::new());
    let stopped = StoppedRenewal {
        spec_version: "v1".to_owned(),
        changes: plain.release.id_without_credentials(),
        aborted: true,
        at: NOW,
    };
    let aborted = Rollout { stopped_renewal: Some(stopped), ..state };
    assert_eq!(state_of(&aborted, &overtaken(&renewal).1), "running");
}

fn with_members_of(members: u32) -> Rendering {
    with_members(2, members, "a")
}

/// A plan that changes nothing needs no approval. It ends what a person has approved only with one.
#[test]
fn p3_a_spec_that_goes_back_ends_an_approved_rollout_only_after_an_approval() {
    for (approval, approved, ends) in [
        (Approval::Auto, false, "superseded"),
        (Approval::Manual, false, "running"),
        (Approval::Manual, true, "superseded"),
    ] {
        let mut back = newer(approval);
        (back.plan.stacks, back.plan.nodes) = (Vec::new(), Vec::new());
        assert!(back.plan.is_empty());
        let (mut state, observed) = overtaken(&back);
        state.approved = approved.then(|| back.plan.id.clone());
        assert_eq!(state_of(&state, &observed), ends, "{approval:?}, {approved}");
    }
}

#[test]
fn p3_the_approval_of_the_newer_plan_outlives_the_rollout_that_gives_way_to_it() {
    let newer = newer(Approval::Manual);
    let (state, observed) = overtaken(&newer);
    for (approved, stays) in [(&newer.plan.id, true), (&"p".to_owned(), false)] {
        let mut state = state.clone();
        state.approved = Some(approved.clone());
        if !stays {
            state.active_mut().unwrap().aborted = Some(NOW);
        }
        let next = decide(&state, &observed, NOW).next;
        assert!(next.active().is_none());
        assert_eq!(next.approved.is_some(), stays, "{approved}");
    }
}

fn ended(result: RolloutResult, unserved: bool) -> Ended {
    Ended {
        plan: "p".to_owned(),
        spec_version: "v1".to_owned(),
        target: "t".to_owned(),
        of_what_runs: false,
        result,
        message: String::new(),
        ended_at: NOW,
        steps: Vec::new(),
        unserved,
    }
}

/// Where only the last check was missing, everything is as planned.
#[test]
fn p7_a_renewal_that_was_only_not_seen_to_serve_holds_up_no_other() {
    use RolloutResult::{Aborted, Failed, Succeeded};
    for (result, unserved, renewal, upload) in [
        (Succeeded, false, None, false),
        (Failed, false, Some(false), true),
        (Failed, true, None, false),
        (Aborted, false, Some(true), true),
        (Aborted, true, None, false),
    ] {
        let mut state = Rollout::new("c");
        state.ends_with(ended(result, unserved), "changes".to_owned(), true);
        let stopped = state.stopped_renewal.as_ref().map(|stopped| stopped.aborted);
        assert_eq!((stopped, state.stopped.is_some()), (renewal, false), "{result:?}, {unserved}");
        state.ends_with(ended(result, unserved), "changes".to_owned(), false);
        assert_eq!(state.stopped.is_some(), upload, "{result:?}, {unserved}");
    }
}

/// If the destruction is aborted in time, the cluster runs on, and nobody has aborted a renewal.
#[test]
fn p7_an_order_to_destroy_the_cluster_aborts_no_renewal() {
    let given = Given { order: Order::Destroy { without_snapshot: true }, at: NOW };
    let deployed = BTreeMap::from([("c-etcd".to_owned(), "t".to_owned())]);
    let mut state = after_order(&Rollout { deployed, ..Rollout::new("c") }, &given, None, NOW);
    state.ends_with(ended(RolloutResult::Aborted, false), "changes".to_owned(), true);
    assert_eq!(state.stopped_renewal, None);
    state.ends_with(ended(RolloutResult::Aborted, false), "changes".to_owned(), false);
    assert!(state.stopped.is_some(), "another upload has to bring it back");
}

#[test]
fn p10_a_spec_that_goes_back_to_what_runs_after_a_failure_is_reported_as_rolled_out() {
    let release = rendering(2);
    let (state, _) = Fake::default().run(
        Rollout::new("c"),
        &wanted(&release, &Baseline::default(), Approval::Auto),
        None,
        false,
    );
    let releases = BTreeMap::from([(release.id(), release.clone())]);
    let baseline = Baseline::assemble("c", &state.deployed, &BTreeMap::new(), &releases).unwrap();
    let mut back = wanted(&release, &baseline, Approval::Auto);
    back.desired.spec_version = "v3".to_owned();
    assert!(back.plan.is_empty());
    let observed = Observed { desired: Some(back.clone()), ..Observed::default() };
    for (failed, of, ends) in [
        (ended(RolloutResult::Failed, false), "v2", "succeeded"),
        (ended(RolloutResult::Superseded, false), "v2", "succeeded"),
        // Nothing says that the cluster serves, or nobody has uploaded anything since.
        (ended(RolloutResult::Failed, true), "v3", "failed"),
        (ended(RolloutResult::Failed, false), "v3", "failed"),
    ] {
        let last = Ended { spec_version: of.to_owned(), ..failed };
        let stopped = Stopped { spec_version: "v2".to_owned(), changes: "changes".to_owned() };
        let state = Rollout { last: Some(last), stopped: Some(stopped), ..state.clone() };
        let decision = decide(&state, &observed, NOW);
        assert_eq!(decision.report.state.as_str(), ends, "{}", decision.report.message);
        assert_eq!(decision.next.stopped.is_none(), ends == "succeeded");
        assert_eq!(decision.effects, []);
    }
    // A member was removed from etcd, and nothing else of that had begun.
    let members = with_members_of(2);
    let (deployed, releases) = (
        members.stacks.iter().map(|stack| (stack.name.clone(), members.id())).collect::<BTreeMap<_, _>>(),
        BTreeMap::from([(members.id(), members.clone())]),
    );
    let there = Baseline::assemble("c", &deployed, &BTreeMap::new(), &releases).unwrap();
    let mut to_members = wanted(&members, &there, Approval::Auto);
    to_members.desired.spec_version = "v3".to_owned();
    assert!(to_members.plan.is_empty());
    let aborted = Ended { spec_version: "v2".to_owned(), ..ended(RolloutResult::Aborted, false) };
    let out = Rollout {
        deployed,
        last: Some(aborted),
        removed_members: BTreeSet::from([Role::Etcd(1)]),
        ..Rollout::new("c")
    };
    let report = decide(&out, &Observed { desired: Some(to_members), ..Observed::default() }, NOW).report;
    assert_eq!(report.state.as_str(), "failed");
    assert!(report.message.contains("etcd-1 may have been removed"), "{}", report.message);
    // Something is left to do, or what is deployed has changed since.
    let failed = Ended { spec_version: "v2".to_owned(), ..ended(RolloutResult::Failed, false) };
    let mut unserved = Rollout { last: Some(Ended { unserved: true, ..failed.clone() }), ..state.clone() };
    unserved.record_return(&back, None, NOW);
    assert!(unserved.last.unwrap().unserved, "the upload is checked once more");
    for (changed, of_what_runs, moved) in [(true, false, false), (false, true, false), (false, false, true)] {
        let mut wanted = back.clone();
        if changed {
            wanted.plan = super::wanted(&rendering(3), &baseline, Approval::Manual).plan;
        }
        wanted.plan.left_behind = of_what_runs.then(BTreeMap::new);
        let mut state = Rollout { last: Some(failed.clone()), ..state.clone() };
        if moved {
            state.deployed.pop_first();
        }
        state.record_return(&wanted, None, NOW);
        assert_eq!(state.last, Some(failed.clone()), "{changed}, {of_what_runs}, {moved}");
    }
}

#[test]
fn p7_only_what_has_stopped_may_hold_up_a_plan() {
    use RolloutResult::{Aborted, Failed, Succeeded, Superseded};
    let stopped = Stopped { spec_version: "v1".to_owned(), changes: String::new() };
    let renewal =
        StoppedRenewal { spec_version: "v1".to_owned(), changes: String::new(), aborted: false, at: NOW };
    let mut state = Rollout::new("c");
    assert!(!state.may_block());
    for (result, blocks) in [(Succeeded, false), (Superseded, false), (Failed, true), (Aborted, true)] {
        state.last = Some(ended(result, false));
        assert_eq!(state.may_block(), blocks, "{result:?}");
    }
    state.last = None;
    assert!(Rollout { stopped: Some(stopped), ..state.clone() }.may_block());
    assert!(Rollout { stopped_renewal: Some(renewal), ..state }.may_block());
}

#[test]
fn p7_a_rollout_changes_stacks_from_the_request_of_a_change_set_to_the_end_of_its_execution() {
    for (step, changes) in [("waiting", false), ("changeSet", true), ("executing", true), ("done", false)] {
        let state = rolling(&[stack("c-etcd", "etcd", json!(step))], &[]);
        assert_eq!(state.active().unwrap().changes_stacks(), changes, "{step}");
    }
}

/// By it a renewal finds the spec of what runs.
#[test]
fn p7_the_upload_of_a_release_is_known_as_long_as_a_stack_has_that_release() {
    let of = |version: &str| Upload { spec_version: version.to_owned(), plan: "p0".to_owned() };
    let mut state = rolling(&[stack("c-etcd", "etcd", json!("waiting"))], &[]);
    state.deployed = BTreeMap::from([("c-etcd".to_owned(), "old".to_owned())]);
    state.orphaned = BTreeMap::from([("c-pool-a".to_owned(), "older".to_owned())]);
    state.uploads =
        ["old", "older", "gone"].map(|release| (release.to_owned(), of(release))).into_iter().collect();
    let active = state.active().unwrap().clone();
    state.record_beginning(&active);
    let known: Vec<&str> = state.uploads.keys().map(String::as_str).collect();
    assert_eq!(known, ["old", "older", "t"]);
    assert_eq!(state.uploads["t"].spec_version, "v1");
}
