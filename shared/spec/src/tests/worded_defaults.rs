//! Defaults that are told in words, since no literal says them (`as many as …`, `everywhere`): leaving the key out is the
//! same as writing what the words mean, and another value is something else.

use serde_json::{Value, json};

use super::super::report::Report;
use super::super::{SPEC, parse, schema, shape, tree};
use super::defaults::places;
use super::schema::properties;

const BASE: &str = include_str!("data/worded-defaults.yaml");

/// How a default is held.
enum DefaultCheck {
    /// Leaving the key out is writing the first; the second, if there is one, makes another cluster.
    As(Value, Option<Value>),
    /// Leaving it out is a thing of its own, which no value says; that value makes another cluster.
    Absent(Value),
    /// Nothing that the spec alone decides: the test that holds it.
    Elsewhere(&'static str),
}
use DefaultCheck::{Absent, As, Elsewhere};

const LOCK: &str = "p1_a_newer_slipway_moves_no_version_that_is_pinned";
const BY_CONTROLLERS: &str = "a_single_controller_gets_single_replicas_and_no_budget_that_holds_up_its_drain";

fn worded_defaults() -> Vec<(&'static str, DefaultCheck)> {
    let name = |names: &[&str]| Value::Array(names.iter().map(|name| json!({"name": name})).collect());
    let on = |on: bool| json!({"enabled": on});
    vec![
        (
            "kmsKeyArn",
            Absent(json!("arn:aws:kms:eu-west-1:111122223333:key/0a1b2c3d-0a1b-2c3d-4e5f-0a1b2c3d4e5f")),
        ),
        ("dnsServiceIP", As(json!("10.3.0.10"), Some(json!("10.3.0.11")))),
        ("sshAccessAllowedSourceCIDRs", As(json!([]), Some(json!(["198.51.100.0/24"])))),
        ("addons.cloudControllerManager", As(on(true), Some(on(false)))),
        ("addons.cloudControllerManager.version", Elsewhere(LOCK)),
        ("addons.ebsCsiDriver.version", Elsewhere(LOCK)),
        ("addons.clusterAutoscaler.replicas", Elsewhere(BY_CONTROLLERS)),
        ("addons.ebsCsiDriver.replicas", Elsewhere(BY_CONTROLLERS)),
        ("addons.coreDns", As(on(true), Some(on(false)))),
        ("addons.ebsCsiDriver", As(on(true), Some(on(false)))),
        ("addons.kubeProxy", As(on(true), Some(on(false)))),
        ("addons.networkPolicy", As(on(false), Some(on(true)))),
        ("addons.nodeLocalDns", As(on(false), Some(on(true)))),
        (
            "apiEndpoints[].loadBalancer.apiAccessAllowedSourceCIDRs",
            As(json!(["0.0.0.0/0"]), Some(json!(["198.51.100.0/24"]))),
        ),
        (
            "apiEndpoints[].loadBalancer.subnets",
            As(name(&["public-a", "public-b"]), Some(name(&["public-b", "public-a"]))),
        ),
        ("certificatesConfiguration.caRotationDays", Absent(json!(90))),
        ("certificatesConfiguration.rolloutBeforeExpiry", As(on(false), Some(on(true)))),
        (
            "certificatesConfiguration.rolloutBeforeExpiry.emergencyDays",
            Elsewhere("renewals_hurry_for_half_of_their_days_and_three_at_most"),
        ),
        ("controller.autoScalingGroup.maxSize", As(json!(3), None)),
        ("controller.autoScalingGroup.minSize", As(json!(3), None)),
        ("controller.subnets", As(name(&["private-a", "private-b"]), Some(name(&["private-a"])))),
        ("etcd.subnets", As(name(&["private-a", "private-b"]), Some(name(&["private-a"])))),
        ("etcd.count", As(json!(3), Some(json!(5)))),
        ("etcd.snapshots.keep.dailyDays", As(json!(30), Some(json!(60)))),
        ("etcd.topology", As(json!("external"), None)),
        ("etcd.version", Elsewhere("every_release_has_its_etcd")),
        ("etcd.hostedZone", Elsewhere("a_hosted_zone_that_exists_is_used_and_none_is_made")),
        ("etcd.internalDomainName", As(json!("told.etcd.internal"), Some(json!("etcd.told.example")))),
        ("etcd.nodes[].fqdn", As(json!("third.told.etcd.internal"), Some(json!("one.told.etcd.internal")))),
        ("etcd.nodes[].name", As(json!("etcd-0"), Some(json!("one")))),
        ("etcd.nodes[].subnet", As(json!({"name": "private-a"}), Some(json!({"name": "private-b"})))),
        (
            "kubernetes.apiServer.auditLog.policy",
            Absent(json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "None"}]})),
        ),
        (
            "kubernetes.apiServer.eventRateLimits",
            As(json!([]), Some(json!([{"type": "Server", "qps": 1, "burst": 1}]))),
        ),
        (
            "kubernetes.apiServer.oidc.certificateAuthority",
            Absent(json!("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")),
        ),
        ("kubernetes.apiServer.oidc.groupsClaim", Absent(json!("teams"))),
        ("kubernetes.apiServer.oidc.groupsPrefix", As(json!(""), Some(json!("oidc:")))),
        ("kubernetes.controllerManager.nodeMonitorGracePeriod", Absent(json!("60s"))),
        ("rollout.drain.forceAfterMinutes", Absent(json!(60))),
        ("rollout.windows", As(json!([]), Some(json!([{"start": "02:00", "minutes": 60}])))),
        ("rollout.windows[].days", Absent(json!(["mon"]))),
        ("upgrades.everyDays", Absent(json!(30))),
        (
            "upgrades.pins",
            As(
                json!(["images", "kubernetes", "etcd", "programs", "addons", "agent"]),
                Some(json!(["images"])),
            ),
        ),
        ("subnets[].name", As(json!("Subnet0"), Some(json!("one")))),
        ("subnets[].natGateway", Absent(json!({"eipAllocationId": "eipalloc-0123456789abcdef0"}))),
        ("worker.nodePools[].autoScalingGroup.maxSize", As(json!(2), Some(json!(4)))),
        ("worker.nodePools[].autoScalingGroup.minSize", As(json!(4), Some(json!(1)))),
        ("worker.nodePools[].ephemeralStorage.path", Absent(json!("/scratch"))),
        ("worker.nodePools[].ephemeralStorage.raid0", As(json!(true), Some(json!(false)))),
        ("worker.nodePools[].nodePoolRollingStrategy", As(json!("Sequential"), Some(json!("Parallel")))),
        ("worker.nodePools[].rollout.maxUnavailable", Absent(json!(2))),
        ("worker.nodePools[].rollout.surge", Absent(json!("30%"))),
        ("worker.nodePools[].rollout.drain", Absent(json!({"forceAfterMinutes": 60}))),
        ("worker.nodePools[].subnets", As(name(&["private-a", "private-b"]), Some(name(&["private-a"])))),
        ("controller.customSystemdUnits[].command", Absent(json!("start"))),
        ("image.rootDeviceName", Elsewhere("images_of_canonicals_have_another_root_device")),
        ("kubernetes.kubelet.maxPods", Absent(json!(100))),
        ("kubernetes.kubelet.podPidsLimit", Absent(json!(2048))),
        (
            "controller.rootVolume.kmsKeyArn",
            Absent(json!("arn:aws:kms:eu-west-1:111122223333:key/0a1b2c3d-0a1b-2c3d-4e5f-0a1b2c3d4e5f")),
        ),
    ]
}

/// Every source of the crates that read specs or what they turn into.
fn sources() -> String {
    fn read(folder: &std::path::Path, text: &mut String) {
        for entry in std::fs::read_dir(folder).expect("the sources are there") {
            let path = entry.expect("the sources can be listed").path();
            if path.is_dir() {
                read(&path, text);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(&std::fs::read_to_string(&path).expect("sources are text"));
            }
        }
    }
    let mut text = String::new();
    let shared = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for crate_folder in ["core", "spec", "credentials", "render", "plan"] {
        read(&shared.join(crate_folder).join("src"), &mut text);
    }
    text
}

/// Whether a description speaks of what holds without the key.
fn speaks(property: &Value) -> Option<&str> {
    let text = property.get("description")?.as_str()?;
    let words = [
        "unless given",
        "unless turned off",
        "unless enabled",
        "unless this is",
        "left out, ",
        "absent means",
        "nothing is said",
    ];
    (property
        .get("default")
        .is_none_or(|default| !default.is_boolean() && !default.is_number() && !default.is_string())
        && words.iter().any(|word| text.contains(word)))
    .then_some(text)
}

#[test]
fn every_default_that_is_told_in_words_is_held() {
    let (properties, told) = (properties(&schema()), worded_defaults());
    let description = |path: &str| {
        properties.iter().find(|(known, _)| known == path).and_then(|(_, property)| speaks(property))
    };
    let held: Vec<&str> = told
        .iter()
        .map(|(path, _)| description(path).unwrap_or_else(|| panic!("`{path}` tells of no default in words")))
        .collect();
    let open: Vec<&str> = properties
        .iter()
        .filter(|(_, property)| property.get("deprecated") != Some(&Value::Bool(true)))
        .filter(|(_, property)| speaks(property).is_some_and(|text| !held.contains(&text)))
        .map(|(path, _)| path.as_str())
        .collect();
    assert!(open.is_empty(), "say how each default is held: {open:#?}");
}

#[test]
fn what_a_default_in_words_means_is_what_leaving_the_key_out_gives() {
    let bases: Vec<Value> = BASE
        .split("\n---\n")
        .map(|text| {
            assert!(parse(text.as_bytes(), None).is_ok(), "{:#?}", parse(text.as_bytes(), None));
            let tree = tree::read(text, &SPEC).expect("it is YAML");
            shape::read(&schema(), &tree, &mut Report::new(&tree))
        })
        .collect();
    let sources = sources();
    let mut amiss = Vec::new();
    for (path, held) in worded_defaults() {
        let steps: Vec<&str> = path.split('.').collect();
        if let Elsewhere(test) = &held {
            assert!(
                sources.contains(&format!("fn {test}()")),
                "`{path}` is to be held by {test}, which is gone"
            );
            continue;
        }
        // The last place in a spec where it can be left out.
        let mut held_in_one = false;
        for base in &bases {
            let with = |value: Option<&Value>| {
                let (mut spec, mut count, mut met) = (base.clone(), 0, 0);
                places(&mut spec, &steps, &mut |_, _| count += 1);
                places(&mut spec, &steps, &mut |group, key| {
                    met += 1;
                    match value.filter(|_| met == count) {
                        Some(value) => drop(group.insert(key.to_owned(), value.clone())),
                        None if met == count => drop(group.remove(key)),
                        None => {}
                    }
                });
                ((count > 0).then(|| parse(spec.to_string().as_bytes(), None)))?
                    .ok()
                    .map(|accepted| accepted.cluster)
            };
            let Some(without) = with(None) else { continue };
            match &held {
                Elsewhere(_) => {}
                As(same, other) => {
                    let Some(same) = with(Some(same)) else { continue };
                    if same != without {
                        continue;
                    }
                    // A value that is read makes another cluster.
                    match other.as_ref().map(|other| with(Some(other))) {
                        Some(other) if other.as_ref().is_none_or(|other| *other == without) => continue,
                        Some(_) | None => {}
                    }
                    held_in_one = true;
                }
                Absent(other) => {
                    held_in_one |= with(Some(other)).is_some_and(|other| other != without);
                }
            }
        }
        if !held_in_one {
            amiss.push(path);
        }
    }
    assert!(
        amiss.is_empty(),
        "not what their words say, in no spec of tests/data/worded-defaults.yaml: {amiss:#?}"
    );
}
