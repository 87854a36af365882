//! Compares the plan with the change set that the simulated CloudFormation makes of the same change (P3).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use slipway_core::release::{Stack, StackKind};
use slipway_plan::{NodeAction, Replacement, ResourceAction, ResourceChange, StackAction, StackPlan};
use slipway_rollout::{ChangeSetStatus, ChangeSetView};
use slipway_sim::ports::{SimulatedStacks, lock};
use slipway_sim::world::Verdict;
use slipway_tests::workshop::{Rendered, Workshop, example};

/// A change: its name, and the texts of an example that it replaces.
type Change = (&'static str, &'static [(&'static str, &'static str)]);

/// Changes of the production example.
const OF_PRODUCTION: &[Change] = &[
    ("a pool's size", &[("maxSize: 10", "maxSize: 12")]),
    (
        "a controller's machine",
        &[(
            "controller:\n  count: 3\n  instanceType: m7i.large",
            "controller:\n  count: 3\n  instanceType: m7i.xlarge",
        )],
    ),
    ("the key pair", &[("keyName: operations", "keyName: night-shift")]),
    ("the Kubernetes release", &[("kubernetesVersion: \"1.37\"", "kubernetesVersion: \"1.37.1\"")]),
    ("etcd's volumes, larger", &[("dataVolume:\n    size: 50", "dataVolume:\n    size: 60")]),
    ("etcd's volumes, faster", &[("iops: 4000", "iops: 5000")]),
    ("five members", &[("etcd:\n  count: 3", "etcd:\n  count: 5")]),
    ("stack tags", &[("  environment: production", "  environment: production\n  team: harbour")]),
    (
        "who may call the API",
        &[("        - 0.0.0.0/0", "        - 203.0.113.0/24\n        - 198.51.100.0/24")],
    ),
    ("the hosted zone", &[("Z0123456789ABCDEFGHIJ", "Z9876543210ABCDEFGHIJ")]),
    (
        "a record by hand",
        &[("      hostedZone:\n        id: Z0123456789ABCDEFGHIJ\n", "      recordSetManaged: false\n")],
    ),
    ("another VPC", &[("10.0.", "10.4.")]),
    ("a subnet's range", &[("10.0.96.0/19", "10.0.128.0/19")]),
    (
        "a subnet's zone",
        &[(
            "name: private-c\n    availabilityZone: eu-west-1c",
            "name: private-c\n    availabilityZone: eu-west-1a",
        )],
    ),
    ("spot weights", &[("weightedCapacity: 1", "weightedCapacity: 4")]),
    ("another spot type", &[("m6i.xlarge", "m6a.xlarge")]),
    ("a label", &[("example.com/workload: batch", "example.com/workload: bulk")]),
    (
        "a pool in another subnet",
        &[("      subnets:\n        - name: private-b", "      subnets:\n        - name: private-c")],
    ),
    ("a new pool, and one that goes", &[("- name: general-b", "- name: general-d")]),
    (
        "no spot instances",
        &[("onDemandPercentageAboveBaseCapacity: 0", "onDemandPercentageAboveBaseCapacity: 100")],
    ),
];

/// Changes that the spec refuses to revert: a volume does not shrink.
const ONE_WAY: &[&str] = &["etcd's volumes, larger"];

/// Changes of the example with an existing VPC.
const OF_EXISTING_VPC: &[Change] = &[
    ("another VPC", &[("vpc-0123456789abcdef0", "vpc-0fedcba9876543210")]),
    ("another NAT gateway", &[("nat-0123456789abcdef0", "nat-0fedcba9876543210")]),
    ("another route table", &[("rtb-0123456789abcdef0", "rtb-0fedcba9876543210")]),
    ("another subnet", &[("subnet-0123456789abcdef0", "subnet-0fedcba9876543210")]),
    ("another internet gateway", &[("igw-0123456789abcdef0", "igw-0fedcba9876543210")]),
];

/// Changes of the example with two endpoints.
const OF_TWO_ENDPOINTS: &[Change] = &[
    // The other one is used by the nodes, so that it cannot change in one step.
    ("the name for people", &[("dnsName: api.example.com", "dnsName: kube.example.com")]),
    (
        "the inner door opened",
        &[
            ("      private: true\n      hostedZone", "      hostedZone"),
            (
                "Z9876543210ABCDEFGHIJ",
                "Z9876543210ABCDEFGHIJ\n      apiAccessAllowedSourceCIDRs: [0.0.0.0/0]",
            ),
        ],
    ),
    // With the same DNS name it is refused: CloudFormation would make its record twice.
    (
        "an endpoint by another name",
        &[("people", "everybody"), ("dnsName: api.example.com", "dnsName: kube.example.com")],
    ),
];

/// Changes of the example with existing load balancers.
const OF_EXISTING_BALANCER: &[Change] = &[
    (
        "another balancer",
        &[("loadbalancer/net/shared/0123456789abcdef", "loadbalancer/net/other/fedcba9876543210")],
    ),
    ("another group of the balancer's", &[("sg-0123456789abcdef0", "sg-0fedcba9876543210")]),
    (
        "ranges instead of groups",
        &[(
            "      securityGroupIds:\n        - sg-0123456789abcdef0",
            "      apiAccessAllowedSourceCIDRs: [192.168.0.0/16, 172.16.0.0/12]",
        )],
    ),
    ("another target group", &[("targetgroup/edge/0123456789abcdef", "targetgroup/edge/fedcba9876543210")]),
    ("who comes in at the edge", &[("192.168.0.0/16", "192.168.7.0/24")]),
    (
        "a balancer of ours",
        &[
            (
                "      id: arn:aws:elasticloadbalancing:eu-west-1:111122223333:loadbalancer/net/shared/0123456789abcdef",
                "      private: true",
            ),
            ("      dnsName: shared-0123456789abcdef.elb.eu-west-1.amazonaws.com\n", ""),
        ],
    ),
];

/// Changes of the example whose ids are exported by other stacks.
const OF_IMPORTED_IDS: &[Change] = &[
    (
        "an id instead of an export",
        &[("idFromStackOutput: landing-zone-NatGateway", "id: nat-0fedcba9876543210")],
    ),
    ("another export", &[("landing-zone-PublicRouteTable", "landing-zone-OtherRouteTable")]),
    ("no record", &[("      hostedZone:\n        idFromStackOutput: landing-zone-HostedZone\n", "")]),
    (
        "ssh",
        &[("vpcCIDR: 10.0.0.0/16", "vpcCIDR: 10.0.0.0/16\nsshAccessAllowedSourceCIDRs: [192.168.0.0/16]")],
    ),
];

/// The exports of that example's landing zone.
const LANDING_ZONE: &[(&str, &str)] = &[
    ("Vpc", "vpc-0123456789abcdef0"),
    ("InternetGateway", "igw-0123456789abcdef0"),
    ("PublicRouteTable", "rtb-0123456789abcdef0"),
    ("OtherRouteTable", "rtb-0123456789abcdef1"),
    ("PrivateSubnetA", "subnet-0123456789abcdef0"),
    ("NatGateway", "nat-0123456789abcdef0"),
    ("Address", "eipalloc-0123456789abcdef0"),
    ("HostedZone", "Z0123456789ABCDEFGHIJ"),
];

/// Changes of pools that only change a group: none of them replaces a node or anything else.
const AROUND_POOLS: &[(&str, &[Change])] = &[
    (
        "from-kube-aws-spot-fleet",
        &[
            ("a spot fleet's target capacity", &[("targetCapacity: 5", "targetCapacity: 9")]),
            ("a spot fleet's weight", &[("weightedCapacity: 1", "weightedCapacity: 2")]),
        ],
    ),
    (
        "spot-weights",
        &[
            ("sizes in units", &[("minSize: 8", "minSize: 4"), ("maxSize: 64", "maxSize: 32")]),
            ("the base", &[("onDemandBaseCapacity: 4", "onDemandBaseCapacity: 0")]),
            ("the share", &[("AboveBaseCapacity: 10", "AboveBaseCapacity: 20")]),
            ("how spot is chosen", &[("capacity-optimized-prioritized", "price-capacity-optimized")]),
            ("no rebalancing", &[("capacityRebalance: true", "capacityRebalance: false")]),
            ("one zone fewer", &[("        - name: b\n      auto", "      auto")]),
        ],
    ),
    (
        "target-groups",
        &[
            (
                "a target group fewer",
                &[(
                    "          - arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/ingress-https/7e1fd0942ffda01a\n",
                    "",
                )],
            ),
            ("another classic balancer", &[("manually-managed", "managed-by-hand")]),
        ],
    ),
    (
        "autoscaled-zones",
        &[(
            "not scaled any more",
            &[(
                "minSize: 0\n        maxSize: 10\n      autoscaling:\n        clusterAutoscaler:\n          enabled: true\n      nodeLabels:\n        example.com/workload: general\n    - name: scaled-b",
                "minSize: 0\n        maxSize: 12\n      nodeLabels:\n        example.com/workload: general\n    - name: scaled-b",
            )],
        )],
    ),
];

/// Changes of a pool's machines: the pool's nodes are replaced, and no others.
const OF_POOLS: &[(&str, &str, &[Change])] = &[
    (
        "extra-volumes",
        "general",
        &[
            ("a larger volume", &[("size: 200", "size: 300")]),
            ("a volume elsewhere", &[("path: /archive", "path: /var/archive")]),
            ("another device", &[("/dev/xvdi", "/dev/xvdj")]),
            ("another kind", &[("type: st1", "type: sc1")]),
            ("a folder for all", &[("          createTmp: true\n", "")]),
        ],
    ),
    (
        "instance-store",
        "databases",
        &[
            ("disks elsewhere", &[("path: /mnt/disks", "path: /mnt/local")]),
            ("disks together", &[("raid0: false", "raid0: true")]),
            ("disks of another kind", &[("filesystem: ext4", "filesystem: xfs")]),
        ],
    ),
    (
        "gpu",
        "inference",
        &[
            ("another machine", &[("g5g.2xlarge", "g5g.4xlarge")]),
            (
                "no GPUs",
                &[(
                    "        maxSize: 4\n      autoscaling:\n        clusterAutoscaler:\n          enabled: true\n      gpu:\n        nvidia:\n          enabled: true\n          taint: true",
                    "        maxSize: 4\n      gpu:\n        nvidia:\n          enabled: false",
                )],
            ),
        ],
    ),
    (
        "target-groups",
        "ingress",
        &[("who lets traffic in", &[("sg-0123456789abcdef0", "sg-0123456789abcdef1")])],
    ),
    (
        "zone-by-zone",
        "batch",
        &[(
            "another label",
            &[(
                "nodePoolRollingStrategy: Parallel",
                "nodePoolRollingStrategy: Parallel\n      nodeLabels: {example.com/tier: low}",
            )],
        )],
    ),
];

/// An account with an example whose stacks change at once.
struct Account {
    stacks: SimulatedStacks,
    workshop: Workshop,
}

impl Account {
    async fn launch(text: &str) -> Self {
        let workshop = Workshop::for_spec(text);
        lock(&workshop.world).let_machines_go();
        let stacks = SimulatedStacks::new(Arc::clone(&workshop.world), workshop.assets.clone());
        let account = Self { stacks, workshop };
        account.stacks.bring(&landing_zone()).await;
        let first = account.workshop.render(text).await;
        account.execute(&first).await;
        account
    }

    /// Executes a plan.
    async fn execute(&self, rendered: &Rendered) {
        for stack in &rendered.rendering.stacks {
            self.stacks.bring(stack).await;
        }
        for stack in rendered.plan.stacks.iter().filter(|stack| stack.action == StackAction::Delete) {
            let mut world = lock(&self.workshop.world);
            world.delete(&stack.name).unwrap();
            world.settle();
            assert_eq!(world.stack_status(&stack.name), None, "{} is still there", stack.name);
        }
        self.workshop.deployed(&rendered.plan).await;
    }
}

/// A stack of another owner, with exports to import.
fn landing_zone() -> Stack {
    let outputs: serde_json::Map<String, Value> = LANDING_ZONE
        .iter()
        .map(|(name, id)| {
            let export = json!({"Value": id, "Export": {"Name": format!("landing-zone-{name}")}});
            ((*name).to_owned(), export)
        })
        .collect();
    let resource = json!({"Group": {"Type": "AWS::EC2::SecurityGroup", "Properties": {
        "GroupDescription": "any resource", "VpcId": LANDING_ZONE[0].1,
    }}});
    let body = json!({"Resources": resource, "Outputs": outputs}).to_string();
    let sha256 = slipway_core::digest::sha256_hex(body.as_bytes());
    let name = "landing-zone".to_owned();
    Stack { name, kind: StackKind::Network, sha256, body, tags: BTreeMap::new() }
}

/// The plan's changes: for each resource, the action, and whether the existing resource may be removed.
fn ours(plan: &StackPlan) -> BTreeMap<String, (&'static str, bool)> {
    let may = plan.may_replace();
    let words = |change: &ResourceChange| match change.action {
        ResourceAction::Add => "Add",
        ResourceAction::Modify => "Modify",
        ResourceAction::Remove => "Remove",
    };
    let all = plan.resources.iter();
    all.map(|change| (change.logical_id.clone(), (words(change), may.contains(&change.logical_id)))).collect()
}

/// CloudFormation's changes, as far as the plan mentions them.
///
/// If only the id of a replaced resource changes, CloudFormation says `Conditional`, because it does not know the new id yet; our view
/// counts that as a removal.
fn theirs(verdicts: &[Verdict], view: &ChangeSetView) -> BTreeMap<String, (&'static str, bool)> {
    // A new tag of the stack changes every resource that can have tags; the plan mentions it only once, for the stack.
    let told = verdicts.iter().filter(|verdict| {
        verdict.action != "Modify" || !verdict.properties.is_empty() || !verdict.scope.contains("Tags")
    });
    told.map(|verdict| {
        (verdict.logical_id.clone(), (verdict.action, view.replaces.contains(&verdict.logical_id)))
    })
    .collect()
}

fn changed(text: &str, pieces: &[(&str, &str)]) -> String {
    pieces.iter().fold(text.to_owned(), |text, (old, new)| {
        assert!(text.contains(old), "the example no longer has {old:?}");
        text.replace(old, new)
    })
}

/// Compares a plan with CloudFormation's change sets. Returns the logical ids of the resources that are removed.
async fn hold_against(account: &Account, what: &str, rendered: &Rendered) -> BTreeSet<String> {
    let mut replaced = BTreeSet::new();
    for stack in &rendered.rendering.stacks {
        let of_stack = rendered.plan.stacks.iter().find(|one| one.name == stack.name).unwrap();
        if of_stack.action == StackAction::Create {
            assert!(!account.stacks.exists(&stack.name), "{what}");
            continue;
        }
        let (name, view) = account.stacks.change_set_of(stack).await;
        let verdicts = lock(&account.workshop.world).verdicts(&stack.name, &name).unwrap();
        if of_stack.action == StackAction::Unchanged {
            assert_eq!(view.status, ChangeSetStatus::NoChanges, "{what}, {}", stack.name);
            continue;
        }
        assert_eq!(view.status, ChangeSetStatus::Ready, "{what}, {}: {:?}", stack.name, view.reason);
        assert_eq!(ours(of_stack), theirs(&verdicts, &view), "{what}, {}", stack.name);
        // The plan must not call a certain removal uncertain.
        for verdict in verdicts.iter().filter(|verdict| verdict.replacement == Some("True")) {
            let id = &verdict.logical_id;
            let change = of_stack.resources.iter().find(|change| change.logical_id == *id).unwrap();
            assert_eq!(change.replacement, Replacement::Always, "{what}, {id}");
        }
        replaced.extend(view.replaces);
    }
    replaced
}

/// Plans each change of an example. Returns the logical ids of all resources that a change replaces or removes.
async fn compare(example_name: &str, changes: &[Change]) -> BTreeSet<String> {
    let before = example(example_name);
    let account = Account::launch(&before).await;
    let mut replaced = BTreeSet::new();
    for (what, pieces) in changes {
        let rendered = account.workshop.render(&changed(&before, pieces)).await;
        assert!(!rendered.plan.is_empty(), "{what} changes nothing");
        replaced.extend(hold_against(&account, what, &rendered).await);
    }
    replaced
}

#[tokio::test]
async fn p3_cloudformation_would_do_what_the_plan_says() {
    let replaced = compare("production", OF_PRODUCTION).await;
    // The comparison proves something only if resources are replaced.
    for kind in ["Vpc", "Subnet", "Record"] {
        assert!(replaced.iter().any(|id| id.contains(kind)), "no change replaces a {kind}: {replaced:?}");
    }
}

#[tokio::test]
async fn p3_so_it_would_in_a_vpc_that_exists() {
    compare("existing-vpc", OF_EXISTING_VPC).await;
}

#[tokio::test]
async fn p3_so_it_would_with_two_endpoints() {
    compare("two-endpoints", OF_TWO_ENDPOINTS).await;
}

#[tokio::test]
async fn p3_so_it_would_with_balancers_that_exist() {
    compare("existing-balancer", OF_EXISTING_BALANCER).await;
    execute_all("existing-balancer", OF_EXISTING_BALANCER).await;
}

#[tokio::test]
async fn p3_so_it_would_with_ids_that_another_stack_exports() {
    compare("imported-ids", OF_IMPORTED_IDS).await;
    execute_all("imported-ids", OF_IMPORTED_IDS).await;
}

#[tokio::test]
async fn each_zone_has_its_gateway_and_nothing_is_open_to_the_world() {
    for name in ["nat-per-zone", "internal-only"] {
        Account::launch(&example(name)).await;
    }
}

/// Makes each change and reverts it.
async fn execute_all(example_name: &str, changes: &[Change]) {
    let before = example(example_name);
    let account = Account::launch(&before).await;
    for (what, pieces) in changes {
        let there = account.workshop.render(&changed(&before, pieces)).await;
        assert_eq!(there.plan.not_executable(), None, "{what}");
        account.execute(&there).await;
        let back = account.workshop.render(&before).await;
        account.execute(&back).await;
    }
}

#[tokio::test]
async fn p3_and_there_and_back_again_it_does() {
    let before = example("production");
    let mut account = Account::launch(&before).await;
    let (mut done, mut refused) = (0, 0);
    for (what, pieces) in OF_PRODUCTION {
        let there = account.workshop.render(&changed(&before, pieces)).await;
        // Other stacks import exports of the network stack, and CloudFormation replaces no export that is in use; the plan knows that.
        if !there.plan.in_use.is_empty() {
            refused += 1;
            continue;
        }
        account.execute(&there).await;
        if ONE_WAY.contains(what) {
            account = Account::launch(&before).await;
            done += 1;
            continue;
        }
        let back = account.workshop.render(&before).await;
        hold_against(&account, what, &back).await;
        account.execute(&back).await;
        done += 1;
    }
    assert!(done > 12, "only {done} of the changes can be made");
    assert_eq!(refused, 3, "another VPC, another range, another zone");
}

/// Seed 001 warns that another target capacity of a Spot fleet means downtime. Here it is the group's size.
#[tokio::test]
async fn p2_what_stands_around_a_pool_replaces_nothing() {
    for (name, changes) in AROUND_POOLS {
        let before = example(name);
        let account = Account::launch(&before).await;
        for (what, pieces) in *changes {
            let rendered = account.workshop.render(&changed(&before, pieces)).await;
            let updated: Vec<&StackPlan> =
                rendered.plan.stacks.iter().filter(|stack| stack.action != StackAction::Unchanged).collect();
            assert!(!updated.is_empty(), "{what} changes nothing");
            for stack in updated {
                let touched: Vec<_> = stack.resources.iter().map(|of| (&*of.logical_id, of.action)).collect();
                assert_eq!(touched, [("Group", ResourceAction::Modify)], "{what}, {}", stack.name);
                assert_eq!(stack.may_replace(), [""; 0], "{what}, {}", stack.name);
            }
            for node in &rendered.plan.nodes {
                assert_eq!(node.action, NodeAction::Untouched, "{what}, {}: {:?}", node.role, node.reasons);
            }
            let replaced = hold_against(&account, what, &rendered).await;
            assert_eq!(replaced, BTreeSet::new(), "{what}");
            account.execute(&rendered).await;
            let back = account.workshop.render(&before).await;
            account.execute(&back).await;
        }
    }
}

#[tokio::test]
async fn p2_what_a_pools_machines_are_replaces_its_nodes_alone() {
    for (name, pool, changes) in OF_POOLS {
        let before = example(name);
        let account = Account::launch(&before).await;
        for (what, pieces) in *changes {
            let rendered = account.workshop.render(&changed(&before, pieces)).await;
            let touched = rendered.plan.nodes.iter().filter(|node| node.action != NodeAction::Untouched);
            let touched: Vec<_> = touched.map(|node| (node.role.to_string(), node.action)).collect();
            assert_eq!(touched, [(format!("pool-{pool}"), NodeAction::Replace)], "{what}");
            let replaced = hold_against(&account, what, &rendered).await;
            assert_eq!(
                replaced,
                BTreeSet::new(),
                "{what}: CloudFormation replaces nothing, and Slipway replaces the nodes"
            );
        }
    }
}
