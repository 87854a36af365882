//! `slipway cost`, against a price list in the form of AWS' own.

use std::path::Path;

use serde_json::{Value, json};
use slipway_tests::deploy::translate;
use slipway_tests::installation::Installation;
use slipway_tests::tools;
use slipway_tests::world::Settings;

use crate::{ADMINISTRATOR, Run, permissions, run};

async fn cost(slipway: &Installation, file: &Path, option: &str) -> Run {
    run(slipway, ADMINISTRATOR, &format!("cost {} {option}", file.display()), &[]).await
}

/// The lines of a part of the bill, as `stack: what: least to most`.
fn lines(part: &Value) -> Vec<String> {
    let line = |item: &Value| {
        let choices = item["choices"].as_array().unwrap().iter().map(|choice| {
            let of = |key: &str| choice["charge"][key].as_str().unwrap_or_default().to_owned();
            format!("{} {}{}{}", choice["amount"]["most"], of("kind"), of("instanceType"), of("volumeType"))
        });
        let text = |key: &str| item[key].as_str().unwrap().to_owned();
        let choices = choices.collect::<Vec<_>>().join("|");
        format!("{}: {choices}: {} to {}", text("stack"), text("least"), text("most"))
    };
    part["items"].as_array().unwrap().iter().map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cost_is_what_the_stacks_have_times_the_prices_of_the_list() {
    let slipway = Installation::start(&Settings::default()).await.unwrap();
    let minimal = tools::root().join("examples/minimal.yaml");
    let mark = slipway.world().observer().mark();
    let shown = cost(&slipway, &minimal, "--output json").await;
    assert_eq!(shown.code, 0, "{shown:?}");
    let calls = slipway.world().observer().calls(mark);
    assert!(!calls.is_empty() && calls.iter().all(|call| call.action == "pricing:GetProducts"), "{calls:?}");
    let bill = shown.json();
    assert_eq!(
        (&bill["region"], &bill["hours"], &bill["complete"]),
        (&json!("eu-west-1"), &json!(730), &json!(true))
    );
    // One zone: everything is in a public subnet. A month of 730 hours at 0.04, 0.03 and 0.005 an hour; 0.1 a GiB; 0.5 a zone.
    assert_eq!(
        lines(&bill["cluster"]),
        [
            "minimal-network: 1 hostedZone: 0.50 to 0.50",
            "minimal-etcd: 1 machinet3.medium: 29.20 to 29.20",
            "minimal-etcd: 60 storagegp3: 6.00 to 6.00",
            "minimal-etcd: 1 publicAddress: 3.65 to 3.65",
            "minimal-control-plane: 1 machinet3.medium: 29.20 to 29.20",
            "minimal-control-plane: 30 storagegp3: 3.00 to 3.00",
            "minimal-control-plane: 1 networkLoadBalancer: 21.90 to 21.90",
            "minimal-control-plane: 2 publicAddress: 7.30 to 7.30",
            "minimal-pool-general: 1 machinet3.medium: 29.20 to 29.20",
            "minimal-pool-general: 30 storagegp3: 3.00 to 3.00",
            "minimal-pool-general: 1 publicAddress: 3.65 to 3.65",
        ]
    );
    assert_eq!(bill["cluster"]["together"], json!({ "least": "136.60", "most": "136.60" }));

    // Of what the installation has, the key and the alarms are charged by the month.
    let template = translate(&tools::root().join("infra/template.yaml")).await.unwrap();
    let resources = template["Resources"].as_object().unwrap();
    let number = |kind: &str| resources.values().filter(|one| one["Type"] == kind).count();
    let (keys, alarms) = (number("AWS::KMS::Key"), number("AWS::CloudWatch::Alarm"));
    assert_eq!(
        lines(&bill["slipway"]),
        [format!("slipway: {keys} key: 1.00 to 1.00"), format!("slipway: {alarms} alarm: 1.30 to 1.30")]
    );

    let text = cost(&slipway, &minimal, "").await;
    for words in [
        "minimal in eu-west-1: a month of 730 hours",
        "\nminimal-etcd\n  1 t3.medium (0.04 an hour)  ",
        "  1 Network Load Balancer (0.03 an hour)  ",
        "\nSlipway itself, once for all clusters\n",
        "together, USD a month",
    ] {
        assert!(text.out.contains(words), "{words}: {}", text.out);
    }
    permissions::a_price_needs_what_the_page_says_and_nothing_more(&slipway, &minimal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_price_is_named_and_the_sum_is_called_incomplete() {
    let slipway = Installation::start(&Settings::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.yaml");
    std::fs::write(&file, crate::spec() + "      instanceType: c7i.large\n").unwrap();
    let shown = cost(&slipway, &file, "--output json").await;
    assert_eq!(shown.code, 1, "{shown:?}");
    let bill = shown.json();
    assert_eq!(bill["complete"], false);
    let missing = bill["cluster"]["notCounted"].as_array().unwrap();
    assert_eq!(missing.len(), 1, "{missing:?}");
    let why = missing[0].as_str().unwrap();
    assert!(
        why.contains("minimal-pool-general") && why.contains("no price of BoxUsage:c7i.large in eu-west-1"),
        "{why}"
    );
    let text = cost(&slipway, &file, "").await;
    assert!(text.out.contains("c7i.large") && text.out.contains("not counted"), "{text:?}");
    // All pools of production have prices, also that of spot instances.
    let production = cost(&slipway, &tools::root().join("examples/production.yaml"), "").await;
    assert_eq!(production.code, 0, "{production:?}");
    assert!(production.out.contains("Spot instances are counted at the price on demand"), "{production:?}");
}
