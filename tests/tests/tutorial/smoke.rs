//! `make aws-smoke` in an embedded AWS: the script that a person runs in a real account runs here from its beginning to its end.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use serde_json::json;
use slipway_rollout::StackStatus;
use slipway_tests::gateway::Principal;
use slipway_tests::iam;
use slipway_tests::installation::Installation;
use slipway_tests::tools;
use slipway_tests::world::Settings;
use tokio::process::Command;

use crate::{agent, report};

const ZONE: &str = "Z0123456789ABCDEFGHIJ";
const MAINTAINER: &str = "arn:aws:iam::123456789012:role/administrator";

async fn installed() -> Installation {
    let parameters =
        [("HostedZoneIds", ZONE), ("HostedZoneDomains", "example.com"), ("MaintainerArns", MAINTAINER)];
    let mut settings = Settings { region: "us-east-1".to_owned(), ..Settings::default() };
    settings.installation.extend(parameters.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let slipway = Installation::without_agent(&settings).await.unwrap();
    slipway.world().stand_stack(&settings.stack_name, StackStatus::CreateComplete);
    let everything = json!({"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]});
    let statements = iam::parse(&everything).unwrap();
    let principal = Principal { name: "person".to_owned(), arn: MAINTAINER.to_owned(), statements };
    slipway.world().gateway().know("AKIAPERSON", principal);
    slipway
}

/// Runs the script in `folder`, with these variables besides those of a dry run.
async fn smoke(url: &str, folder: &Path, variables: &[(&str, &str)]) -> Output {
    let programs = tools::binary("slipway").unwrap();
    let path = format!("{}:/usr/bin:/bin", programs.parent().unwrap().display());
    Command::new(tools::root().join("tests/scripts/aws_smoke.sh"))
        .env_clear()
        .envs([
            ("PATH", path.as_str()),
            ("AWS_ENDPOINT_URL", url),
            ("AWS_ACCESS_KEY_ID", "AKIAPERSON"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_EC2_METADATA_DISABLED", "true"),
            ("HOME", "/nonexistent"),
            ("DOMAIN", "example.com"),
            ("HOSTED_ZONE_ID", ZONE),
            ("YES", "1"),
        ])
        .env("OUT", folder.join("out"))
        .env("AGENT", folder.join("slipway-node"))
        .envs(variables.iter().copied())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_smoke_test_launches_rolls_renews_and_destroys_a_cluster_and_reports_each_step() {
    let slipway = installed().await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("slipway-node"), agent()).unwrap();
    let url = slipway.world().gateway().url().to_owned();
    let ran = smoke(&url, folder.path(), &[]);
    tokio::pin!(ran);
    // No machine boots here: their reports are written while the script runs.
    let output = loop {
        tokio::select! {
            output = &mut ran => break output,
            () = tokio::time::sleep(Duration::from_secs(1)) => report(&slipway, "smoke").await,
        }
    };
    assert!(output.status.success(), "{}", said(&output));
    let text = std::fs::read_to_string(folder.path().join("out/report.md")).unwrap();
    let steps: Vec<&str> = text
        .lines()
        .filter(|line| line.ends_with(" | ok |"))
        .filter_map(|line| line.trim_start_matches("| ").split(' ').next())
        .collect();
    assert_eq!(
        steps,
        [
            "publish",
            "doctor",
            "init",
            "validate",
            "quotas",
            "cost",
            "plan",
            "launch",
            "status",
            "kubeconfig",
            "upgrade",
            "renew",
            "certificates",
            "serves",
            "destroy",
        ],
        "{text}"
    );
    assert!(text.contains("A dry run: no real account."), "{text}");
    let shown = said(&output);
    let cost = shown.find("together, USD a month").expect("the cost is said");
    assert!(cost < shown.find("=== launch").unwrap(), "the cost is said before anything is made");
    let rollout: serde_json::Value = slipway.document("smoke", "status.json").await.unwrap().unwrap();
    assert_eq!(rollout["rollout"]["state"], "destroyed", "{rollout}");
    assert_eq!(slipway.dead_letters().await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_smoke_test_makes_nothing_where_it_should_not() {
    // Neither a dry run in a real account, nor a real run against an address.
    let folder = tempfile::tempdir().unwrap();
    for (url, dry, words) in [
        ("https://cloudformation.us-east-1.amazonaws.com", "1", "DRY_RUN=1 needs an AWS on this machine"),
        ("", "1", "DRY_RUN=1 needs an AWS on this machine"),
        ("http://127.0.0.1:1", "0", "AWS_ENDPOINT_URL is set"),
        ("http://127.0.0.1:1", "perhaps", "DRY_RUN is 0 or 1"),
    ] {
        let output = smoke(url, folder.path(), &[("DRY_RUN", dry)]).await;
        let shown = said(&output);
        assert!(output.status.code() == Some(2) && shown.contains(words), "{url} {dry}: {shown}");
        assert!(!folder.path().join("out").exists(), "{url} {dry}");
    }

    // A spec that the installation refuses ends it before anything is made; the report says where.
    let slipway = installed().await;
    std::fs::write(folder.path().join("slipway-node"), agent()).unwrap();
    let url = slipway.world().gateway().url().to_owned();
    let output = smoke(&url, folder.path(), &[("DOMAIN", "another.example")]).await;
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let text = std::fs::read_to_string(folder.path().join("out/report.md")).unwrap();
    assert!(
        text.contains("| quotas | ") && text.contains("| exit code 1 |") && text.contains("It failed"),
        "{text}"
    );
    assert!(!text.contains("The cluster may stand"), "{text}");
    let bucket = slipway.world().reference("SpecBucket").unwrap();
    assert_eq!(slipway.world().client().versions(bucket).await.unwrap().len(), 0);
}
