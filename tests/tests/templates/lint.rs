//! cfn-lint, with AWS' own schemas of the resources.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use slipway_tests::tools;

use slipway_tests::workshop::{Workshop, examples};

/// Ignored rules, and the reasons.
const LEFT_ASIDE: &[&str] = &[
    // "Avoid hardcoding the availability zone": the spec names the zones, and P1 requires the same ones every time.
    "W3010",
    // "Hardcoded partition in ARN": a cluster is in one region, so the partition is known and correct.
    "I3042",
];

/// The package cannot be run with `-m`, and the location of its script is unknown.
const CFN_LINT: &str = "import sys; sys.argv[0] = 'cfn-lint'; from cfnlint.runner import main; main()";

#[tokio::test]
async fn cfn_lint_finds_nothing_in_any_template_of_any_example() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for example in examples() {
        let workshop = Workshop::for_example(&example);
        for stack in workshop.render(&example.text).await.rendering.stacks {
            let path = folder.path().join(format!("{}.{}.json", example.name, stack.name));
            // The available instance types depend on the region, and a template can state its region only in this way.
            let mut template: Value = serde_json::from_str(&stack.body).unwrap();
            assert_eq!(template["Metadata"], Value::Null);
            template["Metadata"] = json!({"cfn-lint": {"config": {"regions": [workshop.region()]}}});
            fs::write(&path, template.to_string()).unwrap();
            files.push(path);
        }
    }
    // One process, because reading the schemas takes most of the time. Informational findings count, as for our own template.
    let linted = Command::new(tools::python().unwrap())
        .args(["-c", CFN_LINT, "--non-zero-exit-code", "informational", "--include-checks", "I"])
        .arg("--ignore-checks")
        .args(LEFT_ASIDE)
        .arg("--template")
        .args(&files)
        .output()
        .unwrap();
    let (said, errors) = (String::from_utf8_lossy(&linted.stdout), String::from_utf8_lossy(&linted.stderr));
    assert!(linted.status.success() && said.is_empty(), "{said}{errors}");

    // The linter works: it reports a template with a property that does not exist.
    let broken = folder.path().join("broken.json");
    let text = fs::read_to_string(&files[0]).unwrap();
    fs::write(&broken, text.replacen("\"CidrBlock\"", "\"CidrBlok\"", 1)).unwrap();
    let linted = Command::new(tools::python().unwrap()).args(["-c", CFN_LINT]).arg(&broken).output().unwrap();
    let said = String::from_utf8_lossy(&linted.stdout);
    assert!(!linted.status.success() && said.contains("CidrBlok"), "{said}");
}
