//! What each etcd member has of its own: volume, key, name, rights.

use serde_json::{Value, json};
use slipway_core::cluster::{Cluster, Volume};
use slipway_core::release::Rendering;
use slipway_core::role::Role;

use super::of_type;
use super::references::dangling;
use crate::fixture::{cluster, rendered, volume};

const KEY: &str = "arn:aws:kms:eu-west-1:111122223333:key/0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";

fn template(rendering: &Rendering, stack: &str) -> Value {
    serde_json::from_str(&rendering.stack(stack).unwrap().body).unwrap()
}

/// The statement of that name in the member's role, if it has it.
fn statement<'a>(etcd: &'a Value, index: u32, sid: &str) -> Option<&'a Value> {
    let policy =
        &etcd["Resources"][format!("EtcdRole{index}")]["Properties"]["Policies"][0]["PolicyDocument"];
    policy["Statement"].as_array().unwrap().iter().find(|statement| statement["Sid"] == sid)
}

fn own_volumes() -> Cluster {
    let mut cluster = cluster();
    cluster.etcd.members[1].data_volume =
        Volume { kind: "io2".to_owned(), iops: Some(8000), kms_key_arn: Some(KEY.to_owned()), ..volume(80) };
    cluster
}

#[test]
fn p2_each_member_has_its_own_volume_and_no_other_is_touched_by_it() {
    let etcd = template(&rendered(&own_volumes()), "prod-etcd");
    let properties = |index: u32| &etcd["Resources"][format!("DataVolume{index}")]["Properties"];
    assert_eq!(properties(0)["VolumeType"], "gp3");
    assert_eq!((&properties(1)["VolumeType"], &properties(1)["Size"]), (&json!("io2"), &json!(80)));
    assert_eq!((&properties(1)["Iops"], &properties(1)["KmsKeyId"]), (&json!(8000), &json!(KEY)));

    let (before, mut faster) = (rendered(&own_volumes()), own_volumes());
    faster.etcd.members[1].data_volume.iops = Some(9000);
    let after = rendered(&faster);
    let roles = |rendering: &Rendering| -> Vec<(Role, String)> {
        rendering
            .roles
            .iter()
            .map(|(role, node)| (role.clone(), format!("{}{}", node.machine, node.config)))
            .collect()
    };
    assert_eq!(roles(&before), roles(&after), "operations change in place, under the machine");
}

#[test]
fn p9_a_member_may_have_its_own_volumes_key_opened_or_else_the_accounts() {
    let etcd = template(&rendered(&own_volumes()), "prod-etcd");
    assert_eq!(statement(&etcd, 1, "OpenOwnVolume").unwrap()["Resource"], KEY);
    // The account may have chosen another default key for EBS than AWS' own.
    let of_account = json!({ "Fn::Sub": "arn:aws:kms:eu-west-1:${AWS::AccountId}:key/*" });
    for index in [0, 2] {
        assert_eq!(statement(&etcd, index, "OpenOwnVolume").unwrap()["Resource"], of_account);
    }
}

#[test]
fn p9_a_member_sets_its_own_record_and_no_other() {
    let mut named = cluster();
    named.etcd.members[2].dns_name = "cedar.prod.etcd.internal".to_owned();
    let etcd = template(&rendered(&named), "prod-etcd");
    let names = |index| {
        let condition = &statement(&etcd, index, "SetOwnRecord").unwrap()["Condition"];
        condition["ForAllValues:StringEquals"]["route53:ChangeResourceRecordSetsNormalizedRecordNames"]
            .clone()
    };
    assert_eq!(names(1), json!(["etcd-1.prod.etcd.internal"]));
    assert_eq!(names(2), json!(["cedar.prod.etcd.internal"]));
    // It sets its own alone, and takes all of them back.
    let condition = &statement(&etcd, 1, "TakeRecordsBack").unwrap()["Condition"];
    assert_eq!(
        condition["ForAllValues:StringLike"]["route53:ChangeResourceRecordSetsNormalizedRecordNames"],
        json!(["etcd-*.prod.etcd.internal", "cedar.prod.etcd.internal"])
    );
    let actions = &condition["ForAllValues:StringEquals"]["route53:ChangeResourceRecordSetsActions"];
    assert_eq!(*actions, json!(["DELETE"]));
}

#[test]
fn a_hosted_zone_that_exists_is_used_and_none_is_made() {
    let mut named = cluster();
    named.etcd.hosted_zone_id = Some("Z0123456789ABC".to_owned());
    let rendering = rendered(&named);
    assert!(of_type(&template(&rendering, "prod-network"), "AWS::Route53::HostedZone").is_empty());
    assert!(!rendering.stack("prod-network").unwrap().body.contains("EtcdHostedZone"));
    assert_eq!(dangling(&rendering), Vec::<String>::new());
    let etcd = template(&rendering, "prod-etcd");
    assert_eq!(
        statement(&etcd, 0, "SetOwnRecord").unwrap()["Resource"],
        "arn:aws:route53:::hostedzone/Z0123456789ABC"
    );
    let script =
        &etcd["Resources"]["LaunchTemplate0"]["Properties"]["LaunchTemplateData"]["UserData"]["Fn::Base64"];
    assert!(script.as_str().unwrap().contains(",\"zone\":\"Z0123456789ABC\"}\nNODE\n"), "{script}");
}

#[test]
fn p9_members_open_one_anothers_snapshots_and_nobody_elses_anything() {
    let rendering = rendered(&cluster());
    let etcd = template(&rendering, "prod-etcd");
    for member in 0..3 {
        let sealing = statement(&etcd, member, "SealOwnSnapshots").unwrap();
        assert_eq!(
            sealing["Condition"]["StringEquals"],
            json!({
                "kms:EncryptionContext:cluster": "prod",
                "kms:EncryptionContext:role": "etcd-snapshot",
            })
        );
        let keeping = statement(&etcd, member, "KeepSnapshots").unwrap();
        let bucket = "arn:aws:s3:::slipway-assets-example";
        let folders = ["clusters/prod/etcd-snapshots/*", "scheduled-snapshots/prod/*"];
        assert_eq!(keeping["Resource"], json!(folders.map(|folder| format!("{bucket}/{folder}"))));
        assert_eq!(keeping["Action"], json!(["s3:GetObject", "s3:PutObject"]), "none may be deleted");
    }
    for stack in &rendering.stacks {
        assert_eq!(stack.body.contains("etcd-snapshot"), stack.name == "prod-etcd", "{}", stack.name);
    }
}

#[test]
fn p2_a_pool_that_lags_runs_its_own_release_and_stays_when_the_others_move() {
    let mut lagging = cluster();
    lagging.kubernetes_version.patch = Some(9);
    lagging.pools[2].kubernetes_version =
        Some(slipway_core::cluster::KubernetesVersion { patch: Some(2), ..lagging.kubernetes_version });
    let before = rendered(&lagging);
    let version = |rendering: &Rendering, role: &Role| rendering.roles[role].version.clone().unwrap();
    let ingress = Role::Pool("ingress".to_owned());
    assert_eq!(version(&before, &ingress), "1.34.2");
    assert_eq!(version(&before, &Role::Controller), "1.34.9");
    assert_eq!(version(&before, &Role::Etcd(0)), "3.6.6");
    assert!(before.roles[&ingress].config.contains("\"kubernetesVersion\":\"1.34.2\""));
    lagging.kubernetes_version.patch = Some(10);
    let after = rendered(&lagging);
    assert_eq!(before.roles[&ingress], after.roles[&ingress]);
    assert_ne!(before.roles[&Role::Pool("spot".to_owned())], after.roles[&Role::Pool("spot".to_owned())]);
}

#[test]
fn a_quota_is_in_every_members_configuration_and_in_none_without_one() {
    let configurations = |quota_gib| {
        let mut cluster = cluster();
        cluster.etcd.quota_gib = quota_gib;
        let roles = rendered(&cluster).roles;
        let members = roles.into_iter().filter(|(role, _)| matches!(role, Role::Etcd(_)));
        members.map(|(_, node)| node.config).collect::<Vec<_>>()
    };
    let members = configurations(Some(8));
    assert_eq!(members.len(), 3);
    assert!(members.iter().all(|config| config.contains("\"quotaBytes\":8589934592")), "{members:?}");
    // Clusters without the key keep their bytes (P1).
    assert!(configurations(None).iter().all(|config| !config.contains("quota")));
}
