//! The production example launched end to end: the unmodified binaries, the template's wiring and permissions, and the simulated
//! CloudFormation.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use slipway_core::pin::Pin;
use slipway_core::status::{Desired, SpecResult, Status};
use slipway_credentials::Manifest;
use slipway_credentials::renewal::State;
use slipway_plan::{NodeAction, Plan, StackAction};
use slipway_render::lock::Lock;
use slipway_tests::client::Event;
use slipway_tests::iam::Decision;
use slipway_tests::installation::Installation;
use slipway_tests::leaks::{Findings, Secrets};
use slipway_tests::observe::{Observed, PATIENCE};
use slipway_tests::tools;
use slipway_tests::world::Settings;

const QUIET: Duration = Duration::from_millis(400);

fn production() -> String {
    std::fs::read_to_string(tools::root().join("examples/production.yaml")).unwrap()
}

/// The plan of a cluster's newest spec.
async fn plan_of(slipway: &Installation, cluster: &str) -> Plan {
    let desired: Desired = slipway.document(cluster, "desired.json").await.unwrap().unwrap();
    slipway.document(cluster, &format!("plans/{}.json", desired.plan)).await.unwrap().unwrap()
}

/// Uploads a spec and waits for the success of the rollout.
async fn roll_out(slipway: &Installation, cluster: &str, spec: String) {
    let mark = slipway.world().observer().mark();
    slipway.upload(cluster, spec).await.unwrap();
    slipway.rolled_out(mark).await.unwrap();
}

fn status(slipway: &Installation, stack: &str) -> String {
    slipway.world().cloud().with(|cloud| cloud.stack_status(stack)).unwrap_or_default()
}

/// P1, P2, P3: the cluster is launched as planned, the same bytes change nothing, and a pool's new size changes only that pool's stack. P9:
/// no secret is visible anywhere.
#[tokio::test(flavor = "multi_thread")]
async fn p1_p2_p3_p9_production_is_launched_left_alone_and_resized() {
    let slipway = Installation::start(&Settings { one_clock: true, ..Settings::default() }).await.unwrap();
    let world = slipway.world();
    roll_out(&slipway, "production", production()).await;
    let launch = plan_of(&slipway, "production").await;
    assert_eq!(launch.stacks.len(), 6);
    for stack in &launch.stacks {
        assert_eq!(status(&slipway, &stack.name), "CREATE_COMPLETE", "{}", stack.name);
        let planned: BTreeSet<&str> = stack.resources.iter().map(|one| one.logical_id.as_str()).collect();
        let made = world.cloud().with(|cloud| cloud.physical_ids(&stack.name));
        assert_eq!(made.keys().map(String::as_str).collect::<BTreeSet<_>>(), planned, "{}", stack.name);
    }
    assert_eq!(
        world.cloud().with(|cloud| cloud.schedules()),
        Vec::<String>::new(),
        "the tick ends with the rollout"
    );

    // P1: the same bytes again.
    let (before, mark) = (slipway.assets().await.unwrap(), world.observer().mark());
    slipway.upload("production", production()).await.unwrap();
    let answer = slipway.event(mark, &["Plan Unchanged", "Plan Ready", "Spec Rejected"], PATIENCE).await;
    assert_eq!(answer.unwrap().0, "Plan Unchanged");
    assert!(world.settle(QUIET, PATIENCE).await);
    assert_eq!(slipway.assets().await.unwrap(), before);
    let moved = |call: &slipway_tests::observe::Call| {
        let (service, _) = call.action.split_once(':').unwrap();
        ["kms", "cloudformation", "scheduler"].contains(&service) || call.action == "s3:PutObject"
    };
    let calls: Vec<_> = world.observer().calls(mark).into_iter().filter(moved).collect();
    assert_eq!(calls, [], "an unchanged upload makes no call that changes anything");

    // P2, P3: one pool's maxSize.
    let mark = world.observer().mark();
    roll_out(&slipway, "production", production().replacen("maxSize: 10", "maxSize: 12", 1)).await;
    let update = plan_of(&slipway, "production").await;
    let touched: Vec<&str> = update
        .stacks
        .iter()
        .filter(|stack| stack.action != StackAction::Unchanged)
        .map(|stack| stack.name.as_str())
        .collect();
    assert_eq!(touched, ["production-pool-general-a"]);
    assert!(update.nodes.iter().all(|node| node.action == NodeAction::Untouched), "{:?}", update.nodes);
    for stack in &launch.stacks {
        let wanted = if stack.name == touched[0] { "UPDATE_COMPLETE" } else { "CREATE_COMPLETE" };
        assert_eq!(status(&slipway, &stack.name), wanted, "{}", stack.name);
    }
    let writes: Vec<_> = world.observer().calls(mark).into_iter().filter(|call| call.is_write()).collect();
    let asked = writes.iter().filter(|call| call.action.starts_with("cloudformation:"));
    assert!(asked.clone().count() >= 2);
    for call in asked {
        assert!(call.resource.contains(touched[0]), "{call:?}");
    }
    assert!(!writes.iter().any(|call| call.action.starts_with("kms:")), "no credential changed");

    a_patch_is_planned_by_itself_and_taken_back(&slipway).await;
    p1_an_order_to_upgrade_looks_pins_up_and_changes_nothing_where_nothing_is_newer(&slipway).await;
    p7_the_daily_scan_renews_what_is_due_and_rolls_etcd_and_the_control_plane_alone(&slipway).await;
    the_notice_of_a_machine_of_nobody_is_looked_up_and_ignored(&slipway).await;

    // Checks that cover the whole test.
    let errors: Vec<_> = world
        .observer()
        .since(0)
        .into_iter()
        .filter_map(|seen| match seen.what {
            Observed::Log { line, .. } if line.contains("ERROR") => Some(line),
            _ => None,
        })
        .collect();
    assert_eq!(slipway.dead_letters().await.unwrap(), 0, "{errors:#?}");
    assert_eq!(
        slipway.loose_ends(),
        Vec::<String>::new(),
        "the template's wiring and permissions are complete"
    );
    p9_no_secret_is_where_it_must_not_be(&slipway).await;
}

/// P2: a new patch is planned and rolled out without a new spec, and so is its removal.
async fn a_patch_is_planned_by_itself_and_taken_back(slipway: &Installation) {
    let world = slipway.world();
    let (key, patch) = (
        "clusters/production/patches/drain.yaml",
        include_bytes!("../src/bin/slipway-demo/drain.yaml").to_vec(),
    );
    let mut version = String::new();
    for comes in [true, false] {
        let mark = world.observer().mark();
        if comes {
            version = world.upload("SpecBucket", key, patch.clone()).await.unwrap();
        } else {
            world.remove("SpecBucket", key, &version).await.unwrap();
        }
        slipway.rolled_out(mark).await.unwrap();
        let plan = plan_of(slipway, "production").await;
        let touched = plan.stacks.iter().filter(|stack| stack.action != StackAction::Unchanged);
        let touched: Vec<&str> = touched.map(|stack| stack.name.as_str()).collect();
        assert_eq!(touched, ["production-pool-general-b"]);
        assert!(plan.nodes.iter().all(|node| node.action == NodeAction::Untouched), "{:?}", plan.nodes);
    }
}

async fn p1_an_order_to_upgrade_looks_pins_up_and_changes_nothing_where_nothing_is_newer(
    slipway: &Installation,
) {
    let world = slipway.world();
    let before: Lock = slipway.document("production", "lock.json").await.unwrap().unwrap();
    let mark = world.observer().mark();
    let order = Event {
        source: "slipway".to_owned(),
        detail_type: "Upgrade Requested".to_owned(),
        detail: json!({"cluster": "production"}),
        resources: Vec::new(),
    };
    world.client().put_event(world.reference("Bus").unwrap(), &order).await.unwrap();
    let answer = slipway.event(mark, &["Plan Unchanged", "Plan Ready", "Order Ignored"], PATIENCE).await;
    assert_eq!(answer.unwrap().0, "Plan Unchanged");
    let after: Lock = slipway.document("production", "lock.json").await.unwrap().unwrap();
    assert_eq!(after.upgraded.len(), Pin::ALL.len());
    assert_eq!(before.changes(&after), BTreeSet::new());
}

/// EC2 announces the interruption of every Spot machine of the account: the function asks Auto Scaling whose it is.
async fn the_notice_of_a_machine_of_nobody_is_looked_up_and_ignored(slipway: &Installation) {
    let world = slipway.world();
    let mark = world.observer().mark();
    let notice = Event {
        source: "aws.ec2".to_owned(),
        detail_type: "EC2 Spot Instance Interruption Warning".to_owned(),
        detail: json!({"instance-id": "i-0fedcba9876543210", "instance-action": "terminate"}),
        resources: Vec::new(),
    };
    world.client().put_event("default", &notice).await.unwrap();
    assert!(world.settle(QUIET, PATIENCE).await);
    let asked = world.observer().calls(mark);
    assert!(asked.iter().any(|call| call.action == "autoscaling:DescribeAutoScalingInstances"), "{asked:?}");
    assert!(!asked.iter().any(|call| call.is_write() && call.action.starts_with("ssm:")), "{asked:?}");
}

/// P2, P7: six days before the certificates expire, the schedule requests a scan; the renewed certificates lead to a plan.
async fn p7_the_daily_scan_renews_what_is_due_and_rolls_etcd_and_the_control_plane_alone(
    slipway: &Installation,
) {
    let world = slipway.world();
    let before: Manifest = slipway.document("production", "pki/manifest.json").await.unwrap().unwrap();
    let leaves = |manifest: &Manifest| -> BTreeMap<String, (String, Timestamp)> {
        let certificates = manifest.assets.iter().filter_map(|(name, entry)| {
            Some((name.clone(), (entry.fingerprint.clone(), entry.certificate.as_ref()?.not_after)))
        });
        certificates.filter(|(name, _)| name != "ca" && !name.ends_with("-ca")).collect()
    };
    let first_end = leaves(&before).values().map(|(_, ends)| *ends).min().unwrap();
    let six_days = SignedDuration::from_hours(24 * 6);
    slipway.set_clock_ahead((first_end - six_days).duration_since(world.cloud().clock().now()));
    let mark = world.observer().mark();
    slipway.daily_scan().await.unwrap();
    slipway.rolled_out(mark).await.unwrap();

    let after: Manifest = slipway.document("production", "pki/manifest.json").await.unwrap().unwrap();
    for (name, (fingerprint, ends)) in leaves(&after) {
        assert_ne!(fingerprint, leaves(&before)[&name].0, "{name}");
        assert!(ends > first_end + SignedDuration::from_hours(24 * 300), "{name} ends {ends}");
    }
    let plan = plan_of(slipway, "production").await;
    for node in &plan.nodes {
        let worker = matches!(node.role, slipway_core::role::Role::Pool(_));
        let wanted = if worker { NodeAction::Untouched } else { NodeAction::Replace };
        assert_eq!(node.action, wanted, "{}", plan.to_text());
    }
    let touched = plan.stacks.iter().filter(|stack| stack.action != StackAction::Unchanged);
    let touched: BTreeSet<&str> = touched.map(|stack| stack.name.as_str()).collect();
    assert_eq!(touched, ["production-control-plane", "production-etcd"].into());
    let state: State = slipway.document("production", "scan.json").await.unwrap().unwrap();
    assert_eq!(state.urgent, None);
    // The scan misses snapshots, because no etcd runs here whose timers would take them, and the reports of the six machines that hold
    // certificates, because no agent runs on them.
    let keys = state.findings.iter().map(|finding| finding.key.as_str());
    let (silent, others): (Vec<&str>, Vec<&str>) = keys.partition(|key| key.ends_with("/status.json"));
    assert_eq!((silent.len(), others), (6, vec!["scheduled-snapshots/production/"]));
    // The function writes its metrics to its output in CloudWatch's format.
    let metric = world.observer().since(mark).into_iter().any(|seen| match &seen.what {
        Observed::Log { line, .. } => {
            line.contains("\"CloudWatchMetrics\"") && line.contains("\"Cluster\":\"production\"")
        }
        _ => false,
    });
    assert!(metric, "a scan counts the days");
}

/// P9: the cluster's secrets, opened by an authorized user, are nowhere in the written, logged and published data or in CloudFormation: not
/// as they are, in hex, in base64 of any alignment, across lines, or inside base64 or gzip.
async fn p9_no_secret_is_where_it_must_not_be(slipway: &Installation) {
    let secrets = Secrets::open(slipway, "production").await.unwrap();
    assert!(secrets.scanner.len() > 40, "{} secrets", secrets.scanner.len());
    let searched = secrets.search(slipway).await.unwrap();
    for (kind, least) in [("objects", 60), ("calls", 5), ("events", 5), ("logs", 5), ("answers", 5)] {
        assert!(searched.pieces.get(kind).is_some_and(|count| *count > least), "{:?}", searched.pieces);
    }
    assert!(searched.findings.0.is_empty(), "{:#?}", searched.findings.0);

    // The search finds each secret where it should be: in the files that a node opens.
    let mut control = Findings::default();
    secrets.bundles.iter().for_each(|(role, text)| control.search(&secrets.scanner, role, text));
    let shown: BTreeSet<&String> = control.0.values().flatten().collect();
    assert!(shown.len() > 15 && control.0.contains_key("controller"), "{:#?}", control.0);
    let keys_of =
        |role: &str| control.0.get(role).into_iter().flatten().filter(|name| name.ends_with(" key"));
    assert_eq!(keys_of("pool-general-a").count(), 0, "workers receive no private key");
    assert!(!shown.iter().any(|name| name.starts_with("ca ") || name.starts_with("etcd-ca ")), "{shown:?}");
}

/// A plan that waits for approval executes nothing until exactly that plan is approved.
#[tokio::test(flavor = "multi_thread")]
async fn a_manual_plan_waits_for_its_approval() {
    let slipway = Installation::start(&Settings { one_clock: true, ..Settings::default() }).await.unwrap();
    let spec = production().replace("approval: auto", "approval: manual");
    assert_ne!(spec, production(), "examples/production.yaml needs approval now: adapt this test");
    let mark = slipway.world().observer().mark();
    slipway.upload("production", spec).await.unwrap();
    let (_, ready) = slipway.event(mark, &["Plan Ready"], PATIENCE).await.unwrap();
    assert_eq!(ready["needsApproval"], true);
    assert!(slipway.world().settle(Duration::from_secs(1), PATIENCE).await);
    let stacks = slipway.world().observer().calls(mark).into_iter();
    assert_eq!(
        stacks.filter(|call| call.action.starts_with("cloudformation:") && call.is_write()).count(),
        0
    );
    let status: Status = slipway.document("production", "status.json").await.unwrap().unwrap();
    assert_eq!(status.spec.unwrap().result, SpecResult::Accepted);

    let approve = |plan: &str| Event {
        source: "slipway".to_owned(),
        detail_type: "Rollout Approved".to_owned(),
        detail: json!({"cluster": "production", "plan": plan}),
        resources: Vec::new(),
    };
    slipway.world().client().put_event("slipway", &approve("00000000000000000000")).await.unwrap();
    assert!(slipway.world().settle(Duration::from_secs(1), PATIENCE).await);
    let stacks = slipway.world().observer().calls(mark).into_iter();
    let begun = stacks.filter(|call| call.action == "cloudformation:CreateChangeSet").count();
    assert_eq!(begun, 0, "another plan's approval approves nothing");

    let plan = ready["plan"].as_str().unwrap();
    slipway.world().client().put_event("slipway", &approve(plan)).await.unwrap();
    slipway.rolled_out(mark).await.unwrap();
    assert_eq!(slipway.dead_letters().await.unwrap(), 0);
}

/// Roles for service accounts: the stack that trusts the cluster's tokens, and the public documents to verify them. The functions' own
/// permissions, as the gateway checks them, are enough.
#[tokio::test(flavor = "multi_thread")]
async fn p9_roles_for_service_accounts_rest_on_public_keys_and_nothing_else_is_public() {
    let slipway = Installation::start(&Settings { one_clock: true, ..Settings::default() }).await.unwrap();
    let world = slipway.world();
    let spec = format!("{}\niamRolesForServiceAccounts: {{enabled: true}}\n", production());
    roll_out(&slipway, "production", spec.clone()).await;
    assert_eq!(status(&slipway, "production-identity"), "CREATE_COMPLETE");

    let bucket = world.reference("IssuerBucket").unwrap().to_owned();
    let issuer = format!("https://{bucket}.s3.{}.amazonaws.com/clusters/production", world.client().region());
    let made = world.cloud().with(|cloud| cloud.physical_ids("production-identity"));
    assert!(made["Provider"].ends_with(issuer.trim_start_matches("https://")), "{made:?}");
    assert!(made.values().any(|id| id.starts_with("production-addon-cluster-autoscaler-")), "{made:?}");

    let read = async |path: &str| -> serde_json::Value {
        let key = format!("clusters/production/{path}");
        let bytes = world.client().object(&bucket, &key).await.unwrap().unwrap_or_else(|| panic!("no {key}"));
        serde_json::from_slice(&bytes).unwrap()
    };
    let discovery = read(".well-known/openid-configuration").await;
    assert_eq!(
        (&discovery["issuer"], &discovery["jwks_uri"]),
        (&json!(issuer), &json!(format!("{issuer}/openid/v1/jwks")))
    );
    let keys = read("openid/v1/jwks").await;
    assert_eq!((&keys["keys"][0]["kty"], keys["keys"].as_array().unwrap().len()), (&json!("EC"), 1));
    let place = format!("{bucket}/clusters/production/openid/v1/jwks");
    let (headers, _) = world.client().s3(Method::GET, &place, "", Vec::new()).await.unwrap();
    assert_eq!(headers["content-type"], "application/json");

    // Anyone may read these two objects, and no other object of any bucket.
    let objects = world.client().versions(&bucket).await.unwrap();
    assert_eq!(objects.len(), 2, "{objects:?}");
    for object in &objects {
        let resource = format!("arn:aws:s3:::{bucket}/{}", object.key);
        assert!(
            matches!(world.gateway().anyone("s3:GetObject", &resource), Decision::Allowed(_)),
            "{resource}"
        );
        assert!(
            matches!(world.gateway().anyone("s3:PutObject", &resource), Decision::Denied(_)),
            "{resource}"
        );
    }
    assert_eq!(
        world.gateway().anyone("s3:ListBucket", &format!("arn:aws:s3:::{bucket}")),
        Decision::NotGranted
    );
    for (id, key) in [
        ("IssuerBucket", "clusters/production/status.json"),
        ("AssetBucket", "clusters/production/openid/v1/jwks"),
        ("AssetBucket", "clusters/production/pki/manifest.json"),
        ("SpecBucket", "clusters/production/cluster.yaml"),
    ] {
        let resource = format!("arn:aws:s3:::{}/{key}", world.reference(id).unwrap());
        assert_eq!(world.gateway().anyone("s3:GetObject", &resource), Decision::NotGranted, "{resource}");
    }

    // P1: the same bytes again write nothing, in this bucket either.
    let mark = world.observer().mark();
    slipway.upload("production", spec).await.unwrap();
    let answer = slipway.event(mark, &["Plan Unchanged", "Plan Ready", "Spec Rejected"], PATIENCE).await;
    assert_eq!(answer.unwrap().0, "Plan Unchanged");
    assert!(world.settle(QUIET, PATIENCE).await);
    assert_eq!(world.client().versions(&bucket).await.unwrap().len(), 2);
    assert_eq!(slipway.dead_letters().await.unwrap(), 0);
    let unused = |end: &String| {
        let elsewhere = ["PatchesChanged", "CredentialsRenewed", "UpgradeRequested", "Looked"]
            .iter()
            .any(|rule| end.contains(rule));
        elsewhere && end.ends_with("never brought an event")
    };
    let loose: Vec<String> = slipway.loose_ends().into_iter().filter(|end| !unused(end)).collect();
    assert_eq!(loose, Vec::<String>::new(), "the template's permissions are complete");
}
