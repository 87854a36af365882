//! A compromised controller, or a pod that got the permissions of an add-on.

use std::collections::BTreeMap;

use serde_json::Value;
use slipway_core::keys;
use slipway_core::release::Rendering;
use slipway_tests::client::{ACCOUNT, machine_arn};
use slipway_tests::iam::{self, Request, Statement};
use slipway_tests::workshop::{Workshop, allowed, example, examples};
use slipway_tests::world::Embedded;

use crate::{installation, is_allowed, request, workshop};

/// The region and account of the embedded AWS.
const REGION: &str = "eu-west-1";
/// The VPC of `examples/existing-vpc.yaml`.
const EXISTING_VPC: &str = "vpc-0123456789abcdef0";

/// A template's value with its intrinsic functions replaced by what they could come to.
fn concrete(value: &Value) -> Value {
    if let Some(text) = value.get("Fn::Sub").and_then(Value::as_str) {
        return Value::from(text.replace("${AWS::AccountId}", ACCOUNT));
    }
    if let Some(text) = value.pointer("/Fn::Sub/0").and_then(Value::as_str) {
        return Value::from(
            text.replace("${AWS::AccountId}", ACCOUNT)
                .replace("${Zone}", "ZMADEHERE")
                .replace("${Vpc}", "vpc-0"),
        );
    }
    match value.get("Ref").and_then(Value::as_str) {
        Some("AWS::AccountId") => return Value::from(ACCOUNT),
        Some(other) => panic!("a reference to {other} in a policy"),
        None => {}
    }
    match value {
        Value::Object(map) => {
            assert!(!map.keys().any(|key| key.starts_with("Fn::")), "{value}");
            map.iter().map(|(key, value)| (key.clone(), concrete(value))).collect()
        }
        Value::Array(items) => items.iter().map(concrete).collect(),
        plain => plain.clone(),
    }
}

fn strings(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter().map(|item| item.as_str().unwrap().to_owned()).collect(),
        one => vec![one.as_str().unwrap().to_owned()],
    }
}

/// A resource that the pattern covers.
fn covered(action: &str, pattern: &str) -> String {
    let service = action.split(':').next().unwrap();
    let pattern = &pattern.replace(keys::OWN_MACHINE_ARN, &machine_arn("i-1"));
    match (service, pattern.as_str()) {
        ("autoscaling", "*") => {
            format!("arn:aws:autoscaling:{REGION}:{ACCOUNT}:autoScalingGroup:1:autoScalingGroupName/x")
        }
        ("elasticloadbalancing", "*") => {
            format!("arn:aws:elasticloadbalancing:{REGION}:{ACCOUNT}:loadbalancer/net/x/1")
        }
        ("ec2", "*") if !action.contains(":Describe") && !action.contains(":Get") => {
            format!("arn:aws:ec2:{REGION}:{ACCOUNT}:security-group/sg-1")
        }
        (_, "*") => "*".to_owned(),
        // Snapshots have no account in their ARN.
        (_, snapshot) if snapshot.ends_with(":snapshot/*") => {
            format!("arn:aws:ec2:{REGION}::snapshot/snap-1")
        }
        (_, pattern) => pattern.replace("ec2:*:*:", &format!("ec2:{REGION}:{ACCOUNT}:")).replace('*', "x"),
    }
}

/// The calls that a statement of a role is there for: each action on each resource, as its conditions want it.
fn calls(statement: &Value) -> Vec<Request> {
    let statement = concrete(statement);
    let mut context = vec![("ec2:SourceInstanceARN".to_owned(), machine_arn("i-1"))];
    for (operator, keys) in statement["Condition"].as_object().into_iter().flatten() {
        for (key, values) in keys.as_object().unwrap() {
            // Its own machine, which every call is from.
            if key == "ec2:SourceInstanceARN" {
                context.push(("ec2:InstanceID".to_owned(), "i-1".to_owned()));
                continue;
            }
            for value in strings(values) {
                let value = if operator == "Null" { "x".to_owned() } else { value.replace('*', "x") };
                context.push((key.clone(), value));
            }
        }
    }
    let context: Vec<(&str, &str)> =
        context.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let mut calls = Vec::new();
    for action in strings(&statement["Action"]) {
        for pattern in strings(&statement["Resource"]) {
            calls.push(request(&action, &covered(&action, &pattern), &context));
        }
    }
    calls
}

/// The roles of a rendering, with the statements of each.
pub(crate) fn roles(rendering: &Rendering, rename: &[(&str, &str)]) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for stack in &rendering.stacks {
        let body = rename.iter().fold(stack.body.clone(), |body, (old, new)| body.replace(old, new));
        let template: Value = serde_json::from_str(&body).unwrap();
        for (id, resource) in template["Resources"].as_object().unwrap() {
            if resource["Type"] == "AWS::IAM::Role" {
                found.push((format!("{}/{id}", stack.name), resource["Properties"].clone()));
            }
        }
    }
    found
}

/// The statements of the boundaries, by the ARNs that the workshop's installation gives them.
fn boundaries(world: &Embedded) -> BTreeMap<String, &Vec<Statement>> {
    let here = allowed().boundaries;
    let of = |id: &str| &world.deployed().policies[world.reference(id).unwrap()];
    BTreeMap::from([
        (here.own, of("ClusterBoundary")),
        (here.with_managed_policies.unwrap(), of("ManagedPoliciesBoundary")),
    ])
}

/// A boundary that is too narrow would break clusters: it is held to the roles of every example.
#[tokio::test(flavor = "multi_thread")]
async fn no_role_of_any_example_loses_a_permission_under_its_boundary() {
    let world = installation().await;
    let boundaries = boundaries(&world);
    let arns = &world.deployed().arns;
    let mut held = 0;
    for example in examples() {
        let mut workshop = Workshop::for_example(&example);
        workshop.allowed = Some(allowed());
        let own_bucket = format!("arn:aws:s3:::{}", workshop.assets.name());
        let rendering = workshop.render(&example.text).await.rendering;
        let region = slipway_spec::parse(example.text.as_bytes(), None).unwrap().cluster.region;
        let elsewhere = format!(":{region}:");
        let service = format!("ec2.{region}.");
        let rename = [
            (own_bucket.as_str(), arns["AssetBucket"].as_str()),
            (slipway_sim::memory::OWN_KEY, arns["Key"].as_str()),
            (elsewhere.as_str(), ":eu-west-1:"),
            (service.as_str(), "ec2.eu-west-1."),
        ];
        for (role, properties) in roles(&rendering, &rename) {
            let name =
                properties["PermissionsBoundary"].as_str().unwrap_or_else(|| panic!("{role}: no boundary"));
            let has_policies = properties["ManagedPolicyArns"].is_array();
            let wide = allowed().boundaries.with_managed_policies.unwrap();
            assert_eq!(name == wide, has_policies, "{role}: the wide boundary is for managed policies alone");
            for policy in properties["Policies"].as_array().into_iter().flatten() {
                for statement in policy["PolicyDocument"]["Statement"].as_array().unwrap() {
                    for call in calls(statement) {
                        let decision = iam::decide(boundaries[name], &call);
                        assert!(is_allowed(&decision), "{}: {role}: {decision:?} {call:?}", example.name);
                        held += 1;
                    }
                }
            }
        }
    }
    assert!(held > 5_000, "{held} calls");
}

/// The statements of a role of the rendering whose name ends so.
pub(crate) fn statements_of(rendering: &Rendering, id: &str) -> Vec<Statement> {
    statements_with(rendering, id, &[])
}

/// The same, with other texts in its template.
pub(crate) fn statements_with(rendering: &Rendering, id: &str, rename: &[(&str, &str)]) -> Vec<Statement> {
    let (_, properties) = roles(rendering, rename).into_iter().find(|(name, _)| name.ends_with(id)).unwrap();
    let document = concrete(&properties["Policies"][0]["PolicyDocument"]);
    iam::parse(&document).unwrap()
}

#[tokio::test]
async fn p13_no_volume_is_made_of_another_clusters_snapshot() {
    let text = example("minimal");
    let rendering = workshop(&text).render(&text).await.rendering;
    let controller = statements_of(&rendering, "ControllerRole");
    let snapshot = format!("arn:aws:ec2:{REGION}::snapshot/snap-1");
    let may = |tags: &[(&str, &str)]| {
        is_allowed(&iam::decide(&controller, &request("ec2:CreateVolume", &snapshot, tags)))
    };
    assert!(may(&[("aws:ResourceTag/kubernetes.io/cluster/minimal", "owned")]));
    assert!(!may(&[("aws:ResourceTag/kubernetes.io/cluster/prod", "owned")]));
    assert!(!may(&[]));
}

/// With etcd's own tag on a volume of theirs, another cluster's members would find two volumes and begin with neither.
#[tokio::test]
async fn p13_no_volume_passes_for_one_of_another_clusters_etcd() {
    let text = example("minimal");
    let rendering = workshop(&text).render(&text).await.rendering;
    let controller = statements_of(&rendering, "ControllerRole");
    let volume = format!("arn:aws:ec2:{REGION}:{ACCOUNT}:volume/vol-1");
    let honest = [
        ("aws:RequestTag/kubernetes.io/cluster/minimal", "owned"),
        ("aws:RequestTag/ebs.csi.aws.com/cluster", "true"),
        ("ec2:CreateAction", "CreateVolume"),
    ];
    for action in ["ec2:CreateVolume", "ec2:CreateTags"] {
        let may =
            |tags: &[(&str, &str)]| is_allowed(&iam::decide(&controller, &request(action, &volume, tags)));
        assert!(may(&honest), "{action}");
        let forged = [honest.as_slice(), &[("aws:RequestTag/slipway:volume", "etcd-data")]].concat();
        assert!(!may(&forged), "{action}");
    }
}

/// A bucket that was deleted can be made again in another account, under the same name.
#[tokio::test]
async fn nodes_read_and_write_the_bucket_of_their_own_account_alone() {
    let text = example("minimal");
    let workshop = workshop(&text);
    let bucket = format!("arn:aws:s3:::{}", workshop.assets.name());
    let rendering = workshop.render(&text).await.rendering;
    let arn = machine_arn("i-1");
    let reports = |role: &str| format!("nodes/{role}/{arn}/status.json");
    for (role, reads, writes) in [
        ("ControllerRole", "bundles/controller/config-0", reports("controller")),
        ("ControllerRole", "addons.json", reports("controller")),
        ("EtcdRole0", "bundles/etcd-0/config-0", "etcd-snapshots/1.db".to_owned()),
        ("WorkerRole", "bundles/pool-general/config-0", reports("pool-general")),
    ] {
        let statements = statements_of(&rendering, role);
        for (action, key) in [("s3:GetObject", reads), ("s3:PutObject", writes.as_str())] {
            let object = format!("{bucket}/clusters/minimal/{key}");
            let may = |account: &str| {
                is_allowed(&iam::decide(
                    &statements,
                    &request(
                        action,
                        &object,
                        &[("aws:ResourceAccount", account), ("ec2:SourceInstanceARN", &arn)],
                    ),
                ))
            };
            assert!(may(ACCOUNT), "{role} {action} {key}");
            assert!(!may("999999999999"), "{role} {action} {key}");
        }
    }
}

/// Where the account's default key for EBS is one of its own, every launch failed without these.
#[tokio::test]
async fn volumes_under_the_accounts_default_key_can_be_attached_and_made() {
    let text = example("minimal");
    let rendering = workshop(&text).render(&text).await.rendering;
    let key = format!("arn:aws:kms:{REGION}:{ACCOUNT}:key/of-the-account");
    for role in ["EtcdRole0", "ControllerRole"] {
        let statements = statements_of(&rendering, role);
        let may = |context: &[(&str, &str)]| {
            is_allowed(&iam::decide(&statements, &request("kms:CreateGrant", &key, context)))
        };
        let by_ec2 = ("kms:ViaService", "ec2.eu-west-1.amazonaws.com");
        assert!(may(&[by_ec2, ("kms:GrantIsForAWSResource", "true")]), "{role}");
        assert!(!may(&[by_ec2, ("kms:GrantIsForAWSResource", "false")]), "{role}: a grant to somebody");
        assert!(!may(&[("kms:GrantIsForAWSResource", "true")]), "{role}: not through EC2");
    }
    let controller = statements_of(&rendering, "ControllerRole");
    let tag = |action: &str| {
        let context = [
            ("aws:RequestTag/kubernetes.io/cluster/minimal", "owned"),
            ("elasticloadbalancing:CreateAction", action),
        ];
        let new = format!("arn:aws:elasticloadbalancing:{REGION}:{ACCOUNT}:loadbalancer/net/x/1");
        is_allowed(&iam::decide(&controller, &request("elasticloadbalancing:AddTags", &new, &context)))
    };
    assert!(tag("CreateLoadBalancer") && tag("CreateTargetGroup"));
    assert!(!tag("AddTags"), "an existing one without our tag is not taken over");
}

/// A listener decides where the requests of a balancer go.
#[tokio::test]
async fn no_listener_is_added_to_a_balancer_of_somebody_else() {
    let text = example("minimal");
    let rendering = workshop(&text).render(&text).await.rendering;
    let controller = statements_of(&rendering, "ControllerRole");
    let balancer = format!("arn:aws:elasticloadbalancing:{REGION}:{ACCOUNT}:loadbalancer/net/payroll/1");
    let new = ("aws:RequestTag/kubernetes.io/cluster/minimal", "owned");
    let may = |tags: &[(&str, &str)]| {
        let tags = [&[new], tags].concat();
        is_allowed(&iam::decide(
            &controller,
            &request("elasticloadbalancing:CreateListener", &balancer, &tags),
        ))
    };
    assert!(may(&[("aws:ResourceTag/kubernetes.io/cluster/minimal", "owned")]));
    assert!(!may(&[("aws:ResourceTag/kubernetes.io/cluster/prod", "owned")]));
    assert!(!may(&[]));
    // New balancers and target groups have no tags yet when IAM decides.
    for action in ["elasticloadbalancing:CreateLoadBalancer", "elasticloadbalancing:CreateTargetGroup"] {
        assert!(is_allowed(&iam::decide(&controller, &request(action, "*", &[new]))), "{action}");
    }
}

/// A security group in the VPC of somebody else counts against its limits, and is offered to all who choose groups there.
#[tokio::test]
async fn no_security_group_is_made_in_a_vpc_of_somebody_else() {
    let vpc = |id: &str| format!("arn:aws:ec2:{REGION}:{ACCOUNT}:vpc/{id}");
    let own = |cluster: &str| format!("aws:ResourceTag/kubernetes.io/cluster/{cluster}");
    for (name, made_here) in [("minimal", true), ("existing-vpc", false)] {
        let text = example(name);
        let workshop = workshop(&text);
        let rendering = workshop.render(&text).await.rendering;
        let controller = statements_of(&rendering, "ControllerRole");
        let may = |vpc: &str, tags: &[(&str, &str)]| {
            is_allowed(&iam::decide(&controller, &request("ec2:CreateSecurityGroup", vpc, tags)))
        };
        assert!(!may(&vpc("vpc-0payroll"), &[]), "{name}");
        assert!(!may(&vpc("vpc-0payroll"), &[(&own("prod"), "owned")]), "{name}");
        let tagged = [(&*own(&workshop.name), "owned")];
        match made_here {
            true => assert!(may(&vpc("vpc-0made"), &tagged), "{name}"),
            // A tag on it proves nothing: whoever may tag the VPC may be somebody else.
            false => assert!(!may(&vpc("vpc-0payroll"), &tagged) && may(&vpc(EXISTING_VPC), &[]), "{name}"),
        }
    }
}
