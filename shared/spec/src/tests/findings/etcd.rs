//! What may be said of etcd's members.

use slipway_core::cluster::{Cluster, Volume};

use super::super::super::parse;
use super::BASE;

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
    assert_eq!(accepted("etcd: {count: 5, nodes: [{name: a}]}\n").etcd.members[4].name, "etcd-4");
}

#[test]
fn a_hosted_zone_that_exists() {
    let cluster = accepted(
        "etcd: {hostedZone: {id: /hostedzone/Z0123456789ABC}, internalDomainName: Prod.Corp.internal}\n",
    );
    assert_eq!(cluster.etcd.hosted_zone_id.as_deref(), Some("Z0123456789ABC"));
    assert_eq!(cluster.etcd.members[0].dns_name, "etcd-0.prod.corp.internal");
}

#[test]
fn kubelets_that_lag() {
    let pool = &accepted("    kubernetesVersion: 1.34.2\n").pools[0];
    assert_eq!(pool.kubernetes_version.unwrap().to_string(), "1.34.2");
    // The cluster's own version is no version of its own.
    assert_eq!(accepted("    kubernetesVersion: \"1.37\"\n").pools[0].kubernetes_version, None);
}
