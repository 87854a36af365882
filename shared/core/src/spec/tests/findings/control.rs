//! Controllers: how many, on what, with which files and units. What is said of files and units holds for every role.

use super::*;
use crate::cluster::{Cluster, Content, Tenancy};

fn cluster(more: &str) -> Cluster {
    match parse(format!("{BASE}{more}").as_bytes(), None) {
        Ok(accepted) => accepted.cluster,
        Err(findings) => panic!("{more}\n{}", told(&findings)),
    }
}

/// What is said of each piece, under its name.
fn told_of_each(pieces: &[(&str, &str)]) -> String {
    pieces.iter().map(|(name, keys)| format!("# {name}\n{}\n", with(keys))).collect()
}

#[test]
fn a_group_of_one_size_says_how_many_controllers_there_are() {
    assert_eq!(cluster("").controller.count, 1);
    for size in ["{minSize: 3, maxSize: 3}", "{minSize: 3}", "{maxSize: 3}"] {
        assert_eq!(
            cluster(&format!("controller: {{autoScalingGroup: {size}}}\n")).controller.count,
            3,
            "{size}"
        );
    }
    insta::assert_snapshot!(told_of_each(&[
        ("a range", "controller: {autoScalingGroup: {minSize: 1, maxSize: 3}}\n"),
        ("both", "controller: {count: 3, autoScalingGroup: {minSize: 3}}\n"),
        ("none", "controller: {autoScalingGroup: {maxSize: 0}}\n"),
        (
            "kube-aws' own",
            "controller: {autoScalingGroup: {minSize: 3, maxSize: 3, rollingUpdateMinInstancesInService: 2}}\n"
        ),
    ]));
}

#[test]
fn tenancy_is_of_each_role_by_itself() {
    let cluster = cluster("    tenancy: default\ncontroller: {tenancy: dedicated}\n");
    assert_eq!(cluster.controller.tenancy, Tenancy::Dedicated);
    assert_eq!((cluster.etcd.tenancy, cluster.pools[0].tenancy), (Tenancy::Default, Tenancy::Default));
    says!(with("etcd: {tenancy: host}\n"), @r"
    15:17 error unknown-value at `etcd.tenancy`: `host` is none of `default`, `dedicated`
        write one of these words
    ");
}

#[test]
fn strict_names_are_the_whole_name() {
    insta::assert_snapshot!(told_of_each(&[
        ("without a name", "controller: {iam: {role: {strictName: true}}}\n"),
        (
            "too long, though the stack's name is not before it",
            &format!("controller: {{iam: {{role: {{strictName: true, name: {}}}}}}}\n", "a".repeat(65))
        ),
        (
            "too long with the member's number",
            &format!("etcd: {{iam: {{role: {{strictName: true, name: {}}}}}}}\n", "a".repeat(63))
        ),
        (
            "the same twice",
            "    iam: {role: {strictName: true, name: nodes}}\ncontroller: {iam: {role: {strictName: true, name: nodes}}}\n"
        ),
        ("fits", &format!("controller: {{iam: {{role: {{strictName: true, name: {}}}}}}}\n", "a".repeat(64))),
    ]));
}

#[test]
fn files_are_written_where_they_may_be() {
    insta::assert_snapshot!(told_of_each(&[
        (
            "paths",
            "controller:\n  customFiles:\n  - {path: etc/a, content: a}\n  - {path: /etc//a, content: a}\n  - {path: /etc/../a, content: a}\n  - {path: /etc/a/, content: a}\n  - {path: /, content: a}\n"
        ),
        (
            "places of Slipway's and of the machine's",
            "etcd:\n  customFiles:\n  - {path: /etc/kubernetes/pki/ca.crt, content: a}\n  - {path: /etc/kubernetes/custom, content: a}\n  - {path: /var/lib/etcd/a, content: a}\n  - {path: /etc/systemd/system/a.service, content: a}\n  - {path: /home/ec2-user/.ssh/authorized_keys, content: a}\n  - {path: /etc/kubernetes/custom/webhook.yaml, content: a}\n  - {path: /etc/etcd.d/a, content: a}\n"
        ),
        (
            "modes and owners",
            "controller:\n  customFiles:\n  - {path: /a, content: a, permissions: 0689}\n  - {path: /b, content: a, permissions: 44}\n  - {path: /c, content: a, permissions: 0200}\n  - {path: /d, content: a, owner: \"Root:\"}\n  - {path: /e, content: a, permissions: \"04755\", owner: 1000:adm}\n"
        ),
        (
            "contents",
            "controller:\n  customFiles:\n  - {path: /a}\n  - {path: /b, content: a, contentBase64: YQ==}\n  - {path: /c, contentBase64: \"a b c\"}\n  - {path: /d, content: a}\n  - {path: /d, content: b}\n"
        ),
        (
            "kube-aws' templates and sealed files",
            "controller:\n  customFiles:\n  - {path: /a, template: \"{{.ClusterName}}\"}\n  - {path: /b, type: credential, content: a}\n"
        ),
        (
            "too much",
            &format!("    customFiles:\n    - {{path: /a, content: {}}}\n", "a".repeat(64 * 1024 + 1))
        ),
    ]));
}

#[test]
fn units_are_systemds() {
    insta::assert_snapshot!(told_of_each(&[
        (
            "names",
            "controller:\n  customSystemdUnits:\n  - {name: proxy, content: a}\n  - {name: a/b.service, content: a}\n  - {name: a.scope, content: a}\n  - {name: \"a@b.service\", content: a}\n  - {name: \"a@b.service\", content: a}\n"
        ),
        (
            "units of Slipway's",
            "    customSystemdUnits:\n    - {name: kubelet.service, content: a}\n    - {name: containerd.service, command: restart}\n    - {name: slipway-node.service, enable: true}\n    - name: containerd.service\n      drop-ins: [{name: 10-proxy.conf, content: a}]\n"
        ),
        (
            "what is done with them",
            "etcd:\n  customSystemdUnits:\n  - {name: a.service}\n  - {name: b.service, enable: true, content: \"[Service]\"}\n  - {name: c.service, command: launch}\n  - {name: d.service, drop-ins: [{name: d, content: a}, {name: e.conf}, {name: f.conf, content: a}, {name: f.conf, content: a}]}\n"
        ),
    ]));
}

#[test]
fn p9_no_private_key_comes_in_by_a_file_or_unit() {
    let pem = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIBkg4LVWM9nuwNSk3yByxZpYRTBnVJk5\n-----END EC PRIVATE KEY-----\n";
    let quoted = format!("{pem:?}");
    let sealed = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, pem);
    for keys in [
        format!("controller:\n  customFiles: [{{path: /a, content: {quoted}}}]\n"),
        format!("controller:\n  customFiles: [{{path: /a, content: \"key: {sealed}\"}}]\n"),
        format!("etcd:\n  customFiles: [{{path: /a, contentBase64: {sealed}}}]\n"),
        format!("    customSystemdUnits: [{{name: a.service, content: {quoted}}}]\n"),
        format!(
            "    customSystemdUnits: [{{name: a.service, drop-ins: [{{name: a.conf, content: {quoted}}}]}}]\n"
        ),
    ] {
        let told = with(&keys);
        assert!(told.contains("error secret-in-spec"), "{keys}\n{told}");
        assert!(!told.contains("MHcCAQEE") && !told.contains(&sealed[..20]), "{told}");
    }
}

#[test]
fn files_and_units_have_one_order_and_one_form() {
    let one = cluster(
        "controller:\n  customFiles:\n  - {path: /b, content: \"\\u00e9\\n\", permissions: 600}\n  - {path: /a, contentBase64: /w==, owner: root:adm}\n  customSystemdUnits:\n  - {name: b.service, command: start, content: x}\n  - {name: a.service, drop-ins: [{name: 2.conf, content: x}, {name: 1.conf, content: y}]}\n",
    );
    let other = cluster(
        "controller:\n  customFiles:\n  - {path: /a, contentBase64: \"/w\\n==\", owner: root:adm, permissions: \"0644\"}\n  - {path: /b, contentBase64: w6kK, permissions: 0600}\n  customSystemdUnits:\n  - {name: a.service, drop-ins: [{name: 1.conf, content: y}, {name: 2.conf, content: x}]}\n  - {name: b.service, command: start, content: x}\n",
    );
    assert_eq!(one, other);
    let files: Vec<_> = one.controller.custom.files.iter().map(|file| (&file.content, &*file.mode)).collect();
    assert_eq!(
        files,
        [(&Content::Base64("/w==".to_owned()), "0644"), (&Content::Text("é\n".to_owned()), "0600")]
    );
    insta::assert_json_snapshot!(one.controller.custom);
}
