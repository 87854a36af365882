//! Controllers: how many, on what, with which files and units. What is said of files and units holds for every role.

use slipway_core::cluster::{Cluster, Content, Tenancy};

use super::*;

fn cluster(more: &str) -> Cluster {
    match parse(format!("{BASE}{more}").as_bytes(), None) {
        Ok(accepted) => accepted.cluster,
        Err(findings) => panic!("{more}\n{}", findings_text(&findings)),
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
            "etcd:\n  customFiles:\n  - {path: /etc/kubernetes/pki/ca.crt, content: a}\n  - {path: /etc/kubernetes/custom, content: a}\n  - {path: /var/lib/etcd/a, content: a}\n  - {path: /etc/systemd/system/a.service, content: a}\n  - {path: /\u{68}ome/ec2-user/.ssh/authorized_keys, content: a}\n  - {path: /etc/kubernetes/custom/webhook.yaml, content: a}\n  - {path: /etc/etcd.d/a, content: a}\n"
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

#[test]
fn components_have_flags_that_are_not_slipways() {
    insta::assert_snapshot!(told_of_each(&[
        (
            "the API server's",
            "kubernetes:\n  apiServer:\n    flags:\n    - {name: --v, value: \"4\"}\n    - {name: oidc-issuer-url, value: a}\n    - {name: audit-log-maxage, value: a}\n    - {name: etcd-servers, value: a}\n    - {name: service-cluster-ip-range, value: a}\n    - {name: v, value: \"2\"}\n    - {name: v, value: \"3\"}\n    - {name: audit-log-format, value: \"a\\nb\"}\n    - {name: feature-gates, value: a}\n"
        ),
        (
            "the controller manager's",
            "kubernetes:\n  controllerManager:\n    nodeMonitorGracePeriod: 50 s\n    flags:\n    - {name: pod-eviction-timeout, value: 1m}\n    - {name: node-monitor-grace-period, value: 1m}\n"
        ),
        ("the scheduler's", "kubernetes:\n  kubeScheduler:\n    flags: [{name: config, value: /a}]\n"),
        (
            "resources",
            "kubernetes:\n  kubeScheduler:\n    resources: {requests: {cpu: 2, memory: 1GB}, limits: {cpu: 1500m}}\n"
        ),
        (
            "volumes",
            "kubernetes:\n  apiServer:\n    volumes:\n    - {name: A, path: /a}\n    - {name: b, path: /etc/kubernetes/pki}\n    - {name: c, path: /c}\n    - {name: c, path: /d}\n"
        ),
        (
            "gates",
            "    featureGates: {all: true}\ncontroller: {featureGates: {A-B: true}}\nkubernetes: {featureGates: {a: true}}\n"
        ),
    ]));
    let kubernetes = cluster("kubernetes: {controllerManager: {nodeMonitorGracePeriod: 1m30s}}\n").kubernetes;
    assert_eq!(kubernetes.controller_manager.flags["node-monitor-grace-period"], "1m30s");
}

#[test]
fn audit_logs_fit_on_the_volume_and_policies_are_policies() {
    insta::assert_snapshot!(told_of_each(&[
        ("too large", "kubernetes: {apiServer: {auditLog: {enabled: true, maxBackup: 200}}}\n"),
        ("off, and so no matter", "kubernetes: {apiServer: {auditLog: {maxBackup: 200}}}\n"),
        ("paths", "kubernetes: {apiServer: {auditLog: {enabled: true, logPath: /var/log/../lib/a}}}\n"),
        ("output", "kubernetes: {apiServer: {auditLog: {enabled: true, logPath: \"-\", maxAge: 3}}}\n"),
        (
            "policies",
            "kubernetes: {apiServer: {auditLog: {enabled: true, policy: {apiVersion: audit.k8s.io/v1beta1, rules: [{level: All}, {level: None}]}}}}\n"
        ),
        (
            "no rules",
            "kubernetes: {apiServer: {auditLog: {policy: {apiVersion: audit.k8s.io/v1, kind: Policy}}}}\n"
        ),
    ]));
}

#[test]
fn oidc_prefixes_are_those_of_the_flags() {
    let prefix = |keys: &str| {
        let oidc = "issuerURL: https://a.example.com, clientID: b";
        let keys = format!("kubernetes: {{apiServer: {{oidc: {{{oidc}{keys}}}}}}}\n");
        cluster(&keys).kubernetes.oidc.unwrap().username_prefix
    };
    assert_eq!(prefix(""), "https://a.example.com#");
    assert_eq!(prefix(", usernameClaim: email"), "");
    assert_eq!(prefix(", usernamePrefix: \"-\""), "");
    assert_eq!(prefix(", usernamePrefix: \"oidc:\", usernameClaim: email"), "oidc:");
    insta::assert_snapshot!(told_of_each(&[
        ("what must be there", "kubernetes: {apiServer: {oidc: {}}}\n"),
        (
            "an issuer",
            "kubernetes: {apiServer: {oidc: {issuerURL: \"http://a.example.com\", clientID: b}}}\n"
        ),
        (
            "claims and prefixes",
            "kubernetes: {apiServer: {oidc: {issuerURL: \"https://a.example.com/x?y\", clientID: \"\", usernameClaim: a b, groupsPrefix: \"system:\"}}}\n"
        ),
        (
            "a certificate",
            "kubernetes: {apiServer: {oidc: {issuerURL: \"https://a.example.com\", clientID: b, certificateAuthority: c}}}\n"
        ),
    ]));
}

#[test]
fn admission_plugins_are_known_and_the_needed_ones_stay() {
    insta::assert_snapshot!(told_of_each(&[
        (
            "on",
            "kubernetes: {apiServer: {enableAdmissionPlugins: [AlwaysPullImage, AlwaysDeny, EventRateLimit, NodeRestriction, Foo]}}\n"
        ),
        ("off", "kubernetes: {apiServer: {disableAdmissionPlugins: [NodeRestriction, PodSecurity]}}\n"),
        (
            "both",
            "kubernetes: {apiServer: {enableAdmissionPlugins: [PodSecurity], disableAdmissionPlugins: [PodSecurity]}}\n"
        ),
        ("limits", "kubernetes: {apiServer: {eventRateLimits: [{type: Pod, qps: 0}]}}\n"),
    ]));
}

#[test]
fn kubelets_take_what_is_not_slipways() {
    insta::assert_snapshot!(told_of_each(&[
        (
            "reserved",
            "kubernetes: {kubelet: {systemReserved: \"cpu=100m,disk=1Gi\", kubeReserved: \"cpu=1,cpu=2\", maxPods: 251}}\n"
        ),
        ("eviction", "    kubelet: {evictionHard: {memory.free: 1Gi, nodefs.available: 110%}}\n"),
        (
            "eviction merged",
            "    kubelet: {config: {mergeDefaultEvictionSettings: true}, evictionHard: {memory.available: 1Gi}}\n"
        ),
        (
            "eviction in full",
            "    kubelet: {evictionHard: {memory.available: 1Gi, nodefs.available: 9%, nodefs.inodesFree: 5%, imagefs.available: 15%, imagefs.inodesFree: 5%}}\n"
        ),
        (
            "fields",
            "controller: {kubelet: {config: {maxPods: 3, clusterDNS: [10.0.0.1], max-pods: 3, imageGCHighTresholdPercent: 3, imageGCHighThresholdPercent: 010, allowedUnsafeSysctls: [net.core.somaxconn]}}}\n"
        ),
        (
            "kube-aws' own",
            "kubelet: {kubeReserved: a, mounts: []}\nkubernetes: {kubelet: {flags: [{name: v, value: \"2\"}], kubeconfig: a}}\n"
        ),
    ]));
    let cluster = cluster(
        "    kubelet: {maxPods: 60, config: {cpuManagerPolicy: static, topologyManagerScope: pod}}\nkubernetes: {kubelet: {maxPods: 100, kubeReserved: \"memory=1Gi, cpu=1\"}}\n",
    );
    assert_eq!(
        serde_json::to_string(&cluster.kubernetes.kubelet).unwrap(),
        r#"{"kubeReserved":{"cpu":"1","memory":"1Gi"},"maxPods":100}"#
    );
    assert_eq!(
        serde_json::to_string(&cluster.pools[0].kubelet).unwrap(),
        r#"{"cpuManagerPolicy":"static","maxPods":60,"topologyManagerScope":"pod"}"#
    );
}

#[test]
fn a_field_that_a_kubelet_of_that_minor_does_not_know_is_refused_where_it_is_said() {
    const CURVES: &str = "kubelet: {config: {tlsCurvePreferences: [X25519]}}";
    let of = |version: &str, keys: &str| {
        let text = format!("{}{keys}", BASE.replace("\"1.37\"", version));
        parse(text.as_bytes(), None).err().map_or_else(String::new, |found| findings_text(&found))
    };
    let pool = |version: &str| format!("    {CURVES}\n    kubernetesVersion: {version}\n");
    for (version, keys) in [
        ("1.36", format!("    {CURVES}\n")),
        ("1.37", pool("1.36")),
        ("1.37", format!("    kubernetesVersion: 1.34\ncontroller: {{{CURVES}}}\n")),
        ("1.37", format!("    kubernetesVersion: 1.36\nkubernetes: {{{CURVES}}}\n")),
        ("1.37", "kubernetes: {kubelet: {config: {defaultPodSysctls: {}}}}\n".to_owned()),
    ] {
        assert_eq!(of(version, &keys), "", "{keys}");
    }
    insta::assert_snapshot!(
        [
            of("1.35", &format!("controller: {{{CURVES}}}\n")),
            of("1.37", &pool("1.35")),
            of("1.35", &format!("kubernetes: {{{CURVES}}}\n")),
            of("1.37", &format!("    kubernetesVersion: 1.35.1\nkubernetes: {{{CURVES}}}\n")),
            of("1.36", "controller: {kubelet: {config: {defaultPodSysctls: {}}}}\n"),
        ]
        .join("\n")
    );
}

#[test]
fn programs_come_from_their_publishers_a_mirror_or_the_image() {
    use slipway_core::cluster::SoftwareSource;
    assert_eq!(cluster("").software, slipway_core::cluster::Software::default());
    for (url, place) in [
        ("https://mirror.example.com/slipway/", "https://mirror.example.com/slipway"),
        ("s3://programs", "s3://programs"),
        ("https://mirror:8443/a/b", "https://mirror:8443/a/b"),
    ] {
        let software = cluster(&format!("software: {{baseURL: {url}}}\n")).software;
        assert_eq!((software.source, software.base_url.as_deref()), (SoftwareSource::Release, Some(place)));
    }
    assert_eq!(cluster("software: {source: image}\n").software.source, SoftwareSource::Image);
    insta::assert_snapshot!(told_of_each(&[
        ("no scheme", "software: {baseURL: mirror.example.com}\n"),
        ("not secure", "software: {baseURL: \"http://mirror.example.com\"}\n"),
        ("with a query", "software: {baseURL: \"https://mirror.example.com/?a=b\"}\n"),
        ("above itself", "software: {baseURL: \"https://mirror.example.com/../a\"}\n"),
        ("no bucket", "software: {baseURL: \"s3://B\"}\n"),
        ("unused", "software: {source: image, baseURL: \"s3://programs\"}\n"),
        ("no registry", "software: {imageRepository: kubernetes}\n"),
        ("another source", "software: {source: docker}\n"),
    ]));
}
