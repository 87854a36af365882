//! Load balancers of ours, of others, and none; and ids that other stacks export.

use serde_json::{Value, json};
use slipway_core::cluster::{Backing, Cluster, Existing, SubnetSource, Vpc};
use slipway_core::release::{Rendering, StackKind};

use super::of_type;
use crate::fixture::{cluster, rendered};

const NLB: &str =
    "arn:aws:elasticloadbalancing:eu-west-1:111122223333:loadbalancer/net/shared/0123456789abcdef";

/// The production fixture, whose one public endpoint is changed.
fn with(change: impl FnOnce(&mut slipway_core::cluster::LoadBalancer)) -> (Cluster, Rendering) {
    let mut cluster = cluster();
    let public = cluster.api_endpoints.iter_mut().find(|endpoint| !endpoint.load_balancer.private).unwrap();
    change(&mut public.load_balancer);
    let rendering = rendered(&cluster);
    (cluster, rendering)
}

fn stack(rendering: &Rendering, kind: StackKind) -> Value {
    let stack = rendering.stacks.iter().find(|stack| stack.kind == kind).unwrap();
    serde_json::from_str(&stack.body).unwrap()
}

/// Sources of the rules by which balancers that are not ours reach controllers.
fn doors(control_plane: &Value) -> Vec<(String, Value)> {
    let rules = control_plane["Resources"].as_object().unwrap().iter();
    rules
        .filter(|(id, _)| id.starts_with("ControllerFromGroup") || id.starts_with("ControllerFromRange"))
        .map(|(_, rule)| {
            let rule = &rule["Properties"];
            assert_eq!((&rule["FromPort"], &rule["ToPort"]), (&json!(6443), &json!(6443)));
            let (kind, source) = ["SourceSecurityGroupId", "CidrIp"]
                .into_iter()
                .find_map(|kind| Some((kind, rule.get(kind)?)))
                .unwrap();
            (kind.to_owned(), source.clone())
        })
        .collect()
}

#[test]
fn an_existing_balancer_gets_our_listener_and_target_group_and_nothing_else() {
    let (_, rendering) = with(|balancer| {
        balancer.backing = Backing::Balancer(NLB.into());
        balancer.subnets.clear();
        balancer.security_group_ids = vec!["sg-00000000000000001".to_owned()];
        balancer.source_cidrs.clear();
        balancer.dns_name = Some("shared-0123.elb.eu-west-1.amazonaws.com".to_owned());
    });
    let template = stack(&rendering, StackKind::ControlPlane);
    assert_eq!(of_type(&template, "AWS::ElasticLoadBalancingV2::LoadBalancer").len(), 1, "the private one");
    let listeners = of_type(&template, "AWS::ElasticLoadBalancingV2::Listener");
    assert!(listeners.iter().any(|listener| listener["Properties"]["LoadBalancerArn"] == NLB));
    let group = of_type(&template, "AWS::AutoScaling::AutoScalingGroup")[0];
    assert_eq!(group["Properties"]["TargetGroupARNs"].as_array().unwrap().len(), 2);
    let records = of_type(&template, "AWS::Route53::RecordSet");
    let cname = records.iter().find(|record| record["Properties"]["Type"] == "CNAME").unwrap();
    assert_eq!(cname["Properties"]["ResourceRecords"], json!(["shared-0123.elb.eu-west-1.amazonaws.com."]));
    assert_eq!(doors(&template), [("SourceSecurityGroupId".to_owned(), json!("sg-00000000000000001"))]);
}

#[test]
fn a_balancer_without_groups_hands_clients_and_health_checks_through() {
    let (_, rendering) = with(|balancer| {
        balancer.backing = Backing::Balancer(Existing::Export("shared-Balancer".to_owned()));
        balancer.source_cidrs = vec!["198.51.100.0/24".parse().unwrap()];
        balancer.hosted_zone_id = None;
    });
    let template = stack(&rendering, StackKind::ControlPlane);
    let mut found = doors(&template);
    found.sort_by_key(|(_, source)| source.to_string());
    let range = |cidr: &str| ("CidrIp".to_owned(), json!(cidr));
    assert_eq!(found, [range("10.0.0.0/16"), range("198.51.100.0/24")]);
    let listeners = of_type(&template, "AWS::ElasticLoadBalancingV2::Listener");
    let imported = json!({ "Fn::ImportValue": "shared-Balancer" });
    assert!(listeners.iter().any(|listener| listener["Properties"]["LoadBalancerArn"] == imported));
}

#[test]
fn controllers_register_in_target_groups_that_exist() {
    let arn = "arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/api/0123456789abcdef";
    let (_, rendering) = with(|balancer| {
        balancer.backing = Backing::TargetGroups(vec![arn.to_owned(), arn.to_owned()]);
        balancer.hosted_zone_id = None;
    });
    let template = stack(&rendering, StackKind::ControlPlane);
    let group = of_type(&template, "AWS::AutoScaling::AutoScalingGroup")[0];
    let groups = group["Properties"]["TargetGroupARNs"].as_array().unwrap();
    assert_eq!(groups.iter().filter(|one| **one == json!(arn)).count(), 1, "Auto Scaling takes none twice");
    assert_eq!(of_type(&template, "AWS::ElasticLoadBalancingV2::TargetGroup").len(), 1, "the private one's");
}

#[test]
fn a_name_without_a_balancer_is_in_the_certificate_and_nowhere_else() {
    let (cluster, rendering) = with(|balancer| {
        balancer.backing = Backing::Nothing;
        balancer.source_cidrs.clear();
        balancer.hosted_zone_id = None;
    });
    let template = stack(&rendering, StackKind::ControlPlane);
    assert_eq!(of_type(&template, "AWS::ElasticLoadBalancingV2::TargetGroup").len(), 1, "the private one's");
    assert_eq!(doors(&template), []);
    let name = &cluster.api_endpoints.iter().find(|e| !e.load_balancer.private).unwrap().dns_name;
    let assets = slipway_credentials::policy::assets(&cluster);
    assert!(format!("{assets:?}").contains(name.as_str()), "{name} is a name of the API server's");
}

#[test]
fn one_rule_serves_all_endpoints_that_need_it() {
    let mut cluster = cluster();
    for endpoint in &mut cluster.api_endpoints {
        endpoint.load_balancer.backing = Backing::Balancer(NLB.into());
        endpoint.load_balancer.hosted_zone_id = None;
        endpoint.load_balancer.source_cidrs = vec!["10.0.0.0/8".parse().unwrap()];
    }
    assert_eq!(doors(&stack(&rendered(&cluster), StackKind::ControlPlane)).len(), 1);
}

/// An NLB's scheme cannot change and a target group belongs to one NLB: CloudFormation makes the new before it deletes
/// the old, so none of the three may keep its logical id. The same for another existing balancer.
#[test]
fn a_target_group_never_moves_from_one_balancer_to_another() {
    let ids = |rendering: &Rendering| -> std::collections::BTreeSet<String> {
        let template = stack(rendering, StackKind::ControlPlane);
        let all = template["Resources"].as_object().unwrap().iter();
        all.filter(|(_, resource)| {
            resource["Type"].as_str().unwrap().starts_with("AWS::ElasticLoadBalancingV2::")
        })
        .map(|(id, _)| id.clone())
        .collect()
    };
    let public = ids(&with(|_| {}).1);
    let private = ids(&with(|balancer| balancer.private = true).1);
    let given = ids(&with(|balancer| balancer.backing = Backing::Balancer(NLB.into())).1);
    let other = ids(&with(|balancer| balancer.backing = Backing::Balancer(format!("{NLB}0").into())).1);
    // The private endpoint's own three are common to all.
    for (one, another) in [(&public, &private), (&public, &given), (&given, &other)] {
        assert_eq!(one.intersection(another).count(), 3, "{one:?} {another:?}");
    }
}

#[test]
fn ids_that_other_stacks_export_are_imported() {
    let mut cluster = cluster();
    let export = |name: &str| Existing::Export(name.to_owned());
    cluster.network.vpc = Vpc::Existing { id: export("net-Vpc"), cidr: "10.0.0.0/16".parse().unwrap() };
    cluster.network.internet_gateway_id = Some(export("net-Igw"));
    let subnet = cluster.network.subnets.iter_mut().find(|subnet| subnet.name == "private-a").unwrap();
    subnet.source = SubnetSource::Existing { id: export("net-PrivateA") };
    let rendering = rendered(&cluster);
    for (kind, names) in [
        (StackKind::Network, &["net-Vpc", "net-Igw"][..]),
        (StackKind::Etcd, &["net-PrivateA"]),
        (StackKind::ControlPlane, &["net-Vpc", "net-PrivateA"]),
    ] {
        let text = stack(&rendering, kind).to_string();
        for name in names {
            assert!(text.contains(&json!({ "Fn::ImportValue": name }).to_string()), "{kind:?} {name}");
        }
    }
}

#[test]
fn ssh_is_let_in_from_the_named_ranges_alone() {
    let mut cluster = cluster();
    let rules = |cluster: &Cluster| {
        let template = stack(&rendered(cluster), StackKind::Network);
        let all = of_type(&template, "AWS::EC2::SecurityGroupIngress").into_iter().cloned();
        all.filter(|rule| rule["Properties"]["FromPort"] == 22).collect::<Vec<Value>>()
    };
    assert_eq!(rules(&cluster), Vec::<Value>::new());
    cluster.network.ssh_source_cidrs = vec!["198.51.100.0/24".parse().unwrap(); 2];
    let found = rules(&cluster);
    assert_eq!(found.len(), 3, "etcd, controllers, workers: each once");
    assert!(found.iter().all(|rule| rule["Properties"]["CidrIp"] == "198.51.100.0/24"));
}
