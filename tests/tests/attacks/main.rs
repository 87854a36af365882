//! Attacks, in modules named by who attacks. docs/security.md says what each of them can reach, and names these tests.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

mod bus_holder;
mod controller;
mod functions;
mod member;
mod pod;
mod rollout_function;
mod sender;
mod uploader;
mod wide;
mod worker;

use std::collections::BTreeMap;

use jiff::Timestamp;
use slipway_core::diagnostic::Diagnostic;
use slipway_credentials::renewal::RenewalRequest;
use slipway_flows::rendering::RenderOutcome;
use slipway_flows::scan::{ScanOutcome, Scanned};
use slipway_ports::ErrorKind;
use slipway_sim::memory::Fault;
use slipway_sim::mortal::Life;
use slipway_tests::iam::{Decision, Request, Statement};
use slipway_tests::tools;
use slipway_tests::workshop::{Workshop, allowed};
use slipway_tests::world::{Embedded, Settings};

/// What changes an object.
const WRITES: [&str; 5] =
    ["s3:PutObject", "s3:DeleteObject", "s3:DeleteObjectVersion", "s3:ReplicateObject", "s3:ReplicateDelete"];

/// An installation, for its policies.
async fn installation() -> Embedded {
    Embedded::start(&tools::root().join("infra/template.yaml"), &Settings::default()).await.unwrap()
}

/// An installation with those `MaintainerArns`.
async fn installation_of(maintainers: Option<&String>) -> Embedded {
    let mut settings = Settings::default();
    settings.installation.extend(maintainers.map(|arns| ("MaintainerArns".to_owned(), arns.clone())));
    Embedded::start(&tools::root().join("infra/template.yaml"), &settings).await.unwrap()
}

/// An account with an installation that allows what the examples use.
fn workshop(text: &str) -> Workshop {
    let mut workshop = Workshop::for_spec(text);
    workshop.allowed = Some(allowed());
    workshop
}

/// The findings about `text`, which must be refused.
async fn refused(workshop: &Workshop, text: &str) -> Vec<Diagnostic> {
    match workshop.outcome(text).await {
        RenderOutcome::Rejected(findings) => findings,
        other => panic!("not refused: {other:?}\n{text}"),
    }
}

/// Asserts that one finding has that code, and that its words contain all of `parts`.
fn says(findings: &[Diagnostic], code: &str, parts: &[&str]) {
    let found = findings.iter().find(|finding| finding.code == code);
    let found = found.unwrap_or_else(|| panic!("no finding {code}: {findings:#?}"));
    let words = format!("{} {found} {}", found.path, found.help.as_deref().unwrap_or_default());
    for part in parts {
        assert!(words.contains(part), "{part:?} is not in {words:?}");
    }
}

/// What a node may write at the keys of its reports. S3 also refuses to give out what it encrypted with a key of the writer's own, or what is in
/// an archive: "Invalid" and "Denied".
const UNREADABLE: [&str; 4] = ["more than any function reads", "more than a report", "Invalid", "Denied"];

/// Makes the object at `key` one that nobody can read, as a node can. It stays so until it is written again.
fn spoil(workshop: &Workshop, key: &str, how: &str) {
    let refused = |kind| workshop.assets.faults().plan("s3:GetObject", key, Fault::Before(kind), 1);
    workshop.assets.upload(key, "{}");
    match how {
        "more than any function reads" => drop(workshop.assets.upload(key, vec![b' '; (16 << 20) + 1])),
        "more than a report" => drop(workshop.assets.upload(key, vec![b' '; 15 << 20])),
        "Invalid" => refused(ErrorKind::Invalid),
        "Denied" => refused(ErrorKind::Denied),
        other => panic!("{other}"),
    }
}

/// Invokes the scan function for the cluster.
async fn scanned(workshop: &Workshop, now: Timestamp) -> Scanned {
    match workshop.scan(&RenewalRequest::default(), &Life::unending(), now).await.unwrap() {
        ScanOutcome::Scanned(scanned) => *scanned,
        ScanOutcome::Nothing(why) => panic!("{why}"),
    }
}

/// A request in a region, over TLS.
fn request(action: &str, resource: &str, context: &[(&str, &str)]) -> Request {
    let mut keys: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let always =
        [("aws:requestedregion", "eu-west-1"), ("aws:securetransport", "true"), ("s3:tlsversion", "1.3")];
    for (key, value) in always.into_iter().chain(context.iter().copied()) {
        keys.entry(key.to_ascii_lowercase()).or_default().push(value.to_owned());
    }
    Request { action: action.to_owned(), resource: resource.to_owned(), context: keys }
}

/// The statements of a role of the template.
fn role<'a>(world: &'a Embedded, id: &str) -> &'a [Statement] {
    let deployed = world.deployed();
    &deployed.roles[&deployed.arns[id]].statements
}

fn is_allowed(decision: &Decision) -> bool {
    matches!(decision, Decision::Allowed(_))
}
