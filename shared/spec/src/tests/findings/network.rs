//! What exists already, who brings the load balancer, and who may come in.

use slipway_core::cluster::{Backing, Egress, Existing, SubnetSource, Vpc};

use super::*;
use crate::Accepted;

/// [`BASE`] with these lines as the endpoint's load balancer.
fn balancer(lines: &str) -> String {
    let group: String = lines.lines().map(|line| format!("    {line}\n")).collect();
    BASE.replacen(
        "  dnsName: api.example.com\n",
        &format!("  dnsName: api.example.com\n  loadBalancer:\n{group}"),
        1,
    )
}

fn accepted(text: &str) -> Accepted {
    parse(text.as_bytes(), None).unwrap_or_else(|found| panic!("{}", findings_text(&found)))
}

const NLB: &str =
    "id: arn:aws:elasticloadbalancing:eu-west-1:111122223333:loadbalancer/net/shared/0123456789abcdef";
const GUARDED: &str = "securityGroupIds: [sg-0123456789abcdef0]";
const GROUPS: &str = "targetGroup: {arns: ['arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/api/0123456789abcdef']}";

#[test]
fn an_existing_balancer_is_taken() {
    let found = accepted(&balancer(NLB)).cluster.api_endpoints.remove(0).load_balancer;
    assert!(
        matches!(&found.backing, Backing::Balancer(Existing::Id(arn)) if arn.ends_with("0123456789abcdef"))
    );
    assert!(found.subnets.is_empty() && found.hosted_zone_id.is_none());
    assert_eq!(found.source_cidrs.len(), 1, "a balancer without groups hands clients' addresses through");
    let grouped = accepted(&balancer(&format!("{NLB}\nsecurityGroupIds: [sg-0123456789abcdef0]")));
    let grouped = grouped.cluster.api_endpoints[0].load_balancer.clone();
    assert!(grouped.source_cidrs.is_empty(), "its groups say who comes in");
    let exported = accepted(&balancer("idFromStackOutput: shared-Balancer"));
    assert_eq!(
        exported.cluster.api_endpoints[0].load_balancer.backing,
        Backing::Balancer(Existing::Export("shared-Balancer".to_owned()))
    );
}

#[test]
fn target_groups_or_nothing_stand_in_for_a_balancer() {
    let found = accepted(&balancer(&format!("managed: false\n{GUARDED}\n{GROUPS}")));
    assert_eq!(findings_text(&found.warnings), "");
    let found = &found.cluster.api_endpoints[0].load_balancer;
    assert!(matches!(&found.backing, Backing::TargetGroups(arns) if arns.len() == 1));
    says!(findings_in(balancer("managed: false")), @r##"
    5:3 warning endpoint-without-balancer at `apiEndpoints[0]`: the administrator's kubeconfig names `default`, for which Slipway sets up no load balancer
        make sure that port 443 of that name leads to port 6443 of the controllers, whose addresses change; or give it a `loadBalancer.id` or `targetGroup`
    5:3 warning endpoint-without-balancer at `apiEndpoints[0]`: workers go through `default`, for which Slipway sets up no load balancer
        make sure that port 443 of that name leads to port 6443 of the controllers, whose addresses change; or give it a `loadBalancer.id` or `targetGroup`
    "##);
}

#[test]
fn a_record_needs_to_know_where_it_leads() {
    let whole = format!(
        "{NLB}\nhostedZone: {{idFromStackOutput: dns-Zone}}\ndnsName: shared-0123.elb.eu-west-1.amazonaws.com"
    );
    let found = accepted(&balancer(&whole)).cluster.api_endpoints.remove(0).load_balancer;
    assert_eq!(found.hosted_zone_id, Some(Existing::Export("dns-Zone".to_owned())));
    assert!(found.dns_name.is_some_and(|name| name.starts_with("shared-0123")));
    let without = format!("{NLB}\nhostedZone: {{id: Z0123456789ABC}}\nrecordSetManaged: false\n{GUARDED}");
    assert_eq!(findings_in(balancer(&without)), "");
}

/// A VPC of which everything is exported by another stack.
const IMPORTED: &str = "\
clusterName: base
region: eu-west-1
kubernetesVersion: \"1.37\"
apiEndpoints:
- {name: default, dnsName: api.example.com}
vpc: {idFromStackOutput: net-Vpc}
vpcCIDR: 10.0.0.0/16
internetGateway: {idFromStackOutput: net-Igw}
subnets:
- {name: public-a, availabilityZone: eu-west-1a, instanceCIDR: 10.0.0.0/24}
- {name: private-a, availabilityZone: eu-west-1a, idFromStackOutput: net-PrivateA, private: true}
- {name: private-b, availabilityZone: eu-west-1b, instanceCIDR: 10.0.2.0/24, private: true, natGateway: {idFromStackOutput: net-Nat}}
- {name: private-c, availabilityZone: eu-west-1c, instanceCIDR: 10.0.3.0/24, private: true, routeTable: {idFromStackOutput: net-Table}}
- {name: private-d, availabilityZone: eu-west-1a, instanceCIDR: 10.0.4.0/24, private: true, natGateway: {eipAllocationIdFromStackOutput: net-Address}}
worker:
  nodePools:
  - name: general
";

#[test]
fn ids_may_come_from_other_stacks() {
    let network = accepted(IMPORTED).cluster.network;
    let export = |name: &str| Existing::Export(name.to_owned());
    assert!(matches!(&network.vpc, Vpc::Existing { id, .. } if *id == export("net-Vpc")));
    assert_eq!(network.internet_gateway_id, Some(export("net-Igw")));
    let sources: Vec<&SubnetSource> = network.subnets.iter().map(|subnet| &subnet.source).collect();
    assert_eq!(*sources[1], SubnetSource::Existing { id: export("net-PrivateA") });
    let egress = |index: usize| match sources[index] {
        SubnetSource::Managed { egress, .. } => egress.clone(),
        SubnetSource::Existing { .. } => panic!("{index} is managed"),
    };
    assert_eq!(egress(2), Egress::ExistingNat { id: export("net-Nat") });
    assert_eq!(egress(3), Egress::RouteTable { id: export("net-Table") });
    let public_subnet = "public-a".to_owned();
    assert_eq!(
        egress(4),
        Egress::ManagedNat { public_subnet, eip_allocation_id: Some(export("net-Address")) }
    );
}

#[test]
fn kube_aws_said_it_for_all_subnets_at_once() {
    let old = "\
clusterName: base
region: eu-west-1
kubernetesVersion: \"1.37\"
apiEndpoints: [{name: default, dnsName: api.example.com, loadBalancer: {private: true}}]
vpcId: vpc-0123456789abcdef0
vpcCIDR: 10.0.0.0/16
routeTableId: rtb-0123456789abcdef0
mapPublicIPs: false
availabilityZone: eu-west-1a
worker: {nodePools: [{name: general}]}
";
    let subnet = accepted(old).cluster.network.subnets.remove(0);
    assert!(subnet.private);
    assert!(matches!(
        subnet.source,
        SubnetSource::Managed { egress: Egress::RouteTable { id: Existing::Id(id) }, .. } if id == "rtb-0123456789abcdef0"
    ));
}

#[test]
fn ssh_is_closed_unless_ranges_are_named() {
    assert!(accepted(BASE).cluster.network.ssh_source_cidrs.is_empty());
    let open = accepted(&format!("{BASE}sshAccessAllowedSourceCIDRs: [198.51.100.0/24]\n"));
    assert_eq!(open.cluster.network.ssh_source_cidrs.len(), 1);
}

#[test]
fn more_nodes_than_the_range_of_pods_holds() {
    let sized = |least: u32| {
        with(&format!("    autoScalingGroup: {{minSize: {least}, maxSize: 20}}\npodCIDR: 10.2.0.0/20\n"))
    };
    assert!(sized(16).starts_with("18:10 error pod-range-too-small at `podCIDR`: 10.2.0.0/20 has addresses for 16 nodes, and there are 17 at least"));
}
