//! The plan of an upload that does not happen: the same rows as the plan of the upload, without a write, a key or an event.

use serde_json::Value;
use slipway_core::keys;
use slipway_core::release::Site;
use slipway_crypto::AwsLc;
use slipway_flows::imports::BucketImports;
use slipway_flows::patches::PatchSet;
use slipway_flows::rendering::{Foreseen, Preview, RenderOutcome, RenderPorts, preview};
use slipway_plan::{NodeAction, Plan};
use slipway_sim::memory::{Call, OWN_KEY};
use slipway_tests::iam::like;
use slipway_tests::tools;
use slipway_tests::workshop::Workshop;

use super::{PRODUCTION, bigger};

/// The keys in the asset bucket that docs/cli.md lets whoever runs `plan` read: patterns, with the agent's manifest among them.
fn granted(cluster: &str) -> Vec<String> {
    let page = std::fs::read_to_string(tools::root().join("docs/cli.md")).unwrap();
    let rows = page.lines().filter(|row| row.starts_with("| `plan` | `s3:GetObject` |"));
    let rows = rows.filter(|row| row.ends_with(" of the asset bucket |"));
    let cells = rows.map(|row| row.split(" | ").nth(2).unwrap());
    let keys = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    keys.map(|key| key.replace("NAME", cluster)).collect()
}

async fn previewed(account: &Workshop, text: &str) -> Preview {
    account.assets.journal().clear();
    let (writes, calls) = (account.assets.writes(), account.keys.journal().calls().len());
    let (stored, specs) = (account.assets.keys(), account.specs.writes());
    let ports = RenderPorts {
        specs: &account.specs,
        assets: &account.assets,
        issuer: None,
        keys: &account.keys,
        parameters: &account.parameters,
        registry: &account.registry,
        bus: &account.bus,
        crypto: &AwsLc,
    };
    let site = Site {
        asset_bucket: account.assets.name().to_owned(),
        kms_key_arn: OWN_KEY.to_owned(),
        region: Some(account.region()),
        issuer_bucket: Some(account.issuer.name().to_owned()),
        allowed: account.allowed.clone(),
    };
    let imports =
        BucketImports { cluster: &account.name, specs: &account.specs, parameters: &account.parameters };
    let patches = PatchSet::read(&account.specs, &account.name).await.unwrap();
    let found = preview(&ports, &imports, &site, &account.name, text.as_bytes(), &patches, account.now);
    let found = found.await.unwrap();
    assert_eq!((account.assets.writes(), account.specs.writes()), (writes, specs), "something was written");
    assert_eq!(account.assets.keys(), stored);
    assert_eq!(account.keys.journal().calls().len(), calls, "a key was asked for");
    assert!(account.take_event_types().is_empty());
    let granted = granted(&account.name);
    for Call { operation, subject } in account.assets.journal().calls() {
        // HeadObject needs the permission of GetObject.
        assert!(["s3:GetObject", "s3:HeadObject"].contains(&operation), "{operation} {subject}");
        let may = granted.iter().any(|pattern| like(pattern, &subject));
        assert!(may, "docs/cli.md does not grant {subject}: {granted:?}");
    }
    found
}

/// The text with `#` for each digest and id in it.
fn without_hex(text: &str) -> String {
    let runs = text.split_inclusive(|letter: char| !letter.is_ascii_hexdigit());
    let shown = runs.map(|run| {
        let hex = run.trim_end_matches(|letter: char| !letter.is_ascii_hexdigit());
        if [20, 64].contains(&hex.len()) { format!("#{}", &run[hex.len()..]) } else { run.to_owned() }
    });
    shown.collect()
}

/// The plan without what only the upload knows: digests of contents, and the ids made of them.
fn without_digests(plan: &Plan) -> Value {
    fn blank(value: &mut Value) {
        match value {
            Value::String(text) => *text = without_hex(text),
            Value::Array(values) => values.iter_mut().for_each(blank),
            Value::Object(values) => values.values_mut().for_each(blank),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(plan).unwrap();
    value["id"] = Value::Null;
    blank(&mut value);
    value
}

async fn planned(account: &Workshop, text: &str) -> Foreseen {
    let Preview::Planned(foreseen) = previewed(account, text).await else {
        panic!("the preview refused what is valid");
    };
    *foreseen
}

/// Previews `text` and uploads it, and returns both plans, and the roles whose credentials were not known before.
async fn both(account: &Workshop, text: &str) -> (Plan, Plan, Vec<String>) {
    let foreseen = planned(account, text).await;
    assert!(!foreseen.unchanged);
    let RenderOutcome::Planned(plan) = account.outcome(text).await else { panic!("no plan") };
    assert_eq!(foreseen.is_exact(), foreseen.plan == *plan);
    (foreseen.plan, *plan, foreseen.sealed.iter().map(ToString::to_string).collect())
}

#[tokio::test]
async fn p2_a_preview_is_the_plan_of_the_upload_to_the_last_digest_where_no_credential_is_made() {
    let changes: [fn(&str) -> String; 3] = [
        bigger,
        |text| text.replace("m7i.large", "m7a.large"),
        |text| text.replacen("minSize: ", "minSize: 1", 1).replacen("maxSize: 10", "maxSize: 60", 1),
    ];
    for change in changes {
        let account = Workshop::launched(PRODUCTION).await;
        let changed = change(PRODUCTION);
        assert_ne!(changed, PRODUCTION);
        let (foreseen, plan, sealed) = both(&account, &changed).await;
        assert_eq!(foreseen, plan);
        assert!(sealed.is_empty(), "{sealed:?}");
    }
}

#[tokio::test]
async fn p2_a_preview_of_a_new_cluster_has_the_rows_of_its_launch() {
    let account = Workshop::for_spec(PRODUCTION);
    let (foreseen, plan, sealed) = both(&account, PRODUCTION).await;
    assert_eq!(without_digests(&foreseen), without_digests(&plan));
    assert_eq!(sealed.len(), plan.nodes.len() + 1, "{sealed:?}");
}

#[tokio::test]
async fn p2_a_preview_without_keys_has_the_rows_of_an_upload_that_makes_certificates() {
    let account = Workshop::launched(PRODUCTION).await;
    let changed = PRODUCTION.replace("general-b", "general-z");
    assert_ne!(changed, PRODUCTION);
    let (foreseen, plan, sealed) = both(&account, &changed).await;
    assert_eq!(without_digests(&foreseen), without_digests(&plan));
    assert!(plan.nodes.iter().any(|node| node.action == NodeAction::Create));
    assert!(sealed.contains(&"pool-general-z".to_owned()), "{sealed:?}");
}

#[tokio::test]
async fn a_preview_of_what_runs_is_unchanged_and_one_of_a_mistake_is_refused() {
    let account = Workshop::launched(PRODUCTION).await;
    let same = planned(&account, PRODUCTION).await;
    assert!(same.unchanged && same.plan.is_empty() && same.made.is_empty() && same.is_exact());
    let mistaken = PRODUCTION.replacen("maxSize", "maxSise", 1);
    let Preview::Rejected(foreseen) = previewed(&account, &mistaken).await else { panic!("accepted") };
    assert_eq!(account.outcome(&mistaken).await, RenderOutcome::Rejected(foreseen));
    assert!(account.assets.peek(&keys::desired(&account.name)).is_some());
}
