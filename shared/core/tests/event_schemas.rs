//! `infra/events/` says of each event what its detail is. `UPDATE_SCHEMAS=1 cargo test` writes it anew.

#![allow(clippy::disallowed_methods, reason = "a test may ask the environment whether to rewrite a file")]
use std::path::PathBuf;

use slipway_core::event::schemas;

fn path(detail_type: &str) -> PathBuf {
    let name = detail_type.to_lowercase().replace(' ', "-");
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../infra/events")).join(format!("{name}.json"))
}

#[test]
fn the_schemas_of_the_events_are_those_of_the_types() {
    for (detail_type, schema) in schemas() {
        let mut text = serde_json::to_string_pretty(&schema).unwrap();
        text.push('\n');
        let path = path(detail_type);
        if std::env::var_os("UPDATE_SCHEMAS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            stored == text,
            "{} is stale: run UPDATE_SCHEMAS=1 cargo test -p slipway-core",
            path.display()
        );
    }
}

#[test]
fn every_schema_belongs_to_an_event() {
    let known: Vec<PathBuf> = schemas().keys().map(|name| path(name)).collect();
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../infra/events")).unwrap() {
        let found = entry.unwrap().path();
        assert!(known.iter().any(|path| path.file_name() == found.file_name()), "{}", found.display());
    }
}
