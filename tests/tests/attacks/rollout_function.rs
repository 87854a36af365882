//! Somebody who has taken over the rollout function.

use slipway_tests::client::ACCOUNT;
use slipway_tests::iam::{self, Decision};

use crate::worker::{AGENT, DECISIVE, EXECUTED, PINS, ROLLOUT, STATE};
use crate::{WRITES, installation, is_allowed, request, role};

/// Whoever has taken over the rollout function rolls out what was rendered: its own role writes no template, no configuration, no credential
/// and no add-on, whatever the bucket's policy says.
#[tokio::test(flavor = "multi_thread")]
async fn the_rollout_function_writes_nothing_that_is_executed() {
    let world = installation().await;
    let bucket = &world.deployed().arns["AssetBucket"];
    let may = |function: &str, action: &str, key: &str| {
        let asked = request(action, &format!("{bucket}/{key}"), &[]);
        is_allowed(&iam::decide(role(&world, function), &asked))
    };
    for key in EXECUTED.iter().chain(&STATE).chain([&PINS, &AGENT]) {
        for action in WRITES {
            assert!(!may("RolloutRole", action, key), "{action} {key}");
        }
        assert!(may("RenderRole", "s3:PutObject", key) || key.starts_with("agent/"), "{key}");
    }
    // Rolling needs these; the tests of `launching` and `verbs_in_aws` roll with them.
    for key in DECISIVE.iter().chain([&ROLLOUT, &"clusters/minimal/status.json"]) {
        assert!(may("RolloutRole", "s3:PutObject", key), "{key}");
    }
}

/// Whoever has taken over the rollout function writes plans and states, and no template: CloudFormation reads any object for it.
#[tokio::test(flavor = "multi_thread")]
async fn the_rollout_function_deploys_nothing_that_it_can_write_itself() {
    let world = installation().await;
    let bucket = &world.deployed().arns["AssetBucket"];
    let policy = world.gateway().policy_of(bucket).unwrap();
    let me = &world.deployed().arns["RolloutRole"];
    let host =
        format!("https://{}.s3.{}.amazonaws.com", world.reference("AssetBucket").unwrap(), world.region());
    let stack = format!("arn:aws:cloudformation:{}:{ACCOUNT}:stack/minimal-control-plane/0", world.region());
    let deploys = |path: &str| {
        let context = [
            ("cloudformation:TemplateUrl", &*format!("{host}/{path}")),
            ("cloudformation:RoleArn", &world.deployed().arns["CloudFormationRole"]),
        ];
        let asked = request("cloudformation:CreateChangeSet", &stack, &context);
        is_allowed(&iam::decide(role(&world, "RolloutRole"), &asked))
    };
    let writes = |key: &str| {
        let asked = request("s3:PutObject", &format!("{bucket}/{key}"), &[("aws:PrincipalArn", me)]);
        is_allowed(&iam::decide(role(&world, "RolloutRole"), &asked))
            && !matches!(iam::decide_for(&policy, "*", &asked), Decision::Denied(_))
    };
    assert!(deploys(EXECUTED[0]), "what was rendered");
    assert!(!deploys("agent/templates/0.json"), "no cluster's");
    for key in DECISIVE.iter().chain([&ROLLOUT, &"clusters/minimal/status.json"]) {
        assert!(writes(key), "{key}");
        for disguise in ["", "?versionId=1", "?a=/templates/", "#/templates/", "%3F/templates/"] {
            assert!(!deploys(&format!("{key}{disguise}")), "{key}{disguise}");
        }
        let name = key.strip_prefix("clusters/minimal/").unwrap();
        for way_back in [
            format!("clusters/minimal/templates/../{name}"),
            format!("clusters/minimal/templates/%2e%2e/{name}"),
        ] {
            assert!(!deploys(&way_back), "{way_back}");
        }
    }
    // The role may write this name and deploy it, so the bucket's policy has to deny the one with the pattern of the other.
    let both = "clusters/minimal/plans/templates/0.json";
    assert!(deploys(both) && !writes(both), "{both}");
}

/// The names of stacks that are no clusters' may end like those of Slipway's. Of these, the function executes no change set that somebody else
/// prepared, and deletes none that only another role could delete: the role that the stack has, which CloudFormation would use if none was named, or one
/// that the caller chooses.
#[tokio::test(flavor = "multi_thread")]
async fn the_rollout_function_executes_its_own_change_sets_alone_and_deletes_by_one_role_alone() {
    let world = installation().await;
    let may = |action: &str, context: &[(&str, &str)]| {
        let stack = format!("arn:aws:cloudformation:{}:{ACCOUNT}:stack/shop-network/0", world.region());
        is_allowed(&iam::decide(role(&world, "RolloutRole"), &request(action, &stack, context)))
    };
    for action in ["cloudformation:ExecuteChangeSet", "cloudformation:DeleteChangeSet"] {
        for foreign in
            ["deploy-42", "x-slipway-1", "arn:aws:cloudformation:eu-west-1:1:changeSet/deploy-42/0"]
        {
            assert!(!may(action, &[("cloudformation:ChangeSetName", foreign)]), "{action} {foreign}");
        }
        assert!(!may(action, &[]), "{action}");
        assert!(may(action, &[("cloudformation:ChangeSetName", "slipway-3-0123456789abcdef")]), "{action}");
    }
    let delete = "cloudformation:DeleteStack";
    let own = world.deployed().arns["CloudFormationRole"].clone();
    for foreign in [format!("arn:aws:iam::{ACCOUNT}:role/administrator"), own.replace(":role/", ":role/x")] {
        assert!(!may(delete, &[("cloudformation:RoleArn", &foreign)]), "{foreign}");
    }
    assert!(!may(delete, &[]), "by the stack's own role");
    assert!(may(delete, &[("cloudformation:RoleArn", &own)]));
}
