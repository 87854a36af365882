//! Addresses that a running cluster keeps. The range of pods, the range of Services and the address of DNS cannot change in place, and a
//! name of the API cannot go while nodes reach the API by it.
//!
//! - Pods: a node gets its part of the range once. The API server refuses every later change of `spec.podCIDRs` (Kubernetes,
//!   `pkg/apis/core/validation`, `ValidateNodeUpdate`: "node updates may not change podCIDR except from "" to valid"), and flannel routes
//!   only what is inside its own `Network`: nodes of the old range and of the new one would not reach each other's pods.
//! - Services: a Service keeps its address until it is deleted. More addresses come by `ServiceCIDR` objects
//!   (kubernetes.io/docs/tasks/network/extend-service-ip-ranges, stable since 1.33), not by another `--service-cluster-ip-range`.
//! - DNS: `spec.clusterIP` of a Service cannot change, and every pod has the address in its `resolv.conf`.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;
use slipway_core::cluster::{Cluster, Network};
use slipway_core::release::{NodeRole, Rendering};
use slipway_core::role::Role;
use slipway_spec::Objection;

use super::{Runs, endpoints};

/// An address or range that a running cluster keeps.
struct Kept {
    /// Where a controller's configuration has it.
    pointer: &'static str,
    /// The key of the spec.
    key: &'static str,
    /// What it is called.
    what: &'static str,
    /// How else to get another one.
    way: &'static str,
    /// The one that a spec asks for.
    wanted: fn(&Network) -> String,
}

const KEPT: [Kept; 3] = [
    Kept {
        pointer: "/podNetwork/podCidr",
        key: "podCIDR",
        what: "the range of the pods",
        way: "To have another range, launch a second cluster with it and move the workloads",
        wanted: |network| network.pod_cidr.to_string(),
    },
    Kept {
        pointer: "/controlPlane/serviceCidr",
        key: "serviceCIDR",
        what: "the range of the Services",
        way: "For more addresses, create a `ServiceCIDR` object (kubernetes.io/docs/tasks/network/extend-service-ip-ranges); to have another \
              range instead, launch a second cluster with it and move the workloads",
        wanted: |network| network.service_cidr.to_string(),
    },
    Kept {
        pointer: "/kubelet/clusterDns",
        key: "dnsServiceIP",
        what: "the address of DNS",
        way: "To have another address, launch a second cluster with it and move the workloads",
        wanted: |network| network.dns_service_ip.to_string(),
    },
];

/// A node's configuration; `null` if it cannot be read.
fn read(node: &NodeRole) -> Value {
    serde_json::from_str(&node.config).unwrap_or_default()
}

/// The text at `pointer` in a node's configuration, if there is one.
fn text_at(config: &Value, pointer: &str) -> Option<String> {
    config.pointer(pointer)?.as_str().map(str::to_owned)
}

/// Objects to each kept address for which `wanted` gives another than `running` has.
fn changes(running: &Rendering, wanted: impl Fn(&Kept) -> Option<String>) -> Vec<Objection> {
    let Some(controller) = running.roles.get(&Role::Controller).map(read) else { return Vec::new() };
    let changed = KEPT.iter().filter_map(|kept| {
        let (before, after) = (text_at(&controller, kept.pointer)?, wanted(kept)?);
        let Kept { key, what, way, .. } = kept;
        (before != after).then(|| {
            Objection::error(
                "address-changes",
                vec![(*key).to_owned()],
                format!("{what} is {before} in the cluster that runs, and {after} is asked for: it cannot change in place"),
                format!("write `{key}: {before}`. {way}"),
            )
        })
    });
    let mut found: Vec<Objection> = changed.collect();
    // The address of DNS lies in the range of Services and changes with it: one finding for one cause.
    if found.iter().any(|objection| objection.paths == ["serviceCIDR"]) {
        found.retain(|objection| objection.paths != ["dnsServiceIP"]);
    }
    found
}

/// The objections to going from one release's addresses to the other's.
pub(super) fn between(running: &Rendering, new: &Rendering) -> Vec<Objection> {
    let Some(controller) = new.roles.get(&Role::Controller).map(read) else { return Vec::new() };
    changes(running, |kept| text_at(&controller, kept.pointer))
}

/// The objections to the addresses and to the API's names of such a spec.
pub(super) fn objections(cluster: &Cluster, runs: Runs<'_>) -> Vec<Objection> {
    let mut found = changes(runs.deployed, |kept| Some((kept.wanted)(&cluster.network)));
    let used = used(runs);
    found.extend(names(cluster, &used));
    found.extend(endpoints::objections(cluster, runs, &used.into_iter().map(|(name, _)| name).collect()));
    found
}

/// The names by which nodes reach the API, and which nodes do.
fn used(runs: Runs<'_>) -> BTreeSet<(String, &Role)> {
    let earlier = runs
        .earlier
        .iter()
        .flat_map(|(role, releases)| releases.values().flatten().map(move |node| (role, node)));
    let nodes = runs.deployed.roles.iter().chain(earlier);
    nodes.filter_map(|(role, node)| Some((api_name(node)?, role))).collect()
}

/// Objects to each name of the API that goes while nodes use it. CloudFormation removes its record before the nodes are replaced.
fn names(cluster: &Cluster, used: &BTreeSet<(String, &Role)>) -> Vec<Objection> {
    let keeps = |name: &str| cluster.api_endpoints.iter().any(|endpoint| endpoint.dns_name == name);
    let gone = || used.iter().filter(|(name, _)| !keeps(name));
    let names: BTreeSet<&str> = gone().map(|(name, _)| name.as_str()).collect();
    let objection = |name: &str| {
        let roles: Vec<String> =
            gone().filter(|(one, _)| one == name).map(|(_, role)| format!("`{role}`")).collect();
        Objection::error(
            "endpoint-in-use",
            vec!["apiEndpoints[0].dnsName".to_owned(), "apiEndpoints".to_owned()],
            format!("nodes of {} reach the API by {name}, which is no longer among the endpoints: they would lose it", roles.join(", ")),
            "rename an endpoint in three uploads, each when the one before is rolled out: add an endpoint with the new `dnsName`; name it in \
             `worker.apiEndpointName`, in the pools' `apiEndpointName` and in `adminAPIEndpointName`; remove the old one"
                .to_owned(),
        )
    };
    names.into_iter().map(objection).collect()
}

/// The name by which nodes reach the API. `None`: they need none, as controllers do, or the configuration cannot be read.
fn api_name(node: &NodeRole) -> Option<String> {
    /// What is read of a configuration: a release has one for every pool.
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Reaching {
        api_server: String,
    }
    let url = serde_json::from_str::<Reaching>(&node.config).ok()?.api_server;
    let name = url.strip_prefix("https://")?;
    (!name.starts_with("127.0.0.1")).then(|| name.to_owned())
}
