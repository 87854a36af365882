//! Key by key: what kube-aws' users said is in the new spec, or in the report.

use super::*;
use crate::page::{Fate, fate, keys};
use slipway_spec::schema;

/// Each value of a spec by its path.
fn leaves(text: &str) -> Vec<(String, String)> {
    let mut item = Item::from(&read_tree(text.as_bytes()).expect("it is YAML"));
    let mut paths = Vec::new();
    item.leaves("", &mut paths);
    let value = |path: &String| {
        let text = item.at_finding(path).and_then(|item| item.text().map(str::to_owned));
        (path.clone(), text.unwrap_or_default())
    };
    paths.iter().map(value).collect()
}

/// `a[0].b` is in `a[0]`, and in `a`.
fn within(path: &str, group: &str) -> bool {
    path.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

fn migrated(text: &str) -> Migrated {
    migrate(text.as_bytes()).unwrap_or_else(|refused| panic!("{:#?}\n{}", refused.findings, refused.text))
}

/// Specs in which keys of kube-aws stand that are taken as they are.
fn specs() -> Vec<String> {
    let mut texts = vec![FULL.to_owned()];
    texts.extend(include_str!("../testdata/kube-aws-more.yaml").split("\n---\n").map(str::to_owned));
    texts.extend(
        include_str!("../../../spec/src/tests/data/every-group.yaml").split("\n---\n").map(str::to_owned),
    );
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut examples: Vec<std::path::PathBuf> = std::fs::read_dir(folder)
        .expect("they are there")
        .map(|entry| entry.expect("readable").path())
        .collect();
    examples.sort();
    texts.extend(
        examples
            .iter()
            .filter(|path| path.is_file())
            .map(|path| std::fs::read_to_string(path).expect("text")),
    );
    texts
}

/// What kube-aws' machines ran, which cannot run here: never carried over, always told.
const DECIDED: &[&str] =
    &["amiId", "etcd.version", "worker.nodePools[].amiId", "worker.nodePools[].kubernetesVersion"];

#[test]
fn every_key_that_is_taken_survives_with_its_value() {
    let root = schema();
    let (newest, before) = keys();
    // Groups have no value of their own.
    let mut open: Vec<&str> = newest
        .iter()
        .chain(&before)
        .copied()
        .filter(|key| fate(&root, key) == Fate::Same)
        .filter(|key| {
            let below = |other: &&str| other.len() > key.len() && within(other, key);
            !newest.iter().chain(&before).any(below)
        })
        .collect();
    assert!(open.len() > 150, "only {} keys are taken", open.len());
    for text in specs() {
        let made = migrated(&text);
        let after = leaves(&made.text);
        for (path, value) in leaves(&text) {
            let pattern = pattern(&path);
            let told = made.changes.iter().any(|change| within(&path, &change.path));
            let there = after.contains(&(path.clone(), value.clone()));
            assert!(
                there || told,
                "`{path}: {value}` is neither in the spec nor in the report:\n{}",
                made.text
            );
            let decided = DECIDED.contains(&pattern.as_str()) && told;
            if there || decided {
                open.retain(|key| !within(&pattern, key) && !within(key, &pattern));
            }
        }
    }
    assert!(open.is_empty(), "write them into testdata/kube-aws-more.yaml: {open:#?}");
}

/// All keys that are refused in one spec, each with a word as its value.
fn refused_keys() -> (String, Vec<String>) {
    fn put(at: &mut serde_json::Value, path: &str) {
        let (step, rest) = path.split_once('.').map_or((path, None), |(step, rest)| (step, Some(rest)));
        let name = step.trim_end_matches("[]");
        if !at.is_object() {
            *at = serde_json::json!({});
        }
        let mut below = &mut at[name];
        if step.ends_with("[]") {
            if !below.is_array() {
                *below = serde_json::json!([{}]);
            }
            below = &mut below[0];
        }
        match rest {
            Some(rest) => put(below, rest),
            None => {
                *below = serde_json::json!(if name.ends_with("nstanceType") { "m5.large" } else { "word" })
            }
        }
    }
    let root = schema();
    let (newest, before) = keys();
    let all: Vec<&str> = newest.into_iter().chain(before).collect();
    let refused: Vec<&str> = all
        .iter()
        .copied()
        .filter(|key| matches!(fate(&root, key), Fate::Retired(_)))
        .filter(|key| !all.iter().any(|other| other.len() > key.len() && within(other, key)))
        .collect();
    let mut spec = serde_json::json!({
        "clusterName": "old", "region": "us-west-1", "kubernetesVersion": "1.37",
        "apiEndpoints": [{"name": "default", "dnsName": "api.example.com", "loadBalancer": {"hostedZone": {"id": "Z123"}}}],
        "subnets": [{"name": "a", "availabilityZone": "us-west-1a", "instanceCIDR": "10.0.0.0/24", "routeTable": {}, "natGateway": {}}],
        "controller": {"customFiles": [{"path": "/etc/motd.d/a", "content": "x"}]},
        "etcd": {"customFiles": [{"path": "/etc/motd.d/a", "content": "x"}]},
        "worker": {"nodePools": [{"name": "a", "customFiles": [{"path": "/etc/motd.d/a", "content": "x"}]}]},
    });
    refused.iter().for_each(|key| put(&mut spec, key));
    (spec.to_string(), refused.iter().map(|key| key.replace("[]", "[0]")).collect())
}

#[test]
fn every_key_that_is_refused_is_in_the_report() {
    let (spec, refused) = refused_keys();
    assert!(refused.len() > 500, "only {} keys", refused.len());
    let made = migrated(&spec);
    let silent: Vec<&String> = refused
        .iter()
        .filter(|path| {
            !made.changes.iter().any(|change| within(path, &change.path) && change.message.len() > 5)
        })
        .collect();
    assert!(silent.is_empty(), "nothing is said of {silent:#?}");
    assert!(parse(made.text.as_bytes(), None).is_ok());
}

/// What stood in kube-aws' spec, and what is to stand in ours.
const EQUALS: &[(&str, &[(&str, &str)])] = &[
    (
        "customApiServerSettings: {additionalDnsSans: [my.example.com], additionalIPAddressSans: [192.0.2.7]}\n",
        &[
            ("kubernetes.apiServer.certSANs[0]", "my.example.com"),
            ("kubernetes.apiServer.certSANs[1]", "192.0.2.7"),
        ],
    ),
    (
        "experimental: {auditLog: {enabled: true, logPath: /var/log/audit.log, maxAge: 7, maxSize: 50}}\n",
        &[
            ("kubernetes.apiServer.auditLog.enabled", "true"),
            ("kubernetes.apiServer.auditLog.logPath", "/var/log/audit.log"),
            ("kubernetes.apiServer.auditLog.maxAge", "7"),
            ("kubernetes.apiServer.auditLog.maxBackup", "1"),
            ("kubernetes.apiServer.auditLog.maxSize", "50"),
        ],
    ),
    (
        "experimental: {oidc: {enabled: yes, issuerUrl: \"https://login.example.com\", clientId: k8s}}\n",
        &[
            ("kubernetes.apiServer.oidc.issuerURL", "https://login.example.com"),
            ("kubernetes.apiServer.oidc.clientID", "k8s"),
            ("kubernetes.apiServer.oidc.usernameClaim", "email"),
            ("kubernetes.apiServer.oidc.groupsClaim", "groups"),
        ],
    ),
    (
        "experimental:\n  admission:\n    alwaysPullImages: {enabled: true}\n    OwnerReferencesPermissionEnforcement: {enabled: true}\n    eventRateLimit:\n      enabled: true\n      limits: |\n        - type: Server\n          qps: 10\n          burst: 20\n",
        &[
            ("kubernetes.apiServer.enableAdmissionPlugins[0]", "AlwaysPullImages"),
            ("kubernetes.apiServer.enableAdmissionPlugins[1]", "OwnerReferencesPermissionEnforcement"),
            ("kubernetes.apiServer.eventRateLimits[0].type", "Server"),
            ("kubernetes.apiServer.eventRateLimits[0].burst", "20"),
        ],
    ),
    (
        "experimental: {admission: {eventRateLimit: {enabled: true}}}\n",
        &[("kubernetes.apiServer.eventRateLimits[1].qps", "50")],
    ),
    (
        "experimental: {nodeMonitorGracePeriod: 60s}\n",
        &[("kubernetes.controllerManager.nodeMonitorGracePeriod", "60s")],
    ),
    (
        "experimental: {gpuSupport: {enabled: false}, targetGroup: {enabled: true, arns: [\"arn:aws:elasticloadbalancing:us-west-1:111122223333:targetgroup/a/0123456789abcdef\"]}}\n",
        &[("worker.nodePools[0].targetGroup.enabled", "true")],
    ),
    (
        "kubelet: {systemReserved: \"cpu=100m,memory=100Mi\", kubeReserved: \"cpu=50m\", flags: [{name: max-pods, value: \"60\"}, {name: pod-max-pids, value: \"4096\"}, {name: image-gc-high-threshold, value: \"90\"}]}\n",
        &[
            ("kubernetes.kubelet.systemReserved", "cpu=100m,memory=100Mi"),
            ("kubernetes.kubelet.kubeReserved", "cpu=50m"),
            ("kubernetes.kubelet.maxPods", "60"),
            ("kubernetes.kubelet.podPidsLimit", "4096"),
            ("kubernetes.kubelet.config.imageGCHighThresholdPercent", "90"),
        ],
    ),
    (
        "worker: {nodePools: [{name: a, kubeletOpts: \"--image-gc-low-threshold=50 --registry-qps=0\", nodeStatusUpdateFrequency: 10s, kubeReserved: cpu=1}]}\n",
        &[
            ("worker.nodePools[0].kubelet.config.imageGCLowThresholdPercent", "50"),
            ("worker.nodePools[0].kubelet.config.registryPullQPS", "0"),
            ("worker.nodePools[0].kubelet.config.nodeStatusUpdateFrequency", "10s"),
            ("worker.nodePools[0].kubelet.kubeReserved", "cpu=1"),
        ],
    ),
    (
        "kubernetes: {apiserver: {flags: [{name: max-requests-inflight, value: \"800\"}, {name: cloud-provider, value: aws}], volumes: [{name: extra, path: /etc/extra, readOnly: true}]}}\n",
        &[
            ("kubernetes.apiServer.flags[0].name", "max-requests-inflight"),
            ("kubernetes.apiServer.flags[0].value", "800"),
            ("kubernetes.apiServer.volumes[0].path", "/etc/extra"),
        ],
    ),
    ("kubernetes: {networking: {selfHosting: {type: canal}}}\n", &[("addons.networkPolicy.enabled", "true")]),
    (
        "kubernetes: {podAutoscalerUseRestClient: {enabled: true}}\n",
        &[("addons.metricsServer.enabled", "true")],
    ),
    (
        "kubeDns: {nodeLocalResolver: true, extraCoreDNSConfig: rewrite stop, autoscaler: {min: 3}, dnsDeploymentResources: {requests: {cpu: 100m}}}\n",
        &[
            ("addons.nodeLocalDns.enabled", "true"),
            ("addons.coreDns.extraCoreDNSConfig", "rewrite stop"),
            ("addons.coreDns.replicas", "3"),
            ("addons.coreDns.resources.requests.cpu", "100m"),
        ],
    ),
    (
        "kubeProxy: {ipvsMode: {enabled: true, scheduler: rr}, resources: {requests: {cpu: 50m}}}\n",
        &[("addons.kubeProxy.mode", "nftables"), ("addons.kubeProxy.resources.requests.cpu", "50m")],
    ),
    (
        "workerTenancy: dedicated\netcdTenancy: dedicated\ncontrollerTenancy: dedicated\nworkerSecurityGroupIds: [sg-0abc1234]\n",
        &[
            ("worker.nodePools[0].tenancy", "dedicated"),
            ("worker.nodePools[0].securityGroupIds[0]", "sg-0abc1234"),
            ("controller.tenancy", "dedicated"),
            ("etcd.tenancy", "dedicated"),
        ],
    ),
    (
        "controllerCount: 3\netcdCount: 3\nworkerCount: 2\n",
        &[("controller.count", "3"), ("etcd.count", "3"), ("worker.nodePools[0].count", "2")],
    ),
];

#[test]
fn what_has_an_equal_is_carried_over_to_it() {
    for (old, wanted) in EQUALS {
        let made = migrated(&spec(old));
        let after = leaves(&made.text);
        for (path, value) in *wanted {
            assert!(
                after.contains(&((*path).to_owned(), (*value).to_owned())),
                "{path}: {value} is not in\n{}",
                made.text
            );
        }
        for (path, _) in leaves(&spec(old)) {
            let told = made.changes.iter().any(|change| within(&path, &change.path));
            assert!(told || after.iter().any(|(there, _)| *there == path), "{path} went without a word");
        }
        // What is written is ours, and stays as it is.
        assert_eq!(migrated(&made.text).changes, Vec::new(), "{}", made.text);
    }
}

#[test]
fn what_was_off_is_no_longer_spoken_of() {
    let made =
        migrated(&spec("experimental: {oidc: {enabled: false, issuerUrl: \"https://login.example.com\"}}\n"));
    assert!(!made.text.contains("oidc"), "{}", made.text);
    let told = |change: &Change| change.path == "experimental.oidc" && change.message == "it was off";
    assert!(made.changes.iter().any(told), "{:#?}", made.changes);
}

/// Slipway's own default is on.
#[test]
fn an_audit_log_that_was_off_stays_off() {
    for old in ["{enabled: no}", "{maxAge: 7}", "{enabled: false, logPath: /var/log/audit.log}"] {
        let made = migrated(&spec(&format!("experimental: {{auditLog: {old}}}\n")));
        let after = leaves(&made.text);
        let told: Vec<_> = after.iter().filter(|(path, _)| path.contains("auditLog")).collect();
        let off = ("kubernetes.apiServer.auditLog.enabled".to_owned(), "false".to_owned());
        assert_eq!(told, [&off], "{}", made.text);
        assert!(made.changes.iter().any(|change| change.path == "experimental.auditLog"));
    }
}

/// What we refuse of a value that was carried over is for a person to decide, and no reason to make nothing.
#[test]
fn what_cannot_be_carried_over_as_it_is_is_told_as_a_decision() {
    for (old, path, gone) in [
        (
            "experimental: {auditLog: {enabled: true, logPath: /data/audit.log}}\n",
            "experimental.auditLog",
            "/data/audit.log",
        ),
        (
            "experimental: {oidc: {enabled: true, issuerUrl: \"http://login.example.com\"}}\n",
            "experimental.oidc",
            "login.example.com",
        ),
        ("kubelet: {systemReserved: \"cpu=100m,storage=1Gi\"}\n", "kubelet.systemReserved", "storage=1Gi"),
        (
            "kubernetes: {apiserver: {flags: [{name: cloud-provider, value: aws}]}}\n",
            "kubernetes.apiServer.flags[0]",
            "cloud-provider",
        ),
        (
            "kubernetes: {controllerManager: {flags: [{name: cloud-provider, value: aws}]}}\n",
            "kubernetes.controllerManager.flags[0]",
            "cloud-provider",
        ),
        (
            "experimental: {admission: {eventRateLimit: {enabled: true, limits: many}}}\n",
            "experimental.admission.eventRateLimit",
            "many",
        ),
    ] {
        let made = migrated(&spec(old));
        assert!(!made.text.contains(gone), "{}", made.text);
        let told = |change: &Change| change.kind == ChangeKind::Decision && change.path == path;
        assert!(made.changes.iter().any(told), "{path}: {:#?}", made.changes);
    }
}

#[test]
fn booleans_of_yaml_1_1_mean_what_they_meant() {
    let made = migrated(&spec(
        "kubernetes: {encryptionAtRest: {enabled: yes}}\naddons: {clusterAutoscaler: {enabled: off}}\n",
    ));
    assert!(made.text.contains("enabled: true") && made.text.contains("enabled: false"), "{}", made.text);
}
