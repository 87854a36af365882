//! What is said about a spec because of what runs.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use slipway_core::cluster::GroupSize;
use slipway_core::members::{MemberPin, MemberRole, NameZone, VolumePin};
use slipway_core::release::{NodeRole, Rendering};
use slipway_core::role::Role;
use slipway_render::lock::Lock;
use slipway_spec::parse;
use slipway_spec::testing::{BASE, findings_text};

use super::{between, check_update};

/// What runs: controllers, the pools by name, and one etcd member with 30 GiB, each of that release.
struct Runs<'a> {
    kubernetes: &'a str,
    pools: &'a [(&'a str, &'a str)],
    etcd: &'a str,
}

fn running(runs: &Runs<'_>) -> Rendering {
    let node = |version: &str| NodeRole {
        stack: "base-pool-general".to_owned(),
        nodes: GroupSize { min: 1, max: 1 },
        machine: serde_json::Value::Null,
        config: String::new(),
        config_digest: String::new(),
        credentials_digest: String::new(),
        version: Some(version.to_owned()),
        member: None,
        weighted: false,
    };
    let volume = VolumePin { number: 1, availability_zone: "eu-west-1a".to_owned(), kms_key_arn: None };
    let member = MemberRole {
        peer_url: String::new(),
        volume_gib: 30,
        pin: MemberPin { joins: false, initial_cluster: BTreeMap::new(), join_endpoints: Vec::new(), volume },
        zone: NameZone::Made,
    };
    let mut roles = BTreeMap::from([
        (Role::Controller, node(runs.kubernetes)),
        (Role::Etcd(0), NodeRole { member: Some(member), ..node(runs.etcd) }),
    ]);
    roles.extend(runs.pools.iter().map(|(name, version)| (Role::Pool((*name).to_owned()), node(version))));
    Rendering {
        format: Rendering::FORMAT,
        cluster: "base".to_owned(),
        stacks: Vec::new(),
        roles,
        addons: Default::default(),
    }
}

/// The findings about a spec because `running` runs.
fn objections_text(spec: &str, running: &Rendering) -> String {
    let accepted = parse(spec.as_bytes(), None).unwrap_or_else(|found| panic!("{}", findings_text(&found)));
    let (places, cluster) = (&accepted.places, &accepted.cluster);
    findings_text(&check_update(places, cluster, &Lock::default(), running, &BTreeMap::new()))
}

/// The findings about the base with another version and more keys, where that runs.
fn onto(runs: &Runs<'_>, version: &str, more: &str) -> String {
    let text = format!("{}{more}", BASE.replace("\"1.37\"", version));
    objections_text(&text, &running(runs))
}

const OF_1_34: Runs<'_> = Runs { kubernetes: "1.34.2", pools: &[("general", "1.34.2")], etcd: "3.6.16" };
const OF_1_36: Runs<'_> = Runs { kubernetes: "1.36.6", pools: &[("general", "1.36.6")], etcd: "3.6.16" };

#[test]
fn one_minor_up_or_a_patch_is_nothing_to_object_to() {
    assert_eq!(onto(&OF_1_34, "1.34.2", ""), "");
    assert_eq!(onto(&OF_1_34, "1.34.13", ""), "");
    assert_eq!(onto(&OF_1_34, "1.35", ""), "");
    assert_eq!(onto(&OF_1_36, "1.37", ""), "");
}

#[test]
fn a_minor_release_cannot_be_skipped_and_the_way_is_named() {
    insta::assert_snapshot!([onto(&OF_1_34, "1.36", ""), onto(&OF_1_34, "1.37", "etcd: {version: 3.6.16}\n")].concat(), @r##"
    3:20 error version-skip at `kubernetesVersion`: Kubernetes 1.34.2 runs, and 1.36 is asked for: a minor release cannot be skipped
        upload 1.35 first, then 1.36, each when the one before has been rolled out
    3:20 error version-skip at `kubernetesVersion`: Kubernetes 1.34.2 runs, and 1.37 is asked for: a minor release cannot be skipped
        upload 1.35 first, then 1.36, then 1.37, each when the one before has been rolled out
    "##);
}

#[test]
fn nothing_goes_back_a_minor_release() {
    insta::assert_snapshot!([onto(&OF_1_36, "1.35.10", ""), onto(&OF_1_36, "1.36.2", "")].concat(), @r##"
    3:20 error version-downgrade at `kubernetesVersion`: Kubernetes 1.36.6 runs, and 1.35 is asked for: it cannot go back a minor release
        write 1.36 or newer, or restore a snapshot from before
    3:20 warning version-downgrade at `kubernetesVersion`: Kubernetes 1.36.6 runs, and the older patch 1.36.2 is asked for
        write 1.36.6, unless going back is on purpose
    "##);
}

#[test]
fn kubelets_are_never_more_than_three_minors_behind_not_even_on_the_way() {
    // The pool is to follow in the same update, but the controllers come first.
    let lagging =
        Runs { kubernetes: "1.36.6", pools: &[("general", "1.33.4"), ("gone", "1.33.4")], etcd: "3.6.16" };
    insta::assert_snapshot!(onto(&lagging, "1.37", ""), @r##"
    3:20 error kubelet-skew at `kubernetesVersion`: the kubelets of pool `general` run 1.33.4, and the API server is to be 1.37: three minors are the most that they may be behind
        bring the pool to 1.34 or newer first, with the cluster's `kubernetesVersion` as it is, then upload this
    3:20 error kubelet-skew at `kubernetesVersion`: the kubelets of pool `gone` run 1.33.4, and the API server is to be 1.37: three minors are the most that they may be behind
        the pool is no longer in the spec, but its nodes stand: upload this with the `kubernetesVersion` of before first, which drains them and deletes the stack base-pool-general
    "##);
    assert_eq!(onto(&lagging, "1.36", ""), "");
}

#[test]
fn etcd_takes_one_minor_at_a_time_from_a_late_enough_patch() {
    let etcd = |version| Runs { etcd: version, ..OF_1_36 };
    insta::assert_snapshot!([
        onto(&etcd("3.5.30"), "1.37", ""),
        onto(&etcd("3.5.25"), "1.36", ""),
        onto(&etcd("3.6.10"), "1.37", "etcd: {version: 3.7.3}\n"),
        onto(&etcd("3.7.3"), "1.36", "etcd: {version: 3.6.16}\n"),
    ].concat(), @r##"
    3:20 error version-skip at `kubernetesVersion`: etcd 3.5.30 runs, and 3.7 is asked for: a minor release cannot be skipped
        upload etcd 3.6 first, then 3.7, each when the one before has been rolled out
    3:20 error version-skip at `kubernetesVersion`: etcd 3.5.25 runs, and 3.6.16 is asked for: only 3.5.26 and newer can go to 3.6
        upload `etcd: {version: 3.5.26}` first, and this when it has been rolled out
    17:17 error version-skip at `etcd.version`: etcd 3.6.10 runs, and 3.7.3 is asked for: only 3.6.11 and newer can go to 3.7
        upload `etcd: {version: 3.6.11}` first, and this when it has been rolled out
    17:17 error version-downgrade at `etcd.version`: etcd 3.7.3 runs, and 3.6 is asked for: it cannot go back a minor release
        write 3.7 or newer, or restore a snapshot from before
    "##);
    assert_eq!(onto(&etcd("3.5.26"), "1.36", ""), "");
    assert_eq!(onto(&etcd("3.6.11"), "1.37", ""), "");
}

#[test]
fn a_data_volume_never_shrinks() {
    insta::assert_snapshot!([
        onto(&OF_1_36, "1.36", "etcd: {dataVolume: {size: 20}}\n"),
        onto(&OF_1_36, "1.36", "etcd: {nodes: [{dataVolume: {size: 10}}]}\n"),
    ].concat(), @r##"
    17:27 error volume-shrinks at `etcd.dataVolume.size`: the data volume of `etcd-0` has 30 GiB, and 20 are asked for: a volume cannot shrink
        write 30 or more
    17:36 error volume-shrinks at `etcd.nodes[0].dataVolume.size`: the data volume of `etcd-0` has 30 GiB, and 10 are asked for: a volume cannot shrink
        write 30 or more
    "##);
    assert_eq!(onto(&OF_1_36, "1.36", "etcd: {dataVolume: {size: 40}}\n"), "");
    // Another zone is another volume, which may have any size.
    assert_eq!(
        onto(&OF_1_36, "1.36", "etcd: {nodes: [{subnet: {name: private-b}, dataVolume: {size: 10}}]}\n"),
        ""
    );
}

#[test]
fn the_issuer_of_tokens_is_switched_in_two_steps() {
    let said = |issuers: &str, more: &str| {
        let text = format!("{BASE}{more}");
        let mut running = running(&Runs { kubernetes: "1.37.0", pools: &[], etcd: "3.7.3" });
        running.roles.get_mut(&Role::Controller).unwrap().config =
            format!(r#"{{"controlPlane": {{"serviceAccountTokens": {{"issuers": [{issuers}]}}}}}}"#);
        objections_text(&text, &running)
    };
    let local = r#""https://kubernetes.default.svc.cluster.local""#;
    let (accepted, signs) = (format!(r#"{local}, "https://i/c""#), format!(r#""https://i/c", {local}"#));
    let (on, step) =
        ("iamRolesForServiceAccounts:\n  enabled: true\n", "iamRolesForServiceAccounts:\n  enabled: false\n");
    let found = said("", on);
    assert!(found.contains("issuer-switch") && found.contains("{enabled: false}"), "{found}");
    assert!(found.contains("error issuer-switch"), "{found}");
    let found = said(&signs, "");
    assert!(found.contains("error issuer-switch") && found.contains("this forgets the issuer"), "{found}");
    for (issuers, more) in
        [("", step), (&accepted, on), (&signs, on), (&signs, step), (&accepted, ""), ("", "")]
    {
        assert_eq!(said(issuers, more), "");
    }
}

/// The findings about the base with more keys, where nodes with these configurations run.
fn onto_addresses(more: &str, endpoint: &str) -> String {
    let text = format!("{BASE}{more}");
    let mut running = running(&Runs { kubernetes: "1.37.0", pools: &[("general", "1.37.0")], etcd: "3.7.3" });
    running.roles.get_mut(&Role::Controller).unwrap().config = r#"{
        "apiServer": "https://127.0.0.1:443", "podNetwork": {"podCidr": "10.2.0.0/16"},
        "controlPlane": {"serviceCidr": "10.3.0.0/24"}, "kubelet": {"clusterDns": "10.3.0.10"}}"#
        .to_owned();
    running.roles.get_mut(&Role::Pool("general".to_owned())).unwrap().config =
        format!(r#"{{"apiServer": "https://{endpoint}"}}"#);
    objections_text(&text, &running)
}

#[test]
fn the_ranges_of_a_cluster_that_runs_cannot_change_and_the_way_is_named() {
    let api = parse(BASE.as_bytes(), None).unwrap().cluster.api_endpoints[0].dns_name.clone();
    insta::assert_snapshot!(
        onto_addresses("podCIDR: 10.4.0.0/16\nserviceCIDR: 10.5.0.0/24\ndnsServiceIP: 10.5.0.10\n", &api), @r##"
    17:10 error address-changes at `podCIDR`: the range of the pods is 10.2.0.0/16 in the cluster that runs, and 10.4.0.0/16 is asked for: it cannot change in place
        write `podCIDR: 10.2.0.0/16`. To have another range, launch a second cluster with it and move the workloads
    18:14 error address-changes at `serviceCIDR`: the range of the Services is 10.3.0.0/24 in the cluster that runs, and 10.5.0.0/24 is asked for: it cannot change in place
        write `serviceCIDR: 10.3.0.0/24`. For more addresses, create a `ServiceCIDR` object (kubernetes.io/docs/tasks/network/extend-service-ip-ranges); to have another range instead, launch a second cluster with it and move the workloads
    "##);
    assert!(onto_addresses("dnsServiceIP: 10.3.0.20\n", &api).contains("write `dnsServiceIP: 10.3.0.10`"));
    assert_eq!(onto_addresses("podCIDR: 10.2.0.0/16\nserviceCIDR: 10.3.0.0/24\n", &api), "");
}

#[test]
fn a_name_of_the_api_stays_while_nodes_use_it() {
    insta::assert_snapshot!(onto_addresses("", "old.example.com"), @r##"
    6:12 error endpoint-in-use at `apiEndpoints[0].dnsName`: nodes of `pool-general` reach the API by old.example.com, which is no longer among the endpoints: they would lose it
        rename an endpoint in three uploads, each when the one before is rolled out: add an endpoint with the new `dnsName`; name it in `worker.apiEndpointName`, in the pools' `apiEndpointName` and in `adminAPIEndpointName`; remove the old one
    "##);
}

/// The findings about a spec where the base with `before` in its endpoint runs, and the plan's own objections.
fn onto_endpoint(before: &str, after: &str) -> (String, Vec<String>) {
    let spec = |loadbalancer: &str| {
        let edit = format!("dnsName: api.example.com\n{loadbalancer}");
        BASE.replacen("dnsName: api.example.com\n", &edit, 1)
    };
    let rename = |text: &str| match text.strip_prefix("main: ") {
        Some(rest) => spec(rest).replacen("- name: default", "- name: main", 1),
        None => spec(text),
    };
    let cluster = |text: &str| parse(text.as_bytes(), None).unwrap().cluster;
    let running = slipway_render::fixture::rendered(&cluster(&rename(before)));
    let new = slipway_render::fixture::rendered(&cluster(&rename(after)));
    let messages = between(&running, &BTreeMap::new(), &new);
    (objections_text(&rename(after), &running), messages.into_iter().map(|one| one.message).collect())
}

const WITH_RECORD: &str = "  loadBalancer: {hostedZone: {id: Z0123456789ABC}}\n";

#[test]
fn an_endpoint_cannot_take_over_the_record_of_another() {
    let renamed = format!("main: {WITH_RECORD}");
    let (found, planned) = onto_endpoint(WITH_RECORD, &renamed);
    insta::assert_snapshot!(found, @r##"
    5:9 error endpoint-in-use at `apiEndpoints[0].name`: the record of api.example.com belongs to an endpoint of another name: CloudFormation would make it a second time before it deletes it, which Route 53 refuses
        keep the endpoint's `name`, which only Slipway uses, and the `dnsName` that goes with it. For other names, add an endpoint with a `dnsName` of its own, move `worker.apiEndpointName`, the pools' `apiEndpointName` and `adminAPIEndpointName` to it, and then remove the old one: three uploads, each when the one before is rolled out
    "##);
    assert_eq!(planned.len(), 1);
    let (found, planned) = onto_endpoint(WITH_RECORD, "");
    assert!(found.contains("5:9 warning endpoint-record"), "{found}");
    assert_eq!(planned, Vec::<String>::new());
    // The record of an endpoint that keeps its name is updated in place, also to another load balancer.
    for after in [
        WITH_RECORD,
        "  loadBalancer: {hostedZone: {id: Z0123456789ABC}, private: true}\n",
        "  loadBalancer: {hostedZone: {id: Z9876543210ABC}}\n",
    ] {
        assert_eq!(onto_endpoint(WITH_RECORD, after), (String::new(), Vec::new()), "{after}");
    }
    // One in another zone is another record.
    let elsewhere = "main:   loadBalancer: {hostedZone: {id: Z9876543210ABC}}\n";
    assert_eq!(onto_endpoint(WITH_RECORD, elsewhere), (String::new(), Vec::new()));
}

#[test]
fn a_load_balancer_stays_while_a_record_that_is_not_slipways_leads_nodes_to_it() {
    let (renamed, planned) = onto_endpoint("", "main: ");
    insta::assert_snapshot!(renamed, @r##"
    5:9 error endpoint-in-use at `apiEndpoints[0].name`: nodes reach the API by api.example.com, whose record Slipway did not make: the load balancer that it leads to would be deleted, and nobody would lead it to another one
        keep the endpoint's `name` and its `loadBalancer`. For another balancer, add an endpoint with a `dnsName` of its own beside this one and make its record; move `worker.apiEndpointName`, the pools' `apiEndpointName` and `adminAPIEndpointName` to it; then remove this one: three uploads, each when the one before is rolled out
    "##);
    assert_eq!(planned, Vec::<String>::new());
    let (private, _) = onto_endpoint("", "  loadBalancer: {private: true}\n");
    assert!(private.contains("7:3 error endpoint-in-use at `apiEndpoints[0].loadBalancer`"), "{private}");
    let (own, _) = onto_endpoint(
        "",
        "  loadBalancer: {managed: false, apiAccessAllowedSourceCIDRs: [203.0.113.0/24]}\n",
    );
    assert!(own.contains("endpoint-in-use"), "{own}");
    for after in ["", "  loadBalancer: {apiAccessAllowedSourceCIDRs: [203.0.113.0/24]}\n", WITH_RECORD] {
        assert_eq!(onto_endpoint("", after).0, "", "{after}");
    }
}

#[test]
fn a_release_that_wrote_no_versions_down_objects_to_nothing() {
    let mut old = running(&OF_1_34);
    for node in old.roles.values_mut() {
        (node.version, node.member) = (None, None);
    }
    let accepted = parse(BASE.as_bytes(), None).unwrap();
    assert_eq!(
        check_update(&accepted.places, &accepted.cluster, &Lock::default(), &old, &BTreeMap::new()),
        []
    );
}
