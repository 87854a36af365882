//! The guide that Slipway grew from: each of its snippets is a spec here as it stands, or is refused by name.
//!
//! `data/seed-001.md` holds the snippets, taken out by `tests/scripts/seed_snippets.py`. Most are parts of a spec: what they
//! lack is put behind them, and nothing in them is touched but a line of three dots, the guide's sign for "and so on".

use super::super::{Diagnostic, parse};

const SNIPPETS: &str = include_str!("data/seed-001.md");

/// What a spec needs besides, by its first key.
const REST: &[(&str, &str)] = &[
    ("clusterName", "clusterName: my-cluster-name\n"),
    ("region", "region: us-west-1\n"),
    ("kubernetesVersion", "kubernetesVersion: \"1.37\"\n"),
    ("apiEndpoints", "apiEndpoints: [{name: default, dnsName: my-cluster-endpoint.example.com}]\n"),
    ("subnets", "availabilityZone: us-west-1a\n"),
    ("worker", "worker: {nodePools: [{name: pool-1}]}\n"),
];

/// What becomes of a snippet, with the paths at which something is said.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// Accepted; a warning at each of these.
    Accepted(&'static [&'static str]),
    /// An idea that is dead: refused by name at each of these.
    Refused(&'static [&'static str]),
    /// A form with blanks, at these paths, for the reader to fill in; accepted once they are.
    Blank(&'static [&'static str]),
    /// A CloudFormation template.
    NoSpec,
}
use Answer::{Accepted, Blank, NoSpec, Refused};

/// In the guide's order.
const ANSWERS: &[(&str, Answer)] = &[
    // rkt is gone, and so is Container Linux with its channels.
    ("Kubernetes Container Runtime", Refused(&["containerRuntime", "releaseChannel"])),
    ("Calico network policy", Accepted(&["useCalico"])),
    ("Route53 Host Record", Accepted(&[])),
    // kube-aws refuses the zones that are left out, too.
    (
        "cluster-autoscaler가 필요없는 cluster",
        Blank(&["subnets[0].availabilityZone", "subnets[1].availabilityZone"]),
    ),
    ("기존에 subnet과 subnet에 node pool이 있을 경우", Accepted(&[])),
    ("기존에 subnet과 subnet에 node pool이 있을 경우", Accepted(&[])),
    (
        "Customizing min/max size of the auto scaling group",
        Accepted(&["worker.nodePools[0].autoScalingGroup.rollingUpdateMinInstanceInService"]),
    ),
    ("Configuration", Accepted(&["worker.nodePools[0].spotFleet"])),
    ("Configuration", Accepted(&["worker.nodePools[0].spotFleet"])),
    ("cluster-autoscaler", Accepted(&[])),
    // Roles by an agent on the node, which any pod could ask: IAM roles for service accounts took their place.
    (
        "1. Work/Controller Node의 IAM role에 IAM Policy 필요",
        Refused(&[
            "experimental.kiamSupport",
            "experimental.kube2IamSupport",
            "worker.nodePools[0].kube2IamSupport",
        ]),
    ),
    (
        "2. target IAM role이 worker/controller IAM role이 targe role을 맡을 수 있도록 trust relationship 변경 필요",
        Refused(&["experimental.kube2IamSupport", "worker.nodePools[0].kube2IamSupport"]),
    ),
    (
        "2. target IAM role이 worker/controller IAM role이 targe role을 맡을 수 있도록 trust relationship 변경 필요",
        NoSpec,
    ),
];

/// Each snippet with its heading.
fn snippets() -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    for section in SNIPPETS.split("\n## ").skip(1) {
        let (heading, rest) = section.split_once('\n').expect("a heading ends");
        let (_, text) = rest.split_once("```yaml\n").expect("a snippet begins");
        let (text, _) = text.rsplit_once("```").expect("a snippet ends");
        let lines = text.split_inclusive('\n').filter(|line| line.trim() != "...");
        found.push((heading, lines.collect()));
    }
    found
}

/// The snippet, and behind it what it lacks.
fn completed(snippet: &str) -> String {
    let mut text = snippet.to_owned();
    for (key, rest) in REST {
        if !snippet.lines().any(|line| line.starts_with(&format!("{key}:"))) {
            text.push_str(rest);
        }
    }
    text
}

fn paths<'d>(diagnostics: &'d [Diagnostic], codes: &[&str]) -> Vec<&'d str> {
    let of = diagnostics.iter().filter(|diagnostic| codes.contains(&diagnostic.code.as_str()));
    of.map(|diagnostic| diagnostic.path.as_str()).collect()
}

#[test]
fn every_snippet_is_answered() {
    let snippets = snippets();
    let headings: Vec<&str> = snippets.iter().map(|(heading, _)| *heading).collect();
    assert_eq!(headings, ANSWERS.iter().map(|(heading, _)| *heading).collect::<Vec<_>>());
    for ((heading, snippet), (_, answer)) in snippets.iter().zip(ANSWERS) {
        let text = completed(snippet);
        match (answer, parse(text.as_bytes(), None)) {
            (Accepted(warned), Ok(accepted)) => {
                // Every warning, whatever it is about: a snippet must not become doubtful unnoticed.
                let codes = ["translated-key"];
                assert_eq!(paths(&accepted.warnings, &codes), *warned, "{heading}");
                assert_eq!(accepted.warnings.len(), warned.len(), "{heading}: {:#?}", accepted.warnings);
            }
            (Refused(at), Err(diagnostics)) => {
                assert_eq!(paths(&diagnostics, &["retired-key"]), *at, "{heading}");
                assert_eq!(diagnostics.len(), at.len(), "{heading}: {diagnostics:#?}");
            }
            (Blank(at), Err(diagnostics)) => {
                assert_eq!(paths(&diagnostics, &["empty-value"]), *at, "{heading}");
                assert_eq!(diagnostics.len(), at.len(), "{heading}: {diagnostics:#?}");
                let filled = text.replace("availabilityZone:\n", "availabilityZone: us-west-1a\n");
                assert_eq!(parse(filled.as_bytes(), None).expect("nothing else is amiss").warnings, []);
            }
            (NoSpec, Err(diagnostics)) => {
                assert_eq!(paths(&diagnostics, &["unknown-key", "yaml-tag"]).len(), diagnostics.len());
            }
            (_, outcome) => panic!("{heading}: {answer:?} was expected, not {outcome:#?}"),
        }
    }
}

#[test]
fn what_was_refused_by_name_is_all_that_was_wrong() {
    for ((heading, snippet), (_, answer)) in snippets().iter().zip(ANSWERS) {
        if let Refused(_) = answer {
            // The groups that are refused, taken out with all that is indented below them.
            let dead = ["containerRuntime:", "releaseChannel:", "kiamSupport:", "kube2IamSupport:"];
            let mut kept = String::new();
            let mut below: Option<usize> = None;
            for line in snippet.lines() {
                let indent = line.len() - line.trim_start().len();
                if below.is_some_and(|at| indent > at || line.trim().is_empty()) {
                    continue;
                }
                below = dead.iter().any(|key| line.trim_start().starts_with(key)).then_some(indent);
                if below.is_none() && line.trim() != "experimental:" {
                    kept.push_str(line);
                    kept.push('\n');
                }
            }
            let outcome = parse(completed(&kept).as_bytes(), None);
            assert!(outcome.is_ok(), "{heading}: {outcome:#?}\n{kept}");
        }
    }
}
