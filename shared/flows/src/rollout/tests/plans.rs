//! Plans that are made anew since things have moved on, and what is read of the world before a decision.

use std::sync::atomic::{AtomicU32, Ordering};

use slipway_core::cluster::{Approval, CountOrPercent, GroupSize, RolloutPolicy};
use slipway_core::deadline::Deadline;
use slipway_core::digest::sha256_hex;
use slipway_core::release::{AddonSet, NodeRole, Stack, StackKind};
use slipway_plan::RenewalPlan;

use super::*;

const DESIRED: &str = "put clusters/c/desired.json";
const READY: &str = "publish Plan Ready";

fn release(size: u32) -> Rendering {
    let vpc = json!({"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": format!("10.{size}.0.0/16")}});
    let body = json!({"Resources": {"Thing": vpc}}).to_string();
    let stack = Stack {
        name: "c-network".to_owned(),
        kind: StackKind::Network,
        sha256: sha256_hex(body.as_bytes()),
        body,
        tags: BTreeMap::from([("slipway:cluster".to_owned(), "c".to_owned())]),
    };
    Rendering {
        format: Rendering::FORMAT,
        cluster: "c".to_owned(),
        stacks: vec![stack],
        roles: BTreeMap::new(),
        addons: AddonSet::default(),
    }
}

/// A plan of `to` that was made when nothing stood.
fn planned(shore: &Shore, to: &Rendering) -> Desired {
    let policy = RolloutPolicy {
        approval: Approval::Auto,
        max_unavailable: CountOrPercent::Count(1),
        surge: CountOrPercent::Count(0),
        drain_force_after_min: None,
        failure_budget: 1,
        windows: Vec::new(),
        pools: BTreeMap::new(),
    };
    let plan = slipway_plan::plan(&Baseline::default(), to, &policy);
    let desired = Desired {
        format: 1,
        spec_version: "v2".to_owned(),
        plan: plan.id.clone(),
        target: plan.to.clone(),
        deletion_protection: false,
        manual_since: None,
        accepted: None,
        snapshots: None,
        set_aside: None,
    };
    shore.keeps(&keys::plan("c", &plan.id), &plan);
    shore.keeps_release(to);
    shore.keeps(&keys::desired("c"), &desired);
    desired
}

/// A cluster that is at the first release, and a plan of the second that was made before it was.
fn moved_on(state: Rollout) -> (Shore, Desired) {
    moved_between(state, &release(1), &release(2))
}

fn moved_between(state: Rollout, here: &Rendering, there: &Rendering) -> (Shore, Desired) {
    let deployed = BTreeMap::from([("c-network".to_owned(), here.id())]);
    let shore = Shore::with(&Rollout { deployed, ..state });
    shore.has("c-network", StackStatus::CreateComplete);
    shore.keeps_release(here);
    let desired = planned(&shore, there);
    (shore, desired)
}

/// [`release`], with controllers of those credentials.
fn with_controllers(size: u32, credentials: &str) -> Rendering {
    let node = NodeRole {
        stack: "c-network".to_owned(),
        nodes: GroupSize { min: 1, max: 2 },
        machine: json!({}),
        config: "{}".to_owned(),
        config_digest: String::new(),
        credentials_digest: credentials.to_owned(),
        version: None,
        member: None,
        weighted: false,
    };
    Rendering { roles: BTreeMap::from([(Role::Controller, node)]), ..release(size) }
}

fn desired_of(shore: &Shore) -> Desired {
    shore.kept(&keys::desired("c")).unwrap()
}

fn place(log: &[String], what: &str) -> Option<usize> {
    log.iter().position(|line| line == what)
}

/// The rollout of the first release, all of whose stacks are done.
fn last_step() -> Rollout {
    let mut rolling = rolling(json!("done"));
    rolling.active_mut().unwrap().target = release(1).id();
    rolling
}

#[tokio::test]
async fn p3_a_plan_that_is_made_anew_is_kept_then_announced_and_only_then_the_one_to_execute() {
    let (shore, stale) = moved_on(idle());
    shore.wakes(Waker::Event).await.unwrap();
    let desired = desired_of(&shore);
    assert_ne!(desired.plan, stale.plan);
    assert_eq!((&desired.target, &desired.spec_version), (&stale.target, &stale.spec_version));
    let log = shore.log();
    let kept = format!("put {}", keys::plan("c", &desired.plan));
    let order =
        [place(&log, &kept), place(&log, READY), place(&log, DESIRED), place(&log, "create c-network")];
    assert!(order.is_sorted() && order.iter().all(Option::is_some), "{log:?}");
    assert_eq!(shore.state().active().unwrap().plan, desired.plan);
}

/// Who dies between the two announces it twice, and not never.
#[tokio::test]
async fn p8_a_plan_that_is_made_anew_is_announced_however_the_function_dies() {
    for (call, announced) in [(READY, 2), (DESIRED, 2), ("put clusters/c/rollout.json", 1)] {
        let (shore, stale) = moved_on(idle());
        shore.fails(call, ErrorKind::Transient);
        shore.wakes(Waker::Event).await.unwrap_err();
        assert_eq!(desired_of(&shore) == stale, call != "put clusters/c/rollout.json", "{call}");
        assert!(shore.state().active().is_none());
        shore.works();
        shore.wakes(Waker::Event).await.unwrap();
        let tries = shore.done().iter().filter(|line| *line == READY).count();
        assert_eq!(tries, announced, "{call}");
        assert_eq!(shore.state().active().unwrap().plan, desired_of(&shore).plan, "{call}");
    }
}

#[tokio::test]
async fn p3_a_plan_that_is_made_anew_gives_way_to_a_spec_that_was_uploaded_meanwhile() {
    let (shore, stale) = moved_on(idle());
    shore.is_raced(&keys::desired("c"));
    shore.wakes(Waker::Event).await.unwrap();
    assert_eq!(desired_of(&shore), stale);
    assert!(shore.state().active().is_none() && !shore.done().iter().any(|line| line.starts_with("create")));
}

#[tokio::test]
async fn p1_a_plan_of_what_stands_already_is_not_announced_and_begins_nothing() {
    let (shore, _) = moved_on(idle());
    let stale = planned(&shore, &release(1));
    shore.wakes(Waker::Event).await.unwrap();
    let desired = desired_of(&shore);
    assert_eq!((&desired.target, shore.done().len()), (&stale.target, 0));
    // It is desired, so that it is not made once more at each wake, and the status says that nothing is left to do.
    assert_ne!(desired.plan, stale.plan);
    shore.wakes(Waker::Event).await.unwrap();
    assert_eq!((desired_of(&shore), shore.done().len()), (desired, 0));
}

/// The next scan makes it anew, if certificates still have to be renewed.
#[tokio::test]
async fn p7_a_renewal_of_what_ran_then_that_would_do_something_else_now_is_not_made_anew() {
    let (shore, stale) = moved_on(idle());
    let key = keys::plan("c", &stale.plan);
    let plan: Plan = shore.kept(&key).unwrap();
    shore.keeps(&key, &Plan { left_behind: Some(BTreeMap::new()), ..plan });
    shore.wakes(Waker::Event).await.unwrap();
    assert_eq!((desired_of(&shore), shore.done().len()), (stale, 0));
}

#[tokio::test]
async fn p7_of_the_plans_that_are_over_only_a_failed_renewal_of_what_runs_is_read_again() {
    for (result, of_what_runs, is_read) in [
        (RolloutResult::Failed, true, true),
        (RolloutResult::Succeeded, true, false),
        (RolloutResult::Failed, false, false),
    ] {
        let (shore, desired) = moved_on(idle());
        let last = Ended {
            plan: desired.plan.clone(),
            spec_version: desired.spec_version.clone(),
            target: desired.target.clone(),
            of_what_runs,
            result,
            message: String::new(),
            ended_at: at(0),
            steps: Vec::new(),
            unserved: false,
        };
        shore.keeps(&keys::rollout("c"), &Rollout { last: Some(last), ..shore.state() });
        shore.wakes(Waker::Event).await.unwrap();
        let plan = format!("get {}", keys::plan("c", &desired.plan));
        assert_eq!(
            place(&shore.log(), &plan).is_some(),
            is_read,
            "{result:?}, {of_what_runs}: {:?}",
            shore.log()
        );
    }
}

#[tokio::test]
async fn a_release_that_is_lost_is_told_by_its_key_and_moves_nothing() {
    let (shore, _) = moved_on(idle());
    let lost = keys::release("c", "another");
    let deployed = BTreeMap::from([("c-network".to_owned(), "another".to_owned())]);
    shore.keeps(&keys::rollout("c"), &Rollout { deployed, ..idle() });
    let error = shore.wakes(Waker::Event).await.unwrap_err();
    assert_eq!(error.kind(), "Slipway.Corrupt");
    assert!(shore.report().unwrap().message.contains(&format!("{lost} is lost")), "{:?}", shore.report());
    assert_eq!(shore.done(), [""; 0]);
}

/// A plan that waits for an approval was set aside for a renewal.
#[tokio::test]
async fn p7_a_plan_that_was_set_aside_is_desired_again_once_the_renewal_is_over() {
    let (shore, waits) = moved_on(idle());
    let renewal = Desired { plan: "renewal".to_owned(), target: release(1).id(), ..waits.clone() };
    let renewal = waits.clone().set_aside_for("v1", &renewal.plan, &renewal.target);
    shore.keeps(&keys::desired("c"), &renewal);
    let ended = json!({
        "plan": "renewal", "specVersion": "v1", "target": release(1).id(), "result": "succeeded", "message": "", "endedAt": at(0), "steps": [],
    });
    let last = Some(serde_json::from_value(ended).unwrap());
    shore.keeps(&keys::rollout("c"), &Rollout { last, ..shore.state() });
    shore.wakes(Waker::Event).await.unwrap();
    let desired = desired_of(&shore);
    assert_eq!((desired.target, desired.set_aside), (waits.target, None));
    // It is not over while it has not begun.
    let (shore, waits) = moved_on(idle());
    let renewal = planned(&shore, &release(3));
    let renewal = waits.set_aside_for("v1", &renewal.plan, &renewal.target);
    shore.keeps(&keys::desired("c"), &renewal);
    shore.wakes(Waker::Event).await.unwrap();
    let desired = desired_of(&shore);
    assert_eq!((desired.target, desired.set_aside), (renewal.target, renewal.set_aside));
}

/// Nobody would be woken who begins it: the tick goes with the rollout that has ended.
#[tokio::test]
async fn p8_a_newer_plan_that_waits_for_the_end_of_a_rollout_begins_in_the_same_invocation_and_has_its_tick()
{
    let (shore, _) = moved_on(last_step());
    shore.wakes(Waker::Event).await.unwrap();
    let done = shore.done();
    let last = done.iter().rfind(|line| line.ends_with("arm"));
    assert_eq!(last.map(String::as_str), Some("arm"), "{done:?}");
    assert!(place(&done, "publish Rollout Succeeded") < place(&done, "create c-network"), "{done:?}");
    assert_eq!(shore.state().active().unwrap().plan, desired_of(&shore).plan);
}

#[tokio::test]
async fn p8_a_newer_plan_that_comes_when_a_rollout_concludes_in_the_last_round_is_an_error_that_is_tried_again()
 {
    let (shore, stale) = moved_on(last_step());
    let rounds = AtomicU32::new(0);
    let slowly = |state: &Rollout, observed: &Observed, now: Timestamp| {
        if rounds.fetch_add(1, Ordering::Relaxed) + 1 == ROUNDS {
            return decide(state, observed, now);
        }
        let next = Rollout { effects_decided: state.effects_decided + 1, ..state.clone() };
        Decision { next, effects: Vec::new(), report: Report::default() }
    };
    let error = shore.wakes_deciding(Waker::Tick, &slowly).await.unwrap_err();
    assert_eq!(rounds.load(Ordering::Relaxed), ROUNDS);
    assert!(error.is_transient() && matches!(error, FlowError::Race { tries: ROUNDS, .. }), "{error}");
    let done = shore.done();
    assert_eq!(
        done,
        ["publish Rollout Succeeded", "disarm"],
        "the tick is gone, so that Lambda has to try again"
    );
    assert_eq!((desired_of(&shore), shore.report().unwrap().state.as_str()), (stale, "succeeded"));

    // Lambda tries it again.
    shore.wakes(Waker::Tick).await.unwrap();
    assert_eq!(shore.state().active().unwrap().plan, desired_of(&shore).plan);
    assert!(shore.done().contains(&"arm".to_owned()));
}

#[tokio::test]
async fn p3_no_plan_is_announced_while_another_is_executed_nor_one_that_still_starts_from_where_things_are() {
    // One that is executed.
    let (shore, stale) = moved_on(rolling(json!("executing")));
    shore.has("c-network", StackStatus::UpdateInProgress);
    shore.wakes(Waker::Event).await.unwrap();
    assert!(!shore.done().contains(&READY.to_owned()));
    assert_eq!(desired_of(&shore), stale);
    // One of a cluster of which nothing stands, made when nothing did.
    let shore = Shore::with(&Rollout::new("c"));
    let fresh = planned(&shore, &release(2));
    shore.wakes(Waker::Event).await.unwrap();
    let done = shore.done();
    assert!(!done.contains(&READY.to_owned()) && done.contains(&"create c-network".to_owned()), "{done:?}");
    assert_eq!(shore.state().active().unwrap().plan, fresh.plan);
}

/// As when it is planned first: in place it can be done without the others.
#[tokio::test]
async fn p7_a_plan_that_is_made_anew_replaces_nobody_for_credentials_that_have_expired_meanwhile() {
    for (hours, replaced) in [(1, 1), (-1, 0)] {
        let (here, there) = (with_controllers(1, "old"), with_controllers(2, "new"));
        let (shore, mut desired) = moved_between(idle(), &here, &there);
        let ends = at(3_600 * hours);
        let deadline = Deadline { ends: BTreeMap::from([(Role::Controller, ends)]), lead_s: 0 };
        let replaced_before = BTreeMap::from([(Role::Controller, "another authority".to_owned())]);
        let mut stale: Plan = shore.kept(&keys::plan("c", &desired.plan)).unwrap();
        stale.renewal = RenewalPlan { replaced: replaced_before, deadline, ..RenewalPlan::default() };
        stale.id = "stale".to_owned();
        shore.keeps(&keys::plan("c", &stale.id), &stale);
        desired.plan.clone_from(&stale.id);
        shore.keeps(&keys::desired("c"), &desired);
        shore.wakes(Waker::Event).await.unwrap();
        let plan: Plan = shore.kept(&keys::plan("c", &desired_of(&shore).plan)).unwrap();
        assert_ne!(plan.id, stale.id);
        assert_eq!((plan.renewal.replaced.len(), plan.renewal.deadline.ends.len()), (replaced, 1), "{hours}");
    }
}

/// The deadline of a plan that is made anew, if certificates end (in hours) as `ends` says and "earlier" still stands on some machine or not.
async fn deadline_made_anew(earlier_stands: bool, newest: &str, ends: Value) -> Deadline {
    let earlier = with_controllers(3, "earlier");
    let (here, there) = (with_controllers(1, "old"), with_controllers(2, "new"));
    let releases = BTreeSet::from([earlier.id()]);
    let stands = earlier_stands.then_some((Role::Controller, releases)).into_iter().collect();
    let (shore, mut desired) = moved_between(Rollout { earlier: stands, ..idle() }, &here, &there);
    shore.keeps_release(&earlier);
    let manifest = json!({
        "format": 1, "sealedUnder": "", "assets": {}, "ends": { "controller": ends },
        "bundles": { "controller": { "digest": newest, "files": {}, "sealedUnder": "" } },
    });
    shore.keeps(&keys::manifest("c"), &manifest);
    let mut stale: Plan = shore.kept(&keys::plan("c", &desired.plan)).unwrap();
    stale.renewal = RenewalPlan { deadline: deadline_in(1), ..RenewalPlan::default() };
    stale.id = "stale".to_owned();
    shore.keeps(&keys::plan("c", &stale.id), &stale);
    desired.plan.clone_from(&stale.id);
    shore.keeps(&keys::desired("c"), &desired);
    shore.wakes(Waker::Event).await.unwrap();
    shore.kept::<Plan>(&keys::plan("c", &desired_of(&shore).plan)).unwrap().renewal.deadline
}

fn deadline_in(hours: i64) -> Deadline {
    Deadline { ends: BTreeMap::from([(Role::Controller, at(hours * 3_600))]), lead_s: 7_200 }
}

/// A rollout replaced the controllers while the plan waited: certificates that nobody has any more hurried it through the windows.
#[tokio::test]
async fn p7_a_plan_that_is_made_anew_is_as_urgent_as_the_certificates_that_are_in_use_now() {
    for (earlier_stands, hours) in [(false, 200), (true, 1)] {
        let ends = json!({ "earlier": at(3_600), "old": at(200 * 3_600), "new": at(9_000 * 3_600) });
        assert_eq!(deadline_made_anew(earlier_stands, "new", ends).await, deadline_in(hours));
    }
}

/// The scan has issued newer ones since, for which there will be a plan of their own: what this one brings ends when what stands does.
#[tokio::test]
async fn p7_a_plan_that_is_made_anew_hurries_nobody_for_certificates_that_it_does_not_bring() {
    let ends = json!({ "old": at(3_600), "new": at(3_600), "newest": at(9_000 * 3_600) });
    assert_eq!(deadline_made_anew(false, "newest", ends).await.ends, BTreeMap::new());
}

#[tokio::test]
async fn p3_the_event_of_a_plan_says_whether_a_person_has_to_approve_it() {
    let shore = Shore::default();
    let plan: Plan = shore.kept(&keys::plan("c", &planned(&shore, &release(1)).plan)).unwrap();
    for approval in [Approval::Auto, Approval::Manual] {
        let mut plan = plan.clone();
        plan.policy.approval = approval;
        let Event::PlanReady(ready) = plan_ready(&plan, "v2", at(0)) else { panic!("another event") };
        assert_eq!(ready.needs_approval, approval == Approval::Manual);
        assert_eq!((ready.plan, ready.spec_version.as_str()), (plan.id, "v2"));
    }
}
