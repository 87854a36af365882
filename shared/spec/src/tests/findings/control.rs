//! Controllers: how many, on what, with which files and units. What is said of files and units holds for every role.

use slipway_core::cluster::{Cluster, Content, Tenancy};

use super::*;

fn cluster(more: &str) -> Cluster {
    match parse(format!("{BASE}{more}").as_bytes(), None) {
        Ok(accepted) => accepted.cluster,
        Err(findings) => panic!("{more}\n{}", findings_text(&findings)),
    }
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
}

#[test]
fn tenancy_is_of_each_role_by_itself() {
    let cluster = cluster("    tenancy: default\ncontroller: {tenancy: dedicated}\n");
    assert_eq!(cluster.controller.tenancy, Tenancy::Dedicated);
    assert_eq!((cluster.etcd.tenancy, cluster.pools[0].tenancy), (Tenancy::Default, Tenancy::Default));
}

#[test]
fn a_file_is_not_too_large() {
    says!(with(&format!("    customFiles:\n    - {{path: /a, content: {}}}\n", "a".repeat(64 * 1024 + 1))), @r##"
    17:5 error custom-size at `worker.nodePools[0].customFiles`: files and units of these nodes have 65537 bytes in all
        keep 65536: put what is larger into the image, or let a unit fetch it from a bucket
    "##);
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
    let kubernetes = cluster("kubernetes: {controllerManager: {nodeMonitorGracePeriod: 1m30s}}\n").kubernetes;
    assert_eq!(kubernetes.controller_manager.flags["node-monitor-grace-period"], "1m30s");
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
}

#[test]
fn kubelets_take_what_is_not_slipways() {
    let cluster = cluster(
        "    kubelet: {maxPods: 60, config: {cpuManagerPolicy: static, topologyManagerScope: pod}}\nkubernetes: {kubelet: {maxPods: 100, podPidsLimit: 4096, kubeReserved: \"memory=1Gi, cpu=1\"}}\n",
    );
    assert_eq!(
        serde_json::to_string(&cluster.kubernetes.kubelet).unwrap(),
        r#"{"kubeReserved":{"cpu":"1","memory":"1Gi"},"maxPods":100,"podPidsLimit":4096}"#
    );
    assert_eq!(
        serde_json::to_string(&cluster.pools[0].kubelet).unwrap(),
        r#"{"cpuManagerPolicy":"static","maxPods":60,"topologyManagerScope":"pod"}"#
    );
}

#[test]
fn a_field_that_a_kubelet_of_that_minor_does_not_know_is_refused_where_it_is_said() {
    const CURVES: &str = "kubelet: {config: {tlsCurvePreferences: [29]}}";
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
}
