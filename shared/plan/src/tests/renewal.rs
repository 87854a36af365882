//! Which plans begin without the approval that their policy asks for.

use jiff::{SignedDuration, Timestamp};
use slipway_core::deadline::Deadline;

use super::*;

/// The control plane of a cluster, with these credentials in the user data of its launch template.
fn control_plane(credentials: &str) -> Value {
    json!({"Resources": {
        "Template": {"Type": "AWS::EC2::LaunchTemplate", "Properties": {
            "LaunchTemplateData": {"ImageId": "ami-1", "UserData": format!("credentials={credentials}")},
            "TagSpecifications": [{"ResourceType": "launch-template", "Tags": [{"Key": "team", "Value": "payments"}]}],
        }},
        "Group": {"Type": "AWS::AutoScaling::AutoScalingGroup", "Properties": {
            "MinSize": "3",
            "MaxSize": "4",
            "TargetGroupARNs": ["arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/api/1"],
            "VPCZoneIdentifier": ["subnet-1", "subnet-2", "subnet-3"],
            "LifecycleHookSpecificationList": [{"LifecycleHookName": "terminate", "HeartbeatTimeout": 3600}],
            "LaunchTemplate": {
                "LaunchTemplateId": {"Ref": "Template"},
                "Version": {"Fn::GetAtt": ["Template", "LatestVersionNumber"]},
            },
        }},
    }})
}

/// A release of one role and its stack.
fn of(kind: StackKind, name: &str, role: Role, template: &Value, credentials: &str) -> Rendering {
    Rendering {
        stacks: vec![stack(name, kind, template)],
        roles: BTreeMap::from([(role, self::role(name, json!({}), &json!({}), credentials))]),
        ..rendering(&json!({}), &json!({}), node())
    }
}

/// A release of controllers with these credentials.
fn controllers(credentials: &str) -> Rendering {
    let template = control_plane(credentials);
    of(StackKind::ControlPlane, "c-control-plane", Role::Controller, &template, credentials)
}

/// [`controllers`] with another value of the resource `id` at `place`.
fn with(credentials: &str, id: &str, place: &str, value: Value) -> Rendering {
    let mut template = control_plane(credentials);
    let place = template.pointer_mut(&format!("/Resources/{id}/Properties/{place}")).unwrap();
    assert_ne!(*place, value);
    *place = value;
    of(StackKind::ControlPlane, "c-control-plane", Role::Controller, &template, credentials)
}

fn manual_plan(old: &Rendering, new: &Rendering) -> Plan {
    let manual = RolloutPolicy { approval: Approval::Manual, ..policy() };
    super::plan(&Baseline::single_release(Some(old.clone())), new, &manual)
}

const ENDS: &str = "2027-11-20T12:00:00Z";
const LEAD_H: i64 = 48;

fn before_the_end(hours: i64) -> Timestamp {
    ENDS.parse::<Timestamp>().unwrap() - SignedDuration::from_hours(hours)
}

/// All certificates end then.
fn known() -> RenewalPlan {
    let all = [Role::Controller, Role::Etcd(0), Role::Pool("a".to_owned())];
    let ends = all.map(|role| (role, ENDS.parse().unwrap())).into();
    RenewalPlan { deadline: Deadline { ends, lead_s: LEAD_H * 3_600 }, ..RenewalPlan::default() }
}

/// P7: what only brings credentials to etcd and controllers may be urgent, and nothing else slips through with it.
#[test]
fn p7_only_a_renewal_waits_for_no_approval() {
    let (early, late) = (before_the_end(LEAD_H + 1), before_the_end(LEAD_H));
    let renewal = manual_plan(&controllers("k1"), &controllers("k2"));
    assert!(renewal.waits_for_approval(late));
    let hurried = renewal.clone().with_renewal(&known());
    assert!(
        hurried.waits_for_approval(early) && !hurried.waits_for_approval(late) && hurried.needs_approval()
    );
    assert!(hurried.id != renewal.id);
    assert_eq!(
        hurried.renewal.deadline.ends,
        BTreeMap::from([(Role::Controller, ENDS.parse().unwrap())]),
        "of what it renews alone"
    );
    assert_eq!(
        hurried.summary(),
        "1 stack to update; nodes: 3–5 refreshed; certificates in use expire at 2027-11-20T12:00:00Z: from 2027-11-18T12:00:00Z on (2 days \
         before, rolloutBeforeExpiry.emergencyDays or what the slowest roll takes) it begins without approval"
    );
    assert_eq!(renewal.clone().with_renewal(&RenewalPlan::default()), renewal);

    // Replaced by its strategy it is as urgent, and made anew from elsewhere it stays so.
    let why = BTreeMap::from([(Role::Controller, "renewed: apiserver".to_owned())]);
    let replaced = renewal.clone().with_renewal(&RenewalPlan { replaced: why, ..known() });
    assert_eq!(replaced.nodes[0].action, NodeAction::Replace);
    assert_eq!(replaced.nodes[0].reasons, ["renewed: apiserver"]);
    assert!(
        !replaced.waits_for_approval(late) && replaced.waits_for_approval(early) && replaced.id != hurried.id
    );
    assert_eq!(renewal.with_renewal(&replaced.renewal), replaced);

    // A pool, another configuration, a new resource: a person decides as ever.
    let pools = |credentials: &str| {
        let template = pool(5, credentials);
        of(StackKind::Pool, "c-pool-a", Role::Pool("a".to_owned()), &template, credentials)
    };
    let mut configured = controllers("k2");
    let other = self::role("c-control-plane", json!({}), &json!({"flag": true}), "k2");
    configured.roles.insert(Role::Controller, other);
    let mut more = controllers("k2");
    more.stacks[0] = stack("c-control-plane", StackKind::ControlPlane, &network("10.0.0.0/16", true));
    let same_credentials = with("k1", "Template", "LaunchTemplateData/ImageId", json!("ami-2"));
    for (old, new) in [
        (pools("k1"), pools("k2")),
        (controllers("k1"), configured),
        (controllers("k1"), more),
        (controllers("k1"), same_credentials),
    ] {
        let plan = manual_plan(&old, &new).with_renewal(&known());
        assert!(plan.waits_for_approval(late), "{}", plan.summary());
        let untouched = plan.nodes.iter().all(|node| node.action == NodeAction::Untouched);
        assert_eq!(plan.renewal.is_none(), untouched, "{}", plan.summary());
    }
}

/// P7: no setting of the group or the launch template changes along with an urgent renewal, also none that replaces no node.
#[test]
fn p7_a_renewal_changes_nothing_else_of_a_group() {
    let late = before_the_end(LEAD_H);
    let arn =
        |name: &str| format!("arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/{name}/1");
    let tags = |value: &str| json!([{"Key": "team", "Value": value}]);
    let spec = |tags: &Value| json!([{"ResourceType": "launch-template", "Tags": tags}]);
    let hook = |timeout: u32| json!([{"LifecycleHookName": "terminate", "HeartbeatTimeout": timeout}]);
    for (what, id, place, value) in [
        ("another target group", "Group", "TargetGroupARNs", json!([arn("evil")])),
        ("one more target group", "Group", "TargetGroupARNs", json!([arn("api"), arn("evil")])),
        ("a hook", "Group", "LifecycleHookSpecificationList", hook(30)),
        ("other subnets", "Group", "VPCZoneIdentifier", json!(["subnet-9"])),
        ("a larger maximum", "Group", "MaxSize", json!("9")),
        ("a tag", "Template", "TagSpecifications", spec(&tags("others"))),
        ("an image", "Template", "LaunchTemplateData/ImageId", json!("ami-evil")),
        ("more user data", "Template", "LaunchTemplateData/UserData", json!("credentials=k2\ncurl evil")),
    ] {
        let plan = manual_plan(&controllers("k1"), &with("k2", id, place, value)).with_renewal(&known());
        assert_eq!(plan.nodes[0].action, NodeAction::Refresh, "{what}");
        assert!(!plan.is_renewal() && plan.waits_for_approval(late), "{what}: {}", plan.summary());
    }
    // The number of controllers, up and down.
    for (min, max) in [(7, 8), (2, 3), (3, 9)] {
        let mut resized = controllers("k2");
        resized.roles.get_mut(&Role::Controller).unwrap().nodes = GroupSize { min, max };
        let plan = manual_plan(&controllers("k1"), &resized).with_renewal(&known());
        assert!(!plan.is_renewal() && plan.waits_for_approval(late), "{min} to {max}: {}", plan.summary());
    }
    // Tags of the stack, and of the roles something that no plan compares.
    let mut tagged = controllers("k2");
    tagged.stacks[0].tags.insert("team".to_owned(), "others".to_owned());
    let mut weighted = controllers("k2");
    weighted.roles.get_mut(&Role::Controller).unwrap().weighted = true;
    for other in [tagged, weighted] {
        let plan = manual_plan(&controllers("k1"), &other).with_renewal(&known());
        assert!(!plan.is_renewal() && plan.waits_for_approval(late), "{}", plan.summary());
    }
}

/// P7: neither the order of the stacks nor an orphaned one makes something else of a renewal.
#[test]
fn p7_a_renewal_is_one_in_any_order_of_stacks_and_beside_an_orphaned_stack() {
    let both = |credentials: &str, pools: [&str; 2]| {
        let mut all = controllers(credentials);
        all.stacks.extend(pools.map(|name| stack(name, StackKind::Pool, &pool(5, "ami-1"))));
        all
    };
    let (old, new) = (both("k1", ["c-pool-a", "c-pool-b"]), both("k2", ["c-pool-b", "c-pool-a"]));
    assert_eq!(
        old.id_without_credentials(),
        new.id_without_credentials(),
        "an abort of one counts for the other"
    );
    let plan = manual_plan(&old, &new).with_renewal(&known());
    assert!(!plan.waits_for_approval(before_the_end(LEAD_H)), "{}", plan.summary());

    let etcd = stack("c-identity", StackKind::Identity, &network("10.0.0.0/16", true));
    let mut old = controllers("k1");
    old.stacks.insert(0, etcd);
    let orphaned = ["c-identity".to_owned()].into();
    let baseline = Baseline { orphaned, ..Baseline::single_release(Some(old)) };
    let manual = RolloutPolicy { approval: Approval::Manual, ..policy() };
    let plan = super::plan(&baseline, &controllers("k2"), &manual).with_renewal(&known());
    assert!(!plan.waits_for_approval(before_the_end(LEAD_H)), "{}", plan.summary());
}

/// The uploader decides which names a certificate has, too.
#[test]
fn a_renewal_by_credentials_of_another_spec_waits_for_its_approval() {
    let renewal = manual_plan(&controllers("k1"), &controllers("k2"));
    let late = before_the_end(LEAD_H);
    let own = renewal.clone().with_renewal(&known());
    let other = renewal.with_renewal(&RenewalPlan { of_another_spec: true, ..known() });
    assert!(!own.waits_for_approval(late) && other.waits_for_approval(late));
    assert!(!other.is_renewal() && own.id != other.id, "{}", other.summary());
}

/// P7: what an earlier rollout did not complete is part of the next plan, and of no renewal of what runs.
#[test]
fn p7_a_renewal_of_what_runs_leaves_what_an_earlier_rollout_did_not_complete_as_it_is() {
    let late = before_the_end(LEAD_H);
    let manual = RolloutPolicy { approval: Approval::Manual, ..policy() };
    let (pool_a, config) = (Role::Pool("a".to_owned()), json!({"flag": true}));
    let whole = |credentials: &str| {
        let mut all = controllers(credentials);
        all.stacks.push(stack("c-pool-a", StackKind::Pool, &pool(5, "ami-2")));
        all.roles
            .insert(pool_a.clone(), self::role("c-pool-a", json!({"imageId": "ami-2"}), &json!({}), "p"));
        all
    };
    let older = self::role("c-pool-a", json!({"imageId": "ami-1"}), &json!({}), "p");
    let other_config = self::role("c-control-plane", json!({}), &config, "k1");
    let other_credentials = self::role("c-control-plane", json!({}), &json!({}), "k0");
    let left = |role: &Role| BTreeMap::from([(role.clone(), BTreeSet::from(["r0".to_owned()]))]);
    let replaced = BTreeMap::from([(Role::Controller, "renewed: apiserver".to_owned())]);
    for (role, node, is_left, in_place) in [
        (&pool_a, older, left(&pool_a), false),
        (&Role::Controller, other_config, left(&Role::Controller), true),
        (&Role::Controller, other_credentials, BTreeMap::new(), false),
    ] {
        let earlier = BTreeMap::from([(role.clone(), BTreeMap::from([("r0".to_owned(), Some(node))]))]);
        let baseline = Baseline { earlier, ..Baseline::single_release(Some(whole("k1"))) };
        let ordinary = super::plan(&baseline, &whole("k2"), &manual).with_renewal(&known());
        let completes = !is_left.is_empty();
        assert_eq!(ordinary.waits_for_approval(late), completes, "{role}: {}", ordinary.to_text());
        assert_eq!(ordinary.left_behind, None);

        let known = RenewalPlan { replaced: replaced.clone(), ..known() };
        let plan = renewal_of_what_runs(&baseline, &whole("k2"), &manual).with_renewal(&known);
        assert!(plan.is_renewal() && !plan.waits_for_approval(late), "{role}: {}", plan.to_text());
        assert_eq!((&plan.left_behind, &plan.earlier), (&Some(is_left), &left(role)), "{role}");
        assert_ne!(plan.id, ordinary.id, "one may wait for an approval, and the other not");
        let action = |role: &Role| plan.nodes.iter().find(|node| node.role == *role).unwrap().action;
        assert_eq!(action(&pool_a), NodeAction::Untouched);
        let renews = if in_place { NodeAction::Refresh } else { NodeAction::Replace };
        assert_eq!(action(&Role::Controller), renews, "{role}");
        assert_eq!(
            completes,
            plan.to_text().contains("did not complete is left as it is"),
            "{}",
            plan.to_text()
        );
    }
}

/// P7: neither a stack whose creation failed nor one that is to be deleted holds up a renewal of what runs.
#[test]
fn p7_a_renewal_of_what_runs_leaves_stacks_that_came_to_nothing_as_they_are() {
    let late = before_the_end(LEAD_H);
    let manual = RolloutPolicy { approval: Approval::Manual, ..policy() };
    let pool_b = stack("c-pool-b", StackKind::Pool, &pool(5, "ami-1"));
    let node = self::role("c-pool-b", json!({}), &json!({}), "p");
    let of_pool = Rendering {
        stacks: vec![pool_b.clone()],
        roles: BTreeMap::from([(Role::Pool("b".to_owned()), node.clone())]),
        ..controllers("k1")
    };
    let unfinished = BTreeMap::from([("c-pool-b".to_owned(), ("r1".to_owned(), of_pool))]);
    let failed = Baseline { unfinished, ..Baseline::single_release(Some(controllers("k1"))) };
    let mut runs = controllers("k1");
    runs.stacks.push(pool_b);
    runs.roles.insert(Role::Pool("b".to_owned()), node);
    let goes = Baseline { orphaned: ["c-pool-b".to_owned()].into(), ..Baseline::single_release(Some(runs)) };
    for baseline in [failed, goes] {
        let ordinary = super::plan(&baseline, &controllers("k2"), &manual).with_renewal(&known());
        assert!(ordinary.waits_for_approval(late), "{}", ordinary.to_text());
        let plan = renewal_of_what_runs(&baseline, &controllers("k2"), &manual).with_renewal(&known());
        assert!(plan.is_renewal() && !plan.waits_for_approval(late), "{}", plan.to_text());
        assert_eq!((&plan.from, &plan.unfinished), (&ordinary.from, &ordinary.unfinished));
    }
}

/// P7: as long as etcd has a member without a machine, nothing of it can be renewed.
#[test]
fn p7_a_renewal_removes_members_that_joined_in_a_rollout_that_was_rolled_back_and_waits_for_no_approval() {
    let late = before_the_end(LEAD_H);
    let manual = RolloutPolicy { approval: Approval::Manual, ..policy() };
    let member = |credentials: &str| self::role("c-etcd", json!({}), &json!({}), credentials);
    let with = |credentials: &str| {
        let mut all = controllers(credentials);
        all.roles.insert(Role::Etcd(0), member(credentials));
        all
    };
    let joined = BTreeMap::from([(Role::Etcd(1), ("r1".to_owned(), member("k1")))]);
    let baseline = Baseline { joined, ..Baseline::single_release(Some(with("k1"))) };
    let removal = (Role::Etcd(1), NodeAction::Remove);
    for plan in [super::plan, renewal_of_what_runs] {
        let plan = plan(&baseline, &with("k2"), &manual).with_renewal(&known());
        assert!(plan.is_renewal() && !plan.waits_for_approval(late), "{}", plan.to_text());
        assert!(plan.nodes.iter().any(|node| (node.role.clone(), node.action) == removal));
        assert_eq!(plan.joined, BTreeMap::from([(Role::Etcd(1), "r1".to_owned())]));
    }
    let plan = super::plan(&baseline, &with("k2"), &manual);
    assert!(plan.brings_credentials);
    let removal = &plan.membership[0];
    assert_eq!((removal.voters_before, removal.voters_after), (1, 1), "{}", removal.quorum);
    // It was to have another minor, and runs nothing.
    let mut newer = baseline.clone();
    newer.joined.get_mut(&Role::Etcd(1)).unwrap().1.version = Some("3.7.3".to_owned());
    for role in newer.rendering.iter_mut().flat_map(|rendering| rendering.roles.values_mut()) {
        role.version = Some("3.6.16".to_owned());
    }
    let mut of_older = with("k2");
    of_older.roles.values_mut().for_each(|role| role.version = Some("3.6.16".to_owned()));
    let plan = super::plan(&newer, &of_older, &manual);
    assert_eq!(plan.not_executable(), None, "{}", plan.to_text());
    // Nothing is renewed: a person may see to it.
    let plan = super::plan(&baseline, &with("k1"), &manual).with_renewal(&known());
    assert!(!plan.is_empty() && plan.waits_for_approval(late), "{}", plan.to_text());
    // The spec has it: it joins anew, and somebody has to approve that.
    let mut two = with("k2");
    two.roles.insert(Role::Etcd(1), member("k2"));
    let plan = super::plan(&baseline, &two, &manual).with_renewal(&known());
    assert!(
        plan.joining_members().eq([&Role::Etcd(1)]) && plan.waits_for_approval(late),
        "{}",
        plan.to_text()
    );
}

/// P7: controllers that kept their older configuration and were refreshed in place are renewed once, and not each day.
#[test]
fn p7_older_nodes_that_were_refreshed_in_place_count_as_renewed() {
    let config = json!({"flag": true});
    let older = self::role("c-control-plane", json!({}), &config, "k1");
    let earlier = BTreeMap::from([(Role::Controller, BTreeMap::from([("r0".to_owned(), Some(older))]))]);
    let baseline = Baseline { earlier, ..Baseline::single_release(Some(controllers("k2"))) };
    let plan = |baseline: &Baseline| renewal_of_what_runs(baseline, &controllers("k2"), &policy());
    assert!(!plan(&baseline).is_empty());
    let refreshed = baseline.with_refreshed(&BTreeMap::from([(Role::Controller, "k2".to_owned())]));
    assert!(plan(&refreshed).is_empty(), "{}", plan(&refreshed).to_text());
    // Their configuration still has to be replaced.
    let ordinary = super::plan(&refreshed, &controllers("k2"), &policy());
    assert_eq!(ordinary.nodes[0].action, NodeAction::Replace);
    assert!(!ordinary.brings_credentials);
}
