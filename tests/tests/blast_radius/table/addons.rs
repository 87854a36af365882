//! Add-ons: objects in the cluster, whose changes touch no node.

use serde_json::{Value, json};

use super::super::case::{Case, case};

const INSIDE: &str = "objects inside the cluster change; no node does";
const AWAITED: &str =
    "a worker's launch hook waits until it is Ready, or only registered where the user brings the network";
const ROLE: &str = "the controllers' role follows what the add-on may do; no node changes";

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        case("addons.network.provider", json!("none"), "pools", "pools replaced").because(AWAITED),
        inside("imageRepository", json!("mirror.example.com/kubernetes")),
        inside("kubeProxy.enabled", json!(false)),
        inside("kubeProxy.mode", json!("nftables")),
        inside("coreDns.enabled", json!(false)),
        inside("coreDns.extraCoreDNSConfig", json!("rewrite name a b")),
        inside(
            "coreDns.additionalZoneCoreDNSConfig",
            json!("corp.example.com:53 {\n    forward . 10.9.9.9\n}"),
        ),
        inside("ebsCsiDriver.defaultStorageClass", json!(false)),
        inside("networkPolicy.enabled", json!(true)),
        inside("nodeLocalDns.enabled", json!(true)),
        inside("metricsServer.enabled", json!(true)),
        inside("clusterAutoscaler.options", json!({ "expander": "random" })).given(ENABLED, json!(true)),
    ];
    for (name, to) in
        [("cloudControllerManager", false), ("ebsCsiDriver", false), ("clusterAutoscaler", true)]
    {
        let key = format!("addons.{name}.enabled");
        cases.push(case(key, json!(to), "control-plane", "").because(ROLE));
    }
    for name in ["coreDns", "ebsCsiDriver", "metricsServer", "clusterAutoscaler"] {
        cases.push(addon_case(name, "replicas", json!(1)));
    }
    for name in ADDONS {
        if *name != "kubeProxy" {
            cases.push(addon_case(name, "version", json!("v9.9.9")));
        }
        for (group, cpu, memory) in [("requests", "11m", "33Mi"), ("limits", "3", "3Gi")] {
            cases.push(addon_case(name, &format!("resources.{group}.cpu"), json!(cpu)));
            cases.push(addon_case(name, &format!("resources.{group}.memory"), json!(memory)));
        }
    }
    cases
}

const ENABLED: &str = "addons.clusterAutoscaler.enabled";
const ADDONS: &[&str] = &[
    "kubeProxy",
    "network",
    "networkPolicy",
    "cloudControllerManager",
    "coreDns",
    "nodeLocalDns",
    "ebsCsiDriver",
    "metricsServer",
    "clusterAutoscaler",
];

fn inside(key: &str, to: Value) -> Case {
    case(format!("addons.{key}"), to, "", "").because(INSIDE)
}

/// A setting of an installed add-on.
fn addon_case(name: &str, key: &str, to: Value) -> Case {
    let case = inside(&format!("{name}.{key}"), to);
    if name == "network" { case } else { case.given(format!("addons.{name}.enabled"), json!(true)) }
}
