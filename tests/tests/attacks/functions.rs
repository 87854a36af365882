//! Somebody who has taken over the render function or the scan function.

use slipway_tests::client::{ACCOUNT, machine_arn};
use slipway_tests::iam::{self, Decision};
use slipway_tests::world::Embedded;

use crate::worker::{AGENT, DECISIVE, EXECUTED, PINS, ROLLOUT, STATE};
use crate::{WRITES, installation, is_allowed, request, role};

/// Whether the function may do that with an object of the asset bucket, by its role and by the bucket's policy.
fn may(world: &Embedded, id: &str, action: &str, key: &str) -> bool {
    let arns = &world.deployed().arns;
    let bucket = &arns["AssetBucket"];
    let asked = request(action, &format!("{bucket}/{key}"), &[("aws:PrincipalArn", &arns[id])]);
    is_allowed(&iam::decide(role(world, id), &asked))
        && !matches!(
            iam::decide_for(&world.gateway().policy_of(bucket).unwrap(), "*", &asked),
            Decision::Denied(_)
        )
}

/// They make and renew what clusters consist of. What is done with it, in the account or on machines, the rollout function decides.
#[tokio::test(flavor = "multi_thread")]
async fn the_render_and_the_scan_function_reach_no_stack_no_machine_and_no_other_identity() {
    let world = installation().await;
    let arns = &world.deployed().arns;
    let of = |service: &str, rest: &str| format!("arn:aws:{service}:eu-west-1:{ACCOUNT}:{rest}");
    let stack = of("cloudformation", "stack/minimal-control-plane/0");
    let group = of("autoscaling", "autoScalingGroup:1:autoScalingGroupName/minimal-pool-general");
    let controllers = format!("arn:aws:iam::{ACCOUNT}:role/slipway/minimal-ControllerRole");
    let [specs, assets, key] = ["SpecBucket", "AssetBucket", "Key"].map(|id| &arns[id]);
    let nowhere = [
        ("cloudformation:CreateChangeSet", stack.clone()),
        ("cloudformation:ExecuteChangeSet", stack.clone()),
        ("cloudformation:UpdateStack", stack.clone()),
        ("cloudformation:DeleteStack", stack),
        ("autoscaling:SetDesiredCapacity", group.clone()),
        ("autoscaling:UpdateAutoScalingGroup", group),
        ("ec2:TerminateInstances", machine_arn("i-1")),
        ("ec2:RunInstances", machine_arn("i-1")),
        ("ec2:CreateSnapshot", of("ec2", "volume/vol-1")),
        ("ssm:SendCommand", of("ssm", "document/Slipway-Drain")),
        ("ssm:SendCommand", "arn:aws:ssm:eu-west-1::document/AWS-RunShellScript".to_owned()),
        ("ssm:SendCommand", machine_arn("i-1")),
        ("ssm:StartSession", machine_arn("i-1")),
        ("iam:PassRole", controllers.clone()),
        ("iam:PassRole", arns["CloudFormationRole"].clone()),
        ("sts:AssumeRole", arns["CloudFormationRole"].clone()),
        ("sts:AssumeRole", arns["RolloutRole"].clone()),
        ("sts:AssumeRole", controllers.clone()),
        ("iam:PutRolePolicy", controllers),
        ("lambda:InvokeFunction", arns["RolloutFunction"].clone()),
        ("lambda:UpdateFunctionCode", arns["RolloutFunction"].clone()),
        ("scheduler:CreateSchedule", of("scheduler", "schedule/slipway/tick")),
        ("events:PutTargets", of("events", "rule/slipway/slipway-RolloutFunctionAsked-1A2B")),
        ("events:PutEvents", of("events", "event-bus/default")),
        ("s3:PutObject", format!("{specs}/clusters/minimal/cluster.yaml")),
        ("s3:DeleteObject", format!("{specs}/clusters/minimal/cluster.yaml")),
        ("s3:DeleteObjectVersion", format!("{specs}/clusters/minimal/cluster.yaml")),
        ("s3:PutBucketPolicy", assets.clone()),
        ("s3:PutLifecycleConfiguration", assets.clone()),
        ("s3:PutBucketVersioning", assets.clone()),
        ("s3:GetObject", "arn:aws:s3:::payroll/salaries.csv".to_owned()),
        ("kms:ScheduleKeyDeletion", key.clone()),
        ("kms:DisableKey", key.clone()),
        ("kms:PutKeyPolicy", key.clone()),
        ("kms:CreateGrant", key.clone()),
        // Without the name of a cluster.
        ("kms:Decrypt", key.clone()),
        ("kms:GenerateDataKey", key.clone()),
        ("kms:Decrypt", of("kms", "key/payroll")),
        ("secretsmanager:GetSecretValue", of("secretsmanager", "secret:payroll")),
        ("ssm:GetParameter", of("ssm", "parameter/payroll/password")),
        ("ssm:PutParameter", of("ssm", "parameter/slipway/minimal/passphrase")),
        ("route53:ChangeResourceRecordSets", "arn:aws:route53:::hostedzone/Z1".to_owned()),
    ];
    for id in ["RenderRole", "ScanRole"] {
        let may = |action: &str, resource: &str, context: &[(&str, &str)]| {
            is_allowed(&iam::decide(role(&world, id), &request(action, resource, context)))
        };
        for (action, resource) in &nowhere {
            assert!(!may(action, resource, &[]), "{id}: {action} {resource}");
        }
        // The same questions, asked for what they need, are answered.
        assert!(may("kms:Decrypt", key, &[("kms:EncryptionContext:cluster", "minimal")]), "{id}");
        assert!(may("s3:GetObject", &format!("{specs}/clusters/minimal/cluster.yaml"), &[]), "{id}");
    }
}

/// A wildcard in a policy also covers slashes, so a folder within a folder may be one that another statement means.
#[tokio::test(flavor = "multi_thread")]
async fn the_scan_function_writes_credentials_and_nothing_that_is_executed_or_decides() {
    let world = installation().await;
    for key in STATE {
        assert!(may(&world, "ScanRole", "s3:PutObject", key), "{key}");
    }
    let snapshot = "scheduled-snapshots/minimal/20261128T000000Z-etcd-0.db";
    let report = format!("clusters/minimal/nodes/controller/{}/status.json", machine_arn("i-1"));
    let others = [PINS, ROLLOUT, AGENT, "agent/manifest.json", snapshot, &report];
    for key in EXECUTED.into_iter().chain(DECISIVE).chain(others) {
        for action in WRITES {
            let removes = key == snapshot && action == "s3:DeleteObject";
            assert_eq!(may(&world, "ScanRole", action, key), removes, "{action} {key}");
        }
    }
    for folder in ["clusters/minimal/pki", "clusters/minimal/bundles/controller/credentials-0"] {
        for key in EXECUTED.into_iter().chain(DECISIVE).chain([PINS, ROLLOUT]) {
            let disguised = key.replace("clusters/minimal", folder);
            assert!(!may(&world, "ScanRole", "s3:PutObject", &disguised), "{disguised}");
        }
    }
    // Who deletes versions, deletes what could be restored.
    for key in STATE.into_iter().chain([snapshot]) {
        assert!(!may(&world, "ScanRole", "s3:DeleteObjectVersion", key), "{key}");
    }
}

/// What it renders may be the cluster of an attacker, but nobody takes it for approved, for a report of a machine, or for data of etcd, and it
/// can remove nothing.
#[tokio::test(flavor = "multi_thread")]
async fn the_render_function_approves_nothing_reports_nothing_and_deletes_nothing() {
    let world = installation().await;
    let report = format!("clusters/minimal/nodes/controller/{}/status.json", machine_arn("i-1"));
    for key in [
        ROLLOUT,
        AGENT,
        "agent/manifest.json",
        &report,
        "clusters/minimal/etcd-snapshots/20261128T000000Z-1.db",
        "scheduled-snapshots/minimal/20261128T000000Z-etcd-0.db",
        "scheduled-snapshots/minimal/ledger.json",
    ] {
        assert!(!may(&world, "RenderRole", "s3:PutObject", key), "{key}");
    }
    for key in EXECUTED.into_iter().chain(DECISIVE).chain(STATE).chain([PINS, ROLLOUT, AGENT]) {
        for action in WRITES.into_iter().filter(|action| *action != "s3:PutObject") {
            assert!(!may(&world, "RenderRole", action, key), "{action} {key}");
        }
    }
    for key in EXECUTED.into_iter().chain(DECISIVE).chain([PINS]) {
        assert!(may(&world, "RenderRole", "s3:PutObject", key), "{key}");
    }
}
