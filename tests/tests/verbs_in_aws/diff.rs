//! `slipway diff`: what somebody changes in a cluster by hand is shown with the way back, and an untouched cluster has nothing to show.

use serde_json::{Value, json};
use slipway_sim::World;
use slipway_sim::world::Process;
use slipway_tests::installation::Installation;

use crate::permissions::a_diff_needs_what_the_page_says_and_nothing_more;
use crate::{ADMINISTRATOR, CLUSTER, Run, installation, named};

async fn diff(slipway: &Installation, arguments: &str) -> Run {
    named(slipway, ADMINISTRATOR, &format!("diff --cluster {CLUSTER} {arguments}")).await
}

/// Somebody does something in the account.
fn by_hand(slipway: &Installation, what: impl FnOnce(&mut World) -> Result<(), String>) {
    slipway.world().cloud().with(what).unwrap();
}

/// The findings, as `level about: message property expected -> actual | help`.
fn lines(run: &Run) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("nothing").to_owned();
    let line = |finding: &Value| {
        let differences = finding["differences"].as_array().cloned().unwrap_or_default();
        let sides = differences.iter().map(|one| {
            let of = |key: &str| text(&one[key]);
            format!(" {} {} -> {}", of("property"), of("expected"), of("actual"))
        });
        let of = |key: &str| text(&finding[key]);
        let sides = sides.collect::<String>();
        format!("{} {}: {}{sides} | {}", of("level"), of("about"), of("message"), of("help"))
    };
    run.json()["findings"].as_array().unwrap().iter().map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_differs_in_a_cluster_that_nobody_has_touched_and_looking_changes_nothing() {
    let slipway = installation(0).await;
    let before = slipway.assets().await.unwrap();
    let mark = slipway.world().observer().mark();
    let shown = diff(&slipway, "").await;
    assert_eq!(shown.code, 0, "{shown:?}");
    assert!(shown.out.starts_with("4 stacks of minimal in eu-west-1, compared with "), "{shown:?}");
    assert!(shown.out.ends_with("\n0 differences, 0 unknown, 0 notes\n"), "{shown:?}");
    assert!(shown.stderr.contains("CloudFormation compares the resources of 4 stacks"), "{shown:?}");
    assert!(shown.stderr.contains("minimal-etcd is read\n") && !shown.out.contains("is read"), "{shown:?}");
    let calls = slipway.world().observer().calls(mark);
    assert!(calls.iter().any(|call| call.action == "cloudformation:DetectStackDrift"), "{calls:?}");
    assert!(calls.iter().all(|call| !call.is_write() && !call.action.starts_with("kms:")), "{calls:?}");
    assert_eq!(slipway.assets().await.unwrap(), before, "a verb that only reads writes nothing");
    let document = diff(&slipway, "--output json").await;
    assert!(document.stderr.is_empty(), "progress is for people: {document:?}");
    let document = document.json();
    assert_eq!(
        (&document["ok"], &document["same"], &document["findings"], &document["rolloutIsOpen"]),
        (&json!(true), &json!(true), &json!([]), &json!(false))
    );
    assert_eq!(document["stacks"]["minimal-etcd"]["status"], "CREATE_COMPLETE", "{document}");
    a_diff_needs_what_the_page_says_and_nothing_more(&slipway).await;
    let none = named(&slipway, ADMINISTRATOR, "diff --cluster minimla").await;
    assert!(none.code == 1 && none.stderr.contains("the clusters there are minimal"), "{none:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_changes_in_stacks_and_groups_is_found_with_the_way_back() {
    let slipway = installation(0).await;
    by_hand(&slipway, |world| {
        let (plane, pool) = ("minimal-control-plane", "minimal-pool-general");
        let door = "EndpointSecurityGroupDefault37a8eec1";
        let rule = json!({"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "CidrIp": "0.0.0.0/0"});
        world.set_by_hand(plane, door, "/SecurityGroupIngress/-", Some(rule))?;
        world.set_by_hand("minimal-network", "Vpc", "/EnableDnsHostnames", Some(json!(false)))?;
        world.delete_resource_by_hand("minimal-network", "EtcdNobody")?;
        world.set_by_hand(pool, "Group", "/MaxSize", Some(json!("7")))?;
        world.set_by_hand(pool, "Group", "/LaunchTemplate/Version", Some(json!("$Latest")))?;
        world.suspend("minimal-etcd-0", Process::Launch, true);
        Ok(())
    });
    let shown = diff(&slipway, "--output json").await;
    assert_eq!(shown.code, 1, "{shown:?}");
    let found = lines(&shown);
    for (about, words) in [
        (
            "differs minimal-control-plane EndpointSecurityGroupDefault37a8eec1 (AWS::EC2::SecurityGroup): somebody changed it: sg-",
            ["/SecurityGroupIngress/2 nothing -> {", "--deployment-mode REVERT_DRIFT"],
        ),
        (
            "differs minimal-network Vpc (AWS::EC2::VPC): somebody changed it: vpc-",
            [" /EnableDnsHostnames true -> false", "create-change-set --stack-name minimal-network"],
        ),
        (
            "differs minimal-network EtcdNobody (AWS::Route53::RecordSet): somebody deleted it:",
            ["makes it again", "REVERT_DRIFT"],
        ),
        (
            "differs minimal-pool-general group minimal-pool-general: its sizes are not those",
            [" MaxSize 1 -> 7", "--min-size 1 --max-size 1 --region eu-west-1"],
        ),
        (
            "differs minimal-pool-general group minimal-pool-general: it uses another launch template",
            [" version 1 -> lt-0", "Version=1' --region eu-west-1"],
        ),
        (
            "differs minimal-etcd group minimal-etcd-0: somebody, or AWS, has suspended Launch",
            ["no lost machine is replaced", "resume-processes --auto-scaling-group-name minimal-etcd-0"],
        ),
    ] {
        let one = found.iter().find(|line| line.starts_with(about));
        let one = one.unwrap_or_else(|| panic!("{about}: {found:#?}"));
        assert!(words.iter().all(|words| one.contains(words)), "{words:?}: {one}");
    }
    assert_eq!(found.len(), 6, "each change is told once, and nothing else: {found:#?}");
    let text = diff(&slipway, "").await;
    for words in [
        "/EnableDnsHostnames: rolled out true, there is false\n",
        "An upload of the same spec repairs none of this: CloudFormation compares templates",
        "\n6 differences, 0 unknown, 0 notes\n",
    ] {
        assert!(text.code == 1 && text.out.contains(words), "{words}: {text:?}");
    }

    // Somebody goes the way back, and then deploys another template and other tags.
    by_hand(&slipway, |world| {
        let (plane, pool) = ("minimal-control-plane", "minimal-pool-general");
        world.set_by_hand(plane, "EndpointSecurityGroupDefault37a8eec1", "/SecurityGroupIngress/2", None)?;
        world.set_by_hand("minimal-network", "Vpc", "/EnableDnsHostnames", Some(json!(true)))?;
        world.set_by_hand(pool, "Group", "/MaxSize", Some(json!("1")))?;
        world.set_by_hand(pool, "Group", "/LaunchTemplate/Version", Some(json!("1")))?;
        world.suspend("minimal-etcd-0", Process::Launch, false);
        world.protect_stack_by_hand("minimal-etcd", true);
        let mut template: Value =
            serde_json::from_str(world.stack_source("minimal-etcd").unwrap().0).unwrap();
        template["Resources"]["Group0"]["Properties"]["LifecycleHookSpecificationList"][0]["HeartbeatTimeout"] =
            json!(999);
        world.deploy_by_hand("minimal-etcd", &template.to_string()).map_err(|error| error.to_string())?;
        world.change_by_hand(pool);
        // While CloudFormation changes a stack, nobody looks at it.
        Ok(())
    });
    let busy = lines(&diff(&slipway, "--output json").await);
    assert!(busy.iter().any(|line| line.starts_with("differs minimal-network EtcdNobody")), "{busy:#?}");
    by_hand(&slipway, |world| {
        world.settle();
        world.hide_from_drift_detection(
            "minimal-network",
            "S3Endpoint",
            Some("not authorized to perform: ec2:DescribeVpcEndpoints"),
        );
        Ok(())
    });
    let shown = diff(&slipway, "--output json").await;
    let found = lines(&shown);
    for about in [
        "differs minimal-etcd: somebody deployed another template than the one that was rolled out template (SHA-256) ",
        "differs minimal-network EtcdNobody",
        "differs minimal-pool-general: somebody changed the tags of the stack tag changed-by-hand nothing -> yes",
        "unknown minimal-network S3Endpoint (AWS::EC2::VPCEndpoint): could not be read: not authorized to perform: ec2:DescribeVpcEndpoints",
        "note minimal-etcd: termination protection is on",
        "note minimal-network: termination protection is off, and on for other stacks",
    ] {
        assert!(found.iter().any(|line| line.starts_with(about)), "{about}: {found:#?}");
    }
    assert!(shown.code == 1 && found.len() == 8, "{found:#?}");

    // A detection that does not end is given up, and so is waiting for somebody else's.
    by_hand(&slipway, |world| {
        world.detect_drift_without_end();
        Ok(())
    });
    for words in
        ["the drift detection has not ended in time", "somebody else's drift detection of it has not ended"]
    {
        let given_up = diff(&slipway, "--minutes 0").await;
        let told = given_up.out.matches(words).count();
        assert!(given_up.code == 1 && told == 4, "{words}: {given_up:?}");
    }
}
