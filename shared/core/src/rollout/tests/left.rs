//! What becomes of a stack that the spec has no longer and that still stands.

use serde_json::json;

use super::*;
use crate::plan::{NodeAction, Plan, StackAction};

const POOL: &str = "c-pool-a";

/// [`rendering`], whose network exports a subnet that pool `a` stands in.
fn exporting(size: u32, exports: bool) -> Rendering {
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
    }
    release.roles.values_mut().for_each(|node| node.version = Some("1.34.2".to_owned()));
    let node = NodeRole {
        stack: "c-control-plane".to_owned(),
        ..release.roles[&Role::Pool("a".to_owned())].clone()
    };
    release.roles.insert(Role::Controller, node);
    release
}

fn without_pool(mut release: Rendering) -> Rendering {
    release.stacks.retain(|stack| stack.name != POOL);
    release.roles.remove(&Role::Pool("a".to_owned()));
    release
}

/// A cluster whose releases are kept.
#[derive(Default)]
struct Harbour {
    fake: Fake,
    releases: BTreeMap<String, Rendering>,
}

impl Harbour {
    fn plan(&mut self, state: &Rollout, release: &Rendering) -> Wanted {
        self.releases.insert(release.id(), release.clone());
        let baseline = Baseline::assemble("c", &state.deployed, &state.left, &self.releases).unwrap();
        let mut wanted = wanted(release, &baseline, Approval::Auto);
        wanted.desired.spec_version.clone_from(&wanted.plan.id);
        wanted
    }

    fn roll(&mut self, state: Rollout, release: &Rendering) -> (Rollout, Report, Plan) {
        let wanted = self.plan(&state, release);
        // Change sets bear the name of their rollout.
        self.fake.change_sets.clear();
        self.fake.log.clear();
        let (state, report) = self.fake.run(state, &wanted, None, false);
        (state, report, wanted.plan)
    }

    /// Launched with the pool, and then brought to a spec that has it no longer.
    fn left() -> (Self, Rollout) {
        let mut harbour = Self::default();
        let (state, ..) = harbour.roll(Rollout::new("c"), &exporting(1, true));
        assert_eq!(state.left, BTreeMap::new());
        let (state, report, plan) = harbour.roll(state, &without_pool(exporting(2, true)));
        assert_eq!(report.state, "succeeded", "{}", report.message);
        assert!(plan.stacks.iter().any(|stack| stack.action == StackAction::Delete));
        (harbour, state)
    }
}

#[test]
fn a_pool_that_left_the_spec_is_remembered_at_its_release_and_named_by_every_later_plan() {
    let (mut harbour, state) = Harbour::left();
    assert_eq!(state.left, BTreeMap::from([(POOL.to_owned(), exporting(1, true).id())]));
    assert!(!state.deployed.contains_key(POOL));

    let same = harbour.plan(&state, &without_pool(exporting(2, true))).plan;
    assert!(same.is_empty(), "{}", same.to_text());
    assert_eq!(same.summary(), "nothing changes; left standing: c-pool-a");
    let line = "! c-pool-a left standing: its nodes may still run, and what it uses cannot be taken away: \
                drain them, then delete the stack";
    assert!(same.to_text().contains(line), "{}", same.to_text());
    assert!(same.to_html().contains("The stack c-pool-a, which the spec has no longer, is left standing"));

    let (state, report, plan) = harbour.roll(state, &without_pool(exporting(3, true)));
    assert_eq!(report.state, "succeeded", "{}", report.message);
    assert_eq!(report.left, [POOL]);
    let node = plan.nodes.iter().find(|node| node.stack == POOL).unwrap();
    assert_eq!(node.action, NodeAction::Left);
    assert!(!harbour.fake.log.iter().any(|line| line.contains(POOL)), "{:?}", harbour.fake.log);
    assert_eq!(state.left, BTreeMap::from([(POOL.to_owned(), exporting(1, true).id())]));
}

#[test]
fn what_a_pool_that_left_the_spec_uses_is_not_taken_away_until_its_stack_is_gone() {
    let (mut harbour, state) = Harbour::left();
    let release = without_pool(exporting(3, false));
    let (refused, report, _) = harbour.roll(state, &release);
    assert_eq!(report.state, "failed");
    assert!(report.message.contains("Subnet a in eu-west-1a (used by c-pool-a)"), "{}", report.message);
    // No spec lets go of it: that is what the cure must not say.
    let cure = "nothing is touched. Since no spec changes the stack c-pool-a, left standing by an earlier rollout: drain its nodes and \
                delete the stack, then upload this spec again";
    assert!(report.message.contains(cure), "{}", report.message);
    assert!(!report.message.contains("First upload a spec"), "{}", report.message);

    // Somebody deletes the stack: the wake that this causes sees it, and a plan made before is stale.
    let stale = harbour.plan(&refused, &without_pool(exporting(4, false)));
    harbour.fake.stacks.remove(POOL);
    harbour.fake.log.clear();
    let (state, report) = harbour.fake.run(refused, &stale, None, false);
    assert_eq!((state.left.len(), report.left.len()), (0, 0));
    assert_eq!(harbour.fake.log, [""; 0], "what was planned before is not begun");
    let (state, report, plan) = harbour.roll(state, &release);
    assert_eq!(report.state, "succeeded", "{}", report.message);
    assert_eq!(plan.left().count(), 0);
    assert!(state.deployed.values().all(|id| id == &release.id()));
}

#[test]
fn of_what_a_left_and_a_deployed_stack_use_both_cures_are_said() {
    let (mut harbour, state) = Harbour::left();
    let beside = |exports| {
        let mut release = without_pool(exporting(3, exports));
        let pool = release.stacks.iter_mut().find(|stack| stack.name == "c-pool-b").unwrap();
        let template = json!({"Resources": {"Thing": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": {"Fn::ImportValue": "c-SubnetA"}}}}});
        pool.body = template.to_string();
        pool.sha256 = sha256_hex(pool.body.as_bytes());
        release
    };
    let (state, report, _) = harbour.roll(state, &beside(true));
    assert_eq!(report.state, "succeeded", "{}", report.message);
    let why = harbour.plan(&state, &beside(false)).plan.not_executable().unwrap();
    assert!(why.contains("(used by c-pool-a, c-pool-b)"), "{why}");
    assert!(
        why.contains("Since no spec changes the stack c-pool-a, left")
            && why.contains(". First upload a spec"),
        "{why}"
    );
}

#[test]
fn the_kubelets_of_a_pool_that_left_the_spec_hold_back_the_api_server() {
    let (mut harbour, state) = Harbour::left();
    let mut newer = without_pool(exporting(3, true));
    newer.roles.values_mut().for_each(|node| node.version = Some("1.38.0".to_owned()));
    let plan = harbour.plan(&state, &newer).plan;
    let why = plan.not_executable().unwrap();
    assert!(why.contains("the kubelets of pool `a` run 1.34.2, and the API server is to be 1.38"), "{why}");
    assert!(why.contains("drain them and delete the stack c-pool-a first"), "{why}");
}

#[test]
fn a_pool_that_comes_back_into_the_spec_is_updated_and_deployed_again() {
    for size in [1, 3] {
        let (mut harbour, state) = Harbour::left();
        let release = exporting(size, true);
        let (state, report, plan) = harbour.roll(state, &release);
        assert_eq!(report.state, "succeeded", "{}", report.message);
        let stack = plan.stacks.iter().find(|stack| stack.name == POOL).unwrap();
        assert_eq!(stack.action, StackAction::Update, "it stands: it is not created");
        assert_eq!(stack.resources.is_empty(), size == 1);
        assert_eq!(state.left, BTreeMap::new());
        assert_eq!(state.deployed[POOL], release.id());
    }
}

#[test]
fn p8_a_state_of_an_older_slipway_reads_back() {
    let (_, state) = Harbour::left();
    let mut old = serde_json::to_value(&Rollout { left: BTreeMap::new(), ..state }).unwrap();
    assert!(old.as_object_mut().unwrap().get("left").is_none(), "nothing is written where nothing is left");
    assert!(serde_json::from_value::<Rollout>(old).is_ok());
}
