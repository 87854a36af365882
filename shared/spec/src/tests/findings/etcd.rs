//! What may be said of etcd's members.

use slipway_core::cluster::{Cluster, Volume};

use super::super::super::parse;
use super::{BASE, with};

fn accepted(more: &str) -> Cluster {
    let text = format!("{BASE}{more}");
    parse(text.as_bytes(), None).unwrap_or_else(|found| panic!("{}", super::findings_text(&found))).cluster
}

#[test]
fn members_have_what_all_have_unless_they_say_otherwise() {
    let cluster = accepted(
        "etcd:\n  dataVolume: {type: io2, size: 50, iops: 4000}\n  nodes:\n  - name: Alpha\n  - fqdn: Second.base.etcd.internal.\n    subnet: {name: private-a}\n    dataVolume: {size: 80}\n  - dataVolume: {type: gp3, throughput: 500}\n",
    );
    let members = &cluster.etcd.members;
    let names: Vec<(&str, &str)> =
        members.iter().map(|member| (member.name.as_str(), member.dns_name.as_str())).collect();
    assert_eq!(
        names,
        [
            ("Alpha", "alpha.base.etcd.internal"),
            ("etcd-1", "second.base.etcd.internal"),
            ("etcd-2", "etcd-2.base.etcd.internal")
        ]
    );
    let subnets: Vec<&str> = members.iter().map(|member| member.subnet.as_str()).collect();
    assert_eq!(subnets, ["private-a", "private-a", "private-c"]);
    let volume = |kind: &str, size_gib, iops, throughput| Volume {
        size_gib,
        kind: kind.to_owned(),
        iops,
        throughput,
        kms_key_arn: None,
    };
    assert_eq!(members[0].data_volume, volume("io2", 50, Some(4000), None));
    assert_eq!(members[1].data_volume, volume("io2", 80, Some(4000), None));
    // Operations belong to a kind of volume: who names another takes none along, who names the default keeps them.
    let fast = accepted("etcd: {dataVolume: {iops: 5000}, nodes: [{dataVolume: {type: gp3}}]}\n");
    assert_eq!(fast.etcd.members[0].data_volume.iops, Some(5000));
    assert_eq!(members[2].data_volume, volume("gp3", 50, None, Some(500)));
}

#[test]
fn nodes_beside_the_count() {
    says!([
        with("etcd:\n  count: 1\n  nodes: [{name: a}, {name: b}, {name: c}]\n"),
        with("etcd:\n  nodes: [{name: a}, {name: b}]\n"),
    ].concat(), @r##"
    17:3 error etcd-nodes at `etcd.nodes`: `nodes` describes 3 members, and `count` asks for 1
        remove those that are too many, or write `count: 3`
    16:3 error etcd-count at `etcd.nodes`: 2 etcd members survive no more failures than 1, and have one more to fail
        write 1, 3 or 5
    "##);
    assert_eq!(accepted("etcd: {count: 5, nodes: [{name: a}]}\n").etcd.members[4].name, "etcd-4");
}

#[test]
fn names_of_members() {
    says!([
        with("etcd:\n  nodes: [{name: a}, {name: A}, {name: c}]\n"),
        with("etcd:\n  nodes: [{name: a}, {fqdn: a.base.etcd.internal}, {name: c}]\n"),
        with("etcd:\n  nodes: [{name: a.b}]\n"),
        with("etcd:\n  nodes: [{fqdn: etcd-0.example.com}]\n"),
        with("etcd:\n  nodes: [{fqdn: a_b.base.etcd.internal}]\n"),
    ].concat(), @r##"
    16:29 error duplicate-name at `etcd.nodes[1].name`: the member `A` is named twice
        it differs from `a` in hyphens or case only, which is not enough
    16:29 error duplicate-name at `etcd.nodes[1].fqdn`: the DNS name `a.base.etcd.internal` is named twice
        give each a name of its own
    16:18 error name-syntax at `etcd.nodes[0].name`: `a.b` cannot be a member's name
        write letters, digits and hyphens, 63 at most: it begins the member's DNS name
    16:18 error etcd-domain at `etcd.nodes[0].fqdn`: `etcd-0.example.com` does not lie in `base.etcd.internal`, where the members' records are kept
        write a name below it, or set `etcd.internalDomainName` to the domain that holds all of them
    16:18 error dns-name at `etcd.nodes[0].fqdn`: `a_b.base.etcd.internal` is no DNS name
        write a name such as `etcd-0.prod.etcd.internal`
    "##);
}

#[test]
fn a_hosted_zone_that_exists() {
    says!([
        with("etcd: {hostedZone: {id: Z0123456789ABC}}\n"),
        with("etcd: {hostedZone: {id: zone}, internalDomainName: corp.internal}\n"),
        with("etcd: {hostedZone: {}, internalDomainName: corp.internal}\n"),
    ].concat(), @r##"
    15:8 error etcd-domain at `etcd.hostedZone`: `etcd.hostedZone` is given, but not `etcd.internalDomainName`, which says what the names in it end with
        add `internalDomainName`: the zone's domain, or one below it that no other cluster uses
    15:25 error id-syntax at `etcd.hostedZone.id`: `zone` is no hosted zone's id
        write one such as `Z0123456789ABC`
    15:8 error id-syntax at `etcd.hostedZone`: the hosted zone is not named
        add its `id`, or remove the key: a zone is made then
    "##);
    let cluster = accepted(
        "etcd: {hostedZone: {id: /hostedzone/Z0123456789ABC}, internalDomainName: Prod.Corp.internal}\n",
    );
    assert_eq!(cluster.etcd.hosted_zone_id.as_deref(), Some("Z0123456789ABC"));
    assert_eq!(cluster.etcd.members[0].dns_name, "etcd-0.prod.corp.internal");
}

#[test]
fn places_and_volumes_of_members() {
    says!([
        with("etcd:\n  nodes: [{subnet: {name: private-d}}]\n"),
        with("etcd:\n  nodes: [{subnet: {name: public-a}}, {}, {}]\n"),
        with("etcd:\n  nodes: [{subnet: {name: private-b}}, {}, {}]\n"),
        with("etcd:\n  nodes: [{dataVolume: {type: gp2, iops: 3000}}]\n"),
    ].concat(), @r##"
    16:27 error unknown-subnet at `etcd.nodes[0].subnet.name`: there is no subnet `private-d`
        write one of `public-a`, `private-a`, `private-b`, `private-c`
    16:3 error mixed-subnets at `etcd.nodes`: public and private subnets are mixed here
        name subnets of one kind
    16:3 warning etcd-zones at `etcd.nodes`: 2 of 3 etcd members stand in eu-west-1b: without that zone the cluster has no quorum
        name subnets in three zones
    16:42 error volume at `etcd.nodes[0].dataVolume.iops`: gp2 takes no `iops`
        write `type: gp3`, or remove the line
    "##);
}

#[test]
fn what_kube_aws_said_of_members() {
    says!([
        with("etcd: {memberIdentityProvider: eni}\n"),
        with("etcd: {memberIdentityProvider: dns}\n"),
        with("etcd: {manageRecordSets: false, kmsKeyArn: x}\n"),
        with("etcd: {topology: stacked}\n"),
    ].concat(), @r##"
    15:8 warning translated-key at `etcd.memberIdentityProvider`: `memberIdentityProvider` is a key of kube-aws, taken in its modern form
        remove it: a member has a volume and a name in a private zone, and keeps both without an address of its own
    15:8 warning translated-key at `etcd.memberIdentityProvider`: `memberIdentityProvider` is a key of kube-aws, taken in its modern form
        remove it: a member has a volume and a name in a private zone, and keeps both without an address of its own
    15:32 error unknown-value at `etcd.memberIdentityProvider`: `dns` is none of `eip`, `eni`
        write one of these words
    15:8 error retired-key at `etcd.manageRecordSets`: `manageRecordSets` is a key of kube-aws that Slipway does not take
        remove it: members keep their own records
    15:33 error retired-key at `etcd.kmsKeyArn`: `kmsKeyArn` is a key of kube-aws that Slipway does not take
        write `etcd.dataVolume.kmsKeyArn`
    15:18 error etcd-stacked at `etcd.topology`: etcd on the controllers (`stacked`) is not supported yet
        remove the line: etcd runs on machines of its own, and a small cluster does with `count: 1`
    "##);
    assert_eq!(with("etcd: {topology: external}\n"), "");
}

#[test]
fn kubelets_that_lag() {
    says!([
        with("    kubernetesVersion: \"1.38\"\n"),
        super::told_of(BASE.replace("1.37", "1.34").to_owned() + "    kubernetesVersion: \"1.35\"\n"),
    ].concat(), @r##"
    15:24 error kubernetes-version at `worker.nodePools[0].kubernetesVersion`: Kubernetes 1.38 is not supported
        write one from `1.34` to `1.37`
    15:24 error kubelet-skew at `worker.nodePools[0].kubernetesVersion`: kubelets of 1.35 would be newer than the API server, whose `kubernetesVersion` is 1.34
        write 1.34 at most, or raise the cluster's `kubernetesVersion` first
    "##);
    let pool = &accepted("    kubernetesVersion: 1.34.2\n").pools[0];
    assert_eq!(pool.kubernetes_version.unwrap().to_string(), "1.34.2");
    // The cluster's own version is no version of its own.
    assert_eq!(accepted("    kubernetesVersion: \"1.37\"\n").pools[0].kubernetes_version, None);
}
