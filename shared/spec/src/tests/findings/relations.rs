//! Identity, network and endpoints: what must agree with what.

use super::*;

#[test]
fn a_name_that_is_not_the_folder() {
    says!(findings_text(&parse(BASE.as_bytes(), Some(&Expected { name: "other", region: None })).unwrap_err()), @r##"
    1:14 error name-mismatch at `clusterName`: the spec names the cluster `base`, but lies in the folder of `other`
        write `clusterName: other`, or put the spec into clusters/base/
    "##);
}

#[test]
fn a_name_that_no_stack_may_have() {
    says!(instead("clusterName: base", "clusterName: 1_base"), @r##"
    1:14 error name-syntax at `clusterName`: `1_base` cannot be a cluster's name
        begin with a letter, go on with letters, digits and hyphens, and end with a letter or digit: stacks are named after it
    "##);
}

#[test]
fn a_name_that_is_too_long() {
    for name in ["base-pool", "base-pool-spot"] {
        let told = instead("clusterName: base", &format!("clusterName: {name}"));
        assert!(told.starts_with("1:14 error name-ambiguous at `clusterName`"), "{told}");
    }
    for name in ["base-pools", "pool-base", "base-poolside"] {
        assert_eq!(instead("clusterName: base", &format!("clusterName: {name}")), "");
    }
    says!(instead("clusterName: base", &format!("clusterName: {}", "b".repeat(57))), @r##"
    1:14 error name-too-long at `clusterName`: the cluster's name has 57 characters
        shorten it to 56: the schedule `slipway-<clusterName>` may have 64
    "##);
}

#[test]
fn a_region_that_does_not_exist() {
    says!(instead("region: eu-west-1", "region: eu-wset-1"), @r##"
    2:9 error unknown-region at `region`: there is no AWS region `eu-wset-1`
        did you mean `eu-west-1`?
    "##);
}

#[test]
fn a_region_like_none() {
    says!(instead("region: eu-west-1", "region: mars"), @r##"
    2:9 error unknown-region at `region`: there is no AWS region `mars`
        write a region such as `eu-west-1`
    "##);
}

#[test]
fn a_zone_of_another_region() {
    says!(instead("eu-west-1b", "eu-west-2b"), @r##"
    10:39 error unknown-zone at `subnets[2].availabilityZone`: `eu-west-2b` is no availability zone of eu-west-1
        write one such as `eu-west-1a`
    "##);
}

#[test]
fn versions_of_kubernetes() {
    says!([instead("\"1.37\"", "1.20"), instead("\"1.37\"", "latest"), instead("\"1.37\"", "1.37.99")].concat(), @r##"
    3:20 error kubernetes-version at `kubernetesVersion`: Kubernetes 1.20 is not supported
        write one from `1.34` to `1.37`
    3:20 error kubernetes-version at `kubernetesVersion`: `latest` is no Kubernetes version
        write one such as `1.37`
    3:20 warning kubernetes-version at `kubernetesVersion`: Kubernetes 1.37.99 is newer than the patches known here
        check that it exists; the newest known is `1.37.2`
    "##);
}

#[test]
fn ranges_that_overlap() {
    says!(with("podCIDR: 10.0.128.0/17\nserviceCIDR: 10.0.0.0/24\n"), @r##"
    15:10 error cidr-overlap at `podCIDR`: the range of pods (10.0.128.0/17) overlaps the VPC (10.0.0.0/16)
        choose ranges that have no address in common
    16:14 error cidr-overlap at `serviceCIDR`: the range of services (10.0.0.0/24) overlaps the VPC (10.0.0.0/16)
        choose ranges that have no address in common
    "##);
}

#[test]
fn a_wide_range_does_not_lie_inside_a_narrow_one() {
    says!([instead("10.0.3.0/24", "10.0.0.0/8"), instead("10.0.3.0/24", "10.0.0.0/16")].concat(), @r##"
    11:65 error cidr-size at `subnets[3].instanceCIDR`: `10.0.0.0/8` has the wrong size
        write a prefix from /16 to /28: a subnet takes no other
    11:65 error cidr-overlap at `subnets[3].instanceCIDR`: the subnet `private-c` (10.0.0.0/16) overlaps the subnet `private-a` (10.0.1.0/24)
        choose ranges that have no address in common
    11:65 error cidr-overlap at `subnets[3].instanceCIDR`: the subnet `private-c` (10.0.0.0/16) overlaps the subnet `private-b` (10.0.2.0/24)
        choose ranges that have no address in common
    11:65 error cidr-overlap at `subnets[3].instanceCIDR`: the subnet `private-c` (10.0.0.0/16) overlaps the subnet `public-a` (10.0.0.0/24)
        choose ranges that have no address in common
    "##);
}

#[test]
fn a_subnet_outside_the_vpc() {
    says!(instead("10.0.3.0/24", "10.1.3.0/24"), @r##"
    11:65 error cidr-outside-vpc at `subnets[3].instanceCIDR`: the subnet `private-c` (10.1.3.0/24) does not lie inside the VPC (10.0.0.0/16)
        choose a part of 10.0.0.0/16, or widen `vpcCIDR`
    "##);
}

#[test]
fn subnets_that_overlap() {
    says!(instead("10.0.3.0/24", "10.0.2.128/25"), @r##"
    11:65 error cidr-overlap at `subnets[3].instanceCIDR`: the subnet `private-c` (10.0.2.128/25) overlaps the subnet `private-b` (10.0.2.0/24)
        choose ranges that have no address in common
    "##);
}

#[test]
fn ranges_that_are_none() {
    says!(with("podCIDR: 10.2.0.0\nserviceCIDR: 10.3.0.5/24\nvpcCIDR: fd00::/8\n"), @r##"
    15:10 error cidr-syntax at `podCIDR`: `10.2.0.0` is no IPv4 range
        write an IPv4 range such as `10.0.0.0/16`
    16:14 error cidr-syntax at `serviceCIDR`: `10.3.0.5/24` does not begin its range
        did you mean `10.3.0.0/24`?
    17:10 error ipv6 at `vpcCIDR`: `fd00::/8` is an IPv6 range, and clusters are IPv4 only for now
        write an IPv4 range such as `10.0.0.0/16`
    "##);
}

#[test]
fn ranges_of_the_wrong_size() {
    says!(with("podCIDR: 10.128.0.0/28\nserviceCIDR: 11.0.0.0/8\n"), @r##"
    15:10 error cidr-size at `podCIDR`: `10.128.0.0/28` has the wrong size
        write a prefix from /8 to /24: each node takes a /24 of it
    16:14 error cidr-size at `serviceCIDR`: `11.0.0.0/8` has the wrong size
        write a prefix from /12 to /28: kube-apiserver takes no more than a /12
    "##);
}

#[test]
fn a_dns_address_outside_the_services() {
    says!([with("dnsServiceIP: 10.3.1.10\n"), with("dnsServiceIP: 10.3.0.1\n"), with("dnsServiceIP: 10.3.0.255\n"), with("dnsServiceIP: ten\n")].concat(), @r##"
    15:15 error dns-service-ip at `dnsServiceIP`: `10.3.1.10` lies outside the service range 10.3.0.0/24
        write `10.3.0.10`, or remove the line
    15:15 error dns-service-ip at `dnsServiceIP`: `10.3.0.1` is the first address of the service range, which is the API's own
        write `10.3.0.10`, or remove the line
    15:15 error dns-service-ip at `dnsServiceIP`: `10.3.0.255` is an edge of the service range 10.3.0.0/24
        write `10.3.0.10`, or remove the line
    15:15 error dns-service-ip at `dnsServiceIP`: `ten` is no IPv4 address
        write an address of 10.3.0.0/24
    "##);
}

#[test]
fn subnets_that_are_not_defined() {
    says!(with("controller:\n  subnets:\n  - name: private-d\netcd:\n  subnets:\n  - name: nowhere\n"), @r##"
    17:11 error unknown-subnet at `controller.subnets[0].name`: there is no subnet `private-d`
        did you mean `private-a`?
    20:11 error unknown-subnet at `etcd.subnets[0].name`: there is no subnet `nowhere`
        write one of `public-a`, `private-a`, `private-b`, `private-c`
    "##);
}

#[test]
fn no_subnet_at_all() {
    says!(told_of("clusterName: a\nregion: eu-west-1\nkubernetesVersion: 1.37\napiEndpoints: [{name: a, dnsName: a.b}]\nworker: {nodePools: [{name: a}]}\n"), @r##"
    0:0 error missing-key at `subnets`: the cluster has no subnet
        add `subnets`, each with `availabilityZone` and `instanceCIDR`, or `availabilityZone` for a single one
    "##);
}

#[test]
fn empty_lists_of_subnets() {
    says!(with("controller:\n  subnets: []\n"), @r##"
    16:3 error empty-list at `controller.subnets`: no subnet is named
        name at least one, or remove the key for the default
    "##);
}

#[test]
fn an_empty_list_of_subnets_for_the_cluster() {
    says!(told_of("clusterName: a\nregion: eu-west-1\nkubernetesVersion: 1.37\napiEndpoints: [{name: a, dnsName: a.b}]\nsubnets: []\nworker: {nodePools: [{name: a}]}\n"), @r##"
    5:1 error missing-key at `subnets`: the cluster has no subnet
        add `subnets`, each with `availabilityZone` and `instanceCIDR`, or `availabilityZone` for a single one
    "##);
}

#[test]
fn a_subnet_with_neither_range_nor_id() {
    says!(instead(", instanceCIDR: 10.0.3.0/24", ""), @r##"
    11:3 error missing-key at `subnets[3]`: the subnet has neither a range nor an id
        add `instanceCIDR` for a subnet to be made, or `id` for one that exists
    "##);
}

#[test]
fn subnets_and_the_keys_of_a_single_one() {
    says!(with("availabilityZone: eu-west-1a\ninstanceCIDR: 10.0.9.0/24\n"), @r##"
    15:19 error given-twice at `availabilityZone`: `availabilityZone` is for a cluster without `subnets`
        remove it: each of `subnets` has its own
    16:15 error given-twice at `instanceCIDR`: `instanceCIDR` is for a cluster without `subnets`
        remove it: each of `subnets` has its own
    "##);
}

#[test]
fn names_that_are_used_twice() {
    says!([instead("private-c", "private-b"), instead("private-c", "privateB"), with("  - name: general\n")].concat(), @r##"
    11:10 error duplicate-name at `subnets[3].name`: the subnet `private-b` is named twice
        give each a name of its own
    11:10 error duplicate-name at `subnets[3].name`: the subnet `privateB` is named twice
        it differs from `private-b` in hyphens or case only, which is not enough
    15:11 error duplicate-name at `worker.nodePools[1].name`: the pool `general` is named twice
        give each a name of its own
    "##);
}

#[test]
fn public_and_private_subnets_in_one_group() {
    says!(with("controller:\n  subnets:\n  - name: public-a\n  - name: private-a\n"), @r##"
    16:3 error mixed-subnets at `controller.subnets`: public and private subnets are mixed here
        name subnets of one kind
    "##);
}

#[test]
fn an_existing_subnet_in_a_new_vpc() {
    says!(instead("instanceCIDR: 10.0.3.0/24", "id: subnet-0123456789abcdef0"), @r##"
    11:55 error subnet-without-vpc at `subnets[3].id`: an existing subnet cannot lie in a VPC that is yet to be made
        add `vpc: {id: …}` with the VPC in which it lies
    "##);
}

#[test]
fn an_existing_vpc_without_what_it_needs() {
    says!([with("vpc: {id: vpc-0123456789abcdef0}\n"), with("vpc: {id: my-vpc}\nvpcCIDR: 10.0.0.0/16\n")].concat(), @r##"
    15:1 error missing-key at `vpc`: the range of the existing VPC is not given
        add `vpcCIDR` with the VPC's range: subnets and the other ranges are checked against it
    8:3 error no-internet-gateway at `subnets[0]`: a public subnet in an existing VPC needs its internet gateway
        add `internetGateway: {id: …}`, or give the subnet a `routeTable` that leads to it, or make it `private`
    15:11 error id-syntax at `vpc.id`: `my-vpc` does not name one
        write an id such as `vpc-0123456789abcdef0`
    "##);
}

#[test]
fn a_private_subnet_without_a_way_out() {
    says!(told_of("clusterName: a\nregion: eu-west-1\nkubernetesVersion: 1.37\napiEndpoints: [{name: a, dnsName: a.b, loadBalancer: {private: true}}]\nsubnets: [{availabilityZone: eu-west-1a, instanceCIDR: 10.0.0.0/24, private: true}]\nworker: {nodePools: [{name: a}]}\n"), @r##"
    5:11 error no-public-subnet at `subnets[0]`: the private subnet `Subnet0` has no way out
        add a public subnet for its NAT gateway, or give `natGateway: {id: …}` or `routeTable: {id: …}`
    "##);
}

#[test]
fn gateways_that_contradict() {
    says!(instead("instanceCIDR: 10.0.0.0/24}", "instanceCIDR: 10.0.0.0/24, natGateway: {id: nat-0123456789abcdef0, eipAllocationId: eipalloc-0123456789abcdef0}}"), @r##"
    8:77 error existing-in-new-vpc at `subnets[0].natGateway`: an existing NAT gateway cannot lie in a VPC that is yet to be made
        add `vpc: {id: …}` with the VPC in which it lies
    8:77 error given-twice at `subnets[0].natGateway`: the NAT gateway both exists and is to be made
        keep `id` for a gateway that exists, or `eipAllocationId` for one to be made
    8:77 error nat-of-public-subnet at `subnets[0].natGateway`: a public subnet needs no NAT gateway
        write `private: true` if its machines reach the internet through a gateway, else remove it
    "##);
}

#[test]
fn no_endpoint() {
    says!(instead("apiEndpoints:\n- name: default\n  dnsName: api.example.com\n", ""), @r##"
    0:0 error missing-key at `apiEndpoints`: nothing says under which name the API is reached
        add `apiEndpoints: [{name: default, dnsName: api.example.com}]`
    "##);
}

#[test]
fn two_endpoints_need_a_choice() {
    says!(instead("  dnsName: api.example.com\n", "  dnsName: api.example.com\n- name: nodes\n  dnsName: nodes.example.com\n"), @r##"
    0:0 error endpoint-choice at `adminAPIEndpointName`: nothing says which of the 2 endpoints the administrator's kubeconfig names
        add `adminAPIEndpointName` with one of `default`, `nodes`
    14:1 error endpoint-choice at `worker.apiEndpointName`: nothing says which of the 2 endpoints workers go through
        add `worker.apiEndpointName` with one of `default`, `nodes`
    "##);
}

#[test]
fn two_endpoints_of_one_name() {
    says!(instead("  dnsName: api.example.com\n", "  dnsName: api.example.com\n- name: default\n  dnsName: API.example.com\nadminAPIEndpointName: defualt\n"), @r##"
    7:9 error duplicate-name at `apiEndpoints[1].name`: the endpoint `default` is named twice
        give each a name of its own
    8:12 error duplicate-name at `apiEndpoints[1].dnsName`: the DNS name `API.example.com` is named twice
        it differs from `api.example.com` in hyphens or case only, which is not enough
    9:23 error unknown-endpoint at `adminAPIEndpointName`: there is no endpoint `defualt`
        did you mean `default`?
    15:1 error endpoint-choice at `worker.apiEndpointName`: nothing says which of the 2 endpoints workers go through
        add `worker.apiEndpointName` with one of `default`
    "##);
}

#[test]
fn a_record_without_a_zone() {
    says!(instead("  dnsName: api.example.com\n", "  dnsName: api.example.com\n  loadBalancer:\n    recordSetManaged: true\n"), @r##"
    8:23 error record-without-zone at `apiEndpoints[0].loadBalancer.recordSetManaged`: the record is to be made, but no hosted zone is given
        add `hostedZone: {id: …}`, or write `recordSetManaged: false` and make the record yourself
    "##);
}

#[test]
fn a_dns_name_that_is_a_url() {
    says!(instead("dnsName: api.example.com", "dnsName: https://api.example.com:443"), @r##"
    6:12 error dns-name at `apiEndpoints[0].dnsName`: `https://api.example.com:443` is no DNS name
        write a name such as `api.example.com`: letters, digits and hyphens between the dots, no scheme, no port
    "##);
}

#[test]
fn load_balancers_and_their_subnets() {
    says!([instead("  dnsName: api.example.com\n", "  dnsName: api.example.com\n  loadBalancer:\n    type: classic\n    subnets: [{name: private-b}]\n    apiAccessAllowedSourceCIDRs: []\n    securityGroupIds: [default]\n    hostedZone: {id: example.com.}\n"), instead("  dnsName: api.example.com\n", "  dnsName: api.example.com\n  loadBalancer:\n    private: true\n    subnets: [{name: private-a}, {name: public-a}]\n")].concat(), @r##"
    8:11 error retired-value at `apiEndpoints[0].loadBalancer.type`: classic load balancers are retired
        write `type: network`, or remove the line
    9:5 error load-balancer-subnets at `apiEndpoints[0].loadBalancer.subnets`: `private-b` is private: nothing reaches it from the internet
        name public subnets, or write `private: true`
    11:24 error id-syntax at `apiEndpoints[0].loadBalancer.securityGroupIds[0]`: `default` is no security group's id
        write an id such as `sg-0123456789abcdef0`
    12:22 error id-syntax at `apiEndpoints[0].loadBalancer.hostedZone.id`: `example.com.` is no hosted zone's id
        write one such as `Z0123456789ABC`
    9:5 error load-balancer-subnets at `apiEndpoints[0].loadBalancer.subnets`: `private-a` and `public-a` lie in the same zone
        name one subnet for each zone: a network load balancer takes no more
    9:5 error mixed-subnets at `apiEndpoints[0].loadBalancer.subnets`: public and private subnets are mixed here
        name subnets of one kind
    "##);
}

#[test]
fn kms_keys() {
    says!([with("kmsKeyArn: arn:aws:kms:us-east-1:111122223333:key/a\n"), with("kmsKeyArn: alias/mine\n")].concat(), @r##"
    15:12 error kms-region at `kmsKeyArn`: the key lies in us-east-1, the cluster elsewhere
        take a key of eu-west-1, or a replica of this one there
    15:12 error arn-syntax at `kmsKeyArn`: `alias/mine` is no ARN of a KMS key
        write one such as `arn:aws:kms:eu-west-1:111122223333:key/…`
    "##);
}

#[test]
fn images() {
    says!([with("amiId: ubuntu\n"), with("amiId: ami-0123456789abcdef0\nimage: {ssmParameters: {arm64: /a}}\n"), with("image: {}\n"), with("image: {ssmParameters: {arm64: /a}}\n"), with("amiId: ami-0123456789abcdef0\netcd: {instanceType: m7g.large}\n")].concat(), @r##"
    15:8 error id-syntax at `amiId`: `ubuntu` is no image's id
        write one such as `ami-0123456789abcdef0`
    16:9 error image at `image.ssmParameters`: the image is given twice
        keep one of `amiId`, `image.amiId` and `image.ssmParameters`
    15:1 error image at `image`: the image is not given
        write `amiId`, or `ssmParameters` with `arm64` or `x86_64`
    0:0 error image-architecture at `controller.instanceType`: `t3.medium` is x86_64, for which the image is not made
        choose instance types of one architecture, or give `image.ssmParameters` for both
    0:0 error image-architecture at `etcd.instanceType`: `t3.medium` is x86_64, for which the image is not made
        choose instance types of one architecture, or give `image.ssmParameters` for both
    14:5 error image-architecture at `worker.nodePools[0].instanceType`: `t3.medium` is x86_64, for which the image is not made
        choose instance types of one architecture, or give `image.ssmParameters` for both
    16:22 error image-architecture at `etcd.instanceType`: `m7g.large` is arm64, for which the image is not made
        choose instance types of one architecture, or give `image.ssmParameters` for both
    "##);
}

#[test]
fn ssh_keys() {
    says!(with("sshAuthorizedKeys:\n- \"-----BEGIN OPENSSH PRIVATE KEY-----\"\n"), @r##"
    16:3 error ssh-key at `sshAuthorizedKeys[0]`: this is no public ssh key
        write the one line of a `.pub` file, such as `ssh-ed25519 AAAA… name`
    "##);
}

#[test]
fn a_region_that_is_not_the_installations() {
    let at = |region| parse(BASE.as_bytes(), Some(&Expected { name: "base", region }));
    says!(findings_text(&at(Some("us-west-2")).unwrap_err()), @r##"
    2:9 error other-region at `region`: the cluster is for `eu-west-1`, but this installation works in `us-west-2`
        upload it to the installation in `eu-west-1`, or write `region: us-west-2`
    "##);
    assert!(at(Some("eu-west-1")).is_ok());
    assert!(at(None).is_ok(), "a person's machine is in no region");
}
