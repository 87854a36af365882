//! The calls of the user data with the real curl, before there is an agent.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use slipway_tests::imds::Imds;
use slipway_tests::tools;
use slipway_tests::workshop::{Workshop, example};
use tokio::process::Command;

use crate::aws::signed_as_botocore_signs;
use crate::scripted::Scripted;

/// A controller's user data, as rendered for production.
async fn script() -> String {
    let text = example("production");
    let rendered = Workshop::for_spec(&text).render(&text).await;
    let stacks = rendered.rendering.stacks.iter();
    let stack = stacks.clone().find(|stack| stack.name == "production-control-plane").unwrap();
    let template: Value = serde_json::from_str(&stack.body).unwrap();
    let data = &template["Resources"]["LaunchTemplate"]["Properties"]["LaunchTemplateData"];
    data["UserData"]["Fn::Base64"].as_str().unwrap().to_owned()
}

/// `text` with another value for a variable.
fn with(text: &str, variable: &str, value: &str) -> String {
    let (before, rest) = text.split_once(&format!("{variable}='")).unwrap();
    let (_, after) = rest.split_once('\'').unwrap();
    format!("{before}{variable}='{value}'{after}")
}

/// Whether curl signs given headers, as it does since 7.87 (Ubuntu 22.04's does not).
async fn curl_is_new_enough() -> bool {
    let output = Command::new("curl").arg("--version").output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let version = text.split_whitespace().nth(1).unwrap().to_owned();
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().unwrap_or_default());
    (numbers.next().unwrap(), numbers.next().unwrap()) >= (7, 87)
}

#[tokio::test]
async fn what_userdata_asks_for_and_tells_is_signed_as_s3_and_auto_scaling_want_it() {
    if !curl_is_new_enough().await {
        tools::not_tested(
            "userdata's requests: this machine's curl is older than 7.87, the oldest that it can work with",
        );
        return;
    }
    let aws = Scripted::start(&[(404, "<Error><Code>NoSuchKey</Code></Error>")]).await;
    let imds = Imds::start("i-0123456789abcdef0", "eu-west-1a", "10.0.0.5", "ASIANODE").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let sleep = folder.path().join("sleep");
    std::fs::write(&sleep, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&sleep, std::fs::Permissions::from_mode(0o755)).unwrap();

    let mut text = script().await.replace("/var/lib/slipway", &folder.path().display().to_string());
    text = with(&text, "agent", &"a".repeat(64));
    text = with(&text, "s3", &aws.url);
    text = with(&text, "autoscaling", &format!("{}/", aws.url));
    text = with(&text, "imds", &format!("{}/latest", imds.url()));
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    command.args(["-c", &text]).env("PATH", path).stdout(Stdio::null()).stderr(Stdio::piped());
    let output = tokio::time::timeout(Duration::from_secs(60), command.output()).await.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");

    let asked = aws.received();
    let (gets, told) = asked.split_at(asked.len() - 2);
    assert_eq!(gets.len(), 9, "{asked:?}");
    assert!(gets.iter().all(|one| one.path == format!("/agent/{}/slipway-node", "a".repeat(64))));
    let (report, abandon) = (&told[0], &told[1]);
    let place = "/clusters/production/nodes/controller/arn%3Aaws%3Aec2%3Aeu-west-1%3A123456789012%3Ainstance/i-0123456789abcdef0/bootstrap.json";
    assert_eq!((report.method.as_str(), report.path.as_str()), ("PUT", place));
    let told: Value = serde_json::from_slice(&report.body).unwrap();
    assert!(told["failure"]["message"].as_str().unwrap().contains("cannot be had"), "{told}");
    let form = String::from_utf8(abandon.body.to_vec()).unwrap();
    assert!(
        form.contains("LifecycleActionResult=ABANDON") && form.contains("production-control-plane"),
        "{form}"
    );
    for one in asked.iter().take(asked.len() - 1) {
        let signed = &one.headers["authorization"];
        assert!(
            signed.contains("x-amz-content-sha256;") && signed.contains("x-amz-security-token"),
            "{signed}"
        );
    }
    signed_as_botocore_signs(&aws);
}
