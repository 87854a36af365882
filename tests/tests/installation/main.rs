//! `infra/template.yaml` itself, deployed into the embedded AWS.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

mod fleet;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use slipway_core::allowed::Allowed;
use slipway_flows::environment::{Environment, REGION, Render};
use slipway_tests::deploy::translate;
use slipway_tests::iam::{self, Decision, Request};
use slipway_tests::tools;
use slipway_tests::world::{Embedded, Settings, installation_of_examples};

#[tokio::test(flavor = "multi_thread")]
async fn the_template_deploys_resource_by_resource() {
    let world =
        Embedded::start(&tools::root().join("infra/template.yaml"), &Settings::default()).await.unwrap();
    for id in [
        "SpecBucket",
        "AssetBucket",
        "IssuerBucket",
        "Key",
        "Bus",
        "RenderFunction",
        "RolloutFunction",
        "ScanFunction",
    ] {
        assert!(!world.reference(id).unwrap().is_empty(), "{id}");
    }
    assert_eq!(world.reference("Bus").unwrap(), "slipway");
    // Every rule has a function that permits it, and a queue for events that cannot be delivered.
    let deployed = world.deployed();
    assert!(deployed.routes.len() >= 3, "{:#?}", deployed.routes);
    for route in &deployed.routes {
        let letters = route.dead_letters.as_ref().unwrap_or_else(|| panic!("{route:#?}"));
        let asked = Request {
            action: "sqs:SendMessage".to_owned(),
            resource: letters.arn.clone(),
            context: BTreeMap::from([("aws:sourcearn".to_owned(), vec![route.rule_arn.clone()])]),
        };
        let decision = iam::decide_for(&letters.policy, "service:events.amazonaws.com", &asked);
        assert!(
            matches!(decision, Decision::Allowed(_)),
            "what {} cannot deliver is lost: its queue's policy does not name it ({decision:?})",
            route.rule_arn
        );
    }
    for (id, kind, _) in &deployed.recorded {
        let deliberate = ["AWS::CloudWatch::", "AWS::Logs::", "AWS::Scheduler::Schedule"];
        assert!(deliberate.iter().any(|known| kind.starts_with(known)), "{id} of type {kind}");
    }
}

/// `slipway plan` plans with the settings that the stack shows, so these must be those that the function has.
#[tokio::test(flavor = "multi_thread")]
async fn the_stack_shows_every_setting_of_the_render_function() {
    let settings = Settings { installation: installation_of_examples(), ..Settings::default() };
    let world = Embedded::start(&tools::root().join("infra/template.yaml"), &settings).await.unwrap();
    // `slipway doctor` compares it with its own; infra/package.sh writes the commit.
    let release = format!("{} (commit unknown)", env!("CARGO_PKG_VERSION"));
    assert_eq!(world.deployed().outputs["Release"], release, "infra/template.yaml is of another release");
    let shown = Environment::of_lines(&world.deployed().outputs["RenderSettings"]);
    let mut variables = BTreeMap::new();
    world.lambda().configure(world.reference("RenderFunction").unwrap(), |function| {
        variables.clone_from(&function.launch.environment);
    });
    variables.retain(|name, _| name.starts_with("SLIPWAY_"));
    assert!(variables.len() > 12, "{variables:?}");
    for (name, value) in &variables {
        assert_eq!(shown.get(name).unwrap_or_default(), value, "{name}");
    }
    // With the region, which Lambda sets, the function starts with them.
    let allowed = Render::read(&shown.with(REGION, world.region())).unwrap().allowed;
    assert_eq!(
        allowed,
        Allowed { boundaries: allowed.boundaries.clone(), ..slipway_tests::workshop::allowed() }
    );
}

/// The ports name the IAM action of each of their calls. The template must grant these actions to a function, and no other actions of those
/// services.
#[tokio::test]
async fn the_roles_grant_what_the_ports_cost_and_no_more() {
    let ports = ["shared/flows/src/ports.rs", "shared/ports/src/lib.rs"];
    let ports = ports.map(|file| std::fs::read_to_string(tools::root().join(file)).unwrap()).concat();
    let costs: BTreeSet<String> = ports
        .split('`')
        .filter(|word| {
            word.split_once(':').is_some_and(|(service, verb)| {
                !service.is_empty()
                    && service.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
                    && verb.starts_with(|c: char| c.is_ascii_uppercase())
                    && verb.chars().all(|c| c.is_ascii_alphanumeric())
            })
        })
        .map(str::to_owned)
        .collect();
    assert!(costs.len() > 8, "{costs:?}");
    let template = translate(&tools::root().join("infra/template.yaml")).await.unwrap();
    let mut granted = BTreeSet::new();
    for role in ["RenderRole", "RolloutRole", "ScanRole"] {
        let policies = template["Resources"][role]["Properties"]["Policies"].as_array().unwrap();
        for policy in policies.iter().filter(|policy| policy["PolicyName"] == "ports") {
            for statement in policy["PolicyDocument"]["Statement"].as_array().unwrap() {
                let statement = statement.get("Fn::If").map_or(statement, |branches| &branches[1]);
                let actions = &statement["Action"];
                let actions = actions.as_array().cloned().unwrap_or_else(|| vec![actions.clone()]);
                granted.extend(actions.iter().filter_map(|action| action.as_str().map(str::to_owned)));
            }
        }
    }
    let missing: Vec<_> = costs.difference(&granted).collect();
    assert!(missing.is_empty(), "no function may {missing:?}");
    // Actions that are needed in addition, and that no method of a port is named after.
    let besides =
        ["s3:ListBucket", "iam:PassRole", "cloudformation:TagResource", "cloudformation:UntagResource"];
    let more: Vec<_> =
        granted.difference(&costs).filter(|action| !besides.contains(&action.as_str())).collect();
    assert!(more.is_empty(), "permitted, but no port needs it: {more:?}");
}

/// Only the scan deletes objects, and only scheduled snapshots; not their versions, so that a month is left to restore them. Everything else
/// is deleted by people (`slipway certs gc`), with their own permissions.
#[tokio::test]
async fn the_scan_deletes_scheduled_snapshots_and_no_function_anything_else() {
    let template = translate(&tools::root().join("infra/template.yaml")).await.unwrap();
    let mut deletes = Vec::new();
    for role in ["RenderRole", "RolloutRole", "ScanRole"] {
        let policies = template["Resources"][role]["Properties"]["Policies"].as_array().unwrap();
        for statement in
            policies.iter().flat_map(|one| one["PolicyDocument"]["Statement"].as_array().unwrap())
        {
            let statement = statement.get("Fn::If").map_or(statement, |branches| &branches[1]);
            if statement["Action"].to_string().contains("s3:Delete") {
                deletes.push((role, statement["Action"].clone(), statement["Resource"].clone()));
            }
        }
    }
    let scheduled = json!({ "Fn::Sub": "${AssetBucket.Arn}/scheduled-snapshots/*" });
    assert_eq!(deletes, [("ScanRole", json!("s3:DeleteObject"), scheduled)]);
    let rules = &template["Resources"]["AssetBucket"]["Properties"]["LifecycleConfiguration"]["Rules"];
    let rules: Vec<_> = rules
        .as_array()
        .unwrap()
        .iter()
        .filter(|rule| rule["Prefix"] == json!("scheduled-snapshots/"))
        .collect();
    assert_eq!(rules.len(), 1, "{rules:?}");
    assert_eq!(
        rules[0]["NoncurrentVersionExpiration"],
        json!({ "NoncurrentDays": 30 }),
        "and none that stay"
    );
    // No rule removes what is current: only the scan knows which ones are the newest good ones.
    assert!(rules[0].get("ExpirationInDays").is_none());
}
