//! A role with permissions for all buckets, or for everything: of a person, of a pod with a managed policy that is listed, or by a mistake in
//! rendering. The policies of the buckets and the boundaries then still keep it out of Slipway.

use serde_json::json;
use slipway_core::keys;
use slipway_tests::client::{ACCOUNT, machine_arn};
use slipway_tests::iam::{self, Decision};
use slipway_tests::tools;
use slipway_tests::world::{Embedded, Settings};

use crate::{WRITES, installation, installation_of, is_allowed, request};

/// Whoever may write into every bucket overwrites no snapshot, and seals none with the keys of the installation. A member can put a false snapshot and a
/// false record beside good ones, and that is why a restore believes neither (tests/tests/etcd/false_snapshots.rs).
#[tokio::test(flavor = "multi_thread")]
async fn whoever_may_write_into_every_bucket_overwrites_no_snapshot_and_seals_none() {
    let world = installation().await;
    let deployed = world.deployed();
    let bucket = &deployed.arns["AssetBucket"];
    let policy = world.gateway().policy_of(bucket).unwrap();
    let person = format!("arn:aws:iam::{ACCOUNT}:role/developer");
    let denied = |key: &str, more: &[(&str, &str)]| {
        let context = [&[("aws:PrincipalArn", person.as_str())], more].concat();
        let asked = request("s3:PutObject", &format!("{bucket}/{key}"), &context);
        matches!(iam::decide_for(&policy, "*", &asked), Decision::Denied(_))
    };
    let time = "20261121T204500Z";
    for snapshot in [keys::etcd_snapshot("prod", time), keys::scheduled_snapshot("prod", time)] {
        for key in [snapshot.clone(), keys::snapshot_record(&snapshot)] {
            assert!(denied(&key, &[]) && denied(&key, &[("s3:if-match", "\"e1\"")]), "{key}");
        }
    }
    let everything = iam::parse(&json!({"Statement": {
        "Sid": "AllKeys", "Effect": "Allow", "Action": "kms:*", "Resource": "*",
    }}))
    .unwrap();
    let wide = &deployed.policies[world.reference("ManagedPoliciesBoundary").unwrap()];
    for action in ["kms:GenerateDataKey", "kms:Encrypt", "kms:Decrypt"] {
        let asked = request(action, &deployed.arns["Key"], &[]);
        assert!(!is_allowed(&iam::decide_within(wide, &everything, &asked)), "{action}");
    }
}

/// A false snapshot beside a good one of the same time keeps that from being restored, until somebody deletes it: only machines place any.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_may_write_into_every_bucket_places_no_snapshot() {
    let maintainer = format!("arn:aws:iam::{ACCOUNT}:role/maintainer");
    let person = format!("arn:aws:iam::{ACCOUNT}:role/developer");
    let pod = format!("arn:aws:iam::{ACCOUNT}:role/slipway/minimal-identity-BackupRole-1A2B");
    let member = format!("arn:aws:iam::{ACCOUNT}:role/slipway/minimal-etcd-EtcdRole0-1A2B");
    let machine = machine_arn("i-1");
    let new = ("s3:if-none-match", "*");
    for maintainers in [None, Some(&maintainer)] {
        let world = installation_of(maintainers).await;
        let deployed = world.deployed();
        let bucket = &deployed.arns["AssetBucket"];
        let policy = world.gateway().policy_of(bucket).unwrap();
        let denied = |who: &str, action: &str, key: &str, more: &[(&str, &str)]| {
            let context = [&[("aws:PrincipalArn", who)], more].concat();
            let asked = request(action, &format!("{bucket}/{key}"), &context);
            matches!(iam::decide_for(&policy, "*", &asked), Decision::Denied(_))
        };
        let time = "20261121T204500Z";
        let snapshots = [keys::etcd_snapshot("minimal", time), keys::scheduled_snapshot("minimal", time)];
        let records = snapshots.each_ref().map(|key| keys::snapshot_record(key));
        let mut everybody = vec![person.clone(), pod.clone(), member.clone()];
        everybody.extend(["RenderRole", "RolloutRole", "ScanRole"].map(|id| deployed.arns[id].clone()));
        for key in snapshots.iter().chain(&records).chain([&keys::snapshot_ledger("minimal")]) {
            for action in ["s3:PutObject", "s3:ReplicateObject"] {
                for who in &everybody {
                    assert!(denied(who, action, key, &[new]), "{who} {action} {key}");
                }
                assert_eq!(denied(&maintainer, action, key, &[new]), maintainers.is_none(), "{action} {key}");
                let on_machine = [new, ("ec2:SourceInstanceArn", machine.as_str())];
                assert!(!denied(&member, action, key, &on_machine), "{action} {key}");
            }
            assert!(!denied(&person, "s3:DeleteObject", key, &[]), "false ones can be removed: {key}");
        }
    }
}

/// AWS takes a pod's token that any key in the issuer's documents has signed: whoever adds a key there has every role of the cluster's pods.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_may_write_into_every_bucket_still_publishes_no_keys_of_an_issuer() {
    let maintainer = format!("arn:aws:iam::{ACCOUNT}:role/maintainer");
    let person = format!("arn:aws:iam::{ACCOUNT}:role/developer");
    let pod = format!("arn:aws:iam::{ACCOUNT}:role/slipway/minimal-identity-BackupRole-1A2B");
    let everything = iam::parse(&json!({"Statement": {
        "Sid": "AllBuckets", "Effect": "Allow", "Action": "s3:*", "Resource": "*",
    }}))
    .unwrap();
    for maintainers in [None, Some(&maintainer)] {
        let world = installation_of(maintainers).await;
        let deployed = world.deployed();
        let bucket = deployed.arns["IssuerBucket"].clone();
        let policy = world.gateway().policy_of(&bucket).unwrap();
        let denied = |who: &str, action: &str, key: &str| {
            let asked = request(action, &format!("{bucket}/{key}"), &[("aws:PrincipalArn", who)]);
            matches!(iam::decide_for(&policy, "*", &asked), Decision::Denied(_))
        };
        let wide = &deployed.policies[world.reference("ManagedPoliciesBoundary").unwrap()];
        for key in [keys::jwks("PROD"), keys::discovery("PROD")] {
            for action in WRITES {
                assert!(denied(&person, action, &key) && denied(&pod, action, &key), "{action} {key}");
                for function in ["RolloutRole", "ScanRole"] {
                    assert!(denied(&deployed.arns[function], action, &key), "{function} {action} {key}");
                }
                assert!(!denied(&deployed.arns["RenderRole"], action, &key), "{action} {key}");
                assert_eq!(denied(&maintainer, action, &key), maintainers.is_none(), "{action} {key}");
                let asked = request(action, &format!("{bucket}/{key}"), &[]);
                let within = iam::decide_within(wide, &everything, &asked);
                assert!(!is_allowed(&within), "with a wide policy of the installation: {action} {key}");
            }
            assert!(is_allowed(&world.gateway().anyone("s3:GetObject", &format!("{bucket}/{key}"))), "{key}");
        }
        let policy_of_bucket =
            iam::decide_within(wide, &everything, &request("s3:PutBucketPolicy", &bucket, &[]));
        assert!(!is_allowed(&policy_of_bucket));
    }
}

/// Whoever encrypts a version anew, with a key that is then deleted, has deleted it: "UpdateObjectEncryption" changes the version in place. AWS' user
/// guide lists `s3:PutObject` as needed, too (docs/aws.md), but maintainers, machines and functions have that.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_changes_how_an_object_is_encrypted() {
    const CHANGES: &str = "s3:UpdateObjectEncryption";
    let maintainer = format!("arn:aws:iam::{ACCOUNT}:role/maintainer");
    let everything = iam::parse(&json!({"Statement": {
        "Sid": "AllBuckets", "Effect": "Allow", "Action": "s3:*", "Resource": "*",
    }}))
    .unwrap();
    let machine = machine_arn("i-0a");
    for maintainers in [None, Some(&maintainer)] {
        let world = installation_of(maintainers).await;
        let deployed = world.deployed();
        let wide = &deployed.policies[world.reference("ManagedPoliciesBoundary").unwrap()];
        let mut everybody = vec![
            maintainer.clone(),
            format!("arn:aws:iam::{ACCOUNT}:role/developer"),
            format!("arn:aws:iam::{ACCOUNT}:role/slipway/minimal-etcd-EtcdRole0-1A2B"),
        ];
        everybody.extend(["RenderRole", "RolloutRole", "ScanRole"].map(|id| deployed.arns[id].clone()));
        for (bucket, objects) in [
            ("SpecBucket", vec![keys::spec("minimal"), format!("{}ours.yaml", keys::patches("minimal"))]),
            ("IssuerBucket", vec![keys::jwks("minimal"), keys::discovery("minimal")]),
            (
                "AssetBucket",
                [
                    "agent/0/slipway-node",
                    "clusters/minimal/addons.json",
                    "clusters/minimal/addons/0.json",
                    "clusters/minimal/bundles/controller/config-0",
                    "clusters/minimal/bundles/controller/credentials-0",
                    "clusters/minimal/desired.json",
                    "clusters/minimal/etcd-snapshots/1.db",
                    "clusters/minimal/lock.json",
                    "clusters/minimal/locks/0.json",
                    "clusters/minimal/pki/ca/0.sealed",
                    "clusters/minimal/pki/manifest.json",
                    "clusters/minimal/plans/0.json",
                    "clusters/minimal/releases/0.json",
                    "clusters/minimal/rollout.json",
                    "clusters/minimal/scan.json",
                    "clusters/minimal/snapshots.json",
                    "clusters/minimal/status.json",
                    "clusters/minimal/templates/minimal-network/0.json",
                    "scheduled-snapshots/minimal/1.db",
                    "scheduled-snapshots/minimal/1.db.json",
                ]
                .map(str::to_owned)
                .into_iter()
                .chain([keys::node_status("minimal", "controller", &machine)])
                .collect(),
            ),
        ] {
            let arn = &deployed.arns[bucket];
            let policy = world.gateway().policy_of(arn).unwrap();
            for key in objects {
                for who in &everybody {
                    for from in [&[][..], &[("ec2:SourceInstanceArn", machine.as_str())]] {
                        let context = [&[("aws:PrincipalArn", who.as_str())], from].concat();
                        let asked = request(CHANGES, &format!("{arn}/{key}"), &context);
                        let decided = iam::decide_for(&policy, "*", &asked);
                        assert!(matches!(decided, Decision::Denied(_)), "{who} {from:?}: {key}");
                    }
                }
            }
        }
        for key in [
            "agent/0/slipway-node",
            "clusters/minimal/bundles/controller/config-0",
            "clusters/minimal/rollout.json",
        ] {
            let asked = request(CHANGES, &format!("{}/{key}", deployed.arns["AssetBucket"]), &[]);
            assert!(!is_allowed(&iam::decide_within(wide, &everything, &asked)), "with a wide policy: {key}");
        }
    }
}

/// The versions of a spec say who asked for what, so whoever uploads one cannot take an earlier one away.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_but_a_maintainer_deletes_versions_of_specs() {
    let maintainer = format!("arn:aws:iam::{ACCOUNT}:role/maintainer");
    for maintainers in [None, Some(&maintainer)] {
        let world = installation_of(maintainers).await;
        let bucket = world.deployed().arns["SpecBucket"].clone();
        let policy = world.gateway().policy_of(&bucket).unwrap();
        let denied = |who: &str, action: &str, key: &str| {
            let asked = request(action, &format!("{bucket}/{key}"), &[("aws:PrincipalArn", who)]);
            matches!(iam::decide_for(&policy, "*", &asked), Decision::Denied(_))
        };
        let uploader = format!("arn:aws:iam::{ACCOUNT}:role/developer");
        for key in [keys::spec("minimal"), format!("{}ours.yaml", keys::patches("minimal"))] {
            for who in [&uploader, &world.deployed().arns["RenderRole"]] {
                assert!(denied(who, "s3:DeleteObjectVersion", &key), "{who} {key}");
            }
            assert_eq!(denied(&maintainer, "s3:DeleteObjectVersion", &key), maintainers.is_none(), "{key}");
            // Uploads, and the end of a patch, which is a marker.
            for action in ["s3:PutObject", "s3:DeleteObject"] {
                assert!(!denied(&uploader, action, &key), "{action} {key}");
            }
        }
    }
}

/// A listed policy for keys could disable or delete the one that a cluster's bundles are encrypted with.
#[tokio::test(flavor = "multi_thread")]
async fn no_listed_policy_deletes_a_key_of_a_cluster() {
    let key = format!("arn:aws:kms:eu-west-1:{ACCOUNT}:key/cluster");
    let mut settings = Settings::default();
    settings.installation.insert("ClusterKeyArns".to_owned(), key.clone());
    let world = Embedded::start(&tools::root().join("infra/template.yaml"), &settings).await.unwrap();
    let wide = &world.deployed().policies[world.reference("ManagedPoliciesBoundary").unwrap()];
    let everything = iam::parse(&json!({"Statement": {
        "Sid": "AllKeys", "Effect": "Allow", "Action": "kms:*", "Resource": "*",
    }}))
    .unwrap();
    let may = |action: &str, key: &str, context: &[(&str, &str)]| {
        is_allowed(&iam::decide_within(wide, &everything, &request(action, key, context)))
    };
    for action in
        ["kms:ScheduleKeyDeletion", "kms:DisableKey", "kms:PutKeyPolicy", "kms:CreateGrant", "kms:Decrypt"]
    {
        assert!(!may(action, &key, &[]), "{action}");
        assert!(may(action, &key.replace("cluster", "shop"), &[]), "{action}: a key of the account's own");
    }
    // Nodes open their own bundles, and the driver of EBS asks EC2 to encrypt volumes.
    assert!(may("kms:Decrypt", &key, &[("kms:EncryptionContext:cluster", "prod")]));
    assert!(may("kms:CreateGrant", &key, &[("kms:ViaService", "ec2.eu-west-1.amazonaws.com")]));
}

/// A mistake in rendering may give a role everything. Its boundary then still keeps it to what nodes do.
#[tokio::test(flavor = "multi_thread")]
async fn p13_a_role_that_was_given_everything_reaches_nothing_outside_of_its_boundary() {
    let world = installation().await;
    let deployed = world.deployed();
    let boundary = |id: &str| &deployed.policies[world.reference(id).unwrap()];
    let everything = iam::parse(&json!({"Statement": {
        "Sid": "Everything", "Effect": "Allow", "Action": "*", "Resource": "*",
    }}))
    .unwrap();
    let assets = &deployed.arns["AssetBucket"];
    let specs = &deployed.arns["SpecBucket"];
    let key = &deployed.arns["Key"];
    let may = |id: &str, action: &str, resource: &str, context: &[(&str, &str)]| {
        is_allowed(&iam::decide_within(boundary(id), &everything, &request(action, resource, context)))
    };
    let account = |rest: &str| format!("arn:aws:iam::{ACCOUNT}:{rest}");
    let of = |service: &str, rest: &str| format!("arn:aws:{service}:eu-west-1:{ACCOUNT}:{rest}");
    let names = "route53:ChangeResourceRecordSetsNormalizedRecordNames";
    let both = ["ClusterBoundary", "ManagedPoliciesBoundary"];
    let nowhere = [
        ("iam:PassRole", account("role/slipway/prod-controller")),
        ("iam:PassRole", account("role/administrator")),
        ("iam:CreateAccessKey", account("user/root")),
        ("iam:AttachRolePolicy", account("role/slipway/x")),
        ("sts:AssumeRole", account("role/slipway/prod-controller")),
        ("organizations:LeaveOrganization", "*".to_owned()),
        ("s3:PutObject", format!("{specs}/clusters/prod/cluster.yaml")),
        ("s3:GetObject", format!("{specs}/clusters/prod/cluster.yaml")),
        ("s3:GetObject", format!("{assets}/clusters/prod/pki/ca/1.sealed")),
        ("s3:ListBucket", assets.clone()),
        ("s3:PutObject", format!("{assets}/clusters/prod/templates/x/1.json")),
        ("s3:PutObject", format!("{assets}/clusters/prod/rollout.json")),
        ("s3:PutObject", format!("{assets}/agent/1/slipway-node")),
        ("kms:Decrypt", key.clone()),
        ("kms:ScheduleKeyDeletion", key.clone()),
        ("events:PutEvents", deployed.arns["DestroyBus"].clone()),
        ("events:PutTargets", of("events", "rule/slipway/slipway-RolloutFunctionOrders-1A2B")),
        ("events:PutTargets", of("events", "rule/slipway-RenderFunctionSpecUploaded-1A2B")),
        ("sts:AssumeRole", deployed.arns["RenderRole"].clone()),
        ("sts:AssumeRole", deployed.arns["CloudFormationRole"].clone()),
        ("s3:PutBucketPolicy", deployed.arns["IssuerBucket"].clone()),
        ("s3:PutBucketPolicy", assets.clone()),
        ("s3:PutLifecycleConfiguration", specs.clone()),
        ("lambda:InvokeFunction", deployed.arns["RolloutFunction"].clone()),
        ("lambda:UpdateFunctionCode", deployed.arns["RenderFunction"].clone()),
        ("lambda:AddPermission", format!("{}:$LATEST", deployed.arns["ScanFunction"])),
        ("cloudformation:UpdateStack", of("cloudformation", "stack/prod-control-plane/1")),
        ("cloudformation:CreateChangeSet", of("cloudformation", "stack/prod-pool-general/1")),
        ("cloudformation:DeleteStack", of("cloudformation", "stack/slipway/1")),
        ("ssm:SendCommand", of("ssm", "document/Slipway-EtcdRestore")),
        ("ssm:UpdateDocument", of("ssm", "document/Slipway-Serves")),
        ("ssm:CreateAssociation", of("ssm", "document/AWS-RunShellScript")),
        ("ec2-instance-connect:SendSSHPublicKey", of("ec2", "instance/i-1")),
        ("ec2-instance-connect:SendSerialConsoleSSHPublicKey", of("ec2", "instance/i-1")),
        ("ec2-instance-connect:OpenTunnel", of("ec2", "instance-connect-endpoint/eice-1")),
        ("ssm:GetParameter", of("ssm", "parameter/slipway/prod/passphrase")),
        ("ssm:GetParametersByPath", of("ssm", "parameter/")),
    ];
    for (action, resource) in &nowhere {
        for id in both {
            assert!(!may(id, action, resource, &[]), "{id}: {action} {resource}");
        }
    }
    let node = of("ec2", "instance/i-1");
    let of_a_cluster = [("ssm:resourceTag/slipway:cluster", "prod")];
    for action in ["ssm:SendCommand", "ssm:StartSession"] {
        for id in both {
            assert!(!may(id, action, &node, &of_a_cluster), "{id}: {action}");
        }
    }
    // What a listed policy is for: something of the account's own, and the agent of Systems Manager on the machine itself.
    let nothing: &[(&str, &str)] = &[];
    for (action, resource, context) in [
        ("ssm:UpdateInstanceInformation", node.clone(), &of_a_cluster[..]),
        ("ssm:GetDocument", of("ssm", "document/AWS-RunShellScript"), nothing),
        ("ssm:UpdateAssociationStatus", of("ssm", "document/AWS-GatherSoftwareInventory"), nothing),
        ("ssm:SendCommand", node, nothing),
        ("ssm:GetParameter", of("ssm", "parameter/shop/password"), nothing),
        ("lambda:InvokeFunction", of("lambda", "function:shop"), nothing),
        ("cloudformation:UpdateStack", of("cloudformation", "stack/shop/1"), nothing),
        ("events:PutEvents", of("events", "event-bus/shop"), nothing),
        ("s3:PutObject", "arn:aws:s3:::shop/1".to_owned(), nothing),
        ("s3:GetObject", format!("{assets}/clusters/prod/bundles/controller/config-1"), nothing),
    ] {
        assert!(may("ManagedPoliciesBoundary", action, &resource, context), "{action} {resource}");
    }
    let machine = machine_arn("i-1");
    let report = format!("{assets}/{}", keys::node_status("prod", "controller", &machine_arn("i-2")));
    // Roles with managed policies have what the installation listed; all others have not even these.
    for (action, resource, context) in [
        ("s3:PutObject", report, vec![("ec2:SourceInstanceArn", machine.as_str())]),
        ("s3:GetObject", "arn:aws:s3:::payroll/2026".to_owned(), Vec::new()),
        ("ec2:RunInstances", format!("arn:aws:ec2:eu-west-1:{ACCOUNT}:instance/*"), Vec::new()),
        ("ec2:TerminateInstances", format!("arn:aws:ec2:eu-west-1:{ACCOUNT}:instance/i-1"), Vec::new()),
        ("ssm:GetParameter", format!("arn:aws:ssm:eu-west-1:{ACCOUNT}:parameter/password"), Vec::new()),
        ("ssm:SendCommand", format!("arn:aws:ec2:eu-west-1:{ACCOUNT}:instance/i-1"), Vec::new()),
        ("secretsmanager:GetSecretValue", "*".to_owned(), Vec::new()),
        ("lambda:InvokeFunction", deployed.arns["RolloutFunction"].clone(), Vec::new()),
        ("cloudformation:DeleteStack", "*".to_owned(), Vec::new()),
        (
            "route53:ChangeResourceRecordSets",
            "arn:aws:route53:::hostedzone/Z1".to_owned(),
            vec![(names, "mail.example.net")],
        ),
        ("kms:CreateGrant", "arn:aws:kms:eu-west-1:123456789012:key/1".to_owned(), Vec::new()),
    ] {
        assert!(!may("ClusterBoundary", action, &resource, &context), "{action} {resource}");
    }
}
