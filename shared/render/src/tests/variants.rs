//! Clusters that differ from the production example in what exists already, and what goes wrong.

use serde_json::Value;
use slipway_core::cluster::{Architecture, Cluster, Egress, Iam, Image, SubnetSource, Vpc};
use slipway_core::release::Rendering;

use super::of_type;
use super::references::dangling;
use crate::fixture::{cluster, credentials, lock, pinned, pool, rendered, site};
use crate::lock::Lock;
use crate::{Inputs, RenderError, limits, render};

fn subnet<'a>(cluster: &'a mut Cluster, name: &str) -> &'a mut SubnetSource {
    &mut cluster.network.subnets.iter_mut().find(|subnet| subnet.name == name).unwrap().source
}

fn set_egress(cluster: &mut Cluster, name: &str, to: Egress) {
    let SubnetSource::Managed { egress, .. } = subnet(cluster, name) else { panic!("{name} is not managed") };
    *egress = to;
}

/// A VPC that exists, with subnets of every origin.
fn existing_vpc() -> Cluster {
    let mut cluster = cluster();
    let id = "vpc-00000000000000001".into();
    cluster.network.vpc = Vpc::Existing { id, cidr: "10.0.0.0/16".parse().unwrap() };
    cluster.network.internet_gateway_id = Some("igw-00000000000000001".into());
    for (name, id) in [("public-a", "1"), ("private-a", "2")] {
        *subnet(&mut cluster, name) =
            SubnetSource::Existing { id: format!("subnet-0000000000000000{id}").into() };
    }
    let id = "nat-00000000000000001".into();
    set_egress(&mut cluster, "private-b", Egress::ExistingNat { id });
    let id = "rtb-00000000000000001".into();
    set_egress(&mut cluster, "private-c", Egress::RouteTable { id });
    cluster.api_endpoints[0].load_balancer.hosted_zone_id = None;
    cluster
}

/// Roles and profiles of the user's, an Elastic IP of the user's, one controller, no add-ons.
fn own_names() -> Cluster {
    let mut cluster = cluster();
    let (public_subnet, eip) = ("public-a".to_owned(), "eipalloc-00000000000000001".into());
    set_egress(&mut cluster, "private-a", Egress::ManagedNat { public_subnet, eip_allocation_id: Some(eip) });
    let profile = "arn:aws:iam::111122223333:instance-profile/mine".to_owned();
    cluster.etcd.iam.role_name = Some("member".to_owned());
    cluster.etcd.iam.strict_name = true;
    cluster.etcd.tenancy = slipway_core::cluster::Tenancy::Dedicated;
    cluster.controller.iam = Iam { instance_profile_arn: Some(profile), ..Iam::default() };
    cluster.controller.count = 1;
    cluster.etcd.members.truncate(1);
    cluster.addons.cluster_autoscaler.enabled = false;
    cluster.key_name = None;
    cluster.pools.clear();
    cluster
}

fn template(rendering: &Rendering, stack: &str) -> Value {
    serde_json::from_str(&rendering.stack(stack).unwrap().body).unwrap()
}

fn errors(cluster: &Cluster, lock: &Lock) -> Vec<RenderError> {
    render(&Inputs::new(cluster, lock, &credentials(cluster), &site())).unwrap_err()
}

#[test]
fn goldens_of_what_exists_already() {
    let existing = rendered(&existing_vpc());
    insta::assert_json_snapshot!("existing-network", template(&existing, "prod-network"));
    insta::assert_json_snapshot!("existing-control-plane", template(&existing, "prod-control-plane"));
    let own = rendered(&own_names());
    insta::assert_json_snapshot!("own-names-etcd", template(&own, "prod-etcd"));
    insta::assert_json_snapshot!("own-names-control-plane", template(&own, "prod-control-plane"));
}

#[test]
fn nothing_dangles_in_any_variant() {
    for cluster in [existing_vpc(), own_names()] {
        assert_eq!(dangling(&rendered(&cluster)), Vec::<String>::new());
    }
}

#[test]
fn what_exists_is_neither_made_nor_changed() {
    let network = template(&rendered(&existing_vpc()), "prod-network");
    for kind in [
        "AWS::EC2::VPC",
        "AWS::EC2::InternetGateway",
        "AWS::EC2::VPCGatewayAttachment",
        "AWS::EC2::NatGateway",
    ] {
        assert!(of_type(&network, kind).is_empty(), "{kind}");
    }
    assert_eq!(of_type(&network, "AWS::EC2::Subnet").len(), 4);
    // The subnets' own, as two of the six exist: public b, c to the gateway, private b to its NAT, private c
    // to its table.
    assert_eq!(of_type(&network, "AWS::EC2::SubnetRouteTableAssociation").len(), 4);
}

#[test]
fn private_subnets_that_name_one_public_subnet_share_its_nat_gateway() {
    let mut shared = cluster();
    for name in ["private-b", "private-c"] {
        let public_subnet = "public-a".to_owned();
        set_egress(&mut shared, name, Egress::ManagedNat { public_subnet, eip_allocation_id: None });
    }
    let network = template(&rendered(&shared), "prod-network");
    assert_eq!(of_type(&network, "AWS::EC2::NatGateway").len(), 1);
    assert_eq!(of_type(&network, "AWS::EC2::EIP").len(), 1);
    assert_eq!(dangling(&rendered(&shared)), Vec::<String>::new());
}

#[test]
fn two_addresses_for_one_nat_gateway_are_refused() {
    let mut cluster = cluster();
    for (name, eip) in [("private-a", "eipalloc-1"), ("private-b", "eipalloc-2")] {
        let (public_subnet, eip) = ("public-a".to_owned(), Some(eip.into()));
        set_egress(&mut cluster, name, Egress::ManagedNat { public_subnet, eip_allocation_id: eip });
    }
    let errors = errors(&cluster, &lock());
    assert!(matches!(errors.as_slice(), [RenderError::TwoNatAddresses { .. }]), "{errors:?}");
}

#[test]
fn public_subnets_of_an_existing_vpc_need_its_gateway() {
    let mut cluster = existing_vpc();
    cluster.network.internet_gateway_id = None;
    let errors = errors(&cluster, &lock());
    assert!(matches!(errors.as_slice(), [RenderError::NoInternetGateway { .. }]), "{errors:?}");
}

#[test]
fn everything_that_is_missing_is_said_at_once_with_its_cure() {
    let cluster = cluster();
    let errors = render(&Inputs::new(&cluster, &Lock::default(), &Default::default(), &site())).unwrap_err();
    let text: Vec<String> = errors.iter().map(ToString::to_string).collect();
    // An image and a bundle for each of seven roles, one release of Kubernetes, one of etcd.
    assert_eq!(text.iter().filter(|line| line.contains("credentials")).count(), 7, "{text:#?}");
    assert_eq!(text.iter().filter(|line| line.contains("pins no image for /aws/service/ami")).count(), 7);
    assert_eq!(text.iter().filter(|line| line.contains("no exact release for Kubernetes 1.34")).count(), 1);
    assert_eq!(text.iter().filter(|line| line.contains("no etcd release for Kubernetes 1.34")).count(), 1);
    // Each of the fifteen images of add-ons lacks its version, which goes with the exact release.
    assert_eq!(text.iter().filter(|line| line.contains("no version for the image")).count(), 15);
    // So do containerd, runc and the plugins of CNI; the pause container lacks its digest.
    assert_eq!(text.iter().filter(|line| line.contains("no release of")).count(), 3);
    assert_eq!(text.iter().filter(|line| line.contains("registry.k8s.io/pause")).count(), 1);
    assert_eq!(text.len(), 35);
}

#[test]
fn a_pool_of_another_architecture_than_its_image_is_refused() {
    let mut cluster = cluster();
    cluster.image = Image::SsmParameter([(Architecture::Arm64, "/arm".to_owned())].into());
    let mut lock = lock();
    lock.images.insert("/arm".to_owned(), "ami-00000000000000001".to_owned());
    let errors = errors(&cluster, &lock);
    let expected = RenderError::NoImage { role: "pool-ingress".to_owned(), architecture: "x86_64" };
    assert_eq!(errors, [expected]);
}

#[test]
fn a_limit_names_the_stack_the_figure_and_the_cure() {
    let mut cluster = cluster();
    cluster.api_endpoints[0].load_balancer.source_cidrs =
        (0..80).map(|n| format!("198.51.100.{n}/32").parse().unwrap()).collect();
    let errors = errors(&cluster, &lock());
    let [error @ RenderError::Limit { stack, limit: 60, .. }] = errors.as_slice() else {
        panic!("{errors:?}")
    };
    assert_eq!(stack, "prod-control-plane");
    assert!(error.to_string().contains("apiAccessAllowedSourceCIDRs"), "{error}");
}

#[test]
fn a_hundred_pools_leave_the_other_stacks_as_they_are() {
    let three = cluster();
    let mut many = three.clone();
    many.pools = (0..100).map(|n| pool(&format!("pool{n}"))).collect();
    let rendering = rendered(&many);
    assert_eq!(rendering.stacks.len(), 103);
    assert_eq!(rendering.stacks[..3], rendered(&three).stacks[..3]);
    assert!(rendering.stacks.iter().all(|stack| stack.body.len() <= limits::INLINE_BODY_BYTES));
    assert_eq!(dangling(&rendering), Vec::<String>::new());
}

#[test]
fn a_controller_is_told_what_its_components_are_to_do() {
    let text = include_str!("../../../../examples/audit-and-oidc.yaml");
    let components = include_str!("../../../../examples/component-settings.yaml");
    for (name, text) in [("audit-and-oidc", text), ("component-settings", components)] {
        let cluster = slipway_spec::parse(text.as_bytes(), None).unwrap().cluster;
        let mut lock = lock();
        lock.kubernetes.insert("1.37".to_owned(), "1.37.2".to_owned());
        lock.etcd.insert("1.37".to_owned(), "3.7.3".to_owned());
        let image = "ami-00000000000000001".to_owned();
        let parameters = lock.missing(&cluster).parameters.into_iter();
        lock.images.extend(parameters.map(|name| (name, image.clone())));
        let lock = pinned(&cluster, lock);
        let rendering = render(&Inputs::new(&cluster, &lock, &credentials(&cluster), &site())).unwrap();
        let roles: Vec<(String, Value)> = rendering
            .roles
            .iter()
            .filter(|(role, _)| !role.to_string().starts_with("etcd"))
            .map(|(role, node)| (role.to_string(), serde_json::from_str(&node.config).unwrap()))
            .map(|(role, config): (_, Value)| {
                (role, serde_json::json!([config["kubelet"], config["controlPlane"]]))
            })
            .collect();
        insta::assert_json_snapshot!(name, roles);
    }
}
