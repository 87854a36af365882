//! P2, P4: a count of members changes as a membership does, one at a time, and leaves alone who stands.

use std::collections::BTreeMap;

use slipway_core::cluster::{Cluster, EtcdMember};
use slipway_core::members::pin_members;
use slipway_core::release::Rendering;
use slipway_core::role::Role;
use slipway_render::fixture::{cluster, credentials, lock, site};
use slipway_render::lock::Lock;
use slipway_render::{Inputs, render};

use crate::{Baseline, MembershipAction, NodeAction, Plan, plan};

const KEY: &str = "arn:aws:kms:eu-west-1:111122223333:key/0a1b2c3d-0a1b-2c3d-4e5f-0a1b2c3d4e5f";

/// A cluster's life: its lock, and what is deployed.
struct Life {
    lock: Lock,
    deployed: Option<Rendering>,
}

impl Life {
    fn new() -> Self {
        Self { lock: lock(), deployed: None }
    }

    fn baseline(&self) -> Baseline {
        Baseline::single_release(self.deployed.clone())
    }

    /// As the render function does: settle, render, plan.
    fn upload(&mut self, cluster: &Cluster) -> (Rendering, Plan) {
        let baseline = self.baseline();
        self.lock.etcd_members = pin_members(cluster, &self.lock.etcd_members, &baseline.etcd(false));
        let credentials = credentials(cluster);
        let rendering = render(&Inputs::new(cluster, &self.lock, &credentials, &site())).unwrap();
        let plan = plan(&baseline, &rendering, &cluster.rollout);
        (rendering, plan)
    }

    fn roll_out(&mut self, cluster: &Cluster) -> Plan {
        let (rendering, plan) = self.upload(cluster);
        self.deployed = Some(rendering);
        plan
    }
}

fn cluster_with_members(count: u32) -> Cluster {
    let mut cluster = cluster();
    let first = cluster.etcd.members[0].clone();
    cluster.etcd.members = (0..count)
        .map(|index| EtcdMember {
            index,
            name: format!("etcd-{index}"),
            dns_name: format!("etcd-{index}.prod.etcd.internal"),
            subnet: format!("private-{}", ["a", "b", "c"][index as usize % 3]),
            ..first.clone()
        })
        .collect();
    cluster
}

/// What becomes of the members that the plan touches, and of the controllers.
fn fates(plan: &Plan) -> Vec<(String, NodeAction)> {
    let nodes = plan.nodes.iter().filter(|node| node.action != NodeAction::Untouched);
    nodes.map(|node| (node.role.to_string(), node.action)).collect()
}

fn changes(plan: &Plan) -> Vec<(String, MembershipAction, u32, u32)> {
    let changes = plan.membership.iter();
    changes
        .map(|change| (change.member.to_string(), change.action, change.voters_before, change.voters_after))
        .collect()
}

#[test]
fn founding_a_cluster_is_no_change_of_its_membership() {
    let mut life = Life::new();
    assert_eq!(changes(&life.roll_out(&cluster_with_members(3))), []);
    assert!(life.upload(&cluster_with_members(3)).1.is_empty());
}

#[test]
fn p2_p4_from_three_to_five_and_back() {
    let mut life = Life::new();
    life.roll_out(&cluster_with_members(3));
    let three = life.deployed.clone().unwrap();

    let grown = life.roll_out(&cluster_with_members(5));
    let add = MembershipAction::Add;
    assert_eq!(changes(&grown), [("etcd-3".to_owned(), add, 3, 4), ("etcd-4".to_owned(), add, 4, 5)]);
    // Their servers' list changes, so controllers go one after the other; no member that stands does.
    let fate = |role: &str, action| (role.to_owned(), action);
    assert_eq!(
        fates(&grown),
        [
            fate("etcd-3", NodeAction::Create),
            fate("etcd-4", NodeAction::Create),
            fate("controller", NodeAction::Replace)
        ]
    );
    assert_eq!(grown.not_executable(), None);
    let five = life.deployed.clone().unwrap();
    let config = |rendering: &Rendering, index| -> serde_json::Value {
        serde_json::from_str(&rendering.roles[&Role::Etcd(index)].config).unwrap()
    };
    let joined = config(&five, 3);
    assert_eq!(joined["etcd"]["initialClusterState"], "existing");
    // etcd would not start with a list that names more than are members when it comes up: neither joiner has one.
    let standing: Vec<String> =
        (0..3).map(|index| format!("https://etcd-{index}.prod.etcd.internal:2379")).collect();
    for index in [3, 4] {
        let etcd = &config(&five, index)["etcd"];
        assert!(etcd.get("initialCluster").is_none(), "{etcd}");
        assert_eq!(etcd["joinEndpoints"], serde_json::json!(standing));
    }
    let founder = &config(&five, 0)["etcd"];
    assert_eq!(founder["initialCluster"].as_object().unwrap().len(), 3);
    assert!(founder.get("joinEndpoints").is_none());
    assert!(config(&five, 0)["etcd"].get("initialClusterState").is_none());

    let shrunk = life.roll_out(&cluster_with_members(3));
    let remove = MembershipAction::Remove;
    assert_eq!(changes(&shrunk), [("etcd-4".to_owned(), remove, 5, 4), ("etcd-3".to_owned(), remove, 4, 3)]);
    assert_eq!(
        fates(&shrunk),
        [
            fate("controller", NodeAction::Replace),
            fate("etcd-3", NodeAction::Remove),
            fate("etcd-4", NodeAction::Remove)
        ]
    );
    // They leave the membership one after the other before their groups go: shared/rollout/src/tests/leaving.rs.
    assert_eq!(shrunk.not_executable(), None);
    assert_eq!(life.deployed.as_ref().unwrap().id(), three.id(), "as before, byte for byte");

    // Whoever left and comes back has no data: it joins as any other, though it may have founded the cluster once.
    let mut from_five = Life::new();
    from_five.roll_out(&cluster_with_members(5));
    from_five.roll_out(&cluster_with_members(3));
    from_five.roll_out(&cluster_with_members(5));
    let again = from_five.deployed.unwrap();
    assert_eq!(config(&again, 4)["etcd"]["initialClusterState"], "existing");
    assert!(config(&again, 2)["etcd"].get("initialClusterState").is_none());
}

#[test]
fn p4_from_one_to_three_says_what_it_does_to_the_quorum() {
    let mut life = Life::new();
    life.roll_out(&cluster_with_members(1));
    let plan = life.roll_out(&cluster_with_members(3));
    let words: Vec<&str> = plan.membership.iter().map(|change| change.quorum.as_str()).collect();
    assert_eq!(
        words,
        [
            "1 → 2 voters, quorum 1 → 2, 0 → 0 may fail; until it has caught up it is a learner without a vote",
            "2 → 3 voters, quorum 2 → 2, 0 → 1 may fail; until it has caught up it is a learner without a vote",
        ]
    );
    insta::assert_snapshot!("growing", plan.to_text());
}

#[test]
fn p1_a_change_that_is_taken_back_before_it_was_rolled_out_leaves_no_trace() {
    let mut life = Life::new();
    life.roll_out(&cluster_with_members(3));
    let mut moved = cluster_with_members(3);
    moved.etcd.members[1].subnet = "private-a".to_owned();
    for detour in [cluster_with_members(5), cluster_with_members(1), moved] {
        assert!(!life.upload(&detour).1.is_empty());
        assert!(life.upload(&cluster_with_members(3)).1.is_empty());
    }
}

#[test]
fn p1_what_is_on_its_way_is_not_settled_anew() {
    let (mut five, mut three) = (BTreeMap::new(), BTreeMap::new());
    // A launch with three is under way, and somebody wants five.
    three = pin_members(&cluster_with_members(3), &three, &Baseline::default().etcd(false));
    let grown = pin_members(&cluster_with_members(5), &three, &Baseline::default().etcd(true));
    assert_eq!(grown[&0], three[&0]);
    assert!(grown[&4].joins && !grown[&2].joins);
    assert_eq!(grown[&4].join_endpoints.len(), 3);
    // Whoever was asked for and is not under way is nobody to ask.
    assert_eq!(pin_members(&cluster_with_members(5), &grown, &Baseline::default().etcd(true)), grown);
    // Nothing is under way: five found the cluster together.
    five = pin_members(&cluster_with_members(5), &five, &Baseline::default().etcd(false));
    assert!(five.values().all(|pin| !pin.joins && pin.initial_cluster.len() == 5));
}

#[test]
fn p4_a_volume_that_cannot_move_is_replaced_with_its_member_leaving_and_joining_anew() {
    type Change = fn(&mut EtcdMember);
    let cases: [(Change, &str); 2] = [
        (|member| member.subnet = "private-a".to_owned(), "cannot move from eu-west-1b to eu-west-1a"),
        (
            |member| member.data_volume.kms_key_arn = Some(KEY.to_owned()),
            "cannot be encrypted under another key",
        ),
    ];
    for (change, why) in cases {
        let mut life = Life::new();
        life.roll_out(&cluster_with_members(3));
        let mut other = cluster_with_members(3);
        change(&mut other.etcd.members[1]);
        let (rendering, plan) = life.upload(&other);
        assert_eq!(changes(&plan), [("etcd-1".to_owned(), MembershipAction::Replace, 3, 3)]);
        assert_eq!(
            plan.membership[0].quorum,
            "3 → 2 voters until it has caught up from them: quorum 2, 0 may fail meanwhile"
        );
        assert_eq!(fates(&plan), [("etcd-1".to_owned(), NodeAction::Replace)]);
        let node = plan.nodes.iter().find(|node| node.role == Role::Etcd(1)).unwrap();
        assert!(node.reasons[0].contains(why), "{:?}", node.reasons);
        assert!(
            plan.not_executable().unwrap().contains("replaces the data volumes of etcd members (etcd-1)")
        );
        // Another resource: CloudFormation would refuse to change the old one.
        let etcd: serde_json::Value =
            serde_json::from_str(&rendering.stack("prod-etcd").unwrap().body).unwrap();
        assert!(etcd["Resources"].get("DataVolume1").is_none());
        let volume = &etcd["Resources"]["DataVolume1Number2"];
        assert_eq!(volume["DeletionPolicy"], "Snapshot");
        let config = &rendering.roles[&Role::Etcd(1)].config;
        assert!(config.contains("\"slipway:volume\":\"etcd-data-2\""), "{config}");
        // It asks those that stay.
        let asked: Vec<String> =
            [0, 2].iter().map(|index| format!("https://etcd-{index}.prod.etcd.internal:2379")).collect();
        assert_eq!(life.lock.etcd_members[&1].join_endpoints, asked);
        // And once that is deployed, it is what stands.
        life.deployed = Some(rendering);
        assert!(life.upload(&other).1.is_empty());
    }
}

#[test]
fn p4_the_only_members_volume_is_the_cluster() {
    let mut life = Life::new();
    life.roll_out(&cluster_with_members(1));
    let mut other = cluster_with_members(1);
    other.etcd.members[0].subnet = "private-b".to_owned();
    let (_, plan) = life.upload(&other);
    assert!(plan.membership[0].quorum.contains("all data of the cluster is lost"));
}

#[test]
fn p3_another_address_of_a_member_is_a_change_of_the_membership_and_another_name_is_not() {
    let mut life = Life::new();
    life.roll_out(&cluster_with_members(3));
    let mut other = cluster_with_members(3);
    other.etcd.members[2].dns_name = "c.prod.etcd.internal".to_owned();
    let (_, plan) = life.upload(&other);
    assert_eq!(changes(&plan), [("etcd-2".to_owned(), MembershipAction::Readdress, 3, 3)]);
    assert!(
        plan.membership[0]
            .reason
            .ends_with("https://etcd-2.prod.etcd.internal:2380 → https://c.prod.etcd.internal:2380")
    );
    let fate = |role: &str| (role.to_owned(), NodeAction::Replace);
    assert_eq!(fates(&plan), [fate("etcd-2"), fate("controller")]);
    assert!(plan.not_executable().is_some());

    let mut named = cluster_with_members(3);
    named.etcd.members[2].name = "charlie".to_owned();
    let (_, plan) = life.upload(&named);
    assert!(plan.is_empty(), "in etcd it has its role as its name: {}", plan.to_text());
}

#[test]
fn a_release_that_wrote_nothing_down_about_members_keeps_them_as_they_are() {
    let mut life = Life::new();
    life.roll_out(&cluster_with_members(3));
    let before = life.deployed.clone().unwrap();
    for node in life.deployed.as_mut().unwrap().roles.values_mut() {
        node.member = None;
    }
    life.lock.etcd_members.clear();
    let (after, plan) = life.upload(&cluster_with_members(3));
    assert_eq!(before.id(), after.id());
    assert!(plan.is_empty());
    let (_, plan) = life.upload(&cluster_with_members(5));
    assert_eq!(changes(&plan).len(), 2);
}

#[test]
fn a_stored_plan_of_the_format_before_is_still_read() {
    let mut life = Life::new();
    let mut plan = serde_json::to_value(life.roll_out(&cluster_with_members(3))).unwrap();
    plan.as_object_mut().unwrap().remove("membership");
    assert_eq!(serde_json::from_value::<Plan>(plan).unwrap().membership, []);
}

#[test]
fn p4_the_zone_of_etcds_names_stays_the_one_that_it_was() {
    let of_zone = |zone: Option<&str>, profile: bool| {
        let mut cluster = cluster_with_members(3);
        cluster.etcd.hosted_zone_id = zone.map(str::to_owned);
        let arn = "arn:aws:iam::123456789012:instance-profile/etcd";
        cluster.etcd.iam.instance_profile_arn = profile.then(|| arn.to_owned());
        cluster
    };
    for (before, after, why) in [
        (None, Some("ZA"), "are in the zone that Slipway made, and the hosted zone ZA is asked for"),
        (Some("ZA"), Some("ZB"), "are in the hosted zone ZA, and the hosted zone ZB is asked for"),
        (Some("ZA"), None, "are in the hosted zone ZA, and the zone that Slipway made is asked for"),
    ] {
        for profile in [false, true] {
            let mut life = Life::new();
            life.roll_out(&of_zone(before, profile));
            let (rendering, plan) = life.upload(&of_zone(after, profile));
            let told = plan.not_executable().unwrap();
            assert!(told.contains(why), "{told}");
            // And said when it is uploaded, with the line.
            let running = life.deployed.as_ref().unwrap();
            let found =
                crate::skew::objections(&of_zone(after, profile), &life.lock, running, &BTreeMap::new());
            assert!(found.iter().any(|objection| objection.code == "etcd-zone"), "{found:?}");
            let same =
                crate::skew::objections(&of_zone(after, profile), &life.lock, &rendering, &BTreeMap::new());
            assert!(same.iter().all(|objection| objection.code != "etcd-zone"), "{same:?}");
        }
    }
}
