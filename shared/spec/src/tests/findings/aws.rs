//! What AWS itself refuses, or takes and then starts no machine with.

use super::*;

const NLB: &str =
    "arn:aws:elasticloadbalancing:eu-west-1:111122223333:loadbalancer/net/shared/0123456789abcdef";

fn pool(keys: &str) -> String {
    with(&keys.lines().map(|line| format!("    {line}\n")).collect::<String>())
}

#[test]
fn a_balancer_has_one_endpoint() {
    let two = |first: &str, second: &str| {
        findings_in(BASE.replacen(
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
