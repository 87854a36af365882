//! `slipway doctor`: a sound installation has no problem, and each of many broken ones is found, with its cure.

use axum::http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use slipway_rollout::StackStatus;
use slipway_tests::installation::Installation;
use slipway_tests::operator::between;
use slipway_tests::world::Settings;

use crate::agent::program;
use crate::{ADMINISTRATOR, CLUSTER, Run, permissions, run, stand_stack, status, upload};

/// A spec that leaves nothing to be advised.
fn spec() -> String {
    format!("{}certificatesConfiguration:\n  rolloutBeforeExpiry: {{enabled: true}}\n", crate::spec())
}

/// A spec of another cluster, whose machines have private addresses and leave by a NAT gateway.
fn private() -> String {
    let subnets = "subnets:\n  - name: public\n    availabilityZone: eu-west-1a\n    instanceCIDR: 10.0.0.0/24\n\
                   \x20 - name: private\n    availabilityZone: eu-west-1a\n    instanceCIDR: 10.0.1.0/24\n    private: true\n";
    let endpoint = "dnsName: api.minimal.example.com\n    loadBalancer: {subnets: [{name: public}]}";
    spec()
        .replace("dnsName: api.minimal.example.com", endpoint)
        .replace("minimal", "other")
        .replace("availabilityZone: eu-west-1a\napi", &format!("{subnets}api"))
}

/// A sound installation: its stack, an agent that is there, and a cluster whose machines all say that they are well.
async fn sound() -> Installation {
    let slipway = Installation::without_agent(&Settings::default()).await.unwrap();
    stand_stack(&slipway);
    let folder = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for machine in [62, 183] {
        let path = folder.path().join(machine.to_string());
        std::fs::write(&path, program(machine, "one")).unwrap();
        files.push(path.display().to_string());
    }
    let published = run(&slipway, ADMINISTRATOR, &format!("publish-agent {}", files.join(" ")), &[]).await;
    assert_eq!(published.code, 0, "{published:?}");
    upload(&slipway, &spec()).await;
    status::all_are_well(&slipway).await;
    slipway
}

async fn doctor(slipway: &Installation, arguments: &str) -> Run {
    run(slipway, ADMINISTRATOR, &format!("doctor {arguments}"), &[]).await
}

/// The findings of a level, as `about: message | help`.
fn of_level(run: &Run, level: &str) -> Vec<String> {
    let of = |finding: &Value| {
        let text = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
        format!("{}: {} | {}", text("about"), text("message"), text("help"))
    };
    let findings = run.json()["findings"].as_array().unwrap().clone();
    findings.iter().filter(|finding| finding["level"] == level).map(of).collect()
}

/// Asserts that `doctor` finds exactly one thing of `level` that is not found in a sound installation, with these words.
async fn finds(slipway: &Installation, arguments: &str, level: &str, words: &[&str]) {
    let run = doctor(slipway, &format!("{arguments} --output json")).await;
    assert_eq!(run.code, i32::from(level == "problem"), "{words:?}: {run:?}");
    let found = of_level(&run, level);
    let one = found.iter().find(|one| words.iter().all(|words| one.contains(words)));
    assert!(one.is_some(), "{words:?}: {found:#?}");
    if level == "problem" {
        assert_eq!(found.len(), 1, "nothing else is wrong: {found:#?}");
    }
    assert!(of_level(&run, "unknown").is_empty(), "{run:?}");
}

/// A notification configuration without a receiver.
const NOTHING: &str = "<NotificationConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"></NotificationConfiguration>";

/// Calls a JSON API as a person at a console does.
async fn call(slipway: &Installation, service: &str, target: &str, body: Value) -> Value {
    slipway.world().client().json(service, target, body).await.unwrap()
}

async fn bucket_setting(slipway: &Installation, method: Method, bucket: &str, setting: &str, body: &str) {
    let name = slipway.world().reference(bucket).unwrap();
    slipway.world().client().s3(method, name, setting, body.as_bytes().to_vec()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sound_installation_has_no_problem_and_doctor_changes_nothing() {
    let slipway = sound().await;
    let before = slipway.assets().await.unwrap();
    let mark = slipway.world().observer().mark();
    let shown = doctor(&slipway, "").await;
    assert_eq!(shown.code, 0, "{shown:?}");
    for words in [
        "installation slipway in eu-west-1",
        "ok       stack: slipway is CREATE_COMPLETE since ",
        "ok       release: the installation and this command are release 0.1.0",
        "warning  parameter MaintainerArns: it is empty",
        "\n           sam deploy --template-file dist/${ARCHITECTURE:-arm64}/template.yaml",
        "warning  parameter AlarmTopicArn: it is empty: the alarms notify nobody",
        "ok       spec bucket: slipway-specbucket-1a2b3c4d5e6f keeps old versions, blocks public access and encrypts, and sends its events",
        " rules, all enabled and with targets",
        "ok       schedule DailyScan: slipway-DailyScan-1a2b3c4d5e6f is enabled: cron(23 4 * * ? *)",
        "ok       RolloutDeadLetters: the dead-letter queue is empty",
        " alarms, none is raised",
        "ok       your permissions: by IAM's simulation, arn:aws:iam::123456789012:user/operator may run every verb on minimal",
        "IAM policies control its use, and allow you to use it",
        "ok       agent: x86_64: ",
        "ok       minimal: rollout: succeeded since ",
        "ok       minimal: serving: serves",
        "ok       minimal: snapshots: there is no verified snapshot of etcd yet",
        "ok       minimal: pins of images: nothing is newer",
        "ok       minimal: spec: accepted",
        "\n0 problems, 0 unknown, 2 warnings, ",
    ] {
        assert!(shown.out.contains(words), "{words}: {}", shown.out);
    }
    let calls = slipway.world().observer().calls(mark);
    // A dry run makes no key.
    let writes = calls.iter().filter(|call| call.is_write() && call.action != "kms:GenerateDataKey");
    assert_eq!(writes.count(), 0, "{calls:?}");
    assert!(!calls.iter().any(|call| call.action == "kms:Decrypt"), "{calls:?}");
    assert_eq!(slipway.assets().await.unwrap(), before, "a verb that only reads writes nothing");

    let json = doctor(&slipway, "--cluster minimal --output json").await.json();
    assert_eq!(
        (&json["ok"], &json["well"], &json["clusters"]),
        (&json!(true), &json!(true), &json!([CLUSTER]))
    );
    let none = doctor(&slipway, "--cluster minimla").await;
    assert!(none.code == 1 && none.stderr.contains("the clusters there are minimal"), "{none:?}");
    let none = doctor(&slipway, "--stack other").await;
    assert!(none.code == 1 && none.stderr.contains("there is no CloudFormation stack other"), "{none:?}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("other.yaml");
    std::fs::write(&file, private()).unwrap();
    permissions::a_check_needs_what_the_page_says_and_nothing_more(&slipway, &file.display().to_string())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_changed_in_an_installation_by_hand_is_found_with_its_cure() {
    let slipway = sound().await;
    let world = slipway.world();

    // Rules: one that is disabled, and one without targets.
    let route = |id: &str| {
        let route = world.deployed().routes.iter().find(|route| route.rule_arn.contains(id)).unwrap();
        (route.bus.clone(), route.rule_arn.rsplit('/').next().unwrap().to_owned())
    };
    let (bus, rule) = route("RolloutFunctionAsked-");
    let named = json!({"Name": rule, "EventBusName": bus});
    call(&slipway, "events", "AWSEvents.DisableRule", named.clone()).await;
    let cure = format!("aws events enable-rule --name {rule} --event-bus-name slipway");
    finds(&slipway, "", "problem", &["rule RolloutFunctionAsked: ", "is disabled", &cure]).await;
    call(&slipway, "events", "AWSEvents.EnableRule", named).await;
    let (bus, rule) = route("RenderFunctionSpecUploaded");
    let none = json!({"Rule": rule, "EventBusName": bus, "Ids": ["queue"]});
    let listed =
        call(&slipway, "events", "AWSEvents.ListTargetsByRule", json!({"Rule": rule, "EventBusName": bus}))
            .await;
    call(&slipway, "events", "AWSEvents.RemoveTargets", none).await;
    finds(&slipway, "", "problem", &["rule RenderFunctionSpecUploaded: ", "has no target"]).await;
    let back = json!({"Rule": rule, "EventBusName": bus, "Targets": listed["Targets"]});
    call(&slipway, "events", "AWSEvents.PutTargets", back).await;

    // The schedule of the scan.
    let schedule = world.reference("DailyScan").unwrap().to_owned();
    world.cloud().with(|world| world.delete_schedule_by_hand(&schedule));
    finds(&slipway, "", "problem", &["schedule DailyScan: ", "does not exist", "REVERT_DRIFT"]).await;
    world.cloud().with(|world| world.stand_schedule(&schedule, "cron(23 4 * * ? *)", false));
    finds(&slipway, "", "problem", &["schedule DailyScan: ", "is disabled", "--state ENABLED"]).await;

    // The stack.
    world.stand_stack("slipway", StackStatus::UpdateRollbackFailed);
    finds(&slipway, "", "problem", &["stack: slipway is UPDATE_ROLLBACK_FAILED", "docs/upgrading.md"]).await;
    stand_stack(&slipway);

    // The buckets.
    let versioning = |status: &str| {
        format!("<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>")
    };
    bucket_setting(&slipway, Method::PUT, "AssetBucket", "versioning", &versioning("Suspended")).await;
    finds(
        &slipway,
        "",
        "problem",
        &["asset bucket: ", "does not keep old versions", "put-bucket-versioning"],
    )
    .await;
    bucket_setting(&slipway, Method::PUT, "AssetBucket", "versioning", &versioning("Enabled")).await;
    bucket_setting(&slipway, Method::PUT, "SpecBucket", "notification", NOTHING).await;
    finds(&slipway, "", "problem", &["spec bucket: ", "no upload of a spec is noticed"]).await;
    let tells = "<NotificationConfiguration><EventBridgeConfiguration/></NotificationConfiguration>";
    bucket_setting(&slipway, Method::PUT, "SpecBucket", "notification", tells).await;
    bucket_setting(&slipway, Method::DELETE, "SpecBucket", "publicAccessBlock", "").await;
    finds(
        &slipway,
        "",
        "problem",
        &["spec bucket: ", "does not block public access", "put-public-access-block"],
    )
    .await;
    let block = "<PublicAccessBlockConfiguration><BlockPublicAcls>true</BlockPublicAcls><IgnorePublicAcls>true</IgnorePublicAcls>\
                 <BlockPublicPolicy>true</BlockPublicPolicy><RestrictPublicBuckets>true</RestrictPublicBuckets></PublicAccessBlockConfiguration>";
    bucket_setting(&slipway, Method::PUT, "SpecBucket", "publicAccessBlock", block).await;

    // A scan that did not run.
    let queue = world.reference("ScanDeadLetters").unwrap();
    call(&slipway, "sqs", "AmazonSQS.SendMessage", json!({"QueueUrl": queue, "MessageBody": "{}"})).await;
    finds(
        &slipway,
        "",
        "problem",
        &["ScanDeadLetters: about 1 message in", "scans that did not run", "slipway scan --all"],
    )
    .await;
    call(&slipway, "sqs", "AmazonSQS.PurgeQueue", json!({"QueueUrl": queue})).await;

    // Alarms: one that is raised, and one that is gone.
    let alarm = world.reference("ScanErrorsAlarm").unwrap();
    let state = |state: &str| json!({"AlarmName": alarm, "StateValue": state, "StateReason": "three errors"});
    let cloudwatch = |operation: &str| format!("GraniteServiceVersion20100801.{operation}");
    call(&slipway, "monitoring", &cloudwatch("SetAlarmState"), state("ALARM")).await;
    let raised = ["alarm ScanErrorsAlarm: it is raised: three errors", "The scan function keeps failing"];
    finds(&slipway, "", "problem", &raised).await;
    call(&slipway, "monitoring", &cloudwatch("SetAlarmState"), state("OK")).await;
    let alarm = world.reference("RenderNeedsPersonAlarm").unwrap();
    let described = json!({"AlarmNames": [alarm]});
    let described = call(&slipway, "monitoring", &cloudwatch("DescribeAlarms"), described).await;
    call(&slipway, "monitoring", &cloudwatch("DeleteAlarms"), json!({"AlarmNames": [alarm]})).await;
    finds(&slipway, "", "problem", &["alarm RenderNeedsPersonAlarm: ", "does not exist", "REVERT_DRIFT"])
        .await;
    let mut back = described["MetricAlarms"][0].clone();
    for output in [
        "AlarmArn",
        "AlarmConfigurationUpdatedTimestamp",
        "StateValue",
        "StateReason",
        "StateReasonData",
        "StateUpdatedTimestamp",
        "Metrics",
    ] {
        back.as_object_mut().unwrap().remove(output);
    }
    call(&slipway, "monitoring", &cloudwatch("PutMetricAlarm"), back).await;

    // The key.
    let key = json!({"KeyId": world.reference("Key").unwrap()});
    call(&slipway, "kms", "TrentService.DisableKeyRotation", key.clone()).await;
    finds(&slipway, "", "warning", &["key: ", "is not rotated", "enable-key-rotation"]).await;
    call(&slipway, "kms", "TrentService.EnableKeyRotation", key.clone()).await;
    call(&slipway, "kms", "TrentService.DisableKey", key.clone()).await;
    finds(&slipway, "", "problem", &["key: ", "is Disabled", "aws kms enable-key --key-id"]).await;
    call(&slipway, "kms", "TrentService.EnableKey", key).await;
    assert_eq!(doctor(&slipway, "").await.code, 0, "all is as before");

    // The agent: the manifest names one that is not there, then none.
    slipway.publish_agent(&"0".repeat(64)).await.unwrap();
    let lost = doctor(&slipway, "--output json").await;
    let found = of_level(&lost, "problem");
    assert!(lost.code == 1 && found.len() == 2, "{found:?}");
    assert!(found.iter().all(|one| one.starts_with("agent: the manifest names 000000000000")), "{found:?}");
    // The cluster keeps its own, and an upgrade would bring the published one.
    let newer = of_level(&lost, "warning");
    assert!(newer.iter().any(|one| one.contains("slipway upgrade agent --cluster minimal")), "{newer:?}");
    world.upload("AssetBucket", "agent/manifest.json", b"{}".to_vec()).await.unwrap();
    finds(&slipway, "", "problem", &["agent: no node agent is published", "slipway publish-agent"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_cluster_and_a_spec_lack_is_found_with_its_cure() {
    let slipway = sound().await;
    let operate = async |arguments: &str| {
        let done = run(&slipway, ADMINISTRATOR, arguments, &[]).await;
        assert_eq!(done.code, 0, "{done:?}");
    };
    operate("pause --cluster minimal").await;
    assert!(slipway.world().settle(crate::QUIET, crate::PATIENCE).await);
    finds(
        &slipway,
        "",
        "warning",
        &["minimal: rollout: everything is paused since ", "slipway resume --cluster minimal"],
    )
    .await;
    // Of a pause and a resume in the same second the pause counts.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    operate("resume --cluster minimal").await;
    assert!(slipway.world().settle(crate::QUIET, crate::PATIENCE).await);

    // A spec that names what the installation does not allow, and an image that does not exist.
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let sound = file("sound.yaml", &spec());
    assert_eq!(doctor(&slipway, &sound).await.code, 0);
    let other = spec().replace("clusterName: minimal", "clusterName: other");
    let zone = other.replace(
        "dnsName: api.minimal.example.com",
        "dnsName: api.other.example.com\n    loadBalancer:\n      hostedZone: {id: Z9999999999999999999}",
    );
    let zone = file("zone.yaml", &zone);
    finds(&slipway, &zone, "problem", &["zone.yaml: ", "Z9999999999999999999", "HostedZoneIds="]).await;
    let image = file("image.yaml", &format!("{other}amiParameter: x\n"));
    let refused = doctor(&slipway, &format!("{image} --output json")).await;
    assert!(refused.code == 1 && of_level(&refused, "problem")[0].contains("amiParameter"), "{refused:?}");

    // A cluster whose certificates end soon, and which does not renew them.
    let brief = crate::spec().replace("minimal", "brief")
        + "tlsCertDurationDays: 4\ncertificatesConfiguration:\n  rolloutBeforeExpiry: {enabled: false}\n";
    let mark = slipway.world().observer().mark();
    slipway.upload("brief", brief).await.unwrap();
    slipway.rolled_out(mark).await.unwrap();
    let shown = doctor(&slipway, "--cluster brief --output json").await;
    assert_eq!(shown.code, 1, "{shown:?}");
    let problems = of_level(&shown, "problem");
    let apiserver = problems.iter().find(|one| one.starts_with("brief: apiserver: apiserver ends in 3 d"));
    assert!(
        apiserver.is_some_and(|one| one.contains("slipway renew apiserver --cluster brief")),
        "{problems:#?}"
    );
    let warnings = of_level(&shown, "warning");
    let off = warnings
        .iter()
        .find(|one| one.starts_with("brief: spec: ") && one.contains("rolloutBeforeExpiry: {enabled: true}"));
    assert!(off.is_some(), "{warnings:#?}");
    // Its machines have not reported, which is not taken for well.
    assert!(of_level(&shown, "unknown").iter().any(|one| one.starts_with("brief: serving: ")), "{shown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_account_has_no_room_for_is_found_before_a_launch() {
    let slipway = sound().await;
    let world = slipway.world();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("other.yaml");
    std::fs::write(&file, private()).unwrap();
    let file = file.display().to_string();
    let free = doctor(&slipway, &file).await;
    assert_eq!(free.code, 0, "{free:?}");
    for words in [
        ": quotas: there is room for what it needs at most (vCPUs of on-demand instances: 8, Elastic IP addresses: 1, VPCs: 1, NAT gateways: 1, ",
        "Network Load Balancers: 1)",
    ] {
        assert!(free.out.contains(words), "{words}: {}", free.out);
    }
    // A cluster that runs needs nothing more.
    let minimal = folder.path().join("minimal.yaml");
    std::fs::write(&minimal, spec()).unwrap();
    let runs = doctor(&slipway, &minimal.display().to_string()).await;
    assert!(runs.code == 0 && !runs.out.contains("quotas"), "{runs:?}");

    // The default of a new account; then what others use of a larger one.
    let gateway = world.gateway();
    gateway.grant_quota("L-1216C47A", 5.0);
    let cure = "aws service-quotas request-service-quota-increase --service-code ec2 --quota-code L-1216C47A";
    let full =
        [": quotas: vCPUs of on-demand instances: ", "the quota L-1216C47A is 5, of which 0 are used", cure];
    finds(&slipway, &file, "problem", &full).await;
    gateway.grant_quota("L-1216C47A", 64.0);
    let dimensions: Vec<Value> =
        [("Class", "Standard/OnDemand"), ("Resource", "vCPU"), ("Service", "EC2"), ("Type", "Resource")]
            .map(|(name, value)| json!({"Name": name, "Value": value}))
            .into();
    let used = |vcpus: u32| {
        let at = (Timestamp::now() - SignedDuration::from_mins(2)).as_second();
        let datum =
            json!({"MetricName": "ResourceCount", "Value": vcpus, "Dimensions": dimensions, "Timestamp": at});
        json!({"Namespace": "AWS/Usage", "MetricData": [datum]})
    };
    call(&slipway, "monitoring", "GraniteServiceVersion20100801.PutMetricData", used(62)).await;
    finds(&slipway, &file, "problem", &["the quota L-1216C47A is 64, of which 62 are used"]).await;
    gateway.grant_quota("L-1216C47A", 1000.0);

    // The network: moto's own VPC and four more, addresses, gateways and balancers.
    let ec2 = async |action: &str, parameters: &[(&str, &str)]| {
        world.client().query("ec2", "2016-11-15", action, parameters).await.unwrap()
    };
    let mut vpcs = Vec::new();
    for _ in 0..4 {
        let made = ec2("CreateVpc", &[("CidrBlock", "10.9.0.0/16")]).await;
        vpcs.push(between(&made, "<vpcId>").to_owned());
    }
    finds(
        &slipway,
        &file,
        "problem",
        &[
            ": quotas: VPCs: the launch needs 1, for which there is no room",
            "the quota L-F678F1CE is 5, of which 5 are used",
        ],
    )
    .await;
    ec2("DeleteVpc", &[("VpcId", &vpcs[0])]).await;
    let mut addresses = Vec::new();
    for _ in 0..5 {
        let made = ec2("AllocateAddress", &[("Domain", "vpc")]).await;
        addresses.push(between(&made, "<allocationId>").to_owned());
    }
    finds(
        &slipway,
        &file,
        "problem",
        &[": quotas: Elastic IP addresses: ", "L-0263D0A3 is 5, of which 5 are used"],
    )
    .await;
    gateway.grant_quota("L-0263D0A3", 10.0);
    let subnet =
        [("VpcId", vpcs[1].as_str()), ("CidrBlock", "10.9.0.0/24"), ("AvailabilityZone", "eu-west-1a")];
    let made = ec2("CreateSubnet", &subnet).await;
    let subnet = between(&made, "<subnetId>").to_owned();
    for address in &addresses {
        ec2("CreateNatGateway", &[("SubnetId", &subnet), ("AllocationId", address)]).await;
    }
    finds(
        &slipway,
        &file,
        "problem",
        &[": quotas: NAT gateways in eu-west-1a: ", "L-FE5A380F is 5, of which 5 are used"],
    )
    .await;
    gateway.grant_quota("L-FE5A380F", 10.0);
    gateway.grant_quota("L-69A177A2", 0.0);
    finds(&slipway, &file, "problem", &[": quotas: Network Load Balancers: ", "L-69A177A2 is 0"]).await;
    gateway.grant_quota("L-69A177A2", 50.0);

    // A type that the region does not have.
    let old = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{old}controller: {{instanceType: m9z.large}}\n")).unwrap();
    finds(&slipway, &file, "problem", &["EC2 has no instance type m9z.large in eu-west-1"]).await;
}
