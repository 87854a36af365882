//! What AWS itself refuses, or takes and then starts no machine with.

use super::*;

const ARN: &str = "arn:aws:kms:eu-west-1:111122223333";
const GROUP: &str = "arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/web/0123456789abcdef";
const NLB: &str =
    "arn:aws:elasticloadbalancing:eu-west-1:111122223333:loadbalancer/net/shared/0123456789abcdef";

fn pool(keys: &str) -> String {
    with(&keys.lines().map(|line| format!("    {line}\n")).collect::<String>())
}

#[test]
fn a_key_is_named_itself_and_in_the_clusters_region() {
    assert_eq!(with(&format!("kmsKeyArn: {ARN}:key/mrk-1234\n")), "");
    let foreign = "arn:aws:kms:us-east-1:111122223333:key/a";
    insta::assert_snapshot!([
        with(&format!("kmsKeyArn: {ARN}:alias/mine\n")),
        with(&format!("kmsKeyArn: '{ARN}:key/'\n")),
        pool(&format!("rootVolume: {{kmsKeyArn: '{foreign}'}}\nvolumeMounts:\n- {{device: /dev/xvdf, size: 10, path: /data, kmsKeyArn: '{ARN}:alias/mine'}}")),
        with(&format!("etcd: {{dataVolume: {{kmsKeyArn: '{foreign}'}}}}\n")),
    ].concat());
}

#[test]
fn a_pools_target_groups_lie_in_its_region_and_types_are_named_once() {
    assert_eq!(pool(&format!("targetGroup: {{arns: ['{GROUP}']}}")), "");
    insta::assert_snapshot!(
        [
            pool(&format!("targetGroup: {{arns: ['{}']}}", GROUP.replace("eu-west-1", "us-east-1"))),
            pool("mixedInstances: {instanceTypes: [m7i.large, m7i.large]}"),
        ]
        .concat()
    );
}

#[test]
fn a_volumes_settings_are_held_to_each_other() {
    for fine in [
        "rootVolume: {throughput: 750}",
        "rootVolume: {size: 8}",
        "rootVolume: {size: 200, iops: 80000, throughput: 2000}",
        "rootVolume: {type: io1, iops: 1500}",
        "rootVolume: {type: io2, iops: 30000}",
        "amiId: ami-0123456789abcdef0\nrootVolume: {size: 4}",
        "volumeMounts: [{device: /dev/xvdf, size: 1, path: /data, iops: 3000}]",
    ] {
        assert_eq!(pool(fine), "", "{fine}");
    }
    insta::assert_snapshot!(
        [
            pool("rootVolume: {throughput: 1000}"),
            pool("rootVolume: {iops: 16000}"),
            pool("rootVolume: {size: 200, iops: 90000}"),
            pool("rootVolume: {type: io1, iops: 1501}"),
            pool("rootVolume: {type: io2, size: 40, iops: 40001}"),
            pool("rootVolume: {type: gp2, size: 20000}"),
            pool("rootVolume: {size: 7}"),
            pool("volumeMounts: [{device: /dev/xvdf, size: 3, path: /data, type: io1, iops: 100}]"),
            pool("instanceType: g5.xlarge\ngpu: {nvidia: {enabled: true}}\nrootVolume: {size: 50}"),
            with("etcd: {rootVolume: {size: 4}, dataVolume: {size: 10, iops: 6000}}\n"),
        ]
        .concat()
    );
}

#[test]
fn a_balancer_has_one_endpoint() {
    let two = |first: &str, second: &str| {
        told_of(BASE.replacen(
            "  dnsName: api.example.com\n",
            &format!("  dnsName: api.example.com\n  loadBalancer: {{{first}}}\n- name: inside\n  dnsName: inside.example.com\n  loadBalancer: {{{second}}}\nadminAPIEndpointName: default\n"),
            1,
        ).replacen("worker:\n", "worker:\n  apiEndpointName: default\n", 1))
    };
    let groups = "securityGroupIds: [sg-0123456789abcdef0]";
    let other = NLB.replace("shared", "other");
    assert_eq!(two(&format!("id: '{NLB}', {groups}"), &format!("id: '{other}', {groups}")), "");
    assert_eq!(
        two(
            &format!("id: '{NLB}', {groups}"),
            "managed: false, dnsName: nlb.example.com, hostedZone: {id: Z0123456789ABC}"
        ),
        ""
    );
    insta::assert_snapshot!(
        [
            two(&format!("id: '{NLB}', {groups}"), &format!("id: '{NLB}', {groups}")),
            two(
                &format!("idFromStackOutput: shared-Balancer, {groups}"),
                &format!("idFromStackOutput: shared-Balancer, {groups}")
            ),
            two(
                "private: false",
                &format!(
                    "managed: false, targetGroup: {{arns: ['{}']}}",
                    GROUP.replace("eu-west-1", "us-east-1")
                )
            ),
        ]
        .concat()
    );
}

#[test]
fn nothing_is_mounted_over_what_the_machine_needs() {
    let mount = |path: &str| pool(&format!("volumeMounts: [{{device: /dev/xvdf, size: 10, path: {path}}}]"));
    for refused in [
        "/",
        "/var",
        "/var/lib",
        "/var/lib/slipway",
        "/var/lib/slipway/state",
        "/var/lib/amazon",
        "/etc",
        "/etc/kubernetes",
        "/etc/kubernetes/custom",
        "/etc/systemd/system",
        "/usr",
        "/usr/local",
        "/home",
        "/opt",
        "/run/data",
        "/root",
        "/boot/efi",
    ] {
        let told = mount(refused);
        assert!(told.contains("error mount-path") && told.contains("would hide"), "{refused}: {told}");
    }
    for fine in [
        "/var/lib/containerd",
        "/var/lib/kubelet",
        "/var/log",
        "/var/data",
        "/opt/tools",
        "/srv/builds",
        "/etc-of-mine",
    ] {
        assert_eq!(mount(fine), "", "{fine}");
    }
}

#[test]
fn a_machines_disks_and_its_volumes_stay_apart() {
    let both = |store: &str, path: &str| {
        pool(&format!(
            "instanceType: m7gd.large\nephemeralStorage: {{{store}}}\nvolumeMounts: [{{device: /dev/xvdf, size: 10, path: {path}}}]"
        ))
    };
    assert_eq!(both("path: /fast", "/var/lib/containerd"), "");
    assert_eq!(both("", "/fast"), "");
    insta::assert_snapshot!(
        [
            both("", "/var/lib/containerd"),
            both("", "/var/log"),
            both("path: /fast", "/fast/inner"),
            both("path: /fast", "/fast")
        ]
        .concat()
    );
}

#[test]
fn balancers_must_be_able_to_ask_for_health() {
    insta::assert_snapshot!(
        [
            with("kubernetes: {apiServer: {flags: [{name: anonymous-auth, value: 'false'}]}}\n"),
            with("kubernetes: {apiServer: {volumes: [{name: all, path: /etc}]}}\n"),
        ]
        .concat()
    );
}
