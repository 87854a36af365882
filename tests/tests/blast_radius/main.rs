//! P2 and P3 for the whole spec: each key is changed, and the plan must name exactly the stacks and nodes in the table.
//! `docs/blast-radius.md` is that table.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test may panic")]

mod case;
mod effect;
mod page;
mod table;

use std::collections::BTreeSet;

use case::Case;
use effect::Effect;
use serde_json::Value;
use slipway_core::diagnostic::Diagnostic;
use slipway_flows::rendering::RenderOutcome;
use slipway_spec::schema;
use slipway_tests::tools;
use slipway_tests::workshop::Workshop;

fn refused(found: &[Diagnostic]) -> Effect {
    let words: Vec<String> = found.iter().map(|one| format!("{}: {}", one.path, one.message)).collect();
    Effect { stacks: format!("refused: {}", words.join("; ")), nodes: String::new() }
}

/// Launches the case's base, changes the key, and returns the effect of the plan.
async fn effect(case: &Case) -> Effect {
    let before = case.before().to_string();
    for text in [&before, &case.after().to_string()] {
        if let Err(found) = slipway_spec::parse(text.as_bytes(), None) {
            return refused(&found);
        }
    }
    let workshop = Workshop::for_spec(&before);
    workshop.know_images(&case.after().to_string());
    let first = workshop.render(&before).await;
    workshop.deployed(&first.plan).await;
    match workshop.outcome(&case.after().to_string()).await {
        RenderOutcome::Planned(plan) => Effect::from_plan(&plan),
        RenderOutcome::Unchanged => Effect::default(),
        RenderOutcome::Rejected(found) => refused(&found),
        RenderOutcome::Superseded | RenderOutcome::NoSpec | RenderOutcome::NotUpgraded(_) => {
            panic!("{}: its own upload was not rendered", case.key)
        }
    }
}

/// The cases whose plan differs from the table.
fn contradicted(cases: &[Case]) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut wrong = Vec::new();
    for case in cases {
        let told = runtime.block_on(effect(case));
        if (told.stacks.as_str(), told.nodes.as_str()) != (case.stacks, case.nodes) {
            wrong.push(format!(
                "{} to {}\n  table: {:?}, {:?}\n  plan:  {:?}, {:?}",
                case.key, case.to, case.stacks, case.nodes, told.stacks, told.nodes
            ));
        }
    }
    wrong
}

#[test]
fn p2_each_key_changes_what_the_table_says_and_nothing_else() {
    let cases = table::cases();
    let (one, other) = cases.split_at(cases.len() / 2);
    let wrong = std::thread::scope(|scope| {
        let beside = scope.spawn(|| contradicted(other));
        [contradicted(one), beside.join().unwrap()].concat()
    });
    assert!(wrong.is_empty(), "{} cases differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn p2_the_table_has_every_key_of_the_spec() {
    let root = schema();
    let mut keys = BTreeSet::new();
    leaves(&root, &root, String::new(), &mut keys);
    let cases = table::cases();
    let named: BTreeSet<String> = cases.iter().flat_map(Case::patterns).collect();
    let left_out: BTreeSet<String> = table::LEFT_OUT.iter().map(|(key, _)| (*key).to_owned()).collect();
    let missing: Vec<_> =
        keys.iter().filter(|key| !named.contains(*key) && !left_out.contains(*key)).collect();
    assert!(missing.is_empty(), "{} keys have no case: {missing:#?}", missing.len());
    let unknown: Vec<_> = left_out.iter().filter(|key| !keys.contains(*key)).collect();
    assert!(unknown.is_empty(), "left out, but not a key of the spec: {unknown:?}");
    let twice: Vec<_> = left_out.intersection(&named).collect();
    assert!(twice.is_empty(), "left out, but in the table: {twice:?}");
}

/// The patterns of all keys that have a value of their own. Older forms of keys, which are accepted for kube-aws, are left out: their
/// modern form is in the table.
fn leaves(root: &Value, at: &Value, path: String, found: &mut BTreeSet<String>) {
    if let Some(name) = at.get("$ref").and_then(Value::as_str) {
        return leaves(root, root.pointer(&name[1..]).unwrap(), path, found);
    }
    let choices = at.get("anyOf").and_then(Value::as_array);
    if let Some(choice) = choices.and_then(|all| all.iter().find(|one| one["type"] != "null")) {
        return leaves(root, choice, path, found);
    }
    if let Some(properties) = at.get("properties").and_then(Value::as_object) {
        for (key, property) in properties.iter().filter(|(_, property)| property["deprecated"] != true) {
            let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            leaves(root, property, below, found);
        }
        return;
    }
    let has_groups = |items: &Value| {
        let items =
            items.get("$ref").and_then(Value::as_str).map_or(items, |name| root.pointer(&name[1..]).unwrap());
        items.get("properties").is_some()
    };
    match at.get("items") {
        Some(items) if has_groups(items) => leaves(root, items, format!("{path}[]"), found),
        _ => drop(found.insert(path)),
    }
}

/// `UPDATE_DOCS=1 cargo test --workspace --test blast_radius` writes the page.
#[test]
fn docs_blast_radius_is_this_table() {
    let path = tools::root().join("docs/blast-radius.md");
    let page = page::page(&table::cases());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == page,
        "docs/blast-radius.md is out of date: run UPDATE_DOCS=1 cargo test --workspace --test blast_radius"
    );
}
