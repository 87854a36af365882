//! What the look at the whole cluster finds, on values.

#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::*;

fn answer(value: Value) -> ClusterServes {
    serde_json::from_value(value).unwrap()
}

fn words(gaps: impl IntoIterator<Item = Gap>) -> Vec<String> {
    gaps.into_iter().map(|gap| gap.to_string()).collect()
}

#[test]
fn p11_each_part_of_a_controller_that_does_not_serve_is_named() {
    let report = answer(json!({
        "apiServer": {"healthy": false, "problem": "503"}, "controllerManager": {"healthy": false, "problem": "refused"},
        "scheduler": {"healthy": false}, "nodeManager": {"healthy": false}, "etcd": {},
    }));
    let all = [
        "the API server on i-1 is not ready: 503",
        "kube-controller-manager on i-1 is not healthy: refused",
        "kube-scheduler on i-1 is not healthy: it does not say why",
        "the node manager on i-1 does not work: it does not say why",
    ];
    assert_eq!(words(of_controller("i-1", &report)), all);
}

/// What a controller that is well says, and that of etcd.
fn report(etcd: Value) -> ClusterServes {
    let well = json!({"healthy": true});
    answer(
        json!({"apiServer": well, "controllerManager": well, "scheduler": well, "nodeManager": well, "etcd": etcd}),
    )
}

#[test]
fn p11_a_machine_of_etcd_that_is_no_member_is_a_gap_although_the_members_serve() {
    let (well, none) = (report(json!({"etcd-0": {"healthy": true}})), report(json!({})));
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
    let wanted = named(&["etcd-0", "etcd-1"]);
    let gaps = |report: &[ClusterServes], skipped: &[&str]| words(of_etcd(report, &wanted, &named(skipped)));
    assert_eq!(gaps(std::slice::from_ref(&well), &[]), ["etcd-1 is not a member of etcd"]);
    assert_eq!(gaps(std::slice::from_ref(&well), &["etcd-1"]), [""; 0], "a person skipped it");
    let both = report(json!({"etcd-0": {"healthy": true}, "etcd-1": {"healthy": true}}));
    assert_eq!(gaps(&[well, both], &[]), [""; 0], "one controller knows it");
    assert_eq!(gaps(&[none], &[]), ["no member of etcd serves"]);
}

#[test]
fn p11_etcd_serves_if_every_controller_says_so_of_every_member() {
    let of_etcd = |report: &[ClusterServes], skipped: &BTreeSet<String>| {
        super::of_etcd(report, &BTreeSet::from(["etcd-0".to_owned()]), skipped)
    };
    let (well, none) = (json!({"etcd-0": {"healthy": true}}), json!({}));
    let ill = json!({"etcd-0": {"healthy": false, "problem": "refused"}});
    let nobody = BTreeSet::new();
    assert_eq!(words(of_etcd(&[report(well.clone()), report(none.clone())], &nobody)), [""; 0]);
    assert_eq!(words(of_etcd(&[report(none.clone()), report(none)], &nobody)), ["no member of etcd serves"]);
    let one = ["the member etcd-0 of etcd does not serve: refused"];
    assert_eq!(words(of_etcd(&[report(well), report(ill.clone())], &nobody)), one);
    // The only member was skipped: it does not count, and the quorum does.
    let skipped = BTreeSet::from(["etcd-0".to_owned()]);
    assert_eq!(words(of_etcd(&[report(ill)], &skipped)), ["no member of etcd serves"]);
}

#[test]
fn p11_a_machine_in_service_needs_a_node_that_is_ready_and_one_that_leaves_does_not() {
    let machine = |lifecycle| json!({"zone": "a", "lifecycle": lifecycle, "healthy": true, "weight": 1, "template": null});
    let group: GroupView = serde_json::from_value(json!({
        "name": "c-pool-a", "machineArns": "arn:aws:ec2:eu-west-1:123456789012:instance/", "desired": 2, "min": 1, "max": 4, "template": null, "tags": {},
        "machines": {"i-1": machine("inService"), "i-2": machine("inService"), "i-3": machine("terminatingWait")},
    }))
    .unwrap();
    let pool = Role::Pool("a".to_owned());
    let gap = |nodes: Value, skipped: &[&str]| {
        let nodes: NodesReady = serde_json::from_value(nodes).unwrap();
        let skipped = skipped.iter().map(|id| (*id).to_owned()).collect();
        words(of_nodes(&pool, &group, Some(&nodes), &skipped))
    };
    let unready = |node: &str| json!([{"node": node, "why": "no network"}]);
    assert_eq!(
        gap(json!({"registered": 3, "ready": 2, "notReady": unready("i-3")}), &[]),
        [""; 0],
        "it leaves"
    );
    let one =
        "pool-a: 1 Nodes are Ready and 2 registered, of 2 machines in service; not Ready: i-2 (no network)";
    assert_eq!(gap(json!({"registered": 2, "ready": 1, "notReady": unready("i-2")}), &[]), [one]);
    assert_eq!(gap(json!({"registered": 2, "ready": 1, "notReady": unready("i-2")}), &["i-2"]), [""; 0]);
    // The Node of a machine that leaves is Ready, so that the number would do: the name counts.
    let two =
        "pool-a: 2 Nodes are Ready and 3 registered, of 2 machines in service; not Ready: i-2 (no network)";
    assert_eq!(gap(json!({"registered": 3, "ready": 2, "notReady": unready("i-2")}), &[]), [two]);
    let missing = "pool-a: 1 Nodes are Ready and 1 registered, of 2 machines in service";
    assert_eq!(gap(json!({"registered": 1, "ready": 1}), &[]), [missing]);
    assert_eq!(
        words(of_nodes(&pool, &group, None, &BTreeSet::new())).len(),
        1,
        "no Node of the pool is known"
    );
}
