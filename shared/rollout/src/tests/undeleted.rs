//! Removing a pool that the spec no longer has: it happens automatically, after all other steps.

use serde_json::json;
use slipway_plan::{Plan, StackAction};

use super::*;

const POOL: &str = "c-pool-a";

fn owned() -> BTreeMap<String, String> {
    BTreeMap::from([("slipway:cluster".to_owned(), "c".to_owned())])
}

/// [`rendering`] with a network that exports a subnet of pool `a`.
pub(super) fn exporting(size: u32, exports: bool) -> Rendering {
    let mut release = rendering(size);
    for stack in &mut release.stacks {
        let mut template: serde_json::Value = serde_json::from_str(&stack.body).unwrap();
        if stack.kind == StackKind::Network && exports {
            template["Outputs"] = json!({"A": {
                "Description": "Subnet a in eu-west-1a", "Value": "subnet-1", "Export": {"Name": "c-SubnetA"},
            }});
        }
        if stack.name == POOL {
            template["Resources"]["Thing"]["Properties"]["Subnet"] = json!({"Fn::ImportValue": "c-SubnetA"});
        }
        stack.body = template.to_string();
        stack.sha256 = sha256_hex(stack.body.as_bytes());
        stack.tags = owned();
    }
    release.roles.values_mut().for_each(|node| node.version = Some("1.34.2".to_owned()));
    let node = NodeRole {
        stack: "c-control-plane".to_owned(),
        ..release.roles[&Role::Pool("a".to_owned())].clone()
    };
    release.roles.insert(Role::Controller, node);
    release
}

pub(super) fn without_pool(mut release: Rendering) -> Rendering {
    release.stacks.retain(|stack| stack.name != POOL);
    release.roles.remove(&Role::Pool("a".to_owned()));
    release
}

/// A cluster whose releases are stored. Its groups have no machines.
pub(super) struct Harbour {
    pub(super) fake: Fake,
    releases: BTreeMap<String, Rendering>,
}

impl Harbour {
    pub(super) fn plan(&mut self, state: &Rollout, release: &Rendering) -> Wanted {
        self.releases.insert(release.id(), release.clone());
        let baseline = Baseline::assemble("c", &state.deployed, &state.orphaned, &self.releases)
            .and_then(|baseline| baseline.with_unfinished(&state.unfinished, &self.releases))
            .unwrap();
        let mut wanted = wanted(release, &baseline, Approval::Auto);
        wanted.desired.spec_version.clone_from(&wanted.plan.id);
        wanted
    }

    pub(super) fn roll(&mut self, state: Rollout, release: &Rendering) -> (Rollout, Report, Plan) {
        let wanted = self.plan(&state, release);
        // Change sets have the name of their rollout.
        self.fake.change_sets.clear();
        self.fake.log.clear();
        let (state, report) = self.fake.run(state, &wanted, None, false);
        (state, report, wanted.plan)
    }

    /// A cluster without stacks.
    pub(super) fn empty() -> Self {
        Self { fake: Fake { tags: owned(), ..Fake::default() }, releases: BTreeMap::new() }
    }

    /// A launched cluster with the pool.
    pub(super) fn launched() -> (Self, Rollout) {
        let mut harbour = Self::empty();
        let (state, ..) = harbour.roll(Rollout::new("c"), &exporting(1, true));
        (harbour, state)
    }

    /// The pool stayed when it left the spec, because a person had one of its machines skipped.
    fn with_undeleted_pool() -> (Self, Rollout) {
        let (harbour, mut state) = Self::launched();
        let (pool, release) = state.deployed.remove_entry(POOL).unwrap();
        state.orphaned.insert(pool, release);
        (harbour, state)
    }

    /// Wakes a rollout once.
    pub(super) fn wake(
        &mut self,
        state: Rollout,
        wanted: &Wanted,
        order: Option<&Given>,
    ) -> (Rollout, Report) {
        let at = Timestamp::UNIX_EPOCH;
        let state = match order {
            Some(order) => self.fake.after_order_performed(state, order, Some(wanted), at),
            None => state,
        };
        let look = to_observe(&state, Some(wanted), at);
        let observed = self.fake.observe(&look, Some(wanted));
        let decision = decide(&state, &observed, at);
        self.fake.perform(&decision.effects);
        (Rollout { outbox: Vec::new(), ..decision.next }, decision.report)
    }
}

#[test]
fn a_pool_that_left_the_spec_is_deleted_after_everything_else_and_forgotten() {
    let (mut harbour, state) = Harbour::launched();
    let release = without_pool(exporting(2, true));
    let (state, report, plan) = harbour.roll(state, &release);
    assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
    assert!(report.message.ends_with("; removed: pool-a"), "{}", report.message);
    assert!(plan.to_text().contains("- c-pool-a delete"), "{}", plan.to_text());
    assert!(
        plan.to_text().contains("all its nodes are drained, then its stack is deleted"),
        "{}",
        plan.to_text()
    );
    let deleted = harbour.fake.log.iter().position(|line| line == "delete c-pool-a").unwrap();
    let executed = harbour.fake.log.iter().rposition(|line| line.starts_with("execute")).unwrap();
    assert!(executed < deleted, "{:?}", harbour.fake.log);
    assert!(!harbour.fake.stacks.contains_key(POOL));
    assert_eq!((state.orphaned.len(), state.deployed.contains_key(POOL)), (0, false));
    assert!(harbour.plan(&state, &release).plan.is_empty());
}

#[test]
fn a_pool_that_stayed_for_a_skipped_machine_is_deleted_by_the_next_rollout() {
    let (mut harbour, state) = Harbour::with_undeleted_pool();
    let (state, report, plan) = harbour.roll(state, &without_pool(exporting(1, true)));
    assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
    assert_eq!(plan.orphaned().count(), 0);
    assert!(harbour.fake.log.contains(&"delete c-pool-a".to_owned()), "{:?}", harbour.fake.log);
    assert_eq!((state.orphaned.len(), report.orphaned.len()), (0, 0));
}

#[test]
fn what_a_pool_that_goes_uses_is_taken_away_by_a_later_rollout_alone() {
    for (mut harbour, state) in [Harbour::launched(), Harbour::with_undeleted_pool()] {
        let release = without_pool(exporting(3, false));
        let (state, report, _) = harbour.roll(state, &release);
        assert_eq!(report.state.as_str(), "failed");
        assert!(report.message.contains("Subnet a in eu-west-1a (used by c-pool-a)"), "{}", report.message);
        assert!(
            report.message.contains("nothing is touched. First upload a spec in which it stays"),
            "{}",
            report.message
        );
        assert!(!report.message.contains("orphaned"), "{}", report.message);
        let (state, report, _) = harbour.roll(state, &without_pool(exporting(3, true)));
        assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
        let (_, report, _) = harbour.roll(state, &release);
        assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
    }
}

#[test]
fn the_kubelets_of_a_pool_that_left_the_spec_hold_back_the_api_server() {
    let (mut harbour, state) = Harbour::with_undeleted_pool();
    let mut newer = without_pool(exporting(3, true));
    newer.roles.values_mut().for_each(|node| node.version = Some("1.38.0".to_owned()));
    let plan = harbour.plan(&state, &newer).plan;
    let why = plan.not_executable().unwrap();
    assert!(why.contains("the kubelets of pool `a` run 1.34.2, and the API server is to be 1.38"), "{why}");
    assert!(why.contains("which drains them and deletes the stack c-pool-a"), "{why}");
}

#[test]
fn a_pool_that_comes_back_into_the_spec_is_updated_and_deployed_again() {
    for size in [1, 3] {
        let (mut harbour, state) = Harbour::with_undeleted_pool();
        let release = exporting(size, true);
        let (state, report, plan) = harbour.roll(state, &release);
        assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
        let stack = plan.stacks.iter().find(|stack| stack.name == POOL).unwrap();
        assert_eq!(stack.action, StackAction::Update, "it exists, so it is not created");
        assert_eq!(stack.resources.is_empty(), size == 1);
        assert_eq!(state.orphaned, BTreeMap::new());
        assert_eq!(state.deployed[POOL], release.id());
    }
}

#[test]
fn p10_a_deletion_that_has_begun_is_seen_to_its_end_whatever_a_person_says() {
    for (order, word, ends) in
        [(Order::Pause, "paused", "paused"), (Order::Abort { plan: None }, "aborting", "aborted")]
    {
        let (mut harbour, mut state) = Harbour::launched();
        let wanted = harbour.plan(&state, &without_pool(exporting(1, true)));
        harbour.fake.deleting = Some(StackStatus::DeleteInProgress);
        for _ in 0..10 {
            state = harbour.wake(state, &wanted, None).0;
        }
        assert_eq!(harbour.fake.log.iter().filter(|line| *line == "delete c-pool-a").count(), 1);
        let given = Given { order, at: Timestamp::UNIX_EPOCH };
        let (state, _) = harbour.wake(state, &wanted, Some(&given));
        let (state, report) = harbour.wake(state, &wanted, None);
        assert_eq!(report.state.as_str(), word);
        assert!(report.message.contains("pool-a: CloudFormation deletes its stack"), "{}", report.message);
        harbour.fake.stacks.remove(POOL);
        let (state, report) = harbour.wake(state, &wanted, None);
        assert_eq!(report.state.as_str(), ends);
        assert!(!state.deployed.contains_key(POOL), "the deleted stack is known");
    }
}

#[test]
fn a_deletion_that_fails_ends_the_rollout_with_cloudformations_reason_and_is_tried_again_by_an_upload() {
    let (mut harbour, state) = Harbour::launched();
    let release = without_pool(exporting(1, true));
    harbour.fake.deleting = Some(StackStatus::DeleteFailed);
    let (state, report, _) = harbour.roll(state, &release);
    assert_eq!(report.state.as_str(), "failed");
    assert!(
        report.message.contains("pool-a: c-pool-a could not be deleted: Thing (AWS::EC2::VPC)"),
        "{}",
        report.message
    );
    // Nobody knows what there is of it: whoever wants it back has it created, and is not told that nothing changes.
    let back = harbour.plan(&state, &exporting(1, true)).plan;
    let stack = back.stacks.iter().find(|stack| stack.name == POOL).unwrap();
    assert_eq!(stack.action, StackAction::Create);
    assert!(!state.deployed.contains_key(POOL) && state.unfinished.contains_key(POOL));
    harbour.fake.deleting = None;
    let mut again = harbour.plan(&state, &release);
    again.desired.spec_version = "once more".to_owned();
    let (state, report) = harbour.fake.run(state, &again, None, false);
    assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
    assert!(!state.unfinished.contains_key(POOL));
}

#[test]
fn p3_a_stack_that_is_somebody_elses_is_not_deleted() {
    let (mut harbour, state) = Harbour::launched();
    harbour.fake.tags = BTreeMap::from([("slipway:cluster".to_owned(), "another".to_owned())]);
    let (_, report, _) = harbour.roll(state, &without_pool(exporting(1, true)));
    assert_eq!(report.state.as_str(), "failed");
    assert!(report.message.contains("c-pool-a exists and is not Slipway's"), "{}", report.message);
    assert!(harbour.fake.stacks.contains_key(POOL));
}

#[test]
fn p8_a_state_without_orphaned_stacks_reads_back() {
    let (_, state) = Harbour::with_undeleted_pool();
    let mut old = serde_json::to_value(&Rollout { orphaned: BTreeMap::new(), ..state }).unwrap();
    assert!(
        old.as_object_mut().unwrap().get("orphaned").is_none(),
        "nothing is written if there is nothing to delete"
    );
    assert!(serde_json::from_value::<Rollout>(old).is_ok());
}

/// Slipway deletes pools alone. What else left the spec costs money and may stand in the way until a person knows of it.
#[test]
fn a_stack_that_left_the_spec_and_is_no_pools_is_named_for_a_person_and_not_forgotten() {
    let mut harbour = Harbour::empty();
    let mut before = exporting(1, true);
    let identity =
        Stack { name: "c-identity".to_owned(), kind: StackKind::Identity, ..before.stacks[1].clone() };
    before.stacks.insert(1, identity);
    let (state, ..) = harbour.roll(Rollout::new("c"), &before);
    // A pool leaves the spec together with it, and is deleted.
    let (state, report, _) = harbour.roll(state, &without_pool(exporting(2, true)));
    assert_eq!(report.state, RolloutState::Succeeded, "{}", report.message);
    let named = "; orphaned stacks, which the spec no longer has, for a person to delete: c-identity";
    assert!(report.message.ends_with(named), "{}", report.message);
    assert_eq!(state.orphaned.into_keys().collect::<Vec<_>>(), ["c-identity"]);
    assert!(!harbour.fake.log.contains(&"delete c-identity".to_owned()), "{:?}", harbour.fake.log);
}
