//! VPC, subnets, ranges, endpoints.

use serde_json::json;

use super::super::case::{Case, case};

const BALANCER: &str =
    "arn:aws:elasticloadbalancing:eu-west-1:111122223333:loadbalancer/net/mine/6d0ecf831eec9f09";
const TARGETS: &str = "arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/api/6d0ecf831eec9f09";
const MOVED: &str = "not begun: network (replaces EC2::Route, EC2::RouteTable, EC2::SecurityGroup, EC2::SecurityGroupIngress, EC2::Subnet, EC2::SubnetRouteTableAssociation), control-plane (replaces EC2::SecurityGroup, EC2::SecurityGroupIngress, ElasticLoadBalancingV2::TargetGroup)";
const RENUMBERED: &str = "not begun: network (replaces EC2::NatGateway, EC2::Route, EC2::RouteTable, EC2::SecurityGroup, EC2::SecurityGroupIngress, EC2::Subnet, EC2::SubnetRouteTableAssociation, EC2::VPC, EC2::VPCEndpoint, EC2::VPCGatewayAttachment)";
const WITHOUT_ZONES: &str = "refused: apiEndpoints[0].loadBalancer.subnets: the load balancer of `public` has no subnet in `eu-west-1b`, `eu-west-1c`, where controllers stand: it sends them no traffic, and a rollout waits for them in vain";

pub(super) fn cases() -> Vec<Case> {
    [vpc(), subnets(), endpoints()].concat()
}

fn vpc() -> Vec<Case> {
    vec![
        case("vpc.id", json!("vpc-0fedcba9876543210"), MOVED, "").existing(),
        case("vpcCIDR", json!("10.0.0.0/17"), RENUMBERED, ""),
        case(
            "availabilityZone",
            json!("eu-west-1b"),
            "not begun: network (replaces EC2::Subnet, EC2::SubnetRouteTableAssociation), etcd",
            "etcd-0 replaced",
        )
        .single(),
        case(
            "instanceCIDR",
            json!("10.0.9.0/24"),
            "not begun: network (replaces EC2::Subnet, EC2::SubnetRouteTableAssociation)",
            "",
        )
        .single(),
        case(
            "podCIDR",
            json!("10.4.0.0/16"),
            "refused: podCIDR: the range of the pods is 10.2.0.0/16 in the cluster that runs, and 10.4.0.0/16 is asked for: it cannot change in place",
            "",
        ),
        case(
            "serviceCIDR",
            json!("10.5.0.0/24"),
            "refused: serviceCIDR: the range of the Services is 10.3.0.0/24 in the cluster that runs, and 10.5.0.0/24 is asked for: it cannot change in place",
            "",
        )
        .along("dnsServiceIP", json!("10.5.0.10")),
        case(
            "dnsServiceIP",
            json!("10.3.0.20"),
            "refused: dnsServiceIP: the address of DNS is 10.3.0.10 in the cluster that runs, and 10.3.0.20 is asked for: it cannot change in place",
            "",
        ),
    ]
}

fn subnets() -> Vec<Case> {
    let more = json!({ "name": "more", "availabilityZone": "eu-west-1a", "instanceCIDR": "10.0.3.0/24" });
    vec![
        case(
            "subnets[5].private",
            json!(false),
            "not begun: network (replaces EC2::SubnetRouteTableAssociation), etcd, control-plane",
            "etcd-2 replaced, controller may lose nodes undrained",
        )
        .because(
            "members, controllers and balancers stand in the private subnets, of which it is no longer one",
        ),
        case(
            "subnets[3].id",
            json!("subnet-0fedcba9876543210"),
            "not begun: etcd, control-plane",
            "controller may lose nodes undrained",
        )
        .because("who is launched next stands in it, and Auto Scaling balances the subnets anew")
        .existing(),
        case(
            "subnets[3].idFromStackOutput",
            json!("shared-subnet"),
            "not begun: etcd, control-plane",
            "controller may lose nodes undrained",
        )
        .existing()
        .along("subnets[3].id", json!(null))
        .because("who is launched next stands in it, and Auto Scaling balances the subnets anew"),
        case("subnets[1].natGateway.idFromStackOutput", json!("shared-nat"), "network", "")
            .existing()
            .along("subnets[1].natGateway.id", json!(null)),
        case(
            "subnets[2].routeTable.idFromStackOutput",
            json!("shared-table"),
            "network (replaces EC2::SubnetRouteTableAssociation)",
            "",
        )
        .existing()
        .along("subnets[2].routeTable.id", json!(null)),
        case("internetGateway.idFromStackOutput", json!("shared-gateway"), "network", "")
            .existing()
            .along("internetGateway.id", json!(null)),
        case("vpc.idFromStackOutput", json!("shared-vpc"), MOVED, "").existing().along("vpc.id", json!(null)),
        case(
            "subnets[3].natGateway.eipAllocationIdFromStackOutput",
            json!("shared-address"),
            "not begun: network (replaces EC2::NatGateway), control-plane",
            "",
        ),
        case("sshAccessAllowedSourceCIDRs", json!(["203.0.113.0/24"]), "network", ""),
        case("subnets[6]", more, "network", "").because("nothing stands in it yet"),
        case(
            "subnets[].instanceCIDR",
            json!("10.0.3.0/24"),
            "not begun: network (replaces EC2::NatGateway, EC2::Subnet, EC2::SubnetRouteTableAssociation)",
            "",
        ),
        case("subnets[1].natGateway.id", json!("nat-0fedcba9876543210"), "network", "").existing(),
        case(
            "subnets[3].natGateway.eipAllocationId",
            json!("eipalloc-0123456789abcdef0"),
            "not begun: network (replaces EC2::NatGateway), control-plane",
            "",
        )
        .because("the public endpoint lets in the addresses of NAT gateways that it knows"),
        case(
            "subnets[2].routeTable.id",
            json!("rtb-0fedcba9876543210"),
            "network (replaces EC2::SubnetRouteTableAssociation)",
            "",
        )
        .existing(),
        case("internetGateway.id", json!("igw-0fedcba9876543210"), "network", "").existing(),
    ]
}

fn endpoints() -> Vec<Case> {
    vec![
        case(
            "apiEndpoints[].loadBalancer.apiAccessAllowedSourceCIDRs",
            json!(["203.0.113.0/24"]),
            "control-plane",
            "",
        ),
        case(
            "apiEndpoints[].loadBalancer.securityGroupIds",
            json!(["sg-0123456789abcdef0"]),
            "control-plane",
            "",
        ),
        case(
            "apiEndpoints[].loadBalancer.hostedZone.id",
            json!("Z9876543210ABCDEFGHIJ"),
            "control-plane (replaces Route53::RecordSet)",
            "",
        ),
        case(
            "apiEndpoints[].loadBalancer.hostedZone.idFromStackOutput",
            json!("shared-zone"),
            "control-plane (replaces Route53::RecordSet)",
            "",
        )
        .along("apiEndpoints[].loadBalancer.hostedZone.id", json!(null)),
        case("apiEndpoints[].loadBalancer.recordSetManaged", json!(false), "control-plane", ""),
        case("apiEndpoints[].loadBalancer.subnets[].name", json!("public-a"), "control-plane", "")
            .given("controller.subnets[].name", json!("private-a"))
            .because("controllers stand in its zone only"),
        case("apiEndpoints[].loadBalancer.subnets", json!([{ "name": "public-a" }]), WITHOUT_ZONES, ""),
        case("apiEndpoints[1].loadBalancer.private", json!(false), "control-plane", "")
            .because("its balancer is another one: the record is moved to it"),
        case("apiEndpoints[].loadBalancer.type", json!("network"), "", "").because("there is no other"),
        case(
            "apiEndpoints[].dnsName",
            json!("kube.example.com"),
            "control-plane (replaces Route53::RecordSet)",
            "controller refreshed",
        ),
        case(
            "apiEndpoints[].name",
            json!("open"),
            "refused: apiEndpoints[0].name: the record of api.example.com belongs to an endpoint of another name: CloudFormation would make it a second time before it deletes it, which Route 53 refuses",
            "",
        )
        .along("adminAPIEndpointName", json!("open")),
        case("apiEndpoints[1].loadBalancer.id", json!(BALANCER), "control-plane", "")
            .along("apiEndpoints[1].loadBalancer.private", json!(null))
            .along("apiEndpoints[1].loadBalancer.hostedZone", json!(null))
            .along("apiEndpoints[1].loadBalancer.securityGroupIds", json!(["sg-0123456789abcdef0"])),
        case("apiEndpoints[1].loadBalancer.idFromStackOutput", json!("shared-balancer"), "control-plane", "")
            .along("apiEndpoints[1].loadBalancer.private", json!(null))
            .along("apiEndpoints[1].loadBalancer.hostedZone", json!(null))
            .along("apiEndpoints[1].loadBalancer.securityGroupIds", json!(["sg-0123456789abcdef0"])),
        case(
            "apiEndpoints[1].loadBalancer.dnsName",
            json!("other.elb.eu-west-1.amazonaws.com"),
            "control-plane",
            "",
        )
        .given("apiEndpoints[1].loadBalancer.private", json!(null))
        .given("apiEndpoints[1].loadBalancer.id", json!(BALANCER))
        .given("apiEndpoints[1].loadBalancer.dnsName", json!("mine.elb.eu-west-1.amazonaws.com"))
        .given("apiEndpoints[1].loadBalancer.securityGroupIds", json!(["sg-0123456789abcdef0"])),
        case("apiEndpoints[1].loadBalancer.managed", json!(false), "control-plane", "")
            .along("apiEndpoints[1].loadBalancer.hostedZone", json!(null))
            .along("apiEndpoints[1].loadBalancer.private", json!(null))
            .along("apiEndpoints[1].loadBalancer.targetGroup.arns", json!([TARGETS])),
        case("adminAPIEndpointName", json!("internal"), "", "")
            .because("the administrator's kubeconfig names it"),
        case("worker.apiEndpointName", json!("public"), "pools", "pools replaced"),
    ]
}
