//! Plans over small renderings with AWS' real update rules.

mod groups;
mod membership;
mod rendered;
mod renewal;
mod shown;
mod sizes;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use slipway_core::cluster::{Approval, CountOrPercent, GroupSize, PoolRollout};
use slipway_core::release::{AddonSet, NodeRole, Stack};

use super::*;

pub(crate) fn policy() -> RolloutPolicy {
    RolloutPolicy {
        approval: Approval::Auto,
        max_unavailable: CountOrPercent::Count(1),
        surge: CountOrPercent::Count(0),
        drain_force_after_min: None,
        failure_budget: 1,
        windows: Vec::new(),
        pools: BTreeMap::new(),
    }
}

pub(crate) fn stack(name: &str, kind: StackKind, template: &Value) -> Stack {
    let body = template.to_string();
    Stack { name: name.to_owned(), kind, sha256: sha256_hex(body.as_bytes()), body, tags: BTreeMap::new() }
}

fn role(stack: &str, machine: Value, config: &Value, credentials: &str) -> NodeRole {
    let config = config.to_string();
    NodeRole {
        stack: stack.to_owned(),
        nodes: GroupSize { min: 3, max: 5 },
        machine,
        config_digest: sha256_hex(config.as_bytes()),
        config,
        credentials_digest: credentials.to_owned(),
        version: None,
        member: None,
        weighted: false,
    }
}

fn network(cidr: &str, dns: bool) -> Value {
    json!({"Resources": {
        "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": cidr, "EnableDnsHostnames": dns}},
        "Subnet": {"Type": "AWS::EC2::Subnet", "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": "10.0.0.0/24"}},
        "Zone": {"Type": "AWS::Route53::HostedZone", "Properties": {"Name": "x", "VPCs": [{"VPCId": {"Ref": "Vpc"}}]}},
    }})
}

fn pool(max: u32, image: &str) -> Value {
    json!({"Resources": {
        "Template": {"Type": "AWS::EC2::LaunchTemplate", "Properties": {"LaunchTemplateData": {"ImageId": image}}},
        "Group": {"Type": "AWS::AutoScaling::AutoScalingGroup", "Properties": {
            "MaxSize": max.to_string(),
            "LaunchTemplate": {
                "LaunchTemplateId": {"Ref": "Template"},
                "Version": {"Fn::GetAtt": ["Template", "LatestVersionNumber"]},
            },
        }},
    }})
}

fn rendering(network: &Value, pool: &Value, node: NodeRole) -> Rendering {
    Rendering {
        format: Rendering::FORMAT,
        cluster: "c".to_owned(),
        stacks: vec![
            stack("c-network", StackKind::Network, network),
            stack("c-pool-a", StackKind::Pool, pool),
        ],
        roles: BTreeMap::from([(Role::Pool("a".to_owned()), node)]),
        addons: AddonSet::default(),
    }
}

fn node() -> NodeRole {
    role("c-pool-a", json!({"imageId": "ami-1"}), &json!({"version": "1.34.1"}), "k1")
}

fn between(old: &Rendering, new: &Rendering) -> Plan {
    let deployed: BTreeMap<String, String> =
        old.stacks.iter().map(|stack| (stack.name.clone(), old.id())).collect();
    let baseline =
        Baseline::assemble("c", &deployed, &BTreeMap::new(), &BTreeMap::from([(old.id(), old.clone())]))
            .unwrap();
    plan(&baseline, new, &policy())
}

fn change<'a>(plan: &'a Plan, stack: usize, id: &str) -> &'a ResourceChange {
    plan.stacks[stack].resources.iter().find(|change| change.logical_id == id).unwrap()
}

#[test]
fn p1_the_same_rendering_plans_nothing_and_the_same_change_the_same_id() {
    let one = rendering(&network("10.0.0.0/16", true), &pool(5, "ami-1"), node());
    let same = between(&one, &one);
    assert!(same.is_empty());
    assert_eq!(same.summary(), "nothing changes");
    let two = rendering(&network("10.0.0.0/16", true), &pool(6, "ami-1"), node());
    assert_eq!(between(&one, &two), between(&one, &two));
    assert_ne!(between(&one, &two).id, same.id);
}

#[test]
fn p3_a_pools_new_size_touches_its_stack_alone_and_no_node() {
    let old = rendering(&network("10.0.0.0/16", true), &pool(5, "ami-1"), node());
    let resized = NodeRole { nodes: GroupSize { min: 3, max: 9 }, ..node() };
    let plan = between(&old, &rendering(&network("10.0.0.0/16", true), &pool(9, "ami-1"), resized));
    assert_eq!(plan.stacks[0].action, StackAction::Unchanged);
    assert_eq!(plan.stacks[1].action, StackAction::Update);
    let properties = &change(&plan, 1, "Group").properties;
    assert_eq!(properties[0].difference.path, "MaxSize");
    assert_eq!(properties[0].difference.before, Some(json!("5")));
    assert_eq!(plan.nodes[0].action, NodeAction::Untouched);
    assert_eq!(plan.summary(), "1 stack to update; nodes: none touched");
    assert!(plan.stacks[1].may_replace().is_empty());
}

#[test]
fn p3_a_replaced_resource_takes_along_what_is_bound_to_it() {
    let old = rendering(&network("10.0.0.0/16", true), &pool(5, "ami-1"), node());
    let plan = between(&old, &rendering(&network("10.9.0.0/16", true), &pool(5, "ami-1"), node()));
    assert_eq!(change(&plan, 0, "Vpc").replacement, Replacement::Always);
    let subnet = change(&plan, 0, "Subnet");
    assert_eq!(subnet.replacement, Replacement::Always);
    assert_eq!(subnet.properties[0].because_of.as_deref(), Some("Vpc"));
    // A hosted zone takes another VPC without being replaced.
    assert_eq!(change(&plan, 0, "Zone").replacement, Replacement::Never);
    assert_eq!(plan.stacks[0].may_replace(), ["Subnet", "Vpc"]);
}

#[test]
fn p3_a_change_in_place_takes_nobody_along() {
    let old = rendering(&network("10.0.0.0/16", true), &pool(5, "ami-1"), node());
    let plan = between(&old, &rendering(&network("10.0.0.0/16", false), &pool(5, "ami-1"), node()));
    assert_eq!(plan.stacks[0].resources.len(), 1);
    assert!(plan.stacks[0].may_replace().is_empty());
}

#[test]
fn p3_a_new_launch_template_version_reaches_the_group_without_replacing_it() {
    let old = rendering(&network("10.0.0.0/16", true), &pool(5, "ami-1"), node());
    let newer = role("c-pool-a", json!({"imageId": "ami-2"}), &json!({"version": "1.34.1"}), "k1");
    let plan = between(&old, &rendering(&network("10.0.0.0/16", true), &pool(5, "ami-2"), newer));
    let group = change(&plan, 1, "Group");
    assert_eq!(group.properties[0].because_of.as_deref(), Some("Template"));
    assert_eq!(group.replacement, Replacement::Never);
    assert_eq!(plan.nodes[0].reasons, ["image: ami-1 → ami-2"]);
}

#[test]
fn p2_outdated_nodes_are_replaced_stale_ones_refreshed_and_the_rest_left_alone() {
    let with = |node| rendering(&network("10.0.0.0/16", true), &pool(5, "ami-1"), node);
    let config = |version: &str| json!({"version": version});
    let old = with(node());
    let cases = [
        (role("c-pool-a", json!({"imageId": "ami-2"}), &config("1.34.1"), "k1"), NodeAction::Replace),
        (role("c-pool-a", json!({"imageId": "ami-1"}), &config("1.34.2"), "k1"), NodeAction::Replace),
        (role("c-pool-a", json!({"imageId": "ami-1"}), &config("1.34.1"), "k2"), NodeAction::Refresh),
        (role("c-pool-a", json!({"imageId": "ami-1"}), &config("1.34.2"), "k2"), NodeAction::Replace),
        (node(), NodeAction::Untouched),
    ];
    for (node, action) in cases {
        assert_eq!(between(&old, &with(node.clone())).nodes[0].action, action, "{node:?}");
    }
}

#[test]
fn p2_a_group_that_may_use_more_instance_types_keeps_its_nodes() {
    let with = |types: Value| {
        let node = role("c-pool-a", json!({ "instanceTypes": types }), &json!({}), "k1");
        rendering(&network("10.0.0.0/16", true), &pool(5, "ami-1"), node)
    };
    let action = |old: Value, new: Value| between(&with(old), &with(new)).nodes[0].action;
    assert_eq!(action(json!(["m7g.large"]), json!(["m6g.large", "m7g.large"])), NodeAction::Untouched);
    assert_eq!(action(json!(["m6g.large", "m7g.large"]), json!(["m7g.large"])), NodeAction::Replace);
    assert_eq!(action(json!(["m7g.large"]), json!(["m7g.xlarge"])), NodeAction::Replace);
}

#[test]
fn p3_a_stack_and_a_role_that_go_are_in_the_plan() {
    let old = rendering(&network("10.0.0.0/16", true), &pool(5, "ami-1"), node());
    let mut new = old.clone();
    new.stacks.pop();
    new.roles.clear();
    let plan = between(&old, &new);
    assert_eq!((plan.stacks[1].name.as_str(), plan.stacks[1].action), ("c-pool-a", StackAction::Delete));
    assert_eq!(plan.nodes[0].action, NodeAction::Remove);
    assert_eq!(plan.summary(), "1 stack to delete; nodes: 3–5 removed");
}

#[test]
fn p3_each_stack_is_compared_with_the_release_that_it_is_at() {
    let first = rendering(&network("10.0.0.0/16", true), &pool(5, "ami-1"), node());
    let second = rendering(&network("10.0.0.0/16", true), &pool(7, "ami-1"), node());
    // The launch of the second stopped before its pool.
    let deployed =
        BTreeMap::from([("c-network".to_owned(), second.id()), ("c-pool-a".to_owned(), first.id())]);
    let releases = BTreeMap::from([(first.id(), first.clone()), (second.id(), second.clone())]);
    let baseline = Baseline::assemble("c", &deployed, &BTreeMap::new(), &releases).unwrap();
    let plan = plan(&baseline, &second, &policy());
    assert_eq!(plan.stacks[0].action, StackAction::Unchanged);
    assert_eq!(plan.stacks[1].action, StackAction::Update);
    assert_eq!(Baseline::assemble("c", &deployed, &BTreeMap::new(), &BTreeMap::new()), Err(second.id()));
}

#[test]
fn a_plan_reads_well() {
    let old = rendering(&network("10.0.0.0/16", true), &pool(5, "ami-1"), node());
    let newer = role("c-pool-a", json!({"imageId": "ami-2"}), &json!({"version": "1.34.1"}), "k1");
    insta::assert_snapshot!(
        between(&old, &rendering(&network("10.9.0.0/16", true), &pool(9, "ami-2"), newer)).to_text()
    );
}

/// A network that exports the subnets, and a pool that imports those of the names.
fn exporting(subnets: &[(&str, &str)], used: &[&str]) -> Rendering {
    let resources: serde_json::Map<String, Value> = subnets
        .iter()
        .map(|(id, cidr)| {
            (
                (*id).to_owned(),
                json!({"Type": "AWS::EC2::Subnet", "Properties": {"VpcId": "vpc-1", "CidrBlock": cidr}}),
            )
        })
        .collect();
    let outputs: serde_json::Map<String, Value> = subnets
        .iter()
        .map(|(id, _)| {
            let export = json!({"Description": format!("Subnet {id}"), "Value": {"Ref": id}, "Export": {"Name": format!("c-network-{id}")}});
            ((*id).to_owned(), export)
        })
        .collect();
    let imports: Vec<Value> =
        used.iter().map(|id| json!({"Fn::ImportValue": format!("c-network-{id}")})).collect();
    let group =
        json!({"Type": "AWS::AutoScaling::AutoScalingGroup", "Properties": {"VPCZoneIdentifier": imports}});
    Rendering {
        format: Rendering::FORMAT,
        cluster: "c".to_owned(),
        stacks: vec![
            stack("c-network", StackKind::Network, &json!({"Resources": resources, "Outputs": outputs})),
            stack("c-pool-a", StackKind::Pool, &json!({"Resources": {"Group": group}})),
        ],
        roles: BTreeMap::new(),
        addons: AddonSet::default(),
    }
}

#[test]
fn a_subnet_that_is_taken_away_or_replaced_while_nodes_stand_in_it_is_not_executed() {
    let (a, b) = (("A", "10.0.1.0/24"), ("B", "10.0.2.0/24"));
    let before = exporting(&[a, b], &["A", "B"]);
    // CloudFormation updates the network first: that the pool lets go in the same plan is no help.
    let gone = between(&before, &exporting(&[a], &["A"]));
    let why = gone.not_executable().unwrap();
    assert!(
        why.starts_with(
            "it takes away what other stacks still use: Subnet B (used by c-pool-a). CloudFormation"
        ),
        "{why}"
    );
    assert!(gone.to_text().contains(&why));
    let moved = between(&before, &exporting(&[a, ("B", "10.0.3.0/24")], &["A", "B"]));
    let why = moved.not_executable().unwrap();
    assert!(
        why.starts_with("it replaces what other stacks still use: Subnet B (used by c-pool-a)."),
        "{why}"
    );
}

#[test]
fn what_nobody_uses_any_more_may_go_and_what_is_new_may_come() {
    let (a, b) = (("A", "10.0.1.0/24"), ("B", "10.0.2.0/24"));
    let both = exporting(&[a, b], &["A", "B"]);
    let left = exporting(&[a, b], &["A"]);
    for (before, after) in [
        (&both, &left),
        (&left, &exporting(&[a], &["A"])),
        (&exporting(&[a], &["A"]), &both),
        (&left, &exporting(&[a, ("B", "10.0.3.0/24")], &["A"])),
    ] {
        let plan = between(before, after);
        assert_eq!((plan.in_use.as_slice(), plan.not_executable()), (&[][..], None), "{}", plan.to_text());
    }
}

#[test]
fn of_many_users_the_first_are_named() {
    let used_by: Vec<String> = (0..100).map(|n| format!("c-pool-{n}")).collect();
    let (stack, export, what) = ("c-network".to_owned(), "c-network-A".to_owned(), "Subnet A".to_owned());
    let found = ExportInUse { stack, export, what, removed: true, used_by, orphaned: Vec::new() };
    assert_eq!(found.words(), "Subnet A (used by c-pool-0, c-pool-1, c-pool-2 and 97 more)");
}

#[test]
fn pools_say_which_of_the_others_that_are_rolled_go_before_them() {
    let release = |image: &str, names: &[&str]| Rendering {
        format: Rendering::FORMAT,
        cluster: "c".to_owned(),
        stacks: Vec::new(),
        roles: names
            .iter()
            .map(|name| {
                (Role::Pool((*name).to_owned()), role(name, json!({"imageId": image}), &json!({}), "x"))
            })
            .collect(),
        addons: AddonSet::default(),
    };
    let after = |names: &[&str]| PoolRollout {
        after: names.iter().map(|name| (*name).to_owned()).collect(),
        ..PoolRollout::default()
    };
    let policy = RolloutPolicy {
        pools: BTreeMap::from([
            ("b".to_owned(), after(&["a"])),
            ("c".to_owned(), after(&["a", "b"])),
            ("d".to_owned(), after(&["a"])),
        ]),
        ..policy()
    };
    // a is new and d is gone: nobody waits for either, and neither waits.
    let before = Baseline { rendering: Some(release("1", &["b", "c", "d"])), ..Baseline::default() };
    let plan = plan(&before, &release("2", &["a", "b", "c"]), &policy);
    let waits: Vec<String> = plan
        .nodes
        .iter()
        .map(|node| {
            let before: Vec<String> = plan.waits_for(node).iter().map(ToString::to_string).collect();
            format!("{} after [{}]", node.role, before.join(", "))
        })
        .collect();
    assert_eq!(waits, ["pool-a after []", "pool-b after []", "pool-c after [pool-b]", "pool-d after []"]);
    assert!(plan.to_text().contains("pool-c ×3–5: replaced, after pool-b\n"), "{}", plan.to_text());
}

#[test]
fn p3_what_auto_scaling_may_terminate_by_itself_is_said() {
    let of = |min, max, subnets: &[&str]| {
        let mut release = exporting(&[("A", "10.0.1.0/24"), ("B", "10.0.2.0/24")], subnets);
        let node = role("c-pool-a", json!({}), &json!({}), "x");
        let node = NodeRole { nodes: GroupSize { min, max }, ..node };
        release.roles.insert(Role::Pool("a".to_owned()), node);
        release
    };
    let before = of(3, 5, &["A", "B"]);
    let reasons = |after: &Rendering| {
        let plan = between(&before, after);
        assert_eq!(plan.nodes[0].action, NodeAction::Untouched);
        let page = plan.to_html();
        assert_eq!(page.contains("at once, undrained"), !plan.nodes[0].undrained.is_empty());
        assert!(plan.nodes[0].all_reasons().all(|why| plan.to_text().contains(why)));
        (plan.nodes[0].all_reasons().collect::<Vec<_>>().join("\n"), page.contains("Risk: high"))
    };
    let (grown, grave) = reasons(&of(3, 9, &["A", "B"]));
    assert_eq!((grown.as_str(), grave), ("the group's size: 3–5 → 3–9; no node changes", false));
    for (after, words, risky) in [
        (
            of(1, 2, &["A", "B"]),
            "the group's maximum falls from 5 to 2: when its stack is updated, Auto Scaling may terminate up to 3",
            true,
        ),
        // Nothing goes by that alone.
        (of(1, 5, &["A", "B"]), "the group's minimum falls from 3 to 1: no node goes by that, but", false),
        (
            of(3, 5, &["A"]),
            "the group leaves c-network-B: when its stack is updated, Auto Scaling may terminate the nodes there",
            true,
        ),
    ] {
        let (reasons, grave) = reasons(&after);
        assert!(reasons.contains(words), "{reasons}");
        assert_eq!(grave, risky, "{reasons}");
        assert!(!reasons.contains("no node changes"), "{reasons}");
    }
    assert_eq!(reasons(&before), (String::new(), false));
}

#[test]
fn p5_what_would_have_auto_scaling_take_controllers_at_once_is_not_begun_and_of_pools_only_what_was_read() {
    let of = |role_name: Role, max, subnets: &[&str]| {
        let mut release = exporting(&[("A", "10.0.1.0/24"), ("B", "10.0.2.0/24")], subnets);
        let node = role("c-pool-a", json!({}), &json!({}), "x");
        release.roles.insert(role_name, NodeRole { nodes: GroupSize { min: 1, max }, ..node });
        let mut group: Value = serde_json::from_str(&release.stacks[1].body).unwrap();
        group["Resources"]["Group"]["Properties"]["MaxSize"] = json!(max);
        release.stacks[1] = stack("c-pool-a", StackKind::Pool, &group);
        release
    };
    let judge = |who: Role, max, subnets: &[&str], approval| {
        let (before, after) = (of(who.clone(), 5, &["A", "B"]), of(who, max, subnets));
        let plan =
            plan(&Baseline::single_release(Some(before)), &after, &RolloutPolicy { approval, ..policy() });
        (plan.not_executable(), plan.summary())
    };
    let pool = || Role::Pool("a".to_owned());
    for approval in [Approval::Auto, Approval::Manual] {
        let subnets_stay = "leaves the controllers' subnets as they are";
        let one_by_one = "a spec with one controller fewer, and the next when that is rolled out";
        for (max, subnets, help) in
            [(3, &["A", "B"][..], one_by_one), (5, &["A"], subnets_stay), (4, &["A"], subnets_stay)]
        {
            let (why, _) = judge(Role::Controller, max, subnets, approval);
            let why = why.unwrap();
            assert!(why.starts_with("Auto Scaling would terminate controllers at once"), "{why}");
            assert!(why.ends_with(help), "{why}");
        }
        for max in [4, 7] {
            assert_eq!(judge(Role::Controller, max, &["A", "B"], approval).0, None);
        }
        // Fewer workers are somebody's own word; it is said in the one line that is read.
        let (why, summary) = judge(pool(), 3, &["A", "B"], approval);
        assert_eq!(why, None);
        assert_eq!(
            summary,
            "1 stack to update; nodes: none replaced, some may go at once, undrained (pool-a)"
        );
    }
    let (why, _) = judge(pool(), 5, &["A"], Approval::Auto);
    assert!(why.unwrap().contains("all nodes in the subnets that pool-a would leave, at once and undrained"));
    assert_eq!(judge(pool(), 5, &["A"], Approval::Manual).0, None);
}

#[test]
fn a_switch_of_issuers_in_one_step_is_not_begun_and_the_way_is_named() {
    let of = |issuers: &[&str]| {
        let tokens = json!({"controlPlane": {"serviceAccountTokens": {"issuers": issuers}}});
        let none = json!({"controlPlane": {}});
        let config = if issuers.is_empty() { &none } else { &tokens };
        let mut release = exporting(&[], &[]);
        release.roles.insert(Role::Controller, role("c-pool-a", json!({}), config, "x"));
        release
    };
    let (local, public) = (slipway_core::oidc::LOCAL_ISSUER, "https://issuer/c");
    let (off, between_them, on) = (of(&[]), of(&[local, public]), of(&[public, local]));
    let stopped = |before: &Rendering, after: &Rendering| {
        let plan = between(before, after);
        let why = plan.not_executable().unwrap_or_default();
        assert_eq!(why.is_empty(), plan.objections.is_empty());
        why.contains("upload `iamRolesForServiceAccounts: {enabled: false}` first")
    };
    for (before, after) in [(&off, &on), (&on, &off), (&on, &of(&["https://issuer/d", local]))] {
        assert!(stopped(before, after), "{:?}", between(before, after).objections);
    }
    // Why nothing happens is read first, and no schedule of it.
    let text = between(&off, &on).to_text();
    assert!(text.find("This plan is not executed: ").unwrap() < text.find("\nStacks\n").unwrap(), "{text}");
    assert!(!text.contains("How it is rolled out"), "{text}");
    for (before, after) in
        [(&off, &between_them), (&between_them, &on), (&on, &between_them), (&between_them, &off)]
    {
        assert!(!stopped(before, after));
    }
}

/// A release of which not every stack is deployed has another id than what is deployed of it.
#[test]
fn p1_an_unchanged_release_has_the_id_that_it_was_deployed_under() {
    let large = rendering(&network("10.0.0.0/16", true), &pool(5, "ami-1"), node());
    let small = Rendering { stacks: large.stacks[..1].to_vec(), roles: BTreeMap::new(), ..large.clone() };
    let releases = BTreeMap::from([(large.id(), large.clone())]);
    let deployed = |of: &Rendering| {
        let stacks = of.stacks.iter().map(|stack| (stack.name.clone(), large.id())).collect();
        let baseline = Baseline::assemble("c", &stacks, &BTreeMap::new(), &releases).unwrap();
        baseline.with_release_id(&releases)
    };
    assert_eq!(deployed(&large).whole, Some(large.id()));
    assert_eq!(deployed(&small).whole, None);
    for baseline in [deployed(&large), deployed(&small)] {
        for new in [&large, &small] {
            assert_eq!(plan(&baseline, new, &policy()).to, new.id());
        }
    }
}
