//! What is behind the names of the API. CloudFormation makes what is new before it deletes what goes, and Route 53 has one record of a name:
//! an endpoint that keeps its DNS name keeps the logical id of its record ("it already exists": aws/aws-cdk#12564; where both succeed, the
//! deletion of the old one takes the name away: aws-cloudformation/cloudformation-coverage-roadmap#364). A record that Slipway did not make
//! leads to a load balancer of Slipway's until a person changes it, so that balancer stays while nodes use the name.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use slipway_core::cluster::Cluster;
use slipway_core::diagnostic::Severity;
use slipway_core::release::Rendering;
use slipway_render::endpoints::{balancer_id, record_of};
use slipway_spec::Objection;

use super::Runs;

const RECORD: &str = "AWS::Route53::RecordSet";
const BALANCER: &str = "AWS::ElasticLoadBalancingV2::LoadBalancer";

/// A record's zone and its name, without case and without the root's dot.
type Name = (String, String);

fn name_of(zone: &Value, name: &str) -> Name {
    (zone.to_string(), plain(name))
}

fn plain(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// The templates with a record or a load balancer. Most have none, and reading one costs more than all the rest here.
fn templates(release: &Rendering) -> Vec<Value> {
    let has_any = |body: &str| body.contains(RECORD) || body.contains(BALANCER);
    let with = release.stacks.iter().filter(|stack| has_any(&stack.body));
    with.map(|stack| serde_json::from_str(&stack.body).unwrap_or_default()).collect()
}

/// The resources of that type, by their logical ids.
fn resources<'t>(
    templates: &'t [Value],
    kind: &'static str,
) -> impl Iterator<Item = (&'t String, &'t Value)> {
    let all = templates.iter().flat_map(|template| template["Resources"].as_object().into_iter().flatten());
    all.filter(move |(_, resource)| resource["Type"] == kind)
        .map(|(id, resource)| (id, &resource["Properties"]))
}

/// The records of a release and their logical ids.
fn records(templates: &[Value]) -> BTreeMap<Name, String> {
    let records = resources(templates, RECORD);
    // Of several records with one name, which a `SetIdentifier` tells apart, none is the name's only one.
    let single = records.filter(|(_, properties)| properties.get("SetIdentifier").is_none());
    single
        .map(|(id, properties)| {
            (
                name_of(&properties["HostedZoneId"], properties["Name"].as_str().unwrap_or_default()),
                id.clone(),
            )
        })
        .collect()
}

fn twice(name: &str, paths: Vec<String>) -> Objection {
    Objection::error(
        "endpoint-in-use",
        paths,
        format!("the record of {name} belongs to an endpoint of another name: CloudFormation would make it a second time before it deletes it, which Route 53 refuses"),
        "keep the endpoint's `name`, which only Slipway uses, and the `dnsName` that goes with it. For other names, add an endpoint with a `dnsName` of its own, \
         move `worker.apiEndpointName`, the pools' `apiEndpointName` and `adminAPIEndpointName` to it, and then remove the old one: three uploads, each when the one \
         before is rolled out"
            .to_owned(),
    )
}

/// The objections to going from one release's records to the other's.
pub(super) fn between(running: &Rendering, new: &Rendering) -> Vec<Objection> {
    // A record and its endpoint are in one template: where none of these changes, none moves.
    let bodies = |release: &Rendering| -> Vec<String> {
        let with = release.stacks.iter().filter(|stack| stack.body.contains(RECORD));
        with.map(|stack| stack.body.clone()).collect()
    };
    if bodies(running) == bodies(new) {
        return Vec::new();
    }
    let before = records(&templates(running));
    let moved = records(&templates(new))
        .into_iter()
        .filter(|(name, id)| before.get(name).is_some_and(|old| old != id));
    moved.map(|((_, name), _)| twice(&name, Vec::new())).collect()
}

/// The objections to the endpoints of such a spec; `used` are the names by which nodes reach the API.
pub(super) fn objections(cluster: &Cluster, runs: Runs<'_>, used: &BTreeSet<String>) -> Vec<Objection> {
    let used: BTreeSet<String> = used.iter().map(|name| plain(name)).collect();
    let deployed = templates(runs.deployed);
    let before = records(&deployed);
    let balancers: BTreeSet<String> = resources(&deployed, BALANCER).map(|(id, _)| id.clone()).collect();
    let kept: BTreeSet<String> = cluster.api_endpoints.iter().filter_map(balancer_id).collect();
    let goes = balancers.difference(&kept).next().is_some();
    let with_record: BTreeSet<&str> = before.keys().map(|(_, name)| name.as_str()).collect();
    let mut found = Vec::new();
    for (index, endpoint) in cluster.api_endpoints.iter().enumerate() {
        let name = plain(&endpoint.dns_name);
        let paths = |key: &str| {
            vec![
                format!("apiEndpoints[{index}].{key}"),
                format!("apiEndpoints[{index}].name"),
                "apiEndpoints".to_owned(),
            ]
        };
        let record = record_of(endpoint);
        let old = record.as_ref().and_then(|(_, zone, name)| before.get(&name_of(zone, name)));
        if let (Some((id, ..)), Some(old)) = (&record, old)
            && old != id
        {
            found.push(twice(&name, paths("name")));
        } else if record.is_none() && used.contains(&name) && with_record.contains(name.as_str()) {
            found.push(Objection {
                severity: Severity::Warning,
                code: "endpoint-record",
                paths: paths("loadBalancer"),
                message: format!("the record of {name} is deleted: nodes that reach the API by it lose it until you make the record yourself"),
                help: "move the nodes to another endpoint first, or make the record as soon as CloudFormation has deleted its own".to_owned(),
            });
        } else if used.contains(&name) && !with_record.contains(name.as_str()) {
            let stays = balancer_id(endpoint).is_some_and(|id| balancers.contains(&id));
            if goes && !stays {
                found.push(Objection::error(
                    "endpoint-in-use",
                    paths("loadBalancer"),
                    format!(
                        "nodes reach the API by {name}, whose record Slipway did not make: the load balancer that it leads to \
                         would be deleted, and nobody would lead it to another one"
                    ),
                    "keep the endpoint's `name` and its `loadBalancer`. For another balancer, add an endpoint with a `dnsName` of its own beside this \
                     one and make its record; move `worker.apiEndpointName`, the pools' `apiEndpointName` and `adminAPIEndpointName` to it; then \
                     remove this one: three uploads, each when the one before is rolled out"
                        .to_owned(),
                ));
            }
        }
    }
    found
}
