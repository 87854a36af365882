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
    says!(told_of(balancer("managed: false")), @r##"
    5:3 warning endpoint-without-balancer at `apiEndpoints[0]`: the administrator's kubeconfig names `default`, behind which Slipway puts nothing
        see to it that the name's port 443 leads to port 6443 of the controllers, whose addresses change; or give it a `loadBalancer.id` or `targetGroup`
    5:3 warning endpoint-without-balancer at `apiEndpoints[0]`: workers go through `default`, behind which Slipway puts nothing
        see to it that the name's port 443 leads to port 6443 of the controllers, whose addresses change; or give it a `loadBalancer.id` or `targetGroup`
    "##);
}

#[test]
fn balancers_that_cannot_serve_the_api() {
    let others = [
        "id: my-classic-elb",
        "id: arn:aws:elasticloadbalancing:eu-west-1:111122223333:loadbalancer/app/web/0123456789abcdef",
        "id: arn:aws:elasticloadbalancing:us-east-1:111122223333:loadbalancer/net/far/0123456789abcdef",
        "managed: false\ntargetGroup: {arns: [api]}",
        "idFromStackOutput: has spaces",
        "idFromStackOutput: base-network-Vpc",
    ];
    says!(others.map(|lines| told_of(balancer(&format!("{lines}\n{GUARDED}")))).concat(), @r##"
    8:9 error arn-syntax at `apiEndpoints[0].loadBalancer.id`: `my-classic-elb` is no ARN of a network load balancer
        write one such as `arn:aws:elasticloadbalancing:eu-west-1:111122223333:loadbalancer/net/name/0123456789abcdef`; classic load balancers are retired, and have a name instead
    8:9 error arn-syntax at `apiEndpoints[0].loadBalancer.id`: `arn:aws:elasticloadbalancing:eu-west-1:111122223333:loadbalancer/app/web/0123456789abcdef` is an application load balancer, which cannot pass the API's TLS through
        name a network load balancer
    8:9 error other-region at `apiEndpoints[0].loadBalancer.id`: it lies in `us-east-1`, the cluster in `eu-west-1`
        name one of `eu-west-1`
    9:26 error arn-syntax at `apiEndpoints[0].loadBalancer.targetGroup.arns[0]`: `api` is no ARN of a target group
        write one such as `arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/name/0123456789abcdef`
    8:24 error export-name at `apiEndpoints[0].loadBalancer.idFromStackOutput`: `has spaces` cannot be the name of an export
        write the `Export: {Name: …}` of the other stack's output: letters, digits, colons and hyphens, 255 at most
    8:24 error export-name at `apiEndpoints[0].loadBalancer.idFromStackOutput`: `base-network-Vpc` is an export of this cluster's own network stack
        name what another stack exports
    "##);
}

#[test]
fn settings_of_another_kind_of_balancer() {
    let mixed = [
        format!(
            "{NLB}\nidFromStackOutput: shared-Balancer\nmanaged: true\nprivate: true\nsubnets: [{{name: public-a}}]\n{GROUPS}\n{GUARDED}"
        ),
        format!(
            "{NLB}\nsecurityGroupIds: [sg-0123456789abcdef0]\napiAccessAllowedSourceCIDRs: [198.51.100.0/24]"
        ),
        format!("{GROUPS}\ndnsName: lb.example.com"),
        "managed: false\nprivate: true".to_owned(),
    ];
    says!(mixed.map(|lines| told_of(balancer(&lines))).concat(), @r##"
    9:24 error given-twice at `apiEndpoints[0].loadBalancer.idFromStackOutput`: `apiEndpoints[0].loadBalancer.id` and `apiEndpoints[0].loadBalancer.idFromStackOutput` say the same
        keep `apiEndpoints[0].loadBalancer.id`
    10:14 error load-balancer-choice at `apiEndpoints[0].loadBalancer.managed`: `apiEndpoints[0].loadBalancer.id` names a load balancer that exists, so it is not made
        remove one of the two
    11:14 error load-balancer-choice at `apiEndpoints[0].loadBalancer.private`: `private` is for a load balancer that Slipway makes, and `apiEndpoints[0].loadBalancer.id` says otherwise
        remove one of the two
    12:5 error load-balancer-choice at `apiEndpoints[0].loadBalancer.subnets`: `subnets` is for a load balancer that Slipway makes, and `apiEndpoints[0].loadBalancer.id` says otherwise
        remove one of the two
    13:5 error load-balancer-choice at `apiEndpoints[0].loadBalancer.targetGroup`: `targetGroup` is for a load balancer that Slipway makes, and `apiEndpoints[0].loadBalancer.id` says otherwise
        remove one of the two
    10:5 error load-balancer-choice at `apiEndpoints[0].loadBalancer.apiAccessAllowedSourceCIDRs`: `securityGroupIds` names the groups of the load balancer, which say who comes in
        remove one of the two: ranges are for a load balancer without security groups
    8:19 error load-balancer-choice at `apiEndpoints[0].loadBalancer.targetGroup.arns`: controllers are in the target group of the load balancer that Slipway makes
        write `managed: false` beside it to have them in these instead, or remove it
    9:14 error load-balancer-choice at `apiEndpoints[0].loadBalancer.dnsName`: the load balancer that Slipway makes has a name of AWS' choice
        remove it, or name the existing load balancer by its `id`
    5:3 warning endpoint-without-balancer at `apiEndpoints[0]`: the administrator's kubeconfig names `default`, behind which Slipway puts nothing
        see to it that the name's port 443 leads to port 6443 of the controllers, whose addresses change; or give it a `loadBalancer.id` or `targetGroup`
    5:3 warning endpoint-without-balancer at `apiEndpoints[0]`: workers go through `default`, behind which Slipway puts nothing
        see to it that the name's port 443 leads to port 6443 of the controllers, whose addresses change; or give it a `loadBalancer.id` or `targetGroup`
    9:14 error load-balancer-choice at `apiEndpoints[0].loadBalancer.private`: `private` is for a load balancer that Slipway makes, and `apiEndpoints[0].loadBalancer.managed` says otherwise
        remove one of the two
    "##);
}

#[test]
fn a_record_needs_to_know_where_it_leads() {
    says!(told_of(balancer(&format!("{NLB}\nhostedZone: {{id: Z0123456789ABC}}\n{GUARDED}"))), @r##"
    9:22 error record-without-target at `apiEndpoints[0].loadBalancer.hostedZone.id`: the record is to be made in `hostedZone`, but nothing says where it leads: the DNS name of a load balancer that exists is not known here
        add `dnsName` with the load balancer's own name, or write `recordSetManaged: false` and make the record yourself
    "##);
    let whole = format!(
        "{NLB}\nhostedZone: {{idFromStackOutput: dns-Zone}}\ndnsName: shared-0123.elb.eu-west-1.amazonaws.com"
    );
    let found = accepted(&balancer(&whole)).cluster.api_endpoints.remove(0).load_balancer;
    assert_eq!(found.hosted_zone_id, Some(Existing::Export("dns-Zone".to_owned())));
    assert!(found.dns_name.is_some_and(|name| name.starts_with("shared-0123")));
    let without = format!("{NLB}\nhostedZone: {{id: Z0123456789ABC}}\nrecordSetManaged: false\n{GUARDED}");
    assert_eq!(told_of(balancer(&without)), "");
}

#[test]
fn controllers_behind_a_balancer_that_exists_are_not_opened_to_everyone_without_a_word() {
    says!(told_of(balancer(NLB)), @r##"
    7:3 warning open-to-everyone at `apiEndpoints[0].loadBalancer.apiAccessAllowedSourceCIDRs`: the controllers' port 6443 is opened to 0.0.0.0/0, beside the load balancer too: nothing says whom it lets in
        add `securityGroupIds` with the load balancer's own groups, or name the ranges here; `[0.0.0.0/0]` if that is meant
    "##);
    for said in [GUARDED, "apiAccessAllowedSourceCIDRs: [0.0.0.0/0]"] {
        assert_eq!(told_of(balancer(&format!("{NLB}\n{said}"))), "");
    }
}

#[test]
fn nobody_but_a_group_may_come_in() {
    let closed = "apiAccessAllowedSourceCIDRs: []";
    assert_eq!(told_of(balancer(&format!("{closed}\nsecurityGroupIds: [sg-0123456789abcdef0]"))), "");
    assert_eq!(told_of(balancer(&format!("{closed}\nprivate: true"))), "");
    says!(told_of(balancer(closed)), @r##"
    8:5 error empty-list at `apiEndpoints[0].loadBalancer.apiAccessAllowedSourceCIDRs`: nobody may reach the API
        name at least one range, or add `securityGroupIds` that let somebody in, or remove the key for everywhere
    "##);
}

#[test]
fn nodes_whose_addresses_the_endpoint_does_not_know() {
    let narrow = balancer("apiAccessAllowedSourceCIDRs: [198.51.100.0/24]");
    assert_eq!(told_of(&narrow), "", "NAT gateways of ours are let in");
    let public =
        narrow.replacen("- name: general\n", "- name: general\n    subnets: [{name: public-a}]\n", 1);
    says!(told_of(&public), @r##"
    8:5 warning workers-shut-out at `apiEndpoints[0].loadBalancer.apiAccessAllowedSourceCIDRs`: workers in `public-a` reach this public endpoint from addresses that are not known here: unless the ranges hold them, those workers cannot join
        add an endpoint with `private: true` and name it in `worker.apiEndpointName`, or name the balancer's door to them in `securityGroupIds`
    "##);
    let nat = narrow.replacen(
        "10.0.3.0/24, private: true",
        "10.0.3.0/24, private: true, natGateway: {eipAllocationId: eipalloc-0123456789abcdef0}",
        1,
    );
    says!(told_of(nat.replacen("- name: general\n", "- name: general\n    subnets: [{name: private-c}]\n", 1)), @r##"
    8:5 warning workers-shut-out at `apiEndpoints[0].loadBalancer.apiAccessAllowedSourceCIDRs`: workers in `private-c` reach this public endpoint from addresses that are not known here: unless the ranges hold them, those workers cannot join
        add an endpoint with `private: true` and name it in `worker.apiEndpointName`, or name the balancer's door to them in `securityGroupIds`
    "##);
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
fn an_id_and_an_export_of_it() {
    let both = IMPORTED
        .replacen("vpc: {idFromStackOutput", "vpc: {id: vpc-0123456789abcdef0, idFromStackOutput", 1)
        .replacen("{idFromStackOutput: net-Igw}", "{idFromStackOutput: net_Igw}", 1)
        .replacen(
            "availabilityZone: eu-west-1a, idFrom",
            "availabilityZone: eu-west-1a, id: subnet-1, idFrom",
            1,
        );
    says!(told_of(both), @r##"
    6:53 error given-twice at `vpc.idFromStackOutput`: `vpc.id` and `vpc.idFromStackOutput` say the same
        keep `vpc.id`
    8:38 error export-name at `internetGateway.idFromStackOutput`: `net_Igw` cannot be the name of an export
        write the `Export: {Name: …}` of the other stack's output: letters, digits, colons and hyphens, 255 at most
    11:55 error id-syntax at `subnets[1].id`: `subnet-1` does not name one
        write an id such as `subnet-0123456789abcdef0`
    11:84 error given-twice at `subnets[1].idFromStackOutput`: `subnets[1].id` and `subnets[1].idFromStackOutput` say the same
        keep `subnets[1].id`
    "##);
}

#[test]
fn gateways_and_tables_that_exist_in_a_vpc_that_does_not() {
    let table = "10.0.3.0/24, private: true, routeTable: {id: rtb-0123456789abcdef0}";
    let nat = "10.0.3.0/24, private: true, natGateway: {idFromStackOutput: net-Nat}";
    says!([
        instead("10.0.3.0/24, private: true", table),
        instead("10.0.3.0/24, private: true", nat),
        with("routeTableId: rtb-0123456789abcdef0\n"),
    ].concat(), @r##"
    11:93 error existing-in-new-vpc at `subnets[3].routeTable`: an existing route table cannot lie in a VPC that is yet to be made
        add `vpc: {id: …}` with the VPC in which it lies
    11:93 error existing-in-new-vpc at `subnets[3].natGateway`: an existing NAT gateway cannot lie in a VPC that is yet to be made
        add `vpc: {id: …}` with the VPC in which it lies
    15:1 warning translated-key at `routeTableId`: `routeTableId` is a key of kube-aws, taken in its modern form
        write `routeTable: {id: …}` on each of `subnets`
    15:15 error existing-in-new-vpc at `routeTableId`: an existing route table cannot lie in a VPC that is yet to be made
        add `vpc: {id: …}` with the VPC in which it lies
    "##);
}

#[test]
fn one_address_for_one_gateway() {
    let eip = |letter: &str| format!("natGateway: {{eipAllocationId: eipalloc-0123456789abcde{letter}}}");
    let two = BASE
        .replacen("10.0.1.0/24, private: true", &format!("10.0.1.0/24, private: true, {}", eip("aa")), 1)
        .replacen("10.0.2.0/24, private: true", &format!("10.0.2.0/24, private: true, {}", eip("bb")), 1);
    let one_twice = two.replacen("bb}", "aa}", 1).replacen(
        "worker:\n",
        "- {name: public-b, availabilityZone: eu-west-1b, instanceCIDR: 10.0.4.0/24}\nworker:\n",
        1,
    );
    says!([told_of(two), told_of(one_twice)].concat(), @r##"
    10:93 error nat-address at `subnets[2].natGateway`: the NAT gateway in `public-a` is to have two addresses, `eipalloc-0123456789abcdeaa` and `eipalloc-0123456789abcdebb`
        name one address for it, or add a public subnet in this zone for a gateway of its own
    10:93 error nat-address at `subnets[2].natGateway`: `eipalloc-0123456789abcdeaa` is the address of the NAT gateway in `public-a` already
        name another address: each gateway has its own
    "##);
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
    says!(told_of(old), @r##"
    5:1 warning translated-key at `vpcId`: `vpcId` is a key of kube-aws, taken in its modern form
        write `vpc: {id: …}`
    7:1 warning translated-key at `routeTableId`: `routeTableId` is a key of kube-aws, taken in its modern form
        write `routeTable: {id: …}` on each of `subnets`
    8:1 warning translated-key at `mapPublicIPs`: `mapPublicIPs` is a key of kube-aws, taken in its modern form
        write `private: true` on the subnets whose machines get no public address
    "##);
    let subnet = accepted(old).cluster.network.subnets.remove(0);
    assert!(subnet.private);
    assert!(matches!(
        subnet.source,
        SubnetSource::Managed { egress: Egress::RouteTable { id: Existing::Id(id) }, .. } if id == "rtb-0123456789abcdef0"
    ));
}

#[test]
fn a_gateway_that_nobody_uses() {
    says!(with("internetGateway: {id: igw-0123456789abcdef0}\n"), @"");
    says!(told_of(IMPORTED.replacen("instanceCIDR: 10.0.0.0/24", "routeTable: {id: rtb-0123456789abcdef0}, instanceCIDR: 10.0.0.0/24", 1)), @r##"
    8:1 warning no-effect at `internetGateway`: no subnet is routed to this gateway: those that exist, and those with a `routeTable`, keep their own routes
        remove it
    "##);
}

#[test]
fn dual_stack_is_refused_by_name() {
    says!(with("ipFamily: dual\npodCIDR: 10.2.0.0/16,fd00:1::/48\nserviceCIDR: fd00:2::/108\nsshAccessAllowedSourceCIDRs: ['::/0']\n"), @r##"
    15:1 error retired-key at `ipFamily`: `ipFamily` is a key of dual-stack clusters that Slipway does not take
        remove it: clusters are IPv4 only for now, and so are their ranges
    16:10 error ipv6 at `podCIDR`: `10.2.0.0/16,fd00:1::/48` is an IPv6 range, and clusters are IPv4 only for now
        write an IPv4 range such as `10.0.0.0/16`
    17:14 error ipv6 at `serviceCIDR`: `fd00:2::/108` is an IPv6 range, and clusters are IPv4 only for now
        write an IPv4 range such as `10.0.0.0/16`
    18:31 error ipv6 at `sshAccessAllowedSourceCIDRs[0]`: `::/0` is an IPv6 range, and clusters are IPv4 only for now
        write an IPv4 range such as `10.0.0.0/16`
    "##);
}

#[test]
fn ssh_is_closed_unless_ranges_are_named() {
    assert!(accepted(BASE).cluster.network.ssh_source_cidrs.is_empty());
    let open = accepted(&format!("{BASE}sshAccessAllowedSourceCIDRs: [198.51.100.0/24]\n"));
    assert_eq!(open.cluster.network.ssh_source_cidrs.len(), 1);
    says!(with("sshAccessAllowedSourceCIDRs: [0.0.0.0/0]\n"), @r##"
    15:1 warning ssh-open-to-all at `sshAccessAllowedSourceCIDRs`: port 22 of every node is open to everybody
        name the ranges of your own networks, or remove the key: Session Manager needs no open port
    "##);
}

#[test]
fn ranges_that_no_network_has() {
    says!(with("podCIDR: 169.254.0.0/16\nserviceCIDR: 127.0.0.0/16\nvpcCIDR: 224.0.0.0/16\n"), @r##"
    8:64 error cidr-outside-vpc at `subnets[0].instanceCIDR`: the subnet `public-a` (10.0.0.0/24) does not lie inside the VPC (224.0.0.0/16)
        choose a part of 224.0.0.0/16, or widen `vpcCIDR`
    9:65 error cidr-outside-vpc at `subnets[1].instanceCIDR`: the subnet `private-a` (10.0.1.0/24) does not lie inside the VPC (224.0.0.0/16)
        choose a part of 224.0.0.0/16, or widen `vpcCIDR`
    10:65 error cidr-outside-vpc at `subnets[2].instanceCIDR`: the subnet `private-b` (10.0.2.0/24) does not lie inside the VPC (224.0.0.0/16)
        choose a part of 224.0.0.0/16, or widen `vpcCIDR`
    11:65 error cidr-outside-vpc at `subnets[3].instanceCIDR`: the subnet `private-c` (10.0.3.0/24) does not lie inside the VPC (224.0.0.0/16)
        choose a part of 224.0.0.0/16, or widen `vpcCIDR`
    15:10 error cidr-reserved at `podCIDR`: the range of pods (169.254.0.0/16) holds addresses that are of the link, where AWS' metadata service answers
        choose a private range, such as a part of 10.0.0.0/8
    16:14 error cidr-reserved at `serviceCIDR`: the range of services (127.0.0.0/16) holds addresses that are each machine's own
        choose a private range, such as a part of 10.0.0.0/8
    17:10 error cidr-reserved at `vpcCIDR`: the VPC (224.0.0.0/16) holds addresses that are for multicast, or reserved
        choose a private range, such as a part of 10.0.0.0/8
    "##);
}

#[test]
fn more_nodes_than_the_range_of_pods_holds() {
    let sized = |least: u32| {
        with(&format!("    autoScalingGroup: {{minSize: {least}, maxSize: 20}}\npodCIDR: 10.2.0.0/20\n"))
    };
    assert!(sized(16).starts_with("16:10 error pod-range-too-small at `podCIDR`: 10.2.0.0/20 has addresses for 16 nodes, and there are 17 at least"));
    says!(sized(15), @r##"
    16:10 warning pod-range-too-small at `podCIDR`: 10.2.0.0/20 has addresses for 16 nodes, and the pools may grow to 21
        take a wider range (each node takes a /24 of it) before the cluster is launched: it cannot be changed later
    "##);
}
