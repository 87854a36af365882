//! Tests of `decide` with a CloudFormation of a few lines, one rule at a time.

mod addons;
mod change_sets;
mod decisions;
mod destroy;
mod evidence;
mod joining;
mod leaving;
mod made;
mod newer;
mod nodes;
mod orders;
mod outbox;
mod reports;
mod rollback_targets;
mod rolls;
mod stacks;
mod turns;
mod undeleted;
mod upgrades;
mod urgency;

use std::collections::{BTreeMap, BTreeSet};

use slipway_core::cluster::{Approval, CountOrPercent, GroupSize, RolloutPolicy};
use slipway_core::digest::sha256_hex;
use slipway_core::members::{MemberPin, MemberRole, NameZone, VolumePin};
use slipway_core::node::SnapshotTaken;
use slipway_core::release::{AddonSet, NodeRole, Stack};
use slipway_core::role::Role;
use slipway_plan::{Baseline, plan};

use slipway_core::status::RolloutState;

use super::*;

/// The answer of a member that has taken a snapshot.
fn snapshot_taken(key: &str) -> SnapshotTaken {
    serde_json::from_value(serde_json::json!({ "time": "t", "key": key })).unwrap()
}

fn policy(approval: Approval) -> RolloutPolicy {
    RolloutPolicy {
        approval,
        max_unavailable: CountOrPercent::Count(1),
        surge: CountOrPercent::Count(0),
        drain_force_after_min: None,
        failure_budget: 1,
        windows: Vec::new(),
        pools: BTreeMap::new(),
    }
}

pub(crate) fn rendering(size: u32) -> Rendering {
    let stack = |suffix: &str, kind| {
        let body = serde_json::json!({
            "Resources": {"Thing": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": format!("{suffix}-{size}")}}}
        })
        .to_string();
        Stack {
            name: format!("c-{suffix}"),
            kind,
            sha256: sha256_hex(body.as_bytes()),
            body,
            tags: BTreeMap::new(),
        }
    };
    let role = NodeRole {
        stack: "c-pool-a".to_owned(),
        nodes: GroupSize { min: 1, max: 2 },
        machine: serde_json::json!({}),
        config: "{}".to_owned(),
        config_digest: String::new(),
        credentials_digest: String::new(),
        version: None,
        member: None,
        weighted: false,
    };
    Rendering {
        format: Rendering::FORMAT,
        cluster: "c".to_owned(),
        stacks: vec![
            stack("network", StackKind::Network),
            stack("etcd", StackKind::Etcd),
            stack("control-plane", StackKind::ControlPlane),
            stack("pool-a", StackKind::Pool),
            stack("pool-b", StackKind::Pool),
        ],
        roles: BTreeMap::from([(Role::Pool("a".to_owned()), role)]),
        addons: AddonSet::default(),
    }
}

pub(crate) fn wanted(release: &Rendering, baseline: &Baseline, approval: Approval) -> Wanted {
    let plan = plan(baseline, release, &policy(approval));
    let desired = Desired {
        format: 1,
        spec_version: "v1".to_owned(),
        plan: plan.id.clone(),
        target: plan.to.clone(),
        deletion_protection: false,
        manual_since: None,
        accepted: None,
        snapshots: None,
        set_aside: None,
    };
    Wanted { desired, plan, release: release.clone() }
}

fn approving(plan: &str) -> Given {
    Given { order: Order::Approve { plan: plan.to_owned() }, at: Timestamp::UNIX_EPOCH }
}

/// The state after CloudFormation has refused to create a change set of `stack`.
fn refused(mut state: Rollout, stack: &str, reason: &str) -> Rollout {
    let request = ChangeSetRequest {
        stack: stack.to_owned(),
        name: String::new(),
        create: true,
        template_key: String::new(),
        tags: BTreeMap::new(),
    };
    let effect = Effect::CreateChangeSet(request);
    state.outbox = vec![Pending { id: u64::MAX, effect, decided_at: Timestamp::UNIX_EPOCH, evidence: None }];
    state.recorded(&[(u64::MAX, EffectOutcome::Refused(reason.to_owned()))])
}

/// The state without the look at the whole cluster, for worlds without machines.
fn without_a_look(mut state: Rollout) -> Rollout {
    if let Some(active) = state.active_mut() {
        active.nodes.steps.retain(|step| !step.is_final_check());
    }
    state
}

/// A CloudFormation that executes calls at once, and keeps a log.
#[derive(Default)]
struct Fake {
    stacks: BTreeMap<String, StackStatus>,
    change_sets: BTreeMap<String, ChangeSetView>,
    fails: Option<&'static str>,
    replaces: Vec<String>,
    /// The status of stacks whose deletion was requested; `None`: gone.
    deleting: Option<StackStatus>,
    /// The tags of every stack.
    tags: BTreeMap<String, String>,
    log: Vec<String>,
}

impl Fake {
    /// The state after an order, with its effects performed.
    fn after_order_performed(
        &mut self,
        state: Rollout,
        given: &Given,
        wanted: Option<&Wanted>,
        now: Timestamp,
    ) -> Rollout {
        let next = after_order(&state, given, wanted.map(|wanted| &wanted.desired), now);
        let effects: Vec<Effect> = next.outbox.iter().map(|pending| pending.effect.clone()).collect();
        self.perform(&effects);
        Rollout { outbox: Vec::new(), ..next }
    }

    fn perform(&mut self, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::CreateChangeSet(request) => {
                    self.log.push(format!("change set {}", request.stack));
                    self.stacks.entry(request.stack.clone()).or_insert(StackStatus::ReviewInProgress);
                    let view = ChangeSetView {
                        status: ChangeSetStatus::Ready,
                        reason: None,
                        replaces: self.replaces.clone(),
                    };
                    self.change_sets.entry(request.stack.clone()).or_insert(view);
                }
                Effect::ExecuteChangeSet { stack, .. } => {
                    self.log.push(format!("execute {stack}"));
                    // CloudFormation refuses to execute a change set twice, and the port counts that as success.
                    if self.change_sets.get(stack).is_none_or(|view| view.status != ChangeSetStatus::Ready) {
                        continue;
                    }
                    let create = self.stacks.get(stack) == Some(&StackStatus::ReviewInProgress);
                    let (status, outcome) = match (create, self.fails == Some(stack)) {
                        (true, false) => (StackStatus::CreateComplete, ChangeSetStatus::Executed),
                        (false, false) => (StackStatus::UpdateComplete, ChangeSetStatus::Executed),
                        (true, true) => (StackStatus::RollbackComplete, ChangeSetStatus::ExecuteFailed),
                        (false, true) => {
                            (StackStatus::UpdateRollbackComplete, ChangeSetStatus::ExecuteFailed)
                        }
                    };
                    self.stacks.insert(stack.clone(), status);
                    if let Some(view) = self.change_sets.get_mut(stack) {
                        view.status = outcome;
                    }
                }
                Effect::DeleteChangeSet { stack, .. } => {
                    self.log.push(format!("drop {stack}"));
                    self.change_sets.remove(stack);
                }
                Effect::DeleteStack { stack, .. } => {
                    self.log.push(format!("delete {stack}"));
                    match self.deleting {
                        None => self.stacks.remove(stack),
                        Some(status) => self.stacks.insert(stack.clone(), status),
                    };
                    self.change_sets.remove(stack);
                }
                Effect::PointAddons(pointer) => {
                    self.log.push(format!("add-ons {} of {}", pointer.digest, pointer.generation));
                }
                Effect::Send(_)
                | Effect::Cancel(_)
                | Effect::SetDesired { .. }
                | Effect::Terminate { .. }
                | Effect::ProlongTermination { .. }
                | Effect::CompleteTermination { .. } => {
                    panic!("no group has machines here")
                }
                Effect::ArmTick => self.log.push("arm".to_owned()),
                Effect::DisarmTick => self.log.push("disarm".to_owned()),
                Effect::Publish(event) => {
                    let (detail_type, _) = event.to_wire();
                    if detail_type != "Rollout Step" && detail_type != "Rollout Waiting" {
                        self.log.push(detail_type);
                    }
                }
            }
        }
    }

    fn observe(&self, look: &ToObserve, wanted: Option<&Wanted>) -> Observed {
        let stack = |name: &String| {
            // A stack that is no more than a change set does not have its tags yet.
            let has_tags = self.stacks.get(name) != Some(&StackStatus::ReviewInProgress);
            let tags = if has_tags { self.tags.clone() } else { BTreeMap::new() };
            self.stacks.get(name).map(|status| StackView {
                id: name.clone(),
                status: *status,
                reason: None,
                tags,
            })
        };
        let failure = ResourceFailure {
            logical_id: "Thing".to_owned(),
            resource_type: "AWS::EC2::VPC".to_owned(),
            status: "CREATE_FAILED".to_owned(),
            reason: "The maximum number of VPCs has been reached.".to_owned(),
        };
        Observed {
            stacks: look.stacks.keys().chain(&look.going).map(|name| (name.clone(), stack(name))).collect(),
            // In tests of deletions, groups have no machines; other tests do not observe groups.
            groups: look
                .groups
                .iter()
                .filter(|_| !look.going.is_empty())
                .map(|name| (name.clone(), None))
                .collect(),
            change_sets: look
                .stacks
                .keys()
                .map(|name| (name.clone(), self.change_sets.get(name).cloned()))
                .collect(),
            failures: look
                .stacks
                .keys()
                .chain(&look.going)
                .map(|name| (name.clone(), vec![failure.clone()]))
                .collect(),
            desired: wanted.cloned(),
            gone: look.orphaned.iter().filter(|name| !self.stacks.contains_key(*name)).cloned().collect(),
            ..Observed::default()
        }
    }

    /// Wakes the rollout until nothing changes; `twice` performs every effect twice.
    fn run(
        &mut self,
        mut state: Rollout,
        wanted: &Wanted,
        approval: Option<&str>,
        twice: bool,
    ) -> (Rollout, Report) {
        // A status that would fail a stack is believed after two minutes.
        for now in (0..600).step_by(10).map(|second| Timestamp::from_second(second).unwrap()) {
            state = without_a_look(state);
            if let Some(plan) = approval {
                state = self.after_order_performed(state, &approving(plan), Some(wanted), now);
            }
            let look = to_observe(&state, Some(wanted), now);
            let decision = decide(&state, &self.observe(&look, Some(wanted)), now);
            self.perform(&decision.effects);
            if twice {
                self.perform(&decision.effects);
            }
            let rest = decision.next.active().is_none();
            state = Rollout { outbox: Vec::new(), ..decision.next };
            if rest {
                return (state, decision.report);
            }
        }
        panic!("the rollout never came to rest: {:?}", self.log);
    }
}

#[test]
fn a_launch_goes_network_etcd_control_plane_then_pools_side_by_side() {
    let (release, mut fake) = (rendering(1), Fake::default());
    let wanted = wanted(&release, &Baseline::default(), Approval::Auto);
    let (state, report) = fake.run(Rollout::new("c"), &wanted, None, false);
    assert_eq!(
        fake.log,
        [
            "arm",
            "Rollout Started",
            "change set c-network",
            "execute c-network",
            "change set c-etcd",
            "execute c-etcd",
            "change set c-control-plane",
            "execute c-control-plane",
            "change set c-pool-a",
            "change set c-pool-b",
            "execute c-pool-a",
            "execute c-pool-b",
            "Rollout Succeeded",
            "disarm",
        ]
    );
    assert_eq!(report.state.as_str(), "succeeded");
    assert_eq!(state.deployed.len(), 5);
    assert!(state.deployed.values().all(|release| release == &wanted.plan.to));
}

#[test]
fn p1_a_plan_that_was_rolled_out_is_not_rolled_out_again() {
    let (release, mut fake) = (rendering(1), Fake::default());
    let wanted = wanted(&release, &Baseline::default(), Approval::Auto);
    let (state, _) = fake.run(Rollout::new("c"), &wanted, None, false);
    fake.log.clear();
    let (after, report) = fake.run(state.clone(), &wanted, None, false);
    assert_eq!((after, fake.log, report.state.as_str()), (state, Vec::new(), "succeeded"));
}

#[test]
fn p8_every_effect_performed_twice_ends_the_same() {
    let release = rendering(1);
    let wanted = wanted(&release, &Baseline::default(), Approval::Auto);
    let (mut once, mut twice) = (Fake::default(), Fake::default());
    let (a, _) = once.run(Rollout::new("c"), &wanted, None, false);
    let (b, _) = twice.run(Rollout::new("c"), &wanted, None, true);
    assert_eq!(a.deployed, b.deployed);
    assert_eq!(once.stacks, twice.stacks);
}

#[test]
fn a_failed_stack_ends_the_launch_with_cloudformations_own_reason_and_nothing_after_it_starts() {
    let release = rendering(1);
    let wanted = wanted(&release, &Baseline::default(), Approval::Auto);
    let mut fake = Fake { fails: Some("c-etcd"), ..Fake::default() };
    let (state, report) = fake.run(Rollout::new("c"), &wanted, None, false);
    assert_eq!(report.state.as_str(), "failed");
    assert!(
        report.message.contains("Thing (AWS::EC2::VPC) CREATE_FAILED: The maximum number of VPCs"),
        "{report:?}"
    );
    assert!(!fake.log.iter().any(|line| line.contains("control-plane")), "{:?}", fake.log);
    assert_eq!(state.deployed.keys().collect::<Vec<_>>(), ["c-network"]);
    assert_eq!(&fake.log[fake.log.len() - 2..], ["Rollout Failed", "disarm"]);
}

#[test]
fn p10_a_launch_that_failed_goes_on_where_it_stopped_once_the_spec_is_uploaded_again() {
    let release = rendering(1);
    let mut fake = Fake { fails: Some("c-etcd"), ..Fake::default() };
    let first = wanted(&release, &Baseline::default(), Approval::Auto);
    let (state, _) = fake.run(Rollout::new("c"), &first, None, false);
    fake.fails = None;
    fake.log.clear();

    let releases = BTreeMap::from([(release.id(), release.clone())]);
    let baseline = Baseline::assemble("c", &state.deployed, &BTreeMap::new(), &releases)
        .and_then(|baseline| baseline.with_unfinished(&state.unfinished, &releases))
        .expect("the release is there");
    let mut again = wanted(&release, &baseline, Approval::Auto);
    assert_ne!(again.plan.id, first.plan.id);
    // The event of the upload came a second time, late, so that the same spec was planned anew.
    let (state, report) = fake.run(state, &again, None, false);
    assert_eq!((report.state.as_str(), fake.log.len()), ("failed", 0), "{:?}", fake.log);
    again.desired.spec_version = "v2".to_owned();
    let (state, report) = fake.run(state, &again, None, false);
    assert_eq!(report.state.as_str(), "succeeded");
    assert_eq!(&fake.log[2..4], ["delete c-etcd", "change set c-etcd"], "{:?}", fake.log);
    assert!(!fake.log.iter().any(|line| line.contains("network")));
    assert_eq!(state.deployed.len(), 5);
}

#[test]
fn p3_a_change_set_that_would_replace_more_than_the_plan_says_is_not_executed() {
    let release = rendering(1);
    let wanted = wanted(&release, &Baseline::default(), Approval::Auto);
    let mut fake = Fake { replaces: vec!["Surprise".to_owned()], ..Fake::default() };
    let (_, report) = fake.run(Rollout::new("c"), &wanted, None, false);
    assert_eq!(report.state.as_str(), "failed");
    assert!(report.message.contains("would replace or remove Surprise in c-network"), "{}", report.message);
    assert!(!fake.log.iter().any(|line| line.starts_with("execute")));
    assert!(fake.log.contains(&"delete c-network".to_owned()));
}

#[test]
fn p3_a_stack_of_that_name_that_is_somebody_elses_is_left_alone() {
    for status in [StackStatus::RollbackComplete, StackStatus::CreateComplete] {
        let release = rendering(1);
        let wanted = wanted(&release, &Baseline::default(), Approval::Auto);
        let theirs = BTreeMap::from([("slipway:cluster".to_owned(), "another".to_owned())]);
        let mut fake = Fake { tags: theirs, ..Fake::default() };
        fake.stacks.insert("c-network".to_owned(), status);
        let (_, report) = fake.run(Rollout::new("c"), &wanted, None, false);
        assert_eq!(report.state.as_str(), "failed");
        assert!(report.message.contains("c-network exists and is not Slipway's"), "{}", report.message);
        assert_eq!(fake.log, ["arm", "Rollout Started", "Rollout Failed", "disarm"]);
    }
}

#[test]
fn p3_another_policy_makes_another_plan() {
    let release = rendering(1);
    let auto = wanted(&release, &Baseline::default(), Approval::Auto);
    let manual = wanted(&release, &Baseline::default(), Approval::Manual);
    assert_ne!(auto.plan.id, manual.plan.id);
}

#[test]
fn p8_an_approval_that_comes_twice_does_not_run_a_failed_plan_again() {
    let release = rendering(1);
    let wanted = wanted(&release, &Baseline::default(), Approval::Manual);
    let mut fake = Fake { fails: Some("c-network"), ..Fake::default() };
    let (state, report) = fake.run(Rollout::new("c"), &wanted, Some(&wanted.plan.id), false);
    assert_eq!(report.state.as_str(), "failed");
    let lines = fake.log.len();
    let (state, report) = fake.run(state, &wanted, Some(&wanted.plan.id), false);
    assert_eq!((report.state.as_str(), fake.log.len(), state.approved), ("failed", lines, None));
}

#[test]
fn p10_after_one_pool_failed_no_other_starts() {
    let release = rendering(1);
    let wanted = wanted(&release, &Baseline::default(), Approval::Auto);
    // One pool is refused permanently while the other's change set is ready.
    let mut fake = Fake::default();
    let mut state = Rollout::new("c");
    let pools_asked = |fake: &Fake| fake.log.contains(&"change set c-pool-b".to_owned());
    while !pools_asked(&fake) {
        let look = to_observe(&state, Some(&wanted), Timestamp::UNIX_EPOCH);
        let decision = decide(&state, &fake.observe(&look, Some(&wanted)), Timestamp::UNIX_EPOCH);
        fake.perform(&decision.effects);
        state = Rollout { outbox: Vec::new(), ..decision.next };
    }
    let (_, report) = fake.run(refused(state, "c-pool-a", "no"), &wanted, None, false);
    assert_eq!(report.state.as_str(), "failed");
    assert!(!fake.log.contains(&"execute c-pool-b".to_owned()), "{:?}", fake.log);
}

#[test]
fn p3_a_plan_that_needs_approval_waits_for_it_and_for_no_other() {
    let release = rendering(1);
    let wanted = wanted(&release, &Baseline::default(), Approval::Manual);
    let mut fake = Fake::default();
    let (state, report) = fake.run(Rollout::new("c"), &wanted, None, false);
    assert_eq!((report.state.as_str(), fake.log.len()), ("waiting-for-approval", 0));
    assert!(report.message.contains(&wanted.plan.id));
    let approve = format!("`slipway approve {} --cluster c` starts it", wanted.plan.id);
    assert!(report.next.is_some_and(|next| next.starts_with(&approve)));
    let (state, _) = fake.run(state, &wanted, Some("another-plan"), false);
    assert_eq!(fake.log.len(), 0);
    let (state, report) = fake.run(state, &wanted, Some(&wanted.plan.id), false);
    assert_eq!(report.state.as_str(), "succeeded");
    assert_eq!((state.approved.as_deref(), state.rollback_targets[0].approved), (None, true));
}

#[test]
fn a_newer_spec_takes_over_between_two_steps_and_the_plan_made_before_it_is_stale() {
    let (old, new) = (rendering(1), rendering(2));
    let first = wanted(&old, &Baseline::default(), Approval::Auto);
    let mut fake = Fake::default();
    // After three wakes, the network stack is done, and etcd's change set was requested.
    let mut state = Rollout::new("c");
    for _ in 0..3 {
        let look = to_observe(&state, Some(&first), Timestamp::UNIX_EPOCH);
        let decision = decide(&state, &fake.observe(&look, Some(&first)), Timestamp::UNIX_EPOCH);
        fake.perform(&decision.effects);
        state = decision.next;
    }
    let second = wanted(&new, &Baseline::default(), Approval::Auto);
    let (state, report) = fake.run(state, &second, None, false);
    assert_eq!(report.state.as_str(), "superseded");
    assert!(state.deployed.values().all(|release| release == &old.id()));
    // The deployed state differs from the plan's start: the plan must be made again before it begins.
    let look = to_observe(&state, Some(&second), Timestamp::UNIX_EPOCH);
    assert!(look.stacks.is_empty());
}

#[test]
fn a_call_that_cloudformation_refuses_fails_its_step() {
    let release = rendering(1);
    let wanted = wanted(&release, &Baseline::default(), Approval::Auto);
    let mut fake = Fake::default();
    let look = to_observe(&Rollout::new("c"), Some(&wanted), Timestamp::UNIX_EPOCH);
    let begun = decide(&Rollout::new("c"), &fake.observe(&look, Some(&wanted)), Timestamp::UNIX_EPOCH).next;
    let refused = refused(begun, "c-network", "Template format error");
    let (_, report) = fake.run(refused, &wanted, None, false);
    assert_eq!((report.state.as_str(), report.message.as_str()), ("failed", "Template format error"));
}

/// [`rendering`] with this number of etcd members, all in that zone.
fn with_members(size: u32, members: u32, zone: &str) -> Rendering {
    let mut rendering = rendering(size);
    let node = rendering.roles.values().next().unwrap().clone();
    for index in 0..members {
        let pin = MemberPin {
            joins: false,
            initial_cluster: BTreeMap::new(),
            join_endpoints: Vec::new(),
            volume: VolumePin { number: 1, availability_zone: zone.to_owned(), kms_key_arn: None },
        };
        let member = MemberRole {
            peer_url: format!("https://etcd-{index}:2380"),
            volume_gib: 30,
            pin,
            zone: NameZone::Made,
        };
        let node = NodeRole { stack: "c-etcd".to_owned(), member: Some(member), ..node.clone() };
        rendering.roles.insert(Role::Etcd(index), node);
    }
    rendering
}

/// The result of changing a cluster from `before` to `after`.
fn onward(before: &Rendering, after: &Rendering, approval: Approval) -> (Rollout, Report, Vec<String>) {
    let mut fake = Fake::default();
    let (state, _) =
        fake.run(Rollout::new("c"), &wanted(before, &Baseline::default(), Approval::Auto), None, false);
    let releases = BTreeMap::from([(before.id(), before.clone())]);
    let baseline = Baseline::assemble("c", &state.deployed, &BTreeMap::new(), &releases).unwrap();
    fake.log.clear();
    fake.change_sets.clear();
    let (state, report) = fake.run(state, &wanted(after, &baseline, approval), None, false);
    (state, report, fake.log)
}

#[test]
fn p4_a_plan_that_replaces_a_members_volume_is_refused() {
    let (_, report, log) = onward(&with_members(1, 3, "a"), &with_members(2, 3, "b"), Approval::Auto);
    assert_eq!(log, ["Rollout Failed"]);
    assert!(
        report.message.contains("replaces the data volumes of etcd members (etcd-0, etcd-1, etcd-2)"),
        "{}",
        report.message
    );
}

#[test]
fn p4_a_refused_plan_is_not_said_again_and_makes_way_for_a_newer_one() {
    let (here, there) = (with_members(1, 3, "a"), with_members(2, 3, "b"));
    let (state, ..) = onward(&here, &there, Approval::Auto);
    let releases = BTreeMap::from([(here.id(), here.clone())]);
    let baseline = Baseline::assemble("c", &state.deployed, &BTreeMap::new(), &releases).unwrap();
    let mut fake = Fake::default();
    let (again, _) = fake.run(state.clone(), &wanted(&there, &baseline, Approval::Auto), None, false);
    assert_eq!((again, fake.log.len()), (state.clone(), 0));

    fake.stacks = here.stacks.iter().map(|stack| (stack.name.clone(), StackStatus::CreateComplete)).collect();
    let other = with_members(2, 3, "a");
    let (_, report) = fake.run(state, &wanted(&other, &baseline, Approval::Auto), None, false);
    assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
}
