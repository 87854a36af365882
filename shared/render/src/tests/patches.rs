//! Patches on what is rendered: who they reach, what they may not do, and what they say when they do not fit.

mod guard;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use slipway_core::diagnostic::Diagnostic;
use slipway_core::digest::sha256_hex;
use slipway_core::release::Rendering;
use slipway_spec::patch::{self, Patch};

use crate::fixture::{cluster, credentials, lock, rendered, site};
use crate::{Inputs, render_with_warnings};

fn patches(files: &[(&str, &str)]) -> Vec<Patch> {
    let files = files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect();
    patch::parse(&files).unwrap()
}

/// The rendering with patches, and warnings; or what is wrong with them.
fn with(files: &[(&str, &str)]) -> Result<(Rendering, Vec<Diagnostic>), Vec<Diagnostic>> {
    let (cluster, patches) = (cluster(), patches(files));
    let (lock, credentials, site) = (lock(), credentials(&cluster), site());
    let inputs = Inputs { patches: &patches, ..Inputs::new(&cluster, &lock, &credentials, &site) };
    render_with_warnings(&inputs)
        .map_err(|errors| errors.iter().map(super::RenderError::diagnostic).collect())
}

fn good(text: &str) -> Rendering {
    let (rendering, warnings) = with(&[("a.yaml", text)]).unwrap();
    assert_eq!(warnings, []);
    rendering
}

/// The findings as lines.
fn findings_text(files: &[(&str, &str)]) -> String {
    let line = |found: &Diagnostic| {
        format!("{} {found}\n    {}\n", found.code, found.help.as_deref().unwrap_or_default())
    };
    match with(files) {
        Ok((_, warnings)) => format!("accepted\n{}", warnings.iter().map(line).collect::<String>()),
        Err(errors) => errors.iter().map(line).collect(),
    }
}

fn template(rendering: &Rendering, stack: &str) -> Value {
    serde_json::from_str(&rendering.stack(stack).unwrap().body).unwrap()
}

/// The names of the stacks, and of the roles, in which two renderings differ.
fn differing(one: &Rendering, other: &Rendering) -> (Vec<String>, Vec<String>) {
    let stacks = one.stacks.iter().zip(&other.stacks).filter(|(a, b)| a != b).map(|(a, _)| a.name.clone());
    let roles = one
        .roles
        .iter()
        .filter(|(role, node)| other.roles[*role] != **node)
        .map(|(role, _)| role.to_string());
    (stacks.collect(), roles.collect())
}

#[test]
fn p2_a_patch_on_a_stack_changes_that_stack_and_no_node() {
    let after = good(
        "target: {stack: network}\nmerge:\n  Resources:\n    WorkerSecurityGroup:\n      Properties:\n        \
         GroupDescription: another\n",
    );
    let group = &template(&after, "prod-network")["Resources"]["WorkerSecurityGroup"];
    assert_eq!(group["Properties"]["GroupDescription"], "another");
    assert_eq!(differing(&rendered(&cluster()), &after), (vec!["prod-network".to_owned()], vec![]));
    let stack = after.stack("prod-network").unwrap();
    assert_eq!(stack.sha256, sha256_hex(stack.body.as_bytes()));
}

#[test]
fn p2_a_patch_on_node_configurations_makes_those_nodes_outdated_and_no_other() {
    let before = rendered(&cluster());
    let after = good(
        "target: {node: 'pool-*'}\nops:\n  - {op: add, path: /kubelet/nodeLabels/office, value: dublin}\n",
    );
    let (stacks, roles) = differing(&before, &after);
    assert_eq!(roles, ["pool-general", "pool-ingress", "pool-spot"]);
    // Their launch templates carry the digest.
    assert_eq!(stacks, ["prod-pool-general", "prod-pool-spot", "prod-pool-ingress"]);
    for (role, node) in after.roles.iter().filter(|(role, _)| roles.contains(&role.to_string())) {
        assert_eq!(node.config_digest, sha256_hex(node.config.as_bytes()));
        assert!(node.config.contains(r#""office":"dublin""#));
        assert!(after.stack(&node.stack).unwrap().body.contains(&node.config_digest), "{role}");
        assert_eq!(node.machine, before.roles[role].machine);
    }
}

#[test]
fn p2_a_patch_on_a_launch_template_makes_its_nodes_outdated() {
    let before = rendered(&cluster());
    let after = good(
        "target: {stack: pool-general}\nmerge:\n  Resources:\n    LaunchTemplate:\n      Properties:\n        \
         LaunchTemplateData:\n          Monitoring: {Enabled: true}\n",
    );
    let (stacks, roles) = differing(&before, &after);
    assert_eq!((stacks, roles), (vec!["prod-pool-general".to_owned()], vec!["pool-general".to_owned()]));
    let node = &after.roles[&"pool-general".parse().unwrap()];
    assert_eq!(node.machine["patched"], json!({ "Monitoring": { "Enabled": true } }));
}

#[test]
fn p2_tags_of_ones_own_on_every_node_replace_none() {
    let after = good(
        "target: {stack: ['pool-*', control-plane]}\nops:\n  - op: add\n    \
         path: /Resources/LaunchTemplate/Properties/LaunchTemplateData/TagSpecifications/0/Tags/-\n    \
         value: {Key: cost-centre, Value: \"42\"}\n",
    );
    let (stacks, roles) = differing(&rendered(&cluster()), &after);
    assert_eq!((stacks.len(), roles), (4, vec![]));
}

#[test]
fn p1_the_same_patches_render_the_same_bytes_in_the_order_of_their_names() {
    let set = |value: &str| format!("target: {{node: etcd}}\nmerge: {{etcd: {{snapshotCount: {value}}}}}\n");
    let (one, two) = (set("1"), set("2"));
    let (first, _) = with(&[("10.yaml", &one), ("20.yaml", &two)]).unwrap();
    let (again, _) = with(&[("20.yaml", &two), ("10.yaml", &one)]).unwrap();
    assert_eq!(first.to_json(), again.to_json());
    let nodes: Vec<_> = first.roles.values().filter(|node| node.stack == "prod-etcd").collect();
    assert_eq!(nodes.len(), 3, "`etcd` is every member");
    assert!(nodes.iter().all(|node| node.config.contains(r#""snapshotCount":2"#)));
    let (other, _) = with(&[("10.yaml", &two), ("20.yaml", &one)]).unwrap();
    assert_ne!(first.id(), other.id());
}

#[test]
fn a_patch_that_does_not_apply_names_file_operation_path_and_what_is_there() {
    let op = |op: &str| format!("target: {{stack: control-plane}}\nops:\n  - {op}\n");
    let cases = [
        "{op: replace, path: /Resources/Gruop/Properties/Cooldown, value: '5'}",
        "{op: remove, path: /Resources/Group/Properties/Cooldown}",
        "{op: add, path: /Resources/Group/Properties/A/B, value: 1}",
        "{op: add, path: /Resources/Group/Properties/Tags/99, value: 1}",
        "{op: replace, path: /Resources/Group/Properties/Tags/99/Key, value: a}",
        "{op: replace, path: /Resources/Group/Type/x, value: a}",
        "{op: test, path: /Resources/Group/Type, value: a}",
        "{op: move, path: /Outputs/A, from: /Outputs/Nothing}",
        "{op: move, path: /Resources/Group/Properties/x, from: /Resources/Group}",
        "{op: remove, path: ''}",
    ];
    let lines: Vec<String> = cases.iter().map(|case| findings_text(&[("10-x.yaml", &op(case))])).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn a_target_that_is_not_there_is_an_error_and_a_patch_that_does_nothing_a_warning() {
    let merge = "merge: {Description: x}\n";
    let cases = [
        format!("target: {{stack: pool-genral}}\n{merge}"),
        format!("target: {{stack: prod-network}}\n{merge}"),
        format!("target: {{stack: [network, monitoring]}}\n{merge}"),
        format!("target: {{stack: 'gpu-*'}}\n{merge}"),
        "target: {node: etcd-7}\nmerge: {a: 1}\n".to_owned(),
        "target: {node: control-plane}\nmerge: {a: 1}\n".to_owned(),
        "target: {node: controller}\nmerge: {region: eu-west-1}\n".to_owned(),
        "target: {stack: network}\nops: [{op: test, path: /AWSTemplateFormatVersion, value: '2010-09-09'}]\n"
            .to_owned(),
    ];
    let lines: Vec<String> = cases.iter().map(|case| findings_text(&[("10-x.yaml", case)])).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

/// A change that must be refused, by the target and the merge patch as JSON.
fn refused(target: &str, merge: &Value) -> String {
    let text = format!("target: {{{target}}}\nmerge: {merge}\n");
    let found = with(&[("x.yaml", &text)]).err().unwrap_or_else(|| panic!("{text} was taken"));
    assert!(found.iter().all(|found| found.code == "patch-refused" && found.line == 2), "{found:?}");
    assert!(
        found.iter().all(|found| found.file.as_deref() == Some("patches/x.yaml") && found.help.is_some())
    );
    found.iter().map(|found| format!("{}\n", found.message)).collect()
}

fn resource(id: &str, content: Value) -> Value {
    json!({ "Resources": { id: content } })
}

#[test]
fn what_nodes_live_by_cannot_be_patched_away() {
    let group = |properties: Value| resource("Group", json!({ "Properties": properties }));
    let machine =
        |data: Value| resource("LaunchTemplate", json!({ "Properties": { "LaunchTemplateData": data } }));
    let cases = [
        resource("Group", Value::Null),
        resource("LaunchTemplate", Value::Null),
        resource("ControllerRole", Value::Null),
        resource("Group", json!({ "Type": "AWS::EC2::VPC" })),
        resource("Group", json!({ "UpdatePolicy": { "AutoScalingRollingUpdate": {} } })),
        group(json!({ "AutoScalingGroupName": "mine", "MinSize": "9", "DesiredCapacity": "9" })),
        group(json!({ "LifecycleHookSpecificationList": [] })),
        group(json!({ "Tags": [] })),
        group(json!({ "HealthCheckType": "ELB", "LaunchTemplate": null })),
        machine(json!({ "UserData": "", "ImageId": "ami-1", "InstanceType": "c7i.large" })),
        machine(json!({ "MetadataOptions": { "HttpTokens": "optional" }, "IamInstanceProfile": null })),
        machine(json!({ "TagSpecifications": [] })),
        machine(
            json!({ "BlockDeviceMappings": [{ "DeviceName": "/dev/xvda", "Ebs": { "Encrypted": false } }] }),
        ),
        json!({ "Resources": null }),
        json!({ "Transform": "AWS::Serverless-2016-10-31" }),
        json!({ "Parameters": { "Who": { "Type": "String" } } }),
    ];
    let lines: Vec<String> = cases.iter().map(|case| refused("stack: control-plane", case)).collect();
    let etcd = [
        resource("DataVolume0", Value::Null),
        resource(
            "DataVolume0",
            json!({ "DeletionPolicy": "Delete", "Properties": { "Encrypted": false, "Tags": null } }),
        ),
    ];
    let etcd: Vec<String> = etcd.iter().map(|case| refused("stack: etcd", case)).collect();
    let worker = refused("stack: pool-general", &group(json!({ "InstanceLifecyclePolicy": null })));
    let network = json!({ "Outputs": { "WorkerSecurityGroup": null } });
    let network = refused("stack: network", &network);
    insta::assert_snapshot!(format!("{}\n{}\n{worker}\n{network}", lines.join("\n"), etcd.join("\n")));
}

#[test]
fn who_writes_a_patch_is_no_administrator() {
    let everything = json!([{ "PolicyName": "all", "PolicyDocument": { "Statement": [
        { "Effect": "Allow", "Action": "*", "Resource": "*" },
    ] } }]);
    let cases = [
        resource("WorkerRole", json!({ "Properties": { "Policies": everything } })),
        resource(
            "WorkerRole",
            json!({ "Properties": { "ManagedPolicyArns": ["arn:aws:iam::aws:policy/AdministratorAccess"] } }),
        ),
        resource("WorkerProfile", json!({ "Properties": { "Roles": ["other"] } })),
        resource("Mine", json!({ "Type": "AWS::IAM::Policy", "Properties": {} })),
        resource("Mine", json!({ "Type": "AWS::IAM::Role", "Properties": { "Path": "/slipway/" } })),
        resource("Mine", json!({ "Type": "AWS::EC2::Instance", "Properties": {} })),
        resource("Mine", json!({ "Type": "AWS::EC2::LaunchTemplate", "Properties": {} })),
        resource("Mine", json!({ "Type": "AWS::CloudFormation::Stack", "Properties": {} })),
        resource("Mine", json!({ "Type": "Custom::Anything", "Properties": {} })),
        resource("Mine", json!({ "Properties": {} })),
    ];
    let lines: Vec<String> = cases.iter().map(|case| refused("stack: pool-general", case)).collect();
    insta::assert_snapshot!(lines.join(""));
}

#[test]
fn a_reference_that_leads_nowhere_is_refused() {
    let cases = [
        resource(
            "Mine",
            json!({ "Type": "AWS::EC2::SecurityGroup", "Properties": { "VpcId": { "Ref": "Nothing" } } }),
        ),
        resource("Mine", json!({ "Type": "AWS::EC2::SecurityGroup", "DependsOn": ["Neither"] })),
        resource(
            "Mine",
            json!({ "Type": "AWS::EC2::SecurityGroup", "Properties": {
            "GroupDescription": { "Fn::Sub": ["${Own} ${AWS::Region} ${!literal} ${Nowhere.Arn}", { "Own": "x" }] },
        } }),
        ),
    ];
    let lines: Vec<String> = cases.iter().map(|case| refused("stack: network", case)).collect();
    insta::assert_snapshot!(lines.join(""));
}

#[test]
fn what_a_node_is_known_by_cannot_be_patched() {
    let said = refused(
        "node: etcd-0",
        &json!({
            "cluster": "other", "role": null, "etcd": { "version": "3.5.0", "name": "x" }, "dataVolume": null, "launchHook": null,
        }),
    );
    let worker = refused("node: pool-general", &json!({ "kubernetesVersion": "1.35.0", "format": 2 }));
    insta::assert_snapshot!(format!("{said}{worker}"));
}

#[test]
fn what_is_nobodys_life_can_be_patched() {
    good(
        "target: {stack: control-plane}\nmerge: {Resources: {Group: {Properties: {Cooldown: '60', MetricsCollection: [{Granularity: 1Minute}]}}}}\n",
    );
    good(
        "target: {stack: 'pool-*'}\nops: [{op: replace, path: /Resources/Group/Properties/LifecycleHookSpecificationList/0/HeartbeatTimeout, value: 3600}]\n",
    );
    good(
        "target: {stack: etcd}\nmerge: {Resources: {DataVolume0: {DeletionPolicy: Retain, UpdateReplacePolicy: Retain}}}\n",
    );
    let mine = "target: {stack: network}\nmerge:\n  Resources:\n    Mine:\n      Type: AWS::EC2::SecurityGroup\n      \
                Properties: {GroupDescription: mine, VpcId: {Ref: Vpc}}\n  Outputs:\n    Mine: {Value: {Ref: Mine}}\n";
    assert!(template(&good(mine), "prod-network")["Resources"]["Mine"].is_object());
}

#[test]
fn a_hook_waits_as_long_as_auto_scaling_lets_it() {
    for (seconds, fits) in [("30", true), ("'7200'", true), ("29", false), ("86400", false), ("soon", false)]
    {
        let text = format!(
            "target: {{stack: 'pool-*'}}\nops: [{{op: replace, path: /Resources/Group/Properties/LifecycleHookSpecificationList/1/HeartbeatTimeout, value: {seconds}}}]\n"
        );
        let found = with(&[("x.yaml", &text)]).err().map(|found| format!("{found:?}"));
        assert_eq!(found.is_none(), fits, "{seconds}: {found:?}");
        assert!(found.is_none_or(|found| found.contains("write 30 to 7200 seconds")), "{seconds}");
    }
}

#[test]
fn a_limit_that_a_patch_breaks_is_told() {
    let outputs: BTreeMap<String, Value> =
        (0..201).map(|n| (format!("O{n}"), json!({ "Value": "x" }))).collect();
    let text = format!("target: {{stack: etcd}}\nmerge: {}\n", json!({ "Outputs": outputs }));
    let found = with(&[("x.yaml", &text)]).unwrap_err();
    assert!(found[0].message.contains("201") && found[0].message.contains("outputs"), "{found:?}");
}

/// Held against the types that the agent reads: a slip is refused, and what the agent passes over is a warning.
#[test]
fn a_key_that_the_agent_does_not_know_is_refused_with_the_one_that_was_meant_or_told() {
    for (merge, said) in [
        (
            "kubelt: {clusterDns: 10.3.0.11}",
            "patch-refused patches/a.yaml:2:1: this patch may not change the configuration of `pool-general` nodes: the agent does not know `kubelt`\n    did you mean `kubelet`?",
        ),
        (
            "kubelet: {nodeLabel: {a: b}}",
            "the agent does not know `kubelet.nodeLabel`\n    did you mean `nodeLabels`?",
        ),
        ("kubelet: {taints: many}", "invalid type"),
        (
            "kubelet: {nodeLabels: {kubernetes.io/role: a}}",
            "the label `kubernetes.io/role` is reserved by Kubernetes",
        ),
        (
            "kubelet: {maxPods: 58}",
            "accepted\nidle-patch patches/a.yaml:2:1: the agent does not know `kubelet.maxPods`: it does nothing",
        ),
    ] {
        let text =
            findings_text(&[("a.yaml", &format!("target: {{node: pool-general}}\nmerge: {{{merge}}}\n"))]);
        assert!(text.contains(said), "{said}: {text}");
    }
    let known = "target: {node: pool-general}\nmerge: {kubelet: {nodeLabels: {example.com/team: a}}}\n";
    assert_eq!(findings_text(&[("a.yaml", known)]), "accepted\n");
}
